"""Shrinkage of estimates that are probably noise; clearly larger ones are unchanged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.noise.additive_noise import AdditiveNoise, noise_by_name
from dpgrain.statistics.consistency import finite_values, values_and_sds

# Minimum number of items with one prior distribution, and maximum number of groups.
_GROUP = 300
_GROUPS = 64
# Standard errors above which estimates are unchanged.
_CLEAR = 32.0
# Limits of estimates in standard errors: densities underflow below, and squares overflow above.
_LOWEST, _HIGHEST = -8.0, 1e12
# Limit of the log of a prior, relative to the median.
_SPAN = 18.0
# Maximum change by a prior, in standard errors, because the prior may be wrong.
_LIMIT = 3.0
# First edge of true values in standard errors, and the ratio of edges.
_FIRST, _STEP = 0.25, math.sqrt(2)
_ITERATIONS = 100
# Maximum number of entries in a table of moments.
_ENTRIES = 1 << 21


def shrink(
    estimate: Any, std_error: Any, prior: Any = None, *, noise: str = "gaussian"
) -> tuple[FloatArray, FloatArray]:
    """Return empirical-Bayes estimates of values ≥ 0, (V,), and their errors, (V,).

    Errors hold if values follow the fitted distribution; not standard errors of the noise.
    Source: Stephens, *False discovery rates: a new deal*, 2017; Efron and Morris 1972.
    """
    x, sd = values_and_sds("estimate", estimate, "std_error", std_error)
    law = noise_by_name(noise)
    scale = None if prior is None else finite_values("prior", prior, x.size)
    if scale is not None and (scale <= 0).any():
        raise ParameterError(
            f"prior must be above 0 everywhere, not {scale.min():g}; use a small positive number "
            "for items that were never observed."
        )
    group = _like(sd)
    better, error = np.maximum(x, 0.0), sd.copy()
    noisy = np.flatnonzero(sd > 0)
    # Sort by group to split without a search.
    noisy = noisy[np.argsort(group[noisy], kind="stable")]
    for rows in np.split(noisy, np.flatnonzero(np.diff(group[noisy])) + 1):
        if rows.size:
            # The ratio is infinite for negligible noise.
            with np.errstate(over="ignore"):
                z = x[rows] / sd[rows]
            unit = None if scale is None else np.log(scale[rows]) - np.log(sd[rows])
            result, spread = _shrunk(z, unit, law)
            # Unchanged values stay equal to the last bit.
            moved = result != z
            better[rows[moved]] = (result * sd[rows])[moved]
            error[rows] = spread * sd[rows]
    return better, error


@dataclass(frozen=True)
class _Truths:
    """Distribution of true values: an atom at 0 and a piecewise constant density."""

    edges: FloatArray  # (K + 1,) increasing from 0
    atom: float  # probability of 0
    heights: FloatArray  # (K,) density between edges


def _shrunk(
    z: FloatArray, unit: FloatArray | None, law: AdditiveNoise
) -> tuple[FloatArray, FloatArray]:
    """Return one group's estimates and errors in standard errors; ``unit``: log prior."""
    q = np.ones(z.size)
    if unit is not None:
        # The fitted distribution of true value ÷ prior absorbs the scale of the prior.
        q = np.exp(np.clip(unit - np.median(unit), -_SPAN, _SPAN))
    limited = np.clip(z, _LOWEST, _HIGHEST)
    truths = _fitted(limited, q, law, bumps=unit is not None)
    raw = np.maximum(z, 0.0)
    better, error = raw.copy(), np.ones(z.size)
    near = np.flatnonzero(z < _CLEAR)
    chunk = max(1, _ENTRIES // truths.edges.size)
    for start in range(0, near.size, chunk):
        rows = near[start : start + chunk]
        mean, variance, low = _posterior(limited[rows], q[rows], truths, law)
        if unit is None:
            result = low * mean + (1 - low) * raw[rows]
        else:
            result = np.clip(mean, raw[rows] - _LIMIT, raw[rows] + _LIMIT)
        better[rows] = result
        error[rows] = np.sqrt(variance + (result - mean) ** 2)
    return better, error


def _fitted(z: FloatArray, q: FloatArray, law: AdditiveNoise, *, bumps: bool) -> _Truths:
    """Return the maximum-likelihood distribution of true values, from binned estimates."""
    # Bin width: 1/8 of a standard error near 0, 1/32 of larger values; √2 for the unit.
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
    """Return 0 and a geometric sequence from ``unit``/4 to beyond ``largest``."""
    first = _FIRST * unit
    steps = math.ceil(math.log(largest / first) / math.log(_STEP)) + 1
    return np.concatenate([[0.0], first * _STEP ** np.arange(steps + 1.0)])


def _likeliest(likelihood: FloatArray, count: IntArray) -> FloatArray:
    """Fit weights of a mixture by EM, (K,), with a ``count`` per row of ``likelihood``."""
    weight = np.full(likelihood.shape[1], 1 / likelihood.shape[1])
    share = count / count.sum()
    for _ in range(_ITERATIONS):
        weight *= (share / (likelihood @ weight)) @ likelihood
    return np.asarray(weight / weight.sum())


def _posterior(
    z: FloatArray, q: FloatArray, truths: _Truths, law: AdditiveNoise
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return true values' mean and variance in standard errors, and P(value < 1)."""
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
    """Group similar standard errors, (V,): equal ones together, no group too small."""
    level, code, count = np.unique(std_error, return_inverse=True, return_counts=True)
    least = max(_GROUP, -(-std_error.size // _GROUPS))
    ends = np.cumsum(count)
    group, start, number = np.empty(level.size, dtype=np.int64), 0, 0
    while start < level.size:
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + least)) + 1
        # A rest that is too small for a group joins this one.
        if stop < level.size and ends[-1] - ends[stop - 1] < least:
            stop = level.size
        group[start:stop] = number
        start, number = stop, number + 1
    return np.asarray(group[code])
