"""Plan steps and noise on known losses show the exponent of a theorem."""

from __future__ import annotations

import math

import numpy as np
from tests.programs import experiment

from dpgrain.papers import Known, UserLevelAgd

rates = experiment("rates")


def test_accelerated_steps_on_the_soft_core_show_their_exponent() -> None:
    theorem = rates.Theorem("one", UserLevelAgd, -1.0, "kinks")
    small, large = (rates.measured(theorem, n) for n in (1000, 10_000))
    assert small[1] < large[1] < 1000
    (slope,) = rates.exponents((1000, 10_000), (small[0], large[0]))
    assert -1.5 < slope < -0.8


def test_where_users_do_not_suffice_there_is_no_number() -> None:
    theorem = rates.Theorem("one", UserLevelAgd, -1.0, "kinks")
    assert math.isnan(rates.measured(theorem, 5)[0])


def test_the_gradient_of_an_envelope_is_that_of_a_cone_far_away() -> None:
    basin = rates.Basin(np.zeros(2), 0.5, 0.0)
    (stage,) = (
        UserLevelAgd(Known(distance=1.0), rounds=20)
        .plan(rates.Task.of(2000, (0.0, 0.0), 1.0, 1e-6))
        .stages
    )
    rng = np.random.default_rng(0)
    assert basin.gradient(np.array([3.0, 4.0]), stage, rng).round(9).tolist() == [0.3, 0.4]
    near = basin.gradient(np.array([1e-3, 0.0]), stage, rng)
    assert isinstance(stage.smoothing, float)
    assert near.round(9).tolist() == [round(1e-3 * stage.smoothing, 9), 0.0]
