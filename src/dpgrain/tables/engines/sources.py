"""The sources that a table is read from: files, Arrow tables, data frames, DuckDB relations.

A source tells its columns and hands DuckDB something to select from, as often as asked; nothing is
loaded before a release needs it.
"""

from __future__ import annotations

import csv
import glob
import gzip
import itertools
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol

import duckdb
import numpy as np
import pyarrow as pa

from dpgrain._progress import step
from dpgrain._wording import first_repeated, named_like
from dpgrain.errors import DataError, DpgrainError, ParameterError, SchemaError
from dpgrain.inputs.labels import cell_text
from dpgrain.tables.engines.csv_rows import (
    LONGEST_BYTES,
    Mender,
    Oddities,
    Splitter,
    oddities,
    parts,
    without,
)
from dpgrain.tables.engines.spill import COPIES
from dpgrain.tables.engines.sql import quoted, text, tried

# Headers of CSV files may have these marks between columns, where it is not a comma.
_MARKS = (";", "\t", "|")
_PARQUET = (".parquet", ".pq")
#: Files with these endings are CSV.
CSV = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
# DuckDB holds this many bytes of a CSV file at a time. No row comes near that length: DuckDB would drop
# a longer row, and not know where the next one begins.
_BUFFER_BYTES = 2 * LONGEST_BYTES
_counter = itertools.count()


class Source(Protocol):
    """The place that rows come from."""

    @property
    def name(self) -> str:
        """The name that messages and reports give the source."""

    @property
    def title(self) -> str:
        """The name in reports, without the folder, which is nobody's business."""

    def columns(self) -> dict[str, str]:
        """Return column name → DuckDB type, from the schema alone."""

    def attach(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Return SQL to put after FROM, good for one query."""


class OverSource:
    """What a source that is made of another one has of that."""

    source: Source

    @property
    def name(self) -> str:
        """The name that messages and reports give the source."""
        return self.source.name

    @property
    def title(self) -> str:
        """The name in reports."""
        return self.source.title

    @property
    def paths(self) -> tuple[str, ...]:
        """The files of the source, if it has any."""
        return getattr(self.source, "paths", ())

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        return self.source.columns()


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn DuckDB's exceptions into one sentence; their own text may quote rows and is not shown."""
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise DataError(
            f"{name} needs more memory or spill space than allowed; raise memory= in dg.read, "
            "or free disk space in the temporary folder (TMPDIR)."
        ) from error
    except duckdb.IOException as error:
        if any(word in str(error).lower() for word in ("no space", "disk", "write", "temp")):
            raise _unwritable(name) from error
        raise DataError(
            f"{name} cannot be read; check that it exists, is readable and is a whole file."
        ) from error
    except DpgrainError:
        raise
    except (duckdb.InterruptException, RuntimeError) as error:
        if "interrupt" in str(error).lower():
            raise KeyboardInterrupt from None
        raise
    except (duckdb.Error, pa.ArrowException, OSError):
        # A stream of batches raises Arrow's exceptions, or OSError.
        raise _broken_off(name) from None


def _broken_off(name: str) -> DataError:
    return DataError(
        f"{name} cannot be read to its end; check that every file is whole, or that the query "
        "that it comes from runs to its end."
    )


def _unwritable(name: str) -> DataError:
    return DataError(
        f"The spill folder for {name} cannot be written; free disk space, or point TMPDIR "
        "to a disk with room."
    )


@dataclass(frozen=True)
class FileSource:
    """Parquet or CSV files; all columns of CSV are text.

    Guessing types from rows would make the result's form depend on one person's row. A row of CSV that
    has too few values, is not UTF-8, is longer than 8 MiB or has quotes that can mean several things is
    left out by itself.
    """

    paths: tuple[str, ...]
    delimiter: str = ","

    @property
    def name(self) -> str:
        """The file, or the first of several."""
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"The file {self.paths[0]!r}{more}"

    @property
    def title(self) -> str:
        """The file's name, or the first of several."""
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"{Path(self.paths[0]).name}{more}"

    @property
    def is_csv(self) -> bool:
        """True if the files are CSV."""
        return self.paths[0].lower().endswith(CSV)

    def columns(self) -> dict[str, str]:
        """Return column name → type, from the Parquet footer or the CSV header."""
        if self.is_csv:
            header = _csv_header(self.paths[0], self.delimiter)
            for path in self.paths[1:]:
                if _csv_header(path, self.delimiter) != header:
                    raise SchemaError(
                        f"The file {path!r} has other columns than {self.paths[0]!r}; "
                        "give every file the same header."
                    )
            return dict.fromkeys(header, "VARCHAR")
        own = [kinds for _, kinds in self._schemas]
        if len(own) == 1:
            return dict(own[0])
        return {column: _widest([kinds[column] for kinds in own]) for column in own[0]}

    @cached_property
    def _schemas(self) -> list[tuple[list[str], dict[str, str]]]:
        """The Parquet files by their footers: files that agree, and their columns with their types.

        One file's types must not be forced on another: the first value that does not fit would end the
        release, and be quoted.
        """
        found: list[tuple[list[str], dict[str, str]]] = []
        with reading(self.name), _schema_reader() as connection:
            for path in self.paths:
                kinds = _described(connection, _parquet([path]))
                if not found:
                    found.append(([path], kinds))
                    continue
                # Files may hold more columns in another order; capital letters make no difference.
                folded = {column.casefold(): kind for column, kind in kinds.items()}
                lacking = [column for column in found[0][1] if column.casefold() not in folded]
                if lacking:
                    raise SchemaError(
                        f"The file {path!r} lacks the column {lacking[0]!r} of {self.paths[0]!r}; "
                        "give every file the same columns."
                    )
                own = {column: folded[column.casefold()] for column in found[0][1]}
                same = next((files for files, known in found if known == own), None)
                if same is None:
                    found.append(([path], own))
                else:
                    same.append(path)
        return found

    @cached_property
    def _oddities(self) -> list[Oddities]:
        """What DuckDB must not see of each CSV file."""
        step("looking for odd rows")
        with reading(self.name):
            found = [oddities(parts(path), self.delimiter) for path in self.paths]
        for path, odd in zip(self.paths, found, strict=True):
            if odd.long_rows and odd.long_rows[0][0] == 0:
                raise SchemaError(
                    f"The first line of the file {path!r}, which must name the columns, is longer than "
                    f"{LONGEST_BYTES:,} bytes; does it open a quote?"
                )
        return found

    def attach(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Return a table function over the files; of CSV with odd rows, over copies without these.

        The copies lie in the folder that the connection spills into, and go with it.
        """
        if self.is_csv:
            return self._csv(self.columns(), self._readable(connection))
        schemas, columns = self._schemas, self.columns()
        if len(schemas) == 1:
            return _parquet(self.paths)
        return f"({' UNION ALL '.join(_as(columns, *each) for each in schemas)})"

    def _readable(self, connection: duckdb.DuckDBPyConnection) -> list[str]:
        """Return the CSV files, or copies of them, in which DuckDB reads each row by itself."""
        folder = connection.execute("SELECT current_setting('temp_directory')").fetchall()[0][0]
        found = []
        for place, (path, odd) in enumerate(zip(self.paths, self._oddities, strict=True)):
            copy = (
                Path(folder) / f"{COPIES}{place}.csv{'.gz' if path.lower().endswith('.gz') else ''}"
            )
            if odd and not copy.exists():
                try:
                    _write(self._mended(path, odd, Mender(self.delimiter)), copy)
                except OSError as error:
                    # The scan has read the whole file already, so only writing can have failed.
                    raise _unwritable(self.name) from error
            found.append(str(copy) if odd else path)
        return found

    @staticmethod
    def _mended(path: str, odd: Oddities, mender: Mender) -> Iterator[bytes]:
        """Yield the bytes of a CSV file without what DuckDB must not see."""
        pieces = without(parts(path), odd.long_rows)
        return mender.rows(pieces) if odd.odd_quotes else pieces

    def kept(self) -> Iterator[Iterator[bytes]]:
        """Yield the bytes of each CSV file without the rows that are left out before it is read."""
        for path, odd in zip(self.paths, self._oddities, strict=True):
            yield self._mended(path, odd, Mender(self.delimiter))

    def _broken(self) -> int:
        """Count the rows that are left out because nobody can tell what their quotes mean."""
        found = 0
        for path, odd in zip(self.paths, self._oddities, strict=True):
            mender = Mender(self.delimiter)
            for _ in self._mended(path, odd, mender):
                pass
            found += mender.left_out
        return found

    def _csv(self, columns: Iterable[str], paths: Sequence[str], more: str = "") -> str:
        """Return the reader of CSV, which drops a line that it cannot read and never fails on one.

        One thread reads a file from its beginning: another that began in the middle would have to
        guess whether it is inside quotes. A carriage return ends a line, with a line feed or without;
        were the ends of lines guessed, a single one would cost the next row its first letter.
        """
        raw = ", ".join(f"{text(column)}: 'VARCHAR'" for column in columns)
        return (
            f"read_csv({_listed(paths)}, auto_detect=false, header=true, "
            f"delim={text(self.delimiter)}, quote='\"', escape='\"', columns={{{raw}}}, "
            "ignore_errors=true, strict_mode=false, parallel=false, new_line='\\n', "
            f"buffer_size={_BUFFER_BYTES}, max_line_size={_BUFFER_BYTES}{more})"
        )

    def faults(self, connection: duckdb.DuckDBPyConnection) -> Faults:
        """Count the faults of lines of CSV files: for the curator only, and slow."""
        columns = list(self.columns())
        # Every column is read, or the faults of one would not be seen.
        inside = " + ".join(
            f"coalesce(sum(length({name}) - length(replace({name}, chr(10), ''))), 0)"
            for name in map(quoted, columns)
        )
        surplus = "surplus"
        while surplus.casefold() in map(str.casefold, columns):
            surplus += "'"
        padded = ", null_padding=true"
        paths = self._readable(connection)
        with reading(self.name):
            ((breaks,),) = connection.execute(
                f"SELECT {inside} FROM {self._csv(columns, paths, ', store_rejects=true')}"
            ).fetchall()
            rejected = connection.execute(
                "SELECT error_type::VARCHAR, count(DISTINCT (file_id, line)) FROM reject_errors "
                "GROUP BY 1 ORDER BY 1"
            ).fetchall()
            ((longer,),) = connection.execute(
                f"SELECT count({quoted(surplus)}) FROM {self._csv([*columns, surplus], paths, padded)}"
            ).fetchall()
        too_long = sum(len(odd.long_rows) for odd in self._oddities)
        rejects = {kind: int(lines) for kind, lines in rejected}
        return Faults(rejects, int(longer), int(breaks), too_long, self._broken())


def _write(pieces: Iterable[bytes], copy: Path) -> None:
    """Write the bytes of a file; one whose name says so is packed."""
    with ExitStack() as stack:
        file: Any = stack.enter_context(copy.open("wb"))
        if copy.suffix == ".gz":
            file = stack.enter_context(gzip.open(file, "wb", compresslevel=1))
        for piece in pieces:
            file.write(piece)


def _listed(paths: Sequence[str]) -> str:
    """Return the SQL of a list of files, whose names are no patterns."""
    return "[" + ", ".join(text(glob.escape(path)) for path in paths) + "]"


def _parquet(paths: Sequence[str]) -> str:
    """Return the SQL of Parquet files of one schema."""
    # Types guessed from the names of folders would change with one of them, and bytes that are no UTF-8
    # would end the release.
    return f"read_parquet({_listed(paths)}, hive_partitioning=false{_lenient()})"


@cache
def _lenient() -> str:
    """Return the option that has DuckDB replace bytes that are no UTF-8; older versions have none."""
    with _schema_reader() as connection:
        found = connection.sql(
            "SELECT parameters FROM duckdb_functions() WHERE function_name = 'read_parquet'"
        ).fetchall()
    known = any("utf8_validation" in options for (options,) in found)
    return ", utf8_validation='replace'" if known else ""


def _as(columns: Mapping[str, str], paths: Sequence[str], kinds: Mapping[str, str]) -> str:
    """Return the SQL of files whose columns have these types, as columns of wider ones."""
    listed = ", ".join(
        f"{_wider(column, kinds[column], kind)} AS {quoted(column)}"
        for column, kind in columns.items()
    )
    return f"SELECT {listed} FROM {_parquet(paths)}"


def _wider(column: str, kind: str, wider: str) -> str:
    if kind == wider:
        return quoted(column)
    # Nothing can use a column whose types have no type in common.
    return "NULL" if wider.startswith("UNION") else f"TRY_CAST({quoted(column)} AS {wider})"


# These are types of numbers, from narrow to wide; those up to BIGINT fit into it.
_WHOLE = ("TINYINT", "UTINYINT", "SMALLINT", "USMALLINT", "INTEGER", "UINTEGER", "BIGINT")
_HUGE = ("UBIGINT", "HUGEINT")
_REAL = ("FLOAT", "DOUBLE")
# Values of these types have one text each, as whole numbers have.
_TEXTS = ("VARCHAR", "DATE", "UUID", "ENUM")


def _widest(kinds: Sequence[str]) -> str:
    """Return the type of a column that files hold with these types, as a function of schemas alone.

    Whole numbers have the widest type of whole numbers, other numbers DOUBLE, and types of several
    kinds whose values have one text each are text. Others have none in common, and nothing takes their
    union: 7, 7.0 and 7.00 are one number but would be three texts, and so are times and truths.

    >>> _widest(["INTEGER", "BIGINT"]), _widest(["BIGINT", "DOUBLE"]), _widest(["BIGINT", "VARCHAR"])
    ('BIGINT', 'DOUBLE', 'VARCHAR')
    """
    # A column of nulls in one file fits to any.
    known = [kind for kind in dict.fromkeys(kinds) if kind != '"NULL"'] or list(kinds[:1])
    if len(known) == 1:
        return known[0]
    if all(kind in _WHOLE for kind in known):
        return "BIGINT"
    if all(kind in (*_WHOLE, *_HUGE) for kind in known):
        return "HUGEINT"
    numbers = [kind in (*_WHOLE, *_HUGE, *_REAL) or kind.startswith("DECIMAL") for kind in known]
    if all(numbers):
        return "DOUBLE"
    if all(kind in (*_WHOLE, *_HUGE, *_TEXTS) for kind in known):
        return "VARCHAR"
    return f"UNION of {' and '.join(known)}"


@dataclass(frozen=True)
class Faults:
    """The faults of the lines of CSV files; private.

    Args:
        rejected: fault, as DuckDB calls it → lines that are left out for it.
        longer: lines with more values than there are columns.
        inside: ends of lines inside values.
        too_long: rows that are left out because they are too long.
        broken: rows that are left out because their quotes are broken.
    """

    rejected: Mapping[str, int]
    longer: int
    inside: int
    too_long: int
    broken: int


@dataclass(frozen=True, eq=False)
class TypedSource(OverSource):
    """A source of which some columns of text are read as another type; what does not fit is a null.

    Args:
        source: the source.
        types: column → type, as DuckDB spells it.
        decimal: the mark before the decimals of a number in text: a point, or a comma.
    """

    source: Source
    types: Mapping[str, str]
    decimal: str = "."

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        return {**self.source.columns(), **self.types}

    def attach(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Return the columns in their stated types."""
        stated = ", ".join(
            f"{tried(column, kind, self.decimal)} AS {quoted(column)}"
            for column, kind in self.types.items()
        )
        return f"(SELECT * REPLACE ({stated}) FROM {self.source.attach(connection)})"


def typed(source: Source, types: Mapping[str, str] | None, decimal: str = ".") -> Source:
    """Return the source with the types that are stated for columns of text.

    Raises:
        SchemaError: if it has no such column, or one that is not text.
        ParameterError: if a type is unknown, or the decimal mark is.
    """
    if decimal not in (".", ","):
        raise ParameterError(f"decimal must be '.' or ',', not {decimal!r}.", name="decimal")
    if not types:
        return source
    columns = source.columns()
    stated = {}
    for column, kind in types.items():
        if column not in columns:
            raise SchemaError(
                f"types names column {column!r}, which is not there; "
                f"{named_like(column, list(columns))}.",
                name="types",
            )
        stated[column] = _sql_type(column, kind)
        if columns[column] not in ("VARCHAR", "ENUM", stated[column]):
            raise SchemaError(
                f"types gives column {column!r} the type {kind!r}, but it has type "
                f"{columns[column]} already; leave it out of types.",
                name="types",
            )
    changed = {column: kind for column, kind in stated.items() if columns[column] != kind}
    return TypedSource(source, changed, decimal) if changed else source


@dataclass(frozen=True, eq=False)
class ArrowSource:
    """An Arrow table in memory."""

    table: pa.Table
    name: str = "The table"
    title: str = "a table in memory"

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        with reading(self.name), _schema_reader() as connection:
            return _described(connection, self.attach(connection))

    def attach(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Register the table, and return its name."""
        return _register(connection, self.table)


@dataclass(frozen=True, eq=False)
class RelationSource:
    """A DuckDB relation on a connection of the caller's; each query runs it again."""

    relation: duckdb.DuckDBPyRelation
    name: str = "The relation"
    title: str = "a DuckDB relation"

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        types = (_public_type(str(kind)) for kind in self.relation.types)
        return dict(zip(self.relation.columns, types, strict=True))

    def attach(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Register a fresh stream of the rows, and return its name."""
        with reading(self.name):
            return _register(connection, self.relation.to_arrow_reader(1 << 17))


def source_of(data: Any, *, delimiter: str = ",") -> Source:
    """Return the source for a path, glob, list of paths, Arrow table, data frame or DuckDB relation.

    Raises:
        ParameterError: if it is none of these, or nothing that can stand between values.
        DataError: if no such file exists.
    """
    if not (len(delimiter) == 1 and delimiter.isascii() and delimiter not in '\0\n\r"'):
        raise ParameterError(
            f"delimiter must be one ASCII character, and no quote or end of a line, not {delimiter!r}."
        )
    if isinstance(data, str | Path):
        return FileSource(_paths([data]), delimiter)
    if isinstance(data, Sequence) and data and all(isinstance(p, str | Path) for p in data):
        return FileSource(_paths(data), delimiter)
    if isinstance(data, duckdb.DuckDBPyRelation):
        return RelationSource(data)
    if isinstance(data, pa.Table):
        return ArrowSource(valid_texts(data))
    if isinstance(data, pa.RecordBatchReader):
        with _run_by_its_author("The stream"):
            return ArrowSource(valid_texts(data.read_all()))
    module = type(data).__module__.partition(".")[0]
    if module == "pandas":
        return ArrowSource(_from_pandas(data), "The data frame")
    if module == "polars":
        with _run_by_its_author("The data frame"):
            frame = data.collect() if hasattr(data, "collect") else data
        return ArrowSource(valid_texts(frame.to_arrow()), "The data frame")
    raise unreadable(data)


def unreadable(data: Any) -> ParameterError:
    """Return the error about something that is no source."""
    return ParameterError(
        "source must be a path or glob of Parquet or CSV files, an Arrow table, a pandas or Polars "
        f"data frame or a DuckDB relation, not {type(data).__name__}."
    )


@contextmanager
def _run_by_its_author(name: str) -> Iterator[None]:
    """Turn whatever a caller's query raises into one sentence: its own text may quote a row."""
    try:
        with reading(name):
            yield
    except DpgrainError:
        raise
    except Exception:
        raise _broken_off(name) from None


def _paths(patterns: Sequence[str | Path]) -> tuple[str, ...]:
    paths: list[str] = []
    for pattern in map(str, patterns):
        # Path.glob takes no absolute pattern.
        found = sorted(glob.glob(pattern, recursive=True)) or [pattern]  # noqa: PTH207
        paths.extend([pattern] if Path(pattern).is_file() else found)
    paths = list(dict.fromkeys(paths))
    for path in paths:
        if not path.lower().endswith(_PARQUET + CSV):
            raise ParameterError(
                f"source {path!r} must end in .parquet, .csv or .csv.gz; convert or rename it."
            )
        if not Path(path).is_file():
            raise DataError(f"The file {path!r} does not exist; check the path.")
    if len({path.lower().endswith(CSV) for path in paths}) > 1:
        raise ParameterError("source mixes Parquet and CSV files; read one kind at a time.")
    return tuple(paths)


def _csv_header(path: str, delimiter: str) -> list[str]:
    try:
        # Only the first line is judged: what stands behind it is somebody's.
        line = _first_line(path)
        header = next(csv.reader([line.decode()], delimiter=delimiter), [])
    except (OSError, UnicodeError, csv.Error) as error:
        raise DataError(f"The file {path!r} cannot be read; is it UTF-8 text?") from error
    splitter = Splitter(delimiter)
    if splitter.ends(line + b"\n")[0] < 0 or splitter.odd:
        remedy = "put quotes around whole names, and double those inside"
        if delimiter not in line.decode() and (mark := other_delimiter(line.decode())):
            remedy = mark
        raise SchemaError(
            f"The first line of the file {path!r}, which must name the columns, has a quote in an odd "
            f"place; {remedy}."
        )
    if not header:
        raise SchemaError(f"The file {path!r} is empty; its first line must name the columns.")
    if (twice := first_repeated(header)) is not None:
        raise SchemaError(f"The file {path!r} names column {twice!r} twice; rename one of them.")
    return header


def other_delimiter(header: str) -> str:
    """Say which delimiter to state where a header of one column looks like several; else nothing."""
    mark = next((mark for mark in _MARKS if mark in header), None)
    return "" if mark is None else f"state delimiter={mark!r} in dg.read or --delimiter {mark!r}"


def _first_line(path: str) -> bytes:
    """Return the first line of a file, without its end."""
    line = b""
    for piece in parts(path):
        line += piece
        ends = [place for place in (line.find(b"\n"), line.find(b"\r")) if place >= 0]
        if ends:
            return line[: min(ends)]
        if len(line) > LONGEST_BYTES:
            break
    return line


def _sql_type(column: str, kind: str) -> str:
    """Return the type as DuckDB spells it: INT is INTEGER."""
    try:
        return str(duckdb.sqltype(kind))
    except duckdb.Error as error:
        raise ParameterError(
            f"types gives column {column!r} the type {kind!r}; give an SQL type such as BIGINT, "
            "DOUBLE, DATE or VARCHAR.",
            name="types",
        ) from error


def _from_pandas(frame: Any) -> pa.Table:
    if not hasattr(frame, "columns"):
        raise ParameterError(
            f"source must be a pandas data frame, not a {type(frame).__name__}; use .to_frame()."
        )
    names = [str(name) for name in frame.columns]
    if (twice := first_repeated(names)) is not None:
        raise SchemaError(f"The data frame names column {twice!r} twice; rename one of them.")
    columns = {}
    for i, name in enumerate(names):
        try:
            columns[name] = _from_column(frame.iloc[:, i])
        except (pa.ArrowException, TypeError) as error:
            raise SchemaError(
                f"column {name!r} has type {frame.iloc[:, i].dtype}, which cannot be read; cast it to "
                "text or numbers."
            ) from error
    return pa.table(columns)


def _from_column(column: Any) -> pa.Array:
    """Return a column of a data frame, read as its type says, whatever its values are."""
    if column.dtype == object:
        # Any type may stand in any row; if it were guessed, one row would decide for all.
        return _texts(column)
    if column.dtype == "category":
        # Categories are values, from which pandas takes their type: each is text by itself.
        names = _texts(column.cat.categories)
        codes = column.cat.codes.to_numpy()
        return names.take(pa.array(codes, pa.int64(), mask=codes < 0))
    try:
        found = pa.Array.from_pandas(column)
    except UnicodeError:
        return _texts(column)
    return _valid_chunk(found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found)


def _texts(column: Any) -> pa.Array:
    """Return each value as text by itself."""
    return pa.array([None if _is_null(value) else _as_text(value) for value in column], pa.string())


def _is_null(value: Any) -> bool:
    """Return whether a value stands for none; asking all at once might raise for one of them."""
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, float | np.floating | np.datetime64 | np.timedelta64):
        return bool(value != value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _as_text(value: Any) -> str | None:
    """Return the value as text, or null where it has none: an error would tell of one row."""
    with warnings.catch_warnings():
        # A warning would tell of one row, too.
        warnings.simplefilter("ignore")
        try:
            found = cell_text(value)
            # Half of a surrogate pair is no text; a substitute for it might be somebody else's name.
            return None if found is None else found.encode().decode()
        except Exception:
            return None


def valid_texts(table: pa.Table) -> pa.Table:
    """Return a table whose texts are UTF-8, with nulls for those that are not: Arrow does not look."""
    for place, column in enumerate(table.columns):
        chunks = [_valid_chunk(chunk) for chunk in column.chunks]
        if any(new is not old for new, old in zip(chunks, column.chunks, strict=True)):
            field = table.schema.field(place)
            table = table.set_column(place, field, pa.chunked_array(chunks, field.type))
    return table


def _valid_chunk(chunk: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(chunk.type):
        names = _valid_chunk(chunk.dictionary)
        if names is chunk.dictionary:
            return chunk
        return pa.DictionaryArray.from_arrays(chunk.indices, names).cast(chunk.type)
    if chunk.type not in _BYTES:
        return chunk
    try:
        chunk.validate(full=True)
    except pa.ArrowException:
        values = [_decoded(value) for value in chunk.cast(_BYTES[chunk.type])]
        return pa.array(values, chunk.type)
    return chunk


_BYTES = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}


def _decoded(value: pa.Scalar) -> str | None:
    try:
        return None if value.as_py() is None else bytes(value.as_py()).decode()
    except UnicodeError:
        return None


def _register(connection: duckdb.DuckDBPyConnection, data: Any) -> str:
    name = f"source_{next(_counter)}"
    connection.register(name, data)
    return name


def _schema_reader() -> duckdb.DuckDBPyConnection:
    """Return a connection that reads schemas alone, to be closed by ``with``."""
    return _schema_database(os.getpid()).cursor()


@cache
def _schema_database(_process: int) -> duckdb.DuckDBPyConnection:
    """Return the database of a process for schemas: making one takes longer than reading a schema.

    It has no threads of its own, which a copy of the process would lack, and keeps nothing of files.
    """
    settings: dict[str, Any] = {"threads": 1, "enable_external_file_cache": False}
    return duckdb.connect(":memory:", config=settings)


def _described(connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, str]:
    # Of a wide table each query that is planned takes a second: this one is planned once, and not run.
    planned = connection.sql(f"SELECT * FROM {relation}")
    return dict(zip(planned.columns, map(_public_type, map(str, planned.types)), strict=True))


def _public_type(kind: str) -> str:
    """Return the type without its values: those of an ENUM are data."""
    return re.sub(r"ENUM\(.*\)", "ENUM", kind, flags=re.DOTALL)
