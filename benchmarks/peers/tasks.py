"""The tasks of every library, their rows, and their errors.

The rows are the online-retail table's in the folder DPGRAIN_DATA. Numbers are clipped to a public
range before any library sees them, and the truth uses the clipped numbers, so that errors come from
contribution bounds and noise.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpgrain._files import data_folder
from dpgrain.datasets import catalogue, loans

SOURCE = "online_retail.parquet"
EPSILON, DELTA = 1.0, 1e-6
QUANTITY, PRICE, AMOUNT = (0, 100), (0, 20), (0, 100)  # pieces, pounds, pounds
LARGE = ("Belgium", "France", "Germany", "Spain", "United Kingdom")  # 25 users or more each

Estimates = Mapping[str, float]


@dataclass(frozen=True)
class Task:
    """One statistic at one promise.

    Args:
        name: the name in the tables of the page.
        unit: ``user`` (all records of one removed or added), ``element`` (those in one cell) or
            ``record`` (one replaced).
        kind: ``count``, ``users``, ``sum``, ``mean``, ``variance`` or ``median``.
        bounds: by library, the parameters with the least error of those tried in hindsight.
    """

    name: str
    unit: str
    kind: str
    by: str = ""
    value: str = ""
    range: tuple[float, float] = (0, 0)
    known: bool = True
    bounds: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def delta(self) -> float:
        """The δ of the promise: none is needed to hide a record."""
        return 0.0 if self.unit == "record" else DELTA

    def asked(self, library: str) -> dict[str, Any]:
        """The arguments of a library, as JSON."""
        told = asdict(self) | {"epsilon": EPSILON, "delta": self.delta}
        return told | {"bounds": self.bounds.get(library, {})}


USER_TASKS = (
    Task(
        "records per item",
        "user",
        "count",
        "item",
        bounds={
            "dpgrain, given bound": {"clip": 16.0},
            "PipelineDP": {"noise": "gaussian", "groups": 180, "records": 1},
            "OpenDP": {"noise": "gaussian", "groups": 180, "cap": 1},
            "Tumult": {"groups": 180, "records": 1},
        },
    ),
    Task(
        "users per item",
        "user",
        "users",
        "item",
        bounds={
            "dpgrain, given bound": {"clip": 8.0},
            "PipelineDP": {"noise": "gaussian", "groups": 100},
            "OpenDP": {"noise": "gaussian", "groups": 100},
            "Tumult": {"groups": 100},
        },
    ),
    Task(
        "users per item, items unknown",
        "user",
        "users",
        "item",
        known=False,
        bounds={
            "dpgrain, given bound": {"clip": 4.0},
            "PipelineDP": {"noise": "gaussian", "strategy": "post", "groups": 80},
            "OpenDP": {"noise": "gaussian", "groups": 80},
            "Tumult": {"groups": 10},
        },
    ),
    Task(
        "quantity per item",
        "user",
        "sum",
        "item",
        "quantity",
        QUANTITY,
        bounds={
            "dpgrain, given bound": {"clip": 2.0},
            "PipelineDP": {"noise": "gaussian", "groups": 120, "cap": 20},
            "OpenDP": {"noise": "gaussian", "groups": 100, "cap": 20},
            "Tumult": {"groups": 100, "records": 1, "cap": 20},
        },
    ),
    Task(
        "mean price",
        "user",
        "mean",
        "",
        "price",
        PRICE,
        bounds={
            "dpgrain, given bound": {"clip": 400.0},
            "PipelineDP": {"noise": "laplace", "records": 400},
            "OpenDP": {"noise": "laplace", "records": 400},
            "Tumult": {"noise": "laplace", "records": 400},
        },
    ),
    Task(
        "mean price in five countries",
        "user",
        "mean",
        "large",
        "price",
        PRICE,
        bounds={
            "dpgrain, given bound": {"noise": "laplace", "clip": 1.0},
            "PipelineDP": {"noise": "laplace", "records": 1},
            "OpenDP": {"noise": "laplace", "records": 1},
            "Tumult": {"noise": "laplace", "records": 1},
        },
    ),
    Task(
        "variance of price",
        "user",
        "variance",
        "",
        "price",
        PRICE,
        bounds={
            "dpgrain, given bound": {"clip": 200.0},
            "PipelineDP": {"noise": "laplace", "records": 200},
            "OpenDP": {"noise": "laplace", "records": 200},
            "Tumult": {"noise": "laplace", "records": 200},
        },
    ),
    Task(
        "median price",
        "user",
        "median",
        "",
        "price",
        PRICE,
        bounds={
            "dpgrain, given bound": {"clip": 200.0},
            "PipelineDP": {"noise": "laplace", "records": 20},
            "OpenDP": {"noise": "laplace", "records": 100},
            "Tumult": {"noise": "laplace", "records": 20},
        },
    ),
    Task(
        "median amount of a record",
        "user",
        "median",
        "",
        "amount",
        AMOUNT,
        bounds={
            "dpgrain, given bound": {"noise": "laplace", "clip": 1600.0},
            "PipelineDP": {"noise": "laplace", "records": 600},
            "OpenDP": {"noise": "gaussian", "records": 1000},
            "Tumult": {"noise": "laplace", "records": 600},
        },
    ),
)

RECORD_TASKS = (
    Task("records per item", "record", "count", "item"),
    Task("sum of quantity", "record", "sum", "", "quantity", QUANTITY),
    Task("mean price", "record", "mean", "", "price", PRICE),
    Task("variance of price", "record", "variance", "", "price", PRICE),
    Task("median price", "record", "median", "", "price", PRICE),
)


@functools.cache
def rows() -> pd.DataFrame:
    """All records: user, item, country, one of the large countries or none, and clipped numbers."""
    table = pd.read_parquet(data_folder(SOURCE) / SOURCE)
    price = table["unit_price"].astype(float)
    return pd.DataFrame(
        {
            "user": table["user_id"].astype("int64"),
            "item": table["item_id"].astype(object),
            "large": table["country"].astype(object).where(table["country"].isin(LARGE)),
            "quantity": table["quantity"].clip(*QUANTITY).astype("int64"),
            "price": price.clip(*PRICE).round(2),
            "amount": (table["quantity"] * price).clip(*AMOUNT).round(2),
        }
    )


def keys(column: str) -> list[str]:
    """The public list of groups: all items that occur, or the five large countries."""
    return list(LARGE) if column == "large" else sorted(rows()[column].unique())


def write(folder: Path) -> None:
    """Put the rows and the lists of groups where the programs of all libraries look for them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows().to_parquet(folder / "rows.parquet", index=False)
    lists = {column: keys(column) for column in ("item", "large")}
    (folder / "keys.json").write_text(json.dumps(lists), encoding="utf-8")


def truth(task: Task) -> dict[str, float]:
    """The exact statistic of all records, without contribution bounds."""
    table = rows().assign(all="all")
    by = table.groupby(task.by or "all")
    exact: dict[str, Callable[[], Any]] = {
        "count": by.size,
        "users": lambda: by["user"].nunique(),
        "sum": lambda: by[task.value].sum(),
        "mean": lambda: by[task.value].mean(),
        "variance": lambda: by[task.value].var(ddof=0),
        "median": lambda: by[task.value].median(),
    }
    return {str(key): float(value) for key, value in exact[task.kind]().items()}


def rmse(exact: Estimates, task: Task, estimates: Estimates) -> float:
    """The root mean squared error over groups.

    Unpublished values count as zero, and a mean is clamped to its public range.
    """
    found = np.array([estimates.get(group, 0.0) for group in exact])
    if task.kind in ("mean", "median"):
        found = np.clip(found, *task.range)
    if task.kind == "variance":
        found = np.clip(found, 0, ((task.range[1] - task.range[0]) / 2) ** 2)
    return float(np.sqrt(np.mean((found - np.array(list(exact.values()))) ** 2)))


def write_loans(folder: Path) -> dict[str, float]:
    """Write the generated loans for the programs; return the number of each title."""
    folder.mkdir(parents=True, exist_ok=True)
    table = loans().to_pandas()
    found = pd.DataFrame({"user": table["reader"], "item": table["title"]})
    found.assign(large="", quantity=1, price=0.0, amount=0.0).to_parquet(
        folder / "rows.parquet", index=False
    )
    subject_of = catalogue()
    lists = {"item": sorted(subject_of), "subject_of": subject_of}
    (folder / "keys.json").write_text(json.dumps(lists), encoding="utf-8")
    counts = table.groupby("title").size()
    return {title: float(counts.get(title, 0)) for title in lists["item"]}
