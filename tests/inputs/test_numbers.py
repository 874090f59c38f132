"""Numeric cells: an invalid one counts as zero, and affects no other user."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from tests.refusals import refuses
from tests.untouched import Untouched

from dpgrain.inputs.columns import objects
from dpgrain.inputs.numbers import numbers, numeric_array, numeric_table, table_and_shape

#: One row among others, from a typical one to invalid ones.
ROWS: dict[str, Any] = {
    "plain": [3.0, 4.0],
    "short": [3.0],
    "long": [3.0, 4.0, 5.0],
    "empty": [],
    "nothing": None,
    "number": 3.0,
    "text": "34",
    "array": np.array([3.0, 4.0]),
    "huge": [10**400, 1],
    "nested": [[3.0], [4.0]],
}


def test_complex_number_is_invalid_without_a_warning() -> None:
    # NumPy would take its real part, with a warning.
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = numbers(np.array([np.complex128(1 + 1j), "2", True, 1j], dtype=object))
    assert np.array_equal(found, [np.nan, 2.0, 1.0, np.nan], equal_nan=True)
    assert not seen


@pytest.mark.parametrize("odd", ROWS)
@pytest.mark.parametrize("form", [list, tuple, objects])
def test_list_row_is_never_an_error_nor_affects_others(
    form: Callable[[Any], Any], odd: str
) -> None:
    found = numeric_array(form([[1.0, 2.0], ROWS[odd], [5.0, 6.0]]), 2)
    assert found.shape == (3, 2)
    assert found[[0, 2]].tolist() == [[1.0, 2.0], [5.0, 6.0]]


def test_one_complex_number_changes_no_other_of_its_array() -> None:
    for odd in (1j, 1 + 1j, complex(0, np.nan), complex(np.inf, 1)):
        found = numbers(np.array([2, odd, -4.5]))
        assert np.array_equal(found, [2.0, np.nan, -4.5], equal_nan=True), odd


PLAIN = np.arange(6.0).reshape(3, 2)
FORMS: dict[str, Any] = {
    "array": PLAIN,
    "one column": PLAIN[:, 0],
    "complex": PLAIN * 1j,
    "objects": PLAIN.astype(object),
    "rows as objects": objects([[1.0, 2.0], None, "34"]),
    "list": PLAIN.tolist(),
    "odd list": [*ROWS.values()],
    "no rows": np.zeros((0, 2)),
    "frame": pd.DataFrame(PLAIN),
    "series": pd.Series(PLAIN[:, 0]),
    "index": pd.Index(PLAIN[:, 0]),
    "categories": pd.Series(pd.Categorical(["1", "2"])),
    "arrow": pa.table({"a": [1, 2], "b": ["3", None]}),
    "arrow's column": pa.array([1.0, None]),
    "arrow's chunks": pa.chunked_array([[1.0], [2.0, 3.0]]),
    "polars": pl.DataFrame({"a": [1, 2], "b": ["3", None]}),
    "lazy polars": pl.LazyFrame({"a": [1, 2]}),
    "column of polars": pl.Series([1.0, 2.0]),
    "sparse": sparse.csr_array(PLAIN),
    "range": range(4),
    "number": 3.0,
    "none": None,
    "many": np.zeros((2, 3, 4)),
}
TIMES: dict[str, Any] = {
    "array": np.zeros(3, "M8[D]"),
    "records": np.zeros(3, [("a", "f8")]),
    "frame": pd.DataFrame({"a": [1.0], "day": pd.to_datetime(["2020-01-01"])}),
    "series": pd.Series(pd.to_datetime(["2020-01-01"])),
    "arrow": pa.table({"day": pa.array([1], pa.date32())}),
    "arrow's column": pa.array([1], pa.date32()),
    "polars": pl.DataFrame({"day": [None]}, schema={"day": pl.Date}),
    "column of polars": pl.Series([None], dtype=pl.Date),
}


@pytest.mark.parametrize("form", FORMS)
def test_shape_of_numbers_is_known_before_reading(form: str) -> None:
    listed, shape = table_and_shape(FORMS[form], 2)
    assert numeric_array(listed, 2).shape == numeric_array(FORMS[form], 2).shape == shape


@pytest.mark.parametrize("form", TIMES)
def test_times_are_rejected_before_reading(form: str) -> None:
    said = []
    for read in (numeric_array, table_and_shape):
        with refuses("X", "numbers") as error:
            read(TIMES[form])
        said.append(str(error.value))
    assert said[0] == said[1]


def test_only_a_shape_is_requested() -> None:
    rows = Untouched(5, 2)
    assert table_and_shape(rows) == (rows, (5, 2))
    with refuses("X", "times"):
        table_and_shape(Untouched(5, dtype="M8[s]"))


def test_malformed_cell_elsewhere_does_not_affect_narrow_columns() -> None:
    narrow = pd.Series([0.1, 2.0], dtype=np.float32)
    plain, odd = (
        numeric_table(pd.DataFrame({"a": column, "b": [1.0, 2.0]}))
        for column in (narrow, narrow.astype(object))
    )
    assert plain["a"].dtype == odd["a"].dtype == np.float64
    assert plain["a"].tolist() == odd["a"].tolist()


def test_booleans_with_numbers_are_numbers() -> None:
    found = numeric_array(pd.DataFrame({"a": [True, False], "b": [0.5, 2.0]}))
    assert found.dtype == np.float64
    assert found.tolist() == [[1.0, 0.5], [0.0, 2.0]]
