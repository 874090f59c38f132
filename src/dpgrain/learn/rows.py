"""Unread rows of a fit, of which only the number and the form are public."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from dpgrain._lazy_import import lazy_import, loaded_types
from dpgrain.errors import ParameterError
from dpgrain.inputs.array_blocks import LabelledRows
from dpgrain.inputs.callbacks import slice_records
from dpgrain.inputs.columns import is_distributed
from dpgrain.inputs.numbers import collect_rows, required_width
from dpgrain.publishing import Charge
from dpgrain.publishing.origins import ArrayOrigin
from dpgrain.units import Unit

if TYPE_CHECKING:
    from dpgrain.learn import column_rows
    from dpgrain.learn.features import FeatureEncoding
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
