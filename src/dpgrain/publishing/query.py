"""Queries: what is asked for, in public numbers, and the plan that follows before anything is read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from dpgrain.noise import RandomState
from dpgrain.publishing.expected import Expected
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.promise import Promise

if TYPE_CHECKING:
    from dpgrain.publishing.charge import Charge

Made = TypeVar("Made")


@dataclass(frozen=True)
class Planned:
    """The plan of a query: what it will draw, and the error to expect, from public numbers alone.

    Args:
        guarantee: the guarantee; each part of its event is a ticket for one draw.
        n_users: the stated size of the roster, if it was stated.
        cells: the public number of cells, where it is known, else 1.
        expected: the error to expect; None where public numbers do not give it.
    """

    guarantee: Guarantee
    n_users: int | None = None
    cells: int = 1
    expected: Expected | None = None


class Query(ABC, Generic[Made]):
    """A release that is asked for: a frozen value of public numbers, and of where its rows lie.

    Attributes:
        promise: what the release is asked to keep, or the share of a budget that decides it.
        random_state: a seed, for tests and research; the release is then not private.
    """

    if TYPE_CHECKING:

        @property
        def promise(self) -> Promise:
            """What the release is asked to keep."""

        @property
        def random_state(self) -> RandomState:
            """A seed; the release is then not private."""

    @property
    @abstractmethod
    def plan(self) -> Planned:
        """The plan of the release; making it reads no rows."""

    @abstractmethod
    def run(self, charge: Charge) -> Made:
        """Make the release, which was charged.

        Args:
            charge: the right to open rows and to draw what the plan says.
        """

    def keeping(self, promise: Promise) -> Self:
        """Return the same query with another promise.

        Args:
            promise: the other promise.
        """
        return cast("Self", replace(cast("Any", self), promise=promise))

    def settled(self) -> Self:
        """Return the query with the ε at which it takes its share of a budget, if it was given one.

        A share is arithmetic on plans: those of the same query at other ε are asked for their events.

        Raises:
            ParameterError: if no ε makes the release fit into its share.
        """
        promise = self.promise.settled(lambda trial: self.keeping(trial).plan.guarantee.event)
        return self if promise is self.promise else self.keeping(promise)
