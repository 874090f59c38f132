"""All rows of a user arrive in one table; if rows are users, a batch is enough."""

from __future__ import annotations

import pyarrow as pa

from dpgrain.inputs.worker_tables import worker_tables

WHO = pa.schema({"who": pa.int64()})
BATCHES = [pa.record_batch({"who": who}, WHO) for who in ([1, 2], [], [2, 3, 3])]


def test_all_rows_of_a_user_come_together() -> None:
    (table,) = worker_tables(iter(BATCHES), users=True)
    assert table.column("who").to_pylist() == [1, 2, 2, 3, 3]


def test_rows_as_users_arrive_in_batches() -> None:
    tables = worker_tables(iter(BATCHES), users=False)
    assert [table.column("who").to_pylist() for table in tables] == [[1, 2], [], [2, 3, 3]]


def test_a_share_without_rows_has_no_table() -> None:
    assert [list(worker_tables([], users=users)) for users in (True, False)] == [[], []]
