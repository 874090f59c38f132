"""The types of Polars, and the ways of giving a data frame of Polars."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
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
    import polars as pl
else:
    pl = lazy_import("polars")

UNITS: dict[Literal["ms", "us", "ns"], int] = {"ms": 10**3, "us": 10**6, "ns": 10**9}


def _plainly(dtype: Any) -> Column:
    return lambda raws: pl.Series(list(raws), dtype=dtype)


def _stored(dtype: Any, storage: Any) -> Column:
    """Return a function that takes a type's values as the integers that it keeps."""
    return lambda raws: pl.Series(list(raws), dtype=storage).cast(dtype)


def _unstated(*raws: Any) -> Cells:
    cells = [Cell(raw, UNSTATED) for raw in raws]
    return (cells[0], cells[1]), {f"odd {place}": cell for place, cell in enumerate(cells[2:])}


def _kinds() -> Iterator[Kind]:
    made: list[tuple[str, Meaning, Column, Cells, bool]] = [
        ("Null", "null", _plainly(pl.Null), ((Cell(None), Cell(None)), {}), False),
        (
            "Boolean",
            "truth",
            _plainly(pl.Boolean),
            ((Cell(True, True), Cell(False, False)), {}),
            True,
        ),
        ("String", "text", _plainly(pl.String), texts(bytes.decode), True),
        ("Date", "day", _stored(pl.Date, pl.Int32), days(), True),
        ("Binary", "unusable", _plainly(pl.Binary), _unstated(b"a", b"b", b"\xff"), False),
        ("Time", "unusable", _plainly(pl.Time), _unstated(*map(datetime.time, (1, 2, 23))), False),
    ]
    for bits in (8, 16, 32, 64, 128):
        whole, natural = getattr(pl, f"Int{bits}"), getattr(pl, f"UInt{bits}")
        common = bits < 128
        made.append((f"Int{bits}", "whole", _plainly(whole), wholes(bits), common))
        made.append((f"UInt{bits}", "whole", _plainly(natural), wholes(bits, signed=False), common))
    for bits, number in ((16, np.float16), (32, np.float32), (64, np.float64)):
        ends = np.finfo(number)
        cells = reals(float(ends.max), float(ends.smallest_subnormal))
        made.append(
            (f"Float{bits}", "real", _plainly(getattr(pl, f"Float{bits}")), cells, bits > 16)
        )
    for digits, places in ((9, 2), (38, 0), (38, 10)):
        name = f"Decimal({digits}, {places})"
        made.append(
            (name, "decimal", _plainly(pl.Decimal(digits, places)), decimals(digits, places), True)
        )
    # The names of an enumeration are public, a type of theirs.
    known = [cell.raw for cell in (*texts(bytes.decode)[0], *texts(bytes.decode)[1].values())]
    made.append(("Enum", "text", _plainly(pl.Enum(known)), texts(bytes.decode), True))
    made.append(("Categorical", "text", _plainly(pl.Categorical), texts(bytes.decode), True))
    for unit, per_second in UNITS.items():
        cells = instants(per_second)
        made.append(
            (f"Datetime[{unit}]", "time", _stored(pl.Datetime(unit), pl.Int64), cells, True)
        )
        for zone in ("UTC", "Europe/Paris"):
            column = _stored(pl.Datetime(unit, zone), pl.Int64)
            made.append((f"Datetime[{unit}, {zone}]", "moment", column, cells, True))
        spans = _stored(pl.Duration(unit), pl.Int64)
        made.append((f"Duration[{unit}]", "unusable", spans, _unstated(1, 2, 2**62), False))
    made += [
        ("List", "unusable", _plainly(pl.List(pl.Float64)), _unstated([1.0], [2.0], []), False),
        (
            "Array",
            "unusable",
            _plainly(pl.Array(pl.Float64, 2)),
            _unstated([1.0, 2.0], [2.0, 2.0]),
            False,
        ),
        (
            "Struct",
            "unusable",
            _plainly(pl.Struct({"a": pl.Int64})),
            _unstated({"a": 1}, {"a": 2}),
            False,
        ),
        ("Object", "unusable", _plainly(pl.Object), _unstated(Decimal(1), Decimal(2), {}), False),
    ]
    for name, what, column, cells, common in made:
        yield Kind(name, what, column, *cells, common=common)


def _parquet(frame: pl.DataFrame, folder: Path) -> Path:
    if any(dtype == pl.Duration for dtype in frame.dtypes):
        raise TypeError("Parquet has no spans of time, and keeps their whole numbers.")
    if any(dtype in (pl.Int128, pl.UInt128) for dtype in frame.dtypes):
        raise TypeError("Nothing but Polars reads such integers from Parquet.")
    path = folder / "rows.parquet"
    frame.write_parquet(path)
    return path


def polars_system() -> System:
    """Return the types of Polars, which need not be installed.

    >>> polars_system().kinds["Datetime[ms]"].meaning
    'time'
    """
    return System(
        "Polars",
        {kind.name: kind for kind in _kinds()},
        ("Int64", "String", "Float64"),
        lambda value: value,
        lambda columns: pl.DataFrame(dict(columns)),
        {
            "frame": lambda frame, _: frame,
            "lazy": lambda frame, _: frame.lazy(),
            "Parquet of Polars": _parquet,
        },
        queries=("lazy",),
    )
