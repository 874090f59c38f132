"""Recurrent layers built from linear maps, as replacements for PyTorch's layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from dpgrain.errors import ParameterError
from dpgrain.torch.library import torch

nn, functional = torch.nn, torch.nn.functional

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
    """``torch.nn.LSTM``, ``GRU`` or ``RNN`` built from linear maps.

    The parameters are shared with the original layer, so its optimizer remains valid. The initial
    state is zero: a state passed from batch to batch would store information about records.

    >>> import torch
    >>> layer = torch.nn.LSTM(3, 4, num_layers=2, batch_first=True, bidirectional=True)
    >>> x = torch.randn(2, 5, 3)
    >>> torch.allclose(Recurrent(layer)(x)[0], layer(x)[0], atol=1e-6)
    True
    """

    def __init__(self, layer: Any) -> None:
        super().__init__()
        _check(layer)
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


def _check(layer: Any) -> None:
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
