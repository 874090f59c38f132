"""The types of pandas, and the ways of giving a data frame."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tests.malformed.arrow_types import UNITS
from tests.malformed.cells import (
    UNSTATED,
    Cell,
    Cells,
    Kind,
    Meaning,
    System,
    instants,
    reals,
    texts,
    wholes,
)
from tests.malformed.objects import objects

from dpgrain._lazy_import import lazy_import

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazy_import("pandas")

_NOTHING = -(2**63)  # the ticks of NaT
_FULL = {"bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}


def _frame_array(values: Any, dtype: Any) -> Any:
    return pd.array(values, dtype=dtype)


def _array(dtype: str, nothing: Any) -> Callable[[Sequence[Any]], Any]:
    """Return a function to a NumPy column, which has no null except one of its values."""
    return lambda raws: pd.Series(
        np.array([nothing if raw is None else raw for raw in raws], dtype=dtype)
    )


def _ticks(unit: str, kind: str = "M8", zone: str = "") -> Callable[[Sequence[Any]], Any]:
    def column(raws: Sequence[Any]) -> Any:
        ticks = np.array([_NOTHING if raw is None else raw for raw in raws], dtype=np.int64)
        result = pd.Series(ticks.view(f"{kind}[{unit}]"))
        # The ticks are counted in UTC, whatever the displayed zone.
        return result.dt.tz_localize("UTC").dt.tz_convert(zone) if zone else result

    return column


def _masked(dtype: str) -> Callable[[Sequence[Any]], Any]:
    return lambda raws: pd.Series(
        _frame_array([pd.NA if r is None else r for r in raws], dtype=dtype)
    )


def _objects(raws: Sequence[Any]) -> Any:
    values = np.empty(len(raws), dtype=object)
    for place, raw in enumerate(raws):
        values[place] = raw
    return pd.Series(values, dtype=object)


def _categories(raws: Sequence[Any]) -> Any:
    """Return a category, with each different object as one of its names."""
    known: list[Any] = []
    codes = []
    for raw in raws:
        place = next((place for place, name in enumerate(known) if name is raw), None)
        if place is None and raw is not None:
            known.append(raw)
            place = len(known) - 1
        codes.append(-1 if place is None else place)
    names = np.empty(len(known), dtype=object)
    for place, name in enumerate(known):
        names[place] = name
    index = pd.Index(names, dtype=object)
    return pd.Series(pd.Categorical.from_codes(np.array(codes), categories=index))


def _unstated(*raws: Any) -> Cells:
    cells = [Cell(raw, UNSTATED) for raw in raws]
    return (cells[0], cells[1]), {f"odd {place}": cell for place, cell in enumerate(cells[2:])}


def _strings() -> Cells:
    plain, odd = texts(bytes.decode)
    return plain, {**odd, "surrogate": Cell("\ud800", None)}


def _kinds() -> Iterator[Kind]:
    made: list[tuple[str, Meaning, Callable[[Sequence[Any]], Any], Cells]] = []
    for bits in (8, 16, 32, 64):
        for name, cells in (
            (f"int{bits}", wholes(bits)),
            (f"uint{bits}", wholes(bits, signed=False)),
        ):
            made.append((name, "whole", _array(name, 0), cells))
            nullable = f"{'UI' if name[0] == 'u' else 'I'}{name[2 if name[0] == 'u' else 1 :]}"
            made.append((f"nullable {nullable}", "whole", _masked(nullable), cells))
    for name in ("float16", "float32", "float64"):
        ends = np.finfo(name)
        cells = reals(float(ends.max), float(ends.smallest_subnormal))
        made.append((name, "real", _array(name, math.nan), cells))
        if name != "float16":
            column = _masked(name.capitalize())
            made.append((f"nullable {name.capitalize()}", "real", column, cells))
    truths = (Cell(True, True), Cell(False, False))
    made += [
        ("bool", "truth", _array("bool", False), (truths, {})),
        ("boolean", "truth", _masked("boolean"), (truths, {})),
        ("complex128", "unusable", _array("complex128", 0), _unstated(1j, 2.0, math.inf)),
        ("object", "text", _objects, _of_objects()),
        ("category of objects", "text", _categories, _different(_of_objects())),
        ("category", "text", _categories, _strings()),
    ]
    made.append(("string in Python", "text", _masked("string[python]"), _strings()))
    made.append(("string in Arrow", "text", _masked("string[pyarrow]"), texts(bytes.decode)))
    made.append(
        ("str", "text", lambda raws: pd.Series(list(raws), dtype="str"), texts(bytes.decode))
    )
    for unit, per_second in UNITS.items():
        cells = instants(per_second)
        made.append((f"datetime64[{unit}]", "time", _ticks(unit), cells))
        for zone in ("UTC", "Europe/Paris"):
            name = f"datetime64[{unit}, {zone}]"
            made.append((name, "moment", _ticks(unit, zone=zone), cells))
        spans = _unstated(1, 2, 2**62)
        made.append((f"timedelta64[{unit}]", "unusable", _ticks(unit, "m8"), spans))
    made += [
        ("period", "unusable", _periods, _unstated(600, 601, 10**6)),
        ("interval", "unusable", _intervals, _unstated(0.0, 1.0, -1.0)),
        ("sparse whole", "unusable", _sparse("int64", 0), _unstated(1, 0, 2**62)),
        ("sparse real", "unusable", _sparse("float64", math.nan), _unstated(1.0, 0.0, math.inf)),
    ]
    common = {
        *(f"int{bits}" for bits in (8, 16, 32, 64)),
        *(
            "nullable Int64",
            "float32",
            "float64",
            "nullable Float64",
            "bool",
            "boolean",
            "object",
            "category",
        ),
        *("str", "string in Python", "string in Arrow"),
        *(
            f"datetime64[{unit}{zone}]"
            for unit in UNITS
            for zone in ("", ", UTC", ", Europe/Paris")
        ),
    }
    for name, what, column, cells in made:
        # NumPy's whole numbers and truths have no null.
        full = name in _FULL
        yield Kind(name, what, column, *cells, common=name in common, nullable=not full)


def _different(cells: Cells) -> Cells:
    """Return pairwise different cells, as required for category names."""
    equal = ("numpy complex", "Decimal")
    return cells[0], {name: cell for name, cell in cells[1].items() if name not in equal}


def _of_objects() -> Cells:
    """Return objects; only text has a specified reading."""
    odd = {
        name: Cell(value, value if name in ("text", "NUL", "return") else UNSTATED)
        for name, value in objects().items()
    }
    return (Cell("a", "a"), Cell("b", "b")), {**odd, "surrogate": Cell("\ud800", None)}


def _periods(raws: Sequence[Any]) -> Any:
    ordinals = [pd.NaT if raw is None else pd.Period(ordinal=raw, freq="M") for raw in raws]
    return pd.Series(_frame_array(ordinals, dtype="period[M]"))


def _intervals(raws: Sequence[Any]) -> Any:
    ends = [math.nan if raw is None else raw for raw in raws]
    return pd.Series(pd.arrays.IntervalArray.from_arrays(ends, [end + 1 for end in ends]))


def _sparse(dtype: str, fill: Any) -> Callable[[Sequence[Any]], Any]:
    def column(raws: Sequence[Any]) -> Any:
        values = np.array([fill if raw is None else raw for raw in raws], dtype=dtype)
        return pd.Series(pd.arrays.SparseArray(values, fill_value=fill))

    return column


def _parquet(frame: pd.DataFrame, folder: Path) -> Path:
    if any(dtype.kind == "m" or str(dtype).startswith("period") for dtype in frame.dtypes):
        raise TypeError("Parquet keeps the whole numbers of these types, and not the types.")
    if any(name in frame for name in ("object", "category of objects")):
        raise TypeError("pandas takes the type of objects in a file from their values.")
    path = folder / "rows.parquet"
    frame.to_parquet(path)
    return path


PANDAS = System(
    "pandas",
    {kind.name: kind for kind in _kinds()},
    ("int64", "object", "float64"),
    lambda value: value,
    lambda columns: pd.DataFrame(dict(columns)),
    {"frame": lambda frame, _: frame, "Parquet of a frame": _parquet},
)
