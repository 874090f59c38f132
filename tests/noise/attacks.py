"""Attacks on numbers: each distinguishes two neighbours by a flaw that ideal noise lacks.

A mechanism is the target: from a secret number, or from rows, to many outputs. An attack names an
outcome typical of the first of two neighbours; its frequencies on both give a lower bound on ε, by
exact binomial bounds. In addition to this library's mechanisms there are plain textbook ones, on
which the same attacks succeed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgrain.auditing.epsilon_bounds import (
    event_epsilon,
    probability_lower_bound,
    probability_upper_bound,
)

FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]
Mechanism: TypeAlias = Callable[[float, int], Any]
Decide: TypeAlias = Callable[[Any], BoolArray]

#: Error probability of a bound.
ALPHA = 1e-3


@dataclass(frozen=True)
class Attack:
    """A way to distinguish the outputs of two neighbours."""

    decide: Decide
    first: float
    second: float

    def epsilon(self, mechanism: Mechanism, draws: int) -> float:
        """Return a lower bound on the ε of a mechanism, right with probability 1 − ALPHA.

        Args:
            draws: how many outputs of each neighbour are looked at.
        """
        taken = [
            int(np.count_nonzero(self.decide(mechanism(secret, draws))))
            for secret in (self.first, self.second)
        ]
        likely = probability_lower_bound(taken[0], draws, ALPHA / 2)
        return event_epsilon(likely, probability_upper_bound(taken[1], draws, ALPHA / 2), 0.0)

    def most(self, draws: int) -> float:
        """Return the bound of an attack that is always right: the most that n outputs can show."""
        return event_epsilon(
            probability_lower_bound(draws, draws, ALPHA / 2),
            probability_upper_bound(0, draws, ALPHA / 2),
            0.0,
        )


# ------------------------------------------------------------------------------------------ low bits

# Steps of the uniform numbers behind NumPy's noise, and candidates on each side.
_UNIFORM_STEPS, _AROUND = 2.0**53, 4


def is_laplace(outputs: FloatArray, secret: float, scale: float) -> BoolArray:
    """Whether outputs are a secret with noise that the textbook makes of one of 2⁵³ uniform numbers.

    Source: Mironov, "On significance of the least significant bits for differential privacy", 2012.

    Args:
        outputs: (n,) what was released.
    """
    nearest = np.rint(np.exp(-np.abs(outputs - secret) / scale) / 2 * _UNIFORM_STEPS)
    sign = np.sign(outputs - secret)
    found = np.zeros(outputs.shape, dtype=bool)
    for more in range(-_AROUND, _AROUND + 1):
        uniform = (nearest + more) / _UNIFORM_STEPS
        with np.errstate(divide="ignore", invalid="ignore"):
            found |= secret + textbook(uniform, scale, sign) == outputs
    return found


def textbook(uniform: FloatArray, scale: float, sign: FloatArray) -> FloatArray:
    """The inverse of Laplace's law, in floating point."""
    return -sign * scale * np.log(2 * uniform)


def low_bits(scale: float) -> Attack:
    """An output that noise can reach from 0, but not from 1, came from 0."""

    def decide(outputs: FloatArray) -> BoolArray:
        return is_laplace(outputs, 0.0, scale) & ~is_laplace(outputs, 1.0, scale)

    return Attack(decide, 0.0, 1.0)


def precision() -> Attack:
    """An output finer than any number near 1 has not had 1 beneath it.

    Source: Haney, Desfontaines, Hartman, Shrestha & Hay, "Precision-based attacks and interval
    refining", 2022.
    """

    def decide(outputs: FloatArray) -> BoolArray:
        fine = outputs * 2.0**53
        return np.asarray(fine != np.rint(fine))

    return Attack(decide, 0.0, 1.0)


def off_grid(step: float) -> Attack:
    """An output between two numbers of the noise's grid reveals the number under the noise."""
    return Attack(lambda outputs: np.asarray(outputs / step != np.rint(outputs / step)), 1 / 3, 0.0)


# -------------------------------------------------------------------------------------- order of sums


def rows_of(first: float, count: int = 1 << 14) -> NDArray[np.float32]:
    """Rows in [0, 1]: equally many ones and small rows, with the ones or the small rows first.

    A small row is slightly less than half of the rounding step of the sum of all ones, so that it
    is lost after them, and counts before them. If the first row is 0 and not 1, rows come in the
    other order, like from a database without an order.

    Source: Casacuberta, Shoemate, Vadhan & Wagaman, "Widespread underestimation of sensitivity in
    differentially private libraries", 2022.

    Args:
        first: the row, 0 or 1, in which neighbours differ.
        count: the number of ones, a power of two, and of small rows.
    """
    # Steps of float32 from the sum of all ones on.
    step = count * 2.0**-23
    small, ones = np.full(count, 0.499 * step), np.ones(count)
    ones[0] = first
    return np.concatenate([ones, small] if first else [small, ones]).astype(np.float32)


def order() -> Attack:
    """A noisy sum is nearer to what a loop adds up of the rows with a first row of 1."""
    one, none = (float(in_order(rows_of(first))) for first in (1.0, 0.0))
    return Attack(
        lambda outputs: np.asarray(np.abs(outputs - one) < np.abs(outputs - none)), 1.0, 0.0
    )


def in_order(rows: NDArray[np.float32]) -> np.float32:
    return np.float32(np.add.accumulate(rows)[-1])


# -------------------------------------------------------------------------------------------- timing


def timing() -> Attack:
    """Noise of the size that the work reveals, subtracted from the output, leaves 0.

    Source: Jin, McMurtry, Rubinstein & Ohrimenko, "Are we there yet? Timing and floating-point attacks
    on differential privacy systems", 2022.

    Outputs are pairs of a number and the work that it took.
    """

    def decide(outputs: Any) -> BoolArray:
        numbers, work = np.asarray(outputs, dtype=np.float64).T
        # The work of most draws is the work of the least noise.
        return np.asarray(np.abs(numbers) == work - work.min())

    return Attack(decide, 0.0, 1.0)


def worked(act: Callable[[], Any]) -> tuple[Any, int]:
    """Return the result of a call, and its work: its numbers of Python and C calls."""
    count = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        result = act()
    finally:
        sys.setprofile(before)
    return result, count


def timed(draw: Callable[[float], Any]) -> Mechanism:
    """The mechanism with outputs that are numbers and the work of each."""

    def outputs(secret: float, draws: int) -> Sequence[tuple[float, int]]:
        return [worked(lambda: draw(secret)) for _ in range(draws)]

    return outputs
