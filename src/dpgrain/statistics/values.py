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

from dpgrain._types import FloatArray, IndexArray, IntArray
from dpgrain.statistics.bounds import AutoClip
from dpgrain.statistics.intervals import tail_of
from dpgrain.tables.engines.feed import Chunk
from dpgrain.tables.split import Present, Split, Weight
from dpgrain.units import Law

Norm = Literal["l2", "l1"]
#: The treatment of far numbers by a range that is found: a share of them is cut off, or as many as the
#: noise is worth, or next to none.
Far = Literal["cut", "weighed", "kept"]
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
        far: the treatment of far numbers, where the range is found; they are weighed where each unit
            has one number alone, and cut otherwise.
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
class Parts:
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
    """

    low: float
    high: float
    height: int
    branching: int = 16
    unit: float = 1.0
    spacing: Spacing = "even"

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
            near = max(abs(self.low), abs(self.high)) * _NEAR_ZERO
            return _geometric(self.low, self.high, self.bins, near)
        first, last = ends
        places = np.arange(self.bins + 1)
        if last - first < self.bins:
            return np.asarray(first + places, dtype=np.float64)
        wide = np.rint(_geometric(first, last + 1, self.bins, 1.0))
        # Where edges come closer than 1, each leaf holds one whole number instead.
        return np.asarray(np.maximum.accumulate(wide - places) + places)

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
        lambda low, high: Parts(low, high, 2 if signed else 1),
        AutoClip(low=2.0**-10, high=2.0**20),
        {"l2": 1.0, "l1": 1.0},
        net=signed,
        far="weighed",
        stands_for=lambda low, high: Parts(low, high).scale,
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
        far="weighed",
        stands_for=lambda low, high: (high - low) ** degree,
    )


def ranks(height: int, spacing: Spacing = "even") -> Measure:
    """Return the number of records in each of 16^height bins, and in the nodes above."""
    return Measure(
        Tree(0, 1, height).corners,
        lambda low, high: Tree(low, high, height, spacing=spacing),
        AutoClip(),
        {"l2": math.sqrt(height), "l1": float(height)},
        bias=0.5,
        # A rank is the sum of a few nodes.
        noisy=4 * height,
        ratio=True,
        counting=Tree(0, 1, height).branching,
        # Geometric bins are as fine in a range that is wider.
        far="cut" if spacing == "even" else "kept",
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


# --- choosing the range of the numbers ------------------------------------------------------

# Probability, for each bin, that the fullest bin of numbers is false; and that a bin beside it is.
_FALSE_RANGE, _FALSE_NEIGHBOUR = 1e-5, 1e-3
# Numbers of neighbouring bins that are taken together where no bin stands out alone. With each, a false
# one is as improbable as alone, all together.
_TOGETHER = (2, 3, 4)
# The 95% quantile of the normal law, in standard deviations.
_MOSTLY = 1.6448536269514722
# Ratio of the range to what is seen, where a wider range costs nothing.
_WIDER = 2.0


@dataclass(frozen=True)
class AutoRange:
    """Find bounds for the numbers from a noisy histogram of their magnitudes.

    Args:
        smallest: magnitudes below it are taken for 0, public.
        largest: the largest magnitude of interest, public.
        tail: the share of the mass that may lie outside, on each side.
        signed: whether numbers below 0 are looked for; what :func:`dpgrain.UserTable.per_user` counts
            has none.

    Bins are a factor of 2 wide, with either sign, and one around 0. Each unit's bins are scaled to
    l2 norm 1, so nobody counts more for holding more.

    >>> AutoRange(smallest=1.0, largest=4.0).edges.tolist()
    [-4.0, -2.0, -1.0, 1.0, 2.0, 4.0]
    >>> AutoRange(smallest=1.0, largest=4.0, signed=False).edges.tolist()
    [0.0, 1.0, 2.0, 4.0]
    """

    smallest: float = 2.0**-20
    largest: float = 2.0**40
    tail: float = 0.005
    signed: bool = True

    @property
    def edges(self) -> FloatArray:
        """The edges of the bins, (bins + 1,), increasing; 0 lies in the middle bin, or in the first."""
        steps = max(math.ceil(math.log2(self.largest / self.smallest)), 1)
        above = self.smallest * 2.0 ** np.arange(steps + 1.0)
        return np.concatenate([-above[::-1] if self.signed else [0.0], above])

    def split(self) -> Split:
        """Return the split in which each record counts 1 in the bin of its number."""
        inner = tuple(self.edges[1:-1].tolist())
        return Bins(inner, len(inner) + 1)

    def seen(self, noisy: FloatArray, sd: float, law: Law = "gaussian") -> FloatArray:
        """Return the noisy counts of bins that are believed to hold numbers, and 0 of others, (bins,).

        Args:
            noisy: (bins,) the noisy counts.
            sd: the standard deviation of their noise.
            law: the law of their noise.

        The fullest bin of numbers other than 0 must stand out clearly, or up to four neighbours must
        together. A bin of magnitudes 2ʲ times as large must stand out the more, by a level 2⁻ʲ: it
        would widen the range as many times if it were a false one.
        """
        level = tail_of(law, noisy / sd)
        magnitude = np.abs(np.arange(noisy.size) - self._zero)
        fullest = int(np.where(magnitude > 0, noisy, -np.inf).argmax())
        together = np.arange(fullest, fullest + 1)
        if level[fullest] > _FALSE_RANGE:
            together = self._together(noisy, sd, law)
        far = magnitude[together].max(initial=0)
        believed = level <= _FALSE_NEIGHBOUR * 2.0 ** -np.maximum(magnitude - far, 0)
        if not together.size:
            believed &= magnitude == 0
        believed[together] |= noisy[together] > 0
        return np.where(believed, noisy, 0.0)

    def _together(self, noisy: FloatArray, sd: float, law: Law) -> IndexArray:
        """The places of neighbouring bins of one sign that stand out together; none where none do."""
        best, level = np.arange(0), _FALSE_RANGE / len(_TOGETHER)
        sides = (np.arange(self._zero)[::-1], np.arange(self._zero + 1, noisy.size))
        for side in sides:
            for size in _TOGETHER:
                if side.size < size:
                    continue
                sums = np.convolve(noisy[side], np.ones(size), "valid")
                first = int(sums.argmax())
                result = float(tail_of(law, sums[first] / (sd * math.sqrt(size)), size))
                if result <= level:
                    best, level = side[first : first + size], result
        return best

    def stands_out(self, noisy: FloatArray, sd: float, law: Law = "gaussian") -> bool:
        """Return whether any magnitude is seen, besides 0; arguments as those of :meth:`seen`."""
        return bool(np.delete(self.seen(noisy, sd, law), self._zero).any())

    def choose(self, noisy: FloatArray, sd: float, law: Law = "gaussian") -> tuple[float, float]:
        """Return the bounds, from noisy counts of the bins: post-processing.

        Args:
            noisy: (bins,) the noisy counts.
            sd: the standard deviation of their noise.
            law: the law of their noise.

        Where nothing is seen they are the widest: that shows in the standard errors.
        """
        edges = self.edges
        if not self.stands_out(noisy, sd, law):
            return float(edges[0]), float(edges[-1])
        seen = self.seen(noisy, sd, law)
        shares = np.cumsum(seen) / seen.sum()
        low = int(np.searchsorted(shares, self.tail, side="right"))
        high = int(np.searchsorted(shares, 1 - self.tail, side="left"))
        # Numbers in the bin around 0 are taken for 0, unless no other bin is seen.
        below = 0.0 if low == self._zero and high > self._zero else float(edges[low])
        above = 0.0 if high == self._zero and low < self._zero else float(edges[high + 1])
        return below, above

    def beyond(self, noisy: FloatArray, sd: float, bounds: tuple[float, float]) -> float:
        """Return the largest share of numbers that may lie outside of bounds, with 95% confidence.

        Args:
            noisy: (bins,) the noisy counts.
            sd: the standard deviation of their noise.
            bounds: the bounds.

        The noise of all bins outside adds up to about a normal number.
        """
        edges, (low, high) = self.edges, bounds
        # A number below the smallest magnitude is taken for 0.
        outside = (edges[1:] <= low) | (edges[:-1] >= high)
        outside[self._zero] = not low <= 0.0 <= high
        most = float(noisy[outside].sum()) + _MOSTLY * sd * math.sqrt(int(outside.sum()))
        inside = float(noisy[~outside].sum())
        return min(max(most, 0.0) / max(most + inside, sd), 1.0)

    def widened(self, bounds: tuple[float, float]) -> tuple[float, float]:
        """Return bounds twice as far from 0, and half as far where all are of one sign.

        Args:
            bounds: the bounds that were found, beyond which few numbers lie.
        """
        low, high = bounds
        return (
            low / _WIDER if low > 0 else low * _WIDER,
            high / _WIDER if high < 0 else high * _WIDER,
        )

    def weighed(
        self, noisy: FloatArray, sd: float, noise: float, law: Law = "gaussian"
    ) -> tuple[float, float]:
        """Return the bounds at which a sum loses least, from noisy counts of the bins: post-processing.

        Args:
            noisy: (bins,) the noisy counts.
            sd: the standard deviation of their noise.
            noise: the standard deviation of the sum's noise, over the bound.
            law: the law of the noise of counts.

        What a bound takes of the sum is estimated from the bins that are seen, and beyond these from a
        tail that falls by 4 from bin to bin, as far numbers often lie where too few are to be seen.
        """
        low, high = self.choose(noisy, sd, law)
        if not self.stands_out(noisy, sd, law):
            return low, high
        seen, middle = np.maximum(self.seen(noisy, sd, law), 0.0), self._zero
        # Bins are a factor of 2 wide, so that numbers of one sign keep a bin at least.
        if high > 0:
            high = max(_best_end(seen[middle + 1 :], self.edges[middle + 1 :], noise), 2 * low)
        if low < 0:
            below = _best_end(seen[:middle][::-1], -self.edges[: middle + 1][::-1], noise)
            low = -max(below, -2 * high)
        return low, high

    @property
    def _zero(self) -> int:
        """The place of the bin around 0."""
        return self.edges.size // 2 - 1 if self.signed else 0


def _best_end(counts: FloatArray, edges: FloatArray, noise: float) -> float:
    """Return the edge at which what is cut off and the noise add up to the least square.

    Args:
        counts: (B,) the counts of bins of numbers above 0, 0 where none is seen.
        edges: (B + 1,) their edges.
        noise: the standard deviation of the noise, over the edge.
    """
    top = int(np.flatnonzero(counts > 0)[-1]) if (counts > 0).any() else 0
    beyond = np.maximum(np.arange(counts.size) - top, 0)
    whole = np.where(beyond > 0, counts[top] * 4.0**-beyond, counts)
    middles = np.sqrt(edges[:-1] * edges[1:])
    cut = np.maximum(middles - edges[1:, None], 0.0) @ whole
    return float(edges[1:][np.argmin((noise * edges[1:]) ** 2 + cut**2)])
