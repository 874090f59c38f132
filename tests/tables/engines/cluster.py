"""A cluster in one process that loses tasks on command, with Spark's interface."""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa

from dpgrain.tables.engines.spark import Spark
from dpgrain.tables.engines.spark_tasks import AddUsersTask, RecordSumQuery, SparkTask, SumTask
from dpgrain.tables.rows import TableRows

Partitions = list[pa.Table]


def modules_in(pickled: bytes) -> set[str]:
    """The modules of the functions and classes in a pickle."""
    found, texts = set(), list[str]()
    for code, value, _ in pickletools.genops(io.BytesIO(pickled)):
        if code.name == "GLOBAL":
            found.add(str(value).split(" ")[0])
        elif code.name == "STACK_GLOBAL":
            found.add(texts[-2])
        elif isinstance(value, str):
            texts.append(value)
    return found


@dataclass(frozen=True, eq=False)
class Frame:
    """Partitions computed on request, once in each run."""

    cluster: Cluster
    compute: Callable[[int], Partitions]
    names: list[str]
    known: dict[int, Partitions] = field(default_factory=dict)

    def partitions(self, run: int = 0) -> Partitions:
        if run not in self.known:
            self.known[run] = self.compute(run)
        return self.known[run]

    def unpersist(self) -> Self:
        self.cluster.dropped += 1
        return self

    def distinct(self) -> Frame:
        return self._shuffled(tuple(self.names), once=True)

    def repartition(self, *names: str) -> Frame:
        return self._shuffled(names, once=False)

    def _shuffled(self, names: tuple[str, ...], *, once: bool) -> Frame:
        def compute(run: int) -> Partitions:
            rows = [row for part in self.partitions(run) for row in part.to_pylist()]
            if once:
                rows = [dict(pairs) for pairs in dict.fromkeys(tuple(row.items()) for row in rows)]
            schema = self.partitions(run)[0].schema
            shares: list[list[Any]] = [[] for _ in range(self.cluster.size)]
            for row in rows:
                place = hash(tuple(str(row[name]) for name in names)) % self.cluster.size
                shares[place].append(row)
            return [pa.Table.from_pylist(share, schema) for share in shares]

        return replace(self, compute=compute, known={})


@dataclass(eq=False)
class Cluster:
    """A session: rows are in ``size`` partitions, and tasks reach them as pickles.

    Args:
        size: the number of partitions.
        again: whether a slice of a partition's sums, by partition and slice, comes of a second run.
    """

    size: int = 3
    again: Callable[[int, int], bool] | None = None
    source: Callable[[int, pa.Table], pa.Table] = lambda _run, table: table
    sent: set[str] = field(default_factory=set)
    dropped: int = 0
    distributed: bool = True

    def frame(self, table: pa.Table) -> Frame:
        def compute(run: int) -> Partitions:
            rows = self.source(run, table)
            each = -(-len(rows) // self.size)
            return [rows.slice(i * each, each) for i in range(self.size)]

        return Frame(self, compute, table.column_names)

    def union(self, first: Frame, second: Frame) -> Frame:
        def both(run: int) -> Partitions:
            parts = zip(first.partitions(run), second.partitions(run), strict=True)
            return [pa.concat_tables(each) for each in parts]

        return replace(first, compute=both, known={})

    def by_user(self, frame: Frame, column: str) -> Frame:
        def held(run: int) -> Partitions:
            return [part.filter(part[column].is_valid()) for part in frame.partitions(run)]

        return replace(frame, compute=held, known={}).repartition(column)

    def map(self, frame: Frame, task: SparkTask, schema: pa.Schema) -> Frame:
        pickled = pickle.dumps(task)
        self.sent |= modules_in(pickled)
        sums = isinstance(task, AddUsersTask | SumTask) or isinstance(
            getattr(task, "question", 0), RecordSumQuery
        )

        def answers(run: int) -> Partitions:
            found = []
            for place, part in enumerate(frame.partitions(run)):
                batches = part.to_batches(max_chunksize=7 + len(part) // 20) if len(part) else []
                answer = pa.Table.from_batches(list(pickle.loads(pickled)(batches)), schema)
                if sums:
                    parts = pa.array([place] * len(answer), pa.int32())
                    answer = answer.set_column(1, schema.field(1), parts)
                found.append(answer)
            return found

        def compute(run: int) -> Partitions:
            again = self.again
            if not sums or again is None:
                return answers(run)
            first, second = answers(2 * run), answers(2 * run + 1)
            return [
                pa.concat_tables(
                    [(second if again(place, i) else first)[place].slice(i, 1)
                     for i in range(len(first[place]))] or [first[place]]
                )
                for place in range(len(first))
            ]  # fmt: skip

        return Frame(self, compute, schema.names)

    def cache(self, frame: Frame) -> Frame:
        return frame

    def collect(self, frame: Frame, name: str) -> pa.Table:
        return pa.concat_tables(frame.partitions())

    def run(self, work: Callable[[], Any], name: str) -> Any:
        return work()

    def task_types(self, schema: pa.Schema) -> Sequence[pa.DataType | None]:
        return list(schema.types)

    def __call__(self, rows: TableRows) -> Spark:
        session: Any = self
        return Spark(rows, session)
