"""The form of rows is public, and nothing else of them is looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from tests.charges import charge_of

from dpgrain.accounting import Gaussian
from dpgrain.errors import ParameterError
from dpgrain.inputs.numbers import numeric_array
from dpgrain.learn.rows import (
    LENGTH_MISMATCH,
    ArrayRows,
    as_sequence,
    count_rows,
    empty_features,
    empty_like,
)
from dpgrain.noise import SeededSource
from dpgrain.units import Element, Record, User

ROWS = np.arange(12.0).reshape(6, 2)
FORMS: dict[str, Any] = {
    "array": ROWS,
    "float32": ROWS.astype(np.float32),
    "objects": ROWS.astype(object),
    "list": ROWS.tolist(),
    "frame": pd.DataFrame(ROWS, columns=["a", "b"]),
    "arrow": pa.table({"a": ROWS[:, 0], "b": ROWS[:, 1]}),
    "polars": pl.DataFrame({"a": ROWS[:, 0], "b": ROWS[:, 1]}),
    "lazy": pl.LazyFrame({"a": ROWS[:, 0], "b": ROWS[:, 1]}),
    "rows": sparse.csr_array(ROWS),
    "cells": sparse.coo_array(ROWS),
}


@pytest.mark.parametrize("form", FORMS)
def test_none_of_the_rows_have_the_form_of_all(form: str) -> None:
    rows = as_sequence(FORMS[form])
    none = empty_features(rows, 2)
    assert count_rows(rows) == 6
    assert count_rows(none) == 0
    read, of_all = numeric_array(none, 2), numeric_array(rows, 2)
    assert read.shape == (0, 2)
    assert read.dtype == of_all.dtype
    if hasattr(rows, "columns"):
        assert list(map(str, none.columns)) == list(map(str, rows.columns)) or form == "arrow"


def test_iterator_is_listed_once() -> None:
    assert as_sequence(iter([1, 2])) == [1, 2]
    assert as_sequence({"a": 1}.values()) == [1]
    assert as_sequence(3.0) == 3.0
    assert as_sequence(ROWS) is ROWS
    rows = iter(ROWS.tolist())
    assert ArrayRows.create(rows, np.zeros(6)).X is rows


def test_objects_without_rows_are_unchanged() -> None:
    assert empty_like(None) is None
    assert empty_like(3.0) == 3.0
    assert count_rows(None) == count_rows(np.float64(3.0)) == 0
    with pytest.raises(ParameterError, match="n_features must be passed"):
        empty_features([])
    assert empty_features([], 3).shape == (0, 3)
    flat = sparse.coo_array(np.ones(3))
    assert empty_features(flat) is flat


@pytest.mark.parametrize(
    ("given", "unit", "words"),
    [
        (ArrayRows.create(ROWS, np.zeros(5)), Record(), LENGTH_MISMATCH),
        (
            ArrayRows.create(ROWS, np.zeros(6), np.zeros(5)),
            User(),
            "users must have exactly one label",
        ),
        (ArrayRows.create(ROWS, np.zeros(6), np.zeros(6)), Element(), "elements is required"),
        (ArrayRows.create(ROWS, np.zeros(6), None, np.zeros(6)), Record(), "elements are not used"),
    ],
)
def test_wrong_number_of_rows_is_rejected(given: ArrayRows, unit: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        given.check(unit)


def test_rows_are_read_with_an_open_charge() -> None:
    given = ArrayRows.create(ROWS, np.zeros(6))
    charge = charge_of(Gaussian(1.0), SeededSource(1))
    with charge:
        assert given.read(charge, labels=False).X is ROWS
    with pytest.raises(RuntimeError, match="the release is complete"):
        given.read(charge, labels=False)
