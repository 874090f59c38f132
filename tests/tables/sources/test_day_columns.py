"""Dates of timestamps: an engine's day, a region's contents and the charged day agree."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pytest
from tests.refusals import refuses
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.ledger import AnyDays
from dpgrain.scope.partitions import Partition, Rule
from dpgrain.scope.regions import Region, Side, Span
from dpgrain.scope.zones import offsets

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
ZONES = ("Europe/Paris", "America/St_Johns", "Pacific/Apia", "America/Sao_Paulo", "UTC")


def moments(zone: str, number: int = 300) -> list[dt.datetime]:
    draws = random.Random(zone)
    changes = [EPOCH + dt.timedelta(microseconds=begin) for begin, _ in offsets(zone)[1:]]
    known = [change for change in changes if 1900 < change.year < 2050]
    seconds = (-86_400, -3600, -60, 0, 60, 3599, 3600, 86_400)
    ticks = (second * 10**6 + more for second in seconds for more in (-1, 0, 1))
    steps = [dt.timedelta(microseconds=tick) for tick in ticks]
    around = [draws.choice(known) + draws.choice(steps) for _ in range(number if known else 0)]
    year = 365 * 24 * 3600
    others = [EPOCH + dt.timedelta(seconds=draws.randrange(-1000 * year, 6000 * year))
              for _ in range(number)]  # fmt: skip
    return [*around, *others]


def found(column: pa.Array, zone: str | None) -> list[Any]:
    table = dg.read(pa.table({"n": range(len(column)), "at": column}), threads=1)
    with table.with_days("day", "at", zone).open_engine() as engine:
        rows = engine.columns([("n", "as it is"), ("day", "text")])
    return [
        day for _, day in sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
def test_timestamp_has_the_displayed_day(zone: str) -> None:
    times = moments(zone)
    expected = [time.astimezone(ZoneInfo(zone)).date().isoformat() for time in times]
    assert found(pa.array(times, pa.timestamp("us", "UTC")), zone) == expected


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamp_without_zone_has_its_written_day(unit: str) -> None:
    last = {"s": 0, "ms": 999_000, "us": 999_999, "ns": 999_999}[unit]
    times = [dt.datetime(2026, 3, 29, 23, 59, 59, last), dt.datetime(2026, 3, 30), None,
             dt.datetime(1969, 12, 31, 23, 59, 59, last), dt.datetime(1970, 1, 1)]  # fmt: skip
    array = pa.array(times, pa.timestamp(unit))
    if unit == "ns":
        # The last nanosecond of a day belongs to it.
        counted = array.cast(pa.int64()).to_pylist()
        for place in (0, 3):
            counted[place] += 999
        array = pa.array(counted).cast(pa.timestamp("ns"))
    assert found(array, None) == ["2026-03-29", "2026-03-30", None, "1969-12-31", "1970-01-01"]


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_NS", "TIMESTAMP_S"])
@pytest.mark.parametrize("zone", ["Europe/Paris", "Pacific/Kiritimati"])
def test_no_time_is_rejected_for_its_value(kind: str, zone: str) -> None:
    """Infinite times and those at the ends of the type have some day, or none."""
    ends = {
        "TIMESTAMP_NS": ("1677-09-22", "2262-04-11"),
        "TIMESTAMP_S": ("0001-01-01", "9999-12-31"),
    }
    low, high = ends.get(kind, ("290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54.775806"))
    stated = ("infinity", "-infinity", low, high, "2026-01-01")
    # The default connection retains the zone of the test that used it first.
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    rows = connection.sql(
        " UNION ALL ".join(
            f"SELECT {n} AS n, '{s}'::{kind} AS \"at\"" for n, s in enumerate(stated)
        )
    )
    table = dg.read(rows, rows="as given")
    table = table.with_days("day", "at", zone if kind == "TIMESTAMPTZ" else None)
    with table.open_engine() as engine:
        days = engine.columns([("day", "text")]).column(0).to_pylist()
    assert len(days) == 5
    assert {"infinity", "-infinity"} <= set(days)
    assert "2026-01-01" in days


@pytest.mark.parametrize("zone", ZONES)
def test_region_of_days_is_charged_to_each_records_day(zone: str) -> None:
    """Every timestamp in a day's region has its day charged, as the engine computes it."""
    times = moments(zone, 60)
    known = [time for time in times if 2 < time.year < 9998]
    table = dg.read(pa.table({"at": pa.array(known, pa.timestamp("us", "UTC"))})).with_days(
        "day", "at", zone
    )
    rule, week = Partition((Rule("at", "day", zone),)), AnyDays(7, "at", zone)
    for time in known:
        shown = time.astimezone(ZoneInfo(zone)).date()
        moment = (time - EPOCH) // dt.timedelta(microseconds=1)
        point = Region((Side("at", Span("instant", moment, moment + 1)),))
        held = []
        for step in (-1, 0, 1):
            try:
                region = table.where(day=shown + dt.timedelta(days=step)).scope
            except dg.ParameterError:
                assert zone == "Pacific/Apia", "no day but one that was skipped is empty"
                continue
            if not region.meets(point):
                continue
            held.append(step)
            (side,) = region.sides
            assert point.within(rule.whole_cells(region))
            assert isinstance(side.values, Span)
            first, end = week.starts(side.values)
            number = shown.toordinal() - 719_163
            assert first is not None
            assert end is not None
            assert first <= number - 6 < end
            assert first <= number < end
        # The days' regions are a partition: each timestamp is in one of them.
        assert len(held) == 1
        assert held == [0] or zone == "America/St_Johns"


def test_days_are_of_times_and_have_new_names() -> None:
    table = dg.read(pa.table({"who": [1], "at": pa.array([EPOCH]), "day": [dt.date(2026, 1, 1)],
                              "naive": [dt.datetime(2026, 1, 1)]}), user="who")  # fmt: skip
    for words, told in (
        (("day", "at"), "name must be a new column name"),
        (("d", "who"), "of 'who' must contain timestamps, not have type BIGINT"),
        (("d", "none"), "not a column of the table"),
        (("d", "at", "Mars/Base"), "zone must be a zone such as"),
        (("d", "naive", "UTC"), "zone must be omitted"),
    ):
        with pytest.raises((dg.ParameterError, dg.SchemaError), match=told):
            table.with_days(*words)
    with refuses("by", "'day'", kind=dg.SchemaError):
        dg.count(table, by="at", unit=dg.User(), epsilon=1.0, delta=1e-6)
    with refuses("where", "2"):
        table.with_days("d", "at", "Europe/Paris").where(d=("0001-01-01", "2026-01-01"))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["duckdb", InMemory])
def test_days_define_groups_regions_cells_and_elements(engine: Any) -> None:
    times = [
        dt.datetime(2026, 3, 28, 22, 30, tzinfo=dt.UTC) + dt.timedelta(hours=h) for h in range(60)
    ]
    rows = pa.table({"who": [n % 3 for n in range(60)], "at": pa.array(times)})
    table = dg.read(rows, user="who", engine=engine).with_days("day", "at", "Europe/Paris")
    table = table.with_cells("week", "day", dg.Elements.from_period("week"))
    sure: Any = {"clip": 60.0, "epsilon": 1e6, "delta": 1e-9, "random_state": 1}
    public = [f"2026-03-{day}" for day in range(28, 32)]
    days = dg.count(table, by="day", unit=dg.Element("day"), domain=public, **sure)
    read = dict(zip(days.to_pandas()["day"], days.estimate.round(), strict=True))
    assert read == {"2026-03-28": 1, "2026-03-29": 23, "2026-03-30": 24, "2026-03-31": 12}
    assert days.guarantee.partition == Partition((Rule("at", "day", "Europe/Paris"),))
    assert "the day of 'at' (Europe/Paris)" in str(days.guarantee)
    weeks = dg.count(table, unit=dg.Element("week"), **sure)
    assert weeks.guarantee.partition == Partition((Rule("at", "week", "Europe/Paris"),))
    one = table.where(day="2026-03-29")
    assert dg.count(one, unit=dg.Element("day"), **sure).estimate.round() == [23]
    # The day and its source timestamps may both be stated.
    part = one.where(at=("2026-03-29T12", None))
    assert dg.count(part, unit=dg.Element("day"), **sure).estimate.round() == [10]
    same = table.where(day="2026-03-29", at=("2026-03-29T12", None))
    assert same.scope == part.scope
    both = dg.count(one.where(day=("2026-03-28", "2026-03-29")), unit=dg.Element("day"), **sure)
    assert both.guarantee.scope == one.scope
    with pytest.raises(dg.ParameterError, match="region is empty"):
        one.where(day="2026-03-30")
    assert list(itertools.chain(table.days)) == ["day"]
