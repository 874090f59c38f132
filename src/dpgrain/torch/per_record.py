"""Forward passes that treat each record as a batch of one.

The whole network runs under ``torch.func.vmap`` with inputs of one record, so each result depends
only on its own record. A tensor belongs to a record if it was computed from the record; all records
share any other tensor.

PyTorch layers and functions that treat rows separately run on the rows of all records at once,
because this is faster. Trained parameters used outside such a layer are replaced by one copy per
record, so that each copy receives the gradient of its record only.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from dpgrain.errors import ParameterError
from dpgrain.torch.guards import check_saved, hooks_on_saved
from dpgrain.torch.library import torch
from dpgrain.torch.tracked_outputs import Output, map_outputs

functional = torch.nn.functional
# Attribute of tensors computed from records; it refers to their pass.
_PASS = "_dpgrain_pass"
# Functions that read only a tensor's shape, type or device.
_ABOUT = frozenset(
    (
        "shape",
        "dtype",
        "device",
        "layout",
        "ndim",
        "requires_grad",
        "is_leaf",
        "is_cuda",
        "is_sparse",
        "is_meta",
        "is_quantized",
        "size",
        "dim",
        "numel",
        "nelement",
        "stride",
        "is_floating_point",
        "is_complex",
        "is_contiguous",
        "__len__",
        "element_size",
        "get_device",
        "names",
        "is_mps",
        "is_cpu",
        "is_xpu",
        "__hash__",
    )
)
# Functions that format a tensor's values as text, on which a network could branch.
_TEXT = frozenset(("__repr__", "__format__", "__str__"))
# Functions that draw random numbers; a single number is drawn once for all records.
_DRAWS = frozenset(
    getattr(torch, name)
    for name in ("rand", "randn", "randint", "normal", "empty")
    if hasattr(torch, name)
)
# Modules of transformers that skip a mask if no token is masked, except while tracing.
_MASKS = frozenset(
    (
        "transformers.utils.import_utils",
        "transformers.masking_utils",
        "transformers.modeling_attn_mask_utils",
    )
)


class Recording(Protocol):
    """Interface of the recorder for parameters used during a pass."""

    frozen: dict[int, Any]

    def parameter_name(self, parameter: Any) -> str | None:
        """Return the name of a trained parameter; None for any other tensor."""

    def copies(self, parameter: Any, records: int) -> Any:
        """Return the copies of a parameter, (records, …)."""

    def linear(self, weight: Any, x: Any) -> Any:
        """Return a linear map of rows, (records, …)."""

    def embedding(self, weight: Any, x: Any, padding: int | None) -> Any:
        """Return rows of an embedding table, (records, …)."""

    def tap_output(
        self, name: str, layer: Any, parameters: Mapping[str, Any], rule: Any, x: Any, out: Any
    ) -> Any:
        """Return a layer's output with a recorded gradient; tensors are (rows, …)."""

    def note_half(self, x: Any) -> None:
        """Note that a layer reads numbers in half precision."""

    def note_recomputation(self) -> None:
        """Note that the backward pass recomputes activations."""


class PerRecordMode(TorchFunctionMode):
    """Function calls of a network during a pass over a batch."""

    def __init__(self, each: Any, records: int, recording: Recording) -> None:
        super().__init__()
        self._level = torch._C._functorch.maybe_get_level(each)
        self._records, self._recording = records, recording
        self._copies: dict[int, Any] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a PyTorch function for one record."""
        kwargs = {} if kwargs is None else kwargs
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = getattr(getattr(func, "__self__", None), "__name__", "")
        if name in _ABOUT:
            if args and isinstance(args[0], Output):
                self.check(args[0])
            return func(*args, **kwargs)
        if hooks_on_saved():
            check_saved(but_checkpoints=True)
            self._recording.note_recomputation()
        if func is functional.linear or func is functional.embedding:
            weight = args[1] if len(args) > 1 else kwargs.get("weight")
            if id(weight) not in self._recording.frozen and self._recording.parameter_name(weight):
                quick = self._linear if func is functional.linear else self._embedding
                return self.mark(quick(*args, **kwargs))
        checked = tuple(self._checked(arg) for arg in args)
        named = {key: self._checked(arg) for key, arg in kwargs.items()}
        _check_draws_and_text(name, checked, kwargs)
        _check_gradients(name, checked)
        if func is torch.Tensor.requires_grad_ and is_per_record(checked[0]):
            return checked[0]
        if named.get("memory_format") is not None and checked and is_per_record(checked[0]):
            # The memory format does not belong to a record, and vmap does not support it.
            del named["memory_format"]
        if func in _DRAWS and _is_one_number(func, checked, named):
            return self._draw_once(func, checked, named)
        if func is functional.scaled_dot_product_attention:
            return self.mark(self._attention(*checked, **named))
        if func is functional.batch_norm:
            return self.mark(self._normalized(*checked, **named))
        return self.mark(func(*checked, **named))

    def mark(self, value: Any) -> Any:
        """Mark the tensors returned by a function as belonging to this pass."""
        if isinstance(value, torch.Tensor):
            if is_per_record(value):
                setattr(value, _PASS, self)
        elif isinstance(value, tuple | list):
            for part in value:
                self.mark(part)
        return value

    def check(self, tensor: Any) -> None:
        """Reject a tensor that was neither computed from a record in this pass nor shared."""
        if is_per_record(tensor):
            if getattr(tensor, _PASS, None) is not self:
                raise ParameterError(
                    "module must compute a record's outputs from this record with functions of "
                    "PyTorch, because a torch.autograd.Function or torch.func transform in the "
                    "module, or a tensor from an earlier call, may mix records.",
                    name="module",
                )
        elif isinstance(tensor, Output):
            raise ParameterError(
                "module must read a batch only as its input, not from a stored tensor, because "
                "that has rows of all records; pass the tensor to the module.",
                name="module",
            )

    def on_all_records(self, function: Callable[..., Any], *tensors: Any) -> Any:
        """Call a function of all records' rows outside vmap; tensors are (records, …)."""
        rows = [self._rows(self._checked(tensor)) for tensor in tensors]
        with torch._C.DisableTorchFunction(), _outside(self._level):
            out = function(*rows)
        return self.mark(torch._C._functorch._add_batch_dim(out, 0, self._level))

    def _rows(self, tensor: Any) -> Any:
        """Return a tensor outside vmap, (records, …)."""
        with torch._C.DisableTorchFunction():
            rows, dim = torch._C._functorch._unwrap_batched(tensor, self._level)
            if dim is None:
                rows = tensor.expand(self._records, *tensor.shape)
            elif dim:
                rows = rows.movedim(dim, 0)
        if is_per_record(rows):
            raise ParameterError(
                "module must not call a layer inside torch.vmap; call it on all positions at once.",
                name="module",
            )
        return rows

    def _checked(self, arg: Any) -> Any:
        """Return an argument of a function, with a copy instead of a trained parameter."""
        if isinstance(arg, torch.Tensor):
            self.check(arg)
            recording = self._recording
            if recording.parameter_name(arg) is None:
                return arg
            frozen = recording.frozen.get(id(arg))
            return self._copy(arg) if frozen is None else frozen
        if isinstance(arg, tuple | list):
            parts = [self._checked(part) for part in arg]
            return tuple(parts) if isinstance(arg, tuple) else parts
        if isinstance(arg, Mapping):
            return {key: self._checked(part) for key, part in arg.items()}
        return arg

    def _copy(self, parameter: Any) -> Any:
        if id(parameter) not in self._copies:
            records, recording = self._records, self._recording
            self._copies[id(parameter)] = self.on_all_records(
                lambda: recording.copies(parameter, records)
            )
        return self._copies[id(parameter)]

    def _linear(self, input: Any, weight: Any, bias: Any = None) -> Any:  # noqa: A002 - as PyTorch has it
        if input.dim() == 0:
            raise ParameterError(
                "module must call linear() with records in the first dimension; do not squeeze it.",
                name="module",
            )
        recording = self._recording
        out = self.on_all_records(lambda x: recording.linear(weight, x), input)
        return out if bias is None else out + self._checked(bias)

    def _embedding(
        self,
        input: Any,  # noqa: A002 - as PyTorch has it
        weight: Any,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,  # noqa: ARG002 - as PyTorch has it
        scale_grad_by_freq: bool = False,
        sparse: bool = False,  # noqa: ARG002 - as PyTorch has it
    ) -> Any:
        if max_norm is not None or scale_grad_by_freq:
            raise ParameterError(
                "module must call embedding without max_norm and scale_grad_by_freq, which depend on "
                "all records of a batch.",
                name="module",
            )
        recording = self._recording
        return self.on_all_records(lambda x: recording.embedding(weight, x, padding_idx), input)

    def _normalized(
        self,
        x: Any,
        mean: Any,
        var: Any,
        weight: Any = None,
        bias: Any = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Any:
        """Normalize by fixed statistics; for statistics of records, vmap sees one record."""
        fixed = (mean, var, weight, bias)
        of_records = any(t is not None and is_per_record(t) for t in fixed)
        if training or mean is None or of_records or x.dim() < 2:
            return functional.batch_norm(x, *fixed, training, momentum, eps)

        def real(rows: Any) -> Any:
            out = functional.batch_norm(rows.flatten(0, 1), *fixed, eps=eps)
            return out.unflatten(0, rows.shape[:2])

        return self.on_all_records(real, x)

    def _attention(self, *args: Any, **kwargs: Any) -> Any:
        """Attend within all records at once; fast kernels need four dimensions."""
        attend = functional.scaled_dot_product_attention
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        masks = [] if arguments.get("attn_mask") is None else [arguments["attn_mask"]]
        parts = [arguments["query"], arguments["key"], arguments["value"], *masks]
        first = {part.shape[0] for part in parts[:3] if part.dim() == 4}
        if any(part.dim() != 4 for part in parts[:3]) or len(first) > 1:
            return attend(**arguments)
        rows = first.pop()
        if masks:
            mask = masks[0]
            mask = mask[(None,) * (4 - mask.dim())]
            mask = mask.expand(rows, -1, -1, -1) if is_per_record(mask) else mask
            parts[3:] = [self.mark(mask)]
        others = {
            n: v for n, v in arguments.items() if n not in ("query", "key", "value", "attn_mask")
        }
        if masks and not is_per_record(parts[3]) and parts[3].shape[0] != 1:
            return attend(**arguments)
        shared = parts.pop() if masks and not is_per_record(parts[3]) else None

        def real(*rows_of: Any) -> Any:
            flat = [t.flatten(0, 1) for t in rows_of]
            mask = flat[3] if len(flat) == 4 else shared
            out = attend(*flat[:3], attn_mask=mask, **others)
            return out.unflatten(0, rows_of[0].shape[:2])

        return self.on_all_records(real, *parts)

    def _draw_once(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call a function once for all records, outside vmap."""
        drawn: list[Any] = []

        def real() -> Any:
            drawn.append(func(*args, **kwargs))
            return torch.zeros(self._records)

        self.on_all_records(real)
        return drawn[0]


@contextmanager
def _outside(level: int) -> Iterator[None]:
    """Leave the vmap of a level and all inside, as PyTorch's custom batching rules do."""
    with ExitStack() as left:
        while (layer := torch._C._functorch.peek_interpreter_stack()) and layer.level() >= level:
            left.enter_context(temporarily_pop_interpreter_stack())
        yield


def run_per_record(
    call: Callable[..., Any],
    inputs: Any,
    are_rows: Sequence[bool],
    records: int,
    recording: Recording,
) -> tuple[Any, list[Any], PerRecordMode]:
    """Return a network's outputs, which of them belong to records, and the pass.

    The network is called with each record as a batch of one; outputs are (records, …) tensors.
    """
    leaves, form = tree_flatten(inputs)
    own = [leaf for leaf, is_rows in zip(leaves, are_rows, strict=True) if is_rows]
    outputs: dict[int, Any] = {}
    out: Any = None
    mode: Any = None

    def one(each: Any, rows: Any) -> list[Any]:
        nonlocal out, mode
        mode = PerRecordMode(each, records, recording)
        each_row = iter(rows)
        filled = [
            mode.mark(next(each_row).unsqueeze(0)) if is_rows else leaf
            for leaf, is_rows in zip(leaves, are_rows, strict=True)
        ]
        positional, named = tree_unflatten(filled, form)
        with mode, _full_masks():
            out = call(*positional, **named)

        def keep(tensor: Any) -> Any:
            mode.check(tensor)
            if is_per_record(tensor):
                outputs.setdefault(id(tensor), (tensor, len(outputs)))
            return tensor

        map_outputs(keep, out)
        return [tensor for tensor, _ in outputs.values()]

    device = own[0].device
    with _silent_fallbacks():
        mapped = torch.func.vmap(one, randomness="different")(
            torch.zeros(records, device=device), own
        )
    are: list[Any] = []

    def rows(tensor: Any) -> Any:
        _, place = outputs.get(id(tensor), (None, None))
        are.append(None if place is None else mapped[place])
        return tensor if place is None else mapped[place]

    return map_outputs(rows, out), are, mode


def run_backward(mode: PerRecordMode, records: int, total: Any) -> None:
    """Run a backward pass that calls layers again, within their original pass."""

    def one(each: Any) -> Any:
        with mode, _full_masks():
            # vmap rejects Tensor.backward, because it would run once per record.
            torch.autograd.graph._engine_run_backward(
                (total,), (ones,), False, False, (), allow_unreachable=True, accumulate_grad=True
            )
        return each

    ones = torch.ones_like(total)
    with _silent_fallbacks():
        torch.func.vmap(one, randomness="different")(torch.zeros(records))


def is_per_record(tensor: Any) -> bool:
    """Return True if a tensor was computed from a record of the current pass."""
    return bool(torch._C._functorch.is_batchedtensor(tensor))


def _check_draws_and_text(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Reject draws that depend on a record's position, and text with its values."""
    if kwargs.get("generator") is not None:
        raise ParameterError(
            f"module must call {name}() without generator=, because the draws for a record would "
            "depend on the record's position in the batch; omit it.",
            name="module",
        )
    if name in _TEXT and is_per_record(args[0]):
        raise ParameterError(
            "module must not convert a record's numbers to text, because a branch on it would "
            "depend on other records; remove the conversion.",
            name="module",
        )


def _check_gradients(name: str, args: Sequence[Any]) -> None:
    """Reject functions that modify gradients during the backward pass."""
    changes = "hook" in name or name in ("grad_fn", "retain_grad")
    if changes and any(isinstance(arg, torch.Tensor) and is_per_record(arg) for arg in args):
        raise ParameterError(
            f"module must not call {name}(), which can change gradients of all records together; "
            "remove the call.",
            name="module",
        )
    if name == "custom_function_call":
        kind = args[0]
        if not kind.generate_vmap_rule or "vmap" in vars(kind):
            raise ParameterError(
                f"module must not use {kind.__name__}, a torch.autograd.Function with a custom "
                "batching rule, which may mix records; write it with functions of PyTorch.",
                name="module",
            )


def _is_one_number(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return True if a function draws a single number, without tensors."""
    if any(isinstance(arg, torch.Tensor) for arg in args):
        return False
    if "size" in kwargs:
        size = kwargs["size"]
    elif func in (torch.randint, torch.normal):
        size = args[-1]
    else:
        size = args[0] if len(args) == 1 else args
    return size in ((), [])


@contextmanager
def _silent_fallbacks() -> Iterator[None]:
    """Silence warnings about slow functions without a vmap rule."""
    torch._C._functorch._set_vmap_fallback_warning_enabled(False)
    try:
        yield
    finally:
        torch._C._functorch._set_vmap_fallback_warning_enabled(True)


_inside = threading.local()
_is_tracing = torch.jit.is_tracing


def _is_tracing_or_inside() -> bool:
    """Return True while tracing or within a pass, to keep masks independent of values."""
    if getattr(_inside, "passes", 0) and sys._getframe(1).f_globals.get("__name__") in _MASKS:
        return True
    return bool(_is_tracing())


torch.jit.is_tracing = _is_tracing_or_inside


@contextmanager
def _full_masks() -> Iterator[None]:
    """Make transformers build masks regardless of the masked tokens in a batch."""
    _inside.passes = getattr(_inside, "passes", 0) + 1
    try:
        yield
    finally:
        _inside.passes -= 1
