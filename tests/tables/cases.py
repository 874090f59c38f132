"""Tables with columns of cells, and their sums by the definition."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pytest

import dpgrain as dg
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.engines.kernel import Grid
from dpgrain.tables.groups import Groups
from dpgrain.tables.user_sums import UserContributions


def rows_of(groups: Groups) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in groups.columns), strict=True))


def one_sentence(error: BaseException) -> str:
    text = str(error)
    assert text.endswith(".")
    assert "\n" not in text
    assert len(text) < 400
    return text


TOPICS = {"a": "x", "b": "x", "c": "y"}
ROWS: dict[str, list[Any]] = {
    "who": [1, 1, 1, 1, 1, 2, 2, 2, None, 3, 3, 3, 4],
    "page": ["a", "a", "b", "c", "d", "a", "d", "e", "a", "c", None, "e", "b"],
    "code": [7, 7, 8, 9, 10, 7, 10, 11, 7, 9, None, 11, 8],
    "month": [1, 2, 1, 1, 2, 2, 2, 1, 1, 3, 1, 2, None],
}


def table_of(rows: Any = None, **options: Any) -> dg.UserTable:
    return dg.read(pa.table(ROWS) if rows is None else rows, user="who", **options)


def fails_on_d(page: str) -> str | None:
    if page == "d":
        raise RuntimeError(page)
    return TOPICS.get(page)


def fails_on_bro(item: str) -> str:
    if item == "bro":
        raise RuntimeError(item)
    return "cell"


class Odd:
    """A cell that cannot be hashed, compared or printed."""

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise ValueError


# Functions that have no cell for "bro", each for another reason.
FAILING: list[Callable[[str], Any]] = [
    fails_on_bro,
    lambda item: [item] if item == "bro" else "cell",
    lambda item: {"bro": Odd()}.get(item, "cell"),
    lambda item: 1 / (item != "bro") and "cell",
    lambda item: object() if item == "bro" else "cell",
    lambda item: Decimal("sNaN") if item == "bro" else "cell",
    lambda item: None if item == "bro" else "cell",
]
OWN = {"a": "x", "b": "x", "c": "y", "d": "own: d", "e": "own: e"}
DROP = {"a": "x", "b": "x", "c": "y"}


def expected_sums(
    keys: Sequence[str],
    cell: Callable[[dict[str, Any]], Any],
    topics: dict[str, str],
    clip: float,
) -> dict[tuple[Any, ...], float]:
    """Clipped sums by definition; a record with … as its cell is dropped."""
    blocks: dict[Any, dict[Any, float]] = defaultdict(lambda: defaultdict(float))
    for who, page, code, month in zip(*ROWS.values(), strict=True):
        row = {"who": who, "page": page, "code": code, "month": month, "topic": topics.get(page)}
        group, block = tuple(row[key] for key in keys), cell(row)
        if who is not None and None not in group and block is not ...:
            blocks[who, block][group] += 1.0
    sums: dict[Any, float] = defaultdict(float)
    for block in blocks.values():
        for group, total in block.items():
            sums[group] += total * min(1.0, clip / math.hypot(*block.values()))
    return sums


def found_sums(
    table: dg.UserTable, blocks: UnitBlocks, groups: Groups, clip: float, *, public: bool = True
) -> dict[tuple[Any, ...], float]:
    cells = blocks.cells(groups, public=public)
    with table.open_engine() as engine:
        data = UserContributions(engine, blocks, groups, cells)
        grid = Grid(np.array([clip]), 30)
        sums = data.sums(grid) * grid.step[0]
        known = data.dictionary.groups
        return dict(zip(rows_of(known) if known.names else [()], sums.tolist(), strict=True))


def groups_in_data(table: dg.UserTable, keys: Sequence[str]) -> Groups:
    with table.open_engine() as engine:
        return engine.distinct(keys) if keys else Groups.of((), ())


def assert_same(found: dict[Any, float], expected: dict[Any, float]) -> None:
    for group in {*found, *expected}:
        assert found.get(group, 0.0) == pytest.approx(expected.get(group, 0.0), abs=1e-6), group
