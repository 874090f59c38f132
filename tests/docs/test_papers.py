"""The pages of the papers list every item of theirs, and name calls, files and tests that are there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.docs.contents import CONTENTS, STATES

import dpgrain

ROOT = Path(__file__).parents[2]
PAPERS = ROOT / "docs" / "papers"
PAGES = sorted(path for path in PAPERS.glob("*.md") if path.stem not in ("index", "which-recipe"))
FALSE_CLAIMS = ROOT / "docs" / "theory" / "false-claims.md"
FAULTS = ("Privacy breaks", "Accuracy fails", "Loose", "Misprint", "Slip in the proof")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_CODE = re.compile(r"\*Code:\*\s+`[\w/]+\.py[^`]*`")
_NUMBER = r"(?:[A-Z]\.?)?\d+(?:\.\d+)?"
_SOME = re.compile(
    r"(Algorithm|Assumption|Claim|Corollar|Definition|Equation|Example|Fact|Figure|Lemma|Proposition"
    r"|Remark|Table|Theorem)(?:y|ies|s)? "
    rf"({_NUMBER}(?:(?:, | and | to ){_NUMBER})*)"
)


_COUNTED = re.compile(r"(.*?)(\d+)")
_CALL = re.compile(r"`([^`]+)`")
# As the rows of false claims name the papers and their items.
_PAPERS = {
    "element": "element-level",
    "user-level-learning": "learning",
    "shuffle-sco": "shuffle",
    "user-level-sco": "SCO",
}
_SHORT = {"Cor.": "Corollary", "Prop.": "Proposition", "App.": "Appendix"}
# Equations that repeat a false theorem's bound, or a proof's conclusion.
_AGAIN = {"Equation 10", "Equation 11", "Equation 16", "Lemma 3.6"}


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


def _numbered(text: str) -> Iterator[str]:
    """Yield each thing that a text names by its number, such as "Lemma 3.2" of "Lemmas 3.1 to 3.3"."""
    for stem, numbers in _SOME.findall(text):
        kind = "Corollary" if stem == "Corollar" else stem
        for some in re.split(r", | and ", numbers):
            first, _, last = some.partition(" to ")
            head, low = _COUNTED.fullmatch(first).groups()  # type: ignore[union-attr]
            high = _COUNTED.fullmatch(last or first).groups()[1]  # type: ignore[union-attr]
            yield from (f"{kind} {head}{number}" for number in range(int(low), int(high) + 1))


def _rows(page: Path) -> list[list[str]]:
    """The cells of the rows of a page's one table, below its headings."""
    lines = re.findall(r"^\| (.*) \|$", page.read_text(encoding="utf-8"), re.M)
    return [[cell.strip() for cell in line.split("|")] for line in lines[1:]]


def _faults(text: str) -> list[int]:
    """How often a page names each kind of fault."""
    plain = re.sub(r"\s+", " ", text)
    return [len(re.findall(rf"\*{fault}(?::|\*)", plain)) for fault in FAULTS]


@pytest.mark.parametrize("page", [*PAGES, *FALSE_CLAIMS.parent.glob("*.md")], ids=lambda p: p.stem)
def test_every_test_named_on_a_page_exists(page: Path) -> None:
    assert _lost(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_theorem_has_its_file_and_its_test(page: Path) -> None:
    theorems = _theorems(page.read_text(encoding="utf-8"))
    assert len(theorems) >= 8
    for pattern in (_TEST, _CODE):
        assert [theorem for theorem in theorems if not pattern.search(theorem)] == []


def _items(page: Path, heading: str) -> list[list[str]]:
    """The rows of a page's list: items, state, call, note, and the paper's name."""
    section = page.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^\| (.*) \|$", section, re.M)
    return [[cell.strip() for cell in line.split(" | ")] for line in lines[1:]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_paper_item_is_listed_once_with_a_state(page: Path) -> None:
    for heading, contents in CONTENTS[page.stem].items():
        rows = _items(page, heading)
        assert [row for row in rows if len(row) != 5 or row[1] not in STATES or not row[3]] == []
        listed = Counter(_numbered(", ".join(row[0] for row in rows)))
        assert listed == Counter(_numbered(contents))
        # In the order of the paper, so that a reader finds each in one step.
        order = list(_numbered(contents))
        firsts = [order.index(next(_numbered(row[0]))) for row in rows]
        assert firsts == sorted(firsts)


def _is_there(call: str) -> bool:
    """True if what a list names as a call is a public name or a file."""
    if "/" in call:
        return (ROOT / call).exists()
    found: Any = dpgrain
    for name in call.removeprefix("dg.").split("."):
        found = getattr(found, name, None)
    return found is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_call_of_a_list_is_there(page: Path) -> None:
    for heading in CONTENTS[page.stem]:
        rows = _items(page, heading)
        calls = [call for row in rows for call in _CALL.findall(row[2])]
        assert [call for call in calls if not _is_there(call)] == []
        assert [row for row in rows if not _CALL.search(row[2]) and row[2] != "–"] == []
    assert not _is_there("dg.nothing")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_false_item_is_among_the_false_claims(page: Path) -> None:
    paper, named = "", set()
    for where, *_ in _rows(FALSE_CLAIMS):
        paper = where.partition(",")[0] if not where.startswith("the same") else paper
        if paper.partition(",")[0] == _PAPERS[page.stem]:
            text = where
            for short, whole in _SHORT.items():
                text = text.replace(short, whole)
            named |= {*_numbered(re.sub(r"(?<=\d), (?=[A-Z]\w+ \d)", "; ", text))}
    rows = _items(page, "Item by item")
    false = {item for row in rows if row[1] == "false" for item in _numbered(row[0])}
    assert false - _AGAIN - named == set()


def test_every_false_claim_has_its_test() -> None:
    rows = _rows(FALSE_CLAIMS)
    assert len(rows) >= 20
    assert [row for row in rows if len(row) != 5 or not _TEST.fullmatch(row[-1])] == []


def test_the_index_counts_the_faults_of_each_paper() -> None:
    found = {f"({page.name})": _faults(page.read_text(encoding="utf-8")) for page in PAGES}
    found[""] = [sum(counts) for counts in zip(*found.values(), strict=True)]
    rows = {row[1].partition("]")[2]: row[2:] for row in _rows(PAPERS / "index.md")}
    assert {page: [int(count) for count in counts] for page, counts in rows.items()} == found


def test_missing_test_is_detected() -> None:
    here = "tests/docs/test_papers.py"
    text = f"`{here}::test_missing_test_is_detected` and `{here}::test_nothing`"
    assert _lost(text) == [f"{here}::test_nothing"]
    assert _theorems("## Theorem by theorem\n\n- one\n  more\n- two\n\n## Figures\n- three\n") == [
        "- one\n  more",
        "- two",
    ]


def test_numbers_and_faults_are_read_in_any_wording() -> None:
    lemmas = ["Lemma 3.1", "Lemma 3.2", "Lemma 3.3", "Lemma A.1"]
    assert list(_numbered("Lemmas 3.1 to 3.3 and A.1")) == lemmas
    assert list(_numbered("Corollary 2, Fact 4")) == ["Corollary 2", "Fact 4"]
    assert list(_numbered("Corollaries B.8, B.9")) == ["Corollary B.8", "Corollary B.9"]
    assert list(_numbered("Assumptions A1 to A2, Equation 3")) == [
        "Assumption A1",
        "Assumption A2",
        "Equation 3",
    ]
    assert _faults("*Privacy\n  breaks:* a, *Privacy breaks* only b, *Loose:* c") == [2, 0, 1, 0, 0]
