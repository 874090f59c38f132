"""Outputs of a network in a private run, which track their records up to the loss.

A block's gradient is separate only if the loss is a sum over records of terms that each depend on
one record. The network therefore returns an :class:`Output`. :data:`RULES` is a closed list of
functions that keep records separate. Results of other functions can be read, but no backward pass
can start from them. A gradient that reaches a layer by another path is rejected there.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from torch.utils._pytree import tree_leaves, tree_map

from dpgrain.errors import ParameterError
from dpgrain.torch.gradient_precision import half_mean, is_half
from dpgrain.torch.guards import READS, check_reader, check_saved
from dpgrain.torch.library import torch

functional = torch.nn.functional

Reduction: TypeAlias = Literal["mean", "sum"]

_SEVERAL = (
    "it combines several batches, or tensors from the loader with outputs for inputs created in the "
    "loop; create these inputs in the data set or in collate_fn"
)
_REMEDY = (
    "return a loss of shape (records,), each entry from its record only, or its .mean() or "
    ".sum(); dpgrain.torch.losses has the losses of language models (causal_lm, masked_lm, "
    "seq2seq, classification), and dpgrain.torch.record_losses(loss, outputs, target) computes "
    "losses from any function of one record"
)
#: Label that cross-entropy ignores by default, in PyTorch and Hugging Face.
IGNORED_LABEL = -100
# Reader of a tensor's graph node, at which gradients can be modified.
_READS_NODE = torch.Tensor.grad_fn.__get__


@dataclass(eq=False)
class Pass:
    """One forward pass over a batch, for at most one backward pass.

    If ``is_tracked``, the tensors with rows of its records are known; otherwise all tensors with
    the same number of rows count. Layers accept gradients only while ``is_running``.
    """

    records: int
    reduction: Reduction
    around: Callable[[Any], None] = lambda total: total.backward()
    is_tracked: bool = False
    is_running: bool = False
    _was_run: bool = False

    def backward(self, total: Any) -> None:
        """Run the backward pass of this batch, from the sum of the losses of records."""
        if self._was_run:
            raise ParameterError(
                "loss.backward() was called twice on one batch; call it once, on the sum of all "
                "losses."
            )
        self._was_run = self.is_running = True
        try:
            self.around(total)
        finally:
            self.is_running = False

    def check_gradient(self, layer: str, gradient: Any) -> None:
        """Reject a gradient from another path, or with digits lost in half precision."""
        if not self.is_running:
            raise unclipped_gradient()
        if is_half(gradient.dtype) and self.reduction == "mean":
            raise half_mean(f"layer {layer!r} returns {gradient.dtype}")

    def output(self, tensor: Any, form: Form, why: str = "", total: Any = None) -> Output:
        """Return a tensor with its origin; ``why`` explains the form "neither"."""
        output: Output = tensor.as_subclass(torch.Tensor).as_subclass(Output)
        output.origin = OutputOrigin(self, form, why, output._version, _graph_node(output), total)
        return output

    def whole(self, tensor: Any) -> Output:
        """Return a tensor computed from all records together."""
        why = (
            f"the module itself computed {_shape(tensor)} from all {self.records} records, which "
            "happens when a model is called with labels"
        )
        return self.output(tensor, "neither", why)

    def shared(self, tensor: Any) -> Output:
        """Return an output that was not computed from records."""
        why = f"the module returned {_shape(tensor)} that was not computed from records"
        return self.output(tensor, "neither", why)


Form: TypeAlias = Literal["rows", "sum", "mean", "neither"]


@dataclass(frozen=True, eq=False)
class OutputOrigin:
    """Origin of an output: its pass, and how it depends on records."""

    batch_pass: Pass
    form: Form  # rows per record in order, over one number each, or neither
    why: str
    version: int
    node: Any  # detects a custom ``torch.autograd.Function``, which could mix gradients
    total: Any = None  # the sum: the rounding of a mean depends on the number of records


# Pass of copies, without records.
_NONE = Pass(0, "sum")


class Output(torch.Tensor):
    """Tensor computed by a network from a batch, or derived from such tensors."""

    origin: OutputOrigin | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return a copy without its graph, of the same records."""
        copied = memo[id(self)] = self.detach().clone()
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle the numbers as a plain tensor, without the run."""
        return plain(self).__reduce_ex__(protocol)

    def check_is_batch(self, batch_pass: Pass | None) -> None:
        """Reject a network input unless it is the current batch of the loader."""
        origin = _current_origin(self)
        if origin.form == "rows" and origin.batch_pass is batch_pass:
            return
        why = (
            origin.why
            if origin.form == "neither"
            else "it is from another batch, or sums over records"
        )
        raise ParameterError(
            f"module must be called with the rows of the batch from the loader ({why}); change "
            "each record separately, also in the data set, and do not mix records of different "
            "people.",
            name="module",
        )

    def __format__(self, spec: str) -> str:
        with torch._C.DisableTorchFunctionSubclass():
            return format(self.detach().as_subclass(torch.Tensor), spec)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a PyTorch function, and determine the origin of its result."""
        kwargs = {} if kwargs is None else kwargs
        check_saved(but_checkpoints=True)
        if func is torch.Tensor.backward:
            with torch._C.DisableTorchFunctionSubclass():
                batch_pass, total = _backward_start(*args, **kwargs)
            # It can call layers again, with tensors of known origin.
            batch_pass.backward(total)
            return None
        if _name(func) in READS:
            check_reader(sys._getframe(1))
        with torch._C.DisableTorchFunctionSubclass():
            _check_reads(func, args, kwargs)
            origins = [_current_origin(t) for t in _tensors(args, kwargs) if isinstance(t, Output)]
            if not origins:
                return func(*args, **kwargs)
            batch_pass, why = origins[0].batch_pass, _why_unknown(func, origins)
            if not why:
                try:
                    return RULES[func](batch_pass, func, args, kwargs)
                except _MixesError as error:
                    why = f"{_source_name(func)} {error}"
            return _map_tree(func(*args, **kwargs), lambda t: batch_pass.output(t, "neither", why))


def plain(tensor: Any) -> Any:
    """Return a tensor without its origin."""
    if isinstance(tensor, Output):
        with torch._C.DisableTorchFunctionSubclass():
            return tensor.as_subclass(torch.Tensor)
    return tensor


class _MixesError(Exception):
    """Call that could mix records; the message explains how."""


def _current_origin(output: Output) -> OutputOrigin:
    """Return the current origin of an output."""
    origin = output.origin
    if origin is None:
        return OutputOrigin(_NONE, "neither", "it is a copy of an output", 0, None)
    if origin.version != output._version:
        return replace(origin, form="neither", why="it was changed in place")
    if origin.node is not _graph_node(output):
        return replace(origin, form="neither", why="a torch.autograd.Function computed it")
    return origin


def _graph_node(output: Any) -> Any:
    """Return the graph node of an output; None if it has no gradient."""
    with torch._C.DisableTorchFunctionSubclass():
        return output.grad_fn


def _why_unknown(func: Any, origins: list[OutputOrigin]) -> str:
    """Explain why a function of outputs has no rule; empty if it has one."""
    for origin in origins:
        if origin.form == "neither":
            return origin.why
    if any(origin.batch_pass is not origins[0].batch_pass for origin in origins):
        return _SEVERAL
    return "" if func in RULES else f"{_source_name(func)} is not known to treat records separately"


def _backward_start(
    loss: Any,
    gradient: Any = None,
    retain_graph: Any = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> tuple[Pass, Any]:
    """Return the pass of a loss with separate records, and the sum to start from."""
    if gradient is not None or retain_graph or create_graph or inputs is not None:
        raise ParameterError(
            "loss.backward() must be called without gradient, retain_graph, create_graph and "
            "inputs, because a batch has one backward pass and none through its gradients (a "
            "gradient penalty)."
        )
    origin = _current_origin(loss)
    batch_pass = origin.batch_pass
    if origin.form == "rows" and loss.shape == (batch_pass.records,):
        total = loss.sum()
    elif origin.form == "rows":
        raise _mixing_loss(f"it has the shape {tuple(loss.shape)}, not one number per record")
    elif origin.form == "neither":
        raise _mixing_loss(origin.why)
    elif origin.form != batch_pass.reduction:
        raise ParameterError(
            f"loss_reduction must be {origin.form!r}, not {batch_pass.reduction!r}, because the "
            f"loop's loss is a {origin.form} over records; pass loss_reduction={origin.form!r} to "
            f"make_private, or call .{batch_pass.reduction}() in the loop.",
            name="loss_reduction",
        )
    else:
        total = loss if origin.total is None else origin.total
    return batch_pass, total.as_subclass(torch.Tensor)


def _mixing_loss(why: str) -> ParameterError:
    return ParameterError(
        f"the loss is not known to be a mean or a sum over records ({why}); {_REMEDY}.", name="loss"
    )


def unclipped_gradient() -> ParameterError:
    """Return the error about a gradient without a backward pass of a loss."""
    return ParameterError(
        "a gradient reached a layer without loss.backward() on the module's outputs, and such "
        "gradients are not clipped (torch.autograd.grad, torch.autograd.backward, transforms of "
        "torch.func, a second backward pass, losses of stored tensors); call backward() once per "
        "batch, on a loss computed from the module's outputs.",
        name="loss",
    )


def plain_rows(value: Any) -> tuple[Pass | None, Any]:
    """Replace outputs with rows of records by plain tensors, and return their pass."""
    origins = [_current_origin(t) for t in _tensors(value) if isinstance(t, Output)]
    for origin in origins:
        if origin.form != "rows":
            raise _mixing_loss(origin.why or "records were summed before")
        if origin.batch_pass is not origins[0].batch_pass:
            raise _mixing_loss(_SEVERAL)
    batch_pass = origins[0].batch_pass if origins else None
    unknown = [t for t in _tensors(value) if t.dim() and not isinstance(t, Output)]
    if batch_pass is not None and batch_pass.is_tracked and unknown:
        raise _mixing_loss(
            f"{_shape(unknown[0])} is not known to have one row per record of the batch"
        )
    return batch_pass, _map_tree(value, lambda t: t.as_subclass(torch.Tensor))


# -- inspection of calls --


def is_rows(tensor: Any, records: int) -> bool:
    """Return True if a tensor has a row for each record."""
    return isinstance(tensor, torch.Tensor) and tensor.dim() > 0 and len(tensor) == records


def within_classes(labels: Any, classes: int, left_out: int = IGNORED_LABEL) -> Any:
    """Replace out-of-range labels, (records, …), by the ignored label."""
    return torch.where((labels < 0) | (labels >= classes), left_out, labels)


def map_outputs(function: Callable[[Any], Any], out: Any) -> Any:
    """Apply a function to each tensor of a network's outputs."""

    def mapped_leaf(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return function(leaf)
        if isinstance(leaf, torch.nn.Module) or not hasattr(leaf, "__dict__"):
            return leaf
        values = {name: map_outputs(function, value) for name, value in vars(leaf).items()}
        if all(values[name] is value for name, value in vars(leaf).items()):
            return leaf
        changed = copy.copy(leaf)
        vars(changed).update(values)
        return changed

    return tree_map(mapped_leaf, out)


def _map_tree(tree: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a function to each tensor of a PyTorch function's result."""
    return tree_map(lambda t: function(t) if isinstance(t, torch.Tensor) else t, tree)


def _tensors(*args: Any) -> list[Any]:
    return [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]


def _shape(tensor: Any) -> str:
    return f"a tensor of shape {tuple(tensor.shape)}" if tensor.dim() else "one number"


def _name(func: Any) -> str:
    return str(getattr(func, "__name__", func))


def _source_name(func: Any) -> str:
    """Return the name of a PyTorch function or attribute, as in source code."""
    if _name(func) == "__get__":
        return f".{func.__self__.__name__}"
    return f"{_name(func)}()"


def _check_reads(func: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
    """Reject a function that modifies gradients, or writes outputs into a tensor.

    An output changed in place is recognized by its version. Adding up numbers for a log is allowed.
    """
    name = "grad_fn" if func == _READS_NODE else _name(func)
    if "hook" in name or name in ("grad_fn", "retain_grad", "__set__", "__delete__"):
        raise ParameterError(
            f"the module's outputs must not be changed by {name}, which can change gradients in "
            "the backward pass; remove it.",
            name="module",
        )
    writes = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
    into = kwargs.get("out", args[0] if writes and args else None)
    if isinstance(into, torch.Tensor) and into.dim() and not isinstance(into, Output):
        raise ParameterError(
            f"the module's outputs must not be written into another tensor by {name}(), because "
            "that hides their origin; create a new tensor, and log numbers as loss.item().",
            name="module",
        )


# -- the closed list of functions that keep records separate --

#: Map a pass, a function and its arguments to its result as outputs.
Rule: TypeAlias = Callable[[Pass, Any, Any, Any], Any]


def _check_same_rows(batch_pass: Pass, result: Any, tensors: list[Any]) -> None:
    """Reject tensors unless their rows belong to the same records as a result's."""
    if not isinstance(result, torch.Tensor):
        raise _MixesError("returns no tensor with one row per record")
    for tensor in tensors:
        if not (
            _has_same_rows(batch_pass, tensor, result) or _is_shared(batch_pass, tensor, result)
        ):
            raise _MixesError(
                f"combines {_shape(tensor)} with {_shape(result)}, which does not have one row "
                "per record of the batch"
            )


def _has_same_rows(batch_pass: Pass, tensor: Any, like: Any) -> bool:
    """Return True if two tensors have rows of the same records."""
    known = isinstance(tensor, Output) or not batch_pass.is_tracked
    return known and tensor.dim() == like.dim() and is_rows(tensor, len(like))


def _is_shared(batch_pass: Pass, tensor: Any, like: Any) -> bool:
    """Return True if a tensor is independent of the batch and equal for each record."""
    if isinstance(tensor, Output) or not batch_pass.is_tracked:
        return False
    return bool(tensor.dim() < like.dim() or (tensor.dim() == like.dim() and tensor.shape[0] == 1))


def _check_constant(tensor: Any) -> None:
    """Reject a tensor that requires a gradient but is not an output of the module."""
    if tensor.requires_grad and not isinstance(tensor, Output):
        raise _MixesError(
            "has a tensor with requires_grad that the module did not return, such as a penalty "
            "(use weight_decay of the optimizer instead)"
        )


def _first_output(args: Any) -> Any:
    """Return the output passed as a function's first argument."""
    if not args or not isinstance(args[0], Output) or args[0].origin is None:
        raise _MixesError("must have the output as its first argument")
    if args[0].origin.form != "rows":
        raise _MixesError("comes after records were summed: apply it to each record's loss first")
    return args[0]


def _elementwise(batch_pass: Pass, func: Any, args: Any, kwargs: Any) -> Any:
    """Apply an elementwise function."""
    tensors = _tensors(args, kwargs)
    for tensor in tensors:
        _check_constant(tensor)
    if any(_current_origin(t).form != "rows" for t in tensors if isinstance(t, Output)):
        raise _MixesError("comes after records were summed: apply it to each record's loss first")
    result = func(*args, **kwargs)
    _check_same_rows(batch_pass, result, tensors)
    return batch_pass.output(result, "rows")


def _added(batch_pass: Pass, func: Any, args: Any, kwargs: Any) -> Any:
    """Add numbers or rows of records, or add sums over records to each other."""
    tensors = _tensors(args, kwargs)
    forms = {_current_origin(t).form if isinstance(t, Output) else "neither" for t in tensors}
    if forms == {"sum"} and not kwargs:
        return batch_pass.output(func(*args), "sum")
    if forms == {"mean"} and not kwargs:
        totals = (_current_origin(t).total if isinstance(t, Output) else t for t in args)
        return batch_pass.output(func(*args), "mean", total=func(*totals))
    return _elementwise(batch_pass, func, args, kwargs)


def _along(place: int, default: Any = None) -> Rule:
    """Return the rule of functions along dimensions other than the first."""

    def rule(batch_pass: Pass, func: Any, args: Any, kwargs: Any) -> Any:
        x = _first_output(args)
        if len(_tensors(args, kwargs)) > 1:
            raise _MixesError("has another tensor in addition to the output")
        stated = kwargs.get("dim", args[place] if len(args) > place else default)
        dims = _dims(stated, x)
        form = _name(func)
        if form in ("sum", "mean") and dims == set(range(x.dim())):
            result = func(*args, **kwargs)
            if result.dim() == 0:
                total = None if form == "sum" else _total(batch_pass, x, kwargs.get("dtype"))
                return batch_pass.output(result, form, total=total)  # type: ignore[arg-type]
        if 0 in dims:
            raise _MixesError("acts across records: pass another dimension, such as dim=1")
        return _map_tree(func(*args, **kwargs), lambda t: batch_pass.output(t, "rows"))

    return rule


def _total(batch_pass: Pass, each: Any, dtype: Any = None) -> Any:
    """Return the sum over records of the mean of each record's entries."""
    return each.sum(dtype=dtype) / max(each.numel() // max(batch_pass.records, 1), 1)


def _dims(stated: Any, x: Any) -> set[int]:
    """Return non-negative dimensions; all dimensions by default."""
    every = range(x.dim())
    listed = every if stated is None else [stated] if isinstance(stated, int) else list(stated)
    return {dim % x.dim() for dim in listed} or set(every)


def _reshaped(batch_pass: Pass, func: Any, args: Any, kwargs: Any) -> Any:
    """Reshape entries without reordering them."""
    x, result = _first_output(args), func(*args, **kwargs)
    whole = result.dim() > 0 and len(result) > 0 and len(result) % batch_pass.records == 0
    if not whole or result.numel() != x.numel():
        raise _MixesError("changes the first dimension, which must be records")
    return batch_pass.output(result, "rows")


def _squeezed(batch_pass: Pass, _func: Any, args: Any, kwargs: Any) -> Any:
    """Remove dimensions of size 1, but never the dimension of records."""
    x = _first_output(args)
    stated = kwargs.get("dim", args[1] if len(args) > 1 else range(1, x.dim()))
    dims = _dims(stated, x) if x.dim() > 1 else set()
    if 0 in dims:
        raise _MixesError("acts across records: pass another dimension, such as dim=1")
    return batch_pass.output(x.squeeze(tuple(dims)), "rows")


def _permuted(batch_pass: Pass, func: Any, args: Any, kwargs: Any) -> Any:
    """Permute all dimensions except the first."""
    x, result = _first_output(args), func(*args, **kwargs)
    stated = [*args[1:], *kwargs.values()]
    flat = stated[0] if len(stated) == 1 and not isinstance(stated[0], int) else stated
    dims = [dim % x.dim() for dim in flat]
    if (dims[0] != 0) if len(dims) == x.dim() and _name(func) == "permute" else (0 in dims):
        raise _MixesError("moves the dimension of records")
    return batch_pass.output(result, "rows")


def _swapped(batch_pass: Pass, func: Any, args: Any, kwargs: Any) -> Any:
    """Swap the last two dimensions, neither of which is the first."""
    if _first_output(args).dim() < 3:
        raise _MixesError("moves the dimension of records")
    return batch_pass.output(func(*args, **kwargs), "rows")


def _indexed(batch_pass: Pass, func: Any, args: Any, kwargs: Any) -> Any:
    """Index entries of each record by integers and slices."""
    if isinstance(args[1], Output) and not isinstance(args[0], Output):
        return _looked_up(batch_pass, func, args, kwargs)
    x, index = _first_output(args), args[1]
    parts = index if isinstance(index, tuple) else (index,)
    plain = all(part is None or part is ... or _is_plain(part) for part in parts)
    taken = sum(part is not None and part is not ... for part in parts)
    whole = bool(parts) and (
        (isinstance(parts[0], slice) and parts[0] == slice(None))
        or (parts[0] is ... and taken < x.dim())
    )
    if not plain or not whole or any(isinstance(part, bool) for part in parts):
        raise _MixesError("selects records: write x[:, …], which includes all of them")
    return batch_pass.output(func(*args, **kwargs), "rows")


def _looked_up(batch_pass: Pass, func: Any, args: Any, kwargs: Any) -> Any:
    """Look up rows of a table at indices of each record."""
    if args[1].dtype not in (torch.int32, torch.int64):
        raise _MixesError("selects rows by a mask of the batch: use integers, the indices of rows")
    return batch_pass.output(func(*args, **kwargs), "rows")


def _is_plain(part: Any) -> bool:
    """Return True if an index is an integer or a slice of integers."""
    if isinstance(part, slice):
        return all(
            end is None or isinstance(end, int) for end in (part.start, part.stop, part.step)
        )
    return isinstance(part, int)


def _gathered(batch_pass: Pass, func: Any, args: Any, kwargs: Any) -> Any:
    """Gather entries of each record's row at the record's own indices."""
    x = _first_output(args)
    if len(args) != 3 or kwargs or 0 in _dims(args[1], x):
        raise _MixesError("acts across records: write x.gather(1, places)")
    result = func(*args)
    _check_same_rows(batch_pass, result, [x, args[2]])
    return batch_pass.output(result, "rows")


def _elementwise_loss(batch_pass: Pass, func: Any, args: Any, kwargs: Any) -> Any:
    """Apply an elementwise PyTorch loss, and reduce it as requested."""

    def check(each: Any) -> None:
        _check_same_rows(batch_pass, each, _tensors(args))
        for name in _WEIGHTS:
            weight = kwargs.get(name)
            if (
                batch_pass.is_tracked
                and weight is not None
                and not _is_shared(batch_pass, weight, each)
            ):
                raise _MixesError(f"has a {name} with a row for each position of the batch")

    return _reduced(batch_pass, func, args, kwargs, check)


def _class_loss(batch_pass: Pass, func: Any, args: Any, kwargs: Any) -> Any:
    """Apply cross-entropy to outputs of shape (records, classes, …).

    A mean over labels divides by a number that depends on other records, except with one label per
    record: then it is a mean over records, with loss 0 for the label −100.
    """
    x, target = _first_output(args), args[1]
    known = isinstance(target, Output) or not batch_pass.is_tracked
    if x.dim() < 2 or not known or not is_rows(target, len(x)):
        raise _MixesError("must have outputs (records, classes, …), and one target per record")
    by_label = target.dim() == x.dim() - 1
    if by_label:
        # Otherwise, a record with an out-of-range label would stop the training, and reveal its
        # presence.
        left_out = kwargs.get("ignore_index", IGNORED_LABEL)
        args = (x, within_classes(target, x.shape[1], left_out), *args[2:])
    if by_label and kwargs.get("reduction") == "mean":
        left_out = kwargs.get("ignore_index", IGNORED_LABEL) != IGNORED_LABEL
        if left_out or x.dim() > 2 or len(x) != batch_pass.records:
            raise _MixesError(
                "with reduction='mean' divides by the number of labels in the whole batch: "
                "average within each record first"
            )
    return _reduced(batch_pass, func, args, kwargs, lambda _each: None)


def _reduced(
    batch_pass: Pass, func: Any, args: Any, kwargs: Any, check: Callable[[Any], None]
) -> Any:
    reduction = kwargs.get("reduction", "mean")
    if any(kwargs.get(old) is not None for old in ("size_average", "reduce")):
        raise _MixesError("has size_average or reduce: pass reduction instead")
    for name in _WEIGHTS:
        if (weight := kwargs.get(name)) is not None:
            _check_constant(weight)
            if isinstance(weight, Output):
                raise _MixesError(f"has a {name} computed from outputs")
    if kwargs.get("weight") is not None and reduction == "mean":
        raise _MixesError(
            "with weight and reduction='mean' may divide by the weights of the whole batch: use "
            "reduction='none', and .mean()"
        )
    for tensor in _tensors(args):
        _check_constant(tensor)
    each = func(*args, **{**kwargs, "reduction": "none"})
    check(each)
    match reduction:
        case "none":
            return batch_pass.output(each, "rows")
        case "sum":
            return batch_pass.output(each.sum(), "sum")
        case "mean":
            return batch_pass.output(each.mean(), "mean", total=_total(batch_pass, each))
        case "batchmean" if len(each) == batch_pass.records:
            return batch_pass.output(each.sum() / batch_pass.records, "mean", total=each.sum())
    raise _MixesError(f"has reduction={reduction!r}")


# Parameters of losses that weight classes or entries.
_WEIGHTS = ("weight", "pos_weight")
# Elementwise functions.
_ENTRIES = """
    sub subtract rsub mul multiply div divide true_divide neg negative abs absolute exp expm1 log log1p
    log2 log10 sqrt rsqrt square pow reciprocal sigmoid tanh sin cos erf relu relu6 gelu silu mish elu
    selu celu softplus softsign logsigmoid leaky_relu hardtanh hardsigmoid hardswish tanhshrink clamp
    clip clamp_min clamp_max maximum minimum fmax fmin where masked_fill nan_to_num sign float double
    half bfloat16 long int bool to type clone detach contiguous cpu cuda eq ne lt le gt ge
    logical_not logical_and logical_or __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__
    __div__ __rdiv__ __pow__ __rpow__ __neg__ __pos__ __abs__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__
    __invert__ __and__ __or__
"""
# Elementwise losses of torch.nn.functional.
_LOSSES = """
    mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits
    kl_div poisson_nll_loss soft_margin_loss
"""
_RULES_BY_NAME: Mapping[str, Rule] = {
    **dict.fromkeys(_ENTRIES.split(), _elementwise),
    **dict.fromkeys(("add", "__add__", "__radd__"), _added),
    **dict.fromkeys(("sum", "mean", "logsumexp", "softmax", "log_softmax"), _along(1)),
    **dict.fromkeys(("amax", "amin", "cumsum"), _along(1)),
    **dict.fromkeys(("chunk", "split"), _along(2, 0)),
    "normalize": _along(2, 1),
    **dict.fromkeys(("view", "reshape", "flatten", "unflatten", "unsqueeze"), _reshaped),
    "squeeze": _squeezed,
    **dict.fromkeys(("transpose", "swapaxes", "permute"), _permuted),
    **dict.fromkeys(("mT", "mH"), _swapped),
    "__getitem__": _indexed,
    "gather": _gathered,
    **dict.fromkeys(_LOSSES.split(), _elementwise_loss),
    **dict.fromkeys(("cross_entropy", "nll_loss"), _class_loss),
}


def _functions(name: str, rule: Rule) -> Iterator[Any]:
    """Yield the functions with a name: tensor operators, losses, and others."""
    if rule is _swapped:
        # For an attribute, PyTorch calls this function.
        yield getattr(torch.Tensor, name).__get__
        return
    if rule not in (_elementwise_loss, _class_loss):
        yield getattr(torch.Tensor, name, None)
    if not name.startswith("__"):
        yield getattr(functional, name, None)
        yield None if rule in (_elementwise_loss, _class_loss) else getattr(torch, name, None)


#: Functions that keep records separate, with the conditions on their arguments.
RULES: Mapping[Any, Rule] = {
    func: rule
    for name, rule in _RULES_BY_NAME.items()
    for func in _functions(name, rule)
    # Some names are also names of dtypes and modules.
    if callable(func)
}
