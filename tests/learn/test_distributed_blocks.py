"""Blocks are in cells in their arranged order, and their shares add up to the whole."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dpgrain.gradients.records import MeanGradients, RecordBlocks
from dpgrain.learn import distributed_blocks
from dpgrain.learn.classes import NumericTargets
from dpgrain.learn.distributed_blocks import (
    ArrangeBlocks,
    ArrangeLinear,
    ArrangeRecords,
    LinearContributions,
    NormCounts,
    RecordContributions,
    SumInSteps,
    block_cells,
    count_users,
    stored_blocks,
)
from dpgrain.learn.features import ColumnRoles, FeatureEncoding, NumberColumn
from dpgrain.means.grid import added_in_steps
from dpgrain.optimize import Squared
from dpgrain.units import Element, Record, Unit, User

WHO = ColumnRoles(FeatureEncoding((NumberColumn("a"), NumberColumn("b"))), users=True)


def _columns(count: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    lost = rng.random((4, count)) < 0.1
    values = [*rng.normal(size=(3, count)), rng.integers(0, 1 + count // 5, count)]
    found = [pa.array(value, mask=mask) for value, mask in zip(values, lost, strict=True)]
    return pa.table(found, names=["c0", "c1", "c2", "c3"])


def _arranged(
    table: pa.Table,
    roles: ColumnRoles = WHO,
    unit: Unit | None = None,
    by: ArrangeLinear | ArrangeRecords | None = None,
) -> list[pa.RecordBatch]:
    rule = ArrangeBlocks(
        roles, NumericTargets(), User() if unit is None else unit, by or ArrangeLinear(None, True)
    )
    return list(rule(table.to_batches(max_chunksize=100)))


@pytest.mark.parametrize(("cell", "run"), [(1, 1), (40, 100), (1 << 17, 1 << 22)])
def test_cells_contain_their_blocks(cell: int, run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed_blocks, "CELL_BYTES", cell)
    monkeypatch.setattr(distributed_blocks, "RUN_BYTES", run)
    rng = np.random.default_rng(cell)
    for _ in range(40):
        sizes = np.sort(rng.integers(1, rng.integers(2, 30), rng.integers(0, 12)))
        X, y = rng.normal(size=(sizes.sum(), 2)), rng.normal(size=sizes.sum())
        cells = list(block_cells(X, y, sizes, users=7))
        assert count_users(cells) == [7]
        back = list(stored_blocks(cells))
        assert np.array_equal(np.concatenate([[], *(part[2] for part in back)]), sizes)
        for place, whole in enumerate((X.ravel(), y)):
            assert np.array_equal(
                np.concatenate([[], *(part[place].ravel() for part in back)]), whole
            )


def test_a_row_takes_eight_bytes_a_number() -> None:
    """The amount that docs/tutorials/models.md states."""
    cells = _arranged(_columns(4000).drop_columns(["c3"]), ColumnRoles(WHO.encoding), Record())
    rows = sum(len(run[1]) for run in stored_blocks(cells))
    assert rows > 3000
    bytes_ = sum(column.nbytes for batch in cells for column in batch.columns)
    # Two features, the intercept and the target, and the size of each block.
    assert 0 <= bytes_ - rows * 8 * (2 + 1 + 1) <= 8 * rows + 100 * len(cells)


@pytest.mark.parametrize("unit", [User(), Record()])
def test_shares_of_users_add_up_to_the_whole(unit: Unit) -> None:
    table = _columns(900)
    who = np.array(table["c3"].to_pylist(), dtype=float)
    for by, at in (
        (ArrangeLinear(0.7, True), LinearContributions(Squared(), np.array([0.3, -0.2, 0.1]))),
        (ArrangeRecords(), RecordContributions(MeanGradients(Squared(), np.array([0.3, -0.2])))),
    ):
        p = 3 if isinstance(by, ArrangeLinear) else 2
        tasks = SumInSteps(at, p, 0.4, 2.0**-20), NormCounts(at), count_users
        whole = _arranged(table, unit=unit, by=by)
        shares = [
            _arranged(table.filter(pa.array(who % 3 == i)), unit=unit, by=by) for i in range(3)
        ]
        for task in tasks:
            expected = task(whole)
            assert expected.any()
            assert np.array_equal(sum(task(share) for share in shares), expected)


def test_the_order_of_rows_moves_nothing() -> None:
    columns = _columns(500).drop_null().to_pydict() | {"c3": [1] * 500}
    table = pa.table({name: column[:300] for name, column in columns.items()})
    mixed = table.take(pa.array(np.random.default_rng(1).permutation(300)))
    (run,), (other,) = stored_blocks(_arranged(table)), stored_blocks(_arranged(mixed))
    assert np.array_equal(run[0], other[0])
    assert np.array_equal(run[1], other[1])


def test_blocks_equal_local_records() -> None:
    table = _columns(300).drop_null()
    X = np.column_stack([table["c0"], table["c1"]])
    y, who = np.array(table["c2"]), np.array(table["c3"])
    at = MeanGradients(Squared(), np.array([0.5, 0.5]))
    found = SumInSteps(RecordContributions(at), 2, 1.0, 2.0**-10)(
        _arranged(table, by=ArrangeRecords())
    )
    _, codes = np.unique(who, return_inverse=True)
    expected = added_in_steps(at(RecordBlocks.arrange(X, y, codes)), 1.0, 2.0**-10)
    assert np.abs(found - expected).max() <= 1
    assert found.any()


def test_users_without_a_target_count_as_users() -> None:
    table = pa.table(
        {
            "c0": [1.0, 2.0],
            "c1": [1.0, 1.0],
            "c2": pa.array([None, None], pa.float64()),
            "c3": [1, 2],
        }
    )
    cells = _arranged(table)
    assert count_users(cells) == [2]
    assert not list(stored_blocks(cells))


def test_no_rows_make_nothing() -> None:
    assert _arranged(_columns(0)) == []
    assert count_users([]) == [0]
    task = SumInSteps(LinearContributions(Squared(), np.zeros(3)), 3, 1.0, 0.5)
    assert task([]).tolist() == [0, 0, 0]


def test_elements_of_one_user_are_blocks() -> None:
    rows = pa.table(
        {
            "c0": [1.0, 2.0, 3.0],
            "c1": [0.0] * 3,
            "c2": [1.0] * 3,
            "c3": [1, 1, 1],
            "c4": ["x", "x", "y"],
        }
    )
    parts = ColumnRoles(WHO.encoding, users=True, elements=True)
    (run,) = stored_blocks(_arranged(rows, parts, Element()))
    assert run[2].tolist() == [1, 2]
