"""One person's records may be looked at in each state: accelerated steps of the least bound."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.papers.recipes import programs

from dpgrain.means.shuffled import Shuffled
from dpgrain.papers import (
    AcSa,
    Known,
    PanPrivate,
    PanPrivateAgd,
    Recipe,
    ShuffleAgd,
    ShuffleAgdSmoothed,
    Task,
)


@pytest.mark.parametrize("make", [ShuffleAgd, PanPrivateAgd], ids=lambda make: make.__name__)
def test_agd_makes_the_bound_least(make: Any) -> None:
    known, task = Known(3.0, 2.0, 0.7, records=9), Task.of(9000, (0.0,) * 4, 1.0, 1e-6)
    (stage,) = make(known).plan(task).stages
    mean, solver = stage.mean, stage.solver
    assert isinstance(solver, AcSa)
    assert (solver.smoothness, solver.distance, solver.rounds) == (0.7, 3.0, mean.rounds)
    batch = 9000 // mean.rounds
    assert solver.noise == pytest.approx(math.hypot(2.0 / math.sqrt(9 * batch), 2 * mean.noise_sd))
    assert stage.smoothing is None

    def excess(rounds: int) -> float:
        found = make(known, rounds=rounds).plan(task).stages[0].solver
        return float(found.excess())

    assert solver.excess() < 1.001 * min(excess(mean.rounds // 2), excess(2 * mean.rounds))
    assert solver.excess() < 1.02 * excess(mean.rounds - 2)
    assert solver.excess() < 1.02 * excess(mean.rounds + 2)
    # Two noises to a batch, of the same promise.
    other = ShuffleAgd(known, rounds=mean.rounds).plan(task).stages[0].mean
    twice = math.sqrt(2) if make is PanPrivateAgd else 1.0
    assert mean.noise_sd / other.noise_sd == pytest.approx(twice, rel=0.03)


@pytest.mark.parametrize(
    "recipe",
    [ShuffleAgdSmoothed(programs.KINKS), PanPrivateAgd(programs.KINKS)],
    ids=lambda r: type(r).__name__,
)
def test_envelope_balances_the_remaining_error(recipe: Recipe) -> None:
    (stage,) = recipe.plan(programs.TASK).stages
    solver, rounds = stage.solver, stage.mean.rounds
    assert isinstance(solver, AcSa)
    assert stage.smoothing == solver.smoothness
    exact = AcSa(solver.smoothness, rounds, 0.0, 2.0)
    assert exact.excess() == pytest.approx(1.0 / (2 * solver.smoothness))
    assert isinstance(stage.mean, PanPrivate | Shuffled)
    # Not doubled, because the envelope's gradients are no larger than the loss's.
    assert stage.mean.clip == 1.0
