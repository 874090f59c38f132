"""Mutants of ``tests/mutants`` apply to the current code; ``make mutants`` runs tests on them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from shipping.mutants import KINDS, ORIGINS, ROOT, Mutant, read
from tests.rooms import SOURCE

FOLDER = Path(__file__).parent / "mutants"
# Smallest number of mutants: moved code needs rewritten edits, and none is removed.
FEWEST = 200


@pytest.fixture(scope="module")
def mutants() -> list[Mutant]:
    return read(FOLDER)


def test_each_edit_applies_and_is_unique(mutants: list[Mutant]) -> None:
    """Edits of several extents may be the same bug."""
    bad = set()
    # A file is parsed once.
    for mutant in sorted(mutants, key=lambda mutant: mutant.file):
        text = (SOURCE / mutant.file).read_text("utf-8")
        edited = mutant.edited(text)
        assert edited != text
        assert (mutant.file, edited) not in bad, mutant
        bad.add((mutant.file, edited))


def test_there_are_enough_in_each_room(mutants: list[Mutant]) -> None:
    assert len(mutants) >= FEWEST
    rooms = {
        path.name for path in (SOURCE / "dpgrain").iterdir() if (path / "__init__.py").exists()
    }
    assert not rooms - {mutant.room for mutant in mutants}


def decorators(test: str) -> str:
    """The decorators of a test, which is defined in its file."""
    file, *names = test.partition("[")[0].split("::")
    node: Any = parsed(file)
    for name in names:
        (node,) = (each for each in node.body if getattr(each, "name", "") == name)
    return " ".join(map(ast.unparse, node.decorator_list))


@cache
def parsed(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


def test_each_killer_always_runs(mutants: list[Mutant]) -> None:
    """A slow test with several cases runs only its stated number of cases, and named ones."""
    for test in sorted({mutant.seen_by for mutant in mutants}):
        marks = decorators(test)
        is_left_out = "mark.slow" in marks and "cases=" not in marks and "parametrize" in marks
        assert "[" in test or not is_left_out, test


def test_all_kinds_and_origins_are_there(mutants: list[Mutant]) -> None:
    assert {mutant.kind for mutant in mutants} == set(KINDS)
    assert {mutant.origin for mutant in mutants} == set(ORIGINS)
