"""Sources of rows that come in batches of Arrow's: streams, read once, and datasets of files."""

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
from dpgrain.tables.engines.memory import Memory
from dpgrain.tables.engines.spill import COPIES, SpillFolder, connected, new_spill_folder
from dpgrain.tables.engines.sql import label, text
from dpgrain.tables.sources.column_sql import (
    arrow_expressions,
    select_from,
    select_list,
    usable_columns,
)
from dpgrain.tables.sources.column_types import TEXT, read_as
from dpgrain.tables.sources.duckdb_connection import register_rows, run_interruptible, spill_path
from dpgrain.tables.sources.frames import readable_table
from dpgrain.tables.sources.read_errors import translate_errors
from dpgrain.tables.sources.schemas import duckdb_type

# Rows of a dataset that are read together, and batches and files that are read ahead.
_ROWS, _BATCHES_AHEAD, _FILES_AHEAD = 1 << 16, 4, 2
# Bytes of a key of AES-256.
_KEY_BYTES = 32
_counter = itertools.count()


class SpilledStream:
    """Rows of a stream in an encrypted file of DuckDB's, until nothing refers to them any more.

    Args:
        rows: the stream, which is read to its end.
        columns: column → SQL of what is kept of it.
        memory: the parts of the memory that reading may use.
        name: the name in messages.

    Raises:
        DataError: if it cannot be read to its end, or put anywhere.
    """

    def __init__(
        self, rows: pa.RecordBatchReader, columns: dict[str, str], memory: Memory, name: str
    ) -> None:
        self._folder = new_spill_folder()
        # A forked process ends without the folder of the one that made it.
        weakref.finalize(self, _removed, self._folder, os.getpid())
        self._key = secrets.token_hex(_KEY_BYTES)
        self._name = f"aside_{next(_counter)}"
        with translate_errors(name), connected(memory, self._folder.path) as connection:
            step("storing rows")
            connection.execute("SET preserve_insertion_order = true")
            self._attach(connection, "")
            _make(connection, f"TABLE {self.table}", columns, rows)
            connection.execute(f"DETACH {self._name}")

    @property
    def table(self) -> str:
        """The SQL name of the rows, on connections of :meth:`on`."""
        return f"{self._name}.rows"

    def on(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Return the SQL of the rows on a connection.

        Args:
            connection: the connection of a query.
        """
        self._attach(connection, "READ_ONLY, ")
        return self.table

    def _attach(self, connection: duckdb.DuckDBPyConnection, how: str) -> None:
        _attach(connection, Path(self._folder.path), self._name, self._key, how)


def store_stream(
    connection: duckdb.DuckDBPyConnection,
    rows: pa.RecordBatchReader,
    columns: dict[str, str],
    memory: int,
) -> str:
    """Read a stream to its end into tables that go with a connection, and return SQL of all its rows.

    Those that come first are kept in memory, where they take hardly any time, and the rest in an
    encrypted file where the connection spills: a table in a file is packed, and takes a fraction of
    the room.

    Args:
        connection: the connection.
        rows: the stream.
        columns: column → SQL of what is kept of it.
        memory: bytes of those that are kept in memory, about.
    """
    number, ended = next(_counter), threading.Event()
    first = pa.RecordBatchReader.from_batches(rows.schema, _first(rows, memory, ended))
    _make(connection, f"TEMP TABLE held_{number}", columns, first)
    if ended.is_set():
        return f"held_{number}"
    name = f"aside_{number}"
    _attach(connection, spill_path(connection), name, secrets.token_hex(_KEY_BYTES))
    _make(connection, f"TABLE {name}.rows", columns, rows)
    return f"(SELECT * FROM held_{number} UNION ALL SELECT * FROM {name}.rows)"


def _first(
    rows: pa.RecordBatchReader, size: int, ended: threading.Event
) -> Iterator[pa.RecordBatch]:
    """Yield batches of a stream up to about a number of bytes; set the event if there are no more."""
    read = 0
    while read < size:
        try:
            batch = rows.read_next_batch()
        except StopIteration:
            ended.set()
            return
        read += batch.nbytes
        yield batch


def _make(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    columns: dict[str, str],
    rows: pa.RecordBatchReader,
) -> None:
    """Make a table of a stream."""
    name = register_rows(connection, rows)
    query = f"CREATE {table} AS SELECT {select_list(columns)} FROM {name}"
    run_interruptible(connection, partial(connection.execute, query))
    connection.unregister(name)


def _attach(
    connection: duckdb.DuckDBPyConnection, folder: Path, name: str, key: str, how: str = ""
) -> None:
    path = text(str(folder / f"{COPIES}_{name}.db"))
    connection.execute(f"ATTACH IF NOT EXISTS {path} AS {name} ({how}ENCRYPTION_KEY {text(key)})")


def _removed(folder: SpillFolder, process: int) -> None:
    if os.getpid() == process:
        folder.remove()


@dataclass(eq=False)
class StreamSource:
    """A stream that can be read once: the first release puts its rows aside, and all read them there.

    Args:
        stream: the stream; nothing else may read it.
        memory: bytes of working memory to read it with.
        threads: threads that read it.
        name: the name in messages.
        title: the name in reports.
    """

    stream: pa.RecordBatchReader
    memory: int
    threads: int
    name: str = "The stream"
    title: str = "a stream"
    _aside: SpilledStream | None = field(default=None, init=False, repr=False)
    _begun: bool = field(default=False, init=False, repr=False)
    _lock: Any = field(default_factory=threading.Lock, init=False, repr=False)

    def columns(self) -> dict[str, str]:
        """Return column name → type, from the schema alone."""
        return {column: read_as(kind) for column, kind in self._kinds.items()}

    @cached_property
    def _kinds(self) -> dict[str, str]:
        return _kinds(self.stream.schema)

    def attach(
        self,
        connection: duckdb.DuckDBPyConnection,
        used: Collection[str] | None = None,  # noqa: ARG002 - the file holds all columns
    ) -> str:
        """Return the rows that were put aside.

        Raises:
            DataError: if the stream broke off, now or before.
        """
        with self._lock:
            if self._aside is None:
                self._aside = self._put_aside()
        with translate_errors(self.name):
            return self._aside.on(connection)

    def _put_aside(self) -> SpilledStream:
        if self._begun:
            raise DataError(
                f"{self.name} can be read only once, and ended early; call dg.read with a new one."
            )
        self._begun = True
        kinds = usable_columns(self._kinds, None)
        rows = _readable(self.stream, list(kinds))
        return SpilledStream(rows, _carried(kinds), Memory.of(self.memory, self.threads), self.name)


@dataclass(frozen=True, eq=False)
class DatasetSource:
    """A dataset of files that pyarrow reads, as often as it is asked, batch by batch.

    Args:
        dataset: the dataset.
        name: the name in messages.
        title: the name in reports.
    """

    dataset: Any
    name: str = "The dataset"
    title: str = "a dataset"

    def columns(self) -> dict[str, str]:
        """Return column name → type, from the schema alone."""
        return {column: read_as(kind) for column, kind in self._kinds.items()}

    @cached_property
    def _kinds(self) -> dict[str, str]:
        return _kinds(self.dataset.schema)

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Register a fresh stream of the columns that are used, and return SQL of them."""
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


def _kinds(schema: pa.Schema) -> dict[str, str]:
    """Return column → type in DuckDB's words."""
    return {column.name: duckdb_type(column.type) for column in schema}


def _carried(kinds: dict[str, str]) -> dict[str, str]:
    """Return column → SQL of what is kept of a stream: of texts those that are labels."""
    return {
        name: label(sql) if read_as(kinds[name]) == TEXT else sql
        for name, sql in arrow_expressions(kinds).items()
    }


def _readable(rows: pa.RecordBatchReader, names: list[str]) -> pa.RecordBatchReader:
    """Return a stream of columns, in which each value can be read; of none, of one of nulls."""
    places = [rows.schema.get_field_index(name) for name in names]
    fields = [rows.schema.field(place) for place in places]
    nothing = pa.RecordBatch.from_arrays([pa.array([], each.type) for each in fields], names=names)
    schema = readable_table(pa.Table.from_batches([nothing])).schema if names else _NONE

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            if not names:
                yield pa.record_batch([pa.nulls(batch.num_rows)], schema=_NONE)
                continue
            columns = [batch.column(place) for place in places]
            yield from readable_table(pa.Table.from_arrays(columns, names=names)).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


_NONE = pa.schema([("none", pa.null())])
