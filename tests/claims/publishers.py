"""The public functions that publish, each with the options that their promises are searched over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from tests.promises import Publisher

import dpgrain as dg
from dpgrain import learn, papers, shuffle
from dpgrain.learn.estimator_names import ESTIMATORS
from dpgrain.optimize import Ball, Constant, Last, Sgd, Squared

#: The total budget of every function; half of the guarantees are shares of a budget.
PROMISES: tuple[Mapping[str, float], ...] = (
    {"epsilon": 0.1, "delta": 1e-6},
    {"epsilon": 1.0, "delta": 1e-9},
    {"epsilon": 1.0, "delta": 0.0},
    {"epsilon": 6.0, "delta": 1e-6},
    {"share": 0.07},
    {"share": 1.0},
)
_PURE_MEAN = "dpgrain.mean_of_users, pure"
#: Functions, or paths of them, without δ.
PURE = ("dpgrain.papers.typical_records", _PURE_MEAN)
USER = (dg.User(),)
ROSTERS = (None, 50)
STATED: Mapping[str, Sequence[Any]] = {
    "n_users": ROSTERS,
    "where": (False, True),
    "clip": ("auto", 3.0, dg.AutoClip(share=0.3)),
    "domain": (None, ["a", "b", "z"]),
}
LAWS: Mapping[str, Sequence[Any]] = {**STATED, "noise": ("auto", "gaussian", "laplace")}
GROUPED: Mapping[str, Sequence[Any]] = {**LAWS, "by": (None, "item")}
OWNED: Mapping[str, Sequence[Any]] = {"user": ("who", ["who", "with"])}
SHARE: Mapping[str, Sequence[Any]] = {"estimate_clipping": (False, True)}
BOUNDS: Mapping[str, Sequence[Any]] = {**GROUPED, "bounds": (None, (-1.0, 1.0), (0.0, 2.0))}
PAIRS: Mapping[str, Sequence[Any]] = {
    **GROUPED,
    **SHARE,
    "bounds": ((-1.0, 1.0), (0.0, 2.0)),
    "other": ("x", "x / 2"),
    "other_bounds": ((-1.0, 1.0),),
}
FITS: Mapping[str, Sequence[Any]] = {
    "n_users": ROSTERS,
    "clip": (None, 0.5, "auto"),
    "rounds": (None, 1, 7),
    "sampling": ("pairs", "users", "full"),
    "sampling_rate": (None, 0.3),
    "elements_per_user": (1.0, 2.0, "auto"),
    "intervals": (0.0, 0.2),
    "weights": ("users", "records"),
    "exact": (False, True),
    "algorithm": ("auto", Sgd(Constant(0.1), Ball(2.0), Last())),
}


@dataclass(frozen=True, eq=False)
class People:
    """Rows of people, and the public functions that publish from them.

    Args:
        users: (m,) the user of each row.
        items: (m,) the item of each row, ``"a"``, ``"b"`` or ``"c"``.
        cells: (m,) its cell, ``"p"`` or ``"q"``.
        X: (m, 2) its numbers.
    """

    users: Any
    items: Any
    cells: Any
    X: Any

    @staticmethod
    def of(seed: int, rows: int = 120, each: int = 3) -> People:
        """People with this number of rows each."""
        rng = np.random.default_rng(seed)
        items, cells = rng.choice(["a", "b", "c"], rows), rng.choice(["p", "q"], rows)
        return People(np.arange(rows) // each, items, cells, rng.uniform(-1, 1, (rows, 2)))

    @property
    def y(self) -> Any:
        return (self.X[:, 0] > 0).astype(float)

    @property
    def who(self) -> Any:
        """The users as a named column, by which guarantees identify them; an array has a token."""
        return pd.Series(self.users, name="who")

    def read(self, rows: pa.Table, **options: Any) -> dg.UserTable:
        table: dg.UserTable = dg.read(rows, **options)
        return table

    def table(
        self,
        publish: Any,
        *columns: Any,
        n_users: int | None,
        where: bool = False,
        user: Any = "who",
        **options: Any,
    ) -> Any:
        """Release from a table of these rows, or of a region of it."""
        rows = {"who": self.users, "item": self.items, "cell": self.cells, "x": self.X[:, 0]}
        whose = pa.string() if np.asarray(self.users).dtype.kind == "U" else pa.int64()
        kinds = [whose, pa.string(), pa.string(), pa.float64()]
        if user != "who":
            # A second owner of each row.
            rows, kinds = {**rows, "with": np.asarray(self.users) // 3}, [*kinds, pa.int64()]
        schema = pa.schema(dict(zip(rows, kinds, strict=True)))
        table = self.read(pa.table(rows, schema), user=user, n_users=n_users)
        if where:
            table = table.where(item=["a", "b"])
        return publish.query(table, *columns, **options)

    def grouped(self, publish: Any, value: Any, by: Any, domain: Any, **options: Any) -> Any:
        """Release a statistic of a column, by item or in total."""
        columns = () if value is None else (value,)
        domain = domain if by else None
        return self.table(publish, *columns, by=by, domain=domain, **options)

    def elements_per_user(self, unit: Any, **options: Any) -> Any:
        by = () if isinstance(unit, dg.Element) else ("cell",)
        return self.table(dg.elements_per_user, *by, unit=unit, **options)

    def marginals(self, workload: Any, **options: Any) -> Any:
        domain = {"item": ["a", "b", "z"], "cell": ["p", "q"]}
        asked = {"workload": workload, "domain": domain, **options}
        return self.table(dg.marginals, [*domain], **asked)

    def arrays(self, unit: Any) -> dict[str, Any]:
        """The arguments of functions that take arrays, for a unit of a table."""
        if unit.level == "record" or unit == dg.User():
            return {"unit": unit, "users": self.who}
        plain = dg.Element() if unit.level == "element" else dg.User(unit.max_elements)
        return {"unit": plain, "users": self.who, "elements": pd.Series(self.cells, name="cell")}

    def select(self, unit: Any, **options: Any) -> Any:
        def loss(candidate: float, rows: Any) -> Any:
            return np.abs(rows - candidate)

        return dg.select.query([0.0, 1.0, 2.0], loss, self.X[:, 0], **self.arrays(unit), **options)

    def accuracy(self, unit: Any, **options: Any) -> Any:
        predicted = (self.X[:, 1] > 0).astype(float)
        asked = {**self.arrays(unit), **options}
        return learn.accuracy.query(self.y, predicted, classes=[0.0, 1.0], **asked)

    def auc(self, unit: Any, **options: Any) -> Any:
        asked = {**self.arrays(unit), **options}
        return learn.auc.query(self.y, self.X[:, 1], positive=1.0, **asked)

    def r2(self, unit: Any, **options: Any) -> Any:
        asked = {**self.arrays(unit), **options}
        return learn.r2.query(self.y, self.X[:, 1], lower=0.0, upper=1.0, **asked)

    def pure_mean(self, delta: float = 0.0, **options: Any) -> Any:
        """Release a winsorized mean of one column under pure privacy."""
        if delta:
            raise dg.ParameterError("this mean is pure.")
        asked = {"users": self.who, "method": "winsorized", "delta": 0.0, **options}
        return dg.mean_of_users.query(self.X[:, :1], **asked)

    def typical(self, delta: float = 0.0, **options: Any) -> Any:
        if delta:
            raise dg.ParameterError("this choice is pure.")
        return papers.typical_records.query(self.who, **options)

    def minimise(self, unit: Any, **options: Any) -> Any:
        steps = Sgd(Constant(0.1), Ball(2.0), Last())
        asked = {**self.arrays(unit), **options}
        return learn.minimise.query(Squared(), self.X, self.y, np.zeros(2), solver=steps, **asked)

    def fit(self, estimator: str, unit: Any, **options: Any) -> Any:
        arrays = self.arrays(unit)
        # Private labels are chosen among existing ones, which is not replayed.
        if estimator in ("LinearSVC", "LogisticRegression"):
            options["classes"] = [0.0, 1.0]
        model = getattr(learn, estimator)(unit=arrays.pop("unit"), **options)
        return model.query(self.X, self.y, **arrays)

    def shuffled(
        self, protocol: Any, share: float | None = None, random_state: Any = None, **options: Any
    ) -> Any:
        rows = self.X[::3] / 2
        numbers = {"epsilon": 1.0, "delta": 1e-6, "n_users": 40, **options}
        how = {"share": share, "random_state": random_state}
        if protocol is shuffle.ScalarSum:
            return protocol(**numbers).query(rows[:, 0], **how)
        return protocol(dim=2, **numbers).query(rows, **how)


def publishers(people: People) -> dict[str, Publisher]:
    def grouped(publish: Any, value: Any = "x") -> Any:
        return partial(people.grouped, publish, value)

    def shuffled(protocol: Any) -> Publisher:
        return Publisher(partial(people.shuffled, protocol), {"honest_fraction": (1.0, 0.8)}, USER)

    return {
        "dpgrain.histogram": Publisher(
            partial(people.table, dg.histogram, "item"),
            {**STATED, **OWNED, **SHARE, "weight": (None, "x"), "noise": ("gaussian", "laplace")},
        ),
        "dpgrain.count": Publisher(
            partial(people.grouped, dg.count), {**GROUPED, **OWNED, **SHARE, "value": (None, "x")}
        ),
        "dpgrain.sum": Publisher(grouped(dg.sum), {**BOUNDS, **OWNED, **SHARE}),
        "dpgrain.mean": Publisher(grouped(dg.mean), BOUNDS),
        "dpgrain.variance": Publisher(grouped(dg.variance), BOUNDS),
        "dpgrain.std": Publisher(grouped(dg.std), BOUNDS),
        "dpgrain.covariance": Publisher(grouped(dg.covariance), PAIRS),
        "dpgrain.correlation": Publisher(grouped(dg.correlation), PAIRS),
        "dpgrain.quantiles": Publisher(
            grouped(dg.quantiles), {**BOUNDS, "noise": ("gaussian", "laplace")}
        ),
        "dpgrain.distribution": Publisher(
            grouped(dg.distribution), {**GROUPED, "at": (None, [0.0, 0.5])}
        ),
        "dpgrain.top": Publisher(
            partial(people.table, dg.top, "item"),
            {
                **STATED,
                "k": (None, 2),
                "method": ("auto", "adaptive", "gaussian", "truncated", "laplace", "gumbel"),
                "counts": (True, False),
            },
        ),
        "dpgrain.elements_per_user": Publisher(
            people.elements_per_user, {"n_users": ROSTERS, "noise": ("gaussian", "laplace")}
        ),
        "dpgrain.marginals": Publisher(
            people.marginals,
            {
                **{name: STATED[name] for name in ("n_users", "where", "clip")},
                "workload": ("pairs", [["item"], ["cell"]]),
            },
        ),
        "dpgrain.mean_of_users": Publisher(
            partial(dg.mean_of_users.query, people.X[:, :1], users=people.who, bound=2.0),
            {
                "n_users": (None, 40, 20_000),
                "radius": (None, 0.5),
                "method": ("auto", "clip", "recentred", "winsorized", "softcore"),
                "weights": ("users", "records"),
                "max_records": (None, 3),
            },
            USER,
        ),
        _PURE_MEAN: Publisher(
            people.pure_mean,
            {"n_users": (400, 20_000), "radius": (0.5, None), "bound": (1.0, 2.0)},
            USER,
        ),
        "dpgrain.select": Publisher(
            people.select,
            {
                "n_users": ROSTERS,
                "score": (False, True),
                "method": ("auto", "permute_and_flip", "exponential", "repeat"),
            },
        ),
        "dpgrain.papers.release_mean": Publisher(
            partial(papers.release_mean.query, people.X, sensitivity=0.3),
            {"noise": ("gaussian", "laplace")},
            (dg.Element("cell"),),
        ),
        "dpgrain.papers.typical_records": Publisher(people.typical, {"n_users": ROSTERS}, USER),
        "dpgrain.learn.accuracy": Publisher(people.accuracy, {}),
        "dpgrain.learn.auc": Publisher(people.auc, {}),
        "dpgrain.learn.r2": Publisher(people.r2, {}),
        "dpgrain.learn.minimise": Publisher(
            people.minimise,
            {
                **{name: FITS[name] for name in ("n_users", "sampling", "sampling_rate", "exact")},
                "rounds": (1, 7),
                "elements_per_user": (1.0, 2.0),
                "weights": ("users", "records"),
                "max_records": (None, 3),
                "intervals": (0.0, 0.2),
            },
        ),
        "estimators": Publisher(people.fit, {"estimator": tuple(ESTIMATORS.values()), **FITS}),
        "dpgrain.shuffle.VectorSum": shuffled(shuffle.VectorSum),
        "dpgrain.shuffle.PoissonSum": shuffled(shuffle.PoissonSum),
        "dpgrain.shuffle.ScalarSum": shuffled(shuffle.ScalarSum),
    }


PUBLISHERS = publishers(People.of(0))
NAMES = (PUBLISHERS.keys() - {"estimators", _PURE_MEAN}) | {
    f"dpgrain.learn.{name}" for name in ESTIMATORS.values()
}
