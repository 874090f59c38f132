"""Steps of models against a minimiser, their order, and the effect of malformed records."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from dpgrain.errors import ParameterError
from dpgrain.gradients.records import ModelSteps, RecordBlocks
from dpgrain.optimize import (
    Absolute,
    Affine,
    Ball,
    Box,
    Domain,
    Hinge,
    Huber,
    Logistic,
    LossFunction,
    MarginLoss,
    PoissonLoss,
    Quantile,
    Regularised,
    Simplex,
    Softmax,
    Squared,
    Unconstrained,
)
from dpgrain.optimize.models import Linear, Model, Proximal, Truncated

Array = NDArray[Any]

SMOOTH: list[MarginLoss] = [Logistic(), Squared(), Huber(0.5), PoissonLoss(), Softmax(3)]
LOSSES: list[MarginLoss] = [*SMOOTH, Absolute(), Quantile(0.8), Hinge()]
DOMAINS: list[Domain] = [Unconstrained(), Ball(0.6), Box(-0.2, 0.4), Simplex()]
MODELS: list[Model] = [Linear(), Truncated(), Proximal()]
SIZES = [0.1, 3.0, 300.0]
name = lambda thing: type(thing).__name__  # noqa: E731


def block(loss: MarginLoss, m: int, d: int = 3, seed: int = 0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    X, theta = rng.normal(size=(m, d)), rng.normal(size=loss.outputs * d) * 0.3
    if isinstance(loss, Squared | Huber | Absolute | Quantile):
        return theta, X, rng.normal(size=m) * 2
    return theta, X, rng.integers(0, max(loss.outputs, 2), size=m)


def direction(
    model: Model,
    loss: LossFunction,
    theta: Array,
    X: Array,
    y: Array,
    size: float,
    domain: Domain = Unconstrained(),
) -> Array:
    """Return (θ − θ⁺)/size of a model's step on one block."""
    of_blocks = ModelSteps(model.step, loss, theta, size, domain)
    vector: Array = of_blocks(RecordBlocks.arrange(X, y, np.zeros(len(y), dtype=int))).vectors()[0]
    return vector


def nearby(end: Array, domain: Domain, seed: int = 1) -> list[Array]:
    rng = np.random.default_rng(seed)
    lengths = np.repeat(10.0 ** -np.arange(5), 20)
    return [domain.project(end + r * rng.normal(size=end.shape)) for r in lengths]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("domain", DOMAINS, ids=name)
@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_a_proximal_step_is_a_minimum(loss: MarginLoss, domain: Domain, size: float) -> None:
    for m, d in ((1, 3), (6, 3), (2, 7)):
        theta, X, y = block(loss, m, d)
        theta = domain.project(theta)
        end = Proximal().step(loss, theta, X, y, size, domain)

        def objective(v: Array, X: Array = X, y: Array = y, theta: Array = theta) -> float:
            return float(loss.value(v, X, y).mean() + ((v - theta) ** 2).sum() / (2 * size))

        assert domain.project(end) == pytest.approx(end, abs=1e-12)
        assert objective(end) <= min(map(objective, nearby(end, domain))) + 1e-7
        if isinstance(domain, Unconstrained) and loss in SMOOTH:
            best = minimize(objective, end, method="BFGS", options={"gtol": 1e-8})
            assert objective(end) <= best.fun + 1e-9


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("domain", DOMAINS, ids=name)
@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_a_truncated_step_is_a_minimum(loss: MarginLoss, domain: Domain, size: float) -> None:
    theta, X, y = block(loss, 6)
    theta = domain.project(theta)
    end = Truncated().step(loss, theta, X, y, size, domain)
    at, gradient = loss.value(theta, X, y).mean(), loss.gradient(theta, X, y).mean(axis=0)

    def objective(v: Array) -> float:
        return float(max(at + gradient @ (v - theta), 0) + ((v - theta) ** 2).sum() / (2 * size))

    assert domain.project(end) == pytest.approx(end, abs=1e-12)
    if at < 0:
        # A Poisson loss may be below the bound: then there is nothing to gain.
        assert end == pytest.approx(theta)
    else:
        assert objective(end) <= min(map(objective, nearby(end, domain))) + 1e-9


@pytest.mark.parametrize("domain", DOMAINS, ids=name)
@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_a_linear_step_is_a_projected_gradient_step(loss: MarginLoss, domain: Domain) -> None:
    theta, X, y = block(loss, 6)
    known = domain.project(theta - 0.7 * loss.gradient(theta, X, y).mean(axis=0))
    assert Linear().step(loss, theta, X, y, 0.7, domain) == pytest.approx(known)


@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_short_steps_of_all_models_are_the_same(loss: MarginLoss) -> None:
    theta, X, y = block(loss, 6)
    gradient = loss.gradient(theta, X, y).mean(axis=0)
    models = MODELS[:2] if isinstance(loss, PoissonLoss) else MODELS
    for model in models:
        if isinstance(model, Truncated) and loss.value(theta, X, y).mean() < 0:
            continue
        # (The splitting is right to 1e-9 in θ, so to 1e-5 here.)
        assert direction(model, loss, theta, X, y, 1e-4) == pytest.approx(gradient, abs=3e-3)


@pytest.mark.parametrize("size", [0.1, 10.0])
@pytest.mark.parametrize("domain", DOMAINS, ids=name)
@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_no_step_is_longer_than_the_gradient(loss: MarginLoss, domain: Domain, size: float) -> None:
    theta, X, y = block(loss, 6)
    theta = domain.project(theta)
    longest = np.linalg.norm(loss.gradient(theta, X, y).mean(axis=0)) * (1 + 1e-6) + 1e-6
    for model in MODELS:
        assert np.linalg.norm(direction(model, loss, theta, X, y, size, domain)) <= longest


@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_a_longer_proximal_step_never_raises_the_loss(loss: MarginLoss) -> None:
    theta, X, y = block(loss, 8)
    ends = [Proximal().step(loss, theta, X, y, size) for size in (0.1, 1.0, 10.0, 100.0)]
    values = [float(loss.value(v, X, y).mean()) for v in (theta, *ends)]
    assert all(later <= earlier + 1e-7 for earlier, later in pairwise(values))


def test_a_ridge_is_part_of_the_proximal_step() -> None:
    theta, X, y = block(Hinge(), 5)
    loss: LossFunction = Regularised(Regularised(Hinge(), 0.4), 0.3)
    end = Proximal().step(loss, theta, X, y, 2.0, Ball(5.0))

    def objective(v: Array) -> float:
        return float(loss.value(v, X, y).mean() + ((v - theta) ** 2).sum() / 4)

    assert objective(end) <= min(map(objective, nearby(end, Ball(5.0)))) + 1e-8


def test_a_squared_loss_has_a_closed_form() -> None:
    theta, X, y = block(Squared(), 9, 4)
    equations = Affine([[1.0, 1.0, 1.0, 1.0]], [1.0])
    free = np.linalg.solve(X.T @ X / 9 + np.eye(4) / 5.0, X.T @ y / 9 + theta / 5.0)
    assert Proximal().step(Squared(), theta, X, y, 5.0) == pytest.approx(free, abs=1e-7)
    end = Proximal().step(Squared(), theta, X, y, 5.0, equations)
    slope = X.T @ (X @ end - y) / 9 + (end - theta) / 5.0
    assert end.sum() == pytest.approx(1)
    assert slope == pytest.approx(np.full(4, slope[0]), abs=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200, 1e308])
@pytest.mark.parametrize("domain", DOMAINS, ids=name)
@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_malformed_records_raise_nothing_and_move_nothing(
    loss: MarginLoss, domain: Domain, bad: float
) -> None:
    # An error or a warning (an error in these tests) would reveal a user's value.
    for m in (1, 4):
        theta, X, y = block(loss, m)
        X[0, 1] = bad
        for model in MODELS:
            found = direction(model, loss, domain.project(theta), X, y, 2.0, domain)
            assert np.isfinite(found).all()
            if not np.isfinite(bad) and isinstance(model, Proximal):
                assert not found.any()


def test_zero_gain_is_not_an_error() -> None:
    # Below the bound, with a gradient of 0.
    theta, X = np.zeros(1), np.ones((1, 1))
    for lower in (0.0, 5.0):
        end = Truncated(lower).step(Squared(), theta, X, np.zeros(1), 1.0)
        assert end == pytest.approx(0)
    zero = Proximal().step(Absolute(), np.ones(2), np.zeros((3, 2)), np.zeros(3), 1.0, Ball(9.0))
    assert zero == pytest.approx(np.ones(2))


def test_models_without_proximal_step_or_size_are_rejected() -> None:
    class Own:
        def value(self, theta: Array, X: Array, y: Array) -> Array:
            return np.zeros(len(X))

        def gradient(self, theta: Array, X: Array, y: Array) -> Array:
            return np.zeros((len(X), len(theta)))

    theta, X, y = block(Squared(), 2)
    with pytest.raises(ParameterError, match="MarginLoss"):
        Proximal().step(Own(), theta, X, y, 1.0)
    assert Linear().step(Own(), theta, X, y, 1.0) == pytest.approx(theta)
    for model in MODELS:
        with pytest.raises(ParameterError):
            model.step(Squared(), theta, X, y, 0.0)
    with pytest.raises(ParameterError):
        Truncated(np.inf)
