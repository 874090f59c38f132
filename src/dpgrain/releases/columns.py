"""Fits and means of users whose numbers are columns of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dpgrain.arrays.blocks import Unread
from dpgrain.errors import ParameterError
from dpgrain.learn.distributed import RowsThere
from dpgrain.learn.features import (
    Encoding,
    Loaded,
    Number,
    columns_for,
    load_rows,
    no_rows,
)
from dpgrain.learn.given import Given, Read
from dpgrain.learn.model import LinearModel
from dpgrain.means.distributed import RecordsThere
from dpgrain.means.of_users import MeanOfUsers, mean_of_users
from dpgrain.means.protocol import Vectors
from dpgrain.means.records import Records, RecordsHere
from dpgrain.noise import RandomState
from dpgrain.publishing import Charge, Planned, Promise, Query, publishes
from dpgrain.publishing.scope import Origin, arrays_of
from dpgrain.scope.partitions import Partition
from dpgrain.tables.blocks import partition_rule
from dpgrain.tables.engines.people import (
    facts_of_rows,
    require_whole_users,
)
from dpgrain.tables.shared_table import reject_table
from dpgrain.tables.sources.column_types import BOOLEAN
from dpgrain.tables.table import UserTable
from dpgrain.units import Unit


def labels_named(labels: Sequence[Any], kind: str | None) -> list[Any]:
    """Return labels as a table's column has them: its truths are named ``true`` and ``false``.

    Args:
        labels: the labels as they are stated: truths, or their names in any letters.
        kind: the type of the column; None where the table lacks it.

    Raises:
        ParameterError: if a label of truths is none of them: no row would have it.
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
    encoding: Encoding,
    target: str,
    element: str | None = None,
) -> Query[LinearModel]:
    """Fit a model to columns of a table, and say in its promise which columns these are.

    Args:
        model: the estimator, with its parameters.
        table: the table.
        encoding: the rule by which columns become features.
        target: the column to predict.
        element: the column of cells; None where there are none.

    Raises:
        ParameterError: if a parameter is out of range.
        SchemaError: if a column is missing, or has a type that cannot be used.
        DataError: if the source cannot be read.

    The promise of a fit does not depend on rows, which are read after the charge.
    """
    if not isinstance(table, UserTable):
        reject_table(table, "a fit")
    # Parameters are checked before a long table is read.
    require_whole_users(table, model.asked().promise.unit)
    model.forget()
    rows: RowsThere | OfTable
    if table.distributed:
        rows, users = RowsThere(table, encoding, target, element), table.user
        rows.wanted(labels=hasattr(model, "classes"))
    else:
        rows, users = OfTable.of(model, table, encoding, target, element), None
    with arrays_of(_origin(table, element)):
        fit = model.query(rows, None, users=users)
    return ColumnsQuery(fit, table, encoding, target, element)


@dataclass(frozen=True, repr=False, eq=False)
class ColumnsQuery(Query[LinearModel]):
    """A fit to columns of a table that is asked for.

    Args:
        fit: the fit to their rows.
        table: the table.
        encoding: the rule by which columns become features.
        target: the column to predict.
        element: the column of cells; None where there are none.
    """

    fit: Query[LinearModel]
    table: UserTable
    encoding: Encoding
    target: str
    element: str | None

    @property
    def promise(self) -> Promise:
        """The promise of the fit."""
        return self.fit.promise

    @property
    def random_state(self) -> RandomState:
        """The seed of the fit."""
        return self.fit.random_state

    def _with(self, promise: Promise) -> ColumnsQuery:
        return replace(self, fit=self.fit.keeping(promise))

    @property
    def plan(self) -> Planned:
        """The plan of the fit."""
        with arrays_of(_origin(self.table, self.element)):
            return self.fit.plan

    def run(self, charge: Charge) -> LinearModel:
        """Fit, and say in the promise which columns it is of."""
        model = self.fit.run(charge)
        return _told(model, self.encoding, self.target)


@dataclass(frozen=True, eq=False)
class OfTable(Given):
    """Rows of a fit that lie in a table; made by :meth:`of`.

    Args:
        table: the table.
        encoding: the rule by which columns become features.
        form: what they are where there are none.
        target: the column to predict.
        labels: whether targets are labels.
        element: the column of cells; None where there are none.
        named: whether users are places in a roster, by which they are named.
    """

    table: UserTable
    encoding: Encoding
    form: Loaded
    target: str
    labels: bool
    element: str | None
    named: bool

    @staticmethod
    def of(
        model: LinearModel,
        table: UserTable,
        encoding: Encoding,
        target: str,
        element: str | None,
    ) -> OfTable:
        """Check the columns by the schema of the table; nothing is read.

        Args:
            model: the model that is fitted.
            table: the table.
            encoding: the rule by which columns become features.
            target: the column to predict.
            element: the column of cells.

        Raises:
            SchemaError: if a column is missing, or has a type that cannot be used.
        """
        labels, named = hasattr(model, "classes"), model.trust == "pan"
        form = no_rows(table, encoding, target=target, labels=labels, element=element)
        return OfTable(table, encoding, form, target, labels, element, named)

    @property
    def users(self) -> Any:
        """No labels, named like the column of users, so that the promise says where they come from."""
        return self._users(self.form)

    @property
    def elements(self) -> Any:
        """No cells, named like their column."""
        return self._elements(self.form)

    def none(self, width: int | None) -> tuple[Any, Any]:  # noqa: ARG002 - the encoding says it
        """Return features and targets of none of the rows."""
        return self.form.features, self.form.target

    def check(self, unit: Unit, *, places: bool) -> None:
        """Refuse elements that are not used, or lack."""
        Unread.of(0, self.users, self.elements, unit, places=places)

    def read(self, charge: Charge) -> Read:
        """Read the columns."""
        rows = load_rows(
            self.table,
            self.encoding,
            charge,
            target=self.target,
            labels=self.labels,
            element=self.element,
            named=self.named,
        )
        if not len(rows.features):
            # An empty table is a neighbour like any other, so a row of nobody stands in for it.
            nobody = np.array([np.nan])
            rows = Loaded(
                rows.features.reindex([0]),
                nobody,
                None if rows.users is None else nobody,
                None if rows.elements is None else np.array([None], dtype=object),
                rows.kept,
            )
        return Read(rows.features, rows.target, self._users(rows), self._elements(rows))

    def _users(self, rows: Loaded) -> Any:
        return None if rows.users is None else pd.Series(rows.users, name=self.table.user)

    def _elements(self, rows: Loaded) -> Any:
        return None if rows.elements is None else pd.Series(rows.elements, name=self.element)


def _origin(table: UserTable, element: str | None = None) -> Origin:
    """Return what is public of a table's rows, with the partition into elements as facts."""
    cells = None if element is None else Partition((partition_rule(element, None, table),))
    return Origin(table.scope, cells, table.provenance, tuple(facts_of_rows(table)))


def _told(model: LinearModel, encoding: Encoding, target: str) -> LinearModel:
    """Return a fitted model whose promise says which columns it is of."""
    result = model.guarantee_
    public = (*result.public, *encoding.facts)
    return model.of_columns(encoding, target, replace(result, public=public))


@publishes
def mean_of_columns(table: UserTable, columns: Sequence[str], **options: Any) -> Query[MeanOfUsers]:
    """Publish the mean of users' vectors, whose numbers stand in columns of a table.

    Args:
        table: the table.
        columns: the columns, one for each number of a vector.
        options: the options of :func:`dpgrain.mean_of_users`.

    Raises:
        ParameterError: if a parameter is out of range, or the table does not name its users.
        SchemaError: if a column is missing, or has a type that cannot be used.
        DataError: if the source cannot be read.
    """
    if not isinstance(table, UserTable):
        reject_table(table, "a mean of users")
    if table.user is None:
        raise ParameterError("user must be the user id column for a mean of users.")
    table.require_numbers(columns, "columns", also=["BOOLEAN"])
    encoding = Encoding(tuple(Number(name) for name in columns))
    if table.distributed:
        return mean_of_users.query(RecordsThere(table, tuple(encoding.numbers)), **options)
    columns_for(table, encoding, None, labels=False, element=None)
    return mean_of_users.query(RecordsOfColumns(table, encoding), **options)


@dataclass(frozen=True, eq=False)
class RecordsOfColumns(Records):
    """Records of users that are rows of a table.

    Args:
        table: the table, whose users are known.
        encoding: the columns of numbers.
    """

    table: UserTable
    encoding: Encoding

    @property
    def dimension(self) -> int:
        """The number of columns."""
        return len(self.encoding.names)

    @property
    def labels(self) -> Any:
        """The label of nobody, named like the column of users."""
        return pd.Series([None], name=self.table.user, dtype=object)

    @property
    def origin(self) -> Origin:
        """The public facts of the rows."""
        return _origin(self.table)

    @contextmanager
    def kept(self, charge: Charge, bound: float) -> Iterator[tuple[Vectors, Callable[[], int]]]:
        """Read the rows, and make users' vectors of them."""
        rows = load_rows(self.table, self.encoding, charge)
        with RecordsHere.of(rows.features.to_numpy(), rows.users).kept(charge, bound) as kept:
            yield kept
