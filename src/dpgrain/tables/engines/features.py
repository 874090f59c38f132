"""Features of users: numbers and other values, each computed from all rows of one user.

A feature depends on one user's rows only, bit for bit: sums are sums of integers and values break
ties, so neither other users' rows nor the order or the threads of a scan change a digit. Features
are expressions (:mod:`dpgrain.tables.expression`) with these aggregates of rows:

==============================  ===================================================================
``count()``, ``count(c)``       the number of rows; of rows with a true condition
``any(c)``, ``all(c)``          whether the condition is true for one row; for all rows
``total(x)``, ``mean(x)``       the sum and the mean of finite numbers
``min(x)``, ``max(x)``          the smallest and the largest number or date
``median(x)``                   the median; of two middle dates the earlier one
``distinct(x)``                 the number of distinct values
``most(x)``                     the most frequent value; of several the smallest
``first(x, t)``, ``last(x, t)``  the value at the smallest or the largest t, a number, date or time
==============================  ===================================================================

All except the first row of the table accept a condition as last argument: ``total(paid, kind =
'er')``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast

from dpgrain import _validate
from dpgrain.errors import ParameterError, SchemaError
from dpgrain.tables.engines.functions import AGGREGATES
from dpgrain.tables.engines.sql import key_sql, number_sql, quoted
from dpgrain.tables.expression import CallNode, ColumnNode, Node, is_expression, parsed
from dpgrain.tables.rows import TableRows
from dpgrain.tables.sources.column_types import BOOLEAN, DAY, INTEGERS, TEXT, TIMES, is_number

#: Aggregate of one user's rows, by its name in pandas.
Function: TypeAlias = Literal[
    "size", "count", "sum", "mean", "min", "max", "nunique", "any", "all", "first", "last", "most",
    "median",
]  # fmt: skip
FUNCTIONS: tuple[Function, ...] = ("size", "count", "sum", "mean", "min", "max", "nunique")
# Aggregates that are 0 for users without rows.
_ZERO_WITHOUT_ROWS = ("size", "count", "sum", "nunique")
# Bits of the integer part and of the fraction in a sum: 2^63 rows add up in 128 bits.
_BITS = 62
_LARGEST_SUM = 2**63 - 1


@dataclass(frozen=True)
class Aggregate:
    """Aggregate of one user's rows."""

    name: str
    function: Function
    of: str | None = None  # aggregated column; None to count rows
    where: str | None = None  # boolean column that selects rows; None for all rows
    order: str | None = None  # column that orders rows for first and last
    text: str = ""

    @property
    def meaning(self) -> tuple[Any, ...]:
        """Definition of the aggregate without its name."""
        return self.function, self.of, self.where, self.order

    @property
    def inputs(self) -> list[str]:
        """Columns, or expressions, that it reads."""
        return [name for name in (self.of, self.where, self.order) if name is not None]

    @property
    def is_zero_without_rows(self) -> bool:
        """True if it is 0 for users without rows; otherwise it is missing for them."""
        return self.function in _ZERO_WITHOUT_ROWS

    @property
    def is_count(self) -> bool:
        """True if it is a count: an integer, at least 0."""
        return self.function in ("size", "count", "nunique")

    def checked(self, rows: TableRows) -> Aggregate:
        """Return the aggregate after checking it against the types of the rows."""
        column = self.of
        if self.where is not None and rows.schema.get(self.where) != BOOLEAN:
            rows.require(self.where, self.name)
            raise SchemaError(
                f"{self.name} must have a condition that is true or false, not "
                f"{self.where}; compare it, as in {self.where} = 1, or test for a value "
                f"with known({self.where}).",
                name=self.name,
            )
        if self.order is not None:
            rows.require_numbers([self.order], self.name, also=[DAY, *TIMES])
        if column is None:
            return self
        if self.function in ("first", "last", "most"):
            if not is_number(rows.schema.get(column, "")):
                rows.require_key(column, self.name)
        elif self.function in ("size", "count"):
            rows.require_readable(column, self.name)
        elif self.function == "nunique":
            rows.require_key(column, self.name)
        elif self.function in ("sum", "mean"):
            rows.require_numbers([column], self.name, also=[BOOLEAN])
        else:
            rows.require_numbers([column], self.name, also=[BOOLEAN, DAY])
        return self

    def kind(self, rows: TableRows) -> str:
        """Return the type of the result from public types."""
        if self.function in ("any", "all"):
            return BOOLEAN
        if self.of is None or self.is_count:
            return "BIGINT"
        if self.function == "mean" or (self.function == "median" and rows.schema[self.of] != DAY):
            return "DOUBLE"
        kind = rows.schema[self.of]
        if kind == DAY or (kind == BOOLEAN and self.is_row_value):
            return kind
        if not is_number(kind) and kind != BOOLEAN:
            return TEXT
        return "BIGINT" if _is_exact(self.of, rows) else "DOUBLE"

    @property
    def state_bytes(self) -> int:
        """Approximate bytes that DuckDB stores for a user while it reads rows."""
        return 16 if self.function in ("size", "count", "any", "all", "min", "max") else 64

    @property
    def counts_values(self) -> bool:
        """True if it is computed from distinct values and their numbers of rows."""
        return self.function == "most"

    @property
    def is_row_value(self) -> bool:
        """True if it is one of the values of the rows."""
        return self.function in ("first", "last", "most")

    def argument(self, rows: TableRows) -> str:
        """Return the SQL of a row's contribution; null if there is none."""
        brought = self._brought(rows)
        if self.order is not None:
            order = _canonical_sql(self.order, rows)
            both = f"({order}) IS NOT NULL AND ({brought}) IS NOT NULL"
            brought = f"CASE WHEN {both} THEN {{'at': {order}, 'is': {brought}}} END"
        if self.where is None:
            return brought
        if self.function == "all":
            return f"CASE WHEN {quoted(self.where)} THEN 1 ELSE 0 END"
        return f"CASE WHEN {quoted(self.where)} THEN {brought} END"

    def _brought(self, rows: TableRows) -> str:
        """Return the SQL of a row's contribution before the condition applies."""
        if self.of is None or self.function == "size":
            return "1"
        kind = rows.schema[self.of]
        if self.is_row_value or self.function == "median":
            return _canonical_sql(self.of, rows)
        if self.function == "nunique":
            return key_sql(self.of, rows.key_type(self.of))
        if _is_exact(self.of, rows):
            return f"CAST({quoted(self.of)} AS BIGINT)"
        if not is_number(kind):
            return key_sql(self.of, rows.key_type(self.of)) if kind == TEXT else quoted(self.of)
        value = number_sql(self.of)
        # Either of two zeros with different signs could be the minimum.
        finite = f"CASE WHEN {value} = 0 THEN 0.0 ELSE {value} END"
        if self.function in ("sum", "mean"):
            finite = f"greatest(least({value}, {2.0**_BITS:.1f}), {-(2.0**_BITS):.1f})"
        return f"CASE WHEN isfinite({value}) THEN {finite} END"

    def result(self, argument: str, rows: TableRows) -> str:
        """Return the SQL of one user's result from the column of :meth:`argument`."""
        if self.function == "nunique":
            return f"count(DISTINCT {argument})"
        if self.function in ("size", "count"):
            return f"count({argument})"
        if self.function in ("any", "all"):
            return (
                f"({'max' if self.function == 'any' else 'min'}({argument}) IS NOT DISTINCT FROM 1)"
            )
        if self.order is not None:
            return f"({'min' if self.function == 'first' else 'max'}({argument})).is"
        if self.function == "most":
            # The smallest of the most frequent values: row order must not decide.
            return f"(min({{'n': -records, 'k': {argument}}})).k"
        if self.function == "median":
            assert self.of is not None  # noqa: S101 - it is of a column
            if rows.schema[self.of] == DAY:
                return f"quantile_disc({argument}, 0.5)"
            return f"quantile_cont(CAST({argument} AS DOUBLE), 0.5)"
        if self.function in ("min", "max"):
            return f"{self.function}({argument})"
        assert self.of is not None  # noqa: S101 - sums and means are of a column
        total = _whole_sum(argument) if _is_exact(self.of, rows) else _exact_sum(argument)
        if self.function == "mean":
            return f"CAST({total} AS DOUBLE) / nullif(count({argument}), 0)"
        if _is_exact(self.of, rows):
            limit = f"{_LARGEST_SUM}::HUGEINT"
            return f"CAST(greatest(least({total}, {limit}), -{limit}) AS BIGINT)"
        return total

    def __str__(self) -> str:
        if self.text:
            return self.name if self.name == self.text else f"{self.name} ({self.text})"
        if self.of is None:
            return f"{self.name} (rows)"
        return f"{self.name} ({self.function} of {self.of})"


def _canonical_sql(column: str, rows: TableRows) -> str:
    """Return the SQL of a column's values, in which equal values have equal bits."""
    kind = rows.schema[column]
    if kind == BOOLEAN:
        return quoted(column)
    if _is_exact(column, rows):
        return f"CAST({quoted(column)} AS BIGINT)"
    if kind in (DAY, *TIMES):
        return f"CASE WHEN isfinite({quoted(column)}) THEN {quoted(column)} END"
    if not is_number(kind):
        return key_sql(column, rows.key_type(column))
    value = number_sql(column)
    return f"CASE WHEN isfinite({value}) THEN CASE WHEN {value} = 0 THEN 0.0 ELSE {value} END END"


def _is_exact(column: str, rows: TableRows) -> bool:
    """Return True if a column contains integers, which add up exactly."""
    return rows.schema[column] in (*INTEGERS, BOOLEAN)


def _whole_sum(argument: str) -> str:
    return f"coalesce(sum({argument}), 0::HUGEINT)"


def _exact_sum(argument: str) -> str:
    """Return the SQL of a sum in any order, from integers and 2^-62ths.

    Digits below 2^-62 are truncated, and numbers beyond 2^62 are clamped.
    """
    whole = f"trunc({argument})"
    fraction = f"trunc(({argument} - {whole}) * {2.0**_BITS:.1f})"
    parts = (_whole_sum(f"CAST({part} AS BIGINT)") for part in (whole, fraction))
    above, below = (f"CAST({part} AS DOUBLE)" for part in parts)
    return f"({above} + {below} / {2.0**_BITS:.1f})"


def _parse_pandas_name(name: str, request: Any) -> Aggregate:
    """Parse requests such as ``visits="count"`` or ``spent=("amount", "sum")``."""
    of, function = (None, request) if isinstance(request, str) else _parse_pair(name, request)
    known = ("size", "count") if of is None else FUNCTIONS
    if function not in known:
        listed = ", ".join(map(repr, known))
        others = " or a pair such as ('amount', 'sum')" if of is None else ""
        raise ParameterError(
            f"{name} must be one of {listed}{others}, not {_validate.describe(function)}.",
            name=name,
        )
    return Aggregate(name, cast(Function, function), of)


def _parse_pair(name: str, request: Any) -> tuple[str, Any]:
    try:
        of, function = request
    except (TypeError, ValueError):
        of = function = None
    if not isinstance(of, str):
        raise ParameterError(
            f"{name} must be 'count' or a pair of a column and a function, such as ('amount', 'sum'), "
            f"not {_validate.describe(request)}.",
            name=name,
        )
    return of, function


@dataclass(frozen=True)
class Feature:
    """Requested feature: aggregates of rows, and an expression of them."""

    name: str
    numbers: tuple[Aggregate, ...]
    expression: Node | None = None  # of per-user columns; None for a single aggregate
    text: str = ""


# Aggregates with another name in pandas.
_NAMES: Mapping[str, Function] = {"count": "size", "total": "sum", "distinct": "nunique"}


def parse_feature(name: str, request: Any) -> Feature:
    """Parse an expression, ``"count"``, or a pair of a column and a function."""
    if not isinstance(request, str) or not ("(" in request or is_expression(request)):
        return Feature(name, (_parse_pandas_name(name, request),))
    node = parsed(request)
    if isinstance(node, CallNode) and node.function in AGGREGATES:
        return Feature(name, (replace(_parse_aggregate(node), name=name),))
    numbers: dict[str, Aggregate] = {}
    left = _extract_aggregates(node, numbers)
    return Feature(name, tuple(numbers.values()), left, str(node))


def deduplicate(features: Sequence[Feature]) -> list[Feature]:
    """Use requested aggregates by name inside other features; compute each one once."""
    own = {
        number.meaning: number.name
        for one in features
        if one.expression is None
        for number in one.numbers
    }
    return [
        one if one.expression is None else _rename_aggregates(one, one.expression, own)
        for one in features
    ]


def _rename_aggregates(
    feature: Feature, expression: Node, own: Mapping[tuple[Any, ...], str]
) -> Feature:
    """Replace aggregates that have their own column by that column."""
    names = {number.name: own.get(number.meaning, number.name) for number in feature.numbers}
    numbers = tuple(number for number in feature.numbers if number.meaning not in own)
    return replace(feature, numbers=numbers, expression=_with_names(expression, names))


def _with_names(node: Node, names: Mapping[str, str]) -> Node:
    if isinstance(node, ColumnNode):
        return ColumnNode(names.get(node.name, node.name))
    if isinstance(node, CallNode):
        return replace(node, parts=tuple(_with_names(part, names) for part in node.parts))
    return node


def _extract_aggregates(node: Node, numbers: dict[str, Aggregate]) -> Node:
    """Replace the aggregates in an expression by columns, and add them to ``numbers``."""
    if not isinstance(node, CallNode):
        return node
    if node.function in AGGREGATES:
        aggregate = _parse_aggregate(node)
        numbers[aggregate.name] = aggregate
        return ColumnNode(aggregate.name)
    return replace(node, parts=tuple(_extract_aggregates(part, numbers) for part in node.parts))


def _parse_aggregate(node: CallNode) -> Aggregate:
    """Return the aggregate of a call."""
    own = AGGREGATES[node.function]
    function = _NAMES.get(node.function, cast(Function, node.function))
    text, parts = str(node), node.parts
    least = 1 if function in ("any", "all") else own
    most = 1 if function in ("any", "all") else own + 1
    if not least <= len(parts) <= most:
        wanted = "a condition" if least > own else (f"{own} arguments, and optionally a condition")
        raise ParameterError(f"{text} must have {wanted}, such as {_EXAMPLES[node.function]}.")
    if any(isinstance(inner, CallNode) and _has_aggregate(inner) for inner in parts):
        raise ParameterError(f"{text} is a function of rows, and cannot contain another one.")
    named = [part.name if isinstance(part, ColumnNode) else str(part) for part in parts]
    where = named[own] if len(named) > own else None
    of = named[0] if own else None
    return Aggregate(text, function, of, where, named[1] if own > 1 else None, text)


def _has_aggregate(node: CallNode) -> bool:
    return node.function in AGGREGATES or any(
        isinstance(part, CallNode) and _has_aggregate(part) for part in node.parts
    )


_EXAMPLES: Mapping[str, str] = {
    "count": "count() or count(kind = 'er')",
    "any": "any(kind = 'er')",
    "all": "all(paid > 0)",
    **{name: f"{name}(paid, kind = 'er')" for name, own in AGGREGATES.items() if own == 1},
    "first": "first(kind, at)",
    "last": "last(kind, at)",
}
