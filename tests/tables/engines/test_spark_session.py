"""The selection of the session of Spark, and errors if it fails."""

from __future__ import annotations

import threading
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
from tests.conftest import Command
from tests.refusals import refuses

import dpgrain as dg
from dpgrain._progress import Progress
from dpgrain.errors import DataError, ParameterError
from dpgrain.tables.engines import spark_session, spark_tasks
from dpgrain.tables.engines.spark_session import (
    ADDRESS,
    SparkRunner,
    is_frame,
    is_session,
    silenced,
)
from dpgrain.tables.engines.spark_tasks import OTHER_VERSION, SUMS, AddSlicesTask


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("spark", True),
        ("spark://host:7077", True),
        ("sc://host", True),
        ("local", True),
        ("local[2,3]", True),
        ("k8s://host", True),
        ("yarn", True),
        ("http://host", False),
        ("spark://", False),
        ("locally", False),
        ("duckdb", False),
    ],
)
def test_an_address_of_a_cluster_is_known(text: str, known: bool) -> None:
    assert bool(ADDRESS.fullmatch(text)) is known


def test_nothing_else_is_a_session_or_a_frame() -> None:
    for value in (None, "spark", 5, SimpleNamespace(mapInArrow=1)):
        assert not is_session(value)
        assert not is_frame(value)


def test_every_task_runs_in_the_same_version_only(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    frame: Any = SimpleNamespace(mapInArrow=lambda run, _: run)
    session: Any = SimpleNamespace()
    run: Any = SparkRunner(session).map(frame, AddSlicesTask(), SUMS)
    assert not list(run([]))
    monkeypatch.setattr(spark_tasks, "__version__", "0.0.0")
    with pytest.raises(RuntimeError, match=OTHER_VERSION):
        list(run([]))


def test_one_warning_of_pandas_is_silent_and_no_other() -> None:
    with silenced():
        warnings.warn("PySpark does not yet fully support pandas >= 3", FutureWarning, stacklevel=1)
        with pytest.raises(FutureWarning):
            warnings.warn("PySpark does something else", FutureWarning, stacklevel=1)


def test_missing_pyspark_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "find_spec", lambda _: None)
    with refuses("engine", "'dpgrain[spark]'"):
        dg.read("rows.parquet", user="who", engine="spark")


def test_missing_spark_connect_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "find_spec", lambda name: None if name == "grpc" else name)
    with refuses("engine", "'pyspark[connect]'"):
        SparkRunner.at("sc://127.0.0.1")


class Failing:
    """A session that always fails; it is also its context."""

    def __init__(self) -> None:
        self.tags = list[str]()

    @property
    def sparkContext(self) -> Failing:
        return self

    def statusTracker(self) -> Tracked:
        return Tracked([[]], "FAILED")

    def addJobTag(self, tag: str) -> None:
        self.tags.append(tag)

    def removeJobTag(self, tag: str) -> None:
        self.tags.remove(tag)

    def cancelJobsWithTag(self, tag: str) -> None:
        self.tags.append(f"ended {tag}")


def _fails(said: str) -> DataError:
    pyspark = pytest.importorskip("pyspark.errors")
    session: Any = Failing()

    def work() -> None:
        raise pyspark.PySparkException(said)

    with pytest.raises(DataError) as caught:
        SparkRunner(session).run(work, "The table")
    assert session.tags == []
    assert caught.value.__suppress_context__
    return caught.value


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("row 17 of bob", "The table cannot be read completely by Spark; see its log"),
        (f"… {OTHER_VERSION}: 9", "another version of dpgrain"),
        ("ModuleNotFoundError: No module named 'dpgrain'", "set PYSPARK_PYTHON"),
    ],
)
def test_spark_error_is_one_sentence_without_its_text(said: str, told: str) -> None:
    error = _fails(said)
    assert told in str(error)
    assert "bob" not in str(error)


def test_ctrl_c_ends_the_work_everywhere() -> None:
    session: Any = Failing()

    def work() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SparkRunner(session).run(work, "The table")
    assert [tag.split(" ")[0] for tag in session.tags] == ["ended"]


def test_progress_shows_task_share_and_no_number() -> None:
    """How many tasks there are may follow from how many rows there are."""
    with Progress(1, show=False) as shown:
        shown.stage("Adding up")
        spark_session.show_stage([(3, 7, 7), (4, 50, 200)])
        assert shown.text == "Adding up: stage 4 of Spark, 25% of its tasks"
        spark_session.show_stage([(4, 200, 200)])
        assert shown.text == "Adding up: stage 4 of Spark, 25% of its tasks"


def test_master_requires_spark(command: Command, tmp_path: Any) -> None:
    for words in (["--master", "local[2]"], ["--engine", "spark", "--master", "http://h"]):
        found = command("count", tmp_path / "x.parquet", "--user", "who", "--epsilon", "1",
                        "--delta", "1e-6", *words)  # fmt: skip
        assert found.returncode != 0
        assert "--master must be the address of a Spark cluster" in found.stderr


class Tracked:
    """Spark's report on its stages: at each call, the number of running tasks in each."""

    def __init__(self, looks: list[list[int]], before: str) -> None:
        self.looks, self.now, self.before = looks, list[int](), before

    def getJobIdsForGroup(self) -> list[int]:
        return [7, 8]

    def getJobInfo(self, job: int) -> SimpleNamespace | None:
        return SimpleNamespace(status=self.before) if job == 8 else None

    def getActiveStageIds(self) -> range:
        self.now = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return range(len(self.now))

    def getStageInfo(self, stage: int) -> SimpleNamespace:
        running = self.now[stage]
        return SimpleNamespace(
            stageId=stage, numActiveTasks=running, numCompletedTasks=1, numTasks=9
        )


def _ended(monkeypatch: pytest.MonkeyPatch, looks: list[list[int]], before: str = "FAILED") -> str:
    """The outcome of work that continues until it is ended, or for a quarter of a second."""
    pyspark = pytest.importorskip("pyspark.errors")
    monkeypatch.setattr(spark_session, "_POLL_SECONDS", 0.005)
    monkeypatch.setattr(spark_session, "LOST_SECONDS", 0.05)
    session: Any = Failing()
    session.statusTracker = lambda: Tracked(looks, before)
    ended = threading.Event()
    session.cancelJobsWithTag = lambda _: ended.set()

    def work() -> None:
        if ended.wait(0.25):
            raise pyspark.PySparkException("Row 17 was cancelled.")

    try:
        SparkRunner(session).run(work, "The table")
    except DataError as error:
        return str(error)
    return "done"


def test_work_without_executors_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = "Spark has lost its executors"
    assert lost in _ended(monkeypatch, [[2], [0]])
    # They were there for an earlier job.
    assert lost in _ended(monkeypatch, [[0]], before="SUCCEEDED")


@pytest.mark.parametrize("looks", [[[0]], [[], [0]], [[1], [0, 1]], [[1], []]])
def test_waiting_or_running_work_is_not_ended(
    monkeypatch: pytest.MonkeyPatch, looks: list[list[int]]
) -> None:
    """For a first executor, in one stage of several, or here between two stages."""
    assert _ended(monkeypatch, looks) == "done"


@pytest.mark.slow
def test_session_at_another_address_is_rejected(spark: Any) -> None:
    assert SparkRunner.at("spark").spark is not None
    assert SparkRunner.at(spark.sparkContext.master).spark is not None
    with pytest.raises(ParameterError, match="this process has a session at 'local"):
        SparkRunner.at("local[7]")


@pytest.mark.slow
def test_thread_without_session_is_rejected_another_address(spark: Any) -> None:
    """Which session is active is known to each thread, and there is one for all of them."""
    said: list[str] = []

    def other() -> None:
        # As in a thread without a session.
        spark._jvm.SparkSession.clearActiveSession()
        try:
            SparkRunner.at("local[7]")
        except ParameterError as error:
            said.append(str(error))
        said.append(str(SparkRunner.at(spark.sparkContext.master).spark.sparkContext.master))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert said[0].startswith("engine is 'local[7]', but this process has a session at 'local")
    assert said[1:] == [spark.sparkContext.master]


@pytest.mark.slow
def test_small_frame_is_stored_in_few_parts(spark: Any) -> None:
    """By default, Spark stores as many parts as its settings state, three here."""
    from pyspark.sql import functions

    def parts(keep: Any) -> int:
        kept = keep(spark.range(1000).repartition("id"))
        kept.count()
        found: int = kept.select(functions.spark_partition_id()).distinct().count()
        kept.unpersist()
        return found

    before = spark.conf.get(spark_session._PARTS_BY_SIZE)
    assert parts(lambda frame: frame.persist()) == 3
    assert parts(SparkRunner(spark).cache) == 1
    assert spark.conf.get(spark_session._PARTS_BY_SIZE) == before
