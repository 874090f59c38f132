"""Rows in common are found by how data sets are made, and no others are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.torch.library import torch

# isort: split
from dpgrain.torch.shared_rows import shares_rows

datasets = pytest.importorskip("datasets", reason="datasets is not installed")
Subset, Both = torch.utils.data.Subset, torch.utils.data.ConcatDataset
ROWS = 20


def table(*columns: str) -> Any:
    rows = {name: [[row] * 2 for row in range(ROWS)] for name in columns or ("x", "y")}
    return datasets.Dataset.from_dict(rows)


def tensors(*columns: str) -> Any:
    return torch.utils.data.TensorDataset(torch.ones(ROWS, 1 + len(columns)))


def chosen(made: Any, rng: np.random.Generator) -> tuple[Any, set[int]]:
    """A data set of some rows of another one, in steps, and which they are."""
    rows = np.arange(ROWS)
    for _ in range(int(rng.integers(1, 4))):
        size = int(rng.integers(1, len(rows) + 1))
        step = int(rng.integers(4))
        if step == 0 and hasattr(made, "select"):
            first = int(rng.integers(0, len(rows) - size + 1))
            own = np.arange(first, first + size)
            made = made.select(range(first, first + size))
        elif step == 1 and hasattr(made, "select"):
            own = rng.permutation(len(rows))[:size]
            made = made.select(own.tolist())
        else:
            own = rng.permutation(len(rows))[:size]
            made = Subset(made, own.tolist())
        rows = rows[own]
    return made, set(rows.tolist())


@pytest.mark.parametrize("make", [table, tensors], ids=["table", "tensors"])
def test_rows_in_common_are_found_and_no_others(make: Any) -> None:
    rng, data, other = np.random.default_rng(4), make(), make()
    met = set()
    for _ in range(150):
        (one, rows), (two, more) = chosen(data, rng), chosen(data, rng)
        met.add(bool(rows & more))
        assert shares_rows(one, two) == bool(rows & more)
        assert shares_rows(Both([other, one]), two) == bool(rows & more)
        assert not shares_rows(one, other)
    assert met == {False, True}


def test_other_columns_of_the_same_rows_are_the_same_rows() -> None:
    data = table("a", "b", "c")
    assert shares_rows(data.remove_columns("a"), data.select([3]).remove_columns("b"))
    assert not shares_rows(data.select([1]).remove_columns("a"), data.select([3]))


def test_what_has_no_rows_shares_none() -> None:
    data = table()
    assert not shares_rows(data, iter([1]))
    assert not shares_rows(data, data.select([]))
    assert shares_rows(data, data)
