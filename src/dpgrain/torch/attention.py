"""Attention with the weights of linear maps, in the place of PyTorch's own."""

from __future__ import annotations

from typing import Any

from dpgrain.errors import ParameterError
from dpgrain.torch.library import torch

nn, functional = torch.nn, torch.nn.functional


class MultiheadAttention(torch.nn.Module):
    """``torch.nn.MultiheadAttention`` with its own parameters, whose gradients can be clipped by block.

    Args:
        layer: the layer whose parameters it has, with ``batch_first=True``. They are shared, so that an
            optimizer of the layer is one of this.

    Raises:
        ParameterError: if the layer has its records second, inputs of several widths, or tokens of its
            own (``add_bias_kv``, ``add_zero_attn``).

    It is called as the layer is. Where query, key and value are not one tensor the packed map is made
    for each.

    >>> import torch
    >>> layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(3, 5, 8)
    >>> torch.allclose(MultiheadAttention(layer)(x, x, x)[0], layer(x, x, x)[0], atol=1e-6)
    True
    """

    in_proj_bias = None  # so that torch.nn.TransformerEncoderLayer takes no shortcut past the maps
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
        """Return what PyTorch's layer returns: what is attended to, and the weights if asked for.

        Args:
            query: (rows, targets, width).
            key: (rows, sources, width).
            value: (rows, sources, width).
            key_padding_mask: (rows, sources) sources to leave out, or what is added to their scores.
            need_weights: True also returns the weights.
            attn_mask: (targets, sources) or (rows·heads, targets, sources) pairs to leave out, or what
                is added to their scores.
            average_attn_weights: True returns weights averaged over heads.
            is_causal: a hint that ``attn_mask`` is causal, which is not needed.
        """
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
        """Return query, key and value by their maps; one tensor is mapped once."""
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
        """Return what is added to scores, (rows or 1, heads or 1, targets or 1, sources); or None."""
        parts = []
        if attn_mask is not None:
            each = attn_mask.dim() == 3
            shape = (len(q), self.num_heads, *attn_mask.shape[1:]) if each else attn_mask.shape
            parts.append(_added(attn_mask.reshape(shape), q))
        if padding is not None:
            parts.append(_added(padding.reshape(len(k), 1, 1, -1), q))
        return sum(parts) if parts else None


def _added(mask: Any, like: Any) -> Any:
    """Return a mask as numbers that are added to scores."""
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, float("-inf"))
    return mask.to(like.dtype)


def _check(layer: Any) -> None:
    """Refuse a layer that does what this does not."""
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
