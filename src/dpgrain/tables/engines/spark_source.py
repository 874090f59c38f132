"""Rows that Spark reads: a caller's DataFrame, or files in any storage of Spark."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from dpgrain._lazy_import import lazy_import
from dpgrain.errors import ParameterError
from dpgrain.tables.engines.spark_session import SparkRunner, silenced
from dpgrain.tables.sources.column_names import require_names
from dpgrain.tables.sources.column_types import TIMES, decimal_places, read_as
from dpgrain.tables.sources.duckdb_connection import duckdb_type

if TYPE_CHECKING:
    from pyspark import errors, sql
    from pyspark.sql.pandas import types
else:
    sql, errors = lazy_import("pyspark.sql"), lazy_import("pyspark.errors")
    types = lazy_import("pyspark.sql.pandas.types")

# Type name for all types that Arrow lacks; it is not supported anywhere.
_UNKNOWN = "VARIANT"


@dataclass(frozen=True, eq=False)
class SparkSource:
    """Spark DataFrame with the same rows at each read; ``paths`` are its files."""

    frame: sql.DataFrame
    name: str = "The Spark DataFrame"
    title: str = "a data frame of Spark"
    paths: tuple[str, ...] = ()

    @staticmethod
    def from_frame(frame: sql.DataFrame) -> SparkSource:
        """Return the source of a caller's frame."""
        require_names(frame.columns, "The frame")
        if not SparkRunner(frame.sparkSession).remote and not _deterministic(frame):
            raise ParameterError(
                "source may return different rows each time Spark reads it, such as with "
                "rand(); write it to Parquet and read that, or pass frame.localCheckpoint().",
                name="source",
            )
        return SparkSource(frame)

    @cached_property
    def rows(self) -> sql.DataFrame:
        """The frame; for Spark Connect, which cannot report determinism, a checkpoint."""
        session = SparkRunner(self.frame.sparkSession)
        if self.paths or not session.remote:
            return self.frame
        return session.run(self.frame.localCheckpoint, self.name)

    def columns(self) -> dict[str, str]:
        """Return column name → DuckDB type, from the schema only."""
        known = dict(zip(self.frame.columns, self._types, strict=True))
        return {
            name: _UNKNOWN if kind is None else read_as(duckdb_type(kind))
            for name, kind in known.items()
        }

    @property
    def may_end(self) -> bool:
        """True if a single value can abort reading: a time or a decimal out of range."""
        kinds = self.columns().values()
        return any(kind in TIMES or decimal_places(kind) is not None for kind in kinds)

    def schema(self, names: list[str]) -> pa.Schema:
        """Return the schema of some columns, named c0, c1 and so on."""
        known = dict(zip(self.frame.columns, self._types, strict=True))
        return pa.schema([(f"c{i}", known[name]) for i, name in enumerate(names)])

    def attach(
        self,
        connection: duckdb.DuckDBPyConnection,  # noqa: ARG002
        used: Collection[str] | None = None,  # noqa: ARG002
    ) -> str:
        """Raise, because DuckDB on this machine does not read Spark frames."""
        raise ParameterError(
            f"{self.name} is read inside Spark, and only by releases; use engine='duckdb' for "
            "files, or pass frame.toArrow()."
        )

    @cached_property
    def _types(self) -> list[pa.DataType | None]:
        with silenced():
            return [_arrow_type(field.dataType) for field in self.frame.schema.fields]


def _arrow_type(kind: Any) -> pa.DataType | None:
    """Return the type in tasks; None if Arrow lacks it."""
    try:
        return types.to_arrow_type(kind, timezone="UTC")
    except errors.PySparkException:
        return None


def _deterministic(frame: Any) -> bool:
    """Return True if Spark reports that a frame always has the same rows."""
    return bool(frame._jdf.queryExecution().analyzed().deterministic())
