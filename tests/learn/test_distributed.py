"""A fit of rows that stay on a cluster is the exact fit of the same rows here, bit for bit."""

from __future__ import annotations

import itertools
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.charges import charge_of
from tests.conftest import Command
from tests.refusals import refuses
from tests.tables.engines.cluster import Cluster
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain import learn, papers
from dpgrain.accounting import Gaussian
from dpgrain.datasets import loans
from dpgrain.errors import DataError, ParameterError, SchemaError
from dpgrain.gradients.records import MeanGradients, RecordBlocks
from dpgrain.learn import distributed
from dpgrain.learn.classes import NO_TARGETS, NumericTargets
from dpgrain.learn.column_rows import ColumnRows
from dpgrain.learn.distributed import (
    ArrangeBlocks,
    ArrangeLinear,
    ArrangeRecords,
    LinearContributions,
    NormCounts,
    RecordContributions,
    SumInSteps,
    block_cells,
    count_users,
    stored_blocks,
)
from dpgrain.learn.features import (
    CategoryColumn,
    ColumnRoles,
    FeatureEncoding,
    NumberColumn,
    load_rows,
)
from dpgrain.means.grid import added_in_steps
from dpgrain.noise import SeededSource
from dpgrain.optimize import Ball, Power, Sgd, Squared
from dpgrain.optimize.models import Truncated
from dpgrain.publishing.charge import Curator
from dpgrain.publishing.prices import Price
from dpgrain.publishing.query import Query
from dpgrain.tables.engines.spark_session import silenced
from dpgrain.units import Element, Record, Unit, User

ENCODING = FeatureEncoding(
    (NumberColumn("a", (-2.0, 2.0)), NumberColumn("b"), CategoryColumn("kind", ("x", "y")))
)
PROMISE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "random_state": 5}


def rows(count: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    who = np.where(rng.random(count) < 1 / 3, 0, rng.integers(1, 2 + count // 6, count))
    columns = {
        "who": who,
        "week": rng.integers(0, 4, count).astype(str),
        "a": rng.normal(size=count),
        "b": rng.normal(size=count) * 10.0 ** rng.integers(-3, 4, count),
        "kind": rng.choice(["x", "y", "z"], count),
        "y": rng.normal(size=count),
        "late": rng.random(count) < 0.4,
        "level": rng.integers(0, 3, count),
    }
    lost = rng.random((len(columns), count)) < 0.04
    columns_ = zip(columns.items(), lost, strict=True)
    return pa.table({name: pa.array(column, mask=mask) for (name, column), mask in columns_})


ROWS = rows(300)
UNITS: dict[str, tuple[Any, str | None]] = {
    "user": (dg.User(), None),
    "element": (dg.Element(), "week"),
    "user of few elements": (dg.User(max_elements=2), "week"),
    "record": (dg.Record(), None),
}
MODELS: dict[str, tuple[Callable[..., learn.LinearModel], str, dict[str, Any]]] = {
    "linear": (learn.LinearRegression, "y", {}),
    "poisson": (learn.PoissonRegressor, "y", {"feature_bound": 3.0}),
    "huber, bound stated": (learn.HuberRegressor, "y", {"clip": 0.3, "l2": 0.1}),
    "three labels": (learn.LogisticRegression, "level", {"classes": [0, 1, 2]}),
    "two labels": (learn.LinearSVC, "level", {"classes": [0, 2], "fit_intercept": False}),
}


def asked(model: str, unit: str, table: dg.UserTable, **more: Any) -> Query[learn.LinearModel]:
    kind, target, own = MODELS[model]
    protected, element = UNITS[unit]
    options = {**PROMISE, "rounds": 5, **own, **more}
    return kind(unit=protected, **options).query(ColumnRows(table, ENCODING, target, element), None)


def fitted(model: str, unit: str, table: dg.UserTable, **more: Any) -> learn.LinearModel:
    return dg.publish(asked(model, unit, table, **more))


def same(one: learn.LinearModel, other: learn.LinearModel) -> None:
    """Both models have published the same, to the last bit, and promise the same."""
    assert np.array_equal(one.history_.gradients, other.history_.gradients)
    assert np.array_equal(one.history_.points, other.history_.points)
    assert np.array_equal(one.coef_, other.coef_)
    assert np.array_equal(one.intercept_, other.intercept_)
    assert (one.n_users_, one.n_iter_) == (other.n_users_, other.n_iter_)
    assert one.guarantee_ == other.guarantee_
    assert list(one.feature_names_in_) == list(other.feature_names_in_)


@pytest.mark.parametrize(
    ("model", "unit", "size", "count", "roster"),
    list(itertools.product(MODELS, UNITS, (1, 4, 9), (0, 1, 300), (None, 90))),
    ids=str,
)
def test_cluster_fit_equals_the_local_exact_fit(
    model: str, unit: str, size: int, count: int, roster: int | None
) -> None:
    data = ROWS.slice(0, count)
    here = dg.read(data, user="who", n_users=roster)
    there = dg.read(data, user="who", n_users=roster, engine=Cluster(size))
    expected = fitted(model, unit, here, exact=True, sampling="full", n_users=roster)
    same(fitted(model, unit, there, n_users=roster), expected)


def test_round_with_a_lost_block_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: the last of the runs of each share is dropped."""
    call = SumInSteps.__call__
    here = fitted("linear", "user", dg.read(ROWS, user="who"), exact=True)
    monkeypatch.setattr(
        SumInSteps, "__call__", lambda self, batches: call(self, list(batches)[:-1])
    )
    with pytest.raises(AssertionError):
        same(fitted("linear", "user", dg.read(ROWS, user="who", engine=Cluster(2))), here)


def test_rows_without_users_and_single_users_are_fitted() -> None:
    """Without users each row is a separate block, and rows go through tasks in batches."""
    found = [
        fitted("linear", "record", dg.read(ROWS, engine=engine), exact=True)
        for engine in (Cluster(3), "duckdb")
    ]
    same(*found)


@pytest.mark.parametrize("engine", [Cluster(3), "duckdb"])
def test_a_table_without_users_has_records(engine: Any) -> None:
    def model(**options: Any) -> learn.LinearRegression:
        return learn.LinearRegression(**options, **PROMISE, rounds=2)

    records = dg.publish(
        model().query(ColumnRows(dg.read(ROWS, engine=engine), ENCODING, "y"), None)
    )
    users = dg.publish(
        model().query(ColumnRows(dg.read(ROWS, user="who", engine=engine), ENCODING, "y"), None)
    )
    assert (records.guarantee_.level, users.guarantee_.level) == ("record", "user")
    with refuses("users", "pass the user id"):
        dg.publish(
            model(unit=dg.User()).query(
                ColumnRows(dg.read(ROWS, engine=engine), ENCODING, "y"), None
            )
        )


@pytest.mark.slow
def test_rows_derived_from_people_are_fitted() -> None:
    def people(engine: Any) -> dg.UserTable:
        table = dg.read(ROWS, user="who", engine=engine).where(week=["0", "1", "2"])
        return table.per_user(a=("a", "mean"), b="count", y=("y", "max"))

    encoding = FeatureEncoding((NumberColumn("a"), NumberColumn("b", (0.0, 9.0))))
    found = [
        dg.publish(
            learn.LinearRegression(rounds=5, exact=True, **PROMISE).query(
                ColumnRows(people(engine), encoding, "y"), None
            )
        )
        for engine in (Cluster(3), "duckdb")
    ]
    same(*found)
    assert not found[0].guarantee_.scope.everything


def test_repeated_tasks_add_once() -> None:
    again = Cluster(3, again=lambda part, _: part == 1)
    found = [
        fitted("linear", "user", dg.read(ROWS, user="who", engine=engine), exact=True)
        for engine in (again, "duckdb")
    ]
    same(*found)


@pytest.mark.parametrize(
    ("model", "unit"), list(itertools.product((None, Truncated()), UNITS)), ids=str
)
def test_minimise_on_a_cluster_is_the_exact_one_here(model: Any, unit: str) -> None:
    encoding = FeatureEncoding((NumberColumn("a"), NumberColumn("b", (-5.0, 5.0))))
    steps = Sgd(Power(0.5), Ball(2.0))
    (protected, element), found = UNITS[unit], list[learn.Minimum]()
    options: dict[str, Any] = {"solver": steps, "model": model, "unit": protected, "rounds": 3}
    for engine in (Cluster(4), InMemory):
        table = dg.read(ROWS, user="who", engine=engine)
        X: Any = ColumnRows(table, encoding, "y", element)
        y: Any = None
        if not table.distributed:
            loaded = load_rows(table, encoding, Curator(), target="y", element=element)
            X, y = loaded.X.to_numpy(), loaded.y
            options["users"] = pd.Series(loaded.users, name="who")
            options["elements"] = (
                None if element is None else pd.Series(loaded.elements, name=element)
            )
            options["exact"] = True
        found.append(learn.minimise(Squared(), X, y, [0.0, 0.0], **options, **PROMISE))
    there, here = found
    assert np.array_equal(there.history.gradients, here.history.gradients)
    assert np.array_equal(there.theta, here.theta)
    assert there.n_users == here.n_users
    assert there.guarantee == here.guarantee
    assert "sums are made in floating point" not in str(there.guarantee)


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize("seed", range(24))
def test_no_unit_moves_a_sum_beyond_the_bound(seed: int) -> None:
    """Neighbours are searched over units, positions, clipping bounds and malformed numbers."""
    rng = np.random.default_rng(seed)
    data = rows(60, seed)
    odd = rng.choice([np.nan, np.inf, 1e308, -1e200, 1e-300, 0.0], 60)
    column = np.where(rng.random(60) < 0.3, odd, data["b"].to_numpy(zero_copy_only=False))
    data = data.set_column(3, "b", pa.array(column, from_pandas=False))
    level = ["user", "element", "record"][seed % 3]
    whose = {"user": pa.array(np.asarray(data["who"].fill_null(-1)) == 0)}
    whose["element"] = pa.array(
        (np.asarray(data["who"].fill_null(-1)) == 0)
        & (np.asarray(data["week"].fill_null("")) == "1")
    )
    whose["record"] = pa.array(np.arange(60) == seed)
    gone = data.filter(pa.array(~np.asarray(whose[level])))
    clip, step = float(rng.choice([1e-3, 1.0, 1e4])), 2.0**-12
    unit, element = UNITS[level]
    sums = []
    for each in (data, gone):
        table = dg.read(each, user="who", engine=Cluster(int(rng.integers(1, 6))))
        model = learn.LinearRegression(unit=unit, **PROMISE)
        there = ColumnRows(table, ENCODING, "y", element)
        config, charge = model.config(), charge_of(Gaussian(1.0), SeededSource(1))
        with distributed.opened(there, config, NumericTargets(), unit, NO_TARGETS, charge) as made:
            theta = np.full(5, 0.3)
            contributions: Any = made.gradients(config)(Squared(), theta)
            sums.append(contributions.in_steps(clip, step * clip))
    assert sums[0].any()
    assert float(np.linalg.norm(sums[0] - sums[1])) <= 1 / step


def test_executors_get_no_noise_no_budget_and_no_model() -> None:
    cluster = Cluster(2)
    table = dg.read(ROWS, user="who", engine=cluster)
    with dg.budget(3.0, 1e-5):
        fitted("three labels", "element", table, epsilon=0.5)
    assert "dpgrain.learn.distributed" in cluster.sent
    secret = (
        "noise",
        "publishing",
        "ledger",
        "accounting",
        "means",
        "learn.fit_config",
        "learn.model",
    )
    more = ("learn.estimators", "learn.central", "cli", "report", "tables.table", "releases")
    rooms = tuple(f"dpgrain.{room}" for room in (*secret, *more))
    assert [name for name in cluster.sent if name.startswith(rooms)] == []
    assert cluster.dropped == 1


class Unread(Cluster):
    def frame(self, table: pa.Table) -> Any:
        raise AssertionError("Rows were read.")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a recipe": (
        {"algorithm": papers.Concentrated(), "unit": dg.User()},
        "algorithm must be 'auto' or a solver of dpgrain.optimize for rows on a cluster",
    ),
    "shuffling": ({"trust": "shuffle", "n_users": 90}, "trust must be 'central'"),
    "a stream": ({"trust": "pan", "n_users": 90}, "trust must be 'central'"),
    "samples": ({"sampling_rate": 0.5}, "sampling_rate must be 1 for rows on a cluster, not 0.5"),
    "samples of users": ({"sampling": "users"}, "sampling must be 'full' for rows on a cluster"),
    "intervals": ({"intervals": 0.1}, "intervals must be 0 for rows on a cluster, not 0.1"),
    "tuning": ({"tune": {"l2": [0.0, 1.0]}}, "tune must be None for rows on a cluster"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_minibatches_are_rejected_before_any_charge(what: str) -> None:
    options, words = REFUSED[what]
    table = dg.read(ROWS, user="who", engine=Unread())
    model = learn.LinearRegression(**{**PROMISE, **options})
    with dg.budget(1.0, 1e-6) as budget:
        with pytest.raises(ParameterError, match=words):
            dg.publish(model.query(ColumnRows(table, ENCODING, "y"), None))
        assert budget.spent == Price()


def test_unstated_labels_are_rejected() -> None:
    table = dg.read(ROWS, user="who", engine=Unread())
    with refuses("classes", "classes="):
        dg.publish(
            learn.LogisticRegression(**PROMISE).query(ColumnRows(table, ENCODING, "level"), None)
        )


def test_custom_model_is_rejected() -> None:
    class Mine(learn.LinearModel):
        def loss(self, classes: Any) -> Any:
            return Squared()

        def _targets(self, y: Any) -> Any:
            from dpgrain.learn.classes import Targets

            return Targets(np.asarray(y, dtype=float))

    table = dg.read(ROWS, user="who", engine=Unread())
    with pytest.raises(ParameterError, match="Mine cannot be fitted to rows on a cluster"):
        dg.publish(Mine(**PROMISE).query(ColumnRows(table, ENCODING, "y"), None))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"solver": papers.Concentrated()},
            "solver must be one of dpgrain.optimize .* Concentrated",
        ),
        ({"loss": type("Odd", (Squared,), {"lock": threading.Lock()})()}, "loss must be picklable"),
        ({"sampling_rate": 0.1}, "sampling_rate must be 1"),
        ({"unit": dg.Element()}, "elements is required"),
        ({"start": [0.0]}, "start must have"),
    ],
)
def test_minimise_rejects_unsupported_cluster_arguments(
    options: dict[str, Any], words: str
) -> None:
    there = ColumnRows(dg.read(ROWS, user="who", engine=Unread()), ENCODING, "y")
    given: dict[str, Any] = {
        "loss": Squared(),
        "start": [0.0] * 4,
        "solver": Sgd(Power(1.0)),
        "epsilon": 1.0,
    }
    given |= options
    with dg.budget(1.0, 1e-6) as budget:
        with pytest.raises(ParameterError, match=words):
            learn.minimise(given.pop("loss"), there, None, given.pop("start"), **given)
        assert budget.spent == Price()


def test_unsuitable_columns_are_rejected() -> None:
    table = dg.read(ROWS, user="who", engine=Unread())
    for target, element, words in (
        ("kind", None, "numeric, not text"),
        ("y", "weak", "not a column"),
    ):
        with pytest.raises(SchemaError, match=words):
            dg.publish(
                learn.LinearRegression(
                    unit=dg.Element() if element else dg.User(), **PROMISE
                ).query(ColumnRows(table, ENCODING, target, element), None)
            )


def test_fit_beyond_the_budget_opens_no_rows() -> None:
    there = ColumnRows(dg.read(ROWS, user="who", engine=Unread()), ENCODING, "y")
    steps = Sgd(Power(1.0))
    with dg.budget(0.1, 1e-6) as budget:
        with pytest.raises(dg.RefusedError):
            learn.LinearRegression(**PROMISE).fit(there, None)
        with pytest.raises(dg.RefusedError):
            learn.minimise(Squared(), there, None, [0.0] * 4, solver=steps, epsilon=2.0)
        assert budget.spent == Price()
    with pytest.raises(AssertionError, match="Rows were read"):
        learn.minimise(Squared(), there, None, [0.0] * 4, solver=steps, epsilon=2.0)


def test_a_plan_reads_nothing() -> None:
    tables = [dg.read(ROWS, user="who", engine=engine) for engine in (Unread(), Cluster())]
    told = asked("two labels", "element", tables[0]).plan.guarantee
    made = fitted("two labels", "element", tables[1]).guarantee_
    assert made.event == told.event
    assert (made.level, made.elements, made.user) == (told.level, told.elements, told.user)
    assert set(told.public) <= set(made.public)
    assert "sums are made in floating point" not in str(made)


# -- Spark --

FRAME = ["who", "week", "a", "b", "y", "late"]


def _numbers(data: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = data.select(["a", "b"]).to_pandas()
    return frame


def _fit_frame(frame: Any, **more: Any) -> learn.LinearModel:
    model = learn.LinearRegression(**{**PROMISE, "rounds": 4, **more})
    return model.fit(frame.drop("week", "late"), "y", users="who")


def _fit_here(data: pa.Table, **more: Any) -> learn.LinearModel:
    model = learn.LinearRegression(exact=True, **{**PROMISE, "rounds": 4, **more})
    frame = data.to_pandas()
    return model.fit(
        _numbers(data), frame["y"], users=pd.Series(data["who"].to_pylist(), name="who")
    )


def _frame(spark: Any, data: pa.Table) -> Any:
    with silenced():
        return spark.createDataFrame(data.select(FRAME))


def test_spark_frame_is_fitted_in_place(spark: Any) -> None:
    # One round is one Spark job, in addition to the job that builds the blocks.
    options: dict[str, Any] = {"rounds": 1, "clip": 1.0, "n_users": 60}
    same(_fit_frame(_frame(spark, ROWS).repartition(3), **options), _fit_here(ROWS, **options))


@pytest.mark.slow
def test_failed_task_is_repeated_and_rows_arranged_once(
    spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "log"

    def fails_first(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        with log.open("a") as told:
            told.write(f"{context.partitionId()} {context.attemptNumber()}\n")
        yield from batches
        if context.attemptNumber() == 0:
            raise RuntimeError("The first attempt fails when it has handed over its rows.")

    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    data = ROWS.select(["who", "a", "b", "y"])
    with silenced():
        made = spark.createDataFrame(data).repartition(3)
        frame = made.mapInArrow(fails_first, "who long, a double, b double, y double")
    model = learn.LinearRegression(rounds=6, **PROMISE).fit(frame, "y", users="who")
    same(model, _fit_here(ROWS, rounds=6))
    # A failed and a successful attempt read each of the partitions: six rounds, two histograms of
    # norms and the number of users used the cached rows.
    assert sorted(log.read_text().split("\n")[:-1]) == [
        f"{p} {a}" for p in range(3) for a in (0, 1)
    ]


@pytest.mark.slow
def test_truths_elements_and_a_loss_of_ones_own(spark: Any) -> None:
    frame = _frame(spark, ROWS)
    here = ROWS.to_pandas()
    users = pd.Series(ROWS["who"].to_pylist(), name="who")
    options: dict[str, Any] = {**PROMISE, "rounds": 3, "unit": dg.Element()}
    there = learn.LogisticRegression(classes=[False, True], **options).fit(
        frame.drop("y"), "late", users="who", elements="week"
    )
    expected = learn.LogisticRegression(classes=[False, True], exact=True, **options).fit(
        _numbers(ROWS), here["late"], users=users, elements=here["week"]
    )
    same(there, expected)
    assert there.classes_.tolist() == [False, True]

    class Mine:
        def value(self, theta: Any, X: Any, y: Any) -> Any:
            return (np.einsum("ij,j->i", X, theta) - y) ** 2 / 2

        def gradient(self, theta: Any, X: Any, y: Any) -> Any:
            return (np.einsum("ij,j->i", X, theta) - y)[:, None] * X

    options = {**PROMISE, "rounds": 3, "solver": Sgd(Power(1.0), Ball(3.0)), "n_users": 60}
    numbers = frame.drop("late", "week")
    one = learn.minimise(Mine(), numbers, "y", [0.0, 0.0], users="who", **options)
    other = learn.minimise(
        Mine(),
        _numbers(ROWS).to_numpy(),
        here["y"],
        [0.0, 0.0],
        users=users,
        exact=True,
        sampling="full",
        **options,
    )
    assert np.array_equal(one.theta, other.theta)
    assert one.guarantee == other.guarantee


@pytest.mark.slow
def test_mismatched_frames_and_arguments_are_rejected(spark: Any) -> None:
    from pyspark.sql import functions

    frame = _frame(spark, ROWS).drop("week", "late")
    model = learn.LinearRegression(**PROMISE)
    with pytest.raises(ParameterError, match=r"pass frame.localCheckpoint\(\)"):
        model.fit(frame.where(functions.rand() < 0.5), "y", users="who")
    with pytest.raises(
        ParameterError, match="users must be a column name if X is a Spark DataFrame"
    ):
        model.fit(frame, "y", users=np.zeros(300))
    with pytest.raises(ParameterError, match="y must be a column name"):
        model.fit(frame, None, users="who")
    with pytest.raises(SchemaError, match="target 'z' is not a column"):
        model.fit(frame, "z", users="who")


@pytest.mark.slow
def test_permanently_failing_task_fits_nothing(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Any) -> Any:
        raise RuntimeError("Nobody but the curator may see row 17.")

    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    with silenced():
        made = spark.createDataFrame(ROWS.select(["who", "a", "b", "y"]))
        frame = made.mapInArrow(fails, "who long, a double, b double, y double")
    model = learn.LinearRegression(rounds=2, **PROMISE)
    with pytest.raises(DataError, match="cannot be read completely by Spark") as caught:
        model.fit(frame, "y", users="who")
    assert "17" not in str(caught.value)
    assert not hasattr(model, "coef_")


@pytest.mark.slow
def test_command_line_and_release_files_fit_on_spark(
    spark: Any, command: Command, tmp_path: Path
) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    words = ["fit", "linear", tmp_path / "rows.parquet", "--target", "y", "--features", "a,b"]
    promise = ["--user", "who", "--unit", "user", "--epsilon", "1", "--delta", "1e-6"]
    more = ["--rounds", "2", "--seed", "5", "--engine", "spark", "--output", tmp_path / "m.json"]
    found = command(*words, *promise, *more)
    assert found.returncode == 0, found.stderr
    here = learn.load(tmp_path / "m.json")
    assert np.array_equal(here.coef_, _fit_here(ROWS, rounds=2).coef_)


@pytest.mark.slow
def test_the_example_of_the_tutorial(spark: Any, tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "tutorials" / "models.md"
    (code,) = re.findall(r"^```py\n(.*?)^```$", page.read_text(encoding="utf-8"), re.S | re.M)
    pq.write_table(loans(300), tmp_path / "loans.parquet")
    said: dict[str, Any] = {}
    with silenced():
        read = code.replace('"loans.parquet"', repr(str(tmp_path / "loans.parquet")))
        exec(read.replace("feature_bound=100", "feature_bound=100, rounds=2"), said)
    assert said["model"].coef_.shape == (1, 1)
    assert list(said["model"].feature_names_in_) == ["age"]


WHO = ColumnRoles(FeatureEncoding((NumberColumn("a"), NumberColumn("b"))), users=True)


def _columns(count: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    lost = rng.random((4, count)) < 0.1
    values = [*rng.normal(size=(3, count)), rng.integers(0, 1 + count // 5, count)]
    found = [pa.array(value, mask=mask) for value, mask in zip(values, lost, strict=True)]
    return pa.table(found, names=["c0", "c1", "c2", "c3"])


def _arranged(
    table: pa.Table,
    roles: ColumnRoles = WHO,
    unit: Unit | None = None,
    by: ArrangeLinear | ArrangeRecords | None = None,
) -> list[pa.RecordBatch]:
    rule = ArrangeBlocks(
        roles, NumericTargets(), User() if unit is None else unit, by or ArrangeLinear(None, True)
    )
    return list(rule(table.to_batches(max_chunksize=100)))


@pytest.mark.parametrize(("cell", "run"), [(1, 1), (40, 100), (1 << 17, 1 << 22)])
def test_cells_contain_their_blocks(cell: int, run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "CELL_BYTES", cell)
    monkeypatch.setattr(distributed, "RUN_BYTES", run)
    rng = np.random.default_rng(cell)
    for _ in range(40):
        sizes = np.sort(rng.integers(1, rng.integers(2, 30), rng.integers(0, 12)))
        X, y = rng.normal(size=(sizes.sum(), 2)), rng.normal(size=sizes.sum())
        cells = list(block_cells(X, y, sizes, users=7))
        assert count_users(cells) == [7]
        back = list(stored_blocks(cells))
        assert np.array_equal(np.concatenate([[], *(part[2] for part in back)]), sizes)
        for place, whole in enumerate((X.ravel(), y)):
            assert np.array_equal(
                np.concatenate([[], *(part[place].ravel() for part in back)]), whole
            )


def test_a_row_takes_eight_bytes_a_number() -> None:
    """The amount that docs/tutorials/models.md states."""
    cells = _arranged(_columns(4000).drop_columns(["c3"]), ColumnRoles(WHO.encoding), Record())
    rows = sum(len(run[1]) for run in stored_blocks(cells))
    assert rows > 3000
    bytes_ = sum(column.nbytes for batch in cells for column in batch.columns)
    # Two features, the intercept and the target, and the size of each block.
    assert 0 <= bytes_ - rows * 8 * (2 + 1 + 1) <= 8 * rows + 100 * len(cells)


@pytest.mark.parametrize("unit", [User(), Record()])
def test_shares_of_users_add_up_to_the_whole(unit: Unit) -> None:
    table = _columns(900)
    who = np.array(table["c3"].to_pylist(), dtype=float)
    for by, at in (
        (ArrangeLinear(0.7, True), LinearContributions(Squared(), np.array([0.3, -0.2, 0.1]))),
        (ArrangeRecords(), RecordContributions(MeanGradients(Squared(), np.array([0.3, -0.2])))),
    ):
        p = 3 if isinstance(by, ArrangeLinear) else 2
        tasks = SumInSteps(at, p, 0.4, 2.0**-20), NormCounts(at), count_users
        whole = _arranged(table, unit=unit, by=by)
        shares = [
            _arranged(table.filter(pa.array(who % 3 == i)), unit=unit, by=by) for i in range(3)
        ]
        for task in tasks:
            expected = task(whole)
            assert expected.any()
            assert np.array_equal(sum(task(share) for share in shares), expected)


def test_the_order_of_rows_moves_nothing() -> None:
    columns = _columns(500).drop_null().to_pydict() | {"c3": [1] * 500}
    table = pa.table({name: column[:300] for name, column in columns.items()})
    mixed = table.take(pa.array(np.random.default_rng(1).permutation(300)))
    (run,), (other,) = stored_blocks(_arranged(table)), stored_blocks(_arranged(mixed))
    assert np.array_equal(run[0], other[0])
    assert np.array_equal(run[1], other[1])


def test_blocks_equal_local_records() -> None:
    table = _columns(300).drop_null()
    X = np.column_stack([table["c0"], table["c1"]])
    y, who = np.array(table["c2"]), np.array(table["c3"])
    at = MeanGradients(Squared(), np.array([0.5, 0.5]))
    found = SumInSteps(RecordContributions(at), 2, 1.0, 2.0**-10)(
        _arranged(table, by=ArrangeRecords())
    )
    _, codes = np.unique(who, return_inverse=True)
    expected = added_in_steps(at(RecordBlocks.arrange(X, y, codes)), 1.0, 2.0**-10)
    assert np.abs(found - expected).max() <= 1
    assert found.any()


def test_users_without_a_target_count_as_users() -> None:
    table = pa.table(
        {
            "c0": [1.0, 2.0],
            "c1": [1.0, 1.0],
            "c2": pa.array([None, None], pa.float64()),
            "c3": [1, 2],
        }
    )
    cells = _arranged(table)
    assert count_users(cells) == [2]
    assert not list(stored_blocks(cells))


def test_no_rows_make_nothing() -> None:
    assert _arranged(_columns(0)) == []
    assert count_users([]) == [0]
    task = SumInSteps(LinearContributions(Squared(), np.zeros(3)), 3, 1.0, 0.5)
    assert task([]).tolist() == [0, 0, 0]


def test_elements_of_one_user_are_blocks() -> None:
    rows = pa.table(
        {
            "c0": [1.0, 2.0, 3.0],
            "c1": [0.0] * 3,
            "c2": [1.0] * 3,
            "c3": [1, 1, 1],
            "c4": ["x", "x", "y"],
        }
    )
    parts = ColumnRoles(WHO.encoding, users=True, elements=True)
    (run,) = stored_blocks(_arranged(rows, parts, Element()))
    assert run[2].tolist() == [1, 2]
