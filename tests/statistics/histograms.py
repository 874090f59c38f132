"""Planned, searched and audited histograms."""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.csv

import dpgrain as dg
from dpgrain.units import Unit

Row: TypeAlias = tuple[int, str, str | None, float]  # user, item, cell, weight


ITEMS = ["a", "b", "c", "d"]
MAPPING = {"a": "x", "b": "x", "c": "y", "d": "z"}
UNITS: dict[str, Unit] = {
    "record": dg.Record(),
    "own": dg.Element("item"),
    "mapping": dg.Element(MAPPING),
    "function": dg.Element(MAPPING.__getitem__),
    "column": dg.Element("cell"),
    "user": dg.User(),
    "capped": dg.User(2),
    "capped mapping": dg.User(2, by=MAPPING),
    "capped column": dg.User(2, by="cell"),
}


def table_of(rows: list[Row], **options: Any) -> dg.UserTable:
    user, item, cell, weight = zip(*rows, strict=True) if rows else ([], [], [], [])
    columns = {
        "who": pa.array(user, pa.int64()),
        "item": pa.array(item, pa.string()),
        "cell": pa.array(cell, pa.string()),
        "w": pa.array(weight, pa.float64()),
    }
    return dg.read(pa.table(columns), user="who", **options)


GOOD: dict[str, Any] = {"unit": dg.Element("item"), "epsilon": 1.0, "delta": 1e-6, "clip": 1.0}
