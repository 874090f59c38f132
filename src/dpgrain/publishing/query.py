"""Queries: requests for releases, as values of public numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from dpgrain.errors import ParameterError
from dpgrain.noise import RandomState
from dpgrain.publishing.pickle_origin import PickleOrigin
from dpgrain.publishing.promise import Promise
from dpgrain.publishing.release_plan import Planned
from dpgrain.units import Unit

if TYPE_CHECKING:
    from dpgrain.publishing.charge import Charge
    from dpgrain.publishing.guarantee import Guarantee

Made = TypeVar("Made")


class Query(ABC, Generic[Made]):
    """A request for a release: a frozen value of public numbers, and of the place of its rows.

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
    ±45
    >>> with budget(1.0, 1e-6, plan=[asked]) as whole:
    ...     release = publish(asked)
    >>> whole.left
    1.0
    """

    if TYPE_CHECKING:

        @property
        def promise(self) -> Promise:
            """The promise of the release."""

        @property
        def random_state(self) -> RandomState:
            """A seed; the release is then not private."""

    @property
    @abstractmethod
    def plan(self) -> Planned:
        """The plan of the release; making it reads no rows."""

    @abstractmethod
    def run(self, charge: Charge) -> Made:
        """Make the charged release.

        Args:
            charge: the right to open rows and to draw what the plan says.
        """

    def charged(self, charge: Callable[[], Guarantee]) -> Guarantee:
        """Charge the release, and return the guarantee to publish.

        Args:
            charge: the function that warns, and charges what is open; it is called once, in one of the
                processes that make the release together.
        """
        return charge()

    def with_promise(self, promise: Promise) -> Self:
        """Return the same query with another ε and δ.

        Args:
            promise: the other promise, to the same unit under the same relation.

        Raises:
            ParameterError: if the unit or the relation is another: rows were asked for by the first.
        """
        now = self.promise
        if (promise.unit, promise.relation) != (now.unit, now.relation):
            raise ParameterError(
                f"a query cannot change its unit and relation, {now.unit!r} and {now.relation!r}; "
                f"create a new query for {promise.unit!r} and {promise.relation!r}.",
                name="promise",
            )
        made = self._with(promise)
        if (sent := self.__dict__.get("_sent")) is not None:
            # What was open where a copy was made stays so, whatever ε it is asked for here.
            made.__dict__["_sent"] = sent
        return made

    def check_unit(self, unit: Unit) -> None:
        """Refuse a promise to another unit than rows were asked for, as a copy might make it.

        Args:
            unit: the unit by which rows make blocks.

        Raises:
            ParameterError: if the promise is to another unit.
        """
        if self.promise.unit != unit:
            raise ParameterError(
                f"a query cannot change the unit of its rows, {unit!r}; create a new query for "
                f"{self.promise.unit!r}.",
                name="promise",
            )

    def _with(self, promise: Promise) -> Self:
        """Return the same query with another promise to the same unit."""
        return cast("Self", replace(cast("Any", self), promise=promise))

    def __repr__(self) -> str:
        # Fields may be rows that a caller holds.
        return f"{type(self).__name__}({self.promise})"

    def __getstate__(self) -> dict[str, Any]:
        """A copy for another process takes along what was open where it was made."""
        return {**self.__dict__, "_sent": PickleOrigin.from_here(self.__dict__.get("_sent"))}

    def check_process(self) -> None:
        """Refuse a copy in a process that does not charge what was open where it was made.

        Raises:
            ParameterError: if it would not be charged.
        """
        sent: PickleOrigin | None = self.__dict__.get("_sent")
        if sent is not None:
            sent.check()

    def settled(self) -> Self:
        """Return the query with the ε for its share of a budget, if it was given one.

        A share is arithmetic on plans: those of the same query at other ε are asked for their events.

        Raises:
            ParameterError: if no ε makes the release fit into its share.
        """
        promise = self.promise.settled(lambda trial: self.with_promise(trial).plan.guarantee.event)
        return self if promise is self.promise else self.with_promise(promise)
