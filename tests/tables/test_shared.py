"""Tables of records with several owners: who owns what, however it is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpgrain as dg
from dpgrain.errors import ParameterError, SchemaError
from dpgrain.owners.extension import extension
from dpgrain.tables.blocks import Blocks
from dpgrain.tables.domain import public_domain
from dpgrain.tables.shared import SharedTable

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
    groups = public_domain(["x", "y"] if key else None, Blocks("record"), table.rows, keys).groups()
    with table.rows.open_engine() as engine:
        pairs = table.pairs(engine, groups, value)
    ones = np.ones(len(groups))
    sharing = pairs.within(np.full(len(groups), bound), ones)
    tolerance = np.full(len(groups), 1) if table.most is None else None
    return (extension(sharing, tolerance) / 2).tolist()


def test_rows_count_for_all_of_their_owners() -> None:
    table = dg.read(MAIL, user=OWNERS)
    # The row of nobody is left out; that of cy and cy has one owner.
    assert _bounded(table, 9) == [5.0]
    assert _bounded(table, 1) == [2.0]
    assert _bounded(table, 9, value="size") == [10.0]
    assert _bounded(table, 9, "channel") == [3.0, 1.0]


def _lists() -> pa.Table:
    owners = [["ann", "bob"], ["bob", "cy"], ["ann", None], ["cy", "cy"], [], ["ann", "bob"]]
    return MAIL.drop_columns(OWNERS).append_column("owners", pa.array(owners))


@pytest.mark.parametrize("make", [lambda t: t, pl.from_arrow], ids=["arrow", "polars"])
def test_lists_of_owners_say_the_same(make: Callable[[pa.Table], Any]) -> None:
    table = dg.read(make(_lists()), user=["owners"])
    assert table.most is None
    assert "owners" not in table.schema
    assert _bounded(table, 9) == [5.0]
    assert _bounded(table, 9, value="size") == [10.0]
    assert _bounded(table, 9, "channel") == [3.0, 1.0]
    assert _bounded(table.filter("size > 1"), 9) == [3.0]


def test_lists_of_numbers_and_texts_that_are_none() -> None:
    numbers = pa.array([[1, 2], None, [2, None], []], pa.list_(pa.int16()))
    assert _bounded(dg.read(pa.table({"who": numbers}), user=["who"]), 9) == [2.0]
    broken = pa.array([[b"ann", b"\xff"], [b"\xff"], [b"x" * (1 << 17)]], pa.list_(pa.binary()))
    letters = pa.Array.from_buffers(pa.string(), len(broken.values), broken.values.buffers())
    texts = pa.ListArray.from_arrays(broken.offsets, letters)
    assert _bounded(dg.read(pa.table({"who": texts}), user=["who"]), 9) == [1.0]


@pytest.mark.parametrize("engine", ["duckdb", "in_memory"])
def test_all_readers_say_the_same(engine: str, tmp_path: Path) -> None:
    pq.write_table(MAIL, tmp_path / "mail.parquet")
    MAIL.to_pandas().to_csv(tmp_path / "mail.csv", index=False)
    sources = [MAIL, MAIL.to_pandas(), tmp_path / "mail.parquet", tmp_path / "mail.csv"]
    for source in sources:
        table = dg.read(source, user=OWNERS, engine=engine, types=None)
        assert _bounded(table, 9) == [5.0]
        assert _bounded(table, 1, "channel") in ([2.0, 1.0],)


def test_users_that_are_objects_are_told_apart_in_all_columns() -> None:
    frame = pd.DataFrame({"a": [1, "1", None], "b": pd.Series(["1", 1, 1], dtype=object)})
    # Two people, 1 and "1", who share two rows.
    assert _bounded(dg.read(frame, user=["a", "b"]), 1) == [1.0]


def test_what_is_made_row_by_row() -> None:
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
    with pytest.raises(SchemaError, match="different types"):
        dg.read(pa.table({"a": [1], "b": ["x"]}), user=["a", "b"])
    with pytest.raises(SchemaError, match="lists of owners are one column"):
        dg.read(_lists(), user=["owners", "channel"])
    with pytest.raises(SchemaError, match="cannot name things"):
        dg.read(MAIL, user=["size"])
    with pytest.raises(SchemaError, match="not a column"):
        dg.read(MAIL, user=["from"])
    for wrong in ([], ["sender", "sender"], [1]):
        with pytest.raises(ParameterError, match="list of different columns"):
            dg.read(MAIL, user=wrong)  # type: ignore[arg-type]


def test_lists_in_files_are_refused(tmp_path: Path) -> None:
    pq.write_table(_lists(), tmp_path / "lists.parquet")
    with pytest.raises(SchemaError, match="in an Arrow table"):
        dg.read(tmp_path / "lists.parquet", user=["owners"])


def test_places_of_rows_are_no_column() -> None:
    table, place = dg.read(_lists(), user=["owners"]), "\x1fplace"
    with pytest.raises(SchemaError, match="no column"):
        table.where({place: 1})
    with pytest.raises(SchemaError, match="no column"):
        table.with_cells("cell", of=place, by={1: "a"})
    with pytest.raises(SchemaError, match="no column"):
        dg.count(table, by=place, domain=[1], unit=dg.User(), epsilon=1.0, delta=1e-6, clip=1.0)
    for text in (f'"{place}" > 1', f"{place} > 1"):
        with pytest.raises((SchemaError, ParameterError)):
            table.filter(text)
        with pytest.raises((SchemaError, ParameterError)):
            table.derive(at=text)


def test_one_row_of_each_user_is_refused() -> None:
    with pytest.raises(ParameterError, match="rows of others"):
        dg.read(MAIL, user=OWNERS).per_user(mails="count()")
