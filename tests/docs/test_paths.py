"""Files that the documents name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
FILES = {
    path.relative_to(ROOT).as_posix()
    for folder in ("src", "tests", "docs", "benchmarks", "examples", "experiments", "shipping")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".md", ".json", ".html")
} | {path.name for path in ROOT.glob("*.md")}


def _missing(text: str) -> list[str]:
    named = re.findall(r"`([\w./-]+\.(?:py|md))`", text)
    return [name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in FILES)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_named_on_a_page_exists(page: Path) -> None:
    assert _missing(page.read_text(encoding="utf-8")) == []


def test_missing_file_is_detected() -> None:
    assert _missing("`units.py`, `means/clipped.py` and `means/nothing.py`") == ["means/nothing.py"]
