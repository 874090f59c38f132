"""Each row of a batch contains the record's own result, and padding after it."""

from __future__ import annotations

from tests.refusals import refuses
from tests.torch.library import torch

# isort: split
from dpgrain.torch.collation import padded_batch


def test_rows_equal_single_records() -> None:
    torch.manual_seed(1)
    records = [
        {
            "input_ids": torch.randint(1, 9, (1, length)),
            "attention_mask": torch.ones(1, length).long(),
            "labels": torch.randint(0, 9, (1, length)),
            "pixel_values": torch.randn(1, 2, length),
        }
        for length in (3, 5, 1)
    ]
    batch = padded_batch(records, 7)
    for row, record in enumerate(records):
        length = record["labels"].shape[1]
        for name, pad in (("input_ids", 7), ("attention_mask", 0), ("labels", -100)):
            assert torch.equal(batch[name][row, :length], record[name][0])
            assert (batch[name][row, length:] == pad).all()
        assert torch.equal(batch["pixel_values"][row, :, :length], record["pixel_values"][0])
    assert padded_batch([{"labels": torch.tensor([2])}, {"labels": torch.tensor([1])}], 0)[
        "labels"
    ].tolist() == [2, 1]


def test_packed_records_are_rejected() -> None:
    for record in ({"input_ids": torch.ones(2, 3)}, {"input_ids": [1, 2]}):
        with refuses("data_collator", "'input_ids'"):
            padded_batch([record], 0)
    with refuses("data_collator", "'labels'"):
        padded_batch([{"input_ids": torch.ones(1, 3)}, {"labels": torch.ones(1, 3)}], 0)


def test_row_type_does_not_follow_from_the_first() -> None:
    """An int in the first row would truncate the fractions of all others."""
    whole, real = {"labels": torch.tensor([1])}, {"labels": torch.tensor([0.9])}
    for records in ([whole, real], [real, whole]):
        found = sorted(padded_batch(records, 0, labels="real")["labels"].tolist())
        assert found == [torch.tensor(0.9).item(), 1.0]
    ids = {"input_ids": torch.tensor([[1.0]])}
    assert padded_batch([ids], 0)["input_ids"].dtype == torch.long
