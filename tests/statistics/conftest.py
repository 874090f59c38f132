"""Fixtures shared by tests of several statistics."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from tests.statistics import cases

from dpgrain.statistics import sums_query as sums_module
from dpgrain.statistics.plan import calibrate_sums
from dpgrain.tables.engines.duckdb import DuckDB

# Functions of public numbers, computed once in all tests that search for neighbours.
_SUMS = functools.cache(calibrate_sums)
_OF_TOP = {
    name: functools.cache(getattr(cases.top_module, name))
    for name in ("calibrate_truncated_geometric", "calibrate_gaussian", "plan_selection")
}


@pytest.fixture
def cached_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums_module, "calibrate_sums", _SUMS)
    for name, once in _OF_TOP.items():
        monkeypatch.setattr(cases.top_module, name, once)


@pytest.fixture
def _no_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: DuckDB, *_: Any) -> str:
        raise AssertionError("rows were read")

    monkeypatch.setattr(DuckDB, "_attach", refuse)
