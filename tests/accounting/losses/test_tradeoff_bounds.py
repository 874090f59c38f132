"""Trade-off curves: closed forms, optimal attackers, and every kind of event."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm
from tests.accounting.events.test_base import EVENTS

from dpgrain.accounting import ApproximateDP, Event, Gaussian, SampledGaussian
from dpgrain.accounting.losses.curves import ResponsesCurve
from dpgrain.accounting.losses.gaussian import gaussian_delta, pure_mu
from dpgrain.accounting.losses.loss import Loss
from dpgrain.accounting.losses.pairs import ResponsePair
from dpgrain.accounting.losses.tradeoff_bounds import (
    best_guess,
    gaussian_mu,
    is_unbounded,
    tradeoff,
)
from dpgrain.units import RELATIONS, Relation

ALPHAS = np.array([1e-6, 0.001, 0.05, 0.3, 0.5, 0.9, 1.0])
PRIORS = (0.001, 0.2, 0.5, 0.9)


def _promised(epsilon: float, delta: float, alphas: np.ndarray) -> np.ndarray:
    steep = 1 - delta - math.exp(epsilon) * alphas
    flat = math.exp(-epsilon) * (1 - delta - alphas)
    return np.maximum(np.maximum(steep, flat), 0.0)


@pytest.mark.parametrize("mu", [0.01, 0.5, 2.0, 6.0])
def test_a_gaussian_has_its_closed_form(mu: float) -> None:
    loss = Loss(mu=mu)
    assert tradeoff(loss, ALPHAS) == pytest.approx(norm.cdf(norm.isf(ALPHAS) - mu), rel=1e-6)
    assert best_guess(loss, 0.5) == pytest.approx(norm.cdf(mu / 2), abs=1e-9)
    for prior in PRIORS:
        # The threshold of the likelihood ratio is where the posterior odds are even.
        place = math.log((1 - prior) / prior) / mu + mu / 2
        right = prior * norm.sf(place - mu) + (1 - prior) * norm.cdf(place)
        assert best_guess(loss, prior) == pytest.approx(right, abs=1e-9)
        assert best_guess(loss, prior) >= right - 1e-15
    assert gaussian_mu(loss) == mu


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.01])
def test_epsilon_and_delta_have_a_closed_form(epsilon: float, delta: float) -> None:
    loss = ApproximateDP(epsilon, delta).loss()
    found = tradeoff(loss, ALPHAS)
    expected = _promised(epsilon, delta, ALPHAS)
    assert found == pytest.approx(expected, abs=1e-9)
    assert (found <= expected).all()
    wrong = (1 - delta) / (1 + math.exp(epsilon))
    assert best_guess(loss, 0.5) == pytest.approx(1 - wrong, abs=1e-9)
    assert best_guess(loss, 0.5) >= 1 - wrong
    assert gaussian_mu(loss) == (pure_mu(epsilon) if delta == 0 else math.inf)


@pytest.mark.parametrize("prior", PRIORS)
def test_randomised_response_is_guessed_by_bayes(prior: float) -> None:
    """The best guess compares prior and answer, and follows the larger posterior."""
    true = math.e / (1 + math.e)
    right = max(prior * true, (1 - prior) * (1 - true)) + max(
        prior * (1 - true), (1 - prior) * true
    )
    found = best_guess(Loss(pure=1.0), prior)
    assert right - 1e-15 <= found <= right + 1e-9


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.4])
def test_many_responses_are_bounded_by_the_best_test(alpha: float) -> None:
    """The most powerful test rejects by the number of true answers (Neyman and Pearson)."""
    count, odds = 30, 0.2
    true = math.exp(odds) / (1 + math.exp(odds))
    counts = np.arange(count + 1)
    under_p, under_q = binom.pmf(counts, count, 1 - true), binom.pmf(counts, count, true)
    power, left = 0.0, alpha
    for p, q in zip(under_p[::-1], under_q[::-1], strict=True):
        share = min(left / p, 1.0)
        power += share * q
        left -= share * p
    found = 1 - float(tradeoff(Loss(pairs=((ResponsePair(odds), count),)), np.array([alpha]))[0])
    assert power - 1e-12 <= found <= power + 1e-3


def test_no_attacker_beats_the_limits_of_gaussian_sums() -> None:
    rng, runs, mu = np.random.default_rng(7), 400_000, 1.3
    absent, present = rng.normal(0, 1, runs), rng.normal(mu, 1, runs)
    threshold = np.quantile(absent, 0.95)
    detected, right = (present > threshold).mean(), (present > mu / 2).mean()
    loss = Gaussian(1 / mu).loss()
    found = 1 - float(tradeoff(loss, np.array([0.05]))[0])
    assert found == pytest.approx(detected, abs=5e-3)
    assert best_guess(loss, 0.5) == pytest.approx(right, abs=5e-3)


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_attacker_beats_the_limits_of_a_sampled_run(relation: Relation) -> None:
    """The likelihood-ratio test of simulated runs detects no more, and almost as much."""
    rng, runs, rounds, rate, noise = np.random.default_rng(11), 40_000, 40, 0.2, 2.0
    shift = 1 / noise

    def outcomes(move: float) -> np.ndarray:
        return rng.normal(0, 1, (runs, rounds)) + move * (rng.random((runs, rounds)) < rate)

    def log_density(x: np.ndarray, move: float) -> np.ndarray:
        return np.log1p(rate * np.expm1(move * x - move**2 / 2))

    one, other = shift, (-shift if relation == "replace" else 0.0)
    powers, guesses = [], []
    for null, truth in ((other, one), (one, other)):
        ratios = [
            (log_density(x, truth) - log_density(x, null)).sum(axis=1)
            for x in (outcomes(null), outcomes(truth))
        ]
        powers.append((ratios[1] > np.quantile(ratios[0], 0.95)).mean())
        guesses.append(((ratios[1] > 0).mean() + (ratios[0] <= 0).mean()) / 2)
    event = SampledGaussian(noise, rate, rounds, level="user", sampling="users")
    loss = event.loss(relation=relation)
    found = 1 - float(tradeoff(loss, np.array([0.05]))[0])
    error = 4 * math.sqrt(0.25 / runs)
    assert max(powers) - 2 * error <= found <= max(powers) + 3 * error
    assert max(guesses) - error <= best_guess(loss, 0.5) <= max(guesses) + 2 * error


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", EVENTS)
def test_every_event_has_limits_in_order(name: str, relation: Relation) -> None:
    """The limits of more units are larger, and none exceeds the profile."""
    event = EVENTS[name]
    before = [0.0, 0.0, 0.0]
    for units in (1, 3):
        loss = event.loss(units, relation)
        errors = tradeoff(loss, ALPHAS)
        assert ((errors >= 0) & (errors <= 1 - ALPHAS + 1e-9)).all()
        assert (np.diff(errors) <= 1e-12).all()
        guesses = [best_guess(loss, prior) for prior in (0.2, 0.5)]
        assert guesses[1] <= (1 + loss.delta(0.0)) / 2 + 1e-9
        now = [*guesses, 1 - float(errors[2])]
        assert all(new >= old - 1e-6 for new, old in zip(now, before, strict=True))
        before = now


@pytest.mark.parametrize("name", EVENTS)
def test_a_finite_mu_bounds_the_profile(name: str) -> None:
    loss = EVENTS[name].loss(2, "replace")
    mu = gaussian_mu(loss)
    # The profile of a Gaussian and a pure part together is not as close as the two μ.
    if math.isfinite(mu) and not (loss.mu and loss.pure):
        for epsilon in (0.0, 0.1, 1.0, 3.0, 10.0):
            assert loss.delta(epsilon) <= gaussian_delta(epsilon, mu) * (1 + 1e-3) + 1e-15


@pytest.mark.parametrize("name", EVENTS)
def test_many_deltas_equal_single_evaluations(name: str) -> None:
    loss = EVENTS[name].loss(2)
    epsilons = np.array([0.0, 0.01, 0.4, 1.5])
    one_by_one = np.array([loss.delta(epsilon) for epsilon in epsilons])
    assert loss.deltas(epsilons) == pytest.approx(one_by_one, rel=2e-3, abs=1e-9)


def test_mu_of_a_sampled_run_covers_all_rounds() -> None:
    """The rarest runs include the person in all rounds, so that no smaller μ bounds large ε."""
    loss = SampledGaussian(2.0, 0.5, 4, level="user", sampling="users").loss()
    mu = gaussian_mu(loss)
    assert mu == pytest.approx(1.0, rel=1e-6)
    assert loss.delta(80.0) > gaussian_delta(80.0, 0.9 * mu)


@given(st.floats(0.01, 3.0), st.floats(0.01, 0.99), st.floats(0.0, 0.2))
def test_mixed_bounds_are_never_below_their_parts(mu: float, prior: float, leak: float) -> None:
    both = best_guess(Loss(mu=mu, leak=leak), prior)
    assert both >= best_guess(Loss(mu=mu), prior) - 1e-9
    assert both >= max(prior, 1 - prior) - 1e-12


def test_unbounded_losses_have_no_bounds() -> None:
    for loss in (Loss(pure=math.inf), Loss(mu=math.inf), Loss(leak=1.0)):
        assert is_unbounded(loss)
        assert (tradeoff(loss, ALPHAS) == 0).all()
    assert not is_unbounded(Loss(leak=0.999))


def test_several_curves_at_once_equal_the_maximum() -> None:
    event: Event = EVENTS["parallel"]
    for units in (1, 3):
        loss = event.loss(units, unit=None)
        epsilons = np.array([0.0, 0.5, 2.0])
        expected = [loss.delta(epsilon) for epsilon in epsilons]
        assert loss.deltas(epsilons) == pytest.approx(expected, rel=2e-3)
    assert gaussian_mu(Loss.from_curve(ResponsesCurve(0.1, 4))) == pytest.approx(
        2 * pure_mu(0.1), rel=1e-6
    )
