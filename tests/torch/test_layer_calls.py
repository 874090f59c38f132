"""Calls of layers: gradients reach the record of a call, and outputs are rows of records."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from tests.refusals import refuses
from tests.torch.library import torch
from tests.torch.test_recorder import ROWS, recorded

# isort: split
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.recorder import Recorder

nn = torch.nn


@pytest.mark.parametrize("way", ["copy", "pickle", "average"])
def test_copies_are_ordinary_modules(way: str) -> None:
    module = nn.Sequential(nn.Linear(3, 2))
    recorder = recorded(module)
    copies: dict[str, Any] = {
        "copy": copy.deepcopy,
        "pickle": lambda of: pickle.loads(pickle.dumps(of)),
        "average": lambda of: torch.optim.swa_utils.AveragedModel(of).module,
    }
    other = copies[way](module)
    # More rows than the batch has, in training: none of it is recorded or rejected.
    other(torch.ones(9, 3)).sum().backward()
    assert other[0].weight.grad is not None
    assert recorder.uses == {}
    module(torch.ones(ROWS, 3)).sum().backward()
    assert module[0].weight.grad is None
    assert recorder.uses.keys() == {*module.parameters()}


def test_later_changed_input_is_rejected() -> None:
    class Late(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            x = x * 1.0
            out = self.one(x)
            x += 1
            return out + x

    module = Late()
    recorded(module)
    with refuses("module", "changed"):
        module(torch.ones(ROWS, 3)).sum().backward()


class Pair(torch.nn.Linear):
    """A map that returns two tensors."""

    def forward(self, x: Any) -> Any:
        out = super().forward(x)
        return out, out


class Collapsed(torch.nn.Linear):
    """A map that averages over records."""

    def forward(self, x: Any) -> Any:
        return super().forward(x).mean(0, keepdim=True)


@pytest.mark.parametrize("kind", [Pair, Collapsed])
def test_outputs_must_be_rows(kind: Any) -> None:
    module = kind(3, 2)
    Recorder(module, (kind,), lambda: BlockLayout((ROWS,)))
    with refuses("module", "record"):
        module(torch.ones(ROWS, 3))
