"""The uses of a column, in every statistic, and their plain references."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from tests.malformed.cells import UNSTATED, Cell, Kind, Rows

import dpgrain as dg
from dpgrain._lazy_import import lazy_import
from dpgrain.errors import ParameterError
from dpgrain.publishing import budget, publish
from dpgrain.statistics import OFFERED
from dpgrain.tables.table import UserTable, read
from dpgrain.units import Element, User

if TYPE_CHECKING:
    from dpgrain import learn
    from dpgrain.learn import column_rows, features
    from dpgrain.releases import table_queries
else:
    learn, features = lazy_import("dpgrain.learn"), lazy_import("dpgrain.learn.features")
    column_rows = lazy_import("dpgrain.learn.column_rows")
    table_queries = lazy_import("dpgrain.releases.table_queries")

_PROMISE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "random_state": 7}
# The first day of a region, which is the second plain day; and in microseconds since 1970.
_FIRST, _BEGINS = "2024-05-02", 1_714_608_000 * 10**6
_LABELLED = ("whole", "decimal", "text", "truth", "day", "null")
_NUMBERS = ("whole", "real", "decimal")
_TIMES = ("time", "moment")


def _fit_of_numbers(
    table: UserTable, value: str, *, unit: Any, epsilon: float, delta: float, random_state: int
) -> Any:
    return _fitted(
        features.NumberColumn(value, (0.0, 4.0)), table, unit, epsilon, delta, random_state
    )


def _fit_of_names(
    table: UserTable,
    item: str,
    *,
    domain: list[Any],
    unit: Any,
    epsilon: float,
    delta: float,
    random_state: int,
) -> Any:
    levels = features.CategoryColumn(item, tuple(map(str, domain)))
    return _fitted(levels, table, unit, epsilon, delta, random_state)


def _fitted(encoding: Any, table: UserTable, *promise: Any) -> Any:
    asked = dict(zip(("unit", "epsilon", "delta", "random_state"), promise, strict=True))
    element = asked["unit"].by if isinstance(asked["unit"], Element) else None
    asked["unit"] = User() if element is None else Element()
    model = learn.LinearRegression(rounds=1, clip=1.0, n_users=20, **asked)
    rows = column_rows.ColumnRows(table, features.FeatureEncoding((encoding,)), "x", element)
    return publish(model.query(rows, None)).coef_


def _mean_of_columns(
    table: UserTable, value: str, *, unit: Any, epsilon: float, delta: float, random_state: int
) -> Any:
    if not isinstance(unit, User):
        raise ParameterError("unit must be User() for a mean of users.", name="unit")
    asked = {"epsilon": epsilon, "delta": delta, "random_state": random_state}
    return table_queries.mean_of_columns(table, [value], bound=4.0, method="clip", **asked).value


def _functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield what publishes something of a table: every public statistic, and fits of columns."""
    for name in OFFERED:
        yield name, getattr(dg, name)
    yield "fit of numbers", _fit_of_numbers
    yield "fit of names", _fit_of_names
    yield "mean of columns", _mean_of_columns


FUNCTIONS: Mapping[str, Callable[..., Any]] = dict(_functions())
#: Use → the column_meanings of types that suit it.
ROLES: Mapping[str, tuple[str, ...]] = {
    "key": _LABELLED,
    "selected": _LABELLED,
    "user": _LABELLED,
    "cell": _LABELLED,
    "cells": _LABELLED,
    "number": _NUMBERS,
    "weight": _NUMBERS,
    "sum": (*_NUMBERS, "truth"),
    "day": _TIMES,
    "region": (*_LABELLED, *_TIMES),
    "beside": (*_LABELLED, "real", *_TIMES, "unusable"),
}


def cell_of(key: Any) -> str:
    """Return the cell of a key, a public function for ``with_cells``.

    >>> cell_of(123)
    'cell 1'
    """
    return f"cell {str(key)[:1]}"


@dataclass(frozen=True)
class Use:
    """A statistic of a table of :meth:`System.rows`, with one of its columns in one role.

    Args:
        function: the name of the publishing function, in ``FUNCTIONS``.
        role: the role of the column, in ``ROLES``.

    >>> from tests.malformed.systems import SYSTEMS
    >>> arrow = SYSTEMS["Arrow"]
    >>> kind = arrow.kinds["int32"]
    >>> rows = arrow.rows([kind], odd=True)
    >>> use = Use("count", "key")
    >>> found = use.of(arrow.make(rows), kind)
    >>> found.numbers == use.expected(rows, kind).numbers
    True
    """

    function: str
    role: str

    def suits(self, kind: Kind) -> bool:
        """Return whether the type suits the use."""
        truths = self.function in ("fit of numbers", "mean of columns") and self.role == "number"
        return kind.meaning in ROLES[self.role] or (truths and kind.meaning == "truth")

    def of(
        self, source: Any, kind: Kind, *, most: float = 1e3, types: Any = None, **options: Any
    ) -> Outcome:
        """Publish, and return the outcome.

        Args:
            source: the argument of ``dg.read``.
            kind: the type of the tested column; its name is the column's.
            **options: other options of ``dg.read``.
        """
        user = kind.name if self.role == "user" else "who"

        def publish() -> Any:
            table = read(source, user=user, types=types, **{"threads": 1, **options})
            return self._release(table, kind)

        return outcome(publish, most)

    def outcome(self, table: UserTable, kind: Kind) -> Outcome:
        """Request a release above any budget, so that nothing is read, and return the outcome.

        Args:
            table: the table, which is read once for all uses.
            kind: the type of the tested column; its name is the column's.
        """

        def publish() -> Any:
            if self.role != "user":
                return self._release(table, kind)
            table.require_key(kind.name, "user")
            return self._release(replace(table, user=kind.name), kind)

        return outcome(publish, 1e-3)

    def _release(self, table: UserTable, kind: Kind) -> Any:
        column = kind.name
        asked: dict[str, Any] = {**_PROMISE, "unit": User(), "by": "item", "item": "item"}
        asked |= {"value": "x", "clip": 1.0, "domain": ["a", "b"], "bounds": (0.0, 4.0)}
        asked |= {"at": [1.0, 2.0], "k": 1, "other": "x", "other_bounds": (0.0, 4.0)}
        labels = _labels(kind)
        match self.role:
            case "key":
                asked |= {"by": column, "item": column, "domain": labels}
            case "selected":
                asked |= {"by": column, "item": column, "domain": None, "epsilon": 200.0}
            case "cell":
                asked["unit"] = Element(column)
            case "cells":
                table = table.with_cells("cell", of=column, by=cell_of)
                asked |= {
                    "by": "cell",
                    "item": "cell",
                    "domain": list(dict.fromkeys(map(cell_of, labels))),
                }
            case "number":
                asked["value"] = column
            case "weight":
                asked["weight"] = column
            case "sum":
                table = table.per_user(by="item", total=(column, "sum"))
                asked |= {"value": "total", "other": "total"}
            case "day":
                zone = "UTC" if kind.meaning == "moment" else None
                table = table.with_days("day", of=column, zone=zone)
                asked |= {"by": "day", "item": "day", "domain": ["2024-05-01", _FIRST]}
            case "region":
                table = table.where({column: _inside(kind, labels)})
        function = FUNCTIONS[self.function]
        taken = inspect.signature(function).parameters
        return function(table, **{name: value for name, value in asked.items() if name in taken})

    def expected(self, rows: Rows, kind: Kind) -> Outcome:
        """Return the outcome by definition: the one of a table with plain Arrow types.

        Args:
            rows: the rows, with the value of each cell.
        """
        columns = {
            name: [cell.value for cell in cells] for name, (_, cells) in rows.columns.items()
        }
        own = rows.columns[kind.name][1]
        role, meant, form = self.role, kind, pa.string()
        if role in ("number", "weight", "sum"):
            values, form = _plain_numbers(kind, own, narrow=role == "sum")
            meant = Kind(kind.name, "real", list, kind.plain)
        elif role == "day":
            values, role = [kind.day(cell) for cell in own], "key"
            plain = tuple(Cell(day, day) for day in ("2024-05-01", _FIRST))
            meant = Kind(kind.name, "text", list, plain)
        else:
            values = [kind.label(cell) for cell in own]
            plain = tuple(Cell(label, label) for label in map(kind.label, kind.plain))
            meant = Kind(kind.name, "text", list, plain)
        table = pa.table(
            {
                "who": pa.array(columns["who"], pa.int64()),
                "item": pa.array(columns["item"], pa.string()),
                "x": pa.array(columns["x"], pa.float64()),
                kind.name: pa.array(values, form),
            }
        )
        if role == "region":
            inside = [_is_inside(kind, cell) for cell in own]
            table, role = table.filter(pa.array(inside)), "beside"
        return Use(self.function, role).of(table, meant)


def _plain_numbers(kind: Kind, cells: list[Cell], *, narrow: bool) -> tuple[list[Any], pa.DataType]:
    """Return numbers in a plain type: integers stay integers, clamped to 64 bits.

    Integers of types with more than 63 bits are added up as floats, as requested by ``narrow``.
    """
    ends = -(2**63), 2**63 - 1
    known = [cell.value for cell in kind.odd.values() if isinstance(cell.value, int)]
    wide = not all(ends[0] <= value <= ends[1] for value in known)
    if kind.meaning == "truth":
        return [None if cell.value is None else int(cell.value) for cell in cells], pa.int64()
    if kind.meaning != "whole" or (narrow and wide):
        return [kind.number(cell) for cell in cells], pa.float64()
    cut = [None if c.value is None else min(max(c.value, ends[0]), ends[1]) for c in cells]
    return cut, pa.int64()


def _labels(kind: Kind) -> list[Any]:
    """Return the public labels of a column: its plain cells'."""
    if kind.meaning == "whole":
        return [cell.value for cell in kind.plain]
    return [label for cell in kind.plain if (label := kind.label(cell)) is not None] or ["a"]


def _inside(kind: Kind, labels: list[Any]) -> Any:
    """Return the region: from the second plain cell on, and missing cells."""
    return [(_FIRST, None), None] if kind.meaning in ("day", *_TIMES) else [labels[-1], None]


def _is_inside(kind: Kind, cell: Cell) -> bool:
    if cell.value is None or kind.meaning not in ("day", *_TIMES):
        label = kind.label(cell)
        return label is None or label == kind.label(kind.plain[-1])
    if isinstance(cell.value, float):
        return True
    return bool(cell.value >= (_BEGINS // (86_400 * 10**6) if kind.meaning == "day" else _BEGINS))


def uses() -> list[Use]:
    """Return every use of a column: each statistic in each role that its parameters have.

    >>> Use("sum", "number") in uses(), Use("top", "weight") in uses()
    (True, False)
    """
    result = []
    for name, function in FUNCTIONS.items():
        taken = inspect.signature(function).parameters
        fits = "domain" not in taken and "item" not in taken and "by" not in taken
        for role in ROLES:
            if role in ("key", "selected", "cells", "day") and not {"by", "item"} & set(taken):
                continue
            if role in ("key", "selected", "cells", "day") and fits:
                continue
            if role in ("number", "sum") and "value" not in taken:
                continue
            if role == "weight" and "weight" not in taken:
                continue
            # Selected groups need a statistic that selects; the mean of users has one unit.
            needed = taken.get("domain", _NEEDED).default is inspect.Parameter.empty
            if role == "selected" and (needed or name == "marginals"):
                continue
            if role == "cell" and name == "mean of columns":
                continue
            # Fits read columns, and no derived cells.
            if role in ("cells", "day") and name.startswith("fit"):
                continue
            result.append(Use(name, role))
    return result


_NEEDED = inspect.Parameter("domain", inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a release.

    Args:
        said: the error's name and message; ``"released"`` without one.
        numbers: the published numbers, by their labels as text; None if there are none.
        charged: True where a budget was charged.

    >>> outcome(lambda: 1 / 0).said
    'ZeroDivisionError: division by zero'
    """

    said: str
    numbers: Mapping[str, float] | None
    charged: bool

    @property
    def published(self) -> bool:
        """True where something was published."""
        return self.said == "released"

    @property
    def refused(self) -> bool:
        """True if the schema or a public parameter was rejected, and nothing was charged."""
        return self.said.startswith("SchemaError") and not self.charged

    @property
    def suited(self) -> bool:
        """True if only the budget rejected it."""
        return self.said.startswith("RefusedError") and not self.charged

    @property
    def without_numbers(self) -> tuple[str, bool]:
        """The part of it that must not depend on rows."""
        return self.said, self.charged


def outcome(publish: Callable[[], Any], most: float = 1e3) -> Outcome:
    """Publish inside a budget, and return the outcome, including errors and warnings.

    >>> outcome(lambda: 1 / 0).charged
    False
    """
    with warnings.catch_warnings(), budget(epsilon=most, delta=1e-3) as open_:
        warnings.simplefilter("error")
        numbers, said = None, "released"
        try:
            numbers = _numbers(publish())
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        return Outcome(said, numbers, open_.guarantee is not None)


def _numbers(found: Any) -> Mapping[str, float]:
    """Return the published numbers, by labels as text."""
    if isinstance(found, np.ndarray):
        # Results from sums on a cluster may differ in their last digits.
        return {str(place): round(float(number), 12) for place, number in enumerate(found.ravel())}
    columns = [column.to_pylist() for column in found.groups.columns]
    labels = map(str, zip(*columns, strict=True)) if columns else iter(["all"])
    shown = (math.nan if number is None else float(number) for number in found.estimate)
    return {label.replace("'", ""): number for label, number in zip(labels, shown, strict=True)}


__all__ = ["FUNCTIONS", "ROLES", "UNSTATED", "Outcome", "Use", "cell_of", "outcome", "uses"]
