"""The tables of a ledger, in the common SQL of SQLite and PostgreSQL."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from dpgrain.errors import AccessError
from dpgrain.ledger.lines import AFTER_DAMAGE, StoredLine
from dpgrain.ledger.price_units import Units
from dpgrain.ledger.stores.store_protocol import END, START, Axis, CellRange

#: Function that runs a statement with a value for each ``?``, and yields rows.
Execute: TypeAlias = Callable[[str, Sequence[Any]], Iterable[tuple[Any, ...]]]

# Ledgers of earlier formats lack the table of published planned releases, or the table of marks. A
# mark is stored as a hash, which is short for every length of the mark.
_TAKEN = (
    "CREATE TABLE IF NOT EXISTS taken (promise BIGINT NOT NULL, place BIGINT NOT NULL, "
    "PRIMARY KEY (promise, place))"
)
_MARKS = "CREATE TABLE IF NOT EXISTS marks (mark TEXT PRIMARY KEY, number BIGINT NOT NULL)"
# "about" has one row, and "lines" is the ledger; the other tables are derived from it.
TABLES = (
    "CREATE TABLE about (format BIGINT NOT NULL)",
    "CREATE TABLE lines (number BIGINT PRIMARY KEY, hash TEXT NOT NULL, body TEXT NOT NULL)",
    "CREATE TABLE promises (number BIGINT PRIMARY KEY, in_force BIGINT NOT NULL, axis TEXT, "
    "kind TEXT)",
    "CREATE TABLE classes (promise BIGINT NOT NULL, class BIGINT NOT NULL, region TEXT NOT NULL, "
    "PRIMARY KEY (promise, class))",
    "CREATE TABLE accounts (promise BIGINT NOT NULL, class BIGINT NOT NULL, first BIGINT NOT NULL, "
    "pure BIGINT NOT NULL, mu BIGINT NOT NULL, leak BIGINT NOT NULL, "
    "PRIMARY KEY (promise, class, first))",
    _TAKEN,
    _MARKS,
)
_LINE = "SELECT number, hash, body FROM lines"
# First cell of the account that contains a cell.
_AT = "(SELECT max(first) FROM accounts WHERE promise = ? AND class = ? AND first <= ?)"
# Number of lines to read per statement.
_LINES_AT_ONCE = 1000


class SqlTransaction:
    """A transaction on the tables; ``execute`` runs its statements."""

    def __init__(self, execute: Execute) -> None:
        self._execute = execute

    def _one(self, statement: str, *values: Any) -> tuple[Any, ...] | None:
        return next(iter(self._execute(statement, values)), None)

    def format(self) -> int | None:
        """Return the format of the accounts; None without a ledger."""
        result = self._one("SELECT format FROM about")
        return None if result is None else _numbers(result)[0]

    def set_format(self, number: int) -> None:
        """Set the format of the accounts."""
        self._execute("DELETE FROM about", ())
        self._execute("INSERT INTO about VALUES (?)", (number,))

    def last(self) -> StoredLine | None:
        """Return the last line."""
        result = self._one(f"{_LINE} ORDER BY number DESC LIMIT 1")
        return None if result is None else _line(result)

    def line(self, number: int) -> StoredLine | None:
        """Return the line of a number; None if there is none."""
        result = self._one(f"{_LINE} WHERE number = ?", number)
        return None if result is None else _line(result)

    def lines(self) -> Iterator[StoredLine]:
        """Yield all lines in order."""
        statement = f"{_LINE} WHERE number > ? ORDER BY number LIMIT {_LINES_AT_ONCE}"
        last = START
        while result := [_line(row) for row in self._execute(statement, (last,))]:
            yield from result
            last = result[-1].number

    def append(self, line: StoredLine) -> None:
        """Append a line."""
        self._execute("INSERT INTO lines VALUES (?, ?, ?)", (line.number, line.hash, line.body))

    def marked(self, mark: str) -> int | None:
        """Return the last line with a mark; None if there is none."""
        result = self._one("SELECT number FROM marks WHERE mark = ?", _hash(mark))
        return None if result is None else _numbers(result)[0]

    def set_mark(self, mark: str, number: int) -> None:
        """Assign a mark to a line."""
        self._execute(
            "INSERT INTO marks VALUES (?, ?) "
            "ON CONFLICT (mark) DO UPDATE SET number = excluded.number",
            (_hash(mark), number),
        )

    def all_marks(self) -> list[tuple[str, int]]:
        """Return the rows (hash of a mark, line) of all marks, in order."""
        # Sort here, because databases sort text differently.
        result = self._execute("SELECT mark, number FROM marks", ())
        return sorted((str(mark), _numbers((number,))[0]) for mark, number in result)

    def in_force(self) -> list[int]:
        """Return the lines of promises that no later promise renews."""
        result = self._execute("SELECT number FROM promises WHERE in_force = 1 ORDER BY number", ())
        return [_numbers(row)[0] for row in result]

    def end(self, promise: int) -> None:
        """End a promise; its accounts remain."""
        self._execute("UPDATE promises SET in_force = 0 WHERE number = ?", (promise,))

    def open_account(self, promise: int) -> None:
        """Put a promise in force, with one empty account for all cells."""
        self._execute("INSERT INTO promises VALUES (?, 1, NULL, NULL)", (promise,))
        self._execute("INSERT INTO accounts VALUES (?, 0, ?, 0, 0, 0)", (promise, START))

    def axis(self, promise: int) -> Axis | None:
        """Return the axis of the accounts of a promise; None if it has none yet."""
        result = self._one("SELECT axis, kind FROM promises WHERE number = ?", promise)
        return None if result is None or result[0] is None else Axis(*result)

    def set_axis(self, promise: int, axis: Axis) -> None:
        """Set the axis of the accounts of a promise."""
        self._execute(
            "UPDATE promises SET axis = ?, kind = ? WHERE number = ?",
            (axis.column, axis.kind, promise),
        )

    def classes(self, promise: int) -> dict[int, str]:
        """Return the region of each class of a promise, as JSON."""
        statement = "SELECT class, region FROM classes WHERE promise = ? ORDER BY class"
        return {int(number): region for number, region in self._execute(statement, (promise,))}

    def set_class(self, promise: int, number: int, region: str) -> None:
        """Set the region of a class."""
        self._execute(
            "INSERT INTO classes VALUES (?, ?, ?) "
            "ON CONFLICT (promise, class) DO UPDATE SET region = excluded.region",
            (promise, number, region),
        )

    def copy_class(self, promise: int, source: int, target: int) -> None:
        """Copy the accounts of a class to another one."""
        self._execute(
            f"INSERT INTO accounts SELECT promise, {int(target)}, first, pure, mu, leak "
            "FROM accounts WHERE promise = ? AND class = ?",
            (promise, source),
        )

    def max_units(self, promise: int, cells: CellRange) -> Units:
        """Return the largest charge of any account of some cells, part by part."""
        one = (promise, cells.within)
        result = self._one(
            "SELECT max(pure), max(mu), max(leak) FROM accounts "
            f"WHERE promise = ? AND class = ? AND first >= {_AT} AND first < ?",
            *(*one, *one, cells.first, cells.end),
        )
        return Units(*_numbers(result or ()))

    def add(self, promise: int, cells: CellRange, taken: Units) -> None:
        """Charge some cells; accounts that extend beyond them are split first."""
        one = (promise, cells.within)
        for cell in {cells.first, cells.end} - {START, END}:
            self._execute(
                f"INSERT INTO accounts SELECT promise, class, {int(cell)}, pure, mu, leak "
                f"FROM accounts WHERE promise = ? AND class = ? AND first = {_AT} "
                "ON CONFLICT DO NOTHING",
                (*one, *one, cell),
            )
        self._execute(
            "UPDATE accounts SET pure = pure + ?, mu = mu + ?, leak = leak + ? "
            "WHERE promise = ? AND class = ? AND first >= ? AND first < ?",
            (taken.pure, taken.mu, taken.leak, *one, cells.first, cells.end),
        )

    def used_plan(self, promise: int) -> set[int]:
        """Return the plan indices of published planned releases of a promise."""
        result = self._execute("SELECT place FROM taken WHERE promise = ?", (promise,))
        return {_numbers(row)[0] for row in result}

    def use_planned(self, promise: int, place: int) -> None:
        """Mark a planned release as published."""
        self._execute("INSERT INTO taken VALUES (?, ?)", (promise, place))

    def all_used_plans(self) -> list[tuple[int, ...]]:
        """Return the rows (promise, plan index) of published planned releases, in order."""
        result = self._execute("SELECT promise, place FROM taken ORDER BY promise, place", ())
        return list(map(_numbers, result))

    def accounts(self) -> list[tuple[int, ...]]:
        """Return the rows (promise, class, first, pure, mu, leak) of accounts, in order."""
        return [
            _numbers(row)
            for row in self._execute("SELECT * FROM accounts ORDER BY promise, class, first", ())
        ]

    def clear_accounts(self) -> None:
        """Delete everything that can be rebuilt from the lines."""
        for later in (_TAKEN, _MARKS):
            self._execute(later, ())
        for table in ("taken", "marks", "promises", "classes", "accounts"):
            self._execute(f"DELETE FROM {table}", ())


def _hash(mark: str) -> str:
    return hashlib.sha256(mark.encode("utf-8", "surrogatepass")).hexdigest()


def _line(row: tuple[Any, ...]) -> StoredLine:
    """Return a row as a stored line."""
    number, digest, body = row
    if not isinstance(digest, str) or not isinstance(body, str):
        raise _damaged()
    return StoredLine(_numbers((number,))[0], digest, body)


def _numbers(row: tuple[Any, ...]) -> tuple[int, ...]:
    """Return a row of integers; raise DataError for other types."""
    if not all(isinstance(value, int) for value in row):
        raise _damaged()
    return tuple(map(int, row))


def _damaged() -> AccessError:
    return AccessError(f"the ledger's tables are corrupt: {AFTER_DAMAGE}.")
