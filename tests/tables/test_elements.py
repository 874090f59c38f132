"""Public partitions of items into cells."""

from __future__ import annotations

import datetime
import re
import warnings
from collections.abc import Callable
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.refusals import refuses
from tests.tables import cases

import dpgrain as dg
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.elements import Elements, as_elements, cell_codes
from dpgrain.tables.engines.protocol import Engine
from dpgrain.tables.groups import Dictionary, Groups

PUBLIC: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "clip": 1.0}


def table(items: list[Any] | None = None) -> dg.UserTable:
    items = ["yo", "bro", "hello"] if items is None else items
    return dg.read(pa.table({"who": list(range(len(items))), "word": items}), user="who")


def dictionary(elements: Any, items: list[Any], *, public: bool = True) -> Dictionary:
    with table(items).open_engine() as engine:
        return coded(engine, items, as_elements(elements), public=public)


def coded(
    engine: Engine, items: list[Any], elements: Elements | None, *, public: bool
) -> Dictionary:
    """The dictionary of items under a partition; None: each item is its own cell."""
    kind = pa.int64() if isinstance(items[0], int) else pa.string()
    groups = Groups.of(["word"], [pa.array(items, kind)])
    blocks = UnitBlocks.for_unit(dg.Element(elements or "word"), engine.table, ["word"])
    return engine.dictionary(groups, blocks.cells(groups, public=public))


def items_of(found: Dictionary) -> list[Any]:
    (items,) = found.groups.columns
    return list(items.to_pylist())


def partition(found: Dictionary) -> set[frozenset[Any]]:
    cells: dict[int, set[Any]] = {}
    assert found.layout.cell_of is not None
    for item, cell in zip(items_of(found), found.layout.cell_of.tolist(), strict=True):
        cells.setdefault(cell, set()).add(item)
    return {frozenset(items) for items in cells.values()}


SOURCES: dict[str, Callable[[Path], Any]] = {
    "dict": lambda _: {"a": "x", "b": "x", "c": "y"},
    "arrow": lambda _: pa.table({"i": ["a", "b", "c"], "c": ["x", "x", "y"]}),
    "pandas": lambda _: pd.DataFrame({"i": ["a", "b", "c"], "c": ["x", "x", "y"]}),
    "polars": lambda _: pl.DataFrame({"i": ["a", "b", "c"], "c": ["x", "x", "y"]}),
    "csv": lambda folder: folder / "m.csv",
    "parquet": lambda folder: folder / "m.parquet",
}


@pytest.mark.parametrize("kind", SOURCES)
def test_mapping_from_any_source(kind: str, tmp_path: Path) -> None:
    rows = pd.DataFrame({"i": ["a", "b", "c"], "c": ["x", "x", "y"]})
    rows.to_csv(tmp_path / "m.csv", index=False)
    pq.write_table(pa.Table.from_pandas(rows), tmp_path / "m.parquet")
    elements = Elements.from_mapping(SOURCES[kind](tmp_path))
    assert re.fullmatch(
        r"Elements\('a mapping of 3 items to 2 cells \(#[0-9a-f]{8}\)'\)", repr(elements)
    )
    assert [elements.cell(i) for i in "abcd"] == ["x", "x", "y", None]
    assert partition(dictionary(elements, ["a", "b", "c"])) == {frozenset("ab"), frozenset("c")}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({}, "empty"),
        (pa.table({"i": ["a", "a"], "c": ["x", "y"]}), "not both 'x' and 'y'"),
        (pa.table({"i": ["a"]}), "two columns"),
        (5, "not int"),
        ({"a": ["x"]}, "a cell must be text, a number, a date"),
        (Path("nowhere.csv"), "cannot be read"),
    ],
)
def test_wrong_mappings(source: Any, words: str) -> None:
    with pytest.raises(dg.DpgrainError, match=words):
        Elements.from_mapping(source)


def test_mapping_rows_without_item_or_cell_are_left_out() -> None:
    rows = pa.table({"i": ["a", None, "b", "a"], "c": ["x", "y", None, "x"]})
    assert Elements.from_mapping(rows).mapping == {"a": "x"}


def test_missing_items() -> None:
    items = ["a", "b", "c", "d"]
    mapping = {"a": "x", "b": "x"}
    own = dictionary(Elements.from_mapping(mapping, missing="own"), items)
    assert partition(own) == {frozenset("ab"), frozenset("c"), frozenset("d")}
    drop = dictionary(Elements.from_mapping(mapping, missing="drop"), items)
    assert partition(drop) == {frozenset("ab")}
    with pytest.raises(dg.ParameterError, match=r"2 items of the domain have no cell.*'c', 'd'"):
        dictionary(Elements.from_mapping(mapping, missing="error"), items)
    with refuses("missing", "not 'perhaps'"):
        Elements.from_mapping(mapping, missing="perhaps")  # type: ignore[arg-type]


def test_an_own_cell_is_apart_from_a_named_one() -> None:
    found = dictionary({"a": "own b", "c": "b"}, ["a", "b", "c"])
    assert len(partition(found)) == 3


def test_function_or_mapping_but_not_both_or_none() -> None:
    with pytest.raises(dg.ParameterError, match="either a mapping or a function"):
        Elements("both", mapping={"a": 1}, function=len)
    with pytest.raises(dg.ParameterError, match="either"):
        Elements("none")
    for cells in ({"mapping": {"2026-01-01": 1}}, {"function": str}):
        with refuses("period", "only Elements.from_period"):
            Elements("year", period="year", **cells)
    with refuses("function", "must be a function"):
        Elements.from_function("len")  # type: ignore[arg-type]
    assert repr(Elements.from_function(len)).startswith("Elements('the function len of the item (#")
    assert repr(Elements.from_function(lambda x: x)).startswith(
        "Elements('a function of the item (#"
    )


@pytest.mark.parametrize("integers", [True, False])
def test_partition_of_another_type_is_rejected(integers: bool) -> None:
    """It would leave every item its own cell, under the name of a partition that it is not."""
    items = [1, 2, 3] if integers else ["1", "2", "3"]
    table = dg.read(pa.table({"who": [1, 1, 2], "word": items}), user="who")
    keys: dict[Any, str] = {"x": "food", "1": "food"} if integers else {(1,): "food", "2": "food"}
    with pytest.raises(dg.ParameterError, match="the partition contains item"):
        dg.histogram(table, "word", unit=dg.Element(keys), domain=items, epsilon=1, delta=1e-6)


@pytest.mark.parametrize("integers", [True, False])
def test_csv_partition_fits_integers_and_text(tmp_path: Path, integers: bool) -> None:
    path = tmp_path / "map.csv"
    path.write_text("word,cell\n1,food\n2,food\n")
    items = [1, 2, 3] if integers else ["1", "2", "3"]
    table = dg.read(pa.table({"who": [1, 1, 2], "word": items}), user="who")
    release = dg.histogram(
        table, "word", unit=dg.Element(path), domain=items, epsilon=1, delta=1e-6, clip=1.0
    )
    assert release.guarantee.event.parts[-1].contribution.cells == 2  # type: ignore[attr-defined]
    assert release.guarantee.event.parts[-1].contribution.coordinates == "nonnegative"  # type: ignore[attr-defined]


def test_an_item_written_in_two_ways_has_one_cell() -> None:
    """Texts that whole numbers have become these for a column of integers."""
    table = dg.read(pa.table({"who": [1], "word": [7]}), user="who")
    with pytest.raises(dg.ParameterError, match="one cell for item 7, not both 'a' and 'b'"):
        dg.histogram(table, "word", unit=dg.Element({"7": "a", 7: "b"}), epsilon=1, delta=1e-6)
    with pytest.raises(dg.ParameterError, match=r"contains item '007', but .* contains integers"):
        dg.histogram(table, "word", unit=dg.Element({"7": "a", "007": "b"}), epsilon=1, delta=1e-6)


def test_equal_cells_have_one_name_however_written() -> None:
    from dpgrain.tables.elements import _names

    pairs: list[list[Any]] = [[Decimal("38.1"), Decimal("38.10")], [1, 1.0], [True, 1]]
    pairs += [[10**400, Decimal("1e400")], [10**6000, Decimal("1e6000")], [0.5, Decimal("0.5")]]
    pairs += [[float("inf"), Decimal("inf")], [2.0**-20, Decimal(2) ** -20]]
    for cells in pairs:
        assert len(set(_names(cells, public=True))) == 1
        assert _names(cells, public=True)[0] == _names(cells[::-1], public=True)[0]
    long = Decimal("1." + 40 * "0" + "1")
    different = [0.1, Decimal("0.1"), long, Decimal(f"{long}1"), "1", 1, 10**400, 10**400 + 1]
    assert len(set(_names(different, public=True))) == len(different)


def test_different_partitions_have_different_names() -> None:
    """Guarantees compose only for one partition, which they know by its name."""
    first, second = (lambda x: x[0]), (lambda x: x[1])
    names = [Elements.from_function(f).name for f in (first, second, first)]
    assert names[0] == names[2] != names[1]
    assert (
        Elements.from_mapping({"a": 1}, name="n").name
        != Elements.from_mapping({"a": 2}, name="n").name
    )
    assert Elements.from_mapping({"a": 1}).name != Elements.from_mapping({"a": 2}).name


def test_kmeans() -> None:
    vectors: dict[str, Any] = {"a": [0.0, 0], "b": [0, 1], "y": [9, 9], "z": [9, 8]}
    for elements in (
        Elements.kmeans(vectors, 2, random_state=0),
        Elements.kmeans(
            np.array(list(vectors.values())), 2, random_state=0, items=np.array(list("abyz"))
        ),
    ):
        assert partition(dictionary(elements, list("abyz"))) == {frozenset("ab"), frozenset("yz")}
    with refuses("k", "4", "not 5"):
        Elements.kmeans(vectors, 5)
    with refuses("k", "not 0"):
        Elements.kmeans(vectors, 0)
    with refuses("vectors", "one row for each of"):
        Elements.kmeans(np.zeros((3, 2)), 2)


@pytest.mark.parametrize("function", cases.FAILING)
def test_function_failing_on_private_items_is_silent(function: Any) -> None:
    found = dictionary(Elements.from_function(function), ["yo", "bro", "hello"], public=False)
    assert partition(found) == {frozenset({"yo", "hello"}), frozenset({"bro"})}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dg.histogram(table(), "word", unit=dg.Element(function), **PUBLIC)


def test_function_failing_on_the_public_domain_raises() -> None:
    with pytest.raises(RuntimeError, match="bro"):
        dictionary(cases.fails_on_bro, ["bro"])
    with pytest.raises(dg.ParameterError, match="a cell must be text"):
        dictionary(lambda item: [item], ["bro"])


class Colour(Enum):
    RED = 1


class Number(IntEnum):
    ONE = 1


def test_cells_equal_in_python_are_one() -> None:
    noon = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
    east = noon.astimezone(datetime.timezone(datetime.timedelta(hours=5)))
    equal: list[list[Any]] = [
        [1, 1.0, True, np.int64(1), np.float32(1), Decimal(1), Number.ONE],
        ["1", np.str_("1")],
        [(1, "x"), (1.0, "x")],
        [0.5, Decimal("0.5")],
        [noon, east],
        [b"1"],
        [Colour.RED],
        [datetime.date(2026, 1, 1)],
        [math_nan := float("nan"), math_nan, float("nan")],
    ]
    cells = {str(100 * i + j): c for i, group in enumerate(equal) for j, c in enumerate(group)}
    items = list(cells)
    for public in (True, False):
        for order in (items, items[::-1]):
            found = dictionary(Elements.from_function(cells.get), order, public=public)
            assert partition(found) == {
                frozenset(str(100 * i + j) for j in range(len(g))) for i, g in enumerate(equal)
            }


@pytest.mark.parametrize("by", [lambda i: int(i) % 3 if int(i) % 2 else str(int(i) % 3), None])
def test_order_depends_only_on_each_item(by: Any) -> None:
    # The rows selected by a contribution bound must not depend on other rows in the table.
    items = [str(i) for i in range(60)]
    elements = None if by is None else Elements.from_function(by)
    with table().open_engine() as engine:
        full = coded(engine, items, elements, public=False)
        rng = np.random.default_rng(2)
        assert full.layout.cell_of is not None
        place = {item: i for i, item in enumerate(items_of(full))}
        cell_of = dict(zip(items_of(full), full.layout.cell_of.tolist(), strict=True))
        for _ in range(20):
            part = rng.permutation(items)[: rng.integers(1, 60)].tolist()
            less = coded(engine, part, elements, public=False)
            order = items_of(less)
            assert order == sorted(order, key=place.__getitem__)
            assert less.layout.cell_of is not None
            same = np.unique([cell_of[item] for item in order], return_inverse=True)[1]
            assert less.layout.cell_of.tolist() == same.tolist()


def test_cell_codes_of_unknown_items_need_no_error_rule() -> None:
    elements = Elements.from_function(len, missing="error")
    with refuses("missing", "domain"):
        cell_codes(elements, ["a"], public=False)


@pytest.mark.parametrize("values", [["30.01.2024", "31.01.2024"], [20240130, 20240131]])
def test_periods_of_non_dates_are_rejected(values: list[Any]) -> None:
    """Each text would be a separate cell, but the guarantee covers the cell of a month."""
    table = dg.read(pa.table({"who": [1, 2], "at": values}), user="who")
    month, said = (
        dg.Elements.from_period("month"),
        r"must contain dates for a month, .*({'at': 'DATE'}|convert it to DATE)",
    )
    with pytest.raises(dg.SchemaError, match=said):
        table.with_cells("month", of="at", by=month)
    with pytest.raises(dg.SchemaError, match=said):
        dg.histogram(table, "at", unit=dg.Element(month), epsilon=1.0, delta=1e-6)
