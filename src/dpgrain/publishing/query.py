"""Queries: requests for releases, as frozen values of public numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from dpgrain.errors import ParameterError
from dpgrain.noise import RandomState
from dpgrain.publishing.call import Call, query_from_dict
from dpgrain.publishing.promise import Promise
from dpgrain.publishing.release_plan import Plan
from dpgrain.units import Unit

if TYPE_CHECKING:
    from dpgrain.publishing.charge import Charge
    from dpgrain.publishing.guarantee import Guarantee

Released = TypeVar("Released")


class Query(ABC, Generic[Released]):
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

    # The recorded call; None for a query that is not one of a public function.
    call: Call | None = None

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
    def run(self, charge: Charge) -> Released:
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
        query = self._with(promise)
        if self.call is not None:
            vars(query)["call"] = self.call.with_promise(promise)
        return query

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

    def to_dict(self) -> dict[str, Any]:
        """Return the public part of the query as JSON values, for :meth:`from_dict`.

        These are the name of the function, the parameters (with a seed, which is secret), and the
        names and schemas of the inputs, but no rows, paths or numbers of rows. A pickle of the query
        is this dictionary, and two queries are equal if it is.

        Raises:
            ParameterError: if a parameter cannot be stored, such as a function or a generator, or the
                query is not one of a public function, such as a free training loop.

        >>> import json, pyarrow as pa
        >>> from dpgrain import User, count, read
        >>> visits = read(pa.table({"who": [1, 2, 2]}), user="who")
        >>> query = count.query(visits, unit=User(), epsilon=1.0, delta=1e-6)
        >>> values = json.loads(json.dumps(query.to_dict()))
        >>> values["inputs"]
        {'table': {'user': 'who', 'n_users': None, 'columns': {'who': 'BIGINT'}}}
        >>> Query.from_dict(values, inputs={"table": visits}) == query
        True
        """
        if self.call is None:
            raise ParameterError(
                "this query cannot be stored, because it is not one of a public function with a table "
                "or arrays (a free training loop is not); store its parameters instead."
            )
        return self.call.to_dict()

    @staticmethod
    def from_dict(values: Mapping[str, Any], inputs: Mapping[str, Any]) -> Query[Any]:
        """Return a stored query for rows; nothing is read.

        Args:
            values: the values of :meth:`to_dict`.
            inputs: the table, or the arrays and labels, by the names in ``values["inputs"]``.

        Raises:
            ParameterError: if an input is missing, unknown or has another schema, or the function or
                a parameter is unknown or invalid.
        """
        return query_from_dict(values, inputs)

    def __eq__(self, other: object) -> bool:
        # Neither rows nor hashes of rows decide.
        if self is other or not isinstance(other, Query):
            return self is other
        return self.call is not None and not self.call.unstored and self.call == other.call

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        # Fields may contain rows, which must not be shown.
        return f"{type(self).__name__}({self.promise})" if self.call is None else repr(self.call)

    def __reduce__(self) -> Any:
        return dict, (self.to_dict(),)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: Any) -> Self:
        return self

    def settled(self) -> Self:
        """Return the query with the ε for its share of a budget, found from its plans at other ε.

        Raises:
            ParameterError: if the release does not fit into its share at any ε.
        """
        promise = self.promise.settled(lambda trial: self.with_promise(trial).plan.guarantee.event)
        return self if promise is self.promise else self.with_promise(promise)
