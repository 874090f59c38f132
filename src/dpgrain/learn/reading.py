"""Reading of features and targets row by row, with errors that never quote rows."""

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
from dpgrain.errors import DpgrainError, ParameterError, raise_without_context
from dpgrain.gradients.records import RecordBlocks
from dpgrain.inputs.array_blocks import ArrangedRows
from dpgrain.inputs.codes import column
from dpgrain.inputs.columns import column_types, is_text
from dpgrain.inputs.numbers import numeric_table
from dpgrain.learn.bounding import finite
from dpgrain.learn.fit_config import FitConfig
from dpgrain.learn.rows import LENGTH_MISMATCH

# Prefixes of scikit-learn's errors about the shape or the names of features, which quote no row.
_SHAPE_ERRORS = (
    "Expected 2D array",
    "Found array with",
    "X has ",
    "The feature names should match",
)
# Rows quoted by scikit-learn if they are a single list of numbers.
_QUOTED = re.compile(r":\narray=.*?\n(?=Reshape)", re.DOTALL)


@contextmanager
def without_rows(name: str, otherwise: str) -> Iterator[None]:
    """Convert scikit-learn's errors about ``name`` to errors without quoted rows."""
    try:
        yield
    except DpgrainError:
        raise
    except (AttributeError, TypeError, ValueError) as error:
        text = _QUOTED.sub(". ", str(error))
        raise_without_context(
            ParameterError(text if text.startswith(_SHAPE_ERRORS) else otherwise, name=name)
        )


def ridge_strengths(config: FitConfig, outputs: int, features: int) -> FloatArray:
    """Return the ridge strength of each parameter; 0 for the intercept."""
    strength = np.full((outputs, features + config.fit_intercept), float(config.l2))
    strength[:, features:] = 0
    return strength.ravel()


def record_blocks(
    X: Any, targets: FloatArray, rows: ArrangedRows, *, intercept: bool, max_records: int = 1
) -> RecordBlocks:
    """Group dense rows, (m, d), by block; rows without a target are dropped."""
    valid = np.isfinite(targets)
    dense = finite(X[valid].toarray() if sparse.issparse(X) else X[valid])
    if intercept:
        dense = np.column_stack([dense, np.ones(len(dense))])
    return RecordBlocks.arrange(
        dense,
        targets[valid],
        rows.blocks[valid],
        blocks=len(rows.owners),
        max_records=max_records,
    )


def feature_table(X: Any, features: int | None) -> Any:
    """Check that features have two dimensions; scikit-learn's errors would reveal rows."""
    _check_types(X)
    table = numeric_table(X, features)
    if len(table.shape) != 2:
        raise ParameterError(
            f"X must be (m, d). Expected 2D array, got {len(table.shape)}D array instead. Reshape your "
            "data: X.reshape(-1, 1) if it has one feature."
        )
    if table.shape[1] == 0:
        # The same message as scikit-learn's, without the number of rows.
        raise ParameterError(
            "X must have at least one feature: it has 0 feature(s) (shape=(, 0)) while a minimum "
            "of 1 is required."
        )
    if features not in (None, table.shape[1]):
        raise ParameterError(
            f"n_features must be the number of features, {table.shape[1]}, not {features}."
        )
    return table


def _check_types(X: Any) -> None:
    """Reject a frame with columns of text type, which would be 0 in every row."""
    # Columns of objects are accepted, because a single malformed cell can convert a numeric column.
    named = column_types(X)
    text = [repr(name) for name, kind in named if is_text(kind)]
    if text:
        raise ParameterError(
            f"X must be numbers, not text as in its column{'s' * (len(text) > 1)} "
            f"{', '.join(text)}; omit such columns, or replace each with columns of 0 and 1 for a "
            "public list of values."
        )


def target_vector(y: Any, rows: int) -> NDArray[Any]:
    """Return targets as a one-dimensional array with ``rows`` entries."""
    if y is None:
        raise ParameterError("this estimator requires y to be passed, but the target y is None.")
    if sparse.issparse(y):
        raise ParameterError("y must be an array of targets, not sparse; pass y.toarray().ravel().")
    result: Any = column(y)
    if not isinstance(result.dtype, np.dtype):
        # A nullable type, which NumPy would convert to floats or text.
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
        raise ParameterError(LENGTH_MISMATCH)
    return array
