"""Arguments of :func:`dpgrain.read`: the source of what is passed, and where its rows come from.

Both lists are closed. What :func:`_known` does not list is a query: one user's rows may determine the
rows of others.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from dpgrain import _validate
from dpgrain._later import later
from dpgrain.errors import DpgrainError, ParameterError, raise_alone
from dpgrain.provenance import Provenance
from dpgrain.tables.engines.spark_session import is_frame
from dpgrain.tables.sources.column_names import require_names
from dpgrain.tables.sources.csv_files import CsvFiles
from dpgrain.tables.sources.folders import FileList
from dpgrain.tables.sources.frames import ArrowSource, pandas_columns, polars_columns, valid_texts
from dpgrain.tables.sources.parquet_files import ParquetFiles
from dpgrain.tables.sources.postgres import POSTGRES, Address, PostgresSource
from dpgrain.tables.sources.read_errors import incomplete_error, translate_errors
from dpgrain.tables.sources.relations import TABLE_RELATION, RelationSource, stores_its_values
from dpgrain.tables.sources.source import RowSource
from dpgrain.tables.sources.streams import DatasetSource, StreamSource

if TYPE_CHECKING:
    from dpgrain.tables.sources import s3
else:
    s3 = later("dpgrain.tables.sources.s3")

S3 = "s3://"
#: Beginnings of addresses.
ADDRESS_SCHEMES = (S3, *POSTGRES)


def resolve_source(
    data: Any, *, delimiter: str = ",", memory: int = 10**9, threads: int = 1
) -> RowSource:
    """Return the source for a path, folder, glob, list of these, Arrow table or stream, or frame.

    Args:
        data: what is passed.
        delimiter: the character between values of CSV.
        memory: bytes of working memory.
        threads: threads that may compute.

    Raises:
        ParameterError: if it is none of these, or nothing that can stand between values.
        DataError: if no such file exists.
    """
    is_text = isinstance(delimiter, str)
    if not (is_text and len(delimiter) == 1 and delimiter.isascii() and delimiter not in '\0\n\r"'):
        raise ParameterError(
            "delimiter must be one ASCII character other than a quote or line break, not "
            f"{_validate.said(delimiter)}."
        )
    if isinstance(data, PostgresSource):
        return data
    if isinstance(data, str | Path):
        return _at([data], delimiter)
    if isinstance(data, Sequence) and data and all(isinstance(p, str | Path) for p in data):
        return _at(data, delimiter)
    if isinstance(data, duckdb.DuckDBPyRelation):
        require_names(data.columns, "The relation")
        return RelationSource(data)
    if isinstance(data, pa.Table):
        require_names(data.schema.names, "The table")
        return ArrowSource(valid_texts(data))
    module = type(data).__module__.partition(".")[0]
    if module in ("pandas", "polars"):
        # A column of a frame of pandas may be called "collect", as the method of a lazy frame is.
        columns = pandas_columns(data) if module == "pandas" else polars_columns(_collected(data))
        require_names(columns.table.schema.names, "The data frame")
        return ArrowSource(columns.table, "The data frame", unread=columns.unread)
    if is_stream(data):
        if type(data).__name__ == "FileSystemDataset":
            require_names(data.schema.names, "The dataset")
            return DatasetSource(data)
        stream = _stream(data)
        require_names(stream.schema.names, "The stream")
        return StreamSource(stream, memory, threads)
    raise unsupported_source(data)


def _at(places: Sequence[str | Path], delimiter: str) -> RowSource:
    """Return the source of files at some places."""
    far = [str(place) for place in places if str(place).startswith(S3)]
    if not far:
        files = FileList.of(places)
        if files.are_csv:
            return CsvFiles(files.paths, files.partitions, delimiter)
        return ParquetFiles(files.paths, files.partitions)
    if len(far) < len(places):
        raise ParameterError("source must not mix S3 and local files; read one kind at a time.")
    return DatasetSource(s3.open_dataset(far), "The S3 files", "files of S3")


def is_address(place: str) -> bool:
    """Return whether a text is the address of what lies elsewhere, and no path.

    Args:
        place: the text.

    >>> is_address("s3://bucket/visits"), is_address("visits.parquet")
    (True, False)
    """
    return place.startswith(ADDRESS_SCHEMES)


def is_stream(data: Any) -> bool:
    """Return whether something hands out its rows as a stream of Arrow's, or is a dataset of pyarrow's.

    Args:
        data: anything, such as an expression of Ibis or a cursor of ADBC.

    >>> is_stream(pa.table({"x": [1]}).to_reader()), is_stream([1])
    (True, False)
    """
    return _is_dataset(data) or _is_cursor(data) or hasattr(data, "__arrow_c_stream__")


def _is_dataset(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "pyarrow" and hasattr(data, "scanner")


def _is_cursor(data: Any) -> bool:
    """Return whether something is a cursor of ADBC, which hands out what its query answers."""
    module = type(data).__module__.partition(".")[0]
    return module == "adbc_driver_manager" and hasattr(data, "fetch_record_batch")


def _stream(data: Any) -> pa.RecordBatchReader:
    """Return the rows of a stream; whatever its maker raises becomes one sentence."""
    try:
        with translate_errors("The stream"):
            if _is_dataset(data):
                return data.scanner().to_reader()
            if _is_cursor(data):
                # A cursor ends this one as it closes; others would read what is there no more.
                return data.fetch_record_batch()
            return pa.RecordBatchReader.from_stream(data)
    except DpgrainError:
        raise
    except Exception:
        raise_alone(incomplete_error("The stream"))


def _collected(frame: Any) -> Any:
    """Return the rows of a lazy frame; a frame is returned as it is.

    Whatever a caller's query raises becomes one sentence: its own text may quote a row.
    """
    if not hasattr(frame, "collect"):
        return frame
    try:
        return frame.collect()
    except Exception:
        raise_alone(incomplete_error("The data frame"))


def unsupported_source(data: Any) -> ParameterError:
    """Return the error about something that is no source."""
    return ParameterError(
        "source must be a path, folder or glob of Parquet or CSV files, an Arrow table or stream, a "
        f"pandas or Polars data frame or a DuckDB relation, not {type(data).__name__}."
    )


def resolve_address(
    source: Any, source_env: str | None, table: str | None, query: str | None
) -> Any:
    """Return what is passed, with an address from the environment, and a database opened.

    Args:
        source: what is passed, or None.
        source_env: the variable of the environment that holds the address.
        table: the table of a database.
        query: the query of one.

    Raises:
        ParameterError: if these do not fit together.
        DpgrainError: if a database cannot be opened.
    """
    if source_env is not None:
        if source is not None:
            raise ParameterError(
                "source_env replaces source; pass only one of them.", name="source_env"
            )
        if not isinstance(source_env, str):
            raise ParameterError(
                "source_env must be the name of an environment variable, not "
                f"{_validate.said(source_env)}.",
                name="source_env",
            )
        source = _in_environment(source_env)
    elif isinstance(source, str) and source.startswith(POSTGRES):
        source = Address(source)
    if isinstance(source, Address):
        return PostgresSource.of(source, table, query)
    for name, stated in (("table", table), ("query", query)):
        if stated is not None:
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


def _in_environment(name: str) -> str | Address:
    """Return the address that a variable of the environment holds; what it holds is not shown.

    Raises:
        ParameterError: if there is no such variable, or it holds none.
    """
    if name not in os.environ:
        raise ParameterError(
            f"source_env is {name!r}, but this environment variable is not set; set it to the "
            "address, such as postgresql://….",
            name="source_env",
        )
    if os.environ[name].startswith(POSTGRES):
        return Address(os.environ[name])
    if not is_address(os.environ[name]):
        raise ParameterError(
            f"source_env is {name!r}, but this environment variable is not an address; it "
            "must begin with postgresql:// or s3://.",
            name="source_env",
        )
    return os.environ[name]


def provenance_of(data: Any, rows: str | None = None) -> Provenance:
    """Return where the rows of a source come from.

    Args:
        data: the source, as it is passed to :func:`dpgrain.read`.
        rows: ``"as given"`` where the caller states that the rows are as a query made them.

    Raises:
        ParameterError: if the source is a query and this is not stated, or it is nothing to read.

    >>> import duckdb
    >>> provenance_of("visits.parquet"), provenance_of(duckdb.sql("SELECT 1 AS who"), "as given")
    ('table', 'as given')
    """
    if rows is not None:
        _validate.one_of(("as given",), rows=rows)
        return "as given"
    known = _known(data)
    if known is None:
        raise _refused(data)
    return known


def _known(data: Any) -> Provenance | None:
    """Return the provenance of a source that is no query; None for any other."""
    if _is_path(data) or (isinstance(data, Sequence) and data and all(map(_is_path, data))):
        return "table"
    if isinstance(data, PostgresSource):
        return "table" if data.is_table else None
    if isinstance(data, duckdb.DuckDBPyRelation):
        return "table" if data.type == TABLE_RELATION and stores_its_values(data) else None
    if isinstance(data, pa.Table | pa.RecordBatchReader):
        return "as given"
    module = type(data).__module__.partition(".")[0]
    # A column of a data frame of pandas may be called "collect".
    if module == "pandas":
        return "as given"
    lazy = hasattr(data, "collect") or is_frame(data)
    return "as given" if (module == "polars" or is_stream(data)) and not lazy else None


def _is_path(data: Any) -> bool:
    return isinstance(data, str | os.PathLike)


def _refused(data: Any) -> ParameterError:
    """Return the error about a source that is not listed, which is the same for every query."""
    if isinstance(data, PostgresSource):
        return _refused_of_postgres(data)
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


def _refused_of_postgres(source: PostgresSource) -> ParameterError:
    """Return the error about a query, or about a name of a database that is no table as it stands."""
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
