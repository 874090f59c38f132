"""A table, release files about it, and engines that report reads of rows."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.publishing.cases import Unread
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg

GENERATOR = np.random.default_rng(11)
SIZE = 6000
ROWS = pa.table(
    {
        "who": GENERATOR.integers(0, 600, SIZE),
        "page": [f"p{i}" for i in GENERATOR.geometric(0.3, SIZE)],
        "topic": [f"t{i}" for i in GENERATOR.integers(0, 3, SIZE)],
        "seconds": GENERATOR.gamma(2.0, 15.0, SIZE),
        "age": GENERATOR.normal(50, 10, SIZE),
        "bought": GENERATOR.integers(0, 2, SIZE),
    }
)

# One release of each kind, with all that it needs but ε and δ.
KINDS: dict[str, str] = {
    "histogram": 'statistic = "histogram"\nitem = "page"',
    "top": 'statistic = "top"\nitem = "page"\nk = 3',
    "count": 'statistic = "count"\nby = "topic"\ndomain = ["t0", "t1", "t2"]',
    "sum": 'statistic = "sum"\nvalue = "seconds"\nbounds = [0, 200]',
    "mean": 'statistic = "mean"\nvalue = "seconds"\nbounds = [0, 200]',
    "variance": 'statistic = "variance"\nvalue = "seconds"\nbounds = [0, 200]',
    "quantiles": 'statistic = "quantiles"\nvalue = "seconds"\nbounds = [0, 200]\nq = [0.5]',
    "distribution": 'statistic = "distribution"\nvalue = "seconds"\nat = [10, 50]',
    "marginals": 'statistic = "marginals"\nby = ["topic", "page"]\nworkload = [["topic", "page"], '
    '["topic"]]\ndomain = {topic = ["t0", "t1", "t2"], page = ["p0", "p1"]}',
    "elements_per_user": 'statistic = "elements_per_user"\nby = "topic"',
    "mean_of_users": 'statistic = "mean_of_users"\ncolumns = ["seconds", "age"]\nbound = 300',
    "fit": 'fit = "logistic"\ntarget = "bought"\nfeatures = ["seconds", "age"]\nclasses = [0, 1]\n'
    "rounds = 5\nrange = {seconds = [0, 200], age = [0, 100]}",
}
TABLE = '[table]\nsource = "visits.parquet"\nuser = "who"\nn_users = 600\n'
BUDGET = '[budget]\nunit = "user"\nepsilon = 2.0\ndelta = 1e-6\n'
STATED = '[budget]\nunit = "user"\n'


def table(**options: Any) -> dg.UserTable:
    return dg.read(ROWS, user="who", n_users=600, threads=1, **options)


def unread() -> dg.UserTable:
    return dataclasses.replace(table(), source=Unread())


def releases(spending: str, names: list[str] | None = None) -> str:
    listed = KINDS if names is None else {name: KINDS[name] for name in names}
    return "\n".join(f"[release.{name}]\n{lines}\n{spending}\n" for name, lines in listed.items())


def written(folder: Path, text: str) -> Path:
    path = folder / "releases.toml"
    path.write_text(text, encoding="utf-8")
    return path


def parquet(folder: Path) -> Path:
    path = folder / "visits.parquet"
    pq.write_table(ROWS, path)
    return path


def without_its_rows(path: Path) -> None:
    """Retain a Parquet file's column metadata, and none of their pages."""
    held = path.read_bytes()
    footer = 8 + int.from_bytes(held[-8:-4], "little")
    path.write_bytes(held[:4] + bytes(len(held) - 4 - footer) + held[-footer:])


class Counted(InMemory):
    """An engine that counts how often it is opened, and may fail at one time."""

    opened: ClassVar[int] = 0
    fails_at: ClassVar[int] = 0

    def __enter__(self) -> Any:
        Counted.opened += 1
        if Counted.opened == Counted.fails_at:
            raise dg.DataError("the disk is on fire; call somebody.")
        return super().__enter__()


def counted(fails_at: int = 0) -> dg.UserTable:
    Counted.opened, Counted.fails_at = 0, fails_at
    return table(engine=Counted)
