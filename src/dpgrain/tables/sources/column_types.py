"""The types of columns: their names, the types that they are read as, and their uses.

All sources end in DuckDB, so a type is what DuckDB calls it. :data:`_TYPES` lists those that are read.
A column of any other type may stand in a table, but no release can use it, and the refusal says so.

=============================  ===  ======  ====  =======  ==========================================
read as                        key  number  days  region   unreadable
=============================  ===  ======  ====  =======  ==========================================
``TINYINT`` … ``BIGINT``       yes  yes           yes      –
``UTINYINT`` … ``UINTEGER``    yes  yes           yes      –
``UBIGINT``, (U)``HUGEINT``    yes  yes           labels   –
``DECIMAL(p,s)``               yes  yes           labels   more than p digits
``FLOAT``, ``DOUBLE``               yes                    NaN and ±∞ are no numbers
``BOOLEAN``                    yes  0, 1          labels   –
``VARCHAR``                    yes                labels   longer than :data:`LONGEST_LABEL` bytes
``DATE``                       yes                yes      –
``TIMESTAMP``                              yes    yes      outside the years −290308 to 294247
``TIMESTAMP WITH TIME ZONE``               yes    yes      likewise
=============================  ===  ======  ====  =======  ==========================================

A value that is missing or unreadable is a null, whatever column it stands in: no value ends a release.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

#: Bytes of the longest text, in UTF-8, that is read.
LONGEST_LABEL = 1 << 16
TEXT, BOOLEAN, DAY = "VARCHAR", "BOOLEAN", "DATE"
#: Type of columns whose texts are labels already: engines read them as they are.
LABEL = "LABEL"
#: Types of times without a zone, and of moments; both are counted in microseconds.
TIME, MOMENT = "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"
TIMES = (TIME, MOMENT)
#: Types whose values are keys as they are; all other keys are text.
INTEGERS = ("TINYINT", "UTINYINT", "SMALLINT", "USMALLINT", "INTEGER", "UINTEGER", "BIGINT")
#: Types of whole numbers.
ALL_INTEGERS = (*INTEGERS, "UBIGINT", "HUGEINT", "UHUGEINT")
REALS = ("FLOAT", "DOUBLE")
#: Microseconds since 1970 of the first and the last time; those at ±(2⁶³ − 1) are infinite.
FIRST_TIME, LAST_TIME = -9_223_372_022_400_000_000, 2**63 - 2
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)")
# Values of an ENUM in its type's name, where they are data.
_VALUES = re.compile(r"ENUM\(.*\)", re.DOTALL)
_NOTHING = '"NULL"'


@dataclass(frozen=True)
class ColumnType:
    """The reading of columns of one type.

    Args:
        read_as: the type that all code but that of sources sees.
        read: the SQL of a column as that type, null where it is unreadable; ``{0}`` is the column.
        carried: the SQL of a column that leaves the caller's DuckDB, where Arrow lacks the type.
    """

    read_as: str
    read: str = "{0}"
    carried: str = "{0}"


def _time(read_as: str, time: str = "{0}") -> ColumnType:
    """Return the type of times of microseconds, of which files may hold any number."""
    readable = f"epoch_us({time}) >= {FIRST_TIME} OR NOT isfinite({time})"
    return ColumnType(read_as, f"CASE WHEN {readable} THEN {time} END")


def _nanoseconds(read_as: str, make: str) -> ColumnType:
    """Return the type of times of nanoseconds; a cast would round the last of a day up to the next.

    Whole numbers are divided towards 0, also those of times before 1970.
    """
    ticks = "epoch_ns({0}) // 1000 - (epoch_ns({0}) % 1000 < 0)::BIGINT"
    cast = f"TRY_CAST({{0}} AS {read_as})"
    return ColumnType(read_as, f"CASE WHEN isfinite({cast}) THEN {make}({ticks}) ELSE {cast} END")


def _decimal(kind: str, digits: int, places: int) -> ColumnType:
    """Return a type of decimal numbers; a cast of one with more digits than the type ends a query.

    Each is brought into range, too: DuckDB casts the values of a dictionary that no row selects.
    """
    most = f"{'9' * (digits - places)}.{'9' * places}"
    low, high = (f"CAST('{sign}{most}' AS {kind})" for sign in ("-", ""))
    within = f"greatest(least({{0}}, {high}), {low})"
    return ColumnType(kind, f"CASE WHEN {{0}} BETWEEN {low} AND {high} THEN {within} END")


def _short(written: str) -> str:
    """Return the SQL of a text on its way out of the caller's DuckDB: null where it is no label."""
    return f"CASE WHEN strlen({written}) <= {LONGEST_LABEL} THEN {written} END"


_WRITTEN = "TRY_CAST({0} AS VARCHAR)"
_AS_TEXT = ColumnType(TEXT, _WRITTEN, _short(_WRITTEN))
_TYPES = {
    **{kind: ColumnType(kind) for kind in (*INTEGERS, "UBIGINT", *REALS, BOOLEAN, DAY)},
    TEXT: ColumnType(TEXT, carried=_short("{0}")),
    # Arrow's widest numbers have 38 digits.
    **{
        kind: ColumnType(kind, f"TRY_CAST({{0}} AS {kind})", "CAST({0} AS VARCHAR)")
        for kind in ("HUGEINT", "UHUGEINT")
    },
    **dict.fromkeys(("ENUM", "UUID", _NOTHING), _AS_TEXT),
    TIME: _time(TIME),
    MOMENT: _time(MOMENT),
    **dict.fromkeys(("TIMESTAMP_S", "TIMESTAMP_MS"), _time(TIME, f"TRY_CAST({{0}} AS {TIME})")),
    "TIMESTAMP_NS": _nanoseconds(TIME, "make_timestamp"),
    "TIMESTAMPTZ_NS": _nanoseconds(MOMENT, "make_timestamptz"),
}  # fmt: skip


def column_type(kind: str) -> ColumnType | None:
    """Return the reading of a column type; None for a type that no release can use.

    >>> column_type("TIMESTAMPTZ_NS").read_as, column_type("DOUBLE[2]")
    ('TIMESTAMP WITH TIME ZONE', None)
    >>> column_type("ENUM('a', 'b')").read_as
    'VARCHAR'
    """
    if result := _DECIMAL.fullmatch(kind):
        return _decimal(kind, int(result[1]), int(result[2]))
    return _TYPES.get(_VALUES.sub("ENUM", kind))


def read_as(kind: str) -> str:
    """Return the type that a column is read as; a type that none can use stays under its own name."""
    result = column_type(kind)
    return _VALUES.sub("ENUM", kind) if result is None else result.read_as


def read_expression(column: str, kind: str) -> str:
    """Return the SQL of a column, which is itself quoted, as the type that it is read as."""
    result = column_type(kind)
    return column if result is None else result.read.format(column)


def export_expression(column: str, kind: str) -> str:
    """Return the SQL of a column that leaves the caller's DuckDB."""
    result = column_type(kind)
    return column if result is None else result.carried.format(column)


def decimal_places(kind: str) -> int | None:
    """Return the number of digits behind the point of a DECIMAL; None for other types."""
    result = _DECIMAL.fullmatch(kind)
    return None if result is None else int(result[2])


def is_number(kind: str) -> bool:
    """Return whether a type is one of numbers."""
    return kind in ALL_INTEGERS or kind in REALS or decimal_places(kind) is not None


def is_key(kind: str) -> bool:
    """Return whether values of a type can name things: each has one text, and stays what it is."""
    return kind in (*ALL_INTEGERS, TEXT, BOOLEAN, DAY) or decimal_places(kind) is not None


def is_readable(kind: str) -> bool:
    """Return whether a release can use columns that are read as a type."""
    return is_number(kind) or is_key(kind) or kind in TIMES


def widest(kinds: Sequence[str]) -> str:
    """Return the type of a column that files hold with these types, as a function of schemas alone.

    Whole numbers have the widest type of whole numbers, other numbers DOUBLE, and types of several
    kinds whose values have one text each are text. Others have none in common, and nothing takes their
    union: 7, 7.0 and 7.00 are one number but would be three texts, and so are times and truths.

    >>> widest(["INTEGER", "BIGINT"]), widest(["BIGINT", "DOUBLE"]), widest(["BIGINT", "VARCHAR"])
    ('BIGINT', 'DOUBLE', 'VARCHAR')
    """
    # A column of nulls in one file fits to any.
    stated = [kind for kind in kinds if kind != _NOTHING] or list(kinds[:1])
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
    return f"UNION of {' and '.join(known)}"
