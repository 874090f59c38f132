"""One row of each user, made of all of this person's rows and of nobody else's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.publishing.facts import Fact
from dpgrain.scope.regions import Region
from dpgrain.tables.engines.derived import Derived
from dpgrain.tables.engines.duckdb import DuckDB
from dpgrain.tables.engines.features import Number, feature, named
from dpgrain.tables.engines.joins import UserJoin
from dpgrain.tables.engines.sql import key as key_of
from dpgrain.tables.engines.sql import quoted
from dpgrain.tables.expression import is_expression
from dpgrain.tables.rows import TableRows
from dpgrain.tables.sources.column_types import TEXT
from dpgrain.tables.sources.source import SourceWrapper
from dpgrain.units import Element, Unit, User


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

    rows: TableRows
    by: tuple[str, ...]
    numbers: tuple[Number, ...]
    derived: tuple[tuple[str, Derived], ...] = ()
    filters: tuple[Derived, ...] = ()

    @staticmethod
    def of(rows: TableRows, by: str | Sequence[str] | None, numbers: Mapping[str, Any]) -> PerUser:
        """Check what is asked for; nothing is read.

        Raises:
            ParameterError: if there is no number or no user, or a name or a function is wrong.
            SchemaError: if a column is missing or of the wrong type.
        """
        if rows.user is None:
            raise ParameterError("per_user requires user ids; pass user= to dg.read.")
        if not numbers:
            raise ParameterError("per_user requires at least one number, such as visits='count'.")
        if by is not None and not isinstance(by, str | list | tuple):
            raise ParameterError(
                f"by must be a column, a list of columns or None, not {_validate.describe(by)}.",
                name="by",
            )
        keys = (by,) if isinstance(by, str) else tuple(by or ())
        rows = rows.with_expressions(keys)
        for key in keys:
            rows.require_key(key, "by")
        taken = [name for name in (rows.user, *keys, *numbers) if name is not None]
        folded = [name.casefold() for name in taken]
        twice = [name for place, name in enumerate(taken) if folded[place] in folded[:place]]
        if twice:
            raise ParameterError(
                f"{twice[0]} is used for two columns of one table; choose another name.",
                name=twice[0],
            )
        features = named([feature(name, asked) for name, asked in numbers.items()])
        made, spelt = dict[str, Number](), {name.casefold(): name for name in taken}
        for one in features:
            for each in one.numbers:
                first = spelt.setdefault(each.name.casefold(), each.name)
                inner = one.made is not None and each.name in numbers
                if first != each.name or inner or made.setdefault(each.name, each) != each:
                    raise ParameterError(
                        f"{each.name} is used for two columns of one table; choose another name.",
                        name=each.name,
                    )
        for each in made.values():
            rows, known = _with_reads(rows, each)
            made[each.name] = known
        people = PerUser(rows, keys, tuple(each.checked(rows) for each in made.values()))
        for one in features:
            if one.made is not None:
                derived = Derived.of_node(one.made, one.text, people.columns())
                people = replace(people, derived=(*people.derived, (one.name, derived)))
        return people

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
        # Numbers that features are made of stand in these.
        asked = [str(each) for each in self.numbers if each.name != each.text]
        return ", ".join([*self.by, *asked, *made, *kept])

    def columns(self) -> dict[str, str]:
        """Return column name → type, from public types alone."""
        assert self.rows.user is not None  # noqa: S101 - it is made of rows of users
        keys = {
            key: "BIGINT" if self.rows.is_integer(key) else "VARCHAR"
            for key in (self.rows.user, *self.by)
        }
        numbers = {each.name: each.kind(self.rows) for each in self.numbers}
        return {**keys, **numbers, **{name: made.kind for name, made in self.derived}}

    @property
    def labels(self) -> frozenset[str]:
        """The columns of texts that are read of rows, and are labels."""
        made = {name for name, _ in self.derived}
        columns = self.columns().items()
        return frozenset(name for name, kind in columns if kind == TEXT and name not in made)

    def attach(
        self,
        connection: duckdb.DuckDBPyConnection,
        used: Collection[str] | None = None,  # noqa: ARG002 - a person's row is one
    ) -> str:
        """Make the rows in a table of the connection, the first time, and return its name."""
        # Two tables of people may be joined, of the same depth or of the same rows.
        name = f"people{id(self)}"
        known = connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        if (name,) not in known:
            DuckDB.over(self.rows, connection).keep(name, self._query(), self.used)
        return name

    def _query(self) -> str:
        """Return the query of the rows, in the order of users."""
        rows, keys = self.rows, [name for name in (self.rows.user, *self.by) if name is not None]
        inner = [f"{key_of(key, rows.key_type(key))} AS k{i}" for i, key in enumerate(keys)]
        inner += [f"{each.argument(rows)} AS a{i}" for i, each in enumerate(self.numbers)]
        held = " AND ".join(f"k{i} IS NOT NULL" for i in range(len(keys)))
        places = ", ".join(f"k{i}" for i in range(len(keys)))
        brought = f"(SELECT {', '.join(inner)} FROM source) WHERE {held}"
        sql = [f"{each.made(f'a{i}', rows)} AS m{i}" for i, each in enumerate(self.numbers)]
        of_rows = [sql[i] for i, each in enumerate(self.numbers) if not each.counted]
        counted = [i for i, each in enumerate(self.numbers) if each.counted]
        # Rows are gone through once, and kept where values are counted, which spills.
        start = f"WITH brought AS MATERIALIZED (SELECT * FROM {brought}) " if counted else ""
        whole = "brought" if counted else brought
        joined = f"(SELECT {', '.join([places, *of_rows])} FROM {whole} GROUP BY {places})"
        for i in counted:
            values = (
                f"(SELECT {places}, a{i}, count(*) AS records FROM brought WHERE a{i} IS NOT NULL "
                f"GROUP BY {places}, a{i})"
            )
            joined += f" LEFT JOIN (SELECT {places}, {sql[i]} FROM {values} GROUP BY {places})"
            joined += f" USING ({places})"
        outer = [f"k{i} AS {quoted(key)}" for i, key in enumerate(keys)]
        outer += [f"m{i} AS {quoted(each.name)}" for i, each in enumerate(self.numbers)]
        query = f"{start}SELECT {', '.join(outer)} FROM {joined}"
        for name, made in self.derived:
            query = made.added(f"({query})", name)
        for condition in self.filters:
            query = condition.kept(f"({query})")
        ordered = ", ".join(map(quoted, keys))
        return f"SELECT * FROM ({query}) ORDER BY {ordered}"

    @property
    def used(self) -> list[str]:
        """The columns that a person's row is made of, beside the user's."""
        return [*self.by, *(column for each in self.numbers for column in each.reads)]


def _with_reads(rows: TableRows, number: Number) -> tuple[TableRows, Number]:
    """Return rows with a column for each expression that a number is made of, and the number of these.

    Names of columns that differ in capital letters alone are one name to an engine.
    """
    names: dict[str, str] = {}
    for text in number.reads:
        name = text
        if text not in rows.schema and is_expression(text):
            while rows.has(name):
                name += " "
            rows = rows.derive({name: text})
        names[text] = name
    of, where, along = (
        None if text is None else names[text] for text in (number.of, number.where, number.along)
    )
    return rows, replace(number, of=of, where=where, along=along)


def made_of_people(table: TableRows) -> PerUser | None:
    """Return what makes the rows of a table of people; None for any other table."""
    return table.source if isinstance(table.source, PerUser) else None


def of_whole_people(table: TableRows) -> PerUser | UserJoin | None:
    """Return what makes each row of a table of all rows of a person; None where records are rows.

    Args:
        table: the table, of which columns and a part of the rows may have been made.
    """
    source = table.source
    while isinstance(source, SourceWrapper):
        source = source.source
    return source if isinstance(source, PerUser | UserJoin) else None


def facts_of_rows(table: TableRows) -> list[Fact]:
    """List public facts about how the rows of a table are derived from those that were read.

    Args:
        table: the table.
    """
    people, whole = made_of_people(table), of_whole_people(table)
    if people is not None:
        return [Fact("person", (str(people),)), *facts_of_rows(people.rows)]
    below = [] if whole is None else [whole.rows]
    if isinstance(whole, UserJoin):
        below.append(whole.others)
    known = {name for rows in below for name in rows.derived}
    derived = [
        Fact("column", (name, made.text))
        for name, made in table.derived.items()
        if name != made.text and name not in known
    ]
    kept = [Fact("rows-where", (str(condition),)) for condition in table.filters]
    joined = [whole.fact] if isinstance(whole, UserJoin) else []
    if isinstance(whole, PerUser):
        joined = [Fact("person", (str(whole),))]
    return [*derived, *kept, *joined, *(fact for rows in below for fact in facts_of_rows(rows))]


def everyone(table: TableRows, column: str | None) -> int | None:
    """Return the public number of people of whom each has a number, 0 without records; else None.

    Args:
        table: the table.
        column: the column of the number; None where rows are counted.
    """
    made = made_of_people(table)
    if column is None or made is None or not made.zero_of_nothing(column):
        return None
    return table.n_users


def require_whole_users(table: TableRows, unit: Unit) -> None:
    """Raise unless whole users are protected, where a row is made of all that a person holds.

    Elements are protected where each row is made inside one cell: :func:`carried` says of which.

    Raises:
        ParameterError: if a smaller unit is asked for.
    """
    if of_whole_people(table) is None or unit == User():
        return
    by = unit.by if isinstance(unit, Element) else None
    if isinstance(by, str) and carried(table, by) is not None:
        return
    raise ParameterError(
        "unit must be User() if each row is derived from all of a person's data, not "
        f"{_validate.describe(unit)}; to protect elements, derive each row from one of them: "
        "per_user(by='day', …) with Element('day').",
        name="unit",
    )


def carried(table: TableRows, column: str) -> TableRows | None:
    """Return the records of which a table's rows are made inside the cells of a column; else None.

    Args:
        table: the table, of one row of each user and value of the column, or of another such table.
        column: the column, whose value a row has from all records that it is made of.
    """
    people = made_of_people(table)
    if people is None or column not in people.by:
        return None
    rows = people.rows
    if of_whole_people(rows) is not None:
        return carried(rows, column)
    return rows
