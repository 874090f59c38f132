"""Model files in JSON, with fit results, settings and guarantee."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpgrain import __version__, _validate, optimize, units
from dpgrain._files import atomic_write, read_guarantee, record_input
from dpgrain._lazy_import import lazy_import
from dpgrain._types import FloatArray
from dpgrain.errors import DataError, ParameterError
from dpgrain.gradients.norms import NormHistogram
from dpgrain.learn.confidence import Evidence, Intervals
from dpgrain.learn.estimator_names import ESTIMATORS
from dpgrain.learn.fit_data import FitResult
from dpgrain.learn.rounds import History
from dpgrain.publishing.guarantee import Guarantee

if TYPE_CHECKING:
    from dpgrain import papers
    from dpgrain.learn import features
    from dpgrain.learn.features import FeatureEncoding
else:
    features = lazy_import("dpgrain.learn.features")
    papers = lazy_import("dpgrain.papers")

FORMAT, VERSION = "dpgrain model", 1
# Parameters excluded from files: a seed is secret, and tuning is stored as the chosen setting.
_EXCLUDED = ("random_state", "tune")


@dataclass(frozen=True, eq=False)
class ModelFile:
    """Contents of a model file."""

    estimator: str
    parameters: dict[str, Any]
    fitted: FitResult
    guarantee: Guarantee
    coef: FloatArray
    intercept: Any
    features: tuple[str, ...] | None = None
    encoding: FeatureEncoding | None = None
    target: str | None = None
    tuned: dict[str, Any] | None = None


def write(contents: ModelFile, path: str | Path, intervals: Intervals | None = None) -> Path:
    """Write a fitted model as a JSON file atomically, with intervals for readers."""
    if contents.estimator not in ESTIMATORS.values():
        raise ParameterError(
            f"model must be an estimator of dpgrain.learn, not {contents.estimator}."
        )
    values = _file_contents(contents, intervals)
    text = json.dumps(values, ensure_ascii=False, indent=1, allow_nan=False)
    path = _validate.path(path=path)
    with atomic_write(path) as part:
        part.write_text(text + "\n", encoding="utf-8")
    return path


def read(path: str | Path) -> ModelFile:
    """Read a file written by :func:`write`."""
    path = _validate.path(path=path)
    record_input(path)
    read_guarantee(path)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"The model {str(path)!r} cannot be read; check the path.") from error
    except (ValueError, RecursionError) as error:
        raise _foreign(path) from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise _foreign(path)
    if values.get("version") != VERSION:
        raise ParameterError(
            f"The model {str(path)!r} has format version {_validate.describe(values.get('version'))}, "
            "which this version of dpgrain does not support; read it with a newer one."
        )
    try:
        return _read_contents(values)
    except _validate.MISFIT_ERRORS as error:
        raise damaged(path) from error


def damaged(path: str | Path) -> ParameterError:
    """Return the error for a damaged model file."""
    return ParameterError(
        f"The model {str(path)!r} is damaged, because part of it is missing or invalid; save it "
        "again."
    )


def _foreign(path: str | Path) -> ParameterError:
    return ParameterError(
        f"The file {str(path)!r} is not a model of dpgrain; pass a file written by `dpgrain fit` "
        "or save."
    )


def _file_contents(contents: ModelFile, intervals: Intervals | None) -> dict[str, Any]:
    """Return the file contents as plain JSON values."""
    fitted, tuned, encoding = contents.fitted, contents.tuned, contents.encoding
    history, evidence, names = fitted.history, fitted.evidence, contents.features
    parameters = {
        name: None if name in _EXCLUDED else _plain(value, name)
        for name, value in contents.parameters.items()
    }
    result: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "dpgrain": __version__,
        "estimator": contents.estimator,
        "parameters": parameters,
        "tuned": None if tuned is None else {name: _plain(tuned[name], name) for name in tuned},
        "features": None if names is None else list(names),
        "encoding": None if encoding is None else encoding.to_dict(),
        "target": contents.target,
        "coef": contents.coef.tolist(),
        "intercept": np.asarray(contents.intercept).tolist(),
        "classes": None if fitted.classes is None else _labels(fitted.classes),
        "theta": fitted.theta.tolist(),
        "sampled": bool(fitted.sampled),
        "warm_up": fitted.warm_up,
        "n_users": fitted.n_users,
        "max_records": fitted.max_records,
        "mean_weight": fitted.mean_weight,
        "guarantee": contents.guarantee.to_dict(),
        "history": {
            **history.to_dict(),
            "noise_sd": history.noise_sd,
            "planned": history.planned,
            "points": history.points.tolist(),
            "gradients": history.gradients.tolist(),
        },
        "evidence": None,
        "norms": [
            {"counts": each.counts.tolist(), "noise_sd": each.noise_sd} for each in fitted.norms
        ],
    }
    if evidence is not None:
        result["evidence"] = {
            field.name: _plain(getattr(evidence, field.name), field.name)
            for field in dataclasses.fields(evidence)
        }
    if intervals is not None:
        result["intervals"] = {
            name: _plain(getattr(intervals, name), name)
            for name in ("names", "estimate", "low", "high", "std_error", "level", "doubt")
        }
    written: dict[str, Any] = _finite(result)
    return written


@cache
def _parameter_types() -> dict[str, Any]:
    """Return the types of parameters other than plain values."""
    parts: list[Any] = [units.Record, units.Element, units.User]
    parts += [getattr(optimize, name) for name in optimize.__all__]
    written = (*papers.RECIPES, *papers.SOLVERS, "Known")
    parts += [getattr(papers, name) for name in written]
    return {
        str(part.__name__): part
        for part in parts
        if isinstance(part, type) and hasattr(part, "__dataclass_fields__")
    }


def _finite(value: Any) -> Any:
    """Replace numbers that JSON does not support by text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list) else value


def _plain(value: Any, name: str) -> Any:
    """Return a parameter as JSON values; a unit or a solver by name and fields."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"kind": "float", "x": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(part, name) for part in value]
    if type(value) is _parameter_types().get(type(value).__name__):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return {
            "kind": type(value).__name__,
            **{_field_name(field): _plain(getattr(value, field), name) for field in fields},
        }
    raise ParameterError(
        f"{name} has the value {value!r}, which a model file cannot store; use numbers, text, "
        "units, or solvers and recipes of dpgrain.optimize and dpgrain.papers."
    )


def _field_name(field: str) -> str:
    return "kind_" if field == "kind" else field


def _parameter(value: Any) -> Any:
    """Build the parameter contents by :func:`_plain`."""
    if isinstance(value, list):
        return [_parameter(part) for part in value]
    if not isinstance(value, dict):
        return value
    # A field named kind is written with a trailing underscore.
    fields = {
        name.removesuffix("_"): _parameter(part) for name, part in value.items() if name != "kind"
    }
    fields = {
        name: np.array(part) if isinstance(part, list) else part for name, part in fields.items()
    }
    if value["kind"] == "float":
        return float(fields["x"])
    return _parameter_types()[value["kind"]](**fields)


def _labels(classes: NDArray[Any]) -> dict[str, Any]:
    """Describe labels with their type, because 1, '1' and True differ."""
    kinds = {"b": "bool", "i": "int64", "u": "uint64", "f": "float64", "U": "str"}
    kind = kinds.get(classes.dtype.kind, "object")
    labels = [label.item() if isinstance(label, np.generic) else label for label in classes]
    if not all(isinstance(label, bool | int | float | str) for label in labels):
        raise ParameterError("classes must be numbers or text to be stored in a model file.")
    return {"type": kind, "labels": labels}


def _array(values: Any, shape: tuple[int, ...] | None = None) -> NDArray[np.float64]:
    array = np.array(values, dtype=np.float64)
    return array if shape is None else array.reshape(shape)


def _read_contents(values: dict[str, Any]) -> ModelFile:
    if values["estimator"] not in ESTIMATORS.values():
        raise ValueError(values["estimator"])
    coef, intercept = _array(values["coef"]), values["intercept"]
    listed = isinstance(intercept, list)
    if coef.ndim != 1 + listed or (listed and len(intercept) != len(coef)):
        raise ValueError("shapes")
    fitted = _read_result(values, len(coef) if listed else 1)
    if fitted.theta.size != coef.size + fitted.outputs * values["parameters"]["fit_intercept"]:
        raise ValueError("theta")
    if fitted.classes is not None and len(fitted.classes) != (2 if len(coef) == 1 else len(coef)):
        raise ValueError("classes")
    for own in (values["parameters"], values.get("tuned") or {}):
        for name in ("feature_bound", "target_bound"):
            bound = own.get(name)
            if bound is not None and not 1e-50 <= bound <= 1e50:
                raise ValueError(name)
    names, encoding, tuned = values["features"], values["encoding"], values.get("tuned")
    if names is not None and len(names) != coef.shape[-1]:
        raise ValueError("features")
    columns = None if encoding is None else features.FeatureEncoding.from_dict(encoding)
    if columns is not None and columns.names != names:
        raise ValueError("encoding")
    return ModelFile(
        values["estimator"],
        {name: _parameter(value) for name, value in values["parameters"].items()},
        fitted,
        Guarantee.from_dict(values["guarantee"]),
        coef,
        _array(intercept) if listed else float(intercept),
        None if names is None else tuple(names),
        columns,
        None if values["target"] is None else str(values["target"]),
        None if tuned is None else {name: _parameter(value) for name, value in tuned.items()},
    )


def _optional(value: Any, kind: Callable[[Any], Any]) -> Any:
    """Convert a value of a file that older files do not have."""
    return None if value is None else kind(value)


def _read_result(values: dict[str, Any], outputs: int) -> FitResult:
    """Read the published results of a fit."""
    history, width, known = values["history"], len(values["theta"]), values["evidence"]
    points, gradients = (_array(history[name], (-1, width)) for name in ("points", "gradients"))
    classes, n_users = values["classes"], values.get("n_users")
    return FitResult(
        _array(values["theta"]),
        outputs,
        History(
            points,
            gradients,
            float(history["noise_sd"]),
            float(history["clip"]),
            history.get("planned"),
        ),
        int(history["rounds"]),
        None if n_users is None else int(n_users),
        bool(values["sampled"]),
        classes and np.array(classes["labels"], dtype=np.dtype(classes["type"])),
        known
        and Evidence(
            _array(known["curvature"], (width, width)),
            float(known["curvature_sd"]),
            _array(known["scores"], (width, width)),
            float(known["scores_sd"]),
            int(known["n_users"]),
        ),
        # Older files have no norms and no warm-up.
        tuple(
            NormHistogram(_array(each["counts"]), float(each["noise_sd"]))
            for each in values.get("norms", ())
        ),
        int(values.get("warm_up", 0)),
        _optional(values.get("max_records"), int),
        _optional(values.get("mean_weight"), float),
    )
