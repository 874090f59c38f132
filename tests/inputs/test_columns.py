"""Columns of objects and of frames are read cell by cell."""

from __future__ import annotations

import datetime
import itertools
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
from tests.inputs import cases

import dpgrain as dg
from dpgrain.inputs.codes import codes
from dpgrain.learn import LinearRegression, LogisticRegression
from dpgrain.learn.features import FeatureEncoding, NumberColumn, load_rows
from dpgrain.publishing.charge import Curator


def test_frame_distinguishes_users_like_an_array() -> None:
    users: list[Any] = [
        1, "1", "01", 1.0, True, Decimal("1.0"), 2.5, "2.5", None, math.nan, datetime.date(2024, 5, 1),
        pd.Timestamp("2024-05-01"), "2024-05-01", (1, "a"), (True, "a"), "\x1fnumber 1/1",
        "\x1ftext a", "a\ud800", "x\ud800", Decimal("1e99999999"), math.inf, "inf", b"1", [1],
    ]  # fmt: skip
    found = codes(users)[0]
    frame = pd.DataFrame({"who": np.empty(len(users), dtype=object)})
    for i, user in enumerate(users):
        frame.at[i, "who"] = user
    frame["one"] = 1.0
    encoding = FeatureEncoding((NumberColumn("one"),))
    rows = (
        load_rows(dg.read(frame, user="who"), encoding, Curator(), keep=["who"])
        .kept.column("who")
        .to_pylist()
    )
    told = pd.factorize(np.array(rows, dtype=object))[0]
    valid = np.array([row is not None for row in rows])
    # Bytes outside UTF-8 have no user in a table; all others are distinguished equally.
    assert {users[i] for i in np.flatnonzero((found >= 0) & ~valid)} <= {"a\ud800", "x\ud800"}
    assert not valid[found < 0].any()
    for i, j in itertools.combinations(np.flatnonzero(valid).tolist(), 2):
        assert (found[i] == found[j]) == (told[i] == told[j]), (users[i], users[j])


def test_columns_of_objects_are_text_cell_by_cell() -> None:
    cells: list[Any] = [
        7,
        7.0,
        Decimal("7.00"),
        np.int8(7),
        "7",
        "007",
        True,
        2.50,
        None,
        [7],
        "seven",
    ]
    frame = pd.DataFrame({"item": np.empty(len(cells), dtype=object), "who": range(len(cells))})
    for i, cell in enumerate(cells):
        frame.at[i, "item"] = cell
    release = dg.histogram(
        dg.read(frame, user="who"), "item", unit=dg.User(), domain=[7, "007", True, 2.5, "[7]"],
        epsilon=1e6, delta=0.5, random_state=0,
    )  # fmt: skip
    assert release.to_pandas()["estimate"].round().tolist() == [5, 1, 1, 1, 1]


def test_table_column_targets_equal_a_list() -> None:
    X = np.random.default_rng(0).normal(size=(600, 2))
    y = (X[:, 0] > 0).astype(int)
    for values, classes in ((y, [0, 1]), (np.where(y, "yes", "no"), ["no", "yes"])):
        usual = LogisticRegression(classes=classes, rounds=3, random_state=0).fit(X, values)
        for _, held in cases.forms_of(pa.array(values.tolist())):
            model = LogisticRegression(classes=classes, rounds=3, random_state=0).fit(X, held)
            assert np.array_equal(model.coef_, usual.coef_)
    numbers = pa.chunked_array([X[:300, 0], X[300:, 0]])
    usual = LinearRegression(rounds=3, random_state=0).fit(X, X[:, 0])
    found = LinearRegression(rounds=3, random_state=0).fit(X, numbers)
    assert np.array_equal(found.coef_, usual.coef_)
