"""Mean, variance and standard deviation of a numeric column, overall or by group."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.noise import RandomState
from dpgrain.publishing import Promise, Query, publishes
from dpgrain.statistics.bounds import AutoClip
from dpgrain.statistics.group_estimates import Estimates
from dpgrain.statistics.histogram import checked_bounds, estimates_clipping
from dpgrain.statistics.intervals import half_width, ratio_interval
from dpgrain.statistics.run import NoisySums
from dpgrain.statistics.statistic import MEAN, STD, VARIANCE
from dpgrain.statistics.sums_query import By, SumsQuery
from dpgrain.statistics.values import Moments, Powers
from dpgrain.tables.table import UserTable
from dpgrain.units import Law, Relation, Unit

# Assumed ratio of standard deviation to range in a plan, which reads no numbers.
_SHARE_OF_RANGE = 1 / 6


@publishes
def mean(
    table: UserTable,
    value: str,
    *,
    by: By = None,
    bounds: tuple[float, float] | None = None,
    estimate_clipping: bool = False,
    unit: Unit,
    epsilon: float | None = None,
    delta: float = 0.0,
    share: float | None = None,
    relation: Relation = "zero_out",
    clip: float | Literal["auto"] | AutoClip = "auto",
    domain: Any = None,
    noise: Law | Literal["auto"] = "auto",
    max_items: int = 1000,
    random_state: RandomState = None,
    progress: bool | None = None,
) -> Query[Estimates]:
    """Publish the mean of a column, overall or by group.

    Args:
        table: table from :func:`dpgrain.read`.
        value: column of numbers. Rows without a finite value are dropped.
        by: column or columns to group by; if omitted, one answer for all rows.
        bounds: public range (low, high) for clamping numbers; if omitted, chosen privately with 20%
            of the budget.
        estimate_clipping: estimate the share of values outside of ``bounds`` and, for counts and
            sums, of units clipped by an explicit ``clip``, with 5% of the budget each; by default,
            neither is estimated.
        unit: privacy unit: ``Record()``, ``Element(by)`` or ``User()``.
        epsilon: privacy parameter ε, such as 1; smaller protects more. Omit it if you pass
            ``share``.
        delta: privacy parameter δ, in (0, 1), such as 1e-6. Use 0 only with Laplace noise.
        share: share of the open budget, such as 0.5, instead of ε and δ; see
            :func:`dpgrain.budget`.
        relation: neighbouring relation: a unit is removed, ``zero_out``, or replaced by another,
            ``replace``.
        clip: clipping bound of a unit's data, a number or ``auto``. It bounds the l2 norm, or the
            l1 norm under Laplace noise; by default, one for each cell is chosen privately with a
            share of the budget.
        domain: public list of groups to publish. By default, groups are selected privately. For
            several columns, pass a mapping from columns to values (other columns are selected
            privately) or a list of tuples.
        noise: noise distribution; ``auto`` uses Laplace noise if known to be smaller.
        max_items: maximum number of groups or items of one unit used in selection.
        random_state: seed, for tests and research. The release is then *not private*.
        progress: show progress; by default on a terminal, after two seconds.

    Returns:
        An :class:`~dpgrain.Estimates`: each mean with the noisy number of records by which it is
        divided.

    Raises:
        ParameterError, SchemaError, DataError: as :func:`dpgrain.sum`.

    Formal guarantee: (ε, δ)-DP for one unit, for every table. Each record's 1 is split between the
    two bounds, so that sum and count are one noisy non-negative vector; the mean is post-processing
    of it and divides by a noisy count. Source: docs/theory, "Numbers as masses".

    >>> import pyarrow as pa
    >>> from dpgrain import User, read
    >>> table = read(pa.table({"who": [1, 1, 2], "score": [70, 90, 50]}), user="who")
    >>> release = mean(table, "score", bounds=(0, 100), unit=User(), epsilon=1, delta=1e-6)
    >>> 0 <= release.value <= 100
    True
    """
    return MeanQuery.of(
        MEAN, table, by, promise=Promise.of(unit, epsilon, delta, relation, share), clip=clip,
        noise=noise, domain=domain, value=value, measure=Moments.of(1),
        bounds=checked_bounds(bounds), max_items=max_items, random_state=random_state,
        progress=progress,
        estimate_clipping=estimates_clipping(estimate_clipping, checked_bounds(bounds)),
    )  # fmt: skip


class MeanQuery(SumsQuery[Estimates]):
    """Query for means."""

    def release(self, measured: NoisySums) -> Estimates:
        """Return the means, with 95% intervals."""
        z = half_width(self.noise)
        low, width = _range(measured)
        whole = _Totals.create(measured)
        part = _shares(whole.masses)[:, 1]
        error = _bounded_error(
            np.hypot(*whole.slopes(part, np.array([0.0, 1.0]))) * measured.sd, whole
        )
        if measured.everyone is None:
            bottom, top = ratio_interval(
                measured.masses[:, 1], measured.masses[:, 0], z * measured.sd
            )
        else:
            bottom, top = part - z * error, part + z * error
        below, above = (part + width * _shifted(measured) for part in _clamped(measured))
        ends = -math.inf, math.inf
        if measured.metadata.bounds is not None:
            ends = low, low + width
        return measured.as_estimates(
            low + width * part,
            width * error,
            np.maximum(low + width * np.clip(np.minimum(bottom, part), 0.0, 1.0) - below, ends[0]),
            np.minimum(low + width * np.clip(np.maximum(top, part), 0.0, 1.0) + above, ends[1]),
            whole.count,
            whole.count_error,
        )


@publishes
def variance(
    table: UserTable,
    value: str,
    *,
    by: By = None,
    bounds: tuple[float, float] | None = None,
    estimate_clipping: bool = False,
    unit: Unit,
    epsilon: float | None = None,
    delta: float = 0.0,
    share: float | None = None,
    relation: Relation = "zero_out",
    clip: float | Literal["auto"] | AutoClip = "auto",
    domain: Any = None,
    noise: Law | Literal["auto"] = "auto",
    max_items: int = 1000,
    random_state: RandomState = None,
    progress: bool | None = None,
) -> Query[Estimates]:
    """Publish the variance of a column, overall or by group.

    It divides by the count.

    Args:
        table: table from :func:`dpgrain.read`.
        value: column of numbers. Rows without a finite value are dropped.
        by: column or columns to group by; if omitted, one answer for all rows.
        bounds: public range (low, high) for clamping numbers; if omitted, chosen privately with 20%
            of the budget.
        estimate_clipping: estimate the share of values outside of ``bounds`` and, for counts and
            sums, of units clipped by an explicit ``clip``, with 5% of the budget each; by default,
            neither is estimated.
        unit: privacy unit: ``Record()``, ``Element(by)`` or ``User()``.
        epsilon: privacy parameter ε, such as 1; smaller protects more. Omit it if you pass
            ``share``.
        delta: privacy parameter δ, in (0, 1), such as 1e-6. Use 0 only with Laplace noise.
        share: share of the open budget, such as 0.5, instead of ε and δ; see
            :func:`dpgrain.budget`.
        relation: neighbouring relation: a unit is removed, ``zero_out``, or replaced by another,
            ``replace``.
        clip: clipping bound of a unit's data, a number or ``auto``. It bounds the l2 norm, or the
            l1 norm under Laplace noise; by default, one for each cell is chosen privately with a
            share of the budget.
        domain: public list of groups to publish. By default, groups are selected privately. For
            several columns, pass a mapping from columns to values (other columns are selected
            privately) or a list of tuples.
        noise: noise distribution; ``auto`` uses Laplace noise if known to be smaller.
        max_items: maximum number of groups or items of one unit used in selection.
        random_state: seed, for tests and research. The release is then *not private*.
        progress: show progress; by default on a terminal, after two seconds.

    Returns:
        An :class:`~dpgrain.Estimates`. Its intervals are first-order; for a count within the noise,
        they are the whole range that the bounds allow.

    Raises:
        ParameterError, SchemaError, DataError: as :func:`dpgrain.sum`.

    Formal guarantee: (ε, δ)-DP for one unit, for every table. Each record's 1 is split between
    three corners (Bernstein polynomials of degree 2). Count, mean and second moment are linear
    functions of them. Source: docs/theory, "Numbers as masses".

    >>> import pyarrow as pa
    >>> from dpgrain import User, read
    >>> table = read(pa.table({"who": [1, 1, 2], "score": [70, 90, 50]}), user="who")
    >>> release = variance(table, "score", bounds=(0, 100), unit=User(), epsilon=1, delta=1e-6)
    >>> 0 <= release.value <= 2500
    True
    """
    return VarianceQuery.of(
        VARIANCE, table, by, promise=Promise.of(unit, epsilon, delta, relation, share),
        clip=clip, noise=noise, domain=domain, value=value, measure=Moments.of(2),
        bounds=checked_bounds(bounds), max_items=max_items, random_state=random_state,
        progress=progress,
        estimate_clipping=estimates_clipping(estimate_clipping, checked_bounds(bounds)),
    )  # fmt: skip


class VarianceQuery(SumsQuery[Estimates]):
    """Query for variances."""

    def release(self, measured: NoisySums) -> Estimates:
        """Return the variances, with 95% intervals."""
        _, width = _range(measured)
        whole = _Totals.create(measured)
        part = _shares(whole.masses)
        m = part[:, 1] / 2 + part[:, 2]
        spread = np.clip(part[:, 2] - m**2, 0.0, 0.25)
        # Derivatives of q − m² by each corner, with q and m as ratios to the count.
        slope = whole.slopes(part[:, 2] - 2 * m**2, np.stack([0 * m, -m, 1 - 2 * m]))
        error = _bounded_error(np.linalg.norm(slope, axis=0) * measured.sd, whole)
        known = whole.count > 4 * whole.count_error
        half = np.where(known, half_width(self.noise) * error, np.inf)
        shifted = width**2 * _shifted(measured)
        high = width**2 * np.minimum(spread + half, 0.25) + sum(_clamped(measured)) + shifted
        if measured.metadata.bounds is not None:
            high = np.minimum(high, width**2 / 4)
        return measured.as_estimates(
            width**2 * spread,
            width**2 * np.minimum(error, 0.25),
            np.maximum(width**2 * (spread - half) - shifted, 0.0),
            high,
            whole.count,
            whole.count_error,
        )


@publishes
def std(
    table: UserTable,
    value: str,
    *,
    by: By = None,
    bounds: tuple[float, float] | None = None,
    estimate_clipping: bool = False,
    unit: Unit,
    epsilon: float | None = None,
    delta: float = 0.0,
    share: float | None = None,
    relation: Relation = "zero_out",
    clip: float | Literal["auto"] | AutoClip = "auto",
    domain: Any = None,
    noise: Law | Literal["auto"] = "auto",
    max_items: int = 1000,
    random_state: RandomState = None,
    progress: bool | None = None,
) -> Query[Estimates]:
    """Publish the standard deviation of a column.

    It is the root of :func:`dpgrain.variance`, overall or by group, in the units of the column.

    Args:
        table: table from :func:`dpgrain.read`.
        value: column of numbers. Rows without a finite value are dropped.
        by: column or columns to group by; if omitted, one answer for all rows.
        bounds: public range (low, high) for clamping numbers; if omitted, chosen privately with 20%
            of the budget.
        estimate_clipping: estimate the share of values outside of ``bounds`` and, for counts and
            sums, of units clipped by an explicit ``clip``, with 5% of the budget each; by default,
            neither is estimated.
        unit: privacy unit: ``Record()``, ``Element(by)`` or ``User()``.
        epsilon: privacy parameter ε, such as 1; smaller protects more. Omit it if you pass
            ``share``.
        delta: privacy parameter δ, in (0, 1), such as 1e-6. Use 0 only with Laplace noise.
        share: share of the open budget, such as 0.5, instead of ε and δ; see
            :func:`dpgrain.budget`.
        relation: neighbouring relation: a unit is removed, ``zero_out``, or replaced by another,
            ``replace``.
        clip: clipping bound of a unit's data, a number or ``auto``. It bounds the l2 norm, or the
            l1 norm under Laplace noise; by default, one for each cell is chosen privately with a
            share of the budget.
        domain: public list of groups to publish. By default, groups are selected privately. For
            several columns, pass a mapping from columns to values (other columns are selected
            privately) or a list of tuples.
        noise: noise distribution; ``auto`` uses Laplace noise if known to be smaller.
        max_items: maximum number of groups or items of one unit used in selection.
        random_state: seed, for tests and research. The release is then *not private*.
        progress: show progress; by default on a terminal, after two seconds.

    Returns:
        An :class:`~dpgrain.Estimates`, with the roots of the intervals of the variance.

    Raises:
        ParameterError, SchemaError, DataError: as :func:`dpgrain.sum`.

    Formal guarantee: (ε, δ)-DP for one unit, for every table; it is post-processing of a variance.
    Source: docs/theory, "Numbers as masses".

    >>> import pyarrow as pa
    >>> from dpgrain import User, read
    >>> table = read(pa.table({"who": [1, 1, 2], "score": [70, 90, 50]}), user="who")
    >>> release = std(table, "score", bounds=(0, 100), unit=User(), epsilon=1, delta=1e-6)
    >>> 0 <= release.value <= 50
    True
    """
    return StdQuery.of(
        STD, table, by, promise=Promise.of(unit, epsilon, delta, relation, share), clip=clip,
        noise=noise, domain=domain, value=value, measure=Deviations.of(2),
        bounds=checked_bounds(bounds), max_items=max_items, random_state=random_state,
        progress=progress,
        estimate_clipping=estimates_clipping(estimate_clipping, checked_bounds(bounds)),
    )  # fmt: skip


class Deviations(Moments):
    """Moments for a standard deviation."""

    def unit_value(self, low: float, high: float) -> float:
        """Return the effect of one record's noise on a deviation of a sixth of the range."""
        return super().unit_value(low, high) / (2 * _SHARE_OF_RANGE * (high - low))


class StdQuery(VarianceQuery):
    """Query for standard deviations."""

    def release(self, measured: NoisySums) -> Estimates:
        """Return the roots of the variances."""
        squared = super().release(measured)
        low, high = np.sqrt(squared.lower), np.sqrt(squared.upper)
        deviation = np.sqrt(squared.estimate)
        # Near 0 the root has no derivative, and the error is at most half of the interval.
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = squared.std_error / (2 * deviation)
        error = np.fmin(slope, (high - low) / (2 * half_width(self.noise)))
        return replace(squared, estimate=deviation, std_error=error, lower=low, upper=high)


@dataclass(frozen=True, eq=False)
class _Totals:
    """Masses of all covered rows: records, or a stated number of people."""

    masses: FloatArray  # (V, C), with people without records if these count 0
    count: FloatArray  # (V,) their sum
    count_error: FloatArray  # (V,); 0 for a stated number
    nothing: FloatArray | None  # (C,) of a person without records, if they count

    @staticmethod
    def create(measured: NoisySums) -> _Totals:
        masses, split = measured.masses, measured.split
        count = masses.sum(axis=1)
        if measured.everyone is None:
            return _Totals(masses, count, math.sqrt(masses.shape[1]) * measured.sd, None)
        assert isinstance(split, Powers)  # noqa: S101 - what values.moments makes
        nothing = split.of(0.0)
        # Post-processing: the rest of the stated number of people has no records.
        missing = measured.everyone - count
        stated = np.full(count.size, float(measured.everyone))
        return _Totals(masses + missing[:, None] * nothing, stated, np.zeros(count.size), nothing)

    def slopes(self, ratio: FloatArray, by_corner: FloatArray) -> FloatArray:
        """Return an estimate's slope in each corner's noise, times the count, (C, V)."""
        corners = by_corner if by_corner.ndim > 1 else by_corner[:, None]
        # Noise of a corner changes a noisy count, or the number of people without records.
        return corners - (ratio if self.nothing is None else self.nothing @ corners)


def _clamped(measured: NoisySums) -> tuple[FloatArray, FloatArray]:
    """Return the likely effects of clamping on both sides on each estimate, (V,)."""
    if measured.clamped is None:
        return np.zeros(len(measured.groups)), np.zeros(len(measured.groups))
    rows = np.ones(len(measured.groups))
    if measured.everyone is not None:
        # Estimates of the rows are averaged with people without records.
        rows = np.clip(measured.masses.sum(axis=1) / measured.everyone, 0.0, 1.0)
    return measured.clamped.below * rows, measured.clamped.above * rows


def _shifted(measured: NoisySums) -> FloatArray:
    """Return the likely effect of clipping on each estimate, (V,), in (squared) ranges."""
    return np.zeros(len(measured.groups)) if measured.shifted is None else measured.shifted


def _range(measured: NoisySums) -> tuple[float, float]:
    split = measured.split
    assert isinstance(split, Powers)  # noqa: S101 - what values.moments makes
    return split.low, split.high - split.low


def _shares(masses: FloatArray) -> FloatArray:
    """Return the corners' shares of the count, (V, C); equal ones if all are at most 0."""
    positive = np.maximum(masses, 0.0)
    total = positive.sum(axis=1, keepdims=True)
    return np.where(total > 0, positive / np.where(total > 0, total, 1.0), 1 / masses.shape[1])


def _bounded_error(noise: FloatArray, whole: _Totals) -> FloatArray:
    """Return the error of a share in [0, 1], for noise on its numerator."""
    least = np.maximum(noise, np.finfo(np.float64).tiny)
    return np.minimum(noise / np.maximum(whole.count, least), 1.0)
