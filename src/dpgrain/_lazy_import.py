"""Modules and names loaded at their first use, so that a process starts quickly."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from dpgrain.errors import MissingPackageError

# Extra with each package that a plain install lacks, and the subject of the error.
_EXTRAS = {
    "jinja2": ("report", "a plot or report"),
    "matplotlib": ("report", "a plot or report"),
    "pandas": ("pandas", "a data frame"),
    "rich": ("cli", "the command line"),
    "sklearn": ("learn", "learning"),
    "threadpoolctl": ("learn", "learning"),
    "torch": ("torch", "dpgrain.torch"),
    "transformers": ("transformers", "dpgrain.torch.Trainer"),
    "typer": ("cli", "the command line"),
}


def is_installed(*packages: str) -> bool:
    """Return True if all packages are installed, without importing them."""
    return all(find_spec(package) is not None for package in packages)


def require(*packages: str) -> None:
    """Reject a missing package of an extra by an error with the command that installs it."""
    for package in packages:
        if not is_installed(package):
            extra, what = _EXTRAS[package]
            raise MissingPackageError(
                f"{what} requires {package}, which is not installed; run "
                f"pip install 'dpgrain[{extra}]'.",
                name=package,
            )


class _LazyModule(ModuleType):
    """A module imported when one of its names is first read."""

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__":  # inspect.unwrap() must not import the module
            raise AttributeError(name)
        if "_loaded" not in self.__dict__:
            self._loaded = import_module(self.__name__)
        return getattr(self._loaded, name)


class _Absent(type):
    """Type of :class:`_Nothing`: attributes are the class itself."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class _Nothing(metaclass=_Absent):
    """Stand-in for the types of an unloaded package, without instances."""


class _Types(ModuleType):
    """The types of a package, if it is loaded."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is None:
            return _Nothing
        # The import waits for another thread that is loading the package.
        return getattr(import_module(self.__name__), name)


def lazy_import(name: str) -> Any:
    """Return a placeholder that imports a module at its first use."""
    # Callers also write the ordinary import under ``TYPE_CHECKING``, for types.
    return _LazyModule(name)


def loaded_types(name: str) -> Any:
    """Return a stand-in for a package, for comparing types without an import."""
    # A value has one of its types only if the caller has imported the package.
    return _Types(name)


# Public functions for names that users look for.
_INSTEAD = {"median": "dpgrain.quantile(table, value, 0.5)"}


class _LazyPackage(ModuleType):
    """A package with public names imported from their modules at first use."""

    __all__: Sequence[str]
    _homes: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:
        if name not in self._homes:
            instead = f"; use {_INSTEAD[name]}" if name in _INSTEAD else ""
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}{instead}")
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
    names: Mapping[str, Sequence[str]],  # of each module; under the package itself, modules
    homes: Mapping[str, str] | None = None,  # the module of each name
) -> None:
    """Make a package import its public names at their first use."""
    module = sys.modules[package]
    listed = {name: home for home, group in names.items() for name in group}
    module.__dict__["_homes"] = {**listed, **(homes or {})}
    module.__class__ = _LazyPackage
