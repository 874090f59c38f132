"""DuckDB keeps to the contract of engines."""

from __future__ import annotations

from dpgrain.testing import EngineContract


class TestDuckDB(EngineContract):
    engine = "duckdb"
    reference = "in_memory"
