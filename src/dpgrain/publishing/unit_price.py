"""The price of a release for a privacy unit that differs from the unit of the release.

A ledger may promise privacy for one unit, such as a user's day, while a release protects another, such
as a user's week or a whole user. The price for the promised unit depends on how that unit overlaps the
blocks that the release clips. Proofs: docs/theory, "Scopes".
"""

from __future__ import annotations

import math
from dataclasses import replace

from dpgrain.accounting.events.base import Neighbours
from dpgrain.errors import ParameterError
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.prices import Price, price
from dpgrain.scope.partitions import Partition
from dpgrain.units import PLAIN_UNITS, Element, Level, Relation, User

# A replaced record can leave one account and enter another, so both are charged.
_ACCOUNTS_PER_REPLACED_RECORD = 2


def price_for_unit(
    guarantee: Guarantee,
    level: Level,
    cells: Partition | None,
    relation: Relation,
    caps: Price,
    room: Price | None = None,
) -> Price:
    """Return the price that a release charges to each promised unit it affects.

    Args:
        cells: the partition that defines promised elements; None for records and users. A user's
            records within any window of days form one element of such a partition.
        room: the price still available for this release; by default, all of ``caps``.

    Formal guarantee: for data that differ in one promised unit, H_γ ≤ H_γ(N(m, 1) ⊗ RR_e) + ℓ for
    every γ ≥ 0, in both orders. In units of ρ²/σ² of a Gaussian sum, b whole blocks cost b on disjoint
    coordinates and b² on shared ones. Parts of b blocks cost s² times as much, where s² = 1 for a
    single number, 2 for several non-negative numbers and 4 for signed numbers; with enforced bounds
    they cost max(2, s²)·b. A record that may leave the region costs twice that. Source: docs/theory,
    "Scopes".

    >>> from dpgrain.accounting import Contribution, Gaussian
    >>> from dpgrain.scope.partitions import Rule
    >>> weeks, days = (Partition((Rule("day", kind),)) for kind in ("week", "day"))
    >>> weekly = Guarantee(
    ...     "element", "weeks", "zero_out", 1e-6, Gaussian(10.0, Contribution()), partition=weeks
    ... )
    >>> caps = Price(mu=0.25)
    >>> round(price_for_unit(weekly, "element", weeks, "zero_out", caps).mu, 6)
    0.1
    >>> round(price_for_unit(weekly, "element", days, "zero_out", caps).mu / 0.1, 6)
    1.414214
    """
    neighbours = neighbours_for_unit(guarantee, level, cells, relation)
    accounts = _accounts(guarantee, level, relation)
    price_per_account = price(
        guarantee.event,
        neighbours.relation,
        neighbours.unit,
        caps,
        None if room is None else room.part(1 / accounts),
        units=neighbours.units,
    )
    return price_per_account.times(accounts)


def neighbours_for_unit(
    guarantee: Guarantee, level: Level, cells: Partition | None, relation: Relation
) -> Neighbours:
    """Translate one promised unit into the equivalent change of the release's own units.

    Args:
        cells: the partition that defines promised elements; None for records and users.

    Returns:
        The neighbours under the release's event: how many of its units change, and how.
    """
    neighbours = Neighbours(1, relation, PLAIN_UNITS[level], None)
    if level == "element" and cells is not None:
        if cells.cells_in(guarantee.scope) == 1:
            # The scope is within one promised cell, so the element is all of a user's records.
            neighbours = replace(neighbours, unit=User())
        elif guarantee.level == "element" or guarantee.partition is not None:
            neighbours = _of_cells(guarantee, cells, relation)
    if (
        isinstance(neighbours.unit, User)
        and guarantee.level == "element"
        and not _bounded(guarantee, neighbours)
    ):
        neighbours = _of_whole_users(guarantee, neighbours.relation) or neighbours
    if not _bounded(guarantee, neighbours):
        raise ParameterError(
            f"the contribution of {_promised(level, cells)} to this release, which protects "
            f"{_protected(guarantee)}, is unbounded; use the promised unit, User(max_elements=…), "
            "or a region by where(…) with few elements per person."
        )
    return neighbours


def _of_cells(guarantee: Guarantee, cells: Partition, relation: Relation) -> Neighbours:
    """Translate one promised element into the elements of the release that it overlaps."""
    if guarantee.partition is None:
        # Releases from arrays only have a description of the partition, so compare descriptions.
        if guarantee.elements == str(cells):
            return Neighbours(1, relation, Element(), None)
        raise ParameterError(
            f"the release protects elements of {guarantee.elements or 'no known partition'}, but "
            f"the promise is about {cells}, and the relation between their cells is unknown; use "
            "the same column name in both."
        )
    overlap = guarantee.partition.compared(cells, guarantee.scope)
    # Changing part of a block can move it anywhere, so treat it as a replacement of the block.
    if overlap is None:
        return Neighbours(1, "replace", User(), None)
    return Neighbours(overlap.cells, relation if overlap.whole else "replace", Element(), None)


def _of_whole_users(guarantee: Guarantee, relation: Relation) -> Neighbours | None:
    """Translate a whole user into the largest number of elements a user can have in the scope."""
    max_cells = guarantee.partition and guarantee.partition.cells_in(guarantee.scope)
    return Neighbours(max_cells, relation, Element(), None) if max_cells else None


def _accounts(guarantee: Guarantee, level: Level, relation: Relation) -> int:
    """Return how many accounts one changed promised unit can affect."""
    can_leave_scope = level == "record" and relation == "replace" and not guarantee.scope.everything
    return _ACCOUNTS_PER_REPLACED_RECORD if can_leave_scope else 1


def _bounded(guarantee: Guarantee, neighbours: Neighbours) -> bool:
    """Return whether ε is finite for these neighbours, at least for a large δ."""
    loss = guarantee.event.loss(neighbours.units, neighbours.relation, neighbours.unit)
    return math.isfinite(min(loss.epsilon(delta) for delta in (0.5, 0.999)))


def _promised(level: Level, cells: Partition | None) -> str:
    if level == "element":
        return f"one user's records in one cell of the partition by {cells}"
    return f"one {level}"


def _protected(guarantee: Guarantee) -> str:
    elements = f" of {guarantee.partition or guarantee.elements}"
    return f"{guarantee.level}s{elements if guarantee.level == 'element' else ''}"
