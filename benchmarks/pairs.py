"""All pairs of 20 columns: seconds, memory, and their ratio to the same tables without privacy.

Usage: python benchmarks/pairs.py [--people 1000000] [--rows 2] [--heavy 100000]

Each person has one row plus a Poisson number of further rows, and one person has ``--heavy`` different
rows. The work without privacy is one DuckDB query per pair of columns (``GROUP BY``) on the same rows
in memory. Memory is the peak of a process that only publishes.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dpgrain as dg

SIZES = (2, 2, 3, 4, 5, 6, 7, 8, 10, 10, 12, 12, 15, 20, 24, 30, 7, 5, 3, 50)


def people(number: int, rows: float, heavy: int, seed: int = 0) -> pa.Table:
    """Return the rows of people with values of skewed frequencies."""
    rng = np.random.default_rng(seed)
    each = np.append(1 + rng.poisson(rows - 1, number - 1), heavy)
    columns: dict[str, pa.Array] = {"who": pa.array(np.repeat(np.arange(number), each))}
    for i, size in enumerate(SIZES):
        shares = 1 / np.arange(1, size + 1)
        drawn = rng.choice(size, each.sum(), p=shares / shares.sum())
        names = pa.array([f"value {j}" for j in range(size)])
        columns[f"c{i}"] = names.take(pa.array(drawn)) if i % 2 else pa.array(drawn)
    return pa.table(columns)


def domain() -> dict[str, list[int] | list[str]]:
    """Return the public values of each column."""
    return {
        f"c{i}": [f"value {j}" for j in range(size)] if i % 2 else list(range(size))
        for i, size in enumerate(SIZES)
    }


def publish(path: Path) -> None:
    """Publish all pairs of columns, and print seconds, processor seconds and the peak of memory."""
    started, known = time.perf_counter(), domain()
    release = dg.marginals(
        dg.read(path, user="who"), list(known), domain=known, unit=dg.User(), epsilon=1.0,
        delta=1e-6, progress=False,
    )  # fmt: skip
    seconds, peak = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    print(
        seconds, peak.ru_utime + peak.ru_stime, peak.ru_maxrss / 1024, len(release.workload),
        len(release), release.clip[0], release.clipped_share,
    )  # fmt: skip


def group_by(path: Path) -> tuple[float, float]:
    """Count the rows of all pairs without privacy; return wall and processor seconds."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE rows AS SELECT * FROM '{path}'")
        started, worked = time.perf_counter(), time.process_time()
        for one, two in itertools.combinations(domain(), 2):
            connection.sql(f"SELECT {one}, {two}, count(*) FROM rows GROUP BY ALL").fetchall()
        return time.perf_counter() - started, time.process_time() - worked


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--people", type=int, default=1_000_000)
    parser.add_argument("--rows", type=float, default=2.0)
    parser.add_argument("--heavy", type=int, default=100_000)
    parser.add_argument("--publish", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.publish is not None:
        publish(options.publish)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.parquet"
        table = people(options.people, options.rows, options.heavy)
        pq.write_table(table, path)
        number = table.num_rows
        del table
        run = subprocess.run(
            [sys.executable, __file__, "--publish", str(path)],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        seconds, worked, peak, marginals, cells, bound, share = run.stdout.split()
        plain, plain_worked = group_by(path)
    print(
        f"{number:,} rows of {options.people:,} people, {marginals} marginals of {int(cells):,} cells, "
        f"{os.cpu_count()} cores: {float(seconds):.1f} s ({float(worked):.1f} s of processors), peak "
        f"{float(peak):,.0f} MB; without privacy {plain:.1f} s ({plain_worked:.1f} s): "
        f"{float(worked) / plain_worked:.1f} times; bound {float(bound):.3g}, share of clipped people "
        f"{share}"
    )


if __name__ == "__main__":
    main()
