"""Presence is separate from the vector: zeros count as values, in every private mean."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpgrain.learn import minimise
from dpgrain.means import ClippedMean, Mean, Recentred, Shuffled, Vectors, mean_of_users
from dpgrain.means.problem import METHODS
from dpgrain.noise import SeededSource
from dpgrain.optimize import Squared
from dpgrain.papers import (
    Concentrated,
    Known,
    PanPrivate,
    PanPrivateConcentrated,
    PhasedErmSco,
    Recipe,
    ShuffleConcentrated,
    SoftCoreMean,
    UserLevelSgd,
    Winsorized,
    WinsorizedErm,
)
from dpgrain.papers.winsorized.median_ranges import PrivateRange
from dpgrain.papers.winsorized.winsorized import WinsorizedScalar
from dpgrain.publishing import draws
from dpgrain.units import RELATIONS, Relation, User

Array = NDArray[np.float64]
N = 2000
#: Too little to move any result: only a rule that tests for 0 sees it.
HARDLY, SAME = 1e-9, 1e-6
# Noise differs if a device rounds by other bits, if a number is nearly a step, or if users are
# nearly at a radius.
_SURE_SDS = 8.0
PROMISE: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "n_users": N, "rounds": 2}
CLOSE: dict[str, Any] = {**PROMISE, "radius": 1.0}

#: Every private mean, from the relation and the number of coordinates.
MEANS: dict[str, Callable[[Relation, int], Mean]] = {
    "clipped": lambda relation, _: ClippedMean.calibrate(
        **PROMISE, clip=4.0, unit=User(), relation=relation
    ),
    "clipped exactly": lambda relation, _: ClippedMean.calibrate(
        **PROMISE, clip=4.0, unit=User(), relation=relation, exact=True
    ),
    "recentred": lambda relation, _: Recentred.calibrate(
        **{**CLOSE, "radius": 4.0}, relation=relation, choose=True, bound=4.0
    ),
    "winsorized": lambda relation, d: Winsorized.calibrate(
        **CLOSE, bound=4.0, dimension=d, relation=relation
    ),
    "softcore": lambda relation, _: SoftCoreMean.calibrate(**CLOSE, relation=relation),
    "shuffled": lambda relation, d: Shuffled.calibrate(
        **PROMISE, dimension=d, clip=4.0, relation=relation
    ),
    "shuffled in full": lambda relation, d: Shuffled.calibrate(
        **PROMISE, dimension=d, clip=4.0, relation=relation, interaction="full"
    ),
    "pan-private": lambda relation, _: PanPrivate.calibrate(**PROMISE, clip=4.0, relation=relation),
}
NOT_CONTINUOUS = "recentred", "shuffled", "shuffled in full"
#: The share of the users with a zero vector.
SHARES = (0.1, 0.5, 0.9, 1.0)


def with_zeros(share: float, users: int, d: int) -> Array:
    """Vectors of norm 1, or 0, in an uninformative order."""
    rng = np.random.default_rng(5)
    vectors = np.zeros((users, d))
    vectors[rng.permutation(users) >= share * users] = 1 / math.sqrt(d)
    return vectors


@pytest.mark.parametrize("there", [N, N // 2], ids=["all", "half"])
@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", MEANS)
def test_zero_counts_like_a_tiny_value(
    name: str, relation: Relation, share: float, d: int, there: int
) -> None:
    if name == "softcore" and there < N:
        pytest.skip("a soft core of half of the roster is no mean")
    mean, vectors = MEANS[name](relation, d), with_zeros(share, there, d)
    found = []
    for given in (vectors, vectors + HARDLY):
        run = mean.start(SeededSource(3), np.arange(there))
        found.append([run.estimate(Vectors(given)) for _ in range(mean.rounds)])
    same = _SURE_SDS * mean.noise_sd if name in NOT_CONTINUOUS else SAME
    assert np.allclose(found[0], found[1], rtol=0, atol=same)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("there", [N, N // 10], ids=["all", "few"])
@pytest.mark.parametrize("stated", [True, False], ids=["radius", "no radius"])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_a_mean_of_users_covers_zeros_and_the_absent(
    method: str, relation: Relation, stated: bool, there: int, share: float
) -> None:
    vectors = with_zeros(share, there, 1)
    asked: dict[str, Any] = {"bound": 4.0, "epsilon": 8.0, "delta": 1e-6, "n_users": N}
    asked |= {"radius": 1.0 if stated else None, "method": method, "relation": relation}
    found = mean_of_users(vectors, **asked, random_state=2)
    hardly = mean_of_users(vectors + HARDLY, **asked, random_state=2)
    same = _SURE_SDS * found.std_error if found.method in NOT_CONTINUOUS else SAME
    assert np.allclose(found.value, hardly.value, rtol=0, atol=same, equal_nan=True)
    if np.isfinite(found.value).all():
        off = float(abs(found.value - vectors.mean(axis=0)).max())
        assert off <= found.error
        if stated and there == N:
            # All are within the radius, so that noise is the only error.
            assert off <= 6 * found.std_error + 1e-9
    else:
        # Users did not agree, on a radius or on a core.
        assert method == "softcore" or not stated
    if found.method == "winsorized":
        assert "intervals are arbitrary if fewer than about" in str(found.guarantee)


KNOWN = Known(distance=2.0, smoothness=1.0, strength=0.2, records=10, radius=1.0)
RECIPES: dict[str, Recipe] = {
    "winsorized": WinsorizedErm(KNOWN, rounds=6),
    "phased": PhasedErmSco(KNOWN, count=2),
    # Gradients are evaluated off the iterate, farther apart for the two types.
    "sgd": UserLevelSgd(replace(KNOWN, radius=4.0), rounds=3),
    "concentrated": Concentrated(KNOWN, rounds=6),
    "shuffled": ShuffleConcentrated(KNOWN),
    "pan-private": PanPrivateConcentrated(KNOWN),
}


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", RECIPES)
def test_a_gradient_of_zero_counts_in_a_recipe(name: str, relation: Relation, share: float) -> None:
    X = with_zeros(share, N, 2)
    found, hardly = (
        minimise(
            Squared(), given, np.ones(N), np.zeros(2), solver=RECIPES[name], users=np.arange(N),
            epsilon=8.0, relation=relation, n_users=N, random_state=1,
        ).history
        for given in (X, X + HARDLY)
    )  # fmt: skip
    assert found.gradients.shape == hardly.gradients.shape
    assert len(found.gradients) > 0
    if name in NOT_CONTINUOUS:
        # Rounds lead to where the noise of the rounds before leads.
        off = abs(found.gradients[0] - hardly.gradients[0]).max()
        assert off <= _SURE_SDS * found.noise_sd
    else:
        assert np.allclose(found.gradients, hardly.gradients, rtol=0, atol=SAME)


# -- what one user moves, exactly --

BOUND, HALF = 2.0, 0.5
#: A user is absent, has no data, or has some; non-numeric values count as zero.
USERS_OF: dict[str, tuple[float, float] | None] = {
    "absent": None,
    "zero": (0.0, 0.0),
    "no number": (math.nan, 1.0),
    "near": (0.3, 0.0),
    "other side": (-0.3, 0.1),
    "far": (0.0, -1e300),
}
NEIGHBOURS = list(itertools.combinations_with_replacement(USERS_OF, 2))


def seen(vectors: Array, middle: float, monkeypatch: pytest.MonkeyPatch) -> tuple[Array, Array]:
    """The scores of all bins for each coordinate, and the sum around a middle, for given vectors."""
    mean = Winsorized(0.4, BOUND, 2, 0.5, 1.0, n_users=5, rounds=1)
    kept: dict[str, Array] = {}

    def middles(ranges: PrivateRange, values: Array, _: Any) -> Array:
        bins, of = np.arange(ranges.bins), ranges.index(values)
        left = (of[:, :, None] < bins).sum(axis=1)
        right = (of[:, :, None] > bins).sum(axis=1)
        kept["scores"] = np.maximum(left, right)
        return np.full(len(values), middle)

    def noised(total: Array, moved: float, *_: Any) -> Array:
        kept["sum"] = total / moved
        return total

    monkeypatch.setattr(PrivateRange, "middles", middles)
    monkeypatch.setattr(draws, "add_gaussian_noise", noised)
    mean.start(SeededSource(1)).estimate(Vectors(vectors))
    return kept["scores"], kept["sum"]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("others", NEIGHBOURS, ids="+".join)
@pytest.mark.parametrize("middle", [0.0, 0.7, -2.0])
def test_no_user_moves_choices_or_sums_beyond_the_charge(
    relation: Relation, others: tuple[str, str], middle: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of(*users: str) -> tuple[Array, Array]:
        given = [values for each in (*others, *users) if (values := USERS_OF[each]) is not None]
        return seen(np.array(given).reshape(-1, 2), middle, monkeypatch)

    found = {user: of(user) for user in USERS_OF}
    largest = 0.0
    for one, two in itertools.permutations(USERS_OF, 2):
        if relation == "zero_out" and two != "absent":
            continue
        (scores, total), (other_scores, other_total) = found[one], found[two]
        change, times = scores - other_scores, 1 if relation == "zero_out" else 2
        # The range of the change of scores; the choice is a mechanism of that range.
        assert np.ptp(change, axis=1).max() <= times
        assert relation == "replace" or change.min() >= 0
        largest = max(largest, float(np.linalg.norm(total - other_total)))
        assert largest <= times * (1 + 1e-12)
    assert largest > 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_counts_as_zero(bad: float) -> None:
    mean = WinsorizedScalar(0.1, 4.0, 500, 2.0)
    values = np.full(300, 0.05)
    found, zero = (mean.estimate(np.append(values, last), SeededSource(1)) for last in (bad, 0.0))
    assert found == zero != mean.estimate(values, SeededSource(1))
