"""Clipping bounds chosen privately, one per cell, from a noisy histogram of block norms."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpgrain import _validate
from dpgrain._special import ndtr
from dpgrain._types import BoolArray, FloatArray, IntArray
from dpgrain.errors import ParameterError

# Bins of norm ÷ rough bound in the second look: smaller norms have no bin, the last takes larger ones.
POOLED_EDGES: FloatArray = 0.25 * 2.0 ** (np.arange(11.0) / 2)
# At most so many cells share a row of the second look.
POOL_SIZE = 40
# A bin of that row counts at most so many blocks of one person.
POOL_MOST = 8
# The second look gets at most this share of the budget, so that k elements of one person cost at most
# √(1 + share·(most − 1)) ≤ 1.1 times what they would cost if nothing were pooled.
_POOLED_SHARE = 0.03
# Among the cells found in a bin, this is the expected share of false ones.
_FALSE_SHARE = 0.01
# A number anywhere in a range of length 1 has this variance.
_ANYWHERE_VARIANCE = 1 / 12
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

    def shares(self, *, one_bound: bool) -> tuple[float, float]:
        """Return the shares of the budget of the look at each cell and of the pooled look."""
        if one_bound:
            return (0.1 if self.share is None else self.share), 0.0
        whole = 0.2 if self.share is None else self.share
        pooled = min(0.15 * whole, _POOLED_SHARE)
        return whole - pooled, pooled


@dataclass(frozen=True, eq=False)
class RoughBounds:
    """A rough clipping bound per cell, and the pools of cells that share a second look.

    Args:
        bounds: (K,) rough clipping bounds, in the units of the norms.
        seen: (K,) whether any blocks of the cell stood out from the noise.
        pool: (K,) the pool of each cell, 0 … pools − 1.
        weight: (K,) the weight of a block of the cell in its pool's counts, in 2^-10ths, 1 to 1024.
        blocks: the estimated number of all blocks.
    """

    bounds: FloatArray
    seen: BoolArray
    pool: IntArray
    weight: IntArray
    blocks: float

    @property
    def pools(self) -> int:
        """The number of pools."""
        return int(self.pool.max()) + 1


@dataclass(frozen=True, eq=False)
class ChosenBounds:
    """The clipping bounds of a release, and what is known about clipping at them.

    Args:
        bounds: (K,) clipping bounds, in the units of the norms.
        seen: (K,) whether any blocks of the cell stood out from the noise.
        above: the estimated share of blocks that lie above their bound, or None.
        lost: the estimated share of the sum of norms that clipping takes, or None; an underestimate.
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
    """Return clipping bounds from noisy counts of block norms alone, by one release.

    >>> choose_bounds(np.array([[0.0, 900.0, 0.0]]), np.array([1.0, 4, 16, 64]), 4.0,
    ...               np.array([1]), 4.0).bounds.round(1)
    array([13.5])
    """
    top = _top_bin(noisy_counts / count_sd, edges[1] / edges[0])
    bounds = _own_bounds(noisy_counts, top, edges, count_sd, coordinates, noise_multiplier)
    return ChosenBounds(bounds, top >= 0)


def bound_of_ratios(
    noisy_counts: FloatArray,
    edges: FloatArray,
    count_sd: float,
    shares: FloatArray,
    noise_multiplier: float,
    bias: float,
) -> ChosenBounds:
    """Return the one clipping bound of sums by group that are divided by their group's count.

    Args:
        noisy_counts: (1, B) noisy numbers of blocks, by norm.
        edges: (B + 1,) a geometric sequence.
        count_sd: the standard deviation of the noise of a count.
        shares: (G,) about the share of each group in all records, above 0.
        noise_multiplier: noise sd of a group's sum ÷ clipping bound.
        bias: the rough share of what clipping takes that shows in a ratio.

    Clipped at r, blocks of norms x leave N(r) = Σ min(x, r), of which group g has its share s_g. Its
    ratio has noise of sd r·noise_multiplier/(s_g·N(r)), and is off by bias·(1 − N(r)/N(∞)) for what
    clipping takes. The bound minimises the mean of the squares of both over the groups; a group counts
    with at most the variance of a number anywhere in the range, as its ratio says nothing then. So
    small groups, whose ratios the noise would drown, have their say.

    >>> counts, edges = np.array([[0.0, 9000.0, 900.0]]), np.array([1.0, 4, 16, 64])
    >>> even, uneven = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    >>> [bound_of_ratios(counts, edges, 4.0, shares, 4.0, 0.05).bounds.round(1).item()
    ...  for shares in (even, uneven)]
    [38.1, 19.0]
    """
    top = _top_bin(noisy_counts / count_sd, edges[1] / edges[0])
    if top[0] < 0:
        return ChosenBounds(edges[:1].copy(), top >= 0)
    kept = np.where(np.arange(noisy_counts.shape[1]) <= top[0], np.maximum(noisy_counts, 0), 0.0)
    points, mass = _spread(kept, edges)
    candidates = np.unique(np.concatenate([edges[:1], points[mass[0] > 0]]))
    left = np.minimum(points[:, None], candidates).T @ mass[0]
    noise = candidates * noise_multiplier / left
    drowned = np.minimum((noise / shares[:, None]) ** 2, _ANYWHERE_VARIANCE).mean(axis=0)
    error = drowned + (bias * (1 - left / left[-1])) ** 2
    return ChosenBounds(candidates[[error.argmin()]], top >= 0)


def rough_bounds(
    noisy_counts: FloatArray,
    edges: FloatArray,
    count_sd: float,
    coordinates: IntArray,
    noise_multiplier: float,
) -> RoughBounds:
    """Return a rough bound per cell from noisy counts of its block norms, and pools of cells."""
    chosen = choose_bounds(noisy_counts, edges, count_sd, coordinates, noise_multiplier)
    order = np.lexsort((chosen.bounds, chosen.seen))
    pool = np.empty(order.size, dtype=np.int64)
    before = 0
    for part in (order[~chosen.seen[order]], order[chosen.seen[order]]):
        pools = -(-part.size // POOL_SIZE)
        pool[part] = before + np.arange(part.size) * pools // max(part.size, 1)
        before += pools
    least = float(np.median(coordinates))
    weight = np.minimum(np.sqrt(least / coordinates), 1.0)
    return RoughBounds(
        chosen.bounds,
        chosen.seen,
        pool,
        np.maximum(np.floor(weight * 1024), 1.0).astype(np.int64),
        max(float(noisy_counts.sum()), 1.0),
    )


def pooled_bounds(
    rough: RoughBounds,
    noisy_rows: FloatArray,
    row_sd: float,
    coordinates: IntArray,
    noise_multiplier: float,
    low: float,
) -> ChosenBounds:
    """Return a clipping bound per cell from its rough one and the noisy row of its pool.

    Args:
        rough: the rough bounds.
        noisy_rows: (pools, bins) noisy weighted numbers of blocks, by norm ÷ rough bound, with the
            edges ``POOLED_EDGES``; the last bin also takes larger ones.
        row_sd: the standard deviation of the noise of each, in blocks.
        coordinates: (K,) the number of items in each cell.
        noise_multiplier: noise sd of the sums ÷ clipping bound.
        low: the smallest bound.
    """
    weight = rough.weight / 1024
    cells = np.bincount(rough.pool, minlength=rough.pools)
    energy = np.bincount(rough.pool, weight**2 * coordinates, minlength=rough.pools) / cells
    seen = noisy_rows > 3 * row_sd
    last = np.where(seen.any(axis=1), seen.shape[1] - 1 - seen[:, ::-1].argmax(axis=1), -1)
    kept = np.where(np.arange(seen.shape[1]) <= last[:, None], np.maximum(noisy_rows, 0), 0.0)
    kept /= np.bincount(rough.pool, weight, minlength=rough.pools)[:, None]
    points, mass = _spread(kept, POOLED_EDGES)
    factor = np.clip(_best(points, mass, energy * noise_multiplier**2), 0.25, 8.0)
    factor = np.where(last >= 0, factor, 1.0)
    bounds = np.maximum(rough.bounds * factor[rough.pool], low)
    return ChosenBounds(bounds, rough.seen)


def _own_bounds(
    noisy_counts: FloatArray,
    top: IntArray,
    edges: FloatArray,
    count_sd: float,
    coordinates: IntArray,
    noise_multiplier: float,
) -> FloatArray:
    bounds = np.full(len(noisy_counts), edges[0])
    found = np.flatnonzero(top >= 0)
    index = np.arange(noisy_counts.shape[1])
    for start in range(0, found.size, _CHUNK):
        rows = found[start : start + _CHUNK]
        counts, last = noisy_counts[rows], top[rows, None]
        kept = np.where(index <= last, np.maximum(counts, 0.0), 0.0)
        most = np.take_along_axis(kept, last, axis=1)
        excess = np.clip(counts - 2 * count_sd, 0.0, most)
        kept = np.where(index == last + 1, excess, kept)
        points, mass = _spread(kept, edges)
        energy = np.asarray(coordinates[rows] * noise_multiplier**2, dtype=np.float64)
        bounds[rows] = _best(points, mass, energy)
    return np.asarray(np.maximum(bounds, edges[0]))


def _spread(counts: FloatArray, edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return points in falling order, and the mass that counts put on them, even in log scale."""
    bins = counts.shape[1]
    parts = max(1, round(2 * math.log2(edges[1] / edges[0])))
    middle = (np.arange(bins * parts) + 0.5) / (bins * parts)
    points = edges[0] * (edges[-1] / edges[0]) ** middle
    return points[::-1], np.repeat(counts / parts, parts, axis=1)[:, ::-1]


def _best(points: FloatArray, mass: FloatArray, noise: FloatArray) -> FloatArray:
    """Return the minimiser r of T(r)² + noise·r² of every row, with T(r) = Σ mass·(points − r)₊."""
    number, total = np.cumsum(mass, axis=1), np.cumsum(mass * points, axis=1)
    best = total * number / np.maximum(number**2 + noise[:, None], np.finfo(np.float64).tiny)
    return np.asarray(np.minimum(points, best).max(axis=1))


def _top_bin(scores: FloatArray, ratio: float) -> IntArray:
    """Return the highest bin of each cell that is believed to hold blocks, (cells,); −1 for none."""
    cells = len(scores)
    top = np.full(cells, -1, dtype=np.int64)
    usual = int(scores.sum(axis=0).argmax()) if cells > 1 else 0
    for b in range(scores.shape[1]):
        beyond = np.maximum(b - np.where(top >= 0, top, usual), 0)
        level = ndtr(-scores[:, b]) * ratio**beyond
        ranked = np.sort(level)
        passed = np.flatnonzero(ranked <= _FALSE_SHARE * np.arange(1, cells + 1) / cells)
        if passed.size:
            top[level <= ranked[passed[-1]]] = b
    return top
