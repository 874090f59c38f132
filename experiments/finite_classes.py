"""Choosing among finitely many hypotheses: one choice of all, against repeated evaluations.

Two problems, K hypotheses each, n users with m records, losses between 0 and 1:

- *packing*: from the lower bound of the user-level paper (Theorem 8, eq. (24)). Records are ±e_j,
  hypotheses all of {−1, +1}^d with d = log₂K, and the loss is 1 if the record has the hypothesis'
  sign. The paper's advantage of the right signs, max(√(d/96mn), d/(192nε√m)), cannot be learned;
  here it is 0.2, which can be;
- *random*: each hypothesis has losses that are 0 or 1, with a mean drawn from [0.3, 0.7].

Methods, all ε-DP for a user's data exchanged for others, the paper's relation:

- ``permute_and_flip``, ``exponential``: :func:`dpgrain.choices.select.select`, K evaluations;
- ``repeat``: the same with noisy means of hypotheses drawn at random, 10K on average;
- ``algorithm 5``: as printed: ``WinsorizedMean1D`` at ε/3 (a private range, then a clipped mean with
  Laplace noise 24τ/nε) of hypotheses drawn at random, stopped each time with probability γ = α/5K,
  and the τ of Theorem 7;
- ``two looks``: permute-and-flip with ε/2, which also publishes the winner's loss; then again with
  ε/2 and users' losses clipped to a window around it, as wide as 8 standard deviations of them, 4/√m,
  and 6 standard errors of it: the gain from users with similar losses, without any guarantee.

*Evaluations* are calls of the loss. ``algorithm 5`` evaluates every drawn hypothesis, as printed;
``repeat`` caches evaluations, and redraws only the noise.

The *error* is the mean loss of the choice minus the best one's on these users, mean over seeds;
``floor`` is the lower bound of Theorem 8 with its constants.

    python experiments/finite_classes.py [--seeds 6] [--out experiments/out] [--quick]

Random numbers are seeded, so results repeat exactly; a seeded release is not private.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from results import write

from dpgrain.choices.select import Choice, Method, select
from dpgrain.units import Record

FloatArray = NDArray[np.float64]

ALPHA = 0.05
PROBLEMS = ("packing", "random")
# Standard deviations of a user's mean loss on each side of the second query's window.
_SIDES = 4.0
# And standard errors of the loss that it is around.
_ERRORS = 3.0
# Data and choices must use different random numbers.
_CHOICES = 1_000_000


@dataclass(frozen=True)
class Row:
    """One method on one problem.

    Args:
        evaluations: how often a hypothesis was evaluated, mean over seeds.
        floor: the lower bound of Theorem 8.
    """

    problem: str
    hypotheses: int
    users: int
    records: int
    epsilon: float
    method: str
    error: float
    error_se: float
    evaluations: float
    floor: float


def packing(
    hypotheses: int, users: int, records: int, seed: int, advantage: float = 0.2
) -> FloatArray:
    """(n, K) mean losses of users in the problem of Theorem 8."""
    rng = np.random.default_rng(seed)
    d = int(math.log2(hypotheses))
    signs = 1 - 2 * ((np.arange(2**d)[:, None] >> np.arange(d)) & 1)
    right = rng.choice([-1, 1], d)
    # The chances of +e_j and −e_j.
    chances = np.concatenate([1 + advantage * right, 1 - advantage * right]) / (2 * d)
    counts = rng.multinomial(records, chances, size=users)
    # A record +e_j costs hypotheses with sign +1.
    costs = np.concatenate([signs.T > 0, signs.T < 0])
    return np.asarray(counts @ costs / records)


def random(hypotheses: int, users: int, records: int, seed: int) -> FloatArray:
    """(n, K) mean losses of users that are independent of each other."""
    rng = np.random.default_rng(seed)
    means = rng.uniform(0.3, 0.7, hypotheses)
    return rng.binomial(records, means, size=(users, hypotheses)) / records


def floor(hypotheses: int, users: int, records: int, epsilon: float) -> float:
    """The lower bound at the end of the proof of Theorem 8, for losses up to 1."""
    d = math.floor(math.log2(hypotheses))
    statistical = math.sqrt(d / (96 * records * users))
    return (statistical + d / (192 * users * math.sqrt(records) * epsilon)) / 32


# Algorithm 5 as printed ------------------------------------------------------------------------


def concentration(hypotheses: int, users: int, records: int, alpha: float = ALPHA) -> float:
    """τ of Theorem 7."""
    return math.sqrt((math.log(hypotheses * users) + math.log(10 / alpha)) / records)


def algorithm_5(
    losses: FloatArray, epsilon: float, records: int, seed: int, alpha: float = ALPHA
) -> tuple[int, int]:
    """The chosen hypothesis, and the number of evaluations.

    Args:
        losses: (n, K) mean losses of users, in [0, 1].
        epsilon: of the whole; evaluations have ε/3.
        alpha: α of Theorem 7; γ = α/5K.
    """
    rng = np.random.default_rng(seed)
    n, k = losses.shape
    tau = concentration(k, n, records, alpha)
    drawn = rng.integers(0, k, rng.geometric(alpha / (5 * k)))
    values = winsorized(losses, drawn, epsilon / 3, tau, rng)
    return int(drawn[np.argmin(values)]), len(drawn)


def winsorized(
    losses: FloatArray,
    drawn: NDArray[np.int64],
    epsilon: float,
    tau: float,
    rng: np.random.Generator,
) -> FloatArray:
    """Algorithm 1 (``WinsorizedMean1D``) with Algorithm 6, for one hypothesis after the other.

    Args:
        losses: (n, K) in [0, 1]; moved to [−½, ½].
        drawn: (evaluations,) which hypothesis each evaluation is of.
        epsilon: of an evaluation: ε/2 for the range, ε/2 for the noise.
    """
    n = len(losses)
    # Bins of width 2τ over [−½, ½], and their middles.
    bins = max(math.ceil(1 / (2 * tau)), 1)
    middles = -0.5 + tau * (2 * np.arange(bins) + 1)
    found = np.empty(len(drawn))
    order = np.argsort(drawn, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(drawn[order])) + 1):
        x = losses[:, drawn[part[0]]] - 0.5
        held = np.clip(((x + 0.5) / (2 * tau)).astype(np.int64), 0, bins - 1)
        counts = np.bincount(held, minlength=bins)
        left = np.cumsum(counts) - counts
        cost = np.maximum(left, n - left - counts)
        # At ε/2: weights exp(−(ε/2)·c/2).
        weights = np.exp(-epsilon / 4 * (cost - cost.min()))
        centres = middles[rng.choice(bins, len(part), p=weights / weights.sum())]
        means = {c: np.clip(x, c - 2 * tau, c + 2 * tau).mean() for c in np.unique(centres)}
        found[part] = [means[c] + 0.5 for c in centres]
    return found + rng.laplace(0, 8 * tau / (n * epsilon), len(drawn))


# dpgrain's -------------------------------------------------------------------------------------


@dataclass
class Counted:
    """The loss of a hypothesis, (n,) for its users, and the number of its evaluations."""

    evaluations: int = 0

    def __call__(self, hypothesis: int, losses: FloatArray) -> FloatArray:
        # Without the zero records of the trial evaluation.
        self.evaluations += bool(losses.any())
        return losses[:, hypothesis]


def once(method: Method) -> Callable[[FloatArray, float, int, int], tuple[int, int]]:
    """A method of :func:`dpgrain.choices.select.select`."""

    def chosen(losses: FloatArray, epsilon: float, _: int, seed: int) -> tuple[int, int]:
        counted = Counted()
        choice = _select(counted, losses, epsilon, seed, method=method)
        return choice.index, counted.evaluations

    return chosen


def two_looks(losses: FloatArray, epsilon: float, records: int, seed: int) -> tuple[int, int]:
    """A choice in a window around what another one found."""
    counted = Counted()
    first = _select(counted, losses, epsilon / 2, seed, score=True)
    middle, error = first.loss or 0.0, first.std_error or 0.0
    side = _SIDES * 0.5 / math.sqrt(records) + _ERRORS * error
    second = _select(counted, losses, epsilon / 2, seed + 1, lower=middle - side, bound=2 * side)
    return second.index, counted.evaluations


def _select(
    counted: Counted,
    losses: FloatArray,
    epsilon: float,
    seed: int,
    *,
    method: Method = "permute_and_flip",
    lower: float = 0.0,
    bound: float = 1.0,
    score: bool = False,
) -> Choice:
    # Rows are users: their mean losses are clipped.
    return select(
        range(losses.shape[1]),
        counted,
        losses,
        epsilon=epsilon,
        method=method,
        lower=lower,
        bound=bound,
        score=score,
        relation="replace",
        unit=Record(),
        n_users=len(losses),
        random_state=seed,
    )


METHODS: dict[str, Callable[[FloatArray, float, int, int], tuple[int, int]]] = {
    "algorithm 5": algorithm_5,
    "repeat": once("repeat"),
    "exponential": once("exponential"),
    "permute_and_flip": once("permute_and_flip"),
    "two looks": two_looks,
}


def run(
    problem: str,
    hypotheses: int,
    users: int,
    records: int,
    *,
    epsilon: float = 1.0,
    seeds: int = 10,
    methods: Sequence[str] = tuple(METHODS),
) -> Iterator[Row]:
    """Every method on one problem, with new data for each seed."""
    make = packing if problem == "packing" else random
    errors: dict[str, list[float]] = {name: [] for name in methods}
    evaluations: dict[str, list[int]] = {name: [] for name in methods}
    for seed in range(seeds):
        losses = make(hypotheses, users, records, seed)
        means = losses.mean(axis=0)
        for name in methods:
            chosen, count = METHODS[name](losses, epsilon, records, _CHOICES + 2 * seed)
            errors[name].append(float(means[chosen] - means.min()))
            evaluations[name].append(count)
    for name in methods:
        spread = math.nan
        if seeds > 1:
            spread = float(np.std(errors[name], ddof=1) / math.sqrt(seeds))
        yield Row(
            problem,
            hypotheses,
            users,
            records,
            epsilon,
            name,
            float(np.mean(errors[name])),
            spread,
            float(np.mean(evaluations[name])),
            floor(hypotheses, users, records, epsilon),
        )


# Tables ----------------------------------------------------------------------------------------

HEADER = (
    f"{'problem':8} {'K':>5} {'n':>6} {'m':>6} {'ε':>4}  {'method':17} {'error':>20} "
    f"{'evaluations':>12} {'floor':>9}"
)


def line(row: Row) -> str:
    """A row of the table."""
    error = f"{row.error:.5f} ± {row.error_se:.5f}"
    return (
        f"{row.problem:8} {row.hypotheses:5,} {row.users:6,} {row.records:6,} {row.epsilon:4g}  "
        f"{row.method:17} {error:>20} {row.evaluations:12,.0f} {row.floor:9.6f}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("experiments/out"), help="output folder")
    parser.add_argument("--seeds", type=int, default=6, help="data sets of each problem")
    parser.add_argument("--quick", action="store_true", help="one size, two seeds")
    given = parser.parse_args(arguments)
    if given.seeds < 1:
        parser.error("--seeds must be at least 1.")
    sizes = [(1000, 100), (1000, 10_000), (10_000, 100)]
    seeds = given.seeds
    if given.quick:
        sizes, seeds = sizes[:1], 2
    rows: list[Row] = []
    print(HEADER)
    for problem in PROBLEMS:
        hypotheses = 1024 if problem == "packing" else 1000
        for users, records in sizes:
            for row in run(problem, hypotheses, users, records, seeds=seeds):
                print(line(row), flush=True)
                rows.append(row)
    write(given.out, "finite_classes", rows)


if __name__ == "__main__":
    main()
