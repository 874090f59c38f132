"""Modules and names loaded at their first use, so that a process starts quickly."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any


class _LazyModule(ModuleType):
    """A module imported when one of its names is first read."""

    def __getattr__(self, name: str) -> Any:
        if "_loaded" not in self.__dict__:
            self._loaded = import_module(self.__name__)
        return getattr(self._loaded, name)


def lazy_import(name: str) -> Any:
    """Return a placeholder for a module, which is imported at its first use.

    Callers also write the ordinary import under ``TYPE_CHECKING``, for types.

    >>> lazy_import("fractions").Fraction(1, 2)
    Fraction(1, 2)
    """
    return _LazyModule(name)


class _LazyPackage(ModuleType):
    """A package with public names imported from their modules at first use."""

    __all__: Sequence[str]
    _homes: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:
        if name not in self._homes:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        home = self._homes[name]
        if home == self.__name__:
            value = import_module(f"{home}.{name}")
        else:
            value = getattr(import_module(home), name)
        super().__setattr__(name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # An import binds a module in its package, where it must not hide an equal public name.
        hides = self._homes.get(name, self.__name__) != self.__name__
        if not (isinstance(value, ModuleType) and hides):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted(self.__all__)


def lazy_package(
    package: str,
    names: Mapping[str, Sequence[str]],
    homes: Mapping[str, str] | None = None,
) -> None:
    """Make a package import its public names at their first use."""
    module = sys.modules[package]
    listed = {name: home for home, group in names.items() for name in group}
    module.__dict__["_homes"] = {**listed, **(homes or {})}
    module.__class__ = _LazyPackage
