"""Seeded releases, fits and guarantees of every public function, as they were when last written.

A change of shape must not change what is published. What is meant to change is written anew with
``DPGRAIN_GOLDENS=write pytest tests/claims/test_goldens.py``: ``goldens.json`` differs by what it was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpgrain as dg
from dpgrain import learn, papers
from dpgrain.optimize import Logistic, Power, Sgd, Squared
from dpgrain.shuffle import BlindSum, PoissonSum, ScalarSum, VectorSum

WRITTEN = Path(__file__).with_name("goldens.json")
# Sums of fits are made in floating point, by libraries that differ in the last digits.
_DIGITS = 10

GENERATOR = np.random.default_rng(20)
ROWS = pa.table(
    {
        "who": GENERATOR.integers(0, 400, 4000),
        "page": np.array([f"p{int(i)}" for i in GENERATOR.geometric(0.2, 4000)]),
        "topic": np.array([f"t{int(i)}" for i in GENERATOR.integers(0, 3, 4000)]),
        "paid": GENERATOR.gamma(2.0, 3.0, 4000).round(2),
    }
)
TABLE = dg.read(ROWS, user="who", threads=1)
X = GENERATOR.normal(size=(600, 3)) / 2
Y = (X[:, 0] + GENERATOR.normal(size=600) > 0).astype(int)
OWNERS = np.arange(600) // 2
CELLS = np.arange(600) % 2
PROMISE: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "random_state": 5}
USER: dict[str, Any] = {**PROMISE, "unit": dg.User()}
PAGES = ["p1", "p2", "p3"]
RECIPES = {
    "concentrated": papers.Concentrated(papers.Known(radius=0.5), rounds=3),
}


def fit(model: learn.LinearModel, **options: Any) -> Any:
    return model.fit(X, Y, users=OWNERS, **options)


def solver() -> Sgd:
    return Sgd(Power(0.5, 0.6))


def fit_of(kind: Any, **options: Any) -> Any:
    return fit(kind(n_users=300, rounds=6, **options, **PROMISE))


def mean_by(method: Any) -> Any:
    promise = {**PROMISE, "epsilon": 20.0}
    return dg.mean_of_users(
        X, users=OWNERS, bound=2.0, n_users=300, method=method, radius=1.0, **promise
    )


def chosen_by(method: Any) -> Any:
    return dg.select(
        [0.0, 0.5], lambda c, x: abs(x - c), X[:, 0], OWNERS, method=method, score=True, n_users=300,
        **PROMISE,
    )  # fmt: skip


def summed_by(kind: Any) -> Any:
    return kind(n_users=600, dim=3, epsilon=2.0, delta=1e-6).simulate(X, random_state=5)


CASES: dict[str, Callable[[], Any]] = {
    "histogram": lambda: dg.histogram(TABLE, "page", **USER),
    "histogram of elements": lambda: dg.histogram(
        TABLE, "page", unit=dg.Element("topic"), domain=PAGES, **PROMISE
    ),
    "histogram of records": lambda: dg.histogram(
        TABLE, "page", unit=dg.Record(), domain=PAGES, noise="laplace", **PROMISE
    ),
    "histogram with weights": lambda: dg.histogram(
        TABLE, "page", weight="paid", domain=PAGES, relation="replace", clip=9.0, **USER
    ),
    "histogram of bounded users": lambda: dg.histogram(
        TABLE, "page", unit=dg.User(2, by="topic"), domain=PAGES, **PROMISE
    ),
    "top": lambda: dg.top(TABLE, "page", **USER),
    "top of elements": lambda: dg.top(TABLE, "page", unit=dg.Element("page"), **PROMISE),
    "top by gumbel": lambda: dg.top(TABLE, "page", k=2, method="gumbel", domain=PAGES, **USER),
    "top by names": lambda: dg.top(TABLE, "page", method="gaussian", counts=False, **USER),
    "top of records": lambda: dg.top(
        TABLE, ["page", "topic"], unit=dg.Record(), max_items=2, **PROMISE
    ),
    "count": lambda: dg.count(TABLE, **USER),
    "count in pools of cells": lambda: dg.count(
        TABLE, by="page", unit=dg.Element("page"), domain=[f"p{i}" for i in range(1, 21)], **PROMISE
    ),
    "count by": lambda: dg.count(TABLE, by=["page", "topic"], **USER),
    "sum": lambda: dg.sum(TABLE, "paid", by="topic", **USER),
    "mean": lambda: dg.mean(TABLE, "paid", by="topic", domain=["t0", "t1"], **USER),
    "mean in bounds": lambda: dg.mean(TABLE, "paid", bounds=(0, 30), **USER),
    "variance": lambda: dg.variance(TABLE, "paid", bounds=(0, 30), **USER),
    "quantiles": lambda: dg.quantiles(TABLE, "paid", [0.1, 0.5], **USER),
    "quantiles by": lambda: dg.quantiles(
        TABLE, "paid", by="topic", bounds=(0, 30), noise="laplace", domain=["t0"], **USER
    ),
    "elements per user": lambda: dg.elements_per_user(TABLE, "page", **USER),
    "plan": lambda: dg.plan_histogram(unit=dg.User(), epsilon=1.0, delta=1e-6, items=10),
    **{
        f"mean of users, {method}": partial(mean_by, method)
        for method in ("clip", "recentred", "softcore", "winsorized")
    },
    "mean of users without a roster": lambda: dg.mean_of_users(
        X, users=OWNERS, bound=2.0, **PROMISE
    ),
    "mean at a sensitivity": lambda: dg.papers.release_mean(X, sensitivity=1.0, **PROMISE),
    **{
        f"select by {method}": partial(chosen_by, method)
        for method in ("permute_and_flip", "exponential", "repeat")
    },
    "typical records": lambda: papers.typical_records(OWNERS, epsilon=1.0, random_state=5),
    **{
        kind.__name__: partial(fit_of, kind)
        for kind in (
            learn.LinearRegression, learn.HuberRegressor, learn.QuantileRegressor,
            learn.PoissonRegressor,
        )
    },
    **{
        kind.__name__: partial(fit_of, kind, classes=[0, 1])
        for kind in (learn.LogisticRegression, learn.LinearSVC)
    },
    "fit of elements": lambda: fit(
        learn.LogisticRegression(
            unit=dg.Element(), rounds=6, sampling_rate=0.5, classes=[0, 1], **PROMISE
        ),
        elements=CELLS,
    ),
    "fit without a roster or labels": lambda: fit(
        learn.LogisticRegression(rounds=6, **{**PROMISE, "epsilon": 8.0})
    ),
    "fit with intervals": lambda: fit(
        learn.LinearRegression(
            n_users=300, rounds=20, intervals=0.3, exact=True, **{**PROMISE, "epsilon": 50.0}
        )
    ).confidence_intervals(),
    "fit that is tuned": lambda: fit(
        learn.LogisticRegression(
            n_users=300, rounds=4, classes=[0, 1], tune={"clip": [0.5, 1.0]}, **PROMISE
        )
    ),
    "fit by a recipe": lambda: fit(
        learn.LogisticRegression(
            n_users=300, classes=[0, 1], algorithm=RECIPES["concentrated"], **PROMISE
        )
    ),
    "fit through a shuffler": lambda: fit(
        learn.LogisticRegression(n_users=300, rounds=3, classes=[0, 1], trust="shuffle", **PROMISE)
    ),
    "fit of a stream": lambda: fit(
        learn.LogisticRegression(n_users=300, rounds=3, classes=[0, 1], trust="pan", **PROMISE)
    ),
    "minimise": lambda: learn.minimise(
        Logistic(), X, Y, np.zeros(3), solver=solver(), users=OWNERS, rounds=4, n_users=300, **PROMISE
    ),
    "minimise squares exactly": lambda: learn.minimise(
        Squared(), X, Y, np.zeros(3), solver=solver(), users=OWNERS, rounds=4, exact=True, **PROMISE
    ),
    **{
        kind.__name__: partial(summed_by, kind)
        for kind in (VectorSum, PoissonSum, BlindSum)
    },
    "ScalarSum": lambda: ScalarSum(n_users=600, epsilon=2.0, delta=1e-6).simulate(
        np.abs(X[:, 0]), random_state=5
    ),
}  # fmt: skip


def plain(value: Any) -> Any:
    """A result as JSON values: floats to so many digits, what is random in names left out."""
    if hasattr(value, "save") and hasattr(value, "guarantee_"):
        return [
            plain(value.guarantee_), plain(value.coef_), plain(value.intercept_),
            plain(value.history_.gradients if hasattr(value.history_, "gradients") else None),
        ]  # fmt: skip
    if hasattr(value, "to_arrow"):
        return [
            plain(value.to_arrow().to_pydict()),
            plain(value.guarantee),
            sorted(value.asked.items()),
        ]
    if isinstance(value, dg.Guarantee):
        told = value.to_dict()
        return plain({**told, "user": "", "elements": told["elements"].partition("#")[0]})
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else str(value)
    if value is None or isinstance(value, str | int | bool):
        return value
    if is_dataclass(value):
        names = [item.name for item in fields(value)]
        return {name: plain(getattr(value, name)) for name in names if not name.startswith("_")}
    return str(value)


def assert_same(found: Any, known: Any, where: str) -> None:
    """Equal, but for the last digits of floats."""
    if isinstance(known, dict) and isinstance(found, dict):
        assert found.keys() == known.keys(), where
        for key in known:
            assert_same(found[key], known[key], f"{where}.{key}")
    elif isinstance(known, list) and isinstance(found, list):
        assert len(found) == len(known), where
        for place, (one, two) in enumerate(zip(found, known, strict=True)):
            assert_same(one, two, f"{where}[{place}]")
    elif isinstance(known, float) and isinstance(found, float | int):
        assert found == pytest.approx(known, rel=1e-6, abs=1e-12), where
    else:
        assert found == known, where


@pytest.mark.parametrize("name", CASES)
def test_what_is_published_is_as_it_was(name: str) -> None:
    known = json.loads(WRITTEN.read_text()) if WRITTEN.exists() else {}
    found = json.loads(json.dumps(plain(CASES[name]())))
    if os.environ.get("DPGRAIN_GOLDENS") == "write":
        known[name] = found
        lines = (f"{json.dumps(each)}: {json.dumps(known[each])}" for each in sorted(known))
        WRITTEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        return
    assert_same(found, known.get(name), name)


def test_every_golden_has_its_case() -> None:
    assert set(json.loads(WRITTEN.read_text())) == set(CASES)
