"""The statistics and fits of release files, each with the function for its query."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dpgrain import _validate, learn, statistics
from dpgrain._lazy_import import lazy_import
from dpgrain.errors import DpgrainError, ParameterError
from dpgrain.learn.estimator_names import ESTIMATORS as FITS
from dpgrain.publishing import Query
from dpgrain.publishing.parameters import COLUMNS, REQUIRED, Parameter, parameters_of
from dpgrain.releases.keys import keys_of, wrong
from dpgrain.tables.public_lists import read_public_list
from dpgrain.tables.table import UserTable
from dpgrain.units import Record, Relation, Unit, User

if TYPE_CHECKING:
    from dpgrain.learn import features as encodings
    from dpgrain.releases import table_queries
else:
    table_queries = lazy_import("dpgrain.releases.table_queries")
    encodings = lazy_import("dpgrain.learn.features")

# Set elsewhere in the file, or by the run.
_ELSEWHERE = (
    "table",
    "unit",
    "relation",
    "epsilon",
    "delta",
    "share",
    "n_users",
    "random_state",
    "progress",
    "verbose",
    # Taken from the table.
    "X",
    "users",
    "dimension",
    "n_features",
)
_TABLES, _MODELS, _VECTORS = (
    (".parquet", ".csv", ".json"),
    (".json",),
    (".json", ".csv", ".parquet"),
)


@dataclass(frozen=True)
class Asked:
    """Parameters of one release, apart from ε and δ."""

    table: UserTable
    unit: Unit
    relation: Relation
    own: Mapping[str, Any]
    folder: Path
    random_state: Any = None

    def without(self, key: str) -> Asked:
        """Return the parameters without a key."""
        return replace(self, own={name: v for name, v in self.own.items() if name != key})


@dataclass(frozen=True)
class Kind:
    """A statistic or a fit.

    Args:
        word: the key for it: ``"statistic"`` or ``"fit"``.
        name: the name of the function, or of the fit on the command line.
        home: the module and the name of the function or class whose parameters are its keys.
        query: the function from parameters, ε and δ to the query; nothing is read.
        endings: the file extensions of its output.
        own: additional keys of release files.
    """

    word: Literal["statistic", "fit"]
    name: str
    home: tuple[str, str]
    query: Callable[[Asked, float, float], Query[Any]]
    endings: tuple[str, ...] = _TABLES
    own: tuple[Parameter, ...] = ()

    @cached_property
    def keys(self) -> dict[str, Parameter]:
        """The keys by name."""
        return keys_of([*self.own, *parameters_of(*self.home).values()], without=_ELSEWHERE)

    def column_names(self, own: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return the columns in the values, each as a pair of key and column."""
        result = []
        for key in COLUMNS:
            value = own.get(key, ())
            result += [(key, name) for name in ([value] if isinstance(value, str) else value)]
        return result

    def is_complete(self, own: Mapping[str, Any], known: Container[str]) -> bool:
        """Return True if no required key is missing, and all columns are in the table."""
        complete = all(key.name in own for key in self.keys.values() if key.required)
        return complete and all(name in known for _, name in self.column_names(own))

    def completed(
        self, own: Mapping[str, Any], known: Container[str], column: str
    ) -> dict[str, Any]:
        """Return values for further checks: unknown columns removed, missing ones filled in."""
        made = dict(own)
        for name in set(COLUMNS) & set(made):
            made[name] = _among(made[name], known)
            if not made[name]:
                del made[name]
        if any(made.get(key) != own.get(key) for key in ("by", "item")):
            # The domain is for other columns.
            made.pop("domain", None)
        for key in self.keys.values():
            if key.required and key.name not in made:
                choices: tuple[Any, ...] = (column, [column], 1.0)
                made[key.name] = next(each for each in choices if not wrong(key.hint, each))
        if self.word == "fit" and not {"features", "categories"} & set(made):
            # Ranges are of features, which may be misspelled.
            made["features"] = list(made.get("range", ())) or [column]
        return made


def _among(value: Any, known: Container[str]) -> Any:
    """Return the known columns of a value."""
    if isinstance(value, str):
        return value if value in known else ""
    if isinstance(value, dict):
        return {name: part for name, part in value.items() if name in known}
    return [name for name in value if name in known]


def _statistic(name: str) -> Kind:
    """Return the kind of a statistic of :mod:`dpgrain.statistics`."""

    def query(asked: Asked, epsilon: float, delta: float) -> Query[Any]:
        own, keys = dict(asked.own), asked.own.get("by", asked.own.get("item", ()))
        if "domain" in own:
            named = [keys] if isinstance(keys, str) else list(keys)
            with _with_key("domain"):
                own["domain"] = _domain(own["domain"], named, asked)
        made: Query[Any] = getattr(statistics, name).query(
            asked.table,
            **own,
            unit=asked.unit,
            relation=asked.relation,
            epsilon=epsilon,
            delta=delta,
            random_state=asked.random_state,
            progress=False,
        )
        return made

    return Kind("statistic", name, (statistics.OFFERED[name], name), query)


@contextmanager
def _with_key(key: str) -> Iterator[None]:
    """Set the key of errors."""
    try:
        yield
    except DpgrainError as error:
        raise ParameterError(str(error), name=key) from error


def _domain(stated: Any, keys: Sequence[str], asked: Asked) -> Any:
    """Return a public domain from a list, or from files."""
    if isinstance(stated, str):
        return read_public_list(asked.folder / stated, keys, asked.table)
    if isinstance(stated, dict):
        return {
            key: read_public_list(asked.folder / values, [key], asked.table)
            if isinstance(values, str)
            else values
            for key, values in stated.items()
        }
    if isinstance(stated, list):
        return [tuple(item) if isinstance(item, list) else item for item in stated]
    raise ParameterError(
        f"domain must be a file, a list, or a table of them by column, "
        f"not {_validate.describe(stated)}."
    )


def _mean_of_users(asked: Asked, epsilon: float, delta: float) -> Query[Any]:
    if asked.unit != User():
        raise ParameterError(
            "statistic = 'mean_of_users' requires unit = 'user' in [budget]: each user has one "
            "vector."
        )
    return table_queries.mean_of_columns.query(
        asked.table,
        **asked.own,
        n_users=asked.table.n_users,
        relation=asked.relation,
        epsilon=epsilon,
        delta=delta,
        random_state=asked.random_state,
    )


def _fit(name: str) -> Kind:
    """Return the kind of an estimator of :mod:`dpgrain.learn`."""

    def query(asked: Asked, epsilon: float, delta: float) -> Query[Any]:
        options = {key: value for key, value in asked.own.items() if key not in _FIT_KEYS}
        if options.get("classes"):
            known = asked.table.schema.get(asked.own["target"])
            options["classes"] = table_queries.column_labels(options["classes"], known)
        element = getattr(asked.unit, "by", None)
        if element is not None and not isinstance(element, str):
            raise ParameterError(
                "element must be a column in [budget] if a file fits models; create one from a "
                "mapping with [table.cells]."
            )
        model = getattr(learn, FITS[name])(
            **options,
            unit=_plain(asked.unit),
            relation=asked.relation,
            epsilon=epsilon,
            delta=delta,
            n_users=asked.table.n_users,
            random_state=asked.random_state,
        )
        return table_queries.fit_columns.query(
            model, asked.table, _encoding(asked.own), asked.own["target"], element
        )

    return Kind(
        "fit",
        name,
        ("dpgrain.learn.estimators", FITS[name]),
        query,
        _MODELS,
        _FIT_OWN,
    )


_FIT_OWN = (
    Parameter("target", str, REQUIRED),
    Parameter("features", Sequence[str]),
    Parameter("categories", Mapping[str, Sequence[str]]),
    Parameter("range", Mapping[str, tuple[float, float]]),
)
_FIT_KEYS = tuple(key.name for key in _FIT_OWN)


def _plain(unit: Unit) -> Unit:
    """Return the unit without the column of its partition, which is a separate argument of fits."""
    return unit if isinstance(unit, Record) else replace(unit, by=None)


def _encoding(own: Mapping[str, Any]) -> encodings.FeatureEncoding:
    """Return the encoding of columns as features."""
    names, ranges = own.get("features", ()), own.get("range", {})
    ends = {name: encodings.NumberColumn(name, tuple(pair)) for name, pair in ranges.items()}
    numbers = [ends.get(name, encodings.NumberColumn(name)) for name in names]
    categories = [
        encodings.CategoryColumn(name, tuple(levels))
        for name, levels in own.get("categories", {}).items()
    ]
    for key, parts in (("range", ends.values()), ("categories", categories)):
        for part in parts:
            with _with_key(key):
                encodings.FeatureEncoding((part,))
    for name in ranges:
        if name not in names:
            raise ParameterError(f"range {name!r} must be a column of features.", name="range")
    return encodings.FeatureEncoding((*numbers, *categories))


_STATISTICS = (
    *map(_statistic, statistics.OFFERED),
    Kind(
        "statistic",
        "mean_of_users",
        ("dpgrain.means.user_mean", "mean_of_users"),
        _mean_of_users,
        _VECTORS,
        (Parameter("columns", Sequence[str], REQUIRED),),
    ),
)
#: The kinds by key and name.
KINDS: dict[str, dict[str, Kind]] = {
    "statistic": {kind.name: kind for kind in _STATISTICS},
    "fit": {name: _fit(name) for name in FITS},
}
