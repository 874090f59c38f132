"""The one way to publish: warn, charge budget and ledger, and only then read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.noise.sources import source_of
from dpgrain.publishing.budget import charge as charge_open_ones
from dpgrain.publishing.budget import open_budget, refuse_composed
from dpgrain.publishing.charge import Charge
from dpgrain.publishing.guarantee import Guarantee, warn_of_care, warn_of_delta, warn_of_epsilon
from dpgrain.publishing.ledgers import open_ledger
from dpgrain.publishing.query import Made, Query
from dpgrain.publishing.reservation import Reservation
from dpgrain.publishing.scope import Origin, arrays_of
from dpgrain.publishing.share import Share


def publish(query: Query[Made]) -> Made:
    """Make the release of a query: settle its share, warn, charge, and only then read.

    Args:
        query: what is asked for.

    Raises:
        RefusedError: if the open budget or ledger does not hold the release; nothing is charged
            then.
        ParameterError: if no ε makes the release fit into its share.
        DataError: if the ledger cannot be written, or the source cannot be read.

    Formal guarantee: that of the query's plan: rows are opened and noise is drawn with the charge
    alone, which draws each part of the event at most as often as it was charged.

    >>> import pyarrow as pa
    >>> from dpgrain import User, elements_per_user, read
    >>> visits = read(pa.table({"who": [1, 2, 2], "page": ["a", "b", "a"]}), user="who")
    >>> query = elements_per_user.query(visits, "page", unit=User(), epsilon=1.0, delta=1e-6)
    >>> str(query.plan.expected), len(publish(query))
    ('±5.97', 28)
    """
    # A release that a caller's function makes inside another is of rows of its own.
    with arrays_of(Origin()):
        return _made(query)


def _made(query: Query[Made]) -> Made:
    if not isinstance(query, Query):
        raise ParameterError(
            f"query must be a query, not {_validate.describe(query)}.", name="query"
        )
    query.check_process()
    if (progress := getattr(query, "progress", None)) is not None:
        _validate.boolean(progress=progress)
    query = query.settled()
    warn_of_epsilon(query.promise.epsilon)
    plan, source = query.plan, source_of(query.random_state)
    warn_of_care(plan.care)
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
        return query.run(charge)


def before_publishing(
    guarantee: Guarantee,
    *,
    n_users: int | None = None,
    cells: int = 1,
    share: Share | None = None,
    parts: Sequence[Guarantee] = (),
    mark: str = "",
    again: bool = True,
) -> Guarantee:
    """Warn of a large δ, then charge the open budget and ledger, before anything is read.

    The warning comes first: if it is turned into an error, it stops the release before the charge.

    Args:
        guarantee: what the release promises.
        n_users: the stated size of the roster, if it was stated.
        cells: the public number of cells, where it is known, else 1.
        share: the share of a budget that the release takes, if it was asked for by share.
        parts: the guarantees of the releases that it is composed of, where they are several.
        mark: the text by which the line of a ledger can be found.
        again: False where a ledger that has charged this mark before must refuse it.

    Returns:
        The guarantee to publish, which has the receipt of the ledger that is open, if one is.

    Raises:
        RefusedError: if the open budget or ledger does not hold the release; nothing is charged
            then.
        DataError: if the ledger cannot be written.
    """
    refuse_composed()
    warn_of_delta(guarantee.delta, guarantee.level, n_users, cells)
    budget, part = (None, None) if share is None else (share.budget, share.part)
    return charge_open_ones(guarantee, budget, part, parts=parts, mark=mark, again=again)


def before_resuming(guarantee: Guarantee, *, n_users: int | None = None) -> Guarantee:
    """Charge a resumed release, unless the open ledger holds its line.

    Args:
        guarantee: what the release promises, with the receipts that it had when it was begun.
        n_users: the stated size of the roster, if it was stated.

    Returns:
        The guarantee to publish, which has the receipt of the ledger that is open, if one is.

    Raises:
        RefusedError: if the open budget, or a ledger that lacks it, does not hold the whole release.
        DataError: if the ledger cannot be read or written, or lacks the line of a receipt.

    A budget that is open is charged for the whole release: it knows of no other budget.
    """
    ledger = open_ledger()
    if ledger is None or not any(ledger.holds(receipt) for receipt in guarantee.receipts):
        return before_publishing(guarantee, n_users=n_users)
    budget = open_budget()
    return guarantee if budget is None else budget.charge(guarantee)


def reserved(
    together: Guarantee,
    guarantees: Sequence[Guarantee],
    *,
    n_users: int | None = None,
    mark: str = "",
    again: bool = True,
) -> Reservation:
    """Charge several releases as one, before any of them reads anything.

    Args:
        together: the guarantee of all of them, composed.
        guarantees: the guarantee of each, of its plan.
        n_users: the stated size of the roster, if it was stated.
        mark: the text by which the line of a ledger can be found.
        again: False where a ledger that has charged this mark before must refuse it.

    Returns:
        What makes each of them, once.

    Raises:
        RefusedError: if the open budget or ledger does not hold them; nothing is charged then.
        DataError: if the ledger cannot be written.

    What is reserved is spent, whatever happens to the releases then. Source: docs/theory,
    "Budgets".
    """
    charged = before_publishing(together, n_users=n_users, parts=guarantees, mark=mark, again=again)
    return Reservation(charged, guarantees)


@contextmanager
def told_if_interrupted(what: str) -> Iterator[None]:
    """Add to an interrupt from the keyboard what it leaves of a charged release.

    Args:
        what: the release, such as ``"the fit"``.

    >>> try:
    ...     with told_if_interrupted("the fit"):
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
