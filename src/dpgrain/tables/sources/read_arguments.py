"""Arguments of :func:`dpgrain.read`: the source, and the provenance of its rows.

Both lists are closed. Anything that :func:`_known_provenance` does not list is a query, in which
one user's rows can determine the rows of others.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from dpgrain import _validate
from dpgrain._lazy_import import lazy_import
from dpgrain.errors import DpgrainError, ParameterError, SchemaError, raise_without_context
from dpgrain.scope.provenance import Provenance
from dpgrain.tables.engines.spark_session import is_frame
from dpgrain.tables.engines.sql import (
    literal,
    quoted,
    read_expressions,
    select_from,
    select_list,
    usable_columns,
)
from dpgrain.tables.sources.column_names import require_names
from dpgrain.tables.sources.column_types import (
    export_expression,
    read_as,
)
from dpgrain.tables.sources.csv_files import CsvFiles
from dpgrain.tables.sources.csv_rows import UTF8, known_encoding
from dpgrain.tables.sources.duckdb_connection import (
    incomplete_error,
    register_rows,
    translate_errors,
)
from dpgrain.tables.sources.folders import FileList
from dpgrain.tables.sources.frames import ArrowSource, pandas_source, polars_source, valid_texts
from dpgrain.tables.sources.parquet_files import ParquetFiles
from dpgrain.tables.sources.postgres import POSTGRES_SCHEMES, Address, PostgresSource
from dpgrain.tables.sources.source import RowSource
from dpgrain.tables.sources.streams import DatasetSource, StreamSource

if TYPE_CHECKING:
    from dpgrain.tables.sources import s3
else:
    s3 = lazy_import("dpgrain.tables.sources.s3")


#: DuckDB's type of a relation that is a named table, not a view or a query.
TABLE_RELATION = "TABLE_RELATION"

# Rows per batch: DuckDB counts bytes of text in 31 bits, and this many longest labels take 128 MiB.
_STREAMED_ROWS = 1 << 11


@dataclass(frozen=True, eq=False)
class RelationSource:
    """A DuckDB relation on the caller's connection, run again by each query.

    The name of a table must refer to the same table with the same columns at each read: a view
    would be a query, and a value of another type would end the release.
    """

    relation: duckdb.DuckDBPyRelation
    name: str = "The relation"
    title: str = "a DuckDB relation"

    def columns(self) -> dict[str, str]:
        """Return column name → type at the first call."""
        return dict(self._opened[0])

    @cached_property
    def _opened(self) -> tuple[dict[str, str], Any]:
        return self._current_state()

    def _current_state(self) -> tuple[dict[str, str], Any]:
        """Return column name → type, and for a table everything that its name can refer to."""
        with translate_errors(self.name):
            columns = {column: read_as(kind) for column, kind in self._kinds.items()}
            if self.relation.type != TABLE_RELATION:
                return columns, None
            named = self.relation.filter("false").aggregate(_name_targets(self.relation.alias))
            return columns, named.fetchall()

    @property
    def _kinds(self) -> dict[str, str]:
        return dict(zip(self.relation.columns, map(str, self.relation.types), strict=True))

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Register a new stream of the rows, and return SQL of its columns."""
        opened = self._opened
        if self._current_state() != opened:
            raise SchemaError(
                f"{self.name} has different columns than when it was opened, or its name "
                "refers to another table; call dg.read again."
            )
        kinds = usable_columns(self._kinds, used)
        exported = {
            column: export_expression(quoted(column), kind) for column, kind in kinds.items()
        }
        with translate_errors(self.name):
            stream = self.relation.project(select_list(exported)).to_arrow_reader(_STREAMED_ROWS)
            return select_from(register_rows(connection, stream), read_expressions(kinds))


def _name_targets(name: str) -> str:
    """Return the SQL of all tables and views with a name, and of the search path."""
    result = (
        f"SELECT list((database_name, schema_name, {kind}_oid) ORDER BY {kind}_oid) "
        f"FROM duckdb_{kind}s() WHERE lower({kind}_name) = lower({literal(name)})"
        for kind in ("table", "view")
    )
    listed = ", ".join(f"({query}) AS found{index}" for index, query in enumerate(result))
    return f"count(*) AS rows_, {listed}, current_setting('search_path') AS path"


def stores_its_values(table: duckdb.DuckDBPyRelation) -> bool:
    """Return True if all tables with this name store every value in a DuckDB file.

    A generated column can number the rows (``nextval``), and the values of another system can
    differ from the type of their column.
    """
    stored = (
        "SELECT count(*) FROM duckdb_tables() AS tables_ JOIN duckdb_databases() AS files "
        f"USING (database_oid) WHERE lower(table_name) = lower({literal(table.alias)}) "
        "AND (files.type <> 'duckdb' OR contains(tables_.sql, 'GENERATED ALWAYS AS'))"
    )
    with translate_errors("The relation"):
        return table.filter("false").aggregate(f"({stored}) + 0 * count(*)").fetchall() == [(0,)]


S3 = "s3://"
#: Schemes of addresses.
ADDRESS_SCHEMES = (S3, *POSTGRES_SCHEMES)


def resolve_source(
    data: Any,
    *,
    delimiter: str = ",",
    encoding: str = UTF8,
    memory: int = 10**9,
    threads: int = 1,
) -> RowSource:
    """Return the source for paths, folders, globs, Arrow tables or streams, or frames."""
    encoding = known_encoding(encoding)
    is_text = isinstance(delimiter, str)
    if not (is_text and len(delimiter) == 1 and delimiter.isascii() and delimiter not in '\0\n\r"'):
        raise ParameterError(
            "delimiter must be one ASCII character other than a quote or line break, not "
            f"{_validate.describe(delimiter)}."
        )
    if isinstance(data, PostgresSource):
        return data
    if isinstance(data, str | Path):
        return _file_source([data], delimiter, encoding)
    if isinstance(data, Sequence) and data and all(isinstance(p, str | Path) for p in data):
        return _file_source(data, delimiter, encoding)
    if isinstance(data, duckdb.DuckDBPyRelation):
        require_names(data.columns, "The relation")
        return RelationSource(data)
    if isinstance(data, pa.Table):
        require_names(data.schema.names, "The table")
        return ArrowSource(valid_texts(data))
    module = type(data).__module__.partition(".")[0]
    if module in ("pandas", "polars"):
        # Only Polars: a pandas column can have the name "collect", like the method of a lazy frame.
        source = pandas_source(data) if module == "pandas" else polars_source(_collected(data))
        require_names(source.table.schema.names, "The data frame")
        return source
    if is_stream(data):
        if type(data).__name__ == "FileSystemDataset":
            require_names(data.schema.names, "The dataset")
            return DatasetSource(data)
        stream = _stream(data)
        require_names(stream.schema.names, "The stream")
        return StreamSource(stream, memory, threads)
    raise unsupported_source(data)


def _file_source(paths: Sequence[str | Path], delimiter: str, encoding: str) -> RowSource:
    """Return the source of files, local or in S3."""
    remote = [str(path) for path in paths if str(path).startswith(S3)]
    if not remote:
        files = FileList.create(paths)
        if files.are_csv:
            return CsvFiles(files.paths, files.partitions, delimiter, encoding)
        return ParquetFiles(files.paths, files.partitions)
    if len(remote) < len(paths):
        raise ParameterError("source must not mix S3 and local files; read one kind at a time.")
    return DatasetSource(s3.open_dataset(remote), "The S3 files", "files of S3")


def is_address(source: str) -> bool:
    """Return True if a text is the address of a remote source, not a path."""
    return source.startswith(ADDRESS_SCHEMES)


def is_stream(data: Any) -> bool:
    """Return True if an object is an Arrow stream, dataset or ADBC cursor."""
    return _is_dataset(data) or _is_cursor(data) or hasattr(data, "__arrow_c_stream__")


def _is_dataset(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "pyarrow" and hasattr(data, "scanner")


def _is_cursor(data: Any) -> bool:
    """Return True if an object is an ADBC cursor."""
    module = type(data).__module__.partition(".")[0]
    return module == "adbc_driver_manager" and hasattr(data, "fetch_record_batch")


def _stream(data: Any) -> pa.RecordBatchReader:
    """Return the rows of a stream, with its own exceptions replaced."""
    try:
        with translate_errors("The stream"):
            if _is_dataset(data):
                return data.scanner().to_reader()
            if _is_cursor(data):
                # Unlike other streams of a cursor, this one ends when the cursor closes.
                return data.fetch_record_batch()
            return pa.RecordBatchReader.from_stream(data)
    except DpgrainError:
        raise
    except Exception:
        raise_without_context(incomplete_error("The stream"))


def _collected(frame: Any) -> Any:
    """Return the rows of a lazy frame; replace its exceptions, which can quote a row."""
    if not hasattr(frame, "collect"):
        return frame
    try:
        return frame.collect()
    except Exception:
        raise_without_context(incomplete_error("The data frame"))


def unsupported_source(data: Any) -> ParameterError:
    """Return the error about an object that cannot be read."""
    return ParameterError(
        "source must be a path, folder or glob of Parquet or CSV files, an Arrow table or stream, "
        f"a pandas or Polars data frame or a DuckDB relation, not {type(data).__name__}."
    )


def resolve_address(
    source: Any, source_env: str | None, table: str | None, query: str | None
) -> Any:
    """Open a database at an environment variable's address; return other sources."""
    if source_env is not None:
        if source is not None:
            raise ParameterError(
                "source_env replaces source; pass only one of them.", name="source_env"
            )
        if not isinstance(source_env, str):
            raise ParameterError(
                "source_env must be the name of an environment variable, not "
                f"{_validate.describe(source_env)}.",
                name="source_env",
            )
        source = _address_from_environment(source_env)
    elif isinstance(source, str) and source.startswith(POSTGRES_SCHEMES):
        source = Address(source)
    if isinstance(source, Address):
        return PostgresSource.create(source, table, query)
    for name, value in (("table", table), ("query", query)):
        if value is not None:
            raise ParameterError(
                f"{name} requires a database as source, with an address that begins with "
                "postgresql://; for other databases, pass a cursor of their ADBC driver as "
                "source.",
                name=name,
            )
    if isinstance(source, str) and "://" in source and not is_address(source):
        raise ParameterError(
            f"source begins with {source.partition('://')[0]!r}, which cannot be opened by "
            "its address; pass a cursor of its ADBC driver (cursor.execute(…)), or a pyarrow "
            "dataset.",
            name="source",
        )
    return source


def _address_from_environment(name: str) -> str | Address:
    """Return the address in an environment variable; errors do not show its value."""
    if name not in os.environ:
        raise ParameterError(
            f"source_env is {name!r}, but this environment variable is not set; set it to the "
            "address, such as postgresql://….",
            name="source_env",
        )
    if os.environ[name].startswith(POSTGRES_SCHEMES):
        return Address(os.environ[name])
    if not is_address(os.environ[name]):
        raise ParameterError(
            f"source_env is {name!r}, but this environment variable is not an address; it "
            "must begin with postgresql:// or s3://.",
            name="source_env",
        )
    return os.environ[name]


def source_provenance(data: Any, rows: str | None = None) -> Provenance:
    """Return the provenance of a source's rows; ``rows="as given"`` accepts a query."""
    if rows is not None:
        _validate.one_of(("as given",), rows=rows)
        return "as given"
    known = _known_provenance(data)
    if known is None:
        raise _query_error(data)
    return known


def _known_provenance(data: Any) -> Provenance | None:
    """Return the provenance of a listed source; None for a query."""
    if _is_path(data) or (isinstance(data, Sequence) and data and all(map(_is_path, data))):
        return "table"
    if isinstance(data, PostgresSource):
        return "table" if data.is_table else None
    if isinstance(data, duckdb.DuckDBPyRelation):
        return "table" if data.type == TABLE_RELATION and stores_its_values(data) else None
    if isinstance(data, pa.Table | pa.RecordBatchReader):
        return "as given"
    module = type(data).__module__.partition(".")[0]
    # A pandas column can have the name "collect".
    if module == "pandas":
        return "as given"
    lazy = hasattr(data, "collect") or is_frame(data)
    return "as given" if (module == "polars" or is_stream(data)) and not lazy else None


def _is_path(data: Any) -> bool:
    return isinstance(data, str | os.PathLike)


def _query_error(data: Any) -> ParameterError:
    """Return the error about a source that is not listed."""
    if isinstance(data, PostgresSource):
        return _postgres_query_error(data)
    lazy = hasattr(data, "collect") or is_frame(data)
    if not lazy and not isinstance(data, duckdb.DuckDBPyRelation):
        return unsupported_source(data)
    if not lazy and data.type == TABLE_RELATION:
        return ParameterError(
            f"source {data.alias!r} has generated columns (GENERATED ALWAYS AS), or is in a "
            "database that is not DuckDB's, so one person may affect the data read of others; "
            "copy it (CREATE TABLE … AS FROM …), or pass rows='as given', with which the "
            "guarantee assumes that no person's rows affect those of others.",
            name="source",
        )
    return ParameterError(
        f"source must be a table, not a query ({type(data).__name__}): in a query such as "
        "ORDER BY amount DESC LIMIT 1000, one person's rows can determine which rows of others "
        "are included. Pass its files or con.table('visits'), and use types=, where, "
        "with_cells, with_days and per_user instead of the query; or pass rows='as given', "
        "with which the guarantee assumes that no person's rows affect those of others.",
        name="source",
    )


def _postgres_query_error(source: PostgresSource) -> ParameterError:
    """Return the error about a database query, or about a name that is not a base table."""
    what = (
        "query is not a base table"
        if source.table is None
        else f"table {source.table!r} is not a base table (it is a view or a foreign table, "
        "row security hides rows of it, or it has generated columns)"
    )
    return ParameterError(
        f"{what}, so one person's rows may affect the rows of others; pass the table itself "
        "with where, types=, with_cells and per_user, or pass rows='as given', with which the "
        "guarantee assumes that no person's rows affect those of others.",
        name="query" if source.table is None else "table",
    )
