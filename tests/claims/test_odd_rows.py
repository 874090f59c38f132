"""One malformed row reveals no user: the outcome equals the one without it.

A search over the product of table form (lists, arrays, frames, Arrow, files), the contents of one
person's cell, and its position. A seeded sample of the product is tried, all of it with slow tests.
"""

from __future__ import annotations

import datetime
import itertools
import math
import random
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from scipy import sparse
from tests.malformed.objects import Hostile
from tests.malformed.objects import objects as odd_objects
from tests.refusals import refuses

import dpgrain as dg
from dpgrain import select
from dpgrain.choices.repeated_runs import best_of
from dpgrain.errors import ParameterError
from dpgrain.gradients.records import RecordBlocks
from dpgrain.inputs.callbacks import map_records
from dpgrain.learn import (
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
    minimise,
)
from dpgrain.learn.bounding import bounded
from dpgrain.noise import SeededSource
from dpgrain.optimize import Constant, Sgd, Squared
from dpgrain.optimize.models import Truncated
from dpgrain.papers.generic import release_mean
from dpgrain.tables.engines.duckdb import DuckDB
from dpgrain.units import Element, Record, User

Array = NDArray[Any]


CELLS = dict(odd_objects())


def silently(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Errors that follow from public numbers depend on no row.
        warnings.simplefilter("ignore", dg.CareWarning)
        return call(*args, **options)


# -- rows of numbers: estimators, means, minimise, select --

M, D = 60, 2
NUMBERS = np.random.default_rng(0).uniform(-1, 1, size=(M, D))
SIDE = (NUMBERS[:, 0] > 0).astype(float)
ODD = 7


def objects(cell: Any) -> Array:
    out = NUMBERS.astype(object)
    out[ODD, 1] = cell
    return out


def rows(cell: Any) -> list[list[Any]]:
    return [list(row) for row in objects(cell)]


def one_column(cell: Any, kind: Any) -> pd.DataFrame:
    """A frame with a second column of a type that may not fit the cell."""
    column = pd.Series(list(objects(cell)[:, 1]), dtype=object)
    return pd.DataFrame({"a": NUMBERS[:, 0], "b": column.astype(kind)})


def categories(cell: Any) -> pd.DataFrame:
    values = list(objects(None)[:, 1])
    values[ODD] = cell
    codes = np.arange(M)
    names = pd.Index(np.fromiter(values, dtype=object, count=M), dtype=object)
    return pd.DataFrame(
        {"a": NUMBERS[:, 0], "b": pd.Categorical.from_codes(codes, categories=names)}
    )


def texts(cell: Any) -> list[str]:
    values = [repr(float(x)) for x in NUMBERS[:, 1]]
    values[ODD] = cell if isinstance(cell, str) else "none"
    return values


def fortran(cell: Any) -> Array:
    return np.asfortranarray(objects(cell))


def complexes(cell: Any) -> Array:
    out = NUMBERS.astype(np.complex128)
    out[ODD, 1] = complex(np.nan, 1) if not isinstance(cell, complex) else cell
    return out


def thin(cell: Any) -> Any:
    """A sparse matrix, which has numbers of one type."""
    full = NUMBERS.astype(np.complex128 if isinstance(cell, complex) else np.float64)
    full[ODD, 1] = cell if isinstance(cell, float | complex) else np.inf
    return sparse.csr_array(full)


GAP = [None if i == ODD else x for i, x in enumerate(NUMBERS[:, 1].tolist())]
#: Builds a table of numbers from the one malformed cell.
FORMS: dict[str, Callable[[Any], Any]] = {
    "rows": rows,
    "tuples": lambda cell: tuple(map(tuple, rows(cell))),
    "arrays in a list": lambda cell: list(objects(cell)),
    "objects": objects,
    "objects by column": fortran,
    "complex": complexes,
    "frame": lambda cell: pd.DataFrame(objects(cell)),
    "frame of a column": lambda cell: one_column(cell, object),
    "category": categories,
    "string": lambda cell: pd.DataFrame(
        {"a": NUMBERS[:, 0], "b": pd.Series(texts(cell), dtype=pd.StringDtype("python"))}
    ),
    "nullable": lambda _: one_column(pd.NA, "Float64"),
    "sparse": thin,
    "long double": lambda _: np.where(
        (np.arange(M)[:, None] == ODD) & (np.arange(D) == 1), np.inf, NUMBERS
    ).astype(np.longdouble),
    "row": lambda cell: [*NUMBERS[:ODD].tolist(), cell, *NUMBERS[ODD + 1 :].tolist()],
    "short row": lambda cell: [*NUMBERS[:ODD].tolist(), [cell], *NUMBERS[ODD + 1 :].tolist()],
    "long row": lambda cell: [*NUMBERS[:ODD].tolist(), [cell] * 3, *NUMBERS[ODD + 1 :].tolist()],
    "Arrow": lambda _: pa.table({"a": NUMBERS[:, 0], "b": GAP}),
    "Polars": lambda _: pl.DataFrame({"a": NUMBERS[:, 0], "b": GAP}),
}
SEEDED: dict[str, Any] = {"random_state": 0, "n_users": M}
COUNTED: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "random_state": 0}


def width(X: Any) -> int | None:
    """Length of a row of a list; None for other inputs."""
    return D if isinstance(X, list | tuple) else None


def fit(model: Any) -> Callable[[Any, Any], Array]:
    def fitted(X: Any, y: Any) -> Array:
        # The rows of a list may differ in length, so their length is passed.
        own = {**model.get_params(), **SEEDED, "n_features": width(X)}
        fresh = type(model)(**{**own, "unit": own["unit"] or Record()})
        found: Array = fresh.fit(X, y).history_.gradients
        return found

    return fitted


def mean(X: Any, _: Any) -> Array:
    options: dict[str, Any] = {**SEEDED, "dimension": width(X)}
    found = dg.mean_of_users(X, bound=2.0, epsilon=1.0, delta=1e-6, method="clip", **options)
    # A row changes the sum; the divisor follows from a noisy number of users.
    return found.value * found.n_users / M


def minimum(X: Any, y: Any) -> Array:
    steps, start = Sgd(Constant(0.1)), np.zeros(D)
    return minimise(
        Squared(), X, y, start, solver=steps, rounds=1, epsilon=1.0, unit=Record(), **SEEDED
    ).history.gradients


def chosen(X: Any, _: Any) -> Array:
    """A loss evaluated on every record."""

    def loss(candidate: float, records: Any) -> list[float]:
        if isinstance(records, pd.DataFrame):
            records = records.to_numpy(dtype=object)
        elif isinstance(records, pa.Table | pl.DataFrame):
            records = records.to_pandas().to_numpy(dtype=object)
        elif sparse.issparse(records):
            records = records.toarray()
        return [abs(float(row[1]) - candidate) for row in records]

    found = select(
        [0.0, 0.5],
        loss,
        X if not isinstance(X, tuple) else list(X),
        epsilon=1.0,
        score=True,
        unit=Record(),
        **SEEDED,
    )
    assert found.loss is not None
    return np.array([found.loss])


#: Where a table enters, and how far one row of someone moves what is published with the same noise.
DOORS: dict[str, tuple[Callable[[Any, Any], Array], float]] = {
    "LogisticRegression": (fit(LogisticRegression(classes=[0, 1], clip=1.0, rounds=1)), 1 / M),
    "LinearSVC": (fit(LinearSVC(classes=[0, 1], clip=1.0, rounds=1)), 1 / M),
    "LinearRegression": (fit(LinearRegression(clip=1.0, rounds=1)), 1 / M),
    "PoissonRegressor": (fit(PoissonRegressor(clip=1.0, rounds=1)), 1 / M),
    "HuberRegressor": (fit(HuberRegressor(clip=1.0, rounds=1, feature_bound=2.0)), 1 / M),
    "QuantileRegressor": (fit(QuantileRegressor(clip=1.0, rounds=1, exact=True)), 1 / M),
    "mean_of_users": (mean, 2.0 / M),
    "minimise": (minimum, 1 / M),
    "select": (chosen, 1 / M),
}
ESTIMATORS = [name for name in DOORS if name[0].isupper()]
WITHOUT = np.delete(NUMBERS, ODD, axis=0), np.delete(SIDE, ODD)
EXPECTED = {name: door(*WITHOUT) for name, (door, _) in DOORS.items()}
PRODUCT = list(itertools.product(FORMS, CELLS, DOORS))
SAMPLE = random.Random(5).sample(PRODUCT, 700)


def made(form: Callable[[Any], Any], cell: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return form(cell)
        except Exception:
            return None


def check_numbers(form: str, cell: str, door: str) -> bool:
    call, most = DOORS[door]
    given = made(FORMS[form], CELLS[cell])
    if given is None:
        return False
    if form == "string" and door in ESTIMATORS:
        # The type of the column is public, and is never numeric, whatever a cell contains.
        with pytest.raises(
            ParameterError, match="X must be numbers, not text as in its column 'b'"
        ):
            silently(lambda: call(given, SIDE))
        return True
    found = silently(lambda: call(given, SIDE))
    assert found.shape == EXPECTED[door].shape, (form, cell, door)
    assert np.linalg.norm(found - EXPECTED[door]) <= most * (1 + 1e-6), (form, cell, door)
    return True


@pytest.mark.slow
def test_malformed_number_affects_only_its_row() -> None:
    assert sum(check_numbers(*case) for case in SAMPLE) > 0.9 * len(SAMPLE)


@pytest.mark.slow(full=True)
def test_malformed_number_affects_only_its_row_in_whole_product() -> None:
    assert sum(check_numbers(*case) for case in PRODUCT) > 0.9 * len(PRODUCT)


def targets(cell: Any) -> dict[str, Any]:
    listed = [*SIDE[:ODD].tolist(), cell, *SIDE[ODD + 1 :].tolist()]
    array = np.empty(M, dtype=object)
    for place, value in enumerate(listed):
        array[place] = value
    return {
        "list": listed,
        "tuple": tuple(listed),
        "array": array,
        "series": pd.Series(array, dtype=object),
    }


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(
    "door", [name for name in DOORS if name not in ("select", "mean_of_users")]
)
def test_malformed_target_affects_only_its_row(cell: str, door: str) -> None:
    call, most = DOORS[door]
    for form, given in targets(CELLS[cell]).items():
        found = silently(call, NUMBERS, given)
        assert np.linalg.norm(found - EXPECTED[door]) <= most * (1 + 1e-6), (form, cell, door)


# -- columns that Arrow stores, where a cell is one that Python lacks --


def not_utf8() -> pa.Array:
    """Text in rows of one letter; my row is a byte outside UTF-8."""
    raw = bytearray(b"1" * M)
    raw[ODD] = 0xFF
    ends = pa.array(range(M + 1), pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), M, [None, ends, pa.py_buffer(bytes(raw))])


def counted(kind: Any, mine: int) -> pa.Array:
    """Moments or spans, mine far away."""
    counts = np.arange(M)
    counts[ODD] = mine
    width = pa.int32() if kind == pa.date32() else pa.int64()
    return pa.array(counts, width).view(kind)


TIMES = {
    "days": counted(pa.date32(), 10**7),
    "moments": counted(pa.timestamp("us"), 2**62),
    "seconds": counted(pa.timestamp("s"), 2**62),
    "UTC": counted(pa.timestamp("us", "Europe/Paris"), 2**62),
    "spans": counted(pa.duration("s"), 2**62),
    "times of day": counted(pa.time64("ns"), 2**60),
    "nanoseconds": counted(pa.time64("ns"), 1001),
}
STORED = {
    **TIMES,
    "text": not_utf8(),
    "dictionary": not_utf8().dictionary_encode(),
    "dictionary of days": TIMES["days"].dictionary_encode(),
    "nested": pa.ListArray.from_arrays(pa.array(range(M + 1), pa.int32()), TIMES["days"]),
}


def tables_with(column: pa.Array) -> dict[str, Any]:
    """A table with a column that Arrow stores."""
    first, whole = pa.array(NUMBERS[:, 0]), pa.chunked_array([column[:5], column[5:]])
    frames = {
        "Arrow": pa.table({"a": first, "b": whole}),
        "pandas": pd.DataFrame(
            {"a": NUMBERS[:, 0], "b": pd.Series(whole, dtype=pd.ArrowDtype(column.type))}
        ),
    }
    if column.type in (TIMES[name].type for name in ("days", "moments", "UTC")):
        frames["Polars"] = pl.DataFrame({"a": NUMBERS[:, 0], "b": pl.Series(whole)})
    return frames


def outcome(call: Callable[[], Any]) -> str:
    try:
        return repr(np.shape(call()))
    except ParameterError as refused:
        return str(refused)


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize("door", [name for name in DOORS if name != "select"])
def test_cell_without_python_type_has_no_effect(name: str, door: str) -> None:
    call, column = DOORS[door][0], STORED[name]
    nobody = (
        pc.if_else(np.arange(M) == ODD, pa.scalar(None, column.type), column)
        if not isinstance(column, pa.DictionaryArray)
        else column.take(pa.array([None if i == ODD else i for i in range(M)]))
    )
    with_mine, without = tables_with(column), tables_with(nobody)
    for form in with_mine:
        said = [
            silently(outcome, lambda given=given[form]: call(given, SIDE))
            for given in (with_mine, without)
        ]
        assert said[0] == said[1], (form, said)
        if name in TIMES or name == "dictionary of days" or (name == "text" and door in ESTIMATORS):
            assert "X must be numbers, not" in said[0]
        else:
            assert said[0] == repr(EXPECTED[door].shape)
    if door != "mean_of_users":
        for held in (column, pa.chunked_array([column[:5], column[5:]])):
            said = [silently(outcome, lambda held=held: call(NUMBERS, held))]
            said.append(silently(outcome, lambda: call(NUMBERS, nobody)))
            assert said[0] == said[1]
            arranged = silently(
                dg.mean_of_users, NUMBERS, users=held, bound=1.0, epsilon=1.0, delta=1e-6
            )
            assert arranged.value.shape == (D,)


def test_text_error_does_not_reveal_length() -> None:
    said = set()
    for longest in ("3", "3" * 12):
        with refuses("y", "numbers") as caught:
            LinearRegression().fit(np.ones((3, 2)), np.array(["1", "2", longest]))
        said.add(str(caught.value))
    assert len(said) == 1


def test_rows_of_single_precision_are_bounded_as_doubles_are() -> None:
    rows = np.array([[0, 0], [1e-45, 0], [1, 1], [1e38, 3e38], [np.inf, 1]], dtype=np.float32)
    for bound in (1e-50, 1e-3, 1.0, 1e50):
        wide = bounded(rows.astype(np.float64), bound)
        for given in (rows, sparse.csr_array(rows), sparse.csr_array(rows.astype(np.float64))):
            found = bounded(given, bound)
            assert found.dtype == given.dtype
            full = found.toarray() if sparse.issparse(found) else found
            assert np.allclose(full, wide, rtol=1e-6)
    far = bounded(np.array([[3e200, 4e200], [3e-200, 4e-200]]), 1.0)
    assert np.allclose(far, [[0.6, 0.8], [0.0, 0.0]], atol=1e-100)
    assert np.allclose(bounded(sparse.csr_array([[3e200, 4e200]]), 1e50).toarray(), [[0.6, 0.8]])


def test_boolean_frame_with_numbers_has_a_mean() -> None:
    truths = NUMBERS[:, 0] > 0
    expected = mean(np.column_stack([truths, NUMBERS[:, 1]]), None)
    assert np.array_equal(mean(pd.DataFrame({"a": truths, "b": NUMBERS[:, 1]}), None), expected)


def test_mean_shape_does_not_follow_one_record_of_list() -> None:
    rows = [[0.1, 0.2]] * 250 + [[0.1, 0.2, 0.3]] * 250
    options: dict[str, Any] = {"bound": 1.0, "epsilon": 1.0, "delta": 1e-6, "n_users": 500}
    users = list(range(500))
    neighbours: list[tuple[Any, list[int]]] = [
        (rows, users),
        (rows[1:], users[1:]),
        (rows[:-1], users[:-1]),
        ([], []),
    ]
    neighbours += [(tuple(rows), users), ([[0.1, 0.2]], [0])]
    for given, own in neighbours:
        with refuses("dimension", "records"):
            dg.mean_of_users(given, users=own, **options)
        found = silently(dg.mean_of_users, given, users=own, dimension=2, **options)
        assert found.value.shape == (2,)
        assert "as most rows" not in str(found.guarantee)


# -- tables: dg.read and releases --

NAMES = ["ann", "ann", "bob", "čen", "bob", "dan", "eve", "ann"]
WORDS = ["yo", "bro", "yo", "yo", "bro", "yo", "bro", "yo"]
AMOUNTS = [1.0, 2.0, 3.0, 0.5, 0.25, 4.0, 1.5, 2.5]
# No other row equals the fifth of these: without it Dan is gone.
MINE = 5
COLUMNS: dict[str, list[Any]] = {"who": NAMES, "word": WORDS, "n": AMOUNTS}


def with_cell(column: str, cell: Any) -> dict[str, list[Any]]:
    found = {name: list(values) for name, values in COLUMNS.items()}
    found[column][MINE] = cell
    return found


def as_objects(column: str, cell: Any, kind: Any = object) -> pd.DataFrame:
    frame = pd.DataFrame(COLUMNS)
    values = pd.Series([None] * len(NAMES), dtype=object)
    for place, value in enumerate(with_cell(column, cell)[column]):
        values.iat[place] = value
    return frame.assign(**{column: values.astype(kind)})


def as_category(column: str, cell: Any) -> pd.DataFrame:
    names = sorted(set(COLUMNS[column]))
    codes = [names.index(value) for value in COLUMNS[column]]
    codes[MINE] = len(names)
    index = pd.Index(np.fromiter([*names, cell], dtype=object, count=len(names) + 1), dtype=object)
    own = pd.Series(pd.Categorical.from_codes(codes, categories=index))
    return pd.DataFrame(COLUMNS).assign(**{column: own})


def as_arrow(column: str, cell: Any, *, dictionary: bool = False) -> pa.Table:
    """Arrow text that is not UTF-8, which Arrow does not look at."""
    raw = cell if isinstance(cell, bytes) else str(cell).encode("utf-8", "surrogatepass")
    values = [str(value).encode() for value in with_cell(column, "x")[column]]
    values[MINE] = raw
    ends = pa.array(np.cumsum([0, *map(len, values)]), pa.int32()).buffers()[1]
    own = pa.Array.from_buffers(
        pa.string(), len(values), [None, ends, pa.py_buffer(b"".join(values))]
    )
    table = pa.table(COLUMNS)
    place = table.schema.get_field_index(column)
    return table.set_column(place, column, own.dictionary_encode() if dictionary else own)


def as_extension(column: str, cell: Any, wrapped: Callable[[pa.ChunkedArray], Any]) -> pd.DataFrame:
    """The same in a frame of pandas, which does not look either."""
    own = wrapped(as_arrow(column, cell).column(column))
    return pd.DataFrame(COLUMNS).assign(**{column: pd.Series(own)})


def as_view(column: str, cell: Any) -> pa.Table:
    table = as_arrow(column, cell)
    place = table.schema.get_field_index(column)
    return table.set_column(place, column, table.column(column).cast(pa.string_view()))


def as_polars(column: str, cell: Any) -> pl.DataFrame:
    if isinstance(cell, Decimal | Hostile):
        raise TypeError("Polars itself ends the process, or prints, on these.")
    return pl.DataFrame(with_cell(column, cell), strict=False)


class Files:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def parquet(self, column: str, cell: Any) -> Path:
        path = self.folder / "one.parquet"
        pq.write_table(as_arrow(column, cell), path)
        return path

    def several(self, column: str, cell: Any) -> list[Path]:
        """My row in a separate file, with the type of that row."""
        whole = pa.table(COLUMNS)
        mine = pa.table({name: [value[MINE]] for name, value in with_cell(column, cell).items()})
        paths = [self.folder / f"{name}.parquet" for name in "abc"]
        for path, part in zip(
            paths, (whole.slice(0, MINE), mine, whole.slice(MINE + 1)), strict=True
        ):
            pq.write_table(part, path)
        return paths

    def csv(self, column: str, cell: Any, end: bytes = b"\n") -> Path:
        rows = zip(*with_cell(column, cell).values(), strict=True)
        lines = [",".join(map(str, row)).encode("utf-8", "surrogatepass") for row in rows]
        path = self.folder / "rows.csv"
        path.write_bytes(b"who,word,n" + end + end.join(lines) + end)
        return path


TABLES: dict[str, Callable[[Files, str, Any], Any]] = {
    "objects": lambda _, column, cell: as_objects(column, cell),
    "string": lambda _, column, cell: as_objects(column, cell, pd.StringDtype("python")),
    "string in Arrow": lambda _, column, cell: as_objects(column, cell, pd.StringDtype("pyarrow")),
    "Arrow in pandas": lambda _, column, cell: as_objects(column, cell, pd.ArrowDtype(pa.string())),
    "raw Arrow in pandas": lambda _, column, cell: as_extension(
        column, cell, pd.arrays.ArrowExtensionArray
    ),
    "raw text in pandas": lambda _, column, cell: as_extension(
        column, cell, pd.arrays.ArrowStringArray
    ),
    "category": lambda _, column, cell: as_category(column, cell),
    "guessed category": lambda _, column, cell: as_objects(column, cell, "category"),
    "view": lambda _, column, cell: as_view(column, cell),
    "Arrow": lambda _, column, cell: as_arrow(column, cell),
    "dictionary": lambda _, column, cell: as_arrow(column, cell, dictionary=True),
    "Polars": lambda _, column, cell: as_polars(column, cell),
    "Parquet": Files.parquet,
    "several": Files.several,
    "CSV": Files.csv,
    "CSV with CRLF": lambda files, column, cell: files.csv(column, cell, b"\r\n"),
}
RELEASES: dict[str, Callable[[dg.UserTable], dg.Release]] = {
    "histogram": lambda table: dg.histogram(
        table, "word", domain=["yo", "bro"], unit=User(), clip=1.0, **COUNTED
    ),
    "weights": lambda table: dg.histogram(
        table, "word", domain=["yo", "bro"], weight="n", unit=User(), clip=4.0, **COUNTED
    ),
    "elements": lambda table: dg.histogram(
        table, "word", domain=["yo", "bro"], unit=Element("word"), clip=1.0, **COUNTED
    ),
    "count": lambda table: dg.count(table, unit=User(), clip=1.0, **COUNTED),
    "mean": lambda table: dg.mean(table, "n", bounds=(0.0, 4.0), unit=User(), clip=1.0, **COUNTED),
    "people": lambda table: dg.histogram(
        table.per_user(words=("word", "nunique"), rows=("word", "size")),
        "words",
        edges=[0.5, 1.5],
        unit=User(),
        **COUNTED,
    ),
    "spent": lambda table: dg.histogram(
        table.per_user(by="word", spent=("n", "sum"), least=("n", "min"), usual=("n", "mean")),
        "spent",
        edges=[0.5, 1.5],
        unit=User(),
        clip=1.0,
        **COUNTED,
    ),
}

ALONE = pa.table(
    {name: [v for i, v in enumerate(value) if i != MINE] for name, value in COLUMNS.items()}
)
TABLE_CASES = [
    (form, column, cell, door)
    for form, column, cell, door in itertools.product(TABLES, COLUMNS, CELLS, RELEASES)
    # Numeric types are required for numbers: the schema rejects text.
    if column != "n"
    or (door in ("weights", "mean", "spent") and form.startswith("CSV"))
    or door in ("histogram",)
]


def without_mine(given: Any) -> Any:
    if isinstance(given, pl.DataFrame):
        return given.filter(np.arange(len(given)) != MINE)
    if isinstance(given, list):
        pq.write_table(pq.read_table(given[1]).slice(0, 0), given[1])
        return given
    raise TypeError(type(given))


def released(door: str, source: Any, types: Any = None) -> Array:
    release: Any = RELEASES[door](dg.read(source, user="who", types=types))
    return np.asarray(release.estimate)


@cache
def released_alone(door: str) -> Array:
    return released(door, ALONE)


def check_table(files: Files, form: str, column: str, cell: str, door: str) -> bool:
    given = made(lambda odd: TABLES[form](files, column, odd), CELLS[cell])
    if given is None:
        return False
    types = {"n": "DOUBLE"} if form.startswith("CSV") else None

    expected = released_alone(door)
    try:
        found = silently(released, door, given, types)
    except dg.SchemaError as refused:
        # Errors from a column's type are public, and equal without my row.
        said = str(refused)
        with pytest.raises(dg.SchemaError, match=re.escape(said)):
            released(door, without_mine(given), types)
        return True
    assert found.shape == expected.shape
    # A mean is a ratio of two sums; who leaves one bin of numbers enters another.
    known = {"histogram": 1.0, "weights": 4.0, "elements": 1.0, "count": 1.0}
    most = {**known, "people": math.sqrt(2.0), "spent": math.sqrt(2.0)}.get(door, math.inf)
    moved = np.linalg.norm(found - expected)
    assert moved <= most * (1 + 1e-6), (form, column, cell, door, found, expected)
    return True


TABLE_SAMPLE = random.Random(6).sample(TABLE_CASES, 60)


@pytest.mark.slow
def test_malformed_table_cell_affects_only_its_user(tmp_path: Path) -> None:
    assert sum(check_table(Files(tmp_path), *case) for case in TABLE_SAMPLE) > 0.4 * len(
        TABLE_SAMPLE
    )


@pytest.mark.parametrize("cell", ["surrogate", "bytes", "return"])
@pytest.mark.parametrize("form", TABLES)
def test_invalid_text_affects_only_its_user(form: str, cell: str, tmp_path: Path) -> None:
    for column in ("who", "word"):
        check_table(Files(tmp_path), form, column, cell, "histogram")
    if form.startswith("CSV"):
        check_table(Files(tmp_path), form, "n", cell, "mean")


@pytest.mark.slow(full=True)
def test_malformed_table_cell_affects_only_its_user_in_product(
    tmp_path: Path,
) -> None:
    assert sum(check_table(Files(tmp_path), *case) for case in TABLE_CASES) > 0.4 * len(TABLE_CASES)


def test_files_of_several_types_have_the_widest(tmp_path: Path) -> None:
    """From schemas only, in any order of files; the error used to quote the mismatched value."""
    kinds: list[tuple[list[Any], str]] = [
        ([pa.int32(), pa.int64()], "BIGINT"),
        ([pa.int64(), pa.uint64()], "HUGEINT"),
        ([pa.int32(), pa.float64()], "DOUBLE"),
        ([pa.decimal128(9, 2), pa.int64()], "DOUBLE"),
        ([pa.int64(), pa.string()], "VARCHAR"),
        ([pa.bool_(), pa.int8()], "UNION of {} and {}"),
        ([pa.bool_(), pa.string()], "UNION of {} and {}"),
        ([pa.float64(), pa.string()], "UNION of {} and {}"),
        ([pa.decimal128(9, 2), pa.string()], "UNION of {} and {}"),
        ([pa.date32(), pa.string()], "VARCHAR"),
        ([pa.null(), pa.string()], "VARCHAR"),
        ([pa.null(), pa.int16()], "SMALLINT"),
    ]
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for types, expected in kinds:
        for order in (types, types[::-1]):
            for path, kind in zip(paths, order, strict=True):
                pq.write_table(pa.table({"x": pa.nulls(3, kind)}), path)
            own = [dg.read(path).schema["x"] for path in paths]
            assert dg.read(paths).schema == {"x": expected.format(*own)}


#: One value of each label type, including types that appear only as text, and a text.
SEVEN: dict[str, pa.Array] = {
    "int8": pa.array([7], pa.int8()),
    "int64": pa.array([7], pa.int64()),
    "uint64": pa.array([7], pa.uint64()),
    "float": pa.array([7.0], pa.float32()),
    "double": pa.array([7.0]),
    "decimal": pa.array([Decimal("7.00")], pa.decimal128(10, 2)),
    "truth": pa.array([True]),
    "text": pa.array(["7"]),
    "dictionary": pa.array(["7"]).dictionary_encode(),
    "null": pa.array([None]),
}


@pytest.mark.parametrize("kinds", list(itertools.combinations(SEVEN, 3)), ids="+".join)
def test_files_of_several_types_name_an_item_consistently(
    kinds: tuple[str, ...], tmp_path: Path
) -> None:
    paths = []
    for kind in kinds:
        paths.append(tmp_path / f"{kind}.parquet")
        pq.write_table(pa.table({"who": SEVEN[kind]}), paths[-1])
    try:
        with dg.read(paths, user="who").open_engine() as engine:
            found = engine.distinct(["who"])
    except dg.SchemaError:
        # Whole numbers and texts have one text each.
        assert set(kinds) & {"float", "double", "decimal", "truth"}
        return
    assert [str(name) for name in found.columns[0].to_pylist()] == ["7"]


MIXED: list[Any] = [1, 2, 1.5, "x", True, Decimal("2.50"), datetime.date(2020, 1, 1), pd.NaT]


@pytest.mark.parametrize("cell", MIXED, ids=str)
def test_category_type_does_not_depend_on_one_value(cell: Any) -> None:
    """pandas infers it from the values: 1 and 2 are integers until one user has 1.5."""
    frames = []
    for values in ([1, 2, cell], [1, 2, None]):
        column = pd.Series(values, dtype=object).astype("category")
        frames.append(pd.DataFrame({"who": column, "word": column, "mine": [False, False, True]}))
    found = []
    for frame in frames:
        table = dg.read(frame, user="who")
        assert table.schema == {"who": "VARCHAR", "word": "VARCHAR", "mine": "BOOLEAN"}
        with DuckDB(table) as engine:
            rows = engine.query(
                "SELECT who, word FROM source WHERE NOT mine ORDER BY word", ["who", "word", "mine"]
            )
        found.append(rows.to_pylist())
    assert found[0] == found[1]
    assert [row["word"] for row in found[0]] == ["1", "2"]


def test_users_in_files_of_several_types_are_preserved(tmp_path: Path) -> None:
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet", tmp_path / "c.parquet"]
    pq.write_table(pa.table({"u": pa.array([1, 2], pa.int32()), "w": ["a", "b"]}), paths[0])
    pq.write_table(pa.table({"W": ["a", "a"], "u": [2**40, 1], "more": [1, 2]}), paths[1])
    pq.write_table(pa.table({"u": pa.array([1, 3], pa.int32()), "w": ["a", "b"]}), paths[2])
    for order in itertools.permutations(paths):
        if order[0] == paths[1]:
            continue
        table = dg.read(list(order), user="u")
        assert table.schema == {"u": "BIGINT", "w": "VARCHAR"}
        found = dg.histogram(
            table, "w", domain=["a", "b"], unit=User(), clip=1.0, epsilon=1e6, delta=1e-6
        )
        # User 1 has a only once clipped, and 2**40; users 2 and 3 have b.
        assert found.estimate == pytest.approx([2.0, 2.0], abs=0.01)
    pq.write_table(pa.table({"w": ["a"]}), paths[1])
    with refuses("file", "'u'", kind=dg.SchemaError):
        dg.read(paths)


def test_mismatched_types_are_named_without_values(tmp_path: Path) -> None:
    """An error in the middle of a query is not quoted, nor shown next to our own message."""
    import duckdb

    relation: Any = duckdb.sql("SELECT * FROM (VALUES (1, 'a'), (2, 'secret')) t(u, w)")
    broken = relation.query("t", "SELECT u, CAST(w AS INTEGER) AS w FROM t")
    read = dg.read(broken.select("u AS who, w AS word"), user="who", rows="as given")
    with pytest.raises(dg.DataError) as caught:
        dg.count(read, by="word", domain=[1], unit=User(), clip=1.0, **COUNTED)
    shown = "".join(traceback.format_exception(caught.value))
    assert "secret" not in shown


EMPTY: dict[str, Any] = {
    "array": np.zeros((0, D)),
    "objects": np.zeros((0, D), dtype=object),
    "narrow": np.zeros((0, D), dtype=np.float32),
    "frame": pd.DataFrame({"a": [], "b": []}),
    "texts": pd.DataFrame({"a": [], "b": []}, dtype=object),
    "sparse": sparse.csr_array((0, D)),
    "Arrow": pa.table({"a": pa.array([], pa.float64()), "b": pa.array([], pa.int64())}),
    "Polars": pl.DataFrame({"a": [], "b": []}),
}
MODELS: list[Any] = [
    LogisticRegression(classes=[0, 1], rounds=2),
    LogisticRegression(classes=["a", "b", "c"], rounds=2, clip="auto"),
    LinearSVC(classes=[0, 1], rounds=2, feature_bound=1.0),
    LinearRegression(rounds=2, intervals=0.2),
    LinearRegression(rounds=2, exact=True, sampling_rate=0.5),
    HuberRegressor(rounds=2, unit=Record()),
    QuantileRegressor(rounds=2, unit=Element()),
    PoissonRegressor(rounds=2, unit=User(max_elements=2), elements_per_user="auto"),
    LinearRegression(rounds=2, trust="shuffle", n_users=50, delta=1e-5),
    LinearRegression(rounds=2, trust="pan"),
    LinearRegression(rounds=2, tune={"clip": [0.5, 1.0]}),
]


@pytest.mark.slow
@pytest.mark.parametrize("form", EMPTY)
def test_empty_table_is_fitted_like_one_person(form: str) -> None:
    for model in MODELS:
        elements: Any = None if model.unit in (None, Record()) else []
        targets: list[Any] = [[], np.zeros(0), np.zeros(0, dtype=object)]
        for labels in targets:
            # Positions in the list of users decide the users of each round.
            needed = model.trust != "central" or model.unit not in (None, Record())
            asked: list[Any] = [[]] if needed else [None, []]
            for users in asked:
                own = {**model.get_params(), "random_state": 0, "n_users": model.n_users or 100}
                if users is None:
                    own["unit"] = own["unit"] or Record()
                fitted = type(model)(**own)
                silently(fitted.fit, EMPTY[form], labels, users=users, elements=elements)
                assert fitted.n_features_in_ == D
                assert np.isfinite(fitted.coef_).all()
                assert fitted.guarantee_.epsilon() <= 1.0
            if form not in ("array", "frame"):
                break


@pytest.mark.slow(cases=5)
@pytest.mark.parametrize("form", EMPTY)
def test_empty_table_has_mean_choice_and_minimum(form: str) -> None:
    X, steps = EMPTY[form], Sgd(Constant(0.1))
    for method in ("clip", "recentred", "softcore", "winsorized"):
        options: dict[str, Any] = {"method": method, "radius": 0.5, "n_users": 500}
        found = silently(dg.mean_of_users, X, bound=1.0, epsilon=1.0, delta=1e-6, **options)
        assert found.value.shape == (D,)
    assert silently(lambda: mean(X, [])).shape == (D,)
    kinds: list[tuple[Any, Any]] = [(steps, None), (steps, Truncated())]
    for solver, model in kinds:
        for exact in (False, True):
            stepped: dict[str, Any] = {"solver": solver, "model": model, "exact": exact}
            end = silently(
                minimise, Squared(), X, [], np.zeros(D), epsilon=1.0, rounds=2, **stepped
            )
            assert end.theta.shape == (D,)
            assert np.isfinite(end.theta).all()

    def loss(_: float, records: Any) -> Array:
        # The mean of no records is undefined.
        return np.full(len(records), 1 / len(records))

    for method in ("permute_and_flip", "exponential", "repeat"):
        if sparse.issparse(X):
            continue
        choice = silently(select, [0.0, 1.0], loss, X, epsilon=1.0, method=method, delta=1e-6)
        assert choice.index in (0, 1)


@pytest.mark.parametrize("longer", [0, 50, 51, 101])
@pytest.mark.parametrize("form", [list, tuple])
def test_a_list_of_rows_requires_the_number_of_features(longer: int, form: Any) -> None:
    """No row of a list decides how many coefficients are published, nor whether a fit is charged."""
    rows = [[1.0, 2.0]] * (101 - longer) + [[1.0, 2.0, 3.0]] * longer
    targets = [0.0, 1.0] * 50 + [0.0]
    with dg.budget(1.0, 1e-6) as budget:
        for given in ([], rows):
            with pytest.raises(ParameterError, match="n_features must be passed for a list"):
                LinearRegression(rounds=1).fit(form(given), targets[: len(given)])
    assert budget.guarantee is None
    model = LinearRegression(rounds=1, n_features=2).fit(form(rows), targets)
    assert model.coef_.shape == (2,)


def test_stated_number_of_features_matches_the_array() -> None:
    model = LinearRegression(n_features=3, rounds=1).fit([], [])
    assert model.n_features_in_ == 3
    with pytest.raises(
        ParameterError, match=r"n_features must be the number of features, \d+, not 3"
    ):
        LinearRegression(n_features=3).fit(NUMBERS, SIDE)
    with refuses("X", "0"):
        LinearRegression().fit(np.zeros((12, 0)), np.zeros(12))


def test_no_message_counts_rows_or_quotes_one() -> None:
    """Two tables that differ in one row have the same messages."""
    rng = np.random.default_rng(0)
    wrong: list[Callable[[int], Any]] = [
        lambda m: LinearRegression().fit(rng.normal(size=m), np.zeros(m)),
        lambda m: LinearRegression().fit(rng.normal(size=(m, 2, 2)), np.zeros(m)),
        lambda m: LinearRegression().fit(np.zeros((m, 0)), np.zeros(m)),
        lambda m: LinearRegression().fit(rng.normal(size=(m, 2)), np.zeros(m - 1)),
        lambda m: LinearRegression().fit(rng.normal(size=(m, 2)), rng.normal(size=(m, 2))),
        lambda m: LinearRegression().fit(rng.normal(size=(m, 2)), rng.normal(size=m) + 1j),
        lambda m: LinearRegression().fit(np.zeros((m, 2), dtype="M8[s]"), np.zeros(m)),
        lambda m: LinearRegression().fit(
            rng.normal(size=(m, 2)), np.zeros(m), users=np.zeros(m - 1)
        ),
        lambda m: dg.mean_of_users(rng.normal(size=(m, 2, 2)), bound=1.0, epsilon=1, delta=1e-6),
        lambda m: dg.mean_of_users(
            rng.normal(size=(m, 2)), users=np.zeros(m - 1), bound=1.0, epsilon=1, delta=1e-6
        ),
        lambda m: minimise(
            Squared(),
            rng.normal(size=(m, 2)),
            np.zeros(m - 1),
            [0, 0],
            solver=Sgd(Constant(1.0)),
            epsilon=1.0,
        ),
        lambda m: minimise(
            Squared(),
            rng.normal(size=(m, 2)),
            np.zeros(m),
            [0],
            solver=Sgd(Constant(1.0)),
            epsilon=1.0,
        ),
        lambda m: select([0.0], lambda c, x: x.mean(), rng.normal(size=m), epsilon=1.0),
        lambda m: select([0.0], lambda c, x: x[1:], rng.normal(size=m), epsilon=1.0),
        lambda m: select(
            [0.0], lambda c, x, y: x, (rng.normal(size=m), np.zeros(m - 1)), epsilon=1.0
        ),
        lambda m: select([0.0], lambda c, x: float(len(x)), list(rng.normal(size=m)), epsilon=1.0),
    ]
    for call in wrong:
        said = []
        for m in (5003, 5004):
            with pytest.raises(ParameterError) as caught:
                call(m)
            said.append("".join(traceback.format_exception_only(caught.value)))
        assert said[0] == said[1]
        assert "500" not in said[0]


# -- functions of the caller's --


class Panic(BaseException):
    """An error of a library after a panic in its core."""


FAILURES: dict[str, Callable[[], Any]] = {
    "raises": lambda: 1 / 0,
    "key": lambda: CELLS["somebody"],
    "stop": lambda: next(iter(())),
    "recursion": lambda: (_ for _ in ()).throw(RecursionError("somebody")),
    "warns": lambda: warnings.warn("somebody", stacklevel=1),
    "overflow": lambda: np.float64(1e308) * 10,
    "exits": lambda: sys.exit("somebody"),
    "panics": lambda: (_ for _ in ()).throw(Panic("somebody")),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("method", ["permute_and_flip", "exponential", "repeat"])
def test_loss_failing_on_one_record_counts_most_there(failure: str, method: Any) -> None:
    records = np.linspace(0, 1, 40)

    def chosen(odd: Callable[[], Any]) -> Any:
        def loss(candidate: float, x: Array) -> Array:
            found = np.abs(x - candidate)
            if (x == records[7]).any():
                odd()
                found[x == records[7]] = np.nan
            return found

        return silently(
            lambda: select(
                [0.2, 0.5],
                loss,
                records,
                method=method,
                score=True,
                delta=1e-6,
                random_state=3,
                epsilon=1.0,
            )
        )

    found, expected = chosen(FAILURES[failure]), chosen(lambda: None)
    assert (found.index, found.loss) == (expected.index, expected.loss)


@dataclass(frozen=True)
class Fragile:
    """Squared errors that fail for one record, or return another shape for it."""

    odd: float
    failure: Callable[[], Any]

    def _seen(self, y: Array) -> None:
        if (np.asarray(y) == self.odd).any():
            self.failure()

    def value(self, theta: Array, X: Array, y: Array) -> Array:
        self._seen(y)
        return Squared().value(theta, X, y)

    def gradient(self, theta: Array, X: Array, y: Array) -> Array:
        self._seen(y)
        found = Squared().gradient(theta, X, y)
        if self.failure is FAILURES["warns"] or self.failure is FAILURES["overflow"]:
            found[y == self.odd] = np.nan
        return found


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("model", [None, Truncated()])
@pytest.mark.parametrize("exact", [False, True])
def test_gradient_failing_on_one_record_zeroes_its_block(
    failure: str, model: Any, exact: bool
) -> None:
    y = np.linspace(-1, 1, M)
    users = np.arange(M) // 2

    def found(loss: Any, kept: Array) -> Any:
        return silently(
            lambda: minimise(
                loss, NUMBERS[kept], y[kept], np.zeros(D), solver=Sgd(Constant(0.1)), rounds=3,
                model=model, users=users[kept], n_users=M, exact=exact, random_state=0,
            epsilon=1.0).history.gradients
        )  # fmt: skip

    everybody, others = users >= 0, users != users[ODD]
    own = found(Fragile(y[ODD], FAILURES[failure]), everybody)
    if model is None or failure not in ("warns", "overflow"):
        assert np.allclose(own, found(Squared(), others), atol=1e-12)


def test_loss_of_wrong_shape_is_rejected_before_any_charge() -> None:
    calls: list[int] = []

    def loss(_: float, x: Array) -> Array:
        calls.append(len(x))
        return x[:, None]

    with refuses("loss", "2"):
        select([0.0, 1.0], loss, np.arange(500.0), epsilon=0.5)
    assert calls == [2]
    with refuses("loss", "ZeroDivisionError"):
        select([0.0], lambda c, x: [1 / each for each in x.astype(object)], np.ones(9), epsilon=1.0)


def test_records_without_zeros_are_evaluated_individually_after_failure() -> None:
    records: list[Any] = [{"x": 0.25}] * 30

    def loss(candidate: float, some: list[dict[str, float]]) -> list[float]:
        return [abs(each["x"] - candidate) for each in some]

    odd = [*records[:3], {"y": 1}, *records[4:], None]
    options: dict[str, Any] = {"score": True, "random_state": 0, "epsilon": 1e3, "n_users": 32}
    options["unit"] = Record()
    found = silently(lambda: select([0.0, 0.25], loss, odd, **options))
    # Two of 32 count most.
    assert found.index == 1
    assert found.loss == pytest.approx(2 / 32, abs=0.01)


def test_by_record_evaluates_few_times() -> None:
    asked: list[int] = []

    def call(first: int, last: int) -> Array:
        asked.append(last - first)
        if first <= 700 < last:
            raise ValueError
        return np.ones(last - first)

    assert map_records(call, 1024).sum() != map_records(lambda a, b: np.ones(b - a), 1024).sum()
    assert np.isnan(map_records(call, 1024)).sum() == 1
    assert len(asked) <= 2 * (2 * 10 + 1)
    assert np.isnan(map_records(lambda *_: np.ones((3, 3)), 5)).all()


@pytest.mark.parametrize("failure", FAILURES)
def test_failing_run_has_the_worst_score(failure: str) -> None:
    rng = np.random.default_rng(0)
    kinds = set()
    for seed in range(40):
        turns = itertools.count(seed)

        def run(source: Any, turns: Any = turns) -> tuple[float, str]:
            if next(turns) % 2:
                FAILURES[failure]()
            return float(source.words(1)[0] % 100), "made"

        best = silently(
            lambda run=run: best_of(
                run, event=dg.accounting.Laplace(10.0), mean=2.0, default="nothing",
                source=SeededSource(int(rng.integers(2**32))),
            )
        )  # fmt: skip
        assert best.result == ("made" if best.score is not None and best.score >= 0 else "nothing")
        kinds.add(best.result)
    assert kinds == ({"made"} if failure in ("warns", "overflow") else {"made", "nothing"})


def test_failing_evaluation_is_the_worst() -> None:
    def evaluation(losses: Array, epsilon: float, source: Any) -> float:
        if losses.mean() > 0.4:
            raise ValueError("somebody's record")
        return float(losses.mean())

    found = silently(
        lambda: select(
            [0.0, 0.5], lambda c, x: np.abs(x - c), np.full(50, 0.5), method="repeat", delta=1e-6,
            evaluation=evaluation, random_state=1, runs=40.0,
        epsilon=1.0)
    )  # fmt: skip
    assert found.index == 1


def test_record_blocks_do_not_depend_on_evaluation_batches() -> None:
    blocks = RecordBlocks.arrange(NUMBERS, SIDE, np.arange(M) // 3)
    whole = blocks.gradients(Squared(), np.ones(D)).vectors()
    parts = blocks.gradients(Fragile(2.0, FAILURES["raises"]), np.ones(D)).vectors()
    assert np.array_equal(whole, parts)


def test_partition_warning_of_one_item_is_suppressed() -> None:
    def by(word: str) -> str:
        if word == "eve":
            warnings.warn("somebody's word", stacklevel=1)
        return word[:1]

    table = dg.read(pa.table({"who": [1, 2], "word": ["eve", "yo"]}), user="who")
    for unit in (Element(by), User(1, by=by)):
        found = silently(dg.histogram, table, "word", unit=unit, clip=1.0, epsilon=1.0, delta=1e-6)
        assert found is not None
    columned = table.with_cells("first", of="word", by=by)
    silently(dg.count, columned, by="first", domain=["e"], unit=User(), clip=1.0, **COUNTED)


def test_one_malformed_user_value_is_not_an_error() -> None:
    for odd in CELLS.values():
        found = silently(
            release_mean, [0.5, odd, 1.0], dimension=1, sensitivity=1.0, epsilon=1e5, delta=1e-6
        )
        assert found.value.shape == (1,)
        assert np.isfinite(found.value).all()
