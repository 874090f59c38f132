"""Mutants of ``tests/mutants`` apply to the current code; ``make mutants`` runs tests on them."""

from __future__ import annotations

from pathlib import Path

import pytest
from shipping.mutants import KINDS, ORIGINS, Mutant, read
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


def test_all_kinds_and_origins_are_there(mutants: list[Mutant]) -> None:
    assert {mutant.kind for mutant in mutants} == set(KINDS)
    assert {mutant.origin for mutant in mutants} == set(ORIGINS)
