"""Ledgers and guarantees that tests of ledgers share, and a server of PostgreSQL."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.ledger import LastingPromise
from dpgrain.ledger.stores.ledger_tables import SqlTransaction
from dpgrain.scope.partitions import Partition, Rule
from dpgrain.scope.regions import EVERYTHING, LabelSet, Region, Side, days

DAYS = Partition((Rule("day", "day"),))
USERS = LastingPromise.of(dg.User(), 1.0, 1e-6)
OF_DAYS = LastingPromise.of(dg.Element(DAYS), 1.0, 1e-6)


def made(place: Any, *promises: LastingPromise, **more: Any) -> dg.Ledger:
    return dg.Ledger.create(place, name="visits", promises=promises or (USERS,), **more)


def of_users(noise_multiplier: float = 100.0, **more: Any) -> dg.Guarantee:
    event = Gaussian(noise_multiplier, Contribution(block="user"))
    return dg.Guarantee("user", "", "zero_out", 1e-9, event, **more)


def of_days(noise_multiplier: float, scope: Region, **more: Any) -> dg.Guarantee:
    event = Gaussian(noise_multiplier, Contribution(block="element"))
    return dg.Guarantee(
        "element", str(DAYS), "zero_out", 1e-9, event, scope=scope, partition=DAYS, **more
    )


def on(first: str = "", last: str = "", country: str = "") -> Region:
    sides = []
    if first:
        sides.append(Side("day", days(first, last or first)))
    if country:
        sides.append(Side("country", LabelSet((country,))))
    return Region(tuple(sides)) if sides else EVERYTHING


def tamper(ledger: dg.Ledger, statement: str) -> None:
    """Change the tables of a ledger behind its back."""
    with ledger._store.writing() as page:
        assert isinstance(page, SqlTransaction)
        page._execute(statement, ())


# ------------------------------------------------------------------------- ledgers of earlier versions


def with_log(place: Path, releases: int) -> sqlite3.Connection:
    """Create a ledger like earlier versions, and leave it open, so that its log file remains."""
    made(place).close()
    held = sqlite3.connect(place, isolation_level=None)
    assert held.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    held.execute("SELECT max(number) FROM lines").fetchall()
    charged_to_log(place, releases)
    return held


def charged_to_log(place: Path, releases: int) -> list[str]:
    """Charge a ledger as earlier versions did; return the hashes of the lines."""
    opened = dg.Ledger(place)
    store: Any = opened._store
    # Only this moves a ledger out of its log.
    store._leave_log = lambda: None
    with opened:
        return [opened.charge(of_users()).hash for _ in range(releases)]


# ------------------------------------------------------------------------------------ PostgreSQL


def has_server() -> bool:
    """Whether the machine has PostgreSQL, so that its suite must not be skipped."""
    return _program("initdb") is not None


def _program(name: str) -> str | None:
    folders = [str(path.parent) for path in Path("/usr/lib/postgresql").glob(f"*/bin/{name}")]
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *folders]))


@contextmanager
def server() -> Iterator[str]:
    """A separate server on loopback, and its address; root starts it as the user postgres."""
    # Its folder is not under pytest's, which another user may not enter.
    folder = Path(tempfile.mkdtemp(prefix="dpgrain-postgres-"))
    root = os.geteuid() == 0
    if root:
        shutil.chown(folder, "postgres", "postgres")
    as_owner = ["runuser", "-u", "postgres", "--"] if root else []

    def run(name: str, *words: str) -> None:
        program = _program(name)
        assert program is not None, f"PostgreSQL lacks {name}"
        done = subprocess.run(
            [*as_owner, program, *words], capture_output=True, text=True, cwd="/", check=False
        )
        assert done.returncode == 0, (name, done.stdout, done.stderr)

    data, port = str(folder / "data"), _free_port()
    run("initdb", "-D", data, "-U", "dpgrain", "-A", "trust", "-E", "UTF8", "--no-locale")
    options = f"-h 127.0.0.1 -p {port} -k {folder}"
    log = str(folder / "log")
    run("pg_ctl", "-D", data, "-l", log, "-w", "-o", options, "start")
    try:
        yield f"postgresql://dpgrain@127.0.0.1:{port}/postgres"
    finally:
        run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def crash(address: str) -> None:
    """Stop a server as a crash does, and start it again."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        (data,) = connection.execute("SHOW data_directory").fetchone() or ("",)
    as_owner = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    program = _program("pg_ctl")
    assert program is not None
    log = str(Path(data).parent / "log")
    options = (Path(data) / "postmaster.opts").read_text().partition('"-h"')[2].replace('"', "")
    for words in (["-m", "immediate", "stop"], ["-l", log, "-o", f"-h {options}", "start"]):
        command = [*as_owner, program, "-D", data, "-w", *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def schema_of(server: str) -> str:
    """The address of a separate schema in a server's database."""
    import psycopg

    name = f"l{secrets.token_hex(6)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{server}?options=-csearch_path%3D{name}"
