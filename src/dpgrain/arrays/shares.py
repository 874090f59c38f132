"""Rows of whole users as they come to a task on a cluster, and how much of them is held at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import pyarrow as pa

#: Bytes of a cell in which a task keeps rows, about: ten thousand cells, which come in one batch, stay
#: below the 2 GiB that a column of bytes may have.
CELL_BYTES = 1 << 17
#: Bytes of cells that are put together before they are added up.
RUN_BYTES = 1 << 22
#: Remedy at the end of sentences that refuse rows on a cluster.
BRING_HERE = (
    "or load the rows here (engine='duckdb' for files, frame.toPandas() for a Spark DataFrame)."
)

Batches: TypeAlias = Iterable[pa.RecordBatch]


def tables_of(batches: Batches, *, users: bool) -> Iterator[pa.Table]:
    """Yield the rows of a share in tables, with all rows of a user in one table.

    Args:
        batches: the rows, of which those of one user may come in several batches.
        users: True if users are distinguished; else each row is a user of its own.

    >>> rows = pa.record_batch({"who": [1, 2]})
    >>> [[len(table) for table in tables_of([rows, rows], users=users)] for users in (True, False)]
    [[4], [2, 2]]
    """
    if not users:
        # A row needs no others beside it, so that no more than a batch is held.
        for batch in batches:
            yield pa.Table.from_batches([batch])
        return
    whole = list(batches)
    if whole:
        yield pa.Table.from_batches(whole)
