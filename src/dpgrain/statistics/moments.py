"""``dg.mean`` and ``dg.variance`` of a column of numbers, overall or by group."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from dpgrain._types import FloatArray, Law
from dpgrain.noise import RandomState
from dpgrain.publishing.promise import Promise
from dpgrain.statistics import values
from dpgrain.statistics.bounds import AutoClip
from dpgrain.statistics.histogram import By, checked_bounds
from dpgrain.statistics.intervals import half_width
from dpgrain.statistics.release import Estimates
from dpgrain.statistics.request import Request
from dpgrain.statistics.run import Measured, noisy_sums
from dpgrain.statistics.statistic import MEAN, VARIANCE
from dpgrain.statistics.values import Powers
from dpgrain.tables.table import UserTable
from dpgrain.units import Relation, Unit


def mean(
    table: UserTable,
    value: str,
    *,
    by: By = None,
    bounds: tuple[float, float] | None = None,
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
) -> Estimates:
    """Publish the mean of a column of numbers, overall or by group.

    Args:
        table: from :func:`dpgrain.read`.
        value: the column of numbers; rows without a finite one are left out.
        by: a column or several to group by; one number over all without it.
        bounds: (low, high): numbers beyond count as the nearer one; public. Without them a range is
            found privately with 15% of the budget.
        unit: what is protected.
        epsilon: the promised ε.
        delta: the promised δ.
        share: the share of the open budget, such as 0.5, in place of ε and δ; see
            :func:`dpgrain.budget`.
        relation: ``"zero_out"`` or ``"replace"``.
        clip: the norm to which each unit's masses are clipped; arguments not named here are as for
            :func:`dpgrain.histogram`.
        domain: the public groups.
        noise: the law of the noise; ``"auto"`` takes Laplace where that is known to be less.
        max_items: where groups are selected privately.
        random_state: a seed, for tests and research.
        progress: show progress.

    Returns:
        An :class:`~dpgrain.Estimates`: each mean with the noisy number of records that it divides by.

    Raises:
        ParameterError, SchemaError, DataError: as :func:`dpgrain.sum`.

    Formal guarantee: (ε, δ)-DP for one unit, for every table. Each record's 1 is split between the two
    bounds, so that sum and count are one noisy non-negative vector; the mean is post-processing of it
    and divides by a noisy count. Source: docs/theory.md, "Numbers as masses".

    >>> import pyarrow as pa
    >>> from dpgrain import User, read
    >>> table = read(pa.table({"who": [1, 1, 2], "score": [70, 90, 50]}), user="who")
    >>> release = mean(table, "score", bounds=(0, 100), unit=User(), epsilon=1, delta=1e-6)
    >>> 0 <= release.value <= 100
    True
    """
    request = Request.of(
        MEAN,
        table,
        by,
        promise=Promise.of(unit, epsilon, delta, relation, share),
        clip=clip,
        noise=noise,
        domain=domain,
        value=value,
        measure=values.moments(1),
        bounds=checked_bounds(bounds),
        max_items=max_items,
    )
    measured = noisy_sums(request, random_state, progress)
    low, width = _range(measured)
    masses, sd, z = measured.masses, measured.sd, half_width(request.noise)
    part = _shares(masses)[:, 1]
    count = masses.sum(axis=1)
    bottom, top = _ratio_interval(masses[:, 1], masses[:, 0], z * sd)
    return Estimates(
        measured.groups,
        low + width * part,
        width * _bounded_error(np.hypot(part, 1 - part) * sd, count),
        low + width * np.minimum(bottom, part),
        low + width * np.maximum(top, part),
        count,
        measured.guarantee,
        measured.cautioned(measured.masses.shape[1]),
        math.sqrt(measured.masses.shape[1]) * measured.sd,
    )


def variance(
    table: UserTable,
    value: str,
    *,
    by: By = None,
    bounds: tuple[float, float] | None = None,
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
) -> Estimates:
    """Publish the variance of a column of numbers (dividing by the count), overall or by group.

    Args:
        table: from :func:`dpgrain.read`.
        value: the column of numbers; rows without a finite one are left out.
        by: a column or several to group by; one number over all without it.
        bounds: (low, high), as for :func:`dpgrain.mean`, as are the arguments not named here.
        unit: what is protected.
        epsilon: the promised ε.
        delta: the promised δ.
        share: the share of the open budget, such as 0.5, in place of ε and δ; see
            :func:`dpgrain.budget`.
        relation: ``"zero_out"`` or ``"replace"``.
        clip: the norm to which each unit's masses are clipped.
        domain: the public groups.
        noise: the law of the noise; ``"auto"`` takes Laplace where that is known to be less.
        max_items: where groups are selected privately.
        random_state: a seed, for tests and research.
        progress: show progress.

    Returns:
        An :class:`~dpgrain.Estimates`. Its intervals are first-order ones; where the count is within
        noise they are all that the bounds allow.

    Raises:
        ParameterError, SchemaError, DataError: as :func:`dpgrain.sum`.

    Formal guarantee: (ε, δ)-DP for one unit, for every table. Each record's 1 is split between three
    corners (Bernstein polynomials of degree 2), of which count, mean and second moment are linear
    functions. Source: docs/theory.md, "Numbers as masses".

    >>> import pyarrow as pa
    >>> from dpgrain import User, read
    >>> table = read(pa.table({"who": [1, 1, 2], "score": [70, 90, 50]}), user="who")
    >>> release = variance(table, "score", bounds=(0, 100), unit=User(), epsilon=1, delta=1e-6)
    >>> 0 <= release.value <= 2500
    True
    """
    request = Request.of(
        VARIANCE,
        table,
        by,
        promise=Promise.of(unit, epsilon, delta, relation, share),
        clip=clip,
        noise=noise,
        domain=domain,
        value=value,
        measure=values.moments(2),
        bounds=checked_bounds(bounds),
        max_items=max_items,
    )
    measured = noisy_sums(request, random_state, progress)
    _, width = _range(measured)
    part = _shares(measured.masses)
    count, m = measured.masses.sum(axis=1), part[:, 1] / 2 + part[:, 2]
    spread = np.clip(part[:, 2] - m**2, 0.0, 0.25)
    # These are the derivatives of q − m² by each corner, with q and m as ratios to the count.
    slope = np.stack(
        [
            -(part[:, 2] - 2 * m**2),
            -m - (part[:, 2] - 2 * m**2),
            1 - 2 * m - (part[:, 2] - 2 * m**2),
        ]
    )
    error = _bounded_error(np.linalg.norm(slope, axis=0) * measured.sd, count)
    half = np.where(count > 4 * np.sqrt(3) * measured.sd, half_width(request.noise) * error, np.inf)
    return Estimates(
        measured.groups,
        width**2 * spread,
        width**2 * np.minimum(error, 0.25),
        width**2 * np.maximum(spread - half, 0.0),
        width**2 * np.minimum(spread + half, 0.25),
        count,
        measured.guarantee,
        measured.cautioned(measured.masses.shape[1]),
        math.sqrt(measured.masses.shape[1]) * measured.sd,
    )


def _range(measured: Measured) -> tuple[float, float]:
    split = measured.split
    assert isinstance(split, Powers)  # noqa: S101 - what values.moments makes
    return split.low, split.high - split.low


def _shares(masses: FloatArray) -> FloatArray:
    """Return the corners' shares of the count, (V, C); equal ones where all are at most 0."""
    positive = np.maximum(masses, 0.0)
    total = positive.sum(axis=1, keepdims=True)
    return np.where(total > 0, positive / np.where(total > 0, total, 1.0), 1 / masses.shape[1])


def _bounded_error(noise: FloatArray, count: FloatArray) -> FloatArray:
    """Return the error of a share that lies in [0, 1], for noise on its numerator."""
    return np.minimum(noise / np.maximum(count, noise), 1.0)


def _ratio_interval(
    upper: FloatArray, lower: FloatArray, radius: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return Fieller's interval for A/(A+B) in [0, 1], from independent noisy A and B.

    u lies in it if |(1−u)A − uB| ≤ radius·√((1−u)² + u²): a quadratic inequality a u² − 2 b u + c ≤ 0.
    """
    total, spread = upper + lower, radius**2
    a, b, c = total**2 - 2 * spread, total * upper - spread, upper**2 - spread
    root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
    # Without a count above the noise, every share is possible.
    known = (a > 0) & (total > 0)
    divisor = np.where(known, a, 1.0)
    low = np.where(known, (b - root) / divisor, 0.0)
    high = np.where(known, (b + root) / divisor, 1.0)
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
