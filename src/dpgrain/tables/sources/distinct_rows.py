"""A source without repeated rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

import duckdb

from dpgrain.publishing.facts import Fact
from dpgrain.tables.engines.sql import label_sql, quoted
from dpgrain.tables.sources.column_types import REALS, TEXT
from dpgrain.tables.sources.duckdb_connection import run_interruptible
from dpgrain.tables.sources.source import RowSource, SourceWrapper

# The column of hashes; no column of a table begins with this character.
_DIGEST = quoted("\x1fdigest")


@dataclass(frozen=True, eq=False)
class DistinctRows(SourceWrapper):
    """The first row for each value of some columns, or rows that differ in a column."""

    source: RowSource
    kinds: Mapping[str, str]
    keys: tuple[str, ...]  # with the user's; empty for all columns

    @property
    def counts_duplicates(self) -> bool:
        """False: each row is there once."""
        return False

    @property
    def stated(self) -> tuple[str, ...]:
        """The stated columns; empty for all columns."""
        return self.keys[1:] or self.keys

    @property
    def fact(self) -> Fact:
        """Fact about the dropped repetitions of rows."""
        columns = ", ".join(map(repr, self.stated))
        return Fact("first-rows", (columns,)) if columns else Fact("distinct-rows")

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        return dict(self.kinds)

    def attach(
        self,
        connection: duckdb.DuckDBPyConnection,
        used: Collection[str] | None = None,  # noqa: ARG002 - other columns decide, too
    ) -> str:
        """Create a table of the rows on the connection, the first time, and return its name."""
        name = f"distinct{id(self)}"
        known = connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        if (name,) not in known:
            rows = self.source.attach(connection, set(self.kinds))
            create = f"CREATE TEMP TABLE {name} AS {self._query(rows)}"
            run_interruptible(connection, partial(connection.execute, create))
        return name

    def _query(self, rows: str) -> str:
        """Return the query of the rows, in an order that depends on their values only."""
        listed = ", ".join(
            f"{_canonical(name, kind)} AS {quoted(name)}" for name, kind in self.kinds.items()
        )
        if not self.keys:
            return f"SELECT DISTINCT {listed} FROM {rows} ORDER BY ALL"
        texts = ", ".join(f"CAST({quoted(name)} AS VARCHAR)" for name in self.kinds)
        # A list quotes its texts, so that different rows have different digests.
        digest = f"md5_number(CAST([{texts}] AS VARCHAR))"
        keys = ", ".join(map(quoted, self.keys))
        stated = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in self.keys)
        all_rows = f"SELECT *, {digest} AS {_DIGEST} FROM (SELECT {listed} FROM {rows})"
        least = f"min({_DIGEST}) AS {_DIGEST}"
        firsts = f"SELECT {keys}, {least} FROM brought WHERE {stated} GROUP BY {keys}"
        return (
            f"WITH brought AS MATERIALIZED ({all_rows}), firsts AS ({firsts}) "
            f"SELECT * EXCLUDE ({_DIGEST}) FROM (SELECT DISTINCT brought.* FROM brought "
            f"SEMI JOIN firsts USING ({keys}, {_DIGEST}) "
            f"UNION ALL SELECT * FROM brought WHERE NOT ({stated})) ORDER BY ALL"
        )


def _canonical(column: str, kind: str) -> str:
    """Return the SQL of a column with equal bits for values that are equal in all uses."""
    name = quoted(column)
    if kind == TEXT:
        return label_sql(name)
    if kind in REALS:
        return f"CASE WHEN {name} = 0 THEN 0 ELSE {name} END"
    return name
