"""Fits and per-user means of columns of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dpgrain.errors import ParameterError
from dpgrain.inputs.blocks import LabelledRows
from dpgrain.learn.distributed import ClusterRows
from dpgrain.learn.features import (
    FeatureEncoding,
    FeatureRows,
    NumberColumn,
    empty_rows,
    load_rows,
    required_columns,
)
from dpgrain.learn.model import LinearModel
from dpgrain.learn.raw_inputs import LoadedInputs, RawInputs
from dpgrain.means.distributed import ClusterRecords
from dpgrain.means.protocol import Vectors
from dpgrain.means.records import LocalRecords, Records
from dpgrain.means.user_mean import MeanOfUsers, mean_of_users
from dpgrain.noise import RandomState
from dpgrain.publishing import Charge, Planned, Promise, Query, publishes
from dpgrain.publishing.array_origin import ArrayOrigin, array_origin
from dpgrain.scope.partitions import Partition
from dpgrain.tables.blocks import partition_rule
from dpgrain.tables.engines.per_user import (
    derivation_facts,
    require_whole_users,
)
from dpgrain.tables.shared_table import reject_table
from dpgrain.tables.sources.column_types import BOOLEAN
from dpgrain.tables.table import UserTable
from dpgrain.units import Unit


def column_labels(labels: Sequence[Any], kind: str | None) -> list[Any]:
    """Return the labels of a column: booleans are ``true`` and ``false``, in any case."""
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
    """Fit a model to columns of a table, and add the columns to the public facts of its guarantee."""
    if not isinstance(table, UserTable):
        reject_table(table, "a fit")
    # Validate parameters before reading a long table.
    require_whole_users(table, model.config().promise.unit)
    model.forget()
    rows: ClusterRows | TableInputs
    if table.distributed:
        rows, users = ClusterRows(table, encoding, target, element), table.user
        rows.column_forms(labels=hasattr(model, "classes"))
    else:
        rows, users = TableInputs.of(model, table, encoding, target, element), None
    with array_origin(_origin(table, element)):
        fit = model.query(rows, None, users=users)
    return ColumnsQuery(fit, table, encoding, target, element)


@dataclass(frozen=True, repr=False, eq=False)
class ColumnsQuery(Query[LinearModel]):
    """The query for a fit to columns of a table."""

    fit: Query[LinearModel]
    table: UserTable
    encoding: FeatureEncoding
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
        return replace(self, fit=self.fit.with_promise(promise))

    @property
    def plan(self) -> Planned:
        """The plan of the fit."""
        with array_origin(_origin(self.table, self.element)):
            return self.fit.plan

    def run(self, charge: Charge) -> LinearModel:
        """Fit the model, and add the columns to its guarantee."""
        model = self.fit.run(charge)
        return _with_columns(model, self.encoding, self.target)


@dataclass(frozen=True, eq=False)
class TableInputs(RawInputs):
    """Rows of a fit in a table."""

    table: UserTable
    encoding: FeatureEncoding
    form: FeatureRows
    target: str
    labels: bool
    element: str | None
    named: bool

    @staticmethod
    def of(
        model: LinearModel,
        table: UserTable,
        encoding: FeatureEncoding,
        target: str,
        element: str | None,
    ) -> TableInputs:
        """Validate the columns with the schema of the table; nothing is read."""
        labels, named = hasattr(model, "classes"), model.trust == "pan"
        form = empty_rows(table, encoding, target=target, labels=labels, element=element)
        return TableInputs(table, encoding, form, target, labels, element, named)

    @property
    def users(self) -> Any:
        """Empty user ids with the name of their column, which the guarantee states."""
        return self._users(self.form)

    @property
    def elements(self) -> Any:
        """Empty cells with the name of their column."""
        return self._elements(self.form)

    def none(self, width: int | None) -> tuple[Any, Any]:  # noqa: ARG002 - the encoding has it
        """Return features and targets without rows."""
        return self.form.features, self.form.target

    def check(self, unit: Unit, *, places: bool) -> None:
        """Raise ParameterError for unused or missing elements."""
        LabelledRows.of(0, self.users, self.elements, unit, places=places)

    def read(self, charge: Charge) -> LoadedInputs:
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
            # An empty table is a valid neighbour: use one row without a user instead.
            no_user = np.array([np.nan])
            rows = FeatureRows(
                rows.features.reindex([0]),
                no_user,
                None if rows.users is None else no_user,
                None if rows.elements is None else np.array([None], dtype=object),
                rows.kept,
            )
        return LoadedInputs(rows.features, rows.target, self._users(rows), self._elements(rows))

    def _users(self, rows: FeatureRows) -> Any:
        return None if rows.users is None else pd.Series(rows.users, name=self.table.user)

    def _elements(self, rows: FeatureRows) -> Any:
        return None if rows.elements is None else pd.Series(rows.elements, name=self.element)


def _origin(table: UserTable, element: str | None = None) -> ArrayOrigin:
    """Return the public facts about the rows of a table, with the partition into elements."""
    cells = None if element is None else Partition((partition_rule(element, None, table),))
    return ArrayOrigin(table.scope, cells, table.provenance, tuple(derivation_facts(table)))


def _with_columns(model: LinearModel, encoding: FeatureEncoding, target: str) -> LinearModel:
    """Return a fitted model with its columns in the public facts of the guarantee."""
    result = model.guarantee_
    public = (*result.public, *encoding.facts)
    return model.set_columns(encoding, target, replace(result, public=public))


@publishes
def mean_of_columns(table: UserTable, columns: Sequence[str], **options: Any) -> Query[MeanOfUsers]:
    """Publish the per-user mean of some columns of a table; see :func:`dpgrain.mean_of_users`."""
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
        return _origin(self.table)

    @contextmanager
    def user_vectors(
        self, charge: Charge, bound: float
    ) -> Iterator[tuple[Vectors, Callable[[], int]]]:
        """Read the rows, and compute users' vectors."""
        rows = load_rows(self.table, self.encoding, charge)
        with LocalRecords.from_arrays(rows.features.to_numpy(), rows.users).user_vectors(
            charge, bound
        ) as kept:
            yield kept
