"""Floors under the error of users with many records, against the best mechanisms there are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array
from scipy.stats import binom
from tests.refusals import refuses

from dpgrain.papers.floors import (
    PENALTIES,
    Penalty,
    min_error_of_records,
    min_error_of_worlds,
    min_excess_of_choice,
    min_noise_of_clipped_sums,
)
from dpgrain.units import RELATIONS, Relation

PROMISES = [(1.0, 0.0), (0.3, 0.0), (1.0, 0.05), (0.4, 1e-3)]


def best_mechanism(
    pairs: Iterable[tuple[int, int]],
    cost: NDArray[np.float64],
    epsilon: float,
    delta: float,
) -> float:
    """The least Σ P_s(a)·cost(s, a) over all (ε, δ)-DP mechanisms with finitely many answers."""
    states, answers = cost.shape
    both = [(s, t) for one in pairs for s, t in (one, one[::-1])]
    slack = states * answers
    columns = slack + len(both) * answers
    # P_s(a) − e^ε·P_t(a) ≤ excess(a), and Σ excess ≤ δ.
    rows, places, values, limits = [], [], [], []
    row = 0
    for number, (s, t) in enumerate(both):
        for a in range(answers):
            excess = slack + number * answers + a
            rows += [row] * 3
            places += [s * answers + a, t * answers + a, excess]
            values += [1.0, -math.exp(epsilon), -1.0]
            limits.append(0.0)
            row += 1
        rows += [row] * answers
        places += range(slack + number * answers, slack + (number + 1) * answers)
        values += [1.0] * answers
        limits.append(delta)
        row += 1
    whole = csr_array(
        (
            np.ones(slack),
            (np.repeat(np.arange(states), answers), np.arange(slack)),
        ),
        shape=(states, columns),
    )
    found = linprog(
        np.concatenate((cost.ravel(), np.zeros(columns - slack))),
        A_ub=csr_array((values, (rows, places)), shape=(row, columns)),
        b_ub=limits,
        A_eq=whole,
        b_eq=np.ones(states),
        method="highs",
    )
    assert found.status == 0
    return float(found.fun)


def neighbours(n: int, relation: Relation) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Data sets as (users of world 0, users of world 1), and pairs that one user distinguishes."""
    if relation == "replace":
        states = [(n - ones, ones) for ones in range(n + 1)]
    else:
        states = [(a, b) for a in range(n + 1) for b in range(n + 1 - a)]
    moves = 2 if relation == "replace" else 1
    pairs = [
        (i, j)
        for (i, s), (j, t) in itertools.combinations(enumerate(states), 2)
        if abs(s[0] - t[0]) + abs(s[1] - t[1]) == moves
    ]
    return states, pairs


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("promise", PROMISES, ids=str)
def test_the_best_mechanism_for_two_worlds_attains_the_floor(
    promise: tuple[float, float], relation: Relation, penalty: Penalty
) -> None:
    answers = np.linspace(0, 1, 41)
    power = 2 if penalty == "squared" else 1
    for n in (1, 2, 3):
        states, pairs = neighbours(n, relation)
        cost = np.zeros((len(states), len(answers)))
        cost[states.index((n, 0))] += answers**power / 2
        cost[states.index((0, n))] += (1 - answers) ** power / 2
        best = best_mechanism(pairs, cost, *promise)
        floor = min_error_of_worlds(*promise, n, relation=relation, penalty=penalty)
        # Answers on a grid lose at most a quarter of the square of its step.
        assert floor <= best + 1e-9
        assert best <= floor + 1 / 40**2 / 4 + 1e-9


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 3.0])
@pytest.mark.parametrize("n", [1, 2, 9, 40])
def test_noise_on_the_number_of_users_attains_the_floor(n: int, epsilon: float) -> None:
    # Two-sided geometric noise, clamped to 0..n; ratios of neighbours are at most e^ε.
    a = math.exp(-epsilon)
    noise = np.arange(n + 1)
    laws = (1 - a) / (1 + a) * a ** np.abs(noise[None, :] - noise[:, None]).astype(float)
    laws[:, 0], laws[:, n] = a**noise / (1 + a), a ** (n - noise) / (1 + a)
    assert laws.sum(axis=1) == pytest.approx(1)
    assert np.max(laws[1:] / laws[:-1]) <= math.exp(epsilon) * (1 + 1e-12)
    answer = laws[n] / (laws[0] + laws[n])
    worst = max(laws[0] @ answer**2, laws[n] @ (1 - answer) ** 2)
    floor = min_error_of_worlds(epsilon, 0.0, n, relation="replace")
    assert floor == pytest.approx(worst, rel=1e-9)
    # Half of the users lead to a data set between the worlds: not e^(−nε), as printed.
    assert 0.2 * math.exp(-n * epsilon / 2) < floor < 0.5 * math.exp(-n * epsilon / 2)


@pytest.mark.parametrize("relation", RELATIONS)
def test_long_chains_are_walked_in_groups(relation: Relation) -> None:
    few, many = (
        min_error_of_worlds(2.0 / n, 0.0, n, relation=relation) for n in (8_000, 8_000_000)
    )
    assert many == pytest.approx(few, rel=1e-3)
    # If δ adds up to a certain answer, nothing is left.
    assert min_error_of_worlds(1.0, 1e-9, 1000, relation=relation) == 0.0
    assert min_error_of_worlds(1.0, 0.0, 10**9, relation=relation) == 0.0


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_no_mechanism_for_records_is_below_the_floor(relation: Relation, penalty: Penalty) -> None:
    n, epsilon = 3, 1.0
    answers = np.linspace(0, 1, 31)
    power = 2 if penalty == "squared" else 1
    states, pairs = neighbours(n, relation)
    best = 0.0
    for gap in np.linspace(0.05, 1, 20):
        cost = np.zeros((len(states), len(answers)))
        for ones in range(n + 1):
            row = states.index((n - ones, ones))
            cost[row] += binom.pmf(ones, n, (1 - gap) / 2) * answers**power / 2
            cost[row] += binom.pmf(ones, n, (1 + gap) / 2) * (1 - answers) ** power / 2
        least = max(best_mechanism(pairs, cost, epsilon, 0.0) - 1 / 30**2 / 4, 0)
        best = max(best, 2 * gap * (math.sqrt(least) if penalty == "squared" else least))
    floor = min_error_of_records(epsilon, 0.0, n, relation=relation, penalty=penalty)
    assert floor <= best * (1 + 1e-6)
    assert best < 2 * floor


def test_the_floor_of_records_is_near_laplace_noise() -> None:
    for n, epsilon in ((1000, 1.0), (10**6, 0.1)):
        floor = min_error_of_records(epsilon, 0.0, n, relation="replace")
        laplace = math.sqrt(2) * 2 / (n * epsilon)
        assert floor < laplace < 2 * floor
    # Falls as 1/√m until a fixed number of users can do no better.
    one, many = (min_error_of_records(1.0, 0.0, 10_000, records=m) for m in (1, 10_000))
    assert one / many == pytest.approx(100, rel=0.3)
    ends = 2 * math.sqrt(min_error_of_worlds(0.1, 0.0, 20))
    assert min_error_of_records(0.1, 0.0, 20, records=10**12) == pytest.approx(ends, rel=1e-6)


@pytest.mark.slow
def test_floors_fall_with_users_and_epsilon_and_records() -> None:
    def falls(values: list[float]) -> bool:
        return all(0 <= b <= a * (1 + 1e-3) for a, b in itertools.pairwise(values))

    for relation in RELATIONS:
        for n in (3, 300):
            grid = (0.01, 0.1, 1.0, 5.0)
            assert falls([min_error_of_worlds(e, 1e-7, n, relation=relation) for e in grid])
            assert falls([min_error_of_records(e, 1e-7, n, relation=relation) for e in grid])
            assert falls([min_excess_of_choice(e, 1e-7, n, 9, relation=relation) for e in grid])
        sizes = (1, 2, 10, 1000, 10**6)
        assert falls([min_error_of_worlds(0.5, 1e-7, n, relation=relation) for n in sizes])
        assert falls([min_error_of_records(0.5, 1e-7, n, relation=relation) for n in sizes])
    several = (1, 2, 3, 10, 11, 1000, 10**9)
    assert falls([min_error_of_records(0.5, 0.0, 50, records=m) for m in several])
    deltas = (0.0, 1e-9, 1e-3, 0.3)
    assert falls([min_error_of_worlds(0.5, delta, 9) for delta in deltas])


def test_floors_reject_out_of_range_arguments() -> None:
    with refuses("hypotheses"):
        min_excess_of_choice(1.0, 0.0, 10, 1)
    with refuses("penalty"):
        min_error_of_worlds(1.0, 0.0, 10, penalty="cubed")  # type: ignore[arg-type]
    with refuses("noise_multiplier"):
        min_noise_of_clipped_sums(0.0, 10)
    with refuses("records"):
        min_error_of_records(1.0, 0.0, 10, records=0)
