"""Buckets contain the same keys in fewer bits, and return them sorted, whole users together."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgrain._types import BoolArray, IntArray
from dpgrain.tables.engines import buckets as module
from dpgrain.tables.engines.buckets import Bucketing, Buckets


def filled(keys: IntArray, bucketing: Bucketing, capacity: int, chunk: int) -> Buckets:
    buckets = Buckets(bucketing, capacity)
    for start in range(0, keys.size, chunk):
        assert buckets.add(keys[start : start + chunk])
    return buckets


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32),
    users=st.sampled_from([1, 2, 63, 64, 65, 5000, 2**26, 2**30]),
    shift=st.sampled_from([1, 7, 12]),
    rows=st.integers(0, 3000),
    staged=st.sampled_from([1, 10, 700, 10_000]),
    size=st.sampled_from([1, 50, 10_000]),
)
def test_the_same_keys_come_back_sorted(
    seed: int, users: int, shift: int, rows: int, staged: int, size: int
) -> None:
    generator = np.random.default_rng(seed)
    # Some users have many of the rows, and the last one is present.
    user = np.minimum(generator.geometric(3 / users, rows), users - 1) if users > 3 else 0
    user = np.where(generator.random(rows) < 0.1, users - 1, user)
    keys = (user << shift) | generator.integers(0, 1 << shift, rows)
    bucketing = Bucketing.fit(users, shift)
    assert bucketing is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_STAGED_KEYS", staged)
        buckets = filled(keys, bucketing, max(rows, 1), 170)
        assert np.array_equal(np.sort(np.concatenate(list(buckets.drain()))), np.sort(keys))
        buckets = filled(keys, bucketing, max(rows, 1), 170)
    assert not buckets.add(np.zeros(2, dtype=np.int64))
    buckets.flush()
    for _ in range(2):
        parts = [part for b in buckets.nonempty() for part in buckets.parts(b, shift, size)]
        found = np.concatenate([np.zeros(0, dtype=np.int64), *parts])
        np.testing.assert_array_equal(found, np.sort(keys))
        owners = [set((part >> shift).tolist()) for part in parts]
        assert sum(map(len, owners)) == len(set().union(*owners))


def even_by(bit: int, keys: IntArray) -> BoolArray:
    return np.asarray(keys >> bit & 1 == 0)


@given(seed=st.integers(0, 2**32), rows=st.integers(1, 2000), times=st.integers(0, 3))
def test_stored_keys_make_room_for_more(seed: int, rows: int, times: int) -> None:
    generator = np.random.default_rng(seed)
    users, shift = 500, 5
    bucketing = Bucketing.fit(users, shift)
    assert bucketing is not None
    keys = generator.integers(0, users << shift, rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_STAGED_KEYS", 50)
        patch.setattr(module, "_PART_KEYS", 7)
        buckets = filled(keys, bucketing, 2 * rows, 170)
        for bit in range(times):
            even = partial(even_by, shift + bit)
            buckets.filter(even)
            keys = keys[even(keys)]
            assert buckets.size == keys.size
            more = generator.integers(0, users << shift, 2 * rows - keys.size)
            assert buckets.add(more)
            assert not buckets.add(more[:1]) or not more.size
            keys = np.concatenate([keys, more])
        different = np.unique(keys).size
        assert buckets.has_more_than(different - 1)
        assert not buckets.has_more_than(different)
    parts = [part for b in buckets.nonempty() for part in buckets.parts(b, shift, 10)]
    np.testing.assert_array_equal(np.concatenate(parts), np.sort(keys))


def test_large_bucket_uses_up_the_capacity() -> None:
    bucketing = Bucketing.fit(64, 5)
    assert bucketing is not None
    even = np.arange(64 << 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_STAGED_KEYS", 16)
        buckets = Buckets(bucketing, 2 * even.size, even.size)
        assert buckets.add(even)
        assert buckets.add(even)
        assert not buckets.is_lopsided
        buckets = Buckets(bucketing, 2 * even.size, even.size)
        assert buckets.add(np.zeros(even.size, dtype=np.int64))
        assert not buckets.add(even)
        assert buckets.is_lopsided


@pytest.mark.parametrize(("users", "shift"), [(2**40, 19), (10, 33), (2**44, 1)])
def test_too_long_keys_have_no_buckets(users: int, shift: int) -> None:
    assert Bucketing.fit(users, shift) is None


@pytest.mark.parametrize("users", [1, 1000, 400_000, 10**7, 2**25])
@pytest.mark.parametrize("shift", [1, 10, 19])
def test_last_key_of_last_user_is_in_last_bucket(users: int, shift: int) -> None:
    found = Bucketing.fit(users, shift)
    assert found is not None
    assert shift <= found.bits <= 32
    assert ((users << shift) - 1) >> found.bits == found.count - 1


def test_keys_take_half_the_memory() -> None:
    bucketing = Bucketing.fit(400_000, 19)
    assert bucketing is not None
    buckets = Buckets(bucketing, 10**7)
    assert buckets._pool.nbytes <= 4 * 10**7 * 1.2
