"""Contract of engines, which read rows and return integers.

Callers only use the methods below and write no query. Rows stay inside the engine: only groups,
integer sums and, for fits, columns leave it. An engine is one file with a class that is created
from :class:`~dpgrain.tables.rows.TableRows` and implements :class:`Engine`;
``dpgrain.testing.EngineContract`` checks it. It reads the sources that it supports
(``rows.source``; for a region, a :class:`~dpgrain.tables.sources.source.RegionSource`
around the source of all rows), with these rules for missing values:

- Rows without a user, without a key of the groups, or without a finite number in a column to split
  are dropped. So are rows without a cell if the cell column drops missing values.
- Otherwise rows without a value in the cell column form a separate cell.
- Keys of integer columns are int64. All others are text, as formatted by DuckDB.

One source is derived from other rows: :class:`~dpgrain.tables.engines.per_user.PerUser` requests
one row per user. The engine computes it in place, from one user's rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol, Self, TypeAlias

import pyarrow as pa

from dpgrain._types import FloatArray, IntArray
from dpgrain.tables.groups import Dictionary, GroupCells, Groups
from dpgrain.tables.rows import TableRows
from dpgrain.tables.split import Split

#: A kernel, called with (keys, totals, out), updates ``out`` in place; totals are None for 1 each.
Add: TypeAlias = Callable[[IntArray, FloatArray | None, IntArray], None]
#: Form of a column: keys, keys as text, numbers (null if invalid), or unchanged.
Form: TypeAlias = Literal["key", "text", "number", "as it is"]


class Summed(Protocol):
    """Records that are added up in place, so that no list of them leaves the engine."""

    def accumulate(self, add: Add, shape: Sequence[int]) -> IntArray:
        """Run a kernel over all records and return the integer sums, modulo 2^64.

        Args:
            add: called any number of times, in any order and on any machine, each time with sorted
                keys of some whole users, or with codes of some records.
            shape: the shape of ``out``. There may be several arrays, whose sum is returned.
        """


class Users(Summed, Protocol):
    """Whole users' records as sorted keys ``user | cell | item``, for repeated sums."""

    def narrowed(self, codes: IntArray, shift: int) -> Users | None:
        """Return these users' records of some coordinates; None if rows must be read again.

        Args:
            codes: (V,) the new code of each coordinate, in the same order; −1 for dropped
                coordinates. Keys must consist of user and coordinate only.
            shift: number of bits of a new key below the user code.
        """


class CachedBlocks(Protocol):
    """Derived rows that a cluster caches in place until the engine is closed."""

    def sums(
        self, of: Callable[[Iterable[pa.RecordBatch]], IntArray], shape: Sequence[int]
    ) -> IntArray:
        """Add up the integers that a function computes from each partition, modulo 2^64.

        Args:
            of: a function from the batches of one partition to integers of the shape.
        """


class ClusterEngine(Protocol):
    """Additional methods of a cluster's engine for fits: rows stay there and are added up there.

    Such a class has an attribute ``distributed`` that is True.
    """

    def cache(
        self,
        wanted: Sequence[tuple[str, Form]],
        make: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        schema: pa.Schema,
    ) -> CachedBlocks:
        """Cache what a function derives from columns, by partition; users are not split.

        Args:
            wanted: the columns, each with its form, named c0, c1 and so on.
            make: a function of the batches of one partition; it may be called again after a
                failure.
        """


class Engine(AbstractContextManager["Engine"], Protocol):
    """Reader of the rows of one release or fit; all results are private."""

    table: TableRows

    def __enter__(self) -> Self:
        """Open connections and files; ``__exit__`` removes everything."""

    def distinct(self, keys: Sequence[str], value: str | None = None) -> Groups:
        """Return the distinct groups of users' rows, in any order.

        Args:
            keys: the columns of a record's group, at least one.
            value: a column of numbers; rows without a finite one are dropped.
        """

    def extent(self, key: str) -> tuple[int, int, int] | None:
        """Return the minimum and maximum of an integer column, and the number of rows.

        Rows without a user count as well. None if no row has a value.
        """

    def dictionary(
        self, groups: Groups, cells: GroupCells, *, cell_column: str | None = None, corners: int = 1
    ) -> Dictionary:
        """Assign codes to groups and cells, in the public order: see :meth:`Dictionary.create`.

        Args:
            groups: (V,) distinct groups, with the types of the key columns.
            corners: the number of coordinates of each group.
        """

    def users(
        self,
        dictionary: Dictionary,
        *,
        value: str | None = None,
        split: Split | None = None,
        cell_column: str | None = None,
    ) -> Users:
        """Return whole users' records in the groups last passed to :meth:`dictionary`.

        Args:
            dictionary: the result of :meth:`dictionary`.
            value: the column of numbers to split; None to count rows.
            split: the function from numbers to the values that each record adds to its group's
                coordinates.
            cell_column: the column of cells that was passed to :meth:`dictionary`.
        """

    def records(
        self, dictionary: Dictionary, *, value: str | None = None, split: Split | None = None
    ) -> Summed:
        """Return single records of all users as codes of coordinates; arguments as above."""

    def columns(self, wanted: Sequence[tuple[str, Form]]) -> pa.Table:
        """Return columns of all rows, in their order, named c0, c1 and so on.

        Args:
            wanted: the columns, each with its form; columns of cells are not supported.
        """


#: Class of an engine, which opens the rows of one release.
Opener: TypeAlias = Callable[[TableRows], Engine]
