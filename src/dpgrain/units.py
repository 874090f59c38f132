"""Privacy units, the neighbouring relation, and the distances that define neighbours.

A *privacy unit* is what one promise protects: a record, an element (all records of one user in
one cell of a public partition), or a user. Two data sets are neighbours if one unit differs:

- ``zero_out``: the unit's records are removed; the user stays enrolled, so the number of users
  is the same on both sides;
- ``replace``: the unit's records are exchanged for any others (for an element, of the same cell).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from dpgrain import _validate
from dpgrain.errors import ParameterError

Relation: TypeAlias = Literal["zero_out", "replace"]
#: Who sees data: a curator; nobody, behind a shuffler; a curator whose state may be seen once.
Trust: TypeAlias = Literal["central", "shuffle", "pan"]
RELATIONS: tuple[Relation, ...] = ("zero_out", "replace")
Level: TypeAlias = Literal["record", "element", "user"]
LEVELS: tuple[Level, ...] = ("record", "element", "user")


@dataclass(frozen=True)
class Record:
    """One record is protected: one row of the table. A replaced record keeps its owner.

    >>> Record()
    Record()
    """

    level: Level = field(default="record", init=False, repr=False)


@dataclass(frozen=True, repr=False)
class Element:
    """All records of one user in one cell of a public partition are protected.

    Args:
        by: what tells the cell of a record: a column name; a mapping from item to cell (a dict,
            a two-column table, or a :class:`pathlib.Path` of one); a function of the item; a
            :class:`dpgrain.Elements`; or nothing, where elements are passed with the data.

    The partition must be public. A partition computed from the protected data (k-means on
    private vectors, say) voids the promise.

    >>> Element("topic")
    Element(by='topic')
    """

    by: Any = None
    level: Level = field(default="element", init=False, repr=False)

    def __repr__(self) -> str:
        if isinstance(self.by, Mapping):
            return f"Element(by=<mapping of {len(self.by):,} items>)"
        return "Element()" if self.by is None else f"Element(by={self.by!r})"


@dataclass(frozen=True)
class User:
    """All records of one user are protected.

    Args:
        max_elements: at most so many elements of one user. In a release the bound is enforced (the
            first elements in a public order are kept); in ``epsilon(unit=User(max_elements=M))`` it
            is a condition: the ε holds for users with at most M elements.
        by: the partition into elements that the bound counts, as for :class:`Element`; by
            default each item is its own element. Only used with ``max_elements``.

    Raises:
        ParameterError: if ``max_elements`` is not a whole number of at least 1.

    >>> User(max_elements=40)
    User(max_elements=40)
    """

    max_elements: int | None = None
    by: Any = field(default=None, repr=False)
    level: Level = field(default="user", init=False, repr=False)

    def __post_init__(self) -> None:
        if self.max_elements is not None:
            bound = _validate.integer(minimum=1, max_elements=self.max_elements)
            object.__setattr__(self, "max_elements", bound)


Unit: TypeAlias = Record | Element | User

# The unit of each level, where only the level matters.
OWN_UNIT: Mapping[Level, Unit] = {"record": Record(), "element": Element(), "user": User()}

Cell: TypeAlias = Callable[[Any], Hashable] | Mapping[Any, Hashable] | None


@dataclass(frozen=True)
class _Own:
    """The cell of an item that a mapping lacks: like no cell that a mapping names."""

    item: Any


def _itself(item: Any) -> Hashable:
    return item  # type: ignore[no-any-return]


def _cells(records: Iterable[Hashable], cell: Cell) -> dict[Hashable, Counter[Hashable]]:
    """The multiset of records in each cell that has any."""
    cell_of: Callable[[Any], Hashable]
    if cell is None:
        cell_of = _itself
    elif isinstance(cell, Mapping):
        # An item without a cell is its own, apart from every named cell.
        names = cell

        def cell_of(item: Any) -> Hashable:
            return names.get(item, _Own(item))

    else:
        cell_of = cell
    groups: dict[Hashable, Counter[Hashable]] = defaultdict(Counter)
    for record in records:
        groups[cell_of(record)][record] += 1
    return groups


def d_user(x: Iterable[Hashable], y: Iterable[Hashable], cell: Cell = None) -> int:
    """Count the cells in which two users' multisets of records differ.

    Args:
        x: the records of one user.
        y: the records of the other.
        cell: item → cell, a function or a mapping (an item that it lacks is its own cell); by
            default each item is its own cell.

    Two users are element neighbours if this is at most 1. Source: element-level paper, eq. (2).

    >>> d_user(["yo", "yo", "bro"], ["yo", "bro"])
    1
    >>> d_user(["yo", "bro"], ["hello"], cell=lambda word: "all")
    1
    """
    left, right = _cells(x, cell), _cells(y, cell)
    return sum(left.get(c) != right.get(c) for c in left.keys() | right.keys())


def d_element(
    sample: Sequence[Sequence[Hashable]], other: Sequence[Sequence[Hashable]], cell: Cell = None
) -> int:
    """Sum :func:`d_user` over users, minimised over the orders of the users.

    Args:
        sample: one sequence of records per user.
        other: the same number of users.
        cell: as for :func:`d_user`.

    Raises:
        ParameterError: if the samples hold different numbers of users: neighbours have the same
            roster, and a user without records is an empty sequence.

    Source: element-level paper, eq. (3); the minimum is an assignment problem.

    >>> d_element([["a"], ["b", "b"]], [["b"], ["a"]])
    1
    """
    if len(sample) != len(other):
        raise ParameterError(
            f"other must hold as many users as sample ({len(sample)}), not {len(other)}; "
            "a user without records is an empty sequence."
        )
    from scipy.optimize import linear_sum_assignment

    costs = np.array([[d_user(x, y, cell) for y in other] for x in sample], dtype=np.int64)
    if costs.size == 0:
        return 0
    rows, columns = linear_sum_assignment(costs)
    return int(costs[rows, columns].sum())


def unit_level(unit: Unit | None, default: Level) -> Level:
    """The level of a unit, or the default where none is given.

    Raises:
        ParameterError: if it is not a privacy unit.
    """
    if unit is None:
        return default
    if not isinstance(unit, Record | Element | User):
        raise ParameterError(
            f"unit must be Record(), Element(by) or User(), not {_validate.said(unit)}."
        )
    return unit.level
