"""Sources of Arrow batches: streams, which can be read once, and datasets of files."""

from __future__ import annotations

import itertools
import os
import secrets
import threading
import weakref
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from dpgrain._progress import step
from dpgrain.errors import DataError
from dpgrain.tables.engines.memory import COPIES, Memory, SpillFolder, connect
from dpgrain.tables.engines.sql import (
    arrow_expressions,
    label_sql,
    literal,
    select_from,
    select_list,
    usable_columns,
)
from dpgrain.tables.sources.column_types import TEXT, read_as
from dpgrain.tables.sources.duckdb_connection import (
    register_rows,
    run_interruptible,
    schema_types,
    spill_path,
    translate_errors,
)
from dpgrain.tables.sources.frames import readable_table

# Rows per batch of a dataset, and batches and files to read ahead.
_ROWS, _BATCHES_AHEAD, _FILES_AHEAD = 1 << 16, 4, 2
# Bytes of a key of AES-256.
_KEY_BYTES = 32
_counter = itertools.count()


class SpilledStream:
    """Rows of a stream in an encrypted DuckDB file, deleted with this object."""

    def __init__(
        self, rows: pa.RecordBatchReader, columns: dict[str, str], memory: Memory, name: str
    ) -> None:
        self._folder = SpillFolder()
        # A fork must not delete the folder of its parent.
        weakref.finalize(self, _remove, self._folder, os.getpid())
        self._key = secrets.token_hex(_KEY_BYTES)
        self._name = f"spilled_{next(_counter)}"
        with translate_errors(name), connect(memory, self._folder.path) as connection:
            step("storing rows")
            connection.execute("SET preserve_insertion_order = true")
            self._attach(connection, "")
            _create(connection, f"TABLE {self.table}", columns, rows)
            connection.execute(f"DETACH {self._name}")

    @property
    def table(self) -> str:
        """SQL name of the rows on connections of :meth:`on`."""
        return f"{self._name}.rows"

    def on(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Attach the file to a connection, and return SQL of the rows."""
        self._attach(connection, "READ_ONLY, ")
        return self.table

    def _attach(self, connection: duckdb.DuckDBPyConnection, options: str) -> None:
        _attach(connection, Path(self._folder.path), self._name, self._key, options)


def store_stream(
    connection: duckdb.DuckDBPyConnection,
    rows: pa.RecordBatchReader,
    columns: dict[str, str],
    memory: int,
) -> str:
    """Read a stream to its end into temporary tables, and return SQL of all rows.

    The first rows go to memory, which is fast, and the rest to an encrypted and compressed file in
    the spill folder of the connection. `columns` is column → SQL.
    """
    number, ended = next(_counter), threading.Event()
    first = pa.RecordBatchReader.from_batches(rows.schema, _first(rows, memory, ended))
    _create(connection, f"TEMP TABLE first_{number}", columns, first)
    if ended.is_set():
        return f"first_{number}"
    name = f"spilled_{number}"
    _attach(connection, spill_path(connection), name, secrets.token_hex(_KEY_BYTES))
    _create(connection, f"TABLE {name}.rows", columns, rows)
    return f"(SELECT * FROM first_{number} UNION ALL SELECT * FROM {name}.rows)"


def _first(
    rows: pa.RecordBatchReader, size: int, ended: threading.Event
) -> Iterator[pa.RecordBatch]:
    """Yield the first batches, about `size` bytes; set the event at the stream's end."""
    read = 0
    while read < size:
        try:
            batch = rows.read_next_batch()
        except StopIteration:
            ended.set()
            return
        read += batch.nbytes
        yield batch


def _create(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    columns: dict[str, str],
    rows: pa.RecordBatchReader,
) -> None:
    """Create a table from a stream."""
    name = register_rows(connection, rows)
    query = f"CREATE {table} AS SELECT {select_list(columns)} FROM {name}"
    run_interruptible(connection, partial(connection.execute, query))
    connection.unregister(name)


def _attach(
    connection: duckdb.DuckDBPyConnection, folder: Path, name: str, key: str, options: str = ""
) -> None:
    path = literal(str(folder / f"{COPIES}_{name}.db"))
    connection.execute(
        f"ATTACH IF NOT EXISTS {path} AS {name} ({options}ENCRYPTION_KEY {literal(key)})"
    )


def _remove(folder: SpillFolder, process: int) -> None:
    if os.getpid() == process:
        folder.remove()


@dataclass(eq=False)
class StreamSource:
    """Stream that can be read once; the first release spills its rows for all."""

    stream: pa.RecordBatchReader
    memory: int
    threads: int
    name: str = "The stream"
    title: str = "a stream"
    _spilled: SpilledStream | None = field(default=None, init=False, repr=False)
    _started: bool = field(default=False, init=False, repr=False)
    _lock: Any = field(default_factory=threading.Lock, init=False, repr=False)

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        return {column: read_as(kind) for column, kind in self._kinds.items()}

    @cached_property
    def _kinds(self) -> dict[str, str]:
        return schema_types(self.stream.schema)

    def attach(
        self,
        connection: duckdb.DuckDBPyConnection,
        used: Collection[str] | None = None,  # noqa: ARG002 - the file has all columns
    ) -> str:
        """Return SQL of the spilled rows; raises DataError if the stream ended early."""
        with self._lock:
            if self._spilled is None:
                self._spilled = self._spill()
        with translate_errors(self.name):
            return self._spilled.on(connection)

    def _spill(self) -> SpilledStream:
        if self._started:
            raise DataError(
                f"{self.name} can be read only once, and ended early; call dg.read with a new one."
            )
        self._started = True
        kinds = usable_columns(self._kinds, None)
        rows = _readable(self.stream, list(kinds))
        return SpilledStream(
            rows, _stored_expressions(kinds), Memory.split(self.memory, self.threads), self.name
        )


@dataclass(frozen=True, eq=False)
class DatasetSource:
    """A dataset of files that pyarrow reads in batches."""

    dataset: Any
    name: str = "The dataset"
    title: str = "a dataset"

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        return {column: read_as(kind) for column, kind in self._kinds.items()}

    @cached_property
    def _kinds(self) -> dict[str, str]:
        return schema_types(self.dataset.schema)

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Register a new stream of the columns used, and return SQL of them."""
        kinds = usable_columns(self._kinds, used)
        with translate_errors(self.name):
            scanner = self.dataset.scanner(
                columns=list(kinds),
                batch_size=_ROWS,
                batch_readahead=_BATCHES_AHEAD,
                fragment_readahead=_FILES_AHEAD,
            )
            rows = _readable(scanner.to_reader(), list(kinds))
            return select_from(register_rows(connection, rows), arrow_expressions(kinds))


def _stored_expressions(kinds: dict[str, str]) -> dict[str, str]:
    """Return column → SQL of the stored value: null for a text that is too long."""
    return {
        name: label_sql(sql) if read_as(kinds[name]) == TEXT else sql
        for name, sql in arrow_expressions(kinds).items()
    }


def _readable(rows: pa.RecordBatchReader, names: list[str]) -> pa.RecordBatchReader:
    """Return a stream of columns with invalid values as null, or of nulls if empty."""
    indices = [rows.schema.get_field_index(name) for name in names]
    fields = [rows.schema.field(index) for index in indices]
    empty = pa.RecordBatch.from_arrays([pa.array([], each.type) for each in fields], names=names)
    schema = readable_table(pa.Table.from_batches([empty])).schema if names else _NO_COLUMNS

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            if not names:
                yield pa.record_batch([pa.nulls(batch.num_rows)], schema=_NO_COLUMNS)
                continue
            columns = [batch.column(index) for index in indices]
            yield from readable_table(pa.Table.from_arrays(columns, names=names)).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


_NO_COLUMNS = pa.schema([("none", pa.null())])
