"""Mixtures and sampled rounds with known losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import gammaln, log_ndtr, logsumexp
from tests import oracle

from dpgrain.accounting.losses.discretization import GridDistribution
from dpgrain.accounting.losses.pairs import MixturePair
from dpgrain.units import Relation

Array = NDArray[np.float64]
Parts = tuple[tuple[float, float], ...]
RELATIONS: tuple[Relation, ...] = ("zero_out", "replace")


def parts(low: float, high: float) -> st.SearchStrategy[Parts]:
    one = st.tuples(st.floats(0.001, 1.0), st.floats(low, high))

    def scaled(drawn: list[tuple[float, float]]) -> Parts:
        total = math.fsum(w for w, _ in drawn)
        return tuple((w / total, m) for w, m in drawn)

    return st.lists(one, min_size=1, max_size=4).map(scaled)


def sticks(found: GridDistribution, epsilons: Array) -> Array:
    """(n,) H of a law on the grid."""
    losses = found.step * np.arange(found.low, found.low + found.mass.size) + found.slip
    kept = -np.expm1(np.minimum(epsilons[:, None] - losses, 0.0))
    return np.asarray(kept @ found.mass) + found.infinite


mixtures = st.builds(MixturePair, parts(0.0, 3.0), parts(-3.0, 0.0))
steps = st.sampled_from([0.5, 0.11, 0.03])
small = st.sampled_from([0.0, 1e-30, 1e-12, 1e-5])


def pair_of(rate: float, blocks: int, relation: Relation) -> tuple[Any, Any]:
    p = oracle.binomial(rate, blocks, 1.0)
    return p, oracle.binomial(rate, blocks, -1.0) if relation == "replace" else [(1.0, [0.0])]


GOOGLE = [
    (0.01, 1.0, 1000, 1e-6),
    (0.1, 2.0, 100, 1e-5),
    (0.5, 5.0, 50, 1e-8),
    (0.001, 0.6, 500, 1e-6),
    (0.02, 1.2, 1, 1e-4),
]


def moments(rate: float, sd: float, rounds: int, delta: float) -> float:
    """ε of one zeroed element from the Rényi divergences of integer orders: an upper bound.

    E_Q (P/Q)^α = Σ_i C(α, i)(1−q)^{α−i}q^i e^{i(i−1)/2σ²} (Mironov, Talwar & Zhang 2019, section 3.3).
    """
    best = math.inf
    for order in (*range(2, 65), 128, 256, 512, 1024):
        i = np.arange(order + 1)
        terms = gammaln(order + 1) - gammaln(i + 1) - gammaln(order - i + 1)
        terms = terms + (order - i) * math.log1p(-rate) + i * math.log(rate)
        value = rounds * float(logsumexp(terms + i * (i - 1) / (2 * sd**2))) / (order - 1)
        shift = math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        best = min(best, value + shift)
    return max(best, 0.0)


def log_tails(rate: float, blocks: int, sd: float, rounds: int, places: Array, sign: int) -> Array:
    """(n,) ln P(sum of all rounds > x); each sampled block adds ±1."""
    draws, spread = blocks * rounds, sd * math.sqrt(rounds)
    middle, reach = rate * draws, 40 * math.sqrt(rate * draws) + 60
    j = np.arange(max(0, int(middle - reach)), min(draws, int(middle + reach)) + 1)
    weights = gammaln(draws + 1) - gammaln(j + 1) - gammaln(draws - j + 1)
    weights = weights + j * math.log(rate) + (draws - j) * math.log1p(-rate)
    tails = log_ndtr((sign * j[None, :] - places[:, None]) / spread)
    found: Array = logsumexp(weights + tails, axis=1)
    return found


def least_epsilon(
    rate: float, units: int, sd: float, rounds: int, delta: float, relation: Relation
) -> float:
    """An ε that is violated by an event {sum of the outputs > x}."""
    spread = sd * math.sqrt(rounds)
    top = min(units * rounds, rate * units * rounds + 60 * math.sqrt(units * rounds * rate) + 60)
    places = np.linspace(-10 * spread, top + 38 * spread, 400)
    p = log_tails(rate, units, sd, rounds, places, 1)
    if relation == "replace":
        # A lower bound of ε needs one from above of Q: all of it, or nothing skipped.
        q = log_tails(rate, units, sd, rounds, places, -1)
    else:
        q = log_ndtr(-places / spread)
    enough = p > math.log(delta) + 1e-9
    if not enough.any():
        return 0.0
    rest = p[enough] + np.log(-np.expm1(math.log(delta) - p[enough]))
    return max(float(np.max(rest - q[enough])), 0.0)
