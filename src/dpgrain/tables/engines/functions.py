"""Functions of expressions: the complete list, with types; each function is total.

A function returns a value or null for every value of its types and never aborts a query; most
return null if an argument is null. All are functions of one row only.

==========================================  =========================================================
``year(t)``, ``quarter(t)``, ``month(t)``   the year, an integer; the first day of the quarter, of the
``week(t)``, ``day(t)``                     month, of the week (a Monday), and the day, as dates
``hour(t)``, ``weekday(t)``                 0 to 23; 1 (Monday) to 7
``bins(x, 0, 10, 100)``                     ``below 0``, ``0 to 10`` (without 10), …, ``100 and above``
``abs(x)``, ``floor(x)``, ``round(x)``      of numbers; the last two are integers
``least(x, y)``, ``greatest(x, y)``         the smaller and the larger of two numbers
``lower(s)``, ``upper(s)``, ``trim(s)``     of text
``prefix(s, 3)``, ``length(s)``             the first characters, and the number of characters
``if(c, a, b)``                             a if c is true, otherwise b
``known(x)``, ``coalesce(x, 0)``            whether x is not null; x, or the constant if x is null
==========================================  =========================================================

``t`` is a date or a time; timestamps with a time zone require a zone, ``month(at,
'Europe/Paris')``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import pairwise
from typing import Any

from dpgrain._formatting import suggest_columns
from dpgrain.errors import ParameterError, SchemaError
from dpgrain.scope.zones import check_zone
from dpgrain.tables.engines.sql import label_sql, literal, number_sql, quoted
from dpgrain.tables.expression import CallNode, ColumnNode, ConstantNode, Node, stated
from dpgrain.tables.sources.column_types import (
    ALL_INTEGERS,
    BOOLEAN,
    DAY,
    INTEGERS,
    MOMENT,
    TEXT,
    TIMES,
    conversion,
    declaration,
    is_number,
)

#: Types of integers and of other numbers in expressions.
INTEGER, REAL = "BIGINT", "DOUBLE"
_NUMBERS = (INTEGER, REAL)
_MAX_INTEGER = 2**63 - 1
# Max characters of the SQL of an expression.
_MAX_SQL = 50_000
# Remedy for a text column that should have another type.
_TEXT_REMEDY = "; declare the type of a text column with types="
#: Aggregates in :mod:`dpgrain.tables.engines.features` → number of arguments without the
#: condition.
AGGREGATES: Mapping[str, int] = {
    **dict.fromkeys(("count", "any", "all"), 0),
    **dict.fromkeys(("total", "mean", "min", "max", "median", "distinct", "most"), 1),
    **dict.fromkeys(("first", "last"), 2),
}
# Descriptions of types.
_TYPE_NAMES = {
    INTEGER: "integers",
    REAL: "numbers",
    TEXT: "text",
    BOOLEAN: "booleans",
    DAY: "dates",
    "TIMESTAMP": "timestamps",
    MOMENT: "timestamps with a time zone",
}


@dataclass(frozen=True)
class TypedSql:
    """Part of an expression, with its type and its SQL."""

    kind: str  # times have SQL in microseconds since 1970
    sql: str
    constant: bool | int | float | str | None = None
    values: tuple[Any, ...] | None = None  # all possible values in order, if public and few
    finite: bool = True  # False for numbers that may be NaN or infinite; null when used

    @property
    def finite_sql(self) -> str:
        """SQL of the value; null if it is not finite."""
        return self.sql if self.finite else f"CASE WHEN isfinite({self.sql}) THEN {self.sql} END"

    @property
    def real_sql(self) -> str:
        """SQL of a number as floating point."""
        return self.sql if self.kind == REAL else f"CAST({self.sql} AS DOUBLE)"


@dataclass(frozen=True)
class Translator:
    """Translator of one expression to SQL; ``clocks`` collects (time, zone) pairs."""

    kinds: Mapping[str, str]
    text: str
    clocks: dict[tuple[str, str], None] = field(default_factory=dict)

    def translate(self, node: Node) -> TypedSql:
        """Return the SQL and type of a part."""
        if isinstance(node, ConstantNode):
            return self._constant(node)
        if isinstance(node, ColumnNode):
            return self._column(node.name)
        function = FUNCTIONS.get(node.function)
        if function is None:
            if node.function in AGGREGATES:
                raise ParameterError(
                    f"the expression {stated(self.text)} has {node.function[:40]}(…), a "
                    "function of all rows of a person; use it in per_user (--per-user)."
                )
            listed = ", ".join(
                name for name in FUNCTIONS if name.isalpha() and name not in _OPERATORS
            )
            near = f"{node.function}(".casefold()
            for name in self.kinds:
                if name.replace(" ", "").casefold().startswith(near):
                    raise ParameterError(
                        f"the expression {stated(self.text)} has the unknown function "
                        f"{node.function[:40]}(…); write the column {name!r} in backquotes: `{name}`."
                    )
            raise ParameterError(
                f"the expression {stated(self.text)} has the unknown function "
                f"{node.function[:40]}(…); use one of {listed}, or in per_user one of "
                f"{', '.join(AGGREGATES)}."
            )
        result = function(self, node, [self.translate(part) for part in node.parts])
        if len(result.sql) > _MAX_SQL:
            # Functions that repeat an argument double the length at each level.
            raise self.error("its functions are nested too deeply")
        return result

    def _constant(self, node: ConstantNode) -> TypedSql:
        value = node.value
        if isinstance(value, bool):
            return TypedSql(BOOLEAN, str(value).lower(), value, (value,))
        if isinstance(value, str):
            return TypedSql(TEXT, literal(value), value, (value,))
        if isinstance(value, int):
            if abs(value) > _MAX_INTEGER:
                raise self.error(f"{stated(str(value))} is not a 64-bit integer")
            return TypedSql(INTEGER, f"({value}::BIGINT)", value, (value,))
        if not math.isfinite(value):
            raise self.error("a constant is not finite")
        return TypedSql(REAL, f"({value!r}::DOUBLE)", value)

    def _column(self, name: str) -> TypedSql:
        kind = self.kinds.get(name)
        if kind is None:
            raise SchemaError(
                f"the expression {stated(self.text)} uses {stated(name)}, which is not a "
                f"column of the table; {suggest_columns(name, list(self.kinds))}. Put text in "
                "quotes, such as kind = 'er'."
            )
        if kind in INTEGERS:
            return TypedSql(INTEGER, f"CAST({quoted(name)} AS BIGINT)")
        if kind in ALL_INTEGERS:
            return TypedSql(INTEGER, f"TRY_CAST({quoted(name)} AS BIGINT)")
        if is_number(kind):
            return TypedSql(REAL, number_sql(name), finite=False)
        if kind == TEXT:
            return TypedSql(TEXT, label_sql(quoted(name)))
        if kind == BOOLEAN:
            return TypedSql(BOOLEAN, quoted(name), values=(False, True))
        if kind == DAY:
            return TypedSql(DAY, f"CASE WHEN isfinite({quoted(name)}) THEN {quoted(name)} END")
        if kind in TIMES:
            return TypedSql(kind, self.clock(name, ""))
        raise SchemaError(
            f"the expression {stated(self.text)} uses {stated(name)} of type {kind}; "
            f"{conversion(kind, 'numbers, dates or text')}."
        )

    def error(self, why: str) -> ParameterError:
        """Return the error for an invalid part."""
        return ParameterError(f"the expression {stated(self.text)} is invalid: {why}.")

    def type_error(
        self, node: CallNode, part: TypedSql, wanted: str, remedy: str = ""
    ) -> SchemaError:
        """Return the error for an argument of the wrong type."""
        remedy = (remedy or _TEXT_REMEDY) if part.kind == TEXT and part.constant is None else ""
        return SchemaError(
            f"the expression {stated(self.text)} applies {node.function!r} to "
            f"{_TYPE_NAMES[part.kind]}, but it requires {wanted}{remedy}."
        )

    def clock(self, column: str, zone: str) -> str:
        """Return the SQL of a time column in local time, in microseconds since 1970."""
        self.clocks[column, zone] = None
        return quoted(clock_column(column, zone))

    def require(self, node: CallNode, parts: Sequence[TypedSql], *kinds: Sequence[str]) -> None:
        """Raise unless arguments have the required number and types."""
        if len(parts) != len(kinds):
            raise self.error(
                f"the number of arguments of {node.function!r} must be {len(kinds)}, not "
                f"{len(parts)}"
            )
        for part, suited in zip(parts, kinds, strict=True):
            if part.kind not in suited:
                wanted = " or ".join(dict.fromkeys(_TYPE_NAMES[kind] for kind in suited))
                raise self.type_error(node, part, wanted)


def clock_column(column: str, zone: str) -> str:
    """Return the reserved name of a time column in local time, or in microseconds."""
    return f"\x1f{zone}\x1f{column}"


Translation = Callable[[Translator, CallNode, list[TypedSql]], TypedSql]


def _arithmetic(translator: Translator, node: CallNode, parts: list[TypedSql]) -> TypedSql:
    if node.function == "-" and len(parts) == 1:
        parts = [TypedSql(INTEGER, "(0::BIGINT)", 0), *parts]
    translator.require(node, parts, _NUMBERS, _NUMBERS)
    one, other = parts
    if node.function != "/" and one.kind == other.kind == INTEGER:
        # 128 bits cannot overflow; results beyond 64 bits are null.
        wide = f"CAST({one.sql} AS HUGEINT) {node.function} CAST({other.sql} AS HUGEINT)"
        return TypedSql(INTEGER, f"TRY_CAST({wide} AS BIGINT)")
    return TypedSql(REAL, f"({one.real_sql} {node.function} {other.real_sql})", finite=False)


def _comparison(translator: Translator, node: CallNode, parts: list[TypedSql]) -> TypedSql:
    one, other = _common_type(translator, node, parts)
    return TypedSql(BOOLEAN, f"({one} {node.function} {other})", values=(False, True))


def _common_type(translator: Translator, node: CallNode, parts: list[TypedSql]) -> list[str]:
    """Return the SQL of arguments converted to a common type."""
    kinds = {part.kind for part in parts}
    if kinds <= set(_NUMBERS):
        if kinds == {INTEGER}:
            return [part.finite_sql for part in parts]
        return [replace(part, sql=part.real_sql).finite_sql for part in parts]
    if kinds == {DAY, TEXT}:
        parts = [_day_constant(translator, part) if part.kind == TEXT else part for part in parts]
        kinds = {DAY}
    if len(kinds) > 1 or kinds <= set(TIMES):
        words = " and ".join(sorted(_TYPE_NAMES[kind] for kind in kinds))
        remedy = "; use day(…) for timestamps" if kinds & set(TIMES) else ""
        if MOMENT in kinds:
            remedy = "; use day(…, 'Europe/Paris') for timestamps with a time zone"
        if TEXT in kinds and kinds & set(_NUMBERS):
            columns = any(part.kind == TEXT and part.constant is None for part in parts)
            remedy = f"{_TEXT_REMEDY}, or put the number in quotes" if columns else ""
        raise SchemaError(
            f"the expression {stated(translator.text)} uses {node.function!r} with {words}, "
            f"which cannot be compared{remedy}."
        )
    return [part.finite_sql for part in parts]


def _day_constant(translator: Translator, part: TypedSql) -> TypedSql:
    """Parse a date in text."""
    try:
        stated = date.fromisoformat(str(part.constant))
    except ValueError:
        raise translator.error(
            "a date can only be compared with text such as '2025-12-31'"
        ) from None
    return TypedSql(DAY, f"DATE '{stated.isoformat()}'")


def _membership(translator: Translator, node: CallNode, parts: list[TypedSql]) -> TypedSql:
    if len(parts) < 2 or any(part.constant is None for part in parts[1:]):
        raise translator.error("'in' requires constants, such as kind in ('er', 'gp')")
    one, *others = _common_type(translator, node, parts)
    return TypedSql(BOOLEAN, f"({one} IN ({', '.join(others)}))", values=(False, True))


def _logical(translator: Translator, node: CallNode, parts: list[TypedSql]) -> TypedSql:
    translator.require(node, parts, *[(BOOLEAN,)] * (1 if node.function == "not" else 2))
    word = node.function.upper()
    sql = f"(NOT {parts[0].sql})" if len(parts) == 1 else f" {word} ".join(p.sql for p in parts)
    return TypedSql(BOOLEAN, f"({sql})", values=(False, True))


def _time_remedy(node: CallNode, time: TypedSql) -> str:
    """Return the remedy for a text column in a function of times; empty for others."""
    of = node.parts[0]
    if time.kind != TEXT or not isinstance(of, ColumnNode):
        return ""
    remedy = f"; declare its type, such as {declaration(of.name, 'DATE')}"
    years = f"; if it contains years such as 2025, use {of.name!r} without the function"
    return f"{remedy}{years}" if node.function == "year" else remedy


def _local_time(translator: Translator, node: CallNode, parts: list[TypedSql]) -> TypedSql:
    """Return the local time argument of a calendar function."""
    if not parts or len(parts) > 2:
        raise translator.error(
            f"{node.function!r} takes a date or timestamp and, for timestamps with a time "
            "zone, the zone to use"
        )
    time = parts[0]
    if time.kind not in (DAY, *TIMES):
        raise translator.type_error(node, time, "dates or timestamps", _time_remedy(node, time))
    if (time.kind == MOMENT) != (len(parts) == 2):
        problem = f"requires a zone: {node.function}(…, 'Europe/Paris')" if len(parts) == 1 else ""
        raise translator.error(
            f"{node.function!r} of {_TYPE_NAMES[time.kind]} {problem or 'takes no zone'}"
        )
    if len(parts) == 1:
        return time
    zone = parts[1].constant
    if not isinstance(zone, str) or not zone:
        raise translator.error("a zone must be text such as 'Europe/Paris'")
    of = node.parts[0]
    assert isinstance(of, ColumnNode)  # noqa: S101 - no function makes moments
    return replace(time, sql=translator.clock(of.name, check_zone(zone)))


def _calendar(kind: str, of_day: str, values: tuple[Any, ...] | None = None) -> Translation:
    """Return a function of the day; ``{0}`` is its SQL."""

    def translate(translator: Translator, node: CallNode, parts: list[TypedSql]) -> TypedSql:
        time = _local_time(translator, node, parts)
        day = time.sql if time.kind == DAY else f"make_timestamp({time.sql})::DATE"
        return TypedSql(kind, of_day.format(day), values=values)

    return translate


def _hour(translator: Translator, node: CallNode, parts: list[TypedSql]) -> TypedSql:
    time = _local_time(translator, node, parts)
    if time.kind == DAY:
        raise translator.type_error(node, time, "timestamps")
    hour = f"CAST(hour(make_timestamp({time.sql})) AS BIGINT)"
    return TypedSql(INTEGER, hour, values=tuple(range(24)))


def _bins(translator: Translator, node: CallNode, parts: list[TypedSql]) -> TypedSql:
    edges = [part.constant for part in parts[1:]]
    if not edges or any(type(edge) not in (int, float) for edge in edges):
        raise translator.error(
            "'bins' takes a number and increasing edges, such as bins(amount, 0, 10, 100)"
        )
    known = [float(edge) for edge in edges if isinstance(edge, int | float)]
    if any(one >= other for one, other in pairwise(known)):
        raise translator.error("the edges of 'bins' must be increasing")
    translator.require(node, parts[:1], _NUMBERS)
    value = replace(parts[0], sql=parts[0].real_sql).finite_sql
    names = [f"{edge:,}" for edge in edges]
    labels = (
        f"below {names[0]}",
        *(f"{one} to {other}" for one, other in pairwise(names)),
        f"{names[-1]} and above",
    )
    steps = "".join(
        f" WHEN {value} < {edge!r} THEN {literal(name)}"
        for edge, name in zip(known, labels, strict=False)
    )
    sql = f"CASE WHEN ({value}) IS NULL THEN NULL{steps} ELSE {literal(labels[-1])} END"
    return TypedSql(TEXT, sql, values=labels)


def _number_function(sql: str, *, whole: bool = False) -> Translation:
    """Return a function of a number with SQL ``{0}``; integer results for integers."""

    def translate(translator: Translator, node: CallNode, parts: list[TypedSql]) -> TypedSql:
        translator.require(node, parts, _NUMBERS)
        (part,) = parts
        if part.kind == INTEGER:
            wide = sql.format(f"CAST({part.sql} AS HUGEINT)")
            return part if whole else TypedSql(INTEGER, f"TRY_CAST({wide} AS BIGINT)")
        expression = sql.format(part.sql)
        if whole:
            return TypedSql(INTEGER, f"TRY_CAST({expression} AS BIGINT)")
        return TypedSql(REAL, expression, finite=part.finite)

    return translate


def _min_or_max(translator: Translator, node: CallNode, parts: list[TypedSql]) -> TypedSql:
    """Return the smaller or the larger of two numbers, or null if one is null."""
    translator.require(node, parts, _NUMBERS, _NUMBERS)
    one, other = _common_type(translator, node, parts)
    kind = INTEGER if {part.kind for part in parts} == {INTEGER} else REAL
    sign = "<=" if node.function == "least" else ">="
    sql = (
        f"CASE WHEN {one} {sign} {other} THEN {one} WHEN {one} IS NOT NULL AND {other} IS NOT NULL"
    )
    return TypedSql(kind, f"{sql} THEN {other} END")


def _text_function(sql: str, kind: str = TEXT) -> Translation:
    def translate(translator: Translator, node: CallNode, parts: list[TypedSql]) -> TypedSql:
        translator.require(node, parts, (TEXT,))
        return TypedSql(kind, sql.format(parts[0].sql))

    return translate


def _prefix(translator: Translator, node: CallNode, parts: list[TypedSql]) -> TypedSql:
    translator.require(node, parts, (TEXT,), (INTEGER,))
    letters = parts[1].constant
    if not isinstance(letters, int) or not 1 <= letters <= 1000:
        raise translator.error(
            "'prefix' takes text and a number of characters from 1 to 1,000, such as prefix(zip, 3)"
        )
    return TypedSql(TEXT, f"left({parts[0].sql}, {letters})")


def _if(translator: Translator, node: CallNode, parts: list[TypedSql]) -> TypedSql:
    if len(parts) != 3:
        raise translator.error(
            "'if' takes a condition and two values, such as if(amount > 0, 'in', 'out')"
        )
    translator.require(node, parts[:1], (BOOLEAN,))
    condition = parts[0].sql

    def chosen(one: str, other: str) -> str:
        return f"CASE WHEN {condition} THEN {one} ELSE {other} END"

    return _either_value(translator, node, parts[1:], chosen)


def _coalesce(translator: Translator, node: CallNode, parts: list[TypedSql]) -> TypedSql:
    if len(parts) != 2 or parts[1].constant is None:
        raise translator.error(
            "'coalesce' takes a value and a constant, such as coalesce(kind, 'other')"
        )
    return _either_value(translator, node, parts, "coalesce({}, {})".format)


def _either_value(
    translator: Translator, node: CallNode, parts: list[TypedSql], sql: Callable[[str, str], str]
) -> TypedSql:
    """Return one of two values of a common type.

    ``sql`` is a function and not a template, because text of the caller could contain placeholders,
    and their replacements would be read as SQL.
    """
    one, other = _common_type(translator, node, parts)
    kinds = {part.kind for part in parts}
    kind = REAL if kinds == set(_NUMBERS) else DAY if DAY in kinds else parts[0].kind
    values = None
    if all(part.values is not None for part in parts):
        values = tuple(dict.fromkeys(value for part in parts for value in part.values or ()))
    return TypedSql(kind, sql(one, other), values=values)


def _is_known(translator: Translator, node: CallNode, parts: list[TypedSql]) -> TypedSql:
    if len(parts) != 1:
        raise translator.error(f"{node.function!r} takes one value")
    return TypedSql(BOOLEAN, f"(({parts[0].finite_sql}) IS NOT NULL)", values=(False, True))


_FIRST_OF_MONTH = "make_date(year({0}), month({0}), 1)"
_FIRST_OF_QUARTER = "make_date(year({0}), 3 * ((month({0}) - 1) // 3) + 1, 1)"
_OPERATORS = ("and", "or", "not", "in")
#: Functions and operators by name; all other names are rejected.
FUNCTIONS: Mapping[str, Translation] = {
    "year": _calendar(INTEGER, "CAST(year({0}) AS BIGINT)"),
    "quarter": _calendar(DAY, _FIRST_OF_QUARTER),
    "month": _calendar(DAY, _FIRST_OF_MONTH),
    "week": _calendar(DAY, "({0} - CAST(isodow({0}) - 1 AS INTEGER))"),
    "day": _calendar(DAY, "{0}"),
    "hour": _hour,
    "weekday": _calendar(INTEGER, "CAST(isodow({0}) AS BIGINT)", tuple(range(1, 8))),
    "bins": _bins,
    "abs": _number_function("abs({0})"),
    "floor": _number_function("floor({0})", whole=True),
    "round": _number_function("round({0})", whole=True),
    "least": _min_or_max,
    "greatest": _min_or_max,
    "lower": _text_function("lower({0})"),
    "upper": _text_function("upper({0})"),
    "trim": _text_function("trim({0})"),
    "prefix": _prefix,
    "length": _text_function("CAST(length({0}) AS BIGINT)", INTEGER),
    "if": _if,
    "known": _is_known,
    "coalesce": _coalesce,
    **dict.fromkeys("+-*/", _arithmetic),
    **dict.fromkeys(("=", "!=", "<", "<=", ">", ">="), _comparison),
    "in": _membership,
    **dict.fromkeys(("and", "or", "not"), _logical),
}
