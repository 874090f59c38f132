"""Windows of any n days, on clocks of any zone."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.refusals import refuses

from dpgrain.ledger import AnyDays, AnyHours
from dpgrain.scope.regions import LabelSet, Side, Span, days, microseconds

EPOCH = date(1970, 1, 1).toordinal()


def day(number: int | None) -> str:
    assert number is not None
    return date.fromordinal(number + EPOCH).isoformat()


def test_windows_begin_on_the_days_before_as_well() -> None:
    first, end = AnyDays(30, "day").starts(days("2026-03-01", "2026-03-02"))
    assert (day(first), day(end)) == ("2026-01-31", "2026-03-03")
    assert AnyDays(1, "day").starts(Span("time")) == (None, None)
    assert AnyDays(2, "day").starts(Span("time", None, 1)) == (None, 1)


def test_a_day_of_25_hours_is_one_day() -> None:
    """In Paris 2026-10-25 has 25 hours and 2026-03-29 has 23."""
    paris = AnyDays(1, "day", "Europe/Paris")
    for stated in ("2026-10-25", "2026-03-29"):
        begin = datetime.fromisoformat(stated).replace(tzinfo=ZoneInfo("Europe/Paris"))
        after = (begin + timedelta(days=1)).replace(tzinfo=ZoneInfo("Europe/Paris"))
        low, high = microseconds(begin), microseconds(after)
        assert (high - low) // (3600 * 10**6) in (23, 25)
        first, end = paris.starts(Span("instant", low, high))
        assert (day(first), day((end or 0) - 1)) == (stated, stated)
        first, end = AnyDays(1, "day").starts(Span("instant", low, high))
        assert (end or 0) - (first or 0) == 2


@given(
    st.integers(0, 10**16),
    st.integers(1, 10**13),
    st.sampled_from(["", "Asia/Kolkata", "Europe/Paris"]),
)
def test_every_timestamp_is_in_a_met_window(low: int, width: int, zone: str) -> None:
    window = AnyDays(3, "day", zone)
    first, end = window.starts(Span("instant", low, low + width))
    for moment in (low, low + width // 2, low + width - 1):
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)
        ordinal = time.astimezone(ZoneInfo(zone or "UTC")).toordinal() - EPOCH
        for start in (ordinal - 2, ordinal - 1, ordinal):
            assert first is not None
            assert end is not None
            assert first <= start < end


def test_years_beyond_calendars_have_no_end() -> None:
    assert AnyDays(3, "day").starts(Span("time", -(10**18), 10**18)) == (None, None)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True])
def test_a_number_of_days_is_whole(wrong: int) -> None:
    with refuses("days"):
        AnyDays(wrong, "day")


@pytest.mark.parametrize("zone", ["Nowhere/Town", "../etc/passwd", "/etc/passwd"])
def test_a_zone_is_known(zone: str) -> None:
    with refuses("zone"):
        AnyDays(3, "day", zone)


# The window lacks only the last microsecond of the interval.
@example(hours=3, low=0, length=1, start=-2, tick=-1)
@given(hours=st.integers(1, 50), low=st.integers(-100, 100), length=st.integers(1, 60),
       start=st.integers(-200, 200), tick=st.integers(-1, 1))  # fmt: skip
def test_hours_window_meeting_an_interval_covers_all_or_part(
    hours: int, low: int, length: int, start: int, tick: int
) -> None:
    hour = 3600 * 10**6
    window, span = AnyHours(hours, "at"), Span("time", low * hour, (low + length) * hour)
    at = start * hour + tick
    meets = at < (low + length) * hour and low * hour < at + hours * hour
    holds = at <= low * hour and (low + length) * hour <= at + hours * hour
    kinds = window.meetings(Side("at", span))
    told = {
        kind: any(first <= at < end for first, end in window.window_starts(kind, span))  # type: ignore[operator]
        for kind in kinds
    }
    assert sum(told.values()) == meets, "each window is charged once, or not at all"
    if "whole" in told:
        assert told["whole"] == holds
    else:
        assert length > hours
    first, end = window.starts(span)
    assert (first <= at < end) == meets  # type: ignore[operator]


def test_hours_are_of_times_with_two_ends() -> None:
    window = AnyHours(24, "at")
    for values in (
        Span("whole", 0, 5),
        Span("time", None, 5),
        Span("instant", 5),
        LabelSet(("a",)),
    ):
        assert window.meetings(Side("at", values)) == ("any",)
    assert window.meetings(None) == ("any",)
    assert window.meetings(Side("at", Span("time", 0, 5), missing=True)) == ("any",)
    assert window.meetings(Side("at", Span("date", 0, 24 * 3600 * 10**6))) == ("whole", "parts")
    assert window.starts(Span("whole", 0, 5)) == (None, None)
    assert str(window) == "any 24 hours in a row of 'at'"
    with refuses("hours", "1"):
        AnyHours(0, "at")
