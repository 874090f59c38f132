"""Non-negative counts closest to noisy ones, with consistent totals."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError, raise_without_context


def values_and_sds(name: str, values: Any, sd_name: str, sds: Any) -> tuple[FloatArray, FloatArray]:
    """Check values and their standard deviations, one each or one for all values."""
    x = finite_values(name, values, None)
    spread = np.asarray(sds)
    if spread.ndim == 0:
        spread = np.broadcast_to(spread, x.shape)
    return x, finite_values(sd_name, spread, x.size, sign=sd_name)


def finite_values(name: str, values: Any, size: int | None, *, sign: str = "") -> FloatArray:
    """Return finite numbers of a length, (V,); non-negative if ``sign`` is passed."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise_without_context(ParameterError(f"{name} must be an array of numbers."))
    if array.ndim != 1 or (size is not None and array.size != size):
        length = "one-dimensional" if size is None else f"of length {size}"
        raise ParameterError(f"{name} must be an array {length}, not of shape {array.shape}.")
    wrong = ~np.isfinite(array)
    if sign:
        wrong |= array < 0
    if wrong.any():
        rule = "finite and at least 0" if sign else "finite"
        raise ParameterError(f"{name} must be {rule} everywhere, not {array[wrong][0]:g}.")
    return array


def consistent(estimate: Any, std_error: Any, total: Any = None, groups: Any = None) -> FloatArray:
    """Return the nearest non-negative counts with public totals, one per group, (G,).

    They minimise Σ(x − estimate)²/std_error²: x = max(0, estimate + λ·std_error²), one λ per group
    (Michelot, *Projection of a point onto the canonical simplex*, 1986); an error of 0 is exact.
    """
    x, sd = values_and_sds("estimate", estimate, "std_error", std_error)
    group = np.zeros(x.size, np.int64) if groups is None else np.asarray(groups, np.int64)
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
    # Tolerance for rounding of exact counts.
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
    """Return parts, their sd, totals and their sd, so that parts add up to totals.

    Best linear unbiased estimates: a gap of variance W = Σv + V is shared as v/W and V/W, and the
    variances become v − v²/W and V·Σv/W. Errors are then correlated.
    """
    x, sd = values_and_sds("parts", parts, "parts_sd", parts_sd)
    whole, whole_sd = values_and_sds("totals", totals, "totals_sd", totals_sd)
    group = np.asarray(groups, np.int64)
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
    """Return the projection of :func:`consistent`, for positive sd."""
    # In units of each group's largest sd, and from 1e-100 on, variances neither overflow nor
    # vanish.
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
        # The multiplier decreases in each step, so removed counts stay removed.
        still = active & (answer > 0)
        if (still == active).all():
            return np.where(active, answer, 0.0)
        active = still
