"""The keys of a file are the parameters of the functions, with the types that these declare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from dpgrain.publishing.parameters import REQUIRED, Parameter
from dpgrain.releases.keys import check_keys, keys_of, wrong
from dpgrain.releases.validation_errors import ValidationErrors
from dpgrain.units import User

RIGHT: list[tuple[Any, Any, Any]] = [
    (str, "a", 1),
    (bool, True, 1),
    (int, 3, True),
    (int, 3, 2.5),
    (float, 2, True),
    (float, 2.5, "2.5"),
    (Literal["a", "b"], "a", "c"),
    (Literal[16, 256], 16, True),
    (str | Sequence[str] | None, ["a", "b"], ["a", 1]),
    (tuple[float, float] | None, [0, 1.5], [0, 1, 2]),
    (Sequence[float], [0.5], "0.5"),
    (Mapping[str, str], {"a": "b"}, {"a": 1}),
    (Mapping[str, tuple[float, float]], {"a": [0, 1]}, {"a": [0]}),
    (float | Literal["auto"] | User, "auto", "much"),
    (Any, [1, "a"], None),
]


@pytest.mark.parametrize(("hint", "right", "other"), RIGHT, ids=str)
def test_values_fit_their_types_or_are_named(hint: Any, right: Any, other: Any) -> None:
    assert list(keys_of([Parameter("it", hint)])) == ["it"]
    assert wrong(hint, right) == ""
    if hint is not Any:
        assert wrong(hint, other).startswith("must be ")
        assert repr(other) in wrong(hint, other)


def test_parameters_without_text_form_are_not_keys() -> None:
    one, two, three = (
        Parameter("one", User),
        Parameter("two", int, REQUIRED),
        Parameter("three", str),
    )
    assert keys_of([one, two, three], without=("three",)) == {"two": two}


def test_all_errors_are_noted(tmp_path: Path) -> None:
    keys = {key.name: key for key in (Parameter("item", str, REQUIRED), Parameter("clip", float))}
    errors = ValidationErrors(tmp_path)
    assert check_keys("[it]", {"clip": "x", "clpi": 2.0}, keys, errors, "a thing") == {}
    assert errors.lines == [
        "[it] clip must be a number, not 'x'.",
        "[it] 'clpi' is not a key of a thing; did you mean clip?",
        "[it] item is required: text.",
    ]
    assert check_keys("[it]", {"item": "x", "clip": 2}, keys, errors) == {"item": "x", "clip": 2}
