"""One statistic of a table of 100,000 rows against DuckDB's own query of it, in a warm process.

Usage: python benchmarks/small_tables.py [--rows 100000] [--repeats 7]

Each pair is timed alternately, and the best of the repeats counts; the time of a release beyond the
query
is its fixed cost: checks, a private connection, noise, intervals. DuckDB reads each source from a
separate connection, like a release.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from timing import wall_and_processor

import dpgrain as dg

ITEMS = 1000
PROMISE: dict[str, Any] = {
    "unit": dg.User(),
    "epsilon": 1.0,
    "delta": 1e-6,
    "progress": False,
}


def some_rows(rows: int) -> pa.Table:
    """Users of ten rows on average, a thousand items, and a number for each."""
    generator = np.random.default_rng(0)
    return pa.table(
        {
            "who": generator.integers(0, max(rows // 10, 1), rows),
            "item": generator.integers(0, ITEMS, rows),
            "paid": np.round(generator.gamma(2.0, 20.0, rows), 2),
        }
    )


#: The name of each statistic with its query and its release.
STATISTICS: dict[str, tuple[str, Callable[[dg.UserTable], Any]]] = {
    "count": (
        "SELECT count(*) FROM rows",
        lambda table: dg.count(table, clip=10.0, **PROMISE),
    ),
    "histogram of 1,000 items": (
        "SELECT item, count(*) FROM rows GROUP BY item",
        lambda table: dg.histogram(table, "item", domain=range(ITEMS), clip=10.0, **PROMISE),
    ),
    "histogram, bounds chosen": (
        "SELECT item, count(*) FROM rows GROUP BY item",
        lambda table: dg.histogram(table, "item", domain=range(ITEMS), **PROMISE),
    ),
    "mean": (
        "SELECT avg(paid::DOUBLE) FROM rows",
        lambda table: dg.mean(table, "paid", bounds=(0, 200), **PROMISE),
    ),
    "quartiles": (
        "SELECT quantile_cont(paid::DOUBLE, [0.25, 0.5, 0.75]) FROM rows",
        lambda table: dg.quantiles(table, "paid", q=(0.25, 0.5, 0.75), bounds=(0, 200), **PROMISE),
    ),
    "top 20": (
        "SELECT item, count(DISTINCT who) AS n FROM rows GROUP BY item ORDER BY n DESC LIMIT 20",
        lambda table: dg.top(table, "item", k=20, **PROMISE),
    ),
}


def sources(rows: pa.Table, folder: Path) -> dict[str, Any]:
    """Return the same rows as an Arrow table, a Parquet file and a CSV file."""
    pyarrow.parquet.write_table(rows, folder / "rows.parquet")
    pyarrow.csv.write_csv(rows, folder / "rows.csv")
    return {
        "Arrow": rows,
        "Parquet": str(folder / "rows.parquet"),
        "CSV": str(folder / "rows.csv"),
    }


def plain(source: Any, query: str) -> None:
    """Answer a query of a source in a new connection."""
    with duckdb.connect() as connection:
        if isinstance(source, str):
            connection.execute(f"CREATE VIEW rows AS SELECT * FROM '{source}'")
        else:
            connection.register("rows", source)
        connection.sql(query).fetchall()


def private(source: Any, publish: Callable[[dg.UserTable], Any]) -> None:
    """Open a source and publish a statistic of it."""
    types = {"who": "BIGINT", "item": "BIGINT", "paid": "DOUBLE"}
    text = isinstance(source, str) and source.endswith(".csv")
    publish(dg.read(source, user="who", types=types if text else None))


def main() -> None:
    """Print both times and their difference, for each source and statistic."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    print(f"{options.rows:,} rows, milliseconds")
    print(f"{'':36}{'wall':>24}{'processor':>24}")
    print(f"{'':36}" + f"{'DuckDB':>8}{'private':>8}{'beyond':>8}" * 2)
    with tempfile.TemporaryDirectory() as folder:
        for kind, source in sources(some_rows(options.rows), Path(folder)).items():
            for name, (query, publish) in STATISTICS.items():
                works = (partial(plain, source, query), partial(private, source, publish))
                times = np.array(
                    [[wall_and_processor(work) for work in works] for _ in range(options.repeats)]
                )
                best = 1e3 * times.min(axis=0)
                beyond = best[1] - best[0]
                print(
                    f"{kind + ': ' + name:36}"
                    + "".join(
                        f"{best[0, clock]:8.1f}{best[1, clock]:8.1f}{beyond[clock]:8.1f}"
                        for clock in range(2)
                    )
                )


if __name__ == "__main__":
    main()
