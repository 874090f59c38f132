"""Losses of a parameter on records, with vectorised gradients and proximal steps.

A loss is any object with two methods, ``value(theta, X, y)`` and ``gradient(theta, X, y)``, per
record. The losses here are *margin* losses: functions of z = ⟨x, θ⟩, so that a gradient is slope(z,
y)·x, and a proximal step moves along x. ``theta`` is flat: (d,), or (C·d,) for C outputs, row by
row of (C, d). For an intercept, append a column of ones to X.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax, wrightomega

from dpgrain import _validate
from dpgrain._types import Array, RealArray
from dpgrain.numerics.row_products import products, squares

# Margin where Poisson losses saturate, to avoid overflow: e^30 is about 10^13.
_SATURATED_MARGIN = 30.0
# Max Newton steps to solve for proximal slopes.
_MOST_NEWTON_STEPS = 60


class LossFunction(Protocol):
    """Protocol of a loss on records; custom losses need these two methods."""

    def value(self, theta: RealArray, X: Array, y: Array) -> RealArray:
        """Return (m,) the loss of each record, for θ (p,), X (m, d) and y (m,)."""

    def gradient(self, theta: RealArray, X: Array, y: Array) -> RealArray:
        """Return (m, p) the gradient, or a subgradient, of each record's loss."""


class MarginLoss(ABC):
    """A convex loss of the margins z = ⟨x, θ⟩; z is (m,), or (m, C) for C outputs.

    Slopes have the type of z, so that float32 stays float32.

    >>> loss, X, y = Squared(), np.array([[1.0, 2.0]]), np.array([3.0])
    >>> z = loss.margins(np.array([1.0, 0.0]), X)
    >>> z.tolist(), loss.slope(z, y).tolist(), loss.gradient(np.array([1.0, 0.0]), X, y).tolist()
    ([1.0], [-2.0], [[-2.0, -4.0]])
    """

    outputs: int = 1
    #: Largest curvature in z; infinite if unbounded.
    smoothness: float = np.inf
    #: Largest norm of a slope; infinite if unbounded.
    lipschitz: float = np.inf
    #: True if the slope jumps at some margins.
    kinks: bool = False

    @abstractmethod
    def at(self, z: RealArray, y: Array) -> RealArray:
        """Return (m,) the loss at margins z."""

    @abstractmethod
    def slope(self, z: RealArray, y: Array) -> RealArray:
        """Return the loss's derivative in z, in the shape of z; a subgradient at a kink."""

    @abstractmethod
    def curvature(self, z: RealArray, y: Array) -> RealArray:
        """Return the loss's second derivative in z, (m,) or (m, C, C); 0 at kinks."""

    @abstractmethod
    def proximal_slope(self, z: RealArray, y: Array, t: RealArray) -> RealArray:
        """Return the slope s = slope(z − t·s, y) of a proximal step of length t from z.

        Args:
            z: (m,) or (m, C) the margins.
            y: (m,) the targets.
            t: (m,) step · ‖x‖², at least 0.
        """

    def margins(self, theta: RealArray, X: Array) -> RealArray:
        """Return the margins of records, (m,) or (m, C)."""
        weights = theta.reshape(self.outputs, -1)
        # Margins are computed row by row. The order of additions in a matrix product depends on the
        # number of rows, so one person's records would change the margins of others.
        z: RealArray = products(X, weights) if isinstance(X, np.ndarray) else X @ weights.T
        return z[:, 0] if self.outputs == 1 else z

    def value(self, theta: RealArray, X: Array, y: Array) -> RealArray:
        """Return (m,) the loss of each record."""
        return self.at(self.margins(theta, X), y)

    def gradient(self, theta: RealArray, X: Array, y: Array) -> RealArray:
        """Return (m, p) the gradient of each record's loss."""
        return self.along(self.slope(self.margins(theta, X), y), X)

    def proximal(self, theta: RealArray, X: Array, y: Array, step: float) -> RealArray:
        """Return (m, p) argmin_v loss(v; x, y) + ‖v − θ‖²/(2·step) for each record.

        Args:
            theta: (p,) the start of the step.
            X: (m, d) the features.
            y: (m,) the targets.
            step: the length of the step, above 0.

        Raises:
            ParameterError: if the step is not above 0.
        """
        step = _validate.positive(step=step)
        t = step * squares(X)
        slope = self.proximal_slope(self.margins(theta, X), y, t)
        return theta - step * self.along(slope, X)

    def along(self, slope: RealArray, X: Array) -> RealArray:
        """Return (m, p) the outer products of slopes and records, flattened."""
        if self.outputs == 1:
            return slope[:, None] * X
        return (slope[:, :, None] * X[:, None, :]).reshape(len(X), -1)


@dataclass(frozen=True)
class Logistic(MarginLoss):
    """The logistic loss ln(1 + e^z) − y·z, for y in {0, 1}.

    >>> Logistic().slope(np.array([0.0, 100.0]), np.array([1, 1])).round(3).tolist()
    [-0.5, 0.0]
    """

    smoothness = 0.25
    lipschitz = 1.0

    def at(self, z: RealArray, y: Array) -> RealArray:
        """Return (m,) the loss at margins z."""
        return np.logaddexp(0, z) - y * z

    def slope(self, z: RealArray, y: Array) -> RealArray:
        """Return P(1) − y."""
        # In-place operations take half the time of expit. If e^{−z} overflows, P(1) becomes 0.
        out = np.negative(z)
        with np.errstate(over="ignore"):
            np.exp(out, out=out)
        out += 1
        np.reciprocal(out, out=out)
        return np.subtract(out, y, out=out, casting="same_kind")

    def curvature(self, z: RealArray, y: Array) -> RealArray:
        """Return P(1)·P(0)."""
        return expit(z) * expit(-z)  # type: ignore[no-any-return]

    def proximal_slope(self, z: RealArray, y: Array, t: RealArray) -> RealArray:
        """Return the root s of s − slope(z − t·s), by Newton's method between bounds."""
        # The root is between 0 and the slope at z, because a step never changes the slope's sign.
        low, high = np.minimum(self.slope(z, y), 0), np.maximum(self.slope(z, y), 0)
        s = (low + high) / 2
        for _ in range(_MOST_NEWTON_STEPS):
            excess = s - self.slope(z - t * s, y)
            low, high = np.where(excess < 0, s, low), np.where(excess < 0, high, s)
            steep = 1 + t * self.curvature(z - t * s, y)
            newton = s - excess / steep
            # A converged record keeps its Newton step, because halving would move it away again.
            converged = np.abs(newton - s) <= 1e-15 * (np.abs(s) + 1 / steep)
            inside = converged | ((newton > low) & (newton < high))
            next_s = np.where(inside, newton, (low + high) / 2)
            if np.all(converged):
                break
            s = next_s
        return s.astype(z.dtype, copy=False)


@dataclass(frozen=True)
class PoissonLoss(MarginLoss):
    """The Poisson loss e^z − y·z, for counts y ≥ 0; z saturates at 30.

    >>> PoissonLoss().slope(np.array([0.0]), np.array([3.0])).tolist()
    [-2.0]
    """

    def at(self, z: RealArray, y: Array) -> RealArray:
        """Return (m,) the loss at margins z, which is linear beyond 30."""
        saturated = np.minimum(z, _SATURATED_MARGIN)
        return np.exp(saturated) * (1 + (z - saturated)) - y * z

    def slope(self, z: RealArray, y: Array) -> RealArray:
        """Return the expected count minus the count."""
        return (np.exp(np.minimum(z, _SATURATED_MARGIN)) - y).astype(z.dtype, copy=False)

    def curvature(self, z: RealArray, y: Array) -> RealArray:
        """Return the expected count, and 0 where z saturates."""
        return np.where(z < _SATURATED_MARGIN, np.exp(np.minimum(z, _SATURATED_MARGIN)), 0.0)

    def proximal_slope(self, z: RealArray, y: Array, t: RealArray) -> RealArray:
        """Return ω(z + t·y + ln t)/t − y, with Wright's function ω(x): ω + ln ω = x."""
        margins, lengths = np.asarray(z, dtype=np.float64), np.asarray(t, dtype=np.float64)
        some = np.where(lengths > 0, lengths, 1.0)
        count = wrightomega(margins + some * y + np.log(some)) / some
        # A step that ends in the saturated region has only been on the linear part.
        straight = margins - some * (np.exp(_SATURATED_MARGIN) - y) > _SATURATED_MARGIN
        count = np.where(straight, np.exp(_SATURATED_MARGIN), count)
        return np.where(lengths > 0, count - y, self.slope(z, y)).astype(z.dtype, copy=False)


@dataclass(frozen=True)
class Squared(MarginLoss):
    """The squared loss ½(z − y)².

    >>> Squared().proximal(np.zeros(1), np.ones((1, 1)), np.array([3.0]), 2.0).tolist()
    [[2.0]]
    """

    smoothness = 1.0

    def at(self, z: RealArray, y: Array) -> RealArray:
        """Return (m,) the loss at margins z."""
        return (z - y) ** 2 / 2

    def slope(self, z: RealArray, y: Array) -> RealArray:
        """Return z − y."""
        return (z - y).astype(z.dtype, copy=False)

    def curvature(self, z: RealArray, y: Array) -> RealArray:
        """Return 1."""
        return np.ones_like(z)

    def proximal_slope(self, z: RealArray, y: Array, t: RealArray) -> RealArray:
        """Return (z − y)/(1 + t)."""
        return ((z - y) / (1 + t)).astype(z.dtype, copy=False)


class _Kinked(MarginLoss):
    """A loss of z − y with slopes between ``low`` and ``high``, and a kink at 0."""

    kinks = True

    @property
    @abstractmethod
    def _ends(self) -> tuple[float, float]:
        """Slopes below and above the kink."""

    def at(self, z: RealArray, y: Array) -> RealArray:
        low, high = self._ends
        return np.maximum(low * (z - y), high * (z - y))  # type: ignore[no-any-return]

    def slope(self, z: RealArray, y: Array) -> RealArray:
        low, high = self._ends
        above = np.sign(z - y)
        slopes = np.where(above > 0, high, np.where(above < 0, low, 0.0))
        return np.where(np.isnan(above), above, slopes).astype(z.dtype, copy=False)

    def curvature(self, z: RealArray, y: Array) -> RealArray:
        return np.zeros_like(z)

    def proximal_slope(self, z: RealArray, y: Array, t: RealArray) -> RealArray:
        low, high = self._ends
        with np.errstate(divide="ignore", invalid="ignore"):
            to_kink = np.where(t > 0, (z - y) / np.where(t > 0, t, 1), self.slope(z, y))
        return np.clip(to_kink, low, high).astype(z.dtype, copy=False)


@dataclass(frozen=True)
class Absolute(_Kinked):
    """The absolute loss |z − y|, for medians.

    >>> Absolute().slope(np.array([1.0, 2.0, 3.0]), 2.0).tolist()
    [-1.0, 0.0, 1.0]
    """

    lipschitz = 1.0

    @property
    def _ends(self) -> tuple[float, float]:
        return -1.0, 1.0


@dataclass(frozen=True)
class Quantile(_Kinked):
    """The pinball loss: level·(y − z) below y, (1 − level)·(z − y) above.

    Args:
        level: the level of the quantile, strictly between 0 and 1.

    Raises:
        ParameterError: if the level is not strictly between 0 and 1.

    >>> Quantile(0.9).at(np.array([0.0, 2.0]), 1.0).round(3).tolist()
    [0.9, 0.1]
    """

    level: float = 0.5

    def __post_init__(self) -> None:
        _validate.fraction(level=self.level)

    @property
    def lipschitz(self) -> float:  # type: ignore[override]
        """The steeper of the two slopes."""
        return max(self.level, 1 - self.level)

    @property
    def _ends(self) -> tuple[float, float]:
        return -self.level, 1 - self.level


@dataclass(frozen=True)
class Hinge(MarginLoss):
    """The hinge loss max(0, 1 − ỹz), ỹ = 2y − 1, for y in {0, 1}.

    >>> Hinge().at(np.array([-1.0, 0.5, 2.0]), np.array([1, 1, 1])).tolist()
    [2.0, 0.5, 0.0]
    """

    lipschitz = 1.0
    kinks = True

    def at(self, z: RealArray, y: Array) -> RealArray:
        """Return (m,) the loss at margins z."""
        return np.maximum(0, 1 - (2 * y - 1) * z)

    def slope(self, z: RealArray, y: Array) -> RealArray:
        """Return −ỹ if ỹz is below 1, else 0."""
        side = 2 * y - 1
        return np.where(np.isnan(z * side), np.nan, -side * (side * z < 1)).astype(
            z.dtype, copy=False
        )

    def curvature(self, z: RealArray, y: Array) -> RealArray:
        """Return 0."""
        return np.zeros_like(z)

    def proximal_slope(self, z: RealArray, y: Array, t: RealArray) -> RealArray:
        """Return −ỹ, or the smaller slope of the step that ends at ỹz = 1."""
        side = 2 * y - 1
        missing = np.maximum(1 - side * z, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            length = np.where(t > 0, missing / np.where(t > 0, t, 1), (missing > 0) * 1.0)
        return (-side * np.minimum(length, 1)).astype(z.dtype, copy=False)


@dataclass(frozen=True)
class Huber(MarginLoss):
    """The Huber loss: ½(z − y)² within the threshold of y, and linear beyond it.

    Args:
        threshold: the distance from y where the linear part begins, above 0.

    Raises:
        ParameterError: if the threshold is not above 0.

    >>> Huber(1.0).at(np.array([0.5, 3.0]), 0.0).tolist()
    [0.125, 2.5]
    """

    threshold: float = 1.35
    smoothness = 1.0

    def __post_init__(self) -> None:
        _validate.positive(threshold=self.threshold)

    @property
    def lipschitz(self) -> float:  # type: ignore[override]
        """The threshold."""
        return self.threshold

    def at(self, z: RealArray, y: Array) -> RealArray:
        """Return (m,) the loss at margins z."""
        far = np.abs(z - y)
        near = np.minimum(far, self.threshold)
        return near * (far - near / 2)

    def slope(self, z: RealArray, y: Array) -> RealArray:
        """Return z − y, limited to ±threshold."""
        return np.clip(z - y, -self.threshold, self.threshold).astype(z.dtype, copy=False)

    def curvature(self, z: RealArray, y: Array) -> RealArray:
        """Return 1 within the threshold, and 0 beyond it."""
        return (np.abs(z - y) < self.threshold).astype(z.dtype)

    def proximal_slope(self, z: RealArray, y: Array, t: RealArray) -> RealArray:
        """Return (z − y)/(1 + t), limited to ±threshold."""
        slope = np.clip((z - y) / (1 + t), -self.threshold, self.threshold)
        return slope.astype(z.dtype, copy=False)


@dataclass(frozen=True)
class Softmax(MarginLoss):
    """The multinomial logistic loss ln Σ_c e^{z_c} − z_y, for y in 0, …, C−1.

    Args:
        outputs: the number C of classes, at least 2.

    Raises:
        ParameterError: if ``outputs`` is not an integer of at least 2.

    >>> Softmax(2).at(np.array([[0.0, 0.0]]), np.array([1])).round(4).tolist()
    [0.6931]
    """

    outputs: int = 2
    # The largest eigenvalue of diag(p) − pp' is ½.
    smoothness = 0.5
    lipschitz = float(np.sqrt(2))

    def __post_init__(self) -> None:
        _validate.integer(minimum=2, outputs=self.outputs)

    def at(self, z: RealArray, y: Array) -> RealArray:
        """Return (m,) the loss at margins z."""
        return logsumexp(z, axis=1) - np.take_along_axis(z, _column(y), axis=1)[:, 0]  # type: ignore[no-any-return]

    def slope(self, z: RealArray, y: Array) -> RealArray:
        """Return (m, C) the probabilities, less 1 at y."""
        out = softmax(z, axis=1)
        rows = np.arange(len(out))
        out[rows, _column(y)[:, 0]] -= 1
        return out.astype(z.dtype, copy=False)  # type: ignore[no-any-return]

    def curvature(self, z: RealArray, y: Array) -> RealArray:
        """Return (m, C, C) diag(p) − pp' for the probabilities p."""
        p = softmax(z, axis=1)
        return p[:, :, None] * np.eye(self.outputs) - p[:, :, None] * p[:, None, :]  # type: ignore[no-any-return]

    def proximal_slope(self, z: RealArray, y: Array, t: RealArray) -> RealArray:
        """Return the slope at the end v of the step, by Newton's method.

        The number is the logarithm l of Σ_c e^{v_c}. At v, t·p_c = ω(a_c − l + ln t), where a = z +
        t·e_y and ω is Wright's function, and the p_c have sum 1. Their sum is convex and decreases
        with l, so that steps from below stay below.
        """
        margins, lengths = np.asarray(z, dtype=np.float64), np.asarray(t, dtype=np.float64)
        some = np.where(lengths > 0, lengths, 1.0)[:, None]
        own = np.zeros(margins.shape, dtype=bool)
        np.put_along_axis(own, _column(y), True, axis=1)
        aim = margins + some * own
        # The search starts with the largest p_c at 1, so that the sum of all is at least 1.
        fits = aim - aim.max(axis=1, keepdims=True) + some + np.log(some)
        level = np.zeros_like(some)
        for _ in range(_MOST_NEWTON_STEPS):
            masses = wrightomega(fits - level)
            excess = masses.sum(axis=1, keepdims=True) - some
            step = excess / (masses / (1 + masses)).sum(axis=1, keepdims=True)
            level = level + step
            if np.all(np.abs(step) <= 1e-15 * (1 + np.abs(level))):
                break
        p = wrightomega(fits - level) / some
        # p_y − 1 is computed from the other p_c, to avoid cancellation if p_y is nearly 1.
        s = np.where(own, -np.where(own, 0.0, p).sum(axis=1, keepdims=True), p)
        return np.where(lengths[:, None] > 0, s, self.slope(z, y)).astype(z.dtype, copy=False)


def _column(y: Array) -> NDArray[np.intp]:
    return np.asarray(y).astype(np.intp)[:, None]


@dataclass(frozen=True)
class Regularised:
    """A loss plus a ridge: loss + strength/2·‖θ‖².

    Args:
        loss: the loss of a record.
        strength: λ, at least 0.

    Raises:
        ParameterError: if the strength is negative.

    >>> Regularised(Squared(), 2.0).gradient(np.ones(1), np.ones((1, 1)), np.array([0.0])).tolist()
    [[3.0]]
    """

    loss: LossFunction
    strength: float

    def __post_init__(self) -> None:
        _validate.non_negative(strength=self.strength)

    def value(self, theta: RealArray, X: Array, y: Array) -> RealArray:
        """Return (m,) the loss of each record."""
        return self.loss.value(theta, X, y) + self.strength / 2 * float(theta @ theta)

    def gradient(self, theta: RealArray, X: Array, y: Array) -> RealArray:
        """Return (m, p) the gradient of each record's loss."""
        return self.loss.gradient(theta, X, y) + self.strength * theta
