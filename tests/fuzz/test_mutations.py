"""Damage follows from a number, and each kind of it does something."""

from __future__ import annotations

import json
import random

import pytest
from tests.fuzz import mutations
from tests.fuzz.mutations import BYTES, JSON, Damage, input_of

SEEDS = [json.dumps({"a": [1, 2.5, "x"], "b": {"c": None}}).encode(), b'{"d": [true]}']


@pytest.mark.parametrize("damage", sorted({*JSON}, key=str))
def test_each_damage_changes_most_files(damage: Damage) -> None:
    changed = {damage(SEEDS[0], random.Random(number), SEEDS) for number in range(40)} - {SEEDS[0]}
    assert len(changed) > 5


def test_an_input_is_the_same_again_and_others_differ() -> None:
    made = [input_of("any", number, SEEDS, JSON) for number in range(200)]
    assert made == [input_of("any", number, SEEDS, JSON) for number in range(200)]
    assert len(set(made)) > 150
    assert made != [input_of("other", number, SEEDS, JSON) for number in range(200)]


def test_a_value_of_json_is_damaged_and_stays_json() -> None:
    for number in range(100):
        json.loads(mutations.json_value(SEEDS[0], random.Random(number), SEEDS))


def test_no_damage_needs_a_byte() -> None:
    for damage in BYTES:
        assert isinstance(damage(b"", random.Random(1), [b""]), bytes)
