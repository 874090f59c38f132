"""The clipping bound follows the norms of users, only from published numbers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpgrain.errors import CareWarning
from dpgrain.means import ClippedMean, Mean, Shuffled, Vectors
from dpgrain.means.adaptive import COUNTS, AdaptiveClip, _Counted
from dpgrain.noise import SeededSource
from dpgrain.papers import PanPrivate
from dpgrain.units import User

USERS, ROUNDS, DIMENSION = 6000, 20, 3
PROMISE: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "n_users": USERS, "rounds": ROUNDS}


def inner(kind: str) -> Mean:
    if kind == "shuffle":
        return Shuffled.calibrate(**PROMISE, dimension=DIMENSION + COUNTS, interaction="full")
    if kind == "pan":
        return PanPrivate.calibrate(**PROMISE)
    return ClippedMean.calibrate(**PROMISE, clip=1.0, unit=User())


def bounds_of(mean: AdaptiveClip, vectors: NDArray[Any]) -> tuple[list[float], NDArray[Any]]:
    run, bounds = mean.start(SeededSource(1), np.arange(USERS)), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CareWarning)
        for _ in range(mean.rounds):
            bounds.append(run.radius)
            found = run.estimate(Vectors(vectors))
    return bounds, found


@pytest.mark.parametrize("clip", [1e-3, 1.0, 7.0])
def test_user_adds_a_vector_of_norm_at_most_one(clip: float) -> None:
    generator = np.random.default_rng(2)
    vectors = generator.normal(size=(400, 4)) * np.exp(generator.normal(size=(400, 1)) * 4)
    vectors[:6] = [[0.0] * 4, [1e308] * 4, [np.nan] * 4, [np.inf] * 4, [1e-320] * 4, [clip / 2] * 4]
    added = _Counted(Vectors(vectors), clip).vectors()
    norms = np.linalg.norm(added, axis=1)
    assert norms.max() <= 1 + 1e-12
    assert not added[[0, 2, 3]].any()
    # The class of each norm, counted user by user.
    for vector, row in zip(vectors[4:], added[4:], strict=True):
        ratio = float(np.linalg.norm(vector)) / clip
        expected = sum(ratio > edge for edge in (0.5, 0.5**0.5, 1.0, 2.0))
        counted = np.flatnonzero(row[4:])
        assert counted.tolist() == ([expected - 1] if expected else [])


@pytest.mark.parametrize(
    "vector", [[5e-324, 1.0], [1e-310, -1e-310], [1e308, 1e308], [1e200, 1e-200]]
)
@pytest.mark.parametrize("clip", [1e-3, 1.0, 1e3])
def test_no_vector_raises_a_floating_point_error(vector: list[float], clip: float) -> None:
    # With such NumPy settings an error would reveal a user's vector.
    with np.errstate(all="raise"):
        added = _Counted(Vectors(np.array([vector])), clip).vectors()
    assert np.isfinite(added).all()


@pytest.mark.parametrize("kind", ["shuffle", "pan", "central"])
@pytest.mark.parametrize("scale", [0.05, 1.0, 30.0])
def test_bound_follows_the_norms(kind: str, scale: float) -> None:
    generator = np.random.default_rng(3)
    directions = generator.normal(size=(USERS, DIMENSION)) + 1.0
    vectors = scale * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    mean = AdaptiveClip(inner(kind), 2.0)
    bounds, found = bounds_of(mean, vectors)
    assert bounds[0] == 2.0
    assert scale * 0.99 <= bounds[-1] <= 3 * scale
    assert np.all(np.diff(bounds[ROUNDS // 2 + 1 :]) >= 0)
    assert np.abs(found - vectors.mean(axis=0)).max() < 0.4 * scale
    assert mean.event == mean.mean.event


@dataclass
class Replayed:
    """A run that publishes another run's results, for any users."""

    published: list[NDArray[Any]]
    noise_sd: float
    radius: float = 1.0

    def estimate(self, contributions: Any) -> NDArray[Any]:
        assert contributions.dimension == DIMENSION + COUNTS
        return self.published.pop(0)


def test_bound_depends_only_on_published_numbers() -> None:
    generator = np.random.default_rng(4)
    mean = AdaptiveClip(inner("shuffle"), 2.0)
    published = [generator.normal(size=DIMENSION + COUNTS) * 0.1 for _ in range(ROUNDS)]
    seen = []
    for vectors in (np.zeros((5, DIMENSION)), np.full((9, DIMENSION), 1e9)):
        run = mean.start(SeededSource(1))
        run._rounds = Replayed(list(published), mean.mean.noise_sd)
        rounds = [(run.radius, *run.estimate(Vectors(vectors))) for _ in range(ROUNDS)]
        seen.append(rounds)
    assert seen[0] == seen[1]
    assert len({bound for bound, *_ in seen[0]}) > 1


def test_noise_is_the_inner_means_in_bound_units() -> None:
    mean = AdaptiveClip(inner("central"), 2.0)
    found = []
    for seed in range(60):
        run = mean.start(SeededSource(seed))
        found.append(run.estimate(Vectors(np.zeros((USERS, DIMENSION)))))
    measured = float(np.std(found)) / mean.noise_sd
    assert 0.8 < measured < 1.2
    # A tenth of the squared norm counts norms.
    assert mean.noise_sd == pytest.approx(2.0 * mean.mean.noise_sd / 0.9**0.5)


@pytest.mark.parametrize(("scale", "warns"), [(1e9, True), (1.0, False)])
def test_warns_when_most_users_are_clipped_at_the_end(scale: float, warns: bool) -> None:
    inside = ClippedMean.calibrate(
        epsilon=4.0, delta=1e-6, n_users=USERS, rounds=2, clip=1.0, unit=User()
    )
    run = AdaptiveClip(inside, 2.0).start(SeededSource(1))
    users = Vectors(np.full((USERS, DIMENSION), scale))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run.estimate(users)
        run.estimate(users)
    assert [str(each.message)[:27] for each in said] == ["more than half of the users"] * warns
