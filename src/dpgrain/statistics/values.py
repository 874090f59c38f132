"""Numbers as masses: non-negative sums of a numeric column, from which statistics are computed.

A number x between public bounds is split between *corners*, which are non-negative and add up to a
known total. One noisy vector per group then yields counts, sums, means and variances, and another
one all quantiles. Proofs: docs/theory, "Numbers as masses".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from dpgrain._types import FloatArray, IntArray
from dpgrain.statistics.bounds import AutoClip
from dpgrain.tables.engines.feed import Chunk
from dpgrain.tables.split import Present, Split, Weight

if TYPE_CHECKING:
    from dpgrain.statistics.ranges import AutoTree

Norm = Literal["l2", "l1"]
# Change of a mean, or root of the change of a variance, in standard deviations of the numbers, if all
# people have equal weight: rough, and large enough that intervals of 95% contain the mean of all
# records in 90% of releases (benchmarks/found_bounds.py).
_BIAS_PER_SPREAD = 0.4
# Change of a mean in stated bounds, in ranges; a variance changes by half of it.
_USUAL_BIAS = 0.1
# Unit of masses; 2^23 full records of one user and group add up exactly.
_UNIT = 2.0**-30


@dataclass(frozen=True)
class Measure:
    """Measure of a record before its number's range is known; by default it counts 1."""

    corners: int = 1  # coordinates of each group
    clip: AutoClip = AutoClip()  # rule for clipping bounds chosen privately
    ones: int | None = 1  # coordinates to which a record adds at most 1; None if it may add more
    net: bool = False  # subtract the second corner from the first before noise is added
    presence: Split = Present()  # counts records with a number, for the selection of groups
    bias: float = 1.0  # rough fraction of the clipped part that affects the result
    noisy: int = 1  # rough number of coordinates that add noise to one result
    ratio: bool = False  # divided by the group's count
    counting: int = 1  # first corners that add up to the count of records
    power: int | None = None  # of the added numbers, for a private range; None: fixed share
    of_ranks: bool = False  # the noise of one record changes a rank, for any range
    pair: tuple[str | float, ...] = ()  # two columns with their public ranges

    def split(self, low: float, high: float) -> Split:
        """Return the split of numbers in a range."""
        return Present()

    def unit_value(self, low: float, high: float) -> float:
        """Return the number for 1; for ratios, about one record's largest effect."""
        return 1.0

    def spread_bias(self, spread: float | None) -> float:
        """Return ``bias`` for numbers of a standard deviation, in ranges; None if unknown."""
        return self.bias

    def record_norm(self, norm: Norm) -> float | None:
        """Return the largest norm of one record's contribution; None if unknown."""
        if self.ones is None:
            return None
        return float(self.ones) if norm == "l1" else math.sqrt(self.ones)


@dataclass(frozen=True)
class SignParts:
    """Positive and negative part of a number, in units of the largest magnitude."""

    low: float
    high: float
    corners: int = 2  # 1 if the bounds allow one sign only
    unit: float = _UNIT

    @property
    def scale(self) -> float:
        """Magnitude of a number that counts 1."""
        return max(abs(self.low), abs(self.high))

    def __call__(self, keys: IntArray, values: FloatArray | None) -> Chunk:
        """Return (keys, totals) as :class:`~dpgrain.tables.split.Split` defines them."""
        x = _bounded(values, self.low, self.high) / self.scale
        totals = np.floor(np.abs(x) / self.unit)
        return (keys if self.corners == 1 else keys + (x < 0)), totals


@dataclass(frozen=True)
class Powers:
    """Bernstein corners C(d, j) uʲ(1−u)^(d−j), j = 0..d, of the position u in bounds.

    They are non-negative and add up to 1, so their sum is the number of records, and every moment
    up to the degree is linear in them.
    """

    low: float
    high: float
    degree: int  # 1 for means, 2 for variances
    unit: float = _UNIT

    @property
    def corners(self) -> int:
        """Degree plus one."""
        return self.degree + 1

    def of(self, x: float) -> FloatArray:
        """Return the contribution of a number to each corner, (corners,)."""
        u = (min(max(x, self.low), self.high) - self.low) / (self.high - self.low)
        return np.array(
            [
                math.comb(self.degree, j) * u**j * (1 - u) ** (self.degree - j)
                for j in range(self.corners)
            ]
        )

    def __call__(self, keys: IntArray, values: FloatArray | None) -> Chunk:
        """Return (keys, totals) as :class:`~dpgrain.tables.split.Split` defines them."""
        x = _bounded(values, self.low, self.high)
        u = (x - self.low) / (self.high - self.low)
        totals = np.empty((u.size, self.corners))
        rising, falling = u / self.unit, [np.ones_like(u)]
        for _ in range(self.degree - 1):
            falling.append(falling[-1] * (1 - u))
        for j in range(1, self.corners):
            mass = math.comb(self.degree, j) * rising * falling[self.degree - j]
            np.floor(mass, out=totals[:, j])
            rising = rising * u
        # The corners are multiples of the unit, so they add up to 1 and no norm exceeds 1.
        totals[:, 0] = np.maximum(1 / self.unit - totals[:, 1:].sum(axis=1), 0.0)
        return (keys[:, None] + np.arange(self.corners)).ravel(), totals.ravel()


#: Number of steps in the range of each of two numbers encoded in one column, of 2^52 in total.
PAIRED = 2**26 - 1


@dataclass(frozen=True)
class PairMoments:
    """Products of :class:`Powers` of degree 2 of two numbers, encoded in one number.

    The number is (2^26)·i + j, for the positions i and j of both in their ranges, 0 to 2^26 − 1.
    """

    unit: float = _UNIT
    corners: int = 9

    @staticmethod
    def places() -> tuple[FloatArray, FloatArray]:
        """Return the corners' weights in the sums of the first and second numbers, (9,)."""
        places = np.array([0.0, 0.5, 1.0])
        return np.repeat(places, 3), np.tile(places, 3)

    @staticmethod
    def squares() -> tuple[FloatArray, FloatArray]:
        """Return the weights of the corners in the sums of both numbers' squares, (9,)."""
        last = np.array([0.0, 0.0, 1.0])
        return np.repeat(last, 3), np.tile(last, 3)

    def __call__(self, keys: IntArray, values: FloatArray | None) -> Chunk:
        """Return (keys, totals) as :class:`~dpgrain.tables.split.Split` defines them."""
        assert values is not None  # noqa: S101 - splits receive numbers
        encoded = values.astype(np.int64)
        x, y = (np.clip(part, 0, PAIRED) / PAIRED for part in np.divmod(encoded, PAIRED + 1))
        first, second = (np.stack([(1 - u) ** 2, 2 * u * (1 - u), u**2], axis=1) for u in (x, y))
        shares = (first[:, :, None] * second[:, None, :]).reshape(-1, self.corners)
        totals = np.floor(shares / self.unit)
        # The corners are multiples of the unit, so they add up to 1 and no norm exceeds 1.
        totals[:, 0] = np.maximum(1 / self.unit - totals[:, 1:].sum(axis=1), 0.0)
        return (keys[:, None] + np.arange(self.corners)).ravel(), totals.ravel()


#: Spacing of edges: equal differences, equal ratios away from 0, or integers.
Spacing = Literal["even", "geometric", "whole"]
# Share of the largest magnitude below which geometric edges are about even.
_NEAR_ZERO = 2.0**-12
# Largest exact integer.
_LARGEST_WHOLE = 2.0**53


@dataclass(frozen=True)
class Tree:
    """Tree of bins: a record counts 1 in its bin and in its nodes below the root."""

    low: float
    high: float
    height: int  # levels of nodes below the root
    branching: int = 16
    unit: float = 1.0
    spacing: Spacing = "even"  # integers have one leaf each if there are enough
    near: float | None = None  # magnitude below which geometric leaves are about even

    @property
    def corners(self) -> int:
        """Number of nodes except the root."""
        return sum(self.branching**level for level in range(1, self.height + 1))

    @property
    def bins(self) -> int:
        """Number of leaves."""
        return int(self.branching**self.height)

    @property
    def whole(self) -> bool:
        """True for leaves of integers."""
        return self.spacing == "whole" and _wholes(self.low, self.high) is not None

    @cached_property
    def edges(self) -> FloatArray:
        """Edges of the leaves, (bins + 1,); leaves contain their lower edge."""
        if self.spacing == "even":
            return np.linspace(self.low, self.high, self.bins + 1)
        ends = _wholes(self.low, self.high) if self.whole else None
        if ends is None:
            near = self.near or max(abs(self.low), abs(self.high)) * _NEAR_ZERO
            return _geometric(self.low, self.high, self.bins, near)
        first, last = ends
        places = np.arange(self.bins + 1)
        if last - first < self.bins:
            return np.asarray(first + places, dtype=np.float64)
        wide = np.rint(_geometric(first, last + 1, self.bins, 1.0))
        # If edges are closer than 1, each leaf contains one integer instead.
        return np.asarray(np.maximum.accumulate(wide - places) + places)

    @property
    def last(self) -> float:
        """Largest number of the last leaf."""
        return float(self.ends(np.zeros(1), np.array([float(self.bins)]))[1][0])

    def leaf(self, x: FloatArray) -> IntArray:
        """Return the leaf of each number, with the same shape."""
        x = np.clip(x, self.low, self.high)
        if self.spacing == "even":
            u = (x - self.low) / (self.high - self.low)
            return np.minimum((u * self.bins).astype(np.int64), self.bins - 1)
        result = np.searchsorted(self.edges, x, side="right") - 1
        return np.clip(result, 0, self.bins - 1).astype(np.int64)

    def at(self, place: FloatArray) -> FloatArray:
        """Return the number at a position among the edges; 2.5 is inside the third leaf."""
        if not self.whole:
            return np.interp(np.round(place, 6), np.arange(self.bins + 1), self.edges)
        leaf = np.clip(np.ceil(place) - 1, 0, self.bins - 1).astype(np.int64)
        first, size = self.edges[leaf], np.diff(self.edges)[leaf]
        within = np.floor(np.clip(place - leaf, 0.0, 1.0) * size)
        return np.asarray(np.minimum(first + np.minimum(within, size - 1), math.floor(self.high)))

    def ends(self, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the smallest and largest number of the leaves between two positions."""
        first = np.floor(low + 1e-9).astype(np.int64)
        last = np.ceil(high - 1e-9).astype(np.int64)
        below, above = self.edges[np.minimum(first, self.bins)], self.edges[np.maximum(last, 0)]
        if not self.whole:
            return below, above
        top = math.floor(self.high)
        return np.minimum(below, top), np.clip(above - 1, below, np.maximum(below, top))

    def __call__(self, keys: IntArray, values: FloatArray | None) -> Chunk:
        """Return (keys, totals) as :class:`~dpgrain.tables.split.Split` defines them."""
        leaf = self.leaf(_bounded(values, self.low, self.high))
        before, nodes = 0, []
        for level in range(1, self.height + 1):
            nodes.append(keys + before + leaf // self.branching ** (self.height - level))
            before += self.branching**level
        return np.stack(nodes, axis=1).ravel(), None


def _wholes(low: float, high: float) -> tuple[int, int] | None:
    """Return the smallest and largest integer within bounds; None if not exact."""
    if max(abs(low), abs(high)) > _LARGEST_WHOLE or math.ceil(low) > math.floor(high):
        return None
    return math.ceil(low), math.floor(high)


def _geometric(low: float, high: float, bins: int, near: float) -> FloatArray:
    """Return edges with about equal ratios, and about even near 0, (bins + 1,)."""
    if low > 0 or high < 0:
        near = min(near, abs(low), abs(high))
    edges = near * np.sinh(np.linspace(math.asinh(low / near), math.asinh(high / near), bins + 1))
    edges[[0, -1]] = low, high
    return np.asarray(edges)


@dataclass(frozen=True)
class Bins:
    """Bins of numbers; a record counts 1 in its bin."""

    edges: tuple[float, ...]  # increasing; a bin contains its upper edge, not its lower one
    corners: int  # number of counted bins; bins without edges stay empty
    unit: float = 1.0

    def of(self, values: FloatArray) -> IntArray:
        """Return the bin of each number, with the same shape."""
        return np.searchsorted(np.array(self.edges), values).astype(np.int64)

    def __call__(self, keys: IntArray, values: FloatArray | None) -> Chunk:
        """Return (keys, totals) as :class:`~dpgrain.tables.split.Split` defines them."""
        assert values is not None  # noqa: S101 - splits receive numbers
        return keys + self.of(values), None


@dataclass(frozen=True)
class Outside:
    """A record counts 1 as a number inside of bounds, ends included, or outside."""

    low: float
    high: float
    corners: int = 2
    unit: float = 1.0

    def __call__(self, keys: IntArray, values: FloatArray | None) -> Chunk:
        """Return (keys, totals) as :class:`~dpgrain.tables.split.Split` defines them."""
        assert values is not None  # noqa: S101 - splits receive numbers
        return keys + ((values < self.low) | (values > self.high)), None


#: Integers with their own counts, for a privately chosen range.
INTEGERS: FloatArray = np.arange(-1.0, 65.0)


@dataclass(frozen=True)
class ValueBins:
    """Bins of numbers, the integers from −1 to 64, and narrow bins that divide the bins.

    A record counts 1 in its bin, and ½ as one of these integers, or in its narrow bin.
    """

    bins: Bins
    narrow: Bins
    unit: float = 0.5

    @property
    def corners(self) -> int:
        """Number of bins, integers and narrow bins."""
        return self.bins.corners + INTEGERS.size + self.narrow.corners

    @cached_property
    def _parent(self) -> IntArray:
        """Bin that contains each narrow bin, (narrow bins,)."""
        return self.bins.of(np.array([*self.narrow.edges, math.inf]))

    def __call__(self, keys: IntArray, values: FloatArray | None) -> Chunk:
        """Return (keys, totals) as :class:`~dpgrain.tables.split.Split` defines them."""
        assert values is not None  # noqa: S101 - splits receive numbers
        first, last = INTEGERS[[0, -1]]
        narrow = self.narrow.of(values)
        listed = (values >= first) & (values <= last) & (values == np.rint(values))
        place = np.where(listed, np.where(listed, values, first) - first, INTEGERS.size + narrow)
        found = np.stack([self._parent[narrow], self.bins.corners + place.astype(np.int64)], axis=1)
        totals = np.tile([1 / self.unit, 1.0], values.size)
        return (keys[:, None] + found).ravel(), totals.ravel()


def _bounded(values: FloatArray | None, low: float, high: float) -> FloatArray:
    assert values is not None  # noqa: S101 - splits receive numbers
    return np.asarray(np.clip(values, low, high), dtype=np.float64)


@dataclass(frozen=True)
class Weights(Measure):
    """Non-negative weights, truncated to multiples of ``unit``, a power of two."""

    ones: int | None = None
    presence: Split = Weight(1.0)
    unit: float = 1.0

    def split(self, low: float, high: float) -> Split:
        return Weight(self.unit)


@dataclass(frozen=True)
class Total(Measure):
    """Sum of numbers."""

    clip: AutoClip = AutoClip(low=2.0**-10, high=2.0**20)
    power: int | None = 1

    @staticmethod
    def of(low: float | None, high: float | None) -> Total:
        """Return the measure for bounds that may be unknown."""
        signed = low is None or high is None or low < 0 < high
        return Total(2, net=True) if signed else Total()

    def split(self, low: float, high: float) -> SignParts:
        return SignParts(low, high, self.corners)

    def unit_value(self, low: float, high: float) -> float:
        return self.split(low, high).scale


@dataclass(frozen=True)
class Moments(Measure):
    """Number of records and their moments up to a degree."""

    clip: AutoClip = AutoClip(low=0.5)
    ratio: bool = True

    @classmethod
    def of(cls, degree: int) -> Self:
        """Return the measure for a degree."""
        return cls(degree + 1, noisy=degree, counting=degree + 1, power=degree)

    def split(self, low: float, high: float) -> Split:
        return Powers(low, high, self.corners - 1)

    def spread_bias(self, spread: float | None) -> float:
        degree = self.corners - 1
        return _USUAL_BIAS / degree if spread is None else _BIAS_PER_SPREAD * spread**degree

    def unit_value(self, low: float, high: float) -> float:
        return (high - low) ** (self.corners - 1)


@dataclass(frozen=True)
class SecondMoments(Measure):
    """Number of records and all moments of two numbers up to the second."""

    corners: int = PairMoments.corners
    clip: AutoClip = AutoClip(low=0.5)
    bias: float = 0.05
    noisy: int = 2
    ratio: bool = True
    counting: int = PairMoments.corners
    scale: float = 1.0  # covariance that is 1 for two ranges of width 1

    def split(self, low: float, high: float) -> Split:
        return PairMoments()

    def unit_value(self, low: float, high: float) -> float:
        return self.scale


@dataclass(frozen=True)
class Ranks(Measure):
    """Number of records in 16^height bins, and in the nodes above."""

    ones: int = 1
    bias: float = 0.5
    ratio: bool = True
    of_ranks: bool = True
    spacing: Spacing = "even"
    everything: AutoTree | None = None  # range and magnitude of even bins; None for stated bounds

    @staticmethod
    def of(height: int, spacing: Spacing, everything: AutoTree | None = None) -> Ranks:
        """Return the measure for a number of levels of bins."""
        tree = Tree(0, 1, height)
        # A rank is the sum of a few nodes.
        return Ranks(
            tree.corners,
            ones=height,
            noisy=4 * height,
            counting=tree.branching,
            spacing=spacing,
            everything=everything,
        )

    def split(self, low: float, high: float) -> Split:
        near = None if self.everything is None else self.everything.near(low, high)
        return Tree(low, high, self.ones, spacing=self.spacing, near=near)

    def unit_value(self, low: float, high: float) -> float:
        # A rank contains the noise of several nodes.
        return math.sqrt(self.noisy)
