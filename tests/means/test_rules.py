"""Rules transform each row separately, regardless of other rows."""

from __future__ import annotations

import numpy as np
import pytest

from dpgrain.means import clipped
from dpgrain.means.mean_protocol import Rule, Vectors
from dpgrain.means.rules import ExcessVector, WeightedClip, count_by_radius

ODD = [0.0, -0.0, 1e-300, 1.5, -2.5, 1e160, 1e308]


@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 130])
@pytest.mark.parametrize("name", ["weight", "left out"])
def test_row_rule_uses_only_its_row(d: int, name: str) -> None:
    rng = np.random.default_rng(d)
    vectors = rng.choice(ODD, (50, d)) * rng.uniform(-1, 1, size=(50, d))
    rules: dict[str, Rule] = {
        "weight": WeightedClip(2.0, 0.25),
        "left out": ExcessVector(rng.normal(size=d), 1.0, 2.0, 0.25),
    }
    whole = rules[name](vectors)
    alone = np.concatenate([rules[name](vectors[i : i + 1]) for i in range(50)])
    assert whole.tobytes() == alone.tobytes()
    assert np.isfinite(whole).all()
    assert (np.linalg.norm(whole[:, :-1], axis=1) <= 2 * (1 + 1e-12)).all()


def test_remainder_fits_into_the_bound() -> None:
    # Clipping to the bound, which would hide part of it, changes nothing.
    rng = np.random.default_rng(1)
    for _ in range(200):
        centre, *vectors = clipped(rng.normal(size=(30, 3)) * 5, 2.0)
        rule = ExcessVector(centre, float(rng.uniform(0.01, 4)), 2.0, 0.25)
        kept = clipped(vectors - centre, rule.radius)
        assert np.allclose(rule(np.array(vectors))[:, :-1] + kept, vectors, atol=1e-12)


def test_weight_accompanies_a_short_vector() -> None:
    found = WeightedClip(2.0, 0.25)(np.array([[3.0, 4.0], [0.5, 0.0]]))
    assert found[:, -1].tolist() == [0.25, 0.25]
    assert np.allclose(np.linalg.norm(found[:, :-1], axis=1), [2.0, 0.5])


def test_radii_count_every_user_once() -> None:
    vectors = Vectors([[0.0], [1.0], [-1.5], [9.0], [1e308]], dimension=1)
    counts = count_by_radius(vectors, np.array([-1e308]), np.array([1.0, 2.0]))
    # Overflowing values count as the centre, like in a sum.
    assert counts.tolist() == [1, 0, 4]
    assert count_by_radius(vectors, np.zeros(1), np.array([1.0, 2.0])).tolist() == [2, 1, 2]
