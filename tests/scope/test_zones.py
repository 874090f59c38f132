"""Days in time zones equal zoneinfo's, at every change of every clock."""

from __future__ import annotations

import bisect
import datetime as dt
import random
import zoneinfo

import pytest
from tests.refusals import refuses

from dpgrain.scope import zones

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
ZONES = sorted(
    {"Europe/Paris", "America/St_Johns", "Pacific/Apia", "Africa/Casablanca", "Europe/Dublin",
     "America/Sao_Paulo", "Asia/Manila", "Antarctica/Troll", "Africa/Monrovia", "UTC"}
)  # fmt: skip


def offset(moment: int, zone: str) -> int:
    time = EPOCH + dt.timedelta(microseconds=moment)
    found = time.astimezone(zoneinfo.ZoneInfo(zone)).utcoffset() or dt.timedelta()
    return found // dt.timedelta(microseconds=1)


def ahead(moment: int, zone: str) -> int:
    """The offset at an instant, from the list of changes."""
    if moment >= zones.RULE_BEGINS:
        moment = zones.RULE_BEGINS + (moment - zones.RULE_BEGINS) % zones.RULE_LASTS
    known = zones.offsets(zone)
    return known[max(bisect.bisect_right([begin for begin, _ in known], moment) - 1, 0)][1]


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("zone", ZONES)
def test_offsets_agree_with_the_zone(zone: str) -> None:
    changes = [begin for begin, _ in zones.offsets(zone)]
    near = [begin + step for begin in changes for step in (-1, 0, 1)]
    year = 365 * 24 * 3600 * 10**6
    draws = random.Random(zone)
    anywhen = [draws.randrange(-1900 * year, 8000 * year) for _ in range(20_000)]
    for moment in (*near, *anywhen):
        assert ahead(moment, zone) == offset(moment, zone), (zone, moment)


def test_a_day_has_23_24_or_25_hours() -> None:
    lengths = []
    for day in (dt.date(2026, 3, 29), dt.date(2026, 3, 30), dt.date(2026, 10, 25)):
        begin = zones.midnight(day, "Europe/Paris")
        end = zones.midnight(day + dt.timedelta(days=1), "Europe/Paris")
        assert begin is not None
        assert end is not None
        lengths.append((end - begin) / (3600 * 10**6))
    assert lengths == [23, 24, 25]
    # Clocks that skip midnight begin the day when they do.
    assert zones.midnight(dt.date(2017, 10, 15), "America/Sao_Paulo") == (
        dt.datetime(2017, 10, 15, 3, tzinfo=dt.UTC) - EPOCH
    ) // dt.timedelta(microseconds=1)
    assert zones.midnight(dt.date(1970, 1, 2), "") == 24 * 3600 * 10**6
    assert zones.midnight(dt.date(1, 1, 1), "Europe/Paris") is None


@pytest.mark.parametrize(
    ("day", "zone"),
    [
        # Clocks are put back to a midnight that they have shown, forward over it, or not at all.
        (dt.date(2026, 11, 1), "America/Havana"),
        (dt.date(2026, 10, 25), "Atlantic/Azores"),
        (dt.date(2017, 10, 15), "America/Sao_Paulo"),
        (dt.date(2026, 3, 29), "Asia/Beirut"),
        (dt.date(2026, 7, 1), "America/Havana"),
    ],
)
def test_a_day_begins_when_clocks_first_show_it(day: dt.date, zone: str) -> None:
    clocks = zoneinfo.ZoneInfo(zone)
    noon = dt.datetime(day.year, day.month, day.day, 12, tzinfo=dt.UTC)
    minutes = (noon + dt.timedelta(minutes=step) for step in range(-36 * 60, 36 * 60))
    first = next(time for time in minutes if time.astimezone(clocks).date() == day)
    assert zones.midnight(day, zone) == (first - EPOCH) // dt.timedelta(microseconds=1)


@pytest.mark.parametrize("wrong", ["Mars/Base", "", "../etc", 7, None])
def test_a_zone_must_be_known(wrong: object) -> None:
    with refuses("zone", "'Europe/Paris'"):
        zones.check_zone(wrong)  # type: ignore[arg-type]
