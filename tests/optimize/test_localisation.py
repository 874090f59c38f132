"""Phases: participants, the added loss, and the benefit of localisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpgrain.errors import ParameterError
from dpgrain.optimize import Constant, Last, Oracle, Power, Sgd, Solver, Uniform, run
from dpgrain.papers import AcSa, Localisation, Phase, Phases, RegularisedPhases, Restarts, localise

Array = NDArray[np.float64]

PLANS: list[Localisation] = [
    Phases(1000, 5),
    Phases(1023, 4, growing=True),
    Phases(32, 5),
    Restarts(1000, 7),
    Restarts(3, 3),
    RegularisedPhases(777, 6, 0.01),
    Phases(10, 1),
]


@pytest.mark.parametrize("plan", PLANS, ids=repr)
def test_every_user_is_in_exactly_one_phase(plan: Any) -> None:
    phases = plan.phases()
    assert [phase.number for phase in phases] == list(range(1, plan.count + 1))
    together = [user for phase in phases for user in phase.users]
    assert sorted(together) == list(range(plan.users))
    assert all(len(phase.users) > 0 for phase in phases)


def test_shares_agree_with_the_papers() -> None:
    halving = [len(phase.users) for phase in Phases(1024, 5).phases()]
    assert halving[1:] == [256, 128, 64, 32]
    assert halving[0] == 512 + 32
    growing = [len(phase.users) for phase in Phases(1024, 5, growing=True).phases()]
    assert growing == halving[::-1]
    assert {len(phase.users) for phase in Restarts(1000, 7).phases()} == {142, 143}
    pulls = [phase.strength for phase in RegularisedPhases(1024, 4, 0.5).phases()]
    assert pulls == [2.0, 8.0, 32.0, 128.0]
    assert all(phase.strength == 0 for phase in Phases(1024, 5).phases())


def solver(phase: Phase) -> tuple[Solver[Any], int]:
    return Sgd(Constant(1 / (1 + phase.strength)), average=Last()), 80


def test_each_phase_solves_its_problem_from_the_last_solution() -> None:
    # Mean of its users, pulled to the last solution: (mean + λ·centre)/(1 + λ).
    numbers = np.random.default_rng(0).normal(size=(64, 2))
    plan, seen = RegularisedPhases(64, 3, 0.1), list[Array]()

    def oracles(phase: Phase) -> Oracle:
        mean = numbers[phase.users].mean(axis=0)
        return lambda theta: theta - mean

    end = localise(plan, oracles, solver, np.ones(2), lambda phase, theta: seen.append(theta))
    known = np.ones(2)
    for phase, found in zip(plan.phases(), seen, strict=True):
        mean = numbers[phase.users].mean(axis=0)
        known = (mean + phase.strength * known) / (1 + phase.strength)
        assert found == pytest.approx(known)
    assert end == pytest.approx(known)


def test_phase_uses_only_its_users() -> None:
    asked: list[tuple[int, range]] = []

    def oracles(phase: Phase) -> Oracle:
        def oracle(theta: Array) -> Array:
            asked.append((phase.number, phase.users))
            return theta

        return oracle

    localise(Phases(20, 2), oracles, lambda p: (Sgd(Power(1.0)), 3), np.zeros(1))
    assert asked == [(1, range(15))] * 3 + [(2, range(15, 20))] * 3


def test_without_phases_and_pull_it_is_a_plain_run() -> None:
    plain = run(Sgd(Power(1.0)), lambda v: v - 2.0, np.zeros(2), 25)
    once = localise(
        Restarts(5, 1), lambda p: lambda v: v - 2.0, lambda p: (Sgd(Power(1.0)), 25), np.zeros(2)
    )
    assert once == pytest.approx(plain)


def test_restarts_are_fast_on_strongly_convex_losses() -> None:
    # AC-SA converges as 1/T²; restarts halve its error every fixed number of steps.
    rng = np.random.default_rng(0)
    bends, best = np.linspace(0.2, 1.0, 30), rng.normal(size=30)

    def excess(v: Array) -> float:
        return float((bends * (v - best) ** 2).sum() / 2)

    def oracle(v: Array) -> Array:
        return bends * (v - best)

    once = run(Sgd(Constant(1.0), average=Uniform()), oracle, np.zeros(30), 120)
    often = localise(
        Restarts(6, 6),
        lambda phase: oracle,
        lambda phase: (Sgd(Constant(1.0), average=Uniform()), 20),
        np.zeros(30),
    )
    assert excess(often) < excess(once) / 100
    fast = localise(
        Restarts(6, 6), lambda phase: oracle, lambda phase: (AcSa(1.0, 20), 20), np.zeros(30)
    )
    # Each run ends at 2βD²/(T(T + 1)) at most, and D² ≤ 2·excess/μ: a factor of 2·2/(0.2·420) = 1/21.
    assert excess(fast) <= excess(np.zeros(30)) / 21**6


@pytest.mark.parametrize(
    "make",
    [
        lambda: Phases(0, 1),
        lambda: Phases(31, 5),
        lambda: Phases(10, 0),
        lambda: Phases(1, 1),
        lambda: Restarts(2, 3),
        lambda: RegularisedPhases(100, 3, 0.0),
        lambda: RegularisedPhases(100, 7, 1.0),
        lambda: Phases(100, 10**9),
        lambda: localise(
            Restarts(2, 1), lambda p: lambda v: v, lambda p: (Sgd(Power(1.0)), 0), np.zeros(1)
        ),
    ],
)
def test_plans_with_empty_phases_are_rejected(make: Any) -> None:
    with pytest.raises(ParameterError):
        make()


@pytest.mark.parametrize("plan", PLANS, ids=repr)
def test_plans_contain_only_public_numbers(plan: Any) -> None:
    # The same plan for any users: a frozen object with equality and a hash.
    assert hash(plan) == hash(eval(repr(plan)))
    assert plan == eval(repr(plan))
