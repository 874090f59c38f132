"""All rows of a source in memory, for the curator alone: nothing that is released comes from here."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from dpgrain.tables.engines.sources import Source, begun, reading


def whole(source: Source) -> pa.Table:
    """Read all rows of a source into memory.

    Args:
        source: the source.

    Raises:
        DataError: if they cannot be read.

    >>> from dpgrain.tables.engines.sources import ArrowSource
    >>> whole(ArrowSource(pa.table({"who": [1, 2]}))).num_rows
    2
    """
    with duckdb.connect() as connection, begun(source, connection), reading(source.name):
        return connection.sql(f"SELECT * FROM {source.attach(connection)}").to_arrow_table()
