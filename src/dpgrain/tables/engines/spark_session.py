"""Spark sessions: select one, and run work in it with progress and clear errors.

All calls use ``pyspark.sql``, so that sessions of Spark Connect work as well.
"""

from __future__ import annotations

import contextvars
import glob
import logging
import math
import os
import re
import secrets
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from dpgrain._lazy_import import lazy_import
from dpgrain._progress import step
from dpgrain.errors import (
    DataError,
    DpgrainError,
    ParameterError,
    SchemaError,
    raise_without_context,
)
from dpgrain.tables.engines.spark_tasks import OTHER_VERSION, SparkTask, VersionedTask

if TYPE_CHECKING:
    from py4j import protocol as py4j
    from pyspark import errors, logger, sql
    from pyspark.sql import functions
    from pyspark.sql.pandas import types
else:
    sql, functions = lazy_import("pyspark.sql"), lazy_import("pyspark.sql.functions")
    errors, types = lazy_import("pyspark.errors"), lazy_import("pyspark.sql.pandas.types")
    logger = lazy_import("pyspark.logger")
    py4j = lazy_import("py4j.protocol")

Answer = TypeVar("Answer")

#: Address of a session: "spark" for the existing one, or a cluster.
ADDRESS = re.compile(r"spark|local(\[[^\]]*\])?|(spark|sc|k8s)://.+|yarn")
# Setting that lets Spark choose the number of partitions of a cached frame.
_PARTS_BY_SIZE = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"
# Replaces Spark's message if executors are lost.
_LOST = "executors are lost"
#: Seconds without a running task until executors count as lost.
LOST_SECONDS = 300.0
# Loggers of errors that quote rows, and of all messages between Python and Java.
_OF_ERRORS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_OF_MESSAGES = ("py4j.clientserver", "py4j.java_gateway")
# Whether this thread is inside a call of Spark by the library.
_asking: contextvars.ContextVar[bool] = contextvars.ContextVar("asking", default=False)
# Seconds between polls of progress; Spark Connect reports progress itself.
_POLL_SECONDS = 0.5


class _SuppressLogs(logging.Filter):
    """Drop log records during the library's own calls of Spark."""

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002 - as filters are called
        """Return True to log a record."""
        return not _asking.get()


@cache
def _filter_loggers() -> None:
    """Attach the filter to the loggers that may quote rows."""
    unheard = _SuppressLogs()
    for name in _OF_ERRORS:
        logger.PySparkLogger.getLogger(name).addFilter(unheard)
    for name in _OF_MESSAGES:
        logging.getLogger(name).addFilter(unheard)


@contextmanager
def silenced() -> Iterator[None]:
    """Call Spark with its Python loggers silenced, because its errors may quote rows.

    This also suppresses a warning about the version of pandas, which is not used here.
    """
    _filter_loggers()
    before = _asking.set(True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "PySpark does not yet fully support pandas", FutureWarning
            )
            yield
    finally:
        _asking.reset(before)


@contextmanager
def planning() -> Iterator[None]:
    """Plan a frame without computing it; replace Spark's errors, which may quote rows."""
    # Spark nevertheless computes some frames of rows in the driver's memory.
    with silenced():
        try:
            yield
        except (errors.PySparkException, py4j.Py4JError) as error:
            raise_without_context(_read_error("The frame", str(error)))


def is_session(value: Any) -> bool:
    """Return True if a value is a Spark session, without importing Spark."""
    of_spark = type(value).__module__.partition(".")[0] == "pyspark"
    return of_spark and type(value).__name__ == "SparkSession"


def is_frame(value: Any) -> bool:
    """Return True if a value is a Spark DataFrame, without importing Spark."""
    of_spark = type(value).__module__.startswith("pyspark.sql.")
    return of_spark and hasattr(value, "mapInArrow")


@dataclass(frozen=True, eq=False)
class SparkRunner:
    """Spark session that runs tasks, from a session of pyspark."""

    spark: sql.SparkSession

    @staticmethod
    def at(address: str) -> SparkRunner:
        """Return the session at an address, or the existing session for the address "spark"."""
        if find_spec("pyspark") is None:
            raise ParameterError(
                "engine 'spark' requires PySpark and Java 17 or later; run pip install "
                "'dpgrain[spark]'.",
                name="engine",
            )
        if address.startswith("sc://") and find_spec("grpc") is None:
            raise ParameterError(
                f"engine {address!r} requires Spark Connect; run pip install 'pyspark[connect]'.",
                name="engine",
            )
        with silenced():
            try:
                # Without a session of this thread, Spark returns that of the process.
                spark = sql.SparkSession.getActiveSession() or _builder(address).getOrCreate()
            except (errors.PySparkException, py4j.Py4JError, OSError, RuntimeError) as error:
                raise DataError(
                    f"Spark does not start at {address!r}; check the address, and that Java 17 or "
                    "later is installed (java -version)."
                ) from error
            session = SparkRunner(spark)
            session._require(address)
            return session

    def _require(self, address: str) -> None:
        if address == "spark" or self.remote:
            return
        master = self.spark.sparkContext.master
        if address != master:
            raise ParameterError(
                f"engine is {address!r}, but this process has a session at {master!r}; pass that "
                "session, or stop it first.",
                name="engine",
            )

    @property
    def remote(self) -> bool:
        """True for a session of Spark Connect."""
        return ".connect." in type(self.spark).__module__

    def frame(self, table: pa.Table) -> sql.DataFrame:
        """Convert an Arrow table to a frame."""
        with silenced():
            return self.spark.createDataFrame(table, schema=types.from_arrow_schema(table.schema))

    def parquet(self, paths: list[str]) -> sql.DataFrame:
        """Read Parquet files as a frame."""
        # Types inferred from folder names could change with a single folder.
        options = {"mergeSchema": "true", "recursiveFileLookup": "true"}
        try:
            return self.spark.read.options(**options).parquet(*map(_absolute, paths))
        except errors.AnalysisException as error:
            raise DataError(
                f"Spark finds no Parquet file at {paths[0]!r}; check the path, and that every executor "
                "can read it."
            ) from error
        except errors.PySparkException as error:
            raise SchemaError(
                f"Spark cannot read the files at {paths[0]!r} as one table; use the same "
                "columns with compatible types in every file."
            ) from error

    @staticmethod
    def task_types(schema: pa.Schema) -> list[pa.DataType | None]:
        """Return the type of each column in tasks; None if Spark lacks the type."""
        result = []
        for field in schema:
            try:
                spark_type = types.from_arrow_type(field.type)
                result.append(types.to_arrow_type(spark_type, timezone="UTC"))
            except errors.PySparkException:
                result.append(None)
        return result

    def select(self, frame: sql.DataFrame, columns: list[str]) -> sql.DataFrame:
        """Select columns of a frame, named c0, c1 and so on."""
        with planning():
            return frame.select(
                [functions.col(_quoted(name)).alias(f"c{i}") for i, name in enumerate(columns)]
            )

    def union(self, first: sql.DataFrame, second: sql.DataFrame) -> sql.DataFrame:
        """Concatenate two frames with the same columns."""
        with planning():
            return first.union(second)

    def by_user(self, frame: sql.DataFrame, column: str) -> sql.DataFrame:
        """Move all rows of a user to one partition; rows without a user are dropped."""
        with planning():
            user = functions.col(column)
            return frame.where(user.isNotNull()).repartition(user)

    def map(self, frame: sql.DataFrame, task: SparkTask, schema: pa.Schema) -> sql.DataFrame:
        """Apply a task to each partition, lazily."""
        versioned = VersionedTask(task)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return versioned(iter(batches))

        with planning(), self._interpreter():
            return frame.mapInArrow(run, types.from_arrow_schema(schema))

    def cache(self, frame: sql.DataFrame) -> sql.DataFrame:
        """Cache a frame on the executors, with a number of partitions that fits its size.

        By default Spark caches ``spark.sql.shuffle.partitions`` partitions, however small, and the
        overhead of a partition is that of a million rows.
        """
        with planning(), self._setting(_PARTS_BY_SIZE, "true"):
            return frame.persist()

    @contextmanager
    def _setting(self, name: str, value: str) -> Iterator[None]:
        """Change a setting of the session temporarily, if its administrator allows it."""
        settings = self.spark.conf
        before = settings.get(name, None)
        try:
            settings.set(name, value)
        except errors.PySparkException:
            yield
            return
        try:
            yield
        finally:
            settings.unset(name) if before is None else settings.set(name, before)

    @contextmanager
    def _interpreter(self) -> Iterator[None]:
        """Run tasks with this Python interpreter, unless the environment sets another one."""
        if self.remote or "PYSPARK_PYTHON" in os.environ:
            yield
            return
        context = self.spark.sparkContext
        before, context.pythonExec = context.pythonExec, sys.executable
        try:
            yield
        finally:
            context.pythonExec = before

    def collect(self, frame: sql.DataFrame, name: str) -> pa.Table:
        """Compute a frame and return its rows; ``name`` is the source's name in messages."""
        return self.run(frame.toArrow, name)

    def run(self, work: Callable[[], Answer], name: str) -> Answer:
        """Run work in Spark, with progress; ctrl-C cancels it on the cluster."""
        with silenced(), self._tagged() as end, self._monitored(end) as lost:
            try:
                return work()
            except KeyboardInterrupt:
                end()
                raise
            except DpgrainError:
                raise
            except (errors.PySparkException, py4j.Py4JError, pa.ArrowException, OSError) as error:
                raise_without_context(_read_error(name, _LOST if lost.is_set() else str(error)))

    @contextmanager
    def _tagged(self) -> Iterator[Callable[[], object]]:
        """Yield a function that cancels this thread's jobs in the block, from any thread."""
        tag = f"dpgrain-{secrets.token_hex(4)}"
        if self.remote:
            self.spark.addTag(tag)
            try:
                yield lambda: self.spark.interruptTag(tag)
            finally:
                self.spark.removeTag(tag)
            return
        # Without Spark Connect, other threads do not see tags of the session.
        context = self.spark.sparkContext
        context.addJobTag(tag)
        try:
            yield lambda: context.cancelJobsWithTag(tag)
        finally:
            context.removeJobTag(tag)

    @contextmanager
    def _monitored(self, end: Callable[[], object]) -> Iterator[threading.Event]:
        """Show progress of stages; yield an event that is set when executors are lost."""
        lost = threading.Event()
        if self.remote:

            def report(stages: Any, *_: Any, **__: Any) -> None:
                show_stage([(s.stage_id, s.num_completed_tasks, s.num_tasks) for s in stages or ()])

            handler: Any = report
            self.spark.registerProgressHandler(handler)
            try:
                yield lost
            finally:
                self.spark.removeProgressHandler(handler)
            return
        done = threading.Event()
        watch = threading.Thread(
            target=contextvars.copy_context().run, args=(self._poll, done, lost, end), daemon=True
        )
        watch.start()
        try:
            yield lost
        finally:
            done.set()
            watch.join()

    def _poll(
        self, done: threading.Event, lost: threading.Event, end: Callable[[], object]
    ) -> None:
        """Show progress of stages, and cancel work after its executors are lost.

        Spark would wait forever for new executors. Sessions without a completed job may be queued
        for their first executor and are not cancelled.
        """
        tracker = self.spark.sparkContext.statusTracker()
        since = None
        while not done.wait(_POLL_SECONDS):
            if since is None:
                since = time.monotonic() if _has_run(tracker) else math.inf
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            running_stages = [stage for stage in infos if stage is not None]
            show_stage([(s.stageId, s.numCompletedTasks, s.numTasks) for s in running_stages])
            running = any(stage.numActiveTasks for stage in running_stages)
            if running or (not running_stages and since < math.inf):
                since = time.monotonic()
            elif time.monotonic() - since > LOST_SECONDS:
                lost.set()
                end()
                return


def _has_run(tracker: Any) -> bool:
    """Return True if a job of the session has succeeded."""
    jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup())
    return any(job is not None and job.status == "SUCCEEDED" for job in jobs)


def show_stage(stages: list[tuple[int, int, int]]) -> None:
    """Show the progress of the latest stage in percent.

    The number of tasks is not shown, because it may depend on the number of rows.
    """
    running = [stage for stage in stages if stage[1] < stage[2]]
    if running:
        number, finished, tasks = max(running)
        step(f"stage {number} of Spark, {100 * finished // tasks}% of its tasks")


def _read_error(name: str, message: str) -> DataError:
    if message == _LOST:
        return DataError(
            "Spark has lost its executors and got no new ones; check the cluster, and publish "
            "again."
        )
    if OTHER_VERSION in message:
        return DataError(
            "The Spark executors have another version of dpgrain; install the same version there."
        )
    if "ModuleNotFoundError" in message or "PYTHON_VERSION_MISMATCH" in message:
        return DataError(
            "The Spark executors lack this Python, dpgrain, or a module that the frame's own "
            "functions import; set PYSPARK_PYTHON to an interpreter that has them on every "
            f"machine, such as {sys.executable}."
        )
    return DataError(
        f"{name} cannot be read completely by Spark; see its log, which is for internal use only."
    )


def _builder(address: str) -> Any:
    builder: Any = sql.SparkSession.builder
    if address.startswith("sc://"):
        return builder.remote(address)
    if address != "spark":
        builder = builder.master(address)
    # dpgrain shows its own progress.
    return builder.appName("dpgrain").config("spark.ui.showConsoleProgress", "false")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _absolute(path: str) -> str:
    """Return the absolute path of a local file: Spark may run in another directory."""
    return str(Path(path).absolute()) if glob.glob(path) else path  # noqa: PTH207 - may be a pattern
