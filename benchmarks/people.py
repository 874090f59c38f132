"""One row of each person, and a mean over people, against DuckDB's own query of the same.

Usage: python benchmarks/people.py [--rows 10000000] [--repeats 3] [--memory 1GB]

A Parquet file of rows of people (ten each on average) is read by both in a new connection,
alternately. The private work computes the features exactly, publishes the mean of one and charges
it; DuckDB's query groups by person, in floating point, and averages. Both skip features
that the mean does not use. The output is wall and processor time of each, and the ratios of their
best.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from timing import wall_and_processor

import dpgrain as dg

#: The name of each set of features, with its expressions and the same in DuckDB's language.
FEATURES: dict[str, tuple[dict[str, str], str]] = {
    "a count": ({"f": "count()"}, "count(*) AS f"),
    "a sum with a condition": (
        {"f": "total(paid, kind = 'er')"},
        "sum(paid) FILTER (kind = 'er') AS f",
    ),
    "six features": (
        {
            "visits": "count()",
            "er": "any(kind = 'er')",
            "paid": "total(paid)",
            "most": "max(paid)",
            "begin": "first(kind, day)",
            "f": "total(paid) / count()",
        },
        "count(*) AS visits, bool_or(kind = 'er') AS er, sum(paid) AS paid, max(paid) AS most, "
        "arg_min(kind, day) AS begin, sum(paid) / count(*) AS f",
    ),
    "five aggregates, all used": (
        {
            "f": "if(any(kind = 'er') and first(kind, day) <> 'gp', max(paid), "
            "total(paid) / count())"
        },
        "CASE WHEN bool_or(kind = 'er') AND arg_min(kind, day) <> 'gp' THEN max(paid) "
        "ELSE sum(paid) / count(*) END AS f",
    ),
    "the commonest value": (
        {"f": "if(most(kind) = 'er', 1, 0)"},
        "CASE WHEN mode(kind) = 'er' THEN 1 ELSE 0 END AS f",
    ),
}


def write(path: Path, rows: int) -> None:
    """Write rows of people in an order that has nothing to do with them."""
    rng = np.random.default_rng(0)
    kinds = pa.array(["er", "gp", "lab", "ward"])
    table = pa.table(
        {
            "who": rng.integers(0, max(rows // 10, 1), rows),
            "kind": kinds.take(pa.array(rng.integers(0, 4, rows))),
            "paid": np.round(rng.gamma(2.0, 20.0, rows), 2),
            "day": rng.integers(0, 365, rows),
        }
    )
    pyarrow.parquet.write_table(table, path, row_group_size=1 << 20)


def plain(path: Path, query: str) -> None:
    """Answer the query of features, and their mean."""
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.sql(
            f"SELECT avg(f) FROM (SELECT who, {query} FROM '{path}' GROUP BY who)"
        ).fetchall()


def private(path: Path, features: dict[str, str], memory: str = "1GB") -> None:
    """Publish the mean of a feature."""
    people = dg.read(str(path), user="who", threads=2, memory=memory).per_user(**features)
    dg.mean(people, "f", bounds=(0, 100), unit=dg.User(), epsilon=1.0, progress=False)


def main() -> None:
    """Print times and ratios for each set of features."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", default="1GB")
    options = parser.parse_args()
    print(f"{options.rows:,} rows: seconds of DuckDB and of the release, wall and processor")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write(path, options.rows)
        for name, (features, query) in FEATURES.items():
            works = partial(plain, path, query), partial(private, path, features, options.memory)
            times = np.array(
                [[wall_and_processor(work) for work in works] for _ in range(options.repeats)]
            )
            (wall, cpu), (own_wall, own_cpu) = times.min(axis=0)
            print(
                f"{name:24} {wall:6.2f} {own_wall:6.2f} {cpu:6.2f} {own_cpu:6.2f}   "
                f"ratio {own_wall / wall:.2f} wall, {own_cpu / cpu:.2f} processor",
                flush=True,
            )


if __name__ == "__main__":
    main()
