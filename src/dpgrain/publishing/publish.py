"""Publishing: warn, charge budget and ledger, and only then read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.noise.sources import random_source
from dpgrain.publishing.budget import charge as charge_open_ones
from dpgrain.publishing.budget import open_budget, reject_composed
from dpgrain.publishing.call import keep_query
from dpgrain.publishing.charge import Charge
from dpgrain.publishing.guarantee import (
    Guarantee,
    warn_large_delta,
    warn_large_epsilon,
    warn_unreliable_result,
)
from dpgrain.publishing.ledgers import open_ledger
from dpgrain.publishing.origins import ArrayOrigin, array_origin
from dpgrain.publishing.query import Query, Released
from dpgrain.publishing.reservation import Reservation
from dpgrain.publishing.share import BudgetShare


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
    # A release inside a callback of another release has separate rows.
    with array_origin(ArrayOrigin()):
        return _publish(query)


def _publish(query: Query[Released]) -> Released:
    if not isinstance(query, Query):
        raise ParameterError(
            f"query must be a query, not {_validate.describe(query)}; a stored or pickled one has no "
            "rows until Query.from_dict binds it.",
            name="query",
        )
    if (progress := getattr(query, "progress", None)) is not None:
        _validate.boolean(progress=progress)
    query = query.settled()
    warn_large_epsilon(query.promise.epsilon)
    plan, source = query.plan, random_source(query.random_state)
    warn_unreliable_result(plan.care)
    guarantee = query.charged(
        partial(
            before_publishing,
            replace(plan.guarantee, private=source.private),
            n_users=plan.n_users,
            cells=plan.cells,
            share=query.promise.share,
        )
    )
    with Charge(guarantee, source) as charge:
        return keep_query(query.run(charge), query.call, plan.shares)


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
    reject_composed()
    warn_large_delta(guarantee.delta, guarantee.level, n_users, cells)
    budget, part = (None, None) if share is None else (share.budget, share.part)
    return charge_open_ones(guarantee, budget, part, parts=parts, mark=mark, again=again)


def before_resuming(guarantee: Guarantee, *, n_users: int | None = None) -> Guarantee:
    """Charge a resumed release, unless the open ledger has charged it.

    Args:
        guarantee: the guarantee of the release, with its receipts from the start.
        n_users: the stated number of users; None if unknown.

    Returns:
        The guarantee to publish, with the receipt of the open ledger.

    An open budget is charged for the whole release, because it cannot know an earlier budget.
    """
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
    """Charge several releases as one, before any of them reads data.

    The reservation can publish each of them once, and stays charged if it does not. ``together`` is
    their composed guarantee. Source: docs/theory, "Budgets".
    """
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
