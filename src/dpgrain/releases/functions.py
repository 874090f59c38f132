"""Publishing functions of release files: their names, keys and queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgrain._lazy_import import lazy_import
from dpgrain.errors import ParameterError
from dpgrain.learn.estimator_names import ESTIMATORS
from dpgrain.publishing.parameters import Parameter, parameters_of
from dpgrain.releases.keys import keys_of, naming
from dpgrain.statistics import OFFERED
from dpgrain.units import Record, Unit, User

if TYPE_CHECKING:
    from dpgrain.publishing import Query
    from dpgrain.releases import table_queries
    from dpgrain.tables import public_lists
    from dpgrain.tables.table import UserTable
else:
    public_lists = lazy_import("dpgrain.tables.public_lists")
    table_queries = lazy_import("dpgrain.releases.table_queries")

_COLUMNS = "dpgrain.releases.table_queries"
#: Functions and classes whose parameters are the keys, by the key for the name and the name.
FUNCTIONS: Mapping[str, Mapping[str, Sequence[tuple[str, str]]]] = {
    "statistic": {
        **{name: [(module, name)] for name, module in OFFERED.items()},
        "mean_of_users": [
            (_COLUMNS, "mean_of_columns"),
            ("dpgrain.means.user_mean", "mean_of_users"),
        ],
    },
    "fit": {
        name: [(_COLUMNS, "fit_columns"), ("dpgrain.learn.estimators", estimator)]
        for name, estimator in ESTIMATORS.items()
    },
}
# Set elsewhere in the file, by the run, or by the table.
_ELSEWHERE = (
    *("table", "unit", "relation", "epsilon", "delta", "share", "random_state", "progress"),
    *("X", "users", "n_users", "dimension", "n_features", "verbose", "element", "model"),
)


@cache
def keys_of_function(word: str, name: str) -> Mapping[str, Parameter]:
    """Return the keys of a statistic or a fit."""
    listed = [one for home in FUNCTIONS[word][name] for one in parameters_of(*home).values()]
    return keys_of(listed, without=_ELSEWHERE)


def endings(word: str, name: str) -> tuple[str, ...]:
    """Return the file extensions of the output of a statistic or a fit."""
    if word == "fit":
        return (".json",)
    return (
        (".json", ".csv", ".parquet") if name == "mean_of_users" else (".parquet", ".csv", ".json")
    )


def query_of(
    word: str,
    name: str,
    table: UserTable,
    own: Mapping[str, Any],
    folder: Path,
    *,
    unit: Unit,
    **promise: Any,
) -> Query[Any]:
    """Return the query of a statistic or a fit; only files of domains in ``folder`` are read."""
    if word == "fit":
        # The partition is a column, which is a separate argument of fits.
        plain = unit if isinstance(unit, Record) else replace(unit, by=None)
        options = {"unit": plain, "n_users": table.n_users, **promise}
        element = getattr(unit, "by", None)
        return table_queries.fit_columns.query(table, name, **own, element=element, **options)
    if name == "mean_of_users":
        if unit != User():
            raise ParameterError(
                "statistic = 'mean_of_users' requires unit = 'user' in [budget]: each user has one "
                "vector."
            )
        return table_queries.mean_of_columns.query(table, **own, n_users=table.n_users, **promise)
    if "domain" in own:
        with naming("domain"):
            own = {**own, "domain": _domain(own, folder, table)}
    made: Query[Any] = getattr(import_module(OFFERED[name]), name).query(
        table, **own, unit=unit, progress=False, **promise
    )
    return made


def check_arguments(
    word: str, table: UserTable, own: Mapping[str, Any], folder: Path, unit: Unit
) -> dict[str, Any]:
    """Return the arguments of :meth:`~dpgrain.UserTable.check` for the columns of a release."""
    items, values = _listed(own, "by", "item"), _listed(own, "value", "other")
    known = {name: own[name] for name in ("weight", "bounds") if name in own}
    if "domain" in own:
        known["domain"] = _domain(own, folder, table)
    if "edges" in own and "item" in own:
        items, values = [], items
    if word == "fit":
        known = {"zero": _listed(own, "features")}
        items, values = ([own["target"]], []) if "classes" in own else ([], [own["target"]])
        if items:
            labels = table_queries.column_labels(own["classes"], table.schema[own["target"]])
            known["domain"] = {own["target"]: labels}
    elif "columns" in own:
        known["zero"] = _listed(own, "columns")
    element = getattr(unit, "by", None)
    if not (items or values) and isinstance(element, str):
        items = [element]
    return {"item": items, "value": values, **known}


def _listed(own: Mapping[str, Any], *names: str) -> list[str]:
    """Return the columns of some keys: each is missing, one column or a list of them."""
    stated = [own.get(name, ()) for name in names]
    return [column for value in stated for column in ([value] if isinstance(value, str) else value)]


def _domain(own: Mapping[str, Any], folder: Path, table: UserTable) -> Any:
    """Return the public domain of a release, from lists or files."""
    keys = own.get("by", own.get("item", ()))
    listed = [keys] if isinstance(keys, str) else list(keys)
    return public_lists.read_domain(own["domain"], listed, table, folder)
