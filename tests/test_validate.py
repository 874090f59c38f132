"""Checks of parameters name the parameter and its value, and make plain numbers of NumPy's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dpgrain import _validate
from dpgrain.errors import ParameterError


@dataclass(frozen=True)
class Pair:
    one: Any
    more: tuple[Any, ...]

    def __post_init__(self) -> None:
        _validate.plain(self)


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
        (_validate.whole, [-3, 10**18], [10**18 + 1, 1.0, True]),
        (_validate.truth, [True, False], [1, None]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_limits_of_numbers(
    check: Callable[..., object], good: list[object], bad: list[object]
) -> None:
    assert [check(wanted=value) for value in good] == good
    for value in bad:
        with pytest.raises(ParameterError, match=r"^wanted must") as error:
            check(wanted=value)
        assert error.value.name == "wanted"


def test_values_that_cannot_be_shown_or_are_long_do_not_hide_the_sentence() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    with pytest.raises(ParameterError, match="not a value of type Broken"):
        _validate.real(size=Broken())
    with pytest.raises(ParameterError) as error:
        _validate.one_of(["a", "b"], kind="x" * 500)
    assert len(str(error.value)) < 120
    assert "'a', 'b'" in str(error.value)


def test_a_delta_of_0_is_told_what_it_needs() -> None:
    assert _validate.delta(allow_zero=True, delta=0) == 0
    with pytest.raises(ParameterError, match="noise='laplace'"):
        _validate.delta(allow_zero=False, delta=0)
