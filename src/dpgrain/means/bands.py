"""Noise that cancels over rounds, correlated by a banded matrix.

The published results of all rounds are X + C⁻¹Z, row by row, for the sums X and independent noise
Z. C is a lower triangular Toeplitz matrix with b bands.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.signal import lfilter

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.means.clipped import ClippedMean

# Margin below 1 for the norm of a column; larger than the rounding error of the norm.
_ROUNDING = 2.0**-40
_MOST_ITERATIONS = 200
# Log error assigned to a column with a diverging inverse.
_HOPELESS = 1e3


@dataclass(frozen=True)
class Bands:
    """Column of the matrix that correlates noise, from the diagonal down, (bands,).

    Its norm is at most 1, and its first entry is positive.
    """

    column: tuple[float, ...]

    def __post_init__(self) -> None:
        norm = math.sqrt(math.fsum(entry * entry for entry in self.column))
        if not norm <= 1 or not self.column[0] > 0:
            raise ParameterError(
                f"column must have norm at most 1 and begin above 0, not {self.column!r}, because "
                "a larger norm costs more than is accounted for."
            )

    @staticmethod
    def best(bands: int, rounds: int) -> Bands:
        """Return the column with the least noise in sums of the first t rounds, for all t.

        Source: McKenna 2024, "Scaling up the Banded Matrix Factorization Mechanism for
        Differentially Private ML", section 4.
        """
        bands = _validate.integer(minimum=1, bands=bands)
        return _best(bands, _validate.integer(minimum=1, rounds=rounds))

    @property
    def bands(self) -> int:
        """Number of bands."""
        return len(self.column)

    def sds(self, rounds: int) -> FloatArray:
        """Return the noise sd of each round for independent noise of sd 1, (rounds,)."""
        result: FloatArray = np.sqrt(np.cumsum(_inverse(np.array(self.column), rounds) ** 2))
        return result

    def prefix_error(self, rounds: int) -> float:
        """Return the RMS noise of sums of the first t rounds, t from 1 to ``rounds``."""
        result, weights = np.cumsum(_inverse(np.array(self.column), rounds)), _weights(rounds)
        return math.sqrt(float(weights @ (result * result)) / rounds)


class Correlated:
    """Correlated noise of one run, round by round.

    It stores the noise of the last ``bands − 1`` rounds, which must stay secret: together with the
    published sums it reveals the exact sums.
    """

    def __init__(self, bands: Bands) -> None:
        self._bands = bands
        self.past: deque[Any] = deque(maxlen=bands.bands - 1)

    def next(self, fresh: FloatArray) -> FloatArray:
        """Return the noise of the next round from independent noise, (d,).

        Formal guarantee: the rounds' noises are C⁻¹Z, row by row, for the passed rows Z.
        """
        first, *others = self._bands.column
        noise = fresh
        for entry, before in zip(others, self.past, strict=False):
            noise = noise - entry * before
        noise = noise / first
        self.past.appendleft(noise)
        return noise

    def load(self, past: Sequence[FloatArray]) -> None:
        """Restore the noise of the last rounds, latest first; none to start again."""
        self.past = deque(past, maxlen=self._bands.bands - 1)


@lru_cache(maxsize=64)
def _best(bands: int, rounds: int) -> Bands:
    weights, places = _weights(rounds), np.arange(1, bands)
    # Without bands, the square root of the matrix of prefix sums is optimal.
    root = np.concatenate([[1.0], np.cumprod((2 * places - 1) / (2 * places))])

    def log_error(column: FloatArray) -> tuple[float, FloatArray]:
        with np.errstate(all="ignore"):
            result = np.cumsum(_inverse(column, rounds))
            error, length = float(weights @ (result * result)), float(column @ column)
            # 1/((1−x)c(x)) = g(x) decreases by g(x)·x^k/c(x) with the kth entry.
            falls, weighted = lfilter([1.0], column, result), weights * result
            slope = [-2 * float(weighted[k:] @ falls[: max(rounds - k, 0)]) for k in range(bands)]
            log, slopes = math.log(error * length), np.array(slope) / error + 2 * column / length
        # The inverse of a candidate column can grow without limit.
        finite = math.isfinite(log) and np.isfinite(slopes).all()
        return (log, slopes) if finite else (_HOPELESS, np.zeros(bands))

    # The scale is irrelevant: the first entry remains 1.
    limits = [(1.0, 1.0), *[(0.0, 1.0)] * (bands - 1)]
    result = minimize(
        log_error,
        root,
        jac=True,
        method="L-BFGS-B",
        bounds=limits,
        options={"maxiter": _MOST_ITERATIONS},
    ).x
    unit = result / float(np.linalg.norm(result)) * (1 - _ROUNDING)
    return Bands(tuple(unit.tolist()))


def _inverse(column: FloatArray, rounds: int) -> FloatArray:
    """Return the first column of the inverse matrix, (rounds,)."""
    one = np.zeros(rounds)
    one[0] = 1.0
    result: FloatArray = lfilter([1.0], column, one)
    return result


def _weights(rounds: int) -> FloatArray:
    """Return the number of prefix sums that include the noise of each lag, (rounds,)."""
    return np.arange(rounds, 0, -1, dtype=np.float64)


# Share of the noise that more bands must save to be chosen.
_WORTH = 0.01
#: Default maximum number of bands.
MAX_BANDS = 256


def band_candidates(*, most: int = MAX_BANDS, **promise: Any) -> list[ClippedMean]:
    """Return clipped means under one guarantee, for powers of 2 as numbers of bands."""
    result = [ClippedMean.calibrate(**promise)]
    rate, bands = result[0].sampling_rate, 2
    while bands * rate <= 1 and bands <= min(result[0].rounds, most):
        result.append(ClippedMean.calibrate(**promise, bands=bands))
        bands *= 2
    return result


def best(means: Iterable[ClippedMean]) -> ClippedMean:
    """Return the mean with the fewest bands and almost the least noise in sums."""
    noise = {mean: mean.prefix_noise for mean in means}
    least = min(noise.values())
    return next(mean for mean, of_sums in noise.items() if of_sums <= least * (1 + _WORTH))
