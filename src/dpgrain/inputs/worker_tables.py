"""Rows of whole users on a cluster worker, and their memory limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import pyarrow as pa

#: Approximate bytes of a cell of stored rows on a worker: a batch of ten thousand cells remains
#: below the 2 GiB limit of an Arrow column of bytes.
CELL_BYTES = 1 << 17
#: Bytes of cells to concatenate before adding them up.
RUN_BYTES = 1 << 22
#: Advice at the end of errors about unsupported rows on a cluster.
LOAD_LOCALLY = (
    "or load the rows here (engine='duckdb' for files, frame.toPandas() for a Spark DataFrame)."
)

Batches: TypeAlias = Iterable[pa.RecordBatch]


def worker_tables(batches: Batches, *, users: bool) -> Iterator[pa.Table]:
    """Yield a worker's rows in tables, with all rows of a user in one table.

    The rows of a user can come in several batches; without ``users``, each row is a user.
    """
    if not users:
        # Rows are independent, so only one batch is in memory.
        for batch in batches:
            yield pa.Table.from_batches([batch])
        return
    whole = list(batches)
    if whole:
        yield pa.Table.from_batches(whole)
