"""Checks of public parameters, by keyword: ``positive(epsilon=epsilon)``.

Every message names the parameter, its value and the remedy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import fields
from numbers import Integral, Real
from os import PathLike, fsencode
from pathlib import Path
from typing import Any, TypeVar

from dpgrain.errors import ParameterError

Kind = TypeVar("Kind")


def _only(parameter: dict[str, object]) -> tuple[str, object]:
    ((name, value),) = parameter.items()
    return name, value


# Characters of a wrong value that a message shows, at most.
_SHOWN_CHARACTERS = 60
# Characters of a path, at most, as systems have it.
_LONGEST_PATH = 4096


def said(value: object, most: int = _SHOWN_CHARACTERS) -> str:
    """Write a wrong value for a message in one line, and of what may hold rows only its type.

    Args:
        value: the value, which may be one that cannot be printed, or is long.
        most: the largest number of characters.
    """
    try:
        text = "" if _may_hold_rows(value) else " ".join(repr(value).split())
    except Exception:
        text = ""
    if not text or " at 0x" in text:
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _may_hold_rows(value: object) -> bool:
    """Whether a value is an array, a frame, a table or a list of records, has one in it, or is long.

    Whoever passes rows in the place of something else must not read one of them in a message or log.
    """
    if isinstance(value, str | bytes):
        return False
    if isinstance(value, Mapping):
        return len(value) > _SHOWN_CHARACTERS or any(map(_may_hold_rows, value.values()))
    if isinstance(value, Sequence | Set):
        long = len(value) > _SHOWN_CHARACTERS or are_records(value)
        return long or any(map(_may_hold_rows, value))
    return bool(getattr(value, "shape", ())) or hasattr(value, "__arrow_c_stream__")


def are_records(value: object) -> bool:
    """Whether a value is a list of records by name, which are rows.

    Args:
        value: the value.

    >>> are_records([{"who": "ann"}]), are_records([]), are_records([1, {}])
    (True, False, False)
    """
    if not isinstance(value, Sequence | Set) or not value:
        return False
    return all(isinstance(part, Mapping) for part in value)


def is_written(text: str) -> bool:
    """Whether a text can be written in UTF-8, as one with halves of letters cannot.

    Args:
        text: the text.

    >>> is_written("größe"), is_written("half \\ud800")
    (True, False)
    """
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def wrong(name: str, rest: str) -> ParameterError:
    """The error about a parameter: its name, and how the sentence goes on."""
    return ParameterError(f"{name} {rest}", name=name)


def real(**parameter: object) -> float:
    """Return the parameter as a float, or raise unless it is a number that a float can hold."""
    return _real(*_only(parameter))


def whole(**parameter: object) -> int:
    """Return the parameter as an int, or raise unless it is a whole number of at most 10^18 in size."""
    name, value = _only(parameter)
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise wrong(name, f"must be an integer, not {said(value)}.")
    if abs(int(value)) > _LARGEST_INTEGER:
        raise wrong(name, "must be at most 10^18.")
    return int(value)


def _real(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise wrong(name, f"must be a number, not {said(value)}.")
    try:
        return float(value)
    except OverflowError:
        raise wrong(name, "must be a number below 10^308.") from None


# Size up to which whole numbers are close enough to floats for every use.
_LARGEST_INTEGER = 10**18


def plain(instance: object) -> None:
    """Turn the NumPy numbers of a frozen dataclass into Python's, which neither wrap nor round.

    ``np.uint8(200) * 2`` is 144, and ``np.float16`` keeps three digits: bounds must not be computed in
    such types.
    """
    for part in fields(instance):  # type: ignore[arg-type]
        value = getattr(instance, part.name)
        python = tuple(map(_plain, value)) if isinstance(value, tuple) else _plain(value)
        object.__setattr__(instance, part.name, python)


def _plain(value: Any) -> Any:
    if type(value) in (bool, int, float) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def truth(**parameter: object) -> bool:
    """Return the parameter, or raise unless it is True or False."""
    name, value = _only(parameter)
    if not isinstance(value, bool):
        raise wrong(name, f"must be True or False, not {said(value)}.")
    return value


def sequence(**parameter: object) -> list[object]:
    """Return the parameter as a list, or raise unless it is a list of values."""
    name, value = _only(parameter)
    if isinstance(value, str | bytes | Mapping | Set) or not isinstance(value, Iterable):
        raise wrong(name, f"must be a list, not {said(value)}.")
    try:
        return list(value)
    except TypeError:
        # The value is an array without axes.
        raise wrong(name, f"must be a list, not {said(value)}.") from None


def integers(*, minimum: int, **parameter: object) -> list[int]:
    """Return the parameter as a list, or raise unless it is a list of whole numbers ≥ minimum.

    What is wrong in a list is not quoted by itself, as the list may be a column of rows.
    """
    name, value = _only(parameter)
    listed = sequence(**parameter)
    whole = [int(one) for one in listed if not isinstance(one, bool) and isinstance(one, Integral)]
    if len(whole) < len(listed) or not all(minimum <= one <= _LARGEST_INTEGER for one in whole):
        raise wrong(
            name,
            f"must be integers from {minimum} to 10^18, not {said(value)}.",
        )
    return whole


def path(**parameter: object) -> Path:
    """Return the parameter as a path, or raise unless it is the path of a file or folder."""
    name, value = _only(parameter)
    if not isinstance(value, str | PathLike):
        raise wrong(name, f"must be a file path, not {said(value)}.")
    if not 0 < len(str(value)) <= _LONGEST_PATH or "\0" in str(value) or not _is_encoded(value):
        raise wrong(name, f"must be a file path, not {said(value)}.")
    return Path(value)


def _is_encoded(path: str | PathLike[Any]) -> bool:
    """Whether the system can have a file of this name."""
    try:
        fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def mapping(**parameter: object) -> dict[str, Any]:
    """Return the parameter as a dict, or raise unless it maps names; None maps nothing."""
    name, value = _only(parameter)
    if value is not None and not isinstance(value, Mapping):
        raise wrong(name, f"must be a mapping from names to values, not {said(value)}.")
    return dict(value or {})


def instance(kind: type[Kind], /, **parameter: object) -> Kind:
    """Return the parameter, or raise unless it is an object of the class."""
    name, value = _only(parameter)
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise wrong(name, f"must be {article} {kind.__name__}, not {said(value)}.")
    return value


def function(**parameter: object) -> Callable[..., Any]:
    """Return the parameter, or raise unless it can be called."""
    name, value = _only(parameter)
    if not callable(value):
        raise wrong(name, f"must be a function, not {said(value)}.")
    return value


def positive(**parameter: object) -> float:
    """Return the parameter as a float, or raise unless it is finite and above 0."""
    name, value = _only(parameter)
    number = _real(name, value)
    if not (math.isfinite(number) and number > 0):
        raise wrong(name, f"must be positive and finite, not {said(value)}.")
    return number


def scale(**parameter: object) -> float:
    """Return the parameter as a float, or raise if its square could overflow or vanish."""
    name, value = _only(parameter)
    number = positive(**parameter)
    if not 1e-100 <= number <= 1e100:
        raise wrong(name, f"must be between 1e-100 and 1e100, not {said(value)}; rescale.")
    return number


def noise(*, low: int = -10, high: int = 30, **parameter: object) -> float:
    """Return a noise multiplier as a float, or raise unless it lies between two powers of two."""
    name, value = _only(parameter)
    number = positive(**parameter)
    if not 2.0**low <= number <= 2.0**high:
        raise wrong(
            name,
            f"must be between 2^{low} and 2^{high}, not {said(value)}: outside this range "
            "the result is not private, or only noise.",
        )
    return number


def non_negative(**parameter: object) -> float:
    """Return the parameter as a float, or raise unless it is finite and at least 0."""
    name, value = _only(parameter)
    number = _real(name, value)
    if not (math.isfinite(number) and number >= 0):
        raise wrong(name, f"must be finite and at least 0, not {said(value)}.")
    return number


def fraction(**parameter: object) -> float:
    """Return the parameter as a float, or raise unless it lies strictly between 0 and 1."""
    name, value = _only(parameter)
    number = _real(name, value)
    if not 0 < number < 1:
        raise wrong(name, f"must be in (0, 1), not {said(value)}.")
    return number


def probability(**parameter: object) -> float:
    """Return the parameter as a float, or raise unless it lies in [0, 1]."""
    name, value = _only(parameter)
    number = _real(name, value)
    if not 0 <= number <= 1:
        raise wrong(name, f"must be in [0, 1], not {said(value)}.")
    return number


def delta(*, allow_zero: bool, **parameter: object) -> float:
    """Return δ as a float, or raise unless it lies in (0, 1), or is 0 where that is allowed."""
    name, value = _only(parameter)
    number = _real(name, value)
    if number == 0 and not allow_zero:
        raise wrong(
            name,
            f"= 0 requires pure differential privacy: pass noise='laplace', or a {name} such "
            "as 1e-6.",
        )
    if not 0 <= number < 1:
        raise wrong(name, f"must be in [0, 1), not {said(value)}.")
    return number


def integer(*, minimum: int, **parameter: object) -> int:
    """Return the parameter as an int, or raise unless it is a whole number ≥ minimum."""
    name, value = _only(parameter)
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < minimum:
        raise wrong(name, f"must be an integer of at least {minimum}, not {said(value)}.")
    if int(value) > _LARGEST_INTEGER:
        raise wrong(name, "must be at most 10^18.")
    return int(value)


def one_of(choices: Sequence[str], **parameter: object) -> str:
    """Return the parameter, or raise unless it is one of the named choices."""
    name, value = _only(parameter)
    if not isinstance(value, str) or value not in choices:
        names = ", ".join(repr(choice) for choice in choices)
        raise wrong(name, f"must be one of {names}, not {said(value)}.")
    return value
