"""A share of the open budget, instead of ε and δ, and the ε that uses it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from dpgrain import _validate
from dpgrain.accounting import Event, gaussian_epsilon
from dpgrain.errors import ParameterError
from dpgrain.publishing.budget import Budget, open_budget
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.prices import SUM_TOLERANCE, price
from dpgrain.units import PLAIN_UNITS, Relation, Unit

if TYPE_CHECKING:
    from dpgrain.publishing.query import Query

# The search for ε ends when the release uses this part of its share.
_ENOUGH_OF_SHARE = 0.995
# Largest number of values of ε in the search, …
_MOST_TRIALS = 14
# … and largest factor between two of them.
_LARGEST_STEP_FACTOR = 4.0
# The search ends below this multiple of the ε of Gaussian noise.
_SMALLEST_EPSILON_FACTOR = 1e-3


@dataclass(frozen=True)
class BudgetShare:
    """A share of a budget, for one release.

    Args:
        part: the share, in (0, 1].
    """

    part: float
    budget: Budget

    @staticmethod
    def of(share: float, *, epsilon: float | None = None) -> BudgetShare:
        """Return a share of the open budget."""
        if epsilon is not None:
            raise ParameterError(
                f"epsilon must be omitted with share, which is {_validate.describe(share)}; pass only "
                "one of them."
            )
        if not _validate.probability(share=share) > 0:
            raise ParameterError(
                f"share must be above 0 and at most 1, not {_validate.describe(share)}."
            )
        budget = open_budget()
        if budget is None:
            raise ParameterError(
                f"share = {share!r} requires an open budget: with dg.budget(epsilon, delta): …; "
                "or pass epsilon and delta."
            )
        return BudgetShare(float(share), budget)

    def gaussian_epsilon_delta(self) -> tuple[float, float]:
        """Return the ε and δ of Gaussian noise for the share; for a pure budget, its ε."""
        part = self.budget.caps.price.part(self.part)
        if part.mu == 0:
            return part.pure, part.leak
        # Without a cap on delta mass a release has none, and this δ is only the one at which to state
        # its ε.
        delta = part.leak if part.leak > 0 else self.budget.delta * self.part
        return gaussian_epsilon(delta, part.mu), delta

    def settled(
        self, event_of: Callable[[float], Event], epsilon: float, relation: Relation, unit: Unit
    ) -> float:
        """Return an ε at which a release uses nearly all of the share.

        Args:
            event_of: the function from ε to the event of the release; it uses public numbers only.
            epsilon: the first ε to try: the ε of Gaussian noise that uses the share.
        """
        caps = self.budget.caps.price
        room = caps.part(self.part)
        fits, too_much = 0.0, math.inf
        factor = 1.0
        for _ in range(_MOST_TRIALS):
            taken = price(event_of(epsilon * factor), relation, unit, caps, room)
            part = taken.share_of(room)
            if part <= 1 + SUM_TOLERANCE:
                fits = factor
                if part >= _ENOUGH_OF_SHARE:
                    break
            else:
                too_much = factor
            if fits == 0 and factor < _SMALLEST_EPSILON_FACTOR:
                break
            factor = _next(factor, part, fits, too_much)
            if fits > 0 and too_much <= fits * (2 - _ENOUGH_OF_SHARE):
                break
        if fits == 0:
            raise ParameterError(
                f"share = {self.part:g} of this budget allows no such release, because nothing in "
                "the budget is reserved for its noise; open the budget with leak=, or with pure= "
                "for releases without Gaussian noise, or choose other noise."
            )
        return epsilon * fits


def epsilon_for_share(
    share: BudgetShare, query: Callable[[float, float], Query[Any]]
) -> tuple[float, float]:
    """Return the ε and δ of a release for its share; nothing is read or charged.

    ``query`` returns the query for an ε and a δ.
    """

    @cache
    def guaranteed(epsilon: float, delta: float) -> Guarantee:
        return query(epsilon, delta).plan.guarantee

    epsilon, delta = share.gaussian_epsilon_delta()
    first = guaranteed(epsilon, delta)
    settled = share.settled(
        lambda trial: guaranteed(trial, delta).event,
        epsilon,
        first.relation,
        PLAIN_UNITS[first.level],
    )
    return settled, delta


def _next(factor: float, part: float, fits: float, too_much: float) -> float:
    """Return the next factor of ε to try; prices grow roughly with the square of ε."""
    step = 1 / _LARGEST_STEP_FACTOR if math.isinf(part) else math.sqrt(0.998 / max(part, 1e-9))
    guess = factor * min(max(step, 1 / _LARGEST_STEP_FACTOR), _LARGEST_STEP_FACTOR)
    if fits < guess < too_much:
        return guess
    return math.sqrt(fits * too_much) if fits > 0 else too_much / _LARGEST_STEP_FACTOR
