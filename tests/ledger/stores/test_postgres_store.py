"""A ledger in PostgreSQL: servers that lose commits, rights, and a server that dies."""

from __future__ import annotations

import subprocess
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.ledger import cases
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.ledger.stores.postgres_store import PostgresStore

SECRET = "hush%40hush"
SHOWN = (
    "postgresql://me@127.0.0.1:1/db?options=-csearch_path%3Dv",
    "postgresql://me@127.0.0.1:1/db",
    "postgresql://127.0.0.1:1/db",
)


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("postgresql://host/db", "postgresql://host/db"),
        ("postgresql://me@host:1/db", "postgresql://me@host:1/db"),
        ("postgresql://a:1,b:2/db", "postgresql://a,b:1,2/db"),
        ("postgres://me:secret@host/db?sslmode=require", "postgresql://me@host/db"),
        ("postgresql:///db?host=/run/here&user=me", "postgresql://me@/run/here/db"),
        # If a password is not escaped, a part of it appears as another part of the address.
        ("postgresql://me:a@b@host/db", "postgresql://…"),
        ("postgresql://me:12/34@host/db", "postgresql://…"),
    ],
)
def test_messages_show_the_public_part_of_an_address(place: str, shown: str) -> None:
    pytest.importorskip("psycopg")
    store = PostgresStore(place)
    assert (store.name, store.place) == (shown, place)


@pytest.mark.parametrize(
    "place",
    [
        f"postgresql://me:{SECRET}@127.0.0.1:1/db?options=-csearch_path%3Dv",
        f"postgresql://127.0.0.1:1/db?user=me&password={SECRET}&options=-csearch_path%3Dv",
        f"postgresql://me@127.0.0.1:1/db?sslpassword={SECRET}&options=-csearch_path%3Dv",
        f"postgresql://me@127.0.0.1:1/db?passfile={SECRET}&options=-csearch_path%3Dv",
        f"postgresql://me@127.0.0.1:1/db?options=-csearch_path%3Dv%20-cmy.secret%3D{SECRET}",
        f"postgresql://127.0.0.1:1/db?dbname=postgresql://me:{SECRET}@127.0.0.1:1/db",
        f"postgresql://127.0.0.1:1/db?hostaddr={SECRET}",
        f"postgresql://127.0.0.1:{SECRET}/db",
        f"postgresql://127.0.0.1:1/{SECRET}",
        f"postgresql://{SECRET}:x@127.0.0.1:1/db",
        f"postgresql://me:{SECRET}%zz@127.0.0.1:1/db",
        f"postgresql://me:x@127.0.0.1:1/db?{SECRET}=1",
        f"postgresql://me:x@127.0.0.1:1/db?connect_timeout={SECRET}",
    ],
)
def test_no_error_contains_a_secret_of_an_address(place: str) -> None:
    """Neither its message, nor the traceback below it, nor the object's repr."""
    pytest.importorskip("psycopg")
    with pytest.raises(dg.DpgrainError) as caught:
        dg.Ledger(place)
    told = "".join(traceback.format_exception(caught.value))
    assert "hush" not in told
    with suppress(dg.DpgrainError):
        store = PostgresStore(place)
        assert "hush" not in f"{store!r}{store}{store.name}"
        assert store.name in (*SHOWN, "postgresql://…")


def test_server_reason_without_a_secret_is_shown() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(dg.DataError, match="could not be reached") as caught:
        dg.Ledger("postgresql://me:hush@127.0.0.1:1/db")
    assert "Connection refused" in str(caught.value.__cause__)


def test_server_implies_its_library() -> None:
    """A skip would be a failure."""
    if cases.has_server():
        __import__("psycopg")


def test_missing_server_is_reported() -> None:
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


def test_a_rejected_user_is_named_as_the_cause(server: str) -> None:
    import psycopg

    place = cases.schema_of(server)
    cases.made(place)
    with psycopg.connect(server, autocommit=True) as connection:
        (rules,) = connection.execute("SHOW hba_file").fetchone() or ("",)
    _sql(server, "DROP ROLE IF EXISTS picky", "CREATE ROLE picky LOGIN PASSWORD 'right'")
    before = Path(rules).read_text()
    Path(rules).write_text(f"host all picky 127.0.0.1/32 scram-sha-256\n{before}")
    try:
        _sql(server, "SELECT pg_reload_conf()")
        for user in ("nobody", "picky", "picky:wrong"):
            with pytest.raises(dg.DataError, match="rejected the user or the password"):
                dg.Ledger(place.replace("dpgrain@", f"{user}@"))
    finally:
        Path(rules).write_text(before)
        _sql(server, "SELECT pg_reload_conf()")


def test_a_missing_database_is_named(server: str) -> None:
    with pytest.raises(dg.AccessError, match="has no database of this name; check the address"):
        dg.Ledger(server.rpartition("/")[0] + "/misspelt")


@pytest.mark.slow
@pytest.mark.parametrize("table", ["lines", "accounts", "about"])
def test_tables_losing_rows_at_restart_are_rejected(server: str, table: str) -> None:
    place = cases.schema_of(server)
    schema = place.rpartition("%3D")[2]
    made = cases.made(place)
    made.charge(cases.of_users())
    # Tables that refer to one another are altered one by one.
    _sql(server, f"ALTER TABLE {schema}.{table} SET UNLOGGED")
    said = f"the table '{table}' of .* is unlogged, temporary or a view"
    for use in (lambda: made.charge(cases.of_users()), lambda: dg.Ledger(place)):
        with pytest.raises(dg.DataError, match=said):
            use()
    _sql(server, f"ALTER TABLE {schema}.{table} SET LOGGED")
    assert made.charge(cases.of_users()).number == 3
    made.close()


@pytest.mark.parametrize("table", ["lines", "accounts", "marks"])
def test_foreign_table_is_named(server: str, table: str) -> None:
    place = cases.schema_of(server)
    schema = place.rpartition("%3D")[2]
    _sql(server, f"CREATE TABLE {schema}.{table} (owner text, balance numeric)")
    with pytest.raises(dg.ParameterError, match=f"already has a table '{table}'"):
        cases.made(place)
    with pytest.raises(dg.DataError, match="contains no ledger"):
        dg.Ledger(place)
    _sql(server, f"CREATE TABLE IF NOT EXISTS {schema}.about (format text)")
    _sql(server, f"CREATE TABLE IF NOT EXISTS {schema}.lines (owner text, balance numeric)")
    _sql(server, f"INSERT INTO {schema}.about VALUES (4)")
    with refuses("ledger", kind=dg.AccessError):
        dg.Ledger(place)


def test_a_database_without_an_encoding_is_named(server: str) -> None:
    _sql(
        server,
        "DROP DATABASE IF EXISTS plain",
        "CREATE DATABASE plain ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
    )
    place = server.rpartition("/")[0] + "/plain"
    with pytest.raises(
        dg.DataError, match="has the encoding SQL_ASCII, which leaves text undefined"
    ):
        cases.made(place)


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_server_losing_commits_is_rejected(server: str, setting: str) -> None:
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


def test_session_without_waiting_is_made_to_wait(server: str) -> None:
    place = cases.schema_of(server)
    made = cases.made(place)
    store: Any = made._store
    with store.reading() as page:
        assert list(page._execute("SHOW synchronous_commit", ())) == [("on",)]


def test_user_without_write_access_can_read(server: str) -> None:
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
    with pytest.raises(dg.DataError, match="cannot be written, so nothing can be charged"):
        reader.charge(cases.of_users())
    reader.close()
    _sql(server, "DROP OWNED BY reader", "DROP ROLE reader")


@pytest.mark.slow
def test_charges_survive_a_killed_server(tmp_path: Path) -> None:
    """The server is stopped at once, as by a crash, and recovers from its log."""
    if not cases.has_server():
        pytest.skip("PostgreSQL is not installed")
    with cases.server() as address:
        made = cases.made(cases.schema_of(address))
        held = [made.charge(cases.of_users()).hash for _ in range(5)]
        _sql(address, "CHECKPOINT")
        held += [made.charge(cases.of_users()).hash for _ in range(5)]
        cases.crash(address)
        # The connection is gone: the first charge reports it, and the next one opens another.
        with pytest.raises(dg.DataError, match="could not be reached"):
            made.charge(cases.of_users())
        made.charge(cases.of_users())
        assert set(held) < {entry.line.hash for entry in made.entries}
        assert made.verify().number == 12
        made.close()
