"""Banded noise costs what rounds of one part cost, and several users what steps of one cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm
from tests.refusals import refuses

from dpgrain.accounting import BandedGaussian, Gaussian, Parallel, SampledGaussian
from dpgrain.units import Element, Record, Relation, User

DELTA = 1e-6
EVENT = BandedGaussian(1.2, 0.01, 50, 8, max_elements=3)


@pytest.mark.parametrize("relation", ["zero_out", "replace"])
@pytest.mark.parametrize("unit", [Record(), Element(), User()], ids=["record", "element", "user"])
def test_units_of_one_person_are_in_one_part(unit: Record | User, relation: Relation) -> None:
    # The first of 8 parts participates 7 times in 50 rounds.
    one = SampledGaussian(1.2, 0.08, 7, max_elements=3)
    units = (1,) if unit == User() else (1, 2)
    for k in units:
        asked: dict[str, Any] = {"units": k, "unit": unit, "relation": relation}
        assert EVENT.epsilon(DELTA, **asked) == one.epsilon(DELTA, **asked)


@pytest.mark.slow
def test_several_users_may_be_in_several_parts() -> None:
    # For one participation the curve is a closed form.
    event = BandedGaussian(3.0, 0.02, 5, 5, level="user")
    one = SampledGaussian(3.0, 0.1, 1, level="user")
    assert event.epsilon(DELTA, units=2) == Parallel((one,)).epsilon(DELTA, units=2)
    assert event.epsilon(DELTA, units=2) > one.epsilon(DELTA, units=2)


def test_whole_part_costs_its_number_of_gaussians() -> None:
    event = BandedGaussian(3.0, 1 / 49, 490, 49)
    assert event.part_rate == pytest.approx(1, abs=1e-12)
    whole = Gaussian(3.0, count=10).epsilon(DELTA)
    assert event.epsilon(DELTA) == pytest.approx(whole, rel=1e-3)
    assert BandedGaussian(3.0, 0.1, 100, 10).epsilon(DELTA) == whole


def delta_of_two_columns(event: BandedGaussian, epsilon: float, column: tuple[float, ...]) -> float:
    """δ of one user who has a turn in rounds 1 and 1 + b, by integration over outputs.

    A participation adds its column. Outputs of rows matter only along columns, which are orthogonal,
    so each participation is one number.
    """
    length = float(np.linalg.norm(column)) / event.noise_multiplier
    at = np.linspace(-9, 9 + length, 1201)
    without = norm.logpdf(at)
    drawn = np.array([event.part_rate, 1 - event.part_rate])
    parts = np.stack([norm.logpdf(at - length), without])
    with_one = logsumexp(parts, axis=0, b=drawn[:, None])
    ratio = with_one[:, None] + with_one[None] - without[:, None] - without[None]
    weight = np.exp(with_one[:, None] + with_one[None])
    return float(
        (weight * np.clip(-np.expm1(epsilon - ratio), 0, None)).sum() * (at[1] - at[0]) ** 2
    )


def test_two_turns_by_integration() -> None:
    event = BandedGaussian(0.9, 0.1, 6, 3)
    for column in ((1.0, 0.0, 0.0), (0.6, 0.0, 0.8), (0.5, 0.5, 0.5)):
        found = delta_of_two_columns(event, 0.8, column)
        assert found <= event.delta(0.8) * (1 + 1e-3)
    assert found < 0.9 * event.delta(0.8)
    # A column with norm above 1, as without normalisation, costs more than is charged.
    assert delta_of_two_columns(event, 0.8, (1.0, 0.5, 0.375)) > 1.05 * event.delta(0.8)


WRONG = {
    "bands": ({"bands": 0}, "bands", "not 0"),
    "too many": ({"bands": 11}, "bands", "1/sampling_rate = 10"),
    "rate": ({"sampling_rate": 0.0}, "sampling_rate", "not 0"),
    "noise": ({"noise_multiplier": -1.0}, "noise_multiplier", "not -1.0"),
    "sampling": ({"sampling": "fixed"}, "sampling", "'fixed'"),
}


@pytest.mark.parametrize(("wrong", "name", "word"), WRONG.values(), ids=WRONG)
def test_invalid_numbers_are_rejected(wrong: dict[str, object], name: str, word: str) -> None:
    given = {"noise_multiplier": 1.0, "sampling_rate": 0.1, "rounds": 5, "bands": 2, **wrong}
    with refuses(name, word):
        BandedGaussian(**given)  # type: ignore[arg-type]
