"""Neighbours differ by the stated number of units, and by nothing else."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.auditing.worst_case_tables import (
    NeighbourTables,
    neighbour_tables,
    query_table,
    replace_rows,
)
from dpgrain.units import RELATIONS, Relation, Unit

ROWS = pa.table(
    {
        "who": ["ann", "bob"],
        "page": ["a", "b"],
        "day": pa.array([19000, 19001], pa.date32()),
        "paid": [1.0, 2.0],
        "hits": pa.array([1, 2], pa.int32()),
        "due": pa.array([None, None], pa.decimal128(9, 2)),
        "at": pa.array([0, 1], pa.timestamp("us")),
        "ok": [True, False],
        "odd": [[1], [2]],
    }
)
SHELVES = {"a": "up", "b": "up", "c": "down"}
UNITS: dict[str, Unit] = {
    "record": dg.Record(),
    "column": dg.Element("page"),
    "mapping": dg.Element(SHELVES),
    "derived": dg.Element("month"),
    "user": dg.User(),
}


def query(unit: Unit, **how: Any) -> Any:
    table = dg.read(ROWS, user="who").derive(month="month(day)")
    promise = {"epsilon": 1.0, "delta": 1e-6, "bounds": (0, 5), **how}
    return dg.sum.query(table, "paid", by="page", domain=["a", "b", "c"], unit=unit, **promise)


def rows_of(table: pa.Table) -> Counter[tuple[Any, ...]]:
    columns = [name for name in table.column_names if name != "odd"]
    return Counter(map(tuple, table.select(columns).to_pandas().astype(str).to_numpy().tolist()))


def units_of(name: str, table: pa.Table, rows: Counter[tuple[Any, ...]]) -> set[Any]:
    place = {column: n for n, column in enumerate(n for n in table.column_names if n != "odd")}
    found = set()
    for n, row in enumerate(rows.elements()):
        who, page, day = row[place["who"]], row[place["page"]], row[place["day"]]
        found.add(
            {"record": n, "column": (who, page), "mapping": (who, SHELVES.get(page, page)),
             "derived": (who, day[:7]), "user": who}[name]
        )  # fmt: skip
    return found


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("units", [1, 2])
@pytest.mark.parametrize("name", UNITS)
def test_neighbours_differ_by_units(name: str, units: int, relation: Relation) -> None:
    made = list(neighbour_tables(query(UNITS[name]), units, relation, 3))
    assert made
    for pair in made:
        one, other = rows_of(pair.one), rows_of(pair.other)
        more, less = one - other, other - one
        if relation == "zero_out":
            assert not less
        changed = units_of(name, pair.one, more) | units_of(name, pair.other, less)
        assert len(changed) <= units, pair.description
        if name != "user":
            people = pair.one.column_names.index("who")
            assert len({row[people] for row in (*more, *less)}) <= 1


def test_extremes_equal_the_public_bounds() -> None:
    said = [pair.description for pair in neighbour_tables(query(dg.User()), 1, "zero_out", 0)]
    assert any("numbers 5" in words for words in said)
    assert any("20 records in different groups" in words for words in said)
    (one,) = neighbour_tables(query(dg.User()), 1, "zero_out", 0, like=said[0])
    assert one.description == said[0]


def test_regions_and_domains_decide_values() -> None:
    table = dg.read(ROWS, user="who").where(day="2026-01")
    asked = dg.histogram.query(table, "page", domain=["x"], unit=dg.User(), epsilon=1.0, delta=1e-6)
    pair = next(neighbour_tables(asked, 1, "zero_out", 0))
    assert set(pair.one["page"].to_pylist()) == {"x"}
    assert {str(day)[:7] for day in pair.one["day"].to_pylist()} == {"2026-01"}


def test_cell_count_equals_the_partition_size() -> None:
    asked = query(dg.Element(SHELVES))
    assert list(neighbour_tables(asked, 2, "zero_out", 0))
    assert not list(neighbour_tables(asked, 3, "zero_out", 0))


@pytest.mark.parametrize("zone", [None, "Europe/Paris"])
def test_days_of_times_are_separate_cells(zone: str | None) -> None:
    """There are more of them than the fewest values of any column; "ok" has two."""
    moments = pa.array([0, 1], pa.timestamp("us", "UTC" if zone else None))
    rows = ROWS.set_column(ROWS.column_names.index("at"), "at", moments)
    table = dg.read(rows, user="who").with_days("date", of="at", zone=zone)
    weeks = table.with_cells("week", of="date", by=dg.Elements.from_period("week"))
    for at, unit in ((table, dg.Element("date")), (weeks, dg.Element("week"))):
        asked = dg.count.query(at, unit=unit, epsilon=1.0, delta=1e-6)
        pair = next(neighbour_tables(asked, 4, "zero_out", 0))
        gone, place = rows_of(pair.one) - rows_of(pair.other), list(ROWS.column_names).index("at")
        assert len({row[place] for row in gone}) == 4
    if zone:
        # This day has 25 hours there: its first and its last hour are of one cell.
        autumn = table.where(date="2025-10-26")
        asked = dg.count.query(autumn, unit=dg.Element("date"), epsilon=1.0, delta=1e-6)
        assert list(neighbour_tables(asked, 1, "zero_out", 0))
        assert not list(neighbour_tables(asked, 2, "zero_out", 0))


def test_periods_of_days_are_separate_cells() -> None:
    table = dg.read(ROWS, user="who").with_cells(
        "week", of="day", by=dg.Elements.from_period("week")
    )
    asked = dg.count.query(table, unit=dg.Element("week"), epsilon=1.0, delta=1e-6)
    assert list(neighbour_tables(asked, 4, "zero_out", 0))


def test_real_rows_are_common_to_neighbours() -> None:
    asked = query(dg.User())
    for pair in neighbour_tables(asked, 1, "zero_out", 0, real=ROWS):
        assert pair.other.slice(0, 2).equals(ROWS)
        assert pair.one.num_rows > pair.other.num_rows == 2


@pytest.mark.parametrize("users", [[0, 1, 3], ["0", "2", None], ["ann", "ann", "0"]])
def test_synthetic_people_differ_from_real_ones(users: list[Any]) -> None:
    """One more person among them is one more, and no more rows of a real one."""
    rows = pa.table({"who": users, "page": ["a", "b", "a"]})
    asked = dg.count.query(dg.read(rows, user="who"), unit=dg.User(), epsilon=1.0, delta=1e-6)
    for pair in neighbour_tables(asked, 2, "zero_out", 0, real=rows):
        made = set(pair.one.slice(3)["who"].to_pylist())
        assert len(made) == 2
        assert not made & set(users)


def test_other_rows_replace_the_read_ones() -> None:
    asked = query(dg.User())
    pair: NeighbourTables = next(neighbour_tables(asked, 1, "zero_out", 0))
    made = replace_rows(query_table(asked).source, pair.one)
    assert made.columns() == query_table(asked).source.columns()


def test_foreign_rows_are_rejected() -> None:
    with refuses("query", "dg.read"):
        query_table(object())  # type: ignore[arg-type]
    people = dg.read(ROWS, user="who").per_user(spent="total(paid)")
    others = dg.read(ROWS, user="who").per_user(most="max(paid)")
    assert query_table(dg.mean.query(people, "spent", unit=dg.User(), epsilon=1.0, bounds=(0, 9)))
    joined = people.join(others)
    with refuses("query", "joined"):
        query_table(dg.mean.query(joined, "spent", unit=dg.User(), epsilon=1.0, bounds=(0, 9)))


def test_user_fills_all_counted_elements() -> None:
    table = dg.read(ROWS, user="who")
    asked = dg.count.query(table, unit=dg.User(3, by="page"), clip=5.0, epsilon=1.0, delta=1e-6)
    fullest = max(
        min(Counter(pair.one.filter(pc.equal(pair.one["who"], "0"))["page"].to_pylist()).values())
        for pair in neighbour_tables(asked, 1, "zero_out", 0)
        if "in 3 groups" in pair.description
    )
    assert fullest == 20
