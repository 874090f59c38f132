"""Explicit regions: their rows by definition, in every source and engine."""

from __future__ import annotations

import datetime as dt
import itertools
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.refusals import refuses
from tests.tables.cases import one_sentence
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.scope.regions import DAY, EVERYTHING, LabelSet, Region, Side, Span, days

FIRST = dt.date(2026, 1, 1)
JANUARY = days("2026-01-01", "2026-01-31")
UTC = dt.UTC


def rows(number: int = 200) -> pa.Table:
    rng = np.random.default_rng(8)
    spans = rng.integers(0, 70, number)
    columns: dict[str, Any] = {
        "who": rng.integers(0, 9, number).tolist(),
        "day": [FIRST + dt.timedelta(days=int(span)) for span in spans],
        "time": [dt.datetime(2026, 1, 1) + dt.timedelta(hours=7 * int(span)) for span in spans],
        "moment": [
            dt.datetime(2026, 1, 1, tzinfo=UTC) + dt.timedelta(hours=7 * int(span))
            for span in spans
        ],
        "country": rng.choice(["FR", "DE", "fr", "7", ""], number).tolist(),
        "code": rng.integers(-3, 9, number).tolist(),
        "paid": rng.choice([True, False], number).tolist(),
    }
    for column, cells in list(columns.items())[1:]:
        for place in rng.choice(number, 9, replace=False):
            cells[place] = None
        columns[column] = cells
    columns["n"] = list(range(number))
    kinds = {"time": pa.timestamp("us"), "moment": pa.timestamp("us", "UTC"), "code": pa.int16()}
    return pa.table({name: pa.array(cells, kinds.get(name)) for name, cells in columns.items()})


TABLE = rows()
AT = dt.datetime(2026, 1, 9, 12)

# The condition, its side, and the rows inside by definition.
STATED: dict[str, tuple[dict[str, Any], Side, Callable[[dict[str, Any]], bool]]] = {
    "days": (
        {"day": ("2026-01-01", "2026-01-31")},
        Side("day", JANUARY),
        lambda row: row["day"] is not None and row["day"].month == 1,
    ),
    "days as text": (
        {"day": "2026-01-01..2026-01-31"},
        Side("day", JANUARY),
        lambda row: row["day"] is not None and row["day"].month == 1,
    ),
    "a month": (
        {"day": "2026-01"},
        Side("day", JANUARY),
        lambda row: row["day"] is not None and row["day"].month == 1,
    ),
    "dates": (
        {"day": (FIRST, np.datetime64("2026-01-31"))},
        Side("day", JANUARY),
        lambda row: row["day"] is not None and row["day"].month == 1,
    ),
    "a day": (
        {"day": "2026-01-09"},
        Side("day", days("2026-01-09", "2026-01-09")),
        lambda row: row["day"] == dt.date(2026, 1, 9),
    ),
    "from a day on": (
        {"day": ("2026-02-01", None)},
        Side("day", Span("date", JANUARY.high)),
        lambda row: row["day"] is not None and row["day"].month > 1,
    ),
    "no day": (
        {"day": None},
        Side("day", LabelSet(), missing=True, kind="DATE"),
        lambda row: row["day"] is None,
    ),
    "days or none": (
        {"day": [("2026-01-01", "2026-01-31"), None]},
        Side("day", JANUARY, missing=True),
        lambda row: row["day"] is None or row["day"].month == 1,
    ),
    "days of times": (
        {"time": ("2026-01-05", "2026-01-09")},
        Side("time", Span("time", *(end for end in (20458 * DAY, 20463 * DAY)))),
        lambda row: row["time"] is not None and 5 <= row["time"].day <= 9 and row["time"].month == 1,
    ),
    "hours": (
        {"time": ("2026-01-05T00", "2026-01-09 11")},
        Side("time", Span("time", 20458 * DAY, 20462 * DAY + DAY // 2)),
        lambda row: row["time"] is not None and dt.datetime(2026, 1, 5) <= row["time"] < AT,
    ),
    "a moment": (
        {"time": (None, AT)},
        Side("time", Span("time", None, 20462 * DAY + DAY // 2 + 1)),
        lambda row: row["time"] is not None and row["time"] <= AT,
    ),
    "moments of UTC": (
        {"moment": (None, "2026-01-08")},
        Side("moment", Span("instant", None, 20462 * DAY)),
        lambda row: row["moment"] is not None and row["moment"] < dt.datetime(2026, 1, 9, tzinfo=UTC),
    ),
    "moments of a zone": (
        {"moment": (None, "2026-01-09T11+12:00")},
        Side("moment", Span("instant", None, 20462 * DAY)),
        lambda row: row["moment"] is not None and row["moment"] < dt.datetime(2026, 1, 9, tzinfo=UTC),
    ),
    "a text": (
        {"country": "FR"},
        Side("country", LabelSet(("FR",))),
        lambda row: row["country"] == "FR",
    ),
    # A number matches its canonical text, and a text no other.
    "texts or none": (
        {"country": ["DE", 7, None]},
        Side("country", LabelSet(("7", "DE")), missing=True),
        lambda row: row["country"] in ("DE", "7", None),
    ),
    "the empty text": (
        {"country": ""},
        Side("country", LabelSet(("",))),
        lambda row: row["country"] == "",
    ),
    "a number": (
        {"code": 3},
        Side("code", Span("whole", 3, 4), kind="SMALLINT"),
        lambda row: row["code"] == 3,
    ),
    "numbers": (
        {"code": ("-1", 4)},
        Side("code", Span("whole", -1, 5), kind="SMALLINT"),
        lambda row: row["code"] is not None and -1 <= row["code"] <= 4,
    ),
    "numbers as text": (
        {"code": "..4"},
        Side("code", Span("whole", None, 5), kind="SMALLINT"),
        lambda row: row["code"] is not None and row["code"] <= 4,
    ),
    "numbers with gaps": (
        {"code": [5, 1, None]},
        Side("code", LabelSet((1, 5)), missing=True, kind="SMALLINT"),
        lambda row: row["code"] in (1, 5, None),
    ),
    "numbers without gaps": (
        {"code": {2, 3, 4}},
        Side("code", Span("whole", 2, 5), kind="SMALLINT"),
        lambda row: row["code"] in (2, 3, 4),
    ),
    "a number beyond the column's type": (
        {"code": (10**6, 10**30)},
        Side("code", Span("whole", 10**6, 10**30 + 1), kind="SMALLINT"),
        lambda row: False,
    ),
    "a truth": (
        {"paid": True},
        Side("paid", LabelSet(("true",)), kind="BOOLEAN"),
        lambda row: row["paid"] is True,
    ),
    "users": (
        {"who": [1, 2, 5]},
        Side("who", LabelSet((1, 2, 5))),
        lambda row: row["who"] in (1, 2, 5),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STATED)
def test_stated_regions_are_parsed(name: str) -> None:
    stated, side, _ = STATED[name]
    table = dg.read(TABLE, user="who").where(**stated)
    assert table.scope == Region((side,))
    assert dg.read(TABLE, user="who").where(stated).scope == table.scope
    assert str(side) in repr(table)


def sources(folder: Path) -> dict[str, Any]:
    """The same rows in everything that a table is read from, with the types of columns of text."""
    pq.write_table(TABLE, folder / "t.parquet")
    # Times with a zone need an extension to be read from text.
    texts = TABLE.drop_columns(["moment"])
    pa.csv.write_csv(texts, folder / "t.csv")
    types = {
        "who": "BIGINT",
        "day": "DATE",
        "time": "TIMESTAMP",
        "code": "SMALLINT",
        "paid": "BOOLEAN",
    }
    types["n"] = "BIGINT"
    connection = duckdb.connect(":memory:")
    connection.register("rows", TABLE)
    return {
        "Arrow": (TABLE, {}),
        "Parquet": (folder / "t.parquet", {}),
        "relation": (connection.sql("SELECT * FROM rows"), {"rows": "as given"}),
        "CSV": (folder / "t.csv", {"types": types}),
        "pandas": (TABLE.to_pandas(types_mapper=_types), {}),
    }


def _types(kind: pa.DataType) -> Any:
    import pandas as pd

    return pd.ArrowDtype(kind)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["duckdb", InMemory])
@pytest.mark.parametrize("source", ["Arrow", "Parquet", "relation", "CSV", "pandas"])
def test_rows_inside_agree_with_the_definition(source: str, engine: Any, tmp_path: Path) -> None:
    data, options = sources(tmp_path)[source]
    table = dg.read(data, user="who", engine=engine, **options)
    for name, (stated, _, inside) in STATED.items():
        if source == "CSV" and ("moment" in stated or name in ("texts or none", "the empty text")):
            # CSV does not distinguish an empty text from a missing one.
            continue
        expected = [row["n"] for row in TABLE.to_pylist() if inside(row)]
        with table.where(stated).open_engine() as opened:
            found = opened.columns([("n", "key")]).column(0).to_pylist()
        assert found == expected, name


def test_a_region_of_a_region_is_their_intersection() -> None:
    whole = dg.read(TABLE, user="who")
    both = whole.where(day="2026-01").where(country=["FR", "DE"]).where(day=("2026-01-20", None))
    assert both.scope == whole.where(day=("2026-01-20", "2026-01-31"), country=["FR", "DE"]).scope
    assert whole.scope == EVERYTHING
    # Columns of cells may come before and after.
    topics = whole.with_cells("topic", of="country", by={"FR": "x", "DE": "x"})
    one, two = topics.where(day="2026-01"), whole.where(day="2026-01")
    two = two.with_cells("topic", of="country", by={"FR": "x", "DE": "x"})
    found = []
    for table in (one, two):
        with table.open_engine() as engine:
            found.append(engine.columns([("n", "key")]).column(0).to_pylist())
            held = engine.distinct(["topic"]).columns[0].to_pylist()
            assert set(held) == {"x", "own: fr", "own: 7", "own: "}
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({}, "where requires a column, such as"),
        ({"nowhere": 1}, "'nowhere' is not a column"),
        (
            {"day": ("2026-02-01", "2026-01-01")},
            "the region is empty: 'day' begins at 2026-02",
        ),
        ({"code": (3, 2)}, "the region is empty: 'code' begins at 3 and ends at 2"),
        ({"country": []}, "an empty list"),
        ({"day": "tomorrow"}, "must use dates or timestamps for 'day', such as"),
        ({"day": "2026-02-30"}, "must use dates or timestamps for 'day', such as"),
        ({"day": "31.01.2026"}, "such as '2026-01-31', '2026-01' or"),
        ({"day": "31.01.2026"}, "not '31.01.2026'; the format in dates= is only for values of"),
        ({"day": 20260101}, "must use dates or timestamps for 'day', such as"),
        ({"day": "2026-01-01T12"}, "must use whole dates for 'day'"),
        ({"day": ["2026-01-01", "2026-01-05"]}, "must have one interval of 'day', not a list of 2"),
        ({"day": (None, None)}, "the first and the last value of 'day'"),
        ({"day": ("2026-01-01",)}, "the first and the last value of 'day'"),
        ({"time": "2026-01-01T12Z"}, "with a time zone, but 'time' has none"),
        (
            {"country": ("A", "F")},
            "(VARCHAR), because only integers, dates and timestamps have",
        ),
        (
            {"country": "2026-01-01..2026-01-31"},
            "declare its type, such as types={'country': 'DATE'}",
        ),
        (
            {"country": (dt.date(2026, 1, 1), None)},
            "declare its type, such as types={'country': 'DATE'}",
        ),
        ({"country": (1, 5)}, "declare its type, such as types={'country': 'BIGINT'} in dg.read"),
        (
            {"w": (1, 5)},
            "(DOUBLE), because only integers, dates and timestamps have intervals; use",
        ),
        ({"w": "1..5"}, "have intervals; use filter(…) or --filter."),
        ({"country": float("nan")}, "where contains nan"),
        ({"code": "FR"}, "where contains 'FR', but"),
        ({"code": 1.5}, "where contains 1.5, but"),
        ({"w": 1.5}, "has type DOUBLE, which cannot be used as a key"),
        ({"topic": "x"}, "not the column of cells 'topic'; pass the region of 'country'"),
    ],
)
def test_invalid_region_raises_one_sentence(stated: Any, words: str) -> None:
    table = dg.read(TABLE.append_column("w", pa.array([1.5] * len(TABLE))), user="who")
    table = table.with_cells("topic", of="country", by={"FR": "x"})
    with pytest.raises(dg.DpgrainError) as caught:
        table.where(stated)
    assert words in one_sentence(caught.value)


def test_regions_without_common_records_are_rejected() -> None:
    table = dg.read(TABLE, user="who").where(day="2026-01")
    for stated in ({"day": "2026-02"}, {"day": None}):
        with refuses("region", "2026"):
            table.where(stated)


def test_periods_have_the_written_length() -> None:
    table = dg.read(TABLE, user="who")
    texts = ["2026", "2026-12", "2026-12-31", "2026-12-31T23", "2026-12-31T23:59"]
    texts += ["2026-12-31T23:59:59", "2026-12-31 23:59:59.9", "2026-12-31T23:59:59.999999"]
    ends = set()
    for text in texts:
        (side,) = table.where(time=text).scope.sides
        assert isinstance(side.values, Span)
        ends.add(side.values.high)
        assert side.values.low is not None
    # All end with the year.
    assert len(ends) == 1
    begins = [table.where(time=text).scope.sides[0].values.low for text in texts]  # type: ignore[union-attr]
    assert all(low < high for low, high in itertools.pairwise(begins))  # type: ignore[operator]


@pytest.mark.parametrize("engine", ["duckdb", InMemory])
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_a_time_is_the_same_moment_on_every_machine(
    zone: str, engine: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    path = tmp_path / "times.csv"
    path.write_text("who,at\n1,2026-01-01 02:30:00\n2,2026-01-01 22:30:00\n")
    table = dg.read(str(path), user="who", types={"at": "TIMESTAMPTZ"}, engine=engine)
    try:
        with table.where(at="2026-01-01").open_engine() as opened:
            assert sorted(opened.distinct(["who"], None).columns[0].to_pylist()) == ["1", "2"]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_differing_time_types_of_files_raise_one_sentence(tmp_path: Path) -> None:
    for name, kind in (("a", pa.date32()), ("b", pa.timestamp("us"))):
        pq.write_table(pa.table({"day": pa.nulls(3, kind)}), tmp_path / f"{name}.parquet")
    rows = dg.read(tmp_path / "*.parquet")
    with refuses("where", "TIMESTAMP", kind=dg.SchemaError):
        rows.where(day="2026-01")


def test_month_or_day_of_text_column_gives_warning() -> None:
    texts = pa.table({"who": [1, 1], "day": ["2026-01-03", "2026-02-01"], "month": ["2026-01", ""]})
    table = dg.read(texts, user="who")
    for period in ("2026-01", "2026-01-03"):
        with pytest.warns(
            UserWarning, match=rf"'{period}' as text, which 'day' must equal.*--type day=date"
        ):
            table.where(day=period)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.where(day="2026-01-03 12:00")
        dg.read(texts, user="who", types={"day": "DATE"}).where(day="2026-01")
