"""Prose in the documents is wrapped at 100 columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 100
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md"]


def _prose(text: str) -> Iterator[str]:
    """Yield the lines outside code, tables, formulas and notes, without the targets of links."""
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith(("    ", "|", "$$", "[^")):
            yield re.sub(r"\]\([^)]*\)", "]", line)


def _too_long(text: str) -> list[str]:
    # A single long name cannot be wrapped.
    return [line for line in _prose(text) if len(line) > LONGEST and " " in line.strip()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_is_wrapped(page: Path) -> None:
    assert _too_long(page.read_text(encoding="utf-8")) == []


def test_only_long_prose_is_seen() -> None:
    long = "word " * 30
    name = "b" * 200
    text = f"{long}\n| {long} |\n    {long}\n```\n{long}\n```\n[a](https://{name})\n  `{name}`\n"
    assert _too_long(text) == [long]
