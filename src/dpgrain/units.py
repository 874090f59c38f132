"""Privacy units and the neighbouring relation.

A *privacy unit* is what one promise protects: a record, an element (all records of one user in
one cell of a public partition), or a user. Two data sets are neighbours if one unit differs:

- ``zero_out``: the unit's records are removed; the user stays enrolled, so the number of users
  is the same on both sides;
- ``replace``: the unit's records are exchanged for any others (for an element, of the same cell).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from dpgrain import _validate
from dpgrain.errors import ParameterError

Relation: TypeAlias = Literal["zero_out", "replace"]
#: The law of additive noise.
Law: TypeAlias = Literal["gaussian", "laplace"]
#: Whom people trust: a curator ("central"); nobody who sees data, behind a shuffler ("shuffle"); or a
#: curator whose state may be seen once ("pan").
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
        by: the partition: a column name; a mapping from item to cell (a dict, a two-column table, or a
            :class:`pathlib.Path` of one); a function of the item; a :class:`dpgrain.Elements`; or
            nothing, where elements are passed with the data.

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
        max_elements: the largest number of elements of one user. In a release the bound is enforced
            (the first elements in a public order are kept); in ``epsilon(unit=User(max_elements=M))``
            it is a condition: the ε holds for users with at most M elements.
        by: the partition into elements that the bound counts, in any form that :class:`Element` takes;
            by default each item is its own element. It is only used with ``max_elements``.

    Raises:
        ParameterError: if ``max_elements`` is not a whole number of at least 1.

    >>> User(max_elements=40)
    User(max_elements=40)
    """

    max_elements: int | None = None
    by: Any = field(default=None, repr=False)
    level: Level = field(default="user", init=False, repr=False)

    def __repr__(self) -> str:
        return "User()" if self.max_elements is None else f"User(max_elements={self.max_elements})"

    def __post_init__(self) -> None:
        if self.max_elements is not None:
            bound = _validate.integer(minimum=1, max_elements=self.max_elements)
            object.__setattr__(self, "max_elements", bound)


Unit: TypeAlias = Record | Element | User

# The plain unit of each level, for use where only the level matters.
PLAIN_UNITS: Mapping[Level, Unit] = {"record": Record(), "element": Element(), "user": User()}


def unit_level(unit: Unit | None, default: Level) -> Level:
    """Return the level of a unit, or the default without a unit.

    Raises:
        ParameterError: if ``unit`` is not a privacy unit.
    """
    if unit is None:
        return default
    if not isinstance(unit, Record | Element | User):
        raise ParameterError(
            f"unit must be Record(), Element(by) or User(), not {_validate.describe(unit)}."
        )
    return unit.level
