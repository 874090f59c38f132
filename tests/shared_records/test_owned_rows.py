"""Read rows become integer amounts with bounds."""

from __future__ import annotations

import numpy as np

from dpgrain.shared_records.owned_rows import OwnedRows


def _pairs(number: list[float] | None = None) -> OwnedRows:
    row, person = np.array([2, 0, 0, 1, 0]), np.array([1, 0, 1, 0, 0])
    numbers = None if number is None else np.array(number)
    held = np.array([True, True, True, True])
    return OwnedRows.create(row, person, held, np.array([0, 0, 1, 0]), 2, numbers)


def test_owner_is_once_per_row_and_ownerless_rows_dropped() -> None:
    pairs = _pairs()
    assert pairs.row.tolist() == [0, 0, 1, 2]
    assert pairs.cell.tolist() == [0, 0, 1]
    # Person 1 owns rows in both cells, and is two people.
    assert pairs.person.tolist() == [0, 2, 0, 1] or len(set(pairs.person.tolist())) == 3
    assert sorted(pairs.cell_of.tolist()) == [0, 0, 1]


def test_amounts_are_truncated_to_whole_steps_and_the_bound() -> None:
    sharing = _pairs([2.9, -1.0, 1e300, 5.0]).within(np.array([4, 8]), np.array([0.5, 0.5]))
    assert sharing.amount.tolist() == [4, 0, 8]
    assert sharing.bound.tolist() in ([4, 4, 8], [4, 8, 4], [8, 4, 4])


def test_row_without_value_is_dropped() -> None:
    held = np.array([True, False])
    pairs = OwnedRows.create(np.array([0, 1]), np.array([0, 1]), held, np.array([0, -1]), 1, None)
    assert pairs.cell.size == 1


def test_rows_of_some_cells() -> None:
    some = _pairs([1.0, 2.0, 3.0, 4.0]).of_cells(np.array([False, True]))
    assert some.number is not None
    assert (some.row.tolist(), some.number.tolist()) == ([0], [3.0])


def test_nothing() -> None:
    none = np.zeros(0, dtype=np.int64)
    pairs = OwnedRows.create(none, none, np.zeros(0, dtype=np.bool_), none, 1, None)
    assert pairs.within(np.array([4]), np.array([1.0])).amount.size == 0
