"""Private choice of hyper-parameters by random numbers of fits, and the cost of cross-validation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dpgrain import _validate
from dpgrain.accounting import Event, Gaussian, Parallel, SelectBest, calibrate
from dpgrain.accounting.losses.gaussian import gaussian_mu
from dpgrain.choices.scores import STEPS, BlockLosses, sum_losses
from dpgrain.errors import ParameterError
from dpgrain.learn.central import CentralFit
from dpgrain.learn.classes import block_contribution
from dpgrain.learn.confidence import check_curvature
from dpgrain.learn.fit_config import FitConfig
from dpgrain.learn.fit_data import FitData, FitResult
from dpgrain.learn.program import Recipe
from dpgrain.learn.query import FitQuery
from dpgrain.learn.rows import FitRows
from dpgrain.optimize import MarginLoss
from dpgrain.publishing import Charge, Plan, Promise, annotate_interrupt
from dpgrain.publishing.facts import Fact

if TYPE_CHECKING:
    from dpgrain.learn.model import LinearModel

from dpgrain.publishing.guarantee import Guarantee, check_guarantee

Setting: TypeAlias = dict[str, Any]

# Mean number of runs per setting, and the share of a run's μ² for scoring.
_MEAN_RUNS, _SCORE_SHARE = 3.0, 0.1
# Records' losses are clamped to this value for scoring; a low one prefers overconfident fits.
_LOSS_BOUND = 4.0
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
    """Return the settings of a grid, or a list of settings, in a public order."""
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


def tuned_query(config: FitConfig, promise: Promise, rows: FitRows) -> TunedQuery:
    """Return a query for the best of several fits within the model's (ε, δ).

    Formal guarantee: the event :class:`dpgrain.accounting.SelectBest` of one run, its fit and its
    score. Source: Papernot & Steinke 2022, Theorem 2; docs/theory, "Tuning". The number of runs
    and their duration must stay secret.
    """
    settings = tuple(parse_grid(config.tune, list(config.parameters)))
    query = TunedQuery.of(config, promise, rows, settings=settings)
    targets = query.targets
    if targets.labels is not None:
        raise ParameterError("classes is required with tune; pass all labels as classes=[…].")
    if config.intervals:
        loss = config.loss(targets.classes)
        check_curvature(loss, loss.outputs * (query.width + config.fit_intercept))
    # Rejects a setting that is out of range.
    _ = query.candidates
    return query


@dataclass(frozen=True, eq=False, repr=False)
class TunedQuery(FitQuery):
    """Query for a tuned fit, created by :func:`tuned_query`."""

    settings: tuple[Setting, ...] = ()

    @cached_property
    def candidates(self) -> tuple[FitConfig, ...]:
        """Parameters of the fits with each setting."""
        return tuple(_candidate(self.config, setting) for setting in self.settings)

    @cached_property
    def runs_noise(self) -> _Noise:
        """Noise of all runs."""
        return _calibrate_fits(self.promise, self.candidates, _MEAN_RUNS * len(self.settings))

    @property
    def plan(self) -> Plan:
        """Noise of all runs, and of the choice between them."""
        noise, fits = self.runs_noise, self.candidates
        facts = (
            # If it is not stated, each run publishes the number of users within its own part.
            *_fit_noise(fits[0], self.promise, noise.epsilon).roster.facts,
            *self.targets.public,
            *_fit_facts(fits, self.promise),
            *_facts(self.settings, noise.event),
        )
        return self.plan_of({"fits": noise.event}, facts, self.rows.elements)

    def run(self, charge: Charge) -> LinearModel:
        """Run all fits, and return the best."""
        noise, model = self.runs_noise, self.config.model()
        with annotate_interrupt("the fits"), self.opened(model, charge) as rows:
            blocks = BlockLosses(rows.rows, 0.0, _LOSS_BOUND)
            data = _TuningData(rows, blocks, self.config.loss(self.targets.classes))
            one_of = partial(self._once, data=data)
            result, setting = charge.best_of(noise.event, len(self.settings), one_of)
        return self.fitted(model, result, charge.guarantee, setting)

    def _once(
        self, index: int, charge: Charge, data: _TuningData
    ) -> tuple[float, tuple[FitResult, Setting]]:
        """Fit with one setting, and score the fit."""
        noise, config = self.runs_noise, self.candidates[index]
        fit = replace(_fit_noise(config, self.promise, noise.epsilon), width=self.width)
        # A progress bar would reveal the number of fits.
        result = fit.run(data.fit, charge.one_of(noise.fit, fit.event), progress=False)
        model = config.model().adopt(result)
        score = -_noisy_score(model, noise.score, data, charge)
        return score, (result, self.settings[index])


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
    """Rows of all runs, with the blocks' contributions to a score, and the loss that scores."""

    fit: FitData
    blocks: BlockLosses
    loss: MarginLoss


def _candidate(config: FitConfig, setting: Setting) -> FitConfig:
    """Return validated parameters with a setting."""
    candidate: FitConfig = config.model().set_params(**setting, tune=None).config()
    if candidate.trust != "central":
        raise ParameterError(
            f"trust must be 'central' with tune, not {_validate.describe(candidate.trust)}, because "
            "recipes are not tuned."
        )
    if isinstance(candidate.algorithm, Recipe):
        raise ParameterError(
            "algorithm must be 'auto' or a solver with tune, not "
            f"{_validate.describe(candidate.algorithm)}, because recipes are not tuned."
        )
    return candidate


def _calibrate_fits(promise: Promise, candidates: Sequence[FitConfig], mean: float) -> _Noise:
    """Return the largest ε of a fit for which all runs satisfy the model's guarantee."""

    def among(some: Sequence[FitConfig]) -> _Noise:
        result = calibrate(
            lambda epsilon: _event(promise, some, epsilon, mean),
            promise.epsilon,
            promise.delta,
            search="largest",
            unit=promise.unit,
            relation=promise.relation,
            low=1e-3 * promise.epsilon,
            high=promise.epsilon,
        )
        return _Noise(result.parameter, _score(promise, result.parameter), result.event)

    # Most settings do not affect the noise, so one of them is enough.
    noise = among(candidates[:1])
    if noise.event == _event(promise, candidates, noise.epsilon, mean):
        return noise
    return among(candidates)


def _event(
    promise: Promise, candidates: Sequence[FitConfig], epsilon: float, mean: float
) -> SelectBest:
    """Return the event of all runs; each costs as much as the worst setting."""
    fits = (_fit_noise(candidate, promise, epsilon) for candidate in candidates)
    events: tuple[Event, ...] = tuple(dict.fromkeys(fit.event for fit in fits))
    fit = events[0] if len(events) == 1 else Parallel(events)
    return SelectBest((fit, _score(promise, epsilon)), mean)


def _score(promise: Promise, epsilon: float) -> Gaussian:
    """Return the noise of the total loss, next to a fit with this ε."""
    contribution = block_contribution(promise.unit, "one")
    whole = contribution.sensitivity(1, promise.relation, promise.unit)
    return Gaussian(
        whole / (gaussian_mu(epsilon, promise.delta) * math.sqrt(_SCORE_SHARE)), contribution
    )


def _fit_noise(candidate: FitConfig, promise: Promise, epsilon: float) -> CentralFit:
    """Return the noise of a fit with this ε."""
    return CentralFit.calibrate(candidate, replace(promise, epsilon=epsilon))


def _noisy_score(
    candidate: LinearModel, event: Gaussian, data: _TuningData, charge: Charge
) -> float:
    """Return the noisy total of blocks' losses, in bounds."""
    # Targets have the scale of the fits.
    margins = candidate.margins(data.fit.X) / candidate.target_scale
    targets, loss = data.fit.targets, data.loss
    with np.errstate(all="ignore"):
        # A warning would reveal a user's row.
        z = margins if margins.ndim == 2 else margins[:, None]
        losses = loss.at(z[:, 0] if loss.outputs == 1 else z, targets.values)
    lost = np.array([sum_losses(data.blocks.of(losses))])
    return float(charge.noisy(event, lost, STEPS)[0]) / STEPS


def _fit_facts(candidates: Sequence[FitConfig], promise: Promise) -> tuple[Fact, ...]:
    """Return the public facts common to all fits, and those that depend on the setting."""
    facts = [CentralFit.calibrate(each, promise).round_facts for each in candidates]
    shared = [fact for fact in facts[0] if all(fact in others for others in facts)]
    own = dict.fromkeys(fact for each in facts for fact in each if fact not in shared)
    return (*shared, *(Fact("setting", (fact.kind, *fact.numbers)) for fact in own))


def _facts(settings: Sequence[Setting], event: SelectBest) -> tuple[Fact, ...]:
    """List the facts that tuning assumes to be public."""
    names = ", ".join(dict.fromkeys(itertools.chain(*settings)))
    return Fact("settings", (len(settings), names, event.mean)), Fact(
        "scored-losses", (_LOSS_BOUND,)
    )


def cross_validated(guarantee: Guarantee, folds: int) -> Guarantee:
    """Return the guarantee of cross-validation with folds split by user.

    Args:
        guarantee: the guarantee of one fit.
        folds: the number of folds, at least 2; each user is in all fits but one.

    Returns:
        the guarantee of all fits. Scores on held-out users have no noise: they are for internal use
        only, and publishing one is another release.

    Raises:
        ParameterError: if ``folds`` is not an integer of at least 2.

    >>> from dpgrain.accounting import Contribution, Gaussian
    >>> one = Guarantee("user", "", "zero_out", 1e-6, Gaussian(9.0, Contribution(block="user")))
    >>> round(one.epsilon(), 2), round(cross_validated(one, 5).epsilon(), 2)
    (0.44, 0.93)
    """
    folds = _validate.integer(minimum=2, folds=folds)
    check_guarantee(guarantee)
    event = guarantee.event
    for _ in range(folds - 2):
        event = event + guarantee.event
    fact = Fact("folds", (folds,))
    return replace(guarantee, event=event, public=(*guarantee.public, fact))
