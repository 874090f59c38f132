"""The protocol of sources, and the base class of sources that wrap another."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar, Protocol

import duckdb

from dpgrain.scope.regions import Region

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
    """Let a source select the rows of a region; return the rows and the rest of the region."""
    if hasattr(source, "select"):
        selected: tuple[RowSource, Region] = source.select(region)
        return selected
    return source, region


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
