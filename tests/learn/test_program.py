"""A program satisfies its guarantee, with another release or without."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.papers.recipes import programs
from tests.refusals import refuses

import dpgrain as dg
from dpgrain import papers
from dpgrain.errors import CareWarning
from dpgrain.learn import LogisticRegression, minimise
from dpgrain.learn.program import start_warning
from dpgrain.means.shuffled import Shuffled
from dpgrain.optimize import Squared
from dpgrain.papers import PanPrivate, Recipe, Task
from dpgrain.publishing import Promise
from dpgrain.units import Relation
from dpgrain.words.notes import note_text


@pytest.mark.parametrize("name", programs.RECIPES)
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_a_program_keeps_the_promise(name: str, relation: Relation) -> None:
    recipe = programs.RECIPES[name]
    program = recipe.plan(
        replace(programs.TASK, promise=replace(programs.TASK.promise, relation=relation))
    )
    assert isinstance(recipe, Recipe)
    assert 0.95 * 8.0 < program.event.epsilon(1e-6, relation=relation) <= 8.0
    assert program.event.level == "user"
    assert program.trust == ("pan" if "pan" in name else "shuffle")
    assert program.uses_index == (name not in programs.FULL or name in programs.PHASED)
    phases = program.localisation.phases()
    assert len(phases) == len(program.stages) > (name in programs.PHASED)
    assert [place for phase in phases for place in phase.users] == list(range(400))
    for phase, stage in zip(phases, program.stages, strict=True):
        mean = stage.mean
        assert mean.event.epsilon(1e-6, relation=relation) <= 8.0
        assert mean.n_users == len(phase.users)
        assert isinstance(mean, PanPrivate if "pan" in name else Shuffled)
        if isinstance(mean, Shuffled):
            # All users in each round, or separate users in each round, for the cost of one.
            assert mean.protocol.rounds == (mean.rounds if name in programs.FULL else 1)
            assert mean.batch == (len(phase.users) // (1 if name in programs.FULL else mean.rounds))


@pytest.mark.parametrize("name", programs.ONE_EACH)
def test_other_releases_leave_less_budget(name: str) -> None:
    beside = dg.accounting.Gaussian(1.0, dg.accounting.Contribution("user"))
    recipe = replace(programs.RECIPES[name], rounds=3)
    program, alone = recipe.plan(replace(programs.TASK, beside=beside)), recipe.plan(programs.TASK)
    for stage, free in zip(program.stages, alone.stages, strict=True):
        assert (stage.mean.event + beside).epsilon(1e-6) <= 8.0
        assert stage.mean.noise_sd > free.mean.noise_sd


@pytest.mark.parametrize("make", [papers.ShuffleSgd, papers.PanPrivateAgd, papers.Concentrated])
def test_known_quantities_are_reported_as_known(make: Any) -> None:
    with refuses("known", "public bounds"):
        make(10)


def test_dishonest_users_cost_noise_and_rounds() -> None:
    task = Task.of(200, (0.0,) * 4, 1.0, 1e-6)
    for name in ("agd", "smoothed", "gd", "sgd"):
        all_ = replace(programs.RECIPES[name], rounds=None)
        half = replace(all_, honest_fraction=0.5)
        pair = [recipe.plan(task).rounds for recipe in (all_, half)]
        assert pair[1] < 0.95 * pair[0], name
        assert any(str(fact).startswith("batches of") for fact in half.plan(task).facts)
    fixed = [
        replace(programs.RECIPES["gd"], honest_fraction=share).plan(programs.TASK)
        for share in (1.0, 0.25)
    ]
    one, other = (program.stages[0].mean for program in fixed)
    assert other.noise_sd / one.noise_sd == pytest.approx(2.0, rel=0.02)


def test_a_task_is_for_whole_users() -> None:
    promise = Promise(dg.Record(), 1.0, 1e-6, "zero_out")
    with refuses("unit", "protect whole users"):
        Task(1000, (0.0,), promise)


@pytest.mark.parametrize("n", [1000, 100_000])
def test_plans_dominated_by_noise_warn_before_the_charge(n: int) -> None:
    recipe = papers.WinsorizedErm(papers.Known(smoothness=1.0, records=20))
    rows: dict[str, Any] = {"users": range(n), "n_users": n, "unit": dg.User(), "epsilon": 1.0}
    X = np.zeros((n, 10))
    query = minimise.query(Squared(), X, X[:, 0], [0.0] * 10, solver=recipe, **rows)
    model = LogisticRegression(algorithm=recipe, classes=[0, 1], n_users=n, delta=1e-6)
    for plan in (query.plan, model.query(X, X[:, 0], users=range(n)).plan):
        found = [note for note in plan.care if note[0] == "start-of-recipe"]
        assert len(found) == (n == 1000)


@pytest.mark.parametrize("n", [20, 200])
def test_default_fits_dominated_by_noise_warn_before_the_charge(n: int) -> None:
    X, y = np.zeros((n, 10)), np.arange(n) % 2
    model = LogisticRegression(classes=[0, 1], n_users=n, delta=1e-6, random_state=0)
    with dg.budget(2.0, 1e-4) as budget, warnings.catch_warnings():
        warnings.simplefilter("error", CareWarning)
        with pytest.raises(CareWarning, match="not improve") if n == 20 else nullcontext():
            model.fit(X, y, users=range(n))
    assert (budget.left == 1) == (n == 20)


def test_isotropic_records_have_mean_gradient_one_over_root() -> None:
    rng, width = np.random.default_rng(0), 10
    X = rng.normal(size=(20_000, width))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    # The signs that agree most with one direction.
    mean = (X * np.sign(X[:, :1])).mean(axis=0)
    assert 0.7 < np.linalg.norm(mean) * np.sqrt(width) <= 1
    assert not start_warning("start", 0.09, width, 1.0, 1.0)
    (note,) = start_warning("start", 0.11, width, 1.0, 1.0)
    assert "norm 0.35," in note_text(note)
