"""An unreadable record is pure padding; a wrong schema is detected before any is read."""

from __future__ import annotations

from typing import Any

import pytest
from tests.refusals import refuses
from tests.torch.library import torch

# isort: split
from dpgrain.torch.collation import UNREADABLE, ReadableDataset, RecordCollator, synthetic_record

datasets = pytest.importorskip("datasets", reason="datasets is not installed")


def rows_of(records: list[Any]) -> Any:
    """A collator like Hugging Face's, which fails on anything but a list of integers."""
    return {
        "input_ids": torch.tensor([record["input_ids"] for record in records]),
        "labels": torch.tensor([record["labels"] for record in records]),
    }


GOOD = [{"input_ids": [5, 6, 7], "labels": [5, 6, 7]}, {"input_ids": [8], "labels": [8]}]
TABLE = datasets.Dataset.from_list(GOOD)


def test_unreadable_records_are_blank_and_others_stay() -> None:
    collating = RecordCollator(rows_of, 2).with_template(synthetic_record(TABLE), "labels")
    alone = collating(GOOD)
    assert alone is not None
    for odd in (
        UNREADABLE,
        None,
        {"input_ids": None, "labels": [1]},
        {"input_ids": ["a"], "labels": [1]},
        {"labels": [1]},
        {"input_ids": 3, "labels": 3},
        {"input_ids": [[3]], "labels": [[3]]},
    ):
        batch = collating([GOOD[0], odd, GOOD[1]])
        assert batch is not None
        for name, tensor in batch.items():
            assert torch.equal(tensor[[0, 2]], alone[name])
        assert batch["input_ids"][1].tolist() == [2, 2, 2]
        assert batch["labels"][1].tolist() == [-100] * 3
        assert batch["attention_mask"][1].tolist() == [1, 0, 0]
        assert collating([odd, odd]) is None
    empty: dict[str, list[int]] = {"input_ids": [], "labels": []}
    one = collating([empty])
    assert one is not None
    assert one["input_ids"].shape == (1, 1)


# A collator's possible results for one record instead of a tensor with a row.
_ODD_SHAPES: dict[str, Any] = {
    "no row": lambda value: value[:0],
    "two rows": lambda value: torch.cat([value, value]),
    "a list": lambda value: value.tolist(),
    "a list of tensors": list,
    "no dimension": lambda value: value.sum(),
    "another dimension": lambda value: value[:, None],
    "an array": lambda value: value.numpy(),
    "nothing": lambda value: None,
}


@pytest.mark.parametrize("schema", [True, False], ids=["schema", "no schema"])
@pytest.mark.parametrize("shape", _ODD_SHAPES)
def test_odd_shapes_of_one_record_move_no_other(shape: str, schema: bool) -> None:
    if shape == "another dimension" and not schema:
        pytest.skip("without a schema no dimension is the right one")
    oddly: set[str] = set()  # tensors of the malformed record with another shape

    def collator(records: list[Any]) -> Any:
        made = rows_of(records)
        is_odd = records[0]["input_ids"] == [9, 9]
        return {
            name: _ODD_SHAPES[shape](value) if is_odd and name in oddly else value
            for name, value in made.items()
        }

    collating = RecordCollator(collator, 2)
    collating = collating.with_template(synthetic_record(TABLE), "labels") if schema else collating
    plain, odd = collating(GOOD), {"input_ids": [9, 9], "labels": [9, 9]}
    assert plain is not None
    for names in ({"input_ids"}, {"labels"}, {"input_ids", "labels"}):
        oddly.clear()
        oddly |= names
        assert collating([odd]) is None
        for place in range(3):
            batch = collating([*GOOD[:place], odd, *GOOD[place:]])
            assert batch is not None
            others = [row for row in range(3) if row != place]
            assert all(torch.equal(batch[name][others], plain[name]) for name in plain)
            assert batch["labels"][place].tolist() == [-100] * 3


def test_errors_of_a_record_stay_with_it() -> None:
    class Worst:
        def __init__(self, error: BaseException) -> None:
            self.error = error

        def __len__(self) -> int:
            return 1

        def __getitem__(self, _place: object) -> Any:
            raise self.error

    for error in (ValueError("ann"), SystemExit(3), RecursionError(), MemoryError()):
        assert ReadableDataset(Worst(error))[0] is UNREADABLE
        assert RecordCollator(rows_of, 0)([Worst(error)]) is None
    with pytest.raises(KeyboardInterrupt):
        ReadableDataset(Worst(KeyboardInterrupt()))[0]


def test_long_records_are_truncated_and_all_fit() -> None:
    cut = RecordCollator(rows_of, 0, most=2)(GOOD)
    assert cut is not None
    assert cut["input_ids"].tolist() == [[5, 6], [8, 0]]
    assert cut["labels"].tolist() == [[5, 6], [8, -100]]
    fixed = RecordCollator(rows_of, 0, most=4, fixed=True)(GOOD[1:])
    assert fixed is not None
    assert {tuple(tensor.shape) for tensor in fixed.values()} == {(1, 4)}
    # Class labels are not tokens.
    several = RecordCollator(rows_of, 0, most=2, labels="whole")(GOOD[:1])
    assert several is not None
    assert several["labels"].tolist() == [[5, 6, 7]]


def test_mismatched_schema_is_rejected_on_a_synthetic_record() -> None:
    def packed(records: list[Any]) -> Any:
        return {"input_ids": [3], "labels": torch.ones(2, 3)}

    record = synthetic_record(TABLE)
    assert record == {"input_ids": [1, 1, 1], "labels": [1, 1, 1]}
    with refuses("data_collator", "input_ids"):
        RecordCollator(packed, 0).with_template(record, "labels")
    with refuses("data_collator", "'text'"):
        RecordCollator(rows_of, 0).with_template({"text": "a"}, "labels")
    with refuses("train_dataset", "labels"):
        RecordCollator(rows_of, 0).with_template(record, "classes")


def test_synthetic_records_follow_only_from_the_schema() -> None:
    one, other = (
        datasets.Dataset.from_dict({"x": [[0.5, value]], "text": [str(value)], "label": [value]})
        for value in (1, 2)
    )
    assert (
        synthetic_record(one)
        == synthetic_record(other)
        == {"x": [1.0] * 3, "text": "a", "label": 1}
    )
    labels = datasets.Features({"label": datasets.ClassLabel(names=["a", "b"])})
    assert synthetic_record(datasets.Dataset.from_dict({"label": [1]}, labels)) == {"label": 0}
    times = datasets.Features({"at": datasets.Value("timestamp[s]")})
    assert synthetic_record(datasets.Dataset.from_dict({"at": [1]}, times)) is None
    one.set_transform(lambda rows: rows)
    assert synthetic_record(one) is None
    assert synthetic_record(GOOD) is None
