"""Which session of Spark is meant, and what is said where it fails."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
from tests.conftest import Command

import dpgrain as dg
from dpgrain._progress import Progress
from dpgrain.errors import DataError, ParameterError
from dpgrain.tables.engines import spark_session
from dpgrain.tables.engines.spark_session import ADDRESS, Session, is_frame, is_session, quiet
from dpgrain.tables.engines.spark_tasks import OTHER_VERSION


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


def test_one_warning_of_pandas_is_silent_and_no_other() -> None:
    with quiet():
        warnings.warn("PySpark does not yet fully support pandas >= 3", FutureWarning, stacklevel=1)
        with pytest.raises(FutureWarning):
            warnings.warn("PySpark does something else", FutureWarning, stacklevel=1)


def test_without_pyspark_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "find_spec", lambda _: None)
    with pytest.raises(ParameterError, match=r"pip install 'dpgrain\[spark\]'"):
        dg.read("rows.parquet", user="who", engine="spark")


class Failing:
    """A session in which everything fails, on one machine or on several."""

    def __init__(self, error: Exception) -> None:
        self.error, self.tags = error, list[str]()
        self.sparkContext = SimpleNamespace(statusTracker=lambda: None)

    def addTag(self, tag: str) -> None:
        self.tags.append(tag)

    def removeTag(self, tag: str) -> None:
        self.tags.remove(tag)

    def interruptTag(self, tag: str) -> None:
        self.tags.append(f"interrupted {tag}")


def _fails(said: str) -> DataError:
    pyspark = pytest.importorskip("pyspark.errors")
    session: Any = Failing(pyspark.PySparkException(said))

    def work() -> None:
        raise session.error

    with pytest.raises(DataError) as caught:
        Session(session).run(work, "The table")
    assert session.tags == []
    assert caught.value.__suppress_context__
    return caught.value


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("row 17 of bob", "The table cannot be read to its end by Spark; its log"),
        (f"… {OTHER_VERSION}: 9", "another version of dpgrain"),
        ("ModuleNotFoundError: No module named 'dpgrain'", "set PYSPARK_PYTHON"),
    ],
)
def test_an_error_of_spark_is_one_sentence_without_its_words(said: str, told: str) -> None:
    error = _fails(said)
    assert told in str(error)
    assert "bob" not in str(error)


def test_ctrl_c_ends_the_work_everywhere() -> None:
    session: Any = Failing(RuntimeError())

    def work() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Session(session).run(work, "The table")
    assert [tag.split(" ")[0] for tag in session.tags] == ["interrupted"]


def test_progress_tells_a_share_of_tasks_and_no_number() -> None:
    """How many tasks there are may follow from how many rows there are."""
    with Progress(1, show=False) as shown:
        shown.stage("Adding up")
        spark_session.tell([(3, 7, 7), (4, 50, 200)])
        assert shown.text == "Adding up: stage 4 of Spark, 25% of its tasks"
        spark_session.tell([(4, 200, 200)])
        assert shown.text == "Adding up: stage 4 of Spark, 25% of its tasks"


def test_a_master_goes_with_spark_alone(command: Command, tmp_path: Any) -> None:
    for words in (["--master", "local[2]"], ["--engine", "spark", "--master", "http://h"]):
        found = command("count", tmp_path / "x.parquet", "--user", "who", "--epsilon", "1",
                        "--delta", "1e-6", *words)  # fmt: skip
        assert found.returncode != 0
        assert "--master must be the address of a cluster of Spark" in found.stderr


@pytest.mark.search(keep=0)
def test_a_session_at_another_address_is_refused(spark: Any) -> None:
    assert Session.at("spark").spark is not None
    assert Session.at(spark.sparkContext.master).spark is not None
    with pytest.raises(ParameterError, match="this process has a session at 'local"):
        Session.at("local[7]")
