"""What tests of several rooms need."""

from __future__ import annotations

import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from dpgrain.cli import main

# Runs a command from its words.
Command: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """A command in this process, which takes a fraction of the time of one of its own."""

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["dpgrain", *map(str, words)])
        with warnings.catch_warnings():
            # What the library warns of is printed, as for a person; all else is an error.
            warnings.simplefilter("always", UserWarning)
            with pytest.raises(SystemExit) as ended:
                main()
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(
            sys.argv, int(ended.value.code or 0), printed.out, printed.err
        )

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    before = signal.getsignal(signal.SIGTERM)
    yield run
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def process() -> Command:
    """A command in a process of its own, as a person runs it."""

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "dpgrain", *map(str, words)],
            capture_output=True,
            text=True,
            check=False,
            env={"COLUMNS": "200", "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
        )

    return run
