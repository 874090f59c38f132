"""Exact counts of faults in rows, for the curator alone, before a release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from dpgrain.tables.engines.derived import as_read
from dpgrain.tables.engines.duckdb import DuckDB
from dpgrain.tables.engines.sql import ISO, Written, key, number, quoted, tried
from dpgrain.tables.engines.sql import text as literal
from dpgrain.tables.rows import TableRows
from dpgrain.tables.sources.column_types import BOOLEAN, DAY, TEXT, TIMES, is_number, read_as
from dpgrain.tables.sources.csv_files import CsvFiles
from dpgrain.tables.sources.csv_rows import MAX_ROW_BYTES, read_pieces
from dpgrain.tables.sources.read_errors import translate_errors
from dpgrain.tables.sources.region_source import RegionSource
from dpgrain.tables.sources.typed_columns import TypedSource

#: Each fault of a line of CSV, by DuckDB's name for it, in words that say what the curator may do.
_FAULTS = {
    "INVALID ENCODING": "not UTF-8: convert the file, such as with iconv",
    "MISSING COLUMNS": "too few values",
    "TOO MANY COLUMNS": "too many values",
    "UNQUOTED VALUE": "an unclosed quote",
}
_THOUSANDS = r"^\s*[+-]?[0-9]{1,3}([.,' ][0-9]{3})+([.,][0-9]+)?\s*$"
_COMMA = r"^\s*[+-]?[0-9.]*,[0-9]+\s*$"
# Texts, in any case of letters, that exporters and people write where an id is missing.
_MISSING = ("", "-", "?", "<na>", "n/a", "na", "nan", "nil", "none", "null", "undefined", "unknown")
# Form of days written in another order than year, month, day.
_OTHER_DAYS = r"^\s*[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{2,4}\b"
Listed: TypeAlias = Mapping[tuple[str, ...], Sequence[pa.Array]]
_HEADING = "For internal use only: these exact counts are NOT private and must not be published."


def check(
    table: TableRows,
    items: Sequence[str],
    weight: str | None,
    values: Sequence[str],
    bounds: tuple[float, float] | None,
    domain: Listed,
    zero: Sequence[str] = (),
) -> dict[str, int]:
    """Count as :meth:`~dpgrain.UserTable.check_counts` does; DuckDB counts, whatever engine is chosen.

    Args:
        table: the table.
        items: the columns that name what is counted.
        weight: a column of weights.
        values: columns of numbers.
        bounds: (low, high); numbers beyond them are counted.
        domain: the public values, by the keys that they are values of.
        zero: further columns of numbers, whose other cells count 0.
    """
    counts = _counts_of_rows(table, items)
    weights = [] if weight is None else [weight]
    nothing = _reads_as_nothing(table, [*weights, *zero, *values])
    with DuckDB(table) as engine:
        counts |= _counts_of_domain(engine, domain)
        result = _answers(engine, counts, items)
        if table.user is not None:
            user = key(table.user, table.key_type(table.user))
            most = engine.ask(
                f"SELECT coalesce(max(n), 0) AS n FROM (SELECT count(*) AS n FROM source "
                f"WHERE {user} IS NOT NULL GROUP BY {user})"
            )
            result["most records of one user"] = most.column("n")[0].as_py()
        distinct = engine.ask(
            "SELECT count(*) AS n FROM (SELECT DISTINCT * FROM source)", _all_columns(table)
        )
        repeated = result["rows"] - distinct.column("n")[0].as_py()
        result["rows that repeat another (all are counted)"] = repeated
    numbers, made = _counts_of_typed(table, items), dict[str, str]()
    for column in dict.fromkeys([*weights, *zero, *values]):
        counted = made if column in table.derived else numbers
        counted |= _counts_of_numbers(
            table, column, "weight" if column == weight else "value", bounds, column not in values
        )
    # What an expression makes stands in no source.
    for rows, counted in ((_as_written(table), numbers), (table, made)):
        if counted:
            with DuckDB(rows) as engine:
                result |= _answers(engine, counted, _all_columns(engine.table))
    result |= _lines(replace(table, source=as_read(table.source)))
    return {**nothing, **result}


def check_owners(table: TableRows, owners: Sequence[str]) -> dict[str, int]:
    """Count for the curator what concerns owners, of whom a record may have several.

    Args:
        table: the records.
        owners: the columns that name owners.
    """
    names = {owner: key(owner, table.key_type(owner)) for owner in owners}
    held = f"list_distinct([{', '.join(names.values())}])"
    with DuckDB(table) as engine:
        (row,) = engine.ask(
            f"SELECT count(*) FILTER (len({held}) = 0) AS nobodys FROM source", owners
        ).to_pylist()
        (people,) = engine.ask(
            "SELECT count(*) AS people, coalesce(max(n), 0) AS most FROM (SELECT count(*) AS n FROM "
            f"(SELECT unnest({held}) AS owner FROM source) GROUP BY owner)",
            owners,
        ).to_pylist()
    whole = as_read(table.source)
    lost = " OR ".join(
        f"({quoted(owner)} IS NOT NULL AND {sql} IS NULL)" for owner, sql in names.items()
    )
    with DuckDB(replace(table, source=whole, schema=whole.columns(), cells={})) as engine:
        (unread,) = engine.ask(
            f"SELECT count(*) FILTER ({lost}) AS unread FROM source", owners
        ).to_pylist()
    return {
        "rows without an owner (dropped)": row["nobodys"],
        "rows with an unreadable owner name (dropped; counted over all rows)": unread["unread"],
        "owners with a record": people["people"],
        "most records of one owner": people["most"],
    }


def _reads_as_nothing(table: TableRows, numbers: Sequence[str]) -> dict[str, int]:
    """Count the cells of columns of text, in all rows, where none is of the type that is stated.

    Args:
        table: the table.
        numbers: columns that are taken as numbers.
    """
    source = as_read(table.source)
    typed = source if isinstance(source, TypedSource) else TypedSource(source, {})
    kinds, written = typed.source.columns(), typed.written
    asked = {
        column: (kind + written.of(kind), tried(column, kind, written))
        for column, kind in typed.types.items()
    }
    for column in numbers:
        if kinds.get(column) == TEXT:
            asked.setdefault(column, ("number", number(column)))
    if not asked:
        return {}
    counted = ", ".join(
        f"count({quoted(column)}) AS cells{place}, count({sql}) AS known{place}"
        for place, (column, (_, sql)) in enumerate(asked.items())
    )
    with DuckDB(replace(table, source=typed.source, schema=kinds, user=None, cells={})) as engine:
        (row,) = engine.ask(f"SELECT {counted} FROM source", list(asked)).to_pylist()
    return {
        f"non-empty cells of {column!r}, none of which can be read as {kind}": row[f"cells{place}"]
        for place, (column, (kind, _)) in enumerate(asked.items())
        if row[f"cells{place}"] and not row[f"known{place}"]
    }


def in_words(counts: Mapping[str, int]) -> str:
    """Return counts as text, a line each."""
    return "\n".join([_HEADING, *(f"  {value:>14,}  {name}" for name, value in counts.items())])


def _all_columns(table: TableRows) -> list[str]:
    """Return the columns of the source."""
    return [name for name in table.schema if name not in table.cells]


def _answers(engine: DuckDB, counts: dict[str, str], used: Sequence[str]) -> dict[str, int]:
    asked = ", ".join(f"{sql} AS n{place}" for place, sql in enumerate(counts.values()))
    (row,) = engine.ask(f"SELECT {asked} FROM source", used).to_pylist()
    return dict(zip(counts, row.values(), strict=True))


def _counts_of_rows(table: TableRows, items: Sequence[str]) -> dict[str, str]:
    """Return the counts of users and items for the report, as words → SQL."""
    counts = {"rows": "count(*)"}
    if table.user is not None:
        user = key(table.user, table.schema[table.user])
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
        counts[missing] = f"count(*) - count({key(item, table.schema[item])})"
    return counts


def _counts_of_domain(engine: DuckDB, domain: Listed) -> dict[str, str]:
    """Count the rows outside the public domain."""
    table = engine.table
    counts = {}
    for place, (keys, columns) in enumerate(domain.items()):
        names = [f"v{i}" for i in range(len(columns))]
        engine.register(f"domain{place}", pa.table(dict(zip(names, columns, strict=True))))
        sql = [key(name, table.schema[name]) for name in keys]
        held = " AND ".join(f"{name} IS NOT NULL" for name in sql)
        counts[f"rows with {', '.join(keys)} outside the domain (dropped)"] = (
            f"count(*) FILTER ({held} AND ({', '.join(sql)}) NOT IN "
            f"(SELECT ({', '.join(names)}) FROM domain{place}))"
        )
    return counts


def _counts_of_typed(table: TableRows, items: Sequence[str]) -> dict[str, str]:
    """Return the counts of columns of items of a stated type, taken as they are in the source."""
    source, counts = as_read(table.source), {}
    if not isinstance(source, TypedSource):
        return {}
    for column in dict.fromkeys(_behind(table, item) for item in items):
        if (kind := source.types.get(column)) is None:
            continue
        lost = f"{quoted(column)} IS NOT NULL AND {tried(column, kind, source.written)} IS NULL"
        counts[f"cells of {column!r} that cannot be read as {kind} (dropped)"] = (
            f"count(*) FILTER ({lost})"
        )
        if read_as(kind) in (DAY, *TIMES) and source.written.dates == ISO:
            other = f"regexp_matches({quoted(column)}::VARCHAR, {literal(_OTHER_DAYS)})"
            counts["of these look like dates in another order: pass dates='31.12.2025'"] = (
                f"count(*) FILTER ({lost} AND {other})"
            )
    return counts


def _behind(table: TableRows, column: str) -> str:
    """Return the source's column behind a column of cells or of days."""
    if column in table.cells:
        return _behind(table, table.cells[column].of)
    return table.days[column].of if column in table.days else column


def _counts_of_numbers(
    table: TableRows, column: str, role: str, bounds: tuple[float, float] | None, zero: bool
) -> dict[str, str]:
    """Return the counts of a column of numbers, taken as it is written in the source."""
    table.require(column, role)
    source, kind = as_read(table.source), table.schema[column]
    typed = source if isinstance(source, TypedSource) and column not in table.derived else None
    written = kind if typed is None else typed.source.columns()[column]
    text = written == TEXT and column not in table.cells
    if not text or is_number(kind):
        table.require_numbers([column], role, also=[BOOLEAN])
    written_as = Written() if typed is None else typed.written
    stated = kind if is_number(kind) else "DOUBLE"
    plain = tried(column, stated, written_as) if text else quoted(column)
    found = f"TRY_CAST({plain} AS DOUBLE)"
    name, unused = repr(column), "treated as 0" if zero else "dropped"
    counts = {f"non-numeric cells of {name} ({unused})": f"count(*) FILTER ({found} IS NULL)"}
    if text and written_as.decimal == ".":
        comma = f"regexp_matches({quoted(column)}::VARCHAR, '{_COMMA}')"
        counts["of these look like numbers with a decimal comma: pass decimal=','"] = (
            f"count(*) FILTER ({found} IS NULL AND {comma})"
        )
    if text:
        grouped = f"regexp_matches({quoted(column)}::VARCHAR, {literal(_THOUSANDS)})"
        counts["of these have thousands separators: write the numbers without them"] = (
            f"count(*) FILTER ({found} IS NULL AND {grouped})"
        )
    counts[f"NaN or infinite cells of {name} ({unused})"] = (
        f"count(*) FILTER (NOT isfinite({found}))"
    )
    if role == "weight":
        counts[f"cells of {name} below 0 (treated as 0)"] = (
            f"count(*) FILTER (isfinite({found}) AND {found} < 0)"
        )
    if bounds is not None:
        low, high = map(float, bounds)
        counts[f"cells of {name} beyond the bounds (clamped)"] = (
            f"count(*) FILTER (isfinite({found}) AND NOT {found} BETWEEN {low} AND {high})"
        )
    return counts


def _as_written(table: TableRows) -> TableRows:
    """Return the table before its columns of text are read as other types; the region stays."""
    whole = as_read(table.source)
    if not isinstance(whole, TypedSource):
        return replace(table, cells={})
    source, read = (
        whole.source,
        {column: tried(column, kind, whole.written) for column, kind in whole.types.items()},
    )
    if not table.scope.everything:
        source = RegionSource(source, table.scope, table.schema, read)
    return replace(table, source=source, schema=source.columns(), user=None, cells={})


def _lines(table: TableRows) -> dict[str, int]:
    """Count the lines of CSV files, of all rows, that are left out or cut, and why."""
    source = table.source.source if isinstance(table.source, TypedSource) else table.source
    if not isinstance(source, CsvFiles):
        return {}
    with DuckDB(_as_written(table)) as engine:
        faults = source.faults(engine.connection)
        # A row is counted as it is read in full: DuckDB counts rows unseen that it would leave out.
        columns = list(source.columns())
        read = ", ".join(map(quoted, columns))
        counted = f"SELECT count(*) AS n FROM source WHERE hash({read}) IS NOT NULL"
        seen = engine.ask(counted, columns)
        rows = seen.column("n")[0].as_py()
    with translate_errors(source.name):
        result = {
            "lines of CSV, including headers": sum(map(_lines_of, map(read_pieces, source.paths)))
        }
        kept = sum(map(_lines_of, source.repaired()))
    result[f"CSV rows dropped: longer than {MAX_ROW_BYTES:,} bytes"] = faults.too_long
    result["CSV rows dropped: characters after the quotes of a value, or an unclosed quote"] = (
        faults.broken
    )
    for kind, lines in faults.rejected.items():
        result[f"CSV lines dropped: {_FAULTS.get(kind, kind.lower())}"] = lines
    result["CSV lines with more values than columns (the rest is ignored)"] = faults.longer
    lost = kept - len(source.paths) - rows
    inside = faults.inside + sum(faults.rejected.values())
    result["CSV lines that are empty or part of an unclosed quote"] = max(lost - inside, 0)
    return result


def _lines_of(pieces: Iterable[bytes]) -> int:
    last, count = b"\n", 0
    for piece in pieces:
        count += piece.count(b"\n")
        last = piece[-1:] or last
    return count + (last != b"\n")
