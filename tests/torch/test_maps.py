"""Networks of PyTorch's own layers compute the same through linear maps, in training and after."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.torch.library import torch

# isort: split
from dpgrain.torch.maps import through_linear_maps

nn = torch.nn


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("mode", ["training", "evaluation", "without gradients"])
@pytest.mark.parametrize("padded", [True, False])
def test_encoders_are_the_same(padded: bool, mode: str) -> None:
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
    plain = nn.TransformerEncoder(layer, 2).train(mode == "training")
    opened = through_linear_maps(copy.deepcopy(plain))
    x, options = torch.randn(2, 3, 6), {}
    if padded:
        options = {"src_key_padding_mask": torch.tensor([[False, False, True]] * 2)}
    with torch.set_grad_enabled(mode != "without gradients"):
        found: Any = opened(x, **options)
        expected = plain(x, **options)
    # PyTorch's shortcut leaves out what is padding.
    seen = expected.shape[1]
    if padded:
        found, expected = found[:, :2], expected[:, : min(seen, 2)]
    assert torch.allclose(found, expected, atol=1e-5)


def test_one_layer_is_replaced_and_others_stay() -> None:
    alone = through_linear_maps(nn.GRU(3, 4, batch_first=True))
    assert type(alone).__name__ == "Recurrent"
    network = nn.Sequential(nn.Linear(2, 3), nn.GRU(3, 4, batch_first=True))
    first, parameters = network[0], {id(p) for p in network.parameters()}
    assert through_linear_maps(network) is network
    assert network[0] is first
    assert {id(p) for p in network.parameters()} == parameters
