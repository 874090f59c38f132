"""Fits and per-user means of columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpgrain.errors import ParameterError
from dpgrain.learn.column_rows import ColumnRows
from dpgrain.learn.features import FeatureEncoding, NumberColumn
from dpgrain.learn.model import LinearModel
from dpgrain.means.distributed import TableRecords
from dpgrain.means.user_mean import MeanOfUsers, mean_of_users
from dpgrain.publishing import Query, publishes
from dpgrain.tables.engines.per_user import require_whole_users
from dpgrain.tables.shared_table import reject_table
from dpgrain.tables.sources.column_types import BOOLEAN
from dpgrain.tables.table import UserTable


def column_labels(labels: Sequence[Any], kind: str | None) -> list[Any]:
    """Return the labels of a column; those of booleans may be text in any case."""
    if kind != BOOLEAN:
        return list(labels)
    named = [str(label).lower() for label in labels]
    if other := [name for name in named if name not in ("false", "true")]:
        raise ParameterError(
            f"classes must be false and true for a boolean column, not {other[0]!r}.",
            name="classes",
        )
    return [name == "true" for name in named]


@publishes
def fit_columns(
    model: LinearModel,
    table: UserTable,
    encoding: FeatureEncoding,
    target: str,
    element: str | None = None,
) -> Query[LinearModel]:
    """Fit a model to columns of a table, and add the columns to the public facts of its guarantee."""
    if not isinstance(table, UserTable):
        reject_table(table, "a fit")
    # Validate parameters before reading a long table.
    require_whole_users(table, model.config().promise.unit)
    return model.query(ColumnRows(table, encoding, target, element), None)


@publishes
def mean_of_columns(table: UserTable, columns: Sequence[str], **options: Any) -> Query[MeanOfUsers]:
    """Publish the per-user mean of some columns of a table; see :func:`dpgrain.mean_of_users`."""
    if not isinstance(table, UserTable):
        reject_table(table, "a mean of users")
    if table.user is None:
        raise ParameterError("user must be the user id column for a mean of users.")
    table.require_numbers(columns, "columns", also=["BOOLEAN"])
    numbers = FeatureEncoding(tuple(NumberColumn(name) for name in columns)).numbers
    return mean_of_users.query(TableRecords(table, tuple(numbers)), **options)
