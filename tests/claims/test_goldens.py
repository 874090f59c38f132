"""Seeded results of every public function equal the stored ones, so that code can move safely.

After an intended change of results, run ``DPGRAIN_GOLDENS=write pytest
tests/claims/test_goldens.py`` and read the difference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.claims.golden import check, compare, observe
from tests.papers.recipes.cases import RECIPES

import dpgrain as dg
from dpgrain import learn, papers
from dpgrain.accounting import Gaussian
from dpgrain.choices.repeated_runs import best_of
from dpgrain.noise import RandomSource, SeededSource
from dpgrain.noise.noisy_sums import with_gaussian
from dpgrain.optimize import Logistic, Power, Sgd, Squared
from dpgrain.shuffle import PoissonSum, ScalarSum, VectorSum

GOLDENS = Path(__file__).with_name("goldens.json")

GENERATOR = np.random.default_rng(20)
ROWS = pa.table(
    {
        "who": GENERATOR.integers(0, 400, 4000),
        "page": np.array([f"p{int(i)}" for i in GENERATOR.geometric(0.2, 4000)]),
        "topic": np.array([f"t{int(i)}" for i in GENERATOR.integers(0, 3, 4000)]),
        "when": np.arange(4000) % 24,
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
CONCENTRATED = papers.Concentrated(papers.Known(radius=0.5), rounds=3)
PAGES = ["p1", "p2", "p3"]


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


def minimum_by(name: str) -> Any:
    return learn.minimise(
        Logistic(), X, Y, np.zeros(3), solver=RECIPES[name], users=OWNERS, n_users=300,
        **{**PROMISE, "epsilon": 8.0},
    )  # fmt: skip


def noisy_mean(source: RandomSource) -> tuple[float, Any]:
    value = with_gaussian(np.zeros(1, dtype=np.int64), 1000.0, source=source)
    return float(value[0]), value


def streamed() -> Any:
    stream = papers.PanPrivateStream(
        papers.PanPrivate(1.0, 5.0, n_users=600, rounds=6), 3, SeededSource(5)
    )
    return [mean for mean in map(stream.receive, X) if mean is not None]


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
    "mean by topic": lambda: dg.mean(TABLE, "paid", by="topic", domain=["t0", "t1"], **USER),
    "mean in bounds": lambda: dg.mean(TABLE, "paid", bounds=(0, 30), **USER),
    "variance": lambda: dg.variance(TABLE, "paid", bounds=(0, 30), **USER),
    "std": lambda: dg.std(TABLE, "paid", **USER),
    "covariance": lambda: dg.covariance(
        TABLE, "paid", "when", bounds=(0, 30), other_bounds=(0, 24), **USER
    ),
    "correlation": lambda: dg.correlation(
        TABLE, "paid", "when", bounds=(0, 30), other_bounds=(0, 24), unit=dg.Record(), **PROMISE
    ),
    "distribution": lambda: dg.distribution(TABLE, "paid", at=[1.0, 5.0, 20.0], **USER),
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
            n_users=300, classes=[0, 1], algorithm=CONCENTRATED,
            **PROMISE,
        )
    ),
    **{f"minimise by {name}": partial(minimum_by, name) for name in RECIPES},
    "accuracy": lambda: learn.accuracy(Y, X[:, 1] > 0, classes=[0, 1], users=OWNERS, **PROMISE),
    "auc": lambda: learn.auc(Y, X[:, 1], positive=1, users=OWNERS, **PROMISE),
    "r2": lambda: learn.r2(Y, X[:, 1], lower=0.0, upper=1.0, users=OWNERS, **PROMISE),
    "best of several runs": lambda: best_of(
        noisy_mean, event=Gaussian(4.0), mean=5.0, source=SeededSource(5)
    ),
    "stream of sums": streamed,
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
        for kind in (VectorSum, PoissonSum)
    },
    "ScalarSum": lambda: ScalarSum(n_users=600, epsilon=2.0, delta=1e-6).simulate(
        np.abs(X[:, 0]), random_state=5
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_seeded_release_equals_its_golden(name: str) -> None:
    check(name, observe(CASES[name]), GOLDENS)


def test_every_golden_has_a_case() -> None:
    assert set(json.loads(GOLDENS.read_text())) == set(CASES)


@pytest.mark.parametrize("part", ["numbers", "epsilon", "draws"])
def test_compare_notices_each_changed_number(part: str) -> None:
    golden = json.loads(GOLDENS.read_text())["mean by topic"]
    compare(golden, golden)
    text = json.dumps(golden[part])
    numbers = set(re.findall(r"\d+\.\d+", text))
    assert len(numbers) > 2
    for number in numbers:
        changed = json.loads(text.replace(number, str(float(number) * 1.001)))
        with pytest.raises(AssertionError):
            compare({**golden, part: changed}, golden)


def test_compare_notices_another_order_of_draws() -> None:
    golden = json.loads(GOLDENS.read_text())["top"]
    with pytest.raises(AssertionError):
        compare({**golden, "draws": golden["draws"][::-1]}, golden)
