"""No private sum of clipped vectors is below its floor."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from tests.planning.test_plan_tables import VECTORS

from dpgrain.accounting import calibrate_gaussian
from dpgrain.errors import ParameterError
from dpgrain.papers.floors import min_error
from dpgrain.units import RELATIONS, Relation


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 4.0, 10.0])
def test_no_mechanism_is_below_the_floor(epsilon: float, relation: Relation) -> None:
    for n, dimension in itertools.product((1, 7, 1000, 10**6), (1, 2, 100, 10**5)):
        floor = min_error(epsilon, 1e-9, n, dimension=dimension, relation=relation)
        noise = calibrate_gaussian(epsilon, 1e-9, contribution=VECTORS, relation=relation)
        # The Gaussian mechanism, and the one that always answers 0.
        assert 0 < floor <= min(noise.noise_multiplier * math.sqrt(dimension), n)


@pytest.mark.parametrize("relation", RELATIONS)
def test_two_points_in_one_dimension(relation: Relation) -> None:
    apart = 1 if relation == "zero_out" else 2
    # By hand, δ = 0: j moves are hidden up to (e^{jε}−1)/(e^{jε}+1).
    best = max(j * apart / 2 * math.sqrt(2 / (math.exp(j) + 1)) for j in range(1, 9))
    assert min_error(1.0, 0.0, 100, relation=relation) == pytest.approx(best, rel=1e-12)
    # The Laplace mechanism comes within a small factor of it.
    assert math.sqrt(2) * apart < 3 * best


def test_floor_grows_as_root_of_dimension_for_large_n() -> None:
    small, large = (
        min_error(0.01, 1e-12, 10**8, dimension=d, relation="replace") for d in (10**4, 10**6)
    )
    assert large / small == pytest.approx(10, rel=0.1)
    # Within a factor of 4 of √d/ε.
    assert 0.25 < large / (math.sqrt(10**6) / 0.01) < 1


@pytest.mark.parametrize("seed", range(5))
def test_the_identity_of_fingerprints(seed: int) -> None:
    # E[M·Σ(x − p)] = E[2·p·g(p)] for any answers M, here of 3 people, one coordinate.
    answers = np.random.default_rng(seed).uniform(-1, 1, 8)
    data = np.array(list(itertools.product((-1, 1), repeat=3)), dtype=np.float64)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    left = right = distance = 0.0
    for p, weight in zip(nodes, weights / 2, strict=True):
        law = np.prod((1 + p * data) / 2, axis=1)
        left += weight * float(law @ (answers * (data - p).sum(axis=1)))
        right += weight * 2 * p * float(law @ answers)
        distance += weight * float(law @ (answers - p) ** 2)
    assert left == pytest.approx(right, abs=1e-12)
    assert left >= 1 / 3 - distance


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0.0, 1e-6, 10), "epsilon must be positive and finite"),
        ((1.0, 1.0, 10), "delta must be in [0, 1)"),
        ((1.0, 1e-6, 0), "n must be an integer of at least 1"),
    ],
    ids=["epsilon", "delta", "n"],
)
def test_floors_reject_out_of_range_arguments(
    arguments: tuple[float, float, int], said: str
) -> None:
    with pytest.raises(ParameterError, match="must") as error:
        min_error(*arguments)
    assert said in str(error.value)
