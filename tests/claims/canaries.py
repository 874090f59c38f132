"""People with secret names and numbers only in their rows, and the releases from them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from tests.claims.publishers import People
from tests.fuzz.watch import CANARY, NUMBER
from tests.releases.cases import without_its_rows

import dpgrain as dg

_SECRET = slice(33, 36)


def parquet(rows: pa.Table, folder: Path) -> Path:
    pq.write_table(rows, folder / "rows.parquet")
    return folder / "rows.parquet"


def csv(rows: pa.Table, folder: Path) -> Path:
    place = rows.schema.get_field_index("x")
    cells = [CANARY if i == _SECRET.start else str(x) for i, x in enumerate(rows["x"].to_pylist())]
    pyarrow.csv.write_csv(rows.set_column(place, "x", pa.array(cells)), folder / "rows.csv")
    return folder / "rows.csv"


def stream(rows: pa.Table, breaks: bool = False) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows.to_batches(50)
        if breaks:
            raise ValueError(f"{CANARY}, {NUMBER}")

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


def relation(rows: pa.Table, breaks: bool = False) -> Any:
    """A query of DuckDB, which may fail at a row and quote it."""
    connection = duckdb.connect(":memory:")
    held = connection.from_arrow(rows)
    return held.filter("CAST(who AS BIGINT) > 0" if breaks else "true")


FORMS: Mapping[str, Callable[[pa.Table, Path], Any]] = {
    "Arrow": lambda rows, _: rows,
    "pandas": lambda rows, _: rows.to_pandas(),
    "Polars": lambda rows, _: pl.from_arrow(rows),
    "Parquet": parquet,
    "CSV": csv,
    "stream": lambda rows, _: stream(rows),
    "DuckDB": lambda rows, _: relation(rows),
}
BROKEN: Mapping[str, Callable[[pa.Table, Path], Any]] = {
    "Parquet": parquet,
    "CSV": csv,
    "stream": lambda rows, _: stream(rows, breaks=True),
    "DuckDB": lambda rows, _: relation(rows, breaks=True),
}


def damage(path: Path) -> None:
    """Truncate a file after its header; empty a text file."""
    if path.suffix == ".csv":
        path.unlink()
        return
    without_its_rows(path)


@dataclass(frozen=True, eq=False)
class Canaries(People):
    """People with secret names and cells; one person also has secret items and numbers.

    Args:
        breaks: True if a table cannot be read to its end.
    """

    form: str = "Arrow"
    engine: str = "duckdb"
    folder: Path = field(default_factory=Path)
    breaks: bool = False

    @classmethod
    def some(cls, *how: Any, **more: Any) -> Self:
        plain = People.of(0)
        users = np.array([f"{CANARY}-{user}" for user in plain.users])
        cells = np.array([f"{CANARY} of {cell}" for cell in plain.cells])
        items, X = plain.items.astype("U30"), plain.X.copy()
        items[_SECRET] = [f"{CANARY} {i}" for i in range(3)]
        X[_SECRET] = [[NUMBER, -NUMBER], [np.nan, NUMBER], [NUMBER, np.inf]]
        return cls(users, items, cells, X, *how, **more)

    def read(self, rows: pa.Table, **options: Any) -> dg.UserTable:
        if self.breaks and self.form in BROKEN:
            source = BROKEN[self.form](rows, self.folder)
        else:
            source = FORMS[self.form](rows, self.folder)
        if self.form == "CSV":
            options["types"] = {"x": "DOUBLE"}
        if self.form == "DuckDB":
            options["rows"] = "as given"
        table: dg.UserTable = dg.read(source, engine=self.engine, threads=1, **options)
        if self.breaks and isinstance(source, Path):
            damage(source)
        return table


def handed_on(result: Any, folder: Path, *, pages: bool) -> Iterator[tuple[str, str | bytes]]:
    """Everything that a release returns or writes, by type.

    Args:
        pages: True if it is drawn and written as well, which takes long.
    """
    yield "repr", repr(result)
    yield "str", str(result)
    for name in ("to_arrow", "to_dict", "to_json", "summary", "_repr_html_"):
        if callable(getattr(result, name, None)):
            told = getattr(result, name)()
            yield name, repr(told.to_pydict() if isinstance(told, pa.Table) else told)
    yield "what it holds", repr(getattr(result, "__dict__", ""))
    if not pages:
        return
    yield "pickle", pickle.dumps(result)
    if hasattr(result, "report"):
        yield "report", result.report(folder / "page.html").read_bytes()
    if hasattr(result, "plot"):
        figure = result.plot().get_figure(root=True)
        figure.savefig(folder / "plot.svg", format="svg")
        yield "plot", (folder / "plot.svg").read_bytes()
    for name, ending in (("write", ".csv"), ("write", ".json"), ("save", ".parquet")):
        if hasattr(result, name):
            path = getattr(result, name)(folder / f"{name}{ending}")
            yield name, path.read_bytes()
            if path.read_bytes().startswith(b"PAR1"):
                table = pq.read_table(path)
                yield name, f"{table.to_pydict()}{table.schema.metadata}"
