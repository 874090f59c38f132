"""How far means of users are off at most: for many kinds of users, and for any number of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, chi
from tests.means import cases

from dpgrain.means.total_error import CONFIDENCE, UserCount

Array = NDArray[np.float64]
BOUND = 10.0
# Each statistical assertion fails by chance with probability below this.
CHANCE = 1e-7


def directions(rng: np.random.Generator, n: int, d: int) -> Array:
    x = rng.normal(size=(n, d))
    made: Array = x / np.linalg.norm(x, axis=1, keepdims=True)
    return made


def ball(rng: np.random.Generator, n: int, d: int) -> Array:
    return directions(rng, n, d) * BOUND * rng.random((n, 1)) ** (1 / d)


def near(rng: np.random.Generator, n: int, d: int) -> Array:
    return 5 / math.sqrt(d) + directions(rng, n, d) * rng.random((n, 1)) / 2


def far_away(rng: np.random.Generator, n: int, d: int) -> Array:
    x = near(rng, n, d)
    x[rng.random(n) < 0.1] = -9 / math.sqrt(d)
    return x


def hidden(rng: np.random.Generator, n: int, d: int) -> Array:
    # Too few for a radius, at the other end.
    x = near(rng, n, d)
    x[: min(n // 10, 20)] = -BOUND / math.sqrt(d)
    return x


def skewed(rng: np.random.Generator, n: int, d: int) -> Array:
    x = abs(directions(rng, n, d)) * rng.lognormal(-1, 1.5, size=(n, 1))
    made: Array = x * np.minimum(1, BOUND / np.linalg.norm(x, axis=1, keepdims=True))
    return made


USERS = (ball, near, far_away, hidden, skewed)


@pytest.mark.slow
@pytest.mark.parametrize("roster", [None, 0.1, 0.5, 0.97, 1.0, 1.03, 2.0, 50.0])
@pytest.mark.parametrize("method", ["clip", "recentred", "auto"])
@pytest.mark.parametrize(("n", "d"), [(300, 1), (2000, 1), (2000, 20)])
@pytest.mark.parametrize("users", USERS, ids=lambda users: users.__name__)
def test_error_has_its_stated_coverage(
    users: Callable[..., Array], n: int, d: int, method: str, roster: float | None
) -> None:
    trials = 40
    covered = 0
    for seed in range(trials):
        X = users(np.random.default_rng(seed), n, d)
        asked = {"n_users": None if roster is None else round(n * roster), "method": method}
        found = cases.mean(X, **asked, epsilon=2.0, delta=1e-7, random_state=seed)
        covered += bool(np.linalg.norm(found.value - X.mean(axis=0)) <= found.error)
    assert binom.cdf(covered, trials, CONFIDENCE) > CHANCE


def test_noise_is_not_the_whole_error() -> None:
    # The test above would miss an error that only covers the noise.
    found = []
    for seed in range(20):
        X = near(np.random.default_rng(seed), 2000, 1)
        X[:8] = -BOUND
        found.append((cases.mean(X, method="recentred", epsilon=1.0, random_state=seed), X))
    off = np.array([abs(each.value[0] - X.mean()) for each, X in found])
    assert np.median(off / [each.std_error for each, _ in found]) > 5
    assert (off <= [each.error for each, _ in found]).all()


def test_the_norm_of_noise_is_below_its_part() -> None:
    # With an exact number of users and nothing dropped, the error is pure noise.
    for d in (1, 2, 3, 10, 100, 10_000):
        most = UserCount(1.0, 0.0).error(0.0, 1.0, d)
        assert (1 - CONFIDENCE) / 60 < chi.sf(most, d) < (1 - CONFIDENCE) / 2


@pytest.mark.parametrize("d", [1, 2, 5, 100])
@pytest.mark.parametrize("norm", [0.0, 0.5, 3.0, 30.0])
def test_clipped_parts_are_covered(d: int, norm: float) -> None:
    rng, times, number = np.random.default_rng(d), 4000, UserCount(50.0, 0.0)
    centre = np.full(d, 0.3)
    truth = norm * np.eye(d)[0]
    most = [
        number.clipped_norm(50 * centre + truth + z, centre, 1.0)
        for z in rng.normal(size=(times, d))
    ]
    missed = int((np.array(most) < norm).sum())
    assert binom.sf(missed - 1, times, (1 - CONFIDENCE) / 6) > CHANCE
    # The bound is not far above what can be seen.
    assert np.median(most) < norm + 2.7 + (d + 8) ** 0.25 * 2.3 + (0.0 if d > 1 else 1.0)


@pytest.mark.parametrize("there", [5, 40, 90, 99, 100, 101, 110, 130, 1000])
@pytest.mark.parametrize("stated", [None, 100])
def test_the_number_of_users_is_covered(there: int, stated: int | None) -> None:
    # Each user has the vector (1), so that the sum is their number.
    rng, covered, times = np.random.default_rng(1), 0, 2000
    for noise in rng.normal(size=times) * 6:
        number = UserCount(there + noise, 6.0, stated)
        value = there / number.divisor
        covered += abs(value - 1) <= number.error(value, 0.0, 1) + 1e-12
    # The number has a sixth of the failure probability.
    assert binom.sf(times - covered - 1, times, (1 - CONFIDENCE) / 6) > CHANCE


def test_a_roster_counts_unless_fewer_or_more_are_seen() -> None:
    assert UserCount(85.0, 6.0).divisor == 85
    assert UserCount(89.0, 6.0, 100).divisor == UserCount(111.0, 6.0, 100).divisor == 100
    assert UserCount(87.0, 6.0, 100).divisor == 87
    assert UserCount(113.0, 6.0, 100).divisor == 113
    assert (UserCount(87.0, 6.0, 100).divisor_sd, UserCount(89.0, 6.0, 100).divisor_sd) == (
        6.0,
        0.0,
    )
    assert UserCount(-3.0, 6.0).divisor == 1
