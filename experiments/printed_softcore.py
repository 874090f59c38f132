"""The private mean of close users as printed by Asi & Liu, compared with ours.

    python experiments/printed_softcore.py [--users 1000] [--rounds 1000] [--epsilon 1] [--delta 1e-6]

The printed algorithm is not private with the printed constants. Here it is measured: one user is at
one of two positions in a thousand rounds, and the probability that this is revealed beyond e^ε is
bounded from below. Nothing here is part of the package. The explanation is in docs/theory, "False
claims and their corrections".
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpgrain.accounting import gaussian_delta
from dpgrain.means.close_vectors import close
from dpgrain.papers.softcore import SoftCoreMean, h_index, integer_weights

Array = NDArray[np.float64]

# Range and number of points of integrals over the threshold's noise.
WIDTH, POINTS = 400.0, 400_001


@dataclass(frozen=True)
class PrintedSoftCore:
    """Algorithm 1 of Asi & Liu 2024, with its constants.

    Args:
        n_users: the number of users n.
        rounds: the number of rounds T.
    """

    radius: float
    n_users: int
    rounds: int
    epsilon: float
    delta: float

    @property
    def noise_sd(self) -> float:
        """The sd of the noise of each coordinate of a mean, line 14."""
        half = math.exp(self.epsilon / 2)
        logs = math.log(half * self.rounds / self.delta) * math.log(half / self.delta)
        return self.radius * math.sqrt(8 * self.rounds * logs) / (self.n_users * self.epsilon)

    @property
    def threshold(self) -> float:
        """The threshold of the score, before noise."""
        return 0.8 * self.n_users

    @property
    def scales(self) -> tuple[float, float]:
        """Scales of the Laplace noise on threshold and scores: AboveThreshold with ε/2."""
        return 4 / self.epsilon, 8 / self.epsilon

    def score(self, vectors: Array) -> float:
        """Eq. (2): (1/n)ΣΣ 1{‖x_i − x_j‖ ≤ τ}."""
        return float((_apart(vectors) <= self.radius).sum()) / self.n_users

    def probabilities(self, vectors: Array) -> Array:
        """With which each user is chosen, line 9."""
        near = (_apart(vectors) <= 2 * self.radius).sum(axis=1)
        found: Array = np.clip((near - self.n_users / 2) / (self.n_users / 6), 0.0, 1.0)
        return found

    def run(self, rounds: Sequence[Array], rng: np.random.Generator) -> list[Array]:
        """The published means, up to the first round that fails."""
        once, each = self.scales
        threshold = self.threshold - rng.laplace(scale=once)
        means: list[Array] = []
        for vectors in rounds[: self.rounds]:
            if self.score(vectors) + rng.laplace(scale=each) < threshold:
                break
            chosen = rng.random(len(vectors)) < self.probabilities(vectors)
            mean = vectors[chosen].mean(axis=0) if chosen.any() else np.zeros(vectors.shape[1])
            means.append(mean + rng.normal(scale=self.noise_sd, size=mean.shape))
        return means


def _apart(vectors: Array) -> Array:
    found: Array = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)
    return found


@dataclass(frozen=True)
class Query:
    """Equal rounds, on a line, in units of τ: all users but one, and two positions of that one.

    Args:
        crowds: (number of users, position), …; users in none are isolated.
        there: the user's position in the neighbouring data set.
    """

    count: int
    crowds: tuple[tuple[int, float], ...]
    here: float
    there: float

    def vectors(self, users: int, radius: float) -> tuple[Array, Array]:
        """(n, 1) twice: with the last user here, and there."""
        placed = np.concatenate([np.full(size, place) for size, place in self.crowds])
        lonely = 100.0 * (1 + np.arange(users - 1 - placed.size))
        others = np.concatenate([placed, lonely])
        one, two = (np.append(others, last)[:, None] * radius for last in (self.here, self.there))
        return one, two


def witness(users: int, rounds: int) -> tuple[Query, ...]:
    """Rounds that always pass and move the mean, a few that rarely pass, and one that fails.

    The scores of the few and of the last move in opposite directions, by almost 2, which spends all
    of AboveThreshold's budget, twice over; the others spend the means' budget.
    """

    def part(share: float) -> int:
        return round(share * users)

    large = part(0.888)
    low = ((large - 1, -1.0), (users - 1 - large + 1, 1.0))
    last = ((large, -1.0), (users - 1 - large, 1.0))
    return (
        Query(rounds - 11, ((part(0.93), 0.0),), 2.0, -2.0),
        Query(10, low, 0.0, -3.0),
        Query(1, last, -3.0, 0.0),
    )


def printed_delta(printed: PrintedSoftCore) -> float:
    """A lower bound on the δ of the printed algorithm at its own ε.

    For the event that all rounds but the last one pass, and the means then published: these are one
    Gaussian, because in every round of the witness users are selected with certainty or not at all.
    """
    queries = witness(printed.n_users, printed.rounds)
    once, each = printed.scales
    z, step = np.linspace(-WIDTH, WIDTH, POINTS, retstep=True)
    laws = [np.exp(-np.abs(z) / once) / (2 * once) * step for _ in range(2)]
    squares = 0.0
    for k, query in enumerate(queries):
        sides = query.vectors(printed.n_users, printed.radius)
        for law, vectors in zip(laws, sides, strict=True):
            passes = _laplace_below(printed.score(vectors) - printed.threshold + z, each)
            law *= passes**query.count if k < len(queries) - 1 else 1 - passes
        if k < len(queries) - 1:
            one, two = (_certain_mean(printed, vectors) for vectors in sides)
            squares += query.count * (one - two) ** 2
    here, there = (float(law.sum()) for law in laws)
    mu = math.sqrt(squares) / printed.noise_sd
    return here * gaussian_delta(printed.epsilon - math.log(here / there), mu)


def _certain_mean(printed: PrintedSoftCore, vectors: Array) -> float:
    chosen = printed.probabilities(vectors)
    if not set(chosen) <= {0.0, 1.0}:
        raise ValueError("users of a witness are chosen for certain or not at all")
    return float(chosen @ vectors[:, 0] / chosen.sum())


def _laplace_below(x: Array, scale: float) -> Array:
    half = 0.5 * np.exp(-np.abs(x) / scale)
    return np.where(x < 0, half, 1 - half)


def our_delta(mean: SoftCoreMean, epsilon: float) -> float:
    """The δ at ε of our mean on the same data, summed over all rounds in which it may end."""
    queries = witness(mean.n_users, mean.rounds)
    sides = [
        [_ours(mean, vectors) for vectors in query.vectors(mean.n_users, mean.radius)]
        for query in queries
    ]
    reach = int(45 * (mean.threshold_scale + mean.query_scale))
    z = np.arange(-reach, reach + 1)
    laws = [_geometric(z, mean.threshold_scale) for _ in range(2)]
    total = squares = 0.0
    for query, (one, two) in zip(queries, sides, strict=True):
        fails = [
            _geometric_below(math.ceil(mean.event.threshold) - side[0] - z, mean.query_scale)
            for side in (one, two)
        ]
        for _ in range(query.count):
            ends = [float(law @ fail) for law, fail in zip(laws, fails, strict=True)]
            total += _told(ends, squares, mean, epsilon)
            laws = [law * (1 - fail) for law, fail in zip(laws, fails, strict=True)]
            squares += (one[1] - two[1]) ** 2
    return total + _told([float(law.sum()) for law in laws], squares, mean, epsilon)


def _ours(mean: SoftCoreMean, vectors: Array) -> tuple[int, float]:
    """h, and the mean before noise."""
    (counts,) = close(vectors, mean.radius / 2**16, [4**17])
    weights = integer_weights(counts, mean.n_users, mean.core)
    return h_index(counts), float(weights @ vectors[:, 0] / weights.sum())


def _told(masses: Sequence[float], squares: float, mean: SoftCoreMean, epsilon: float) -> float:
    """The contribution to δ of one outcome of the test and the means before it."""
    here, there = masses
    if here == 0:
        return 0.0
    left = epsilon - (math.log(here / there) if there > 0 else math.inf)
    mu = math.sqrt(squares) / mean.noise_sd
    if mu == 0:
        return here * max(-math.expm1(left), 0.0)
    return here * gaussian_delta(left, mu)


def _geometric(k: NDArray[np.int64], scale: float) -> Array:
    law: Array = math.tanh(0.5 / scale) * np.exp(-np.abs(k) / scale)
    return law


def _geometric_below(k: NDArray[np.int64], scale: float) -> Array:
    """P(ν < k)."""
    r = math.exp(-1 / scale)
    tail = np.exp(-np.maximum(k, 1 - k) / scale) / (1 + r)
    return np.where(k > 0, 1 - tail, tail)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-6)
    given = parser.parse_args()
    printed = PrintedSoftCore(1.0, given.users, given.rounds, given.epsilon, given.delta)
    ours = SoftCoreMean.calibrate(
        epsilon=given.epsilon,
        delta=given.delta,
        n_users=given.users,
        rounds=given.rounds,
        radius=1.0,
    )
    print(f"claimed: epsilon = {given.epsilon:g}, delta = {given.delta:g}")
    print(f"printed: noise sd {printed.noise_sd:.3f}, delta at least {printed_delta(printed):.3g}")
    there = our_delta(ours, given.epsilon)
    print(f"ours:    noise sd {ours.noise_sd:.3f}, delta {there:.3g} on the same data")


if __name__ == "__main__":
    main()
