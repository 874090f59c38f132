"""Features and targets are read row by row: what is no number counts 0, long rows are shortened."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import column_or_1d

from dpgrain._types import FloatArray
from dpgrain.arrays.blocks import Rows
from dpgrain.errors import DpgrainError, ParameterError, raise_alone
from dpgrain.gradients.records import RecordBlocks
from dpgrain.inputs.codes import column
from dpgrain.inputs.columns import is_text, types_of
from dpgrain.inputs.numbers import readable
from dpgrain.learn.ask import Ask
from dpgrain.learn.bounding import finite
from dpgrain.learn.given import NOT_AS_MANY

# Beginnings of what scikit-learn says of the shape or the names of features, which quotes no row.
_OF_SHAPES = ("Expected 2D array", "Found array with", "X has ", "The feature names should match")
# The rows that scikit-learn quotes where they are one list of numbers.
_QUOTED = re.compile(r":\narray=.*?\n(?=Reshape)", re.DOTALL)


@contextmanager
def without_rows(name: str, otherwise: str) -> Iterator[None]:
    """Turn what scikit-learn says of rows into an error that quotes none of them.

    Args:
        name: the parameter.
        otherwise: the sentence where it says nothing about shapes or names of features.

    Raises:
        ParameterError: in place of scikit-learn's errors.
    """
    try:
        yield
    except DpgrainError:
        raise
    except (AttributeError, TypeError, ValueError) as error:
        told = _QUOTED.sub(". ", str(error))
        raise_alone(ParameterError(told if told.startswith(_OF_SHAPES) else otherwise, name=name))


def ridge_of(ask: Ask, outputs: int, features: int) -> FloatArray:
    """Return the strength of the ridge on each parameter: none on the intercept.

    Args:
        ask: the request for a fit.
        outputs: the number of margins of a row.
        features: the number of features.
    """
    strength = np.full((outputs, features + ask.fit_intercept), float(ask.l2))
    strength[:, features:] = 0
    return strength.ravel()


def by_record(X: Any, targets: FloatArray, rows: Rows, *, intercept: bool) -> RecordBlocks:
    """Group dense rows by block; rows without target are left out.

    Args:
        X: (m, d) the rows that count.
        targets: (m,) their targets.
        rows: the block of each row.
        intercept: True adds a column of ones.
    """
    there = np.isfinite(targets)
    dense = finite(X[there].toarray() if sparse.issparse(X) else X[there])
    if intercept:
        dense = np.column_stack([dense, np.ones(len(dense))])
    return RecordBlocks.arrange(dense, targets[there], rows.blocks[there], blocks=len(rows.owners))


def table(X: Any, features: int | None) -> Any:
    """Check that features have two dimensions; scikit-learn's errors would quote rows, or count them.

    Args:
        X: the features as they were passed.
        features: the public number of features, where it is stated.

    Raises:
        ParameterError: if it has other dimensions, or a column whose type is text.
    """
    _check_types(X)
    found = readable(X, features)
    if len(found.shape) != 2:
        raise ParameterError(
            f"X must be (m, d). Expected 2D array, got {len(found.shape)}D array instead. Reshape your "
            "data: X.reshape(-1, 1) if it has one feature."
        )
    if found.shape[1] == 0:
        # scikit-learn says the same, but for the number of rows.
        raise ParameterError(
            "X must have at least one feature: it has 0 feature(s) (shape=(, 0)) while a minimum "
            "of 1 is required."
        )
    if features not in (None, found.shape[1]):
        raise ParameterError(
            f"n_features must be the number of features, {found.shape[1]}, not {features}."
        )
    return found


def _check_types(X: Any) -> None:
    """Refuse a frame with columns whose type is text, which would count 0 in every row.

    A column of objects is let in: one odd cell makes it of a column of numbers.
    """
    named = types_of(X)
    text = [repr(name) for name, kind in named if is_text(kind)]
    if text:
        raise ParameterError(
            f"X must be numbers, not text as in its column{'s' * (len(text) > 1)} "
            f"{', '.join(text)}; omit such columns, or replace each with columns of 0 and 1 for a "
            "public list of values."
        )


def vector(y: Any, rows: int) -> NDArray[Any]:
    """Return targets as a one-dimensional array.

    Args:
        y: the targets as they were passed.
        rows: the number of rows.

    Raises:
        ParameterError: if it has another shape.
    """
    if y is None:
        raise ParameterError("this estimator requires y to be passed, but the target y is None.")
    if sparse.issparse(y):
        raise ParameterError("y must be an array of targets, not sparse; pass y.toarray().ravel().")
    result: Any = column(y)
    if not isinstance(result.dtype, np.dtype):
        # A type with nulls, which NumPy would turn into floats or text.
        result = result.to_numpy(dtype=object)
    array: NDArray[Any] = np.asarray(result)
    if array.dtype.kind == "c":
        raise ParameterError("y must be real. Complex data not supported: pass y.real.")
    if array.ndim != 1 and not (array.ndim == 2 and array.shape[1] == 1):
        raise ParameterError(
            "y must have shape (m,), with one target per row, not more dimensions."
        )
    array = column_or_1d(array, warn=True)
    if len(array) != rows:
        raise ParameterError(NOT_AS_MANY)
    return array
