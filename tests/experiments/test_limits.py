"""The experiment on limits counts correctly, on amounts with known valid and invalid limits."""

from __future__ import annotations

import math

import duckdb
import pyarrow as pa
import pytest
from tests.programs import experiment
from tests.real_data import needs

import dpgrain as dg
from dpgrain._files import data_folder

limits = experiment("limits")

EVEN = "SELECT u AS user_id, i AS item, 3.0 AS x FROM range(400) a(u), range(20) b(i)"
SKEWED = (
    "SELECT u AS user_id, i AS item, CASE WHEN u = 0 THEN 1e6 ELSE 3.0 END AS x "
    "FROM range(400) a(u), range(20) b(i)"
)


def test_limits_are_valid_without_outliers() -> None:
    row = limits.limits(limits.Case("even", EVEN, dg.Element("item")), 1.0, 2)
    assert row.cells == 20
    assert row.least > 0.8


def test_one_person_with_most_of_it_breaks_no_proof() -> None:
    row = limits.limits(limits.Case("skewed", SKEWED, dg.Element("item")), 1.0, 2)
    assert row.least == 1.0
    assert row.capped == 0.0


def test_totals_are_those_before_clipping() -> None:
    rows = pa.Table.from_pandas(duckdb.connect().execute(SKEWED).df())
    assert limits.totals(rows) == dict.fromkeys(range(20), 1e6 + 3.0 * 399)


@pytest.mark.slow
@needs(*limits.FILES)
def test_lower_limits_are_valid_on_public_tables() -> None:
    for case in limits.cases(data_folder()):
        row = limits.limits(case, 1.0, 1)
        # One of the 12 cells of the smallest table may be below.
        assert row.least >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / row.cells)


def test_without_tables_it_ends_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPGRAIN_DATA", raising=False)
    with pytest.raises(SystemExit, match="DPGRAIN_DATA is not set"):
        limits.main([])
