"""A cluster of Spark that loses stored data between two passes, like a killed worker.

Run as a program: it prints whether the result equals a single machine's, or the error. The
arguments are a folder, the statistic, how many of two workers are killed, and the type of rows:
"changes" returns other rows on rereading, "checkpoint" returns them once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark
from tests.tables.engines.spark_cluster import cluster, kill

import dpgrain as dg
from dpgrain._types import IntArray
from dpgrain.errors import DataError
from dpgrain.learn import LinearRegression
from dpgrain.learn.column_rows import ColumnRows
from dpgrain.learn.features import FeatureEncoding, NumberColumn
from dpgrain.releases.table_queries import mean_of_columns
from dpgrain.tables.engines.spark import Spark, SparkOpener
from dpgrain.tables.engines.spark_session import silenced
from dpgrain.tables.rows import TableRows

_ROWS, _USERS = 40_000, 3000
_PROMISE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "random_state": 3}
# The event happens after this many passes.
_LOOKS = {"fit": 4, "mean": 3, "histogram": 1}


def _fit(table: dg.UserTable) -> bytes:
    encoding = FeatureEncoding((NumberColumn("a"), NumberColumn("b", (-3.0, 3.0))))
    model = LinearRegression(rounds=8, exact=True, unit=dg.User(max_elements=3), **_PROMISE)
    made = dg.publish(model.query(ColumnRows(table, encoding, "y", "item"), None))
    return np.append(made.coef_, made.intercept_).tobytes()


def _mean(table: dg.UserTable) -> bytes:
    options: dict[str, Any] = {"bound": 9.0, "n_users": _USERS, "method": "recentred"}
    return mean_of_columns(table, ["a", "b", "y"], **options, **_PROMISE).value.tobytes()


def _histogram(table: dg.UserTable) -> bytes:
    unit = dg.User(3, by="item")
    return dg.histogram(table, "item", unit=unit, **_PROMISE).estimate.tobytes()


WORKS: dict[str, Callable[[dg.UserTable], bytes]] = {
    "fit": _fit,
    "mean": _mean,
    "histogram": _histogram,
}


@dataclass(frozen=True)
class Losing(SparkOpener):
    """A session of Spark with one event after n passes."""

    looks: int = 0
    happens: Callable[[], None] = field(default=lambda: None)

    def __call__(self, rows: TableRows) -> Spark:
        opened = super().__call__(rows)
        return _Losing(opened.table, opened._session, self)


class _Losing(Spark):
    def __init__(self, table: TableRows, session: Any, losing: Losing) -> None:
        super().__init__(table, session)
        self._losing, self._looks = losing, 0

    def sum_slices(self, frame: Any, shape: Sequence[int]) -> IntArray:
        found = super().sum_slices(frame, shape)
        self._looks += 1
        if self._looks == self._losing.looks:
            self._losing.happens()
        return found


def _kept(session: pyspark.sql.SparkSession) -> int:
    """The number of parts that executors keep."""
    jvm: Any = session.sparkContext._jsc
    return sum(int(frame.numCachedPartitions()) for frame in jvm.sc().getRDDStorageInfo())


def _lose(session: pyspark.sql.SparkSession, workers: list[Any], kills: int) -> None:
    """Kill n workers, and wait until Spark knows that parts, or all of them, are lost."""
    before, until = _kept(session), time.monotonic() + 60
    most = before - 1 if kills < len(workers) else 0
    for worker in workers[:kills]:
        kill(worker)
    while _kept(session) > most and time.monotonic() < until:
        time.sleep(0.1)
    print(f"LOST {before - _kept(session)} of {before}", flush=True)


def _rows(folder: Path) -> Path:
    rng = np.random.default_rng(3)
    table = pa.table(
        {
            "who": np.where(rng.random(_ROWS) < 0.1, 0, rng.integers(1, _USERS, _ROWS)),
            "item": rng.integers(0, 30, _ROWS).astype(str),
            "a": rng.normal(size=_ROWS),
            "b": rng.normal(size=_ROWS) * 10.0 ** rng.integers(-3, 4, _ROWS),
            "y": rng.normal(size=_ROWS),
        }
    )
    (folder / "rows").mkdir()
    for place in range(8):
        part = table.slice(place * _ROWS // 8, _ROWS // 8)
        pq.write_table(part, folder / "rows" / f"{place}.parquet")
    return folder / "rows"


def _changing(session: pyspark.sql.SparkSession, where: Path, folder: Path) -> Any:
    """A frame that gives each of its parts with other numbers when that part is read again."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        mark = folder / f"read{TaskContext.get().partitionId()}"  # type: ignore[union-attr]
        again = mark.exists()
        for batch in batches:
            numbers = batch["y"]
            changed = pc.add(numbers, 5.0) if again else numbers
            yield batch.set_column(batch.schema.get_field_index("y"), "y", changed)
        mark.touch()

    session.sparkContext.pythonExec = sys.executable
    frame = session.read.parquet(str(where))
    with silenced():
        return frame.mapInArrow(read, frame.schema)


def _checkpoint(session: pyspark.sql.SparkSession, where: Path, _: Path) -> Any:
    """A frame with rows only on the workers."""
    return session.read.parquet(str(where)).localCheckpoint()


_COME: dict[str, Callable[[pyspark.sql.SparkSession, Path, Path], Any]] = {
    "files": lambda _session, where, _folder: str(where),
    "changes": _changing,
    "checkpoint": _checkpoint,
}


def main(folder: Path, name: str, kills: int, come: str = "files") -> None:
    where, book = _rows(folder), folder / "rows.ledger"
    promises = [dg.LastingPromise.of(dg.User(), epsilon=4.0, delta=1e-5)]
    dg.Ledger.create(book, name="rows", promises=promises, user="who")
    expected = WORKS[name](dg.read(str(where / "*.parquet"), user="who"))
    # A separate task reads each file, so that rows come from both workers.
    with cluster(folder, **{"spark.sql.files.openCostInBytes": "1g"}) as (session, workers):
        losing = Losing(session, _LOOKS[name], lambda: _lose(session, workers, kills))
        options: dict[str, Any] = {} if come == "files" else {"rows": "as given"}
        source = _COME[come](session, where, folder)
        table = dg.read(source, user="who", engine=losing, **options)
        try:
            with dg.Ledger(book):
                found = WORKS[name](table)
            print("SAME" if found == expected else "OTHER")
        except DataError as error:
            print(f"NOTHING RELEASED: {error}")
    print("CHARGED" if dg.Ledger(book).left(1) < 1 else "NOT CHARGED")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
