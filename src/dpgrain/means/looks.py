"""Looks share the budget of a recentred mean of users between finding their centre and the mean."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dpgrain.errors import ParameterError
from dpgrain.means.clipped import METHOD as CLIP
from dpgrain.means.problem import SMALLEST, Candidate, Method, Problem
from dpgrain.means.recentred import Recentred

# Recentring goes on only where the noise of a look around is at most this share of its radius.
_NOISE_PER_RADIUS = 0.25
# The first look takes at least the first share of the budget; all looks together take at most the
# second.
_FIRST_LOOK_SHARE, _LOOKS_SHARE = 0.0025, 0.16
# There are at most this many looks.
_MOST_LOOKS = 4
# The share of users that the last look leaves outside is the first number times its noise ÷ radius,
# so that what is cut off is about as large as the noise. It is at least the second number times the
# noise of a choice of a radius, in users: fewer could not be told from noise.
_OUTSIDE_PER_NOISE, _LEAST_OUTSIDE_SCALES = 40.0, 8.0
# Where that least share is larger than this, the result is a middle of most users, not a mean.
_MOST_OUTSIDE_SHARE = 0.1


def shares(problem: Problem) -> tuple[float, ...]:
    """Return the shares of the budget of a few looks, each twice the last, and of the mean itself.

    Raises:
        ParameterError: if there are too few users to look around.
    """
    blurred = _blurred(problem)
    first = max(_FIRST_LOOK_SHARE, (blurred / _NOISE_PER_RADIUS) ** 2)
    looks = min(_MOST_LOOKS, math.floor(math.log2(_LOOKS_SHARE / first + 1)))
    if looks < 1:
        enough = math.ceil(problem.n * blurred / (_NOISE_PER_RADIUS * math.sqrt(_LOOKS_SHARE)))
        raise ParameterError(
            f"n_users = {problem.n:,} are too few for the method 'recentred' in {problem.space}: "
            f"about {enough:,} suffice; use 'clip', or 'softcore'.",
            name="n_users",
        )
    spent = [first * 2**look for look in range(looks)]
    return (*spent, 1 - sum(spent))


def most(problem: Problem) -> Recentred:
    """Return the mean with most looks, fixed before the number of users is released."""
    return Recentred.calibrate(
        **problem.calibration, rounds=_MOST_LOOKS + 1, radius=2 * problem.bound, choose=True
    )


def unstated(problem: Problem, instead: str = "") -> Candidate:
    """Offer most looks beforehand, and fewer once the number of users is released.

    Args:
        problem: the problem, without the number of users.
        instead: the words for what may be published in the place of looks.
    """
    spent = most(problem)
    fact = (
        f"at most {spent.rounds} looks, each around what the one before has published, as far as a "
        f"radius that is chosen inside the budget{instead}; how many, and how they share the noise, "
        "follows from the number that was released"
    )
    return Candidate("recentred", spent, math.inf, (fact,), then=lambda known: remade(known, spent))


def remade(problem: Problem, spent: Recentred) -> Candidate:
    """Make looks for the number of users that was released, out of the budget that is spent.

    Args:
        problem: the problem, with the number of users.
        spent: the mean that was paid for. The sums of the new one have as much of μ² together, in
            other parts; it has no more choices of radii, each with the same noise.
    """
    try:
        parts = shares(problem)
    except ParameterError:
        # There are too few users; who asks for it nevertheless gets the middle of most of them.
        parts = (_LOOKS_SHARE, 1 - _LOOKS_SHARE)
    mean = replace(
        of_rounds(spent, len(parts)),
        n_users=problem.n,
        shares=parts,
        radius=_radii(problem, len(parts)),
    )
    return _around(problem, mean)


def of_rounds(mean: Recentred, rounds: int) -> Recentred:
    """Change the number of rounds, whose sums have no more of μ² together than before."""
    noise = mean.noise_multiplier * math.sqrt(rounds / mean.rounds) * (1 + 1e-12)
    return replace(mean, noise_multiplier=noise, rounds=rounds, shares=None)


def _made(problem: Problem) -> Candidate:
    parts = shares(problem)
    options: dict[str, Any] = {**problem.calibration, "rounds": len(parts), "shares": parts}
    radii = _radii(problem, len(parts))
    return _around(problem, Recentred.calibrate(**options, radius=radii, choose=True))


def _radii(problem: Problem, rounds: int) -> tuple[float, ...]:
    """Return each round's largest radius: it holds all users, but in the last round is as stated."""
    far = 2 * problem.bound
    return (far,) * (rounds - 1) + (problem.radius or far,)


def _blurred(problem: Problem) -> float:
    """Return the rms noise of a mean to which the whole budget goes, ÷ its radius."""
    return CLIP.make(problem).expected / problem.bound


def _around(problem: Problem, mean: Recentred) -> Candidate:
    """Offer looks, with the share of users that the last one leaves outside."""
    least = _LEAST_OUTSIDE_SCALES * mean.choice_scale / problem.n
    outside = min(max(_OUTSIDE_PER_NOISE * _blurred(problem), least), 0.5)
    mean = replace(mean, beyond=outside, bound=problem.bound)
    facts = (
        f"{mean.rounds} looks, each around what the one before has published, as far as a radius "
        f"that is chosen inside the budget, at most {mean.radius_of(mean.rounds - 1):g} in the "
        f"end, and leaves about {outside:.0%} of the users outside then",
    )
    expected = mean.noise_sd * math.sqrt(problem.d)
    made = Candidate("recentred", mean, expected, facts, outside=outside)
    if problem.radius is not None:
        return made
    # Where no radius is known, the expected error is that of the smallest one to hope for.
    return replace(made, expected=expected * SMALLEST, tells=least <= _MOST_OUTSIDE_SHARE)


METHOD = Method(
    "recentred",
    _made,
    centre="the centre found before",
    alone=True,
    unstated=unstated,
    why="{people} can look for their centre in {space}, so that noise follows how close to it they "
    "lie, not the bound",
)
