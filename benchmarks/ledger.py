"""The time of a charge, as a ratio to one transaction of SQLite that waits for the disk.

    python benchmarks/ledger.py [releases]

A ledger of a person's records in any 30 days, of an hour, and of a life is charged for ten years of
hours: 10⁵ releases by default. The bare transaction appends a line of the same length to a separate
table and waits for the disk in the same way (a journal, `synchronous = EXTRA`). Both are measured
alternately, because disks change their speed. A charge reads the last line and a few accounts by
their keys, so that earlier charges cost it little; opening checks the hash of every line. The ratio
is specific
to one disk: a charge also takes processor time (pricing, JSON), which is a larger share on a faster
disk.
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

from timing import seconds

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.ledger import AnyDays, LastingPromise, accounts
from dpgrain.ledger.accounts import Charged
from dpgrain.ledger.lines import StoredLine
from dpgrain.scope.regions import Region, Side, Span

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
    """Write the lines and accounts of n releases as if charged, in one transaction."""
    promises, store = ledger.promises, ledger._store
    prices = {number: promise.price(hour(0)) for number, promise in promises.items()}
    with store.writing() as page:
        last = page.last()
        for number in range(releases):
            guarantee = hour(number)
            charged = [
                Charged(line, prices[line], promise.reach(guarantee.scope))
                for line, promise in promises.items()
            ]
            for each in charged:
                accounts.charge(page, promises[each.promise], each)
            noted: dict[str, Any] = {
                "releases": [guarantee.to_dict()],
                "charged": [each.to_dict() for each in charged],
            }
            last = StoredLine.after(last, "2026-01-01T00:00:00Z", "release", **noted)
            page.append(last)
    ledger.close()


def bare(folder: Path, line: str) -> Callable[[], None]:
    """One transaction that appends a line to a table, and waits for the disk."""
    connection = sqlite3.connect(folder / "bare", isolation_level=None)
    connection.execute("PRAGMA synchronous = EXTRA")
    connection.execute("CREATE TABLE lines (number INTEGER PRIMARY KEY, body TEXT)")

    def once() -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO lines (body) VALUES (?)", (line,))
        connection.execute("COMMIT")

    return once


def measured(promises: list[LastingPromise], releases: int, folder: Path) -> dict[str, float]:
    """The times of charges and of bare transactions, each the median of many in turns."""
    folder.mkdir()
    ledger = dg.Ledger.create(folder / "ledger", name="visits", promises=promises)
    filled(ledger, releases)
    opening = seconds(lambda: dg.Ledger(folder / "ledger"))
    with ledger:
        ledger.charge(hour(releases))
        start = time.process_time()
        ledger.charge(hour(releases + _MEASURED + 1))
        ledger.charge(hour(releases + _MEASURED + 2))
        own = (time.process_time() - start) / 2
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
        "processor ms a charge": 1e3 * own,
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
