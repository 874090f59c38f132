"""DuckDB relations as sources."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb

from dpgrain.errors import SchemaError
from dpgrain.tables.engines.sql import quoted, text
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

#: Type of a relation that is a table by its name; a view, a query or a narrowed table has another
#: one.
TABLE_RELATION = "TABLE_RELATION"

# Rows of a stream that are handed over at a time: DuckDB counts the bytes of texts in 31 bits, and as
# many labels of the longest length take 128 MiB.
_STREAMED_ROWS = 1 << 11


@dataclass(frozen=True, eq=False)
class RelationSource:
    """A DuckDB relation on a connection of the caller's; each query runs it again.

    A table is known by its name, which must stand for the same table, of the same columns, whenever it
    is read: a view in its place would be a query, and a value of another type would end the release.
    """

    relation: duckdb.DuckDBPyRelation
    name: str = "The relation"
    title: str = "a DuckDB relation"

    def columns(self) -> dict[str, str]:
        """Return column name → type, as the relation had them when it was first looked at."""
        return dict(self._opened[0])

    @cached_property
    def _opened(self) -> tuple[dict[str, str], Any]:
        return self._as_it_is()

    def _as_it_is(self) -> tuple[dict[str, str], Any]:
        """Return column name → type, and of a table all that its name may stand for."""
        with translate_errors(self.name):
            columns = {column: read_as(kind) for column, kind in self._kinds.items()}
            if self.relation.type != TABLE_RELATION:
                return columns, None
            named = self.relation.filter("false").aggregate(_named(self.relation.alias))
            return columns, named.fetchall()

    @property
    def _kinds(self) -> dict[str, str]:
        return dict(zip(self.relation.columns, map(str, self.relation.types), strict=True))

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Register a fresh stream of the rows, and return SQL of its columns.

        Raises:
            SchemaError: if the relation is another one than when it was opened.
        """
        opened = self._opened
        if self._as_it_is() != opened:
            raise SchemaError(
                f"{self.name} has different columns than when it was opened, or its name "
                "refers to another table; call dg.read again."
            )
        kinds = usable_columns(self._kinds, used)
        carried = {
            column: export_expression(quoted(column), kind) for column, kind in kinds.items()
        }
        with translate_errors(self.name):
            stream = self.relation.project(select_list(carried)).to_arrow_reader(_STREAMED_ROWS)
            return select_from(register_rows(connection, stream), read_expressions(kinds))


def _named(name: str) -> str:
    """Return the SQL of an aggregate: all tables and views of a name, and where names are looked up."""
    result = (
        f"SELECT list((database_name, schema_name, {kind}_oid) ORDER BY {kind}_oid) "
        f"FROM duckdb_{kind}s() WHERE lower({kind}_name) = lower({text(name)})"
        for kind in ("table", "view")
    )
    listed = ", ".join(f"({query}) AS found{place}" for place, query in enumerate(result))
    return f"count(*) AS rows_, {listed}, current_setting('search_path') AS path"


def stores_its_values(table: duckdb.DuckDBPyRelation) -> bool:
    """Return whether all tables of a name hold each of their values, in a file of DuckDB's.

    A column that is computed as it is read may number the rows (``nextval``), and what another system
    holds need not be of the type of its column.
    """
    found = (
        "SELECT count(*) FROM duckdb_tables() AS tables_ JOIN duckdb_databases() AS files "
        f"USING (database_oid) WHERE lower(table_name) = lower({text(table.alias)}) "
        "AND (files.type <> 'duckdb' OR contains(tables_.sql, 'GENERATED ALWAYS AS'))"
    )
    with translate_errors("The relation"):
        return table.filter("false").aggregate(f"({found}) + 0 * count(*)").fetchall() == [(0,)]
