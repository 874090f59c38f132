"""Attention and recurrent layers compute the same through linear maps."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.torch.library import torch

# isort: split
from dpgrain.errors import ParameterError
from dpgrain.torch.linear_maps import MultiheadAttention, Recurrent, through_linear_maps

nn = torch.nn
MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "padding": {"key_padding_mask": torch.tensor([[False, True, False, True]] * 2)},
    "added padding": {"key_padding_mask": torch.tensor([[0.0, -1.0, 0.5, -3.0]] * 2)},
    "pairs": {"attn_mask": torch.tensor([[False, True, False, True]] * 3)},
    "each": {"attn_mask": torch.randn(4, 3, 4)},
    "both": {
        "attn_mask": torch.tensor([[False, True, False, False]] * 3),
        "key_padding_mask": torch.tensor([[False, False, False, True]] * 2),
    },
}


@pytest.mark.parametrize("heads", ["averaged", "each", "none"])
@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("bias", [True, False])
def test_attention_is_the_layers_own(bias: bool, masks: dict[str, Any], heads: str) -> None:
    torch.manual_seed(1)
    layer = nn.MultiheadAttention(6, 2, bias=bias, batch_first=True)
    query, key, value = torch.randn(2, 3, 6), torch.randn(2, 4, 6), torch.randn(2, 4, 6)
    options = {
        "need_weights": heads != "none",
        "average_attn_weights": heads == "averaged",
        **masks,
    }
    expected, weights = layer(query, key, value, **options)
    found, own = MultiheadAttention(layer)(query, key, value, **options)
    assert torch.allclose(found, expected, atol=1e-6)
    assert (own is None) == (weights is None)
    assert own is None or torch.allclose(own, weights, atol=1e-6)


def test_parameters_are_shared() -> None:
    layer = nn.MultiheadAttention(6, 2, batch_first=True)
    assert {id(p) for p in MultiheadAttention(layer).parameters()} == {
        id(p) for p in layer.parameters()
    }


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (nn.MultiheadAttention(6, 2), "batch_first=True"),
        (nn.MultiheadAttention(6, 2, kdim=3, batch_first=True), "kdim"),
        (nn.MultiheadAttention(6, 2, add_bias_kv=True, batch_first=True), "add_bias_kv"),
        (nn.MultiheadAttention(6, 2, add_zero_attn=True, batch_first=True), "add_zero_attn"),
        (nn.Linear(6, 2), "not a Linear"),
    ],
)
def test_other_attention_is_rejected(layer: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        MultiheadAttention(layer)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("both_ways", [True, False])
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_the_layers_own(
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
def test_other_recurrent_layers_are_rejected(layer: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        Recurrent(layer)


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
