"""Features computed from table columns, by public rules that the model contains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from dpgrain._progress import Progress
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.inputs.long_labels import stated_label
from dpgrain.learn.rows import ArrayRows
from dpgrain.publishing import Charge
from dpgrain.publishing.charge import Curator
from dpgrain.publishing.facts import Fact
from dpgrain.tables.engines.protocol import Form
from dpgrain.tables.sources.column_types import BOOLEAN
from dpgrain.tables.table import UserTable


@dataclass(frozen=True)
class NumberColumn:
    """Numeric column as one feature, 0 if not finite; ``bounds`` scale it to [0, 1]."""

    column: str
    bounds: tuple[float, float] | None = None

    @property
    def names(self) -> list[str]:
        """Name of the feature."""
        return [self.column]

    @property
    def steps(self) -> list[str]:
        """Description of the column's change when the feature increases by 1."""
        if self.bounds is None:
            return ["1"]
        low, high = self.bounds
        return [f"{high - low:,.6g}, from {low:,.6g} to {high:,.6g}"]

    form: ClassVar[Form] = "number"

    def values(self, column: pa.ChunkedArray) -> list[FloatArray]:
        """Return the feature."""
        result = _floats(column)
        if self.bounds is None:
            return [result]
        low, high = self.bounds
        finite = np.isfinite(result)
        return [np.where(finite, (np.clip(result, low, high) - low) / (high - low), 0.0)]

    @property
    def fact(self) -> Fact | None:
        """The public fact about the column; None if it is used unchanged."""
        if self.bounds is None:
            return None
        return Fact("scaled-feature", (self.column, *self.bounds))


@dataclass(frozen=True)
class CategoryColumn:
    """Text column as one 0/1 feature per public level; other values are 0 in all."""

    column: str
    levels: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """Names of the features."""
        return [f"{self.column}={level}" for level in self.levels]

    @property
    def steps(self) -> list[str]:
        """Descriptions of the column's change when a feature increases by 1."""
        return ["from no to yes"] * len(self.levels)

    form: ClassVar[Form] = "text"

    def values(self, column: pa.ChunkedArray) -> list[FloatArray]:
        """Return the features."""
        levels = pd.Index(list(map(stated_label, self.levels)))
        codes = levels.get_indexer(pd.Index(column.to_pandas()))
        return [(codes == code).astype(np.float64) for code in range(len(self.levels))]

    @property
    def fact(self) -> Fact:
        """The public fact about the column."""
        return Fact("levels", (self.column, ", ".join(self.levels)))


@dataclass(frozen=True)
class FeatureEncoding:
    """Rule from columns to features."""

    columns: tuple[NumberColumn | CategoryColumn, ...]

    def __post_init__(self) -> None:
        if not self.columns:
            raise ParameterError(
                "features must be one or more columns; list the columns that the model may use."
            )
        for column in self.columns:
            if isinstance(column, NumberColumn) and column.bounds is not None:
                low, high = column.bounds
                if not (np.isfinite([low, high]).all() and low < high):
                    raise ParameterError(
                        f"the range of {column.column!r} must be two finite numbers in increasing "
                        f"order, not {low:g} and {high:g}."
                    )
            elif isinstance(column, CategoryColumn) and not all((column.levels, *column.levels)):
                raise ParameterError(
                    f"the levels of {column.column!r} must be one or more names, without empty "
                    "ones."
                )
        names = self.names
        twice = [name for place, name in enumerate(names) if name in names[:place]]
        if twice:
            raise ParameterError(f"the feature {twice[0]!r} is listed twice; remove one of them.")

    @property
    def names(self) -> list[str]:
        """Names of the features."""
        return [name for column in self.columns for name in column.names]

    @property
    def steps(self) -> list[str]:
        """Descriptions of the columns' changes when each feature increases by 1."""
        return [step for column in self.columns for step in column.steps]

    @property
    def numbers(self) -> list[str]:
        """Columns that must be numeric."""
        return [column.column for column in self.columns if isinstance(column, NumberColumn)]

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The public facts of the encoding."""
        return tuple(column.fact for column in self.columns if column.fact is not None)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the encoding as plain JSON values."""
        return [
            {"column": column.column, "levels": list(column.levels)}
            if isinstance(column, CategoryColumn)
            else {"column": column.column, "range": column.bounds and list(column.bounds)}
            for column in self.columns
        ]

    @staticmethod
    def from_dict(values: Sequence[dict[str, Any]]) -> FeatureEncoding:
        """Return the encoding described by :meth:`to_dict`."""
        columns: list[NumberColumn | CategoryColumn] = []
        for value in values:
            if "levels" in value:
                columns.append(
                    CategoryColumn(str(value["column"]), tuple(map(str, value["levels"])))
                )
            else:
                bounds = value["range"]
                ends = None if bounds is None else (float(bounds[0]), float(bounds[1]))
                columns.append(NumberColumn(str(value["column"]), ends))
        return FeatureEncoding(tuple(columns))


def load_rows(
    table: UserTable,
    encoding: FeatureEncoding,
    right: Charge | Curator,
    *,
    target: str | None = None,
    labels: bool = False,
    element: str | None = None,
    keep: Sequence[str] = (),
    named: bool = False,  # users as population indices, not numbered by appearance
) -> ArrayRows:
    """Read the columns of a model, including the user column if there is one."""
    forms = required_columns(table, encoding, target, labels, element, keep)
    with right.open(table) as engine, Progress(1) as progress:
        progress.stage("Reading rows of features")
        rows = engine.columns(forms)
    roles = ColumnRoles(
        encoding,
        target=target is not None,
        labels=labels,
        users=table.user is not None,
        elements=element is not None,
        keep=tuple(keep),
        named=named,
    )
    return roles.split(rows)


@dataclass(frozen=True)
class ColumnRoles:
    """Roles of the columns of :func:`required_columns`."""

    encoding: FeatureEncoding
    target: bool = True
    labels: bool = False
    users: bool = False
    elements: bool = False
    keep: tuple[str, ...] = ()
    named: bool = False

    def split(self, rows: pa.Table) -> ArrayRows:
        """Split rows by the roles of their columns."""
        columns = iter(rows.columns)
        features = [
            value for column in self.encoding.columns for value in column.values(next(columns))
        ]
        result = next(columns) if self.target else None
        users = next(columns) if self.users else None
        cells = next(columns) if self.elements else None
        return ArrayRows(
            pd.DataFrame(dict(zip(self.encoding.names, features, strict=True))),
            None if result is None else _objects(result) if self.labels else _floats(result),
            None if users is None else _user_labels(users, self.named),
            None if cells is None else _objects(cells),
            pa.table(dict(zip(self.keep, columns, strict=True))),
        )


def required_columns(
    table: UserTable,
    encoding: FeatureEncoding,
    target: str | None,
    labels: bool,
    element: str | None,
    keep: Sequence[str] = (),
) -> list[tuple[str, Form]]:
    """Return the columns to read with their forms, from the schema only."""
    table.require_numbers(
        encoding.numbers,
        "feature",
        also=["BOOLEAN"],
        instead="or name its values, in categories= or --categories",
    )
    for column in encoding.columns:
        if isinstance(column, CategoryColumn):
            table.require_key(column.column, "category")
    forms: list[tuple[str, Form]] = [(column.column, column.form) for column in encoding.columns]
    if target is not None:
        forms.append((target, _target_form(table, target, labels)))
    if table.user is not None:
        forms.append((table.user, "key"))
    if element is not None:
        table.require_key(element, "element")
        forms.append((element, "key"))
    for name in keep:
        table.require(name, "keep")
        forms.append((name, "as it is"))
    return forms


def _user_labels(column: pa.ChunkedArray, named: bool) -> NDArray[Any]:
    if named:
        return _objects(column)
    # Strings in one chunk can exceed Arrow's offsets; dictionary codes cannot.
    return _floats(column.dictionary_encode().combine_chunks().indices)


def _objects(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return labels; a null does not convert integers to floats."""
    values: NDArray[Any] = column.to_pandas(integer_object_nulls=True).to_numpy()
    return values


def _target_form(table: UserTable, target: str, labels: bool) -> Form:
    """Return the form in which to read targets: labels, numbers or booleans."""
    if labels:
        table.require_key(target, "target")
        # Keys would be text.
        return "as it is" if table.schema[target] == BOOLEAN else "key"
    table.require_numbers([target], "target", also=["BOOLEAN"])
    return "number"


def _floats(column: pa.ChunkedArray | pa.Array) -> FloatArray:
    """Return numbers unchanged, with NaN for null."""
    floats: FloatArray = (
        column.cast(pa.float64())
        .fill_null(float("nan"))
        .to_numpy(**({} if isinstance(column, pa.ChunkedArray) else {"zero_copy_only": False}))
    )
    return floats
