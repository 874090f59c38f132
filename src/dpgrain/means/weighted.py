"""Means of users weighted by their number of records, up to a maximum.

Vectors have a last coordinate: the user's number of records as a share of the maximum.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.accounting import ExponentialMechanism, Gaussian
from dpgrain.accounting.contribution import ONE_EACH
from dpgrain.inputs.population import compose_events
from dpgrain.means import recentring_budget
from dpgrain.means.clipped import ClippedMean, weights
from dpgrain.means.grid import exactly_noised
from dpgrain.means.mean_protocol import Contributions, Rule, Vectors
from dpgrain.means.problem import Candidate, MeanEstimate, Problem
from dpgrain.means.recentred import Recentred, RecentredRounds, radius_scores
from dpgrain.means.rules import WeightedClip, WeightedDifference, WeightedExcess, share_by_radius
from dpgrain.means.total_error import UserCount
from dpgrain.noise import RandomSource
from dpgrain.numerics.row_clipping import clipped
from dpgrain.publishing.facts import Fact
from dpgrain.units import User

# Parts per weight 1, in sums of weights by radius.
_PARTS = 1024
# Standard deviations of noise that the sum of weights must exceed to divide by it.
_STANDS_OUT = 4.0
# Smallest plausible sum of weights, below any weight of one record.
_LEAST = 2.0**-30


def clip_candidate(problem: Problem) -> Candidate:
    """Offer a weighted mean of vectors clipped to the bound around 0."""
    plain = weights(problem.bound, problem.d)
    mean = ClippedMean.calibrate(
        **{**problem.calibration, "n_users": 1},
        clip=plain.norm,
        rounds=1,
        unit=User(),
        exact=True,
        beside=problem.limit,
    )
    rule = WeightedDifference(np.zeros(problem.d), plain)
    return Candidate(
        "clip",
        mean,
        math.inf,
        (Fact("divided-by-weight"),),
        named={"sum and weight": mean.event},
        publish=lambda vectors, source, _: _ratio(
            mean.start(source).estimate(vectors.mapped(rule)), mean.noise_sd, plain
        ),
    )


def recentred_candidate(problem: Problem, *, or_clip: bool = False) -> Candidate:
    """Offer a weighted mean around a released centre and sum of weights."""
    problem = replace(problem, number=compose_events(problem.number, problem.limit))
    spent = recentring_budget.weighted_schedule(problem)
    last = spent.rounds - 1
    radii = ExponentialMechanism(spent.choice_scale, one_way=True, count=spent.rounds)
    kind = "weighted-iterations-or-mean" if or_clip else "weighted-iterations"
    return Candidate(
        "recentred",
        spent,
        math.inf,
        (Fact(kind, (last,)),),
        counts=True,
        named={
            "centre": Gaussian(spent.multiplier(0), ONE_EACH, last) + radii,
            "check of clipping": Gaussian(spent.check, ONE_EACH),
            "sum and weight": Gaussian(spent.multiplier(last), ONE_EACH),
        },
        then=lambda number: _with_known_weight(problem, spent, number, or_clip=or_clip),
    )


def _with_known_weight(
    problem: Problem, spent: Recentred, number: UserCount, *, or_clip: bool
) -> Candidate:
    """Plan the iterations for the released sum of weights, each part within its own budget."""
    known = replace(problem, n=number.divisor)
    mean, recommended = recentring_budget.with_known_weight(known, spent)
    if or_clip and not recommended:
        return Candidate(
            "clip",
            spent,
            math.inf,
            choice=("released", number.divisor),
            publish=lambda vectors, source, _: _around_zero(problem, mean, vectors, source),
        )
    return Candidate(
        "recentred",
        mean,
        math.inf,
        choice=("released", number.divisor) if or_clip else (),
        publish=lambda vectors, source, _: _publish(problem, mean, vectors, source, number),
    )


def total_weight(vectors: Contributions, part: Gaussian, source: RandomSource) -> UserCount:
    """Release the sum of users' shares of the maximum number of records."""
    shares = Vectors(vectors.vectors()[:, -1:])
    (total,) = exactly_noised(shares, 1.0, part, source).tolist()
    return UserCount(total, part.noise_multiplier, least=_LEAST)


def _around_zero(
    problem: Problem, mean: Recentred, vectors: Vectors, source: RandomSource
) -> MeanEstimate:
    """Publish the weighted mean of vectors clipped to the bound, with the noise of the last round."""
    run = WeightedRounds(replace(mean, rounds=1, shares=None), source)
    run.clip_around_zero(vectors, problem.bound, mean.multiplier(mean.rounds - 1))
    assert run.clipped is not None  # noqa: S101 - for the type checker
    return run.clipped


def _publish(
    problem: Problem, mean: Recentred, vectors: Vectors, source: RandomSource, number: UserCount
) -> MeanEstimate:
    """Publish the weighted mean around the centre that the first iterations found."""
    run, d = WeightedRounds(mean, source), problem.d
    for _ in range(mean.rounds):
        value = run.estimate(vectors)
    if run.clipped is not None:
        return run.clipped
    if run.divisor is None:
        return MeanEstimate(value, math.nan, run.radius, 0)
    sd, moved = run.multiplier * run.clip.norm, float(np.linalg.norm(value - run.centre))
    noise = math.hypot(sd, sd / run.clip.weight * moved / math.sqrt(d)) / run.divisor
    check = mean.check * weights(problem.bound, d).norm
    removed = number.clipped_norm(run.rest, run.centre, check)
    error = number.error(moved, sd, d, removed, divisor=run.divisor)
    n = max(round(run.divisor), 1)
    return MeanEstimate(value, noise, run.radius, n, error, "clipping", mean.beyond)


class WeightedRounds(RecentredRounds):
    """One run of a :class:`Recentred` mean of vectors with shares, in their last coordinate."""

    def __init__(self, mean: Recentred, source: RandomSource) -> None:
        super().__init__(mean, source)
        #: Bounds of the last round, and its noisy sum of weights; None if noise obscures it.
        self.clip = WeightedClip(1.0, 1.0)
        self.divisor: float | None = None

    @property
    def multiplier(self) -> float:
        """Noise multiplier of the last round."""
        return self.mean.multiplier(len(self.radii) - 1)

    def clip_around_zero(self, contributions: Contributions, bound: float, noise: float) -> None:
        """Publish the weighted mean of vectors clipped to the bound."""
        plain = weights(bound, self._dimension(contributions))
        rule = WeightedDifference(np.zeros(self._dimension(contributions)), plain)
        sums = self._sum(contributions, rule, plain.norm, noise)
        self.clipped = _ratio(sums, noise * plain.norm, plain)

    def _dimension(self, contributions: Contributions) -> int:
        return contributions.dimension - 1

    def _around(
        self, contributions: Contributions, centre: FloatArray, radius: float, part: Gaussian
    ) -> FloatArray:
        self.clip = weights(radius, len(centre))
        rule = WeightedDifference(centre, self.clip)
        sums = self._sum(contributions, rule, self.clip.norm, part.noise_multiplier)
        self.divisor = _divisor(sums, part.noise_multiplier * self.clip.norm, self.clip)
        if self.divisor is None:
            return centre
        result: FloatArray = centre + sums[:-1] / self.divisor
        if len(self.radii) == self.mean.rounds or self.mean.bound is None:
            return result
        # Vectors are within the bound, and so is their mean.
        within: FloatArray = clipped(result[None, :], self.mean.bound)[0]
        return within

    def _excess(self, plain: WeightedClip) -> Rule:
        around = WeightedDifference(self.centre, weights(self.radius, len(self.centre)))
        return WeightedExcess(around, plain)

    def _clip_to_bound(self, contributions: Contributions, bound: float) -> FloatArray:
        self.clip_around_zero(contributions, bound, self.multiplier)
        self.radii[-1] = bound
        assert self.clipped is not None  # noqa: S101 - for the type checker
        return self.clipped.value

    def _choose_radius(
        self, contributions: Contributions, centre: FloatArray, beyond: float
    ) -> float:
        mean, radii = self.mean, self.mean.choices(len(self.radii))
        first = share_by_radius(contributions, centre, radii, _PARTS)
        scores = radius_scores(first, _PARTS * mean.n_users, beyond)
        part = ExponentialMechanism(mean.choice_scale, one_way=True)
        return float(radii[int(self.source.order(part, scores, float(_PARTS**2))[0])])


def _divisor(sums: FloatArray, sd: float, clip: WeightedClip) -> float | None:
    """Return the noisy sum of weights, from the last of the sums; None if noise obscures it."""
    return float(sums[-1]) / clip.weight if sums[-1] > _STANDS_OUT * sd else None


def _ratio(sums: FloatArray, sd: float, plain: WeightedClip) -> MeanEstimate:
    """Return the weighted mean around 0 from noisy sums of vectors and weights, (d + 1,)."""
    d, divisor = len(sums) - 1, _divisor(sums, sd, plain)
    if divisor is None:
        return MeanEstimate(np.zeros(d), math.nan, plain.bound, 0)
    value, number = sums[:-1] / divisor, UserCount(divisor, sd / plain.weight, least=_LEAST)
    length = float(np.linalg.norm(value))
    noise = math.hypot(sd, number.sd * length / math.sqrt(d)) / divisor
    error = number.error(length, sd, d, divisor=divisor)
    return MeanEstimate(value, noise, plain.bound, max(round(divisor), 1), error, "number")
