"""Queries: releases that are asked for, as values of public numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from dpgrain.noise import RandomState
from dpgrain.publishing.planned import Planned
from dpgrain.publishing.promise import Promise

if TYPE_CHECKING:
    from dpgrain.publishing.charge import Charge

Made = TypeVar("Made")


class Query(ABC, Generic[Made]):
    """A release that is asked for: a frozen value of public numbers, and of where its rows lie.

    Attributes:
        promise: what the release is asked to keep, or the share of a budget that decides it.
        random_state: a seed, for tests and research; the release is then not private.

    Every public function that publishes gives its query: ``dpgrain.count.query(…)`` for
    ``dpgrain.count(…)``. It may be planned, stand in the plan of a budget, and be published once or
    several times by :func:`dpgrain.publish`.

    >>> import pyarrow as pa
    >>> from dpgrain import User, budget, count, publish, read
    >>> visits = read(pa.table({"who": [1, 2, 2]}), user="who")
    >>> asked = count.query(visits, unit=User(), epsilon=0.5, delta=1e-7, noise="gaussian", clip=5.0)
    >>> print(asked.plan.expected)
    ± 45
    >>> with budget(1.0, 1e-6, plan=[asked]) as whole:
    ...     release = publish(asked)
    >>> whole.left
    1.0
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
