"""The types of Arrow, and the ways of giving a table of Arrow."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tests.malformed.cells import (
    UNSTATED,
    Cell,
    Cells,
    Column,
    Kind,
    Meaning,
    System,
    days,
    decimals,
    instants,
    reals,
    texts,
    wholes,
)

from dpgrain._lazy_import import lazy_import

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow.parquet as pq
else:
    duckdb, pd, pl = lazy_import("duckdb"), lazy_import("pandas"), lazy_import("polars")
    pq = lazy_import("pyarrow.parquet")

#: Ticks in a second of each unit of time.
UNITS: Mapping[str, int] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
ZONES = ("UTC", "Europe/Paris", "+05:30")
# Types on which Polars panics, or which it converts to other values: it has no seconds.
_NOT_IN_POLARS = (
    *("decimal256", "list_view", "run_end_encoded", "month_day_nano", "map"),
    *("date64", "timestamp[s", "duration[s", "time32[s"),
)
# Context with more digits than any number here.
_WIDE = Context(prec=100)


def _decimal(bits: int, digits: int, places: int) -> Column:
    """Return a function to a column of scaled numbers, which may have more digits than the type."""
    kind = getattr(pa, f"decimal{bits}")(digits, places)
    size = bits // 8

    def column(raws: Sequence[Any]) -> pa.Array:
        scaled = [0 if raw is None else int(raw.scaleb(places, _WIDE)) for raw in raws]
        data = b"".join(number.to_bytes(size, "little", signed=True) for number in scaled)
        there = pa.array([raw is not None for raw in raws]).buffers()[1]
        return pa.Array.from_buffers(kind, len(raws), [there, pa.py_buffer(data)])

    return column


def _too_wide(bits: int, digits: int, places: int) -> Any:
    """Return decimals, some with more digits than the type declares."""
    plain, odd = decimals(digits, places)
    ends = {"most stored": 2 ** (bits - 1) - 1, "least stored": -(2 ** (bits - 1))}
    stored = {
        name: Cell(Decimal(end).scaleb(-places, _WIDE), UNSTATED) for name, end in ends.items()
    }
    return plain, {**odd, **stored}


def _plainly(kind: pa.DataType) -> Column:
    return lambda raws: pa.array(raws, kind)


def _stored(kind: pa.DataType, storage: pa.DataType) -> Column:
    """Return a function that puts integers or bytes where a type has its values, unseen."""
    return lambda raws: pa.array(raws, storage).view(kind)


def _text(kind: pa.DataType, storage: pa.DataType) -> Column:
    return lambda raws: pa.array(raws, pa.binary()).cast(storage).view(kind)


def _of(inner: Column, outer: Callable[[pa.Array], pa.Array]) -> Column:
    return lambda raws: outer(inner(raws))


def _lists(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values)


def _maps(values: pa.Array) -> pa.Array:
    ends, keys = pa.array(range(len(values) + 1), pa.int32()), pa.array(range(len(values)))
    return pa.MapArray.from_arrays(ends, keys, values)


def _extension(kind: pa.DataType, storage: pa.DataType) -> Column:
    return lambda raws: pa.ExtensionArray.from_storage(kind, pa.array(raws, storage))


def _some(*raws: Any) -> Cells:
    """Return cells without a specified reading, the first two plain."""
    cells = [Cell(raw, UNSTATED) for raw in raws]
    return (cells[0], cells[1]), {f"odd {place}": cell for place, cell in enumerate(cells[2:])}


def _kinds() -> Iterator[Kind]:
    made: list[tuple[str, Meaning, Column, Any, bool]] = [
        ("null", "null", _plainly(pa.null()), ((Cell(None), Cell(None)), {}), False),
        (
            "bool",
            "truth",
            _plainly(pa.bool_()),
            ((Cell(True, True), Cell(False, False)), {}),
            True,
        ),
    ]
    for bits in (8, 16, 32, 64):
        made += [
            (f"int{bits}", "whole", _plainly(getattr(pa, f"int{bits}")()), wholes(bits), True),
            (
                f"uint{bits}",
                "whole",
                _plainly(getattr(pa, f"uint{bits}")()),
                wholes(bits, signed=False),
                True,
            ),
        ]
    for name, kind, dtype in (
        ("half", pa.float16(), np.float16),
        ("float", pa.float32(), np.float32),
        ("double", pa.float64(), np.float64),
    ):
        ends = np.finfo(dtype)
        column = _plainly(kind)
        cells = reals(float(ends.max), float(ends.smallest_subnormal))
        made.append((name, "real", column, cells, name != "half"))
    for bits, digits in ((32, 9), (64, 18), (128, 38), (256, 76)):
        for places in (0, 2):
            name = f"decimal{bits}({digits}, {places})"
            column = _decimal(bits, digits, places)
            cells = _too_wide(bits, digits, places)
            made.append((name, "decimal", column, cells, bits == 128))
    text: dict[str, Column] = {
        "string": _text(pa.string(), pa.binary()),
        "large string": _text(pa.large_string(), pa.large_binary()),
        "string view": _text(pa.string_view(), pa.binary_view()),
    }
    made += [(name, "text", column, texts(), True) for name, column in text.items()]
    made += [("date32", "day", _stored(pa.date32(), pa.int32()), days(), True)]
    made += [("date64", "day", _stored(pa.date64(), pa.int64()), _date64(), False)]
    for unit, ticks in UNITS.items():
        column = _stored(pa.timestamp(unit), pa.int64())
        made.append((f"timestamp[{unit}]", "time", column, instants(ticks), True))
        for zone in ZONES:
            column = _stored(pa.timestamp(unit, zone), pa.int64())
            name = f"timestamp[{unit}, {zone}]"
            made.append((name, "moment", column, instants(ticks), True))
        far = (1, 2, 2**62, -(2**62))
        made.append(
            (
                f"duration[{unit}]",
                "unusable",
                _stored(pa.duration(unit), pa.int64()),
                _some(*far),
                False,
            )
        )
    for unit in ("s", "ms"):
        column = _stored(pa.time32(unit), pa.int32())
        made.append((f"time32[{unit}]", "unusable", column, _some(1, 2, -1, 2**31 - 1), False))
    for unit in ("us", "ns"):
        column = _stored(pa.time64(unit), pa.int64())
        made.append((f"time64[{unit}]", "unusable", column, _some(1, 1000, 1001, -1, 2**62), False))
    spans = pa.month_day_nano_interval()
    made.append(("interval", "unusable", _plainly(spans), _some((1, 2, 3), (0, 0, 1)), False))
    bytes_ = _some(b"aa", b"bb", b"\xff\x00")
    for name, kind in (
        ("binary", pa.binary()),
        ("large binary", pa.large_binary()),
        ("binary view", pa.binary_view()),
        ("fixed-size binary", pa.binary(2)),
    ):
        made.append((name, "unusable", _plainly(kind), bytes_, False))
    yield from (
        Kind(name, what, column, plain, odd, common)
        for name, what, column, (plain, odd), common in made
    )
    yield from _encoded({name: (what, column, cells) for name, what, column, cells, _ in made})
    ids = [uuid.UUID(int=number) for number in (1, 2, 2**128 - 1)]
    named = [Cell(each.bytes, str(each)) for each in ids]
    yield Kind(
        "uuid",
        "text",
        _extension(pa.uuid(), pa.binary(16)),
        (named[0], named[1]),
        {"most": named[2]},
    )
    json = _extension(pa.json_(), pa.string())
    yield Kind("json", "text", json, *_as_text('{"a": 1}', "2", "no json", "", "\x00"))
    yield Kind("bool8", "truth", _extension(pa.bool8(), pa.int8()), *_bool8())


def _as_text(*raws: str) -> Cells:
    cells = [Cell(raw, raw) for raw in raws]
    return (cells[0], cells[1]), {f"odd {place}": cell for place, cell in enumerate(cells[2:])}


def _bool8() -> Cells:
    return (Cell(0, False), Cell(1, True)), {"two": Cell(2, True), "below": Cell(-1, True)}


def _date64() -> Cells:
    """Return dates stored as milliseconds; fractional days have no reading."""
    day = 86_400_000
    plain, odd = days()
    stored = {name: Cell(cell.raw * day, cell.value, cell.or_missing) for name, cell in odd.items()}
    stored |= {
        "no day": Cell(-1, UNSTATED),
        "beyond": Cell(2**62, UNSTATED),
        "most": Cell(2**63 - 1, UNSTATED),
    }
    return tuple(Cell(cell.raw * day, cell.value) for cell in plain), stored


def _encoded(made: Mapping[str, tuple[Meaning, Column, Any]]) -> Iterator[Kind]:
    """Yield the types that wrap another one: dictionaries, runs, lists and similar."""
    for inner in ("int64", "string", "double", "date32", "timestamp[ns, UTC]", "timestamp[ms]"):
        what, column, (plain, odd) = made[inner]
        common = inner == "string"
        encoded = _of(column, pa.Array.dictionary_encode)
        # Some readers return a custom encoding as text, others as its contents.
        yield Kind(f"dictionary of {inner}", what, encoded, plain, odd, common)
        yield Kind(f"runs of {inner}", what, _of(column, pc.run_end_encode), plain, odd)
    nested: dict[str, Callable[[pa.Array], pa.Array]] = {
        "list": _lists,
        "large list": lambda values: _lists(values).cast(pa.large_list(values.type)),
        "list view": lambda values: pa.ListViewArray.from_arrays(
            pa.array(range(len(values)), pa.int32()),
            pa.array([1] * len(values), pa.int32()),
            values,
        ),
        "fixed-size list": lambda values: pa.FixedSizeListArray.from_arrays(values, 1),
        "struct": lambda values: pa.StructArray.from_arrays([values], ["a"]),
        "map": _maps,
    }
    for name, outer in nested.items():
        for inner in ("double", "timestamp[ms]"):
            _, column, (plain, odd) = made[inner]
            cells = tuple(Cell(cell.raw, UNSTATED) for cell in plain)
            odd = {key: Cell(cell.raw, UNSTATED) for key, cell in odd.items()}
            yield Kind(f"{name} of {inner}", "unusable", _of(column, outer), cells, odd)


def _reader(table: pa.Table, _: Path) -> pa.RecordBatchReader:
    return table.to_reader(5)


def parquet(table: pa.Table, folder: Path) -> Path:
    """Write a table into one Parquet file, and return its path.

    Raises:
        TypeError: if it has a type that Parquet stores as another one.
    """
    if any(pa.types.is_duration(kind) or kind == pa.bool8() for kind in table.schema.types):
        raise TypeError("Parquet keeps the whole numbers of these types, and not the types.")
    path = folder / "rows.parquet"
    pq.write_table(table, path)
    return path


def _int96(table: pa.Table, folder: Path) -> Path:
    """Write a table into a Parquet file with times as days and nanoseconds, like Spark.

    Raises:
        TypeError: if it has times with a zone, or one that these do not reach.
    """
    path = parquet(table, folder)
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    result = pq.ParquetFile(path, coerce_int96_timestamp_unit="s").read()
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        held = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not pa.types.is_timestamp(held):
            continue
        if held.tz is not None:
            raise TypeError("Days and nanoseconds have no zone.")
        ticks = table.column(name).cast(held).cast(pa.int64()).to_pylist()
        seconds = [None if each is None else each // UNITS[held.unit] for each in ticks]
        if result.column(name).cast(pa.int64()).to_pylist() != seconds:
            raise TypeError("Days begin in the year -4713, and are counted in 32 bits.")
    return path


def _several(table: pa.Table, folder: Path) -> list[Path]:
    """Write every fifth row into a separate file, by row groups of one row."""
    parquet(table, folder)
    paths = [folder / f"part{place}.parquet" for place in range(3)]
    size = max(table.num_rows // 3, 1)
    for place, path in enumerate(paths):
        part = table.slice(place * size, size if place < 2 else None)
        pq.write_table(part, path, row_group_size=2, use_dictionary=place == 1)
    return paths


def _pandas(table: pa.Table, _: Path) -> pd.DataFrame:
    columns = {
        name: pd.Series(pd.arrays.ArrowExtensionArray(table.column(name)))
        for name in table.column_names
    }
    return pd.DataFrame(columns)


@cache
def database() -> duckdb.DuckDBPyConnection:
    """Return the database of this process for tables of tests, which takes long to make."""
    return duckdb.connect()


_numbers = itertools.count()


def kept(select: str) -> str:
    """Keep the answer to a query as a table of the database, and return its name."""
    name = f"rows{next(_numbers)}"
    database().execute(f"CREATE TABLE {name} AS {select}")
    return name


def _relation(table: pa.Table, _: Path) -> duckdb.DuckDBPyRelation:
    database().register("given", table)
    return database().table(kept("SELECT * FROM given"))


def _polars(table: pa.Table, _: Path) -> pl.DataFrame:
    if any(name.startswith(_NOT_IN_POLARS) for name in map(str, table.schema.types)):
        raise TypeError("Polars has no such type.")
    return pl.DataFrame(pl.from_arrow(table))


ARROW = System(
    "Arrow",
    {kind.name: kind for kind in _kinds()},
    ("int64", "string", "double"),
    lambda value: value.encode() if isinstance(value, str) else value,
    pa.table,
    {
        "table": lambda table, _: table,
        "reader": _reader,
        "Parquet": parquet,
        "several Parquet files": _several,
        "Parquet of INT96": _int96,
        "pandas": _pandas,
        "Polars": _polars,
        "DuckDB": _relation,
    },
)
