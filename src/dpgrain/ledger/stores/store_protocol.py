"""Protocol of stores: files and databases that contain ledgers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from dpgrain.ledger.lines import StoredLine
from dpgrain.ledger.price_units import Units

# Range of cell numbers: START inclusive, END exclusive.
START, END = -(1 << 62), 1 << 62
# Version of the format of accounts; older accounts are rebuilt from the lines.
FORMAT = 4
#: Format of a ledger that was moved, which every version refuses to charge.
MOVED = 1_000_000


@dataclass(frozen=True)
class Axis:
    """Column with values that number the cells of a promise."""

    column: str
    kind: str  # axis of :class:`~dpgrain.scope.regions.Span`, and its type if unusual


@dataclass(frozen=True)
class CellRange:
    """Consecutive cells of one class: the class, the first cell, and the end."""

    within: int = 0
    first: int = START
    end: int = END


class Transaction(Protocol):
    """One transaction on the tables of a ledger."""

    def format(self) -> int | None:
        """Return the format of the accounts; None without a ledger."""

    def set_format(self, number: int) -> None:
        """Set the format of the accounts."""

    def last(self) -> StoredLine | None:
        """Return the last line."""

    def line(self, number: int) -> StoredLine | None:
        """Return the line of a number; None if there is none."""

    def lines(self) -> Iterator[StoredLine]:
        """Yield all lines in order."""

    def append(self, line: StoredLine) -> None:
        """Append a line."""

    def marked(self, mark: str) -> int | None:
        """Return the last line with a mark; None if there is none."""

    def set_mark(self, mark: str, number: int) -> None:
        """Assign a mark to a line."""

    def axis(self, promise: int) -> Axis | None:
        """Return the axis of the accounts of a promise; None if it has none yet."""

    def set_axis(self, promise: int, axis: Axis) -> None:
        """Set the axis of the accounts of a promise."""

    def in_force(self) -> list[int]:
        """Return the lines of promises that no later promise renews."""

    def open_account(self, promise: int) -> None:
        """Put a promise in force, with one empty account for all cells."""

    def end(self, promise: int) -> None:
        """End a promise; its accounts remain."""

    def classes(self, promise: int) -> dict[int, str]:
        """Return the region of each class of a promise, as JSON."""

    def set_class(self, promise: int, number: int, region: str) -> None:
        """Set the region of a class."""

    def copy_class(self, promise: int, source: int, target: int) -> None:
        """Copy the accounts of a class to another one."""

    def max_units(self, promise: int, cells: CellRange) -> Units:
        """Return the largest charge of any account of some cells, part by part."""

    def add(self, promise: int, cells: CellRange, taken: Units) -> None:
        """Charge some cells; accounts that extend beyond them are split first."""

    def used_plan(self, promise: int) -> set[int]:
        """Return the plan indices of published planned releases of a promise."""

    def use_planned(self, promise: int, place: int) -> None:
        """Mark a planned release as published."""

    def all_used_plans(self) -> list[tuple[int, ...]]:
        """Return the rows (promise, plan index) of published planned releases, in order."""

    def all_marks(self) -> list[tuple[str, int]]:
        """Return the rows (hash of a mark, line) of all marks, in order."""

    def accounts(self) -> list[tuple[int, ...]]:
        """Return the rows (promise, class, first, pure, mu, leak) of accounts, in order."""

    def clear_accounts(self) -> None:
        """Delete everything that can be rebuilt from the lines."""


class Store(Protocol):
    """A file or a database that all processes share.

    Several threads may use a store, also after a fork: each process has its own connection.
    """

    @property
    def place(self) -> str:
        """Address of the store for other processes."""

    @property
    def name(self) -> str:
        """Address of the store for messages, without passwords."""

    def creating(self) -> AbstractContextManager[Transaction]:
        """Enter a transaction that creates the tables of a ledger in an empty place."""

    def writing(self) -> AbstractContextManager[Transaction]:
        """Enter an exclusive transaction, durable after a normal exit, else rolled back."""

    def reading(self) -> AbstractContextManager[Transaction]:
        """Enter a read-only transaction with a consistent state."""

    def close(self) -> None:
        """Close the connection of this process."""
