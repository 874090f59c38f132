"""Floors of sums: two points for any sum, fingerprints for many coordinates, clipped sums.

Two points are data sets with distant sums and overlapping outputs. Fingerprints use that an accurate
mean of many coordinates reveals who is in it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.units import RELATIONS, Relation

# Number of group sizes to try; every one gives a valid floor.
SIZES = 240
MOST_COPIES = 4096
# Max contributors of an item that are counted one by one.
_MOST_HOLDERS = 10_000_000


def min_users_with_item(epsilon: float, delta: float, chance: float = 0.5) -> int:
    """Return the fewest contributors for any private rule to select an item.

    Args:
        epsilon: the promised ε for one contributor.
        delta: the promised δ, in (0, 1).
        chance: the required probability of selection.

    Raises:
        ParameterError: if a parameter is out of range, or ε and δ are so small that more than ten
            million contributors would be necessary.

    Source: the optimal rule of Desfontaines, Voss, Gipson & Mandayam 2022, π_c = min(e^ε π_{c−1} +
    δ, 1 − e^{−ε}(1 − π_{c−1} − δ), 1).

    >>> min_users_with_item(1.0, 1e-5), min_users_with_item(1.0, 1e-5, 0.75)
    (12, 12)
    """
    epsilon = _validate.positive(epsilon=epsilon)
    delta = _validate.delta(allow_zero=False, delta=delta)
    chance = _validate.fraction(chance=chance)
    # Without the second half of the rule, which selects no more, this number of steps reaches the
    # probability.
    steps = math.log1p(math.expm1(min(epsilon, 700.0)) * (chance / delta)) / epsilon
    if steps > _MOST_HOLDERS:
        raise ParameterError(
            f"epsilon = {epsilon:g} and delta = {delta:g} must be larger, because more than ten "
            "million users with an item would be needed."
        )
    named, holders = 0.0, 0
    while named < chance:
        # For a negligible ε, only δ adds up.
        grown = math.exp(min(epsilon, 700.0)) * named + delta
        named = min(grown, 1 - math.exp(-epsilon) * (1 - named - delta), 1.0)
        holders += 1
    return holders


def steps_between(users: int, relation: Relation) -> int:
    """Return the steps between data sets that differ in ``users`` users' records."""
    return users if relation == "replace" else 2 * users


def group_delta(epsilon: float, delta: float, steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the δ of several steps at ε times their number, at most 1."""
    grown = np.minimum(steps * min(epsilon, 700.0), 700.0)
    return np.minimum(delta * np.expm1(grown) / math.expm1(min(epsilon, 700.0)), 1.0)


def two_points_floor(epsilon: float, delta: float, n: int, apart: float) -> float:
    """Return the floor of n clipped vectors that each change a sum by ``apart``."""
    # If the distance of data sets is more than a few ε, their outputs barely overlap.
    most = min(n, 2 + math.ceil(min(8 / epsilon, MOST_COPIES)))
    steps = np.unique(np.rint(np.geomspace(1, most, SIZES)))
    shared = 2 * (1 - group_delta(epsilon, delta, steps))
    shared /= np.exp(np.minimum(steps * min(epsilon, 700.0), 700.0)) + 1
    return float(np.max(steps * apart / 2 * np.sqrt(shared)))


# Number of box sizes or gaps of worlds to try; every one gives a valid floor.
GAPS = 240


def traced_mean(
    epsilon: float, delta: float, n: int, records: int, dimension: int, relation: Relation
) -> float:
    """Return the floor for users with several records and a uniform mean on [−a, a]^d."""
    box = _boxes(epsilon, n, records, dimension)
    slope = n * math.sinh(min(epsilon, 350.0)) * box**2 * math.sqrt(records)
    left = dimension * box**2 * (1 / 3 - 4 * box * n * records * (1 + box) * delta)
    if relation == "zero_out":
        # Without a user, only the guarantee bounds the error.
        left -= slope * 2 * box * math.sqrt(dimension * delta)
        slope = slope * math.exp(min(epsilon, 350.0) / 2)
    left = np.maximum(left, 0.0)
    error = 2 * left / (slope + np.hypot(slope, 2 * np.sqrt(left)) + 5e-324)
    return float(error.max()) / math.sqrt(dimension)


def traced_loss(epsilon: float, delta: float, n: int, records: int, dimension: int) -> float:
    """Return the floor of linear losses on a box in the ball, for either relation."""
    box = _boxes(epsilon, n, records, dimension)
    traced = math.sinh(min(epsilon, 350.0)) * math.sqrt(records / dimension) / 2
    floors = box / 2 - n * box**2 * (traced + records * (1 + box) * delta)
    return max(float(floors.max()), 0.0)


def _boxes(epsilon: float, n: int, records: int, dimension: int) -> FloatArray:
    least = 1e-3 * math.sqrt(dimension / records) / (n * math.sinh(min(max(epsilon, 1e-6), 350.0)))
    return np.geomspace(max(min(least, 1e-3), 1e-100), 1.0, GAPS)


def fingerprints_floor(epsilon: float, delta: float, n: int, dimension: int, steps: int) -> float:
    """Return the floor of n clipped vectors of many coordinates, in groups of copies."""
    most = min(n, 2 + math.ceil(min(8 / (steps * epsilon), MOST_COPIES)))
    copies = np.unique(np.rint(np.geomspace(1, most, SIZES)))[:, None]
    people = np.floor(np.geomspace(1, n, SIZES)[None, :] / copies)
    # For groups larger than n there are no people; these drop out at the end.
    spread = np.sqrt(2 * dimension / (3 * np.maximum(people, 1)))
    # If ε is so large that nothing is private, the floor is 0.
    with np.errstate(over="ignore"):
        slope = np.maximum(people, 1) * np.sinh(steps * copies * epsilon)
    left = dimension / 3 - 8 * dimension * people * group_delta(epsilon, delta, steps * copies)
    left = np.maximum(left, 0.0)
    # The error is the root of a² + slope·a = left, without cancellation.
    error = 2 * left / (slope + np.hypot(slope, 2 * np.sqrt(left)) + 5e-324) - spread
    sums = np.where(people >= 1, copies * people * error, 0.0) / math.sqrt(dimension)
    return float(max(np.max(sums), 0.0))


def min_error(
    epsilon: float,
    delta: float,
    n: int,
    *,
    dimension: int = 1,
    relation: Relation = "zero_out",
    signed: bool = True,
) -> float:
    """Return a floor under the rms l2 error of a private sum, in clipping bounds.

    Args:
        epsilon: the promised ε for one vector.
        delta: the promised δ.
        n: the number of vectors.
        dimension: the number of their coordinates.
        relation: ``"zero_out"`` or ``"replace"``.
        signed: True if coordinates may be negative; otherwise only two points are compared.

    Raises:
        ParameterError: if a parameter is out of range.

    Formal guarantee: for every (ε, δ)-DP mechanism there is a data set of n vectors of l2 norm at
    most 1 on which its rms error is at least this. Proofs: docs/theory, "How little error there can
    be".

    >>> round(min_error(1.0, 1e-6, 10_000, relation="replace"), 3)
    0.977
    >>> round(min_error(1.0, 1e-9, 10_000, dimension=10_000, relation="replace"), 1)
    15.9
    """
    epsilon = _validate.positive(epsilon=epsilon)
    delta = _validate.delta(allow_zero=True, delta=delta)
    n = _validate.integer(minimum=1, n=n)
    dimension = _validate.integer(minimum=1, dimension=dimension)
    _validate.one_of(RELATIONS, relation=relation)
    apart = 2.0 if _validate.boolean(signed=signed) and relation == "replace" else 1.0
    floor = two_points_floor(epsilon, delta, n, apart)
    if signed and dimension > 1:
        steps = 1 if relation == "replace" else 2
        floor = max(floor, fingerprints_floor(epsilon, delta, n, dimension, steps))
    return floor


def min_noise_of_clipped_sums(noise_multiplier: float, n: int, dimension: int = 1) -> float:
    """Return a floor under the rms noise of clipped sums in a mean, in users' sd.

    Args:
        noise_multiplier: noise sd of the sum ÷ the norm bound of a contribution; for several rounds
            together, the noise multiplier of one round with the same cost.
        n: the number of users.
        dimension: the dimension d of their vectors, which are N(μ, s²I); the floor is in units of
            s.

    Raises:
        ParameterError: if a parameter is out of range.

    Formal guarantee: each user's contribution may be any function of norm at most r, for noise of
    sd r·noise_multiplier. An answer that is linear in the noisy sums and unbiased near the true
    mean has at least this error from the noise: σ·d^(3/2)/(n·E‖z‖), z ~ N(0, I). Clipping to a
    small r around the true mean attains it in the limit. It is valid for several rounds, and any
    number of coordinates of a contribution. Proof: docs/theory, "How little error there can be".

    >>> round(min_noise_of_clipped_sums(4.0, 1000, 100), 4)
    0.401
    """
    noise_multiplier = _validate.positive(noise_multiplier=noise_multiplier)
    n = _validate.integer(minimum=1, n=n)
    dimension = _validate.integer(minimum=1, dimension=dimension)
    return noise_multiplier * dimension * math.sqrt(dimension) / (n * _mean_norm(dimension))


def _mean_norm(dimension: int) -> float:
    """Return E‖z‖ of z ~ N(0, I), or slightly more."""
    if dimension > 10**6:
        return math.sqrt(dimension)
    half = dimension / 2
    return math.sqrt(2) * math.exp(math.lgamma(half + 0.5) - math.lgamma(half))
