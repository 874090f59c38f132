"""Three readers find the answers to their questions within two clicks of the first page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
# Question → the pages clicked on, from the first page, and words of the answer.
ANALYST = {
    "count people per month from a CSV file": (["how-to.md"], "Count distinct people per month"),
    "what at_least means": (["output.md"], "`at_least`"),
    "why groups are missing": (["faq.md"], "## Why are groups missing?"),
    "read PostgreSQL": (["tutorials/warehouse.md"], "## PostgreSQL"),
    "publish every night": (["nightly.md"], "A retry never charges twice"),
}
ENGINEER = {
    "what δ costs with LoRA": (["tutorials/language.md"], "## What ε and δ cost"),
    "which layers train": (
        ["tutorials/networks.md", "tutorials/trainable-networks.md"],
        "batch norm",
    ),
    "how slow a step is": (["speed.md"], "## Regressions and networks on a processor"),
    "tune parameters": (["tutorials/models.md"], "## Choosing parameters"),
    "resume a killed run": (
        ["tutorials/networks.md", "tutorials/long-runs.md"],
        "## Save and resume",
    ),
}
RESEARCHER = {
    "proof of Theorem 3 of Levy et al.": (
        ["papers/index.md", "papers/user-level-learning.md"],
        "means-of-users.md#the-winsorized-mean) (Theorems 1 to 3)",
    ),
    "how sampled users are charged": (["theory/index.md", "theory/sampling.md"], "## Users are"),
    "which claims are false": (["theory/false-claims.md"], "# False claims"),
    "Figure 5 of the element paper": (["papers/index.md", "papers/element.md"], "Figure 5"),
    "audit a new mechanism": (["tutorials/own-mechanisms.md"], "## Audit it"),
}
QUESTIONS = {**ANALYST, **ENGINEER, **RESEARCHER}


def _linked(page: Path) -> set[Path]:
    """Return the pages that a page links to, in its text or a visible table of contents."""
    text = page.read_text(encoding="utf-8")
    trees = re.findall(r"^```\{toctree\}\n(?!:hidden:)(.*?)^```", text, re.S | re.M)
    names = [f"{name}.md" for tree in trees for name in tree.split()]
    found = [*re.findall(r"\]\(([^)#\s]+\.md)", text), *names]
    return {(page.parent / name).resolve() for name in found}


@pytest.mark.parametrize("question", QUESTIONS)
def test_answer_is_within_two_clicks(question: str) -> None:
    clicks, answer = QUESTIONS[question]
    assert len(clicks) <= 2
    page = DOCS / "index.md"
    for click in clicks:
        assert DOCS / click in _linked(page)
        page = DOCS / click
    assert answer in page.read_text(encoding="utf-8")
