"""Tables and queries for a budget."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pyarrow as pa

import dpgrain as dg

ROWS = pa.table(
    {
        "who": np.arange(400) % 40,
        "page": [f"p{i % 3}" for i in range(400)],
        "topic": ["x"] * 400,
        "paid": np.linspace(0, 10, 400),
    }
)
PAGES = ["p0", "p1", "p2"]


USER: dict[str, Any] = {"unit": dg.User()}


class Unread:
    name = title = "The table"
    untyped = False

    def columns(self) -> dict[str, str]:
        raise AssertionError("asked for its columns")

    def attach(self, connection: Any, used: Collection[str] | None = None) -> str:
        raise AssertionError("rows were read")


def table() -> dg.UserTable:
    return dg.read(ROWS, user="who", threads=1)


def unread() -> dg.UserTable:
    return dataclasses.replace(table(), source=Unread())


VECTORS = np.random.default_rng(3).normal(size=(400, 3)) / 3
OWNERS = np.arange(400) % 200
LABELS = (VECTORS[:, 0] > 0).astype(int)


def fitted(**options: Any) -> dg.Guarantee:
    options = {"n_users": 200, **options}
    model = dg.learn.LogisticRegression(classes=[0, 1], rounds=5, **options)
    return model.fit(VECTORS, LABELS, users=OWNERS).guarantee_


def fitted_on_samples(**options: Any) -> dg.Guarantee:
    return fitted(sampling_rate=0.3, clip=1.0, **options)


def by_recipe(**options: Any) -> dg.Guarantee:
    algorithm = dg.papers.Concentrated(dg.papers.Known(radius=0.5), rounds=3)
    return fitted_without_rounds(algorithm=algorithm, **options)


def fitted_without_rounds(**options: Any) -> dg.Guarantee:
    model = dg.learn.LogisticRegression(classes=[0, 1], n_users=200, **options)
    return model.fit(VECTORS, LABELS, users=OWNERS).guarantee_


def minimised(**options: Any) -> dg.Guarantee:
    solver = dg.optimize.Sgd(dg.optimize.Power(0.5, 0.6))
    return dg.learn.minimise(
        dg.optimize.Logistic(),
        VECTORS,
        LABELS,
        np.zeros(3),
        solver=solver,
        rounds=4,
        users=OWNERS,
        **options,
    ).guarantee


ARRAYS: dict[str, Callable[..., dg.Guarantee]] = {
    "fit": fitted,
    "fit on samples": fitted_on_samples,
    "fit by a recipe": by_recipe,
    "fit with intervals": lambda **o: fitted(intervals=0.2, n_users=900, **o),
    "fit without a roster": lambda **o: (
        dg.learn.LinearRegression(rounds=4, **o).fit(VECTORS, LABELS, users=OWNERS).guarantee_
    ),
    "minimise": minimised,
    "mean": lambda **o: (
        dg.mean_of_users(VECTORS, users=OWNERS, bound=1.0, n_users=200, **o).guarantee
    ),
    "mean without a roster": lambda **o: (
        dg.mean_of_users(VECTORS, users=OWNERS, bound=1.0, method="clip", **o).guarantee
    ),
    "select": lambda **o: (
        dg.select([0.0, 0.5], lambda c, x: abs(x - c), VECTORS[:, 0], OWNERS, **o).guarantee
    ),
    "typical records": lambda **o: dg.papers.typical_records(OWNERS, **o).guarantee,
    "mean at a sensitivity": lambda **o: (
        dg.papers.release_mean(VECTORS, sensitivity=1.0, relation="zero_out", **o).guarantee
    ),
}
