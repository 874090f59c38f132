"""Means of users with rows on a cluster: sums and counts of whole numbers come from there.

Each user's vector is made once, where that user's rows were brought together, and is kept there. All
that is sent are public numbers; noise, budgets and ledgers stay where the mean was asked for. Sums do
not depend on how rows are shared out, so that a mean is the one of the same rows on one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np
import pandas as pd
import pyarrow as pa

from dpgrain import _validate
from dpgrain._progress import step
from dpgrain._types import FloatArray, IntArray
from dpgrain.arrays.shares import BRING_HERE, CELL_BYTES, RUN_BYTES, Batches, tables_of
from dpgrain.errors import ParameterError
from dpgrain.means import rules
from dpgrain.means.grid import added_in_steps
from dpgrain.means.problem import Method
from dpgrain.means.protocol import Rule, Vectors
from dpgrain.means.records import Records, by_user, user_means
from dpgrain.publishing.charge import Charge
from dpgrain.publishing.scope import Origin
from dpgrain.tables.engines.people import made_in_words
from dpgrain.tables.engines.protocol import Form, Keeper, Kept
from dpgrain.tables.table import UserTable, read

#: Users' vectors as they are kept, one after the other.
VECTORS = pa.schema({"vectors": pa.binary()})


@dataclass(frozen=True, eq=False)
class RecordsThere(Records):
    """Records of users on a cluster, where they stay.

    Args:
        table: the table.
        columns: the columns of numbers, one for each coordinate.

    Raises:
        SchemaError: if a column is missing, or has a type that cannot be used.
    """

    table: UserTable
    columns: tuple[str, ...]
    distributed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.table.require_numbers(self.columns, "columns", also=["BOOLEAN"])

    @staticmethod
    def of(X: Any, users: Any) -> RecordsThere:
        """Return the records of a frame of Spark.

        Args:
            X: the frame, of which all columns but the one of users are numbers.
            users: the name of the column that says whose each record is; None for one user per record.

        Raises:
            ParameterError: if ``users`` names no column, or no other column is left.
            SchemaError: if a column is missing, or has a type that cannot be used.
        """
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
        return RecordsThere(table, columns)

    @property
    def dimension(self) -> int:
        """The length of a record."""
        return len(self.columns)

    @property
    def labels(self) -> Any:
        """The label of nobody, named like the column of users; None where there is none."""
        user = self.table.user
        return None if user is None else pd.Series([None], name=user, dtype=object)

    @property
    def origin(self) -> Origin:
        """The public facts of the rows."""
        made = tuple(made_in_words(self.table))
        return Origin(self.table.scope, provenance=self.table.provenance, made=made)

    @contextmanager
    def kept(self, charge: Charge, bound: float) -> Iterator[tuple[Vectors, Callable[[], int]]]:
        """Keep users' vectors on the cluster, and what counts them, for as long as they are used.

        Args:
            charge: the right to read them.
            bound: the l2 norm that a record has at most.
        """
        step("rows are brought together and kept where they are")
        user = self.table.user
        wanted: list[tuple[str, Form]] = [(name, "number") for name in self.columns]
        if user is not None:
            wanted.append((user, "key"))
        make = Average(self.dimension, bound, users=user is not None)
        with charge.open(self.table) as engine:
            kept = cast(Keeper, engine).kept(wanted, make, VECTORS)
            there = VectorsThere(kept, self.dimension)
            # Methods that a cluster takes ask nothing of vectors but what these answer.
            yield cast(Vectors, there), there.count


def require_sums(method: Method) -> None:
    """Refuse a method that takes vectors in one place.

    Args:
        method: what is asked for.

    Raises:
        ParameterError: if it does.
    """
    if not method.distributed:
        raise ParameterError(
            "method must be 'auto', 'clip' or 'recentred' for rows on a cluster, not "
            f"{_validate.said(method.name)}, which needs all users' vectors in one place; change "
            f"it, {BRING_HERE}",
            name="method",
        )


@dataclass(frozen=True, eq=False)
class VectorsThere:
    """Vectors of users on a cluster: :class:`~dpgrain.means.protocol.DistributedVectors`.

    Args:
        kept: what an engine keeps of them.
        width: the length of a vector as it is kept.
        made: what is made of them before they are added up, one rule after the other.
        blocks: not the number of vectors, which stays there: rounds that draw none of them ask for it.
    """

    kept: Kept
    width: int
    made: tuple[Rule, ...] = ()
    blocks: int = 0

    def count(self) -> int:
        """Return the number of users with records, which is private."""
        return int(self.kept.sums(Number(self.width), (1,))[0])

    @property
    def dimension(self) -> int:
        """The length of what is made of a vector."""
        return int(_made(np.zeros((1, self.width)), self.made).shape[1])

    def mapped(self, rule: Rule) -> VectorsThere:
        """Return what a rule makes of the vectors, where they are."""
        return replace(self, made=(*self.made, rule))

    def in_steps(self, clip: float, step: float, centre: FloatArray | None = None) -> IntArray:
        """Add up the clipped vectors, each truncated to a grid."""
        added = InSteps(clip, step, centre)
        return self.kept.sums(Added(self.width, self.made, added), (self.dimension,))

    def by_radius(self, centre: FloatArray, radii: FloatArray) -> IntArray:
        """Count the vectors by the first radius that holds them."""
        added = ByRadius(centre, radii)
        return self.kept.sums(Added(self.width, self.made, added), (len(radii) + 1,))


def _made(vectors: FloatArray, made: tuple[Rule, ...]) -> FloatArray:
    for rule in made:
        vectors = rule(vectors)
    return vectors


# -- What is done where the rows lie --


@dataclass(frozen=True)
class Average:
    """Make the vectors of the users of a share with all rows of each.

    Args:
        dimension: the length of a record.
        bound: the l2 norm that a record has at most.
        users: True if a last column says whose each record is.
    """

    dimension: int
    bound: float
    users: bool

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield the vectors, of :data:`VECTORS`."""
        for table in tables_of(batches, users=self.users):
            yield from self._averaged(table)

    def _averaged(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        columns = [_numbers(column) for column in table.columns[: self.dimension]]
        records = np.column_stack(columns)
        records[~np.isfinite(records)] = 0.0
        users = None
        if self.users:
            # Names in one piece may be longer than Arrow can count, and their codes are not.
            names = table.column(self.dimension).dictionary_encode()
            users = _numbers(names.combine_chunks().indices)
        rows = by_user(records, users)
        vectors = user_means(records[rows.kept], rows.blocks, len(rows.owners), self.bound)
        most = max(1, CELL_BYTES // (8 * self.dimension))
        for first in range(0, len(vectors), most):
            cell = {"vectors": vectors[first : first + most].tobytes()}
            yield pa.RecordBatch.from_pylist([cell], VECTORS)


def _numbers(column: pa.ChunkedArray | pa.Array) -> FloatArray:
    floats: FloatArray = np.asarray(column.cast(pa.float64()).fill_null(float("nan")))
    return floats


def runs(batches: Batches, width: int) -> Iterator[FloatArray]:
    """Yield the vectors of a share again, many at a time.

    Args:
        batches: as :class:`Average` made them.
        width: the length of a vector.
    """
    held: list[FloatArray] = []
    size = 0
    for vectors in cells(batches, width):
        held.append(vectors)
        size += vectors.nbytes
        if size >= RUN_BYTES:
            yield np.concatenate(held)
            held, size = [], 0
    if held:
        yield np.concatenate(held)


def cells(batches: Batches, width: int) -> Iterator[FloatArray]:
    """Yield the vectors of a share as they lie, none of them copied.

    Args:
        batches: as :class:`Average` made them.
        width: the length of a vector.
    """
    for batch in batches:
        for cell in batch.column(0):
            yield np.frombuffer(cell.as_buffer(), np.float64).reshape(-1, width)


@dataclass(frozen=True)
class Number:
    """The number of vectors of a share, (1,).

    Args:
        width: the length of a vector.
    """

    width: int

    def __call__(self, batches: Batches) -> IntArray:
        """Count them."""
        return np.array([sum(map(len, cells(batches, self.width)))], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Added:
    """Whole numbers of the vectors of a share, added up.

    Args:
        width: the length of a vector as it is kept.
        made: what is made of them first, one rule after the other.
        of: from some vectors to their whole numbers.
    """

    width: int
    made: tuple[Rule, ...]
    of: Callable[[Vectors], IntArray]

    def __call__(self, batches: Batches) -> IntArray:
        """Return the sum."""
        # No vectors add zeros, as many as some would.
        total = self.of(Vectors(_made(np.zeros((0, self.width)), self.made)))
        for vectors in runs(batches, self.width):
            total = total + self.of(Vectors(_made(vectors, self.made)))
        return total


@dataclass(frozen=True, eq=False)
class InSteps:
    """The sum of clipped vectors in whole steps of a grid.

    Args:
        clip: the clipping bound, l2, of a distance to the centre.
        step: the step of the grid.
        centre: a public point; 0 by default.
    """

    clip: float
    step: float
    centre: FloatArray | None

    def __call__(self, vectors: Vectors) -> IntArray:
        """Return the sum."""
        return added_in_steps(vectors, self.clip, self.step, centre=self.centre)


@dataclass(frozen=True, eq=False)
class ByRadius:
    """The numbers of vectors by the first radius around each.

    Args:
        centre: a public point.
        radii: the radii, rising.
    """

    centre: FloatArray
    radii: FloatArray

    def __call__(self, vectors: Vectors) -> IntArray:
        """Return the counts."""
        return rules.by_radius(vectors, self.centre, self.radii)
