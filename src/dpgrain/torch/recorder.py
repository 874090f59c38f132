"""Hooks that turn inputs of layers, and gradients by their outputs, into uses of parameters.

While a layer runs its parameters ask for no gradient, so that a backward pass makes none of them: it
hands the gradients by outputs to :class:`_Tap`, from which everything is made that blocks add, at
once, so that what needs no keeping is let go of on the way. A gradient that reaches a parameter all
the same came by a way that nobody recorded, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from dpgrain.errors import ParameterError
from dpgrain.torch.layers import Rule, rule_of
from dpgrain.torch.layout import Layout
from dpgrain.torch.library import torch
from dpgrain.torch.outputs import Pass, Reduction, alone
from dpgrain.torch.precision import (
    half_mean,
    halves_inputs,
    is_half,
    precisely,
    whole_products,
)
from dpgrain.torch.randomness import randomness_from
from dpgrain.torch.structure import form_of, structure_of
from dpgrain.torch.trial import (
    FEW_RECORDS,
    Seen,
    check_apart,
    made_up,
    probe_of,
    rows_of,
)
from dpgrain.torch.uses import Uses, add_use


@dataclass(frozen=True, eq=False)
class Call:
    """One call of one layer.

    Args:
        name: the name of the layer in the module.
        layer: the layer.
        rule: how its parameters are used.
        layout: the blocks of the batch.
        uses: where to leave what blocks add to each parameter.
        of: the pass, whose backward pass alone may bring gradients.
    """

    name: str
    layer: Any
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
            x, b = (_at_least_single(t.detach()) for t in (x, gradient))
            uses = self.rule(self.layer, x, b, self.layout)
        for name, parameter in self.layer.named_parameters():
            if parameter.requires_grad and name in uses:
                add_use(self.uses, parameter, uses[name])


@dataclass(eq=False)
class Look:
    """The input and the gradient of one call of one layer, as seen in a trial.

    Args:
        name: the name of the layer in the module.
        x: what went in.
        gradient: the gradient by what came out; zeros until one arrives.
    """

    name: str
    x: Any
    gradient: Any

    def arrive(self, _x: Any, gradient: Any) -> None:
        """Keep the gradient."""
        self.gradient = self.gradient + gradient.detach()


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
        self._asleep: list[Any] = []
        self._before: Mapping[str, _State] = {}
        self._compared: set[bool] = set()
        self._layers = dict(_leaves("", module, apart))
        self._hooks: list[Any] = []
        self.hook()

    def hook(self) -> None:
        """Put on the hooks that are there from the start."""
        module, enter = self.module, _Hook(self._enter)
        self._hooks = [module.register_forward_pre_hook(enter, with_kwargs=True)]
        for layer, (name, rule) in self._layers.items():
            self._hooks += self._hooks_of(layer, name, rule)
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
        check_apart(self._looked_at, inputs, records, half=halves_inputs())
        self._example = inputs, records
        self._tried = structure_of(self.module, inputs)

    def _try_again(self, inputs: Any, rows: int) -> None:
        """Try the module before its first batch, and before each one for which it was changed."""
        if self._tried is not None and structure_of(self.module, inputs) == self._tried:
            return
        example, records = self._example
        if example and form_of(self.module, example) == form_of(self.module, inputs):
            check_apart(self._looked_at, example, records, half=halves_inputs())
        else:
            self._try_on_shapes(inputs, rows)
        self._tried = structure_of(self.module, inputs)

    def _try_on_shapes(self, inputs: Any, rows: int) -> None:
        """Try the module on a few made-up records in the shapes of a batch; on as many, if need be."""
        # Whole numbers may be places of tables, or mark what is seen.
        parts = self.module.modules()
        tables = [part.num_embeddings for part in parts if hasattr(part, "num_embeddings")]
        for whole, records in product((min(tables, default=2), 2), (FEW_RECORDS, rows)):
            try:
                made = made_up(inputs, rows, records, whole)
                check_apart(self._looked_at, made, records, half=halves_inputs())
            except ParameterError:
                raise
            except Exception as error:
                failed = error
            else:
                return
        raise ParameterError(
            "module failed on made-up records of random numbers (whole ones are 0 or 1), on which "
            "it is tried before it reads any: mend it, or give make_private records that it can read "
            "as example=.",
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
                out = rows_of(self.module(*given, **keywords), records)
                torch.autograd.grad(probe_of(out), self._anchors, allow_unused=True)
                draws = has_drawn()
            looks = [(look.name, look.x, look.gradient) for look in self._looks]
            return Seen(looks, [tensor.detach() for tensor in out], draws)
        finally:
            self._looks = None
            for part, mode in modes.items():
                part.training = mode

    def _enter(self, module: Any, inputs: Any, keywords: Any) -> None:
        if self._looks is None:
            if not (module.training and torch.is_grad_enabled()):
                return
            _check_plain_pass()
            if halves_inputs() and self._pass.reduction == "mean":
                raise half_mean("the module is called under torch.autocast")
            layout = self.begin()
            # One record alone cannot be mixed with others.
            if layout.rows > 1:
                self._try_again((inputs, keywords), layout.rows)
            self._layout, self.uses = layout, {}
            self._pass = Pass(layout.rows, self._pass.reduction)
        self._recording = True
        # Contents are compared in the first pass over made-up records, and in the first over a batch.
        made_up = self._looks is not None
        self._before = _states_of(module, contents=made_up not in self._compared)
        self._compared.add(made_up)

    def _leave(self, module: Any, _inputs: Any, output: Any) -> Any:
        if not self._recording:
            return None
        self._recording = False
        # A layer that raised has left its parameters as they were while it ran.
        for parameter in self._asleep:
            parameter.requires_grad_(True)
        self._asleep = []
        before, self._before = self._before, {}
        now = _states_of(module)
        changed = [name for name in now if name not in before or before[name].differs(now[name])]
        if changed:
            raise ParameterError(
                f"module changes its {changed[0]} while it reads a batch, which would keep "
                "what records were, outside of any promise.",
                name="module",
            )
        return output if self._looks is not None else self._pass.returned(output)

    def _hooks_of(self, layer: Any, name: str, rule: Rule) -> list[Any]:
        """Hook one layer: its parameters ask for no gradient while it runs, and its call is kept."""
        trained = [p for p in layer.parameters() if p.requires_grad]

        def before(_layer: Any, inputs: Any, keywords: Any) -> None:
            if not self._recording:
                self._refuse_alone(layer, name)
                return
            if len(inputs) != 1 or keywords or not isinstance(inputs[0], torch.Tensor):
                raise ParameterError(
                    f"layer {name!r} must be called with one tensor.", name="module"
                )
            if inputs[0].dim() == 0 or len(inputs[0]) != self._layout.rows:
                raise ParameterError(
                    f"layer {name!r} was called with a tensor of shape {tuple(inputs[0].shape)}, whose "
                    f"first dimension must be the {self._layout.rows} records of the batch: positions "
                    "and tokens come after it, and a table that all records share is looked up for "
                    "each.",
                    name="module",
                )
            self._asleep = trained
            for parameter in trained:
                parameter.requires_grad_(False)

        def after(_layer: Any, inputs: Any, _keywords: Any, out: Any) -> Any:
            if not self._recording:
                return None
            for parameter in trained:
                parameter.requires_grad_(True)
            self._asleep = []
            if not isinstance(out, torch.Tensor) or len(out) != self._layout.rows:
                raise ParameterError(
                    f"layer {name!r} must return one tensor, with a row for each record.",
                    name="module",
                )
            anchor, x = torch.zeros((), device=out.device, requires_grad=True), inputs[0].detach()
            if self._looks is None:
                call = Call(name, layer, rule, self._layout, self.uses, self._pass)
                return _Tap.apply(out, anchor, x, call)
            look = Look(name, x.clone(), torch.zeros_like(out))
            self._looks.append(look)
            self._anchors.append(anchor)
            return _Tap.apply(out, anchor, x, look)

        return [
            layer.register_forward_pre_hook(_Hook(before), with_kwargs=True),
            layer.register_forward_hook(_Hook(after), with_kwargs=True),
        ]

    def _refuse_alone(self, layer: Any, name: str) -> None:
        if layer.training and torch.is_grad_enabled() and layer is not self.module:
            raise ParameterError(
                f"layer {name!r} was called by itself; call the whole module, or evaluate it under "
                "torch.no_grad().",
                name="module",
            )


def _leaves(
    name: str, module: Any, apart: tuple[type, ...]
) -> Iterator[tuple[Any, tuple[str, Rule]]]:
    """Yield the layers of a module that have rules, with their names."""
    rule = rule_of(module, apart)
    if rule is not None:
        yield module, (name, rule)
    else:
        for child_name, child in module.named_children():
            yield from _leaves(f"{name}.{child_name}" if name else child_name, child, apart)


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


def _at_least_single(tensor: Any) -> Any:
    """Return a tensor of real numbers in single precision or better; whole numbers stay."""
    return tensor.float() if is_half(tensor.dtype) else tensor
