"""The promise of a release: unit, relation, ε and δ as one value.

A :class:`Promise` is requested; a :class:`~dpgrain.publishing.guarantee.Guarantee` is the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from dpgrain import _validate
from dpgrain._formatting import SUM_TOLERANCE
from dpgrain.accounting import Event, gaussian_epsilon
from dpgrain.errors import ParameterError
from dpgrain.noise.additive_noise import noise_by_name
from dpgrain.publishing.budget import Budget, open_budget
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.prices import price
from dpgrain.units import PLAIN_UNITS, RELATIONS, Element, Level, Record, Relation, Unit, User

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
    """A share of a budget, in (0, 1], for one release."""

    part: float
    budget: Budget

    @staticmethod
    def create(share: float, *, epsilon: float | None = None) -> BudgetShare:
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
        """Return an ε at which a release uses nearly all of the share."""
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
    """Return the ε and δ of a release for its share; nothing is read or charged."""

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


@dataclass(frozen=True)
class Promise:
    """The protected unit of a release, the relation, and its ε and δ.

    Args:
        unit: the privacy unit.
        epsilon: the promised ε; for a share, initially the ε of Gaussian noise that uses the share.
        delta: the promised δ.
        relation: the neighbouring relation.
        share: the share of the open budget for the release; None for an explicit ε.

    Raises:
        ParameterError: if a value is out of range.

    >>> Promise(User(), 1, 1e-6, "zero_out")
    Promise(unit=User(), epsilon=1.0, delta=1e-06, relation='zero_out', share=None)
    """

    # A unit may contain a mapping, which has no hash.
    unit: Unit = field(hash=False)
    epsilon: float
    delta: float
    relation: Relation
    share: BudgetShare | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.unit, Record | Element | User):
            raise ParameterError(
                f"unit must be Record(), Element(by) or User(), not {_validate.describe(self.unit)}."
            )
        object.__setattr__(self, "epsilon", _validate.positive(epsilon=self.epsilon))
        _validate.one_of(RELATIONS, relation=self.relation)
        object.__setattr__(self, "delta", _validate.delta(allow_zero=True, delta=self.delta))

    @staticmethod
    def of(
        unit: Unit,
        epsilon: float | None,
        delta: float,
        relation: Relation,
        share: float | None = None,
    ) -> Promise:
        """Return the promise for an ε and a δ, or for a share of the open budget.

        Args:
            unit: the privacy unit.
            epsilon: the promised ε; None with a share.
            delta: the promised δ; ignored with a share.
            relation: the neighbouring relation.
            share: the share of the open budget, in (0, 1]; None with an ε.

        Raises:
            ParameterError: if not exactly one of ε and share is set, a value is out of range, or no
                budget is open for a share.

        >>> Promise.of(User(), 1.0, 1e-6, "zero_out").level
        'user'
        """
        if share is not None:
            part = BudgetShare.create(share, epsilon=epsilon)
            return Promise(unit, *part.gaussian_epsilon_delta(), relation, part)
        if epsilon is None:
            raise ParameterError(
                "epsilon is required, such as epsilon=1.0; or pass share=, such as 0.5, inside a "
                "budget."
            )
        return Promise(unit, epsilon, delta, relation)

    @property
    def level(self) -> Level:
        """The level of the unit: record, element or user."""
        return self.unit.level

    @property
    def plain_unit(self) -> Unit:
        """The unit of the level, without a partition or a bound on elements."""
        return PLAIN_UNITS[self.level]

    def require_delta(self, sentence: str) -> None:
        """Raise ParameterError with this message if δ is 0."""
        if self.delta == 0:
            raise ParameterError(sentence, name="delta")

    def under(self, noise: str) -> Promise:
        """Return the promise for a noise distribution, with δ = 0 for Laplace noise.

        Args:
            noise: ``"gaussian"`` or ``"laplace"``.

        Raises:
            ParameterError: if the distribution is unknown, or requires a δ above 0.
        """
        if noise_by_name(noise).pure:
            return replace(self, delta=0.0)
        self.require_delta(
            "delta must be above 0 with Gaussian noise, not 0; use noise='laplace' or delta=1e-6."
        )
        return self

    def settled(self, event_of: Callable[[Promise], Event]) -> Promise:
        """Return the promise with an ε that uses nearly all of the share; an explicit ε is unchanged.

        Args:
            event_of: the function from a promise to the event of the release; it uses public numbers
                only.

        Raises:
            ParameterError: if the release does not fit into its share at any ε.
        """
        if self.share is None:
            return self
        stated = replace(self, share=None)
        epsilon = self.share.settled(
            lambda trial: event_of(replace(stated, epsilon=trial)),
            self.epsilon,
            self.relation,
            self.plain_unit,
        )
        return replace(self, epsilon=epsilon)
