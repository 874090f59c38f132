"""Columns of labels, read cell by cell.

An odd cell in a column of text, or a label of another type in a list, must not change the labels of
others. So each label is compared by its own :func:`dpgrain.inputs.labels.key`.
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

from dpgrain import _validate
from dpgrain._lazy_import import loaded_types
from dpgrain.errors import ParameterError
from dpgrain.inputs import columns
from dpgrain.inputs.labels import Key, key, matching, whole

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = loaded_types("pandas")

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

# The arrays that were passed and their tokens, by the identity of the array.
_tokens: dict[int, tuple[weakref.ref[Any], str]] = {}
_lock = threading.Lock()
# Types whose equal values have equal keys, so that each needs to be looked at only once.
_SIMPLE_TYPES = (str, bytes, bool, int)
# Size below which few whole numbers share a hash; of longer ones any number may.
_HASHED_BELOW = 2**63


def column(values: Any) -> NDArray[Any] | pd.Series:
    """Return labels unchanged: a null among whole numbers must not turn the others into floats."""
    cells = columns.values(values)
    if cells is not None:
        return cells
    if isinstance(values, pd.Series | np.ndarray):
        return values
    try:
        listed = values.tolist() if hasattr(values, "tolist") else list(values)
    except TypeError:
        return np.asarray(values)
    if not isinstance(listed, list):
        return np.asarray(values)
    objects = np.empty(len(listed), dtype=object)
    for place, value in enumerate(listed):
        objects[place] = value
    return objects


def ordered(name: str, stated: Any) -> NDArray[Any]:
    """Sort the different labels of a caller; labels without an order stay as written.

    Args:
        name: the name of the labels in messages.
        stated: labels of any type; a label that is stated again is left out.

    Raises:
        ParameterError: if the labels are no list, or one of them is null.

    >>> ordered("classes", [2, 1, 2]).tolist(), ordered("classes", [1, "1", None][:2]).tolist()
    ([1, 2], [1, '1'])
    """
    if isinstance(stated, str | bytes) or np.ndim(column(stated)) != 1:
        raise ParameterError(f"{name} must be a list of labels, not {_validate.describe(stated)}.")
    labels = list(column(stated))
    names = [key(label) for label in labels]
    if None in names:
        raise ParameterError(
            f"{name} must be distinct and not null, not {_validate.describe(labels)}."
        )
    labels = list(dict(zip(names[::-1], labels[::-1], strict=True)).values())[::-1]
    objects = np.empty(len(labels), dtype=object)
    objects[:] = labels
    # Text and numbers cannot be sorted together, and neither can all kinds of times.
    with contextlib.suppress(Exception):
        objects = objects[np.argsort(objects, kind="stable")]
    return as_array(objects)


def as_array(labels: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
    """Make an array of labels, of their common type, or of objects where that would change one.

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
    # NumPy turns numbers beside text into text, and long whole numbers into floats.
    same = plain.shape == objects.shape and list(map(key, plain)) == list(map(key, objects))
    return plain if same else objects


def codes(values: Any, *, places: bool = False) -> tuple[NDArray[np.intp], list[Key]]:
    """Return a code for each label, −1 for a null, and the key of each code.

    Args:
        values: (m,) labels of any type.
        places: True if labels are places in a stated roster 0, 1, …: a text that is the canonical
            text of a place then is that place.

    >>> codes(["a", 1, None, True, "1"])[0].tolist()
    [0, 1, -1, 1, 2]
    """
    labels_given, named = column(values), _placed if places else key
    if labels_given.ndim != 1:
        # Labels have one dimension: the caller refuses codes of any other shape, in its own words.
        return np.full(labels_given.shape, -1, dtype=np.intp), []
    if not isinstance(labels_given.dtype, np.dtype) or labels_given.dtype.kind not in "biufmM":
        objects = (
            labels_given.to_numpy(dtype=object)
            if isinstance(labels_given, pd.Series)
            else labels_given
        )
        # Text of fixed width is turned into Python's text, so that each cell is a str or bytes.
        return _one_by_one(objects.tolist() if objects.dtype.kind in "US" else objects, named)
    labels_given = np.asarray(labels_given)
    # Numbers are sorted, since a table of hashes is slow if somebody chose numbers with one hash.
    labels, first, raw = np.unique(
        labels_given.astype(labels_given.dtype.newbyteorder("="), copy=False),
        return_index=True,
        return_inverse=True,
    )
    keys: dict[Key, int] = {}
    listed = labels.tolist() if labels_given.dtype.kind in "biuf" else labels
    code_of_label = np.empty(len(labels), dtype=np.intp)
    for place in np.argsort(first).tolist():
        code_of_label[place] = _place(keys, named(listed[place]))
    return code_of_label[raw], list(keys)


def _one_by_one(
    objects: NDArray[Any] | list[Any], named: Callable[[Any], Key | None]
) -> tuple[NDArray[np.intp], list[Key]]:
    keys: dict[Key, int] = {}
    # Most labels occur many times. They are remembered by type and value, since 1 equals True.
    seen: dict[Any, int] = {}
    out = np.empty(len(objects), dtype=np.intp)
    for place, label in enumerate(objects):
        # Only simple labels are remembered: (1, "a") equals (True, "a"), and the first would stand for
        # both. Long whole numbers are not, because any number of them may share a hash.
        simple = type(label) in _SIMPLE_TYPES and (
            type(label) is not int or -_HASHED_BELOW <= label < _HASHED_BELOW
        )
        mark = (type(label), label) if simple else None
        code = None if mark is None else seen.get(mark)
        if code is None:
            code = _place(keys, named(label))
            if mark is not None:
                seen[mark] = code
        out[place] = code
    return out, list(keys)


def _placed(label: Any) -> Key | None:
    """Return the key of a label, or of the place in a roster that its text stands for."""
    place = whole(label)
    return key(label if place is None else place)


def _place(keys: dict[Key, int], label: Key | None) -> int:
    return -1 if label is None else keys.setdefault(label, len(keys))


def name_of(labels: Any) -> str | None:
    """Return the name of a series of labels, None where it has none."""
    name = getattr(labels, "name", None)
    return name if isinstance(name, str) and name else None


def token_of(labels: Any) -> str:
    """Return a token for one object alone, since arrays have no names.

    Promises about different users or partitions do not compose, and tokens distinguish these. An array
    that is passed again has the same token, and any other array another. An object that cannot be
    referred to weakly has a new token each time.
    """
    with _lock:
        entry = _tokens.get(id(labels))
        if entry is not None and entry[0]() is labels:
            return entry[1]
        token = secrets.token_hex(4)
        with contextlib.suppress(TypeError):
            _tokens[id(labels)] = weakref.ref(labels), token
    return token
