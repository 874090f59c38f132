"""What a charge takes of time, as a ratio to one transaction of SQLite that waits for the disk.

    python benchmarks/ledger.py [releases]

A ledger of a person's records in any 30 days, of an hour, and of a life is charged for ten years of
hours: 10⁵ releases by default. The bare transaction appends a line of the same length to a table of its
own and waits for the disk as well. Both are measured in turns, since disks change their speed.
"""

from __future__ import annotations

import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.ledger import AnyDays, LastingPromise
from dpgrain.regions import Region, Side, Span

_HOUR = 3600 * 10**6
_MEASURED = 300
PROMISES = {
    "a user's hour": LastingPromise.of(dg.Element("at"), 1.0, 1e-6),
    "a user in any 30 days": LastingPromise.of(dg.User(), 20.0, 1e-6, window=AnyDays(30, "at")),
    "a user for life": LastingPromise.of(dg.User(), 2000.0, 1e-6),
}


def hour(number: int) -> dg.Guarantee:
    """The release of one hour."""
    event = Gaussian(400.0, Contribution(block="user", coordinates="one"))
    scope = Region((Side("at", Span("time", number * _HOUR, (number + 1) * _HOUR)),))
    return dg.Guarantee("user", "", "zero_out", 1e-9, event, scope=scope, user="who")


def filled(ledger: dg.Ledger, releases: int) -> None:
    """Charge releases one by one, without waiting for the disk: only the last state matters."""
    store: Any = ledger._store
    with store.reading():
        pass
    store._connections._connection.execute("PRAGMA synchronous = OFF")
    for number in range(releases):
        ledger.charge(hour(number))
    ledger.close()


def bare(folder: Path, line: str) -> Callable[[], None]:
    """One transaction that appends a line to a table, and waits for the disk."""
    connection = sqlite3.connect(folder / "bare", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE lines (number INTEGER PRIMARY KEY, body TEXT)")

    def once() -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO lines (body) VALUES (?)", (line,))
        connection.execute("COMMIT")

    return once


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measured(promises: list[LastingPromise], releases: int, folder: Path) -> dict[str, float]:
    """The times of charges and of bare transactions, each the median of many in turns."""
    folder.mkdir()
    ledger = dg.Ledger.create(folder / "ledger", name="visits", promises=promises)
    filling = seconds(lambda: filled(ledger, releases))
    opening = seconds(lambda: dg.Ledger(folder / "ledger"))
    with ledger:
        ledger.charge(hour(releases))
        append = bare(folder, ledger.entries[-1].line.body)
        charges, others = [], []
        for number in range(_MEASURED):
            charges.append(seconds(partial(ledger.charge, hour(releases + 1 + number))))
            others.append(seconds(append))
    charge, other = statistics.median(charges), statistics.median(others)
    return {
        "charge ms": 1e3 * charge,
        "transaction ms": 1e3 * other,
        "ratio": charge / other,
        "charges a second": 1 / charge,
        "µs a charge without the disk": 1e6 * filling / max(releases, 1),
        "open s": opening,
        "MB": (folder / "ledger").stat().st_size / 1e6,
    }


def main() -> None:
    releases = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    cases = {name: [promise] for name, promise in PROMISES.items()}
    cases["all three"] = list(PROMISES.values())
    with tempfile.TemporaryDirectory() as folder:
        for count in dict.fromkeys((0, releases)):
            for place, (name, promises) in enumerate(cases.items()):
                found = measured(promises, count, Path(folder) / f"{count}-{place}")
                told = {key: float(f"{value:.3g}") for key, value in found.items()}
                print(f"{count:>7,} releases, {name}: {json.dumps(told, ensure_ascii=False)}")


if __name__ == "__main__":
    main()
