"""The baselines of the shuffle experiment are private and unbiased, and it runs at a small size."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from dpgrain.accounting import gaussian_delta
from dpgrain.recipes import Known

FOLDER = Path(__file__).parent.parent / "experiments"
# Experiments import each other.
sys.path.insert(0, str(FOLDER))
sb: Any = importlib.import_module("shuffle_baselines")


@pytest.mark.parametrize("d", [2, 7])
@pytest.mark.parametrize("norm", [0.0, 0.4, 1.0])
def test_local_messages_have_the_mean_of_their_vector(d: int, norm: float) -> None:
    mechanism = sb.LocalSphere(d, 1.0, 1.5)
    x = norm * np.eye(d)[-1]
    count = 200_000
    messages = mechanism.release(np.tile(x, (count, 1)), np.random.default_rng(1))
    assert np.linalg.norm(messages, axis=1) == pytest.approx(mechanism.length)
    # No coordinate's sd is above the length.
    assert np.abs(messages.mean(axis=0) - x).max() < 5.5 * mechanism.length / math.sqrt(count)


def test_local_messages_keep_to_epsilon_and_use_it() -> None:
    # The likeliest tell: on which half the message lies, for x and −x.
    count, epsilon = 400_000, 0.7
    mechanism = sb.LocalSphere(4, 2.0, epsilon)
    ends = np.tile([0.0, 2.0, 0.0, 0.0], (count, 1))
    up = (mechanism.release(ends, np.random.default_rng(2))[:, 1] >= 0).sum()
    down = (mechanism.release(-ends, np.random.default_rng(3))[:, 1] >= 0).sum()
    right, wrong = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    for found, chance in ((up, right), (down, wrong)):
        assert binom.cdf(found, count, chance) > 1e-8
        assert binom.sf(found - 1, count, chance) > 1e-8


def test_long_and_missing_vectors_are_no_exception() -> None:
    mechanism = sb.LocalSphere(3, 1.0, 1.0)
    vectors = np.array([[1e200, 0, 0], [0, 0, 0]])
    messages = mechanism.release(vectors, np.random.default_rng(0))
    assert np.linalg.norm(messages, axis=1) == pytest.approx(mechanism.length)


@pytest.mark.parametrize("rounds", [1, 2, 3, 8, 13])
def test_a_vector_is_in_as_many_nodes_as_are_paid_for(rounds: int) -> None:
    # Without noise the nodes are counted: how often each vector is added up.
    class Counted(sb.TreeRun):  # type: ignore[misc]
        def _noisy(self, total: Any) -> Any:
            counts.append(total)
            return total

    counts: list[Any] = []
    tree = sb.TreeSums.calibrate(rounds, sensitivity=2.0, epsilon=1.0, delta=1e-6)
    run = Counted(tree, np.random.default_rng(0))
    for t in range(rounds):
        found = run.add(np.eye(rounds)[t])
        assert found == pytest.approx((np.arange(rounds) <= t).astype(float))
    most = np.sum(counts, axis=0).max()
    assert most == tree.nodes
    # And the noise is just enough for that many shifts.
    mu = 2.0 * math.sqrt(most) / tree.noise_sd
    assert 0.999e-6 < gaussian_delta(1.0, mu) <= 1e-6
    with pytest.raises(sb.ParameterError, match="over"):
        run.add(np.zeros(rounds))


def test_sums_of_the_tree_vary_as_stated() -> None:
    tree, coordinates = sb.TreeSums(7, 3.0), 40_000
    run = tree.start(np.random.default_rng(5))
    for t in range(1, 8):
        found = run.add(np.ones(coordinates))
        assert abs(found.mean() - t) < 5.5 * tree.prefix_sd(t) / math.sqrt(coordinates)
        # The relative sd of a sample variance is √(2/n) = 0.7%.
        assert found.var() == pytest.approx(tree.prefix_sd(t) ** 2, rel=0.039)


@pytest.mark.parametrize("name", ["local", "tree"])
def test_baselines_find_the_mean_with_much_privacy_to_spend(name: str) -> None:
    problem = importlib.import_module("instances").MeanProblem(4, 1.0)
    X, y, _ = problem.draw(20_000, 1, np.random.default_rng(0))
    known = Known(distance=1.0, lipschitz=problem.lipschitz)
    generator = np.random.default_rng(1)
    if name == "local":
        theta = sb.local_sgd(problem.loss, X, y, known, 4.0, generator)
    else:
        theta = sb.tree_ftrl(problem.loss, X, y, known, 4.0, 1e-6, generator)
    assert problem.excess(theta) < 0.1 * problem.excess(problem.start)


def test_printed_noise_and_messages() -> None:
    printed = sb.PrintedSum(1000, 100, 1.0, 1.0, 1e-6)
    assert printed.noise_sd == pytest.approx(4534, rel=1e-3)
    assert printed.chance < 0.5
    half = sb.PrintedSum(1000, 100, 1.0, 1.0, 1e-6, 0.5)
    assert half.noise_sd == pytest.approx(2 * printed.noise_sd, rel=1e-6)
    with pytest.raises(sb.ParameterError, match="honest_fraction"):
        sb.PrintedSum(1000, 100, 1.0, 1.0, 1e-6, 0.2)
