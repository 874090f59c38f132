"""Words and numbers for people to read; rounding never makes a promise look stronger than it is."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context
from typing import TYPE_CHECKING, Any

from dpgrain._later import later

if TYPE_CHECKING:
    import numpy as np
else:
    np = later("numpy")

#: Guarantees of means whose sums are not made of whole numbers say this.
FLOATING_SUMS = "sums are made in floating point, whose rounding is left out"

# At most this many numbers, or characters, of a value are shown.
_SHOWN_NUMBERS, _SHOWN_CHARACTERS = 4, 60

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def rounded_up(value: float, digits: int = 4) -> str:
    """Write a number with a few significant digits, never below the true one; ∞ for infinity.

    >>> rounded_up(1.00001), rounded_up(0.25), rounded_up(1234.5)
    ('1.001', '0.25', '1,235')
    """
    if math.isinf(value):
        return "∞"
    # repr gives the shortest decimal that stands for this number, so that 0.07 stays 0.07.
    exact = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(value)))
    return (
        f"{exact.normalize():,f}"
        if value == 0 or 1e-4 <= value < 1e7
        else f"{exact:.{digits - 1}e}"
    )


def powers(value: float) -> str:
    """Write a small number as people do, such as 2·10⁻⁶, never below the true one.

    >>> powers(2e-6), powers(0.01), powers(0)
    ('2·10⁻⁶', '0.01', '0')
    """
    exact = Context(prec=6, rounding=ROUND_CEILING).create_decimal(repr(float(value)))
    if value == 0 or value >= 1e-3:
        return f"{exact.normalize():f}"
    mantissa, exponent = f"{exact:.5e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".")
    power = "10" + str(int(exponent)).translate(_SUPERSCRIPTS)
    return power if mantissa == "1" else f"{mantissa}·{power}"


def shown(value: Any) -> str:
    """Write a value in one line: the first of many numbers, or the beginning of a long text.

    Args:
        value: numbers of any shape, or anything else.

    >>> shown(np.array([0.5, 2 / 3, 1e-9, 4, 5])), shown(0.25), shown("x" * 99)[-3:]
    ('(0.5, 0.6667, 1e-09, 4, …)', '0.25', 'xx…')
    """
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        first = [f"{number:.4g}" for number in value.flat[:_SHOWN_NUMBERS]]
        return f"({', '.join([*first, '…'] if value.size > _SHOWN_NUMBERS else first)})"
    if isinstance(value, int | float | np.number):
        return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


def counted(number: int, noun: str) -> str:
    """Write a number of things, in the singular where it is one.

    >>> counted(1, "item"), counted(1200, "item")
    ('1 item', '1,200 items')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
