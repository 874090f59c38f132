"""Columns in memory with only readable values."""

from __future__ import annotations

import datetime
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpgrain as dg
from dpgrain.tables.sources.column_types import FIRST_TIME
from dpgrain.tables.sources.frames import pandas_source, readable_column, readable_table

RAW = [0, -1, None, 2**63 - 1, -(2**63), 10**16, FIRST_TIME, FIRST_TIME - 1]


def as_kind(kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(RAW, pa.int64()).view(kind)])


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("s", [0, -(10**6), None, 2**63 - 1, None, None, None, None]),
        ("ms", [0, -1000, None, 2**63 - 1, None, None, None, None]),
        ("us", [0, -1, None, 2**63 - 1, None, 10**16, FIRST_TIME, None]),
        ("ns", [0, -1, None, 2**63 - 1, -9223372036854776, 10**13, FIRST_TIME // 1000,
                FIRST_TIME // 1000 - 1]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kept", ["plain", "dictionary", "runs", "no chunk"])
def test_times_are_microseconds_or_null(
    unit: str, zone: str | None, expected: list[int | None], kept: str
) -> None:
    column = as_kind(pa.timestamp(unit, zone))
    if kept == "dictionary":
        column = column.dictionary_encode()
    elif kept == "runs":
        ends = pa.array(range(1, len(RAW) + 1), pa.int32())
        column = pa.chunked_array([pa.RunEndEncodedArray.from_arrays(ends, column.chunk(0))])
    elif kept == "no chunk":
        column, expected = pa.chunked_array([], column.type), []
    found = readable_column(column)
    assert found.type == pa.timestamp("us", zone)
    assert found.cast(pa.int64()).to_pylist() == expected


def _runs(values: pa.Array) -> pa.Array:
    ends = pa.array(range(2, 2 * len(values) + 1, 2), pa.int16())
    return pa.RunEndEncodedArray.from_arrays(ends, values)


@pytest.mark.parametrize(
    "column",
    [
        _runs(pa.array(["x", None, "y"])),
        _runs(pa.array(["x", None, "y"]).dictionary_encode()),
        pa.DictionaryArray.from_arrays(
            pa.array([0, 0, None, None, 2, 2]), _runs(pa.array(["x", "y"]))
        ),
    ],
    ids=["runs", "runs of a dictionary", "dictionary of runs"],
)
@pytest.mark.parametrize("first", [0, 1, 3])
def test_runs_of_any_values_are_read(column: pa.Array, first: int) -> None:
    values = ["x", "x", None, None, "y", "y"][first:]
    table = dg.read(pa.table({"page": column.slice(first)}))
    assert table.schema == {"page": "VARCHAR"}
    found = dg.count(
        table, by="page", domain=["x", "y"], unit=dg.Record(), clip=1.0, noise="laplace",
        epsilon=40.0, random_state=1,
    )  # fmt: skip
    assert found.estimate.round().tolist() == [values.count("x"), values.count("y")]


def test_unreadable_runs_in_a_stream_are_rejected_by_name() -> None:
    rows = pa.table({"page": _runs(pa.array(["x", "y"]).dictionary_encode())})
    table = dg.read(rows.to_reader())
    with pytest.raises(dg.SchemaError, match="'page' has type run_end_encoded"):
        dg.count(table, by="page", unit=dg.Record(), epsilon=1.0)


def test_days_of_milliseconds_are_days_or_null() -> None:
    found = readable_column(as_kind(pa.date64())).cast(pa.int32()).to_pylist()
    assert found == [0, -1, None, None, None, 10**16 // 86_400_000, None, None]


def test_readable_columns_are_unchanged() -> None:
    table = pa.table({"a": [1], "t": pa.array([1], pa.timestamp("us")), "l": [[1]], "w": ["x"]})
    assert readable_table(table).equals(table)
    broken = pa.array([b"\xff", b"a"]).view(pa.string())
    assert readable_table(pa.table({"w": broken})).column("w").to_pylist() == [None, "a"]


class Raising(float):
    """A number with failing methods."""

    def __ne__(self, other: object) -> bool:
        raise ValueError("secret")

    __hash__ = None  # type: ignore[assignment]


class Warner:
    """An object that warns whenever it is printed."""

    def __repr__(self) -> str:
        warnings.warn("secret", stacklevel=1)
        return "a"


@pytest.mark.parametrize("role", ["user", "item"])
@pytest.mark.parametrize(
    ("odd", "kept"),
    [(Raising(2.0), "objects"), (Warner(), "objects"), (Warner(), "categories")],
    ids=["raises", "warns", "a category warns"],
)
def test_custom_class_object_neither_fails_nor_warns(odd: Any, kept: str, role: str) -> None:
    values = np.array(["a", "b", None], dtype=object)
    values[2] = odd
    column: Any = pd.Series(values)
    if kept == "categories":
        column = pd.Series(pd.Categorical.from_codes([0, 1, 2], pd.Index(values, dtype=object)))
    frame = pd.DataFrame({"who": [1, 2, 3], "item": ["a", "b", "a"]})
    frame["who" if role == "user" else "item"] = column
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        table = dg.read(frame, user="who")
        with table.open_engine() as engine:
            assert len(engine.columns([("who", "key"), ("item", "key")])) == 3
    assert not shown


class _Shouting(str):
    """Text that prints as other text."""

    def __str__(self) -> str:
        return "LOUD"


def test_objects_become_the_same_texts_in_any_order() -> None:
    day = datetime.date(2024, 2, 29)
    later = datetime.datetime(2024, 2, 29)
    values = ["a", day, None, "\ud800", _Shouting("b"), later, 7.0, day, float("nan")]
    texts = ["a", "2024-02-29", None, None, "b", "2024-02-29", "7", "2024-02-29", None]
    for order in (values, values[::-1]):
        frame = pd.DataFrame({"cell": pd.Series(order, dtype=object)})
        found = pandas_source(frame).table.column("cell").to_pylist()
        assert found == (texts if order is values else texts[::-1])
