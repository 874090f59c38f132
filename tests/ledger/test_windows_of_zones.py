"""Windows and days of several zones around changes of clocks: no unit pays less than it meets.

Here the true charge is counted: each half hour may contain a record of one person. A release of
counts is clipped per (user, day of its own zone), so a unit with records on b such days changes it
by at most b clipping bounds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from tests.ledger import cases

import dpgrain as dg
from dpgrain.ledger import AnyDays, AnyHours, LastingPromise
from dpgrain.scope.partitions import Partition, Rule

# Two of these change their clocks at one of these times, Lord Howe by half an hour.
ZONES = ("America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Europe/Paris", "UTC")
CHANGES = (datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 4, 4, tzinfo=UTC))
HALF_HOUR = timedelta(minutes=30)
SIZE = 5 * 48

Windows = Callable[[list[datetime]], Iterator[list[datetime]]]


def instants(change: datetime) -> list[datetime]:
    return [change - SIZE // 2 * HALF_HOUR + i * HALF_HOUR for i in range(SIZE)]


@cache
def day(instant: datetime, zone: str) -> date:
    return instant.astimezone(ZoneInfo(zone)).date()


def of_days(zone: str, number: int) -> Windows:
    def windows(places: list[datetime]) -> Iterator[list[datetime]]:
        known = sorted({day(each, zone) for each in places})
        for i in range(len(known)):
            yield [each for each in places if day(each, zone) in known[i : i + number]]

    return windows


def of_hours(number: int) -> Windows:
    def windows(places: list[datetime]) -> Iterator[list[datetime]]:
        for first in places:
            yield [each for each in places if 0 <= (each - first) / timedelta(hours=1) < number]

    return windows


def promises(zone: str) -> dict[str, tuple[LastingPromise, Windows]]:
    in_day = Partition((Rule("at", "day", zone),))
    return {
        "a day": (LastingPromise.of(dg.Element(in_day), 2.0, 1e-6), of_days(zone, 1)),
        "any 2 days": (
            LastingPromise.of(dg.User(), 2.0, 1e-6, window=AnyDays(2, "at", zone)),
            of_days(zone, 2),
        ),
        "any 5 hours": (
            LastingPromise.of(dg.User(), 2.0, 1e-6, window=AnyHours(5, "at")),
            of_hours(5),
        ),
        "any 31 hours": (
            LastingPromise.of(dg.User(), 2.0, 1e-6, window=AnyHours(31, "at")),
            of_hours(31),
        ),
    }


def released(
    places: list[datetime], zone: str, draw: random.Random
) -> tuple[dg.Guarantee, list[datetime]]:
    """A count of one region, or of everything, by days of a zone; and the instants that it reads."""
    rows = pa.table({"who": np.arange(SIZE) % 7, "at": pa.array(places, pa.timestamp("us", "UTC"))})
    table = dg.read(rows, user="who", threads=1).with_days("day", "at", zone)
    kind = draw.choice(["everything", "days", "times"])
    read = places
    if kind == "days":
        first, last = sorted(draw.choices(sorted({day(each, zone) for each in places}), k=2))
        read = [each for each in places if first <= day(each, zone) <= last]
        table = table.where(day=(first.isoformat(), last.isoformat()))
    elif kind == "times":
        first, last = sorted(draw.choices(places, k=2))
        read = [each for each in places if first <= each <= last]
        shown = [each.replace(tzinfo=None).isoformat() for each in (first, last)]
        table = table.where(at=tuple(shown))
    options: Any = {"unit": dg.Element("day"), "noise": "gaussian", "clip": 2.0}
    return dg.count.query(table, epsilon=0.2, delta=1e-9, **options).plan.guarantee, read


def once(guarantee: dg.Guarantee) -> float:
    """How far one block moves a release, in units of its noise."""
    event: Any = guarantee.event
    while hasattr(event, "event"):
        event = event.event
    return 1 / float(event.noise_multiplier)


def least_paid(name: str, seed: int, folder: Any) -> float:
    """The charge of the fullest account, divided by the worst unit's true charge."""
    draw = random.Random(f"{name}{seed}")
    places, zone = instants(draw.choice(CHANGES)), draw.choice(ZONES)
    promise, windows = promises(zone)[name]
    ledger = cases.made(folder / f"{seed}.ledger", promise)
    made = [released(places, draw.choice(ZONES), draw) for _ in range(draw.randint(1, 3))]
    zones = []
    with ledger:
        for guarantee, _ in made:
            ledger.charge(guarantee)
            assert guarantee.partition
            zones.append(guarantee.partition.rules[0].zone or "UTC")
        charged = (1 - ledger.left(1)) * promise.caps.mu**2
    met = 0.0
    for window in windows(places):
        inside = set(window)
        total = 0.0
        for (guarantee, read), of in zip(made, zones, strict=True):
            blocks = {day(each, of) for each in read if each in inside}
            total += (len(blocks) * once(guarantee)) ** 2
        met = max(met, total)
    return charged / met if met else 1.0


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("name", sorted(promises("UTC")))
def test_no_unit_meets_more_than_was_charged(name: str, seed: int, tmp_path: Any) -> None:
    assert least_paid(name, seed, tmp_path) >= 1 - 1e-9


def test_much_is_charged_to_the_point(tmp_path: Any) -> None:
    """Days of the promised zone cost what they are: nothing is safe by being far too dear."""
    found = [least_paid("a day", seed, tmp_path) for seed in range(12)]
    assert min(found) == pytest.approx(1.0, abs=1e-6)
