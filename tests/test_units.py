"""Units, and the distances that define neighbours, against brute force."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from tests.refusals import refuses

from dpgrain.errors import DpgrainError, ParameterError
from dpgrain.units import (
    LEVELS,
    Element,
    Record,
    Unit,
    User,
    unit_level,
)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "3", math.nan])
def test_max_elements_is_a_whole_number(value: Any) -> None:
    with pytest.raises(ParameterError, match=rf"max_elements must .* not {value!r}") as caught:
        User(max_elements=value)
    assert isinstance(caught.value, DpgrainError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("unit", "level", "text"),
    [
        (Record(), "record", "Record()"),
        (Element("topic"), "element", "Element(by='topic')"),
        (Element(), "element", "Element()"),
        (User(), "user", "User()"),
        (User(max_elements=40, by="topic"), "user", "User(max_elements=40)"),
    ],
)
def test_units_are_frozen_values(unit: Unit, level: str, text: str) -> None:
    assert unit.level == level
    assert repr(unit) == text
    assert unit == dataclasses.replace(unit)
    assert unit_level(unit, "record") == level
    with pytest.raises(dataclasses.FrozenInstanceError):
        unit.level = "user"  # type: ignore[misc]
    with pytest.raises(TypeError):
        type(unit)(level="user")  # type: ignore[call-arg]


def test_default_level_is_used_only_without_a_unit() -> None:
    assert [unit_level(None, level) for level in LEVELS] == list(LEVELS)
    wrong: list[Any] = ["user", User, 3]
    for unit in wrong:
        with refuses("unit"):
            unit_level(unit, "user")
