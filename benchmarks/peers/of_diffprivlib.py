"""Statistics and fits of diffprivlib; its unit is one replaced record."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from diffprivlib import tools
from diffprivlib.models import LinearRegression, LogisticRegression
from serving import serve

Told = dict[str, Any]

warnings.simplefilter("ignore")
DATA = Path(sys.argv[1])
KEYS: dict[str, list[str]] = json.loads((DATA / "keys.json").read_text(encoding="utf-8"))
NUMBERS: dict[str, Callable[..., Any]] = {
    "sum": tools.sum,
    "mean": tools.mean,
    "variance": tools.var,
    "median": tools.median,
}


def released(told: Told) -> Callable[[], dict[str, float]]:
    """The release of a task, ready to run."""
    if told["kind"] == "count":
        return counts(told)
    values = pq.read_table(DATA / "rows.parquet")[told["value"]].to_numpy().astype(float)
    of = NUMBERS[told["kind"]]
    return lambda: {"all": float(of(values, epsilon=told["epsilon"], bounds=tuple(told["range"])))}


def counts(told: Told) -> Callable[[], dict[str, float]]:
    """Records of each item.

    The noise of its histograms is for one added or removed record, so half of ε is for a replaced
    one. Items are numbered by the public list, because its histograms need numbers.
    """
    keys = KEYS[told["by"]]
    items = pq.read_table(DATA / "rows.parquet")[told["by"]].to_pylist()
    number = {key: place for place, key in enumerate(keys)}
    codes = np.array([number[item] for item in items])
    edges = np.arange(len(keys) + 1) - 0.5

    def release() -> dict[str, float]:
        found, _ = tools.histogram(codes, epsilon=told["epsilon"] / 2, bins=edges)
        return dict(zip(keys, map(float, found), strict=True))

    return release


def fitted(told: Told) -> Callable[[], dict[str, float]]:
    """A fit on the training rows, and its predictions of the rows held out.

    In a linear regression the noise for the squares of a feature follows only from its lower bound
    (0.6.6), so features are scaled to [−1, 1], where it equals the upper one, and the column of
    ones is a feature: there the guarantee is valid.
    """
    stored = np.load(told["path"])
    X, y, Z = (stored[name].astype(float) for name in ("X", "y", "Z"))  # noqa: N806
    if told["kind"] == "logistic":
        model = LogisticRegression(
            epsilon=told["epsilon"], data_norm=told["norm"], **told["bounds"], max_iter=1000
        )
        model.fit(X, y)
        return _predicting(lambda: model.fit(X, y).predict_proba(Z)[:, 1])
    X, Z = (np.column_stack([2 * part - 1, np.ones(len(part))]) for part in (X, Z))  # noqa: N806
    model = LinearRegression(
        epsilon=told["epsilon"], bounds_X=(-1.0, 1.0), bounds_y=(0.0, 1.0), fit_intercept=False
    )
    return _predicting(lambda: model.fit(X, y).predict(Z))


def _predicting(predict: Callable[[], Any]) -> Callable[[], dict[str, float]]:
    return lambda: {str(place): float(of) for place, of in enumerate(np.ravel(predict()))}


serve({"release": released, "fit": fitted})
