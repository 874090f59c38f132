"""Guarantees and requests: a guarantee matches its request, no more and barely less."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpgrain._formatting import SUM_TOLERANCE
from dpgrain.publishing.budget import Budget, open_budget
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.prices import price
from dpgrain.publishing.publish import publish
from dpgrain.publishing.query import Query
from dpgrain.units import PLAIN_UNITS, RELATIONS, Element, Record, Relation, Unit, User

# Smallest share of the request that a guarantee reaches; the rest is unnecessary noise.
LEAST_SHARE = 0.9
# Rounding of ε where a promise is computed again from its event.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Publisher:
    """A public function for publishing, with its options.

    Args:
        query: the function that publishes; it accepts ``relation``, ``epsilon`` and ``delta`` or
            ``share``, the names in ``options``, and ``unit`` if there are several.
        options: option → the tried values, each in combination with other options' values.
    """

    query: Callable[..., Query[Any]]
    options: Mapping[str, Sequence[Any]]
    units: Sequence[Unit] = (Record(), Element("cell"), User(), User(2, by="cell"))

    def product(self, promises: Sequence[Mapping[str, float]]) -> dict[str, Sequence[Any]]:
        """Return all possible requests: option → values.

        Args:
            promises: the budgets: ``epsilon`` and ``delta``, or ``share``.
        """
        asked = {"unit": self.units, "relation": RELATIONS, "promise": promises}
        return {**asked, **self.options}

    def guarantee(self, *, unit: Unit, promise: Mapping[str, float], **asked: Any) -> Guarantee:
        """Return the guarantee of a release, with nothing read or charged.

        Args:
            promise: ``epsilon`` and ``delta``, or ``share``.

        Raises:
            ParameterError: if the function rejects its arguments.
        """
        units = {"unit": unit} if len(self.units) > 1 else {}
        return self.query(**units, **promise, **asked).settled().plan.guarantee

    def publish(self, **asked: Any) -> Any:
        """Publish a release."""
        return publish(self.query(**asked))


def share_of_asked(
    guarantee: Guarantee, *, unit: Unit, relation: Relation, promise: Mapping[str, float]
) -> float:
    """Return the share of the request in a release; above 1 the promise is false.

    Args:
        promise: ``epsilon`` and ``delta``, or ``share`` of the budget that is open.

    Raises:
        AssertionError: if the release is for another unit or relation, or has a larger δ.

    >>> from dpgrain.accounting import Contribution, Gaussian
    >>> from dpgrain.units import User
    >>> told = Guarantee("user", "", "zero_out", 1e-6, Gaussian(5.0, Contribution(block="user")))
    >>> promise = {"epsilon": 1.0, "delta": 1e-6}
    >>> round(share_of_asked(told, unit=User(), relation="zero_out", promise=promise), 3)
    0.834
    """
    assert guarantee.level == unit.level, f"asked for {unit.level}s, promised {guarantee.level}s"
    assert guarantee.relation == relation, f"asked for {relation}, promised {guarantee.relation}"
    if "share" in promise:
        return _share_of_budget(guarantee, promise["share"])
    delta = promise["delta"]
    assert guarantee.delta <= delta, f"δ = {guarantee.delta} is promised for {delta}"
    told = guarantee.event.epsilon(delta, relation=relation, unit=PLAIN_UNITS[unit.level])
    assert told <= guarantee.epsilon() * (1 + _ROUNDING), "the guarantee prints a smaller ε"
    return told / promise["epsilon"]


def _share_of_budget(guarantee: Guarantee, share: float) -> float:
    budget = open_budget()
    assert isinstance(budget, Budget)
    caps = budget.caps.price
    room = caps.part(share)
    taken = price(guarantee.event, guarantee.relation, PLAIN_UNITS[guarantee.level], caps, room)
    return taken.share_of(room) / (1 + SUM_TOLERANCE)
