"""DuckDB relations as sources."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb

from dpgrain.errors import SchemaError
from dpgrain.tables.engines.sql import literal, quoted
from dpgrain.tables.sources.column_sql import (
    read_expressions,
    select_from,
    select_list,
    usable_columns,
)
from dpgrain.tables.sources.column_types import (
    export_expression,
    read_as,
)
from dpgrain.tables.sources.duckdb_connection import register_rows
from dpgrain.tables.sources.read_errors import translate_errors

#: DuckDB's type of a relation that is a named table, not a view or a query.
TABLE_RELATION = "TABLE_RELATION"

# Rows per batch: DuckDB counts bytes of text in 31 bits, and this many longest labels take 128 MiB.
_STREAMED_ROWS = 1 << 11


@dataclass(frozen=True, eq=False)
class RelationSource:
    """A DuckDB relation on the caller's connection, run again by each query.

    The name of a table must refer to the same table with the same columns at each read: a view
    would be a query, and a value of another type would end the release.
    """

    relation: duckdb.DuckDBPyRelation
    name: str = "The relation"
    title: str = "a DuckDB relation"

    def columns(self) -> dict[str, str]:
        """Return column name → type at the first call."""
        return dict(self._opened[0])

    @cached_property
    def _opened(self) -> tuple[dict[str, str], Any]:
        return self._current_state()

    def _current_state(self) -> tuple[dict[str, str], Any]:
        """Return column name → type, and for a table everything that its name can refer to."""
        with translate_errors(self.name):
            columns = {column: read_as(kind) for column, kind in self._kinds.items()}
            if self.relation.type != TABLE_RELATION:
                return columns, None
            named = self.relation.filter("false").aggregate(_name_targets(self.relation.alias))
            return columns, named.fetchall()

    @property
    def _kinds(self) -> dict[str, str]:
        return dict(zip(self.relation.columns, map(str, self.relation.types), strict=True))

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Register a new stream of the rows, and return SQL of its columns."""
        opened = self._opened
        if self._current_state() != opened:
            raise SchemaError(
                f"{self.name} has different columns than when it was opened, or its name "
                "refers to another table; call dg.read again."
            )
        kinds = usable_columns(self._kinds, used)
        exported = {
            column: export_expression(quoted(column), kind) for column, kind in kinds.items()
        }
        with translate_errors(self.name):
            stream = self.relation.project(select_list(exported)).to_arrow_reader(_STREAMED_ROWS)
            return select_from(register_rows(connection, stream), read_expressions(kinds))


def _name_targets(name: str) -> str:
    """Return the SQL of an aggregate: all tables and views with a name, and the search path."""
    result = (
        f"SELECT list((database_name, schema_name, {kind}_oid) ORDER BY {kind}_oid) "
        f"FROM duckdb_{kind}s() WHERE lower({kind}_name) = lower({literal(name)})"
        for kind in ("table", "view")
    )
    listed = ", ".join(f"({query}) AS found{index}" for index, query in enumerate(result))
    return f"count(*) AS rows_, {listed}, current_setting('search_path') AS path"


def stores_its_values(table: duckdb.DuckDBPyRelation) -> bool:
    """Return whether all tables with this name store every value in a DuckDB file.

    A generated column can number the rows (``nextval``), and the values of another system can
    differ from the type of their column.
    """
    stored = (
        "SELECT count(*) FROM duckdb_tables() AS tables_ JOIN duckdb_databases() AS files "
        f"USING (database_oid) WHERE lower(table_name) = lower({literal(table.alias)}) "
        "AND (files.type <> 'duckdb' OR contains(tables_.sql, 'GENERATED ALWAYS AS'))"
    )
    with translate_errors("The relation"):
        return table.filter("false").aggregate(f"({stored}) + 0 * count(*)").fetchall() == [(0,)]
