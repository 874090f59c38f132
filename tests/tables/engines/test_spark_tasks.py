"""The answers of tasks, without Spark: added slices, read rows, versions."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refuses

import dpgrain as dg
from dpgrain._types import IntArray
from dpgrain.errors import DataError
from dpgrain.tables.engines.spark_tasks import (
    OTHER_VERSION,
    SUMS,
    AddSlicesTask,
    ColumnQuery,
    DistinctQuery,
    ExtentQuery,
    PartitionStream,
    QueryTask,
    SliceSums,
    VersionedTask,
    slice_count,
    slices,
)
from dpgrain.tables.rows import TableRows

SIZES = [0, 1, 8191, 8192, 8193, 20_000]


def _sums(size: int, seed: int) -> IntArray:
    return np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, size)


@pytest.mark.parametrize("size", SIZES)
def test_slices_add_up_modulo_two_to_the_64(size: int) -> None:
    parts = [_sums(size, seed) for seed in range(4)]
    found = SliceSums()
    for place, part in enumerate(parts):
        batch = slices(part, place)
        assert batch.num_rows == slice_count(size)
        found.add(batch)
    assert np.array_equal(found.total(size), sum(parts, start=np.zeros(size, dtype=np.int64)))


@given(st.integers(1, 4), st.randoms(use_true_random=False))
def test_tasks_add_up_slices_in_any_order(parts: int, random: object) -> None:
    size = 20_000
    sums = [_sums(size, seed) % 1000 for seed in range(parts)]
    rows = pa.Table.from_batches([slices(each, part) for part, each in enumerate(sums)])
    order = list(range(len(rows)))
    random.shuffle(order)  # type: ignore[attr-defined]
    found = SliceSums()
    for place in range(slice_count(size)):
        # All slices of one place reach one task, with other places' slices.
        mine = [i for i in order if rows["slice"][i].as_py() == place]
        for batch in AddSlicesTask()(rows.take(pa.array(mine)).to_batches()):
            assert batch.schema == SUMS
            found.add(batch)
    assert np.array_equal(found.total(size), sum(sums))


def test_duplicate_or_missing_slice_is_noticed() -> None:
    batch = slices(_sums(20_000, 1), 0)
    twice, never = SliceSums(), SliceSums()
    twice.add(batch)
    with refuses("A", "twice", kind=DataError):
        twice.add(batch.slice(1, 1))
    never.add(batch.slice(0, 2))
    with pytest.raises(DataError, match="missing"):
        never.total(20_000)


def test_slice_of_an_extra_partition_is_noticed() -> None:
    found = SliceSums()
    found.add(slices(_sums(20_000, 1), 0))
    found.add(slices(_sums(20_000, 2), 1).slice(0, 1))
    with pytest.raises(DataError, match="different runs"):
        found.total(20_000)


def _rows(**columns: str) -> TableRows:
    return TableRows(PartitionStream(), "who", None, columns, 256 * 10**6, 1)


ROWS = pa.table({"a": pa.array([1, 1, None]), "b": pa.array(["x", "x", "y"])})


def test_task_reads_rows_under_their_own_names() -> None:
    rows = _rows(who="BIGINT", **{"it'em `\"": "VARCHAR"})
    task = QueryTask(rows, ("who", "it'em `\""), DistinctQuery(("it'em `\"",)))
    (batch,) = pickle.loads(pickle.dumps(task))(ROWS.to_batches(max_chunksize=1))
    assert batch.to_pydict() == {"k0": ["x"]}
    assert task.schema(ROWS.schema) == batch.schema
    assert list(task([])) == []


def test_undecodable_text_is_missing_and_fails_nothing() -> None:
    """An undecodable value would end the release, and reveal that some user has it."""
    odd = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"\xffz")]
    )
    task = QueryTask(_rows(who="BIGINT", w="VARCHAR"), ("who", "w"), ColumnQuery((("w", "key"),)))
    (batch,) = task(pa.table({"a": [1, 2], "b": odd}).to_batches())
    assert batch.column(0).to_pylist() == [None, "z"]


def test_partition_extent_counts_rows_without_a_number() -> None:
    task = QueryTask(_rows(who="BIGINT"), ("who",), ExtentQuery("who"))
    (batch,) = task(ROWS.select(["a"]).to_batches())
    assert batch.to_pylist() == [{"low": 1, "high": 1, "rows": 3}]


def test_another_package_version_is_rejected() -> None:
    task = VersionedTask(AddSlicesTask())
    assert task.version == dg.__version__
    assert not list(task([]))
    with pytest.raises(RuntimeError, match=OTHER_VERSION):
        list(replace(task, version="0.0.0")([]))
