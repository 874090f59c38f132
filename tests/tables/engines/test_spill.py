"""Spilled data are removed with the release, and with the process, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pyarrow as pa
import pytest

import dpgrain as dg
from dpgrain.tables.engines.spill import SpillFolder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals and locks")

#: A spilling release that pauses with data on disk.
RUNNING = """
    import signal, sys, time
    {before}
    import pyarrow as pa, dpgrain as dg
    from dpgrain.tables.engines.duckdb import DuckDB
    {host}
    def work():
        with DuckDB(dg.read(pa.table({{"who": ["a"]}}), user="who")) as engine:
            (open(engine._spill.path + "/duckdb_temp_storage-0.tmp", "w")).write("rows")
            print("ready", flush=True)
            {busy}
    {start}
"""
WAITING = "time.sleep(60)"
#: The main thread is inside DuckDB.
QUERYING = """
engine.connection.execute("SELECT count(*) FROM range(10000000) a, range(10000000) b").fetchall()
""".strip()
IN_A_THREAD = "import threading; t = threading.Thread(target=work); t.start(); t.join()"


def started(folder: Path, **parts: str) -> subprocess.Popen[str]:
    texts = {"before": "", "host": "", "busy": WAITING, "start": "work()"} | parts
    command = [sys.executable, "-c", textwrap.dedent(RUNNING).format(**texts)]
    process = subprocess.Popen(
        command, env={**os.environ, "TMPDIR": str(folder)}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert len(list(folder.iterdir())) == 1
    return process


def ended(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    time.sleep(0.2)
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    return process.returncode, said


@pytest.mark.slow
@pytest.mark.parametrize("busy", [WAITING, QUERYING], ids=["waiting", "querying"])
def test_a_terminated_process_leaves_nothing(busy: str, tmp_path: Path) -> None:
    """It still dies of the signal, as its parent expects."""
    process = started(tmp_path, busy=busy)
    assert ended(process, signal.SIGTERM)[0] == -signal.SIGTERM
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_host_handling_the_signal_is_not_disturbed(tmp_path: Path) -> None:
    host = "signal.signal(signal.SIGTERM, lambda *_: (print('host', flush=True), sys.exit(7)))"
    process = started(tmp_path, host=host)
    assert ended(process, signal.SIGTERM) == (7, "host\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "parts"),
    [(signal.SIGKILL, {}), (signal.SIGTERM, {"start": IN_A_THREAD})],
    ids=["killed", "terminated in a thread"],
)
def test_files_of_a_killed_process_are_removed_later(
    number: signal.Signals, parts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    alive = started(tmp_path)
    (of_the_living,) = tmp_path.iterdir()
    try:
        # A second one; the first one's folder remains.
        text = textwrap.dedent(RUNNING).format(
            before="", host="", busy=WAITING, start=parts.get("start", "work()")
        )
        command = [sys.executable, "-c", text]
        killed = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert killed.stdout is not None
        assert killed.stdout.readline() == "ready\n"
        assert ended(killed, number)[0] == -number
        assert len(list(tmp_path.iterdir())) == 2
        others = [tmp_path / "dpgrain-spill-of mine", tmp_path / "dpgrain-spill-abcdefgh"]
        for other in others:
            other.mkdir()
            (other / "notes.txt").write_text("not of DuckDB")
        table = dg.read(pa.table({"who": [1]}), user="who")
        dg.count(table, unit=dg.User(), epsilon=1)
        assert sorted(tmp_path.iterdir()) == sorted([of_the_living, *others])
        assert (of_the_living / "duckdb_temp_storage-0.tmp").exists()
        assert all((other / "notes.txt").exists() for other in others)
    finally:
        ended(alive, signal.SIGTERM)


def test_the_signal_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        first, second = SpillFolder(), SpillFolder()
        first.remove()
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        second.remove()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        # One set by the host in the meantime is the host's.
        third = SpillFolder()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        third.remove()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not list(tmp_path.iterdir())
