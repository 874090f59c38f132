"""Samplers with their exact distributions, and a source with fixed words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from dpgrain.noise import SeededSource, discrete_laplace, distributions
from dpgrain.noise.distributions import rounded_gaussian

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Kind:
    """A sampler, its exact upper tail in floating point, and the law behind it."""

    name: str
    draw: Callable[..., IntArray]
    tail: Callable[[FloatArray, float], FloatArray]
    law: distributions.IntegerDistribution

    def __repr__(self) -> str:
        return self.name


def gaussian_tail(k: FloatArray, scale: float) -> FloatArray:
    return np.asarray(ndtr((0.5 - k) / scale))


def laplace_tail(k: FloatArray, scale: float) -> FloatArray:
    above = np.exp(-np.abs(k) / scale) / (1 + math.exp(-1 / scale))
    return np.where(k > 0, above, 1 - above * math.exp(-1 / scale))


GAUSSIAN = Kind("gaussian", rounded_gaussian, gaussian_tail, distributions._RoundedGaussian())
LAPLACE = Kind("laplace", discrete_laplace, laplace_tail, distributions._DiscreteLaplace())
KINDS = [GAUSSIAN, LAPLACE]
both = pytest.mark.parametrize("kind", KINDS, ids=repr)


SCALES = [0.3, 1.0, 3.7, 50.0, 1e4, 2.0**32, 2.0**40]


class Scripted:
    private = False

    def __init__(self, words: Iterable[int]) -> None:
        self.script = list(words)
        self.asked = 0
        self._rest = SeededSource(8)

    def words(self, size: int) -> NDArray[np.uint64]:
        self.asked += size
        given, self.script = self.script[:size], self.script[size:]
        rest = self._rest.words(size - len(given))
        return np.concatenate([np.array(given, dtype=np.uint64), rest])
