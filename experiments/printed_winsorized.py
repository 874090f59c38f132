"""The winsorized mean as printed (Levy et al. 2021, Algorithm 2), compared with ours.

Usage: python experiments/printed_winsorized.py [--delta 1e-6] [--dimensions 64 1024 16384]

Printed: in each of d coordinates ε' = ε/√(8d log(1/δ)), half for a bin of width 2τ' and half for
Laplace noise of scale 8τ'/(nε'), τ' = 10τ√(log(dn/γ)/d), data replaced. The table shows the largest
ε with an (ε, δ)-DP proof, for one query and for 100, the smallest refuted ε, and the ratio of its
noise to ours at ε = 1.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import binom

from dpgrain.accounting import Contribution, Laplace
from dpgrain.errors import ParameterError
from dpgrain.noise import SeededSource
from dpgrain.papers.winsorized.median_ranges import PrivateRange
from dpgrain.papers.winsorized.rotation import Rotation
from dpgrain.papers.winsorized.winsorized import Winsorized
from dpgrain.publishing.draws import range_event

FloatArray = NDArray[np.float64]


def per_coordinate(epsilon: float, delta: float, dimension: int) -> float:
    """The printed ε' of one coordinate."""
    return epsilon / math.sqrt(8 * dimension * math.log(1 / delta))


def per_query(epsilon: float, delta: float, queries: int) -> tuple[float, float]:
    """The printed ε₀ and δ₀ of one of several queries (Theorem 3)."""
    return epsilon / (2 * math.sqrt(2 * queries * math.log(2 / delta))), delta / (2 * queries)


def proved(
    epsilon: float, delta: float, dimension: int, queries: int = 1, padded: int | None = None
) -> float:
    """The ε at δ of the printed algorithm, as we can prove it, data exchanged.

    Args:
        queries: how many there are; the constants of Theorem 3 if more than one.
        padded: how many coordinates there are, if more than the d of the formulas.
    """
    one, rest = per_query(epsilon, delta, queries) if queries > 1 else (epsilon, delta)
    own = per_coordinate(one, rest, dimension)
    contribution = Contribution(block="user", layout="shared", coordinates="stated", norm="l1")
    releases = (dimension if padded is None else padded) * queries
    noise = Laplace(2 / own, contribution, releases)
    # Weights e^{−(ε'/2)c/2}: ε'/4 if a user is removed.
    choices = range_event(own / 4, releases)
    return min((noise + choices).epsilon(delta, relation="replace"), own * releases)


def refuted(epsilon: float, delta: float, dimension: int) -> bool:
    """Whether the printed noise breaks the claim, by a test that counts coordinates.

    A user moves all coordinates by the width of their intervals, ε'/2 of the noise's scale. Coordinates
    beyond a point are counted: a binomial distribution with p or q, with an exact sum for δ(ε).
    """
    shift = per_coordinate(epsilon, delta, dimension) / 2
    counts = np.arange(dimension + 1)
    for share in (0.5, 0.75, 1.0):
        # P(noise ≥ (share − 1)·shift) with the user, P(noise ≥ share·shift) without.
        p = 1 - math.exp(-(1 - share) * shift) / 2
        q = math.exp(-share * shift) / 2
        with_user, without = (binom.logpmf(counts, dimension, x) for x in (p, q))
        excess = with_user - without > epsilon
        if not excess.any():
            continue
        mass = logsumexp(with_user[excess])
        paid = epsilon + logsumexp(without[excess])
        if math.exp(mass) - math.exp(min(paid, mass)) > delta:
            return True
    return False


def private_up_to(delta: float, dimension: int, queries: int = 1) -> float:
    """The largest ε, to a hundredth, with a proof of the printed claim; at most 2^14."""
    low, high = 0.01, 2.0**14
    if proved(high, delta, dimension, queries) <= high:
        return high
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        kept = proved(middle, delta, dimension, queries) <= middle
        low, high = (middle, high) if kept else (low, middle)
    return low


def false_from(delta: float, dimension: int) -> float:
    """The least refuted ε of the printed claim, to a hundredth; infinite if none to 2^14."""
    grid = 2.0 ** np.arange(0, 14, 0.0144)
    return next((float(e) for e in grid if refuted(float(e), delta, dimension)), math.inf)


def printed_mean(
    vectors: FloatArray,
    *,
    radius: float,
    bound: float,
    epsilon: float,
    delta: float,
    failure: float,
    seed: int,
) -> FloatArray:
    """Algorithm 2 as printed, with noise in floating point: to compare, never to publish.

    Args:
        vectors: (n, d), d a power of two.
    """
    n, d = vectors.shape
    source, rng = SeededSource(seed), np.random.default_rng(seed)
    rotation = Rotation.draw(d, source)
    own, wide = per_coordinate(epsilon, delta, d), printed_radius(n, d, radius, failure)
    columns = rotation.of(vectors)
    bins = PrivateRange(math.sqrt(d) * bound, 2 * wide, own / 4)
    middles = bins.middles(columns, source)
    clipped = np.clip(columns, (middles - 2 * wide)[:, None], (middles + 2 * wide)[:, None])
    return rotation.back(clipped.mean(axis=1) + rng.laplace(0, 8 * wide / (n * own), d))


def printed_radius(users: int, dimension: int, radius: float, failure: float) -> float:
    """The printed τ' of a coordinate."""
    return 10 * radius * math.sqrt(math.log(dimension * users / failure) / dimension)


def noise_ratio(users: int, dimension: int, epsilon: float, delta: float) -> float:
    """The printed sd of the noise of one mean, over ours, data exchanged; τ = 1, B = 100."""
    own = per_coordinate(epsilon, delta, dimension)
    printed = math.sqrt(2) * 8 * printed_radius(users, dimension, 1.0, 0.01) / (users * own)
    ours = Winsorized.calibrate(
        epsilon=epsilon,
        delta=delta,
        n_users=users,
        rounds=1,
        radius=1.0,
        bound=100.0,
        dimension=dimension,
        relation="replace",
    )
    return printed / ours.noise_sd


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[64, 1024, 16384])
    parser.add_argument("--users", type=int, default=20_000)
    options = parser.parse_args()
    print(f"{'d':>6}{'private up to':>15}{'100 queries':>13}{'false from':>12}{'noise ratio':>13}")
    for d in options.dimensions:
        try:
            ratio = f"{noise_ratio(options.users, d, 1.0, options.delta):.1f}"
        except ParameterError:
            ratio = "too few users"
        print(
            f"{d:6}{private_up_to(options.delta, d):15.1f}{private_up_to(options.delta, d, 100):13.1f}"
            f"{false_from(options.delta, d):12.1f}{ratio:>13}"
        )


if __name__ == "__main__":
    main()
