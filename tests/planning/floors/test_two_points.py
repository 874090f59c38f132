"""The fewest holders for whom any private rule names an item."""

from __future__ import annotations

from dpgrain.planning.floors import least_holders


def test_fewest_holders_of_an_unknown_item() -> None:
    # 11 holders pass with .35, 12 with .76.
    found = [least_holders(1.0, 1e-5, chance) for chance in (0.34, 0.36, 0.75, 0.77)]
    assert found == [11, 12, 12, 13]
