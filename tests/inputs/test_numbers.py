"""Numbers of cells: what is none counts as nothing, and changes nobody else."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpgrain.inputs.numbers import cells, numbers, readable

#: One row among others, from one like all of them to what is none.
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


def array_of(rows: list[Any]) -> Any:
    """A column of objects, each of which is a row."""
    out = np.empty(len(rows), dtype=object)
    for place, row in enumerate(rows):
        out[place] = row
    return out


def test_a_complex_number_is_none_and_not_warned_of() -> None:
    # NumPy would take its real part, with a warning.
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = numbers(np.array([np.complex128(1 + 1j), "2", True, 1j], dtype=object))
    assert np.array_equal(found, [np.nan, 2.0, 1.0, np.nan], equal_nan=True)
    assert not seen


@pytest.mark.parametrize("odd", ROWS)
@pytest.mark.parametrize("form", [list, tuple, array_of])
def test_no_row_of_a_list_is_an_error_or_changes_another(
    form: Callable[[Any], Any], odd: str
) -> None:
    found = cells(form([[1.0, 2.0], ROWS[odd], [5.0, 6.0]]), 2)
    assert found.shape == (3, 2)
    assert found[[0, 2]].tolist() == [[1.0, 2.0], [5.0, 6.0]]


def test_one_complex_number_changes_no_other_of_its_array() -> None:
    for odd in (1j, 1 + 1j, complex(0, np.nan), complex(np.inf, 1)):
        found = numbers(np.array([2, odd, -4.5]))
        assert np.array_equal(found, [2.0, np.nan, -4.5], equal_nan=True), odd


def test_an_odd_cell_elsewhere_does_not_change_how_a_narrow_column_is_read() -> None:
    narrow = pd.Series([0.1, 2.0], dtype=np.float32)
    plain, odd = (
        readable(pd.DataFrame({"a": column, "b": [1.0, 2.0]}))
        for column in (narrow, narrow.astype(object))
    )
    assert plain["a"].dtype == odd["a"].dtype == np.float64
    assert plain["a"].tolist() == odd["a"].tolist()


def test_truths_beside_numbers_are_numbers() -> None:
    found = cells(pd.DataFrame({"a": [True, False], "b": [0.5, 2.0]}))
    assert found.dtype == np.float64
    assert found.tolist() == [[1.0, 0.5], [0.0, 2.0]]
