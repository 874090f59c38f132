"""A printed release shows its numbers, their quantity, and the effect of clipping."""

from __future__ import annotations

import json
import math
import re
import textwrap
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
from dpgrain._formatting import POINTER
from dpgrain.units import Unit
from dpgrain.words.quantities import (
    beyond_bounds,
    clamped_to,
    clipping_effect,
    description,
    format_limit,
    limit_text,
    warnings,
)
from dpgrain.words.release_text import (
    all_warnings,
    column_meanings,
    file_notes,
    format_rows,
    in_order,
    notes,
    number_headings,
    ranking,
    ranking_name,
    rounded,
    shown,
    table_footers,
    title,
)

ITEMS = list(range(1, 41))
OPTIONS: dict[str, Any] = {"unit": dg.User(), "epsilon": 2.0, "delta": 1e-4, "random_state": 1}


@pytest.fixture(scope="module")
def skewed() -> dg.Histogram:
    """Items, most of them invisible when bounds were chosen."""
    generator = np.random.default_rng(1)
    item = np.minimum(generator.geometric(0.3, 4000), 40)
    who, paid = generator.integers(0, 900, 4000), 5 + generator.pareto(2, 4000)
    table = dg.read(pa.table({"who": who, "item": item, "paid": paid}), user="who")
    return dg.histogram(
        table, "item", weight="paid", domain=ITEMS, **{**OPTIONS, "unit": dg.Element("item")}
    )


def test_printed_interval_contains_the_interval(skewed: dg.Histogram) -> None:
    places = shown(skewed, len(ITEMS))
    lines = format_rows(skewed, places, letters=40)
    for place, line in zip(places, lines, strict=True):
        ends = (text.replace(",", "").replace("−", "-") for text in (line.low, line.high))
        low, high = map(float, ends)
        assert low <= skewed.low[place]
        assert high >= skewed.high[place]


@pytest.mark.parametrize("kind", ["expression", "derived", "cells"])
def test_months_are_printed_without_a_day(kind: str, tmp_path: Path) -> None:
    rows = {"who": [*range(400)] * 2, "day": ["2025-01-03", "2025-02-04"] * 400}
    table = dg.read(pa.table(rows), user="who", types={"day": "DATE"})
    if kind == "derived":
        table = table.derive(month="month(day)")
    if kind == "cells":
        table = table.with_cells("month", "day", dg.Elements.from_period("month"))
    key = "month(day)" if kind == "expression" else "month"
    release = dg.count(table, by=key, **OPTIONS)
    assert [line.split()[0] for line in repr(release).splitlines()[1:4]] == [
        key, "2025-01", "2025-02",
    ]  # fmt: skip
    again = dg.Release.load(release.save(tmp_path / "months.parquet"))
    assert repr(again) == repr(release)
    assert again.groups.columns[0].to_pylist() == ["2025-01-01", "2025-02-01"]
    written = again.write(tmp_path / "months.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in written] == [f'"{key}"', '"2025-01"', '"2025-02"']
    page = again.report(tmp_path / "page.html").read_text()
    assert "2025-01<" in page
    assert "2025-01-01<" not in page
    # Days and labels that look like days are unchanged.
    table = dg.read(pa.table({**rows, "first": ["2025-01-01"] * 800}), user="who")
    assert "2025-01-01 " in repr(dg.count(table, by="first", **OPTIONS))


def test_the_largest_rows_are_printed(skewed: dg.Histogram) -> None:
    head, columns, first, *rest = repr(skewed).splitlines()
    assert head == (
        "Sum of paid above 0 per item, each user's contribution to each item clipped (scaled "
        "down) to at most a bound per item, chosen privately (40 public items)"
    )
    numbers = ["estimate", "std_error", "low", "high", "at_least", "clipped_share"]
    assert columns.split() == ["item", *numbers]
    line = format_rows(skewed, shown(skewed, 1), letters=40)[0]
    assert first.split() == [
        *line.keys, line.estimate, line.std_error, line.low, line.high, *line.more,
    ]  # fmt: skip
    assert len({len(row) for row in (columns, first, *rest[:4])}) == 1, "columns are of one width"
    assert rest[4] == "[40 rows, 5 largest by clipped total shown; all: .to_pandas()]"
    assert rest[5] == (
        "[clipped_share is a 95% limit for elements; few can be most of the total: quote at_least]"
    )
    assert rest[-2:] == [skewed.guarantee.summary, POINTER]
    assert str(skewed) == repr(skewed)


def test_notes_state_interval_and_clipping(skewed: dg.Histogram) -> None:
    said, warning = notes(skewed)
    assert said == (
        "95% interval (low to high) for the clipped total; it covers the noise only, not the clipping."
    )
    assert said in repr(skewed)
    meanings = column_meanings(skewed)
    assert meanings["low, high"] == said.replace(" (low to high)", "").rstrip(".")
    assert meanings["at_least"].startswith("95% lower bound for the unclipped total")
    assert meanings["clipped_share"].startswith(
        "95% upper limit on the share of users' contributions to one item that were clipped"
    )
    assert meanings["Rows"].startswith(
        "rows without a value in 'who' or 'item', or with a group outside of"
    )
    assert re.match(r"Warning: [0-9]+ of 40 items do not stand out from the noise: ask", warning)
    unknown = replace(
        skewed, complete_units=None, metadata=replace(skewed.metadata, counts_clipped=False)
    )
    share = "Share of clipped users' contributions to one item: not estimated."
    assert share in notes(unknown)[0]
    after, _ = notes(skewed.shrunk())
    assert after.startswith(
        "Approximate 95% interval (low to high) for the clipped total, after post-processing (shrunk)"
    )


PRINTED: dict[str, Any] = {
    "count": lambda t, **o: dg.count(t, **o),
    "count per month": lambda t, **o: dg.count(t, by="month", domain=[1, 2], **o),
    "sum": lambda t, **o: dg.sum(t, "paid", bounds=(0, 30), **o),
    "sum, range found": lambda t, **o: dg.sum(t, "paid", **o),
    "histogram": lambda t, **o: dg.histogram(t, "item", domain=ITEMS, **o),
    "names": lambda t, **o: dg.histogram(t, "name", **o),
    "bins": lambda t, **o: dg.histogram(t, "paid", edges=[5, 10], **o),
    "mean": lambda t, **o: dg.mean(t, "paid", bounds=(0, 30), **o),
    "mean, range found": lambda t, **o: dg.mean(t, "paid", by="month", domain=[1, 2], **o),
    "std": lambda t, **o: dg.std(t, "paid", bounds=(0, 30), **o),
    "correlation": lambda t, **o: dg.correlation(
        t, "paid", "item", bounds=(0, 30), other_bounds=(0, 9), **o
    ),
    "quantiles": lambda t, **o: dg.quantiles(t, "paid", bounds=(0, 30), **o),
    "distribution": lambda t, **o: dg.distribution(t, "paid", [5, 10], **o),
    "top": lambda t, **o: dg.top(t, "name", **o),
}
UNITS: dict[str, Any] = {"record": dg.Record(), "element": dg.Element("name"), "user": dg.User()}
NUMBERS = (
    "estimate", "std_error", "low", "high", "at_least", "clipped_share", "count", "count_error"
)  # fmt: skip


@pytest.mark.parametrize("epsilon", [0.05, 2.0])
@pytest.mark.parametrize("clip", ["auto", 2.0])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", PRINTED)
def test_any_release_prints_four_notes_and_explains_each_column(
    name: str, unit: str, clip: Any, epsilon: float, tmp_path: Path
) -> None:
    options: dict[str, Any] = {**OPTIONS, "unit": UNITS[unit], "epsilon": epsilon}
    if name != "top" and (unit != "record" or name.startswith("sum")):
        options["clip"] = clip
    release = PRINTED[name](releases.shop(), **options)
    variants = [release, release.largest(1)] if len(release) else [release]
    if isinstance(release, dg.Histogram) and len(release) > 1:
        variants += [release.shrunk(), release.without_negatives()]
    for each in variants:
        title, *lines = str(each).splitlines()
        rows = (5 if len(each) > 20 else len(each)) + 1 if len(each) else 0
        below = [line for line in lines[rows:] if not line.startswith("[")]
        assert len(below) <= 4, below
        lines_of_notes = [line for note in notes(each) for line in textwrap.wrap(note, 100)]
        assert len(lines_of_notes) <= 4, lines_of_notes
        assert below[-2:] == [each.guarantee.summary, POINTER]
        numbers = each.to_arrow().column_names[len(each.groups.names) :]
        assert [column for column in numbers if column != "warning"] == [
            column for column in NUMBERS if column in numbers
        ]
        told = column_meanings(each)
        explained = {column.strip() for names in told for column in names.split(",")}
        shown_columns = lines[0].split()[-len(number_headings(each)) :] if len(each) else []
        assert set(shown_columns) <= explained
        assert " ".join(str(each.guarantee).split()) in " ".join(each.explain().split())
        # The text has the clipping, its unit and the quantity of the interval.
        if len(each):
            assert each.covers in below[0]
        first_items = re.search("the first [0-9]* ?items? in", title) is not None
        assert ("clipped" in title or first_items) == each.covers.startswith("clipped")
        _covers_in_every_format(each, tmp_path)


def _covers_in_every_format(release: dg.Release, folder: Path) -> None:
    covers = release.covers
    facts = {
        "covers": covers,
        "beyond_bounds": beyond_bounds(release.metadata),
        "clamped_to": clamped_to(release.metadata),
        "notes": file_notes(release),
    }
    stored = {name.encode(): fact.encode() for name, fact in facts.items() if fact}
    assert release.to_arrow().schema.metadata == stored
    assert release.to_pandas().attrs == {name: fact for name, fact in facts.items() if fact}
    written = pq.read_table(release.write(folder / "out.parquet"))
    saved = pq.read_table(release.save(folder / "saved.parquet"))
    for table in (written, saved):
        assert stored.items() <= table.schema.metadata.items()
    rows = json.loads(release.write(folder / "out.json").read_text())
    assert all(list(row)[-2:] == ["notes", "covers"] for row in rows)
    assert all((row["notes"], row["covers"]) == (facts["notes"], covers) for row in rows)
    for row in rows:
        told = f"{row.get('warning')} {row['notes']}"
        assert notes(release)[0] in told
        assert all(warning in told for warning in all_warnings(release).split("; "))
    lines = release.write(folder / "out.csv").read_text().splitlines()
    assert lines[0].endswith(',"notes","covers"')
    assert all(line.endswith(f',"{facts["notes"]}","{covers}"') for line in lines[1:])
    assert dg.Release.load(folder / "saved.parquet").covers == covers


COVERS = {
    ("count", "user"): "clipped total",
    ("count", "record"): "total",
    ("sum", "user"): "clipped total of clamped values",
    ("sum, range found", "user"): "clipped total of clamped values",
    ("mean", "record"): "mean of clamped values",
    ("quantiles", "user"): "clipped quantile of clamped values",
    ("std", "record"): "standard deviation of clamped values",
    ("distribution", "user"): "clipped share",
    ("top", "element"): "total",
}


@pytest.mark.parametrize(("name", "unit"), COVERS)
def test_covers_names_the_quantity(name: str, unit: str) -> None:
    release = PRINTED[name](releases.shop(), **{**OPTIONS, "unit": UNITS[unit]})
    assert release.covers == COVERS[name, unit]


def test_different_long_keys_look_different() -> None:
    urls = [
        f"https://example.org/catalogue/nineteenth-century/works/{n:02}/index.html"
        for n in range(5)
    ]
    long = "https://example.org/" + "x" * 300
    rows = pa.table({"who": range(360), "url": [[*urls, long][n % 6] for n in range(360)]})
    table = dg.read(rows, user="who")
    release = dg.histogram(table, "url", domain=urls, unit=dg.User(), clip=1.0, epsilon=9.0,
                           delta=1e-6)  # fmt: skip
    keys = [line.split()[0] for line in str(release).splitlines()[2:7]]
    assert len(set(keys)) == 5
    assert all(len(key) <= 39 and key.startswith("https://") for key in keys)
    said = "a long text is shown as its first 190 characters"
    assert said not in str(release) + release.explain()
    with_long = dg.histogram(table, "url", unit=dg.Element("url"), epsilon=9.0, delta=1e-6)
    assert said in str(with_long)
    assert said in with_long.explain().replace("A long", "a long")


CHOSEN = "each user's contribution clipped (scaled down) to at most …, chosen privately"
GROUPS = CHOSEN.replace("contribution", "contributions to all groups").replace("n)", "n together)")
ASKED: dict[str, tuple[Any, str]] = {
    "count": (
        lambda t: dg.count(t, **OPTIONS),
        f"clipped count of records, {CHOSEN}",
    ),
    "count of records": (
        lambda t: dg.count(t, by="month", domain=[1], **{**OPTIONS, "unit": dg.Record()}),
        "number of records per month",
    ),
    "stated per month": (
        lambda t: dg.count(t, by="month", domain=[1, 2], clip=3.0, noise="gaussian", **OPTIONS),
        "clipped count of records per month, each user's contributions to all 2 groups clipped "
        "(scaled down together) to at most l2 norm 3",
    ),
    "stated": (
        lambda t: dg.count(t, clip=3.0, **OPTIONS),
        "clipped count of records, each user's contribution clipped (scaled down) to at most 3 records",
    ),
    "sum": (
        lambda t: dg.sum(t, "paid", bounds=(0, 30), by="month", domain=[1, 2], **OPTIONS),
        f"sum of paid clamped to [0, 30] per month, {GROUPS.replace('all', 'all 2')}".replace(
            "…, chosen", "… (clip=¤ × 30), chosen"
        ),
    ),
    "mean": (
        lambda t: dg.mean(t, "paid", bounds=(0, 30), by=["month", "item"], **OPTIONS),
        f"mean of paid clamped to [0, 30] per month, item, over records, {GROUPS}",
    ),
    "mean of records": (
        lambda t: dg.mean(t, "paid", bounds=(0, 30), **{**OPTIONS, "unit": dg.Record()}),
        "mean of paid clamped to [0, 30], over records",
    ),
    "variance": (
        lambda t: dg.variance(t, "paid", bounds=(0, 30), **OPTIONS),
        f"variance of paid clamped to [0, 30], over records, {CHOSEN}",
    ),
    "quantiles": (
        lambda t: dg.quantiles(t, "paid", bounds=(0, 30), clip=4.0, **OPTIONS),
        "quantiles of paid clamped to [0, 30], over records, each user's contribution clipped "
        "(scaled down) to at most l2 norm 4",
    ),
    "top": (
        lambda t: dg.top(t, "name", **OPTIONS),
        f"clipped count of users with each name, {GROUPS.replace('groups', 'items')}",
    ),
    "top by names": (
        lambda t: dg.top(t, "name", method="gaussian", counts=False, **OPTIONS),
        "score per name for ranking, not a number of people: each user adds 1/√k to each of k "
        "items, which are all of its items or the first 200 items in a fixed public order",
    ),
    "top at once": (
        lambda t: dg.top(t, "name", method="truncated", max_items=3, **OPTIONS),
        "clipped count of users with each name, counting only the first 3 items in a fixed public "
        "order of each user",
    ),
    "elements per user": (
        lambda t: dg.elements_per_user(t, "item", **OPTIONS),
        "number of users by how many values of item, and how many records, each has",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ASKED)
def test_the_estimand_is_named_in_every_channel(name: str, tmp_path: Path) -> None:
    make, words = ASKED[name]
    release = make(releases.shop())
    if release.metadata.bound is not None:
        words = words.replace("…", limit_text(release.metadata, release.metadata.bound))
        words = words.replace("¤", format_limit(release.metadata.bound / 30))
        assert format_limit(release.metadata.bound) in words
    assert release.estimand == words
    assert words[1:] in repr(release).splitlines()[0]
    page = release.report(tmp_path / "page.html").read_text(encoding="utf-8").replace("&#39;", "'")
    plain = release.metadata.statistic.has_bins or release.metadata.statistic.holders
    assert plain or f"<strong>{words}</strong>" in page
    again = dg.Release.load(release.save(tmp_path / "release.parquet"))
    assert again.estimand == words
    assert repr(again) == repr(release)
    assert again.to_arrow().equals(release.to_arrow())


def test_counts_of_people_show_the_bound_and_no_share() -> None:
    """Norms of k items, √k, are edges of the bins for the choice of a bound."""
    who, item = np.divmod(np.arange(4 * 900), 4)
    table = dg.read(pa.table({"who": who, "item": (who + item) % 8}), user="who")
    release = dg.top(table, "item", domain=list(range(8)), method="gaussian", **OPTIONS)
    bound = format_limit(float(release.clip[0]))
    said = f"(scaled down together) to at most l2 norm {bound} (√k for k items), chosen "
    assert said in title(release)
    assert notes(release)[0].count("%") == notes(release)[0].count("95%") == 1
    assert "affected" not in str(release)


def test_titles_of_two_columns_show_both_ranges() -> None:
    for ask in (dg.covariance, dg.correlation):
        pair = ask(releases.shop(), "paid", "item", bounds=(1, 30), other_bounds=(0, 5), **OPTIONS)
        assert " of paid clamped to [1, 30] and item clamped to [0, 5], over records" in title(pair)
        assert "a finite number in both columns are dropped" in column_meanings(pair)["Rows"]


def test_bounds_of_cells_are_not_called_bounds_of_elements() -> None:
    shop, cells = releases.shop(), {"a": "x", "b": "x", "c": "y"}
    counted = dg.count(
        shop, by="name", domain=list("abc"), **{**OPTIONS, "unit": dg.Element(cells)}
    )
    partition = counted.guarantee.partition
    assert partition is not None
    assert partition.brief == f"public cells #{partition.rules[0].mark} of 'name'"
    said = (
        "each user's contributions to all groups in one of 2 public cells of 'name' clipped (scaled "
        "down together) to at most a bound per cell, chosen"
    )
    assert said in title(counted)
    assert f"per element ({partition.brief}; " in str(counted)
    some = dg.count(shop, by="name", domain=list("abc"), **{**OPTIONS, "unit": dg.User(2)})
    assert (
        "from at most 2 values of name per user (the first 2 in a fixed public order; others "
        in title(some)
    )
    one = dg.count(shop, by="name", domain=list("abc"), **{**OPTIONS, "unit": dg.User(1)})
    assert "from at most 1 value of name per user (the first in a fixed public order;" in title(one)


def test_titles_show_filters() -> None:
    rows = releases.shop().filter("paid > 6").where(month=[1, 2])
    counted = dg.count(rows, by="name", domain=list("abc"), clip=2.0, **OPTIONS)
    assert title(counted).endswith(
        " (3 public groups), only rows with month from 1 to 2, only rows where paid > 6"
    )
    assert "only" not in title(dg.count(releases.shop(), **OPTIONS))


def test_explain_describes_dropped_rows() -> None:
    shop = releases.shop()
    for release, missing in (
        (dg.count(shop, **OPTIONS), "a value in 'who'"),
        (
            dg.sum(shop, "paid", bounds=(0, 30), **OPTIONS),
            "a value in 'who' or a finite number in 'paid'",
        ),
        (dg.top(shop, "name", **OPTIONS), "a value in 'who' or 'name'"),
    ):
        assert column_meanings(release)["Rows"] == f"rows without {missing} are dropped"
    mail = {"sender": ["a", "b"], "receiver": ["b", None], "size": [1.0, 2.0]}
    owned = dg.sum(
        dg.read(pa.table(mail), user=["sender", "receiver"]),
        "size",
        bounds=(0, 9),
        clip=2.0,
        **OPTIONS,
    )
    assert column_meanings(owned)["Rows"] == (
        "rows with neither 'sender' nor 'receiver', or without a finite number in 'size', are dropped"
    )
    assert title(owned) == (
        "Sum of size clamped to [0, 9], each record counted once for all its users, or less where "
        "needed to clip each user's contribution to at most 18 (clip=2 × 9)"
    )
    assert "; users 'sender' and 'receiver'; " in owned.guarantee.summary.replace(
        "(users", "; users"
    )


def test_means_are_told_of_the_average_record() -> None:
    release = dg.mean(releases.shop(), "paid", bounds=(0, 30), by="month", domain=[1, 2], **OPTIONS)
    assert "the average record, not the average person" in column_meanings(release)["Average"]
    assert {"count", "count_error"} == set(release.more)
    assert "count_error" in repr(release)
    one = dg.mean(releases.shop(), "paid", bounds=(0, 30), **OPTIONS)
    assert repr(one).splitlines()[2].split()[-1] == f"{one.more['count_error'][0]:,.0f}"


RANGED: dict[str, Any] = {
    "sum": lambda t, **o: dg.sum(t, "paid", **o),
    "mean": lambda t, **o: dg.mean(t, "paid", **o),
    "variance": lambda t, **o: dg.variance(t, "paid", **o),
    "std": lambda t, **o: dg.std(t, "paid", **o),
    "quantiles": lambda t, **o: dg.quantiles(t, "paid", **o),
}


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("name", RANGED)
def test_stated_bounds_note_excludes_clamped_parts_from_intervals(
    name: str, tmp_path: Path
) -> None:
    stated = RANGED[name](releases.shop(), bounds=(1, 30), **OPTIONS)
    said = "alues are clamped to [1, 30]; intervals do not include the effect of this"
    unknown = "share beyond the stated bounds: not estimated"
    assert column_meanings(stated)["Values"] == f"v{said}; {unknown}"
    assert f"S{unknown[1:]}" in " ".join(notes(stated))
    assert "of clamped values" in repr(stated)
    assert "clamped to [1, 30]" in repr(stated)
    assert "the nearer bound" in stated.report(tmp_path / "page.html").read_text() or (
        f"V{said}" in (tmp_path / "page.html").read_text()
    )
    found = RANGED[name](releases.shop(), **OPTIONS)
    assert " ".join(notes(found)).count("% of values, averaged over users, were outside ") == 1
    assert found.explain().count("n average over users, at most ") == 1
    assert " ".join(found.explain().split()).count(" and clamped, by an unknown amount") == 1


@pytest.mark.parametrize("ask", [dg.covariance, dg.correlation])
def test_two_stated_bounds_note_excludes_clamped_parts(ask: Any) -> None:
    pair = ask(releases.shop(), "paid", "item", bounds=(1, 30), other_bounds=(0, 5), **OPTIONS)
    assert column_meanings(pair)["Values"].startswith(
        "values are clamped to the given bounds; intervals"
    )
    assert "of clamped values" in notes(pair)[0]


def test_binned_numbers_and_counts_have_no_clamping_note() -> None:
    shop = releases.shop()
    in_bins = dg.histogram(shop, "paid", edges="auto", **OPTIONS)
    assert in_bins.metadata.found is not None
    for release in (in_bins, dg.distribution(shop, "paid", **OPTIONS), dg.count(shop, **OPTIONS)):
        assert "clamped" not in str(release)
        assert "Values" not in column_meanings(release)


def test_columns_of_one_table_have_names_of_their_own() -> None:
    release = dg.histogram(releases.shop(), "paid", edges=[5, 10], **OPTIONS)
    columns = repr(release).splitlines()[1]
    assert columns.split() == release.to_arrow().column_names
    assert columns.split()[:3] == ["from", "below", "estimate"]
    rows = releases.shop().with_cells("clipped_share", "name", str)
    counted = dg.count(rows, by="clipped_share", domain=["item 1"], **OPTIONS)
    assert counted.to_arrow().column_names[0] == "key clipped_share"


def test_records_per_user_are_headed_as_a_range() -> None:
    release = dg.elements_per_user(releases.shop(), "item", edges=[1, 3], **OPTIONS)
    head, columns, *rows = repr(release).splitlines()
    assert head == "Number of users by how many values of item, and how many records, each has"
    assert columns.split() == ["counted", "per", "user", "estimate", "std_error", "low", "high"]
    assert [row.split()[:4] for row in rows[:2]] == [
        ["values", "of", "item", "1"],
        ["values", "of", "item", "2–3"],
    ]


def test_explain_states_the_effect_of_ranking() -> None:
    shop, said = releases.shop(), " tend to be overestimated; intervals do not allow for this"
    ranked = f"items are ranked by their noisy counts, so counts at the top{said}"
    selected = (
        "items are ranked and selected by their noisy counts, so counts at the top and just above the "
        f"threshold{said}"
    )
    options = {**OPTIONS, "unit": dg.Element("name")}
    for expected, how in (
        (selected, {"method": "truncated"}),
        (selected, {"method": "gaussian", "counts": False}),
        (ranked, {"method": "gaussian"}),
        (ranked, {"domain": ["a", "b"]}),
    ):
        release = dg.top(shop, "name", **how, **options)
        if "counts" in how:
            expected = expected.replace("counts", "scores")
        assert column_meanings(release)["Ranking"] == expected
    assert "Ranking" not in column_meanings(dg.histogram(shop, "name", **options))


def test_files_leave_blanks(skewed: dg.Histogram, tmp_path: Path) -> None:
    names = [
        "item", "estimate", "std_error", "low", "high", "at_least", "clipped_share", "warning"
    ]  # fmt: skip
    blank = np.arange(len(skewed)) % 3 == 0
    skewed = replace(skewed, at_least=np.where(blank, np.nan, skewed.more["at_least"]))
    rows = json.loads(skewed.write(tmp_path / "out.json").read_text())
    assert list(rows[0]) == [*names, "notes", "covers"]
    assert [row["at_least"] is None for row in rows] == blank.tolist()
    table = pyarrow.csv.read_csv(skewed.write(tmp_path / "out.csv"))
    assert table.column_names == [*names, "notes", "covers"]
    assert table["at_least"].null_count == blank.sum()
    assert "nan" not in (tmp_path / "out.csv").read_text().lower()
    written = pq.read_table(skewed.write(tmp_path / "out.parquet"))
    assert written["at_least"].null_count == blank.sum()
    frame = skewed.to_pandas()
    assert (frame["at_least"].isna() == blank).all()


@pytest.mark.slow
def test_a_file_without_limits_is_read(skewed: dg.Histogram, tmp_path: Path) -> None:
    path = skewed.save(tmp_path / "old.parquet")
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[b"dpgrain"])
    about["fields"] = ["estimate", "std_error", "clip"]
    for fact in ("bound", "cell", "max_elements"):
        del about["facts"][fact]
    del about["facts"]["clip"]["takes"]
    old = table.drop_columns(["at_least"])
    metadata = {b"dpgrain": json.dumps(about).encode()}
    pq.write_table(old.replace_schema_metadata(metadata), path)
    again = dg.Release.load(path)
    assert not again.more
    assert np.array_equal(again.estimate, skewed.estimate)
    assert "at_least" not in repr(again)
    assert again.report(tmp_path / "page.html").exists()


@pytest.mark.parametrize("column", ["up_to", "steps"])
def test_file_of_version_0_1_is_read(skewed: dg.Histogram, tmp_path: Path, column: str) -> None:
    path = skewed.save(tmp_path / "old.parquet")
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[b"dpgrain"])
    about["about"]["chain"] = {"secret": "00", "rung": 0}
    clipped = {name: f"capped_{name}" for name in ("estimate", "low", "high")}
    fields = {name: clipped.get(name, name) for name in about["fields"]}
    named = table.rename_columns([clipped.get(name, name) for name in table.column_names])
    for old, said in ((named, {**fields, column: column}), (table, [*about["fields"], column])):
        metadata = {b"dpgrain": json.dumps({**about, "fields": said}).encode()}
        old = old.append_column(column, old.columns[1])
        pq.write_table(old.replace_schema_metadata(metadata), path)
        again = dg.Release.load(path)
        assert again.hash == skewed.hash
        assert again.to_arrow().equals(skewed.to_arrow())


@pytest.mark.slow
def test_the_page_and_the_plot_name_the_capped_sum(skewed: dg.Histogram, tmp_path: Path) -> None:
    page = skewed.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert '<th scope="col" class="number">At least (95%)</th>' in page
    assert '<th scope="col" class="number">95% low</th>' in page
    assert "No private release can give an upper bound" in " ".join(page.split())
    assert clipping_effect(skewed.metadata) in page.replace("&#39;", "'")
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
    assert shown == days
    assert in_order(made)
    pages = dg.count(
        dg.read(rows, user="who").with_cells("page", "day", lambda day: f"p{day[-1]}"), by="page",
        unit=dg.User(), clip=1.0, epsilon=1e5, delta=1e-6, domain=["p1", "p2"],
    )  # fmt: skip
    assert not in_order(pages)


@pytest.fixture(scope="module")
def many_items() -> Any:
    users, items = 300, 12
    columns = {
        "who": np.repeat(np.arange(users), items),
        "item": np.tile(np.arange(items), users).astype(str),
    }
    return dg.read(pa.table(columns), user="who")


def test_items_of_dropped_elements_are_not_covered(many_items: Any) -> None:
    kept = dg.top(
        many_items,
        "item",
        unit=dg.User(max_elements=1),
        domain=[str(i) for i in range(12)],
        epsilon=20.0,
        delta=1e-4,
    )
    assert kept.covers == "total of kept elements"
    assert "at most 1 element of each user were kept" in " ".join(kept.explain().lower().split())


def test_weighted_count_notes_items_beyond_its_limit(many_items: Any) -> None:
    weighted = dg.top(
        many_items,
        "item",
        unit=dg.User(),
        epsilon=20.0,
        delta=1e-4,
        max_items=4,
        counts=False,
        method="gaussian",
    )
    assert weighted.covers == "clipped score"
    assert title(weighted).startswith(
        "Score per item for ranking, not a number of people: each user adds 1/√k to each of k "
        "items, which are all of its items or the first 4 items in a fixed public order ("
    )
    assert "at most 4 items of one unit are used" in str(weighted.guarantee)


def test_line_break_in_a_column_name_is_escaped() -> None:
    table = dg.read(pa.table({"who": [1, 2], "a\nε = 0 per user": [1.0, 2.0]}), user="who")
    found = dg.sum(table, "a\nε = 0 per user", bounds=(0, 5), unit=dg.User(), epsilon=1.0)
    assert "\\n" in title(found)
    assert "\n" not in title(found)


def test_titles_of_the_largest_and_of_shares() -> None:
    table = releases.shop()
    names = ["a", "b", "c"]
    element = {**OPTIONS, "unit": dg.Element("name")}
    picked = dg.top(table, "name", k=2, domain=names, **element)
    assert title(picked) == "Number of users with each name (the 2 largest of 3 public items)"
    unknown = dg.top(table, "name", k=2, **OPTIONS)
    assert "largest, chosen privately; others are missing)" in title(unknown)
    counted = dg.count(table, by="month", domain=[1, 2, 3], clip=3.0, **OPTIONS)
    assert title(counted).endswith("(3 public groups)")
    assert title(counted.largest(2)).endswith("(2 of 3 public groups)")
    chosen = dg.count(table, by="name", **OPTIONS)
    assert title(chosen).endswith(" groups, chosen privately; rare ones are missing)")
    few = chosen.largest(2)
    assert title(few).endswith(f"(the 2 largest of {len(chosen)} groups chosen privately)")
    assert title(few.largest(1)).endswith(
        f"(the 1 largest of {len(chosen)} groups chosen privately)"
    )
    assert title(chosen.largest(len(chosen))) == title(chosen)
    people = table.per_user(visits="count()")
    shares = dg.distribution(people, "visits", [1, 3], **OPTIONS)
    assert title(shares).startswith(
        "Share of people with visits (each person's number of records) at or above each value, over "
    )
    rows = dg.distribution(table, "paid", [5, 10], by="month", domain=[1, 2], **OPTIONS)
    assert title(rows).startswith(
        "Share of records with paid at or above each value per month, each user's contribution"
    )


def test_explain_advises_a_clip_for_comparisons(skewed: dg.Histogram) -> None:
    text = "Comparing groups (difference, ratio) requires an explicit clip=, because bounds differ."
    assert text in " ".join(skewed.explain().split())
    same = replace(skewed, clip=np.full(len(skewed), 3.0))
    assert text not in " ".join(same.explain().split())


def test_chosen_bounds_of_sums_can_be_passed_as_clip() -> None:
    options = {**OPTIONS, "bounds": (0, 50)}
    chosen = dg.sum(releases.shop(), "paid", **options)
    shown = re.search(r"at most (\S+) \(clip=(\S+) × 50\), chosen privately", chosen.estimand)
    assert shown is not None, chosen.estimand
    stated = dg.sum(releases.shop(), "paid", clip=float(shown[2]), **options)
    assert stated.clip[0] == pytest.approx(chosen.clip[0], rel=0.01)
    assert f"(clip={shown[2]} × 50)" in stated.estimand


def test_explain_shows_the_chosen_bound() -> None:
    total = dg.sum(releases.shop(), "paid", bounds=(0, 30), **OPTIONS)
    said = f"The chosen bound is {format_limit(float(total.clip[0]))}."
    assert said in " ".join(total.explain().split())
    stated = dg.sum(releases.shop(), "paid", bounds=(0, 30), clip=2.0, **OPTIONS)
    assert "chosen bound" not in stated.explain()


def test_ranges_report_the_average_over_units() -> None:
    shop = releases.shop()
    made = {
        "On average over users, at most ": dg.sum(shop, "paid", **OPTIONS),
        "On average over users and months, at most ": dg.sum(
            shop, "paid", by="month", domain=[1, 2], **{**OPTIONS, "unit": dg.Element("month")}
        ),
        "On average over users and cells, among the kept elements, at most ": dg.sum(
            shop, "paid", **{**OPTIONS, "unit": dg.User(1, by="month")}
        ),
    }
    for said, release in made.items():
        values = column_meanings(release)["Values"]
        assert said in f"{values[:1].upper()}{values[1:]}"
        assert ("; users with varied values weigh more)" in values) == (release.noise == "gaussian")
        assert "% of values, averaged over users, were outside [" in notes(release)[0]
    rows = dg.sum(shop, "paid", **{**OPTIONS, "unit": dg.Record()})
    assert "n average over" not in column_meanings(rows)["Values"]
    assert "% of values were outside [" in notes(rows)[0]


def test_a_release_without_visible_numbers_has_one_reason() -> None:
    rows = pa.table({"who": range(40), "g": ["a", "b"] * 20, "x": np.arange(40) - 20.0})
    found = dg.sum(
        dg.read(rows, user="who"), "x", by="g", domain=["a", "b"], **{**OPTIONS, "epsilon": 0.1}
    )
    assert np.isnan(found.estimate).all()
    said, warning = notes(found)
    assert said.endswith("Blank estimates did not stand out from the noise.")
    assert "at_least" not in said
    assert warning.startswith("Warning: no number exceeded the noise: pass bounds= ")
    assert ";" not in warning


def test_titles_describe_the_values_of_people() -> None:
    shop = releases.shop()
    people = shop.per_user(
        visits="count()",
        spent="total(paid, month = 1)",
        usual="most(name)",
        last=("paid", "max"),
        each="total(paid) / count()",
    )
    for column, words in {
        "visits": "number of records",
        "spent": "sum of paid where month = 1",
        "last": "largest paid",
        "each": "total(paid) / count()",
    }.items():
        mean = dg.mean(people, column, bounds=(0, 9), **OPTIONS)
        assert title(mean).startswith(f"Mean of {column} (each person's {words}) clamped to [0, 9]")
    counted = dg.count(people, by="usual", domain=["a"], **OPTIONS)
    assert title(counted).startswith(
        "Number of people per usual (each person's most frequent name) ("
    )
    some = dg.top(people, "usual", domain=["a", "b"], **OPTIONS)
    assert "with each usual (each person's most frequent name) (" in title(some)
    monthly = shop.per_user(by="month", spent="total(paid)")
    mean = dg.mean(monthly, "spent", by="month", domain=[1], bounds=(0, 9), **OPTIONS)
    assert " of spent (each person's sum of paid per month) clamped" in title(mean)


def test_an_error_of_zero_is_explained() -> None:
    people = releases.shop().per_user(visits="count()")
    said = "Where std_error is 0, the interval is one integer, although others are possible."
    sure = {**OPTIONS, "epsilon": 100.0}
    assert said in notes(dg.quantile(people, "visits", bounds=(0, 8), **sure))[0]
    other = dg.quantile(releases.shop(), "paid", bounds=(0, 50), **sure)
    assert said not in notes(other)[0]
    assert other.std_error > 0


def test_sums_of_both_signs_explain_the_missing_minimum() -> None:
    table = dg.read(pa.table({"who": range(900), "x": np.arange(900) % 7 - 3.0}), user="who")
    options: dict[str, Any] = {"unit": dg.User(), "epsilon": 1, "delta": 1e-6, "random_state": 1}
    found, stated = dg.sum(table, "x", **options), dg.sum(table, "x", bounds=(0, 7), **options)
    reason = "here is no at_least, because values may be negative"
    for text in (str(found), found.explain()):
        assert reason in " ".join(text.split())
    for text in (str(stated), stated.explain()):
        assert reason not in " ".join(text.split())
    assert stated.at_least is not None


def test_lower_bound_requires_values_in_range() -> None:
    rows = {"who": range(900), "paid": np.arange(900) % 500 - 60.0}
    table = dg.read(pa.table(rows), user="who")
    said = "t_least requires that no value is below"
    options = {**OPTIONS, "clip": 400.0}
    stated = dg.sum(table, "paid", bounds=(0, 500), **options)
    for text in (str(stated), stated.explain()):
        assert f"{said} 0." in " ".join(f"{text}.".split())
    assert f"{said} 5." in " ".join(notes(dg.sum(table, "paid", bounds=(5, 500), **options)))
    people = table.per_user(visits="count()", paid="total(paid)")
    visits = dg.sum(people, "visits", bounds=(0, 9), **{**options, "clip": 0.5})
    assert visits.at_least is not None
    assert said not in visits.explain()
    raised = dg.sum(people, "visits", bounds=(5, 9), **{**options, "clip": 0.5})
    assert f"{said} 5." in " ".join(notes(raised))
    assert said in dg.sum(people, "paid", bounds=(0, 900), **{**options, "clip": 0.5}).explain()
    assert said not in dg.sum(table, "paid", bounds=(-60, 500), **options).explain()
    assert said not in dg.count(table, **options).explain()


def test_release_of_a_budget_prints_its_share() -> None:
    with dg.budget(1.0, 1e-6) as budget:
        release = dg.count(releases.shop(), unit=dg.User(), share=0.15, random_state=1)
    assert "per user (share 0.15 of the budget; users" in " ".join(str(release).split())
    assert "Share 0.15 of the budget: budget.guarantee covers" in release.explain()
    assert budget.guarantee is not None
    assert "share" not in budget.guarantee.summary
    assert "of the budget;" not in str(dg.count(releases.shop(), **OPTIONS))


def test_rows_outside_of_the_domain_are_dropped() -> None:
    outside = "or with a group outside of the public list, are dropped"
    public = dg.count(releases.shop(), by="name", domain=["a"], **OPTIONS)
    assert outside in " ".join(public.explain().split())
    assert outside in description(public.metadata)["bad values"]
    for release in (
        dg.count(releases.shop(), **OPTIONS),
        dg.count(releases.shop(), by="name", **OPTIONS),
    ):
        assert "outside of the public list" not in " ".join(release.explain().split())


def test_means_describe_clipped_counts_and_shares() -> None:
    options = {**OPTIONS, "bounds": (0, 50), "clip": 5.0, "estimate_clipping": True}
    for release in (
        dg.mean(releases.shop(), "paid", **options),
        dg.quantile(releases.shop(), "paid", **options),
    ):
        text = " ".join(str(release).split())
        assert "Share of clipped users: not estimated for this statistic." in text
        assert "Count is the clipped number of records." in text
    whole = dg.mean(releases.shop(), "paid", bounds=(0, 50), **{**OPTIONS, "unit": dg.Record()})
    assert "clipped" not in str(whole)
    total = dg.sum(releases.shop(), "paid", **options)
    assert "not estimated" not in str(total)


def heavy() -> dg.UserTable:
    """Records of 30 users with about 400 each, and of 3,000 with three, in two groups."""
    generator = np.random.default_rng(5)
    who = np.concatenate([generator.integers(0, 30, 12_000), np.repeat(np.arange(30, 3030), 3)])
    kind = np.where(generator.random(who.size) < 0.9, "rare", "usual")
    kind[who >= 30] = "usual"
    paid = np.where(who < 30, 80, 20)
    return dg.read(pa.table({"who": who, "kind": kind, "paid": paid}), user="who")


def test_clipped_share_is_no_share_of_the_total(tmp_path: Path) -> None:
    limit = "clipped_share is a 95% limit for users; few can be most of the total"
    release = dg.count(heavy(), clip=20.0, estimate_clipping=True, **OPTIONS)
    # Most records are missing, although few users were clipped.
    assert release.more["clipped_share"][0] < 0.03
    assert release.high[0] < 0.5 * 21_000
    assert f"[{limit}: quote at_least]" in str(release)
    grouped = dg.count(
        heavy(), by="kind", domain=["rare", "usual"], clip=20.0, estimate_clipping=True, **OPTIONS
    )
    assert limit.replace("users", "users (weighted)") in str(grouped)
    for ending in (".csv", ".json"):
        written = release.write(tmp_path / f"out{ending}").read_text()
        assert " clipped_share: 95% upper limit on the share of users with data" in written
        assert ", but few can make up most of the total: quote at_least." in written
    signed = {"bounds": (-90, 90), "clip": 2.0, "estimate_clipping": True, **OPTIONS}
    # No lower bound exists.
    assert f"[{limit}]" in str(dg.sum(heavy(), "paid", **signed))
    assert "few can make up most of the total" in column_meanings(release)["clipped_share"]


def test_marginals_state_that_few_can_be_most() -> None:
    release = dg.marginals(
        heavy(),
        ["kind", "paid"],
        domain={"kind": ["rare", "usual"], "paid": [20, 80]},
        **OPTIONS,
    )
    assert "(95% confidence), but few can make up most of the total: quote at_least" in str(release)


@pytest.mark.parametrize(
    ("unit", "order"), [(dg.User(), "largest by clipped count"), (dg.Record(), "largest by count")]
)
def test_means_state_that_counts_rank_their_rows(unit: Unit, order: str, tmp_path: Path) -> None:
    options = {**OPTIONS, "unit": unit, "bounds": (0, 99)}
    release = dg.mean(heavy(), "paid", by="kind", domain=["rare", "usual"], **options)
    assert ranking_name(release) == order
    assert table_footers(release, 1)[0].startswith(f"2 rows, 1 {order} shown")
    # By records, the order is the opposite of the true one only if heavy users are clipped.
    assert (ranking(release)[0] < ranking(release)[1]) == (unit == dg.User())
    file = json.loads(release.write(tmp_path / "out.json").read_text())
    clipped = "Count is the clipped number of records." in file[0]["notes"]
    assert clipped == (unit == dg.User())


def test_likely_effects_are_not_those_of_extreme_users() -> None:
    mean, total = (release(heavy(), "paid", **OPTIONS) for release in (dg.mean, dg.sum))
    likely = "it covers the noise and likely clamping"
    moved = "may exceed it."
    means, totals = (" ".join(str(each).split()) for each in (mean, total))
    assert f"{likely} and clipping; extreme values or a few heavy users {moved}" in means
    assert f"{likely}, not the clipping; extreme values {moved}" in totals


def test_means_in_stated_bounds_cover_likely_clipping(tmp_path: Path) -> None:
    """3% of the users have four fifths of the records, and other answers than the rest."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(3000), np.where(np.arange(3000) < 90, 200, 2))
    table = dg.read(
        pa.table({"who": who, "x": (rng.random(who.size) < 0.2).astype(float)}), user="who"
    )
    stated, chosen = (
        dg.mean(table, "x", bounds=(0, 1), clip=clip, **OPTIONS) for clip in (5, "auto")
    )
    assert "it covers the noise only, not the clamping and clipping." in str(stated)
    text = "it covers the noise and likely clipping, not the clamping; a few heavy users"
    assert text in " ".join(str(chosen).split())
    assert text in column_meanings(chosen)["low, high"]
    assert 0 <= chosen.low[0] < chosen.estimate[0] < chosen.high[0] <= 1
    page = chosen.report(tmp_path / "mean.html").read_text()
    assert "likely clipping, not the clamping; a few heavy users may exceed it." in page


def test_groups_within_the_noise_advise_to_check_labels() -> None:
    rows = {"who": np.arange(4000) % 400, "city": ["Köln", "M\ufffdnchen"] * 2000}
    table = dg.read(pa.table(rows), user="who")
    for domain, advised in ((["Köln", "München", "Jülich"], True), (["Köln"], False)):
        release = dg.count(table, by="city", domain=domain, **{**OPTIONS, "epsilon": 0.5})
        assert release.units is not None
        assert not release.units.is_small.all()
        text = " ".join(str(release).split())
        assert ("2 of 3 groups do not stand out from the noise: ask" in text) == advised
        assert "larger clip=" not in text
        # Both groups that stand out have clipped users.
        assert ("clipping may matter in 1 others (see clipped_share)" in text) == advised


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_within_the_noise_advise_no_larger_clip(sign: int) -> None:
    rows = {"who": np.arange(4000) % 400, "city": ["Köln"] * 4000, "x": [float(sign)] * 4000}
    table = dg.read(pa.table(rows), user="who")
    options = {**OPTIONS, "epsilon": 0.5, "bounds": (-1, 1)}
    for domain, advised in ((["Köln", "München", "Jülich"], True), (["Köln", "Ulm"], False)):
        text = " ".join(str(dg.sum(table, "x", by="city", domain=domain, **options)).split())
        assert ("2 of 3 groups do not stand out from the noise: ask" in text) == advised
        assert "larger clip=" not in text or not advised


def test_unreadable_dates_do_not_only_advise_a_clip() -> None:
    rows = pa.table({"who": range(900), "day": ["31.12.2025"] * 900, "x": [1.0] * 900})
    table = dg.read(rows, user="who", types={"day": "DATE"})
    options = {**OPTIONS, "by": "month(day)", "domain": ["2025-12-01", "2025-11-01"]}
    for release in (dg.count(table, **options), dg.sum(table, "x", bounds=(0, 1), **options)):
        text = " ".join(str(release).split())
        assert "check for unreadable values (--check), or pass clip= or a larger epsilon=" in text
    # Without a group, no clipping bound matters.
    empty = dg.count(table, **{**options, "domain": None})
    assert len(empty) == 0
    assert "check the columns for unreadable values (--check)" in str(empty)
    assert "clip=" not in warnings(empty.metadata)


def counts(keys: list[Any], std_error: float = 24.4) -> dg.Histogram:
    table = dg.read(pa.table({"who": [1], "key": pa.array(keys[:1])}), user="who")
    options = {**OPTIONS, "clip": 1.0, "domain": keys}
    made = dg.count(table, by="key", **options)
    numbers = (100 + np.arange(len(keys)) % 3).astype(np.float64)
    error = np.full(len(keys), std_error)
    return replace(made, estimate=numbers, std_error=error)


@pytest.mark.parametrize(
    ("keys", "ordered"),
    [
        ([20, 18, 19, 22], [18, 19, 20, 22]),
        ([1, 2, 300, 4000], None),
        (["100 and above", "1,000 to 2,000", "below -5", "-5 to 0", "0 to 100"],
         ["below -5", "-5 to 0", "0 to 100", "100 and above", "1,000 to 2,000"]),
        (["100 and above", "below 0", "others"], None),
        (["a to b", "c to d", "e to f"], None),
        (["2025-03-01", "2025-01-01"], ["2025-01-01", "2025-03-01"]),
    ],
)  # fmt: skip
def test_keys_with_an_order_are_printed_in_it(keys: list[Any], ordered: list[Any] | None) -> None:
    release = counts(keys)
    found = release.groups.take(shown(release, len(keys))).columns[0].to_pylist()
    assert in_order(release) == (ordered is not None)
    if ordered is None:
        assert release.estimate[shown(release, 1)] == release.estimate.max()
    else:
        assert found == ordered


@pytest.mark.parametrize(("number", "printed"), [(7, 7), (20, 20), (21, 5)])
def test_short_releases_are_printed_in_full(number: int, printed: int) -> None:
    release = counts([f"item {place}" for place in range(number)])
    lines = repr(release).splitlines()
    assert sum(line.lstrip().startswith("item ") for line in lines) == printed
    footer = f"[{number} rows, {printed} largest by clipped total shown; all: .to_pandas()]"
    assert (footer in lines) == (printed < number)


def test_csv_numbers_are_rounded_to_their_error(skewed: dg.Histogram, tmp_path: Path) -> None:
    """No interval and no bound becomes narrower, and other files have all digits."""
    table = skewed.to_arrow()
    read = pyarrow.csv.read_csv(skewed.write(tmp_path / "out.csv"))
    for name, way in (("low", -1), ("at_least", -1), ("high", 1), ("std_error", 1)):
        exact, near = (each.column(name).to_numpy() for each in (table, read))
        known = np.isfinite(exact)
        moved = way * (near.astype(float) - exact)[known]
        assert moved.min() >= 0, name
        assert (moved < np.maximum(0.11 * table.column("std_error").to_numpy()[known], 1)).all()
    assert all(
        len(f"{value:g}".replace(".", "")) <= 4 for value in read.column("std_error").to_pylist()
    )
    exact, near = (each.column("estimate").to_numpy() for each in (table, read))
    assert (near != exact).any()
    assert np.abs(near - exact).max() <= 0.5
    whole = pq.read_table(skewed.write(tmp_path / "out.parquet")).column("low")
    assert whole.to_pylist() == table.column("low").to_pylist()
    values = json.loads(skewed.write(tmp_path / "out.json").read_text())
    assert [row["low"] for row in values] == table.column("low").to_pylist()


def test_rounded_numbers_keep_signs_and_large_digits() -> None:
    release = counts([1, 2, 3, 4], 0.012)
    names = ("estimate", "std_error", "low", "high")
    for value, low, high in (
        (-0.0004, -0.001, 0.0), (1.2345, 1.234, 1.235), (1e20 + 2**20, 1e20 + 2**20, 1e20 + 2**20),
        (-12.0, -12.0, -12.0), (float("nan"), None, None), (float("inf"), math.inf, math.inf),
    ):  # fmt: skip
        row = {name: [value] for name in ("estimate", "low", "high")} | {"std_error": [0.012]}
        found = rounded(release, pa.table({name: row[name] for name in names})).to_pylist()[0]
        if low is None or high is None:
            assert math.isnan(found["low"])
        else:
            assert (found["low"], found["high"]) == (low, high)
            assert math.copysign(1, found["high"]) == math.copysign(1, high)


def test_an_upper_limit_of_zero_is_not_written() -> None:
    shares = [0.0, 3e-6, None, 0.01234]
    found = rounded(counts([1, 2, 3, 4], 0.012), pa.table({"clipped_share": shares}))
    assert found.column("clipped_share").to_pylist() == [1e-4, 1e-4, None, 0.013]


def test_reconciled_totals_add_up_in_csv(tmp_path: Path) -> None:
    table = dg.read(pa.table({"who": [1, 2, 3], "key": [1, 2, 3]}), user="who")
    options = {**OPTIONS, "clip": 1.0, "epsilon": 1.0}
    of_keys = dg.count(table, by="key", domain=[1, 2, 3], **options)
    parts, total = of_keys.reconciled(dg.count(table, **options))
    read = [pyarrow.csv.read_csv(each.write(tmp_path / f"{place}.csv")).column("estimate")
            for place, each in enumerate((parts, total))]  # fmt: skip
    assert sum(read[0].to_pylist()) == pytest.approx(sum(read[1].to_pylist()), rel=1e-12)


def test_means_with_the_largest_counts_are_printed_first() -> None:
    """The largest means are those with the most noise."""
    sizes = {"rare": 30, "usual": 400, "common": 900}
    pages = [page for page, size in sizes.items() for _ in range(size)]
    paid = [90.0] * 30 + [10.0] * 1300
    rows = pa.table({"who": list(range(len(pages))), "page": pages, "paid": paid})
    release = dg.mean(
        dg.read(rows, user="who"), "paid", by="page", bounds=(0, 100), domain=list(sizes), **OPTIONS
    )
    names = release.groups.columns[0].to_pylist()
    assert [names[i] for i in shown(release, 2)] == ["common", "usual"]
