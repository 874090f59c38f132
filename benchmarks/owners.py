"""Shared records: the cost and error of an extension, compared with two other methods.

Usage: python benchmarks/owners.py [--rows 1000000] [--messages irc_ubuntu.parquet] [--releases 20]

The other methods give each record to its first owner, whose guarantee covers no other, or repeat it
for each owner, which multiplies its count, and is halved. Both are counts of whole users with the
same options. Tables are synthetic e-mail with lognormal numbers of messages, and messages of an IRC
channel, by a writer and an addressed person (``nick: …``); writers are numbers there, so a person
has one name as a writer and another one when addressed. The output is the median error as a share
of the number of records, and seconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import dpgrain as dg
from dpgrain.shared_records.extension import extension
from dpgrain.tables.groups import Groups

# Tried bounds; the best in hindsight is shown.
_BOUNDS = [4.0**k for k in range(1, 8)]


def mail(rows: int, people: int, spread: float = 1.5, seed: int = 0) -> pa.Table:
    """Generate e-mail: senders and receivers with lognormal frequencies."""
    rng = np.random.default_rng(seed)
    often = rng.lognormal(0.0, spread, people)
    names = rng.choice(people, (2, rows), p=often / often.sum())
    return pa.table({"sender": names[0], "receiver": names[1]})


def messages(path: Path) -> pa.Table:
    """Read the messages of a channel: the writer (a number), and the addressed person (a name)."""
    table = pq.read_table(path, columns=["user_id", "text"])
    named = pc.extract_regex(table.column("text"), r"^(?P<nick>[^\s:,]{2,30})[:,] ")
    writer = pc.binary_join_element_wise("writer", table.column("user_id").cast(pa.string()), " ")
    return pa.table({"sender": writer, "receiver": pc.struct_field(named, "nick")})


def once_each(table: pa.Table) -> pa.Table:
    """Return a row of each owner of each record, under one name."""
    receiver = table.column("receiver")
    other = pc.fill_null(pc.not_equal(receiver, table.column("sender")), False)
    named = receiver.filter(other).cast(table.schema.field("sender").type)
    return pa.table({"sender": pa.chunked_array([*table["sender"].chunks, *named.chunks])})


def ways(table: pa.Table) -> dict[str, tuple[dg.UserTable | dg.SharedTable, float]]:
    """Return the counted tables, each with the factor of its count."""
    rows = table.num_rows
    each = once_each(table)
    return {
        "all owners": (dg.read(table, user=["sender", "receiver"]), 1.0),
        "first owner (no promise to others)": (dg.read(table, user="sender"), 1.0),
        "once an owner": (dg.read(each, user="sender"), rows / each.num_rows),
    }


def error(
    table: dg.UserTable | dg.SharedTable, times: float, rows: int, releases: int, **asked: object
) -> float:
    """Return the median error of a count, as a share of the number of rows."""
    options: dict[str, object] = {"unit": dg.User(), "delta": 1e-6, **asked}
    count: Callable[..., dg.Histogram] = dg.count
    off = [abs(count(table, **options).value * times - rows) / rows for _ in range(releases)]
    return float(np.median(off))


def show(title: str, table: pa.Table, releases: int) -> None:
    """Print the errors of all methods for a table, with a private bound and with the best one."""
    print(f"{title}: {table.num_rows:,} records")
    for epsilon in (0.3, 1.0, 3.0):
        for way, (read, times) in ways(table).items():
            off = partial(error, read, times, table.num_rows, epsilon=epsilon)
            best = min(_BOUNDS, key=lambda bound: off(15, clip=bound))
            print(
                f"  ε = {epsilon:g}, {way}: {off(releases):.2%} with a bound that is found, "
                f"{off(releases, clip=best):.2%} with {best:g}",
                flush=True,
            )


def clock(rows: int) -> None:
    """Print how long the extension of made e-mail takes, by how many people are above the bound."""
    for people, bound in ((rows // 10, 1000), (rows // 10, 20), (rows // 10, 5), (rows, 5)):
        table = dg.read(mail(rows, people), user=["sender", "receiver"])
        begin = time.perf_counter()
        with table.rows.open_engine() as engine:
            pairs = table.pairs(engine, Groups.of((), ()), None)
        read = time.perf_counter() - begin
        begin = time.perf_counter()
        twice = extension(pairs.within(np.array([bound << 20]), np.array([2.0**-20])))
        solved = time.perf_counter() - begin
        counted = int(twice[0]) / 2**21
        print(
            f"{rows:,} records of {people:,} people, bound {bound}: read in {read:.1f} s, solved in "
            f"{solved:.1f} s; {counted / rows:.0%} count",
            flush=True,
        )


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--messages", type=Path)
    parser.add_argument("--releases", type=int, default=20)
    asked = parser.parse_args()
    clock(asked.rows)
    show("made e-mail", mail(40_000, 3000), asked.releases)
    if asked.messages is not None:
        show(asked.messages.stem, messages(asked.messages), asked.releases)


if __name__ == "__main__":
    main()
