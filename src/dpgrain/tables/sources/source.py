"""The protocol of sources, the base of sources that wrap another, and the rows of a region."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Protocol

import duckdb

from dpgrain.scope.regions import DAY, LabelSet, Region, Side, Span
from dpgrain.tables.engines.sql import label_sql, literal, quoted
from dpgrain.tables.sources.column_types import DAY as DATE
from dpgrain.tables.sources.column_types import INTEGERS, LONGEST_LABEL, MOMENT, TEXT, TIMES

#: Column with the number of records that a row represents, in sources that group duplicates.
RECORDS = "records of the row"


class RowSource(Protocol):
    """Rows that DuckDB can read repeatedly; nothing is loaded before a release needs it."""

    @property
    def name(self) -> str:
        """Name in error messages."""

    @property
    def title(self) -> str:
        """Name in reports, without the folder, which could disclose something."""

    def columns(self) -> dict[str, str]:
        """Return column name → type to read it as, from the schema only."""

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Return SQL to follow FROM in one query, with the columns used; None for all."""


class SourceWrapper:
    """Base of sources that wrap another source, as frozen dataclasses."""

    source: RowSource
    #: Whether each row comes from one row of the source and keeps its values.
    row_wise: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Name in error messages."""
        return self.source.name

    @property
    def title(self) -> str:
        """Name in reports."""
        return self.source.title

    @property
    def paths(self) -> tuple[str, ...]:
        """Files of the source, if any."""
        return getattr(self.source, "paths", ())

    @property
    def counts_duplicates(self) -> bool:
        """Whether the source can group equal rows and add the column :data:`RECORDS`."""
        return bool(getattr(self.source, "counts_duplicates", False))

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        return self.source.columns()

    def select(self, region: Region) -> tuple[RowSource, Region]:
        """As :func:`select`, if a row can be selected before it is changed."""
        whole: Any = self
        if not self.row_wise:
            return whole, region
        source, rest = select(self.source, region)
        return replace(whole, source=source), rest


def select(source: RowSource, region: Region) -> tuple[RowSource, Region]:
    """Let a source select a region's rows; return them and the rest of the region."""
    if hasattr(source, "select"):
        selected: tuple[RowSource, Region] = source.select(region)
        return selected
    return source, region


def wrapped_sources(source: RowSource) -> list[RowSource]:
    """Return a source and each source that it wraps, the innermost last."""
    sources = [source]
    while isinstance(sources[-1], SourceWrapper):
        sources.append(sources[-1].source)
    return sources


def nested_sources(source: Any) -> Iterator[Any]:
    """Yield a source and all sources that it is derived from."""
    yield source
    tables = (getattr(source, name, None) for name in ("rows", "others"))
    for below in (
        getattr(source, "source", None),
        *(getattr(rows, "source", None) for rows in tables),
    ):
        if below is not None:
            yield from nested_sources(below)


def transaction(
    source: RowSource, connection: duckdb.DuckDBPyConnection
) -> AbstractContextManager[None]:
    """Return the transaction of the innermost source, or a null context if it has none."""
    innermost: Any = source
    while not hasattr(innermost, "begin"):
        innermost = getattr(innermost, "source", None) or getattr(
            getattr(innermost, "rows", None), "source", None
        )
        if innermost is None:
            return nullcontext()
    begin: AbstractContextManager[None] = innermost.begin(connection)
    return begin


@dataclass(frozen=True, eq=False)
class RegionSource(SourceWrapper):
    """The rows of a source in a region."""

    source: RowSource
    region: Region
    kinds: Mapping[str, str]
    read: Mapping[str, str]  # text column → SQL of another type to compare it as

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Return SQL of the rows in the region."""
        inside = " AND ".join(self._inside(side) for side in self.region.sides)
        needed = None if used is None else {*used, *(side.column for side in self.region.sides)}
        return f"(SELECT * FROM {self.source.attach(connection, needed)} WHERE {inside})"

    def selected(self) -> RowSource:
        """Return the rows in the region, in any order, selected where they are if possible."""
        if self.read:
            return self
        source, rest = select(self.source, self.region)
        return source if rest.everything else replace(self, source=source, region=rest)

    def _inside(self, side: Side) -> str:
        """Return the SQL condition that a value is in its side of the region."""
        kind = self.kinds[side.column]
        column = self.read.get(side.column, quoted(side.column))
        inside = []
        if isinstance(side.values, Span):
            inside.append(_within(side.values, column, kind))
        elif side.values:
            inside.append(_among(side.values, column, kind))
        if side.missing:
            inside.append(f"{label_sql(column) if kind == TEXT else column} IS NULL")
            inside += [f"NOT isfinite({column})"] if kind in (DATE, *TIMES) else []
        return f"({' OR '.join(inside)})"


def _among(values: LabelSet, column: str, kind: str) -> str:
    """Return the SQL condition that a key is one of these labels, or none of them.

    Text columns are compared directly, not by an expression, so that DuckDB can skip row groups;
    too long labels are dropped from the list.
    """
    labels = [each for each in values.labels if isinstance(each, int) or _is_label(each)]
    listed = ", ".join(str(each) if isinstance(each, int) else literal(each) for each in labels)
    if values.but:
        key = label_sql(column) if kind == TEXT else _key(column, kind)
        return f"{key} NOT IN ({listed})" if listed else f"{key} IS NOT NULL"
    return f"{_key(column, kind)} IN ({listed})" if listed else "false"


def _is_label(written: str) -> bool:
    return len(written.encode("utf-8", "surrogatepass")) <= LONGEST_LABEL


def _key(column: str, kind: str) -> str:
    return column if kind in INTEGERS or kind == TEXT else f"CAST({column} AS VARCHAR)"


def _within(span: Span, column: str, kind: str) -> str:
    """Return the SQL condition that a number or a finite timestamp is in an interval."""
    timed = span.axis != "whole"
    to_sql = partial(_timestamp, kind=kind) if timed else str
    low, high = (None if end is None else to_sql(end) for end in (span.low, span.high))
    inside = [] if low is None else [f"{column} >= {low}"]
    inside += [] if high is None else [f"{column} < {high}"]
    if timed and (low is None or high is None):
        inside.append(f"isfinite({column})")
    return f"({' AND '.join(inside) or f'{column} IS NOT NULL'})"


def _timestamp(end: int, kind: str) -> str:
    """Return the SQL of a timestamp as a constant of the column's type."""
    if kind == DATE:
        return f"(DATE '1970-01-01' + {-(-end // DAY)})"
    function = "make_timestamptz" if kind == MOMENT else "make_timestamp"
    return f"{function}({end}::BIGINT)"


def all_rows(source: RowSource) -> RowSource:
    """Return the source without its region."""
    return source.source if isinstance(source, RegionSource) else source
