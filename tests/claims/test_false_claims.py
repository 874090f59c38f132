"""False statements in papers: explicit neighbours, integrated by tests/oracle.py.

Each claim's story is in docs/theory, "False claims and their corrections". Lemma 3.2(ii) of the
element-level paper and equation (4) of its short version are tested in losses/test_gaussian.py.
Nothing printed here is in the library.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracle import (
    Mixture,
    at_least,
    gaussian,
    hockey_stick,
    participation,
    renyi,
    sampled,
    solve,
)
from tests.refusals import refuses

import dpgrain as dg
from dpgrain import DeltaWarning
from dpgrain.accounting import ApproximateDP, SampledGaussian, calibrate
from dpgrain.units import Relation

Array = NDArray[np.float64]

# The paper's experiment: n = 8000 users, batches of 100 on average.
RATE = 100 / 8000
DELTA = 5e-5
RUNS = [
    pytest.param(40_000, 7.94, 29.9, id="T=40000"),
    pytest.param(200, 0.84, 38.6, id="T=200"),
]
ORDERS = (1.5, 2.0, 2.5, *(k / 4 for k in range(12, 32)), *map(float, range(8, 40, 2)))


def billed(p: Mixture, q: Mixture, sd: float, count: int, delta: float) -> float:
    """The ε of Corollary 2.5 and 3.1: Rényi divergences of one round, in both directions, added up."""
    return min(
        count * max(renyi(p, q, sd, order), renyi(q, p, sd, order))
        + math.log(1 / delta) / (order - 1)
        for order in ORDERS
    )


def person(angle: float, others: int = 29) -> tuple[Mixture, Mixture]:
    """A user with ``others`` equal elements and one more, which is replaced by its opposite."""
    along, across = math.sin(angle), math.cos(angle)
    there, back = [across, others + along], [-across, others - along]
    return sampled(RATE, there), sampled(RATE, back)


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "sd", "true"), RUNS)
def test_sampling_users_does_not_amplify_for_elements(rounds: int, sd: float, true: float) -> None:
    # Corollaries 2.5 and 3.1 with the paper's pair: ε = 3.
    claimed = billed(sampled(RATE, [1.0]), sampled(RATE, [-1.0]), sd, rounds, DELTA)
    assert claimed == pytest.approx(3.0, abs=0.02)
    # The 29 other elements reveal the user's rounds, so these count in full.
    p, q = person(0.4)
    lower = at_least(p, q, sd, rounds, DELTA, points=600)
    assert lower >= true
    # With ever more elements it becomes what it is when participation is known.
    limit = solve(lambda e: participation(e, RATE, rounds, 2 / sd), DELTA)
    assert true < lower < limit < 39.7


@pytest.mark.slow
def test_sampling_users_does_not_amplify_for_emptied_elements() -> None:
    # The weaker relation: 30 elements or 29.
    p, q = sampled(RATE, [1.0, 29.0]), sampled(RATE, [0.0, 29.0])
    limit = solve(lambda e: participation(e, RATE, 40_000, 1 / 7.94), DELTA)
    assert limit == pytest.approx(14.40, abs=0.005)
    assert 11.5 < at_least(p, q, 7.94, 40_000, DELTA) < limit
    assert 11.5 < at_least(q, p, 7.94, 40_000, DELTA) < limit


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rounds", "sd", "exchanged", "zeroed"),
    [(40_000, 7.94, 37.46, 14.40), (200, 0.84, 39.62, 13.75)],
)
def test_many_elements_cost_revealed_participation(
    rounds: int, sd: float, exchanged: float, zeroed: float
) -> None:
    event = SampledGaussian(sd, RATE, rounds, sampling="users")
    costs: list[tuple[Relation, float, float]] = [
        ("replace", 2 / sd, exchanged),
        ("zero_out", 1 / sd, zeroed),
    ]
    for relation, mu, known in costs:
        limit = solve(partial(participation, rate=RATE, count=rounds, mu=mu), DELTA)
        assert limit == pytest.approx(known, abs=0.005)
        assert event.epsilon(DELTA, relation=relation) == pytest.approx(limit, rel=1e-4)


def test_ten_elements_are_enough() -> None:
    p, q = person(0.4, others=9)
    assert at_least(p, q, 7.94, 40_000, DELTA) > 3.5
    assert at_least(p, q, 0.84, 200, DELTA) > 39.6


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "sd", "true"), RUNS)
def test_library_reports_the_cost_of_sampling_users(rounds: int, sd: float, true: float) -> None:
    event = SampledGaussian(sd, RATE, rounds, sampling="users")
    p, q = person(0.4)
    lower = at_least(p, q, sd, rounds, DELTA, points=600)
    assert true <= lower <= event.epsilon(DELTA, relation="replace")
    for others in (1, 9):
        p, q = person(0.4, others)
        reported = event.epsilon(DELTA, relation="replace", max_elements=others + 1)
        assert at_least(p, q, sd, rounds, DELTA, points=600) <= reported


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "sd", "true"), RUNS)
def test_sampling_pairs_satisfies_the_papers_claim(rounds: int, sd: float, true: float) -> None:
    event = SampledGaussian(sd, RATE, rounds, sampling="pairs")
    p, q = sampled(RATE, [1.0]), sampled(RATE, [-1.0])
    lower = at_least(p, q, sd, rounds, DELTA, points=8000)
    assert lower <= event.epsilon(DELTA, relation="replace") <= lower + 0.01
    assert lower == pytest.approx({40_000: 2.33, 200: 1.94}[rounds], abs=0.01)
    # The paper's conversion of Rényi divergences is valid for pairs, and loose.
    assert event.epsilon(DELTA, relation="replace") < billed(p, q, sd, rounds, DELTA) < 3.02
    assert event.epsilon(DELTA) <= event.epsilon(DELTA, relation="replace")


def test_corollary_2_4_fails_for_users_with_several_elements() -> None:
    # Each of a user's K bits is published by randomized response with 1-DP; users outside the
    # sample publish fair coins: 1-DP for an element. The sample includes a user with probability
    # 1%.
    rate, epsilon, bits = 0.01, 1.0, 40
    keep = 1 / (1 + math.exp(-epsilon))
    # All bits are 1, and the last one is 1 or 0; the output is all ones.
    absent = (1 - rate) * 0.5**bits
    ratio = (rate * keep**bits + absent) / (rate * keep ** (bits - 1) * (1 - keep) + absent)
    claimed = math.log(1 + rate * (math.exp(epsilon) - 1))
    assert claimed == pytest.approx(0.017, abs=5e-4)
    assert math.log(ratio) > 0.999


@pytest.mark.parametrize(
    ("rate", "sd", "order", "ratio"),
    [
        (0.01, 4.0, 2.0, 1.980),
        (0.001, 4.0, 2.0, 1.999),
        (1e-4, 4.0, 2.0, 2.001),
        (1e-4, 10.0, 8.0, 2.000),
        (RATE, 7.94, 5.0, 1.975),
    ],
)
def test_bound_below_corollary_2_5_is_half_the_divergence(
    rate: float, sd: float, order: float, ratio: float
) -> None:
    # ε_α ≤ q²α/((1−q)σ²) + O(q³/σ³), also for pairs; the leading term is 2αq²·sinh(1/σ²).
    assert order <= sd**2 * math.log(1 / (rate * sd))
    p, q = sampled(rate, [1.0]), sampled(rate, [-1.0])
    true = max(renyi(p, q, sd, order), renyi(q, p, sd, order))
    claimed = rate**2 * order / ((1 - rate) * sd**2)
    assert true / claimed == pytest.approx(ratio, abs=5e-4)
    assert true == pytest.approx(2 * order * rate**2 * math.sinh(1 / sd**2), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("elements", "proved"), [(5, 11.28), (30, 43.13)])
def test_smallest_proved_epsilon_for_the_network_figure(elements: int, proved: float) -> None:
    # Figure 5: accounted for as ε = 3 for one zeroed element, 40,000 steps, δ = 1e-6.
    billed = calibrate(lambda sd: SampledGaussian(sd, RATE, 40_000), 3.0, 1e-6).parameter
    assert billed == pytest.approx(3.93, abs=0.005)
    event = SampledGaussian(billed, RATE, 40_000, sampling="users")
    assert event.epsilon(1e-6, max_elements=elements) == pytest.approx(proved, abs=0.05)


def test_corollary_2_3_understates_the_leak() -> None:
    # One mechanism publishes everything with probability 1e-6, and nothing else: (1, 1e-6)-DP.
    epsilon, leak, free = 1.0, 1e-6, 1e-9
    here, there = np.array([1 - leak, leak, 0.0]), np.array([1 - leak, 0.0, leak])
    claimed = 1.5 * epsilon**2 + math.sqrt(6 * epsilon**2 * math.log(1 / free))
    assert claimed == pytest.approx(12.65, abs=0.005)
    assert free + leak / (1 + math.exp(epsilon)) == pytest.approx(2.70e-7, abs=0.005e-7)
    true = np.maximum(here - math.exp(claimed) * there, 0).sum()
    assert true == pytest.approx(leak) == ApproximateDP(epsilon, leak).delta(claimed)


# Sums of whole users.


def test_replaced_user_costs_twice_the_printed_variance() -> None:
    # Below Lemma 3.1: m items of a user, present, absent or replaced; the variance m·2log(1/δ)/ε².
    held, epsilon, delta = 50, 1.0, 1e-5
    one, other = np.repeat([[1, 0], [0, 1]], held, axis=1)
    moved = float(np.linalg.norm(one - other))
    assert moved**2 == 2 * held
    sd = math.sqrt(2 * math.log(1 / delta)) / epsilon
    printed, needed = (moved / (sd * math.sqrt(times * held)) for times in (1, 2))
    assert gaussian(epsilon, printed) == pytest.approx(4.28e-5, abs=0.005e-5)
    assert gaussian(epsilon, needed) < delta


def test_dropping_words_before_clipping_moves_user_by_ten_bounds() -> None:
    # A user's first 99 words are used, then each cell is clipped to norm 1: cell 0 has 99 words,
    # and 99 other cells have one each. Then cell 0 is emptied.
    def bounded(cells: NDArray[np.int64]) -> Array:
        kept = np.bincount(cells[:99], minlength=100).astype(float)
        return np.asarray(np.minimum(kept, 1.0))

    others = np.arange(1, 100)
    full = bounded(np.concatenate([np.zeros(99, dtype=np.int64), others]))
    assert np.linalg.norm(full - bounded(others)) == pytest.approx(10.0)


def test_the_papers_delta_lets_some_user_leak() -> None:
    # Each user's data are published with probability δ = n^(−1.1): (0, δ)-DP.
    n = 8000
    delta = n**-1.1
    assert delta == pytest.approx(5.09e-5, abs=0.005e-5)
    assert 1 - (1 - delta) ** n == pytest.approx(0.33, abs=0.005)
    with pytest.warns(DeltaWarning, match="8,?000"):
        dg.shuffle.ScalarSum(n_users=n, epsilon=1.0, delta=delta).simulate(np.zeros(n))


# Batches of a fixed size.


def fixed_size(batch: int, users: int, own: float, others: float) -> Mixture:
    """The sum over every batch of this size, all equally likely; the last user has ``own``."""
    values = [others] * (users - 1) + [own]
    batches = list(itertools.combinations(values, batch))
    return [(1 / len(batches), [sum(chosen)]) for chosen in batches]


def test_one_fixed_size_batch_is_not_a_poisson_sample() -> None:
    # Every batch of 2 out of 10 users, enumerated: the user's vector takes another's place.
    p, q = fixed_size(2, 10, 1.0, -1.0), fixed_size(2, 10, -1.0, -1.0)
    poisson = sampled(0.2, [1.0]), sampled(0.2, [-1.0])
    for epsilon in (0.5, 1.0, 2.0):
        gamma = math.exp(epsilon)
        true = hockey_stick(p, q, 1.0, gamma)
        assert true > 2 * hockey_stick(*poisson, 1.0, gamma)
        # It is the pair of a shift by 2 against none.
        direct = hockey_stick(sampled(0.2, [2.0]), sampled(0.2, [0.0]), 1.0, gamma)
        assert true == pytest.approx(direct, rel=1e-4)


@pytest.mark.slow
def test_fixed_size_batches_accounted_as_poisson_are_understated() -> None:
    # 10 of 1000 users in each of 1000 rounds. All others have -1; one has 1, or -1. Each user has one
    # element, so that Corollary 3.2 claims the same of whole users, K ∧ M being 1.
    rate, sd, rounds, delta = 0.01, 1.0, 1000, 1e-5
    true = at_least(sampled(rate, [2.0]), sampled(rate, [0.0]), sd, rounds, delta, points=4000)
    replaced = billed(sampled(rate, [1.0]), sampled(rate, [-1.0]), sd, rounds, delta)
    removed = billed(sampled(rate, [1.0]), sampled(rate, [0.0]), sd, rounds, delta)
    assert removed == pytest.approx(2.54, abs=0.005)
    assert replaced == pytest.approx(3.58, abs=0.005)
    assert true > 13.3
    # The sharpest accountant of Poisson samples does not save the claim: it bills less still.
    event = SampledGaussian(sd, rate, rounds)
    assert event.epsilon(delta, relation="replace") == pytest.approx(2.84, abs=0.005)
    assert event.epsilon(delta) == pytest.approx(1.83, abs=0.005)
    # The true statement for such batches: the batch of the user is visible.
    assert true <= solve(lambda e: participation(e, rate, rounds, 2 / sd), delta)


@pytest.mark.parametrize("sampling", ["fixed", "shuffle", "without_replacement"])
def test_fixed_size_batches_are_rejected(sampling: Any) -> None:
    with refuses("sampling", "Participation"):
        SampledGaussian(1.0, 0.01, 1000, sampling=sampling)


# Asi & Liu, Algorithm 1.


def printed_algorithm(values: Array) -> tuple[float, Array, float]:
    """Score, selection probabilities and mean of one round, in units of τ, as printed."""
    n = len(values)
    distance = np.abs(values[:, None] - values[None, :])
    score = float((distance <= 1).sum()) / n
    seen = (distance <= 2).sum(axis=1)
    chosen = np.where(seen < n / 2, 0.0, np.clip((seen - n / 2) / (n / 6), 0.0, 1.0))
    mean = float(chosen @ values / chosen.sum())
    return score, chosen, mean


def crowd(user: float, *groups: tuple[int, float]) -> Array:
    """Groups of users at one point each, distant from all others, and the user."""
    placed = np.concatenate([np.full(size, place) for size, place in groups])
    lonely = 100.0 * (1 + np.arange(999 - len(placed)))
    return np.concatenate([placed, lonely, [user]])


def laplace_cdf(x: Array, scale: float) -> Array:
    half = 0.5 * np.exp(-np.abs(x) / scale)
    return np.where(x < 0, half, 1 - half)


def test_the_constants_of_asi_and_liu_are_not_private() -> None:
    n, epsilon, delta, rounds = 1000, 1.0, 1e-6, 1000
    logs = math.log(math.exp(epsilon / 2) * rounds / delta) * math.log(
        math.exp(epsilon / 2) / delta
    )
    sd = math.sqrt(8 * rounds * logs) / (n * epsilon)
    assert sd * n == pytest.approx(1559, abs=1)
    assert n >= (8 * math.log(rounds / 0.01) + 8 * math.log(rounds / delta)) / epsilon

    # Three kinds of queries; the same 999 users and one more, here and there.
    low, last = [(887, -1.0), (112, 1.0)], [(888, -1.0), (111, 1.0)]
    queries = {
        # Always passes; the user is at either end of the other users' values.
        "sure": (crowd(2.0, (930, 0.0)), crowd(-2.0, (930, 0.0))),
        # Rarely passes; in one table the user is near everyone, in the other near no one.
        "rare": (crowd(0.0, *low), crowd(-3.0, *low)),
        "last": (crowd(-3.0, *last), crowd(0.0, *last)),
    }
    seen = {name: [printed_algorithm(v) for v in pair] for name, pair in queries.items()}
    for here, there in seen.values():
        # All users are selected or none, with certainty, so the means have no randomness.
        assert set(here[1]) | set(there[1]) <= {0.0, 1.0}
    score = {name: (here[0], there[0]) for name, (here, there) in seen.items()}
    # The score changes by almost 2, but AboveThreshold is run for a change of 1.
    assert score["rare"][0] - score["rare"][1] == pytest.approx(2 - 2 / n)
    moved = {name: abs(here[2] - there[2]) for name, (here, there) in seen.items()}

    # The event: 989 sure and 10 rare queries pass, the last one does not. AboveThreshold as printed,
    # with ε/2: passes if score + Lap(8/ε) ≥ 4n/5 - Lap(4/ε), the second drawn once.
    z, step = np.linspace(-200, 200, 400_001, retstep=True)
    once = np.exp(-np.abs(z) * epsilon / 4) * epsilon / 8 * step

    def passes(value: float) -> Array:
        return laplace_cdf(value - 0.8 * n + z, 8 / epsilon)

    def happens(side: int) -> float:
        passed = passes(score["sure"][side]) ** 989 * passes(score["rare"][side]) ** 10
        return float(once @ (passed * (1 - passes(score["last"][side]))))

    ratio = math.log(happens(0) / happens(1))
    assert happens(0) == pytest.approx(0.00628, abs=5e-6)
    assert happens(1) == pytest.approx(0.00238, abs=5e-6)
    assert ratio == pytest.approx(0.970, abs=5e-4)
    # Given the event, 999 means with Gaussian noise were published: one Gaussian of this μ.
    mu = math.sqrt(989 * moved["sure"] ** 2 + 10 * moved["rare"] ** 2) / sd
    true = happens(0) * gaussian(epsilon - ratio, mu)
    assert mu == pytest.approx(0.0869, abs=5e-5)
    assert true > 1.389e-4


def test_lemma_3_3_of_asi_and_liu_is_false() -> None:
    # 999 users on a circle who see 600 others each, and one in the middle who sees all, or is far away.
    n = 1000
    turn = 2 * math.pi * np.arange(n - 1) / (n - 1)
    ring = 1.236 * np.column_stack([np.cos(turn), np.sin(turn)])

    def chosen(user: tuple[float, float]) -> Array:
        points = np.vstack([ring, [user]])
        gaps = np.linalg.norm(points[:, None] - points[None, :], axis=2)
        seen = (gaps <= 2).sum(axis=1)
        return np.asarray(np.clip((seen - n / 2) / (n / 6), 0.0, 1.0))

    change = float(np.abs(chosen((0.0, 0.0)) - chosen((50.0, 0.0))).sum())
    assert change > 6.99


# Levy et al., Theorem 7.


def test_constant_of_theorem_7_of_levy_is_too_small() -> None:
    # K hypotheses, one better than all others by the gap; all users agree, so that the means are
    # exact and each evaluation has Laplace noise of scale 8τ/(n·ε/3), which is the unit here.
    def found(hypotheses: int, alpha: float, gap: float) -> float:
        stop = alpha / hypotheses
        x, step = np.linspace(-80, 80, 1_600_001, retstep=True)
        share = 1 / hypotheses
        survive = 1 - (share * laplace_cdf(x, 1.0) + (1 - share) * laplace_cdf(x - gap, 1.0))
        # The number of evaluations is geometric: P(all > x) = stop·s/(1 - (1-stop)·s), s = survive.
        density = stop / (1 - (1 - stop) * survive) ** 2
        return float((density * share * 0.5 * np.exp(-np.abs(x))).sum() * step)

    hypotheses, alpha = 10**6, 0.2
    claimed = math.log(25 * hypotheses * math.log(5 / alpha) / alpha**2)
    # 8τ/(nε)·log(…), which is a third of it in units of the noise; the paper claims probability
    # 0.8.
    assert found(hypotheses, alpha, claimed / 3) == pytest.approx(0.0013, abs=5e-5)
    # Two noises of 24τ/(nε) must be distinguished: 48.
    assert found(hypotheses, alpha, 2 * claimed) == pytest.approx(0.833, abs=5e-4)


def test_lemma_3_3_of_cheu_needs_both_orders() -> None:
    # A coin that always shows heads against one with probability e^(−ε): the divergence in this
    # direction is ε, the other one is infinite. All 10,000 show heads.
    coins, epsilon, gamma = 10_000, 0.01, 1e-6
    spread = math.sqrt(math.log(1 / gamma) * coins * epsilon**2)
    claimed = coins * epsilon * math.expm1(epsilon) + 2 * spread
    assert claimed == pytest.approx(8.44, abs=0.005)
    assert 1 - math.exp(claimed - coins * epsilon) > 0.999 > gamma


def test_lemma_3_1_of_cheu_fails_for_one_step() -> None:
    delta, n, grid = 1e-6, 1000, 1

    def nothing(epsilon: float) -> float:
        """All users have 0 and no coin is 1; if one user has 1, one coin is 1 for sure."""
        coins = 180 * grid**2 * math.log(2 / delta) / (epsilon**2 * n) + 1
        rate = 90 * grid**2 * math.log(2 / delta) / (coins * epsilon**2 * n)
        return float((1 - rate) ** (coins * n))

    assert nothing(15.0) == pytest.approx(0.003, rel=0.05)
    assert nothing(9.7) < delta < nothing(9.8)
