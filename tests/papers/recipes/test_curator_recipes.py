"""The papers' algorithms: requirements on every recipe, and the parts of each."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import stats
from tests.effort import Effort
from tests.papers.recipes import cases
from tests.refusals import refuses

import dpgrain as dg
from dpgrain import learn, optimize
from dpgrain.accounting import Parallel
from dpgrain.errors import ParameterError
from dpgrain.gradients.records import RecordBlocks
from dpgrain.inputs.array_blocks import arrange
from dpgrain.learn import Minimum, minimise
from dpgrain.learn.rounds import population_index
from dpgrain.means import ClippedMean
from dpgrain.optimize import Absolute, Ball, Logistic, RandomIterate, Sgd, Squared
from dpgrain.papers import (
    AcSa,
    Concentrated,
    Known,
    PhasedErmSco,
    Program,
    RandomizedBall,
    Recipe,
    SoftCoreMean,
    Task,
    UserLevelAgd,
    UserLevelSgd,
    UserLevelSgdStronglyConvex,
    Winsorized,
    WinsorizedErm,
)
from dpgrain.publishing.facts import Fact
from dpgrain.units import Element, Record, Relation, User
from dpgrain.words.fit_text import coefficients

Array = NDArray[Any]


PHASED = ("phased", "sgd strong", "sgd strong plain")
# One of each type, because others would show nothing more.
ONE_EACH = ("winsorized", "phased", "sgd strong", "sgd", "agd", "concentrated")


def run(recipe: Recipe, loss: Any = None, **options: Any) -> Minimum:
    asked: dict[str, Any] = {
        "users": cases.USERS,
        "epsilon": 8.0,
        "n_users": 400,
        "random_state": 0,
    }
    asked |= options
    return minimise(loss or Logistic(), cases.X, cases.Y, [0.0, 0.0], solver=recipe, **asked)


# -- the contract --


@pytest.mark.parametrize("name", cases.RECIPES)
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_a_program_keeps_the_promise(name: str, relation: Relation) -> None:
    recipe = cases.RECIPES[name]
    program = recipe.plan(
        replace(cases.TASK, promise=replace(cases.TASK.promise, relation=relation), lot=1)
    )
    assert isinstance(recipe, Recipe)
    assert 0.9 * 8.0 < program.event.epsilon(1e-6, relation=relation) <= 8.0
    assert program.event.level == "user"
    # Each phase separately also satisfies the guarantee, and has the planned number of rounds.
    for stage in program.stages:
        assert stage.mean.event.epsilon(1e-6, relation=relation) <= 8.0
    assert program.rounds == sum(stage.mean.rounds for stage in program.stages)
    assert isinstance(program.event, Parallel) == (name in PHASED)


@pytest.mark.parametrize("name", cases.RECIPES)
def test_phases_part_the_roster(name: str) -> None:
    program = cases.RECIPES[name].plan(cases.TASK)
    phases = program.localisation.phases()
    assert list(itertools.chain(*(phase.users for phase in phases))) == list(range(400))
    assert len(phases) == len(program.stages) == 1 + (name in PHASED)
    for phase, stage in zip(phases, program.stages, strict=True):
        assert stage.mean.n_users == len(phase.users)


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_EACH)
def test_other_releases_leave_less_budget(name: str) -> None:
    beside = dg.accounting.Gaussian(1.0, dg.accounting.Contribution("user"))
    program = cases.RECIPES[name].plan(replace(cases.TASK, beside=beside))
    alone = cases.RECIPES[name].plan(cases.TASK)
    for stage, free in zip(program.stages, alone.stages, strict=True):
        assert (stage.mean.event + beside).epsilon(1e-6) <= 8.0
        # With too few users there are fewer rounds.
        assert stage.mean.rounds <= free.mean.rounds
        means: tuple[Any, Any] = (stage.mean, free.mean)
        more = means[0].noise_multiplier > means[1].noise_multiplier
        assert more or stage.mean.rounds < free.mean.rounds


@pytest.mark.parametrize("name", cases.RECIPES)
@pytest.mark.parametrize("loss", [Logistic(), Absolute(), Squared()], ids=repr)
def test_any_convex_loss_can_be_minimised(name: str, loss: Any) -> None:
    found = run(cases.RECIPES[name], loss)
    assert found.theta.shape == (2,)
    assert np.isfinite(found.theta).all()
    program = cases.RECIPES[name].plan(cases.TASK)
    assert len(found.history.points) == program.rounds
    assert found.history.noise_sd == program.stages[-1].mean.noise_sd
    assert found.guarantee.epsilon() <= 8.0
    assert found.guarantee.event == program.event


@pytest.mark.filterwarnings("ignore::dpgrain.EndedWarning")  # users a million apart do not agree
@pytest.mark.parametrize("name", ONE_EACH)
def test_the_data_do_not_enter_the_program(name: str) -> None:
    first = run(cases.RECIPES[name])
    rows = cases.X * 1e6
    other = minimise(
        Logistic(),
        rows,
        1 - cases.Y,
        [0.0, 0.0],
        solver=cases.RECIPES[name],
        users=cases.USERS[::-1],
        epsilon=8.0,
        n_users=400,
    )
    assert first.guarantee.event == other.guarantee.event
    assert first.guarantee.public == other.guarantee.public


def test_floating_point_sums_are_documented() -> None:
    said = Fact("floating-sums")
    program = cases.RECIPES["concentrated steps"].plan(cases.TASK)
    assert said in program.facts
    (stage,) = program.stages
    assert isinstance(stage.mean, ClippedMean)
    exact = replace(program, stages=(replace(stage, mean=replace(stage.mean, exact=True)),))
    assert said not in exact.facts


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_EACH)
def test_a_seed_gives_the_same_again(name: str) -> None:
    one, two, other = (
        run(cases.RECIPES[name]),
        run(cases.RECIPES[name]),
        run(cases.RECIPES[name], random_state=1),
    )
    assert np.array_equal(one.theta, two.theta)
    assert not np.array_equal(one.theta, other.theta)
    assert not one.guarantee.private
    assert run(cases.RECIPES[name], random_state=None).guarantee.private


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("name", ONE_EACH)
def test_a_budget_is_charged_once_and_before_anything_runs(name: str) -> None:
    # Recipes with a noisy test need some ε for it, which is dear where it is charged as Gaussian noise.
    with dg.budget(12.0, 1e-5, pure=6.0) as budget:
        found = run(cases.RECIPES[name], epsilon=None, share=0.9)
        assert budget.guarantee is not None
        assert 0.5 < 1 - budget.left <= 0.9 * (1 + 1e-8)
        assert budget.guarantee.event == found.guarantee.event
        with pytest.raises(ParameterError, match="has no room for this release"):
            run(cases.RECIPES[name], epsilon=40.0)


@pytest.mark.parametrize("name", ONE_EACH)
def test_whole_users_only(name: str) -> None:
    for unit in (Record(), User(max_elements=2), Element()):
        with refuses("unit", "recipe"):
            run(cases.RECIPES[name], unit=unit)
        with refuses("unit", "recipe"):
            learn.LinearRegression(unit=unit, algorithm=cases.RECIPES[name], n_users=400).fit(
                cases.X, cases.Y, users=cases.USERS
            )


MODELS: list[tuple[learn.LinearModel, Array]] = [
    (learn.LinearRegression(), cases.Y - 0.3),
    (learn.HuberRegressor(), cases.Y),
    (learn.QuantileRegressor(), cases.Y + cases.X[:, 0]),
    (learn.PoissonRegressor(), np.round(2 * cases.Y)),
    (learn.LogisticRegression(classes=[0, 1]), cases.Y),
    (learn.LogisticRegression(classes=[0, 1, 2]), cases.Y + (cases.X[:, 0] > 0)),
    (learn.LinearSVC(classes=[0, 1]), cases.Y),
]


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize("name", ONE_EACH)
@pytest.mark.parametrize(("model", "y"), MODELS, ids=lambda value: type(value).__name__)
def test_every_estimator_runs_by_every_recipe(
    name: str, model: learn.LinearModel, y: Array
) -> None:
    model.set_params(
        algorithm=cases.RECIPES[name], epsilon=8.0, n_users=400, random_state=0, l2=0.01
    )
    model.fit(cases.X, y, users=cases.USERS)
    assert np.isfinite(model.predict(cases.X)).all()
    assert model.n_iter_ == len(model.history_.points) > 0
    assert model.guarantee_.epsilon() <= 8.0
    sentence = str(model.guarantee_)
    parameters = len(np.ravel(model.coef_)) + len(np.ravel(model.intercept_))
    program = cases.RECIPES[name].plan(replace(cases.TASK, start=(0.0,) * parameters))
    assert model.guarantee_.event == program.event
    for fact in (
        "400 enrolled users",
        "a solution within 2 of the start",
        "gradients of norm at most 1",
        "10 records of a typical user",
        "a ridge of 0.01",
        "floating point",
        *(f"{stage.mean.rounds:,} rounds" for stage in program.stages if _says_rounds(stage.mean)),
    ):
        assert fact in sentence, fact
    assert ("identified by their numbers" in sentence) == (name in PHASED)
    with refuses("intervals", "0"):
        model.confidence_intervals()


def _says_rounds(mean: Any) -> bool:
    return not isinstance(mean, Winsorized)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("clip", 1.0),
        ("clip", "auto"),
        ("rounds", 7),
        ("sampling_rate", 0.5),
        ("sampling", "users"),
        ("elements_per_user", 2.0),
        ("intervals", 0.2),
        ("exact", True),
    ],
)
def test_recipe_decisions_are_omitted(option: str, value: Any) -> None:
    model = learn.LinearRegression(algorithm=Concentrated(cases.KNOWN), **{option: value})
    with pytest.raises(ParameterError, match=f"{option} must be omitted with a recipe"):
        model.fit(cases.X, cases.Y, users=cases.USERS)
    full = learn.LinearRegression(algorithm=Concentrated(cases.KNOWN), sampling="full", n_users=400)
    full.fit(cases.X, cases.Y, users=cases.USERS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe",
    [
        WinsorizedErm(cases.KNOWN, rounds=25),
        WinsorizedErm(cases.KNOWN, kind="strongly_convex", rounds=25),
        PhasedErmSco(cases.KNOWN, count=2),
        UserLevelSgd(replace(cases.KNOWN, distance=8.0), rounds=25, smoothing="ball"),
        UserLevelSgdStronglyConvex(cases.KNOWN, rounds=25, count=2),
        Concentrated(cases.KNOWN),
    ],
    ids=lambda recipe: f"{type(recipe).__name__}-{getattr(recipe, 'kind', '')}",
)
def test_more_users_help(recipe: Recipe) -> None:
    found = []
    for n in (300, 1500):
        errors = []
        for seed in range(3):
            rows, y, users = cases.people(n, 5, seed=seed)
            theta = minimise(
                Logistic(),
                rows,
                y,
                [0.0, 0.0],
                solver=recipe,
                users=users,
                epsilon=3.0,
                n_users=n,
                random_state=seed,
            ).theta
            errors.append(cases.excess(theta, rows))
        found.append(float(np.mean(errors)))
    assert found[1] < 0.9 * found[0]


# -- users by phase --


def asked(users: Any, who: Any, n_users: int | None = 400) -> list[set[float]]:
    seen, program = cases.Seen(), cases.RECIPES["phased"].plan(cases.TASK)
    numbers = np.asarray(who, dtype=float)
    minimise(
        seen,
        np.zeros((len(numbers), 2)),
        numbers,
        [0.0, 0.0],
        solver=cases.RECIPES["phased"],
        users=users,
        epsilon=8.0,
        n_users=n_users,
    )
    first = program.stages[0].mean.rounds
    # The very first call sees whether loss and start fit.
    calls = seen.calls[1:]
    assert len(calls) == program.rounds
    assert all(call == calls[0] for call in calls[:first])
    assert all(call == calls[first] for call in calls[first:])
    return [calls[0], calls[first]]


@pytest.mark.slow
def test_other_users_records_move_no_one_between_phases() -> None:
    phases = [
        set(phase.users) for phase in cases.RECIPES["phased"].plan(cases.TASK).localisation.phases()
    ]
    everybody = np.arange(400)
    assert asked(everybody, everybody) == phases
    rng = np.random.default_rng(0)
    for _ in range(3):
        some = rng.permutation(400)[:300]
        assert asked(some, some) == [phase & set(some.tolist()) for phase in phases]
    # For any column type.
    for users in (everybody.astype(float), everybody.astype("u8"), everybody.tolist()):
        assert asked(users, everybody) == phases
    nullable = pd.Series([None, *range(1, 400)], dtype="Int64")
    assert asked(nullable, everybody) == [phase - {0} for phase in phases]
    frame = pd.DataFrame({"who": [*range(399), np.nan]})
    assert asked(frame["who"], everybody) == [phase - {399} for phase in phases]


@pytest.mark.slow
def test_malformed_ids_have_no_phase_and_no_effect(effort: Effort) -> None:
    phases = [
        set(phase.users) for phase in cases.RECIPES["phased"].plan(cases.TASK).localisation.phases()
    ]
    others = [phase - {0} for phase in phases]
    for odd in effort.some(["ann", None, -1, 400, 2**70, 0.5, float("nan"), (0,), b"x", 1 + 1j]):
        users: list[Any] = [odd, *range(1, 400)]
        assert asked(users, np.arange(400)) == others, odd
    # Equal numbers are the same person, and in the same phase.
    for same in ("0", 0.0, False, np.int8(0)):
        assert asked([same, *range(1, 400)], np.arange(400)) == phases, same
    assert asked([*range(400), *range(400, 900)], np.arange(900)) == phases


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dpgrain.EndedWarning")
def test_phases_need_numbers() -> None:
    names = np.array([f"u{i}" for i in cases.USERS])
    for name in PHASED:
        # Users outside the list participate in no phase; without a list there are no positions.
        for users in (names, pd.Series(names, dtype="string")):
            assert run(cases.RECIPES[name], users=users).guarantee.epsilon() <= 8.0
        with pytest.raises(ParameterError, match="users is required for unit="):
            run(cases.RECIPES[name], users=None)
        model = learn.LinearRegression(algorithm=cases.RECIPES[name], epsilon=8.0)
        with pytest.raises(ParameterError, match="n_users must be passed with a recipe"):
            model.fit(cases.X, cases.Y, users=cases.USERS)
    assert run(cases.RECIPES["winsorized"], users=names).guarantee.epsilon() <= 8.0


@pytest.mark.slow
def test_too_small_user_list_is_rejected_after_reading_users() -> None:
    """The number of users is not known before the charge, which is spent."""
    for name in ("sgd", "sgd moreau"):
        with dg.budget(40.0, 1e-5) as budget:
            with pytest.raises(
                ParameterError, match=r"n_users.* must be at least the number of distinct ids"
            ):
                run(cases.RECIPES[name], n_users=399)
            assert budget.guarantee is not None
        with pytest.raises(
            ParameterError, match=r"n_users.* must be at least the number of distinct ids"
        ):
            learn.LinearRegression(algorithm=cases.RECIPES[name], n_users=399, epsilon=8.0).fit(
                cases.X, cases.Y, users=cases.USERS
            )
    # Others divide by the stated number, and phases have no room for more users.
    for name in ("winsorized", "concentrated", *PHASED):
        assert run(cases.RECIPES[name], n_users=399).guarantee.epsilon() <= 8.0


@pytest.mark.slow
def test_user_without_target_equals_an_absent_one() -> None:
    gone = cases.Y.copy()
    gone[cases.USERS == 3] = np.nan
    left = cases.USERS != 3
    for name in ONE_EACH:
        options: dict[str, Any] = {"epsilon": 8.0, "random_state": 0, "n_users": 400}
        pair = [
            minimise(
                Logistic(), rows, y, [0.0, 0.0], solver=cases.RECIPES[name], users=users, **options
            )
            for rows, y, users in (
                (cases.X, gone, cases.USERS),
                (cases.X[left], cases.Y[left], cases.USERS[left]),
            )
        ]
        assert np.array_equal(pair[0].theta, pair[1].theta), name


def test_user_enters_through_one_vector() -> None:
    theta = np.array([0.3, -0.2])
    records = RecordBlocks.arrange(cases.X, cases.Y, cases.USERS)
    without = RecordBlocks.arrange(
        cases.X[cases.USERS != 7],
        cases.Y[cases.USERS != 7],
        cases.USERS[cases.USERS != 7],
        blocks=400,
    )
    one, two = (blocks.gradients(Logistic(), theta).vectors() for blocks in (records, without))
    assert np.array_equal(np.delete(one, 7, axis=0), np.delete(two, 7, axis=0))
    assert not two[7].any()
    others = np.delete(np.arange(400), 7)
    assert np.array_equal(records.select(others).X, without.select(others).X)
    assert records.select(np.arange(0)).blocks == 0
    assert records.select(np.array([5, 2])).y.tolist() == [
        *cases.Y[cases.USERS == 5],
        *cases.Y[cases.USERS == 2],
    ]


# -- random smoothing --


def test_loss_without_proximal_step_is_rejected_before_the_charge() -> None:
    with (
        dg.budget(8.0, 1e-6) as budget,
        refuses("loss", "proximal"),
    ):
        run(cases.RECIPES["sgd moreau"], cases.Seen())
    assert budget.guarantee is None


# -- the recipes themselves --


class Sloping:
    def value(self, theta: Array, X: Array, y: Array) -> Array:
        return np.full(len(X), theta[0] / 2)

    def gradient(self, theta: Array, X: Array, y: Array) -> Array:
        return np.tile([0.5, 0.0], (len(X), 1))


def test_the_pull_is_in_the_gradients() -> None:
    recipe = PhasedErmSco(replace(cases.KNOWN, radius=0.02), count=2)
    found = run(recipe, Sloping())
    program = recipe.plan(cases.TASK)
    first = program.stages[0].mean.rounds
    phases = program.localisation.phases()
    assert phases[1].strength == 4 * phases[0].strength > 0
    points, gradients = found.history.points, found.history.gradients
    for phase, stage, part in zip(
        phases, program.stages, (slice(0, first), slice(first, None)), strict=True
    ):
        centre = points[part][0]
        pull = phase.strength * (points[part] - centre)
        left = (gradients[part] - [0.5, 0.0] - pull) / stage.mean.noise_sd
        if phase.number == 1:
            # The second one barely moves.
            assert np.linalg.norm(pull) > 30 * stage.mean.noise_sd
        assert stats.kstest(left.ravel(), stats.norm.cdf).pvalue > 1e-7


@pytest.mark.slow
def test_users_are_within_the_radius() -> None:
    rng = np.random.default_rng(0)
    n, rounds, m, bound = 100, 5, 64, 3.0
    known = Known(lipschitz=bound, records=m)
    radius = known.radius_for(n, rounds)
    assert radius == pytest.approx(bound / 8 * (1 + math.sqrt(2 * math.log(n * rounds / 0.01))))
    for dimension in (1, 2, 20):
        largest = []
        for _ in range(60):
            drawn = rng.normal(size=(n * rounds, m, dimension))
            drawn *= bound / np.linalg.norm(drawn, axis=2, keepdims=True)
            largest.append(np.linalg.norm(drawn.mean(axis=1), axis=1).max())
        assert np.quantile(largest, 0.99) < radius
        assert min(largest) > radius / 10
    # With one record per user, or few: never farther from 0 than the bound.
    assert Known(lipschitz=bound).radius_for(n, rounds) == bound
    assert Known(lipschitz=bound, radius=7.0).radius_for(n, rounds) == 7.0


def test_user_level_sgd_is_the_theorem_s() -> None:
    known, rounds, n = Known(distance=3.0, lipschitz=2.0, records=400), 64, 1000
    task = Task.of(n, (0.0,) * 16, 4.0, 1e-6)
    (stage,) = UserLevelSgd(known, rounds=rounds, smoothing="ball").plan(task).stages
    mean, solver = stage.mean, stage.solver
    assert isinstance(mean, SoftCoreMean)
    assert isinstance(solver, Sgd)
    assert (mean.rounds, mean.radius) == (rounds, known.radius_for(n, rounds))
    noise = mean.noise_multiplier * mean.radius * 4
    length = math.sqrt(4.0 * (1 + 2 * 64 / 400_000) + noise**2)
    # In a ball of radius r the smoothed loss has the curvature G√d/r; steps are of at most 2/β.
    around = 16**0.25 * 3.0 / 8
    assert solver.schedule(1) == pytest.approx(min(3.0 / length / 8, 2 * around / (2.0 * 4)))
    assert isinstance(stage.smoothing, RandomizedBall)
    assert stage.smoothing.radius == pytest.approx(around)
    (moreau,) = UserLevelSgd(known, rounds=rounds, smoothing="moreau").plan(task).stages
    assert moreau.smoothing == pytest.approx(2.0 * 8 / 3.0)
    # One round per record, up to a thousand.
    assert UserLevelSgd(known, rounds=rounds).plan(task).stages[0].smoothing is None
    few = UserLevelSgd(Known(records=1)).plan(Task.of(30, (0.0,), 50.0, 1e-6)).rounds
    assert few == 30
    many = Task.of(10**5, (0.0,) * 16, 4.0, 1e-6)
    assert UserLevelSgd(known).plan(many).rounds == 1000


@pytest.mark.parametrize("recipe", [UserLevelSgd(smoothing="moreau"), UserLevelAgd()])
@pytest.mark.parametrize("steepness", [1.0, 0.1, 0.01])
def test_excess_bounds_are_valid_for_cones(recipe: Any, steepness: float) -> None:
    # The gradient of the envelope of c‖θ − t‖, and the planned noise.
    known = Known(distance=2.0, lipschitz=1.0, records=100)
    recipe = replace(recipe, known=known, rounds=60)
    task, truth = Task.of(20_000, (0.0,) * 4, 1.0, 1e-6), np.full(4, 1.0)
    (stage,) = recipe.plan(task).stages
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)

        def gradient(theta: Array, rng: Any = rng) -> Array:
            away = theta - truth
            far = max(float(np.linalg.norm(away)), 1e-300)
            noise = rng.normal(scale=stage.mean.noise_sd, size=4)
            return np.asarray(min(steepness / far, stage.smoothing) * away + noise)

        theta = optimize.run(stage.solver, gradient, np.zeros(4), 60)
        found.append(steepness * float(np.linalg.norm(theta - truth)))
    assert np.mean(found) <= recipe.excess(task, 20_000)
    # A longer run would leave nothing: the bound is below the start's.
    assert recipe.excess(task, 20_000) < 2.0


def test_accelerated_steps_need_root_of_the_records_rounds() -> None:
    known, d = Known(distance=1.0, records=100), (0.0,) * 10
    rounds, excess = [], []
    for n in (10**4, 10**5, 10**6):
        recipe, task = UserLevelAgd(known), Task.of(n, d, 1.0, 1e-6)
        rounds.append(recipe.plan(task).rounds)
        excess.append(recipe.excess(task, n))
        assert UserLevelSgd(known).excess(task, n) > excess[-1]
    assert 500 < rounds[0] < rounds[1] == rounds[2] == 1000
    # A thousand rounds leave 2GR/T of the start.
    assert excess[0] > excess[1] > excess[2] > 2 / 1000
    # A smooth loss needs fewer.
    smooth = replace(known, smoothness=1.0)
    program = UserLevelAgd(smooth).plan(Task.of(10**6, d, 1.0, 1e-6))
    assert program.rounds < 300
    assert program.stages[0].smoothing is None


def test_early_end_of_a_run_is_reported(tmp_path: Any) -> None:
    # No two users are within a millionth: the soft core's test fails in its first round.
    recipe = UserLevelSgd(replace(cases.KNOWN, radius=1e-6), rounds=7)
    model = learn.LogisticRegression(
        epsilon=8.0, algorithm=recipe, n_users=400, classes=[0, 1], random_state=0
    )
    with pytest.warns(
        dg.EndedWarning, match="ended in round 1 of 7 and returned the starting point, because"
    ):
        model.fit(cases.X, cases.Y, users=cases.USERS)
    assert "Warning: the run ended in round 1 of 7" in str(coefficients(model))
    kept = learn.load(model.save(tmp_path / "model.json"))
    assert str(coefficients(kept)) == str(coefficients(model))
    with pytest.warns(dg.EndedWarning):
        found = run(recipe)
    assert found.history.ended
    assert not run(cases.RECIPES["sgd"]).history.ended


def test_strongly_convex_phases_double_and_come_nearer() -> None:
    known = Known(distance=3.0, strength=0.5, records=100)
    program = UserLevelSgdStronglyConvex(known, rounds=20).plan(Task.of(2000, (0.0,), 4.0, 1e-6))
    sizes = [len(phase.users) for phase in program.localisation.phases()]
    assert len(sizes) == math.ceil(math.log(math.log(200_000))) == 3
    # n/2^(k+1−i), and the largest has the rest.
    assert sizes == [250, 500, 1250]
    solvers: list[Any] = [stage.solver for stage in program.stages]
    assert [solver.distance for solver in solvers] == sorted(
        (solver.distance for solver in solvers), reverse=True
    )
    assert solvers[-1].distance < solvers[0].distance / 2
    assert all(solver.domain == Ball(3.0, (0.0,)) for solver in solvers)
    # With few users there are fewer phases.
    assert (
        len(
            UserLevelSgdStronglyConvex(known, rounds=20)
            .plan(replace(cases.TASK, n_users=60))
            .stages
        )
        < 3
    )


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"iterate": 0}, {"iterate": 1.5}, {"rounds": -3}])
def test_winsorized_rounds_and_iterates_are_whole_numbers(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ParameterError, match=f"{name} must be an integer of at least 1"):
        WinsorizedErm(cases.KNOWN, kind="nonconvex", **wrong)


@pytest.mark.parametrize("kind", ["convex", "strongly_convex"])
def test_iterate_is_chosen_if_one_is_returned(kind: Any) -> None:
    with pytest.raises(ParameterError, match="iterate must be omitted with kind='"):
        WinsorizedErm(cases.KNOWN, kind=kind, iterate=4)


def test_winsorized_rounds_and_iterates() -> None:
    task = Task.of(20_000, (0.0, 0.0), 4.0, 1e-6)
    known = Known(smoothness=2.0, records=100)
    program = WinsorizedErm(known).plan(task)
    noise = known.radius_for(20_000, 1) * task.noise()
    assert program.rounds == min(math.ceil(2.0 * 10.0 / noise), 1000)
    any_loss = WinsorizedErm(known, kind="nonconvex", rounds=10)

    def iterate(recipe: WinsorizedErm, lot: int | None) -> Any:
        solver: Any = recipe.plan(replace(task, lot=lot)).stages[0].solver
        return solver.average

    assert [iterate(any_loss, lot) for lot in range(10)] == [RandomIterate(k) for k in range(1, 11)]
    assert iterate(replace(any_loss, iterate=4), 7) == RandomIterate(4)
    # Without a lot it is drawn.
    assert len({iterate(any_loss, None) for _ in range(40)}) > 1


def test_too_few_users_are_reported() -> None:
    few = Task.of(8, (0.0,) * 50, 0.1, 1e-6)
    for recipe in (
        WinsorizedErm(),
        PhasedErmSco(),
        UserLevelSgd(smoothing="ball"),
        UserLevelSgdStronglyConvex(),
    ):
        with refuses("n_users"):
            recipe.plan(few)
    assert Concentrated().plan(few).event.epsilon(1e-6) <= 0.1


def test_concentrated_is_a_mean_of_short_vectors() -> None:
    task = Task.of(1000, (0.0,) * 4, 1.0, 1e-6)
    (stage,) = Concentrated(Known(records=100, lipschitz=2.0), share=0.5).plan(task).stages
    mean = stage.mean
    assert isinstance(mean, ClippedMean)
    assert mean.clip == pytest.approx(0.1)
    assert mean.sampling_rate == 1.0
    assert Concentrated(Known(smoothness=1e-9), rounds=None).plan(task).rounds == 50
    assert Concentrated(Known(), rounds=7).plan(task).rounds == 7
    accelerated = AcSa(2.0, 100)
    assert Concentrated(solver=accelerated).plan(task).stages[0].solver == accelerated


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"distance": 0.0}, "distance must be"),
        ({"lipschitz": -1.0}, "lipschitz must be"),
        ({"smoothness": 0.0}, "smoothness must be"),
        ({"smoothness": math.nan}, "smoothness must be"),
        ({"strength": -0.1}, "strength must be"),
        ({"strength": 2.0, "smoothness": 1.0}, "strength must be at most smoothness"),
        ({"records": 0}, "records must be"),
        ({"records": 1.5}, "records must be"),
        ({"radius": 0.0}, "radius must be"),
    ],
)
def test_invalid_knowledge_is_reported(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Known(**wrong)


def test_invalid_recipes_are_reported() -> None:
    odd: Any = "odd"
    for made, message in (
        (lambda: WinsorizedErm(Known()), "smoothness must be finite for WinsorizedErm"),
        (lambda: PhasedErmSco(Known()), "smoothness must be finite for PhasedErmSco"),
        (lambda: WinsorizedErm(Known(smoothness=1.0), kind=odd), "kind must be one of"),
        (lambda: WinsorizedErm(kind="strongly_convex"), "strength must be above 0"),
        (lambda: UserLevelSgd(smoothing=odd), "smoothing must be one of"),
        (lambda: UserLevelSgd(rounds=0), "rounds must be an integer"),
        (lambda: UserLevelSgdStronglyConvex(Known()), "strength must be above 0"),
        (lambda: Concentrated(share=0.0), "share must be"),
    ):
        with pytest.raises(ParameterError, match=message):
            made()
    with refuses("solver"):
        run(WinsorizedErm)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="algorithm must be 'auto', a solver"):
        learn.LinearRegression(algorithm=WinsorizedErm).fit(cases.X, cases.Y)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Own:
    def plan(self, task: Task) -> Program:
        return Concentrated(cases.KNOWN, rounds=3).plan(task)


def test_a_recipe_of_one_s_own() -> None:
    assert len(run(Own()).history.points) == 3
    model = learn.LinearRegression(algorithm=Own(), n_users=400).fit(
        cases.X, cases.Y, users=cases.USERS
    )
    assert model.n_iter_ == 3


def test_index_without_phases_is_not_required() -> None:
    rows = arrange(3, ["a", "b", "a"], None, User())
    found = population_index(cases.RECIPES["sgd"].plan(cases.TASK), ["a", "b", "a"], rows)
    assert found.tolist() == [0, 0]
