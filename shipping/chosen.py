"""Chosen tests in a given order, for some seconds of a processor (``pytest -p shipping.chosen``).

Tests named on the command line run with all their cases; tests of a list are from the sample. A
test that takes more of a processor than it may hangs, and ends the run.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from shipping.probes import worked

# Environment variable with the name of a file: tests in their order, the processor seconds of each,
# and the total after which no further test begins.
CHOSEN = "DPGRAIN_CHOSEN"


class Chosen:
    """A plugin that runs selected tests, and records the progress next to their file."""

    def __init__(self, file: Path) -> None:
        asked = json.loads(file.read_text(encoding="utf-8"))
        self.most: dict[str, float] = asked["tests"]
        self.place = {name: place for place, name in enumerate(self.most)}
        self.seconds: float = asked["seconds"]
        self.outcome = file.with_suffix(".outcome")
        self.began: float | None = None
        self.noted: dict[str, Any] = {}

    def of(self, items: Sequence[pytest.Item]) -> list[pytest.Item]:
        """Return the chosen tests among some, in their order."""
        kept = [item for item in items if self._name(item) in self.place]
        return sorted(kept, key=lambda item: self.place[self._name(item)])

    def _name(self, item: pytest.Item) -> str:
        """Name of a test in the list, which may omit the case."""
        return item.nodeid if item.nodeid in self.place else item.nodeid.partition("[")[0]

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        """Keep the chosen tests, after the sample is drawn from all."""
        yield
        items[:] = self.of(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Record the running test; end at the time limit, or at the limit of the test."""
        if self.began is None:
            self.began = worked()
            signal.signal(signal.SIGPROF, self._hang)
        if worked() - self.began > self.seconds:
            self._note(over=True)
            item.session.shouldstop = "the time is over"
            return True
        self._note(running=item.nodeid, since=time.time())
        signal.setitimer(signal.ITIMER_PROF, self.most[self._name(item)])
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the test that fails."""
        if report.failed:
            self._note(failed=[*self.noted.get("failed", ()), report.nodeid])

    def _hang(self, *_: object) -> None:
        self._note(hangs=self.noted["running"])
        os._exit(1)

    def _note(self, **what: object) -> None:
        self.noted |= what
        self.outcome.write_text(json.dumps(self.noted))


def pytest_configure(config: pytest.Config) -> None:
    """Run the tests of the list that the environment names."""
    if CHOSEN in os.environ:
        config.pluginmanager.register(Chosen(Path(os.environ[CHOSEN])))
