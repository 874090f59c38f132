"""The curve of the best of several runs, against results that are ordered to give most away."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from dpgrain.accounting import ApproximateDP, Gaussian, Loss, PureDP
from dpgrain.accounting.events.best_of import SelectBest
from dpgrain.accounting.losses.repetition import BestOfCurve, RunCount

Array = NDArray[np.float64]
LAWS = {
    "geometric": (10.0, "negative_binomial", 1.0),
    "many": (10_000.0, "negative_binomial", 1.0),
    "few": (1.5, "negative_binomial", 1.0),
    "logarithmic": (30.0, "negative_binomial", 0.0),
    "steady": (12.0, "negative_binomial", 4.0),
    "half": (6.0, "negative_binomial", -0.5),
    "poisson": (10.0, "poisson", 1.0),
    "poisson-short": (0.3, "poisson", 1.0),
}


def runs(name: str) -> RunCount:
    mean, stopping, eta = LAWS[name]
    if stopping == "poisson":
        return RunCount(mean)
    return RunCount(mean, SelectBest(PureDP(1.0), mean, eta=eta).gamma, eta)


def among_best(law: RunCount, share: Array) -> Array:
    """The chance that the best of the runs is among the best results of a share, by its definition."""
    if law.gamma == 0:
        return np.asarray(-np.expm1(-law.mean * share))
    rest = law.gamma + (1 - law.gamma) * share
    if law.eta == 0:
        return np.asarray(1 - np.log(rest) / math.log(law.gamma))
    power = law.gamma**-law.eta
    return np.asarray((power - rest**-law.eta) / (power - 1))


def worst(law: RunCount, mu: float, epsilon: float) -> float:
    """The largest δ of x ~ N(μ, 1) or N(0, 1): small x are best, then large ones, then the rest."""
    first = np.concatenate([[-np.inf], np.linspace(-8, 8, 161)])
    better, own = np.meshgrid(first, np.linspace(-8, 8 + mu, 161), indexing="ij")
    seen = [
        among_best(law, ndtr(better - shift) + ndtr(shift - own))
        - among_best(law, ndtr(better - shift))
        for shift in (mu, 0.0)
    ]
    ordered = better <= own
    return max(float((p - math.exp(epsilon) * q)[ordered].max()) for p, q in (seen, seen[::-1]))


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("mu", [1e-4, 0.03, 1.0])
def test_no_order_of_results_shows_more(name: str, mu: float) -> None:
    law = runs(name)
    curve = BestOfCurve(Loss(mu=mu), law)
    for epsilon in mu * np.array([0.0, 0.3, 1.0, 2.0, 4.0, 6.0]):
        assert curve.delta(float(epsilon)) >= worst(law, mu, float(epsilon)) - 1e-13


@pytest.mark.parametrize("mu", [1e-4, 0.01, 0.1, 1.0])
def test_it_is_near_to_what_an_order_shows(mu: float) -> None:
    law = runs("many")
    curve = BestOfCurve(Loss(mu=mu), law)
    epsilon = 12 * mu + mu * mu / 2
    shown = worst(law, mu, epsilon)
    assert shown <= curve.delta(epsilon) <= 4 * shown
    assert curve.delta(1.05 * epsilon) < shown
    # As if no result could be better: less than is shown.
    assert curve.runs.mean * Gaussian(1 / mu).delta(epsilon) < shown


@pytest.mark.parametrize(("eta", "epsilon"), [*itertools.product((0.0, 1.0, 3.0), (1e-3, 0.5))])
def test_a_rare_result_of_pure_runs_is_covered(eta: float, epsilon: float) -> None:
    """Below better ones of ratio e^{−ε}, a rare result of ratio e^ε is seen with e^{(2+η)ε}."""
    gamma = SelectBest(PureDP(1.0), 50.0, eta=eta).gamma
    law = RunCount(50.0, gamma, eta)
    for share, rare in itertools.product((0.01, 0.1, 0.4), (1e-6, 1e-3)):
        sides = np.array([[share, share + rare], [share * math.exp(epsilon), 0.0]])
        sides[1, 1] = sides[1, 0] + rare * math.exp(-epsilon)
        (a, b), (c, d) = among_best(law, sides)
        for factor in (0.0, 0.5, 0.9):
            asked = factor * (2 + eta) * epsilon
            shown = (b - a) - math.exp(asked) * (d - c)
            assert BestOfCurve(Loss(pure=epsilon), law).delta(asked) >= shown - 1e-13


def test_what_runs_give_away_is_given_away_as_often() -> None:
    curve = BestOfCurve(ApproximateDP(0.1, 1e-6).loss(), runs("geometric"))
    assert curve.delta(400.0) == pytest.approx(10 * 1e-6, rel=1e-3)
    # Runs that tell everything are best with a probability of 1.
    assert BestOfCurve(Loss(leak=1.0), runs("geometric")).delta(1.0) == 1.0


def test_one_run_is_one_run() -> None:
    # A number of runs that is hardly ever above 1.
    curve = BestOfCurve(Gaussian(2.0).loss(), RunCount(1 + 1e-9, 1 - 1e-9, 1.0))
    for epsilon in (0.0, 0.5, 2.0):
        one = Gaussian(2.0).delta(epsilon)
        assert one <= curve.delta(epsilon) <= 1.02 * one
    assert curve.epsilon(1e-6) == pytest.approx(Gaussian(2.0).epsilon(1e-6), rel=1e-2)
    assert curve.bounds(1e-6) == (0.0, curve.epsilon(1e-6))


@pytest.mark.parametrize(
    "law",
    [*map(runs, LAWS), RunCount(1e18), RunCount(1e18, 1e-18, 1e6), RunCount(1.0, 1 - 1e-12, 0.5)],
)
def test_steps_between_weights_are_rounded_up(law: RunCount) -> None:
    """A difference of two numbers near 1 loses what small chances are made of."""
    chances = np.append(0.0, np.geomspace(1e-20, 1.0, 200))
    with mpmath.workdps(60):
        gamma = mpmath.mpf(law.gamma)
        weights = [
            (gamma / (gamma + (1 - gamma) * mpmath.mpf(s))) ** (1 + mpmath.mpf(law.eta))
            if law.gamma
            else mpmath.exp(-mpmath.mpf(law.mean) * mpmath.mpf(s))
            for s in chances
        ]
        exact = [one - two for one, two in itertools.pairwise(weights)]
        for step, least, whole in zip(law.steps(chances), exact, weights, strict=False):
            assert least <= step + 1e-300
            assert step <= least + 1e-6 * whole + 1e-290


def test_poissons_mean_is_not_rounded() -> None:
    (*_, best, _) = SelectBest(Gaussian(1.0), 10.0, stopping="poisson").loss().alternatives
    ((pair, _),) = best.pairs
    assert pair.known.runs == RunCount(10.0)  # type: ignore[attr-defined]
