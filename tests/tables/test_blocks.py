"""Other keys have the same blocks, and units that need no cells make none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pytest
from tests.refusals import refuses
from tests.tables import cases

import dpgrain as dg
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.groups import Groups
from dpgrain.units import Unit


@pytest.mark.parametrize("unit", [dg.Record(), dg.User()])
def test_records_and_users_need_no_cells(unit: Unit) -> None:
    table = cases.table_of()
    blocks = UnitBlocks.for_unit(unit, table, ["page"])
    for keys in ((), ("month",), ("page", "month")):
        assert blocks.for_keys(keys, table) == (table, blocks)


CELLS: dict[str, tuple[Unit, Callable[[dict[str, Any]], Any]]] = {
    "each item": (dg.Element("page"), lambda row: row["page"]),
    "mapping": (dg.Element(cases.TOPICS), lambda row: cases.OWN.get(row["page"])),
    "drop": (
        dg.Element(dg.Elements.from_mapping(cases.TOPICS, missing="drop")),
        lambda row: cases.DROP.get(row["page"], ...),
    ),
    "error": (
        dg.Element(dg.Elements.from_mapping(cases.OWN, missing="error")),
        lambda row: cases.OWN.get(row["page"]),
    ),
    "failing": (dg.Element(cases.fails_on_d), lambda row: cases.OWN.get(row["page"])),
    "column": (dg.Element("month"), lambda row: row["month"]),
    "cells": (dg.Element("topic"), lambda row: cases.OWN.get(row["page"])),
}


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("first", [("page",), ("page", "month"), ("month", "page")])
@pytest.mark.parametrize(
    "second", [(), ("month",), ("page",), ("code",), ("month", "page"), ("topic",)]
)
def test_other_keys_have_the_same_blocks(
    name: str, first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    unit, cell = CELLS[name]
    table = cases.table_of().with_cells("topic", of="page", by=cases.TOPICS)
    item = "page" if name in ("mapping", "drop", "error", "failing") else None
    blocks = UnitBlocks.for_unit(unit, table, first, item)
    table, other = blocks.for_keys(second, table)
    assert (other.named, other.max_elements) == (blocks.named, blocks.max_elements)
    groups = cases.groups_in_data(table, second)
    public = name == "error"
    for clip in (0.7, 1.5, 100.0):
        expected = cases.expected_sums(second, cell, cases.OWN, clip)
        cases.assert_same(cases.found_sums(table, other, groups, clip, public=public), expected)
    # A repeated call returns the same, also for the table with the column.
    assert blocks.for_keys(second, table) == (table, other)
    shared = other.contribution("l2").layout == "shared"
    assert shared == (other.of not in second)


@pytest.mark.parametrize("cell", ["mapping", "drop", "column", "each item"])
def test_cell_with_several_groups_equals_no_group(cell: str) -> None:
    table = cases.table_of().with_cells("topic", of="page", by=cases.TOPICS)
    unit, _ = CELLS[cell]
    blocks = UnitBlocks.for_unit(unit, table, ("page", "month"), "page")
    for keys in (("page",), ("month",), ("code",)):
        _, other = blocks.for_keys(keys, table)
        # Only if groups are cells may the text equate a block with one of them.
        assert other.alone == ([blocks.of] == list(keys) and blocks.elements is None)


def test_keys_determine_the_cell() -> None:
    table = cases.table_of()
    blocks = UnitBlocks.for_unit(dg.Element("page"), table, ["month", "page"])
    assert (blocks.key, blocks.alone) == (1, False)
    same, page = blocks.for_keys(["page"], table)
    assert same is table
    assert (page.key, page.alone) == (0, True)
    assert page.for_keys(["page", "month"], table)[1].alone is False
    mapped = UnitBlocks.for_unit(dg.Element(cases.TOPICS), table, ["page"])
    assert mapped.alone is False
    assert mapped.for_keys(["month", "page"], table)[1].key == 1


def test_pairs_counted_by_record_equal_other_keys() -> None:
    """A block of several pairs would make room for others when one record leaves."""
    table = cases.table_of()
    pairs = UnitBlocks("element", of="page", key=0, alone=True, of_records=True)
    for keys in (("month",), ("page",)):
        same, other = pairs.for_keys(keys, table)
        assert same is table
        assert (other.of, other.key, other.alone) == (keys[0], 0, True)
        contribution = other.contribution("l2")
        assert contribution.block == "record"


def test_the_same_mapping_of_two_columns_makes_two_partitions() -> None:
    table = cases.table_of(pa.table({**cases.ROWS, "link": cases.ROWS["page"]}))
    table = table.with_cells("one", of="page", by=cases.TOPICS)
    table = table.with_cells("other", of="link", by=cases.TOPICS)
    one, other = (UnitBlocks.for_unit(dg.Element(name), table, []) for name in ("one", "other"))
    assert "page" in one.named
    assert one.named != other.named
    assert one.partition != other.partition


@pytest.mark.parametrize("taken", ["cell of page", "Cell of Page"])
def test_existing_column_is_not_mistaken_for_cells(taken: str) -> None:
    # All of a user's records would seem to be in one cell, or in any number of cells.
    plain = cases.table_of(pa.table({**cases.ROWS, taken: ["one"] * 13}))
    made = cases.table_of().with_cells(taken, of="page", by=lambda _: "one")
    other = cases.table_of().with_cells(taken, of="code", by=lambda _: "one")
    for table in (plain, made, other):
        blocks = UnitBlocks.for_unit(dg.Element(cases.TOPICS), table, ["page"])
        more, found = blocks.for_keys((), table)
        assert found.cell_column != taken
        assert list(more.cells)[-1] == found.cell_column
        expected = cases.expected_sums((), lambda row: cases.OWN.get(row["page"]), cases.OWN, 1.0)
        cases.assert_same(cases.found_sums(more, found, Groups.of((), ()), 1.0), expected)


def test_unsuitable_units_gain_nothing_from_keys() -> None:
    table = cases.table_of()
    with refuses("by") as caught:
        UnitBlocks.for_unit(dg.Element(cases.TOPICS), table, [])
    cases.one_sentence(caught.value)
    for unit in (dg.Element(), dg.User(2)):
        with pytest.raises(dg.ParameterError, match=r"\(\) requires a partition") as caught:
            UnitBlocks.for_unit(unit, table, [])
        cases.one_sentence(caught.value)


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize(
    "by", [cases.TOPICS, cases.TOPICS.get, dg.Elements.from_function(cases.TOPICS.get)]
)
def test_item_as_its_cell_is_one_cell(by: Any, public: bool) -> None:
    blocks = UnitBlocks.for_unit(dg.Element(by), cases.table_of(), ["page", "month"])
    pages = ["d", "a", "d", "e", "b", "d", "c"]
    groups = Groups.of(["page", "month"], [pa.array(pages), pa.array([1, 1, 2, 1, 1, 3, 1])])
    codes = blocks.cells(groups, public=public).codes.tolist()
    cells = [cases.TOPICS.get(page, page) for page in pages]
    assert len({*zip(codes, cells, strict=True)}) == len({*codes}) == len({*cells}) == 4
