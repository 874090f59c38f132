"""Mechanisms with only a known guarantee: (ε, δ), ρ, or Rényi divergences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpgrain import _validate
from dpgrain.accounting.events.base import Event, Neighbours
from dpgrain.accounting.losses.curves import GroupCurve
from dpgrain.accounting.losses.loss import Loss
from dpgrain.accounting.losses.rounding import product_up
from dpgrain.errors import ParameterError
from dpgrain.units import Level, Relation

# A bound on the relative rounding of a probability, and of the scale of the noise behind it.
_RELATIVE_ROUNDING = 2.0**-36
# Max steps of a group with divergences added one by one.
_MOST_TERMS = 1 << 12


@dataclass(frozen=True)
class ApproximateDP(Event):
    """Any mechanism with only (ε, δ) known, run ``count`` times; δ = 0 is pure.

    Args:
        guaranteed_epsilon: the ε of the mechanism for one unit.
        guaranteed_delta: the δ of the mechanism for one unit.
        level: the protected unit.
        relation: the relation of that protection.
        count: the number of runs.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: basic composition; a change of several steps of the stated relation is charged
    by group privacy, δ_k = δ·(e^{kε}−1)/(e^ε−1). Proof: docs/theory, "Composition".

    >>> ApproximateDP(0.5, 0.0).epsilon(units=2)
    1.0
    """

    guaranteed_epsilon: float
    guaranteed_delta: float = 0.0
    level: Level = "user"
    relation: Relation = "zero_out"
    count: int = 1

    def __post_init__(self) -> None:
        _validate.non_negative(guaranteed_epsilon=self.guaranteed_epsilon)
        _validate.delta(allow_zero=True, guaranteed_delta=self.guaranteed_delta)
        _validate.integer(minimum=1, count=self.count)

    def cost(self, neighbours: Neighbours) -> Loss:
        steps = neighbours.steps(self.level, self.relation)
        if math.isinf(steps):
            return Loss(pure=math.inf)
        epsilon = self.guaranteed_epsilon
        pure = product_up(self.count, steps, epsilon)
        rho = self.count * steps * epsilon * (steps * epsilon) / 2
        if self.guaranteed_delta == 0:
            return Loss(pure=pure, rho=rho)
        # The factor of group privacy is Σ_{i<k} e^{iε}; it overflows only when it exceeds any δ.
        grown: float = steps
        if (steps - 1) * epsilon > 700:
            grown = math.inf
        elif epsilon > 0 and steps > 1:
            last = math.exp((steps - 1) * epsilon)
            grown = (
                last
                * math.expm1(-steps * epsilon)
                / math.expm1(-epsilon)
                * (1 + _RELATIVE_ROUNDING)
            )
        leak = min(product_up(self.count, self.guaranteed_delta, grown), 1.0)
        return Loss(pure=pure, leak=leak, rho=rho)


def PureDP(  # noqa: N802 - the name of an event
    epsilon: float, *, level: Level = "user", relation: Relation = "zero_out"
) -> ApproximateDP:
    """Return the event of an ε-DP mechanism with nothing else known.

    Args:
        epsilon: the ε of the mechanism for one unit.
        level: the protected unit.
        relation: the relation of that protection.

    Raises:
        ParameterError: if a value is out of range.

    >>> PureDP(0.5).epsilon(units=3)
    1.5
    """
    _validate.non_negative(epsilon=epsilon)
    return ApproximateDP(epsilon, 0.0, level, relation)


@dataclass(frozen=True)
class ZCDP(Event):
    """Any mechanism with only ρ-zCDP known, run ``count`` times.

    Args:
        rho: the ρ of the mechanism for one unit: all Rényi divergences have D_α ≤ αρ.
        level: the protected unit.
        relation: the relation of that protection.
        count: the number of runs.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: count·ρ-zCDP; k units cost k²ρ. Source: Bun & Steinke 2016, Prop. 27 (groups);
    Canonne, Kamath & Steinke 2020, Cor. 13 (conversion); docs/theory, "Composition".

    >>> round(ZCDP(0.5).epsilon(1e-6), 3)
    5.222
    """

    rho: float
    level: Level = "user"
    relation: Relation = "zero_out"
    count: int = 1

    def __post_init__(self) -> None:
        _validate.positive(rho=self.rho)
        _validate.integer(minimum=1, count=self.count)

    def cost(self, neighbours: Neighbours) -> Loss:
        steps = neighbours.steps(self.level, self.relation)
        return Loss(concentrated=product_up(self.count, steps, steps, self.rho))


@dataclass(frozen=True)
class RDP(Event):
    """Any mechanism with only some Rényi divergences known, run ``count`` times.

    Args:
        orders: (n,) orders α, above 1.
        values: (n,) bounds on D_α for one unit, at least 0.
        level: the protected unit.
        relation: the relation of that protection.
        count: the number of runs.

    Raises:
        ParameterError: if there are no orders, another number of values, or one is out of range.

    Formal guarantee: values add (Mironov 2017, Prop. 1); k steps divide the order α by k, and their
    value is the sum of α/(α−j)·D_{α−j} over j = 0, …, k−1; or the k-fold group privacy curve of
    one, if that is less. Source: element-level paper, Definition 2.2 and Lemmas 3.1(i), 3.2(i),
    with a smaller bound for groups and with the conversion of Canonne, Kamath & Steinke 2020
    instead of log(1/δ)/(α−1); docs/theory, "Composition".

    >>> round(RDP((8.0, 16.0, 32.0), (0.04, 0.08, 0.16)).epsilon(1e-6), 3)
    0.462
    """

    orders: tuple[float, ...]
    values: tuple[float, ...]
    level: Level = "user"
    relation: Relation = "zero_out"
    count: int = 1

    def __post_init__(self) -> None:
        if not self.orders or len(self.orders) != len(self.values):
            raise ParameterError(
                f"values must have one value per order and at least one, not {len(self.values)} "
                f"for {len(self.orders)} orders."
            )
        for order, value in zip(self.orders, self.values, strict=True):
            if not 1 < order < math.inf:
                raise ParameterError(f"orders must be finite and above 1, not {order!r}.")
            if not value >= 0:
                raise ParameterError(f"values must be at least 0, not {value!r}.")
        _validate.integer(minimum=1, count=self.count)

    def cost(self, neighbours: Neighbours) -> Loss:
        steps = neighbours.steps(self.level, self.relation)
        if math.isinf(steps):
            return Loss(pure=math.inf)
        known = [
            (order, product_up(self.count, value))
            for order, value in sorted(zip(self.orders, self.values, strict=True))
        ]
        if steps == 1:
            return Loss(renyi=tuple(known))
        valid = tuple(
            (_remaining_order(order, steps), _group_divergence(known, order, int(steps)))
            for order, _ in known
            if _remaining_order(order, steps) > 1
        )
        # For very many steps, group privacy of the curve gives more than divergences do.
        by_curve = Loss.from_curve(GroupCurve(Loss(renyi=tuple(known)), int(steps)))
        return Loss(renyi=valid).or_else(by_curve) if valid else by_curve


def _remaining_order(order: float, steps: float) -> float:
    """Return the order that remains of one after several steps, rounded down."""
    return math.nextafter(order / steps, 0.0)


def _group_divergence(known: Sequence[tuple[float, float]], order: float, steps: int) -> float:
    """Return Σ_{j<k} α/(α−j)·D_{α−j} for k steps and an order α above k, rounded up."""
    total, below = 0.0, -math.inf
    # The known bounds, (order, divergence of one step), are ordered and include α.
    for at, value in known:
        # The divergences of orders above the last known one, up to this one, are at most its own.
        last = min(steps, math.ceil(order - below)) if below > -math.inf else steps
        first = min(max(math.ceil(order - at), 0), last)
        if first < last:
            total += value * _weights(order, first, last)
        below = at
        if at >= order:
            break
    return total * (1 + _RELATIVE_ROUNDING)


def _weights(order: float, first: int, last: int) -> float:
    """Return Σ α/(α−j) over j = first, …, last − 1, or a bound for very many terms."""
    if last - first > _MOST_TERMS:
        # Each term is at most the integral over the interval to its right.
        return order * math.log((order - first) / (order - last))
    return math.fsum(order / (order - j) for j in range(first, last))
