"""Any loss, any solver, any step: what the estimators do, for losses that are not theirs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import ArrayLike

from dpgrain import _validate
from dpgrain._later import later
from dpgrain._types import FloatArray
from dpgrain.arrays.blocks import Rows, arrange, unit_of
from dpgrain.arrays.guarantees import Sampling, guarantee_of, rate_of
from dpgrain.arrays.roster import Roster, check_stated
from dpgrain.errors import ParameterError
from dpgrain.gradients.records import (
    LONGEST,
    BlockVectors,
    MeanGradients,
    ModelSteps,
    RecordBlocks,
)
from dpgrain.inputs.calls import silent
from dpgrain.inputs.columns import lie_elsewhere
from dpgrain.inputs.numbers import cells, vector
from dpgrain.learn.rounds import History, facts_of, follow, roster_index, train
from dpgrain.means import ClippedMean, Contributions
from dpgrain.noise import RandomState, source_of
from dpgrain.optimize import Loss, Sgd, Solver
from dpgrain.optimize.models import Model
from dpgrain.publishing import Promise, before_publishing, takes_share, told_if_interrupted
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.recipes import Recipe, Task
from dpgrain.units import Relation, Unit, User

if TYPE_CHECKING:
    from dpgrain.learn import distributed
    from dpgrain.learn.distributed import KeptBlocks, RowsThere
else:
    distributed = later("dpgrain.learn.distributed")


@dataclass(frozen=True)
class Minimum:
    """Where private steps have ended.

    Args:
        theta: (p,) the parameter.
        guarantee: what is promised.
        history: the noisy gradients, round by round.
        n_users: the number of users that sums were divided by: as stated, or as released with noise.

    >>> from dpgrain.optimize import Power, Squared
    >>> X, y = np.ones((3000, 1)), np.full(3000, 0.5)
    >>> found = minimise(Squared(), X, y, [0.0], solver=Sgd(Power(1.0)), rounds=20, random_state=1)
    >>> found.theta.round(1).tolist(), len(found.history.norms), found.n_users
    ([0.5], 20, 2984)
    """

    theta: FloatArray
    guarantee: Guarantee
    history: History
    n_users: int


@takes_share
def minimise(
    loss: Loss,
    X: Any,
    y: Any,
    start: ArrayLike,
    *,
    solver: Solver[Any] | Recipe,
    model: Model | None = None,
    users: Any = None,
    elements: Any = None,
    unit: Unit | None = None,
    relation: Relation = "zero_out",
    epsilon: float | None = None,
    delta: float = 1e-6,
    share: float | None = None,  # noqa: ARG001 - read by takes_share
    clip: float = 1.0,
    rounds: int = 100,
    sampling: Sampling = "pairs",
    sampling_rate: float | None = None,
    n_users: int | None = None,
    elements_per_user: float = 1.0,
    exact: bool = False,
    random_state: RandomState = None,
) -> Minimum:
    """Minimise a loss of your own under differential privacy.

    Args:
        loss: ``value(theta, X, y)`` and ``gradient(theta, X, y)``, per record: (m,) and (m, p). Smooth
            it with :class:`dpgrain.optimize.Moreau` where it has kinks. It is tried on records of zeros
            first; what it raises on others makes a zero of the block, and is not shown.
        X: (m, d) the records, of a list with d = p; what is not finite counts as 0, as all of a list's
            row does that has not d cells. Or a frame of Spark, as for :meth:`LinearModel.fit`, of
            which ``y``, ``users`` and ``elements`` name columns: records stay there.
        y: (m,) their targets, numbers; a record whose target is not finite is left out.
        start: (p,) where to begin, a public point.
        solver: what steps against noisy gradients; or, for ``User()``, a recipe of
            :mod:`dpgrain.recipes`, which brings its own mean, radius, rounds and steps.
        model: a model of each block's loss, of which one step is taken before it is clipped
            (:class:`~dpgrain.optimize.models.Truncated`, for one); the solver must then be ``Sgd``,
            whose step sizes and domain it uses. None: mean gradients.
        users: (m,) whose each record is; None protects records alone, and is refused by recipes, which
            are for whole users.
        elements: (m,) the cell of each record, by a public partition.
        unit: what is protected; by default ``User()`` where users are passed, ``Record()`` otherwise.
        relation: the neighbouring relation.
        epsilon: the promised ε; by default 1.
        delta: the promised δ.
        share: the share of the open budget, such as 0.5, in place of ε and δ; see
            :func:`dpgrain.budget`.
        clip: the clipping bound of a block's step; not used by recipes, as what follows.
        rounds: how many noisy gradients.
        sampling: ``"pairs"``, ``"users"`` or ``"full"``.
        sampling_rate: the probability to be in a round's sample; by default 1, but for a stated roster
            of more than 50,000 users.
        n_users: the public size of the roster. If it is not known (None), about how many users have
            records is released first, with 3% of the budget; recipes need it.
        elements_per_user: the public number of blocks per user that sums are divided by.
        exact: add blocks up as integers, as is done of frames of Spark in any case; that nothing of
            floating point is left then needs a loss that computes each record's gradient apart from
            other records, to the last bit.
        random_state: a seed, which makes the result not private.

    Raises:
        ParameterError: if a parameter is out of range or shapes do not fit.

    Formal guarantee: (ε, δ)-DP for the unit and relation, whatever the loss, the solver and the data,
    if the loss of a record depends on that record and θ alone. Source: element-level paper, Algorithm
    1, (15) and Appendix D, with blocks drawn instead of users; docs/theory, "Gradient steps".

    >>> from dpgrain.optimize import Ball, Last, Power, Squared
    >>> from dpgrain.optimize.models import Truncated
    >>> X, y, steps = np.ones((300, 1)), np.full(300, 0.5), Sgd(Power(1.0), Ball(2.0), Last())
    >>> asked = {"n_users": 300, "rounds": 4, "random_state": 1}
    >>> found = minimise(Squared(), X, y, [0.0], solver=steps, model=Truncated(), **asked)
    >>> bool(abs(found.theta[0] - 0.5) < 0.1), round(found.guarantee.epsilon(), 2)
    (True, 1.0)
    """
    begin = np.asarray(start, dtype=np.float64)
    there = distributed.RowsThere.of(X, y, users, elements) if lie_elsewhere(X) else None
    if there is not None:
        # A table knows whose its rows are.
        users, elements = there.users, there.elements
    unit = unit_of(User() if unit is None and isinstance(solver, Recipe) else unit, users)
    _validate.one_of(get_args(Sampling), sampling=sampling)
    _validate.positive(elements_per_user=elements_per_user)
    promise = Promise(unit, 1.0 if epsilon is None else epsilon, delta, relation)
    _check_kinds(loss, solver, model, unit)
    if there is None:
        features, targets = _read(X, y, begin.size)
        _check_shapes(loss, solver, model, begin, features.shape[1])
        rows = arrange(len(features), users, elements, unit, places=isinstance(solver, Recipe))
    else:
        _check_there(there, loss, solver, model, unit)
        _check_shapes(loss, solver, model, begin, there.width)
        distributed.require_all_blocks(sampling, sampling_rate)
        sampling, exact = "full", True
    roster = Roster.of(n_users, promise)
    source = source_of(random_state)
    facts: tuple[Fact | str, ...]
    if isinstance(solver, Recipe):
        n = check_stated(n_users, "a recipe")
        program = solver.plan(Task(n, tuple(begin), promise, lot=int(source.words(1)[0])))
        event, facts = program.event, program.facts
        index = roster_index(program, users, rows, loss)
    else:
        mean = ClippedMean.calibrate(
            epsilon=promise.epsilon,
            delta=promise.delta,
            n_users=n_users or 1,
            rounds=rounds,
            clip=clip,
            unit=unit,
            relation=relation,
            sampling_rate=rate_of(sampling, sampling_rate, n_users),
            sampling="users" if sampling == "users" else "pairs",
            blocks_per_user=elements_per_user,
            exact=exact,
            beside=roster.event,
        )
        event, facts = mean.event.beside(roster.event), facts_of(mean, clip)
        if exact:
            facts += (
                "each record's gradient is computed apart from other records, to the last bit",
            )
    guarantee = guarantee_of(
        promise,
        event,
        (*roster.facts, *facts),
        private=source.private,
        users=users,
        elements=elements,
    )
    guarantee = before_publishing(guarantee, n_users=n_users)
    with told_if_interrupted("the fit"):
        if isinstance(solver, Recipe):
            records = _records(features, targets, rows)
            theta, history = follow(program, records, index, loss, begin, source)
        elif there is not None:
            step = _Step(loss, model, solver, math.inf)
            with there.kept(distributed.by_records(there, unit), labels=False) as kept:
                n = roster.users(kept.users, source) if n_users is None else n_users
                at = partial(_there, kept, step)
                theta, history = train(at, replace(mean, n_users=n), solver, begin, source)
        else:
            step = _Step(loss, model, solver, math.inf if exact else clip)
            listed = rows.by_value(features, targets) if exact else rows
            records = _records(features, targets, listed)
            n = roster.users(rows.users, source)
            theta, history = train(
                lambda theta: step.at(theta)(records),
                replace(mean, n_users=n),
                solver,
                begin,
                source,
                owners=rows.owners,
            )
    return Minimum(theta, guarantee, history, n)


def _records(features: FloatArray, targets: FloatArray, rows: Rows) -> RecordBlocks:
    """Records by block, without those that have no target."""
    has = np.isfinite(targets[rows.kept])
    kept = rows.kept[has]
    clean = np.where(np.isfinite(features[kept]), features[kept], 0)
    return RecordBlocks.arrange(clean, targets[kept], rows.blocks[has], blocks=len(rows.owners))


def _there(kept: KeptBlocks, step: _Step, theta: FloatArray) -> Contributions:
    """What blocks add that stay where they are."""
    return kept.of_records(step.at(theta), len(theta))


def _check_there(
    there: RowsThere, loss: Loss, solver: Solver[Any] | Recipe, model: Model | None, unit: Unit
) -> None:
    """Refuse what records that stay on a cluster do not take."""
    if isinstance(solver, Recipe):
        raise ParameterError(
            "solver must be one of dpgrain.optimize for rows on a cluster, not the recipe "
            f"{solver!r}, which asks users in turn; take Sgd, or bring the rows here "
            "(frame.toPandas()).",
            name="solver",
        )
    there.nobody(unit, labels=False)
    domain = solver.domain if isinstance(solver, Sgd) else None
    distributed.require_sendable(loss=loss, model=model, solver=domain)


def _read(X: ArrayLike, y: ArrayLike, width: int) -> tuple[FloatArray, FloatArray]:
    """Records and targets as numbers."""
    # A list of rows does not say how many numbers each has: as many as the start, which is public.
    features, targets = cells(X, width), vector(y)
    if features.ndim != 2 or targets.shape != (len(features),):
        raise ParameterError(
            "X and y must be (m, d) and (m,): a row, and a target, for each record."
        )
    with np.errstate(all="ignore"):
        # A warning of a number that is too large would tell of its record.
        features, targets = features.astype(np.float64), targets.astype(np.float64)
    return features, targets


def _check_kinds(loss: Loss, solver: Solver[Any] | Recipe, model: Model | None, unit: Unit) -> None:
    """Refuse what is no solver, or no loss, and what does not go together."""
    known = isinstance(solver, Recipe) or hasattr(solver, "step")
    if isinstance(solver, type) or not known:
        raise ParameterError(
            f"solver must be a solver of dpgrain.optimize, or a recipe, not {solver!r}."
        )
    if isinstance(solver, Recipe) and unit != User():
        raise ParameterError(
            f"unit must be User() with a recipe, not {unit!r}: recipes are for whole users."
        )
    if isinstance(loss, type) or not hasattr(loss, "gradient"):
        raise ParameterError(f"loss must have value and gradient, per record, not be {loss!r}.")
    if model is not None and not isinstance(solver, Sgd):
        raise ParameterError(
            f"solver must be Sgd with a model of the loss, not {type(solver).__name__}: the model "
            "takes its step sizes and its domain."
        )


def _check_shapes(
    loss: Loss, solver: Solver[Any] | Recipe, model: Model | None, begin: FloatArray, width: int
) -> None:
    """Refuse a loss that does not take the start and the records."""
    try:
        # Of two rows of zeros: whether loss and start fit, before anything is charged.
        zeros = np.zeros((2, width)), np.zeros(2)
        with silent():
            shape = np.shape(loss.gradient(begin, *zeros))
            if model is not None and isinstance(solver, Sgd):
                model.step(loss, begin, *zeros, solver.schedule(1), solver.domain)
    except Exception as error:
        raise ParameterError(
            f"start does not fit the loss and X, of which records of zeros were tried: {error}."
        ) from None
    if begin.ndim != 1 or shape != (2, len(begin)):
        raise ParameterError(
            "start must be (p,), and the gradients of m records (m, p), one row each, not "
            f"{begin.shape} and {shape} for two records."
        )


@dataclass
class _Step:
    """What blocks add in each round, which one asks for after the other."""

    loss: Loss
    model: Model | None
    solver: Solver[Any]
    clip: float
    done: int = 0

    def at(self, theta: FloatArray) -> Callable[[RecordBlocks], BlockVectors]:
        """Return what the blocks of records add in the next round."""
        self.done += 1
        if self.model is None or not isinstance(self.solver, Sgd):
            return MeanGradients(self.loss, theta, LONGEST * self.clip)
        size = self.solver.schedule(self.done)
        return ModelSteps(self.model.step, self.loss, theta, size, self.solver.domain)
