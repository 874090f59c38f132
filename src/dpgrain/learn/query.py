"""Queries for fits of models: public facts of the rows, and noise of all rounds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from dpgrain import _validate
from dpgrain._lazy_import import lazy_import
from dpgrain.accounting import Event
from dpgrain.errors import CareWarning, ParameterError
from dpgrain.gradients.linear import LinearGradients
from dpgrain.gradients.tiles import LinearBlocks
from dpgrain.inputs.guarantees import array_guarantee
from dpgrain.inputs.population import Population, check_n_users
from dpgrain.inputs.record_limit import require_users
from dpgrain.learn.bounding import bounded
from dpgrain.learn.central import CentralFit
from dpgrain.learn.classes import Targets
from dpgrain.learn.fit_config import FitConfig
from dpgrain.learn.fit_data import FitData, FitResult
from dpgrain.learn.program import Program, Task
from dpgrain.learn.rounds import check_program, draw_lot, population_index, run_program, skip_lot
from dpgrain.learn.rows import FitRows, record_blocks, ridge_strengths
from dpgrain.noise import RandomState
from dpgrain.publishing import Charge, Plan, Promise, Query, annotate_interrupt
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.release_plan import compose
from dpgrain.words.fit_text import clipping_bias, dropped_rows
from dpgrain.words.notes import Note

if TYPE_CHECKING:
    from dpgrain.learn import column_rows, distributed
    from dpgrain.learn.model import LinearModel
else:
    distributed = lazy_import("dpgrain.learn.distributed")


@dataclass(frozen=True, eq=False, repr=False)
class FitQuery(Query["LinearModel"]):
    """Query for a fit, created by :meth:`LinearModel.query`."""

    promise: Promise
    config: FitConfig
    rows: FitRows
    targets: Targets  # of no rows, public
    width: int  # public number of features
    lot: int | None = None  # public random number of recipes that return a random iterate

    @classmethod
    def of(cls, config: FitConfig, promise: Promise, rows: FitRows, **more: Any) -> Self:
        """Check the form of rows, and return their query; nothing is read."""
        model, recipe = config.model(), config.recipe is not None
        if rows.distributed:
            distributed.cluster_config(config)
        X, targets = model.read(*rows.empty(config.n_features, labels=config.labels))
        rows.check(promise.unit, places=recipe)
        if rows.distributed:
            distributed.check_targets(model, targets)
        if config.weights == "records":
            require_users(promise.unit)
        if recipe:
            more["lot"] = draw_lot(config.random_state)
        return cls(promise, config, rows, targets, int(X.shape[1]), **more)

    @property
    def random_state(self) -> RandomState:
        """Seed of the noise."""
        return self.config.random_state

    @cached_property
    def noise(self) -> CentralFit | RecipeFit:
        """Noise of the whole fit."""
        if self.config.recipe is not None:
            return RecipeFit.create(self)
        config = distributed.cluster_config(self.config) if self.rows.distributed else self.config
        fit = CentralFit.calibrate(config, self.promise, self.targets, self.width)
        fit.check_loss(self.targets.classes)
        return fit

    @property
    def plan(self) -> Plan:
        """Noise of the whole release of the fit."""
        noise = self.noise
        elements = self.rows.elements if self.config.recipe is None else None
        return self.plan_of(noise.parts, noise.facts, elements, noise.care)

    def plan_of(
        self,
        parts: Mapping[str, Event],
        facts: Sequence[Fact],
        elements: Any,
        care: tuple[Note, ...] = (),
    ) -> Plan:
        """Return the plan with the guarantee for these rows."""
        guarantee = array_guarantee(
            self.promise,
            compose(parts),
            facts,
            users=self.rows.users,
            elements=elements,
            rows=self.rows.origin,
        )
        return Plan(guarantee, self.config.n_users, care=care, parts=parts)

    def run(self, charge: Charge) -> LinearModel:
        """Return a new model with the published results of the fit."""
        model = self.config.model()
        with annotate_interrupt("the fit"), self.opened(model, charge) as data:
            result = self.noise.run(data, charge, self.config.verbose or None)
        return self.fitted(model, result, charge.guarantee)

    @contextmanager
    def opened(self, model: LinearModel, charge: Charge) -> Iterator[Any]:
        """Provide the rows as numbers in blocks; the model learns the names of their features."""
        config, rows, unit = self.config, self.rows, self.promise.unit
        if rows.distributed:
            columns = cast("column_rows.ColumnRows", rows)
            model.read(*rows.empty(None, labels=config.labels))
            rule = model._rule(self.targets.classes)
            with distributed.opened(columns, config, rule, unit, self.targets, charge) as data:
                yield data
            return
        loaded = rows.read(charge, labels=config.labels, named=config.trust == "pan")
        places = config.recipe is not None
        classes = self.targets.classes
        yield charge.read(
            lambda: FitData.create(model, loaded, unit, classes=classes, places=places)
        )

    def fitted(
        self,
        model: LinearModel,
        result: FitResult,
        guarantee: Guarantee,
        tuned: dict[str, Any] | None = None,
    ) -> LinearModel:
        """Return a model with published results, and the ε and δ of a share of a budget."""
        promise, used = self.promise, self.config.parameters
        if promise.share is not None:
            used |= {"share": None, "epsilon": promise.epsilon, "delta": promise.delta}
        if self.rows.columns is not None:
            model.encoding_, model.target_ = self.rows.columns
            public = (*guarantee.public, *model.encoding_.facts)
            guarantee = replace(guarantee, public=public)
        model.adopt(result, guarantee, tuned=tuned, parameters=used)
        for text in (*clipping_bias(model), *dropped_rows(model)):
            warnings.warn(text, CareWarning, stacklevel=2)
        return model


@dataclass(frozen=True, eq=False)
class RecipeFit:
    """Noise of a fit by a recipe; ``targets`` and ``width`` are those of no rows, which are public."""

    config: FitConfig
    program: Program
    targets: Targets
    width: int

    @staticmethod
    def create(query: FitQuery) -> RecipeFit:
        """Return the program of the recipe, from public numbers."""
        config, targets = query.config, query.targets
        n = check_n_users(config.n_users, config.how)
        if targets.labels is not None:
            raise ParameterError(
                f"classes is required with {config.how}; pass all labels as classes=[…]."
            )
        loss = config.loss(targets.classes)
        recipe = config.recipe_for(loss.lipschitz)
        assert recipe is not None  # noqa: S101 - for the type checker
        start = (0.0,) * (loss.outputs * (query.width + config.fit_intercept))
        program = recipe.plan(Task(n, start, query.promise, lot=query.lot))
        if program.trust != config.trust:
            raise ParameterError(
                f"trust must be {program.trust!r} with {type(recipe).__name__}, "
                f"not {_validate.describe(config.trust)}."
            )
        if recipe is not config.algorithm:
            # No public knowledge was stated, and nothing depends on it.
            program = replace(program, known=None)
        check_program(program, query.rows.users, loss)
        return RecipeFit(config, program, targets, query.width)

    @property
    def event(self) -> Event:
        """Accounting event of the whole fit."""
        return self.program.event

    @property
    def parts(self) -> dict[str, Event]:
        """The event, by name."""
        return {"rounds": self.event}

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Public facts."""
        roster = Population(self.config.n_users).facts
        return (*roster, *self.targets.public, *self.program.facts, *self.config.facts)

    @property
    def care(self) -> tuple[Note, ...]:
        """Warnings based on public numbers only."""
        loss = self.config.loss(self.targets.classes)
        start = self.program.care(loss.outputs * (self.width + self.config.fit_intercept))
        clip, half = self.config.clip, loss.lipschitz / 2
        if not isinstance(clip, float | int) or math.isinf(half) or clip > half:
            return start
        return (*start, ("steep-slope", clip, loss.lipschitz))

    def run(self, data: FitData, charge: Charge, progress: bool | None = None) -> FitResult:
        """Run the whole release within its charge."""
        source = charge.rounds(self.event)
        config, rows, classes = self.config, data.rows, data.targets.classes
        skip_lot(config.random_state, source)
        loss, indices = config.loss(classes), data.rows.indices
        X = data.X if config.feature_bound is None else bounded(data.X, config.feature_bound)
        X, y = X[indices], data.targets.values[indices]
        count = len(rows.owners)
        blocks = LinearBlocks.arrange(
            X, y, rows.blocks, intercept=config.fit_intercept, blocks=count
        )
        ridge = ridge_strengths(config, loss.outputs, data.X.shape[1])
        theta, history = run_program(
            self.program,
            record_blocks(X, y, rows, intercept=config.fit_intercept),
            population_index(self.program, data.users, data.rows),
            loss,
            np.zeros(len(ridge)),
            source,
            ridge=ridge,
            fast_sums=partial(LinearGradients, blocks, loss),
            progress=progress,
        )
        rounds = len(history.points)
        return FitResult(theta, loss.outputs, history, rounds, config.n_users, classes=classes)
