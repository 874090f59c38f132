"""Releases: their tables, files and post-processing; candidates and holders behind ``dg.top``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.refusals import refuses
from tests.statistics import releases

import dpgrain as dg
from dpgrain.errors import ParameterError

OPTIONS: dict[str, Any] = {"unit": dg.User(), "epsilon": 2.0, "delta": 1e-4, "random_state": 1}
ITEMS, MONTHS = list(range(1, 41)), [1, 2, 3]


@pytest.fixture(scope="module")
def by_item() -> dg.Histogram:
    return dg.count(releases.shop(), by="item", domain=ITEMS, clip=20, **OPTIONS)


RELEASES: dict[str, Any] = {
    "count": lambda: dg.count(releases.shop(), **OPTIONS),
    "sum": lambda: dg.sum(
        releases.shop(), "paid", by="month", domain=MONTHS, bounds=(0, 30), **OPTIONS
    ),
    "mean": lambda: dg.mean(releases.shop(), "paid", by="name", bounds=(0, 30), **OPTIONS),
    "quantiles": lambda: dg.quantiles(
        releases.shop(), "paid", by="month", bounds=(0, 30), **OPTIONS
    ),
    "top": lambda: dg.top(releases.shop(), "name", **OPTIONS),
    "two keys": lambda: dg.histogram(releases.shop(), ["name", "month"], **OPTIONS),
    "elements per user": lambda: dg.elements_per_user(releases.shop(), "item", **OPTIONS),
}


@pytest.mark.parametrize("kind", RELEASES)
def test_every_kind_is_saved_and_loaded(kind: str, tmp_path: Path) -> None:
    release = RELEASES[kind]()
    again = dg.Release.load(release.save(tmp_path / "release.parquet"))
    assert type(again) is type(release)
    assert again.to_arrow().equals(release.to_arrow())
    assert again.guarantee == release.guarantee
    assert again.metadata == release.metadata
    assert str(again) == str(release)


@pytest.mark.parametrize("kind", RELEASES)
@pytest.mark.parametrize("ending", ["parquet", "csv", "json"])
def test_every_kind_is_written(kind: str, ending: str, tmp_path: Path) -> None:
    path = RELEASES[kind]().write(tmp_path / f"out.{ending}")
    assert path.stat().st_size > 0


def test_one_number_has_a_value() -> None:
    assert 5 < dg.mean(releases.shop(), "paid", bounds=(0, 30), **OPTIONS).value < 15
    several = dg.mean(releases.shop(), "paid", by="month", domain=MONTHS, bounds=(0, 30), **OPTIONS)
    with refuses("value", "3"):
        _ = several.value


@pytest.mark.slow
def test_listed_absent_item_is_never_selected() -> None:
    # 0 and 30 occur, nothing between: 600 rows let all of 0..30 be listed.
    rows = pa.table({"who": list(range(600)), "item": [0, 30] * 300})
    table = dg.read(rows, user="who")
    for method in ("truncated", "gaussian"):
        for seed in range(20):
            release = dg.top(
                table, "item", unit=dg.Element("item"), epsilon=0.5, delta=0.5,
                method=method, random_state=seed,
            )  # fmt: skip
            assert set(release.items.to_pylist()) <= {0, 30}


def test_preview_of_a_release_shows_number_and_uncertainty() -> None:
    _, heads, numbers, *_ = repr(dg.count(releases.shop(), **OPTIONS)).splitlines()
    assert heads.split() == ["estimate", "std_error", "low", "high", "at_least", "clipped_share"]
    assert 5_700 < float(numbers.split()[0].replace(",", "")) < 6_300
    few = dg.read(pa.table({"who": [1, 2], "paid": [3.0, 4.0]}), user="who")
    release = dg.sum(few, "paid", unit=dg.User(), epsilon=0.1, delta=1e-6, random_state=1)
    assert "Warning: no number exceeded the noise" in repr(release)
    assert np.isnan(release.std_error[0])
    assert "Blank estimates did not stand out from the noise." in repr(release)
    assert not release.metadata.range_was_private
    empty = dg.top(few, "who", unit=dg.Element("who"), epsilon=0.1, delta=1e-6, random_state=1)
    assert "No group passed the threshold" in repr(empty)


def test_dates_and_booleans_in_a_domain() -> None:
    import datetime

    day = datetime.date(2024, 5, 1)
    rows = pa.table({"who": [1, 2], "day": pa.array([day, None], pa.date32()), "ok": [True, False]})
    table = dg.read(rows, user="who")
    options: dict[str, Any] = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6, "clip": 1.0}
    by_day = dg.count(table, by="day", domain=[day], **options)
    assert by_day.items.to_pylist() == ["2024-05-01"]
    by_ok = dg.count(table, by="ok", domain=[True, False], **options)
    assert by_ok.items.to_pylist() == ["true", "false"]


@pytest.mark.parametrize("name", ["two keys", "top", "mean"])
def test_largest_items_are_a_release_with_plot_and_file(name: str, tmp_path: Path) -> None:
    release = RELEASES[name]()
    few = release.largest(2)
    assert type(few) is type(release)
    assert few.estimate.tolist() == sorted(release.estimate.tolist(), reverse=True)[:2]
    assert few.guarantee == release.guarantee
    assert few.plot().get_title() == release.plot().get_title()
    assert len(dg.Release.load(few.save(tmp_path / "few.parquet"))) == 2
    with refuses("count", "1"):
        release.largest(0)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(dg.DataError, match="does not exist"):
        dg.Release.load(tmp_path / "nothing.parquet")


@pytest.mark.parametrize(
    "change",
    [
        {"facts": True},
        {"facts": {"statistic": "histogram", "value": "x", "bounds": []}},
        {"facts": {"statistic": "histogram", "by": 0.5}},
        {"about": {"nonnegative": [1]}, "guarantee": []},
        "[" * 100_000,
    ],
    ids=lambda change: str(change)[:40],
)
def test_foreign_text_in_a_file_is_rejected(
    change: dict[str, Any] | str, by_item: dg.Histogram, tmp_path: Path
) -> None:
    path = by_item.save(tmp_path / "saved.parquet")
    table = pq.read_table(path)
    key = b"dpgrain"
    words = table.schema.metadata[key]
    about = change if isinstance(change, str) else json.dumps({**json.loads(words), **change})
    pq.write_table(table.replace_schema_metadata({key: about}), path)
    with pytest.raises(dg.DataError, match="is not a saved release"):
        dg.Release.load(path)


def test_file_is_not_written_under_a_foreign_ending(by_item: dg.Histogram, tmp_path: Path) -> None:
    with pytest.raises(
        ParameterError, match=r"Parquet \(\.parquet\): choose that ending; write\(\)"
    ):
        by_item.save(tmp_path / "x.csv")
    with pytest.raises(ParameterError, match=r"is written as an HTML page \(\.html\)"):
        by_item.report(tmp_path / "x.pdf")
    assert not list(tmp_path.iterdir())


def test_pivot_has_rows_and_columns_for_two_keys() -> None:
    rows = {"who": [1, 2, 3], "kind": ["er", "gp", "er"], "year": [2025, 2024, 2024]}
    table = dg.read(pa.table(rows), user="who")
    asked: dict[str, Any] = {"unit": dg.User(), "epsilon": 1e6, "delta": 1e-6, "random_state": 1}
    domain = {"kind": ["gp", "er"], "year": [2025, 2024]}
    release = dg.count(table, by=["kind", "year"], domain=domain, clip=1.0, **asked)
    wide = release.pivot("kind", "year")
    assert (wide.index.tolist(), wide.columns.tolist()) == (domain["kind"], domain["year"])
    assert wide.round().to_numpy().tolist() == [[0.0, 1.0], [1.0, 1.0]]
    assert wide.columns.name == "estimate by year (clipped total)"
    assert len(set(release.pivot("year", "kind", "std_error").to_numpy().ravel())) == 1
    noisy = dg.count(
        table, by=["kind", "year"], domain=domain, **{**asked, "epsilon": 1, "clip": 1}
    )
    texts = noisy.pivot("kind", "year", "±")
    assert texts.columns.name == "estimate ± std_error by year (clipped total)"
    (error,) = {text.split(" ± ")[1] for text in texts.to_numpy().ravel()}
    assert float(error) == pytest.approx(noisy.std_error[0], abs=0.06)
    assert float(str(texts.loc["gp", 2025]).split(" ± ")[0].replace("−", "-")) == pytest.approx(
        noisy.estimate[0], abs=0.06
    )
    largest = release.largest(1).pivot("kind", "year")
    assert largest.shape == (1, 1)
    listed = dg.count(
        table, by=["kind", "year"], domain=[("er", 2025), ("gp", 2024)], clip=1.0, **asked
    )
    assert np.isnan(listed.pivot("kind", "year").to_numpy()).sum() == 2
    named = dg.read(
        pa.table({**rows, "count": ["a", "b", "a"], "paid": [1.0, 2.0, 3.0]}), user="who"
    )
    both = {"kind": ["er", "gp"], "count": ["a", "b"]}
    means = dg.mean(
        named, "paid", by=["kind", "count"], domain=both, bounds=(0, 5), clip=5.0, **asked
    )
    pivoted = means.pivot("kind", "count")
    assert (pivoted.index.tolist(), pivoted.columns.tolist()) == (both["kind"], both["count"])
    assert pivoted.loc["gp", "b"] == pytest.approx(2.0, abs=1e-3)
    counts = means.pivot("kind", "count", "count")
    assert counts.round().loc["er", "a"] == 2
    assert counts.columns.name == "count by count (clipped number of records, plus noise)"
    for rows_of, columns in (("kind", "kind"), ("kind", "month"), ("year", "who")):
        with pytest.raises(dg.ParameterError, match="the keys are kind, year"):
            release.pivot(rows_of, columns)
    with refuses("value", "must be one of"):
        release.pivot("kind", "year", "kind")
    with pytest.raises(dg.ParameterError, match="the keys are none"):
        dg.count(table, **asked).pivot("kind", "year")
