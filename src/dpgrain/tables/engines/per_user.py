"""One row per user, computed from this user's rows only."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import duckdb

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.publishing.facts import Fact
from dpgrain.scope.regions import Region
from dpgrain.tables.engines.derived_columns import CompiledExpression
from dpgrain.tables.engines.duckdb import DuckDB
from dpgrain.tables.engines.features import Aggregate, deduplicate, parse_feature
from dpgrain.tables.engines.joins import UserJoin
from dpgrain.tables.engines.sql import key_sql, quoted
from dpgrain.tables.expression import is_expression
from dpgrain.tables.rows import TableRows
from dpgrain.tables.sources.column_types import TEXT
from dpgrain.tables.sources.distinct_rows import DistinctRows
from dpgrain.tables.sources.duckdb_connection import memory_limit
from dpgrain.tables.sources.source import nested_sources, wrapped_sources
from dpgrain.units import Element, Unit, User

# Share of DuckDB's memory for the states of a pass; with more, DuckDB groups, stores and encrypts
# the same users several times. Bytes of a user's row in addition, and of states that fit anyway.
_STATES_SHARE, _ROW_BYTES, _WIDE_BYTES = 0.5, 32, 64
# Passes cost as much as spilling if rows are read more often.
_MAX_PARTS = 16


@dataclass(frozen=True, eq=False)
class PerUser:
    """Source with one row per user, or per user and group, derived from other rows."""

    rows: TableRows
    by: tuple[str, ...]  # a user has one row for each combination of these columns' values
    numbers: tuple[Aggregate, ...]
    derived: tuple[tuple[str, CompiledExpression], ...] = ()  # in order
    filters: tuple[CompiledExpression, ...] = ()

    creates_table: ClassVar[bool] = True

    @staticmethod
    def create(
        rows: TableRows, by: str | Sequence[str] | None, numbers: Mapping[str, Any]
    ) -> PerUser:
        """Validate a request without reading rows."""
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
        features = deduplicate([parse_feature(name, text) for name, text in numbers.items()])
        aggregates, spelt = dict[str, Aggregate](), {name.casefold(): name for name in taken}
        for one in features:
            for each in one.numbers:
                first = spelt.setdefault(each.name.casefold(), each.name)
                inner = one.expression is not None and each.name in numbers
                if first != each.name or inner or aggregates.setdefault(each.name, each) != each:
                    raise ParameterError(
                        f"{each.name} is used for two columns of one table; choose another name.",
                        name=each.name,
                    )
        for each in aggregates.values():
            rows, known = _with_expressions(rows, each)
            aggregates[each.name] = known
        people = PerUser(rows, keys, tuple(each.checked(rows) for each in aggregates.values()))
        for one in features:
            if one.expression is not None:
                derived = CompiledExpression.compile(one.expression, one.text, people.columns())
                people = replace(people, derived=(*people.derived, (one.name, derived)))
        return people

    @property
    def name(self) -> str:
        """Name of the rows, which is the source's name in messages."""
        return self.rows.source.name

    @property
    def title(self) -> str:
        """Title in reports."""
        return f"one row a user of {self.rows.source.title}"

    @property
    def region(self) -> Region:
        """Public region of the records."""
        return self.rows.scope

    @property
    def paths(self) -> tuple[str, ...]:
        """Files of the rows, if they are in files."""
        return tuple(getattr(self.rows.source, "paths", ()))

    @property
    def one_row(self) -> bool:
        """True if each user has at most one row."""
        return not self.by

    def is_zero_without_rows(self, column: str) -> bool:
        """Return True if a column is 0 for users without rows."""
        if self.filters:
            # Users without a row may have failed a condition.
            return False
        own = {each.name: each for each in self.numbers}
        return self.one_row and column in own and own[column].is_zero_without_rows

    def is_count(self, column: str) -> bool:
        """Return True if a column is a count."""
        return any(each.name == column and each.is_count for each in self.numbers)

    def meanings(self, columns: Sequence[str | None]) -> tuple[tuple[str, ...], ...]:
        """Return the computed columns among these, as in the metadata of a release."""
        known = {each.name: tuple(part or "" for part in each.meaning) for each in self.numbers}
        known |= {name: ("", column.text, "", "") for name, column in self.derived}
        return tuple((name, *known[name], *self.by) for name in columns if name in known)

    @property
    def fact(self) -> Fact:
        """Public fact about the rows."""
        if not self.by:
            return Fact("person", (self._columns,))
        return Fact("person-by", (", ".join(self.by), self._columns))

    def __str__(self) -> str:
        return ", ".join([*self.by, self._columns])

    @property
    def _columns(self) -> str:
        columns = [f"{name} ({derived.text})" for name, derived in self.derived]
        filters = [f"where {condition.text}" for condition in self.filters]
        # Numbers inside features are part of their expressions.
        numbers = [str(each) for each in self.numbers if each.name != each.text]
        return ", ".join([*numbers, *columns, *filters])

    def columns(self) -> dict[str, str]:
        """Return column name → type, from public types only."""
        assert self.rows.user is not None  # noqa: S101 - it is made of rows of users
        keys = {
            key: "BIGINT" if self.rows.is_integer(key) else "VARCHAR"
            for key in (self.rows.user, *self.by)
        }
        numbers = {each.name: each.kind(self.rows) for each in self.numbers}
        return {**keys, **numbers, **{name: column.kind for name, column in self.derived}}

    @property
    def labels(self) -> frozenset[str]:
        """Text columns whose values are labels from the rows."""
        derived = {name for name, _ in self.derived}
        columns = self.columns().items()
        return frozenset(name for name, kind in columns if kind == TEXT and name not in derived)

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Create a table with the used columns on the connection, once; return its name."""
        # Two joined per-user tables may have the same depth or the same rows.
        prefix = f"people{id(self)}_"
        known = connection.execute(
            "SELECT table_name, list(column_name) FROM duckdb_columns() "
            f"WHERE starts_with(table_name, '{prefix}') GROUP BY table_name ORDER BY table_name"
        ).fetchall()
        people = self._restricted(used)
        needed = set(people.columns())
        for table, columns in known:
            if needed <= set(columns):
                return str(table)
        name = f"{prefix}{len(known)}"
        people._create(name, connection)
        return name

    def _create(self, name: str, connection: duckdb.DuckDBPyConnection) -> None:
        """Create the table of the rows, ordered by user."""
        engine = DuckDB.over(self.rows, connection)
        parts = self._parts(engine)
        if parts == 1:
            engine.create_table(name, f"{self._query()} ORDER BY {self._order}", self.used)
        else:
            queries = [self._query(f"hash(k0) % {parts} = {part}") for part in range(parts)]
            engine.create_table_in_parts(name, queries, self._order, self.used)

    def _restricted(self, used: Collection[str] | None) -> PerUser:
        """Return the source with the used columns and inputs; all if rows are read once."""
        if used is None or not self._is_stored:
            return self
        needed = set(used).union(*(condition.inputs for condition in self.filters))
        for name, column in reversed(self.derived):
            if name in needed:
                needed.update(column.inputs)
        return replace(
            self,
            numbers=tuple(each for each in self.numbers if each.name in needed),
            derived=tuple(each for each in self.derived if each[0] in needed),
        )

    @property
    def _is_stored(self) -> bool:
        """True if the records can be read several times."""
        return all(getattr(each, "stored", True) for each in nested_sources(self.rows.source))

    @property
    def _order(self) -> str:
        return ", ".join(map(quoted, self._keys))

    @property
    def _keys(self) -> list[str]:
        return [name for name in (self.rows.user, *self.by) if name is not None]

    def _parts(self, engine: DuckDB) -> int:
        """Return the number of passes, each for a part of the users that fits into memory."""
        width = sum(each.state_bytes for each in self.numbers)
        if width < _WIDE_BYTES or not self._is_stored:
            return 1
        keys = [key_sql(key, self.rows.key_type(key)) for key in self._keys]
        counted = f"SELECT approx_count_distinct(hash({', '.join(keys)})) AS n FROM source"
        number = int(engine.query(counted, self.by).column("n")[0].as_py())
        needed = engine.reading * number * (_ROW_BYTES + width)
        parts = math.ceil(needed / (_STATES_SHARE * memory_limit(engine.connection)))
        return min(max(parts, 1), _MAX_PARTS)

    def _query(self, part: str = "true") -> str:
        """Return the query of the rows of the users in a part."""
        rows, keys = self.rows, self._keys
        inner = [f"{key_sql(key, rows.key_type(key))} AS k{i}" for i, key in enumerate(keys)]
        inner += [f"{each.argument(rows)} AS a{i}" for i, each in enumerate(self.numbers)]
        valid = " AND ".join(f"k{i} IS NOT NULL" for i in range(len(keys)))
        places = ", ".join(f"k{i}" for i in range(len(keys)))
        contributions = f"(SELECT {', '.join(inner)} FROM source) WHERE {valid} AND {part}"
        sql = [f"{each.result(f'a{i}', rows)} AS m{i}" for i, each in enumerate(self.numbers)]
        of_rows = [sql[i] for i, each in enumerate(self.numbers) if not each.counts_values]
        counted = [i for i, each in enumerate(self.numbers) if each.counts_values]
        # Read rows once; store them, with spilling, if values are counted.
        start = f"WITH brought AS MATERIALIZED (SELECT * FROM {contributions}) " if counted else ""
        whole = "brought" if counted else contributions
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
        for name, column in self.derived:
            query = column.with_column(f"({query})", name)
        for condition in self.filters:
            query = condition.where(f"({query})")
        return f"SELECT * FROM ({query})"

    @property
    def used(self) -> list[str]:
        """Columns of the records that the row is computed from, in addition to the user's."""
        return [*self.by, *(column for each in self.numbers for column in each.inputs)]


def _with_expressions(rows: TableRows, number: Aggregate) -> tuple[TableRows, Aggregate]:
    """Add a column per expression in a number; return the rows and the new number.

    Engines do not distinguish column names by case.
    """
    names: dict[str, str] = {}
    for text in number.inputs:
        name = text
        if text not in rows.schema and is_expression(text):
            while rows.has(name):
                name += " "
            rows = rows.derive({name: text})
        names[text] = name
    of, where, order = (
        None if text is None else names[text] for text in (number.of, number.where, number.order)
    )
    return rows, replace(number, of=of, where=where, order=order)


def per_user_source(table: TableRows) -> PerUser | None:
    """Return the source if rows are those of a per-user table; None otherwise."""
    return table.source if isinstance(table.source, PerUser) else None


def whole_user_source(table: TableRows) -> PerUser | UserJoin | None:
    """Return the source of rows that depend on whole users; None if rows are records."""
    innermost = wrapped_sources(table.source)[-1]
    return innermost if isinstance(innermost, PerUser | UserJoin) else None


def first_rows_source(table: TableRows) -> DistinctRows | None:
    """Return the source of first rows for values of columns; None without one."""
    wrapped = wrapped_sources(table.source)
    return next((each for each in wrapped if isinstance(each, DistinctRows) and each.keys), None)


def depends_on_users(table: TableRows) -> bool:
    """Return True if a row depends on more than one row of its user."""
    return whole_user_source(table) is not None or first_rows_source(table) is not None


def derivation_facts(table: TableRows) -> list[Fact]:
    """List public facts about the derivation of a table's rows from those of the source."""
    people, whole = per_user_source(table), whole_user_source(table)
    if people is not None:
        return [people.fact, *derivation_facts(people.rows)]
    below = [] if whole is None else [whole.rows]
    if isinstance(whole, UserJoin):
        below.append(whole.others)
    known = {name for rows in below for name in rows.derived}
    derived = [
        Fact("column", (name, column.text))
        for name, column in table.derived.items()
        if name != column.text and name not in known
    ]
    filters = [Fact("rows-where", (str(condition),)) for condition in table.filters]
    joined = [] if whole is None else [whole.fact]
    wrapped = wrapped_sources(table.source)
    distinct = [each.fact for each in wrapped if isinstance(each, DistinctRows)]
    return [
        *derived,
        *filters,
        *distinct[:1],
        *joined,
        *(fact for rows in below for fact in derivation_facts(rows)),
    ]


def require_whole_users(table: TableRows, unit: Unit) -> None:
    """Raise if each row depends on all of a user's data, but not all is protected.

    Elements are allowed if each row is computed within one cell: see :func:`rows_in_cells`.
    """
    if not depends_on_users(table) or unit == User():
        return
    by = unit.by if isinstance(unit, Element) else None
    if isinstance(by, str) and rows_in_cells(table, by) is not None:
        return
    first = first_rows_source(table)
    if first is not None and whole_user_source(table) is None:
        columns = list(first.stated)
        element = f"; add {by!r} to the columns of distinct" if isinstance(by, str) else ""
        raise ParameterError(
            f"unit must be User(), or Element of one of {columns}, if distinct uses the first of a "
            f"user's rows with the same {columns}, not {_validate.describe(unit)}{element}; or "
            "call distinct without columns, which drops rows equal in all columns.",
            name="unit",
        )
    raise ParameterError(
        "unit must be User() if each row is derived from all of a person's data, not "
        f"{_validate.describe(unit)}; to protect elements, derive each row from one of them: "
        "per_user(by='day', …) with Element('day').",
        name="unit",
    )


def rows_in_cells(table: TableRows, column: str) -> TableRows | None:
    """Return the records of rows computed within one cell of a column; None otherwise.

    These are the rows of a per-user table with ``column`` as a grouping column, and the first rows
    for values of columns that include it.
    """
    people, first = per_user_source(table), first_rows_source(table)
    if first is not None:
        inside = column in first.keys and whole_user_source(table) is None
        return table if inside else None
    if people is None or column not in people.by:
        return None
    return rows_in_cells(people.rows, column) if depends_on_users(people.rows) else people.rows
