"""The tables of a ledger, in the SQL that SQLite and PostgreSQL have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from dpgrain.ledger.lines import Line
from dpgrain.ledger.stores.protocol import START
from dpgrain.ledger.units import Units

#: A function that runs a statement, with a value for each ``?``, and yields its rows.
Execute: TypeAlias = Callable[[str, Sequence[Any]], Iterable[tuple[Any, ...]]]

# "about" has one row, "lines" is the ledger itself; promises in force and accounts follow from it.
TABLES = (
    "CREATE TABLE about (format BIGINT NOT NULL)",
    "CREATE TABLE lines (number BIGINT PRIMARY KEY, hash TEXT NOT NULL, body TEXT NOT NULL)",
    "CREATE TABLE promises (number BIGINT PRIMARY KEY)",
    "CREATE TABLE accounts (promise BIGINT NOT NULL, first BIGINT NOT NULL, pure BIGINT NOT NULL, "
    "mu BIGINT NOT NULL, leak BIGINT NOT NULL, PRIMARY KEY (promise, first))",
)
_LINE = "SELECT number, hash, body FROM lines"
# The account that a cell lies in begins at the last first cell that is not above it.
_AT = "(SELECT max(first) FROM accounts WHERE promise = ? AND first <= ?)"
# What is read at once of the lines.
_LINES_AT_ONCE = 1000


class SqlPage:
    """A page of tables that a function reads and writes.

    Args:
        execute: the function, inside a transaction.
    """

    def __init__(self, execute: Execute) -> None:
        self._execute = execute

    def _one(self, statement: str, *values: Any) -> tuple[Any, ...] | None:
        return next(iter(self._execute(statement, values)), None)

    def format(self) -> int | None:
        """Return the format of the accounts; None where there is no ledger."""
        found = self._one("SELECT format FROM about")
        return None if found is None else int(found[0])

    def set_format(self, number: int) -> None:
        """State the format of the accounts."""
        self._execute("DELETE FROM about", ())
        self._execute("INSERT INTO about VALUES (?)", (number,))

    def last(self) -> Line | None:
        """Return the last line."""
        found = self._one(f"{_LINE} ORDER BY number DESC LIMIT 1")
        return None if found is None else Line(*found)

    def line(self, number: int) -> Line | None:
        """Return the line of a number, None if there is none."""
        found = self._one(f"{_LINE} WHERE number = ?", number)
        return None if found is None else Line(*found)

    def lines(self) -> Iterator[Line]:
        """Yield all lines in their order."""
        statement = f"{_LINE} WHERE number > ? ORDER BY number LIMIT {_LINES_AT_ONCE}"
        last = START
        while found := [Line(*row) for row in self._execute(statement, (last,))]:
            yield from found
            last = found[-1].number

    def append(self, line: Line) -> None:
        """Append a line."""
        self._execute("INSERT INTO lines VALUES (?, ?, ?)", (line.number, line.hash, line.body))

    def in_force(self) -> list[int]:
        """Return the lines of the promises that no later one renews."""
        found = self._execute("SELECT number FROM promises ORDER BY number", ())
        return [int(number) for (number,) in found]

    def end(self, promise: int) -> None:
        """Put a promise out of force; its accounts stay."""
        self._execute("DELETE FROM promises WHERE number = ?", (promise,))

    def open_account(self, promise: int) -> None:
        """Put a promise in force, with one account for all cells and nothing charged."""
        self._execute("INSERT INTO promises VALUES (?)", (promise,))
        self._execute("INSERT INTO accounts VALUES (?, ?, 0, 0, 0)", (promise, START))

    def most(self, promise: int, first: int, end: int) -> Units:
        """Return the most that any account of some cells has been charged, part by part."""
        found = self._one(
            "SELECT max(pure), max(mu), max(leak) FROM accounts "
            f"WHERE promise = ? AND first >= {_AT} AND first < ?",
            *(promise, promise, first, end),
        )
        return Units(*map(int, found or ()))

    def add(self, promise: int, first: int, end: int, taken: Units) -> None:
        """Charge some cells, whose accounts are split from those of others where they were one."""
        for cell in (first, end):
            self._execute(
                f"INSERT INTO accounts SELECT promise, {int(cell)}, pure, mu, leak FROM accounts "
                f"WHERE promise = ? AND first = {_AT} ON CONFLICT DO NOTHING",
                (promise, promise, cell),
            )
        self._execute(
            "UPDATE accounts SET pure = pure + ?, mu = mu + ?, leak = leak + ? "
            "WHERE promise = ? AND first >= ? AND first < ?",
            (taken.pure, taken.mu, taken.leak, promise, first, end),
        )

    def accounts(self) -> list[tuple[int, ...]]:
        """Return the rows (promise, first, pure, mu, leak) of all accounts, in their order."""
        return [
            tuple(map(int, row))
            for row in self._execute("SELECT * FROM accounts ORDER BY promise, first", ())
        ]

    def clear_accounts(self) -> None:
        """Delete all accounts, which are made again from the lines."""
        self._execute("DELETE FROM promises", ())
        self._execute("DELETE FROM accounts", ())
