"""Tables of these types can be given in every way."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.malformed.cells import System
from tests.malformed.sql_types import DUCKDB, TEXT, select
from tests.malformed.ways import check_way


@pytest.mark.parametrize(
    ("system", "way"), [(system, way) for system in (DUCKDB, TEXT) for way in system.ways]
)
def test_a_way_holds_most_types_and_odd_cells(system: System, way: str, tmp_path: Path) -> None:
    check_way(system, way, tmp_path)


def test_names_are_quoted() -> None:
    assert select({'"': ["1"]}) == 'SELECT 1 AS """"'
