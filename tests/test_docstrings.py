"""Docstrings of public classes and functions: purpose, arguments, errors and an example."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

import dpgrain as dg

# These rooms are public, although ``dpgrain`` does not name them.
_BESIDE = ("testing", "datasets")
_ERRORS = {"DpgrainError", "ParameterError", "SchemaError", "DataError"}
# The class docstring documents the constructor.
_MAKERS = {"__init__", "__post_init__"}
_CALLED = {"__call__", "__getitem__", "__iter__"}
# A line on arguments begins with their names: " low,
_NAMES = re.compile(r"^    ((?:\*{0,2}\w+, )*\*{0,2}\w+): ", re.M)


def _rooms() -> Iterator[ModuleType]:
    """Yield the public modules without those of networks, which take seconds to import."""
    yield dg
    offered = [name for name in dg.__all__ if inspect.ismodule(getattr(dg, name))]
    for name in (*offered, *_BESIDE):
        if name != "torch":
            yield import_module(f"dpgrain.{name}")


def public_names(rooms: Iterable[ModuleType]) -> dict[str, Any]:
    """Return the public classes and functions of modules by their names, each once."""
    names: dict[Any, str] = {}
    for room in rooms:
        for name in room.__all__:
            value = getattr(room, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                names.setdefault(value, f"{room.__name__}.{name}")
    return {name: value for value, name in names.items()}


PUBLIC = public_names(_rooms())


def lacks(value: Any) -> list[str]:
    """Return the missing parts of a public docstring, as text.

    Users never construct a protocol, so it needs neither arguments nor a doctest.
    """
    text = inspect.cleandoc(value.__doc__ or "")
    first = text.partition("\n\n")[0]
    lacking = [] if first.endswith(".") and "\n" not in first else ["a first sentence of one line"]
    if not getattr(value, "_is_protocol", False):
        lacking += [] if ">>> " in text else ["a doctest"]
        told = _told(value)
        lacking += [f"the argument {name}" for name in _taken(value) if name not in told]
    lacking += [f"what {name} raises" for name in _silent(value, text)]
    return lacking


def _taken(value: Any) -> list[str]:
    """Return the names of the arguments."""
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value) if field.init]
    if inspect.isclass(value) and not inspect.isfunction(value.__init__):
        return []
    names = list(inspect.signature(value.__init__ if inspect.isclass(value) else value).parameters)
    return names[1:] if inspect.isclass(value) else names


def _told(value: Any) -> set[str]:
    """Return the argument names documented in a docstring, or in a base class's."""
    told = set()
    for kind in value.__mro__ if inspect.isclass(value) else (value,):
        _, _, args = inspect.cleandoc(kind.__doc__ or "").partition("Args:\n")
        for names in _NAMES.findall(args):
            told |= {name.lstrip("*") for name in names.split(", ")}
    return told


def _silent(value: Any, text: str) -> Iterator[str]:
    """Yield the names of functions that raise an undocumented error of the library.

    Args:
        value: a function, or a class with its public methods.
    """
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(value))).body
    for function in tree.body if isinstance(tree, ast.ClassDef) else [tree]:
        if not isinstance(function, ast.FunctionDef):
            continue
        makes = function is tree or function.name in _MAKERS
        if not makes and function.name.startswith("_") and function.name not in _CALLED:
            continue
        said = text if makes else ast.get_docstring(function) or ""
        if "Raises:\n" not in said and any(map(_refuses, ast.walk(function))):
            yield function.name


def _refuses(node: ast.AST) -> bool:
    """Return whether a piece of code is ``raise ParameterError(…)``, or a check of ``_validate``."""
    match node:
        case ast.Raise(exc=ast.Call(func=ast.Name(id=name))):
            return name in _ERRORS
        case ast.Call(func=ast.Attribute(value=ast.Name(id="_validate"))):
            return True
    return False


@pytest.mark.parametrize("name", PUBLIC)
def test_nothing_is_lacking(name: str) -> None:
    assert lacks(PUBLIC[name]) == []


def test_all_public_names_are_looked_at() -> None:
    assert {"dpgrain.read", "dpgrain.accounting.Gaussian", "dpgrain.testing.MeanContract"} <= set(
        PUBLIC
    )


@dataclass(frozen=True)
class Base:
    """A class with a size.

    Args:
        size: the number of things.

    >>> Base(2).size
    2
    """

    size: int
