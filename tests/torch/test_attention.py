"""Attention through linear maps is PyTorch's own."""

from __future__ import annotations

from typing import Any

import pytest
from tests.torch.library import torch

# isort: split
from dpgrain.errors import ParameterError
from dpgrain.torch.attention import MultiheadAttention

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
def test_what_comes_out_is_the_layers_own(bias: bool, masks: dict[str, Any], heads: str) -> None:
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
def test_other_layers_are_refused(layer: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        MultiheadAttention(layer)
