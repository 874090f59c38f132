"""The public functions that publish, each with the options that their promises are searched over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

import dpgrain as dg
from dpgrain import learn, means, recipes, shuffle
from dpgrain.optimize import Ball, Constant, Last, Sgd, Squared
from dpgrain.testing.promises import Publisher

RNG = np.random.default_rng(0)
USERS = np.repeat(np.arange(40), 3)
CELLS = np.tile(["p", "q", "p"], 40)
X = RNG.uniform(-1, 1, (len(USERS), 2))
Y = (X[:, 0] > 0).astype(float)
TABLE = pa.table({"who": USERS, "item": np.tile(["a", "b", "c"], 40), "cell": CELLS, "x": X[:, 0]})
#: What every function is asked for; half of the promises are shares of a budget.
UNITS = (dg.Record(), dg.Element("cell"), dg.User(), dg.User(2, by="cell"))
RELATIONS = ("zero_out", "replace")
PROMISES: tuple[Mapping[str, float], ...] = (
    {"epsilon": 0.1, "delta": 1e-6},
    {"epsilon": 1.0, "delta": 1e-9},
    {"epsilon": 1.0, "delta": 0.0},
    {"epsilon": 6.0, "delta": 1e-6},
    {"share": 0.07},
    {"share": 1.0},
)
USER = (dg.User(),)


def _table(publish: Any, *columns: str) -> Any:
    def asked(n_users: int | None, where: bool = False, **options: Any) -> Any:
        table = dg.read(TABLE, user="who", n_users=n_users)
        if where:
            table = table.where(item=["a", "b"])
        return publish(table, *columns, **options)

    return asked


ROSTERS = (None, 50)
STATED: Mapping[str, Sequence[Any]] = {
    "n_users": ROSTERS,
    "where": (False, True),
    "clip": ("auto", 3.0, dg.AutoClip(share=0.3)),
    "domain": (None, ["a", "b", "z"]),
}
LAWS: Mapping[str, Sequence[Any]] = {**STATED, "noise": ("auto", "gaussian", "laplace")}
GROUPED: Mapping[str, Sequence[Any]] = {**LAWS, "by": (None, "item")}
BOUNDS: Mapping[str, Sequence[Any]] = {**GROUPED, "bounds": (None, (-1.0, 1.0), (0.0, 2.0))}


def _moments(publish: Any) -> Publisher:
    def asked(by: Any, domain: Any, **options: Any) -> Any:
        return _table(publish, "x")(by=by, domain=domain if by else None, **options)

    return Publisher(asked, BOUNDS)


def _count(value: Any, by: Any, domain: Any, **options: Any) -> Any:
    columns = () if value is None else (value,)
    return _table(dg.count, *columns)(by=by, domain=domain if by else None, **options)


def _distribution(by: Any, domain: Any, **options: Any) -> Any:
    return _table(dg.distribution, "x")(by=by, domain=domain if by else None, **options)


def _elements_per_user(unit: Any, **options: Any) -> Any:
    by = None if isinstance(unit, dg.Element) else "cell"
    return _table(dg.elements_per_user, *([by] if by else []))(unit=unit, **options)


def _of_arrays(unit: Any) -> dict[str, Any]:
    """The arguments of functions that take arrays, for a unit of a table."""
    if isinstance(unit, dg.User) and unit.max_elements is not None:
        return {"unit": dg.User(unit.max_elements), "elements": CELLS}
    return (
        {"unit": dg.Element(), "elements": CELLS}
        if isinstance(unit, dg.Element)
        else {"unit": unit}
    )


def _mean_of_users(**options: Any) -> Any:
    return dg.mean_of_users(X[:, :1], users=USERS, bound=2.0, **options)


def _select(unit: Any, **options: Any) -> Any:
    def loss(candidate: float, rows: Any) -> Any:
        return np.abs(rows - candidate)

    return dg.select([0.0, 1.0, 2.0], loss, X[:, 0], USERS, **_of_arrays(unit), **options)


def _release_mean(**options: Any) -> Any:
    return means.release_mean(X, sensitivity=0.3, **options)


def _typical(delta: float = 0.0, **options: Any) -> Any:
    if delta:
        raise dg.ParameterError("this choice is pure.")
    return recipes.typical_records(USERS, **options)


def _minimise(unit: Any, **options: Any) -> Any:
    steps = Sgd(Constant(0.1), Ball(2.0), Last())
    return learn.minimise(
        Squared(), X, Y, np.zeros(2), solver=steps, users=USERS, **_of_arrays(unit), **options
    )


ESTIMATORS = (
    "HuberRegressor",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "PoissonRegressor",
    "QuantileRegressor",
)
FITS: Mapping[str, Sequence[Any]] = {
    "n_users": ROSTERS,
    "clip": (None, 0.5, "auto"),
    "rounds": (None, 1, 7),
    "sampling": ("pairs", "users", "full"),
    "sampling_rate": (None, 0.3),
    "elements_per_user": (1.0, 2.0, "auto"),
    "intervals": (0.0, 0.2),
    "exact": (False, True),
    "algorithm": ("auto", Sgd(Constant(0.1), Ball(2.0), Last())),
}


def _fit(estimator: str, unit: Any, **options: Any) -> Any:
    arrays = _of_arrays(unit)
    kind = arrays.pop("unit")
    return getattr(learn, estimator)(unit=kind, **options).fit(X, Y, users=USERS, **arrays)


def _shuffled(protocol: Any, rows: Any, **fixed: Any) -> Publisher:
    def asked(share: float | None = None, **options: Any) -> Any:
        numbers = {"epsilon": 1.0, "delta": 1e-6, **options}
        return protocol(n_users=len(rows), **fixed, **numbers).simulate(rows, share=share)

    return Publisher(asked, {"honest_fraction": (1.0, 0.8)}, (dg.User(),))


VECTORS = X[:40] / 2

PUBLISHERS: dict[str, Publisher] = {
    "dpgrain.histogram": Publisher(
        _table(dg.histogram, "item"),
        {**STATED, "weight": (None, "x"), "noise": ("gaussian", "laplace")},
    ),
    "dpgrain.count": Publisher(_count, {**GROUPED, "value": (None, "x")}),
    "dpgrain.sum": _moments(dg.sum),
    "dpgrain.mean": _moments(dg.mean),
    "dpgrain.variance": _moments(dg.variance),
    "dpgrain.quantiles": _moments(dg.quantiles),
    "dpgrain.distribution": Publisher(_distribution, {**GROUPED, "at": (None, [0.0, 0.5])}),
    "dpgrain.top": Publisher(
        _table(dg.top, "item"),
        {**STATED, "k": (None, 2), "method": ("auto", "gaussian", "truncated", "laplace", "gumbel"),
         "counts": (True, False)},
    ),
    "dpgrain.elements_per_user": Publisher(
        _elements_per_user, {"n_users": ROSTERS, "noise": ("gaussian", "laplace")}
    ),
    "dpgrain.mean_of_users": Publisher(
        _mean_of_users,
        {"n_users": (None, 40, 20_000), "radius": (None, 0.5),
         "method": ("auto", "clip", "recentred", "winsorized", "softcore")},
        USER,
    ),
    "dpgrain.select": Publisher(
        _select,
        {"n_users": ROSTERS, "score": (False, True),
         "method": ("auto", "permute_and_flip", "exponential", "repeat")},
    ),
    "dpgrain.means.release_mean": Publisher(
        _release_mean, {"noise": ("gaussian", "laplace")}, (dg.Element("cell"),)
    ),
    "dpgrain.recipes.typical_records": Publisher(_typical, {"n_users": ROSTERS}, USER),
    "dpgrain.learn.minimise": Publisher(
        _minimise,
        {name: FITS[name] for name in ("n_users", "sampling", "sampling_rate", "exact")}
        | {"rounds": (1, 7), "elements_per_user": (1.0, 2.0)},
    ),
    "estimators": Publisher(_fit, {"estimator": ESTIMATORS, **FITS}),
    "dpgrain.shuffle.VectorSum": _shuffled(shuffle.VectorSum, VECTORS, dim=2),
    "dpgrain.shuffle.PoissonSum": _shuffled(shuffle.PoissonSum, VECTORS, dim=2),
    "dpgrain.shuffle.BlindSum": _shuffled(shuffle.BlindSum, VECTORS, dim=2),
    "dpgrain.shuffle.ScalarSum": _shuffled(shuffle.ScalarSum, VECTORS[:, 0]),
}  # fmt: skip

#: The public names that are asked.
NAMES = (PUBLISHERS.keys() - {"estimators"}) | {f"dpgrain.learn.{name}" for name in ESTIMATORS}
