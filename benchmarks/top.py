"""Top items of an unknown domain against the plain count of different users by item.

Usage: python benchmarks/top.py [--rows 40000000] [--repeats 3]

Each run is a separate process; the best of the repeats counts. The non-private work is DuckDB's
number of different users of each item, with the same threads: it counts the rows of SELECT DISTINCT,
which it can spill. It has 2 GB, twice the memory of the release, because DuckDB 2.0 runs out of 1.2
GB if its two threads expand their hash tables at the same time.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from histogram import MEMORY, THREADS, measure, write_rows

PLAIN = """
import duckdb
con = duckdb.connect()
con.execute("SET threads={threads}; SET memory_limit='2GB'")
con.execute("SET temp_directory='{path}.spill'")
pairs = "SELECT DISTINCT item, user_id FROM '{path}' WHERE user_id IS NOT NULL"
rows = con.sql(f"SELECT item, count(*) FROM ({{pairs}}) GROUP BY item").fetchnumpy()
"""

PRIVATE = """
import dpgrain as dg
table = dg.read('{path}', user='user_id', threads={threads}, memory='{memory}')
dg.top(table, 'item', unit={unit}, epsilon=1.0, delta=1e-8, progress=False)
"""


def main() -> None:
    """Print a table of the plain work and the private releases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=40_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write_rows(path, options.rows, as_text=False, skew=False)
        works = {"plain count of pairs": PLAIN.format(path=path, threads=THREADS)}
        for name, unit in (("one item", "dg.Element('item')"), ("whole user", "dg.User()")):
            works[f"private, {name}"] = PRIVATE.format(
                path=path, threads=THREADS, memory=MEMORY, unit=unit
            )
        # Interleaved, so that a slow minute of the machine touches all of them.
        runs = [
            {name: measure(body) for name, body in works.items()} for _ in range(options.repeats)
        ]
    print(f"{options.rows:,} rows, {THREADS} threads, items unknown beforehand")
    print(f"{'':24}{'wall s':>8}{'cpu s':>8}{'peak GB':>9}{'wall ratio':>12}")
    best = {name: tuple(min(run[name][i] for run in runs) for i in range(2)) for name in works}
    for name, (wall, cpu) in best.items():
        peak = max(run[name][2] for run in runs)
        ratio = wall / best["plain count of pairs"][0]
        print(f"{name:24}{wall:8.2f}{cpu:8.2f}{peak:9.2f}{ratio:12.2f}")


if __name__ == "__main__":
    main()
