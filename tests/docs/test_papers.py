"""The pages of the papers name files and tests that are there, and leave no theorem out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAPERS = ROOT / "docs" / "papers"
PAGES = sorted(path for path in PAPERS.glob("*.md") if path.stem != "index")
FALSE_CLAIMS = ROOT / "docs" / "theory" / "false-claims.md"
#: All that is numbered in a paper, but for lemmas inside of a proof.
NUMBERED = {
    "element": (
        "Definitions 2.1 to 2.3, Corollaries 2.1 to 2.5, Lemmas 3.1 to 3.2, Propositions 1 to 3, "
        "Theorem 1, Corollaries 3.1 to 3.2, Algorithm 1"
    ),
    "user-level-learning": (
        "Definitions 1 to 4, Theorems 1 to 10, Corollaries 1 to 6, Propositions 1 to 7, Lemmas 1 to 4, "
        "Algorithms 1 to 7, Remark 1"
    ),
    "shuffle-sco": (
        "Definitions 2.1 to 2.2, Facts 2.3 to 2.4, Definitions 2.5 to 2.12, Lemma 3.1, Theorem 3.2, "
        "Lemma 3.3, Theorem 4.1, Lemma 4.2, Theorem 4.3, Lemma 4.4, Definition 4.5, Lemma 4.6, "
        "Theorems 4.7 to 4.9, Algorithms 1 to 6, Theorem A.6, Claim A.8, Corollary A.9, "
        "Corollaries B.8 to B.11, Definitions C.1 to C.2, Theorem C.3"
    ),
    "user-level-sco": (
        "Definitions 2.1 to 2.3, Lemmas 2.4 to 2.5, Definition 2.6, Lemma 2.7, Definition 3.1, "
        "Theorem 3.2, Lemmas 3.3 to 3.7, Theorem 4.1, Remarks 4.2 to 4.3, Lemmas 4.4 to 4.9, "
        "Proposition 4.10, Theorem 4.11, Algorithms 1 to 4"
    ),
}
FAULTS = ("Privacy breaks", "Accuracy fails", "Loose", "Misprint", "Slip in the proof")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_CODE = re.compile(r"\*Code:\*\s+`[\w/]+\.py[^`]*`")
_NUMBER = r"(?:[A-Z]\.)?\d+(?:\.\d+)?"
_SOME = re.compile(
    r"(Algorithm|Claim|Corollar|Definition|Fact|Lemma|Proposition|Remark|Theorem)(?:y|ies|s)? "
    rf"({_NUMBER}(?:(?:, | and | to ){_NUMBER})*)"
)


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
            head, _, low = first.rpartition(".")
            for number in range(int(low), int((last or first).rpartition(".")[2]) + 1):
                yield f"{kind} {head}.{number}" if head else f"{kind} {number}"


def _rows(page: Path) -> list[list[str]]:
    """The cells of the rows of a page's one table, below its headings."""
    lines = re.findall(r"^\| (.*) \|$", page.read_text(encoding="utf-8"), re.M)
    return [[cell.strip() for cell in line.split("|")] for line in lines[1:]]


def _faults(text: str) -> list[int]:
    """How often a page names each kind of fault."""
    plain = re.sub(r"\s+", " ", text)
    return [len(re.findall(rf"\*{fault}(?::|\*)", plain)) for fault in FAULTS]


@pytest.mark.parametrize("page", [*PAGES, *FALSE_CLAIMS.parent.glob("*.md")], ids=lambda p: p.stem)
def test_every_test_that_a_page_names_is_there(page: Path) -> None:
    assert _lost(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_theorem_has_its_file_and_its_test(page: Path) -> None:
    theorems = _theorems(page.read_text(encoding="utf-8"))
    assert len(theorems) >= 8
    for pattern in (_TEST, _CODE):
        assert [theorem for theorem in theorems if not pattern.search(theorem)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_nothing_that_is_numbered_is_left_out(page: Path) -> None:
    theorems = _theorems(page.read_text(encoding="utf-8"))
    titles = " ".join(re.findall(r"^- \*\*(.*?)\*\*", "\n".join(theorems), re.M | re.S))
    assert set(_numbered(NUMBERED[page.stem])) - set(_numbered(" ".join(titles.split()))) == set()


def test_every_false_claim_has_its_test() -> None:
    rows = _rows(FALSE_CLAIMS)
    assert len(rows) >= 20
    assert [row for row in rows if len(row) != 5 or not _TEST.fullmatch(row[-1])] == []


def test_the_index_counts_the_faults_of_each_paper() -> None:
    found = {f"({page.name})": _faults(page.read_text(encoding="utf-8")) for page in PAGES}
    found[""] = [sum(counts) for counts in zip(*found.values(), strict=True)]
    rows = {row[1].partition("]")[2]: row[2:] for row in _rows(PAPERS / "index.md")}
    assert {page: [int(count) for count in counts] for page, counts in rows.items()} == found


def test_a_test_that_is_not_there_is_seen() -> None:
    here = "tests/docs/test_papers.py"
    text = f"`{here}::test_a_test_that_is_not_there_is_seen` and `{here}::test_nothing`"
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
    assert _faults("*Privacy\n  breaks:* a, *Privacy breaks* only b, *Loose:* c") == [2, 0, 1, 0, 0]
