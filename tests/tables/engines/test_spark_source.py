"""Frames and files that Spark reads: their types, and errors before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpgrain as dg
from dpgrain.errors import DataError, ParameterError, SchemaError
from dpgrain.tables.engines.spark_source import SparkSource

pytestmark = pytest.mark.slow

TYPES = {
    "who": ("BIGINT", "BIGINT"),
    "small": ("TINYINT", "TINYINT"),
    "name": ("STRING", "VARCHAR"),
    "day": ("DATE", "DATE"),
    "at": ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE"),
    "clock": ("TIMESTAMP_NTZ", "TIMESTAMP"),
    "paid": ("DECIMAL(9, 2)", "DECIMAL(9,2)"),
    "share": ("DOUBLE", "DOUBLE"),
    "yes": ("BOOLEAN", "BOOLEAN"),
    "tags": ("ARRAY<STRING>", "VARCHAR[]"),
    "any": ("VARIANT", 'STRUCT("value" BLOB, metadata BLOB)'),
}


def test_columns_have_duckdb_types(spark: Any) -> None:
    listed = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, (kind, _) in TYPES.items())
    source = SparkSource.from_frame(spark.sql(f"SELECT {listed}"))
    assert source.columns() == {name: kind for name, (_, kind) in TYPES.items()}
    table = dg.read(source.frame, user="who", rows="as given")
    with pytest.raises(SchemaError, match="cannot be used as a key"):
        table.require_key("any", "item")
    with pytest.raises(ParameterError, match="is read inside Spark"):
        source.attach(duckdb.connect())
    with pytest.raises(ParameterError, match=r"frame\.toArrow\(\)"):
        table.check("name")


def test_duplicate_column_names_are_rejected(spark: Any) -> None:
    for names, told in (
        ("1 AS who, 2 AS who", "'who' twice"),
        ("1 AS who, 2 AS WHO", "'who' and 'WHO', which queries treat as the same"),
    ):
        with pytest.raises(SchemaError, match=f"{told}; rename one of them"):
            dg.read(spark.sql(f"SELECT {names}"), user="who", rows="as given")


def test_frame_is_read_only_by_spark(spark: Any) -> None:
    frame = spark.sql("SELECT 1 AS who")
    with pytest.raises(ParameterError, match="engine must be 'spark' for a Spark DataFrame"):
        dg.read(frame, user="who", engine="duckdb", rows="as given")
    with pytest.raises(ParameterError, match="the session of the DataFrame, not another"):
        dg.read(frame, user="who", engine=spark.newSession(), rows="as given").open_engine()


def test_missing_files_are_reported(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="finds no Parquet file at"):
        dg.read(tmp_path / "absent", user="who", engine=spark)


@pytest.mark.parametrize(
    ("kind", "raw", "provenance"),
    [
        (pa.int64(), 2**62, "table"),
        (pa.string(), "", "table"),
        (pa.date32(), 2**31 - 1, "table"),
        (pa.timestamp("ms"), 2**62, "as given"),
        (pa.timestamp("us", "UTC"), 2**62, "as given"),
        (pa.decimal128(9, 2), 10**30, "as given"),
    ],
    ids=str,
)
def test_files_with_fatal_values_are_as_given(
    kind: pa.DataType, raw: Any, provenance: str, spark: Any, tmp_path: Path
) -> None:
    """If a value can make Spark fail, the guarantee states the assumption that none does."""
    said: list[int | str] = []
    for hers in ([], [raw]):
        path = tmp_path / f"{len(hers)}.parquet"
        pq.write_table(pa.table({"who": [1, 2, 3][: 2 + len(hers)], "x": column(kind, hers)}), path)
        table = dg.read(path, user="who", engine=spark)
        assert table.provenance == provenance
        try:
            with table.open_engine() as engine:
                said.append(len(engine.columns([("x", "as it is")])))
        except DataError as error:
            said.append(str(error))
    if provenance == "table":
        assert said == [2, 3]


def column(kind: pa.DataType, more: list[Any]) -> pa.Array:
    """Two nulls and more values, in the stored form."""
    if pa.types.is_decimal(kind):
        stored = b"".join(each.to_bytes(16, "little", signed=True) for each in [0, 0, *more])
        return pa.Array.from_buffers(kind, 2 + len(more), [None, pa.py_buffer(stored)])
    under = {"date32[day]": pa.int32(), "string": pa.string(), "int64": pa.int64()}
    return pa.array([None, None, *more], under.get(str(kind), pa.int64())).view(kind)
