"""Checks of parameters name the parameter and its value, and make plain numbers of NumPy's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.refusals import refuses

from dpgrain import _validate


@dataclass(frozen=True)
class Pair:
    one: Any
    more: tuple[Any, ...]

    def __post_init__(self) -> None:
        _validate.plain_numbers(self)


def test_numbers_of_numpy_become_plain_ones() -> None:
    pair = Pair(np.uint8(200), (np.float16(0.1), 3))
    assert type(pair.one) is int
    assert pair.one * 2 == 400
    assert [type(value) for value in pair.more] == [float, int]


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (_validate.positive, [1e-9, 3], [0, -1.0, math.inf, math.nan, True, "1"]),
        (_validate.non_negative, [0, 0.5], [-1e-9, math.inf, None]),
        (_validate.fraction, [0.5, 1e-9], [0, 1, math.nan]),
        (_validate.probability, [0, 1, 0.5], [-0.1, 1.1, math.nan]),
        (_validate.scale, [1e-100, 1e100], [1e-101, 1e101]),
        (_validate.bounded_integer, [-3, 10**18], [10**18 + 1, 1.0, True]),
        (_validate.boolean, [True, False], [1, None]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_limits_of_numbers(
    check: Callable[..., object], good: list[object], bad: list[object]
) -> None:
    assert [check(wanted=value) for value in good] == good
    for value in bad:
        with refuses("wanted"):
            check(wanted=value)


# The message of each family of errors: the text after the parameter's name.
SAID: dict[str, tuple[Callable[..., object], dict[str, Any], Any, str]] = {
    "text": (_validate.real, {}, "1", "must be a number, not '1'."),
    "huge": (_validate.real, {}, 10**400, "must be a number below 10^308."),
    "half": (_validate.bounded_integer, {}, 0.5, "must be an integer, not 0.5."),
    "vast": (_validate.bounded_integer, {}, 10**19, "must be at most 10^18."),
    "none": (_validate.integer, {"minimum": 2}, 1, "must be an integer of at least 2, not 1."),
    "many": (_validate.integer, {"minimum": 2}, 10**19, "must be at most 10^18."),
    "one": (_validate.boolean, {}, 1, "must be True or False, not 1."),
    "word": (_validate.sequence, {}, "ab", "must be a list, not 'ab'."),
    "other": (partial(_validate.instance, Path), {}, [1], "must be a Path, not [1]."),
    "number": (_validate.function, {}, 3, "must be a function, not 3."),
    "zero": (_validate.positive, {}, 0.0, "must be positive and finite, not 0.0."),
    "below": (_validate.non_negative, {}, -1, "must be finite and at least 0, not -1."),
    "whole": (_validate.fraction, {}, 1.0, "must be in (0, 1), not 1.0."),
    "above": (_validate.probability, {}, 1.5, "must be in [0, 1], not 1.5."),
    "delta": (_validate.delta, {"allow_zero": True}, 1.0, "must be in [0, 1), not 1.0."),
    "scale": (
        _validate.scale, {}, 1e101, "must be between 1e-100 and 1e100, not 1e+101; rescale."
    ),
    "noise": (
        _validate.noise, {}, 2.0**-11,
        "must be between 2^-10 and 2^30, not 0.00048828125: outside this range the result is "
        "not private, or only noise.",
    ),
    "choice": (partial(_validate.one_of, ("a", "b")), {}, "c", "must be one of 'a', 'b', not 'c'."),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_error_family_has_its_text_in_one_place(name: str) -> None:
    check, options, value, said = SAID[name]
    with refuses("wanted") as caught:
        check(**options, wanted=value)
    assert str(caught.value) == f"wanted {said}"
    assert caught.value.name == "wanted"


def test_exactly_one_of_several_parameters_is_passed() -> None:
    _validate.exactly_one(epsilon=None, share=0.5)
    with refuses("epsilon", "one of epsilon and share must be passed, not epsilon and share."):
        _validate.exactly_one(epsilon=1.0, share=0.5)
    with refuses("epsilon", "not none."):
        _validate.exactly_one(epsilon=None, share=None)


def test_unprintable_or_long_values_do_not_hide_the_message() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    with refuses("size", "a value of type Broken"):
        _validate.real(size=Broken())
    with refuses("kind", "'a', 'b'") as error:
        _validate.one_of(["a", "b"], kind="x" * 500)
    assert len(str(error.value)) < 120


def test_zero_delta_error_states_its_requirement() -> None:
    assert _validate.delta(allow_zero=True, delta=0) == 0
    with refuses("delta", "noise='laplace'"):
        _validate.delta(allow_zero=False, delta=0)


def test_rows_passed_as_something_else_are_not_quoted() -> None:
    rows = pd.DataFrame({"who": ["ann"], "x": [0.25]})
    given = [rows, rows.who, rows.to_numpy(), pa.table(rows), [rows.x], {"a": rows}, {"a": "ann"}]
    given += [["ann"] * 100, pa.table(rows).to_pylist()]
    for value in [*given, lambda: "ann", object()]:
        with refuses("size", f"a value of type {type(value).__name__}"):
            _validate.real(size=value)
    with refuses("size", "not ['a', (1, 2.5), {'b': None}]"):
        _validate.real(size=["a", (1, 2.5), {"b": None}])
    with refuses("size", "not np.float64(nan)"):
        _validate.bounded_integer(size=np.float64("nan"))
