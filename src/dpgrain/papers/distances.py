"""Distances between samples in the definition of neighbours."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy.optimize import linear_sum_assignment

from dpgrain import _validate
from dpgrain.errors import ParameterError

Cell: TypeAlias = Callable[[Any], Hashable] | Mapping[Any, Hashable] | None
#: Records of one user: a list, or the count of each.
Records: TypeAlias = Iterable[Hashable] | Mapping[Any, int]


@dataclass(frozen=True)
class _MissingCell:
    """Cell of an item missing from a mapping, different from all of its cells."""

    item: Any


def _identity(item: Any) -> Hashable:
    return item  # type: ignore[no-any-return]


def _cells(records: Records, cell: Cell) -> dict[Hashable, Counter[Hashable]]:
    """Return the multiset of records in each non-empty cell."""
    cell_of: Callable[[Any], Hashable]
    # An array without axes cannot be iterated over.
    is_point = getattr(records, "shape", None) == ()
    if isinstance(records, str | bytes) or not isinstance(records, Iterable) or is_point:
        raise ParameterError(
            f"records of a user must be a list, not {_validate.describe(records)}.",
            name="records",
        )
    if cell is None:
        cell_of = _identity
    elif isinstance(cell, Mapping):
        # An item without a cell is its own cell, different from every named cell.
        names = cell

        def cell_of(item: Any) -> Hashable:
            return names.get(item, _MissingCell(item))

    elif not callable(cell):
        raise ParameterError(
            f"cell must be a function or a mapping, not {_validate.describe(cell)}.",
            name="cell",
        )
    else:
        cell_of = cell
    groups: dict[Hashable, Counter[Hashable]] = defaultdict(Counter)
    for record, count in _counted(records):
        own = cell_of(record)
        if not (_is_hashable(own) and _is_hashable(record)):
            raise ParameterError("records and cells must be hashable, such as numbers and text.")
        groups[own][record] += count
    return groups


def _counted(records: Records) -> Iterable[tuple[Any, int]]:
    """Return records with their counts, without counts of 0."""
    if not isinstance(records, Mapping):
        return ((record, 1) for record in records)
    counts = {item: _validate.integer(minimum=0, records=n) for item, n in records.items()}
    return ((item, count) for item, count in counts.items() if count)


def _is_hashable(value: Any) -> bool:
    """Check if a value can be counted."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def d_user(x: Records, y: Records, cell: Cell = None) -> int:
    """Count the cells where two users' multisets of records differ.

    Args:
        x: the records of one user; or a mapping of items to counts, such as a ``Counter``.
        y: the records of the other, likewise.
        cell: item → cell, a function or a mapping (missing items are their own cells); by default
            each item is its own cell.

    Raises:
        ParameterError: if records are not a list of hashable values, or cell is not a function or a
            mapping.

    Two users are element neighbours if this is at most 1. Source: element-level paper, eq. (2).

    >>> d_user(["yo", "yo", "bro"], ["yo", "bro"])
    1
    >>> d_user({"yo": 2, "bro": 1}, {"yo": 1, "bro": 1})
    1
    >>> d_user(["yo", "bro"], ["hello"], cell=lambda word: "all")
    1
    """
    left, right = _cells(x, cell), _cells(y, cell)
    return sum(left.get(c) != right.get(c) for c in left.keys() | right.keys())


def d_element(sample: Sequence[Records], other: Sequence[Records], cell: Cell = None) -> int:
    """Sum :func:`d_user` over users, minimised over the orders of the users.

    Args:
        sample: the records of each user, as for :func:`d_user`.
        other: the same number of users.
        cell: item → cell, a function or a mapping (missing items are their own cells); by default
            each item is its own cell.

    Raises:
        ParameterError: if the samples contain different numbers of users: neighbours have the same
            population, and a user without records is an empty sequence.

    Source: element-level paper, eq. (3); the minimum is an assignment problem.

    >>> d_element([["a"], ["b", "b"]], [["b"], ["a"]])
    1
    """
    ones: list[Any] = _validate.sequence(sample=sample)
    others: list[Any] = _validate.sequence(other=other)
    if len(ones) != len(others):
        raise ParameterError(
            f"other must have the same number of users as sample, {len(ones)}, not {len(others)}; "
            "pass an empty sequence for a user without records."
        )
    costs = np.array([[d_user(x, y, cell) for y in others] for x in ones], dtype=np.int64)
    if costs.size == 0:
        return 0
    rows, columns = linear_sum_assignment(costs)
    return int(costs[rows, columns].sum())
