"""The loss of each record follows only from the record, whatever else is in the batch."""

from __future__ import annotations

import math
from typing import Any

from tests.torch.library import torch

# isort: split
from dpgrain.torch.hf_labels import losses_on


def test_losses_equal_records_in_batches_of_any_size() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Dropout(0.5)).double()
    data: list[Any] = [0.5, None, math.nan, 2.0, None, None, -1.0]

    def collate(records: Any) -> Any:
        if all(record is None for record in records):
            return None
        return torch.tensor([[record or 0.0] for record in records]).double()

    def losses(batch: Any) -> Any:
        assert not net.training
        assert not torch.is_grad_enabled()
        return torch.where(batch[:, 0] == 0, 0.0, net(batch).square()[:, 0])

    with torch.no_grad():
        own = [
            float(net.eval()(torch.tensor([[x or 0.0]]).double())[0, 0]) ** 2 if x else 0.0
            for x in data
        ]
    own[2] = math.inf
    net.train()
    for rows in (1, 2, 3, 7, 20):
        assert losses_on(data, collate, losses, rows, net).tolist() == own
    assert net.training
