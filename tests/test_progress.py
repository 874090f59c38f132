"""Progress of long work: text on a terminal and in a notebook, and nothing in a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from pathlib import Path

import pyarrow as pa
import pytest

import dpgrain as dg
from dpgrain._progress import Progress, step
from dpgrain.learn.features import FeatureEncoding, NumberColumn, load_rows
from dpgrain.publishing.charge import Curator

#: A release of rows that a query makes, with the words shown at once.
RELEASE = """
import duckdb
import dpgrain as dg
from dpgrain import _progress
_progress._PATIENCE_SECONDS = 0.0
_progress._REDRAW_SECONDS = 0.02
rows = duckdb.sql(
    "SELECT {user} AS who, (i * 7919) % 50 AS item FROM range({rows}) made(i)"
)
dg.histogram(
    dg.read(rows, user="who", threads=2, rows="as given"), "item", domain=range(50),
    unit=dg.User(), epsilon=1.0, delta=1e-6, clip={clip!r},
)
print("released")
"""
WHOLE, TEXT = "i % 100000", "'user ' || i % 100000"


class Terminal:
    """A process with a terminal controlled by the test."""

    def __init__(self, code: str, folder: Path) -> None:
        self.screen = b""
        self._hold, given = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=given,
            stdout=given,
            stderr=given,
            env={**os.environ, "TMPDIR": str(folder), "TERM": "xterm", "COLUMNS": "100"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(given)

    def read(self, until: str | None = None, seconds: float = 60.0) -> str:
        """Return the screen once it contains a text, or the process has ended."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and (until is None or until not in self.text):
            if not select.select([self._hold], [], [], 0.1)[0]:
                continue
            try:
                self.screen += os.read(self._hold, 1 << 16)
            except OSError:
                # The process has closed its end.
                break
        return self.text

    @property
    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.screen.decode())

    def press_control_c(self) -> None:
        os.write(self._hold, b"\x03")

    def end(self) -> int:
        code = self.process.wait(30)
        os.close(self._hold)
        return code


def code(rows: int, *, user: str = WHOLE, clip: float | str = "auto") -> str:
    return RELEASE.format(rows=rows, user=user, clip=clip)


@pytest.mark.slow
def test_terminal_shows_the_current_work(tmp_path: Path) -> None:
    terminal = Terminal(code(3_000_000, user=TEXT), tmp_path)
    shown = terminal.read()
    assert terminal.end() == 0
    assert "released" in shown
    for words in (
        "Choosing clipping bounds: numbering users",
        "Choosing clipping bounds: reading rows",
        "processing users",
    ):
        assert words in shown, words
    # No number of rows or users is shown.
    assert not re.search(r"\d{4}", shown)


@pytest.mark.slow
def test_nothing_is_shown_in_a_pipe(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code(1_000_000)], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("released\n", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "user"),
    [("reading rows", WHOLE), ("processing users", WHOLE), ("numbering users", TEXT)],
)
def test_control_c_ends_a_pass_and_leaves_nothing(words: str, user: str, tmp_path: Path) -> None:
    terminal = Terminal(code(20_000_000, user=user), tmp_path)
    assert words in terminal.read(until=words)
    assert [path.name[:14] for path in tmp_path.iterdir()] == ["dpgrain-spill-"]
    began = time.monotonic()
    terminal.press_control_c()
    shown = terminal.read()
    assert terminal.end() != 0
    assert "KeyboardInterrupt" in shown
    assert "released" not in shown
    assert time.monotonic() - began < 10
    assert not list(tmp_path.iterdir())


def test_a_step_belongs_to_its_stage() -> None:
    with Progress(2, show=False) as progress:
        progress.stage("Adding up")
        step("reading rows")
        assert progress.text == "Adding up: reading rows"
        progress.stage("Adding noise")
        assert progress.text == "Adding noise"
    step("of nobody")
    assert progress.text == "Adding noise"


def test_nested_work_is_reported_there() -> None:
    with Progress(1, show=False) as outer:
        outer.stage("All releases")
        with Progress(2, show=True) as inner:
            inner.stage("Adding up")
            assert outer.text == "All releases: Adding up"
            step("reading rows")
            assert outer.text == "All releases: Adding up: reading rows"
            assert inner._thread is None
        step("writing")
        assert outer.text == "All releases: writing"


def test_reading_features_is_reported() -> None:
    table = dg.read(pa.table({"who": [1, 2], "x": [0.5, 1.0]}), user="who")
    with Progress(1, show=False) as outer:
        outer.stage("The fit")
        load_rows(table, FeatureEncoding((NumberColumn("x"),)), Curator())
        assert outer.text.startswith("The fit: Reading rows of features")
