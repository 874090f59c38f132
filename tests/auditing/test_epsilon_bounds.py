"""Lower bounds have the stated coverage, and are as large as draws allow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpgrain.accounting import gaussian_epsilon
from dpgrain.auditing.epsilon_bounds import (
    ScoreCounts,
    event_epsilon,
    largest_noise,
    named_epsilon,
    probability_lower_bound,
    probability_upper_bound,
)


@pytest.mark.parametrize("p", [0.003, 0.3, 0.97])
def test_bounds_on_a_probability_are_exact(p: float) -> None:
    """Over the whole binomial law, with nothing drawn."""
    n, alpha = 200, 0.05
    chance = stats.binom.pmf(np.arange(n + 1), n, p)
    low = np.array([probability_lower_bound(k, n, alpha) for k in range(n + 1)])
    high = np.array([probability_upper_bound(k, n, alpha) for k in range(n + 1)])
    assert chance[low > p].sum() <= alpha
    assert chance[high < p].sum() <= alpha
    # With ten times that they would be tighter and fail.
    tight = np.array([probability_lower_bound(k, n, 10 * alpha) for k in range(n + 1)])
    assert chance[tight > p].sum() > alpha


def counted(mu: float, draws: int, seed: int) -> ScoreCounts:
    rng = np.random.default_rng(seed)
    one, other = (mu * rng.normal(size=(2, draws)).T + [mu**2 / 2, -(mu**2) / 2]).T
    return ScoreCounts.empty().add_scores(one, other, mu**2 / 2 + 9 * mu)


@pytest.mark.slow
def test_bound_fails_as_rarely_as_stated() -> None:
    alpha, delta, mu = 0.2, 1e-3, 1.0
    truth = gaussian_epsilon(delta, mu)
    wrong = [counted(mu, 4000, seed).bound(delta, alpha) > truth for seed in range(200)]
    assert sum(wrong) <= stats.binom.ppf(0.999, 200, alpha)


def test_threshold_draws_do_not_decide_the_bound() -> None:
    """The first half separates the neighbours by chance, and the second does not."""
    one, other = np.ones(2000), -np.ones(2000)
    one[1::2] = other[1::2] = np.tile([1.0, -1.0], 500)
    found = ScoreCounts.empty().add_scores(one, other, 2.0)
    assert found.bound(0.0, 0.01) == 0.0
    one[1::2], other[1::2] = 1.0, -1.0
    assert ScoreCounts.empty().add_scores(one, other, 2.0).bound(0.0, 0.01) > 4


@pytest.mark.slow
def test_bound_is_near_the_truth_and_detects_halved_noise() -> None:
    delta, mu = 1e-6, 0.2681
    claim = gaussian_epsilon(delta, mu)
    bound = counted(mu, 4_000_000, 1).bound(delta, 0.001)
    assert 0.65 * claim < bound < claim
    assert counted(2 * mu, 4_000_000, 2).bound(delta, 0.001) > claim


def test_nothing_drawn_bounds_nothing() -> None:
    assert ScoreCounts.empty().bound(1e-6, 0.01) == 0.0
    assert ScoreCounts.empty().draws == 0


def test_one_sided_outcome_is_infinite_in_the_limit() -> None:
    """A leaking threshold: an item selected with one person's record, never without it."""
    one = np.r_[np.ones(5000), np.zeros(5000)]
    np.random.default_rng(1).shuffle(one)
    found = ScoreCounts.empty().add_scores(one, np.zeros(10_000), 2.0)
    assert found.bound(1e-6, 0.01) > math.log(400)
    assert event_epsilon(0.5, 0.0, 1e-6) == math.inf


def test_a_curve_goes_from_no_alarm_to_no_miss() -> None:
    alarms, misses = np.array(counted(1.0, 2000, 3).curve()).T
    assert (np.diff(alarms) >= 0).all()
    assert (np.diff(misses) <= 0).all()
    assert (alarms[-1], misses[-1]) == (1.0, 0.0)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_noise_scale_bound_has_the_stated_confidence(law: str) -> None:
    alpha, rng = 0.1, np.random.default_rng(4)
    draw = rng.normal if law == "gaussian" else rng.laplace
    wrong = 0
    for _ in range(400):
        noise = draw(size=50).tolist()
        known = (noise, []) if law == "gaussian" else ([], noise)
        wrong += largest_noise(*known, alpha) < 1.0
    assert wrong <= stats.binom.ppf(0.999, 400, alpha)
    assert largest_noise([], [], 0.1) == math.inf


def test_laplace_noise_costs_less_at_a_delta() -> None:
    epsilon = named_epsilon(0.0, 1.0, 0.01)
    # δ(ε') = 1 − e^((ε' − ε)/2) of one Laplace number.
    assert 1 - math.exp((epsilon - 1.0) / 2) == pytest.approx(0.01)
    assert named_epsilon(0.1, 1.0, 0.01) == 0.0
