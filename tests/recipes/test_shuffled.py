"""The shuffle paper's algorithms: promises, who is asked when, their theorems' exponents, and trust."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dpgrain as dg
from dpgrain import learn, recipes
from dpgrain.errors import ParameterError
from dpgrain.learn import Minimum, load, minimise
from dpgrain.means import PanPrivate
from dpgrain.means.shuffled import Shuffled
from dpgrain.optimize import Absolute, AcSa, Ball, CoinBetting, Constant, Logistic, Sgd
from dpgrain.recipes import (
    Concentrated,
    Known,
    PanPrivateAgd,
    PanPrivateConcentrated,
    Recipe,
    ShuffleAgd,
    ShuffleAgdSmoothed,
    ShuffleConcentrated,
    ShuffleGd,
    ShuffleRestarts,
    ShuffleSgd,
    Task,
    Trust,
    UserLevelSgd,
)
from dpgrain.units import Element, Record, Relation, User

Array = NDArray[Any]
KINKS = Known(distance=2.0, records=4)
SMOOTH = replace(KINKS, smoothness=0.25)
STRONG, BOTH = replace(KINKS, strength=0.1), replace(SMOOTH, strength=0.1)
RECIPES: dict[str, Any] = {
    "sgd": ShuffleSgd(KINKS, rounds=7),
    "agd": ShuffleAgd(SMOOTH),
    "agd poisson": ShuffleAgd(SMOOTH, rounds=7, protocol="poisson"),
    "smoothed": ShuffleAgdSmoothed(KINKS, rounds=7),
    "restarts": ShuffleRestarts(BOTH, count=2),
    "restarts kinks": ShuffleRestarts(STRONG, count=3, rounds=4),
    "gd": ShuffleGd(SMOOTH, rounds=6),
    "gd kinks": ShuffleGd(KINKS, rounds=6, honest_fraction=0.7),
    "gd strong": ShuffleGd(BOTH, count=2, rounds=4),
    "pan": PanPrivateAgd(SMOOTH),
    "pan kinks": PanPrivateAgd(KINKS, rounds=7),
    "pan strong": PanPrivateAgd(BOTH, count=2),
    "pan strong kinks": PanPrivateAgd(STRONG, count=2, rounds=4),
    "betting": ShuffleConcentrated(KINKS, rounds=6),
    "betting fresh": ShuffleConcentrated(KINKS, interaction="sequential", honest_fraction=0.9),
    "betting pan": PanPrivateConcentrated(KINKS),
}
PHASED = ("restarts", "restarts kinks", "gd strong", "pan strong", "pan strong kinks")
FULL = ("gd", "gd kinks", "gd strong", "betting")
# One of each kind, where others would tell nothing more.
ONE_EACH = ("agd", "smoothed", "restarts", "gd", "pan", "betting")
TASK = Task.of(400, (0.0, 0.0), 8.0, 1e-6)
TRUTH = np.array([0.8, -0.4])


def people(n: int, per_user: int = 4, seed: int = 0) -> tuple[Array, Array, Array]:
    """Rows of norm at most 1, labels of a logistic model, and users."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(-1, 1, n * per_user), np.ones(n * per_user)]) / math.sqrt(2)
    y = (rng.random(len(X)) < 1 / (1 + np.exp(-(X @ TRUTH)))).astype(float)
    return X, y, np.repeat(np.arange(n), per_user)


X, Y, USERS = people(400)


def run(recipe: Recipe, loss: Any = None, **options: Any) -> Minimum:
    asked: dict[str, Any] = {"users": USERS, "epsilon": 8.0, "n_users": 400, "random_state": 0}
    asked |= options
    return minimise(loss or Logistic(), X, Y, [0.0, 0.0], solver=recipe, **asked)


# -- the contract --


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_a_program_keeps_the_promise(name: str, relation: Relation) -> None:
    recipe = RECIPES[name]
    program = recipe.plan(replace(TASK, promise=replace(TASK.promise, relation=relation)))
    assert isinstance(recipe, Recipe)
    assert 0.95 * 8.0 < program.event.epsilon(1e-6, relation=relation) <= 8.0
    assert program.event.level == "user"
    assert program.trust == ("pan" if "pan" in name else "shuffle")
    assert program.by_place == (name not in FULL or name in PHASED)
    phases = program.localisation.phases()
    assert len(phases) == len(program.stages) > (name in PHASED)
    assert [place for phase in phases for place in phase.users] == list(range(400))
    for phase, stage in zip(phases, program.stages, strict=True):
        mean = stage.mean
        assert mean.event.epsilon(1e-6, relation=relation) <= 8.0
        assert mean.n_users == len(phase.users)
        assert isinstance(mean, PanPrivate if "pan" in name else Shuffled)
        if isinstance(mean, Shuffled):
            # Everybody in each round, or each round with users of its own, for the cost of one.
            assert mean.protocol.rounds == (mean.rounds if name in FULL else 1)
            assert mean.batch == (len(phase.users) // (1 if name in FULL else mean.rounds))


@pytest.mark.parametrize("name", ONE_EACH)
def test_with_something_beside_it_there_is_less_left(name: str) -> None:
    beside = dg.accounting.Gaussian(1.0, dg.accounting.Contribution("user"))
    recipe = replace(RECIPES[name], rounds=3)
    program, alone = recipe.plan(replace(TASK, beside=beside)), recipe.plan(TASK)
    for stage, free in zip(program.stages, alone.stages, strict=True):
        assert (stage.mean.event + beside).epsilon(1e-6) <= 8.0
        assert stage.mean.noise_sd > free.mean.noise_sd


@pytest.mark.search(keep=4)
@pytest.mark.parametrize("name", RECIPES)
def test_any_loss_can_be_minimised(name: str) -> None:
    program = RECIPES[name].plan(TASK)
    for loss in (Logistic(), Absolute()):
        found = run(RECIPES[name], loss)
        assert np.isfinite(found.theta).all()
        assert len(found.history.points) == program.rounds
        assert found.history.noise_sd == program.stages[-1].mean.noise_sd
        assert found.history.clip == program.stages[-1].mean.clip
        assert found.guarantee.event == program.event
        assert found.guarantee.epsilon() <= 8.0


@pytest.mark.search(keep=2)
@pytest.mark.parametrize("name", ONE_EACH)
def test_a_seed_gives_the_same_again(name: str) -> None:
    one, two, other = run(RECIPES[name]), run(RECIPES[name]), run(RECIPES[name], random_state=1)
    assert np.array_equal(one.theta, two.theta)
    assert not np.array_equal(one.theta, other.theta)
    assert not one.guarantee.private
    assert run(RECIPES[name], random_state=None).guarantee.private


@pytest.mark.parametrize("name", ONE_EACH)
def test_the_data_do_not_enter_the_program(name: str) -> None:
    first = run(RECIPES[name])
    rows: dict[str, Any] = {"users": USERS[::-1], "epsilon": 8.0, "random_state": 0}
    rows["n_users"] = 400
    other = minimise(Logistic(), X * 1e6, 1 - Y, [0.0, 0.0], solver=RECIPES[name], **rows)
    assert first.guarantee.event == other.guarantee.event
    assert first.guarantee.public == other.guarantee.public


@pytest.mark.parametrize("name", ONE_EACH)
def test_a_budget_is_charged_once_and_before_anything_runs(name: str) -> None:
    with dg.budget(8.0, 1e-6) as budget:
        found = run(RECIPES[name], epsilon=None, share=0.9)
        assert budget.guarantee is not None
        assert 0.7 < 1 - budget.left <= 0.9 * (1 + 1e-8)
        assert budget.guarantee.event == found.guarantee.event
        with pytest.raises(ParameterError, match="does not hold this release"):
            run(RECIPES[name])


# -- who is asked when --


@dataclass
class Seen:
    """A loss whose records tell who is asked; targets are users' numbers."""

    calls: list[set[float]] = field(default_factory=list)

    def value(self, theta: Array, X: Array, y: Array) -> Array:
        return np.zeros(len(X))

    def gradient(self, theta: Array, X: Array, y: Array) -> Array:
        self.calls.append(set(y.tolist()))
        return np.zeros((len(X), len(theta)))


def asked(recipe: Recipe, users: Any, who: Any) -> list[set[float]]:
    """Who was asked in each round."""
    seen, numbers = Seen(), np.asarray(who, dtype=float)
    options: dict[str, Any] = {"users": users, "epsilon": 8.0, "n_users": 400}
    rows = np.zeros((len(numbers), 2))
    minimise(seen, rows, numbers, [0.0, 0.0], solver=recipe, **options)
    # The very first call sees whether loss and start fit.
    return seen.calls[1:]


def expected(recipe: Recipe) -> list[set[float]]:
    """Who is to be asked in each round, if everybody has records."""
    program, found = recipe.plan(TASK), []
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


@pytest.mark.search(keep=3)
@pytest.mark.parametrize(
    "name", [name for name in RECIPES if "kinks" not in name and name != "smoothed"]
)
def test_who_else_has_records_moves_nobody_to_another_round(name: str) -> None:
    recipe, everybody = RECIPES[name], np.arange(400)
    rounds = expected(recipe)
    assert asked(recipe, everybody, everybody) == rounds
    if name not in FULL:
        # Nobody is asked twice.
        assert sum(map(len, rounds)) == len(set().union(*rounds)) > 300
    some = np.random.default_rng(0).permutation(400)[:300]
    assert asked(recipe, some, some) == [asked_all & set(some.tolist()) for asked_all in rounds]


@pytest.mark.parametrize("name", ["agd", "pan", "betting fresh"])
def test_odd_ids_are_in_no_round_and_change_nobody(name: str) -> None:
    recipe = RECIPES[name]
    others = [of_round - {0.0} for of_round in expected(recipe)]
    for odd in ("ann", None, -1, 400, 2**70, 0.5, float("nan")):
        assert asked(recipe, [odd, *range(1, 400)], np.arange(400)) == others, odd
    for same in ("0", 0.0, False):
        assert asked(recipe, [same, *range(1, 400)], np.arange(400)) == expected(recipe), same


def test_fresh_users_need_numbers() -> None:
    names = np.array([f"u{i}" for i in USERS])
    for name in ("sgd", "agd", "pan", "betting fresh", "gd strong"):
        with pytest.raises(ParameterError, match=r"users must be whole numbers.*fresh users"):
            run(RECIPES[name], users=None)
        # With a stated roster the type of a column is no error: one odd label makes text of it.
        odd = np.array([*map(str, USERS[:-1]), "oops"])
        assert run(RECIPES[name], users=odd, n_users=400).guarantee.epsilon() <= 8.0
    # Where everybody is in every round nobody has a place.
    for name in ("gd", "betting"):
        assert run(RECIPES[name], users=names).guarantee.epsilon() <= 8.0


def test_a_roster_has_to_be_stated() -> None:
    for name in RECIPES:
        with pytest.raises(ParameterError, match="n_users must be stated with a recipe"):
            run(RECIPES[name], n_users=None)
    for users in (USERS + 10**6, USERS + 1, USERS + 0.5):
        assert run(RECIPES["agd"], users=users, n_users=400).guarantee.epsilon() <= 8.0


@pytest.mark.parametrize("make", [recipes.ShuffleSgd, recipes.PanPrivateAgd, recipes.Concentrated])
def test_what_is_known_is_said_as_such(make: Any) -> None:
    with pytest.raises(ParameterError, match="known must be what is publicly known"):
        make(10)


def test_more_users_than_the_protocol_is_made_for_are_no_error() -> None:
    # An id too many may be one odd label of a person.
    for name in ("gd", "betting", "agd"):
        assert run(RECIPES[name], n_users=399).guarantee.epsilon() <= 8.0


def test_a_loss_without_a_proximal_step_is_refused_before_the_charge() -> None:
    with dg.budget(8.0, 1e-6) as budget:
        for name in ("smoothed", "restarts kinks", "gd kinks", "pan kinks"):
            with pytest.raises(ParameterError, match="loss must have a method proximal"):
                run(RECIPES[name], Seen())
        assert budget.guarantee is None


# -- the theorems --


def slope(of: Callable[[float], float], values: tuple[float, ...]) -> float:
    """The exponent of what grows like a power."""
    logs = np.log(values), np.log([of(value) for value in values])
    return float(np.polyfit(*logs, 1)[0])


@pytest.mark.search(keep=2)
@pytest.mark.parametrize(
    ("recipe", "users", "dimension", "epsilon"),
    [
        # b as in Theorems 4.1, 4.3 and 4.7, where noise outweighs sampling.
        (ShuffleSgd(replace(KINKS, records=10**6)), 0.0, 1 / 2, -1.0),
        (ShuffleAgd(replace(SMOOTH, records=10**6)), 3 / 5, 1 / 5, -2 / 5),
        (ShuffleAgdSmoothed(replace(KINKS, records=10**6)), 1 / 3, 1 / 3, -2 / 3),
        (PanPrivateAgd(replace(SMOOTH, records=10**6)), 3 / 5, 1 / 5, -2 / 5),
        (PanPrivateAgd(replace(KINKS, records=10**6)), 1 / 3, 1 / 3, -2 / 3),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Recipe) else f"{value:.2f}",
)
def test_batches_grow_as_the_theorem_says(
    recipe: Recipe, users: float, dimension: float, epsilon: float
) -> None:
    def batch(n: float = 50_000.0, d: float = 4.0, asked: float = 0.5) -> float:
        program = recipe.plan(Task.of(int(n), (0.0,) * int(d), asked, 1e-6))
        return int(n) / program.rounds

    assert slope(lambda n: batch(n=n), (1e4, 1e5)) == pytest.approx(users, abs=0.03)
    assert slope(lambda d: batch(d=d), (4, 16, 64)) == pytest.approx(dimension, abs=0.03)
    # The least noise is nearly as 1/ε.
    noise = slope(lambda e: Task.of(1, (0.0,), e, 1e-6).noise(), (0.1, 0.4))
    assert -1 < noise < -0.9
    assert slope(lambda e: batch(asked=e), (0.1, 0.4)) == pytest.approx(-epsilon * noise, abs=0.03)


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


@pytest.mark.parametrize("make", [ShuffleAgd, PanPrivateAgd], ids=lambda make: make.__name__)
def test_agd_makes_the_bound_least(make: Any) -> None:
    known, task = Known(3.0, 2.0, 0.7, records=9), Task.of(9000, (0.0,) * 4, 1.0, 1e-6)
    (stage,) = make(known).plan(task).stages
    mean, solver = stage.mean, stage.solver
    assert isinstance(solver, AcSa)
    assert (solver.smoothness, solver.distance, solver.rounds) == (0.7, 3.0, mean.rounds)
    batch = 9000 // mean.rounds
    assert solver.noise == pytest.approx(math.hypot(2.0 / math.sqrt(9 * batch), 2 * mean.noise_sd))
    assert stage.smoothing is None

    def excess(rounds: int) -> float:
        found = make(known, rounds=rounds).plan(task).stages[0].solver
        return float(found.excess())

    assert solver.excess() < 1.001 * min(excess(mean.rounds // 2), excess(2 * mean.rounds))
    assert solver.excess() < 1.02 * excess(mean.rounds - 2)
    assert solver.excess() < 1.02 * excess(mean.rounds + 2)
    # Two noises to a batch, of the same promise.
    other = ShuffleAgd(known, rounds=mean.rounds).plan(task).stages[0].mean
    twice = math.sqrt(2) if make is PanPrivateAgd else 1.0
    assert mean.noise_sd / other.noise_sd == pytest.approx(twice, rel=0.03)


@pytest.mark.parametrize(
    "recipe", [ShuffleAgdSmoothed(KINKS), PanPrivateAgd(KINKS)], ids=lambda r: type(r).__name__
)
def test_the_envelope_balances_what_is_left(recipe: Recipe) -> None:
    (stage,) = recipe.plan(TASK).stages
    solver, rounds = stage.solver, stage.mean.rounds
    assert isinstance(solver, AcSa)
    assert stage.smoothing == solver.smoothness
    exact = AcSa(solver.smoothness, rounds, 0.0, 2.0)
    assert exact.excess() == pytest.approx(1.0 / (2 * solver.smoothness))
    assert isinstance(stage.mean, PanPrivate | Shuffled)
    # Not doubled, as the envelope's gradients are no longer than the loss's.
    assert stage.mean.clip == 1.0


@pytest.mark.parametrize(
    "make", [ShuffleRestarts, PanPrivateAgd, ShuffleGd], ids=lambda make: make.__name__
)
def test_phases_come_nearer(make: Any) -> None:
    task = Task.of(20_000, (0.0,) * 4, 2.0, 1e-6)
    for known in (STRONG, BOTH):
        program = make(replace(known, distance=10.0, strength=0.2)).plan(task)
        assert 1 < len(program.stages) <= 8
        if make is ShuffleGd:
            sizes = [len(phase.users) for phase in program.localisation.phases()]
            assert all(1.9 * few < many for few, many in itertools.pairwise(sizes))
            continue
        distances = [stage.solver.distance for stage in program.stages]
        # 2G/λ for the first.
        assert distances[0] == pytest.approx(10.0)
        assert distances == sorted(distances, reverse=True)
        assert distances[-1] < distances[0] / 2
        assert (program.stages[0].smoothing is None) == (known is BOTH)
    assert len(make(replace(BOTH, distance=10.0), count=1).plan(task).stages) == 1


def test_restarts_begin_as_near_as_the_last_bound_says() -> None:
    known = replace(BOTH, distance=10.0, strength=0.2)
    first, second = ShuffleRestarts(known, count=2, rounds=9).plan(TASK).stages
    assert isinstance(first.solver, AcSa)
    assert isinstance(second.solver, AcSa)
    near = math.sqrt(2 * first.solver.excess() / 0.2)
    # The bound is made before the noise is calibrated, and nearly the same.
    assert second.solver.distance == pytest.approx(min(near, 10.0), rel=0.05)


def test_gd_is_the_theorem_s() -> None:
    task = Task.of(200, (0.0,) * 4, 1.0, 1e-6)
    program = ShuffleGd(replace(KINKS, lipschitz=3.0)).plan(task)
    (stage,) = program.stages
    rounds, noise = stage.mean.rounds, task.noise()
    assert rounds == math.ceil(noise**-2) < 200 * 4
    assert (
        ShuffleGd(KINKS).plan(replace(task, promise=replace(task.promise, epsilon=50.0))).rounds
        == 200 * 4
    )
    assert ShuffleGd(KINKS).plan(replace(task, n_users=10**4)).rounds == 1000
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


def test_dishonest_users_cost_noise_and_rounds() -> None:
    task = Task.of(200, (0.0,) * 4, 1.0, 1e-6)
    for name in ("agd", "smoothed", "gd", "sgd"):
        all_ = replace(RECIPES[name], rounds=None)
        half = replace(all_, honest_fraction=0.5)
        pair = [recipe.plan(task).rounds for recipe in (all_, half)]
        assert pair[1] < 0.95 * pair[0], name
        assert "batches of" in str(half.plan(task).facts)
    fixed = [replace(RECIPES["gd"], honest_fraction=share).plan(TASK) for share in (1.0, 0.25)]
    one, other = (program.stages[0].mean for program in fixed)
    assert other.noise_sd / one.noise_sd == pytest.approx(2.0, rel=0.02)


class Sloping:
    """A plane."""

    def value(self, theta: Array, X: Array, y: Array) -> Array:
        return np.full(len(X), theta[0])

    def gradient(self, theta: Array, X: Array, y: Array) -> Array:
        return np.tile([1.0, 0.0], (len(X), 1))


@pytest.mark.parametrize("name", ["sgd", "agd", "gd", "pan", "betting", "betting fresh"])
def test_steps_go_against_the_gradient(name: str) -> None:
    found = run(RECIPES[name], Sloping())
    assert found.theta[0] < -0.3
    if name != "betting" and name != "betting fresh":
        assert np.linalg.norm(found.history.points, axis=1).max() <= 2.0 + 1e-9


def excess(theta: Array, rows: Array) -> float:
    """The expected log-loss above that of the truth."""
    p, z = 1 / (1 + np.exp(-(rows @ TRUTH))), rows @ theta
    true = rows @ TRUTH
    return float(np.mean(np.logaddexp(0, z) - p * z - np.logaddexp(0, true) + p * true))


@pytest.mark.search(keep=2)
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
    recipe = replace(RECIPES[name], rounds=None)
    if name == "gd":
        recipe = ShuffleGd(SMOOTH, rounds=60)
    rows, y, users = people(3000, 2)
    errors = []
    for seed in range(2):
        options: dict[str, Any] = {"users": users, "epsilon": 4.0, "random_state": seed}
        options["n_users"] = 3000
        found = minimise(Logistic(), rows, y, [0.0, 0.0], solver=recipe, **options)
        errors.append(excess(found.theta, rows))
    assert np.mean(errors) < 0.4 * excess(np.zeros(2), rows)
    last = recipe.plan(Task.of(3000, (0.0, 0.0), 4.0, 1e-6)).stages[-1]
    if isinstance(last.solver, AcSa):
        # The bound by which rounds are chosen holds.
        changed = 1 / (2 * last.smoothing) if last.smoothing else 0.0
        assert np.mean(errors) < last.solver.excess() + changed


# -- whom to trust --


def test_one_phase_with_a_curator_is_enough_to_need_one() -> None:
    (shuffled,) = RECIPES["gd"].plan(TASK).stages
    (curated,) = Concentrated(KINKS).plan(TASK).stages
    program = RECIPES["gd strong"].plan(TASK)
    assert program.trust == "shuffle"
    for stages in ((shuffled, curated), (curated, shuffled), (curated, curated)):
        assert replace(program, stages=stages).trust == "central"
    assert replace(program, stages=(shuffled, shuffled)).trust == "shuffle"


TRUSTS: dict[Trust, str] = {
    "shuffle": "a shuffler that is trusted",
    "pan": "its internal state seen at most once",
}


@pytest.mark.search(keep=1)
@pytest.mark.parametrize("trust", TRUSTS)
def test_estimators_say_whom_they_trust(trust: Trust, tmp_path: Path) -> None:
    model = learn.LogisticRegression(
        trust=trust, epsilon=8.0, n_users=400, random_state=0, classes=[0, 1]
    )
    model.fit(X, Y.astype(int), users=USERS)
    assert model.guarantee_.epsilon() <= 8.0
    assert TRUSTS[trust] in str(model.guarantee_)
    assert "a solution within" not in str(model.guarantee_)
    assert model.n_iter_ == {"shuffle": 100, "pan": 10}[trust]
    assert model.history_.clip == 0.5
    assert model.score(X, Y.astype(int)) > 0.55
    again = load(model.save(tmp_path / "model.json"))
    assert again.get_params() == {**model.get_params(), "random_state": None}
    assert again.guarantee_ == model.guarantee_
    page = model.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert {"shuffle": "a trusted shuffler", "pan": "may be seen once"}[trust] in page
    assert learn.LogisticRegression().trust == "central"


def test_what_is_stated_makes_the_default() -> None:
    steps = Sgd(Constant(0.1), Ball(1.0))
    kinds: list[tuple[Trust, Any]] = [("shuffle", Shuffled), ("pan", PanPrivate)]
    for trust, kind in kinds:
        model = learn.LinearRegression(
            trust=trust,
            clip=0.25,
            rounds=4,
            algorithm=steps,
            epsilon=8.0,
            n_users=400,
            random_state=0,
        )
        model.fit(X, Y, users=USERS)
        recipe = model.asked().recipe
        assert recipe is not None
        program = recipe.plan(replace(TASK, start=(0.0,) * 3))
        stage: Any = program.stages[0]
        assert isinstance(stage.mean, kind)
        assert (stage.mean.clip, stage.mean.rounds, stage.solver) == (0.25, 4, steps)
        assert model.guarantee_.event == program.event
        assert model.n_iter_ == 4
    auto = learn.LinearRegression(trust="pan").asked().recipe
    assert auto is not None
    assert auto.plan(TASK).stages[0].solver == CoinBetting()


@pytest.mark.search(keep=4)
@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_an_algorithm_of_estimators(name: str, tmp_path: Path) -> None:
    trust = RECIPES[name].plan(TASK).trust
    model = learn.LinearRegression(algorithm=RECIPES[name], trust=trust, epsilon=8.0, n_users=400)
    model.fit(X, Y, users=USERS)
    program = RECIPES[name].plan(replace(TASK, start=(0.0,) * 3))
    assert model.guarantee_.event == program.event
    for fact in ("a roster of 400 users", "a solution within 2 of the start", TRUSTS[trust]):
        assert fact in str(model.guarantee_)
    again = load(model.save(tmp_path / "model.json"))
    assert again.get_params() == model.get_params()
    assert again.guarantee_ == model.guarantee_


def test_a_recipe_of_another_trust_is_refused_before_the_charge() -> None:
    pairs: list[tuple[Recipe, Trust, Trust]] = [
        (RECIPES["agd"], "central", "shuffle"),
        (RECIPES["agd"], "pan", "shuffle"),
        (RECIPES["pan"], "shuffle", "pan"),
        (Concentrated(KINKS), "shuffle", "central"),
        (UserLevelSgd(KINKS, rounds=2), "pan", "central"),
    ]
    with dg.budget(8.0, 1e-6) as budget:
        for recipe, stated, needed in pairs:
            model = learn.LinearRegression(algorithm=recipe, trust=stated, epsilon=8.0, n_users=400)
            kind = type(recipe).__name__
            with pytest.raises(ParameterError, match=f"trust must be '{needed}' with {kind}, not"):
                model.fit(X, Y, users=USERS)
        assert budget.guarantee is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"trust": "nobody"}, "trust must be one of"),
        ({"unit": Record()}, r"unit must be User\(\) with trust='shuffle'"),
        ({"unit": Element()}, r"unit must be User\(\) with trust='shuffle'"),
        ({"unit": User(max_elements=2)}, r"unit must be User\(\) with trust='shuffle'"),
        ({"clip": "auto"}, "clip must be a number with trust='shuffle', not 'auto'"),
        ({"sampling_rate": 0.5}, "sampling_rate must be left out with trust='shuffle'"),
        ({"sampling": "users"}, "sampling must be left out with trust='shuffle'"),
        ({"elements_per_user": 2.0}, "elements_per_user must be left out with trust='shuffle'"),
        ({"intervals": 0.2}, "intervals must be left out with trust='shuffle'"),
        ({"exact": True}, "exact must be left out with trust='shuffle'"),
        ({"tune": {"l2": [0.0, 0.1]}}, "trust must be 'central' with tune"),
        (
            {"trust": "central", "tune": {"trust": ["pan", "shuffle"]}},
            "must be 'central' with tune",
        ),
        ({"algorithm": RECIPES["gd"], "clip": 1.0}, "clip must be left out with a recipe"),
        ({"algorithm": RECIPES["gd"], "rounds": 3}, "rounds must be left out with a recipe"),
    ],
)
def test_wrong_trust_says_so(wrong: dict[str, Any], message: str) -> None:
    model = learn.LinearRegression(**{"trust": "shuffle", **wrong})
    with pytest.raises(ParameterError, match=message) as found:
        model.fit(X, Y, users=USERS)
    assert "\n" not in str(found.value)


def test_wrong_recipes_say_so() -> None:
    odd: Any = "odd"
    for make, message in (
        (lambda: ShuffleAgd(KINKS), "smoothness must be finite for ShuffleAgd, not inf"),
        (lambda: ShuffleRestarts(SMOOTH), "strength must be above 0 for ShuffleRestarts"),
        (lambda: ShuffleGd(SMOOTH, count=2), "strength must be above 0 for 2 phases"),
        (lambda: PanPrivateAgd(SMOOTH, count=2), "strength must be above 0 for 2 phases"),
        (lambda: ShuffleSgd(rounds=0), "rounds must be a whole number"),
        (lambda: PanPrivateAgd(rounds=0), "rounds must be a whole number"),
        (lambda: PanPrivateConcentrated(rounds=0), "rounds must be a whole number"),
        (lambda: ShuffleRestarts(count=0), "count must be a whole number"),
        (lambda: ShuffleSgd(honest_fraction=0.0), "honest_fraction must be above 0"),
        (lambda: ShuffleGd(honest_fraction=1.5), "honest_fraction must lie in"),
        (lambda: ShuffleAgd(protocol=odd), "protocol must be one of"),
        (lambda: ShuffleConcentrated(interaction=odd), "interaction must be one of"),
        (lambda: ShuffleConcentrated(share=0.0), "share must be"),
        (lambda: ShuffleSgd(rounds=401).plan(TASK), "rounds must be at most n_users = 400"),
        (lambda: PanPrivateAgd(rounds=401).plan(TASK), "rounds must be at most n_users = 400"),
        (lambda: ShuffleRestarts(BOTH, count=401).plan(TASK), "count must leave at least one"),
        (lambda: ShuffleGd(BOTH, count=9).plan(TASK), "count must leave at least one"),
    ):
        with pytest.raises(ParameterError, match=message) as found:
            make()
        assert "\n" not in str(found.value)


def test_few_users_are_enough_for_some_noise() -> None:
    few = Task.of(3, (0.0,) * 5, 0.5, 1e-6)
    for name in RECIPES:
        if name not in PHASED:
            recipe = replace(RECIPES[name], rounds=2)
            assert recipe.plan(few).event.epsilon(1e-6) <= 0.5
    for recipe in (ShuffleRestarts(BOTH), PanPrivateAgd(BOTH), ShuffleGd(BOTH), ShuffleSgd()):
        assert recipe.plan(few).event.epsilon(1e-6) <= 0.5


def test_every_recipe_has_one_name() -> None:
    assert {type(recipe).__name__ for recipe in RECIPES.values()} <= set(recipes.RECIPES)
    made = [getattr(recipes, name) for name in recipes.__all__]
    planned = [value for value in made if isinstance(value, type) and hasattr(value, "plan")]
    assert sorted(kind.__name__ for kind in planned) == sorted([*recipes.RECIPES, "Recipe"])
