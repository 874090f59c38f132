"""Covering arrays hold what they promise, in few cases."""

from __future__ import annotations

import itertools

import pytest

from dpgrain.errors import ParameterError
from dpgrain.testing import covering

OPTIONS = {"a": [*range(7)], "b": [*"xyz"], "c": [True, False], "d": [*range(5)]}


@pytest.mark.parametrize("strength", [1, 2, 3, 4, None])
def test_every_combination_is_in_a_case(strength: int | None) -> None:
    cases = covering(OPTIONS, strength)
    for names in itertools.combinations(OPTIONS, strength or len(OPTIONS)):
        shown = {tuple(case[name] for name in names) for case in cases}
        assert shown == set(itertools.product(*(OPTIONS[name] for name in names)))
    # No more than a few times the least number that there can be.
    sizes = sorted(map(len, OPTIONS.values()))[-(strength or 4) :]
    least = 1
    for size in sizes:
        least *= size
    assert least <= len(cases) <= 1.6 * least
    assert cases == covering(OPTIONS, strength)


def test_what_is_not_allowed_is_in_no_case_and_all_else_is() -> None:
    cases = covering(OPTIONS, 2, allowed=lambda a, b, **_: a < 3 or b == "x")
    shown = {(case["a"], case["b"]) for case in cases}
    assert shown == {(a, b) for a in range(7) for b in "xyz" if a < 3 or b == "x"}
    assert {(case["b"], case["d"]) for case in cases} == set(itertools.product("xyz", range(5)))


def test_a_strength_below_one_is_refused() -> None:
    with pytest.raises(ParameterError, match="strength must be at least 1, not 0"):
        covering(OPTIONS, 0)
