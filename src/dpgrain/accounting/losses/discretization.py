"""Distributions of the privacy loss, with bounds on a grid from above and below."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpgrain._types import FloatArray
from dpgrain.accounting.losses.mixtures import FUNCTION_ROUNDING
from dpgrain.accounting.losses.rounding import fails_closed
from dpgrain.accounting.losses.sequences import isotonic_fit


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """A distribution of the privacy loss, above the true one."""

    values: FloatArray  # (n,) increasing losses
    mass: FloatArray  # (n,) rounded up, so that the sum may slightly exceed 1
    infinite: float = 0.0  # mass at infinite loss

    def cut(self, tail: float) -> LossDistribution:
        """Move the largest losses, of mass at most ``tail``, to infinity."""
        above = np.cumsum(self.mass[::-1])[::-1]
        size = max(int(np.searchsorted(-above, -tail)), 1)
        if size >= self.values.size:
            return self
        rest = float(above[size]) if size < above.size else 0.0
        return LossDistribution(self.values[:size], self.mass[:size], self.infinite + rest)

    def thinned(self, points: int) -> LossDistribution:
        """Spread the distribution onto about ``points`` of its losses."""
        if self.values.size <= points:
            return self
        points_left = np.unique(
            np.append(self.values[:: -(-self.values.size // points)], self.values[-1])
        )
        left = np.clip(
            np.searchsorted(points_left, self.values, side="right") - 1, 0, points_left.size - 2
        )
        # The spreading preserves the masses under P and under Q, as in `spread_masses`.
        right = np.expm1(points_left[left] - self.values) / np.expm1(
            points_left[left] - points_left[left + 1]
        )
        right = np.clip(right * (1 + FUNCTION_ROUNDING), 0.0, 1.0)
        mass = np.zeros(points_left.size)
        mass += np.bincount(left, (1 - right) * self.mass, points_left.size)
        mass += np.bincount(left + 1, right * self.mass, points_left.size)
        return LossDistribution(points_left, mass, self.infinite)

    @fails_closed(math.inf)
    def log_moment(self, theta: float) -> float:
        """Return ln E[e^{θ·loss}] over the finite losses."""
        exponents = theta * self.values
        peak = max(float(exponents[0]), float(exponents[-1]))
        return peak + math.log(float(np.dot(self.mass, np.exp(exponents - peak))) or 5e-324)

    def spread(self, theta: float) -> tuple[float, float]:
        """Return mean and variance of the loss after tilting by e^{θ·loss}."""
        exponents = theta * self.values
        weights = self.mass * np.exp(exponents - max(exponents[0], exponents[-1]))
        weights /= weights.sum() or 1.0
        mean = float(np.dot(weights, self.values))
        return mean, float(np.dot(weights, (self.values - mean) ** 2))


@dataclass(frozen=True, eq=False)
class GridDistribution:
    """A distribution of the privacy loss on the multiples of a step."""

    step: float
    low: int  # index of the first mass, with loss low·step
    mass: FloatArray
    infinite: float = 0.0
    slip: float = 0.0  # bound on the excess of a loss over its stated value, by rounding

    @property
    def high(self) -> int:
        """Last loss, in steps."""
        return self.low + self.mass.size - 1

    @property
    def law(self) -> LossDistribution:
        """The same distribution with explicit values."""
        values = self.step * np.arange(self.low, self.low + self.mass.size, dtype=np.float64)
        return LossDistribution(values, self.mass, self.infinite)


def spread_masses(
    ends: FloatArray, p: FloatArray, p_error: FloatArray, q: FloatArray, q_error: FloatArray
) -> FloatArray:
    """Return (n,) masses at interval ends, spread from p and q of n−1 intervals."""
    # The share (p − e^{left}·q)/(1 − e^{−width}) goes to the right end, which preserves the masses
    # under P and under Q.
    p = p + p_error
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        matched = np.exp(ends[:-1] + np.log(np.maximum(q - q_error, 0.0)))
        right = (p - matched) / -np.expm1(ends[:-1] - ends[1:]) * (1 + FUNCTION_ROUNDING)
    # If nothing is known of Q, all mass goes to the right.
    right = np.clip(np.where(np.isnan(right), p, right), 0.0, p)
    mass = np.zeros(ends.size)
    mass[:-1] += p - right
    mass[1:] += right
    return mass


def spread_onto_grid(
    law: LossDistribution, step: float, tail: float, floor: float
) -> GridDistribution:
    """Spread every mass of a distribution onto the neighbouring points of a grid."""
    law = law.cut(tail)
    # The smallest losses, with negligible mass, are raised to the first relevant one.
    first = min(int(np.searchsorted(np.cumsum(law.mass), floor)), law.mass.size - 1)
    masses = law.mass[first:].copy()
    masses[0] += float(law.mass[:first].sum())
    law = LossDistribution(law.values[first:], masses, law.infinite)
    place = np.floor(law.values / step)
    low = int(place[0])
    index = (place - low).astype(np.int64)
    mass = np.zeros(int(index[-1]) + 2)
    right = np.clip(np.expm1(place * step - law.values) / math.expm1(-step), 0.0, 1.0)
    np.add.at(mass, index, (1 - right) * law.mass)
    np.add.at(mass, index + 1, right * law.mass)
    # The slip covers the rounding of a grid point, which a loss may exceed.
    return GridDistribution(step, low, mass, law.infinite, 1e-15 * float(np.abs(law.values).max()))


def merge_masses(step: float, low: int, p: FloatArray, q: FloatArray) -> GridDistribution:
    """Move masses p, q around low, low+1, … onto the grid, as a bound from below."""
    # Between two points γ → H_γ is above the line P(T) − γQ(T) of any test T. The grid gets the
    # largest convex curve below the best lines of three tests: losses above the midpoint, all,
    # none.
    index = np.arange(low, low + p.size)
    ratio = np.exp(step * index)
    (left_p, right_p), (left_q, right_q) = _sides(p), _sides(q)
    # The line of a midpoint must not be below the lines of all (1 − γ) and none (0) on its
    # interval.
    right, left = ratio[1:], ratio[:-1]
    trivial = (right_p < right * right_q) | (left_p > left * left_q)
    everything = trivial & (index[:-1] < 0)
    nothing = trivial & (index[:-1] >= 0)
    for taken, other, target in ((left_p, right_p, p), (left_q, right_q, q)):
        total = float(target.sum())
        taken[everything], other[everything] = 0.0, total
        taken[nothing], other[nothing] = total, 0.0
    changed = np.concatenate([[False], trivial]) | np.concatenate([trivial, [False]])
    p, q = (
        np.where(changed, _between(index, taken, other, target), target)
        for taken, other, target in ((left_p, right_p, p), (left_q, right_q, q))
    )
    gap = p - ratio * q
    excess, lack = np.maximum(gap, 0.0), np.maximum(-gap, 0.0)
    up, down = 1 / -math.expm1(-step), 1 / math.expm1(step)
    mass = p + down * excess + up * lack
    mass[1:] -= up * lack[:-1]
    mass[:-1] -= down * excess[1:]
    if float(mass.min()) < 0:
        # The curve is not convex, so use the largest convex curve below it, by pooling its slopes.
        width = np.diff(ratio)
        slope = -right_q - (excess[1:] - lack[:-1]) / width
        pooled = isotonic_fit(slope, width)
        total = float(q.sum())
        mass = np.where(
            np.concatenate([[True], pooled != slope]) | np.concatenate([pooled != slope, [True]]),
            ratio * np.diff(pooled, prepend=-total, append=0.0),
            mass,
        )
    return GridDistribution(step, low, np.maximum(mass, 0.0))


def _sides(mass: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return (n−1,) masses to the left and right of each gap between n points."""
    return np.cumsum(mass)[:-1], np.cumsum(mass[::-1])[::-1][1:]


def _between(
    index: NDArray[np.int64], left: FloatArray, right: FloatArray, mass: FloatArray
) -> FloatArray:
    """Return (n,) masses between gaps, from the cumulative sums on the smaller side."""
    total = float(mass.sum())
    by_left = np.diff(left, prepend=0.0, append=total)
    by_right = -np.diff(right, prepend=total, append=0.0)
    return np.where(index < 0, by_left, by_right)
