"""An engine is selected by its name, its address or its class, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.refusals import refuses
from tests.tables.engines.in_memory import InMemory

from dpgrain.tables.engines.duckdb import DuckDB
from dpgrain.tables.engines.registry import ENGINES, default_engine, resolve_engine
from dpgrain.tables.engines.spark import SparkOpener


def test_an_engine_is_found_by_name_address_or_class() -> None:
    assert resolve_engine("duckdb") is ENGINES["duckdb"] is DuckDB
    assert resolve_engine(DuckDB) is DuckDB
    assert isinstance(resolve_engine("spark://host:7077"), SparkOpener)
    assert default_engine(None, pa.table({"x": [1]})) == "duckdb"
    assert default_engine(InMemory, None) is InMemory


@pytest.mark.parametrize(
    ("engine", "told"),
    [
        ("postgres", "not 'postgres'"),
        (3, "not 3"),
        (np.array(["ann", "bob"]), "not a value of type ndarray"),
        (pa.table({"who": ["ann"]}), "not a value of type Table"),
    ],
    ids=["word", "number", "array", "table"],
)
def test_unknown_engine_is_rejected_without_quoting_rows(engine: Any, told: str) -> None:
    with refuses("engine", told):
        resolve_engine(engine)
