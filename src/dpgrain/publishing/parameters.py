"""Parameters of functions, for the command line and release files, read from their source.

The signature has names, types and defaults, and the docstring has descriptions. No module is
imported, so help does not wait for numerical libraries.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

#: The parameters whose values name columns.
COLUMNS = (
    "target",
    "features",
    "categories",
    "range",
    "columns",
    "item",
    "weight",
    "value",
    "other",
    "by",
)

#: The default of a required parameter.
REQUIRED = inspect.Parameter.empty
# Packages whose types are resolved; types of other packages become empty classes.
_TYPES = ("typing", "collections")
_OWN = "dpgrain"
# First line of the description of an argument.
_ARGUMENT = re.compile(r"(?P<margin> +)(?P<name>\w+): (?P<text>.*)")
# Docstring markup around code.
_CODE = re.compile(r"(?::\w+:)?`+~?(?:dpgrain\.)?([^`]*)`+")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function."""

    name: str
    hint: Any
    default: Any = None
    text: str = ""

    @property
    def required(self) -> bool:
        """True if the parameter is required."""
        return self.default is REQUIRED

    @property
    def names_columns(self) -> bool:
        """True if its values are names of columns."""
        return self.name in COLUMNS

    @property
    def help(self) -> str:
        """The first sentence of the description, as plain text."""
        return re.split(r"(?<=\.) ", self.full_help, maxsplit=1)[0]

    @property
    def full_help(self) -> str:
        """The whole description, as plain text."""
        text = _CODE.sub(r"\1", self.text)
        return text[:1].upper() + text[1:]


def parameters_of(module: str, name: str) -> dict[str, Parameter]:
    """Return the parameters of a function, method or dataclass, base classes first."""
    node = _node(module, name)
    if isinstance(node, ast.ClassDef):
        return _fields(module, node)
    named = [*node.args.args, *node.args.kwonlyargs]
    required: list[ast.expr | None] = [None] * (len(node.args.args) - len(node.args.defaults))
    defaults = [*required, *node.args.defaults, *node.args.kw_defaults]
    texts = arguments(ast.get_docstring(node) or "")
    return {
        one.arg: _parameter(module, one.arg, one.annotation, default, texts)
        for one, default in zip(named, defaults, strict=True)
    }


def docstring(module: str, name: str) -> str:
    """Return the docstring of a function or class, without importing its module."""
    return ast.get_docstring(_node(module, name)) or ""


def arguments(docstring: str) -> dict[str, str]:
    """Return the descriptions of the arguments in a docstring, by name."""
    texts: dict[str, str] = {}
    for name, lines in argument_lines(docstring.splitlines()).items():
        texts[name] = " ".join(line.strip() for line in lines).partition(": ")[2]
    return texts


def argument_lines(lines: Sequence[str]) -> dict[str, list[str]]:
    """Return the lines of each argument in a docstring, by name."""
    listed: dict[str, list[str]] = {}
    places = [place for place, line in enumerate(lines) if line.strip() == "Args:"]
    margin, name, blank = "", "", list[str]()
    for line in lines[places[0] + 1 :] if places else ():
        begins = _ARGUMENT.fullmatch(line)
        if not line.strip():
            blank.append(line)
        elif begins and not blank and margin in ("", begins["margin"]):
            margin, name = begins["margin"], begins["name"]
            listed[name] = [line]
        elif name and line.startswith(f"{margin} "):
            listed[name] += [*blank, line]
            blank = []
        else:
            break
    return listed


def _node(module: str, name: str) -> ast.FunctionDef | ast.ClassDef:
    """Return the definition of a function or class, or of a method such as ``UserTable.join``."""
    name, _, method = name.partition(".")
    node: Any = _definitions(module)[name]
    if method:
        node = next(each for each in node.body if getattr(each, "name", "") == method)
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)  # noqa: S101 - a function or a class
    return node


def _fields(module: str, node: ast.ClassDef) -> dict[str, Parameter]:
    """Return the fields of a dataclass, base classes first."""
    fields: dict[str, Parameter] = {}
    for base in node.bases:
        if isinstance(base, ast.Name):
            home, definition = _definition(module, base.id)
            if isinstance(definition, ast.ClassDef):
                fields |= _fields(home, definition)
    texts = arguments(ast.get_docstring(node) or "")
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            name = each.target.id
            fields[name] = _parameter(module, name, each.annotation, each.value, texts)
    # A class may describe the fields of its base.
    return {name: replace(one, text=texts.get(name, one.text)) for name, one in fields.items()}


def _parameter(
    module: str,
    name: str,
    annotation: ast.expr | None,
    default: ast.expr | None,
    texts: dict[str, str],
) -> Parameter:
    hint = Any if annotation is None else _value(module, annotation)
    value = REQUIRED if default is None else _value(module, default)
    return Parameter(name, hint, value, texts.get(name, ""))


def _value(module: str, expression: ast.expr) -> Any:
    """Return the value of a type or a constant."""
    plain: Any = _LastNames().visit(deepcopy(expression))
    names = {node.id for node in ast.walk(plain) if isinstance(node, ast.Name)}
    code = compile(ast.Expression(plain), module, "eval")
    return eval(code, {name: _meaning(module, name) for name in names})


class _LastNames(ast.NodeTransformer):
    """Replaces ``np.random.Generator`` by ``Generator``."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.Name:
        """Return the last part of a dotted name."""
        return ast.copy_location(ast.Name(node.attr, ast.Load()), node)


def _meaning(module: str, name: str) -> Any:
    """Return the value of a name in a type or a default; an empty class if it is not resolved."""
    if hasattr(builtins, name):
        return getattr(builtins, name)
    home, node = _definition(module, name)
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in _TYPES:
        return getattr(import_module(node.module or ""), name)
    match node:
        case ast.AnnAssign(
            annotation=ast.Name(id="TypeAlias"), value=ast.Constant(value=str(text))
        ):
            return _value(home, ast.parse(text, mode="eval").body)
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            return _value(home, value)
    return type(name, (), {"__class_getitem__": classmethod(lambda own, _: own)})


def _definition(module: str, name: str) -> tuple[str, ast.stmt | None]:
    """Return the statement that defines a name, and its module in this package."""
    node = _definitions(module).get(name)
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == _OWN:
        return _definition(node.module or "", name)
    return module, node


@cache
def _definitions(module: str) -> dict[str, ast.stmt]:
    """Return the defining statements of a module by name."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return {}
    definitions: dict[str, ast.stmt] = {}
    body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
    # Packages import their public names under ``if TYPE_CHECKING``.
    checked = [node for each in body if isinstance(each, ast.If) for node in each.body]
    for node in [*checked, *body]:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                definitions[name] = node
            case ast.ImportFrom(names=names):
                definitions.update((each.asname or each.name, node) for each in names)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                definitions[name] = node
    return definitions
