"""Tables of planned noise and expected error, from public numbers.

Plans also show limits of all mechanisms: the lower bounds of the papers, which are orders (without
constants and logarithms), and numerical floors, which are proved in :mod:`dpgrain.papers.floors`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dpgrain import _validate
from dpgrain._formatting import powers, rounded_down, rounded_up
from dpgrain.accounting.events.base import Event
from dpgrain.errors import ParameterError
from dpgrain.publishing import Promise, Query
from dpgrain.publishing.release_plan import Plan
from dpgrain.units import Relation, Unit, User
from dpgrain.words.notes import Note, note_texts

Kind: TypeAlias = Literal["number", "floor", "order"]
#: Rows of text, the first cell of each is a name; with a heading, which may be empty.
Section: TypeAlias = tuple[str, list[tuple[str, ...]]]
FLOOR = "dpgrain.papers.floors"
# A number of units where every floor has reached its maximum.
MANY_UNITS = 1_000_000


class PlanTable(ABC):
    """Base class of plans: a title, tables with the same columns, and notes."""

    if TYPE_CHECKING:

        @property
        def title(self) -> str:
            """The title of the tables."""

        @property
        def columns(self) -> tuple[str, ...]:
            """The headings of the columns."""

        @property
        def assumptions(self) -> tuple[Note, ...]:
            """Assumptions of the numbers, each a kind and its numbers."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on the assumptions of the numbers."""
        return note_texts(self.assumptions)

    @abstractmethod
    def tables(self) -> list[Section]:
        """Return the tables, each with its heading and rows of text."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""

    def to_json(self) -> str:
        """Return the plan as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def __str__(self) -> str:
        tables = self.tables()
        rows = [self.columns, *(row for _, rows in tables for row in rows)]
        first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]

        def line(row: Sequence[str]) -> str:
            return "  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)]).rstrip()

        lines = [f"{self.title}:", line(self.columns)]
        for heading, rows in tables:
            lines += [*filter(None, [heading]), *map(line, rows)]
        return "\n  ".join([*lines, *self.notes])


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
            return f"order of {rounded_up(float(f'{self.value:.0e}'), 1)}"
        return rounded_down(self.value) if self.kind == "floor" else rounded_up(self.value)


def floor_row(name: str, value: float, unit: str = "clipping bounds") -> PlanRow:
    """Return the row of a proved floor under any mechanism."""
    return PlanRow(name, value, unit, FLOOR, "floor")


@dataclass(frozen=True)
class ErrorPlan(PlanTable):
    """The cost of a mechanism and its expected accuracy, before anything is spent.

    Args:
        title: a description of the mechanism and the promise.
        epsilon: the promised ε.
        delta: the promised δ.
        event: the planned event.
        rows: the numbers.
        assumptions: the assumptions of the numbers, each a kind and its numbers.

    >>> from dpgrain.planning import plan_mean
    >>> plan = plan_mean(1.0, 1e-6, n=10_000)
    >>> for row in plan.rows[:3]:
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
    rows: tuple[PlanRow, ...]
    assumptions: tuple[Note, ...] = ()

    columns = ("", "value", "in")

    def __getitem__(self, name: str) -> float:
        """Return the number of the row with a name.

        Raises:
            ParameterError: if no row has this name.
        """
        for row in self.rows:
            if isinstance(name, str) and row.name == name:
                return row.value
        names = ", ".join(repr(row.name) for row in self.rows)
        raise ParameterError(
            f"row {_validate.describe(name)} is not in this plan; choose from {names}."
        )

    @property
    def _sources(self) -> list[str]:
        return list(dict.fromkeys(row.source for row in self.rows if row.source))

    @property
    def notes(self) -> tuple[str, ...]:
        """The numbered sources, and the assumptions of the numbers."""
        sources = (f"[{number}] {source}" for number, source in enumerate(self._sources, 1))
        return (*sources, *super().notes)

    def tables(self) -> list[Section]:
        """Return the one table, with the numbers of sources after the names."""
        sources = self._sources
        cited = {source: f" [{number}]" for number, source in enumerate(sources, 1)}
        return [
            (
                "",
                [(row.name + cited.get(row.source, ""), row.text, row.unit) for row in self.rows],
            )
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        return {
            "plan": self.title,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "event": self.event.to_dict(),
            "rows": [asdict(row) for row in self.rows],
            "notes": list(super().notes),
        }


@dataclass(frozen=True)
class QueryTable(PlanTable):
    """Plans of queries at several ε, created by :func:`plan_table`.

    Args:
        epsilons: the values of ε, one per row.
        plans: name of a query → its plans, one for each ε.

    >>> import pyarrow as pa
    >>> from dpgrain import User, count, read
    >>> visits = read(pa.table({"who": [1, 2, 2]}), user="who")
    >>> query = count.query(visits, unit=User(), epsilon=1.0, delta=1e-6, clip=5.0)
    >>> table = plan_table({"visits": query}, [0.5, 2.0])
    >>> [plan.expected.std_error > 0 for plan in table.plans["visits"]]
    [True, True]
    """

    epsilons: tuple[float, ...]
    plans: dict[str, tuple[Plan, ...]]

    title = "Standard error of the noise"

    @property
    def columns(self) -> tuple[str, ...]:
        """ε, and the names of the queries."""
        return ("ε", *self.plans)

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings of unreliable results, each with the name of its query."""
        named = ((name, plan) for name, plans in self.plans.items() for plan in plans)
        texts = (f"{name}: {text}" for name, plan in named for text in note_texts(plan.care))
        return tuple(dict.fromkeys(texts))

    def tables(self) -> list[Section]:
        """Return the one table: ε, and the expected error of each query."""
        columns = [
            ["unknown" if plan.expected is None else str(plan.expected) for plan in plans]
            for plans in self.plans.values()
        ]
        return [("", list(zip(map(rounded_up, self.epsilons), *columns, strict=True)))]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        errors = {
            name: [None if plan.expected is None else asdict(plan.expected) for plan in plans]
            for name, plans in self.plans.items()
        }
        return {
            "plan": self.title,
            "epsilons": self.epsilons,
            "errors": errors,
            "notes": self.notes,
        }


def plan_table(queries: Mapping[str, Query[Any]], epsilons: Sequence[float]) -> QueryTable:
    """Return the expected errors of queries at several ε, without reading rows.

    Args:
        queries: the queries by name, such as one per unit.
        epsilons: the values of ε.

    Raises:
        ParameterError: if ``queries`` contains other objects, or an ε is out of range.

    >>> import pyarrow as pa
    >>> from dpgrain import Record, User, count, read
    >>> visits = read(pa.table({"who": [1, 2, 2]}), user="who")
    >>> queries = {
    ...     unit.level: count.query(visits, unit=unit, epsilon=1.0, delta=1e-6, clip=5.0)
    ...     for unit in (Record(), User())
    ... }
    >>> print(plan_table(queries, [0.5, 2.0]))
    Standard error of the noise:
      ε    record   user
      0.5   ±14.1  ±14.1
      2     ±3.54  ±3.54
    """
    named = _validate.mapping(queries=queries)
    steps = tuple(_validate.positive(epsilons=one) for one in _validate.numbers(epsilons=epsilons))

    def plans(query: Query[Any]) -> tuple[Plan, ...]:
        promise = _validate.instance(Query, queries=query).promise  # type: ignore[type-abstract]
        each = (replace(promise, epsilon=epsilon, share=None) for epsilon in steps)
        return tuple(query.with_promise(one).plan for one in each)

    return QueryTable(steps, {name: plans(query) for name, query in named.items()})


def planned_promise(
    unit: Unit, epsilon: float, delta: float, relation: Relation, *, allow_zero: bool = False
) -> Promise:
    """Validate a promise; floors are computed for ε from 1e-6 to 1e6 only."""
    promise = Promise(unit, epsilon, _validate.delta(allow_zero=allow_zero, delta=delta), relation)
    if not 1e-6 <= promise.epsilon <= 1e6:
        raise _validate.error_about(
            "epsilon", f"must be between 1e-6 and 1e6, not {_validate.describe(epsilon)}."
        )
    return promise


def vectors_per_unit(unit: Unit) -> int:
    """Return the maximum number of clipped vectors of one unit."""
    return (unit.max_elements or 1) if isinstance(unit, User) else 1


def promise_text(promise: Promise) -> str:
    """Return the description of a promise for a plan's title."""
    most = vectors_per_unit(promise.unit)
    limit = f" of at most {most} elements" if most > 1 else ""
    return (
        f"{promise.level}-level{limit}, {promise.relation}, ε = {promise.epsilon:g}, "
        f"δ = {powers(promise.delta)}"
    )


def three_digits(value: float) -> str:
    """Return a number as text, with three digits and thousands separators."""
    return f"{float(f'{value:.3g}'):,.10g}"
