"""Every existing column type, for every use: rejected by its schema, or read equally by all."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.refusals import refuses
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.inputs.long_labels import text_label
from dpgrain.tables.sources.column_types import (
    ALL_INTEGERS,
    BOOLEAN,
    DAY,
    LONGEST_LABEL,
    REALS,
    TEXT,
    TIMES,
    column_type,
    is_readable,
    read_as,
    widest,
)
from dpgrain.tables.sources.read_arguments import RelationSource

# A value of each type that DuckDB has, as SQL; a version with another type fails here.
VALUES = {
    "ARRAY": "[1.5, 2.5]::DOUBLE[2]",
    "BIGINT": "7::BIGINT",
    "BIGNUM": "7::BIGNUM",
    "BIT": "'0101'::BIT",
    "BLOB": "'ab'::BLOB",
    "BOOLEAN": "true",
    "DATE": "DATE '2026-01-02'",
    "DECIMAL": "1.50::DECIMAL(38, 2)",
    "DOUBLE": "1.5::DOUBLE",
    "ENUM": "'a'::ENUM('a', 'b')",
    "FLOAT": "1.5::FLOAT",
    "GEOMETRY": "NULL::GEOMETRY",
    "HUGEINT": "170141183460469231731687303715884105727::HUGEINT",
    "INTEGER": "7::INTEGER",
    "INTERVAL": "INTERVAL 1 DAY",
    "LIST": "[7]",
    "MAP": "MAP {1: 2}",
    "NULL": "NULL",
    "SMALLINT": "7::SMALLINT",
    "STRUCT": "{'a': 1}",
    "TIME": "TIME '10:00:00'",
    "TIME WITH TIME ZONE": "'10:00:00+01:00'::TIMETZ",
    "TIMESTAMP": "TIMESTAMP '2026-01-02 03:04:05'",
    "TIMESTAMP WITH TIME ZONE": "make_timestamptz(1767323045000000)",
    "TIMESTAMPTZ_NS": "make_timestamptz(1767323045000000)::TIMESTAMPTZ_NS",
    "TIMESTAMP_MS": "'2026-01-02 03:04:05'::TIMESTAMP_MS",
    "TIMESTAMP_NS": "'2026-01-02 03:04:05'::TIMESTAMP_NS",
    "TIMESTAMP_S": "'2026-01-02 03:04:05'::TIMESTAMP_S",
    "TIME_NS": "'10:00:00'::TIME_NS",
    "TINYINT": "7::TINYINT",
    "TUPLE": "row(1, 2)",
    "UBIGINT": "18446744073709551615::UBIGINT",
    "UHUGEINT": "340282366920938463463374607431768211455::UHUGEINT",
    "UINTEGER": "7::UINTEGER",
    "UNION": "union_value(a := 1)",
    "USMALLINT": "7::USMALLINT",
    "UTINYINT": "7::UTINYINT",
    "UUID": "'00000000-0000-0000-0000-000000000001'::UUID",
    "VARCHAR": "'a'",
    "VARIANT": "1::VARIANT",
}
# Types that no release can use; all others are read.
REFUSED = {
    "ARRAY", "BIGNUM", "BIT", "BLOB", "GEOMETRY", "INTERVAL", "LIST", "MAP", "STRUCT", "TIME",
    "TIME WITH TIME ZONE", "TIME_NS", "TUPLE", "UNION", "VARIANT",
}  # fmt: skip
# Columns cannot have this type.
NO_COLUMN = {"TYPE"}


def relation(table: dg.UserTable) -> duckdb.DuckDBPyRelation:
    assert isinstance(table.source, RelationSource)
    return table.source.relation


USES: dict[str, Callable[[dg.UserTable], Any]] = {
    "user": lambda table: dg.count(
        dg.read(relation(table), user="x", engine=table.engine), **ASKED
    ),
    "key": lambda table: dg.histogram(table, "x", clip=1.0, max_items=1, **ASKED),
    "cell": lambda table: dg.count(table, **{**ASKED, "unit": dg.Element("x")}, clip=1.0),
    "number": lambda table: dg.sum(table, "x", bounds=(0, 10), **ASKED),
    "weight": lambda table: dg.histogram(table, "n", weight="x", clip=1.0, domain=[0, 1], **ASKED),
    "days": lambda table: dg.histogram(
        table.with_days("day", "x"), "day", clip=1.0, domain=["2026-01-02"], **ASKED
    ),
    "region": lambda table: dg.count(table.where(x=(None, "2026-01-02")), **ASKED),
    "label": lambda table: dg.count(table.where(x=None), **ASKED),
    "number of values": lambda table: dg.count(table.per_user(v=("x", "count")), **ASKED),
    "values": lambda table: dg.count(table.per_user(v=("x", "nunique")), **ASKED),
}
# The uses that columns have, in the order above, by the type that they are read as.
USED = {
    **dict.fromkeys((*ALL_INTEGERS, "DECIMAL(38,2)"), "YYYYY--YYY"),
    **dict.fromkeys(REALS, "---YY---Y-"),
    **dict.fromkeys((TEXT, BOOLEAN), "YYY----YYY"),
    **dict.fromkeys(TIMES, "-----YYYY-"),
    DAY: "YYY---YYYY",
}
ASKED: dict[str, Any] = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6, "random_state": 1}


def connection() -> duckdb.DuckDBPyConnection:
    made = duckdb.connect(":memory:")
    made.execute("SET TimeZone = 'UTC'")
    return made


def test_each_type_of_this_version_is_tried() -> None:
    found = connection().sql("SELECT DISTINCT logical_type FROM duckdb_types()").fetchall()
    assert {kind for (kind,) in found} - NO_COLUMN <= set(VALUES)


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("use", USES)
def test_column_is_rejected_by_type_or_read_equally(kind: str, use: str) -> None:
    made = connection()
    try:
        made.execute(
            f"CREATE TABLE t AS SELECT i % 3 AS who, i AS n, CASE WHEN i > 0 THEN {VALUES[kind]} END "
            "AS x FROM range(4) r(i)"
        )
    except duckdb.Error:
        pytest.skip("this version lacks the type")
    described = read_as(str(made.table("t").types[2]))
    expected = USED.get(described, "-" * len(USES))[list(USES).index(use)] == "Y"
    told = []
    for engine in ("duckdb", InMemory):
        table = dg.read(made.table("t"), user="who", n_users=9, engine=engine)
        try:
            told.append(str(USES[use](table)))
        except (dg.SchemaError, dg.ParameterError) as error:
            told.append(f"refused: {error}")
    assert told[0] == told[1]
    assert told[0].startswith("refused") != expected, told


@pytest.mark.parametrize("kind", VALUES)
def test_unlisted_type_is_named_with_a_remedy(kind: str) -> None:
    described = str(connection().sql(f"SELECT {VALUES[kind]} AS x").types[0])
    assert (column_type(described) is None) == (kind in REFUSED)
    if kind not in REFUSED:
        assert is_readable(read_as(described))
        return
    made = connection()
    made.execute(f"CREATE TABLE t AS SELECT 1 AS who, {VALUES[kind]} AS x")
    table = dg.read(made.table("t"), user="who")
    for use in (
        table.require_key,
        lambda *a: table.require_numbers([a[0]], a[1]),
        table.require_readable,
    ):
        with refuses("item", "convert", kind=dg.SchemaError) as raised:
            use("x", "item")
        assert read_as(described) in str(raised.value)


RAW = [0, -1, 86_399_999_999_999, 10**15, 2**62, -(2**62), 2**63 - 1, 1 - 2**63, -(2**63),
       -9_223_372_022_400_001, -9_223_372_022_400_000, 9_223_372_036_854_775, None]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Paris"])
def test_no_number_of_a_time_ends_a_release(unit: str, zone: str | None, tmp_path: Path) -> None:
    """For any stored time, each source and engine has the same day of it, or none."""
    rows = {
        "who": pa.array(range(len(RAW))),
        "at": pa.array(RAW, pa.int64()).view(pa.timestamp(unit, zone)),
    }
    table = pa.table(rows)
    sources: list[Any] = [table]
    if unit != "s":
        # Arrow writes seconds as milliseconds, and rejects overflow.
        pq.write_table(table, tmp_path / "t.parquet")
        pq.write_table(table, tmp_path / "u.parquet", write_statistics=False)
        sources += [tmp_path / "t.parquet", tmp_path / "u.parquet"]
    found = []
    for source, engine in itertools.product(sources, ("duckdb", InMemory)):
        dated = dg.read(source, user="who", engine=engine).with_days("day", "at", zone)
        with dated.open_engine() as opened:
            found.append(opened.columns([("day", "text")]).column(0).to_pylist())
        dg.histogram(dated, "day", domain=["2026-01-01"], clip=1.0, **ASKED)
        dg.count(dated.where(at=("1900", None)), **ASKED)
    assert all(each == found[0] for each in found)
    assert found[0][6:8] == ["infinity", "-infinity"]
    assert unit == "ns" or found[0][8] is None


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_out_of_range_file_time_is_missing(zone: str | None, tmp_path: Path) -> None:
    at = pa.array([0, -(2**63), 1 - 2**63], pa.int64()).view(pa.timestamp("us", zone))
    pq.write_table(pa.table({"who": [0, 1, 2], "at": at}), tmp_path / "t.parquet")
    rows = dg.read(tmp_path / "t.parquet", user="who", engine="duckdb")
    dated = rows.with_days("day", "at", zone)
    with dated.open_engine() as engine:
        days = engine.columns([("day", "text")]).column(0).to_pylist()
    assert days == ["1970-01-01", None, "-infinity"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["table", "file", "relation"])
def test_moments_of_nanoseconds_have_a_zone(kind: str, tmp_path: Path) -> None:
    late = pa.array([1774742399_999_999_999], pa.int64()).cast(pa.timestamp("ns", "UTC"))
    source: Any = pa.table({"who": [1], "at": late})
    made = connection()
    if kind == "file":
        pq.write_table(source, tmp_path / "t.parquet")
        source = tmp_path / "t.parquet"
    elif kind == "relation":
        made.execute("CREATE TABLE t AS SELECT * FROM source")
        source = made.table("t")
    table = dg.read(source, user="who")
    assert table.schema["at"] == "TIMESTAMP WITH TIME ZONE"
    with table.with_days("day", "at", "Europe/Paris").open_engine() as engine:
        assert engine.columns([("day", "text")]).column(0).to_pylist() == ["2026-03-29"]


@pytest.mark.parametrize("engine", ["duckdb", InMemory])
@pytest.mark.parametrize("kind", ["table", "file", "relation", "csv"])
def test_a_label_has_a_longest_length(kind: str, engine: Any, tmp_path: Path) -> None:
    """A text of one byte more is null as a user, an item, a cell, a region and a number."""
    longest = "é" * (LONGEST_LABEL // 2)
    words = ["a", longest, longest + "x", "1." + "0" * LONGEST_LABEL, None]
    table = pa.table({"who": ["1", "2", "3", "4", "5"], "w": words})
    source: Any = table
    if kind == "file":
        source = tmp_path / "t.parquet"
        pq.write_table(table, source)
    elif kind == "relation":
        made = connection()
        made.execute("CREATE TABLE t AS SELECT * FROM source")
        source = made.table("t")
    elif kind == "csv":
        source = tmp_path / "t.csv"
        lines = [
            f"{who},{word or ''}" for who, word in zip(*table.to_pydict().values(), strict=True)
        ]
        source.write_text("who,w\n" + "\n".join(lines) + "\n")
    read = dg.read(source, user="who", engine=engine)
    with read.open_engine() as opened:
        assert opened.columns([("w", "key")]).column(0).to_pylist() == [
            "a",
            text_label(longest),
            None,
            None,
            None,
        ]
        assert set(opened.distinct(["w"]).columns[0].to_pylist()) == {"a", text_label(longest)}
    for stated, expected in ((None, 3), ("a", 1), ([longest, longest + "x"], 1)):
        with read.where(w=stated).open_engine() as opened:
            assert len(opened.columns([("who", "key")])) == expected
    numbers = dg.read(source, user="who", engine=engine, types={"w": "DOUBLE"})
    with numbers.open_engine() as opened:
        assert opened.columns([("w", "number")]).column(0).to_pylist() == [None] * 5
    people = dg.read(source, user="w", engine=engine).per_user(n="size")
    with people.open_engine() as opened:
        assert len(opened.columns([("n", "key")])) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("size", "memory"), [(20, "256MB"), (100, "1GB")])
@pytest.mark.parametrize("column", ["who", "w"])
def test_a_long_text_ends_no_release(size: int, memory: str, column: str, tmp_path: Path) -> None:
    rows = {"who": [str(i) for i in range(20_000)], "w": ["a", "b"] * 10_000}
    rows[column][7_000] = "x" * (size << 20)
    pq.write_table(pa.table(rows), tmp_path / "t.parquet", row_group_size=5_000)
    for engine in ("duckdb", InMemory):
        table = dg.read(tmp_path / "t.parquet", user="who", memory=memory, threads=2, engine=engine)
        dg.histogram(table, "w", clip=1.0, max_items=1, **ASKED)


@pytest.mark.slow
def test_many_long_texts_end_no_release_of_a_relation() -> None:
    """DuckDB counts the bytes of texts that leave it together in 31 bits."""
    made, size = connection(), LONGEST_LABEL - 1
    made.execute(
        "CREATE TABLE t(who BIGINT, k BIGINT, "
        f"w VARCHAR GENERATED ALWAYS AS (repeat('x', {size}) || k)); "
        "INSERT INTO t(who, k) SELECT i, i % 2 FROM range(33000) r(i)"
    )
    # Its texts are created during reading, so that they need no memory before.
    table = dg.read(made.table("t"), user="who", rows="as given", memory="256MB", threads=1)
    domain = ["x" * size + end for end in "01"]
    release = dg.count(table, by="w", domain=domain, **ASKED)
    assert abs(release.estimate - 16_500).max() < 1000


@pytest.mark.parametrize("kind", ["ENUM", "VARCHAR"])
@pytest.mark.parametrize("engine", ["duckdb", InMemory])
def test_invalid_text_never_leaves_the_callers_database(kind: str, engine: Any) -> None:
    made, long = connection(), "1" * (LONGEST_LABEL + 1)
    made.execute(f"CREATE TYPE own AS ENUM ('1', '{long}')")
    written = "own" if kind == "ENUM" else kind
    made.execute(
        f"CREATE TABLE t AS SELECT 1 AS who, '{long}'::{written} AS w UNION ALL SELECT 2, '1'"
    )
    source = dg.read(made.table("t"), user="who", engine=engine).source
    with duckdb.connect() as reader:
        rows = source.attach(reader, {"w"})
        found = reader.sql(f"SELECT max(strlen(w::VARCHAR)) FROM {rows}").fetchall()
    assert found == [(1,)]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["parquet", "csv", "table"])
@pytest.mark.parametrize("memory", ["256MB", "1GB"])
def test_memory_does_not_bound_stored_contents(ending: str, memory: str, tmp_path: Path) -> None:
    """The engine in memory has rows that are many times what a release may work with."""
    size, source = 2000 if memory == "256MB" else 7000, tmp_path / f"t.{ending}"
    made = connection()
    made.execute(
        f"CREATE TABLE t AS SELECT i::VARCHAR AS who, repeat('x', 60000) || i % 2 AS w "
        f"FROM range({size}) r(i)"
    )
    if ending != "table":
        made.execute(f"COPY t TO '{source}'")
    table = dg.read(
        made.table("t") if ending == "table" else source,
        user="who", memory=memory, threads=1, engine=InMemory,
    )  # fmt: skip
    domain = ["x" * 60_000 + end for end in "01"]
    release = dg.count(table, by="w", domain=domain, **ASKED)
    assert abs(release.estimate - size / 2).max() < 100


@pytest.mark.parametrize("engine", ["duckdb", InMemory])
def test_unused_columns_are_not_read(engine: Any, tmp_path: Path) -> None:
    """A column that cannot be read to its end ends no release of the others."""
    made = connection()
    fails = (
        "SELECT i AS who, i % 2 AS w, CAST(CASE WHEN i = 7 THEN 'x' ELSE '1' END AS INTEGER) AS x"
    )
    query = made.sql(f"{fails} FROM range(9) r(i)")
    table = dg.read(query, user="who", rows="as given", engine=engine)
    dg.histogram(table, "w", domain=[0, 1], clip=1.0, **ASKED)
    assert dg.count(table, **ASKED)
    with pytest.raises(dg.DataError):
        dg.sum(table, "x", bounds=(0, 1), **ASKED)


NAMES = {"twice": ["a", "a"], "capital letters": ["a", "A"], "renamed": ["a", "A", "A_1"]}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("kind", ["arrow", "parquet", "csv", "relation", "pandas", "polars"])
def test_names_equal_in_queries_are_rejected(kind: str, names: list[str], tmp_path: Path) -> None:
    table: Any = pa.table([[place] for place in range(len(names))], names=names)
    if kind == "parquet":
        pq.write_table(table, tmp_path / "t.parquet")
        table = tmp_path / "t.parquet"
    elif kind == "csv":
        table = tmp_path / "t.csv"
        table.write_text(",".join(names) + "\n1,2,3\n")
    elif kind == "relation":
        listed = ", ".join(f'{place} AS "{name}"' for place, name in enumerate(names))
        table = connection().sql(f"SELECT {listed}")
    elif kind == "pandas":
        pandas = pytest.importorskip("pandas")
        table = pandas.DataFrame([range(len(names))], columns=names)
    elif kind == "polars":
        polars = pytest.importorskip("polars")
        if len(set(names)) < len(names):
            return
        table = polars.DataFrame({name: [1] for name in names})
    with pytest.raises(
        dg.SchemaError, match=r"has the column 'a' (twice|and 'A'); rename|has the column 'a'"
    ):
        dg.read(table, rows="as given")


def test_frame_only_types_are_rejected_in_other_uses() -> None:
    polars = pytest.importorskip("polars")
    wide = polars.Series([1, 2], dtype=polars.Int128)
    table = dg.read(polars.DataFrame({"who": [1, 2], "wide": wide}), user="who")
    assert table.schema == {"who": "BIGINT", "wide": "Int128"}
    with refuses("item", "'wide'", kind=dg.SchemaError):
        dg.histogram(table, "wide", clip=1.0, **ASKED)
    assert dg.count(table, **ASKED)


def test_files_have_a_type_in_common() -> None:
    assert widest(["TIMESTAMP_NS", "TIMESTAMP"]) == "TIMESTAMP"
    assert widest(['"NULL"', "DATE"]) == "DATE"
    assert widest(["UUID", "VARCHAR"]) == "VARCHAR"
    assert widest(["TIMESTAMP", "DATE"]) == "UNION of TIMESTAMP and DATE"
    assert widest(["UHUGEINT", "BIGINT"]).startswith("UNION")
