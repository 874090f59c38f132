"""The user-level test problems and baselines have the stated properties."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, chi2, ncx2
from tests.programs import experiment

from dpgrain import ParameterError
from dpgrain.accounting import gaussian_delta

FloatArray = NDArray[np.float64]
# For a two-sided test at about 1e-7.
SE = 5.4


it = experiment("instances")
bl = experiment("baselines")

PROBLEMS = {
    "logistic": it.LogisticProblem(6, 8.0),
    "absolute": it.AbsoluteProblem(6, 2.0, noise=0.1),
    "ridge": it.RidgeProblem(6, 2.0, ridge=0.05, noise=0.3),
    "mean": it.MeanProblem(6, 2.0, spread=1.5),
    "linear": it.LinearProblem(6, 2.0, bound=3.0, mean_norm=0.4),
}


@pytest.fixture(params=PROBLEMS)
def problem(request: pytest.FixtureRequest) -> Any:
    return PROBLEMS[request.param]


def points(problem: Any, count: int, seed: int = 0) -> FloatArray:
    g = np.random.default_rng(seed)
    lengths = np.minimum(g.uniform(0, 1.5, (count, 1)), 1)
    return np.asarray(problem.distance * lengths * it.sphere(g, count, problem.dimension))


# Means -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("common", [False, True])
@pytest.mark.parametrize("delta", [0.0, 0.3])
def test_directly_drawn_means_agree_with_records(delta: float, common: bool) -> None:
    # A bound at which clipping is possible, but too rare for this test.
    n, m, d = 40_000, 4, 3
    near, far = 1.0 + math.sqrt(d) + 5.0, 100.0
    assert it.clipping_chance(n, m, d, 1.0, near) > 1e-9 > it.clipping_chance(n, m, d, 1.0, far)
    moments = []
    for bound in (near, far):
        g = np.random.default_rng(7)
        x = it.gaussian_users(
            n, m, d, g, mean_norm=1.0, bound=bound, heterogeneity=delta, common=common
        )
        assert x.shape == (n, d)
        moments.append((x, np.column_stack([x, x**2, x**3])))
    (first, a), (second, b) = moments
    spread = np.sqrt((a.var(axis=0) + b.var(axis=0)) / n)
    assert np.all(np.abs(a.mean(axis=0) - b.mean(axis=0)) < SE * spread)
    # And both have the mean that they should.
    point = it.sphere(np.random.default_rng(7), 1, d)[0] if common else np.zeros(d)
    truth = (1 - delta) * it.direction(d) + delta * point
    for x in (first, second):
        assert np.all(np.abs(x.mean(axis=0) - truth) < SE * x.std(axis=0) / math.sqrt(n))


@pytest.mark.parametrize(("n", "m"), [(50, 1000), (3, 50_000)])
def test_all_batches_of_records_are_their_users(n: int, m: int) -> None:
    d = 100
    assert n * m * d > it._ENTRIES
    g = np.random.default_rng(12)
    x = it.gaussian_users(n, m, d, g, 2.0, 13.0, heterogeneity=1.0)
    # Only the users' points, which are drawn first.
    points = 2 * it.sphere(np.random.default_rng(12), n, d)
    np.testing.assert_allclose(x, points, rtol=1e-9, atol=1e-12)


def test_clipping_acts_on_outliers() -> None:
    g = np.random.default_rng(1)
    x = it.gaussian_users(2000, 1, 5, g, mean_norm=1.0, bound=1.5)
    norms = np.linalg.norm(x, axis=1)
    assert norms.max() == pytest.approx(1.5)
    # ‖N(μ, I)‖² is a noncentral χ²; some are inside, about the expected number.
    inside = float(np.mean(norms < 1.5 - 1e-9))
    expected = float(ncx2.cdf(1.5**2, 5, 1.0))
    assert abs(inside - expected) < SE * math.sqrt(expected * (1 - expected) / 2000)


def test_the_chance_of_clipping_is_an_upper_bound() -> None:
    for d in (1, 10, 100):
        for far in (1.0, 2.0, 4.0):
            bound = math.sqrt(d) + far
            assert chi2.sf(bound**2, d) <= it.clipping_chance(1, 1, d, 0.0, bound)


def test_truncation_projects_coordinates() -> None:
    g = np.random.default_rng(2)
    z, bound = g.normal(scale=2.0, size=(1000, 4)), 1.3
    printed = z / np.maximum(1, np.abs(z) / bound)
    np.testing.assert_allclose(it.truncated(z, bound), printed, rtol=1e-14)
    # Not conditioned on being inside: the faces have mass.
    assert np.mean(np.abs(it.truncated(z, bound)) == bound) > 0.4


def test_the_mean_of_a_truncated_gaussian_is_exact() -> None:
    mean, sd, bound, count = np.array([0.0, 0.9, -1.4, 5.0]), 0.7, 1.0, 200_000
    z = it.truncated_gaussian(mean, sd, bound, count, np.random.default_rng(3))
    error = np.abs(z.mean(axis=0) - it.truncated_mean(mean, sd, bound))
    assert np.all(error <= SE * z.std(axis=0) / math.sqrt(count) + 1e-9)


def test_lemma_3_is_false_along_an_axis() -> None:
    d, limit = 25, 1.0
    sd = limit / (20 * math.sqrt(d))
    mean = np.zeros(d)
    mean[0] = limit / 2
    assert np.linalg.norm(mean) + 10 * math.sqrt(d) * sd <= limit + 1e-12
    moved = it.truncated_mean(mean, sd, limit / math.sqrt(d)) - mean
    assert np.linalg.norm(moved) == pytest.approx(0.3)
    # The problem with truncated Gaussians spreads its mean, which barely moves.
    hard = it.LinearProblem(d, mean_norm=0.5)
    assert np.linalg.norm(hard._mean) == pytest.approx(0.5, abs=1e-12)


# Lower bounds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("hypotheses", [2**10, 2**24 + 5, 2**40])
def test_packing(hypotheses: int) -> None:
    packing = it.Packing(hypotheses, 0.2, bound=3.0)
    d = packing.coordinates
    assert 2**d <= hypotheses < 2 ** (d + 1)
    members = packing.members(np.random.default_rng(0))
    assert len(members) >= math.exp(d / 8)
    for v, w in combinations(members, 2):
        assert np.sum(v != w) >= d / 4
        # Bounded below by half the least sum of excesses: at v on the one half, w on the other.
        assert packing.separation(v, w) >= 3.0 * 0.2 / 8 - 1e-12
        mixed = np.where(np.arange(d) % 2, -v, -w)
        both = packing.excess(mixed, v) + packing.excess(mixed, w)
        assert packing.separation(v, w) == pytest.approx(both / 2)


def test_packing_draws_its_distribution() -> None:
    packing = it.Packing(2**3, 0.4, bound=2.0)
    signs = packing.signs()
    assert len(np.unique(signs, axis=0)) == 8
    v, n, m = signs[5], 20_000, 3
    means = packing.draw(n, m, v, np.random.default_rng(1))
    # Records are the 2⌊log₂K⌋ points ±e_j.
    one_each = packing.draw(n, 1, v, np.random.default_rng(2))
    assert len(np.unique(one_each, axis=0)) == 2 * packing.coordinates == 6
    # m records ±e_j: absolute values add up to at most 1, with the parity of m.
    assert np.abs(means).sum(axis=1).max() <= 1 + 1e-12
    losses = packing.losses(means, signs)
    assert losses.min() >= -1e-12
    assert losses.max() <= 2.0 + 1e-12
    risks = losses.mean(axis=0)
    best = packing.losses(0.4 / 3 * v[None].astype(float), -v[None])[0, 0]
    assert best == pytest.approx(2.0 * (1 - 0.4) / 2)
    for theta, risk, spread in zip(signs, risks, losses.std(axis=0), strict=True):
        exact = best + packing.excess(theta, v)
        assert abs(risk - exact) < SE * spread / math.sqrt(n)
    assert packing.excess(-v, v) == 0
    with pytest.raises(ParameterError, match="gap"):
        it.Packing(4, 1.1)


def test_two_points() -> None:
    two = it.TwoPoint(2.0)
    assert np.all(two.draw(3, 4, negative=False) == 2.0)
    assert np.all(two.draw(3, 4, negative=True) == -2.0)
    for n, epsilon in ((1, 1.0), (5, 0.3)):
        # One bit of a test within nε, if all users change: it errs with p, and answers p or 1 − p.
        p = 1 / (1 + math.exp(n * epsilon))
        floor = two.floor(n, epsilon, 0.0)
        assert floor <= p * (1 - p) + 1e-12
        assert floor == pytest.approx(p / 4)
        assert two.floor(n, epsilon, 1e-3) < floor
    assert two.floor(10**6, 1.0, 1e-6) == 0


# Convex problems -------------------------------------------------------------------------------


def test_heterogeneity_is_the_total_variation(problem: Any) -> None:
    n, m, delta = 40, 500, 0.2
    for common in (False, True):
        mixed = replace(problem, heterogeneity=delta, common=common)
        X, y, users = mixed.draw(n, m, np.random.default_rng(4))
        assert X.shape == (n * m, mixed.dimension)
        assert np.array_equal(users, np.repeat(np.arange(n), m))
        # P₀ creates points once; repeated points belong to a user.
        rows = np.column_stack([X, y])
        found, where, count = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
        repeated = count[where.ravel()] > 1
        tails = binom.cdf(repeated.sum(), n * m, delta), binom.sf(repeated.sum() - 1, n * m, delta)
        assert min(tails) > 5e-8
        assert np.sum(count > 1) == (1 if common else n)
        owners = {tuple(rows[i]): users[i] for i in np.flatnonzero(repeated)}
        if not common:
            assert all(owners[tuple(rows[i])] == users[i] for i in np.flatnonzero(repeated))
        assert len(found) > n * m / 2
    X, y, _ = problem.draw(n, m, np.random.default_rng(4))
    assert len(np.unique(np.column_stack([X, y]), axis=0)) == n * m


def test_excess_agrees_with_the_population(problem: Any) -> None:
    X, y, _ = problem.draw(200, 1000, np.random.default_rng(5))
    X = X.astype(np.float64)
    best = problem.loss.value(problem.minimiser, X, y)
    for theta in points(problem, 8):
        over = problem.loss.value(theta, X, y) - best
        spread = over.std() / math.sqrt(len(y))
        assert abs(over.mean() - problem.excess(theta)) < SE * spread + 1e-9
        assert problem.excess(theta) > 10 * spread, "the test would not see it"


def test_excess_is_least_at_the_minimiser(problem: Any) -> None:
    assert problem.excess(problem.minimiser) == pytest.approx(0, abs=1e-14)
    assert np.linalg.norm(problem.minimiser - problem.start) <= problem.distance * (1 + 1e-12)
    assert all(problem.excess(theta) > 0 for theta in points(problem, 30))
    # Nor is anything near it better, on either side.
    for side in it.sphere(np.random.default_rng(1), 30, problem.dimension):
        near = problem.domain.project(problem.minimiser + 0.01 * problem.distance * side)
        assert problem.excess(near) > 0


@pytest.mark.parametrize("p", [3, 4, 50, 1000])
def test_integrals_at_other_dimensions(p: int) -> None:
    size = 4000
    for made in (
        it.LogisticProblem(p, 2 * math.sqrt(p)),
        it.AbsoluteProblem(p, math.sqrt(p), noise=0.05),
    ):
        theta = points(made, 1)[0]
        X, y, _ = made.draw(size, 1, np.random.default_rng(6))
        X = X.astype(np.float64)
        over = made.loss.value(theta, X, y) - made.loss.value(made.minimiser, X, y)
        assert abs(over.mean() - made.excess(theta)) < SE * over.std() / math.sqrt(size)


def test_gradients_keep_their_bounds(problem: Any) -> None:
    X, y, _ = replace(problem, heterogeneity=0.3).draw(50, 40, np.random.default_rng(8))
    X = X.astype(np.float64)
    largest, steepest, flattest = 0.0, 0.0, math.inf
    for theta, other in combinations(points(problem, 12), 2):
        first, second = problem.loss.gradient(theta, X, y), problem.loss.gradient(other, X, y)
        largest = max(largest, float(np.linalg.norm(first, axis=1).max()))
        apart = float(np.linalg.norm(theta - other))
        steepest = max(steepest, float(np.linalg.norm(first - second, axis=1).max()) / apart)
        rise = (first - second) @ (theta - other)
        flattest = min(flattest, float(rise.min()) / apart**2)
    assert largest <= problem.lipschitz * (1 + 1e-6)
    # Not much larger than they need be either.
    assert largest >= problem.lipschitz / 3
    assert steepest <= problem.smoothness * (1 + 1e-9)
    assert steepest >= min(problem.smoothness, 1.0) / 3
    assert flattest >= problem.strength * (1 - 1e-9) - 1e-12


def test_invalid_problems_are_rejected() -> None:
    with pytest.raises(ParameterError, match="dimension"):
        it.MeanProblem(2)
    with pytest.raises(ParameterError, match="heterogeneity"):
        it.MeanProblem(heterogeneity=1.5)


# Baselines -------------------------------------------------------------------------------------


def chi(error: float, expected: float, count: int) -> bool:
    """Whether a root mean square over this number of normal draws is as expected."""
    low, high = chi2.ppf([5e-8, 1 - 5e-8], count) / count
    return bool(low <= (error / expected) ** 2 <= high)


@pytest.mark.parametrize("relation", ["replace", "zero_out"])
def test_noise_of_baselines(relation: str) -> None:
    n, m, d, B, asked = 300, 20, 8, 5.0, (1.0, 1e-6)
    g = np.random.default_rng(9)
    x = it.gaussian_users(n, m, d, g, mean_norm=1.0)
    unit = bl.multiplier(*asked, relation)
    assert gaussian_delta(1.0, (2 if relation == "replace" else 1) / unit) <= 1e-6
    options = {"repetitions": 40}

    found = bl.privacy_error(bl.per_coordinate, x, *asked, relation, g, bound=B, **options)
    assert chi(found, math.sqrt(d) * unit * math.sqrt(d) * B / n, 40 * d)

    found = bl.privacy_error(
        bl.by_group_property, x, *asked, relation, g, bound=B, records=m, **options
    )
    record = bl.multiplier(*bl.group_share(*asked, m), relation, "record")
    assert chi(found, math.sqrt(d) * record * B / (n * m), 40 * d)
    assert record > m * unit

    centre = it.direction(d)
    away = x - centre
    radius = bl.best_norm(away, unit, 1.0)
    assert radius == pytest.approx(np.linalg.norm(away, axis=1).max())
    found = bl.privacy_error(
        bl.clipped_around, x, *asked, relation, g, centre=centre, least=1.0, **options
    )
    assert chi(found, math.sqrt(d) * unit * radius / n, 40 * d)


def test_hindsight_finds_the_best_norm() -> None:
    g = np.random.default_rng(10)
    x = it.gaussian_users(2000, 10, 20, g)
    asked = (0.2, 1e-6, "replace")
    noise = bl.multiplier(*asked)

    def error(norm: float) -> float:
        kept = bl.clipped(x, norm).mean(axis=0) - x.mean(axis=0)
        return float(kept @ kept + 20 * (noise * norm / 2000) ** 2)

    best = bl.best_norm(x, noise)
    tried = np.linspace(0.5 * best, 1.5 * best, 201)
    assert error(best) <= min(error(norm) for norm in tried) * 1.01
    assert error(best) < 0.9 * error(np.linalg.norm(x, axis=1).max() * 2)
    centre = x.mean(axis=0)
    median = float(np.median(np.linalg.norm(x - centre, axis=1)))
    assert bl.best_norm(x - centre, 100 * noise) < median / 10
    assert bl.best_norm(x - centre, 100 * noise, 0.5) == pytest.approx(median)
    with pytest.raises(ParameterError, match="zero"):
        bl.best_norm(np.zeros((3, 2)), noise)


@pytest.mark.parametrize("m", [1, 7, 100])
def test_group_property(m: int) -> None:
    epsilon, delta = 2.0, 1e-6
    one, share = bl.group_share(epsilon, delta, m)
    assert sum(share * math.exp(i * one) for i in range(m)) == pytest.approx(delta)
    assert share >= delta / (m * math.exp((m - 1) * one)) * (1 - 1e-12)


def test_printed_constant_agrees_with_the_algorithm() -> None:
    n, d, epsilon, delta, tau, failure = 5000, 40, 0.7, 1e-7, 1.3, 1e-3
    x = np.empty((n, d))
    found = bl.printed_error(x, epsilon, delta, "replace", radius=tau, failure=failure)
    variance = bl.PRINTED_CONSTANT * d * tau**2 * math.log(d * n / failure)
    variance *= math.log(1 / delta) / (n * epsilon) ** 2
    assert found == pytest.approx(math.sqrt(variance))
    corollary = bl.printed_corollary(
        x, epsilon, delta, "replace", records=9, bound=2.0, failure=failure
    )
    assert corollary / found == pytest.approx(
        2.0 / 1.3 * math.sqrt(math.log(2 * n / failure) / (2 * 9))
    )
    with pytest.raises(ParameterError, match="replace"):
        bl.printed_error(x, epsilon, delta, "zero_out", radius=tau, failure=failure)


def test_all_users_are_within_the_radius() -> None:
    n, m, d = 3000, 5, 12
    tau = it.gaussian_users(n, m, d, np.random.default_rng(11))
    far = np.linalg.norm(tau - math.sqrt(d) * it.direction(d), axis=1).max()
    assert far <= bl.gaussian_radius(n, m, d, 1e-7)
    assert far >= 0.6 * bl.gaussian_radius(n, m, d, 0.5)
