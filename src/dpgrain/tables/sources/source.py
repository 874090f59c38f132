"""The protocol of sources, and the base class of sources that wrap another."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import duckdb

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
    """Base of sources that wrap another source."""

    source: RowSource

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
