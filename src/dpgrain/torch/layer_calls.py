"""Recorded calls of layers: taps on gradients, and forward functions during a pass."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dpgrain.errors import ParameterError
from dpgrain.torch.block_gradients import RowGradients, Use, Uses, to_single
from dpgrain.torch.layers import ACCEPT_HALF, RULES, Rule, is_four_bit, is_frozen_norm
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.library import torch
from dpgrain.torch.per_record import PerRecordMode, Recording
from dpgrain.torch.tracked_outputs import Pass

# Input dimensions of layers that run on the rows of all records at once, by type; see also
# `_input_dims`.
_DIMS: Mapping[type, int] = {
    torch.nn.Linear: 2,
    torch.nn.Embedding: 2,
    torch.nn.EmbeddingBag: 2,
    torch.nn.GroupNorm: 2,
    torch.nn.PReLU: 2,
    torch.nn.InstanceNorm1d: 3,
    torch.nn.InstanceNorm2d: 4,
    torch.nn.InstanceNorm3d: 5,
}


# The same for batch norms with fixed statistics.
_FROZEN_DIMS: Mapping[type, int] = {
    torch.nn.BatchNorm1d: 2,
    torch.nn.BatchNorm2d: 4,
    torch.nn.BatchNorm3d: 5,
    torch.nn.SyncBatchNorm: 2,
}


@dataclass(frozen=True, eq=False)
class LayerCall:
    """One call of one layer; only ``batch_pass``'s backward pass may bring gradients."""

    name: str
    layer: Any
    parameters: Mapping[str, Any]
    rule: Rule
    layout: BlockLayout
    uses: Uses
    batch_pass: Pass

    def record(self, x: Any, gradient: Any) -> None:
        """Record the blocks' contributions to parameters; tensors are (rows, …)."""
        self.batch_pass.check_gradient(self.name, gradient)
        with self.uses.recording():
            x, b = x.detach(), gradient.detach()
            if self.rule not in ACCEPT_HALF:
                x, b = to_single(x), to_single(b)
            uses = self.rule(self.layer, x, b, self.layout)
            for name, parameter in self.parameters.items():
                if name in uses:
                    self.uses.add(parameter, uses[name])


class Tap(torch.autograd.Function):
    """Identity function with a backward pass that forwards the gradient to a call."""

    @staticmethod
    def forward(ctx: Any, out: Any, _anchor: Any, x: Any, call: LayerCall) -> Any:
        """Return a layer's output, which now requires a gradient."""
        ctx.call = call
        ctx.save_for_backward(x)
        return out.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Pass the gradient to the call, and to the layer's input."""
        (gradient,) = gradients
        call: LayerCall = ctx.call
        try:
            (x,) = ctx.saved_tensors
        except RuntimeError as error:
            raise ParameterError(
                f"the input of layer {call.name!r} is gone: it was changed in place after the "
                "layer read it (write the change as a new tensor), or an earlier backward pass "
                "freed it (call backward() once per batch).",
                name="module",
            ) from error
        with torch._C.DisableTorchFunction():
            call.record(x, gradient)
        return gradient if ctx.needs_input_grad[0] else None, None, None, None


class CopyTap(torch.autograd.Function):
    """Copies of a parameter for each record, with gradients passed to a call."""

    @staticmethod
    def forward(ctx: Any, copies: Any, _anchor: Any, call: LayerCall) -> Any:
        """Return the copies, which use no memory and require a gradient."""
        ctx.call = call
        return copies.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Pass the gradients of copies to the call, and none to the parameter."""
        (gradient,) = gradients
        with torch._C.DisableTorchFunction():
            ctx.call.record(gradient, gradient)
        return None, None, None


class RecordedCall:
    """Recorded call of a module; copies of the module have an ordinary call."""

    def __init__(self, module: Any, call: Callable[..., Any]) -> None:
        self._module, self._call = module, call

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """Call the function."""
        return self._call(*inputs, **keywords)

    def __reduce__(self) -> Any:
        # Used by copy and pickle.
        return plain_call, (self._module,)


def plain_call(module: Any) -> Any:
    """Return the PyTorch call of a module."""
    return types.MethodType(type(module)._call_impl, module)


class Hook:
    """Hook of a module that its copies do not have.

    Copies, such as averaged weights, are ordinary modules without references to the run.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """Call the function."""
        return self._call(*inputs, **keywords)

    def __reduce__(self) -> Any:
        # Used by copy and pickle.
        return Hook, (_nothing,)


def _nothing(*_inputs: Any, **_keywords: Any) -> None:
    """Do nothing; the hook of copies."""


class RecordedForward:
    """Forward function of a layer with a rule, during a pass."""

    def __init__(self, recorder: Recording, layer: Any, name: str, rule: Rule) -> None:
        self._recorder, self._layer, self._name, self._rule = recorder, layer, name, rule
        self._parameters = {n: p for n, p in layer.named_parameters() if p.requires_grad}

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """Return the layer's output, with a recorded gradient."""
        if len(inputs) != 1 or keywords or not isinstance(inputs[0], torch.Tensor):
            raise ParameterError(
                f"layer {self._name!r} must be called with one tensor.", name="module"
            )
        mode = _current_pass()
        # A network called outside autocast may enable it itself.
        self._recorder.note_half(inputs[0])
        layer, (x,) = self._layer, inputs
        if mode is None:
            # The module runs on all synthetic records together.
            return type(layer).forward(layer, x)
        if (dims := _input_dims(layer)) is not None:
            if x.dim() < dims - 1:
                raise ParameterError(
                    f"layer {self._name!r} must be called with a tensor of at least {dims} "
                    f"dimensions, records first, not {x.dim() + 1}; do not squeeze it.",
                    name="module",
                )
            return mode.on_all_records(self._on_rows, x)
        with self._frozen():
            out = type(layer).forward(layer, x)
        if not isinstance(out, torch.Tensor) or out.dim() == 0 or out.shape[:1] != x.shape[:1]:
            raise ParameterError(
                f"layer {self._name!r} must return one tensor with one row per record.",
                name="module",
            )
        return mode.on_all_records(self._tap, x, out)

    def _on_rows(self, x: Any) -> Any:
        """Run the layer on the inputs of all records at once, (records, …)."""
        rows, sizes = _flat(x, _input_dims(self._layer))
        trained = list(self._parameters.values())
        for parameter in trained:
            parameter.requires_grad_(False)
        try:
            out = type(self._layer).forward(self._layer, rows)
        finally:
            for parameter in trained:
                parameter.requires_grad_(True)
        return _folded(self._tapped(rows, out), sizes)

    def _tap(self, x: Any, out: Any) -> Any:
        """Record the gradient of the outputs, (records, …)."""
        x, sizes = _flat(x, 2)
        return _folded(self._tapped(x, _flat(out, 2)[0] if sizes else out), sizes)

    def _tapped(self, x: Any, out: Any) -> Any:
        if not self._parameters:
            return out
        return self._recorder.tap_output(
            self._name, self._layer, self._parameters, self._rule, x, out
        )

    @contextmanager
    def _frozen(self) -> Iterator[None]:
        """Pass parameters without gradients, because the rule computes their gradients."""
        before, recorder = self._recorder.frozen, self._recorder
        recorder.frozen = {id(p): p.detach() for p in self._parameters.values()}
        try:
            yield
        finally:
            recorder.frozen = before


def _input_dims(layer: Any) -> int | None:
    """Return the input dimensions of a PyTorch layer; None for other layers."""
    kind = type(layer)
    if is_frozen_norm(layer):
        return _FROZEN_DIMS[kind]
    if is_four_bit(layer):
        return _DIMS[torch.nn.Linear]
    if kind not in RULES or not kind.__module__.startswith("torch.nn."):
        return None
    if kind in (torch.nn.LayerNorm, torch.nn.RMSNorm):
        return len(layer.normalized_shape) + 1
    return _DIMS[kind] if kind in _DIMS else len(layer.kernel_size) + 2


def _flat(x: Any, dims: int | None) -> tuple[Any, Any]:
    """Flatten (records, rows, …) if a record has rows, and return the inverse."""
    if dims is not None and x.dim() > dims:
        return x.flatten(0, 1), x.shape[:2]
    return x, None


def _folded(rows: Any, sizes: Any) -> Any:
    return rows if sizes is None else rows.unflatten(0, sizes)


def copies_rule(name: str) -> Rule:
    """Return the rule of a parameter's copies, with one gradient per record."""

    def uses(_layer: Any, _x: Any, b: Any, layout: BlockLayout) -> Mapping[str, Use]:
        return {name: RowGradients(layout, b[:, None])}

    return uses


def _current_pass() -> PerRecordMode | None:
    """Return the current pass of a network."""
    modes = torch.overrides._get_current_function_mode_stack()
    return next((mode for mode in reversed(modes) if isinstance(mode, PerRecordMode)), None)
