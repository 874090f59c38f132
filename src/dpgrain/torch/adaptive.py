"""An adaptive clipping bound, which follows the norms of blocks counted beside their sum."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpgrain import _fields, _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError

# Ends of the range of bounds, where squares in single precision neither overflow nor vanish.
SMALLEST_BOUND, LARGEST_BOUND = 1e-9, 1e9
# A count of 1 has this share of the bound in the vector of which a block's gradient is the rest.
_COUNT_SHARE = 1 / 8
_LARGEST_RATE = 10.0


@dataclass(frozen=True)
class AdaptiveNorm:
    """An adaptive clipping bound, which follows a quantile of the norms of blocks' gradients.

    Args:
        quantile: the share of blocks that should be shorter than the bound, in (0, 1).
        start: the bound of the first step.
        rate: the largest step of the bound's logarithm, for a quantile at 0 or 1.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: a step publishes the noisy sum of vectors (g/bound, s/8), g the clipped gradient
    of a block and s in [−1, 1] how far it is shorter or longer than the bound. They have norm
    √(1 + 1/64) at most, for which the noise is larger: 0.8%. So a run costs what one with a fixed bound
    does. Source: Andrew, Thakkar, McMahan & Ramaswamy 2021, "Differentially Private Learning with
    Adaptive Clipping", with a count that has no edge, and whose zero does not need the number of
    blocks; docs/theory, "Gradient steps of networks".

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
        _validate.plain(self)
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
        """The largest norm of a block's vector with its count, in clipping bounds."""
        return math.nextafter(math.hypot(1.0, _COUNT_SHARE), math.inf)

    @property
    def count_share(self) -> float:
        """The share of a count of 1 in the vector, in clipping bounds."""
        return _COUNT_SHARE

    def counts(self, lengths: FloatArray) -> FloatArray:
        """Return what blocks count, in [−1, 1]: their sum is 0 where the bound is the quantile.

        Args:
            lengths: (blocks,) norms of gradients ÷ the bound.

        Raises:
            ParameterError: if norms are no numbers.

        Within half an octave of the bound the count changes gradually, so that rounding moves it by as
        little as it moves the norm.
        """
        norms = _fields.numbers(lengths=lengths)
        with np.errstate(all="ignore"):
            below = np.clip(0.5 - np.log2(norms), 0.0, 1.0)
        # The logarithm of 0 is −∞: the gradient of such a block is shorter than any bound.
        return np.asarray((below - self.quantile) / self._largest)

    def next(self, bound: float, share: float) -> float:
        """Return the bound of the next step.

        Args:
            bound: that of this step.
            share: the noisy sum of counts ÷ the public number of blocks in a step.

        Raises:
            ParameterError: if the bound is not above 0, or one of both is no number.
        """
        excess = min(max(_validate.real(share=share) * self._largest, -1.0), 1.0)
        moved = _validate.positive(bound=bound) * math.exp(-self.rate * excess)
        return min(max(moved, SMALLEST_BOUND), LARGEST_BOUND)

    @property
    def _largest(self) -> float:
        return max(self.quantile, 1 - self.quantile)


def check_bound(**parameter: float) -> float:
    """Check a clipping bound, passed by its name, and return it.

    Raises:
        ParameterError: if squares of such a bound would overflow or vanish in single precision.
    """
    bound = _validate.positive(**parameter)
    if not SMALLEST_BOUND <= bound <= LARGEST_BOUND:
        ((name, value),) = parameter.items()
        raise ParameterError(
            f"{name} must be between {SMALLEST_BOUND:g} and {LARGEST_BOUND:g}, not "
            f"{_validate.said(value)}; scale the loss.",
            name=name,
        )
    return bound
