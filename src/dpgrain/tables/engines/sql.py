"""SQL of columns: names, texts, keys, numbers and select lists."""

from __future__ import annotations

import glob
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dpgrain.inputs.long_labels import MARK, SHOWN, WHOLE_BYTES
from dpgrain.tables.sources.column_types import (
    DAY,
    INTEGERS,
    LONGEST_LABEL,
    TEXT,
    TIMES,
    column_type,
    is_number,
    read_as,
    read_expression,
)

#: The default date format, as an example.
ISO = "2025-12-31"
# Day or month of one or two digits.
_TWO = r"(\d{1,2})"
#: Date formats: example → pattern of its three numbers, and their order for DuckDB.
DATES: Mapping[str, tuple[str, str]] = {
    ISO: (rf"(\d{{4}})-{_TWO}-{_TWO}", r"\1-\2-\3"),
    "31.12.2025": (rf"{_TWO}\.{_TWO}\.(\d{{4}})", r"\3-\2-\1"),
    "31/12/2025": (rf"{_TWO}/{_TWO}/(\d{{4}})", r"\3-\2-\1"),
    "31-12-2025": (rf"{_TWO}-{_TWO}-(\d{{4}})", r"\3-\2-\1"),
    "12/31/2025": (rf"{_TWO}/{_TWO}/(\d{{4}})", r"\3-\1-\2"),
    "20251231": (r"(\d{4})(\d{2})(\d{2})", r"\1-\2-\3"),
}


def quoted(identifier: str) -> str:
    """Quote an SQL identifier."""
    return '"' + identifier.replace('"', '""') + '"'


def literal(value: str) -> str:
    """Quote an SQL string."""
    return "'" + value.replace("'", "''") + "'"


def key_sql(column: str, kind: str, *, of: str = "") -> str:
    """Return the SQL of a column as a key: integers unchanged, all else as labels.

    DuckDB only replaces long texts here (:mod:`~dpgrain.inputs.long_labels`). ``of`` is the alias
    of the table.
    """
    if kind != TEXT:
        return valid_key_sql(column, kind, of=of)
    name = f"{of}.{quoted(column)}" if of else quoted(column)
    long = f"WHEN strlen({name}) <= {LONGEST_LABEL} THEN {_long_label_sql(name)}"
    return f"CASE WHEN strlen({name}) <= {WHOLE_BYTES} THEN {name} {long} END"


def valid_key_sql(column: str, kind: str, *, of: str = "") -> str:
    """Return the SQL of a column as a key, for rows that satisfy :func:`has_key_sql`."""
    name = f"{of}.{quoted(column)}" if of else quoted(column)
    if kind == TEXT:
        long = _long_label_sql(name)
        return f"CASE WHEN strlen({name}) <= {WHOLE_BYTES} THEN {name} ELSE {long} END"
    return f"CAST({name} AS {'BIGINT' if kind in INTEGERS else 'VARCHAR'})"


def has_key_sql(column: str, kind: str) -> str:
    """Return the SQL condition that a row has a key in a column."""
    if kind == TEXT:
        return f"strlen({quoted(column)}) <= {LONGEST_LABEL}"
    return f"{key_sql(column, kind)} IS NOT NULL"


def _long_label_sql(sql: str) -> str:
    """Return the SQL of the replacement of a long text."""
    return f"concat(left({sql}, {SHOWN}), '{MARK}', sha256({sql}))"


def label_sql(sql: str) -> str:
    """Return the SQL of a text; null beyond the maximum length."""
    return f"CASE WHEN strlen({sql}) <= {LONGEST_LABEL} THEN {sql} END"


def number_sql(column: str) -> str:
    """Return the SQL of a column as numbers; non-numeric values are null."""
    return f"TRY_CAST({quoted(column)} AS DOUBLE)"


#: Marks between groups of three digits.
MARKS = (",", ".", " ", "'")
# A number with a mark between groups of three digits, such as 1.234,56.
_GROUPED = r"^\s*[+-]?\d{{1,3}}({mark}\d{{3}})+({decimal}\d*)?\s*$"


@dataclass(frozen=True)
class TextFormat:
    """Format of numbers and dates in text."""

    decimal: str = "."
    dates: str = ISO  # last day of 2025 in the date format
    thousands: str = ""  # mark of three digits; empty for none, or a point

    def describe(self, kind: str) -> str:
        """Describe the format of a type, if it is not the default."""
        if self._is_day(kind):
            return f" written like {self.dates}"
        if not is_number(read_as(kind)):
            return ""
        comma = " with a decimal comma" if self.decimal == "," else ""
        return f"{comma} with {self.thousands!r} between thousands" if self.thousands else comma

    def _is_day(self, kind: str) -> bool:
        return read_as(kind) in (DAY, *TIMES) and self.dates != ISO

    def cast(self, written: str, kind: str) -> str:
        """Return the SQL that converts a text's SQL to a type; invalid values are null."""
        mark = self.thousands or ("." if self.decimal == "," else "")
        if mark and is_number(kind):
            signs = {"mark": re.escape(mark), "decimal": re.escape(self.decimal)}
            written = (
                f"CASE WHEN regexp_matches({written}, {literal(_GROUPED.format(**signs))}) "
                f"THEN replace({written}, {literal(mark)}, '') ELSE {written} END"
            )
        if self.decimal == "," and is_number(kind):
            # Other points are invalid: 1.5 becomes 1,5.
            written = f"translate({written}, '.,', ',.')"
        if self._is_day(kind):
            form, day = DATES[self.dates]
            # Other formats are invalid, including the default one.
            form = rf"'^\s*{form}((?:[ T].*)?)$'"
            written = (
                f"CASE WHEN regexp_matches({written}, {form}) "
                f"THEN regexp_replace({written}, {form}, '{day}\\4') END"
            )
        return f"TRY_CAST({written} AS {kind})"


def cast_sql(column: str, kind: str, as_written: TextFormat = TextFormat()) -> str:
    """Return the SQL that converts a text column to a type; invalid values are null.

    DuckDB may push a plain cast of a column into the reader of a file, which then drops whole rows
    with invalid values; it does not push down an expression.
    """
    return as_written.cast(f"concat({label_sql(quoted(column))}, '')", kind)


def select_list(columns: Mapping[str, str]) -> str:
    """Return the SQL of a select list, name → SQL; a column of nulls if there are none."""
    listed = (
        sql if sql == quoted(name) else f"{sql} AS {quoted(name)}" for name, sql in columns.items()
    )
    return ", ".join(listed) or 'NULL AS "none"'


def usable_columns(kinds: Mapping[str, str], used: Collection[str] | None) -> dict[str, str]:
    """Return column → type, of the used columns that releases can use; None for all."""
    return {
        column: kind
        for column, kind in kinds.items()
        if (used is None or column in used) and column_type(kind) is not None
    }


def read_expressions(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return column → SQL that reads it."""
    return {column: read_expression(quoted(column), kind) for column, kind in kinds.items()}


def arrow_expressions(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return column → SQL that reads it from Arrow rows with timestamps in range."""
    times = {column: quoted(column) for column, kind in kinds.items() if read_as(kind) in TIMES}
    return {**read_expressions(kinds), **times}


def select_from(rows: str, columns: Mapping[str, str]) -> str:
    """Return the SQL of columns of some rows, name → SQL."""
    plain = all(sql == quoted(column) for column, sql in columns.items())
    return rows if plain else f"(SELECT {select_list(columns)} FROM {rows})"


def file_list(paths: Sequence[str]) -> str:
    """Return the SQL of a list of files; their names are not patterns."""
    return "[" + ", ".join(literal(glob.escape(path)) for path in paths) + "]"
