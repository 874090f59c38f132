"""The ε and δ of one release, which are stated or follow from its share of the open budget."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from dpgrain import _validate
from dpgrain.accounting import Event, gaussian_epsilon
from dpgrain.errors import ParameterError
from dpgrain.publishing.budget import Budget, open_budget
from dpgrain.publishing.caps import Caps
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.prices import SUMMING, price
from dpgrain.publishing.rehearsal import rehearsed
from dpgrain.units import OWN_UNIT, Relation, Unit

Published = TypeVar("Published")
Parameters = ParamSpec("Parameters")

# The search for ε ends when the release takes this part of its share.
_ENOUGH_OF_SHARE = 0.995
# The search tries at most this many ε, …
_MOST_TRIALS = 14
# … and changes ε by at most this factor at a time.
_LARGEST_STEP_FACTOR = 4.0
# The search ends below this multiple of the ε of Gaussian noise.
_SMALLEST_EPSILON_FACTOR = 1e-3


@dataclass(frozen=True)
class Terms:
    """The amount that a release may spend.

    Args:
        epsilon: the ε of the release; under a share, that of Gaussian noise which takes the share.
        delta: the δ of the release.
        share: the share of the budget, if the release was asked for by share.
        budget: the budget of which it is a share, if the release was asked for by share.
    """

    epsilon: float
    delta: float
    share: float | None = None
    budget: Budget | None = None

    @staticmethod
    def of(epsilon: float | None, delta: float, share: float | None) -> Terms:
        """Read the ε and δ, or the share, that a caller states.

        Args:
            epsilon: the promised ε; None where a share is given.
            delta: the promised δ, which is ignored where a share is given.
            share: the share of the open budget, in (0, 1]; None where ε is given.

        Raises:
            ParameterError: if neither or both are given, a value is out of range, or a share is asked
                for where no budget is open.

        >>> Terms.of(1.0, 1e-6, None)
        Terms(epsilon=1.0, delta=1e-06, share=None, budget=None)
        """
        if share is None:
            if epsilon is None:
                raise ParameterError(
                    "epsilon must be given, such as epsilon=1.0; or share=, such as 0.5, inside a "
                    "budget."
                )
            return Terms(_validate.positive(epsilon=epsilon), delta)
        if epsilon is not None:
            raise _both(share)
        if not _validate.probability(share=share) > 0:
            raise ParameterError(f"share must be above 0 and at most 1, not {share!r}.")
        budget = open_budget()
        if budget is None:
            raise ParameterError(
                f"share = {share!r} needs an open budget: with dg.budget(epsilon, delta): …; or state "
                "epsilon and delta."
            )
        epsilon, delta = _of_gaussian_noise(float(share), budget.caps, budget.delta)
        return Terms(epsilon, delta, float(share), budget)

    def settled(
        self, event_of: Callable[[float, float], Event], relation: Relation, unit: Unit
    ) -> Terms:
        """Find an ε at which a release takes nearly all of its share; keep an ε that is stated.

        Args:
            event_of: makes the event of a release with this ε and δ, from public numbers alone.
            relation: the neighbouring relation.
            unit: the privacy unit.

        Raises:
            ParameterError: if no ε makes the release fit into its share.
        """
        if self.share is None or self.budget is None:
            return self
        caps, share, delta = self.budget.caps.price, self.share, self.delta
        room = caps.part(share)
        fits, too_much = 0.0, math.inf
        factor = 1.0
        for _ in range(_MOST_TRIALS):
            taken = price(event_of(self.epsilon * factor, delta), relation, unit, caps, room)
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
                f"share = {share:g} of this budget holds no such release, which has no price in "
                "what the budget holds; open the budget with leak=, or with pure= for releases "
                "without Gaussian noise, or choose other noise."
            )
        return Terms(self.epsilon * fits, delta, share, self.budget)


def of_share(share: float, release: Callable[[float, float], Published]) -> Published:
    """Make a release with the ε and δ at which it takes a share of the open budget.

    Args:
        share: the share of the open budget, in (0, 1].
        release: a function that publishes with an ε and a δ; it is rehearsed with several of them.

    Raises:
        ParameterError: if no budget is open, or no ε makes the release fit into its share.
    """
    asked = Terms.of(None, 0.0, share)

    @cache
    def promised(epsilon: float, delta: float) -> Guarantee:
        return rehearsed(lambda: release(epsilon, delta))

    first = promised(asked.epsilon, asked.delta)
    settled = asked.settled(
        lambda epsilon, delta: promised(epsilon, delta).event,
        first.relation,
        OWN_UNIT[first.level],
    )
    outer, _shared.budget = shared_budget(), asked.budget
    try:
        return release(settled.epsilon, settled.delta)
    finally:
        _shared.budget = outer


# The budget of which a release in this thread takes a share.
_shared = threading.local()


def shared_budget() -> Budget | None:
    """Return the budget of which a release in this thread takes a share, None if it takes none."""
    return getattr(_shared, "budget", None)


def takes_share(function: Callable[Parameters, Published]) -> Callable[Parameters, Published]:
    """Give a function that publishes the keyword ``share=``, in place of ``epsilon=`` and ``delta=``.

    Args:
        function: a function that publishes, with the keyword ``epsilon``, and ``delta`` if it has one.
    """
    has_delta = "delta" in inspect.signature(function).parameters

    @wraps(function)
    def publishes(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Published:
        share: Any = kwargs.pop("share", None)
        if share is None:
            return function(*args, **kwargs)

        def release(epsilon: float, delta: float) -> Published:
            stated: dict[str, Any] = {"epsilon": epsilon, **({"delta": delta} if has_delta else {})}
            return function(*args, **{**kwargs, **stated})

        if kwargs.get("epsilon") is not None:
            raise _both(share)
        return of_share(share, release)

    return publishes


def _both(share: object) -> ParameterError:
    return ParameterError(
        f"epsilon must be left out where share = {share!r} is given; state one of them."
    )


def _next(factor: float, part: float, fits: float, too_much: float) -> float:
    """Choose the next factor of ε to try, since prices grow about with the square of ε."""
    step = 1 / _LARGEST_STEP_FACTOR if math.isinf(part) else math.sqrt(0.998 / max(part, 1e-9))
    guess = factor * min(max(step, 1 / _LARGEST_STEP_FACTOR), _LARGEST_STEP_FACTOR)
    if fits < guess < too_much:
        return guess
    return math.sqrt(fits * too_much) if fits > 0 else too_much / _LARGEST_STEP_FACTOR


def _of_gaussian_noise(share: float, caps: Caps, delta: float) -> tuple[float, float]:
    """Return the ε and δ with which Gaussian noise takes a share; for a pure budget, its ε."""
    part = caps.price.part(share)
    if part.mu == 0:
        return part.pure, part.leak
    # Without a cap on leaks a release leaks nothing, and this δ only says at which δ its ε is stated.
    delta = part.leak if part.leak > 0 else delta * share
    return gaussian_epsilon(delta, part.mu), delta
