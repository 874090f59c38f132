"""Odd objects raise, or warn, whatever they are asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.malformed.objects import Hostile, Loud, objects


@pytest.mark.parametrize("asked", [float, int, hash, str, repr, len, iter, bool, complex])
def test_a_hostile_object_raises(asked: Callable[[Any], Any]) -> None:
    with (
        pytest.warns(UserWarning, match="somebody's row"),
        pytest.raises(RuntimeError, match="somebody's row"),
    ):
        asked(Hostile())


@pytest.mark.parametrize(("asked", "found"), [(float, 1.0), (str, "word")])
def test_a_loud_object_warns(asked: Callable[[Any], Any], found: Any) -> None:
    with pytest.warns(UserWarning, match="somebody's row"):
        assert asked(Loud()) == found


def test_objects_are_of_many_types() -> None:
    kinds = {type(value) for value in objects().values()}
    assert len(kinds) > 20
