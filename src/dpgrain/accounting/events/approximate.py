"""Events with an output close to the output of events with a known cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from dpgrain import _validate
from dpgrain.accounting.events.base import Compose, Event, Neighbours
from dpgrain.accounting.losses.curves import inverse
from dpgrain.accounting.losses.loss import Loss
from dpgrain.accounting.losses.pairs import CurvePair
from dpgrain.units import Level

# A bound on the relative effect of rounding.
_RELATIVE_ROUNDING = 2.0**-40
# Smaller η are raised to this, so that the inverse is finite.
_LEAST_VARIATION = 1e-300
# Points of the first search for the smallest value of a curve, steps of the golden-section search,
# and steps for a lower bound on ε.
_GRID_POINTS, _GOLDEN_STEPS, _BOUND_STEPS = 40, 60, 6


@dataclass(frozen=True)
class StatisticallyClose(Event):
    """A view derived from other events' outputs, up to a small statistical distance.

    On every table the distribution of the view is within total variation η of a distribution
    computed only from the outputs of the events, such as noise drawn from a table. One η covers all
    that is published, over all coordinates and rounds. No mechanism of this package charges it;
    ledgers of version 0.1 contain it for sums through shufflers that only mix.

    Args:
        events: the event, or the events, with outputs that nearly determine the view.
        variation: η, in [0, 1).

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: δ(ε) = δ₁(ε) + (1 + e^ε)·η, where δ₁ is the curve of the events, or the
    smallest such value at any smaller ε. η is charged once for any number of units, because both
    views are within η of their ideals. The η of several views add up: put them into one event, with
    all events of their ideals. Source: docs/theory, "Close to an ideal".

    >>> from dpgrain.accounting import Gaussian
    >>> Gaussian(4.0).delta(1.0) < 3.1e-6
    True
    >>> round(StatisticallyClose(Gaussian(4.0), 1e-6).delta(1.0) - Gaussian(4.0).delta(1.0), 9)
    3.718e-06
    """

    events: Event | tuple[Event, ...]
    variation: float

    def __post_init__(self) -> None:
        if isinstance(self.events, Event):
            object.__setattr__(self, "events", (self.events,))
        # The composed event validates the events.
        Compose(self._ideal)
        _validate.delta(allow_zero=True, variation=self.variation)

    @property
    def _ideal(self) -> tuple[Event, ...]:
        return (self.events,) if isinstance(self.events, Event) else self.events

    @property
    def ideal(self) -> Event:
        """The event of the view if it were computed exactly from the outputs."""
        return self._ideal[0] if len(self._ideal) == 1 else Compose(self._ideal)

    @property
    def level(self) -> Level:
        return self.ideal.level

    def cost(self, neighbours: Neighbours) -> Loss:
        # η is charged even if the events cost nothing, because equal sums may have different views.
        ideal = self.ideal.cost(neighbours)
        return (
            ideal
            if self.variation == 0
            else _approximate_loss(ideal, max(self.variation, _LEAST_VARIATION))
        )


@lru_cache(maxsize=256)
def _approximate_loss(ideal: Loss, variation: float) -> Loss:
    """Return the loss with the smallest δ₁(x) + (1 + e^x)·η over x ≤ ε."""
    # The minimum over all ε becomes delta mass, and the rest a curve: composed with other parts,
    # the two are at least the whole curve, and have finite moments.

    def charged(epsilon: float) -> float:
        return _charged_delta(ideal, variation, epsilon)

    # The sum is convex in e^x wherever δ₁ is. Beyond the last grid point its second term exceeds
    # the whole sum at 0.
    grid = [math.log1p(1 / variation) * i / _GRID_POINTS for i in range(_GRID_POINTS + 1)]
    best = min(range(_GRID_POINTS + 1), key=lambda i: charged(grid[i]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, _GRID_POINTS)]
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(_GOLDEN_STEPS):
        one, two = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, two) if charged(one) <= charged(two) else (one, high)
    last = min((low, high, grid[best]), key=charged)
    floor = charged(last)
    return Loss(
        leak=floor, pairs=((CurvePair(_ApproximateCurve(ideal, variation, last, floor)), 1),)
    )


def _charged_delta(ideal: Loss, variation: float, epsilon: float) -> float:
    """Return δ₁(ε) + (1 + e^ε)·η, or 1 if that is smaller."""
    # At ε ≥ 690 even the smallest variation makes the sum exceed 1.
    paid = (1 + math.exp(min(epsilon, 700.0))) * variation * (1 + _RELATIVE_ROUNDING)
    return min(ideal.delta(epsilon) + paid, 1.0)


@dataclass(frozen=True)
class _ApproximateCurve:
    """The part of δ₁(ε) + (1 + e^ε)·η above its minimum ``floor`` at ε = ``last``."""

    ideal: Loss
    variation: float
    last: float
    floor: float

    def delta(self, epsilon: float) -> float:
        if epsilon >= self.last:
            return 0.0
        return max(_charged_delta(self.ideal, self.variation, epsilon) - self.floor, 0.0)

    def epsilon(self, delta: float) -> float:
        return inverse(self, delta)

    def bounds(self, delta: float) -> tuple[float, float]:
        high, low = self.epsilon(delta), 0.0
        for _ in range(_BOUND_STEPS):
            rest = delta + self.floor - (1 + math.exp(low)) * self.variation
            if rest <= 0:
                break
            # The result is at least `low`, so the ideal has at most `rest` of δ.
            low = max(low, min(self.ideal.bounds(rest)[0], high))
        return low, high
