"""Tables of these types can be given in every way."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.malformed.arrow_types import ARROW, UNITS, ZONES
from tests.malformed.ways import check_way

# Common types that a way lacks.
LACKING: dict[str, tuple[str, ...]] = {
    "Polars": (
        "timestamp[s]",
        *(f"timestamp[s, {zone}]" for zone in ZONES),
        *(f"timestamp[{unit}, +05:30]" for unit in ("ms", "us", "ns")),
    ),
    # Days and nanoseconds have no zone.
    "Parquet of INT96": tuple(f"timestamp[{unit}, {zone}]" for unit in UNITS for zone in ZONES),
}


@pytest.mark.parametrize("way", ARROW.ways)
def test_form_supports_most_types_and_malformed_cells(way: str, tmp_path: Path) -> None:
    check_way(ARROW, way, tmp_path, without=LACKING.get(way, ()))


def test_every_type_of_arrow_is_there() -> None:
    """Types that take no parameter are named like the functions that make them."""
    made = {
        str(kind.column([cell.raw for cell in kind.plain]).type) for kind in ARROW.kinds.values()
    }
    plain = (
        "bool",
        "float",
        "double",
        "halffloat",
        "string",
        "large_string",
        "string_view",
        "null",
    )
    assert {*plain, "date32[day]", "binary", "binary_view"} <= made
    times = {f"timestamp[{unit}, tz={zone}]" for unit in UNITS for zone in ZONES}
    assert times <= made
