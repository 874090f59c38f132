"""The search for neighbours that change what scales of groups are chosen from, or scaled sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.statistics import cases

from dpgrain.tables.engines import kernel
from dpgrain.units import RELATIONS, Relation

STATISTICS = ["count", "sum", "sum above 0", "sum in a range"]
# The queries with scales, in the order of their draws; between them is the alignment, if any.
DIRECTIONS, SCALED, SUMS = -5, -3, -1


def largest_share(statistic: str, relation: Relation, keys: tuple[str, ...], part: int) -> float:
    """The largest share of the charge of one part that some pair shows."""
    asked = cases.Asked("user", relation, 1)
    shape = cases.Shape(keys, "public", "auto")
    ask = cases.question(statistic, "user", shape, relation)
    worst = 0.0
    for left, right in cases.crafted_pairs("user", asked):
        sides = [cases.noised(ask, rows, cases.Outcome()) for rows in (left, right)]
        parts = sides[0][1].guarantee.event.parts
        (one, two), clip = (vectors[part] for vectors, _ in sides), sides[0][1].clip
        assert np.unique(clip).size == 3
        assert one.event == two.event
        assert one.event is not None
        assert one.event in parts
        worst = max(worst, cases.ratio(one, two, asked, one.event))
    return worst


@pytest.mark.parametrize("part", [DIRECTIONS, SCALED, SUMS])
@pytest.mark.parametrize("keys", [("item",), ("item", "cell")])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("statistic", STATISTICS)
def test_no_user_changes_scaled_parts_beyond_the_charge(
    statistic: str, relation: Relation, keys: tuple[str, ...], part: int
) -> None:
    assert largest_share(statistic, relation, keys, part) <= 1 + 1e-9


def test_search_finds_directions_of_full_weight_per_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case: tuple[str, Relation, tuple[str, ...]] = ("count", "zero_out", ("item",))
    assert 0.98 < largest_share(*case, DIRECTIONS) <= 1 + 1e-9
    real = kernel.directions

    def careless(*arguments: Any, **options: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernel._Blocks, "clip", full)
            real(*arguments, **options)

    monkeypatch.setattr(kernel, "directions", careless)
    assert largest_share(*case, DIRECTIONS) > 1.4


def full(self: Any, sums: Any, grid: Any, unit: float) -> Any:
    return np.full(sums.size, int(grid.radius[0]))


def test_the_search_finds_sums_scaled_after_clipping(monkeypatch: pytest.MonkeyPatch) -> None:
    """If factors apply to clipped blocks, small groups move by more than their bound."""
    case: tuple[str, Relation, tuple[str, ...]] = ("count", "zero_out", ("item",))
    assert 0.98 < largest_share(*case, SUMS) <= 1 + 1e-9
    real = kernel.clipped_sum

    def late(keys: Any, totals: Any, out: Any, *, layout: Any, grid: Any, **options: Any) -> None:
        factors, layout = layout.factors, kernel.KeyLayout(layout.items, 1, layout.cell_of)
        real(keys, totals, out, layout, grid, **options)
        if factors is not None:
            out *= factors.astype(np.int64)

    monkeypatch.setattr(kernel, "clipped_sum", late)
    assert largest_share(*case, SUMS) > 1.4
