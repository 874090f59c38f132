"""Sources with columns computed by expressions, and with rows selected by conditions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from dpgrain.errors import ParameterError, SchemaError
from dpgrain.tables.engines.functions import Translator, clock_column
from dpgrain.tables.engines.sql import quoted
from dpgrain.tables.expression import (
    CallNode,
    ColumnNode,
    ConstantNode,
    Node,
    backquoted_hint,
    columns_of,
    parsed,
    stated,
)
from dpgrain.tables.sources.column_types import BOOLEAN, TIMES
from dpgrain.tables.sources.day_columns import in_known_years, local_time
from dpgrain.tables.sources.source import RowSource, SourceWrapper, wrapped_sources
from dpgrain.tables.sources.typed_columns import TypedSource

# Functions that return calendar periods.
_PERIODS = ("day", "week", "month", "quarter", "year")


@dataclass(frozen=True)
class CompiledExpression:
    """Expression of a table's columns: a public, total function of one row."""

    text: str
    kind: str
    sql: str
    node: Node
    clocks: tuple[tuple[str, str], ...] = ()  # (time column, zone) pairs that it reads
    values: tuple[Any, ...] | None = None  # all possible values in order, if public and few

    @staticmethod
    def parse(text: str, kinds: Mapping[str, str]) -> CompiledExpression:
        """Parse and compile an expression of columns, passed as column → type."""
        try:
            node = parsed(text)
        except ParameterError as error:
            if hint := backquoted_hint(text, kinds):
                raise ParameterError(f"{str(error).removesuffix('.')}; {hint}.") from None
            raise
        return CompiledExpression.compile(node, str(node), kinds)

    @staticmethod
    def compile(node: Node, text: str, kinds: Mapping[str, str]) -> CompiledExpression:
        """Compile a parsed expression; ``text`` is its text in messages."""
        translator = Translator(kinds, text)
        typed = translator.translate(node)
        if typed.kind in TIMES:
            raise SchemaError(
                f"the expression {stated(text)} is a timestamp; use day({text[:60]}) or "
                f"month({text[:60]})."
            )
        # Errors from values that no function anticipates become nulls.
        sql = f"TRY({typed.finite_sql})"
        return CompiledExpression(
            text, typed.kind, sql, node, tuple(translator.clocks), typed.values
        )

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that it reads."""
        return tuple(dict.fromkeys(columns_of(self.node)))

    @property
    def period(self) -> tuple[str, str] | None:
        """Calendar period and zone, if it is a period of a time column; None otherwise."""
        return calendar_period(self.node)

    def with_column(self, rows: str, column: str) -> str:
        """Return the SQL of rows with the values as an additional column."""
        added = f"{self.sql} AS {quoted(column)}"
        return f"(SELECT {self._table_columns}, {added} FROM {self._timed(rows)})"

    def where(self, rows: str) -> str:
        """Return the SQL of the rows that satisfy the expression."""
        return f"(SELECT {self._table_columns} FROM {self._timed(rows)} WHERE {self.sql})"

    @property
    def _table_columns(self) -> str:
        """SQL of the rows' own columns."""
        columns = ", ".join(quoted(clock_column(*each)) for each in self._times)
        return f"* EXCLUDE ({columns})" if columns else "*"

    def _timed(self, rows: str) -> str:
        """Add times in microseconds, and in local time, to the SQL of rows."""
        for time, zone in self._times:
            name, ticks = quoted(clock_column(time, zone)), quoted(clock_column(time, ""))
            if zone:
                known = quoted(f"\x1f{clock_column(time, zone)}")
                local = f"CASE WHEN {ticks} IS NOT NULL THEN {local_time(ticks, known, zone)} END"
                rows = f"(SELECT *, {in_known_years(ticks)} AS {known} FROM {rows})"
                rows = f"(SELECT * EXCLUDE ({known}), {local} AS {name} FROM {rows})"
            else:
                local = f"CASE WHEN isfinite({quoted(time)}) THEN epoch_us({quoted(time)}) END"
                rows = f"(SELECT *, {local} AS {name} FROM {rows})"
        return rows

    @property
    def _times(self) -> list[tuple[str, str]]:
        """Times without a zone, followed by times in the local time of zones."""
        plain = dict.fromkeys((time, "") for time, _ in self.clocks)
        return [*plain, *(each for each in self.clocks if each[1])]


def calendar_period(node: Node) -> tuple[str, str] | None:
    """Return the period and zone of an expression for a period of a time, or None."""
    if not isinstance(node, CallNode) or node.function not in _PERIODS:
        return None
    of, *zone = node.parts
    if isinstance(of, CallNode) and of.function == "day" and not zone:
        of, *zone = of.parts
    if not isinstance(of, ColumnNode):
        return None
    return node.function, str(zone[0].value) if zone and isinstance(zone[0], ConstantNode) else ""


def compile_condition(text: str, kinds: Mapping[str, str]) -> CompiledExpression:
    """Compile an expression that is true or false."""
    condition = CompiledExpression.parse(text, kinds)
    if condition.kind != BOOLEAN:
        raise SchemaError(
            f"the condition {stated(text)} must be true or false, such as amount > 0 or kind = 'er'."
        )
    if not any(columns_of(parsed(text))):
        raise ParameterError(
            f"the condition {stated(text)} must use a column; write column names without quotes, "
            "or in backquotes if they contain spaces."
        )
    return condition


@dataclass(frozen=True)
class DerivedSource(SourceWrapper):
    """Rows of a source with an additional column, computed from the others."""

    row_wise = True

    source: RowSource
    column: str
    derived: CompiledExpression

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        return {**self.source.columns(), self.column: self.derived.kind}

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Return the rows, with the column if it is used."""
        if used is not None and self.column not in used:
            return self.source.attach(connection, used)
        rows = self.source.attach(connection, None if used is None else self.needed(used))
        return self.derived.with_column(rows, self.column)

    def needed(self, used: Collection[str]) -> set[str]:
        """Return the required source columns, also for the expression."""
        return {*used, *self.derived.inputs} - {self.column}


@dataclass(frozen=True)
class FilteredSource(SourceWrapper):
    """Rows of a source that satisfy a condition."""

    row_wise = True

    source: RowSource
    condition: CompiledExpression

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Return the selected rows."""
        rows = self.source.attach(connection, None if used is None else self.needed(used))
        return self.condition.where(rows)

    def needed(self, used: Collection[str]) -> set[str]:
        """Return the required source columns, also for the condition."""
        return {*used, *self.condition.inputs}


def base_source(source: RowSource) -> RowSource:
    """Return the source of all rows, without derived columns, filters and regions."""
    wrapped = wrapped_sources(source)
    return next((each for each in wrapped if isinstance(each, TypedSource)), wrapped[-1])
