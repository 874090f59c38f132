"""Each query reads a relation again, and it is the opened one."""

from __future__ import annotations

import duckdb
import pytest
from tests.refusals import refuses

from dpgrain.errors import SchemaError
from dpgrain.tables.sources.read_arguments import RelationSource, stores_its_values


@pytest.fixture
def database() -> duckdb.DuckDBPyConnection:
    result = duckdb.connect()
    result.sql("CREATE TABLE visits AS SELECT 1 AS who, 2.5 AS x, [1, 2] AS list")
    return result


def rows_of(source: RelationSource, *used: str) -> list[tuple[object, ...]]:
    connection = duckdb.connect()
    return connection.sql(f"FROM {source.attach(connection, used or None)}").fetchall()


def test_relation_is_reread_each_time(database: duckdb.DuckDBPyConnection) -> None:
    source = RelationSource(database.table("visits"))
    assert set(source.columns()) == {"who", "x", "list"}
    assert rows_of(source, "who") == [(1,)]
    database.sql("INSERT INTO visits VALUES (2, 3.5, [])")
    assert rows_of(source, "who") == [(1,), (2,)]
    # No release can use a column of lists.
    assert len(rows_of(source)[0]) == 2


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE visits ADD COLUMN y INTEGER",
        "DROP TABLE visits; CREATE TABLE visits AS SELECT 1 AS who, 2.5 AS x, [1, 2] AS list",
    ],
    ids=["another column", "another table"],
)
def test_changed_relation_is_rejected(change: str, database: duckdb.DuckDBPyConnection) -> None:
    source = RelationSource(database.table("visits"))
    source.columns()
    database.execute(change)
    with refuses("relation", "opened", kind=SchemaError):
        source.attach(duckdb.connect())


@pytest.mark.parametrize(
    ("column", "stored"), [("x INTEGER", True), ("x INTEGER AS (who + 1)", False)]
)
def test_only_tables_storing_all_values_are_tables(
    column: str, stored: bool, database: duckdb.DuckDBPyConnection
) -> None:
    database.execute(f"CREATE TABLE computed (who INTEGER, {column})")
    assert stores_its_values(database.table("computed")) is stored
