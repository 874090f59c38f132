"""The shuffle paper's algorithms: guarantees, users by round, exponents, and trust."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.papers.recipes import cases, programs
from tests.refusals import refuses

import dpgrain as dg
from dpgrain import papers
from dpgrain.errors import ParameterError
from dpgrain.learn import minimise
from dpgrain.means.shuffled import Shuffled
from dpgrain.optimize import Absolute, Ball, Logistic, Sgd
from dpgrain.papers import (
    AcSa,
    Known,
    PanPrivate,
    PanPrivateAgd,
    PanPrivateConcentrated,
    Recipe,
    ShuffleAgd,
    ShuffleConcentrated,
    ShuffleGd,
    ShuffleRestarts,
    ShuffleSgd,
    Task,
)

Array = NDArray[Any]


# -- the contract --


@pytest.mark.parametrize("name", programs.RECIPES)
def test_any_loss_can_be_minimised(name: str) -> None:
    program = programs.RECIPES[name].plan(programs.TASK)
    for loss in (Logistic(), Absolute()):
        found = programs.run(programs.RECIPES[name], loss)
        assert np.isfinite(found.theta).all()
        assert len(found.history.points) == program.rounds
        assert found.history.noise_sd == program.stages[-1].mean.noise_sd
        assert found.history.clip == program.stages[-1].mean.clip
        assert found.guarantee.event == program.event
        assert found.guarantee.epsilon() <= 8.0


@pytest.mark.parametrize("name", programs.ONE_EACH)
def test_a_seed_gives_the_same_again(name: str) -> None:
    one, two, other = (
        programs.run(programs.RECIPES[name]),
        programs.run(programs.RECIPES[name]),
        programs.run(programs.RECIPES[name], random_state=1),
    )
    assert np.array_equal(one.theta, two.theta)
    assert not np.array_equal(one.theta, other.theta)
    assert not one.guarantee.private
    assert programs.run(programs.RECIPES[name], random_state=None).guarantee.private


@pytest.mark.parametrize("name", programs.ONE_EACH)
def test_the_data_do_not_enter_the_program(name: str) -> None:
    first = programs.run(programs.RECIPES[name])
    rows: dict[str, Any] = {"users": programs.USERS[::-1], "epsilon": 8.0, "random_state": 0}
    rows["n_users"] = 400
    other = minimise(
        Logistic(),
        programs.X * 1e6,
        1 - programs.Y,
        [0.0, 0.0],
        solver=programs.RECIPES[name],
        **rows,
    )
    assert first.guarantee.event == other.guarantee.event
    assert first.guarantee.public == other.guarantee.public


@pytest.mark.parametrize("name", programs.ONE_EACH)
def test_a_budget_is_charged_once_and_before_anything_runs(name: str) -> None:
    with dg.budget(8.0, 1e-6) as budget:
        found = programs.run(programs.RECIPES[name], epsilon=None, share=0.9)
        assert budget.guarantee is not None
        assert 0.7 < 1 - budget.left <= 0.9 * (1 + 1e-8)
        assert budget.guarantee.event == found.guarantee.event
        with pytest.raises(ParameterError, match="has no room for this release"):
            programs.run(programs.RECIPES[name])


# -- users by round --


def asked(recipe: Recipe, users: Any, who: Any) -> list[set[float]]:
    seen, numbers = cases.Seen(), np.asarray(who, dtype=float)
    options: dict[str, Any] = {"users": users, "epsilon": 8.0, "n_users": 400}
    rows = np.zeros((len(numbers), 2))
    minimise(seen, rows, numbers, [0.0, 0.0], solver=recipe, **options)
    # The very first call sees whether loss and start fit.
    return seen.calls[1:]


def expected(recipe: Recipe) -> list[set[float]]:
    program, found = recipe.plan(programs.TASK), []
    for phase, stage in zip(program.localisation.phases(), program.stages, strict=True):
        places, mean = list(phase.users), stage.mean
        for t in range(mean.rounds):
            first, end = 0, len(places)
            if isinstance(mean, PanPrivate):
                first, end = mean.first(t), mean.first(t + 1)
            elif isinstance(mean, Shuffled) and mean.interaction == "sequential":
                first, end = t * mean.batch, (t + 1) * mean.batch
            found.append({float(place) for place in places[first:end]})
    return found


@pytest.mark.parametrize(
    "name", [name for name in programs.RECIPES if "kinks" not in name and name != "smoothed"]
)
def test_other_users_records_move_no_one_between_rounds(name: str) -> None:
    recipe, everybody = programs.RECIPES[name], np.arange(400)
    rounds = expected(recipe)
    assert asked(recipe, everybody, everybody) == rounds
    if name not in programs.FULL:
        # No user participates twice.
        assert sum(map(len, rounds)) == len(set().union(*rounds)) > 300
    some = np.random.default_rng(0).permutation(400)[:300]
    assert asked(recipe, some, some) == [asked_all & set(some.tolist()) for asked_all in rounds]


@pytest.mark.parametrize("name", ["agd", "pan", "betting fresh"])
def test_malformed_ids_have_no_round_and_no_effect(name: str) -> None:
    recipe = programs.RECIPES[name]
    others = [of_round - {0.0} for of_round in expected(recipe)]
    for odd in ("ann", None, -1, 400, 2**70, 0.5, float("nan")):
        assert asked(recipe, [odd, *range(1, 400)], np.arange(400)) == others, odd
    for same in ("0", 0.0, False):
        assert asked(recipe, [same, *range(1, 400)], np.arange(400)) == expected(recipe), same


def test_a_roster_has_to_be_stated() -> None:
    for name in programs.RECIPES:
        with refuses("n_users", "must be passed with a recipe"):
            programs.run(programs.RECIPES[name], n_users=None)
    for users in (programs.USERS + 10**6, programs.USERS + 1, programs.USERS + 0.5):
        assert (
            programs.run(programs.RECIPES["agd"], users=users, n_users=400).guarantee.epsilon()
            <= 8.0
        )


def test_additional_users_beyond_the_protocol_are_allowed() -> None:
    # An additional id may be one malformed label of a person.
    for name in ("gd", "betting", "agd"):
        assert programs.run(programs.RECIPES[name], n_users=399).guarantee.epsilon() <= 8.0


def test_loss_without_proximal_step_is_rejected_before_the_charge() -> None:
    with dg.budget(8.0, 1e-6) as budget:
        for name in ("smoothed", "restarts kinks", "gd kinks", "pan kinks"):
            with refuses("loss", "proximal"):
                programs.run(programs.RECIPES[name], cases.Seen())
        assert budget.guarantee is None


def test_sgd_is_the_theorem_s() -> None:
    known, task = (
        Known(distance=3.0, lipschitz=2.0, records=9),
        Task.of(9000, (0.0,) * 4, 1.0, 1e-6),
    )
    (stage,) = ShuffleSgd(known).plan(task).stages
    mean, solver = stage.mean, stage.solver
    assert isinstance(mean, Shuffled)
    assert isinstance(solver, Sgd)
    # The noise of a batch is as long as a gradient may be.
    assert mean.noise_sd * 2 == pytest.approx(2.0, rel=0.15)
    assert mean.batch * mean.rounds <= 9000 < (mean.batch + 1) * mean.rounds
    length = math.hypot(2.0, 2 * mean.noise_sd)
    assert solver.schedule(1) == pytest.approx(3.0 / (length * math.sqrt(mean.rounds)))
    assert solver.domain == Ball(3.0, (0.0,) * 4)


def test_gd_is_the_theorem_s() -> None:
    task = Task.of(200, (0.0,) * 4, 1.0, 1e-6)
    program = ShuffleGd(replace(programs.KINKS, lipschitz=3.0)).plan(task)
    (stage,) = program.stages
    rounds, noise = stage.mean.rounds, task.noise()
    assert rounds == math.ceil(noise**-2) < 200 * 4
    assert (
        ShuffleGd(programs.KINKS)
        .plan(replace(task, promise=replace(task.promise, epsilon=50.0)))
        .rounds
        == 200 * 4
    )
    assert ShuffleGd(programs.KINKS).plan(replace(task, n_users=10**4)).rounds == 1000
    # As much noise as gradient, each in every round.
    assert stage.mean.noise_sd * 2 == pytest.approx(3.0, rel=0.1)
    length = math.sqrt(9 * (1 + 2 * rounds / 800) + 4 * stage.mean.noise_sd**2)
    assert isinstance(stage.solver, Sgd)
    assert stage.solver.schedule(1) == pytest.approx(2.0 / (length * math.sqrt(rounds)))
    assert stage.smoothing == pytest.approx(3.0 * math.sqrt(rounds) / 2)
    steep = ShuffleGd(Known(smoothness=1e3), rounds=2).plan(task).stages[0]
    assert isinstance(steep.solver, Sgd)
    assert steep.smoothing is None
    assert steep.solver.schedule(1) == 2e-3


class Sloping:
    def value(self, theta: Array, X: Array, y: Array) -> Array:
        return np.full(len(X), theta[0])

    def gradient(self, theta: Array, X: Array, y: Array) -> Array:
        return np.tile([1.0, 0.0], (len(X), 1))


@pytest.mark.parametrize("name", ["sgd", "agd", "gd", "pan", "betting", "betting fresh"])
def test_steps_go_against_the_gradient(name: str) -> None:
    found = programs.run(programs.RECIPES[name], Sloping())
    assert found.theta[0] < -0.3
    if name != "betting" and name != "betting fresh":
        assert np.linalg.norm(found.history.points, axis=1).max() <= 2.0 + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "sgd",
        "agd",
        "smoothed",
        "restarts",
        "gd",
        "pan",
        "pan kinks",
        "betting",
        "betting fresh",
        "betting pan",
    ],
)
def test_they_learn(name: str) -> None:
    recipe = replace(programs.RECIPES[name], rounds=None)
    if name == "gd":
        recipe = ShuffleGd(programs.SMOOTH, rounds=60)
    rows, y, users = cases.people(3000, 2)
    errors = []
    for seed in range(2):
        options: dict[str, Any] = {"users": users, "epsilon": 4.0, "random_state": seed}
        options["n_users"] = 3000
        found = minimise(Logistic(), rows, y, [0.0, 0.0], solver=recipe, **options)
        errors.append(cases.excess(found.theta, rows))
    assert np.mean(errors) < 0.4 * cases.excess(np.zeros(2), rows)
    last = recipe.plan(Task.of(3000, (0.0, 0.0), 4.0, 1e-6)).stages[-1]
    if isinstance(last.solver, AcSa):
        # The bound that selects the number of rounds is valid.
        changed = 1 / (2 * last.smoothing) if last.smoothing else 0.0
        assert np.mean(errors) < last.solver.excess() + changed


# -- whom to trust --


def test_invalid_recipes_are_reported() -> None:
    odd: Any = "odd"
    for make, message in (
        (lambda: ShuffleAgd(programs.KINKS), "smoothness must be finite for ShuffleAgd, not inf"),
        (lambda: ShuffleRestarts(programs.SMOOTH), "strength must be above 0 for ShuffleRestarts"),
        (lambda: ShuffleGd(programs.SMOOTH, count=2), "strength must be above 0 for 2 phases"),
        (lambda: PanPrivateAgd(programs.SMOOTH, count=2), "strength must be above 0 for 2 phases"),
        (lambda: ShuffleSgd(rounds=0), "rounds must be an integer"),
        (lambda: PanPrivateAgd(rounds=0), "rounds must be an integer"),
        (lambda: PanPrivateConcentrated(rounds=0), "rounds must be an integer"),
        (lambda: ShuffleRestarts(count=0), "count must be an integer"),
        (lambda: ShuffleSgd(honest_fraction=0.0), "honest_fraction must be above 0"),
        (lambda: ShuffleGd(honest_fraction=1.5), r"honest_fraction must be in \[0, 1\]"),
        (lambda: ShuffleAgd(protocol=odd), "protocol must be one of"),
        (lambda: ShuffleConcentrated(interaction=odd), "interaction must be one of"),
        (lambda: ShuffleConcentrated(share=0.0), "share must be"),
        (
            lambda: ShuffleSgd(rounds=401).plan(programs.TASK),
            "rounds must be at most n_users = 400",
        ),
        (
            lambda: PanPrivateAgd(rounds=401).plan(programs.TASK),
            "rounds must be at most n_users = 400",
        ),
        (
            lambda: ShuffleRestarts(programs.BOTH, count=401).plan(programs.TASK),
            "count must be at most",
        ),
        (
            lambda: ShuffleGd(programs.BOTH, count=9).plan(programs.TASK),
            "count must be at most",
        ),
    ):
        with pytest.raises(ParameterError, match=message) as found:
            make()
        assert "\n" not in str(found.value)


def test_few_users_are_enough_for_some_noise() -> None:
    few = Task.of(3, (0.0,) * 5, 0.5, 1e-6)
    for name in programs.RECIPES:
        if name not in programs.PHASED:
            recipe = replace(programs.RECIPES[name], rounds=2)
            assert recipe.plan(few).event.epsilon(1e-6) <= 0.5
    for recipe in (
        ShuffleRestarts(programs.BOTH),
        PanPrivateAgd(programs.BOTH),
        ShuffleGd(programs.BOTH),
        ShuffleSgd(),
    ):
        assert recipe.plan(few).event.epsilon(1e-6) <= 0.5


def test_every_recipe_has_one_name() -> None:
    assert {type(recipe).__name__ for recipe in programs.RECIPES.values()} <= set(papers.RECIPES)
    made = [getattr(papers, name) for name in papers.__all__]
    planned = [value for value in made if isinstance(value, type) and hasattr(value, "plan")]
    assert sorted(kind.__name__ for kind in planned) == sorted([*papers.RECIPES, "Recipe"])
