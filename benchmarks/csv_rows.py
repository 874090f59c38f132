"""The check for malformed CSV rows, compared with DuckDB's reading of the same file.

Usage: python benchmarks/csv_rows.py [--rows 2000000] [--repeats 3]

Every release checks a CSV file once for rows that DuckDB would misread; a file with such rows is
copied without them. DuckDB reads all columns in one thread, like in a release. The two alternate;
the best of each counts.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
from timing import seconds

from dpgrain.tables.sources.csv_files import csv_reader, read_header
from dpgrain.tables.sources.csv_rows import (
    MalformedLines,
    QuoteNormalizer,
    find_malformed,
    read_pieces,
)

# Row number i of each kind of file.
KINDS: dict[str, Callable[[int], str]] = {
    "plain": lambda i: f"{i % 99991},item {i % 997},{i % 37}",
    "quoted": lambda i: f'"{i % 99991}","item {i % 997}","{i % 37}"',
    "line ends in quotes": lambda i: f'{i % 99991},"item\n{i % 997}",{i % 37}',
    "doubled quotes": lambda i: f'{i % 99991},"item ""{i % 997}""",{i % 37}',
    "quotes as letters": lambda i: f'{i % 99991},item {i % 997}",{i % 37}',
}


def read(path: Path) -> object:
    """Read all columns as a release does."""
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET threads = 1")
        rows = csv_reader(read_header(str(path), ","), [str(path)])
        return connection.sql(f"SELECT max(who), max(item), max(x) FROM {rows}").fetchall()


def looked(path: Path) -> MalformedLines:
    """Check a file for malformed rows."""
    return find_malformed(read_pieces(str(path)), ",")


def copied(path: Path) -> int:
    """Write the rows of a file with regular quotes to nowhere, and return how many are left out."""
    normalizer = QuoteNormalizer(",")
    for _ in normalizer.rows(read_pieces(str(path))):
        pass
    return normalizer.dropped


def main() -> None:
    """Print, for each type of file, the time of the check, and of a copy, as shares of reading."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(f"{'file':22}{'MB':>6}{'read s':>9}{'look s':>9}{'look÷read':>11}{'copy÷read':>11}")
    with tempfile.TemporaryDirectory() as folder:
        for kind, row in KINDS.items():
            path = Path(folder) / "rows.csv"
            path.write_text("who,item,x\n" + "\n".join(map(row, range(options.rows))) + "\n")
            odd = looked(path).irregular_quotes
            times = [
                (
                    seconds(partial(read, path)),
                    seconds(partial(looked, path)),
                    seconds(partial(copied, path)) if odd else 0.0,
                )
                for _ in range(options.repeats)
            ]
            reading, look, copy = (min(each) for each in zip(*times, strict=True))
            size = path.stat().st_size / 1e6
            print(
                f"{kind:22}{size:6.0f}{reading:9.2f}{look:9.2f}{look / reading:11.2f}"
                + (f"{copy / reading:11.2f}" if odd else "")
            )


if __name__ == "__main__":
    main()
