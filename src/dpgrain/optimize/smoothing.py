"""Smoothing of losses with kinks, by Moreau envelopes or random averages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import Array, RealArray
from dpgrain.errors import ParameterError
from dpgrain.numerics.row_products import squares
from dpgrain.optimize.loss_functions import LossFunction, MarginLoss, Regularised

_Oracle: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]


@runtime_checkable
class Proximable(Protocol):
    """Protocol of a loss with a proximal step, such as :class:`MarginLoss`."""

    def value(self, theta: RealArray, X: Array, y: Array) -> RealArray:
        """Return (m,) the loss of each record."""

    def gradient(self, theta: RealArray, X: Array, y: Array) -> RealArray:
        """Return (m, p) the gradient of each record's loss."""

    def proximal(self, theta: RealArray, X: Array, y: Array, step: float) -> RealArray:
        """Return (m, p) argmin_v loss(v) + ‖v − θ‖²/(2·step) for each record."""


@dataclass(frozen=True)
class Moreau:
    """Moreau envelope of each record's loss: min_v loss(v) + smoothness/2·‖v − θ‖².

    Args:
        loss: the loss of a record, with a proximal step.
        smoothness: β, above 0, the largest curvature of the envelope.

    Raises:
        ParameterError: if the smoothness is not above 0, or the loss has no proximal step.

    For an L-Lipschitz loss the envelope is also L-Lipschitz, has the same minima, and is below the
    loss by at most L²/(2β). Here v is unconstrained, so L is not doubled. Source: shuffle paper,
    Definition 4.5 and Lemma 4.6: the gradient is β·(θ − prox(θ)).

    >>> from dpgrain.optimize import Absolute
    >>> smooth, X = Moreau(Absolute(), 2.0), np.ones((3, 1))
    >>> smooth.gradient(np.zeros(1), X, np.array([-5.0, 0.1, 5.0])).round(3).ravel().tolist()
    [1.0, -0.2, -1.0]
    """

    loss: Proximable
    smoothness: float

    def __post_init__(self) -> None:
        _validate.positive(smoothness=self.smoothness)
        if not isinstance(self.loss, Proximable):
            raise ParameterError(
                "loss must have a method proximal(theta, X, y, step), unlike "
                f"{type(self.loss).__name__}; RandomizedBall smooths any loss."
            )

    def value(self, theta: RealArray, X: Array, y: Array) -> RealArray:
        """Return (m,) the envelope of each record's loss."""
        ends = self.loss.proximal(theta, X, y, 1 / self.smoothness)
        at_ends = [self.loss.value(v, X[i : i + 1], y[i : i + 1])[0] for i, v in enumerate(ends)]
        away: RealArray = ((ends - theta) ** 2).sum(axis=1)
        envelope: RealArray = np.asarray(at_ends) + self.smoothness / 2 * away
        return envelope

    def gradient(self, theta: RealArray, X: Array, y: Array) -> RealArray:
        """Return (m, p) the gradient of the envelope of each record's loss."""
        if isinstance(self.loss, MarginLoss):
            # The proximal slope gives the gradient without the difference of two close points.
            t = squares(X) / self.smoothness
            return self.loss.along(self.loss.proximal_slope(self.loss.margins(theta, X), y, t), X)
        return self.smoothness * (theta - self.loss.proximal(theta, X, y, 1 / self.smoothness))


@dataclass(frozen=True)
class RandomizedBall:
    """The average of a loss over a ball around θ, estimated at a random point.

    Args:
        radius: r, the radius of the ball, above 0.

    Raises:
        ParameterError: if the radius is not above 0.

    For an L-Lipschitz loss in p dimensions the average is L√p/r-smooth, and exceeds the loss by at
    most L·r. Gradients are evaluated up to r outside the domain. Source: Asi & Liu, Lemma 2.5 and
    (3); Yousefian et al. 2012.

    >>> ball = RandomizedBall(0.5)
    >>> points = ball.draw(3, np.random.default_rng(0), 1000)
    >>> points.shape, bool(np.linalg.norm(points, axis=1).max() <= 0.5)
    ((1000, 3), True)
    """

    radius: float

    def __post_init__(self) -> None:
        _validate.positive(radius=self.radius)

    def draw(
        self, dimension: int, generator: np.random.Generator, count: int
    ) -> NDArray[np.float64]:
        """Draw (count, dimension) points uniformly from the ball around 0."""
        return self._shadows(dimension, dimension, generator, count)

    def around(self, oracle: _Oracle, generator: np.random.Generator) -> _Oracle:
        """Return an oracle that evaluates another one at a random point of the ball.

        The point is the same for all records.

        Args:
            oracle: returns an estimate of the gradient at θ, (p,) to (p,).
            generator: draws the points, which may be public.

        >>> from dpgrain.optimize import Constant, Sgd, run
        >>> smooth = RandomizedBall(0.1).around(np.sign, np.random.default_rng(0))
        >>> run(Sgd(Constant(0.01)), smooth, np.ones(1), 2000).round(1).tolist()
        [0.0]
        """

        def shifted(theta: NDArray[np.float64]) -> NDArray[np.float64]:
            return oracle(theta + self.draw(theta.size, generator, 1)[0])

        return shifted

    def gradient(
        self,
        loss: LossFunction,
        theta: RealArray,
        X: Array,
        y: Array,
        generator: np.random.Generator,
    ) -> RealArray:
        """Return (m, p) the gradient of each record's loss at its own random point.

        Args:
            loss: the loss of a record.
            theta: (p,) the centre of the ball.
            X: (m, d) the features.
            y: (m,) the targets.
            generator: draws the points.
        """
        if isinstance(loss, Regularised):
            # The average gradient of a ridge over a ball is its gradient at the centre.
            return self.gradient(loss.loss, theta, X, y, generator) + loss.strength * theta
        if isinstance(loss, MarginLoss):
            # A point u of the ball changes a margin by u·x, distributed like ‖x‖ times a coordinate
            # of u, so C coordinates are sufficient.
            shadows = self._shadows(loss.outputs, theta.size, generator, len(X))
            shifts = shadows * np.linalg.norm(X, axis=1)[:, None]
            z = loss.margins(theta, X)
            z = z + shifts.reshape(z.shape).astype(z.dtype, copy=False)
            return loss.along(loss.slope(z, y), X)
        points = theta + self.draw(theta.size, generator, len(X))
        own = [loss.gradient(v, X[i : i + 1], y[i : i + 1])[0] for i, v in enumerate(points)]
        return np.asarray(own).reshape(len(X), theta.size)

    def _shadows(
        self, coordinates: int, dimension: int, generator: np.random.Generator, count: int
    ) -> NDArray[np.float64]:
        """Draw (count, kept) first coordinates of points of the ball, without the others."""
        some = generator.standard_normal((count, coordinates))
        squares = (some**2).sum(axis=1)
        if dimension > coordinates:
            squares = squares + generator.chisquare(dimension - coordinates, count)
        lengths = self.radius * generator.random(count) ** (1 / dimension)
        shadows: NDArray[np.float64] = some * (lengths / np.sqrt(squares))[:, None]
        return shadows


@dataclass(frozen=True)
class SmoothedLoss:
    """A loss with gradients at random points around θ, one point for each record.

    Args:
        loss: the loss of a record.
        ball: the ball of the random points.
        generator: draws the points, independently of the records.

    Source: Asi & Liu, (3).

    >>> from dpgrain.optimize import Absolute
    >>> around = SmoothedLoss(Absolute(), RandomizedBall(1.0), np.random.default_rng(0))
    >>> slopes = around.gradient(np.zeros(1), np.ones((4000, 1)), np.full(4000, 0.5))
    >>> slopes.mean().round(1)
    np.float64(-0.5)
    """

    loss: LossFunction
    ball: RandomizedBall
    generator: np.random.Generator

    def value(self, theta: RealArray, X: Array, y: Array) -> RealArray:
        """Return (m,) the loss of each record at θ itself."""
        return self.loss.value(theta, X, y)

    def gradient(self, theta: RealArray, X: Array, y: Array) -> RealArray:
        """Return (m, p) the gradient of each record's loss at its own random point."""
        return self.ball.gradient(self.loss, theta, X, y, self.generator)
