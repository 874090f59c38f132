"""Fits and per-user means of columns of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dpgrain.errors import ParameterError
from dpgrain.learn.features import FeatureEncoding, NumberColumn, load_rows, required_columns
from dpgrain.learn.model import LinearModel
from dpgrain.learn.table_rows import TableRows, table_origin
from dpgrain.means.distributed import ClusterRecords
from dpgrain.means.protocol import Vectors
from dpgrain.means.records import LocalRecords, Records
from dpgrain.means.user_mean import MeanOfUsers, mean_of_users
from dpgrain.publishing import Charge, Query, publishes
from dpgrain.publishing.array_origin import ArrayOrigin
from dpgrain.tables.engines.per_user import require_whole_users
from dpgrain.tables.shared_table import reject_table
from dpgrain.tables.sources.column_types import BOOLEAN
from dpgrain.tables.table import UserTable


def column_labels(labels: Sequence[Any], kind: str | None) -> list[Any]:
    """Return the labels of a column: booleans are ``true`` and ``false``, in any case.

    Raises:
        ParameterError: if a label of a boolean column is not a boolean.
    """
    if kind != BOOLEAN:
        return list(labels)
    named = [str(label).lower() for label in labels]
    if other := [name for name in named if name not in ("false", "true")]:
        raise ParameterError(
            f"classes must be false and true for a boolean column, not {other[0]!r}.",
            name="classes",
        )
    return named


@publishes
def fit_columns(
    model: LinearModel,
    table: UserTable,
    encoding: FeatureEncoding,
    target: str,
    element: str | None = None,
) -> Query[LinearModel]:
    """Fit a model to columns of a table, and add the columns to the public facts of its guarantee.

    Raises:
        ParameterError: if a parameter is out of range.
        SchemaError: if a column is missing, or has an unsuitable type.
        DataError: if the source cannot be read.
    """
    if not isinstance(table, UserTable):
        reject_table(table, "a fit")
    # Validate parameters before reading a long table.
    require_whole_users(table, model.config().promise.unit)
    return model.query(TableRows(table, encoding, target, element), None)


@publishes
def mean_of_columns(table: UserTable, columns: Sequence[str], **options: Any) -> Query[MeanOfUsers]:
    """Publish the per-user mean of some columns of a table; see :func:`dpgrain.mean_of_users`.

    Raises:
        ParameterError: if a parameter is out of range, or the table has no user column.
        SchemaError: if a column is missing, or has an unsuitable type.
        DataError: if the source cannot be read.
    """
    if not isinstance(table, UserTable):
        reject_table(table, "a mean of users")
    if table.user is None:
        raise ParameterError("user must be the user id column for a mean of users.")
    table.require_numbers(columns, "columns", also=["BOOLEAN"])
    encoding = FeatureEncoding(tuple(NumberColumn(name) for name in columns))
    if table.distributed:
        return mean_of_users.query(ClusterRecords(table, tuple(encoding.numbers)), **options)
    required_columns(table, encoding, None, labels=False, element=None)
    return mean_of_users.query(TableRecords(table, encoding), **options)


@dataclass(frozen=True, eq=False)
class TableRecords(Records):
    """Records of users in the rows of a table with a user column."""

    table: UserTable
    encoding: FeatureEncoding

    @property
    def dimension(self) -> int:
        """The number of columns."""
        return len(self.encoding.names)

    @property
    def labels(self) -> Any:
        """An empty user id with the name of its column."""
        return pd.Series([None], name=self.table.user, dtype=object)

    @property
    def origin(self) -> ArrayOrigin:
        """The public facts of the rows."""
        return table_origin(self.table)

    @contextmanager
    def user_vectors(
        self, charge: Charge, bound: float
    ) -> Iterator[tuple[Vectors, Callable[[], int]]]:
        """Read the rows, and compute users' vectors."""
        rows = load_rows(self.table, self.encoding, charge)
        with LocalRecords.from_arrays(rows.X.to_numpy(), rows.users).user_vectors(
            charge, bound
        ) as kept:
            yield kept
