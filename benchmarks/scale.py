"""The same histogram of more and more rows, on DuckDB and on Spark, against work without privacy.

Usage: python benchmarks/scale.py [--rows 4000000 40000000] [--works duckdb spark …] [--folder F]
       python benchmarks/scale.py --skew

Each work is a separate process. Only the processor time of the process and of all of its children
counts, among them the Java machine and the workers of Spark, from the start of the session. Spark's
own log of events shows the data moved between machines. With ``--skew``, no rows are
generated: the imbalance of partitions follows only from the distribution of people.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TypedDict

from histogram import write_mapping, write_rows

THREADS = 2
# Longer tables are copies of one of this many rows, with other people in each.
MOST_ROWS = 100_000_000
# People are drawn in batches of this size.
DRAWN = 1_000_000
# The bound on a person in one cell, and the number of items if that bounds people instead.
CLIP, KEPT = 5.0, 100

COUNTED = """
import json, os, time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")

def started(parent):
    found = [parent]
    for child in Path(f"/proc/{{parent}}/task").glob("*/children"):
        for number in child.read_text().split():
            found += started(int(number))
    return found

def spent():
    total = {{}}
    for process in started(os.getpid()):
        fields = Path(f"/proc/{{process}}/stat").read_text().rsplit(") ", 1)[1].split()
        name = Path(f"/proc/{{process}}/comm").read_text().strip()
        kind = "here" if process == os.getpid() else "java" if name == "java" else "workers"
        total[kind] = total.get(kind, 0.0) + sum(map(int, fields[11:15])) / TICK
    return total

def peak():
    found = 0
    for process in started(os.getpid()):
        for line in Path(f"/proc/{{process}}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                found += int(line.split()[1])
    return found / 1e6

{before}
before, start = spent(), time.perf_counter()
{body}
wall, after, most = time.perf_counter() - start, spent(), peak()
{end}
cpu = {{kind: after[kind] - before.get(kind, 0.0) for kind in after}}
print(json.dumps({{"wall": wall, "cpu": cpu, "peak": most}}))
"""

DUCKDB = """
import duckdb, dpgrain as dg
con = duckdb.connect()
con.execute("SET threads={threads}; SET memory_limit='{memory}'; SET temp_directory='{folder}/tmp'")
"""

SESSION = """
import dpgrain as dg
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[{threads}]").appName("scale")
for name, value in {settings}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.range(10).count()
"""

RELEASE = """
table = dg.read('{path}', user='user_id', {options})
dg.histogram(
    table, 'item', unit=dg.Element(Path('{mapping}')), epsilon=1.0, delta=1e-6, clip={clip!r},
    progress=False,
)
"""

# Without the number of people, Spark would not group by person and item at all.
PLAIN = (
    "SELECT item, count(*) AS people, sum(n) AS n FROM (SELECT user_id, item, count(*) AS n "
    "FROM {rows} GROUP BY user_id, item) GROUP BY item"
)

# The same clipped counts: a window scales a person's contribution to a cell to the bound.
CLIPPED = (
    "SELECT item, sum(n * least(1, {clip} / sqrt(q))) AS n FROM (SELECT item, n, "
    "sum(n * n) OVER (PARTITION BY user_id, cell) AS q FROM (SELECT user_id, item, "
    "count(*) AS n FROM {rows} GROUP BY user_id, item) JOIN {cells} USING (item)) GROUP BY item"
)

# A person's first items by a hash are used, as in libraries on Spark with contribution bounds.
FIRST = (
    "SELECT item, sum(n) AS n FROM (SELECT item, n, row_number() OVER (PARTITION BY user_id "
    "ORDER BY xxhash64(user_id, item)) AS place FROM (SELECT user_id, item, count(*) AS n "
    "FROM {rows} GROUP BY user_id, item)) WHERE place <= {kept} GROUP BY item"
)

NOISED = """
import numpy as np
found = spark.sql({query!r}).toArrow()
noised = found['n'].to_numpy() + np.random.default_rng().normal(0, 10, len(found))
"""


def table(folder: Path, rows: int) -> str:
    """The files of this number of rows; missing ones are written."""
    own = folder / f"rows{rows}"
    if rows > MOST_ROWS and not own.exists():
        import duckdb

        one = table(folder, MOST_ROWS)
        own.mkdir()
        for copy in range(rows // MOST_ROWS):
            duckdb.sql(
                f"COPY (SELECT user_id + {copy * MOST_ROWS // 100} AS user_id, item FROM '{one}') "
                f"TO '{own}/{copy}.parquet' (COMPRESSION zstd, ROW_GROUP_SIZE 1000000)"
            )
    elif not own.exists():
        own.mkdir()
        write_rows(own / "0.parquet", rows, as_text=False, skew=False)
    return f"{own}/*.parquet"


def uneven(rows: int, partitions: list[int]) -> tuple[float, list[float]]:
    """The rows of the most active person, and the fullest of n partitions over an even one."""
    import numpy as np

    rng = np.random.default_rng(0)
    loads = [np.zeros(parts) for parts in partitions]
    most, total = 0.0, 0.0
    for start in range(0, rows // 100, DRAWN):
        # Like the measured tables: 100 rows per person on average, with a tail like x^-1.5.
        activity = rng.pareto(1.5, min(DRAWN, rows // 100 - start)) + 0.3
        for load in loads:
            load += np.bincount(rng.integers(0, load.size, activity.size), activity, load.size)
        most, total = max(most, float(activity.max())), total + float(activity.sum())
    return most / total * rows, [float(load.max()) / total * load.size for load in loads]


def works(path: str, mapping: Path, folder: Path, memory: str) -> dict[str, dict[str, str]]:
    """The pieces of each work."""
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": memory.replace("GB", "g"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": f"file://{folder}/events",
        "spark.local.dir": f"{folder}/spark",
    }
    rows, cells = f"parquet.`{path}`", f"parquet.`{mapping}`"
    duckdb = DUCKDB.format(threads=THREADS, memory=memory, folder=folder)
    session = SESSION.format(threads=THREADS, settings=settings)
    plain = PLAIN.format(rows=f"'{path}'")
    release = {"path": path, "mapping": mapping}
    here = f"threads={THREADS}, memory='{memory}'"
    of_duckdb = {
        "duckdb-plain": f'con.sql("{plain}").fetchnumpy()',
        "duckdb": RELEASE.format(**release, options=here, clip=CLIP),
        "duckdb-auto": RELEASE.format(**release, options=here, clip="auto"),
    }
    of_spark = {
        "spark-plain": f"spark.sql({PLAIN.format(rows=rows)!r}).toArrow()",
        "spark-clipped": NOISED.format(query=CLIPPED.format(rows=rows, cells=cells, clip=CLIP)),
        "spark-first": NOISED.format(query=FIRST.format(rows=rows, kept=KEPT)),
        "spark": RELEASE.format(**release, options="engine=spark", clip=CLIP),
        "spark-auto": RELEASE.format(**release, options="engine=spark", clip="auto"),
    }
    found = {name: {"before": duckdb, "body": body, "end": ""} for name, body in of_duckdb.items()}
    for name, body in of_spark.items():
        found[name] = {"before": session, "body": body, "end": "spark.stop()"}
    return found


class Taken(TypedDict):
    """Cost of a work: wall seconds, processor seconds by type of process, and peak GB."""

    wall: float
    cpu: dict[str, float]
    peak: float


def measure(work: dict[str, str]) -> Taken:
    """Run a work in a separate process."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTED.format(**work)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    taken: Taken = json.loads(done.stdout.splitlines()[-1])
    return taken


def shown(rows: int, name: str, taken: Taken) -> str:
    """A line with the cost of a work."""
    spent = sum(taken["cpu"].values())
    kinds = ", ".join(f"{seconds:.1f} {kind}" for kind, seconds in taken["cpu"].items())
    return (
        f"{rows:>12,} {name:15}{spent:8.1f} cpu s ({kinds}), {spent / rows * 1e6:.2f} a million rows, "
        f"{taken['wall']:.0f} s, {taken['peak']:.2f} GB"
    )


def moved(events: Path) -> dict[str, float]:
    """Spark's log of the last session: stages, tasks and moved GB."""
    (log,) = events.glob("*")
    found = {"tasks": 0.0, "stages": 0.0, "shuffle GB": 0.0, "spilled GB": 0.0}
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerStageCompleted":
            found["stages"] += 1
        if event["Event"] == "SparkListenerTaskEnd" and "Task Metrics" in event:
            metrics = event["Task Metrics"]
            found["tasks"] += 1
            found["shuffle GB"] += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"] / 1e9
            found["spilled GB"] += metrics["Disk Bytes Spilled"] / 1e9
    log.unlink()
    return found


def main() -> None:
    """Run the works at each number of rows and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[4_000_000, 40_000_000])
    parser.add_argument("--works", nargs="+", help="some of the works only")
    parser.add_argument("--memory", default="6GB", help="of DuckDB, of a release and of Java")
    parser.add_argument("--folder", type=Path, help="where generated tables lie, or will lie")
    parser.add_argument("--skew", action="store_true", help="simulate how uneven partitions are")
    options = parser.parse_args()
    if options.skew:
        partitions = [200, 1000, 4000]
        for rows in (10**8, 10**9, 10**10):
            most, fullest = uneven(rows, partitions)
            told = ", ".join(f"{f:.2f} of {p}" for f, p in zip(fullest, partitions, strict=True))
            print(
                f"{rows:>15,} rows: {most:>12,.0f} of one person; the fullest: {told}", flush=True
            )
        return
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or Path(made)
        (Path(made) / "events").mkdir()
        mapping = folder / "cells.parquet"
        if not mapping.exists():
            write_mapping(mapping, as_text=False)
        for rows in options.rows:
            path = table(folder, rows)
            for name, work in works(path, mapping, Path(made), options.memory).items():
                if options.works and name not in options.works:
                    continue
                taken = measure(work)
                told = shown(rows, name, taken)
                if name.startswith("spark"):
                    told += "".join(
                        f", {value:.3g} {what}"
                        for what, value in moved(Path(made) / "events").items()
                    )
                print(told, flush=True)


if __name__ == "__main__":
    main()
