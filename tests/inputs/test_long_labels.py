"""Labels of long texts are bounded, and no two texts share one."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables.engines.in_memory import text_labels

from dpgrain.inputs.long_labels import (
    MOST_BYTES,
    SHOWN,
    WHOLE_BYTES,
    any_long,
    stated_label,
    text_label,
)

LETTERS = ("x", "é", "日", "\U0001f600", "\x00", "…")


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 85, 86, 128, 129, 190, 256, 257, 300, 70_000])
def test_a_label_has_a_bounded_length(letter: str, size: int) -> None:
    text = letter * size
    label = text_label(text)
    short = len(text.encode()) <= WHOLE_BYTES
    assert (label == text) == short
    assert len(label.encode()) <= (WHOLE_BYTES if short else MOST_BYTES)
    assert any_long(["", text]) != short
    if not short:
        assert len(label.encode()) > WHOLE_BYTES
        assert label == f"{text[:SHOWN]}…{hashlib.sha256(text.encode()).hexdigest()}"


@given(st.lists(st.text(st.sampled_from(LETTERS), min_size=60, max_size=300), max_size=8))
def test_different_texts_have_different_labels(texts: list[str]) -> None:
    different = {*texts, *map(text_label, texts), *map(text_label, map(text_label, texts))}
    assert len(set(map(text_label, different))) == len(different)


@given(st.text(st.sampled_from(LETTERS), max_size=300))
def test_a_published_label_can_be_stated(text: str) -> None:
    assert stated_label(text) == stated_label(text_label(text)) == text_label(text)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_columns_have_the_labels_of_their_texts(kind: pa.DataType) -> None:
    texts = ["a", None, "x" * 257, "y" * 300, "é" * 2000, "", "x" * 256]
    for column in (texts, texts[:2], []):
        chunks = pa.chunked_array([column[:3], column[3:]], kind)
        expected = [
            None if text is None or len(text.encode()) > 3000 else text_label(text)
            for text in column
        ]
        found = text_labels(chunks, 3000)
        assert found.type == pa.string()
        assert found.to_pylist() == expected
