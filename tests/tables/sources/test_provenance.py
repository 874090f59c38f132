"""A query needs its author's confirmation; a table and rows in memory do not."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.refusals import refuses
from tests.releases import cases
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.errors import DataError, ParameterError, SchemaError
from dpgrain.learn.column_rows import ColumnRows
from dpgrain.learn.features import FeatureEncoding, NumberColumn
from dpgrain.releases.table_queries import mean_of_columns
from dpgrain.scope.provenance import Provenance
from dpgrain.tables.sources.read_arguments import source_provenance

DONE = {
    "nothing": "SELECT * FROM visits",
    "LIMIT": "SELECT * FROM visits LIMIT 3",
    "ORDER BY": "SELECT * FROM visits ORDER BY n DESC",
    "both": "SELECT * FROM visits ORDER BY n DESC LIMIT 3",
    "a sample": "SELECT * FROM visits USING SAMPLE 3",
    "a window": "SELECT * FROM visits QUALIFY row_number() OVER (ORDER BY n) < 3",
    "a window of each user": "SELECT * FROM visits QUALIFY row_number() OVER (PARTITION BY who) < 3",
}
ROWS = pa.table({"who": [1, 2, 2, 3, 4], "n": [5, 4, 3, 2, 1], "x": ["a", "b", "a", "b", "c"]})
AS_GIVEN = "The rows come from a query, frame or array that dpgrain did not build"


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as opened:
        opened.from_arrow(ROWS).create("visits")
        yield opened


QUERIES: dict[str, Callable[[duckdb.DuckDBPyConnection, str], Any]] = {
    "relation": lambda opened, query: opened.sql(query),
    "view": lambda opened, query: (opened.sql(query).create_view("seen"), opened.view("seen"))[1],
    "named view": lambda opened, query: (
        opened.execute(f"CREATE VIEW seen AS {query}"),
        opened.table("seen"),
    )[1],
    "alias": lambda opened, query: opened.sql(query).set_alias("visits"),
    "frame as a relation": lambda opened, query: opened.from_df(opened.sql(query).df()),
    "lazy Polars": lambda opened, query: opened.sql(query).pl().lazy(),
}
MADE: dict[str, Callable[[duckdb.DuckDBPyConnection, str], Any]] = {
    "pandas": lambda opened, query: opened.sql(query).df(),
    "Polars": lambda opened, query: opened.sql(query).pl(),
    "Arrow": lambda opened, query: opened.sql(query).to_arrow_table(),
    "a stream of Arrow": lambda opened, query: opened.sql(query).to_arrow_reader(),
}


def refused(source: Any, **options: Any) -> str:
    with pytest.raises(ParameterError) as caught:
        dg.read(source, user="who", **options)
    assert caught.value.name == "source"
    return str(caught.value)


@pytest.mark.parametrize("engine", [None, "duckdb", InMemory, "spark"])
@pytest.mark.parametrize("done", DONE)
@pytest.mark.parametrize("kind", QUERIES)
def test_a_query_needs_its_author_s_word(
    kind: str, done: str, engine: Any, connection: duckdb.DuckDBPyConnection
) -> None:
    source = QUERIES[kind](connection, DONE[done])
    told = refused(source, engine=engine)
    assert "such as ORDER BY amount DESC LIMIT 1000" in told
    for remedy in ("con.table('visits')", "where", "per_user", "rows='as given'"):
        assert remedy in told
    # The error is the same for every table, and for any later step.
    connection.execute("UPDATE visits SET n = -n, x = 'secret'")
    assert refused(source, engine=engine) == told
    assert (
        refused(connection.sql("SELECT 1 AS who"), engine=engine) == told or kind == "lazy Polars"
    )
    if engine != "spark":
        given = dg.read(source, user="who", engine=engine, rows="as given")
        assert given.provenance == given.where(x="a").per_user(k="count").provenance == "as given"


@pytest.mark.parametrize("done", DONE)
@pytest.mark.parametrize("kind", MADE)
def test_rows_in_memory_are_as_given_by_default(
    kind: str, done: str, connection: duckdb.DuckDBPyConnection
) -> None:
    table = dg.read(MADE[kind](connection, DONE[done]), user="who")
    assert table.provenance == "as given"


def plain(connection: duckdb.DuckDBPyConnection, folder: Path) -> dict[str, Any]:
    pq.write_table(ROWS, folder / "visits.parquet")
    ROWS.to_pandas().to_csv(folder / "visits.csv", index=False)
    return {
        "Parquet": folder / "visits.parquet",
        "a list": [str(folder / "visits.parquet")],
        "CSV": str(folder / "visits.csv"),
        "a table of DuckDB": connection.table("visits"),
        "with its schema": connection.table("main.visits"),
    }


def test_table_is_identified_by_its_argument(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    for name, source in plain(connection, tmp_path).items():
        table = dg.read(source, user="who")
        assert table.provenance == "table", name
        assert dg.read(source, user="who", rows="as given").provenance == "as given", name
        made = {
            "where": table.where(x=["a", "b"]),
            "with_cells": table.with_cells("cell", of="x", by={"a": "c"}),
            "per_user": table.per_user(k="count"),
        }
        assert {each.provenance for each in made.values()} == {"checked"}, name
    days = dg.read(tmp_path / "visits.csv", user="who", types={"x": "TIMESTAMP"})
    assert days.provenance == days.with_days("day", of="x").provenance == "checked"


@pytest.mark.parametrize(
    "narrowed", ["limit", "order", "filter", "project", "distinct", "set_alias"]
)
def test_narrowed_table_is_a_query(narrowed: str, connection: duckdb.DuckDBPyConnection) -> None:
    table: Any = connection.table("visits")
    asked = {"limit": (3,), "order": ("n",), "filter": ("n > 1",), "project": ("*",)}
    source = getattr(table, narrowed)(*asked.get(narrowed, ("t",) * (narrowed == "set_alias")))
    assert "source must be a table, not a query" in refused(source)


#: Changes under the name of an open table, so that it denotes something else.
ANOTHER: dict[str, str] = {
    "a query in its place": (
        "ALTER TABLE visits RENAME TO kept; "
        "CREATE VIEW visits AS SELECT * FROM kept ORDER BY n DESC LIMIT 3"
    ),
    "another table": "CREATE OR REPLACE TABLE visits AS SELECT * FROM visits LIMIT 3",
    "a nearer table": "CREATE TEMP TABLE visits AS SELECT * FROM main.visits LIMIT 3",
    "another schema": (
        "CREATE SCHEMA near; CREATE VIEW near.visits AS SELECT * FROM main.visits LIMIT 3; "
        "SET search_path = 'near,main'"
    ),
    "another type": (
        "ALTER TABLE visits ALTER n TYPE VARCHAR; INSERT INTO visits VALUES (9, 'secret 17', 'a')"
    ),
    "another column": "ALTER TABLE visits RENAME n TO m",
    "nothing": "DROP TABLE visits",
}


@pytest.mark.parametrize("engine", ["duckdb", InMemory])
@pytest.mark.parametrize("made", ["as it stands", "where", "per_user"])
@pytest.mark.parametrize("happened", ANOTHER)
def test_name_denotes_the_opened_table(
    happened: str, made: str, engine: Any, connection: duckdb.DuckDBPyConnection
) -> None:
    table = dg.read(connection.table("visits"), user="who", engine=engine)
    if made == "where":
        table = table.where(x=["a", "b", "c"])
    elif made == "per_user":
        table = table.per_user(n=("n", "sum"))

    def released() -> Any:
        promise: dict[str, Any] = {"unit": dg.User(), "epsilon": 50.0, "delta": 1e-6}
        return dg.sum(table, "n", bounds=(0, 9), clip=9.0, **promise, random_state=1)

    assert released().estimate == pytest.approx([15], abs=5)
    connection.execute("INSERT INTO visits VALUES (9, 9, 'a')")
    assert released().estimate == pytest.approx([24], abs=5)
    connection.execute(ANOTHER[happened])
    told = "cannot be read completely" if happened == "nothing" else "call dg.read again"
    with pytest.raises(DataError if happened == "nothing" else SchemaError, match=told):
        released()


SEVERAL: dict[str, list[str]] = {
    "alike": ["visits.parquet", "./visits.parquet"],
    "absolute": ["visits.parquet", "{folder}/visits.parquet"],
    "a link": ["visits.parquet", "link.parquet"],
    "a hard link": ["visits.parquet", "hard.parquet"],
    "a pattern": ["*.parquet"],
    "folders": ["**/visits.parquet"],
    "patterns": ["*.parquet", "./*.parquet"],
}


@pytest.mark.parametrize("engine", ["duckdb", InMemory])
@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("names", SEVERAL)
def test_file_is_read_once_despite_several_names(
    names: str, ending: str, engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record read twice would change a count by two, and be charged as one."""
    monkeypatch.chdir(tmp_path)
    if ending == "csv":
        ROWS.to_pandas().to_csv("visits.csv", index=False)
    else:
        pq.write_table(ROWS, "visits.parquet")
    Path(f"link.{ending}").symlink_to(f"visits.{ending}")
    Path(f"hard.{ending}").hardlink_to(f"visits.{ending}")
    Path("inside").mkdir()
    Path("inside/out").symlink_to("..")
    paths = [name.format(folder=tmp_path).replace("parquet", ending) for name in SEVERAL[names]]
    table = dg.read(paths, user="who", engine=engine)
    release = dg.count(table, unit=dg.Record(), epsilon=100.0, delta=1e-6, random_state=1)
    assert release.estimate == pytest.approx([5], abs=0.5)


@pytest.mark.parametrize("source", [7, None, [], {}, object(), b"visits.parquet", pd.Series([1])])
def test_invalid_source_is_rejected(source: Any) -> None:
    for rows in (None, "as given"):
        with refuses("source", "must be a"):
            dg.read(source, rows=rows)


def test_no_other_word_is_taken() -> None:
    with refuses("rows", "not 'table'"):
        dg.read(ROWS, user="who", rows="table")  # type: ignore[call-overload]


def count(source: Any, **options: Any) -> Any:
    table = dg.read(source, user="who", **options)
    promise: dict[str, Any] = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6, "clip": 5.0}
    return dg.count(table, **promise, random_state=1)


def test_one_person_moves_a_limited_count_by_thousand() -> None:
    """The user-level guarantee covers the incoming rows; a query lets one person choose them."""
    others = "SELECT 1 + i AS who, 1 AS amount FROM range(2000) r(i)"
    mine = "SELECT 0, 10 FROM range(1000)"
    largest = "SELECT * FROM ({}) ORDER BY amount DESC LIMIT 1000"
    queries = [largest.format(rows) for rows in (others, f"{others} UNION ALL {mine}")]
    told = {refused(duckdb.sql(query)) for query in queries}
    assert len(told) == 1
    without, with_me = (count(duckdb.sql(query), rows="as given") for query in queries)
    assert without.estimate == pytest.approx([1000], abs=60)
    assert with_me.estimate == pytest.approx([5], abs=60)
    assert AS_GIVEN in str(without.guarantee)
    assert AS_GIVEN in str(with_me.guarantee)
    # The same rows without the query: one person moves a count by five.
    with duckdb.connect(":memory:") as opened:
        tables = [
            opened.sql(rows).to_arrow_table() for rows in (others, f"{others} UNION ALL {mine}")
        ]
    one, other = (count(table).estimate[0] for table in tables)
    assert abs(one - other) <= 5


# -- what fails by a row --


def stream() -> Any:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows.to_batches()
        raise ValueError("secret 17")

    rows = ROWS.drop_columns("x").rename_columns({"n": "x"})
    return pa.RecordBatchReader.from_batches(rows.schema, batches())


def own(_: Any) -> int:
    raise ValueError("secret 17")


FAILING: dict[str, Callable[[], Any]] = {
    "cast": lambda: pl.LazyFrame({"who": [1, 2], "x": ["1", "secret 17"]}).with_columns(
        pl.col("x").cast(pl.Int64)
    ),
    "a function": lambda: pl.LazyFrame({"who": [1]}).with_columns(
        pl.col("who").map_elements(own, return_dtype=pl.Int64)
    ),
    "stream": stream,
    "a stream by the protocol": lambda: types.SimpleNamespace(__arrow_c_stream__=own),
    "relation": lambda: duckdb.sql(
        "SELECT who, CAST(x AS INTEGER) AS x FROM (VALUES (1, '1'), (2, 'secret 17')) t(who, x)"
    ),
}


@pytest.mark.parametrize("kind", FAILING)
def test_query_ended_by_a_row_is_not_quoted(kind: str) -> None:
    with pytest.raises(DataError, match="cannot be read completely; check that every") as caught:
        dg.sum(
            dg.read(FAILING[kind](), user="who", rows="as given"), "x", bounds=(0, 1),
            unit=dg.User(), epsilon=1.0, delta=1e-6,
        )  # fmt: skip
    assert "17" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


# -- doors --

PROMISE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "random_state": 3}
ENCODING = FeatureEncoding((NumberColumn("seconds", (0, 200)), NumberColumn("age", (0, 100))))
DOORS: dict[str, Callable[[dg.UserTable], dg.Guarantee]] = {
    "count": lambda table: dg.count(table, unit=dg.User(), **PROMISE).guarantee,
    "top": lambda table: dg.top(table, "page", k=2, unit=dg.User(3), **PROMISE).guarantee,
    "mean": lambda table: (
        dg.mean(table, "seconds", bounds=(0, 200), unit=dg.Record(), **PROMISE).guarantee
    ),
    "elements_per_user": lambda table: (
        dg.elements_per_user(table, unit=dg.Element("topic"), **PROMISE).guarantee
    ),
    "mean_of_columns": lambda table: (
        mean_of_columns(table, ["seconds", "age"], bound=300.0, **PROMISE).guarantee
    ),
    "fit_columns": lambda table: (
        dg.publish(
            dg.learn.LogisticRegression(classes=[0, 1], rounds=2, **PROMISE).query(
                ColumnRows(table, ENCODING, "bought"), None
            )
        ).guarantee_
    ),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("provenance", ["table", "checked", "as given"])
def test_every_function_states_the_provenance_of_rows(
    door: str, provenance: Provenance, tmp_path: Path
) -> None:
    path = cases.parquet(tmp_path)
    table = dg.read(path, user="who") if provenance != "as given" else cases.table()
    if provenance == "checked":
        table = table.where(topic=["t0", "t1"])
    guarantee = DOORS[door](table)
    assert guarantee.provenance == provenance
    assert (AS_GIVEN in str(guarantee)) == (provenance == "as given")
    assert dg.Guarantee.from_json(guarantee.to_json()) == guarantee


def test_arrays_are_as_their_caller_made_them() -> None:
    frame = cases.ROWS.to_pandas()
    X, users = frame[["seconds", "age"]], frame["who"]
    made = [
        dg.learn.LinearRegression(rounds=2, **PROMISE).fit(X, frame["age"], users=users).guarantee_,
        dg.mean_of_users(X, users=users, bound=300.0, **PROMISE).guarantee,
        dg.papers.release_mean([1.0, 3.0], sensitivity=2.0, dimension=1, **PROMISE).guarantee,
    ]
    assert [each.provenance for each in made] == ["as given"] * 3
    assert all(str(each).count(AS_GIVEN) == 1 for each in made)


@pytest.mark.parametrize("rows", ["", 'rows = "as given"\n'])
def test_a_file_of_releases_reads_a_table(rows: str, tmp_path: Path) -> None:
    cases.parquet(tmp_path)
    text = cases.TABLE + rows + cases.BUDGET + cases.releases("share = 0.4", ["count", "fit"])
    made = dg.releases(cases.written(tmp_path, text), random_state=1)
    expected = "as given" if rows else "table"
    found = {made.guarantee, made["count"].guarantee, made["fit"].guarantee_}
    assert {each.provenance for each in found} == {expected}


def test_a_query_does_not_run_to_find_out() -> None:
    frame = pl.LazyFrame({"who": [1]}).select(pl.col("who").map_batches(own))
    with refuses("source", "query"):
        source_provenance(frame)


# -- Spark --


@pytest.mark.slow
def test_a_frame_of_spark_is_a_query(spark: Any, tmp_path: Path) -> None:
    """Spark takes a sample, ties in any order and functions that draw for rows that stay the same."""
    from pyspark.sql import functions
    from pyspark.sql.window import Window

    pq.write_table(ROWS, tmp_path / "visits.parquet")
    frame = spark.read.parquet(str(tmp_path / "visits.parquet"))
    frame.createOrReplaceTempView("visits")
    order = Window.orderBy(functions.lit(1))
    frames = {
        "plain": frame,
        "by its name": spark.table("visits"),
        "sample": frame.sample(0.5),
        "limit": frame.orderBy("n").limit(3),
        "ties": frame.withColumn("place", functions.row_number().over(order)).where("place < 3"),
    }
    told = {
        refused(source, engine=engine) for source in frames.values() for engine in (None, "spark")
    }
    assert len(told) == 1
    for source in frames.values():
        assert dg.read(source, user="who", rows="as given").provenance == "as given"
    path = str(tmp_path / "visits.parquet")
    assert dg.read(path, user="who", engine="spark").provenance == "table"
    assert dg.read(path, user="who", engine=spark).where(x="a").provenance == "checked"
    found = count(frame, rows="as given")
    assert AS_GIVEN in str(found.guarantee)
    mean = dg.mean_of_users(frame.select("who", "n"), users="who", bound=9.0, **PROMISE)
    assert mean.guarantee.provenance == "as given"


@pytest.mark.parametrize("named", ["numbered", "main.numbered", "Numbered"])
def test_table_with_a_computed_column_is_a_query(
    named: str, connection: duckdb.DuckDBPyConnection
) -> None:
    """``where`` on a row-numbering column truncates rows like LIMIT, under a table's name."""
    connection.execute("CREATE SEQUENCE places")
    connection.execute("CREATE TABLE numbered (who INT, place BIGINT AS (nextval('places')))")
    connection.execute("INSERT INTO numbered (who) VALUES (1), (2), (3)")
    assert "generated columns" in refused(connection.table(named))
    assert "ORDER BY" in refused(connection.table(named).filter("place < 3"))
    given = dg.read(connection.table(named), user="who", rows="as given")
    assert given.provenance == "as given"
    connection.execute("CREATE TABLE copied AS FROM numbered")
    assert dg.read(connection.table("copied"), user="who").provenance == "table"


def test_table_of_another_duckdb_file_is_a_table(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    connection.execute(f"ATTACH '{tmp_path / 'other.db'}' AS other")
    connection.execute("CREATE TABLE other.main.visits AS FROM visits")
    assert dg.read(connection.table("other.main.visits"), user="who").provenance == "table"
