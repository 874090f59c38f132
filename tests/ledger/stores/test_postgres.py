"""A ledger in PostgreSQL: servers that lose what they commit, rights, and a server that dies."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.ledger import cases

import dpgrain as dg
from dpgrain.ledger.stores.postgres import PostgresStore


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("postgresql://host/db", "postgresql://host/db"),
        ("postgresql://me@host:1/db", "postgresql://me@host:1/db"),
        ("postgres://me:secret@host/db?a=b", "postgres://me@host/db?a=b"),
        ("postgresql://me:a@b@host/db", "postgresql://me@host/db"),
    ],
)
def test_messages_show_no_password(place: str, shown: str) -> None:
    pytest.importorskip("psycopg")
    store = PostgresStore(place)
    assert (store.name, store.place) == (shown, place)


def test_where_there_is_a_server_there_is_its_library() -> None:
    """A skip would be a failure."""
    if cases.has_server():
        __import__("psycopg")


def test_a_server_that_is_not_there_is_told() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(dg.DataError, match="could not be reached"):
        dg.Ledger("postgresql://me:secret@127.0.0.1:1/db?connect_timeout=1")


def test_without_the_library_it_is_named() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "import dpgrain as dg\n"
        "try: dg.Ledger('postgresql://host/db')\n"
        "except dg.ParameterError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'dpgrain[postgres]'" in done.stdout


def _sql(server: str, *statements: str) -> None:
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_loses_what_it_commits_is_refused(server: str, setting: str) -> None:
    place = cases.schema_of(server)
    cases.made(place)
    try:
        _sql(server, f"ALTER SYSTEM SET {setting} = off", "SELECT pg_reload_conf()")
        for _ in range(50):
            try:
                dg.Ledger(place).close()
            except dg.DataError as error:
                told = str(error)
                break
            time.sleep(0.1)
        assert f"{setting} = off" in told
    finally:
        _sql(server, f"ALTER SYSTEM RESET {setting}", "SELECT pg_reload_conf()")
    for _ in range(50):
        try:
            assert dg.Ledger(place).verify().number == 1
            break
        except dg.DataError:
            time.sleep(0.1)


def test_a_session_that_need_not_wait_waits(server: str) -> None:
    place = cases.schema_of(server)
    made = cases.made(place)
    store: Any = made._store
    with store.reading() as page:
        assert list(page._execute("SHOW synchronous_commit", ())) == [("on",)]


def test_who_must_not_write_can_read(server: str) -> None:
    place = cases.schema_of(server)
    cases.made(place).charge(cases.of_users())
    schema = place.rpartition("%3D")[2]
    _sql(
        server,
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN",
        f"GRANT USAGE ON SCHEMA {schema} TO reader",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO reader",
    )
    reader = dg.Ledger(place.replace("dpgrain@", "reader@"))
    assert reader.verify().number == 2
    with pytest.raises(dg.DataError, match="cannot be written, so that nothing can be charged"):
        reader.charge(cases.of_users())
    reader.close()
    _sql(server, "DROP OWNED BY reader", "DROP ROLE reader")


@pytest.mark.search(keep=0)
def test_what_was_charged_is_there_after_the_server_was_killed(tmp_path: Path) -> None:
    """The server is stopped at once, as by a crash, and recovers from its log."""
    if not cases.has_server():
        pytest.skip("PostgreSQL is not installed")
    with cases.server() as address:
        made = cases.made(cases.schema_of(address))
        held = [made.charge(cases.of_users()).hash for _ in range(5)]
        _sql(address, "CHECKPOINT")
        held += [made.charge(cases.of_users()).hash for _ in range(5)]
        cases.crash(address)
        # The connection is gone: the first charge says so, and the next one has another.
        with pytest.raises(dg.DataError, match="could not be reached"):
            made.charge(cases.of_users())
        made.charge(cases.of_users())
        assert set(held) < {entry.line.hash for entry in made.entries}
        assert made.verify().number == 12
        made.close()
