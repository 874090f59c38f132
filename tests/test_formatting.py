"""Numbers as text: an epsilon is never rounded down, and small ones are powers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from dpgrain._formatting import (
    SUM_TOLERANCE,
    abbreviate,
    align_columns,
    approximate_percent,
    first_duplicate,
    format_facts,
    format_number,
    percent,
    powers,
    quantity,
    quote_user,
    remaining_delta,
    rounded_down,
    rounded_up,
    sentence,
    short_repr,
    suggest_columns,
)


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


@pytest.mark.parametrize(
    ("value", "shown"), [(1.99999, "1.999"), (0.25, "0.25"), (1234.5, "1,234")]
)
def test_rounded_down(value: float, shown: str) -> None:
    assert rounded_down(value) == shown


@pytest.mark.parametrize(
    ("function", "value", "shown"),
    [
        (remaining_delta, 1e-7 * (1 - 2 * SUM_TOLERANCE), "10⁻⁷"),
        (remaining_delta, 4.9e-8, "4.9·10⁻⁸"),
        (approximate_percent, 0.1234, "about 12%"),
        (approximate_percent, 0.012, "about 1.2%"),
        (approximate_percent, 0.00001, "under 0.1%"),
        (percent, 0.12341, "12.4%"),
        (percent, -0.1, "0%"),
    ],
)
def test_shares(function: Callable[[float], str], value: float, shown: str) -> None:
    assert function(value) == shown


def test_lower_bounds_are_rounded_down() -> None:
    assert (percent(0.12341, up=False), powers(4.9999e-8, up=False)) == ("12.3%", "4.99·10⁻⁸")


def test_long_values_are_shortened() -> None:
    assert short_repr(np.array([0.5, 2 / 3, 1e-9, 4, 5])) == "(0.5, 0.6667, 1e-09, 4, …)"
    assert (short_repr(0.25), short_repr("x" * 99)[-3:]) == ("0.25", "xx…")
    texts = ["https://example.org/books/1", "https://example.org/books/2"]
    assert abbreviate(texts, 12) == ["https:…oks/1", "https:…oks/2"]


@pytest.mark.parametrize(
    ("value", "shown"), [(1234.56, "1,234.6"), (-0.001, "0.0"), (math.nan, ""), (math.inf, "∞")]
)
def test_numbers_with_one_decimal(value: float, shown: str) -> None:
    assert format_number(value, 1) == shown


def test_text_around_values() -> None:
    assert (quantity(1, "item"), quantity(1200, "item")) == ("1 item", "1,200 items")
    assert (sentence("noise was added"), sentence("")) == ("Noise was added.", "")
    assert quote_user("reader") == "'reader'"
    assert quote_user("'sender' and 'receiver'") == "'sender' and 'receiver'"
    assert (first_duplicate(["a", "b", "a", "b"]), first_duplicate("ab")) == ("a", None)


def test_columns_are_aligned() -> None:
    assert align_columns([["item", "count"], ["tea", "12"]]) == ["item  count", " tea     12"]
    text = str(format_facts("Mean", {"estimate": "the mean, plus noise"}))
    assert text == "Mean\nestimate     The mean, plus noise."


def test_nearest_columns_are_suggested() -> None:
    assert suggest_columns("amout", ["who", "amount"]) == "it has who, amount"
    wide = [f"x{number}" for number in range(999)] + ["amount"]
    assert suggest_columns("AMOUT", wide) == "of its 1,000 columns the nearest is amount"
