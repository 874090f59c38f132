"""The report: complete, self-contained, and safe to open for any item names."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from tests.report import cases
from tests.report.browser import CHROMIUM, chromium

import dpgrain as dg
from dpgrain.report import report as write_report


@pytest.mark.slow
def test_a_saved_release_has_the_same_report(tmp_path: Path) -> None:
    release = cases.histogram(["yo", "bro"])
    before = cases.page(release, tmp_path)
    assert cases.page(dg.Histogram.load(release.save(tmp_path / "r.parquet")), tmp_path) == before


@pytest.mark.slow
def test_the_report_does_not_touch_pyplot(tmp_path: Path) -> None:
    cases.histogram(["yo"]).save(tmp_path / "r.parquet")
    code = (
        "import sys, dpgrain as dg; "
        f"dg.Histogram.load({str(tmp_path / 'r.parquet')!r}).report({str(tmp_path / 'r.html')!r}); "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_axes_a_notebook_shows_it() -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    before = plt.get_fignums()
    cases.histogram(["a"]).plot()
    assert len(plt.get_fignums()) == len(before) + 1


# A page with the report in a frame of some width that records its layout.
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
  for (const one of page.querySelectorAll("details")) one.open = true;
  told.unfolded = page.documentElement.scrollWidth - {width};
  told.wide = [...page.querySelectorAll("main *:not(svg *)")].filter(e => !e.closest(".box, pre")
    && e.getBoundingClientRect().right > {width}).length;
  told.table_overflow = Math.max(...[...page.querySelectorAll("table.estimates")].map(
    e => e.closest(".box").scrollWidth - e.closest(".box").clientWidth));
}})</script></body>"""


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize(("width", "kind"), [(1400, "wide"), (390, "narrow")])
def test_the_report_in_a_browser(width: int, kind: str, tmp_path: Path) -> None:
    release = replace(
        cases.histogram(cases.NASTY), clip=np.geomspace(0.001, 50.0, len(cases.NASTY))
    )
    path = write_report(release, tmp_path / "report.html")
    asking = tmp_path / "asking.html"
    page = html.escape(path.read_text(encoding="utf-8"))
    asking.write_text(_ASK.format(width=width, page=page), encoding="utf-8")

    dom = chromium(asking, 1500, tmp_path, "--dump-dom")
    # The frame's own text comes first; the record is on the body.
    told = dict(re.findall(r'data-(\w+)="([^"]*)"', dom[: dom.index("<iframe")]))
    assert float(told["overflow"]) <= 0
    # Also with all details open, nothing is wider than the screen, and tables need no scrolling.
    assert float(told["unfolded"]) <= 0
    assert told["wide"] == "0"
    assert float(told["table_overflow"]) <= 0
    assert float(told["table"]) > 300
    assert told["plots"] == ",".join([kind] * 3)
    assert float(told["letter"]) >= 9
    assert told["images"] == "0"
    assert html.unescape(told["names"]).split("|")[0] == cases.NASTY[0]

    picture = tmp_path / "report.png"
    chromium(path, width, tmp_path, f"--screenshot={picture}", "--hide-scrollbars")
    shades = imread(picture)
    assert shades.shape[1] == width
    # Something was painted: paper and ink.
    assert shades[..., :3].min() < 0.3 < 0.9 < shades[..., :3].max()
