"""Sources with columns that expressions make of others, and of the rows alone for which one is true."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from dpgrain.errors import SchemaError
from dpgrain.tables.engines.functions import Reading, clock
from dpgrain.tables.engines.sql import quoted
from dpgrain.tables.expression import (
    CallNode,
    ColumnNode,
    ConstantNode,
    Node,
    columns_of,
    parsed,
    stated,
)
from dpgrain.tables.sources.column_types import BOOLEAN, TIMES
from dpgrain.tables.sources.day_columns import in_known_years, local_time
from dpgrain.tables.sources.source import RowSource, SourceWrapper
from dpgrain.tables.sources.typed_columns import TypedSource

# Functions that are periods of a calendar.
_PERIODS = ("day", "week", "month", "quarter", "year")


@dataclass(frozen=True)
class Derived:
    """An expression of a table's columns: a public, total function of one row.

    Args:
        text: the expression, written in one way.
        kind: the type of its values.
        sql: its SQL, of the columns and of the times as microseconds.
        node: the expression, read.
        clocks: the columns of times that it is made of, each with a zone whose clocks are read.
        values: all values that it can have, in their order, where these are public and few.

    >>> Derived.of_text("amount*2 > 3", {"amount": "DOUBLE"}).text
    '(amount * 2) > 3'
    """

    text: str
    kind: str
    sql: str
    node: Node
    clocks: tuple[tuple[str, str], ...] = ()
    values: tuple[Any, ...] | None = None

    @staticmethod
    def of_text(text: str, kinds: Mapping[str, str]) -> Derived:
        """Read an expression.

        Args:
            text: the expression.
            kinds: column → type, of the columns that it may be made of.

        Raises:
            ParameterError: if it cannot be read, or has no meaning.
            SchemaError: if a column is missing, or has a type that does not suit.
        """
        node = parsed(text)
        return Derived.of_node(node, str(node), kinds)

    @staticmethod
    def of_node(node: Node, text: str, kinds: Mapping[str, str]) -> Derived:
        """Read an expression whose parts are known.

        Args:
            node: the expression.
            text: the text that it is shown as.
            kinds: column → type, of the columns that it may be made of.

        Raises:
            ParameterError: if it has no meaning.
            SchemaError: if a column is missing, or has a type that does not suit.
        """
        reading = Reading(kinds, text)
        made = reading.of(node)
        if made.kind in TIMES:
            raise SchemaError(
                f"the expression {stated(text)} is a timestamp; use day({text[:60]}) or "
                f"month({text[:60]})."
            )
        # What no function should end, a value that nobody thought of, is missing, too.
        sql = f"TRY({made.used})"
        return Derived(text, made.kind, sql, node, tuple(reading.clocks), made.values)

    @property
    def of(self) -> tuple[str, ...]:
        """The columns that it is made of."""
        return tuple(dict.fromkeys(columns_of(self.node)))

    @property
    def period(self) -> tuple[str, str] | None:
        """The period of a column's times that it is, and the zone; None where it is none."""
        return period_of(self.node)

    def added(self, rows: str, column: str) -> str:
        """Return the SQL of rows with the values as a column.

        Args:
            rows: the SQL of the rows.
            column: the name of the column.
        """
        return f"(SELECT {self._own}, {self.sql} AS {quoted(column)} FROM {self._timed(rows)})"

    def kept(self, rows: str) -> str:
        """Return the SQL of the rows for which the expression is true.

        Args:
            rows: the SQL of the rows.
        """
        return f"(SELECT {self._own} FROM {self._timed(rows)} WHERE {self.sql})"

    @property
    def _own(self) -> str:
        """The SQL of the rows' own columns."""
        shown = ", ".join(quoted(clock(*each)) for each in self._shown)
        return f"* EXCLUDE ({shown})" if shown else "*"

    def _timed(self, rows: str) -> str:
        """Return the SQL of rows with their times also as microseconds, and as clocks show these."""
        for time, zone in self._shown:
            name, ticks = quoted(clock(time, zone)), quoted(clock(time, ""))
            if zone:
                known = quoted(f"\x1f{clock(time, zone)}")
                local = f"CASE WHEN {ticks} IS NOT NULL THEN {local_time(ticks, known, zone)} END"
                rows = f"(SELECT *, {in_known_years(ticks)} AS {known} FROM {rows})"
                rows = f"(SELECT * EXCLUDE ({known}), {local} AS {name} FROM {rows})"
            else:
                local = f"CASE WHEN isfinite({quoted(time)}) THEN epoch_us({quoted(time)}) END"
                rows = f"(SELECT *, {local} AS {name} FROM {rows})"
        return rows

    @property
    def _shown(self) -> list[tuple[str, str]]:
        """The times as they are, and then as clocks of zones show them."""
        plain = dict.fromkeys((time, "") for time, _ in self.clocks)
        return [*plain, *(each for each in self.clocks if each[1])]


def period_of(node: Node) -> tuple[str, str] | None:
    """Return the period, and the zone, of an expression that is one of a column's times; else None.

    Args:
        node: the expression.

    >>> period_of(parsed("month(day(at, 'UTC'))")), period_of(parsed("month(at)"))
    (('month', 'UTC'), ('month', ''))
    """
    if not isinstance(node, CallNode) or node.function not in _PERIODS:
        return None
    of, *zone = node.parts
    if isinstance(of, CallNode) and of.function == "day" and not zone:
        of, *zone = of.parts
    if not isinstance(of, ColumnNode):
        return None
    return node.function, str(zone[0].value) if zone and isinstance(zone[0], ConstantNode) else ""


def condition_of(text: str, kinds: Mapping[str, str]) -> Derived:
    """Read an expression that is true or false.

    Args:
        text: the expression.
        kinds: column → type, of the columns that it may be made of.

    Raises:
        ParameterError: if it cannot be read, or has no meaning.
        SchemaError: if a column is missing, or it is not true or false.
    """
    made = Derived.of_text(text, kinds)
    if made.kind != BOOLEAN:
        raise SchemaError(
            f"the condition {stated(text)} must be true or false, such as amount > 0 or kind = 'er'."
        )
    return made


@dataclass(frozen=True, eq=False)
class DerivedSource(SourceWrapper):
    """The rows of a source with one more column, made of their others.

    Args:
        source: the source of all rows.
        column: the name of the new column.
        derived: what it holds.
    """

    source: RowSource
    column: str
    derived: Derived

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        return {**self.source.columns(), self.column: self.derived.kind}

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Return the rows with the column, where it is used."""
        if used is not None and self.column not in used:
            return self.source.attach(connection, used)
        rows = self.source.attach(connection, None if used is None else self.needed(used))
        return self.derived.added(rows, self.column)

    def needed(self, used: Collection[str]) -> set[str]:
        """Return the columns of the source that are used, also for the new one.

        Args:
            used: the columns that are used.
        """
        return {*used, *self.derived.of} - {self.column}


@dataclass(frozen=True, eq=False)
class FilteredSource(SourceWrapper):
    """The rows of a source for which a condition is true.

    Args:
        source: the source of all rows.
        condition: the condition.
    """

    source: RowSource
    condition: Derived

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Return the rows that are kept."""
        rows = self.source.attach(connection, None if used is None else self.needed(used))
        return self.condition.kept(rows)

    def needed(self, used: Collection[str]) -> set[str]:
        """Return the columns of the source that are used, also for the condition.

        Args:
            used: the columns that are used.
        """
        return {*used, *self.condition.of}


def as_read(source: RowSource) -> RowSource:
    """Return the source of all rows as they are read, without what is made of them."""
    below: Any = source
    while isinstance(below, SourceWrapper) and not isinstance(below, TypedSource):
        below = below.source
    read: RowSource = below
    return read
