"""Invalid sources raise a one-sentence error, before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.errors import DataError, ParameterError, SchemaError
from dpgrain.tables.sources.frames import ArrowSource
from dpgrain.tables.sources.read_arguments import (
    RelationSource,
    is_address,
    is_stream,
    resolve_source,
    stores_its_values,
)
from dpgrain.tables.sources.streams import StreamSource


@pytest.mark.parametrize("data", [None, 7, [], [1], {"who": [1]}, object(), b"rows.parquet", True])
def test_invalid_source_is_named(data: Any) -> None:
    with pytest.raises(ParameterError, match=f"source must be a path.*not {type(data).__name__}"):
        dg.read(data, user="who")
    assert not is_stream(data)


@pytest.mark.parametrize("delimiter", ["", ",,", "é", '"', "\n"])
def test_a_delimiter_is_one_plain_letter(delimiter: str) -> None:
    with pytest.raises(ParameterError, match="delimiter must be one ASCII character"):
        resolve_source("rows.csv", delimiter=delimiter)


def test_tables_stay_in_memory_and_streams_do_not() -> None:
    rows = pa.table({"who": [1]})
    assert isinstance(resolve_source(rows), ArrowSource)
    assert isinstance(resolve_source(rows.to_reader()), StreamSource)
    assert isinstance(resolve_source(rows.to_batches()[0]), StreamSource)


def test_path_is_not_an_address(tmp_path: Path) -> None:
    assert not is_address(str(tmp_path))
    assert not is_address("s3:/bucket")
    with pytest.raises(DataError, match="does not exist"):
        dg.read(tmp_path / "s3:" / "rows.parquet")


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
