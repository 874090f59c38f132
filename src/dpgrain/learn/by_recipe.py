"""Fits by a recipe: a program of means, solvers and phases, or a fit without a curator."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain.accounting import Event
from dpgrain.arrays.roster import Roster, check_stated
from dpgrain.errors import ParameterError
from dpgrain.gradients.linear import LinearGradients
from dpgrain.gradients.tiles import LinearBlocks
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
    """Plan of a fit by a recipe.

    Args:
        ask: what is asked for.
        program: the recipe's, for the task.
        n_users: the size of the roster.
        public: what is public of the targets, in words.
        care: what will probably not come as it is asked for, in sentences.
    """

    ask: Ask
    program: Program
    n_users: int
    public: tuple[str, ...] = ()
    care: tuple[str, ...] = ()

    @property
    def event(self) -> Event:
        """All of it, for the accountant."""
        return self.program.event

    @property
    def facts(self) -> tuple[Fact | str, ...]:
        """Public facts, in words."""
        roster = Roster(self.n_users).facts
        return (*roster, *self.public, *self.program.facts, *self.ask.facts)


def plan(ask: Ask, form: Form, lot: int | None) -> Plan:
    """The program of the recipe, from public numbers.

    Args:
        ask: what is asked for.
        form: what is public of the rows.
        lot: a public random number, for recipes that return a random iterate.

    Raises:
        ParameterError: if the recipe does not fit what is asked for, or there are too few users.
    """
    n = check_stated(ask.n_users, ask.how)
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
            f"not {_validate.said(ask.trust)}."
        )
    if recipe is not ask.algorithm:
        # Nobody has stated what is known, and nothing rests on it.
        program = replace(program, known=None)
    check_program(program, form.users, loss)
    return Plan(ask, program, n, form.targets.public, _cautions(ask, loss))


def _cautions(ask: Ask, loss: MarginLoss) -> tuple[str, ...]:
    """Return warnings that follow from public numbers alone."""
    clip, half = ask.clip, loss.lipschitz / 2
    if not isinstance(clip, float | int) or math.isinf(half) or clip > half:
        return ()
    return (
        f"clip = {clip:g} is at most half of the largest slope of the loss, {loss.lipschitz:g}: only "
        "the direction of the gradients of users with few records matters, which biases coefficients "
        "for any number of users. Omit clip to choose it privately.",
    )


def run(plan: Plan, data: Data, charge: Charge) -> Fitted:
    """Make the whole release, for what was charged.

    Args:
        plan: what may be published.
        data: the rows.
        charge: the charge of all that is published.
    """
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
