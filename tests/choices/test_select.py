"""Choices among finitely many candidates: exact laws, sensitivities, audits, refusals."""

from __future__ import annotations

import importlib.util
import itertools
import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import dpgrain.choices.select as module
from dpgrain.accounting import Contribution, Event, Gaussian, Laplace, PureDP
from dpgrain.accounting.events.best_of import SelectBest
from dpgrain.arrays.blocks import arrange
from dpgrain.choices.best_of import best_of
from dpgrain.choices.cover import ball_cover
from dpgrain.choices.scores import STEPS, BlockLosses, total
from dpgrain.choices.select import Choice, select
from dpgrain.errors import ParameterError
from dpgrain.noise import SeededSource, Source, discrete_laplace, gumbel_order
from dpgrain.noise.exponential import below, permute_and_flip
from dpgrain.noise.stopping import negative_binomial, poisson
from dpgrain.publishing import Promise
from dpgrain.publishing.budget import budget
from dpgrain.units import Element, Record, Relation, Unit, User

Array = NDArray[Any]
RELATIONS: list[Relation] = ["zero_out", "replace"]
# One loss between 0 and 1 from each user.
ONE = Contribution("user", "shared", "one", "l1")


def p_value(seen: Counter[int], law: dict[int, float], draws: int) -> float:
    """A chi-square test of counts against a law; what is rare is put together."""
    often = [k for k, chance in law.items() if chance * draws >= 8]
    rest = 1 - sum(law[k] for k in often)
    counts, expected = [seen[k] for k in often], [law[k] * draws for k in often]
    if rest * draws >= 1:
        counts, expected = [*counts, draws - sum(counts)], [*expected, rest * draws]
    statistic = sum((a - b) ** 2 / b for a, b in zip(counts, expected, strict=True))
    return float(stats.chi2.sf(statistic, len(expected) - 1))


def flips(scores: Sequence[int], scale: float) -> dict[int, float]:
    """The law of permute-and-flip, over all orders."""
    chance = [math.exp((s - max(scores)) / scale) for s in scores]
    law = dict.fromkeys(range(len(scores)), 0.0)
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        left = 1.0
        for i in order:
            law[i] += left * chance[i] / len(orders)
            left *= 1 - chance[i]
    return law


SCORES = [[0, 0], [5, 3, 0], [7, 7, 6, 0], [1, 2, 3, 4, 5]]


@pytest.mark.search(keep=1)
@pytest.mark.parametrize("scores", SCORES, ids=str)
def test_permute_and_flip_has_its_law(scores: list[int]) -> None:
    source, draws, scale = SeededSource(1), 20_000, 2.5
    given = np.array(scores)
    seen = Counter(permute_and_flip(given, scale, source=source) for _ in range(draws))
    assert p_value(seen, flips(scores, scale), draws) > 1e-3
    if len(set(scores)) > 1:
        assert p_value(seen, flips(scores, 1.15 * scale), draws) < 1e-3
        gumbel = {i: math.exp(s / scale) for i, s in enumerate(scores)}
        weighed = {i: w / sum(gumbel.values()) for i, w in gumbel.items()}
        assert p_value(seen, weighed, draws) < 1e-6


def test_it_is_the_largest_of_scores_with_exponential_noise() -> None:
    scores, scale, draws = np.array([4, 2, 1, 4]), 3.0, 400_000
    noisy = scores + np.random.default_rng(2).exponential(scale, (draws, 4))
    seen = Counter(noisy.argmax(axis=1).tolist())
    assert p_value(seen, flips(scores.tolist(), scale), draws) > 1e-3


class Scripted:
    """Words that are given."""

    private = False

    def __init__(self, words: Sequence[int]) -> None:
        self._words = list(words)

    def words(self, size: int) -> NDArray[np.uint64]:
        taken, self._words = self._words[:size], self._words[size:]
        return np.array(taken, dtype=np.uint64)


def test_a_coin_that_floating_point_cannot_tell_is_decided_by_more_bits() -> None:
    # exp(−1/2) in 128 bits: the first word is a tie, the second one decides.
    import mpmath

    with mpmath.workprec(300):
        exact = int(mpmath.floor(mpmath.exp(mpmath.mpf(-0.5)) * 2**128))
    first, second = exact >> 64, exact & (2**64 - 1)
    for next_word, chosen in ((second - 1, {0, 1}), (second + 1, {0})):
        found = set()
        for pick in (0, 1):
            words = Scripted([0, first, next_word, pick])
            found.add(permute_and_flip(np.array([1, 0]), 2.0, source=words))
        assert found == chosen


def test_the_coin_of_the_largest_always_falls() -> None:
    # A word that rounds to 1 in floating point.
    assert permute_and_flip(np.array([5]), 1.0, source=Scripted([2**64 - 1, 0])) == 0


def test_numbers_below_are_uniform() -> None:
    source = SeededSource(3)
    seen = Counter(below(5, source) for _ in range(20_000))
    assert p_value(seen, dict.fromkeys(range(5), 0.2), 20_000) > 1e-3
    # What is beyond the last multiple of 3 is drawn again.
    assert below(3, Scripted([2**64 - 1, 7])) == 1


def number_law(event: SelectBest, most: int = 400) -> dict[int, float]:
    if event.stopping == "poisson":
        return {k: float(stats.poisson.pmf(k, event.mean)) for k in range(most)}
    eta, gamma, weight = event.eta, event.gamma, 1.0
    law = {}
    for k in range(1, most):
        # η cancels in the quotients, so that 0 is no special case.
        law[k] = weight
        weight *= (1 - gamma) * (k + eta) / (k + 1)
    whole = sum(law.values())
    return {k: chance / whole for k, chance in law.items()}


EVENTS = {
    "geometric": SelectBest(PureDP(1.0), 6.0),
    "logarithmic": SelectBest(PureDP(1.0), 3.0, eta=0.0),
    "negative": SelectBest(PureDP(1.0), 2.5, eta=-0.5),
    "steady": SelectBest(PureDP(1.0), 8.0, eta=3.0),
    "poisson": SelectBest(PureDP(1.0), 4.0, "poisson"),
    "poisson-short": SelectBest(PureDP(1.0), 0.5, "poisson"),
}


@pytest.mark.search(keep=2)
@pytest.mark.parametrize("name", EVENTS)
def test_numbers_of_runs_have_their_law(name: str) -> None:
    event, source, draws = EVENTS[name], SeededSource(4), 4_000
    seen = Counter(module_number(event, source) for _ in range(draws))
    assert p_value(seen, number_law(event), draws) > 1e-3
    other = SelectBest(event.events, 1.3 * event.mean, event.stopping, event.eta)
    assert p_value(seen, number_law(other), draws) < 1e-3


def module_number(event: SelectBest, source: Source) -> int:
    if event.stopping == "poisson":
        return poisson(event.mean, source=source)
    return negative_binomial(event.eta, event.gamma, source=source)


def test_ties_in_the_number_of_runs_are_decided_by_more_bits() -> None:
    # Geometric with γ = ½: the first word says exactly ½, or 1 − 2^-64 and more.
    half = 2**63
    assert negative_binomial(1.0, 0.5, source=Scripted([half, 5])) == 2
    assert negative_binomial(1.0, 0.5, source=Scripted([half - 1, 2**64 - 2**40])) == 1
    assert negative_binomial(1.0, 0.5, source=Scripted([2**64 - 1, 5])) == 65
    assert poisson(1000.0, source=Scripted([half, 0])) in range(995, 1005)


def test_the_best_of_all_runs_is_kept() -> None:
    source = SeededSource(5)
    made: list[int] = []

    def run(given: Source) -> tuple[float, int]:
        assert given is source
        made.append(len(made))
        return [3.0, math.nan, 7.0, 7.0, 1.0][made[-1] % 5], made[-1]

    best = best_of(run, event=PureDP(0.1), mean=50.0, source=source)
    assert len(made) > 3
    assert (best.score, best.result) == (7.0, 2)
    assert best.event == SelectBest(PureDP(0.1), 50.0)


def test_what_is_no_number_is_the_smallest() -> None:
    scores = iter([math.nan, -math.inf, *[math.nan] * 10_000])
    best = best_of(
        lambda _: (next(scores), "first"), event=PureDP(1.0), mean=2.0, source=SeededSource(6)
    )
    assert best.score == -math.inf


def test_the_best_prints_what_was_found_and_promised() -> None:
    def best(event: Event, source: Source | None = None) -> str:
        return str(best_of(lambda _: (0.25, np.arange(9)), event=event, mean=5.0, source=source))

    first, promise = best(PureDP(0.1, level="user")).split("\n")
    assert first == "the best of several runs, score 0.25: (0, 1, 2, 3, …)."
    assert promise.startswith("User-level differential privacy with ε = 0.233283 and δ = 0:")
    assert "5 runs on average, whose number and time are not published" in promise
    # Without a δ there is no promise: the sentence says which one it is of.
    assert "and δ = 10⁻⁶:" in best(Gaussian(10.0, Contribution("user")))
    assert "NOT PRIVATE" in best(PureDP(0.1), SeededSource(1))
    nothing = best_of(
        lambda _: (1.0, "run"), event=PureDP(0.1), mean=1e-9, stopping="poisson", default="default"
    )
    assert str(nothing).startswith("nothing was run: 'default'.\n")


def test_where_nothing_is_run_the_default_is_kept() -> None:
    def run(_: Source) -> tuple[float, str]:
        return 1.0, "run"

    found = [
        best_of(run, event=PureDP(0.5), mean=0.7, stopping="poisson", default="none", source=source)
        for source in [SeededSource(7)] * 2000
    ]
    share = sum(best.result == "none" for best in found) / 2000
    assert abs(share - math.exp(-0.7)) < 5.5 * math.sqrt(0.25 / 2000)
    assert {best.score for best in found if best.result == "none"} == {None}


# One user's records, and what they may be exchanged for.
HOLDINGS: list[list[float]] = [
    [],
    [0.0],
    [1.0],
    [math.nan],
    [math.inf, -math.inf],
    [0.3] * 7,
    [1e300, -1e300, 0.5],
    [0.0] * 50 + [1.0] * 50,
]


def records(users: Sequence[Sequence[float]]) -> tuple[Array, Array]:
    values = [value for held in users for value in held]
    owners = [owner for owner, held in enumerate(users) for _ in held]
    return np.array(values), np.array(owners, dtype=float)


def two_ways(value: Array) -> list[Array]:
    """Losses of several candidates, of which some rise with a record and some fall."""
    return [value, 1 - value, 3 * value - 1, np.zeros_like(value), np.full_like(value, np.nan)]


def totals(users: Sequence[Sequence[float]], unit: Unit) -> NDArray[np.int64]:
    values, owners = records(users)
    blocks = BlockLosses(arrange(len(values), owners, None, unit), 0.0, 1.0)
    return np.array([total(blocks.of(loss)) for loss in two_ways(values)])


def widest(unit: Unit, relation: Relation) -> tuple[float, float]:
    """The widest move of a score, and the widest range of moves of all scores, in bounds."""
    rest: list[list[float]] = [[0.2, 0.9], [0.5], []]
    moved, spread = 0.0, 0.0
    for one in HOLDINGS:
        if relation == "replace":
            others = HOLDINGS if isinstance(unit, User) else [[*one[1:], x] for x in (0.0, 1.0)]
        else:
            others = [[]] if isinstance(unit, User) else [one[1:]]
        for other in others:
            change = (totals([*rest, one], unit) - totals([*rest, other], unit)) / STEPS
            moved = max(moved, float(np.abs(change).max()))
            spread = max(spread, float(max(change.max(), 0) - min(change.min(), 0)))
    return moved, spread


@pytest.mark.parametrize("unit", [User(), Record()], ids=["user", "record"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_unit_moves_totals_no_farther_than_is_promised(unit: Unit, relation: Relation) -> None:
    moved, spread = widest(unit, relation)
    assert moved == 1.0
    # All one way under zero_out; either way, under replace.
    assert spread == (1.0 if relation == "zero_out" else 2.0)


def test_the_search_sees_records_that_count_one_by_one() -> None:
    # As if a user's records were added up: what a clipping by record alone would do.
    per_record = totals([[1.0] * 9], Record()) - totals([[]], Record())
    assert per_record.max() == 9 * STEPS


def test_what_is_no_number_counts_most_and_users_without_records_nothing() -> None:
    assert totals([[math.nan]], User())[0] == STEPS
    assert totals([[-math.inf]], User())[0] == 0
    assert totals([[], [0.5]], User())[0] == STEPS // 2
    assert totals([[1.0] + [0.0] * 3], User())[0] == STEPS // 4


ODD: list[Any] = [1j, "abc", None, {}, np.complex128(1 + 1j), [1.0], 10**400]


@pytest.mark.parametrize("cell", ODD, ids=lambda cell: repr(cell)[:12])
@pytest.mark.parametrize("method", ["permute_and_flip", "repeat"])
def test_one_odd_loss_changes_nobody_elses(cell: Any, method: Any) -> None:
    def chosen(cell: Any, listed: Callable[[list[Any]], Any]) -> Choice:
        def loss(candidate: float, records: Array) -> Any:
            # Truths, which NumPy writes as text or complex numbers beside such cells.
            return listed([cell if x == data[5] else bool(x > candidate) for x in records])

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return select([0.2, 0.5], loss, data, delta=1e-6, **options)

    def objects(found: list[Any]) -> Array:
        out = np.empty(len(found), dtype=object)
        out[:] = found
        return out

    data = np.linspace(0, 1, 300)
    options: dict[str, Any] = {"method": method, "score": True, "random_state": 3}
    expected = chosen(math.nan, np.array)
    for listed in (list, tuple, objects):
        found = chosen(cell, listed)
        assert (found.index, found.loss) == (expected.index, expected.loss)


def test_one_complex_loss_changes_nobody_elses() -> None:
    # As arithmetic with records makes it, of which one is complex.
    losses = np.linspace(0, 1, 50).astype(np.complex128)
    losses[7] += 1j
    blocks = BlockLosses(arrange(50, None, None, User()), 0.0, 1.0)
    missing = np.where(losses.imag == 0, losses.real, np.nan)
    assert np.array_equal(blocks.of(losses), blocks.of(missing))


def test_totals_do_not_depend_on_the_order() -> None:
    rng = np.random.default_rng(8)
    values, owners = rng.random(5000), rng.integers(0, 40, 5000)
    found = set()
    for _ in range(5):
        order = rng.permutation(5000)
        blocks = BlockLosses(arrange(5000, owners[order], None, User()), 0.0, 1.0)
        found.add(total(blocks.of(values[order])))
    assert len(found) == 1


def test_totals_saturate() -> None:
    assert total(np.full(3, 2**51)) == 2**52


def closest(candidate: float, x: Array) -> Array:
    return np.abs(x - candidate)


RECORDS = np.random.default_rng(9).normal(0.6, 0.1, 3000)
USERS = np.repeat(np.arange(600), 5)
CANDIDATES = [0.0, 0.3, 0.6, 1.0]


@pytest.mark.parametrize("method", ["permute_and_flip", "exponential", "repeat"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_every_method_finds_the_best(method: Any, relation: Relation) -> None:
    choice = select(
        CANDIDATES,
        closest,
        RECORDS,
        USERS,
        3.0,
        method=method,
        relation=relation,
        n_users=len(set(USERS)),
        random_state=1,
    )
    assert (choice.index, choice.value) == (2, 0.6)
    assert choice.guarantee.epsilon() == pytest.approx(3.0, rel=2e-4)
    assert choice.guarantee.epsilon() <= 3.0
    assert choice.guarantee.relation == relation
    assert not choice.guarantee.private
    assert (choice.loss is None) == (method != "repeat")


def test_each_candidate_is_evaluated_once() -> None:
    for method in ("permute_and_flip", "exponential", "repeat"):
        calls: list[float] = []

        def counted(candidate: float, x: Array, calls: list[float] = calls) -> Array:
            if len(x) == len(RECORDS):
                # Before, the loss was tried on records of zeros.
                calls.append(candidate)
            return closest(candidate, x)

        select(CANDIDATES, counted, RECORDS, USERS, method=method, random_state=2)
        assert sorted(calls) == sorted(set(calls))
        assert len(calls) == len(CANDIDATES)


def test_a_pair_of_features_and_targets() -> None:
    X = np.random.default_rng(10).normal(size=(2000, 2))
    y = X @ [1.0, -1.0]

    def error(theta: Array, X: Array, y: Array) -> Array:
        return (X @ theta - y) ** 2

    choice = select(ball_cover(2, 1.5, 1.0), error, (X, y), epsilon=2.0, random_state=0)
    assert isinstance(choice.value, np.ndarray)
    assert np.linalg.norm(choice.value - [1, -1]) < 0.8


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_loss_of_the_winner(relation: Relation) -> None:
    made = [
        select(
            [0.0, 0.6],
            closest,
            RECORDS,
            USERS,
            1.0,
            lower=-1.0,
            bound=4.0,
            score=True,
            n_users=1000,
            relation=relation,
            random_state=seed,
        )
        for seed in range(150)
    ]
    assert all(choice.guarantee.epsilon() <= 1.0 for choice in made)
    assert all(choice.guarantee.epsilon() >= 1.0 - 1e-9 for choice in made)
    found = np.array([choice.loss for choice in made if choice.index == 1])
    assert len(found) > 140
    # Of 1000 users 400 have no records, and count with the lower end.
    truth = 0.6 * np.abs(RECORDS - 0.6).mean() + 0.4 * -1.0
    error = made[0].std_error
    assert error is not None
    assert error == pytest.approx(math.sqrt(2) * 4.0 / 0.2 / 1000)
    assert abs(found.mean() - truth) < 5.5 * error / math.sqrt(len(found))
    assert found.std() == pytest.approx(error, rel=0.35)


def test_an_evaluation_of_ones_own() -> None:
    asked = []

    def evaluation(losses: Array, epsilon: float, source: Source) -> float:
        asked.append((len(losses), epsilon))
        noise = int(discrete_laplace(1e6 / epsilon, 1, source=source)[0])
        return float(losses.mean() + noise / 1e6 / len(losses))

    choice = select(
        CANDIDATES, closest, RECORDS, USERS, 3.0, method="repeat", evaluation=evaluation, runs=30.0,
        random_state=1,
    )  # fmt: skip
    assert choice.value == 0.6
    assert choice.loss == pytest.approx(np.abs(RECORDS - 0.6).mean(), abs=0.1)
    assert {size for size, _ in asked} == {600}
    # (2 + η)ε for geometric stopping, a little less for few runs.
    assert asked[0][1] == pytest.approx(1.0, rel=0.12)
    assert "as stated by the caller" in str(choice.guarantee)


def test_a_choice_prints_what_was_found_and_promised() -> None:
    # A stated roster: the error of a loss would change with a number of users that is released.
    found = select(
        [0.0, 1.0], lambda c, x: abs(c - x), np.ones(1000), users=np.arange(1000), n_users=1000,
        score=True, epsilon=100.0,
    )  # fmt: skip
    first, promise = str(found).split("\n")
    loss = f"mean loss {found.loss:.4g} ± 7.08e-5."
    assert first == f"the choice is 1: candidate 1, {loss}"
    assert promise == str(found.guarantee)
    points = select([np.zeros(3), np.ones(3)], lambda c, x: abs(c[0] - x), np.ones(1000))
    assert str(points).startswith("the choice is (1, 1, 1): candidate 1.\n")


def test_units_and_their_promises() -> None:
    elements = np.tile([0, 0, 1, 1, 1], 600)
    by_element = select(
        CANDIDATES, closest, RECORDS, USERS, unit=Element(), elements=elements, random_state=0
    )
    assert by_element.guarantee.level == "element"
    assert by_element.guarantee.epsilon(units=3) == pytest.approx(3.0)
    assert by_element.guarantee.epsilon(unit=User(max_elements=2)) == pytest.approx(2.0)
    by_record = select(CANDIDATES, closest, RECORDS, USERS, unit=Record(), random_state=0)
    assert by_record.guarantee.epsilon(units=4) == pytest.approx(4.0)
    by_user = select(CANDIDATES, closest, RECORDS, USERS, random_state=0)
    # One record less moves a user's mean up or down: not all one way.
    assert by_user.guarantee.epsilon(unit=Record()) == pytest.approx(2.0)
    assert by_user.guarantee.epsilon(relation="replace") == pytest.approx(2.0)


def test_it_is_charged_to_an_open_budget() -> None:
    with budget(1.0) as b:
        select(CANDIDATES, closest, RECORDS, USERS, 0.4, random_state=0)
        assert b.left == pytest.approx(0.6)
        with pytest.raises(ParameterError, match="does not hold"):
            select(CANDIDATES, closest, RECORDS, USERS, 0.7, random_state=0)


def test_a_seed_repeats_and_none_does_not() -> None:
    def one(seed: int | None) -> Choice:
        return select(CANDIDATES, closest, RECORDS, USERS, 0.01, score=True, random_state=seed)

    assert one(3).loss == one(3).loss != one(4).loss
    assert one(None).guarantee.private
    assert one(None).loss != one(None).loss


def measured(
    pick: Callable[[Array, Source], int], one: Array, two: Array, draws: int = 5000
) -> float:
    """A lower bound on ε from the choices of two neighbours, wrong once in 10^7 or so."""
    source = SeededSource(11)
    seen = [Counter(pick(x, source) for _ in range(draws)) for x in (one, two)]
    best = 0.0
    for a, b in itertools.permutations(seen):
        for k in a:
            low = stats.beta.ppf(1e-8, a[k], draws - a[k] + 1)
            high = stats.beta.ppf(1 - 1e-8, b[k] + 1, draws - b[k])
            best = max(best, math.log(low / high) if low > 0 else 0.0)
    return best


def promised(epsilon: float, relation: Relation = "zero_out") -> Promise:
    return Promise(User(), epsilon, 0.0, relation)


def choosing(method: str, epsilon: float, relation: Relation, wrong: float) -> Any:
    """The choice of :func:`select` itself, from totals instead of records."""
    plan = module._once(
        promised(epsilon, relation), ONE, 12, gumbel=method == "exponential", score=False
    )
    plan = type(plan)(plan.event, plan.count, plan.scale * wrong, plan.gumbel, plan.score)

    def pick(x: Array, source: Source) -> int:
        return plan.choose(lambda i: np.array([x[i]]), 1, source).index

    return pick


# Totals of twelve candidates, and what one user can make of them.
ZERO_OUT = (np.array([3.0] * 12), np.array([2.0] + [3.0] * 11))
REPLACE = (np.array([3.0] + [2.0] * 11), np.array([2.0] + [3.0] * 11))


@pytest.mark.search(keep=0)
@pytest.mark.parametrize("method", ["permute_and_flip", "exponential"])
@pytest.mark.parametrize(
    ("relation", "neighbours"), [("zero_out", ZERO_OUT), ("replace", REPLACE)], ids=RELATIONS
)
def test_audit_of_the_choice(method: str, relation: Relation, neighbours: Any) -> None:
    one, two = ((x * STEPS).astype(np.int64) for x in neighbours)
    claim = 1.0
    # Half the noise, and one way where totals move both ways.
    seeded = [(1.0, False), (0.4, True)]
    for wrong, caught in seeded:
        found = measured(choosing(method, claim, relation, wrong), one, two)
        assert (found > claim) is caught, found
        assert found > 0.3


@pytest.mark.search(keep=1)
@pytest.mark.parametrize("method", ["permute_and_flip", "exponential"])
def test_one_way_noise_is_too_little_for_replace(method: str) -> None:
    one, two = ((x * STEPS).astype(np.int64) for x in REPLACE)
    assert measured(choosing(method, 1.0, "zero_out", 1.0), one, two) > 1.05
    assert measured(choosing(method, 1.0, "replace", 1.0), one, two) < 1.0


def test_clipping_records_instead_of_users_is_caught() -> None:
    # A user with nine records: added up, they move a total by nine.
    def picks(unit: Unit) -> float:
        one, two = (
            np.array([t[0], t[1]])
            for t in (totals([[0.0] * 9, [0.5]], unit), totals([[], [0.5]], unit))
        )
        plan = module._once(promised(1.0), ONE, 2, gumbel=False, score=False)
        return measured(
            lambda x, source: plan.choose(lambda i: np.array([x[i]]), 1, source).index, one, two
        )

    assert picks(User()) < 1.0
    assert picks(Record()) > 1.5


@pytest.mark.search(keep=0)
def test_runs_that_are_not_counted_are_caught() -> None:
    """A rare result below a less rare one: of many runs its chance moves by more than that of one."""
    epsilon = 0.8
    # Chances of the best result, and of the one below it, on two neighbours.
    laws = [(0.1, 0.01), (0.1 * math.exp(-epsilon), 0.01 * math.exp(epsilon))]

    def result(uniform: float, law: tuple[float, float]) -> int:
        return 2 if uniform < law[0] else int(uniform < sum(law))

    def stopped(x: Array, source: Source) -> int:
        def run(source: Source) -> tuple[float, int]:
            found = result(below(2**53, source) / 2**53, laws[int(x[0])])
            return float(found), found

        return best_of(run, event=PureDP(epsilon), mean=20.0, source=source).result

    def fixed(x: Array, source: Source) -> int:
        return max(result(float(v), laws[int(x[0])]) for v in source.words(40) / 2**64)

    one, two = np.array([0]), np.array([1])
    claim = SelectBest(PureDP(epsilon), 20.0).epsilon()
    assert epsilon / 3 < measured(stopped, one, two, 1500) < claim
    # A number of runs that is not drawn, and not counted: as if there was one run.
    assert measured(fixed, one, two, 3000) > 1.2 * epsilon


def test_the_exponential_mechanism_has_the_gumbel_order() -> None:
    x = np.array([3, 1, 2], dtype=np.int64) * STEPS
    plan = module._once(promised(0.7), ONE, 3, gumbel=True, score=False)
    for seed in range(20):
        chosen = plan.choose(lambda i: x[i : i + 1], 1, SeededSource(seed)).index
        scale = STEPS / 0.7 * (1 + 2.0**-50)
        assert chosen == gumbel_order(-x, scale, 1, source=SeededSource(seed))[0]


def test_repeated_evaluations_pay_for_the_number_of_runs() -> None:
    plan = module._repeated(promised(1.0), ONE, 10, 1000.0, None)
    assert plan.event.epsilon() == pytest.approx(1.0, rel=2e-4)
    assert plan.epsilon == pytest.approx(1 / 3, rel=0.01)
    assert plan.event.events == (Laplace(1 / plan.epsilon, ONE),)


def experiment() -> Any:
    path = Path(__file__).parents[2] / "experiments" / "finite_classes.py"
    spec = importlib.util.spec_from_file_location("experiments_finite_classes", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    # Dataclasses look up their module by its name.
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


def test_one_choice_beats_algorithm_5_with_a_hundredth_of_its_evaluations() -> None:
    finite = experiment()
    rows = {
        row.method: row
        for row in finite.run(
            "random",
            200,
            400,
            25,
            seeds=8,
            methods=("algorithm 5", "permute_and_flip", "two looks"),
        )
    }
    printed, own = rows["algorithm 5"], rows["permute_and_flip"]
    assert own.error < printed.error / 3
    assert (own.evaluations, rows["two looks"].evaluations) == (200, 400)
    assert printed.evaluations > 30 * own.evaluations
    assert 0 < own.floor < own.error


def test_the_packing_problem_has_its_losses() -> None:
    finite = experiment()
    losses = finite.packing(16, 4000, 50, 3, advantage=0.4)
    means = losses.mean(axis=0)
    assert losses.shape == (4000, 16)
    # ½ ± Δ/2, and Δ/d for each sign.
    assert sorted(means)[0] == pytest.approx(0.3, abs=0.01)
    assert sorted(means)[-1] == pytest.approx(0.7, abs=0.01)
    assert Counter(np.rint((means - 0.3) / 0.1).tolist()) == {0: 1, 1: 4, 2: 6, 3: 4, 4: 1}


def test_the_printed_mean_is_clipped_around_a_private_range() -> None:
    finite = experiment()
    losses = np.column_stack([np.r_[np.full(990, 0.2), np.ones(10)], np.full(1000, 0.7)])
    drawn = np.array([0, 1, 0, 1] * 50)
    found = finite.winsorized(losses, drawn, 1.0, 0.05, np.random.default_rng(0))
    # Those at 1 count as the end of the range, at most 0.3.
    assert np.median(found[drawn == 0]) == pytest.approx(0.2, abs=0.004)
    assert np.median(found[drawn == 1]) == pytest.approx(0.7, abs=0.004)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"candidates": []}, "candidates must be at least one"),
        ({"candidates": {1: 2}}, "candidates must be a sequence"),
        ({"bound": 0.0}, "bound must be finite and above 0"),
        ({"bound": 1e200}, "bound must lie between"),
        ({"lower": math.nan}, "lower must be a number"),
        ({"epsilon": 0.0}, "epsilon must be finite"),
        ({"delta": 1.0}, "delta must lie in"),
        ({"users": [1, 2]}, "users must have one label"),
        ({"data": (RECORDS, RECORDS[1:])}, "data must hold as many"),
        ({"loss": lambda c, x: x[1:]}, "loss must give one number for each record, not shape"),
        ({"method": "best"}, "method must be one of"),
        ({"relation": "add"}, "relation must be one of"),
        ({"unit": User(max_elements=2)}, "without max_elements"),
        ({"unit": "user"}, "unit must be Record"),
        ({"unit": Element()}, "elements must be passed"),
        ({"runs": 5.0}, "runs and evaluation must be left out"),
        ({"runs": 1.0, "method": "repeat"}, "mean must be above 1"),
        ({"epsilon": 1e-4, "score": True}, "epsilon must be at least 0.001"),
        ({"random_state": -1}, "random_state"),
        ({"n_users": 0}, "n_users"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_wrong_parameters_are_named(change: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {
        "candidates": CANDIDATES,
        "loss": closest,
        "data": RECORDS,
        "users": USERS,
        **change,
    }
    with pytest.raises(ParameterError, match=sentence):
        select(**given)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: permute_and_flip(np.array([], dtype=int), 1.0), "scores"),
        (lambda: permute_and_flip(np.array([0.5]), 1.0), "scores"),
        (lambda: permute_and_flip(np.array([2**53]), 1.0), "scores"),
        (lambda: permute_and_flip(np.array([1]), 0.0), "scale"),
        (lambda: negative_binomial(-1.0, 0.5), "eta"),
        (lambda: negative_binomial(1.0, 1.0), "gamma"),
        (lambda: poisson(0.0), "mean"),
        (lambda: ball_cover(0, 1.0, 1.0), "dimension"),
        (lambda: ball_cover(1, 1.0, 0.0), "spacing"),
        (lambda: ball_cover(1, 1.0, 1.0, "l1"), "norm"),  # type: ignore[arg-type]
    ],
    ids=["none", "float", "large", "scale", "eta", "gamma", "mean", "d", "h", "norm"],
)
def test_wrong_numbers_are_named(make: Callable[[], object], named: str) -> None:
    with pytest.raises(ParameterError, match=named):
        make()


def test_a_budget_does_not_count_the_runs() -> None:
    # Each run would be charged, for too little, and their number is not to be told.
    def run(source: Source) -> tuple[float, int]:
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
