"""Looks at users move no farther than their radii."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.means import cases

from dpgrain.means import Recentred, Vectors, recentring_budget
from dpgrain.means.problem import Problem, get_method
from dpgrain.noise import SeededSource
from dpgrain.publishing import Promise
from dpgrain.units import RELATIONS, Relation, User

Array = NDArray[np.float64]


def test_stated_radius_clips_no_distant_users() -> None:
    X = np.random.default_rng(1).normal(size=(3000, cases.D))
    with_one, without = (
        cases.mean(X, method="recentred", radius=radius, epsilon=1.0) for radius in (0.01, None)
    )
    assert np.array_equal(with_one.value, without.value)
    assert with_one.radius > 1.0


@pytest.mark.parametrize(
    ("users", "bound", "radius", "chosen"),
    [
        # Noise would choose the radii with this few users.
        (42, 3.0, 0.5, "clip"),
        (42, 3.0, None, "clip"),
        (200, 3.0, None, "clip"),
        (600, 3.0, None, "recentred"),
        (3000, 3.0, None, "recentred"),
        (200, 10.0, 0.5, "clip"),
        (5000, 10.0, 0.5, "recentred"),
    ],
)
def test_choice_weighs_the_clipped_users(
    users: int, bound: float, radius: float | None, chosen: str
) -> None:
    X = 0.3 + np.random.default_rng(2).uniform(-0.4, 0.4, size=(users, 1))
    for seed in range(5):
        options = {"bound": bound, "radius": radius, "epsilon": 1.0, "random_state": seed}
        found = cases.mean(X, **options)
        assert found.method == chosen
        off = float(np.linalg.norm(found.value - X.mean(axis=0)))
        assert off < found.error
        assert off < 4 * cases.mean(X, **options, method="clip").std_error


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("users", [60, 400, 1200, 4000, 20_000, 10**6])
def test_queries_for_a_noisy_number_stay_within_the_charge(users: int, relation: Relation) -> None:
    problem = Problem(users, 3, Promise(User(), 1.0, 1e-6, relation), 10.0, None)
    paid = recentring_budget.max_schedule(problem)
    made = recentring_budget.with_known_count(problem, paid).mean
    assert isinstance(made, Recentred)
    assert made.rounds <= paid.rounds
    assert made.event.epsilon(1e-6, relation=relation) <= paid.event.epsilon(
        1e-6, relation=relation
    )


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("users", [60, 400, 4000, 10**6])
def test_iterations_for_a_noisy_weight_stay_within_the_charge(
    users: int, relation: Relation
) -> None:
    problem = Problem(users, 3, Promise(User(), 1.0, 1e-6, relation), 10.0, None)
    paid = recentring_budget.weighted_schedule(problem)
    made, _ = recentring_budget.with_known_weight(problem, paid)
    assert made.rounds <= paid.rounds
    assert made.event.epsilon(1e-6, relation=relation) <= paid.event.epsilon(
        1e-6, relation=relation
    )


def test_few_users_are_recognized_from_public_numbers() -> None:
    told = {
        cases.mean(X, n_users=100, epsilon=1.0).reason
        for X in (np.ones((100, 2)), np.zeros((0, 2)), 1e6 * np.eye(2))
    }
    assert len(told) == 1
    assert told.pop().startswith("100 users are too few to identify distant users in 2 dimensions")


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_no_neighbour_moves_looks_farther_than_their_radii(relation: Relation) -> None:
    # With the same radii a query changes later results by no more than itself.
    rng, ratios, n = np.random.default_rng(6), [], 60
    plan = get_method("recentred").make(
        Problem(n, 2, Promise(User(), 4.0, 1e-6, relation), 10.0, None)
    )
    assert isinstance(plan.mean, Recentred)
    for seed in range(150):
        vectors = rng.normal(size=(n, 2)) * 10.0 ** rng.integers(-2, 2)
        vectors[0] = [10.0, 0.0]
        other = vectors[1:]
        if relation == "replace":
            other = np.vstack([[[-10.0, 0.0]], other])
        runs = [plan.mean.start(SeededSource(seed)) for _ in range(2)]
        ends = [
            [run.estimate(Vectors(x)) for _ in range(plan.mean.rounds)]
            for run, x in zip(runs, (vectors, other), strict=True)
        ]
        moved, most = 0.0, 0.0
        for look, pair in enumerate(zip(*ends, strict=True)):
            # A mean of vectors clipped to the bound is divided by its own number of users.
            if 10.0 in (runs[0].radii[look], runs[1].radii[look]):
                break
            if runs[0].radii[look] != runs[1].radii[look]:
                break
            step = (1 if relation == "zero_out" else 2) * runs[0].radii[look] / n
            most, moved = most + step, float(np.linalg.norm(pair[0] - pair[1]))
            ratios.append(moved / most)
    assert len(ratios) > 150
    assert 0.8 < max(ratios) <= 1 + 1e-6
