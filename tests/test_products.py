"""Covering arrays contain every combination of values, and few cases."""

from __future__ import annotations

import itertools

import pytest
from tests.products import covering


@pytest.mark.parametrize("strength", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("sizes", [(1,), (3, 2), (2, 3, 4), (5, 2, 3, 1, 2), (2,) * 8])
def test_every_meeting_is_there(sizes: tuple[int, ...], strength: int) -> None:
    options = {f"o{place}": range(size) for place, size in enumerate(sizes)}
    found = covering(options, strength)
    for names in itertools.combinations(options, min(strength, len(sizes))):
        met = {tuple(each[name] for name in names) for each in found}
        assert met == set(itertools.product(*(options[name] for name in names)))


@pytest.mark.parametrize("strength", [1, 2, 3, None])
def test_forbidden_cases_are_omitted(strength: int | None) -> None:
    options = {"a": [1, 2, 3], "b": "xyz", "c": [True, False], "d": "pq"}

    def allowed(a: int, b: str, **_: object) -> bool:
        return (a, b) != (2, "y")

    found = covering(options, strength, allowed=allowed)
    assert all(allowed(**each) for each in found)
    assert {each["a"] for each in found} == {1, 2, 3}
    if strength != 1:
        assert len({(each["a"], each["b"]) for each in found}) == 8
