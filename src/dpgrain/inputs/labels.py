"""Equality of labels of users, elements, classes and items, defined only in this module.

* **Text** equals only the same text: ``"007"``, ``"7"``, ``"7.0"`` and ``" 7"`` are four labels.
  Bytes are the text that they encode.
* **Numbers** are equal by value for all types, and ``True`` is 1. **Times** are equal if they are
  the same instant. Numbers and times never equal text.
* **Stated labels** are public: classes, values of a domain, keys of a mapping, indices of a
  population. They also match text: a stated number matches its canonical decimal text (1 the text
  ``"1"``, 2.5 the text ``"2.5"``; a boolean the text ``"True"``), and no other text. The caller
  specifies which side is stated, and each cell is matched separately. Text files and the command
  line state text, which matches a column of numbers in the same way.
* NaN, nulls, unhashable objects, and numbers with more than :data:`BITS` bits are not labels.

The data of a privacy unit are the rows with one label. If two parts of the library disagreed on
equality, a guarantee would be false, so all of them use this module.
"""

from __future__ import annotations

import ast
import contextlib
import datetime
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Rational
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain.errors import ParameterError, reraise_keyboard_interrupt
from dpgrain.inputs.long_labels import is_long, stated_label

Key: TypeAlias = tuple[str, str]

#: Maximum bits of numerator and denominator of a label, so that a short label such as
#: ``Decimal("1e99999999")`` is not expanded. All floating-point numbers have fewer.
BITS = 1 << 15
# Decimal numbers with more digits have more than BITS bits.
_MOST_DIGITS = math.ceil(BITS * math.log10(2))
# Maximum digits of a text that matches a stated number; floats have fewer before the point.
_WRITTEN_DIGITS = 400
# Maximum nesting of tuples.
_MOST_LEVELS = 4
_WHOLE = re.compile(rf"0|-?[1-9][0-9]{{0,{_WRITTEN_DIGITS - 1}}}")
_fraction = Fraction
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# Seconds in the units of NumPy with a fixed length.
_SECONDS = {
    "W": Fraction(604800),
    "D": Fraction(86400),
    "h": Fraction(3600),
    "m": Fraction(60),
    "s": Fraction(1),
    **{
        unit: Fraction(1, 1000**power)
        for power, unit in enumerate(("ms", "us", "ns", "ps", "fs", "as"), 1)
    },
}


def key(label: Any) -> Key | None:
    """Return the key of a label, None if it is not a label; equal keys mean equal labels.

    The running time is proportional to the length of the label, for all labels.

    >>> key(True) == key(1.0) == key(np.int8(1)), key("1"), key("01"), key(None)
    (True, ('text', '1'), ('text', '01'), None)
    """
    if type(label) is int and -(2**63) < label < 2**63:
        # Fast path of `_number`, for most labels.
        return "number", f"{label:x}/1"
    text = _text(label)
    if text is not None:
        return "text", text
    if isinstance(label, datetime.datetime | datetime.date | np.datetime64):
        return _time(label)
    if isinstance(label, datetime.timedelta | np.timedelta64):
        return _duration(label)
    if isinstance(label, complex | np.complexfloating):
        parts = [_number(label.real), _number(label.imag)]
        if None in parts:
            return None
        return (
            parts[0]
            if label.imag == 0
            else ("complex", " ".join(part[1] for part in parts if part))
        )
    if isinstance(label, float | Integral | Rational | Decimal | np.number | np.bool_):
        return _number(label)
    if label is None or _is_missing(label):
        return None
    if isinstance(label, tuple | frozenset):
        return _collection(label)
    try:
        # Unhashable values, such as lists, are not labels.
        hash(label)
        # The name of a type contains a dot, unlike all other types of keys.
        return f"{type(label).__module__}.{type(label).__qualname__}", repr(label)
    except BaseException as error:
        reraise_keyboard_interrupt(error)
        return None


def label_from_key(name: Key) -> Any:
    """Return a publishable label from its key only.

    Equal labels can have different types, and the published label must not be that of one person's
    row.
    """
    kind, value = name
    match kind.partition(" ")[0]:
        case "number":
            return _publishable_number(_parsed(value))
        case "complex":
            real, imag = map(_parsed, value.split(" "))
            number = complex(float(real), float(imag))
            return number if key(number) == name else value
        case "tuple" | "frozenset" if kind in ("tuple", "frozenset"):
            parts = [ast.literal_eval(part) for part in ast.literal_eval(value)]
            labels = [None if part is None else label_from_key(part) for part in parts]
            return tuple(labels) if kind == "tuple" else frozenset(labels)
        case "time" | "duration" if "/" in value:
            return _publishable_time(kind, Fraction(*(int(part, 16) for part in value.split("/"))))
        case "duration" if kind.endswith((" M", " generic")):
            return np.timedelta64(int(value, 16), kind.split(" ")[1])  # type: ignore[call-overload]
    return value


def rank(name: Key) -> tuple[str, Any]:
    """Return the sort key of a label key: by type, then by value."""
    kind, value = name
    measured = kind == "number" or ("/" in value and kind.partition(" ")[0] in ("time", "duration"))
    return kind, _parsed(value) if measured else value


def _parsed(value: str) -> Fraction | float:
    """Return the number in a key."""
    above, line, below = value.partition("/")
    return Fraction(int(above, 16), int(below, 16)) if line else float(value)


def _publishable_number(number: Fraction | float) -> Any:
    if isinstance(number, float):
        return number
    if number.denominator == 1:
        return number.numerator
    with contextlib.suppress(OverflowError):
        near = float(number)
        if Fraction(near) == number:
            return near
    digits = _decimal(number)
    return number if digits is None else Decimal(digits)


def _publishable_time(kind: str, seconds: Fraction) -> Any:
    """Return a time or duration from its seconds, in the first unit that represents it."""
    parts = seconds * 10**6
    if parts.denominator == 1:
        with contextlib.suppress(OverflowError):
            span = datetime.timedelta(microseconds=int(parts))
            if kind == "duration":
                return span
            return _EPOCH + span if kind == "time UTC" else (_EPOCH + span).replace(tzinfo=None)
    make: Any = np.timedelta64 if kind == "duration" else np.datetime64
    for unit in ("s", "ms", "us", "ns", "ps", "fs", "as", "D", "W"):
        count = seconds / _SECONDS[unit]
        if kind != "time UTC" and count.denominator == 1 and abs(count) < 2**63:
            return make(int(count), unit)
    return f"{kind} {_seconds(seconds)}"


def canonical_text(label: Any) -> str | None:
    """Return the only text that a stated label matches; None if there is none."""
    text = _text(label)
    if text is not None:
        return text
    if isinstance(label, bool | np.bool_):
        return str(bool(label))
    number = as_fraction(label)
    return None if number is None else _decimal(number)


def as_integer(label: Any) -> int | None:
    """Return the integer that equals a label, or has it as canonical text, or None."""
    text = _text(label)
    if text is not None:
        return int(text) if _WHOLE.fullmatch(text) else None
    number = as_fraction(label)
    return number.numerator if number is not None and number.denominator == 1 else None


def as_fraction(label: Any) -> Fraction | None:
    """Return the value of a label if it is a finite number; None for other labels."""
    value = _exact(label) if _is_number(label) else None
    return value if isinstance(value, Fraction) else None


def match_stated(
    name: str, stated: Sequence[Any] | NDArray[Any], cells: Sequence[Key]
) -> NDArray[np.intp]:
    """Return the index of each label of a column among stated labels; −1 if it is not among them.

    ``cells`` are the keys of the labels of a column, (V,). Each is matched separately: by its key,
    or, if it is text, by the text of a stated number. ``name`` is for messages.

    Raises:
        ParameterError: if a stated label is null, two are equal, or two numbers have the same text.

    >>> match_stated("classes", [1, 2.5, "a"], list(map(key, ["1", 1, "2.5", "01", "a"]))).tolist()
    [0, 0, 1, -1, 2]
    """
    place: dict[Key, int] = {}
    texts: dict[Key, int] = {}
    for i, label in enumerate(stated):
        name_of_label, text = key(label), canonical_text(label)
        if name_of_label is None:
            raise ParameterError(
                f"{name} must be labels without nulls, not {_validate.describe(label)}."
            )
        if place.setdefault(name_of_label, i) != i:
            raise ParameterError(
                f"{name} must be distinct, but {stated[place[name_of_label]]!r} equals {label!r}."
            )
        if (
            text is not None
            and name_of_label[0] != "text"
            and texts.setdefault(("text", text), i) != i
        ):
            raise ParameterError(
                f"{name} must differ as text, but several are written {text!r}; pass them as text."
            )
        if name_of_label[0] == "text" and is_long(name_of_label[1]):
            # Tables contain the label of a long text, and arrays the text.
            texts[key(stated_label(name_of_label[1])) or name_of_label] = i
    places = {**texts, **place}
    return np.array([places.get(cell, -1) for cell in cells], dtype=np.intp)


def cell_text(label: Any) -> str | None:
    """Convert a cell of any type to text; None if it is not a label."""
    text = canonical_text(label)
    if text is not None:
        return text
    name = key(label)
    if name is not None and name[0] in ("number", "time", "time UTC"):
        return _key_text(*name)
    if name is None and not isinstance(label, list | dict | set | np.ndarray):
        return None
    try:
        return str(label)
    except BaseException as error:
        reraise_keyboard_interrupt(error)
        return None


def _key_text(kind: str, value: str) -> str:
    """Return the text of a timestamp, or of a number without decimal text, from its key."""
    above, _, below = value.partition("/")
    if kind.startswith("time"):
        parts, rest = divmod(int(above, 16) * 10**6, int(below, 16))
        try:
            moment = _EPOCH + datetime.timedelta(microseconds=parts)
        except OverflowError:
            rest = 1
        if not rest:
            naive = moment.replace(tzinfo=None)
            if kind == "time UTC":
                return str(moment)
            return str(naive if moment.time() != datetime.time() else naive.date())
    return f"{kind} {value}"


def _text(label: Any) -> str | None:
    """Return the text of a label that is text or bytes; None for other labels."""
    if isinstance(label, bytes):
        return bytes.decode(label, "utf-8", "surrogateescape")
    # A subclass of str can print other text, which must not affect its key.
    return str.__str__(label) if isinstance(label, str) else None


def _is_missing(label: Any) -> bool:
    """Return True for a null of pandas, without loading pandas."""
    kind = type(label)
    return kind.__name__ in ("NAType", "NaTType") and kind.__module__.startswith("pandas")


def _is_number(label: Any) -> bool:
    if isinstance(label, np.timedelta64 | complex | np.complexfloating):
        return False
    return isinstance(label, float | Integral | Rational | Decimal | np.number | np.bool_)


def _collection(label: tuple[Any, ...] | frozenset[Any]) -> Key | None:
    """Return the key of a tuple or a set from the keys of its parts."""
    level: list[Any] = [label]
    for _ in range(_MOST_LEVELS):
        level = [part for each in level if isinstance(each, tuple | frozenset) for part in each]
    if level:
        # Keys of deeper nested tuples would grow faster than their length.
        return None
    parts = [repr(key(part)) for part in label]
    if isinstance(label, frozenset):
        return "frozenset", repr(sorted(parts))
    return "tuple", repr(parts)


def _number(value: Any) -> Key | None:
    number = _exact(value)
    if isinstance(number, Fraction):
        return "number", f"{number.numerator:x}/{number.denominator:x}"
    return None if number is None else ("number", f"{number:f}")


def _exact(value: Any) -> Fraction | float | None:
    """Return a number as a fraction or infinity; None for NaN and beyond :data:`BITS`."""
    try:
        if isinstance(value, Decimal):
            return _decimal_value(value)
        if isinstance(value, np.generic):
            # Numbers in extended precision have no equivalent in Python.
            value = value if isinstance(value, np.longdouble) else value.item()
        if isinstance(value, float | np.floating):
            if not np.isfinite(value):
                return None if np.isnan(value) else float(value)
            return _fraction(*value.as_integer_ratio())
        above, below = int(value.numerator), int(value.denominator)
    except BaseException as error:
        reraise_keyboard_interrupt(error)
        # A number of a custom class may raise any error.
        return None
    if max(above.bit_length(), below.bit_length()) > BITS:
        return None
    return _fraction(above, below)


def _decimal_value(value: Decimal) -> Fraction | float | None:
    """Return a decimal as a fraction, by numbers not much longer than its text."""
    if not value.is_finite():
        return None if value.is_nan() else float(value)
    sign, digits, exponent = value.as_tuple()
    last = next((i for i in range(len(digits), 0, -1) if digits[i - 1]), 0)
    if last == 0:
        return Fraction(0)
    assert isinstance(exponent, int)  # noqa: S101 - of a finite number
    exponent += len(digits) - last
    # The digits are not a multiple of ten now, so the reduced denominator retains all factors of two
    # or all factors of five.
    if last > _MOST_DIGITS or exponent > _MOST_DIGITS or exponent < -BITS:
        return None
    coefficient = int(Decimal((sign, digits[:last], 0)))
    number = _fraction(coefficient * 10 ** max(exponent, 0), 10 ** max(-exponent, 0))
    long = max(number.numerator.bit_length(), number.denominator.bit_length()) > BITS
    return None if long else number


def _decimal(number: Fraction) -> str | None:
    """Return the fewest decimal digits that identify a float; None for too many."""
    if number.denominator == 1:
        short = number.numerator.bit_length() <= _WRITTEN_DIGITS * 3
        return str(number.numerator) if short else None
    try:
        near = float(number)
    except OverflowError:
        return None
    if near != 0 and Fraction(near) == number:
        return str(np.format_float_positional(near, trim="-"))
    if pow(10, _WRITTEN_DIGITS, number.denominator) or abs(near) > 1e100:
        return None
    digits = str(abs(number.numerator) * 10**_WRITTEN_DIGITS // number.denominator).zfill(
        _WRITTEN_DIGITS + 1
    )
    places = digits[-_WRITTEN_DIGITS:].rstrip("0")
    return f"{'-' * (number < 0)}{digits[:-_WRITTEN_DIGITS]}.{places}"


def _time(value: Any) -> Key | None:
    """Return the key of a time: seconds since 1970, in UTC if it has a time zone."""
    if _is_missing(value):
        return None
    if hasattr(value, "asm8"):
        # A timestamp of pandas, with nanoseconds.
        return _since("time" if value.tzinfo is None else "time UTC", value.asm8)
    if isinstance(value, np.datetime64):
        return _since("time", value)
    try:
        if not isinstance(value, datetime.datetime):
            days = value.toordinal() - _EPOCH.toordinal()
            return "time", _seconds(Fraction(days * 86400))
        offset = value.utcoffset()
        local = value.replace(tzinfo=datetime.UTC) - _EPOCH
        if offset is None:
            return "time", _seconds(_exactly(local))
        return "time UTC", _seconds(_exactly(local) - _exactly(offset))
    except BaseException as error:
        reraise_keyboard_interrupt(error)
        # A time zone of a custom class may raise any error.
        return None


def _duration(value: Any) -> Key | None:
    value = getattr(value, "asm8", value)
    if isinstance(value, np.timedelta64):
        return _since("duration", value)
    return "duration", _seconds(_exactly(value))


def _since(kind: str, value: np.datetime64 | np.timedelta64) -> Key | None:
    """Return the key of a time or duration of NumPy, in any unit."""
    if np.isnat(value):
        return None
    unit, step = np.datetime_data(value.dtype)
    count = int(value.view(np.int64)) * step
    if unit in _SECONDS:
        return kind, _seconds(count * _SECONDS[unit])
    if kind == "duration" or unit == "generic":
        # Months and years have no fixed length, and generic durations have no unit.
        count, unit = (count * 12, "M") if unit == "Y" else (count, unit)
        return f"{kind} {unit}", f"{count:x}"
    year, month = divmod(count, 12) if unit == "M" else (count, 0)
    return kind, _seconds(Fraction(_days(1970 + year, month) * 86400))


def _days(year: int, month: int) -> int:
    """Return the days from 1970 to the first of a month (0 to 11) of any Gregorian year."""
    # The calendar has a period of 400 years, or 146,097 days.
    turns, year = divmod(year - 2000, 400)
    return (
        turns * 146097 + datetime.date(2000 + year, month + 1, 1).toordinal() - _EPOCH.toordinal()
    )


def _exactly(value: datetime.timedelta) -> Fraction:
    return Fraction(value.days * 86400 + value.seconds) + Fraction(value.microseconds, 10**6)


def _seconds(value: Fraction) -> str:
    return f"{value.numerator:x}/{value.denominator:x}"
