"""Codes of labels in columns, read cell by cell.

An invalid cell in a column of text, or a label of another type in a list, must not change other
labels. Labels are therefore compared by their separate :func:`dpgrain.inputs.labels.key`.
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
from dpgrain.inputs.labels import Key, as_integer, key, match_stated

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = loaded_types("pandas")

__all__ = [
    "Key",
    "codes",
    "column",
    "distinct_labels",
    "key",
    "label_array",
    "label_name",
    "match_stated",
    "object_token",
]

# Weak references to arrays of callers, and their tokens, by id.
_tokens: dict[int, tuple[weakref.ref[Any], str]] = {}
_lock = threading.Lock()
# Types with equal keys for equal values, so that keys can be cached by value.
_SIMPLE_TYPES = (str, bytes, bool, int)
# Integers below this share hashes with few others; any number of larger ones can share a hash.
_HASHED_BELOW = 2**63


def column(values: Any) -> NDArray[Any] | pd.Series:
    """Return labels unchanged; a null among integers must not turn the others into floats."""
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
    return columns.objects(listed)


def distinct_labels(name: str, stated: Any) -> NDArray[Any]:
    """Sort the distinct labels of a caller; labels without a common order retain theirs.

    ``stated`` can contain labels of any type; repeated labels are dropped. ``name`` is for
    messages.

    Raises:
        ParameterError: if the labels are not a list, or one of them is null.

    >>> [distinct_labels("classes", labels).tolist() for labels in ([2, 1, 2], [1, "1"])]
    [[1, 2], [1, '1']]
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
    objects = columns.objects(labels)
    # Text and numbers cannot be compared, and neither can some types of times.
    with contextlib.suppress(Exception):
        objects = objects[np.argsort(objects, kind="stable")]
    return label_array(objects)


def label_array(labels: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
    """Return labels as an array of their common type, or of objects if that would change a label.

    >>> label_array([1, 2]).dtype.kind, label_array([2**53 + 1, 0.5]).dtype.kind
    ('i', 'O')
    """
    objects = columns.objects(labels)
    try:
        plain = np.asarray(objects.tolist())
    except ValueError:
        return objects
    # NumPy converts numbers to text if other labels are text, and large integers to floats.
    same = plain.shape == objects.shape and list(map(key, plain)) == list(map(key, objects))
    return plain if same else objects


def codes(values: Any, *, places: bool = False) -> tuple[NDArray[np.intp], list[Key]]:
    """Return a code for each label, −1 for null, and the key of each code.

    With ``places``, labels are indices 0, 1, … of a known population, and the canonical text of an
    index equals the index.

    >>> codes(["a", 1, None, True, "1"])[0].tolist()
    [0, 1, -1, 1, 2]
    """
    passed, named = column(values), _placed if places else key
    if passed.ndim != 1:
        # The caller raises an error for codes of any other shape.
        return np.full(passed.shape, -1, dtype=np.intp), []
    if not isinstance(passed.dtype, np.dtype) or passed.dtype.kind not in "biufmM":
        objects = passed.to_numpy(dtype=object) if isinstance(passed, pd.Series) else passed
        # Convert text of fixed width to Python's str or bytes.
        return _one_by_one(objects.tolist() if objects.dtype.kind in "US" else objects, named)
    passed = np.asarray(passed)
    # Sort numbers, because hash tables are slow for numbers chosen to share one hash.
    labels, first, raw = np.unique(
        passed.astype(passed.dtype.newbyteorder("="), copy=False),
        return_index=True,
        return_inverse=True,
    )
    keys: dict[Key, int] = {}
    listed = labels.tolist() if passed.dtype.kind in "biuf" else labels
    code_of_label = np.empty(len(labels), dtype=np.intp)
    for place in np.argsort(first).tolist():
        code_of_label[place] = _place(keys, named(listed[place]))
    return code_of_label[raw], list(keys)


def _one_by_one(
    objects: NDArray[Any] | list[Any], named: Callable[[Any], Key | None]
) -> tuple[NDArray[np.intp], list[Key]]:
    keys: dict[Key, int] = {}
    # Most labels occur many times, so cache them by type and value (1 equals True).
    seen: dict[Any, int] = {}
    out = np.empty(len(objects), dtype=np.intp)
    for place, label in enumerate(objects):
        # Cache only simple labels: (1, "a") equals (True, "a"), but their keys differ. Large integers
        # are not cached, because any number of them can share a hash.
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
    """Return the key of a label, or of the population index that its text represents."""
    place = as_integer(label)
    return key(label if place is None else place)


def _place(keys: dict[Key, int], label: Key | None) -> int:
    return -1 if label is None else keys.setdefault(label, len(keys))


def label_name(labels: Any) -> str | None:
    """Return the name of a series of labels; None without one."""
    name = getattr(labels, "name", None)
    return name if isinstance(name, str) and name else None


def object_token(labels: Any) -> str:
    """Return a token for one object, because arrays have no names.

    Guarantees about different users or partitions do not compose, and tokens distinguish them. An
    array that is passed again has the same token, and any other array another. An object without
    weak references has a new token each time.
    """
    with _lock:
        entry = _tokens.get(id(labels))
        if entry is not None and entry[0]() is labels:
            return entry[1]
        token = secrets.token_hex(4)
        with contextlib.suppress(TypeError):
            _tokens[id(labels)] = weakref.ref(labels), token
    return token
