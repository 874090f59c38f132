"""Laws of the privacy loss, and how masses are put on a grid: from above, and from below."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpgrain._types import FloatArray
from dpgrain.accounting.losses.mixtures import FUNCTION_ROUNDING
from dpgrain.accounting.losses.rounding import fails_closed
from dpgrain.accounting.losses.sequences import increasing


@dataclass(frozen=True, eq=False)
class Law:
    """A law of the privacy loss, from above.

    Args:
        values: (n,) increasing losses.
        mass: (n,) masses; rounded up, so that they may add up to a little more than 1.
        infinite: the mass at infinite loss.
    """

    values: FloatArray
    mass: FloatArray
    infinite: float = 0.0

    def cut(self, tail: float) -> Law:
        """The same with at most so much mass, that of the largest losses, at infinity."""
        above = np.cumsum(self.mass[::-1])[::-1]
        kept = max(int(np.searchsorted(-above, -tail)), 1)
        rest = float(above[kept]) if kept < above.size else 0.0
        return Law(self.values[:kept], self.mass[:kept], self.infinite + rest)

    def thinned(self, points: int) -> Law:
        """About so many of the losses, the others spread onto their neighbours."""
        if self.values.size <= points:
            return self
        kept = np.unique(np.append(self.values[:: -(-self.values.size // points)], self.values[-1]))
        left = np.clip(np.searchsorted(kept, self.values, side="right") - 1, 0, kept.size - 2)
        # As for intervals: the masses under P and under Q are both kept.
        right = np.expm1(kept[left] - self.values) / np.expm1(kept[left] - kept[left + 1])
        right = np.clip(right * (1 + FUNCTION_ROUNDING), 0.0, 1.0)
        mass = np.zeros(kept.size)
        mass += np.bincount(left, (1 - right) * self.mass, kept.size)
        mass += np.bincount(left + 1, right * self.mass, kept.size)
        return Law(kept, mass, self.infinite)

    @fails_closed(math.inf)
    def log_moment(self, theta: float) -> float:
        """ln E[e^{θ·loss}] over the finite losses."""
        exponents = theta * self.values
        peak = max(float(exponents[0]), float(exponents[-1]))
        return peak + math.log(float(np.dot(self.mass, np.exp(exponents - peak))) or 5e-324)

    def spread(self, theta: float) -> tuple[float, float]:
        """Mean and variance of the loss under the law tilted by e^{θ·loss}."""
        exponents = theta * self.values
        weights = self.mass * np.exp(exponents - max(exponents[0], exponents[-1]))
        weights /= weights.sum() or 1.0
        mean = float(np.dot(weights, self.values))
        return mean, float(np.dot(weights, (self.values - mean) ** 2))


@dataclass(frozen=True, eq=False)
class Losses:
    """A law of the privacy loss on the multiples of a step.

    Args:
        step: the distance of the grid.
        low: the loss of the first mass is ``low * step``.
        mass: (n,) masses.
        infinite: the mass at infinite loss.
        slip: by how much a loss may be larger than stated (rounding of places).
    """

    step: float
    low: int
    mass: FloatArray
    infinite: float = 0.0
    slip: float = 0.0

    @property
    def high(self) -> int:
        """The last loss, in steps."""
        return self.low + self.mass.size - 1

    @property
    def law(self) -> Law:
        """The same with the losses spelled out."""
        values = self.step * np.arange(self.low, self.low + self.mass.size, dtype=np.float64)
        return Law(values, self.mass, self.infinite)


def spread_masses(
    ends: FloatArray, p: FloatArray, p_error: FloatArray, q: FloatArray, q_error: FloatArray
) -> FloatArray:
    """(n,) the masses of n−1 intervals of the loss, spread onto the ends of each.

    To the right goes (p − e^{left}·q)/(1 − e^{−width}): this keeps the masses under P and under Q.
    """
    p = p + p_error
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        kept = np.exp(ends[:-1] + np.log(np.maximum(q - q_error, 0.0)))
        right = (p - kept) / -np.expm1(ends[:-1] - ends[1:]) * (1 + FUNCTION_ROUNDING)
    # Where nothing is known of Q, all goes to the right.
    right = np.clip(np.where(np.isnan(right), p, right), 0.0, p)
    mass = np.zeros(ends.size)
    mass[:-1] += p - right
    mass[1:] += right
    return mass


def regridded(law: Law, step: float, tail: float, floor: float) -> Losses:
    """A law moved onto a grid: every mass is spread onto both neighbours."""
    law = law.cut(tail)
    # The smallest losses, of next to no mass, are raised to the first that counts.
    first = min(int(np.searchsorted(np.cumsum(law.mass), floor)), law.mass.size - 1)
    kept = law.mass[first:].copy()
    kept[0] += float(law.mass[:first].sum())
    law = Law(law.values[first:], kept, law.infinite)
    place = np.floor(law.values / step)
    low = int(place[0])
    index = (place - low).astype(np.int64)
    mass = np.zeros(int(index[-1]) + 2)
    right = np.clip(np.expm1(place * step - law.values) / math.expm1(-step), 0.0, 1.0)
    np.add.at(mass, index, (1 - right) * law.mass)
    np.add.at(mass, index + 1, right * law.mass)
    # Rounding of a place, which a loss may lie beyond.
    return Losses(step, low, mass, law.infinite, 1e-15 * float(np.abs(law.values).max()))


def merged_masses(step: float, low: int, p: FloatArray, q: FloatArray) -> Losses:
    """Masses p, q around low, low+1, …, moved onto the grid from below.

    Between two points γ → H_γ lies above the line P(T) − γQ(T) of any test T: here that of all losses
    above the middle, or of all or none where that line is better. The grid gets the largest convex
    curve below those lines.
    """
    index = np.arange(low, low + p.size)
    ratio = np.exp(step * index)
    (left_p, right_p), (left_q, right_q) = _sides(p), _sides(q)
    # The line of a middle must not be below those of all (1 − γ) and none (0) on its interval.
    right, left = ratio[1:], ratio[:-1]
    trivial = (right_p < right * right_q) | (left_p > left * left_q)
    everything = trivial & (index[:-1] < 0)
    nothing = trivial & (index[:-1] >= 0)
    for taken, other, kept in ((left_p, right_p, p), (left_q, right_q, q)):
        total = float(kept.sum())
        taken[everything], other[everything] = 0.0, total
        taken[nothing], other[nothing] = total, 0.0
    changed = np.concatenate([[False], trivial]) | np.concatenate([trivial, [False]])
    p, q = (
        np.where(changed, _between(index, taken, other, kept), kept)
        for taken, other, kept in ((left_p, right_p, p), (left_q, right_q, q))
    )
    gap = p - ratio * q
    excess, lack = np.maximum(gap, 0.0), np.maximum(-gap, 0.0)
    up, down = 1 / -math.expm1(-step), 1 / math.expm1(step)
    mass = p + down * excess + up * lack
    mass[1:] -= up * lack[:-1]
    mass[:-1] -= down * excess[1:]
    if float(mass.min()) < 0:
        # Not convex: the largest convex curve below, by pooling its slopes.
        width = np.diff(ratio)
        slope = -right_q - (excess[1:] - lack[:-1]) / width
        pooled = increasing(slope, width)
        total = float(q.sum())
        mass = np.where(
            np.concatenate([[True], pooled != slope]) | np.concatenate([pooled != slope, [True]]),
            ratio * np.diff(pooled, prepend=-total, append=0.0),
            mass,
        )
    return Losses(step, low, np.maximum(mass, 0.0))


def _sides(mass: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(n−1,) the mass to the left and to the right of each gap between n points."""
    return np.cumsum(mass)[:-1], np.cumsum(mass[::-1])[::-1][1:]


def _between(
    index: NDArray[np.int64], left: FloatArray, right: FloatArray, mass: FloatArray
) -> FloatArray:
    """(n,) the masses between gaps, by the side on which they are small."""
    total = float(mass.sum())
    by_left = np.diff(left, prepend=0.0, append=total)
    by_right = -np.diff(right, prepend=total, append=0.0)
    return np.where(index < 0, by_left, by_right)
