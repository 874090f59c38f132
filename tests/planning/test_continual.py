"""Plans of recurring releases show the noise and the costs of such releases."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from dpgrain.accounting import gaussian_epsilon
from dpgrain.errors import ParameterError
from dpgrain.planning.continual import ReleaseSchedule, plan_recurrent

EPSILON, DELTA = 1.0, 1e-6


def counts(came: tuple[int, ...], schedule: ReleaseSchedule, counting: str) -> np.ndarray:
    """One person's contribution to each release, by definition."""
    days = np.array(came)
    starts = range(0, len(days), schedule.every)
    parts = [
        days[: start + schedule.every] if schedule.running else days[start : start + schedule.every]
        for start in starts
    ]
    return np.array([part.sum() if counting == "visits" else part.any() for part in parts], float)


def moved(schedule: ReleaseSchedule, counting: str, periods: int, span: int, visits: int) -> float:
    """The largest change of the releases by data of n periods within a span, by exhaustive search.

    The same person may have other data: if people are counted, they mask the removed data.
    """
    farthest = 0.0
    for came in itertools.product((0, 1), repeat=periods):
        held = [day for day in range(periods) if came[day]]
        for size in range(1, visits + 1):
            for removed in itertools.combinations(held, size):
                if removed[-1] - removed[0] >= span:
                    continue
                rest = tuple(int(day in held and day not in removed) for day in range(periods))
                change = counts(came, schedule, counting) - counts(rest, schedule, counting)
                farthest = max(farthest, float(np.linalg.norm(change)))
    return farthest


@pytest.mark.slow
@pytest.mark.parametrize("counting", ["people", "visits"])
@pytest.mark.parametrize("returns", [1, 2, 4, 6])
def test_no_place_of_a_persons_periods_costs_more(counting: str, returns: int) -> None:
    periods = 6
    plan = plan_recurrent(
        EPSILON, DELTA, periods=periods, returns=returns, every=[1, 2, 4, 6], within=3,
        counting=counting,  # type: ignore[arg-type]
    )  # fmt: skip
    spans = {"period": (1, 1), "within": (3, min(3, returns)), "person": (periods, returns)}
    for each in plan.schedules:
        farthest = moved(each, counting, periods, *spans[each.promised])
        assert gaussian_epsilon(DELTA, farthest / each.noise) == pytest.approx(EPSILON, rel=1e-9)
        whole = moved(each, counting, periods, periods, returns)
        assert each.epsilon_of_person == pytest.approx(
            gaussian_epsilon(DELTA, whole / each.noise), rel=1e-9
        )
        one = moved(each, counting, periods, 1, 1)
        assert each.epsilon_of_period == pytest.approx(
            gaussian_epsilon(DELTA, one / each.noise), rel=1e-9
        )


def test_365_days_cost_a_30_day_person_root_30() -> None:
    plan = plan_recurrent(EPSILON, DELTA, periods=365, returns=30, within=30)
    days = plan.schedules[0]
    assert (days.name, days.releases, days.promised) == ("every period", 365, "period")
    assert days.noise == pytest.approx(1 / 0.2367, rel=1e-3)
    assert days.epsilon_of_person == pytest.approx(6.58, abs=0.005)
    slides = next(each for each in plan.schedules if each.promised == "within")
    assert 1 / slides.noise == pytest.approx(0.0432, rel=1e-3)
    assert slides.total == pytest.approx(slides.noise * math.sqrt(365))


def test_visit_windows_cost_more_for_their_contents() -> None:
    visits = plan_recurrent(EPSILON, DELTA, periods=364, returns=30, counting="visits")
    days, weeks, once, running = (each for each in visits.schedules if each.promised == "person")
    assert weeks.noise / days.noise == pytest.approx(math.sqrt((4 * 49 + 4) / 30))
    assert once.noise / days.noise == pytest.approx(30 / math.sqrt(30))
    # Of consecutive visits k are in the k-th running total, and all 30 in the last 335.
    squares = sum(k**2 for k in range(1, 30)) + 335 * 30**2
    assert running.noise / days.noise == pytest.approx(math.sqrt(squares / 30))


def test_it_is_shown_promise_by_promise() -> None:
    plan = plan_recurrent(EPSILON, DELTA, periods=365, returns=30, within=30)
    lines = str(plan).splitlines()
    assert [line.strip() for line in lines if "Promised for" in line] == [
        "Promised for one period of a person:",
        "Promised for any 30 periods in a row of a person:",
        "Promised for a person who comes in at most 30 periods:",
    ]
    told = json.loads(plan.to_json())
    assert [each["name"] for each in told["schedules"][:4]] == [
        "every period", "every 7 periods", "once, at the end", "running total",
    ]  # fmt: skip


WRONG = [
    ({"returns": 400}, "returns must be at most 365, not 400."),
    ({"every": [400]}, "every must be at most 365, not 400."),
    ({"every": 7}, "every must be a list, not 7."),
    ({"within": 366}, "within must be at most 365, not 366."),
    ({"periods": 0}, "periods must be an integer of at least 1, not 0."),
    ({"counting": "days"}, "counting must be"),
    ({"delta": 0.0}, "delta"),
]


@pytest.mark.parametrize(("changed", "said"), WRONG, ids=[said for _, said in WRONG])
def test_out_of_range_arguments_are_rejected(changed: dict[str, object], said: str) -> None:
    asked = {"epsilon": 1.0, "delta": 1e-6, "periods": 365, "returns": 30, **changed}
    with pytest.raises(ParameterError) as error:
        plan_recurrent(**asked)  # type: ignore[arg-type]
    assert str(error.value).startswith(said)


def test_it_states_the_number_of_returns_worth_windows() -> None:
    """A person of 53 days costs as much by days as by the 53 weeks of a year, and one of 54 less."""
    plan = plan_recurrent(1.0, 1e-6, periods=365, returns=30, within=30)
    assert plan.notes[0] == (
        "For a whole person, a release every 7 periods saves from 54 returns on. "
        "For any 30 periods in a row, a release every 7 periods saves from 7 returns on."
    )
    for returns, saves in ((53, False), (54, True)):
        days, weeks, *_ = (
            each for each in plan_recurrent(1.0, 1e-6, periods=365, returns=returns).schedules
            if each.promised == "person"
        )  # fmt: skip
        assert (weeks.noise < days.noise * (1 - 1e-9)) == saves
    visits = plan_recurrent(1.0, 1e-6, periods=365, returns=30, counting="visits")
    assert not [note for note in visits.notes if note.startswith("Every")]
