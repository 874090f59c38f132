"""Chosen tests in a given order, for some seconds of a processor (``pytest -p shipping.chosen``).

Tests that are named on the command line run with all their cases; those of a list are of the sample.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from shipping.probes import worked

# Variable of the environment that names the file with the names of tests, their order and the seconds.
CHOSEN = "DPGRAIN_CHOSEN"


class _Chosen:
    def __init__(self, file: Path) -> None:
        asked = json.loads(file.read_text(encoding="utf-8"))
        self.place = {name: place for place, name in enumerate(asked["tests"])}
        self.seconds: float = asked["seconds"]
        self.outcome = file.with_suffix(".outcome")
        self.began: float | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        """Keep the chosen tests, after the sample is drawn from all."""
        yield
        kept = [item for item in items if item.nodeid in self.place]
        items[:] = sorted(kept, key=lambda item: self.place[item.nodeid])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Note which test is running; end when the time is over."""
        self.began = worked() if self.began is None else self.began
        if worked() - self.began > self.seconds:
            item.session.shouldstop = "the time is over"
        self.outcome.write_text(json.dumps({"running": item.nodeid, "since": time.time()}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the test that fails."""
        if report.failed:
            self.outcome.write_text(json.dumps({"failed": report.nodeid}))


def pytest_configure(config: pytest.Config) -> None:
    """Run the tests of the list that the environment names."""
    if CHOSEN in os.environ:
        config.pluginmanager.register(_Chosen(Path(os.environ[CHOSEN])))
