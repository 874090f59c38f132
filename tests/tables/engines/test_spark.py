"""Spark returns DuckDB's integers, whatever happens to its tasks."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import Command
from tests.refusals import refuses
from tests.tables.engines.cluster import Cluster

import dpgrain as dg
from dpgrain._types import IntArray
from dpgrain.errors import DataError, ParameterError, SchemaError
from dpgrain.releases.table_queries import mean_of_columns
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.engines.kernel import Grid
from dpgrain.tables.engines.protocol import Engine
from dpgrain.tables.engines.spark_session import silenced
from dpgrain.tables.engines.spark_tasks import SliceSums
from dpgrain.tables.groups import Groups
from dpgrain.tables.user_sums import UserContributions
from dpgrain.testing import EngineContract
from dpgrain.testing.engine_contract import RELEASES, UNITS, some_rows
from dpgrain.units import Element, User


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
class TestSpark(EngineContract):
    engine = "spark"
    users = 12
    # The next class tries all of them.
    one_in = 19
    one_release_in = 2


@pytest.mark.slow(full=True)
@pytest.mark.usefixtures("spark")
class TestAllOfSpark(EngineContract):
    engine = "spark"
    users = 12


@pytest.mark.slow
class TestInOneProcess(EngineContract):
    """The engine and its tasks without Spark: rows in several partitions, some empty."""

    engine = Cluster()
    users = 12
    one_in = 7
    one_release_in = 2
    # The cases not run on Spark itself in an audit.
    first_release = 1


@pytest.mark.slow
def test_executors_get_no_noise_no_budget_and_no_ledger() -> None:
    cluster = Cluster()
    table = EngineContract().table(some_rows(30), engine=cluster)
    for name in ("selected", "weights", "quantiles", "people by"):
        RELEASES[name](table)
    assert any(name.startswith("dpgrain.tables") for name in cluster.sent)
    rooms = ("noise", "publishing", "ledger", "accounting", "cli", "learn", "report")
    found = [name for name in cluster.sent if name.startswith(tuple(f"dpgrain.{r}" for r in rooms))]
    assert found == []
    # Functions of the caller's stay here, as well.
    assert not [name for name in cluster.sent if name.startswith(("tests", "dpgrain.testing"))]


def test_cached_data_are_dropped() -> None:
    cluster = Cluster()
    table = dg.read(pa.table({"who": [1, 2], "item": ["a", "b"]}), user="who", engine=cluster)
    RELEASES["selected"](table.with_cells("topic", of="item", by=str))
    assert cluster.dropped == 1


def test_error_is_not_masked_by_failing_cleanup() -> None:
    class Ended(Cluster):
        def run(self, work: Callable[[], Any], name: str) -> Any:
            raise DataError("Spark has ended.")

    table = dg.read(pa.table({"who": [1], "item": ["a"]}), user="who", engine=Ended())
    found = RELEASES["selected"](table.with_cells("topic", of="item", by=str))
    assert len(found) == 0


# Coordinates that take several slices.
WIDE = 20_000


def _wide(table: dg.UserTable, engine: Engine) -> UserContributions:
    groups = Groups.of(("item",), [pa.array(np.arange(WIDE))])
    blocks = UnitBlocks("user")
    return UserContributions(engine, blocks, groups, blocks.cells(groups, public=True))


def _wide_sums(cluster: Cluster, rows: pa.Table) -> IntArray:
    table = dg.read(rows, user="who", engine=cluster)
    with table.open_engine() as engine:
        return _wide(table, engine).sums(Grid(np.array([1.0]), 10))


def _norm(sums: IntArray) -> float:
    return float(np.sqrt((sums.astype(np.float64) ** 2).sum())) / 2**10


@pytest.mark.slow
def test_repeated_task_on_equal_rows_changes_nothing() -> None:
    rng = np.random.default_rng(5)
    rows = pa.table({"who": rng.integers(0, 9, 500), "item": rng.integers(0, WIDE, 500)})
    plain = _wide_sums(Cluster(), rows)
    assert plain.any()
    for part, kind in itertools.product(range(3), (lambda i: i == 0, lambda i: i > 1)):
        again = Cluster(again=lambda p, i, part=part, kind=kind: p == part and kind(i))  # type: ignore[misc]
        assert np.array_equal(_wide_sums(again, rows), plain)


def _other_rows(run: int, rows: pa.Table) -> pa.Table:
    """A source that gives the person's records another item when it is read again."""
    ends = rows["c1"][run % 2].as_py()
    return rows.set_column(1, "c1", pa.array([ends] * len(rows)))


def _ends() -> pa.Table:
    """Records of one person with the items of the first and of the last coordinate."""
    table = dg.read(pa.table({"who": [7], "item": [0]}), user="who")
    with table.open_engine() as engine:
        items = _wide(table, engine).dictionary.groups.columns[0].to_pylist()
    return pa.table({"who": [7, 7], "item": [items[-1], items[0]]})


@pytest.mark.parametrize("which", [0, 1])
def test_slices_of_two_runs_are_never_added_up(which: int) -> None:
    """Half of a person's contribution from each of two runs might be longer than the bound."""
    rows = _ends()
    plain = Cluster(size=1, source=_other_rows)
    assert _norm(_wide_sums(plain, rows)) == pytest.approx(1.0, abs=0.01)
    torn = Cluster(size=1, again=lambda _, place: (place == 0) is bool(which), source=_other_rows)
    with refuses("table", "Spark", kind=DataError):
        _wide_sums(torn, rows)


def test_without_fingerprints_a_person_would_add_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: slices of two runs are added up, and together exceed the bound."""
    monkeypatch.setattr(SliceSums, "_mark", lambda *_: b"")
    torn = Cluster(size=1, again=lambda _, place: place == 0, source=_other_rows)
    assert _norm(_wide_sums(torn, _ends())) == pytest.approx(2**0.5, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_no_user_moves_sums_by_more_than_the_bound(seed: int) -> None:
    """Neighbours are searched over places, units, sizes, and which tasks are run again."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 60))
    highest = {"who": 4, "item": 9, "day": 3}
    rows = pa.table({name: rng.integers(0, most, count) for name, most in highest.items()})
    odd = int(rng.integers(2))

    def again(part: int, place: int) -> bool:
        return (part + place) % 2 == odd

    cluster = Cluster(size=int(rng.integers(1, 6)), again=again)
    bound, kept = (
        float(rng.choice([0.5, 1.0, 3.0])),
        rows.filter(pa.array(np.asarray(rows["who"]) != 0)),
    )
    unit = [UNITS["user"], User(2, by="item"), User(1, by="day")][seed % 3]
    found = []
    for data in (rows, kept):
        table = dg.read(data, user="who", engine=cluster)
        with table.open_engine() as engine:
            groups = Groups.of(("item",), [pa.array(np.arange(9))])
            blocks = UnitBlocks.for_unit(unit, table, ["item"])
            made = UserContributions(engine, blocks, groups, blocks.cells(groups, public=True))
            found.append(made.sums(Grid(np.array([bound]), 20)) / 2.0**20)
    cells = {UNITS["user"]: 1, User(2, by="item"): 2, User(1, by="day"): 1}[unit]
    scale = Grid(np.array([bound]), 20).step[0] * 2.0**20
    assert np.linalg.norm((found[0] - found[1]) * scale) <= bound * np.sqrt(cells) * (1 + 1e-9)


ITEMS = [str(item) for item in range(30)]


def _records(count: int) -> pa.Table:
    rng = np.random.default_rng(count)
    who = np.where(rng.random(count) < 0.5, 0, rng.integers(1, 90, count))
    item = rng.integers(0, 30, count).astype(str)
    missing = rng.random((2, count)) < 0.1
    return pa.table(
        {"who": pa.array(who, mask=missing[0]), "item": pa.array(item, mask=missing[1])}
    )


def _released(data: Any, **options: Any) -> pa.Table:
    table = dg.read(data, user="who", **options)
    return dg.histogram(
        table, "item", unit=User(), domain=ITEMS, epsilon=3.0, delta=1e-6, random_state=4
    ).to_arrow()


def test_frame_and_its_files_release_like_duckdb(spark: Any, tmp_path: Path) -> None:
    rows = _records(2000)
    expected = _released(rows)
    # Two partitions of eight have rows.
    frame = spark.createDataFrame(rows).repartition(8, "item").where("item < '2'").union(
        spark.createDataFrame(rows).where("item >= '2' OR item IS NULL")
    )  # fmt: skip
    assert dg.read(frame, user="who", rows="as given").engine == "spark"
    assert _released(frame, rows="as given").equals(expected)
    frame.write.parquet(f"{tmp_path}/rows")
    assert _released(f"{tmp_path}/rows", engine=spark).equals(expected)


@pytest.mark.usefixtures("spark")
def test_program_of_several_tables_equals_duckdb(tmp_path: Path) -> None:
    """From files: joins, a public table, features of people, and a mean by one of these."""
    rng = np.random.default_rng(3)
    visits = pa.table(
        {
            "id": rng.integers(0, 90, 900),
            "zip": [f"80{place:02}" for place in rng.integers(0, 9, 900)],
            "kind": np.array(["er", "gp"])[rng.integers(0, 2, 900)],
            "cost": rng.gamma(2.0, 30.0, 900).round(2),
            "at": pa.array(rng.integers(0, 10**15, 900), pa.timestamp("us")),
        }
    )
    persons = pa.table({"id": np.arange(100), "born": rng.integers(1930, 2010, 100)})
    areas = pa.table({"zip": [f"80{place:02}" for place in range(7)], "canton": list("ZZBBGGV")})
    for name, rows in (("visits", visits), ("persons", persons)):
        pq.write_table(rows, tmp_path / f"{name}.parquet")
    found = []
    for engine in ("duckdb", "spark"):
        one, other = (
            dg.read(str(tmp_path / f"{name}.parquet"), user="id", engine=engine)
            for name in ("visits", "persons")
        )
        people = (
            one.join(other)
            .join_public(areas, on="zip")
            .per_user(
                er="any(kind = 'er')", cost="total(cost, year(at) = 1990)", home="most(canton)",
                first="first(kind, at)", per_visit="total(cost) / count()", born="max(born)",
            )
        )  # fmt: skip
        release = dg.mean(
            people.filter("known(home)"), "per_visit", by=["er", "home"],
            domain={"er": [True, False], "home": ["Z", "B"]}, bounds=(0, 200),
            unit=dg.User(), epsilon=1.0, delta=1e-6, random_state=2,
        )  # fmt: skip
        found.append(release.to_arrow())
    assert found[0].equals(found[1])


def _mean(engine: Any, method: str, seed: int) -> list[float]:
    rng = np.random.default_rng(5)
    columns = {"x": rng.normal(3, 1, 900), "y": rng.normal(-2, 1, 900)}
    table = dg.read(pa.table({"who": np.arange(900) % 300, **columns}), user="who", engine=engine)
    options: dict[str, Any] = {"bound": 9.0, "n_users": 300, "method": method}
    promise: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "random_state": seed}
    found: list[float] = mean_of_columns(table, ["x", "y"], **options, **promise).value.tolist()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("method", ["clip", "recentred"])
def test_mean_of_users_equals_duckdb(method: str) -> None:
    expected = _mean("duckdb", method, 2)
    assert _mean(Cluster(), method, 2) == expected
    assert _mean(Cluster(), method, 3) != expected


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_spark_mean_of_users_equals_duckdb() -> None:
    assert _mean("spark", "recentred", 2) == _mean("duckdb", "recentred", 2)


@pytest.mark.slow
def test_the_command_line_reads_by_spark(spark: Any, command: Command, tmp_path: Path) -> None:
    pq.write_table(_records(500), tmp_path / "rows.parquet")
    words = ["count", tmp_path / "rows.parquet", "--user", "who", "--unit", "user", "--clip", "3"]
    promise = ["--epsilon", "1", "--delta", "1e-6", "--json"]
    for more in ([], ["--master", spark.sparkContext.master]):
        found = command(*words, *promise, "--engine", "spark", *more)
        assert found.returncode == 0, found.stderr
        assert '"statistic": "count"' in found.stdout


def own_functions_run_here(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)


@pytest.mark.slow
def test_failed_tasks_are_repeated_and_added_once(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = _records(2000)

    def fails_first(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches
        if context is not None and context.attemptNumber() == 0:
            raise RuntimeError("The first attempt fails when it has handed over its rows.")

    with silenced():
        made = spark.createDataFrame(rows).repartition(5, "item")
        own_functions_run_here(spark, monkeypatch)
        frame = made.mapInArrow(fails_first, "who long, item string")
    assert _released(frame, rows="as given").equals(_released(rows))


@pytest.mark.slow
def test_permanently_failing_task_releases_nothing(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Any) -> Any:
        raise RuntimeError("Nobody but the curator may see row 17.")

    with silenced():
        made = spark.createDataFrame(_records(50))
        own_functions_run_here(spark, monkeypatch)
        frame = made.mapInArrow(fails, "who long, item string")
    with pytest.raises(DataError, match="cannot be read completely by Spark") as caught:
        _released(frame, rows="as given")
    assert "17" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.slow
def test_frame_functions_lacking_a_module_are_reported(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def imports(batches: Any) -> Any:
        import of_another_machine  # type: ignore[import-not-found]

        yield from of_another_machine.read(batches)

    with silenced():
        made = spark.createDataFrame(_records(50))
        own_functions_run_here(spark, monkeypatch)
        frame = made.mapInArrow(imports, "who long, item string")
    with pytest.raises(DataError, match=r"lack .* that the frame's own functions import"):
        _released(frame, rows="as given")


@pytest.mark.slow
def test_changing_frame_is_rejected_until_checkpointed(spark: Any) -> None:
    from pyspark.sql import functions

    rows = spark.createDataFrame(_records(500))
    frame = rows.where(functions.rand() < 0.5)
    with pytest.raises(ParameterError, match=r"pass frame.localCheckpoint\(\)"):
        dg.read(frame, user="who", rows="as given")
    kept = frame.localCheckpoint()
    assert _released(kept, rows="as given").equals(_released(kept.toArrow()))


@pytest.mark.slow
def test_sums_of_many_coordinates_are_added_up_by_tasks(spark: Any) -> None:
    rng = np.random.default_rng(8)
    rows = pa.table({"who": rng.integers(0, 300, 5000), "item": rng.integers(0, 60_000, 5000)})
    found = []
    for engine in ("spark", "duckdb"):
        table = dg.read(rows, user="who", engine=engine)
        with table.open_engine() as opened:
            groups = Groups.of(("item",), [pa.array(np.arange(60_000))])
            blocks = UnitBlocks("user")
            data = UserContributions(opened, blocks, groups, blocks.cells(groups, public=True))
            found.append(data.sums(Grid(np.array([1.0]), 20)))
    assert np.array_equal(found[0], found[1])
    assert found[0].any()


def _program(name: str, *words: object) -> list[str]:
    command = [sys.executable, "-m", f"tests.tables.engines.{name}", *map(str, words)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return ended.stdout.splitlines()


@pytest.mark.slow(full=True)
@pytest.mark.usefixtures("pyspark_and_java")
@pytest.mark.parametrize("kills", [1, 2])
def test_killed_workers_change_nothing(tmp_path: Path, kills: int) -> None:
    """A cluster of two workers on this machine that also runs slow tasks twice."""
    lines = _program("spark_cluster", tmp_path, kills)
    assert lines.count("KILLED") == kills
    refused = any(line.startswith("NOTHING RELEASED") for line in lines)
    assert ("SAME" in lines) is not refused, lines
    # A ledger has charged the release, whatever its outcome.
    assert "CHARGED" in lines, lines
    if kills == 2:
        assert any("Spark has lost its executors" in line for line in lines), lines


@pytest.mark.slow(full=True)
@pytest.mark.usefixtures("pyspark_and_java")
@pytest.mark.parametrize("published", ["fit", "mean", "histogram"])
def test_lost_cached_data_are_rebuilt_equally(tmp_path: Path, published: str) -> None:
    """A worker is killed between two passes over cached data: rounds of a fit, passes of others."""
    lines = _program("spark_lost", tmp_path, published, 1)
    assert re.fullmatch(r"LOST [1-9]\d* of 12", lines[1]), lines
    assert [lines[0], *lines[2:]] == ["KILLED", "SAME", "CHARGED"]


@pytest.mark.slow(full=True)
@pytest.mark.usefixtures("pyspark_and_java")
def test_differently_rebuilt_blocks_are_reported(tmp_path: Path) -> None:
    """The mutant: a source returns other numbers on rereading, so that blocks differ."""
    lines = _program("spark_lost", tmp_path, "fit", 1, "changes")
    assert lines[-2:] == ["OTHER", "CHARGED"], lines


@pytest.mark.slow(full=True)
@pytest.mark.usefixtures("pyspark_and_java")
def test_fit_losing_all_workers_publishes_nothing_but_charges(tmp_path: Path) -> None:
    lines = _program("spark_lost", tmp_path, "fit", 2)
    assert "LOST 12 of 12" in lines, lines
    assert lines[-2].startswith("NOTHING RELEASED: Spark has lost its executors"), lines
    assert lines[-1] == "CHARGED"


@pytest.mark.slow(full=True)
@pytest.mark.usefixtures("pyspark_and_java")
def test_checkpoint_with_lost_rows_publishes_nothing(tmp_path: Path) -> None:
    """Such rows cannot be rebuilt, and a fit does not continue with the remaining ones."""
    lines = _program("spark_lost", tmp_path, "fit", 1, "checkpoint")
    assert lines[-2].startswith("NOTHING RELEASED: The frame of Spark cannot be read to"), lines
    assert lines[-1] == "CHARGED"


def _through_connect(folder: Path, *names: str) -> list[str]:
    """The tests that pass through a server; this interpreter is only a client."""
    if find_spec("grpc") is None:
        pytest.skip("Spark Connect is absent: pip install 'pyspark[connect]'")
    return [line.removeprefix("KEPT ") for line in _program("spark_connect", folder, *names)]


@pytest.mark.slow(full=True)
@pytest.mark.usefixtures("pyspark_and_java")
def test_contract_is_satisfied_through_spark_connect(tmp_path: Path) -> None:
    kept = _through_connect(tmp_path, "contract")
    assert [name for name in kept if name.startswith("test_releases")], kept


@pytest.mark.slow(full=True)
@pytest.mark.usefixtures("pyspark_and_java")
def test_fits_means_and_files_work_through_spark_connect(tmp_path: Path) -> None:
    assert _through_connect(tmp_path, "fits", "files") == [
        "test_spark_frame_is_fitted_in_place",
        "test_truths_elements_and_a_loss_of_ones_own",
        "a mean by clip",
        "a mean by recentred",
        "one file",
        "a file of releases",
    ]


@pytest.mark.slow(full=True)
def test_one_user_with_ten_million_rows_is_released(spark: Any) -> None:
    from pyspark.sql import functions

    ids = spark.range(10_000_000)
    one = ids.select(functions.lit(1).alias("who"), (ids.id % 1_000_000).alias("item"))
    more = spark.range(500_000)
    others = more.select((more.id % 1000 + 2).alias("who"), (more.id % 997).alias("item"))
    frame = one.union(others)
    found = []
    for data in (frame, frame.toArrow()):
        table = dg.read(data, user="who", memory="256MB", rows="as given")
        counts = dg.count(
            table.with_cells("cell", of="item", by=lambda item: item % 10_000),
            by="item",
            unit=Element("cell"),
            clip=1.0,
            domain=list(range(1_000_000)),
            epsilon=1.0,
            delta=1e-7,
            random_state=1,
        )
        found.append(counts.to_arrow())
    assert found[0].equals(found[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("rows.csv", "engine='duckdb', or convert it to Parquet once"),
        ("duckdb", "or use engine='duckdb'"),
        ("unsigned", "cast it, or use engine='duckdb'"),
    ],
)
def test_unsupported_feature_is_rejected_with_its_remedy(
    source: str, remedy: str, spark: Any
) -> None:
    import duckdb

    tables: dict[str, Callable[[], Any]] = {
        "rows.csv": lambda: "rows.csv",
        "duckdb": lambda: duckdb.sql("SELECT 1 AS who"),
        "unsigned": lambda: pa.table({"who": pa.array([1]), "at": pa.array([1], pa.uint64())}),
    }

    def release() -> None:
        options: dict[str, Any] = {"rows": "as given"} if source == "duckdb" else {}
        table = dg.read(tables[source](), user="who", engine="spark", **options)
        dg.count(table, by="at", unit=User(), epsilon=1.0, delta=1e-6, random_state=1)

    with pytest.raises((ParameterError, SchemaError), match=remedy):
        release()
