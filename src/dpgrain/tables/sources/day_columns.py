"""A source with a day column: the days of a timestamp column in a time zone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import duckdb

from dpgrain.scope.zones import RULE_BEGINS, RULE_LASTS, offsets
from dpgrain.tables.engines.sql import quoted
from dpgrain.tables.sources.source import RowSource, SourceWrapper

# Clamp timestamps to this range, in microseconds since 1970, before adding an offset: three days
# inside the range of a TIMESTAMP.
_LAST = 2**63 - 3 * 24 * 60 * 60 * 10**6
_FIRST = -9_223_372_022_400_000_000 + 3 * 24 * 60 * 60 * 10**6


@dataclass(frozen=True)
class DayColumnSource(SourceWrapper):
    """The rows of a source with the day of a timestamp as an additional column."""

    row_wise = True

    source: RowSource
    column: str
    of: str
    zone: str = ""  # empty for timestamps without a zone

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        return {**self.source.columns(), self.column: "DATE"}

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Return SQL of the rows with their days; missing and infinite ones stay so."""
        if used is not None and self.column not in used:
            return self.source.attach(connection, used)
        needed = None if used is None else {*used, self.of} - {self.column}
        time, counted = quoted(self.of), "ticks"
        taken = {name.casefold() for name in self.columns()}
        while taken & {counted, f"known {counted}"}:
            counted += "'"
        column, known = quoted(counted), quoted(f"known {counted}")
        local = f"make_timestamp({local_time(column, known, self.zone)})::DATE"
        day = f"CASE WHEN isfinite({time}) THEN {local} ELSE {time}::DATE END"
        ticks = f"CASE WHEN isfinite({time}) THEN epoch_us({time}) END"
        rows = f"(SELECT *, {ticks} AS {column} FROM {self.source.attach(connection, needed)})"
        return (
            f"(SELECT * EXCLUDE ({column}, {known}), {day} AS {quoted(self.column)} FROM "
            f"(SELECT *, {in_known_years(column)} AS {known} FROM {rows}))"
        )


def in_known_years(ticks: str) -> str:
    """Return the SQL of a timestamp with the same offset, in the listed years."""
    again = f"{RULE_BEGINS} + ({ticks} - {RULE_BEGINS}) % {RULE_LASTS}"
    return f"CASE WHEN {ticks} < {RULE_BEGINS} THEN {ticks} ELSE {again} END"


def local_time(ticks: str, known: str, zone: str) -> str:
    """Return the SQL of local time in a zone, in microseconds since 1970.

    The offset changes become a binary tree of comparisons, because an engine's own calendar could
    be of another version than this process's.
    """
    ahead = "0" if zone in ("", "UTC") else _tree(known, offsets(zone))
    return f"greatest(least({ticks}, {_LAST}), {_FIRST}) + {ahead}"


def _tree(ticks: str, known: Sequence[tuple[int, int]]) -> str:
    """Return the SQL of the last offset that begins before a timestamp."""
    if len(known) == 1:
        return str(known[0][1])
    half = len(known) // 2
    below, above = _tree(ticks, known[:half]), _tree(ticks, known[half:])
    return f"CASE WHEN {ticks} < {known[half][0]} THEN {below} ELSE {above} END"
