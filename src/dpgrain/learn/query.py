"""Queries for fits of models: public facts of the rows, and noise of all rounds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain.accounting import Event
from dpgrain.errors import ParameterError
from dpgrain.gradients.linear import LinearGradients
from dpgrain.gradients.tiles import LinearBlocks
from dpgrain.inputs.blocks import LabelledRows
from dpgrain.inputs.callbacks import silent
from dpgrain.inputs.guarantees import array_guarantee
from dpgrain.inputs.population import Population, check_n_users
from dpgrain.learn.bounding import bounded
from dpgrain.learn.central import plan_fit
from dpgrain.learn.fit_config import Ask
from dpgrain.learn.fit_data import FitData, FitForm, FitPlan, FitResult, UnreadRows
from dpgrain.learn.interpretation import warn_about_bias
from dpgrain.learn.program import Program, Task
from dpgrain.learn.raw_inputs import RawInputs, count_rows
from dpgrain.learn.reading import record_blocks, ridge_strengths
from dpgrain.learn.rounds import check_program, population_index, run_program, skip_lot
from dpgrain.noise import RandomState
from dpgrain.optimize import MarginLoss
from dpgrain.publishing import Charge, Plan, Promise, Query, annotate_interrupt
from dpgrain.publishing.facts import Fact
from dpgrain.units import Unit

if TYPE_CHECKING:
    from dpgrain.learn.model import LinearModel

    Model: TypeAlias = LinearModel
else:
    Model: TypeAlias = Any


@dataclass(frozen=True, eq=False)
class LocalRows:
    """Local rows of a fit, passed or in a table; created by :meth:`of`."""

    model: Model
    inputs: RawInputs
    unit: Unit
    form: FitForm
    places: bool = False

    @staticmethod
    def of(model: Model, inputs: RawInputs, unit: Unit, *, places: bool = False) -> LocalRows:
        """Check the form of rows without reading them; the model learns its features' names."""
        X, targets = model.read(*inputs.none(model.n_features))
        inputs.check(unit, places=places)
        form = FitForm(targets, int(X.shape[1]), model.loss, inputs.users)
        return LocalRows(model, inputs, unit, form, places)

    @property
    def users(self) -> Any:
        """Labels of users, which name them in a promise."""
        return self.inputs.users

    @property
    def elements(self) -> Any:
        """Labels of elements, which name them in a promise."""
        return self.inputs.elements

    @contextmanager
    def opened(self, charge: Charge) -> Iterator[FitData]:
        """Provide the rows as numbers in blocks."""
        result = self.inputs.read(charge)

        def read() -> FitData:
            with silent():
                # Warnings about the form were issued before the charge.
                X, targets = self.model.read(result.X, result.y)
            unread = LabelledRows.of(
                count_rows(X), result.users, result.elements, self.unit, places=self.places
            )
            return FitData(X, targets, unread.arranged(), result.users, self.model.loss)

        yield charge.read(read)


@dataclass(frozen=True, eq=False, repr=False)
class FitQuery(Query["LinearModel"]):
    """Query for a fit, created by :meth:`LinearModel.query`.

    ``parameters`` are the model's parameters at that time, and ``ask`` the same after validation.
    """

    promise: Promise
    model: Model
    parameters: Mapping[str, Any]
    ask: Ask
    rows: UnreadRows
    lot: int | None = None
    random_state: RandomState = None

    def __post_init__(self) -> None:
        self.check_unit(self.ask.promise.unit)

    @cached_property
    def _planned(self) -> FitPlan:
        ask, form = with_promise(self.ask, self.promise), self.rows.form
        return plan_fit(ask, form) if ask.recipe is None else plan_recipe(ask, form, self.lot)

    @property
    def plan(self) -> Plan:
        """Noise of the whole release of the fit."""
        check_unchanged(self.model, self.parameters)
        guarantee = array_guarantee(
            self.promise,
            self._planned.event,
            self._planned.facts,
            private=True,
            users=self.rows.users,
            elements=self.rows.elements if self.ask.recipe is None else None,
        )
        return Plan(guarantee, self.ask.n_users, care=self._planned.care)

    def run(self, charge: Charge) -> Model:
        """Fit the model."""
        with annotate_interrupt("the fit"), self.rows.opened(charge) as data:
            fitted = self._planned.run(data, charge)
        used = {**self.parameters, **share_parameters(self.promise)}
        model = self.model.adopt(fitted, charge.guarantee, parameters=used)
        warn_about_bias(model)
        return model


def with_promise(ask: Ask, promise: Promise) -> Ask:
    """Return the request with a promise, possibly determined by a share of a budget."""
    # A plan does not depend on the budget.
    own = Promise(promise.unit, promise.epsilon, promise.delta, promise.relation)
    return replace(ask, promise=own)


def share_parameters(promise: Promise) -> dict[str, Any]:
    """Return the parameters determined by a share of a budget; none if ε was stated."""
    if promise.share is None:
        return {}
    return {"share": None, "epsilon": promise.epsilon, "delta": promise.delta}


def copy_parameters(model: Model) -> dict[str, Any]:
    """Return a copy of a model's current parameters, to detect later changes."""
    return {name: _copy(value) for name, value in model.get_params(deep=False).items()}


def check_unchanged(model: Model, parameters: Mapping[str, Any]) -> None:
    """Reject a fit if the model's parameters or its process have changed."""
    model.check_process()
    now = model.get_params(deep=False)
    for name, value in parameters.items():
        if not _is_same(now[name], value):
            raise ParameterError(
                f"{name} must not change after a fit was requested; request it again.",
                name=name,
            )


def _copy(value: Any) -> Any:
    """Return a copy of a parameter that later changes by the caller do not affect."""
    if isinstance(value, dict):
        return {key: _copy(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_copy(one) for one in value]
    return value.copy() if isinstance(value, np.ndarray) else value


def _is_same(now: Any, then: Any) -> bool:
    """Return True if a parameter is unchanged; for other objects, if it is identical."""
    if now is then or type(now) is not type(then):
        return now is then
    if isinstance(then, np.ndarray):
        return np.array_equal(now, then)
    if isinstance(then, dict):
        return now.keys() == then.keys() and all(_is_same(now[key], then[key]) for key in then)
    if isinstance(then, list | tuple):
        return len(now) == len(then) and all(map(_is_same, now, then))
    return isinstance(then, int | float | str) and now == then


@dataclass(frozen=True, eq=False)
class RecipePlan:
    """Plan of a fit by a recipe; ``care`` are warnings based on public numbers."""

    ask: Ask
    program: Program
    n_users: int
    public: tuple[Fact, ...] = ()
    care: tuple[str, ...] = ()

    @property
    def event(self) -> Event:
        """Accounting event of the whole fit."""
        return self.program.event

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Public facts."""
        roster = Population(self.n_users).facts
        return (*roster, *self.public, *self.program.facts, *self.ask.facts)

    def run(self, data: FitData, charge: Charge) -> FitResult:
        """Run the whole release within its charge."""
        source = charge.lend(self.event)
        skip_lot(self.ask.random_state, source)
        ask, rows, classes = self.ask, data.rows, data.targets.classes
        loss, kept = data.loss(classes), data.rows.kept
        X = data.X if ask.feature_bound is None else bounded(data.X, ask.feature_bound)
        X, y = X[kept], data.targets.values[kept]
        there = len(rows.owners)
        blocks = LinearBlocks.arrange(X, y, rows.blocks, intercept=ask.fit_intercept, blocks=there)

        def fast_sums(theta: NDArray[np.float64]) -> LinearGradients:
            return LinearGradients(blocks, loss, theta)

        ridge = ridge_strengths(ask, loss.outputs, data.X.shape[1])
        theta, history = run_program(
            self.program,
            record_blocks(X, y, rows, intercept=ask.fit_intercept),
            population_index(self.program, data.users, data.rows),
            loss,
            np.zeros(len(ridge)),
            source,
            ridge=ridge,
            fast_sums=fast_sums,
            progress=ask.progress,
        )
        rounds = len(history.points)
        return FitResult(theta, loss.outputs, history, rounds, self.n_users, classes=classes)


def plan_recipe(ask: Ask, form: FitForm, lot: int | None) -> RecipePlan:
    """Return the program of the recipe, from public numbers.

    ``lot`` is a public random number for recipes that return a random iterate.
    """
    n = check_n_users(ask.n_users, ask.how)
    if form.targets.labels is not None:
        raise ParameterError(f"classes is required with {ask.how}; pass all labels as classes=[…].")
    loss = form.loss(form.targets.classes)
    recipe = ask.recipe_for(loss.lipschitz)
    assert recipe is not None  # noqa: S101 - for the type checker
    start = np.zeros(loss.outputs * (form.width + ask.fit_intercept))
    program = recipe.plan(Task(n, tuple(start), ask.promise, lot=lot))
    if program.trust != ask.trust:
        raise ParameterError(
            f"trust must be {program.trust!r} with {type(recipe).__name__}, "
            f"not {_validate.describe(ask.trust)}."
        )
    if recipe is not ask.algorithm:
        # No public knowledge was stated, and nothing depends on it.
        program = replace(program, known=None)
    check_program(program, form.users, loss)
    return RecipePlan(ask, program, n, form.targets.public, _cautions(ask, loss))


def _cautions(ask: Ask, loss: MarginLoss) -> tuple[str, ...]:
    """Return warnings based on public numbers only."""
    clip, half = ask.clip, loss.lipschitz / 2
    if not isinstance(clip, float | int) or math.isinf(half) or clip > half:
        return ()
    return (
        f"clip = {clip:g} is at most half of the largest slope of the loss, {loss.lipschitz:g}: only "
        "the direction of the gradients of users with few records matters, which biases coefficients "
        "for any number of users. Omit clip to choose it privately.",
    )
