"""A wrapper delegates to its source; the innermost source has the transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from dpgrain.tables.sources.duckdb_connection import register_rows
from dpgrain.tables.sources.frames import ArrowSource
from dpgrain.tables.sources.source import SourceWrapper, transaction

ROWS = ArrowSource(pa.table({"who": [1, 2]}), "The rows", "rows")


@dataclass(frozen=True)
class Wrapper(SourceWrapper):
    source: Any

    def attach(self, connection: Any, used: Any = None) -> str:
        return str(self.source.attach(connection, used))


@dataclass
class Database:
    name: str = "The database"
    title: str = "a database"
    paths: tuple[str, ...] = ("x.db",)
    counts_duplicates: bool = True
    open: list[str] = field(default_factory=list)

    @contextmanager
    def begin(self, _: Any) -> Iterator[None]:
        self.open.append("entered")
        yield
        self.open.append("left")

    def columns(self) -> dict[str, str]:
        return {"who": "BIGINT"}

    def attach(self, connection: Any, used: Any = None) -> str:
        return register_rows(connection, ROWS.table)


def test_wrapper_has_the_facts_of_its_source() -> None:
    wrapper = Wrapper(Wrapper(Database()))
    assert (wrapper.name, wrapper.title, wrapper.paths) == ("The database", "a database", ("x.db",))
    assert wrapper.counts_duplicates
    assert wrapper.columns() == {"who": "BIGINT"}
    plain = Wrapper(ROWS)
    assert (plain.paths, plain.counts_duplicates) == ((), False)


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_transaction_belongs_to_the_innermost_source(depth: int) -> None:
    database = Database()
    source: Any = database
    for _ in range(depth):
        source = Wrapper(source)
    with transaction(source, duckdb.connect()):
        assert database.open == ["entered"]
    assert database.open == ["entered", "left"]


def test_source_without_transaction_enters_nothing() -> None:
    connection = duckdb.connect()
    with transaction(Wrapper(ROWS), connection):
        assert connection.sql(f"FROM {ROWS.attach(connection)}").fetchall() == [(1,), (2,)]
