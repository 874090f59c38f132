"""The report: complete, self-contained, and safe to open whatever the items are called."""

from __future__ import annotations

import html
import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.lines import Line2D

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian, Laplace, Selection
from dpgrain.data.groups import Groups
from dpgrain.report import _Odds, write_report
from dpgrain.report.plots import number, plot_bounds, plot_curve, plot_estimates
from dpgrain.report.words import printed, shorten
from dpgrain.wording import powers, rounded_up

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
        {"table": "words.parquet", "item": "word", "weight": "1 for each record", "clip": "2"},
    )


def _page(release: dg.Histogram, folder: Path) -> str:
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

    monkeypatch.setattr("dpgrain.report._page", broken)
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
        odds = _Odds(1.0, 1e-6)
        assert odds.factor == "2.72"
        assert (odds.after(0.5), odds.after(0.01)) == ("73.2%", "2.7%")
        # e·0.05 + 10⁻⁶ = 0.135915…
        assert odds.caught(0.05) == "13.6%"

    def test_the_other_line_binds_at_large_epsilon(self) -> None:
        # e³·0.05 > 1, but 1 − e^{−3}·0.95 = 0.952702…
        assert _Odds(3.0, 0.0).caught(0.05) == "95.3%"

    def test_the_best_test_of_a_gaussian_stays_below(self) -> None:
        from scipy.stats import norm

        mu, delta = 0.7, 1e-5
        epsilon = Gaussian(1 / mu).epsilon(delta)
        power = norm.sf(norm.isf(0.05) - mu)
        assert power * 100 < float(_Odds(epsilon, delta).caught(0.05).rstrip("%"))

    def test_no_bound(self) -> None:
        assert _Odds(math.inf, 0.0).factor == "no limit"
        assert _Odds(800.0, 0.0).after(0.01) == "100%"
        assert _Odds(800.0, 0.0).caught(0.05) == "100%"


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
