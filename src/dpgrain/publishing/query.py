"""Queries: requests for releases, as frozen values of public numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from dpgrain.errors import ParameterError
from dpgrain.noise import RandomState
from dpgrain.publishing.pickle_origin import PickleOrigin
from dpgrain.publishing.promise import Promise
from dpgrain.publishing.release_plan import Plan
from dpgrain.units import Unit

if TYPE_CHECKING:
    from dpgrain.publishing.charge import Charge
    from dpgrain.publishing.guarantee import Guarantee

Made = TypeVar("Made")


class Query(ABC, Generic[Made]):
    """A request for a release: public numbers and the source of the rows.

    Attributes:
        promise: the requested promise, or the share of a budget that determines it.
        random_state: a seed, for tests and research; the release is then not private.

    Every publishing function has a query, such as ``dpgrain.count.query(…)`` for
    ``dpgrain.count(…)``. You can inspect its plan, pass it to the plan of a budget, and publish it
    once or several times with :func:`dpgrain.publish`.

    >>> import pyarrow as pa
    >>> from dpgrain import User, budget, count, publish, read
    >>> visits = read(pa.table({"who": [1, 2, 2]}), user="who")
    >>> query = count.query(visits, unit=User(), epsilon=0.5, delta=1e-7, noise="gaussian", clip=5.0)
    >>> print(query.plan.expected)
    ±45
    >>> with budget(1.0, 1e-6, plan=[query]) as whole:
    ...     release = publish(query)
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
    def plan(self) -> Plan:
        """The plan of the release; computing it reads no rows."""

    @abstractmethod
    def run(self, charge: Charge) -> Made:
        """Make the charged release.

        Args:
            charge: the right to open rows and draw the planned noise.
        """

    def charged(self, charge: Callable[[], Guarantee]) -> Guarantee:
        """Charge the release, and return the guarantee to publish.

        Args:
            charge: the function that warns and charges; it is called once, in one of the processes of
                the release.
        """
        return charge()

    def with_promise(self, promise: Promise) -> Self:
        """Return the same query with another ε and δ.

        Args:
            promise: the new promise, with the same unit and relation.

        Raises:
            ParameterError: if the unit or the relation differs, because rows depend on them.
        """
        now = self.promise
        if (promise.unit, promise.relation) != (now.unit, now.relation):
            raise ParameterError(
                f"a query cannot change its unit and relation, {now.unit!r} and {now.relation!r}; "
                f"create a new query for {promise.unit!r} and {promise.relation!r}.",
                name="promise",
            )
        made = self._with(promise)
        if (origin := self.__dict__.get("_pickle_origin")) is not None:
            # The origin of a copy does not depend on its ε.
            made.__dict__["_pickle_origin"] = origin
        return made

    def check_unit(self, unit: Unit) -> None:
        """Check that the promise protects the unit of the blocks of the rows.

        Args:
            unit: the unit of the blocks.

        Raises:
            ParameterError: if the promise protects another unit.
        """
        if self.promise.unit != unit:
            raise ParameterError(
                f"a query cannot change the unit of its rows, {unit!r}; create a new query for "
                f"{self.promise.unit!r}.",
                name="promise",
            )

    def _with(self, promise: Promise) -> Self:
        """Return the query with another promise for the same unit."""
        return cast("Self", replace(cast("Any", self), promise=promise))

    def __repr__(self) -> str:
        # Fields may contain rows, which must not be shown.
        return f"{type(self).__name__}({self.promise})"

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy in another process, with the origin of the copy."""
        origin = PickleOrigin.from_here(self.__dict__.get("_pickle_origin"))
        return {**self.__dict__, "_pickle_origin": origin}

    def check_process(self) -> None:
        """Check that a copy in another process is charged.

        Raises:
            ParameterError: in a process that does not charge the open budget or ledger.
        """
        origin: PickleOrigin | None = self.__dict__.get("_pickle_origin")
        if origin is not None:
            origin.check()

    def settled(self) -> Self:
        """Return the query with the ε for its share of a budget, found from its plans at other ε.

        Raises:
            ParameterError: if the release does not fit into its share at any ε.
        """
        promise = self.promise.settled(lambda trial: self.with_promise(trial).plan.guarantee.event)
        return self if promise is self.promise else self.with_promise(promise)
