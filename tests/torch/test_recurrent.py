"""Recurrent layers through linear maps are PyTorch's own."""

from __future__ import annotations

from typing import Any

import pytest
from tests.torch.library import torch

# isort: split
from dpgrain.errors import ParameterError
from dpgrain.torch.recurrent import Recurrent

nn = torch.nn


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("both_ways", [True, False])
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_what_comes_out_is_the_layers_own(
    kind: Any, depth: int, both_ways: bool, bias: bool
) -> None:
    torch.manual_seed(1)
    layer = kind(3, 4, depth, bias=bias, bidirectional=both_ways, batch_first=True)
    x, own = torch.randn(2, 5, 3), Recurrent(layer)
    (expected, last), (found, own_last) = layer(x), own(x)
    assert torch.allclose(found, expected, atol=1e-6)
    pairs = zip(own_last, last, strict=True) if kind is nn.LSTM else [(own_last, last)]
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in pairs)
    assert {id(p) for p in own.parameters()} == {id(p) for p in layer.parameters()}


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (nn.LSTM(3, 4), "batch_first=True"),
        (nn.LSTM(3, 4, proj_size=2, batch_first=True), "proj_size=0, not 2"),
        (nn.Linear(3, 4), "not a Linear"),
    ],
)
def test_other_layers_are_refused(layer: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        Recurrent(layer)
