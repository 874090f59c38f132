"""Replacements of PyTorch layers with hidden linear maps, for clipping by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.torch.library import torch

nn, functional = torch.nn, torch.nn.functional


class MultiheadAttention(torch.nn.Module):
    """``torch.nn.MultiheadAttention`` built from linear maps, for clipping by block.

    The parameters are shared with the original layer, so its optimizer remains valid.
    """

    in_proj_bias = None  # prevents torch.nn.TransformerEncoderLayer from bypassing the maps
    batch_first = True
    _qkv_same_embed_dim = True

    def __init__(self, layer: Any) -> None:
        super().__init__()
        _check_attention(layer)
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
        parts = self._mapped(query, key, value)
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in parts)
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
        outputs: dict[int, Any] = {}
        parts = []
        for place, tensor in enumerate((query, key, value)):
            if id(tensor) not in outputs:
                outputs[id(tensor)] = self.in_proj(tensor).chunk(3, dim=-1)
            parts.append(outputs[id(tensor)][place])
        return tuple(parts)

    def _out(self, seen: Any) -> Any:
        return self.out_proj(seen.transpose(1, 2).flatten(2))

    def _mask(self, q: Any, k: Any, attn_mask: Any, padding: Any) -> Any:
        """Return the mask to add to scores, broadcast to (rows, heads, targets, sources)."""
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


def _check_attention(layer: Any) -> None:
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


#: Map the input's and the state's linear maps and the state to the next state, with the output as
#: its first part.
Cell: TypeAlias = Callable[[Any, Any, tuple[Any, ...]], tuple[Any, ...]]


def _lstm(x: Any, h: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
    i, f, g, o = (x + h).chunk(4, dim=-1)
    cell = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def _gru(x: Any, h: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, dim=-1), h.chunk(3, dim=-1)
    z = torch.sigmoid(xz + hz)
    return ((1 - z) * torch.tanh(xn + torch.sigmoid(xr + hr) * hn) + z * state[0],)


CELLS: Mapping[str, Cell] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN_TANH": lambda x, h, _state: (torch.tanh(x + h),),
    "RNN_RELU": lambda x, h, _state: (torch.relu(x + h),),
}


class Recurrent(torch.nn.Module):
    """``torch.nn.LSTM``, ``GRU`` or ``RNN`` from linear maps, with shared parameters.

    The initial state is zero: a state passed from batch to batch would store information about
    records.
    """

    def __init__(self, layer: Any) -> None:
        super().__init__()
        _check_recurrent(layer)
        self.mode, self.hidden, self.dropout = layer.mode, layer.hidden_size, layer.dropout
        self.ways = 2 if layer.bidirectional else 1
        names = [
            f"l{depth}{way}"
            for depth in range(layer.num_layers)
            for way in ("", "_reverse")[: self.ways]
        ]
        self.inputs = nn.ModuleList(_shared(layer, "ih", name) for name in names)
        self.states = nn.ModuleList(_shared(layer, "hh", name) for name in names)
        self.train(layer.training)

    def forward(self, x: Any) -> tuple[Any, Any]:
        """Return the outputs, (rows, positions, states), and each layer's last states."""
        last = []
        for first in range(0, len(self.inputs), self.ways):
            if first:
                x = functional.dropout(x, self.dropout, self.training)
            ways = [self._run(x, first + way, backwards=way == 1) for way in range(self.ways)]
            x = torch.cat([out for out, _ in ways], dim=-1)
            last += [state for _, state in ways]
        states = tuple(torch.stack(parts) for parts in zip(*last, strict=True))
        return x, states if self.mode == "LSTM" else states[0]

    def _run(self, x: Any, which: int, *, backwards: bool) -> tuple[Any, tuple[Any, ...]]:
        """Return the outputs and the last state of one layer in one direction."""
        mapped, cell, out = self.inputs[which](x).unbind(1), CELLS[self.mode], []
        state = (x.new_zeros(len(x), self.hidden),) * (2 if self.mode == "LSTM" else 1)
        for at in reversed(mapped) if backwards else mapped:
            state = cell(at, self.states[which](state[0]), state)
            out.append(state[0])
        return torch.stack(out[::-1] if backwards else out, dim=1), state


def _shared(layer: Any, kind: str, name: str) -> Any:
    """Return a linear map with the parameters of a recurrent layer."""
    weight = getattr(layer, f"weight_{kind}_{name}")
    result = nn.Linear(weight.shape[1], weight.shape[0], bias=layer.bias, device="meta")
    result.weight = weight
    if layer.bias:
        result.bias = getattr(layer, f"bias_{kind}_{name}")
    return result


def _check_recurrent(layer: Any) -> None:
    """Reject a layer with unsupported options."""
    if not isinstance(layer, nn.RNNBase):
        raise ParameterError(
            f"layer must be a torch.nn.LSTM, GRU or RNN, not a {type(layer).__name__}.",
            name="layer",
        )
    if not layer.batch_first:
        raise ParameterError(
            "layer must have batch_first=True, so that records are in the first dimension.",
            name="layer",
        )
    if layer.proj_size:
        raise ParameterError(
            f"layer must have proj_size=0, not {layer.proj_size}; add an nn.Linear after it.",
            name="layer",
        )


#: Replacement of each layer with hidden linear maps.
OPENED: Mapping[type, Callable[[Any], Any]] = {
    nn.MultiheadAttention: MultiheadAttention,
    nn.LSTM: Recurrent,
    nn.GRU: Recurrent,
    nn.RNN: Recurrent,
}


def through_linear_maps(module: Any) -> Any:
    """Replace attention and recurrent layers by equivalents built from linear maps.

    Args:
        module: the network, which is changed in place, or one such layer.

    Returns:
        the network, or the replacement of the layer.

    Raises:
        ParameterError: if a layer has records in the second dimension, or unsupported options.

    Parameters are shared, so an existing optimizer keeps its parameters. In ``state_dict``, the
    parameters of replaced layers have new names.

    >>> import torch
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> type(through_linear_maps(layer).self_attn).__module__
    'dpgrain.torch.linear_maps'
    """
    module = _validate.instance(nn.Module, module=module)
    if type(module) in OPENED:
        return OPENED[type(module)](module)
    # Only PyTorch's own attention supports nested tensors.
    if isinstance(module, nn.TransformerEncoder):
        module.use_nested_tensor = False
    for name, child in list(module.named_children()):
        setattr(module, name, through_linear_maps(child))
    return module
