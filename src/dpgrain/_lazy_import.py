"""Modules and names loaded at their first use, so that a process starts quickly."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any


class _LazyModule(ModuleType):
    """A module imported when one of its names is first asked for."""

    def __getattr__(self, name: str) -> Any:
        if "_found" not in self.__dict__:
            self._found = import_module(self.__name__)
        return getattr(self._found, name)


def lazy_import(name: str) -> Any:
    """Return a stand-in for a module, which is imported at its first use.

    Args:
        name: the full name of the module.

    Callers also write the ordinary import under ``TYPE_CHECKING``, for types.

    >>> lazy_import("fractions").Fraction(1, 2)
    Fraction(1, 2)
    """
    return _LazyModule(name)


class _LazyPackage(ModuleType):
    """A package with public names imported from its modules at their first use."""

    __all__: Sequence[str]
    _homes: Mapping[str, str]
    _modules: Sequence[str]

    def __getattr__(self, name: str) -> Any:
        if name in self._modules:
            value = import_module(f"{self.__name__}.{name}")
        elif name in self._homes:
            value = getattr(import_module(self._homes[name]), name)
        else:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        super().__setattr__(name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # An import binds a module in its package, where it must not hide a public name that is equal.
        if not (isinstance(value, ModuleType) and name in self._homes):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted(self.__all__)


def lazy_package(
    package: str,
    homes: Mapping[str, Sequence[str]],
    modules: Sequence[str] = (),
    named: Mapping[str, str] | None = None,
) -> None:
    """Let a package import its public names when they are first used.

    Args:
        package: the name of the package, which calls this function while it is imported.
        homes: the public names of each module, by the module's full name.
        modules: the modules of the package that are public names themselves.
        named: further public names, each with the full name of its module.
    """
    module = sys.modules[package]
    listed = {name: home for home, names in homes.items() for name in names}
    module.__dict__["_homes"] = {**listed, **(named or {})}
    module.__dict__["_modules"] = modules
    module.__class__ = _LazyPackage
