"""Labels by their value alone: whatever else is in a column, and whatever type that makes of it.

A column of text with one odd cell, or a list in which one person's label is of another type, must not
change what the labels of others are. So each label is compared by a key of its own.
"""

from __future__ import annotations

import contextlib
import datetime
import secrets
import threading
import weakref
from decimal import Decimal
from fractions import Fraction
from numbers import Number
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpgrain.cells import TRUTHS

Key: TypeAlias = tuple[str, str]

# Arrays that were passed, by identity, each with its token.
_tokens: dict[int, tuple[weakref.ref[Any], str]] = {}
_lock = threading.Lock()
# Types whose equal values have equal keys, so that they need to be looked at once only.
_SIMPLE = (str, bytes, bool, int, float)


def key(label: Any) -> Key | None:
    """What a label is, apart from its type: a number, also written as text or as a truth, a time, text.

    None for a null, and for what is none of these.

    >>> key(True) == key(1.0) == key("1") == key(np.int8(1)), key("a"), key(None)
    (True, ('text', 'a'), None)
    """
    if isinstance(label, bytes | np.bytes_):
        label = label.decode("utf-8", "surrogateescape")
    if isinstance(label, str):
        number = TRUTHS.get(label, _written(label))
        return ("text", str(label)) if number is None else _number(number)
    if isinstance(label, datetime.datetime | datetime.date | np.datetime64):
        return _time(label)
    if isinstance(label, bool | np.bool_):
        return _number(int(label))
    if isinstance(label, Number | Decimal | np.number):
        return _number(label)
    if label is None or label is pd.NA or label is pd.NaT:
        return None
    if isinstance(label, tuple):
        return "tuple", repr([key(part) for part in label])
    try:
        # What cannot be told apart by value, such as a list, is no label.
        hash(label)
        return type(label).__name__, repr(label)
    except Exception:
        return None


def _number(value: Any) -> Key | None:
    try:
        exact = Fraction(value.item() if isinstance(value, np.generic) else value)
    except (TypeError, ValueError, OverflowError):
        # NaN, infinities and complex numbers.
        return None
    return "number", f"{exact.numerator:x}/{exact.denominator:x}"


def _written(text: str) -> Fraction | None:
    """The number that a text is, or None; a text that is long is text."""
    try:
        return Fraction(text.strip()) if len(text) <= 40 and "/" not in text else None
    except (ValueError, ZeroDivisionError):
        return None


def _time(value: Any) -> Key | None:
    try:
        moment = pd.Timestamp(value)
        moment = moment if moment.tzinfo is None else moment.tz_convert("UTC")
        return None if pd.isna(moment) else ("time", moment.as_unit("ns").isoformat())
    except (TypeError, ValueError, OverflowError):
        return "time", str(value)


def column(values: Any) -> NDArray[Any] | pd.Series:
    """Labels as they are: a null among whole numbers must not turn the others into floats."""
    if isinstance(values, pd.Series | np.ndarray):
        return values
    try:
        listed = values.tolist() if hasattr(values, "tolist") else list(values)
    except TypeError:
        return np.asarray(values)
    objects = np.empty(len(listed), dtype=object)
    for place, value in enumerate(listed):
        objects[place] = value
    return objects


def codes(values: Any) -> tuple[NDArray[np.intp], list[Key]]:
    """A number for each label, −1 for a null, and the keys of the labels.

    Args:
        values: (m,) labels of any type.

    >>> codes(["a", 1, None, True, "1"])[0].tolist()
    [0, 1, -1, 1, 1]
    """
    found = column(values)
    if found.dtype == object or not isinstance(found.dtype, np.dtype):
        objects = found.to_numpy(dtype=object) if isinstance(found, pd.Series) else found
        return _one_by_one(objects)
    raw, labels = pd.factorize(np.asarray(found), use_na_sentinel=True)
    keys: dict[Key, int] = {}
    of = np.array([_place(keys, key(label)) for label in labels], dtype=np.intp)
    return (of[raw] if len(of) else raw.astype(np.intp)) * (raw >= 0) - (raw < 0), list(keys)


def _one_by_one(objects: NDArray[Any]) -> tuple[NDArray[np.intp], list[Key]]:
    keys: dict[Key, int] = {}
    # Most labels are written many times: by type and value, so that 1 and True are looked at apart.
    seen: dict[Any, int] = {}
    out = np.empty(len(objects), dtype=np.intp)
    for place, label in enumerate(objects):
        # (1, "a") equals (True, "a"), and the first would speak for both: only simple ones are kept.
        mark = (type(label), label) if type(label) in _SIMPLE else None
        known = None if mark is None else seen.get(mark)
        if known is None:
            known = _place(keys, key(label))
            if mark is not None:
                seen[mark] = known
        out[place] = known
    return out, list(keys)


def _place(keys: dict[Key, int], label: Key | None) -> int:
    return -1 if label is None else keys.setdefault(label, len(keys))


def name_of(labels: Any) -> str | None:
    """The name of a series of labels, as a column has one; None where there is none."""
    name = getattr(labels, "name", None)
    return name if isinstance(name, str) and name else None


def token_of(labels: Any) -> str:
    """A token that is the same for one object only: arrays do not say what they are.

    Promises about different users or partitions do not compose. An array that is passed again has its
    token again, any other has another; what cannot be referred to weakly has a new one each time.
    """
    with _lock:
        known = _tokens.get(id(labels))
        if known is not None and known[0]() is labels:
            return known[1]
        token = secrets.token_hex(4)
        with contextlib.suppress(TypeError):
            _tokens[id(labels)] = weakref.ref(labels), token
    return token
