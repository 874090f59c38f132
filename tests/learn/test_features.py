"""Encodings of features reject invalid parameters, and are stored with a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.learn import models

from dpgrain import learn
from dpgrain.errors import ParameterError
from dpgrain.learn import load
from dpgrain.learn.features import CategoryColumn, ColumnRoles, FeatureEncoding, NumberColumn


def test_encoding_is_stored(tmp_path: Path) -> None:
    encoding = FeatureEncoding(
        (NumberColumn("a", (0.0, 4.0)), NumberColumn("b"), CategoryColumn("c", ("x", "y")))
    )
    frame = pd.DataFrame(models.GENERATOR.normal(size=(50, 4)), columns=encoding.names)
    model = learn.LinearRegression(rounds=2).fit(frame, frame.a)
    model.encoding_ = encoding
    assert load(models.save(model, tmp_path / "model.json")).encoding_ == encoding


def test_encodings_reject_invalid_parameters() -> None:
    for columns, sentence in (
        ((), "features must be one or more columns"),
        ((NumberColumn("a"), NumberColumn("a")), "listed twice"),
        ((NumberColumn("a=x"), CategoryColumn("a", ("x",))), "listed twice"),
        ((NumberColumn("a", (1.0, 1.0)),), "in increasing order"),
        ((NumberColumn("a", (0.0, float("inf"))),), "finite"),
        ((CategoryColumn("a", ()),), "one or more names"),
        ((CategoryColumn("a", ("x", "")),), "without empty ones"),
    ):
        with pytest.raises(ParameterError, match=sentence):
            FeatureEncoding(columns)


@pytest.mark.slow
def test_users_with_very_long_names_are_distinguished() -> None:
    # All names together have more than 2 GiB, in pieces that share their memory.
    long = pa.array(["a" * (1 << 24), "b" * (1 << 24)])
    names = pa.chunked_array([pa.array(["c", None]), *[long] * 65])
    rows = pa.table({"a": pa.array([1.0] * len(names)), "user": names})
    loaded = ColumnRoles(FeatureEncoding((NumberColumn("a"),)), target=False, users=True).split(
        rows
    )
    assert loaded.users is not None
    np.testing.assert_array_equal(loaded.users[:6], [0, np.nan, 1, 2, 1, 2])


def test_no_rows_have_no_users() -> None:
    rows = pa.table({"a": pa.array([], pa.float64()), "user": pa.chunked_array([], pa.string())})
    loaded = ColumnRoles(FeatureEncoding((NumberColumn("a"),)), target=False, users=True).split(
        rows
    )
    assert loaded.users is not None
    assert len(loaded.users) == 0
