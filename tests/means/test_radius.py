"""A concentration radius: its score, its noise, and its stopping point."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.refusals import refuses

from dpgrain.errors import ParameterError
from dpgrain.means import Vectors
from dpgrain.means.close_vectors import close
from dpgrain.means.radius import Radius, score
from dpgrain.noise import SeededSource, SystemSource
from dpgrain.units import Relation

Array = NDArray[np.float64]
# Each assertion on noise fails by chance with probability of about 1e-7.
SURE = 5.3


def made(**options: Any) -> Radius:
    """Twenty users, radii 1, √2, …, 16, and almost irrelevant noise."""
    values = {
        "smallest": 1.0,
        "largest": 16.0,
        "n_users": 20,
        "top": 18,
        "threshold": 300,
        "threshold_scale": 0.02,
        "query_scale": 0.02,
    }
    return Radius(**{**values, **options})


# ------------------------------------------------------------------------------------ sensitivity


def scored(vectors: Array, top: int) -> int:
    return score(close(vectors, 2.0**-10, [4**11])[0], top)


def largest_move(users: int, top: int, removed: bool, seed: int) -> int:
    rng, best = np.random.default_rng(seed), 0
    places = np.array([-2.0, -1.0, 0.0, 1.0, 2.0, 50.0])
    for _ in range(250):
        others = rng.choice(places, size=(users - 1, 1), p=[0.2, 0.1, 0.3, 0.1, 0.2, 0.1])
        if rng.random() < 0.4:
            # This number of users agrees; the others are isolated.
            others = 70.0 * np.arange(1.0, users)[:, None]
            others[: rng.integers(top - 1, users)] = 0.0
        one = scored(np.vstack([others, rng.choice(places, size=(1, 1))]), top)
        if removed:
            other = scored(others, top)
            assert other <= one
        else:
            other = scored(np.vstack([others, rng.choice(places, size=(1, 1))]), top)
        best = max(best, abs(one - other))
    return best


@pytest.mark.proof("search", "AboveThreshold")
@pytest.mark.parametrize("removed", [False, True], ids=["replaced", "removed"])
@pytest.mark.parametrize(("users", "top"), [(8, 8), (8, 6), (8, 3), (12, 9), (5, 2)])
def test_no_neighbours_move_the_score_by_more(users: int, top: int, removed: bool) -> None:
    found = max(largest_move(users, top, removed, seed) for seed in (1, 2))
    # Attained: m − 1 others lose one each, and the user who changes m − 1.
    assert found == 2 * top - 2 == made(n_users=users, top=top, threshold=1).event.sensitivity


def test_user_without_a_vector_counts_as_isolated() -> None:
    # Otherwise a list of m users with one removed would lose one more.
    here, gone = np.zeros((6, 1)), np.zeros((5, 1))
    away = np.vstack([gone, [[50.0]]])
    assert scored(here, 6) - scored(gone, 6) == 10
    assert scored(gone, 6) == scored(away, 6)


def test_plain_mean_of_largest_counts_moves_by_more() -> None:
    # Counts without the limit m: a user leaving the middle removes n − 1 others.
    near = [close(v, 2.0**-10, [4**11])[0] for v in (np.zeros((12, 1)), np.zeros((11, 1)))]
    plain = [int(np.sort(counts)[-4:].sum()) for counts in near]
    assert plain[0] - plain[1] == 4
    crowd = np.array([*[2.0] * 6, *[-2.0] * 6])[:, None]
    middle, away = (np.vstack([crowd, [[x]]]) for x in (0.0, 50.0))
    moves = [int(np.sort(close(v, 2.0**-10, [4**11])[0])[-1:].sum()) for v in (middle, away)]
    assert moves[0] - moves[1] == 7 > 2


# ------------------------------------------------------------------------------------- what it finds


def test_it_finds_the_first_radius_of_a_majority() -> None:
    # 18 of 20 users at two points 6 apart: they agree from radius 3 upwards.
    vectors = np.array([*[0.0] * 9, *[6.0] * 9, 900.0, -900.0])[:, None]
    found = made().find(vectors, SystemSource())
    assert found == pytest.approx(4.0)
    assert made().find(vectors / 100, SystemSource()) == 1.0
    assert made().find(vectors * 100, SystemSource()) is None
    assert made().find(Vectors(vectors), SystemSource()) == found
    # Users without a vector do not agree.
    assert made().find(vectors[:12], SystemSource()) is None


def test_the_distance_itself_counts_as_close() -> None:
    vectors = np.array([*[0.0] * 9, *[4.0] * 9, 900.0, -900.0])[:, None]
    assert made().find(vectors, SystemSource()) == pytest.approx(2.0)
    beyond = vectors + np.where(vectors == 4.0, 2.0**-10, 0.0)
    assert made().find(beyond, SystemSource()) == pytest.approx(2.0 * math.sqrt(2))


def test_non_finite_vectors_are_zero_in_any_order() -> None:
    vectors = np.random.default_rng(1).normal(size=(20, 3)) * 3
    vectors[0] = 0.0
    poisoned = vectors.copy()
    poisoned[0] = np.nan
    run = made(threshold_scale=20.0, query_scale=20.0)
    for seed in range(10):
        found = run.find(vectors, SeededSource(seed))
        assert run.find(poisoned, SeededSource(seed)) == found
        assert run.find(vectors[::-1], SeededSource(seed)) == found


def test_more_vectors_than_users_are_rejected() -> None:
    with refuses("n_users", "20"):
        made().find(np.zeros((21, 1)), SystemSource())


# ------------------------------------------------------------------------------------------ noise


def geometric(z: NDArray[np.int64], scale: float) -> Array:
    law: Array = math.tanh(0.5 / scale) * np.exp(-np.abs(z) / scale)
    return law


def chances(run: Radius, scores: list[int]) -> Array:
    """P(each radius is published), and last that none is."""
    reach = int(60 * max(run.threshold_scale, run.query_scale))
    z = np.arange(-reach, reach + 1)
    law, each = geometric(z, run.threshold_scale), geometric(z, run.query_scale)
    from_top = np.append(np.cumsum(each[::-1])[::-1], 0.0)
    found = []
    for value in scores:
        passes = from_top[np.clip(run.threshold - value - z + reach, 0, z.size)]
        found.append(float(law @ passes))
        law = law * (1 - passes)
    return np.array([*found, float(law.sum())])


NOISY = made(largest=4.0, threshold_scale=40.0, query_scale=15.0)
VECTORS = np.array([*[0.0] * 14, 2.5, 2.5, -2.5, 3.5, 5.0, 9.0])[:, None]


def found(times: int) -> Array:
    """How often each radius is found, and last none."""
    radii = [*NOISY.radii, None]
    counts = np.zeros(len(radii))
    for _ in range(times):
        counts[radii.index(NOISY.find(VECTORS, SystemSource()))] += 1
    return counts


def worst(counts: Array) -> float:
    """The largest error of a count, in standard deviations."""
    near = close(VECTORS, 2.0**-10, [4**11 << k for k in range(5)])
    expected = chances(NOISY, [score(counts, NOISY.top) for counts in near])
    assert expected.sum() == pytest.approx(1)
    times = counts.sum()
    errors = np.abs(counts - times * expected) / np.sqrt(times * expected * (1 - expected))
    return float(errors.max())


@pytest.mark.slow
@pytest.mark.proof("audit", "AboveThreshold")
def test_radii_have_the_charged_probabilities() -> None:
    assert worst(found(1500)) < SURE


@pytest.mark.proof("audit", "AboveThreshold")
def test_the_ratio_of_chances_stays_below_the_claim() -> None:
    # The exact law of all outcomes, over neighbours: scores that all fall by 2m − 2, or do not.
    run = made(n_users=12, top=6, threshold=36, threshold_scale=12.0, query_scale=9.0)
    ways: dict[Relation, tuple[int, ...]] = {"zero_out": (0, -10), "replace": (10, 0, -10)}
    for relation, moves in ways.items():
        claimed = run.event.epsilon(relation=relation)
        assert claimed == pytest.approx(10 / 12 + (10 if relation == "zero_out" else 20) / 9)
        largest = 0.0
        for first, *last in itertools.product(moves, repeat=3):
            one = [16] * 40 + [16, 20]
            two = [x + m for x, m in zip(one, [first] * 40 + last, strict=True)]
            ratios = np.log(chances(run, one) / chances(run, two))
            largest = max(largest, float(np.abs(ratios).max()))
        assert 0.6 * claimed < largest <= claimed


# ------------------------------------------------------------------------------------ calibration


@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_calibration_keeps_the_promise(relation: Relation) -> None:
    run = Radius.calibrate(
        epsilon=0.5, n_users=1000, smallest=1e-3, largest=10.0, relation=relation
    )
    assert 0.4999 < run.event.epsilon(relation=relation) <= 0.5
    assert run.top == 900
    assert len(run.radii) == 27
    # 950 of 1000 within 0.1 of some point, the others anywhere.
    rng = np.random.default_rng(2)
    vectors = np.vstack([rng.uniform(-0.05, 0.05, size=(950, 3)), rng.normal(size=(50, 3)) * 100])
    for seed in range(5):
        chosen = run.find(vectors, SeededSource(seed))
        assert chosen is not None
        assert 0.02 < chosen < 0.15


def test_too_few_users_are_rejected_with_a_sufficient_number() -> None:
    given: dict[str, Any] = {"epsilon": 0.5, "smallest": 0.01, "largest": 10.0}
    with refuses("n_users", "100") as no:
        Radius.calibrate(n_users=100, **given)
    suffice = int(str(no.value).split("; use ")[1].split()[0])
    assert Radius.calibrate(n_users=suffice + 10, **given).n_users < 1500
    with refuses("n_users", "small"):
        Radius.calibrate(n_users=int(0.9 * suffice), **given)


def test_facts_have_sentences() -> None:
    assert str(made().facts[0]) == "9 radii from 1 to 16"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"smallest": 0.0}, "smallest must be positive and finite"),
        ({"smallest": 20.0}, "at most largest"),
        ({"largest": 1e9}, "largest must be at most"),
        ({"top": 21}, "top must be between 2"),
        ({"top": 1}, "top must be"),
        ({"threshold": 400}, "threshold must be at most"),
        ({"query_scale": 0.0}, "query_scale must be"),
    ],
    ids=["zero", "order", "range", "above-n", "one", "threshold", "scale"],
)
def test_invalid_parameters_are_reported(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        made(**wrong)
