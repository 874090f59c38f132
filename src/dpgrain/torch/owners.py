"""Modules without a rule that hold parameters themselves, run so that each record has a copy of these.

The smallest such module, in which no other holds trained parameters, runs record by record under
``torch.func.vmap``: what is vmapped cannot mix records. One that holds other modules with parameters
runs as it is, with copies in place of its own parameters, and these modules keep their rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from dpgrain.errors import ParameterError
from dpgrain.torch.layers import Rule, own_parameters
from dpgrain.torch.layout import Layout
from dpgrain.torch.library import torch
from dpgrain.torch.randomness import randomness_from
from dpgrain.torch.shared import (
    Copies,
    Rows,
    copies_as,
    each_apart,
    everywhere_plain,
    plain,
    rows_as,
    vmapped,
)
from dpgrain.torch.trial import evaluating, same
from dpgrain.torch.uses import Kept, Lookup, Outer, Use

functional = torch.nn.functional


class Recording(Protocol):
    """A recorder of copies of parameters, and of calls of functions with a rule."""

    @property
    def records(self) -> int:
        """The number of records of the batch."""

    def lifted(self, owner: Owner, name: str, parameter: Any) -> Any:
        """Return (records, …) the copies of a parameter, whose gradients are recorded."""

    def tapped(self, owner: Owner, rule: Rule, x: Any, out: Any) -> Any:
        """Return what came out of a function, whose gradient is recorded by a rule.

        Args:
            owner: the module that calls the function.
            rule: how parameters are used.
            x: (records, …) what went in.
            out: (records, …) what came out.
        """

    def compare(self, owner: Owner, args: Any, kwargs: Mapping[str, Any]) -> None:
        """Refuse a module that does something else for records one by one, in a trial."""


class Owner:
    """A module without a rule that holds trained parameters.

    Args:
        name: its name in the network.
        layer: the module.

    Attributes:
        is_smallest: True if no module in it holds trained parameters: it runs under vmap.
    """

    def __init__(self, name: str, layer: Any) -> None:
        self.name, self.layer = name, layer
        self.parameters: Mapping[str, Any] = own_parameters(layer)
        trained = {id(p) for p in layer.parameters() if p.requires_grad}
        self.is_smallest = trained == {id(p) for p in self.parameters.values()}
        self._own_forward = layer.__dict__.get("forward")
        self._copies: dict[str, Any] = {}
        # Whether records share each tensor that comes out, as made-up records show.
        self._shared: tuple[bool, ...] = ()

    @property
    def entries(self) -> int:
        """The number of entries of which each record of a batch has a copy."""
        quick = isinstance(self.layer, torch.nn.Linear | torch.nn.Embedding)
        return 0 if quick else sum(p.numel() for p in self.parameters.values())

    def put_on(self, recording: Recording) -> None:
        """Let the module run with copies.

        Args:
            recording: what records them.
        """

        def forward(*args: Any, **kwargs: Any) -> Any:
            run = self._run_alone if self.is_smallest else self._run_with_copies
            return run(recording, args, kwargs)

        self.layer.__dict__["forward"] = forward

    def hold_copies(self, recording: Recording, *, again: bool) -> None:
        """Put copies in place of the module's own parameters.

        Args:
            recording: what records them.
            again: True for those of the pass before.
        """
        if not again:
            self._copies = self._lifted(recording)
        self.layer._parameters.update(self._copies)

    def take_off(self) -> None:
        """Let the module run as it did before."""
        self.layer._parameters.update(self.parameters)
        if self._own_forward is None:
            self.layer.__dict__.pop("forward", None)
        else:
            self.layer.__dict__["forward"] = self._own_forward

    def check_same(self, args: Any, kwargs: Mapping[str, Any], records: int) -> None:
        """Refuse a module that does something else for records one by one than for all of them.

        Args:
            args: positional inputs, of made-up records.
            kwargs: named inputs.
            records: the number of records.

        Raises:
            ParameterError: if it does.
        """
        copies = {name: copies_of(p, records) for name, p in self.parameters.items()}
        with evaluating(self.layer), randomness_from(0), self._unchanged():
            wanted = _tensors(self._forward(*everywhere_plain(args), **everywhere_plain(kwargs)))
            made, _rebuilt = vmapped(*self._one_by_one(copies, args, kwargs, records))
        alike = len(wanted) == len(made)
        forms = tuple(one.shape == each.shape[1:] for one, each in zip(wanted, made, strict=False))
        if records > 1:
            self._shared = forms
        for one, each, is_shared in zip(wanted, made, forms, strict=False):
            found = each[0] if is_shared else each.flatten(0, 1) if each.dim() > 1 else each
            alike = alike and same(one, found)
        if not alike:
            raise ParameterError(
                f"module has a layer {type(self.layer).__name__} ({self.name!r}) that makes something "
                "else of records one by one than of all of them, as made-up records show: let each "
                "record's numbers follow from the record alone.",
                name="module",
            )

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's own forward function."""
        if self._own_forward is not None:
            return self._own_forward(*args, **kwargs)
        return type(self.layer).forward(self.layer, *args, **kwargs)

    def _run_alone(self, recording: Recording, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Run the module record by record."""
        recording.compare(self, args, kwargs)
        copies = {n: recording.lifted(self, n, p) for n, p in self.parameters.items()}
        given = self._one_by_one(copies, args, kwargs, recording.records, recording)
        with self._unchanged():
            return each_apart(*given, self._shared)

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Refuse a buffer that is replaced by what follows from records, and put it back."""
        before = [(part, dict(part._buffers)) for part in self.layer.modules()]
        yield
        for part, buffers in before:
            changed = [
                name for name, kept in buffers.items() if part._buffers.get(name) is not kept
            ]
            part._buffers.update(buffers)
            if changed:
                raise ParameterError(
                    f"module changes its buffer {changed[0]!r} of layer {self.name!r} while it reads a "
                    "batch, which would keep what records were, outside of any promise.",
                    name="module",
                )

    def _one_by_one(
        self,
        copies: Mapping[str, Any],
        args: Any,
        kwargs: Mapping[str, Any],
        records: int,
        recording: Recording | None = None,
    ) -> tuple[Any, Any, Any, str, int]:
        """Return what is called for each record, with what, and how it is spoken of."""

        def one(own: Mapping[str, Any], args: Any, kwargs: Any) -> Any:
            with _parameters_of(self.layer, own), _Quick(self, own, recording):
                return self._forward(*args, **kwargs)

        own = {name: copies_as(each) for name, each in copies.items()}
        args, kwargs = tree_map(lambda leaf: _repeated(leaf, records), (args, dict(kwargs)))
        words = f"module has a layer {type(self.layer).__name__} ({self.name!r})"
        return one, (own, args, kwargs), {}, words, records

    def _run_with_copies(self, recording: Recording, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Run the module as it is, with copies in place of its own parameters."""
        with _parameters_of(self.layer, self._lifted(recording)):
            return self._forward(*args, **kwargs)

    def _lifted(self, recording: Recording) -> dict[str, Any]:
        """Return what records share in place of the module's own parameters."""
        return {
            name: copies_as(recording.lifted(self, name, p)) for name, p in self.parameters.items()
        }


class _Quick(TorchFunctionMode):
    """Linear maps and tables of a module that runs record by record, made for all records at once.

    Args:
        owner: the module.
        own: its parameters by name, as they are under vmap.
        recording: what records their gradients; None where nothing is recorded.
    """

    def __init__(self, owner: Owner, own: Mapping[str, Any], recording: Recording | None) -> None:
        super().__init__()
        self._owner, self._own, self._recording = owner, own, recording

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {} if kwargs is None else kwargs
        if func is functional.embedding and self._name_of(args[1]):
            return self._embedding(*args, **kwargs)
        if func is functional.linear and self._name_of(args[1]):
            return self._linear(*args, **kwargs)
        return func(*args, **kwargs)

    def _name_of(self, tensor: Any) -> str:
        """Return the name of a parameter; empty for other tensors."""
        return next((name for name, p in self._own.items() if p is tensor), "")

    def _embedding(
        self,
        places: Any,
        weight: Any,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,  # noqa: ARG002 - as PyTorch has it
        scale_grad_by_freq: bool = False,
        sparse: bool = False,  # noqa: ARG002 - as PyTorch has it
    ) -> Any:
        """Look vectors up."""
        assert max_norm is None and not scale_grad_by_freq  # noqa: S101, PT018 - refused before
        name = self._name_of(weight)
        table = self._owner.parameters[name].detach()

        def uses(_layer: Any, x: Any, b: Any, layout: Layout) -> Mapping[str, Use]:
            x, b = x.reshape(len(x), -1), b.reshape(len(x), -1, b.shape[-1])
            if padding_idx is not None:
                b = b.masked_fill((x == padding_idx)[..., None], 0)
            return {name: Lookup(layout, x, b, len(table))}

        return self._at_once(lambda x: functional.embedding(x, table), uses, places)

    def _linear(self, x: Any, weight: Any, bias: Any = None) -> Any:
        """Apply a linear map; what is added afterwards has a copy for each record."""
        name = self._name_of(weight)
        matrix = self._owner.parameters[name].detach()

        def uses(_layer: Any, x: Any, b: Any, layout: Layout) -> Mapping[str, Use]:
            x, b = (t.reshape(len(t), -1, t.shape[-1]) for t in (x, b))
            return {name: Outer.of(layout, x, b)}

        out = self._at_once(lambda x: functional.linear(x, matrix), uses, x)
        return out if bias is None else out + bias

    def _at_once(self, function: Any, rule: Rule, x: Any) -> Any:
        """Call a function of one tensor for all records at once."""

        def real(x: Any) -> Any:
            out = function(x)
            if self._recording is None:
                return out
            return self._recording.tapped(self._owner, rule, x.detach(), out)

        return _AtOnce.apply(x, next(iter(self._own.values())), real)


class _AtOnce(torch.autograd.Function):
    """A function of what all records have, called from where each is by itself."""

    @staticmethod
    def forward(_x: Any, _of_each: Any, _function: Any) -> Any:
        """Refuse what is never asked, since parameters are vmapped."""
        raise NotImplementedError

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: PyTorch's own functions, called for all records, have their own gradients."""

    @staticmethod
    def backward(_ctx: Any, *_gradients: Any) -> Any:
        """Refuse what is never asked."""
        raise NotImplementedError

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, _of_each: Any, function: Any) -> tuple[Any, int]:
        """Call the function with what each record has."""
        of_each = in_dims[0] is not None
        x = x.movedim(in_dims[0], 0) if of_each else x.expand(info.batch_size, *x.shape)
        return function(x), 0


@contextmanager
def _parameters_of(layer: Any, own: Mapping[str, Any]) -> Iterator[None]:
    """Put other tensors in place of a module's own parameters, and these back."""
    before = {name: layer._parameters[name] for name in own}
    layer._parameters.update(own)
    try:
        yield
    finally:
        layer._parameters.update(before)


def copies_of(parameter: Any, records: int) -> Any:
    """Return (records, …) copies of a parameter, which take no room.

    Args:
        parameter: the parameter.
        records: the number of records.
    """
    return parameter.detach().expand(records, *parameter.shape)


def kept(name: str) -> Rule:
    """Return the rule of copies of a parameter, whose gradients are those of records.

    Args:
        name: the name of the parameter in its module.
    """

    def uses(_layer: Any, _x: Any, b: Any, layout: Layout) -> Mapping[str, Use]:
        return {name: Kept(layout, layout.per_block(b))}

    return uses


def read(x: Any, records: int) -> tuple[Any, Any]:
    """Return what a layer reads, with a row for each record, and the form of what comes out.

    Args:
        x: what the layer is called with: made of records, or shared by all.
        records: the number of records.

    >>> shared, form_of_out = read(torch.ones(1, 5), 3)
    >>> shared.shape, form_of_out(torch.zeros(3, 1, 5, 2)).shape
    (torch.Size([3, 1, 5]), torch.Size([1, 5, 2]))
    """
    if isinstance(x, Rows):
        return plain(x), rows_as
    x = shared(x, records)
    return x.copies, partial(copies_as, times=len(x)) if x.repeated else copies_as


def shared(x: Any, records: int) -> Any:
    """Return copies of what is not made of records, which may repeat one row for each.

    Args:
        x: a tensor.
        records: the number of records.
    """
    if isinstance(x, Rows | Copies):
        return x
    if x.dim() and len(x) > 1 and len(x) % records == 0 and bool((x == x[:1]).all()):
        return copies_as(x[:1].expand(records, *x[:1].shape), times=len(x))
    return copies_as(x.expand(records, *x.shape))


def _repeated(leaf: Any, records: int) -> Any:
    """Return copies of a tensor that repeats one row for each record, and all else as it is."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    known = shared(leaf, records)
    return known if isinstance(leaf, Rows | Copies) or known.repeated else leaf


def _tensors(found: Any) -> list[Any]:
    return [t for t in tree_leaves(found) if isinstance(t, torch.Tensor)]
