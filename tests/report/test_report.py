"""The report: complete, self-contained, and safe to open whatever the items are called."""

from __future__ import annotations

import html
import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.lines import Line2D

import dpgrain as dg
from dpgrain import learn
from dpgrain._wording import powers, rounded_up
from dpgrain.accounting import Contribution, Gaussian, Laplace, Selection
from dpgrain.learn.summary import coefficients
from dpgrain.planning.floors import least_error_of_records, least_error_of_worlds
from dpgrain.report import write_fit_report, write_report
from dpgrain.report.plots import number, plot_bounds, plot_curve, plot_estimates
from dpgrain.report.plots.coefficients import largest
from dpgrain.report.promises import Odds
from dpgrain.report.release import estimates_of
from dpgrain.report.words import label, printed, shorten
from dpgrain.statistics.asked import Asked, Clip
from dpgrain.statistics.statistic import MEAN, QUANTILES
from dpgrain.tables.groups import Groups
from dpgrain.units import Level

NASTY = [
    "<script>alert(1)</script>",
    "</svg></style><img src=http://evil.example/x onerror=alert(2)>",
    "{{ 7 * 7 }} $\\alpha_{$ &amp; \"quotes\" 'and'",
    "漢字の商品名" * 20,
    "x" * 5000,
    "line\nbreak\x00 \u202ereversed",
    "",
    "   ",
    "🙂 مرحبا",
]


def _histogram(
    items: list[str] | list[int], event: dg.accounting.Event | None = None
) -> dg.Histogram:
    """A release without the work of making one; the noise is secret, as far as the report knows."""
    size = len(items)
    kind = pa.int64() if items and isinstance(items[0], int) else pa.string()
    event = event or Gaussian(3.7306, Contribution(coordinates="one"))
    return dg.Histogram(
        Groups.of(["word"], [pa.array(items, kind)]),
        np.linspace(300.0, -20.0, size) if size else np.zeros(0),
        np.full(size, 7.25),
        np.full(size, 2.0),
        dg.Guarantee("element", "'word'", "zero_out", 1e-5, event, ("the list of items",)),
        Asked(title="words.parquet", by=("word",), clip=Clip(2.0)),
    )


def _page(release: dg.Release, folder: Path) -> str:
    return write_report(release, folder / "report.html").read_text(encoding="utf-8")


class _Loads(HTMLParser):
    """Everything in a page that could load or run something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "srcset", "data", "action"):
                self.references.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)


@pytest.fixture
def words() -> dg.UserTable:
    rows = {"who": [1, 1, 2, 3], "word": ["yo", "yo", "bro", "yo"], "n": [1, 2, 3, 4]}
    return dg.read(pa.table(rows), user="who")


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


def test_every_kind_of_release_has_a_whole_report(words: dg.UserTable, tmp_path: Path) -> None:
    for release in _releases(words):
        page = _page(release, tmp_path)
        assert page.startswith("<!DOCTYPE html>")
        assert page.rstrip().endswith("</html>")
        assert "ε = " + rounded_up(release.guarantee.epsilon()) in page
        assert "NOT PRIVATE" not in page
        assert "What is <em>not</em> promised" in page
        for fact in release.guarantee.public:
            assert fact.replace("'", "&#39;") in page
        assert "right granularity of privacy" in page
        assert "nan" not in re.sub(r"<[^>]*>", "", page).lower().split()


@pytest.fixture(scope="module")
def scores() -> dg.UserTable:
    generator = np.random.default_rng(5)
    size = 4000
    rows = {
        "who": np.arange(size) % 800,
        "shop": generator.choice(["north", "<b>south</b>", "{{ east }}"], size),
        "year": generator.choice([2023, 2024], size),
        "score": generator.normal(60, 15, size),
    }
    return dg.read(pa.table(rows), user="who", n_users=800)


_BUDGET: dict[str, Any] = {"unit": dg.User(), "epsilon": 2.0, "delta": 1e-6}
_SHOPS = ["north", "<b>south</b>", "{{ east }}"]
_KINDS: dict[str, tuple[Callable[[dg.UserTable], dg.Release], list[str]]] = {
    "count by two keys": (
        lambda t: dg.count(
            t, by=["shop", "year"], domain={"shop": _SHOPS, "year": [2023, 2024]}, **_BUDGET
        ),
        ["A private count of", "Groups published", "Grouped by", "lowers that sum"],
    ),
    "count": (
        lambda t: dg.count(t, **_BUDGET),
        ["A private count of", "for the <em>sum of clipped contributions</em>", 'class="big"'],
    ),
    "sum": (
        lambda t: dg.sum(t, "score", by="shop", domain=_SHOPS, bounds=(-10, 100), **_BUDGET),
        ["A private sum of", "pulls that sum towards 0", "decide the sign"],
    ),
    "mean": (
        lambda t: dg.mean(t, "score", by="shop", domain=_SHOPS, bounds=(0, 100), **_BUDGET),
        [
            "A private mean of",
            "cut off at the bounds (score between 0 and 100)",
            "split between two public corners",
            "divides by a noisy count",
            "Intervals cover the noise only",
            "Records (noisy)",
        ],
    ),
    "one mean": (
        lambda t: dg.mean(t, "score", **_BUDGET),
        ["which were found privately", "The mean is computed", 'class="big"', "records (noisy)"],
    ),
    "variance": (
        lambda t: dg.variance(t, "score", by="shop", domain=_SHOPS, bounds=(0, 100), **_BUDGET),
        ["A private variance of", "split between three public corners", "Records (noisy)"],
    ),
    "quantiles": (
        lambda t: dg.quantiles(t, "score", by="shop", domain=_SHOPS, bounds=(0, 100), **_BUDGET),
        ["Private quantiles of", "tree of bins", "Each line runs", '<th scope="col">quantile</th>'],
    ),
    "quantile curve": (
        lambda t: dg.quantiles(t, "score", [0.9, 0.1], bounds=(0, 100), **_BUDGET),
        ["Private quantiles of", "over their ranks"],
    ),
    "median": (
        lambda t: dg.quantile(t, "score", bounds=(0, 100), **_BUDGET),
        ["A private median of", 'class="big"', "quantile 0.5", "50% of the records"],
    ),
    "top by name and count": (
        lambda t: dg.top(t, "shop", unit=dg.Element("shop"), epsilon=2, delta=1e-6),
        [
            "Private top items",
            "with a noisy count above",
            "Items below that are not published",
            "too high by selection",
            "partition selection",
        ],
    ),
    "top by name": (
        lambda t: dg.top(t, "shop", method="gaussian", counts=False, **_BUDGET),
        ["no\nnumbers of people", "noisy weighted count of at least", "too high by selection"],
    ),
    "top of a list": (
        lambda t: dg.top(t, "shop", k=2, method="gumbel", domain=_SHOPS, **_BUDGET),
        ["chosen from the public list", "Clipping bounds", "top-k selection"],
    ),
    "holdings": (
        lambda t: dg.elements_per_user(t, unit=dg.Element("shop"), epsilon=2, delta=1e-6),
        ["A private count of elements and records", "over 10,000", "3–5", "Nothing was clipped"],
    ),
    "post-processed": (
        lambda t: dg.count(t, by="shop", domain=_SHOPS, **_BUDGET).consistent(),
        ["They were post-processed (consistent)", "approximate"],
    ),
}


@pytest.mark.parametrize("kind", _KINDS)
def test_the_words_fit_the_statistic(kind: str, scores: dg.UserTable, tmp_path: Path) -> None:
    make, words = _KINDS[kind]
    release = make(scores)
    page = _page(release, tmp_path)
    assert [word for word in words if word not in page] == []
    assert "NOT PRIVATE" not in page
    assert "ε = " + rounded_up(release.guarantee.epsilon()) in page
    assert "<b>south" not in page
    assert "''" not in page.replace("&#39;", "'")
    text = re.sub(r"<[^>]*>", " ", page)
    assert "nan" not in text.lower().split()
    assert "None" not in text[: text.index("What happened")]
    assert ("<h2>Clipping bounds</h2>" in page) == (
        type(release) is dg.Histogram and kind not in ("top by name and count", "top by name")
    )
    if len(release) == 1 and release.groups.names in ((), ("quantile",)):
        assert '<table class="estimates">' not in page
        assert 'aria-label="The estimates"' not in page
        assert not re.search(r"\bgroups?\b", page[page.index("<h2>Estimate") :])
    else:
        rows = re.search(r'<table class="estimates">(.*?)</table>', page, re.DOTALL)
        assert rows is not None
        assert rows[1].count("<tr>") == 1 + len(release)
        assert rows[1].count("<th ") == len(release.groups.names) + 4 + len(release.more)
    ax = release.plot(Figure().subplots())
    assert ax.get_figure() is not None


def test_rows_with_an_order_of_their_own_keep_it(scores: dg.UserTable, tmp_path: Path) -> None:
    release = dg.quantiles(
        scores, "score", [0.5, 0.9], by="shop", domain=_SHOPS, bounds=(0, 100), **_BUDGET
    )
    found = re.findall(r'<td class="name">(0\.\d)</td>', _page(release, tmp_path))
    assert found == ["0.5", "0.9"] * 3
    held = dg.elements_per_user(
        scores, "year", unit=dg.User(), epsilon=1, edges=[1, 2], noise="laplace"
    )
    rows = re.findall(r'<td class="name">([^<]*)</td>', _page(held, tmp_path))
    assert rows[1::2] == ["1", "2", "over 2"] * 2


@pytest.mark.parametrize("column", [0, 1])
def test_names_in_any_key_are_text(column: int, tmp_path: Path) -> None:
    release = _histogram(NASTY)
    keys = [pa.array(["plain"] * len(NASTY))] * 2
    keys[column] = release.items
    names = ["<i>a</i>", "<script>b</script>"]
    page = _page(replace(release, groups=Groups.of(names, keys)), tmp_path)
    found = _Loads()
    found.feed(page)
    assert not {"script", "img", "i"} & set(found.tags)
    assert found.handlers == []
    assert "&lt;script&gt;alert(1)" in page
    assert "&lt;i&gt;a&lt;/i&gt;</th>" in page
    assert "\u202e" not in page


@pytest.mark.parametrize("intervals", [0.0, 0.2])
def test_a_feature_may_be_called_an_intercept(intervals: float) -> None:
    X = np.random.default_rng(0).normal(size=(90, 2))
    frame = pd.DataFrame(X, columns=["price: intercept", "intercept"])
    labels = np.array(["a", "b", "c"])[np.arange(90) % 3]
    model = learn.LogisticRegression(
        rounds=2, n_users=90, classes=["a", "b", "c"], intervals=intervals, random_state=0
    )
    rows = coefficients(model.fit(frame, labels)).rows
    assert [row.intercept for row in rows] == [False, False, True] * 3
    assert len(largest(coefficients(model))) == 6


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
        _histogram(["yo"]).guarantee,
        Asked(QUANTILES, value="score", bounds=(0.0, 1.0)),
    )
    path = write_report(release, tmp_path / "report.html")
    assert path.stat().st_size < 1_000_000
    page = path.read_text(encoding="utf-8")
    assert "999,900 more rows" in page
    assert "first 30 of 500,000 groups" in page


class TestHoldings:
    def _holdings(
        self, table: dg.UserTable, unit: dg.Element | dg.User, **more: Any
    ) -> dg.Holdings:
        budget: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-7, **more}
        return dg.elements_per_user(table, "year", unit=unit, **budget)

    def _release(self, table: dg.UserTable, **more: Any) -> dg.Histogram:
        unit = more.pop("unit", dg.Element("year"))
        return dg.count(table, by="year", unit=unit, epsilon=1, delta=1e-6, clip=9.0, **more)

    def test_they_stand_beside_the_curve(self, scores: dg.UserTable, tmp_path: Path) -> None:
        release = self._release(scores, domain=list(range(2000, 2030)))
        holdings = self._holdings(scores, dg.Element("year"))
        path = release.report(tmp_path / "r.html", holdings)
        page = path.read_text(encoding="utf-8")
        line = r"at most (\d+) elements<small>([\d.]+)% of users \(noisy\)</small></th>"
        shares = dict(re.findall(line, page))
        assert list(shares) == ["5", "20"]
        share = shares["5"]
        assert float(share) == pytest.approx(100 * holdings.share_at_most(5), abs=0.5)
        assert f"about {share}% hold at most 5 elements" in page
        assert page.count("users with at most so many") == 2
        assert "from a second release (below)" in page
        both = release.guarantee + holdings.guarantee
        for promise in (release.guarantee, holdings.guarantee, both):
            assert html.escape(str(promise)).replace("&#x27;", "&#39;") in page
        assert f"ε = {rounded_up(both.epsilon())} at δ = {powers(both.delta)}" in page

    def test_they_must_be_of_the_same_partition(self, scores: dg.UserTable, tmp_path: Path) -> None:
        release = self._release(scores, domain=[2023, 2024])
        with pytest.raises(dg.ParameterError, match="partition"):
            release.report(tmp_path / "r.html", self._holdings(scores, dg.User()))
        with pytest.raises(dg.ParameterError, match="elements_per_user"):
            write_report(release, tmp_path / "r.html", release)  # type: ignore[arg-type]
        assert not list(tmp_path.iterdir())

    def test_promises_of_other_relations_are_not_added(
        self, scores: dg.UserTable, tmp_path: Path
    ) -> None:
        release = self._release(scores, domain=[2023, 2024])
        holdings = self._holdings(scores, dg.Element("year"), relation="replace")
        page = release.report(tmp_path / "r.html", holdings).read_text(encoding="utf-8")
        assert "are not added up here" in page
        assert html.escape(str(holdings.guarantee)).replace("&#x27;", "&#39;") in page

    def test_seeded_holdings_sound_the_alarm(self, scores: dg.UserTable, tmp_path: Path) -> None:
        release = self._release(scores, domain=[2023, 2024])
        holdings = self._holdings(scores, dg.Element("year"), random_state=1)
        page = release.report(tmp_path / "r.html", holdings).read_text(encoding="utf-8")
        assert "<title>NOT PRIVATE" in page
        assert "NOT PRIVATE. Do not publish." in page
        assert "A private count" in page

    def test_without_elements_the_records_are_told(
        self, scores: dg.UserTable, tmp_path: Path
    ) -> None:
        release = self._release(scores, domain=[2023, 2024], unit=dg.User())
        holdings = self._holdings(scores, dg.User())
        page = release.report(tmp_path / "r.html", holdings).read_text(encoding="utf-8")
        assert "hold at most 5 records" in page

    @pytest.mark.parametrize("unit", [dg.Record(), dg.Element("year")])
    def test_a_flat_curve_is_told_as_one(
        self, unit: dg.Record | dg.Element, scores: dg.UserTable, tmp_path: Path
    ) -> None:
        holdings = dg.elements_per_user(scores, "year", unit=unit, epsilon=1, delta=1e-6)
        page = _page(holdings, tmp_path)
        assert "as well, however many they are" in page
        assert "the promise for all of them wears off" not in page
        assert "the less is promised" not in page
        page = _page(self._release(scores, unit=unit, domain=[2023, 2024]), tmp_path)
        assert "as well, however many they are" not in page
        assert "the promise for all of them wears off" in page or "the less is promised" in page

    def test_too_few_users_have_no_shares(self, words: dg.UserTable, tmp_path: Path) -> None:
        release = dg.count(words, by="word", unit=dg.Element("word"), epsilon=1, delta=1e-6)
        holdings = dg.elements_per_user(words, unit=dg.Element("word"), epsilon=0.01, delta=1e-6)
        estimate = np.zeros(len(holdings))
        holdings = replace(holdings, estimate=estimate)
        page = release.report(tmp_path / "r.html", holdings).read_text(encoding="utf-8")
        assert "too few to be told from the noise" in page
        assert "of users (noisy)" not in page
        assert "users with at most so many" not in page


def test_the_sentence_of_the_guarantee_is_in_it(tmp_path: Path) -> None:
    release = _histogram(["yo", "bro"])
    assert str(release.guarantee).replace("'", "&#39;") in _page(release, tmp_path)


def test_it_loads_nothing_and_runs_nothing(tmp_path: Path) -> None:
    page = _page(_histogram(NASTY), tmp_path)
    found = _Loads()
    found.feed(page)
    assert not {"script", "img", "link", "iframe", "object", "base"} & set(found.tags)
    assert found.handlers == []
    assert all(reference.startswith("#") for reference in found.references)
    assert "url(http" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_names_of_items_are_text(tmp_path: Path) -> None:
    page = _page(_histogram(NASTY), tmp_path)
    assert "<script" not in page
    assert "onerror=alert(2)>" not in page
    # In the table and in both drawings.
    assert page.count("&lt;script&gt;alert(1)") == 3
    assert "<!--" not in page
    assert "{{ 7 * 7 }} $\\alpha_{$ &amp;amp;" in page
    assert "\u202e" not in page
    assert "x" * 121 not in page


def test_the_banner_of_a_seeded_release(words: dg.UserTable, tmp_path: Path) -> None:
    release = dg.histogram(
        words, "word", unit=dg.User(), epsilon=1, delta=1e-6, domain=["yo"], random_state=1
    )
    page = _page(release, tmp_path)
    assert '<div class="alarm" role="alert">' in page
    assert "NOT PRIVATE. Do not publish." in page
    assert "<title>NOT PRIVATE" in page
    assert "A private histogram" not in page


def test_a_release_without_items(tmp_path: Path) -> None:
    release = _histogram([], Selection(4.0, 60.0, 1) + Gaussian(4.0))
    page = _page(release, tmp_path)
    assert "No items were published." in page
    assert "passed the" in page
    assert '<table class="estimates">' not in page


def test_a_million_items_make_no_larger_a_file(tmp_path: Path) -> None:
    release = _histogram([f"{number:06d}" * 100 for number in range(100_000)])
    path = write_report(release, tmp_path / "report.html")
    assert path.stat().st_size < 1_000_000
    assert "99,900 more items" in path.read_text(encoding="utf-8")


def test_integer_items(tmp_path: Path) -> None:
    page = _page(_histogram([17, -3]), tmp_path)
    assert '<td class="name">17</td>' in page
    assert '<td class="name">-3</td>' in page


def test_a_delta_is_told_as_one_in_so_many(tmp_path: Path) -> None:
    release = _histogram(["yo"])
    release = replace(release, guarantee=replace(release.guarantee, delta=1e-9))
    assert "that is 1 in 1,000,000,000, for" in _page(release, tmp_path)


def test_a_promise_that_is_none_says_so(tmp_path: Path) -> None:
    page = _page(_histogram(["yo"]), tmp_path)
    assert "∞ (no promise)" in page
    lost = _histogram(["yo"], Gaussian(1.0, Contribution(block="record")))
    assert "At this δ nothing is promised." in _page(lost, tmp_path)


def test_bounds_that_differ_are_drawn(tmp_path: Path) -> None:
    release = _histogram(["a", "b", "c"])
    assert "The clipping bounds" not in _page(release, tmp_path)
    page = _page(replace(release, clip=np.array([0.001, 2.0, 8.0])), tmp_path)
    assert "The clipping bounds" in page
    assert "<strong>0.001</strong>" in page


@pytest.mark.parametrize("place", ["missing/report.html", "folder"])
def test_no_file_is_left_where_it_cannot_be_written(place: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(dg.DataError, match="cannot be written"):
        write_report(_histogram(["yo"]), tmp_path / place)
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


def test_a_failure_while_drawing_leaves_the_old_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def broken(release: dg.Release, holdings: dg.Holdings | None) -> str:
        raise RuntimeError(release)

    monkeypatch.setattr("dpgrain.report.release.release_page", broken)
    with pytest.raises(RuntimeError):
        write_report(_histogram(["yo"]), path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_a_saved_release_has_the_same_report(tmp_path: Path) -> None:
    release = _histogram(["yo", "bro"])
    before = _page(release, tmp_path)
    assert _page(dg.Histogram.load(release.save(tmp_path / "r.parquet")), tmp_path) == before


def test_the_guarantee_can_be_read_back_from_the_page(tmp_path: Path) -> None:
    release = _histogram(["yo"])
    page = _page(release, tmp_path)
    text = re.search(r"for an audit</summary>\s*<pre>(.*?)</pre>", page, re.DOTALL)
    assert text is not None
    read = dg.Guarantee.from_dict(json.loads(html.unescape(text[1])))
    assert read == release.guarantee


def test_the_report_does_not_touch_pyplot(tmp_path: Path) -> None:
    _histogram(["yo"]).save(tmp_path / "r.parquet")
    code = (
        "import sys, dpgrain as dg; "
        f"dg.Histogram.load({str(tmp_path / 'r.parquet')!r}).report({str(tmp_path / 'r.html')!r}); "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class TestOdds:
    def test_the_odds_of_one(self) -> None:
        odds = Odds(1.0, 1e-6)
        assert odds.factor == "2.72"
        assert (odds.after(0.5), odds.after(0.01)) == ("73.2%", "2.7%")
        # e·0.05 + 10⁻⁶ = 0.135915…
        assert odds.caught(0.05) == "13.6%"

    def test_the_other_line_binds_at_large_epsilon(self) -> None:
        # e³·0.05 > 1, but 1 − e^{−3}·0.95 = 0.952702…
        assert Odds(3.0, 0.0).caught(0.05) == "95.3%"

    def test_the_best_test_of_a_gaussian_stays_below(self) -> None:
        from scipy.stats import norm

        mu, delta = 0.7, 1e-5
        epsilon = Gaussian(1 / mu).epsilon(delta)
        power = norm.sf(norm.isf(0.05) - mu)
        assert power * 100 < float(Odds(epsilon, delta).caught(0.05).rstrip("%"))

    def test_no_bound(self) -> None:
        assert Odds(math.inf, 0.0).factor == "no limit"
        assert Odds(800.0, 0.0).after(0.01) == "100%"
        assert Odds(800.0, 0.0).caught(0.05) == "100%"


class TestNumbers:
    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            (0.07, "0.07"),
            (1.0, "1"),
            (1.00001, "1.001"),
            (123.41, "123.5"),
            (12341.0, "12,350"),
            (0.0, "0"),
            (1e-7, "1.000e-7"),
            (math.inf, "∞"),
        ],
    )
    def test_rounded_up(self, value: float, shown: str) -> None:
        assert rounded_up(value) == shown

    def test_small_numbers_as_powers(self) -> None:
        assert [powers(v) for v in (1e-6, 2.5e-10, 0.01, 0)] == ["10⁻⁶", "2.5·10⁻¹⁰", "0.01", "0"]

    def test_decimals_of_a_table(self) -> None:
        whole = replace(_histogram(["a", "b"]), estimate=np.array([1946.0, 3.0]))
        assert [line.estimate for line in estimates_of(whole, 9)] == ["1,946", "3"]
        assert estimates_of(whole, 9)[0].std_error == "7.2"
        half = replace(whole, estimate=np.array([1946.0, 2.5]))
        assert [line.estimate for line in estimates_of(half, 9)] == ["1,946.0", "2.5"]
        value, error = np.array([9.0, 8, 7, 6]), np.array([0.5, 0.5, 2.0, 1e-5])
        guarantee, asked = whole.guarantee, Asked(MEAN, value="score")
        groups = Groups.of(["shop"], [pa.array(["a", "b", "c", "d"])])
        means = dg.Estimates(groups, value, error, value - 1, value + 1, value, guarantee, asked)
        shown = [line.estimate for line in estimates_of(means, 9)]
        assert shown == ["9.00", "8.00", "7.00", "6.000000"]

    def test_no_negative_zero(self) -> None:
        assert number(-0.001, 1) == "0.0"
        assert number(-1234.56, 1) == "−1,234.6"

    def test_names(self) -> None:
        assert printed("a\tb\x00\u202ec") == "a\\tb\\x00\\u202ec"
        assert printed("") == "''"
        assert printed(7) == "7"
        assert shorten("abcdef", 6) == "abcdef"
        assert shorten("abcdefg", 6) == "abcde…"
        assert shorten("漢字漢字", 6) == "漢字…"


def _x(line: Line2D) -> list[float]:
    return [float(value) for value in np.asarray(line.get_xdata())]


def _y(line: Line2D) -> list[float]:
    return [float(value) for value in np.asarray(line.get_ydata())]


class TestPlots:
    def test_estimates_are_at_their_places(self) -> None:
        release = _histogram(["a $x$", "b", "c"])
        ax = plot_estimates(release, Figure().subplots(), top=2)
        assert [label.get_text() for label in ax.get_yticklabels()] == ["a $x$", "b"]
        assert _x(ax.lines[0]) == [300.0, 140.0]
        assert "estimate (records)" in ax.get_xlabel()

    def test_two_keys_share_a_label(self) -> None:
        release = _histogram(["a", "b"])
        keys = [release.items, pa.array([2023, 2024])]
        release = replace(release, groups=Groups.of(["word", "year"], keys))
        ax = plot_estimates(release, Figure().subplots())
        assert [tick.get_text() for tick in ax.get_yticklabels()] == ["a · 2023", "b · 2024"]

    def test_keys_share_the_letters_of_a_label(self) -> None:
        assert label(["North Western Region", "0-35"], 40) == "North Western Region · 0-35"
        assert label(["North Western Region", "0-35"], 19) == "North Weste… · 0-35"
        assert label(["0-35", "North Western Region"], 19) == "0-35 · North Weste…"
        assert label(["a" * 30, "b" * 30], 19) == "aaaaaaa… · bbbbbbb…"
        assert label(["a" * 30], 19) == "a" * 18 + "…"

    def test_quantiles_stay_in_the_given_order(self, scores: dg.UserTable) -> None:
        ranks = [0.9, 0.5]
        release = dg.quantiles(
            scores, "score", ranks, by="shop", domain=_SHOPS, bounds=(0, 100), **_BUDGET
        )
        ax = plot_estimates(release, Figure().subplots(), top=2)
        assert [tick.get_text() for tick in ax.get_yticklabels()] == _SHOPS[:2]
        assert [_x(line) for line in ax.lines] == [
            [float(release.estimate[row + rank]) for row in (0, 2)] for rank in (0, 1)
        ]
        over = dg.quantiles(scores, "score", ranks, bounds=(0, 100), **_BUDGET)
        ax = plot_estimates(over, Figure().subplots())
        assert _x(ax.lines[0]) == [0.5, 0.9]
        assert _y(ax.lines[0]) == [float(over.estimate[1]), float(over.estimate[0])]

    def test_one_number_is_written(self, scores: dg.UserTable) -> None:
        release = dg.mean(scores, "score", bounds=(0, 100), **_BUDGET)
        ax = release.plot(Figure().subplots())
        assert not ax.lines
        shown = [text.get_text() for text in ax.texts]
        assert float(shown[0]) == pytest.approx(release.value, abs=0.06)
        assert shown[1] == "mean of score"
        assert shown[2].startswith("95% interval ")

    def test_means_are_not_drawn_from_zero(self, scores: dg.UserTable) -> None:
        release = dg.mean(
            scores, "score", by="year", domain=[2023, 2024], bounds=(0, 100), **_BUDGET
        )
        ax = release.plot(Figure().subplots())
        assert ax.get_xlim()[0] > 0
        assert "mean of score" in ax.get_xlabel()

    @pytest.mark.parametrize("units", [0, 1.5])
    def test_wrong_numbers_are_refused(self, units: int) -> None:
        release = _histogram(["a"])
        with pytest.raises(dg.ParameterError, match="top"):
            plot_estimates(release, Figure().subplots(), top=units)
        with pytest.raises(dg.ParameterError, match="max_units"):
            plot_curve(release.guarantee, Figure().subplots(), max_units=units)

    def test_the_curve_is_the_guarantee(self) -> None:
        event = Gaussian(3.7306, Contribution(coordinates="nonnegative"))
        promise = dg.Guarantee("element", "'word'", "replace", 1e-5, event)
        ax = plot_curve(promise, Figure().subplots(), max_units=20)
        removed, exchanged = ax.lines
        assert _x(removed) == [1, 2, 5, 10, 20]
        assert _y(removed)[0] == pytest.approx(1.0, abs=1e-3)
        assert _y(exchanged)[-1] == promise.epsilon(units=20)

    def test_the_curve_ends_at_the_cells(self) -> None:
        event = Gaussian(3.0, Contribution(cells=7))
        promise = dg.Guarantee("element", "'word'", "zero_out", 1e-5, event)
        ax = plot_curve(promise, Figure().subplots())
        assert _x(ax.lines[0]) == [1, 2, 5, 7]

    def test_the_curve_stops_where_nothing_is_promised(self) -> None:
        event = Selection(4.0, 22.0, 1) + Gaussian(4.0)
        promise = dg.Guarantee("element", "'word'", "zero_out", 1e-6, event)
        last = [k for k in (1, 2, 5, 10, 20, 50) if math.isfinite(promise.epsilon(units=k))][-1]
        ax = plot_curve(promise, Figure().subplots())
        drawn = np.array(_x(ax.lines[0]))[np.isfinite(_y(ax.lines[0]))]
        assert drawn[-1] == last < 50
        assert "no promise from" in str(ax.lines[0].get_label())

    def test_shares_of_users_stand_on_an_axis_of_their_own(self, scores: dg.UserTable) -> None:
        unit = dg.Element("year")
        holdings = dg.elements_per_user(
            scores, "year", unit=unit, edges=[1, 2, 7, 300], epsilon=9, delta=1e-6
        )
        event = Gaussian(3.7306, Contribution(coordinates="nonnegative"))
        promise = dg.Guarantee("element", "the column 'year'", "zero_out", 1e-5, event)
        figure = Figure()
        ax = plot_curve(promise, figure.subplots(), max_units=20, holdings=holdings)
        assert len(ax.lines) == 2
        (shares,) = figure.axes[1].lines
        assert _x(shares) == [1, 2, 7]
        assert _y(shares) == [holdings.share_at_most(edge) for edge in (1, 2, 7)]
        legend = ax.get_legend()
        assert legend is not None
        assert shares.get_label() in [text.get_text() for text in legend.get_texts()]

    @pytest.mark.parametrize(("level", "shares"), [("record", 1), ("user", 0)])
    def test_shares_are_of_what_the_curve_counts(
        self, level: Level, shares: int, scores: dg.UserTable
    ) -> None:
        holdings = dg.elements_per_user(scores, "year", unit=dg.User(), epsilon=9, delta=1e-6)
        event = Gaussian(3.0, Contribution(block=level))
        figure = Figure()
        promise = dg.Guarantee(level, "", "zero_out", 1e-5, event)
        plot_curve(promise, figure.subplots(), max_units=10, holdings=holdings)
        drawn = [_y(line) for ax in figure.axes[1:] for line in ax.lines]
        of_records = [holdings.share_at_most(edge, "records") for edge in (1, 2, 5, 10)]
        assert drawn == [of_records] * shares

    def test_equal_curves_are_drawn_once(self) -> None:
        ax = plot_curve(_histogram(["a"]).guarantee, Figure().subplots())
        assert [line.get_label() for line in ax.lines] == ["removed or exchanged"]

    def test_a_curve_without_noise_or_without_promise(self) -> None:
        for event in (Gaussian(1e9), Laplace(1e9), Gaussian(1.0, Contribution(block="record"))):
            promise = dg.Guarantee("element", "'word'", "zero_out", 1e-5, event)
            figure = Figure()
            plot_curve(promise, figure.subplots())
            figure.canvas.draw_idle()

    def test_bounds_are_all_counted(self) -> None:
        release = replace(_histogram(["a", "b", "c"]), clip=np.array([0.001, 2.0, 2.0]))
        ax = plot_bounds(release, Figure().subplots())
        heights = [patch.get_height() for patch in ax.patches]  # type: ignore[attr-defined]
        assert sum(heights) == 3

    def test_without_axes_a_notebook_shows_it(self) -> None:
        import matplotlib as mpl

        mpl.use("agg")
        from matplotlib import pyplot as plt

        before = plt.get_fignums()
        ax = _histogram(["a"]).plot()
        assert len(plt.get_fignums()) == len(before) + 1
        plt.close(ax.get_figure(root=True))


LIMITED: dict[str, dict[str, object]] = {
    "whole users": {},
    "drawn": {"sampling_rate": 0.3},
    "a stated roster": {"n_users": 40, "elements_per_user": 0.8},
    "with intervals": {"intervals": 0.2, "elements_per_user": "auto"},
}


class TestLimitsOfAFit:
    @staticmethod
    def fitted(**options: object) -> learn.LinearRegression:
        rows = np.random.default_rng(7).normal(size=(120, 3))
        users = np.repeat(np.arange(40), 3)
        asked: dict[str, Any] = {"rounds": 4, "epsilon": 0.2, "relation": "replace", **options}
        return learn.LinearRegression(**asked).fit(rows, rows[:, 0], users=users)

    @pytest.mark.parametrize("options", LIMITED.values(), ids=LIMITED)
    def test_the_page_tells_the_floors(self, options: dict[str, object], tmp_path: Path) -> None:
        model = self.fitted(**options)
        page = write_fit_report(model, tmp_path / "fit.html").read_text(encoding="utf-8")
        part = page[page.index("<h2>Limits</h2>") : page.index("<h2>What was public</h2>")]
        # What sums were divided by: as stated, or as released.
        n = model.n_users_
        assert f"for {n:,} users" in part
        cells = [re.findall(r'<td class="number">([^<]*)', row) for row in part.split("<tr>")[2:]]
        assert [row[0] for row in cells] == ["1", "10", "100", "any number"]
        epsilon, history = model.guarantee_.epsilon(), model.history_
        # Four coordinates, with the intercept, and the rounds with this clipping bound.
        noise = history.noise_sd * 2 / history.clip / math.sqrt(model.n_iter_)
        for records, row in zip((1, 10, 100), cells, strict=False):
            floor = least_error_of_records(
                epsilon, 1e-6, n, records=records, dimension=4, relation="replace"
            )
            assert float(row[2]) == pytest.approx(floor, rel=1e-3)
            assert float(row[3]) == pytest.approx(noise / floor, rel=1e-2)
            order = 2 / (n * epsilon * math.sqrt(records))
            assert float(row[1].removeprefix("order of ")) == pytest.approx(order, rel=0.34)
        always = 2 * math.sqrt(least_error_of_worlds(epsilon, 1e-6, n, relation="replace"))
        assert float(cells[3][2]) == pytest.approx(always, rel=1e-3)
        assert cells[3][1] == "–"

    def test_other_fits_have_none(self, tmp_path: Path) -> None:
        page = write_fit_report(self.fitted(unit=dg.Record()), tmp_path / "fit.html")
        assert "<h2>Limits</h2>" not in page.read_text(encoding="utf-8")


CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


def _chromium(page: Path, width: int, folder: Path, *arguments: str) -> str:
    assert CHROMIUM is not None
    quiet = "gpu quic background-networking component-update sync extensions"
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--no-first-run",
        *(f"--disable-{name}" for name in quiet.split()),
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={width},2000",
        *arguments,
        page.as_uri(),
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


# A page that holds the report in a frame of some width and writes down how it was laid out.
_ASK = """<!DOCTYPE html><body><iframe style="width:{width}px; height:9000px; border:0" srcdoc="{page}">
</iframe><script>addEventListener("load", () => {{
  const page = document.querySelector("iframe").contentDocument;
  const shown = [...page.querySelectorAll(".plot")].filter(e => e.getClientRects().length);
  const letters = shown.flatMap(e => [...e.querySelectorAll("text")]);
  const told = document.body.dataset;
  told.overflow = page.documentElement.scrollWidth - {width};
  told.table = page.querySelector(".estimates").offsetWidth;
  told.plots = shown.map(e => e.className.split(" ")[1]).join(",");
  told.letter = Math.min(...letters.map(e => e.getBoundingClientRect().height));
  told.names = [...page.querySelectorAll(".estimates .name")].map(e => e.textContent).join("|");
  told.images = page.images.length;
}})</script></body>"""


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize(("width", "kind"), [(1400, "wide"), (390, "narrow")])
def test_the_report_in_a_browser(width: int, kind: str, tmp_path: Path) -> None:
    release = replace(_histogram(NASTY), clip=np.geomspace(0.001, 50.0, len(NASTY)))
    path = write_report(release, tmp_path / "report.html")
    asking = tmp_path / "asking.html"
    page = html.escape(path.read_text(encoding="utf-8"))
    asking.write_text(_ASK.format(width=width, page=page), encoding="utf-8")

    dom = _chromium(asking, 1500, tmp_path, "--dump-dom")
    # The frame's own text comes first; what was written down is on the body.
    told = dict(re.findall(r'data-(\w+)="([^"]*)"', dom[: dom.index("<iframe")]))
    assert float(told["overflow"]) <= 0
    assert float(told["table"]) > 300
    assert told["plots"] == ",".join([kind] * 3)
    assert float(told["letter"]) >= 9
    assert told["images"] == "0"
    assert html.unescape(told["names"]).split("|")[0] == NASTY[0]

    picture = tmp_path / "report.png"
    _chromium(path, width, tmp_path, f"--screenshot={picture}", "--hide-scrollbars")
    shades = imread(picture)
    assert shades.shape[1] == width
    # Something was painted: paper and ink.
    assert shades[..., :3].min() < 0.3 < 0.9 < shades[..., :3].max()
