"""Rows of a fit in columns of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.learn.column_rows import ColumnRows
from dpgrain.learn.features import FeatureEncoding, NumberColumn
from dpgrain.publishing.charge import Curator

ROWS = pa.table({"who": ["ann", "bob", None], "x": [1.0, None, 3.0], "y": [0.5, 1.0, 2.0]})
CURATOR: Any = Curator()
ENCODING = FeatureEncoding((NumberColumn("x"),))


def test_columns_become_arrays_with_their_users() -> None:
    rows = ColumnRows(dg.read(ROWS, user="who"), ENCODING, "y").read(CURATOR, labels=False)
    order = np.argsort(rows.y)
    assert rows.y[order].tolist() == [0.5, 1.0, 2.0]
    assert rows.X["x"].to_numpy()[order][[0, 2]].tolist() == [1.0, 3.0]
    # Users are codes; a row without a user has none.
    codes = rows.users.to_numpy(float)[order]
    assert codes[0] != codes[1]
    assert np.isnan(codes).tolist() == [False, False, True]
    assert rows.users.name == "who"


def test_an_empty_table_is_one_row_without_a_user() -> None:
    rows = ColumnRows(dg.read(ROWS.slice(0, 0), user="who"), ENCODING, "y")
    read = rows.read(CURATOR, labels=False)
    assert (len(read.X), len(read.y)) == (1, 1)
    assert np.isnan(read.y).all()
    assert read.users.isna().all()


@pytest.mark.parametrize("name", ["y", "users", "elements"])
def test_columns_of_a_frame_are_names(name: str) -> None:
    named: Any = {"y": "y", "users": "who", "elements": None, name: 3}
    with refuses(name, "column name"):
        ColumnRows.from_frame(ROWS, **named)
