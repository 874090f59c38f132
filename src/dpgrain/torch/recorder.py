"""Recorder of parameter uses, by hooks on layers' inputs and output gradients.

While a layer runs, its parameters do not require gradients, so the backward pass computes none. It
passes the gradients of outputs to :class:`_Tap`, which immediately computes the contributions of
blocks, to free memory early. If a parameter nevertheless receives a gradient, that gradient was not
recorded, and is rejected.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch.utils._pytree import tree_flatten, tree_unflatten

from dpgrain._formatting import shorten
from dpgrain.errors import ParameterError
from dpgrain.torch import labelled
from dpgrain.torch.apart import Apart, again, each_record
from dpgrain.torch.layers import (
    RULES,
    TAKE_HALVES,
    Rule,
    is_frozen_norm,
    own_parameters,
    rule_of,
    within_table,
)
from dpgrain.torch.layout import Layout
from dpgrain.torch.library import torch
from dpgrain.torch.outputs import Output, Pass, Reduction, alone, check_saved, mapped, plain
from dpgrain.torch.precision import (
    half_mean,
    halves_inputs,
    is_half,
    precisely,
    whole_products,
)
from dpgrain.torch.randomness import randomness_from
from dpgrain.torch.structure import form_of, kept_of, structure_of
from dpgrain.torch.trial import check_same, made_up, repeated
from dpgrain.torch.uses import Kept, Lookup, Outer, Use, Uses, add_use, single

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
# Input dimensions of layers that run on the rows of all records at once, by type; see also
# `_dims_of`.
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
class Call:
    """One call of one layer; only the backward pass of ``of`` may bring gradients."""

    name: str
    layer: Any
    parameters: Mapping[str, Any]
    rule: Rule
    layout: Layout
    uses: Uses
    of: Pass

    def arrive(self, x: Any, gradient: Any) -> None:
        """Record the blocks' contributions to parameters; tensors are (rows, …)."""
        self.of.check_gradient(self.name, gradient)
        with precisely():
            x, b = x.detach(), gradient.detach()
            if self.rule not in TAKE_HALVES:
                x, b = single(x), single(b)
            uses = self.rule(self.layer, x, b, self.layout)
        for name, parameter in self.parameters.items():
            if name in uses:
                add_use(self.uses, parameter, uses[name])


class _Tap(torch.autograd.Function):
    """Identity function with a backward pass that forwards the gradient to a call."""

    @staticmethod
    def forward(ctx: Any, out: Any, _anchor: Any, x: Any, call: Call) -> Any:
        """Return a layer's output, which now requires a gradient."""
        ctx.call = call
        ctx.save_for_backward(x)
        return out.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Pass the gradient to the call, and to the layer's input."""
        (gradient,) = gradients
        call: Call = ctx.call
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
            call.arrive(x, gradient)
        return gradient if ctx.needs_input_grad[0] else None, None, None, None


class _Lift(torch.autograd.Function):
    """Copies of a parameter for each record, with gradients passed to a call."""

    @staticmethod
    def forward(ctx: Any, copies: Any, _anchor: Any, call: Call) -> Any:
        """Return the copies, which use no memory and require a gradient."""
        ctx.call = call
        return copies.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Pass the gradients of copies to the call, and none to the parameter."""
        (gradient,) = gradients
        with torch._C.DisableTorchFunction():
            ctx.call.arrive(gradient, gradient)
        return None, None, None


class _CallOf:
    """Recorded call of a module; copies of the module have an ordinary call."""

    def __init__(self, module: Any, call: Callable[..., Any]) -> None:
        self._module, self._call = module, call

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        return self._call(*inputs, **keywords)

    def __reduce__(self) -> Any:
        # Used by copy and pickle.
        return _ordinary_call, (self._module,)


def _ordinary_call(module: Any) -> Any:
    """Return the PyTorch call of a module."""
    return types.MethodType(type(module)._call_impl, module)


class _Hook:
    """Hook of a module that its copies do not have.

    Copies, such as averaged weights, are ordinary modules without references to the run.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        return self._call(*inputs, **keywords)

    def __reduce__(self) -> Any:
        # Used by copy and pickle.
        return _Hook, (_nothing,)


def _nothing(*_inputs: Any, **_keywords: Any) -> None:
    """Do nothing; the hook of copies."""


@dataclass(frozen=True, eq=False)
class _Inputs:
    """Plain inputs of a network; ``of`` is None unless they come from the loader."""

    inputs: Any
    are_rows: tuple[bool, ...]
    of: Pass | None

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

    ``begin`` is called before each recorded forward pass; it returns the blocks of the batch, or
    rejects the pass. ``uses`` contains the blocks' contributions after a backward pass.
    """

    def __init__(
        self,
        module: Any,
        apart: tuple[type, ...],
        begin: Callable[[], Layout],
        *,
        reduction: Reduction = "sum",
    ) -> None:
        self.module, self.begin = module, begin
        self.uses: Uses = {}
        self._reduction = reduction
        self._pass = Pass(0, reduction)
        self._handed: Pass | None = None
        self._layout = Layout(())
        self._apart: Apart | None = None
        # Whether the module is running, and whether uses are recorded.
        self._is_inside = self._is_trial = self._makes_again = self._halves = False
        # The tested structure and batch sizes, and the indices of outputs that mix records.
        self._tried: Any = None
        self._sizes: set[int] = set()
        self._mixed: set[int] = set()
        self._example: tuple[Any, Any, int] | None = None
        self._is_settled = False
        self._compared: set[bool] = set()
        found = list(_parts("", module, apart))
        self._frozen_norms = _frozen_norms(module)
        self._layers = {layer: (name, rule) for name, layer, rule in found if rule is not None}
        self._owners = [layer for _, layer, rule in found if rule is None]
        self._trained = {id(p): (p, n) for n, p in module.named_parameters() if p.requires_grad}
        # Parameters, by id, which a rule handles while their layer runs.
        self.frozen: dict[int, Any] = {}
        self._put: list[Any] = []
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
        self.module.__dict__["_call_impl"] = _CallOf(self.module, self._called)
        for part in self.module.modules():
            if isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag):
                inside = part.register_forward_pre_hook(_Hook(self._inside_table))
                self._hooks.append(inside)
        for layer, (name, _rule) in self._layers.items():
            if layer is not self.module:
                alone = layer.register_forward_pre_hook(_Hook(self._alone(layer, name)))
                self._hooks.append(alone)
        # Parts of the module can also be called directly.
        self._hooks += [n.register_forward_pre_hook(_Hook(_freeze)) for n in self._frozen_norms]

    def remove(self) -> None:
        """Restore the original module."""
        self.module.__dict__.pop("_call_impl", None)
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def clear(self) -> None:
        """Discard the last pass."""
        self.uses = {}

    def handed(self, batch: Any, records: int) -> Any:
        """Return a batch for the loop, and mark its tensors as rows of records."""
        of = self._handed = Pass(records, self._reduction, self._in_backward, is_tracked=True)
        why = "collate_fn returned a tensor without one row per record"

        def known(tensor: Any) -> Any:
            has_rows = tensor.dim() > 0 and len(tensor) == records
            return of.output(tensor, "rows") if has_rows else of.output(tensor, "neither", why)

        return mapped(known, batch)

    def try_on(self, inputs: Any, records: int) -> None:
        """Run the module on synthetic records, and reject it if it mixes them."""
        given = _made_up_inputs(inputs, records)
        self._example = inputs, given.are_rows, records
        self._tried, self._sizes, self._mixed = structure_of(self.module, inputs), {records}, set()
        try:
            self._try(given, records)
        except ParameterError:
            raise
        except Exception as error:
            raise ParameterError(
                "example must contain records that the module can read, but it failed with "
                f"{type(error).__name__}: {shorten(str(error), 200)}; change the example or the "
                "module.",
                name="example",
            ) from error

    def try_like(self, inputs: Any, records: int) -> Any:
        """Test the module on random records with the shapes of a batch, and return them."""
        made = self._try_on_shapes(_made_up_inputs(inputs, records), records)
        self._sizes.add(records)
        self._tried = structure_of(self.module, inputs)
        return made

    def rehearsed(self, inputs: Any, records: int) -> tuple[Uses, Layout]:
        """Return the contributions of synthetic records, recorded like those of a batch."""
        layout = Layout((1,) * records)
        modes = {part: part.training for part in self.module.modules()}
        gradients = [(p, p.grad) for p in self.module.parameters()]
        begin, self.begin = self.begin, lambda: layout
        given, keywords = self.handed(inputs, records)
        try:
            with randomness_from(0), torch.enable_grad():
                self.module.training = True
                found = _leaves(mapped(plain, self.module(*given, **keywords)))
                self._pass.backward(sum((t + t.square()).sum() for t in found if t.requires_grad))
            return self.uses, layout
        finally:
            self.begin, self._handed = begin, None
            self.clear()
            # Contents are compared again in the first pass over a batch.
            self._compared.discard(False)
            for part, mode in modes.items():
                part.training = mode
            for parameter, gradient in gradients:
                parameter.grad = gradient

    def _called(self, *inputs: Any, **keywords: Any) -> Any:
        """Call the module; in training mode, the inputs must be a batch."""
        call = _ordinary_call(self.module)
        if self._is_inside:
            return call(*inputs, **keywords)
        if not (self.module.training and torch.is_grad_enabled()):
            inputs, keywords = mapped(plain, (inputs, keywords))
            return call(*inputs, **keywords)
        for norm in self._frozen_norms:
            norm.eval()
        _check_plain_pass()
        check_saved()
        if halves_inputs() and self._reduction == "mean":
            raise half_mean("the module is called under torch.autocast")
        layout = self.begin()
        given = self._opened((inputs, keywords), layout.rows)
        given, labels = self._without_labels(given)
        self._try_if_new(given, layout.rows)
        of = Pass(layout.rows, self._reduction, self._in_backward) if given.of is None else given.of
        self._layout, self.uses, self._pass = layout, {}, of
        self._makes_again = False
        with self._checked():
            out = self._run(given, layout.rows)
        if labels is not None:
            known = labels if given.of is None else of.output(labels, "rows")
            out = labelled.with_loss(self.module, out, known)
        return out

    def _opened(self, inputs: Any, records: int) -> _Inputs:
        """Return plain inputs, marked by whether they have a row for each record."""
        leaves, form = tree_flatten(inputs)
        known = [leaf for leaf in leaves if isinstance(leaf, Output)]
        for leaf in known:
            leaf.check_handed(self._handed)
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
            self._handed if known else None,
        )

    def _without_labels(self, given: _Inputs) -> tuple[_Inputs, Any]:
        """Separate the labels, from which losses are computed, from the other inputs."""
        inputs, keywords = given.inputs
        marks, form = tree_flatten(given.inputs)
        where = tree_unflatten(list(given.are_rows), form)
        assert len(marks) == len(given.are_rows)  # noqa: S101 - a leaf for each
        without, labels = labelled.apart(self.module, keywords)
        if labels is None:
            return given, None
        # Inputs derived from labels have rows like the labels.
        named = {name: where[1].get(name, True) for name in without}
        are_rows, _ = tree_flatten((where[0], named))
        return _Inputs((inputs, without), tuple(are_rows), given.of), labels

    def _run(self, given: _Inputs, records: int) -> Any:
        """Run the module on each record, and return outputs of the pass."""
        of = self._pass
        seed = torch.initial_seed()
        with self._inside():
            out, rows, self._apart = self._each(given, records)
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
            with torch.no_grad(), self._inside(is_trial=True):
                inputs, keywords = given.inputs
                mapped(whole.append, _ordinary_call(self.module)(*inputs, **keywords))
        place = iter(range(len(rows)))

        def known(tensor: Any) -> Any:
            at = next(place)
            if rows[at] is None:
                return of.shared(tensor)
            if at in mixed:
                return of.whole(whole[at])
            return of.output(tensor.flatten(0, 1), "rows")

        return mapped(known, out)

    def _is_mixed(self, place: int, row: Any) -> bool:
        """Return True if an output does not consist of rows of records."""
        return place in self._mixed or row.dim() < 2

    def _each(self, given: _Inputs, records: int) -> Any:
        """Run the module with each record as a batch of one."""
        try:
            call = _ordinary_call(self.module)
            return each_record(call, given.inputs, given.are_rows, records, self)
        except ParameterError:
            raise
        except Exception as error:
            where = _where(self.module, error)
            what = f" ({shorten(str(error), 200)})" if self._is_trial else ""
            remedy = _FROM_THE_LOOP if given.has_shared else _FOR_VMAP
            raise ParameterError(
                "module must compute each record with functions that torch.func.vmap supports, "
                f"but {where} does not: {type(error).__name__}{what}; {remedy}.",
                name="module",
            ) from error

    # -- tests on synthetic records --

    def _try_if_new(self, given: _Inputs, records: int) -> None:
        """Test the module before its first batch, after changes, and for new batch sizes."""
        structure = structure_of(self.module, given.inputs)
        if structure != self._tried:
            self._sizes, self._mixed = set(), set()
        if records in self._sizes or len(self._sizes) >= _MOST_SIZES:
            return
        # One record cannot be mixed with others, and a module's initial setup reveals nothing.
        if records > 1 or not self._is_settled:
            self._try_on_shapes(given, records)
        self._sizes.add(records)
        self._tried = structure_of(self.module, given.inputs)

    def _try_on_shapes(self, given: _Inputs, records: int) -> Any:
        """Return the synthetic records used to test the module.

        They have the shapes of a batch, or are the example.
        """
        if self._example is not None:
            inputs, are_rows, few = self._example
            if are_rows == given.are_rows and form_of(self.module, inputs) == form_of(
                self.module, given.inputs
            ):
                made = repeated(inputs, are_rows, few, records)
                self._try(_Inputs(made, are_rows, None), records)
                return made
        # Integers can be indices of tables, or mask entries.
        parts = self.module.modules()
        tables = [part.num_embeddings for part in parts if hasattr(part, "num_embeddings")]
        # In a table of one row, all synthetic records would be equal, and mixing undetectable.
        tables = [size for size in tables if size > 1]
        for whole in (min(tables, default=2), 2):
            try:
                made = made_up(given.inputs, whole)
                self._try(_Inputs(made, given.are_rows, None), records)
            except ParameterError:
                raise
            except Exception as error:
                failed = error
            else:
                return made
        raise ParameterError(
            "module failed on synthetic records of random numbers (integers are 0 or 1) in the "
            f"pre-flight check ({type(failed).__name__}: {shorten(str(failed), 200)}); fix it, or "
            "pass realistic records as example= to make_private.",
            name="example",
        ) from failed

    def _try(self, given: _Inputs, records: int) -> None:
        """Compare the module's results for synthetic records separately and together."""
        inputs, keywords = given.inputs
        self._layout, self._halves = Layout((1,) * records), halves_inputs()

        def together(training: bool) -> tuple[list[Any], bool]:
            with self._checked(is_trial=True), self._mode(training) as has_drawn:
                found = _leaves(_ordinary_call(self.module)(*inputs, **keywords))
                return found, has_drawn()

        def each(training: bool) -> list[Any]:
            with self._checked(is_trial=True), self._mode(training):
                out, rows, _ = self._each(given, records)
                found = zip(_leaves(out), rows, strict=True)
                return [t if row is None else (row,) for t, row in found]

        with self._inside(is_trial=True), torch.no_grad(), whole_products():
            self._mixed |= check_same(together, each, lambda: self._halves)

    @contextmanager
    def _mode(self, training: bool) -> Iterator[Callable[[], bool]]:
        """Run the module in its own mode or in evaluation mode, from the same seed."""
        modes = {part: part.training for part in self.module.modules()}
        try:
            if not training:
                self.module.eval()
            with randomness_from(0) as has_drawn:
                yield has_drawn
        finally:
            for part, mode in modes.items():
                part.training = mode

    @contextmanager
    def _checked(self, *, is_trial: bool = False) -> Iterator[None]:
        """Reject a module that stores information about records."""
        module = self.module
        # Contents are compared in the first pass over synthetic records, and in the first over a
        # batch.
        before = _states_of(module, contents=is_trial not in self._compared)
        self._compared.add(is_trial)
        kept = kept_of(module)
        yield
        now = _states_of(module)
        changed = [name for name in now if name not in before or before[name].differs(now[name])]
        # The first call on synthetic records may initialize the module. A number or text that
        # changes in that call could still depend on the length of the first records.
        settled, self._is_settled = self._is_settled, True
        changed += [
            _said(*which)
            for which, held in kept_of(module).items()
            if (settled or _is_word(kept.get(which))) and kept.get(which) != held
        ]
        if changed:
            raise ParameterError(
                f"module must not change its {changed[0]} while it reads a batch, because that "
                "would disclose records outside the guarantee.",
                name="module",
            )

    @contextmanager
    def _inside(self, *, is_trial: bool = False) -> Iterator[None]:
        """Record layers with a rule while the module runs."""
        for part in self.module.modules():
            hooks = (part._backward_hooks, part._backward_pre_hooks)
            if any(hooks) or _has_global_hooks():
                raise ParameterError(
                    "module must not have backward hooks, which can change gradients of all "
                    "records together; remove them.",
                    name="module",
                )
        before = self._is_inside, self._is_trial
        self._is_inside, self._is_trial = True, is_trial
        self._put_on()
        try:
            yield
        finally:
            self._take_off()
            self._is_inside, self._is_trial = before

    def _put_on(self) -> None:
        for layer, (name, rule) in self._layers.items():
            # A custom forward function is run like any other function.
            if "forward" not in vars(layer):
                layer.__dict__["forward"] = _Forward(self, layer, name, rule)
                self._put.append(layer)

    def _take_off(self) -> None:
        for layer in self._put:
            layer.__dict__.pop("forward", None)
        self._put = []

    def _in_backward(self, total: Any) -> None:
        """Run a backward pass, which calls layers again if activations were not stored."""
        if not self._makes_again or self._apart is None:
            total.backward()
            return
        with self._inside():
            again(self._apart, self.records, total)

    # -- interface for the pass --

    def name_of(self, parameter: Any) -> str | None:
        """Return the name of a trained parameter; None for any other tensor."""
        found = self._trained.get(id(parameter))
        return None if found is None or found[0] is not parameter else found[1]

    def copies(self, parameter: Any, records: int) -> Any:
        """Return the copies of a parameter with recorded gradients, (records, …)."""
        own = parameter.detach().expand(records, *parameter.shape)
        if not self._records_uses:
            return own
        name = self._trained[id(parameter)][1]
        call, anchor = self._call(name, None, {name: parameter}, _kept(name), own)
        return _Lift.apply(own, anchor, call)

    def linear(self, weight: Any, x: Any) -> Any:
        """Return a linear map of rows, (records, …)."""
        name = self._trained[id(weight)][1]

        def uses(_layer: Any, x: Any, b: Any, layout: Layout) -> Mapping[str, Use]:
            x, b = (t.reshape(len(t), -1, t.shape[-1]) for t in (x, b))
            return {name: Outer.of(layout, x, b)}

        return self._tapped(
            name, None, {name: weight}, uses, x, functional.linear(x, weight.detach())
        )

    def embedding(self, weight: Any, x: Any, padding: int | None) -> Any:
        """Return rows of an embedding table, (records, …); ``padding`` is untrained."""
        name = self._trained[id(weight)][1]

        def uses(_layer: Any, x: Any, b: Any, layout: Layout) -> Mapping[str, Use]:
            x, b = x.reshape(len(x), -1), b.reshape(len(x), -1, b.shape[-1])
            if padding is not None:
                b = b.masked_fill((x == padding)[..., None], 0)
            return {name: Lookup(layout, x, b, len(weight))}

        return self._tapped(
            name, None, {name: weight}, uses, x, functional.embedding(x, weight.detach())
        )

    def made_again(self) -> None:
        """Note that the backward pass recomputes activations."""
        self._makes_again = True

    def note_halves(self, x: Any) -> None:
        """Note that a layer reads numbers in half precision."""
        self._halves = self._halves or is_half(x.dtype) or halves_inputs()

    @property
    def _records_uses(self) -> bool:
        return not self._is_trial and torch.is_grad_enabled()

    def _tapped(
        self, name: str, layer: Any, parameters: Mapping[str, Any], rule: Rule, x: Any, out: Any
    ) -> Any:
        """Return a layer's output with a recorded gradient; tensors are (rows, …)."""
        if not self._records_uses:
            return out
        call, anchor = self._call(name, layer, parameters, rule, x.detach())
        return _Tap.apply(out, anchor, x.detach(), call)

    def _call(
        self, name: str, layer: Any, parameters: Mapping[str, Any], rule: Rule, x: Any
    ) -> tuple[Call, Any]:
        """Return the record of a gradient, and an anchor that makes PyTorch compute it."""
        anchor = torch.zeros((), device=x.device, requires_grad=True)
        layout = self._layout.times(len(x) // self.records)
        return Call(name, layer, parameters, rule, layout, self.uses, self._pass), anchor

    def _inside_table(self, part: Any, inputs: Any) -> Any:
        """Replace out-of-range indices of an embedding table."""
        if not self._is_inside or not inputs:
            return None
        return within_table(part, inputs[0]), *inputs[1:]

    def _alone(self, layer: Any, name: str) -> Callable[..., None]:
        """Return a hook that rejects direct calls of a layer."""

        def check(*_given: Any) -> None:
            if not self._is_inside and layer.training and torch.is_grad_enabled():
                raise ParameterError(
                    f"layer {name!r} was called outside the module; call the whole module, or "
                    "evaluate it under torch.no_grad().",
                    name="module",
                )

        return check


class _Forward:
    """Forward function of a layer with a rule, during a pass."""

    def __init__(self, recorder: Recorder, layer: Any, name: str, rule: Rule) -> None:
        self._recorder, self._layer, self._name, self._rule = recorder, layer, name, rule
        self._parameters = {n: p for n, p in layer.named_parameters() if p.requires_grad}

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """Return the layer's output, with a recorded gradient."""
        if len(inputs) != 1 or keywords or not isinstance(inputs[0], torch.Tensor):
            raise ParameterError(
                f"layer {self._name!r} must be called with one tensor.", name="module"
            )
        of = _current()
        # A network called outside autocast may enable it itself.
        self._recorder.note_halves(inputs[0])
        layer, (x,) = self._layer, inputs
        if of is None:
            # The module runs on all synthetic records together.
            return type(layer).forward(layer, x)
        if (dims := _dims_of(layer)) is not None:
            if x.dim() < dims - 1:
                raise ParameterError(
                    f"layer {self._name!r} must be called with a tensor of at least {dims} "
                    f"dimensions, records first, not {x.dim() + 1}; do not squeeze it.",
                    name="module",
                )
            return of.at_once(self._on_rows, x)
        with self._frozen():
            out = type(layer).forward(layer, x)
        if not isinstance(out, torch.Tensor) or out.dim() == 0 or out.shape[:1] != x.shape[:1]:
            raise ParameterError(
                f"layer {self._name!r} must return one tensor with one row per record.",
                name="module",
            )
        return of.at_once(self._tap, x, out)

    def _on_rows(self, x: Any) -> Any:
        """Run the layer on the inputs of all records at once, (records, …)."""
        rows, sizes = _flat(x, _dims_of(self._layer))
        asked = list(self._parameters.values())
        for parameter in asked:
            parameter.requires_grad_(False)
        try:
            out = type(self._layer).forward(self._layer, rows)
        finally:
            for parameter in asked:
                parameter.requires_grad_(True)
        return _folded(self._tapped(rows, out), sizes)

    def _tap(self, x: Any, out: Any) -> Any:
        """Record the gradient of the outputs, (records, …)."""
        x, sizes = _flat(x, 2)
        return _folded(self._tapped(x, _flat(out, 2)[0] if sizes else out), sizes)

    def _tapped(self, x: Any, out: Any) -> Any:
        return self._recorder._tapped(self._name, self._layer, self._parameters, self._rule, x, out)

    @contextmanager
    def _frozen(self) -> Iterator[None]:
        """Pass parameters without gradients, because the rule computes their gradients."""
        before, recorder = self._recorder.frozen, self._recorder
        recorder.frozen = {id(p): p.detach() for p in self._parameters.values()}
        try:
            yield
        finally:
            recorder.frozen = before


def _dims_of(layer: Any) -> int | None:
    """Return the input dimensions of a PyTorch layer; None for other layers."""
    kind = type(layer)
    if is_frozen_norm(layer):
        return _FROZEN_DIMS[kind]
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


def _kept(name: str) -> Rule:
    """Return the rule of a parameter's copies, with one gradient per record."""

    def uses(_layer: Any, _x: Any, b: Any, layout: Layout) -> Mapping[str, Use]:
        return {name: Kept(layout, layout.per_block(b))}

    return uses


def _leaves(out: Any) -> list[Any]:
    """Return the tensors in a network's outputs."""
    found: list[Any] = []

    def keep(tensor: Any) -> Any:
        found.append(tensor)
        return tensor

    mapped(keep, out)
    return found


def _where(module: Any, error: BaseException) -> str:
    """Describe the innermost layer that raised an error."""
    names = {id(part): name for name, part in module.named_modules()}
    words, trace = "module", error.__traceback__
    while trace is not None:
        part = trace.tb_frame.f_locals.get("self")
        if id(part) in names:
            words = f"{type(part).__name__} ({names[id(part)]!r})"
        trace = trace.tb_next
    return words


def _current() -> Apart | None:
    """Return the current pass of a network."""
    modes = torch.overrides._get_current_function_mode_stack()
    return next((mode for mode in reversed(modes) if isinstance(mode, Apart)), None)


def _has_global_hooks() -> bool:
    hooks = torch.nn.modules.module
    return bool(hooks._global_backward_hooks or hooks._global_backward_pre_hooks)


def _parts(name: str, module: Any, apart: tuple[type, ...]) -> Iterator[tuple[str, Any, Any]]:
    """Yield layers with rules, and modules with trained parameters without a rule."""
    rule = rule_of(module, apart)
    if rule is not None:
        yield name, module, rule
        return
    if own_parameters(module):
        yield name, module, None
    for child_name, child in module.named_children():
        yield from _parts(f"{name}.{child_name}" if name else child_name, child, apart)


def _freeze(norm: Any, _inputs: Any) -> None:
    """Make a batch norm use its own statistics, which are independent of records."""
    norm.eval()


def _frozen_norms(module: Any) -> list[Any]:
    """Return the batch norms in evaluation mode, whose statistics are fixed.

    ParameterError is raised if the whole module is in evaluation mode.
    """
    found = [part for part in module.modules() if is_frozen_norm(part)]
    if found and not module.training:
        raise ParameterError(
            f"module must be in training mode with only {type(found[0]).__name__} in evaluation "
            "mode, because this layer would mix records once train() is called; call train() of "
            "the module, and then eval() of the layer to freeze its statistics.",
            name="module",
        )
    return found


def _made_up_inputs(inputs: Any, records: int) -> _Inputs:
    """Return synthetic records; their public shapes show which inputs have rows."""
    leaves, _ = tree_flatten(inputs)
    are_rows = tuple(
        isinstance(leaf, torch.Tensor) and leaf.dim() > 0 and len(leaf) == records
        for leaf in leaves
    )
    return _Inputs(inputs, are_rows, None)


def _is_word(held: Any) -> bool:
    """Return True if a module's attribute is a number or text; see :func:`kept_of`."""
    return isinstance(held, tuple) and held[0] in (bool, int, float, str)


def _said(layer: str, attribute: str) -> str:
    return f"attribute {attribute!r}" + (f" of layer {layer!r}" if layer else "")


def _check_plain_pass() -> None:
    """Reject passes inside function transforms or with forward-mode derivatives."""
    if torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0:
        raise alone()


@dataclass(frozen=True, eq=False)
class _State:
    """State of a tensor before a pass; the version misses changes through ``.data``."""

    tensor: Any
    version: int
    contents: Any

    def differs(self, now: _State) -> bool:
        """Return True if the tensor has been changed or replaced."""
        if now.tensor is not self.tensor or now.version != self.version:
            return True
        return self.contents is not None and not torch.equal(self.contents, _bytes_of(now.tensor))


def _states_of(module: Any, *, contents: bool = False) -> dict[str, _State]:
    """Return the state of all buffers and parameters of a module, by name."""
    named = [(f"buffer {name!r}", tensor) for name, tensor in module.named_buffers()]
    named += [(f"parameter {name!r}", tensor) for name, tensor in module.named_parameters()]
    return {
        name: _State(tensor, tensor._version, _bytes_of(tensor).clone() if contents else None)
        for name, tensor in named
    }


def _bytes_of(tensor: Any) -> Any:
    """Return a tensor's contents as bytes, so that NaN equals itself."""
    return tensor.detach().reshape(-1).view(torch.uint8)
