"""A cluster of Spark on this machine that loses a worker during a release.

Run as a program: it prints what was released, or the error, and that nothing was.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

import dpgrain as dg
from dpgrain.errors import DataError
from dpgrain.tables.engines import spark_session
from dpgrain.units import User

_HOME = Path(pyspark.__file__).parent
_ROWS = 400_000


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(
        [str(_HOME / "bin" / "spark-class"), *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "SPARK_HOME": str(_HOME), "SPARK_LOCAL_IP": "127.0.0.1"},
        start_new_session=True,
    )
    try:
        yield started
    finally:
        # The executors of a worker are processes of its group.
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def _children(parent: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rsplit(") ", 1)[1].split()
        except (OSError, IndexError):
            continue
        if int(fields[1]) == parent:
            found += [int(entry.name), *_children(int(entry.name))]
    return found


def kill(worker: subprocess.Popen[bytes]) -> None:
    for process in [worker.pid, *_children(worker.pid)]:
        os.kill(process, signal.SIGKILL)
    print("KILLED", flush=True)


def _kill_when_busy(worker: subprocess.Popen[bytes], session: pyspark.sql.SparkSession) -> None:
    """Kill a worker as soon as some tasks are done and others are not."""
    tracker = session.sparkContext.statusTracker()
    while True:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        if any(s is not None and 0 < s.numCompletedTasks < s.numTasks for s in stages):
            break
        time.sleep(0.02)
    kill(worker)


@contextmanager
def cluster(
    folder: Path, **settings: str
) -> Iterator[tuple[pyspark.sql.SparkSession, list[subprocess.Popen[bytes]]]]:
    # A machine with other work may take some seconds until a task begins.
    spark_session.LOST_SECONDS = 20.0
    master = f"spark://127.0.0.1:{free_port()}"
    port, here = master.rpartition(":")[2], ("--host", "127.0.0.1")
    at = ("--port", port, "--webui-port", "0")
    one = ("org.apache.spark.deploy.worker.Worker", *here, "--cores", "1", "--memory", "1g")
    ports = ("--webui-port", "0", "--work-dir", str(folder / "work"))
    common = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.log.level": "OFF",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.shuffle.partitions": "12",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    with ExitStack() as stack:
        stack.enter_context(process("org.apache.spark.deploy.master.Master", *here, *at))
        workers = [stack.enter_context(process(*one, *ports, master)) for _ in range(2)]
        builder = pyspark.sql.SparkSession.builder.master(master).appName("killed")
        for name, value in {**common, **settings}.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        try:
            yield session, workers
        finally:
            session.stop()


def rows(folder: Path) -> Path:
    """Files of records; one user has half of them."""
    rng = np.random.default_rng(3)
    who = np.where(rng.random(_ROWS) < 0.5, 0, rng.integers(1, 5000, _ROWS))
    table = pa.table({"who": who, "item": rng.integers(0, 50, _ROWS)})
    (folder / "rows").mkdir()
    for place in range(8):
        part = table.slice(place * _ROWS // 8, _ROWS // 8)
        pq.write_table(part, folder / "rows" / f"{place}.parquet")
    return folder / "rows"


def released(
    path: str, engine: object, book: Path, begin: Callable[[], None] = lambda: None
) -> list[float]:
    """The release of the rows, charged to a ledger; another action starts in parallel."""
    table = dg.read(path, user="who", engine=engine)
    begin()
    domain = list(range(50))
    with dg.Ledger(book):
        found = dg.histogram(
            table, "item", unit=User(), domain=domain, epsilon=1.0, delta=1e-6, random_state=3
        )
    return [float(value) for value in found.to_arrow()["estimate"].to_pylist()]


def main(folder: Path, kills: int) -> None:
    where, books = rows(folder), [folder / f"{name}.ledger" for name in ("here", "there")]
    promises = [dg.LastingPromise.of(User(), epsilon=4.0, delta=1e-5)]
    for book in books:
        dg.Ledger.create(book, name="rows", promises=promises, user="who")
    expected = released(str(where / "*.parquet"), "duckdb", books[0])
    # Every task that takes longer than others is run twice.
    twice = {"multiplier": "1.0", "quantile": "0.1", "minTaskRuntime": "1ms"}
    settings = {"spark.speculation": "true"}
    settings |= {f"spark.speculation.{name}": value for name, value in twice.items()}
    with cluster(folder, **settings) as (session, workers):

        def begin() -> None:
            for worker in workers[:kills]:
                threading.Thread(
                    target=_kill_when_busy, args=(worker, session), daemon=True
                ).start()

        try:
            found = released(str(where), session, books[1], begin)
            print("SAME" if found == expected else f"OTHER {found} {expected}")
        except DataError as error:
            print(f"NOTHING RELEASED: {error}")
    left = [[ledger.left(number) for number in ledger.promises] for ledger in map(dg.Ledger, books)]
    print("CHARGED" if left[0] == left[1] else f"CHARGED OTHERWISE {left}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
