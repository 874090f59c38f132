"""Choices among finitely many candidates: exact distributions, sensitivities, audits, errors."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.charges import charge_of
from tests.choices import cases
from tests.programs import experiment

import dpgrain.choices.select as module
from dpgrain.accounting import Contribution, ExponentialMechanism, Laplace
from dpgrain.choices.scores import STEPS
from dpgrain.choices.select import Choice, select
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomSource, SeededSource, discrete_laplace
from dpgrain.noise.exponential import permute_and_flip
from dpgrain.noise.gumbel import gumbel_order
from dpgrain.noise.stopping import negative_binomial, poisson
from dpgrain.papers.cover import ball_cover
from dpgrain.publishing import Promise
from dpgrain.publishing.budget import budget
from dpgrain.units import Element, Record, Relation, User

Array = NDArray[Any]


# One loss between 0 and 1 from each user.
ONE = Contribution("user", "shared", "one", "l1")


ODD: list[Any] = [1j, "abc", None, {}, np.complex128(1 + 1j), [1.0], 10**400]


@pytest.mark.parametrize("cell", ODD, ids=lambda cell: repr(cell)[:12])
@pytest.mark.parametrize("method", ["permute_and_flip", "repeat"])
def test_one_malformed_loss_does_not_affect_others(cell: Any, method: Any) -> None:
    def chosen(cell: Any, listed: Callable[[list[Any]], Any]) -> Choice:
        def loss(candidate: float, records: Array) -> Any:
            # Booleans, which NumPy converts to text or complex numbers in a row with such cells.
            return listed([cell if x == data[5] else bool(x > candidate) for x in records])

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return select([0.2, 0.5], loss, data, epsilon=1.0, delta=1e-6, **options)

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


def closest(candidate: float, x: Array) -> Array:
    return np.abs(x - candidate)


RECORDS = np.random.default_rng(9).normal(0.6, 0.1, 3000)
USERS = np.repeat(np.arange(600), 5)
CANDIDATES = [0.0, 0.3, 0.6, 1.0]


@pytest.mark.parametrize("method", ["permute_and_flip", "exponential", "repeat"])
@pytest.mark.parametrize("relation", cases.RELATIONS)
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

        select(CANDIDATES, counted, RECORDS, USERS, method=method, random_state=2, epsilon=1.0)
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


@pytest.mark.slow
@pytest.mark.parametrize("relation", cases.RELATIONS)
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
    # 400 of 1000 users have no records, and count with the lower end.
    truth = 0.6 * np.abs(RECORDS - 0.6).mean() + 0.4 * -1.0
    error = made[0].std_error
    assert error is not None
    assert error == pytest.approx(math.sqrt(2) * 4.0 / 0.2 / 1000)
    assert abs(found.mean() - truth) < 5.5 * error / math.sqrt(len(found))
    assert found.std() == pytest.approx(error, rel=0.35)


def noisy_totals(losses: Array, draws: int) -> list[module._LossSums]:
    source, exact = SeededSource(5), module._LossSums.create(losses)
    part = Laplace(4.0, ONE)
    return [exact.noisy(part, True, charge_of(part, source)) for _ in range(draws)]


def test_units_are_counted_with_separate_noise() -> None:
    made = noisy_totals(np.full(100, STEPS // 4), 400)
    lost, rest = (np.array([getattr(one, part) for one in made]) for part in ("lost", "rest"))
    assert abs(np.corrcoef(lost, rest)[0, 1]) < 0.3
    # Neither the number of units nor the distance of the sums is published exactly.
    assert min(np.std(lost + rest), np.std(lost - rest)) > 4.0


@pytest.mark.slow
def test_loss_error_over_noisy_units_is_reported() -> None:
    made = [one.chosen(0, 4.0, None) for one in noisy_totals(np.full(4000, STEPS // 3), 8000)]
    means = np.array([one.mean for one in made])
    told = np.mean([one.spread for one in made])
    # The standard error of the deviation of this number of draws is 1.3%.
    assert np.std(means) == pytest.approx(told, rel=0.05)


@pytest.mark.parametrize("relation", cases.RELATIONS)
def test_number_of_units_has_separate_noise(relation: Relation) -> None:
    # All lose the maximum, so the mean errs only by the noise of the other users' number.
    made = [
        select(
            [0.0],
            lambda _, x: np.ones(len(x)),
            np.zeros(400),
            np.arange(400),
            score=True,
            relation=relation,
            random_state=seed,
            epsilon=1.0,
        )
        for seed in range(60)
    ]
    (score,) = (part for part in made[0].guarantee.event.parts if isinstance(part, Laplace))
    # A replaced unit leaves one sum, and enters the other.
    moved = 2.0 if relation == "replace" else 1.0
    assert score.epsilon(relation=relation, unit=User()) * score.noise_multiplier >= moved
    errors = np.array([choice.loss for choice in made]) - 1.0
    assert errors.std() == pytest.approx(made[0].std_error, rel=0.5)


def test_an_evaluation_of_ones_own() -> None:
    asked = []

    def evaluation(losses: Array, epsilon: float, source: RandomSource) -> float:
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


def test_choice_prints_result_and_guarantee() -> None:
    # An explicit list of users: the error of a loss would change with a noisy number of users.
    found = select(
        [0.0, 1.0], lambda c, x: abs(c - x), np.ones(1000), users=np.arange(1000), n_users=1000,
        score=True, epsilon=100.0,
    )  # fmt: skip
    first, caution, promise, pointer = str(found).split("\n")
    loss = f"Its mean loss over users: {found.loss:.4g}, standard error 7.1e-5 (noise only)."
    assert first == f"Chosen: 1 (index 1 of 2, from 0). {loss}"
    assert caution == (
        "A smaller mean loss over users is more likely to be chosen, but another candidate may be "
        "better. Each record's loss is clipped to [0, 1]."
    )
    assert promise == found.guarantee.summary
    assert pointer == "What the numbers mean: .explain(). Full guarantee: print(.guarantee)"
    explained = " ".join(found.explain().split())
    assert str(found.guarantee) in explained
    assert "std_error Standard error of the noise in the loss" in explained
    points = select(
        [np.zeros(3), np.ones(3)], lambda c, x: abs(c[0] - x), np.ones(1000), epsilon=1.0
    )
    assert str(points).startswith("Chosen: (1, 1, 1) (index 1 of 2, from 0).\n")


def test_units_and_their_promises() -> None:
    elements = np.tile([0, 0, 1, 1, 1], 600)
    by_element = select(
        CANDIDATES,
        closest,
        RECORDS,
        USERS,
        unit=Element(),
        elements=elements,
        random_state=0,
        epsilon=1.0,
    )
    assert by_element.guarantee.level == "element"
    assert by_element.guarantee.epsilon(units=3) == pytest.approx(3.0)
    assert by_element.guarantee.epsilon(unit=User(max_elements=2)) == pytest.approx(2.0)
    by_record = select(
        CANDIDATES, closest, RECORDS, USERS, unit=Record(), random_state=0, epsilon=1.0
    )
    assert by_record.guarantee.epsilon(units=4) == pytest.approx(4.0)
    by_user = select(CANDIDATES, closest, RECORDS, USERS, random_state=0, epsilon=1.0)
    # One record less moves a user's mean up or down: not all one way.
    assert by_user.guarantee.epsilon(unit=Record()) == pytest.approx(2.0)
    assert by_user.guarantee.epsilon(relation="replace") == pytest.approx(2.0)


def test_it_is_charged_to_an_open_budget() -> None:
    with budget(1.0) as b:
        select(CANDIDATES, closest, RECORDS, USERS, 0.4, random_state=0)
        assert b.left == pytest.approx(0.6)
        with pytest.raises(ParameterError, match="has no room"):
            select(CANDIDATES, closest, RECORDS, USERS, 0.7, random_state=0)


def test_a_seed_repeats_and_none_does_not() -> None:
    def one(seed: int | None) -> Choice:
        return select(CANDIDATES, closest, RECORDS, USERS, 0.01, score=True, random_state=seed)

    assert one(3).loss == one(3).loss != one(4).loss
    assert one(None).guarantee.private
    assert one(None).loss != one(None).loss


def choosing(method: str, epsilon: float, relation: Relation, wrong: float) -> Any:
    plan = module._plan_single_choice(
        Promise(User(), epsilon, 0.0, relation),
        ONE,
        12,
        gumbel=method == "exponential",
        score=False,
    )
    choice = plan.choice
    if isinstance(choice, ExponentialMechanism):
        return picking(replace(plan, choice=replace(choice, scale=choice.scale * wrong)))
    rate = choice.guaranteed_epsilon / wrong
    return picking(replace(plan, choice=replace(choice, guaranteed_epsilon=rate)))


def picking(plan: Any) -> Callable[[Array, RandomSource], int]:
    def pick(x: Array, source: RandomSource) -> int:
        charge = charge_of(plan.choice, source)
        return int(plan.choose(lambda i: x[i : i + 1], 1, charge).index)

    return pick


# Totals of twelve candidates, and one user's possible changes.
ZERO_OUT = (np.array([3.0] * 12), np.array([2.0] + [3.0] * 11))
REPLACE = (np.array([3.0] + [2.0] * 11), np.array([2.0] + [3.0] * 11))


@pytest.mark.slow
@pytest.mark.proof("audit", "ExponentialMechanism", "ApproximateDP")
@pytest.mark.parametrize("method", ["permute_and_flip", "exponential"])
@pytest.mark.parametrize(
    ("relation", "neighbours"), [("zero_out", ZERO_OUT), ("replace", REPLACE)], ids=cases.RELATIONS
)
def test_audit_of_the_choice(method: str, relation: Relation, neighbours: Any) -> None:
    one, two = ((x * STEPS).astype(np.int64) for x in neighbours)
    claim = 1.0
    # Half the noise, and one way where totals move both ways.
    seeded = [(1.0, False), (0.4, True)]
    for wrong, caught in seeded:
        found = cases.measured(choosing(method, claim, relation, wrong), one, two)
        assert (found > claim) is caught, found
        assert found > 0.3


def test_the_exponential_mechanism_has_the_gumbel_order() -> None:
    x = np.array([3, 1, 2], dtype=np.int64) * STEPS
    plan = module._plan_single_choice(
        Promise(User(), 0.7, 1e-6, "zero_out"), ONE, 3, gumbel=True, score=False
    )
    for seed in range(20):
        chosen = picking(plan)(x, SeededSource(seed))
        scale = STEPS / 0.7 * (1 + 2.0**-50)
        assert chosen == gumbel_order(-x, scale, 1, source=SeededSource(seed))[0]


def test_repeated_evaluations_pay_for_the_number_of_runs() -> None:
    plan = module._plan_repeated_choice(
        Promise(User(), 1.0, 1e-6, "zero_out"), ONE, 10, 1000.0, None
    )
    assert plan.event.epsilon() == pytest.approx(1.0, rel=2e-4)
    assert plan.epsilon == pytest.approx(1 / 3, rel=0.01)
    assert plan.event.events == (Laplace(1 / plan.epsilon, ONE),)


@pytest.mark.slow
def test_one_choice_beats_algorithm_5_with_fewer_evaluations() -> None:
    finite = experiment("finite_classes")
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
    finite = experiment("finite_classes")
    losses = finite.packing(16, 4000, 50, 3, advantage=0.4)
    means = losses.mean(axis=0)
    assert losses.shape == (4000, 16)
    # ½ ± Δ/2, and Δ/d for each sign.
    assert sorted(means)[0] == pytest.approx(0.3, abs=0.01)
    assert sorted(means)[-1] == pytest.approx(0.7, abs=0.01)
    assert Counter(np.rint((means - 0.3) / 0.1).tolist()) == {0: 1, 1: 4, 2: 6, 3: 4, 4: 1}


def test_the_printed_mean_is_clipped_around_a_private_range() -> None:
    finite = experiment("finite_classes")
    losses = np.column_stack([np.r_[np.full(990, 0.2), np.ones(10)], np.full(1000, 0.7)])
    drawn = np.array([0, 1, 0, 1] * 50)
    found = finite.winsorized(losses, drawn, 1.0, 0.05, np.random.default_rng(0))
    # Those at 1 count as the end of the range, at most 0.3.
    assert np.median(found[drawn == 0]) == pytest.approx(0.2, abs=0.004)
    assert np.median(found[drawn == 1]) == pytest.approx(0.7, abs=0.004)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"candidates": []}, "candidates must not be empty"),
        ({"candidates": {1: 2}}, "candidates must be a sequence"),
        ({"bound": 0.0}, "bound must be positive and finite"),
        ({"bound": 1e200}, "bound must be between"),
        ({"lower": math.nan}, "lower must be a number"),
        ({"epsilon": 0.0}, "epsilon must be positive and finite"),
        ({"delta": 1.0}, "delta must be in"),
        ({"users": [1, 2]}, "users must have exactly one label"),
        ({"data": (RECORDS, RECORDS[1:])}, "data must all have"),
        ({"loss": lambda c, x: x[1:]}, "loss must return one number for each record, not shape"),
        ({"method": "best"}, "method must be one of"),
        ({"relation": "add"}, "relation must be one of"),
        ({"unit": User(max_elements=2)}, "without max_elements"),
        ({"unit": "user"}, "unit must be Record"),
        ({"unit": Element()}, "elements is required"),
        ({"runs": 5.0}, "runs and evaluation must be omitted"),
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
        "epsilon": 1.0,
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
