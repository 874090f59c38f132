"""Memory of a release, measured in processes, and its folder of spilled data."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import dpgrain as dg
from dpgrain.tables.engines.memory import MIN_BYTES, Memory, SpillFolder, load_rows

LIMITS = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="needs /proc to see peak memory"
)
#: One release of small rows warms up; then the peak of another one is measured.
MEASURED = """
    import gc, pathlib, dpgrain as dg
    import pyarrow as pa, pyarrow.dataset as ds, pyarrow.parquet as pq
    def stream(path):
        file = pq.ParquetFile(path)
        return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches(1 << 14))
    def status(name):
        return int(pathlib.Path("/proc/self/status").read_text().split(name + ":")[1].split()[0])
    def publish(path):
        types = {types}
        table = dg.read({opened}(path), user="who", memory={memory}, threads=2, types=types)
        return {publish}
    publish({warm!r})
    gc.collect()
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    release = publish({path!r})
    print(1024 * (status("VmHWM") - before))
"""
#: The format of a file: type → a function of its path.
OPENED = {"parquet": "str", "csv": "str", "stream": "stream", "dataset": "ds.dataset"}
PROMISE = "unit=dg.User(), epsilon=1, delta=1e-6"
PUBLISH = {
    "histogram": f'dg.histogram(table, "item", domain=[str(i) for i in range(1000)], {PROMISE})',
    "weights": 'dg.histogram(table, "item", weight="w", domain=[str(i) for i in range(1000)], '
    f"{PROMISE})",
    "selected": f'dg.histogram(table, "item", {PROMISE})',
    "mean": f'dg.mean(table, "w", {PROMISE})',
    "quantiles by item": 'dg.quantiles(table, "w", by="item", bounds=(0, 1), '
    f"domain=[str(i) for i in range(100)], {PROMISE})",
    "top": f'dg.top(table, "item", k=50, {PROMISE})',
}
TABLES = {
    "a million rows": (10**6, 10**5, 1000, False, 0),
    "ten million rows": (10**7, 10**6, 1000, False, 0),
    "users with many rows": (10**7, 10, 1000, False, 0),
    "many items": (10**6, 10**5, 300_000, False, 0),
    "long strings": (10**6, 10**5, 20_000, False, 300),
    "users named by text": (10**6, 3 * 10**5, 1000, True, 0),
}


def rows_of(rows: int, users: int, items: int, text: bool, length: int) -> pa.Table:
    rng = np.random.default_rng(0)
    who = pa.array(rng.integers(0, users, rows))
    if text:
        who = pa.array(rng.integers(0, 2**62, users)).cast(pa.string()).take(who)
    names = pa.array([str(item).ljust(length, "x") for item in range(items)])
    item = names.take(pa.array(rng.integers(0, items, rows)))
    return pa.table({"who": who, "item": item, "w": rng.random(rows)})


def beyond(kind: str, table: str, publish: str, folder: Path, memory: int = MIN_BYTES) -> int:
    """Peak resident bytes of a release in addition to a warm process."""
    paths = []
    for name, size in (("warm", (1000, 50, 20, TABLES[table][3], 0)), ("rows", TABLES[table])):
        path = folder / (f"{name}.csv" if kind == "csv" else f"{name}.parquet")
        rows = rows_of(*size)
        if kind == "csv":
            pyarrow.csv.write_csv(rows, path)
        else:
            pq.write_table(rows, path, row_group_size=1 << 17)
        paths.append(str(path))
    script = MEASURED.format(
        types={"who": "VARCHAR" if TABLES[table][3] else "BIGINT", "w": "DOUBLE"},
        opened=OPENED[kind],
        memory=memory,
        publish=PUBLISH[publish],
        warm=paths[0],
        path=paths[1],
    )
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-300:]
    return int(done.stdout)


@pytest.mark.slow
@LIMITS
@pytest.mark.parametrize(
    ("kind", "table", "publish"),
    [
        ("parquet", "a million rows", "quantiles by item"),
        ("csv", "a million rows", "mean"),
        ("parquet", "many items", "selected"),
        ("stream", "a million rows", "mean"),
        ("stream", "many items", "selected"),
        ("dataset", "a million rows", "mean"),
    ],
)
def test_least_memory_suffices_and_is_respected(
    kind: str, table: str, publish: str, tmp_path: Path
) -> None:
    assert beyond(kind, table, publish, tmp_path) <= MIN_BYTES


@LIMITS
@pytest.mark.slow(full=True)
@pytest.mark.parametrize("publish", list(PUBLISH))
@pytest.mark.parametrize("table", list(TABLES))
@pytest.mark.parametrize("kind", list(OPENED))
def test_memory_limit_is_respected(kind: str, table: str, publish: str, tmp_path: Path) -> None:
    assert beyond(kind, table, publish, tmp_path) <= MIN_BYTES


@pytest.mark.parametrize("size", [MIN_BYTES, 10**9, 10**11])
@pytest.mark.parametrize("threads", [1, 2, 64])
def test_the_parts_do_not_exceed_the_whole(size: int, threads: int) -> None:
    """Sorting and summing do not run at the same time; buckets exist in both."""
    parts = Memory.split(size, threads)
    sorting: Any = 12 * parts.keys
    summing = 100 * threads * parts.call + 8 * parts.sums
    buckets: Any = 4.5 * parts.counted
    # If sums are small, threads get the unneeded share of the buckets.
    room = size - parts.duckdb - 500 * parts.rows
    assert max(sorting, summing) <= room
    assert parts.counted == parts.keys or buckets + max(summing, 2 * parts.keys) <= room
    assert parts.counted >= parts.keys
    assert 1 <= parts.reading <= threads
    assert parts.call >= 1024


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


def test_rows_equal_the_read_ones(tmp_path: Path) -> None:
    rows = pa.table({"who": [3, 1, 2], "page": ["a", None, "b"]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    for source in (rows, tmp_path / "rows.parquet"):
        found = load_rows(dg.read(source, user="who").source)
        assert sorted(found.to_pylist(), key=str) == sorted(rows.to_pylist(), key=str)
