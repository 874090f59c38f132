"""One row of each user: numbers of all rows of one person, such as how many there are.

A person's number is a function of this person's rows alone, bit for bit: sums are of whole numbers,
so that neither other people's rows nor the order or the threads of a scan can move a digit of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

import duckdb

from dpgrain.errors import ParameterError
from dpgrain.regions import Region
from dpgrain.tables.engines.column_types import DAY, INTEGERS, TEXT, TRUTH, is_number
from dpgrain.tables.engines.derived import Derived
from dpgrain.tables.engines.duckdb import DuckDB
from dpgrain.tables.engines.sql import key as key_of
from dpgrain.tables.engines.sql import number, quoted
from dpgrain.tables.rows import Rows
from dpgrain.units import Unit, User

#: A function of one person's rows, by the name that pandas has for it.
Function: TypeAlias = Literal["size", "count", "sum", "mean", "min", "max", "nunique"]
FUNCTIONS: tuple[Function, ...] = get_args(Function)
# Numbers that a person without rows has, too: they are 0.
_ZERO_OF_NOTHING = ("size", "count", "sum", "nunique")
# Bits of the whole part and of the fraction of a sum: 2^63 rows add up in 128 bits.
_BITS = 62
_LARGEST_SUM = 2**63 - 1


@dataclass(frozen=True)
class Number:
    """One number of each person.

    Args:
        name: the name of its column.
        function: the function that makes it of a person's rows.
        of: the column that the function is of; None where rows are counted.
    """

    name: str
    function: Function
    of: str | None = None

    @property
    def zero_of_nothing(self) -> bool:
        """True where the number of a person without rows is 0; others have none then."""
        return self.function in _ZERO_OF_NOTHING

    @property
    def counts(self) -> bool:
        """True where the number is a count: whole, and never below 0."""
        return self.function in ("size", "count", "nunique")

    def checked(self, rows: Rows) -> Number:
        """Return the number, or raise unless the rows can have it by their types alone.

        Raises:
            SchemaError: if there is no such column, or its type does not suit the function.
        """
        column = self.of
        if column is None:
            return self
        if self.function in ("size", "count"):
            rows.require_readable(column, self.name)
        elif self.function == "nunique":
            rows.require_key(column, self.name)
        elif self.function in ("sum", "mean"):
            rows.require_numbers([column], self.name, also=[TRUTH])
        else:
            rows.require_numbers([column], self.name, also=[TRUTH, DAY])
        return self

    def kind(self, rows: Rows) -> str:
        """Return the type of the number's column, which follows from public types."""
        if self.of is None or self.counts:
            return "BIGINT"
        if self.function == "mean":
            return "DOUBLE"
        if rows.schema[self.of] == DAY:
            return DAY
        return "BIGINT" if _whole(self.of, rows) else "DOUBLE"

    def argument(self, rows: Rows) -> str:
        """Return the SQL of what a row brings; null where it brings nothing."""
        if self.of is None or self.function == "size":
            return "1"
        kind = rows.schema[self.of]
        if self.function == "nunique":
            return key_of(self.of, kind)
        if _whole(self.of, rows):
            return f"CAST({quoted(self.of)} AS BIGINT)"
        if not is_number(kind):
            return key_of(self.of, kind) if kind == TEXT else quoted(self.of)
        value = number(self.of)
        # Two zeros that differ in their sign would make a least number of either.
        finite = f"CASE WHEN {value} = 0 THEN 0.0 ELSE {value} END"
        if self.function in ("sum", "mean"):
            finite = f"greatest(least({value}, {2.0**_BITS:.1f}), {-(2.0**_BITS):.1f})"
        return f"CASE WHEN isfinite({value}) THEN {finite} END"

    def made(self, argument: str, rows: Rows) -> str:
        """Return the SQL of the number of one person.

        Args:
            argument: the name of what :meth:`argument` made of each row.
            rows: the rows.
        """
        if self.function == "nunique":
            return f"count(DISTINCT {argument})"
        if self.function in ("size", "count"):
            return f"count({argument})"
        if self.function in ("min", "max"):
            return f"{self.function}({argument})"
        assert self.of is not None  # noqa: S101 - sums and means are of a column
        total = _whole_sum(argument) if _whole(self.of, rows) else _exact_sum(argument)
        if self.function == "mean":
            return f"CAST({total} AS DOUBLE) / nullif(count({argument}), 0)"
        if _whole(self.of, rows):
            limit = f"{_LARGEST_SUM}::HUGEINT"
            return f"CAST(greatest(least({total}, {limit}), -{limit}) AS BIGINT)"
        return total

    def __str__(self) -> str:
        if self.of is None:
            return f"{self.name} (rows)"
        return f"{self.name} ({self.function} of {self.of})"


def _whole(column: str, rows: Rows) -> bool:
    """Return whether a column holds whole numbers that add up exactly as they are."""
    return rows.schema[column] in (*INTEGERS, TRUTH)


def _whole_sum(argument: str) -> str:
    return f"coalesce(sum({argument}), 0::HUGEINT)"


def _exact_sum(argument: str) -> str:
    """Return the SQL of a sum that no order can change: of whole parts, and of fractions in 2^-62ths.

    Digits below 2^-62 are cut off, and a number beyond 2^62 counts as that.
    """
    whole = f"trunc({argument})"
    fraction = f"trunc(({argument} - {whole}) * {2.0**_BITS:.1f})"
    parts = (_whole_sum(f"CAST({part} AS BIGINT)") for part in (whole, fraction))
    above, below = (f"CAST({part} AS DOUBLE)" for part in parts)
    return f"({above} + {below} / {2.0**_BITS:.1f})"


@dataclass(frozen=True, eq=False)
class PerUser:
    """A source of one row of each user, or of each user and group, made of other rows.

    Args:
        rows: the rows that it is made of.
        by: columns whose values are kept: a user has a row for each combination that it holds.
        numbers: the numbers of each row.
        derived: columns that are made of those of a row, in their order.
        filters: conditions that a row meets.
    """

    rows: Rows
    by: tuple[str, ...]
    numbers: tuple[Number, ...]
    derived: tuple[tuple[str, Derived], ...] = ()
    filters: tuple[Derived, ...] = ()

    @staticmethod
    def of(rows: Rows, by: str | Sequence[str] | None, numbers: Mapping[str, Any]) -> PerUser:
        """Check what is asked for; nothing is read.

        Raises:
            ParameterError: if there is no number or no user, or a name or a function is wrong.
            SchemaError: if a column is missing or of the wrong type.
        """
        if rows.user is None:
            raise ParameterError("per_user needs to know whose a record is; give user= to dg.read.")
        if not numbers:
            raise ParameterError("per_user needs at least one number, such as visits='count'.")
        keys = (by,) if isinstance(by, str) else tuple(by or ())
        for key in keys:
            rows.require_key(key, "by")
        taken = [rows.user, *keys, *numbers]
        folded = [name.casefold() for name in taken]
        twice = [name for place, name in enumerate(taken) if folded[place] in folded[:place]]
        if twice:
            raise ParameterError(
                f"{twice[0]} names two columns of one table; choose another name.", name=twice[0]
            )
        return PerUser(rows, keys, tuple(_number(*each).checked(rows) for each in numbers.items()))

    @property
    def name(self) -> str:
        """The name of the rows, which messages give the source."""
        return self.rows.source.name

    @property
    def title(self) -> str:
        """The title in reports."""
        return f"one row a user of {self.rows.source.title}"

    @property
    def region(self) -> Region:
        """The public region of the records that the rows are made of."""
        return self.rows.scope

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that the rows are in, if they are in files."""
        return tuple(getattr(self.rows.source, "paths", ()))

    @property
    def one_row(self) -> bool:
        """True where a user has one row at most."""
        return not self.by

    def zero_of_nothing(self, column: str) -> bool:
        """Return whether a column is a number that is 0 for a user who has no row."""
        if self.filters:
            # Who has no row may not have met a condition.
            return False
        own = {each.name: each for each in self.numbers}
        return self.one_row and column in own and own[column].zero_of_nothing

    def counts(self, column: str) -> bool:
        """Return whether a column is a count."""
        return any(each.name == column and each.counts for each in self.numbers)

    def __str__(self) -> str:
        made = [f"{name} ({derived.text})" for name, derived in self.derived]
        kept = [f"where {condition.text}" for condition in self.filters]
        return ", ".join([*self.by, *map(str, self.numbers), *made, *kept])

    def columns(self) -> dict[str, str]:
        """Return column name → type, from public types alone."""
        assert self.rows.user is not None  # noqa: S101 - it is made of rows of users
        keys = {
            key: "BIGINT" if self.rows.is_integer(key) else "VARCHAR"
            for key in (self.rows.user, *self.by)
        }
        numbers = {each.name: each.kind(self.rows) for each in self.numbers}
        return {**keys, **numbers, **{name: made.kind for name, made in self.derived}}

    def attach(
        self,
        connection: duckdb.DuckDBPyConnection,
        used: Collection[str] | None = None,  # noqa: ARG002 - a person's row is one
    ) -> str:
        """Make the rows in a table of the connection, the first time, and return its name."""
        name = f"people{self._depth}"
        known = connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        if (name,) not in known:
            DuckDB.over(self.rows, connection).keep(name, self._query(), self.used)
        return name

    def _query(self) -> str:
        """Return the query of the rows, in the order of users."""
        rows, keys = self.rows, [name for name in (self.rows.user, *self.by) if name is not None]
        inner = [f"{key_of(key, rows.schema[key])} AS k{i}" for i, key in enumerate(keys)]
        inner += [f"{each.argument(rows)} AS a{i}" for i, each in enumerate(self.numbers)]
        outer = [f"k{i} AS {quoted(key)}" for i, key in enumerate(keys)]
        outer += [
            f"{each.made(f'a{i}', rows)} AS {quoted(each.name)}"
            for i, each in enumerate(self.numbers)
        ]
        held = " AND ".join(f"k{i} IS NOT NULL" for i in range(len(keys)))
        places = ", ".join(f"k{i}" for i in range(len(keys)))
        query = (
            f"SELECT {', '.join(outer)} FROM (SELECT {', '.join(inner)} FROM source) "
            f"WHERE {held} GROUP BY {places}"
        )
        for name, made in self.derived:
            query = made.added(f"({query})", name)
        for condition in self.filters:
            query = condition.kept(f"({query})")
        ordered = ", ".join(map(quoted, keys))
        return f"SELECT * FROM ({query}) ORDER BY {ordered}"

    @property
    def used(self) -> list[str]:
        """The columns that a person's row is made of, beside the user's."""
        return [*self.by, *(each.of for each in self.numbers if each.of is not None)]

    @property
    def _depth(self) -> int:
        """The number of tables of this kind that it is made of, one of another."""
        below = self.rows.source
        return below._depth + 1 if isinstance(below, PerUser) else 0


def _number(name: str, asked: Any) -> Number:
    """Return the number that ``visits="count"`` or ``spent=("amount", "sum")`` asks for."""
    of, function = (None, asked) if isinstance(asked, str) else _pair(name, asked)
    known = ("size", "count") if of is None else FUNCTIONS
    if function not in known:
        listed = ", ".join(map(repr, known))
        others = " or a pair such as ('amount', 'sum')" if of is None else ""
        raise ParameterError(
            f"{name} must be one of {listed}{others}, not {function!r}.", name=name
        )
    return Number(name, cast(Function, function), of)


def _pair(name: str, asked: Any) -> tuple[str, Any]:
    try:
        of, function = asked
    except (TypeError, ValueError):
        of = function = None
    if not isinstance(of, str):
        raise ParameterError(
            f"{name} must be 'count' or a pair of a column and a function, such as ('amount', 'sum'), "
            f"not {asked!r}.",
            name=name,
        )
    return of, function


def made_of_people(table: Rows) -> PerUser | None:
    """Return what makes the rows of a table of people; None for any other table."""
    return table.source if isinstance(table.source, PerUser) else None


def made_in_words(table: Rows) -> list[str]:
    """Say how the rows of a table are made of those that were read: public facts of a release.

    Args:
        table: the table.
    """
    people = made_of_people(table)
    if people is not None:
        return [f"a person's row is {people}", *made_in_words(people.rows)]
    derived = [
        f"the column {name!r} is {made.text}"
        for name, made in table.derived.items()
        if name != made.text
    ]
    return [*derived, *(f"rows are those where {condition}" for condition in table.filters)]


def everyone(table: Rows, column: str | None) -> int | None:
    """Return the public number of people of whom each has a number, 0 without records; else None.

    Args:
        table: the table.
        column: the column of the number; None where rows are counted.
    """
    made = made_of_people(table)
    if column is None or made is None or not made.zero_of_nothing(column):
        return None
    return table.n_users


def require_whole_users(table: Rows, unit: Unit) -> None:
    """Raise unless whole users are protected, where a row is made of all that a person holds.

    Raises:
        ParameterError: if a smaller unit is asked for.
    """
    if made_of_people(table) is None or unit == User():
        return
    raise ParameterError(
        f"unit must be User() where each row is made of all that a person holds, not {unit!r}.",
        name="unit",
    )
