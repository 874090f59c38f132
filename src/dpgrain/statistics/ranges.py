"""Ranges of numbers chosen privately from noisy counts of bins of all magnitudes.

All functions of this module process noisy counts only (post-processing).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray, IndexArray
from dpgrain.errors import ParameterError
from dpgrain.statistics import trees
from dpgrain.statistics.intervals import tail_of
from dpgrain.statistics.narrow_counts import NARROW, NarrowCounts
from dpgrain.statistics.small_integers import SmallIntegers
from dpgrain.statistics.values import INTEGERS, Bins, Spacing, Tree, ValueBins
from dpgrain.tables.split import Split
from dpgrain.units import Law

# Probability, per bin, that the fullest bin of numbers is false; and that an adjacent bin is.
_FALSE_RANGE, _FALSE_NEIGHBOUR = 1e-5, 1e-3
# Sizes of windows of adjacent bins, if no single bin is significant; their levels share
# _FALSE_RANGE.
_TOGETHER = (2, 3, 4)
# The same for fractions in a column of integers.
_FALSE_FRACTIONS = 1e-4
# 95% quantile of the normal distribution.
_MOSTLY = 1.6448536269514722
# Standard errors for a clear fall of counts, and for a likely count.
_CLEARLY, _LIKELY = 3.0, 2.0
# Smallest fall of counts beyond the fullest bin, and for a tail with a clear curvature.
_FALLING, _CURVED = 1.2, 4.0
# Smallest fall from bin to bin, close to infinite means; and an expected count that hardly occurs.
_SLOWEST, _HARDLY = 2.2, 0.05
# Factor of the likely clamped part in intervals, because the tail is a guess.
_DOUBT = 3.0
# Replacement of zero counts in logarithms.
_NOTHING = 1e-100
# Limits of magnitudes.
_LEAST, _LARGEST = 1e-150, 1e150
# Number of credible leaves from which finer ones would add little.
_MANY_LEAVES = 24


@dataclass(frozen=True)
class Clamped:
    """Likely effect of clamping on a mean or a variance, extrapolated and tripled."""

    below: float
    above: float
    size: float  # mean magnitude of clamped numbers, or their variance
    mean: float

    @staticmethod
    def of(
        values: FloatArray, counts: FloatArray, bounds: tuple[float, float], power: int
    ) -> Clamped:
        """Return the effect of clamping some values, (n,), of likely counts, (n,)."""
        kept, weight = np.clip(values, *bounds), counts / counts.sum()
        mean = float(weight @ kept)
        centre = mean if power > 1 else 0.0
        size = np.abs(kept - centre) ** power
        # Numbers between 0 and the range move a mean as well, towards larger magnitudes.
        moved = np.abs(values - kept) if power == 1 else np.abs(values - centre) ** power - size
        far = weight * moved
        below, above = (float(far[side].sum()) for side in (values < kept, values > kept))
        return Clamped(_DOUBT * below, _DOUBT * above, float(weight @ size), mean)

    @property
    def share(self) -> float:
        """Both parts ÷ size."""
        return (self.below + self.above) / self.size if self.size > 0 else 0.0

    @property
    def side(self) -> float:
        """1 or −1 if numbers mostly have one sign, else 0: sums then do not show magnitudes."""
        return math.copysign(1.0, self.mean) if abs(self.mean) > self.size / 2 else 0.0


@dataclass(frozen=True)
class AutoRange:
    """Choose bounds for the numbers from a noisy histogram of their magnitudes.

    Args:
        smallest: the magnitude below which numbers are treated as 0, public.
        largest: the largest magnitude of interest, public.
        tail: the share of the mass that may be outside, on each side.
        signed: True to include negative numbers; counts by :func:`dpgrain.UserTable.per_user` have
            none.
        integers: True to also count the integers from −1 to 64, which reveal the ends of answers (0
            and 1), stars (1 to 5) and other small integers.

    Raises:
        ParameterError: if a number is not positive, the magnitudes are out of range or in the wrong
            order, or the tail is at least one half.

    Bins have a ratio of 2, for both signs, with one bin around 0. The bins of each unit are scaled
    to l2 norm 1, so each unit has about equal weight. Integers are counted with half of this weight.

    >>> AutoRange(smallest=1.0, largest=4.0).edges.tolist()
    [-4.0, -2.0, -1.0, 1.0, 2.0, 4.0]
    >>> AutoRange(smallest=1.0, largest=4.0, signed=False).edges.tolist()
    [0.0, 1.0, 2.0, 4.0]
    """

    smallest: float = 2.0**-20
    largest: float = 2.0**40
    tail: float = 0.005
    signed: bool = True
    integers: bool = True

    def __post_init__(self) -> None:
        _validate.plain_numbers(self)
        _validate.positive(smallest=self.smallest)
        _validate.positive(largest=self.largest)
        _validate.positive(tail=self.tail)
        if self.smallest < _LEAST or self.largest > _LARGEST:
            raise ParameterError(
                f"smallest and largest must be between {_LEAST:g} and {_LARGEST:g}, not "
                f"{self.smallest:g} and {self.largest:g}.",
                name="largest",
            )
        if not self.smallest < self.largest or self.tail >= 0.5:
            raise ParameterError(
                f"smallest must be below largest, and tail below 0.5, not {self.smallest:g}, "
                f"{self.largest:g} and {self.tail:g}.",
                name="smallest",
            )

    @property
    def record_norm(self) -> Mapping[str, float]:
        """Largest norm of one record's contribution to the counts of bins, by norm."""
        # √(1 + ¼), rounded up.
        return {"l2": 1.125, "l1": 1.5} if self.integers else {"l2": 1.0, "l1": 1.0}

    @property
    def share(self) -> float:
        """Budget share of the range."""
        return 0.15

    @property
    def edges(self) -> FloatArray:
        """Edges of the bins, (bins + 1,), increasing; 0 is in the middle bin, or in the first."""
        steps = max(math.ceil(math.log2(self.largest / self.smallest)), 1)
        above = self.smallest * 2.0 ** np.arange(steps + 1.0)
        return np.concatenate([-above[::-1] if self.signed else [0.0], above])

    @property
    def narrow_edges(self) -> FloatArray:
        """Edges of the narrow bins, 16 of equal width in each bin except that around 0."""
        edges, steps = self.edges, np.arange(NARROW) / NARROW
        inner = edges[:-1, None] + np.diff(edges)[:, None] * steps
        one = np.delete(inner, self._zero, axis=0).ravel()
        return np.sort(np.concatenate([one, edges[[self._zero, -1]]]))

    def split(self) -> Split:
        """Return the split that counts each record in the bin of its number."""
        bins = _bins(self.edges)
        return ValueBins(bins, _bins(self.narrow_edges)) if self.integers else bins

    def parts(
        self, noisy: FloatArray, sd: float, law: Law = "gaussian"
    ) -> tuple[FloatArray, SmallIntegers | None, NarrowCounts | None]:
        """Return the noisy counts of bins; and of integers, if nearly all are, or of narrow bins.

        Args:
            noisy: (corners,) the noisy counts of :meth:`split`.
            sd: the standard deviation of their noise.
            law: the noise distribution.
        """
        size = self.edges.size - 1
        magnitudes, listed, others = np.split(noisy, [size, size + INTEGERS.size])
        if not others.size or not self.is_detectable(magnitudes, sd, law):
            return magnitudes, None, None
        narrow = self._narrow(magnitudes, listed, others, sd, law)
        if self.smallest > 1 or self.largest < INTEGERS[-1]:
            return magnitudes, None, narrow
        integers = self._integers(magnitudes, listed, sd, law)
        return magnitudes, integers, None if integers else narrow

    def _integers(
        self, magnitudes: FloatArray, listed: FloatArray, sd: float, law: Law
    ) -> SmallIntegers | None:
        """Return the noisy counts of integers if no other numbers are visible."""
        # Each record counts one half.
        integers = SmallIntegers(2 * listed * (self.signed | (INTEGERS >= 0)), 2 * sd, law)
        likely, bins = integers.likely > 0, np.zeros(magnitudes.size, dtype=bool)
        bins[_bins(self.edges).of(INTEGERS[likely])] = True
        others = float(magnitudes[bins].sum()) - float(integers.likely.sum())
        deviation = sd * math.sqrt(1 + bins.sum() + 4 * likely.sum())
        seen = self.credible_counts(magnitudes, sd, law)
        small = np.maximum(np.abs(self.edges[:-1]), np.abs(self.edges[1:])) <= 1
        fractions = _least_level(magnitudes[~bins & small], sd, law) <= _FALSE_FRACTIONS
        nearly = integers.are_all(float(seen.sum()), others / deviation)
        return integers if nearly and not fractions and not seen[~bins & ~small].any() else None

    def _narrow(
        self, magnitudes: FloatArray, listed: FloatArray, others: FloatArray, sd: float, law: Law
    ) -> NarrowCounts:
        """Return the noisy counts of narrow bins, with the integers in them."""
        edges = self.narrow_edges
        place = _bins(edges).of(INTEGERS)
        noisy = 2 * (others + np.bincount(place, listed, others.size))
        deviation = 2 * sd * np.sqrt(1 + np.bincount(place, minlength=others.size))
        parent = np.searchsorted(self.edges, edges[:-1], side="right") - 1
        counts = self._likely_counts(magnitudes, sd, law, careful=True)
        visible = self.credible_counts(magnitudes, sd, law) > 0
        return NarrowCounts(edges, noisy, deviation, parent, counts, visible, law)

    def credible_counts(self, noisy: FloatArray, sd: float, law: Law = "gaussian") -> FloatArray:
        """Return the credible noisy counts of bins, and 0 for the others, (bins,).

        Args:
            noisy: (bins,) the noisy counts.
            sd: the standard deviation of their noise.
            law: the noise distribution.

        The fullest bin of non-zero numbers must be significant, or up to four neighbours together.
        A bin of magnitudes larger by 2ʲ must be significant at a level smaller by 2⁻ʲ, because a
        false bin there would widen the range by this factor.
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
        """Return the indices of adjacent, jointly significant bins of one sign, if any."""
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

    def is_detectable(self, noisy: FloatArray, sd: float, law: Law = "gaussian") -> bool:
        """Return True if numbers other than 0 are visible."""
        return bool(np.delete(self.credible_counts(noisy, sd, law), self._zero).any())

    def choose(self, noisy: FloatArray, sd: float, law: Law = "gaussian") -> tuple[float, float]:
        """Return the bounds from noisy counts of the bins: post-processing.

        Args:
            noisy: (bins,) the noisy counts.
            sd: the standard deviation of their noise.
            law: the noise distribution.

        If no numbers are visible, the bounds are the widest, and standard errors are large.
        """
        edges = self.edges
        if not self.is_detectable(noisy, sd, law):
            return float(edges[0]), float(edges[-1])
        seen = self.credible_counts(noisy, sd, law)
        shares = np.cumsum(seen) / seen.sum()
        low = int(np.searchsorted(shares, self.tail, side="right"))
        high = int(np.searchsorted(shares, 1 - self.tail, side="left"))
        # Numbers in the bin around 0 are treated as 0, unless no other bin is credible.
        below = 0.0 if low == self._zero and high > self._zero else float(edges[low])
        above = 0.0 if high == self._zero and low < self._zero else float(edges[high + 1])
        return below, above

    def spread(
        self, noisy: FloatArray, sd: float, bounds: tuple[float, float], law: Law = "gaussian"
    ) -> float | None:
        """Return the standard deviation of visible numbers ÷ width of the bounds, roughly.

        Args:
            noisy: (bins,) the noisy counts.
            sd: the standard deviation of their noise.
            bounds: the bounds, to which the numbers are clamped.
            law: the noise distribution.

        Numbers are uniform in their bin. Those in the bin around 0 are 0.
        """
        counts = np.maximum(self.credible_counts(noisy, sd, law), 0.0)
        first, last = self.edges[:-1].copy(), self.edges[1:].copy()
        first[self._zero] = last[self._zero] = 0.0
        first, last = np.clip(first, *bounds), np.clip(last, *bounds)
        middle, weight = (first + last) / 2, counts / counts.sum()
        mean = float(weight @ middle)
        variance = float(weight @ ((middle - mean) ** 2 + (last - first) ** 2 / 12))
        return math.sqrt(variance) / (bounds[1] - bounds[0])

    def balanced_bounds(
        self, noisy: FloatArray, sd: float, noise: float, law: Law = "gaussian", power: int = 1
    ) -> tuple[float, float]:
        """Return the bounds with the smallest error of a sum: post-processing.

        Args:
            noisy: (bins,) the noisy counts.
            sd: the standard deviation of their noise.
            noise: the standard deviation of the sum's noise ÷ bound^power.
            law: the noise distribution of the counts.
            power: 1 for sums of numbers, 2 for sums of their squares.

        The part of the sum beyond a bound is estimated from visible bins, plus a tail, because
        distant numbers are often too few to be visible (:func:`_tail`).
        """
        low, high = self.choose(noisy, sd, law)
        if not self.is_detectable(noisy, sd, law):
            return low, high
        counts, middle = self._likely_counts(noisy, sd, law), self._zero
        above, below = slice(middle + 1, None), slice(middle - 1, None, -1)
        # Bins have a ratio of 2, so a range of one sign contains at least one bin.
        if high > 0:
            high = max(_best_end(counts[above], self.edges[middle + 1 :], noise, power), 2 * low)
        if low < 0:
            end = _best_end(counts[below], -self.edges[middle::-1], noise, power)
            low = -max(end, -2 * high)
        return low, high

    def clamped(
        self,
        noisy: FloatArray,
        sd: float,
        bounds: tuple[float, float],
        law: Law = "gaussian",
        power: int = 1,
        narrow: NarrowCounts | None = None,
    ) -> Clamped:
        """Return the likely effect of clamping visible numbers and their tail: post-processing.

        Args:
            noisy: (bins,) the noisy counts.
            sd: the standard deviation of their noise.
            bounds: the bounds, to which the numbers are clamped.
            law: the noise distribution.
            power: 1 for means and sums, 2 for variances.
            narrow: counts of narrow bins, to use instead of those of the bins that contain them.

        Numbers are in the middle of their bin, and those in the bin around 0 are 0.
        """
        counts, place = self._likely_counts(noisy, sd, law, careful=True), np.arange(noisy.size)
        # Numbers may be hidden in the bin next to the visible ones, and in the bin around 0, which
        # often stands for missing values.
        visible = self.credible_counts(noisy, sd, law) > 0
        inwards = np.where(place > self._zero, np.roll(visible, -1), np.roll(visible, 1))
        shown = visible | inwards | (place == self._zero)
        counts = np.where(shown & ~visible, np.maximum(noisy, counts), counts)
        first, last = np.abs(self.edges[:-1]), np.abs(self.edges[1:])
        middle = np.sign(self.edges[:-1] + self.edges[1:]) * np.sqrt(first) * np.sqrt(last)
        middle[self._zero] = 0.0
        if narrow is not None and (within := narrow.counts()) is not None:
            # Narrow bins show where a tail ends; those beyond the range are not extrapolated.
            counts = np.where(shown, counts, 0.0)
            counts[narrow.parent] = 0.0
            middle = np.concatenate([middle, narrow.middles])
            counts = np.concatenate([counts, within])
        return Clamped.of(middle, counts, bounds, power)

    def _likely_counts(
        self, noisy: FloatArray, sd: float, law: Law, *, careful: bool = False
    ) -> FloatArray:
        """Return the counts of visible bins, with a guess beyond on both sides, (bins,)."""
        counts, middle = np.maximum(self.credible_counts(noisy, sd, law), 0.0), self._zero
        for side in (slice(middle + 1, None), slice(middle - 1, None, -1) if middle else None):
            if side is not None:
                counts[side] = _tail(counts[side], noisy[side], sd, careful=careful)
        return counts

    @property
    def _zero(self) -> int:
        """Index of the bin around 0."""
        return self.edges.size // 2 - 1 if self.signed else 0


@dataclass(frozen=True)
class AutoTree(AutoRange):
    """Rule that chooses the range from noisy counts of a tree of all magnitudes."""

    spacing: Spacing = "geometric"
    fine: bool = True  # use the widest range if numbers are in many leaves

    @staticmethod
    def like(rule: AutoRange, spacing: Spacing, height: int = 2) -> AutoTree:
        """Return the rule with the magnitudes of another rule."""
        leaves: Spacing = "geometric" if spacing == "even" else spacing
        # For all magnitudes, few bins or bins of equal width are too coarse.
        fine = spacing != "even" and height > 1
        return AutoTree(rule.smallest, rule.largest, rule.tail, rule.signed, False, leaves, fine)

    @property
    def record_norm(self) -> Mapping[str, float]:
        """Largest norm of one record's contribution to the counts of nodes, by norm."""
        height = self.tree.height
        return {"l2": math.sqrt(height), "l1": float(height)}

    @property
    def share(self) -> float:
        """Budget share of the leaves."""
        return 0.3

    @property
    def tree(self) -> Tree:
        """Tree of all magnitudes of interest."""
        low = -self.largest if self.signed else 0.0
        return Tree(low, self.largest, 2, spacing=self.spacing, near=self.smallest)

    def near(self, low: float, high: float) -> float | None:
        """Return the smallest magnitude of interest if the bounds are the widest, else None."""
        every = ((-self.largest, self.largest), (0.0, self.largest))
        return self.smallest if (low, high) in every else None

    def split(self) -> Split:
        """Return the split that counts each record in each node of its number."""
        return self.tree

    def credible_counts(self, noisy: FloatArray, sd: float, law: Law = "gaussian") -> FloatArray:  # noqa: ARG002
        """Return the counts of credible leaves, and 0 for the others, (bins,)."""
        leaves: FloatArray = trees.believed_leaves(noisy[None], self.tree, np.array([sd]))[0]
        return leaves

    def is_detectable(self, noisy: FloatArray, sd: float, law: Law = "gaussian") -> bool:
        """Return True if a node below the root, or up to four neighbours, are significant."""
        top = noisy[: self.tree.branching]
        clear = _least_level(top, sd, law) <= _FALSE_RANGE
        return clear and bool(self.credible_counts(noisy, sd, law).any())

    def choose(self, noisy: FloatArray, sd: float, law: Law = "gaussian") -> tuple[float, float]:
        """Return the bounds of the credible leaves: post-processing."""
        tree, places = self.tree, np.flatnonzero(self.credible_counts(noisy, sd, law))
        if not self.is_detectable(noisy, sd, law):
            return tree.low, tree.high
        first, last = int(places[0]), int(places[-1]) + 1
        whole = tree.whole and bool((np.diff(tree.edges[first : last + 1]) <= 1).all())
        if self.fine and (whole or last - first >= _MANY_LEAVES):
            return tree.low, tree.high
        return float(tree.edges[first]), float(tree.edges[last])

    def parts(
        self,
        noisy: FloatArray,
        sd: float,  # noqa: ARG002
        law: Law = "gaussian",  # noqa: ARG002
    ) -> tuple[FloatArray, None, None]:
        """Return the noisy counts of nodes."""
        return noisy, None, None

    def spread(self, *_: object) -> None:
        """Return None: ranks have no spread."""
        return

    def share_outside(self, noisy: FloatArray, sd: float, bounds: tuple[float, float]) -> float:
        """Return a 95% upper bound on the share of numbers outside of the bounds."""
        tree = self.tree
        leaves = trees.consistent_leaves(noisy[None], tree)[0]
        outside = (tree.edges[1:] <= bounds[0]) | (tree.edges[:-1] >= bounds[1])
        # The outermost leaves are open: distant numbers count as the largest magnitude.
        outside[-1] = True
        outside[0] |= self.signed
        # Sums of adjacent leaves are sums of a few nodes on each side.
        off = _MOSTLY * sd * math.sqrt(4 * tree.height * tree.branching)
        most, inside = float(leaves[outside].sum()) + off, float(leaves[~outside].sum())
        return min(max(most, 0.0) / max(most + inside, sd), 1.0)


def _least_level(noisy: FloatArray, sd: float, law: Law) -> float:
    """Return the smallest probability, under noise only, of one to four adjacent counts."""
    sizes = (size for size in (1, *_TOGETHER) if size <= noisy.size)
    sums = ((np.convolve(noisy, np.ones(size), "valid").max(), size) for size in sizes)
    levels = (float(tail_of(law, most / (sd * math.sqrt(size)), size)) for most, size in sums)
    return min(levels, default=1.0)


def _bins(edges: FloatArray) -> Bins:
    """Return bins with open ends."""
    return Bins(tuple(edges[1:-1].tolist()), edges.size - 1)


def _tail(seen: FloatArray, noisy: FloatArray, sd: float, *, careful: bool = False) -> FloatArray:
    """Return counts of bins with a guess beyond the last visible one, (B,).

    The guess falls by 4 per bin, as for a power law, or faster if the last three counts clearly do;
    more slowly if it is ``careful`` and they clearly do; then bins above the noise that follow
    visible ones are visible as well. Noisy counts limit it.
    """
    top = int(np.flatnonzero(seen > 0)[-1]) if (seen > 0).any() else 0
    if careful and seen[top] > 0:
        seen = seen.copy()
        while top + 1 < seen.size and noisy[top + 1] > _LIKELY * sd:
            top += 1
            seen[top] = noisy[top]
    # Last three counts; an invisible one has an error that hides any fall.
    last = np.maximum(np.concatenate([np.zeros(2), seen])[top : top + 3], _NOTHING)
    logs, off = np.log(last), sd / last
    fall = max(logs[1] - logs[2] - _CLEARLY * math.hypot(off[1], off[2]), math.log(4))
    more = 2 * logs[1] - logs[0] - logs[2] - _CLEARLY * math.hypot(off[0], 2 * off[1], off[2])
    if last[0] < (_CURVED if careful else _FALLING) * last[1]:
        # Counts around the fullest bin are curved for any tail.
        more = 0.0
    slow = (logs[0] - logs[2] + _CLEARLY * math.hypot(off[0], off[2])) / 2
    if careful and last[0] >= _FALLING * last[1] and slow < math.log(4):
        fall = max(slow, math.log(_SLOWEST))
    likely = np.maximum(noisy, 0.0) + _LIKELY * sd
    guess = seen.copy()
    for place in range(top + 1, seen.size):
        before = guess[place - 1]
        fall += max(more, 0.0)
        if before > likely[place] > 0:
            fall = max(fall, math.log(before / likely[place]))
        guess[place] = min(before * math.exp(-fall), likely[place])
        if guess[place] < _HARDLY:
            guess[place] = 0.0
            break
    return guess


def _best_end(counts: FloatArray, edges: FloatArray, noise: float, power: int) -> float:
    """Return the edge with the smallest squared clamped part plus squared noise."""
    middles, ends = (np.sqrt(edges[:-1]) * np.sqrt(edges[1:])) ** power, edges[1:] ** power
    cut = np.maximum(middles - ends[:, None], 0.0) @ counts
    return float(edges[1:][np.argmin(np.hypot(noise * ends, cut))])
