"""Column types: DuckDB's names, the types that columns are read as, and their uses.

:data:`_TYPES` lists the readable types. A table can have columns of other types, but a release
that uses one raises an error.

=============================  ===  ======  ====  =======  ==========================================
read as                        key  number  days  region   unreadable
=============================  ===  ======  ====  =======  ==========================================
``TINYINT`` … ``BIGINT``       yes  yes           yes      –
``UTINYINT`` … ``UINTEGER``    yes  yes           yes      –
``UBIGINT``, (U)``HUGEINT``    yes  yes           labels   –
``DECIMAL(p,s)``               yes  yes           labels   more than p digits
``FLOAT``, ``DOUBLE``               yes                    NaN, ±∞
``BOOLEAN``                    yes  0, 1          labels   –
``VARCHAR``                    yes                labels   longer than :data:`LONGEST_LABEL` bytes
``DATE``                       yes                yes      –
``TIMESTAMP``                              yes    yes      outside the years −290308 to 294247
``TIMESTAMP WITH TIME ZONE``               yes    yes      likewise
=============================  ===  ======  ====  =======  ==========================================

A missing or unreadable value is null: no value ends a release.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote

#: Longest readable text, in bytes of UTF-8.
LONGEST_LABEL = 1 << 16
TEXT, BOOLEAN, DAY = "VARCHAR", "BOOLEAN", "DATE"
#: Type of text columns that contain labels already, which engines read unchanged.
LABEL = "LABEL"
#: Types of timestamps without and with a zone, both in microseconds.
TIME, MOMENT = "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"
TIMES = (TIME, MOMENT)
#: Integer types used as integer keys; all other keys are text.
INTEGERS = ("TINYINT", "UTINYINT", "SMALLINT", "USMALLINT", "INTEGER", "UINTEGER", "BIGINT")
#: All integer types.
ALL_INTEGERS = (*INTEGERS, "UBIGINT", "HUGEINT", "UHUGEINT")
REALS = ("FLOAT", "DOUBLE")
#: Microseconds since 1970 of the first and last timestamp; ±(2⁶³ − 1) are infinite.
FIRST_TIME, LAST_TIME = -9_223_372_022_400_000_000, 2**63 - 2
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)")
# Values in the name of an ENUM type, which are data and must not be shown.
_VALUES = re.compile(r"ENUM\(.*\)", re.DOTALL)
_NULL = '"NULL"'
# Prefix of the type of a column whose files have no common type.
_MIXED = "UNION of "


@dataclass(frozen=True)
class ColumnType:
    """How to read columns of one type."""

    read_as: str
    read: str = "{0}"  # SQL of the column ``{0}`` as that type; null if unreadable
    exported: str = "{0}"  # SQL to export the column ``{0}`` from the caller's DuckDB to Arrow


def _time(read_as: str, time: str = "{0}") -> ColumnType:
    """Return the type of timestamps in microseconds; a file can contain any integer."""
    readable = f"epoch_us({time}) >= {FIRST_TIME} OR NOT isfinite({time})"
    return ColumnType(read_as, f"CASE WHEN {readable} THEN {time} END")


def _nanoseconds(read_as: str, make: str) -> ColumnType:
    """Return the type of timestamps in nanoseconds, rounded down to stay in the day.

    DuckDB's integer division rounds towards 0, also before 1970.
    """
    ticks = "epoch_ns({0}) // 1000 - (epoch_ns({0}) % 1000 < 0)::BIGINT"
    cast = f"TRY_CAST({{0}} AS {read_as})"
    return ColumnType(read_as, f"CASE WHEN isfinite({cast}) THEN {make}({ticks}) ELSE {cast} END")


def _decimal(kind: str, digits: int, places: int) -> ColumnType:
    """Return a decimal type with null for too many digits, where a cast would raise.

    Values are also clamped, because DuckDB casts dictionary values that no row selects.
    """
    most = f"{'9' * (digits - places)}.{'9' * places}"
    low, high = (f"CAST('{sign}{most}' AS {kind})" for sign in ("-", ""))
    within = f"greatest(least({{0}}, {high}), {low})"
    return ColumnType(kind, f"CASE WHEN {{0}} BETWEEN {low} AND {high} THEN {within} END")


def _short(written: str) -> str:
    """Return the SQL of a text to export; null if it is too long."""
    return f"CASE WHEN strlen({written}) <= {LONGEST_LABEL} THEN {written} END"


_WRITTEN = "TRY_CAST({0} AS VARCHAR)"
_AS_TEXT = ColumnType(TEXT, _WRITTEN, _short(_WRITTEN))
_TYPES = {
    **{kind: ColumnType(kind) for kind in (*INTEGERS, "UBIGINT", *REALS, BOOLEAN, DAY)},
    TEXT: ColumnType(TEXT, exported=_short("{0}")),
    # Export as text, because Arrow's widest integers have 38 digits.
    **{
        kind: ColumnType(kind, f"TRY_CAST({{0}} AS {kind})", "CAST({0} AS VARCHAR)")
        for kind in ("HUGEINT", "UHUGEINT")
    },
    **dict.fromkeys(("ENUM", "UUID", _NULL), _AS_TEXT),
    TIME: _time(TIME),
    MOMENT: _time(MOMENT),
    **dict.fromkeys(("TIMESTAMP_S", "TIMESTAMP_MS"), _time(TIME, f"TRY_CAST({{0}} AS {TIME})")),
    "TIMESTAMP_NS": _nanoseconds(TIME, "make_timestamp"),
    "TIMESTAMPTZ_NS": _nanoseconds(MOMENT, "make_timestamptz"),
}  # fmt: skip


def column_type(kind: str) -> ColumnType | None:
    """Return the reading of a column type; None for a type that no release can use."""
    if result := _DECIMAL.fullmatch(kind):
        return _decimal(kind, int(result[1]), int(result[2]))
    return _TYPES.get(_VALUES.sub("ENUM", kind))


def read_as(kind: str) -> str:
    """Return the type that a column is read as, or the name of an unusable type."""
    result = column_type(kind)
    return _VALUES.sub("ENUM", kind) if result is None else result.read_as


def read_expression(column: str, kind: str) -> str:
    """Return the SQL of a quoted column as the type that it is read as."""
    result = column_type(kind)
    return column if result is None else result.read.format(column)


def export_expression(column: str, kind: str) -> str:
    """Return the SQL to export a quoted column from the caller's DuckDB."""
    result = column_type(kind)
    return column if result is None else result.exported.format(column)


def decimal_places(kind: str) -> int | None:
    """Return the decimal places of a DECIMAL; None for other types."""
    result = _DECIMAL.fullmatch(kind)
    return None if result is None else int(result[2])


def is_number(kind: str) -> bool:
    """Return True if a type is numeric."""
    return kind in ALL_INTEGERS or kind in REALS or decimal_places(kind) is not None


def is_key(kind: str) -> bool:
    """Return True if values of a type can be keys: each has exactly one text."""
    return kind in (*ALL_INTEGERS, TEXT, BOOLEAN, DAY) or decimal_places(kind) is not None


def is_readable(kind: str) -> bool:
    """Return True if a release can use columns read as this type."""
    return is_number(kind) or is_key(kind) or kind in TIMES


def widest(kinds: Sequence[str]) -> str:
    """Return the common type of a column in several files, from their schemas only.

    Numbers and texts become text, but not mixtures with several texts per value: 7, 7.0 and 7.00
    are equal numbers but would be three texts, and so would timestamps and booleans.
    """
    # A column of nulls in one file fits any type.
    stated = [kind for kind in kinds if kind != _NULL] or list(kinds[:1])
    known = list(dict.fromkeys(map(read_as, stated)))
    if len(known) == 1:
        return known[0]
    for common, wider in (
        (INTEGERS, "BIGINT"),
        ((*INTEGERS, "UBIGINT", "HUGEINT"), "HUGEINT"),
    ):
        if all(kind in common for kind in known):
            return wider
    if "UHUGEINT" not in known:
        if all(map(is_number, known)):
            return "DOUBLE"
        if all(kind in (*ALL_INTEGERS, TEXT, DAY) for kind in known):
            return TEXT
    return f"{_MIXED}{' and '.join(known)}"


def declaration(column: str, kind: str) -> str:
    """Return the option that declares the type of a text column, in Python and for a command."""
    option = (
        f"types={{{column!r}: {kind!r}}} in dg.read or --type {quote(f'{column}={kind.lower()}')}"
    )
    if kind != "DATE":
        return option
    return f"{option}, and the format in dates= or --dates if it is not 2025-12-31"


def conversion(kind: str, into: str) -> str:
    """Return the remedy for a column of another type than text, which ``types=`` cannot convert."""
    if kind.startswith(_MIXED):
        return "its files have different types, so write them again with one type"
    return f"convert it to {into} before it is read, because types= converts only text"
