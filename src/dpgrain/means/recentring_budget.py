"""Budget of a recentred mean of users, split between its centre and the mean."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgrain._lazy_import import lazy_import
from dpgrain.errors import ParameterError
from dpgrain.means.clipped import weights
from dpgrain.means.mean_protocol import Vectors
from dpgrain.means.problem import Candidate, MeanEstimate, Method, Problem
from dpgrain.means.recentred import Recentred, RecentredRounds
from dpgrain.means.total_error import UserCount
from dpgrain.noise import RandomSource
from dpgrain.publishing.facts import Fact

if TYPE_CHECKING:
    from dpgrain.means import weighted
else:
    weighted = lazy_import("dpgrain.means.weighted")

# Max ratio of an iteration's noise to its radius to continue recentring.
_NOISE_PER_RADIUS = 0.25
# Shares of the budget: minimum for the first iteration, and maximum for all iterations together.
_MIN_FIRST_SHARE, _MAX_CENTRE_SHARE = 0.0025, 0.16
# Maximum number of iterations that find the centre.
_MAX_ITERATIONS = 4
# The share of users that the last iteration leaves outside is the first number times its noise ÷
# radius, so that the clipped amount is about as large as the noise. It is at least the second
# number times the noise of choosing a radius, in users: fewer could not be distinguished from
# noise.
_OUTSIDE_PER_NOISE, _MIN_OUTSIDE_SCALES = 40.0, 8.0
# Max share of users outside; and max lower limit of that share for "auto" to recentre: above it,
# noise determines the radii.
_MAX_OUTSIDE, _MAX_MIN_OUTSIDE = 0.5, 1.0
# Share of the budget of sums, times √d, for checking what the last iteration removes. With it, the
# error of the mean is at most three times the error of clipping to the bound, for any data
# (docs/theory).
_CHECK = 0.4


def shares(problem: Problem) -> tuple[float, ...]:
    """Return the budget shares of iterations, each twice the last, and the mean."""
    noise = _relative_noise(problem)
    first = max(_MIN_FIRST_SHARE, (noise / _NOISE_PER_RADIUS) ** 2)
    iterations = min(_MAX_ITERATIONS, math.floor(math.log2(_MAX_CENTRE_SHARE / first + 1)))
    if iterations < 1:
        enough = math.ceil(problem.n * noise / (_NOISE_PER_RADIUS * math.sqrt(_MAX_CENTRE_SHARE)))
        raise ParameterError(
            f"n_users = {problem.n:,} is too small for the method 'recentred' in {problem.space}; "
            f"use about {enough:,} users, or the method 'clip' or 'softcore'.",
            name="n_users",
        )
    spent = [first * 2**k for k in range(iterations)]
    return (*spent, 1 - sum(spent))


def max_schedule(problem: Problem) -> Recentred:
    """Return the mean with the most iterations, fixed without the number of users."""
    return Recentred.calibrate(
        **_options(problem), rounds=_MAX_ITERATIONS + 1, beside=problem.number
    )


def candidate_without_n(problem: Problem, *, or_mean: bool = False) -> Candidate:
    """Return the longest schedule, shortened after the number of users is released."""
    spent = max_schedule(problem)
    fact = Fact("iterations-or-mean" if or_mean else "iterations-at-most", (spent.rounds,))
    return Candidate(
        "recentred",
        spent,
        math.inf,
        (fact,),
        counts=True,
        then=lambda number: with_known_count(replace(problem, n=number.divisor), spent),
    )


def with_known_count(problem: Problem, spent: Recentred) -> Candidate:
    """Plan the iterations for the released number of users within the charged budget."""
    # The sums of the new mean have the same total of μ², in other parts; it has no more choices of
    # radii, each with the same noise.
    try:
        parts = shares(problem)
    except ParameterError:
        # There are too few users; an explicit request still returns the median of most users.
        parts = (_MAX_CENTRE_SHARE, 1 - _MAX_CENTRE_SHARE)
    return _candidate(problem, _divided(problem, spent, parts))


def weighted_schedule(problem: Problem) -> Recentred:
    """Return the weighted mean with the most iterations, and a fixed share for the last round."""
    each = _MAX_CENTRE_SHARE / _MAX_ITERATIONS
    shares = (*(each,) * _MAX_ITERATIONS, 1 - _MAX_CENTRE_SHARE)
    return Recentred.calibrate(
        **_options(problem), rounds=len(shares), shares=shares, beside=problem.number
    )


def with_known_weight(problem: Problem, spent: Recentred) -> tuple[Recentred, bool]:
    """Plan weighted iterations for the released sum of weights; True if it suffices."""
    # The iterations share their charged budget, and the last round has its own.
    try:
        first, recommended = shares(problem)[:-1], True
    except ParameterError:
        first, recommended = (_MAX_CENTRE_SHARE,), False
    parts = (*(_MAX_CENTRE_SHARE * one / sum(first) for one in first), 1 - _MAX_CENTRE_SHARE)
    mean = _divided(problem, spent, parts)
    return mean, recommended and _min_outside(problem, mean) <= _MAX_MIN_OUTSIDE


def _divided(problem: Problem, spent: Recentred, parts: tuple[float, ...]) -> Recentred:
    """Return a mean that divides a charged budget in other parts."""
    noise = spent.noise_multiplier * math.sqrt(len(parts) / spent.rounds) * (1 + 1e-12)
    mean = replace(
        spent, noise_multiplier=noise, rounds=len(parts), n_users=problem.n, shares=parts
    )
    return _with_outside(problem, mean)


def total_noise_multiplier(spent: Recentred) -> float:
    """Return the noise multiplier of one sum with the budget of all sums of a mean."""
    budget = spent.rounds / spent.noise_multiplier**2 + spent.check**-2
    return 1 / math.sqrt(budget) * (1 + 1e-12)


def _options(problem: Problem) -> dict[str, Any]:
    """Return the arguments of calibrations; the largest radius contains all users."""
    far = 2 * problem.bound
    check = _CHECK / math.sqrt(problem.d)
    options = {"radius": far, "bound": problem.bound, "choose": True, "check": check}
    return {**problem.calibration, **options}


def _make(problem: Problem) -> Candidate:
    parts = shares(problem)
    mean = Recentred.calibrate(
        **_options(problem), rounds=len(parts), shares=parts, beside=problem.number
    )
    return _candidate(problem, _with_outside(problem, mean))


def _relative_noise(problem: Problem) -> float:
    """Return the RMS noise of a mean with the whole budget, ÷ its radius."""
    noise = Recentred.calibrate(**problem.calibration, rounds=1, radius=1.0, beside=problem.number)
    return noise.noise_sd * math.sqrt(problem.d)


def _candidate(problem: Problem, mean: Recentred) -> Candidate:
    """Return the candidate of a schedule; the number of users is released first."""
    facts = (Fact("iterations", (mean.rounds, mean.beyond)),)
    return Candidate(
        "recentred",
        mean,
        _expected(problem, mean),
        facts,
        counts=True,
        is_recommended=_relative_noise(problem) <= _NOISE_PER_RADIUS * math.sqrt(_MAX_CENTRE_SHARE)
        and _min_outside(problem, mean) <= _MAX_MIN_OUTSIDE,
        publish=lambda vectors, source, number: _publish(problem, mean, vectors, source, number),
    )


def _with_outside(problem: Problem, mean: Recentred) -> Recentred:
    """Return the schedule with the share of users outside of the last radius."""
    least = _min_outside(problem, mean)
    outside = min(max(_OUTSIDE_PER_NOISE * _relative_noise(problem), least), _MAX_OUTSIDE)
    return replace(mean, beyond=outside)


def _min_outside(problem: Problem, mean: Recentred) -> float:
    """Return the smallest share of users outside that is distinguishable from noise."""
    return _MIN_OUTSIDE_SCALES * mean.choice_scale / problem.n


def _expected(problem: Problem, mean: Recentred) -> float:
    """Return the expected RMS error if users are within the stated radius of a point."""
    radius = problem.bound if problem.radius is None else problem.radius
    whole = mean.expected(weights(problem.bound, problem.d).norm, 0.0, problem.d)
    if mean.expected(radius, mean.beyond, problem.d) >= whole:
        # The last iteration would clip to the bound.
        return whole
    # The clipped amount is about as large as the noise.
    return math.sqrt(2.0) * mean.expected(radius, 0.0, problem.d)


def _publish(
    problem: Problem,
    mean: Recentred,
    vectors: Vectors,
    source: RandomSource,
    number: UserCount | None,
) -> MeanEstimate:
    """Publish the mean of the last iteration, for the released number of users."""
    number = UserCount(mean.n_users, 0.0) if number is None else number
    mean = replace(mean, n_users=number.divisor)
    run = RecentredRounds(mean, source, problem.n if problem.stated else None)
    for _ in range(mean.rounds):
        value = run.estimate(vectors)
    if run.clipped is not None:
        return run.clipped
    moved, d = float(np.linalg.norm(value - run.centre)), vectors.dimension
    noise = math.hypot(run.noise_sd, number.divisor_sd * moved / math.sqrt(d) / mean.n_users)
    check = mean.check * weights(problem.bound, d).norm
    clipped_norm = number.clipped_norm(run.rest, run.centre, check)
    error = number.error(moved, run.noise_sd * mean.n_users, d, clipped_norm)
    return MeanEstimate(value, noise, run.radius, mean.n_users, error, "clipping", mean.beyond)


METHOD = Method(
    "recentred",
    _make,
    weighted=lambda problem: weighted.recentred_candidate(problem),
    centre="the centre found before",
    distributed=True,
    make_without_n=candidate_without_n,
)
