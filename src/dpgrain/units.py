"""Privacy units and the neighbouring relation.

A *privacy unit* is the data that a guarantee protects: a record, an element (all records of one
user in one cell of a public partition), or a user. Two data sets are neighbours if one unit
differs:

- ``zero_out``: the unit's records are removed; the user stays enrolled, so the number of users
  is the same on both sides;
- ``replace``: the unit's records are replaced by any others (for an element, of the same cell).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from dpgrain import _validate
from dpgrain.errors import ParameterError

Relation: TypeAlias = Literal["zero_out", "replace"]
#: Distribution of additive noise.
Law: TypeAlias = Literal["gaussian", "laplace"]
#: Trust model: a curator ("central"); a shuffler, but no curator ("shuffle"); or a curator whose
#: state may be disclosed once ("pan").
Trust: TypeAlias = Literal["central", "shuffle", "pan"]
RELATIONS: tuple[Relation, ...] = ("zero_out", "replace")
Level: TypeAlias = Literal["record", "element", "user"]
LEVELS: tuple[Level, ...] = ("record", "element", "user")


@dataclass(frozen=True)
class Record:
    """Protection of one record, one row of the table; a replaced record keeps its owner.

    >>> Record()
    Record()
    """

    level: Level = field(default="record", init=False, repr=False)


@dataclass(frozen=True, repr=False)
class Element:
    """Protection of all records of one user in one cell of a public partition.

    Args:
        by: the partition: a column name; a mapping from item to cell (a dict, a two-column table, or a
            :class:`pathlib.Path` of one); a function of the item; a :class:`dpgrain.Elements`; or
            None if elements are passed with the data.

    The partition must be public. A partition computed from the protected data (such as k-means on
    private vectors) voids the guarantee.

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
    """Protection of all records of one user.

    Args:
        max_elements: the maximum number of elements of one user. A release enforces the bound, by
            dropping all but the first elements in a public order; in
            ``epsilon(unit=User(max_elements=M))`` it is a condition: the ε is that of users with at
            most M elements.
        by: the partition into elements for the bound, in any form that :class:`Element` accepts; by
            default each item is its own element. Requires ``max_elements``.

    Raises:
        ParameterError: if ``max_elements`` is not a positive integer.

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

# The unit without parameters of each level, for uses of the level only.
PLAIN_UNITS: Mapping[Level, Unit] = {"record": Record(), "element": Element(), "user": User()}


def unit_level(unit: Unit | None, default: Level) -> Level:
    """Return the level of a unit, or the default without a unit."""
    if unit is None:
        return default
    if not isinstance(unit, Record | Element | User):
        raise ParameterError(
            f"unit must be Record(), Element(by) or User(), not {_validate.describe(unit)}."
        )
    return unit.level
