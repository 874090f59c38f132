"""Links of the documents lead somewhere: to a file, to a heading, or to a known place elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
# External links of the documents; nothing is fetched, here or when the site is built.
ELSEWHERE = {
    "https://analytics.wikimedia.org/published/datasets/country_project_page/00_README.html",
    "https://arxiv.org/abs/1709.02753",
    "https://arxiv.org/abs/2002.05839",
    "https://arxiv.org/abs/2004.04145",
    "https://arxiv.org/abs/2204.08986",
    "https://arxiv.org/abs/2305.08846",
    "https://arxiv.org/abs/2308.16298",
    "https://doi.org/10.6028/NIST.SP.800-226",
    "https://keepachangelog.com",
    "https://registry.opendp.org/",
    "https://research.fb.com/blog/2020/06/protecting-privacy-in-facebook-mobility-data-during-the-covid-19-response/",
    "https://semver.org",
    "https://spark.apache.org",
    "https://www.apple.com/privacy/docs/Differential_Privacy_Overview.pdf",
    "https://www.microsoft.com/en-us/research/publication/collecting-telemetry-data-privately/",
}

_CODE = re.compile(r"^```(?!\{).*?^```$|(`+).+?\1", re.S | re.M)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def _links(text: str) -> Iterator[str]:
    yield from _LINK.findall(_CODE.sub("", text))


@cache
def _anchors(page: Path) -> frozenset[str]:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    titles = re.findall(r"^#{1,3} (.*)$", text, re.M)
    return frozenset(re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles)


def _lost(page: Path, text: str) -> list[str]:
    """The links of a page that lead to no file and no heading."""
    lost = []
    for link in _links(text):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not link.startswith("http") and not (
            target.exists() and (not anchor or anchor in _anchors(target))
        ):
            lost.append(link)
    return lost


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert _lost(page, page.read_text(encoding="utf-8")) == []


def test_links_elsewhere_are_known() -> None:
    links = {link for page in PAGES for link in _links(page.read_text(encoding="utf-8"))}
    assert {link for link in links if link.startswith("http")} == ELSEWHERE


def test_links_within_the_site_stay_there() -> None:
    """Files outside the site have no address that a relative link could reach."""
    docs = ROOT / "docs"
    leaving = [
        (page.name, link)
        for page in docs.rglob("*.md")
        for link in _links(page.read_text(encoding="utf-8"))
        if not link.startswith(("http", "#"))
        and not (page.parent / link.partition("#")[0]).resolve().is_relative_to(docs)
    ]
    assert leaving == []


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("[a](index.md) and ![b](pictures/curve.png)", []),
        ("[a](trust.md#nothing) and [b](nothing.md)", ["trust.md#nothing", "nothing.md"]),
        ("`[a](nothing.md)`\n\n```python\nx[0](nothing)\n```\n", []),
    ],
)
def test_dead_link_is_detected(text: str, lost: list[str]) -> None:
    assert _lost(ROOT / "docs" / "page.md", text) == lost
