"""References to the theory in code and documents resolve."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
THEORY = ROOT / "docs" / "theory"
READERS = [
    path
    for place in ("src", "tests", "docs", "benchmarks", "experiments", "CONTRIBUTING.md")
    for path in sorted([*(ROOT / place).rglob("*"), ROOT / place])
    if path.suffix in (".py", ".md", ".html") and path != Path(__file__)
]
# `docs/theory, "One" and "Two"`, or `docs/theory, section 3`; lines may end anywhere in it.
_REFERENCE = re.compile(r'[Dd]ocs/theory/?,((?:(?:,|;| and)? "[^"]+"| section \d)+)')
_OF_THE_THEORY = re.compile(r"[Ss]ection (\d|\"[^\"]+\") of the theory")


@cache
def _sections() -> frozenset[str]:
    """The names of sections and paragraphs, those before a colon, and the numbers there are."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in THEORY.glob("*.md"))
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    paragraphs = re.findall(r"^\*\*([^*]+)\.\*\*", text, re.M)
    numbers = [title[0] for title in titles if title[1:3] == ". "]
    names = [re.sub(r"^\d\. ", "", title) for title in titles]
    return frozenset([*names, *(name.partition(":")[0] for name in names), *paragraphs, *numbers])


def _named(text: str) -> Iterator[str]:
    """Yield the sections of the theory that a text refers to."""
    plain = re.sub(r"\s*\n\s*#?\s*", " ", text)
    for named in _REFERENCE.findall(plain):
        yield from re.findall(r'"([^"]+)"', named)
        yield from re.findall(r"section (\d)", named)
    yield from (name.strip('"') for name in _OF_THE_THEORY.findall(plain))


def _lost(text: str) -> list[str]:
    sections = _sections()
    return [name for name in _named(text) if name.rstrip(",.") not in sections]


def test_every_reference_finds_its_section() -> None:
    lost = {path: _lost(path.read_text(encoding="utf-8")) for path in READERS}
    assert {path: names for path, names in lost.items() if names} == {}


def test_references_are_found_at_all() -> None:
    found = [name for path in READERS for name in _named(path.read_text(encoding="utf-8"))]
    assert len(found) > 90


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ('docs/theory, "Budgets" and "Ledgers".', []),
        ('Proof: docs/theory,\n    # "How little error there\n    # can be".', []),
        ('docs/theory, "Keeping the best"; "Tuning".', ["Keeping the best"]),
        ("docs/theory, section 3 lists every bound", []),
        ("section 0 of the theory", ["0"]),
    ],
)
def test_missing_section_is_detected(text: str, lost: list[str]) -> None:
    assert _lost(text) == lost
