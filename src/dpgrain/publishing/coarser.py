"""Coarser copies of a release: the same sums with more noise, for those who are trusted less.

All copies lie on one chain: each adds noise to the next finer one, by bits that follow from the finer
one's secret. So whoever holds some of them learns no more than from the finest of these. Proof:
docs/theory, "Coarser copies".
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpgrain import _fields, _validate
from dpgrain._types import FloatArray
from dpgrain._wording import rounded_up
from dpgrain.accounting import Gaussian
from dpgrain.errors import ParameterError
from dpgrain.noise.laws import rounded_gaussian
from dpgrain.publishing.guarantee import Guarantee

# Ratio of the noise multipliers of two neighbouring copies: their ε differ by about 1%.
_RATIO = 1.01
# Copies of a chain: the last has 20,000 times the noise of the first.
_RUNGS = 1000
# Factor on the noise between copies, for the roundings of its computation.
_MORE = 1 + 2.0**-40
# Steps of the grid above which a sum in floating point may have lost its last ones.
_EXACT = 2.0**51


@dataclass(frozen=True, repr=False)
class Chain:
    """The place of a release among its copies, with the secret from which coarser ones follow.

    Args:
        secret: 64 hexadecimal digits, known to holders of this copy and of finer ones.
        finest: the noise multiplier of the first copy.
        radius: the clipping bound in steps of the grid.
        step: what one step of the grid stands for in an estimate.
        rung: the number of copies that are finer.
    """

    secret: str
    finest: float
    radius: float
    step: float
    rung: int = 0

    def __post_init__(self) -> None:
        _fields.check(self)

    def scaled(self, scale: float) -> Chain:
        """Return the chain of sums in another unit.

        Args:
            scale: the number that a sum of 1 stands for; below 0 where the sums are of magnitudes.
        """
        return replace(self, step=self.step * scale)

    def multiplier(self, rung: int) -> float:
        """Return the noise multiplier of a copy."""
        return float(self.finest * _RATIO**rung)

    @property
    def std_error(self) -> float:
        """The standard deviation of the noise of this copy."""
        return self.multiplier(self.rung) * self.radius * abs(self.step)

    def coarser(self) -> Chain:
        """Return the place of the next coarser copy, whose secret does not tell this one."""
        secret = hashlib.sha256(b"dpgrain, next copy" + bytes.fromhex(self.secret)).hexdigest()
        return replace(self, secret=secret, rung=self.rung + 1)

    def noise(self, size: int) -> NDArray[np.int64]:
        """Return the noise between this copy and the next coarser one, in steps, (size,)."""
        more = self.radius * self.multiplier(self.rung) * math.sqrt(_RATIO**2 - 1)
        scale = more * _MORE
        return rounded_gaussian(scale, size, source=_Secret(bytes.fromhex(self.secret)))

    def reached(self, guarantee: Guarantee, epsilon: float) -> int:
        """Return the number of the finest copy with an ε that is no larger.

        Args:
            guarantee: the guarantee of this copy.
            epsilon: the largest ε.

        Raises:
            ParameterError: if ε is not above 0, above that of this copy, or below those of all copies.
        """
        epsilon, own = _validate.positive(epsilon=epsilon), guarantee.epsilon()
        if epsilon > own:
            raise ParameterError(
                f"epsilon must be at most {rounded_up(own, 6)}, that of this release, not {epsilon:g}: "
                "its noise cannot be taken off.",
                name="epsilon",
            )
        first, last = self.rung, _RUNGS
        if self.promised(guarantee, last).epsilon() > epsilon:
            raise ParameterError(
                f"epsilon must be at least {rounded_up(self.promised(guarantee, last).epsilon())}, "
                f"that of the coarsest copy, not {epsilon:g}.",
                name="epsilon",
            )
        while first < last:
            middle = (first + last) // 2
            if self.promised(guarantee, middle).epsilon() <= epsilon:
                last = middle
            else:
                first = middle + 1
        return first

    def promised(self, guarantee: Guarantee, rung: int) -> Guarantee:
        """Return the guarantee of a copy, made from that of this one.

        Args:
            guarantee: the guarantee of this copy.
            rung: the number of the other copy.
        """
        if rung == self.rung:
            return guarantee
        event = guarantee.event
        assert isinstance(event, Gaussian)  # noqa: S101 - a chain is of one sum alone
        said = (
            "it is a coarser copy of another release, made without a look at the data: whoever holds "
            "several copies learns no more than from the finest of these"
        )
        return replace(
            guarantee,
            event=replace(event, noise_multiplier=self.multiplier(rung)),
            public=tuple(dict.fromkeys((*guarantee.public, said))),
        )

    def steps(self, estimate: FloatArray) -> NDArray[np.int64]:
        """Return estimates in steps of the grid, (V,).

        Raises:
            ParameterError: if one is too large to be known to the step.
        """
        if not (np.abs(estimate) < _EXACT * abs(self.step)).all():
            raise ParameterError(
                "an estimate is too large beside its noise for copies: state a larger clip=."
            )
        return np.rint(estimate / self.step).astype(np.int64)


class _Secret:
    """Bits that follow from a secret, for noise that is the same whenever it is drawn."""

    private = True

    def __init__(self, secret: bytes) -> None:
        self._secret, self._read = secret, 0

    def words(self, size: int) -> NDArray[np.uint64]:
        """Draw ``size`` words: SHAKE-256 of the secret and a counter."""
        counter, self._read = self._read.to_bytes(8, "big"), self._read + 1
        stream = hashlib.shake_256(b"dpgrain, noise of a copy" + counter + self._secret)
        return np.frombuffer(stream.digest(8 * size), dtype=np.uint64)
