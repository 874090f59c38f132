"""A wrapper delegates to its source; the innermost source has the transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.scope.regions import LabelSet, Region, Side, Span
from dpgrain.tables.sources.duckdb_connection import register_rows
from dpgrain.tables.sources.frames import ArrowSource
from dpgrain.tables.sources.read_arguments import RelationSource, resolve_source
from dpgrain.tables.sources.source import RegionSource, SourceWrapper, transaction

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


_DATES = (
    "('2026-01-01'::DATE), ('infinity'), ('-infinity'), (NULL), ('2026-01-02'), ('0044-01-01 (BC)')"
)
# The cells of one column, as SQL with their positions, the region, and the positions inside.
COLUMNS: dict[str, tuple[str, Any, list[int]]] = {
    "DATE": (
        _DATES,
        ("2026-01-02", None),
        [4],
    ),
    "DATE or none": (
        _DATES,
        ["2026-01-02", None],
        [1, 2, 3, 4],
    ),
    "TIMESTAMP": (
        "('2026-01-01 23:59:59.999999'::TIMESTAMP), ('infinity'), (NULL), ('2026-01-02')",
        "2026-01-02",
        [3],
    ),
    "TIMESTAMP_S": (
        "('2026-01-01 23:59:59'::TIMESTAMP_S), ('infinity'), (NULL), ('2026-01-02'), ('2026-01-03')",
        "2026-01-02..2026-01-03",
        [3, 4],
    ),
    "TIMESTAMP_MS": (
        "('2026-01-01 23:59:59.999'::TIMESTAMP_MS), (NULL), ('2026-01-02'), ('290000-01-01')",
        ("2026-01-02", None),
        [2, 3],
    ),
    "TIMESTAMP_NS": (
        "('2026-01-01 23:59:59.999999999'::TIMESTAMP_NS), (NULL), ('2026-01-02'), ('2200-01-01')",
        "2026-01-02..9000-01-01",
        [2, 3],
    ),
    "TIMESTAMPTZ": (
        "(make_timestamptz(1767225599999999)), (NULL), (make_timestamptz(1767225600000000))",
        "2026",
        [2],
    ),
    "UUID": (
        "('00000000-0000-0000-0000-000000000001'::UUID), (NULL)",
        "00000000-0000-0000-0000-000000000001",
        [0],
    ),
    "DECIMAL": ("(7.50::DECIMAL(9, 2)), (7.5), (7.00), (NULL)", [7, 7.5], [0, 1, 2]),
    "HUGEINT": ("(170141183460469231731687303715884105727::HUGEINT), (1), (NULL)", 2**127 - 1, [0]),
    "UBIGINT": ("(18446744073709551615::UBIGINT), (1), (NULL)", [1, 2**64 - 1], [0, 1]),
    "UTINYINT": ("(255::UTINYINT), (1), (NULL)", (2, None), [0]),
    "ENUM": ("('FR'::ENUM('FR', 'DE')), ('DE'), (NULL)", ["FR", "GB"], [0]),
    "VARCHAR": ("('it''s'), ('its'), (NULL), ('a''; --')", ["it's", "a'; --"], [0, 3]),
}  # fmt: skip


def table_of(cells: str, **options: Any) -> dg.UserTable:
    connection = duckdb.connect(":memory:")
    listed = f"SELECT row_number() OVER () - 1 AS n, 1 AS who, c FROM (VALUES {cells}) AS t(c)"
    connection.execute(f"CREATE TABLE t AS {listed}")
    return dg.read(connection.table("t"), user="who", **options)


@pytest.mark.parametrize("engine", ["duckdb", InMemory])
@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_of_column(name: str, engine: Any) -> None:
    cells, stated, expected = COLUMNS[name]
    with table_of(cells, engine=engine).where(c=stated).open_engine() as opened:
        found = opened.columns([("n", "key")]).column(0).to_pylist()
    assert sorted(found) == expected


def test_regions_of_other_makers_are_read_as_well() -> None:
    """Regions that ``where`` does not state: all but some labels, and every value there is."""
    cells = "('a'), ('b'), (NULL), ('c')"
    table = table_of(cells)
    for values, missing, expected in [
        (LabelSet(("a", "b"), but=True), False, [3]),
        (LabelSet(("a", "b"), but=True), True, [2, 3]),
        (LabelSet(but=True), False, [0, 1, 3]),
    ]:
        region = Region((Side("c", values, missing),))
        source = RegionSource(table.source, region, table.schema, {})
        with duckdb.connect(":memory:") as connection:
            rows = connection.sql(
                f"SELECT n FROM {source.attach(connection)} ORDER BY n"
            ).fetchall()
        assert [n for (n,) in rows] == expected
    whole = Region((Side("n", Span("whole")),))
    source = RegionSource(table.source, whole, table.schema, {})
    with duckdb.connect(":memory:") as connection:
        assert len(connection.sql(f"SELECT n FROM {source.attach(connection)}").fetchall()) == 4


@pytest.mark.parametrize(
    "stated", [{"day": "2026-01-03"}, {"time": "2026-01-03"}, {"code": (3, 4)}]
)
def test_parquet_reads_only_the_region(stated: Any, tmp_path: Path) -> None:
    """The condition reaches the reader of the file, which passes over groups of rows outside."""
    path = tmp_path / "t.parquet"
    made = duckdb.sql(
        "SELECT 1 AS who, i AS code, DATE '2026-01-01' + (i // 1000)::INTEGER AS day, "
        "(DATE '2026-01-01' + (i // 1000)::INTEGER)::TIMESTAMP AS time FROM range(9000) r(i)"
    )
    assert made is not None
    made.write_parquet(str(path))
    table = dg.read(path, user="who").where(stated)
    with duckdb.connect(":memory:") as connection:
        ((_, plan),) = connection.sql(
            f"EXPLAIN SELECT who FROM {table.source.attach(connection)}"
        ).fetchall()
    column = next(iter(stated))
    assert "FILTER" not in plan.replace("Filters", "")
    assert f"{column} >=" in plan.partition("Filters")[2]


def test_curator_sees_only_the_region(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "who,day,paid\n1,2026-01-01,x\n1,2026-01-02,2\n,2026-01-02,y\n2,never,3\n2,2026-02-01,z\n"
    )
    table = dg.read(path, user="who", types={"day": "DATE", "paid": "DOUBLE"}).where(day="2026-01")
    told = {
        words.strip(): int(count.replace(",", ""))
        for count, _, words in (
            line.strip().partition("  ") for line in table.check(value="paid").splitlines()[1:]
        )
    }
    assert told["rows"] == 3
    assert told["rows without a user (dropped)"] == 1
    assert told["users with a record"] == 1
    assert told["non-numeric cells of 'paid' (dropped)"] == 2
    # Line numbers refer to the whole file.
    assert told["lines of CSV, including headers"] == 6
    assert told["CSV lines that are empty or part of an unclosed quote"] == 0


def test_a_source_keeps_its_name_and_files(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("who,c\n1,a\n")
    table = dg.read(path, user="who").where(c="a")
    inner = resolve_source(path)
    assert isinstance(table.source, RegionSource)
    assert (table.source.name, table.source.title) == (inner.name, "t.csv")
    assert table.source.paths == (str(path),)
    assert table.source.columns() == inner.columns()
    assert not isinstance(table.where(c="a").source.source, RegionSource)  # type: ignore[attr-defined]
    assert table_of("('a')").where(c="a").source.paths == ()  # type: ignore[attr-defined]
    assert isinstance(table_of("('a')").source, RelationSource)
