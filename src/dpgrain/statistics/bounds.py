"""Clipping bounds chosen privately, one per cell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpgrain import _validate
from dpgrain.data.kernel import FloatArray, IntArray
from dpgrain.errors import ParameterError


@dataclass(frozen=True)
class AutoClip:
    """Choose a clipping bound per cell from a noisy histogram of block norms.

    Args:
        share: the share of the budget (of μ², or of ε under Laplace noise) that the choice gets.
        low: the smallest norm of interest, public; 1 for counts.
        high: the largest norm of interest, public.

    Raises:
        ParameterError: if the share is not in (0, 1) or the range is empty.

    >>> AutoClip(share=0.2)
    AutoClip(share=0.2, low=1.0, high=67108864.0)
    """

    share: float = 0.15
    low: float = 1.0
    high: float = 2.0**26

    def __post_init__(self) -> None:
        _validate.fraction(share=self.share)
        low = _validate.positive(low=self.low)
        if not low < _validate.positive(high=self.high) <= low * 2.0**40:
            raise ParameterError(f"high must lie above low={low:g} and below 2^40 times it, "
                                 f"not {self.high!r}.")

    @property
    def edges(self) -> FloatArray:
        return bin_edges(self.low, self.high)


def bin_edges(low: float, high: float) -> FloatArray:
    n = int(np.ceil(np.log2(high / low))) + 1
    return low * 2.0 ** np.arange(n)


def choose_bounds(
    noisy_counts: FloatArray, edges: FloatArray, count_sd: float, coordinates: IntArray,
    noise_multiplier: float,
) -> FloatArray:
    """Placeholder."""
    return np.full(len(noisy_counts), edges[3])
