"""Functions of expressions: their one list, each total, with the types that it is of.

A function gives a value or a missing one for every value of its types: it never ends a query, and a
missing part makes most of them missing. All are functions of one row alone.

==========================================  =========================================================
``year(t)``, ``quarter(t)``, ``month(t)``   the year, a whole number; the first day of the quarter, of
``week(t)``, ``day(t)``                     the month, of the week (a Monday), and the day, dates
``hour(t)``, ``weekday(t)``                 0 to 23; 1 (Monday) to 7
``bins(x, 0, 10, 100)``                     ``below 0``, ``0 to 10`` (without 10), …, ``100 and above``
``abs(x)``, ``floor(x)``, ``round(x)``      of numbers; the last two are whole
``least(x, y)``, ``greatest(x, y)``         the smaller and the larger of two numbers
``lower(s)``, ``upper(s)``, ``trim(s)``     of text
``prefix(s, 3)``, ``length(s)``             the first letters, and how many there are
``if(c, a, b)``                             a where c is true, otherwise b
``known(x)``, ``coalesce(x, 0)``            whether x is there; x, or the constant where it is missing
==========================================  =========================================================

``t`` is a date or a time; moments (times with a zone) want a zone, ``month(at, 'Europe/Paris')``.
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
from dpgrain.tables.engines.sql import label, number, quoted, text
from dpgrain.tables.expression import CallNode, ColumnNode, ConstantNode, Node, stated
from dpgrain.tables.sources.column_types import (
    ALL_INTEGERS,
    BOOLEAN,
    DAY,
    INTEGERS,
    MOMENT,
    TEXT,
    TIMES,
    is_number,
)

#: The types of whole numbers and of others, in expressions.
INTEGER, REAL = "BIGINT", "DOUBLE"
_NUMBERS = (INTEGER, REAL)
_LARGEST = 2**63 - 1
# Letters of the SQL of an expression, at most.
_LONGEST_SQL = 50_000
# Remedy for a column of text that is meant to be something else.
_OF_TEXT = "; declare the type of a text column (types= in dg.read, --type paid=double)"
#: The functions of all rows of a person, which :mod:`dpgrain.tables.engines.features` makes: the number
#: of parts of each besides a condition.
OF_ROWS: Mapping[str, int] = {
    **dict.fromkeys(("count", "any", "all"), 0),
    **dict.fromkeys(("total", "mean", "min", "max", "median", "distinct", "most"), 1),
    **dict.fromkeys(("first", "last"), 2),
}
# Types in words.
_WORDS = {
    INTEGER: "integers",
    REAL: "numbers",
    TEXT: "text",
    BOOLEAN: "booleans",
    DAY: "dates",
    "TIMESTAMP": "timestamps",
    MOMENT: "timestamps with a time zone",
}


@dataclass(frozen=True)
class Typed:
    """A part of an expression, with its type and its SQL.

    Args:
        kind: the type; of times the SQL is of microseconds since 1970.
        sql: the SQL.
        constant: the value of a constant.
        values: all values that it can have, in their order, where these are public and few.
        finite: False for numbers that may be infinite or none, which are missing where they are used.
    """

    kind: str
    sql: str
    constant: bool | int | float | str | None = None
    values: tuple[Any, ...] | None = None
    finite: bool = True

    @property
    def used(self) -> str:
        """The SQL of the value, null where it is no finite number."""
        return self.sql if self.finite else f"CASE WHEN isfinite({self.sql}) THEN {self.sql} END"

    @property
    def real(self) -> str:
        """The SQL of a number as one with a fraction."""
        return self.sql if self.kind == REAL else f"CAST({self.sql} AS DOUBLE)"


@dataclass(frozen=True)
class Reading:
    """The reading of one expression.

    Args:
        kinds: column → type, of the columns that it may be made of.
        text: the whole expression, for messages.
        clocks: the columns of times that it is made of, each with a zone whose clocks it reads; filled
            as it is read.
    """

    kinds: Mapping[str, str]
    text: str
    clocks: dict[tuple[str, str], None] = field(default_factory=dict)

    def of(self, node: Node) -> Typed:
        """Return what a part means, with its type.

        Args:
            node: the part.

        Raises:
            SchemaError: if a column is missing, or a type does not suit.
            ParameterError: if there is no such function, or it is of other parts.

        >>> from dpgrain.tables.expression import parsed
        >>> Reading({"a": "INTEGER"}, "a * 2").of(parsed("a * 2")).kind
        'BIGINT'
        """
        if isinstance(node, ConstantNode):
            return self._constant(node)
        if isinstance(node, ColumnNode):
            return self._column(node.name)
        made = FUNCTIONS.get(node.function)
        if made is None:
            if node.function in OF_ROWS:
                raise ParameterError(
                    f"the expression {stated(self.text)} has {node.function[:40]}(…), a "
                    "function of all rows of a person; use it in per_user (--per-user)."
                )
            listed = ", ".join(name for name in FUNCTIONS if name.isalpha() and name not in _SIGNS)
            raise ParameterError(
                f"the expression {stated(self.text)} has the unknown function "
                f"{node.function[:40]}(…); use one of {listed}, or in per_user one of "
                f"{', '.join(OF_ROWS)}."
            )
        result = made(self, node, [self.of(part) for part in node.parts])
        if len(result.sql) > _LONGEST_SQL:
            # Functions that name a part twice double what is within.
            raise self.wrong("its functions are nested too deeply")
        return result

    def _constant(self, node: ConstantNode) -> Typed:
        value = node.value
        if isinstance(value, bool):
            return Typed(BOOLEAN, str(value).lower(), value, (value,))
        if isinstance(value, str):
            return Typed(TEXT, text(value), value, (value,))
        if isinstance(value, int):
            if abs(value) > _LARGEST:
                raise self.wrong(f"{stated(str(value))} is not a 64-bit integer")
            return Typed(INTEGER, f"({value}::BIGINT)", value, (value,))
        if not math.isfinite(value):
            raise self.wrong("a constant is not finite")
        return Typed(REAL, f"({value!r}::DOUBLE)", value)

    def _column(self, name: str) -> Typed:
        kind = self.kinds.get(name)
        if kind is None:
            raise SchemaError(
                f"the expression {stated(self.text)} uses {stated(name)}, which is not a "
                f"column of the table; {suggest_columns(name, list(self.kinds))}. Put text in "
                "quotes, such as kind = 'er'."
            )
        if kind in INTEGERS:
            return Typed(INTEGER, f"CAST({quoted(name)} AS BIGINT)")
        if kind in ALL_INTEGERS:
            return Typed(INTEGER, f"TRY_CAST({quoted(name)} AS BIGINT)")
        if is_number(kind):
            return Typed(REAL, number(name), finite=False)
        if kind == TEXT:
            return Typed(TEXT, label(quoted(name)))
        if kind == BOOLEAN:
            return Typed(BOOLEAN, quoted(name), values=(False, True))
        if kind == DAY:
            return Typed(DAY, f"CASE WHEN isfinite({quoted(name)}) THEN {quoted(name)} END")
        if kind in TIMES:
            return Typed(kind, self.clock(name, ""))
        raise SchemaError(
            f"the expression {stated(self.text)} uses {stated(name)} of type {kind}; cast "
            "it to a number, a date or text."
        )

    def wrong(self, why: str) -> ParameterError:
        """Return the error for a part without meaning."""
        return ParameterError(f"the expression {stated(self.text)} is invalid: {why}.")

    def unsuited(self, node: CallNode, part: Typed, wanted: str) -> SchemaError:
        """Return the error for a part of another type than a function is of."""
        remedy = _OF_TEXT if part.kind == TEXT and part.constant is None else ""
        return SchemaError(
            f"the expression {stated(self.text)} applies {node.function!r} to "
            f"{_WORDS[part.kind]}, but it requires {wanted}{remedy}."
        )

    def clock(self, column: str, zone: str) -> str:
        """Return the SQL of a time as clocks of a zone show it, in microseconds since 1970."""
        self.clocks[column, zone] = None
        return quoted(clock(column, zone))

    def require(self, node: CallNode, parts: Sequence[Typed], *kinds: Sequence[str]) -> None:
        """Raise unless parts are of as many types as they should be.

        Args:
            node: the function.
            parts: its parts.
            kinds: the types that each may be of.
        """
        if len(parts) != len(kinds):
            raise self.wrong(
                f"the number of arguments of {node.function!r} must be {len(kinds)}, not "
                f"{len(parts)}"
            )
        for part, suited in zip(parts, kinds, strict=True):
            if part.kind not in suited:
                wanted = " or ".join(dict.fromkeys(_WORDS[kind] for kind in suited))
                raise self.unsuited(node, part, wanted)


def clock(column: str, zone: str) -> str:
    """Return the name of a column of times as a clock shows them, which no column of a table has.

    Args:
        column: the column.
        zone: the zone of the clock; empty for times as they are.
    """
    return f"\x1f{zone}\x1f{column}"


Made = Callable[[Reading, CallNode, list[Typed]], Typed]


def _arithmetic(reading: Reading, node: CallNode, parts: list[Typed]) -> Typed:
    if node.function == "-" and len(parts) == 1:
        parts = [Typed(INTEGER, "(0::BIGINT)", 0), *parts]
    reading.require(node, parts, _NUMBERS, _NUMBERS)
    one, other = parts
    if node.function != "/" and one.kind == other.kind == INTEGER:
        # In 128 bits nothing overflows; what 64 do not hold is missing.
        wide = f"CAST({one.sql} AS HUGEINT) {node.function} CAST({other.sql} AS HUGEINT)"
        return Typed(INTEGER, f"TRY_CAST({wide} AS BIGINT)")
    return Typed(REAL, f"({one.real} {node.function} {other.real})", finite=False)


def _comparison(reading: Reading, node: CallNode, parts: list[Typed]) -> Typed:
    one, other = _alike(reading, node, parts)
    return Typed(BOOLEAN, f"({one} {node.function} {other})", values=(False, True))


def _alike(reading: Reading, node: CallNode, parts: list[Typed]) -> list[str]:
    """Return the SQL of parts that are compared with one another, or chosen between."""
    kinds = {part.kind for part in parts}
    if kinds <= set(_NUMBERS):
        if kinds == {INTEGER}:
            return [part.used for part in parts]
        return [replace(part, sql=part.real).used for part in parts]
    if kinds == {DAY, TEXT}:
        parts = [_day_constant(reading, part) if part.kind == TEXT else part for part in parts]
        kinds = {DAY}
    if len(kinds) > 1 or kinds <= set(TIMES):
        words = " and ".join(sorted(_WORDS[kind] for kind in kinds))
        remedy = "; use day(…) for timestamps" if kinds & set(TIMES) else ""
        if MOMENT in kinds:
            remedy = "; use day(…, 'Europe/Paris') for timestamps with a time zone"
        if TEXT in kinds and kinds & set(_NUMBERS):
            columns = any(part.kind == TEXT and part.constant is None for part in parts)
            remedy = f"{_OF_TEXT}, or put the number in quotes" if columns else ""
        raise SchemaError(
            f"the expression {stated(reading.text)} uses {node.function!r} with {words}, "
            f"which cannot be compared{remedy}."
        )
    return [part.used for part in parts]


def _day_constant(reading: Reading, part: Typed) -> Typed:
    """Return the date that a text states."""
    try:
        stated = date.fromisoformat(str(part.constant))
    except ValueError:
        raise reading.wrong("a date can only be compared with text such as '2025-12-31'") from None
    return Typed(DAY, f"DATE '{stated.isoformat()}'")


def _within(reading: Reading, node: CallNode, parts: list[Typed]) -> Typed:
    if len(parts) < 2 or any(part.constant is None for part in parts[1:]):
        raise reading.wrong("'in' requires constants, such as kind in ('er', 'gp')")
    one, *others = _alike(reading, node, parts)
    return Typed(BOOLEAN, f"({one} IN ({', '.join(others)}))", values=(False, True))


def _condition(reading: Reading, node: CallNode, parts: list[Typed]) -> Typed:
    reading.require(node, parts, *[(BOOLEAN,)] * (1 if node.function == "not" else 2))
    word = node.function.upper()
    sql = f"(NOT {parts[0].sql})" if len(parts) == 1 else f" {word} ".join(p.sql for p in parts)
    return Typed(BOOLEAN, f"({sql})", values=(False, True))


def _local(reading: Reading, node: CallNode, parts: list[Typed]) -> Typed:
    """Return the time of a function of the calendar, as clocks show it."""
    if not parts or len(parts) > 2:
        raise reading.wrong(
            f"{node.function!r} takes a date or timestamp and, for timestamps with a time "
            "zone, the zone to use"
        )
    time = parts[0]
    if time.kind not in (DAY, *TIMES):
        raise reading.unsuited(node, time, "dates or timestamps")
    if (time.kind == MOMENT) != (len(parts) == 2):
        said = f"requires a zone: {node.function}(…, 'Europe/Paris')" if len(parts) == 1 else ""
        raise reading.wrong(f"{node.function!r} of {_WORDS[time.kind]} {said or 'takes no zone'}")
    if len(parts) == 1:
        return time
    zone = parts[1].constant
    if not isinstance(zone, str) or not zone:
        raise reading.wrong("a zone must be text such as 'Europe/Paris'")
    of = node.parts[0]
    assert isinstance(of, ColumnNode)  # noqa: S101 - no function makes moments
    return replace(time, sql=reading.clock(of.name, check_zone(zone)))


def _calendar(kind: str, of_day: str, values: tuple[Any, ...] | None = None) -> Made:
    """Return a function of the day; ``{0}`` is its SQL."""

    def made(reading: Reading, node: CallNode, parts: list[Typed]) -> Typed:
        time = _local(reading, node, parts)
        day = time.sql if time.kind == DAY else f"make_timestamp({time.sql})::DATE"
        return Typed(kind, of_day.format(day), values=values)

    return made


def _hour(reading: Reading, node: CallNode, parts: list[Typed]) -> Typed:
    time = _local(reading, node, parts)
    if time.kind == DAY:
        raise reading.unsuited(node, time, "timestamps")
    hour = f"CAST(hour(make_timestamp({time.sql})) AS BIGINT)"
    return Typed(INTEGER, hour, values=tuple(range(24)))


def _bins(reading: Reading, node: CallNode, parts: list[Typed]) -> Typed:
    edges = [part.constant for part in parts[1:]]
    if not edges or any(type(edge) not in (int, float) for edge in edges):
        raise reading.wrong(
            "'bins' takes a number and increasing edges, such as bins(amount, 0, 10, 100)"
        )
    known = [float(edge) for edge in edges if isinstance(edge, int | float)]
    if any(one >= other for one, other in pairwise(known)):
        raise reading.wrong("the edges of 'bins' must be increasing")
    reading.require(node, parts[:1], _NUMBERS)
    value = replace(parts[0], sql=parts[0].real).used
    names = [f"{edge:,}" for edge in edges]
    labels = (
        f"below {names[0]}",
        *(f"{one} to {other}" for one, other in pairwise(names)),
        f"{names[-1]} and above",
    )
    steps = "".join(
        f" WHEN {value} < {edge!r} THEN {text(name)}"
        for edge, name in zip(known, labels, strict=False)
    )
    sql = f"CASE WHEN ({value}) IS NULL THEN NULL{steps} ELSE {text(labels[-1])} END"
    return Typed(TEXT, sql, values=labels)


def _of_number(sql: str, *, whole: bool = False) -> Made:
    """Return a function of a number, which is whole where the number is; ``{0}`` is its SQL."""

    def made(reading: Reading, node: CallNode, parts: list[Typed]) -> Typed:
        reading.require(node, parts, _NUMBERS)
        (part,) = parts
        if part.kind == INTEGER:
            wide = sql.format(f"CAST({part.sql} AS HUGEINT)")
            return part if whole else Typed(INTEGER, f"TRY_CAST({wide} AS BIGINT)")
        made_of = sql.format(part.sql)
        if whole:
            return Typed(INTEGER, f"TRY_CAST({made_of} AS BIGINT)")
        return Typed(REAL, made_of, finite=part.finite)

    return made


def _chosen(reading: Reading, node: CallNode, parts: list[Typed]) -> Typed:
    """Return the smaller or the larger of two numbers, missing where one of them is."""
    reading.require(node, parts, _NUMBERS, _NUMBERS)
    one, other = _alike(reading, node, parts)
    kind = INTEGER if {part.kind for part in parts} == {INTEGER} else REAL
    sign = "<=" if node.function == "least" else ">="
    sql = (
        f"CASE WHEN {one} {sign} {other} THEN {one} WHEN {one} IS NOT NULL AND {other} IS NOT NULL"
    )
    return Typed(kind, f"{sql} THEN {other} END")


def _of_text(sql: str, kind: str = TEXT) -> Made:
    def made(reading: Reading, node: CallNode, parts: list[Typed]) -> Typed:
        reading.require(node, parts, (TEXT,))
        return Typed(kind, sql.format(parts[0].sql))

    return made


def _prefix(reading: Reading, node: CallNode, parts: list[Typed]) -> Typed:
    reading.require(node, parts, (TEXT,), (INTEGER,))
    letters = parts[1].constant
    if not isinstance(letters, int) or not 1 <= letters <= 1000:
        raise reading.wrong(
            "'prefix' takes text and a number of characters from 1 to 1,000, such as prefix(zip, 3)"
        )
    return Typed(TEXT, f"left({parts[0].sql}, {letters})")


def _if(reading: Reading, node: CallNode, parts: list[Typed]) -> Typed:
    if len(parts) != 3:
        raise reading.wrong(
            "'if' takes a condition and two values, such as if(amount > 0, 'in', 'out')"
        )
    reading.require(node, parts[:1], (BOOLEAN,))
    condition = parts[0].sql

    def chosen(one: str, other: str) -> str:
        return f"CASE WHEN {condition} THEN {one} ELSE {other} END"

    return _one_of(reading, node, parts[1:], chosen)


def _coalesce(reading: Reading, node: CallNode, parts: list[Typed]) -> Typed:
    if len(parts) != 2 or parts[1].constant is None:
        raise reading.wrong(
            "'coalesce' takes a value and a constant, such as coalesce(kind, 'other')"
        )
    return _one_of(reading, node, parts, "coalesce({}, {})".format)


def _one_of(
    reading: Reading, node: CallNode, parts: list[Typed], sql: Callable[[str, str], str]
) -> Typed:
    """Return one of two values of a type.

    Args:
        reading: where they are read.
        node: the call.
        parts: the two values.
        sql: makes the SQL of theirs. It is a function, as texts of the caller's in a template could
            hold places of it, and what fills them would be read as SQL.
    """
    one, other = _alike(reading, node, parts)
    kinds = {part.kind for part in parts}
    kind = REAL if kinds == set(_NUMBERS) else DAY if DAY in kinds else parts[0].kind
    values = None
    if all(part.values is not None for part in parts):
        values = tuple(dict.fromkeys(value for part in parts for value in part.values or ()))
    return Typed(kind, sql(one, other), values=values)


def _known(reading: Reading, node: CallNode, parts: list[Typed]) -> Typed:
    if len(parts) != 1:
        raise reading.wrong(f"{node.function!r} takes one value")
    return Typed(BOOLEAN, f"(({parts[0].used}) IS NOT NULL)", values=(False, True))


_FIRST_OF_MONTH = "make_date(year({0}), month({0}), 1)"
_FIRST_OF_QUARTER = "make_date(year({0}), 3 * ((month({0}) - 1) // 3) + 1, 1)"
_SIGNS = ("and", "or", "not", "in")
#: The functions and operators by name; whatever is not here is refused by name.
FUNCTIONS: Mapping[str, Made] = {
    "year": _calendar(INTEGER, "CAST(year({0}) AS BIGINT)"),
    "quarter": _calendar(DAY, _FIRST_OF_QUARTER),
    "month": _calendar(DAY, _FIRST_OF_MONTH),
    "week": _calendar(DAY, "({0} - CAST(isodow({0}) - 1 AS INTEGER))"),
    "day": _calendar(DAY, "{0}"),
    "hour": _hour,
    "weekday": _calendar(INTEGER, "CAST(isodow({0}) AS BIGINT)", tuple(range(1, 8))),
    "bins": _bins,
    "abs": _of_number("abs({0})"),
    "floor": _of_number("floor({0})", whole=True),
    "round": _of_number("round({0})", whole=True),
    "least": _chosen,
    "greatest": _chosen,
    "lower": _of_text("lower({0})"),
    "upper": _of_text("upper({0})"),
    "trim": _of_text("trim({0})"),
    "prefix": _prefix,
    "length": _of_text("CAST(length({0}) AS BIGINT)", INTEGER),
    "if": _if,
    "known": _known,
    "coalesce": _coalesce,
    **dict.fromkeys("+-*/", _arithmetic),
    **dict.fromkeys(("=", "!=", "<", "<=", ">", ">="), _comparison),
    "in": _within,
    **dict.fromkeys(("and", "or", "not"), _condition),
}
