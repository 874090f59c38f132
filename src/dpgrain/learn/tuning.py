"""Private choice of hyper-parameters: the best of a random number of private fits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from sklearn.base import clone

from dpgrain import _validate
from dpgrain.accounting import Event, Gaussian, Parallel, SelectBest, calibrate
from dpgrain.accounting.losses.gaussian import gaussian_mu
from dpgrain.choices.scores import STEPS, BlockLosses, sum_losses
from dpgrain.errors import ParameterError
from dpgrain.inputs.guarantees import array_guarantee
from dpgrain.learn.central import CentralPlan, calibrate_plan
from dpgrain.learn.classes import block_contribution
from dpgrain.learn.confidence import check_curvature
from dpgrain.learn.fit_config import Ask
from dpgrain.learn.fit_data import FitData
from dpgrain.learn.interpretation import warn_about_bias
from dpgrain.learn.program import Recipe
from dpgrain.learn.query import (
    LocalRows,
    check_unchanged,
    copy_parameters,
    share_parameters,
    with_promise,
)
from dpgrain.learn.raw_inputs import RawInputs
from dpgrain.noise import RandomSource, RandomState
from dpgrain.noise.distributions import raise_scale
from dpgrain.noise.sums import with_gaussian
from dpgrain.publishing import Charge, Plan, Promise, Query, annotate_interrupt
from dpgrain.publishing.facts import Fact
from dpgrain.units import Unit

if TYPE_CHECKING:
    from dpgrain.learn.model import LinearModel

Setting: TypeAlias = dict[str, Any]
Grid: TypeAlias = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]
Model = TypeVar("Model", bound="LinearModel")

# Mean number of runs per setting, and the share of a run's μ² for scoring.
_MEAN_RUNS, _SCORE_SHARE = 3.0, 0.1
# Parameters that cannot be tuned, because they define the guarantee or the estimate.
_FIXED = frozenset(
    (
        *(
            "unit",
            "relation",
            "epsilon",
            "delta",
            "n_features",
            "n_users",
            "random_state",
            "verbose",
            "tune",
        ),
        *("classes", "quantile", "intervals", "target_bound"),
    )
)


def parse_grid(grid: Any, known: Sequence[str]) -> list[Setting]:
    """Return the settings of a grid, or a list of settings, in a public order.

    >>> parse_grid({"clip": [0.1, 1.0], "l2": [0.0]}, ["clip", "l2"])
    [{'clip': 0.1, 'l2': 0.0}, {'clip': 1.0, 'l2': 0.0}]
    """
    if isinstance(grid, Mapping):
        for name, values in grid.items():
            if isinstance(values, str | bytes) or not isinstance(values, Sequence | np.ndarray):
                raise ParameterError(
                    f"tune must map {name} to a list of values, not {_validate.describe(values)}."
                )
        result = [
            dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())
        ]
    elif isinstance(grid, Sequence) and all(isinstance(each, Mapping) for each in grid):
        result = [dict(each) for each in grid]
    else:
        raise ParameterError(
            f"tune must map parameters to lists of values, or be a list of settings, "
            f"not {_validate.describe(grid)}."
        )
    if not result or not any(result):
        raise ParameterError("tune must have at least one setting, not none.")
    for name in dict.fromkeys(itertools.chain(*result)):
        if name in _FIXED:
            raise ParameterError(
                f"tune must not contain {name}, which cannot be tuned; pass it to the model."
            )
        if name not in known:
            raise ParameterError(
                f"tune must contain parameters of the model, not {_validate.describe(name)}; the "
                f"parameters are {', '.join(known)}."
            )
    return result


def tuned_query(
    model: Model,
    inputs: RawInputs,
    *,
    grid: Grid | None = None,
    runs: float | None = None,
    bound: float = 4.0,
) -> TunedQuery[Model]:
    """Return a query for the best of several fits within the model's (ε, δ); nothing is read.

    A run draws a random setting, fits a copy of the model, and scores the fit by its noisy loss on
    the same data, with records' losses clamped to ``bound``; a low bound prefers overconfident
    fits. The number of runs is random. It must stay secret, and so must their duration.
    ``parameters_`` are the winner's, and ``guarantee_`` covers all runs.

    Formal guarantee: (ε, δ)-DP for the unit and relation: the event is
    :class:`dpgrain.accounting.SelectBest` of one run, its fit and its score. Source: Papernot &
    Steinke 2022, Theorem 2, with the curve of docs/theory, "Repeating and keeping the best";
    "Tuning".

    >>> from dpgrain.learn import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 2)); y = X[:, 0] > 0
    >>> grid = {"clip": [1.0, 1000.0]}
    >>> model = LogisticRegression(epsilon=2.0, rounds=20, tune=grid, random_state=1).fit(X, y)
    >>> model.tuned_, 1.99 < model.guarantee_.epsilon() <= 2.0
    ({'clip': 1.0}, True)
    """
    unit = model.unit_of(inputs.users)
    ask, promise = model.config(unit), model.promised(unit)
    stated = getattr(model, "tune", None) if grid is None else grid
    settings = parse_grid(stated, list(model.get_params(deep=False)))
    mean = _MEAN_RUNS * len(settings) if runs is None else _validate.positive(runs=runs)
    bound = _validate.positive(bound=bound)
    rows = LocalRows.of(model, inputs, unit)
    targets = rows.form.targets
    if targets.labels is not None:
        raise ParameterError("classes is required with tune; pass all labels as classes=[…].")
    candidates = tuple(_candidate(model, setting, unit).config() for setting in settings)
    loss = model.loss(targets.classes)
    if ask.intervals:
        check_curvature(loss, loss.outputs * (rows.form.width + ask.fit_intercept))
    return TunedQuery(
        promise,
        model,
        copy_parameters(model),
        ask,
        tuple(settings),
        candidates,
        mean,
        bound,
        rows,
        model.random_state,
    )


@dataclass(frozen=True, eq=False, repr=False)
class TunedQuery(Query[Model]):
    """Query for a tuned fit, created by :func:`tuned_query`."""

    promise: Promise
    model: Model
    parameters: Mapping[str, Any]
    ask: Ask
    settings: tuple[Setting, ...]
    candidates: tuple[Ask, ...]
    runs: float
    bound: float
    rows: LocalRows
    random_state: RandomState = None

    def __post_init__(self) -> None:
        self.check_unit(self.rows.unit)

    @cached_property
    def _fits(self) -> tuple[Ask, ...]:
        """Requests of the fits with each setting, without their ε."""
        return tuple(with_promise(each, self.promise) for each in self.candidates)

    @cached_property
    def _noise(self) -> _Noise:
        return _calibrate_fits(with_promise(self.ask, self.promise), self._fits, self.runs)

    @property
    def plan(self) -> Plan:
        """Noise of all runs, and of the choice between them."""
        check_unchanged(self.model, self.parameters)
        noise = self._noise
        guarantee = array_guarantee(
            self.promise,
            noise.event,
            (
                # If it is not stated, each run publishes the number of users within its own part.
                *_plan_fit(self._fits[0], noise.epsilon).roster.facts,
                *self.rows.form.targets.public,
                *_fit_facts(self._fits),
                *_facts(self.settings, noise.event, self.bound),
            ),
            private=True,
            users=self.rows.users,
            elements=self.rows.elements,
        )
        return Plan(guarantee, self.ask.n_users)

    def run(self, charge: Charge) -> Model:
        """Run all fits, and return the best."""
        noise = self._noise
        with annotate_interrupt("the fits"), self.rows.opened(charge) as rows:
            data = _TuningData(rows, BlockLosses(rows.rows, 0.0, self.bound))
            one_of = partial(self._once, data=data)
            winner, setting = charge.best_of(noise.event, len(self.settings), one_of)
        used = {**self.parameters, **share_parameters(self.promise)}
        model = self.model.adopt(winner.fitted_, charge.guarantee, tuned=setting, parameters=used)
        warn_about_bias(model)
        return model

    def _once(
        self, index: int, charge: Charge, data: _TuningData
    ) -> tuple[float, tuple[Model, Setting]]:
        """Fit with one setting, and score the fit."""
        noise, setting = self._noise, self.settings[index]
        candidate = _candidate(self.model, setting, self.ask.promise.unit)
        plan = _plan_fit(self._fits[index], noise.epsilon)
        _fit(candidate, plan, data, charge.one_of(noise.fit, plan.event))
        return -_noisy_score(candidate, noise.score, data, charge.lend(noise.score)), (
            candidate,
            setting,
        )


@dataclass(frozen=True)
class _Noise:
    """Noise of every run: the ε of one fit at the model's δ, and accounting events."""

    epsilon: float
    score: Gaussian
    event: SelectBest

    @property
    def fit(self) -> Event:
        """Accounting event of one fit with the most expensive setting."""
        events = self.event.events
        assert isinstance(events, tuple)  # noqa: S101 - a run is a fit and a score
        return events[0]


@dataclass(frozen=True)
class _TuningData:
    """Rows of all runs, with the model's loss and the blocks' contributions to a score."""

    fit: FitData
    blocks: BlockLosses


def _candidate(model: Model, setting: Setting, unit: Unit) -> Model:
    """Return a validated copy of the model with a setting."""
    copy = clone(model).set_params(**setting)
    copy.set_params(tune=None, unit=unit)
    copy.config()
    if copy.trust != "central":
        raise ParameterError(
            f"trust must be 'central' with tune, not {_validate.describe(copy.trust)}, because "
            "recipes are not tuned."
        )
    if isinstance(copy.algorithm, Recipe):
        raise ParameterError(
            "algorithm must be 'auto' or a solver with tune, not "
            f"{_validate.describe(copy.algorithm)}, because recipes are not tuned."
        )
    candidate: Model = copy
    return candidate


def _calibrate_fits(ask: Ask, candidates: Sequence[Ask], mean: float) -> _Noise:
    """Return the largest ε of a fit for which all runs satisfy the model's guarantee."""

    promise = ask.promise

    def among(some: Sequence[Ask]) -> _Noise:
        result = calibrate(
            lambda epsilon: _event(ask, some, epsilon, mean),
            promise.epsilon,
            promise.delta,
            search="largest",
            unit=promise.unit,
            relation=promise.relation,
            low=1e-3 * promise.epsilon,
            high=promise.epsilon,
        )
        return _Noise(result.parameter, _score(ask, result.parameter), result.event)

    # Most settings do not affect the noise, so one of them is enough.
    noise = among(candidates[:1])
    if noise.event == _event(ask, candidates, noise.epsilon, mean):
        return noise
    return among(candidates)


def _event(ask: Ask, candidates: Sequence[Ask], epsilon: float, mean: float) -> SelectBest:
    """Return the event of all runs, if fits have this ε.

    A run draws its setting independently of the data, and costs as much as the worst setting.
    """
    plans = (_plan_fit(candidate, epsilon) for candidate in candidates)
    events: tuple[Event, ...] = tuple(dict.fromkeys(plan.event for plan in plans))
    fit = events[0] if len(events) == 1 else Parallel(events)
    return SelectBest((fit, _score(ask, epsilon)), mean)


def _score(ask: Ask, epsilon: float) -> Gaussian:
    """Return the noise of the total loss, next to a fit with this ε."""
    contribution, promise = block_contribution(ask.promise.unit, "one"), ask.promise
    whole = contribution.sensitivity(1, promise.relation, promise.unit)
    return Gaussian(
        whole / (gaussian_mu(epsilon, promise.delta) * math.sqrt(_SCORE_SHARE)), contribution
    )


def _plan_fit(candidate: Ask, epsilon: float) -> CentralPlan:
    """Plan a fit with this ε; a progress bar would reveal the number of fits."""
    promise = replace(candidate.promise, epsilon=epsilon)
    return calibrate_plan(replace(candidate, promise=promise, progress=False))


def _fit(candidate: LinearModel, plan: CentralPlan, data: _TuningData, charge: Charge) -> None:
    """Run one fit, which is charged together with the others."""
    candidate.adopt(plan.run(replace(data.fit, loss=candidate.loss), charge))


def _noisy_score(
    candidate: LinearModel, event: Gaussian, data: _TuningData, source: RandomSource
) -> float:
    """Return the noisy total of blocks' losses, in bounds."""
    # Targets have the scale of the fits.
    margins = candidate.margins(data.fit.X) / candidate.target_scale
    targets = data.fit.targets
    loss = data.fit.loss(targets.classes)
    with np.errstate(all="ignore"):
        # A warning would reveal a user's row.
        z = margins if margins.ndim == 2 else margins[:, None]
        losses = loss.at(z[:, 0] if loss.outputs == 1 else z, targets.values)
    scale = raise_scale(raise_scale(event.noise_multiplier * STEPS))
    lost = np.array([sum_losses(data.blocks.of(losses))])
    return float(with_gaussian(lost, scale, source=source)[0]) / STEPS


def _fit_facts(candidates: Sequence[Ask]) -> tuple[Fact, ...]:
    """Return the public facts common to all fits, and those that depend on the setting."""
    facts = [calibrate_plan(fit).round_facts for fit in candidates]
    shared = [fact for fact in facts[0] if all(fact in others for others in facts)]
    own = dict.fromkeys(fact for each in facts for fact in each if fact not in shared)
    return (*shared, *(Fact("setting", (fact.kind, *fact.numbers)) for fact in own))


def _facts(settings: Sequence[Setting], event: SelectBest, bound: float) -> tuple[Fact, ...]:
    """List the facts that tuning assumes to be public."""
    names = ", ".join(dict.fromkeys(itertools.chain(*settings)))
    return Fact("settings", (len(settings), names, event.mean)), Fact("scored-losses", (bound,))
