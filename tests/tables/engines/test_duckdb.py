"""DuckDB keeps to the contract of engines."""

from __future__ import annotations

import numpy as np
from tests.tables.engines.in_memory import InMemory

from dpgrain.tables.engines.duckdb import _singly
from dpgrain.testing import EngineContract


class TestDuckDB(EngineContract):
    engine = "duckdb"
    reference = InMemory


def test_counted_records_are_repeated_in_parts() -> None:
    parts = list(_singly(iter([(np.array([3, 5]), np.array([1.0, 4.0]))]), most=3))
    assert all(counts is None and codes.size <= 3 for codes, counts in parts)
    assert sorted(np.concatenate([codes for codes, _ in parts])) == [3, 5, 5, 5, 5]
