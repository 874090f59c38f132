"""Coarser copies of a release: the same sums with more noise, for those who are trusted less.

All copies lie on one chain: each adds noise to the next finer one, by bits that follow from the finer
one's secret. So whoever holds some of them learns no more than from the finest of these. Proof:
docs/theory, "Coarser copies".
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpgrain import _fields, _validate
from dpgrain._wording import rounded_up
from dpgrain.accounting import Event, Gaussian
from dpgrain.errors import ParameterError
from dpgrain.noise.laws import rounded_gaussian
from dpgrain.publishing.guarantee import Guarantee

# Ratio of the noise multipliers of two neighbouring copies: their ε differ by about 1%.
_RATIO = 1.01
# Copies of a chain: the last has 20,000 times the noise of the first.
_RUNGS = 1000
# Factor on the noise between copies, for the roundings of its computation.
_MORE = 1 + 2.0**-40
# Standard deviation of noise in steps of the grid: the least for which there are copies, and the
# largest that is drawn.
_FINE, _FAR = 2.0**20, 2.0**40
# Magnitude of a step below which its product with a whole number may be rounded.
_SMALLEST = 1e-290


@dataclass(frozen=True, repr=False)
class Chain:
    """The place of a release among its copies, with the secret from which coarser ones follow.

    Args:
        secret: 64 hexadecimal digits, known to holders of this copy and of finer ones.
        finest: the noise multiplier of the first copy.
        radius: the clipping bound in steps of the grid.
        step: what one step of the grid stands for in an estimate.
        rung: the number of copies that are finer.

    It follows from public numbers alone whether a release has a chain, and how long that is.
    """

    secret: str
    finest: float
    radius: float
    step: float
    rung: int = 0

    def __post_init__(self) -> None:
        _fields.check(self)

    @staticmethod
    def of(
        event: Event, whole: Event, radius: float, step: float, secret: Callable[[], str]
    ) -> Chain | None:
        """Return the chain of noisy sums, or None where they have no copies.

        Args:
            event: the event of the sums.
            whole: the event of all that was drawn for them.
            radius: the clipping bound in steps of the grid.
            step: a step of the grid.
            secret: the function that draws the secret.
        """
        if not isinstance(event, Gaussian) or event.count > 1 or event != whole:
            return None
        if radius * event.noise_multiplier < _FINE:
            return None
        return Chain(secret(), event.noise_multiplier, radius, step)

    def scaled(self, scale: float) -> Chain | None:
        """Return the chain of sums in another unit; None where that is too small for one.

        Args:
            scale: the number that a sum of 1 stands for; below 0 where the sums are of magnitudes.
        """
        step = self.step * scale
        return replace(self, step=step) if abs(step) >= _SMALLEST else None

    def multiplier(self, rung: int) -> float:
        """Return the noise multiplier of a copy."""
        return float(self.finest * _RATIO**rung)

    @property
    def mark(self) -> str:
        """A hash of the secret, which tells nothing of it; a hash of numbers and it cannot be tried."""
        return hashlib.sha256(b"dpgrain, mark" + bytes.fromhex(self.secret)).hexdigest()

    @property
    def _last(self) -> int:
        """The number of the coarsest copy: the noise before it must be one that is drawn."""
        most = _FAR / (self.radius * self.finest * _MORE * math.sqrt(_RATIO**2 - 1))
        return max(self.rung, min(_RUNGS, math.floor(math.log(most) / math.log(_RATIO))))

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

    def reached(self, guarantee: Guarantee, epsilon: float, stated: float) -> int:
        """Return the number of the finest copy with an ε that is no larger.

        Args:
            guarantee: the guarantee of this copy.
            epsilon: the largest ε.
            stated: the ε that was asked for when it was made, of which its own may fall a little short.

        Raises:
            ParameterError: if ε is not above 0, above that of this copy, or below those of all copies.
        """
        epsilon, own = _validate.positive(epsilon=epsilon), guarantee.epsilon()
        if epsilon > max(own, stated):
            raise ParameterError(
                f"epsilon must be at most {rounded_up(own, 6)}, that of this "
                f"{'copy' if self.rung else 'release'}, not {epsilon:g}: noise cannot be taken off"
                f"{', but a finer copy may be asked' if self.rung else ''}.",
                name="epsilon",
            )
        first, last = self.rung, self._last
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
