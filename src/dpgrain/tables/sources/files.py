"""Parquet and CSV files as sources."""

from __future__ import annotations

import csv
import glob
import gzip
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import duckdb

from dpgrain._progress import step
from dpgrain.errors import DataError, SchemaError, raise_alone
from dpgrain.tables.engines.spill import COPIES
from dpgrain.tables.engines.sql import quoted, text
from dpgrain.tables.sources.column_names import other_delimiter, require_names
from dpgrain.tables.sources.column_sql import listing, selected
from dpgrain.tables.sources.column_types import (
    TEXT,
    TIMES,
    is_readable,
    read_as,
    reading_of,
    widest,
)
from dpgrain.tables.sources.csv_rows import (
    LONGEST_BYTES,
    Mender,
    Oddities,
    Splitter,
    oddities,
    parts,
    without,
)
from dpgrain.tables.sources.duckdb_connection import folder_of
from dpgrain.tables.sources.file_cache import KeptFacts, state_of
from dpgrain.tables.sources.folders import CSV, Partition, is_plain
from dpgrain.tables.sources.large_texts import COPIED_ROWS, copy_texts, large_texts
from dpgrain.tables.sources.parquet_times import (
    OddTimes,
    copy_readable,
    far_days,
    names_of,
    odd_times,
    schema_of,
)
from dpgrain.tables.sources.read_errors import reading, unwritable
from dpgrain.tables.sources.schemas import described, schema_reader

# Column of the place of a row's file among those that are read, where no file has a column of its name.
_PLACE = "file_index"

# Bytes of a CSV file that DuckDB holds at a time. No row comes near that length: DuckDB would drop a
# longer row, and not know where the next one begins.
_BUFFER_BYTES = 2 * LONGEST_BYTES

# End of a name to which DuckDB has added a number, since it stands there twice.
_RENAMED = re.compile(r"_\d+\Z")


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
                    raise unwritable(self.name) from error
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
        raw = ", ".join(f"{text(column)}: 'VARCHAR'" for column in columns)
        return (
            f"read_csv({_listed(paths)}, auto_detect=false, header=true, "
            f"delim={text(self.delimiter)}, quote='\"', escape='\"', columns={{{raw}}}, "
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
        raise_alone(
            SchemaError(
                f"The file {path!r} has a column name that is not UTF-8 text; rename the column."
            )
        )
    if any(_RENAMED.search(name) for name in kinds):
        # DuckDB renames the second of two names that it holds to be one.
        require_names(names_of(path), f"The file {path!r}")
    return kinds


def _listed(paths: Sequence[str]) -> str:
    """Return the SQL of a list of files, whose names are no patterns."""
    return "[" + ", ".join(text(glob.escape(path)) for path in paths) + "]"


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


def _by_file(values: Sequence[str | None]) -> str:
    """Return the SQL of a value for all rows of each file, of files that are read together."""
    listed = ", ".join("NULL" if value is None else text(value) for value in values)
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


def _csv_header(path: str, delimiter: str) -> list[str]:
    try:
        # Only the first line is judged: what stands behind it is somebody's.
        line = _first_line(path)
        header = next(csv.reader([line.decode()], delimiter=delimiter), [])
    except (OSError, UnicodeError, csv.Error):
        # An error of decoding holds the line, which is a row where a file has no header.
        raise_alone(DataError(f"The file {path!r} cannot be read; check that it is UTF-8 text."))
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
