"""Releases of rows in other systems, compared with the least cost of fetching them.

Usage: python benchmarks/sources.py --address postgresql://user@host/database [--rows 40000000]
           [--parts 1000] [--work-mem 256MB] [--repeats 3]

Rows of people (a hundredth as many, of 10,000 pages) are written to a table of the database, to one
Parquet file and to a folder of parts, a month each. The output is the wall time of each, and these
ratios of the best, with the peak memory of each release in a separate process, without the process:

- a histogram of the table, grouped by person and page on the server, to the same query through psql
  with output to /dev/null and the same ``work_mem``; also a plain ``GROUP BY`` page;
- a sum of a column, with its rows fetched, to ADBC's own read of the same columns;
- a histogram of the folder to the file's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from timing import seconds

TABLE = "dpgrain_benchmark"
PAGES = 10_000
MEMORY = 10**9
#: Rows per write.
ROWS = 1 << 20
#: A histogram's query of the server, and a reader's query.
GROUPED = (
    'SELECT (CASE WHEN pg_catalog.octet_length("page") <= 65536 THEN "page" END) COLLATE "C", "who", '
    f"pg_catalog.count(*) FROM {TABLE} GROUP BY 1, 2"
)
PLAIN = f"SELECT page, count(*) FROM {TABLE} GROUP BY page"
STREAMED = f'SELECT "paid", "who" FROM {TABLE}'
#: Releases: name → a release of a table opened as ``rows``.
RELEASES = {
    "grouped": 'dg.histogram(rows, "page", domain=pages, **PROMISE)',
    "streamed": 'dg.sum(rows, "paid", bounds=(0, 1), **PROMISE)',
}
#: A separate process: a small release warms up, and the additional peak memory is reported.
MEASURED = """
    import gc, os, pathlib, time, warnings, pyarrow as pa, dpgrain as dg
    warnings.simplefilter("ignore")
    pages = [f"/page/{{i}}" for i in range({pages})]
    PROMISE = {{"unit": dg.User(), "epsilon": 1.0, "delta": 1e-9}}
    def status(name):
        return int(pathlib.Path("/proc/self/status").read_text().split(name + ":")[1].split()[0])
    rows = dg.read(pa.table({{"who": [1], "page": ["/page/1"], "paid": [0.5]}}), user="who")
    {release}
    gc.collect()
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before, begun = status("VmRSS"), time.perf_counter()
    rows = dg.read({source!r}, user="who", memory={memory}, **{options!r})
    {release}
    print(time.perf_counter() - begun, status("VmHWM") - before)
"""


def rows_of(count: int, seed: int) -> pa.Table:
    """Rows of people; few pages have most of them."""
    rng = np.random.default_rng(seed)
    names = pa.array([f"/page/{i}" for i in range(PAGES)])
    pages = np.minimum(rng.zipf(1.3, count), PAGES) - 1
    who = pa.array(rng.integers(0, max(count // 100, 1) * 100, count) // 100)
    return pa.table({"who": who, "page": names.take(pa.array(pages)), "paid": rng.random(count)})


def written(address: str, folder: Path, rows: int, parts: int) -> tuple[Path, Path]:
    """Write the rows to the table, to a file and to a folder of parts; return the last two."""
    from adbc_driver_postgresql import dbapi

    file, lake = folder / "rows.parquet", folder / "lake"
    schema = rows_of(1, 0).schema
    with (
        dbapi.connect(address, autocommit=True) as connection,
        connection.cursor() as cursor,
        pq.ParquetWriter(file, schema) as whole,
    ):
        for place in range(parts):
            share = rows * (place + 1) // parts - rows * place // parts
            table = rows_of(share, place)
            whole.write_table(table, row_group_size=ROWS)
            part = lake / f"month={place:04d}"
            part.mkdir(parents=True)
            pq.write_table(table, part / "part-0.parquet")
            cursor.adbc_ingest(TABLE, table, mode="create_append")
        cursor.execute(f"ANALYZE {TABLE}")
    return file, lake


def psql(address: str, query: str) -> None:
    """Run a query through psql, and throw its answer away."""
    command = ["psql", "--no-psqlrc", "-At", "-c", query, address]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def read_by_adbc(address: str, query: str) -> None:
    """Read all batches of a query."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(address) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        for _ in cursor.fetch_record_batch():
            pass


def released(name: str, source: str, **options: str) -> tuple[float, float]:
    """Seconds of a release in a separate process, and its peak memory in MB."""
    script = textwrap.dedent(MEASURED).format(
        release=RELEASES[name], source=source, options=options, memory=MEMORY, pages=PAGES
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    seconds, kilobytes = done.stdout.split()
    return float(seconds), float(kilobytes) / 1000


def main() -> None:
    """Write, time and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--address", required=True)
    parser.add_argument("--rows", type=int, default=40_000_000)
    parser.add_argument("--parts", type=int, default=1000)
    parser.add_argument("--work-mem", default="256MB")
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    os.environ["PGOPTIONS"] = f"-c work_mem={asked.work_mem}"
    psql(asked.address, f"DROP TABLE IF EXISTS {TABLE}")
    with tempfile.TemporaryDirectory() as folder:
        file, lake = written(asked.address, Path(folder), asked.rows, asked.parts)
        print(
            f"{asked.rows:,} rows in {asked.parts:,} parts; work_mem {asked.work_mem}", flush=True
        )
        best: dict[str, float] = {}
        peaks: dict[str, float] = {}

        def note(name: str, seconds: float, peak: float = 0.0) -> None:
            best[name] = min(best.get(name, seconds), seconds)
            peaks[name] = max(peaks.get(name, peak), peak)

        for _ in range(asked.repeats):
            note("psql, grouped", seconds(lambda: psql(asked.address, GROUPED)))
            note("psql, a plain GROUP BY", seconds(lambda: psql(asked.address, PLAIN)))
            note("histogram, grouped there", *released("grouped", asked.address, table=TABLE))
            note("ADBC's own read", seconds(lambda: read_by_adbc(asked.address, STREAMED)))
            note("sum, streamed", *released("streamed", asked.address, table=TABLE))
            note("histogram of one file", *released("grouped", str(file)))
            note("histogram of a folder", *released("grouped", str(lake)))
        for name, least in best.items():
            peak = f"  {peaks[name]:8.0f} MB" if peaks[name] else ""
            print(f"{name:28}{least:9.2f} s{peak}")
        for above, below in (
            ("histogram, grouped there", "psql, grouped"),
            ("psql, grouped", "psql, a plain GROUP BY"),
            ("sum, streamed", "ADBC's own read"),
            ("histogram of a folder", "histogram of one file"),
        ):
            print(f"{above} ÷ {below}: {best[above] / best[below]:.2f}")
    psql(asked.address, f"DROP TABLE {TABLE}")


if __name__ == "__main__":
    main()
