"""Valid calls of methods that no docstring shows, by the class that has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.ledger import cases as ledgers

import dpgrain as dg
from dpgrain import learn, optimize, papers, shuffle
from dpgrain.accounting import Event, Gaussian
from dpgrain.noise import SeededSource
from dpgrain.planning import plan_units

_PROMISE: dict[str, Any] = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6, "random_state": 1}
_NUMBERS: dict[str, Any] = {"n_users": 20, "epsilon": 2.0, "delta": 1e-5}


@cache
def _folder() -> Path:
    return Path(mkdtemp(prefix="dpgrain-shown-"))


def _rows() -> pa.Table:
    number = np.arange(60)
    return pa.table(
        {
            "who": number // 3,
            "with": number // 6,
            "item": [f"i{i % 3}" for i in number],
            "cell": [f"c{i % 2}" for i in number],
            "x": number / 60.0,
            "at": pa.array(20_454 + number % 9, pa.int32())
            .cast(pa.date32())
            .cast(pa.timestamp("us")),
        }
    )


def _release(**more: Any) -> Any:
    asked: dict[str, Any] = {"by": "item", "domain": ["i0", "i1", "i2"], "clip": 2.0, **more}
    return dg.count(dg.read(_rows(), user="who"), **asked, **_PROMISE)


def _guarantee() -> None:
    _releases()
    dg.Guarantee.read_for_output(_folder() / "all.csv")
    guarantee = _release().guarantee
    dg.Guarantee.from_json(guarantee.to_json())
    dg.Guarantee.from_dict(guarantee.to_dict())
    guarantee.plot()
    guarantee.report(_folder() / "guarantee.html")


def _estimates() -> None:
    table = dg.read(_rows(), user="who")
    dg.mean(table, "x", bounds=(0, 1), by="item", domain=["i0"], clip=1.0, **_PROMISE).largest(1)


def _histogram() -> None:
    release = _release()
    dg.Release.load(release.save(_folder() / "release.parquet"))
    release.write(_folder() / "release.csv")
    release.report(_folder() / "release.html")
    release.plot(top=2)
    release.consistent(total=60.0)
    release.shrunk(prior=[1.0, 2.0, 3.0])
    release.order_loss([1.0, 2.0, 3.0], 1.0)
    parts = _release(by=["item", "cell"], domain={"item": ["i0"], "cell": ["c0", "c1"]}, clip=2)
    parts.reconciled(_release(by="cell", domain=["c0", "c1"], clip=2))


def _release_file() -> Path:
    pq.write_table(_rows(), _folder() / "visits.parquet")
    text = (
        '[table]\nsource = "visits.parquet"\nuser = "who"\nn_users = 20\n[budget]\nunit = "user"\n'
    )
    text += (
        'epsilon = 1.0\ndelta = 1e-6\n[release.all]\nstatistic = "count"\nclip = 2\nshare = 1.0\n'
    )
    text += 'output = "all.csv"\n'
    path = _folder() / "releases.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _planned() -> None:
    planned = dg.plan_releases(_release_file())
    planned.with_epsilon(2.0)
    planned.run(random_state=1, again=True)


def _releases() -> None:
    made = dg.releases(_release_file(), random_state=1, again=True)
    made.report(_folder() / "releases.html")
    made["all"]


def _opened() -> dg.Ledger:
    place = Path(mkdtemp(dir=_folder())) / "visits.ledger"
    return dg.Ledger.create(place, name="visits", promises=[ledgers.USERS])


def _ledger() -> None:
    of_users, ledger, other = ledgers.of_users(), _opened(), _opened()
    _opened().add(ledgers.OF_DAYS)
    ledger.rehearse(of_users, mark="a")
    ledger.contains(ledger.charge(of_users, mark="a"))
    ledger.left(1)
    ledger.remaining_text(1)
    ledger.fullest(1)
    ledger.projected_charges(1, of_users)
    ledger.projected_share(1, of_users)
    ledger.risk(1)
    ledger.plot()
    ledger.report(_folder() / "ledger.html")
    other.renewal_text(other.renew(1, ledgers.USERS.renewed(1.0, 1e-6)).number)


def _budget() -> None:
    with dg.budget(2.0, 1e-5) as whole:
        items = dg.count(
            dg.read(_rows(), user="who"),
            by="item",
            domain=["i0"],
            clip=2.0,
            unit=dg.User(),
            share=0.5,
            random_state=1,
        )
    whole.report(_folder() / "budget.html", {"items": items})


def _facts() -> None:
    dg.Fact.from_dict(dg.Fact("enrolled-users", (1000,)).to_dict())


def _promises() -> None:
    dg.LastingPromise.of(dg.User(), 1.0, 1e-6, window=dg.AnyDays(30, "day"))
    dg.LastingPromise.of(dg.User(), 1.0, 1e-6).renewed(1.0, 1e-6)


def _shared() -> None:
    table = dg.read(_rows(), user=["who", "with"])
    table.where(item="i0")
    table.derive(double="x * 2")
    table.filter("x > 0.1")
    table.with_cells("group", of="item", by=str.upper)
    table.with_days("day", of="at")
    with suppress(dg.ParameterError):
        table.distinct("item")


def _fitted(kind: Any, **more: Any) -> Any:
    rng = np.random.default_rng(0)
    X, users = rng.normal(size=(60, 2)), np.arange(60) // 3
    y = (X[:, 0] > 0).astype(float)
    few: dict[str, Any] = {"rounds": 2, "epsilon": 4.0, "random_state": 0, "n_users": 20}
    model = kind(**few, **more).fit(X, y, users=users)
    model.predict(X)
    model.score(X, y)
    for name in ("predict_proba", "decision_function"):
        if hasattr(model, name):
            getattr(model, name)(X)
    return model


def _regression() -> None:
    model = _fitted(learn.LinearRegression, intervals=0.3, clip="auto")
    model.confidence_intervals()
    model.save(_folder() / "model.json")
    model.plot()
    model.report(_folder() / "model.html")


def _minimum() -> None:
    X, users = np.linspace(-1.0, 1.0, 60)[:, None], np.arange(60) // 3
    options: dict[str, Any] = {"rounds": 2, "epsilon": 4.0, "n_users": 20, "intervals": 0.3}
    solver = optimize.Sgd(optimize.Power(1.0))
    learn.minimise(
        optimize.Squared(), X, X[:, 0], [0.0], users=users, solver=solver, random_state=0, **options
    ).confidence_intervals()


def _sum(kind: Any, value: Any, **more: Any) -> Any:
    made = kind(**_NUMBERS, **more)
    kind.from_json(made.to_json())
    made.randomizer()
    made.shuffler()
    made.analyzer()
    made.simulate([value] * 20, random_state=1)
    made.event_with(15)
    made.guarantee_with(0.75)
    return made


def _vectors() -> None:
    made = _sum(shuffle.VectorSum, [0.5, 0.5], dim=2)
    made.plot()
    made.report(_folder() / "sum.html")


def _messages() -> None:
    shuffle.VectorSum(dim=2, **_NUMBERS).analyzer().estimate_messages([[0, 1], [1, 1]], 20)


def _streams() -> None:
    stream = papers.PanPrivateStream(
        papers.PanPrivate(1.0, 5.0, n_users=99999, rounds=1), dimension=2
    )
    stream.receive([1.0, 0.0])
    papers.PanPrivateStream.from_json(stream.to_json(), SeededSource(1))


def _sources() -> None:
    SeededSource.from_state(SeededSource(4).state()).words(3)


def _events() -> None:
    event = Gaussian(5.0)
    Event.from_json(event.to_json())
    Event.from_dict(event.to_dict())
    event.epsilon(1e-6)
    event.delta(1.0)
    event.profile([0.5, 1.0])
    event.tradeoff([0.1, 0.5])


def _units() -> None:
    plan = plan_units(epsilon=1.0, delta=1e-6, n_users=1000, records=9, elements=3, cells=4)
    plan.plot()


SHOWN: Mapping[str, Callable[[], object]] = {
    "dpgrain.Budget": _budget,
    "dpgrain.Histogram": _histogram,
    "dpgrain.Estimates": _estimates,
    "dpgrain.Fact": _facts,
    "dpgrain.Guarantee": _guarantee,
    "dpgrain.LastingPromise": _promises,
    "dpgrain.Ledger": _ledger,
    "dpgrain.PlannedReleases": _planned,
    "dpgrain.Releases": _releases,
    "dpgrain.SharedTable": _shared,
    "dpgrain.accounting.Gaussian": _events,
    "dpgrain.learn.Minimum": _minimum,
    "dpgrain.learn.LinearRegression": _regression,
    "dpgrain.learn.LogisticRegression": partial(_fitted, learn.LogisticRegression, classes=[0, 1]),
    "dpgrain.learn.LinearSVC": partial(_fitted, learn.LinearSVC, classes=[0, 1]),
    "dpgrain.learn.PoissonRegressor": partial(_fitted, learn.PoissonRegressor),
    "dpgrain.learn.HuberRegressor": partial(_fitted, learn.HuberRegressor),
    "dpgrain.learn.QuantileRegressor": partial(_fitted, learn.QuantileRegressor),
    "dpgrain.noise.SeededSource": _sources,
    "dpgrain.papers.PanPrivateStream": _streams,
    "dpgrain.planning.UnitsPlan": _units,
    "dpgrain.shuffle.Analyzer": _messages,
    "dpgrain.shuffle.VectorSum": _vectors,
    "dpgrain.shuffle.PoissonSum": partial(_sum, shuffle.PoissonSum, [0.5, 0.5], dim=2),
    "dpgrain.shuffle.ScalarSum": partial(_sum, shuffle.ScalarSum, 0.5),
}
