"""Fingerprints of users with several records, against the best mechanisms there are."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom
from tests.papers.floors.test_worlds import best_mechanism, neighbours

from dpgrain.accounting import calibrate_gaussian
from dpgrain.papers.floors import (
    PENALTIES,
    min_error_of_records,
)
from dpgrain.papers.floors.sum_floors import traced_loss, traced_mean
from dpgrain.units import RELATIONS, Relation


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("promise", [(0.2, 0.0), (0.5, 1e-3), (1.0, 0.0)], ids=str)
def test_no_mechanism_is_below_the_fingerprint_bound(
    promise: tuple[float, float], relation: Relation
) -> None:
    # The best mechanism for a mean, of 3 users, that is uniform on [−a, a]; so is the proof's.
    n, answers = 3, np.linspace(-1, 1, 41)
    states, pairs = neighbours(n, relation)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    squared, absolute = 0.0, 0.0
    for box in (0.3, 0.6, 1.0):
        means = box * nodes
        mean, loss = np.zeros((2, len(states), len(answers)))
        for ones in range(n + 1):
            law = weights / 2 * binom.pmf(ones, n, (1 + means) / 2)
            row = states.index((n - ones, ones))
            mean[row] = law @ (box * answers[None, :] - means[:, None]) ** 2
            loss[row] = law @ (np.abs(means)[:, None] - means[:, None] * answers[None, :])
        least = max(best_mechanism(pairs, mean, *promise) - (box / 20) ** 2 / 4, 0)
        squared = max(squared, math.sqrt(least))
        absolute = max(absolute, best_mechanism(pairs, loss, *promise))
    assert 0 < traced_mean(*promise, n, 1, 1, relation) <= squared
    assert 0 < traced_loss(*promise, n, 1, 1) <= absolute


def test_excluded_user_costs_the_root_of_the_guarantee() -> None:
    # The error without a user is e^(ε/2) times the error at most.
    kept, left = (traced_mean(1.0, 1e-15, 10**6, 1, 10**4, r) for r in RELATIONS[::-1])
    assert kept / left == pytest.approx(math.exp(0.5), rel=0.02)
    assert kept == pytest.approx(100 / (3 * 10**6 * math.sinh(1)), rel=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_the_identity_of_fingerprints_of_several_records(seed: int) -> None:
    # E[φ/(1 − p²)·M·Σ(x − p)] = E[2·p·g], φ = a² − p², for any answers M: two users of two records.
    answers, box = np.random.default_rng(seed).uniform(-1, 1, 16), 0.7
    data = np.array(list(itertools.product((-1, 1), repeat=4)), dtype=np.float64)
    nodes, weights = np.polynomial.legendre.leggauss(30)
    left = right = 0.0
    for p, weight in zip(box * nodes, weights / 2, strict=True):
        law = np.prod((1 + p * data) / 2, axis=1)
        scored = answers * (data - p).sum(axis=1)
        left += weight * (box**2 - p * p) / (1 - p * p) * float(law @ scored)
        right += weight * 2 * p * float(law @ answers)
    assert left == pytest.approx(right, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_floor_of_many_coordinates(relation: Relation) -> None:
    for epsilon, n, records, dimension in itertools.product(
        (0.1, 1.0, 4.0), (10, 10**4), (1, 100), (1, 50, 10**6)
    ):
        asked = {"records": records, "dimension": dimension, "relation": relation}
        noise = calibrate_gaussian(epsilon, 1e-9, relation=relation).noise_multiplier
        made = math.hypot(math.sqrt(dimension) * noise / n, 1 / math.sqrt(n * records))
        # The Gaussian mechanism with the sampling error; and the answer 0.
        floor = min_error_of_records(epsilon, 1e-9, n, **asked)  # type: ignore[arg-type]
        assert floor <= min(made, 1.0)
        assert min_error_of_records(
            epsilon, 1e-9, n, penalty="absolute", **asked  # type: ignore[arg-type]
        ) <= min(2 * made, 1.0)  # fmt: skip
    floors = [
        min_error_of_records(
            0.1, 1e-12, 10**6, records=25, dimension=d, relation=relation, penalty=penalty
        )
        for penalty in PENALTIES
        for d in (400, 40_000)
    ]
    # √d/(3nε√m), and √d/(8nε√m) for losses.
    assert floors[1] / floors[0] == pytest.approx(10, rel=0.1)
    assert floors[3] / floors[2] == pytest.approx(10, rel=0.1)
    assert floors[1] == pytest.approx(200 / (3 * 10**5 * 5), rel=0.1)
    assert floors[3] == pytest.approx(200 / (8 * 10**5 * 5), rel=0.1)
