"""Releases of regions: rows outside have no effect, rows inside at most the charged one."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from tests.apart import mu_below
from tests.effort import Effort
from tests.refusals import refuses
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.accounting import Gaussian, Scoped
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.prices import neighbours_for_unit
from dpgrain.publishing.promise import Promise
from dpgrain.scope.partitions import Partition, Rule, period_of
from dpgrain.scope.regions import atoms
from dpgrain.statistics.histogram import HistogramQuery
from dpgrain.statistics.statistic import HISTOGRAM
from dpgrain.tables.engines.kernel import Grid
from dpgrain.tables.user_sums import UserContributions
from dpgrain.testing.engine_contract import RELEASES, some_rows
from dpgrain.units import Level, Relation, Unit

# ------------------------------------------------------------------------- rows outside, bit by bit

REGIONS: dict[str, tuple[dict[str, Any], Callable[[Any], bool]]] = {
    "days": (
        {"day": ("2024-05-02", "2024-05-03")},
        lambda row: row.day is not None and row.day.day in (2, 3),
    ),
    "days and codes": (
        {"day": "2024-05-02", "code": (0, 2)},
        lambda row: row.day == datetime.date(2024, 5, 2) and row.code in (0, 1, 2),
    ),
    "items or none": ({"item": ["a", "x", None]}, lambda row: row.item in ("a", "x", None)),
    "users": ({"who": (0, 20)}, lambda row: row.who is not None and 0 <= row.who <= 20),
}
SCHEMA = pa.schema(
    {
        "who": pa.int64(),
        "item": pa.string(),
        "code": pa.int32(),
        "day": pa.date32(),
        "w": pa.float64(),
    }
)


def item_topic(item: str) -> str:
    return "early" if item < "b" else "late"


def table_of(rows: Sequence[Any], engine: Any) -> dg.UserTable:
    columns = list(zip(*rows, strict=True))
    made = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
    table = dg.read(pa.table(made, schema=SCHEMA), user="who", engine=engine)
    return table.with_cells("topic", of="item", by=item_topic)


def outside(rows: Sequence[Any], inside: Callable[[Any], bool], how: str) -> list[Any]:
    """The rows with those outside the region removed, repeated, or assigned to another user."""
    rng, changed = np.random.default_rng(5), []
    for row in rows:
        if inside(row):
            changed.append(row)
        elif how == "repeated":
            changed += [row] * int(rng.integers(0, 4))
        elif how == "others'":
            # New users far away, huge numbers: nothing that a plan may look at.
            other = row._replace(who=None if row.who is None else row.who + 10**12, w=1e300)
            changed.append(row if inside(other) else other)
    return changed


@pytest.mark.parametrize("how", ["left out", "repeated", "others'"])
@pytest.mark.parametrize("engine", ["duckdb", InMemory])
@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("name", RELEASES)
def test_rows_outside_move_nothing(name: str, region: str, engine: Any, how: str) -> None:
    stated, inside = REGIONS[region]
    rows = some_rows(60)
    others = outside(rows, inside, how)
    assert others != rows
    found, expected = (
        RELEASES[name](table_of(each, engine).where(stated)) for each in (others, rows)
    )
    assert found.to_arrow().equals(expected.to_arrow())
    assert dataclasses.asdict(found.guarantee) == dataclasses.asdict(expected.guarantee)


# ------------------------------------------------------------ rows inside, by no more than is billed


class Row(NamedTuple):
    """One record of the search, with a day, a topic and an item."""

    who: int
    day: datetime.date
    topic: str
    item: str


FIRST = datetime.date(2026, 1, 1)
DAYS = [FIRST + datetime.timedelta(days=i) for i in range(12)]

UNITS: dict[str, Unit] = {
    "record": dg.Record(),
    "user": dg.User(),
    "day": dg.Element("day"),
    "week": dg.Element("week"),
    "topic": dg.Element("topic"),
    "item": dg.Element("item"),
    "two topics": dg.User(2, by="topic"),
    "two days": dg.User(2, by="day"),
}
SCOPES: dict[str, dict[str, Any]] = {
    "everything": {},
    "a day": {"day": "2026-01-04"},
    "a week": {"day": ("2026-01-02", "2026-01-08")},
    "topics": {"topic": ["x", "y"]},
    "a day and topics": {"day": "2026-01-04", "topic": ["x", "y"]},
}
# The promised units, and the cell of a record, if it has one: neighbours differ in one of them.
PROMISED: dict[str, tuple[Level, Partition | None, Callable[[Row], Any]]] = {
    "a record": ("record", None, lambda row: row),
    "a user": ("user", None, lambda _: "all"),
    "a day": ("element", Partition((Rule("day", "day"),)), lambda row: row.day),
    "a day by its name": ("element", Partition((Rule("day"),)), lambda row: row.day),
    "a week": (
        "element",
        Partition((Rule("day", "week"),)),
        lambda row: period_of(row.day, "week")[0],
    ),
    "any three days": (
        "element",
        Partition((Rule("day", "any", days=3),)),
        lambda row: row.day in DAYS[2:5] or None,
    ),
    "a topic": ("element", Partition((Rule("topic"),)), lambda row: row.topic),
    "a day of a topic": (
        "element",
        Partition((Rule("day", "day"), Rule("topic"))),
        lambda row: (row.day, row.topic),
    ),
}
KEYS: dict[str, tuple[str, ...]] = {
    "all": (),
    "item": ("item",),
    "day": ("day",),
    "topic and item": ("topic", "item"),
}


def some(rng: np.random.Generator, number: int, **fixed: Any) -> list[Row]:
    return [
        Row(
            0,
            fixed.get("day", DAYS[rng.integers(len(DAYS))]),
            fixed.get("topic", "xyz"[rng.integers(3)]),
            "abcde"[rng.integers(5)],
        )
        for _ in range(number)
    ]


def neighbours(
    rng: np.random.Generator, promised: str, relation: Relation
) -> tuple[list[Row], list[Row]]:
    _, _, cell = PROMISED[promised]
    rows = some(rng, int(rng.integers(1, 9)))
    # Some repeat, so that one side of a block is far longer than the other.
    rows += [rows[0]] * int(rng.choice([0, 0, 5, 60]))
    inside = [row for row in rows if cell(row) is not None]
    if not inside:
        return rows, rows
    chosen = inside[int(rng.integers(len(inside)))]
    if promised == "a record":
        rest = rows.copy()
        rest.remove(chosen)
        return rows, rest if relation == "zero_out" else [*rest, *some(rng, 1)]
    rest = [row for row in rows if cell(row) != cell(chosen)]
    if relation == "replace":
        drawn = some(rng, 40) + [chosen._replace(item=item) for item in "ae"]
        others = [row for row in drawn if cell(row) == cell(chosen)]
        others = [others[i] for i in rng.integers(0, len(others), int(rng.integers(1, 6)))]
        rest += others * int(rng.choice([1, 20]))
    return rows, rest


def query_of(unit: str, scope: str, keys: str, clip: float) -> HistogramQuery:
    table = dg.read(
        pa.table(
            {"who": pa.array([], pa.int64()), "day": pa.array([], pa.date32()),
             "topic": pa.array([], pa.string()), "item": pa.array([], pa.string())}
        ),
        user="who", engine=InMemory,
    )  # fmt: skip
    return _query(table, unit, scope, keys, clip)


def _query(table: dg.UserTable, unit: str, scope: str, keys: str, clip: float) -> HistogramQuery:
    table = table.where(SCOPES[scope]) if SCOPES[scope] else table
    table = table.with_cells("week", of="day", by=dg.Elements.from_period("week"))
    lists = {"item": list("abcde"), "topic": list("xyz"), "day": [str(day) for day in DAYS]}
    domain: Any = None
    if len(KEYS[keys]) == 1:
        domain = lists[KEYS[keys][0]]
    elif KEYS[keys]:
        domain = {key: lists[key] for key in KEYS[keys]}
    return HistogramQuery.of(
        HISTOGRAM,
        table,
        list(KEYS[keys]),
        promise=Promise(UNITS[unit], 1.0, 1e-6, "zero_out"),
        clip=clip,
        domain=domain,
    )


def sums_of(rows: Sequence[Row], unit: str, scope: str, keys: str, clip: float) -> dict[Any, float]:
    columns = {name: [getattr(row, name) for row in rows] for name in Row._fields}
    kinds = {"who": pa.int64(), "day": pa.date32(), "topic": pa.string(), "item": pa.string()}
    made = pa.table({name: pa.array(columns[name], kind) for name, kind in kinds.items()})
    asked = _query(dg.read(made, user="who", engine=InMemory), unit, scope, keys, clip)
    assert asked.public is not None
    groups, cells = asked.public
    with asked.table.open_engine() as engine:
        data = UserContributions(engine, asked.blocks, groups, cells)
        grid = Grid(np.array([clip]), 30)
        found = data.sums(grid) * grid.step[0]
        known = data.dictionary.groups
    named = zip(*(column.to_pylist() for column in known.columns), strict=True)
    return dict(zip(named if known.names else [()], found.tolist(), strict=True))


def billed(
    unit: str, scope: str, keys: str, clip: float, promised: str, relation: Relation
) -> float:
    """Sensitivity of the sums to a protected unit; infinite if the event raises."""
    asked = query_of(unit, scope, keys, clip)
    guarantee = asked.guarantee(Gaussian(1.0, asked.contribution), ())
    level, cells, _ = PROMISED[promised]
    try:
        question = neighbours_for_unit(guarantee, level, cells, relation)
    except dg.ParameterError:
        return math.inf
    return clip * guarantee.event.loss(question.units, question.relation, question.unit).mu


# One in seven of the product; each value meets each other one.
PRODUCT = list(itertools.product(UNITS, SCOPES, KEYS, PROMISED, ("zero_out", "replace")))[::7]


@pytest.mark.proof("search", "Scoped")
@pytest.mark.slow(cases=8)
@pytest.mark.parametrize(("unit", "scope", "keys", "promised", "relation"), PRODUCT)
def test_no_protected_unit_moves_sums_beyond_the_charge(
    unit: str, scope: str, keys: str, promised: str, relation: Any, effort: Effort
) -> None:
    rng = np.random.default_rng(zlib.crc32(f"{unit} {scope} {keys} {promised}".encode()))
    clip = 2.0
    most = billed(unit, scope, keys, clip, promised, relation)
    if math.isinf(most):
        return
    for _ in effort.some(range(20)):
        one, two = (
            sums_of(rows, unit, scope, keys, clip) for rows in neighbours(rng, promised, relation)
        )
        moved = math.dist([one[key] for key in one], [two[key] for key in one])
        assert moved <= most * (1 + 1e-6) + 1e-6


@pytest.mark.parametrize("first", ["-0044-01-01", "2026-01-01", "12000-01-01"])
@pytest.mark.parametrize("period", ["week", "month", "year"])
def test_periods_of_far_years_are_as_long_as_others(period: Any, first: str) -> None:
    """Dates exceed Python's range of years; windows of 30 days are charged there as well."""
    days = np.datetime64(first, "D").astype(int) + np.arange(30)
    rows = {"who": pa.array([0] * 30), "day": pa.array(days.astype(np.int32), pa.date32())}
    table = dg.read(pa.table(rows), user="who").with_cells(
        "cell", of="day", by=dg.Elements.from_period(period)
    )
    promise = Promise(dg.Element("cell"), 1.0, 1e-6, "zero_out")
    asked = HistogramQuery.of(HISTOGRAM, table, [], promise=promise, clip=1.0, domain=None)
    assert asked.public is not None
    with asked.table.open_engine() as engine:
        grid = Grid(np.array([1.0]), 30)
        moved = UserContributions(engine, asked.blocks, *asked.public).sums(grid) * grid.step[0]
    guarantee = asked.guarantee(Gaussian(1.0, asked.contribution), ())
    any_days = Partition((Rule("day", "any", days=30),))
    question = neighbours_for_unit(guarantee, "element", any_days, "zero_out")
    most = guarantee.event.loss(question.units, question.relation, question.unit).mu
    assert 0.9 < moved.sum() <= most <= 6.0


# Some case must reach the charged sensitivity, or the search found nothing.
TIGHT = [
    ("week", "everything", "item", "a day", "zero_out", math.sqrt(2)),
    ("week", "everything", "all", "a day", "zero_out", 1.0),
    ("user", "everything", "item", "a day", "zero_out", math.sqrt(2)),
    ("user", "a day", "item", "a day", "zero_out", 1.0),
    ("day", "everything", "day", "any three days", "zero_out", math.sqrt(3)),
    ("day", "everything", "item", "any three days", "zero_out", 3.0),
]


@pytest.mark.parametrize(("unit", "scope", "keys", "promised", "relation", "expected"), TIGHT)
def test_charge_is_reached(
    unit: str, scope: str, keys: str, promised: str, relation: Any, expected: float
) -> None:
    assert billed(unit, scope, keys, 1.0, promised, relation) == pytest.approx(expected)
    long, short = [Row(0, FIRST, "x", "a")] * 10**4, [Row(0, FIRST, "x", "b")]
    if unit in ("week", "user") and scope == "everything" and keys == "item":
        # The long day hides the short one, which fills the block when the long one is gone.
        later = [row._replace(day=DAYS[1]) for row in short * 100]
        pair = (long + later, later)
    elif unit == "day":
        pair = ([Row(0, day, "x", "a") for day in DAYS[2:5] for _ in range(5)], [])
    else:
        pair = ([Row(0, DAYS[3], "x", "a")] * 5, [])
    one, two = (sums_of(rows, unit, scope, keys, 1.0) for rows in pair)
    moved = math.dist([one[key] for key in one], [two[key] for key in one])
    assert moved >= 0.98 * expected


@pytest.mark.slow
def test_search_finds_the_pair_of_an_overcharged_block() -> None:
    """The search would detect a day within a weekly block that is charged as a whole block."""
    honest = billed("week", "everything", "item", 2.0, "a day", "zero_out")
    careless = billed("week", "everything", "item", 2.0, "a week", "zero_out")
    rng, worst = np.random.default_rng(3), 0.0
    for _ in range(30):
        pair = neighbours(rng, "a day", "zero_out")
        one, two = (sums_of(rows, "week", "everything", "item", 2.0) for rows in pair)
        worst = max(worst, math.dist([one[key] for key in one], [two[key] for key in one]))
    assert careless * 1.1 < worst <= honest * (1 + 1e-6)


# ------------------------------------------------------------ one file that is read in several ways

# Types of one text column, and its declared regions.
READ_AS: list[tuple[dict[str, str], Any]] = [
    *(({}, value) for value in ("1", "1.0", "true", "2026-01-01", "300", "n/a", None)),
    *(({"x": "DATE"}, value) for value in ("2026-01-01", None)),
    *(({"x": "TIMESTAMP"}, value) for value in ("2026-01-01", "2026-01-02", None)),
    *(({"x": "TIMESTAMP_S"}, value) for value in ("2026-01-01", "2026-01-02", None)),
    *(({"x": "TINYINT"}, value) for value in (1, 300, None)),
    *(({"x": "BIGINT"}, value) for value in (1, 300, None)),
    *(({"x": "DECIMAL(9,1)"}, value) for value in (1, None)),
    *(({"x": "DECIMAL(9,2)"}, value) for value in (1, None)),
    *(({"x": "BOOLEAN"}, value) for value in (True, None)),
    *(({"x": "UUID"}, value) for value in (None,)),
]
WRITTEN = ["1", "1.0", "true", "2026-01-01", "300", "n/a", "", "2026-01-01 23:59:59.9"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:where uses '2026-01-01' as text")
def test_regions_sharing_a_record_under_two_types_overlap(tmp_path: Any) -> None:
    """A record read by two releases is charged twice, whichever types they read."""
    path = tmp_path / "x.csv"
    path.write_text("who,x\n" + "".join(f"{who},{x}\n" for who, x in enumerate(WRITTEN)))
    scopes, held = [], []
    for types, value in READ_AS:
        table = dg.read(str(path), user="who", types=types).where(x=value)
        with table.open_engine() as engine:
            held.append(set(engine.distinct(["who"], None).columns[0].to_pylist()))
        scopes.append(table.scope)
    shared = 0
    for (one, mine), (two, theirs) in itertools.combinations(zip(scopes, held, strict=True), 2):
        if mine & theirs:
            shared += one != two
            assert one.meets(two), (str(one), str(two))
            assert any(len(places) == 2 for places in atoms([one, two]).values())
    assert shared > 20
    # Reading one file in one way distinguishes its values.
    assert not scopes[0].meets(scopes[1])


# ----------------------------------------------------------------------------- releases of many days


@pytest.mark.slow
def test_daily_releases_cost_a_day_as_one_does() -> None:
    rows = [Row(who, day, "x", "a") for who in range(30) for day in DAYS]
    table = dg.read(
        pa.table({name: [getattr(row, name) for row in rows] for name in Row._fields}), user="who"
    )
    unit, promise = dg.Element("day"), {"epsilon": 1.0, "delta": 1e-6}
    daily = [
        dg.count(table.where(day=str(day)), unit=unit, clip=1.0, noise="gaussian", **promise)  # type: ignore[arg-type]
        for day in DAYS
    ]
    together = sum((each.guarantee for each in daily[1:]), start=daily[0].guarantee)
    assert together.epsilon() == pytest.approx(1.0, rel=1e-6)
    assert together.delta == 1e-6
    four = Gaussian(daily[0].guarantee.event.noise_multiplier / 2)  # type: ignore[attr-defined]
    assert together.epsilon(units=4) == pytest.approx(four.epsilon(1e-6), rel=1e-6)
    assert together.scope == table.where(day=("2026-01-01", "2026-01-12")).scope
    assert Guarantee.from_json(together.to_json()) == together
    # A user who is there on all days is bounded, since there are twelve.
    assert math.isfinite(together.epsilon(unit=dg.User()))
    # The same days by another unit, or again, cost what they cost.
    again = together + daily[0].guarantee
    assert again.epsilon(1e-6) == pytest.approx(2.0**0.5, rel=0.05)
    assert again.delta == 2e-6
    # One of two days is charged twice.
    noise = daily[0].guarantee.event.noise_multiplier  # type: ignore[attr-defined]
    two = Gaussian(noise, count=3)
    assert again.epsilon(1e-6, units=2) == pytest.approx(two.epsilon(1e-6), rel=1e-6)


AUDITED = 20_000


def sums_of_days(
    days: Sequence[str], present: bool, read: Sequence[str] = ("monday", "tuesday")
) -> tuple[NDArray[np.float64], dg.Guarantee]:
    """The sums of two releases of one day each; on some days each user has a separate item."""
    rows = [(user, day) for day in days for user in range(AUDITED)] if present else []
    table = dg.read(
        pa.table(
            {
                "who": pa.array([user for user, _ in rows], pa.int64()),
                "item": pa.array([user for user, _ in rows], pa.int64()),
                "day": pa.array([day for _, day in rows], pa.string()),
            }
        ),
        user="who",
    )
    releases = [
        dg.histogram(
            table.where(day=day), "item", unit=dg.Element("day"), domain=np.arange(AUDITED),
            clip=1.0, epsilon=3.0, delta=1e-6, noise="gaussian",
        )
        for day in read
    ]  # fmt: skip
    seen = [each.estimate[np.argsort(each.items.to_numpy())] for each in releases]
    return seen[0] + seen[1], releases[0].guarantee + releases[1].guarantee


@pytest.mark.slow
@pytest.mark.proof("audit", "Scoped")
def test_audit_of_releases_of_two_days() -> None:
    nobody, promise = sums_of_days(["monday", "tuesday"], present=False)
    event = promise.event
    assert isinstance(event, Scoped)
    # The sum of two days has √2 times the noise: of both, √2·μ is all that can be seen of two days.
    claimed = event.loss(2).mu
    both = mu_below(sums_of_days(["monday", "tuesday"], present=True)[0], nobody)
    assert 0.85 * claimed < both <= claimed
    # One day reveals less than its guarantee, because the other day is pure noise.
    one = mu_below(sums_of_days(["tuesday"], present=True)[0], nobody)
    assert 0.5 * event.loss(1).mu < one <= event.loss(1).mu
    # The price of one day would be false of two.
    assert both > event.loss(1).mu


@pytest.mark.proof("audit", "Scoped")
def test_audit_of_a_day_released_twice() -> None:
    twice = ("monday", "monday")
    nobody = sums_of_days([], present=False, read=twice)[0]
    there, promise = sums_of_days(["monday"], present=True, read=twice)
    beside = sums_of_days([], present=False)[1]
    # Next to another day both of its releases are still charged.
    event = (promise + beside).event
    assert isinstance(event, Scoped)
    found = mu_below(there, nobody)
    assert 0.5 * event.loss(1).mu < found <= promise.event.loss(1).mu <= event.loss(1).mu


def test_regions_splitting_units_compose_as_usual() -> None:
    """A user's day may have records in both countries, and a user in both months."""
    table = table_of(some_rows(20), "duckdb")
    promise: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
    split: list[tuple[Unit, list[dict[str, Any]]]] = [
        (dg.Element("day"), [{"item": "a"}, {"item": "x"}]),
        (dg.User(), [{"day": "2024-05-01"}, {"day": "2024-05-02"}]),
    ]
    for unit, regions in split:
        one, two = (
            dg.count(
                table.where(region), unit=unit, clip=1.0, noise="gaussian", **promise
            ).guarantee
            for region in regions
        )
        both = one + two
        assert both.epsilon(1e-6) == pytest.approx((one.event + two.event).epsilon(1e-6), rel=1e-9)
        assert both.epsilon(1e-6) > 1.3
        assert both.delta == 2e-6
    # Each record is in one of them, and users in one list of users.
    apart: list[tuple[Unit, list[dict[str, Any]]]] = [
        (dg.Record(), [{"item": "a"}, {"item": "x"}]),
        (dg.User(), [{"who": (0, 4)}, {"who": (5, 9)}]),
    ]
    for unit, regions in apart:
        one, two = (
            dg.count(
                table.where(region), unit=unit, clip=1.0, noise="gaussian", **promise
            ).guarantee
            for region in regions
        )
        assert (one + two).epsilon(1e-6) == pytest.approx(one.epsilon(1e-6), rel=1e-9)
    # An exchanged record leaves one region and enters the other.
    exchanged = (
        dg.count(
            table.where(item=item), unit=dg.Record(), clip=1.0, relation="replace",
            noise="gaussian", **promise,
        ).guarantee
        for item in ("a", "x")
    )  # fmt: skip
    moved = next(exchanged) + next(exchanged)
    assert moved.epsilon(1e-6) > 1.3


def test_public_domains_may_reach_beyond_a_region() -> None:
    """Groups outside have only noise, and a person still has one element inside."""
    table = table_of(some_rows(30), "duckdb").where(day="2024-05-02")
    listed = ["2024-05-01", "2024-05-02", "2024-05-03"]
    release = dg.histogram(
        table, "day", unit=dg.Element("day"), domain=listed, epsilon=5.0, delta=1e-6, random_state=1
    )
    assert len(release) == 3
    assert release.guarantee.epsilon(units=9) == pytest.approx(release.guarantee.epsilon())
    counted: defaultdict[str, float] = defaultdict(float)
    for row in release.to_arrow().to_pylist():
        counted[row["day"]] += row["estimate"]
    assert counted["2024-05-02"] > 10


def test_column_read_in_two_ways_is_two_partitions(tmp_path: Path) -> None:
    """The texts "7.2" and "6.9" are two cells, and the whole number 7 is one."""
    path = tmp_path / "rows.csv"
    path.write_text("who,x\n1,7.2\n1,6.9\n2,7\n")
    made = [
        dg.count(
            dg.read(path, user="who", types=types), unit=dg.Element("x"), clip=1.0, epsilon=0.5,
            delta=1e-7,
        )
        for types in ({}, {"x": "INTEGER"}, {})
    ]  # fmt: skip
    text, number, again = (release.guarantee for release in made)
    assert text.partition is not None
    assert number.partition is not None
    assert number.partition.compared(text.partition) is None
    assert text + again is not None
    with refuses("guarantees", "types="):
        _ = text + number
    with dg.budget(2.0, 1e-6) as budget:
        budget.charge(text)
        with refuses("guarantees", "types="):
            budget.charge(number)


def test_decimal_marks_are_distinguished(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('who,x\n1,"1,5"\n2,1.5\n')
    types = {"x": "DECIMAL(9,2)"}
    points, commas = (
        dg.read(path, user="who", types=types, decimal=mark).where(
            x=None if mark == "," else "1.50"
        )
        for mark in (".", ",")
    )
    assert points.scope.meets(commas.scope)
