"""Statistics, fits and accounting of dpgrain; and the same statistics without privacy."""

from __future__ import annotations

import functools
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from serving import serve
from sklearn import linear_model

import dpgrain as dg

Told = dict[str, Any]

warnings.simplefilter("ignore")
DATA = Path(sys.argv[1])
KEYS: dict[str, Any] = json.loads((DATA / "keys.json").read_text(encoding="utf-8"))
QUERIES = {
    "count": "count(*)",
    "users": "count(DISTINCT user)",
    "sum": "sum({value})",
    "mean": "avg({value})",
    "variance": "var_pop({value})",
    "median": "median({value})",
}


@functools.cache
def rows() -> pa.Table:
    """The rows in memory."""
    return pq.read_table(DATA / "rows.parquet")


def plain(told: Told) -> Callable[[], dict[str, float]]:
    """The statistic without privacy, by DuckDB from the same rows in memory."""
    connection = duckdb.connect(config={"threads": 1})
    connection.register("rows", rows())
    number = QUERIES[told["kind"]].format(value=told["value"])
    group = f'"{told["by"]}"' if told["by"] else "'all'"
    query = f"SELECT {group} AS name, {number} AS number FROM rows GROUP BY name"
    return lambda: {str(name): float(of) for name, of in connection.sql(query).fetchall()}


def released(told: Told) -> Callable[[], dict[str, float]]:
    """The estimates of a task's release, ready to run."""
    made, by = release(told), told["by"]

    def estimates() -> dict[str, float]:
        found = made()
        groups = found.groups.columns[0].to_pylist() if by else ["all"]
        return dict(zip(groups, map(float, found.estimate), strict=True))

    return estimates


def printed(told: Told) -> Callable[[], float]:
    """The root mean square of the standard errors that a release prints."""
    made = release(told)
    return lambda: float(np.sqrt(np.mean(made().std_error ** 2)))


def release(told: Told) -> Callable[[], dg.Release]:
    """The release of a task, ready to run."""
    table, kind, by, bounds = dg.read(rows(), user="user"), told["kind"], told["by"], told["range"]
    releases: dict[str, Callable[..., Any]] = {
        "count": dg.count,
        "users": functools.partial(dg.top, item=by),
        "sum": functools.partial(dg.sum, value=told["value"], bounds=bounds),
        "mean": functools.partial(dg.mean, value=told["value"], bounds=bounds),
        "variance": functools.partial(dg.variance, value=told["value"], bounds=bounds),
        "median": functools.partial(dg.quantile, value=told["value"], bounds=bounds),
    }
    options = promise(told) | told["bounds"]
    if by and kind != "users":
        options["by"] = by
    if by and told["known"]:
        options["domain"] = KEYS[by]

    return functools.partial(releases[kind], table, progress=False, **options)


def promise(told: Told) -> dict[str, Any]:
    """dpgrain's guarantee as text."""
    one = {"epsilon": told["epsilon"], "delta": told["delta"]}
    if told["unit"] == "user":
        return {"unit": dg.User(), **one}
    if told["unit"] == "element":
        return {"unit": dg.Element(KEYS["subject_of"]), **one}
    exchanged = {"unit": dg.Record(), "relation": "replace", **one}
    return exchanged | {"noise": "laplace"} if told["kind"] == "median" else exchanged


def fitted(told: Told) -> Callable[[], dict[str, float]]:
    """A fit on the training rows, and its predictions of the rows held out."""
    stored = np.load(told["path"], allow_pickle=False)
    X, y, Z = (stored[name] for name in ("X", "y", "Z"))  # noqa: N806
    options: dict[str, Any] = {
        "unit": dg.Record(),
        "relation": "replace",
        "epsilon": told["epsilon"],
        "delta": told["delta"],
        **told["bounds"],
    }
    if told["kind"] == "logistic":
        options["classes"] = [0, 1]
    regressions: dict[str, Any] = {
        "logistic": dg.learn.LogisticRegression,
        "linear": dg.learn.LinearRegression,
    }
    kind = regressions[told["kind"]]

    def predict() -> dict[str, float]:
        model: Any = kind(**options).fit(X, y)
        found = model.predict_proba(Z)[:, 1] if told["kind"] == "logistic" else model.predict(Z)
        return {str(place): float(number) for place, number in enumerate(found)}

    return predict


def plain_fit(told: Told) -> Callable[[], None]:
    """The same fit by scikit-learn, without privacy."""
    stored = np.load(told["path"], allow_pickle=False)
    X, y = stored["X"].astype(float), stored["y"]
    logistic = linear_model.LogisticRegression(max_iter=2000)
    model: Any = logistic if told["kind"] == "logistic" else linear_model.LinearRegression()

    def fit() -> None:
        model.fit(X, y)

    return fit


serve(
    {"plain": plain, "release": released, "printed": printed, "fit": fitted, "plain fit": plain_fit}
)
