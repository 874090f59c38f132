"""The SQL of columns: names, texts, keys and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpgrain.inputs.long_labels import MARK, SHOWN, WHOLE_BYTES
from dpgrain.tables.sources.column_types import (
    DAY,
    INTEGERS,
    LONGEST_LABEL,
    TEXT,
    TIMES,
    is_number,
    read_as,
)

#: The usual form of days, by an example.
ISO = "2025-12-31"
# Two digits of a day or a month, of which the first may lack.
_TWO = r"(\d{1,2})"
#: How days may be written: an example → the pattern of three numbers, and these as DuckDB reads them.
DATES: Mapping[str, tuple[str, str]] = {
    ISO: (rf"(\d{{4}})-{_TWO}-{_TWO}", r"\1-\2-\3"),
    "31.12.2025": (rf"{_TWO}\.{_TWO}\.(\d{{4}})", r"\3-\2-\1"),
    "31/12/2025": (rf"{_TWO}/{_TWO}/(\d{{4}})", r"\3-\2-\1"),
    "31-12-2025": (rf"{_TWO}-{_TWO}-(\d{{4}})", r"\3-\2-\1"),
    "12/31/2025": (rf"{_TWO}/{_TWO}/(\d{{4}})", r"\3-\1-\2"),
    "20251231": (r"(\d{4})(\d{2})(\d{2})", r"\1-\2-\3"),
}


def quoted(identifier: str) -> str:
    """Return an SQL identifier."""
    return '"' + identifier.replace('"', '""') + '"'


def text(value: str) -> str:
    """Return an SQL string."""
    return "'" + value.replace("'", "''") + "'"


def key(column: str, kind: str, *, of: str = "") -> str:
    """Return the SQL of a column used as a key: integers stay integers, all else is a label.

    This is the only place where DuckDB replaces long texts (:mod:`~dpgrain.inputs.long_labels`).

    Args:
        column: the column.
        kind: the column's type, from :meth:`~dpgrain.tables.rows.TableRows.key_type`.
        of: the query's name for the table, where it must be said.
    """
    if kind != TEXT:
        return held_key(column, kind, of=of)
    named = f"{of}.{quoted(column)}" if of else quoted(column)
    long = f"WHEN strlen({named}) <= {LONGEST_LABEL} THEN {_replaced(named)}"
    return f"CASE WHEN strlen({named}) <= {WHOLE_BYTES} THEN {named} {long} END"


def held_key(column: str, kind: str, *, of: str = "") -> str:
    """Return the SQL of a column used as a key, in rows for which :func:`holds` is true."""
    named = f"{of}.{quoted(column)}" if of else quoted(column)
    if kind == TEXT:
        return (
            f"CASE WHEN strlen({named}) <= {WHOLE_BYTES} THEN {named} ELSE {_replaced(named)} END"
        )
    return f"CAST({named} AS {'BIGINT' if kind in INTEGERS else 'VARCHAR'})"


def holds(column: str, kind: str) -> str:
    """Return the SQL condition that a row has a key in a column."""
    if kind == TEXT:
        return f"strlen({quoted(column)}) <= {LONGEST_LABEL}"
    return f"{key(column, kind)} IS NOT NULL"


def _replaced(sql: str) -> str:
    """Return the SQL of the replacement of a long text."""
    return f"concat(left({sql}, {SHOWN}), '{MARK}', sha256({sql}))"


def label(sql: str) -> str:
    """Return the SQL of a text; null where it is longer than texts may be."""
    return f"CASE WHEN strlen({sql}) <= {LONGEST_LABEL} THEN {sql} END"


def number(column: str) -> str:
    """Return the SQL of a column of numbers; what is not a number is null."""
    return f"TRY_CAST({quoted(column)} AS DOUBLE)"


@dataclass(frozen=True)
class Written:
    """The way in which numbers and days are written in text.

    Args:
        decimal: the mark before the decimals of a number: a point, or a comma.
        dates: the last day of 2025, as days are written.
    """

    decimal: str = "."
    dates: str = ISO

    def of(self, kind: str) -> str:
        """Say how a type is written, where that is not as usual.

        Args:
            kind: the type, as it is stated.

        >>> Written(",").of("DOUBLE"), Written(dates="31.12.2025").of("DATE"), Written(",").of("DATE")
        (' with a decimal comma', ' written like 31.12.2025', '')
        """
        if self._is_day(kind):
            return f" written like {self.dates}"
        comma = self.decimal == "," and is_number(read_as(kind))
        return " with a decimal comma" if comma else ""

    def _is_day(self, kind: str) -> bool:
        return read_as(kind) in (DAY, *TIMES) and self.dates != ISO

    def read(self, written: str, kind: str) -> str:
        """Return the SQL of a text as another type; what does not fit is a null.

        Args:
            written: the SQL of the text.
            kind: the type.
        """
        if self.decimal == "," and is_number(kind):
            # Points change places with commas, so that 1.5 is no number where a comma is asked for.
            written = f"translate({written}, '.,', ',.')"
        if self._is_day(kind):
            form, day = DATES[self.dates]
            # What is written in another way is no day, also where that is the usual one.
            form = rf"'^\s*{form}((?:[ T].*)?)$'"
            written = (
                f"CASE WHEN regexp_matches({written}, {form}) "
                f"THEN regexp_replace({written}, {form}, '{day}\\4') END"
            )
        return f"TRY_CAST({written} AS {kind})"


def tried(column: str, kind: str, as_written: Written = Written()) -> str:
    """Return the SQL of a column of text as another type; what does not fit is a null.

    DuckDB may move a plain cast of a column into the reader of a file, which then drops whole rows that
    do not fit; an expression stays where it is.

    Args:
        column: the column.
        kind: the type.
        as_written: how numbers and days are written.
    """
    return as_written.read(f"concat({label(quoted(column))}, '')", kind)
