"""Plans of the noise for a promise and of the expected error, from public numbers.

Each plan also shows limits of all mechanisms: the lower bounds of the papers, which are orders
(without constants and logarithms), and numerical floors, which are proved in
:mod:`dpgrain.papers.floors`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context
from typing import Any, Literal, TypeAlias

from dpgrain import _validate
from dpgrain._formatting import powers
from dpgrain.accounting.contribution import Contribution
from dpgrain.accounting.events.base import Event
from dpgrain.errors import ParameterError
from dpgrain.units import RELATIONS, Element, Level, Record, Relation, Unit, User

Kind: TypeAlias = Literal["number", "floor", "order"]
FLOOR = "dpgrain.papers.floors"


@dataclass(frozen=True)
class PlanRow:
    """One number of a plan.

    Args:
        name: the name of the number.
        value: the number.
        unit: the unit of measurement; empty for a plain number.
        source: the source equation in a paper, or empty.
        kind: a ``"number"``, a ``"floor"`` under any mechanism, or an ``"order"``, a floor with
            unknown constants and logarithms.

    >>> PlanRow("rms error", 0.123456, "bounds").text
    '0.1235'
    >>> PlanRow("least error", 0.123456, kind="floor").text
    '0.1234'
    >>> PlanRow("lower bound", 0.123456, kind="order").text
    'order of 0.1'
    """

    name: str
    value: float
    unit: str = ""
    source: str = ""
    kind: Kind = "number"

    @property
    def text(self) -> str:
        """The number as text: errors are rounded up, floors down, and orders to one digit."""
        if self.kind == "floor" and self.value == 0:
            # Nothing larger is proved, or the proved floor is below the smallest float.
            return "no floor above 1e-300"
        if self.kind == "order":
            return f"order of {_digits(self.value, 1, ROUND_HALF_EVEN)}"
        return _digits(self.value, 4, ROUND_FLOOR if self.kind == "floor" else ROUND_CEILING)


@dataclass(frozen=True)
class ErrorPlan:
    """The cost of a mechanism and its expected accuracy, before anything is spent.

    Args:
        title: a description of the mechanism and the promise.
        epsilon: the promised ε.
        delta: the promised δ.
        event: the planned event.
        lines: the numbers.
        notes: sentences on the assumptions of the numbers.

    >>> from dpgrain.planning import plan_mean
    >>> plan = plan_mean(1.0, 1e-6, n=10_000)
    >>> for row in plan.rows()[:3]:
    ...     print(f"{row.name}: {row.text} {row.unit}")
    noise multiplier σ: 4.225 clipping bounds
    noise sd of a coordinate: 0.0004225 clipping bounds
    rms privacy error: 0.0004225 clipping bounds
    >>> round(plan["rms privacy error"], 6), plan.event.epsilon(1e-6) <= 1.0
    (0.000422, True)
    """

    title: str
    epsilon: float
    delta: float
    event: Event
    lines: tuple[PlanRow, ...]
    notes: tuple[str, ...] = ()

    def rows(self) -> list[PlanRow]:
        """Return the numbers, one per row."""
        return list(self.lines)

    def __getitem__(self, name: str) -> float:
        """Return the number of the row with a name.

        Raises:
            ParameterError: if no row has this name.
        """
        for row in self.lines:
            if isinstance(name, str) and row.name == name:
                return row.value
        names = ", ".join(repr(row.name) for row in self.lines)
        raise ParameterError(
            f"row {_validate.describe(name)} is not in this plan; choose from {names}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        return {
            "plan": self.title,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "event": self.event.to_dict(),
            "rows": [
                {
                    "name": row.name,
                    "value": row.value,
                    "unit": row.unit,
                    "kind": row.kind,
                    "source": row.source,
                }
                for row in self.lines
            ],
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """Return the plan as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def __str__(self) -> str:
        cells = [(row.name, f"{row.text} {row.unit}".rstrip(), row.source) for row in self.lines]
        widths = [max(len(cell[i]) for cell in cells) for i in range(2)]
        listed = [
            f"  {name:<{widths[0]}}  {number:<{widths[1]}}  {source}".rstrip()
            for name, number, source in cells
        ]
        return "\n".join([f"{self.title}:", *listed, *(f"  {note}" for note in self.notes)])


# A number of units where every floor has reached its maximum.
MANY_UNITS = 1_000_000


def checked_promise(
    epsilon: float, delta: float, relation: Relation, *, allow_zero: bool = False
) -> tuple[float, float]:
    """Validate a promise, and return its ε and δ."""
    _validate.one_of(RELATIONS, relation=relation)
    if not 1e-6 <= _validate.positive(epsilon=epsilon) <= 1e6:
        raise _validate.error_about(
            "epsilon",
            f"must be between 1e-6 and 1e6, not {_validate.describe(epsilon)}.",
        )
    return float(epsilon), _validate.delta(allow_zero=allow_zero, delta=delta)


def unit_contribution(unit: Unit, coordinates: Literal["signed", "nonnegative"]) -> Contribution:
    """Return the effect of a unit's clipped vectors on a sum with shared coordinates."""
    bounded = isinstance(unit, User) and unit.max_elements is not None
    block: Level = "element" if bounded else unit.level
    most = unit.max_elements if isinstance(unit, User) else None
    return Contribution(block=block, layout="shared", coordinates=coordinates, max_elements=most)


def checked_unit(unit: Unit) -> Unit:
    """Return the unit, or raise if it is not one."""
    if not isinstance(unit, Record | Element | User):
        raise ParameterError(
            f"unit must be Record(), Element() or User(), not {_validate.describe(unit)}.",
            name="unit",
        )
    return unit


def vectors_per_unit(unit: Unit) -> int:
    """Return the maximum number of clipped vectors of one unit."""
    return (unit.max_elements or 1) if isinstance(unit, User) else 1


def promise_text(epsilon: float, delta: float, relation: Relation, unit: Unit) -> str:
    """Return the description of the promise for a plan's title."""
    most = f" of at most {vectors_per_unit(unit)} elements" if vectors_per_unit(unit) > 1 else ""
    return f"{unit.level}-level{most}, {relation}, ε = {epsilon:g}, δ = {powers(delta)}"


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table as lines, with names on the left and numbers aligned on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in rows
    ]


def three_digits(value: float) -> str:
    """Return a number as text, with three digits and thousands separators."""
    return f"{float(f'{value:.3g}'):,.10g}"


def _digits(value: float, digits: int, rounding: str) -> str:
    exact = Context(prec=digits, rounding=rounding).create_decimal(repr(float(value)))
    if value == 0 or 1e-4 <= value < 1e7:
        return f"{exact.normalize():,f}"
    return f"{exact:.{digits - 1}e}"
