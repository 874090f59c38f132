"""Convex sets of parameters, with projections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError


class Domain(Protocol):
    """Protocol of a closed convex set."""

    def project(self, theta: FloatArray) -> FloatArray:
        """Return the nearest point of the set in l2, for (p,) or for each row of (m, p)."""


@dataclass(frozen=True)
class Unconstrained:
    """The whole space, without any constraint.

    >>> Unconstrained().project(np.array([5.0])).tolist()
    [5.0]
    """

    def project(self, theta: FloatArray) -> FloatArray:
        """Return θ unchanged."""
        return theta


EVERYWHERE = Unconstrained()


@dataclass(frozen=True)
class Ball:
    """All points within a distance of a centre.

    Args:
        radius: the l2 distance, above 0.
        centre: the centre, (p,) or one number for all coordinates.

    Raises:
        ParameterError: if the radius is not above 0.

    >>> Ball(1.0).project(np.array([3.0, 4.0])).round(3).tolist()
    [0.6, 0.8]
    """

    radius: float
    centre: float | tuple[float, ...] = 0.0

    def __post_init__(self) -> None:
        _validate.positive(radius=self.radius)

    def project(self, theta: FloatArray) -> FloatArray:
        """Return the nearest point of the ball."""
        away = theta - np.asarray(self.centre)
        # Lengths are relative to the largest coordinate, so that no square overflows.
        scale = np.maximum(np.abs(away).max(axis=-1, keepdims=True), 1.0)
        lengths = scale * np.linalg.norm(away / scale, axis=-1, keepdims=True)
        share = self.radius / np.maximum(lengths, self.radius)
        inside: FloatArray = np.where(lengths <= self.radius, theta, self.centre + away * share)
        return inside


@dataclass(frozen=True)
class Box:
    """All points between two corners.

    Args:
        low: the lower corner, (p,) or one number.
        high: the upper corner, (p,) or one number.

    Raises:
        ParameterError: if a lower bound exceeds the upper one.

    >>> Box(-1.0, 1.0).project(np.array([3.0, 0.5])).tolist()
    [1.0, 0.5]
    """

    low: float | tuple[float, ...]
    high: float | tuple[float, ...]

    def __post_init__(self) -> None:
        low, high = _validate.float_array(low=self.low), _validate.float_array(high=self.high)
        shapes = {side.shape for side in (low, high)} - {()}
        if len(shapes) > 1 or any(len(shape) > 1 for shape in shapes):
            raise ParameterError(
                f"low and high must have the same length, not {low.shape} and {high.shape}."
            )
        if not np.all(low <= high):
            raise ParameterError(
                f"low must be at most high, not {_validate.describe(self.low)} and "
                f"{_validate.describe(self.high)}."
            )

    def project(self, theta: FloatArray) -> FloatArray:
        """Return the nearest point of the box."""
        return np.clip(theta, self.low, self.high)


@dataclass(frozen=True)
class Simplex:
    """All points with non-negative coordinates and a given sum.

    Args:
        total: the sum of the coordinates, above 0.

    Raises:
        ParameterError: if the total is not above 0.

    >>> Simplex().project(np.array([1.0, 1.0, -5.0])).tolist()
    [0.5, 0.5, 0.0]
    """

    total: float = 1.0

    def __post_init__(self) -> None:
        _validate.positive(total=self.total)

    def project(self, theta: FloatArray) -> FloatArray:
        """Return the nearest point: all coordinates minus one number, clipped at 0."""
        falling = -np.sort(-theta, axis=-1)
        excess = (np.cumsum(falling, axis=-1) - self.total) / np.arange(1, theta.shape[-1] + 1)
        last = (falling > excess).sum(axis=-1, keepdims=True) - 1
        return np.maximum(theta - np.take_along_axis(excess, last, axis=-1), 0)


class Affine:
    """All points with A·θ = b.

    Args:
        A: (c, p) the coefficients of c equations.
        b: (c,) their right-hand sides.

    Raises:
        ParameterError: if no point solves the equations, or shapes do not fit.

    >>> Affine([[1.0, 1.0]], [2.0]).project(np.zeros(2)).round(6).tolist()
    [1.0, 1.0]
    """

    def __init__(self, A: ArrayLike, b: ArrayLike | Sequence[float]) -> None:  # noqa: N803
        matrix, right = (
            np.atleast_2d(_validate.float_array(A=A)),
            np.atleast_1d(_validate.float_array(b=b)),
        )
        sizes = np.abs(np.append(matrix.ravel(), right.ravel()))
        if not ((sizes == 0) | ((sizes >= 1e-100) & (sizes <= 1e100))).all():
            raise ParameterError(
                "A and b must be 0, or between 1e-100 and 1e100 in absolute value; rescale."
            )
        if matrix.ndim != 2 or right.shape != (len(matrix),):
            raise ParameterError(
                f"A and b must be (c, p) and (c,), not {np.shape(A)} and {np.shape(b)}."
            )
        inverse = np.linalg.pinv(matrix)
        if not np.allclose(matrix @ (inverse @ right), right):
            raise ParameterError("A·θ = b must have a solution; remove contradictory equations.")
        self._onto: NDArray[Any] = inverse @ matrix
        self._nearest: NDArray[Any] = inverse @ right

    def __repr__(self) -> str:
        return f"Affine(<{len(self._onto)} coordinates>)"

    def project(self, theta: FloatArray) -> FloatArray:
        """Return the nearest point with A·θ = b."""
        projected: FloatArray = theta - theta @ self._onto.T + self._nearest
        return projected
