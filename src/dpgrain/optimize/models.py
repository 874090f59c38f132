"""Models of a block's loss for one step: linear, truncated, and exact (APROX).

Each takes the step θ⁺ = argmin over the domain of model(v) + ‖v − θ‖²/(2·size). The model
approximates the mean loss of the records of a block: it is convex, equals the loss at θ, and is
nowhere above it. A better model is less sensitive to the step size. No step raises because of the
values of records: a block with non-finite values ends at NaN.

Source: element-level paper, Appendix D, (C.i)–(C.iii); Asi, Duchi, *Stochastic (approximate)
proximal point methods*, SIAM J. Optim. 2019.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpgrain import _validate
from dpgrain._types import Array, FloatArray
from dpgrain.errors import ParameterError
from dpgrain.optimize.domains import EVERYWHERE, Domain, Unconstrained
from dpgrain.optimize.loss_functions import LossFunction, MarginLoss, Regularised

# Halvings of a step's share, until rounding.
_HALVINGS = 60
# Max rounds of splitting, and rounds between changes of the penalties.
_MOST_ROUNDS, _ADAPTING_PERIOD_ROUNDS = 2000, 20
# Residual where splitting stops, as a multiple of 1 + the size of its quantity.
_RELATIVE_TOLERANCE = 1e-9
# Over-relaxation: the ratio of a round's move to plain splitting.
_OVER_RELAXATION = 1.6


class Model(Protocol):
    """Protocol of a convex model of a block's loss at a point."""

    def step(
        self,
        loss: LossFunction,
        theta: FloatArray,
        X: Array,
        y: Array,
        size: float,
        domain: Domain = EVERYWHERE,
    ) -> FloatArray:
        """Return (p,) the end of one step of length ``size`` from θ on the model.

        Args:
            loss: the loss of a record.
            theta: (p,) the start of the step, in the domain.
            X: (m, d) the features of the records of one block, at least one.
            y: (m,) the targets.
            size: α, the length of the step, above 0.
            domain: the set in which the step stays.
        """


@dataclass(frozen=True)
class Linear:
    """The tangent of the loss: its step is a projected gradient step.

    >>> from dpgrain.optimize import Squared
    >>> Linear().step(Squared(), np.zeros(1), np.ones((1, 1)), np.array([3.0]), 10.0).tolist()
    [30.0]
    """

    @np.errstate(all="ignore")
    def step(
        self,
        loss: LossFunction,
        theta: FloatArray,
        X: Array,
        y: Array,
        size: float,
        domain: Domain = EVERYWHERE,
    ) -> FloatArray:
        """Return (p,) the projection of θ − size·gradient.

        Raises:
            ParameterError: if the size is not above 0.
        """
        size = _validate.positive(size=size)
        return domain.project(theta - size * loss.gradient(theta, X, y).mean(axis=0))


@dataclass(frozen=True)
class Truncated:
    """The tangent of the loss, truncated at a lower bound on losses.

    Args:
        lower: a lower bound on the loss of every record; 0 is valid for all losses here except
            ``PoissonLoss``.

    Raises:
        ParameterError: if the lower bound is not finite.

    >>> from dpgrain.optimize import Squared
    >>> Truncated().step(Squared(), np.zeros(1), np.ones((1, 1)), np.array([3.0]), 10.0).tolist()
    [1.5]
    """

    lower: float = 0.0

    def __post_init__(self) -> None:
        if not math.isfinite(_validate.real(lower=self.lower)):
            raise ParameterError(f"lower must be finite, not {self.lower!r}.")

    @np.errstate(all="ignore")
    def step(
        self,
        loss: LossFunction,
        theta: FloatArray,
        X: Array,
        y: Array,
        size: float,
        domain: Domain = EVERYWHERE,
    ) -> FloatArray:
        """Return the projection of θ − share·size·gradient, with the best share in [0, 1].

        Raises:
            ParameterError: if the size is not above 0.
        """
        size = _validate.positive(size=size)
        gradient = loss.gradient(theta, X, y).mean(axis=0)
        room = float(loss.value(theta, X, y).mean()) - self.lower

        def ends(share: float) -> FloatArray:
            return domain.project(theta - share * size * gradient)

        def above(end: FloatArray) -> bool:
            return room + float(gradient @ (end - theta)) >= 0

        if above(ends(1.0)):
            return ends(1.0)
        if not room > 0:
            return domain.project(theta)
        # The step ends where the tangent reaches the bound, if that point is in the domain.
        share = room / (size * (gradient @ gradient))
        aimed: FloatArray = theta - share * size * gradient
        if np.array_equal(domain.project(aimed), aimed):
            return aimed
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if above(ends(middle)) else (low, middle)
        return ends(low)


@dataclass(frozen=True)
class Proximal:
    """The loss itself, if it is a margin loss, also with a ridge; no step is too long.

    One record has a closed form, or one equation to solve. Several are solved by splitting (ADMM):
    margins by the loss's own proximal slopes, the domain by its projection, and their coupling by
    least squares. Splitting stops when all residuals are below 1e-9, or after 2,000 rounds.

    >>> from dpgrain.optimize import Squared
    >>> X, y = np.ones((2, 1)), np.array([2.0, 4.0])
    >>> Proximal().step(Squared(), np.zeros(1), X, y, 2.0).round(6).tolist()
    [2.0]
    """

    def step(
        self,
        loss: LossFunction,
        theta: FloatArray,
        X: Array,
        y: Array,
        size: float,
        domain: Domain = EVERYWHERE,
    ) -> FloatArray:
        """Return (p,) the argmin over the domain of mean loss(v) + ‖v − θ‖²/(2·size).

        Raises:
            ParameterError: if the loss is not a :class:`MarginLoss`, with or without a ridge.
        """
        size = _validate.positive(size=size)
        while isinstance(loss, Regularised):
            # Up to a constant, λ/2·‖v‖² + ‖v − θ‖²/2α is a shorter step from a point nearer to 0.
            shrunk = 1 + size * loss.strength
            loss, theta, size = loss.loss, theta / shrunk, size / shrunk
        if not isinstance(loss, MarginLoss):
            raise ParameterError(
                f"Proximal() requires a MarginLoss, not {type(loss).__name__}; use Linear() or "
                "Truncated()."
            )
        start, features = np.asarray(theta, dtype=np.float64), np.asarray(X, dtype=np.float64)
        targets = np.asarray(y)
        # Overflows depend on the records, so no warning or error may reveal them.
        with np.errstate(all="ignore"):
            if len(features) == 1:
                alone = np.asarray(loss.proximal(start, features, targets, size)[0])
                inside = domain.project(alone)
                if np.linalg.norm(inside - alone) <= _RELATIVE_TOLERANCE:
                    return inside
            if not all(np.isfinite(values).all() for values in (start, features, targets)):
                return np.full(start.shape, np.nan)
            try:
                return _split(loss, start, features, targets, size, domain)
            except np.linalg.LinAlgError:
                return np.full(start.shape, np.nan)


def _split(
    loss: MarginLoss,
    theta: FloatArray,
    X: FloatArray,
    y: Array,
    size: float,
    domain: Domain,
) -> FloatArray:
    """Return (p,) the end of the proximal step of a block, by splitting."""
    # It minimises mean loss(r) + ‖v − θ‖²/(2·size) + [w in the domain] over r = X·v, w = v.
    rows, outputs = len(X), loss.outputs
    _, scales, across = np.linalg.svd(X, full_matrices=False)
    # This must be a NumPy scalar, because Python numbers raise if a power overflows.
    largest = scales.max(initial=0.0) or np.float64(1.0)
    start = theta.reshape(outputs, -1)

    def slopes(z: FloatArray, length: float) -> FloatArray:
        flat = z[:, 0] if outputs == 1 else z
        return loss.proximal_slope(flat, y, np.full(rows, length)).reshape(z.shape).astype(float)

    def project(v: FloatArray) -> FloatArray:
        return domain.project(v.ravel()).reshape(v.shape)

    # Penalties of r ≠ X·v and of w ≠ v; without a domain there is no w.
    bounded = not isinstance(domain, Unconstrained)
    stiff, hold = 1 / (size * largest**2), bounded / size
    w = project(start)
    r, u, q = X @ w.T, np.zeros((rows, outputs)), np.zeros_like(w)
    v = w
    for i in range(1, _MOST_ROUNDS + 1):
        # Least squares solve (1/size + hold)·v + stiff·X'X·v = wanted.
        wanted, ease = start / size + stiff * (r - u).T @ X + hold * (w - q), 1 / size + hold
        bent = stiff * scales**2 / (ease + stiff * scales**2)
        v = (wanted - ((wanted @ across.T) * bent) @ across) / ease
        z = X @ v.T
        ahead = _OVER_RELAXATION * z + (1 - _OVER_RELAXATION) * r + u
        u = slopes(ahead, 1 / (rows * stiff)) / (rows * stiff)
        r, old_r = ahead - u, r
        off, turn = float(np.linalg.norm(z - r)), stiff * float(np.linalg.norm((r - old_r).T @ X))
        apart, change = 0.0, 0.0
        if bounded:
            pulled = _OVER_RELAXATION * v + (1 - _OVER_RELAXATION) * w + q
            w, old_w = project(pulled), w
            q = pulled - w
            apart, change = float(np.linalg.norm(v - w)), hold * float(np.linalg.norm(w - old_w))
        far, high = 1 + float(np.linalg.norm(v - start)), 1 + float(np.linalg.norm(z))
        misses = (off / high, size * turn / far, apart / far, size * change / far)
        # Written so that a NaN ends the rounds.
        if not np.max(misses) > _RELATIVE_TOLERANCE:
            break
        if i % _ADAPTING_PERIOD_ROUNDS == 0:
            # The penalties change less and less, so that the rounds converge.
            calm = (_ADAPTING_PERIOD_ROUNDS / i) ** 0.3
            gain = _balance(misses[0], misses[1]) ** calm
            stiff, u = stiff * gain, u / gain
            gain = _balance(misses[2], misses[3]) ** calm
            hold, q = hold * gain, q / gain
    return domain.project(v.ravel())


def _balance(off: float, change: float) -> float:
    """Return the factor of a penalty that balances the two residuals."""
    return float(np.sqrt(np.clip((off + 1e-300) / (change + 1e-300), 1e-2, 1e2)))
