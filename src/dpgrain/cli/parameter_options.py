"""Options made from parameters of the library: their types, defaults and help."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from dpgrain.cli.options import CLIPPING, PROMISE, ParameterOption, integers, number, option, seldom
from dpgrain.publishing.parameters import Parameter

# Groups of shared parameters in help; others come first.
_GROUPS: Mapping[str, str] = {
    "epsilon": PROMISE,
    "delta": PROMISE,
    "relation": seldom(PROMISE),
    "noise": seldom(PROMISE),
    "domain": CLIPPING,
    "clip": seldom(CLIPPING),
    "max_items": seldom(CLIPPING),
    "estimate_clipping": seldom(CLIPPING),
}
# Options whose names differ from their parameters.
_FLAGS = {"random_state": "--seed"}
_PLAIN = (bool, int, float, str)
# Placeholders for values in help.
_SYMBOLS = {"epsilon": "ε", "delta": "δ", "clip": "BOUND"}
_DOMAIN = "Public list of groups or items in a file, one per line; or COLUMN=FILE for each column."
# Sentences about values that only Python can pass.
_PYTHON_ONLY = re.compile(r"``share``|A custom :class:|with_cells")


@dataclass(frozen=True)
class _Syntax:
    """Syntax of an option's value: its type, a placeholder, a converter and an example."""

    kind: Any
    placeholder: str | None = None
    read: Callable[[Any], Any] = lambda value: value
    example: str = "1"


def options_of(parameters: Iterable[Parameter], group: str | None = None) -> list[ParameterOption]:
    """Return options for the parameters that text can express, in a group of help."""
    forms = ((one, _syntax(one)) for one in parameters)
    return [_option(one, form, group) for one, form in forms if form is not None]


def _option(parameter: Parameter, form: _Syntax, group: str | None) -> ParameterOption:
    """Return an option for a parameter in a syntax."""
    # A list has no default of one word.
    known = isinstance(parameter.default, str | int | float) and form.kind != list[str]
    plain = known or parameter.required
    is_domain = parameter.name == "domain"
    info = option(
        _DOMAIN if is_domain else parameter.help,
        *([_flag(parameter)] if parameter.name in _FLAGS else []),
        group=group or _GROUPS.get(parameter.name),
        metavar=_SYMBOLS.get(parameter.name, form.placeholder),
    )
    declared = inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=parameter.default if plain else None,
        annotation=Annotated[form.kind if plain else form.kind | None, info],
    )
    first, *others = re.split(r"(?<=\.) ", parameter.text)
    text = " ".join([first, *(each for each in others if not _PYTHON_ONLY.search(each))])
    described = _DOMAIN if is_domain else replace(parameter, text=text).full_help
    return ParameterOption(declared, form.read, f"{_flag(parameter)} {form.example}", described)


def _syntax(parameter: Parameter) -> _Syntax | None:
    """Return the syntax for a parameter's type; None if text cannot express it."""
    kinds = _alternatives(parameter.hint)
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    items = [get_args(kind)[0] for kind in kinds if get_origin(kind) in (Sequence, list)]
    if parameter.name == "domain":
        return _Syntax(list[str], "FILE …")
    if parameter.names_columns and items:
        return _Syntax(list[str], "COLUMN …", example="page")
    if parameter.names_columns:
        return _Syntax(str, "COLUMN", example="x")
    if items and items[0] is Any:
        return _Syntax(list[str], "NAMES …", _names)
    if items:
        return _Syntax(list[str], "NUMBERS …", _numbers_of(parameter, words, whole=items[0] is int))
    if any(get_origin(kind) is tuple for kind in kinds):
        return _Syntax(tuple[float, float], "LOW HIGH", example="0 1")
    if words and float in kinds:
        kind, flag = f"a number or {' or '.join(map(repr, words))}", _flag(parameter)
        return _Syntax(str, "X", lambda text: text if text in words else number(flag, text, kind))
    if words and all(isinstance(word, int) for word in words):
        return _Syntax(Literal[tuple(map(str, words))], None, int)
    if len(words) > 1:
        return _Syntax(Literal[tuple(words)], example=words[0])
    plain = [kind for kind in kinds if kind in _PLAIN]
    return _Syntax(plain[0]) if plain else None


def _flag(parameter: Parameter) -> str:
    return _FLAGS.get(parameter.name, f"--{parameter.name.replace('_', '-')}")


def _alternatives(hint: Any) -> list[Any]:
    """Return the types of a union, without None."""
    if get_origin(hint) in (Union, types.UnionType):
        return [kind for part in get_args(hint) for kind in _alternatives(part)]
    return [] if hint is types.NoneType else [hint]


def _names(texts: list[str]) -> list[str]:
    """Return the names in one text such as ``a,b``, or one name per text."""
    return texts if len(texts) > 1 else [name.strip() for name in texts[0].split(",")]


def _numbers_of(
    parameter: Parameter, words: Sequence[str], *, whole: bool
) -> Callable[[list[str]], Any]:
    """Return a reader of numbers in texts such as ``1,2,5``, or of a single known word."""
    flag, known = _flag(parameter), parameter.default
    example = ",".join(map(str, known[:4])) if isinstance(known, tuple) else "1,2,5,10"
    kind = f"{'integers' if whole else 'numbers'} such as {example}"

    def read(texts: list[str]) -> Any:
        if len(texts) == 1 and texts[0] in words:
            return texts[0]
        if whole:
            return integers(flag, texts, kind)
        return [number(flag, part, kind) for text in texts for part in text.split(",")]

    return read
