"""Models in files: JSON that says what was fitted, how, and under which promise."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dpgrain import learn, optimize, recipes, units
from dpgrain._files import whole_file
from dpgrain.errors import DataError, ParameterError
from dpgrain.learn.confidence import Evidence
from dpgrain.learn.features import Encoding
from dpgrain.learn.model import LinearModel
from dpgrain.learn.rounds import History
from dpgrain.publishing.guarantee import Guarantee

FORMAT, VERSION = "dpgrain model", 1
# A seed is nobody's business; what was tuned is written as what was found.
_NOT_WRITTEN = ("random_state", "tune")
_ESTIMATORS = (
    "HuberRegressor",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "PoissonRegressor",
    "QuantileRegressor",
)
# What a parameter may be made of, besides plain values.
_PARTS: list[Any] = [units.Record, units.Element, units.User]
_PARTS += [getattr(optimize, name) for name in optimize.__all__]
_PARTS += [getattr(recipes, name) for name in recipes.RECIPES] + [recipes.Known]
_KINDS: dict[str, Any] = {
    str(part.__name__): part
    for part in _PARTS
    if isinstance(part, type) and hasattr(part, "__dataclass_fields__")
}


def save(model: LinearModel, path: str | Path) -> Path:
    """Write a fitted model as a JSON file.

    Args:
        model: a fitted estimator of :mod:`dpgrain.learn`.
        path: where to write; the folder must exist.

    Returns:
        The path.

    Raises:
        ParameterError: if the model is no estimator of this library, or a parameter cannot be written.
        DataError: if the file cannot be written; none is left behind then.

    The file holds what the fit published, its rounds included, and nothing else of the data: it may be
    published under the model's guarantee. A seed is not written.
    """
    if type(model).__name__ not in _ESTIMATORS or not isinstance(model, LinearModel):
        raise ParameterError(
            f"model must be an estimator of dpgrain.learn, not {type(model).__name__}."
        )
    check_is_fitted(model)
    text = json.dumps(_described(model), ensure_ascii=False, indent=1, allow_nan=False)
    path = Path(path)
    with whole_file(path) as part:
        part.write_text(text + "\n", encoding="utf-8")
    return path


def load(path: str | Path) -> LinearModel:
    """Read a model that :func:`save` wrote; it predicts the same to the last bit.

    Args:
        path: the file.

    Raises:
        DataError: if the file cannot be read.
        ParameterError: if it is no model, is damaged, or comes from a later version.
    """
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"The model {str(path)!r} cannot be read; check the path.") from error
    except ValueError as error:
        raise _foreign(path) from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise _foreign(path)
    if values.get("version") != VERSION:
        raise ParameterError(
            f"The model {str(path)!r} has format version {values.get('version')!r}, which this "
            "version of dpgrain does not know; read it with a newer one."
        )
    try:
        return _restored(values)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ParameterError(
            f"The model {str(path)!r} is damaged: a part of it is missing or wrong; save it again."
        ) from error


def _foreign(path: str | Path) -> ParameterError:
    return ParameterError(
        f"The file {str(path)!r} is not a model of dpgrain; give what `dpgrain fit` or save wrote."
    )


def _described(model: LinearModel) -> dict[str, Any]:
    from dpgrain import __version__

    history, evidence = model.history_, getattr(model, "evidence_", None)
    encoding = getattr(model, "encoding_", None)
    names, tuned = getattr(model, "feature_names_in_", None), getattr(model, "tuned_", None)
    parameters = {
        name: None if name in _NOT_WRITTEN else _plain(value, name)
        for name, value in model.get_params(deep=False).items()
    }
    found: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "dpgrain": __version__,
        "estimator": type(model).__name__,
        "parameters": parameters,
        "tuned": None if tuned is None else {name: _plain(tuned[name], name) for name in tuned},
        "features": None if names is None else [str(name) for name in names],
        "encoding": None if encoding is None else encoding.to_dict(),
        "target": getattr(model, "target_", None),
        "coef": model.coef_.tolist(),
        "intercept": np.asarray(model.intercept_).tolist(),
        "classes": _labels(model.classes_) if hasattr(model, "classes_") else None,
        "theta": model._theta.tolist(),
        "sampled": bool(model._sampled),
        "n_users": getattr(model, "n_users_", None),
        "guarantee": model.guarantee_.to_dict(),
        "history": {
            **history.to_dict(),
            "noise_sd": history.noise_sd,
            "points": history.points.tolist(),
            "gradients": history.gradients.tolist(),
        },
        "evidence": None,
    }
    if evidence is not None:
        shown = model.confidence_intervals()
        found["evidence"] = {
            field.name: _plain(getattr(evidence, field.name), field.name)
            for field in dataclasses.fields(evidence)
        }
        # For readers of the file; on loading, intervals are made again from the second moments.
        found["intervals"] = {
            name: _plain(getattr(shown, name), name)
            for name in ("names", "estimate", "low", "high", "std_error", "level", "doubt")
        }
    written: dict[str, Any] = _finite(found)
    return written


def _finite(value: Any) -> Any:
    """Numbers that JSON has not, as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list) else value


def _plain(value: Any, name: str) -> Any:
    """A parameter as JSON values: a unit or a solver by its name and fields."""
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
    if type(value) is _KINDS.get(type(value).__name__):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return {
            "kind": type(value).__name__,
            **{_written(field): _plain(getattr(value, field), name) for field in fields},
        }
    raise ParameterError(
        f"{name} has the value {value!r}, which a model file cannot hold; only numbers, text, units, "
        "the solvers of dpgrain.optimize and the recipes of dpgrain.recipes can be written."
    )


def _written(field: str) -> str:
    return "kind_" if field == "kind" else field


def _made(value: Any) -> Any:
    """What :func:`_plain` described."""
    if isinstance(value, list):
        return [_made(part) for part in value]
    if not isinstance(value, dict):
        return value
    # A field that is called kind itself is written with a line after it.
    fields = {name.removesuffix("_"): _made(part) for name, part in value.items() if name != "kind"}
    fields = {
        name: np.array(part) if isinstance(part, list) else part for name, part in fields.items()
    }
    if value["kind"] == "float":
        return float(fields["x"])
    return _KINDS[value["kind"]](**fields)


def _labels(classes: NDArray[Any]) -> dict[str, Any]:
    """Labels with their type: 1, '1' and True are not the same."""
    kinds = {"b": "bool", "i": "int64", "u": "uint64", "f": "float64", "U": "str"}
    kind = kinds.get(classes.dtype.kind, "object")
    labels = [label.item() if isinstance(label, np.generic) else label for label in classes]
    if not all(isinstance(label, bool | int | float | str) for label in labels):
        raise ParameterError("classes must be numbers or text to be written to a model file.")
    return {"type": kind, "labels": labels}


def _array(values: Any, shape: tuple[int, ...] | None = None) -> NDArray[np.float64]:
    array = np.array(values, dtype=np.float64)
    return array if shape is None else array.reshape(shape)


def _restored(values: dict[str, Any]) -> LinearModel:
    if values["estimator"] not in _ESTIMATORS:
        raise ValueError(values["estimator"])
    model: LinearModel = getattr(learn, values["estimator"])(
        **{name: _made(value) for name, value in values["parameters"].items()}
    )
    history, width = values["history"], len(values["theta"])
    points, gradients = (_array(history[name], (-1, width)) for name in ("points", "gradients"))
    model._theta, model._sampled = _array(values["theta"]), bool(values["sampled"])
    coef, intercept = _array(values["coef"]), values["intercept"]
    listed = isinstance(intercept, list)
    if coef.ndim != 1 + listed or (listed and len(intercept) != len(coef)):
        raise ValueError("shapes")
    model.coef_ = coef
    model.intercept_ = _array(intercept) if listed else float(intercept)
    model.n_features_in_ = model.coef_.shape[-1]
    model.history_ = History(points, gradients, float(history["noise_sd"]), float(history["clip"]))
    model.n_iter_ = int(history["rounds"])
    if values.get("n_users") is not None:
        model.n_users_ = int(values["n_users"])
    model.guarantee_ = Guarantee.from_dict(values["guarantee"])
    if values["classes"] is not None:
        kind = values["classes"]["type"]
        model.classes_ = np.array(values["classes"]["labels"], dtype=np.dtype(kind))
        if len(model.classes_) != (2 if len(coef) == 1 else len(coef)):
            raise ValueError("classes")
    if values["features"] is not None:
        model.feature_names_in_ = np.array(values["features"], dtype=object)
        if len(model.feature_names_in_) != model.n_features_in_:
            raise ValueError("features")
    if values["encoding"] is not None:
        model.encoding_ = Encoding.from_dict(values["encoding"])
        if model.encoding_.names != values["features"]:
            raise ValueError("encoding")
    if values["target"] is not None:
        model.target_ = str(values["target"])
    if values.get("tuned") is not None:
        model.tuned_ = {name: _made(value) for name, value in values["tuned"].items()}
    known = values["evidence"]
    model.evidence_ = known and Evidence(
        _array(known["curvature"], (width, width)),
        float(known["curvature_sd"]),
        _array(known["scores"], (width, width)),
        float(known["scores_sd"]),
        int(known["n_users"]),
    )
    return model
