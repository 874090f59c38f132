"""Columns of labels, each cell by itself, whatever else is in the column and whatever its type.

A column of text with one odd cell, or a list in which one person's label is of another type, must not
change what the labels of others are. So each label is compared by its own
:func:`dpgrain.inputs.labels.key`.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpgrain._later import later
from dpgrain.errors import ParameterError
from dpgrain.inputs import columns
from dpgrain.inputs.labels import Key, key, matching, whole

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = later("pandas")

__all__ = [
    "Key",
    "as_array",
    "codes",
    "column",
    "key",
    "matching",
    "name_of",
    "ordered",
    "token_of",
]

# Arrays that were passed, by identity, each with its token.
_tokens: dict[int, tuple[weakref.ref[Any], str]] = {}
_lock = threading.Lock()
# Types whose equal values have equal keys, so that they need to be looked at once only.
_SIMPLE = (str, bytes, bool, int)
# Few whole numbers below this have one hash.
_LONG = 2**63


def column(values: Any) -> NDArray[Any] | pd.Series:
    """Labels as they are: a null among whole numbers must not turn the others into floats."""
    cells = columns.values(values)
    if cells is not None:
        return cells
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


def ordered(name: str, stated: Any) -> NDArray[Any]:
    """Different labels that are stated, in their order: as written if they have none.

    Args:
        name: what they are called, in messages.
        stated: labels of any type; one that is named again is left out.

    Raises:
        ParameterError: if they are no list, or one is none.

    >>> ordered("classes", [2, 1, 2]).tolist(), ordered("classes", [1, "1", None][:2]).tolist()
    ([1, 2], [1, '1'])
    """
    if isinstance(stated, str | bytes) or np.ndim(column(stated)) != 1:
        raise ParameterError(f"{name} must be a list of labels, not {stated!r}.")
    labels = list(column(stated))
    names = [key(label) for label in labels]
    if None in names:
        raise ParameterError(f"{name} must differ in value, and none may be null, not {labels!r}.")
    labels = list(dict(zip(names[::-1], labels[::-1], strict=True)).values())[::-1]
    objects = np.empty(len(labels), dtype=object)
    objects[:] = labels
    # Text and numbers have no order in common, and neither have all times.
    with contextlib.suppress(Exception):
        objects = objects[np.argsort(objects, kind="stable")]
    return as_array(objects)


def as_array(labels: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
    """Labels in an array of the type that all of them have, of objects where that would change one.

    >>> as_array([1, 2]).dtype.kind, as_array([2**53 + 1, 0.5]).dtype.kind
    ('i', 'O')
    """
    objects = np.empty(len(labels), dtype=object)
    for place, label in enumerate(labels):
        objects[place] = label
    try:
        plain = np.asarray(objects.tolist())
    except ValueError:
        return objects
    # NumPy makes text of numbers beside text, and floats of long whole numbers.
    same = plain.shape == objects.shape and list(map(key, plain)) == list(map(key, objects))
    return plain if same else objects


def codes(values: Any, *, places: bool = False) -> tuple[NDArray[np.intp], list[Key]]:
    """A number for each label, −1 for a null, and the keys of the labels.

    Args:
        values: (m,) labels of any type.
        places: whether labels are places in a stated roster 0, 1, …: a text that is the canonical
            one of a place is that place.

    >>> codes(["a", 1, None, True, "1"])[0].tolist()
    [0, 1, -1, 1, 2]
    """
    found, named = column(values), _placed if places else key
    if found.ndim != 1:
        # Labels have one dimension, as whoever asks will say.
        return np.full(found.shape, -1, dtype=np.intp), []
    if not isinstance(found.dtype, np.dtype) or found.dtype.kind not in "biufmM":
        objects = found.to_numpy(dtype=object) if isinstance(found, pd.Series) else found
        # Text in fixed width is Python's text here, each cell of which is one.
        return _one_by_one(objects.tolist() if objects.dtype.kind in "US" else objects, named)
    found = np.asarray(found)
    # By sorting: a table of hashes would take long over numbers that were chosen to have one hash.
    labels, first, raw = np.unique(
        found.astype(found.dtype.newbyteorder("="), copy=False),
        return_index=True,
        return_inverse=True,
    )
    keys: dict[Key, int] = {}
    listed = labels.tolist() if found.dtype.kind in "biuf" else labels
    of = np.empty(len(labels), dtype=np.intp)
    for place in np.argsort(first).tolist():
        of[place] = _place(keys, named(listed[place]))
    return of[raw], list(keys)


def _one_by_one(
    objects: NDArray[Any] | list[Any], named: Callable[[Any], Key | None]
) -> tuple[NDArray[np.intp], list[Key]]:
    keys: dict[Key, int] = {}
    # Most labels are written many times: by type and value, so that 1 and True are looked at apart.
    seen: dict[Any, int] = {}
    out = np.empty(len(objects), dtype=np.intp)
    for place, label in enumerate(objects):
        # (1, "a") equals (True, "a"), and the first would speak for both: only simple ones are kept,
        # and of those no long numbers, any number of which may have one hash.
        simple = type(label) in _SIMPLE and (type(label) is not int or -_LONG <= label < _LONG)
        mark = (type(label), label) if simple else None
        known = None if mark is None else seen.get(mark)
        if known is None:
            known = _place(keys, named(label))
            if mark is not None:
                seen[mark] = known
        out[place] = known
    return out, list(keys)


def _placed(label: Any) -> Key | None:
    """The key of a label, or of the place in a roster that its text stands for."""
    place = whole(label)
    return key(label if place is None else place)


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
