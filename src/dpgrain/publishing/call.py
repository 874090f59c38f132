"""The public part of a query: the call of a public function, with schemas instead of rows."""

from __future__ import annotations

import inspect
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import date, datetime
from functools import wraps
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from dpgrain import _validate
from dpgrain.errors import ParameterError

if TYPE_CHECKING:
    from dpgrain.publishing.promise import Promise
    from dpgrain.publishing.query import Query

Parameters = ParamSpec("Parameters")
Recorded = TypeVar("Recorded", bound="Query[Any]")
Release = TypeVar("Release")

_MISSING = object()
_FORMAT, _FIELDS = 1, {"dpgrain", "query", "parameters", "inputs"}
# Max listed differences of schemas.
_MOST_DIFFERENCES = 3
# Max nested lists and objects in a stored parameter.
_MOST_LEVELS = 100
# Max bits of an integer, which JSON writes in decimal digits.
_MOST_BITS = 4096
# Public package of the functions of each package.
_SHOWN_IN = {
    **dict.fromkeys(("statistics", "means", "choices"), "dpgrain"),
    **{name: f"dpgrain.{name}" for name in ("learn", "papers", "releases", "shuffle")},
}
# Parameters with rows or labels of rows, or devices; a text is the public name of a column, and an
# integer a public number.
_INPUTS = {
    *("table", "X", "y", "users", "elements", "predicted", "probability", "data", "values"),
    *("dropped", "corrupt"),
}
# Parameters without effect on the release.
_DISPLAY = {"progress", "verbose"}
# Kinds of parameters that are passed by their place, and of those that are never missing.
_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# Examples of parameters, for a message about a missing one.
_EXAMPLES = {
    "table": "dg.read('visits.parquet', user='person')",
    "unit": "dg.User()",
    "bounds": "(0, 100)",
    "other_bounds": "(0, 100)",
    "value": "'paid'",
    "other": "'age'",
    "by": "['region', 'age']",
    "item": "'page'",
}
# Allowed types of parameters; None for all public dataclasses of a package.
_TYPES: Mapping[str, tuple[str, ...] | None] = {
    "dpgrain": ("AutoClip", "AutoRange", "Element", "Elements", "Record", "User"),
    "dpgrain.optimize": None,
    "dpgrain.papers": None,
}


@dataclass(frozen=True, repr=False)
class Call:
    """A call of a public function, without rows."""

    function: str
    # JSON values of parameters, and public schemas of inputs.
    parameters: Mapping[str, Any]
    inputs: Mapping[str, Any]
    # Descriptions of parameters that cannot be stored.
    unstored: Mapping[str, str]

    @staticmethod
    def create(function: str, arguments: Mapping[str, Any]) -> Call | None:
        """Return the call; None if an input is an internal object."""
        parameters, inputs, unstored = dict[str, Any](), dict[str, Any](), dict[str, str]()
        for name, value in arguments.items():
            if name in _INPUTS and not isinstance(value, str | int | None):
                if (schema := _schema(value)) is None:
                    return None
                inputs[name] = schema
            elif name not in _DISPLAY and (name not in _INPUTS or value is not None):
                try:
                    parameters[name] = _encoded(value)
                    if _is_deep(parameters[name]):
                        raise RecursionError
                except _UnstoredError as error:
                    unstored[name] = f"a value of type {error}"
                except RecursionError:
                    unstored[name] = f"more than {_MOST_LEVELS} nested lists"
        return Call(function, parameters, inputs, unstored)

    def with_promise(self, promise: Promise) -> Call | None:
        """Return the call with another ε and δ; None if it has no ε."""
        if promise.share is not None:
            return self
        own = {"epsilon": promise.epsilon, "delta": promise.delta, "share": None}
        changed = {name: own.get(name, value) for name, value in self.parameters.items()}
        return replace(self, parameters=changed) if "epsilon" in changed else None

    def to_dict(self) -> dict[str, Any]:
        """Return the call as JSON values."""
        for name, what in self.unstored.items():
            raise ParameterError(
                f"{name} must be a number, text, list, mapping or object of dpgrain to be stored, not "
                f"{what}; store other parameters, and call {self.function} again.",
                name=name,
            )
        call = {"query": self.function, "parameters": self.parameters, "inputs": self.inputs}
        copy: dict[str, Any] = json.loads(json.dumps({"dpgrain": _FORMAT, **call}))
        return copy

    def __repr__(self) -> str:
        stated = (
            f"{name}={_validate.describe(_decoded(value))}"
            for name, value in self.parameters.items()
            if value is not None
        )
        others = (f"{name}=<{what.split()[-1]}>" for name, what in self.unstored.items())
        return f"{self.function}.query({', '.join([*self.inputs, *stated, *others])})"


class KeepsQuery:
    """A release with the public part of its query."""

    #: Public part of the query, for ``Query.from_dict``, without a seed; None if it cannot be stored,
    #: and after post-processing.
    query: dict[str, Any] | None = None
    #: Share of each part of the plan in the budget; empty if unknown, and after post-processing.
    shares: Mapping[str, float] = MappingProxyType({})


def keep_query(release: Release, call: Call | None, shares: Mapping[str, float]) -> Release:
    """Return the release with ``shares``, and ``query``, the public part of its query."""
    is_result = isinstance(release, KeepsQuery)
    if is_result:
        vars(release)["shares"] = shares
    if call is not None and not call.unstored:
        values = call.to_dict()
        # A seed is secret, and a release is public.
        values["parameters"].pop("random_state", None)
        more = {"query": values} if is_result else {"query_": values, "shares_": shares}
        vars(release).update(more)
    return release


def recorded(query: Callable[Parameters, Recorded]) -> Callable[Parameters, Recorded]:
    """Record the call on the query that a public function or method of dpgrain returns."""
    package, _, rest = query.__module__.partition(".")
    home = _SHOWN_IN.get(rest.partition(".")[0]) if package == "dpgrain" else None
    if home is None:
        return query
    signature = inspect.signature(query)
    kinds = {name: one.kind for name, one in signature.parameters.items()}
    others = [name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD]

    @wraps(query)
    def record(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Recorded:
        _require_all(query.__name__, signature, args, kwargs)
        result = query(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments, name = bound.arguments, query.__name__
        for each in others:
            arguments.update(arguments.pop(each))
        if (owner := arguments.pop("self", None)) is not None:
            options = {option: getattr(owner, option) for option in _options(type(owner))}
            arguments, name = {**options, **arguments}, type(owner).__name__
        is_public = owner is None or type(owner).__module__.startswith(f"{home}.")
        # A public function may return the query of another one.
        if is_public and result.call is None:
            vars(result)["call"] = Call.create(f"{home}.{name}", arguments)
        return result

    record.__dict__["is_recorded"] = True
    return record


def _require_all(
    function: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Raise ParameterError if a call lacks parameters."""
    parts = signature.parameters.values()
    places = [part.name for part in parts if part.kind in _BY_PLACE]
    passed = {*places[: len(args)], *kwargs}
    missing = [
        part.name
        for part in parts
        if part.default is part.empty and part.kind not in _VARIABLE and part.name not in passed
    ]
    if missing:
        examples = ", ".join(f"{name}={_EXAMPLES.get(name, '…')}" for name in missing)
        raise ParameterError(
            f"{missing[0]} is required: call {function} with {examples}.", name=missing[0]
        )


def query_from_dict(values: Any, inputs: Any) -> Query[Any]:
    """Return the query of a stored call for rows; see ``Query.from_dict``."""
    stored = _validate.mapping(values=values)
    if stored.keys() != _FIELDS or stored["dpgrain"] != _FORMAT:
        raise ParameterError(
            f"values must have the fields dpgrain = {_FORMAT}, query, parameters and inputs, as "
            "written by Query.to_dict.",
            name="values",
        )
    function, schemas = _function(stored["query"]), _validate.mapping(inputs=stored["inputs"])
    stated = _validate.mapping(parameters=stored["parameters"])
    for name, value in {**stated, "inputs": schemas}.items():
        if _is_deep(value):
            raise ParameterError(
                f"{name} must have at most {_MOST_LEVELS} nested lists, not more; write them with "
                "Query.to_dict.",
                name=name,
            )
    sources = _validate.mapping(inputs=inputs)
    actual = {name: _schema(value) for name, value in sources.items()}
    if changes := list(_differences(schemas, actual)):
        listed = "; ".join(changes[:_MOST_DIFFERENCES])
        more = len(changes) - _MOST_DIFFERENCES
        rest = f" (and {more:,} more)" if more > 0 else ""
        raise ParameterError(f"inputs must have the stored schema: {listed}{rest}.", name="inputs")
    try:
        if rows := [
            name for name in _INPUTS & stated.keys() if not isinstance(stated[name], str | int)
        ]:
            raise TypeError(f"{rows[0]} is an input")
        parameters = {name: _decoded(value) for name, value in stated.items()}
        if isinstance(function, type):
            # A configured object, such as a model.
            options = [name for name in _options(function) if name in parameters]
            function = function(**{name: parameters.pop(name) for name in options})
        call = inspect.signature(function.query).bind(**parameters, **sources)
    except _validate.MISFIT_ERRORS as error:
        if isinstance(error, ParameterError):
            raise
        raise ParameterError(
            f"parameters must be parameters of {stored['query']}, written by Query.to_dict: {error}.",
            name="parameters",
        ) from error
    query: Query[Any] = function.query(*call.args, **call.kwargs)
    return query


def _differences(wanted: Any, actual: Any, where: tuple[str, ...] = ()) -> Iterator[str]:
    """Describe each different part of two schemas."""
    if isinstance(wanted, dict) and isinstance(actual, dict):
        for name in dict.fromkeys([*wanted, *actual]):
            one, other = wanted.get(name, _MISSING), actual.get(name, _MISSING)
            yield from _differences(one, other, (*where, name))
    elif type(wanted) is not type(actual) or wanted != actual:
        said = ("omitted" if e is _MISSING else _validate.describe(e) for e in (wanted, actual))
        yield f"{'.'.join(map(str, where))} must be {', not '.join(said)}"


def _options(owner: Any) -> list[str]:
    """Return the names of the parameters of a dataclass."""
    return [each.name for each in fields(owner) if each.init]


def _function(name: Any) -> Any:
    """Return the publishing function or class with a public name; nothing else is looked up."""
    package, _, short = name.rpartition(".") if isinstance(name, str) else ("", "", "")
    if package in _SHOWN_IN.values() and short in (module := import_module(package)).__all__:
        function = getattr(module, short)
        if getattr(getattr(function, "query", None), "is_recorded", False):
            return function
    raise ParameterError(
        f"query must be a publishing function of dpgrain, not {_validate.describe(name)}.",
        name="query",
    )


def _schema(value: Any) -> Any:
    """Return the public schema of an input; None for an internal object."""
    if type(value).__module__.startswith("dpgrain."):
        schema = getattr(value, "input_schema", None)
        return None if schema is None else json.loads(json.dumps(schema()))
    # An attribute of the value alone, such as a column or a label of a row, may be data.
    kind = type(value)
    try:
        for attribute in ("column_names", "columns"):
            if hasattr(kind, attribute):
                return {"columns": list(map(str, getattr(value, attribute)))}
        if hasattr(kind, "name") and hasattr(kind, "dtype") and isinstance(value.name, str):
            return {"columns": [value.name]}
        return {"columns": int(value.shape[1])}
    except Exception:
        # A list or vector has no columns, and an object of the caller may raise anything.
        return {}


class _UnstoredError(Exception):
    """The type of a value that cannot be stored."""


def _encoded(value: Any) -> Any:
    """Return a parameter as a JSON value."""
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int and value.bit_length() <= _MOST_BITS:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, np.bool_ | np.number | np.str_):
        return _encoded(value.item())
    if kind is np.ndarray and value.dtype.kind in "biufU":
        return {"array": _encoded(value.tolist())}
    if kind in (list, range, set, frozenset):
        return _encoded_list(value)
    if kind is tuple:
        return {"tuple": _encoded_list(value)}
    if kind is dict:
        return {"mapping": [_encoded_list(value), _encoded_list(value.values())]}
    if kind in (date, datetime):
        return {kind.__name__: value.isoformat()}
    # An imported package shows the type.
    names = (f"{package}.{kind.__name__}" for package in _TYPES if package in sys.modules)
    name = next((name for name in names if _type(name) is kind), None)
    if name is None:
        raise _UnstoredError(kind.__name__)
    # A period determines the function and the name of a partition.
    options = ["period", "missing"] if getattr(value, "period", None) else _options(kind)
    return {name: {option: _encoded(getattr(value, option)) for option in options}}


def _encoded_list(values: Iterable[Any]) -> list[Any]:
    listed = list(values)
    plain = set(map(type, listed)) <= {bool, int, str, type(None)}
    return listed if plain else list(map(_encoded, listed))


def _is_deep(value: Any) -> bool:
    """Return whether a JSON value has more nested lists and objects than can be stored."""
    level = [value]
    for _ in range(_MOST_LEVELS + 1):
        nested = [each for each in level if isinstance(each, dict | list | tuple)]
        parts = (each.values() if isinstance(each, dict) else each for each in nested)
        level = [part for each in parts for part in each]
    return bool(level)


def _type(name: str) -> Any:
    """Return the allowed type of a parameter with a public name; None if there is none."""
    package, _, short = name.rpartition(".")
    if package not in _TYPES:
        return None
    module = import_module(package)
    kind = getattr(module, short) if short in (_TYPES[package] or module.__all__) else None
    return kind if is_dataclass(kind) else None


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_decoded, value))
    if not isinstance(value, dict):
        return value
    ((name, content),) = value.items()
    if name == "mapping":
        keys, values = content
        return dict(zip(_decoded(keys), _decoded(values), strict=True))
    if name in _DECODERS:
        return _DECODERS[name](_decoded(content))
    options, kind = {option: _decoded(each) for option, each in content.items()}, _type(name)
    return kind.from_period(**options) if options.get("period") else kind(**options)


_DECODERS: Mapping[str, Callable[[Any], Any]] = {
    "float": float,
    "array": np.array,
    "tuple": tuple,
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
}
