"""Data are identified by their hash, and by nothing less."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.torch.library import torch

# isort: split
from dpgrain.inputs.array_blocks import arrange
from dpgrain.torch.batches import BlockRows
from dpgrain.torch.local_data import LocalData
from dpgrain.units import Element, User

USERS, ELEMENTS = ["ann", "bob", "ann", "bob"], ["x", "x", "y", None]
KEY = bytes(range(32))


def held(
    users: Any = USERS, elements: Any = ELEMENTS, values: Any = None, rows: int = 4
) -> LocalData:
    unit = User() if elements is None else Element()
    values = torch.arange(rows) if values is None else values
    blocks = BlockRows.arrange(arrange(rows, users, elements, unit))
    return LocalData(torch.utils.data.TensorDataset(values), users, elements, blocks)


OTHER: dict[str, LocalData] = {
    "ids": held(["cat", "bob", "cat", "bob"]),
    "order of ids": held(["bob", "ann", "bob", "ann"]),
    "cells": held(elements=["x", "x", "y", "null"]),
    "no cells": held(elements=None),
    "length": held([*USERS, "ann"], [*ELEMENTS, "x"], rows=5),
    "a number for a text": held([1, 2, 1, 2]),
    "cells that are users": held([*ELEMENTS[:3], "z"], USERS),
}


@pytest.mark.parametrize("name", OTHER)
def test_other_labels_have_another_hash(name: str) -> None:
    assert OTHER[name].hash(KEY) != held().hash(KEY)


def test_equal_labels_have_one_hash_in_any_container() -> None:
    assert held(np.array(USERS, dtype=object)).hash(KEY) == held().hash(KEY)
    assert held().hash(KEY) != held().hash(KEY[::-1])


@pytest.mark.parametrize(
    "values",
    [
        torch.tensor([0, 1, 2, 4]),
        torch.tensor([0, 1, 3, 2]),
        torch.arange(4).double(),
        torch.arange(4)[:, None],
    ],
)
def test_records_are_compared_number_by_number(values: Any) -> None:
    one, other = held().hashes(KEY), held(values=values).hashes(KEY)
    assert one["dataset"] != other["dataset"]
    assert {**one, "dataset": ""} == {**other, "dataset": ""}
    # Resuming requires labels: records may be read differently, such as rotated pictures.
    assert held().hash(KEY) == held(values=values).hash(KEY)


class Picture:
    """An object that NumPy reads like a Pillow picture."""

    def __init__(self, shade: int) -> None:
        self._pixels = np.full((2, 2), shade, dtype=np.uint8)

    @property
    def __array_interface__(self) -> Any:
        return self._pixels.__array_interface__


class Records(torch.utils.data.Dataset):
    def __init__(self, last: Any) -> None:
        self.last = last

    def __len__(self) -> int:
        return 4

    def __getitem__(self, place: int) -> Any:
        return {"x": torch.rand(2), "y": [place, "text", object(), self.last]}


@pytest.mark.slow
def test_records_read_from_one_seed_are_equal() -> None:
    def found(last: Any) -> str:
        own = BlockRows.arrange(arrange(4, None, None, User()))
        return LocalData(Records(last), None, None, own).hashes(KEY)["dataset"]

    assert found(1) == found(1)
    lasts = (
        *(1, "1", 1.5, None, 2j, 3j, Fraction(1, 3), Fraction(1, 4)),
        *(np.float32(1), np.float32(2), np.float64(1), np.int64(1), np.int64(2)),
        *(np.ones(2), np.zeros(2), np.ones(2, dtype=np.float32), np.array([1, "a", None], object)),
        *(np.array([1, "b", None], object), Picture(0), Picture(1), np.datetime64(1, "s")),
        np.datetime64(2, "s"),
    )
    assert len({found(last) for last in lasts}) == len(lasts)
