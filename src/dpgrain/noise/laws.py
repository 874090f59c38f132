"""The rounded Gaussian and the discrete Laplace law on the integers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpgrain import _fields, _validate
from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.noise.inversion import sample
from dpgrain.noise.sources import Source, given
from dpgrain.noise.special import ndtri

MIN_SCALE, MAX_SCALE = 2.0**-30, 2.0**40
# A truncated law must keep about this share of the draws at least.
_LEAST_KEPT_SHARE = 2.0**-10
# Numbers that a truncated law draws at a time, at most, some of which are thrown away.
_BATCH_DRAWS = 1 << 20


class _RoundedGaussian:
    """The law of round(N(0, scale²)), with P(X ≥ k) = Φ̄((k − ½)/scale)."""

    def jump_position(self, tail: FloatArray, scale: FloatArray) -> FloatArray:
        position: FloatArray = ndtri(tail)
        position *= scale
        np.subtract(0.5, position, out=position)
        return position

    def tail(self, k: int, scale: float, mp: Any) -> Any:
        z = (mp.mpf(2 * k - 1) / 2) / (mp.mpf(scale) * mp.sqrt(2))
        return mp.erfc(z) / 2


class _DiscreteLaplace:
    """The law P(X = k) ∝ e^{−|k|/scale}, with P(X ≥ k) = e^{−k/scale}/(1 + e^{−1/scale})."""

    def jump_position(self, tail: FloatArray, scale: FloatArray) -> FloatArray:
        # y = −scale·ln(U(1 + e^{−1/scale})) is computed as −scale·(ln 2U + ln((1 + e^{−1/scale})/2)),
        # whose second logarithm keeps its precision at large scales.
        shift = np.log1p(np.expm1(-1.0 / scale) / 2)
        position: FloatArray = -scale * (np.log(2 * tail) + shift)
        return np.maximum(position, 0.0, out=position)

    def tail(self, k: int, scale: float, mp: Any) -> Any:
        scale_ = mp.mpf(scale)
        return mp.exp(-k / scale_) / (1 + mp.exp(-1 / scale_))


def rounded_gaussian(
    scale: ArrayLike, size: int | None = None, *, source: Source | None = None
) -> IntArray:
    """Draw round(Z), Z normal with mean 0 and the given standard deviation, exactly.

    Args:
        scale: standard deviation in grid steps, one number or one per sample, in [2^-30, 2^40].
        size: number of samples; by default one per scale.
        source: random bits; by default the operating system's.

    Raises:
        ParameterError: if a scale is not in [2^-30, 2^40].

    Formal guarantee: f + round(Z) = round(f + Z) for an integer vector f, so releasing it is
    post-processing of the continuous Gaussian mechanism, whose exact curve applies in any dimension.
    The law is exact (total-variation distance 0): see :mod:`dpgrain.noise.inversion`.

    >>> rounded_gaussian(1000.0, 5).shape
    (5,)
    """
    return sample(_RoundedGaussian(), _scales(scale, size), given(source))


def discrete_laplace(
    scale: ArrayLike, size: int | None = None, *, source: Source | None = None
) -> IntArray:
    """Draw from P(k) ∝ exp(−|k|/scale) on the integers, exactly.

    Args:
        scale: scale in grid steps, one number or one per sample, in [2^-30, 2^40].
        size: number of samples; by default one per scale.
        source: random bits; by default the operating system's.

    Raises:
        ParameterError: if a scale is not in [2^-30, 2^40].

    Formal guarantee: added to an integer vector of l1 sensitivity Δ the noise is (Δ/scale)-DP. The law
    is exact. Source: element-level paper, eq. (6), on the integers (two-sided geometric law).

    >>> discrete_laplace([1.5, 2.0**40]).shape
    (2,)
    """
    return sample(_DiscreteLaplace(), _scales(scale, size), given(source))


def truncated_geometric(
    epsilon: float, cutoff: int, size: int, *, source: Source | None = None
) -> IntArray:
    """Draw from P(x) ∝ exp(−ε|x|) on the integers from −cutoff to cutoff, exactly.

    Args:
        epsilon: the rate ε of the law, in (2^-40, 2^30).
        cutoff: the largest value, with ε·cutoff ≥ 2^-10.
        size: the number of samples.
        source: random bits; by default the operating system's.

    Raises:
        ParameterError: if a parameter is out of range.

    Formal guarantee: added to integer counts of which one changes by one, the noise is
    (ε, P(X = cutoff))-DP. The law is exact: draws of the discrete Laplace law beyond the cutoff are
    drawn again, and the scale 1/ε is rounded up. Source: docs/theory, "Truncated noise".

    >>> bool(abs(truncated_geometric(0.5, 4, 100)).max() <= 4)
    True
    """
    epsilon = _validate.positive(epsilon=epsilon)
    cutoff = _validate.integer(minimum=1, cutoff=cutoff)
    out = np.empty(_validate.integer(minimum=0, size=size), dtype=np.int64)
    if epsilon * cutoff < _LEAST_KEPT_SHARE:
        # Nearly all draws would be thrown away.
        raise ParameterError(
            f"cutoff must be at least 2^-10/epsilon, not {_validate.said(cutoff)}."
        )
    scale = raised(1 / epsilon)
    # More than this share of the draws is kept, so that on average a batch holds all that are missing.
    share, filled = min(epsilon * cutoff, 1.0) / 2, 0
    while filled < out.size:
        tries = min(math.ceil((out.size - filled) / share), _BATCH_DRAWS)
        drawn = discrete_laplace(scale, tries, source=source)
        inside = drawn[np.abs(drawn) <= cutoff][: out.size - filled]
        out[filled : filled + inside.size] = inside
        filled += inside.size
    return out


def raised(scale: FloatArray | float) -> FloatArray:
    """Raise a scale that was computed with one rounding above its exact value: more noise, not less.

    Args:
        scale: the scale, or several.

    >>> bool(raised(3.0) > 3.0)
    True
    """
    return np.asarray(scale * (1 + 2.0**-51), dtype=np.float64)


def _scales(scale: ArrayLike, size: int | None) -> FloatArray:
    scales = np.atleast_1d(_fields.numbers(scale=scale))
    if scales.ndim > 1 or np.asarray(scale).dtype.kind == "b":
        raise ParameterError(
            f"scale must be a number or a list of numbers, not {_validate.said(scale)}."
        )
    bad = ~((scales >= MIN_SCALE) & (scales <= MAX_SCALE))
    if bad.any():
        raise ParameterError(
            f"scale must lie in [2^-30, 2^40] grid steps, not {float(scales[bad][0])!r}; "
            "use another grid."
        )
    if size is None:
        return scales
    size = _validate.integer(minimum=0, size=size)
    if scales.size not in (1, size):
        raise ParameterError(f"size must be the number of scales, {scales.size}, not {size}.")
    return np.broadcast_to(scales, (size,))
