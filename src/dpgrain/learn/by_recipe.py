"""Fits by a recipe: a program of means and solvers, with or without a curator."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain.accounting import Event
from dpgrain.errors import ParameterError
from dpgrain.gradients.linear import LinearGradients
from dpgrain.gradients.tiles import LinearBlocks
from dpgrain.inputs.population import Population, check_n_users
from dpgrain.learn.ask import Ask
from dpgrain.learn.bounding import bounded
from dpgrain.learn.fitted import Data, Fitted, Form
from dpgrain.learn.program import Program, Task
from dpgrain.learn.reading import by_record, ridge_of
from dpgrain.learn.rounds import after_lot, check_program, follow, roster_index
from dpgrain.optimize import MarginLoss
from dpgrain.publishing import Charge
from dpgrain.publishing.facts import Fact


@dataclass(frozen=True, eq=False)
class Plan:
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


def plan(ask: Ask, form: Form, lot: int | None) -> Plan:
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
    return Plan(ask, program, n, form.targets.public, _cautions(ask, loss))


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


def run(plan: Plan, data: Data, charge: Charge) -> Fitted:
    """Run the whole release within its charge."""
    source = charge.lend(plan.event)
    after_lot(plan.ask.random_state, source)
    ask, rows, classes = plan.ask, data.rows, data.targets.classes
    loss, kept = data.loss(classes), data.rows.kept
    X = data.X if ask.feature_bound is None else bounded(data.X, ask.feature_bound)
    X, y = X[kept], data.targets.values[kept]
    there = len(rows.owners)
    blocks = LinearBlocks.arrange(X, y, rows.blocks, intercept=ask.fit_intercept, blocks=there)

    def quick(theta: NDArray[np.float64]) -> LinearGradients:
        return LinearGradients(blocks, loss, theta)

    ridge = ridge_of(ask, loss.outputs, data.X.shape[1])
    theta, history = follow(
        plan.program,
        by_record(X, y, rows, intercept=ask.fit_intercept),
        roster_index(plan.program, data.users, data.rows),
        loss,
        np.zeros(len(ridge)),
        source,
        ridge=ridge,
        quick=quick,
        progress=ask.progress,
    )
    rounds = len(history.points)
    return Fitted(theta, loss.outputs, history, rounds, plan.n_users, classes=classes)
