"""Losses on a grid and sampling, against the oracle, Google's library and closed forms."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import gammaln, log_ndtr, logsumexp, ndtr
from tests import oracle

from dpgrain.accounting import SampledGaussian
from dpgrain.accounting.losses.compose import composed_delta, composed_epsilon
from dpgrain.accounting.losses.on_a_grid import Losses
from dpgrain.accounting.losses.pairs import Mixtures
from dpgrain.units import Element, Record, Relation, Unit, User

Array = NDArray[np.float64]
Parts = tuple[tuple[float, float], ...]
RELATIONS: tuple[Relation, ...] = ("zero_out", "replace")


# ------------------------------------------------------------------------------------------ the grid


def parts(low: float, high: float) -> st.SearchStrategy[Parts]:
    """Two to four weights and means, the weights adding up to 1."""
    one = st.tuples(st.floats(0.001, 1.0), st.floats(low, high))

    def scaled(drawn: list[tuple[float, float]]) -> Parts:
        total = math.fsum(w for w, _ in drawn)
        return tuple((w / total, m) for w, m in drawn)

    return st.lists(one, min_size=1, max_size=4).map(scaled)


def log_ratio(p: Parts, q: Parts, x: Array) -> Array:
    top, bottom = (
        logsumexp([math.log(w) + m * x - m * m / 2 for w, m in mixture], axis=0)
        for mixture in (p, q)
    )
    found: Array = top - bottom
    return found


def hockey_sticks(p: Parts, q: Parts, epsilons: Array) -> tuple[Array, Array]:
    """(n,) H at e^ε for several ε, and the probability under P of the event that attains it."""
    low, high = np.full(epsilons.shape, -200.0), np.full(epsilons.shape, 200.0)
    for _ in range(80):
        middle = (low + high) / 2
        above = log_ratio(p, q, middle) > epsilons
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    first, second = (sum(w * ndtr(m - high) for w, m in mixture) for mixture in (p, q))
    return np.maximum(first - np.exp(epsilons) * second, 0.0), np.asarray(first)


def sticks(found: Losses, epsilons: Array) -> Array:
    """(n,) H of a law on the grid."""
    losses = found.step * np.arange(found.low, found.low + found.mass.size) + found.slip
    kept = -np.expm1(np.minimum(epsilons[:, None] - losses, 0.0))
    return np.asarray(kept @ found.mass) + found.infinite


mixtures = st.builds(Mixtures, parts(0.0, 3.0), parts(-3.0, 0.0))
steps = st.sampled_from([0.5, 0.11, 0.03])
small = st.sampled_from([0.0, 1e-30, 1e-12, 1e-5])


@settings(max_examples=25, derandomize=True, deadline=None, phases=[Phase.generate])
@given(pair=mixtures, step=steps, tail=small, floor=small, turned=st.booleans())
def test_losses_on_a_grid_dominate_and_are_dominated(
    pair: Mixtures, step: float, tail: float, floor: float, turned: bool
) -> None:
    chosen: Any = pair.swapped if turned else pair
    above = chosen.losses(step, tail, floor)
    below = chosen.losses(step, tail, floor, upper=False)
    grid = step * np.arange(-60, 61)
    epsilons = np.sort(np.concatenate([grid, grid[:-1] + 0.37 * step, np.linspace(-12, 12, 61)]))
    # What swapping means, written out again.
    mirrored = (
        tuple((w, -m) for w, m in pair.q),
        tuple((w, -m) for w, m in pair.p),
    )
    exact, event = hockey_sticks(*(mirrored if turned else (pair.p, pair.q)), epsilons)
    slack = 1e-12 * event + 1e-300
    upper = sticks(above, epsilons)
    assert (upper >= exact - slack).all()
    # On the grid nothing is added but what may be cut off, between its points the chord.
    on_grid = np.isin(epsilons, grid)
    assert (upper - exact)[on_grid].max() <= 1.01 * tail + 3 * floor + 1e-9
    inside = (epsilons >= grid[0]) & (epsilons <= grid[-1])
    chord = np.interp(np.exp(epsilons), np.exp(epsilons[on_grid]), exact[on_grid])
    assert (upper - chord)[inside].max() <= 1.01 * tail + 3 * floor + 1e-9
    # From below what rounding may do is not counted: at most this.
    lower = sticks(below, epsilons)
    assert (lower <= exact + 1e-11 * event + 1e-14).all()
    later, _ = hockey_sticks(*(mirrored if turned else (pair.p, pair.q)), epsilons + step)
    if step < 0.1:
        assert (lower >= later - tail - floor - 1e-3).all()


@settings(max_examples=60, derandomize=True, deadline=None, phases=[Phase.generate])
@given(pair=mixtures, step=steps, tail=small)
def test_total_masses(pair: Mixtures, step: float, tail: float) -> None:
    above, below = (pair.losses(step, tail, 1e-9, upper=upper) for upper in (True, False))
    total = float(above.mass.sum()) + above.infinite
    assert 1 - 1e-12 <= total <= 1 + 1e-9
    assert above.infinite <= 1.01 * tail + 1e-300
    assert float(below.mass.sum()) + below.infinite <= 1 + 1e-12
    for found in (above, below):
        assert (found.mass >= 0).all()
    # Under Q: no more than 1 where the bound is from above.
    losses = step * np.arange(above.low, above.low + above.mass.size)
    assert float(above.mass @ np.exp(-losses)) <= 1 + 1e-9


def test_swapped_is_the_other_way_round() -> None:
    # Outputs of (Q, P) are those of (P, Q) with the laws exchanged: H_γ(Q‖P) = 1 − γ + γ·H_{1/γ}(P‖Q).
    pair = Mixtures(((0.9, 0.0), (0.1, 2.0)), ((1.0, 0.0),))
    assert pair.swapped != pair
    assert pair.swapped.swapped == pair
    epsilons = np.linspace(-2.0, 2.0, 9)
    there = sticks(pair.losses(1e-3, 1e-15, 1e-15), epsilons)
    back = sticks(pair.swapped.losses(1e-3, 1e-15, 1e-15), -epsilons)
    assert back == pytest.approx(-np.expm1(-epsilons) + np.exp(-epsilons) * there, abs=1e-6)
    mirror = Mixtures(((0.9, 0.0), (0.1, 2.0)), ((0.9, 0.0), (0.1, -2.0)))
    assert mirror.swapped is mirror


@pytest.mark.parametrize("rounds", [1, 20])
def test_both_directions_are_asked(rounds: int) -> None:
    # The first way round is the worse one of this pair, so that the answers differ by a lot.
    pair = Mixtures(((0.9, 0.0), (0.1, 2.0)), ((1.0, 0.0),))
    there, back = ((pair, rounds),), ((pair.swapped, rounds),)
    assert composed_delta(there, 1.0) == composed_delta(back, 1.0)
    assert composed_epsilon(there, 1e-4) == composed_epsilon(back, 1e-4)
    exact = oracle.hockey_stick(oracle.sampled(0.1, [2.0]), [(1.0, [0.0])], 1.0, math.e)
    assert composed_delta(back, 1.0) >= exact - 1e-9


# ---------------------------------------------------------------------------------- pairs are drawn


def pair_of(rate: float, blocks: int, relation: Relation) -> tuple[Any, Any]:
    p = oracle.binomial(rate, blocks, 1.0)
    return p, oracle.binomial(rate, blocks, -1.0) if relation == "replace" else [(1.0, [0.0])]


@pytest.mark.search(keep=2)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("units", [1, 2, 5])
def test_one_round_is_the_integral_of_its_mixtures(units: int, relation: Relation) -> None:
    for rate, sd in ((0.02, 0.7), (0.3, 2.0), (0.8, 4.0)):
        event, (p, q) = SampledGaussian(sd, rate), pair_of(rate, units, relation)
        for epsilon in (0.1, 1.0, 3.0):
            gamma = math.exp(epsilon)
            exact = max(oracle.hockey_stick(a, b, sd, gamma) for a, b in ((p, q), (q, p)))
            found = event.delta(epsilon, units=units, relation=relation)
            assert exact - 1e-9 <= found
            if exact > 1e-6:
                lower, upper = event.epsilon(exact, units=units, relation=relation, bounds=True)
                assert lower * (1 - 1e-5) <= epsilon <= upper * (1 + 1e-5)
                assert upper <= epsilon * (1 + 2e-3)


@pytest.mark.search(keep=2)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("units", "rounds"), [(1, 2), (1, 4), (3, 3)])
def test_a_few_rounds_are_convolved(units: int, rounds: int, relation: Relation) -> None:
    rate, sd = 0.2, 1.5
    p, q = pair_of(rate, units, relation)
    for epsilon in (0.5, 2.0):
        gamma = math.exp(epsilon)
        exact = max(oracle.rounds(a, b, sd, rounds, gamma) for a, b in ((p, q), (q, p)))
        found = SampledGaussian(sd, rate, rounds).delta(epsilon, units=units, relation=relation)
        assert found == pytest.approx(exact, rel=2e-3)


GOOGLE = [
    (0.01, 1.0, 1000, 1e-6),
    (0.1, 2.0, 100, 1e-5),
    (0.5, 5.0, 50, 1e-8),
    (0.001, 0.6, 500, 1e-6),
    (0.02, 1.2, 1, 1e-4),
]


@pytest.mark.search(keep=2)
@pytest.mark.parametrize(("rate", "sd", "rounds", "delta"), GOOGLE)
def test_the_poisson_sampled_gaussian_is_googles(
    rate: float, sd: float, rounds: int, delta: float
) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    above, below = (
        pld.from_gaussian_mechanism(
            sd, value_discretization_interval=1e-4, sampling_prob=rate, pessimistic_estimate=up
        )
        .self_compose(rounds)
        .get_epsilon_for_delta(delta)
        for up in (True, False)
    )
    lower, upper = SampledGaussian(sd, rate, rounds).epsilon(delta, bounds=True)
    assert below <= upper
    assert lower <= above
    assert upper == pytest.approx(above, rel=1e-3)


@pytest.mark.parametrize(("rate", "sd", "rounds", "delta"), GOOGLE)
def test_renyi_accounting_is_never_below(rate: float, sd: float, rounds: int, delta: float) -> None:
    assert SampledGaussian(sd, rate, rounds).epsilon(delta) <= moments(rate, sd, rounds, delta)


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


@pytest.mark.parametrize("relation", RELATIONS)
def test_everybody_drawn_is_the_gaussian(relation: Relation) -> None:
    for sampling in ("pairs", "users"):
        asked: dict[str, Any] = {"relation": relation, "units": 2}
        mu = math.sqrt(9) * 2 * (2 if relation == "replace" else 1) / 20.0
        exact = oracle.solve(lambda e, mu=mu: oracle.gaussian(e, mu), 1e-6)  # type: ignore[misc]
        for rate, slack in ((1.0, 1e-7), (1 - 1e-12, 3e-4)):
            kind: Any = sampling
            found = SampledGaussian(20.0, rate, 9, sampling=kind).epsilon(1e-6, **asked)
            assert exact * (1 - 1e-8) <= found <= exact * (1 + slack)


# ---------------------------------------------------------------------------------- users are drawn


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("blocks", ["shared", "disjoint"])
@pytest.mark.parametrize("units", [1, 3])
def test_participation_revealed_is_the_direct_sum(
    units: int, blocks: Literal["shared", "disjoint"], relation: Relation
) -> None:
    for rate, sd, rounds in ((0.01, 2.0, 300), (0.4, 12.0, 20), (0.001, 0.9, 2)):
        moved = units if blocks == "shared" else math.sqrt(units)
        mu = moved * (2 if relation == "replace" else 1) / sd
        event = SampledGaussian(sd, rate, rounds, sampling="users", blocks=blocks)
        for delta in (1e-3, 1e-7):
            exact = oracle.solve(
                lambda e, r=rate, n=rounds, m=mu: oracle.participation(e, r, n, m),  # type: ignore[misc]
                delta,
                1000.0,
            )
            found = event.epsilon(delta, units=units, relation=relation)
            assert exact * (1 - 1e-7) <= found <= exact * (1 + 1e-5)


def neighbours(held: int, changed: int, exchanged: bool, disjoint: bool) -> list[tuple[Any, Any]]:
    """Sums (a, a') of a user's blocks of norm 1, of which so many change; in the plane."""
    rest, size = float(held - changed), float(changed)
    if disjoint:
        rest, size = math.sqrt(rest), math.sqrt(size)
        return [([c, size], [c, -size if exchanged else 0.0]) for c in (rest, 0.0)]
    found: list[tuple[Any, Any]] = []
    for common, turn in ((rest, 0.0), (rest, math.pi / 2), (0.0, 0.0), (rest, 2.5)):
        x, y = size * math.cos(turn), size * math.sin(turn)
        found.append(([common + x, y], [common - x, -y] if exchanged else [common, 0.0]))
    return found


USERS = [
    # rate, sd, rounds, M, k
    (0.1, 2.0, 1, 3, 1),
    (0.3, 4.0, 1, 2, 1),
    (0.02, 0.8, 1, 4, 2),
    (0.5, 3.0, 1, 2, 2),
    (0.3, 4.0, 3, 2, 1),
    pytest.param(0.2, 3.0, 4, 4, 2, marks=pytest.mark.slow),
    pytest.param(0.02, 2.0, 200, 3, 1, marks=pytest.mark.slow),
]


@pytest.mark.search(keep=2)
@pytest.mark.parametrize("blocks", ["shared", "disjoint"])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("rate", "sd", "rounds", "held", "units"), USERS)
def test_no_explicit_neighbours_are_farther_apart(
    rate: float,
    sd: float,
    rounds: int,
    held: int,
    units: int,
    relation: Relation,
    blocks: Literal["shared", "disjoint"],
) -> None:
    delta, exchanged = 1e-3, relation == "replace"
    event = SampledGaussian(sd, rate, rounds, sampling="users", blocks=blocks)
    questions: list[tuple[int, Unit, bool, int]] = [
        (units, Element(), exchanged, units),
        (1, User(max_elements=held), exchanged, held),
    ]
    if 2 * units <= held:
        # A record that goes to another element changes two.
        questions.append((units, Record(), True, 2 * units if exchanged else units))
    for number, unit, turned, changed in questions:
        found = event.epsilon(delta, units=number, unit=unit, relation=relation, max_elements=held)
        for a, b in neighbours(held, changed, turned, blocks == "disjoint"):
            p, q = oracle.sampled(rate, a), oracle.sampled(rate, b)
            for one, two in ((p, q), (q, p)):
                if rounds == 1:
                    least = oracle.hockey_stick(one, two, sd, math.exp(found), points=500)
                    assert least <= delta + 3e-6
                else:
                    assert oracle.at_least(one, two, sd, rounds, delta, points=50) <= found


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_pair_of_disjoint_blocks_is_attained(relation: Relation) -> None:
    rate, sd, held, units = 0.1, 2.0, 3, 1
    event = SampledGaussian(sd, rate, sampling="users", blocks="disjoint")
    (a, b), *_ = neighbours(held, units, relation == "replace", disjoint=True)
    p, q = oracle.sampled(rate, a), oracle.sampled(rate, b)
    for epsilon in (0.2, 0.6):
        gamma = math.exp(epsilon)
        exact = max(oracle.hockey_stick(one, two, sd, gamma) for one, two in ((p, q), (q, p)))
        found = event.delta(epsilon, units=units, relation=relation, max_elements=held)
        assert exact - 1e-6 <= found <= exact * 1.03 + 1e-6


def test_the_smallest_bound_counts() -> None:
    # All elements of the user change: amplified as one block. One of many: as if it were revealed.
    for blocks, norm in (("shared", 4.0), ("disjoint", 2.0)):
        kind: Any = blocks
        event = SampledGaussian(8.0, 0.02, 500, sampling="users", blocks=kind)
        whole = event.epsilon(1e-6, unit=User(max_elements=4))
        block = SampledGaussian(8.0 / norm, 0.02, 500).epsilon(1e-6)
        assert whole == pytest.approx(block, rel=3e-4)
        revealed = event.epsilon(1e-6)
        few, many = (event.epsilon(1e-6, max_elements=held) for held in (2, 1000))
        assert few < 0.8 * revealed
        assert many <= revealed
        assert event.epsilon(1e-6, max_elements=100_000) == pytest.approx(revealed, rel=1e-3)


def test_users_are_not_billed_as_pairs() -> None:
    # The element's amplification is lost beside thirty others.
    pairs, users = (SampledGaussian(4.0, 0.02, 2000, sampling=kind) for kind in ("pairs", "users"))
    p, q = oracle.sampled(0.02, [30.0, 1.0]), oracle.sampled(0.02, [30.0, 0.0])
    least = oracle.at_least(p, q, 4.0, 2000, 1e-5, points=200)
    assert pairs.epsilon(1e-5) < 0.5 * least
    assert least <= users.epsilon(1e-5, max_elements=31) <= users.epsilon(1e-5)


# ------------------------------------------------------------------------------------------ extremes


def log_tails(rate: float, blocks: int, sd: float, rounds: int, places: Array, sign: int) -> Array:
    """(n,) ln P(sum of all rounds > x), the blocks that are drawn adding ±1 each."""
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
    """An ε that is not kept: of the events {sum of the outputs > x}."""
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


EXTREMES = [
    # rate, sd, rounds, units, delta
    pytest.param(1e-6, 0.3, 1, 1, 1e-30, marks=pytest.mark.slow),
    pytest.param(1e-6, 0.3, 1_000_000, 1, 1e-5, marks=pytest.mark.slow),
    (1e-6, 1e4, 1_000_000, 1, 1e-9),
    (1e-3, 1.0, 1_000_000, 1, 1e-6),
    (0.01, 1e4, 1, 1, 1e-30),
    pytest.param(0.01, 0.3, 100, 1, 1e-300, marks=pytest.mark.slow),
    (0.01, 1.0, 1000, 1, 1e-300),
    (0.5, 10.0, 10_000, 1, 1e-30),
    (0.5, 0.3, 40, 1, 1e-5),
    (1 - 1e-12, 3.0, 100, 1, 1e-5),
    (1 - 1e-12, 1e4, 1, 1, 1e-5),
    (0.01, 50.0, 100, 200, 1e-5),
    (0.001, 0.5, 10, 200, 1e-9),
    pytest.param(*(0.3, 1e4, 1_000_000, 1, 0.2), marks=pytest.mark.slow),
    (0.9, 1.0, 1, 1, 0.9),
]


@pytest.mark.search(keep=8)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("rate", "sd", "rounds", "units", "delta"), EXTREMES)
def test_extremes_neither_crash_nor_lie(
    rate: float, sd: float, rounds: int, units: int, delta: float, relation: Relation
) -> None:
    event = SampledGaussian(sd, rate, rounds)
    asked: dict[str, Any] = {"units": units, "relation": relation}
    lower, upper = event.epsilon(delta, bounds=True, **asked)
    assert 0 <= lower <= upper < math.inf
    assert least_epsilon(rate, units, sd, rounds, delta, relation) * (1 - 1e-9) <= upper
    # Drawn always, it is a Gaussian.
    mu = units * (2 if relation == "replace" else 1) * math.sqrt(rounds) / sd
    always = oracle.solve(lambda e: oracle.gaussian(e, mu), delta, mu * mu + 40 * mu)
    assert upper <= always * (1 + 3e-4) + 1e-6
    if units == 1 and relation == "zero_out" and rate < 0.9:
        assert upper <= moments(rate, sd, rounds, delta) * (1 + 1e-9)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "epsilon",
    [
        1e-3,
        pytest.param(1.0, marks=pytest.mark.slow),
        20.0,
        pytest.param(500.0, marks=pytest.mark.slow),
    ],
)
def test_delta_at_any_epsilon(epsilon: float, relation: Relation) -> None:
    for rate, sd, rounds in ((0.01, 1.0, 100), (0.5, 0.5, 3), (1e-6, 5.0, 10_000)):
        found = SampledGaussian(sd, rate, rounds).delta(epsilon, relation=relation)
        assert 0 <= found <= 1
        # Of one round in closed form: δ = q·δ_G(ln(1 + (e^ε − 1)/q)); more rounds only cost more.
        inner = epsilon + math.log(-math.expm1(-epsilon) / rate + math.exp(-epsilon))
        assert found >= rate * oracle.gaussian(inner, 1 / sd) * (1 - 1e-9)
        mu = math.sqrt(rounds) * (2 if relation == "replace" else 1) / sd
        assert found <= oracle.gaussian(epsilon, mu) * (1 + 1e-2) + 1e-290


@pytest.mark.search(keep=1)
@pytest.mark.parametrize(
    ("rate", "sd", "rounds", "held", "delta"),
    [
        (1e-6, 0.3, 1000, 3, 1e-30),
        (1 - 1e-12, 5.0, 10, 3, 1e-6),
        (0.01, 4.0, 1000, 4, 1e-5),
        (0.0125, 7.94, 40_000, 10, 5e-5),
        pytest.param(*(0.5, 1e4, 1_000_000, 200, 1e-6), marks=pytest.mark.slow),
        (0.1, 1.0, 10, 2, 1e-300),
    ],
)
def test_extremes_of_sampled_users(
    rate: float, sd: float, rounds: int, held: int, delta: float
) -> None:
    event = SampledGaussian(sd, rate, rounds, sampling="users")
    for relation in RELATIONS:
        found = event.epsilon(delta, relation=relation, max_elements=held)
        assert found <= event.epsilon(delta, relation=relation)
        # Neighbours of one element are among them.
        assert found * (1 + 1e-9) >= least_epsilon(rate, 1, sd, rounds, delta, relation)
