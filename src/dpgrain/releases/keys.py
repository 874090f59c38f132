"""Keys of the tables of a release file, from the parameters of functions."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Union, get_args, get_origin

from dpgrain._validate import describe
from dpgrain.errors import DpgrainError, ParameterError
from dpgrain.publishing.parameters import Parameter
from dpgrain.releases.validation_errors import ValidationErrors

_SIMPLE: dict[Any, tuple[str, tuple[type, ...]]] = {
    str: ("text", (str,)),
    bool: ("true or false", (bool,)),
    int: ("an integer", (int,)),
    float: ("a number", (int, float)),
}


def keys_of(
    parameters: Iterable[Parameter], *, without: Sequence[str] = ()
) -> dict[str, Parameter]:
    """Return the parameters that TOML can express, by name, except those in ``without``."""
    return {
        one.name: one for one in parameters if one.name not in without and _value_names(one.hint)
    }


@contextmanager
def naming(key: str) -> Iterator[None]:
    """Set the key of errors."""
    try:
        yield
    except DpgrainError as error:
        raise ParameterError(str(error), name=key) from error


def wrong(hint: Any, value: object) -> str:
    """Return the end of the error about a wrong type; empty for a valid value."""
    if _fits(hint, value):
        return ""
    return f"must be {' or '.join(_value_names(hint))}, not {describe(value)}."


def check_keys(
    place: str,  # the name of the table in brackets
    stated: Mapping[str, Any],
    keys: Mapping[str, Parameter],
    errors: ValidationErrors,
    noun: str = "",  # its text in errors
) -> dict[str, Any]:
    """Return valid values of a table, and collect invalid, unknown and missing keys."""
    right = {}
    for name, value in stated.items():
        if name not in keys:
            errors.add_unknown(place, name, keys, f"a key of {noun or place}")
        elif error := wrong(keys[name].hint, value):
            errors.add(place, f"{name} {error}")
        else:
            right[name] = value
    for key in keys.values():
        if key.required and key.name not in stated:
            errors.add(place, f"{key.name} is required: {' or '.join(_value_names(key.hint))}.")
    return right


def _fits(hint: Any, value: object) -> bool:
    """Return whether a value of a file has a declared type."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if hint in _SIMPLE:
        return isinstance(value, _SIMPLE[hint][1]) and (hint is bool or not isinstance(value, bool))
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in args)
    if origin in (Union, types.UnionType):
        return any(_fits(part, value) for part in args)
    if origin is tuple and Ellipsis not in args:
        return isinstance(value, list) and len(value) == len(args) and all(map(_fits, args, value))
    if origin in (Sequence, list, tuple):
        return isinstance(value, list) and all(_fits(args[0], part) for part in value)
    if origin in (Mapping, dict):
        return isinstance(value, dict) and all(_fits(args[1], part) for part in value.values())
    return False


def _value_names(hint: Any) -> list[str]:
    """Describe the TOML values of a declared type; empty if there are none."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return ["a value"]
    if hint in _SIMPLE:
        return [_SIMPLE[hint][0]]
    if origin is Literal:
        return [repr(choice) if isinstance(choice, str) else str(choice) for choice in args]
    if origin in (Union, types.UnionType):
        return list(dict.fromkeys(word for part in args for word in _value_names(part)))
    if origin is tuple and Ellipsis not in args:
        return [f"a list of {len(args)} {_plural(_value_names(args[0]))}"]
    if origin in (Sequence, list, tuple):
        return [f"a list of {_plural(_value_names(args[0]))}"]
    if origin in (Mapping, dict):
        return [f"a table of {_plural(_value_names(args[1]))}"]
    return []


def _plural(words: Sequence[str]) -> str:
    first = words[0].removeprefix("an ").removeprefix("a ") if words else "value"
    head, _, rest = first.partition(" of ")
    return f"{head}s of {rest}" if rest else f"{head}s"
