"""Private means of one vector per user to compare with; all with the library's exact calibration.

Every baseline is called as ``baseline(vectors, epsilon, delta, relation, generator, **options)``
with per-user means (n, d), and returns a release (d,). :func:`privacy_error` runs one many times:
the root mean squared l2 distance to the users' sample mean. Two parameters are chosen in hindsight,
at no cost: clipping norms, and a centre. Printed algorithms with a closed-form error are not run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpgrain import ParameterError
from dpgrain.accounting import Contribution, calibrate_gaussian
from dpgrain.means import clipped
from dpgrain.noise.noisy_sums import add_gaussian_noise
from dpgrain.noise.sources import random_source
from dpgrain.units import Relation

FloatArray = NDArray[np.float64]
Baseline = Callable[..., FloatArray]

# Norms tried in hindsight.
_NORMS = 200
# The constant of Theorem 2 and Corollary 1: 2·8²·10²·8.
PRINTED_CONSTANT = 102_400


def privacy_error(
    baseline: Baseline,
    vectors: FloatArray,
    epsilon: float,
    delta: float,
    relation: Relation,
    generator: np.random.Generator,
    *,
    repetitions: int = 20,
    **options: Any,
) -> float:
    """The root mean squared distance of releases to the users' sample mean, over fresh noise."""
    mean = vectors.mean(axis=0)
    squares = [
        np.sum((baseline(vectors, epsilon, delta, relation, generator, **options) - mean) ** 2)
        for _ in range(repetitions)
    ]
    return math.sqrt(float(np.mean(squares)))


def multiplier(
    epsilon: float, delta: float, relation: Relation, level: Literal["user", "record"] = "user"
) -> float:
    """Noise sd ÷ norm of one unit's vector, for one sum of signed vectors.

    >>> round(multiplier(1.0, 1e-6, "replace") / multiplier(1.0, 1e-6, "zero_out"), 9)
    2.0
    """
    sums = Contribution(block=level, layout="shared", coordinates="signed")
    event = calibrate_gaussian(epsilon, delta, contribution=sums, relation=relation)
    return event.noise_multiplier


def _released(
    total: FloatArray, norm: float, noise: float, n: int, generator: np.random.Generator
) -> FloatArray:
    return add_gaussian_noise(total, norm, noise, random_source(generator)) / n


# Ranges and norms ------------------------------------------------------------------------------


def per_coordinate(
    vectors: FloatArray,
    epsilon: float,
    delta: float,
    relation: Relation,
    generator: np.random.Generator,
    *,
    bound: float,
) -> FloatArray:
    """Each coordinate clipped to a public range ±bound; one Gaussian for all, for a norm √d·bound."""
    n, d = vectors.shape
    total = np.clip(vectors, -bound, bound).sum(axis=0)
    noise = multiplier(epsilon, delta, relation)
    return _released(total, math.sqrt(d) * bound, noise, n, generator)


def plainly_clipped(
    vectors: FloatArray,
    epsilon: float,
    delta: float,
    relation: Relation,
    generator: np.random.Generator,
) -> FloatArray:
    """Clipped to the norm that turns out best on these vectors."""
    centre = np.zeros(vectors.shape[1])
    return clipped_around(vectors, epsilon, delta, relation, generator, centre=centre)


def clipped_around(
    vectors: FloatArray,
    epsilon: float,
    delta: float,
    relation: Relation,
    generator: np.random.Generator,
    *,
    centre: FloatArray,
    least: float = 0.0,
) -> FloatArray:
    """Clipped around a known centre, at the radius that turns out best on these vectors.

    Args:
        vectors: (n, d).
        relation: under ``zero_out`` an empty user counts as the centre.
        centre: (d,) public; if it is the truth, it is itself a better answer than any release.
        least: the share of users within the radius: at ½ the centre cannot be the answer.
    """
    n = len(vectors)
    noise = multiplier(epsilon, delta, relation)
    away = vectors - centre
    radius = best_norm(away, noise, least)
    return centre + _released(clipped(away, radius).sum(axis=0), radius, noise, n, generator)


def huberized(
    vectors: FloatArray,
    epsilon: float,
    delta: float,
    relation: Relation,
    generator: np.random.Generator,
    *,
    radius: float,
) -> FloatArray:
    """The minimizer of Huber's loss of distances, as in Zhao et al. (2024), with noise in hindsight.

    A user changes the gradient of the loss by up to the threshold ``radius``, twice if replaced, and
    its curvature is at least the number of users within the threshold. The noise is calibrated to
    that local sensitivity, which is private data: the paper's smooth sensitivity is larger.
    """
    found = np.median(vectors, axis=0)
    for _ in range(200):
        far = np.linalg.norm(vectors - found, axis=1)
        weights = np.minimum(1.0, radius / np.maximum(far, 1e-300))
        found = weights @ vectors / weights.sum()
    within = max(int((far < radius).sum()) - 1, 1)
    noise = multiplier(epsilon, delta, relation)
    return found + _released(np.zeros(len(found)), radius, noise, within, generator)


def tested(
    vectors: FloatArray,
    epsilon: float,
    delta: float,
    relation: Relation,
    generator: np.random.Generator,
    *,
    centre: FloatArray,
    radius: float,
) -> FloatArray:
    """The average of concentrated users after a test for free, the idea of Bassily and Sun (2023).

    Users within ``radius`` of a known centre are averaged with the noise of that radius. The paper
    finds and tests the concentration privately, which costs a part of the budget.
    """
    near = vectors[np.linalg.norm(vectors - centre, axis=1) <= radius]
    noise, n = multiplier(epsilon, delta, relation), len(vectors)
    total = (near - centre).sum(axis=0)
    return centre + _released(total, radius, noise, n, generator) * n / max(len(near), 1)


def best_norm(vectors: FloatArray, noise: float, least: float = 0.0) -> float:
    """The clipping norm of least squared error, bias² + variance, on a grid of 200.

    Args:
        vectors: (n, d).
        least: the share of vectors that must not be shortened.
    """
    n, d = vectors.shape
    norms = np.linalg.norm(vectors, axis=1)
    # Vectors may all be shortened, however short, unless a share must not.
    low = max(float(np.quantile(norms, least)) if least else 0.0, 1e-3 * float(norms.max()))
    if not low > 0:
        raise ParameterError("vectors are all zero: give others, or another centre.")
    tried = np.geomspace(low, float(norms.max()), _NORMS)
    kept = np.minimum(1, tried[:, None] / np.maximum(norms, low * 1e-9))
    bias = (kept - 1) @ vectors / n
    errors = np.sum(bias**2, axis=1) + d * (noise * tried / n) ** 2
    return float(tried[np.argmin(errors)])


# Groups of records -----------------------------------------------------------------------------


def group_share(epsilon: float, delta: float, m: int) -> tuple[float, float]:
    """(ε₀, δ₀) for one record such that m records are (ε, δ) by the group property.

    m records of an (ε₀, δ₀) mechanism are (mε₀, δ₀·Σ_{i<m} e^{iε₀}): ε₀ = ε/m, and δ₀ = δ·(e^{ε/m}
    − 1)/(e^ε − 1). This exceeds δ/(m·e^{(m−1)ε/m}), which counts each term of the sum as its
    largest.

    >>> share = group_share(1.0, 1e-6, 100)
    >>> share[0], round(share[1] * 1e9, 2)
    (0.01, 5.85)
    """
    one = epsilon / m
    return one, delta * math.expm1(one) / math.expm1(epsilon)


def by_group_property(
    vectors: FloatArray,
    epsilon: float,
    delta: float,
    relation: Relation,
    generator: np.random.Generator,
    *,
    records: int,
    bound: float,
) -> FloatArray:
    """The mean of all records, private for records at (ε₀, δ₀) and hence for users at (ε, δ).

    Args:
        vectors: (n, d) the means of users' records.
        records: m, of each user, none of which is longer than ``bound``.
        bound: the public bound of a record's norm.
    """
    noise = multiplier(*group_share(epsilon, delta, records), relation, "record")
    total = records * vectors.sum(axis=0)
    return _released(total, bound, noise, len(vectors) * records, generator)


# Printed noise ---------------------------------------------------------------------------------


def printed_error(
    vectors: FloatArray,
    epsilon: float,
    delta: float,
    relation: Relation,
    generator: np.random.Generator | None = None,  # noqa: ARG001
    *,
    radius: float,
    failure: float,
) -> float:
    """The root mean squared noise of Levy et al., Algorithm 2, for data in a ball of a radius.

    Args:
        vectors: (n, d); only the shape is used.
        relation: ``"replace"``, the paper's.
        failure: the probability γ in the algorithm, α in the theorem.

    Each of d coordinates has Laplace noise of scale 8τ'/(nε'), τ' = 10τ·√(ln(dn/γ)/d) and ε' =
    ε/√(8d·ln(1/δ)). The total is the variance that Theorem 2 prints as a bound, 102400·dτ²
    ln(dn/α)ln(1/δ)/(nε)²: its constant is the algorithm's, 2·8²·10²·8.

    >>> round(printed_error(np.empty((10**4, 100)), 1.0, 1e-6, "replace", radius=1.0, failure=0.01), 2)
    5.1
    """
    _only_replace(relation)
    n, d = vectors.shape
    return _laplace(n, d, epsilon, delta, radius, failure)


def _laplace(n: int, d: int, epsilon: float, delta: float, radius: float, failure: float) -> float:
    range_ = 10 * radius * math.sqrt(math.log(d * n / failure) / d)
    share = epsilon / math.sqrt(8 * d * math.log(1 / delta))
    return math.sqrt(d * 2) * 8 * range_ / (n * share)


def printed_corollary(
    vectors: FloatArray,
    epsilon: float,
    delta: float,
    relation: Relation,
    generator: np.random.Generator | None = None,  # noqa: ARG001
    *,
    records: int,
    bound: float,
    failure: float | None = None,
) -> float:
    """The same for Corollary 1: τ = B·√(ln(2n/γ)/(2m)) for records in the ball of radius B.

    Args:
        vectors: (n, d); only the shape is used.
        relation: ``"replace"``, the paper's.
        failure: α = γ, by default 1/(mn²ε²); then the failing part adds no more than the rest.
    """
    _only_replace(relation)
    n, d = vectors.shape
    failure = min(1 / (records * (n * epsilon) ** 2), 1.0) if failure is None else failure
    radius = bound * math.sqrt(math.log(2 * n / failure) / (2 * records))
    return _laplace(n, d, epsilon, delta, radius, failure)


def gaussian_radius(n: int, m: int, d: int, failure: float) -> float:
    """τ of per-user means of m standard normal records: the distance of all n, up to failure.

    >>> gaussian_radius(10**4, 100, 100, 0.01) < 1.6
    True
    """
    return (math.sqrt(d) + math.sqrt(2 * math.log(n / failure))) / math.sqrt(m)


def _only_replace(relation: Relation) -> None:
    if relation != "replace":
        raise ParameterError(f"relation must be 'replace', the paper's, not {relation!r}.")
