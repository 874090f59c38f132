"""The protocol of sources, and the base of those that wrap another one."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import duckdb

#: Column of the number of records that a row stands for, in sources that count where rows lie.
RECORDS = "records of the row"


class RowSource(Protocol):
    """The place of the rows."""

    @property
    def name(self) -> str:
        """The name that messages and reports give the source."""

    @property
    def title(self) -> str:
        """The name in reports, without the folder, which is nobody's business."""

    def columns(self) -> dict[str, str]:
        """Return column name → the type that it is read as, from the schema alone."""

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Return SQL to put after FROM, good for one query.

        Args:
            connection: the connection of the query.
            used: the columns that the query asks for, and the only ones that are read; None for all.
        """


class SourceWrapper:
    """Base of sources that wrap another source."""

    source: RowSource

    @property
    def name(self) -> str:
        """The name that messages and reports give the source."""
        return self.source.name

    @property
    def title(self) -> str:
        """The name in reports."""
        return self.source.title

    @property
    def paths(self) -> tuple[str, ...]:
        """The files of the source, if it has any."""
        return getattr(self.source, "paths", ())

    @property
    def tells_records(self) -> bool:
        """Whether the source can tell how many records are alike, where :data:`RECORDS` is asked."""
        return bool(getattr(self.source, "tells_records", False))

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        return self.source.columns()


def transaction(
    source: RowSource, connection: duckdb.DuckDBPyConnection
) -> AbstractContextManager[None]:
    """Return what has to be entered before a source is read: the transaction of a database.

    Args:
        source: the source, or one over it.
        connection: the connection that reads it.
    """
    bottom: Any = source
    while not hasattr(bottom, "begin"):
        bottom = getattr(bottom, "source", None) or getattr(
            getattr(bottom, "rows", None), "source", None
        )
        if bottom is None:
            return nullcontext()
    begin: AbstractContextManager[None] = bottom.begin(connection)
    return begin
