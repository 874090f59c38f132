"""Smoothed losses: their gradients, their smoothness, and how far from the loss they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.refusals import refuses

from dpgrain.errors import ParameterError
from dpgrain.optimize import (
    Absolute,
    Constant,
    Hinge,
    Last,
    Logistic,
    LossFunction,
    MarginLoss,
    Quantile,
    Regularised,
    Sgd,
    Softmax,
    run,
)
from dpgrain.papers import Moreau, RandomizedBall

Array = NDArray[Any]

LIPSCHITZ: list[MarginLoss] = [Absolute(), Quantile(0.8), Hinge(), Logistic(), Softmax(3)]
name = lambda loss: type(loss).__name__  # noqa: E731


class Own:
    """A custom loss, without margins: ‖θ − x‖."""

    def value(self, theta: Array, X: Array, y: Array) -> Array:
        return np.asarray(np.linalg.norm(theta - X, axis=1))

    def gradient(self, theta: Array, X: Array, y: Array) -> Array:
        away = theta - X
        return np.asarray(away / np.linalg.norm(away, axis=1, keepdims=True))

    def proximal(self, theta: Array, X: Array, y: Array, step: float) -> Array:
        away = theta - X
        lengths = np.linalg.norm(away, axis=1, keepdims=True)
        return np.asarray(X + away * np.maximum(1 - step / lengths, 0))


def records(loss: Any, m: int = 25, d: int = 3) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(3)
    outputs = getattr(loss, "outputs", 1)
    y = rng.integers(0, max(outputs, 2), size=m)
    return rng.normal(size=outputs * d), rng.normal(size=(m, d)), y


def flat(theta: Array, X: Array) -> float:
    return float(np.linalg.norm(X, axis=1).max())


# ------------------------------------------------------------------------------- the Moreau envelope


@pytest.mark.parametrize("loss", [*LIPSCHITZ, Own()], ids=name)
def test_envelope_gradients_are_slopes_of_envelope_values(loss: Any) -> None:
    theta, X, y = records(loss)
    smooth, step = Moreau(loss, 3.0), 1e-6
    found = smooth.gradient(theta, X, y)
    for i, axis in enumerate(np.eye(len(theta))):
        change = smooth.value(theta + step * axis, X, y) - smooth.value(theta - step * axis, X, y)
        assert found[:, i] == pytest.approx(change / (2 * step), abs=1e-5)


@pytest.mark.parametrize("beta", [0.5, 5.0, 500.0])
@pytest.mark.parametrize("loss", LIPSCHITZ, ids=name)
def test_an_envelope_is_below_its_loss_but_not_far(loss: MarginLoss, beta: float) -> None:
    theta, X, y = records(loss)
    gap = loss.value(theta, X, y) - Moreau(loss, beta).value(theta, X, y)
    lipschitz = loss.lipschitz * np.linalg.norm(X, axis=1)
    assert (gap >= -1e-12).all()
    assert (gap <= lipschitz**2 / (2 * beta) + 1e-12).all()


@pytest.mark.parametrize("loss", LIPSCHITZ, ids=name)
def test_an_envelope_is_lipschitz_and_smooth(loss: MarginLoss) -> None:
    _, X, y = records(loss)
    smooth, rng = Moreau(loss, 4.0), np.random.default_rng(0)
    for _ in range(30):
        one = rng.normal(size=loss.outputs * 3) * 2
        other = one + rng.normal(size=one.shape) * rng.choice([1e-3, 1.0])
        first, second = smooth.gradient(one, X, y), smooth.gradient(other, X, y)
        assert np.linalg.norm(first, axis=1).max() <= loss.lipschitz * flat(one, X) + 1e-12
        change = np.linalg.norm(first - second, axis=1).max()
        assert change <= 4.0 * np.linalg.norm(one - other) * (1 + 1e-9)


def test_without_margins_the_gradient_is_the_same() -> None:
    class Hidden:
        """Absolute, without being known as a loss of margins."""

        value, gradient, proximal = Absolute().value, Absolute().gradient, Absolute().proximal

    theta, X, y = records(Absolute())
    found = Moreau(Hidden(), 2.0).gradient(theta, X, y)
    assert found == pytest.approx(Moreau(Absolute(), 2.0).gradient(theta, X, y), abs=1e-12)


def test_a_loss_without_proximal_step_has_no_envelope() -> None:
    class Plain:
        def value(self, theta: Array, X: Array, y: Array) -> Array:
            return np.zeros(len(X))

        def gradient(self, theta: Array, X: Array, y: Array) -> Array:
            return np.zeros((len(X), len(theta)))

    with refuses("loss"):
        Moreau(Plain(), 1.0)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------- the random ball


@pytest.mark.parametrize("p", [1, 2, 7])
def test_points_are_uniform_in_the_ball(p: int) -> None:
    points = RandomizedBall(2.0).draw(p, np.random.default_rng(0), 40_000)
    volumes = (np.linalg.norm(points, axis=1) / 2.0) ** p
    assert np.sort(volumes) == pytest.approx(np.linspace(0, 1, 40_000), abs=0.012)
    # E uu' = r²/(p + 2)·I.
    assert points.T @ points / 40_000 == pytest.approx(np.eye(p) * 4 / (p + 2), abs=0.04)
    assert points.mean(axis=0) == pytest.approx(0, abs=0.03)


@pytest.mark.parametrize("loss", [Absolute(), Softmax(3), Own()], ids=name)
def test_each_record_gets_a_gradient_at_a_separate_point(loss: LossFunction) -> None:
    # Against gradients at points drawn in full, record by record.
    theta, X, y = records(loss, m=1)
    ball, rng = RandomizedBall(1.5), np.random.default_rng(0)
    many = np.repeat(X, 6000, axis=0), np.repeat(y, 6000)
    found = ball.gradient(loss, theta, *many, rng)
    points = theta + ball.draw(theta.size, rng, 6000)
    known = np.array([loss.gradient(v, X, y)[0] for v in points])
    assert found.shape == known.shape
    for moment in (1, 2):
        spread = 5 * (known**moment).std(axis=0) / np.sqrt(6000) * np.sqrt(2) + 1e-12
        assert (np.abs((found**moment).mean(axis=0) - (known**moment).mean(axis=0)) < spread).all()
    if isinstance(loss, Absolute):
        assert 0.05 < (found[:, 0] * X[0, 0] > 0).mean() < 0.95


@dataclass(frozen=True)
class Ridged:
    """A loss with an unknown ridge: it is evaluated at points of the ball, like any other."""

    loss: LossFunction
    strength: float

    def value(self, theta: Array, X: Array, y: Array) -> Array:
        return np.asarray(self.loss.value(theta, X, y) + self.strength / 2 * float(theta @ theta))

    def gradient(self, theta: Array, X: Array, y: Array) -> Array:
        return np.asarray(self.loss.gradient(theta, X, y) + self.strength * theta)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [Absolute(), Softmax(3), Own()], ids=name)
def test_a_ridge_has_its_own_gradient_in_the_middle(loss: LossFunction) -> None:
    theta, X, y = records(loss, m=1)
    theta += 1.0
    ball, draws = RandomizedBall(1.5), 20_000
    many = np.repeat(X, draws, axis=0), np.repeat(y, draws)
    found = ball.gradient(Regularised(loss, 0.7), theta, *many, np.random.default_rng(1))
    known = ball.gradient(Ridged(loss, 0.7), theta, *many, np.random.default_rng(2))
    assert found.shape == known.shape == (draws, theta.size)
    spread = np.sqrt((found.var(axis=0) + known.var(axis=0)) / draws) + 1e-12
    away = np.abs(found.mean(axis=0) - known.mean(axis=0)) / spread
    assert away.max() < 6
    # Twice the ridge, or none, would not pass.
    assert (0.7 * np.abs(theta) / spread).max() > 60


def test_looking_around_smooths_a_kink() -> None:
    # |θ| averaged over [θ − r, θ + r] has the slope θ/r.
    oracle = RandomizedBall(0.5).around(np.sign, np.random.default_rng(0))
    slope = np.mean([oracle(np.array([0.2])) for _ in range(20_000)])
    assert slope == pytest.approx(0.4, abs=0.03)


def test_oracle_is_evaluated_at_one_point_for_all() -> None:
    asked: list[Array] = []

    def oracle(theta: Array) -> Array:
        asked.append(theta)
        return np.zeros_like(theta)

    ball = RandomizedBall(0.1)
    run(
        Sgd(Constant(1.0), average=Last()),
        ball.around(oracle, np.random.default_rng(0)),
        np.ones(4),
        50,
    )
    away = np.linalg.norm(np.array(asked) - 1.0, axis=1)
    assert (away <= 0.1).all()
    assert len(np.unique(away)) == 50


@pytest.mark.parametrize("make", [lambda: Moreau(Absolute(), 0.0), lambda: RandomizedBall(0.0)])
def test_nothing_is_smoothed_by_nothing(make: Any) -> None:
    with pytest.raises(ParameterError):
        make()
