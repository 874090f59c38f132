"""Tables of these types can be given in every way."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.malformed.pandas_types import PANDAS
from tests.malformed.ways import check_way

# Common types that a way lacks.
LACKING: dict[str, tuple[str, ...]] = {"Parquet of a frame": ("object",)}


@pytest.mark.parametrize("way", PANDAS.ways)
def test_a_way_holds_most_types_and_odd_cells(way: str, tmp_path: Path) -> None:
    check_way(PANDAS, way, tmp_path, without=LACKING.get(way, ()))


def test_moments_are_counted_in_utc() -> None:
    kind = PANDAS.kinds["datetime64[s, Europe/Paris]"]
    (moment,) = kind.column([0])
    assert str(moment) == "1970-01-01 01:00:00+01:00"
