"""Notebook output of a release and of a guarantee: picture, rows, sentence; names are escaped."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report import cases

import dpgrain as dg
from dpgrain.statistics.release_metadata import ReleaseMetadata
from dpgrain.statistics.statistic import MEAN
from dpgrain.tables.groups import Groups


def _html(of: Any) -> str:
    text = of._repr_html_()
    assert isinstance(text, str)
    return text


class _Shown(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.rows: list[list[str]] = []
        self.pictures: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "img":
            source = dict(attrs)["src"] or ""
            assert source.startswith("data:image/svg+xml;base64,")
            self.pictures.append(base64.b64decode(source.partition(",")[2]).decode())

    def handle_data(self, data: str) -> None:
        if self.tags[-1] in ("td", "th") and self.rows:
            self.rows[-1][-1] += data


def test_a_release_shows_picture_rows_and_sentence() -> None:
    release = cases.histogram([f"w{place:02d}" for place in range(14)])
    text = _html(release)
    shown = _Shown(text)
    assert len(shown.pictures) == 1
    assert "w00" in shown.pictures[0]
    assert shown.rows[0][:5] == [
        "word",
        "estimate",
        "std_error",
        "low",
        "high",
    ]
    assert shown.rows[1][:2] == ["w00", "300.0"]
    assert len(shown.rows) == 11
    assert "14 rows, 10 largest by clipped total shown; all: .to_pandas()" in text
    assert release.guarantee.summary.replace("'", "&#39;") in text


def test_a_promise_shows_its_sentence_and_its_curve() -> None:
    promise = cases.histogram(["yo"]).guarantee
    text = _html(promise)
    shown = _Shown(text)
    assert "number of elements of one person" in shown.pictures[0]
    assert str(promise).replace("'", "&#39;") in text


def test_names_are_text() -> None:
    text = _html(cases.histogram(cases.NASTY))
    shown = _Shown(text)
    assert set(shown.tags) == {
        "div", "p", "strong", "img", "table", "thead", "tbody", "tr", "th", "td"
    }  # fmt: skip
    assert "<script" not in text
    assert "<script" not in shown.pictures[0]
    assert "&lt;script&gt;alert(1)" in text
    assert not re.search(r"\son\w+=", re.sub(r"&quot;|&#34;.*?&#34;", "", text).split("<td>")[0])


def test_one_number_and_nothing_have_no_picture() -> None:
    release = cases.histogram(["a"])
    estimate, error, low, high, count = (np.array([x]) for x in (5.0, 0.5, 4.0, 6.0, 90.0))
    asked = ReleaseMetadata(MEAN, value="score", bounds=(0.0, 9.0))
    one = dg.Estimates(
        Groups.of([], []), estimate, error, low, high, count, release.guarantee, asked
    )
    assert "img" not in _Shown(_html(one)).tags
    assert _Shown(_html(one)).rows[1][0] == "5.00"
    nothing = _html(cases.histogram([]))
    assert "No group passed the threshold" in nothing
    assert "img" not in _Shown(nothing).tags


@pytest.mark.slow
def test_matplotlib_is_loaded_only_for_drawing(tmp_path: Path) -> None:
    cases.histogram(["yo"]).save(tmp_path / "r.parquet")
    code = (
        f"import sys, dpgrain as dg; made = dg.Histogram.load({str(tmp_path / 'r.parquet')!r}); "
        "repr(made); assert 'matplotlib' not in sys.modules; made._repr_html_(); "
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
