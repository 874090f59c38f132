"""The report of a single guarantee: its coverage, its exclusions, and no numbers of a release."""

from __future__ import annotations

import html
from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure
from tests.report import cases

import dpgrain as dg


def _page(guarantee: dg.Guarantee, folder: Path) -> str:
    return guarantee.report(folder / "promise.html").read_text(encoding="utf-8")


def test_it_reports_the_guarantee_and_its_exclusions(tmp_path: Path) -> None:
    release = cases.histogram(["yo", "bro"])
    page = _page(release.guarantee, tmp_path)
    cases.check_safe(page)
    text = " ".join(cases.told(page).split())
    assert str(release.guarantee) in html.unescape(page)
    assert "For your privacy officer" in text
    assert "Facts about people in general" in text
    assert release.guarantee.hash in text
    assert f"By dpgrain {dg.__version__}" in text
    assert "bro" not in text
    assert 'class="estimates"' not in page


def test_seeded_noise_has_no_guarantee(tmp_path: Path) -> None:
    page = _page(replace(cases.histogram(["yo"]).guarantee, private=False), tmp_path)
    assert "<title>NOT PRIVATE: Guarantee per element" in page
    # Above, and on the sheet, which may be printed separately.
    assert page.count("NOT PRIVATE. Do not publish.") == 2


def test_a_promise_is_drawn_as_its_curve() -> None:
    promise = cases.histogram(["yo"]).guarantee
    ax = promise.plot(Figure().subplots())
    assert cases.y(ax.lines[0])[0] == promise.epsilon()
