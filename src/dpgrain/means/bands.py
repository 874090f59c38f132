"""Noise with cancellation over rounds: a banded matrix, the same in every round, and its noise.

What is published of all rounds is X + C⁻¹Z, row by row, for the sums X and independent noise Z. C is
lower triangular, its columns are one column that is shifted down, and only b entries of it are not 0.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import minimize
from scipy.signal import lfilter

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError

# Distance of a column's norm from 1, which is more than the norm may be off.
_ROUNDING = 2.0**-40
_MOST_ITERATIONS = 200
# Log error of a column whose inverse diverges.
_HOPELESS = 1e3


@dataclass(frozen=True)
class Bands:
    """A column of the matrix that correlates noise.

    Args:
        column: (bands,) its entries from the diagonal down, of norm at most 1, of which the first is
            above 0.

    Raises:
        ParameterError: if the norm is above 1, or the first entry is not above 0.

    >>> round(Bands((0.6, 0.8)).prefix_error(2), 3)
    1.712
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
        """Return the column with which sums of the first t rounds have the least noise, over all t.

        Args:
            bands: how many entries of it are not 0.
            rounds: how many rounds there are.

        Raises:
            ParameterError: if a number is out of range.

        Source: McKenna 2024, "Scaling up the Banded Matrix Factorization Mechanism for Differentially
        Private ML", section 4.

        >>> [round(entry, 3) for entry in Bands.best(3, 100).column]
        [0.719, 0.532, 0.447]
        """
        bands = _validate.integer(minimum=1, bands=bands)
        return _best(bands, _validate.integer(minimum=1, rounds=rounds))

    @property
    def bands(self) -> int:
        """The number of bands."""
        return len(self.column)

    def sds(self, rounds: int) -> FloatArray:
        """Return (rounds,) the sd of the noise of each round, for independent noise of sd 1."""
        result: FloatArray = np.sqrt(np.cumsum(_inverse(np.array(self.column), rounds) ** 2))
        return result

    def prefix_error(self, rounds: int) -> float:
        """Return the rms noise of sums of the first t rounds, t from 1 to ``rounds``.

        Args:
            rounds: how many rounds there are.

        Independent noise of sd 1 in each round has √((rounds + 1)/2).
        """
        result, weights = np.cumsum(_inverse(np.array(self.column), rounds)), _weights(rounds)
        return math.sqrt(float(weights @ (result * result)) / rounds)


class Correlated:
    """The noise of one run, round by round.

    Args:
        bands: the matrix.

    It keeps what the last ``bands − 1`` rounds had, which nobody may see: with the published sums
    it gives away the sums without noise.
    """

    def __init__(self, bands: Bands) -> None:
        self._bands = bands
        self.past: deque[FloatArray] = deque(maxlen=bands.bands - 1)

    def next(self, fresh: FloatArray) -> FloatArray:
        """Return the noise of the next round.

        Args:
            fresh: (d,) independent noise of the round.

        Formal guarantee: the rounds' noises are C⁻¹Z, row by row, for the rows Z that were passed.
        """
        first, *others = self._bands.column
        noise = fresh.copy()
        for entry, before in zip(others, self.past, strict=False):
            noise -= entry * before
        noise /= first
        self.past.appendleft(noise)
        return noise

    def load(self, past: Sequence[FloatArray]) -> None:
        """Take up the noise of the last rounds, from the last one back; of none to begin anew."""
        self.past = deque(past, maxlen=self._bands.bands - 1)


@lru_cache(maxsize=64)
def _best(bands: int, rounds: int) -> Bands:
    weights, places = _weights(rounds), np.arange(1, bands)
    # The square root of the matrix of prefix sums is best without bands.
    root = np.concatenate([[1.0], np.cumprod((2 * places - 1) / (2 * places))])

    def log_error(column: FloatArray) -> tuple[float, FloatArray]:
        with np.errstate(all="ignore"):
            result = np.cumsum(_inverse(column, rounds))
            error, length = float(weights @ (result * result)), float(column @ column)
            # 1/((1−x)c(x)) = g(x) falls by g(x)·x^k/c(x) with the kth entry.
            falls, weighted = lfilter([1.0], column, result), weights * result
            slope = [-2 * float(weighted[k:] @ falls[: max(rounds - k, 0)]) for k in range(bands)]
            log, slopes = math.log(error * length), np.array(slope) / error + 2 * column / length
        # The inverse of a column that was tried may grow without end.
        finite = math.isfinite(log) and np.isfinite(slopes).all()
        return (log, slopes) if finite else (_HOPELESS, np.zeros(bands))

    # The scale does not matter: the first entry stays 1.
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
    """Return (rounds,) the first column of the inverse matrix."""
    one = np.zeros(rounds)
    one[0] = 1.0
    result: FloatArray = lfilter([1.0], column, one)
    return result


def _weights(rounds: int) -> FloatArray:
    """Return (rounds,) in how many prefix sums the noise of each lag counts."""
    return np.arange(rounds, 0, -1, dtype=np.float64)
