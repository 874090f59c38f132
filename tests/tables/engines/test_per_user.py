"""A person's features depend only on that person's rows, bit for bit."""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.refusals import refuses
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.errors import ParameterError, SchemaError
from dpgrain.tables.engines import per_user
from dpgrain.tables.engines.features import FUNCTIONS
from dpgrain.tables.engines.per_user import PerUser

ENGINES = ("duckdb", InMemory)
# Floating-point sums depend on their order, and so do minima of two zeros.
HARD = [1e16, 1.0, -1e16, 0.1, 1e-3, 3.0, 2.5, 1e300, -1e300, 0.0, -0.0, math.nan, math.inf, None]


def rows_of(table: dg.UserTable) -> list[dict[str, Any]]:
    with table.open_engine() as engine:
        found = engine.columns([(name, "as it is") for name in table.schema])
    return [
        {
            name: value.hex() if isinstance(value, float) else value
            for name, value in zip(table.schema, row.values(), strict=True)
        }
        for row in found.to_pylist()
    ]


def table_of(columns: dict[str, Any], **options: Any) -> dg.UserTable:
    return dg.read(pa.table({**columns}), user="who", **options)


def hard_people(users: int, seed: int) -> dict[int, list[Any]]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 40, users)
    return {user: [HARD[i] for i in rng.integers(0, len(HARD), size)]
            for user, size in enumerate(sizes)}  # fmt: skip


def shuffled(people: dict[int, list[Any]], seed: int) -> dict[str, Any]:
    rows = [(user, x) for user, mine in people.items() for x in mine]
    order = np.random.default_rng(seed).permutation(len(rows))
    who, x = zip(*(rows[i] for i in order), strict=True)
    return {"who": who, "x": x}


def of_numbers(table: dg.UserTable) -> list[dict[str, Any]]:
    made = table.per_user(
        spent=("x", "sum"), usual=("x", "mean"), least=("x", "min"), most=("x", "max"),
        known=("x", "count"),
    )  # fmt: skip
    return rows_of(made)


def mixed(people: dict[int, list[Any]]) -> Iterator[list[dict[str, Any]]]:
    """The same people in other orders, threads and engines, and with others."""
    others = {user + 10_000: mine for user, mine in hard_people(900, 9).items()}
    for seed, threads, engine in itertools.product(range(3), (1, 2, 4), ENGINES):
        beside = {**others, **people} if seed == 2 else people
        table = table_of(shuffled(beside, seed), threads=threads, engine=engine)
        yield [row for row in of_numbers(table) if row["who"] < 10_000]


@pytest.mark.slow
def test_order_threads_engine_and_others_move_no_bit() -> None:
    first, *rest = mixed(hard_people(400, 1))
    assert len(first) == 400
    assert all(found == first for found in rest)


def test_parts_of_the_users_are_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """With little memory the rows are read several times, each time for some users."""
    people = hard_people(300, 2)
    columns = {**shuffled(people, 1), "at": list(range(sum(map(len, people.values()))))}
    asked = {
        "spent": "total(x)",
        "begin": "first(x, at)",
        "often": "most(x)",
        "f": "total(x) / count()",
    }
    whole = rows_of(table_of(columns).per_user(by="x > 1", **asked))
    assert len(whole) > 300
    parts: list[str] = []
    query = PerUser._query

    def noted(self: PerUser, part: str) -> str:
        parts.append(part)
        return query(self, part)

    monkeypatch.setattr(PerUser, "_query", noted)
    monkeypatch.setattr(per_user, "_STATES_SHARE", 1e-9)
    assert rows_of(table_of(columns).per_user(by="x > 1", **asked)) == whole
    assert len(set(parts)) == 16


def test_release_computes_only_the_features_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = shuffled(hard_people(30, 3), 1)
    columns["day"] = range(len(columns["x"]))
    created: list[list[str]] = []
    create = PerUser._create

    def recorded(self: PerUser, *arguments: Any) -> None:
        created.append(list(self.columns()))
        create(self, *arguments)

    monkeypatch.setattr(PerUser, "_create", recorded)
    people = table_of(columns).per_user(
        visits="count()", first="first(x, day)", often="most(x)", f="total(x) / count()"
    )
    people = people.derive(scaled="f * 2").filter("visits > 3")
    options: dict[str, Any] = {"bounds": (0, 9), "unit": dg.User(), "epsilon": 1.0}
    mean = dg.mean(people, "scaled", **options, random_state=1)
    assert created == [["who", "visits", "total(x)", "f", "scaled"]]
    monkeypatch.setattr(PerUser, "_restricted", lambda self, _: self)
    assert dg.mean(people, "scaled", **options, random_state=1).estimate == mean.estimate


def test_sums_are_exact() -> None:
    columns = {
        "who": [1] * 3 + [2] * 10 + [3, 4],
        "x": [1e16, 1.0, -1e16, *[0.1] * 10, 1e300, 2.0**-70],
    }
    people = table_of(columns).per_user(x=("x", "sum"))
    with people.open_engine() as engine:
        found = engine.columns([("x", "number")]).column(0).to_pylist()
    # Ten times 0.1 is ten times the number that 0.1 is read as, up to 2^-62.
    assert found == [1.0, 1.0, 2.0**62, 0.0]


def test_numbers_agree_with_pandas() -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "who": rng.integers(0, 50, 900), "shop": rng.choice(["a", "b", "c"], 900),
            "amount": rng.normal(size=900).round(3), "size": rng.integers(-3, 9, 900),
        }
    )  # fmt: skip
    frame.loc[rng.random(900) < 0.3, "amount"] = np.nan
    asked: dict[str, Any] = {
        f"{column}_{function}": (column, function)
        for column, function in itertools.product(("amount", "size"), FUNCTIONS)
        if (column, function) != ("amount", "nunique")
    }
    for by in (None, "shop"):
        keys = ["who", *([by] if by else [])]
        expected = frame.groupby(keys).agg(**asked).reset_index()
        people = dg.read(frame, user="who").per_user(by=by, **asked)
        with people.open_engine() as engine:
            table = engine.columns([(name, "as it is") for name in people.schema])
        found = table.rename_columns(list(people.schema)).to_pandas()
        pd.testing.assert_frame_equal(found, expected, check_dtype=False)


def test_rows_without_user_or_group_are_dropped() -> None:
    columns: dict[str, Any] = {
        "who": [1, 1, None, 2, 2],
        "shop": ["a", None, "a", None, None],
        "x": [1, 2, 3, 4, None],
    }
    table = table_of(columns)
    assert [row["n"] for row in rows_of(table.per_user(n="count"))] == [2, 2]
    assert [row["n"] for row in rows_of(table.per_user(n=("x", "count")))] == [2, 1]
    assert rows_of(table.per_user(by="shop", n="count")) == [{"who": 1, "shop": "a", "n": 1}]
    assert rows_of(table_of({"who": pa.array([], pa.int64())}).per_user(n="count")) == []


def test_people_tables_may_be_derived_from_each_other() -> None:
    columns = {"who": [1, 1, 1, 2], "shop": ["a", "b", "b", "c"], "x": [True, False, True, True]}
    for engine in ENGINES:
        table = table_of(columns, engine=engine)
        early = table.with_cells("early", of="shop", by=lambda shop: "yes" if shop < "c" else "no")
        in_shops = early.per_user(by=["shop", "early"], visits="count", true=("x", "sum"))
        assert [row["visits"] for row in rows_of(in_shops)] == [1, 2, 1]
        many = in_shops.with_cells("many", of="visits", by=lambda n: "many" if n > 1 else "one")
        whole = many.per_user(
            shops="count", most=("visits", "max"), true=("true", "sum"), kinds=("early", "nunique"),
            sizes=("many", "nunique"),
        )  # fmt: skip
        assert rows_of(whole) == [
            {"who": 1, "shops": 2, "most": 2, "true": 2, "kinds": 1, "sizes": 2},
            {"who": 2, "shops": 1, "most": 1, "true": 1, "kinds": 1, "sizes": 1},
        ]


def test_types_are_public() -> None:
    columns: dict[str, Any] = {
        "who": ["ann"],
        "x": [1.5],
        "n": [3],
        "day": [datetime.date(2024, 5, 1)],
        "yes": [True],
    }
    people = table_of(columns).per_user(
        a="count", b=("x", "sum"), c=("n", "sum"), d=("n", "mean"), e=("day", "min"), f=("yes", "sum"),
        g=("x", "max"), h=("day", "nunique"), i=("yes", "max"),
    )  # fmt: skip
    kinds = "VARCHAR BIGINT DOUBLE BIGINT DOUBLE DATE BIGINT DOUBLE BIGINT BIGINT"
    assert list(people.schema.values()) == kinds.split()
    assert people.is_whole("c")
    assert not people.is_whole("b")
    made = people.source
    assert isinstance(made, PerUser)
    assert [name for name in people.schema if made.is_zero_without_rows(name)] == [*"abcfh"]
    kept = table_of(columns).per_user(by="n", a="count").source
    assert isinstance(kept, PerUser)
    assert not kept.is_zero_without_rows("a")


def test_nothing_is_read_before_a_release(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("who,x\n1,2\n")
    table = dg.read(path, user="who", types={"x": "DOUBLE"})
    people = table.per_user(n="count", x=("x", "sum"))
    path.write_text("who,x\n1,2\n1,5\n7,1\n")
    fresh = dg.read(path, user="who", types={"x": "DOUBLE"}).per_user(n="count", x=("x", "sum"))
    assert people.schema == fresh.schema
    assert [row["n"] for row in rows_of(people)] == [2, 1]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "per_user requires at least one number, such as visits='count'."),
        ({"n": "sum"}, "n must be one of 'size', 'count' or a pair such as"),
        ({"n": 5}, "n must be 'count' or a pair of a column and a function"),
        ({"n": ("x", "median")}, "n must be one of 'size', 'count', 'sum'"),
        ({"n": ("y", "sum")}, "n 'y' is not a column of the table"),
        ({"n": ("shop", "sum")}, "n 'shop' must be numeric, not text"),
        ({"n": ("x", "nunique")}, "n 'x' has type DOUBLE, which cannot be used as a key"),
        ({"n": ("when", "min")}, "n 'when' must be numeric, not of type TIMESTAMP"),
        ({"n": ("cell", "sum")}, "n 'cell' must be numeric, not of type VARCHAR"),
        ({"who": "count"}, "who is used for two columns of one table"),
        ({"n": "count", "N": "count"}, "N is used for two columns of one table"),
        ({"by": "x", "n": "count"}, "by 'x' has type DOUBLE, which cannot be used as a key"),
        ({"by": "no", "n": "count"}, "by 'no' is not a column of the table"),
    ],
)
def test_impossible_features_raise_a_clear_error(asked: dict[str, Any], said: str) -> None:
    columns: dict[str, Any] = {
        "who": [1],
        "shop": ["a"],
        "x": [1.5],
        "when": [datetime.datetime(2024, 5, 1)],
    }
    table = table_of(columns).with_cells("cell", of="shop", by=str.upper)
    with pytest.raises((ParameterError, SchemaError)) as caught:
        table.per_user(**asked)
    assert said in str(caught.value)


def test_a_table_without_users_has_no_people() -> None:
    with pytest.raises(ParameterError, match="pass user= to dg"):
        dg.read(pa.table({"x": [1]})).per_user(n="count")


@pytest.mark.parametrize("unit", [dg.Record(), dg.Element("n"), dg.User(2, by="n")])
def test_only_whole_users_are_protected(unit: Any) -> None:
    people = table_of({"who": [1, 1], "x": [1.0, 2.0]}).per_user(n="count")
    promise: dict[str, Any] = {"unit": unit, "epsilon": 1.0, "delta": 1e-6}
    calls: list[Any] = [
        lambda: dg.mean(people, "n", **promise),
        lambda: dg.top(people, "n", **promise),
        lambda: dg.elements_per_user(people, "n", **promise),
        lambda: dg.distribution(people, "n", [1], **promise),
    ]
    for call in calls:
        with refuses("unit", "User"):
            call()


def test_region_of_records_stays_with_derived_people() -> None:
    """A person's row is derived from records inside, and no region cuts such rows."""
    columns = {"who": [1, 1, 2], "year": [2024, 2025, 2025]}
    for engine in ENGINES:
        table = table_of(columns, engine=engine)
        people = table.where(year=2025).per_user(n="count")
        assert [row["n"] for row in rows_of(people)] == [1, 1]
        assert people.scope == table.where(year=2025).scope
        release = dg.mean(people, "n", unit=dg.User(), epsilon=1, delta=1e-6)
        assert release.guarantee.scope == people.scope
        for made in (people, table.per_user(n="count")):
            with refuses("where", "per_user"):
                made.where(n=1)


@pytest.mark.slow
def test_most_frequent_of_many_values_needs_little_memory(tmp_path: Path) -> None:
    """One person's different values are counted where memory spills."""
    many = 3_000_000
    who, x = np.append(np.zeros(many, int), [0, 1, 1]), np.append(np.arange(many), [7, 2, 2])
    pq.write_table(pa.table({"who": who, "x": x, "y": x % 3}), tmp_path / "t.parquet")
    table = dg.read(tmp_path / "t.parquet", user="who", memory="256MB", threads=2)
    people = table.per_user(m="most(x)", few="most(y)", rows="count()", kinds="distinct(y)")
    wanted: Any = [(name, "as it is") for name in ("who", "m", "few", "rows", "kinds")]
    with people.open_engine() as engine:
        found = [tuple(row.values()) for row in engine.columns(wanted).to_pylist()]
    assert sorted(found) == [(0, 7, 1, many + 1, 3), (1, 2, 2, 2, 1)]
