"""Rows are joined with public data about them, or with the same person's rows, and nothing else."""

from __future__ import annotations

import datetime as dt
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.effort import Effort
from tests.refusals import refuses
from tests.tables.engines.cluster import Cluster
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.errors import ParameterError, SchemaError

ENGINES = ("duckdb", InMemory)
USER: dict[str, Any] = {"unit": dg.User(), "epsilon": 1e6, "delta": 1e-6, "random_state": 0}
AREAS = pa.table(
    {
        "zip": ["8001", "8400", "1200", None],
        "canton": ["ZH", "ZH", "GE", "none"],
        "heads": [5, 6, 7, 8],
        "wide": [0.5, 1.5, 2.5, 9.0],
    }
)


def rows_of(table: dg.UserTable) -> list[tuple[Any, ...]]:
    with table.open_engine() as engine:
        found = engine.columns([(name, "as it is") for name in table.schema])
    rows = [
        tuple(value.hex() if isinstance(value, float) else value for value in row.values())
        for row in found.to_pylist()
    ]
    return sorted(rows, key=repr)


def of_people(rows: list[tuple[Any, ...]]) -> dict[Any, list[tuple[Any, ...]]]:
    held: dict[Any, list[tuple[Any, ...]]] = {}
    for who, *rest in rows:
        held.setdefault(who, []).append(tuple(rest))
    return held


def visits(engine: Any = "duckdb", **columns: Any) -> dg.UserTable:
    table = {
        "who": [1, 1, 2, 3, None, 4],
        "zip": ["8001", "1200", "8001", "99", "8400", None],
        "cost": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        "day": [dt.date(2025, 1, 1 + place // 3) for place in range(6)],
    }
    return dg.read(pa.table({**table, **columns}), user="who", engine=engine)


def persons(**options: Any) -> dg.UserTable:
    table = {"id": [2, 1, 1, 9], "born": [1980, 1950, 1940, 2000], "name": ["c", "a", "b", "d"]}
    return dg.read(pa.table(table), user="id", **options)


@pytest.mark.parametrize("engine", [*ENGINES, Cluster()], ids=["duckdb", "in_memory", "cluster"])
def test_public_columns_are_found_by_their_key(engine: Any) -> None:
    table = visits(engine).join_public(AREAS, on="zip")
    assert list(table.schema)[-3:] == ["canton", "heads", "wide"]
    found = dg.count(table, by="canton", clip=1e4, **USER)
    # Its values are the domain, because all of the table is public.
    assert found.items.to_pylist() == ["GE", "ZH"]
    assert [round(n) for n in found.estimate] == [1, 2]
    total = dg.sum(table.filter("heads > 5"), "wide", clip=1e4, bounds=(0, 10), **USER)
    assert total.value == pytest.approx(2.5, abs=0.1)


@pytest.mark.parametrize("engine", ENGINES)
def test_unmatched_row_stays_and_no_row_is_repeated(engine: Any) -> None:
    frame = visits().source.table.to_pandas()  # type: ignore[attr-defined]
    table = visits(engine).join_public(AREAS, on="zip")
    expected = frame.merge(AREAS.to_pandas().dropna(), on="zip", how="left")
    assert len(rows_of(table)) == len(frame)
    told = sorted((row[-3] or "", row[2]) for row in rows_of(table))
    assert told == sorted(
        (canton if isinstance(canton, str) else "", float(cost).hex())
        for canton, cost in zip(expected["canton"], expected["cost"], strict=True)
    )


@pytest.mark.parametrize(
    ("own", "public", "matches"),
    [
        (["8001", "07"], [8001, 7], 1),
        ([8001, 7], ["8001", "x"], 1),
        ([8001, 7], pa.array([8001, 7], pa.int16()), 2),
        ([dt.date(2025, 1, 1)] * 2, ["2025-01-01", "x"], 2),
        (["x" * 70_000, "b"], ["x" * 70_000, "b"], 1),
        (["a", "b"], pa.array(["a", "b"]).dictionary_encode(), 2),
        ([True, False], ["true", "false"], 2),
    ],
    ids=["texts of numbers", "numbers of texts", "widths", "days", "long", "categories", "truths"],
)
def test_keys_match_by_value(own: Any, public: Any, matches: int) -> None:
    rows = dg.read(pa.table({"who": [1, 2], "key": own}), user="who")
    table = rows.join_public(pa.table({"key": public, "is": ["a", "b"]}), on="key")
    assert sum(row[-1] is not None for row in rows_of(table)) == matches


def test_public_file_is_text_unless_types_are_declared(tmp_path: Path) -> None:
    path = tmp_path / "areas.csv"
    path.write_text("plz,canton,heads\n8001,ZH,5\n1200,GE,7\n")
    table = visits().join_public(path, on=("zip", "plz"))
    assert table.schema["heads"] == "VARCHAR"
    typed = dg.read(path, types={"heads": "BIGINT"})
    table = visits().join_public(typed, on=("zip", "plz"))
    assert table.schema["heads"] == "BIGINT"
    # A key may be derived from its columns.
    short = pa.table({"first": ["8", "1"], "side": ["east", "west"]})
    table = visits().join_public(short, on=("prefix(zip, 1)", "first"))
    found = dg.count(table, by="side", clip=1e4, **USER)
    assert [round(n) for n in found.estimate] == [2, 1]


def test_public_column_is_a_partition_by_its_values() -> None:
    """Two tables of one name make two partitions, and the order of their rows none."""
    promise: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "unit": dg.Element("canton")}
    rules = [
        dg.count(visits().join_public(areas, on="zip"), by="canton", **promise).guarantee
        for areas in (
            AREAS,
            AREAS.take([2, 1, 0]),
            AREAS.set_column(1, "canton", pa.array(["ZH", "GE", "GE", "none"])),
        )
    ]
    parts = [rule.partition for rule in rules]
    assert parts[0] == parts[1] != parts[2]
    assert parts[0] is not None
    assert parts[0].rules[0].column == "zip"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("pairs", [1, 2, 5])
def test_person_rows_are_paired_only_with_own_rows(engine: Any, pairs: int) -> None:
    table = visits(engine).join(persons(), pairs=pairs)
    found: dict[Any, list[Any]] = {}
    for who, *rest in rows_of(table):
        found.setdefault((who, rest[0]), []).append(rest[3:])
    older, younger = [1940, "b"], [1950, "a"]
    assert found[1, "8001"] == found[1, "1200"]
    # From a single one, the first in hash order: the same on every engine.
    assert found[1, "8001"] == [younger] if pairs == 1 else [older, younger]
    assert found[2, "8001"] == [[1980, "c"]]
    # Users in only one table have no value in the other; rows without a user have no owner.
    assert found[3, "99"] == found[4, None] == found[None, "8400"] == [[None, None]]
    assert len(rows_of(table)) == (6 if pairs == 1 else 8)


ODD = [None, 0.0, -0.0, math.nan, math.inf, -math.inf, 1e300, 0.1, 1.0]


def drawn(rng: np.random.Generator, people: int, most: int) -> pd.DataFrame:
    count = int(rng.integers(1, people * most))
    return pd.DataFrame(
        {
            "who": rng.integers(0, people, count),
            "x": [ODD[place] for place in rng.integers(0, len(ODD), count)],
            "t": [["a", "A", None, "b" * 3000, ""][place] for place in rng.integers(0, 5, count)],
        }
    )


def tables(
    left: pd.DataFrame, right: pd.DataFrame, **options: Any
) -> tuple[dg.UserTable, dg.UserTable]:
    right = right.rename(columns={"who": "id", "x": "y", "t": "u"})
    schema = [("who", pa.int64()), ("x", pa.float64()), ("t", pa.string())]
    named = [("id", pa.int64()), ("y", pa.float64()), ("u", pa.string())]
    one = dg.read(pa.Table.from_pandas(left, pa.schema(schema)), user="who", **options)
    other = dg.read(pa.Table.from_pandas(right, pa.schema(named)), user="id", **options)
    return one, other


def bits(left: pd.DataFrame, right: pd.DataFrame, pairs: int, **options: Any) -> dict[Any, Any]:
    one, other = tables(left, right, **options)
    joined = one.join(other, pairs=pairs)
    features = joined.per_user(
        n="count()", s="total(x, y = 1)", u="first(u, y)", m="most(y)", k="count(known(u))"
    )
    return {"rows": of_people(rows_of(joined)), "people": of_people(rows_of(features))}


def test_rows_of_others_do_not_move_by_a_bit(effort: Effort) -> None:
    """Whatever one person has in either table, and whatever the order of reading."""
    rng = np.random.default_rng(0)
    for _ in effort.some(range(effort.number(20, 40))):
        left, right = (drawn(rng, 6, most) for most in (3, 9))
        pairs = int(rng.integers(1, 5))
        whole = bits(left, right, pairs)
        gone = int(rng.integers(0, 6))
        new = drawn(rng, 1, 20).assign(who=gone)
        for kept in ((left[left["who"] != gone], right), (left, right[right["who"] != gone]),
                     (pd.concat([left, new]), right), (left, pd.concat([new, right]))):  # fmt: skip
            seed = int(rng.integers(0, 1000))
            engine = ENGINES[seed % 2]
            one, other = (part.sample(frac=1, random_state=seed) for part in kept)
            found = bits(
                one, other,
                pairs, engine=engine, threads=1 + seed % 3,
            )  # fmt: skip
            for kind, held in whole.items():
                others = {who: rows for who, rows in held.items() if who != gone}
                assert {who: r for who, r in found[kind].items() if who != gone} == others


@pytest.mark.slow
def test_paired_rows_protect_only_whole_users() -> None:
    promise: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
    joined = visits().join(persons())
    made = [
        joined,
        joined.derive(old="born < 1960"),
        joined.filter("born < 1960"),
        joined.join_public(AREAS, on="zip"),
        joined.per_user(n="count()"),
        joined.per_user(by="day", n="count()"),
        visits().per_user(zip="most(zip)").join_public(AREAS, on="zip"),
    ]
    for table in made:
        for unit in (dg.Record(), dg.Element("zip"), dg.Element("day"), dg.User(2, by="zip")):
            with refuses("unit", "User"):
                dg.count(table.with_expressions(), unit=unit, **promise)
        guarantee = dg.count(table, unit=dg.User(), **promise).guarantee
        assert guarantee.level == "user"
        with refuses("where", "per_user"):
            table.where(zip="8001")
    said = str(dg.count(joined, unit=dg.User(), **promise).guarantee)
    assert "are paired with one row of the same person in" in said


def test_row_derived_in_one_cell_may_have_elements() -> None:
    """Each row of a person is derived from one day, so a day changes only its rows."""
    promise: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "bounds": (0, 10)}
    days = visits().per_user(by="day", spent="total(cost)", n="count()")
    of_records = dg.count(visits(), by="day", unit=dg.Element("day"), epsilon=1, delta=1e-6)
    for table in (days, days.derive(each="spent / n"), days.filter("n > 0"),
                  days.per_user(by="day", spent="max(spent)")):  # fmt: skip
        found = dg.sum(table, "spent", unit=dg.Element("day"), **promise)
        # It is the same partition of the same data to a ledger.
        assert found.guarantee.partition == of_records.guarantee.partition
    months = visits().per_user(by="month(day)", spent="total(cost)")
    found = dg.sum(months, "spent", unit=dg.Element("month(day)"), **promise)
    assert found.guarantee.partition is not None
    for table, unit in (
        (days, dg.Element("n")),
        (days.per_user(spent="total(spent)"), dg.Element("day")),
        (days.per_user(by="n", day="most(day)"), dg.Element("day")),
        (days, dg.Element(lambda day: day)),
        (days.join(persons()), dg.Element("day")),
    ):
        with refuses("unit", "User"):
            dg.count(table, unit=unit, epsilon=1, delta=1e-6)


def test_regions_stay_if_both_tables_have_them() -> None:
    left = visits().where(day=("2025-01-01", "2025-01-01"))
    other = dg.read(
        pa.table({"id": [1, 2], "day": [dt.date(2025, 1, 1)] * 2, "born": [1950, 1980]}), user="id"
    )
    both = left.join(other.where(day=("2025-01-01", "2025-01-01")), columns=["born"])
    assert both.scope == left.scope
    assert left.join(other, columns="born").scope.everything
    people = both.per_user(n="count()")
    for table in (both, both.derive(old="born < 1960"), both.join_public(AREAS, on="zip"),
                  people, people.derive(m="n + 1")):  # fmt: skip
        assert table.scope == left.scope
        assert rows_of(table)
    people = left.per_user(zip="most(zip)").join_public(AREAS, on="zip")
    assert people.scope == left.scope
    assert {row[0] for row in rows_of(people)} == {1, 2}


def test_provenance_covers_both_tables() -> None:
    given, table = visits(), dg.read(pa.table({"a": [1]}))
    assert given.provenance == table.provenance == "as given"
    joined = given.join(persons())
    assert joined.provenance == "as given"
    said = str(dg.count(joined, unit=dg.User(), epsilon=1.0, delta=1e-6).guarantee)
    assert "a query, frame or array that dpgrain did not build" in said


def test_files_retain_provenance_but_a_passed_table_removes_it(tmp_path: Path) -> None:
    frames = {"visits": visits(), "persons": persons()}
    for name, table in frames.items():
        pq.write_table(table.source.table, tmp_path / f"{name}.parquet")  # type: ignore[attr-defined]
    one = dg.read(tmp_path / "visits.parquet", user="who")
    other = dg.read(tmp_path / "persons.parquet", user="id")
    assert one.join(other).provenance == "checked"
    assert one.join(persons()).provenance == visits().join(other).provenance == "as given"
    assert one.join_public(AREAS, on="zip").provenance == "checked"
    assert rows_of(one.join(other)) == rows_of(visits().join(persons()))


def test_tables_of_people_are_joined_with_one_another() -> None:
    left = visits().per_user(n="count()")
    right = visits().per_user(spent="total(cost)")
    assert rows_of(left.join(right)) == [
        (1, 2, (3.0).hex()), (2, 1, (3.0).hex()), (3, 1, (4.0).hex()), (4, 1, (6.0).hex()),
    ]  # fmt: skip
    again = left.join(right).join(visits().derive(place="zip"), columns=["place"], pairs=3)
    assert [row[0] for row in rows_of(again)] == [1, 1, 2, 3, 4]
    found = dg.mean(left.join(right), "spent", bounds=(0, 10), **USER)
    assert found.value == pytest.approx(4.0, abs=1e-2)


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (lambda v, p: v.join(AREAS), ParameterError, "join_public"),
    (lambda v, p: v.join(dg.read(AREAS)), ParameterError, "user="),
    (lambda v, p: v.join(p, pairs=0), ParameterError, "pairs"),
    (lambda v, p: v.join(p, columns=["age"]), SchemaError, "'age'"),
    (lambda v, p: v.join(p, columns=["id"]), SchemaError, "'id'"),
    (lambda v, p: v.join(p, columns=[]), ParameterError, "at least one column"),
    (lambda v, p: v.join(v), ParameterError, "'zip'"),
    (lambda v, p: v.join(p.derive(ZIP="born"), columns="ZIP"), ParameterError, "'ZIP'"),
    (
        lambda v, p: v.join(dg.read(pa.table({"id": ["1"], "b": [1]}), user="id")),
        SchemaError,
        "cast",
    ),
    (lambda v, p: v.join_public(p, on="zip"), ParameterError, "public"),
    (lambda v, p: v.join_public(AREAS, on="canton"), SchemaError, "'canton'"),
    (lambda v, p: v.join_public(AREAS, on=("zip", "plz")), SchemaError, "'plz'"),
    (lambda v, p: v.join_public(AREAS, on=3), ParameterError, "on must be"),
    (
        lambda v, p: v.with_cells("side", of="zip", by={"8001": "e"}).join_public(
            pa.table({"side": ["e"], "v": [1]}), on="side"
        ),
        SchemaError,
        "column of cells",
    ),
    (lambda v, p: v.join(p, pairs=1001), ParameterError, "at most 1,000"),
    (lambda v, p: v.join_public(AREAS.select(["zip"]), on="zip"), ParameterError, "no column"),
    (
        lambda v, p: v.join_public(pa.table({"zip": ["1", "2", "1"], "a": [1, 2, 3]}), on="zip"),
        ParameterError,
        "'1' occurs twice",
    ),
    (lambda v, p: v.join_public(pa.table({"zip": [1.5], "a": [1]}), on="zip"), SchemaError, "zip"),
    (
        lambda v, p: v.join_public(pa.table({"day": [1], "a": [1]}), on="day"),
        SchemaError,
        "cast one",
    ),
    (
        lambda v, p: v.join_public(pa.table({"zip": ["1"], "Cost": [1]}), on="zip"),
        ParameterError,
        "'Cost'",
    ),
]


@pytest.mark.parametrize(("made", "error", "word"), REFUSED)
def test_impossible_joins_raise_a_clear_error(made: Any, error: type[Exception], word: str) -> None:
    with pytest.raises(error) as raised:
        made(visits(), persons())
    assert word in str(raised.value)
    assert str(raised.value).count("\n") == 0


@pytest.mark.slow
def test_a_cluster_joins_as_one_machine_does() -> None:
    """The same integers: for joins, derived columns, and tables of people."""
    rng = np.random.default_rng(4)
    left, right = drawn(rng, 40, 12), drawn(rng, 40, 6)
    found = []
    for engine in ("duckdb", Cluster()):
        one, other = tables(left, right, engine=engine)
        joined = one.join(other.derive(z="length(u)"), pairs=2)
        made = [
            joined,
            joined.derive(w="least(greatest(x, y), 2)").filter("known(w)"),
            joined.join_public(pa.table({"u": ["a", "A"], "w": [1.0, 0.5]}), on="u"),
            joined.per_user(w="mean(y, x = 1)", n="count()"),
            one.per_user(n="count()", w="max(x)").join(other.per_user(m="most(u)"), columns=["m"]),
        ]
        asked: dict[str, Any] = {"bounds": (-2, 2), "clip": 9.0, **USER, "random_state": 1}
        found.append(
            [dg.sum(table, "w" if "w" in table.schema else "y", **asked).value for table in made]
        )
    assert found[0] == found[1]
    assert len(set(found[0])) == len(found[0])
    with pytest.raises(ParameterError, match="both tables in the same engine"):
        visits(Cluster()).join(persons())


def test_cluster_finds_cells_in_its_tasks() -> None:
    """Tables on both sides of a join, and on top of people, use one name for two columns."""
    found = []
    for engine in ("duckdb", Cluster()):
        rows = visits(engine)
        areas = rows.with_cells("part", of="zip", by={"8001": "a", "1200": "a", "99": "b"})
        costs = rows.with_cells("part", of="who", by={1: "x", 2: "y", 3: "z"})
        paid = costs.per_user(by="part", total="total(cost)")
        people = areas.per_user(by="part", visits="count()").join(paid, columns=["total"])
        public = pa.table({"part": ["a", "b"], "level": [1, 2]})
        told = areas.per_user(by="part", visits="count()").join_public(public, on="part")
        found.append((rows_of(people), rows_of(told)))
    assert found[0] == found[1]
    assert found[0][0][0] == (1, "a", 2, (3.0).hex())
    assert found[0][1][0] == (1, "a", 2, 1)


def test_cells_of_the_first_table_stay() -> None:
    table = visits().with_cells("side", of="zip", by={"8001": "east", "1200": "west"})
    found = dg.count(table.join(persons()), by="side", domain=["east", "west"], clip=1e4, **USER)
    assert [round(n) for n in found.estimate] == [2, 1]


def test_rows_without_value_are_a_cell_in_every_region() -> None:
    """A key missing from the public table, and a division by 0, are inside a region of the data."""
    rows = dg.read(pa.table({"who": [1, 1], "item": ["a", "b"], "n": [0, 80]}), user="who")
    public = pa.table({"item": ["a"], "pub": ["A"]})
    promise: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "clip": 1.0, "noise": "gaussian"}
    for table in (
        rows.where(item=["a", "b"]).join_public(public, on="item"),
        rows.join_public(public, on="item").where(item=["a", "b"]),
        rows.where(n=(0, 80)).derive(pub="bins(4 / n, 0.5)"),
    ):
        whole = dg.count(table, unit=dg.Element("pub"), **promise).guarantee
        assert whole.partition is not None
        least = 3 if "bins" in whole.elements else 2
        assert (whole.partition.cells_in(table.scope) or math.inf) >= least
        assert whole.epsilon(unit=dg.User()) > 1.5
        cells = table.with_cells("cell", of="pub", by={"A": "x", "below 0.5": "y"})
        cells_of = dg.count(cells, unit=dg.Element("cell"), **promise).guarantee
        assert cells_of.epsilon(unit=dg.User()) > 1.5


def test_public_days_are_not_days_of_the_data() -> None:
    """With two public tables the same records would be in disjoint regions."""
    public = pa.table({"zip": ["8001"], "at": [dt.datetime(2026, 1, 1)]})
    table = visits().join_public(public, on="zip")
    with pytest.raises(SchemaError, match="must be a column of the data"):
        table.with_days("day2", of="at")
    months = table.derive(month="month(at)")
    found = dg.count(months, by="month", unit=dg.Element("month"), epsilon=1.0, delta=1e-6)
    assert found.guarantee.partition is not None
    assert found.guarantee.partition.rules[0].kind == "stated"


@pytest.mark.slow
def test_one_person_with_many_rows_ends_nothing() -> None:
    """More than the memory, in the other table; and one spread over many people."""
    count, size = 60_000, 2000
    raw = np.random.default_rng(0).integers(97, 122, count * size, dtype=np.uint8)
    ends = pa.py_buffer((np.arange(count + 1) * size).astype(np.int32))
    texts = pa.StringArray.from_buffers(count, ends, pa.py_buffer(raw.tobytes()))
    options: dict[str, Any] = {"memory": "256MB", "threads": 1}
    one = dg.read(pa.table({"who": [7, 8, 9]}), user="who", **options)
    for who, pairs in ((np.full(count, 7), 1), (np.full(count, 7), 1000), (np.arange(count), 1)):
        rows = pa.table({"id": who, "y": np.arange(count) / count, "text": texts})
        joined = one.join(dg.read(rows, user="id", **options), pairs=pairs)
        found = dg.count(joined, "y", clip=1e4, **USER)
        assert round(found.value) == (pairs if who[0] == 7 else 3)


def test_one_public_table_may_be_on_both_sides() -> None:
    for engine in ENGINES:
        table = visits(engine).join_public(AREAS, on="zip")
        both = table.join(table.per_user(k="count(wide > 1)"), columns=["k"])
        assert len(rows_of(both)) == 6
        found = dg.count(both, by=["canton", "k"], domain={"k": [0, 1]}, **USER)
        assert len(found) == 4


def test_public_days_beyond_all_years_end_nothing() -> None:
    far = pa.table({"zip": ["8001", "1200"], "day2": pa.array([2**30, 0], pa.date32())})
    table = visits().join_public(far, on="zip")
    found = dg.count(table, by="day2", domain=[dt.date(1970, 1, 1)], clip=1e4, **USER)
    assert [round(n) for n in found.estimate] == [1]


def test_people_named_by_days_join_with_people_tables() -> None:
    days = pa.table({"who": [dt.date(2025, 1, 1), dt.date(2025, 1, 2)], "x": [1.0, 2.0]})
    table = dg.read(days, user="who")
    assert [row[-1] for row in rows_of(table.join(table.per_user(n="count()")))] == [1, 1]


def test_equal_rows_are_counted_separately() -> None:
    alike = pa.table({"id": [1] * 6, "y": [0.0, -0.0, 0.0, None, None, math.nan]})
    other = dg.read(alike, user="id")
    for pairs, rows in ((1, 2), (4, 8), (6, 12), (9, 12)):
        held = [row for row in rows_of(visits().join(other, pairs=pairs)) if row[0] == 1]
        assert len(held) == rows
    every = sorted(repr(row[-1]) for row in held if row[1] == "8001")
    assert every == sorted(map(repr, ["0x0.0p+0"] * 2 + ["-0x0.0p+0", "nan", None, None]))


@pytest.mark.slow
def test_pairs_of_many_people_are_found_in_little_memory() -> None:
    """Row counts are not stored for each person, whether or not they have this number."""
    who = np.arange(4_000) % 2_000
    table = dg.read(
        pa.table({"who": who, "t": [f"item {i % 7}" for i in range(4_000)]}),
        user="who",
        memory="256MB",
        threads=2,
    )
    joined = table.per_user(n="count()").join(table, columns=["t"], pairs=1000)
    with joined.open_engine() as engine:
        found = engine.columns([("who", "key")]).column(0).to_numpy()
    assert np.array_equal(np.bincount(found), np.full(2_000, 2))
