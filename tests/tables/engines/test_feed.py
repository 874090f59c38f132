"""Whole users in bounded batches: the same integers for any capacity, chunks, threads and order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgrain._types import FloatArray, IntArray
from dpgrain.tables.engines import buckets as buckets_module
from dpgrain.tables.engines import feed as feed_module
from dpgrain.tables.engines.feed import Chunk, Feed, UserShare
from dpgrain.tables.engines.kernel import Grid, KeyLayout, clipped_sum, pair_totals

SHIFT = 4
LAYOUT = KeyLayout(12, 3, np.repeat(np.arange(3), 4))
GRID = Grid(np.array([2.0, 3.5, 100.0]), 24)


class FakeScan:
    """Rows in memory, returned in chunks, in another order each time."""

    def __init__(
        self, keys: IntArray, totals: FloatArray | None, size: int, shift: int = SHIFT
    ) -> None:
        self.keys, self.totals, self.size = keys, totals, size
        self.passes, self.shift = 0, shift
        self._rng = np.random.default_rng(0)

    def __call__(self, share: UserShare) -> Iterator[Chunk]:
        self.passes += 1
        order = self._rng.permutation(np.flatnonzero(share.contains(self.keys >> self.shift)))
        for start in range(0, order.size, self.size):
            part = order[start : start + self.size]
            yield self.keys[part], None if self.totals is None else self.totals[part]


def add(keys: IntArray, totals: FloatArray | None, out: IntArray) -> None:
    clipped_sum(keys, totals, out, LAYOUT, GRID, max_elements=2)


def direct(keys: IntArray, totals: FloatArray | None) -> IntArray:
    out = np.zeros(LAYOUT.items, dtype=np.int64)
    order = np.argsort(keys, kind="stable")
    add(*pair_totals(keys[order], None if totals is None else totals[order]), out)
    return out


def rows_of(seed: int, users: int, rows: int, weighted: bool) -> tuple[IntArray, FloatArray | None]:
    rng = np.random.default_rng(seed)
    # Heavy users: the first has about half of all rows.
    user = np.minimum(rng.geometric(0.5, rows) * rng.integers(1, users + 1, rows), 2**40)
    keys = (user.astype(np.int64) << SHIFT) | rng.integers(0, LAYOUT.items, rows)
    return keys, rng.integers(0, 2**50, rows).astype(np.float64) if weighted else None


@given(
    seed=st.integers(0, 2**32),
    users=st.sampled_from([1, 3, 40, 10**6]),
    rows=st.integers(0, 600),
    weighted=st.booleans(),
    capacity=st.sampled_from([64, 65, 100, 500, 10_000]),
    size=st.sampled_from([1, 7, 64, 1000]),
    threads=st.sampled_from([1, 3]),
    staged=st.sampled_from([None, 20, 1000]),
    more=st.sampled_from([1, 1.5, 4]),
)
def test_same_integers_however_it_is_read(
    seed: int,
    users: int,
    rows: int,
    weighted: bool,
    capacity: int,
    size: int,
    threads: int,
    staged: int | None,
    more: float,
) -> None:
    keys, totals = rows_of(seed, users, rows, weighted)
    scan = FakeScan(keys, totals, size)
    # Keys without totals may be stored in buckets, if their size is known.
    bucketed = staged is not None and not weighted
    largest = int(keys.max(initial=0)) >> SHIFT if bucketed else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets_module, "_STAGED_KEYS", staged)
        feed = Feed(
            scan,
            SHIFT,
            capacity,
            threads,
            counted=int(more * capacity),
            users=None if largest is None else largest + 1,
        )
        for _ in range(2):
            found = feed.accumulate(add, (LAYOUT.items,))
            np.testing.assert_array_equal(found, direct(keys, totals))
    fits = rows <= (capacity // 4 if weighted else capacity)
    assert not fits or scan.passes == 1


@pytest.mark.parametrize("call", [1, 5, 64])
def test_calls_contain_whole_users(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "_CALL_KEYS", call)
    keys, totals = rows_of(3, 30, 400, weighted=True)
    seen: list[set[int]] = []

    def spy(keys: IntArray, totals: FloatArray | None, out: IntArray) -> None:
        seen.append(set((keys >> SHIFT).tolist()))
        add(keys, totals, out)

    found = Feed(FakeScan(keys, totals, 50), SHIFT, 1000, 1).accumulate(spy, (LAYOUT.items,))
    np.testing.assert_array_equal(found, direct(keys, totals))
    assert sum(map(len, seen)) == len(set.union(*seen))
    assert call > 30 or len(seen) > 5


@pytest.mark.parametrize("weighted", [False, True])
def test_short_capacity_takes_more_passes_and_bounded_memory(weighted: bool) -> None:
    rng = np.random.default_rng(5)
    keys = (rng.integers(0, 5000, 30_000) << SHIFT) | rng.integers(0, LAYOUT.items, 30_000)
    totals = np.ones(keys.size) if weighted else None
    scan, capacity = FakeScan(keys, totals, 1000), 4096
    feed = Feed(scan, SHIFT, capacity, 1)
    sizes, users = [], []
    for batch, _ in feed:
        sizes.append(batch.size)
        users.append(set((batch >> SHIFT).tolist()))
        assert (np.diff(batch) >= 0).all()
    assert scan.passes == len(sizes) > 4
    assert max(sizes) <= capacity
    assert all(not a & b for i, a in enumerate(users) for b in users[:i])
    assert set.union(*users) == set((keys >> SHIFT).tolist())
    np.testing.assert_array_equal(feed.accumulate(add, (LAYOUT.items,)), direct(keys, totals))


@pytest.mark.parametrize(("rows", "passes"), [(4000, 1), (8000, 1), (8200, 2), (30_000, 4)])
def test_buckets_contain_more_than_one_sortable_piece(rows: int, passes: int) -> None:
    rng = np.random.default_rng(5)
    keys = (rng.permutation(rows) << SHIFT) | rng.integers(0, LAYOUT.items, rows)
    scan = FakeScan(keys, None, 50)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets_module, "_STAGED_KEYS", 64)
        feed = Feed(scan, SHIFT, 4000, 2, counted=8000, users=rows)
        np.testing.assert_array_equal(feed.accumulate(add, (LAYOUT.items,)), direct(keys, None))
    assert scan.passes == passes


def test_repeated_keys_are_merged_from_buckets() -> None:
    rng = np.random.default_rng(6)
    keys = (rng.integers(0, 15, 50_000) << SHIFT) | rng.integers(0, LAYOUT.items, 50_000)
    scan = FakeScan(keys, None, 500)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets_module, "_STAGED_KEYS", 64)
        feed = Feed(scan, SHIFT, 4000, 2, counted=8000, users=15)
        np.testing.assert_array_equal(feed.accumulate(add, (LAYOUT.items,)), direct(keys, None))
    assert scan.passes == 1


def test_deferred_users_are_not_lost() -> None:
    rng = np.random.default_rng(7)
    each = (np.arange(3000) << SHIFT) | rng.integers(0, LAYOUT.items, 3000)
    keys = np.concatenate([each, rng.integers(0, LAYOUT.items, 5000)])

    def scan(share: UserShare) -> Iterator[Chunk]:
        held = keys[share.contains_keys(keys, SHIFT)]
        for start in range(0, held.size, 100):
            yield held[start : start + 100], None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets_module, "_STAGED_KEYS", 64)
        feed = Feed(scan, SHIFT, 1000, 2, counted=1500, users=3000)
        np.testing.assert_array_equal(feed.accumulate(add, (LAYOUT.items,)), direct(keys, None))


def test_fitting_data_are_scanned_once_for_two_queries() -> None:
    keys, _ = rows_of(1, 50, 300, weighted=False)
    scan = FakeScan(keys, None, 64)
    feed = Feed(scan, SHIFT, 1000, 2)
    first, second = (feed.accumulate(add, (LAYOUT.items,)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert scan.passes == 1


@pytest.mark.parametrize("weighted", [False, True])
def test_one_user_with_more_pairs_than_the_capacity(weighted: bool) -> None:
    shift, items = 13, 5000
    keys = (np.int64(7) << shift) | np.arange(items)
    keys = np.concatenate([keys, keys, (np.arange(20) << shift) | 3])
    totals = np.full(keys.size, 2.0) if weighted else None
    layout = KeyLayout(items, 1, np.zeros(items, dtype=np.int64))
    grid = Grid(np.array([1000.0]), 24)

    def count(keys: IntArray, totals: FloatArray | None, out: IntArray) -> None:
        clipped_sum(keys, totals, out, layout, grid)

    scan = FakeScan(keys, totals, 37, shift)
    found = Feed(scan, shift, 64, 2).accumulate(count, (items,))
    once = 4 if weighted else 2
    assert (found[:3] * grid.step[0]).tolist() == [once] * 3
    others = 19 + 1  # user 7 is among them
    assert found[3] * grid.step[0] == once + others * once // 2
    # A pass for each halving, and few more.
    assert scan.passes < 64


def test_a_giant_user_of_few_items_needs_one_pass() -> None:
    keys = np.full(200_000, (9 << SHIFT) | 2, dtype=np.int64)
    scan = FakeScan(keys, None, 4096)
    feed = Feed(scan, SHIFT, 1024, 1)
    assert feed.accumulate(add, (12,))[2] * GRID.step[0] == pytest.approx(2.0, rel=1e-6)
    assert scan.passes == 1


def test_no_rows() -> None:
    scan = FakeScan(np.zeros(0, dtype=np.int64), None, 10)
    assert not Feed(scan, SHIFT, 64, 3).accumulate(add, (12,)).any()


def test_source_or_kernel_error_is_not_swallowed() -> None:
    def broken(share: UserShare) -> Iterator[Chunk]:
        yield np.zeros(3, dtype=np.int64), None
        raise OSError("cut")

    with pytest.raises(OSError, match="cut"):
        Feed(broken, SHIFT, 64, 2).accumulate(add, (12,))

    def fails(keys: IntArray, totals: FloatArray | None, out: IntArray) -> None:
        raise ValueError("kernel")

    keys, _ = rows_of(1, 50, 300, weighted=False)
    with pytest.raises(ValueError, match="kernel"):
        Feed(FakeScan(keys, None, 64), SHIFT, 1000, 2).accumulate(fails, (12,))


def test_shares_split_users_evenly() -> None:
    share = UserShare()
    users = np.arange(1 << 14)
    sizes = [int(s.contains(users).sum()) for half in share.halves() for s in half.halves()]
    assert sum(sizes) == users.size
    assert max(sizes) < 1.2 * min(sizes)
    assert all(a <= b for a, b in pairwise(sorted(sizes)))


@pytest.mark.parametrize("weighted", [False, True])
def test_narrowed_keys_agree_with_counted_coordinates(weighted: bool) -> None:
    generator = np.random.default_rng(5)
    users, items = generator.integers(0, 300, 5000), generator.integers(0, 64, 5000)
    totals = generator.integers(1, 9, 5000).astype(np.float64) if weighted else None

    def scan(share: UserShare) -> Iterator[Chunk]:
        held = share.contains(users)
        yield (users << 6 | items)[held], None if totals is None else totals[held]

    feed = Feed(scan, 6, 1 << 20, 2)
    assert feed.narrowed(np.zeros(64, dtype=np.int64), 5) is None
    before = feed._cached
    list(feed)
    assert before is None
    assert feed._cached is not None
    codes = np.full(64, -1, dtype=np.int64)
    codes[::3] = np.arange(22)

    def add(keys: IntArray, sums: FloatArray | None, out: IntArray) -> None:
        assert (np.diff(keys) >= 0).all()
        places = (keys >> 5) * 22 + (keys & 31)
        np.add.at(out, places, 1 if sums is None else sums.astype(np.int64))

    narrowed = feed.narrowed(codes, 5)
    assert narrowed is not None
    found = narrowed.accumulate(add, (300 * 22,)).reshape(300, 22)
    expected = np.zeros((300, 64), dtype=np.int64)
    np.add.at(expected, (users, items), 1 if totals is None else totals.astype(np.int64))
    assert (found == expected[:, ::3]).all()
