"""What was published is only nearly the output of something whose cost is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from dpgrain import _validate
from dpgrain.accounting.events.base import Asked, Compose, Event
from dpgrain.accounting.losses.curves import inverse
from dpgrain.accounting.losses.loss import Loss
from dpgrain.accounting.losses.pairs import FromCurve
from dpgrain.units import Level

# What rounding may amount to, relative.
_ROUNDING = 2.0**-40
# A smaller η is as good as this one, whose inverse is a number.
_LEAST = 1e-300
# Where the smallest value of a curve is looked for at first, and the steps of two searches.
_POINTS, _STEPS, _LOOKS = 40, 60, 6


@dataclass(frozen=True)
class StatisticallyClose(Event):
    """A view that is, but for a small statistical distance, made from the output of other events.

    On every table the law of the view lies within total variation η of that of something computed from
    the outputs of the events alone: shares that hide all but their sum, or noise from a table. One η
    covers everything that is told, all coordinates and rounds together.

    Args:
        events: the event, or the events, whose outputs the view is nearly made of.
        variation: η, in [0, 1).

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: δ(ε) = δ₁(ε) + (1 + e^ε)·η, δ₁ being the curve of the events, and the smallest
    such value of any smaller ε. η is paid once however many units are asked about: both views lie
    within η of their ideals. The η of several views add up: put them into one event, with all that
    their ideals are made of. Source: docs/theory.md, "Sums through a blind shuffler".

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
        # The same checks.
        Compose(self._ideal)
        _validate.delta(allow_zero=True, variation=self.variation)

    @property
    def _ideal(self) -> tuple[Event, ...]:
        return (self.events,) if isinstance(self.events, Event) else self.events

    @property
    def ideal(self) -> Event:
        """What the view would be without the distance."""
        return self._ideal[0] if len(self._ideal) == 1 else Compose(self._ideal)

    @property
    def level(self) -> Level:
        return self.ideal.level

    def cost(self, asked: Asked) -> Loss:
        # Also where the events cost nothing: equal sums may have views that differ.
        ideal = self.ideal.cost(asked)
        return ideal if self.variation == 0 else _near(ideal, max(self.variation, _LEAST))


@lru_cache(maxsize=256)
def _near(ideal: Loss, variation: float) -> Loss:
    """The loss with min over x ≤ ε of δ₁(x) + (1 + e^x)·η.

    The smallest value is given away, and what the curve is above it is a curve of its own: beside
    other parts that counts no less than the whole curve, and has finite moments.
    """

    def charged(epsilon: float) -> float:
        return _charged(ideal, variation, epsilon)

    # Convex in e^x where δ₁ is. Beyond the last point the second part alone is more than both at 0.
    grid = [math.log1p(1 / variation) * i / _POINTS for i in range(_POINTS + 1)]
    best = min(range(_POINTS + 1), key=lambda i: charged(grid[i]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, _POINTS)]
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(_STEPS):
        one, two = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, two) if charged(one) <= charged(two) else (one, high)
    last = min((low, high, grid[best]), key=charged)
    floor = charged(last)
    return Loss(leak=floor, pairs=((FromCurve(_Near(ideal, variation, last, floor)), 1),))


def _charged(ideal: Loss, variation: float, epsilon: float) -> float:
    """δ₁(ε) + (1 + e^ε)·η, at most 1."""
    # From e^690 on even the least variation pays for everything.
    paid = (1 + math.exp(min(epsilon, 700.0))) * variation * (1 + _ROUNDING)
    return min(ideal.delta(epsilon) + paid, 1.0)


@dataclass(frozen=True)
class _Near:
    """What δ₁(ε) + (1 + e^ε)·η is above its smallest value, up to the ε of that value.

    Args:
        ideal: the loss with the curve δ₁.
        variation: η, above 0.
        last: the ε with the smallest value.
        floor: the smallest value.
    """

    ideal: Loss
    variation: float
    last: float
    floor: float

    def delta(self, epsilon: float) -> float:
        """δ at ε, besides the smallest value."""
        if epsilon >= self.last:
            return 0.0
        return max(_charged(self.ideal, self.variation, epsilon) - self.floor, 0.0)

    def epsilon(self, delta: float) -> float:
        """The smallest ε at δ, rounded up."""
        return inverse(self, delta)

    def bounds(self, delta: float) -> tuple[float, float]:
        """That ε, and one below it, by the bounds of the ideal."""
        high, low = self.epsilon(delta), 0.0
        for _ in range(_LOOKS):
            rest = delta + self.floor - (1 + math.exp(low)) * self.variation
            if rest <= 0:
                break
            # The answer is at least `low`, so that at most `rest` is left to the ideal.
            low = max(low, min(self.ideal.bounds(rest)[0], high))
        return low, high
