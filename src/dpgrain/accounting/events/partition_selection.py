"""Partition selection: unknown items with a noisy count above a threshold."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.accounting.contribution import Contribution
from dpgrain.accounting.events.base import Event, Neighbours
from dpgrain.accounting.losses.loss import Loss
from dpgrain.accounting.losses.pairs import LARGEST_SHIFT, ResponsePair
from dpgrain.accounting.losses.rounding import or_worst, product_up
from dpgrain.errors import ParameterError
from dpgrain.numerics.special_functions import log_ndtr, ndtr
from dpgrain.units import Level, Relation, Unit, User

# A bound on the relative rounding of a probability, and of the scale of the noise behind it.
_RELATIVE_ROUNDING = 2.0**-36
# Larger numbers than this are grouped into ranges of at most this part of them.
_FINE_PARTS = 1 << 12
# Number of weights between 0 and the largest where the probability of passing is evaluated.
_WEIGHTS = 1 << 9


@dataclass(frozen=True)
class Selection(Event):
    """Items selected because their noisy indicator count passed a threshold.

    Each block gives 1/√t to each of its t ≤ max_items items (l2 norm at most 1). Gaussian noise is
    added to the items of any user, and those at or above the threshold are selected.

    Args:
        noise_multiplier: the noise sd, for blocks of norm at most 1.
        threshold: the noisy count from which an item is selected.
        max_items: the maximum number of items of one block.
        contribution: the effect of one person's blocks on the counts.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: δ(ε) ≤ δ_G(ε; sensitivity/noise_multiplier) + a/(1−a), where a is the
    probability that an item which only the changed units have is selected. Source: docs/theory,
    "Unknown domains".

    >>> Selection(4.0, threshold=25.0, max_items=1).loss().leak < 1e-8
    True
    """

    noise_multiplier: float
    threshold: float
    max_items: int
    contribution: Contribution = field(default_factory=Contribution)

    def __post_init__(self) -> None:
        _validate.positive(noise_multiplier=self.noise_multiplier)
        _validate.positive(threshold=self.threshold)
        _validate.integer(minimum=1, max_items=self.max_items)

    @property
    def level(self) -> Level:
        return self.contribution.block

    def cost(self, neighbours: Neighbours) -> Loss:
        distance = neighbours.move(self.contribution)
        named = self._selection_probability(neighbours)
        leak = named / (1 - named) if named < 1 else 1.0
        return Loss(mu=distance / self.noise_multiplier, leak=min(leak, 1.0))

    def _selection_probability(self, neighbours: Neighbours) -> float:
        """Return the probability of selecting an item that only the changed units have."""
        blocks = _changed_blocks(self.contribution, neighbours)
        if math.isinf(blocks):
            return 1.0
        several_people = neighbours.units > 1 and neighbours.level == "user"
        may_pile_up = self.contribution.layout != "disjoint" or self.contribution.block == "record"
        if blocks > 1 and (may_pile_up or several_people):
            # k blocks may share one item. The worst case is k/√t each on t items, and at most k·t
            # items have a smallest contributor with t items.
            first, last = _range_ends(self.max_items)
            passes = ndtr((blocks / np.sqrt(first) - self.threshold) / self.noise_multiplier)
            return min(blocks * float((last * passes).max()), 1.0)
        single = selection_leak(self.threshold, self.noise_multiplier, self.max_items)
        return -math.expm1(blocks * math.log1p(-single)) if single < 1 else 1.0


@dataclass(frozen=True)
class AdaptiveSelection(Event):
    """Items selected in a second round, with users' weight on undecided items.

    The first round is a :class:`Selection`. Items with a first noisy count at or above the floor
    that it did not select continue. Each user gives a vector of l2 norm at most 1 to some of them;
    it depends only on the user's items and on the first noisy counts. Gaussian noise is added
    again, and items at or above the threshold are selected.

    Args:
        noise_multiplier: the noise sd, for blocks of norm at most 1.
        threshold: the noisy count from which an item is selected.
        first_noise_multiplier: the noise sd of the first round.
        first_threshold: the noisy count from which the first round selected an item.
        floor: the noisy count of the first round from which an item continues.
        max_items: the maximum number of items of one user, in both rounds.
        contribution: the effect of users on the counts.

    Raises:
        ParameterError: if a value is out of range, or a block is not a whole user.

    Formal guarantee: together with the first round, δ(ε) ≤ δ_G(ε; S·√(1/σ₁² + 1/σ₂²)) + a. S is the
    sensitivity of one round. a is the sum of the probabilities of selecting such an item, over the
    sides that may have their own items. This event is charged only what the first one is not.
    Source: docs/theory, "Names in two rounds"; after Chen, Cohen-Addad, Epasto & Zadimoghaddam
    2025.

    >>> first = Selection(8.0, 60.0, 100, Contribution(block="user"))
    >>> second = AdaptiveSelection(5.0, 40.0, 8.0, 60.0, floor=16.0, max_items=100)
    >>> (first + second).loss().leak < 1e-8
    True
    """

    noise_multiplier: float
    threshold: float
    first_noise_multiplier: float
    first_threshold: float
    floor: float
    max_items: int
    contribution: Contribution = field(default_factory=lambda: Contribution(block="user"))

    def __post_init__(self) -> None:
        _validate.positive(noise_multiplier=self.noise_multiplier)
        _validate.positive(threshold=self.threshold)
        _validate.positive(first_noise_multiplier=self.first_noise_multiplier)
        _validate.positive(first_threshold=self.first_threshold)
        _validate.positive(floor=self.floor)
        _validate.integer(minimum=1, max_items=self.max_items)
        if self.contribution.block != "user":
            raise ParameterError(
                f"contribution must have block='user', not {self.contribution.block!r}, because "
                "one block's contribution depends on the user's other blocks.",
                name="contribution",
            )

    @property
    def level(self) -> Level:
        return "user"

    @property
    def first(self) -> Selection:
        """The first round."""
        return Selection(
            self.first_noise_multiplier, self.first_threshold, self.max_items, self.contribution
        )

    @staticmethod
    def one_sided(relation: Relation, unit: Unit) -> bool:
        """Check if only one side of neighbours can have its own items.

        Args:
            relation: the neighbouring relation.
            unit: the unit that changes.
        """
        return unit.level == "user" and relation == "zero_out"

    def cost(self, neighbours: Neighbours) -> Loss:
        distance = neighbours.move(self.contribution)
        leak = self._selection_probability(neighbours) * (1 + _RELATIVE_ROUNDING)
        if not self.one_sided(neighbours.relation, neighbours.unit):
            # Both sides may have their own items; the first event counts one of them.
            changed = (neighbours.units, neighbours.relation, neighbours.unit)
            leak = 2 * leak + self.first.loss(*changed).leak
        return Loss(mu=distance / self.noise_multiplier, leak=min(leak, 1.0))

    def _selection_probability(self, neighbours: Neighbours) -> float:
        """Bound the probability of selecting an item that only the changed users have."""
        if neighbours.level == "user" and neighbours.units > 1:
            # Vectors on the same items have norm at most the number of users.
            several = _PassingBound.of(
                self.threshold, self.noise_multiplier, float(neighbours.units)
            )
            return or_worst(several.most(float(neighbours.units * self.max_items)), 1.0)
        first, last = _range_ends(self.max_items)
        with np.errstate(all="ignore"):
            goes_on = ndtr((1 / np.sqrt(first) - self.floor) / self.first_noise_multiplier)
        # The expectation grows with the number of items that continue, and is concave in it.
        expected = float((last * goes_on).max())
        return or_worst(
            _PassingBound.of(self.threshold, self.noise_multiplier, 1.0).most(expected), 1.0
        )


@dataclass(frozen=True, eq=False)
class _PassingBound:
    """Concave bound, in its square, on the probability that a noisy weight passes."""

    squares: FloatArray  # (n,) squared weights, as shares of the largest
    bounds: FloatArray  # (n,) bounds there

    @staticmethod
    @lru_cache(maxsize=64)
    def of(threshold: float, noise: float, largest: float) -> _PassingBound:
        """Return the bound for weights up to the largest."""
        # Weights to the power 1½ also give a dense grid of squares for small weights.
        weights = np.linspace(0.0, 1.0, _WEIGHTS + 1) ** 1.5
        with np.errstate(all="ignore"):
            passes = ndtr((largest * weights - threshold) / noise)
        # Each weight is treated as the next larger one, which bounds all weights in between.
        squares, upper = weights**2, np.append(passes[1:], passes[-1])
        hull: list[int] = []
        for point in range(squares.size):
            while len(hull) > 1 and _below(squares, upper, hull[-2], hull[-1], point):
                hull.pop()
            hull.append(point)
        return _PassingBound(squares[hull], upper[hull])

    def most(self, items: float) -> float:
        """Bound the expected number of passing items with squared shares of sum ≤ 1."""
        # The bound is concave in the number of items, so it is also valid for an expected number.
        if items <= 1:
            return items * float(self.bounds[-1])
        return items * float(np.interp(1 / items, self.squares, self.bounds))


def _below(x: FloatArray, y: FloatArray, first: int, middle: int, last: int) -> bool:
    """Check if the middle of three points is on or below the line through the others."""
    rise = (y[last] - y[first]) * (x[middle] - x[first])
    return bool((y[middle] - y[first]) * (x[last] - x[first]) <= rise)


def _changed_blocks(contribution: Contribution, neighbours: Neighbours) -> float:
    """Return the number of blocks of one data set that may vanish or appear."""
    own = contribution.block
    bounds = [contribution.max_elements, contribution.cells]
    if own == "element" and neighbours.level == "user":
        bounds.append(neighbours.unit.max_elements if isinstance(neighbours.unit, User) else None)
        finite = [m for m in bounds if m is not None]
        return neighbours.units * min(finite) if finite else math.inf
    if own == "record" and neighbours.level != "record":
        return math.inf
    if own == "user" and neighbours.level != "user":
        # All parts of a person are in one block.
        return 1
    if own == "element" and neighbours.level == "record" and neighbours.relation == "replace":
        # A replaced record moves from one block to another.
        return 2 * neighbours.units
    return neighbours.units


def selection_leak(threshold: float, noise_multiplier: float, max_items: int) -> float:
    """Return the probability of selecting any item of only one block of worst size."""
    threshold = _validate.positive(threshold=threshold)
    noise_multiplier = _validate.positive(noise_multiplier=noise_multiplier)
    max_items = _validate.integer(minimum=1, max_items=max_items)
    first, last = _range_ends(max_items)
    # Each count is smaller when there are more items: the first number of a range bounds its
    # counts, and the last one bounds the number of items.
    with np.errstate(all="ignore"):
        log_none = last * log_ndtr((threshold - 1 / np.sqrt(first)) / noise_multiplier)
    return or_worst(float(-np.expm1(log_none.min())), 1.0)


@lru_cache(maxsize=16)
def _ranges(most: int) -> tuple[tuple[int, int], ...]:
    """Split 1..most into ranges (first, last), first of one number, later coarser."""
    stretches, first = [], 1
    while first <= most:
        last = min(first + first // _FINE_PARTS, most)
        stretches.append((first, last))
        first = last + 1
    return tuple(stretches)


@lru_cache(maxsize=16)
def _range_ends(most: int) -> tuple[FloatArray, FloatArray]:
    """Return the first and the last numbers of all ranges; cached for searches."""
    first, last = np.array(_ranges(most), dtype=np.float64).T
    first.flags.writeable = last.flags.writeable = False
    return first, last


@dataclass(frozen=True)
class TruncatedGeometric(Event):
    """Items published with noisy counts above a cutoff that noise never exceeds.

    Each block adds 1 to the counts of at most ``max_items`` items. The counts of the items of any
    user get noise X in {−cutoff..cutoff}, P(X = x) ∝ e^{−rate·|x|}. Items with a noisy count above
    the cutoff are published with it. An item is published with the largest probability possible for
    any mechanism with the same ε and δ per contributor.

    Args:
        rate: the ε of one count that changes by one.
        cutoff: the largest noise; an item is published if its noisy count is above it.
        max_items: the maximum number of items of one block.
        contribution: the effect of one person's blocks on the counts.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: (rate, P(X = cutoff))-DP for one count that changes by one. Source:
    Desfontaines, Voss, Gipson & Mandayam 2022; docs/theory, "Truncated noise".

    >>> event = TruncatedGeometric(1.0, cutoff=11)
    >>> round(event.epsilon(1e-5), 4), round(event.passes(12), 2)
    (1.0, 0.73)
    """

    rate: float
    cutoff: int
    max_items: int = 1
    contribution: Contribution = field(default_factory=Contribution)

    def __post_init__(self) -> None:
        _validate.positive(rate=self.rate)
        _validate.integer(minimum=1, cutoff=self.cutoff)
        _validate.integer(minimum=1, max_items=self.max_items)

    @property
    def level(self) -> Level:
        return self.contribution.block

    def passes(self, count: int) -> float:
        """Return the probability that an item with this count is published.

        Args:
            count: the number of blocks with the item, at least 0.
        """
        if count <= self.cutoff + 1:
            return self._tail(self.cutoff + 1 - count)
        return 1 - self._tail(count - self.cutoff)

    def _tail(self, value: int) -> float:
        if value > self.cutoff:
            return 0.0
        # The result is (q^v − q^{k+1})/(1 + q − 2q^{k+1}), q = e^{−rate}, without cancellation.
        past = -math.expm1(-self.rate * (self.cutoff + 1 - value))
        below = -math.expm1(-self.rate * (self.cutoff + 1))
        inside = -math.exp(-self.rate) * math.expm1(-self.rate * self.cutoff)
        return math.exp(-self.rate * value) * past / (below + inside)

    def cost(self, neighbours: Neighbours) -> Loss:
        changes = self._changes(neighbours)
        if math.isinf(changes):
            return Loss(pure=math.inf)
        piled = self._max_item_change(neighbours, changes)
        # An item that changes by j costs (j·rate, passes(j)). All items together have a delta mass
        # of at most the largest passes(j)/j for each change, which is attained within the support
        # of X.
        ends = min(piled, 2 * self.cutoff + 1)
        # A larger count passes more often, so the last one of a range bounds them all.
        leak = changes * max(self.passes(last) / first for first, last in _ranges(ends))
        one = Loss(
            pure=product_up(changes, self.rate),
            leak=min(leak * (1 + _RELATIVE_ROUNDING), 1.0),
            rho=changes * piled * self.rate * self.rate / 2,
        )
        if (
            piled > 1
            or changes == 1
            or changes != int(changes)
            or changes > LARGEST_SHIFT / self.rate
        ):
            return one
        # Each count reveals everything with one probability, and is randomised response otherwise.
        mass = -math.expm1(changes * math.log1p(-self.passes(1))) * (1 + _RELATIVE_ROUNDING)
        return one.or_else(
            Loss(leak=min(mass, 1.0), pairs=((ResponsePair(self.rate), int(changes)),))
        )

    def _changes(self, neighbours: Neighbours) -> float:
        """Return the largest total change of the counts of all items."""
        own = self.contribution.block
        one = self.contribution.coordinates == "one"
        items = 1 if one else self.max_items
        # The only property used of a block is that its vector has l1 norm at most max_items.
        blocks = dataclasses.replace(
            self.contribution,
            coordinates="one" if one else "nonnegative",
            norm="l1",
            record_size=math.inf,
        )
        changes = items * neighbours.move(blocks)
        if neighbours.level == "record" and own != "record":
            moves = neighbours.relation == "replace" and own == "element"
            steps = 2 * neighbours.units if moves else neighbours.units
            # A record replaces one of the block's first items by another. The last record of an
            # element also admits another element.
            if self.contribution.max_elements is None:
                changes = min(changes, steps * (1 if one else 2))
            elif own == "element":
                changes = min(changes, steps * (1 + items))
        return changes

    def _max_item_change(self, neighbours: Neighbours, changes: float) -> int:
        """Return the largest change of the count of one item."""
        own = self.contribution.block
        if own == "user" or (own == "element" and self.contribution.layout == "disjoint"):
            # At most one block of a person has a given item.
            piled: float = neighbours.units if neighbours.level == "user" else 1
        else:
            piled = _changed_blocks(self.contribution, neighbours)
        return int(min(piled, changes))
