"""Rows of a fit, unread, of which only the number and the form are public; and their reading.

Features and targets are read row by row, with errors that never quote rows.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import column_or_1d

from dpgrain._lazy_import import lazy_import, loaded_types
from dpgrain._types import FloatArray
from dpgrain.errors import DpgrainError, ParameterError, raise_without_context
from dpgrain.gradients.records import RecordBlocks
from dpgrain.inputs.array_blocks import ArrangedRows, LabelledRows
from dpgrain.inputs.callbacks import slice_records
from dpgrain.inputs.codes import column
from dpgrain.inputs.columns import column_types, is_distributed, is_text
from dpgrain.inputs.numbers import collect_rows, numeric_table, required_width
from dpgrain.learn.bounding import finite
from dpgrain.publishing import Charge
from dpgrain.publishing.origins import ArrayOrigin
from dpgrain.units import Unit

if TYPE_CHECKING:
    from dpgrain.learn import column_rows
    from dpgrain.learn.features import FeatureEncoding
    from dpgrain.learn.fit_config import FitConfig
    from dpgrain.tables import rows as tables
else:
    column_rows = lazy_import("dpgrain.learn.column_rows")
    tables = loaded_types("dpgrain.tables.rows")

#: Error message if the number of targets differs from the number of rows.
LENGTH_MISMATCH = "y must have one target per row of X."


def collect_lazy(values: Any) -> Any:
    """Evaluate a lazy frame, so that it has a form."""
    return collect_rows(values.collect) if hasattr(values, "collect") else values


def as_sequence(values: Any) -> Any:
    """Return cells as a list if they are iterable only once; None unchanged."""
    values = collect_lazy(values)
    if hasattr(values, "shape") or (hasattr(values, "__len__") and hasattr(values, "__getitem__")):
        return values
    return collect_rows(lambda: list(values)) if hasattr(values, "__iter__") else values


def count_rows(values: Any) -> int:
    """Return the number of rows; 0 without a length."""
    shape = getattr(values, "shape", None)
    if shape is None:
        return len(values) if hasattr(values, "__len__") else 0
    return int(shape[0]) if len(shape) else 0


def empty_like(values: Any) -> Any:
    """Return an empty selection of the rows, which has the same form for validation."""
    try:
        return slice_records(values, 0, 0)
    except (TypeError, IndexError, KeyError):
        # It has no rows; code that reads it raises an error.
        return values


def empty_features(X: Any, width: int | None = None) -> Any:
    """Return an empty selection of the features' rows, in the same form."""
    if sparse.issparse(X):
        form = X.shape
        return sparse.csr_array((0, form[1]), dtype=X.dtype) if len(form) == 2 else X
    if isinstance(X, list | tuple):
        return np.empty((0, required_width(width)))
    return empty_like(X)


class FitRows(ABC):
    """Unread rows of a fit: arrays, or columns of a table."""

    #: True if the rows remain on a cluster, which adds up their gradients.
    distributed: bool = False

    @property
    @abstractmethod
    def users(self) -> Any:
        """Labels of users, which name them in a promise; None for one user per row."""

    @property
    @abstractmethod
    def elements(self) -> Any:
        """Labels of elements, likewise."""

    @property
    def origin(self) -> ArrayOrigin | None:
        """Public facts about the rows; None for those of the current release."""
        return None

    @property
    def columns(self) -> tuple[FeatureEncoding, str] | None:
        """Rule from columns to features, and the target, which a model stores; None for arrays."""
        return None

    @abstractmethod
    def empty(self, width: int | None, *, labels: bool) -> tuple[Any, Any]:
        """Return features and targets of no rows, in the same form; ``labels`` for classifiers."""

    @abstractmethod
    def check(self, unit: Unit, *, places: bool = False) -> None:
        """Reject rows unless targets, users and elements have the same number."""

    @abstractmethod
    def read(self, charge: Charge, *, labels: bool, named: bool = False) -> ArrayRows:
        """Return the rows; ``named`` if users are indices in a population."""


@dataclass(frozen=True, eq=False)
class ArrayRows(FitRows):
    """Rows in memory: features (m, d), targets (m,) and labels (m,)."""

    X: Any
    y: Any
    users: Any = None
    elements: Any = None
    kept: Any = None  # other columns of a table

    @staticmethod
    def create(X: Any, y: Any, users: Any = None, elements: Any = None) -> ArrayRows:
        """Return rows with a known number."""
        return ArrayRows(collect_lazy(X), *map(as_sequence, (y, users, elements)))

    def empty(self, width: int | None, *, labels: bool) -> tuple[Any, Any]:  # noqa: ARG002 - arrays have a type
        """Return features and targets of no rows."""
        return empty_features(self.X, width), empty_like(self.y)

    def check(self, unit: Unit, *, places: bool = False) -> None:
        """Reject rows unless targets, users and elements have the same number."""
        if count_rows(self.y) != count_rows(self.X):
            raise ParameterError(LENGTH_MISMATCH)
        others = {"X": self.X, "y": self.y}
        LabelledRows.create(
            count_rows(self.X), self.users, self.elements, unit, places=places, others=others
        )

    def read(self, charge: Charge, *, labels: bool, named: bool = False) -> ArrayRows:  # noqa: ARG002 - as passed
        """Return the rows, which are already in memory."""
        return charge.read(lambda: self)


def rows_of(X: Any, y: Any, users: Any, elements: Any) -> FitRows:
    """Return the unread rows of a caller: arrays, or a Spark frame with column names."""
    if isinstance(X, FitRows):
        return X
    if isinstance(X, tables.TableRows):
        raise ParameterError(
            "X must be features, not a table of dg.read. Fit a table by a release file "
            "(dg.releases) or with `dpgrain fit`, or pass the columns of a data frame: "
            "fit(frame[['age']], frame['bought'], users=frame['person']).",
            name="X",
        )
    if is_distributed(X):
        return column_rows.ColumnRows.from_frame(X, y, users, elements)
    return ArrayRows.create(X, y, users, elements)


# -- reading --

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
