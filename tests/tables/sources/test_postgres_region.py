"""Regions that a PostgreSQL server selects: the same rows as DuckDB's, in every type of column."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import duckdb
import pytest
from tests.effort import Effort
from tests.tables.sources.databases import Database, database, missing

import dpgrain as dg
from dpgrain.scope.regions import LabelSet, Region, Side, Span, Values
from dpgrain.tables.sources.postgres import PostgresSession, PostgresSource, SelectedRows
from dpgrain.tables.sources.source import RegionSource, RowSource, transaction

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "all is there")

DAY = 24 * 60 * 60 * 10**6
LONG = "x" * 65_536
TEXTS = ["a", "A", "a ", " a", "", "ß", "ss", "é", "e\u0301", "it's", "a\\", "\\x61", "日本", LONG]
# Column → its type, and its values in the table; each column also has NULL.
COLUMNS: dict[str, tuple[str, list[str]]] = {
    "small": ("smallint", ["-32768", "-1", "0", "1", "2", "32767"]),
    "whole": ("integer", ["-2147483648", "-1", "0", "1", "2", "2147483647"]),
    "big": ("bigint", ["-9223372036854775808", "-1", "0", "1", "2", "9223372036854775807"]),
    "truth": ("boolean", ["true", "false"]),
    "day": ("date", ["infinity", "-infinity", "4713-01-01 BC", "0001-01-01", "0044-03-15",
                     "1969-12-31", "2026-01-01", "2026-01-02", "9999-12-31", "5874897-12-31"]),
    "at": ("timestamp", ["infinity", "-infinity", "4713-01-01 BC", "0001-01-01", "2026-01-01",
                         "1969-12-31 23:59:59.999999", "2026-01-01 23:59:59.999999", "2026-01-02",
                         "294246-12-31", "294276-12-31"]),
    "moment": ("timestamptz", ["infinity", "-infinity", "4713-01-01 BC", "294246-12-31 23:59:59+00",
                               "1969-12-31 23:59:59.999999+00", "2026-01-01 00:00+00",
                               "2026-01-01 23:59:59.999999+00", "2026-01-02 00:00+05:30",
                               "294247-01-01 03:00+00", "294276-12-31"]),
    "label": ("text", [*TEXTS, f"{LONG}x"]),
    "loose": ("text COLLATE loosest", TEXTS),
    "short": ("varchar(9)", TEXTS[:-1]),
    # The reader decides these.
    "padded": ("char(4)", ["a", "ab"]),
    "amount": ("numeric(9, 2)", ["1.00", "NaN"]),
}  # fmt: skip
DECIDED_HERE = ("padded", "amount")
INTEGERS = {"small": 15, "whole": 31, "big": 63}
TIMES = {"day": "date", "at": "time", "moment": "instant"}
# Days near those of the table, and beyond all years of the server.
DAYS = [
    -(9 * 10**7), -719_162, -703_324, -1, 0, 20_454, 20_455, 20_456, 2_932_896, 2_932_897, 9 * 10**7
]  # fmt: skip
# Session settings that change how constants are read.
SETTINGS = (
    "?options=-cDateStyle%3DGerman%20-cTimeZone%3DAsia/Kolkata"
    "%20-cstandard_conforming_strings%3Doff"
)


def written(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    draw = random.Random(5)
    rows = []
    for n in range(200):
        cells = [
            "NULL" if draw.random() < 0.1 else written(draw.choice(values))
            for _, values in COLUMNS.values()
        ]
        rows.append(f"({n}, {n % 40}, {', '.join(cells)})")
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    with database() as made:
        made.run(
            "CREATE COLLATION loosest "
            "(provider = icu, locale = 'und-u-ks-level1', deterministic = false)",
            f"CREATE TABLE odd (n int, who int, {columns})",
            f"INSERT INTO odd VALUES {', '.join(rows)}",
        )
        yield made


@pytest.fixture
def table(server: Database) -> dg.UserTable:
    return dg.read(server.address + SETTINGS, table="odd", user="who")


def side_of(column: str, draw: random.Random) -> Side:
    values: Values
    kind, ends = draw.random(), [draw.random() < 0.8, draw.random() < 0.8]
    if column in INTEGERS:
        limits = (s * 2 ** INTEGERS[column] + i for s in (-1, 1) for i in (-1, 0, 1))
        near = [*range(-2, 4), *limits, 2**70]
        low, high = sorted(draw.sample(near, 2))
        values = Span("whole", low if ends[0] else None, high if ends[1] else None)
        if kind < 0.4:
            values = LabelSet(tuple(draw.sample(near, 3)))
    elif column in TIMES:
        near = [day * DAY for day in DAYS]
        if column != "day":
            near = [each + draw.choice((-1, 0, 1)) for each in near]
        low, high = sorted(draw.sample(near, 2))
        axis: Any = TIMES[column]
        values = Span(axis, low if ends[0] else None, high if ends[1] else None)
    elif column == "truth":
        values = LabelSet(tuple(draw.sample(["true", "false", "TRUE", "1"], 2)))
    elif column == "amount":
        values = LabelSet(("1.00",))
    else:
        values = LabelSet(tuple(draw.sample([*TEXTS, "a\0", f"{LONG}x", "b"], 4)))
    if kind > 0.9 and isinstance(values, LabelSet):
        values = LabelSet(values.labels, but=True)
    side = Side(column, values, draw.random() < 0.3)
    return side if side else Side(column, LabelSet(), missing=True)


@cache
def reader() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:")


def numbers_of(source: RowSource) -> list[int]:
    with reader().cursor() as connection, transaction(source, connection):
        connection.execute("SET TimeZone = 'UTC'; SET VARIABLE memory = 1000000000")
        rows = connection.sql(f"SELECT n FROM {source.attach(connection, ['n'])} ORDER BY n")
        return [n for (n,) in rows.fetchall()]


@pytest.mark.parametrize("column", COLUMNS)
def test_the_server_selects_the_same_rows(column: str, table: dg.UserTable, effort: Effort) -> None:
    draw = random.Random(column)
    decided = 0
    for _ in effort.some(range(24)):
        other = draw.choice([each for each in COLUMNS if each != column])
        region = Region((side_of(column, draw), side_of(other, draw)))
        source = RegionSource(table.source, region, table.schema, {})
        assert region.everything or numbers_of(source.selected()) == numbers_of(source), region
        one = RegionSource(table.source, region.only([column]), table.schema, {})
        decided += not one.region.everything and isinstance(one.selected(), SelectedRows)
    assert (decided == 0) == (column in DECIDED_HERE)


STATED: dict[str, dict[str, Any]] = {
    "one day": {"day": "2026-01-01"},
    "days or none": {"day": ["2026-01-01..2026-01-02", None]},
    "from a time": {"at": ("2026-01-01T12", None)},
    "a month of moments": {"moment": "2026-01"},
    "integers": {"small": (0, 2), "big": [0, 2, 2**63 - 1]},
    "labels": {"label": ["a", "it's", "é"], "loose": "A"},
    "booleans": {"truth": True},
    "one here, one there": {"day": "2026", "amount": 1},
}
RELEASES: dict[str, Callable[..., Any]] = {
    "counts": lambda t, **o: dg.count(t, by="short", domain=["a", "A", "ß", ""], **o),
    "histogram": lambda t, **o: dg.histogram(t, "small", **o),
    "mean": lambda t, **o: dg.mean(t, "whole", bounds=(0, 2), **o),
    "records": lambda t, **o: dg.count(t, **{**o, "unit": dg.Record()}),
    "people": lambda t, **o: dg.mean(t.per_user(n="count()"), "n", bounds=(0, 9), **o),
}


@pytest.mark.parametrize("kind", RELEASES)
@pytest.mark.parametrize("stated", STATED)
def test_the_release_is_the_same(
    kind: str, stated: str, table: dg.UserTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, whether the server or the reader decides the region."""
    options: dict[str, Any] = {
        "unit": dg.User(), "epsilon": 50.0, "delta": 1e-6, "random_state": 1,
    }  # fmt: skip
    inside = table.where(STATED[stated])
    conditions: list[str] = []
    fetch = PostgresSession._fetch

    def noted(self: PostgresSession, columns: list[str], grouped: bool, condition: str) -> str:
        conditions.append(condition)
        return fetch(self, columns, grouped, condition)

    monkeypatch.setattr(PostgresSession, "_fetch", noted)
    there = RELEASES[kind](inside, **options)
    assert all(conditions)
    monkeypatch.setattr(PostgresSource, "select", lambda self, region: (self, region))
    here = RELEASES[kind](inside, **options)
    assert not conditions[-1]
    assert there.to_arrow().equals(here.to_arrow())
    assert there.guarantee == here.guarantee


def test_derived_columns_do_not_stop_the_server(table: dg.UserTable) -> None:
    derived = table.derive(year="year(day)").filter("whole > 0").with_days("date", of="at")
    source: Any = derived.where(date="2026-01-01").source
    assert numbers_of(source.selected()) == numbers_of(source)
    inner = source.selected()
    while not isinstance(inner, SelectedRows):
        inner = inner.source
    assert inner.condition.startswith("(\"at\" >= '2026-01-01 00:00:00'")


def test_regions_of_a_query_are_decided_here(server: Database) -> None:
    """It may give other rows each time, and a condition could change where it fails."""
    query = dg.read(server.address, query="SELECT who, day FROM odd", user="who", rows="as given")
    source: Any = query.where(day="2026-01-01").source
    assert isinstance(source.selected(), RegionSource)
    assert isinstance(source.selected().source, PostgresSource)


def test_two_regions_of_a_table_are_two_readings(
    table: dg.UserTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One session serves a table that is joined with itself."""
    one = table.where(small=(0, 2)).per_user(few="count()")
    other = table.where(small=(-1, 0)).per_user(more="count()")
    values = []
    for _ in range(2):
        with one.join(other).open_engine() as engine:
            rows = engine.query("SELECT who, few, more FROM source ORDER BY who", ["few", "more"])  # type: ignore[attr-defined]
        values.append(rows.to_pylist())
        monkeypatch.setattr(PostgresSource, "select", lambda self, region: (self, region))
    assert values[0] == values[1]
    assert any(row["few"] != row["more"] for row in values[0])


@pytest.mark.parametrize("memory", ["64kB", "256MB"])
def test_the_plan_chooses_between_groups_and_rows(
    memory: str, server: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sorting all rows takes longer than sending them; a hash table of groups does not."""
    server.run(
        "CREATE TABLE IF NOT EXISTS many AS SELECT i % 5000 AS who, 'page ' || i % 7 AS page "
        "FROM generate_series(1, 50000) i",
        "ANALYZE many",
    )
    chosen: list[bool] = []
    fetch = PostgresSession._fetch

    def noted(self: PostgresSession, columns: list[str], grouped: bool, condition: str) -> str:
        chosen.append(grouped)
        return fetch(self, columns, grouped, condition)

    monkeypatch.setattr(PostgresSession, "_fetch", noted)
    table = dg.read(f"{server.address}?options=-cwork_mem%3D{memory}", table="many", user="who")
    release = dg.count(
        table, by="page", domain=["page 1"], unit=dg.User(), epsilon=90.0, delta=1e-6, clip=10.0
    )
    assert chosen == [memory == "256MB"]
    assert release.value == pytest.approx(7143, abs=30)
