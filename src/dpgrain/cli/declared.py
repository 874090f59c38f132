"""The parameters of doors as source declares them, read without running what doors are made of.

A help text needs names, types, defaults and descriptions, and none of the libraries that compute.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dpgrain.publishing.parameters import Parameter, arguments, with_shared_parameters

# Packages whose names stand for themselves in types; those of others are not looked into.
_TYPES = ("typing", "collections")
_OWN = "dpgrain"


def declared(module: str, name: str) -> dict[str, Parameter]:
    """Return the parameters of a function or a dataclass, by name, base classes first.

    A type that is no text, number, list, choice or tuple of these is a class without a meaning here.

    Args:
        module: the full name of the module, which is not imported.
        name: the name of the function or class.

    >>> count = declared("dpgrain.statistics.histogram", "count")
    >>> count["by"].help, count["max_items"].default
    ('Column or columns to group by; if omitted, one answer for all rows.', 1000)
    """
    node = _definitions(module)[name]
    if isinstance(node, ast.ClassDef):
        return _fields(module, node)
    assert isinstance(node, ast.FunctionDef)  # noqa: S101 - doors are functions or classes
    return {each.name: each for each in _arguments(module, node)}


def docstring(module: str, name: str) -> str:
    """Return the docstring of a function or class, as its source has it.

    Args:
        module: the full name of the module, which is not imported.
        name: the name of the function or class.
    """
    node = _definitions(module)[name]
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)  # noqa: S101 - what has a docstring
    return ast.get_docstring(node) or ""


def _arguments(module: str, node: ast.FunctionDef) -> Iterator[Parameter]:
    """Yield the parameters of a function, with descriptions of those that several doors share."""
    stated = [*node.args.args, *node.args.kwonlyargs]
    none: list[ast.expr | None] = [None] * (len(node.args.args) - len(node.args.defaults))
    defaults = [*none, *node.args.defaults, *node.args.kw_defaults]
    doc = with_shared_parameters(ast.get_docstring(node), [each.arg for each in stated])
    texts = arguments(doc or "")
    for each, default in zip(stated, defaults, strict=True):
        yield _parameter(module, each.arg, each.annotation, default, texts)


def _fields(module: str, node: ast.ClassDef) -> dict[str, Parameter]:
    """Return the fields of a dataclass by name, those of its base classes first."""
    fields: dict[str, Parameter] = {}
    for base in node.bases:
        if isinstance(base, ast.Name):
            home, found = _found(module, base.id)
            if isinstance(found, ast.ClassDef):
                fields |= _fields(home, found)
    texts = arguments(ast.get_docstring(node) or "")
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            name = each.target.id
            fields[name] = _parameter(module, name, each.annotation, each.value, texts)
    # A class may describe what its base declares.
    return {name: replace(one, text=texts.get(name, one.text)) for name, one in fields.items()}


def _parameter(
    module: str,
    name: str,
    annotation: ast.expr | None,
    default: ast.expr | None,
    texts: dict[str, str],
) -> Parameter:
    empty = inspect.Parameter.empty
    hint = Any if annotation is None else _value(module, annotation)
    value = empty if default is None else _value(module, default)
    return Parameter(name, hint, value, texts.get(name, ""))


def _value(module: str, expression: ast.expr) -> Any:
    """Return the value of an expression: a type, or a constant."""
    plain: Any = _LastNames().visit(deepcopy(expression))
    used = {node.id for node in ast.walk(plain) if isinstance(node, ast.Name)}
    code = compile(ast.Expression(plain), module, "eval")
    return eval(code, {name: _named(module, name) for name in used})


class _LastNames(ast.NodeTransformer):
    """A reader of types of other packages by their last names: ``np.random.Generator`` is Generator."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.Name:
        """Return the last name of several."""
        return ast.copy_location(ast.Name(node.attr, ast.Load()), node)


def _named(module: str, name: str) -> Any:
    """Return what a name of a module stands for in a type or a default."""
    if hasattr(builtins, name):
        return getattr(builtins, name)
    home, node = _found(module, name)
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in _TYPES:
        return getattr(import_module(node.module or ""), name)
    match node:
        case ast.AnnAssign(
            annotation=ast.Name(id="TypeAlias"), value=ast.Constant(value=str(text))
        ):
            return _value(home, ast.parse(text, mode="eval").body)
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            return _value(home, value)
    return type(name, (), {"__class_getitem__": classmethod(lambda meant, _: meant)})


def _found(module: str, name: str) -> tuple[str, ast.stmt | None]:
    """Return the statement that defines a name, and the module of this package in which it stands."""
    node = _definitions(module).get(name)
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == _OWN:
        return _found(node.module or "", name)
    return module, node


@cache
def _definitions(module: str) -> dict[str, ast.stmt]:
    """Return the statements of a module that define a name, by name."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return {}
    defined: dict[str, ast.stmt] = {}
    body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
    # Public names of packages stand where types are checked.
    checked = [node for each in body if isinstance(each, ast.If) for node in each.body]
    for node in [*checked, *body]:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                defined[name] = node
            case ast.ImportFrom(names=names):
                defined.update((each.asname or each.name, node) for each in names)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                defined[name] = node
    return defined
