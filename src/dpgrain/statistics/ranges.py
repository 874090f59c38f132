"""Ranges of numbers that are found privately, from noisy counts of bins of all magnitudes.

What is computed here is computed from noisy counts, so it is post-processing.
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
from dpgrain.statistics.values import Bins, Spacing, Tree
from dpgrain.tables.split import Split
from dpgrain.units import Law

# --- choosing the range of the numbers ------------------------------------------------------

# Probability, for each bin, that the fullest bin of numbers is false; and that a bin beside it is.
_FALSE_RANGE, _FALSE_NEIGHBOUR = 1e-5, 1e-3
# Numbers of neighbouring bins that are taken together where no bin stands out alone. With each, a false
# one is as improbable as alone, all together.
_TOGETHER = (2, 3, 4)
# The 95% quantile of the normal law, in standard deviations.
_MOSTLY = 1.6448536269514722
# Standard errors from which on counts clearly fall, and up to which a count is likely.
_CLEARLY, _LIKELY = 3.0, 2.0
# Count that stands for none where a logarithm is taken.
_NOTHING = 1e-100
# Magnitudes between which numbers are looked for, at most.
_LEAST, _LARGEST = 1e-150, 1e150
# Believed leaves from which on finer ones would say little.
_MANY_LEAVES = 24


@dataclass(frozen=True)
class AutoRange:
    """Find bounds for the numbers from a noisy histogram of their magnitudes.

    Args:
        smallest: magnitudes below it are taken for 0, public.
        largest: the largest magnitude of interest, public.
        tail: the share of the mass that may lie outside, on each side.
        signed: whether numbers below 0 are looked for; what :func:`dpgrain.UserTable.per_user` counts
            has none.

    Raises:
        ParameterError: if a number is not positive, the magnitudes are out of range or in the wrong
            order, or the tail is a half or more.

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
        """The largest norm of what one record adds to the counts of bins, by norm."""
        return {"l2": 1.0, "l1": 1.0}

    @property
    def share(self) -> float:
        """The share of the budget by which the range is found."""
        return 0.15

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
        # The outermost bins have no end: far numbers in them count as the largest magnitude.
        outside[-1] = True
        outside[0] |= self.signed
        most = float(noisy[outside].sum()) + _MOSTLY * sd * math.sqrt(int(outside.sum()))
        inside = float(noisy[~outside].sum())
        return min(max(most, 0.0) / max(most + inside, sd), 1.0)

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
        tail that falls by 4 from bin to bin or faster, as far numbers often lie where too few are to be
        seen (:func:`_tail`).
        """
        low, high = self.choose(noisy, sd, law)
        if not self.stands_out(noisy, sd, law):
            return low, high
        seen, middle = np.maximum(self.seen(noisy, sd, law), 0.0), self._zero
        above, below = slice(middle + 1, None), slice(middle - 1, None, -1)
        # Bins are a factor of 2 wide, so that numbers of one sign keep a bin at least.
        if high > 0:
            counts = _tail(seen[above], noisy[above], sd)
            high = max(_best_end(counts, self.edges[middle + 1 :], noise), 2 * low)
        if low < 0:
            counts = _tail(seen[below], noisy[below], sd)
            low = -max(_best_end(counts, -self.edges[middle::-1], noise), -2 * high)
        return low, high

    @property
    def _zero(self) -> int:
        """The place of the bin around 0."""
        return self.edges.size // 2 - 1 if self.signed else 0


@dataclass(frozen=True)
class AutoTree(AutoRange):
    """Find where numbers lie from noisy counts of a tree of bins of all magnitudes.

    Args:
        spacing: the spacing of the leaves of the tree, by the type of the column.
        fine: whether the leaves may be what is counted afterwards, too: then the range is all
            magnitudes where numbers lie in so many leaves that finer ones would tell little.

    A leaf is believed to hold numbers where the nodes above it and its own count stand out.
    """

    spacing: Spacing = "geometric"
    fine: bool = True

    @staticmethod
    def like(rule: AutoRange, spacing: Spacing, height: int = 2) -> AutoTree:
        """Return the rule with the magnitudes of another one.

        Args:
            rule: the other one.
            spacing: the spacing of the bins that are counted afterwards.
            height: the number of levels of those bins.
        """
        leaves: Spacing = "geometric" if spacing == "even" else spacing
        # Of all magnitudes a few bins, or bins of one width, tell little.
        fine = spacing != "even" and height > 1
        return AutoTree(rule.smallest, rule.largest, rule.tail, rule.signed, leaves, fine)

    @property
    def record_norm(self) -> Mapping[str, float]:
        """The largest norm of what one record adds to the counts of nodes, by norm."""
        height = self.tree.height
        return {"l2": math.sqrt(height), "l1": float(height)}

    @property
    def share(self) -> float:
        """The share of the budget by which the leaves are found."""
        return 0.3

    @property
    def tree(self) -> Tree:
        """The tree of all magnitudes of interest."""
        low = -self.largest if self.signed else 0.0
        return Tree(low, self.largest, 2, spacing=self.spacing, near=self.smallest)

    def near(self, low: float, high: float) -> float | None:
        """Return the smallest magnitude of interest, where bounds are those of all; else None."""
        every = ((-self.largest, self.largest), (0.0, self.largest))
        return self.smallest if (low, high) in every else None

    def split(self) -> Split:
        """Return the split in which each record counts 1 in each node that holds its number."""
        return self.tree

    def seen(self, noisy: FloatArray, sd: float, law: Law = "gaussian") -> FloatArray:  # noqa: ARG002
        """Return the counts of leaves that are believed to hold numbers, and 0 of others, (bins,).

        Args:
            noisy: (nodes,) the noisy counts.
            sd: the standard deviation of their noise.
            law: the law of their noise; sums of several noises are about normal under any.
        """
        leaves: FloatArray = trees.believed_leaves(noisy[None], self.tree, np.array([sd]))[0]
        return leaves

    def stands_out(self, noisy: FloatArray, sd: float, law: Law = "gaussian") -> bool:
        """Return whether any number is seen; arguments as those of :meth:`seen`.

        A node below the root must stand out clearly, or up to four neighbours must together.
        """
        top = noisy[: self.tree.branching]
        windows = (
            (np.convolve(top, np.ones(size), "valid").max(), size) for size in (1, *_TOGETHER)
        )
        clear = any(
            tail_of(law, total / (sd * math.sqrt(size)), size) <= _FALSE_RANGE
            for total, size in windows
        )
        return clear and bool(self.seen(noisy, sd, law).any())

    def choose(self, noisy: FloatArray, sd: float, law: Law = "gaussian") -> tuple[float, float]:
        """Return the bounds of the leaves in which numbers are seen: post-processing.

        Args:
            noisy: (nodes,) the noisy counts.
            sd: the standard deviation of their noise.
            law: the law of their noise.
        """
        tree, places = self.tree, np.flatnonzero(self.seen(noisy, sd, law))
        if not self.stands_out(noisy, sd, law):
            return tree.low, tree.high
        first, last = int(places[0]), int(places[-1]) + 1
        whole = tree.whole and bool((np.diff(tree.edges[first : last + 1]) <= 1).all())
        if self.fine and (whole or last - first >= _MANY_LEAVES):
            return tree.low, tree.high
        return float(tree.edges[first]), float(tree.edges[last])

    def beyond(self, noisy: FloatArray, sd: float, bounds: tuple[float, float]) -> float:
        """Return the largest share of numbers that may lie outside of bounds, with 95% confidence.

        Args:
            noisy: (nodes,) the noisy counts.
            sd: the standard deviation of their noise.
            bounds: the bounds, which are edges of leaves.
        """
        tree = self.tree
        leaves = trees.consistent_leaves(noisy[None], tree)[0]
        outside = (tree.edges[1:] <= bounds[0]) | (tree.edges[:-1] >= bounds[1])
        # The outermost leaves have no end: far numbers in them count as the largest magnitude.
        outside[-1] = True
        outside[0] |= self.signed
        # Sums of neighbouring leaves are of a few nodes on each side.
        off = _MOSTLY * sd * math.sqrt(4 * tree.height * tree.branching)
        most, inside = float(leaves[outside].sum()) + off, float(leaves[~outside].sum())
        return min(max(most, 0.0) / max(most + inside, sd), 1.0)


def _tail(seen: FloatArray, noisy: FloatArray, sd: float) -> FloatArray:
    """Return counts of bins with a guess beyond the last one that is seen, (B,).

    Args:
        seen: (B,) the counts of bins of increasing magnitude, 0 where none is seen.
        noisy: (B,) the noisy counts.
        sd: the standard deviation of their noise.

    Counts are guessed to fall by 4 from bin to bin, as those of a power law do; by more, and more and
    more, where the last counts clearly do so, as those of lighter tails. No guess is above what the
    bin's own noisy count leaves likely.
    """
    top = int(np.flatnonzero(seen > 0)[-1]) if (seen > 0).any() else 0
    # The last three counts; where one of them is not seen its error hides all falls.
    last = np.maximum(np.concatenate([np.zeros(2), seen])[top : top + 3], _NOTHING)
    logs, off = np.log(last), sd / last
    fall = logs[1] - logs[2] - _CLEARLY * math.hypot(off[1], off[2])
    more = 2 * logs[1] - logs[0] - logs[2] - _CLEARLY * math.hypot(off[0], 2 * off[1], off[2])
    likely = np.maximum(noisy, 0.0) + _LIKELY * sd
    guess, fall = seen.copy(), max(fall, math.log(4))
    for place in range(top + 1, seen.size):
        fall += max(more, 0.0)
        guess[place] = min(guess[place - 1] * math.exp(-fall), likely[place])
    return guess


def _best_end(counts: FloatArray, edges: FloatArray, noise: float) -> float:
    """Return the edge at which what is cut off and the noise add up to the least square.

    Args:
        counts: (B,) the counts of bins of numbers above 0.
        edges: (B + 1,) their edges.
        noise: the standard deviation of the noise, over the edge.
    """
    middles = np.sqrt(edges[:-1]) * np.sqrt(edges[1:])
    cut = np.maximum(middles - edges[1:, None], 0.0) @ counts
    return float(edges[1:][np.argmin(np.hypot(noise * edges[1:], cut))])
