"""A release without selected items ends like any other, on every engine."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain import Record


@pytest.mark.parametrize("engine", ["duckdb", InMemory])
def test_weights_of_no_item_are_an_empty_release(engine: Any) -> None:
    """It was charged by then."""
    table = pa.table({"who": ["x"], "item": ["a"], "paid": [1.0]})
    release = dg.histogram(
        dg.read(table, user="who", engine=engine),
        "item",
        weight="paid",
        unit=Record(),
        epsilon=1.0,
        delta=1e-6,
        random_state=0,
    )
    assert len(release) == 0
