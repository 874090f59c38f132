"""Batches contain whole blocks, or a part of one, and every row of each sampled block once."""

from __future__ import annotations

import numpy as np
import pytest
from tests.torch.library import torch  # noqa: F401 - without it this is skipped

# isort: split
from dpgrain.inputs.array_blocks import arrange
from dpgrain.torch.batches import BlockRows
from dpgrain.units import Element, Record, User


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("max_blocks", [None, 2])
@pytest.mark.parametrize("max_rows", [None, 1, 3, 7, 50])
def test_each_row_of_a_drawn_block_comes_once(
    max_rows: int | None, max_blocks: int | None, single: bool
) -> None:
    rng = np.random.default_rng(1)
    # Users are numbered as they first appear.
    users = np.concatenate([np.arange(9), rng.integers(0, 9, size=51)])
    blocks = BlockRows.arrange(arrange(60, users, None, User()))
    drawn = np.array([0, 2, 3, 7])
    batches = list(blocks.batches(drawn, max_rows, single=single, max_blocks=max_blocks))
    rows = np.concatenate([batch.rows for batch in batches])
    assert sorted(rows) == sorted(np.flatnonzero(np.isin(users, drawn)))
    assert [batch.last for batch in batches] == [False] * (len(batches) - 1) + [True]
    ended: dict[int, int] = {}
    for batch in batches:
        assert len(batch.rows) == batch.layout.rows
        assert max_rows is None or len(batch.rows) <= max_rows
        assert max_blocks is None or batch.layout.blocks <= max_blocks
        assert list(batch.layout.sizes) == sorted(batch.layout.sizes)
        whose = users[batch.rows]
        for block in range(batch.layout.blocks):
            own = whose[batch.layout.block_slice(block)]
            assert len(set(own)) == 1
            if not batch.part:
                assert len(own) == (users == own[0]).sum()
        if batch.part or single:
            assert batch.layout.blocks == 1
        if batch.part and batch.records:
            ended[int(whose[0])] = batch.records
    for user, records in ended.items():
        assert records == (users == user).sum()
    cut = {user for user in drawn if max_rows and (users == user).sum() > max_rows}
    assert set(ended) == cut


def test_blocks_match_the_unit() -> None:
    users, elements = [1, 1, 2, None, 1], ["a", "b", "a", "a", "a"]
    for unit, labels, sizes in (
        (Record(), None, [1, 1, 1, 1]),
        (Element(), elements, [1, 1, 2]),
        (User(), None, [1, 3]),
        (User(max_elements=1), elements, [1, 2]),
    ):
        blocks = BlockRows.arrange(arrange(5, users, labels, unit))
        assert sorted(np.diff(blocks.starts)) == sizes
        assert 3 not in blocks.rows


def test_nothing_drawn_makes_no_batch() -> None:
    blocks = BlockRows(np.arange(3), np.array([0, 3]))
    assert list(blocks.batches(np.array([], dtype=np.intp), None)) == []
