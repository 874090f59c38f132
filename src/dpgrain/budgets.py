"""``dg.budget``: several releases under one promise, each refused beforehand if it would break it."""

from __future__ import annotations

import math
import threading
from typing import Literal, TypedDict

import numpy as np

from dpgrain import _validate
from dpgrain.accounting import Loss, gaussian_epsilon, gaussian_mu
from dpgrain.errors import ParameterError
from dpgrain.guarantee import Guarantee
from dpgrain.units import OWN_UNIT
from dpgrain.wording import powers, rounded_up

# The smallest share of its δ that a release keeps for its Gaussian parts.
_NAMES = 0.5


class Share(TypedDict):
    """The ε and δ of one release."""

    epsilon: float
    delta: float


class Budget:
    """One (ε, δ) for all releases that are made while it is open; made by :func:`budget`.

    Args:
        epsilon: the promised ε of all of them together.
        delta: the promised δ of all of them together.

    Attributes:
        guarantee: the promise of all releases so far; None before the first.
    """

    def __init__(self, epsilon: float, delta: float) -> None:
        self.epsilon = _validate.positive(epsilon=epsilon)
        self.delta = _validate.delta(allow_zero=True, delta=delta)
        self.guarantee: Guarantee | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Budget:
        with _slot.lock:
            if _slot.budget is not None:
                raise ParameterError("a budget is already open; close it before opening another.")
            _slot.budget = self
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        with _slot.lock:
            if _slot.budget is self:
                _slot.budget = None
        return False

    def share(self, part: float) -> Share:
        """The ε and δ of a release that gets this part of the budget.

        Args:
            part: of the whole; parts that add up to 1 spend all of it.

        Returns:
            ``{"epsilon": …, "delta": …}``, to be passed on with ``**``. Gaussian releases with such
            budgets compose to the whole one: their μ² add up, so half of a budget is more than half of
            ε. Releases without Gaussian noise add their ε: make them first, with ``epsilon=`` and
            ``delta=`` of their own; then the parts are parts of what they left.

        Raises:
            ParameterError: if the part is not in (0, 1].

        >>> half = budget(1.0, 1e-6).share(0.5)
        >>> round(half["epsilon"], 2), half["delta"]
        (0.71, 5e-07)
        """
        if part != 1:
            part = _validate.fraction(part=part)
        if self.delta == 0:
            return Share(epsilon=self.epsilon * part, delta=0.0)
        pure = self._pure()
        epsilon, delta = self.epsilon - pure.pure, self.delta - pure.leak
        if epsilon <= 0 or delta <= 0:
            raise ParameterError("nothing is left of the budget to share; open a larger one.")
        # However much of its δ a release spends on names below a threshold, its Gaussians get no more
        # than their part of the μ² that the whole budget would have.
        shares = [
            gaussian_epsilon(
                delta * part * rest, gaussian_mu(epsilon, delta * rest) * math.sqrt(part)
            )
            for rest in np.linspace(_NAMES, 1, 11)
        ]
        return Share(epsilon=min(shares) * (1 - 1e-6), delta=delta * part)

    def _pure(self) -> Loss:
        """What the releases without Gaussian noise have cost so far."""
        if self.guarantee is None:
            return Loss()
        relation, unit = self.guarantee.relation, OWN_UNIT[self.guarantee.level]
        losses = (part.loss(1, relation, unit) for part in self.guarantee.event.parts)
        return sum((loss for loss in losses if loss.mu == 0), Loss())

    @property
    def left(self) -> float:
        """How much of ε a further release may add at most, as one Gaussian with the whole δ."""
        if self.guarantee is None:
            return self.epsilon
        return max(self.epsilon - self._spent(self.guarantee), 0.0)

    def charge(self, promise: Guarantee) -> None:
        """Add a release that is about to be made.

        Raises:
            ParameterError: if the budget would not hold it, or it protects another unit.
        """
        with self._lock:
            together = promise if self.guarantee is None else self.guarantee + promise
            spent = self._spent(together)
            if spent > self.epsilon:
                raise ParameterError(
                    f"the budget ε = {self.epsilon:g}, δ = {powers(self.delta)} does not hold this "
                    f"release: with it ε would be {_shown(spent)}; ask for less, or use "
                    "**budget.share(part)."
                )
            self.guarantee = together

    def _spent(self, promise: Guarantee) -> float:
        return promise.event.epsilon(
            self.delta, relation=promise.relation, unit=OWN_UNIT[promise.level]
        )

    def __repr__(self) -> str:
        spent = 0.0 if self.guarantee is None else self._spent(self.guarantee)
        whole = f"epsilon={self.epsilon:g}, delta={self.delta:g}"
        return f"Budget({whole}; spent ε = {rounded_up(spent, 4)})"


class _Slot:
    """Where the open budget stands: one for the whole process, so that no thread is outside of it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.budget: Budget | None = None


_slot = _Slot()


def budget(epsilon: float, delta: float = 0.0) -> Budget:
    """Open one budget for several releases on the same people's data.

    Args:
        epsilon: the promised ε of all of them together.
        delta: the promised δ of all of them together.

    Raises:
        ParameterError: if ε or δ is out of range.

    Every release inside ``with`` is charged before anything is read, and refused if the losses of
    all of them, composed, would exceed the budget, in whatever thread they are made. All must protect
    the same unit of the same users, by the same partition and relation.

    Formal guarantee: (ε, δ)-DP for everything published inside; Gaussian parts compose exactly (their
    μ² add), δs of selections and εs of pure parts add. Source: docs/theory.md, "Composition".

    >>> import pyarrow as pa
    >>> from dpgrain import User, count, read
    >>> table = read(pa.table({"who": [1, 2, 2], "page": ["a", "a", "b"]}), user="who")
    >>> with budget(1.0, 1e-6) as b:
    ...     visits = count(table, unit=User(), clip=5.0, **b.share(0.5))
    ...     pages = count(table, by="page", unit=User(), clip=5.0, domain=["a"], **b.share(0.5))
    >>> round(b.guarantee.epsilon(1e-6), 3)
    0.999
    """
    return Budget(epsilon, delta)


def in_budget() -> bool:
    """Whether a budget is open."""
    return _slot.budget is not None


def charge(promise: Guarantee) -> None:
    """Charge a release that is about to be made to the budget that is open, if one is."""
    current = _slot.budget
    if current is not None:
        current.charge(promise)


def _shown(epsilon: float) -> str:
    return "unbounded" if math.isinf(epsilon) else rounded_up(epsilon, 4)
