"""What no private mechanism can do better than: floors under the error of a sum of clipped vectors.

The papers' lower bounds are orders (user-level learning paper, Cor. 1 with App. C.4, and Thm. 6). Two
classical arguments give numbers; both are about the worst data set of a given number of units, and both
hold for every (ε, δ)-DP mechanism, whatever it computes.

*Two points*: data sets whose sums are far apart and whose outputs share mass. *Fingerprints*: a good
mean of many coordinates gives away who is in it (after Bun, Ullman & Vadhan 2014, Dwork et al. 2015).
Proofs: docs/theory.md, "How little error there can be".
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain.units import RELATIONS, Relation

# A search over so many group sizes; every one of them gives a valid floor.
_SIZES = 240
_MOST_COPIES = 4096


def least_error(
    epsilon: float,
    delta: float,
    n: int,
    *,
    dimension: int = 1,
    relation: Relation = "zero_out",
    signed: bool = True,
) -> float:
    """A floor under the rms l2 error of a private sum of n clipped vectors, in clipping bounds.

    Args:
        epsilon: the promised ε for one vector.
        delta: the promised δ.
        n: how many vectors there are.
        dimension: how many coordinates they have.
        relation: ``"zero_out"`` or ``"replace"``.
        signed: whether coordinates may be negative; without, only two points are compared.

    Raises:
        ParameterError: if a parameter is out of range.

    Formal guarantee: for every (ε, δ)-DP mechanism there is a data set of n vectors of l2 norm at
    most 1 on which its rms error is at least this. Proofs: docs/theory.md, "How little error there
    can be".

    >>> round(least_error(1.0, 1e-6, 10_000, relation="replace"), 3)
    0.977
    >>> round(least_error(1.0, 1e-9, 10_000, dimension=10_000, relation="replace"), 1)
    15.9
    """
    epsilon = _validate.positive(epsilon=epsilon)
    delta = _validate.delta(allow_zero=True, delta=delta)
    n = _validate.integer(minimum=1, n=n)
    dimension = _validate.integer(minimum=1, dimension=dimension)
    _validate.one_of(RELATIONS, relation=relation)
    apart = 2.0 if signed and relation == "replace" else 1.0
    floor = _two_points(epsilon, delta, n, apart)
    if signed and dimension > 1:
        steps = 1 if relation == "replace" else 2
        floor = max(floor, _fingerprints(epsilon, delta, n, dimension, steps))
    return floor


def least_holders(epsilon: float, delta: float, chance: float = 0.5) -> int:
    """The fewest holders of an unknown item for whom any private rule names it with this chance.

    Args:
        epsilon: the promised ε for one holder.
        delta: the promised δ, in (0, 1).
        chance: the probability of being named.

    Raises:
        ParameterError: if a parameter is out of range.

    Source: the optimal rule of Desfontaines, Voss, Gipson & Mandayam 2022, π_c =
    min(e^ε π_{c−1} + δ, 1 − e^{−ε}(1 − π_{c−1} − δ), 1).

    >>> least_holders(1.0, 1e-5), least_holders(1.0, 1e-5, 0.75)
    (12, 12)
    """
    epsilon = _validate.positive(epsilon=epsilon)
    delta = _validate.delta(allow_zero=False, delta=delta)
    chance = _validate.fraction(chance=chance)
    named, holders = 0.0, 0
    while named < chance:
        # Where ε is next to nothing, δ alone adds up.
        grown = math.exp(min(epsilon, 700.0)) * named + delta
        named = min(grown, 1 - math.exp(-epsilon) * (1 - named - delta), 1.0)
        holders += 1
    return holders


def _grouped(epsilon: float, delta: float, steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """δ of so many steps, at ε times as many; rounded up to 1."""
    grown = np.minimum(steps * epsilon, 700.0)
    return np.minimum(delta * np.expm1(grown) / math.expm1(min(epsilon, 700.0)), 1.0)


def _two_points(epsilon: float, delta: float, n: int, apart: float) -> float:
    # Beyond a few units of ε the laws share next to nothing.
    most = min(n, _MOST_COPIES, 2 + math.ceil(8 / epsilon))
    steps = np.unique(np.rint(np.geomspace(1, most, _SIZES)))
    shared = 2 * (1 - _grouped(epsilon, delta, steps))
    shared /= np.exp(np.minimum(steps * epsilon, 700.0)) + 1
    return float(np.max(steps * apart / 2 * np.sqrt(shared)))


def _fingerprints(epsilon: float, delta: float, n: int, dimension: int, steps: int) -> float:
    most = min(n, _MOST_COPIES, 2 + math.ceil(8 / (steps * epsilon)))
    copies = np.unique(np.rint(np.geomspace(1, most, _SIZES)))[:, None]
    people = np.floor(np.geomspace(1, n, _SIZES)[None, :] / copies)
    # Groups that are too large have nobody; they drop out at the end.
    spread = np.sqrt(2 * dimension / (3 * np.maximum(people, 1)))
    slope = people * np.sinh(np.minimum(steps * copies * epsilon, 700.0))
    left = dimension / 3 - 8 * dimension * people * _grouped(epsilon, delta, steps * copies)
    left = np.maximum(left, 0.0)
    # The root of a² + slope·a = left, written without cancellation.
    error = 2 * left / (slope + np.sqrt(slope * slope + 4 * left) + 5e-324) - spread
    sums = np.where(people >= 1, copies * people * error, 0.0) / math.sqrt(dimension)
    return float(max(np.max(sums), 0.0))
