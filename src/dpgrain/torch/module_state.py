"""Structure and stored values of a network, compared to detect changes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Set
from dataclasses import dataclass
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


def module_structure(module: Any, inputs: Any) -> Any:
    """Return a structure that stays equal until a module or its inputs' form changes.

    It contains layers, modes, hooks, functions, parametrizations, numbers and text; for tensors
    only their presence, and for objects their identity.

    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.1))
    >>> called = ((torch.ones(3, 2),), {})
    >>> before = module_structure(net, called)
    >>> net[1].p = 0.2
    >>> before == module_structure(net, called), before == before
    (False, True)
    """
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
    around = [_plain(vars(torch.nn.modules.module)[name]) for name in _GLOBAL_HOOKS]
    return parts, around, halves_inputs(), call_form(module, inputs)


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
    """Return the attributes of a module's layers other than parameters and buffers.

    The result stays equal until a number, text, list, object or tensor in it changes.

    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.1))
    >>> before, net[0].seen = stored_values(net), torch.ones(2)
    >>> [name for name, value in stored_values(net).items() if before.get(name) != value]
    [('0', 'seen')]
    """
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
        return self.contents is not None and not torch.equal(
            self.contents, _tensor_bytes(now.tensor)
        )


def _tensor_states(module: Any, *, contents: bool = False) -> dict[str, _State]:
    """Return the state of all buffers and parameters of a module, by name."""
    named = [(f"buffer {name!r}", tensor) for name, tensor in module.named_buffers()]
    named += [(f"parameter {name!r}", tensor) for name, tensor in module.named_parameters()]
    return {
        name: _State(tensor, tensor._version, _tensor_bytes(tensor).clone() if contents else None)
        for name, tensor in named
    }


def _tensor_bytes(tensor: Any) -> Any:
    """Return a tensor's contents as bytes, so that NaN equals itself."""
    return tensor.detach().reshape(-1).view(torch.uint8)


def _is_scalar(value: Any) -> bool:
    """Return True if a module's attribute is a number or text; see :func:`stored_values`."""
    return isinstance(value, tuple) and value[0] in (bool, int, float, str)


@dataclass(frozen=True, eq=False)
class ModuleState:
    """State of a module before a pass: its tensors and other stored values."""

    tensors: Mapping[str, _State]
    values: Mapping[tuple[str, str], Any]

    @staticmethod
    def of(module: Any, *, contents: bool) -> ModuleState:
        """Return the current state; ``contents`` also compares the bytes of tensors."""
        return ModuleState(_tensor_states(module, contents=contents), stored_values(module))

    def changes(self, module: Any, *, only_scalars: bool) -> list[str]:
        """Describe what a module has changed; of new values only numbers and text, on request."""
        now, values = _tensor_states(module), self.values
        changed = [
            name
            for name in now
            if name not in self.tensors or self.tensors[name].differs(now[name])
        ]
        return changed + [
            f"attribute {attribute!r}" + (f" of layer {layer!r}" if layer else "")
            for (layer, attribute), value in stored_values(module).items()
            if (_is_scalar(values.get((layer, attribute))) or not only_scalars)
            and values.get((layer, attribute)) != value
        ]
