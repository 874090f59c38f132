"""Better estimates from noisy ones: free of charge, since only what is public is read.

- :func:`shrink`: what is probably noise is pulled down, what stands clear of it is left alone;
- :func:`unclip`: undo what clipping took away, where the bound was chosen to balance the noise;
- :func:`consistent`, :func:`reconcile`: counts that are not negative and add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgrain import _validate
from dpgrain._special import ndtr
from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError

# Items that share one law of true values, at least; and groups, at most.
_GROUP = 300
_GROUPS = 64
# Estimates so many standard errors above 0 are left as they are.
_CLEAR = 32.0
# What lies deeper below 0 says no more than "0", and a density there underflows; what lies higher
# no more than "far", and its square may overflow.
_LOWEST, _HIGHEST = -8.0, 1e12
# The logarithms of the prior's values, around their middle: none counts as further away.
_SPAN = 18.0
# Against a wrong prior: no estimate moves by more standard errors than this.
_LIMIT = 3.0
# The intervals of true values: from a quarter of a standard error, in steps of √2.
_FIRST, _STEP = 0.25, math.sqrt(2)
_ITERATIONS = 100
# Entries of a table of moments, at most.
_ENTRIES = 1 << 21
# Sums of which clipping left less than this share say too little to be scaled up.
_LARGEST_GAIN = 4.0


def shrink(
    estimate: Any,
    std_error: Any,
    prior: Any = None,
    groups: Any = None,
    *,
    noise: str = "gaussian",
) -> tuple[FloatArray, FloatArray]:
    """Empirical-Bayes estimates of true values ≥ 0: post-processing of noisy ones.

    Args:
        estimate: (V,) noisy values.
        std_error: (V,) standard deviation of the noise; what has 0 is exact and stays.
        prior: (V,) public values above 0, to which the true ones may be proportional.
        groups: (V,) whole numbers: items of one group share one law of true values; by default
            items of like ``std_error``, at least 300 together.
        noise: ``"gaussian"`` or ``"laplace"``.

    Returns:
        (V,) estimates ≥ 0 and (V,) their root mean square errors *if* true values follow the fitted
        law: approximate, of no meaning for one chosen item, not standard errors of the noise.

    Raises:
        ParameterError: if an array is not finite, or has another length or sign than it should.

    In each group, true value ÷ ``std_error`` follows an unknown law that falls from 0 upwards: an
    atom at 0 and uniform laws on [0, a], a in steps of √2, fitted by maximum likelihood (EM). The
    answer is p·m + (1 − p)·max(estimate, 0), for the posterior mean m and the posterior probability
    p that the true value lies below one standard error: what is probably noise is shrunk, the
    rest left alone, because clipping has lowered it already. With a prior, true value ÷ prior
    follows such a law with bumps (uniform laws between neighbouring a too), the answer is the posterior
    mean, and moves by at most three standard errors; its scale is fitted.

    Source: Stephens, *False discovery rates: a new deal*, Biostatistics 2017 (mixtures of uniform
    laws); Efron and Morris 1972 (limited translation).

    >>> noisy = np.r_[np.random.default_rng(0).normal(0, 1, 1000), 50.0]
    >>> better, error = shrink(noisy, np.ones(1001))
    >>> float(np.abs(better[:-1]).max().round(1)), float(better[-1])
    (0.1, 50.0)
    """
    x, sd = _pair("estimate", estimate, "std_error", std_error)
    law = _law_of(noise)
    scale = None if prior is None else _values("prior", prior, x.size)
    if scale is not None and (scale <= 0).any():
        raise ParameterError(
            f"prior must be above 0 everywhere, not {scale.min():g}: "
            "give items that were never seen a small number."
        )
    group = _like(sd) if groups is None else _codes(groups, x.size)
    better, error = np.maximum(x, 0.0), sd.copy()
    noisy = np.flatnonzero(sd > 0)
    # Rows by group, so that each is found without a search.
    noisy = noisy[np.argsort(group[noisy], kind="stable")]
    for rows in np.split(noisy, np.flatnonzero(np.diff(group[noisy])) + 1):
        if rows.size:
            # Infinite where the noise is all but nothing.
            with np.errstate(over="ignore"):
                z = x[rows] / sd[rows]
            unit = None if scale is None else np.log(scale[rows]) - np.log(sd[rows])
            found, spread = _shrunk(z, unit, law)
            # To the last bit, where nothing moved.
            moved = found != z
            better[rows[moved]] = (found * sd[rows])[moved]
            error[rows] = spread * sd[rows]
    return better, error


def unclip(
    estimate: Any, std_error: Any, shrunk: Any, groups: Any = None
) -> tuple[FloatArray, FloatArray]:
    """Scale up what clipping lowered, where ``clip="auto"`` chose the bounds: an approximation.

    Args:
        estimate: (V,) the noisy sums as released.
        std_error: (V,) standard deviation of their Gaussian noise.
        shrunk: (V,) what :func:`shrink` made of them; this is scaled.
        groups: (V,) the cell of each item; by default items of equal ``std_error`` are one cell.

    Returns:
        (V,) scaled estimates of what the users hold, before clipping, and (V,) the factors, 1 to 4.

    Raises:
        ParameterError: if an array is not finite, or has another length or sign than it should.

    A bound r that minimises T² + N, for the norm T that is clipped off and the noise energy N = mσ² of
    a cell of m items, has T·S = N/r, where S blocks are clipped. S·r is at most the norm A of
    all that is left, so T/A ≥ N/A²: the noise tells the loss. A is taken to be the norm of the
    clipped sum, max(‖shrunk‖², ‖estimate‖² − N) ≈ A², and all items of a cell to lose the same
    share: right where most users hold a cell's items in like proportions. Wrong, and harmful, for
    bounds that were given or data that were not clipped.

    >>> unclip([30.0, 40.0], [10.0, 10.0], [30.0, 40.0])[1].round(3)
    array([1.08, 1.08])
    """
    x, sd = _pair("estimate", estimate, "std_error", std_error)
    y = _values("shrunk", shrunk, x.size)
    cell = sd if groups is None else _codes(groups, x.size)
    code = np.unique(cell, return_inverse=True)[1]
    noise, seen, kept = (np.bincount(code, square) for square in (sd**2, x**2, y**2))
    left = np.maximum(kept, seen - noise)
    # A cell in which nothing is left stays as it is.
    gain = 1 + np.divide(noise, left, out=np.zeros(left.size), where=left > 0)
    gain = np.minimum(gain, _LARGEST_GAIN)[code]
    return y * gain, gain


def consistent(estimate: Any, std_error: Any, total: Any = None, groups: Any = None) -> FloatArray:
    """The nearest counts that are not negative and add up to public totals.

    Args:
        estimate: (V,) noisy counts.
        std_error: (V,) standard deviation of their noise; what has 0 is exact and stays.
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
    x, sd = _pair("estimate", estimate, "std_error", std_error)
    group = np.zeros(x.size, dtype=np.int64) if groups is None else _codes(groups, x.size)
    if total is None:
        goal = np.maximum(np.bincount(group, x, minlength=1), 0.0)
    else:
        goal = _values("total", np.atleast_1d(np.asarray(total)), None, sign="total")
    if group.size and group.max() >= goal.size:
        raise ParameterError(
            f"total must have one number for each group, so {group.max() + 1}, not {goal.size}."
        )
    exact = sd == 0
    fixed = np.maximum(x[exact], 0.0)
    rest = goal - np.bincount(group[exact], fixed, minlength=goal.size)
    free = np.bincount(group[~exact], minlength=goal.size) > 0
    # Exact counts may miss a total by rounding.
    slack = 1e-9 * (goal + 1)
    if (rest < -slack).any() or (~free & (rest > slack)).any():
        raise ParameterError("total must be reachable: the exact counts of a group do not fit it.")
    answer = np.empty(x.size)
    answer[exact] = fixed
    answer[~exact] = _projected(x[~exact], sd[~exact], group[~exact], np.maximum(rest, 0.0))
    return answer


def reconcile(
    parts: Any, parts_sd: Any, totals: Any, totals_sd: Any, groups: Any
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Combine noisy parts with noisy totals of theirs, so that they add up.

    Args:
        parts: (V,) noisy values.
        parts_sd: (V,) standard deviation of their independent noise.
        totals: (G,) noisy totals of the groups, with noise of its own.
        totals_sd: (G,) its standard deviation.
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
    x, sd = _pair("parts", parts, "parts_sd", parts_sd)
    whole, whole_sd = _pair("totals", totals, "totals_sd", totals_sd)
    group = _codes(groups, x.size)
    if group.size and group.max() >= whole.size:
        raise ParameterError(
            f"totals must have one number for each group, so {group.max() + 1}, not {whole.size}."
        )
    v, big = sd**2, whole_sd**2
    small = np.bincount(group, v, minlength=whole.size)
    width = small + big
    gap = whole - np.bincount(group, x, minlength=whole.size)
    exact = width == 0
    if (exact & (np.abs(gap) > 1e-9 * (np.abs(whole) + 1))).any():
        raise ParameterError("totals must agree with their parts where both are exact (sd 0).")
    share = np.divide(1.0, width, out=np.zeros_like(width), where=~exact)
    return (
        x + v * (gap * share)[group],
        np.sqrt(np.maximum(v - v**2 * share[group], 0.0)),
        whole - big * gap * share,
        np.sqrt(big * small * share),
    )


def _projected(x: FloatArray, sd: FloatArray, group: IntArray, goal: FloatArray) -> FloatArray:
    """The projection of :func:`consistent`, with every sd above 0."""
    # In units of each group's largest sd, and at least 1e-100: variances neither overflow nor vanish.
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
        # The multiplier falls from step to step, so what has left does not come back.
        still = active & (answer > 0)
        if (still == active).all():
            return np.where(active, answer, 0.0)
        active = still


# Laws of the noise ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Law:
    """A law with mean 0 and variance 1.

    Args:
        density: f(u).
        partial: ∫f, ∫vf and ∫v²f over v < u.
    """

    density: Callable[[FloatArray], FloatArray]
    partial: Callable[[FloatArray], tuple[FloatArray, FloatArray, FloatArray]]


def _normal_density(u: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-0.5 * u * u) / math.sqrt(2 * math.pi))


def _normal_partial(u: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    below, density = ndtr(u), _normal_density(u)
    return below, -density, below - u * density


def _laplace_density(u: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-math.sqrt(2) * np.abs(u)) / math.sqrt(2))


def _laplace_partial(u: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    b, size = 1 / math.sqrt(2), np.abs(u)
    tail = 0.5 * np.exp(-size / b)
    second = tail * (size**2 + 2 * b * size + 2 * b**2)
    return np.where(u < 0, tail, 1 - tail), -tail * (size + b), np.where(u < 0, second, 1 - second)


_LAWS = {
    "gaussian": _Law(_normal_density, _normal_partial),
    "laplace": _Law(_laplace_density, _laplace_partial),
}


def _law_of(noise: str) -> _Law:
    return _LAWS[_validate.one_of(list(_LAWS), noise=noise)]


# The law of true values --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Truths:
    """A law of true values ÷ unit: an atom at 0 and a density that is constant between edges.

    Args:
        edges: (K + 1,) from 0 upwards.
        atom: the probability of 0.
        heights: (K,) the density between neighbouring edges.
    """

    edges: FloatArray
    atom: float
    heights: FloatArray


def _shrunk(z: FloatArray, unit: FloatArray | None, law: _Law) -> tuple[FloatArray, FloatArray]:
    """The estimates and errors of one group, in standard errors; ``unit`` is the prior's log."""
    q = np.ones(z.size)
    if unit is not None:
        # The prior's scale is anybody's choice; the law of true value ÷ prior takes it up.
        q = np.exp(np.clip(unit - np.median(unit), -_SPAN, _SPAN))
    held = np.clip(z, _LOWEST, _HIGHEST)
    truths = _fitted(held, q, law, bumps=unit is not None)
    raw = np.maximum(z, 0.0)
    better, error = raw.copy(), np.ones(z.size)
    near = np.flatnonzero(z < _CLEAR)
    chunk = max(1, _ENTRIES // truths.edges.size)
    for start in range(0, near.size, chunk):
        rows = near[start : start + chunk]
        mean, variance, low = _posterior(held[rows], q[rows], truths, law)
        if unit is None:
            found = low * mean + (1 - low) * raw[rows]
        else:
            found = np.clip(mean, raw[rows] - _LIMIT, raw[rows] + _LIMIT)
        better[rows] = found
        error[rows] = np.sqrt(variance + (found - mean) ** 2)
    return better, error


def _fitted(z: FloatArray, q: FloatArray, law: _Law, *, bumps: bool) -> _Truths:
    """The law of true values that makes the estimates likeliest, from estimates in bins."""
    # Bins an eighth of a standard error wide near 0, 1/32 of the value far from it; √2 for the unit.
    code = np.stack([np.rint(32 * np.arcsinh(z / 4)), np.rint(2 * np.log2(q))])
    (z_code, q_code), count = np.unique(code, axis=1, return_counts=True)
    z, q = 4 * np.sinh(z_code / 32), 2 ** (q_code / 2)
    edges = _edges(float(1 / q.max()), float(((np.maximum(z, 0) + 4) / q).max()))
    width = np.diff(edges)
    below = law.partial(z[:, None] - q[:, None] * edges)[0]
    laws = [law.density(z)[:, None], (below[:, :1] - below[:, 1:]) / (q[:, None] * edges[1:])]
    if bumps:
        laws.append((below[:, :-1] - below[:, 1:]) / (q[:, None] * width))
    weight = _likeliest(np.maximum(np.hstack(laws), 0.0), count)
    falling = weight[1 : edges.size] / edges[1:]
    heights = np.cumsum(falling[::-1])[::-1]
    if bumps:
        heights = heights + weight[edges.size :] / width
    return _Truths(edges, float(weight[0]), heights)


def _edges(unit: float, largest: float) -> FloatArray:
    """0 and a geometric sequence from a quarter of ``unit`` to beyond ``largest``."""
    first = _FIRST * unit
    steps = math.ceil(math.log(largest / first) / math.log(_STEP)) + 1
    return np.concatenate([[0.0], first * _STEP ** np.arange(steps + 1.0)])


def _likeliest(likelihood: FloatArray, count: IntArray) -> FloatArray:
    """(K,) weights of a mixture by EM; ``likelihood`` is (rows, K), each row counts ``count``."""
    weight = np.full(likelihood.shape[1], 1 / likelihood.shape[1])
    share = count / count.sum()
    for _ in range(_ITERATIONS):
        weight *= (share / (likelihood @ weight)) @ likelihood
    return np.asarray(weight / weight.sum())


def _posterior(
    z: FloatArray, q: FloatArray, truths: _Truths, law: _Law
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean and variance of true values, in standard errors, and the odds that they are below 1."""
    below = [-np.diff(part, axis=1) for part in law.partial(z[:, None] - q[:, None] * truths.edges)]
    mass, first, second = (part @ truths.heights / q for part in below)
    atom = truths.atom * law.density(z)
    seen = atom + mass
    mean = np.maximum((z * mass - first) / seen, 0.0)
    variance = np.maximum((z**2 * mass - 2 * z * first + second) / seen - mean**2, 0.0)
    # Edges are steps of √2 from a quarter, so 1 is one of them where q = 1.
    small = truths.edges[1:] < 1.01
    low = (atom + below[0][:, small] @ truths.heights[small] / q) / seen
    return mean, variance, np.clip(low, 0.0, 1.0)


def _like(std_error: FloatArray) -> IntArray:
    """(V,) groups of neighbouring standard errors: equal ones together, none too small."""
    level, code, count = np.unique(std_error, return_inverse=True, return_counts=True)
    least = max(_GROUP, -(-std_error.size // _GROUPS))
    ends = np.cumsum(count)
    group, start, number = np.empty(level.size, dtype=np.int64), 0, 0
    while start < level.size:
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + least)) + 1
        # What is left over is too little for a group of its own.
        if stop < level.size and ends[-1] - ends[stop - 1] < least:
            stop = level.size
        group[start:stop] = number
        start, number = stop, number + 1
    return np.asarray(group[code])


# Checks ------------------------------------------------------------------------------------------


def _pair(name: str, values: Any, sd_name: str, sds: Any) -> tuple[FloatArray, FloatArray]:
    """Values and their standard deviations, checked; one standard deviation serves all values."""
    x = _values(name, values, None)
    spread = np.asarray(sds)
    if spread.ndim == 0:
        spread = np.broadcast_to(spread, x.shape)
    return x, _values(sd_name, spread, x.size, sign=sd_name)


def _values(name: str, values: Any, size: int | None, *, sign: str = "") -> FloatArray:
    """(V,) finite numbers, of the given length, not negative where ``sign`` is given."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"{name} must be an array of numbers.") from None
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


def _codes(groups: Any, size: int) -> IntArray:
    """(V,) whole numbers from 0."""
    array = np.asarray(groups)
    if array.shape != (size,) or (size and not np.issubdtype(array.dtype, np.integer)):
        raise ParameterError(
            f"groups must be {size} whole numbers, not {array.dtype} of shape {array.shape}."
        )
    if size and array.min() < 0:
        raise ParameterError(f"groups must count from 0, not from {array.min()}.")
    return np.asarray(array, dtype=np.int64)
