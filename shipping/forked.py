"""A process that collects tests once and is forked for each injected bug (``pytest -p
shipping.forked``).

A fork replaces the code of functions by the code with the bug, and continues as a run of the tests
selected for it, so that all bugs share one start and one collection. Bugs outside functions, and in
code that has already run, need a copy of the package and a new process.
"""

from __future__ import annotations

import gc
import json
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from shipping.chosen import Chosen

# Environment variable with the file of the bugs, their tests and their results.
FORKED = "DPGRAIN_FORKED"
# Seconds between two checks whether a fork has ended.
_LOOK = 0.05
# Name of the last run, which repeats failed tests without a bug.
WITHOUT = "without"
# Exit status of a fork that cannot replace a function's code.
UNLIKE = 70


class UnlikeError(ValueError):
    """The code of a function cannot be replaced by the code with the bug."""


def functions_by_file() -> dict[str, list[FunctionType]]:
    """Return all loaded functions, by the file of their code."""
    found: dict[str, list[FunctionType]] = {}
    for function in gc.get_objects():
        # `isinstance` would evaluate a module's class, which may be a property that warns.
        if type(function) is FunctionType:
            found.setdefault(function.__code__.co_filename, []).append(function)
    return found


def put(module: str, bad: str, functions: Mapping[str, Sequence[FunctionType]]) -> None:
    """Replace the code of each loaded function of a module by its code in another text.

    Args:
        bad: the text of its file with the bug.
        functions: the result of `functions_by_file`; a search in each fork would copy its memory.

    Raises:
        UnlikeError: one of its functions has no such code, or none has another one.
    """
    file = import_module(module).__file__ or ""
    good = Path(file).read_text(encoding="utf-8")
    pairs = _pairs(*(compile(text, file, "exec", dont_inherit=True) for text in (good, bad)))
    codes = dict(pairs)
    changed = False
    for function in functions.get(file, ()):
        old = function.__code__
        code = codes.get(old)
        if code is None or code.co_freevars != old.co_freevars:
            raise UnlikeError(f"{function.__qualname__} has no code that fits.")
        function.__code__ = code
        changed |= code != old
    if not changed:
        raise UnlikeError(f"No function of {module} differs.")


def _pairs(good: CodeType, bad: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Codes of functions in one code and in another that differs in the bodies of functions."""
    yield good, bad
    inside, other = (
        [part for part in code.co_consts if isinstance(part, CodeType)] for code in (good, bad)
    )
    if [part.co_name for part in inside] == [part.co_name for part in other]:
        for one, two in zip(inside, other, strict=True):
            yield from _pairs(one, two)


@dataclass(frozen=True)
class _Run:
    """Name and start time of a fork's run."""

    name: str
    began: float


class _Forked:
    def __init__(self, file: Path) -> None:
        self.folder = file.parent
        asked = json.loads(file.read_text(encoding="utf-8"))
        self.bugs: dict[str, dict[str, Any]] = asked["bugs"]
        self.source: str = asked["source"]
        self.seconds: float = asked["seconds"]
        self.limit: float = asked["limit"]
        self.workers: int = asked["workers"]
        self.every: bool = asked["every"]
        self.told: int = asked["told"]
        self.forked = False
        self.functions: dict[str, list[FunctionType]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Fork once per bug and report each result; a fork continues with its tests."""
        if session.testsfailed:
            return True
        # Garbage collectors of the forks must not touch the shared memory of collected tests.
        self.functions = functions_by_file()
        gc.freeze()
        failed: set[str] = set()
        waiting, running = list(self.bugs), dict[int, _Run]()
        while waiting or running:
            while waiting and len(running) < self.workers:
                name = waiting.pop(0)
                if not (fork := os.fork()):
                    self._run_with(session, name)
                    return None
                running[fork] = _Run(name, time.monotonic())
            time.sleep(_LOOK)
            for fork, run in list(running.items()):
                if (status := _ended(fork, run.began + self.limit)) is not None:
                    del running[fork]
                    failed |= set(self._tell(run, status).get("failed", ()))
        run = _Run(WITHOUT, time.monotonic())
        if not (fork := os.fork()):
            self._run_without(session, failed)
            return None
        self._tell(run, os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]))
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, exitstatus: int) -> Iterator[None]:
        """End a fork before threads are waited for that only the first process has."""
        yield
        if self.forked:
            os._exit(exitstatus)

    def _tell(self, run: _Run, status: int) -> dict[str, Any]:
        outcome = self.folder / f"{run.name}.outcome"
        last: dict[str, Any] = json.loads(outcome.read_text()) if outcome.exists() else {}
        seconds = time.monotonic() - run.began
        line = json.dumps({"name": run.name, "status": status, "last": last, "seconds": seconds})
        os.write(self.told, f"{line}\n".encode())
        shutil.rmtree(self.folder / run.name, ignore_errors=True)
        return last

    def _run_with(self, session: pytest.Session, name: str) -> None:
        """Put a mutant into this process, and run its selected tests."""
        bug = self.bugs[name]
        if self.every:
            session.config.option.maxfail = 0
        self._choose(session, name, bug["tests"], self.seconds)
        # Processes started by tests also load the package from a copy with the bug.
        copy = str(self.folder / name / "src")
        shutil.copytree(self.source, copy, copy_function=os.symlink)
        Path(copy, bug["file"]).unlink()
        Path(copy, bug["file"]).write_text(bug["bad"], encoding="utf-8")
        sys.path[:] = [copy if path == self.source else path for path in sys.path]
        os.environ["PYTHONPATH"] = os.environ["PYTHONPATH"].replace(self.source, copy)
        try:
            put(bug["module"], bug["bad"], self.functions)
        except UnlikeError:
            os._exit(UNLIKE)

    def _run_without(self, session: pytest.Session, failed: set[str]) -> None:
        """Make this process one without a bug, that runs all tests that failed in others."""
        self._choose(session, WITHOUT, dict.fromkeys(sorted(failed), self.limit), math.inf)
        session.config.option.maxfail = 0

    def _choose(
        self, session: pytest.Session, name: str, tests: dict[str, float], seconds: float
    ) -> None:
        self.forked = True
        os.setsid()
        os.close(self.told)
        (self.folder / name).mkdir()
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(self.folder / name)
        file = self.folder / f"{name}.json"
        file.write_text(json.dumps({"tests": tests, "seconds": seconds}))
        chosen = Chosen(file)
        session.items[:] = chosen.of(session.items)
        session.config.pluginmanager.register(chosen)


def _ended(fork: int, limit: float) -> int | None:
    """The exit status of a fork; None while it runs, and -1 if its time was over."""
    over = time.monotonic() > limit
    if over:
        os.killpg(fork, signal.SIGKILL)
    process, status = os.waitpid(fork, 0 if over else os.WNOHANG)
    if not process:
        return None
    with suppress(ProcessLookupError):
        # Processes that its tests left behind.
        os.killpg(fork, signal.SIGKILL)
    return -1 if over else os.waitstatus_to_exitcode(status)


def pytest_configure(config: pytest.Config) -> None:
    """Fork for the bugs that the environment names."""
    if FORKED in os.environ:
        config.pluginmanager.register(_Forked(Path(os.environ[FORKED])))
