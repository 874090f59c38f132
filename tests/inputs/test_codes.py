"""Cells of arrays and tables become codes: equal labels have one code, for any column type."""

from __future__ import annotations

import itertools
import math
import time
import warnings
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.inputs import cases
from tests.refusals import refuses

from dpgrain.inputs.array_blocks import arrange
from dpgrain.inputs.codes import codes, distinct_labels
from dpgrain.inputs.codes import column as column_of
from dpgrain.inputs.labels import key
from dpgrain.learn.classes import unselected_targets
from dpgrain.units import Element, Record, User


@given(st.lists(cases.LABELS, max_size=6), st.randoms(use_true_random=False))
def test_column_distinguishes_its_labels(values: list[Any], random: Any) -> None:
    found, keys = codes(values)
    assert [None if code < 0 else keys[code] for code in found] == [key(value) for value in values]
    # Regardless of other users, and in any order.
    several = [*values, *random.sample(cases.SEVEN, 3), 7, None]
    random.shuffle(several)
    found, keys = codes(several)
    assert [None if code < 0 else keys[code] for code in found] == [key(value) for value in several]


@pytest.mark.parametrize(
    "column",
    [
        np.array([2**53, 2**53 + 1, 2**53], dtype=np.longdouble),
        np.array([1, 2, 1], dtype=">i8"),
        np.array([1, 2, 1], dtype=">f4"),
        np.array([1, 2**40, 1], dtype="M8[Y]"),
        np.array([1, 2**60, 1], dtype="m8[as]"),
        np.array(["7", "007", "7"]),
        np.array([b"7", b"007", b"7"]),
        np.array([1, 1j, 1]),
        np.array([np.inf, -np.inf, np.inf]),
        pd.Series(["7", "007", "7"], dtype="category"),
        pd.Series(["7", "007", "7"], dtype="string"),
        pd.Series([7, 8, 7], dtype="Int64"),
        pd.Series(pd.to_datetime(["2024-05-01", "2024-05-02", "2024-05-01"], utc=True)),
        pa.array([Decimal("0.10"), Decimal("0.20"), Decimal("0.10")]),
    ],
    ids=lambda column: str(getattr(column, "dtype", "arrow")),
)
def test_columns_of_every_type(column: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert codes(column)[0].tolist() == [0, 1, 0]
        assert codes(list(column) if not isinstance(column, pa.Array) else column.to_pylist())[
            0
        ].tolist() == [0, 1, 0]


def columns_of(values: list[str]) -> Iterator[tuple[str, Any]]:
    yield "list", values
    yield "array", np.array(values)
    yield "objects", np.array(values, dtype=object)
    yield "series", pd.Series(values)
    yield "category", pd.Series(values, dtype="category")
    yield "string", pd.Series(values, dtype="string")
    yield "arrow", pa.array(values)
    yield "bytes", np.array([value.encode() for value in values])


@pytest.mark.parametrize(
    "spelled", [cases.SEVEN, cases.ONE, cases.HEX], ids=["seven", "one", "hex"]
)
def test_users_and_elements_of_arrays(spelled: list[str]) -> None:
    several = [*spelled, *spelled[::-1]]
    order = [*range(len(spelled)), *range(len(spelled))[::-1]]
    for name, column in columns_of(several):
        rows = arrange(len(several), column, None, User())
        assert rows.users == len(spelled), name
        assert rows.owners[rows.blocks].tolist() == order, name
        assert arrange(len(several), column, None, Record()).owners.tolist() == order, name
        rows = arrange(len(several), ["ann"] * len(several), column, Element())
        assert len(rows.owners) == len(spelled), name
        rows = arrange(len(several), ["ann"] * len(several), column, User(max_elements=2))
        assert len(rows.indices) == 4, name
    mixed: list[Any] = [7, *cases.SEVEN, 7.0, np.int8(7), 1, *cases.ONE, True]
    assert len(set(codes(mixed)[0])) == 2 + len(cases.SEVEN) + len(cases.ONE)


def test_classes_in_their_order() -> None:
    assert distinct_labels("classes", [3, 1, 2, 1]).tolist() == [1, 2, 3]
    assert distinct_labels("classes", np.array(["b", "a"])).dtype.kind == "U"
    assert distinct_labels("classes", [1, "1"]).tolist() == [1, "1"]
    assert distinct_labels("classes", [2**53 + 1, 0.5]).tolist() == [0.5, 2**53 + 1]
    assert distinct_labels("classes", [True, 1, 0]).tolist() == [0, True]
    for wrong in (["a", None], [math.nan, 1], "ab", [[1], [2]]):
        with refuses("classes"):
            distinct_labels("classes", wrong)


CLASH: list[Any] = ["\ud800", "'\\ud800'", "a", "\udcff", "7", "007", "é", "e\u0301", "A", " "]


@pytest.mark.parametrize("form", [np.array, lambda c: np.array(c, dtype="U9"), tuple])
def test_array_and_list_texts_have_the_same_labels(form: Any) -> None:
    for pair in itertools.permutations(CLASH, 2):
        assert codes(form(pair))[0].tolist() == [0, 1], pair
        assert codes(form(pair))[1] == [key(label) for label in pair]
        assert codes(pd.Series(pair, dtype=object))[0].tolist() == [0, 1], pair


def not_utf8(cells: list[bytes]) -> pa.Array:
    ends = pa.array(np.cumsum([0, *map(len, cells)]), pa.int32()).buffers()[1]
    return pa.Array.from_buffers(
        pa.string(), len(cells), [None, ends, pa.py_buffer(b"".join(cells))]
    )


FAR = 2**62
DAYS = pa.array([1, 2, None, 10**7], pa.int32()).cast(pa.date32())
#: Columns of four cells; the third is null, and Python may lack the last one.
ARROWS: dict[str, pa.Array] = {
    "int": pa.array([1, 2, None, 1]),
    "large int": pa.array([2**53, 2**53 + 1, None, 2**63], pa.uint64()),
    "float": pa.array([1.5, 2.0, None, math.inf]),
    "truth": pa.array([True, False, None, True]),
    "text": pa.array(["7", "007", None, "\x00"]),
    "large text": pa.array(["7", "007", None, "7"], pa.large_string()),
    "view": pa.array(["7", "007", None, "7"], pa.string_view()),
    "not UTF-8": not_utf8([b"a", b"b", b"", b"\xff"]),
    "dictionary": pa.array(["7", "007", None, "7"]).dictionary_encode(),
    "dictionary of days": DAYS.dictionary_encode(),
    "dictionary, not UTF-8": not_utf8([b"a", b"b", b"", b"\xff"]).dictionary_encode(),
    "binary": pa.array([b"a", b"b", None, b"\xff"]),
    "decimal": pa.array([Decimal("0.10"), Decimal("0.20"), None, Decimal("9" * 20)]),
    "days": DAYS,
    "days in ms": pa.array([86400000, 0, None, FAR], pa.int64()).view(pa.date64()),
    **{
        f"{kind.__name__} {unit}": pa.array([1, 2, None, FAR], pa.int64()).view(kind(unit))
        for kind in (pa.timestamp, pa.duration)
        for unit in ("s", "ms", "us", "ns")
    },
    **{
        f"UTC {unit}": pa.array([1, 2, None, FAR], pa.int64()).view(pa.timestamp(unit, "Europe/Paris"))
        for unit in ("s", "ms", "us", "ns")
    },
    "time": pa.array([1000, 2000, None, FAR], pa.int64()).view(pa.time64("ns")),
    "odd time": pa.array([1000, 2000, None, 1], pa.int64()).view(pa.time64("ns")),
    "list": pa.array([[1], [2], None, [1]]),
    "null": pa.nulls(4),
    "list of days": pa.ListArray.from_arrays([0, 1, 2, 3, 4], DAYS),
}  # fmt: skip


@pytest.mark.parametrize("name", ARROWS)
def test_columns_of_arrow_are_read_cell_by_cell(name: str) -> None:
    column = ARROWS[name]
    listed: list[Any] = []
    for cell in column:
        try:
            listed.append(cell.as_py())
        except Exception:
            # Values without a Python type are labels by their storage, or none.
            listed.append(...)
    expected = [key(cell) for cell in listed]
    for form, held in cases.forms_of(column):
        if form == "Polars" and name in ("not UTF-8", "null"):
            # Polars reads text when it takes it.
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found, keys = codes(held)
            rows = arrange(4, held, None, User())
            arrange(4, [1, 1, 1, 1], held, Element())
            unselected_targets(np.asarray(column_of(held)))
        own = [None if code < 0 else keys[code] for code in found]
        for mine, theirs, cell in zip(own, expected, listed, strict=True):
            assert cell is ... or mine == theirs, (form, own, expected)
        # No one is the person of a distant cell.
        assert found[3] < 0 or found[3] not in found[:2] or listed[3] is not ...
        assert rows.users == len(set(found[found >= 0]))
        assert np.array_equal(found, codes(column)[0]), form


def test_numbers_of_one_hash_take_no_longer_than_others() -> None:
    def seconds(step: int, start: int) -> float:
        values = [start + step * (10**4 + i) for i in range(6000)]
        before = time.process_time()
        assert len(codes(values)[1]) == len(values)
        return time.process_time() - before

    # Whole numbers that differ by multiples of this have one hash.
    assert len({hash((2**61 - 1) * i) for i in range(1, 9)}) == 1
    assert seconds(2**61 - 1, 0) < 20 * seconds(1, 10**30)
