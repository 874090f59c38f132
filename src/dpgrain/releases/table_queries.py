"""Fits and per-user means of columns of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpgrain import learn
from dpgrain.errors import ParameterError
from dpgrain.learn.column_rows import ColumnRows
from dpgrain.learn.estimator_names import ESTIMATORS
from dpgrain.learn.features import CategoryColumn, FeatureEncoding, NumberColumn
from dpgrain.means.distributed_mean import TableRecords
from dpgrain.means.user_mean import MeanOfUsers, mean_of_users
from dpgrain.publishing import Query, publishes
from dpgrain.releases.keys import naming
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


def column_encoding(
    features: Sequence[str],
    categories: Mapping[str, Sequence[str]],
    ranges: Mapping[str, Sequence[float]],
) -> FeatureEncoding:
    """Return the encoding of columns as features."""
    ends: dict[str, Any] = {name: tuple(pair) for name, pair in ranges.items()}
    return FeatureEncoding(
        (
            *(NumberColumn(name, ends.get(name)) for name in features),
            *(CategoryColumn(name, tuple(levels)) for name, levels in categories.items()),
        )
    )


@publishes
def fit_columns(
    table: UserTable,
    model: str,
    target: str,
    features: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
    range: Mapping[str, tuple[float, float]] | None = None,  # noqa: A002 - the key of release files
    element: str | None = None,
    **options: Any,
) -> Query[learn.LinearModel]:
    """Fit a model, such as ``"logistic"``, to columns of a table."""
    if options.get("classes"):
        kind = table.schema.get(target)
        options["classes"] = column_labels(options["classes"], kind)
    if element is not None and not isinstance(element, str):
        raise ParameterError(
            "element must be a column in [budget] if a file fits models; create one from a "
            "mapping with [table.cells]."
        )
    estimator: learn.LinearModel = getattr(learn, ESTIMATORS[model])(**options)
    numbers, levels, ranges = features or (), categories or {}, range or {}
    for name, pair in ranges.items():
        with naming("range"):
            column_encoding([name], {}, {name: pair})
    for name, names in levels.items():
        with naming("categories"):
            column_encoding((), {name: names}, {})
    for name in ranges:
        if name not in numbers:
            raise ParameterError(f"range {name!r} must be a column of features.", name="range")
    encoding = column_encoding(numbers, levels, ranges)
    return estimator.query(ColumnRows(table, encoding, target, element), None)


@publishes
def mean_of_columns(table: UserTable, columns: Sequence[str], **options: Any) -> Query[MeanOfUsers]:
    """Publish the per-user mean of some columns of a table; see :func:`dpgrain.mean_of_users`.

    Args:
        table: table from :func:`dpgrain.read`.
        columns: columns of the vectors, such as a,b,c, one per coordinate.
        options: other parameters of :func:`dpgrain.mean_of_users`.
    """
    if not isinstance(table, UserTable):
        reject_table(table, "a mean of users")
    if table.user is None:
        raise ParameterError("user must be the user id column for a mean of users.")
    table.require_numbers(columns, "columns", also=["BOOLEAN"])
    numbers = column_encoding(columns, {}, {}).numbers
    return mean_of_users.query(TableRecords(table, tuple(numbers)), **options)
