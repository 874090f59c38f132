"""The pages of the papers name tests that are there, one for each theorem."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for path in (ROOT / "docs" / "papers").glob("*.md") if path.stem != "index")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def _tests(file: str) -> frozenset[str]:
    path = ROOT / file
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return frozenset(re.findall(r"^ *def (test_\w+)\(", text, re.M))


def _lost(text: str) -> list[str]:
    """The tests that a page names and that are not there."""
    return [f"{file}::{name}" for file, name in _TEST.findall(text) if name not in _tests(file)]


def _theorems(text: str) -> list[str]:
    """The entries of the section on theorems, each with all of its lines."""
    section = text.split("## Theorem by theorem\n")[1].split("\n## ")[0]
    return re.findall(r"^- .*(?:\n  .*)*", section, re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_test_that_a_page_names_is_there(page: Path) -> None:
    assert _lost(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_theorem_has_its_test(page: Path) -> None:
    theorems = _theorems(page.read_text(encoding="utf-8"))
    assert len(theorems) >= 8
    assert [theorem for theorem in theorems if not _TEST.search(theorem)] == []


def test_a_test_that_is_not_there_is_seen() -> None:
    here = "tests/docs/test_papers.py"
    text = f"`{here}::test_a_test_that_is_not_there_is_seen` and `{here}::test_nothing`"
    assert _lost(text) == [f"{here}::test_nothing"]
    assert _theorems("## Theorem by theorem\n\n- one\n  more\n- two\n\n## Figures\n- three\n") == [
        "- one\n  more",
        "- two",
    ]
