"""Recorder of parameter uses, by hooks on layers' inputs and output gradients.

While a layer runs, its parameters do not require gradients, so the backward pass computes none. It
passes the gradients of outputs to a ``Tap`` (:mod:`dpgrain.torch.layer_calls`), which immediately
computes the contributions of blocks, to free memory early. If a parameter nevertheless receives a
gradient, that gradient was not recorded, and is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch.utils._pytree import tree_flatten, tree_unflatten

from dpgrain._formatting import shorten
from dpgrain.errors import ParameterError
from dpgrain.torch import hf_labels
from dpgrain.torch.block_buffer import new_uses
from dpgrain.torch.block_gradients import Lookup, Outer, Use, Uses
from dpgrain.torch.gradient_precision import half_mean, halves_inputs, is_half, whole_products
from dpgrain.torch.guards import check_backward_hooks, check_saved
from dpgrain.torch.layer_calls import (
    CopyTap,
    Hook,
    LayerCall,
    RecordedCall,
    RecordedForward,
    Tap,
    copies_rule,
    plain_call,
)
from dpgrain.torch.layers import (
    ACCEPT_HALF,
    Rule,
    find_rule,
    is_frozen_norm,
    own_parameters,
    within_table,
)
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.library import torch
from dpgrain.torch.module_state import WatchedModule, call_form
from dpgrain.torch.per_record import PerRecordMode, run_backward, run_per_record
from dpgrain.torch.preflight import check_separation, keeping_modes, repeated, synthetic_inputs
from dpgrain.torch.randomness import seeded_randomness
from dpgrain.torch.tracked_outputs import (
    Output,
    Pass,
    Reduction,
    map_outputs,
    plain,
    unclipped_gradient,
)

functional = torch.nn.functional
# Maximum number of different batch sizes for which a network is tested.
_MOST_SIZES = 16
_FOR_VMAP = (
    "write it without branches on values, NumPy and in-place changes of values shared by records"
)
_FROM_THE_LOOP = (
    "create all inputs in the data set or in collate_fn, because tensors created in the loop are "
    "shared by all records if other inputs come from the loader"
)


@dataclass(frozen=True, eq=False)
class _Inputs:
    """Plain inputs of a network; ``batch_pass`` is None unless the loader made them."""

    inputs: Any
    are_rows: tuple[bool, ...]
    batch_pass: Pass | None

    @property
    def has_shared(self) -> bool:
        """Whether an input is a tensor that all records share."""
        leaves, _ = tree_flatten(self.inputs)
        return any(
            isinstance(leaf, torch.Tensor) and leaf.dim() > 0 and not has_rows
            for leaf, has_rows in zip(leaves, self.are_rows, strict=True)
        )


class Recorder:
    """Recorder of the parameter uses of one module in a pass over a batch.

    ``begin`` returns the blocks of the batch before a forward pass, or rejects it; ``uses``
    contains their contributions after a backward pass.
    """

    def __init__(
        self,
        module: Any,
        separate: tuple[type, ...],
        begin: Callable[[], BlockLayout],
        *,
        reduction: Reduction = "sum",
    ) -> None:
        self.module, self.begin = module, begin
        self.uses = Uses()
        # False if batches must be added up without a buffer, regardless of their number of blocks.
        self.may_buffer = True
        self._reduction = reduction
        self._pass = Pass(0, reduction)
        self._loader_pass: Pass | None = None
        self._layout = BlockLayout(())
        self._per_record: PerRecordMode | None = None
        self._watched = WatchedModule(module)
        # Whether the module is running, and whether uses are recorded.
        self._is_inside = self._is_test = self._recomputes = self._halves = False
        # The tested structure and batch sizes, and the indices of outputs that mix records.
        self._structure: Any = None
        self._sizes: set[int] = set()
        self._mixed: set[int] = set()
        self._example: tuple[Any, Any, int] | None = None
        self._is_settled = False
        self._compared: set[bool] = set()
        layers = list(_parts("", module, separate))
        self._frozen_norms = _frozen_norms(module)
        self._layers = {layer: (name, rule) for name, layer, rule in layers if rule is not None}
        self._owners = [layer for _, layer, rule in layers if rule is None]
        self._trained = {id(p): (p, n) for n, p in module.named_parameters() if p.requires_grad}
        # Parameters, by id, which a rule handles while their layer runs.
        self.frozen: dict[int, Any] = {}
        # Tensors that require gradients, by device, so that PyTorch computes those of layers.
        self._anchors: dict[Any, Any] = {}
        self._installed: list[Any] = []
        self._hooks: list[Any] = []
        self.hook()

    @property
    def records(self) -> int:
        """Number of records of the current batch."""
        return self._layout.rows

    @property
    def entries(self) -> int:
        """Number of parameter entries copied for each record of a batch."""
        copied = [
            o for o in self._owners if not isinstance(o, torch.nn.Linear | torch.nn.Embedding)
        ]
        return sum(p.numel() for owner in copied for p in own_parameters(owner).values())

    def hook(self) -> None:
        """Start recording calls of the module."""
        self.module.__dict__["_call_impl"] = RecordedCall(self.module, self._called)
        for part in self.module.modules():
            if isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag):
                inside = part.register_forward_pre_hook(Hook(self._inside_table))
                self._hooks.append(inside)
        for layer, (name, _rule) in self._layers.items():
            if layer is not self.module:
                check = Hook(self._check_direct_call(layer, name))
                self._hooks.append(layer.register_forward_pre_hook(check))
        # Parts of the module can also be called directly.
        self._hooks += [n.register_forward_pre_hook(Hook(_freeze)) for n in self._frozen_norms]

    def remove(self) -> None:
        """Restore the original module."""
        self.module.__dict__.pop("_call_impl", None)
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def clear(self) -> None:
        """Discard the last pass."""
        self.uses = Uses()

    def mark_batch(self, batch: Any, records: int) -> Any:
        """Return a batch for the loop, and mark its tensors as rows of records."""
        batch_pass = self._loader_pass = Pass(
            records, self._reduction, self._in_backward, is_tracked=True
        )
        why = "collate_fn returned a tensor without one row per record"

        def known(tensor: Any) -> Any:
            has_rows = tensor.dim() > 0 and len(tensor) == records
            return (
                batch_pass.output(tensor, "rows")
                if has_rows
                else batch_pass.output(tensor, "neither", why)
            )

        return map_outputs(known, batch)

    def check_example(self, inputs: Any, records: int) -> None:
        """Run the module on synthetic records, and reject it if it mixes them."""
        by_shape = _inputs_by_shape(inputs, records)
        self._example = inputs, by_shape.are_rows, records
        self._structure = self._watched.structure(inputs)
        self._sizes, self._mixed = {records}, set()
        try:
            self._check_mixing(by_shape, records)
        except ParameterError:
            raise
        except Exception as error:
            raise ParameterError(
                "example must contain records that the module can read, but it failed with "
                f"{type(error).__name__}: {shorten(str(error), 200)}; change the example or the "
                "module.",
                name="example",
            ) from error

    def check_shapes(self, inputs: Any, records: int) -> Any:
        """Test the module on random records with the shapes of a batch, and return them."""
        outputs = self._check_on_shapes(_inputs_by_shape(inputs, records), records)
        self._sizes.add(records)
        self._structure = self._watched.structure(inputs)
        return outputs

    def rehearse(self, inputs: Any, records: int) -> tuple[Uses, BlockLayout]:
        """Return the contributions of synthetic records, recorded like those of a batch."""
        layout = BlockLayout((1,) * records)
        gradients = [(p, p.grad) for p in self.module.parameters()]
        begin, self.begin = self.begin, lambda: layout
        positional, keywords = self.mark_batch(inputs, records)
        try:
            with keeping_modes(self.module), seeded_randomness(0), torch.enable_grad():
                self.module.training = True
                leaves = _leaves(map_outputs(plain, self.module(*positional, **keywords)))
                self._pass.backward(sum((t + t.square()).sum() for t in leaves if t.requires_grad))
            return self.uses, layout
        finally:
            self.begin, self._loader_pass = begin, None
            self.clear()
            # Contents are compared again in the first pass over a batch.
            self._compared.discard(False)
            for parameter, gradient in gradients:
                parameter.grad = gradient

    def _called(self, *inputs: Any, **keywords: Any) -> Any:
        """Call the module; in training mode, the inputs must be a batch."""
        call = plain_call(self.module)
        if self._is_inside:
            return call(*inputs, **keywords)
        if not (self.module.training and torch.is_grad_enabled()):
            inputs, keywords = map_outputs(plain, (inputs, keywords))
            return call(*inputs, **keywords)
        for norm in self._frozen_norms:
            norm.eval()
        _check_plain_pass()
        check_saved()
        if halves_inputs() and self._reduction == "mean":
            raise half_mean("the module is called under torch.autocast")
        layout = self.begin()
        arguments = self._opened((inputs, keywords), layout.rows)
        arguments, labels = self._without_labels(arguments)
        self._check_if_new(arguments, layout.rows)
        batch_pass = (
            Pass(layout.rows, self._reduction, self._in_backward)
            if arguments.batch_pass is None
            else arguments.batch_pass
        )
        self._layout, self._pass = layout, batch_pass
        trained = [p for p, _ in self._trained.values()]
        self.uses = new_uses(layout, trained) if self.may_buffer else Uses()
        self._recomputes = False
        with self._checked():
            out = self._run(arguments, layout.rows)
        if labels is not None:
            known = labels if arguments.batch_pass is None else batch_pass.output(labels, "rows")
            out = hf_labels.with_loss(self.module, out, known)
        return out

    def _opened(self, inputs: Any, records: int) -> _Inputs:
        """Return plain inputs, marked by whether they have a row for each record."""
        leaves, form = tree_flatten(inputs)
        known = [leaf for leaf in leaves if isinstance(leaf, Output)]
        for leaf in known:
            leaf.check_is_batch(self._loader_pass)
        are_rows = tuple(
            isinstance(leaf, Output) if known else isinstance(leaf, torch.Tensor) and leaf.dim() > 0
            for leaf in leaves
        )
        for leaf, has_rows in zip(leaves, are_rows, strict=True):
            if has_rows and len(leaf) != records:
                raise ParameterError(
                    f"module must be called with one row for each of the {records} records of the "
                    f"batch, not with a tensor of shape {tuple(leaf.shape)}; pass the batch from "
                    "the loader.",
                    name="module",
                )
        if not any(are_rows):
            raise ParameterError(
                f"module must be called with the rows of the {records} records of the batch from "
                "the loader.",
                name="module",
            )
        return _Inputs(
            tree_unflatten([plain(leaf) for leaf in leaves], form),
            are_rows,
            self._loader_pass if known else None,
        )

    def _without_labels(self, call: _Inputs) -> tuple[_Inputs, Any]:
        """Separate the labels, from which losses are computed, from the other inputs."""
        inputs, keywords = call.inputs
        marks, form = tree_flatten(call.inputs)
        where = tree_unflatten(list(call.are_rows), form)
        assert len(marks) == len(call.are_rows)  # noqa: S101 - a leaf for each
        without, labels = hf_labels.split_labels(self.module, keywords)
        if labels is None:
            return call, None
        # Inputs derived from labels have rows like the labels.
        named = {name: where[1].get(name, True) for name in without}
        are_rows, _ = tree_flatten((where[0], named))
        return _Inputs((inputs, without), tuple(are_rows), call.batch_pass), labels

    def _run(self, call: _Inputs, records: int) -> Any:
        """Run the module on each record, and return outputs of the pass."""
        batch_pass = self._pass
        seed = torch.initial_seed()
        with self._inside():
            out, rows, self._per_record = self._each(call, records)
        if torch.initial_seed() != seed:
            raise ParameterError(
                "module must not set a seed, because later draws for a record would depend on "
                "the record's position in the batch; remove it.",
                name="module",
            )
        mixed = {
            place
            for place, row in enumerate(rows)
            if row is not None and self._is_mixed(place, row)
        }
        whole: list[Any] = []
        if mixed:
            # These outputs are only for logs, so they may depend on all records.
            with torch.no_grad(), self._inside(is_test=True):
                inputs, keywords = call.inputs
                map_outputs(whole.append, plain_call(self.module)(*inputs, **keywords))
        place = iter(range(len(rows)))

        def known(tensor: Any) -> Any:
            at = next(place)
            if rows[at] is None:
                return batch_pass.shared(tensor)
            if at in mixed:
                return batch_pass.whole(whole[at])
            return batch_pass.output(tensor.flatten(0, 1), "rows")

        return map_outputs(known, out)

    def _is_mixed(self, place: int, row: Any) -> bool:
        """Return True if an output does not consist of rows of records."""
        return place in self._mixed or row.dim() < 2

    def _each(self, arguments: _Inputs, records: int) -> Any:
        """Run the module with each record as a batch of one."""
        try:
            call = plain_call(self.module)
            return run_per_record(call, arguments.inputs, arguments.are_rows, records, self)
        except ParameterError:
            raise
        except Exception as error:
            where = _failing_part(self.module, error)
            what = f" ({shorten(str(error), 200)})" if self._is_test else ""
            remedy = _FROM_THE_LOOP if arguments.has_shared else _FOR_VMAP
            raise ParameterError(
                "module must compute each record with functions that torch.func.vmap supports, "
                f"but {where} does not: {type(error).__name__}{what}; {remedy}.",
                name="module",
            ) from error

    # -- tests on synthetic records --

    def _check_if_new(self, call: _Inputs, records: int) -> None:
        """Test the module before its first batch, after changes, and for new batch sizes."""
        structure = self._watched.structure(call.inputs)
        if structure != self._structure:
            self._sizes, self._mixed = set(), set()
        if records in self._sizes or len(self._sizes) >= _MOST_SIZES:
            return
        # One record cannot be mixed with others, and a module's initial setup reveals nothing.
        if records > 1 or not self._is_settled:
            self._check_on_shapes(call, records)
        self._sizes.add(records)
        self._structure = self._watched.structure(call.inputs)

    def _check_on_shapes(self, call: _Inputs, records: int) -> Any:
        """Return the synthetic records, or the example, used to test the module."""
        if self._example is not None:
            inputs, are_rows, few = self._example
            if are_rows == call.are_rows and call_form(self.module, inputs) == call_form(
                self.module, call.inputs
            ):
                synthetic = repeated(inputs, are_rows, few, records)
                self._check_mixing(_Inputs(synthetic, are_rows, None), records)
                return synthetic
        # Integers can be indices of tables, or mask entries.
        parts = self.module.modules()
        tables = [part.num_embeddings for part in parts if hasattr(part, "num_embeddings")]
        # In a table of one row, all synthetic records would be equal, and mixing undetectable.
        tables = [size for size in tables if size > 1]
        for whole in (min(tables, default=2), 2):
            try:
                synthetic = synthetic_inputs(call.inputs, whole)
                self._check_mixing(_Inputs(synthetic, call.are_rows, None), records)
            except ParameterError:
                raise
            except Exception as error:
                failed = error
            else:
                return synthetic
        raise ParameterError(
            "module failed on synthetic records of random numbers (integers are 0 or 1) in the "
            f"pre-flight check ({type(failed).__name__}: {shorten(str(failed), 200)}); fix it, or "
            "pass realistic records as example= to make_private.",
            name="example",
        ) from failed

    def _check_mixing(self, call: _Inputs, records: int) -> None:
        """Compare the module's results for synthetic records separately and together."""
        inputs, keywords = call.inputs
        self._layout, self._halves = BlockLayout((1,) * records), halves_inputs()

        def together(training: bool) -> tuple[list[Any], bool]:
            with self._checked(is_test=True), self._mode(training) as has_drawn:
                leaves = _leaves(plain_call(self.module)(*inputs, **keywords))
                return leaves, has_drawn()

        def each(training: bool) -> list[Any]:
            with self._checked(is_test=True), self._mode(training):
                out, rows, _ = self._each(call, records)
                pairs = zip(_leaves(out), rows, strict=True)
                return [t if row is None else (row,) for t, row in pairs]

        with self._inside(is_test=True), torch.no_grad(), whole_products():
            self._mixed |= check_separation(together, each, lambda: self._halves)

    @contextmanager
    def _mode(self, training: bool) -> Iterator[Callable[[], bool]]:
        """Run the module in its own mode or in evaluation mode, from the same seed."""
        with keeping_modes(self.module), seeded_randomness(0) as has_drawn:
            if not training:
                self.module.eval()
            yield has_drawn

    @contextmanager
    def _checked(self, *, is_test: bool = False) -> Iterator[None]:
        """Reject a module that stores information about records."""
        # Contents are compared in the first pass over synthetic records, and in the first over a
        # batch.
        before = self._watched.state(contents=is_test not in self._compared)
        self._compared.add(is_test)
        yield
        # The first call on synthetic records may initialize the module. A number or text that
        # changes in that call could still depend on the length of the first records.
        changed = self._watched.changes(before, only_scalars=not self._is_settled)
        self._is_settled = True
        if changed:
            raise ParameterError(
                f"module must not change its {changed[0]} while it reads a batch, because that "
                "would disclose records outside the guarantee.",
                name="module",
            )

    @contextmanager
    def _inside(self, *, is_test: bool = False) -> Iterator[None]:
        """Record layers with a rule while the module runs."""
        check_backward_hooks(self.module)
        before = self._is_inside, self._is_test
        self._is_inside, self._is_test = True, is_test
        self._install()
        try:
            yield
        finally:
            self._restore()
            self._is_inside, self._is_test = before

    def _install(self) -> None:
        for layer, (name, rule) in self._layers.items():
            # A custom forward function is run like any other function.
            if "forward" not in vars(layer):
                layer.__dict__["forward"] = RecordedForward(self, layer, name, rule)
                self._installed.append(layer)

    def _restore(self) -> None:
        for layer in self._installed:
            layer.__dict__.pop("forward", None)
        self._installed = []

    def _in_backward(self, total: Any) -> None:
        """Run a backward pass, which calls layers again if activations were not stored."""
        if not self._recomputes or self._per_record is None:
            total.backward()
            return
        with self._inside():
            run_backward(self._per_record, self.records, total)

    # -- interface for the pass --

    def parameter_name(self, parameter: Any) -> str | None:
        """Return the name of a trained parameter; None for any other tensor."""
        name = self._trained.get(id(parameter))
        return None if name is None or name[0] is not parameter else name[1]

    def copies(self, parameter: Any, records: int) -> Any:
        """Return the copies of a parameter with recorded gradients, (records, …)."""
        own = parameter.detach().expand(records, *parameter.shape)
        if not self._records_uses:
            return own
        name = self._trained[id(parameter)][1]
        call, anchor = self._call(name, None, {name: parameter}, copies_rule(name), own)
        return CopyTap.apply(own, anchor, call)

    def linear(self, weight: Any, x: Any) -> Any:
        """Return a linear map of rows, (records, …)."""
        name = self._trained[id(weight)][1]

        def uses(_layer: Any, x: Any, b: Any, layout: BlockLayout) -> Mapping[str, Use]:
            x, b = (t.reshape(len(t), -1, t.shape[-1]) for t in (x, b))
            return {name: Outer(layout, x, b)}

        return self.tap_output(
            name, None, {name: weight}, uses, x, functional.linear(x, weight.detach())
        )

    def embedding(self, weight: Any, x: Any, padding: int | None) -> Any:
        """Return rows of an embedding table, (records, …); ``padding`` is untrained."""
        name = self._trained[id(weight)][1]

        def uses(_layer: Any, x: Any, b: Any, layout: BlockLayout) -> Mapping[str, Use]:
            x, b = x.reshape(len(x), -1), b.reshape(len(x), -1, b.shape[-1])
            if padding is not None:
                b = b.masked_fill((x == padding)[..., None], 0)
            return {name: Lookup(layout, x, b, len(weight))}

        return self.tap_output(
            name, None, {name: weight}, uses, x, functional.embedding(x, weight.detach())
        )

    def note_recomputation(self) -> None:
        """Note that the backward pass recomputes activations."""
        self._recomputes = True

    def note_half(self, x: Any) -> None:
        """Note that a layer reads numbers in half precision."""
        self._halves = self._halves or is_half(x.dtype) or halves_inputs()

    @property
    def _records_uses(self) -> bool:
        return not self._is_test and torch.is_grad_enabled()

    def tap_output(
        self, name: str, layer: Any, parameters: Mapping[str, Any], rule: Rule, x: Any, out: Any
    ) -> Any:
        """Return a layer's output with a recorded gradient; tensors are (rows, …)."""
        if not self._records_uses:
            return out
        x = x.detach()
        if rule in ACCEPT_HALF and is_half(out.dtype):
            # These are the factors under autocast, in half the memory.
            x = x.to(out.dtype)
        call, anchor = self._call(name, layer, parameters, rule, x)
        return Tap.apply(out, anchor, x, call)

    def _call(
        self, name: str, layer: Any, parameters: Mapping[str, Any], rule: Rule, x: Any
    ) -> tuple[LayerCall, Any]:
        """Return the record of a gradient, and an anchor that makes PyTorch compute it."""
        if x.device not in self._anchors:
            self._anchors[x.device] = torch.zeros((), device=x.device, requires_grad=True)
        layout = self._layout.times(len(x) // self.records)
        call = LayerCall(name, layer, parameters, rule, layout, self.uses, self._pass)
        return call, self._anchors[x.device]

    def _inside_table(self, part: Any, inputs: Any) -> Any:
        """Replace out-of-range indices of an embedding table."""
        if not self._is_inside or not inputs:
            return None
        return within_table(part, inputs[0]), *inputs[1:]

    def _check_direct_call(self, layer: Any, name: str) -> Callable[..., None]:
        """Return a hook that rejects direct calls of a layer."""

        def check(*_args: Any) -> None:
            if not self._is_inside and layer.training and torch.is_grad_enabled():
                raise ParameterError(
                    f"layer {name!r} was called outside the module; call the whole module, or "
                    "evaluate it under torch.no_grad().",
                    name="module",
                )

        return check


def _leaves(out: Any) -> list[Any]:
    """Return the tensors in a network's outputs."""
    leaves: list[Any] = []

    def keep(tensor: Any) -> Any:
        leaves.append(tensor)
        return tensor

    map_outputs(keep, out)
    return leaves


def _failing_part(module: Any, error: BaseException) -> str:
    """Describe the innermost layer that raised an error."""
    names = {id(part): name for name, part in module.named_modules()}
    words, trace = "module", error.__traceback__
    while trace is not None:
        part = trace.tb_frame.f_locals.get("self")
        if id(part) in names:
            words = f"{type(part).__name__} ({names[id(part)]!r})"
        trace = trace.tb_next
    return words


def _parts(name: str, module: Any, separate: tuple[type, ...]) -> Iterator[tuple[str, Any, Any]]:
    """Yield layers with rules, and modules with trained parameters without a rule."""
    rule = find_rule(module, separate)
    if rule is not None:
        yield name, module, rule
        return
    if own_parameters(module):
        yield name, module, None
    for child_name, child in module.named_children():
        yield from _parts(f"{name}.{child_name}" if name else child_name, child, separate)


def _freeze(norm: Any, _inputs: Any) -> None:
    """Make a batch norm use its own statistics, which are independent of records."""
    norm.eval()


def _frozen_norms(module: Any) -> list[Any]:
    """Return the batch norms in evaluation mode, unless the whole module is in it."""
    norms = [part for part in module.modules() if is_frozen_norm(part)]
    if norms and not module.training:
        raise ParameterError(
            f"module must be in training mode with only {type(norms[0]).__name__} in evaluation "
            "mode, because this layer would mix records once train() is called; call train() of "
            "the module, and then eval() of the layer to freeze its statistics.",
            name="module",
        )
    return norms


def _inputs_by_shape(inputs: Any, records: int) -> _Inputs:
    """Return synthetic records; their public shapes show which inputs have rows."""
    leaves, _ = tree_flatten(inputs)
    are_rows = tuple(
        isinstance(leaf, torch.Tensor) and leaf.dim() > 0 and len(leaf) == records
        for leaf in leaves
    )
    return _Inputs(inputs, are_rows, None)


def _check_plain_pass() -> None:
    """Reject passes inside function transforms or with forward-mode derivatives."""
    if torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0:
        raise unclipped_gradient()
