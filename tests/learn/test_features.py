"""Encodings of features refuse what they cannot be, and are kept with a model."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from tests.learn import models

from dpgrain import learn
from dpgrain.errors import ParameterError
from dpgrain.learn import load
from dpgrain.learn.features import Category, Encoding, Number


def test_the_encoding_is_kept(tmp_path: Path) -> None:
    encoding = Encoding((Number("a", (0.0, 4.0)), Number("b"), Category("c", ("x", "y"))))
    frame = pd.DataFrame(models.GENERATOR.normal(size=(50, 4)), columns=encoding.names)
    model = learn.LinearRegression(rounds=2).fit(frame, frame.a)
    model.encoding_ = encoding
    assert load(models.save(model, tmp_path / "model.json")).encoding_ == encoding


def test_encodings_refuse_what_they_cannot_be() -> None:
    for columns, sentence in (
        ((), "features must be given"),
        ((Number("a"), Number("a")), "given twice"),
        ((Number("a=x"), Category("a", ("x",))), "given twice"),
        ((Number("a", (1.0, 1.0)),), "the lower one first"),
        ((Number("a", (0.0, float("inf"))),), "finite"),
        ((Category("a", ()),), "one or more names"),
        ((Category("a", ("x", "")),), "none of them empty"),
    ):
        with pytest.raises(ParameterError, match=sentence):
            Encoding(columns)
