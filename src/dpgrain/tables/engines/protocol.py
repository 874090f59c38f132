"""The contract of an engine: it reads rows and hands over integers.

The code above asks an engine these questions and no others, and writes no query of its own. The rows
stay inside: only groups, sums of whole numbers and, for fits, columns come out. An engine is one
file with a class that takes :class:`~dpgrain.tables.rows.TableRows` and keeps to :class:`Engine`, as
``dpgrain.testing.EngineContract`` checks. It reads those sources that it can (``rows.source``; of a
region, a :class:`~dpgrain.tables.sources.region_source.RegionSource` around the source of all rows),
and keeps to the fixed rules for odd rows:

- A row without a user, without a key of the groups, or without a finite number where one is split, is
  left out; so is one without a cell, in a column of cells that drops what lacks one.
- Elsewhere a row without a value in the column that gives the cell lies in a cell of such rows.
- A key of a column of whole numbers is an int64. Any other is a text, as DuckDB writes the value.

One source is made of other rows: :class:`~dpgrain.tables.engines.people.PerUser` asks for one row of
each user. An engine makes it where the rows are, by functions of one person's rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol, Self, TypeAlias

import pyarrow as pa

from dpgrain._types import FloatArray, IntArray
from dpgrain.tables.dictionary import Dictionary, GroupCells
from dpgrain.tables.groups import Groups
from dpgrain.tables.rows import TableRows
from dpgrain.tables.split import Split

#: A kernel, called with (keys, totals, out), adds to ``out`` in place; totals are None for 1 each.
Add: TypeAlias = Callable[[IntArray, FloatArray | None, IntArray], None]
#: A column is read as keys, as keys in text, as numbers (null where there is none), or as it is.
Form: TypeAlias = Literal["key", "text", "number", "as it is"]


class Summed(Protocol):
    """Records that are added up where they are, so that no list of them leaves the engine."""

    def accumulate(self, add: Add, shape: Sequence[int]) -> IntArray:
        """Run a kernel over all records and return the integer sums, modulo 2^64.

        Args:
            add: called any number of times, in any order and on any machine, each time with sorted keys
                of some whole users, or with codes of some records.
            shape: the shape of ``out``. Several may be added to, and are then added up.
        """


class Users(Summed, Protocol):
    """Whole users' records as sorted keys ``user | cell | item``, added up as often as asked."""

    def narrowed(self, codes: IntArray, shift: int) -> Users | None:
        """Return these users' records of some coordinates; None where rows must be read again.

        Args:
            codes: (V,) the new code of each coordinate, in the same order; −1 for what is left out.
                Keys must hold nothing but user and coordinate.
            shift: bits of a new key below the user code.
        """


class Kept(Protocol):
    """Rows made of others where they lie, kept there until the engine is left."""

    def sums(
        self, of: Callable[[Iterable[pa.RecordBatch]], IntArray], shape: Sequence[int]
    ) -> IntArray:
        """Return the integer sums of what a function makes of each share of it, modulo 2^64.

        Args:
            of: a function of the batches of one share, to integers of the shape.
            shape: the shape of the sums.
        """


class Keeper(Protocol):
    """The part of an engine of a cluster that fits ask: rows stay there, and are added up there.

    The class of such an engine says so by an attribute ``distributed`` that is True.
    """

    def kept(
        self,
        wanted: Sequence[tuple[str, Form]],
        make: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        schema: pa.Schema,
    ) -> Kept:
        """Keep what a function makes of columns, share by share; whole users lie in one share.

        Args:
            wanted: the columns, each with the form it is read in, called c0, c1 and so on.
            make: a function of the batches of one share, which may be called again after a failure.
            schema: the schema of what it makes.
        """


class Engine(AbstractContextManager["Engine"], Protocol):
    """A reader of the rows of one release or fit; what its methods return is private."""

    table: TableRows

    def __enter__(self) -> Self:
        """Open whatever is needed; ``__exit__`` leaves nothing behind."""

    def distinct(self, keys: Sequence[str], value: str | None = None) -> Groups:
        """Return the different groups that rows of users belong to, in any order.

        Args:
            keys: the columns that give a record's group, at least one.
            value: a column of numbers; rows without a finite one are left out.
        """

    def extent(self, key: str) -> tuple[int, int, int] | None:
        """Return the extremes of a column of whole numbers, and the number of rows.

        Rows without a user count as well. None where no row has a value.
        """

    def dictionary(
        self, groups: Groups, cells: GroupCells, *, cell_column: str | None = None, corners: int = 1
    ) -> Dictionary:
        """Give groups and cells their codes, in the public order: see :meth:`Dictionary.of`.

        Args:
            groups: (V,) different groups, of the types of the key columns.
            cells: the cell of each group.
            cell_column: another column that holds the cells instead.
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
        """Return whole users' records in the groups last given to :meth:`dictionary`.

        Args:
            dictionary: the dictionary that :meth:`dictionary` returned.
            value: the column of numbers that is split; each row counts 1 without one.
            split: the function from numbers to what each record adds to its group's coordinates.
            cell_column: the column of cells that was given to :meth:`dictionary`.
        """

    def records(
        self, dictionary: Dictionary, *, value: str | None = None, split: Split | None = None
    ) -> Summed:
        """Return single records, whosever they are, as codes of coordinates; arguments as above."""

    def columns(self, wanted: Sequence[tuple[str, Form]]) -> pa.Table:
        """Return columns of all rows, in their order, called c0, c1 and so on.

        Args:
            wanted: the columns, each with the form it is read in. None is a column of cells.
        """


#: The class of an engine, which opens the rows of one release.
Opener: TypeAlias = Callable[[TableRows], Engine]
