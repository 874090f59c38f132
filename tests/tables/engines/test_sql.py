"""The SQL of keys, labels and numbers, as DuckDB answers it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import duckdb
import pytest

from dpgrain.inputs.long_labels import text_label
from dpgrain.tables.engines.sql import (
    TextFormat,
    cast_sql,
    has_key_sql,
    key_sql,
    literal,
    number_sql,
    quoted,
    valid_key_sql,
)
from dpgrain.tables.sources.column_types import LONGEST_LABEL

QUOTED = quoted('a "b"')
LONG = "x" * (LONGEST_LABEL + 1)


def asked(sql: str, value: str) -> Any:
    return duckdb.execute(f"SELECT {sql} FROM (SELECT {value} AS {QUOTED})").fetchall()[0][0]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("INTEGER", "7::INTEGER", 7),
        ("UBIGINT", "7::UBIGINT", "7"),
        ("DATE", "DATE '2026-01-02'", "2026-01-02"),
        ("VARCHAR", literal("it's"), "it's"),
        ("VARCHAR", literal(LONG[:256]), LONG[:256]),
        ("VARCHAR", literal(LONG[:257]), text_label(LONG[:257])),
        ("VARCHAR", literal(text_label(LONG)), text_label(text_label(LONG))),
        ("LABEL", literal(text_label(LONG)), text_label(LONG)),
        ("VARCHAR", literal("é\U0001f600" * 200), text_label("é\U0001f600" * 200)),
        ("VARCHAR", literal(LONG[1:]), text_label(LONG[1:])),
        ("VARCHAR", literal(LONG), None),
        ("VARCHAR", "NULL", None),
        ("INTEGER", "NULL", None),
    ],
)
def test_row_has_a_key_unless_it_is_null(kind: str, value: str, expected: Any) -> None:
    column = 'a "b"'
    assert asked(key_sql(column, kind), value) == expected
    assert bool(asked(has_key_sql(column, kind), value)) == (expected is not None)
    if expected is not None:
        assert asked(valid_key_sql(column, kind), value) == expected


@pytest.mark.parametrize(
    ("written", "decimal", "expected"),
    [("1.5", ".", 1.5), ("1,5", ".", None), ("1,5", ",", 1.5), ("1.5", ",", None), ("x", ".", None),
     ("1." + "0" * LONGEST_LABEL, ".", None), (LONG, ".", None),
     ("1.234,56", ",", 1234.56), ("-12.345.678", ",", -12345678.0), ("1.234", ",", 1234.0),
     (" 1.234,5 ", ",", 1234.5), ("1.23", ",", None), ("1234.567", ",", None),
     ("1.234.5", ",", None), ("1,234.567", ",", None), (".234", ",", None), ("1.234.", ",", None)],
)  # fmt: skip
def test_text_is_a_number_in_its_format_or_null(
    written: str, decimal: str, expected: float | None
) -> None:
    assert asked(cast_sql('a "b"', "DOUBLE", TextFormat(decimal)), literal(written)) == expected
    if decimal == "." and len(written) < LONGEST_LABEL:
        assert asked(number_sql('a "b"'), literal(written)) == expected


@pytest.mark.parametrize(
    ("mark", "decimal", "written", "expected"),
    [
        (",", ".", "1,234.56", 1234.56),
        (",", ".", " -12,345,678 ", -12345678.0),
        (",", ".", "1,5", None),
        (",", ".", "12,34,567", None),
        (",", ".", "1234,567", None),
        (",", ".", "1234.5", 1234.5),
        ("'", ".", "1'234", 1234.0),
        (" ", ",", "1 234,5", 1234.5),
        (" ", ",", "1.234,5", None),
        (".", ",", "1.234,5", 1234.5),
        ("", ".", "1,234", None),
    ],
)
def test_marks_between_thousands_have_one_place(
    mark: str, decimal: str, written: str, expected: float | None
) -> None:
    form = TextFormat(decimal, thousands=mark)
    assert asked(cast_sql('a "b"', "DOUBLE", form), literal(written)) == expected
    assert asked(cast_sql('a "b"', "DECIMAL(20,2)", form), literal(written)) == (
        None if expected is None else Decimal(str(expected))
    )
    assert (mark in form.describe("DOUBLE")) == bool(mark) or not mark
    assert form.describe("DATE") == ""
