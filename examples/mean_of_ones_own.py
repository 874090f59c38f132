"""Write a custom mean of vectors, test its contract with pytest, and publish a mean of users by it."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import dpgrain as dg
from dpgrain.accounting import Contribution, Laplace, calibrate
from dpgrain.means import Candidate, Central, Contributions, CountedRounds, Mean, Method, Problem
from dpgrain.noise import RandomSource, discrete_laplace
from dpgrain.testing.mean_contract import BLOCKS, MeanContract
from dpgrain.units import Level, Relation

STEPS = 2**20  # grid steps per clipping bound
# One signed vector per user, clipped in the l1 norm.
EACH = Contribution("user", "shared", "signed", norm="l1")


@dataclass(frozen=True)
class LaplaceMean(Central):
    """The mean of vectors clipped in the l1 norm, with exact Laplace noise: pure ε."""

    noise_multiplier: float
    n_users: int
    rounds: int
    clip: float = 1.0
    level: Level = "user"

    @property
    def event(self) -> Laplace:
        return Laplace(self.noise_multiplier, EACH, self.rounds)

    @property
    def reach(self) -> float:
        return self.clip

    @property
    def noise_sd(self) -> float:
        return math.sqrt(2) * self.noise_multiplier * self.clip / self.n_users

    @property
    def facts(self) -> tuple[dg.Fact, ...]:
        clipped = dg.Fact("stated", (f"vectors clipped to an l1 norm of {self.clip:g}",))
        return dg.Fact("full-rounds", (self.rounds,)), clipped

    def start(self, source: RandomSource, owners: Any = None) -> "LaplaceRounds":  # noqa: ARG002
        return LaplaceRounds(self, source)


class LaplaceRounds(CountedRounds):
    """One run of a mean; the base class counts its rounds."""

    def __init__(self, mean: LaplaceMean, source: RandomSource) -> None:
        super().__init__(mean)
        self.mean, self.source = mean, source

    def _round(self, contributions: Contributions) -> Any:
        mean, vectors = self.mean, contributions.vectors()
        with np.errstate(over="ignore"):  # a warning about overflow would reveal a user's value
            norms = np.abs(vectors).sum(axis=1, keepdims=True)
        shorter = vectors / np.maximum(norms / mean.clip, 1.0)
        # Truncation toward zero keeps the l1 norm of the integers at most STEPS.
        total = np.trunc(shorter * (STEPS / mean.clip)).astype(np.int64).sum(axis=0)
        scale = mean.noise_multiplier * STEPS
        noise = discrete_laplace(scale, total.size, source=self.source)
        return (total + noise) * (mean.clip / STEPS / mean.n_users)


class TestLaplaceMean(MeanContract):
    """The contract of the library's own means: run ``pytest mean_of_ones_own.py``."""

    users = BLOCKS  # one block for each user
    attained = 0.5  # the search for neighbours must come this close to the stated sensitivity

    def make(self, rounds: int = 3, **_: Any) -> Mean:
        return LaplaceMean(0.5, BLOCKS, rounds)

    def sensitivity(self, mean: Mean, relation: Relation) -> float:
        return (1 if relation == "zero_out" else 2) * mean.reach / mean.n_users


def laplace(problem: Problem) -> Candidate:
    """Calibrate the mean for a problem of ``dg.mean_of_users``."""
    promise, clip = problem.promise, problem.bound * math.sqrt(problem.d)
    noise = calibrate(
        lambda multiplier: Laplace(multiplier, EACH),
        promise.epsilon,
        0.0,
        unit=promise.unit,
        relation=promise.relation,
    )
    mean = LaplaceMean(noise.parameter, problem.n, 1, clip)
    return Candidate("laplace", mean, mean.noise_sd * math.sqrt(problem.d), mean.facts)


def main() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal([0.3, 0.0, -0.2], 0.3, (4000, 3))  # one for each of 4,000 people
    found = dg.mean_of_users(
        vectors,
        users=range(4000),
        n_users=4000,
        bound=1.5,
        method=Method("laplace", laplace),
        epsilon=1.0,
        delta=1e-6,
    )
    print(found.value.round(2), f"std error {found.std_error:.4f}")
    print(found.guarantee)


if __name__ == "__main__":
    main()
