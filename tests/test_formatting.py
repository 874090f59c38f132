"""Numbers as text: an epsilon is never rounded down, and small ones are powers."""

from __future__ import annotations

import math

import pytest

from dpgrain._formatting import powers, rounded_up


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.07, "0.07"),
        (1.0, "1"),
        (1.00001, "1.001"),
        (123.41, "123.5"),
        (12341.0, "12,350"),
        (0.0, "0"),
        (1e-7, "1.000e-7"),
        (math.inf, "∞"),
    ],
)
def test_rounded_up(value: float, shown: str) -> None:
    assert rounded_up(value) == shown


def test_small_numbers_as_powers() -> None:
    assert [powers(v) for v in (1e-6, 2.5e-10, 0.01, 0)] == ["10⁻⁶", "2.5·10⁻¹⁰", "0.01", "0"]
