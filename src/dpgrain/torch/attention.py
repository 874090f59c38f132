"""Attention built from linear maps, as a replacement for PyTorch's layer."""

from __future__ import annotations

from typing import Any

from dpgrain.errors import ParameterError
from dpgrain.torch.library import torch

nn, functional = torch.nn, torch.nn.functional


class MultiheadAttention(torch.nn.Module):
    """``torch.nn.MultiheadAttention`` built from linear maps, for clipping by block.

    The parameters are shared with the original layer, so its optimizer remains valid.

    >>> import torch
    >>> layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(3, 5, 8)
    >>> torch.allclose(MultiheadAttention(layer)(x, x, x)[0], layer(x, x, x)[0], atol=1e-6)
    True
    """

    in_proj_bias = None  # prevents torch.nn.TransformerEncoderLayer from bypassing the maps
    batch_first = True
    _qkv_same_embed_dim = True

    def __init__(self, layer: Any) -> None:
        super().__init__()
        _check(layer)
        self.embed_dim, self.num_heads, self.dropout = (
            layer.embed_dim,
            layer.num_heads,
            layer.dropout,
        )
        width, has_bias = layer.embed_dim, layer.in_proj_bias is not None
        self.in_proj = nn.Linear(width, 3 * width, bias=has_bias, device="meta")
        self.in_proj.weight, self.in_proj.bias = layer.in_proj_weight, layer.in_proj_bias
        self.out_proj = nn.Linear(width, width, bias=has_bias, device="meta")
        self.out_proj.weight, self.out_proj.bias = layer.out_proj.weight, layer.out_proj.bias
        self.train(layer.training)

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Any, Any]:
        """Return the attention outputs and, on request, the weights."""
        del is_causal
        q, k, v = (self._heads(part) for part in self._mapped(query, key, value))
        mask = self._mask(q, k, attn_mask, key_padding_mask)
        dropout = self.dropout if self.training else 0.0
        if not need_weights:
            seen = functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, dropout_p=dropout
            )
            return self._out(seen), None
        scores = q @ k.mT / q.shape[-1] ** 0.5
        weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
        weights = functional.dropout(weights, dropout)
        return self._out(weights @ v), weights.mean(1) if average_attn_weights else weights

    def _mapped(self, query: Any, key: Any, value: Any) -> tuple[Any, ...]:
        """Return the mapped query, key and value; the same tensor is mapped only once."""
        made: dict[int, Any] = {}
        parts = []
        for place, of in enumerate((query, key, value)):
            if id(of) not in made:
                made[id(of)] = self.in_proj(of).chunk(3, dim=-1)
            parts.append(made[id(of)][place])
        return tuple(parts)

    def _heads(self, x: Any) -> Any:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def _out(self, seen: Any) -> Any:
        return self.out_proj(seen.transpose(1, 2).flatten(2))

    def _mask(self, q: Any, k: Any, attn_mask: Any, padding: Any) -> Any:
        """Return the mask to add to scores, broadcastable to (rows, heads, targets, sources)."""
        parts = []
        if attn_mask is not None:
            each = attn_mask.dim() == 3
            shape = (len(q), self.num_heads, *attn_mask.shape[1:]) if each else attn_mask.shape
            parts.append(_added(attn_mask.reshape(shape), q))
        if padding is not None:
            parts.append(_added(padding.reshape(len(k), 1, 1, -1), q))
        return sum(parts) if parts else None


def _added(mask: Any, like: Any) -> Any:
    """Return a mask as numbers to add to scores."""
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, float("-inf"))
    return mask.to(like.dtype)


def _check(layer: Any) -> None:
    """Reject a layer with unsupported options."""
    if not isinstance(layer, nn.MultiheadAttention):
        raise ParameterError(
            f"layer must be a torch.nn.MultiheadAttention, not a {type(layer).__name__}.",
            name="layer",
        )
    if not layer.batch_first:
        raise ParameterError(
            "layer must have batch_first=True, so that records are in the first dimension.",
            name="layer",
        )
    if not layer._qkv_same_embed_dim or layer.bias_k is not None or layer.add_zero_attn:
        raise ParameterError(
            "layer must not use kdim, vdim, add_bias_kv or add_zero_attn; write such attention "
            "with nn.Linear and torch.nn.functional.scaled_dot_product_attention.",
            name="layer",
        )
