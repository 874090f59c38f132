"""CSV files as a source: malformed rows are dropped, one by one, and no type is guessed.

DuckDB reads a copy of a file with rows that it would misread
(:mod:`~dpgrain.tables.sources.csv_rows`).
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb

from dpgrain._progress import step
from dpgrain.errors import DataError, SchemaError, raise_without_context
from dpgrain.tables.engines.memory import COPIES
from dpgrain.tables.engines.sql import file_list, literal, quoted
from dpgrain.tables.sources.column_names import delimiter_hint, require_names
from dpgrain.tables.sources.column_types import TEXT
from dpgrain.tables.sources.csv_rows import (
    MAX_ROW_BYTES,
    UTF8,
    MalformedLines,
    QuoteNormalizer,
    RowSplitter,
    drop_spans,
    find_malformed,
    read_pieces,
)
from dpgrain.tables.sources.duckdb_connection import spill_path, translate_errors, unwritable_error
from dpgrain.tables.sources.files import FileCache, FileSource, Schemas, file_state

# Environment variable that hides advice, and the files about which this process has given it.
_QUIET, _advised = "DPGRAIN_QUIET", set[str]()
#: True while files are read in order to be checked, so that advice to do this is hidden.
checking: ContextVar[bool] = ContextVar("checking", default=False)
# Bytes of DuckDB's buffer, twice the longest row: DuckDB drops a row that does not fit and resumes
# at an arbitrary place.
_BUFFER_BYTES = 2 * MAX_ROW_BYTES


@dataclass(frozen=True)
class CsvFaults:
    """Malformed lines of CSV files, for internal use only."""

    rejected: Mapping[str, int]  # DuckDB's name of a fault → dropped lines
    longer: int
    inside: int
    too_long: int
    broken: int


@dataclass(frozen=True)
class CsvFiles(FileSource):
    """CSV files. All columns are text, because guessed types could depend on one row.

    A row with too few values, invalid bytes, more than 8 MiB or ambiguous quotes is dropped without
    an effect on other rows.
    """

    delimiter: str = ","
    encoding: str = UTF8

    def advise(self) -> None:
        """Advise to check the files, once per process and file, whatever their rows are."""
        if self.paths[0] in _advised or os.environ.get(_QUIET) or checking.get():
            return
        _advised.update(self.paths)
        print(
            f"{self.title}: read as {self.encoding.upper()} (encoding=, --encoding). Lines in another "
            "encoding and values that cannot be read are dropped silently, and groups that occur "
            "only there are missing; count them once with table.check() or --check, for internal "
            "use only.",
            file=sys.stderr,
        )

    @cached_property
    def _malformed_lines(self) -> FileCache[MalformedLines]:
        return FileCache(lambda path: find_malformed(self.pieces(path), self.delimiter))

    def pieces(self, path: str) -> Iterator[bytes]:
        """Yield the text of a file as UTF-8 bytes."""
        return read_pieces(path, self.encoding)

    def _header(self, path: str) -> list[str]:
        return read_header(path, self.delimiter, self.encoding)

    def _schemas(self) -> Schemas:
        headers = {path: tuple(self._header(path)) for path in self.paths}
        # The file with an unusual header is probably wrong, even if it is the first one.
        ((usual, count),) = Counter(headers.values()).most_common(1)
        if count < len(headers):
            like = next(path for path, header in headers.items() if header == usual)
            other = next(path for path, header in headers.items() if header != usual)
            raise SchemaError(
                f"The file {other!r} must have the same columns as {like!r}; use the same header in "
                "every file."
            )
        return {path: dict.fromkeys(usual, TEXT) for path in self.paths}

    def _file_columns(self, path: str) -> Iterable[str]:
        return self._header(path)

    def _open_files(
        self, connection: duckdb.DuckDBPyConnection, columns: Mapping[str, str], schemas: Schemas
    ) -> dict[str, tuple[str, dict[str, str]]]:
        files = zip(self.paths, self._readable(connection), strict=True)
        return {
            path: (file, {name: quoted(name) for name in schemas[path] if name in columns})
            for path, file in files
        }

    def _reader(self, files: Sequence[str], *, folders: bool = False) -> str:  # noqa: ARG002
        return csv_reader(self._header(self.paths[0]), files, self.delimiter)

    @property
    def _malformed(self) -> list[MalformedLines]:
        """Malformed lines of each file."""
        step("checking for malformed rows")
        result = [self._malformed_lines.get(path) for path in self.paths]
        for path, malformed in zip(self.paths, result, strict=True):
            if malformed.long_rows and malformed.long_rows[0][0] == 0:
                raise SchemaError(
                    f"The first line of the file {path!r}, which must contain the column "
                    f"names, is longer than {MAX_ROW_BYTES:,} bytes; check for an unclosed "
                    "quote."
                )
        return result

    def _readable(self, connection: duckdb.DuckDBPyConnection) -> list[str]:
        """Return the files, or copies that DuckDB reads row by row."""
        result = []
        for path, malformed in zip(self.paths, self._malformed, strict=True):
            if not malformed and self.encoding == UTF8:
                result.append(path)
                continue
            state = (path, file_state(path), self.encoding)
            name = hashlib.sha256(repr(state).encode()).hexdigest()
            ending = ".csv.gz" if path.lower().endswith(".gz") else ".csv"
            copy = spill_path(connection) / f"{COPIES}{name}{ending}"
            if not copy.exists():
                try:
                    _write(self._repaired(path, malformed, QuoteNormalizer(self.delimiter)), copy)
                except OSError as error:
                    # The scan has read the whole file already, so only writing can have failed.
                    raise unwritable_error(self.name) from error
            result.append(str(copy))
        return result

    def _repaired(
        self, path: str, malformed: MalformedLines, normalizer: QuoteNormalizer
    ) -> Iterator[bytes]:
        """Yield the bytes of a file without rows that DuckDB would misread."""
        pieces = drop_spans(self.pieces(path), malformed.long_rows)
        return normalizer.rows(pieces) if malformed.irregular_quotes else pieces

    def repaired(self) -> Iterator[Iterator[bytes]]:
        """Yield the bytes of each file as DuckDB reads it."""
        for path, malformed in zip(self.paths, self._malformed, strict=True):
            yield self._repaired(path, malformed, QuoteNormalizer(self.delimiter))

    def _count_broken(self) -> int:
        """Count the rows dropped because of ambiguous quotes."""
        result = 0
        for path, malformed in zip(self.paths, self._malformed, strict=True):
            normalizer = QuoteNormalizer(self.delimiter)
            for _ in self._repaired(path, malformed, normalizer):
                pass
            result += normalizer.dropped
        return result

    def faults(self, connection: duckdb.DuckDBPyConnection) -> CsvFaults:
        """Count malformed lines: for internal use only, and slow."""
        columns = self._header(self.paths[0])
        # Read every column, because DuckDB reports no faults of others.
        inside = " + ".join(
            f"coalesce(sum(length({name}) - length(replace({name}, chr(10), ''))), 0)"
            for name in map(quoted, columns)
        )
        surplus = "surplus"
        while surplus.casefold() in map(str.casefold, columns):
            surplus += "'"
        paths = self._readable(connection)
        stored = csv_reader(columns, paths, self.delimiter, ", store_rejects=true")
        padded = csv_reader([*columns, surplus], paths, self.delimiter, ", null_padding=true")
        with translate_errors(self.name):
            ((breaks,),) = connection.execute(f"SELECT {inside} FROM {stored}").fetchall()
            rejected = connection.execute(
                "SELECT error_type::VARCHAR, count(DISTINCT (file_id, line)) FROM reject_errors "
                "GROUP BY 1 ORDER BY 1"
            ).fetchall()
            ((longer,),) = connection.execute(
                f"SELECT count({quoted(surplus)}) FROM {padded}"
            ).fetchall()
        too_long = sum(len(malformed.long_rows) for malformed in self._malformed)
        rejects = {kind: int(lines) for kind, lines in rejected}
        return CsvFaults(rejects, int(longer), int(breaks), too_long, self._count_broken())


def csv_reader(
    columns: Iterable[str], paths: Sequence[str], delimiter: str = ",", options: str = ""
) -> str:
    """Return the SQL of DuckDB's CSV reader, which drops malformed lines.

    One thread reads a file from its beginning, because the middle may be inside quotes. A carriage
    return ends a line: guessed line ends could cost the next row its first character.
    """
    raw = ", ".join(f"{literal(column)}: 'VARCHAR'" for column in columns)
    return (
        f"read_csv({file_list(paths)}, auto_detect=false, header=true, "
        f"delim={literal(delimiter)}, quote='\"', escape='\"', columns={{{raw}}}, "
        "ignore_errors=true, strict_mode=false, parallel=false, new_line='\\n', "
        f"buffer_size={_BUFFER_BYTES}, max_line_size={_BUFFER_BYTES}{options})"
    )


def read_header(path: str, delimiter: str, encoding: str = UTF8) -> list[str]:
    """Return the column names in the first line of a CSV file."""
    try:
        # Only the first line is shown in errors: the others belong to users.
        line = _first_line(read_pieces(path, encoding))
        header = next(csv.reader([line.decode()], delimiter=delimiter), [])
    except (OSError, UnicodeError, csv.Error):
        # A UnicodeError contains the line, which is a row if the file has no header.
        raise_without_context(
            DataError(
                f"The file {path!r} cannot be read; check that it is {encoding.upper()} text, or pass "
                "another encoding=."
            )
        )
    splitter = RowSplitter(delimiter)
    if splitter.ends(line + b"\n")[0] < 0 or splitter.irregular:
        remedy = "put quotes around whole names, and double the quotes inside"
        if delimiter not in line.decode() and (hint := delimiter_hint(line.decode())):
            remedy = hint
        raise SchemaError(
            f"The first line of the file {path!r}, which must contain the column names, has a "
            f"misplaced quote; {remedy}."
        )
    if not header:
        raise SchemaError(
            f"The file {path!r} is empty; its first line must contain the column names."
        )
    require_names(header, f"The file {path!r}")
    return header


def _first_line(pieces: Iterable[bytes]) -> bytes:
    """Return the first line of a file, without its end."""
    line = b""
    for piece in pieces:
        line += piece
        ends = [index for index in (line.find(b"\n"), line.find(b"\r")) if index >= 0]
        if ends:
            return line[: min(ends)]
        if len(line) > MAX_ROW_BYTES:
            break
    return line


def _write(pieces: Iterable[bytes], copy: Path) -> None:
    """Write the bytes of a file, compressed if its name ends in .gz."""
    with ExitStack() as stack:
        file: Any = stack.enter_context(copy.open("wb"))
        if copy.suffix == ".gz":
            file = stack.enter_context(gzip.open(file, "wb", compresslevel=1))
        for piece in pieces:
            file.write(piece)
