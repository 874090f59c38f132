"""Sessions of Spark: the choice of one, and work in it, with progress and plain errors.

Everything is asked through ``pyspark.sql``, so that a session may also be one of Spark Connect.
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
from dpgrain.tables.engines.spark_tasks import OTHER_VERSION, Task

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

#: Form of a session's address: the session there is, or a cluster.
ADDRESS = re.compile(r"spark|local(\[[^\]]*\])?|(spark|sc|k8s)://.+|yarn")
# Option that lets Spark choose the number of parts of a kept frame.
_PARTS_BY_SIZE = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"
# Words in place of Spark's own where executors are lost.
_LOST = "executors are lost"
#: Seconds without a running task after which tasks that ran count as lost with their executors.
LOST_SECONDS = 300.0
# Loggers of errors with their rows, and of all messages between Python and Java.
_OF_ERRORS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_OF_MESSAGES = ("py4j.clientserver", "py4j.java_gateway")
# Whether the library is asking Spark, in this thread.
_asking: contextvars.ContextVar[bool] = contextvars.ContextVar("asking", default=False)
# Seconds between polls of a session's progress, unless it is one of Spark Connect.
_POLL_SECONDS = 0.5


class _Unheard(logging.Filter):
    """Drop what is logged while the library asks Spark."""

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002 - as filters are called
        """Return whether to keep a record."""
        return not _asking.get()


@cache
def _filter_loggers() -> None:
    """Have the loggers that may quote rows drop what is logged while the library asks Spark."""
    unheard = _Unheard()
    for name in _OF_ERRORS:
        logger.PySparkLogger.getLogger(name).addFilter(unheard)
    for name in _OF_MESSAGES:
        logging.getLogger(name).addFilter(unheard)


@contextmanager
def quiet() -> Iterator[None]:
    """Ask Spark with its Python loggers silent, as the errors that they print may quote rows.

    A warning that Spark does not support a version of pandas, which is not used here, is left out, too.
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
    """Make a frame for which nothing is computed yet.

    Spark computes some of it nevertheless, of rows in the driver's memory.

    Raises:
        DataError: if Spark fails; its own text may quote rows and is not shown.
    """
    with quiet():
        try:
            yield
        except (errors.PySparkException, py4j.Py4JError) as error:
            raise_without_context(_failed("The frame", str(error)))


def is_session(value: Any) -> bool:
    """Return whether a value is a session of Spark, without loading Spark."""
    of_spark = type(value).__module__.partition(".")[0] == "pyspark"
    return of_spark and type(value).__name__ == "SparkSession"


def is_frame(value: Any) -> bool:
    """Return whether a value is a data frame of Spark, without loading Spark."""
    of_spark = type(value).__module__.startswith("pyspark.sql.")
    return of_spark and hasattr(value, "mapInArrow")


@dataclass(frozen=True, eq=False)
class Session:
    """A session of Spark, and how tasks are run in it.

    Args:
        spark: the session of pyspark.
    """

    spark: sql.SparkSession

    @staticmethod
    def at(address: str) -> Session:
        """Return the session at an address; one that exists already, where no address is stated.

        Raises:
            ParameterError: if Spark is not installed, or there is a session at another address.
            DataError: if Spark does not start there.
        """
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
        with quiet():
            try:
                # Where this thread has begun none of its own, Spark gives that of the process.
                spark = sql.SparkSession.getActiveSession() or _builder(address).getOrCreate()
            except (errors.PySparkException, py4j.Py4JError, OSError, RuntimeError) as error:
                raise DataError(
                    f"Spark does not start at {address!r}; check the address, and that Java 17 or "
                    "later is installed (java -version)."
                ) from error
            session = Session(spark)
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
        """True if it is a session of Spark Connect."""
        return ".connect." in type(self.spark).__module__

    def frame(self, table: pa.Table) -> sql.DataFrame:
        """Return rows in memory as a frame."""
        with quiet():
            return self.spark.createDataFrame(table, schema=types.from_arrow_schema(table.schema))

    def parquet(self, paths: list[str]) -> sql.DataFrame:
        """Return the rows of Parquet files as a frame.

        Raises:
            DataError: if there are none.
            SchemaError: if a column has types that do not fit together.
        """
        # Types guessed from the names of folders would change with one of them.
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
    def types_there(schema: pa.Schema) -> list[pa.DataType | None]:
        """Return the type of each column where tasks read it; None where Spark lacks the type."""
        result = []
        for field in schema:
            try:
                there = types.from_arrow_type(field.type)
                result.append(types.to_arrow_type(there, timezone="UTC"))
            except errors.PySparkException:
                result.append(None)
        return result

    def select(self, frame: sql.DataFrame, columns: list[str]) -> sql.DataFrame:
        """Return columns of a frame, called c0, c1 and so on."""
        with planning():
            return frame.select(
                [functions.col(_quoted(name)).alias(f"c{i}") for i, name in enumerate(columns)]
            )

    def together(self, first: sql.DataFrame, second: sql.DataFrame) -> sql.DataFrame:
        """Return the rows of two frames of the same columns."""
        with planning():
            return first.union(second)

    def by_user(self, frame: sql.DataFrame, column: str) -> sql.DataFrame:
        """Bring all rows of a user into one partition; rows without a user are left out."""
        with planning():
            user = functions.col(column)
            return frame.where(user.isNotNull()).repartition(user)

    def map(self, frame: sql.DataFrame, task: Task, schema: pa.Schema) -> sql.DataFrame:
        """Return what a task makes of each partition, as a frame that nothing is computed for yet."""

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return task(iter(batches))

        with planning(), self._interpreter():
            return frame.mapInArrow(run, types.from_arrow_schema(schema))

    def keep(self, frame: sql.DataFrame) -> sql.DataFrame:
        """Keep a frame on the executors once it is computed, in as many parts as its size asks for.

        Without this option Spark keeps as many parts as ``spark.sql.shuffle.partitions`` says,
        however small they are; and the cost of a part beside its rows is that of a million rows.
        """
        with planning(), self._setting(_PARTS_BY_SIZE, "true"):
            return frame.persist()

    @contextmanager
    def _setting(self, name: str, value: str) -> Iterator[None]:
        """Have the session so set for a while, where whoever runs it lets others do so."""
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
        """Have tasks run by the interpreter that runs here, unless the environment states another.

        Spark would take the first ``python3`` that it finds.
        """
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
        """Compute a frame and return its rows.

        Args:
            frame: the frame.
            name: the name of the source, for messages.

        Raises:
            DataError: if Spark fails.
        """
        return self.run(frame.toArrow, name)

    def run(self, work: Callable[[], Answer], name: str) -> Answer:
        """Do work of Spark, with progress; ctrl-C ends it everywhere.

        Raises:
            DataError: if Spark fails; its own text may quote rows and is not shown.
        """
        with quiet(), self._tagged() as end, self._watched(end) as lost:
            try:
                return work()
            except KeyboardInterrupt:
                end()
                raise
            except DpgrainError:
                raise
            except (errors.PySparkException, py4j.Py4JError, pa.ArrowException, OSError) as error:
                raise_without_context(_failed(name, _LOST if lost.is_set() else str(error)))

    @contextmanager
    def _tagged(self) -> Iterator[Callable[[], object]]:
        """Yield what ends, from any thread, all that this thread begins in Spark meanwhile."""
        tag = f"dpgrain-{secrets.token_hex(4)}"
        if self.remote:
            self.spark.addTag(tag)
            try:
                yield lambda: self.spark.interruptTag(tag)
            finally:
                self.spark.removeTag(tag)
            return
        # Tags of a session that is not of Spark Connect are unknown to other threads.
        context = self.spark.sparkContext
        context.addJobTag(tag)
        try:
            yield lambda: context.cancelJobsWithTag(tag)
        finally:
            context.removeJobTag(tag)

    @contextmanager
    def _watched(self, end: Callable[[], object]) -> Iterator[threading.Event]:
        """Show on the progress line how far stages are; yield what says that executors are lost."""
        lost = threading.Event()
        if self.remote:

            def told(stages: Any, *_: Any, **__: Any) -> None:
                tell([(s.stage_id, s.num_completed_tasks, s.num_tasks) for s in stages or ()])

            handler: Any = told
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
        """Show how far stages are, and end work that has lost its executors.

        Spark itself would wait for others for ever. A session in which nothing has run may be in a
        queue for its first executor, and is left alone.
        """
        tracker = self.spark.sparkContext.statusTracker()
        since = None
        while not done.wait(_POLL_SECONDS):
            if since is None:
                since = time.monotonic() if _has_run(tracker) else math.inf
            asked = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            result = [stage for stage in asked if stage is not None]
            tell([(s.stageId, s.numCompletedTasks, s.numTasks) for s in result])
            running = any(stage.numActiveTasks for stage in result)
            if running or (not result and since < math.inf):
                since = time.monotonic()
            elif time.monotonic() - since > LOST_SECONDS:
                lost.set()
                end()
                return


def _has_run(tracker: Any) -> bool:
    """Return whether a job of the session has come to its end."""
    jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup())
    return any(job is not None and job.status == "SUCCEEDED" for job in jobs)


def tell(stages: list[tuple[int, int, int]]) -> None:
    """Show how far the latest stage is; its number of tasks may follow from that of the rows."""
    running = [stage for stage in stages if stage[1] < stage[2]]
    if running:
        number, finished, tasks = max(running)
        step(f"stage {number} of Spark, {100 * finished // tasks}% of its tasks")


def _failed(name: str, said: str) -> DataError:
    if said == _LOST:
        return DataError(
            "Spark has lost its executors and got no new ones; check the cluster, and publish "
            "again."
        )
    if OTHER_VERSION in said:
        return DataError(
            "The Spark executors have another version of dpgrain; install the same version there."
        )
    if "ModuleNotFoundError" in said or "PYTHON_VERSION_MISMATCH" in said:
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
    # This package's own line of progress is enough.
    return builder.appName("dpgrain").config("spark.ui.showConsoleProgress", "false")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _absolute(path: str) -> str:
    """Return a path of this machine from its root, as Spark may have been started elsewhere."""
    return str(Path(path).absolute()) if glob.glob(path) else path  # noqa: PTH207 - may be a pattern
