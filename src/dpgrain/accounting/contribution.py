"""Sensitivity of a clipped sum for any number of changed units of one person.

A sum adds *blocks*, each clipped to norm 1 (all numbers here are in units of the clipping bound). A
block is the data of one privacy unit: one record, one element, or one whole user. The change of the
sum when k units of one person change depends on the layout of the blocks:

- ``disjoint``: blocks of one person have disjoint coordinates, because the cell is a public function
  of the item. k blocks change the l2 norm by √k;
- ``shared``: blocks of one person may share coordinates (the cell is another column, or the sum is a
  gradient). k blocks change it by k;
- ``pooled``: each block adds at most 1 to one coordinate, and each coordinate counts at most s blocks
  of one person (cells share a histogram of norms). k ≤ s blocks change it by k, and k > s by at most
  √(s·k).

Proofs: docs/theory, "Sums".
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.units import RELATIONS, Level, Relation, Unit, User, unit_level

# Largest distance of two blocks of norm at most 1: the factor that `replace` costs.
_REPLACE_FACTORS = {
    ("l2", "one"): 1.0,
    ("l2", "nonnegative"): math.sqrt(2.0),
    ("l2", "signed"): 2.0,
    ("l1", "one"): 1.0,
    ("l1", "nonnegative"): 2.0,
    ("l1", "signed"): 2.0,
    ("l2", "stated"): 1.0,
    ("l1", "stated"): 1.0,
}


@dataclass(frozen=True)
class Contribution:
    """The effect of one person's units on a sum, in units of the clipping bound.

    Args:
        block: the unit that contributes one clipped block.
        layout: whether blocks of one person use disjoint or shared coordinates, or are pooled: each
            on any one of the coordinates.
        coordinates: whether a block is one non-negative number, several of them, or signed numbers.
            ``"one"`` for records, users or the shared layout means that the whole sum is one
            number. ``"stated"`` only states that replacing one block changes the sum by at most 1.
        norm: the norm used for clipping.
        max_elements: the maximum number of elements per user, if the release enforces one.
        cells: the public number of cells, which bounds the elements of a user.
        record_size: the largest norm of one record's contribution to its block before clipping;
            infinite if unbounded.
        per_coordinate: the maximum number of blocks of one person per coordinate; for the pooled
            layout only.

    Raises:
        ParameterError: if a value is not one of these, or out of range.

    >>> Contribution().sensitivity(units=4)
    2.0
    >>> Contribution(layout="shared").sensitivity(units=4)
    4.0
    >>> Contribution(layout="pooled", per_coordinate=2).sensitivity(units=4)
    2.8284271247461903
    """

    block: Level = "element"
    layout: Literal["disjoint", "shared", "pooled"] = "disjoint"
    coordinates: Literal["one", "nonnegative", "signed", "stated"] = "nonnegative"
    norm: Literal["l2", "l1"] = "l2"
    max_elements: int | None = None
    cells: int | None = None
    record_size: float = math.inf
    per_coordinate: int | None = None

    def __post_init__(self) -> None:
        _validate.check_fields(self)
        if self.max_elements is not None:
            _validate.integer(minimum=1, max_elements=self.max_elements)
            if self.block == "record":
                # An emptied element would admit another one with any number of records.
                raise ParameterError(
                    "max_elements must be None if a block is a record; clip elements or users."
                )
        if self.cells is not None:
            _validate.integer(minimum=1, cells=self.cells)
        if self.record_size != math.inf:
            _validate.non_negative(record_size=self.record_size)
        self._check_pooled()

    def _check_pooled(self) -> None:
        if self.per_coordinate is not None:
            _validate.integer(minimum=1, per_coordinate=self.per_coordinate)
        if (self.layout == "pooled") != (self.per_coordinate is not None):
            raise ParameterError(
                "per_coordinate must be passed with layout='pooled' and with no other layout, "
                f"not {self.per_coordinate!r} with {self.layout!r}."
            )
        if self.layout == "pooled" and math.isfinite(self.record_size):
            raise ParameterError(
                f"record_size must be omitted with layout 'pooled', not {self.record_size!r}, "
                "because a small record can move a block from one coordinate to another."
            )
        if self.layout == "pooled" and (self.block, self.coordinates) != ("element", "nonnegative"):
            raise ParameterError(
                f"layout 'pooled' must have block='element' and coordinates='nonnegative', not "
                f"{self.block!r} and {self.coordinates!r}."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values; ``per_coordinate`` only if pooled."""
        values = asdict(self)
        if self.per_coordinate is None:
            # Other layouts are written as in earlier versions, so that these can read them.
            del values["per_coordinate"]
        return values

    @property
    def replace_factor(self) -> float:
        """The largest change of the sum when a block is replaced: 1, √2 or 2."""
        return _REPLACE_FACTORS[self.norm, self.coordinates]

    def _add(self, blocks: int) -> float:
        """Return the norm of the sum of one person's ``blocks`` blocks of norm 1."""
        if self.norm == "l1" or self.layout == "shared":
            return float(blocks)
        if self.per_coordinate is None:
            return math.sqrt(blocks)
        # The squares are largest if blocks share as few coordinates as possible.
        full, rest = divmod(blocks, self.per_coordinate)
        return math.hypot(math.sqrt(full) * self.per_coordinate, rest)

    @property
    def _moved(self) -> float:
        """The change of the sum when one block vanishes and another appears elsewhere."""
        if self.coordinates == "stated":
            return 2.0
        if self.layout == "shared":
            return self.replace_factor
        return math.sqrt(2.0) if self.norm == "l2" else 2.0

    def sensitivity(
        self, units: int = 1, relation: Relation = "zero_out", unit: Unit | None = None
    ) -> float:
        """Return the largest change of the sum, in clipping bounds, per change of units.

        Args:
            units: the number of records or elements of one person; of whole users for ``User``.
            relation: ``"zero_out"`` or ``"replace"``; a replaced record keeps its owner.
            unit: the unit that changes; by default the unit of the blocks.

        Raises:
            ParameterError: if ``units`` is not a positive integer, or another argument is invalid.

        The result is infinite if unbounded (a user with any number of elements).
        """
        units = _validate.integer(minimum=1, units=units)
        _validate.one_of(RELATIONS, relation=relation)
        level = unit_level(unit, self.block)
        condition = unit.max_elements if isinstance(unit, User) else None
        match self.block, level:
            case "record", "record":
                # A replaced record may change its item: it moves from one coordinate to another.
                return units * (1.0 if relation == "zero_out" else self.replace_factor)
            case "record", _:
                return math.inf
            case "element", "record":
                return self._records_in_elements(units, relation)
            case "element", "element":
                return self._elements(units, relation)
            case "element", "user":
                return units * self._whole_user_move(relation, condition)
            case "user", "record":
                return min(self._record_moves(units, relation), self.replace_factor)
            case "user", "element":
                return self.replace_factor
            case "user", "user":
                return units * (1.0 if relation == "zero_out" else self.replace_factor)
        raise AssertionError(f"unreachable: {self.block}, {level}")  # pragma: no cover

    @property
    def _stretch(self) -> float:
        """The largest factor by which clipping can increase the distance of two blocks."""
        # In l2 clipping is a projection onto the ball, so the factor is 1. In l1 it is not: scaling
        # (1, r) to norm 1 also changes the first coordinate, so r > 0 added to (1, 0) changes it by
        # 2r/(1+r). The factor is at most 2: with ‖x‖ ≥ max(‖y‖, 1) and y' the clipped y, ‖x/‖x‖ −
        # y'‖ ≤ ‖x − y‖/‖x‖ + (min(‖y‖, 1) − ‖y‖/‖x‖) ≤ (‖x − y‖ + ‖x‖ − ‖y‖)/‖x‖. (*)
        return 2.0 if self.norm == "l1" and self.coordinates != "one" else 1.0

    @property
    def _replaced_record(self) -> float:
        """The change of a block, in record sizes, when one of its records is replaced."""
        match self.norm, self.coordinates:
            case _, "one":
                return 1.0
            case "l2", "nonnegative":
                return math.sqrt(2.0)
            case "l1", "nonnegative":
                # x = z+a, y = z+b in (*): ‖x−y‖ ≤ ‖a‖+‖b‖ and ‖x‖−‖y‖ = ‖a‖−‖b‖, in all 2‖a‖.
                return 2.0
        return 2.0 * self._stretch

    def _record_moves(self, records: int, relation: Relation) -> float:
        """Return the joint effect of some changed records of one block."""
        if self.max_elements is not None:
            # A record that empties an element lets another element, of any size, be kept in its place.
            return math.inf
        factor = self._stretch if relation == "zero_out" else self._replaced_record
        return records * factor * self.record_size

    def _records_in_elements(self, records: int, relation: Relation) -> float:
        within = min(self._stretch * self.record_size, self.replace_factor)
        if self.max_elements is not None:
            # A record that empties an element lets another element be kept in its place.
            within = max(within, self._moved)
        changes = records * (2 if relation == "replace" else 1)
        if self.layout == "shared" or self.norm == "l1":
            distance = changes * within
        elif self.layout == "pooled":
            # Each change takes at most one block out of a coordinate and puts at most one into another.
            distance = self._moved * self._add(changes)
        else:
            # Counted one by one, each record changes the sum by at most `within`; a replaced one
            # changes it by √2 times that if it moves to another cell, and by 2 times that if it
            # changes its sign (signed) in its own. Counted block by block, Σ min(mᵢ·r, s)² ≤
            # s·r·Σmᵢ.
            exchanged = 2.0 if self.coordinates == "signed" else math.sqrt(2.0)
            one_by_one = records * within * (exchanged if relation == "replace" else 1.0)
            widest = max(within, self.replace_factor)
            distance = min(one_by_one, math.sqrt(changes * within * widest))
        if self.max_elements is None and self.cells is None:
            return distance
        return min(distance, self._whole_user_move("replace", None))

    def _elements(self, elements: int, relation: Relation) -> float:
        k = elements if self.cells is None else min(elements, self.cells)
        replaced = self.replace_factor * self._add(k)
        if self.max_elements is None:
            return self._add(k) if relation == "zero_out" else replaced
        # The first M elements in a public order are used, so emptying k of them admits up to k
        # others.
        changed = max(self._moved * self._add(k), replaced)
        return min(changed, self._whole_user_move("replace", None))

    def _whole_user_move(self, relation: Relation, condition: int | None) -> float:
        bounds = [m for m in (self.max_elements, condition, self.cells) if m is not None]
        if not bounds:
            return math.inf
        m = min(bounds)
        if relation == "zero_out":
            return self._add(m)
        distance = max(self._moved, self.replace_factor) * self._add(m)
        if self.cells is not None:
            # The number of cells is fixed, and at most all of them can change.
            distance = min(distance, self.replace_factor * self._add(self.cells))
        return distance


#: A sum of one vector per user, for accounting.
ONE_EACH = Contribution(block="user", layout="shared", coordinates="signed")
