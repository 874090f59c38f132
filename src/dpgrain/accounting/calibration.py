"""Smallest noise for a privacy guarantee, rounded towards privacy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

from dpgrain import _validate
from dpgrain._formatting import quantity
from dpgrain.accounting.contribution import Contribution
from dpgrain.accounting.events.additive import Additive, Gaussian, Laplace
from dpgrain.accounting.events.base import Event
from dpgrain.accounting.events.choices import BoundedRange
from dpgrain.accounting.events.partition_selection import TruncatedGeometric
from dpgrain.accounting.losses.gaussian import bisect, gaussian_epsilon, gaussian_mu
from dpgrain.accounting.losses.rounding import product_up
from dpgrain.errors import ParameterError
from dpgrain.units import Level, Relation, Unit

# Relative distance below the target ε at which the search stops.
_RELATIVE_TOLERANCE = 1e-4

Calibrated = TypeVar("Calibrated", bound=Event)


@dataclass(frozen=True)
class Calibration(Generic[Calibrated]):
    """A calibrated parameter and its event, which satisfies the requested guarantee.

    Args:
        event: the event with this parameter.
        parameter: the value of the parameter.
        epsilon: the ε that the event reports at the requested δ.
        slack: the difference between the target and this ε.

    >>> found = calibrate(Gaussian, 1.0, 1e-6)
    >>> found.event == Gaussian(found.parameter), found.epsilon <= 1.0, found.slack < 1e-3
    (True, True, True)
    """

    event: Calibrated
    parameter: float
    epsilon: float
    slack: float


def calibrate(
    make_event: Callable[[float], Calibrated] | Callable[[int], Calibrated],
    epsilon: float,
    delta: float,
    *,
    units: int = 1,
    relation: Relation = "zero_out",
    unit: Unit | None = None,
    max_elements: int | None = None,
    search: Literal["smallest", "largest"] = "smallest",
    integer: bool = False,
    low: float | None = None,
    high: float | None = None,
) -> Calibration[Calibrated]:
    """Find the smallest noise, or largest rate or number of rounds, for a guarantee.

    Args:
        make_event: a function from the parameter to the event.
        epsilon: the promised ε, above 0.
        delta: the promised δ, in [0, 1).
        units: the number of units of one person that the promise covers.
        relation: the neighbouring relation.
        unit: the protected unit; by default the event's own.
        max_elements: a condition: the guarantee is for people with at most this many elements.
        search: ``"smallest"`` if a larger parameter costs less (noise), ``"largest"`` if it costs
            more (a sampling rate, rounds).
        integer: True if the parameter is an integer (rounds); ``make_event`` then gets an int.
        low: the smallest parameter to consider; by default 1e-6, or 1 for integers.
        high: the largest parameter to consider; by default 1e9; pass 1 for a sampling rate.

    Raises:
        ParameterError: if no parameter between low and high is sufficient, or an argument is out of
            range.

    Formal guarantee: the returned event's ``epsilon(delta)`` is at most the target, in floating
    point. It is within 1e-4 of it, relative, unless the range or the restriction to integers
    prevents it.

    >>> from dpgrain.accounting import SampledGaussian
    >>> found = calibrate(lambda noise: SampledGaussian(noise, 0.01, 1000), 2.0, 1e-6)
    >>> round(found.parameter, 3), found.epsilon <= 2.0, found.slack < 2e-4
    (1.029, True, True)
    >>> most = calibrate(
    ...     lambda n: SampledGaussian(1.0, 0.01, n), 2.0, 1e-6, search="largest", integer=True
    ... )
    >>> 860 < most.parameter < 880
    True
    """
    epsilon = _validate.positive(epsilon=epsilon)
    delta = _validate.delta(allow_zero=True, delta=delta)
    if not callable(make_event):
        raise ParameterError(
            f"make_event must be a function, not {_validate.describe(make_event)}.",
            name="make_event",
        )
    _validate.one_of(("smallest", "largest"), search=search)
    integer = _validate.boolean(integer=integer)
    low = _validate.positive(low=(1.0 if integer else 1e-6) if low is None else low)
    high = _validate.positive(high=1e9 if high is None else high)
    if not low < high:
        raise ParameterError(f"low must be below high, not {low!r} and {high!r}.")
    tried: dict[float, tuple[float, Calibrated]] = {}

    def excess(parameter: float) -> float:
        event = make_event(int(parameter) if integer else parameter)  # type: ignore[arg-type]
        # A pure guarantee is computed without δ.
        reported = event.epsilon(
            delta or None, units=units, relation=relation, unit=unit, max_elements=max_elements
        )
        tried[parameter] = reported, event
        return math.log(reported / epsilon) if reported > 0 else -math.inf

    best = _boundary(excess, low, high, rising=search == "largest", integer=integer)
    if best is None and all(math.isinf(reported) for reported, _ in tried.values()):
        raise ParameterError(
            f"epsilon = {epsilon!r} cannot be reached by any parameter, because the contribution "
            "of a unit is unbounded (pass User a max_elements) or another part of the event "
            "already costs more."
        )
    if best is None:
        end = "low" if search == "largest" else "high"
        raise ParameterError(
            f"epsilon = {epsilon!r} cannot be reached by any parameter from {low!r} to {high!r}; "
            f"change {end}, allow a larger epsilon, or spend less on other parts of the event."
        )
    reported, event = tried[best]
    return Calibration(event, int(best) if integer else best, reported, epsilon - reported)


def _boundary(
    excess: Callable[[float], float], low: float, high: float, *, rising: bool, integer: bool
) -> float | None:
    """Return the last parameter in the range that satisfies the promise, or None."""
    start = min(max(1.0, low), high)
    # The promise is satisfied towards `far` and violated towards `near`.
    far, near = (low, high) if rising else (high, low)
    at = {start: excess(start)}
    step = 2.0
    good = start if at[start] <= 0 else None
    bad = None if good is not None else start
    while good is None or bad is None:
        edge, point = (far, bad) if good is None else (near, good)
        assert point is not None  # noqa: S101 - one of the two is known
        if point == edge:
            return good
        next_ = min(max(point * step if edge > point else point / step, low), high)
        next_ = float(round(next_)) if integer else next_
        at[next_] = excess(next_)
        if edge == near and at[next_] < at[point] - 1e-3:
            words = ("falls", "smallest") if rising else ("grows", "largest")
            raise ParameterError(
                f"epsilon {words[0]} with the parameter, from {point:g} to {next_:g}; use "
                f"search={words[1]!r}."
            )
        good, bad = (next_, bad) if at[next_] <= 0 else (good, next_)
        step *= 2
    for _ in range(200):
        if at[good] >= -_RELATIVE_TOLERANCE or (integer and abs(good - bad) <= 1):
            break
        # ε is nearly a power of the parameter, so use regula falsi in logarithms, well inside the
        # bracket.
        share = 0.5
        if math.isfinite(at[good]) and math.isfinite(at[bad]):
            share = (-0.5 * _RELATIVE_TOLERANCE - at[good]) / (at[bad] - at[good])
        share = min(max(share, 0.01), 0.99)
        middle = math.exp(math.log(good) + share * (math.log(bad) - math.log(good)))
        if integer:
            inside = sorted((good, bad))
            middle = float(min(max(round(middle), inside[0] + 1), inside[1] - 1))
        if middle in (good, bad):
            break
        at[middle] = excess(middle)
        good, bad = (middle, bad) if at[middle] <= 0 else (good, middle)
    return good


def calibrate_gaussian(
    epsilon: float,
    delta: float,
    *,
    contribution: Contribution | None = None,
    relation: Relation = "zero_out",
    unit: Unit | None = None,
    count: int = 1,
) -> Gaussian:
    """Return the Gaussian event with the least noise that is (ε, δ)-DP for one unit.

    Args:
        epsilon: the promised ε, above 0.
        delta: the promised δ, in (0, 1).
        contribution: the effect of one person's units on the sum.
        relation: the neighbouring relation.
        unit: the protected unit; by default the unit of the contribution's blocks.
        count: the number of such sums released under the same promise.

    Raises:
        ParameterError: if ε or δ is out of range, or the contribution is unbounded.

    Formal guarantee: the noise multiplier is rounded up, so ``event.epsilon(delta) <= epsilon``
    holds in floating point; the gap is below 1e-9 relative.

    >>> round(calibrate_gaussian(1.0, 1e-5).noise_multiplier, 4)
    3.7306
    """
    count = _validate.integer(minimum=1, count=count)
    contribution = Contribution() if contribution is None else contribution
    (noise,) = gaussian_multipliers(epsilon, delta, [contribution], [1.0], relation, unit, count)
    return Gaussian(noise, contribution, count)


def gaussian_multipliers(
    epsilon: float,
    delta: float,
    contributions: Sequence[Contribution],
    shares: Sequence[float],  # proportions of μ²
    relation: Relation = "zero_out",
    unit: Unit | None = None,
    count: int = 1,
) -> list[float]:
    """Return noise multipliers of Gaussian releases, together (ε, δ)-DP for one unit.

    Each is released ``count`` times.
    """
    if len(shares) != len(contributions):
        raise ParameterError(
            "shares must have one value for each of "
            f"{quantity(len(contributions), 'contribution')}, not {len(shares)}.",
            name="shares",
        )
    total = sum(_validate.positive(share=share) for share in shares)
    parts = [share / total / count for share in shares]
    epsilon = _validate.positive(epsilon=epsilon)
    delta = _validate.delta(allow_zero=False, delta=delta)
    for contribution in contributions:
        _validate.instance(Contribution, contribution=contribution)
    mu = gaussian_mu(epsilon, delta)
    # The margin prevents rounding from raising the sum of squares above μ², or ε above the target.
    margin = 1e-12
    sensitivities = [
        _finite(contribution.sensitivity(1, relation, unit)) for contribution in contributions
    ]
    while True:
        mu *= 1 - margin
        multipliers = [
            one / (mu * math.sqrt(part)) for one, part in zip(sensitivities, parts, strict=True)
        ]
        # Compute the accountant's result, with its rounding.
        spent = math.sqrt(count) * math.hypot(
            *(one / noise for one, noise in zip(sensitivities, multipliers, strict=True))
        )
        if all(gaussian_epsilon(delta, mu_used) <= epsilon for mu_used in (mu, spent)):
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
    """Return the Laplace event with the least noise that is ε-DP for one unit.

    Args:
        epsilon: the promised ε, above 0.
        contribution: the effect of one person's units on the sum, with ``norm="l1"``.
        relation: the neighbouring relation.
        unit: the protected unit; by default the unit of the contribution's blocks.
        count: the number of such sums released under the same promise.

    Raises:
        ParameterError: if ε is out of range, or the contribution is unbounded.

    >>> calibrate_laplace(0.5, relation="replace").noise_multiplier
    4.0
    """
    epsilon = _validate.positive(epsilon=epsilon)
    count = _validate.integer(minimum=1, count=count)
    contribution = Contribution(norm="l1") if contribution is None else contribution
    _validate.instance(Contribution, contribution=contribution)
    sensitivity = _finite(contribution.sensitivity(1, relation, unit))
    multiplier = count * sensitivity / epsilon
    # Compute the accountant's result, with its rounding.
    while product_up(count, sensitivity, over=multiplier) > epsilon:
        multiplier = math.nextafter(multiplier, math.inf)
    return Laplace(multiplier, contribution, count)


def calibrate_additive(
    kind: type[Additive],
    epsilon: float,
    delta: float,
    *,
    contribution: Contribution,
    relation: Relation = "zero_out",
    unit: Unit | None = None,
) -> Additive:
    """Return the event of an additive noise with the least noise for a guarantee."""
    if kind is Laplace:
        return calibrate_laplace(epsilon, contribution=contribution, relation=relation, unit=unit)
    if kind is Gaussian:
        return calibrate_gaussian(
            epsilon, delta, contribution=contribution, relation=relation, unit=unit
        )

    def event(multiplier: float) -> Additive:
        return kind(multiplier, contribution)

    return calibrate(event, epsilon, delta, relation=relation, unit=unit).event


def calibrate_truncated_geometric(
    epsilon: float,
    delta: float,
    *,
    contribution: Contribution | None = None,
    max_items: int = 1,
    relation: Relation = "zero_out",
    unit: Unit | None = None,
) -> TruncatedGeometric:
    """Return the event with the lowest cutoff that is (ε, δ)-DP for one unit.

    Args:
        epsilon: the promised ε, above 0.
        delta: the promised δ, in (0, 1).
        contribution: the effect of one person's blocks on the counts.
        max_items: the maximum number of items of one block.
        relation: the neighbouring relation.
        unit: the protected unit; by default the unit of the contribution's blocks.

    Raises:
        ParameterError: if ε or δ is out of range, or the contribution is unbounded.

    Formal guarantee: that of :class:`TruncatedGeometric`. All of δ is spent on items that pass the
    cutoff. If a unit makes many changes, only half of it is, and the other half allows more ε per
    change (zCDP).

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

        def fits(cutoff: int) -> bool:
            return event(rate, cutoff).loss(1, relation, unit).epsilon(delta) <= epsilon

        high = 1
        while not fits(high):
            high *= 2
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        return event(rate, high)

    return min((smallest(1.0), smallest(0.5)), key=lambda candidate: candidate.cutoff)


def calibrate_bounded_range(
    epsilon: float,
    delta: float = 0.0,
    *,
    count: int = 1,
    relation: Relation = "zero_out",
    level: Level = "user",
) -> BoundedRange:
    """Return the (ε, δ)-DP choice of ``count`` items with the least noise.

    Args:
        epsilon: the promised ε, above 0.
        delta: the promised δ, in [0, 1).
        count: the number of items chosen.
        relation: the neighbouring relation.
        level: the protected unit.

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
    """Return a power of two that fails a condition, where the next one satisfies it."""
    low = 1.0
    while holds(low):
        low /= 2
    while not holds(2 * low):
        low *= 2
    return low, 2 * low


def _finite(sensitivity: float) -> float:
    if math.isinf(sensitivity):
        raise ParameterError("unit must have a bounded contribution; pass User a max_elements.")
    return sensitivity
