"""The protocol of stores: the files and databases of ledgers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from dpgrain.ledger.lines import Line
from dpgrain.ledger.units import Units

# The cells of accounts are numbered from START on, and before END.
START, END = -(1 << 62), 1 << 62
# Version of the format of what is kept beside the lines; it is made again from the lines where it
# is older.
FORMAT = 4


@dataclass(frozen=True)
class Axis:
    """The column whose values number the cells of a promise.

    Args:
        column: the column.
        kind: how the column is read: the axis of its :class:`~dpgrain.scope.regions.Span`, and its type
            if that is unusual.
    """

    column: str
    kind: str


@dataclass(frozen=True)
class Cells:
    """Consecutive cells of one class.

    Args:
        within: the class.
        first: the first cell.
        end: the cell after the last.
    """

    within: int = 0
    first: int = START
    end: int = END


class Page(Protocol):
    """One transaction: lines are appended, and accounts are added to."""

    def format(self) -> int | None:
        """Return the format of the accounts; None where there is no ledger."""

    def set_format(self, number: int) -> None:
        """State the format of the accounts."""

    def last(self) -> Line | None:
        """Return the last line."""

    def line(self, number: int) -> Line | None:
        """Return the line of a number, None if there is none."""

    def lines(self) -> Iterator[Line]:
        """Yield all lines in their order."""

    def append(self, line: Line) -> None:
        """Append a line."""

    def marked(self, mark: str) -> int | None:
        """Return the last line with a mark; None if no line has it."""

    def set_mark(self, mark: str, number: int) -> None:
        """State that a line has a mark."""

    def axis(self, promise: int) -> Axis | None:
        """Return the axis on which the accounts of a promise lie; None as long as it has none."""

    def set_axis(self, promise: int, axis: Axis) -> None:
        """State the axis on which the accounts of a promise lie."""

    def in_force(self) -> list[int]:
        """Return the lines of the promises that no later one renews."""

    def open_account(self, promise: int) -> None:
        """Put a promise in force, with one account for all cells and nothing charged."""

    def end(self, promise: int) -> None:
        """Put a promise out of force; its accounts stay."""

    def classes(self, promise: int) -> dict[int, str]:
        """Return the region of each class of a promise, as JSON."""

    def set_class(self, promise: int, number: int, region: str) -> None:
        """State the region of a class."""

    def copy_class(self, promise: int, source: int, target: int) -> None:
        """Give a class the accounts of another one."""

    def most(self, promise: int, cells: Cells) -> Units:
        """Return the most that any account of some cells has been charged, part by part."""

    def add(self, promise: int, cells: Cells, taken: Units) -> None:
        """Charge some cells, whose accounts are split from those of others where they were one."""

    def taken(self, promise: int) -> set[int]:
        """Return the places of the planned releases of a promise that were made."""

    def take(self, promise: int, place: int) -> None:
        """Mark a planned release as made."""

    def all_taken(self) -> list[tuple[int, ...]]:
        """Return the rows (promise, place) of planned releases that were made, in their order."""

    def all_marks(self) -> list[tuple[str, int]]:
        """Return the rows (hash of a mark, line) of all marks, in their order."""

    def accounts(self) -> list[tuple[int, ...]]:
        """Return the rows (promise, class, first, pure, mu, leak) of accounts, in their order."""

    def clear_accounts(self) -> None:
        """Delete all that is kept beside the lines, and is made again from them."""


class Store(Protocol):
    """A file or a database, shared by all processes.

    A store may be used by several threads and after a fork, in which each process has a connection of
    its own.
    """

    @property
    def place(self) -> str:
        """The place, as another process finds it."""

    @property
    def name(self) -> str:
        """The place, as messages show it, without passwords."""

    def creating(self) -> AbstractContextManager[Page]:
        """Enter a transaction that makes the tables of a ledger.

        Raises:
            ParameterError: if the place holds something already.
            DataError: if it cannot be written.
        """

    def writing(self) -> AbstractContextManager[Page]:
        """Enter a transaction that no other one overlaps.

        When it is left without an error, all that was written is on the disk to stay; after an error
        nothing is written.

        Raises:
            DataError: if the place cannot be written, or is damaged.
        """

    def reading(self) -> AbstractContextManager[Page]:
        """Enter a transaction that sees one state, and writes nothing.

        Raises:
            DataError: if the place cannot be read, or is damaged.
        """

    def close(self) -> None:
        """Close this process's connection."""
