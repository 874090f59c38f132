"""Users' contributions: sums of indicators, and the occurring candidates."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.statistics import releases

import dpgrain as dg
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.engines.kernel import Grid
from dpgrain.tables.groups import Groups
from dpgrain.tables.user_sums import UserContributions, candidate_groups


def test_codes_in_finds_each_total() -> None:
    parts = Groups.product(("a", "b"), [pa.array(["x", "y"]), pa.array([1, 2])])
    totals = Groups.of(("b",), (pa.array([2, 1]),))
    assert parts.codes_in(totals).tolist() == [1, 0, 1, 0]
    assert parts.codes_in(Groups.of((), ())).tolist() == [0, 0, 0, 0]


UNITS: dict[str, dg.Element | dg.User | dg.Record] = {
    "user": dg.User(),
    "user, 3 items": dg.User(3),
    "user, 2 months": dg.User(2, "month"),
    "element by function": dg.Element(lambda i: i % 7),
    "element by item": dg.Element("item"),
    "element by month": dg.Element("month"),
    "record": dg.Record(),
}


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("max_items", [None, 1, 2, 5])
def test_holders_are_unclipped_indicator_sums(name: str, max_items: int | None) -> None:
    table = releases.shop()
    blocks = UnitBlocks.for_unit(UNITS[name], table, ("item",))
    with table.open_engine() as engine:
        held = engine.distinct(("item",))
        data = UserContributions(engine, blocks, held, blocks.cells(held, public=False))
        limit = None if blocks.block == "record" else max_items
        # A bound of 64 with a step of 1: no block of 40 ones reaches it.
        sums = data.sums(Grid(np.array([64.0]), 6), indicator=True, max_items=limit)
        assert (data.holders(max_items=limit) == sums).all()
    if name == "user, 3 items":
        # Each of the 200 users has more than five items.
        assert sums.sum() == 200 * 3


@pytest.mark.parametrize("column", ["item", "name"])
def test_candidates_contain_all_occurring_items(column: str) -> None:
    with releases.shop().open_engine() as engine:
        found = candidate_groups(engine, (column,)).columns[0].to_pylist()
        assert set(engine.distinct((column,)).columns[0].to_pylist()) <= set(found)
        assert len(set(found)) == len(found)


def test_far_items_are_looked_up() -> None:
    rows = pa.table({"who": [1] * 40, "item": [0, 2**62] * 20})
    with dg.read(rows, user="who").open_engine() as engine:
        assert sorted(candidate_groups(engine, ("item",)).columns[0].to_pylist()) == [0, 2**62]
