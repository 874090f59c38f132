"""Private minimization of custom losses, with any solver or step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np
from numpy.typing import ArrayLike

from dpgrain import _validate
from dpgrain._lazy_import import lazy_import
from dpgrain._types import FloatArray
from dpgrain.accounting import Event, Gaussian
from dpgrain.errors import ParameterError, raise_without_context
from dpgrain.gradients.records import (
    LONGEST,
    BlockVectors,
    MeanGradients,
    ModelSteps,
    RecordBlocks,
)
from dpgrain.inputs.array_blocks import ArrangedRows, arrange, default_unit
from dpgrain.inputs.callbacks import silent
from dpgrain.inputs.guarantees import Sampling, array_guarantee, block_sampling_rate
from dpgrain.inputs.numbers import numeric_array, vector
from dpgrain.inputs.population import (
    Population,
    check_n_users,
    compose_events,
    gaussian_share,
)
from dpgrain.inputs.record_limit import (
    RecordLimit,
    Weights,
    check_weights,
    require_users,
)
from dpgrain.learn.classes import NumericTargets, block_contribution
from dpgrain.learn.confidence import (
    Evidence,
    Intervals,
    check_curvature,
    check_share,
    interval_warnings,
    release_evidence,
)
from dpgrain.learn.confidence import (
    intervals as confidence_intervals,
)
from dpgrain.learn.program import Program, Recipe, Task
from dpgrain.learn.rounds import (
    History,
    check_program,
    count_records,
    draw_lot,
    population_index,
    round_facts,
    run_program,
    skip_lot,
    train,
)
from dpgrain.learn.rows import ArrayRows, FitRows, count_rows, rows_of
from dpgrain.means import ClippedMean, Contributions
from dpgrain.noise import RandomState
from dpgrain.optimize import LossFunction, MarginLoss, Sgd, Solver
from dpgrain.optimize.models import Model
from dpgrain.publishing import Charge, Plan, Promise, Query, annotate_interrupt, publishes
from dpgrain.publishing.call import KeepsQuery
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.release_plan import compose, present
from dpgrain.units import Relation, Unit, User
from dpgrain.words.fit_text import describe_weights, minimum_text
from dpgrain.words.notes import Note

if TYPE_CHECKING:
    from dpgrain.learn import distributed
else:
    distributed = lazy_import("dpgrain.learn.distributed")


_SHAPES = "X and y must be (m, d) and (m,): a row, and a target, for each record."


@dataclass(frozen=True)
class Minimum(KeepsQuery):
    """Result of a private minimization.

    Args:
        theta: (p,) the parameter.
        guarantee: the guarantee of the release.
        history: the noisy gradients, round by round.
        n_users: the divisor of sums in users: the stated number, or the released noisy number.
        estimand: a description of the average, with the weights of users.
        max_records: the largest number of a user's records that counts; None if users have equal
            weight.
        mean_weight: the estimated weight of a user; None if ``max_records`` was stated.
        evidence: noisy second moments for intervals; None without a budget for them.
        sampled: True if blocks were sampled in each round.

    >>> from dpgrain.optimize import Power, Squared
    >>> X, y = np.ones((3000, 1)), np.full(3000, 0.5)
    >>> found = minimise(Squared(), X, y, [0.0], solver=Sgd(Power(1.0)), rounds=20,
    ...                  epsilon=1.0, random_state=1)
    >>> found.theta.round(1).tolist(), len(found.history.norms), found.n_users
    ([0.5], 20, 2984)
    """

    theta: FloatArray
    guarantee: Guarantee
    history: History
    n_users: int
    estimand: str = ""
    max_records: int | None = None
    mean_weight: float | None = None
    evidence: Evidence | None = None
    sampled: bool = False

    def confidence_intervals(self, level: float = 0.95) -> Intervals:
        """Return intervals for the coordinates of the parameter.

        Args:
            level: the nominal coverage, strictly between 0 and 1.

        Returns:
            the corrected averages with their intervals, as for
            :meth:`LinearModel.confidence_intervals`. They are free post-processing.

        Raises:
            ParameterError: if no budget was reserved for intervals (``intervals=0.2`` reserves a
                fifth).
        """
        if self.evidence is None:
            raise ParameterError(
                "intervals must be above 0 at minimise for confidence_intervals; intervals=0.2 "
                "reserves a fifth of the budget for them."
            )
        width = len(self.theta)
        return confidence_intervals(
            self.evidence,
            self.history,
            self.theta,
            np.zeros(width),
            np.eye(width),
            tuple(f"θ{i}" for i in range(width)),
            level,
            sampled=self.sampled,
            estimand="" if self.max_records is None else self.estimand,
        )

    def __str__(self) -> str:
        return minimum_text(self)

    __repr__ = __str__


@publishes
def minimise(
    loss: LossFunction,
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
    share: float | None = None,
    clip: float = 1.0,
    rounds: int = 100,
    sampling: Sampling = "pairs",
    sampling_rate: float | None = None,
    n_users: int | None = None,
    elements_per_user: float = 1.0,
    weights: Weights = "users",
    max_records: int | None = None,
    intervals: float = 0.0,
    exact: bool = False,
    random_state: RandomState = None,
) -> Query[Minimum]:
    """Minimise a custom loss under differential privacy.

    Args:
        loss: ``value(theta, X, y)`` and ``gradient(theta, X, y)``, per record: (m,) and (m, p).
            Smooth it with :class:`dpgrain.papers.Moreau` if it has kinks. It is first tested on
            records of zeros; an error on other records sets the block to zero and is not shown.
        X: (m, d) the records; for a list, d = p. Non-finite numbers are treated as 0, and so are
            all values of a list's row unless it has d cells. Or a Spark frame, as for
            :meth:`LinearModel.fit`, in which ``y``, ``users`` and ``elements`` name columns:
            records remain on the cluster.
        y: (m,) their numeric targets; a record with a non-finite target is dropped.
        start: (p,) the starting point, which is public.
        solver: the solver for noisy gradients; or, for ``User()``, a recipe from
            :mod:`dpgrain.papers`, with its own mean, radius, rounds and steps.
        model: a model of each block's loss. One step on it is computed per block and then clipped
            (for example :class:`~dpgrain.optimize.models.Truncated`); the solver must be ``Sgd``,
            which defines the step sizes and the domain. None: mean gradients.
        users: (m,) the user id of each record; None protects only records, and is rejected by
            recipes, which protect whole users.
        elements: (m,) the cell of each record in a public partition.
        unit: the protected unit; by default ``User()`` if users are passed, otherwise ``Record()``.
        relation: neighbouring relation: a unit is removed, ``zero_out``, or replaced by another,
            ``replace``.
        epsilon: privacy parameter ε, such as 1; smaller protects more. Omit it if you pass
            ``share``.
        delta: the δ of the guarantee, in (0, 1), such as 1e-6.
        share: share of the open budget, such as 0.5, instead of ε and δ; see
            :func:`dpgrain.budget`.
        clip: the clipping bound of a block's step; not used by recipes, like the following
            parameters.
        rounds: the number of noisy gradients.
        sampling: ``"pairs"``, ``"users"`` or ``"full"``.
        sampling_rate: the probability of being in a round's sample; by default 1, or less for a
            stated number of users above 50,000.
        n_users: the public number of users in the known population. If it is unknown (None), the
            approximate number of users with records is released first, with 3% of the budget;
            recipes require it.
        elements_per_user: the public number of blocks per user, by which sums are divided.
        weights: equal weight for all ``users``, or weights by their number of ``records``, up to
            ``max_records``. The latter minimises the loss of the average record, not of the average
            person; only for ``User()``, a solver and rows in this process. The contribution of a
            user is multiplied by min(records, max_records)/max_records, and sums are divided by the
            number of users, so steps are shorter: the printed result states by how much.
        max_records: the public number of a user's records above which the weight no longer grows,
            with ``weights="records"``. If it is None, a number that few users exceed is chosen
            privately, with 10% of the budget.
        intervals: the share of the budget for :meth:`Minimum.confidence_intervals`, such as 0.2; 0
            for none. They require a loss of :mod:`dpgrain.optimize` with curvature, a solver, no
            ``model`` and rows in this process.
        exact: True adds blocks as integers, which is always done for Spark frames. This removes all
            floating-point effects only if the loss computes each record's gradient independently of
            other records, to the last bit.
        random_state: seed, for tests and research. The release is then *not private*.

    Raises:
        ParameterError: if a parameter is out of range or shapes do not fit.

    Formal guarantee: (ε, δ)-DP for the unit and relation, for any loss, solver and data, if the
    loss of a record depends only on that record and θ. Source: element-level paper, Algorithm 1,
    (15) and Appendix D, with sampled blocks instead of users; docs/theory, "Gradient steps".

    >>> from dpgrain.optimize import Ball, Last, Power, Squared
    >>> from dpgrain.optimize.models import Truncated
    >>> X, y, steps = np.ones((300, 1)), np.full(300, 0.5), Sgd(Power(1.0), Ball(2.0), Last())
    >>> options = {"n_users": 300, "users": range(300), "rounds": 4, "epsilon": 1.0, "random_state": 1}
    >>> found = minimise(Squared(), X, y, [0.0], solver=steps, model=Truncated(), **options)
    >>> bool(abs(found.theta[0] - 0.5) < 0.1), round(found.guarantee.epsilon(), 2)
    (True, 1.0)
    """
    try:
        begin = np.asarray(start, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        message = f"start must be a list of numbers, not {_validate.describe(start)}."
        raise_without_context(ParameterError(message, name="start"))
    rows, recipe = rows_of(X, y, users, elements), isinstance(solver, Recipe)
    unit = default_unit(User() if unit is None and recipe else unit, rows.users, n_users)
    _validate.one_of(get_args(Sampling), sampling=sampling)
    _validate.positive(elements_per_user=elements_per_user)
    promise = Promise.of(unit, epsilon, delta, relation, share)
    _check_kinds(loss, solver, model, unit)
    _check_options(loss, solver, model, weights, max_records, intervals)
    if weights == "records":
        require_users(unit)
    if rows.distributed:
        _check_cluster(loss, solver, model)
    features, targets = rows.empty(begin.size, labels=False)
    width = _as_numbers(features, targets, begin.size)[0].shape[1]
    if isinstance(rows, ArrayRows) and count_rows(rows.X) != count_rows(rows.y):
        raise ParameterError(_SHAPES)
    rows.check(unit, places=recipe)
    _check_shapes(loss, solver, model, begin, width)
    if intervals:
        check_curvature(cast(MarginLoss, loss), begin.size)
    if rows.distributed:
        distributed.require_plain(weights, intervals)
        distributed.require_all_blocks(sampling, sampling_rate)
        sampling, exact = "full", True
    return MinimumQuery(
        promise,
        loss,
        rows,
        tuple(begin.tolist()),
        solver,
        model,
        clip,
        rounds,
        sampling,
        sampling_rate,
        n_users,
        elements_per_user,
        weights,
        max_records,
        intervals,
        exact,
        draw_lot(random_state) if recipe else None,
        random_state,
    )


@dataclass(frozen=True, eq=False, repr=False)
class MinimumQuery(Query[Minimum]):
    """Query for a minimum; its parameters are those of :func:`minimise`."""

    promise: Promise
    loss: LossFunction
    rows: FitRows
    start: tuple[float, ...]
    solver: Solver[Any] | Recipe
    model: Model | None
    clip: float
    rounds: int
    sampling: Sampling
    sampling_rate: float | None
    n_users: int | None
    elements_per_user: float
    weights: Weights
    max_records: int | None
    intervals: float
    exact: bool
    lot: int | None = None
    random_state: RandomState = None

    @cached_property
    def roster(self) -> Population:
        """Number of users, and its release if it is not stated."""
        return Population.create(self.n_users, self.promise)

    @cached_property
    def limit(self) -> RecordLimit | None:
        """Largest number of records that counts; None for equal weights."""
        return RecordLimit.create(self.weights, self.max_records, self.promise)

    @cached_property
    def evidence(self) -> Gaussian | None:
        """Second moments for intervals."""
        if not self.intervals:
            return None
        signed = block_contribution(self.promise.unit, "signed")
        return gaussian_share(self.promise, signed, self.intervals)

    @property
    def more(self) -> dict[str, Event]:
        """Parts other than the rounds, by name."""
        return present(
            {
                "evidence": self.evidence,
                "number of users": self.roster.event,
                "record limit": None if self.limit is None else self.limit.event,
            }
        )

    @cached_property
    def program(self) -> Program:
        """Program of the recipe."""
        assert isinstance(self.solver, Recipe)  # noqa: S101 - checked by the callers
        n = check_n_users(self.n_users, "a recipe")
        program = self.solver.plan(Task(n, self.start, self.promise, lot=self.lot))
        check_program(program, self.rows.users, self.loss)
        return program

    @cached_property
    def mean(self) -> ClippedMean:
        """Noisy gradients of a solver."""
        promise, n_users = self.promise, self.n_users
        return ClippedMean.calibrate(
            epsilon=promise.epsilon,
            delta=promise.delta,
            n_users=n_users or 1,
            rounds=self.rounds,
            clip=self.clip,
            unit=promise.unit,
            relation=promise.relation,
            sampling_rate=block_sampling_rate(self.sampling, self.sampling_rate, n_users),
            sampling="users" if self.sampling == "users" else "pairs",
            blocks_per_user=self.elements_per_user,
            exact=self.exact,
            beside=compose_events(*self.more.values()),
        )

    @property
    def plan(self) -> Plan:
        """The noise of all rounds, and of the number of users where it is not stated."""
        facts: tuple[Fact, ...]
        roster, care = self.roster, tuple[Note, ...]()
        if isinstance(self.solver, Recipe):
            parts, facts = {"rounds": self.program.event}, self.program.facts
            care = self.program.care(len(self.start))
        else:
            parts = {"rounds": self.mean.event, **self.more}
            facts = () if self.limit is None else self.limit.facts
            facts += round_facts(self.mean, self.clip)
            if self.exact:
                facts += (Fact("separate-gradients"),)
            if self.intervals:
                facts += (Fact("intervals", (self.intervals,)),)
                if self.exact:
                    facts += (Fact("floating-moments"),)
            if self.n_users is not None:
                care = interval_warnings(self.evidence, len(self.start), self.n_users)
        guarantee = array_guarantee(
            self.promise,
            compose(parts),
            (*roster.facts, *facts),
            users=self.rows.users,
            elements=self.rows.elements,
        )
        return Plan(guarantee, self.n_users, care=care, parts=parts)

    def run(self, charge: Charge) -> Minimum:
        """Run all steps."""
        with annotate_interrupt("the fit"):
            if isinstance(self.solver, Recipe):
                result = self._run_recipe(charge)
            elif self.rows.distributed:
                result = self._run_on_cluster(charge, self.solver)
            else:
                return self._run_local(charge, self.solver)
        return self._minimum(charge, *result)

    def _minimum(
        self, charge: Charge, theta: FloatArray, history: History, n: int, **more: Any
    ) -> Minimum:
        """Return the release, with its estimand."""
        text = describe_weights(self.promise.unit, more.get("max_records"), "θ describes")
        return Minimum(theta, charge.guarantee, history, n, text, **more)

    def _read(self, charge: Charge) -> tuple[FloatArray, FloatArray, ArrangedRows, Any]:
        """Return records and targets as numbers, their blocks, and their users."""
        loaded, unit = self.rows.read(charge, labels=False), self.promise.unit
        places = isinstance(self.solver, Recipe)

        def blocks() -> tuple[FloatArray, FloatArray, ArrangedRows]:
            features, targets = _as_numbers(loaded.X, loaded.y, len(self.start))
            rows = len(targets)
            return (
                features,
                targets,
                arrange(rows, loaded.users, loaded.elements, unit, places=places),
            )

        return (*charge.read(blocks), loaded.users)

    def _run_recipe(self, charge: Charge) -> tuple[FloatArray, History, int]:
        """Run the program of a recipe."""
        program, source = self.program, charge.rounds(self.program.event)
        skip_lot(self.random_state, source)
        features, targets, rows, users = self._read(charge)
        index = population_index(program, users, rows)
        records = _records(features, targets, rows)
        n = check_n_users(self.n_users, "a recipe")
        return (*run_program(program, records, index, self.loss, np.array(self.start), source), n)

    def _run_local(self, charge: Charge, solver: Solver[Any]) -> Minimum:
        """Run steps with local records."""
        step = _BlockSteps(self.loss, self.model, solver, math.inf if self.exact else self.clip)
        features, targets, rows, _ = self._read(charge)
        ordered = rows.by_value(features, targets) if self.exact else rows
        records = _records(features, targets, ordered)
        n = self.roster.size(lambda: rows.users, charge)
        more: dict[str, Any] = {}
        if self.limit is not None:
            sizes, size = np.diff(records.starts), len(self.start)
            counts = count_records(self.limit, self.mean, sizes[sizes > 0], size, charge)
            records = replace(records, max_records=counts.most)
            more |= {"max_records": counts.most, "mean_weight": counts.mean_weight(n)}
        mean = replace(self.mean, n_users=n)
        source = charge.rounds(self.mean.event.beside(self.evidence))
        theta, history = train(
            lambda theta: step.at(theta)(records),
            mean,
            solver,
            np.array(self.start),
            source,
            owners=rows.owners,
        )
        if self.evidence is not None:
            more["evidence"] = release_evidence(
                records,
                rows.owners,
                cast(MarginLoss, self.loss),
                theta,
                clip=self.clip,
                n_users=n,
                blocks_per_user=self.elements_per_user,
                whole=mean.level == "user",
                event=self.evidence,
                source=source,
            )
            more["sampled"] = mean.sampling_rate < 1
        return self._minimum(charge, theta, history, n, **more)

    def _run_on_cluster(
        self, charge: Charge, solver: Solver[Any]
    ) -> tuple[FloatArray, History, int]:
        """Run steps with records on a cluster."""
        step, cluster = _BlockSteps(self.loss, self.model, solver, math.inf), cast(Any, self.rows)
        roles, by = cluster.roles(labels=False), distributed.ArrangeRecords()
        make = distributed.ArrangeBlocks(roles, NumericTargets(), self.promise.unit, by)
        with distributed.cached(cluster, make, charge) as cached:
            n = self.roster.size(lambda: cached.users, charge)
            source = charge.rounds(self.mean.event)
            mean = replace(self.mean, n_users=n)

            def at(theta: FloatArray) -> Contributions:
                return cached.at(distributed.RecordContributions(step.at(theta)), len(theta))

            theta, history = train(at, mean, solver, np.array(self.start), source)
        return theta, history, n


def _records(features: FloatArray, targets: FloatArray, rows: ArrangedRows) -> RecordBlocks:
    """Return records by block, without records that lack a target."""
    has = np.isfinite(targets[rows.indices])
    indices = rows.indices[has]
    clean = np.where(np.isfinite(features[indices]), features[indices], 0)
    return RecordBlocks.arrange(clean, targets[indices], rows.blocks[has], blocks=len(rows.owners))


def _check_cluster(loss: LossFunction, solver: Solver[Any] | Recipe, model: Model | None) -> None:
    """Reject arguments that records on a cluster do not support."""
    if isinstance(solver, Recipe):
        raise ParameterError(
            "solver must be one of dpgrain.optimize for rows on a cluster, not the recipe "
            f"{solver!r}, which visits users in turn; use Sgd, or bring the rows here "
            "(frame.toPandas()).",
            name="solver",
        )
    domain = solver.domain if isinstance(solver, Sgd) else None
    distributed.require_sendable(loss=loss, model=model, solver=domain)


def _as_numbers(X: ArrayLike, y: ArrayLike, width: int) -> tuple[FloatArray, FloatArray]:
    """Return records and targets as numbers."""
    # The row length of a list is taken from the start, which is public.
    features, targets = numeric_array(X, width), vector(y)
    if features.ndim != 2 or targets.shape != (len(features),):
        raise ParameterError(_SHAPES)
    with np.errstate(all="ignore"):
        # A warning about an overflowing number would reveal its record.
        features, targets = features.astype(np.float64), targets.astype(np.float64)
    return features, targets


def _check_kinds(
    loss: LossFunction, solver: Solver[Any] | Recipe, model: Model | None, unit: Unit
) -> None:
    """Reject invalid solvers and losses, and incompatible arguments."""
    known = isinstance(solver, Recipe) or hasattr(solver, "step")
    if isinstance(solver, type) or not known:
        raise ParameterError(
            "solver must be a solver of dpgrain.optimize or dpgrain.papers, or a recipe, not "
            f"{_validate.describe(solver)}."
        )
    if isinstance(solver, Recipe) and unit != User():
        raise ParameterError(
            f"unit must be User() with a recipe, not {_validate.describe(unit)}, because recipes "
            "protect whole users."
        )
    if isinstance(loss, type) or not hasattr(loss, "gradient"):
        raise ParameterError(
            "loss must be an object with the methods value and gradient per record, not "
            f"{_validate.describe(loss)}."
        )
    if model is not None and not isinstance(solver, Sgd):
        raise ParameterError(
            f"solver must be Sgd if a model of the loss is passed, not {type(solver).__name__}, "
            "because the model uses its step sizes and domain."
        )


def _check_options(
    loss: LossFunction,
    solver: Solver[Any] | Recipe,
    model: Model | None,
    weights: Weights,
    max_records: int | None,
    intervals: float,
) -> None:
    """Reject weights and intervals that the other arguments do not support."""
    check_weights(weights, max_records)
    check_share(intervals)
    if isinstance(solver, Recipe) and weights == "records":
        raise ParameterError(
            "weights must be 'users' with a recipe, not 'records', because the recipe sets the "
            "contribution of a user; use a solver of dpgrain.optimize.",
            name="weights",
        )
    if not intervals:
        return
    if isinstance(solver, Recipe) or model is not None:
        raise ParameterError(
            f"intervals must be 0 with {'a recipe' if model is None else 'a model'}, not "
            f"{intervals!r}, because its steps are not the gradients of the loss.",
            name="intervals",
        )
    # The curvature of another loss could fail on a record, which would reveal it.
    if type(loss).__module__ != MarginLoss.__module__ or not isinstance(loss, MarginLoss):
        raise ParameterError(
            f"intervals must be 0 for {type(loss).__name__}, because its curvature is unknown; use a "
            "MarginLoss of dpgrain.optimize, such as Squared().",
            name="intervals",
        )


def _check_shapes(
    loss: LossFunction,
    solver: Solver[Any] | Recipe,
    model: Model | None,
    begin: FloatArray,
    width: int,
) -> None:
    """Reject a loss that does not support the shapes of the start and the records."""
    try:
        # Two rows of zeros test whether loss and start are compatible, before anything is charged.
        zeros = np.zeros((2, width)), np.zeros(2)
        with silent():
            shape = np.shape(loss.gradient(begin, *zeros))
            if model is not None and isinstance(solver, Sgd):
                model.step(loss, begin, *zeros, solver.schedule(1), solver.domain)
    except Exception as error:
        raise ParameterError(
            f"start must fit the loss and X, but a test on records of zeros failed: {error}."
        ) from None
    if begin.ndim != 1 or shape != (2, len(begin)):
        raise ParameterError(
            "start must have shape (p,), and the gradients of m records shape (m, p), not "
            f"{begin.shape} and {shape} for two records."
        )


@dataclass
class _BlockSteps:
    """Sums of blocks, round by round."""

    loss: LossFunction
    model: Model | None
    solver: Solver[Any]
    clip: float
    done: int = 0

    def at(self, theta: FloatArray) -> Callable[[RecordBlocks], BlockVectors]:
        """Return the contributions of records' blocks in the next round."""
        self.done += 1
        if self.model is None or not isinstance(self.solver, Sgd):
            return MeanGradients(self.loss, theta, LONGEST * self.clip)
        size = self.solver.schedule(self.done)
        return ModelSteps(self.model.step, self.loss, theta, size, self.solver.domain)
