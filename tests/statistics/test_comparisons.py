"""Differences and ratios of two noisy numbers."""

from __future__ import annotations

import math

import pytest

from dpgrain.statistics.comparisons import Comparison, difference, ratio


def test_ratio_interval_has_fiellers_ends() -> None:
    numbers, errors, quantile = (50.0, 100.0), (3.0, 4.0), 1.96
    _, _, low, high = ratio(numbers, errors, quantile)
    for end in (low, high):
        gap = abs(numbers[0] - end * numbers[1])
        assert gap == pytest.approx(quantile * math.hypot(errors[0], end * errors[1]))


def test_a_divisor_within_the_noise_has_no_ratio() -> None:
    for below in (-100.0, 0.0, 7.8):
        assert all(math.isnan(number) for number in ratio((50.0, below), (3.0, 4.0), 1.96))


def test_errors_of_differences_add_in_squares() -> None:
    assert difference((5.0, 7.0), (3.0, 4.0), 1.0) == (-2.0, 5.0, -7.0, 3.0)


def test_a_comparison_without_an_estimate_prints_the_reason() -> None:
    blank = Comparison("ratio", ("a", "b"), "total", math.nan, math.nan, math.nan, math.nan)
    assert str(blank) == "Ratio of totals, a ÷ b: no estimate, because b is within the noise"
