"""Clipping bounds chosen privately, one per cell, from a noisy histogram of block norms."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpgrain import _validate
from dpgrain._special import ndtri
from dpgrain._types import BoolArray, FloatArray, IntArray
from dpgrain.errors import ParameterError

# Data without any large block open a bin too high with at most this probability.
_FALSE_BIN = 1e-6
# Among the cells found in a bin, this is the expected share of false ones.
_FALSE_SHARE = 0.01
# This many cells are minimised at once.
_CHUNK = 1 << 14


@dataclass(frozen=True)
class AutoClip:
    """Choose a clipping bound per cell from a noisy histogram of block norms.

    Args:
        share: the share of the budget (of μ², or of ε under Laplace noise) that the choice gets; by
            default 10% where there is one bound to choose, 25% where there are several.
        low: the smallest norm of interest, public; 1 for counts.
        high: the largest norm of interest, public.
        ratio: the ratio of neighbouring edges of bins; 4 serves some hundred users, 2 many more.

    Raises:
        ParameterError: if the share is not in (0, 1), or the range is empty or wider than 2^30.

    >>> AutoClip(low=0.01, high=100.0).edges.round(2)
    array([1.0000e-02, 4.0000e-02, 1.6000e-01, 6.4000e-01, 2.5600e+00,
           1.0240e+01, 4.0960e+01, 1.6384e+02])
    """

    share: float | None = None
    low: float = 1.0
    high: float = 2.0**26
    ratio: float = 4.0

    def __post_init__(self) -> None:
        if self.share is not None:
            _validate.fraction(share=self.share)
        low, high = _validate.positive(low=self.low), _validate.positive(high=self.high)
        if not (1e-100 <= low < high <= 1e100 and high <= low * 2.0**30):
            raise ParameterError(
                f"low and high must lie between 1e-100 and 1e100, high above low by at most 2^30 "
                f"times, not {low:g} and {high:g}."
            )
        if not 1 < _validate.positive(ratio=self.ratio) <= high / low:
            raise ParameterError(f"ratio must lie above 1 and within high/low, not {self.ratio!r}.")

    @property
    def edges(self) -> FloatArray:
        """The edges of the bins; the first also takes smaller norms, the last larger ones."""
        steps = math.ceil(math.log(self.high / self.low) / math.log(self.ratio) - 1e-9)
        return np.asarray(self.low * self.ratio ** np.arange(steps + 1.0), dtype=np.float64)

    def share_of(self, *, one_bound: bool) -> float:
        """Return the share of the budget, which is little where there is nothing to tell apart."""
        if self.share is not None:
            return self.share
        return 0.1 if one_bound else 0.25


@dataclass(frozen=True, eq=False)
class ChosenBounds:
    """Clipping bounds that were chosen from noisy counts, and what these tell of clipping.

    Args:
        bounds: (K,) the clipping bound of each cell.
        seen: (K,) True where blocks of the cell stood out from the noise; else the bound is a guess.
        above: the estimated share of blocks that lie above their bound; None where nothing was seen.
        lost: the estimated share of all norms together that clipping takes; it leaves out whatever does
            not stand out from the noise. None where nothing was seen.
    """

    bounds: FloatArray
    seen: BoolArray
    above: float | None = None
    lost: float | None = None

    def at_most(self, high: float) -> ChosenBounds:
        """Return the same with no bound above ``high``."""
        return replace(self, bounds=np.minimum(self.bounds, high))

    def take(self, cells: IntArray) -> ChosenBounds:
        """Return the same for each group, whose cells are ``cells``, (V,)."""
        return replace(self, bounds=self.bounds[cells], seen=self.seen[cells])


def choose_bounds(
    noisy_counts: FloatArray,
    edges: FloatArray,
    count_sd: float,
    coordinates: IntArray,
    noise_multiplier: float,
) -> ChosenBounds:
    """Return the clipping bound of every cell, from noisy counts of block norms: post-processing.

    Args:
        noisy_counts: (cells, bins) noisy numbers of blocks.
        edges: (bins + 1,) a geometric sequence.
        count_sd: the standard deviation of the noise of a count.
        coordinates: (cells,) the number of items in each cell.
        noise_multiplier: noise sd of the sums ÷ clipping bound.

    A cell with blocks of norms x_i in m coordinates, clipped at r, loses at most T(r) = Σ(x_i − r)₊
    and gets noise of energy m(r·noise_multiplier)². F(r) = T(r)² + m(r·noise_multiplier)² is minimised,
    with T estimated from the counts:

    - only bins up to the cell's top one (:func:`_top_bin`) count, negative counts as 0: one
      noisy count in a far bin cannot move the bound, however wide the range;
    - the next bin up counts with what exceeds two standard deviations, at most the top bin's
      count: the tail rarely ends where it stops being visible;
    - a cell where nothing is found gets the lowest edge; but where there is one cell only, the fullest
      bin: a bound too high is seen in the standard error, one too low in nothing.

    T is the maximum of the lines A_j − r·S_j (sum and number of the points from e_j up), so F is
    convex, with its minimiser at max_j min(e_j, A_j S_j/(S_j² + m·noise_multiplier²)).

    >>> chosen = choose_bounds(np.array([[0.0, 900.0, 0.0]]), np.array([1.0, 4, 16, 64]), 4.0,
    ...                        np.array([1]), 4.0)
    >>> chosen.bounds.round(1), chosen.above
    (array([13.5]), 0.25)
    """
    cells, bins = noisy_counts.shape
    bounds = np.full(cells, edges[0])
    top = _top_bin(noisy_counts / count_sd)
    if cells == 1 and top[0] < 0:
        guess = np.asarray(edges[1 + noisy_counts.argmax(axis=1)], dtype=np.float64)
        return ChosenBounds(guess, top >= 0)
    found = np.flatnonzero(top >= 0)
    parts, rising = _points(edges)
    points, index = rising[::-1], np.arange(bins)
    for start in range(0, found.size, _CHUNK):
        rows = found[start : start + _CHUNK]
        counts, last = noisy_counts[rows], top[rows, None]
        kept = np.where(index <= last, np.maximum(counts, 0.0), 0.0)
        most = np.take_along_axis(kept, last, axis=1)
        excess = np.clip(counts - 2 * count_sd, 0.0, most)
        kept = np.where(index == last + 1, excess, kept)
        mass = np.repeat(kept / parts, parts, axis=1)[:, ::-1]
        number, total = np.cumsum(mass, axis=1), np.cumsum(mass * points, axis=1)
        noise = (coordinates[rows] * noise_multiplier**2)[:, None]
        best = total * number / np.maximum(number**2 + noise, np.finfo(np.float64).tiny)
        bounds[rows] = np.minimum(points, best).max(axis=1)
    bounds = np.maximum(bounds, edges[0])
    return ChosenBounds(bounds, top >= 0, *_taken(noisy_counts, edges, bounds, top))


def _points(edges: FloatArray) -> tuple[int, FloatArray]:
    """Return into how many parts a bin is cut, and the points at which its mass is thought to lie.

    The mass of a bin is spread evenly in log scale, over points about √2 apart.
    """
    bins = edges.size - 1
    parts = max(1, round(2 * math.log2(edges[1] / edges[0])))
    middle = (np.arange(bins * parts) + 0.5) / (bins * parts)
    return parts, edges[0] * (edges[-1] / edges[0]) ** middle


def _taken(
    noisy_counts: FloatArray, edges: FloatArray, bounds: FloatArray, top: IntArray
) -> tuple[float | None, float | None]:
    """Return the shares of blocks above their bounds, and of norms that clipping takes, as found.

    Counts up to the top bin of each cell are taken as they are, negative ones included, so that their
    noise averages out over cells. What lies above the top bin, or in cells without one, is left out.
    """
    parts, points = _points(edges)
    blocks = above = norms = lost = 0.0
    for place, point in enumerate(points):
        column = place // parts
        count = np.where(column <= top, noisy_counts[:, column], 0.0)
        over = np.maximum(point - bounds, 0.0)
        blocks, norms = blocks + float(count.sum()), norms + point * float(count.sum())
        above, lost = above + float(count[over > 0].sum()), lost + float(count @ over)
    if blocks <= 0 or norms <= 0:
        return None, None
    return min(max(above / blocks, 0.0), 1.0), min(max(lost / norms, 0.0), 1.0)


def _top_bin(scores: FloatArray) -> IntArray:
    """Return the highest bin of each cell that is believed to hold blocks, (cells,); −1 for none.

    ``scores`` are counts in standard deviations. (1) No bin counts above the highest one that some
    cell passes at the level _FALSE_BIN/(cells·bins). (2) In each bin up to there, the cells
    found are those of Benjamini and Hochberg: the k best, for the largest k whose k-th score is
    significant at the level _FALSE_SHARE·k/cells.
    """
    cells = len(scores)
    top = np.full(cells, -1, dtype=np.int64)
    sure = np.flatnonzero((scores > -ndtri(_FALSE_BIN / max(scores.size, 1))).any(axis=0))
    if sure.size == 0:
        return top
    levels = -ndtri(_FALSE_SHARE * np.arange(1, cells + 1) / cells)
    for b in range(int(sure[-1]) + 1):
        column = scores[:, b]
        ranked = np.sort(column[column >= levels[-1]])[::-1]
        passed = np.flatnonzero(ranked >= levels[: ranked.size])
        if passed.size:
            top[column >= levels[passed[-1]]] = b
    return top
