"""Count faults in rows exactly before a release, for internal use only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from shlex import quote
from typing import TypeAlias, TypeVar

import pyarrow as pa

from dpgrain.tables.engines.derived_columns import base_source
from dpgrain.tables.engines.duckdb import DuckDB
from dpgrain.tables.engines.sql import (
    DATES,
    MARKS,
    TextFormat,
    cast_sql,
    key_sql,
    literal,
    quoted,
)
from dpgrain.tables.rows import TableRows
from dpgrain.tables.sources.column_types import BOOLEAN, DAY, TEXT, TIMES, is_number, read_as
from dpgrain.tables.sources.csv_files import CsvFiles
from dpgrain.tables.sources.csv_rows import ENCODINGS, MAX_ROW_BYTES
from dpgrain.tables.sources.duckdb_connection import translate_errors
from dpgrain.tables.sources.source import RegionSource
from dpgrain.tables.sources.typed_columns import TypedSource

#: DuckDB's name of each fault in a CSV line → description and remedy.
_FAULTS = {
    "INVALID ENCODING": "not {encoding} text: pass {others}",
    "MISSING COLUMNS": "too few values",
    "TOO MANY COLUMNS": "too many values",
    "UNQUOTED VALUE": "an unclosed quote",
}
# Formats of numbers and of dates in text; a decimal comma allows points between thousands.
_NUMBER_FORMATS = [
    {"decimal": decimal, "thousands": mark}
    for decimal in (".", ",")
    for mark in ("", *MARKS)
    if mark != decimal and (decimal, mark) != (",", ".")
]
_DATE_FORMATS = [{"dates": example} for example in DATES]
# Case-insensitive texts that exporters and people write for missing ids.
_MISSING = ("", "-", "?", "<na>", "n/a", "na", "nan", "nil", "none", "null", "undefined", "unknown")
Count = TypeVar("Count")
Listed: TypeAlias = Mapping[tuple[str, ...], Sequence[pa.Array]]
_REPEATED = (
    "rows that repeat another (all are counted; table.distinct() or --distinct '*' uses each once)"
)
_HEADING = "For internal use only: these exact counts are NOT private and must not be published."
_NO_ROWS = "There are no rows: a release would be charged, and publish only noise."


def check(
    table: TableRows,
    items: Sequence[str],
    weight: str | None,
    values: Sequence[str],
    bounds: tuple[float, float] | None,
    domain: Listed,
    zero: Sequence[str] = (),
) -> dict[str, int]:
    """Count for :meth:`~dpgrain.UserTable.check_counts`, with DuckDB for all engines.

    ``zero`` are additional columns of numbers, in which an invalid cell is treated as 0.
    """
    counts = _row_counts(table, items)
    weights = [] if weight is None else [weight]
    unread = _unreadable_columns(table, [*weights, *zero, *values])
    with DuckDB(table) as engine:
        counts |= _domain_counts(engine, domain)
        result = _count(engine, counts, items)
        if table.user is not None:
            user = key_sql(table.user, table.key_type(table.user))
            most = engine.query(
                f"SELECT coalesce(max(n), 0) AS n FROM (SELECT count(*) AS n FROM source "
                f"WHERE {user} IS NOT NULL GROUP BY {user})"
            )
            result["most records of one user"] = most.column("n")[0].as_py()
        columns = list(table.base_columns)
        repeated = engine.query(
            "SELECT coalesce(sum(n - 1), 0)::BIGINT AS n FROM (SELECT count(*) AS n FROM source "
            f"GROUP BY {', '.join(map(quoted, columns))})",
            columns,
        )
        result[_REPEATED] = repeated.column("n")[0].as_py()
    keys = [_base_column(table, item) for item in items]
    source_counts, derived_counts = _typed_counts(table, keys), dict[str, str]()
    # Other columns with a declared type are listed only if they have unreadable cells.
    other_counts = _typed_counts(table, None, without={*keys, *weights, *zero, *values})
    for column in dict.fromkeys([*weights, *zero, *values]):
        counted = derived_counts if column in table.derived else source_counts
        counted |= _number_counts(
            table, column, "weight" if column == weight else "value", bounds, column not in values
        )
    # Derived columns are not in the source.
    for rows, counted in ((_before_typing(table), source_counts), (table, derived_counts)):
        if counted:
            with DuckDB(rows) as engine:
                result |= _count(engine, counted, list(engine.table.base_columns))
    if other_counts:
        with DuckDB(_before_typing(table)) as engine:
            counted_cells = _count(engine, other_counts, list(engine.table.base_columns))
        result |= {text: cells for text, cells in counted_cells.items() if cells}
    dropped, lines = _line_counts(replace(table, source=base_source(table.source)))
    return {**dropped, **unread, **result, **lines}


def check_owners(table: TableRows, owners: Sequence[str]) -> dict[str, int]:
    """Count records and their owners, if a record may have several owners."""
    names = {owner: key_sql(owner, table.key_type(owner)) for owner in owners}
    owner_list = f"list_distinct([{', '.join(names.values())}])"
    with DuckDB(table) as engine:
        (row,) = engine.query(
            f"SELECT count(*) FILTER (len({owner_list}) = 0) AS nobodys FROM source", owners
        ).to_pylist()
        (people,) = engine.query(
            "SELECT count(*) AS people, coalesce(max(n), 0) AS most FROM (SELECT count(*) AS n FROM "
            f"(SELECT unnest({owner_list}) AS owner FROM source) GROUP BY owner)",
            owners,
        ).to_pylist()
    whole = base_source(table.source)
    lost = " OR ".join(
        f"({quoted(owner)} IS NOT NULL AND {sql} IS NULL)" for owner, sql in names.items()
    )
    with DuckDB(replace(table, source=whole, schema=whole.columns(), cells={})) as engine:
        (unread,) = engine.query(
            f"SELECT count(*) FILTER ({lost}) AS unread FROM source", owners
        ).to_pylist()
    return {
        "rows without an owner (dropped)": row["nobodys"],
        "rows with an unreadable owner name (dropped; counted over all rows)": unread["unread"],
        "owners with a record": people["people"],
        "most records of one owner": people["most"],
    }


def _unreadable_columns(table: TableRows, numbers: Sequence[str]) -> dict[str, int]:
    """Count the cells of text columns without any readable cell, or readable in another format."""
    source = base_source(table.source)
    typed = source if isinstance(source, TypedSource) else TypedSource(source, {})
    kinds, written, result = typed.source.columns(), typed.written, dict[str, int]()
    texts = [column for column in numbers if kinds.get(column) == TEXT]
    types = {**dict.fromkeys(texts, "DOUBLE"), **typed.types}
    if not types:
        return {}
    counted = {(column, None): f"count({quoted(column)})" for column in types} | {
        (column, each): f"count({cast_sql(column, kind, each)})"
        for column, kind in types.items()
        for each in (written, *_other_formats(kind, written))
    }
    with DuckDB(replace(table, source=typed.source, schema=kinds, user=None, cells={})) as engine:
        counts = _count(engine, counted, list(types))
    for column, kind in types.items():
        what, stated = kind + written.describe(kind), ""
        if column not in typed.types:
            what = "number"
            stated = (
                f" and types={{{column!r}: 'DOUBLE'}} in dg.read or --type {quote(column)}=double"
            )
        cells, known = counts[column, None], counts[column, written]
        if cells and not known:
            result[f"non-empty cells of {column!r}, none of which can be read as {what}"] = cells
        others = {each: counts[column, each] for each in _other_formats(kind, written)}
        for remedy in _best_formats(written, known, others):
            text = f"cells of {column!r} that would be readable with {remedy}{stated}"
            result[text] = max(others.values())
    return result


def _other_formats(kind: str, written: TextFormat) -> list[TextFormat]:
    """Return the other formats of text of a type."""
    read, formats = read_as(kind), _NUMBER_FORMATS
    if not is_number(read):
        formats = _DATE_FORMATS if read in (DAY, *TIMES) else []
    return [other for each in formats if (other := replace(written, **each)) != written]


def _best_formats(written: TextFormat, known: int, cells: Mapping[TextFormat, int]) -> list[str]:
    """Return the parameters of the simplest formats that read the most cells, more than known."""
    most = max(cells.values(), default=0)
    now = asdict(written)
    settings = [
        [f"{name}={value!r}" for name, value in asdict(each).items() if value != now[name]]
        for each, count in cells.items()
        if count == most > known
    ]
    fewest = min(map(len, settings), default=0)
    return [" and ".join(each) for each in settings if len(each) == fewest]


def format_counts(counts: Mapping[str, int]) -> str:
    """Format counts as text, one per line."""
    heading = f"{_HEADING} {_NO_ROWS}" if counts.get("rows") == 0 else _HEADING
    return "\n".join([heading, *(f"  {value:>14,}  {name}" for name, value in counts.items())])


def _count(engine: DuckDB, counts: Mapping[Count, str], used: Sequence[str]) -> dict[Count, int]:
    """Return the counts of SQL expressions in one query."""
    listed = ", ".join(f"{sql} AS n{place}" for place, sql in enumerate(counts.values()))
    (row,) = engine.query(f"SELECT {listed} FROM source", used).to_pylist()
    return dict(zip(counts, row.values(), strict=True))


def _row_counts(table: TableRows, items: Sequence[str]) -> dict[str, str]:
    """Return the counts of users and items as description → SQL."""
    counts = {"rows": "count(*)"}
    if table.user is not None:
        user = key_sql(table.user, table.schema[table.user])
        counts["rows without a user (dropped)"] = f"count(*) - count({user})"
        counts["users with a record"] = f"count(DISTINCT {user})"
        if table.schema[table.user] == TEXT:
            missing = ", ".join(map(literal, _MISSING))
            counts[
                "rows with a user such as NULL, n/a or unknown (each value is treated as one "
                "person)"
            ] = f"count(*) FILTER (lower(trim({user})) IN ({missing}))"
    for item in items:
        of = "" if len(items) == 1 else f" {item!r}"
        missing = f"rows without an item{of} (dropped)"
        counts[missing] = f"count(*) - count({key_sql(item, table.schema[item])})"
    return counts


def _domain_counts(engine: DuckDB, domain: Listed) -> dict[str, str]:
    """Return the counts of rows outside the public domain as description → SQL."""
    table = engine.table
    counts = {}
    for place, (keys, columns) in enumerate(domain.items()):
        names = [f"v{i}" for i in range(len(columns))]
        engine.register(f"domain{place}", pa.table(dict(zip(names, columns, strict=True))))
        sql = [key_sql(name, table.schema[name]) for name in keys]
        valid = " AND ".join(f"{name} IS NOT NULL" for name in sql)
        counts[f"rows with {', '.join(keys)} outside the domain (dropped)"] = (
            f"count(*) FILTER ({valid} AND ({', '.join(sql)}) NOT IN "
            f"(SELECT ({', '.join(names)}) FROM domain{place}))"
        )
    return counts


def _typed_counts(
    table: TableRows, columns: Iterable[str] | None, without: Collection[str] = ()
) -> dict[str, str]:
    """Return the counts of unreadable cells in some or all columns with a declared type."""
    source, counts = base_source(table.source), {}
    if not isinstance(source, TypedSource):
        return {}
    for column in dict.fromkeys(source.types if columns is None else columns):
        if (kind := source.types.get(column)) is None or column in without:
            continue
        lost = f"{quoted(column)} IS NOT NULL AND {cast_sql(column, kind, source.written)} IS NULL"
        counts[f"cells of {column!r} that cannot be read as {kind} (treated as missing)"] = (
            f"count(*) FILTER ({lost})"
        )
    return counts


def _base_column(table: TableRows, column: str) -> str:
    """Return the source column of a column of cells or days."""
    column = table.data_column(column)
    return table.days[column].of if column in table.days else column


def _number_counts(
    table: TableRows, column: str, role: str, bounds: tuple[float, float] | None, zero: bool
) -> dict[str, str]:
    """Return the counts of a column of numbers, as written in the source."""
    table.require(column, role)
    source, kind = base_source(table.source), table.schema[column]
    typed = source if isinstance(source, TypedSource) and column not in table.derived else None
    written = kind if typed is None else typed.source.columns()[column]
    text = written == TEXT and column not in table.cells
    if not text or is_number(kind):
        table.require_numbers([column], role, also=[BOOLEAN])
    written_as = TextFormat() if typed is None else typed.written
    stated = kind if is_number(kind) else "DOUBLE"
    plain = cast_sql(column, stated, written_as) if text else quoted(column)
    parsed = f"TRY_CAST({plain} AS DOUBLE)"
    name, unused = repr(column), "treated as 0" if zero else "dropped"
    missing = f"coalesce(trim({quoted(column)}::VARCHAR), '') = ''"
    counts = {
        f"missing cells of {name} ({unused})": f"count(*) FILTER ({missing})",
        f"non-numeric cells of {name} ({unused})": (
            f"count(*) FILTER ({parsed} IS NULL AND NOT {missing})"
        ),
    }
    counts[f"NaN or infinite cells of {name} ({unused})"] = (
        f"count(*) FILTER (NOT isfinite({parsed}))"
    )
    if role == "weight":
        counts[f"cells of {name} below 0 (treated as 0)"] = (
            f"count(*) FILTER (isfinite({parsed}) AND {parsed} < 0)"
        )
    if bounds is not None:
        low, high = map(float, bounds)
        counts[f"cells of {name} beyond the bounds (clamped)"] = (
            f"count(*) FILTER (isfinite({parsed}) AND NOT {parsed} BETWEEN {low} AND {high})"
        )
    return counts


def _before_typing(table: TableRows) -> TableRows:
    """Return the table before its text columns are converted, in the same region."""
    whole = base_source(table.source)
    if not isinstance(whole, TypedSource):
        return replace(table, cells={})
    source, read = (
        whole.source,
        {column: cast_sql(column, kind, whole.written) for column, kind in whole.types.items()},
    )
    if not table.scope.everything:
        source = RegionSource(source, table.scope, table.schema, read)
    return replace(table, source=source, schema=source.columns(), user=None, cells={})


def _line_counts(table: TableRows) -> tuple[dict[str, int], dict[str, int]]:
    """Count the dropped and the other lines of CSV files, over all rows, by reason."""
    source = table.source.source if isinstance(table.source, TypedSource) else table.source
    if not isinstance(source, CsvFiles):
        return {}, {}
    with DuckDB(_before_typing(table)) as engine:
        faults = source.faults(engine.connection)
        # Hashing reads each row in full; a plain count includes rows that DuckDB would drop.
        columns = list(source.columns())
        read = ", ".join(map(quoted, columns))
        counted = f"SELECT count(*) AS n FROM source WHERE hash({read}) IS NOT NULL"
        seen = engine.query(counted, columns)
        rows = seen.column("n")[0].as_py()
    with translate_errors(source.name):
        result = {
            "lines of CSV, including headers": sum(
                map(_count_lines, map(source.pieces, source.paths))
            )
        }
        lines = sum(map(_count_lines, source.repaired()))
    result[f"CSV rows dropped: longer than {MAX_ROW_BYTES:,} bytes"] = faults.too_long
    result["CSV rows dropped: characters after the quotes of a value, or an unclosed quote"] = (
        faults.broken
    )
    others = [f"encoding={each!r}" for each in ENCODINGS if each != source.encoding]
    known = {"encoding": source.encoding.upper(), "others": " or ".join(others)}
    dropped = {
        f"CSV lines dropped: {_FAULTS.get(kind, kind.lower()).format(**known)}": count
        for kind, count in faults.rejected.items()
    }
    result["CSV lines with more values than columns (the rest is ignored)"] = faults.longer
    lost = lines - len(source.paths) - rows
    inside = faults.inside + sum(faults.rejected.values())
    result["CSV lines that are empty or part of an unclosed quote"] = max(lost - inside, 0)
    return dropped, result


def _count_lines(pieces: Iterable[bytes]) -> int:
    last, count = b"\n", 0
    for piece in pieces:
        count += piece.count(b"\n")
        last = piece[-1:] or last
    return count + (last != b"\n")
