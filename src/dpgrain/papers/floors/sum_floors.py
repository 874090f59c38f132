"""Floors of sums of clipped vectors, for any mechanism or for Gaussian noise."""

from __future__ import annotations

import math

from dpgrain import _validate
from dpgrain.papers.floors.fingerprints import fingerprints_floor
from dpgrain.papers.floors.two_points import two_points_floor
from dpgrain.units import RELATIONS, Relation


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
