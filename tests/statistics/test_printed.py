"""A release that is printed shows numbers, what they are of, and what clipping may have taken."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.statistics import releases

import dpgrain as dg
from dpgrain.statistics.printed import in_order, lines_of, notes, shown

ITEMS = list(range(1, 41))
OPTIONS: dict[str, Any] = {"unit": dg.User(), "epsilon": 2.0, "delta": 1e-4, "random_state": 1}


@pytest.fixture(scope="module")
def skewed() -> dg.Histogram:
    """Items of which most were not seen when bounds were chosen."""
    generator = np.random.default_rng(1)
    item = np.minimum(generator.geometric(0.3, 4000), 40)
    who, paid = generator.integers(0, 900, 4000), 5 + generator.pareto(2, 4000)
    table = dg.read(pa.table({"who": who, "item": item, "paid": paid}), user="who")
    return dg.histogram(
        table, "item", weight="paid", domain=ITEMS, **{**OPTIONS, "unit": dg.Element("item")}
    )


def test_the_largest_rows_are_printed(skewed: dg.Histogram) -> None:
    head, columns, first, *rest = repr(skewed).splitlines()
    assert head == (
        "Histogram of 40 items: sum of paid above 0 per item, each user's part of a cell capped at a "
        "bound per cell."
    )
    assert columns.split() == [
        "item", "capped_estimate", "std_error", "capped_low", "capped_high", "at_least",
    ]  # fmt: skip
    line = lines_of(skewed, shown(skewed, 1), letters=40)[0]
    assert first.split() == [
        *line.keys, line.estimate, line.std_error, line.low, line.high, *line.more,
    ]  # fmt: skip
    assert len({len(row) for row in (columns, first, *rest[:4])}) == 1, "columns are of one width"
    assert rest[4] == "(largest 5 of 40; all: to_pandas())"
    assert rest[-1] == skewed.guarantee.brief
    assert str(skewed) == repr(skewed)


def test_what_is_printed_says_what_limits_it(skewed: dg.Histogram) -> None:
    said = " ".join(notes(skewed))
    assert "95% intervals are of the capped sum" in said
    assert "the total before capping is at_least or more (95%), and may be far more" in said
    assert "of users' parts of cells exceed their bound" in said
    assert said in repr(skewed)
    after = " ".join(notes(skewed.shrunk()))
    assert (
        "Errors and intervals are approximate after post-processing (shrunk); the total before capping"
        in after
    )
    assert "95% intervals" not in after


ASKED: dict[str, tuple[Any, str]] = {
    "count": (lambda t: dg.count(t, **OPTIONS), "records, each user's part capped at a bound"),
    "count of records": (
        lambda t: dg.count(t, by="month", domain=[1], **{**OPTIONS, "unit": dg.Record()}),
        "records per month",
    ),
    "stated": (
        lambda t: dg.count(t, clip=3.0, **OPTIONS),
        "records, each user's part capped at 3",
    ),
    "sum": (
        lambda t: dg.sum(t, "paid", bounds=(0, 30), by="month", domain=[1, 2], **OPTIONS),
        "sum of paid between 0 and 30 per month, each user's part capped at a bound",
    ),
    "mean": (
        lambda t: dg.mean(t, "paid", bounds=(0, 30), by=["month", "item"], **OPTIONS),
        "mean of paid between 0 and 30 per month, item, over records, each user's part capped at a "
        "bound",
    ),
    "mean of records": (
        lambda t: dg.mean(t, "paid", bounds=(0, 30), **{**OPTIONS, "unit": dg.Record()}),
        "mean of paid between 0 and 30, over records",
    ),
    "variance": (
        lambda t: dg.variance(t, "paid", bounds=(0, 30), **OPTIONS),
        "variance of paid between 0 and 30, over records, each user's part capped at a bound",
    ),
    "quantiles": (
        lambda t: dg.quantiles(t, "paid", bounds=(0, 30), clip=4.0, **OPTIONS),
        "quantiles of paid between 0 and 30, over records, each user's part capped at 4",
    ),
    "top": (
        lambda t: dg.top(t, "name", **OPTIONS),
        "holders per name, each user's part capped at a bound",
    ),
    "top by names": (
        lambda t: dg.top(t, "name", method="gaussian", counts=False, **OPTIONS),
        "weighted holders per name",
    ),
    "top at once": (
        lambda t: dg.top(t, "name", method="truncated", max_items=3, **OPTIONS),
        "holders per name, of the first items of each unit",
    ),
    "elements per user": (lambda t: dg.elements_per_user(t, "item", **OPTIONS), "users"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ASKED)
def test_the_estimand_is_named_in_every_channel(name: str, tmp_path: Path) -> None:
    make, words = ASKED[name]
    release = make(releases.shop())
    assert release.estimand == words
    assert words in repr(release).splitlines()[0]
    page = release.report(tmp_path / "page.html").read_text(encoding="utf-8").replace("&#39;", "'")
    plain = release.asked.statistic.of_bins or release.asked.statistic.holders
    assert plain or f"<strong>{words}</strong>" in page
    again = dg.Release.load(release.save(tmp_path / "release.parquet"))
    assert again.estimand == words
    assert repr(again) == repr(release)
    assert again.to_arrow().equals(release.to_arrow())


def test_means_are_told_of_the_average_record() -> None:
    release = dg.mean(releases.shop(), "paid", bounds=(0, 30), by="month", domain=[1, 2], **OPTIONS)
    assert "the average record, not the average person" in " ".join(notes(release))
    assert {"count", "count_error"} == set(release.more)
    assert "count_error" in repr(release)
    one = dg.mean(releases.shop(), "paid", bounds=(0, 30), **OPTIONS)
    assert (
        f" records (standard error {one.more['count_error'][0]:,.0f}) ("
        in repr(one).splitlines()[0]
    )


RANGED: dict[str, Any] = {
    "sum": lambda t, **o: dg.sum(t, "paid", **o),
    "mean": lambda t, **o: dg.mean(t, "paid", **o),
    "variance": lambda t, **o: dg.variance(t, "paid", **o),
    "std": lambda t, **o: dg.std(t, "paid", **o),
    "quantiles": lambda t, **o: dg.quantiles(t, "paid", **o),
}


@pytest.mark.parametrize("name", RANGED)
def test_what_stated_bounds_cut_off_is_said_to_be_in_no_interval(name: str, tmp_path: Path) -> None:
    stated = RANGED[name](releases.shop(), bounds=(1, 30), **OPTIONS)
    said = (
        "umbers below 1 count as 1, and those above 30 as 30: what that changes is in no interval."
    )
    assert f"N{said}" in notes(stated)
    assert f"N{said}" in repr(stated)
    assert "the nearer bound" in stated.report(tmp_path / "page.html").read_text() or (
        f"N{said}" in (tmp_path / "page.html").read_text()
    )
    found = " ".join(notes(RANGED[name](releases.shop(), **OPTIONS)))
    assert "is in no interval" not in found
    assert found.count("count as that") == 1


@pytest.mark.parametrize("ask", [dg.covariance, dg.correlation])
def test_what_two_stated_bounds_cut_off_is_said_to_be_in_no_interval(ask: Any) -> None:
    pair = ask(releases.shop(), "paid", "item", bounds=(1, 30), other_bounds=(0, 5), **OPTIONS)
    assert (
        "Numbers beyond the stated bounds count as the nearer bound: what that changes is in no "
        "interval." in notes(pair)
    )


def test_nothing_is_said_to_be_cut_off_where_numbers_lie_in_bins_or_are_counted() -> None:
    shop = releases.shop()
    in_bins = dg.histogram(shop, "paid", edges="auto", **OPTIONS)
    assert in_bins.asked.found is not None
    for release in (in_bins, dg.distribution(shop, "paid", **OPTIONS), dg.count(shop, **OPTIONS)):
        said = " ".join(notes(release))
        assert "count as" not in said
        assert "is in no interval" not in said


def test_columns_of_one_table_have_names_of_their_own() -> None:
    release = dg.histogram(releases.shop(), "paid", edges=[5, 10], **OPTIONS)
    columns = repr(release).splitlines()[1]
    assert columns.startswith("key at_least  below  capped_estimate")
    assert columns.replace("key at_least", "key_at_least").split() == [
        name.replace(" ", "_") for name in release.to_arrow().column_names
    ]


def test_what_users_hold_is_headed_as_a_range_and_not_as_a_limit() -> None:
    release = dg.elements_per_user(releases.shop(), "item", edges=[1, 3], **OPTIONS)
    head, columns, *rows = repr(release).splitlines()
    assert head == "Elements per user: users by how many elements, and records, each holds."
    assert columns.split() == ["held", "how", "many", "estimate", "std_error", "low", "high"]
    assert [row.split()[1] for row in rows[:2]] == ["1", "2–3"]


def test_what_ranking_by_noisy_counts_does_is_said() -> None:
    shop, said = releases.shop(), "tend to be overestimated, which intervals do not allow for."
    ranked = "Items are ranked by their noisy counts, so that those at the top " + said
    named = (
        "Items are ranked and named by their noisy counts, so that those at the top and just above the "
        "threshold " + said
    )
    options = {**OPTIONS, "unit": dg.Element("name")}
    assert notes(dg.top(shop, "name", method="truncated", **options))[-1] == named
    assert notes(dg.top(shop, "name", method="gaussian", counts=False, **options))[-1] == named
    assert notes(dg.top(shop, "name", method="gaussian", **options))[-1] == ranked
    assert notes(dg.top(shop, "name", domain=["a", "b"], **options))[-1] == ranked
    assert said not in " ".join(notes(dg.histogram(shop, "name", **options)))


def test_files_name_what_is_capped_and_leave_blanks(skewed: dg.Histogram, tmp_path: Path) -> None:
    names = ["item", "capped_estimate", "std_error", "capped_low", "capped_high", "at_least"]
    blank = np.arange(len(skewed)) % 3 == 0
    skewed = replace(skewed, at_least=np.where(blank, np.nan, skewed.more["at_least"]))
    rows = json.loads(skewed.write(tmp_path / "out.json").read_text())
    assert list(rows[0]) == names
    assert [row["at_least"] is None for row in rows] == blank.tolist()
    table = pyarrow.csv.read_csv(skewed.write(tmp_path / "out.csv"))
    assert table.column_names == names
    assert table["at_least"].null_count == blank.sum()
    assert "nan" not in (tmp_path / "out.csv").read_text().lower()
    written = pq.read_table(skewed.write(tmp_path / "out.parquet"))
    assert written["at_least"].null_count == blank.sum()
    frame = skewed.to_pandas()
    assert (frame["at_least"].isna() == blank).all()


def test_columns_are_named_capped_where_clipping_may_take_something() -> None:
    rows = releases.shop()
    numbers: dict[str, Any] = {"bounds": (0, 30), "epsilon": 2.0, "delta": 1e-4}
    for unit, of in ((dg.User(), "capped_"), (dg.Record(), "")):
        for release in (
            dg.count(rows, **{**OPTIONS, "unit": unit}),
            dg.mean(rows, "paid", unit=unit, **numbers),
            dg.quantiles(rows, "paid", [0.5], unit=unit, **numbers),
        ):
            columns = release.to_arrow().column_names
            assert {f"{of}{name}" for name in ("estimate", "low", "high")} <= set(columns)


@pytest.mark.slow
def test_a_file_without_limits_is_read(skewed: dg.Histogram, tmp_path: Path) -> None:
    path = skewed.save(tmp_path / "old.parquet")
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[b"dpgrain"])
    about["fields"] = ["estimate", "std_error", "clip"]
    for fact in ("above", "lost", "lost_of", "max_elements"):
        del about["facts"][fact]
    del about["facts"]["clip"]["takes"]
    old = table.drop_columns(["at_least"]).rename_columns({"capped_estimate": "estimate"})
    metadata = {b"dpgrain": json.dumps(about).encode()}
    pq.write_table(old.replace_schema_metadata(metadata), path)
    again = dg.Release.load(path)
    assert not again.more
    assert np.array_equal(again.estimate, skewed.estimate)
    assert "at_least" not in repr(again)
    assert again.report(tmp_path / "page.html").exists()


@pytest.mark.parametrize("column", ["up_to", "steps"])
def test_a_file_of_0_1_with_former_columns_is_read(
    skewed: dg.Histogram, tmp_path: Path, column: str
) -> None:
    path = skewed.save(tmp_path / "old.parquet")
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[b"dpgrain"])
    about["about"]["chain"] = {"secret": "00", "rung": 0}
    old = table.append_column(column, table["capped_estimate"])
    for fields in ({**about["fields"], column: column}, [*about["fields"], column]):
        metadata = {b"dpgrain": json.dumps({**about, "fields": fields}).encode()}
        names = old.column_names if isinstance(fields, dict) else _fields_of(old)
        pq.write_table(old.rename_columns(names).replace_schema_metadata(metadata), path)
        assert dg.Release.load(path).hash == skewed.hash


def _fields_of(table: Any) -> list[str]:
    """The names of columns by which a file of 0.1 calls them."""
    return [name.removeprefix("capped_") for name in table.column_names]


@pytest.mark.slow
def test_the_page_and_the_plot_name_the_capped_sum(skewed: dg.Histogram, tmp_path: Path) -> None:
    page = skewed.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert '<th scope="col" class="number">At least (95%)</th>' in page
    assert '<th scope="col" class="number">95% low</th>' in page
    assert "No private release can give an upper bound" in " ".join(page.split())
    assert skewed.asked.left_out in page.replace("&#39;", "'")
    from matplotlib.figure import Figure

    assert "(sum of paid above 0, clipped)" in skewed.plot(Figure().subplots()).get_xlabel()


@pytest.mark.parametrize("form", ["2026-01-{:02}", "2026-{:02}"], ids=["days", "months"])
def test_days_and_months_are_shown_in_their_order(form: str) -> None:
    days = [form.format(place) for place in range(1, 13)]
    rows = pa.table({"who": range(120), "day": [days[min(i % 17, 11)] for i in range(120)]})
    made = dg.count(
        dg.read(rows, user="who"), by="day", unit=dg.User(), clip=1.0, epsilon=1e5, delta=1e-6,
        domain=days,
    )  # fmt: skip
    shown = [line.split()[0] for line in str(made).splitlines() if line.startswith("2026")]
    assert shown == days[:5]
    assert in_order(made)
    pages = dg.count(
        dg.read(rows, user="who").with_cells("page", "day", lambda day: f"p{day[-1]}"), by="page",
        unit=dg.User(), clip=1.0, epsilon=1e5, delta=1e-6, domain=["p1", "p2"],
    )  # fmt: skip
    assert not in_order(pages)
