"""The whole element-level histogram against the plain, non-private one on the same file.

Usage: python benchmarks/histogram.py [--rows 40000000] [--repeats 3] [--text] [--skew]

Each run is a separate process; the best of the repeats counts. The non-private work is DuckDB's
GROUP BY user, item followed by GROUP BY item, with the same threads and memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ITEMS, CELLS = 400_000, 10_000
THREADS, MEMORY = 2, "1GB"

PLAIN = """
import duckdb
con = duckdb.connect()
con.execute("SET threads={threads}; SET memory_limit='1200MB'")
rows = con.sql(
    "SELECT item, sum(n) FROM (SELECT user_id, item, count(*) AS n FROM '{path}' GROUP BY ALL) "
    "GROUP BY item"
).fetchnumpy()
"""

PRIVATE = """
import dpgrain as dg
from pathlib import Path
table = dg.read('{path}', user='user_id', threads={threads}, memory='{memory}')
dg.histogram(
    table, 'item', unit=dg.Element(Path('{mapping}')), epsilon=1.0, delta=1e-6, clip={clip!r},
    progress=False,
)
"""

TIMED = """
import json, resource, time
start = time.perf_counter()
{body}
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss]))
"""


def write_rows(path: Path, rows: int, *, as_text: bool, skew: bool) -> None:
    """Zipf items, Pareto users, random order; with skew, one user has half of the rows."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    generator = np.random.default_rng(0)
    users = max(rows // 100, 1)
    activity = np.cumsum(generator.pareto(1.5, users) + 0.3)
    popularity = np.cumsum(1 / (np.arange(ITEMS) + 10.0) ** 1.05)
    names = generator.permutation(ITEMS)
    kind = pa.string() if as_text else pa.int64()
    schema = pa.schema([("user_id", kind), ("item", kind)])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for _ in range(0, rows, 1_000_000):
            size = min(1_000_000, rows)
            user = np.searchsorted(activity, generator.random(size) * activity[-1])
            if skew:
                user[generator.random(size) < 0.5] = 0
            item = names[np.searchsorted(popularity, generator.random(size) * popularity[-1])]
            writer.write_table(
                pa.table([pa.array(user).cast(kind), pa.array(item).cast(kind)], schema=schema)
            )


def write_mapping(path: Path, *, as_text: bool) -> None:
    """The cell of each item."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = pa.string() if as_text else pa.int64()
    cells = np.random.default_rng(1).integers(0, CELLS, ITEMS)
    pq.write_table(pa.table({"item": pa.array(range(ITEMS)).cast(kind), "cell": cells}), path)


def measure(body: str) -> tuple[float, float, float]:
    """Wall seconds, processor seconds and peak memory in GB of a process that runs the code."""
    done = subprocess.run(
        [sys.executable, "-c", TIMED.format(body=body)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    wall, cpu, peak = json.loads(done.stdout.splitlines()[-1])
    return wall, cpu, peak / 1e6


def compare(rows: int, repeats: int, folder: Path, *, as_text: bool, skew: bool) -> float:
    """Print a table for a number of rows; return the wall seconds with a fixed bound."""
    path, mapping = folder / f"rows{rows}.parquet", folder / "cells.parquet"
    write_rows(path, rows, as_text=as_text, skew=skew)
    write_mapping(mapping, as_text=as_text)
    plain = PLAIN.format(path=path, threads=THREADS)
    works = {"plain GROUP BY": plain}
    for name, clip in (("private, fixed bound", 5.0), ("private, clip='auto'", "auto")):
        works[name] = PRIVATE.format(
            path=path, mapping=mapping, threads=THREADS, memory=MEMORY, clip=clip
        )
    # Interleaved, so that a slow minute of the machine touches all of them.
    runs = [{name: measure(body) for name, body in works.items()} for _ in range(repeats)]
    best = {name: tuple(min(run[name][i] for run in runs) for i in range(2)) for name in works}
    print(f"\n{rows:,} rows, {ITEMS:,} items, {CELLS:,} cells, {THREADS} threads")
    print(f"{'':24}{'wall s':>8}{'cpu s':>8}{'peak GB':>9}{'wall ratio':>12}")
    for name, (wall, cpu) in best.items():
        peak = max(run[name][2] for run in runs)
        ratio = wall / best["plain GROUP BY"][0]
        print(f"{name:24}{wall:8.2f}{cpu:8.2f}{peak:9.2f}{ratio:12.2f}")
    auto, fixed = best["private, clip='auto'"], best["private, fixed bound"]
    print(
        f"choosing bounds takes {auto[0] / fixed[0]:.2f} times the wall time of a fixed bound, "
        f"{auto[1] / fixed[1]:.2f} times the cpu time"
    )
    path.unlink()
    return best["private, fixed bound"][0]


def main() -> None:
    """Run the comparison at a tenth of the rows and at all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=40_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--text", action="store_true", help="text users and items")
    parser.add_argument("--skew", action="store_true", help="one user holds half of the rows")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        small, large = (
            compare(rows, options.repeats, Path(folder), as_text=options.text, skew=options.skew)
            for rows in (options.rows // 10, options.rows)
        )
    print(f"\nten times the rows: {large / small:.1f} times the wall time")


if __name__ == "__main__":
    main()
