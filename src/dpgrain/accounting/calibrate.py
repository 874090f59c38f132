"""The smallest noise that keeps a promise, rounded towards privacy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from dpgrain import _validate
from dpgrain.accounting.contribution import Contribution
from dpgrain.accounting.events import BoundedRange, Gaussian, Laplace, TruncatedGeometric
from dpgrain.accounting.gaussian import bisect, gaussian_epsilon, gaussian_mu
from dpgrain.errors import ParameterError
from dpgrain.units import Level, Relation, Unit


def calibrate_gaussian(
    epsilon: float,
    delta: float,
    *,
    contribution: Contribution | None = None,
    relation: Relation = "zero_out",
    unit: Unit | None = None,
    count: int = 1,
) -> Gaussian:
    """The Gaussian event with the least noise that is (ε, δ)-DP for one unit.

    Args:
        epsilon: the promised ε, above 0.
        delta: the promised δ, in (0, 1).
        contribution: how units enter the sum.
        relation: the neighbouring relation.
        unit: the unit that is protected; by default the one whose data is a block.
        count: how many such sums are released under the one promise.

    Raises:
        ParameterError: if ε or δ is out of range, or nothing bounds the contribution.

    The noise multiplier is rounded up, so that ``event.epsilon(delta) <= epsilon`` holds in
    floating point; the gap is below 1e-9 relative.

    >>> round(calibrate_gaussian(1.0, 1e-5).noise_multiplier, 4)
    3.7306
    """
    shares = [1.0] * _validate.integer(minimum=1, count=count)
    contribution = Contribution() if contribution is None else contribution
    (first, *_) = gaussian_multipliers(
        epsilon, delta, [contribution] * len(shares), shares, relation, unit
    )
    return Gaussian(first, contribution, count)


def gaussian_multipliers(
    epsilon: float,
    delta: float,
    contributions: Sequence[Contribution],
    shares: Sequence[float],
    relation: Relation = "zero_out",
    unit: Unit | None = None,
) -> list[float]:
    """Noise multipliers of several Gaussian releases that together are (ε, δ)-DP for one unit.

    Args:
        epsilon: the promised ε.
        delta: the promised δ.
        contributions: how units enter each release.
        shares: the share of μ² that each release gets, in proportion.
        relation: the neighbouring relation.
        unit: the unit that is protected; by default the one whose data is a block.

    >>> [round(s, 3) for s in gaussian_multipliers(1, 1e-5, [Contribution()] * 2, [1, 3])]
    [7.461, 4.308]
    """
    epsilon = _validate.positive(epsilon=epsilon)
    delta = _validate.delta(allow_zero=False, delta=delta)
    total = sum(_validate.positive(share=share) for share in shares)
    mu = gaussian_mu(epsilon, delta)
    # Rounding in the squares below must not push the sum above μ², nor that in ε above the target.
    margin = 1e-12
    moved = [_finite(contribution.sensitivity(1, relation, unit)) for contribution in contributions]
    while True:
        mu *= 1 - margin
        multipliers = [
            one / (mu * math.sqrt(share / total)) for one, share in zip(moved, shares, strict=True)
        ]
        # As the accountant will ask.
        spent = math.hypot(*(one / noise for one, noise in zip(moved, multipliers, strict=True)))
        if all(gaussian_epsilon(delta, asked) <= epsilon for asked in (mu, spent)):
            return multipliers
        margin *= 2


def calibrate_laplace(
    epsilon: float,
    *,
    contribution: Contribution | None = None,
    relation: Relation = "zero_out",
    unit: Unit | None = None,
    count: int = 1,
) -> Laplace:
    """The Laplace event with the least noise that is ε-DP for one unit; arguments as above.

    >>> calibrate_laplace(0.5, relation="replace").noise_multiplier
    4.0
    """
    epsilon = _validate.positive(epsilon=epsilon)
    count = _validate.integer(minimum=1, count=count)
    contribution = Contribution(norm="l1") if contribution is None else contribution
    moved = _finite(contribution.sensitivity(1, relation, unit))
    multiplier = count * moved / epsilon
    while count * moved / multiplier > epsilon:
        multiplier = math.nextafter(multiplier, math.inf)
    return Laplace(multiplier, contribution, count)


def calibrate_truncated_geometric(
    epsilon: float,
    delta: float,
    *,
    contribution: Contribution | None = None,
    max_items: int = 1,
    relation: Relation = "zero_out",
    unit: Unit | None = None,
) -> TruncatedGeometric:
    """The event with the lowest cutoff that is (ε, δ)-DP for one unit: items and counts at once.

    Args:
        epsilon: the promised ε, above 0.
        delta: the promised δ, in (0, 1).
        contribution: how blocks enter the counts.
        max_items: the most items that one block adds to.
        relation: the neighbouring relation.
        unit: the unit that is protected; by default the one whose data is a block.

    Raises:
        ParameterError: if ε or δ is out of range, or nothing bounds the contribution.

    Formal guarantee: as :class:`TruncatedGeometric`, with all of δ for what passes the cutoff; or with
    half of it, the other half paying for more ε per change (zCDP), where a unit makes many changes.

    >>> event = calibrate_truncated_geometric(1.0, 1e-5)
    >>> event.rate, event.cutoff
    (1.0, 11)
    """
    epsilon = _validate.positive(epsilon=epsilon)
    delta = _validate.delta(allow_zero=False, delta=delta)
    contribution = Contribution() if contribution is None else contribution
    _finite(TruncatedGeometric(1.0, 1, max_items, contribution).loss(1, relation, unit).pure)

    def event(rate: float, cutoff: int) -> TruncatedGeometric:
        return TruncatedGeometric(rate, cutoff, max_items, contribution)

    def smallest(share: float) -> TruncatedGeometric:
        def too_much(rate: float) -> bool:
            loss = replace(event(rate, 1).loss(1, relation, unit), leak=0.0)
            return loss.epsilon((1 - share) * delta) > epsilon

        rate = bisect(too_much, *_around(too_much))[0]

        def kept(cutoff: int) -> bool:
            return event(rate, cutoff).loss(1, relation, unit).epsilon(delta) <= epsilon

        high = 1
        while not kept(high):
            high *= 2
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if kept(middle) else (middle, high)
        return event(rate, high)

    return min((smallest(1.0), smallest(0.5)), key=lambda found: found.cutoff)


def calibrate_bounded_range(
    epsilon: float,
    delta: float = 0.0,
    *,
    count: int = 1,
    relation: Relation = "zero_out",
    level: Level = "user",
) -> BoundedRange:
    """The choice of ``count`` items with the least noise that is (ε, δ)-DP for one unit.

    Args:
        epsilon: the promised ε, above 0.
        delta: the promised δ, in [0, 1).
        count: how many items are chosen.
        relation: the neighbouring relation.
        level: the unit that is protected.

    Raises:
        ParameterError: if ε or δ is out of range.

    >>> round(calibrate_bounded_range(1.0, count=10).rate, 6)
    0.1
    >>> round(calibrate_bounded_range(1.0, 1e-6, count=100).rate, 4)
    0.0441
    """
    epsilon = _validate.positive(epsilon=epsilon)
    delta = _validate.delta(allow_zero=True, delta=delta)

    def too_much(rate: float) -> bool:
        return BoundedRange(rate, count, level).loss(1, relation).epsilon(delta) > epsilon

    return BoundedRange(bisect(too_much, *_around(too_much))[0], count, level)


def _around(holds: Callable[[float], bool]) -> tuple[float, float]:
    """A power of two where a condition does not hold, and the next, where it does."""
    low = 1.0
    while holds(low):
        low /= 2
    while not holds(2 * low):
        low *= 2
    return low, 2 * low


def _finite(sensitivity: float) -> float:
    if math.isinf(sensitivity):
        raise ParameterError("unit must have a bounded contribution: give User a max_elements.")
    return sensitivity
