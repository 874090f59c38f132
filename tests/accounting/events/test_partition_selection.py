"""Published counts with truncated noise against exact enumeration.

No bound is copied from the proofs: distributions are enumerated, neighbouring tables are searched,
and the divergence of the outputs is compared with the event's claim.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr
from tests.refusals import refuses

from dpgrain.accounting import (
    AdaptiveSelection,
    BoundedRange,
    Contribution,
    Loss,
    Selection,
    TruncatedGeometric,
    calibrate_truncated_geometric,
)
from dpgrain.accounting.events import partition_selection
from dpgrain.units import PLAIN_UNITS, RELATIONS, Element, Level, Record, Relation, Unit, User

EPSILONS = [0.0, 0.1, 0.35, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 6.0, 9.0]
# Room for the rounding of the enumeration itself.
ROUNDING = 1e-12


Law = Mapping[Any, float]


def truncated(rate: float, cutoff: int) -> dict[int, float]:
    weights = {x: math.exp(-rate * abs(x)) for x in range(-cutoff, cutoff + 1)}
    total = math.fsum(weights.values())
    return {x: weight / total for x, weight in weights.items()}


def hockey_stick(p: Law, q: Law, gamma: float) -> float:
    return math.fsum(max(mass - gamma * q.get(x, 0.0), 0.0) for x, mass in p.items())


def product(laws: Iterable[Law]) -> Law:
    joint: dict[Any, float] = {(): 1.0}
    for law in laws:
        joint = {(*x, y): p * q for x, p in joint.items() for y, q in law.items()}
    return joint


def published(count: int, rate: float, cutoff: int, passes: int | None = None) -> Law:
    """The output for an item: its noisy count if that is above ``passes``, else nothing."""
    passes = cutoff if passes is None else passes
    if count == 0:
        return {None: 1.0}
    law: dict[Any, float] = defaultdict(float)
    for x, p in truncated(rate, cutoff).items():
        law[count + x if count + x > passes else None] += p
    return law


def published_delta(
    before: Sequence[int], after: Sequence[int], epsilon: float, publish: Callable[[int], Law]
) -> float:
    """The larger δ of the two orders."""
    p, q = (product(map(publish, counts)) for counts in (before, after))
    gamma = math.exp(epsilon)
    return max(hockey_stick(p, q, gamma), hockey_stick(q, p, gamma))


# Neighbouring counts, and in how many changes of one person they are reached.
MOVES = [
    pytest.param((0,), (1,), 1, "zero_out", 1, id="a first holder"),
    pytest.param((4,), (5,), 1, "zero_out", 1, id="one more holder"),
    pytest.param((9,), (8,), 1, "zero_out", 1, id="one holder less, far above the cutoff"),
    pytest.param((0, 0, 0), (1, 1, 1), 1, "zero_out", 3, id="three items that nobody else holds"),
    pytest.param((3, 0, 8), (4, 1, 9), 1, "zero_out", 3, id="three items"),
    pytest.param((1, 0), (0, 1), 1, "replace", 1, id="a move to another item"),
    pytest.param((9, 8), (8, 9), 1, "replace", 1, id="a move far above the cutoff"),
    pytest.param((1, 1, 0, 0), (0, 0, 1, 1), 1, "replace", 2, id="a move of two items"),
]


@pytest.mark.parametrize(("before", "after", "units", "relation", "items"), MOVES)
@pytest.mark.parametrize(("rate", "cutoff"), [(1.0, 4), (0.4, 3), (2.0, 2)])
def test_published_items_satisfy_the_claim(
    before: tuple[int, ...],
    after: tuple[int, ...],
    units: int,
    relation: Relation,
    items: int,
    rate: float,
    cutoff: int,
) -> None:
    event = TruncatedGeometric(rate, cutoff, items)

    def publish(count: int) -> Law:
        return published(count, rate, cutoff)

    for epsilon in [*EPSILONS, items * rate]:
        claim = event.delta(epsilon, units=units, relation=relation)
        assert published_delta(before, after, epsilon, publish) <= claim + ROUNDING


def test_users_sharing_an_item_nearly_attain_the_claim() -> None:
    event = TruncatedGeometric(0.7, 6, contribution=Contribution(block="user"))
    for users, start in itertools.product((1, 2, 3, 5, 9), (0, 1, 20)):
        claim = event.loss(users)
        for epsilon in [*EPSILONS, claim.pure]:
            found = published_delta(
                (start,), (start + users,), epsilon, lambda count: published(count, 0.7, 6)
            )
            assert found <= claim.delta(epsilon) + ROUNDING
        if users <= 6:
            # Exactly what the group formula gives.
            group = event.passes(1) * math.expm1(users * 0.7) / math.expm1(0.7)
            assert claim.leak == pytest.approx(group, rel=1e-9)
            found = published_delta(
                (0,), (users,), claim.pure, lambda count: published(count, 0.7, 6)
            )
            assert found == pytest.approx(claim.leak, rel=1e-9)


def optimal_passes(count: int, epsilon: float, delta: float) -> float:
    """The largest probability that an (ε, δ)-DP rule can give (Desfontaines et al. 2022)."""
    passes = 0.0
    for _ in range(count):
        other = 1 - math.exp(-epsilon) * (1 - passes - delta)
        passes = min(math.exp(epsilon) * passes + delta, other, 1.0)
    return passes


@pytest.mark.parametrize(("rate", "cutoff"), [(1.0, 11), (0.1, 60), (2.5, 3), (0.01, 400)])
def test_item_passes_as_frequently_as_the_optimal_rule(rate: float, cutoff: int) -> None:
    event = TruncatedGeometric(rate, cutoff)
    law = truncated(rate, cutoff)
    delta = law[cutoff]
    for count in range(2 * cutoff + 4):
        passes = math.fsum(p for x, p in law.items() if count > 0 and count + x > cutoff)
        assert event.passes(count) == pytest.approx(passes, rel=1e-11, abs=1e-15)
        optimal = optimal_passes(count, rate, delta)
        assert event.passes(count) == pytest.approx(optimal, rel=1e-9, abs=1e-12)


def test_whole_cutoffs_cost_less_than_one_holder() -> None:
    for epsilon, delta in itertools.product((0.1, 0.5, 1.0, 3.0), (1e-4, 1e-5, 1e-9)):
        event = calibrate_truncated_geometric(epsilon, delta)
        for count in range(1, 2 * event.cutoff + 3):
            assert event.passes(count) <= optimal_passes(count, epsilon, delta) + 1e-12
            # The tail below a lower cutoff is at most δ.
            assert event.passes(count + 1) >= optimal_passes(count, epsilon, delta) - delta


def test_the_published_figures() -> None:
    assert [round(optimal_passes(c, 1.0, 1e-5), 2) for c in (11, 12)] == [0.35, 0.76]
    event = calibrate_truncated_geometric(1.0, 1e-5)
    assert (event.rate, event.cutoff) == (1.0, 11)
    assert [round(event.passes(c), 3) for c in (10, 11, 12, 13)] == [0.099, 0.269, 0.731, 0.901]
    law = truncated(1.0, 11)
    variance = math.fsum(x * x * p for x, p in law.items())
    # The Gaussian of the counts has 3.73 for the same budget.
    assert math.sqrt(variance) == pytest.approx(1.357, abs=1e-3)


@cache
def log_ratios(rate: float, cutoff: int, moved: int) -> dict[int | None, float]:
    """Distribution of the log ratio, in rates, of noise and shifted noise; None: infinite."""
    law: dict[int | None, float] = defaultdict(float)
    for x, p in truncated(rate, cutoff).items():
        law[abs(x - moved) - abs(x) if abs(x - moved) <= cutoff else None] += p
    return law


@cache
def joint_log_ratios(rate: float, cutoff: int, moves: tuple[int, ...]) -> dict[int | None, float]:
    if not moves:
        return {0: 1.0}
    law: dict[int | None, float] = defaultdict(float)
    rest = joint_log_ratios(rate, cutoff, moves[1:])
    one = log_ratios(rate, cutoff, moves[0])
    for (x, p), (y, q) in itertools.product(rest.items(), one.items()):
        law[None if x is None or y is None else x + y] += p * q
    return law


def moved_delta(rate: float, cutoff: int, moves: tuple[int, ...], epsilon: float) -> float:
    """δ at any real ε of noisy counts with this shift, all of them visible."""
    law = joint_log_ratios(rate, cutoff, moves)
    return math.fsum(
        p if x is None else p * max(-math.expm1(epsilon - rate * x), 0.0) for x, p in law.items()
    )


def reference(loss: Loss, epsilon: float) -> float:
    """The first curve of a loss, for negative ε too: randomised response, and the leak."""
    gamma, odds = math.exp(epsilon), math.exp(loss.pure)
    if gamma <= 1 / odds:
        return 1 - gamma + loss.leak
    return max(odds - gamma, 0.0) / (1 + odds) + loss.leak


@pytest.mark.parametrize(("rate", "cutoff"), [(1.0, 2), (0.3, 3), (0.05, 30)])
@pytest.mark.parametrize("moves", [(1,), (3,), (1, 1), (2, 1, 1), (7,), (1,) * 8, (4, 4)], ids=str)
def test_the_loss_bounds_the_divergence_at_every_gamma(
    rate: float, cutoff: int, moves: tuple[int, ...]
) -> None:
    """Section 7 of the theory composes bounds at every γ ≥ 0, not only at γ ≥ 1."""
    parts = (Loss(pure=j * rate, leak=TruncatedGeometric(rate, cutoff).passes(j)) for j in moves)
    loss = sum(parts, Loss())
    for epsilon in [*EPSILONS, *(-e for e in EPSILONS), loss.pure]:
        exact = moved_delta(rate, cutoff, moves, epsilon)
        assert exact <= reference(loss, epsilon) + ROUNDING
        if epsilon >= 0:
            assert exact <= loss.delta(epsilon) + ROUNDING


Row = tuple[int, int, int]  # user, column, item


def counts_of(
    rows: Sequence[Row], contribution: Contribution, max_items: int, *, single: bool
) -> Counter[int]:
    """The counts, by a plain implementation of the rules."""

    def cell(row: Row) -> int:
        if contribution.layout == "shared":
            return row[1]
        return row[2] if single else row[2] // 4

    counts: Counter[int] = Counter()
    if contribution.block == "record":
        counts.update(row[2] for row in rows)
        return counts
    blocks: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for row in rows:
        blocks[row[0]][cell(row)].add(row[2])
    for cells in blocks.values():
        # The public order is numeric.
        kept = sorted(cells)[: contribution.max_elements]
        if contribution.block == "element":
            for c in kept:
                counts.update(sorted(cells[c])[:max_items])
        else:
            counts.update(sorted(set().union(*(cells[c] for c in kept)))[:max_items])
    return counts


def neighbour(
    rng: np.random.Generator,
    rows: list[Row],
    level: Level,
    relation: Relation,
    units: int,
    contribution: Contribution,
    *,
    single: bool,
) -> list[Row]:
    """Another table that differs in this number of units of one person, or of users."""

    def cell(row: Row) -> int:
        if contribution.layout == "shared":
            return row[1]
        return row[2] if single else row[2] // 4

    def random_row(user: int) -> Row:
        return user, int(rng.integers(3)), int(rng.integers(12))

    own = [row for row in rows if row[0] == 0]
    new: list[Row] = []
    if level == "record":
        gone = [own[i] for i in rng.permutation(len(own))[:units]]
        if relation == "replace":
            new = [random_row(0) for _ in gone]
    elif level == "element":
        # Cells that are empty in one of the tables also count.
        every = sorted({cell((0, column, item)) for column in range(3) for item in range(12)})
        held = sorted({cell(row) for row in own})
        chosen = set(rng.permutation(held if relation == "zero_out" else every)[:units].tolist())
        gone = [row for row in own if cell(row) in chosen]
        if relation == "replace":
            new = [row for row in (random_row(0) for _ in range(8)) if cell(row) in chosen]
    else:
        gone = [row for row in rows if row[0] < units]
        if relation == "replace":
            new = [random_row(user) for user in range(units) for _ in range(6)]
    rest = Counter(rows) - Counter(gone)
    return [*rest.elements(), *new]


CASES: list[tuple[Contribution, int, bool]] = [
    (Contribution(block="record"), 1, False),
    (Contribution(coordinates="one"), 1, True),
    (Contribution(coordinates="one", max_elements=2), 1, True),
    (Contribution(coordinates="one", cells=12), 1, True),
    *(
        (Contribution(block, layout, max_elements=most), items, False)
        for block in ("element", "user")
        for layout in ("disjoint", "shared")
        for most in (None, 2)
        for items in (1, 2, 3)
    ),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.proof("search", "TruncatedGeometric")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("level", ["record", "element", "user"])
def test_no_neighbours_break_the_claim(level: Level, relation: Relation) -> None:
    rng = np.random.default_rng(5)
    unit = PLAIN_UNITS[level]
    rate, cutoff = 0.5, 3
    attained = searched = 0
    for (contribution, items, single), units in itertools.product(CASES, (1, 2, 3)):
        event = TruncatedGeometric(rate, cutoff, items, contribution)
        claim = event.loss(units, relation, unit)
        if math.isinf(claim.pure):
            continue
        searched += 1
        patterns: set[tuple[int, ...]] = set()
        for _ in range(60):
            rows = [
                (int(user), int(column), int(item))
                for user, column, item in zip(
                    rng.integers(4, size=16),
                    rng.integers(3, size=16),
                    rng.integers(12, size=16),
                    strict=True,
                )
            ]
            other = neighbour(rng, rows, level, relation, units, contribution, single=single)
            difference = counts_of(rows, contribution, items, single=single)
            difference.subtract(counts_of(other, contribution, items, single=single))
            patterns.add(tuple(sorted((abs(d) for d in difference.values() if d), reverse=True)))
        largest = max(map(sum, patterns))
        assert largest * rate <= claim.pure + ROUNDING, (contribution, items, units)
        attained += largest * rate == pytest.approx(claim.pure)
        for moves, epsilon in itertools.product(patterns, (0.0, 0.6, 1.5, claim.pure)):
            found = moved_delta(rate, cutoff, moves, epsilon)
            assert found <= claim.delta(epsilon) + ROUNDING, (contribution, items, units, moves)
    assert searched >= 30
    # The search is a good one: most of the claims are attained.
    assert attained >= 0.4 * searched


@pytest.mark.parametrize(
    ("contribution", "items", "unit", "relation", "units", "changes"),
    [
        (Contribution(), 1, None, "zero_out", 1, 1),
        (Contribution(), 4, None, "zero_out", 3, 12),
        (Contribution(), 4, None, "replace", 1, 8),
        (Contribution(coordinates="one"), 1, None, "replace", 3, 3),
        (Contribution(max_elements=5), 2, None, "zero_out", 1, 4),
        (Contribution(max_elements=5), 2, User(), "zero_out", 1, 10),
        (Contribution(max_elements=5), 2, User(), "replace", 2, 40),
        (Contribution(), 2, User(max_elements=3), "zero_out", 1, 6),
        (Contribution(), 2, User(), "zero_out", 1, math.inf),
        (Contribution(), 3, Record(), "zero_out", 1, 2),
        (Contribution(), 3, Record(), "replace", 1, 4),
        (Contribution(max_elements=5), 3, Record(), "zero_out", 1, 4),
        (Contribution(block="user"), 6, None, "zero_out", 2, 12),
        (Contribution(block="user"), 6, None, "replace", 1, 12),
        (Contribution(block="user"), 6, Element(), "zero_out", 1, 12),
        (Contribution(block="user"), 6, Record(), "zero_out", 1, 2),
        (Contribution(block="record"), 1, None, "zero_out", 4, 4),
        (Contribution(block="record"), 1, None, "replace", 1, 2),
        (Contribution(block="record"), 1, User(), "zero_out", 1, math.inf),
    ],
)  # fmt: skip
def test_the_number_of_changes(
    contribution: Contribution,
    items: int,
    unit: Unit | None,
    relation: Relation,
    units: int,
    changes: float,
) -> None:
    event = TruncatedGeometric(0.5, 9, items, contribution)
    assert event.loss(units, relation, unit).pure == 0.5 * changes


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("contribution", "items", "unit"),
    [
        (Contribution(coordinates="one"), 1, None),
        (Contribution(), 3, None),
        (Contribution(max_elements=40), 2, User()),
        (Contribution(layout="shared", max_elements=3), 2, User()),
        (Contribution(block="user"), 100, None),
        (Contribution(block="record"), 1, None),
    ],
)
def test_calibrated_counts_satisfy_the_guarantee_and_lower_cutoffs_fail(
    contribution: Contribution, items: int, unit: Unit | None, relation: Relation
) -> None:
    for epsilon, delta in ((1.0, 1e-5), (0.1, 1e-9), (10.0, 1e-3)):
        event = calibrate_truncated_geometric(
            epsilon, delta, contribution=contribution, max_items=items, relation=relation, unit=unit
        )
        assert event.epsilon(delta, relation=relation, unit=unit) <= epsilon
        if event.cutoff > 1:
            lower = TruncatedGeometric(event.rate, event.cutoff - 1, items, contribution)
            assert lower.epsilon(delta, relation=relation, unit=unit) > epsilon


def test_many_items_cost_less_than_linear() -> None:
    event = calibrate_truncated_geometric(
        1.0, 1e-5, max_items=100, contribution=Contribution(block="user")
    )
    assert event.rate > 2 / 100
    assert event.cutoff < 600
    # A hundredth of ε for each does not do with twice the cutoff.
    assert TruncatedGeometric(0.01, 2 * event.cutoff, 100).epsilon(1e-5) > 1.0


@pytest.mark.parametrize(
    ("rate", "cutoff", "items"), [(0.01, 3000, 1000), (0.3, 60, 5), (2.0, 9, 40)]
)
def test_many_items_cost_agrees_with_their_distribution(
    rate: float, cutoff: int, items: int
) -> None:
    """Each count shows everything with one probability, and is randomised response otherwise."""
    event = TruncatedGeometric(rate, cutoff, items)
    told = -math.expm1(items * math.log1p(-event.passes(1)))
    k = np.arange(items + 1)
    log_ways = [math.log(math.comb(items, int(j))) for j in k]
    p = np.exp(log_ways - k * rate - items * math.log1p(math.exp(-rate)))
    for share in (0.1, 0.3, 0.6):
        epsilon = share * rate * items
        inside = float(np.maximum(p - math.exp(epsilon) * p[::-1], 0.0).sum())
        truth = told + (1 - told) * inside
        assert truth * (1 - 1e-9) <= event.delta(epsilon) <= truth * (1 + 1e-2) + 1e-12
    # If almost all of δ is used at once, no part of it was left for the rest.
    assert event.epsilon(1.001 * items * event.passes(1)) < rate * items


def test_unbounded_contributions_are_rejected() -> None:
    with refuses("unit"):
        calibrate_truncated_geometric(1.0, 1e-5, unit=User())
    wrong: Any
    for wrong in ({"rate": 0.0}, {"cutoff": 0}, {"max_items": 0}):
        with refuses(next(iter(wrong))):
            TruncatedGeometric(**{"rate": 1.0, "cutoff": 3, **wrong})
    for wrong in ({"rate": -1.0}, {"count": 0}, {"level": "group"}):
        with refuses(next(iter(wrong))):
            BoundedRange(**{"rate": 1.0, **wrong})


# ---------------------------------------------------------------------------------------- two rounds

# Small noise and low thresholds, so that an item with one user is selected often enough.
IN_ROUNDS = [
    AdaptiveSelection(
        second, 1 + z * second, first, 1 + z * first, c * first, 6, Contribution("user")
    )
    for second, first, z, c in [(0.5, 0.7, 2.5, 0.5), (1.0, 1.5, 2.0, 1.0), (0.3, 0.5, 2.5, 2.0)]
]

#: From (runs, items) first noisy counts and whether each goes on, to squared weights, before they are
#: scaled to add up to 1.
Rule = Callable[[Any, Any], Any]

RULES: dict[str, Rule] = {
    "all alike": lambda _, ahead: ahead.astype(float),
    "all to the first": lambda _, ahead: ahead & (np.cumsum(ahead, axis=1) == 1),
    "all to the least": lambda y, ahead: (
        ahead & (y == np.where(ahead, y, 9e9).min(1, keepdims=True))
    ),
    "by need": lambda y, ahead: np.where(ahead, np.maximum(y, 0.1) ** -2.0, 0.0),
    "half to one": lambda _, ahead: ahead * np.where(np.cumsum(ahead, axis=1) == 1, 9.0, 1.0),
}


def weights_of(rule: Rule, y: Any, ahead: Any) -> Any:
    squares = np.asarray(rule(y, ahead), dtype=float)
    return np.sqrt(squares / np.maximum(squares.sum(axis=1, keepdims=True), 1e-300))


def alone(event: AdaptiveSelection, items: int, rule: Rule, runs: int = 40_000) -> float:
    """Probability of selecting an item with this count from one user and none from others."""
    rng = np.random.default_rng(items)
    y = 1 / math.sqrt(items) + event.first_noise_multiplier * rng.standard_normal((runs, items))
    named = y >= event.first_threshold
    ahead = ~named & (y >= event.floor)
    weights = weights_of(rule, y, ahead)
    passes = ndtr((weights - event.threshold) / event.noise_multiplier) * ahead
    return float(1 - ((1 - passes).prod(axis=1) * ~named.any(axis=1)).mean())


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("event", IN_ROUNDS, ids=["wide", "noisy", "narrow"])
def test_single_user_items_are_selected_within_the_claim(
    event: AdaptiveSelection, rule: str
) -> None:
    claimed = (event.first + event).loss().leak
    found = [alone(event, items, RULES[rule]) for items in range(1, event.max_items + 1)]
    assert max(found) <= claimed + 4 * math.sqrt(claimed / 40_000)
    # The claim is a union bound and a worst rule, and no more than that.
    if rule == "all alike":
        assert max(found) > 0.4 * claimed


def outcomes(event: AdaptiveSelection, here: bool, rule: Rule) -> Any:
    """Distribution of the selected items: one of another user, and one of only this user.

    By a sum over a grid of the first round's noise; the second round's noise is in closed form.
    This user, if present, has both items, and the other user only the first.
    """
    edges = np.linspace(-9.0, 9.0, 401) * event.first_noise_multiplier
    steps = (edges[1:] + edges[:-1]) / 2
    mass = np.diff(ndtr(edges / event.first_noise_multiplier))
    mass /= mass.sum()
    one, two = (grid.ravel() for grid in np.meshgrid(steps, steps, indexing="ij"))
    weight = np.outer(mass, mass).ravel()
    share = 1 / math.sqrt(2) if here else 0.0
    y = np.stack([1 + share + one, share + two], axis=1)
    held = np.array([True, here])
    named = held & (y >= event.first_threshold)
    ahead = held & ~named & (y >= event.floor)
    mine = weights_of(rule, y, ahead) * here
    # A user with one item gives it all the weight, if it continues.
    total = mine + np.stack([ahead[:, 0], np.zeros(y.shape[0])], axis=1)
    passes = named + ahead * ndtr((total - event.threshold) / event.noise_multiplier)
    first, last = passes.T
    law = [(1 - first) * (1 - last), first * (1 - last), (1 - first) * last, first * last]
    return np.array([float((weight * one).sum()) for one in law])


@pytest.mark.proof("search", "AdaptiveSelection")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("event", IN_ROUNDS, ids=["wide", "noisy", "narrow"])
def test_names_of_two_rounds_cost_no_more_than_claimed(event: AdaptiveSelection, rule: str) -> None:
    there, gone = (outcomes(event, here, RULES[rule]) for here in (True, False))
    loss = (event.first + event).loss()
    for epsilon in EPSILONS:
        for p, q in ((there, gone), (gone, there)):
            assert np.maximum(p - math.exp(epsilon) * q, 0).sum() <= loss.delta(epsilon) + 1e-4


@pytest.mark.parametrize("count", [1, 2, 5, 40, 3000])
def test_no_weights_pass_more_often_than_the_concave_bound(count: int) -> None:
    rng = np.random.default_rng(count)
    laws = [(6.0, 1.0, 1.0), (40.0, 6.0, 1.0), (2.0, 0.3, 1.0), (9.0, 1.0, 4.0)]
    for threshold, noise, largest in laws:
        bound = partition_selection._PassingBound.of(threshold, noise, largest).most(float(count))
        best = 0.0
        for sharp in (0.0, 0.5, 1.0, 2.0, 4.0, 20.0):
            squares = rng.exponential(size=(200, count)) ** sharp
            weights = largest * np.sqrt(squares / squares.sum(axis=1, keepdims=True))
            best = max(best, ndtr((weights - threshold) / noise).sum(axis=1).max())
        assert best <= bound <= 1.3 * best + ndtr((largest - threshold) / noise) * 1.02


def test_fewer_items_than_one_pass_in_proportion() -> None:
    passing = partition_selection._PassingBound.of(6.0, 1.0, 1.0)
    assert passing.most(0.25) == pytest.approx(passing.most(1.0) / 4)
    grows = [passing.most(count) for count in np.geomspace(0.1, 1e5, 60)]
    slopes = np.diff(grows) / np.diff(np.geomspace(0.1, 1e5, 60))
    assert (np.diff(grows) > 0).all()
    assert (np.diff(slopes) <= 1e-18).all()


def test_both_sides_are_charged_if_both_have_unique_items() -> None:
    event = IN_ROUNDS[0]
    rounds = event.first + event
    assert rounds.loss(relation="replace").leak >= 2 * rounds.loss().leak * (1 - 1e-9)
    for unit in (Record(), Element()):
        assert rounds.loss(unit=unit).leak >= 2 * rounds.loss().leak * (1 - 1e-9)
    assert rounds.loss(3).leak > 3 * rounds.loss().leak


def test_items_of_several_users_are_selected_within_the_claim() -> None:
    event, users = IN_ROUNDS[1], 3
    # All users have only this item, and give it their whole weight.
    rng = np.random.default_rng(0)
    y = users + event.first_noise_multiplier * rng.standard_normal(100_000)
    named = y >= event.first_threshold
    ahead = ~named & (y >= event.floor)
    later = ahead * ndtr((users - event.threshold) / event.noise_multiplier)
    assert 0.2 < named.mean() <= event.first.loss(users).leak
    assert 0.2 < later.mean() <= event.loss(users).leak


def test_a_second_round_is_of_whole_users() -> None:
    with refuses("contribution", "element"):
        AdaptiveSelection(1.0, 5.0, 2.0, 8.0, 4.0, 9, Contribution())
    with refuses("floor", "-4.0"):
        AdaptiveSelection(1.0, 5.0, 2.0, 8.0, -4.0, 9)


def test_the_second_round_knows_the_first() -> None:
    assert IN_ROUNDS[0].first == Selection(0.7, 1 + 2.5 * 0.7, 6, Contribution("user"))
