"""DuckDB keeps to the contract of engines."""

from __future__ import annotations

from tests.tables.engines.in_memory import InMemory

from dpgrain.testing import EngineContract


class TestDuckDB(EngineContract):
    engine = "duckdb"
    reference = InMemory
