"""Rows of PostgreSQL, on a separate server: the integers are DuckDB's, and no one sees a secret."""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
import json
import logging
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from tests.conftest import Command, shown
from tests.tables.engines.in_memory import InMemory
from tests.tables.sources.databases import Database, database, missing

import dpgrain as dg
from dpgrain.errors import DataError, ParameterError, SchemaError
from dpgrain.tables.engines.duckdb import DuckDB
from dpgrain.tables.engines.memory import load_rows
from dpgrain.tables.sources import postgres
from dpgrain.tables.sources.postgres import (
    Address,
    PostgresSession,
    PostgresSource,
    contains_password,
)
from dpgrain.tables.table import UserTable
from dpgrain.testing import EngineContract
from dpgrain.testing.engine_contract import SCHEMA, EngineRow, item_topic

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "all is there")

PROMISE: dict[str, Any] = {"unit": dg.User(), "epsilon": 5.0, "delta": 1e-6, "random_state": 1}
SECRET = "canary-pw-5519"


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with database() as made:
        yield made


@pytest.mark.slow
class TestOnPostgres(EngineContract):
    """Engines read the same rows from a table of the server, and from an Arrow table."""

    one_in = 7
    one_release_in = 2
    server: ClassVar[Database]
    kept: ClassVar[dict[Any, str]] = {}

    @pytest.fixture(autouse=True, scope="class")
    @staticmethod
    def _server(server: Database) -> None:
        TestOnPostgres.server = server

    def table(self, rows: Sequence[EngineRow], **options: Any) -> UserTable:
        if "engine" in options:
            return super().table(rows, **options)
        key = tuple(map(repr, rows))
        if key not in self.kept:
            columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
            made = [pa.array(each, kind) for each, kind in zip(columns, SCHEMA.types, strict=True)]
            self.kept[key] = self.server.holding(pa.table(made, schema=SCHEMA))
        # Like an Arrow table, so that guarantees are equal as well.
        given: dict[str, Any] = {"user": "who", "rows": "as given", **options}
        source = dg.read(self.server.address, table=self.kept[key], **given)
        assert isinstance(source.source, PostgresSource)
        assert source.source.counts_duplicates
        table: dg.UserTable = source.with_cells("topic", of="item", by=item_topic)
        few = dg.Elements.from_mapping({"a": "x", "b": "x"}, missing="drop")
        return table.with_cells("few", of="item", by=few)


def rows_of(people: int = 300, each: int = 20) -> pa.Table:
    rng = np.random.default_rng(1)
    who = np.repeat(np.arange(people), each)
    days = np.datetime64("2025-01-01") + rng.integers(0, 40, who.size)
    return pa.table({"who": who, "page": [f"p{i}" for i in rng.integers(0, 9, who.size)],
                     "day": pa.array(days, pa.date32()), "w": rng.random(who.size)})  # fmt: skip


@pytest.fixture(scope="module")
def visits(server: Database) -> str:
    return server.holding(rows_of())


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[str, ...], bool]]:
    asked: list[tuple[tuple[str, ...], bool]] = []
    fetch = PostgresSession._fetch

    def noted(self: PostgresSession, columns: list[str], grouped: bool, condition: str) -> str:
        asked.append((tuple(columns), grouped))
        return fetch(self, columns, grouped, condition)

    monkeypatch.setattr(PostgresSession, "_fetch", noted)
    return asked


COUNTS: dict[str, Callable[[dg.UserTable], Any]] = {
    "selected": lambda t: dg.histogram(t, "page", **PROMISE),
    "public": lambda t: dg.count(t, by="page", domain=["p1", "p2"], **PROMISE),
    "a number": lambda t: dg.count(t, **PROMISE),
    "days": lambda t: dg.histogram(t, "day", **{**PROMISE, "unit": dg.Element("page")}),
    "records": lambda t: dg.histogram(t, "page", domain=["p1"], **{**PROMISE, "unit": dg.Record()}),
    "a region": lambda t: dg.histogram(t.where(day="2025-01"), "page", **PROMISE),
    "top": lambda t: dg.top(t, "page", k=3, **PROMISE),
    "held": lambda t: dg.elements_per_user(t, **{**PROMISE, "unit": dg.Element("page")}),
    "derived": lambda t: dg.count(t.derive(month="month(day)"), by="month", **PROMISE),
}  # fmt: skip
NUMBERS: dict[str, Callable[[dg.UserTable], Any]] = {
    "sum": lambda t: dg.sum(t, "w", bounds=(0, 1), **PROMISE),
    "means": lambda t: dg.mean(t, "w", by="page", **PROMISE),
    "weights": lambda t: dg.histogram(t, "page", weight="w", **PROMISE),
    "quantiles": lambda t: dg.quantiles(t, "w", bounds=(0, 1), **PROMISE),
    "people": lambda t: dg.mean(t.per_user(spent="total(w)"), "spent", **PROMISE),
}


@pytest.mark.slow(cases=5)
@pytest.mark.parametrize("kind", COUNTS)
def test_counts_are_grouped_there(
    kind: str, server: Database, visits: str, fetched: list[Any]
) -> None:
    """The release equals an Arrow table's, and no single record is sent unless few are left."""
    table = dg.read(server.address, table=visits, user="who")
    release = COUNTS[kind](table)
    expected = COUNTS[kind](dg.read(rows_of(), user="who"))
    assert release.to_arrow().equals(expected.to_arrow())
    made = "checked" if kind in ("a region", "derived") else "table"
    assert release.guarantee.provenance == made
    assert all(grouped or kind == "a region" for _, grouped in fetched)
    assert len(fetched) <= (2 if kind == "days" else 1)


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("engine", ["duckdb", InMemory])
def test_numbers_are_streamed(
    kind: str, engine: Any, share: float, server: Database, visits: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Releases from rows in memory and in a file are equal."""
    monkeypatch.setattr(postgres, "_MEMORY_SHARE", share)
    table = dg.read(server.address, table=visits, user="who", engine=engine)
    release = NUMBERS[kind](table)
    expected = NUMBERS[kind](dg.read(rows_of(), user="who"))
    assert release.to_arrow().equals(expected.to_arrow())


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["duckdb", InMemory])
def test_joins_read_both_tables_there(engine: Any, server: Database, visits: str) -> None:
    """Joins of two tables, of one with itself, and with a public one, with rows grouped there."""
    born = server.holding(pa.table({"id": np.arange(300), "born": 1950 + np.arange(300) % 50}))
    one = dg.read(server.address, table=visits, user="who", engine=engine)
    other = dg.read(server.address, table=born, user="id", engine=engine)
    asked: dict[str, Any] = {
        "unit": dg.User(), "epsilon": 1e6, "delta": 1e-6, "clip": 1e4, "random_state": 0,
    }  # fmt: skip
    rows = rows_of()
    places = pa.table({"page": sorted(set(rows["page"].to_pylist()))})
    public = places.append_column("even", pa.array([n % 2 == 0 for n in range(len(places))]))
    held = rows.to_pandas().merge(public.to_pandas(), on="page")
    for table in (one.join(other), one.join(one.derive(also="page"), columns=["also"]), one):
        found = dg.count(table.join_public(public, on="page"), by="even", **asked)
        expected = [int((held["even"] == even).sum()) for even in (False, True)]
        assert [round(n) for n in found.estimate] == expected
    years = dg.sum(one.join(other), "born", bounds=(1950, 2000), **asked)
    assert years.value == pytest.approx(float((1950 + held["who"] % 50).sum()), rel=1e-3)


def test_a_query_is_fetched_once_and_as_given(
    server: Database, visits: str, fetched: list[Any]
) -> None:
    """It may give other rows each time, as random() does."""
    query = f"SELECT who, page, random() AS w FROM {visits} -- all;"
    with pytest.raises(
        ParameterError, match="query is not a base table, so one person's rows may affect"
    ):
        dg.read(server.address, query=query, user="who")
    table = dg.read(server.address, query=query, user="who", rows="as given")
    assert table.schema == {"who": "BIGINT", "page": "VARCHAR", "w": "DOUBLE"}
    release = dg.histogram(table, "page", weight="w", **PROMISE)
    assert release.guarantee.provenance == "as given"
    assert [columns for columns, _ in fetched] == [("page", "w", "who")]


def test_a_query_gives_the_same_rows_for_other_columns(
    server: Database, visits: str, fetched: list[Any]
) -> None:
    query = f"SELECT who, page, w FROM {visits} ORDER BY random() LIMIT 500"
    table = dg.read(server.address, query=query, user="who", rows="as given")
    with DuckDB(table) as engine:
        for used in (["page"], ["w"], []):
            engine.query("SELECT count(*) AS n FROM source", used)
    assert len(fetched) == 1


def test_single_rows_come_after_groups(server: Database, visits: str, fetched: list[Any]) -> None:
    """Rows fetched as groups are enough only for counts."""
    with DuckDB(dg.read(server.address, table=visits, user="who")) as engine:
        engine.distinct(["page"])
        rows = engine.query("SELECT count(*) AS n FROM source", ["page"])
        assert rows.column("n")[0].as_py() == 6000
        assert engine.extent("who") == (0, 299, 6000)
    assert [grouped for _, grouped in fetched] == [True, False]


ODD: dict[str, tuple[str, list[str], str, list[Any]]] = {
    # Column → type there, values as SQL, type here, and the read values.
    "small": ("smallint", ["1", "32767"], "SMALLINT", [1, 32767]),
    "whole": ("bigint", ["9223372036854775807"], "BIGINT", [2**63 - 1]),
    "truth": ("boolean", ["true"], "BOOLEAN", [True]),
    "text": ("text", ["'a'", "''", "'日本'", "repeat('x', 65537)"], "VARCHAR", ["a", "", "日本", None]),
    "varchar": ("varchar(9)", ["'a '"], "VARCHAR", ["a "]),
    "char": ("char(4)", ["'ab'"], "VARCHAR", ["ab"]),
    "mood": ("mood", ["'sad'"], "VARCHAR", ["sad"]),
    "uuid": ("uuid", ["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"], "VARCHAR",
             ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    "day": ("date", ["'2025-01-01'", "'infinity'", "'-infinity'"], "DATE",
            [dt.date(2025, 1, 1), None, None]),
    "time": ("timestamp", ["'2025-01-01 10:00'", "'infinity'", "'294276-12-31'"], "TIMESTAMP",
             [dt.datetime(2025, 1, 1, 10), None, None]),
    "real": ("real", ["1.5"], "FLOAT", [1.5]),
    "double": ("double precision", ["'Infinity'", "0.1"], "DOUBLE", [float("inf"), 0.1]),
    "number": ("numeric", ["1e400", "2.5"], "DOUBLE", [float("inf"), 2.5]),
    "money": ("numeric(9,2)", ["1.25", "'NaN'"], "DECIMAL(9,2)", ["1.25", None]),
    "list": ("int[]", ["'{1}'"], "INTEGER[]", []),
    "json": ("jsonb", ["'{}'"], "JSONB", []),
}  # fmt: skip


@pytest.mark.parametrize("kind", ODD)
def test_no_value_ends_a_reading(kind: str, server: Database) -> None:
    told, values, here, expected = ODD[kind]
    with contextlib.suppress(Exception):
        server.run("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    name = f"odd_{kind}"
    listed = ", ".join(f"(1, {value}::{told})" for value in (*values, "NULL"))
    server.run(
        f'CREATE TABLE {name} (who int, "the ""x" {told})', f"INSERT INTO {name} VALUES {listed}"
    )
    table = dg.read(server.address, table=name, user="who")
    assert table.schema['the "x'] == here
    if not expected:
        with pytest.raises(SchemaError, match=f"has type .*{here.strip('[]')}"):
            dg.histogram(table, 'the "x', **PROMISE)
        return
    with DuckDB(table) as engine:
        read = engine.query('SELECT "the ""x" AS x FROM source', ['the "x']).column("x").to_pylist()
    found = [
        str(each) if here.startswith("DECIMAL") and each is not None else each for each in read
    ]
    missing_too = [None if kind == "number" and each == float("inf") else each for each in expected]
    assert sorted(map(str, found)) in (sorted(map(str, [*expected, None])),
                                       sorted(map(str, [*missing_too, None])))  # fmt: skip
    if here != "FLOAT" and here not in ("DOUBLE", "TIMESTAMP"):
        dg.histogram(table, 'the "x', **PROMISE)


def test_texts_are_grouped_by_their_bytes(server: Database) -> None:
    """A collation may treat a and A as equal, and rows would be reported under another's name."""
    server.run(
        "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        "CREATE TABLE loosely (who text COLLATE loose, page text COLLATE loose)",
        "INSERT INTO loosely SELECT w, p FROM unnest(ARRAY['u', 'U']) w, unnest(ARRAY['a', 'A']) p, "
        "generate_series(1, 3)",
    )  # fmt: skip
    table = dg.read(server.address, table="loosely", user="who")
    with DuckDB(table) as engine:
        groups = engine.distinct(["page"])
        assert sorted(groups.columns[0].to_pylist()) == ["A", "a"]
        query = "SELECT count(DISTINCT who) AS n FROM source"
        assert engine.query(query).column("n")[0].as_py() == 2


def test_columns_may_be_called_as_our_own(server: Database) -> None:
    server.run(
        'CREATE TABLE named (who int, c0 int, records int, "none" int, "Given" int)',
        "INSERT INTO named SELECT i % 7, i % 3, i % 2, 1, i FROM generate_series(1, 60) i",
    )
    rows = pa.table({"who": [i % 7 for i in range(1, 61)], "c0": [i % 3 for i in range(1, 61)],
                     "records": [i % 2 for i in range(1, 61)]})  # fmt: skip
    for column in ("c0", "records"):
        release = dg.histogram(
            dg.read(server.address, table="named", user="who"), column, **PROMISE
        )
        expected = dg.histogram(dg.read(rows, user="who"), column, **PROMISE)
        assert release.to_arrow().equals(expected.to_arrow())
    server.run(
        'CREATE TABLE clash (who int, "Records of the row" int)', "INSERT INTO clash VALUES (1, 9)"
    )
    table = dg.read(server.address, table="clash", user="who")
    assert round(dg.count(table, **{**PROMISE, "unit": dg.Record(), "epsilon": 90.0}).value) == 1


def test_failing_casts_of_custom_types_do_not_end_reading(server: Database) -> None:
    """A cast to text may be a function that fails for one value."""
    server.run(
        "CREATE TYPE mark AS ENUM ('sad', 'ok')",
        "CREATE FUNCTION written(mark) RETURNS text LANGUAGE plpgsql AS "
        "$$ BEGIN IF $1 = 'sad' THEN RAISE 'one is sad'; END IF; RETURN 'x'; END $$",
        "CREATE CAST (mark AS text) WITH FUNCTION written(mark)",
        "CREATE TABLE marked (who int, x mark)",
        "INSERT INTO marked VALUES (1, 'sad'), (2, 'ok'), (3, NULL)",
    )
    with DuckDB(dg.read(server.address, table="marked", user="who")) as engine:
        assert sorted(engine.distinct(["x"]).columns[0].to_pylist()) == ["ok", "sad"]


def test_names_in_other_schemas_do_not_replace_built_ins(server: Database) -> None:
    """Types, operators and functions of a schema earlier in the search path."""
    server.run(
        "CREATE SCHEMA first",
        "CREATE TYPE first.uuid AS (x int)",
        "CREATE DOMAIN first.date AS int",
        "CREATE FUNCTION first.never(int, int) RETURNS boolean LANGUAGE sql AS 'SELECT false'",
        "CREATE OPERATOR first.<= (LEFTARG = int, RIGHTARG = int, FUNCTION = first.never)",
        "CREATE OPERATOR first.= (LEFTARG = int, RIGHTARG = int, FUNCTION = first.never)",
        "CREATE TABLE first.named (who int, page pg_catalog.text, a first.uuid, b first.date)",
        "INSERT INTO first.named VALUES (1, 'a', ROW(1), 1), (2, 'b', NULL, NULL)",
    )
    address = f"{server.address}?options=-csearch_path%3Dfirst%2Cpg_catalog"
    table = dg.read(address, table="named", user="who")
    assert table.provenance == "table"
    assert table.schema == {
        "who": "INTEGER",
        "page": "VARCHAR",
        "a": "FIRST.UUID",
        "b": "FIRST.DATE",
    }
    with DuckDB(table) as engine:
        assert sorted(engine.distinct(["page"]).columns[0].to_pylist()) == ["a", "b"]


# -- tables, and other objects --


NO_TABLES: dict[str, list[str]] = {
    "a view": ["CREATE VIEW {0} AS SELECT * FROM {1} ORDER BY w LIMIT 9"],
    "a materialized view": ["CREATE MATERIALIZED VIEW {0} AS SELECT * FROM {1} LIMIT 9"],
    "a foreign table": [
        "CREATE EXTENSION IF NOT EXISTS file_fdw",
        "CREATE SERVER IF NOT EXISTS files FOREIGN DATA WRAPPER file_fdw",
        "CREATE FOREIGN TABLE {0} (who int) SERVER files OPTIONS (filename '/dev/null')",
    ],
    "a table with a foreign part": [
        "CREATE EXTENSION IF NOT EXISTS file_fdw",
        "CREATE SERVER IF NOT EXISTS files FOREIGN DATA WRAPPER file_fdw",
        "CREATE TABLE {0} (who int, w int) PARTITION BY RANGE (who)",
        "CREATE FOREIGN TABLE {0}_part PARTITION OF {0} FOR VALUES FROM (0) TO (9) SERVER files "
        "OPTIONS (filename '/dev/null')",
    ],
    "row security": [
        "CREATE TABLE {0} AS SELECT * FROM {1}",
        "ALTER TABLE {0} ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE {0} FORCE ROW LEVEL SECURITY",
        "CREATE POLICY few ON {0} USING (who < 9)",
        "GRANT SELECT ON {0} TO reader",
    ],
}


@pytest.fixture(scope="module")
def reader(server: Database) -> str:
    server.run("CREATE ROLE reader LOGIN")
    return server.other(user="reader")


@pytest.mark.parametrize("kind", NO_TABLES)
def test_non_tables_require_rows_as_given(
    kind: str, server: Database, visits: str, reader: str
) -> None:
    name = f"no_{kind.replace(' ', '_')}"
    server.run(*(each.format(name, visits) for each in NO_TABLES[kind]))
    address = reader if kind == "row security" else server.address
    with pytest.raises(ParameterError, match="is not a base table") as caught:
        dg.read(address, table=name, user="who")
    assert caught.value.name == "table"
    table = dg.read(address, table=name, user="who", rows="as given")
    assert table.provenance == "as given"
    release = dg.count(table, **PROMISE)
    assert release.guarantee.provenance == "as given"
    if kind == "row security":
        # Its owner, exempt from all policies, reads all of it.
        server.run(f"ALTER TABLE {name} NO FORCE ROW LEVEL SECURITY")
        assert dg.read(server.address, table=name, user="who").provenance == "table"


def test_partitioned_tables_and_heirs_are_tables(server: Database) -> None:
    server.run(
        "CREATE TABLE parted (who int, month int) PARTITION BY LIST (month)",
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1)",
        "CREATE TABLE parted_2 PARTITION OF parted FOR VALUES IN (2)",
        "INSERT INTO parted SELECT i, 1 + i % 2 FROM generate_series(1, 50) i",
    )
    table = dg.read(server.address, table="public.parted", user="who")
    assert table.provenance == "table"
    release = dg.count(table, by="month", domain=[1, 2], **{**PROMISE, "epsilon": 90.0})
    assert release.estimate.round().tolist() == [25, 25]


# -- one state --


def test_a_release_sees_one_state(server: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows written between two of its queries are not in the second."""
    name = server.holding(rows_of())
    table = dg.read(server.address, table=name, user="who")
    with table.open_engine() as engine:
        before = engine.query("SELECT count(*) AS n FROM source", ["page"])  # type: ignore[attr-defined]
        server.run(f"DELETE FROM {name} WHERE who < 100")
        after = engine.query("SELECT count(*) AS n FROM source", ["w"])  # type: ignore[attr-defined]
        assert before.equals(after)
    with table.open_engine() as engine:
        later = engine.query("SELECT count(*) AS n FROM source", ["w"])  # type: ignore[attr-defined]
    assert later.column("n")[0].as_py() == 4000


def test_a_name_stands_for_one_table_to_the_end(
    server: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No one can give it to a view, between two readings or during a catalogue query."""
    name = server.holding(rows_of(20))
    swap = [f"ALTER TABLE {name} RENAME TO {name}_old", f"CREATE VIEW {name} AS TABLE {name}_old"]
    table = dg.read(server.address, table=name, user="who")
    with table.open_engine(), pytest.raises(Exception, match="lock timeout"):
        server.run("SET lock_timeout TO '200ms'", *swap)
    ask = postgres._rows

    def late(connection: Any, statement: str) -> Any:
        if "LIMIT 0" in statement:
            server.run(*swap)
        return ask(connection, statement)

    monkeypatch.setattr(postgres, "_rows", late)
    with pytest.raises(SchemaError, match="its name refers to another table"):
        dg.read(server.address, table=name, user="who")


def test_no_limit_of_time_ends_a_release(server: Database, visits: str) -> None:
    """It would end one for the rows of one person."""
    slow = f"SELECT who, page FROM {visits}, pg_sleep(0.3)"
    address = f"{server.address}?options=-cstatement_timeout%3D100"
    table = dg.read(address, query=slow, user="who", rows="as given")
    assert round(dg.count(table, **{**PROMISE, "epsilon": 90.0}).value, -1) == 6000


CHANGES = {
    "another type": "ALTER TABLE {0} ALTER COLUMN page TYPE varchar",
    "a column more": "ALTER TABLE {0} ADD COLUMN more int",
    "a column less": "ALTER TABLE {0} DROP COLUMN day",
    "another table": "ALTER TABLE {0} RENAME TO {0}_old; CREATE TABLE {0} (LIKE {0}_old)",
    "a view": "ALTER TABLE {0} RENAME TO {0}_old; CREATE VIEW {0} AS TABLE {0}_old",
    "row security": "ALTER TABLE {0} ENABLE ROW LEVEL SECURITY; ALTER TABLE {0} FORCE ROW LEVEL "
    "SECURITY; ALTER ROLE dpgrain NOBYPASSRLS",
}


@pytest.mark.parametrize("change", [name for name in CHANGES if name != "row security"])
def test_changed_table_is_rejected(change: str, server: Database) -> None:
    name = server.holding(rows_of(20))
    table = dg.read(server.address, table=name, user="who")
    server.run(CHANGES[change].format(name))
    with (
        dg.budget(9.0, 1e-5) as budget,
        pytest.raises(
            SchemaError,
            match="has different columns than when it was opened, or its name refers to another table",
        ),
    ):
        dg.sum(table, "w", bounds=(0, 1), unit=dg.User(), epsilon=1.0, delta=1e-6)
    assert budget.spent.share_of(budget.caps.price) > 0


# -- what fails --


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_dropped_connection_raises_one_sentence(
    share: float, server: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of the data, after the charge: nothing is published, with an error."""
    name = server.holding(rows_of(3000, 100))
    table = dg.read(server.address, table=name, user="who")
    read = PostgresSession._store

    def dropped(self: PostgresSession, *rest: Any) -> str:
        server.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                   "WHERE query LIKE 'COPY%' AND pid <> pg_backend_pid()")  # fmt: skip
        return read(self, *rest)

    monkeypatch.setattr(PostgresSession, "_store", dropped)
    monkeypatch.setattr(postgres, "_MEMORY_SHARE", share)
    with dg.budget(9.0, 1e-5) as budget, pytest.raises(DataError) as caught:
        dg.sum(table, "w", bounds=(0, 1), unit=dg.User(), epsilon=1.0, delta=1e-6)
    told = str(caught.value)
    assert "cannot be read completely" in told
    assert "127.0.0.1" not in shown(caught.value)
    assert "stays charged" in caught.value.__notes__[0]
    assert budget.spent.share_of(budget.caps.price) > 0


FAILING: dict[str, tuple[str, str]] = {
    "a row ends it": ("SELECT who, 1 / (who - who) AS w FROM {0}", "cannot be read"),
    "a cast": ("SELECT who, page::int AS w FROM {0}", "cannot be read"),
    "no such column": ("SELECT nope FROM {0}", "the server rejects it; check it with psql"),
    "two statements": ("SELECT 1 AS who; DROP TABLE {0}", "the server rejects it"),
    "a change": ("DELETE FROM {0} RETURNING who, w", "the server rejects it"),
    "a change within": (
        "WITH gone AS (DELETE FROM {0} RETURNING who, w) SELECT * FROM gone",
        "cannot be read",
    ),
}


@pytest.mark.parametrize("kind", FAILING)
def test_failing_query_raises_one_sentence(kind: str, server: Database, visits: str) -> None:
    query, told = FAILING[kind]

    def summed() -> None:
        table = dg.read(server.address, query=query.format(visits), user="who", rows="as given")
        dg.sum(table, "w", bounds=(0, 1), **PROMISE)

    with pytest.raises(DataError, match=told) as caught:
        summed()
    for secret in ("127.0.0.1", '"p', "division"):
        assert secret not in shown(caught.value)
    assert server.run(f"SELECT count(*) FROM {visits}") == [(6000,)]


def test_missing_permission_raises_one_sentence(server: Database, visits: str, reader: str) -> None:
    server.run(f"REVOKE ALL ON {visits} FROM PUBLIC")
    with pytest.raises(
        DataError, match="the user has no permission to read it; grant SELECT on it"
    ):
        dg.read(reader, table=visits, user="who")


@pytest.mark.parametrize(
    "columns", ["who, page, page", "who, page, 1, 2", 'who, page, w AS "Page"']
)
def test_columns_of_a_query_have_names_of_their_own(
    columns: str, server: Database, visits: str
) -> None:
    with pytest.raises(SchemaError, match=r"The query has the column .* rename one of them"):
        dg.read(server.address, query=f"SELECT {columns} FROM {visits}", rows="as given")


def test_money_and_oid_are_not_numeric(server: Database) -> None:
    """1.50 of money would be 150."""
    query = "SELECT 1 AS who, 1.5::money AS paid, 4000000000::oid AS object"
    table = dg.read(server.address, query=query, user="who", rows="as given")
    assert table.schema == {"who": "INTEGER", "paid": "MONEY", "object": "OID"}
    with pytest.raises(SchemaError, match="'paid' must be numeric, not of type MONEY"):
        dg.sum(table, "paid", bounds=(0, 9), **PROMISE)


def test_all_rows_are_read_for_the_curator(server: Database, visits: str) -> None:
    assert load_rows(dg.read(server.address, table=visits).source).num_rows == 6000


def test_options_of_a_database(server: Database, visits: str, tmp_path: Path) -> None:
    for asked, told in (
        ({}, "table or query must be passed for a database"),
        ({"table": "a", "query": "b"}, "and not both"),
        ({"table": visits, "engine": "spark"}, "engine='duckdb'"),
    ):
        with pytest.raises(ParameterError, match=told):
            dg.read(server.address, **asked)  # type: ignore[call-overload]
    for name in ("table", "query"):
        with pytest.raises(ParameterError, match=f"{name} requires a database as source"):
            dg.read(tmp_path / "rows.parquet", **{name: "x"})  # type: ignore[call-overload]
    for address in ("snowflake://account/db", "sqlite:///rows.db", "bigquery://project"):
        with pytest.raises(
            ParameterError, match="cannot be opened by its address; pass a cursor of its"
        ):
            dg.read(address, user="who")
    for name in ("nope", "no.such", 'a"b', "x; DROP TABLE y"):
        with pytest.raises(DataError):
            dg.read(server.address, table=name)


def test_missing_driver_is_named(
    server: Database, visits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql.dbapi", None)
    with pytest.raises(ParameterError, match=r"pip install 'dpgrain\[sql\]'"):
        dg.read(server.address, table=visits)


# -- secrets --


@pytest.fixture(scope="module")
def secret(server: Database, visits: str) -> Iterator[str]:
    server.run(
        f"CREATE ROLE guarded LOGIN PASSWORD '{SECRET}'", f"GRANT SELECT ON {visits} TO guarded"
    )
    ((place,),) = server.run("SHOW hba_file")
    before = Path(place).read_text()
    Path(place).write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\n{before}")
    server.run("SELECT pg_reload_conf()")
    yield server.other(user=f"guarded:{SECRET}")
    Path(place).write_text(before)


@pytest.mark.slow
def test_nobody_sees_a_secret(
    secret: str, server: Database, visits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """In no value, error, report, file of a ledger, log or stream of all that a release makes."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("VISITS_DB", secret)
    ledger = dg.Ledger.create(
        tmp_path / "visits.ledger", name="visits",
        promises=[dg.ledger.LastingPromise.of(dg.User(), 9.0, 1e-4)],
    )  # fmt: skip
    with ledger:
        table = dg.read(source_env="VISITS_DB", table=visits, user="who")
        query = dg.histogram.query(table, "page", **PROMISE)
        again = dg.Query.from_dict(json.loads(json.dumps(query.to_dict())), inputs={"table": table})
        release = dg.publish(again)
    ledger.close()
    release.save(tmp_path / "release.parquet")
    release.report(tmp_path / "release.html")
    seen = [repr(table), repr(table.source), table.check(), str(release), repr(release)]
    seen += [release.guarantee.to_json(), repr(release.guarantee), repr(query), repr(release.query)]
    seen += [json.dumps(query.to_dict()), repr(pickle.dumps(query)), repr(pickle.dumps(release))]
    monkeypatch.setenv("WRONG", secret.replace(SECRET, f"{SECRET}-wrong"))
    monkeypatch.setenv("NOWHERE", secret.replace("/postgres", f"/{SECRET}"))
    monkeypatch.setenv("NO_ADDRESS", SECRET)
    for name, told in (("WRONG", "rejects the password"), ("NOWHERE", "no such database or user"),
                       ("NO_ADDRESS", "is not an address"), ("MISSING", "is not set")):  # fmt: skip
        with pytest.raises((DataError, ParameterError), match=told) as caught:
            dg.read(source_env=name, table=visits)
        seen += [shown(caught.value), *_kept_by(caught.value)]
    seen += [*capfd.readouterr(), caplog.text]
    seen += [path.read_bytes().decode("latin-1") for path in tmp_path.iterdir()]
    for text in seen:
        assert SECRET not in text
        assert "guarded" not in text
        assert "127.0.0.1" not in text


def _kept_by(error: BaseException) -> list[str]:
    """Local variables of our functions at an error, which error reporting tools send along."""
    frames = traceback.TracebackException.from_exception(error, capture_locals=True).stack
    kept = [frame.locals or {} for frame in frames if "/dpgrain/" in frame.filename]
    assert kept
    return [f"{name} = {value}" for frame in kept for name, value in frame.items()]


def test_an_address_is_not_written_down(server: Database, visits: str) -> None:
    table = dg.read(server.address, table=visits, user="who")
    with pytest.raises(ParameterError, match="a database table cannot be pickled"):
        pickle.dumps(table)
    assert copy.deepcopy(table).schema == table.schema


FILE = """
[table]
{source}
table = "{table}"
user = "who"

[budget]
unit = "user"
epsilon = 5.0
delta = 1e-6

[release.pages]
statistic = "histogram"
item = "page"
share = 1.0
output = "pages.csv"
"""


def test_files_of_releases_take_the_address_from_the_environment(
    secret: str, visits: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "releases.toml"
    path.write_text(FILE.format(source='source_env = "VISITS_DB"', table=visits))
    monkeypatch.setenv("VISITS_DB", secret)
    done = command("run", path, "--ledger", _ledger(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "pages.csv").exists()
    for each in tmp_path.iterdir():
        assert SECRET not in each.read_bytes().decode("latin-1")
    path.write_text(FILE.format(source=f'source = "{secret}"', table=visits))
    done = command("run", path, "--again")
    assert done.returncode == 2
    assert "source must not contain a password" in done.stderr
    assert SECRET not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ('source_env = "NOWHERE"\ntable = "x"', "source_env is 'NOWHERE'"),
        (
            'source_env = "VISITS_DB"\nquery = "SELECT 1 AS who, 2 AS page"',
            "query is not a base table",
        ),
        ('source = "rows.parquet"\ntable = "x"', "table requires a database"),
    ],
)
def test_unreadable_table_counts_as_one_mistake(
    source: str, told: str, server: Database, tmp_path: Path, command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path = tmp_path / "releases.toml"
    monkeypatch.setenv("VISITS_DB", server.address)
    path.write_text(FILE.replace('table = "{table}"\n', "").format(source=source))
    done = command("run", path, "--dry-run")
    assert done.returncode == 2
    assert "has 1 mistake;" in done.stderr
    assert told in done.stderr


def test_commands_take_the_address_from_the_environment(
    secret: str, visits: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    promise = ["--user", "who", "--unit", "user", "--epsilon", "5", "--delta", "1e-6"]
    asked = ["--table", visits, *promise]
    monkeypatch.setenv("VISITS_DB", secret)
    done = command("count", "env:VISITS_DB", *asked)
    assert done.returncode == 0, done.stderr
    refused = command("count", secret, *asked)
    assert refused.returncode == 2
    assert "must not contain a password, which would stay in the shell history" in refused.stderr
    assert SECRET not in done.stdout + done.stderr + refused.stdout + refused.stderr
    view = command("count", "env:VISITS_DB", "--table", "pg_catalog.pg_tables", *promise)
    assert view.stderr.startswith("Error: --table 'pg_catalog.pg_tables' is not a base table")
    nowhere = command("count", "env:NOWHERE", *asked)
    assert nowhere.stderr.startswith("Error: TABLE is 'NOWHERE', but this environment variable")
    query = ["count", "env:VISITS_DB", "--query", f"SELECT who FROM {visits}", *promise]
    refused = command(*query)
    assert refused.returncode == 2
    assert "--rows 'as given'" in refused.stderr
    done = command(*query, "--rows", "as given", "--json")
    assert done.returncode == 0, done.stderr
    assert '"as given"' in done.stdout


def _ledger(folder: Path) -> Path:
    place = folder / "visits.ledger"
    dg.Ledger.create(
        place, name="visits", promises=[dg.ledger.LastingPromise.of(dg.User(), 9.0, 1e-4)]
    ).close()
    return place


@pytest.mark.parametrize(
    ("address", "secret"),
    [
        ("postgresql://ann@host/db", False),
        ("postgresql://ann:pw@host/db", True),
        ("postgresql://:pw@host/db", True),
        ("postgresql://host/db?password=pw", True),
        ("postgresql://host/db?sslpassword=pw&sslmode=require", True),
        ("postgresql://host/db?sslmode=require", False),
        ("postgresql://a:b@[::1/db", True),
        ("visits.parquet", False),
    ],
)
def test_secrets_of_an_address_are_seen(address: str, secret: bool) -> None:
    assert contains_password(address) is secret


def test_an_address_is_not_shown() -> None:
    assert repr(Address("postgresql://ann:pw@host/db")) == "Address(…)"
