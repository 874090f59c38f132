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
from dpgrain.learn.given import NOT_AS_MANY, Passed, count_of, listed, no_features, none_of
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
    rows = listed(FORMS[form])
    none = no_features(rows, 2)
    assert count_of(rows) == 6
    assert count_of(none) == 0
    read, of_all = numeric_array(none, 2), numeric_array(rows, 2)
    assert read.shape == (0, 2)
    assert read.dtype == of_all.dtype
    if hasattr(rows, "columns"):
        assert list(map(str, none.columns)) == list(map(str, rows.columns)) or form == "arrow"


def test_what_passes_once_is_listed_once() -> None:
    assert listed(iter([1, 2])) == [1, 2]
    assert listed({"a": 1}.values()) == [1]
    assert listed(3.0) == 3.0
    assert listed(ROWS) is ROWS
    rows = iter(ROWS.tolist())
    assert Passed.of(rows, np.zeros(6)).X is rows


def test_what_has_no_rows_stays_as_it_is() -> None:
    assert none_of(None) is None
    assert none_of(3.0) == 3.0
    assert count_of(None) == count_of(np.float64(3.0)) == 0
    with pytest.raises(ParameterError, match="n_features must be passed"):
        no_features([])
    assert no_features([], 3).shape == (0, 3)
    flat = sparse.coo_array(np.ones(3))
    assert no_features(flat) is flat


@pytest.mark.parametrize(
    ("given", "unit", "words"),
    [
        (Passed.of(ROWS, np.zeros(5)), Record(), NOT_AS_MANY),
        (Passed.of(ROWS, np.zeros(6), np.zeros(5)), User(), "users must have exactly one label"),
        (Passed.of(ROWS, np.zeros(6), np.zeros(6)), Element(), "elements is required"),
        (Passed.of(ROWS, np.zeros(6), None, np.zeros(6)), Record(), "elements are not used"),
    ],
)
def test_rows_of_which_there_are_not_as_many_are_refused(
    given: Passed, unit: Any, words: str
) -> None:
    with pytest.raises(ParameterError, match=words):
        given.check(unit, places=False)


def test_rows_are_read_with_a_charge_that_is_open() -> None:
    given = Passed.of(ROWS, np.zeros(6))
    charge = charge_of(Gaussian(1.0), SeededSource(1))
    with charge:
        assert given.read(charge).X is ROWS
    with pytest.raises(RuntimeError, match="the release is complete"):
        given.read(charge)
