"""Rounds of a program: random points, and runs that end before their last round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from tests.papers.recipes import cases

from dpgrain.accounting import Gaussian
from dpgrain.gradients.records import RecordBlocks
from dpgrain.learn import minimise
from dpgrain.learn.rounds import _smooth_loss
from dpgrain.noise import RandomSource, SeededSource, SystemSource
from dpgrain.optimize import Absolute, Squared
from dpgrain.papers import Known, RandomizedBall, UserLevelSgd, UserLevelSgdStronglyConvex
from dpgrain.publishing.draws import CountedSource, counted

Array = NDArray[Any]


def once(source: RandomSource) -> CountedSource:
    return counted(source, Gaussian(1.0))


def test_random_points_come_from_the_secret_source() -> None:
    ball, theta = RandomizedBall(1.0), np.zeros(2)
    rows, y = np.ones((50, 2)), np.linspace(-1, 1, 50)

    def slopes(source: Any) -> Array:
        return _smooth_loss(Absolute(), ball, once(source)).gradient(theta, rows, y)

    assert not np.array_equal(slopes(SystemSource()), slopes(SystemSource()))
    assert np.array_equal(slopes(SeededSource(3)), slopes(SeededSource(3)))
    assert not np.array_equal(slopes(SeededSource(3)), slopes(SeededSource(4)))
    assert _smooth_loss(Absolute(), None, once(SystemSource())) == Absolute()


@pytest.mark.slow
def test_points_of_others_are_equally_likely_for_any_users() -> None:
    theta, ball, source = np.zeros(1), RandomizedBall(1.0), SystemSource()
    found = []
    for there in (np.array([0, 1]), np.array([1])):
        records = RecordBlocks.arrange([[1.0], [1.0]], [9.0, 0.2], [0, 1]).select(there)
        smooth = _smooth_loss(Squared(), ball, once(source))
        found.append([records.gradients(smooth, theta).vectors()[-1, 0] for _ in range(2000)])
    assert stats.ks_2samp(*found).pvalue > 1e-7
    # The gradient at a point of [−1, 1], which is uniform there: u − 0.2.
    assert stats.kstest(np.array(found[1]) + 0.2, stats.uniform(-1, 2).cdf).pvalue > 1e-7


@dataclass(frozen=True)
class Split:
    """All users agree up to a point, and none beyond it."""

    def value(self, theta: Array, X: Array, y: Array) -> Array:
        return np.zeros(len(X))

    def gradient(self, theta: Array, X: Array, y: Array) -> Array:
        far = theta[0] < -0.5
        return np.column_stack([50.0 * X[:, 1] if far else np.ones(len(X)), np.zeros(len(X))])


@pytest.mark.filterwarnings("ignore::dpgrain.EndedWarning")
def test_ended_run_returns_its_last_state() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 2))
    options: dict[str, Any] = {"users": np.arange(400), "epsilon": 8.0, "random_state": 0}
    options["n_users"] = 400
    recipe = UserLevelSgd(Known(distance=1.0, records=100), rounds=20, smoothing="none")
    found = minimise(Split(), rows, np.zeros(400), [0.0, 0.0], solver=recipe, **options)
    rounds = len(found.history.points)
    assert 1 < rounds < 20
    assert found.history.gradients.shape == (rounds, 2)
    # The mean of the iterates; at the last one the users no longer agreed.
    assert -1.0 < found.theta[0] < 0.0
    # The whole run was charged for.
    assert found.guarantee.event == recipe.plan(cases.TASK).event
    start = np.array([-1.0, 0.5])
    ended = minimise(Split(), rows, np.zeros(400), start, solver=recipe, **options)
    assert len(ended.history.points) == 0
    assert np.array_equal(ended.theta, start)


@pytest.mark.filterwarnings("ignore::dpgrain.EndedWarning")
def test_phases_continue_after_an_ended_one() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 2))
    # In the first phase, which has the smaller part, users disagree at once.
    first = 400 - len(cases.RECIPES["sgd strong"].plan(cases.TASK).localisation.phases()[1].users)
    rows[first:, 1] = 0.02
    found = minimise(
        Split(),
        rows,
        np.zeros(400),
        [-1.0, 0.0],
        solver=UserLevelSgdStronglyConvex(cases.KNOWN, rounds=6, count=2),
        users=np.arange(400),
        n_users=400,
        epsilon=8.0,
        random_state=0,
    )
    assert len(found.history.points) == 6
