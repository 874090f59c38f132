"""Floors under the error of users with many records, against the best mechanisms there are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array
from scipy.stats import binom, chi

from dpgrain.accounting import calibrate_gaussian
from dpgrain.errors import ParameterError
from dpgrain.planning.floors import (
    PENALTIES,
    Penalty,
    _traced_loss,
    _traced_mean,
    choice_order,
    convex_order,
    least_error_of_records,
    least_error_of_worlds,
    least_excess_of_choice,
    least_noise_of_clipped_sums,
    mean_order,
)
from dpgrain.units import Relation

RELATIONS: tuple[Relation, ...] = ("zero_out", "replace")
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
    """Data sets as (users of world 0, users of world 1), and the pairs that one user tells apart."""
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


@pytest.mark.search
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
        floor = least_error_of_worlds(*promise, n, relation=relation, penalty=penalty)
        # Answers on a grid lose at most a quarter of the square of its step.
        assert floor <= best + 1e-9
        assert best <= floor + 1 / 40**2 / 4 + 1e-9


@pytest.mark.search
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
    floor = least_error_of_worlds(epsilon, 0.0, n, relation="replace")
    assert floor == pytest.approx(worst, rel=1e-9)
    # Half of the users lead to a data set between the worlds: not e^(−nε), as printed.
    assert 0.2 * math.exp(-n * epsilon / 2) < floor < 0.5 * math.exp(-n * epsilon / 2)


@pytest.mark.parametrize("relation", RELATIONS)
def test_long_chains_are_walked_in_groups(relation: Relation) -> None:
    few, many = (
        least_error_of_worlds(2.0 / n, 0.0, n, relation=relation) for n in (8_000, 8_000_000)
    )
    assert many == pytest.approx(few, rel=1e-3)
    # Where δ alone adds up to a certain answer, nothing is left.
    assert least_error_of_worlds(1.0, 1e-9, 1000, relation=relation) == 0.0
    assert least_error_of_worlds(1.0, 0.0, 10**9, relation=relation) == 0.0


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
    floor = least_error_of_records(epsilon, 0.0, n, relation=relation, penalty=penalty)
    assert floor <= best * (1 + 1e-6)
    assert best < 2 * floor


def test_the_floor_of_records_is_near_laplace_noise() -> None:
    for n, epsilon in ((1000, 1.0), (10**6, 0.1)):
        floor = least_error_of_records(epsilon, 0.0, n, relation="replace")
        laplace = math.sqrt(2) * 2 / (n * epsilon)
        assert floor < laplace < 2 * floor
    # Falls as 1/√m until a fixed number of users can do no better.
    one, many = (least_error_of_records(1.0, 0.0, 10_000, records=m) for m in (1, 10_000))
    assert one / many == pytest.approx(100, rel=0.3)
    ends = 2 * math.sqrt(least_error_of_worlds(0.1, 0.0, 20))
    assert least_error_of_records(0.1, 0.0, 20, records=10**12) == pytest.approx(ends, rel=1e-6)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("promise", [(0.2, 0.0), (0.5, 1e-3), (1.0, 0.0)], ids=str)
def test_no_mechanism_is_below_what_fingerprints_tell(
    promise: tuple[float, float], relation: Relation
) -> None:
    # The best mechanism for a mean, of 3 users, that is uniform on [−a, a]; so is the proof's.
    n, answers = 3, np.linspace(-1, 1, 41)
    states, pairs = neighbours(n, relation)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    squared, absolute = 0.0, 0.0
    for box in (0.3, 0.6, 1.0):
        means = box * nodes
        mean, loss = np.zeros((2, len(states), len(answers)))
        for ones in range(n + 1):
            law = weights / 2 * binom.pmf(ones, n, (1 + means) / 2)
            row = states.index((n - ones, ones))
            mean[row] = law @ (box * answers[None, :] - means[:, None]) ** 2
            loss[row] = law @ (np.abs(means)[:, None] - means[:, None] * answers[None, :])
        least = max(best_mechanism(pairs, mean, *promise) - (box / 20) ** 2 / 4, 0)
        squared = max(squared, math.sqrt(least))
        absolute = max(absolute, best_mechanism(pairs, loss, *promise))
    assert 0 < _traced_mean(*promise, n, 1, 1, relation) <= squared
    assert 0 < _traced_loss(*promise, n, 1, 1) <= absolute


def test_a_user_who_is_left_out_costs_the_root_of_their_promise() -> None:
    # The error without a user is e^(ε/2) times the error at most.
    kept, left = (_traced_mean(1.0, 1e-15, 10**6, 1, 10**4, r) for r in RELATIONS[::-1])
    assert kept / left == pytest.approx(math.exp(0.5), rel=0.02)
    assert kept == pytest.approx(100 / (3 * 10**6 * math.sinh(1)), rel=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_the_identity_of_fingerprints_of_several_records(seed: int) -> None:
    # E[φ/(1 − p²)·M·Σ(x − p)] = E[2·p·g], φ = a² − p², for any answers M: two users of two records.
    answers, box = np.random.default_rng(seed).uniform(-1, 1, 16), 0.7
    data = np.array(list(itertools.product((-1, 1), repeat=4)), dtype=np.float64)
    nodes, weights = np.polynomial.legendre.leggauss(30)
    left = right = 0.0
    for p, weight in zip(box * nodes, weights / 2, strict=True):
        law = np.prod((1 + p * data) / 2, axis=1)
        scored = answers * (data - p).sum(axis=1)
        left += weight * (box**2 - p * p) / (1 - p * p) * float(law @ scored)
        right += weight * 2 * p * float(law @ answers)
    assert left == pytest.approx(right, abs=1e-12)


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_floor_of_many_coordinates(relation: Relation) -> None:
    for epsilon, n, records, dimension in itertools.product(
        (0.1, 1.0, 4.0), (10, 10**4), (1, 100), (1, 50, 10**6)
    ):
        asked = {"records": records, "dimension": dimension, "relation": relation}
        noise = calibrate_gaussian(epsilon, 1e-9, relation=relation).noise_multiplier
        made = math.hypot(math.sqrt(dimension) * noise / n, 1 / math.sqrt(n * records))
        # The Gaussian mechanism with the sampling error; and the answer 0.
        floor = least_error_of_records(epsilon, 1e-9, n, **asked)  # type: ignore[arg-type]
        assert floor <= min(made, 1.0)
        assert least_error_of_records(
            epsilon, 1e-9, n, penalty="absolute", **asked  # type: ignore[arg-type]
        ) <= min(2 * made, 1.0)  # fmt: skip
    floors = [
        least_error_of_records(
            0.1, 1e-12, 10**6, records=25, dimension=d, relation=relation, penalty=penalty
        )
        for penalty in PENALTIES
        for d in (400, 40_000)
    ]
    # √d/(3nε√m), and √d/(8nε√m) for losses.
    assert floors[1] / floors[0] == pytest.approx(10, rel=0.1)
    assert floors[3] / floors[2] == pytest.approx(10, rel=0.1)
    assert floors[1] == pytest.approx(200 / (3 * 10**5 * 5), rel=0.1)
    assert floors[3] == pytest.approx(200 / (8 * 10**5 * 5), rel=0.1)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("delta", [0.0, 0.02])
def test_no_choice_is_below_the_floor(relation: Relation, delta: float) -> None:
    n, epsilon, names = 2, 0.7, 3
    kinds: Sequence[tuple[int, ...]] = list(itertools.product((0, 1), repeat=names))
    users = range(len(kinds)) if relation == "replace" else range(-1, len(kinds))
    states = list(itertools.combinations_with_replacement(users, n))
    place = {state: number for number, state in enumerate(states)}
    pairs = set()
    for state in states:
        for moved in users:
            other = tuple(sorted((*state[1:], moved))), tuple(sorted((state[0], moved)))
            for to in other:
                fits = relation == "replace" or -1 in (
                    *(set(state) ^ set(to)),
                    *(() if state.count(-1) == to.count(-1) else (-1,)),
                )
                if to != state and fits and (place[to], place[state]) not in pairs:
                    pairs.add((place[state], place[to]))
    best = 0.0
    for base, gap in itertools.product((0.5, 1.0), (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)):
        if gap > base:
            continue
        cost = np.zeros((len(states), names))
        for world in range(names):
            rates = [base - gap * (k == world) for k in range(names)]
            law = [
                math.prod(r if bit else 1 - r for r, bit in zip(rates, kind, strict=True))
                for kind in kinds
            ]
            for drawn in itertools.product(range(len(kinds)), repeat=n):
                chance = math.prod(law[kind] for kind in drawn)
                wrong = np.arange(names) != world
                cost[place[tuple(sorted(drawn))]] += chance * gap * wrong / names
        best = max(best, best_mechanism(sorted(pairs), cost, epsilon, delta))
    floor = least_excess_of_choice(epsilon, delta, n, names, relation=relation)
    assert 0 < floor <= best * (1 + 1e-6)
    assert best < 3 * floor


def test_choices_among_many_cost_the_logarithm() -> None:
    few, many = (
        least_excess_of_choice(0.01, 0.0, 10**7, k, records=4, relation="replace")
        for k in (10**4, 10**8)
    )
    assert many / few == pytest.approx(2, rel=0.2)
    order = math.log(10**8) / (10**7 * 0.01 * math.sqrt(4))
    assert 0.3 < many / order < 1


def test_floors_fall_with_users_and_epsilon_and_records() -> None:
    # Up to what a search on a grid misses.
    def falls(values: list[float]) -> bool:
        return all(0 <= b <= a * (1 + 1e-3) for a, b in itertools.pairwise(values))

    for relation in RELATIONS:
        for n in (3, 300):
            grid = (0.01, 0.1, 1.0, 5.0)
            assert falls([least_error_of_worlds(e, 1e-7, n, relation=relation) for e in grid])
            assert falls([least_error_of_records(e, 1e-7, n, relation=relation) for e in grid])
            assert falls([least_excess_of_choice(e, 1e-7, n, 9, relation=relation) for e in grid])
        sizes = (1, 2, 10, 1000, 10**6)
        assert falls([least_error_of_worlds(0.5, 1e-7, n, relation=relation) for n in sizes])
        assert falls([least_error_of_records(0.5, 1e-7, n, relation=relation) for n in sizes])
    several = (1, 2, 3, 10, 11, 1000, 10**9)
    assert falls([least_error_of_records(0.5, 0.0, 50, records=m) for m in several])
    deltas = (0.0, 1e-9, 1e-3, 0.3)
    assert falls([least_error_of_worlds(0.5, delta, 9) for delta in deltas])


def noise_of(factor: float, n: int, dimension: int, radius: float, away: float) -> float:
    """The noise's rms error of clipping to a radius around a centre that is so far from the mean.

    The best linear answer divides, along each direction, by how much a moved mean moves the sum.
    """
    if away == 0:
        grid = chi.ppf((np.arange(20_000) + 0.5) / 20_000, dimension)
        moved = np.mean(np.minimum(grid, radius) * grid) / dimension
        return float(factor * radius * math.sqrt(dimension) / (n * moved))
    normal = np.random.default_rng(3).normal(size=(100_000, dimension))
    shifted = normal + away * np.eye(dimension)[0]
    norms = np.linalg.norm(shifted, axis=1, keepdims=True)
    clipped = shifted * np.minimum(1, radius / norms)
    turned = clipped.T @ normal / len(normal)
    return factor * radius / n * float(np.linalg.norm(np.linalg.inv(turned)))


@pytest.mark.parametrize("dimension", [1, 2, 5, 20])
def test_no_radius_around_a_centre_brings_less_noise(dimension: int) -> None:
    floor = least_noise_of_clipped_sums(4.0, 1000, dimension)
    near = []
    for away in (0.0, 0.5, 2.0):
        for radius in np.geomspace(0.02, 6, 12) * math.sqrt(dimension):
            made = noise_of(4.0, 1000, dimension, float(radius), away)
            # Estimated from 100,000 users where the centre is off.
            assert made >= floor * (1 - (1e-4 if away == 0 else 0.02))
            near.append(made)
    assert min(near) == pytest.approx(floor, rel=0.02)
    assert floor >= 4.0 * dimension / 1000


def test_clipped_sums_as_they_are_run() -> None:
    # Signs of coordinates, a fixed rotation of them, and shortened vectors: what is measured.
    generator = np.random.default_rng(5)
    n, dimension, factor = 4000, 3, 200.0
    floor = least_noise_of_clipped_sums(factor, n, dimension)
    turn = np.linalg.qr(generator.normal(size=(7, dimension)))[0]
    ways: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
        "signs": lambda u: np.sign(u) / math.sqrt(dimension),
        "lengths": lambda u: u / np.maximum(1, np.linalg.norm(u, axis=1, keepdims=True)),
        "seven": lambda u: np.tanh(u @ turn.T) / math.sqrt(7),
    }
    for way in ways.values():
        users = generator.normal(size=(400_000, dimension))
        turned = way(users).T @ users / len(users)
        decoder = np.linalg.pinv(turned) / n
        sums = factor * generator.normal(size=(4000, turned.shape[0]))
        measured = math.sqrt(np.mean(np.sum((sums @ decoder.T) ** 2, axis=1)))
        assert measured >= 0.93 * floor


def test_orders_by_hand() -> None:
    assert mean_order(0.5, 1000, dimension=25, records=4) == pytest.approx(5 / 2 / 500)
    assert convex_order(0.5, 1000, dimension=25, records=4) == pytest.approx(
        1 / math.sqrt(4000) + 0.005
    )
    assert convex_order(0.5, 1000, dimension=25, records=4, strength=2.0) == pytest.approx(
        (1 / 4000 + 0.005**2) / 2
    )
    assert choice_order(0.5, 1000, 20, records=4) == pytest.approx(
        math.sqrt(math.log(20) / 4000) + math.log(20) / 1000
    )


def test_floors_refuse_what_is_out_of_range() -> None:
    with pytest.raises(ParameterError, match="hypotheses must be a whole number of at least 2"):
        least_excess_of_choice(1.0, 0.0, 10, 1)
    with pytest.raises(ParameterError, match="penalty must be one of 'squared', 'absolute'"):
        least_error_of_worlds(1.0, 0.0, 10, penalty="cubed")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="noise_multiplier must be finite and above 0"):
        least_noise_of_clipped_sums(0.0, 10)
    with pytest.raises(ParameterError, match="records must be a whole number"):
        least_error_of_records(1.0, 0.0, 10, records=0)
