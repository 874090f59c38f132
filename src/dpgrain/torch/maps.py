"""Replacements of PyTorch layers with hidden linear maps, for clipping by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dpgrain import _validate
from dpgrain.torch.attention import MultiheadAttention
from dpgrain.torch.library import torch
from dpgrain.torch.recurrent import Recurrent

nn = torch.nn
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
    'dpgrain.torch.attention'
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
