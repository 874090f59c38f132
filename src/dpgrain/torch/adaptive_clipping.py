"""Adaptive clipping bound that follows a quantile of the blocks' gradient norms."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError

# Range of clipping bounds; squares of these neither overflow nor underflow in single precision.
SMALLEST_BOUND, LARGEST_BOUND = 1e-9, 1e9
# Weight of a count of 1, in clipping bounds, next to the gradient in a block's vector.
_COUNT_SHARE = 1 / 8
_LARGEST_RATE = 10.0


@dataclass(frozen=True)
class AdaptiveNorm:
    """Adaptive clipping bound that follows a quantile of the blocks' gradient norms.

    Args:
        quantile: the share of blocks with a norm below the bound, in (0, 1).
        start: the clipping bound of the first step.
        rate: the largest change of the bound's logarithm in a step, for a quantile of 0 or 1.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: a step publishes the noisy sum of vectors (g/bound, s/8), where g is the
    clipped gradient of a block and s in [−1, 1] measures how far its norm is below or above the
    bound. Their norm is at most √(1 + 1/64), so the noise is 0.8% larger and a run costs the same
    as with a fixed bound. Source: Andrew, Thakkar, McMahan & Ramaswamy 2021, "Differentially
    Private Learning with Adaptive Clipping", with a continuous count that does not require the
    number of blocks; docs/theory, "Gradient steps of networks".

    >>> rule = AdaptiveNorm(quantile=0.5)
    >>> rule.counts(np.array([0.1, 1.0, 7.0])).tolist()
    [1.0, 0.0, -1.0]
    >>> rule.next(2.0, share=-0.5) > 2.0
    True
    """

    quantile: float = 0.5
    start: float = 1.0
    rate: float = 0.2

    def __post_init__(self) -> None:
        _validate.plain_numbers(self)
        _validate.fraction(quantile=self.quantile)
        if _validate.positive(rate=self.rate) > _LARGEST_RATE:
            raise ParameterError(
                f"rate must be at most {_LARGEST_RATE:g}, not {self.rate!r}, because the bound "
                "would jump.",
                name="rate",
            )
        check_bound(start=self.start)

    @property
    def stretch(self) -> float:
        """Largest norm of a block's vector including its count, in clipping bounds."""
        return math.nextafter(math.hypot(1.0, _COUNT_SHARE), math.inf)

    @property
    def count_share(self) -> float:
        """Weight of a count of 1 in the vector, in clipping bounds."""
        return _COUNT_SHARE

    def counts(self, lengths: FloatArray) -> FloatArray:
        """Return the counts of blocks, in [−1, 1], which sum to 0 at the quantile.

        Args:
            lengths: (blocks,) norms of gradients ÷ the bound.

        Raises:
            ParameterError: if norms are not numbers.

        Within half an octave of the bound the count changes gradually. A rounding error of the norm
        therefore changes the count only slightly.
        """
        norms = _validate.float_array(lengths=lengths)
        with np.errstate(all="ignore"):
            below = np.clip(0.5 - np.log2(norms), 0.0, 1.0)
        # log 0 = −∞: a zero gradient is below any bound.
        return np.asarray((below - self.quantile) / self._largest)

    def next(self, bound: float, share: float) -> float:
        """Return the bound of the next step.

        Args:
            bound: the bound of this step.
            share: the noisy sum of counts ÷ the public number of blocks in a step.

        Raises:
            ParameterError: if the bound is not positive, or an argument is not a number.
        """
        excess = min(max(_validate.real(share=share) * self._largest, -1.0), 1.0)
        moved = _validate.positive(bound=bound) * math.exp(-self.rate * excess)
        return min(max(moved, SMALLEST_BOUND), LARGEST_BOUND)

    @property
    def _largest(self) -> float:
        return max(self.quantile, 1 - self.quantile)


def check_bound(**parameter: object) -> float:
    """Check and return a clipping bound, passed by its parameter name."""
    bound = _validate.positive(**parameter)
    if not SMALLEST_BOUND <= bound <= LARGEST_BOUND:
        ((name, value),) = parameter.items()
        raise ParameterError(
            f"{name} must be between {SMALLEST_BOUND:g} and {LARGEST_BOUND:g}, not "
            f"{_validate.describe(value)}; scale the loss.",
            name=name,
        )
    return bound
