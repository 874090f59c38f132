"""Losses with kinks made smooth: by the Moreau envelope, or by looking around at random."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import Array, RealArray
from dpgrain.errors import ParameterError
from dpgrain.optimize.losses import Loss, MarginLoss, Regularised

_Oracle: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]


@runtime_checkable
class Proximable(Protocol):
    """A loss that knows its proximal step: every :class:`MarginLoss` does."""

    def value(self, theta: RealArray, X: Array, y: Array) -> RealArray:
        """The loss of each record, (m,)."""

    def gradient(self, theta: RealArray, X: Array, y: Array) -> RealArray:
        """The gradient of each record's loss, (m, p)."""

    def proximal(self, theta: RealArray, X: Array, y: Array, step: float) -> RealArray:
        """For each record argmin_v loss(v) + ‖v − θ‖²/(2·step), (m, p)."""


@dataclass(frozen=True)
class Moreau:
    """The Moreau envelope of a loss: min over v of loss(v) + smoothness/2·‖v − θ‖², record by record.

    Args:
        loss: of a record, with a proximal step.
        smoothness: β, above 0: the curvature is at most β.

    Raises:
        ParameterError: if the smoothness is not above 0, or the loss has no proximal step.

    For an L-Lipschitz loss the envelope is L-Lipschitz too, and below the loss by at most L²/(2β); it
    has the same minima. Here v is anywhere, which is why L is not doubled.
    Source: shuffle paper, Definition 4.5 and Lemma 4.6: the gradient is β·(θ − prox(θ)).

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
                f"loss must have a method proximal(theta, X, y, step), not be {self.loss!r}; "
                "RandomizedBall smooths any loss."
            )

    def value(self, theta: RealArray, X: Array, y: Array) -> RealArray:
        """The envelope of each record's loss, (m,)."""
        ends = self.loss.proximal(theta, X, y, 1 / self.smoothness)
        at_ends = [self.loss.value(v, X[i : i + 1], y[i : i + 1])[0] for i, v in enumerate(ends)]
        away: RealArray = ((ends - theta) ** 2).sum(axis=1)
        found: RealArray = np.asarray(at_ends) + self.smoothness / 2 * away
        return found

    def gradient(self, theta: RealArray, X: Array, y: Array) -> RealArray:
        """The gradient of the envelope of each record's loss, (m, p)."""
        if isinstance(self.loss, MarginLoss):
            # The same, without the difference of two close points.
            t = np.einsum("ij,ij->i", X, X) / self.smoothness
            return self.loss.along(self.loss.proximal_slope(self.loss.margins(theta, X), y, t), X)
        return self.smoothness * (theta - self.loss.proximal(theta, X, y, 1 / self.smoothness))


@dataclass(frozen=True)
class RandomizedBall:
    """The loss averaged over a ball around θ: its gradient is a gradient at a random point of the ball.

    Args:
        radius: r, above 0.

    Raises:
        ParameterError: if the radius is not above 0.

    For an L-Lipschitz loss in p dimensions the average is L√p/r-smooth, and above the loss by at
    most L·r. Gradients are asked for up to r outside the domain.
    Source: Asi & Liu, Lemma 2.5 and (3); Yousefian et al. 2012.

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
        """Points drawn uniformly from the ball around 0, (count, dimension)."""
        return self._shadows(dimension, dimension, generator, count)

    def around(self, oracle: _Oracle, generator: np.random.Generator) -> _Oracle:
        """An oracle that asks another one at a random point of the ball: one point for all records.

        Args:
            oracle: from θ to an estimate of the gradient there, (p,) to (p,).
            generator: for the points; they may be public.

        >>> from dpgrain.optimize import Constant, Sgd, run
        >>> smooth = RandomizedBall(0.1).around(np.sign, np.random.default_rng(0))
        >>> run(Sgd(Constant(0.01)), smooth, np.ones(1), 2000).round(1).tolist()
        [0.0]
        """

        def moved(theta: NDArray[np.float64]) -> NDArray[np.float64]:
            return oracle(theta + self.draw(theta.size, generator, 1)[0])

        return moved

    def gradient(
        self,
        loss: Loss,
        theta: RealArray,
        X: Array,
        y: Array,
        generator: np.random.Generator,
    ) -> RealArray:
        """The gradient of each record's loss at a random point of its own, (m, p).

        Args:
            loss: of a record.
            theta: (p,).
            X: (m, d).
            y: (m,).
            generator: for the points.
        """
        if isinstance(loss, Regularised):
            # The average of a ridge over a ball has the ridge's own gradient in the middle.
            return self.gradient(loss.loss, theta, X, y, generator) + loss.strength * theta
        if isinstance(loss, MarginLoss):
            # A point u of the ball moves margins by u·x: by ‖x‖ times its first C coordinates.
            shadows = self._shadows(loss.outputs, theta.size, generator, len(X))
            moved = shadows * np.linalg.norm(X, axis=1)[:, None]
            z = loss.margins(theta, X)
            z = z + moved.reshape(z.shape).astype(z.dtype, copy=False)
            return loss.along(loss.slope(z, y), X)
        points = theta + self.draw(theta.size, generator, len(X))
        own = [loss.gradient(v, X[i : i + 1], y[i : i + 1])[0] for i, v in enumerate(points)]
        return np.asarray(own).reshape(len(X), theta.size)

    def _shadows(
        self, kept: int, dimension: int, generator: np.random.Generator, count: int
    ) -> NDArray[np.float64]:
        """The first coordinates of points of the ball, without the others: (count, kept)."""
        some = generator.standard_normal((count, kept))
        squares = (some**2).sum(axis=1)
        if dimension > kept:
            squares = squares + generator.chisquare(dimension - kept, count)
        lengths = self.radius * generator.random(count) ** (1 / dimension)
        found: NDArray[np.float64] = some * (lengths / np.sqrt(squares))[:, None]
        return found


@dataclass(frozen=True)
class Around:
    """A loss whose gradients are those at random points around θ, each record at its own.

    Args:
        loss: of a record.
        ball: where the points are drawn.
        generator: for the points; whoever knows them learns nothing of the records.

    Source: Asi & Liu, (3).

    >>> from dpgrain.optimize import Absolute
    >>> around = Around(Absolute(), RandomizedBall(1.0), np.random.default_rng(0))
    >>> slopes = around.gradient(np.zeros(1), np.ones((4000, 1)), np.full(4000, 0.5))
    >>> slopes.mean().round(1)
    np.float64(-0.5)
    """

    loss: Loss
    ball: RandomizedBall
    generator: np.random.Generator

    def value(self, theta: RealArray, X: Array, y: Array) -> RealArray:
        """The loss of each record, without looking around, (m,)."""
        return self.loss.value(theta, X, y)

    def gradient(self, theta: RealArray, X: Array, y: Array) -> RealArray:
        """The gradient of each record's loss at a random point of its own, (m, p)."""
        return self.ball.gradient(self.loss, theta, X, y, self.generator)
