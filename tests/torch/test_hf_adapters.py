"""Labels of a data set's records, and rows that two data sets share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.refusals import refuses
from tests.torch.library import torch

# isort: split
from pathlib import Path

from dpgrain.inputs.array_blocks import arrange
from dpgrain.torch.hf_adapters import DatasetColumn, RecordHashes, shares_rows
from dpgrain.units import User

# isort: split
import dpgrain as dg
from dpgrain.torch.hf_adapters import GUARANTEE_FILE, write_guarantee

datasets = pytest.importorskip("datasets", reason="datasets is not installed")


def table() -> Any:
    """Texts of two people; one text was written twice by the same person."""
    texts = [("ann", "a"), ("bob", "a"), ("ann", "b"), ("ann", "a"), ("bob", None)]
    return datasets.Dataset.from_list([{"author": who, "text": what} for who, what in texts])


def test_column_has_plain_labels_in_any_format() -> None:
    numbers = datasets.Dataset.from_dict({"author": [3, 4]}).with_format("torch")
    labels = DatasetColumn.of(numbers, "author", "users_column")
    assert labels is not None
    assert (labels.name, len(labels), list(labels)) == ("author", 2, [3, 4])
    assert not any(isinstance(label, torch.Tensor) for label in labels)
    assert DatasetColumn.of(numbers, None, "users_column") is None
    with refuses("users_column", "'nobody'"):
        DatasetColumn.of(numbers, "nobody", "users_column")
    with refuses("users_column", "'author'"):
        DatasetColumn.of([{"author": 3}], "author", "users_column")


def test_record_label_does_not_depend_on_others() -> None:
    whole = list(RecordHashes(table()))
    assert whole[0] == whole[3]
    assert len(set(whole)) == 4
    for rows in ([4, 1, 2], [2], [3, 0]):
        assert list(RecordHashes(table().select(rows))) == [whole[row] for row in rows]


def test_transforms_are_skipped_and_unreadable_records_equal() -> None:
    turned = table()
    turned.set_transform(lambda rows: {"text": [torch.rand(()) for _ in rows["text"]]})
    assert list(RecordHashes(turned)) == list(RecordHashes(table()))

    class Broken:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, place: int) -> Any:
            if place:
                raise SystemExit(place)
            return {"text": "a"}

    first, *others = RecordHashes(Broken())
    assert others == ["", ""]
    assert first


def test_user_records_are_blocks_up_to_the_stated_number() -> None:
    data = table()
    rows = arrange(5, DatasetColumn(data, "author"), RecordHashes(data), User(max_elements=1))
    assert sorted(rows.owners.tolist()) == [0, 1]
    assert set(rows.indices[rows.blocks == rows.owners.tolist().index(0)]) in ({0, 3}, {2})


Subset, Both = torch.utils.data.Subset, torch.utils.data.ConcatDataset
ROWS = 20


def table_with(*columns: str) -> Any:
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


@pytest.mark.parametrize("make", [table_with, tensors], ids=["table_with", "tensors"])
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


def test_other_columns_of_equal_rows_are_equal_rows() -> None:
    data = table_with("a", "b", "c")
    assert shares_rows(data.remove_columns("a"), data.select([3]).remove_columns("b"))
    assert not shares_rows(data.select([1]).remove_columns("a"), data.select([3]))


def test_objects_without_rows_share_none() -> None:
    data = table_with()
    assert not shares_rows(data, iter([1]))
    assert not shares_rows(data, data.select([]))
    assert shares_rows(data, data)


assert torch


def test_card_retains_its_text_and_the_last_guarantee(tmp_path: Path) -> None:
    one, other = (
        dg.mean_of_users(np.ones((50, 1)), bound=1.0, epsilon=epsilon, delta=1e-6).guarantee
        for epsilon in (1.0, 2.0)
    )
    write_guarantee(tmp_path / "new", one)
    assert (tmp_path / "new" / "README.md").read_text().startswith("# new\n\n## Privacy\n")
    (tmp_path / "README.md").write_text("# A model\n\nOf texts.\n")
    for guarantee in (one, other):
        write_guarantee(tmp_path, guarantee)
    card = (tmp_path / "README.md").read_text()
    assert card.startswith("# A model\n\nOf texts.\n\n## Privacy\n")
    assert str(other) in card
    assert str(one) not in card
    assert dg.Guarantee.from_json((tmp_path / GUARANTEE_FILE).read_text()) == other
