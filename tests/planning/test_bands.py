"""Plans of banded noise against calibration by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.refusals import refuses

from dpgrain.accounting import BandedGaussian, SampledGaussian, calibrate
from dpgrain.means.bands import Bands
from dpgrain.planning import plan_bands
from dpgrain.units import Element, User


def test_numbers_by_hand() -> None:
    plan = plan_bands(8.0, 1e-6, rounds=100, sampling_rate=0.01, most=8)
    assert plan["bands"] == 8
    event = calibrate(lambda z: SampledGaussian(z, 0.08, 13), 8.0, 1e-6, unit=Element())
    alone = calibrate(lambda z: SampledGaussian(z, 0.01, 100), 8.0, 1e-6, unit=Element())
    assert plan["noise multiplier σ"] == event.parameter
    sums = event.parameter * Bands.best(8, 100).prefix_error(100)
    assert plan["noise of sums"] == pytest.approx(sums)
    assert plan["noise of sums, 1 band"] == pytest.approx(alone.parameter * math.sqrt(101 / 2))
    ratio = plan["noise of sums ÷ that of independent noise"]
    assert ratio == pytest.approx(sums / (alone.parameter * math.sqrt(101 / 2)))
    assert ratio < 0.7
    assert isinstance(plan.event, BandedGaussian)
    assert 7.9 < plan.event.epsilon(1e-6) <= 8.0
    assert "7 secret vectors of noise" in str(plan)


@pytest.mark.parametrize("unit", [User(), User(max_elements=3)])
def test_independent_noise_is_chosen_where_bands_do_not_pay(unit: User) -> None:
    plan = plan_bands(1.0, 1e-6, rounds=20, sampling_rate=0.5, unit=unit, relation="replace")
    assert plan["bands"] == 1
    assert plan["noise of sums ÷ that of independent noise"] == 1
    assert isinstance(plan.event, SampledGaussian)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "rate": ({"sampling_rate": 0.0}, "sampling_rate"),
    "rounds": ({"rounds": 0}, "rounds"),
    "most": ({"most": 0}, "most"),
    "relation": ({"relation": "odd"}, "relation"),
}


@pytest.mark.parametrize(("wrong", "words"), WRONG.values(), ids=WRONG)
def test_wrong_numbers_are_refused(wrong: dict[str, Any], words: str) -> None:
    with refuses(words):
        plan_bands(1.0, 1e-6, **{"rounds": 10, "sampling_rate": 0.1, **wrong})
