"""DuckDB keeps to the contract of engines."""

from __future__ import annotations

import numpy as np
import pytest
from tests.effort import Effort
from tests.tables.engines.in_memory import InMemory

from dpgrain.tables.engines.duckdb import _singly
from dpgrain.testing import EngineContract


class TestDuckDB(EngineContract):
    engine = "duckdb"
    reference = InMemory

    @pytest.fixture(autouse=True)
    def _fewer(self, effort: Effort) -> None:
        # Every unit, every key and both kinds of numbers, but not all of their combinations.
        self.one_in, self.one_release_in = effort.number(3, 1), effort.number(2, 1)


def test_counted_records_are_repeated_in_parts() -> None:
    parts = list(_singly(iter([(np.array([3, 5]), np.array([1.0, 4.0]))]), most=3))
    assert all(counts is None and codes.size <= 3 for codes, counts in parts)
    assert sorted(np.concatenate([codes for codes, _ in parts])) == [3, 5, 5, 5, 5]
