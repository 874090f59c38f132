"""Domains are of a column's own keys, however they are written."""

from __future__ import annotations

import csv
import datetime
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.inputs import cases
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.errors import ParameterError
from dpgrain.inputs.labels import as_integer
from dpgrain.scope.regions import Region, Side, days
from dpgrain.statistics.sums_query import SumsQuery
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.domain import public_domain, public_values
from dpgrain.tables.engines.derived_columns import CompiledExpression
from dpgrain.tables.groups import Groups


def keys_of(domain: Any, column: Any) -> list[Any]:
    table = dg.read(pa.table({"who": [1], "item": column}), user="who")
    blocks = UnitBlocks.for_unit(dg.User(), table, ["item"])
    found: list[Any] = (
        public_domain(domain, blocks, table, ["item"]).groups().columns[0].to_pylist()
    )
    return found


def test_domains_are_of_the_column_s_own_keys() -> None:
    text, whole_numbers = pa.array(["a"]), pa.array([1])
    assert keys_of(cases.SEVEN, text) == cases.SEVEN
    assert keys_of([7, 2.5, "007", True, 1e-5, np.int8(3)], text) == [
        "7",
        "2.5",
        "007",
        "True",
        "0.00001",
        "3",
    ]
    assert keys_of([7, 8.0, Decimal("9.0"), np.uint8(3), Fraction(4)], whole_numbers) == [
        7,
        8,
        9,
        3,
        4,
    ]
    assert keys_of([False, 1], pa.array([True])) == ["false", "true"]
    money = pa.array([Decimal("1.50")], pa.decimal128(9, 2))
    assert keys_of([1, 1.5, Decimal("-0.25"), "0.75"], money) == ["1.00", "1.50", "-0.25", "0.75"]
    assert keys_of([2**64 - 1, 5.0], pa.array([1], pa.uint64())) == [str(2**64 - 1), "5"]
    assert keys_of([datetime.date(2024, 5, 1), "2024-05-02"], text) == ["2024-05-01", "2024-05-02"]
    days = pa.array([datetime.date(2024, 5, 1)])
    listed = ["2024-05-01", "10000-01-01", "0044-03-15 (BC)", "infinity"]
    assert keys_of([datetime.date(2024, 5, 1), *listed[1:]], days) == listed
    for wrong, column, words in [
        (["1"], whole_numbers, r"'1', but .* 'item' contains integers; pass .* domain=\[1\]\.$"),
        (["1a"], whole_numbers, "'1a', but the item column 'item' contains integers; remove it"),
        ([1.5], whole_numbers, "contains 1.5, but the item column 'item' contains integers"),
        ([Decimal("1e99999999")], whole_numbers, "but the item column 'item' contains integers"),
        ([Decimal("1e99999999")], text, "but the item column 'item' contains text"),
        ([math.inf], text, "contains inf, but the item column 'item' contains text"),
        ([Fraction(1, 3)], text, "but the item column 'item' contains text"),
        ([0.001], money, "'item' contains numbers with 2 decimals; write them such as 0.00"),
        (
            ["1.00", "0.5"],
            money,
            "contains '0.5', but the item column 'item' contains numbers with 2",
        ),
        (["5", "05"], pa.array([1], pa.uint64()), "contains '05', .* contains integers"),
        (
            ["true", "yes"],
            pa.array([True]),
            "contains 'yes', .* contains booleans; write true and false",
        ),
        # A month is not a day, and its count would be pure noise.
        (
            ["2025-01", "2025-02"],
            days,
            "contains '2025-01', .* contains dates such as 2024-05-01; list dates",
        ),
        (["2024-05-01", "31.12.2025"], days, "contains '31.12.2025', .* contains dates such as"),
        ([1, "1"], text, "contains item '1' twice"),
        ([1, True], whole_numbers, "contains item 1 twice"),
        ([0.1, Decimal("0.1")], text, "contains item '0.1' twice"),
    ]:
        with pytest.raises(ParameterError, match=words):
            keys_of(wrong, column)


def test_decimal_domains_match_sql_output() -> None:
    cells = [Decimal("1.00"), Decimal("1.50"), Decimal("-0.25"), Decimal("0.00")]
    table = dg.read(
        pa.table({"who": range(4), "item": pa.array(cells, pa.decimal128(9, 2))}), user="who"
    )
    release = dg.histogram(
        table,
        "item",
        unit=dg.User(),
        domain=[1, 1.5, -0.25, 0],
        epsilon=1e6,
        delta=0.5,
        random_state=0,
    )
    assert release.to_pandas()["estimate"].round().tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "spelled", [cases.SEVEN, cases.ONE, cases.HEX], ids=["seven", "one", "hex"]
)
def test_mappings_distinguish_spellings(spelled: list[str], tmp_path: Path) -> None:
    """Whether the mapping is a dict, a table or a file, and the column text or whole numbers."""
    path = tmp_path / "map.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(
            [("item", "cell"), *((text, f"cell of {i}") for i, text in enumerate(spelled))]
        )
    cells = [f"cell of {i}" for i in range(len(spelled))]
    mapping = dict(zip(spelled, cells, strict=True))
    table = dg.read(pa.table({"who": range(len(spelled)), "item": spelled}), user="who")
    for by in (mapping, pa.table({"i": spelled, "c": cells}), path):
        release = dg.histogram(
            table.with_cells("cell", of="item", by=by), "cell", unit=dg.User(), domain=cells,
            epsilon=1e6, delta=0.5, random_state=0,
        )  # fmt: skip
        assert release.to_pandas()["estimate"].round().tolist() == [1.0] * len(spelled)
    numbers = dg.read(pa.table({"who": [1], "item": [7]}), user="who")
    for text in spelled:
        if as_integer(text) is None:
            with pytest.raises(ParameterError, match=r"contains item .* contains integers"):
                numbers.with_cells("cell", of="item", by={text: "a"})
    assert numbers.with_cells("cell", of="item", by={"7": "a"}).cells["cell"].elements.mapping == {
        7: "a"
    }
    # Stated numbers meet the text that they are written as.
    known = table.with_cells("cell", of="item", by={7: "a", 2.5: "b", True: "c"}).cells["cell"]
    assert known.elements.mapping == {"7": "a", "2.5": "b", "True": "c"}


def test_the_groups_of_an_earlier_release_are_a_domain() -> None:
    table = dg.read(pa.table({"who": [1, 2], "item": ["a", "b"], "day": [3, 4]}), user="who")
    first = dg.histogram(
        table, "item", unit=dg.User(), domain=["b", "a"], clip=1.0, epsilon=1.0, delta=1e-6
    )
    blocks = UnitBlocks.for_unit(dg.User(), table, ["item"])
    again = public_domain(first.groups, blocks, table, ["item"])
    assert again.groups().columns[0].to_pylist() == first.groups.columns[0].to_pylist()
    pairs = Groups.of(("item", "day"), (pa.array(["a", "b"]), pa.array([3, 4])))
    found = public_domain(pairs, blocks, table, ["item", "day"]).groups()
    assert [column.to_pylist() for column in found.columns] == [["a", "b"], [3, 4]]
    with refuses("domain", "by item, day", "not by item"):
        public_domain(pairs, blocks, table, ["item"])


@pytest.mark.parametrize("label", ["2025-01", "2025", 2025])
def test_group_of_a_month_is_written_as_first_day(label: Any) -> None:
    days = pa.array([datetime.date(2025, 1, 3)])
    table = dg.read(pa.table({"who": [1], "at": days}), user="who")
    with pytest.raises(ParameterError, match="write 2025-01-01, the first day"):
        dg.count(table, by="month(at)", domain=[label], unit=dg.User(), epsilon=1.0, delta=1e-6)


def test_a_suggested_option_is_quoted_for_the_shell() -> None:
    table = dg.read(pa.table({"who": [1], "paid (EUR)": ["1"]}), user="who")
    with pytest.raises(dg.SchemaError, match=r"--type 'paid \(EUR\)=double'"):
        dg.sum(table, "paid (EUR)", unit=dg.User(), epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("bins(x, 0, 10)", ["0 to 10", "10 and above"]),
        ("bins(x, 0.0, 10)", ["0.0 to 10", "10 and above"]),
        ("bins(x, 5, 10)", ["below 5", "5 to 10", "10 and above"]),
        ("bins(x, -5, 0)", ["below -5", "-5 to 0", "0 and above"]),
    ],
)
def test_bins_from_0_have_no_group_below_it(text: str, listed: list[str]) -> None:
    rows = dg.read(pa.table({"who": [1, 2, 3], "x": [-1.0, 4.0, 12.0]}), user="who")
    options: dict[str, Any] = {"unit": dg.User(), "epsilon": 100.0, "clip": 1.0, "random_state": 1}
    found = dg.count(rows.derive(band=text), by="band", **options)
    assert found.groups.columns[0].to_pylist() == listed
    first = listed[0] if "below" in listed[0] else f"below {listed[0].split()[0]}"
    every = dg.count(rows.derive(band=text), by="band", domain=[first, listed[-1]], **options)
    assert round(every.estimate[0]) == {"below 5": 2, "below -5": 0}.get(first, 1)
    query = dg.count.query(rows.derive(band=text), unit=dg.Element("band"), epsilon=1.0, clip=1.0)
    assert isinstance(query, SumsQuery)
    assert query.blocks.partition is not None
    (rule,) = query.blocks.partition.rules
    # Rows below 0 are still a separate cell, as are rows without a value.
    assert rule.cells == 4


def test_months_of_a_region_are_public_values() -> None:
    derived = CompiledExpression.parse("month(day)", {"day": "DATE"})
    spring = Region((Side("day", days("2024-03-01", "2024-04-30")),))
    assert public_values(derived, spring) == (datetime.date(2024, 3, 1), datetime.date(2024, 4, 1))
    assert public_values(derived, Region()) is None
