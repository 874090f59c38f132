"""Structure and stored values of a network, compared to detect changes."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from dpgrain.torch.gradient_precision import halves_inputs
from dpgrain.torch.library import torch

# Maximum number of inspected items in a container.
_MOST_ENTRIES = 1000
# Hooks that PyTorch calls around all modules.
_GLOBAL_HOOKS = tuple(name for name in vars(torch.nn.modules.module) if name.startswith("_global_"))
# Attributes of every PyTorch module except its mode: parameters, buffers, modules and hooks.
_OF_MODULES = frozenset(vars(torch.nn.Module())) - {"training"}
_PLAIN = (bool, int, str, bytes, type(None), torch.dtype, torch.device)


@dataclass(frozen=True, eq=False)
class _Identity:
    """Object equal only to itself; referenced to keep its memory address unique."""

    thing: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.thing is self.thing

    def __hash__(self) -> int:
        return id(self.thing)


def _structure(module: Any) -> Any:
    """Return the structure of a module and of the hooks around all modules."""
    parts = [
        (
            name,
            _Identity(part),
            _Identity(type(part)),
            _Identity(type(part).forward),
            _attributes(part),
        )
        for name, part in module.named_modules()
    ]
    return parts, [_plain(hooks) for hooks in _global_hooks().values()]


def call_form(module: Any, inputs: Any) -> Any:
    """Return the form of a call: the names and types of its inputs."""
    return _plain(call_arguments(module, inputs))


def call_arguments(module: Any, inputs: Any) -> Any:
    """Return the inputs of a module, by parameter name if possible."""
    positional, named = inputs
    try:
        return dict(inspect.signature(module.forward).bind(*positional, **named).arguments)
    except (TypeError, ValueError):
        return [*positional, dict(named)]


def _attributes(part: Any) -> Any:
    """Return the attributes of a module, without its submodules."""
    value = {name: value for name, value in vars(part).items() if name != "_modules"}
    parameters = [
        (name, _Identity(p), p is not None and p.requires_grad)
        for name, p in part._parameters.items()
    ]
    return parameters, _plain(value)


def stored_values(module: Any) -> dict[tuple[str, str], Any]:
    """Return the attributes of a module's layers other than parameters and buffers."""
    return {
        (name, attribute): _plain(value, own=True)
        for name, part in module.named_modules()
        for attribute, value in vars(part).items()
        if attribute not in _OF_MODULES
    }


def _plain(value: Any, *, own: bool = False) -> Any:
    """Return the comparable part of a value; for a tensor its identity, if ``own``."""
    if type(value) in _PLAIN:
        return type(value), value
    if isinstance(value, torch.Tensor):
        return (
            (_Identity(value), value._version) if own else (torch.Tensor, value.dtype, value.dim())
        )
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, float | complex):
        return type(value), repr(value)
    if isinstance(value, list | tuple | Set | Mapping) and len(value) <= _MOST_ENTRIES:
        if isinstance(value, Mapping):
            items = value.items()
            return type(value), [(_plain(n, own=own), _plain(item, own=own)) for n, item in items]
        if isinstance(value, Set):
            return type(value), {
                _Identity(item) if not isinstance(item, _PLAIN) else item for item in value
            }
        return type(value), [_plain(item, own=own) for item in value]
    return _Identity(value)


def _tensor_bytes(tensor: Any) -> Any:
    """Return a tensor's contents as bytes, so that NaN equals itself."""
    return tensor.detach().reshape(-1).view(torch.uint8)


def _is_scalar(value: Any) -> bool:
    """Return True if an attribute in :func:`stored_values` is a number or text."""
    return isinstance(value, tuple) and value[0] in (bool, int, float, str)


@dataclass(frozen=True, eq=False)
class ModuleState:
    """State of a module before a pass: its tensors and other stored values.

    PyTorch counts changes of tensors except through ``.data``; ``contents`` are their bytes, if
    requested.
    """

    tensors: Mapping[str, Any]
    versions: Mapping[str, int]
    contents: Mapping[str, Any]
    values: Mapping[tuple[str, str], Any]

    def has_changed(self, name: str, now: ModuleState) -> bool:
        """Return True if a tensor has been changed or replaced since."""
        tensor = now.tensors[name]
        if self.tensors.get(name) is not tensor or self.versions[name] != now.versions[name]:
            return True
        contents = self.contents.get(name)
        return contents is not None and not torch.equal(contents, _tensor_bytes(tensor))


class WatchedModule:
    """Module with a structure and a state that are read again only after a change.

    A change is a different object, tensor type or count of changes anywhere in its layers.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._last: _Walk | None = None

    def structure(self, inputs: Any) -> Any:
        """Return a structure that stays equal until the module or the inputs' form changes.

        It contains layers, modes, hooks, functions, parametrizations, numbers and text; for tensors
        only their presence, and for objects their identity.
        """
        return self._walk().structure, halves_inputs(), call_form(self._module, inputs)

    def state(self, *, contents: bool) -> ModuleState:
        """Return the current state; ``contents`` also compares the bytes of tensors."""
        walk = self._walk()
        return ModuleState(
            walk.tensors,
            {name: tensor._version for name, tensor in walk.tensors.items()},
            {n: _tensor_bytes(t).clone() for n, t in walk.tensors.items()} if contents else {},
            walk.values,
        )

    def changes(self, before: ModuleState, *, only_scalars: bool) -> list[str]:
        """Describe what has changed since; of new values only numbers and text, on request."""
        now = self.state(contents=False)
        changed = [name for name in now.tensors if before.has_changed(name, now)]
        if now.values is before.values:
            return changed
        return changed + [
            f"attribute {attribute!r}" + (f" of layer {layer!r}" if layer else "")
            for (layer, attribute), value in now.values.items()
            if (_is_scalar(before.values.get((layer, attribute))) or not only_scalars)
            and before.values.get((layer, attribute)) != value
        ]

    def _walk(self) -> _Walk:
        if self._last is None or not self._last.is_current():
            self._last = _Walk(self._module)
        return self._last


class _Walk:
    """Objects seen in one walk over a module, current until something is replaced.

    References to all seen objects make their identities unique.
    """

    def __init__(self, module: Any) -> None:
        self._module, self._parts = module, list(module.modules())
        self._of_modules = {
            id(each)
            for part in self._parts
            for each in (vars(part), part._modules, part._parameters, part._buffers)
        }
        self._containers: list[Any] = []
        self._tensors: list[Any] = []
        for container in (*map(vars, self._parts), _global_hooks()):
            self._collect(container, set())
        # Most containers are empty dictionaries of hooks, which only need a comparison of sizes.
        filled = [part for part in self._containers if len(part) and self._is_inspected(part)]
        views = [part.values() for part in filled if isinstance(part, Mapping)]
        self._iterables = [*filled, *views]
        of_modules = {
            id(tensor)
            for part in self._parts
            for tensor in chain(part._parameters.values(), part._buffers.values())
        }
        self._others = [tensor for tensor in self._tensors if id(tensor) not in of_modules]
        self._seen, self._facts = list(self._objects()), self._current_facts()

    def is_current(self) -> bool:
        """Return True if a new walk would see the same."""
        return self._current_facts() == self._facts and all(
            map(operator.is_, self._objects(), self._seen)
        )

    @cached_property
    def structure(self) -> Any:
        """Structure of the module, without the form of the inputs."""
        return _structure(self._module)

    @cached_property
    def values(self) -> Mapping[tuple[str, str], Any]:
        """Result of :func:`stored_values`."""
        return stored_values(self._module)

    @cached_property
    def tensors(self) -> Mapping[str, Any]:
        """Buffers and parameters, by a name that describes them."""
        module = self._module
        buffers = {f"buffer {name!r}": tensor for name, tensor in module.named_buffers()}
        return buffers | {f"parameter {name!r}": p for name, p in module.named_parameters()}

    def _collect(self, value: Any, inside: set[int]) -> None:
        """Collect the tensors and containers of a value, as :func:`_plain` visits them."""
        if isinstance(value, torch.Tensor):
            self._tensors.append(value)
        elif isinstance(value, list | tuple | Set | Mapping) and id(value) not in inside:
            self._containers.append(value)
            if self._is_inspected(value):
                parts = chain(value, value.values()) if isinstance(value, Mapping) else value
                for part in parts:
                    self._collect(part, {*inside, id(value)})

    def _is_inspected(self, container: Any) -> bool:
        """Return True if a walk visits the items, as it does for any number of layers."""
        return len(container) <= _MOST_ENTRIES or id(container) in self._of_modules

    def _objects(self) -> Iterator[Any]:
        """Return all objects with an identity that must not change."""
        types = list(map(type, self._parts))
        forwards = map(operator.attrgetter("forward"), types)
        hooks = _global_hooks().values()
        return chain(
            map(vars, self._parts), types, forwards, hooks, chain.from_iterable(self._iterables)
        )

    def _current_facts(self) -> Any:
        """Return sizes of containers, and properties of tensors that change in place."""
        return (
            list(map(len, self._containers)),
            [(t.dtype, t.dim(), t.requires_grad) for t in self._tensors],
            [tensor._version for tensor in self._others],
        )


def _global_hooks() -> dict[str, Any]:
    """Return the hooks that PyTorch calls around all modules, by name."""
    return {name: vars(torch.nn.modules.module)[name] for name in _GLOBAL_HOOKS}
