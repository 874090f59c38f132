"""The best of a random number of runs: the result, the printed text, and the cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.choices import cases

from dpgrain.accounting import Contribution, Event, Gaussian, PureDP
from dpgrain.accounting.events.best_of import SelectBest
from dpgrain.choices.repeated_runs import best_of
from dpgrain.choices.select import select
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomSource, SeededSource
from dpgrain.noise.choice import uniform_below
from dpgrain.publishing.budget import budget

Array = NDArray[Any]


def test_best_of_all_runs_is_returned() -> None:
    source = SeededSource(5)
    made: list[int] = []

    def run(given: RandomSource) -> tuple[float, int]:
        assert given is source
        made.append(len(made))
        return [3.0, math.nan, 7.0, 7.0, 1.0][made[-1] % 5], made[-1]

    best = best_of(run, event=PureDP(0.1), mean=50.0, source=source)
    assert len(made) > 3
    assert (best.score, best.result) == (7.0, 2)
    assert best.event == SelectBest(PureDP(0.1), 50.0)


def test_nan_is_the_smallest_score() -> None:
    scores = iter([math.nan, -math.inf, *[math.nan] * 10_000])
    best = best_of(
        lambda _: (next(scores), "first"), event=PureDP(1.0), mean=2.0, source=SeededSource(6)
    )
    assert best.score == -math.inf


def test_best_prints_result_and_guarantee() -> None:
    def best(event: Event, source: RandomSource | None = None) -> str:
        return str(best_of(lambda _: (0.25, np.arange(9)), event=event, mean=5.0, source=source))

    first, promise = best(PureDP(0.1, level="user")).split("\n")
    assert first == "the best of several runs, score 0.25: (0, 1, 2, 3, …)."
    assert promise.startswith("User-level differential privacy with ε = 0.233283 and δ = 0:")
    assert "5 runs on average (their number and time are not published)" in promise
    # Without a δ there is no guarantee: the message names the affected guarantee.
    assert "and δ = 10⁻⁶:" in best(Gaussian(10.0, Contribution("user")))
    assert "NOT PRIVATE" in best(PureDP(0.1), SeededSource(1))
    nothing = best_of(
        lambda _: (1.0, "run"), event=PureDP(0.1), mean=1e-9, stopping="poisson", default="default"
    )
    assert str(nothing).startswith("nothing was run: 'default'.\n")


@pytest.mark.proof("audit", "SelectBest")
def test_default_is_returned_without_runs() -> None:
    def run(_: RandomSource) -> tuple[float, str]:
        return 1.0, "run"

    found = [
        best_of(run, event=PureDP(0.5), mean=0.7, stopping="poisson", default="none", source=source)
        for source in [SeededSource(7)] * 2000
    ]
    share = sum(best.result == "none" for best in found) / 2000
    assert abs(share - math.exp(-0.7)) < 5.5 * math.sqrt(0.25 / 2000)
    assert {best.score for best in found if best.result == "none"} == {None}


@pytest.mark.slow
@pytest.mark.proof("audit", "SelectBest")
def test_uncounted_runs_are_detected() -> None:
    """A rare result below a less rare one: many runs change its probability by more."""
    epsilon = 0.8
    # Chances of the best result, and of the one below it, on two neighbours.
    laws = [(0.1, 0.01), (0.1 * math.exp(-epsilon), 0.01 * math.exp(epsilon))]

    def result(uniform: float, law: tuple[float, float]) -> int:
        return 2 if uniform < law[0] else int(uniform < sum(law))

    def stopped(x: Array, source: RandomSource) -> int:
        def run(source: RandomSource) -> tuple[float, int]:
            (drawn,) = uniform_below(np.array([2**53]), source=source) / 2**53
            found = result(float(drawn), laws[int(x[0])])
            return float(found), found

        return best_of(run, event=PureDP(epsilon), mean=20.0, source=source).result

    def fixed(x: Array, source: RandomSource) -> int:
        return max(result(float(v), laws[int(x[0])]) for v in source.words(40) / 2**64)

    one, two = np.array([0]), np.array([1])
    claim = SelectBest(PureDP(epsilon), 20.0).epsilon()
    assert epsilon / 3 < cases.measured(stopped, one, two, 1500) < claim
    # A fixed number of runs that is not accounted for: as if there was one run.
    assert cases.measured(fixed, one, two, 3000) > 1.2 * epsilon


def test_a_budget_does_not_count_the_runs() -> None:
    # Each run would be charged, for too little, and their number must stay secret.
    def run(source: RandomSource) -> tuple[float, int]:
        raise AssertionError("nothing is run")

    with (
        budget(2.0, 1e-6),
        pytest.raises(ParameterError, match="best_of must not run inside a budget"),
    ):
        best_of(run, event=PureDP(0.1), mean=5.0)
    # A choice that repeats is charged as a whole.
    with budget(1.0) as spent:
        select([0.0, 1.0], lambda c, x: abs(c - x), np.ones(50), epsilon=0.5, method="repeat")
    assert spent.guarantee is not None
    assert spent.guarantee.epsilon(0.0) == pytest.approx(0.5, rel=1e-3)
