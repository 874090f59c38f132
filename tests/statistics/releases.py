"""Releases of every kind."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import dpgrain as dg


def shop(rows: int = 6000) -> dg.UserTable:
    generator = np.random.default_rng(3)
    item = np.minimum(generator.geometric(0.1, rows), 40)
    columns = {
        "who": generator.integers(0, 200, rows),
        "item": item,
        "name": pa.array([f"item {i}" for i in item]),
        "month": generator.integers(1, 4, rows),
        "paid": generator.normal(10, 4, rows),
    }
    return dg.read(pa.table(columns), user="who", n_users=200)
