"""Wording for a release and its numbers, and the choice of shown numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpgrain._formatting import one_line, shorten
from dpgrain.words import quantities
from dpgrain.words.release_text import key_headings

if TYPE_CHECKING:
    from dpgrain.statistics.release import Release

_TEXT_LETTERS = 500


@dataclass(frozen=True)
class Wording:
    """Wording for a release."""

    name: str  # words before its subject: "mean of"
    of: str  # its subject: a column, or a few words
    by: str
    lead: str
    noun: str  # for a group, in the singular
    heads: tuple[str, ...]
    plural: bool = False  # the name has no article


def release_wording(release: Release) -> Wording:
    """Return the words for a release."""
    statistic, names, heads = release.statistic, release.groups.names, key_headings(release)
    name, lead, plural = statistic.heading, statistic.lead, statistic.plural
    if statistic.has_items or statistic.has_bins:
        of = quantities.keys_text(release.metadata) or "items"
        return Wording(name, of, "", lead, statistic.noun, heads, plural)
    known, rows = ranks(release), release.metadata.rows
    lead = lead.replace("records", rows)
    if len(known) == 1:
        name = "median of" if known[0] == 0.5 else f"{known[0]:g} quantile of"
        lead, plural = f"The value that {100 * known[0]:g}% of the {rows} are below", False
    by = ", ".join(statistic.keys(names))
    if by:
        lead += " in each group"
    return Wording(name, value_of(release), by, lead, statistic.noun, heads, plural)


def value_of(release: Release) -> str:
    """Return the measured column, or the counted things."""
    return release.statistic.value_of(quantities.value_text(release.metadata))


def is_one(release: Release) -> bool:
    """Return whether the release is one number over all records."""
    return len(release) == 1 and release.groups.names in ((), ("quantile",))


def ranks(release: Release) -> list[float]:
    """Return the distinct ranks of quantiles; none for other releases."""
    if not release.statistic.ranked:
        return []
    return [float(rank) for rank in release.groups.columns[-1].unique().to_pylist()]


def count_groups(release: Release) -> int:
    """Count the groups of a release; each quantile or distribution has several rows."""
    if not release.statistic.pointwise:
        return len(release)
    return len(release) // max(len(release.groups.columns[-1].unique()), 1)


def label(keys: Sequence[str], letters: int) -> str:
    """Join keys to a label of at most ``letters`` characters."""
    whole = " · ".join(keys)
    if len(keys) == 1 or shorten(whole, letters) == whole:
        return shorten(whole, letters)
    # Start with the shortest key, because unused characters go to the others.
    left, cut = letters - 3 * (len(keys) - 1), list(keys)
    places = sorted(range(len(keys)), key=lambda place: len(keys[place]))
    for done, place in enumerate(places):
        cut[place] = shorten(keys[place], max(left // (len(keys) - done), 4))
        left -= len(cut[place])
    return " · ".join(cut)


def text(value: object, letters: int = _TEXT_LETTERS) -> str:
    """Write anything as one line of text of limited length."""
    return shorten(one_line(value), letters)


def lines_caption(key: str, shown: int, total: int, *, clipped: bool, gaps: bool) -> str:
    """Return the caption of lines over a key."""
    of = " of the clipped sums" if clipped else ""
    some = f" Largest {shown} of {total:,} lines." if total > shown else ""
    missing = " Lines are interrupted where nothing was published." if gaps else ""
    return f"Estimates by {text(key, 60)} with 95% intervals{of}.{some}{missing}"
