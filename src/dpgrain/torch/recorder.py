"""Hooks that turn inputs of layers, and gradients by their outputs, into uses of parameters.

While a layer runs its parameters ask for no gradient, so that a backward pass makes none of them: it
hands the gradients by outputs to :class:`_Tap`, from which everything is made that blocks add, at
once, so that what needs no keeping is let go of on the way. A gradient that reaches a parameter all
the same came by a way that nobody recorded, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, product
from typing import Any, Protocol

from torch.utils._pytree import (
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_map,
    tree_unflatten,
)

from dpgrain._wording import shorten
from dpgrain.errors import ParameterError
from dpgrain.torch import labelled
from dpgrain.torch.layers import (
    TAKE_HALVES,
    Rule,
    is_frozen_norm,
    own_parameters,
    rule_of,
    within_table,
)
from dpgrain.torch.layout import Layout
from dpgrain.torch.library import torch
from dpgrain.torch.outputs import Pass, Reduction, alone, is_rows, mapped
from dpgrain.torch.owners import Owner, copies_of, kept, read
from dpgrain.torch.precision import (
    half_mean,
    halves_inputs,
    precisely,
    whole_products,
)
from dpgrain.torch.randomness import randomness_from
from dpgrain.torch.shared import Copies, Rows, copies_as, plain, rows_as
from dpgrain.torch.structure import arguments_of, form_of, kept_of, structure_of
from dpgrain.torch.trial import (
    FEW_RECORDS,
    Seen,
    check_apart,
    made_up,
    probe_of,
    rows_of,
)
from dpgrain.torch.uses import Uses, add_use, single


@dataclass(frozen=True, eq=False)
class Call:
    """One call of one layer.

    Args:
        name: the name of the layer in the module.
        layer: the layer.
        parameters: its trained parameters, by name.
        rule: how they are used.
        layout: the blocks of the batch.
        uses: where to leave what blocks add to each parameter.
        of: the pass, whose backward pass alone may bring gradients.
    """

    name: str
    layer: Any
    parameters: Mapping[str, Any]
    rule: Rule
    layout: Layout
    uses: Uses
    of: Pass

    def arrive(self, x: Any, gradient: Any) -> None:
        """Leave the blocks' additions to the trained parameters of the layer.

        Args:
            x: (rows, …) what went in.
            gradient: (rows, …) the gradient of the loss by what came out.

        Raises:
            ParameterError: if the gradient has half precision, and must not; or if no backward pass of
                a loss that keeps records apart has brought it.
        """
        self.of.check_gradient(self.name, gradient)
        with precisely():
            x, b = x.detach(), gradient.detach()
            if self.rule not in TAKE_HALVES:
                x, b = single(x), single(b)
            uses = self.rule(self.layer, x, b, self.layout)
        for name, parameter in self.parameters.items():
            if name in uses:
                add_use(self.uses, parameter, uses[name])


class Held(Protocol):
    """A layer with its trained parameters."""

    layer: Any
    parameters: Mapping[str, Any]


@dataclass(eq=False)
class _Layer:
    """A layer with a rule.

    Args:
        layer: the layer.
        parameters: its trained parameters, by name.
    """

    layer: Any
    parameters: Mapping[str, Any]


@dataclass(eq=False)
class Look:
    """The input and the gradient of one call of one layer, as seen in a trial.

    Args:
        name: the name of the layer in the module.
        x: what went in.
        gradient: (records, …) the gradient by what came out, of no entries until one arrives.
    """

    name: str
    x: Any
    gradient: Any

    def arrive(self, _x: Any, gradient: Any) -> None:
        """Keep the gradient."""
        arrived = gradient.detach().reshape(len(self.x), -1)
        self.gradient = self.gradient + arrived if self.gradient.numel() else arrived


class _Tap(torch.autograd.Function):
    """The identity, whose backward pass hands the gradient to a call."""

    @staticmethod
    def forward(ctx: Any, out: Any, _anchor: Any, x: Any, call: Call | Look) -> Any:
        """Return what came out of a layer, which now asks for a gradient."""
        ctx.call = call
        ctx.save_for_backward(x)
        return out.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Hand the gradient to the call, and on to the layer's own input."""
        (gradient,) = gradients
        call: Call | Look = ctx.call
        try:
            (x,) = ctx.saved_tensors
        except RuntimeError as error:
            raise ParameterError(
                f"the input of layer {call.name!r} is gone: it was changed in place after the layer "
                "had read it (write the change as a new tensor), or an earlier backward pass has let "
                "go of it (retain_graph=True keeps it).",
                name="module",
            ) from error
        call.arrive(x, gradient)
        return gradient if ctx.needs_input_grad[0] else None, None, None, None


class _Lift(torch.autograd.Function):
    """Copies of a parameter for each record, whose gradients are handed to a call."""

    @staticmethod
    def forward(ctx: Any, parameter: Any, _anchor: Any, records: int, call: Call | Look) -> Any:
        """Return the copies, which take no room and ask for a gradient."""
        ctx.call = call
        return copies_of(parameter, records)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Hand the gradients of copies to the call, and none to the parameter."""
        (gradient,) = gradients
        ctx.call.arrive(gradient, gradient)
        return None, None, None, None


class _Hook:
    """A hook that stays with its module: copies of the module have none.

    Args:
        call: what it does.

    So a copy, such as an average of weights, is an ordinary module, and holds nothing of the run.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        return self._call(*inputs, **keywords)

    def __reduce__(self) -> Any:
        # Copies and pickles are made by this.
        return _Hook, (_nothing,)


def _nothing(*_inputs: Any, **_keywords: Any) -> None:
    """Do nothing, as the hooks of copies do."""


class Recorder:
    """The hooks on one module, for recording the calls of one forward pass.

    Args:
        module: the module.
        apart: types of layers that treat records apart, as the caller states.
        begin: what is called before each forward pass that is recorded; it returns the blocks of the
            batch, or refuses the pass.
        reduction: how the loop's loss adds up the losses of records.

    Attributes:
        uses: what blocks add to each parameter, after a backward pass of the loss.

    Raises:
        ParameterError: if a layer mixes records, or nothing is known about its parameters.
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
        self._pass = Pass(0, reduction)
        self._layout = Layout(())
        self._recording = False
        self._looks: list[Look] | None = None
        self._anchors: list[Any] = []
        self._tried: Any = None
        self._example: Any = None, 0
        self._before: Mapping[str, _State] = {}
        self._is_settled = False
        self._forms: dict[Any, list[Any]] = {}
        self._kept: Mapping[tuple[str, str], Any] = {}
        self._compared: set[bool] = set()
        found = list(_parts("", module, apart))
        self._frozen_norms = _frozen_norms(module)
        self._layers = {layer: (name, rule) for name, layer, rule in found if rule is not None}
        self._owners = [Owner(name, layer) for name, layer, rule in found if rule is None]
        # The module itself is in its forward function already when hooks put copies into it.
        self._around = [owner for owner in self._owners if owner.layer is module]
        self._inside = [owner for owner in self._owners if owner.layer is not module]
        self._own = {id(p) for p in module.parameters() if p.requires_grad}
        # Inputs of the module that have a row for each record, by where they are.
        self._given: set[str] | None = None
        # Labels of the batch that is read, of which the loss of each record is made.
        self._labels: Any = None
        self._is_shared = bool(self._owners)
        self._knows = self._again = False
        self._hooks: list[Any] = []
        self.hook()

    @property
    def records(self) -> int:
        """The number of records of the batch that is read."""
        return self._layout.rows

    @property
    def entries(self) -> int:
        """The number of entries of parameters of which each record of a batch has a copy."""
        return sum(owner.entries for owner in self._owners)

    def hook(self) -> None:
        """Put on the hooks that are there from the start."""
        module, enter = self.module, _Hook(self._enter)
        self._hooks = [module.register_forward_pre_hook(enter, with_kwargs=True)]
        for part in module.modules():
            if isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag):
                inside = part.register_forward_pre_hook(_Hook(self._inside_table))
                self._hooks.append(inside)
            if part is not module:
                seen = part.register_forward_pre_hook(_Hook(self._seen), with_kwargs=True)
                self._hooks.append(seen)
        for layer, (name, rule) in self._layers.items():
            self._hooks += self._hooks_of(layer, name, rule)
        # A part of the module may be called by itself.
        self._hooks += [n.register_forward_pre_hook(_Hook(_freeze)) for n in self._frozen_norms]
        self._hooks.append(module.register_forward_hook(_Hook(self._leave), always_call=True))

    def remove(self) -> None:
        """Take the hooks off: the module is an ordinary one again."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def clear(self) -> None:
        """Forget the last pass."""
        self.uses = {}

    def try_on(self, inputs: Any, records: int) -> None:
        """Run the module on made-up records, and refuse it if it is seen to mix them.

        Args:
            inputs: what it is called with: positional inputs, and named ones.
            records: the number of records.

        Raises:
            ParameterError: if it mixes records, or does what a pass over a batch may not do.
        """
        self._given = self._with_rows(inputs, records)
        check_apart(self._looked_at, inputs, records, half=halves_inputs())
        self._example = inputs, records
        self._tried = structure_of(self.module, inputs)

    def try_like(self, inputs: Any, records: int) -> Any:
        """Try the module on records of random numbers, and return these.

        Args:
            inputs: records in the shapes of those of a batch.
            records: the number of records.

        Raises:
            ParameterError: if it mixes records, or fails on them.
        """
        self._given = self._with_rows(inputs, records)
        made = self._try_on_shapes(inputs, records)
        self._tried = structure_of(self.module, inputs)
        return made

    def rehearsed(self, inputs: Any, records: int) -> tuple[Uses, Layout]:
        """Return what made-up records add to each parameter, recorded as those of a batch are.

        Args:
            inputs: what the module is called with: positional inputs, and named ones.
            records: the number of records.

        Raises:
            ParameterError: if a pass over a batch would fail.
        """
        layout = Layout((1,) * records)
        modes = {part: part.training for part in self.module.modules()}
        gradients = [(p, p.grad) for p in self.module.parameters()]
        begin, self.begin = self.begin, lambda: layout
        given, keywords = inputs
        try:
            with randomness_from(0), torch.enable_grad():
                self.module.training = True
                out = self.module(*given, **keywords)
                self._pass.backward(probe_of(rows_of(mapped(_as_tensor, out), records)))
            return self.uses, layout
        finally:
            self.begin = begin
            self.clear()
            # Contents are compared again in the first pass over a batch.
            self._compared.discard(False)
            for part, mode in modes.items():
                part.training = mode
            for parameter, gradient in gradients:
                parameter.grad = gradient

    def _try_again(self, inputs: Any, rows: int) -> None:
        """Try the module before its first batch, and before each one for which it was changed."""
        if self._tried is not None and structure_of(self.module, inputs) == self._tried:
            return
        self._given = self._with_rows(inputs, rows)
        example, records = self._example
        if example and form_of(self.module, example) == form_of(self.module, inputs):
            check_apart(self._looked_at, example, records, half=halves_inputs())
        else:
            self._try_on_shapes(inputs, rows)
        self._tried = structure_of(self.module, inputs)

    def _try_on_shapes(self, inputs: Any, rows: int) -> Any:
        """Return the made-up records in the shapes of a batch on which the module was tried.

        They are a few, or as many as those of the batch if the module fails on a few.
        """
        # Whole numbers may be places of tables, or mark what is seen.
        parts = self.module.modules()
        tables = [part.num_embeddings for part in parts if hasattr(part, "num_embeddings")]
        # A table of one row would make all made-up records alike, of which nothing is seen.
        tables = [size for size in tables if size > 1]
        # What is no record must not be as long as there are records.
        leaves = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
        others = {len(leaf) for leaf in leaves if leaf.dim() and not is_rows(leaf, rows)}
        few = next(number for number in count(FEW_RECORDS) if number not in others)
        for whole, records in product((min(tables, default=2), 2), (few, rows)):
            try:
                made = made_up(inputs, rows, records, whole)
                check_apart(self._looked_at, made, records, half=halves_inputs())
            except ParameterError:
                raise
            except Exception as error:
                failed = error
            else:
                return made
        raise ParameterError(
            "module failed on made-up records of random numbers (whole ones are 0 or 1), on which "
            f"it is tried before it reads any ({type(failed).__name__}: {shorten(str(failed), 200)}): "
            "mend it, or give make_private records that it can read as example=.",
            name="example",
        ) from failed

    def _looked_at(
        self, inputs: Any, records: int, *, seed: int = 0, training: bool = True
    ) -> Seen:
        """Return what layers are seen to read and get back when the module is run.

        Products are not shortened: kernels for other numbers of records shorten other ones.
        """
        given, keywords = inputs
        self._layout, self._looks, self._anchors = Layout((1,) * records), [], []
        modes = {part: part.training for part in self.module.modules()}
        try:
            with randomness_from(seed) as has_drawn, torch.enable_grad(), whole_products():
                _ = self.module if training else self.module.eval()
                out = rows_of(_plain(self.module(*given, **keywords)), records)
                named = self.module.named_parameters()
                trained = [(n, p) for n, p in named if p.requires_grad and id(p) in self._own]
                with self._in_backward():
                    asked = [*self._anchors, *(p for _, p in trained)]
                    found = torch.autograd.grad(probe_of(out), asked, allow_unused=True)
                _check_own(trained, found[len(self._anchors) :])
                draws = has_drawn()
            looks = [(look.name, look.x, look.gradient) for look in self._looks]
            return Seen(looks, [tensor.detach() for tensor in out], draws)
        finally:
            self._looks = None
            for part, mode in modes.items():
                part.training = mode

    def _enter(self, module: Any, inputs: Any, keywords: Any) -> Any:
        for norm in self._frozen_norms:
            norm.eval()
        if self._looks is None:
            if not (module.training and torch.is_grad_enabled()):
                return None
            _check_plain_pass()
            if halves_inputs() and self._pass.reduction == "mean":
                raise half_mean("the module is called under torch.autocast")
            keywords, labels = labelled.apart(module, keywords)
            layout = self.begin()
            # One record alone cannot be mixed with others.
            if layout.rows > 1:
                self._try_again((inputs, keywords), layout.rows)
            elif not self._is_settled:
                self._looked_at(made_up((inputs, keywords), 1, 1), 1)
            self._layout, self.uses = layout, {}
            self._pass = Pass(layout.rows, self._pass.reduction, self._in_backward)
            self._knows = self._is_shared or self._tried is None
        else:
            keywords, labels = labelled.apart(module, keywords)
            self._knows = True
        self._recording, self._forms, self._labels = True, {}, labels
        # Contents are compared in the first pass over made-up records, and in the first over a batch.
        is_trial = self._looks is not None
        self._before = _states_of(module, contents=is_trial not in self._compared)
        self._compared.add(is_trial)
        self._kept = kept_of(module)
        self._put_on()
        return self._marked(inputs, keywords) if self._knows else (inputs, keywords)

    def _with_rows(self, inputs: Any, records: int) -> set[str]:
        """Return which inputs have a row for each record, by where they are."""
        named, _ = tree_flatten_with_path(arguments_of(self.module, inputs))
        return {keystr(path) for path, leaf in named if is_rows(leaf, records)}

    def _marked(self, inputs: Any, keywords: Any) -> Any:
        """Return inputs, of which those with a row for each record are known as such."""
        where = self._with_rows((inputs, keywords), self.records)
        if self._given is not None:
            if missing := sorted(self._given - where):
                raise ParameterError(
                    f"module was called with {missing[0]} without a row for each of the "
                    f"{self.records} records of the batch, which it had before.",
                    name="module",
                )
            # What is as long as this batch by chance has no rows of records.
            where = self._given
        named, _ = tree_flatten_with_path(arguments_of(self.module, (inputs, keywords)))
        rows = {id(leaf) for path, leaf in named if keystr(path) in where}
        return tree_map(
            lambda leaf: rows_as(leaf) if id(leaf) in rows else leaf, (inputs, keywords)
        )

    def _put_on(self) -> None:
        for owner in self._around:
            owner.hold_copies(self, again=self._again)
        for owner in self._inside:
            owner.put_on(self)

    def _take_off(self) -> None:
        for owner in self._owners:
            owner.take_off()

    @contextmanager
    def _in_backward(self) -> Iterator[None]:
        """Let layers be called again as they were, by a backward pass that has kept no activations."""
        self._again = True
        self._put_on()
        try:
            yield
        finally:
            self._again = False
            self._take_off()

    def _seen(self, part: Any, inputs: Any, keywords: Any) -> Any:
        """Keep what is known of a part's inputs, which it is called with again in a backward pass.

        Activation checkpointing keeps the inputs as tensors of which nothing is known.
        """
        if not self._knows or not (self._recording or self._again):
            return None
        leaves, form = tree_flatten((inputs, keywords))
        if self._recording:
            self._forms.setdefault(part, []).append([_form(leaf) for leaf in leaves])
            return None
        forms = self._forms.get(part, [])
        if any(other != forms[0] for other in forms) or not forms or len(forms[0]) != len(leaves):
            return None
        known = (
            rebuilt(leaf, self.records) for rebuilt, leaf in zip(forms[0], leaves, strict=True)
        )
        return tree_unflatten(list(known), form)

    def _inside_table(self, part: Any, inputs: Any) -> Any:
        """Let a table be read at a place of its own by a record that asks for none of them."""
        if not (self._recording or self._again) or not inputs:
            return None
        return within_table(part, inputs[0]), *inputs[1:]

    def _leave(self, module: Any, _inputs: Any, output: Any) -> Any:
        if not self._recording:
            return None
        self._recording = False
        self._take_off()
        before, self._before = self._before, {}
        if output is None:
            self._labels = None
            return None  # The module has raised.
        now = _states_of(module)
        changed = [name for name in now if name not in before or before[name].differs(now[name])]
        kept, self._kept = self._kept, {}
        # What a module sets up when it is first called, on made-up records, tells of nobody; a number
        # or a word that it changes then may follow from how long the first records are.
        settled, self._is_settled = self._is_settled, True
        changed += [
            _said(*which)
            for which, held in kept_of(module).items()
            if (settled or _is_word(kept.get(which))) and kept.get(which) != held
        ]
        if changed:
            raise ParameterError(
                f"module changes its {changed[0]} while it reads a batch, which would keep "
                "what records were, outside of any promise.",
                name="module",
            )
        if self._looks is not None:
            return output
        returned, labels = self._pass.returned(output), self._labels
        self._labels = None
        return returned if labels is None else labelled.with_loss(module, returned, labels)

    def lifted(self, owner: Owner, name: str, parameter: Any) -> Any:
        """Return (records, …) the copies of a parameter, whose gradients are recorded.

        Args:
            owner: the module that holds it.
            name: its name there.
            parameter: the parameter.
        """
        full = f"{owner.name}.{name}" if owner.name else name
        empty = torch.zeros(self.records, 0, device=parameter.device)
        call, anchor = self._call(full, owner, kept(name), self._layout, empty)
        return _Lift.apply(parameter, anchor, self.records, call)

    def tapped(self, owner: Owner, rule: Rule, x: Any, out: Any) -> Any:
        """Return what came out of a function, whose gradient is recorded by a rule.

        Args:
            owner: the module that calls the function.
            rule: how parameters are used.
            x: (records, …) what went in.
            out: (records, …) what came out.
        """
        call, anchor = self._call(owner.name, owner, rule, self._layout, x)
        return _Tap.apply(out, anchor, x, call)

    def compare(self, owner: Owner, args: Any, kwargs: Mapping[str, Any]) -> None:
        """Refuse a module that does something else for records one by one, in a trial.

        Args:
            owner: the module.
            args: positional inputs.
            kwargs: named inputs.
        """
        if self._looks is not None and not self._again:
            owner.check_same(args, kwargs, self.records)

    def _call(
        self, name: str, held: Held, rule: Rule, layout: Layout, x: Any
    ) -> tuple[Call | Look, Any]:
        """Return where a gradient is left, and what makes PyTorch ask for it."""
        anchor = torch.zeros((), device=x.device, requires_grad=True)
        if self._looks is None:
            of, uses = self._pass, self.uses
            return Call(name, held.layer, held.parameters, rule, layout, uses, of), anchor
        seen = x.detach().reshape(self.records, -1).clone()
        look = Look(name, seen, seen.new_zeros(self.records, 0))
        if not self._again:
            self._looks.append(look)
            self._anchors.append(anchor)
        return look, anchor

    def _hooks_of(self, layer: Any, name: str, rule: Rule) -> list[Any]:
        """Hook one layer: its parameters ask for no gradient while it runs, and its call is kept."""
        held = _Layer(layer, {n: p for n, p in layer.named_parameters() if p.requires_grad})
        opened: list[Any] = []

        def before(_layer: Any, inputs: Any, keywords: Any) -> Any:
            if not (self._recording or self._again):
                self._refuse_alone(layer, name)
                return None
            if len(inputs) != 1 or keywords or not isinstance(inputs[0], torch.Tensor):
                raise ParameterError(
                    f"layer {name!r} must be called with one tensor.", name="module"
                )
            x, form = self._read(name, inputs[0])
            opened.append(form)
            for parameter in held.parameters.values():
                parameter.requires_grad_(False)
            return (x,), {}

        def after(_layer: Any, inputs: Any, _keywords: Any, out: Any) -> Any:
            if not opened:
                return None
            form = opened.pop()
            for parameter in held.parameters.values():
                parameter.requires_grad_(True)
            if out is None:
                return None  # The layer has raised.
            x = inputs[0].detach()
            if not isinstance(out, torch.Tensor) or len(out) != len(x):
                raise ParameterError(
                    f"layer {name!r} must return one tensor, with a row for each record.",
                    name="module",
                )
            layout = self._layout.times(len(x) // self.records)
            call, anchor = self._call(name, held, rule, layout, x)
            return form(_Tap.apply(out, anchor, x, call))

        return [
            layer.register_forward_pre_hook(_Hook(before), with_kwargs=True),
            layer.register_forward_hook(_Hook(after), with_kwargs=True, always_call=True),
        ]

    def _read(self, name: str, x: Any) -> tuple[Any, Any]:
        """Return what a layer reads, with rows for each record, and the form of what comes out."""
        given, form = read(x, self.records) if self._knows and x.dim() else (x, _as_it_is)
        rows = len(given) if given.dim() else 0
        if rows == 0 or rows % self.records or (rows != self.records and not self._knows):
            raise ParameterError(
                f"layer {name!r} was called with a tensor of shape {tuple(x.shape)}, whose first "
                f"dimension must be the {self.records} records of the batch: positions and tokens "
                "come after it.",
                name="module",
            )
        self._is_shared = (
            self._is_shared or form not in (rows_as, _as_it_is) or rows != self.records
        )
        return given, form

    def _refuse_alone(self, layer: Any, name: str) -> None:
        if layer.training and torch.is_grad_enabled() and layer is not self.module:
            raise ParameterError(
                f"layer {name!r} was called by itself; call the whole module, or evaluate it under "
                "torch.no_grad().",
                name="module",
            )


def _parts(name: str, module: Any, apart: tuple[type, ...]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the layers of a module with rules, and what holds trained parameters without one."""
    rule = rule_of(module, apart)
    if rule is not None:
        yield name, module, rule
        return
    if own_parameters(module):
        yield name, module, None
    for child_name, child in module.named_children():
        yield from _parts(f"{name}.{child_name}" if name else child_name, child, apart)


def _freeze(norm: Any, _inputs: Any) -> None:
    """Let a batch norm use its own statistics, which follow from no record then."""
    norm.eval()


def _frozen_norms(module: Any) -> list[Any]:
    """Return the batch norms with fixed statistics, which keep these for the whole run.

    Raises:
        ParameterError: if they are in evaluation mode only because the whole module is.
    """
    found = [part for part in module.modules() if is_frozen_norm(part)]
    if found and not module.training:
        raise ParameterError(
            f"module must be in training mode with {type(found[0]).__name__} in evaluation mode, not "
            "in evaluation mode as a whole, where this layer would mix records once train() is called; "
            "call train() of the module, and then eval() of the layer to freeze its statistics.",
            name="module",
        )
    return found


def _check_own(trained: Sequence[tuple[str, Any]], gradients: Sequence[Any]) -> None:
    """Refuse a parameter that is read by another module than the one that holds it."""
    for (name, _), gradient in zip(trained, gradients, strict=True):
        if gradient is not None:
            raise ParameterError(
                f"module reads parameter {name!r} elsewhere than in the layer that holds it, so that "
                "its gradient is a sum over records: call the layer, or freeze the parameter.",
                name="module",
            )


@dataclass(frozen=True)
class _Form:
    """The form of an input: rows, copies of one row, or neither.

    Args:
        kind: the type of tensor; None of what is no tensor.
        times: how often copies repeat their one row; None where they do not.
        needs_gradient: whether copies ask for a gradient.
    """

    kind: type | None
    times: int | None = None
    needs_gradient: bool = False

    def __call__(self, leaf: Any, records: int) -> Any:
        """Return an input with the same knowledge, where it has been lost."""
        if not isinstance(leaf, torch.Tensor) or isinstance(leaf, Rows | Copies):
            return leaf
        if self.kind is Rows:
            return rows_as(leaf)
        if self.kind is Copies:
            once = leaf if self.times is None else leaf[:1]
            copies = copies_of(once, records).requires_grad_(self.needs_gradient)
            return copies_as(copies, times=self.times)
        return leaf


def _form(leaf: Any) -> _Form:
    """Return the form of an input."""
    if isinstance(leaf, Copies):
        times = len(leaf) if leaf.repeated else None
        return _Form(Copies, times, leaf.copies.requires_grad)
    return _Form(type(leaf) if isinstance(leaf, torch.Tensor) else None)


def _is_word(held: Any) -> bool:
    """Return whether what a module holds is a number or a word, as :func:`kept_of` has it."""
    return isinstance(held, tuple) and held[0] in (bool, int, float, str)


def _said(layer: str, attribute: str) -> str:
    return f"attribute {attribute!r}" + (f" of layer {layer!r}" if layer else "")


def _as_it_is(out: Any) -> Any:
    return out


def _plain(out: Any) -> Any:
    """Return what a module has returned, with plain tensors."""
    return mapped(plain, out)


def _as_tensor(output: Any) -> Any:
    """Return an output of a module as a plain tensor."""
    with torch._C.DisableTorchFunctionSubclass():
        return output.as_subclass(torch.Tensor)


def _check_plain_pass() -> None:
    """Refuse a pass inside transforms of functions, and one that carries derivatives forwards."""
    if torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0:
        raise alone()


@dataclass(frozen=True, eq=False)
class _State:
    """The state of a tensor before a pass.

    Args:
        tensor: the tensor.
        version: how often it was changed in place, by all ways but ``.data``.
        contents: its contents; None where they are not compared.
    """

    tensor: Any
    version: int
    contents: Any

    def differs(self, now: _State) -> bool:
        """Return whether the tensor was changed or replaced since."""
        if now.tensor is not self.tensor or now.version != self.version:
            return True
        return self.contents is not None and not torch.equal(self.contents, _bytes_of(now.tensor))


def _states_of(module: Any, *, contents: bool = False) -> dict[str, _State]:
    """Return what all buffers and parameters of a module are, by name."""
    named = [(f"buffer {name!r}", tensor) for name, tensor in module.named_buffers()]
    named += [(f"parameter {name!r}", tensor) for name, tensor in module.named_parameters()]
    return {
        name: _State(tensor, tensor._version, _bytes_of(tensor).clone() if contents else None)
        for name, tensor in named
    }


def _bytes_of(tensor: Any) -> Any:
    """Return a tensor's contents, among which what is no number is itself."""
    return tensor.detach().reshape(-1).view(torch.uint8)
