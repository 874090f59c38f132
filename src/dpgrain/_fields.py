"""The fields of frozen dataclasses, checked by their declared types.

A value that does not fit the type of its field (a number that is text, a truth that is a word, NaN) is
refused here for all classes and fields, whether it comes from code or from JSON.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable, Hashable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain.errors import ParameterError, raise_alone

Made = TypeVar("Made")

#: Errors of code that is given values of other kinds, or nested deeper, than it was written for.
MISFITS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def numbers(**parameter: Any) -> NDArray[np.float64]:
    """Return the parameter as an array of floats, or raise unless it is made of numbers alone."""
    ((name, value),) = parameter.items()
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError):
        # What NumPy says quotes a value.
        raise_alone(_validate.wrong(name, f"must be numbers, not {_validate.said(value)}."))


@cache
def _kinds(cls: Any) -> dict[str, Any]:
    """Return the declared type of each field."""
    hints = get_type_hints(cls)
    return {part.name: hints[part.name] for part in fields(cls)}


def check(instance: object) -> None:
    """Check each field of a frozen dataclass by its declared type, and store it as plain Python.

    Args:
        instance: the object, from its ``__post_init__``.

    Raises:
        ParameterError: if a field has another type, or is NaN.

    NumPy's numbers, which wrap and round, become Python's; lists become tuples. A truth is ``True`` or
    ``False`` and nothing else. The class itself checks ranges. The message ends with the text that the
    field's metadata has under ``"remedy"``.
    """
    kinds = _kinds(cast(Hashable, type(instance)))
    for part in fields(instance):  # type: ignore[arg-type]
        try:
            value = _checked(part.name, kinds[part.name], getattr(instance, part.name))
        except ParameterError as error:
            if remedy := part.metadata.get("remedy"):
                text = f"{str(error).rstrip('.')}: {remedy}"
                raise ParameterError(text, name=error.name) from error
            raise
        object.__setattr__(instance, part.name, value)


def _checked(name: str, kind: Any, value: Any) -> Any:
    """Return the value of a field, converted to its type."""
    if (simple := _SIMPLE.get(kind)) is not None:
        return simple(name, value)
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _validate.one_of(args, **{name: value})
    if origin is tuple:
        return _tuple(name, args[0], value)
    if origin in (Union, types.UnionType):
        return _any_of(name, args, value)
    return _validate.instance(kind, **{name: value})


def _tuple(name: str, kind: Any, value: Any) -> tuple[Any, ...]:
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind != "O":
        value = tuple(value)
    if not isinstance(value, tuple | list) or _validate.are_records(value):
        raise _validate.wrong(name, f"must be a list, not {_validate.said(value)}.")
    return tuple(_checked(name, kind, part) for part in value)


def _any_of(name: str, kinds: tuple[Any, ...], value: Any) -> Any:
    """Return the value as the first fitting one of several types."""
    if value is None and type(None) in kinds:
        return None
    *others, last = (kind for kind in kinds if kind is not type(None))
    for kind in others:
        if isinstance(kind, type) and isinstance(value, kind):
            return _checked(name, kind, value)
    return _checked(name, last, value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _validate.wrong(name, f"must be text, not {_validate.said(value)}.")
    if not _validate.is_written(value):
        # It would have no hash.
        raise _validate.wrong(name, f"must be valid UTF-8 text, not {_validate.said(value)}.")
    return str(value)


def _number(name: str, value: Any) -> float:
    number = _validate.real(**{name: value})
    if math.isnan(number):
        raise _validate.wrong(name, "must be a number, not nan.")
    return number


_SIMPLE: dict[Any, Callable[[str, Any], Any]] = {
    bool: lambda name, value: _validate.truth(**{name: value}),
    str: _text,
    int: lambda name, value: _validate.whole(**{name: value}),
    float: _number,
    Any: lambda _, value: value,
}


# ------------------------------------------------------------------------------------------- JSON


def loads(text: str, what: str) -> Any:
    """Read the values of a JSON text, in which every field is given once and every number is finite.

    Args:
        text: the text.
        what: what the text should describe, in words, for messages.

    Raises:
        ParameterError: if the text is no JSON, has NaN, infinities or numbers beyond the range of
            floating point, gives a field twice, or is nested too deeply.
    """
    if not isinstance(text, str | bytes):
        raise ParameterError(f"{what} must be JSON text, not {_validate.said(text)}.")
    try:
        return json.loads(
            text, parse_constant=_finite, parse_float=_finite, object_pairs_hook=_once
        )
    except ParameterError:
        raise
    except (ValueError, RecursionError) as error:
        raise ParameterError(
            f"the text is not valid JSON of {what}; pass the output of to_json."
        ) from error


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ParameterError(
            f"numbers must be finite, not {number[:20]}; write an infinite one as 'inf'."
        )
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ParameterError(f"field {_validate.said(twice)} occurs twice; remove one.")
    return values


def read(cls: Callable[..., Made], values: Any, what: str) -> Made:
    """Make the object of a dataclass from fields read from JSON.

    Args:
        cls: the dataclass, which checks its own fields (:func:`check`).
        values: the result of :func:`loads`, or a dict like it.
        what: what the values describe, in words, for messages.

    Raises:
        ParameterError: if a field is missing, unknown or of the wrong type.
    """
    if not isinstance(values, dict):
        raise ParameterError(f"{what} must be an object with fields, not {_validate.said(values)}.")
    kinds = _kinds(cls)
    needed = [
        part.name
        for part in fields(cls)  # type: ignore[arg-type]
        if part.default is MISSING and part.default_factory is MISSING
    ]
    unknown = [_validate.said(name) for name in values if name not in kinds]
    missing = [name for name in needed if name not in values]
    if unknown or missing:
        wrong = f"has no field {unknown[0]}" if unknown else f"lacks the field {missing[0]!r}"
        raise ParameterError(f"{what} {wrong}; its fields are {', '.join(kinds)}.")
    return cls(**{name: _parsed(name, kinds[name], value) for name, value in values.items()})


def _parsed(name: str, kind: Any, value: Any) -> Any:
    """Convert a value from JSON to its type, where JSON has no such type."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is float and isinstance(value, str) and value == "inf":
        return math.inf
    if kind in _SIMPLE or origin is Literal:
        # Classes that check nothing themselves are read as well.
        return _checked(name, kind, value)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_parsed(name, args[0], part) for part in value)
    if origin in (Union, types.UnionType) and value is not None:
        # The field takes one object, or a tuple of them, which is the last of its types.
        chosen = args[-1] if isinstance(value, list | tuple) else args[0]
        # Which of several simple types a value is, the class itself knows.
        is_simple = chosen in _SIMPLE and not (chosen is float and value == "inf")
        return value if is_simple else _parsed(name, chosen, value)
    if isinstance(kind, type) and hasattr(kind, "from_dict"):
        return kind.from_dict(value)
    return read(cast(Any, kind), value, name) if is_dataclass(kind) else value
