"""A source of the rows of a region alone: what lies outside reaches no query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import duckdb

from dpgrain.regions import DAY, Among, Region, Side, Span
from dpgrain.tables.engines.sources import OverSource, Source
from dpgrain.tables.engines.sql import INTEGERS, quoted, text

# DuckDB compares these types with numbers and texts as they are, and reads no rows that cannot match.
_PLAIN = {*INTEGERS, "VARCHAR"}
_COARSE = ("TIMESTAMP_S", "TIMESTAMP_MS")


@dataclass(frozen=True, eq=False)
class ScopedSource(OverSource):
    """The rows of a source that lie in a region.

    Args:
        source: the source of all rows.
        region: the region, of columns of the source.
        kinds: column → type, as the region reads the columns.
        read: column → SQL, for columns of text that the region reads as another type.
    """

    source: Source
    region: Region
    kinds: Mapping[str, str]
    read: Mapping[str, str]

    def attach(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Return the rows inside the region."""
        inside = " AND ".join(self._inside(side) for side in self.region.sides)
        return f"(SELECT * FROM {self.source.attach(connection)} WHERE {inside})"

    def _inside(self, side: Side) -> str:
        """Return the SQL condition that the value of a column lies in its side."""
        kind = self.kinds[side.column]
        column = self.read.get(side.column, quoted(side.column))
        inside = []
        if isinstance(side.values, Span):
            inside.append(_within(side.values, column, kind))
        elif side.values:
            inside.append(_among(side.values, column, kind))
        if side.missing:
            inside.append(f"{column} IS NULL")
            inside += [f"NOT isfinite({column})"] if _is_time(kind) else []
        return f"({' OR '.join(inside)})"


def _is_time(kind: str) -> bool:
    return kind == "DATE" or kind.startswith("TIMESTAMP")


def _among(values: Among, column: str, kind: str) -> str:
    """Return the SQL condition that a key is one of some labels, or none of them."""
    key = column if kind in _PLAIN else f"CAST({column} AS VARCHAR)"
    listed = ", ".join(
        str(label) if isinstance(label, int) else text(label) for label in values.labels
    )
    if values.but:
        return f"{key} NOT IN ({listed})" if listed else f"{key} IS NOT NULL"
    return f"{key} IN ({listed})"


def _within(span: Span, column: str, kind: str) -> str:
    """Return the SQL condition that a number or a time lies in an interval; infinite times do not."""
    timed = span.axis != "whole"
    if kind == "TIMESTAMP_NS":
        # A cast to microseconds would round the last of a day up to the next one.
        low, high = (None if end is None else str(1000 * end) for end in (span.low, span.high))
        value = f"epoch_ns({column})"
    else:
        made = partial(_moment, kind=kind) if timed else str
        low, high = (None if end is None else made(end) for end in (span.low, span.high))
        # Coarser types hold times that this one does not reach.
        value = f"TRY_CAST({column} AS TIMESTAMP)" if kind in _COARSE else column
    inside = [] if low is None else [f"{value} >= {low}"]
    inside += [] if high is None else [f"{value} < {high}"]
    if timed and (low is None or high is None):
        inside.append(f"isfinite({column})")
    return f"({' AND '.join(inside) or f'{column} IS NOT NULL'})"


def _moment(end: int, kind: str) -> str:
    """Return the SQL of a time, as a constant of the column's type."""
    if kind == "DATE":
        return f"(DATE '1970-01-01' + {-(-end // DAY)})"
    made = "make_timestamptz" if kind == "TIMESTAMP WITH TIME ZONE" else "make_timestamp"
    return f"{made}({end}::BIGINT)"


def all_rows(source: Source) -> Source:
    """Return the source of all rows, whatever region of them is read."""
    return source.source if isinstance(source, ScopedSource) else source
