"""Labels of records are those of a column, or follow from the record alone."""

from __future__ import annotations

from typing import Any

import pytest
from tests.refusals import refuses
from tests.torch.library import torch

# isort: split
from dpgrain.inputs.blocks import arrange
from dpgrain.torch.columns import Column, Contents
from dpgrain.units import User

datasets = pytest.importorskip("datasets", reason="datasets is not installed")


def table() -> Any:
    """Texts of two people, of which one was written twice by the same person."""
    texts = [("ann", "a"), ("bob", "a"), ("ann", "b"), ("ann", "a"), ("bob", None)]
    return datasets.Dataset.from_list([{"author": who, "text": what} for who, what in texts])


def test_a_column_has_plain_labels_whatever_the_format() -> None:
    numbers = datasets.Dataset.from_dict({"author": [3, 4]}).with_format("torch")
    labels = Column.of(numbers, "author", "users_column")
    assert labels is not None
    assert (labels.name, len(labels), list(labels)) == ("author", 2, [3, 4])
    assert not any(isinstance(label, torch.Tensor) for label in labels)
    assert Column.of(numbers, None, "users_column") is None
    with refuses("users_column", "'nobody'"):
        Column.of(numbers, "nobody", "users_column")
    with refuses("users_column", "'author'"):
        Column.of([{"author": 3}], "author", "users_column")


def test_a_record_has_the_same_label_whatever_others_are_there() -> None:
    whole = list(Contents(table()))
    assert whole[0] == whole[3]
    assert len(set(whole)) == 4
    for rows in ([4, 1, 2], [2], [3, 0]):
        assert list(Contents(table().select(rows))) == [whole[row] for row in rows]


def test_transforms_are_left_out_and_unreadable_records_are_alike() -> None:
    turned = table()
    turned.set_transform(lambda rows: {"text": [torch.rand(()) for _ in rows["text"]]})
    assert list(Contents(turned)) == list(Contents(table()))

    class Broken:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, place: int) -> Any:
            if place:
                raise SystemExit(place)
            return {"text": "a"}

    first, *others = Contents(Broken())
    assert others == ["", ""]
    assert first


def test_records_of_a_user_are_blocks_of_which_the_stated_number_is_kept() -> None:
    data = table()
    rows = arrange(5, Column(data, "author"), Contents(data), User(max_elements=1))
    assert sorted(rows.owners.tolist()) == [0, 1]
    assert set(rows.kept[rows.blocks == rows.owners.tolist().index(0)]) in ({0, 3}, {2})
