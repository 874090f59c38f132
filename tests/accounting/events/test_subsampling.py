"""Sampled Gaussians: no explicit neighbours violate the bound; extremes are handled."""

from __future__ import annotations

import math
import random
from typing import Any, Literal, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray
from tests import oracle
from tests.accounting.losses import sampling_rates

from dpgrain.accounting import Participation, SampledGaussian
from dpgrain.errors import ParameterError
from dpgrain.units import Element, Level, Record, Relation, Unit, User

Array = NDArray[np.float64]


@pytest.mark.parametrize(("rate", "sd", "rounds", "delta"), sampling_rates.GOOGLE)
def test_renyi_accounting_is_never_below(rate: float, sd: float, rounds: int, delta: float) -> None:
    assert SampledGaussian(sd, rate, rounds).epsilon(delta) <= sampling_rates.moments(
        rate, sd, rounds, delta
    )


@pytest.mark.parametrize("relation", sampling_rates.RELATIONS)
def test_sampling_everyone_equals_the_gaussian(relation: Relation) -> None:
    for sampling in ("pairs", "users"):
        asked: dict[str, Any] = {"relation": relation, "units": 2}
        mu = math.sqrt(9) * 2 * (2 if relation == "replace" else 1) / 20.0
        exact = oracle.solve(lambda e, mu=mu: oracle.gaussian(e, mu), 1e-6)  # type: ignore[misc]
        for rate, slack in ((1.0, 1e-7), (1 - 1e-12, 3e-4)):
            kind: Any = sampling
            found = SampledGaussian(20.0, rate, 9, sampling=kind).epsilon(1e-6, **asked)
            assert exact * (1 - 1e-8) <= found <= exact * (1 + slack)


def test_zeroed_element_admits_another_when_elements_are_bounded() -> None:
    for most, units in ((2, 1), (2, 2), (3, 2)):
        kept = SampledGaussian(1.0, 0.2, 5, max_elements=most)
        plain = SampledGaussian(1.0, 0.2, 5)
        exchanged = plain.epsilon(1e-6, units=units, relation="replace")
        assert kept.epsilon(1e-6, units=units) >= exchanged * (1 - 1e-9)


@pytest.mark.parametrize("relation", sampling_rates.RELATIONS)
def test_negligible_noise_reveals_only_participation(relation: Relation) -> None:
    # In 100 rounds about ten include the person; each costs shift²/2.
    rate, shift, delta = 0.1, 20_000.0, 1e-6
    event = SampledGaussian(1 / shift, rate, 100)
    found = event.epsilon(delta, relation=relation)
    mass = [math.comb(100, j) * rate**j * (1 - rate) ** (100 - j) for j in range(101)]
    most = max(j for j in range(101) if sum(mass[j:]) > delta)
    assert most * shift**2 / 2 * 0.99 < found < (most + 1) * shift**2 / 2 * 1.01
    # No one is sampled with a probability that covers everything.
    assert SampledGaussian(1 / shift, 1e-9, 5).epsilon(delta, relation=relation) == 0


@pytest.mark.parametrize("rounds", [1, 7])
def test_any_of_many_blocks_may_be_drawn(rounds: int) -> None:
    # Negligible noise reveals whether any of the blocks is sampled in a run.
    rate, blocks = 1e-8, 3000
    found = SampledGaussian(1e-3, rate, rounds).delta(1.0, units=blocks)
    assert found >= -math.expm1(rounds * blocks * math.log1p(-rate))


@pytest.mark.parametrize("relation", sampling_rates.RELATIONS)
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
    """Sums (a, a') of a user's blocks of norm 1 before and after n of them change; in the plane."""
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
    pytest.param(0.2, 3.0, 4, 4, 2, marks=pytest.mark.slow(full=True)),
    pytest.param(0.02, 2.0, 200, 3, 1, marks=pytest.mark.slow(full=True)),
]


@pytest.mark.slow(cases=1)
@pytest.mark.proof("search", "SampledGaussian")
@pytest.mark.parametrize("blocks", ["shared", "disjoint"])
@pytest.mark.parametrize("relation", sampling_rates.RELATIONS)
@pytest.mark.parametrize(("rate", "sd", "rounds", "held", "units"), USERS)
def test_no_explicit_neighbours_violate_the_bound(
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


@pytest.mark.parametrize("relation", sampling_rates.RELATIONS)
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


@pytest.mark.slow
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


@pytest.mark.parametrize("relation", sampling_rates.RELATIONS)
@pytest.mark.parametrize("units", [1, 2, 5])
def test_blocks_on_other_coordinates_cost_like_other_rounds(units: int, relation: Relation) -> None:
    # Each of them is drawn on its own, so that k of them are k independent samples of one.
    several = SampledGaussian(2.0, 0.1, 6, blocks="disjoint")
    alone = SampledGaussian(2.0, 0.1, 6 * units)
    found, exact = (
        several.epsilon(1e-6, units=units, relation=relation),
        alone.epsilon(1e-6, relation=relation),
    )
    assert found == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("units", [1, 4])
def test_replaced_block_equals_a_zeroed_one_of_double_norm(units: int) -> None:
    # For moves this large no curve is computed on a grid, and someone is sampled for sure.
    for noise in (1.2e-4, 1e-7):
        exchanged, emptied = (SampledGaussian(sd, 0.9, 40) for sd in (noise, noise / 2))
        found = exchanged.epsilon(1e-6, units=units, relation="replace")
        if units == 1:
            # The other block may not be sampled: the sample is compared with nothing.
            one = SampledGaussian(noise, 0.9, 40).epsilon(1e-6)
            most = (one - 40 * math.log(0.1)) * (1 + 1e-9)
            assert one <= found <= most
            if noise > 1e-4:
                # Each round may sample no one, with odds of 10 to 1 against it.
                assert found - one > 39 * math.log(10)
        else:
            assert found >= emptied.epsilon(1e-6, units=units) * (1 - 1e-9)


PARTS: list[tuple[Unit, int, int]] = [
    # what changes, how many of them, and how many blocks of one user that is
    (Element(), 1, 1),
    (Element(), 3, 3),
    (User(max_elements=4), 1, 4),
    (User(max_elements=2), 2, 4),
]


@pytest.mark.proof("search", "Participation")
@pytest.mark.parametrize("relation", sampling_rates.RELATIONS)
@pytest.mark.parametrize("blocks", ["shared", "disjoint"])
@pytest.mark.parametrize(("unit", "units", "changed"), PARTS)
def test_no_neighbours_of_passes_violate_the_bound(
    unit: Unit, units: int, changed: int, blocks: Any, relation: Relation
) -> None:
    """The person's vectors change in each round that the person participates in."""
    event = Participation(1.0, 3, blocks, count=2)
    billed, rng, farthest = event.loss(units, relation, unit).mu, np.random.default_rng(4), 0.0
    people = units if unit.level == "user" else 1
    for _ in range(60):
        # Blocks of one user, and of several users, are arbitrarily similar.
        vectors = rng.normal(size=(2, 6, changed, 3)) * 10.0 ** rng.integers(-1, 5)
        common = rng.normal(size=3) * rng.choice([0.0, 1e6])
        one, other = vectors[0] + common, vectors[1] - common
        if relation == "zero_out":
            other = np.zeros_like(other)
        clipped = [
            x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1) for x in (one, other)
        ]
        moves = clipped[0] - clipped[1]
        if blocks == "disjoint":
            # Each block of a user has separate coordinates, which other users share.
            of_users = moves.reshape(6, people, changed // people, 3).sum(axis=1)
            moved = math.sqrt(float((of_users**2).sum()))
        else:
            moved = math.sqrt(float((moves.sum(axis=1) ** 2).sum()))
        farthest = max(farthest, moved)
    assert 0.99 * billed < farthest <= billed * (1 + 1e-9)


@pytest.mark.slow
def test_users_are_not_accounted_for_as_pairs() -> None:
    # With thirty others the element has no amplification.
    pairs, users = (SampledGaussian(4.0, 0.02, 2000, sampling=kind) for kind in ("pairs", "users"))
    p, q = oracle.sampled(0.02, [30.0, 1.0]), oracle.sampled(0.02, [30.0, 0.0])
    least = oracle.at_least(p, q, 4.0, 2000, 1e-5, points=200)
    assert pairs.epsilon(1e-5) < 0.5 * least
    assert least <= users.epsilon(1e-5, max_elements=31) <= users.epsilon(1e-5)


def test_best_bound_at_large_delta_is_the_least_revealing() -> None:
    """The sampling probability is below δ, and under much noise far less is revealed."""
    loss = SampledGaussian(10.0, 1e-9, 10).loss()
    assert loss.best_at(1e-7).delta(0.0) == loss.delta(0.0) < 2e-10


# Rows of people as (user, element, value), and the sampled blocks by user.
Rows: TypeAlias = list[tuple[int, int, int]]
UNITS: dict[Level, Unit] = {"record": Record(), "element": Element(), "user": User()}


def blocks_of(rows: Rows, level: Level, kept: int | None) -> set[tuple[Any, ...]]:
    """Each block with its user and contents; only a user's first n elements."""
    if level == "record":
        return set(rows)
    held: dict[tuple[int, ...], list[int]] = {}
    for user, element, value in sorted(rows):
        owned = {other for who, other, _ in rows if who == user}
        if kept is None or element in sorted(owned)[:kept]:
            at = (user, element) if level == "element" else (user,)
            held.setdefault(at, []).append(value)
    return {(*at, *values) for at, values in held.items()}


def neighbours_of(
    asked: Level, relation: Relation, k: int, draw: random.Random
) -> tuple[Rows, Rows]:
    """Rows of a few people with three elements, and rows that differ in k units of one person."""
    rows = [(user, element, 3 * user + element) for user in range(3) for element in range(3)]
    if asked == "user":
        changed = [row for row in rows if row[0] < k]
    else:
        changed = [(0, element, element) for element in draw.sample(range(3), k)]
    rest = [row for row in rows if row not in changed]
    moved = draw.random() < 0.5 and asked == "record"
    others = [
        (who, draw.randrange(3) if moved else at, 50 + 3 * who + at) for who, at, _ in changed
    ]
    return rows, rest + (others if relation == "replace" else [])


@pytest.mark.parametrize("sampling", ["pairs", "users"])
@pytest.mark.parametrize("blocks", ["shared", "disjoint"])
@pytest.mark.parametrize("level", [*UNITS])
@pytest.mark.parametrize("kept", [None, 2])
@pytest.mark.parametrize("relation", sampling_rates.RELATIONS)
@pytest.mark.parametrize("asked", [*UNITS])
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("rate", [1e-6, 5e-3])
def test_delta_is_at_least_the_probability_of_changed_blocks(
    sampling: Any,
    blocks: Any,
    level: Level,
    kept: int | None,
    relation: Relation,
    asked: Level,
    k: int,
    rate: float,
) -> None:
    """Noise is so small that a draw of such a block shows, and draws are so rare that δ hides it."""
    rounds, draw = 3, random.Random(0)
    try:
        event = SampledGaussian(0.05, rate, rounds, sampling, blocks, level, max_elements=kept)
        delta = event.delta(
            5.0, relation=relation, unit=UNITS[asked], units=k, max_elements=kept or 3
        )
    except ParameterError:
        return
    most = 0
    for _ in range(40):
        left, right = neighbours_of(asked, relation, k, draw)
        one, two = (blocks_of(rows, level, kept) for rows in (left, right))
        gone, new = one - two, two - one
        # Each block is drawn on its own, and one that becomes another is drawn with it in law.
        apart = max(len(gone), len(new))
        most = max(most, apart if sampling == "pairs" else len({user for user, *_ in gone | new}))
    assert delta >= -math.expm1(rounds * most * math.log1p(-rate)) * (1 - 1e-6)


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("sampling", ["pairs", "users"])
@pytest.mark.parametrize("relation", sampling_rates.RELATIONS)
@pytest.mark.parametrize("rate", [4.8e-8, 1e-4])
def test_delta_covers_rarely_sampled_units(sampling: Any, relation: Relation, rate: float) -> None:
    """With negligible noise every sample is revealed, but a δ above its probability covers it."""
    event = SampledGaussian(0.0016, rate, 10, sampling=sampling)
    for k in (1, 2):
        chance = -math.expm1(10 * k * math.log1p(-rate))
        assert event.epsilon(1.001 * chance, relation=relation, units=k, max_elements=2) == 0
    one: dict[str, Any] = {"relation": relation, "max_elements": 1}
    assert event.epsilon(0.4 * chance, **one) > 1e4
    assert 0.4 * chance < event.delta(1.0, **one) <= 0.501 * chance


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "sd", "rounds", "held", "delta"),
    [
        (1e-6, 0.3, 1000, 3, 1e-30),
        (1 - 1e-12, 5.0, 10, 3, 1e-6),
        (0.01, 4.0, 1000, 4, 1e-5),
        (0.0125, 7.94, 40_000, 10, 5e-5),
        pytest.param(*(0.5, 1e4, 1_000_000, 200, 1e-6), marks=pytest.mark.slow(full=True)),
        (0.1, 1.0, 10, 2, 1e-300),
    ],
)
def test_extremes_of_sampled_users(
    rate: float, sd: float, rounds: int, held: int, delta: float
) -> None:
    event = SampledGaussian(sd, rate, rounds, sampling="users")
    for relation in sampling_rates.RELATIONS:
        found = event.epsilon(delta, relation=relation, max_elements=held)
        assert found <= event.epsilon(delta, relation=relation)
        # Neighbours of one element are among them.
        assert found * (1 + 1e-9) >= sampling_rates.least_epsilon(
            rate, 1, sd, rounds, delta, relation
        )
