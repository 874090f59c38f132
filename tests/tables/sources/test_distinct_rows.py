"""Repeated rows are used once, and which one depends on the rows of one user only."""

from __future__ import annotations

import datetime as dt
import hashlib
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.effort import Effort
from tests.refusals import refuses
from tests.tables.engines.cluster import Cluster
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.errors import SchemaError

NAMES = ("who", "case", "day", "x", "note")
SCHEMA = pa.schema(
    [("who", pa.int64()), ("case", pa.string()), ("day", pa.date32()), ("x", pa.float64()),
     ("note", pa.string())]
)  # fmt: skip
VALUES: dict[str, list[Any]] = {
    "who": [1, 1, 2, 3, None],
    "case": ["a", "a", "b", None],
    "day": [dt.date(2025, 1, 1), dt.date(2025, 1, 2)],
    "x": [0.0, -0.0, 1.5, math.nan, None],
    "note": ["", "', '", None],
}
ENGINES = {"duckdb": "duckdb", "in_memory": InMemory, "cluster": Cluster()}
Row = tuple[Any, ...]


def random_rows(rng: np.random.Generator, size: int) -> list[Row]:
    return [tuple(VALUES[name][rng.integers(len(VALUES[name]))] for name in NAMES)
            for _ in range(size)]  # fmt: skip


def table(rows: list[Row], engine: Any = "duckdb") -> dg.UserTable:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(NAMES)
    arrays = [pa.array(each, kind) for each, kind in zip(columns, SCHEMA.types, strict=True)]
    return dg.read(pa.table(arrays, SCHEMA), user="who", engine=engine)


def plain(value: Any) -> Any:
    """A value that is equal for two values with one meaning."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def rows_of(rows: dg.UserTable) -> Counter[Row]:
    with rows.open_engine() as engine:
        found = engine.columns([(name, "as it is") for name in rows.schema])
    rows_of_users = [tuple(row.values()) for row in found.to_pylist()]
    return Counter(tuple(map(plain, row)) for row in rows_of_users if row[0] is not None)


def digest(row: Row) -> int:
    """The hash that orders a user's rows."""

    def text(value: Any) -> str:
        if value is None:
            return "NULL"
        written = str(value)
        return (
            "'" + written.replace("'", "\\'") + "'"
            if {*" ',"} & {*written} or not written
            else written
        )

    return int.from_bytes(hashlib.md5(f"[{', '.join(map(text, row))}]".encode()).digest(), "little")


def first_rows(rows: list[Row], columns: tuple[str, ...]) -> Counter[Row]:
    """The same rows by plain Python."""
    alike: dict[Row, set[Row]] = {}
    kept: list[Row] = []
    places = [NAMES.index(name) for name in ("who", *columns)]
    for row in (tuple(map(plain, row)) for row in rows if row[0] is not None):
        key = tuple(row[place] for place in places)
        if None in key:
            kept.append(row)
        else:
            alike.setdefault(key, set()).add(row)
    return Counter([*kept, *(min(each, key=digest) for each in alike.values())])


@pytest.mark.parametrize("columns", [("case",), ("case", "day"), ("x",), ("who",), ("day", "note")])
@pytest.mark.parametrize("engine", ENGINES)
def test_first_rows_agree_with_plain_python(
    engine: str, columns: tuple[str, ...], effort: Effort
) -> None:
    rng = np.random.default_rng(len(columns))
    for size in effort.some([0, 1, 2, 5, 12, 40]):
        rows = random_rows(rng, size)
        found = rows_of(table(rows, ENGINES[engine]).distinct(list(columns)))
        assert found == first_rows(rows, columns)


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_equal_in_all_columns_are_used_once(engine: str, effort: Effort) -> None:
    rng = np.random.default_rng(5)
    for size in effort.some([0, 1, 5, 60]):
        rows = random_rows(rng, size)
        found = rows_of(table(rows, ENGINES[engine]).distinct())
        assert found == Counter({tuple(map(plain, row)) for row in rows if row[0] is not None})


def test_rows_without_a_value_are_all_used() -> None:
    rows = [(1, None, dt.date(2025, 1, 1), 1.0, "")] * 3
    assert rows_of(table(rows).distinct("case")) == Counter({rows[0]: 3})
    assert rows_of(table(rows).distinct(["day", "case"])) == Counter({rows[0]: 3})
    assert rows_of(table(rows).distinct("day")) == Counter(rows[:1])


def test_the_order_of_the_rows_decides_nothing(effort: Effort) -> None:
    rng = np.random.default_rng(7)
    rows = random_rows(rng, 60)
    moved = [rows[place] for place in rng.permutation(len(rows))]
    orders = [rows, moved, rows[::-1]][: effort.number(2, 3)]
    for engine in ENGINES.values():
        for columns in ("*", "case", ["case", "day"]):
            first, *others = [rows_of(table(each, engine).distinct(columns)) for each in orders]
            assert all(other == first for other in others)


def in_day(row: Row) -> Any:
    return row[0], row[2]


# The unit of each form, and the rows that one of them may change.
UNITS: list[tuple[str, Any, Callable[[Row], Any]]] = [
    ("*", "record", lambda row: tuple(map(plain, row))),
    ("*", "element", in_day),
    ("*", "user", lambda row: row[0]),
    ("case,day", "element", in_day),
    ("case,day", "user", lambda row: row[0]),
    ("case", "user", lambda row: row[0]),
]


def changed(columns: str, before: list[Row], after: list[Row]) -> tuple[Counter[Row], Counter[Row]]:
    one, other = (rows_of(table(rows).distinct(columns.split(","))) for rows in (before, after))
    return one - other, other - one


@pytest.mark.parametrize("relation", ["zero_out", "replace"])
@pytest.mark.parametrize(("columns", "level", "unit"), UNITS)
def test_no_unit_changes_rows_of_another(
    columns: str, level: str, unit: Callable[[Row], Any], relation: str, effort: Effort
) -> None:
    """A search over tables for a neighbour that changes more than its own rows."""
    rng = np.random.default_rng(11)
    for _ in effort.some(range(60)):
        before = [row for row in random_rows(rng, 9) if row[0] is not None]
        if not before:
            continue
        victim = before[rng.integers(len(before))]
        own = (
            [victim] if level == "record" else [row for row in before if unit(row) == unit(victim)]
        )
        after = list(before)
        for row in own:
            after.pop(next(place for place, each in enumerate(after) if each is row))
        if relation == "replace":
            fresh = [(*victim[:2], victim[2], *row[3:]) for row in random_rows(rng, 2)]
            after += fresh[:1] if level == "record" else fresh
        lost, gained = changed(columns, before, after)
        if level == "record":
            assert lost.total() <= 1
            assert gained.total() <= (relation == "replace")
        else:
            assert {unit(row) for row in (lost + gained)} <= {unit(victim)}
            assert relation == "replace" or not gained


def test_the_search_finds_elements_outside_of_the_columns(effort: Effort) -> None:
    """Why elements by another column are rejected: one of them changes rows of another."""
    day = [dt.date(2025, 1, place) for place in (1, 2)]
    rows = [(1, "a", each, x, "") for each in day for x in (1.0, 2.0)]
    both = [rows_of(table(part).distinct("case")) for part in (rows, rows[:2], rows[2:])]
    assert both[0] in both[1:]
    assert both[1] != both[2]
    assert sum(one != both[0] for one in both[1:]) == 1
    others = [rows[:2], rows[2:]][both[1] == both[0]]
    lost, gained = changed("case", rows, others)
    assert {in_day(row) for row in lost + gained} == {(1, each) for each in day}
    assert effort


def test_units_without_a_guarantee_are_rejected() -> None:
    rows = table([(1, "a", dt.date(2025, 1, 1), 1.0, "")])
    options: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
    for unit in (dg.Record(), dg.Element("day"), dg.Element({"a": "b"}), dg.Element(),
                 dg.User(2, by="day")):  # fmt: skip
        with refuses("unit", "uses the first of a user's rows"):
            dg.count(rows.distinct("case"), by="case", unit=unit, **options)
    with refuses("unit", "add 'day' to the columns of distinct"):
        dg.count(rows.distinct("case"), unit=dg.Element("day"), **options)
    assert dg.count.query(rows.distinct(["case", "day"]), unit=dg.Element("day"), **options)
    for unit in (dg.Record(), dg.Element("day"), dg.User(), dg.Element({"a": "b"})):
        assert dg.count.query(rows.distinct(), by="case", unit=unit, **options)


def test_a_joined_table_protects_users_only() -> None:
    rows = table([(1, "a", dt.date(2025, 1, 1), 1.0, "")])
    people = dg.read(pa.table({"id": [1], "zip": ["8001"]}), user="id")
    joined = rows.join(people).distinct(["case", "day"])
    with refuses("unit", "derived from all of a person's data"):
        dg.count(joined, unit=dg.Element("day"), epsilon=1.0, delta=1e-6)
    assert dg.count.query(joined, unit=dg.User(), epsilon=1.0, delta=1e-6)


def test_wrong_columns_are_rejected() -> None:
    rows = table([(1, "a", dt.date(2025, 1, 1), 1.0, "")])
    with refuses("columns", "not empty"):
        rows.distinct([])
    with refuses("columns", "'cas'", kind=SchemaError):
        rows.distinct("cas")
    with refuses("columns", "the column of cells 'part'", kind=SchemaError):
        rows.with_cells("part", of="case", by={"a": "b"}).distinct("part")
    with refuses("distinct", "called once, and before per_user"):
        rows.distinct("case").distinct("day")
    with refuses("distinct", "called once, and before per_user"):
        rows.per_user(n="count()").distinct("n")
    anonymous = dg.read(pa.table({"case": ["a", "a"]}))
    with refuses("columns", "requires user ids"):
        anonymous.distinct("case")
    assert rows_of(anonymous.distinct()) == Counter([("a",)])


def test_records_with_two_owners_are_rejected() -> None:
    mail = pa.table({"sender": ["a"], "receiver": ["b"], "case": ["x"]})
    with refuses("distinct", "several owners"):
        dg.read(mail, user=["sender", "receiver"]).distinct("case")


def test_region_is_one_of_the_columns_or_first(effort: Effort) -> None:
    rng = np.random.default_rng(13)
    day = "2025-01-01"
    with refuses("where", "before distinct", "'day'", "call where(day=…).distinct('case') or"):
        table(random_rows(rng, 3)).distinct("case").where(day=day)
    named = dg.read(pa.table({"who": [1], "case": ["a"], "a b": [1]}), user="who")
    with refuses("where", "call where({'a b': …}).distinct('case') or"):
        named.distinct("case").where({"a b": 1})
    for _ in effort.some(range(10)):
        rows = table(random_rows(rng, 40))
        for columns in ("*", ["case", "day"]):
            before = rows.where(day=day).distinct(columns)
            after = rows.distinct(columns).where(day=day)
            assert before.scope == after.scope
            assert rows_of(before) == rows_of(after)


def test_a_region_never_reads_a_row_outside_of_it() -> None:
    """A long text is compared in its original form, and not as its label."""
    long = "a" * 5000
    rows = pa.table({"who": [1, 1, 2], "case": [long, long, "b"]})
    found = dg.read(rows, user="who").distinct("case").where(case=[long])
    assert rows_of(found) == Counter([(1, long)])


def test_other_columns_and_rows_per_user_follow() -> None:
    rows = [(1, "a", dt.date(2025, 1, 1), 4.0, ""), (1, "a", dt.date(2025, 1, 1), 4.0, ""),
            (1, "b", dt.date(2025, 2, 1), 2.0, "")]  # fmt: skip
    distinct = table(rows).distinct("case")
    assert rows_of(distinct.derive(twice="x * 2").filter("twice > 4")).total() == 1
    people = distinct.per_user(n="count()", spent="total(x)")
    assert rows_of(people) == Counter([(1, 2, 6.0)])
    assert rows_of(table(rows).distinct("month(day)")).total() == 2


def test_the_guarantee_and_stored_queries_state_it() -> None:
    rows = table([(1, "a", dt.date(2025, 1, 1), 1.0, "")])
    options: dict[str, Any] = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6}
    queries = [dg.count.query(each, **options) for each in
               (rows, rows.distinct(), rows.distinct("case"))]  # fmt: skip
    texts = [str(query.plan.guarantee) for query in queries]
    assert "rows that are equal in all columns are used once" in texts[1]
    assert "only the first of a person's rows with the same 'case' is used" in texts[2]
    assert len({str(query.to_dict()) for query in queries}) == 3
