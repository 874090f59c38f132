"""Numbers as masses: a column of numbers becomes non-negative sums, of which statistics are read.

A number x between public bounds is split between *corners*, non-negative and known to add up, so that
one noisy vector per group answers for counts, sums, means and variances, and another for all ranks.
Proofs: docs/theory, "Numbers as masses".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from dpgrain._types import FloatArray, IntArray
from dpgrain.statistics.bounds import AutoClip
from dpgrain.tables.engines.feed import Chunk
from dpgrain.tables.split import Present, Split, Weight

Norm = Literal["l2", "l1"]
#: The treatment of far numbers by a range that is found: a share of them is cut off, or as many as the
#: noise is worth; or that only where each person has one number, as those rarely lie far from 0.
Far = Literal["cut", "weighed", "weighed of people"]
# Masses are multiples of this, so that 2^23 full records of one user and group add up exactly.
_UNIT = 2.0**-30


@dataclass(frozen=True)
class Measure:
    """The measure of a number, before its range is known.

    Args:
        corners: the number of coordinates of each group.
        split: the function from the range (low, high) to the split.
        clip: the choice of clipping bounds, where they are chosen.
        record_norm: by norm, the largest norm of what one record adds.
        net: whether the second corner is subtracted from the first before noise is added.
        presence: the split that says that a record is there, where groups are selected.
        bias: the rough share of what clipping takes that shows in the result: all of it in sums, but
            little in ratios, where what is left is like what was taken.
        noisy: the rough number of coordinates whose noise shows in the result of one group.
        ratio: whether results are divided by their group's count: then what clipping takes of all
            groups shows in each, and noise the more, the fewer of the records a group has.
        counting: the number of a group's first corners that add up to the count of its records.
        far: the treatment of far numbers, where the range is found.
        stands_for: the function from the range to the number that one in a coordinate stands for, in
            sums; or, in ratios, that noise of one record moves the result by, roughly at the most.
        of_ranks: whether that is a rank, whatever the range is.
    """

    corners: int
    split: Callable[[float, float], Split]
    clip: AutoClip
    record_norm: dict[str, float]
    net: bool = False
    presence: Split = field(default_factory=Present)
    bias: float = 1.0
    noisy: int = 1
    ratio: bool = False
    counting: int = 1
    far: Far = "cut"
    stands_for: Callable[[float, float], float] = lambda *_: 1.0
    of_ranks: bool = False


@dataclass(frozen=True)
class SignParts:
    """The parts of a number above and below 0, in units of the largest magnitude within bounds.

    Args:
        low: the lower bound, as which smaller numbers count.
        high: the upper bound, as which larger numbers count.
        corners: 2 (above 0, below 0); 1 where the bounds leave but one sign.
    """

    low: float
    high: float
    corners: int = 2
    unit: float = _UNIT

    @property
    def scale(self) -> float:
        """The magnitude of the number that counts 1."""
        return max(abs(self.low), abs(self.high))

    def __call__(self, keys: IntArray, values: FloatArray | None) -> Chunk:
        """Return (keys, totals), as :class:`~dpgrain.tables.split.Split` describes them."""
        x = _bounded(values, self.low, self.high) / self.scale
        totals = np.floor(np.abs(x) / self.unit)
        return (keys if self.corners == 1 else keys + (x < 0)), totals


@dataclass(frozen=True)
class Powers:
    """Bernstein's corners: C(d, j) uʲ(1−u)^(d−j) for j = 0..d, u the number's place within bounds.

    They are non-negative and add up to 1, so their sum is the number of records, and every moment
    up to the degree is linear in them.

    Args:
        low: the lower bound, as which smaller numbers count.
        high: the upper bound, as which larger numbers count.
        degree: 1 for means, 2 for variances.
    """

    low: float
    high: float
    degree: int
    unit: float = _UNIT

    @property
    def corners(self) -> int:
        """One more than the degree."""
        return self.degree + 1

    def of(self, x: float) -> FloatArray:
        """Return what a number adds to each corner, (corners,), as the function that it is of u."""
        u = (min(max(x, self.low), self.high) - self.low) / (self.high - self.low)
        return np.array(
            [
                math.comb(self.degree, j) * u**j * (1 - u) ** (self.degree - j)
                for j in range(self.corners)
            ]
        )

    def __call__(self, keys: IntArray, values: FloatArray | None) -> Chunk:
        """Return (keys, totals), as :class:`~dpgrain.tables.split.Split` describes them."""
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
        # The corners are whole units, so that they add up to 1 exactly and no norm exceeds 1.
        totals[:, 0] = np.maximum(1 / self.unit - totals[:, 1:].sum(axis=1), 0.0)
        return (keys[:, None] + np.arange(self.corners)).ravel(), totals.ravel()


#: Number of steps in the range of each of two numbers that stand in one column, of 2^52 in all.
PAIRED = 2**26 - 1


@dataclass(frozen=True)
class PairMoments:
    """The products of :class:`Powers` of degree 2 of two numbers, which one number holds.

    The number is (2^26)·i + j, for the places i and j of both in their ranges, from 0 to 2^26 − 1.
    """

    unit: float = _UNIT
    corners: int = 9

    @staticmethod
    def places() -> tuple[FloatArray, FloatArray]:
        """Return what each corner counts in the sum of the first numbers, and of the second, (9,)."""
        places = np.array([0.0, 0.5, 1.0])
        return np.repeat(places, 3), np.tile(places, 3)

    @staticmethod
    def squares() -> tuple[FloatArray, FloatArray]:
        """Return what each corner counts in the sum of both numbers' squares, (9,)."""
        last = np.array([0.0, 0.0, 1.0])
        return np.repeat(last, 3), np.tile(last, 3)

    def __call__(self, keys: IntArray, values: FloatArray | None) -> Chunk:
        """Return (keys, totals), as :class:`~dpgrain.tables.split.Split` describes them."""
        assert values is not None  # noqa: S101 - the engine brings numbers wherever there is a split
        held = values.astype(np.int64)
        x, y = (np.clip(part, 0, PAIRED) / PAIRED for part in np.divmod(held, PAIRED + 1))
        first, second = (np.stack([(1 - u) ** 2, 2 * u * (1 - u), u**2], axis=1) for u in (x, y))
        shares = (first[:, :, None] * second[:, None, :]).reshape(-1, self.corners)
        totals = np.floor(shares / self.unit)
        # The corners are whole units, so that they add up to 1 exactly and no norm exceeds 1.
        totals[:, 0] = np.maximum(1 / self.unit - totals[:, 1:].sum(axis=1), 0.0)
        return (keys[:, None] + np.arange(self.corners)).ravel(), totals.ravel()


#: The spacing of edges: as many to each unit, as many to each factor away from 0, or at whole numbers.
Spacing = Literal["even", "geometric", "whole"]
# Between 0 and this share of the largest magnitude, geometric edges are about even.
_NEAR_ZERO = 2.0**-12
# Whole numbers up to here are exact.
_LARGEST_WHOLE = 2.0**53


@dataclass(frozen=True)
class Tree:
    """A tree of bins: a record counts 1 in its bin and in each node above it, but the root.

    Args:
        low: the lower bound, as which smaller numbers count.
        high: the upper bound, as which larger numbers count.
        height: the number of levels of nodes below the root.
        branching: the number of children of each node.
        spacing: the spacing of the edges of the leaves. Whole numbers have a leaf each where there are
            enough; the leaves of larger ones then hold several, the more the larger they are.
        near: the magnitude below which geometric leaves are about even; a share of the largest without
            it. A tree that states it holds all magnitudes of interest, most of them in empty leaves.
    """

    low: float
    high: float
    height: int
    branching: int = 16
    unit: float = 1.0
    spacing: Spacing = "even"
    near: float | None = None

    @property
    def corners(self) -> int:
        """The number of nodes but the root."""
        return sum(self.branching**level for level in range(1, self.height + 1))

    @property
    def bins(self) -> int:
        """The number of leaves."""
        return int(self.branching**self.height)

    @property
    def whole(self) -> bool:
        """True where leaves hold whole numbers: so they are spaced, and there are some in bounds."""
        return self.spacing == "whole" and _wholes(self.low, self.high) is not None

    @cached_property
    def edges(self) -> FloatArray:
        """The edges of the leaves, (bins + 1,): a leaf holds its lower edge and not its upper one."""
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
        # Where edges come closer than 1, each leaf holds one whole number instead.
        return np.asarray(np.maximum.accumulate(wide - places) + places)

    @property
    def last(self) -> float:
        """The largest number of the last leaf."""
        return float(self.ends(np.zeros(1), np.array([float(self.bins)]))[1][0])

    def leaf(self, x: FloatArray) -> IntArray:
        """Return the leaf that each number lies in, of the same shape."""
        x = np.clip(x, self.low, self.high)
        if self.spacing == "even":
            u = (x - self.low) / (self.high - self.low)
            return np.minimum((u * self.bins).astype(np.int64), self.bins - 1)
        result = np.searchsorted(self.edges, x, side="right") - 1
        return np.clip(result, 0, self.bins - 1).astype(np.int64)

    def at(self, place: FloatArray) -> FloatArray:
        """Return the number at a place among the edges, such as 2.5 for the middle of the third leaf.

        Of leaves of whole numbers it is one of these; at an edge, one of the leaf before it.
        """
        if not self.whole:
            return np.interp(np.round(place, 6), np.arange(self.bins + 1), self.edges)
        leaf = np.clip(np.ceil(place) - 1, 0, self.bins - 1).astype(np.int64)
        first, size = self.edges[leaf], np.diff(self.edges)[leaf]
        within = np.floor(np.clip(place - leaf, 0.0, 1.0) * size)
        return np.asarray(np.minimum(first + np.minimum(within, size - 1), math.floor(self.high)))

    def ends(self, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest number of the leaves between two places among the edges."""
        first = np.floor(low + 1e-9).astype(np.int64)
        last = np.ceil(high - 1e-9).astype(np.int64)
        below, above = self.edges[np.minimum(first, self.bins)], self.edges[np.maximum(last, 0)]
        if not self.whole:
            return below, above
        top = math.floor(self.high)
        return np.minimum(below, top), np.clip(above - 1, below, np.maximum(below, top))

    def __call__(self, keys: IntArray, values: FloatArray | None) -> Chunk:
        """Return (keys, totals), as :class:`~dpgrain.tables.split.Split` describes them."""
        leaf = self.leaf(_bounded(values, self.low, self.high))
        before, nodes = 0, []
        for level in range(1, self.height + 1):
            nodes.append(keys + before + leaf // self.branching ** (self.height - level))
            before += self.branching**level
        return np.stack(nodes, axis=1).ravel(), None


def _wholes(low: float, high: float) -> tuple[int, int] | None:
    """Return the least and the largest whole number within bounds; None without exact ones."""
    if max(abs(low), abs(high)) > _LARGEST_WHOLE or math.ceil(low) > math.floor(high):
        return None
    return math.ceil(low), math.floor(high)


def _geometric(low: float, high: float, bins: int, near: float) -> FloatArray:
    """Return edges at about one factor, and about even where they are nearer to 0, (bins + 1,)."""
    if low > 0 or high < 0:
        near = min(near, abs(low), abs(high))
    edges = near * np.sinh(np.linspace(math.asinh(low / near), math.asinh(high / near), bins + 1))
    edges[[0, -1]] = low, high
    return np.asarray(edges)


@dataclass(frozen=True)
class Bins:
    """Bins of numbers, of which a record counts 1 in its own.

    Args:
        edges: increasing; a bin holds its upper edge and not its lower one, and the first and the last
            bin have no end.
        corners: the number of bins that are counted; those beyond what the edges make stay empty.
    """

    edges: tuple[float, ...]
    corners: int
    unit: float = 1.0

    def of(self, values: FloatArray) -> IntArray:
        """Return the bin that each number lies in, of the same shape."""
        return np.searchsorted(np.array(self.edges), values).astype(np.int64)

    def __call__(self, keys: IntArray, values: FloatArray | None) -> Chunk:
        """Return (keys, totals), as :class:`~dpgrain.tables.split.Split` describes them."""
        assert values is not None  # noqa: S101 - the engine brings numbers wherever there is a split
        return keys + self.of(values), None


def _bounded(values: FloatArray | None, low: float, high: float) -> FloatArray:
    assert values is not None  # noqa: S101 - the engine brings numbers wherever there is a split
    return np.asarray(np.clip(values, low, high), dtype=np.float64)


def weights(unit: float) -> Measure:
    """Non-negative weights of any size, truncated to multiples of ``unit``."""
    return Measure(1, lambda *_: Weight(unit), AutoClip(), {}, presence=Weight(1.0))


def count() -> Measure:
    """The number of records with a finite number."""
    return Measure(1, lambda *_: Present(), AutoClip(), {"l2": 1.0, "l1": 1.0})


def total(low: float | None, high: float | None) -> Measure:
    """Return the sum of numbers, for bounds that may not be known yet."""
    signed = low is None or high is None or low < 0 < high
    return Measure(
        2 if signed else 1,
        lambda low, high: SignParts(low, high, 2 if signed else 1),
        AutoClip(low=2.0**-10, high=2.0**20),
        {"l2": 1.0, "l1": 1.0},
        net=signed,
        far="weighed",
        stands_for=lambda low, high: SignParts(low, high).scale,
    )


def moments(degree: int) -> Measure:
    """Return the number of records and their moments up to a degree."""
    return Measure(
        degree + 1,
        lambda low, high: Powers(low, high, degree),
        AutoClip(low=0.5),
        {"l2": 1.0, "l1": 1.0},
        bias=0.05,
        noisy=degree,
        ratio=True,
        counting=degree + 1,
        # The noise of a square grows with the square of the range, and a wide one costs too much.
        far="weighed" if degree == 1 else "weighed of people",
        stands_for=lambda low, high: (high - low) ** degree,
    )


def second_moments(unit: float) -> Measure:
    """Return the number of records, and all moments of two numbers up to the second.

    Args:
        unit: the covariance that is 1 where both ranges have width 1.
    """
    pairs = PairMoments()
    return Measure(
        pairs.corners,
        lambda *_: pairs,
        AutoClip(low=0.5),
        {"l2": 1.0, "l1": 1.0},
        bias=0.05,
        noisy=2,
        ratio=True,
        counting=pairs.corners,
        stands_for=lambda *_: unit,
    )


def ranks(
    height: int,
    spacing: Spacing = "even",
    near: Callable[[float, float], float | None] = lambda *_: None,
) -> Measure:
    """Return the number of records in each of 16^height bins, and in the nodes above.

    Args:
        height: the number of levels of bins.
        spacing: the spacing of the finest ones.
        near: the function from the range to the magnitude below which geometric bins are about even.
    """
    return Measure(
        Tree(0, 1, height).corners,
        lambda low, high: Tree(low, high, height, spacing=spacing, near=near(low, high)),
        AutoClip(),
        {"l2": math.sqrt(height), "l1": float(height)},
        bias=0.5,
        # A rank is the sum of a few nodes.
        noisy=4 * height,
        ratio=True,
        counting=Tree(0, 1, height).branching,
        # The noise of several nodes adds up in a rank.
        stands_for=lambda *_: math.sqrt(4 * height),
        of_ranks=True,
    )


def binned(corners: int, edges: Callable[[float, float], tuple[float, ...]]) -> Measure:
    """Return the number of records in each of several bins.

    Args:
        corners: the number of bins that there are at most.
        edges: the function from the range (low, high) to the edges of the bins.
    """
    return Measure(
        corners,
        lambda low, high: Bins(edges(low, high), corners),
        AutoClip(),
        {"l2": 1.0, "l1": 1.0},
        bias=0.5,
        noisy=corners // 2,
        ratio=True,
        counting=corners,
    )
