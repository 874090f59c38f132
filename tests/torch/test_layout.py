"""Blocks as views of a batch."""

from __future__ import annotations

from tests.torch.library import torch

# isort: split
from dpgrain.torch.layout import BlockLayout

RAGGED = BlockLayout.of([1, 1, 3, 3, 4])


def test_views_are_the_rows_of_blocks() -> None:
    rows = torch.arange(RAGGED.rows * 2).reshape(-1, 2)
    seen = []
    for blocks, (view,) in RAGGED.views(rows):
        assert view.data_ptr() == rows[RAGGED.starts[blocks.start]].data_ptr()
        seen += list(zip(range(blocks.start, blocks.stop), view.unbind(), strict=True))
    assert [block for block, _ in seen] == list(range(RAGGED.blocks))
    for block, own in seen:
        assert torch.equal(own, rows[RAGGED.block_slice(block)])


def test_values_of_blocks_and_of_rows() -> None:
    values = torch.arange(5.0)
    assert RAGGED.per_row(values).tolist() == [0, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4]
    assert RAGGED.per_block(torch.ones(12, 2))[:, 0].tolist() == [1, 1, 3, 3, 4]
    assert (RAGGED.blocks, RAGGED.rows) == (5, 12)
