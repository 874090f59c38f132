"""Looks: how a recentred mean of users shares its budget between finding their centre and the mean."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dpgrain.errors import ParameterError
from dpgrain.means.clipped import METHOD as CLIP
from dpgrain.means.problem import SMALLEST, Candidate, Method, Problem
from dpgrain.means.recentred import Recentred

# Recentring goes on only where the noise of a look around is at most this share of its radius, …
_NEARER = 0.25
# … looks take at most these shares of the budget, the first one and all together, …
_LOOK, _LOOKS = 0.0025, 0.16
# … and there are at most so many.
_MOST_LOOKS = 4
# The last look leaves so many users outside as its noise is of its radius, times this: what is cut off
# of them is then about as much; and never fewer than so many choices' noise, which tells who is there.
_OUTSIDE, _LEAST_OUTSIDE = 40.0, 8.0
# Where it takes more of them than this to tell, the result is a middle of most users, not a mean.
_MOST_OUTSIDE = 0.1


def shares(problem: Problem) -> tuple[float, ...]:
    """The shares of the budget of a few looks, each twice the last, and of the mean itself.

    Raises:
        ParameterError: if there are too few users to look around.
    """
    blurred = _blurred(problem)
    first = max(_LOOK, (blurred / _NEARER) ** 2)
    looks = min(_MOST_LOOKS, math.floor(math.log2(_LOOKS / first + 1)))
    if looks < 1:
        enough = math.ceil(problem.n * blurred / (_NEARER * math.sqrt(_LOOKS)))
        raise ParameterError(
            f"n_users = {problem.n:,} are too few for the method 'recentred' in {problem.space}: "
            f"about {enough:,} suffice; use 'clip', or 'softcore'.",
            name="n_users",
        )
    spent = [first * 2**look for look in range(looks)]
    return (*spent, 1 - sum(spent))


def most(problem: Problem) -> Recentred:
    """As many looks as there may be, fixed before the number of users is released."""
    return Recentred.calibrate(
        **problem.calibration, rounds=_MOST_LOOKS + 1, radius=2 * problem.bound, choose=True
    )


def unstated(problem: Problem, instead: str = "") -> Candidate:
    """All that may be spent on looks, and the looks for the number of users that is released.

    Args:
        problem: what is known beforehand.
        instead: what may be published in their place, in words.
    """
    spent = most(problem)
    fact = (
        f"at most {spent.rounds} looks, each around what the one before has published, as far as a "
        f"radius that is chosen inside the budget{instead}; how many, and how they share the noise, "
        "follows from the number that was released"
    )
    return Candidate("recentred", spent, math.inf, (fact,), then=lambda known: remade(known, spent))


def remade(problem: Problem, spent: Recentred) -> Candidate:
    """Looks for as many users as were released, made of what is spent.

    Args:
        problem: with the number of users.
        spent: sums have as much of μ² together, in whatever parts, and there are no more choices of
            radii, each with the same noise.
    """
    try:
        parts = shares(problem)
    except ParameterError:
        # Too few users for it: asked for nevertheless, it is the middle of most of them.
        parts = (_LOOKS, 1 - _LOOKS)
    mean = replace(
        of_rounds(spent, len(parts)),
        n_users=problem.n,
        shares=parts,
        radius=_radii(problem, len(parts)),
    )
    return _around(problem, mean)


def of_rounds(mean: Recentred, rounds: int) -> Recentred:
    """As many rounds as these, whose sums have no more of μ² together."""
    noise = mean.noise_multiplier * math.sqrt(rounds / mean.rounds) * (1 + 1e-12)
    return replace(mean, noise_multiplier=noise, rounds=rounds, shares=None)


def _made(problem: Problem) -> Candidate:
    parts = shares(problem)
    options: dict[str, Any] = {**problem.calibration, "rounds": len(parts), "shares": parts}
    radii = _radii(problem, len(parts))
    return _around(problem, Recentred.calibrate(**options, radius=radii, choose=True))


def _radii(problem: Problem, rounds: int) -> tuple[float, ...]:
    """The largest radius of each round: all users, and in the end what is stated."""
    far = 2 * problem.bound
    return (far,) * (rounds - 1) + (problem.radius or far,)


def _blurred(problem: Problem) -> float:
    """The rms noise of a mean to which the whole budget goes, ÷ its radius."""
    return CLIP.make(problem).expected / problem.bound


def _around(problem: Problem, mean: Recentred) -> Candidate:
    """Looks, with the share of users that the last one leaves outside."""
    least = _LEAST_OUTSIDE * mean.choice_scale / problem.n
    outside = min(max(_OUTSIDE * _blurred(problem), least), 0.5)
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
    # Of a radius that is not known the least there is any hope of.
    return replace(made, expected=expected * SMALLEST, tells=least <= _MOST_OUTSIDE)


METHOD = Method(
    "recentred",
    _made,
    centre="the centre found before",
    alone=True,
    unstated=unstated,
    why="{people} can look for their centre in {space}, so that noise follows how close to it they "
    "lie, not the bound",
)
