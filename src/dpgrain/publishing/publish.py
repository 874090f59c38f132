"""Publishing: warn, charge budget and ledger, and only then read; functions that do so."""

from __future__ import annotations

import inspect
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from dpgrain import _validate
from dpgrain.errors import ParameterError, RefusedError
from dpgrain.noise.sources import random_source
from dpgrain.publishing.budget import charge as charge_open_ones
from dpgrain.publishing.budget import open_budget
from dpgrain.publishing.call import keep_query, recorded
from dpgrain.publishing.charge import Charge
from dpgrain.publishing.fitting_epsilon import with_fitting_epsilon
from dpgrain.publishing.guarantee import (
    Guarantee,
    warn_large_delta,
    warn_large_epsilon,
    warn_unreliable_result,
)
from dpgrain.publishing.origins import ArrayOrigin, array_origin
from dpgrain.publishing.process import check_creator, open_ledger
from dpgrain.publishing.promise import BudgetShare
from dpgrain.publishing.query import Query, Released

Parameters = ParamSpec("Parameters")
Owner = TypeVar("Owner")
Published = TypeVar("Published", covariant=True)


class Reservation:
    """Releases charged together; each can be published once, without another charge."""

    def __init__(self, charged: Guarantee, guarantees: Sequence[Guarantee]) -> None:
        self._creator = os.getpid()
        self._left = Counter((each.event, each.scope) for each in guarantees)
        self._like = guarantees[0]
        self._charged = charged
        self._lock = threading.Lock()

    @property
    def charged(self) -> Guarantee:
        """The guarantee of all releases, with the receipts of ledgers."""
        return self._charged

    def publish(self, query: Query[Released]) -> Released:
        """Publish one of the releases."""
        with array_origin(ArrayOrigin()):
            plan, source = query.plan, random_source(query.random_state)
            guarantee = replace(plan.guarantee, private=source.private)
            warn_large_delta(guarantee.delta, guarantee.level, plan.n_users, plan.cells)
            with Charge(self.take(guarantee), source) as charge:
                return keep_query(query.run(charge), query.call, plan.shares)

    def take(self, guarantee: Guarantee) -> Guarantee:
        """Use up the reserved charge of a release; return its guarantee with the receipts."""
        check_creator(self._creator)
        # The sum raises unless both protect the same unit of the same users.
        _ = self._like + guarantee
        key = guarantee.event, guarantee.scope
        with self._lock:
            if self._left[key] < 1:
                raise ParameterError(
                    "this release is not part of the reservation, or was already published; "
                    "publish it after the reserved releases."
                )
            self._left[key] -= 1
        return replace(guarantee, receipts=(*guarantee.receipts, *self._charged.receipts))


def publish(query: Query[Released]) -> Released:
    """Publish the release of a query: warn, charge the budget and the ledger, then read.

    Args:
        query: the query, such as ``dpgrain.count.query(…)``.

    Raises:
        RefusedError: if the release does not fit into the open budget or ledger; nothing is charged.
        ParameterError: if the release does not fit into its share at any ε.
        DataError: if the ledger cannot be written, or the source cannot be read.

    Formal guarantee: the guarantee of the query's plan. Only the charge opens rows and draws noise, and
    it draws each part of the event at most as often as it was charged.

    >>> import pyarrow as pa
    >>> from dpgrain import User, elements_per_user, read
    >>> visits = read(pa.table({"who": [1, 2, 2], "page": ["a", "b", "a"]}), user="who")
    >>> query = elements_per_user.query(visits, "page", unit=User(), epsilon=1.0, delta=1e-6)
    >>> str(query.plan.expected), len(publish(query))
    ('±5.97', 28)
    """
    if not isinstance(query, Query):
        raise ParameterError(
            f"query must be a query, not {_validate.describe(query)}; a stored or pickled one has no "
            "rows until Query.from_dict binds it.",
            name="query",
        )
    if (progress := getattr(query, "progress", None)) is not None:
        _validate.boolean(progress=progress)
    # A release inside a callback of another release has separate rows.
    with array_origin(ArrayOrigin()):
        query = query.settled()
        warn_large_epsilon(query.promise.epsilon)
        plan, source = query.plan, random_source(query.random_state)
        warn_unreliable_result(plan.care)
        try:
            guarantee = query.charged(
                partial(
                    before_publishing,
                    replace(plan.guarantee, private=source.private),
                    n_users=plan.n_users,
                    cells=plan.cells,
                    share=query.promise.share,
                )
            )
        except RefusedError as error:
            raise _with_remedy(error, query) from None
        with Charge(guarantee, source) as charge:
            return keep_query(query.run(charge), query.call, plan.shares)


def _with_remedy(error: RefusedError, query: Query[Any]) -> RefusedError:
    """Return a refusal with the largest ε that fits, unless a share of a budget decides ε."""
    promise = query.promise
    if promise.share is not None:
        return error

    def planned(epsilon: float) -> list[Guarantee]:
        return [query.with_promise(replace(promise, epsilon=epsilon)).plan.guarantee]

    return with_fitting_epsilon(error, promise.epsilon, planned)


def before_publishing(
    guarantee: Guarantee,
    *,
    n_users: int | None = None,
    cells: int = 1,
    share: BudgetShare | None = None,
    parts: Sequence[Guarantee] = (),
    mark: str = "",
    again: bool = True,
) -> Guarantee:
    """Warn of a large δ, then charge the open budget and ledger, before anything is read.

    The warning comes first: if it is turned into an error, it stops the release before the charge.

    Args:
        guarantee: the guarantee of the release.
        n_users: the stated number of users; None if unknown.
        cells: the public number of cells, or 1 if it is unknown.
        share: the requested share of a budget; None without one.
        parts: the guarantees of the parts of a composed release.
        mark: the text that identifies the line of a ledger.
        again: False if the ledger must refuse a mark that it has charged before.

    Returns:
        The guarantee to publish, with the receipt of the open ledger.

    Raises:
        RefusedError: if the release does not fit into the open budget or ledger; nothing is charged.
        DataError: if the ledger cannot be written.
    """
    warn_large_delta(guarantee.delta, guarantee.level, n_users, cells)
    budget, part = (None, None) if share is None else (share.budget, share.part)
    return charge_open_ones(guarantee, budget, part, parts=parts, mark=mark, again=again)


def before_resuming(guarantee: Guarantee, *, n_users: int | None = None) -> Guarantee:
    """Charge a resumed release, unless the open ledger has charged it."""
    # An open budget is charged for the whole release, because it cannot know an earlier budget.
    ledger = open_ledger()
    if ledger is None or not any(ledger.contains(receipt) for receipt in guarantee.receipts):
        return before_publishing(guarantee, n_users=n_users)
    budget = open_budget()
    return guarantee if budget is None else budget.charge(guarantee)


def reserve(
    together: Guarantee,
    guarantees: Sequence[Guarantee],
    *,
    n_users: int | None = None,
    mark: str = "",
    again: bool = True,
) -> Reservation:
    """Charge several releases as one, used or not, before any of them reads data."""
    charged = before_publishing(together, n_users=n_users, parts=guarantees, mark=mark, again=again)
    return Reservation(charged, guarantees)


@contextmanager
def annotate_interrupt(what: str) -> Iterator[None]:
    """Add a note about the charged release, such as "the fit", to a KeyboardInterrupt.

    >>> try:
    ...     with annotate_interrupt("the fit"):
    ...         raise KeyboardInterrupt
    ... except KeyboardInterrupt as interrupt:
    ...     print(*interrupt.__notes__)
    Nothing of the fit is published; a budget or ledger that was charged for it stays charged.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(
            f"Nothing of {what} is published; a budget or ledger that was charged for it stays "
            "charged."
        )
        raise


class PublishingFunction(Protocol[Parameters, Published]):
    """A function that publishes a release, with a method for its query."""

    __name__: str

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Published:
        """Publish the release."""

    def query(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Query[Any]:
        """Validate the parameters, and return the query; nothing is read."""


def publishes(
    query: Callable[Parameters, Query[Released]],
) -> PublishingFunction[Parameters, Released]:
    """Create a publishing function from a function that returns a query.

    >>> import pyarrow as pa
    >>> from dpgrain import User, count, read
    >>> visits = read(pa.table({"who": [1, 2, 2]}), user="who")
    >>> query = count.query(visits, unit=User(), epsilon=1.0, delta=1e-6, clip=5.0)
    >>> round(query.plan.guarantee.epsilon(), 6), str(query.plan.expected)
    (1.0, '±7.07')
    """
    with_call = recorded(query)

    @wraps(query)
    def function(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Released:
        return publish(with_call(*args, **kwargs))

    wrapped: Any = function
    wrapped.query = with_call
    wrapped.__signature__ = _published(inspect.signature(query))
    return cast("PublishingFunction[Parameters, Released]", wrapped)


def published(
    query: Callable[Concatenate[Owner, Parameters], Query[Released]], name: str
) -> Callable[Concatenate[Owner, Parameters], Released]:
    """Create a publishing method with a name from a method that returns a query."""

    @wraps(query)
    def method(whose: Owner, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Released:
        return publish(query(whose, *args, **kwargs))

    method.__name__, method.__qualname__ = name, query.__qualname__.replace(query.__name__, name)
    method.__dict__["__signature__"] = _published(inspect.signature(query))
    return method


def _published(signature: inspect.Signature) -> inspect.Signature:
    """Return the signature of a function that publishes a query."""
    returned = str(signature.return_annotation).removeprefix("Query[").removesuffix("]")
    return signature.replace(return_annotation=returned)
