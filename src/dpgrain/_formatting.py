"""Text and numbers for people; rounding never makes a guarantee look stronger than it is."""

from __future__ import annotations

import itertools
import math
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from dpgrain._lazy_import import lazy_import

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy_import("numpy")

# Joiners, which change the shape of adjacent letters; not printable, but harmless.
_JOINERS = "\u200c\u200d"
# Maximum columns that a message lists; suggestions for a wrong name, and their minimum similarity.
_LISTED, _NEAREST, _LIKENESS = 20, 5, 0.6
#: Maximum characters of a column name in a message: the name may be a whole header.
COLUMN_LETTERS = 40
# Maximum numbers and characters of a value in a message.
_SHOWN_NUMBERS, _SHOWN_CHARACTERS = 4, 60

# Width of an explanation, and of its column of names, in characters.
_EXPLAINED, _INDENT = 100, 13
#: Last line of a printed release.
POINTER = "What the columns mean: .explain(). Full guarantee: print(.guarantee)"

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def rounded_up(value: float, digits: int = 4) -> str:
    """Format a number with a few significant digits, rounded up."""
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int = 4) -> str:
    """Format a number with a few significant digits, rounded down."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, rounding: str) -> str:
    if math.isinf(value):
        return "∞"
    # repr is the shortest decimal of this number, so that 0.07 stays 0.07.
    exact = Context(prec=digits, rounding=rounding).create_decimal(repr(float(value)))
    return (
        f"{exact.normalize():,f}"
        if value == 0 or 1e-4 <= value < 1e7
        else f"{exact:.{digits - 1}e}"
    )


def powers(value: float, *, up: bool = True) -> str:
    """Format a small number such as 2·10⁻⁶, rounded up or down."""
    digits, rounding = (6, ROUND_CEILING) if up else (3, ROUND_FLOOR)
    exact = Context(prec=digits, rounding=rounding).create_decimal(repr(float(value)))
    if value == 0 or value >= 1e-3:
        return f"{exact.normalize():f}"
    mantissa, exponent = f"{exact:.5e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".")
    power = "10" + str(int(exponent)).translate(_SUPERSCRIPTS)
    return power if mantissa == "1" else f"{mantissa}·{power}"


# Tolerance for sums of shares in floating point, which the promise of a budget allows for.
SUM_TOLERANCE = 1e-9


def remaining_delta(leak: float) -> str:
    """Format remaining delta mass: exactly the cap if nothing is spent."""
    # Undoes the reduction of the caps.
    return powers(leak * (1 + 4 * SUM_TOLERANCE), up=False)


def short_repr(value: Any) -> str:
    """Return a value in one line: first numbers of an array, or start of a text."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        first = [f"{number:.4g}" for number in value.flat[:_SHOWN_NUMBERS]]
        return f"({', '.join([*first, '…'] if value.size > _SHOWN_NUMBERS else first)})"
    if isinstance(value, int | float | np.number):
        return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


def approximate_percent(share: float) -> str:
    """Format an estimated share as a percentage with about two digits."""
    if share < 1e-3:
        return "under 0.1%"
    return f"about {100 * share:.{0 if share >= 0.0995 else 1}f}%"


def percent(share: float, *, up: bool = True) -> str:
    """Format a share of a budget as a percentage, rounded up or down."""
    share = max(share, 0.0)
    return rounded_up(100 * share, 3) + "%" if up else f"{math.floor(1000 * share) / 10:g}%"


def quote_user(user: str) -> str:
    """Return the column of user ids in quotes; columns of owners are quoted already."""
    return user if user.startswith("'") and "' and '" in user else repr(user)


def quantity(number: int, noun: str) -> str:
    """Format a count with its noun in the singular or plural."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def suggest_columns(name: str, names: Sequence[str]) -> str:
    """List the columns of a table without the requested one: all or the nearest."""
    if len(names) <= _LISTED:
        return f"it has {_listed(names)}"
    # Capital letters do not distinguish names.
    folded: dict[str, str] = {}
    for each in names:
        folded.setdefault(each.casefold(), each)
    near = get_close_matches(name.casefold(), folded, n=_NEAREST, cutoff=_LIKENESS)
    if not near:
        return f"none of its {len(names):,} columns is like it; the first are {_listed(names[:3])}"
    verb = "nearest is" if len(near) == 1 else "nearest are"
    return f"of its {len(names):,} columns the {verb} {_listed([folded[each] for each in near])}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(shorten(name, COLUMN_LETTERS) for name in names)


def first_duplicate(names: Iterable[str]) -> str | None:
    """Return the first name that occurs twice; None without one."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def one_line(item: Any) -> str:
    """Return an item as one line of text without invisible or reordering characters."""
    text = str(item)
    if not text or text != text.strip():
        # Quotes show blanks at the ends.
        return repr(text)
    return "".join(
        c if c.isprintable() or c in _JOINERS else c.encode("unicode_escape").decode() for c in text
    )


def shorten(text: str, letters: int) -> str:
    """Truncate a text to a number of columns, with … at the end; wide letters take two."""
    used = 0
    for place, letter in enumerate(text):
        used += _width(letter)
        if used > letters:
            return text[: max(place - 1, 0)].rstrip() + "…"
    return text


def abbreviate(texts: Sequence[str], letters: int) -> list[str]:
    """Truncate texts in the middle, unless two different ones would become equal."""
    short = {text: _without_middle(text, letters) for text in dict.fromkeys(texts)}
    alike = Counter(short.values())
    return [short[text] if alike[short[text]] == 1 else text for text in texts]


def _without_middle(text: str, letters: int) -> str:
    if sum(map(_width, text)) <= letters:
        return text
    end = _fitting(text[::-1], (letters - 1) // 2)[::-1]
    return f"{_fitting(text, letters - 1 - sum(map(_width, end)))}…{end}"


def _fitting(text: str, letters: int) -> str:
    """Return the longest beginning of a text that fits into a number of columns."""
    used = itertools.accumulate(map(_width, text))
    return text[: sum(width <= letters for width in used)]


def _width(letter: str) -> int:
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop; an empty one is unchanged."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


class Paragraphs(str):
    """A text that interactive sessions print."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def format_facts(title: str, facts: Mapping[str, str]) -> Paragraphs:
    """Return a title and a list of named facts as text, with the names in a column."""
    lines = [title]
    for name, fact in facts.items():
        lines += textwrap.wrap(
            sentence(fact),
            _EXPLAINED,
            initial_indent=f"{name:<{_INDENT - 2}}  ",
            subsequent_indent=" " * _INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return Paragraphs("\n".join(lines))


def align_columns(rows: Sequence[Sequence[str]], *, left: bool = False) -> list[str]:
    """Return the lines of a table, with two spaces between columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            text.ljust(width) if left else text.rjust(width)
            for text, width in zip(row, widths, strict=True)
        )
        for row in rows
    )
    return [line.rstrip() for line in lines]


def useful_decimals(std_error: float) -> int | None:
    """Return the number of decimals for two digits of a standard error; None if it is 0 or unknown."""
    if not 0 < std_error < math.inf:
        return None
    return min(max(1 - math.floor(math.log10(std_error)), 0), 12)


def format_number(value: float, decimals: int | None) -> str:
    """Format a number with these decimals, or with six digits if None; NaN is blank."""
    if math.isnan(value):
        return ""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if decimals is None:
        return f"{value + 0.0:,.6g}".replace("-", "−")
    # Adding 0 turns −0 into 0.
    return f"{round(value, decimals) + 0.0:,.{decimals}f}".replace("-", "−")
