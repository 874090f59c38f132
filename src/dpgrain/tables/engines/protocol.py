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
        """Run a kernel over all records and return integer sums of a shape, modulo 2^64.

        ``add`` may be called any number of times, in any order and on any machine, with sorted keys
        of whole users or codes of records. Several arrays may be returned, which add up.
        """


class Users(Summed, Protocol):
    """Whole users' records as sorted keys ``user | cell | item``, for repeated sums."""

    def narrowed(self, codes: IntArray, shift: int) -> Users | None:
        """Return users' records of some coordinates; None if rows must be read again.

        ``codes`` (V,) are new codes in the same order, −1 to drop. Keys are of user and coordinate
        only, and new keys have ``shift`` bits below the user code.
        """


class CachedBlocks(Protocol):
    """Derived rows that a cluster caches in place until the engine is closed."""

    def sums(
        self, of: Callable[[Iterable[pa.RecordBatch]], IntArray], shape: Sequence[int]
    ) -> IntArray:
        """Add up the integers that a function computes from each partition, modulo 2^64."""


class ClusterEngine(Protocol):
    """Additional methods of a cluster's engine for fits, which add rows up there.

    Such a class has an attribute ``distributed`` that is True.
    """

    def cache(
        self,
        wanted: Sequence[tuple[str, Form]],
        make: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        schema: pa.Schema,
    ) -> CachedBlocks:
        """Cache what ``make`` derives from columns c0, c1, …, by partition of whole users.

        It may be called again after a failure.
        """


class Engine(AbstractContextManager["Engine"], Protocol):
    """Reader of the rows of one release or fit; all results are private."""

    table: TableRows

    def __enter__(self) -> Self:
        """Open connections and files; ``__exit__`` removes everything."""

    def distinct(self, keys: Sequence[str], value: str | None = None) -> Groups:
        """Return the distinct groups (at least one key) of rows with a finite ``value``."""

    def extent(self, key: str) -> tuple[int, int, int] | None:
        """Return the minimum and maximum of an integer column, and the number of rows.

        Rows without a user also count. None if no row has a value.
        """

    def dictionary(
        self, groups: Groups, cells: GroupCells, *, cell_column: str | None = None, corners: int = 1
    ) -> Dictionary:
        """Assign codes to groups, (V,), and cells: see :meth:`Dictionary.create`."""

    def users(
        self,
        dictionary: Dictionary,
        *,
        value: str | None = None,
        split: Split | None = None,
        cell_column: str | None = None,
    ) -> Users:
        """Return whole users' records in the groups last passed to :meth:`dictionary`.

        ``split`` computes what a record's ``value``, or 1 if None, adds to its group's coordinates.
        """

    def records(
        self, dictionary: Dictionary, *, value: str | None = None, split: Split | None = None
    ) -> Summed:
        """Return single records of all users as codes of coordinates; arguments as above."""

    def columns(self, wanted: Sequence[tuple[str, Form]]) -> pa.Table:
        """Return columns of all rows, in order, named c0, c1, …; no columns of cells."""


#: Class of an engine, which opens the rows of one release.
Opener: TypeAlias = Callable[[TableRows], Engine]
