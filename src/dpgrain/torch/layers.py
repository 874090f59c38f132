"""Layers with clipping by block: the use of their parameters in each call."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from dpgrain.errors import ParameterError
from dpgrain.torch.block_gradients import (
    Filters,
    Lookup,
    Outer,
    RowGradients,
    StoredGradients,
    Use,
)
from dpgrain.torch.gradient_precision import precisely
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.library import torch
from dpgrain.torch.randomness import seeded_randomness

nn, functional = torch.nn, torch.nn.functional

#: Map a layer, its input, the gradient with respect to its output (both by rows) and the blocks to
#: the uses of the layer's own parameters, by name.
Rule: TypeAlias = Callable[[Any, Any, Any, BlockLayout], Mapping[str, Use]]

_MIXES_RECORDS = (
    "which mixes records in training mode; use GroupNorm or LayerNorm, or freeze its statistics "
    "by calling eval() of this layer after train() of the module"
)
# In evaluation mode these normalize by fixed statistics.
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_BY_MAPS = (
    "which does not use Linear layers for its weights; dpgrain.torch.through_linear_maps(module) "
    "replaces it by a layer with the same parameters"
)
#: Rejected layers, with the reason.
REFUSED: Mapping[type, str] = {
    **dict.fromkeys(_BATCH_NORMS, _MIXES_RECORDS),
    nn.MultiheadAttention: _BY_MAPS,
    nn.RNN: _BY_MAPS,
    nn.LSTM: _BY_MAPS,
    nn.GRU: _BY_MAPS,
}


def _linear(_layer: Any, x: Any, b: Any, layout: BlockLayout) -> Mapping[str, Use]:
    """Return the uses of a linear map, at any number of positions of each record."""
    x, b = (t.reshape(len(t), -1, t.shape[-1]) for t in (x, b))
    return {"weight": Outer(layout, x, b), "bias": RowGradients(layout, b)}


def _convolution(layer: Any, x: Any, b: Any, layout: BlockLayout) -> Mapping[str, Use]:
    padding = layer.padding
    if layer.padding_mode != "zeros" or isinstance(padding, str):
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        x = functional.pad(x, layer._reversed_padding_repeated_twice, mode=mode)
        padding = (0,) * len(layer.kernel_size)
    weight = Filters(
        layout,
        x,
        b,
        layer.weight.shape,
        stride=layer.stride,
        padding=padding,
        dilation=layer.dilation,
        groups=layer.groups,
    )
    return {
        "weight": weight,
        "bias": RowGradients(layout, b.flatten(2).mT),
    }


def _embedding(layer: Any, x: Any, b: Any, layout: BlockLayout) -> Mapping[str, Use]:
    places, b = x.reshape(len(x), -1), b.reshape(len(x), -1, b.shape[-1])
    if layer.padding_idx is not None:
        b = b.masked_fill((places == layer.padding_idx)[..., None], 0)
    return {"weight": Lookup(layout, places, b, layer.num_embeddings)}


def _bag(layer: Any, x: Any, b: Any, layout: BlockLayout) -> Mapping[str, Use]:
    """Return the use of an embedding table, with a record's rows summed or averaged."""
    if x.dim() != 2:
        raise ParameterError(
            f"EmbeddingBag must be called with (records, positions), not {tuple(x.shape)}, "
            "because bags by offsets do not identify the record of each position.",
            name="module",
        )
    seen = torch.ones_like(x, dtype=b.dtype)
    if layer.padding_idx is not None:
        seen = (x != layer.padding_idx).to(b.dtype)
    if layer.mode == "mean":
        seen = seen / seen.sum(1, keepdim=True).clamp(min=1)
    each = b[:, None, :] * seen[:, :, None]
    return {"weight": Lookup(layout, x, each, layer.num_embeddings)}


def _slope(layer: Any, x: Any, b: Any, layout: BlockLayout) -> Mapping[str, Use]:
    """Return the use of the slopes for negative numbers: one, or one per channel."""
    parts = (b * x.clamp(max=0)).reshape(*x.shape[:2], -1).sum(2)
    if layer.num_parameters == 1:
        parts = parts.sum(1, keepdim=True)
    return {"weight": RowGradients(layout, parts[:, None])}


def _over_last(layer: Any, b: Any, normal: Any, layout: BlockLayout) -> Mapping[str, Use]:
    """Return the uses of a scale and a shift over the last dimensions."""
    shape = tuple(layer.normalized_shape)
    b, scaled = (t.reshape(len(t), -1, *shape) for t in (b, b * normal))
    return {
        "weight": RowGradients(layout, scaled),
        "bias": RowGradients(layout, b),
    }


def _layer_norm(layer: Any, x: Any, b: Any, layout: BlockLayout) -> Mapping[str, Use]:
    normal = functional.layer_norm(x, layer.normalized_shape, eps=layer.eps)
    return _over_last(layer, b, normal, layout)


def _rms_norm(layer: Any, x: Any, b: Any, layout: BlockLayout) -> Mapping[str, Use]:
    normal = functional.rms_norm(x, layer.normalized_shape, eps=layer.eps)
    return {"weight": _over_last(layer, b, normal, layout)["weight"]}


def _over_channels(b: Any, normal: Any, layout: BlockLayout) -> Mapping[str, Use]:
    """Return the uses of a scale and a shift by channel."""
    b, scaled = (t.reshape(*t.shape[:2], -1).mT for t in (b, b * normal))
    return {
        "weight": RowGradients(layout, scaled),
        "bias": RowGradients(layout, b),
    }


def _group_norm(layer: Any, x: Any, b: Any, layout: BlockLayout) -> Mapping[str, Use]:
    return _over_channels(b, functional.group_norm(x, layer.num_groups, eps=layer.eps), layout)


def _frozen_norm(layer: Any, x: Any, b: Any, layout: BlockLayout) -> Mapping[str, Use]:
    """Return the uses of a normalization by fixed statistics."""
    normal = functional.batch_norm(x, layer.running_mean, layer.running_var, eps=layer.eps)
    return _over_channels(b, normal, layout)


def _instance_norm(layer: Any, x: Any, b: Any, layout: BlockLayout) -> Mapping[str, Use]:
    return _over_channels(b, functional.instance_norm(x, eps=layer.eps), layout)


def _linear_by_columns(_layer: Any, x: Any, b: Any, layout: BlockLayout) -> Mapping[str, Use]:
    """Return the uses of a linear map with a weight of shape (inputs, outputs)."""
    x, b = (t.reshape(len(t), -1, t.shape[-1]) for t in (x, b))
    return {"weight": Outer(layout, b, x), "bias": RowGradients(layout, b)}


def _root_mean_square(layer: Any, x: Any, b: Any, layout: BlockLayout) -> Mapping[str, Use]:
    """Return the use of a scale, or an offset to a scale of 1, after RMS normalization."""
    scaled = (b * _normal(x, _epsilon(layer))).reshape(len(x), -1, x.shape[-1])
    return {"weight": RowGradients(layout, scaled)}


def _normal(x: Any, epsilon: float) -> Any:
    """Divide numbers by their root mean square."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon)


def _epsilon(layer: Any) -> float:
    """Return the offset that a layer adds to a mean square; NaN if it is unknown."""
    for name in ("variance_epsilon", "eps", "epsilon"):
        if isinstance(value := getattr(layer, name, None), float):
            return value
    return math.nan


#: Formulas that identify layers of other libraries: the number of dimensions of the weight, which
#: of them are inputs, the formula of layer, inputs, weight and bias, and the rule.
_FORMULAS: tuple[tuple[int, int, Callable[[Any, Any, Any, Any], Any], Rule], ...] = (
    (2, 1, lambda _layer, x, weight, bias: functional.linear(x, weight, bias), _linear),
    (
        2,
        0,
        lambda _layer, x, weight, bias: x @ weight + (0 if bias is None else bias),
        _linear_by_columns,
    ),
    (
        1,
        0,
        lambda layer, x, weight, _bias: weight * _normal(x, _epsilon(layer)),
        _root_mean_square,
    ),
    (
        1,
        0,
        lambda layer, x, weight, _bias: (1 + weight) * _normal(x, _epsilon(layer)),
        _root_mean_square,
    ),
)


def by_formula(layer: Any) -> Rule | None:
    """Return the rule of a layer that matches a known formula; None if there is none.

    The layer is evaluated on random inputs and parameters. The guarantee does not depend on a
    match: a rule computes each record's gradient from this record's rows only.
    """
    shapes = {name: tuple(p.shape) for name, p in layer.named_parameters()}
    alone = not list(layer.children()) and not list(layer.buffers())
    if not alone or not {"weight"} <= shapes.keys() <= {"weight", "bias"}:
        return None
    for dims, of_inputs, formula, rule in _FORMULAS:
        if len(shapes["weight"]) == dims and _computes(layer, shapes, of_inputs, formula):
            return rule
    return None


def _computes(layer: Any, shapes: Mapping[str, Any], of_inputs: int, formula: Any) -> bool:
    """Return True if a layer computes a formula."""
    generator = torch.Generator().manual_seed(3)
    sizes = {**shapes, "x": (2, 3, shapes["weight"][of_inputs])}
    device = layer.weight.device
    results = {
        name: torch.randn(size, generator=generator, device="cpu").to(device)
        for name, size in sizes.items()
    }
    x, twin = results.pop("x"), copy.copy(layer)
    try:
        with precisely(), seeded_randomness(0):
            result = torch.func.functional_call(_Bare(twin), _of_layer(results), (x,))
            wanted = formula(layer, x, results["weight"], results.get("bias"))
            return bool(torch.allclose(result, wanted, rtol=1e-4, atol=1e-4))
    except Exception:
        # The layer needs other inputs, or does not return a tensor.
        return False


def _of_layer(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters by their names in :class:`_Bare`."""
    return {f"layer.{name}": value for name, value in parameters.items()}


def by_record(layer: Any, x: Any, b: Any, layout: BlockLayout) -> Mapping[str, Use]:
    """Return the uses of any layer with separate records, by a derivative per block."""
    parameters = {name: p.detach() for name, p in layer.named_parameters() if p.requires_grad}
    bare = _Bare(layer)

    def weighted(own: Mapping[str, Any], x: Any, b: Any) -> Any:
        return (torch.func.functional_call(bare, _of_layer(own), (x,)) * b).sum()

    derivative = torch.func.vmap(torch.func.grad(weighted), in_dims=(None, 0, 0))
    try:
        parts = [derivative(parameters, xs, bs) for _, (xs, bs) in layout.views(x, b)]
    except RuntimeError as error:
        raise ParameterError(
            f"module has a layer {type(layer).__name__} that torch.func.vmap does not support; "
            "move dropout out of it, and write it without changes in place and without branches "
            "on values.",
            name="module",
        ) from error
    return {
        name: StoredGradients(layout, torch.cat([part[name] for part in parts]))
        for name in parameters
    }


class _Bare(torch.nn.Module):
    """Layer without its hooks."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        """Call the forward function of the layer."""
        return type(self.layer).forward(self.layer, x)


RULES: Mapping[type, Rule] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.ConvTranspose1d: by_record,
    nn.ConvTranspose2d: by_record,
    nn.ConvTranspose3d: by_record,
    nn.Embedding: _embedding,
    nn.EmbeddingBag: _bag,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _rms_norm,
    nn.GroupNorm: _group_norm,
    nn.InstanceNorm1d: _instance_norm,
    nn.InstanceNorm2d: _instance_norm,
    nn.InstanceNorm3d: _instance_norm,
    nn.PReLU: _slope,
}


def _nothing(_layer: Any, _x: Any, _b: Any, _layout: BlockLayout) -> Mapping[str, Use]:
    """Return no use: the rule of a frozen layer that runs on the rows of all records."""
    return {}


#: Rules that accept numbers in half precision.
ACCEPT_HALF: frozenset[Rule] = frozenset((_linear, _linear_by_columns))


def find_rule(layer: Any, separate: tuple[type, ...]) -> Rule | None:
    """Return the rule of a layer; None to descend into its parts."""
    kind = type(layer)
    if isinstance(layer, separate):
        return by_record
    if is_frozen_norm(layer):
        return _frozen_norm if own_parameters(layer) else None
    for refused, why in REFUSED.items():
        if isinstance(layer, refused):
            raise ParameterError(f"module must not contain {kind.__name__}, {why}.", name="module")
    _check_options(layer)
    own = own_parameters(layer)
    if not own:
        return _nothing if is_four_bit(layer) else None
    if kind in RULES and own.keys() <= {"weight", "bias"}:
        return RULES[kind]
    return by_formula(layer)


def within_table(layer: Any, places: Any) -> Any:
    """Replace out-of-range indices of an embedding table by its padding, or else by 0.

    Otherwise, a record with an unknown token would stop the training, and reveal its presence.
    """
    fill = 0 if layer.padding_idx is None else layer.padding_idx
    return torch.where((places < 0) | (places >= layer.num_embeddings), fill, places)


def is_frozen_norm(layer: Any) -> bool:
    """Return True for a batch norm in evaluation mode with its own statistics."""
    return type(layer) in _BATCH_NORMS and not layer.training and layer.running_mean is not None


def is_four_bit(layer: Any) -> bool:
    """Return True for a linear map of bitsandbytes with weights of 4 bits.

    Its maps with 8 bits mix records: numbers in other rows decide which columns are rounded.
    """
    kind = type(layer)
    is_known = kind.__name__ in ("Linear4bit", "LinearNF4", "LinearFP4")
    return is_known and kind.__module__ == "bitsandbytes.nn.modules"


def own_parameters(layer: Any) -> dict[str, Any]:
    """Return the trained parameters of the layer itself, by name."""
    return {name: p for name, p in layer.named_parameters(recurse=False) if p.requires_grad}


def _is_compiled(layer: Any) -> bool:
    """Return True if ``torch.compile`` created a layer or its functions."""
    return (
        type(layer).__name__ == "OptimizedModule"
        or getattr(layer, "_compiled_call_impl", None) is not None
        or hasattr(layer.forward, "_torchdynamo_orig_callable")
    )


def _check_options(layer: Any) -> None:
    """Reject options with which a layer stores or shares information about records."""
    kind = type(layer).__name__
    if _is_compiled(layer):
        raise ParameterError(
            "module must not be compiled before make_private, because compiled code does not "
            f"call {kind} as a layer, and gradients of records are recorded when layers are "
            "called; pass the module without torch.compile.",
            name="module",
        )
    if any(base.__name__ == "FSDPModule" for base in type(layer).__mro__):
        raise ParameterError(
            "module must not be sharded by torch.distributed.fsdp, because its parameters are "
            "replaced during each pass; pass the module without fully_shard.",
            name="module",
        )
    if getattr(layer, "track_running_stats", False):
        raise ParameterError(
            f"module must use {kind} with track_running_stats=False, because running statistics "
            "would disclose records outside the guarantee.",
            name="module",
        )
    if getattr(layer, "mode", None) == "max" and isinstance(layer, nn.EmbeddingBag):
        raise ParameterError(
            "module must use EmbeddingBag with mode='sum' or 'mean', not 'max'.", name="module"
        )
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        for option, plain in (("max_norm", None), ("scale_grad_by_freq", False)):
            if getattr(layer, option) != plain:
                raise ParameterError(
                    f"module must use {kind} with {option}={plain}, not "
                    f"{getattr(layer, option)!r}, because it would depend on the other rows of a "
                    "batch.",
                    name="module",
                )
    if isinstance(layer, nn.modules.lazy.LazyModuleMixin):
        raise ParameterError(
            f"module must have parameters with shapes, but {kind} has none yet; call the module "
            "once, on zeros.",
            name="module",
        )
