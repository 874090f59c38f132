"""Sources of a table's rows: files, Arrow tables, data frames, DuckDB relations.

A source names its columns and hands DuckDB something to select from, as often as asked; nothing is
loaded before a release needs it.
"""

from __future__ import annotations

import csv
import glob
import gzip
import hashlib
import itertools
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import duckdb
import pyarrow as pa

from dpgrain import _validate
from dpgrain._formatting import COLUMN_LETTERS, first_duplicate, shorten, suggest_columns
from dpgrain._progress import step
from dpgrain.errors import (
    DataError,
    DpgrainError,
    ParameterError,
    SchemaError,
    raise_without_context,
)
from dpgrain.tables.engines.column_types import (
    TEXT,
    TIMES,
    carrying_of,
    is_readable,
    read_as,
    reading_of,
    type_of,
    widest,
)
from dpgrain.tables.engines.csv_rows import (
    LONGEST_BYTES,
    Mender,
    Oddities,
    Splitter,
    oddities,
    parts,
    without,
)
from dpgrain.tables.engines.folders import CSV, Partition, is_plain
from dpgrain.tables.engines.frames import readable_column
from dpgrain.tables.engines.kept_facts import KeptFacts, state_of
from dpgrain.tables.engines.large_texts import COPIED_ROWS, copy_texts, large_texts
from dpgrain.tables.engines.parquet_rows import (
    OddTimes,
    copy_readable,
    far_days,
    names_of,
    odd_times,
    schema_of,
)
from dpgrain.tables.engines.schemas import described, kind_of, schema_reader
from dpgrain.tables.engines.spill import COPIES
from dpgrain.tables.engines.sql import DATES, ISO, TextFormat, cast_sql, literal, quoted

Answer = TypeVar("Answer")

# Marks between columns in the header of a CSV file, where it is no comma.
_MARKS = (";", "\t", "|")
#: Type of a relation that is a table by its name; a view, a query or a narrowed table has another
#: one.
TABLE = "TABLE_RELATION"
# Column of the place of a row's file among those that are read, where no file has a column of its name.
_PLACE = "file_index"
# Bytes of a CSV file that DuckDB holds at a time. No row comes near that length: DuckDB would drop a
# longer row, and not know where the next one begins.
_BUFFER_BYTES = 2 * LONGEST_BYTES
# End of a name to which DuckDB has added a number, since it stands there twice.
_RENAMED = re.compile(r"_\d+\Z")
# Rows of a stream that are handed over at a time: DuckDB counts the bytes of texts in 31 bits, and as
# many labels of the longest length take 128 MiB.
_STREAMED_ROWS = 1 << 11
#: Column of the number of records that a row stands for, in sources that count where rows lie.
RECORDS = "records of the row"
_counter = itertools.count()


class Source(Protocol):
    """The place of the rows."""

    @property
    def name(self) -> str:
        """The name that messages and reports give the source."""

    @property
    def title(self) -> str:
        """The name in reports, without the folder, which is nobody's business."""

    def columns(self) -> dict[str, str]:
        """Return column name → the type that it is read as, from the schema alone."""

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Return SQL to put after FROM, good for one query.

        Args:
            connection: the connection of the query.
            used: the columns that the query asks for, and the only ones that are read; None for all.
        """


class OverSource:
    """Base of sources that wrap another source."""

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

    @property
    def tells_records(self) -> bool:
        """Whether the source can tell how many records are alike, where :data:`RECORDS` is asked."""
        return bool(getattr(self.source, "tells_records", False))

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        return self.source.columns()


def begun(source: Source, connection: duckdb.DuckDBPyConnection) -> AbstractContextManager[None]:
    """Return what has to be entered before a source is read: the transaction of a database.

    Args:
        source: the source, or one over it.
        connection: the connection that reads it.
    """
    bottom: Any = source
    while not hasattr(bottom, "begin"):
        bottom = getattr(bottom, "source", None) or getattr(
            getattr(bottom, "rows", None), "source", None
        )
        if bottom is None:
            return nullcontext()
    begin: AbstractContextManager[None] = bottom.begin(connection)
    return begin


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
            f"{name} cannot be read; check that it exists, is readable and is a complete file."
        ) from error
    except DpgrainError:
        raise
    except (duckdb.InterruptException, RuntimeError) as error:
        if "interrupt" in str(error).lower():
            raise KeyboardInterrupt from None
        raise
    except (duckdb.Error, pa.ArrowException, OSError):
        # A stream of batches raises Arrow's exceptions, or OSError.
        raise_without_context(broken_off(name))


def waited(connection: duckdb.DuckDBPyConnection, work: Callable[[], Answer]) -> Answer:
    """Wait for DuckDB's work, which ctrl-C ends at once.

    DuckDB itself looks for signals when it is done, so it works in another thread meanwhile.

    Args:
        connection: the connection that works.
        work: the work.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(work)
        try:
            return answer.result()
        except KeyboardInterrupt:
            connection.interrupt()
            raise


def broken_off(name: str) -> DataError:
    """Return the error about rows that end before their end.

    Args:
        name: the name of the source.
    """
    return DataError(
        f"{name} cannot be read completely; check that every file is complete, or that its "
        "query runs to completion."
    )


def _unwritable(name: str) -> DataError:
    return DataError(
        f"The spill folder for {name} cannot be written; free disk space, or point TMPDIR to "
        "a disk with free space."
    )


@dataclass(frozen=True)
class FileSource:
    """Parquet or CSV files; all columns of CSV are text, and so is what the names of folders say.

    Guessing types from rows would make the result's form depend on one person's row. A row of CSV that
    has too few values, is not UTF-8, is longer than 8 MiB or has quotes that can mean several things is
    left out by itself. A column that files hold themselves is read from them, whatever folders say.

    Args:
        paths: the files.
        delimiter: the character between values of CSV.
        partitions: what the names of folders say of each file's rows; of none without it.
    """

    paths: tuple[str, ...]
    delimiter: str = ","
    partitions: tuple[Partition, ...] = ()

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

    @cached_property
    def _footers(self) -> KeptFacts[dict[str, str]]:
        # Files of one schema are asked once: to have a query planned takes ten times as long.
        described: dict[Any, dict[str, str]] = {}

        def footer(path: str) -> dict[str, str]:
            schema = schema_of(path)
            if schema is None:
                return _footer(path)
            if schema not in described:
                described[schema] = _footer(path)
            return described[schema]

        return KeptFacts(footer)

    @cached_property
    def _odd_times(self) -> KeptFacts[OddTimes]:
        return KeptFacts(odd_times)

    @cached_property
    def _far_days(self) -> KeptFacts[frozenset[str]]:
        return KeptFacts(far_days)

    @cached_property
    def _large_texts(self) -> KeptFacts[frozenset[str]]:
        return KeptFacts(large_texts)

    @cached_property
    def _odd_rows(self) -> KeptFacts[Oddities]:
        return KeptFacts(lambda path: oddities(parts(path), self.delimiter))

    @property
    def is_csv(self) -> bool:
        """True if the files are CSV."""
        return self.paths[0].lower().endswith(CSV)

    def columns(self) -> dict[str, str]:
        """Return column name → type, as the files had them when they were first looked at."""
        return dict(self._opened)

    @cached_property
    def _opened(self) -> dict[str, str]:
        return self._columns(self._kinds())

    def _unchanged(self, kinds: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        """Return the columns, which are the same whenever the files are read.

        Args:
            kinds: the columns of each Parquet file as it is now.

        Raises:
            SchemaError: if they are others now.
        """
        columns = self._columns(kinds)
        if columns != self._opened:
            raise SchemaError(
                f"{self.name} has different columns than when it was opened; call dg.read again."
            )
        return columns

    def _columns(self, kinds: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        """Return column name → type: those of the files, and then those that folders name."""
        own = self._header() if self.is_csv else _widest_of(kinds)
        held = {column.casefold() for column in own}
        said = [name for name in self._said[self.paths[0]] if name.casefold() not in held]
        return {**own, **dict.fromkeys(said, TEXT)}

    @cached_property
    def _said(self) -> dict[str, dict[str, str | None]]:
        """Each file's values of columns that the names of folders state."""
        said = self.partitions or ((),) * len(self.paths)
        return {path: dict(each) for path, each in zip(self.paths, said, strict=True)}

    def _header(self) -> dict[str, str]:
        """Return column name → type of CSV files, from their first lines."""
        header = _csv_header(self.paths[0], self.delimiter)
        for path in self.paths[1:]:
            if _csv_header(path, self.delimiter) != header:
                raise SchemaError(
                    f"The file {path!r} must have the same columns as {self.paths[0]!r}; "
                    "use the same header in every file."
                )
        return dict.fromkeys(header, TEXT)

    def _kinds(self) -> dict[str, dict[str, str]]:
        """Return each Parquet file's columns with their own types, under the first file's names.

        Of CSV files, all of whose columns are text, none are told.

        One file's types must not be forced on another: the first value that does not fit would end the
        release, and be quoted.
        """
        if self.is_csv:
            return {}
        with reading(self.name):
            kinds = {path: self._footers.of(path) for path in self.paths}
            for path, own in kinds.items():
                if any(read_as(kind) in TIMES for kind in own.values()):
                    self._odd_times.of(path)
        names = list(kinds[self.paths[0]])
        return {path: self._renamed(path, names, own) for path, own in kinds.items()}

    def _renamed(self, path: str, names: list[str], own: Mapping[str, str]) -> dict[str, str]:
        # Files may hold more columns in another order; capital letters make no difference.
        folded = {column.casefold(): kind for column, kind in own.items()}
        if lacking := [column for column in names if column.casefold() not in folded]:
            raise SchemaError(
                f"The file {path!r} lacks the column {lacking[0]!r} of {self.paths[0]!r}; "
                "use the same columns in every file."
            )
        return {column: folded[column.casefold()] for column in names}

    @property
    def _oddities(self) -> list[Oddities]:
        """Lines of each CSV file to keep from DuckDB."""
        step("checking for malformed rows")
        with reading(self.name):
            result = [self._odd_rows.of(path) for path in self.paths]
        for path, odd in zip(self.paths, result, strict=True):
            if odd.long_rows and odd.long_rows[0][0] == 0:
                raise SchemaError(
                    f"The first line of the file {path!r}, which must contain the column "
                    f"names, is longer than {LONGEST_BYTES:,} bytes; check for an unclosed "
                    "quote."
                )
        return result

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Return a table function over the files; over copies of those with odd rows, without these.

        The copies lie in the folder that the connection spills into, and go with it.
        """
        kinds = self._kinds()
        columns = self._unchanged(kinds)
        asked = {name: kind for name, kind in columns.items() if used is None or name in used}
        alike: dict[tuple[str, ...], tuple[dict[str, str], list[str]]] = {}
        files = self._files(connection, asked, kinds)
        for path, (_, read) in files.items():
            alone = path if self._said[path] and self._hides_its_place(path) else ""
            alike.setdefault((alone, *read.values()), (read, []))[1].append(path)
        parts = []
        for read, paths in alike.values():
            said = [name for name in asked if name not in read]
            same = {path: files[path][0] for path in paths}
            parts.append(self._read_together(same, read, said))
        if len(parts) == 1:
            return parts[0]
        listed = listing({column: quoted(column) for column in asked})
        return f"({' UNION ALL '.join(f'SELECT {listed} FROM {part}' for part in parts)})"

    def _files(
        self,
        connection: duckdb.DuckDBPyConnection,
        columns: Mapping[str, str],
        kinds: Mapping[str, Mapping[str, str]],
    ) -> dict[str, tuple[str, dict[str, str]]]:
        """Return of each file what it is read from, and column → SQL, of the columns that it holds."""
        if self.is_csv:
            held = {name: quoted(name) for name in self._header() if name in columns}
            files = zip(self.paths, self._readable(connection), strict=True)
            return {path: (file, dict(held)) for path, file in files}
        return {
            path: self._as_read(
                connection, path, own, {name: columns[name] for name in columns if name in own}
            )
            for path, own in kinds.items()
        }

    def _read_together(
        self, files: Mapping[str, str], read: Mapping[str, str], said: Sequence[str]
    ) -> str:
        """Return the SQL of files that are read alike.

        Args:
            files: file → what it is read from.
            read: column → SQL, of columns that they hold.
            said: columns that the names of folders say.
        """
        held = list(files.values())
        if self.is_csv:
            rows, plain = self._csv(self._header(), held), False
        else:
            # DuckDB passes over whole files whose folders it can read.
            plain = all(path == file and self._is_plain(path) for path, file in files.items())
            rows = _parquet(held, folders=bool(said) and plain)
        values = {name: [self._said[path][name] for path in files] for name in said}
        told = {name: quoted(name) if plain else _by_file(values[name]) for name in said}
        return selected(rows, {**read, **told})

    def _hides_its_place(self, path: str) -> bool:
        """Return whether a column of a file hides DuckDB's own, of which file a row lies in."""
        held = self._header() if self.is_csv else self._footers.of(path)
        return _PLACE in map(str.casefold, held)

    def _is_plain(self, path: str) -> bool:
        return is_plain(path, tuple(self._said[path].items()))

    def _as_read(
        self,
        connection: duckdb.DuckDBPyConnection,
        path: str,
        kinds: Mapping[str, str],
        columns: Mapping[str, str],
    ) -> tuple[str, dict[str, str]]:
        """Return the file that columns of a Parquet file are read from, and column → SQL.

        Args:
            connection: the connection, for copies.
            path: the file.
            kinds: column → type in the file.
            columns: column → the type that it is read as, of columns that are used.
        """
        odd, far = OddTimes(), frozenset[str]()
        used = {name.casefold() for name in columns}
        if any(kind in TIMES for kind in columns.values()):
            with reading(self.name):
                odd = self._odd_times.of(path)
                if not used.isdisjoint(odd.days):
                    far = self._far_days.of(path)
        large = False
        if TEXT in columns.values():
            with reading(self.name):
                large = not used.isdisjoint(self._large_texts.of(path))
        timed = large and any(kind in TIMES for kind in columns.values())
        if timed or not used.isdisjoint(odd.milliseconds | far):
            # All times of a copy are microseconds within their range.
            copy = partial(copy_readable, rows=COPIED_ROWS) if large else copy_readable
            path, odd = self._copied(connection, path, used, copy), OddTimes()
            kinds = {name: kind if kind in TIMES else kinds[name] for name, kind in columns.items()}
        if large:
            path = self._copied(connection, path, used, copy_texts)
        read = {}
        for name, kind in columns.items():
            within = kinds[name] in TIMES and name.casefold() not in odd.others
            sql = quoted(name) if within else reading_of(quoted(name), kinds[name])
            read[name] = _wider(sql, read_as(kinds[name]), kind)
        return path, read

    def _copied(
        self,
        connection: duckdb.DuckDBPyConnection,
        path: str,
        used: Collection[str],
        write: Callable[[str, Path, Collection[str]], None],
    ) -> str:
        """Return a copy of some columns of a Parquet file, as a function writes it."""
        name = hashlib.sha256(repr((path, state_of(path), sorted(used))).encode()).hexdigest()
        copy = folder_of(connection) / f"{COPIES}{name}.parquet"
        if not copy.exists():
            with reading(self.name):
                write(path, copy, used)
        return str(copy)

    def _readable(self, connection: duckdb.DuckDBPyConnection) -> list[str]:
        """Return the CSV files, or copies of them, in which DuckDB reads each row by itself."""
        result = []
        for path, odd in zip(self.paths, self._oddities, strict=True):
            if not odd:
                result.append(path)
                continue
            name = hashlib.sha256(repr((path, state_of(path))).encode()).hexdigest()
            ending = ".csv.gz" if path.lower().endswith(".gz") else ".csv"
            copy = folder_of(connection) / f"{COPIES}{name}{ending}"
            if not copy.exists():
                try:
                    _write(self._mended(path, odd, Mender(self.delimiter)), copy)
                except OSError as error:
                    # The scan has read the whole file already, so only writing can have failed.
                    raise _unwritable(self.name) from error
            result.append(str(copy))
        return result

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
        """Count the rows whose quotes have no clear meaning, which are left out."""
        result = 0
        for path, odd in zip(self.paths, self._oddities, strict=True):
            mender = Mender(self.delimiter)
            for _ in self._mended(path, odd, mender):
                pass
            result += mender.left_out
        return result

    def _csv(self, columns: Iterable[str], paths: Sequence[str], more: str = "") -> str:
        """Return the reader of CSV, which drops a line that it cannot read and never fails on one.

        One thread reads a file from its beginning: another that began in the middle would have to
        guess whether it is inside quotes. A carriage return ends a line, with a line feed or without;
        were the ends of lines guessed, a single one would cost the next row its first letter.
        """
        raw = ", ".join(f"{literal(column)}: 'VARCHAR'" for column in columns)
        return (
            f"read_csv({_listed(paths)}, auto_detect=false, header=true, "
            f"delim={literal(self.delimiter)}, quote='\"', escape='\"', columns={{{raw}}}, "
            "ignore_errors=true, strict_mode=false, parallel=false, new_line='\\n', "
            f"buffer_size={_BUFFER_BYTES}, max_line_size={_BUFFER_BYTES}{more})"
        )

    def faults(self, connection: duckdb.DuckDBPyConnection) -> Faults:
        """Count the faults of lines of CSV files: for the curator only, and slow."""
        columns = list(self._header())
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


def folder_of(connection: duckdb.DuckDBPyConnection) -> Path:
    """Return the folder that a connection spills into.

    Args:
        connection: the connection.
    """
    return Path(connection.execute("SELECT current_setting('temp_directory')").fetchall()[0][0])


def memory_of(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the bytes that a connection may hold before it spills.

    Args:
        connection: the connection.
    """
    return int(connection.execute("SELECT getvariable('memory')").fetchall()[0][0])


def _widest_of(kinds: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return column → the type that holds the values of all files, file → column → its own type."""
    own = list(kinds.values())
    return {column: widest([each[column] for each in own]) for column in own[0]}


def _footer(path: str) -> dict[str, str]:
    """Return column name → type of a Parquet file.

    Raises:
        SchemaError: if names are alike, or one is no text.
    """
    try:
        with schema_reader() as connection:
            kinds = described(connection, _parquet([path]))
    except (RuntimeError, UnicodeError):
        raise_without_context(
            SchemaError(
                f"The file {path!r} has a column name that is not UTF-8 text; rename the column."
            )
        )
    if any(_RENAMED.search(name) for name in kinds):
        # DuckDB renames the second of two names that it holds to be one.
        require_names(names_of(path), f"The file {path!r}")
    return kinds


def require_names(names: Iterable[str], source: str) -> None:
    """Raise unless all column names differ in a query, where capital letters count as small ones.

    Raises:
        SchemaError: if two have one name, or one has none that a query can state.
    """
    names = list(names)
    nameless = next((name for name in names if not name or "\0" in name), None)
    if nameless is not None:
        raise SchemaError(
            f"{source} has the column name {nameless!r}, which queries cannot use; rename it."
        )
    twice = first_duplicate(name.casefold() for name in names)
    if twice is not None:
        alike = [name for name in names if name.casefold() == twice]
        other = (
            "twice"
            if alike[0] == alike[1]
            else f"and {alike[1]!r}, which queries treat as the same"
        )
        raise SchemaError(f"{source} has the column {alike[0]!r} {other}; rename one of them.")


def _listed(paths: Sequence[str]) -> str:
    """Return the SQL of a list of files, whose names are no patterns."""
    return "[" + ", ".join(literal(glob.escape(path)) for path in paths) + "]"


def _parquet(paths: Sequence[str], *, folders: bool = False) -> str:
    """Return the SQL of Parquet files of one schema.

    Args:
        paths: the files.
        folders: whether what the names of folders say are columns, too.
    """
    # Types guessed from the names of folders would change with one of them, and bytes that are no UTF-8
    # would end the release.
    named = f"hive_partitioning={str(folders).lower()}, hive_types_autocast=false"
    return f"read_parquet({_listed(paths)}, {named}{_lenient()})"


@cache
def _lenient() -> str:
    """Return the option that has DuckDB replace bytes that are no UTF-8; older versions have none."""
    with schema_reader() as connection:
        result = connection.sql(
            "SELECT parameters FROM duckdb_functions() WHERE function_name = 'read_parquet'"
        ).fetchall()
    known = any("utf8_validation" in options for (options,) in result)
    return ", utf8_validation='replace'" if known else ""


def listing(columns: Mapping[str, str]) -> str:
    """Return the SQL of columns, name → SQL; of none, of one that nobody asks for."""
    listed = (
        sql if sql == quoted(name) else f"{sql} AS {quoted(name)}" for name, sql in columns.items()
    )
    return ", ".join(listed) or 'NULL AS "none"'


def _by_file(values: Sequence[str | None]) -> str:
    """Return the SQL of a value for all rows of each file, of files that are read together."""
    listed = ", ".join("NULL" if value is None else literal(value) for value in values)
    place = 1 if len(values) == 1 else f"{_PLACE}::BIGINT + 1"
    return f"CAST([{listed}] AS VARCHAR[])[{place}]"


def _wider(sql: str, kind: str, wider: str) -> str:
    if kind == wider:
        return sql
    # Nothing can use a column whose types have no type in common.
    return f"TRY_CAST({sql} AS {wider})" if is_readable(wider) else "NULL"


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
        written: how numbers and days are written in text.
    """

    source: Source
    types: Mapping[str, str]
    written: TextFormat = field(default_factory=TextFormat)

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        stated = {column: read_as(kind) for column, kind in self.types.items()}
        return {**self.source.columns(), **stated}

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Return the columns in their stated types."""
        stated = ", ".join(
            f"{self._stated(column, kind)} AS {quoted(column)}"
            for column, kind in self.types.items()
            if used is None or column in used
        )
        rows = self.source.attach(connection, used)
        return f"(SELECT * REPLACE ({stated}) FROM {rows})" if stated else rows

    def _stated(self, column: str, kind: str) -> str:
        if read_as(kind) == TEXT:
            return f"TRY_CAST({cast_sql(column, kind, self.written)} AS VARCHAR)"
        return cast_sql(column, read_as(kind), self.written)


def typed(
    source: Source, types: Mapping[str, str] | None, decimal: str = ".", dates: str = ISO
) -> Source:
    """Return the source with the types that are stated for columns of text.

    Args:
        source: the source.
        types: column → type.
        decimal: the mark before the decimals of a number.
        dates: the last day of 2025, as days are written.

    Raises:
        SchemaError: if it has no such column, or one that is not text.
        ParameterError: if a type is unknown, or the decimal mark or the form of days is.
    """
    _validate.one_of((".", ","), decimal=decimal)
    _validate.one_of(tuple(DATES), dates=dates)
    types = _validate.mapping(types=types)
    if not types:
        return source
    columns = source.columns()
    stated = {}
    for column, kind in types.items():
        if column not in columns:
            raise SchemaError(
                f"types contains column {column!r}, which does not exist; "
                f"{columns_like(column, list(columns))}.",
                name="types",
            )
        stated[column] = _sql_type(column, kind)
        if columns[column] not in (TEXT, read_as(stated[column])):
            raise SchemaError(
                f"types must not set column {column!r} to {kind!r}, because it already has "
                f"type {columns[column]}; omit it from types.",
                name="types",
            )
    changed = {
        column: kind for column, kind in stated.items() if columns[column] == TEXT and kind != TEXT
    }
    return TypedSource(source, changed, TextFormat(decimal, dates)) if changed else source


@dataclass(frozen=True, eq=False)
class ArrowSource:
    """An Arrow table in memory, or the columns of a data frame.

    Args:
        table: the columns; one of a type that Arrow lacks is there as nulls.
        name: the name in messages.
        title: the name in reports.
        unread: column → type, of columns of a type that Arrow lacks.
    """

    table: pa.Table
    name: str = "The table"
    title: str = "a table in memory"
    unread: Mapping[str, str] = field(default_factory=dict)
    # Not handed on to a copy with another table.
    _read: dict[str, pa.ChunkedArray] = field(default_factory=dict, init=False, repr=False)

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        return {column: read_as(kind) for column, kind in self._kinds.items()}

    @property
    def _kinds(self) -> dict[str, str]:
        kinds = {column.name: kind_of(column.type) for column in self.table.schema}
        return {**kinds, **self.unread}

    def read(self, columns: Iterable[str]) -> pa.Table:
        """Return columns, whose times are microseconds within their range."""
        for column in columns:
            if column not in self._read:
                self._read[column] = readable_column(self.table.column(column))
        return pa.table({column: self._read[column] for column in columns})

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Register the columns, and return their name."""
        kinds = usable(self._kinds, used)
        rows = self.read(kinds) if kinds else pa.table({"none": pa.nulls(self.table.num_rows)})
        return selected(registered(connection, rows), readings_of_arrow(kinds))


@dataclass(frozen=True, eq=False)
class RelationSource:
    """A DuckDB relation on a connection of the caller's; each query runs it again.

    A table is known by its name, which must stand for the same table, of the same columns, whenever it
    is read: a view in its place would be a query, and a value of another type would end the release.
    """

    relation: duckdb.DuckDBPyRelation
    name: str = "The relation"
    title: str = "a DuckDB relation"

    def columns(self) -> dict[str, str]:
        """Return column name → type, as the relation had them when it was first looked at."""
        return dict(self._opened[0])

    @cached_property
    def _opened(self) -> tuple[dict[str, str], Any]:
        return self._as_it_is()

    def _as_it_is(self) -> tuple[dict[str, str], Any]:
        """Return column name → type, and of a table all that its name may stand for."""
        with reading(self.name):
            columns = {column: read_as(kind) for column, kind in self._kinds.items()}
            if self.relation.type != TABLE:
                return columns, None
            named = self.relation.filter("false").aggregate(_named(self.relation.alias))
            return columns, named.fetchall()

    @property
    def _kinds(self) -> dict[str, str]:
        return dict(zip(self.relation.columns, map(str, self.relation.types), strict=True))

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Register a fresh stream of the rows, and return SQL of its columns.

        Raises:
            SchemaError: if the relation is another one than when it was opened.
        """
        opened = self._opened
        if self._as_it_is() != opened:
            raise SchemaError(
                f"{self.name} has different columns than when it was opened, or its name "
                "refers to another table; call dg.read again."
            )
        kinds = usable(self._kinds, used)
        carried = {column: carrying_of(quoted(column), kind) for column, kind in kinds.items()}
        with reading(self.name):
            stream = self.relation.project(listing(carried)).to_arrow_reader(_STREAMED_ROWS)
            return selected(registered(connection, stream), readings(kinds))


def _named(name: str) -> str:
    """Return the SQL of an aggregate: all tables and views of a name, and where names are looked up."""
    result = (
        f"SELECT list((database_name, schema_name, {kind}_oid) ORDER BY {kind}_oid) "
        f"FROM duckdb_{kind}s() WHERE lower({kind}_name) = lower({literal(name)})"
        for kind in ("table", "view")
    )
    listed = ", ".join(f"({query}) AS found{place}" for place, query in enumerate(result))
    return f"count(*) AS rows_, {listed}, current_setting('search_path') AS path"


def holds_its_values(table: duckdb.DuckDBPyRelation) -> bool:
    """Return whether all tables of a name hold each of their values, in a file of DuckDB's.

    A column that is computed as it is read may number the rows (``nextval``), and what another system
    holds need not be of the type of its column.
    """
    found = (
        "SELECT count(*) FROM duckdb_tables() AS tables_ JOIN duckdb_databases() AS files "
        f"USING (database_oid) WHERE lower(table_name) = lower({literal(table.alias)}) "
        "AND (files.type <> 'duckdb' OR contains(tables_.sql, 'GENERATED ALWAYS AS'))"
    )
    with reading("The relation"):
        return table.filter("false").aggregate(f"({found}) + 0 * count(*)").fetchall() == [(0,)]


def usable(kinds: Mapping[str, str], used: Collection[str] | None) -> dict[str, str]:
    """Return the columns that are used, or all that can be, with their types."""
    return {
        column: kind
        for column, kind in kinds.items()
        if (used is None or column in used) and type_of(kind) is not None
    }


def readings(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return column → SQL of the column as it is read."""
    return {column: reading_of(quoted(column), kind) for column, kind in kinds.items()}


def readings_of_arrow(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return column → SQL of the column as it is read, of Arrow's rows whose times are in range."""
    times = {column: quoted(column) for column, kind in kinds.items() if read_as(kind) in TIMES}
    return {**readings(kinds), **times}


def selected(rows: str, columns: Mapping[str, str]) -> str:
    """Return the SQL of columns of some rows, name → SQL."""
    plain = all(sql == quoted(column) for column, sql in columns.items())
    return rows if plain else f"(SELECT {listing(columns)} FROM {rows})"


def _csv_header(path: str, delimiter: str) -> list[str]:
    try:
        # Only the first line is judged: what stands behind it is somebody's.
        line = _first_line(path)
        header = next(csv.reader([line.decode()], delimiter=delimiter), [])
    except (OSError, UnicodeError, csv.Error):
        # An error of decoding holds the line, which is a row where a file has no header.
        raise_without_context(
            DataError(f"The file {path!r} cannot be read; check that it is UTF-8 text.")
        )
    splitter = Splitter(delimiter)
    if splitter.ends(line + b"\n")[0] < 0 or splitter.odd:
        remedy = "put quotes around whole names, and double the quotes inside"
        if delimiter not in line.decode() and (mark := other_delimiter(line.decode())):
            remedy = mark
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


def columns_like(column: str, names: Sequence[str]) -> str:
    """Say which columns there are in place of one that is missing, or that one looks like several.

    >>> columns_like("paid", ["who;paid"])
    "its one column 'who;paid' looks like several: pass delimiter=';' in dg.read or --delimiter ';'"
    """
    if len(names) == 1 and (remedy := other_delimiter(names[0])):
        return f"its one column {shorten(names[0], COLUMN_LETTERS)!r} looks like several: {remedy}"
    return suggest_columns(column, names)


def other_delimiter(header: str) -> str:
    """Say which delimiter to state where a header of one column looks like several; else nothing."""
    mark = next((mark for mark in _MARKS if mark in header), None)
    return "" if mark is None else (f"pass delimiter={mark!r} in dg.read or --delimiter {mark!r}")


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
            f"types must set column {column!r} to an SQL type such as BIGINT, DOUBLE, DATE or "
            f"VARCHAR, not {kind!r}.",
            name="types",
        ) from error


def registered(connection: duckdb.DuckDBPyConnection, data: Any) -> str:
    """Register something of Arrow's on a connection, and return the name that it has there.

    Args:
        connection: the connection.
        data: a table, or a stream that is read once.
    """
    name = f"source_{next(_counter)}"
    connection.register(name, data)
    return name
