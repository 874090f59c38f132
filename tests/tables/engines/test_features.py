"""Features from all rows of one person, against pandas, and errors."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.effort import Effort
from tests.tables.engines.cluster import Cluster
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.errors import ParameterError, SchemaError
from dpgrain.inputs.long_labels import text_label
from dpgrain.tables.engines.features import Aggregate, Feature, parse_feature
from dpgrain.tables.engines.functions import AGGREGATES

KINDS = ["er", "gp", "ER", None, "", "x" * 70_000]
PAID = [0.0, -0.0, 1.5, 2.5, -3.0, 1e300, -1e300, math.nan, math.inf, None, 7.25]
DAYS = [dt.date(2025, 1, d) for d in (1, 2, 3, 9)] + [None]


def drawn(rng: np.random.Generator, users: int = 40) -> pd.DataFrame:
    """Rows of malformed values; few of several types, so that many tie."""
    who = rng.integers(0, users, 6 * users)
    size = len(who)

    def some(cells: list[Any]) -> list[Any]:
        return [cells[k] for k in rng.integers(len(cells), size=size)]

    return pd.DataFrame(
        {
            "who": who,
            "kind": pd.Series(some(KINDS), dtype=object),
            "paid": pd.Series(some(PAID), dtype=object),
            "n": rng.integers(-3, 4, size),
            "day": pd.Series(some(DAYS), dtype=object),
            "at": [
                dt.datetime(2025, 1, 1) + dt.timedelta(hours=int(h))
                for h in rng.integers(0, 9, size)
            ],
            "ok": pd.Series(some([True, False, None]), dtype=object),
        }
    )


def table_of(frame: pd.DataFrame, **options: Any) -> dg.UserTable:
    types = {
        "who": pa.int64(), "kind": pa.string(), "paid": pa.float64(), "n": pa.int64(),
        "day": pa.date32(), "at": pa.timestamp("us"), "ok": pa.bool_(),
    }  # fmt: skip
    columns = {name: pa.array(frame[name].tolist(), kind) for name, kind in types.items()}
    return dg.read(pa.table(columns), user="who", **options)


def made(table: dg.UserTable, asked: dict[str, Any]) -> dict[Any, dict[str, Any]]:
    people = table.per_user(**asked)
    with people.open_engine() as engine:
        found = engine.columns([(name, "as it is") for name in people.schema])
    rows = (dict(zip(people.schema, row.values(), strict=True)) for row in found.to_pylist())
    return {row.pop("who"): row for row in rows}


def numbers_in(values: pd.Series) -> list[float]:
    return [v + 0.0 for v in values if v is not None and math.isfinite(v)]


def labels_in(values: Any) -> list[Any]:
    texts = (v for v in values if v is not None and not (isinstance(v, str) and len(v) > 65_536))
    return [text_label(v) if isinstance(v, str) else v for v in texts]


def middle(values: list[Any]) -> Any:
    if not values:
        return None
    low, high = (sorted(values)[k] for k in ((len(values) - 1) // 2, len(values) // 2))
    return low if isinstance(low, dt.date) else low + (high - low) * 0.5


def commonest(values: list[Any]) -> Any:
    counts = pd.Series(values, dtype=object).value_counts()
    if not len(counts):
        return None
    ties: list[Any] = [value for value, count in counts.items() if count == counts.max()]
    return min(ties)


def at_end(pairs: list[tuple[Any, Any]], end: Any) -> Any:
    return end(pairs)[1] if pairs else None


def plain(mine: pd.DataFrame) -> dict[str, Any]:
    """The same features of one person's rows, by plain Python."""
    er = mine[[isinstance(k, str) and k.lower() == "er" for k in mine["kind"]]]
    paid, n = numbers_in(mine["paid"]), mine["n"].tolist()
    small = [min(max(p, -1e6), 1e6) for p in paid]
    kinds = [(at, k) for at, k in zip(mine["at"], mine["kind"], strict=True) if k in labels_in([k])]
    days = [d for d in mine["day"] if d is not None]
    return {
        "rows": len(mine),
        "of_er": len(er),
        "is_er": len(er) > 0,
        "all_ok": all(ok is True for ok in mine["ok"]),
        "sum_n": sum(n),
        "sum_er": sum(er["n"].tolist()),
        "mean_n": sum(n) / len(n),
        "sum_paid": math.fsum(small),
        "least": min(paid, default=None),
        "most_of": max(days, default=None),
        "mid": middle(paid),
        "mid_day": middle(days),
        "kinds": len(set(labels_in(mine["kind"]))),
        "home": commonest(labels_in(mine["kind"])),
        "home_n": commonest(n),
        "home_paid": commonest(paid),
        "begin": at_end(kinds, min),
        "end": at_end(kinds, max),
        "end_er": at_end(list(zip(er["at"], er["n"], strict=True)), max),
        "share": len(er) / len(mine),
        "big": (sum(n) > 2) or len(er) > 1,
    }


ASKED = {
    "rows": "count()",
    "of_er": "count(lower(kind) = 'er')",
    "is_er": "any(lower(kind) = 'er')",
    "all_ok": "all(ok)",
    "sum_n": "total(n)",
    "sum_er": "total(n, lower(kind) = 'er')",
    "mean_n": "mean(n)",
    "sum_paid": "total(least(greatest(paid, -1000000), 1000000))",
    "least": "min(paid)",
    "most_of": "max(day)",
    "mid": "median(paid)",
    "mid_day": "median(day)",
    "kinds": "distinct(kind)",
    "home": "most(kind)",
    "home_n": "most(n)",
    "home_paid": "most(paid)",
    "begin": "first(kind, at)",
    "end": "last(kind, at)",
    "end_er": "last(n, at, lower(kind) = 'er')",
    "share": "of_er / rows",
    "big": "total(n) > 2 or count(lower(kind) = 'er') > 1",
}


@pytest.mark.parametrize("engine", ["duckdb", InMemory])
def test_features_agree_with_plain_python(engine: Any) -> None:
    frame = drawn(np.random.default_rng(0), 200)
    found = made(table_of(frame, engine=engine), ASKED)
    assert found.keys() == set(frame["who"])
    for who, mine in frame.groupby("who"):
        expected = plain(mine)
        told = {name: found[who][name] for name in expected}
        assert told.pop("sum_paid") == pytest.approx(expected.pop("sum_paid"), rel=1e-12)
        assert told == expected, who
    assert sum(row["is_er"] for row in found.values()) > 20


@pytest.mark.slow
def test_order_and_others_do_not_affect_feature_bits() -> None:
    frame = drawn(np.random.default_rng(1))
    asked = {**ASKED, "sum_all": "total(paid)", "mean_all": "mean(paid)"}

    def bits(of: pd.DataFrame, **options: Any) -> dict[Any, Any]:
        rows = made(table_of(of, **options), asked)
        return {
            who: [v.hex() if isinstance(v, float) else v for v in row.values()]
            for who, row in rows.items()
        }

    whole = bits(frame)
    for seed in range(3):
        assert bits(frame.sample(frac=1, random_state=seed), threads=1 + seed) == whole
    for gone in (0, 7, 23):
        left = bits(frame[frame["who"] != gone], engine=InMemory)
        assert left == {who: row for who, row in whole.items() if who != gone}


@pytest.mark.slow
def test_cluster_people_equal_one_machine() -> None:
    frame = drawn(np.random.default_rng(5), 300)
    found = [
        dg.mean(
            table_of(frame, engine=engine).per_user(
                er="any(lower(kind) = 'er')", each="total(n, ok) / count()", home="most(kind)"
            ),
            "each",
            by=["er", "home"],
            domain={"er": [True, False], "home": ["er", "gp"]},
            bounds=(-3, 3),
            unit=dg.User(),
            epsilon=1.0,
            random_state=2,
        ).estimate.tolist()
        for engine in ("duckdb", Cluster())
    ]
    assert found[0] == found[1]


def any_feature(rng: np.random.Generator) -> str:
    """A random function of a person's rows."""
    of = ["n", "paid", "n * 2", "paid / n", "length(kind)", "if(ok, n, 0)", "year(day)"]
    conditions = ["ok", "n > 0", "known(paid)", "kind in ('er', 'gp')", "day >= '2025-01-02'"]
    name = str(rng.choice(sorted(AGGREGATES)))
    own = AGGREGATES[name]
    # Fractional numbers have no text that distinguishes different values.
    parts = [str(rng.choice(of[:1] if name == "distinct" else of)) for _ in range(own)]
    if own == 0 or rng.random() < 0.5:
        parts.append(str(rng.choice(conditions)))
    return f"{name}({', '.join(parts)})"


def test_random_features_depend_only_on_the_person(effort: Effort) -> None:
    """A person's features in a table equal those in a table of only this person's rows."""
    rng = np.random.default_rng(2)
    for _ in effort.some(range(16)):
        asked: dict[str, Any] = {}
        for place in range(8):
            one = any_feature(rng)
            asked[f"made{place}"] = asked[f"twice{place}"] = one
            if rng.random() < 0.5:
                asked[f"twice{place}"] = f"known({one}) and count() > 2"
        frame = drawn(rng, 6)
        together = made(table_of(frame), asked)
        for who, mine in frame.groupby("who"):
            # By its text, because NaN equals itself then.
            alone = made(table_of(mine.sample(frac=1, random_state=1)), asked)
            for name, text in asked.items():
                assert repr(alone[who][name]) == repr(together[who][name]), (text, who)


def test_features_document_their_columns() -> None:
    assert parse_feature("n", "count") == Feature("n", (Aggregate("n", "count"),))
    one = parse_feature("er", "any(kind = 'er')")
    assert one.numbers[0].where == "kind = 'er'"
    assert str(one.numbers[0]) == "er (any(kind = 'er'))"
    both = parse_feature("each", "total(paid, ok) / count() + x")
    assert [number.name for number in both.numbers] == ["total(paid, ok)", "count()"]
    assert str(both.expression) == "(`total(paid, ok)` / `count()`) + x"
    assert both.numbers[0].inputs == ["paid", "ok"]


@pytest.mark.parametrize(
    ("asked", "error", "word"),
    [
        ({"x": "total()"}, ParameterError, "1 arguments, and optionally a condition"),
        ({"x": "total(n, ok, ok)"}, ParameterError, "1 arguments, and optionally a condition"),
        ({"x": "any()"}, ParameterError, "must have a condition"),
        ({"x": "any(n)"}, SchemaError, "true or false"),
        ({"x": "count(n)"}, SchemaError, "true or false"),
        ({"x": "total(count())"}, ParameterError, "cannot contain another one"),
        ({"x": "total(kind)"}, SchemaError, "text"),
        ({"x": "first(kind, kind)"}, SchemaError, "text"),
        ({"x": "first(kind)"}, ParameterError, "2 arguments"),
        ({"x": "most(at)"}, SchemaError, "cannot be used as a key"),
        ({"x": "total(q)"}, SchemaError, "q"),
        ({"x": "count() + q"}, SchemaError, "uses 'q'"),
        ({"x": "n + 1"}, SchemaError, "uses 'n'"),
        ({"X": "count()", "x": "count()"}, ParameterError, "two columns"),
        ({"x": "count() +"}, ParameterError, "cannot be read"),
        ({"x": "count(*)"}, ParameterError, "expected a column or a constant"),
        ({"count()": "count() + 5"}, ParameterError, "two columns"),
        ({"count()": ("n", "sum"), "r": "total(n) / count()"}, ParameterError, "two columns"),
        ({"x": "count() + 1", "count()": "max(n)"}, ParameterError, "two columns"),
        ({"x": "count(q)"}, SchemaError, "'q' is not a column"),
    ],
)
def test_invalid_features_are_rejected(
    asked: dict[str, str], error: type[Exception], word: str
) -> None:
    table = table_of(drawn(np.random.default_rng(0), 3))
    with pytest.raises(error) as refused:
        table.per_user(**asked)
    assert word in str(refused.value)


def test_texts_may_differ_in_case_columns_have_any_name() -> None:
    rows = pa.table({"who": [1, 1, 2], "k": ["A", "a", "a"], "paid in": [1.0, 2.0, 4.0]})
    table = dg.read(rows, user="who")
    asked = {"big": "any(k = 'A')", "small": "any(k = 'a')", "each": "total(`paid in`) / count()"}
    found = made(table, {**asked, "both": "big and small"})
    told = {who: (row["big"], row["small"], row["both"], row["each"]) for who, row in found.items()}
    assert told == {1: (True, True, True, 1.5), 2: (False, True, False, 4.0)}
    with pytest.raises(ParameterError, match="two columns"):
        table.per_user(both="any(k = 'A') and any(k = 'a')")


def test_aggregate_function_is_rejected_for_one_row() -> None:
    with pytest.raises(ParameterError, match="use it in per_user"):
        table_of(drawn(np.random.default_rng(0), 3)).derive(x="total(n)")


@pytest.mark.slow
def test_features_are_counted_and_averaged() -> None:
    frame = drawn(np.random.default_rng(3), 300)
    people = table_of(frame, n_users=400).per_user(
        er="any(lower(kind) = 'er')", spent="total(n)", home="most(kind)", each="spent / count()"
    )
    asked: dict[str, Any] = {"unit": dg.User(), "epsilon": 1e6, "delta": 1e-6, "random_state": 1}
    expected = {who: plain(mine) for who, mine in frame.groupby("who")}
    by = dg.count(people, by="er", **asked)
    counts = dict(zip(by.items.to_pylist(), by.estimate.round().tolist(), strict=True))
    er = sum(row["is_er"] for row in expected.values())
    assert counts == {"false": len(expected) - er, "true": er}
    mean = dg.mean(people, "each", bounds=(-3, 3), **asked)
    truth = np.mean([row["sum_n"] / row["rows"] for row in expected.values()])
    assert mean.value == pytest.approx(truth, abs=1e-3)
    zero = dg.mean(people, "spent", bounds=(-30, 30), **asked).value
    assert zero == pytest.approx(sum(row["sum_n"] for row in expected.values()) / 400, abs=1e-2)
    assert "er (any(lower(kind) = 'er'))" in str(mean.guarantee)


def test_named_number_is_computed_once() -> None:
    table = table_of(drawn(np.random.default_rng(0), 5))
    people = table.per_user(
        spent="total(n)",
        rows="count()",
        each="total(n) / count()",
        er="total(n, ok) > total(n)",
    )
    assert list(people.schema) == ["who", "spent", "rows", "total(n, ok)", "each", "er"]
    assert "each (total(n) / count())" in str(people.source)
    plainly = table.per_user(each="total(n) / count()")
    assert list(plainly.schema) == ["who", "total(n)", "count()", "each"]
    each = {who: row["each"] for who, row in made(table, {"each": "total(n) / count()"}).items()}
    own = made(table, {"spent": "total(n)", "rows": "count()", "each": "total(n) / count()"})
    assert each == {who: row["each"] for who, row in own.items()}
