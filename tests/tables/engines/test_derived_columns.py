"""Derived columns, and filtered rows: engines, regions, partitions and people."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.refusals import refuses
from tests.tables.engines.cluster import Cluster
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.releases.table_queries import mean_of_columns
from dpgrain.scope.partitions import Partition, Rule
from dpgrain.tables.engines.derived_columns import CompiledExpression
from dpgrain.tables.table import UserTable

UTC = dt.UTC
USER: dict[str, Any] = {"unit": dg.User(), "epsilon": 1e6, "delta": 1e-6, "random_state": 1}


def visits(count: int = 400) -> pa.Table:
    rng = np.random.default_rng(0)
    at = [
        dt.datetime(2025, 1, 1) + dt.timedelta(hours=int(h)) for h in rng.integers(0, 4000, count)
    ]
    return pa.table(
        {
            "who": rng.integers(0, 60, count),
            "at": pa.array(
                [None if k % 50 == 7 else t for k, t in enumerate(at)], pa.timestamp("us")
            ),
            "moment": pa.array([t.replace(tzinfo=UTC) for t in at], pa.timestamp("us", tz="UTC")),
            "day": pa.array([t.date() for t in at]),
            "paid": pa.array([float("inf") if k % 40 == 3 else k / 7 for k in range(count)]),
            "kind": pa.array(["er", "GP", None, "Er "] * (count // 4)),
        }
    )


def counts(table: UserTable, by: str, **asked: Any) -> dict[Any, int]:
    found = dg.count(table, by=by, clip=1e4, **{**USER, **asked})
    return {
        key: round(count)
        for key, count in zip(found.items.to_pylist(), found.estimate, strict=True)
        if round(count)
    }


@pytest.mark.parametrize(
    "engine", ["duckdb", InMemory, Cluster()], ids=["duckdb", "in_memory", "cluster"]
)
@pytest.mark.parametrize("as_file", [False, True])
def test_engines_read_the_same_columns(engine: Any, as_file: bool, tmp_path: Path) -> None:
    rows: Any = visits()
    frame = rows.to_pandas()
    if as_file and isinstance(engine, Cluster):
        pytest.skip("files are read by Spark itself, which tests of Spark ask for")
    if as_file:
        rows = tmp_path / "visits.parquet"
        pq.write_table(visits(), rows)
    table = dg.read(rows, user="who", engine=engine)
    made = table.derive(
        month="month(at)", local="hour(moment, 'Asia/Tokyo')", band="bins(paid, 10, 30)"
    ).derive({"kind of": "coalesce(trim(lower(kind)), 'none')"})
    months = frame["at"].dt.to_period("M").dt.start_time.dt.date.astype(str).value_counts()
    expected = {key: int(count) for key, count in months.items() if key != "NaT"}
    assert counts(made, "month", domain=sorted(expected)) == expected
    hours = frame["moment"].dt.tz_convert("Asia/Tokyo").dt.hour.value_counts()
    assert counts(made, "local") == hours.to_dict()
    paid = frame["paid"]
    assert counts(made, "band") == {
        "below 10": int((paid < 10).sum()),
        "10 to 30": int(((paid >= 10) & (paid < 30)).sum()),
        "30 and above": int(((paid >= 30) & np.isfinite(paid)).sum()),
    }
    kinds = {"er": 200, "gp": 100, "none": 100}
    assert counts(made, "kind of", domain=[*kinds, "x"]) == kinds
    kept = made.filter("band = '10 to 30' and known(at)")
    inside = (paid >= 10) & (paid < 30) & frame["at"].notna()
    assert counts(kept, "kind of", domain=list(kinds)) == {
        name: int((inside & (frame["kind"].fillna("none").str.strip().str.lower() == name)).sum())
        for name in kinds
    }
    total = dg.sum(
        kept.derive(cents="round(paid * 100)"), "cents", clip=1e3, bounds=(0, 5000), **USER
    )
    assert total.value == pytest.approx((paid[inside] * 100).round().sum(), rel=1e-3)


def test_expressions_are_accepted_instead_of_column_names() -> None:
    table = dg.read(visits(), user="who").where(at="2025-01..2025-03")
    found = dg.count(table, by=["month(at)", "paid > 20"], clip=1e4, **USER)
    assert found.groups.names == ("month(at)", "paid > 20")
    assert len(found) == 6
    mean = dg.mean(table, "paid / 2", bounds=(0, 30), **USER)
    assert 5 < mean.value < 20
    of = dg.count(table, by="month(at)", **{**USER, "unit": dg.Element("month(at)")})
    assert "partition by month(at)" in str(of.guarantee)
    with pytest.raises(dg.SchemaError, match="is not a column"):
        dg.count(table, by="month", **USER)


@pytest.mark.parametrize(
    ("where", "text", "values"),
    [
        (
            {"day": ("2025-01-31", "2025-04-01")},
            "month(day)",
            [f"2025-0{m}-01" for m in range(1, 5)],
        ),
        ({"at": "2025"}, "quarter(at)", [f"2025-{m:02}-01" for m in (1, 4, 7, 10)]),
        (
            {"day": "2025-01"},
            "week(day)",
            ["2024-12-30", "2025-01-06", "2025-01-13", "2025-01-20", "2025-01-27"],
        ),
        ({"at": ("2024-12-31", "2025-01-01")}, "day(at)", ["2024-12-31", "2025-01-01"]),
        (
            {"moment": ("2024-12-31T23", "2024-12-31T23")},
            "month(moment, 'Asia/Tokyo')",
            ["2025-01-01"],
        ),
        ({"day": ("2023-12-31", "2025-01-01")}, "year(day)", [2023, 2024, 2025]),
    ],
)
def test_periods_of_a_region_are_its_domain(where: Any, text: str, values: Any) -> None:
    table = dg.read(visits(), user="who").where(where).derive(period=text)
    found = dg.count(table, by="period", **USER)
    assert found.items.to_pylist() == values
    assert f"the list of {len(values)} item" in str(found.guarantee)


def test_missing_domain_values_of_a_mapping_are_derived() -> None:
    table = dg.read(visits(), user="who").where(at="2025-01..2025-02")
    found = dg.count(table, by=["kind", "month(at)"], domain={"kind": ["er", "GP"]}, **USER)
    assert "the list of 4 items" in str(found.guarantee)
    assert found.to_arrow()["month(at)"].to_pylist()[:2] == ["2025-01-01", "2025-02-01"]


@pytest.mark.parametrize(
    "where", [{}, {"day": ("2025-01-31", None)}, {"day": ["2025-01-31", None]}, {"kind": "er"}]
)
def test_without_both_ends_names_are_selected(where: Any) -> None:
    table = dg.read(visits(), user="who").derive(month="month(day)")
    found = dg.count(table.where(where) if where else table, by="month", **USER)
    assert "the list of" not in str(found.guarantee)


def test_a_region_may_come_before_or_after() -> None:
    table = dg.read(visits(), user="who")
    before = table.where(day=("2025-02-01", "2025-03-31")).derive(big="paid > 20")
    after = table.derive(big="paid > 20").where(day=("2025-02-01", "2025-03-31"))
    assert before.scope == after.scope
    assert counts(before, "big") == counts(after, "big")
    with refuses("where", "use filter"):
        after.where(big=True)


def test_derived_column_may_be_a_cell_and_feature() -> None:
    table = dg.read(visits(), user="who").derive(hour="hour(at)")
    night = table.with_cells(
        "part", of="hour", by={h: "night" if h < 6 else "day" for h in range(24)}
    )
    hours = counts(table, "hour")
    assert counts(night, "part", domain=["night", "day"]) == {
        "night": sum(n for h, n in hours.items() if h < 6),
        "day": sum(n for h, n in hours.items() if h >= 6),
    }
    with pytest.raises(dg.SchemaError, match="uses 'part', which is not a column"):
        night.derive(x="part = 'night'")


def test_names_are_new() -> None:
    table = dg.read(visits(), user="who")
    for taken in ("paid", "PAID", ""):
        with refuses("name", "new column"):
            table.derive({taken: "paid > 1"})
    with pytest.raises(dg.ParameterError, match="derive requires a column"):
        table.derive()
    with pytest.raises(dg.SchemaError, match="true or false"):
        table.filter("paid + 1")


@pytest.mark.parametrize("condition", ['"kind" = "er"', "1 = 1", "true"])
def test_a_condition_without_a_column_is_rejected(condition: str) -> None:
    with pytest.raises(dg.ParameterError, match="must use a column; write column names without"):
        dg.read(visits(), user="who").filter(condition)


def test_partitions_agree_with_days() -> None:
    """A ledger distinguishes partitions by their definition, and not by name."""
    table = dg.read(visits(), user="who")
    dated = table.with_days("day2", of="at").with_cells(
        "m", of="day2", by=dg.Elements.from_period("month", missing="drop")
    )
    asked: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
    one = dg.count.query(dated, unit=dg.Element("m"), by="m", **asked).plan.guarantee
    two = dg.count.query(
        table, unit=dg.Element("month(at)"), by="month(at)", **asked
    ).plan.guarantee
    assert one.partition == two.partition == Partition((Rule("at", "month", read="TIMESTAMP"),))
    first, second = (
        dg.count.query(table.derive(m=text), unit=dg.Element("m"), by="m", **asked).plan.guarantee
        for text in ("lower(kind)", "upper(kind)")
    )
    assert first.partition != second.partition
    with pytest.raises(dg.ParameterError):
        first + second
    again = dg.count.query(table.derive(n="LOWER( kind )"), unit=dg.Element("n"), by="n", **asked)
    assert again.plan.guarantee.partition == first.partition


def test_origin_of_rows_is_stated() -> None:
    table = dg.read(visits(), user="who").derive(half="paid / 2").filter("known(at)")
    said = str(dg.mean(table, "half", bounds=(0, 30), **USER).guarantee)
    assert "the column 'half' is paid / 2; only rows where known(at) are used" in said
    people = (
        table.per_user(spent=("half", "sum"), n="count").derive(per="spent / n").filter("n > 2")
    )
    said = str(dg.mean(people, "per", bounds=(0, 30), **USER).guarantee)
    assert (
        "one row per person, with spent (sum of half), n (rows), per (spent / n), where n > 2"
        in said
    )
    assert "the column 'half' is paid / 2; only rows where known(at) are used" in said


def test_rows_of_people_keep_whole_users() -> None:
    table = dg.read(visits(), user="who", n_users=100)
    people = table.per_user(n="count").derive(many="n > 6")
    for unit in (dg.Record(), dg.Element("many")):
        with refuses("unit", "must be User()"):
            dg.count(people, by="many", **{**USER, "unit": unit})
    found = counts(people, "many")
    assert sum(found.values()) == len(set(visits()["who"].to_pylist()))
    # A user without rows counts 0, unless a condition may have removed the row.
    everyone = dg.mean(people, "n", bounds=(0, 50), **USER).value
    assert everyone == pytest.approx(4.0, rel=0.01)
    some = dg.mean(people.filter("n > 0"), "n", bounds=(0, 50), **USER).value
    assert some == pytest.approx(400 / sum(found.values()), rel=0.01)


def test_users_do_not_affect_rows_of_others() -> None:
    rows = visits()
    made = {"per": "spent / n", "rich": "spent > 100"}

    def people(of: pa.Table) -> dict[int, tuple[Any, ...]]:
        table = dg.read(of, user="who").filter("known(paid)").derive(pay="least(paid, 40)")
        whole = table.per_user(spent=("pay", "sum"), n="count").derive(made)
        with whole.open_engine() as engine:
            found = engine.columns([("who", "key"), ("per", "number"), ("rich", "key")])
        return {
            row[0]: row[1:] for row in zip(*(c.to_pylist() for c in found.columns), strict=True)
        }

    before = people(rows)
    for gone in (3, 17, 41):
        after = people(rows.filter(pa.compute.not_equal(rows["who"], gone)))
        assert {who: row for who, row in before.items() if str(who) != str(gone)} == after
    assert people(rows.take(np.random.default_rng(1).permutation(len(rows)))) == before


def test_cluster_people_equal_one_machine() -> None:
    found = [
        dg.mean(
            dg.read(visits(), user="who", engine=engine)
            .derive(pay="least(paid, 40)", month="month(at)")
            .filter("known(pay)")
            .per_user(by="month", spent=("pay", "sum"), n="count")
            .derive(per="spent / n")
            .filter("n > 1"),
            "per",
            by="month",
            domain=["2025-01-01", "2025-02-01"],
            bounds=(0, 40),
            **USER,
        ).estimate.tolist()
        for engine in ("duckdb", InMemory, Cluster())
    ]
    assert found[0] == found[1] == found[2]


def test_expression_is_sent_unchanged() -> None:
    import pickle

    made = CompiledExpression.parse("month(at)", {"at": "TIMESTAMP"})
    assert pickle.loads(pickle.dumps(made)) == made


def _twins() -> list[tuple[UserTable, UserTable, str]]:
    """Tables with a column of one name each, made in two ways."""
    rows = (
        visits(8)
        .append_column("xs", pa.array(["1.6"] * 8))
        .append_column("late", visits(8)["moment"])
    )
    period = dg.Elements.from_period("month")

    def read(**options: Any) -> UserTable:
        return dg.read(rows, user="who", **options)

    real, whole, comma = (
        read(types={"xs": kind}, decimal=mark)
        for kind, mark in (("DOUBLE", "."), ("BIGINT", "."), ("DOUBLE", ","))
    )
    days = [
        read().with_days("d", of=of, zone=zone)
        for of, zone in (("moment", "Europe/Paris"), ("late", "UTC"))
    ]
    made = [
        read().derive(d=f"day({of}, '{zone}')")
        for of, zone in (("moment", "Europe/Paris"), ("late", "UTC"))
    ]
    halves = [read().derive(a=text) for text in ("floor(paid)", "floor(paid / 2)")]
    named = {1: "u", 2: "v"}
    floors = [table.derive(a="floor(xs)").with_cells("c", "a", named) for table in (real, whole)]
    return [
        (halves[0].derive(c="a + 0"), halves[1].derive(c="a + 0"), "c"),
        (halves[0], halves[1], "a + 1"),
        (halves[0].with_cells("c", "a", named), halves[1].with_cells("c", "a", named), "c"),
        (days[0].derive(c="month(d)"), days[1].derive(c="month(d)"), "c"),
        (made[0].derive(c="month(d)"), days[1].derive(c="month(d)"), "c"),
        (days[0].derive(c="weekday(d)"), days[1].derive(c="weekday(d)"), "c"),
        (made[0].with_cells("c", "d", period), made[1].with_cells("c", "d", period), "c"),
        (real.derive(c="floor(xs)"), whole.derive(c="floor(xs)"), "c"),
        (real.derive(c="xs > 1"), comma.derive(c="xs > 1"), "c"),
        (floors[0], floors[1], "c"),
        (read().derive(c="quarter(at)"), read().derive(c="quarter(day)"), "c"),
    ]


@pytest.mark.parametrize("place", range(11))
def test_equal_names_with_two_definitions_are_two_partitions(place: int) -> None:
    first, second, name = _twins()[place]
    one, two = (
        dg.count.query(table, unit=dg.Element(name), epsilon=1, delta=1e-6).plan.guarantee
        for table in (first, second)
    )
    assert one.partition != two.partition
    with pytest.raises(dg.ParameterError):
        one + two


def test_equal_derivations_are_one_partition() -> None:
    table = dg.read(visits(8), user="who")
    pairs = [
        (table.derive(a="floor(paid)", c="a + 1"), table.derive(c="floor(paid) + 1")),
        (
            table.derive(d="day(moment, 'UTC')", c="month(d)"),
            table.derive(c="month(moment, 'UTC')"),
        ),
        (table.with_days("d", of="at").derive(c="month(d)"), table.derive(c="month(at)")),
    ]
    for first, second in pairs:
        one, two = (
            dg.count.query(of, unit=dg.Element("c"), epsilon=1, delta=1e-6).plan.guarantee
            for of in (first, second)
        )
        assert one.partition == two.partition


@pytest.mark.slow
def test_curator_sees_derived_columns(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("who,paid,kind\n1,3,er\n2,x,\n3,5,gp\n", encoding="utf-8")
    table = dg.read(tmp_path / "rows.csv", user="who", types={"paid": "DOUBLE"})
    made = table.derive(cents="paid * 100").filter("known(kind)")
    for of, value in ((made, "cents"), (table, "paid * 100")):
        counts = of.check_counts(value=value)
        # The unreadable price is counted as such, and missing in what is computed of it.
        assert counts[f"missing cells of '{value}' (dropped)"] == (of is table)
    beyond = table.check_counts(value=["paid", "paid / 2"], bounds=(0, 2))
    assert beyond["cells of 'paid' beyond the bounds (clamped)"] == 2
    assert beyond["cells of 'paid / 2' beyond the bounds (clamped)"] == 1
    assert table.check_counts("prefix(kind, 1)")["rows without an item (dropped)"] == 1


def test_expression_elements_are_counted_per_user() -> None:
    table = dg.read(visits(), user="who")
    held = dg.elements_per_user(table, edges=[1, 50], **{**USER, "unit": dg.Element("month(at)")})
    assert held.estimate[:3].round().sum() == len(set(visits()["who"].to_pylist()))
    assert "the partition by month(at)" in str(held.guarantee)


def test_means_of_users_state_their_rows() -> None:
    table = dg.read(visits(), user="who", n_users=100).derive(half="paid / 2").filter("known(half)")
    people = table.per_user(spent="total(half)", n="count()")
    for of, columns, said in (
        (
            table,
            ["half"],
            "the column 'half' is paid / 2; only rows where known(half) are used",
        ),
        (people, ["spent", "n"], "one row per person, with spent (total(half)), n (count())"),
    ):
        query = mean_of_columns.query(of, columns, bound=50.0, n_users=100, epsilon=1.0, delta=1e-6)
        assert said in str(query.plan.guarantee)


def test_names_with_spaces_are_put_in_backquotes() -> None:
    table = dg.read(pa.table({"who": [1], "paid in": [2.0], "member": [True]}), user="who")
    for ask in (
        lambda: table.filter("paid in > 1"),
        lambda: table.derive(half="paid in / 2"),
        lambda: dg.count(table, by="paid in > 1", unit=dg.User(), epsilon=1.0),
    ):
        with pytest.raises((dg.ParameterError, dg.SchemaError), match="in backquotes: `paid in`"):
            ask()
    table.filter("`paid in` > 1")
    with pytest.raises(dg.ParameterError) as caught:
        table.filter("member > > 1")
    assert "backquotes" not in str(caught.value)


def test_a_mean_of_a_truth_value_has_a_remedy() -> None:
    table = dg.read(pa.table({"who": [1, 2], "member": [True, False]}), user="who")
    options: dict[str, Any] = {"bounds": (0, 1), "unit": dg.User(), "epsilon": 50.0}
    with pytest.raises(dg.SchemaError, match=r"use the expression 'if\(member, 1, 0\)'"):
        dg.mean(table, "member", **options)
    assert 0 <= dg.mean(table, "if(member, 1, 0)", **options).value <= 1
