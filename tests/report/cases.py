"""Releases with names of every type, and readers of their reports and plots."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.lines import Line2D

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.report import report as write_report
from dpgrain.statistics.release_metadata import Clip, ReleaseMetadata
from dpgrain.tables.groups import Groups

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


def histogram(
    items: list[str] | list[int], event: dg.accounting.Event | None = None
) -> dg.Histogram:
    size = len(items)
    kind = pa.int64() if items and isinstance(items[0], int) else pa.string()
    event = event or Gaussian(3.7306, Contribution(coordinates="one"))
    return dg.Histogram(
        Groups.of(["word"], [pa.array(items, kind)]),
        np.linspace(300.0, -20.0, size) if size else np.zeros(0),
        np.full(size, 7.25),
        np.full(size, 2.0),
        dg.Guarantee(
            "element",
            "'word'",
            "zero_out",
            1e-5,
            event,
            (dg.Fact("stated", ("the list of items",)),),
        ),
        ReleaseMetadata(title="words.parquet", by=("word",), clip=Clip(2.0)),
    )


def page(release: dg.Release, folder: Path) -> str:
    return write_report(release, folder / "report.html").read_text(encoding="utf-8")


class Loads(HTMLParser):
    """Everything in a page that could load or run something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.handlers: list[str] = []
        self.scripts: list[str] = []

    def handle_data(self, data: str) -> None:
        if self.tags and self.lasttag == "script" and self.cdata_elem == "script":
            self.scripts.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "srcset", "data", "action"):
                self.references.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)


def told(page: str) -> str:
    """The text of a page, without its styles and its script."""
    plain = re.sub(r"<(style|script)>.*?</\1>", " ", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]*>", " ", plain))


SCRIPT = Path(dg.__file__).parent / "report" / "templates" / "page.js"


def check_safe(page: str) -> None:
    """Fail if a page could load anything, or run anything but the script of all pages."""
    found = Loads()
    found.feed(page)
    assert found.tags.count("script") == 1
    assert "".join(found.scripts) == SCRIPT.read_text(encoding="utf-8")
    assert not {"img", "link", "iframe", "object", "base", "form", "embed"} & set(found.tags)
    assert found.handlers == []
    assert all(reference.startswith("#") for reference in found.references)
    assert "url(http" not in page
    assert "@import" not in page
    digest = base64.b64encode(hashlib.sha256(SCRIPT.read_bytes()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert page.count(f'http-equiv="Content-Security-Policy" content="{policy}"') == 1


BUDGET: dict[str, Any] = {"unit": dg.User(), "epsilon": 2.0, "delta": 1e-6}
SHOPS = ["north", "<b>south</b>", "{{ east }}"]


def x(line: Line2D) -> list[float]:
    return [float(value) for value in np.asarray(line.get_xdata())]


def y(line: Line2D) -> list[float]:
    return [float(value) for value in np.asarray(line.get_ydata())]
