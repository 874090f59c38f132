"""The words for a release and its numbers, and the choice of the numbers that are shown."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgrain import _validate
from dpgrain._types import IntArray
from dpgrain.statistics.release import Release

_TEXT_LETTERS = 500
# These joiners change how the letters beside them are written; they are not printable, but harmless.
_JOINERS = "\u200c\u200d"


@dataclass(frozen=True)
class Words:
    """The words for one kind of release.

    Args:
        name: the words before what the release is of: "mean of".
        of: the subject of the release: a column, or a few words.
        by: the keys it is grouped by; empty for one overall.
        lead: the sentence under the heading.
        noun: the word for one of its groups, in the singular.
        heads: the headings of the columns of keys.
        plural: True where no article stands before the name.
    """

    name: str
    of: str
    by: str
    lead: str
    noun: str
    heads: tuple[str, ...]
    plural: bool = False


def words_of(release: Release) -> Words:
    """Return the words for a release."""
    statistic, names = release.statistic, release.groups.names
    name, lead, plural = statistic.heading, statistic.lead, statistic.plural
    if statistic.of_items or statistic.of_bins:
        heads = ("held", "how many") if statistic.of_bins else names
        of = release.asked.items_in_words or "items"
        return Words(name, of, "", lead, statistic.noun, heads, plural)
    known = ranks(release)
    if len(known) == 1:
        name = "median of" if known[0] == 0.5 else f"{known[0]:g} quantile of"
        lead, plural = f"The number below which {100 * known[0]:g}% of the records lie", False
    by = ", ".join(statistic.keys(names))
    if by:
        lead += ", group by group"
    return Words(name, value_of(release), by, lead, statistic.noun, names, plural)


def value_of(release: Release) -> str:
    """Return the column of numbers that were measured, or what counts in place of one."""
    return release.statistic.value_of(release.asked.value)


def measured(release: Release) -> str:
    """Say in a word or two what an estimate is."""
    return release.asked.measured


def is_one(release: Release) -> bool:
    """Return whether the release is one number over all records."""
    return len(release) == 1 and release.groups.names in ((), ("quantile",))


def shown(release: Release, count: int) -> IntArray:
    """Return the places of the rows to show: the largest, or the first ones where order matters."""
    count = _validate.integer(minimum=1, top=count)
    if release.statistic.in_order or not release.groups.names:
        return np.arange(min(count, len(release)))
    return np.argsort(-release.estimate, kind="stable")[:count]


def ranks(release: Release) -> list[float]:
    """Return the different ranks of quantiles, in the order given; none for other releases."""
    if not release.statistic.ranked:
        return []
    return [float(rank) for rank in release.groups.columns[-1].unique().to_pylist()]


def groups_of(release: Release) -> int:
    """Count the groups of a release, of which quantiles have several rows each."""
    return len(release) // max(len(ranks(release)), 1)


def key_texts(release: Release, places: IntArray, *, letters: int) -> list[tuple[str, ...]]:
    """Return the keys of the groups at these places as text, each cut to a number of letters."""
    columns = [column.to_pylist() for column in release.groups.take(places).columns]
    if release.statistic.of_bins:
        columns = [columns[0], bins_in_words(release, columns[1])]
    return [
        tuple(shorten(key_text(key), letters) for key in keys)
        for keys in zip(*columns, strict=True)
    ] or [()] * len(places)


def key_text(key: Any) -> str:
    """Return one key as text."""
    if isinstance(key, float):
        return f"{key:.10g}"
    return "none" if key is None else printed(key)


def label(keys: Sequence[str], letters: int) -> str:
    """Join keys to a label of at most ``letters`` letters, of which each key gets a share."""
    whole = " · ".join(keys)
    if len(keys) == 1 or shorten(whole, letters) == whole:
        return shorten(whole, letters)
    # Keys are cut from the shortest on, so that what one leaves over goes to the others.
    left, cut = letters - 3 * (len(keys) - 1), list(keys)
    places = sorted(range(len(keys)), key=lambda place: len(keys[place]))
    for done, place in enumerate(places):
        cut[place] = shorten(keys[place], max(left // (len(keys) - done), 4))
        left -= len(cut[place])
    return " · ".join(cut)


def bins_in_words(release: Release, most: Sequence[int | None]) -> list[str]:
    """Write bins of numbers in words, each known by its largest number or by None."""
    edges = sorted({edge for edge in release.groups.columns[1].to_pylist() if edge is not None})
    names: dict[int | None, str] = {}
    before = 0
    for edge in edges:
        names[edge] = f"{edge:,}" if edge == before + 1 else f"{before + 1:,}–{edge:,}"
        before = edge
    names[None] = f"over {before:,}"
    return [names[edge] for edge in most]


def printed(item: Any) -> str:
    """Return an item as one line of text in which nothing is invisible or reorders its surroundings."""
    text = str(item)
    if not text.strip():
        return repr(text)
    return "".join(
        c if c.isprintable() or c in _JOINERS else c.encode("unicode_escape").decode() for c in text
    )


def text(value: object, letters: int = _TEXT_LETTERS) -> str:
    """Write anything as one line of text, cut to a number of letters."""
    return shorten(printed(value), letters)


def shorten(text: str, letters: int) -> str:
    """Cut a text to a number of letters, of which wide ones count two, with … at the end."""
    used = 0
    for place, letter in enumerate(text):
        used += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if used > letters:
            return text[: max(place - 1, 0)].rstrip() + "…"
    return text


def number_in_words(release: Release) -> tuple[str, str, str]:
    """Return the one estimate of a release and the ends of its interval, as they are printed."""
    decimals = decimals_of(float(release.std_error[0]))
    estimate, low, high = (
        number(float(values[0]), decimals)
        for values in (release.estimate, release.low, release.high)
    )
    return estimate, low, high


def decimals_of(std_error: float) -> int | None:
    """Return how many decimals show two digits of the standard error; None where it is 0."""
    if not std_error > 0:
        return None
    return min(max(1 - math.floor(math.log10(std_error)), 0), 12)


def number(value: float, decimals: int | None) -> str:
    """Return a number with these decimals, or with six digits where they are None."""
    if decimals is None:
        return f"{value + 0.0:,.6g}".replace("-", "−")
    # Adding 0 turns −0 into 0.
    return f"{round(value, decimals) + 0.0:,.{decimals}f}".replace("-", "−")
