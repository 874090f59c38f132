"""Fits and means of users whose numbers are columns of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dpgrain.errors import ParameterError
from dpgrain.learn.distributed import RowsThere
from dpgrain.learn.features import Encoding, Loaded, Number, columns_for, load_rows, no_rows
from dpgrain.learn.model import LinearModel
from dpgrain.means.distributed import RecordsThere
from dpgrain.means.of_users import MeanOfUsers, mean_of_users
from dpgrain.means.protocol import Vectors
from dpgrain.means.records import Records, RecordsHere
from dpgrain.partitions import Partition
from dpgrain.publishing import Charge, Query, publishes
from dpgrain.publishing.rehearsal import rehearsing
from dpgrain.publishing.scope import Origin, arrays_of
from dpgrain.tables.blocks import rule_of
from dpgrain.tables.engines.people import made_of_people, require_whole_users
from dpgrain.tables.table import UserTable


def fit_columns(
    model: LinearModel,
    table: UserTable,
    encoding: Encoding,
    target: str,
    element: str | None = None,
) -> LinearModel:
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

    In a rehearsal nothing is read: the promise of a fit does not depend on rows.
    """
    # Parameters are checked before a long table is read.
    require_whole_users(table, model.asked().promise.unit)
    if table.distributed:
        there = RowsThere(table, encoding, target, element)
        there.wanted(labels=hasattr(model, "classes"))
        with arrays_of(_origin(table, element)):
            model.fit(there, None, users=table.user)
        return _told(model, table, encoding, target)
    rows = _rows(
        table,
        encoding,
        target=target,
        labels=hasattr(model, "classes"),
        element=element,
        named=model.trust == "pan",
    )
    features, targets, users, elements = rows.features, rows.target, rows.users, rows.elements
    if not len(features):
        # An empty table is a neighbour like any other, so a row of nobody stands in for it.
        features = features.reindex([0])
        targets = np.array([np.nan])
        users = None if users is None else np.array([np.nan])
        elements = None if elements is None else np.array([None], dtype=object)
    with arrays_of(_origin(table, element)):
        # The labels are named, so that the promise says which columns they come from.
        model.fit(
            features,
            targets,
            users=None if users is None else pd.Series(users, name=table.user),
            elements=None if elements is None else pd.Series(elements, name=element),
        )
    return _told(model, table, encoding, target)


def _origin(table: UserTable, element: str | None = None) -> Origin:
    """Return what is public of a table's rows, with the partition into elements as facts."""
    cells = None if element is None else Partition((rule_of(element, None, table),))
    return Origin(table.scope, cells, table.provenance)


def _told(model: LinearModel, table: UserTable, encoding: Encoding, target: str) -> LinearModel:
    """Return a fitted model whose promise says which columns it is of."""
    found, people = model.guarantee_, made_of_people(table)
    rows_of = () if people is None else (f"a person's row is {people}",)
    public = (*found.public, *rows_of, *encoding.facts)
    return model.of_columns(encoding, target, replace(found, public=public))


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
    if table.user is None:
        raise ParameterError("user must be the column of whose a record is, for a mean of users.")
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
        rows = charge.read(lambda: load_rows(self.table, self.encoding))
        with RecordsHere.of(rows.features.to_numpy(), rows.users).kept(charge, bound) as kept:
            yield kept


def _rows(table: UserTable, encoding: Encoding, *, named: bool = False, **asked: Any) -> Loaded:
    """Read rows; in a rehearsal, none."""
    if rehearsing():
        return no_rows(table, encoding, **asked)
    return load_rows(table, encoding, named=named, **asked)
