"""A share of the open budget, in place of ε and δ, and the ε for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from dpgrain import _validate
from dpgrain.accounting import Event, gaussian_epsilon
from dpgrain.errors import ParameterError
from dpgrain.publishing.budget import Budget, open_budget
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.prices import SUMMING, price
from dpgrain.units import PLAIN_UNITS, Relation, Unit

if TYPE_CHECKING:
    from dpgrain.publishing.query import Query

Published = TypeVar("Published")
Parameters = ParamSpec("Parameters")

# The search for ε ends when the release takes this part of its share.
_ENOUGH_OF_SHARE = 0.995
# Values of ε that the search tries, at most, …
_MOST_TRIALS = 14
# … and changes ε by at most this factor at a time.
_LARGEST_STEP_FACTOR = 4.0
# The search ends below this multiple of the ε of Gaussian noise.
_SMALLEST_EPSILON_FACTOR = 1e-3


@dataclass(frozen=True)
class Share:
    """A share of a budget, for one release.

    Args:
        part: the share, in (0, 1].
        budget: the budget of which it is a share.
    """

    part: float
    budget: Budget

    @staticmethod
    def of(share: float, *, epsilon: float | None = None) -> Share:
        """Read a caller's share of the open budget, stated in place of ε and δ.

        Args:
            share: the share, in (0, 1].
            epsilon: the ε that the caller states beside it, which must be None.

        Raises:
            ParameterError: if ε is given too, the share is out of range, or no budget is open.
        """
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
        return Share(float(share), budget)

    def of_gaussian_noise(self) -> tuple[float, float]:
        """Return the ε and δ of Gaussian noise for the share; for a pure budget, its ε."""
        part = self.budget.caps.price.part(self.part)
        if part.mu == 0:
            return part.pure, part.leak
        # Without a cap on delta mass a release has none, and this δ only says at which δ its ε is
        # stated.
        delta = part.leak if part.leak > 0 else self.budget.delta * self.part
        return gaussian_epsilon(delta, part.mu), delta

    def settled(
        self, event_of: Callable[[float], Event], epsilon: float, relation: Relation, unit: Unit
    ) -> float:
        """Find an ε at which a release takes nearly all of the share.

        Args:
            event_of: makes the event of a release with this ε, from public numbers alone.
            epsilon: where the search begins: the ε of Gaussian noise that takes the share.
            relation: the neighbouring relation.
            unit: the privacy unit.

        Raises:
            ParameterError: if no ε makes the release fit into its share.
        """
        caps = self.budget.caps.price
        room = caps.part(self.part)
        fits, too_much = 0.0, math.inf
        factor = 1.0
        for _ in range(_MOST_TRIALS):
            taken = price(event_of(epsilon * factor), relation, unit, caps, room)
            part = taken.share_of(room)
            if part <= 1 + SUMMING:
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


def stated_of(share: Share, query: Callable[[float, float], Query[Any]]) -> tuple[float, float]:
    """Return the ε and δ of a release for its share; nothing is read or charged.

    Args:
        share: the share.
        query: a function that asks for the release with an ε and a δ.

    Raises:
        ParameterError: if no ε makes the release fit into the share.
    """

    @cache
    def guaranteed(epsilon: float, delta: float) -> Guarantee:
        return query(epsilon, delta).plan.guarantee

    epsilon, delta = share.of_gaussian_noise()
    first = guaranteed(epsilon, delta)
    settled = share.settled(
        lambda trial: guaranteed(trial, delta).event,
        epsilon,
        first.relation,
        PLAIN_UNITS[first.level],
    )
    return settled, delta


def _next(factor: float, part: float, fits: float, too_much: float) -> float:
    """Choose the next factor of ε to try, since prices grow about with the square of ε."""
    step = 1 / _LARGEST_STEP_FACTOR if math.isinf(part) else math.sqrt(0.998 / max(part, 1e-9))
    guess = factor * min(max(step, 1 / _LARGEST_STEP_FACTOR), _LARGEST_STEP_FACTOR)
    if fits < guess < too_much:
        return guess
    return math.sqrt(fits * too_much) if fits > 0 else too_much / _LARGEST_STEP_FACTOR
