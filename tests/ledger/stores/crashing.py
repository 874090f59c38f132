"""A publisher that is repeatedly killed at random points.

It is a separate process that loads all modules before it forks publishers: a publisher starts at
once, and is killed a few milliseconds later at any point.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.ledger import LastingPromise

# A publisher is killed during its first n releases.
_RELEASES = 6

TABLE = dg.read(pa.table({"who": np.arange(40) % 8}), user="who", threads=1, engine=InMemory)
PROMISE = LastingPromise.of(dg.User(), 1.0, 1e-6)


def release() -> dg.Histogram:
    return dg.count(TABLE, unit=dg.User(), clip=1.0, epsilon=0.001, delta=1e-9)


def publish(place: str, published: Path, releases: int | None = None) -> NoReturn:
    """Create a ledger if there is none, and publish n times, or until the end."""
    with suppress(dg.ParameterError):
        dg.Ledger.create(place, name="visits", promises=[PROMISE])
    out = os.open(published, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with dg.Ledger(place):
        for _ in itertools.count() if releases is None else range(releases):
            (receipt,) = release().guarantee.receipts
            os.write(out, f"{receipt.number} {receipt.hash}\n".encode())
    os._exit(0)


def pace(folder: Path) -> float:
    begun = time.perf_counter()
    child = os.fork()
    if child == 0:
        publish(str(folder / "pace.ledger"), folder / "pace.log", _RELEASES)
    os.waitpid(child, 0)
    return time.perf_counter() - begun


def check(place: str, published: Path) -> tuple[int, int]:
    """Numbers of published and of recorded releases: all published ones are recorded."""
    lines = published.read_text().splitlines() if published.exists() else []
    if not lines:
        # Its creation may have been interrupted; the next publisher repeats it.
        with suppress(dg.DataError):
            dg.Ledger(place).verify()
        return 0, 0
    opened = dg.Ledger(place)
    opened.verify()
    held = {(entry.number, entry.line.hash) for entry in opened.entries}
    for line in lines:
        number, digest = line.split()
        assert (int(number), digest) in held, line
    spent = 1 - opened.left(1)
    opened.close()
    recorded = len(held) - 2
    assert (spent > 0) == (recorded > 0), (spent, recorded)
    return len(lines), recorded


def main(folder: Path, kills: int, seed: int) -> None:
    draw = random.Random(seed)
    release()
    longest = pace(folder)
    published = recorded = begun = 0
    for turn in range(kills):
        # A new ledger every tenth time, so that its creation is interrupted as well.
        if turn % 10 == 0:
            place, log = str(folder / f"{turn}.ledger"), folder / f"{turn}.log"
        child = os.fork()
        if child == 0:
            try:
                publish(place, log)
            finally:
                os._exit(1)
        # The first publisher of a ledger is killed early, during its creation.
        time.sleep(draw.uniform(0, longest) * (0.3 if turn % 10 == 0 else 1))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "a publisher ended by itself"
        found = check(place, log)
        if turn % 10 == 9:
            published, recorded = published + found[0], recorded + found[1]
            begun += 1
    print(published, recorded, begun)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
