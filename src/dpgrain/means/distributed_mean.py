"""Means of users with rows on a cluster, from distributed integer sums and counts.

Each user's vector is computed once, on the worker with the user's rows, and stored there. Only
public numbers are sent to workers; noise, budgets and ledgers remain on the driver. Sums do not
depend on the distribution of rows, so the mean equals the mean of the same rows on one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa

from dpgrain import _validate
from dpgrain._progress import Progress, step
from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.inputs.worker_tables import CELL_BYTES, LOAD_LOCALLY, RUN_BYTES, Batches, worker_tables
from dpgrain.means.grid import added_in_steps
from dpgrain.means.mean_protocol import Rule, Vectors
from dpgrain.means.problem import Method
from dpgrain.means.rules import count_by_radius
from dpgrain.means.user_vectors import LocalRecords, Records, by_user, user_means
from dpgrain.publishing.charge import Charge
from dpgrain.publishing.origins import ArrayOrigin
from dpgrain.tables.engines.per_user import derivation_facts
from dpgrain.tables.engines.protocol import CachedBlocks, ClusterEngine, Form
from dpgrain.tables.table import UserTable, read

#: Schema of stored users' vectors.
VECTORS = pa.schema({"vectors": pa.binary()})


@dataclass(frozen=True, eq=False)
class TableRecords(Records):
    """Records of users in columns of a table, which remain on a cluster if it is there."""

    table: UserTable
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        self.table.require_numbers(self.columns, "columns", also=["BOOLEAN"])

    @staticmethod
    def from_frame(X: Any, users: Any) -> TableRecords:
        """Return the records of a Spark frame; all columns other than ``users`` are numbers."""
        if users is not None and not isinstance(users, str):
            raise ParameterError(
                "users must be a column name if X is a Spark DataFrame, not "
                f"{type(users).__name__}.",
                name="users",
            )
        table = read(X, user=users, rows="as given")
        columns = tuple(name for name in table.schema if name != users)
        if not columns:
            raise ParameterError("X must have a numeric column in addition to the user column.")
        return TableRecords(table, columns)

    @property
    def distributed(self) -> bool:  # type: ignore[override]
        """True if the rows remain on a cluster."""
        return self.table.distributed

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.columns

    @property
    def dimension(self) -> int:
        """Length of a record."""
        return len(self.columns)

    @property
    def labels(self) -> Any:
        """Empty labels with the name of the user column; None without such a column."""
        user = self.table.user
        return None if user is None else pd.Series([None], name=user, dtype=object)

    @property
    def origin(self) -> ArrayOrigin:
        """The public facts of the rows."""
        facts = tuple(derivation_facts(self.table))
        return ArrayOrigin(self.table.scope, provenance=self.table.provenance, facts=facts)

    @contextmanager
    def user_vectors(
        self, charge: Charge, bound: float, *, sizes: bool = False
    ) -> Iterator[tuple[Vectors, Callable[[], int]]]:
        """Provide users' vectors, and a function that counts them."""
        user = self.table.user
        wanted: list[tuple[str, Form]] = [(name, "number") for name in self.columns]
        if user is not None:
            wanted.append((user, "key"))
        if not self.distributed:
            with charge.open(self.table) as engine, Progress(1) as progress:
                progress.stage("Reading rows of features")
                records, users = _records(engine.columns(wanted), self.dimension)
            local = LocalRecords.from_arrays(records, users)
            with local.user_vectors(charge, bound, sizes=sizes) as vectors:
                yield vectors
            return
        step("rows are brought together and kept where they are")
        make = UserVectors(self.dimension, bound, users=user is not None)
        with charge.open(self.table) as engine:
            cached = cast(ClusterEngine, engine).cache(wanted, make, VECTORS)
            cluster = ClusterVectors(cached, self.dimension)
            # Distributed methods use only the methods of vectors that this class implements.
            yield cast(Vectors, cluster), cluster.count


def require_sums(method: Method) -> None:
    """Reject a method that requires all vectors in one place."""
    if not method.distributed:
        raise ParameterError(
            "method must be 'auto', 'clip' or 'recentred' for rows on a cluster, not "
            f"{_validate.describe(method.name)}, which needs all users' vectors in one place; change "
            f"it, {LOAD_LOCALLY}",
            name="method",
        )


@dataclass(frozen=True, eq=False)
class ClusterVectors:
    """Vectors on a cluster: :class:`~dpgrain.means.mean_protocol.DistributedVectors`."""

    cached: CachedBlocks
    width: int
    rules: tuple[Rule, ...] = ()  # applied before summing
    blocks: int = 0  # rounds without sampling need a number; the true one remains there

    def count(self) -> int:
        """Return the number of users with records, which is private."""
        return int(self.cached.sums(VectorCount(self.width), (1,))[0])

    @property
    def dimension(self) -> int:
        """Length of a vector after all rules."""
        return int(_apply_rules(np.zeros((1, self.width)), self.rules).shape[1])

    def mapped(self, rule: Rule) -> ClusterVectors:
        """Apply a rule to the vectors on the cluster."""
        return replace(self, rules=(*self.rules, rule))

    def in_steps(self, clip: float, step: float, centre: FloatArray | None = None) -> IntArray:
        """Add up the clipped vectors, each truncated to a grid."""
        added = GridSum(clip, step, centre)
        return self.cached.sums(IntegerSum(self.width, self.rules, added), (self.dimension,))

    def count_by_radius(self, centre: FloatArray, radii: FloatArray) -> IntArray:
        """Count the vectors by the first radius that contains them."""
        added = partial(count_by_radius, centre=centre, radii=radii)
        return self.cached.sums(IntegerSum(self.width, self.rules, added), (len(radii) + 1,))


def _apply_rules(vectors: FloatArray, rules: tuple[Rule, ...]) -> FloatArray:
    for rule in rules:
        vectors = rule(vectors)
    return vectors


# -- computations on the workers --


@dataclass(frozen=True)
class UserVectors:
    """Computation of users' vectors on a worker with all rows of these users."""

    dimension: int
    bound: float
    users: bool  # the last column contains the user ids

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield the vectors in the schema :data:`VECTORS`."""
        for table in worker_tables(batches, users=self.users):
            yield from self._averaged(table)

    def _averaged(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        records, users = _records(table, self.dimension)
        records[~np.isfinite(records)] = 0.0
        rows = by_user(records, users)
        vectors = user_means(records[rows.indices], rows.blocks, len(rows.owners), self.bound)
        most = max(1, CELL_BYTES // (8 * self.dimension))
        for first in range(0, len(vectors), most):
            cell = {"vectors": vectors[first : first + most].tobytes()}
            yield pa.RecordBatch.from_pylist([cell], VECTORS)


def _records(table: pa.Table, dimension: int) -> tuple[FloatArray, FloatArray | None]:
    """Return records, and a number for each user id if it is the last column; NaN for null."""
    records = np.column_stack([_numbers(column) for column in table.columns[:dimension]])
    if table.num_columns == dimension:
        return records, None
    # Strings in one chunk can exceed Arrow's offsets; dictionary codes cannot.
    names = table.column(dimension).dictionary_encode()
    return records, _numbers(names.combine_chunks().indices)


def _numbers(column: pa.ChunkedArray | pa.Array) -> FloatArray:
    floats: FloatArray = np.asarray(column.cast(pa.float64()).fill_null(float("nan")))
    return floats


def vector_runs(batches: Batches, width: int) -> Iterator[FloatArray]:
    """Yield the vectors of a worker in batches."""
    batch: list[FloatArray] = []
    size = 0
    for vectors in stored_vectors(batches, width):
        batch.append(vectors)
        size += vectors.nbytes
        if size >= RUN_BYTES:
            yield np.concatenate(batch)
            batch, size = [], 0
    if batch:
        yield np.concatenate(batch)


def stored_vectors(batches: Batches, width: int) -> Iterator[FloatArray]:
    """Yield the stored vectors of a worker without copying."""
    for batch in batches:
        for cell in batch.column(0):
            yield np.frombuffer(cell.as_buffer(), np.float64).reshape(-1, width)


@dataclass(frozen=True)
class VectorCount:
    """Number of vectors of a worker, (1,)."""

    width: int

    def __call__(self, batches: Batches) -> IntArray:
        """Return the number of vectors."""
        return np.array([sum(map(len, stored_vectors(batches, self.width)))], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class IntegerSum:
    """Sum of integers from a worker's vectors, after applying ``rules``."""

    width: int
    rules: tuple[Rule, ...]
    of: Callable[[Vectors], IntArray]

    def __call__(self, batches: Batches) -> IntArray:
        """Return the sum."""
        # Without vectors, the result is zeros of the same shape.
        total = self.of(Vectors(_apply_rules(np.zeros((0, self.width)), self.rules)))
        for vectors in vector_runs(batches, self.width):
            total = total + self.of(Vectors(_apply_rules(vectors, self.rules)))
        return total


@dataclass(frozen=True, eq=False)
class GridSum:
    """Sum of clipped vectors in integer multiples of a grid step."""

    clip: float
    step: float
    centre: FloatArray | None

    def __call__(self, vectors: Vectors) -> IntArray:
        """Return the sum."""
        return added_in_steps(vectors, self.clip, self.step, centre=self.centre)
