"""Localisation: successive solver runs on disjoint users, nearer and nearer.

Only the index in the population decides a user's phase, before any data are read, so that phases
compose in parallel. If the order of the population depends on people's data, shuffle it first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.optimize.solvers import Oracle, Solver, run


@dataclass(frozen=True)
class Phase:
    """One run of a solver.

    Args:
        number: the number of the phase, from 1.
        users: the population indices of the participating users.
        strength: λ; the term λ/2·‖θ − centre‖² is added to the loss, with the last solution as the
            centre.

    >>> first, second = RegularisedPhases(users=12, count=2, strength=0.5).phases()
    >>> first
    Phase(number=1, users=range(0, 9), strength=2.0)
    >>> second.users, second.strength
    (range(9, 12), 8.0)
    """

    number: int
    users: range
    strength: float = 0.0


class Localisation(Protocol):
    """Protocol of a plan of phases; public numbers only."""

    def phases(self) -> tuple[Phase, ...]:
        """Return all phases in order, with disjoint users."""


@dataclass(frozen=True)
class Phases:
    """Phases with shares of users that halve from one to the next, or double.

    Args:
        users: n, the number of users.
        count: k, the number of phases.
        growing: True if shares double, n/2^(k+1−t), False if they halve, n/2^t; the largest share
            also includes the remaining users.

    Raises:
        ParameterError: if a phase would have no users.

    Source: Asi & Liu, Algorithm 3 (growing); Feldman et al. 2020.

    >>> [len(phase.users) for phase in Phases(100, 3).phases()]
    [63, 25, 12]
    """

    users: int
    count: int
    growing: bool = False

    def __post_init__(self) -> None:
        _check(self.users, self.count, halving=True)

    def phases(self) -> tuple[Phase, ...]:
        """Return all phases."""
        sizes = _halving(self.users, self.count)
        return _planned(sizes[::-1] if self.growing else sizes, [0.0] * self.count)


@dataclass(frozen=True)
class Restarts:
    """Phases with equal shares of users; each solver starts where the last one ended.

    They are suited to strongly convex losses: each run searches a smaller region, so about log log
    n runs reach the best rate.

    Args:
        users: n, the number of users.
        count: the number of phases.

    Raises:
        ParameterError: if a phase would have no users.

    Source: shuffle paper, Theorem 4.8.

    >>> [phase.users for phase in Restarts(10, 3).phases()]
    [range(0, 4), range(4, 7), range(7, 10)]
    """

    users: int
    count: int

    def __post_init__(self) -> None:
        _check(self.users, self.count, halving=False)

    def phases(self) -> tuple[Phase, ...]:
        """Return all phases."""
        each, more = divmod(self.users, self.count)
        sizes = [each + (t < more) for t in range(self.count)]
        return _planned(sizes, [0.0] * self.count)


@dataclass(frozen=True)
class RegularisedPhases:
    """Phases with halving shares of users and a growing pull λ·4^t to the solution.

    Args:
        users: n, the number of users.
        count: the number of phases.
        strength: λ, above 0.

    Raises:
        ParameterError: if a phase would have no users, or λ is not above 0.

    Source: Levy et al., Algorithm 4.

    >>> [(len(phase.users), phase.strength) for phase in RegularisedPhases(100, 3, 0.1).phases()]
    [(63, 0.4), (25, 1.6), (12, 6.4)]
    """

    users: int
    count: int
    strength: float

    def __post_init__(self) -> None:
        _check(self.users, self.count, halving=True)
        _validate.positive(strength=self.strength)

    def phases(self) -> tuple[Phase, ...]:
        """Return all phases."""
        pulls = [self.strength * 4**t for t in range(1, self.count + 1)]
        return _planned(_halving(self.users, self.count), pulls)


def localise(
    plan: Localisation,
    oracles: Callable[[Phase], Oracle],
    solvers: Callable[[Phase], tuple[Solver[Any], int]],
    theta: FloatArray,
    callback: Callable[[Phase, FloatArray], None] | None = None,
) -> FloatArray:
    """Run a solver phase by phase, each from the previous solution.

    Args:
        plan: the phases.
        oracles: returns a phase's oracle of gradients over its users, (p,) to (p,), without the
            regularisation.
        solvers: returns a phase's solver and its number of rounds.
        theta: (p,) the start.
        callback: a function to call with each phase and its solution.

    Raises:
        ParameterError: if a number of rounds is not a positive integer, or a plan or a function is
            invalid.

    >>> from dpgrain.optimize import Constant, Last, Sgd
    >>> numbers = np.arange(8.0)
    >>> ends = localise(
    ...     Restarts(8, 2),
    ...     lambda phase: lambda theta: theta - numbers[phase.users].mean(),
    ...     lambda phase: (Sgd(Constant(0.5), average=Last()), 50),
    ...     np.zeros(1),
    ... )
    >>> ends.round(6).tolist()
    [5.5]
    """
    _validate.function(oracles=oracles)
    _validate.function(solvers=solvers)
    if callback is not None:
        _validate.function(callback=callback)
    if not callable(getattr(plan, "phases", None)) or isinstance(plan, type):
        raise ParameterError(
            f"plan must be an object with the method phases, not {_validate.describe(plan)}.",
            name="plan",
        )
    solution = _validate.float_array(theta=theta)
    for phase in plan.phases():
        answer: Any = solvers(phase)
        if not isinstance(answer, tuple) or len(answer) != 2:
            description = _validate.describe(answer)
            raise ParameterError(
                f"solvers must return a solver and a number of rounds, not {description}.",
                name="solvers",
            )
        solver, rounds = answer
        pulled = _pulled(oracles(phase), phase.strength, solution)
        solution = run(solver, pulled, solution, rounds)
        if callback is not None:
            callback(phase, solution)
    return solution


def _pulled(oracle: Oracle, strength: float, centre: FloatArray) -> Oracle:
    """Add the gradient of strength/2·‖θ − centre‖², which is public, to an oracle."""
    if strength == 0:
        return oracle
    return lambda theta: oracle(theta) + strength * (theta - centre)


def _check(users: int, count: int, *, halving: bool) -> None:
    users = _validate.integer(minimum=1, users=users)
    count = _validate.integer(minimum=1, count=count)
    most = users.bit_length() - 1 if halving else users
    if count > most:
        raise ParameterError(
            f"count must be at most {most} for {users} users, not {count}, because each phase "
            "needs at least one user."
        )


def _halving(users: int, count: int) -> list[int]:
    """Return n/2^t for t = 1, …, count, rounded down, with the rest added to the first."""
    sizes = [users // 2**t for t in range(1, count + 1)]
    return [users - sum(sizes[1:]), *sizes[1:]]


def _planned(sizes: list[int], strengths: list[float]) -> tuple[Phase, ...]:
    """Return phases of consecutive users."""
    ends = np.cumsum(sizes).tolist()
    return tuple(
        Phase(t + 1, range(end - size, end), strength)
        for t, (size, end, strength) in enumerate(zip(sizes, ends, strengths, strict=True))
    )
