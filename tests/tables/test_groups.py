"""Groups, their cells and their public order."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pytest
from tests.effort import Effort
from tests.refusals import refuses
from tests.tables import cases

import dpgrain as dg
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.domain import GroupDomain, public_domain
from dpgrain.tables.groups import (
    Dictionary,
    GroupCells,
    Groups,
    column_order,
    md5_words,
    public_order,
)
from dpgrain.units import Unit

PUBLIC: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "clip": 1.0}


# -- groups ------------------------------------------------------------------------------------------


def test_a_product_varies_the_first_key_slowest() -> None:
    groups = Groups.product(("a", "b", "c"), [pa.array([2, 1]), pa.array(["x"]), pa.array([3, 4])])
    assert groups.names == ("a", "b", "c")
    assert cases.rows_of(groups) == [(2, "x", 3), (2, "x", 4), (1, "x", 3), (1, "x", 4)]
    assert len(groups) == groups.size == 4
    assert len(Groups.product(("a", "b"), [pa.array([1, 2]), pa.array([], pa.string())])) == 0


def test_no_keys_are_one_group() -> None:
    everything = Groups.of((), ())
    assert len(everything) == 1
    assert everything.labels() == ["all"]
    assert everything.take(everything.order()).size == 1
    assert len(everything.take(np.array([0]))) == 1
    assert len(everything.filter(np.array([False]))) == 0
    assert everything.table().num_columns == 0


@pytest.mark.parametrize("names", [("a", "b"), (".a", "[b"), ("a.b", ".[0]"), ("", " ")])
def test_taking_and_sorting_keep_rows_whole(names: tuple[str, str]) -> None:
    rows = [("y", 2), ("x", 10), ("x", 9), ("é", -1), ("", 3)]
    text, numbers = zip(*rows, strict=True)
    groups = Groups.of(names, [pa.array(text), pa.array(numbers)])
    assert cases.rows_of(groups.take(np.array([3, 0]))) == [rows[3], rows[0]]
    assert cases.rows_of(groups.filter(np.array([True, False, False, False, True]))) == [
        rows[0],
        rows[4],
    ]
    assert cases.rows_of(groups.take(groups.order())) == sorted(rows)
    assert groups.take(groups.order()).names == names
    assert groups.labels() == ["y · 2", "x · 10", "x · 9", "é · -1", " · 3"]


# -- columns of cells ---


NUMBER: dict[str, int] = {"a": 7, "b": 8, "c": 9, "d": 10, "e": 11}


def labels(table: dg.UserTable, of: str, name: str) -> dict[Any, str]:
    with table.open_engine() as engine:
        return dict(cases.rows_of(engine.distinct([of, name])))


# How a column of cells may be derived (from a column, by a rule), and its values for each page.
MADE: dict[str, tuple[str, Callable[[], Any], dict[str, str]]] = {
    "function": ("page", lambda: cases.TOPICS.get, cases.OWN),
    "failing": ("page", lambda: cases.fails_on_d, cases.OWN),
    "failing drop": (
        "page",
        lambda: dg.Elements.from_function(cases.fails_on_d, missing="drop"),
        cases.DROP,
    ),
    "mapping": ("page", lambda: cases.TOPICS, cases.OWN),
    "mapping drop": (
        "page",
        lambda: dg.Elements.from_mapping(cases.TOPICS, missing="drop"),
        cases.DROP,
    ),
    "table": (
        "page",
        lambda: pa.table({"i": list(cases.TOPICS), "c": list(cases.TOPICS.values())}),
        cases.OWN,
    ),
    "integers": (
        "code",
        lambda: {NUMBER[page]: topic for page, topic in cases.TOPICS.items()},
        {**cases.OWN, "d": "own: 10", "e": "own: 11"},
    ),
    "texts of integers": (
        "code",
        lambda: {str(NUMBER[page]): topic for page, topic in cases.TOPICS.items()},
        {**cases.OWN, "d": "own: 10", "e": "own: 11"},
    ),
    "function of integers": (
        "code",
        lambda: lambda code: code % 2,
        {"a": "cell: 1", "b": "cell: 0", "c": "cell: 1", "d": "cell: 0", "e": "cell: 1"},
    ),
}


def with_topics(made: str) -> tuple[dg.UserTable, dict[str, str]]:
    of, by, expected = MADE[made]
    return cases.table_of().with_cells("topic", of=of, by=by()), expected


@pytest.mark.parametrize("made", MADE)
def test_cell_column_has_a_text_for_each_value(made: str) -> None:
    table, expected = with_topics(made)
    assert table.schema["topic"] == "VARCHAR"
    of = MADE[made][0]
    wanted = {NUMBER[page] if of == "code" else page: cell for page, cell in expected.items()}
    assert labels(table, of, "topic") == wanted
    assert list(cases.table_of().schema) == ["who", "page", "code", "month"]


UNITS: dict[str, Unit] = {"topic": dg.Element("topic"), "page": dg.Element("page"),
                          "month": dg.Element("month"), "user": dg.User()}  # fmt: skip


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(
    "keys",
    [(), ("page",), ("topic",), ("month",), ("page", "month"), ("month", "topic"), ("topic", "page")],
)  # fmt: skip
def test_sums_agree_with_the_definition(made: str, unit: str, keys: tuple[str, ...]) -> None:
    table, topics = with_topics(made)
    drops = made.endswith("drop")

    def cell(row: dict[str, Any]) -> Any:
        if unit == "user":
            return "all"
        return ... if unit == "topic" and drops and row["topic"] is None else row[unit]

    groups = cases.groups_in_data(table, keys)
    blocks = UnitBlocks.for_unit(UNITS[unit], table, keys)
    for clip in (0.7, 1.5, 100.0):
        expected = cases.expected_sums(keys, cell, topics, clip)
        cases.assert_same(cases.found_sums(table, blocks, groups, clip, public=False), expected)


def test_labels_of_different_cells_differ() -> None:
    cells: dict[str, Any] = {
        "a": "own: x", "b": 3, "c": "3", "d": "cell: 3", "e": "own: 3", "f": "own: own: x",
        "g": 3.5, "h": ("3",), "i": (3,), "j": b"3", "k": "", "l": "cell: '3'", "m": "'3'",
        "n": "\ud800", "o": "'\\ud800'", "p": "cell: '\\ud800'", "q": "cell: 3.5", "r": "None",
    }  # fmt: skip
    # Items that are their own cells, under the names of others.
    items = [*cells, "x", "3", "own: x", "cell: 3", "None"]
    table = cases.table_of(pa.table({"who": range(len(items)), "page": items}))
    found = labels(table.with_cells("cell", of="page", by=cells.get), "page", "cell")
    assert set(found) == set(items)
    assert len(set(found.values())) == len(items)
    assert (found["x"], found["a"]) == ("own: x", "cell: 'own: x'")
    assert (found["b"], found["c"]) == ("cell: 3", "3")


def test_equal_cells_have_one_label() -> None:
    cells: dict[str, Any] = {"a": 1, "b": 1.0, "c": True, "d": np.int64(1), "e": Decimal(1)}
    table = cases.table_of(pa.table({"who": range(5), "page": list(cells)}))
    found = labels(table.with_cells("cell", of="page", by=cells.get), "page", "cell")
    assert set(found.values()) == {"cell: 1"}


@pytest.mark.slow
@pytest.mark.parametrize("function", cases.FAILING)
@pytest.mark.parametrize("missing", ["own", "drop"])
def test_function_failing_on_private_values_is_silent(function: Any, missing: Any) -> None:
    rows = pa.table({"who": [1, 2, 3], "page": ["yo", "bro", "hello"], "month": [1, 1, 1]})
    elements = dg.Elements.from_function(function, missing=missing)
    table = cases.table_of(rows).with_cells("topic", of="page", by=elements)
    rest = {} if missing == "drop" else {"bro": "own: bro"}
    assert labels(table, "page", "topic") == {"yo": "cell", "hello": "cell", **rest}
    # The cell of an item is the same if the item determines it.
    groups = Groups.of(["page"], [pa.array(["yo", "bro", "hello"])])
    cells = UnitBlocks.for_unit(dg.Element("topic"), table, ["page"]).cells(groups, public=False)
    yo, bro, hello = cells.codes.tolist()
    assert yo == hello != bro
    assert (bro == -1) == (missing == "drop")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for keys in ("topic", "page", "month", ["month", "topic"], ["page", "topic"]):
            for unit in (dg.Element("topic"), dg.User(1, by="topic"), dg.User()):
                dg.histogram(table, keys, unit=unit, **PUBLIC)


def test_function_failing_on_the_public_domain_raises() -> None:
    table = cases.table_of().with_cells("topic", of="page", by=cases.fails_on_d)
    with pytest.raises(RuntimeError, match="d"):
        dg.histogram(table, "page", unit=dg.Element("topic"), domain=["a", "d"], **PUBLIC)
    odd = cases.table_of().with_cells("topic", of="page", by=lambda page: [page])
    with pytest.raises(dg.ParameterError, match="a cell must be text, a number") as caught:
        dg.histogram(odd, "page", unit=dg.Element("topic"), domain=["a"], **PUBLIC)
    cases.one_sentence(caught.value)


@pytest.mark.parametrize(
    ("name", "of", "by", "error", "words"),
    [
        ("page", "page", {"a": "x"}, dg.ParameterError, "name must be a new column name, not 'page'"),
        ("Page", "page", {"a": "x"}, dg.ParameterError, r"'Page' \(column names ignore case: the"),
        ("Page", "page", {"a": "x"}, dg.ParameterError, r"'page'\); choose another, such as 'Page_2'"),
        ("", "page", {"a": "x"}, dg.ParameterError, "new column name, not ''; choose another."),
        (3, "page", {"a": "x"}, dg.ParameterError, "new column name, not 3"),
        ("topic", "nothing", {"a": "x"}, dg.SchemaError, "of 'nothing' is not a column"),
        ("topic", "n", {"a": "x"}, dg.SchemaError, "of 'n' has type DOUBLE"),
        ("topic", "page", {}, dg.ParameterError, "must not be empty"),
        ("topic", "page", 5, dg.ParameterError, "not int"),
        ("topic", "page", {(7,): "x"}, dg.ParameterError, r"contains item \(7,\), but.*text"),
        ("topic", "page", {"7": "x", 7: "y"}, dg.ParameterError, "one cell for item '7'"),
        ("topic", "code", {"x": "y"}, dg.ParameterError, "contains item 'x', but.*integers"),
        ("topic", "code", {"7": "a", 7: "b"}, dg.ParameterError, "one cell"),
        ("topic", "code", {"007": "b"}, dg.ParameterError, "contains item '007', but.*integers"),
        ("topic", "page", dg.Elements.from_mapping({"a": "x"}, missing="error"), dg.ParameterError,
         "missing='error' requires a public domain, which a column does not have"),
    ],
)  # fmt: skip
def test_wrong_columns_of_cells(
    name: Any, of: str, by: Any, error: type[Exception], words: str
) -> None:
    table = cases.table_of(pa.table({**cases.ROWS, "n": [0.5] * 13}))
    with pytest.raises(error, match=words) as caught:
        table.with_cells(name, of=of, by=by)
    cases.one_sentence(caught.value)


def test_cell_column_is_not_numeric(tmp_path: Path) -> None:
    pyarrow.csv.write_csv(pa.table(cases.ROWS), tmp_path / "rows.csv")
    table = cases.table_of(tmp_path / "rows.csv").with_cells("topic", of="page", by=lambda _: "5")
    with refuses("weight", "'topic'", kind=dg.SchemaError):
        dg.histogram(table, "page", unit=dg.User(), weight="topic", **PUBLIC)


@pytest.mark.slow
def test_cells_of_cells() -> None:
    areas = {"x": "north", "y": "south"}
    table = cases.table_of().with_cells("topic", of="page", by=cases.TOPICS)
    table = table.with_cells("other", of="page", by=lambda page: "one")
    table = table.with_cells("area", of="topic", by=areas)
    assert labels(table, "page", "area") == {
        "a": "north", "b": "north", "c": "south", "d": "own: own: d", "e": "own: own: e",
    }  # fmt: skip
    assert labels(table, "topic", "area")["x"] == "north"
    assert set(labels(table, "page", "other").values()) == {"one"}
    for keys, unit in itertools.product(("area", "topic", "page"), ("area", "topic", "other")):
        dg.histogram(table, keys, unit=dg.Element(unit), **PUBLIC)


@pytest.mark.parametrize("kind", ["arrow reader", "csv", "pandas"])
def test_cells_from_any_source(kind: str, tmp_path: Path) -> None:
    rows = pa.table({**cases.ROWS, "code": [None] * 13})
    expected = labels(
        cases.table_of(rows).with_cells("topic", of="page", by=cases.TOPICS), "page", "topic"
    )
    if kind == "csv":
        pyarrow.csv.write_csv(rows, tmp_path / "rows.csv")
    sources: dict[str, Callable[[], Any]] = {
        "arrow reader": lambda: pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches()),
        "csv": lambda: tmp_path / "rows.csv",
        "pandas": lambda: rows.filter(pa.compute.is_valid(rows["who"])).to_pandas(),
    }
    table = cases.table_of(sources[kind]()).with_cells("topic", of="page", by=cases.TOPICS)
    assert labels(table, "page", "topic") == expected


@pytest.mark.slow
def test_names_of_columns_do_not_matter(effort: Effort) -> None:
    names = ["rows0", "label", "value", "lookup0", "made", "k0", 'x "{}" y', "key"]
    rows = {name: ["a", "b", "d"] for name in names}
    table = dg.read(pa.table({"rows_": [1, 2, 3], **rows}), user="rows_")
    cells = ("cell", 'c "{}" d', "code", "user_", "given")
    for name, cell in effort.some(itertools.product(names, cells)):
        found = table.with_cells(cell, of=name, by=cases.TOPICS)
        assert labels(found, name, cell) == {"a": "x", "b": "x", "d": "own: d"}
        dg.histogram(found, [cell, name], unit=dg.Element(cell), **PUBLIC)


def test_check_counts_rows_without_a_cell() -> None:
    table = cases.table_of().with_cells(
        "topic", of="page", by=dg.Elements.from_mapping(cases.TOPICS, missing="drop")
    )
    assert "rows without an item (dropped)" in table.check("topic")
    # d, e and null: five rows of users, and none without a user.
    assert "5  rows without an item (dropped)" in table.check("topic")


# -- domains ---


MONTHS, PAGES = [3, 1], ["b", "a"]


def domain_of(domain: Any, keys: Sequence[str], unit: Unit | None = None) -> GroupDomain:
    table = cases.table_of().with_cells(
        "topic", of="page", by=dg.Elements.from_mapping(cases.TOPICS, missing="drop")
    )
    blocks = UnitBlocks.for_unit(unit or dg.User(), table, keys)
    return public_domain(domain, blocks, table, keys)


def test_the_product_of_public_values() -> None:
    found = domain_of({"page": PAGES, "month": MONTHS}, ["month", "page"])
    assert found.selected == ()
    assert found.groups().names == ("month", "page")
    assert cases.rows_of(found.groups()) == list(itertools.product(MONTHS, PAGES))
    assert found.groups().columns[0].type == pa.int64()


@pytest.mark.parametrize(
    "domain",
    [
        [(3, "b"), (1, "a"), (3, "a")],
        [[3, "b"], [1, "a"], [3, "a"]],
        iter([(3, "b"), (1, "a"), (3, "a")]),
        [(np.int64(3), np.str_("b")), (np.int32(1), "a"), (3, "a")],
    ],
)
def test_a_list_of_groups(domain: Any) -> None:
    found = domain_of(domain, ["month", "page"])
    assert found.selected == ()
    assert cases.rows_of(found.groups()) == [(3, "b"), (1, "a"), (3, "a")]


@pytest.mark.parametrize("keys", [("month", "page"), ("page", "month")])
def test_some_values_public_and_the_rest_selected(keys: tuple[str, ...]) -> None:
    found = domain_of({"month": MONTHS}, keys)
    assert found.selected == ("page",)
    groups = found.groups(Groups.of(["page"], [pa.array(["a", "c"])]))
    assert groups.names == keys
    wanted = {(month, page) for month in MONTHS for page in ("a", "c")}
    assert {row if keys[0] == "month" else row[::-1] for row in cases.rows_of(groups)} == wanted
    assert len(groups) == 4
    assert len(found.groups(Groups.of(["page"], [pa.array([], pa.string())]))) == 0


def test_nothing_public() -> None:
    for domain in (None, dict[str, Any]()):
        found = domain_of(domain, ["month", "page"])
        assert found.selected == ("month", "page")
        held = Groups.of(["month", "page"], [pa.array([1]), pa.array(["a"])])
        assert found.groups(held) is held
    assert cases.rows_of(domain_of({"page": ["a"]}, ["page"]).groups()) == [("a",)]
    assert cases.rows_of(domain_of({"a": "x", "b": "y"}, ["page"]).groups()) == [("a",), ("b",)]


def test_a_key_may_be_called_anything() -> None:
    rows = pa.table({"who": [1, 2], "row": [5, 6], "page": ["a", "b"]})
    found = public_domain(
        {"row": [9, 5, 6]}, UnitBlocks("user"), cases.table_of(rows), ["page", "row"]
    )
    groups = found.groups(Groups.of(["page"], [pa.array(["b", "a"])]))
    assert cases.rows_of(groups) == list(itertools.product(["b", "a"], [9, 5, 6]))


def test_public_mappings_show_their_domain() -> None:
    # A mapping that drops the rest reveals all cells; the keys of a unit's mapping are the items.
    assert cases.rows_of(domain_of(None, ["topic"]).groups()) == [("x",), ("y",)]
    mixed = domain_of(None, ["month", "topic"])
    assert mixed.selected == ("month",)
    assert mixed.public["topic"].to_pylist() == ["x", "y"]
    items = domain_of(None, ["page", "month"], dg.Element(cases.TOPICS))
    assert items.selected == ("month",)
    assert items.public["page"].to_pylist() == list(cases.TOPICS)


@pytest.mark.parametrize(
    ("keys", "domain", "words"),
    [
        ([], ["a"], "domain requires by=…: without it there is only one group"),
        (["month", "page"], {"year": [1]}, "keys must be among month, page, not 'year'"),
        (["month", "page"], {"month": []}, "domain must not be empty"),
        (
            ["month", "page"],
            {"month": ["1"]},
            "contains '1', but the item column 'month'.*integers",
        ),
        (["month", "page"], {"page": [1, "1"]}, "contains item '1' twice"),
        (["month", "page"], {"page": "abc"}, "a list of items, not the text 'abc'"),
        (["month", "page"], {"page": None}, "a list of items, not None"),
        (["page"], {"page": "abc"}, "a list of items, not the text 'abc'"),
        (["month", "page"], {"page": ["a", "a"]}, "contains item 'a' twice"),
        (["month", "page"], {"page": [["a"]]}, "not nested"),
        (["month", "page"], {"month": [2**63]}, "not 64-bit integers"),
        (["month", "page"], "ab", "a list of items, not the text 'ab'"),
        (["month", "page"], 5, "a list of items, not 5"),
        (["month", "page"], [], "domain must not be empty"),
        (["month", "page"], [1, 2], r"must have rows of 2 values \(month, page\), not 1"),
        (["month", "page"], [(1, "a", 2)], r"must have rows of 2 values.*\(1, 'a', 2\)"),
        (["month", "page"], ["ab"], "must have rows of 2 values.*'ab'"),
        (["month", "page"], [(1, "a"), (1, "a")], r"contains item \(1, 'a'\) twice"),
        (["month", "page"], [("a", 1)], "contains 'a', but the item column 'month'"),
        (["month", "page"], [(True, "a"), (1, "a")], r"contains item \(1, 'a'\) twice"),
        (["month", "page"], [(1, None)], "contains None, but the item column 'page'"),
        (["month", "page"], [(1, ["a"])], "not nested"),
        (["month", "page"], [(1, "\ud800")], "not valid text"),
        (["topic"], [3], "contains 3, but the item column 'topic' contains text"),
    ],
)
def test_wrong_domains(keys: list[str], domain: Any, words: str) -> None:
    with pytest.raises(dg.ParameterError, match=words) as caught:
        domain_of(domain, keys)
    cases.one_sentence(caught.value)


@pytest.mark.parametrize(
    ("keys", "domain"),
    [
        (["page"], ["q"]),
        (["page"], {"page": ["q"]}),
        (["month", "page"], {"page": ["q"]}),
        (["month", "page"], [(1, "q")]),
    ],
)
@pytest.mark.parametrize(
    "unit",
    [dg.Element(dg.Elements.from_mapping(cases.TOPICS, missing="drop")), dg.Element("topic")],
)
def test_a_domain_without_a_cell(keys: list[str], domain: Any, unit: dg.Element) -> None:
    if unit.by != "topic":
        keys, domain = keys[-1:], ["q"]
    with refuses("domain", "item") as caught:
        domain_of(domain, keys, unit)
    cases.one_sentence(caught.value)


def test_a_mapping_to_no_cell_has_no_domain() -> None:
    nothing = dg.Element(dg.Elements.from_mapping({"a": None}, missing="drop"))
    with refuses("domain", "item"):
        dg.histogram(cases.table_of(), "page", unit=nothing, **PUBLIC)


def test_a_release_of_several_keys(tmp_path: Path) -> None:
    many = {name: values * 60 for name, values in cases.ROWS.items()}
    many["who"] = [None if w is None else 10 * i + w for i, w in enumerate(many["who"])]
    table = cases.table_of(pa.table(many)).with_cells("topic", of="page", by=cases.TOPICS)
    options: dict[str, Any] = {"unit": dg.User(), "epsilon": 20.0, "delta": 1e-6, "clip": 5.0}
    release = dg.histogram(table, ["month", "topic"], domain={"month": [2, 1]}, **options)
    found = release.to_arrow()
    limits = ["low", "high", "at_least"]
    assert found.column_names == ["month", "topic", "estimate", "std_error", *limits]
    pairs = list(zip(found["month"].to_pylist(), found["topic"].to_pylist(), strict=True))
    assert set(pairs) == set(itertools.product([2, 1], ["x", "y", "own: d", "own: e"]))
    exact = dict.fromkeys(pairs, 0)
    for who, page, month in zip(many["who"], many["page"], many["month"], strict=True):
        pair = (month, cases.OWN.get(page, ""))
        if who is not None and pair in exact:
            exact[pair] += 1
    for pair, estimate, error in zip(pairs, release.estimate, release.std_error, strict=True):
        assert abs(estimate - exact[pair]) <= 6 * error
    listed = dg.histogram(table, ["month", "page"], domain=[(9, "z"), (1, "a")], **options)
    assert listed.items.to_pylist() == [{"month": 9, "page": "z"}, {"month": 1, "page": "a"}]
    again = dg.Histogram.load(listed.save(tmp_path / "r.parquet"))
    assert again.groups.names == ("month", "page")
    assert again.to_arrow().equals(listed.to_arrow())


def test_keys_named_like_numbers_work(tmp_path: Path) -> None:
    names = ["clip", "estimate", "key estimate", "low", "std_error"]
    rows = {name: ["a", "b"] for name in names}
    table = cases.table_of(pa.table({"who": [1, 2], **rows}))
    domain = [("a",) * 5, ("b",) * 5]
    release = dg.histogram(table, names, unit=dg.User(), domain=domain, **PUBLIC)
    found = release.to_arrow()
    assert found.num_columns == 5 + 5
    assert found["estimate"].to_pylist() == release.estimate.tolist()
    assert [found.column(i).to_pylist() for i in range(5)] == [["a", "b"]] * 5
    again = dg.Histogram.load(release.save(tmp_path / "r.parquet"))
    assert again.to_arrow().equals(found)
    assert again.groups.names == tuple(names)
    np.testing.assert_array_equal(again.clip, release.clip)
    np.testing.assert_array_equal(again.std_error, release.std_error)


def _groups(names: list[str]) -> Groups:
    return Groups.of(["item"], [pa.array(names)])


def _cells(labels: list[str | None]) -> GroupCells:
    known = sorted({label for label in labels if label is not None})
    codes = [-1 if label is None else known.index(label) for label in labels]
    return GroupCells(pa.array(labels, pa.string()), np.array(codes, dtype=np.int64))


def test_order_of_two_groups_is_independent_of_others() -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    order = public_order(_groups(names), _cells(["x"] * 6), md5_words)
    ordered = [names[i] for i in order]
    assert ordered != names
    for left_out in names:
        fewer = [name for name in names if name != left_out][::-1]
        found = public_order(_groups(fewer), _cells(["x"] * 5), md5_words)
        assert [fewer[i] for i in found] == [name for name in ordered if name != left_out]
    assert column_order(names) == ordered


def test_cells_are_ordered_by_name() -> None:
    labels = ["p", "q", "r", "s", "t", "u"]
    order = public_order(_groups(["a", "b", "c", "d", "e", "f"]), _cells([*labels]), md5_words)
    assert [labels[i] for i in order] == column_order(labels) != labels


def test_groups_without_cells_are_dropped_and_cells_contiguous() -> None:
    cells = _cells(["y", None, "x", "y", "x"])
    made = Dictionary.create(_groups(["a", "b", "c", "d", "e"]), cells, corners=2)
    items = made.groups.columns[0].to_pylist()
    assert sorted(items) == ["a", "c", "d", "e"]
    assert {frozenset(items[:2]), frozenset(items[2:])} == {frozenset("ad"), frozenset("ce")}
    assert made.cell_sizes.tolist() == [4, 4]
    assert made.cell_rows(2).tolist() == [0, 0, 1, 1]
    assert made.cell_rows(1).tolist() == [0, 0, 0, 0]
    assert cells.sizes.tolist() == [2, 2]
