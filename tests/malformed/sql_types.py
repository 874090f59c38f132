"""The types of DuckDB and of Spark, with expressions of SQL as cells, and of columns of text."""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.malformed.arrow_types import database, kept, parquet
from tests.malformed.cells import (
    UNSTATED,
    Cell,
    Cells,
    Kind,
    Meaning,
    System,
    texts,
    wholes,
)

_DAY = 86_400 * 10**6
# Microseconds since 1970 of 2024-05-01 12:00.
_NOON = 1_714_564_800 * 10**6


def _typed(kind: str) -> Callable[[Sequence[Any]], list[str]]:
    """Return a function to the SQL of each cell, with its type."""
    return lambda raws: [f"CAST({'NULL' if raw is None else raw} AS {kind})" for raw in raws]


def _stated(*cells: tuple[str, Any]) -> Cells:
    """Return SQL cells with their values, the first two plain."""
    made = [Cell(raw, value) for raw, value in cells]
    return (made[0], made[1]), {cell.raw: cell for cell in made[2:]}


def _unstated(*raws: str) -> Cells:
    return _stated(*((raw, UNSTATED) for raw in raws))


def _wholes(bits: int, *, signed: bool = True) -> Cells:
    plain, odd = wholes(bits, signed=signed)
    text = {name: Cell(f"'{cell.raw}'", cell.value) for name, cell in odd.items()}
    return tuple(Cell(str(cell.raw), cell.value) for cell in plain), text


def _times() -> Cells:
    return _stated(
        ("'2024-05-01 12:00:00'", _NOON),
        ("'2024-05-02 12:00:00'", _NOON + _DAY),
        ("'infinity'", math.inf),
        ("'-infinity'", -math.inf),
        ("'1969-12-31 23:59:59'", -(10**6)),
        ("'10000-01-01 00:00:00'", 253_402_300_800 * 10**6),
        ("'0044-03-15 (BC) 12:00:00'", UNSTATED),
        ("'290000-01-01 00:00:00'", UNSTATED),
    )


def _of_nanoseconds() -> Cells:
    return _stated(
        ("'2024-05-01 12:00:00'", _NOON),
        ("'2024-05-02 12:00:00'", _NOON + _DAY),
        ("'infinity'", math.inf),
        ("'-infinity'", -math.inf),
        ("'1969-12-31 23:59:59.999999999'", -1),
        ("'2024-05-01 23:59:59.999999999'", _NOON + _DAY // 2 - 1),
        ("'1677-09-22 00:00:00'", UNSTATED),
        ("'2262-04-11 00:00:00'", UNSTATED),
    )


def _reals() -> Cells:
    return _stated(
        ("1.5", 1.5),
        ("2.0", 2.0),
        ("'NaN'", math.nan),
        ("'infinity'", math.inf),
        ("'-infinity'", -math.inf),
        ("1e-45", UNSTATED),
        ("-3e38", UNSTATED),
    )


def _duckdb_kinds() -> Iterator[Kind]:
    table: list[tuple[str, Meaning, Cells, bool]] = [
        ("BOOLEAN", "truth", _stated(("true", True), ("false", False)), True),
        ("FLOAT", "real", _reals(), True),
        ("DOUBLE", "real", _reals(), True),
        (
            "DECIMAL(4, 1)",
            "decimal",
            _stated(("1.0", Decimal("1.0")), ("2.5", Decimal("2.5")), ("999.9", Decimal("999.9"))),
            True,
        ),
        (
            "DECIMAL(38, 10)",
            "decimal",
            _stated(("1", Decimal("1.0000000000")), ("2.5", Decimal("2.5000000000"))),
            True,
        ),
        (
            "VARCHAR",
            "text",
            _stated(
                ("'a'", "a"),
                ("'b'", "b"),
                ("''", ""),
                ("chr(0)", "\x00"),
                ("'\U0010ffff'", "\U0010ffff"),
            ),
            True,
        ),
        ("ENUM('a', 'b', '')", "text", _stated(("'a'", "a"), ("'b'", "b"), ("''", "")), True),
        ("JSON", "text", _stated(("'1'", "1"), ("'\"a\"'", '"a"'), ("'null'", "null")), False),
        (
            "UUID",
            "text",
            _stated(
                *(
                    (f"'{u}'", u)
                    for u in (f"00000000-0000-0000-0000-00000000000{i}" for i in (1, 2))
                ),
                ("'ffffffff-ffff-ffff-ffff-ffffffffffff'", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
            ),
            False,
        ),
        ("BIT", "text", _stated(("'01'", "01"), ("'1'", "1"), ("'0'", "0")), False),
        ("BIGNUM", "whole", _stated(("'1'", 1), ("'2'", 2), (f"'{10**60}'", 10**60)), False),
        (
            "DATE",
            "day",
            _stated(
                ("'2024-05-01'", 19_844),
                ("'2024-05-02'", 19_845),
                ("'infinity'", math.inf),
                ("'-infinity'", -math.inf),
                ("'0001-01-01'", -719_162),
                ("'5881580-07-10'", UNSTATED),
            ),
            True,
        ),
        ("TIMESTAMP", "time", _times(), True),
        ("TIMESTAMP_S", "time", _times(), True),
        ("TIMESTAMP_MS", "time", _times(), True),
        ("TIMESTAMP_NS", "time", _of_nanoseconds(), True),
        ("TIMESTAMPTZ", "moment", _times(), True),
        ("TIMESTAMPTZ_NS", "moment", _of_nanoseconds(), True),
        ("TIME", "unusable", _unstated("'01:00:00'", "'02:00:00'", "'24:00:00'"), False),
        ("TIME_NS", "unusable", _unstated("'01:00:00'", "'02:00:00'", "'24:00:00'"), False),
        (
            "TIMETZ",
            "unusable",
            _unstated("'01:00:00+00'", "'02:00:00+01'", "'24:00:00+15:59'"),
            False,
        ),
        ("INTERVAL", "unusable", _unstated("'1 month'", "'2 days'", "'-200000 years'"), False),
        ("BLOB", "unusable", _unstated("'a'", "'b'", r"'\xFF\x00'"), False),
        (
            "GEOMETRY",
            "unusable",
            _unstated("'POINT (0 1)'", "'POINT (1 1)'", "'POINT EMPTY'"),
            False,
        ),
        ("VARIANT", "unusable", _unstated("1", "2", "'a'", "{'a': 1}"), False),
        ("DOUBLE[]", "unusable", _unstated("[1]", "[2]", "[]"), False),
        ("DOUBLE[2]", "unusable", _unstated("[1, 2]", "[2, 2]", "[NULL, NULL]"), False),
        ("STRUCT(a INTEGER)", "unusable", _unstated("{'a': 1}", "{'a': 2}"), False),
        (
            "MAP(INTEGER, INTEGER)",
            "unusable",
            _unstated("MAP {1: 1}", "MAP {2: 1}", "MAP {}"),
            False,
        ),
        ("UNION(a INTEGER, b VARCHAR)", "unusable", _unstated("1", "2", "'x'"), False),
        ('"NULL"', "null", ((Cell(None), Cell(None)), {}), False),
    ]
    for bits, name in ((8, "TINYINT"), (16, "SMALLINT"), (32, "INTEGER"), (64, "BIGINT")):
        table.append((name, "whole", _wholes(bits), True))
        table.append((f"U{name}", "whole", _wholes(bits, signed=False), True))
    # Arrow has 38 digits, and DuckDB does not look which numbers fit when it hands them over.
    for name, cells in (("HUGEINT", _wholes(128)), ("UHUGEINT", _wholes(128, signed=False))):
        beyond = {name: Cell(cell.raw, UNSTATED) for name, cell in cells[1].items() if cell.value}
        table.append((name, "whole", (cells[0], {**cells[1], **beyond}), False))
    for name, what, cells, common in table:
        yield Kind(name, what, _typed(name), *cells, common=common)


def select(columns: Mapping[str, Sequence[str]], quote: str = '"') -> str:
    """Return the SQL of rows with expressions as cells.

    >>> select({"a": ["1", "2"]})
    'SELECT 1 AS "a" UNION ALL SELECT 2 AS "a"'
    """
    names = [f"{quote}{name.replace(quote, 2 * quote)}{quote}" for name in columns]
    rows = zip(*columns.values(), strict=True)
    listed = (", ".join(f"{c} AS {n}" for c, n in zip(row, names, strict=True)) for row in rows)
    return " UNION ALL ".join(f"SELECT {row}" for row in listed)


def _literal(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else repr(value)


def _copied(table: str, folder: Path) -> Path:
    path = folder / "rows.parquet"
    database().execute(f"COPY {table} TO '{path}' (FORMAT parquet)")
    return path


DUCKDB = System(
    "DuckDB",
    {kind.name: kind for kind in _duckdb_kinds()},
    ("BIGINT", "VARCHAR", "DOUBLE"),
    _literal,
    lambda columns: kept(select(columns)),
    {
        "relation": lambda table, _: database().table(table),
        "Parquet of DuckDB": _copied,
        "Arrow of DuckDB": lambda table, _: database().table(table).to_arrow_table(),
    },
)


# -- text with a stated type --


def _bytes(raws: Sequence[Any]) -> list[bytes | None]:
    return list(raws)


def _written(*cells: tuple[bytes, Any]) -> Cells:
    made = [Cell(raw, value) for raw, value in cells]
    own = {repr(cell.raw): cell for cell in made[2:]}
    unread = {
        name: Cell(text, None)
        for name, text in (
            ("word", b"x"),
            ("not UTF-8", b"\xff"),
            ("NUL", b"\x00"),
            ("long", b"1" * 100_000),
        )
    }
    return (made[0], made[1]), {**unread, **own}


def _text_kinds() -> Iterator[Kind]:
    noon, next_noon = (b"2024-05-01 12:00:00", _NOON), (b"2024-05-02 12:00:00", _NOON + _DAY)
    odd_times = ((b"infinity", math.inf), (b"1969-12-31 23:59:59.999999", -1), (b"0", None))
    table: list[tuple[str, Meaning, Cells, bool]] = [
        ("BOOLEAN", "truth", _written((b"true", True), (b"false", False), (b"maybe", None)), True),
        (
            "DOUBLE",
            "real",
            _written((b"1.5", 1.5), (b"2.0", 2.0), (b"NaN", UNSTATED), (b"1e999", UNSTATED)),
            True,
        ),
        ("FLOAT", "real", _written((b"1.5", 1.5), (b"2.0", 2.0), (b"1e300", UNSTATED)), True),
        (
            "DECIMAL(9,2)",
            "decimal",
            _written((b"1.50", Decimal("1.50")), (b"2.00", Decimal("2.00")), (b"99999999", None)),
            True,
        ),
        (
            "DATE",
            "day",
            _written(
                (b"2024-05-01", 19_844),
                (b"2024-05-02", 19_845),
                (b"infinity", math.inf),
                (b"2024-02-30", None),
            ),
            True,
        ),
        ("TIMESTAMP", "time", _written(noon, next_noon, *odd_times), True),
        ("TIMESTAMP_S", "time", _written(noon, next_noon, (b"0", None)), False),
        ("TIMESTAMP_MS", "time", _written(noon, next_noon, (b"0", None)), False),
        (
            "TIMESTAMP_NS",
            "time",
            _written(noon, next_noon, (b"9999-01-01", 2_932_532 * _DAY)),
            False,
        ),
        ("TIMESTAMPTZ", "moment", _written(noon, next_noon, *odd_times), True),
        (
            "TIMESTAMPTZ_NS",
            "moment",
            _written(noon, next_noon, (b"9999-01-01", 2_932_532 * _DAY)),
            False,
        ),
        (
            "UUID",
            "text",
            _written(
                (b"00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000001"),
                (b"00000000-0000-0000-0000-000000000002", "00000000-0000-0000-0000-000000000002"),
            ),
            False,
        ),
        ("TIME", "unusable", _written((b"01:00:00", UNSTATED), (b"02:00:00", UNSTATED)), False),
        ("INTERVAL", "unusable", _written((b"1 day", UNSTATED), (b"2 days", UNSTATED)), False),
        ("BLOB", "unusable", _written((b"a", UNSTATED), (b"b", UNSTATED)), False),
        ("DOUBLE[2]", "unusable", _written((b"[1, 2]", UNSTATED), (b"[2, 2]", UNSTATED)), False),
        ("JSON", "text", _written((b"1", "1"), (b"2", "2")), False),
    ]
    for bits, name in (
        (8, "TINYINT"),
        (16, "SMALLINT"),
        (32, "INTEGER"),
        (64, "BIGINT"),
        (128, "HUGEINT"),
    ):
        beyond = str(2**bits).encode()
        cells = _written((b"1", 1), (b"2", 2), (beyond, None))
        table.append((name, "whole", cells, bits < 128))
        table.append((f"U{name}", "whole", cells, False))
    for name, what, cells, common in table:
        yield Kind(name, what, _bytes, *cells, common=common, stated=name)
    yield Kind("text", "text", _bytes, *_of_csv(), common=True)


def _of_csv() -> Cells:
    plain, odd = texts()
    # An empty value and a missing one are written the same; line endings are the reader's concern.
    return plain, {name: cell for name, cell in odd.items() if name not in ("empty", "line ends")}


def _bytes_of(value: Any) -> bytes:
    return str(value).encode()


def _csv(columns: Mapping[str, Sequence[bytes | None]], delimiter: str = ",") -> bytes:
    head = io.StringIO()
    csv.writer(head, delimiter=delimiter, lineterminator="\n").writerow(columns)
    mark = delimiter.encode()
    rows = (
        mark.join(b"" if c is None else b'"' + c.replace(b'"', b'""') + b'"' for c in row) + b"\n"
        for row in zip(*columns.values(), strict=True)
    )
    return head.getvalue().encode() + b"".join(rows)


def _write_csv(columns: Mapping[str, Any], folder: Path) -> Path:
    path = folder / "rows.csv"
    path.write_bytes(_csv(columns))
    return path


def _write_packed(columns: Mapping[str, Any], folder: Path) -> Path:
    path = folder / "rows.csv.gz"
    path.write_bytes(gzip.compress(_csv(columns), 1))
    return path


def _as_arrow(columns: Mapping[str, Any], _: Path) -> pa.Table:
    return pa.table(
        {name: pa.array(raws, pa.binary()).view(pa.string()) for name, raws in columns.items()}
    )


TEXT = System(
    "text",
    {kind.name: kind for kind in _text_kinds()},
    ("BIGINT", "text", "DOUBLE"),
    _bytes_of,
    dict,
    {
        "CSV": _write_csv,
        "packed CSV": _write_packed,
        "Arrow text": _as_arrow,
        "Parquet text": lambda columns, folder: parquet(_as_arrow(columns, folder), folder),
    },
)


# -- Spark --


def _spark_kinds() -> Iterator[Kind]:
    table: list[tuple[str, Meaning, Cells, bool]] = [
        ("BOOLEAN", "truth", _stated(("true", True), ("false", False)), True),
        ("FLOAT", "real", _reals(), True),
        ("DOUBLE", "real", _reals(), True),
        (
            "DECIMAL(4,1)",
            "decimal",
            _stated(("1.0", Decimal("1.0")), ("2.5", Decimal("2.5"))),
            True,
        ),
        (
            "STRING",
            "text",
            _stated(("'a'", "a"), ("'b'", "b"), ("''", ""), ("CAST(X'FF' AS STRING)", UNSTATED)),
            True,
        ),
        (
            "DATE",
            "day",
            _stated(
                ("'2024-05-01'", 19_844),
                ("'2024-05-02'", 19_845),
                ("'0001-01-01'", -719_162),
                ("'+290000-01-01'", UNSTATED),
            ),
            True,
        ),
        (
            "TIMESTAMP",
            "moment",
            _stated(
                ("'2024-05-01 12:00:00Z'", _NOON),
                ("'2024-05-02 12:00:00Z'", _NOON + _DAY),
                ("timestamp_micros(9223372036854775807)", UNSTATED),
                ("timestamp_micros(-9223372036854775808)", UNSTATED),
            ),
            True,
        ),
        (
            "TIMESTAMP_NTZ",
            "time",
            _stated(
                ("'2024-05-01 12:00:00'", _NOON),
                ("'2024-05-02 12:00:00'", _NOON + _DAY),
                ("'+290000-01-01 00:00:00'", UNSTATED),
            ),
            True,
        ),
        ("BINARY", "unusable", _unstated("X'00'", "X'01'", "X''"), False),
        (
            "INTERVAL DAY TO SECOND",
            "unusable",
            _unstated("INTERVAL '1 00:00:00' DAY TO SECOND", "INTERVAL '2 00:00:00' DAY TO SECOND"),
            False,
        ),
        (
            "INTERVAL YEAR TO MONTH",
            "unusable",
            _unstated("INTERVAL '1-0' YEAR TO MONTH", "INTERVAL '2-0' YEAR TO MONTH"),
            False,
        ),
        ("ARRAY<DOUBLE>", "unusable", _unstated("array(1)", "array(2)", "array()"), False),
        ("MAP<INT,INT>", "unusable", _unstated("map(1, 1)", "map(2, 1)"), False),
        (
            "STRUCT<a:INT>",
            "unusable",
            _unstated("named_struct('a', 1)", "named_struct('a', 2)"),
            False,
        ),
    ]
    for bits, name in ((8, "TINYINT"), (16, "SMALLINT"), (32, "INT"), (64, "BIGINT")):
        table.append((name, "whole", _wholes(bits), True))
    for name, what, cells, common in table:
        yield Kind(name, what, _typed(name), *cells, common=common)


def spark_system(session: Any) -> System:
    """Return the types of Spark; their tables are frames of a session.

    >>> sorted(spark_system(None).ways)
    ['Spark']
    """

    def table(columns: Mapping[str, Sequence[str]]) -> Any:
        return session.sql(select(columns, "`"))

    return System(
        "Spark",
        {kind.name: kind for kind in _spark_kinds()},
        ("BIGINT", "STRING", "DOUBLE"),
        _literal,
        table,
        {"Spark": lambda frame, _: frame},
        queries=("Spark",),
    )
