"""Losses against finite differences, their constants, and a minimiser of the proximal objective."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar

from dpgrain.errors import ParameterError
from dpgrain.optimize import (
    Absolute,
    Hinge,
    Huber,
    Logistic,
    MarginLoss,
    PoissonLoss,
    Quantile,
    Regularised,
    Softmax,
    Squared,
)

Array = NDArray[Any]

SMOOTH: list[MarginLoss] = [Logistic(), Softmax(4), Squared(), Huber(0.8), PoissonLoss()]
KINKED: list[MarginLoss] = [Hinge(), Absolute(), Quantile(0.8)]
ALL = SMOOTH + KINKED
name = lambda loss: type(loss).__name__  # noqa: E731


def records(loss: MarginLoss, m: int = 30, d: int = 3, seed: int = 0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    theta, X = rng.normal(size=loss.outputs * d), rng.normal(size=(m, d))
    if isinstance(loss, Squared | Huber | Absolute | Quantile):
        return theta, X, rng.normal(size=m) * 2
    if isinstance(loss, PoissonLoss):
        return theta, X, rng.poisson(3.0, size=m)
    return theta, X, rng.integers(0, max(loss.outputs, 2), size=m)


def extremes(loss: MarginLoss, dtype: type = np.float64) -> tuple[Array, Array]:
    rng = np.random.default_rng(1)
    z: Array = rng.choice([-1e4, 1e4, 0.0, 1.0], size=(40, loss.outputs)).astype(dtype)
    return (z[:, 0] if loss.outputs == 1 else z), rng.integers(0, 2, size=40)


# ------------------------------------------------------------------------------------------ derivatives


@pytest.mark.parametrize("loss", ALL, ids=name)
def test_gradients_are_slopes_of_values(loss: MarginLoss) -> None:
    theta, X, y = records(loss)
    step, found = 1e-6, loss.gradient(theta, X, y)
    assert found.shape == (len(X), len(theta))
    for i, axis in enumerate(np.eye(len(theta))):
        ahead, behind = loss.value(theta + step * axis, X, y), loss.value(theta - step * axis, X, y)
        assert found[:, i] == pytest.approx((ahead - behind) / (2 * step), abs=1e-6, rel=1e-6)


@pytest.mark.parametrize("loss", SMOOTH, ids=name)
def test_curvatures_are_slopes_of_slopes(loss: MarginLoss) -> None:
    theta, X, y = records(loss)
    z = loss.margins(theta, X)
    curvature = loss.curvature(z, y).reshape(len(X), loss.outputs, loss.outputs)
    for c in range(loss.outputs):
        aside = 1e-6 * np.eye(loss.outputs)[c] if loss.outputs > 1 else 1e-6
        ahead, behind = loss.slope(z + aside, y), loss.slope(z - aside, y)
        numeric = ((ahead - behind) / 2e-6).reshape(len(X), -1)
        assert curvature[:, :, c] == pytest.approx(numeric, abs=1e-5, rel=1e-5)


@pytest.mark.parametrize("loss", ALL, ids=name)
def test_constants_bound_slopes_and_curvatures_and_are_nearly_reached(loss: MarginLoss) -> None:
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(4000, loss.outputs)) * rng.choice([0.1, 1, 10], size=(4000, 1))
    y = rng.integers(0, max(loss.outputs, 2), size=4000)
    z: Array = wide[:, 0] if loss.outputs == 1 else wide
    steepest = np.linalg.norm(loss.slope(z, y).reshape(4000, -1), axis=1).max()
    bend = np.linalg.eigvalsh(loss.curvature(z, y).reshape(4000, loss.outputs, -1)).max()
    if np.isfinite(loss.lipschitz):
        assert 0.97 * loss.lipschitz < steepest <= loss.lipschitz * (1 + 1e-12)
    else:
        assert steepest > 5
    if np.isfinite(loss.smoothness):
        assert 0.8 * loss.smoothness < bend <= loss.smoothness * (1 + 1e-12)
    else:
        assert loss.kinks or bend > 10


@pytest.mark.parametrize("level", [0.05, 0.5, 0.8])
def test_no_quantile_slope_exceeds_the_stated_one(level: float) -> None:
    loss, z = Quantile(level), np.linspace(-3, 3, 7)
    assert np.abs(loss.slope(z, np.zeros(7))).max() == pytest.approx(loss.lipschitz)


@pytest.mark.parametrize("loss", ALL, ids=name)
def test_only_kinked_losses_have_jumping_slopes(loss: MarginLoss) -> None:
    fine = np.linspace(-3, 3, 60_001)
    z = fine if loss.outputs == 1 else np.outer(fine, np.arange(loss.outputs))
    jumps = np.abs(np.diff(loss.slope(z, np.ones(len(z), dtype=int)), axis=0)).max()
    assert (jumps > 0.1) == loss.kinks


# ------------------------------------------------------------------------------------------ numbers


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", ALL, ids=name)
def test_slopes_retain_the_margin_type_and_are_finite(loss: MarginLoss, dtype: type) -> None:
    z, y = extremes(loss, dtype)
    t = np.full(len(y), 3.0)
    targets = y if loss.outputs > 1 else y.astype(np.float64)
    with np.errstate(all="raise", under="ignore"):
        found = [loss.at(z, targets), loss.slope(z, targets), loss.curvature(z, targets)]
        found.append(loss.proximal_slope(z, targets, t))
    assert all(np.isfinite(values).all() for values in found)
    assert found[1].dtype == found[3].dtype == dtype
    assert found[1].shape == found[3].shape == z.shape


@pytest.mark.parametrize("loss", ALL, ids=name)
def test_nan_margin_has_no_slope(loss: MarginLoss) -> None:
    # Such a block then counts as zero; a slope of 0 or 1 would hide it.
    z = np.full((2, loss.outputs), np.nan)
    slope = loss.slope(z[:, 0] if loss.outputs == 1 else z, np.array([0, 1]))
    assert np.isnan(slope).all()


@pytest.mark.parametrize("loss", ALL, ids=name)
def test_losses_are_convex_along_lines(loss: MarginLoss) -> None:
    theta, X, y = records(loss)
    other = np.random.default_rng(9).normal(size=theta.shape) * 3
    middle = loss.value((theta + other) / 2, X, y)
    assert (middle <= (loss.value(theta, X, y) + loss.value(other, X, y)) / 2 + 1e-12).all()


def test_a_softmax_of_two_is_logistic() -> None:
    theta, X, y = records(Logistic())
    both = np.concatenate([np.zeros_like(theta), theta])
    assert Softmax(2).value(both, X, y) == pytest.approx(Logistic().value(theta, X, y))
    assert Softmax(2).gradient(both, X, y)[:, 3:] == pytest.approx(Logistic().gradient(theta, X, y))


# ---------------------------------------------------------------------------------- proximal steps


@pytest.mark.parametrize("step", [1e-3, 0.7, 50.0])
@pytest.mark.parametrize("loss", ALL, ids=name)
def test_proximal_steps_are_minima(loss: MarginLoss, step: float) -> None:
    theta, X, y = records(loss, m=5)
    found = loss.proximal(theta, X, y, step)
    for i in range(5):
        row = slice(i, i + 1)

        def objective(v: Array, row: slice = row) -> float:
            return float(loss.value(v, X[row], y[row])[0] + ((v - theta) ** 2).sum() / (2 * step))

        if loss.outputs == 1:
            # The step is along x.
            def along(a: float, i: int = i, f: Any = objective) -> float:
                return float(f(theta + a * X[i]))

            best = minimize_scalar(along, bracket=(-1.0, 1.0), tol=1e-12).fun
        else:
            best = minimize(objective, theta, method="BFGS", options={"gtol": 1e-9}).fun
        assert objective(found[i]) <= best + 1e-9 * (1 + abs(best))


@pytest.mark.parametrize("length", [0.0, 1e-12, 1e-3, 1.0, 1e3, 1e8])
@pytest.mark.parametrize("loss", ALL, ids=name)
def test_proximal_slopes_solve_their_equation_at_any_scale(loss: MarginLoss, length: float) -> None:
    z, y = extremes(loss)
    z = np.concatenate([z, z / 1e3, np.random.default_rng(2).normal(size=z.shape) * 100])
    y, t = np.tile(y, 3), np.full(3 * len(y), length)
    slope = loss.proximal_slope(z, y, t)
    wide = t if loss.outputs == 1 else t[:, None]
    end = z - wide * slope
    # Monotone: the found slope is between the slopes next to the end, up to rounding.
    aside = 1e-9 * (1 + np.abs(end)) + 1e-12 * wide
    if loss.outputs == 1:
        low, high = loss.slope(end - aside, y), loss.slope(end + aside, y)
    else:
        low, high = (loss.slope(end, y) - 1e-8 - 1e-12 * length, loss.slope(end, y) + 1e-8)
        high = high + 1e-12 * length
        assert slope.sum(axis=1) == pytest.approx(0, abs=1e-12)
    slack = 1e-9 * (1 + np.abs(slope))
    assert (low - slack <= slope).all()
    assert (slope <= high + slack).all()


@pytest.mark.parametrize("loss", ALL, ids=name)
def test_a_short_proximal_step_is_a_gradient_step(loss: MarginLoss) -> None:
    theta, X, y = records(loss)
    moved = (theta - loss.proximal(theta, X, y, 1e-9)) / 1e-9
    assert moved == pytest.approx(loss.gradient(theta, X, y), abs=1e-5)


def test_proximal_steps_of_absolute_losses_end_at_the_kink() -> None:
    X, y = np.array([[2.0, 0.0]]), np.array([3.0])
    assert Absolute().proximal(np.zeros(2), X, y, 100.0) == pytest.approx(np.array([[1.5, 0.0]]))
    assert Quantile(0.25).proximal(np.zeros(2), X, y, 0.1) == pytest.approx(np.array([[0.05, 0]]))


# ------------------------------------------------------------------------------------------ the rest


@pytest.mark.parametrize("loss", ALL, ids=name)
def test_a_ridge_adds_to_value_and_gradient(loss: MarginLoss) -> None:
    theta, X, y = records(loss)
    ridge = Regularised(loss, 0.3)
    assert ridge.value(theta, X, y) - loss.value(theta, X, y) == pytest.approx(
        0.15 * float(theta @ theta)
    )
    assert ridge.gradient(theta, X, y) - loss.gradient(theta, X, y) == pytest.approx(
        np.tile(0.3 * theta, (len(X), 1))
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: Quantile(0.0),
        lambda: Quantile(1.0),
        lambda: Huber(0.0),
        lambda: Softmax(1),
        lambda: Regularised(Squared(), -1.0),
        lambda: Squared().proximal(np.zeros(1), np.ones((1, 1)), np.ones(1), 0.0),
    ],
)
def test_invalid_loss_parameters_are_rejected(make: Any) -> None:
    with pytest.raises(ParameterError):
        make()
