"""Features of people: numbers, and others, each made of all rows of one person.

A feature is a function of one person's rows alone, bit for bit: sums are of whole numbers, and ties are
decided by values, so that neither other people's rows nor the order or the threads of a scan can move a
digit of it. Features are asked for by expressions of the language of columns
(:mod:`dpgrain.tables.expression`), with functions of rows:

==============================  ===================================================================
``count()``, ``count(c)``       how many rows there are; for how many a condition is true
``any(c)``, ``all(c)``          whether it is for one; for all
``total(x)``, ``mean(x)``       the sum and the mean of finite numbers
``min(x)``, ``max(x)``          the least and the largest number or date
``median(x)``                   the middle one; of two the mean, or the earlier date
``distinct(x)``                 how many different values there are
``most(x)``                     the value that most rows have, of several the least
``first(x, t)``, ``last(x, t)``  the value at the least or the largest t, a number, a date or a time
==============================  ===================================================================

All but the first row of these take a condition as their last part: ``total(paid, kind = 'er')``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast

from dpgrain import _validate
from dpgrain.errors import ParameterError, SchemaError
from dpgrain.tables.engines.functions import OF_ROWS
from dpgrain.tables.engines.sql import key as key_of
from dpgrain.tables.engines.sql import number, quoted
from dpgrain.tables.expression import CallNode, ColumnNode, Node, is_expression, parsed
from dpgrain.tables.rows import TableRows
from dpgrain.tables.sources.column_types import BOOLEAN, DAY, INTEGERS, TEXT, TIMES, is_number

#: A function of one person's rows, by the name that pandas has for it.
Function: TypeAlias = Literal[
    "size", "count", "sum", "mean", "min", "max", "nunique", "any", "all", "first", "last", "most",
    "median",
]  # fmt: skip
FUNCTIONS: tuple[Function, ...] = ("size", "count", "sum", "mean", "min", "max", "nunique")
# Numbers that a person without rows has, too: they are 0.
_ZERO_OF_NOTHING = ("size", "count", "sum", "nunique")
# Bits of the whole part and of the fraction of a sum: 2^63 rows add up in 128 bits.
_BITS = 62
_LARGEST_SUM = 2**63 - 1


@dataclass(frozen=True)
class Number:
    """One number of each person.

    Args:
        name: the name of its column.
        function: the function that makes it of a person's rows.
        of: the column that the function is of; None where rows are counted.
        where: the column of truths that says which rows count; None where all do.
        along: the column in whose order the first or the last is meant.
        text: the expression that it was asked for by.
    """

    name: str
    function: Function
    of: str | None = None
    where: str | None = None
    along: str | None = None
    text: str = ""

    @property
    def meaning(self) -> tuple[Any, ...]:
        """The feature itself, whatever it is called."""
        return self.function, self.of, self.where, self.along

    @property
    def reads(self) -> list[str]:
        """The columns, or expressions, that it is made of."""
        return [name for name in (self.of, self.where, self.along) if name is not None]

    @property
    def zero_of_nothing(self) -> bool:
        """True where the number of a person without rows is 0; others have none then."""
        return self.function in _ZERO_OF_NOTHING

    @property
    def counts(self) -> bool:
        """True where the number is a count: whole, and never below 0."""
        return self.function in ("size", "count", "nunique")

    def checked(self, rows: TableRows) -> Number:
        """Return the number, or raise unless the rows can have it by their types alone.

        Raises:
            SchemaError: if there is no such column, or its type does not suit the function.
        """
        column = self.of
        if self.where is not None and rows.schema.get(self.where) != BOOLEAN:
            rows.require(self.where, self.name)
            raise SchemaError(
                f"{self.name} must have a condition that is true or false, not "
                f"{self.where}; compare it, as in {self.where} = 1, or test for a value "
                f"with known({self.where}).",
                name=self.name,
            )
        if self.along is not None:
            rows.require_numbers([self.along], self.name, also=[DAY, *TIMES])
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
        """Return the type of the number's column, which follows from public types."""
        if self.function in ("any", "all"):
            return BOOLEAN
        if self.of is None or self.counts:
            return "BIGINT"
        if self.function == "mean" or (self.function == "median" and rows.schema[self.of] != DAY):
            return "DOUBLE"
        kind = rows.schema[self.of]
        if kind == DAY or (kind == BOOLEAN and self.chosen):
            return kind
        if not is_number(kind) and kind != BOOLEAN:
            return TEXT
        return "BIGINT" if _whole(self.of, rows) else "DOUBLE"

    @property
    def counted(self) -> bool:
        """True where the number is made of different values and the number of rows of each."""
        return self.function == "most"

    @property
    def chosen(self) -> bool:
        """True where the number is one of the values of the rows."""
        return self.function in ("first", "last", "most")

    def argument(self, rows: TableRows) -> str:
        """Return the SQL of what a row brings; null where it brings nothing."""
        brought = self._brought(rows)
        if self.along is not None:
            order = _plain(self.along, rows)
            both = f"({order}) IS NOT NULL AND ({brought}) IS NOT NULL"
            brought = f"CASE WHEN {both} THEN {{'at': {order}, 'is': {brought}}} END"
        if self.where is None:
            return brought
        if self.function == "all":
            return f"CASE WHEN {quoted(self.where)} THEN 1 ELSE 0 END"
        return f"CASE WHEN {quoted(self.where)} THEN {brought} END"

    def _brought(self, rows: TableRows) -> str:
        """Return the SQL of what a row brings, if it counts."""
        if self.of is None or self.function == "size":
            return "1"
        kind = rows.schema[self.of]
        if self.chosen or self.function == "median":
            return _plain(self.of, rows)
        if self.function == "nunique":
            return key_of(self.of, rows.key_type(self.of))
        if _whole(self.of, rows):
            return f"CAST({quoted(self.of)} AS BIGINT)"
        if not is_number(kind):
            return key_of(self.of, rows.key_type(self.of)) if kind == TEXT else quoted(self.of)
        value = number(self.of)
        # Two zeros that differ in their sign would make a least number of either.
        finite = f"CASE WHEN {value} = 0 THEN 0.0 ELSE {value} END"
        if self.function in ("sum", "mean"):
            finite = f"greatest(least({value}, {2.0**_BITS:.1f}), {-(2.0**_BITS):.1f})"
        return f"CASE WHEN isfinite({value}) THEN {finite} END"

    def made(self, argument: str, rows: TableRows) -> str:
        """Return the SQL of the number of one person.

        Args:
            argument: the name of what :meth:`argument` made of each row.
            rows: the rows.
        """
        if self.function == "nunique":
            return f"count(DISTINCT {argument})"
        if self.function in ("size", "count"):
            return f"count({argument})"
        if self.function in ("any", "all"):
            return (
                f"({'max' if self.function == 'any' else 'min'}({argument}) IS NOT DISTINCT FROM 1)"
            )
        if self.along is not None:
            return f"({'min' if self.function == 'first' else 'max'}({argument})).is"
        if self.function == "most":
            # Of values that as many rows have, the least: the order of rows must not decide.
            return f"(min({{'n': -records, 'k': {argument}}})).k"
        if self.function == "median":
            assert self.of is not None  # noqa: S101 - it is of a column
            if rows.schema[self.of] == DAY:
                return f"quantile_disc({argument}, 0.5)"
            return f"quantile_cont(CAST({argument} AS DOUBLE), 0.5)"
        if self.function in ("min", "max"):
            return f"{self.function}({argument})"
        assert self.of is not None  # noqa: S101 - sums and means are of a column
        total = _whole_sum(argument) if _whole(self.of, rows) else _exact_sum(argument)
        if self.function == "mean":
            return f"CAST({total} AS DOUBLE) / nullif(count({argument}), 0)"
        if _whole(self.of, rows):
            limit = f"{_LARGEST_SUM}::HUGEINT"
            return f"CAST(greatest(least({total}, {limit}), -{limit}) AS BIGINT)"
        return total

    def __str__(self) -> str:
        if self.text:
            return self.name if self.name == self.text else f"{self.name} ({self.text})"
        if self.of is None:
            return f"{self.name} (rows)"
        return f"{self.name} ({self.function} of {self.of})"


def _plain(column: str, rows: TableRows) -> str:
    """Return the SQL of a column's values, of which equal ones have the same bits."""
    kind = rows.schema[column]
    if kind == BOOLEAN:
        return quoted(column)
    if _whole(column, rows):
        return f"CAST({quoted(column)} AS BIGINT)"
    if kind in (DAY, *TIMES):
        return f"CASE WHEN isfinite({quoted(column)}) THEN {quoted(column)} END"
    if not is_number(kind):
        return key_of(column, rows.key_type(column))
    value = number(column)
    return f"CASE WHEN isfinite({value}) THEN CASE WHEN {value} = 0 THEN 0.0 ELSE {value} END END"


def _whole(column: str, rows: TableRows) -> bool:
    """Return whether a column holds whole numbers that add up exactly as they are."""
    return rows.schema[column] in (*INTEGERS, BOOLEAN)


def _whole_sum(argument: str) -> str:
    return f"coalesce(sum({argument}), 0::HUGEINT)"


def _exact_sum(argument: str) -> str:
    """Return the SQL of a sum that no order can change: of whole parts, and of fractions in 2^-62ths.

    Digits below 2^-62 are cut off, and a number beyond 2^62 counts as that.
    """
    whole = f"trunc({argument})"
    fraction = f"trunc(({argument} - {whole}) * {2.0**_BITS:.1f})"
    parts = (_whole_sum(f"CAST({part} AS BIGINT)") for part in (whole, fraction))
    above, below = (f"CAST({part} AS DOUBLE)" for part in parts)
    return f"({above} + {below} / {2.0**_BITS:.1f})"


def _number(name: str, asked: Any) -> Number:
    """Return the number that ``visits="count"`` or ``spent=("amount", "sum")`` asks for."""
    of, function = (None, asked) if isinstance(asked, str) else _pair(name, asked)
    known = ("size", "count") if of is None else FUNCTIONS
    if function not in known:
        listed = ", ".join(map(repr, known))
        others = " or a pair such as ('amount', 'sum')" if of is None else ""
        raise ParameterError(
            f"{name} must be one of {listed}{others}, not {_validate.describe(function)}.",
            name=name,
        )
    return Number(name, cast(Function, function), of)


def _pair(name: str, asked: Any) -> tuple[str, Any]:
    try:
        of, function = asked
    except (TypeError, ValueError):
        of = function = None
    if not isinstance(of, str):
        raise ParameterError(
            f"{name} must be 'count' or a pair of a column and a function, such as ('amount', 'sum'), "
            f"not {_validate.describe(asked)}.",
            name=name,
        )
    return of, function


@dataclass(frozen=True)
class Feature:
    """A feature as it is asked for: numbers of rows, and what is made of these.

    Args:
        name: the name of its column.
        numbers: the numbers that it is made of.
        made: the expression that it is of columns of people; None where it is one of the numbers.
        text: the expression that it was asked for by.
    """

    name: str
    numbers: tuple[Number, ...]
    made: Node | None = None
    text: str = ""


# Functions of rows that have another name in pandas.
_NAMES: Mapping[str, Function] = {"count": "size", "total": "sum", "distinct": "nunique"}


def feature(name: str, asked: Any) -> Feature:
    """Read what a feature is asked to be.

    Args:
        name: the name of its column.
        asked: an expression, ``"count"``, or a pair of a column and a function.

    Raises:
        ParameterError: if it is none of these.

    >>> each = feature("per_visit", "total(paid) / count()")
    >>> [number.name for number in each.numbers], str(each.made)
    (['total(paid)', 'count()'], '`total(paid)` / `count()`')
    """
    if not isinstance(asked, str) or not ("(" in asked or is_expression(asked)):
        return Feature(name, (_number(name, asked),))
    node = parsed(asked)
    if isinstance(node, CallNode) and node.function in OF_ROWS:
        return Feature(name, (replace(_of_rows(node), name=name),))
    numbers: dict[str, Number] = {}
    left = _taken(node, numbers)
    return Feature(name, tuple(numbers.values()), left, str(node))


def named(features: Sequence[Feature]) -> list[Feature]:
    """Return features in which a number that has a name of its own goes by it, and is made once.

    Args:
        features: the features.
    """
    own = {
        number.meaning: number.name
        for one in features
        if one.made is None
        for number in one.numbers
    }
    return [one if one.made is None else _renamed(one, one.made, own) for one in features]


def _renamed(one: Feature, made: Node, own: Mapping[tuple[Any, ...], str]) -> Feature:
    """Return a feature of which numbers that are own ones have these names."""
    names = {number.name: own.get(number.meaning, number.name) for number in one.numbers}
    numbers = tuple(number for number in one.numbers if number.meaning not in own)
    return replace(one, numbers=numbers, made=_with_names(made, names))


def _with_names(node: Node, names: Mapping[str, str]) -> Node:
    if isinstance(node, ColumnNode):
        return ColumnNode(names.get(node.name, node.name))
    if isinstance(node, CallNode):
        return replace(node, parts=tuple(_with_names(part, names) for part in node.parts))
    return node


def _taken(node: Node, numbers: dict[str, Number]) -> Node:
    """Return an expression with columns of people in place of functions of rows."""
    if not isinstance(node, CallNode):
        return node
    if node.function in OF_ROWS:
        made = _of_rows(node)
        numbers[made.name] = made
        return ColumnNode(made.name)
    return replace(node, parts=tuple(_taken(part, numbers) for part in node.parts))


def _of_rows(node: CallNode) -> Number:
    """Return the number that a function of rows is."""
    own = OF_ROWS[node.function]
    function = _NAMES.get(node.function, cast(Function, node.function))
    text, parts = str(node), node.parts
    least = 1 if function in ("any", "all") else own
    most = 1 if function in ("any", "all") else own + 1
    if not least <= len(parts) <= most:
        wanted = "a condition" if least > own else (f"{own} arguments, and optionally a condition")
        raise ParameterError(f"{text} must have {wanted}, such as {_EXAMPLES[node.function]}.")
    if any(isinstance(inner, CallNode) and _holds_rows(inner) for inner in parts):
        raise ParameterError(f"{text} is a function of rows, and cannot contain another one.")
    named = [part.name if isinstance(part, ColumnNode) else str(part) for part in parts]
    where = named[own] if len(named) > own else None
    of = named[0] if own else None
    return Number(text, function, of, where, named[1] if own > 1 else None, text)


def _holds_rows(node: CallNode) -> bool:
    return node.function in OF_ROWS or any(
        isinstance(part, CallNode) and _holds_rows(part) for part in node.parts
    )


_EXAMPLES: Mapping[str, str] = {
    "count": "count() or count(kind = 'er')",
    "any": "any(kind = 'er')",
    "all": "all(paid > 0)",
    **{name: f"{name}(paid, kind = 'er')" for name, own in OF_ROWS.items() if own == 1},
    "first": "first(kind, at)",
    "last": "last(kind, at)",
}
