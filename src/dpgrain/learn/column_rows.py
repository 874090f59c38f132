"""Rows of a fit in columns of a table, in this process or on a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dpgrain.errors import ParameterError
from dpgrain.inputs.array_blocks import LabelledRows
from dpgrain.learn.features import (
    ColumnRoles,
    FeatureEncoding,
    NumberColumn,
    load_rows,
    required_columns,
)
from dpgrain.learn.rows import ArrayRows, FitRows
from dpgrain.publishing import Charge
from dpgrain.publishing.origins import ArrayOrigin
from dpgrain.scope.partitions import Partition
from dpgrain.tables.blocks import partition_rule
from dpgrain.tables.engines.per_user import derivation_facts, require_whole_users
from dpgrain.tables.engines.protocol import Form
from dpgrain.tables.shared_table import reject_table
from dpgrain.tables.sources.column_types import BOOLEAN
from dpgrain.tables.table import UserTable, read
from dpgrain.units import Unit


@dataclass(frozen=True, eq=False)
class ColumnRows(FitRows):
    """Columns of a table with features, targets and cells; nothing is read."""

    table: UserTable
    encoding: FeatureEncoding
    target: str
    element: str | None = None  # the column of cells
    frame: bool = False  # a caller's Spark frame, with columns that are not part of the model

    def __post_init__(self) -> None:
        if not isinstance(self.table, UserTable):
            reject_table(self.table, "a fit")

    @staticmethod
    def from_frame(X: Any, y: Any, users: Any, elements: Any) -> ColumnRows:
        """Return the rows of a Spark frame; columns not named by an argument are features."""
        named = {"y": y, "users": users, "elements": elements}
        for name, column in named.items():
            if (name == "y" or column is not None) and not isinstance(column, str):
                raise ParameterError(
                    f"{name} must be a column name if X is a Spark DataFrame, not "
                    f"{type(column).__name__}.",
                    name=name,
                )
        table = read(X, user=users, rows="as given")
        features = [NumberColumn(name) for name in table.schema if name not in named.values()]
        return ColumnRows(table, FeatureEncoding(tuple(features)), y, elements, frame=True)

    @property
    def distributed(self) -> bool:  # type: ignore[override]
        """True if the rows remain on a cluster."""
        return self.table.distributed

    @property
    def users(self) -> Any:
        """Empty user ids with the name of their column; None without such a column."""
        return None if self.table.user is None else pd.Series(np.zeros(0), name=self.table.user)

    @property
    def elements(self) -> Any:
        """Empty cells with the name of their column; None without such a column."""
        return None if self.element is None else pd.Series([], name=self.element, dtype=object)

    @property
    def origin(self) -> ArrayOrigin | None:
        """Public facts about the rows of a table, with the partition into elements."""
        if self.frame:
            return None
        table, element = self.table, self.element
        cells = None if element is None else Partition((partition_rule(element, None, table),))
        return ArrayOrigin(table.scope, cells, table.provenance, tuple(derivation_facts(table)))

    @property
    def columns(self) -> tuple[FeatureEncoding, str] | None:
        """Rule from columns to features, and the target, which a model stores."""
        return None if self.frame else (self.encoding, self.target)

    def empty(self, width: int | None, *, labels: bool) -> tuple[Any, Any]:  # noqa: ARG002 - the encoding has it
        """Return features and targets of no rows, after checking the schema."""
        self.column_forms(labels=labels)
        boolean = self.table.schema.get(self.target) == BOOLEAN
        kind: Any = np.float64 if not labels else np.bool_ if boolean else object
        features = pd.DataFrame(dict.fromkeys(self.encoding.names, np.zeros(0)))
        return features, np.zeros(0, dtype=kind)

    def check(self, unit: Unit, *, places: bool = False) -> None:
        """Reject unused or missing elements, and parts of users in rows of whole users."""
        require_whole_users(self.table, unit)
        LabelledRows.create(0, self.users, self.elements, unit, places=places)

    def read(self, charge: Charge, *, labels: bool, named: bool = False) -> ArrayRows:
        """Read the columns."""
        rows = load_rows(
            self.table,
            self.encoding,
            charge,
            target=self.target,
            labels=labels,
            element=self.element,
            named=named,
        )
        X, y, users, elements = rows.X, rows.y, rows.users, rows.elements
        if not len(X):
            # An empty table is a valid neighbour: use one row without a user instead.
            X, y = X.reindex([0]), np.array([np.nan])
            users = None if users is None else y
            elements = None if elements is None else np.array([None], dtype=object)
        users = None if users is None else pd.Series(users, name=self.table.user)
        elements = None if elements is None else pd.Series(elements, name=self.element)
        return ArrayRows(X, y, users, elements)

    # -- on a cluster --

    def column_forms(self, *, labels: bool) -> list[tuple[str, Form]]:
        """Return the columns to read and their forms, after checking the schema."""
        return required_columns(self.table, self.encoding, self.target, labels, self.element)

    def roles(self, *, labels: bool) -> ColumnRoles:
        """Return the roles of the columns of :meth:`column_forms`."""
        return ColumnRoles(
            self.encoding,
            labels=labels,
            users=self.table.user is not None,
            elements=self.element is not None,
        )
