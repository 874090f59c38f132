"""Queries for fits of models: public facts of the rows, and noise of all rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dpgrain.errors import ParameterError
from dpgrain.inputs.blocks import LabelledRows
from dpgrain.inputs.callbacks import silent
from dpgrain.inputs.guarantees import array_guarantee
from dpgrain.learn import by_recipe, central
from dpgrain.learn.ask import Ask
from dpgrain.learn.fitted import Data, Form, Unopened, Way
from dpgrain.learn.fitted import Planned as PlannedFit
from dpgrain.learn.given import Given, count_of
from dpgrain.learn.meaning import warn_of
from dpgrain.noise import RandomState
from dpgrain.publishing import Charge, Planned, Promise, Query, annotate_interrupt
from dpgrain.units import Unit

if TYPE_CHECKING:
    from dpgrain.learn.model import LinearModel

    Model: TypeAlias = LinearModel
else:
    Model: TypeAlias = Any


@dataclass(frozen=True, eq=False)
class RowsHere:
    """Local rows of a fit, passed or in a table; created by :meth:`of`."""

    model: Model
    given: Given
    unit: Unit
    form: Form
    places: bool = False

    @staticmethod
    def of(model: Model, given: Given, unit: Unit, *, places: bool = False) -> RowsHere:
        """Check the form of rows without reading them; the model learns its features' names."""
        X, targets = model.read(*given.none(model.n_features))
        given.check(unit, places=places)
        form = Form(targets, int(X.shape[1]), model.loss, given.users)
        return RowsHere(model, given, unit, form, places)

    @property
    def users(self) -> Any:
        """Labels of users, which name them in a promise."""
        return self.given.users

    @property
    def elements(self) -> Any:
        """Labels of elements, which name them in a promise."""
        return self.given.elements

    @contextmanager
    def opened(self, charge: Charge) -> Iterator[Data]:
        """Provide the rows as numbers in blocks."""
        result = self.given.read(charge)

        def read() -> Data:
            with silent():
                # Warnings about the form were issued before the charge.
                X, targets = self.model.read(result.X, result.y)
            whose = LabelledRows.of(
                count_of(X), result.users, result.elements, self.unit, places=self.places
            )
            return Data(X, targets, whose.arranged(), result.users, self.model.loss)

        yield charge.read(read)


@dataclass(frozen=True, eq=False, repr=False)
class FitQuery(Query["LinearModel"]):
    """Query for a fit, created by :meth:`LinearModel.query`.

    ``stated`` are the model's parameters at that time, and ``asked`` the same after validation.
    """

    promise: Promise
    model: Model
    stated: Mapping[str, Any]
    asked: Ask
    rows: Unopened
    lot: int | None = None
    random_state: RandomState = None

    def __post_init__(self) -> None:
        self.check_unit(self.asked.promise.unit)

    @cached_property
    def _way(self) -> Way:
        way: Way = central if self.asked.recipe is None else by_recipe
        return way

    @cached_property
    def _planned(self) -> PlannedFit:
        return self._way.plan(with_promise(self.asked, self.promise), self.rows.form, self.lot)

    @property
    def plan(self) -> Planned:
        """Noise of the whole release of the fit."""
        check_same(self.model, self.stated)
        guarantee = array_guarantee(
            self.promise,
            self._planned.event,
            self._planned.facts,
            private=True,
            users=self.rows.users,
            elements=self.rows.elements if self.asked.recipe is None else None,
        )
        return Planned(guarantee, self.asked.n_users, care=self._planned.care)

    def run(self, charge: Charge) -> Model:
        """Fit the model."""
        with annotate_interrupt("the fit"), self.rows.opened(charge) as data:
            fitted = self._way.run(self._planned, data, charge)
        used = {**self.stated, **taken(self.promise)}
        model = self.model.adopt(fitted, charge.guarantee, parameters=used)
        warn_of(model)
        return model


def with_promise(ask: Ask, promise: Promise) -> Ask:
    """Return the request with a promise, possibly determined by a share of a budget."""
    # A plan does not depend on the budget.
    return ask.under(Promise(promise.unit, promise.epsilon, promise.delta, promise.relation))


def taken(promise: Promise) -> dict[str, Any]:
    """Return the parameters determined by a share of a budget; none if ε was stated."""
    if promise.share is None:
        return {}
    return {"share": None, "epsilon": promise.epsilon, "delta": promise.delta}


def stated_of(model: Model) -> dict[str, Any]:
    """Return a copy of a model's current parameters, to detect later changes."""
    return {name: _kept(value) for name, value in model.get_params(deep=False).items()}


def check_same(model: Model, stated: Mapping[str, Any]) -> None:
    """Reject a fit if the model's parameters or its process have changed."""
    model.check_process()
    now = model.get_params(deep=False)
    for name, value in stated.items():
        if not _is_same(now[name], value):
            raise ParameterError(
                f"{name} must not change after a fit was requested; request it again.",
                name=name,
            )


def _kept(value: Any) -> Any:
    """Return a copy of a parameter that later changes by the caller do not affect."""
    if isinstance(value, dict):
        return {key: _kept(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_kept(one) for one in value]
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
