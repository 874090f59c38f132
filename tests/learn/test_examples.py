"""Example 3 of the element-level paper: of a generalised linear model the partition moves nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from dpgrain.gradients.linear import LinearGradients
from dpgrain.gradients.tiles import LinearBlocks
from dpgrain.optimize import Logistic, MarginLoss, PoissonLoss, Squared

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, Array], Array]

THETA = np.array([1.0, -0.5, 0.25])
USERS, RECORDS = 8000, 25
# Standard errors that no coordinate passes by chance: there are 27 of them below, p < 2e-5.
FAR = 5.0

MODELS: dict[str, tuple[MarginLoss, Draw]] = {
    "logistic": (Logistic(), lambda g, z: (g.random(z.size) < expit(z)).astype(float)),
    "poisson": (PoissonLoss(), lambda g, z: g.poisson(np.exp(z)).astype(float)),
    # Errors that grow with the margin: only the conditional mean needs to be right.
    "squared": (Squared(), lambda g, z: z + (1 + np.abs(z)) * g.standard_normal(z.size)),
}


def features(g: np.random.Generator) -> Array:
    skewed = g.exponential(1, USERS * RECORDS) - 0.5
    other = 0.5 * skewed + g.uniform(-1, 1, skewed.size)
    return np.column_stack([np.ones(skewed.size), np.minimum(skewed, 2.5), other])


def partitions(x: Array) -> dict[str, NDArray[np.int64]]:
    return {
        "one": np.zeros(len(x), dtype=np.int64),
        "a rare cell": (x[:, 1] > 2).astype(np.int64),
        "a grid": np.floor(3 * x[:, 1:] + 9).astype(np.int64) @ np.array([100, 1]),
    }


def fit(loss: MarginLoss, x: Array, y: Array, cell: NDArray[np.int64]) -> tuple[Array, Array]:
    """The minimiser of the mean over users of L_el, which averages within cells, and its sandwich s.e.

    Given all features, a user's share of a cell is known, and records are independent.
    """
    user = np.repeat(np.arange(USERS), RECORDS)
    _, codes = np.unique(user * (cell.max() + 1) + cell, return_inverse=True)
    blocks = LinearBlocks.arrange(x, y, codes, intercept=False)
    weight = (1 / np.bincount(codes))[codes]
    theta = np.zeros(x.shape[1])
    for _ in range(50):
        # A bound that no block reaches: the library's own sum of the blocks' mean gradients.
        gradient = LinearGradients(blocks, loss, theta).clipped_sum(1e9)
        curvature = (x * (weight * loss.curvature(x @ theta, y))[:, None]).T @ x
        step = np.linalg.solve(curvature, gradient)
        theta = theta - step / max(1.0, float(np.linalg.norm(step)))
        if np.linalg.norm(step) < 1e-10:
            break
    scores = (weight * loss.slope(x @ theta, y))[:, None] * x
    inverse = np.linalg.inv(curvature)
    covariance = inverse @ (scores.T @ scores) @ inverse
    return theta, np.sqrt(np.diag(covariance))


def minimisers(loss: MarginLoss, draw: Draw, margin: Callable[[Array], Array]) -> dict[str, Array]:
    """Per partition, (2, 3): the minimiser and its standard errors."""
    g = np.random.default_rng(7)
    x = features(g)
    y = draw(g, margin(x))
    return {name: np.array(fit(loss, x, y, cell)) for name, cell in partitions(x).items()}


@pytest.mark.parametrize("name", MODELS)
def test_true_model_minimiser_does_not_depend_on_the_partition(name: str) -> None:
    found = minimisers(*MODELS[name], lambda x: x @ THETA)
    for theta, error in found.values():
        assert (error < 0.02).all()
        assert (np.abs(theta - THETA) < FAR * error).all()


@pytest.mark.parametrize("name", MODELS)
def test_false_model_minimiser_depends_on_the_partition(name: str) -> None:
    # The margin is not linear; a rare cell gives more weight to a region with larger errors.
    found = minimisers(*MODELS[name], lambda x: x @ THETA - 1.2 * np.maximum(x[:, 1] - 1, 0))
    (one, _), (theta, error) = found["one"], found["a rare cell"]
    assert np.abs((theta - one) / error).max() > 2 * FAR


def test_partition_by_target_moves_the_minimiser_of_any_model() -> None:
    # Example 3 is about partitions of the covariates: "any partition of the data" would be too much.
    loss, draw = MODELS["logistic"]
    g = np.random.default_rng(7)
    x = features(g)
    y = draw(g, x @ THETA)
    theta, error = fit(loss, x, y, y.astype(np.int64))
    assert np.abs((theta - THETA) / error).max() > 10 * FAR
