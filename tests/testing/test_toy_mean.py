"""A mean from outside the library: the guarantees for its author."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.refusals import refuses

import dpgrain as dg
from dpgrain import learn, papers
from dpgrain._types import FloatArray
from dpgrain.accounting import Gaussian
from dpgrain.accounting.contribution import ONE_EACH
from dpgrain.errors import ParameterError
from dpgrain.means import Candidate, Central, Contributions, CountedRounds, Mean, Method, Problem
from dpgrain.noise import RandomSource
from dpgrain.noise.noisy_sums import add_gaussian_noise
from dpgrain.optimize import CoinBetting, Squared
from dpgrain.publishing.facts import Fact
from dpgrain.testing.mean_contract import BLOCKS, MeanContract
from dpgrain.units import Level, Relation


@dataclass(frozen=True)
class Boxed(Central):
    """The mean of vectors with coordinates clamped to [-1, 1]: a cube, not a ball."""

    noise_multiplier: float
    n_users: int
    rounds: int
    side: float = 1.0
    level: Level = "user"

    @property
    def event(self) -> Gaussian:
        return Gaussian(self.noise_multiplier, ONE_EACH, self.rounds)

    @property
    def reach(self) -> float:
        return self.side

    @property
    def noise_sd(self) -> float:
        """For three coordinates."""
        return self.noise_multiplier * self.side * math.sqrt(3) / self.n_users

    @property
    def facts(self) -> tuple[Fact, ...]:
        clipped = Fact("stated", (f"numbers clipped to {self.side:g}",))
        return Fact("full-rounds", (self.rounds,)), clipped

    def start(self, source: RandomSource, owners: NDArray[Any] | None = None) -> BoxedRounds:
        return BoxedRounds(self, source)


class BoxedRounds(CountedRounds):
    def __init__(self, mean: Boxed, source: RandomSource) -> None:
        super().__init__(mean)
        self.mean, self.source = mean, source

    def _round(self, contributions: Contributions) -> FloatArray:
        side = self.mean.side
        total = np.clip(contributions.vectors(), -side, side).sum(axis=0)
        moved = side * math.sqrt(3)
        return (
            add_gaussian_noise(total, moved, self.mean.noise_multiplier, self.source)
            / self.mean.n_users
        )


class TestBoxed(MeanContract):
    attained = 0.6
    users = BLOCKS

    def make(self, rounds: int = 3, **options: Any) -> Mean:
        return Boxed(0.5, BLOCKS, rounds)

    def sensitivity(self, mean: Mean, relation: Relation) -> float:
        return (1 if relation == "zero_out" else 2) * math.sqrt(3) / mean.n_users


class TestWhatIsTooLong(TestBoxed):
    """The contract detects a mean that clips at twice the stated bound."""

    def make(self, rounds: int = 3, **options: Any) -> Mean:
        return Boxed(0.5, BLOCKS, rounds, side=2.0)

    @pytest.mark.parametrize("relation", ["zero_out", "replace"])
    def test_no_neighbour_exceeds_the_sensitivity(self, relation: Relation) -> None:
        with pytest.raises(AssertionError):
            super().test_no_neighbour_exceeds_the_sensitivity(relation)


@dataclass(frozen=True)
class InBoxes:
    """A recipe on that mean, which takes part in the library like any other."""

    def plan(self, task: papers.Task) -> papers.Program:
        stage = papers.Stage(Boxed(20.0, task.n_users, rounds=4), CoinBetting())
        return papers.Program((stage,), dg.papers.Restarts(task.n_users, 1))


X = np.random.default_rng(0).uniform(-1, 1, size=(600, 3))
Y = X @ [0.5, -0.5, 0.0]


def test_losses_are_minimised_on_it() -> None:
    found = learn.minimise(
        Squared(),
        X,
        Y,
        [0.0] * 3,
        solver=InBoxes(),
        users=range(600),
        n_users=600,
        epsilon=8.0,
        random_state=1,
    )
    assert len(found.history.points) == 4
    assert (found.history.clip, found.history.noise_sd) == (1.0, Boxed(20.0, 600, 4).noise_sd)
    assert "numbers clipped to 1" in str(found.guarantee)
    assert found.guarantee.event == Boxed(20.0, 600, 4).event


def test_estimators_are_fitted_on_it() -> None:
    model = learn.LinearRegression(
        algorithm=InBoxes(), n_users=600, fit_intercept=False, epsilon=8.0
    )
    model.fit(X, Y, users=range(600))
    assert model.n_iter_ == 4
    with pytest.raises(ParameterError, match="trust must be 'central' with InBoxes"):
        model.set_params(trust="shuffle").fit(X, Y, users=range(600))


def boxed(problem: Problem) -> Candidate:
    mean = Boxed(20.0, problem.n, 1, problem.bound)
    return Candidate("boxed", mean, mean.noise_sd * math.sqrt(problem.d), mean.facts)


def test_users_have_a_mean_by_it() -> None:
    method = Method("boxed", boxed)
    found = dg.mean_of_users(
        X, bound=1.0, epsilon=8.0, delta=1e-6, n_users=600, method=method, random_state=1
    )
    assert (found.method, found.radius, found.reason) == ("boxed", 1.0, "as requested")
    assert found.std_error == Boxed(20.0, 600, 1).noise_sd
    assert np.abs(found.value - X.mean(axis=0)).max() < 5 * found.std_error
    assert "numbers clipped to 1" in str(found.guarantee)
    with refuses("n_users", "'boxed'"):
        dg.mean_of_users(X, bound=1.0, epsilon=8.0, delta=1e-6, method=method)


class TestLooseBound(TestBoxed):
    """By default, the contract accepts a valid bound that no neighbour attains."""

    attained = 0.0

    def sensitivity(self, mean: Mean, relation: Relation) -> float:
        return 3 * super().sensitivity(mean, relation)

    @pytest.mark.parametrize("relation", ["zero_out"])
    def test_loose_bound_fails_with_a_tightness_message(self, relation: Relation) -> None:
        self.attained = 0.6
        with pytest.raises(AssertionError, match="state a smaller bound, or a smaller share"):
            self.test_no_neighbour_exceeds_the_sensitivity(relation)


@pytest.mark.slow
def test_the_contract_runs_outside_the_repository(tmp_path: Path) -> None:
    """In an empty folder with a plain pytest, the template passes, and a wrong bound fails."""
    template = Path(__file__).parents[2] / "examples" / "mean_of_ones_own.py"
    (tmp_path / "test_mine.py").write_text(
        template.read_text(encoding="utf-8").partition('if __name__ == "__main__"')[0]
        + "class TestWrong(TestLaplaceMean):\n"
        "    def sensitivity(self, mean, relation):\n"
        "        return super().sensitivity(mean, relation) / 2\n",
        encoding="utf-8",
    )
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    failed = re.findall(r"^FAILED test_mine.py::(\w+)::(\w+)", found.stdout, re.M)
    assert {*failed} == {("TestWrong", "test_no_neighbour_exceeds_the_sensitivity")}
    assert "more than sensitivity() = " in found.stdout
