"""Tables of records with several owners: who owns what, however it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.errors import ParameterError, SchemaError
from dpgrain.shared_records.extension import extension
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.domain import public_domain
from dpgrain.tables.shared_table import SharedTable

MAIL = pa.table(
    {
        "sender": ["ann", "bob", "ann", "cy", None, "ann"],
        "receiver": ["bob", "cy", None, "cy", None, "bob"],
        "size": [1.0, 2.0, 3.0, 4.0, 5.0, float("nan")],
        "channel": ["x", "y", "x", "x", "x", None],
    }
)
OWNERS = ["sender", "receiver"]


def _bounded(
    table: SharedTable, bound: int, key: str | None = None, value: str | None = None
) -> Any:
    """The extension of a count or sum, by group."""
    keys = () if key is None else (key,)
    groups = public_domain(
        ["x", "y"] if key else None, UnitBlocks("record"), table.rows, keys
    ).groups()
    with table.rows.open_engine() as engine:
        pairs = table.pairs(engine, groups, value)
    ones = np.ones(len(groups))
    sharing = pairs.within(np.full(len(groups), bound), ones)
    return (extension(sharing) / 2).tolist()


def test_rows_count_for_all_of_their_owners() -> None:
    table = dg.read(MAIL, user=OWNERS)
    # The row without an owner is dropped; the row of cy and cy has one owner.
    assert _bounded(table, 9) == [5.0]
    assert _bounded(table, 1) == [2.0]
    assert _bounded(table, 9, value="size") == [10.0]
    assert _bounded(table, 9, "channel") == [3.0, 1.0]


@pytest.mark.parametrize("engine", ["duckdb", InMemory])
def test_all_readers_agree(engine: Any, tmp_path: Path) -> None:
    pq.write_table(MAIL, tmp_path / "mail.parquet")
    MAIL.to_pandas().to_csv(tmp_path / "mail.csv", index=False)
    sources = [MAIL, MAIL.to_pandas(), tmp_path / "mail.parquet", tmp_path / "mail.csv"]
    for source in sources:
        table = dg.read(source, user=OWNERS, engine=engine, types=None)
        assert _bounded(table, 9) == [5.0]
        assert _bounded(table, 1, "channel") in ([2.0, 1.0],)


def test_object_users_are_distinguished_in_all_columns() -> None:
    frame = pd.DataFrame({"a": [1, "1", None], "b": pd.Series(["1", 1, 1], dtype=object)})
    # Two people, 1 and "1", who share two rows.
    assert _bounded(dg.read(frame, user=["a", "b"]), 1) == [1.0]


def test_row_by_row_derivations_work() -> None:
    table = dg.read(MAIL, user=OWNERS)
    made = table.derive(big="size > 1").filter("size < 4").where(channel=["x", "y"])
    assert _bounded(made, 9) == [3.0]
    cells = table.with_cells("kind", of="channel", by={"x": "x", "y": "x"})
    assert _bounded(cells, 9, "kind") == [4.0, 0.0]
    only = dg.Elements.from_mapping({"x": "y"}, missing="drop")
    dropped = table.with_cells("kind", of="channel", by=only)
    assert _bounded(dropped, 9, "kind") == [0.0, 3.0]
    assert "SharedTable(owners='sender', 'receiver'" in repr(made)


def test_columns_of_owners_are_checked() -> None:
    with pytest.raises(SchemaError, match="one type"):
        dg.read(pa.table({"a": [1], "b": ["x"]}), user=["a", "b"])
    lists = pa.table({"owners": [["ann", "bob"]], "channel": ["x"]})
    with pytest.raises(SchemaError, match="must not be a list"):
        dg.read(lists, user=["owners", "channel"])
    with pytest.raises(ParameterError, match="at most two owner columns: sums"):
        dg.read(MAIL, user=["sender", "receiver", "channel"])
    with pytest.raises(SchemaError, match="would have no owner"):
        dg.read(MAIL, user=OWNERS, types={"sender": "BIGINT"})
    named = MAIL.append_column("'sender' and 'receiver'", MAIL.column("channel"))
    with pytest.raises(SchemaError, match="is reserved for the owners"):
        dg.read(named, user=OWNERS)
    with pytest.raises(ParameterError, match="not a stream"):
        dg.read(MAIL.to_reader(), user=OWNERS)
    with pytest.raises(SchemaError, match="cannot be used as a key"):
        dg.read(MAIL, user=["size"])
    with pytest.raises(SchemaError, match="not a column"):
        dg.read(MAIL, user=["from"])
    for wrong in ([], ["sender", "sender"], [1]):
        with pytest.raises(ParameterError, match="list of different owner columns"):
            dg.read(MAIL, user=wrong)  # type: ignore[arg-type]


def test_one_row_per_user_is_rejected() -> None:
    with pytest.raises(ParameterError, match="rows of others"):
        dg.read(MAIL, user=OWNERS).per_user(mails="count()")


@pytest.mark.slow
def test_rows_with_an_unreadable_owner_are_dropped(tmp_path: Path) -> None:
    """Such an owner would be missing, and all its rows would count for others: 100 with bound 1."""
    count = 100
    senders, long = [f"u{place}" for place in range(count)], "x" * (1 << 16) + "y"
    broken = pa.Array.from_buffers(
        pa.string(), count, pa.array([b"\xff"] * count, pa.binary()).buffers()
    )
    pq.write_table(pa.table({"s": senders, "r": [long] * count}), tmp_path / "rows.parquet")
    for source in (
        pa.table({"s": senders, "r": [long] * count}),
        pa.table({"s": senders, "r": broken}),
        pd.DataFrame({"s": senders, "r": pd.Series([b"\xff"] * count, dtype=object)}),
        pd.DataFrame({"s": senders, "r": pd.Series(["a\udc80"] * count, dtype=object)}),
        pl.DataFrame({"s": senders, "r": [long] * count}),
        tmp_path / "rows.parquet",
    ):
        for engine in ("duckdb", InMemory):
            table = dg.read(source, user=["s", "r"], engine=engine)
            assert _bounded(table, 1) == [0.0]
            assert _bounded(table.filter("known(s)"), 1) == [0.0]
    # A missing one owns nothing, and the row belongs only to the other.
    table = dg.read(pa.table({"s": senders, "r": pa.nulls(count, pa.string())}), user=["s", "r"])
    assert _bounded(table, 1) == [float(count)]


def test_curator_sees_owner_counts() -> None:
    rows = pa.table(
        {
            "sender": ["ann", "bob", None, "cy", "x" * 70_000, "ann"],
            "receiver": ["bob", "bob", None, None, "ann", "dee"],
            "cost": ["1", "2,5", "x", "4", "5", "6"],
        }
    )
    table = dg.read(rows, user=["sender", "receiver"], types={"cost": "DOUBLE"})
    counts = table.check_counts(value="cost")
    assert counts["rows"] == 5
    assert counts["rows without an owner (dropped)"] == 1
    assert counts["rows with an unreadable owner name (dropped; counted over all rows)"] == 1
    # An owner of both sides of a record owns one.
    assert (counts["owners with a record"], counts["most records of one owner"]) == (4, 2)
    assert counts["non-numeric cells of 'cost' (dropped)"] == 2
    some = table.filter("cost < 2")
    assert some.check_counts()["owners with a record"] == 2
    text = some.check()
    assert text.startswith("For internal use only")
    assert "2  owners with a record" in text
