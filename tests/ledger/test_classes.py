"""Accounts against a count of all units, under a random algebra of regions, windows and renewals.

Here the true charge is counted: a world has a few hundred records, a unit is a set of them, and a
release is charged to a unit if one of its records is in the region, by definition. Each record
belongs to one class, and its account equals the unit's charge, or exceeds it if columns are read in
two ways.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

import pytest
from tests.effort import Effort
from tests.ledger import cases
from tests.memory import folder_in_memory

import dpgrain as dg
from dpgrain import _validate
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.ledger import AnyDays, AnyHours, LastingPromise
from dpgrain.ledger.price_units import Units
from dpgrain.ledger.stores.store_protocol import START, CellRange, Transaction
from dpgrain.ledger.window import TimeWindow
from dpgrain.scope.partitions import Partition, Rule
from dpgrain.scope.regions import DAY, Axis, LabelSet, Region, Side, Span, Values

PARIS = ZoneInfo("Europe/Paris")
HOUR = DAY // 24
# Around the night of the change to summer time in Paris.
FIRST = int(datetime(2026, 3, 27, tzinfo=UTC).timestamp()) * 10**6
ONE = Contribution(block="user", coordinates="one")


class Row(NamedTuple):
    """A record: a code as text, which may be read as a number; a country; and its creation time."""

    code: str | None
    country: str | None
    at: int | None


# Labels of the regions, and one more label outside all of them.
NAMED = {"code": ("1", "01", "2", "7", "x"), "country": ("DE", "FR", "IT")}
CODES = (*NAMED["code"], "y", None)
COUNTRIES = (*NAMED["country"], "ES", None)
# One step of time by counting rule; six-hour steps are on both sides of a clock change.
STEPS: dict[Axis, int] = {"whole": 1, "date": DAY, "time": 12 * HOUR, "instant": 6 * HOUR}
TIMES = 10
# Units by guarantee: from a record to all units that contain it.
Truth: TypeAlias = Callable[[Row], list[Hashable]]


@dataclass(frozen=True)
class World:
    """The guarantee, and the units of each record, by definition.

    Args:
        units: the units of a record; windows by their starts.
    """

    promise: LastingPromise
    axis: Axis
    units: Truth

    @property
    def rows(self) -> list[Row]:
        """All records that may be."""
        times = [first(self.axis) + place * STEPS[self.axis] for place in range(-2, TIMES + 2)]
        if self.axis in ("time", "instant"):
            # The last record before each end of an interval.
            times += [time - 1 for time in times]
        return [Row(*each) for each in itertools.product(CODES, COUNTRIES, [*times, None])]


def first(axis: Axis) -> int:
    return 0 if axis == "whole" else FIRST


def day(axis: Axis, time: int) -> int:
    """The displayed calendar day, counted from 1970; for integers the number."""
    if axis == "whole":
        return time
    if axis != "instant":
        return time // DAY
    shown = datetime.fromtimestamp(time // 10**6, PARIS).date()
    return shown.toordinal() - datetime(1970, 1, 1).toordinal()


def days_of(axis: Axis, length: int) -> Truth:
    """Windows of days: the starts of the windows around a record's day; one unit without a day."""

    def units(row: Row) -> list[Hashable]:
        if row.at is None:
            return [None]
        last = day(axis, row.at)
        return list(range(last - length + 1, last + 1))

    return units


def hours_of(length: int) -> Truth:
    """Windows of hours, starting at each quarter of a step and one microsecond off."""
    starts = [
        FIRST + place * 3 * HOUR + more
        for place in range(-8 - length // 3, 4 * TIMES + 8)
        for more in (-1, 0, 1)
    ]

    def units(row: Row) -> list[Hashable]:
        if row.at is None:
            return [None]
        return [start for start in starts if start <= row.at < start + length * HOUR]

    return units


def promised(unit: Any, window: TimeWindow | None = None, **more: Any) -> LastingPromise:
    return LastingPromise.of(unit, 40.0, 1e-6, window=window, **more)


def worlds() -> dict[str, World]:
    zone = "Europe/Paris"
    week = Partition((Rule("at", "week"),))
    both = Partition((Rule("at", "day"), Rule("country")))
    moments = Partition((Rule("at", "day", zone),))
    found = {
        "records": World(promised(dg.Record()), "date", lambda row: [row]),
        "records that are exchanged": World(
            promised(dg.Record(), relation="replace"), "whole", lambda row: [row]
        ),
        "users": World(promised(dg.User()), "date", lambda row: ["all"]),
        "countries": World(promised(dg.Element("country")), "date", lambda row: [row.country]),
        "codes and countries": World(
            promised(dg.Element(["code", "country"])), "date", lambda row: [row[:2]]
        ),
        "days in countries": World(
            promised(dg.Element(both)), "date", lambda row: [(row.country, row.at)]
        ),
        "days of Paris": World(
            promised(dg.Element(moments)),
            "instant",
            lambda row: [None if row.at is None else day("instant", row.at)],
        ),
        "weeks": World(
            promised(dg.Element(week)),
            "date",
            # 1970 began on a Thursday.
            lambda row: [None if row.at is None else (row.at // DAY + 3) // 7],
        ),
        "any 3 days": World(promised(dg.User(), AnyDays(3, "at")), "date", days_of("date", 3)),
        "any 4 numbers": World(promised(dg.User(), AnyDays(4, "at")), "whole", days_of("whole", 4)),
        "any 2 days of Paris": World(
            promised(dg.User(), AnyDays(2, "at", zone)), "instant", days_of("instant", 2)
        ),
        "any 30 hours": World(promised(dg.User(), AnyHours(30, "at")), "time", hours_of(30)),
    }
    inside = found["any 3 days"].units
    found["any 3 days in countries"] = World(
        promised(dg.Element("country"), AnyDays(3, "at")),
        "date",
        lambda row: [(row.country, start) for start in inside(row)],
    )
    return found


# ------------------------------------------------------------------------------------- releases


def values_of(column: str, axis: Axis, draw: random.Random, odd: bool) -> Values:
    """Random values of a column; codes as texts, or as numbers if they are read in two ways."""
    if column == "at":
        step, low = STEPS[axis], first(axis)
        ends = sorted(draw.sample(range(-1, TIMES + 2), 2))
        found = [None if draw.random() < 0.15 else low + end * step for end in ends]
        return Span(axis, *found)
    if column == "code" and odd and draw.random() < 0.5:
        if draw.random() < 0.5:
            return Span("whole", *sorted(draw.sample(range(9), 2)))
        return LabelSet(tuple(draw.sample([1, 2, 7], 2)), draw.random() < 0.3)
    return LabelSet(tuple(draw.sample(NAMED[column], draw.randint(1, 2))), draw.random() < 0.3)


def stated(axis: Axis, draw: random.Random, odd: bool) -> Region:
    columns = [column for column in Row._fields if draw.random() < 0.45]
    return Region(
        tuple(
            Side(column, values_of(column, axis, draw, odd), missing=draw.random() < 0.2)
            for column in columns
        )
    )


def region(axis: Axis, draw: random.Random, odd: bool) -> Region:
    found = stated(axis, draw, odd)
    while draw.random() < 0.5:
        other = stated(axis, draw, odd)
        if not found.comparable(other):
            continue
        made = {
            "both": found.both(other),
            "minus": found.minus(other),
            "around": (found.around(other),),
        }[draw.choice(["both", "minus", "around"])]
        found = draw.choice(made) if made else found
    return found


def read(row: Row, side: Side) -> int | str | None:
    """A record's value for a side; None if it cannot be read that way."""
    value = getattr(row, side.column)
    if value is None or side.read_as != "BIGINT" or side.column != "code":
        return value  # type: ignore[no-any-return]
    return int(value) if value.isdigit() else None


def lies_in(row: Row, where: Region) -> bool:
    for side in where.sides:
        value = read(row, side)
        if not (side.missing if value is None else value in side.values):
            return False
    return True


# ------------------------------------------------------------------------------------- the count


@dataclass
class Met:
    """Charges of each unit since a guarantee is in force."""

    promise: LastingPromise
    units: dict[Hashable, Units]


def taking(world: World, asked: dg.Guarantee) -> Callable[[Hashable], Units]:
    """A release's charge per unit; for hours by whether it is entirely inside them."""
    promise, window = world.promise, world.promise.window

    @cache
    def price(meeting: Any) -> Units:
        return Units.create(promise.price(asked, None, meeting), promise.caps)

    if not isinstance(window, AnyHours) or len(promise.meetings(asked.scope)) == 1:
        return lambda _: price("any")
    side = asked.scope.side("at")
    assert side is not None
    assert isinstance(side.values, Span)
    low, high = side.values.low, side.values.high
    assert low is not None
    assert high is not None
    length = window.hours * HOUR

    def taken(unit: Hashable) -> Units:
        assert isinstance(unit, int)
        return price("whole" if unit <= low and high <= unit + length else "parts")

    return taken


def accounts_of(
    page: Transaction, number: int, world: World
) -> Iterator[tuple[Row, Hashable, Units]]:
    """Each record, each unit that it is a part of, and the account of its class and its cell."""
    classes = {
        one: _validate.read_fields(Region, json.loads(text), "a region")
        for one, text in page.classes(number).items()
    }
    axis = page.axis(number)
    for row in world.rows:
        mine = [one for one, where in classes.items() if lies_in(row, where)]
        assert len(mine) == 1, f"{row} lies in {len(mine)} classes of {list(map(str, classes))}"
        for unit in world.units(row):
            cell: Any = START if axis is None else cell_of(row, unit, axis.column, axis.kind, world)
            yield row, unit, page.max_units(number, CellRange(mine[0], cell, cell + 1))


def cell_of(row: Row, unit: Hashable, column: str, kind: str, world: World) -> int:
    """The cell of a record on the guarantee's axis: the start of its window, or its value."""
    if world.promise.window is not None:
        start = unit[-1] if isinstance(unit, tuple) else unit
    else:
        start = read(row, Side(column, Span("whole") if kind == "whole" else LabelSet(("",))))
    assert start is None or isinstance(start, int)
    return START if start is None else start


def play(world: World, seed: int, folder: Any, *, odd: bool) -> None:
    """Charge random releases, renew the promise now and then, and compare all accounts."""
    draw = random.Random(f"{world.promise}{odd}{seed}")
    made = cases.made(folder / f"{seed}{odd}.ledger", world.promise)
    met = {
        1: Met(world.promise, {unit: Units() for row in world.rows for unit in world.units(row)})
    }
    latest, exact = 1, not odd
    for _ in range(9):
        if draw.random() < 0.1:
            latest = made.renew(latest, world.promise).number
            met[latest] = Met(world.promise, dict.fromkeys(met[1].units, Units()))
        event = Gaussian(draw.uniform(20, 60), ONE)
        scope = region(world.axis, draw, odd)
        asked = dg.Guarantee("user", "", "zero_out", 1e-9, event, scope=scope)
        times = scope.side("at")
        if world.promise.window and times and isinstance(times.values, LabelSet):
            # Records without a time are distinguished from windows only if times are read.
            exact = False
        if draw.random() < 0.15:
            # A rejected release leaves nothing, even if it would have split accounts.
            with pytest.raises(dg.RefusedError):
                made.charge(replace(asked, event=Gaussian(0.001, ONE)))
            continue
        made.charge(asked)
        taken = taking(world, asked)
        for unit in {
            unit for row in world.rows if lies_in(row, scope) for unit in world.units(row)
        }:
            met[latest].units[unit] += taken(unit)
    for number, each in met.items():
        with made._store.reading() as page:
            for row, unit, account in accounts_of(page, number, world):
                least = each.units[unit]
                if exact:
                    assert account == least, f"{row} of {unit}: charged {account}, met {least}"
                assert account.mu >= least.mu, f"{row} of {unit} is charged less than it met"
    made.verify()
    made.close()


WORLDS = worlds()


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("name", WORLDS)
def test_each_unit_has_its_charges(name: str, part: int, effort: Effort) -> None:
    with folder_in_memory() as folder:
        for seed in effort.some(range(10)):
            play(WORLDS[name], 10 * part + seed, folder, odd=False)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("name", ["records", "records that are exchanged", "users", "countries"])
def test_units_read_in_two_ways_are_charged_no_less(name: str, part: int, effort: Effort) -> None:
    with folder_in_memory() as folder:
        for seed in effort.some(range(10)):
            play(WORLDS[name], 10 * part + seed, folder, odd=True)


def test_both_parts_of_a_class_with_gap_are_charged() -> None:
    """An interval of codes without one of them is two parts, each of which pays."""
    promise = WORLDS["records"].promise
    scopes = [
        Region((Side("at", Span("date", FIRST, FIRST + DAY)),)),
        Region((Side("code", Span("whole", 0, 9)),)),
        Region((Side("code", LabelSet((2,), but=True)),)),
    ]
    with folder_in_memory() as folder:
        made = cases.made(folder / "visits.ledger", promise)
        for scope in scopes:
            made.charge(
                dg.Guarantee("user", "", "zero_out", 1e-9, Gaussian(30.0, ONE), scope=scope)
            )
        taken = {
            code: 1 - made.left(1, Region((Side("code", Span("whole", code, code + 1)),)))
            for code in (1, 2, 7)
        }
        made.close()
    assert taken[1] == taken[7] == pytest.approx(1.5 * taken[2])
