"""Text instead of numbers: one message, at any position and for any rows."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.conftest import Command
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.learn.features import FeatureEncoding, NumberColumn, load_rows
from dpgrain.publishing.charge import Charge, Curator
from dpgrain.tables.engines.duckdb import DuckDB

PROMISE: dict[str, Any] = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6}
SENTENCE = r"'x' must be numeric, not text; declare its type, such as types=\{'x': 'DOUBLE'"
ROWS = 60
WORDS = [f"word {i}" for i in range(ROWS)]
DAY = datetime.date(2026, 1, 1)
COLUMNS: dict[str, pa.Array] = {
    "words": pa.array(WORDS),
    "numbers in text": pa.array([f"{i}.5" for i in range(ROWS)]),
    "numbers": pa.array([i + 0.5 for i in range(ROWS)]),
    "whole numbers": pa.array(range(ROWS)),
    "dates": pa.array([DAY + datetime.timedelta(days=i) for i in range(ROWS)]),
    "yes and no": pa.array([i % 2 == 0 for i in range(ROWS)]),
    "text of nobody": pa.array([None] * ROWS, pa.string()),
}
PLACES: dict[str, Callable[[dg.UserTable], Any]] = {
    "histogram": lambda t: dg.histogram(t, "item", weight="x", domain=["a"], clip=9.0, **PROMISE),
    "count": lambda t: dg.count(t, "x", **PROMISE),
    "sum": lambda t: dg.sum(t, "x", bounds=(0, 60), **PROMISE),
    "mean": lambda t: dg.mean(t, "x", bounds=(0, 60), **PROMISE),
    "mean without bounds": lambda t: dg.mean(t, "x", by="item", **PROMISE),
    "variance": lambda t: dg.variance(t, "x", bounds=(0, 60), **PROMISE),
    "quantile": lambda t: dg.quantile(t, "x", bounds=(0, 60), **PROMISE),
    "quantiles": lambda t: dg.quantiles(t, "x", [0.1, 0.9], bounds=(0, 60), **PROMISE),
    "feature": lambda t: load_rows(t, FeatureEncoding((NumberColumn("x"),)), Curator()),
    "target": lambda t: load_rows(t, FeatureEncoding((NumberColumn("y"),)), Curator(), target="x"),
}
FEATURES = ("feature", "target")


def rows_of(column: pa.Array) -> pa.Table:
    return pa.table(
        {"who": [f"u{i}" for i in range(ROWS)], "item": ["a", "b"] * (ROWS // 2), "x": column,
         "y": np.arange(ROWS, dtype=float)}
    )  # fmt: skip


def source_of(kind: str, rows: pa.Table, folder: Path) -> Any:
    if kind == "arrow":
        return rows
    if kind == "pandas":
        return rows.to_pandas()
    path = folder / f"rows.{kind}"
    if kind == "parquet":
        pq.write_table(rows, path)
    else:
        pyarrow.csv.write_csv(rows, path)
    return path


@pytest.fixture
def _nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """To charge a budget or to open the engine ends the test."""

    def ended(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(Charge, "__init__", ended)
    monkeypatch.setattr(DuckDB, "__enter__", ended)


@pytest.mark.parametrize("place", list(PLACES))
@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow", "pandas"])
@pytest.mark.usefixtures("_nothing_is_read")
def test_text_is_rejected_before_reading(kind: str, place: str, tmp_path: Path) -> None:
    """The same message for any rows, and for every CSV column without a declared type."""
    said = set()
    for name, column in COLUMNS.items():
        if kind != "csv" and column.type != pa.string():
            continue
        table = dg.read(
            source_of(kind, rows_of(column), tmp_path), user="who",
            types={"y": "DOUBLE"} if kind == "csv" else None,
        )  # fmt: skip
        with pytest.raises(dg.SchemaError, match=SENTENCE) as caught:
            PLACES[place](table)
        said.add(str(caught.value))
        assert caught.value.__cause__ is None, name
    assert len(said) == 1


@pytest.mark.slow(cases=5)
@pytest.mark.parametrize("place", list(PLACES))
@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow", "pandas"])
def test_numbers_are_accepted_and_other_types_rejected(
    kind: str, place: str, tmp_path: Path
) -> None:
    """Declared types convert text to numbers; dates are not numbers; booleans only as features."""
    for name, column in COLUMNS.items():
        stated = {"numbers": "DOUBLE", "whole numbers": "BIGINT", "dates": "DATE",
                  "yes and no": "BOOLEAN"}.get(name, "DOUBLE")  # fmt: skip
        if kind == "pandas" and name == "dates":
            # A frame has no type of days: objects are text.
            continue
        types = {"x": stated, "y": "DOUBLE"}
        table = dg.read(source_of(kind, rows_of(column), tmp_path), user="who", types=types)
        assert table.schema["x"] == stated
        refused = stated == "DATE" or (stated == "BOOLEAN" and place not in FEATURES)
        if not refused:
            PLACES[place](table)
            continue
        with pytest.raises(dg.SchemaError, match=f"'x' must be numeric, not of type {stated}"):
            PLACES[place](table)


COMMANDS: dict[str, list[str]] = {
    "histogram": ["--item", "item", "--weight", "x"],
    "count": ["--value", "x"],
    "sum": ["--value", "x"],
    "mean": ["--value", "x"],
    "mean-of-users": ["--columns", "x", "--bound", "9"],
    "variance": ["--value", "x"],
    "quantiles": ["--value", "x"],
    "fit linear": ["--target", "y", "--features", "x", "--output", "m.json"],
    "fit logistic": [
        "--target",
        "item",
        "--classes",
        "a,b",
        "--features",
        "x",
        "--output",
        "m.json",
    ],
    "fit huber": ["--target", "x", "--features", "y", "--output", "m.json"],
}


@pytest.fixture
def inside(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    def run(*words: str | Path) -> tuple[int, str, str]:
        done = command(*words)
        return done.returncode, done.stdout, done.stderr

    monkeypatch.chdir(tmp_path)
    return run


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize("name", list(COMMANDS))
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_commands_require_a_type_and_use_it(
    kind: str, name: str, inside: Any, tmp_path: Path
) -> None:
    path = source_of(kind, rows_of(COLUMNS["numbers in text"]), tmp_path)
    first, *rest = name.split()
    kinds = [word for word in rest if not word.startswith("-")]
    words = [first, *kinds, path, "--user", "who", *COMMANDS[name]]
    asked = ["--epsilon", "1", "--delta", "1e-6"]
    # Means of users' vectors are for whole users.
    asked += [] if name == "mean-of-users" else ["--unit", "user"]
    typed = ["--type", "y=double"] if kind == "csv" else []
    code, _, said = inside(*words, *asked, *typed)
    assert code == 2
    assert "'x' must be numeric, not text" in said
    assert "--type x=double" in said
    code, _, said = inside(*words, *asked, "--type", "x,y=double" if kind == "csv" else "x=double")
    assert code == 0, said
    # Output for internal use needs no type: it helps to find one.
    code, told, said = inside(*words, "--check", *typed)
    assert code == 0, said
    assert "NOT private" in told
    assert "0  non-numeric cells of 'x'" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["histogram", "--item", "item"], "rows without an item"),
        (["top", "--item", "item", "--item", "who"], "rows without an item 'who'"),
        (["count"], "users with a record"),
        (["count", "--by", "item", "--domain", "DOMAIN"], "60  rows with item outside the domain"),
        (["sum", "--value", "y", "--bounds", "0", "9"], "50  cells of 'y' beyond the bounds"),
        (["mean", "--value", "y", "--by", "item"], "0  non-numeric cells of 'y'"),
        (["mean-of-users", "--columns", "y"], "0  non-numeric cells of 'y'"),
        (["variance", "--value", "y"], "0  non-numeric cells of 'y'"),
        (["quantiles", "--value", "y"], "0  non-numeric cells of 'y'"),
        (["elements-per-user", "--element", "item"], "0  rows without an item"),
        (["fit", "linear", "--target", "y", "--features", "x"], "60  non-numeric cells of 'x'"),
    ],
    ids=lambda part: "-".join(part) if isinstance(part, list) else "",
)
def test_every_command_checks(words: list[str], told: str, inside: Any, tmp_path: Path) -> None:
    path = source_of("csv", rows_of(COLUMNS["words"]), tmp_path)
    (tmp_path / "domain.txt").write_text("c\nd\n")
    words = [str(tmp_path / "domain.txt") if word == "DOMAIN" else word for word in words]
    place = 2 if words[0] == "fit" else 1
    code, out, said = inside(*words[:place], path, *words[place:], "--user", "who", "--check")
    assert code == 0, said
    assert "NOT private" in out
    assert told in out
    assert "ε" not in out


def test_predicting_requires_types(inside: Any, tmp_path: Path) -> None:
    path = source_of("csv", rows_of(COLUMNS["numbers in text"]), tmp_path)
    code, _, said = inside(
        "fit", "linear", path, "--target", "y", "--features", "x", "--unit", "record", "--epsilon",
        "1", "--delta", "1e-6", "--type", "x,y=double", "--output", "m.json",
    )  # fmt: skip
    assert code == 0, said
    assert inside("predict", "m.json", path, "--output", "p.csv")[0] == 2
    code, _, said = inside("predict", "m.json", path, "--output", "p.csv", "--type", "x=double")
    assert code == 0, said
    assert "0  non-numeric cells of 'x'" in inside("predict", "m.json", path, "--check")[1]


# -- how numbers are written ---

WRITTEN = ["1,5", "1.5", "2", "-3,25", "1.000,5", "", "one", "1e3", "nan", "1,5,5"]


@pytest.mark.parametrize(
    ("decimal", "read"),
    [
        (".", [None, 1.5, 2.0, None, None, None, None, 1000.0, np.nan, None]),
        (",", [1.5, None, 2.0, -3.25, 1000.5, None, None, 1000.0, np.nan, None]),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow", "pandas"])
def test_decimal_commas(kind: str, decimal: str, read: list[float | None], tmp_path: Path) -> None:
    rows = pa.table({"x": WRITTEN, "y": [1.0] * len(WRITTEN)})
    source = source_of(kind, rows, tmp_path)
    table = dg.read(source, types={"x": "DOUBLE", "y": "DOUBLE"}, decimal=decimal)
    found = load_rows(table, FeatureEncoding((NumberColumn("x"), NumberColumn("y"))), Curator()).X
    expected = [np.nan if value is None else value for value in read]
    np.testing.assert_array_equal(found["x"], expected)
    # Numbers without a text form are read unchanged.
    assert list(found["y"]) == [1.0] * len(WRITTEN)
    told = table.check(value="x")
    assert ("6  cells of 'x' that would be readable with decimal=','" in told) is (decimal == ".")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"decimal": ";"}, "decimal must be one of '.', ',', not ';'"),
        ({"types": {"nothing": "DOUBLE"}}, "types contains column 'nothing', which"),
        ({"types": {"x": "number"}}, "column 'x' to an SQL type.*'number'"),
        ({"types": {"y": "DATE"}}, "column 'y' to 'DATE', because it already has type DOUBLE"),
        ({"thousands": "."}, "mark, '.'; for numbers such as 1.234,56, pass only decimal=','"),
        ({"decimal": ",", "thousands": ","}, "such as 1,234.56, pass only thousands=','"),
    ],
)
def test_wrong_ways_of_reading(options: dict[str, Any], words: str) -> None:
    with pytest.raises(dg.DpgrainError, match=words):
        dg.read(rows_of(COLUMNS["words"]), **options)


# -- disclosures of a release ---


@pytest.mark.parametrize(
    "publish",
    [
        lambda t: dg.mean(t, "x", bounds=(0, 60), **PROMISE),
        lambda t: dg.mean(t, "x", by="item", domain=["a", "b"], bounds=(0, 60), **PROMISE),
        lambda t: dg.variance(t, "x", bounds=(0, 60), **PROMISE),
        lambda t: dg.quantile(t, "x", bounds=(0, 60), **PROMISE),
    ],
)
@pytest.mark.parametrize("numbers", [True, False])
def test_release_reports_a_nearly_empty_signal(publish: Any, numbers: bool, tmp_path: Path) -> None:
    size = 3000
    rows = pa.table(
        {"who": np.arange(size), "item": ["a"] * size,
         "x": [f"{i % 60}{'.' if numbers else ','}5" for i in range(size)]}
    )  # fmt: skip
    table = dg.read(rows, user="who", types={"x": "DOUBLE"})
    # With only noise, one release in seven hundred reports nothing.
    for _ in range(2):
        release = publish(table)
        if numbers or release.metadata.care:
            break
    path = release.write(tmp_path / "out.json")
    saved = dg.Release.load(release.save(tmp_path / "out.parquet"))
    for shown in (repr(release), release.to_pandas().to_string(), path.read_text(), repr(saved)):
        assert ("almost no numbers were found" in shown) is not numbers


def test_pandas_objects_are_text() -> None:
    frame = pd.DataFrame({"x": pd.Series([1, 2.5, "three"], dtype=object)})
    with pytest.raises(dg.SchemaError, match=SENTENCE):
        dg.mean(dg.read(frame), "x", unit=dg.Record(), epsilon=1)
    table = dg.read(frame, types={"x": "DOUBLE"})
    assert (
        np.isnan(load_rows(table, FeatureEncoding((NumberColumn("x"),)), Curator()).X["x"]).sum()
        == 1
    )


def test_marks_of_numbers_differ() -> None:
    rows = pa.table({"who": [1, 2], "paid": ["1,234.5", "7"]})
    types = {"paid": "DOUBLE"}
    for thousands, decimal in ((".", "."), (",", ","), ("-", ".")):
        with refuses("thousands"):
            dg.read(rows, user="who", types=types, thousands=thousands, decimal=decimal)
    table = dg.read(rows, user="who", types=types, thousands=",")
    assert table.check_counts(value="paid")["non-numeric cells of 'paid' (dropped)"] == 0
    plain = dg.read(rows, user="who", types=types)
    assert "thousands" in str(table.input_schema())
    assert "text" not in plain.input_schema()
    assert table.read_as("paid") != plain.read_as("paid"), "another partition"
