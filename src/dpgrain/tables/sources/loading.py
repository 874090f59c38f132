"""All rows of a source in memory, for internal use only: no release reads them."""

from __future__ import annotations

import pyarrow as pa

from dpgrain.tables.engines.memory import Memory
from dpgrain.tables.engines.spill import connect, new_spill_folder
from dpgrain.tables.sources.read_errors import translate_errors
from dpgrain.tables.sources.source import RowSource, transaction

# Bytes of working memory, in addition to the rows.
_MEMORY = 10**9


def load_rows(source: RowSource) -> pa.Table:
    """Load all rows of a source.

    >>> from dpgrain.tables.sources.frames import ArrowSource
    >>> load_rows(ArrowSource(pa.table({"who": [1, 2]}))).num_rows
    2
    """
    with (
        new_spill_folder() as folder,
        connect(Memory.split(_MEMORY, 1), folder.path) as connection,
        transaction(source, connection),
        translate_errors(source.name),
    ):
        connection.execute("SET preserve_insertion_order = true")
        return connection.sql(f"SELECT * FROM {source.attach(connection)}").to_arrow_table()
