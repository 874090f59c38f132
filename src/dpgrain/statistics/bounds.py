"""Clipping bounds chosen privately, one per cell, from noisy counts of block norms.

With many cells, two private queries count the norms. The first query counts blocks by cell and
coarse norm bin, which gives each cell a *rough* bound. In the second query, cells with similar
rough bounds share one precise row of counts by norm ÷ rough bound, which corrects these bounds.
This is necessary because the best bound leaves only about as many blocks above it as the noise
multiplier of the sums (experiments/statistics.md), too few to be visible in the
counts of one cell.

All functions of this module process noisy counts only (post-processing).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from dpgrain import _validate
from dpgrain._types import BoolArray, FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.statistics.intervals import quantile_of, ratio_interval, tail_of
from dpgrain.units import Law

# Edges of norm ÷ rough bound in the second query; the last bin also takes larger norms.
POOLED_EDGES: FloatArray = 0.25 * 2.0 ** (np.arange(11.0) / 2)
# Maximum number of cells per pool, and minimum number of cells for a pooled query.
POOL_SIZE, POOL_LEAST = 60, 10
# Max blocks of one person in a bin of the pooled query; fewer for users with at most k elements,
# where several blocks in one bin cost more than in separate cells.
POOL_MOST, POOL_MOST_OF_USER = 20, 8
# Maximum share of the pooled query in the budget for bounds, and the limit on its share of the
# total: k elements of one person cost at most √(1 + _POOLED_PRICE) = 1.1 times as much as without
# it.
_POOLED_PART, _POOLED_PRICE = 0.15, 0.21
# Larger with Laplace noise, because small shares of ε buy less precision than shares of μ².
_POOLED_PART_OF_LAPLACE = 0.3
# Budget share for one bound, for fewer than POOL_LEAST, and for more.
_ONE_SHARE, _FEW_SHARE, _MANY_SHARE = 0.15, 0.25, 0.2
# Share of ε for one bound of sums: Laplace noise has a heavier tail, and with 15% it hides norms that
# Gaussian noise of the same guarantee shows (measured for 1,000 and 40,000 users: the largest ratio
# of their errors falls from 3.4 to 1.04, and the mean from .60 to .55).
_ONE_SHARE_OF_LAPLACE = 0.3
# Expected share of false cells among the cells accepted in a bin.
_FALSE_SHARE = 0.01
# Maximum probability that the most frequent bin is false.
_FALSE_BIN = 1e-6
# Variance of a uniform number in a range of length 1.
_ANYWHERE_VARIANCE = 1 / 12
# Maximum ratio spanned by a window of adjacent bins.
_WINDOW_RATIO = 16.0
# Noise factor for rough bounds: noise hides the counts at the best level but not at a lower bound,
# and the second query corrects the difference.
_ROUGH_NOISE = 4.0
# Standard deviations that make a single count credible.
_VISIBLE = 3.0
# Smallest share of the mean cell for similar invisible cells, and the standard errors added to the
# variance between them.
_ALIKE, _SPREAD_MARGIN = 0.5, 2.0
# Maximum factor by which the second query raises a bound of an invisible pool.
_UNSEEN_MOST = 2.0
# Standard deviations of each of two bins beyond the top bins for a heavy tail, and its smallest
# power.
_HEAVY_VISIBLE, _HEAVIEST = 1.5, 1.2
# Standard deviations added to the next count in the tail, for pools and for single cells.
_POOLED_ALLOWANCE, _OWN_ALLOWANCE = 0.5, 0.3
# Probability that any count is below its lower limit.
_MISSED = 0.025
# Cells per chunk.
_CHUNK = 1 << 14
# Standard deviations that make a group's direction credible, and the smallest scale of a group. If
# all scales are at least the last number, groups are not scaled.
_SCALED_VISIBLE, _LEAST_SCALE, _ALIKE_SCALES = 2.0, 2.0**-8, 0.5


@dataclass(frozen=True)
class AutoClip:
    """Choose a clipping bound per cell from noisy histograms of block norms.

    Args:
        share: the share of the budget (of μ², or of ε with Laplace noise) for the choice; by
            default 15% for one bound (30% for sums with Laplace noise, 18% for several sums of
            users with Gaussian noise, and another 6% for their scales), 25% for two to nine, and
            20% for more, which share a second query.
        low: the smallest norm of interest, public; 1 for counts.
        high: the largest norm of interest, public.
        ratio: the ratio of consecutive bin edges; by default 2 for fewer than ten bounds, and 4
            otherwise.

    Raises:
        ParameterError: if the share is not in (0, 1), or the range is empty or wider than 2^30.

    >>> AutoClip(low=0.01, high=100.0).edges(cells=50).round(2)
    array([1.0000e-02, 4.0000e-02, 1.6000e-01, 6.4000e-01, 2.5600e+00,
           1.0240e+01, 4.0960e+01, 1.6384e+02])
    """

    share: float | None = None
    low: float = 1.0
    high: float = 2.0**26
    ratio: float | None = None

    def __post_init__(self) -> None:
        if self.share is not None:
            _validate.fraction(share=self.share)
        low, high = _validate.positive(low=self.low), _validate.positive(high=self.high)
        if not (1e-100 <= low < high <= 1e100 and high <= low * 2.0**30):
            raise ParameterError(
                "low and high must be between 1e-100 and 1e100, with high above low and at most "
                f"2^30 times low, not {low:g} and {high:g}."
            )
        if self.ratio is not None and not 1 < _validate.positive(ratio=self.ratio) <= high / low:
            raise ParameterError(f"ratio must be above 1 and at most high/low, not {self.ratio!r}.")

    def edges(self, *, cells: int) -> FloatArray:
        """Return the bin edges; smaller norms count in the first bin, larger ones in the last.

        Args:
            cells: the number of bounds to choose.
        """
        ratio = self.ratio or min(2.0 if cells < POOL_LEAST else 4.0, self.high / self.low)
        steps = math.ceil(math.log(self.high / self.low) / math.log(ratio) - 1e-9)
        return np.asarray(self.low * ratio ** np.arange(steps + 1.0), dtype=np.float64)

    def shares(
        self,
        *,
        one_bound: bool,
        cells: int | None = None,
        most: int | None = POOL_MOST,
        of_sums: bool = False,
    ) -> tuple[float, float]:
        """Return the budget shares of the query per cell and of the pooled query.

        Args:
            one_bound: True for one bound in total.
            cells: the public number of bounds to choose, if known.
            most: the maximum number of blocks of one person in a bin of the pooled query; None with
                Laplace noise, where k elements cost k in any bins.
            of_sums: True for sums, which lose all that a low bound removes; ratios do not.

        The pooled query gets s with s·(m − 1) ≤ 0.21, where m is ``most``, or ``cells`` if that is
        less: k elements of one person change its counts by at most √(m·k), so they cost at most √(1
        + s·(m − 1)) ≤ 1.1 times as much as without it.

        >>> own, pooled = AutoClip().shares(one_bound=False, cells=1000)
        >>> round(own, 3), round(pooled, 3)
        (0.189, 0.011)
        """
        few = cells is not None and not can_pool(cells)
        one_share = _ONE_SHARE_OF_LAPLACE if most is None and of_sums else _ONE_SHARE
        usual = one_share if one_bound else _FEW_SHARE if few else _MANY_SHARE
        whole = usual if self.share is None else self.share
        if one_bound or few:
            return whole, 0.0
        if most is None:
            return whole - _POOLED_PART_OF_LAPLACE * whole, _POOLED_PART_OF_LAPLACE * whole
        most = most if cells is None else min(most, cells)
        pooled = min(_POOLED_PART * whole, _POOLED_PRICE / (most - 1))
        return whole - pooled, pooled


@dataclass(frozen=True, eq=False)
class RoughBounds:
    """Rough clipping bound per cell, and the pools of cells for the second query."""

    bounds: FloatArray  # (K,), in the units of the norms
    seen: BoolArray  # (K,) True for cells with blocks above the noise
    pool: IntArray  # (K,) 0 … pools − 1
    weight: IntArray  # (K,) weight of a block in its pool's counts, in 2^-10ths, 1 to 1024

    @property
    def pools(self) -> int:
        """Number of pools."""
        return int(self.pool.max()) + 1 if self.pool.size else 0


@dataclass(frozen=True, eq=False)
class ChosenBounds:
    """Clipping bounds of a release."""

    bounds: FloatArray  # (K,), in the units of the norms
    seen: BoolArray  # (K,) True for cells with blocks above the noise
    clipped: float = 0.0  # 95% lower limit on the share of blocks above their bound; 0 if unknown
    lost: FloatArray = field(default_factory=lambda: np.zeros(0))  # (K,) share of the norms beyond
    beyond: tuple[float, float] = (0.0, 0.0)  # lower limit on the norms beyond, share of blocks

    def within(self, low: float, high: float) -> ChosenBounds:
        """Return these bounds, raised to ``low`` and limited to ``high``."""
        return replace(self, bounds=np.minimum(np.maximum(self.bounds, low), high))

    def take(self, cells: IntArray) -> ChosenBounds:
        """Return the bounds of each group, (V,), by its cell."""
        return replace(self, bounds=self.bounds[cells], seen=self.seen[cells], lost=np.zeros(0))


def choose_bounds(
    noisy_counts: FloatArray,
    edges: FloatArray,
    count_sd: float,
    coordinates: IntArray,
    noise_multiplier: float,
    law: Law = "gaussian",
) -> ChosenBounds:
    """Return the clipping bound of each cell from its own noisy counts, (K, bins).

    It minimises T(r)² + coordinates·(r·noise_multiplier)², for the likely loss T(r) = Σ(norm − r)₊;
    without a credible bin, it is the lowest edge, and ``seen`` is False.
    """
    top = _top_bins(noisy_counts, count_sd, edges[1] / edges[0], law)
    bounds = np.full(top.size, edges[0])
    for rows in _chunks(top >= 0):
        seen = (noisy_counts[rows], top[rows], count_sd, edges)
        energy = np.asarray(coordinates[rows] * noise_multiplier**2, dtype=np.float64)
        tail = _continued(*seen, _OWN_ALLOWANCE, bins=edges.size, least=_heavy_tail(*seen))
        bounds[rows] = np.maximum(_best(*_spread(tail, edges), energy), edges[0])
    return ChosenBounds(bounds, top >= 0)


def group_scales(noisy_sums: FloatArray, edges: FloatArray, sd: float) -> FloatArray:
    """Return the scale of each group of users' vectors, (V,): powers of two up to 1.

    From noisy sums, (V, B), of vectors x of norm 1 by bin of their norm. Proportional to √q, for
    the estimate q of Σ‖x‖·x_g: this minimises the noise energy for one bound, Σw²·Σ(x/w)².
    """
    top = _top_bins(noisy_sums, sd, edges[1] / edges[0], "gaussian")
    bins = np.arange(noisy_sums.shape[1])
    seen = (bins <= top[:, None]) & (noisy_sums > _SCALED_VISIBLE * sd)
    rest = np.maximum((~seen).sum(axis=0), 1)
    mean = np.where(seen, 0.0, noisy_sums).sum(axis=0) / rest + sd / np.sqrt(rest)
    sums = np.where(seen, noisy_sums, np.maximum(mean, 0.0))
    size = np.sqrt(sums[:, : top.max(initial=-1) + 1] @ edges[1 : top.max(initial=-1) + 2] ** 2)
    if not size.any():
        return np.ones(top.size)
    scales = np.exp2(np.rint(np.log2(np.maximum(size / size.max(), _LEAST_SCALE))))
    return np.ones(top.size) if scales.min() >= _ALIKE_SCALES else np.asarray(scales)


def clipped_at_least(
    noisy_counts: FloatArray, edges: FloatArray, count_sd: float, bounds: FloatArray
) -> float:
    """Return a 95% lower limit on the share of blocks of all cells above their bounds."""
    above = edges[:-1] >= bounds[:, None]
    parts = noisy_counts[above], noisy_counts[~above]
    # No smaller than the quantile of sums of Laplace noise.
    radius = np.array(quantile_of("gaussian", 0.95) * count_sd)
    one, rest = (np.array(part.sum()) for part in parts)
    low, _ = ratio_interval(one, rest, radius, parts[0].size, parts[1].size)
    return float(low)


def beyond_at_least(
    noisy_counts: FloatArray,
    edges: FloatArray,
    count_sd: float,
    bounds: FloatArray,
    law: Law = "gaussian",
) -> tuple[float, float]:
    """Return a 97.5% lower limit on Σ(norm − bound)₊, and the share of blocks that it counts.

    All counts are at least their lower limits with this probability, for any choice of bounds.
    """
    radius = quantile_of(law, 1 - _MISSED / max(noisy_counts.size, 1)) * count_sd
    least = np.maximum(noisy_counts - radius, 0.0)
    beyond = np.maximum(edges[:-1] - bounds[:, None], 0.0)
    share = float(least[beyond > 0].sum()) / max(float(noisy_counts.sum()), 1.0)
    return float((least * beyond).sum()), share


def likely_lost(
    noisy_counts: FloatArray,
    edges: FloatArray,
    count_sd: float,
    bounds: FloatArray,
    law: Law = "gaussian",
) -> FloatArray:
    """Return the likely share of the norms of blocks beyond each bound, (K,)."""
    top = _top_bins(noisy_counts, count_sd, edges[1] / edges[0], law)
    seen = noisy_counts, top, count_sd, edges
    points, mass = _spread(_continued(*seen, _OWN_ALLOWANCE, bins=1), edges)
    beyond = (mass * np.maximum(points - bounds[:, None], 0.0)).sum(axis=1)
    return np.asarray(beyond / np.maximum(mass @ points, np.finfo(np.float64).tiny))


def can_pool(cells: int) -> bool:
    """Return True if there are enough cells for a pooled query."""
    return cells >= POOL_LEAST


def bound_of_ratios(
    noisy_counts: FloatArray,
    edges: FloatArray,
    count_sd: float,
    shares: FloatArray,
    noise_multiplier: float,
    bias: float,
    law: Law = "gaussian",
    record: float = 0.0,
) -> ChosenBounds:
    """Return the common clipping bound of group sums divided by the group's count.

    It minimises the geometric mean over groups of squared bias plus noise variance, so that a tiny
    group lowers no bound. It is at least ``record``, the largest norm of one record.
    """
    top = _top_bins(noisy_counts, count_sd, edges[1] / edges[0], law)
    if top[0] < 0:
        return ChosenBounds(np.maximum(edges[:1], record), top >= 0)
    # Noise affects ratios more than clipping does, so no invisible tail is assumed.
    counts = np.where(np.arange(noisy_counts.shape[1]) <= top[0], np.maximum(noisy_counts, 0), 0.0)
    points, mass = _spread(counts, edges)
    points = np.maximum(points, record)
    candidates = np.unique(np.concatenate([np.maximum(edges[:1], record), points[mass[0] > 0]]))
    left = np.minimum(points[:, None], candidates).T @ mass[0]
    noise = candidates * noise_multiplier / left
    drowned = np.minimum((noise / shares[:, None]) ** 2, _ANYWHERE_VARIANCE)
    error = np.log(drowned + (bias * (1 - left / left[-1])) ** 2).mean(axis=0)
    return ChosenBounds(candidates[[error.argmin()]], top >= 0)


def rough_bounds(
    noisy_counts: FloatArray,
    edges: FloatArray,
    count_sd: float,
    coordinates: IntArray,
    noise_multiplier: float,
    law: Law = "gaussian",
) -> RoughBounds:
    """Return a rough bound per cell from its noisy counts, and pools of similar cells."""
    top = _top_bins(noisy_counts, count_sd, edges[1] / edges[0], law)
    seen = top >= 0
    energy = np.asarray(coordinates * noise_multiplier**2, dtype=np.float64)
    bounds = _rough(noisy_counts, top, edges, count_sd, _ROUGH_NOISE**2 * energy)
    pool = _pools(bounds, seen)
    # Cells in a small pool use only their own counts.
    alone = np.bincount(pool)[pool] < POOL_LEAST
    bounds[alone] = _rough(noisy_counts[alone], top[alone], edges, count_sd, energy[alone])
    bounds[~seen] = _start(noisy_counts[~seen], edges, count_sd, energy[~seen], law)
    weight = np.sqrt(np.median(coordinates) / coordinates) if top.size else np.ones(0)
    return RoughBounds(
        bounds, seen, pool, np.clip(np.floor(weight * 1024), 1, 1024).astype(np.int64)
    )


def pooled_bounds(
    rough: RoughBounds,
    noisy_rows: FloatArray,
    row_sd: float,
    coordinates: IntArray,
    noise_multiplier: float,
    low: float,
) -> ChosenBounds:
    """Return a clipping bound per cell from its rough bound and its pool's noisy row.

    ``noisy_rows``, (pools, bins), counts weighted blocks by norm ÷ rough bound (``POOLED_EDGES``).
    One factor in [1/4, 8] per pool limits the influence of a distant block or a false count.
    """
    cells = np.bincount(rough.pool, minlength=rough.pools)
    weight = rough.weight / 1024
    energy = np.bincount(rough.pool, weight**2 * coordinates, minlength=rough.pools) / cells
    visible = noisy_rows > _VISIBLE * row_sd
    bins = visible.shape[1]
    last = np.where(visible.any(axis=1), bins - 1 - visible[:, ::-1].argmax(axis=1), -1)
    last[cells < POOL_LEAST] = -1
    counts = _continued(noisy_rows, last, row_sd, POOLED_EDGES, _POOLED_ALLOWANCE, bins=1)
    points, mass = _spread(counts / cells[:, None], POOLED_EDGES)
    pool_seen = np.zeros(cells.size, dtype=np.bool_)
    pool_seen[rough.pool[rough.seen]] = True
    most = np.where(pool_seen, POOLED_EDGES[-1], _UNSEEN_MOST)
    factor = _best(points, mass, energy * noise_multiplier**2)
    factor = np.where(last >= 0, np.clip(factor, POOLED_EDGES[0], most), 1.0)
    return ChosenBounds(np.maximum(rough.bounds * factor[rough.pool], low), rough.seen)


def _top_bins(noisy_counts: FloatArray, count_sd: float, ratio: float, law: Law) -> IntArray:
    """Return the highest credible bin of each cell, (K,); −1 for none.

    Benjamini-Hochberg over cells at ``_FALSE_SHARE``. A bin j bins beyond the last credible one
    needs a level smaller by ratio^(-2j), because a false bin there causes ratio^j times the noise.
    """
    cells, bins = noisy_counts.shape
    top = np.full(cells, -1, dtype=np.int64)
    usual = _usual_bin(noisy_counts, count_sd, law)
    sums = np.concatenate([np.zeros((cells, 1)), np.cumsum(noisy_counts, axis=1)], axis=1)
    widths = range(1, 1 + min(4, max(1, int(math.log(_WINDOW_RATIO) / math.log(ratio) + 1e-9))))
    allowed = _FALSE_SHARE * np.arange(1, cells + 1) / max(cells, 1)
    for b in range(bins):
        score = noisy_counts[:, b] / count_sd
        for width in widths[1 : b + 1]:
            together = (sums[:, b + 1] - sums[:, b + 1 - width]) / (count_sd * math.sqrt(width))
            fresh = (top < b + 1 - width) & (noisy_counts[:, b] > count_sd)
            score = np.where(fresh, np.maximum(score, together), score)
        beyond = np.maximum(b - np.where(top >= 0, top, usual), 0)
        level = tail_of(law, score) * ratio ** (2.0 * beyond)
        ranked = np.sort(level)
        passed = np.flatnonzero(ranked <= allowed)
        if passed.size:
            top[level <= ranked[passed[-1]]] = b
    return top


def _usual_bin(noisy_counts: FloatArray, count_sd: float, law: Law) -> int:
    """Return the bin with the most blocks of all cells; 0 if it is not significant."""
    whole = noisy_counts.sum(axis=0)
    fullest = int(whole.argmax())
    score = whole[fullest] / (count_sd * math.sqrt(max(len(noisy_counts), 1)))
    return fullest if float(tail_of(law, score)) * whole.size <= _FALSE_BIN else 0


def _rough(
    noisy_counts: FloatArray, top: IntArray, edges: FloatArray, count_sd: float, energy: FloatArray
) -> FloatArray:
    """Return the best bounds by coarse counts, (K,); else the lowest edge."""
    bounds = np.full(top.size, edges[0])
    for rows in _chunks(top >= 0):
        counts = _continued(
            noisy_counts[rows], top[rows], count_sd, edges, -2.0, bins=1, falls=False
        )
        bounds[rows] = _best(*_spread(counts, edges), energy[rows])
    return np.asarray(np.maximum(bounds, edges[0]))


def _start(
    noisy_counts: FloatArray, edges: FloatArray, count_sd: float, energy: FloatArray, law: Law
) -> float:
    """Return the initial bound of invisible cells; the lowest edge for uneven counts."""
    cells, bins = noisy_counts.shape
    if cells < POOL_LEAST:
        return float(edges[0])
    whole = noisy_counts.sum(axis=0)
    beyond = np.maximum(np.arange(bins) - int(whole.argmax()), 0)
    level = tail_of(law, whole / (count_sd * math.sqrt(cells)))
    candidates = np.flatnonzero(
        level * bins * (edges[1] / edges[0]) ** (2.0 * beyond) <= _FALSE_BIN
    )
    if not candidates.size:
        return float(edges[0])
    mean = np.where(np.arange(bins) <= candidates[-1], np.maximum(whole, 0.0), 0.0) / cells
    # Size of each cell relative to the mean cell, by weighted norms.
    weight = mean * np.sqrt(edges[:-1] * edges[1:])
    size = noisy_counts @ (weight / np.linalg.norm(weight))
    noise = (1 - _SPREAD_MARGIN * math.sqrt(2 / cells)) * count_sd**2
    between = math.sqrt(max(float(size.var(ddof=1)) - noise, 0.0))
    part = 1 - between / max(float(size.mean()), np.finfo(np.float64).tiny)
    if part < _ALIKE:
        return float(edges[0])
    best = _best(*_spread(mean[None, :] * part, edges), np.median(energy, keepdims=True))
    return max(float(best[0]), float(edges[0]))


def _pools(bounds: FloatArray, seen: BoolArray) -> IntArray:
    """Return the pool of each cell, (K,): up to POOL_SIZE cells in the order of bounds."""
    order = np.argsort(bounds, kind="stable")
    pool = np.empty(order.size, dtype=np.int64)
    before = 0
    for part in (order[~seen[order]], order[seen[order]]):
        pools = -(-part.size // POOL_SIZE)
        pool[part] = before + np.arange(part.size) * pools // max(part.size, 1)
        before += pools
    return pool


def _chunks(selected: BoolArray) -> list[IntArray]:
    """Return the indices of the True cells in chunks."""
    rows = np.flatnonzero(selected)
    return [rows[start : start + _CHUNK] for start in range(0, rows.size, _CHUNK)]


def _continued(
    noisy_counts: FloatArray,
    top: IntArray,
    count_sd: float,
    edges: FloatArray,
    allowance: float,
    *,
    bins: int,
    falls: bool = True,
    least: float = 0.0,
) -> FloatArray:
    """Return the counts up to the top bins, at least 0, and a tail of ``bins`` bins.

    A bin is at most its count plus ``allowance`` standard deviations, and at most the previous one
    or, if it ``falls``, ratio^-2 of that.
    """
    row, last = np.arange(top.size), np.maximum(top, 0)
    index = np.arange(noisy_counts.shape[1])
    counts = np.where(index <= top[:, None], np.maximum(noisy_counts, 0.0), 0.0)
    full = counts[row, last]
    following = noisy_counts[row, np.minimum(last + 1, index[-1])] + allowance * count_sd
    steepest = (edges[0] / edges[1]) ** 2 if falls else 1.0
    most = np.maximum(np.clip(following, 0.0, steepest * full), least * full)
    rate = np.divide(most, full, out=np.zeros_like(full), where=full > 0)
    steps = index - last[:, None]
    tail = full[:, None] * rate[:, None] ** np.maximum(steps, 0)
    return np.where((steps > 0) & (steps <= bins), tail, counts)


def _heavy_tail(
    noisy_counts: FloatArray, top: IntArray, count_sd: float, edges: FloatArray
) -> float:
    """Return the common fall of counts beyond several cells' top bins; 0 if unclear."""
    cells, bins = noisy_counts.shape
    if cells < 2:
        return 0.0
    full, one, two = (
        float(noisy_counts[np.arange(cells), np.minimum(top + beyond, bins - 1)].sum())
        for beyond in (0, 1, 2)
    )
    if min(one, two) <= _HEAVY_VISIBLE * count_sd * math.sqrt(cells):
        return 0.0
    return min(math.sqrt(two / max(full, two)), math.pow(edges[0] / edges[1], _HEAVIEST))


def _spread(counts: FloatArray, edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return points in decreasing order, 2^(1/8) to 2^(1/2) apart, and their masses."""
    bins = counts.shape[1]
    parts = max(4, round(2 * math.log2(edges[1] / edges[0])))
    middle = (np.arange(bins * parts) + 0.5) / (bins * parts)
    points = edges[0] * (edges[-1] / edges[0]) ** middle
    return points[::-1], np.repeat(counts / parts, parts, axis=1)[:, ::-1]


def _best(points: FloatArray, mass: FloatArray, energy: FloatArray) -> FloatArray:
    """Return the minimiser r of T(r)² + energy·r² for T(r) = Σ mass·(points − r)₊.

    T is the maximum of the lines A_j − r·S_j (sum and number of the points from e_j up), so the
    objective is convex, and its minimiser is max_j min(e_j, A_j S_j/(S_j² + energy)).
    """
    number, total = np.cumsum(mass, axis=1), np.cumsum(mass * points, axis=1)
    best = total * number / np.maximum(number**2 + energy[:, None], np.finfo(np.float64).tiny)
    return np.asarray(np.minimum(points, best).max(axis=1))
