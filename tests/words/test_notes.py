"""Each kind of note has one complete sentence with all of its numbers."""

from __future__ import annotations

from string import Formatter

import pytest
from tests.rooms import SOURCE

from dpgrain.words import notes


@pytest.mark.parametrize("kind", notes._SENTENCES)
def test_each_kind_has_a_sentence(kind: str) -> None:
    fields = [name for _, name, *_ in Formatter().parse(notes._SENTENCES[kind]) if name is not None]
    # Numbered fields may leave one out.
    size = max([len(fields), *(int(name) + 1 for name in fields if name)])
    numbers = (1, 2, 3, 4)[:size]
    text = notes.note_text((kind, *numbers))
    assert "{" not in text
    assert not text.startswith(" ")
    if len(fields) > 0:
        assert any(str(number) in text for number in numbers)


def test_each_kind_is_used() -> None:
    paths = [path for path in SOURCE.rglob("*.py") if path.name != "notes.py"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    composed = ("total-of-", "saves-of-", "no-saves-of-")
    unused = {kind for kind in notes._SENTENCES if f'"{kind}"' not in text}
    assert {kind for kind in unused if not kind.startswith(composed)} == set()


def test_notes_have_their_sentences_in_order() -> None:
    texts = notes.note_texts([("pure-order",), ("skew", 2.5)])
    assert texts[0] == "The order is for δ = 0."
    assert texts[1].startswith("A user's mean amount is 2.5 times")
