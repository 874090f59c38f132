"""Fits by a curator's clipped means, with norm histograms and interval data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np

from dpgrain._progress import Progress
from dpgrain._types import FloatArray
from dpgrain.accounting import Contribution, Event, Gaussian, Selection, calibrate
from dpgrain.gradients.norms import NormHistogram, release_norms
from dpgrain.gradients.records import RecordBlocks
from dpgrain.inputs.guarantees import block_sampling_rate
from dpgrain.inputs.population import Population, compose_events
from dpgrain.inputs.record_limit import RecordLimit
from dpgrain.learn.bounding import bounded
from dpgrain.learn.classes import (
    NO_TARGETS,
    Targets,
    block_contribution,
    plan_selection,
    select_labels,
    selection_fact,
)
from dpgrain.learn.confidence import check_curvature, interval_warnings, release_evidence
from dpgrain.learn.fit_config import FitConfig
from dpgrain.learn.fit_data import Classes, FitData, FitResult, LoadedRows
from dpgrain.learn.program import start_warning
from dpgrain.learn.rounds import History, count_records, round_facts, train
from dpgrain.learn.rows import record_blocks, ridge_strengths
from dpgrain.means import ClippedMean
from dpgrain.optimize import Solver
from dpgrain.publishing import Charge
from dpgrain.publishing.draws import CountedSource
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.promise import Promise
from dpgrain.publishing.release_plan import compose, present
from dpgrain.words.notes import Note

# Rounds with all blocks; with sampling, the number of passes. With an explicit bound no rounds find
# the scale of the solution, and coin betting, which does not need the scale, uses more rounds.
_ROUNDS, _ROUNDS_WITHOUT_SCALE = 50, 100
# Share of the budget (of μ²) for choosing the clipping bound and counting blocks.
_NORMS_SHARE = 0.1
# One round in this many finds the neighbourhood of the solution, if a bound is chosen.
_WARM_UP = 5
# Ratio of the median initial norm to the clipping bound of those rounds: noise is then small, but
# gradients do not count only by direction, for which a classifier's root would be far beyond the
# solution.
_WARM_UP_RATIO = 4.0
# Noise of all rounds, in mean gradients of isotropic records, beyond which fits are often worse than
# their start: a fifth were at 1.5 (docs/papers/which-recipe.md).
_START_NOISE = 2.0
# Approximate share of the clipped norm that adds up; the rest cancels.
_ALIGNED = 0.25


@dataclass(frozen=True, eq=False)
class CentralFit:
    """Noise of a fit: its mean for clipping bound 1, norm histograms and the rest."""

    config: FitConfig
    mean: ClippedMean
    norms: Gaussian | None
    evidence: Gaussian | None
    roster: Population
    labels: Selection | None
    limit: RecordLimit | None
    targets: Targets
    width: int

    @staticmethod
    def calibrate(
        config: FitConfig, promise: Promise, targets: Targets = NO_TARGETS, width: int = 0
    ) -> CentralFit:
        """Return the noise of every part, from public numbers."""
        counted = block_contribution(promise.unit, "nonnegative")
        signed = block_contribution(promise.unit, "signed")
        tuned = "auto" in (config.clipping, config.elements_per_user)
        count = 2 if config.warms_up else 1
        norms = _gaussian_part(promise, counted, _NORMS_SHARE, count) if tuned else None
        evidence = _gaussian_part(promise, signed, config.intervals) if config.intervals else None
        roster = Population.create(config.n_users, promise)
        labels = None if targets.labels is None else plan_selection(promise)
        limit = RecordLimit.create(config.weights, config.max_records, promise)
        rate = block_sampling_rate(config.sampling, config.sampling_rate, config.n_users)
        rounds = math.ceil((_ROUNDS if config.warms_up else _ROUNDS_WITHOUT_SCALE) / rate)
        mean = ClippedMean.calibrate(
            epsilon=promise.epsilon,
            delta=promise.delta,
            relation=promise.relation,
            # The charge does not depend on it; without a stated number it is set later.
            n_users=config.n_users or 1,
            rounds=config.rounds or rounds,
            unit=promise.unit,
            sampling_rate=rate,
            sampling="users" if config.sampling == "users" else "pairs",
            exact=config.exact,
            beside=compose_events(
                norms, evidence, roster.event, labels, None if limit is None else limit.event
            ),
        )
        return CentralFit(config, mean, norms, evidence, roster, labels, limit, targets, width)

    @property
    def event(self) -> Event:
        """Accounting event of the whole fit."""
        return compose(self.parts)

    @property
    def parts(self) -> dict[str, Event]:
        """Parts of the event by name."""
        return present(
            {
                "rounds": self.mean.event,
                "norm histogram": self.norms,
                "evidence": self.evidence,
                "number of users": self.roster.event,
                "labels": self.labels,
                "record limit": None if self.limit is None else self.limit.event,
            }
        )

    @property
    def round_facts(self) -> tuple[Fact, ...]:
        """Public facts about the rounds."""
        clip = None if self.config.clipping == "auto" else float(self.config.clipping)
        return (*round_facts(self.mean, clip), *self.config.facts)

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Public facts."""
        labels = () if self.labels is None else (selection_fact(self.labels),)
        weights = () if self.limit is None else self.limit.facts
        return (*self.roster.facts, *self.targets.public, *labels, *weights, *self.round_facts)

    @property
    def care(self) -> tuple[Note, ...]:
        """Warnings based on public numbers, each a kind and its numbers."""
        if self.config.n_users is None or self.labels is not None:
            return ()
        parameters = self.check_loss(self.targets.classes)
        # The mean has clipping bound 1, so 1 is the largest norm of a gradient.
        noise = self.mean.noise_sd / math.sqrt(self.mean.rounds)
        return (
            *start_warning("start", noise, parameters, 1.0, _START_NOISE),
            *interval_warnings(self.evidence, parameters, self.config.n_users),
        )

    def check_loss(self, classes: Classes) -> int:
        """Reject a loss without the curvature for intervals; return the number of parameters."""
        loss = self.config.loss(classes)
        parameters = loss.outputs * (self.width + self.config.fit_intercept)
        if self.evidence is not None:
            check_curvature(loss, parameters)
        return parameters

    def run(self, data: LoadedRows, charge: Charge, progress: bool | None = None) -> FitResult:
        """Run the whole release within its charge."""
        n = self.roster.size(lambda: data.rows.users, charge)
        if self.labels is not None:
            data = self._select_labels(cast(FitData, data), charge.rounds(self.labels))
        counts = None
        if self.limit is not None:
            local = cast(FitData, data)
            parameters = self.check_loss(local.targets.classes)
            counts = count_records(self.limit, self.mean, local.sizes, parameters, charge)
            data = replace(local, max_records=counts.most)
        source = charge.rounds(self.mean.event.beside(compose_events(self.norms, self.evidence)))
        with Progress(self.mean.rounds, progress) as bar:
            result = _CentralRun(self, data, n, source, bar).result()
        if counts is None:
            return result
        return replace(result, max_records=counts.most, mean_weight=counts.mean_weight(n))

    def _select_labels(self, data: FitData, source: CountedSource) -> FitData:
        """Return the rows with selected labels."""
        assert self.labels is not None  # noqa: S101 - for the type checker
        classes, values = select_labels(data.targets, data.rows, self.labels, source)
        self.check_loss(classes)
        return replace(data, targets=replace(data.targets, values=values, classes=classes))


def _gaussian_part(
    promise: Promise, contribution: Contribution, share: float, count: int = 1
) -> Gaussian:
    """Return Gaussian releases with a common share of the budget in μ²."""
    whole = calibrate(
        lambda noise: Gaussian(noise, contribution),
        promise.epsilon,
        promise.delta,
        unit=promise.unit,
        relation=promise.relation,
    )
    return Gaussian(whole.parameter * math.sqrt(count / share), contribution, count)


class _CentralRun:
    """Releases of one fit with known labels; ``n`` is the divisor of sums in users."""

    def __init__(
        self, fit: CentralFit, data: LoadedRows, n: int, source: CountedSource, bar: Progress
    ) -> None:
        self.bar = bar
        self.fit, self.config, self.source, self.n = fit, fit.config, source, n
        self.classes = data.targets.classes
        self.loss, self.data = self.config.loss(self.classes), data
        self.gradients = partial(data.gradients(self.config), self.loss)
        self.ridge = ridge_strengths(self.config, self.loss.outputs, fit.width)
        self.histograms: list[NormHistogram] = []

    def result(self) -> FitResult:
        """Run the whole release."""
        start: FloatArray = np.zeros(len(self.ridge))
        mean, start = self._warm_up(replace(self.fit.mean, n_users=self.n), start)
        mean = self._choose_scale(mean, start)
        records = None if self.fit.evidence is None else self._records()
        solver = self.config.solver
        if self.config.warms_up:
            # All fits begin at 0; the remaining rounds continue from the end of the first rounds.
            noise = mean.noise_sd * math.sqrt(mean.rounds)
            solver = self.config.after_warming_up(start, noise)
        theta, history = self._steps(mean, start, solver)
        evidence = None
        if self.fit.evidence is not None and records is not None:
            evidence = release_evidence(
                records,
                cast(FitData, self.data).rows.owners,
                self.loss,
                theta,
                clip=mean.clip,
                n_users=mean.n_users,
                blocks_per_user=mean.blocks_per_user,
                whole=mean.level == "user",
                event=self.fit.evidence,
                source=self.source,
            )
        return FitResult(
            theta,
            self.loss.outputs,
            history,
            mean.rounds,
            self.n,
            mean.sampling_rate < 1,
            self.classes,
            evidence,
            tuple(self.histograms),
            self.fit.mean.rounds - mean.rounds,
        )

    def _records(self) -> RecordBlocks:
        """Return the rows as records, for second moments."""
        data = cast(FitData, self.data)
        rows, bound = data.rows, self.config.feature_bound
        X, y = data.X[rows.indices], data.targets.values[rows.indices]
        X = X if bound is None else bounded(X, bound)
        intercept, most = self.config.fit_intercept, data.max_records
        return record_blocks(X, y, rows, intercept=intercept, max_records=most)

    def _warm_up(self, mean: ClippedMean, start: FloatArray) -> tuple[ClippedMean, FloatArray]:
        """Return the remaining rounds, and a point near the solution for choosing a bound."""
        if not self.config.warms_up:
            return mean, start
        # Far from the solution, norms show the distance instead of the differences between users.
        short = self._release_norms(start).middle / _WARM_UP_RATIO
        first = min(max(1, mean.rounds // _WARM_UP), mean.rounds - 1)
        near = start
        if first:
            near, _ = self._steps(
                replace(mean, rounds=first, clip=short), start, self.config.solver
            )
        return replace(mean, rounds=mean.rounds - first, clip=short), near

    def _choose_scale(self, mean: ClippedMean, start: FloatArray) -> ClippedMean:
        """Return the mean with explicit or chosen clipping bound and divisor."""
        clip, blocks_per_user = self.config.clipping, self.config.elements_per_user
        if self.fit.norms is not None:
            norms = self._release_norms(start)
            result = max(norms.blocks / mean.n_users, 1 / mean.n_users)
            if clip == "auto":
                # Raising the bound by 1 adds 1 of this noise to the sum of gradients over all rounds,
                # and recovers a norm of 1 for each block beyond it.
                noise = mean.noise_multiplier * math.sqrt(len(start) / mean.rounds)
                tolerated = noise / mean.sampling_rate / _ALIGNED
                clip = norms.bound(tolerated, mean.clip, gaps=self.config.weights == "records")
            blocks_per_user = result if blocks_per_user == "auto" else blocks_per_user
        if clip == "auto" or blocks_per_user == "auto":
            return mean
        return mean.scaled(clip=clip, blocks_per_user=blocks_per_user)

    def _release_norms(self, theta: FloatArray) -> NormHistogram:
        """Publish the histogram of norms at a point."""
        event = self.fit.norms
        assert event is not None  # noqa: S101 - for the type checker
        self.histograms.append(release_norms(self.gradients(theta), event, self.source))
        return self.histograms[-1]

    def _steps(
        self, mean: ClippedMean, start: FloatArray, solver: Solver[Any]
    ) -> tuple[FloatArray, History]:
        return train(
            self.gradients,
            mean,
            solver,
            start,
            self.source,
            public=lambda theta: self.ridge * theta,
            owners=self.data.rows.owners,
            progress=self.bar,
        )
