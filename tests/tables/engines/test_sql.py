"""The SQL of keys, labels and numbers, as DuckDB answers it."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from dpgrain.inputs.long_labels import label_of
from dpgrain.tables.engines.sql import Written, held_key, holds, key, number, quoted, text, tried
from dpgrain.tables.sources.column_types import LONGEST_LABEL

QUOTED = quoted('a "b"')
LONG = "x" * (LONGEST_LABEL + 1)


def asked(sql: str, value: str) -> Any:
    """Return what an expression of the column ``a "b"`` is for a value."""
    return duckdb.execute(f"SELECT {sql} FROM (SELECT {value} AS {QUOTED})").fetchall()[0][0]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("INTEGER", "7::INTEGER", 7),
        ("UBIGINT", "7::UBIGINT", "7"),
        ("DATE", "DATE '2026-01-02'", "2026-01-02"),
        ("VARCHAR", text("it's"), "it's"),
        ("VARCHAR", text(LONG[:256]), LONG[:256]),
        ("VARCHAR", text(LONG[:257]), label_of(LONG[:257])),
        ("VARCHAR", text(label_of(LONG)), label_of(label_of(LONG))),
        ("LABEL", text(label_of(LONG)), label_of(LONG)),
        ("VARCHAR", text("é\U0001f600" * 200), label_of("é\U0001f600" * 200)),
        ("VARCHAR", text(LONG[1:]), label_of(LONG[1:])),
        ("VARCHAR", text(LONG), None),
        ("VARCHAR", "NULL", None),
        ("INTEGER", "NULL", None),
    ],
)
def test_a_row_holds_a_key_where_the_key_is_no_null(kind: str, value: str, expected: Any) -> None:
    column = 'a "b"'
    assert asked(key(column, kind), value) == expected
    assert bool(asked(holds(column, kind), value)) == (expected is not None)
    if expected is not None:
        assert asked(held_key(column, kind), value) == expected


@pytest.mark.parametrize(
    ("written", "decimal", "expected"),
    [("1.5", ".", 1.5), ("1,5", ".", None), ("1,5", ",", 1.5), ("1.5", ",", None), ("x", ".", None),
     ("1." + "0" * LONGEST_LABEL, ".", None), (LONG, ".", None)],
)  # fmt: skip
def test_a_text_that_is_no_number_is_a_null(
    written: str, decimal: str, expected: float | None
) -> None:
    assert asked(tried('a "b"', "DOUBLE", Written(decimal)), text(written)) == expected
    if decimal == "." and len(written) < LONGEST_LABEL:
        assert asked(number('a "b"'), text(written)) == expected
