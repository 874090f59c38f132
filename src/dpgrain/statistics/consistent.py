"""Non-negative counts nearest to noisy ones, with consistent totals."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.statistics.noisy import finite_values, group_codes, values_and_sds


def consistent(estimate: Any, std_error: Any, total: Any = None, groups: Any = None) -> FloatArray:
    """Return the nearest non-negative counts that add up to public totals.

    Args:
        estimate: (V,) the noisy counts.
        std_error: (V,) the standard deviation of their noise; a count with 0 is exact and stays.
        total: a public number ≥ 0, or (G,) one for each group; by default the noisy
            counts' own sum, or 0 if that is negative.
        groups: (V,) the group of each count, 0 … G − 1; by default all are one group.

    Returns:
        (V,) the x ≥ 0 with Σx = total, in each group, that minimise Σ(x − estimate)²/std_error².

    Raises:
        ParameterError: if an array is wrong, or exact counts leave no way to reach a total.

    x = max(0, estimate + λ·std_error²), with one λ a group, found by Newton's method on a
    convex, piecewise linear function, hence exactly and in finitely many steps. Source: Michelot,
    *A finite algorithm for finding the projection of a point onto the canonical simplex*, 1986.

    >>> consistent([5.0, 3.0, -2.0], [1.0, 1.0, 1.0], total=10.0)
    array([6., 4., 0.])
    """
    x, sd = values_and_sds("estimate", estimate, "std_error", std_error)
    group = np.zeros(x.size, dtype=np.int64) if groups is None else group_codes(groups, x.size)
    if total is None:
        goal = np.maximum(np.bincount(group, x, minlength=1), 0.0)
    else:
        goal = finite_values(
            "total", np.atleast_1d(_validate.float_array(total=total)), None, sign="total"
        )
    if group.size and group.max() >= goal.size:
        raise ParameterError(
            f"total must have one number per group, {group.max() + 1}, not {goal.size}."
        )
    exact = sd == 0
    fixed = np.maximum(x[exact], 0.0)
    rest = goal - np.bincount(group[exact], fixed, minlength=goal.size)
    free = np.bincount(group[~exact], minlength=goal.size) > 0
    # Exact counts may miss a total by rounding.
    slack = 1e-9 * (goal + 1)
    if (rest < -slack).any() or (~free & (rest > slack)).any():
        raise ParameterError(
            "total must be consistent with the exact counts of each group; correct the total or "
            "the counts."
        )
    answer = np.empty(x.size)
    answer[exact] = fixed
    answer[~exact] = _projected(x[~exact], sd[~exact], group[~exact], np.maximum(rest, 0.0))
    return answer


def reconcile(
    parts: Any, parts_sd: Any, totals: Any, totals_sd: Any, groups: Any
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Combine noisy parts with noisy totals of theirs, so that they add up.

    Args:
        parts: (V,) the noisy values.
        parts_sd: (V,) the standard deviation of their independent noise.
        totals: (G,) the noisy totals of the groups, whose noise is independent too.
        totals_sd: (G,) the standard deviation of the noise of totals.
        groups: (V,) the group of each part, 0 … G − 1.

    Returns:
        parts, their sd, totals, their sd: the best unbiased linear estimates; the parts of a group
        add up to its total (up to rounding), and no sd has grown. Errors are correlated now.

    Raises:
        ParameterError: if an array is wrong, or exact parts contradict an exact total.

    A gap D = total − Σparts has variance W = Σv + V. Every part takes v/W of it, the total gives
    V/W; the variances become v − v²/W and V·Σv/W (generalised least squares).

    >>> [a.round(2).tolist() for a in reconcile([4.0, 6.0], [1.0, 1.0], [13.0], [1.0], [0, 0])]
    [[5.0, 7.0], [0.82, 0.82], [12.0], [0.82]]
    """
    x, sd = values_and_sds("parts", parts, "parts_sd", parts_sd)
    whole, whole_sd = values_and_sds("totals", totals, "totals_sd", totals_sd)
    group = group_codes(groups, x.size)
    if group.size and group.max() >= whole.size:
        raise ParameterError(
            f"totals must have one number per group, {group.max() + 1}, not {whole.size}."
        )
    v, big = sd**2, whole_sd**2
    small = np.bincount(group, v, minlength=whole.size)
    width = small + big
    gap = whole - np.bincount(group, x, minlength=whole.size)
    exact = width == 0
    if (exact & (np.abs(gap) > 1e-9 * (np.abs(whole) + 1))).any():
        raise ParameterError("totals must equal the sum of their parts if both are exact (sd 0).")
    share = np.divide(1.0, width, out=np.zeros_like(width), where=~exact)
    return (
        x + v * (gap * share)[group],
        np.sqrt(np.maximum(v - v**2 * share[group], 0.0)),
        whole - big * gap * share,
        np.sqrt(big * small * share),
    )


def _projected(x: FloatArray, sd: FloatArray, group: IntArray, goal: FloatArray) -> FloatArray:
    """Return the projection of :func:`consistent`, with every sd above 0."""
    # In units of each group's largest sd, and from 1e-100 on, variances neither overflow nor vanish.
    unit = np.zeros(goal.size)
    np.maximum.at(unit, group, sd)
    v = np.maximum(sd / unit[group], 1e-100) ** 2
    active = np.ones(x.size, dtype=np.bool_)
    while True:
        reached, weight = (
            np.bincount(group[active], part[active], minlength=goal.size) for part in (x, v)
        )
        step = np.divide(goal - reached, weight, out=np.full(goal.size, -np.inf), where=weight > 0)
        answer = x + step[group] * v
        # The multiplier falls from step to step, so a count that has left does not come back.
        still = active & (answer > 0)
        if (still == active).all():
            return np.where(active, answer, 0.0)
        active = still
