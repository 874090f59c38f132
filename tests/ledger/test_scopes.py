"""Releases of regions of real tables, charged to the units of a ledger."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.ledger import cases
from tests.refusals import no_room, refuses

import dpgrain as dg
from dpgrain.ledger import AnyDays, LastingPromise
from dpgrain.scope.partitions import Partition, Rule

START = date(2026, 3, 20)
ROWS = pa.table(
    {
        "who": np.arange(1200) % 60,
        "day": pa.array([START + timedelta(days=int(i) % 20) for i in range(1200)], pa.date32()),
        "country": [("FR", "DE", "IT")[i % 3] for i in range(1200)],
    }
)


def table() -> dg.UserTable:
    return dg.read(ROWS, user="who", threads=1)


def daily(**more: Any) -> dict[str, Any]:
    return {"unit": dg.Element("day"), "noise": "gaussian", "clip": 2.0, **more}


def of_one_day(promise: LastingPromise, share: float) -> float:
    """The ε at δ = 10⁻⁹ of Gaussian noise that takes a share of a promise."""
    from dpgrain.accounting import gaussian_epsilon

    return gaussian_epsilon(1e-9, promise.caps.mu * math.sqrt(share)) * (1 - 1e-9)


def test_each_day_is_released_with_the_whole_promise(tmp_path: Any) -> None:
    promise = LastingPromise.of(dg.Element("day"), 1.0, 1e-6)
    made = cases.made(tmp_path / "l", promise)
    epsilon = of_one_day(promise, 1.0)
    with made:
        for number in range(5):
            day = (START + timedelta(days=number)).isoformat()
            found = dg.count(table().where(day=day), **daily(epsilon=epsilon, delta=1e-9))
            assert found.guarantee.receipts[0].number == 2 + number
            with no_room():
                dg.count(table().where(day=day), **daily(epsilon=0.1, delta=1e-9))
        whole = made.left(1)
        free = made.left(1, table().where(day=(START + timedelta(days=5)).isoformat()).scope)
    assert (whole < 1e-4, free) == (True, 1.0)
    scopes = {str(entry.guarantees[0].scope) for entry in made.entries if entry.guarantees}
    assert "day 2026-03-20" in scopes
    made.verify()


def test_countries_of_one_day_are_one_account(tmp_path: Any) -> None:
    """A day of a person has records of all countries, so that each is charged to it."""
    promise = LastingPromise.of(dg.Element("day"), 1.0, 1e-6)
    made = cases.made(tmp_path / "l", promise)
    half = of_one_day(promise, 0.5)
    with made:
        for country in ("FR", "DE"):
            region = table().where(day="2026-03-20", country=country)
            dg.count(region, **daily(epsilon=half, delta=1e-9))
        last = table().where(day="2026-03-20", country="IT")
        with no_room():
            dg.count(last, **daily(epsilon=half, delta=1e-9))


def test_record_is_in_one_country(tmp_path: Any) -> None:
    made = cases.made(tmp_path / "l", LastingPromise.of(dg.Record(), 1.0, 1e-6))
    asked: dict[str, Any] = {"unit": dg.Record(), "noise": "gaussian", "delta": 1e-7}
    with made:
        for country in ("FR", "DE", "IT"):
            dg.count(table().where(country=country), **asked, epsilon=0.9)
        assert made.left(1) < 0.4
        with no_room():
            dg.count(table().where(country="FR"), **asked, epsilon=0.9)
        assert made.left(1, table().where(country="ES").scope) == 1.0


def test_a_user_of_daily_elements_pays_for_each_day(tmp_path: Any) -> None:
    """A guarantee for life, and one for any 3 days, in addition to the guarantee for a day."""
    life = LastingPromise.of(dg.User(), 10.0, 1e-6)
    three = LastingPromise.of(dg.User(), 3.0, 1e-6, window=AnyDays(3, "day"))
    made = cases.made(tmp_path / "l", life, three)
    with made:
        for number in range(6):
            day = (START + timedelta(days=number)).isoformat()
            dg.count(table().where(day=day), **daily(epsilon=0.5, delta=1e-9))
        used = [1 - made.left(number) for number in (1, 2)]
        once = made.entries[-1].charged
    for each, promise, times, part in zip(once, (life, three), (6, 3), used, strict=True):
        assert part == pytest.approx(times * (each.price.mu / promise.caps.mu) ** 2, rel=1e-9)


def test_unread_region_is_not_charged(tmp_path: Any) -> None:
    made = cases.made(tmp_path / "l", LastingPromise.of(dg.Element("day"), 1.0, 1e-6))
    with made:
        dg.count(table().where(day=("2026-03-20", "2026-03-22")), **daily(epsilon=0.5, delta=1e-9))
        left = [
            round(made.left(1, table().where(day=f"2026-03-{number}").scope), 2)
            for number in (19, 20, 22, 23)
        ]
    assert (left[0], left[3]) == (1.0, 1.0)
    assert left[1] == left[2] < 1


# Clocks are put forward on the second of these days in Paris, which has 23 hours.
MOMENTS = [datetime(2026, 3, 28, 12, tzinfo=UTC) + timedelta(hours=hour) for hour in range(96)]


def paris(*, zone: str | None = "Europe/Paris") -> dg.UserTable:
    kind = pa.timestamp("us", "UTC" if zone else None)
    times = [time if zone else time.replace(tzinfo=None) for time in MOMENTS]
    rows = pa.table({"who": np.arange(96) % 7, "at": pa.array(times, kind)})
    return dg.read(rows, user="who", threads=1).with_days("day", "at", zone)


@pytest.mark.parametrize("zone", ["Europe/Paris", None])
def test_days_of_times_are_elements_windows_and_scopes(zone: str | None, tmp_path: Any) -> None:
    rule = Rule("at", "day", zone or "")
    day = LastingPromise.of(dg.Element(Partition((rule,))), 1.0, 1e-6)
    three = LastingPromise.of(dg.User(), 2.0, 1e-6, window=AnyDays(3, "at", zone or ""))
    made = cases.made(tmp_path / "l", day, three)
    rows, asked = paris(zone=zone), daily(epsilon=of_one_day(day, 0.9), delta=1e-9)
    shown = [f"2026-03-{number}" for number in (28, 29, 30, 31)]
    with made:
        for number, stated in enumerate(shown):
            assert made.left(1, rows.where(day=stated).scope) == 1.0, "no day before has charged it"
            dg.count(rows.where(day=stated), **asked)
            assert made.left(1, rows.where(day=stated).scope) == pytest.approx(0.1, abs=1e-6)
            once = (made.entries[-1].charged[1].price.mu / three.caps.mu) ** 2
            assert made.left(2) == pytest.approx(1 - once * min(number + 1, 3), abs=1e-9)
        # A day with a full account is charged by any of its hours.
        for hour in ("2026-03-28T23:30", "2026-03-29T00:30", "2026-03-29T21:59"):
            with no_room():
                dg.count(rows.where(at=hour), **asked)
    made.verify()


def test_one_time_is_part_of_its_day() -> None:
    """A guarantee for single times costs twice as much by days, but not by a column of dates."""
    rows = pa.table(
        {"who": [1, 1], "at": pa.array(MOMENTS[:2], pa.timestamp("us")), "item": [1, 2]}
    )
    times = dg.read(rows, user="who").with_days("day", "at")
    dates = dg.read(rows.set_column(1, "at", rows["at"].cast(pa.date32())), user="who")
    parts = LastingPromise.of(dg.Element("at"), 1.0, 1e-6)
    days = LastingPromise.of(dg.Element(Partition((Rule("at", "day"),))), 1.0, 1e-6)
    options: Any = {"item": "item", "domain": [1, 2], "clip": 5.0, "noise": "gaussian"}
    options |= {"epsilon": 0.5, "delta": 1e-7}
    for table, cell, times_as_much in ((times, "day", 2.0), (dates, "at", 1.0)):
        unit = dg.Element(cell)
        made = dg.histogram.query(table, unit=unit, **options).plan.guarantee
        part, whole = (promise.price(made).mu ** 2 for promise in (parts, days))
        assert part / whole == pytest.approx(times_as_much)


def test_cells_of_days_of_two_zones_are_two_partitions() -> None:
    """One mapping of days with equal names: a day of one zone overlaps two of the other."""

    def made(zone: str) -> dg.Guarantee:
        rows = paris(zone=zone).with_cells("kind", of="day", by={"2026-03-29": "a"})
        unit = dg.Element("kind")
        asked: Any = {"clip": 5.0, "epsilon": 0.5, "delta": 1e-7, "noise": "gaussian"}
        return dg.count.query(rows, unit=unit, **asked).plan.guarantee

    assert made("UTC") + made("UTC")
    with refuses("guarantees", "compose"):
        _ = made("UTC") + made("Pacific/Kiritimati")
    promised = LastingPromise.of(dg.Element(made("UTC").partition), 1.0, 1e-6)
    assert promised.price(made("UTC")).mu > 0
    with refuses("contribution", "unbounded"):
        promised.price(made("Pacific/Kiritimati"))


@pytest.mark.slow
def test_a_window_of_moments_is_in_utc_by_default(tmp_path: Any) -> None:
    made = cases.made(
        tmp_path / "l", LastingPromise.of(dg.User(), 2.0, 1e-6, window=AnyDays(3, "at"))
    )
    with made:
        dg.count(paris(zone="UTC").where(day="2026-03-30"), **daily(epsilon=0.5, delta=1e-9))
        dg.count(paris().where(day="2026-03-30"), **daily(epsilon=0.5, delta=1e-9))
    utc, other = (entry.charged[0].price.mu for entry in made.entries[2:])
    assert other == pytest.approx(utc), "all that is read lies in one region of a user"
