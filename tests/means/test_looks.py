"""Looks at users move no farther than their radii."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.means import cases

from dpgrain.means import Recentred, Vectors
from dpgrain.means.methods import method_of
from dpgrain.means.problem import Problem
from dpgrain.noise import SeededSource
from dpgrain.publishing import Promise
from dpgrain.units import RELATIONS, Relation, User

Array = NDArray[np.float64]


def test_a_stated_radius_is_the_farthest() -> None:
    plan = method_of("recentred").make(
        Problem(cases.N, cases.D, Promise(User(), 4.0, 1e-6, "zero_out"), 10.0, cases.RADIUS)
    )
    assert isinstance(plan.mean, Recentred)
    assert isinstance(plan.mean.radius, tuple)
    # Looks go as far as needed, the last one no farther than stated.
    assert set(plan.mean.radius[:-1]) == {20.0}
    assert plan.mean.radius[-1] == cases.RADIUS
    for seed in range(5):
        records = 100 * np.random.default_rng(seed).normal(size=(cases.N * cases.EACH, cases.D))
        assert (
            cases.mean(records, cases.rows()[1], method="recentred", radius=cases.RADIUS).radius
            <= cases.RADIUS
        )


@pytest.mark.search(keep=1)
@pytest.mark.parametrize("relation", RELATIONS)
def test_no_neighbour_moves_looks_farther_than_their_radii(relation: Relation) -> None:
    # With the same radii a look moves what follows no farther than it moved itself.
    rng, ratios, n = np.random.default_rng(6), [], 60
    plan = method_of("recentred").make(
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
            if runs[0].radii[look] != runs[1].radii[look]:
                break
            step = (1 if relation == "zero_out" else 2) * runs[0].radii[look] / n
            most, moved = most + step, float(np.linalg.norm(pair[0] - pair[1]))
            ratios.append(moved / most)
    assert len(ratios) > 150
    assert 0.8 < max(ratios) <= 1 + 1e-6
