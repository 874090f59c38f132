"""Checks of public parameters and of the fields of frozen dataclasses, from code and from JSON.

Checks take the parameter by keyword: ``positive(epsilon=epsilon)``. Every message names the parameter,
its value and the remedy.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from os import PathLike, fsencode
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from dpgrain._lazy_import import lazy_import
from dpgrain.errors import ParameterError, raise_without_context

if TYPE_CHECKING:
    import json

    import numpy as np
    from numpy.typing import NDArray
else:
    json, np = lazy_import("json"), lazy_import("numpy")

Kind = TypeVar("Kind")

#: Errors that code raises for values of unexpected types or of deep nesting.
MISFIT_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


# Maximum characters of a wrong value in a message.
_SHOWN_CHARACTERS = 60
# Maximum characters of a path on common systems.
_LONGEST_PATH = 4096


def describe(value: object, most: int = _SHOWN_CHARACTERS) -> str:
    """Return a wrong value in one line for a message; only its type if it may contain rows."""
    try:
        text = "" if _may_contain_rows(value) else " ".join(repr(value).split())
    except Exception:
        text = ""
    if not text or " at 0x" in text:
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 1]}…"


def describe_item(value: object) -> str:
    """Return a wrong item of a list in one line for a message; only its type if it may be a record."""
    if isinstance(value, Mapping):
        return f"a value of type {type(value).__name__}"
    return describe(value)


def _may_contain_rows(value: object) -> bool:
    """Return whether a value may contain rows, which no message or log may show."""
    if isinstance(value, str | bytes):
        return False
    if isinstance(value, Mapping):
        return len(value) > _SHOWN_CHARACTERS or any(map(_may_contain_rows, value.values()))
    if isinstance(value, Sequence | Set):
        long = len(value) > _SHOWN_CHARACTERS or are_records(value)
        return long or any(map(_may_contain_rows, value))
    return bool(getattr(value, "shape", ())) or hasattr(value, "__arrow_c_stream__")


def are_records(value: object) -> bool:
    """Return whether a value is a list of mappings, which are rows."""
    if not isinstance(value, Sequence | Set) or not value:
        return False
    return all(isinstance(part, Mapping) for part in value)


def is_utf8(text: str) -> bool:
    """Return whether a text can be encoded in UTF-8, unlike one with lone surrogates."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def error_about(name: str, rest: str) -> ParameterError:
    """Return the error about a parameter: its name and the rest of the sentence."""
    return ParameterError(f"{name} {rest}", name=name)


def real(**parameter: object) -> float:
    """Return the parameter as a float, or raise unless it is a number in the range of floats."""
    ((name, value),) = parameter.items()
    if isinstance(value, bool) or not isinstance(value, Real):
        raise error_about(name, f"must be a number, not {describe_item(value)}.")
    try:
        return float(value)
    except OverflowError:
        raise error_about(name, "must be a number below 10^308.") from None


def number(**parameter: object) -> float:
    """Return the parameter as a float, or raise unless it is a number other than NaN."""
    result = real(**parameter)
    if math.isnan(result):
        raise error_about(next(iter(parameter)), "must be a number, not nan.")
    return result


def bounded_integer(**parameter: object) -> int:
    """Return the parameter as an int, or raise unless it is an integer from −10^18 to 10^18."""
    ((name, value),) = parameter.items()
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise error_about(name, f"must be an integer, not {describe_item(value)}.")
    if abs(int(value)) > _LARGEST_INTEGER:
        raise error_about(name, "must be at most 10^18.")
    return int(value)


# Largest integer that is close enough to a float for every use.
_LARGEST_INTEGER = 10**18


def plain_numbers(instance: object) -> None:
    """Convert the NumPy numbers of a frozen dataclass to Python's."""
    # ``np.uint8(200) * 2`` is 144, and ``np.float16`` keeps three digits.
    for part in fields(instance):  # type: ignore[arg-type]
        value = getattr(instance, part.name)
        python = tuple(map(_plain, value)) if isinstance(value, tuple) else _plain(value)
        object.__setattr__(instance, part.name, python)


def _plain(value: Any) -> Any:
    if type(value) in (bool, int, float) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def boolean(**parameter: object) -> bool:
    """Return the parameter, or raise unless it is True or False."""
    ((name, value),) = parameter.items()
    if not isinstance(value, bool):
        raise error_about(name, f"must be True or False, not {describe(value)}.")
    return value


def sequence(**parameter: object) -> list[object]:
    """Return the parameter as a list, or raise unless it is a list of values."""
    ((name, value),) = parameter.items()
    if isinstance(value, str | bytes | Mapping | Set) or not isinstance(value, Iterable):
        raise error_about(name, f"must be a list, not {describe(value)}.")
    try:
        return list(value)
    except TypeError:
        # The value is an array without axes.
        raise error_about(name, f"must be a list, not {describe(value)}.") from None


def integers(*, minimum: int, **parameter: object) -> list[int]:
    """Return the parameter as a list; raise unless its items are integers ≥ minimum."""
    # The message does not quote the invalid item, because the list may be a column of rows.
    ((name, value),) = parameter.items()
    listed = sequence(**parameter)
    whole = [int(one) for one in listed if not isinstance(one, bool) and isinstance(one, Integral)]
    if len(whole) < len(listed) or not all(minimum <= one <= _LARGEST_INTEGER for one in whole):
        raise error_about(
            name,
            f"must be integers from {minimum} to 10^18, not {describe(value)}.",
        )
    return whole


def numbers(**parameter: object) -> list[float]:
    """Return the parameter as a list; raise unless its items are numbers."""
    # The message does not quote the invalid item, because the list may be a column of rows.
    ((name, value),) = parameter.items()
    listed = sequence(**parameter)
    if any(isinstance(one, bool) or not isinstance(one, Real) for one in listed):
        raise error_about(name, f"must be numbers, not {describe(value)}.")
    return [real(**{name: one}) for one in listed]


def path(**parameter: object) -> Path:
    """Return the parameter as a path, or raise unless it is the path of a file or folder."""
    ((name, value),) = parameter.items()
    if not isinstance(value, str | PathLike):
        raise error_about(name, f"must be a file path, not {describe(value)}.")
    if not 0 < len(str(value)) <= _LONGEST_PATH or "\0" in str(value) or not _is_encoded(value):
        raise error_about(name, f"must be a file path, not {describe(value)}.")
    return Path(value)


def _is_encoded(path: str | PathLike[Any]) -> bool:
    """Return whether the system can encode the file name."""
    try:
        fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def mapping(**parameter: object) -> dict[str, Any]:
    """Return the parameter as a dict, or raise unless it maps names; None maps nothing."""
    ((name, value),) = parameter.items()
    if value is not None and not isinstance(value, Mapping):
        raise error_about(name, f"must be a mapping from names to values, not {describe(value)}.")
    return dict(value or {})


def instance(kind: type[Kind], /, **parameter: object) -> Kind:
    """Return the parameter, or raise unless it is an object of the class."""
    ((name, value),) = parameter.items()
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise error_about(name, f"must be {article} {kind.__name__}, not {describe(value)}.")
    return value


def function(**parameter: object) -> Callable[..., Any]:
    """Return the parameter, or raise unless it can be called."""
    ((name, value),) = parameter.items()
    if not callable(value):
        raise error_about(name, f"must be a function, not {describe(value)}.")
    return value


def positive(**parameter: object) -> float:
    """Return the parameter as a float, or raise unless it is finite and above 0."""
    ((name, value),) = parameter.items()
    number = real(**parameter)
    if not (math.isfinite(number) and number > 0):
        raise error_about(name, f"must be positive and finite, not {describe(value)}.")
    return number


def scale(**parameter: object) -> float:
    """Return the parameter as a float, or raise if its square could overflow or vanish."""
    ((name, value),) = parameter.items()
    number = positive(**parameter)
    if not 1e-100 <= number <= 1e100:
        raise error_about(
            name, f"must be between 1e-100 and 1e100, not {describe(value)}; rescale."
        )
    return number


def noise(*, low: int = -10, high: int = 30, **parameter: object) -> float:
    """Return a noise multiplier as a float, or raise unless it is between two powers of two."""
    ((name, value),) = parameter.items()
    number = positive(**parameter)
    if not 2.0**low <= number <= 2.0**high:
        raise error_about(
            name,
            f"must be between 2^{low} and 2^{high}, not {describe(value)}: outside this range "
            "the result is not private, or only noise.",
        )
    return number


def non_negative(**parameter: object) -> float:
    """Return the parameter as a float, or raise unless it is finite and at least 0."""
    ((name, value),) = parameter.items()
    number = real(**parameter)
    if not (math.isfinite(number) and number >= 0):
        raise error_about(name, f"must be finite and at least 0, not {describe(value)}.")
    return number


def fraction(**parameter: object) -> float:
    """Return the parameter as a float, or raise unless it is in (0, 1)."""
    ((name, value),) = parameter.items()
    number = real(**parameter)
    if not 0 < number < 1:
        raise error_about(name, f"must be in (0, 1), not {describe(value)}.")
    return number


def probability(**parameter: object) -> float:
    """Return the parameter as a float, or raise unless it is in [0, 1]."""
    ((name, value),) = parameter.items()
    number = real(**parameter)
    if not 0 <= number <= 1:
        raise error_about(name, f"must be in [0, 1], not {describe(value)}.")
    return number


def delta(*, allow_zero: bool, **parameter: object) -> float:
    """Return δ as a float, or raise unless it is in (0, 1), or an allowed 0."""
    ((name, value),) = parameter.items()
    number = real(**parameter)
    if number == 0 and not allow_zero:
        raise error_about(
            name,
            f"= 0 requires pure differential privacy: pass noise='laplace', or a {name} such "
            "as 1e-6.",
        )
    if not 0 <= number < 1:
        raise error_about(name, f"must be in [0, 1), not {describe(value)}.")
    return number


def integer(*, minimum: int, **parameter: object) -> int:
    """Return the parameter as an int, or raise unless it is an integer ≥ minimum."""
    ((name, value),) = parameter.items()
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < minimum:
        raise error_about(name, f"must be an integer of at least {minimum}, not {describe(value)}.")
    if int(value) > _LARGEST_INTEGER:
        raise error_about(name, "must be at most 10^18.")
    return int(value)


def one_of(choices: Sequence[str], **parameter: object) -> str:
    """Return the parameter, or raise unless it is one of the choices."""
    ((name, value),) = parameter.items()
    if not isinstance(value, str) or value not in choices:
        names = ", ".join(repr(choice) for choice in choices)
        raise error_about(name, f"must be one of {names}, not {describe(value)}.")
    return value


def exactly_one(**parameters: object) -> None:
    """Raise unless exactly one of several parameters is passed."""
    passed = [name for name, value in parameters.items() if value is not None]
    if len(passed) != 1:
        *others, last = parameters
        raise ParameterError(
            f"exactly one of {', '.join(others)} and {last} must be passed, not "
            f"{' and '.join(passed) or 'none'}.",
            name=others[0],
        )


def float_array(**parameter: Any) -> NDArray[np.float64]:
    """Return the parameter as an array of floats, or raise unless it is an array of numbers."""
    ((name, value),) = parameter.items()
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError):
        # NumPy's error message quotes a value.
        raise_without_context(error_about(name, f"must be numbers, not {describe(value)}."))


# -- the fields of frozen dataclasses --


@cache
def _kinds(cls: Any) -> dict[str, Any]:
    """Return the declared type of each field."""
    hints = get_type_hints(cls)
    return {part.name: hints[part.name] for part in fields(cls)}


def check_fields(instance: object) -> None:
    """Check the fields of a frozen dataclass by type, and make them plain Python.

    The class checks ranges. An error message ends with ``"remedy"`` of the field's metadata.
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
        return one_of(args, **{name: value})
    if origin is tuple:
        return _tuple(name, args[0], value)
    if origin in (Union, types.UnionType):
        return _checked_union(name, args, value)
    return instance(kind, **{name: value})


def _tuple(name: str, kind: Any, value: Any) -> tuple[Any, ...]:
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind != "O":
        value = tuple(value)
    if not isinstance(value, tuple | list) or are_records(value):
        raise error_about(name, f"must be a list, not {describe(value)}.")
    return tuple(_checked(name, kind, part) for part in value)


def _checked_union(name: str, kinds: tuple[Any, ...], value: Any) -> Any:
    """Return the value as the first matching type of several."""
    if value is None and type(None) in kinds:
        return None
    *others, last = (kind for kind in kinds if kind is not type(None))
    for kind in others:
        if isinstance(kind, type) and isinstance(value, kind):
            return _checked(name, kind, value)
    return _checked(name, last, value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise error_about(name, f"must be text, not {describe(value)}.")
    if not is_utf8(value):
        # A hash of it would fail.
        raise error_about(name, f"must be valid UTF-8 text, not {describe(value)}.")
    return str(value)


_SIMPLE: dict[Any, Callable[[str, Any], Any]] = {
    bool: lambda name, value: boolean(**{name: value}),
    str: _text,
    int: lambda name, value: bounded_integer(**{name: value}),
    float: lambda name, value: number(**{name: value}),
    Any: lambda _, value: value,
}


# -- JSON --


def parse_json(text: str, what: str) -> Any:
    """Parse a JSON text without duplicate fields and with finite numbers only."""
    if not isinstance(text, str | bytes):
        raise ParameterError(f"{what} must be JSON text, not {describe(text)}.")
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
        raise ParameterError(f"field {describe(twice)} occurs twice; remove one.")
    return values


def read_fields(cls: Callable[..., Kind], values: Any, what: str) -> Kind:
    """Build a dataclass from the fields of a JSON object."""
    if not isinstance(values, dict):
        raise ParameterError(f"{what} must be an object with fields, not {describe(values)}.")
    kinds = _kinds(cls)
    needed = [
        part.name
        for part in fields(cls)  # type: ignore[arg-type]
        if part.default is MISSING and part.default_factory is MISSING
    ]
    unknown = [describe(name) for name in values if name not in kinds]
    missing = [name for name in needed if name not in values]
    if unknown or missing:
        wrong = f"has no field {unknown[0]}" if unknown else f"lacks the field {missing[0]!r}"
        raise ParameterError(f"{what} {wrong}; its fields are {', '.join(kinds)}.")
    return cls(**{name: _parsed(name, kinds[name], value) for name, value in values.items()})


def _parsed(name: str, kind: Any, value: Any) -> Any:
    """Convert a JSON value to its declared type."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is float and isinstance(value, str) and value == "inf":
        return math.inf
    if kind in _SIMPLE or origin is Literal:
        # The class may not check its fields.
        return _checked(name, kind, value)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_parsed(name, args[0], part) for part in value)
    if origin in (Union, types.UnionType) and value is not None:
        # The field is one object or a tuple of them; the tuple is the last type of the union.
        chosen = args[-1] if isinstance(value, list | tuple) else args[0]
        # The class chooses between several simple types.
        is_simple = chosen in _SIMPLE and not (chosen is float and value == "inf")
        return value if is_simple else _parsed(name, chosen, value)
    if isinstance(kind, type) and hasattr(kind, "from_dict"):
        return kind.from_dict(value)
    return read_fields(cast(Any, kind), value, name) if is_dataclass(kind) else value
