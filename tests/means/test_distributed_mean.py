"""The mean of users with rows on a cluster equals the local one, bit for bit."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.charges import charge_of
from tests.refusals import refuses
from tests.tables.engines.cluster import Cluster

import dpgrain as dg
from dpgrain.accounting import Gaussian
from dpgrain.errors import DataError, ParameterError, RefusedError, SchemaError
from dpgrain.means import METHODS, MeanOfUsers, Method, distributed_mean
from dpgrain.means.clipped import METHOD as CLIP
from dpgrain.means.distributed_mean import TableRecords, UserVectors, vector_runs
from dpgrain.noise import SystemSource
from dpgrain.publishing.prices import Price
from dpgrain.releases.table_queries import mean_of_columns
from dpgrain.tables.engines.spark_session import silenced

COLUMNS = ["a", "b", "late"]
PROMISE: dict[str, Any] = {"bound": 10.0, "epsilon": 4.0, "delta": 1e-6, "random_state": 5}


def rows(count: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    odd = rng.choice([np.nan, np.inf, -1e308, 1e200, 1e-300, -0.0], count)
    columns = {
        "who": np.where(rng.random(count) < 1 / 3, 0, rng.integers(1, 2 + count // 3, count)),
        "a": 3 + rng.normal(size=count),
        "b": np.where(rng.random(count) < 0.05, odd, rng.normal(size=count)),
        "late": rng.random(count) < 0.4,
    }
    lost = rng.random((len(columns), count)) < 0.04
    columns_ = zip(columns.items(), lost, strict=True)
    return pa.table(
        {name: pa.array(column, mask=mask, from_pandas=False) for (name, column), mask in columns_}
    )


ROWS = rows(4000)


def mean(data: pa.Table, engine: Any, user: str | None = "who", **options: Any) -> MeanOfUsers:
    table = dg.read(data, user=user, engine=engine)
    return mean_of_columns(table, COLUMNS, **{**PROMISE, **options})


def same(one: MeanOfUsers, other: MeanOfUsers) -> None:
    """Both means have published the same, to the last bit, and promise the same."""
    assert {**one.to_dict(), "reason": ""} == {**other.to_dict(), "reason": ""}
    assert one.value.tobytes() == other.value.tobytes()
    assert one.guarantee == other.guarantee


@pytest.mark.parametrize(
    ("method", "size", "count", "n_users", "relation"),
    list(
        itertools.product(
            ("clip", "recentred", "auto"),
            (1, 4, 9),
            (0, 1, 300, 4000),
            (None, 1300),
            ("zero_out", "replace"),
        )
    ),
    ids=str,
)
def test_a_mean_on_a_cluster_is_the_one_here(
    method: str, size: int, count: int, n_users: int | None, relation: str
) -> None:
    data = ROWS.slice(0, count)
    options: dict[str, Any] = {"method": method, "n_users": n_users, "relation": relation}
    here = mean(data, "duckdb", **options)
    if here.method not in ("clip", "recentred"):
        options["method"] = mean(data, Cluster(size), **options).method
        here = mean(data, "duckdb", **options)
    same(mean(data, Cluster(size), **options), here)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["clip", "recentred"])
def test_rows_in_another_order_give_the_same_mean(method: str) -> None:
    order = np.random.default_rng(1).permutation(len(ROWS))
    for engine in ("duckdb", Cluster(3)):
        options: dict[str, Any] = {"method": method, "n_users": 1300}
        same(mean(ROWS.take(order), engine, **options), mean(ROWS, engine, **options))


def test_sum_with_a_lost_user_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: the last of the users of each run is dropped."""
    runs = distributed_mean.vector_runs
    here = mean(ROWS, "duckdb", method="clip")

    def loses(batches: Any, width: int) -> Any:
        return (vectors[:-1] for vectors in runs(batches, width))

    monkeypatch.setattr(distributed_mean, "vector_runs", loses)
    with pytest.raises(AssertionError):
        same(mean(ROWS, Cluster(2), method="clip"), here)


@pytest.mark.slow
def test_repeated_tasks_add_once() -> None:
    again = Cluster(3, again=lambda part, _: part == 1)
    for method in ("clip", "recentred"):
        same(mean(ROWS, again, method=method), mean(ROWS, "duckdb", method=method))


def test_regional_rows_and_derived_rows_are_averaged() -> None:
    def people(engine: Any) -> MeanOfUsers:
        table = dg.read(ROWS, user="who", engine=engine).where(late=[True])
        made = table.per_user(a=("a", "mean"), b="count")
        return mean_of_columns(made, ["a", "b"], **PROMISE, method="clip")

    found = people(Cluster(3)), people("duckdb")
    same(*found)
    assert not found[0].guarantee.scope.everything


def test_a_file_of_releases_brings_no_rows_here(tmp_path: Path) -> None:
    lines = [
        'statistic = "mean_of_users"',
        'columns = ["a", "b"]',
        "bound = 10",
        'method = "clip"',
        "share = 1.0",
    ]
    budget = ["[budget]", 'unit = "user"', "epsilon = 2.0", "delta = 1e-6", "[release.place]"]
    path = tmp_path / "releases.toml"
    path.write_text("\n".join([*budget, *lines]), encoding="utf-8")
    cluster = Cluster()
    made = dg.releases(path, dg.read(ROWS, user="who", n_users=1300, engine=cluster))
    assert made["place"].method == "clip"
    assert "dpgrain.means.distributed_mean" in cluster.sent
    # Columns that came here would have been collected.
    assert cluster.dropped == 1


@pytest.mark.slow
def test_users_of_a_share_may_have_very_long_names() -> None:
    # All names together have more than 2 GiB, in pieces that share their memory.
    long = pa.RecordBatch.from_pydict({"x": [1.0, 3.0], "user": ["a" * (1 << 24), "b" * (1 << 24)]})
    found = np.concatenate(list(vector_runs(UserVectors(1, 9.0, users=True)([long] * 65), 1)))
    assert sorted(found.ravel()) == [1.0, 3.0]


def test_vectors_in_cells_return_in_order() -> None:
    """More users than a cell can contain; each share builds the vectors once."""
    count = 40_000
    columns = [np.arange(count) % 7.0, np.arange(count) / count]
    batches = pa.table(dict(zip("ab", columns, strict=True))).to_batches(max_chunksize=count // 2)
    cells = list(UserVectors(2, 1e9, users=False)(batches))
    assert len(cells) > 4
    assert max(len(cell.column(0)[0].as_buffer()) for cell in cells) <= 1 << 17
    found = np.concatenate(list(vector_runs(cells, 2)))
    assert np.array_equal(found, np.column_stack(columns))
    assert list(vector_runs([], 2)) == []


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize("seed", range(24))
def test_no_user_moves_cluster_results_beyond_the_bound(seed: int) -> None:
    """Neighbours are searched over users, positions, bounds, centres and malformed numbers."""
    rng = np.random.default_rng(seed)
    data = rows(60, seed)
    gone = data.filter(pa.array(np.asarray(data["who"].fill_null(-1)) != 0))
    clip, centre = float(rng.choice([1e-3, 1.0, 1e4])), rng.normal(size=3) * 10.0 ** rng.integers(3)
    step, radii = clip * 2.0**-12, np.sort(rng.uniform(0, 20, 9))
    sums, counts, users = [], [], []
    for each in (data, gone):
        table = dg.read(each, user="who", engine=Cluster(int(rng.integers(1, 6))))
        charge = charge_of(Gaussian(1.0), SystemSource())
        with TableRecords(table, tuple(COLUMNS)).user_vectors(charge, 5.0) as (vectors, people):
            there: Any = vectors
            sums.append(there.in_steps(clip, step, centre))
            counts.append(there.count_by_radius(centre, radii))
            users.append(people())
    assert sums[0].any()
    assert float(np.linalg.norm(sums[0] - sums[1])) <= clip / step
    assert np.abs(counts[0] - counts[1]).sum() == 1
    assert users[0] == users[1] + 1 == counts[0].sum()


def test_executors_get_no_noise_no_budget_and_no_method() -> None:
    cluster = Cluster(2)
    for method in ("clip", "recentred"):
        mean(ROWS, cluster, method=method)
    assert {"dpgrain.means.distributed_mean", "dpgrain.means.rules"} <= cluster.sent
    ours = {name for name in cluster.sent if name.startswith("dpgrain.means")}
    assert ours == {"dpgrain.means.distributed_mean", "dpgrain.means.rules"}
    secret = ("noise", "publishing", "ledger", "accounting", "learn", "cli", "report", "releases")
    rooms = tuple(f"dpgrain.{room}" for room in (*secret, "tables.table"))
    assert [name for name in cluster.sent if name.startswith(rooms)] == []
    assert cluster.dropped == 2


class Unread(Cluster):
    def frame(self, table: pa.Table) -> Any:
        raise AssertionError("Rows were read.")


OWN = Method("mine", CLIP.make)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "softcore", "n_users": 1300}, "rows on a cluster, not 'softcore', which needs"),
        ({"method": "winsorized", "n_users": 1300}, "not 'winsorized', .* frame.toPandas"),
        ({"method": OWN}, "method must be 'auto', 'clip' or 'recentred' .* not 'mine'"),
        ({"method": "median"}, "method must be"),
        ({"dimension": 2}, "dimension must be the length of a record, 3, not 2"),
        ({"bound": -1.0}, "bound must be"),
    ],
)
def test_invalid_arguments_are_rejected_before_reading_or_charging(
    options: dict[str, Any], words: str
) -> None:
    with dg.budget(9.0, 1e-5) as budget:
        with pytest.raises(ParameterError, match=words):
            mean(ROWS, Unread(), **options)
        assert budget.spent == Price()


def test_unsuitable_column_is_rejected() -> None:
    table = dg.read(pa.table({"who": [1], "a": ["x"]}), user="who", engine=Unread())
    with refuses("columns", "'a'", kind=SchemaError):
        mean_of_columns(table, ["a"], **PROMISE)
    with pytest.raises(ParameterError, match="listed twice"):
        mean_of_columns(dg.read(ROWS, user="who", engine=Unread()), ["a", "a"], **PROMISE)


def test_auto_chooses_the_same_on_a_cluster() -> None:
    options: dict[str, Any] = {"n_users": 150, "radius": 0.001, "epsilon": 1.0}
    for rows in (150, len(ROWS)):
        few = ROWS.slice(0, rows)
        here, there = (mean(few, engine, **options) for engine in ("duckdb", Cluster()))
        assert here.method == there.method


def test_cluster_supports_additive_and_counting_methods() -> None:
    from dpgrain.means.problem import get_method

    assert [name for name in METHODS if get_method(name).distributed] == ["clip", "recentred"]


def test_a_plan_reads_nothing() -> None:
    table = dg.read(ROWS, user="who", engine=Unread())
    told = mean_of_columns.query(table, COLUMNS, **PROMISE).plan.guarantee
    made = mean(ROWS, Cluster()).guarantee
    assert made.event == told.event
    assert (made.level, made.user) == (told.level, told.user)
    with dg.budget(1.0, 1e-6) as budget, pytest.raises(RefusedError):
        mean(ROWS, Unread())
    assert budget.left == 1.0


# -- Spark --


def _frame(spark: Any, data: pa.Table) -> Any:
    with silenced():
        return spark.createDataFrame(data).repartition(3)


def _here(data: pa.Table, **options: Any) -> MeanOfUsers:
    frame = data.to_pandas()
    users = pd.Series(data["who"].to_pylist(), name="who")
    numbers = frame.drop(columns="who").apply(lambda column: column.astype(float))
    return dg.mean_of_users(numbers, users=users, **{**PROMISE, **options})


@pytest.mark.slow
@pytest.mark.parametrize("method", ["clip", "recentred"])
def test_spark_frame_is_averaged_in_place(spark: Any, method: str) -> None:
    there = dg.mean_of_users(_frame(spark, ROWS), users="who", method=method, **PROMISE)
    same(there, _here(ROWS, method=method))


@pytest.mark.slow
def test_failed_task_is_repeated_and_adds_once(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_first(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.attemptNumber() == 0:
            raise RuntimeError("The first attempt fails when it has handed over its rows.")

    def fails(_: Any) -> Any:
        raise RuntimeError("Nobody but the curator may see row 17.")

    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    schema = "who long, a double, b double, late boolean"
    frame = _frame(spark, ROWS)
    with silenced():
        once = frame.mapInArrow(fails_first, schema)
        never = frame.mapInArrow(fails, schema)
    same(dg.mean_of_users(once, users="who", method="clip", **PROMISE), _here(ROWS, method="clip"))
    with pytest.raises(DataError, match="cannot be read completely by Spark") as caught:
        dg.mean_of_users(never, users="who", method="clip", **PROMISE)
    assert "17" not in str(caught.value)


@pytest.mark.slow
def test_mismatched_frames_and_arguments_are_rejected(spark: Any) -> None:
    from pyspark.sql import functions

    frame = _frame(spark, ROWS)
    with dg.budget(9.0, 1e-5) as budget:
        for X, users, words in (
            (frame.where(functions.rand() < 0.5), "who", r"pass frame.localCheckpoint\(\)"),
            (frame, np.zeros(4000), "users must be a column name if X is a Spark DataFrame"),
            (frame.select("who"), "who", "X must have a numeric column in addition"),
        ):
            with pytest.raises(ParameterError, match=words):
                dg.mean_of_users(X, users=users, **PROMISE)
        with pytest.raises(ParameterError, match="not 'softcore'"):
            dg.mean_of_users(frame, users="who", method="softcore", n_users=1300, **PROMISE)
        assert budget.spent == Price()


@pytest.mark.slow
def test_the_command_line_averages_on_spark(spark: Any, command: Any, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(ROWS, tmp_path / "rows.parquet")
    words = ["mean-of-users", tmp_path / "rows.parquet", "--columns", "a,b,late", "--bound", "10"]
    promise = ["--user", "who", "--epsilon", "4", "--delta", "1e-6"]
    more = ["--method", "clip", "--engine", "spark", "--json"]
    found = command(*words, *promise, *more)
    assert found.returncode == 0, found.stderr
    assert '"method": "clip"' in found.stdout
