"""The site that `make docs` has built needs nothing from elsewhere, and can be searched."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
# Resources that a browser fetches automatically: scripts, pictures, styles and fonts; not links.
_FETCHED = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)=["']([^"']+)""")

built = pytest.mark.skipif(not (SITE / "index.html").exists(), reason="make docs has not run")


def _fetched(html: str) -> list[str]:
    return [target for target in _FETCHED.findall(html) if re.match(r"(https?:)?//", target)]


@built
def test_no_page_fetches_anything_from_elsewhere() -> None:
    pages = list(SITE.rglob("*.html"))
    assert len(pages) > 100
    fetched = [target for page in pages for target in _fetched(page.read_text(encoding="utf-8"))]
    assert fetched == []


@built
def test_every_page_is_built_and_found_by_the_search() -> None:
    sources = {page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")}
    assert [page for page in sources if not (SITE / page.with_suffix(".html")).exists()] == []
    index = (SITE / "searchindex.js").read_text(encoding="utf-8")
    assert [page for page in sources if f'"{page.with_suffix("")}"' not in index] == []


@pytest.mark.parametrize(
    ("html", "targets"),
    [
        ('<script async="async" src="https://cdn.example/a.js">', ["https://cdn.example/a.js"]),
        ('<link rel="stylesheet" href="_static/site.css">', []),
        ('<a href="https://semver.org">', []),
        ("<img alt='x' src='//example.org/a.png'>", ["//example.org/a.png"]),
    ],
)
def test_fetched_resources_are_detected(html: str, targets: list[str]) -> None:
    assert _fetched(html) == targets
