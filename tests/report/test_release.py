"""The page of a release is whole, and its table shows the digits that mean something."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure
from tests.report import cases

import dpgrain as dg
from dpgrain._formatting import rounded_up
from dpgrain.accounting import Gaussian, Selection
from dpgrain.report import report as write_report
from dpgrain.statistics.release_metadata import ReleaseMetadata
from dpgrain.statistics.statistic import MEAN, QUANTILES
from dpgrain.tables.groups import Groups
from dpgrain.words.release_text import PrintedRow, extra_columns, format_rows, shown


def _releases(words: dg.UserTable) -> Iterator[dg.Histogram]:
    domain = ["bro", "hello", "yo"]
    cells = {"bro": "a", "hello": "a", "yo": "b"}
    publish = partial(dg.histogram, words, epsilon=1.0, delta=1e-6)
    yield publish("word", unit=dg.Element("word"), clip=2.0, domain=domain)
    yield publish("word", unit=dg.Element(cells), relation="replace")
    yield publish("word", unit=dg.Element("word"), clip=1.0)
    yield publish("word", unit=dg.Element("n"), clip=1.0, domain=domain)
    yield publish("word", unit=dg.Record(), weight="n", domain=domain)
    yield publish("word", unit=dg.User(), clip=1.0, domain=["yo"])
    yield publish("n", unit=dg.User(max_elements=2), clip=1.0, domain=[1, 2, 3])
    yield publish(
        "n", unit=dg.User(), clip=1.0, domain=[1, 2], epsilon=30.0, delta=0.0, noise="laplace"
    ).without_negatives()


@pytest.mark.slow
def test_every_kind_of_release_has_a_whole_report(words: dg.UserTable, tmp_path: Path) -> None:
    for release in _releases(words):
        page = cases.page(release, tmp_path)
        assert page.startswith("<!DOCTYPE html>")
        assert page.rstrip().endswith("</html>")
        assert "ε = " + rounded_up(release.guarantee.epsilon()) in page
        assert "NOT PRIVATE" not in page
        assert "What is <em>not</em> guaranteed" in page
        for fact in release.guarantee.public:
            assert str(fact).replace("'", "&#39;") in page
        assert "right granularity of privacy" in page
        assert "nan" not in cases.told(page).lower().split()


_KINDS: dict[str, tuple[Callable[[dg.UserTable], dg.Release], list[str]]] = {
    "count by two keys": (
        lambda t: dg.count(
            t,
            by=["shop", "year"],
            domain={"shop": cases.SHOPS, "year": [2023, 2024]},
            **cases.BUDGET,
        ),
        ["A private count of", ": 6 groups.", "Grouped by", "only lowers a sum"],
    ),
    "count": (
        lambda t: dg.count(t, **cases.BUDGET),
        ["A private count of", "contains the <em>sum of clipped contributions</em>", 'class="big"'],
    ),
    "sum": (
        lambda t: dg.sum(
            t, "score", by="shop", domain=cases.SHOPS, bounds=(-10, 100), **cases.BUDGET
        ),
        ["A private sum of", "pulls that sum towards 0", "decide the sign"],
    ),
    "mean": (
        lambda t: dg.mean(
            t, "score", by="shop", domain=cases.SHOPS, bounds=(0, 100), **cases.BUDGET
        ),
        [
            "A private mean of",
            "beyond the bounds (score clamped to [0, 100])",
            "split between two public corners",
            "division by a noisy count",
            "the average record, not the average person",
            "Records, clipped (noisy)",
        ],
    ),
    "one mean": (
        lambda t: dg.mean(t, "score", **cases.BUDGET),
        [
            "which were chosen privately",
            "The mean is computed",
            'class="big"',
            "records (clipped, noisy, standard error",
        ],
    ),
    "variance": (
        lambda t: dg.variance(
            t, "score", by="shop", domain=cases.SHOPS, bounds=(0, 100), **cases.BUDGET
        ),
        ["A private variance of", "split between three public corners", "Records, clipped (noisy)"],
    ),
    "quantiles": (
        lambda t: dg.quantiles(
            t, "score", by="shop", domain=cases.SHOPS, bounds=(0, 100), **cases.BUDGET
        ),
        ["Private quantiles of", "tree of bins", "Each line runs", '<th scope="col">quantile</th>'],
    ),
    "quantile curve": (
        lambda t: dg.quantiles(t, "score", [0.9, 0.1], bounds=(0, 100), **cases.BUDGET),
        ["Private quantiles of", "over their ranks"],
    ),
    "median": (
        lambda t: dg.quantile(t, "score", bounds=(0, 100), **cases.BUDGET),
        ["A private median of", 'class="big"', "quantile 0.5", "50% of the records"],
    ),
    "top by name and count": (
        lambda t: dg.top(t, "shop", unit=dg.Element("shop"), epsilon=2, delta=1e-6),
        [
            "Private top items",
            "with a noisy count above",
            "Only items with",
            "too high by selection",
            "partition selection",
        ],
    ),
    "top by name": (
        lambda t: dg.top(t, "shop", method="gaussian", counts=False, **cases.BUDGET),
        ["do not count people", "noisy weighted count of at least", "too high by selection"],
    ),
    "top of a list": (
        lambda t: dg.top(t, "shop", k=2, method="gumbel", domain=cases.SHOPS, **cases.BUDGET),
        ["chosen from the public list", "Clipping bounds", "top-k selection"],
    ),
    "holdings": (
        lambda t: dg.elements_per_user(t, unit=dg.Element("shop"), epsilon=2, delta=1e-6),
        ["A private count of elements and records", "over 10,000", "3–5", "Nothing was clipped"],
    ),
    "post-processed": (
        lambda t: dg.count(t, by="shop", domain=cases.SHOPS, **cases.BUDGET).consistent(),
        ["Post-processed (consistent)", "approximate"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", _KINDS)
def test_the_words_fit_the_statistic(kind: str, scores: dg.UserTable, tmp_path: Path) -> None:
    make, words = _KINDS[kind]
    release = make(scores)
    page = cases.page(release, tmp_path)
    assert [word for word in words if word not in page] == []
    assert "NOT PRIVATE" not in page
    assert "ε = " + rounded_up(release.guarantee.epsilon()) in page
    assert "<b>south" not in page
    assert "''" not in page.replace("&#39;", "'")
    text = cases.told(page)
    assert "nan" not in text.lower().split()
    assert "None" not in text[: text.index("Mechanisms")]
    assert ("<summary>Clipping bounds</summary>" in page) == (
        type(release) is dg.Histogram and kind not in ("top by name and count", "top by name")
    )
    if len(release) == 1 and release.groups.names in ((), ("quantile",)):
        assert '<table class="estimates">' not in page
        assert 'aria-label="The estimates"' not in page
        assert not re.search(
            r"\bgroups?\b", page[page.index("<h2>Estimate") : page.index('id="guarantee"')]
        )
    else:
        rows = re.search(r'<table class="estimates">(.*?)</table>', page, re.DOTALL)
        assert rows is not None
        assert rows[1].count("<tr>") == 1 + len(release)
        assert rows[1].count("<th ") == len(release.groups.names) + 4 + len(extra_columns(release))
    ax = release.plot(Figure().subplots())
    assert ax.get_figure() is not None


@pytest.mark.slow
def test_rows_with_a_custom_order_retain_it(scores: dg.UserTable, tmp_path: Path) -> None:
    release = dg.quantiles(
        scores, "score", [0.5, 0.9], by="shop", domain=cases.SHOPS, bounds=(0, 100), **cases.BUDGET
    )
    found = re.findall(r'<td class="name">(0\.\d)</td>', cases.page(release, tmp_path))
    assert found == ["0.5", "0.9"] * 3
    held = dg.elements_per_user(
        scores, "year", unit=dg.User(), epsilon=1, edges=[1, 2], noise="laplace"
    )
    rows = re.findall(r'<td class="name">([^<]*)</td>', cases.page(held, tmp_path))
    assert rows[1::2] == ["1", "2", "over 2"] * 2


@pytest.mark.slow
def test_a_million_quantiles_make_no_larger_a_file(tmp_path: Path) -> None:
    size = 1_000_000
    names = pa.array([f"{number // 2:06d}" * 20 for number in range(size)])
    value = np.linspace(0.0, 1.0, size)
    release = dg.Estimates(
        Groups.of(["shop", "quantile"], [names, pa.array(np.tile([0.25, 0.75], size // 2))]),
        value,
        np.full(size, 0.1),
        value - 0.2,
        value + 0.2,
        np.full(size, 9.0),
        cases.histogram(["yo"]).guarantee,
        ReleaseMetadata(QUANTILES, value="score", bounds=(0.0, 1.0)),
    )
    path = write_report(release, tmp_path / "report.html")
    assert path.stat().st_size < 1_000_000
    page = path.read_text(encoding="utf-8")
    assert "999,000 more rows" in page
    assert "First 20 of 500,000 groups" in page


@pytest.mark.slow
def test_the_banner_of_a_seeded_release(words: dg.UserTable, tmp_path: Path) -> None:
    release = dg.histogram(
        words, "word", unit=dg.User(), epsilon=1, delta=1e-6, domain=["yo"], random_state=1
    )
    page = cases.page(release, tmp_path)
    assert '<div class="alarm" role="alert">' in page
    assert "NOT PRIVATE. Do not publish." in page
    assert "<title>NOT PRIVATE" in page
    assert "A private histogram" not in page


def test_a_release_without_items(tmp_path: Path) -> None:
    release = cases.histogram([], Selection(4.0, 60.0, 1) + Gaussian(4.0))
    page = cases.page(release, tmp_path)
    assert "No items were published." in page
    assert "passed the" in page
    assert '<table class="estimates">' not in page


@pytest.mark.slow
def test_a_million_items_make_no_larger_a_file(tmp_path: Path) -> None:
    release = cases.histogram([f"{number:06d}" * 100 for number in range(100_000)])
    path = write_report(release, tmp_path / "report.html")
    assert path.stat().st_size < 1_000_000
    assert "99,000 more items" in path.read_text(encoding="utf-8")


def estimates_of(release: dg.Release, count: int) -> list[PrintedRow]:
    return format_rows(release, shown(release, count), letters=120)


def test_decimals_of_a_table() -> None:
    whole = replace(cases.histogram(["a", "b"]), estimate=np.array([1946.0, 3.0]))
    assert [line.estimate for line in estimates_of(whole, 9)] == ["1,946", "3"]
    assert estimates_of(whole, 9)[0].std_error == "7.2"
    half = replace(whole, estimate=np.array([1946.0, 2.5]))
    assert [line.estimate for line in estimates_of(half, 9)] == ["1,946.0", "2.5"]
    value, error = np.array([9.0, 8, 7, 6]), np.array([0.5, 0.5, 2.0, 1e-5])
    guarantee, asked = whole.guarantee, ReleaseMetadata(MEAN, value="score")
    groups = Groups.of(["shop"], [pa.array(["a", "b", "c", "d"])])
    means = dg.Estimates(groups, value, error, value - 1, value + 1, value, guarantee, asked)
    shown = [line.estimate for line in estimates_of(means, 9)]
    assert shown == ["9.00", "8.00", "7.00", "6.000000"]
