"""Tables of these types can be given in every way."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.malformed.polars_types import polars_system
from tests.malformed.systems import SYSTEMS
from tests.malformed.ways import check_way

POLARS = SYSTEMS["Polars"]

# Common types that a way lacks.
LACKING: dict[str, tuple[str, ...]] = {}


@pytest.mark.parametrize("way", POLARS.ways)
def test_a_way_holds_most_types_and_odd_cells(way: str, tmp_path: Path) -> None:
    check_way(POLARS, way, tmp_path, without=LACKING.get(way, ()))


def test_times_are_stored_unseen() -> None:
    kind = POLARS.kinds["Datetime[ms]"]
    assert kind.column([2**62]).to_physical().to_list() == [2**62]
    assert polars_system().kinds.keys() == POLARS.kinds.keys()
