"""Groups have a public order, which follows only from each group's names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dpgrain.tables.dictionary import Dictionary, GroupCells, column_order, md5_words, public_order
from dpgrain.tables.groups import Groups


def _groups(names: list[str]) -> Groups:
    return Groups.of(["item"], [pa.array(names)])


def _cells(labels: list[str | None]) -> GroupCells:
    known = sorted({label for label in labels if label is not None})
    codes = [-1 if label is None else known.index(label) for label in labels]
    return GroupCells(pa.array(labels, pa.string()), np.array(codes, dtype=np.int64))


def test_order_of_two_groups_is_independent_of_others() -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    order = public_order(_groups(names), _cells(["x"] * 6), md5_words)
    ordered = [names[i] for i in order]
    assert ordered != names
    for left_out in names:
        fewer = [name for name in names if name != left_out][::-1]
        found = public_order(_groups(fewer), _cells(["x"] * 5), md5_words)
        assert [fewer[i] for i in found] == [name for name in ordered if name != left_out]
    assert column_order(names) == ordered


def test_cells_are_ordered_by_name() -> None:
    labels = ["p", "q", "r", "s", "t", "u"]
    order = public_order(_groups(["a", "b", "c", "d", "e", "f"]), _cells([*labels]), md5_words)
    assert [labels[i] for i in order] == column_order(labels) != labels


def test_groups_without_cells_are_dropped_and_cells_contiguous() -> None:
    cells = _cells(["y", None, "x", "y", "x"])
    made = Dictionary.of(_groups(["a", "b", "c", "d", "e"]), cells, corners=2)
    items = made.groups.columns[0].to_pylist()
    assert sorted(items) == ["a", "c", "d", "e"]
    assert {frozenset(items[:2]), frozenset(items[2:])} == {frozenset("ad"), frozenset("ce")}
    assert made.cell_sizes.tolist() == [4, 4]
    assert made.cell_rows(2).tolist() == [0, 0, 1, 1]
    assert made.cell_rows(1).tolist() == [0, 0, 0, 0]
    assert cells.sizes.tolist() == [2, 2]
