"""The price of a release for a promised unit other than the unit of the release.

A ledger promises something to one unit, such as a user's day, and releases protect others: a user's
week, or a whole user. What a release costs the promised unit follows from how that unit lies in the
blocks which the release clips. Proofs: docs/theory, "Scopes".
"""

from __future__ import annotations

import math
from dataclasses import replace

from dpgrain.accounting.events.base import Asked
from dpgrain.errors import ParameterError
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.prices import Price, price
from dpgrain.scope.partitions import Partition
from dpgrain.units import PLAIN_UNITS, Element, Level, Relation, User

# Accounts of an exchanged record: it may leave one and enter another.
_ACCOUNTS_OF_A_RECORD = 2


def price_for(
    guarantee: Guarantee,
    level: Level,
    cells: Partition | None,
    relation: Relation,
    caps: Price,
    room: Price | None = None,
) -> Price:
    """Return the price of a release in the caps of each promised unit that it meets.

    Args:
        guarantee: what the release promises.
        level: the promised unit.
        cells: the partition into promised elements; None for records and users. A user's records in
            any window of days are an element of such a rule.
        relation: the neighbouring relation of the promise.
        caps: the prices that the whole promise holds.
        room: the prices that are left for this release; by default all of the caps.

    Raises:
        ParameterError: if nothing bounds what one promised unit adds to the release.

    Formal guarantee: for data that differ in one promised unit H_γ ≤ H_γ(N(m, 1) ⊗ RR_e) + ℓ for every
    γ ≥ 0 and both orders. In ρ²/σ² of a Gaussian sum, b whole blocks cost b on disjoint coordinates
    and b² on shared ones; parts of b blocks s² times that, with s² = 1 for one number, 2 for several
    that are not negative, and 4 for signed ones; max(2, s²)·b under enforced bounds. A record that may
    leave the region costs twice that. Source: docs/theory, "Scopes".

    >>> from dpgrain.accounting import Contribution, Gaussian
    >>> from dpgrain.scope.partitions import Rule
    >>> weeks, days = (Partition((Rule("day", kind),)) for kind in ("week", "day"))
    >>> weekly = Guarantee(
    ...     "element", "weeks", "zero_out", 1e-6, Gaussian(10.0, Contribution()), partition=weeks
    ... )
    >>> caps = Price(mu=0.25)
    >>> round(price_for(weekly, "element", weeks, "zero_out", caps).mu, 6)
    0.1
    >>> round(price_for(weekly, "element", days, "zero_out", caps).mu / 0.1, 6)
    1.414214
    """
    asked = asked_of(guarantee, level, cells, relation)
    accounts = _accounts(guarantee, level, relation)
    result = price(
        guarantee.event,
        asked.relation,
        asked.unit,
        caps,
        None if room is None else room.part(1 / accounts),
        units=asked.units,
    )
    return result.times(accounts)


def asked_of(
    guarantee: Guarantee, level: Level, cells: Partition | None, relation: Relation
) -> Asked:
    """Return the question about the release's own units that answers for one promised unit.

    Args:
        guarantee: what the release promises.
        level: the promised unit.
        cells: the partition into promised elements; None for records and users.
        relation: the neighbouring relation of the promise.

    Raises:
        ParameterError: if nothing bounds what one promised unit adds to the release.
    """
    result = Asked(1, relation, PLAIN_UNITS[level], None)
    if level == "element" and cells is not None:
        if cells.cells_in(guarantee.scope) == 1:
            # All that a user has in the scope lies in one promised cell.
            result = replace(result, unit=User())
        elif guarantee.level == "element" or guarantee.partition is not None:
            result = _of_cells(guarantee, cells, relation)
    if (
        isinstance(result.unit, User)
        and guarantee.level == "element"
        and not _bounded(guarantee, result)
    ):
        result = _of_whole_users(guarantee, result.relation) or result
    if not _bounded(guarantee, result):
        raise ParameterError(
            f"the contribution of {_promised(level, cells)} to this release, which protects "
            f"{_protected(guarantee)}, is unbounded; use the promised unit, User(max_elements=…), "
            "or a region by where(…) with few elements per person."
        )
    return result


def _of_cells(guarantee: Guarantee, cells: Partition, relation: Relation) -> Asked:
    """Return the question about as many elements of the release as a promised one meets."""
    if guarantee.partition is None:
        # Where a partition is known in words alone, these are what arrays say.
        if guarantee.elements in (str(cells), f"the column {cells}"):
            return Asked(1, relation, Element(), None)
        raise ParameterError(
            f"the release protects elements of {guarantee.elements or 'no known partition'}, but "
            f"the promise is about {cells}, and the relation between their cells is unknown; use "
            "the same column name in both."
        )
    overlap = guarantee.partition.compared(cells, guarantee.scope)
    # A part of a block may move it anywhere, as an exchange of the block does.
    if overlap is None:
        return Asked(1, "replace", User(), None)
    return Asked(overlap.cells, relation if overlap.whole else "replace", Element(), None)


def _of_whole_users(guarantee: Guarantee, relation: Relation) -> Asked | None:
    """Return the question about all elements that a user can have in the scope."""
    most = guarantee.partition and guarantee.partition.cells_in(guarantee.scope)
    return Asked(most, relation, Element(), None) if most else None


def _accounts(guarantee: Guarantee, level: Level, relation: Relation) -> int:
    """Return the number of accounts of one promised unit that such a release may meet."""
    moves = level == "record" and relation == "replace" and not guarantee.scope.everything
    return _ACCOUNTS_OF_A_RECORD if moves else 1


def _bounded(guarantee: Guarantee, asked: Asked) -> bool:
    loss = guarantee.event.loss(asked.units, asked.relation, asked.unit)
    return math.isfinite(min(loss.epsilon(delta) for delta in (0.5, 0.999)))


def _promised(level: Level, cells: Partition | None) -> str:
    if level == "element":
        return f"one user's records in one cell of the partition by {cells}"
    return f"one {level}"


def _protected(guarantee: Guarantee) -> str:
    of = f" of {guarantee.partition or guarantee.elements}" if guarantee.level == "element" else ""
    return f"{guarantee.level}s{of}"
