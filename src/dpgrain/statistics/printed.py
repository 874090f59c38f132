"""The rows of a release as text, and what stands around them, for ``print``, the terminal and pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgrain import _validate
from dpgrain._types import IntArray
from dpgrain._wording import aligned, counted, decimals_of, number, printed, shorten

if TYPE_CHECKING:
    from dpgrain.statistics.release import Release

# Rows that a printed release shows, and letters of each key.
_ROWS, _LETTERS = 5, 40
_COUNTS = ("count", "count_error")
# Form of a day or a month, whose rows are read in the order of time.
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}(-[0-9]{2})?")


@dataclass(frozen=True)
class Line:
    """One row of a release, as it is printed."""

    keys: tuple[str, ...]
    estimate: str
    std_error: str
    low: str
    high: str
    more: tuple[str, ...] = ()


def lines_of(release: Release, places: IntArray, *, letters: int) -> list[Line]:
    """Return rows of a release as text, with as many decimals as the noise allows.

    Args:
        release: a published release of any kind.
        places: the places of the rows.
        letters: the number of letters to which each key is cut.
    """
    columns = (release.estimate, release.std_error, release.low, release.high)
    values = np.stack([column[places] for column in columns], axis=1)
    more = {name: column[places] for name, column in release.more.items()}
    divided = "count" in more
    # Estimates are whole where the noise on whole numbers is whole.
    whole = not divided and bool((values[:, 0] == np.rint(values[:, 0])).all())
    known = values[np.isfinite(values[:, 1]), 1]
    usual = decimals_of(float(np.median(known))) if known.size else None
    lines = []
    for row, keys in enumerate(key_texts(release, places, letters=letters)):
        decimals = decimals_of(float(values[row, 1]))
        if divided and usual is not None:
            # Of one measure: alike, unless an error is far smaller or larger than the others.
            near = decimals is None or abs(decimals - usual) < 2
            decimals = usual if near else decimals
        estimate, error, low, high = (number(float(v), decimals) for v in values[row])
        if whole:
            estimate = number(float(values[row, 0]), 0)
        own = tuple(
            number(float(column[row]), 0 if name in _COUNTS else decimals)
            for name, column in more.items()
        )
        lines.append(Line(keys, estimate, error, low, high, own))
    return lines


def shown(release: Release, count: int) -> IntArray:
    """Return the places of the rows to show: the largest, or the first ones where order matters."""
    count = _validate.integer(minimum=1, top=count)
    if release.statistic.in_order or not release.groups.names:
        return np.arange(min(count, len(release)))
    if _of_dates(release):
        return release.groups.order()[:count]
    return np.argsort(-release.estimate, kind="stable")[:count]


def in_order(release: Release) -> bool:
    """Return True where rows are shown in the order of what they are of, such as days."""
    return release.statistic.in_order or _of_dates(release)


def _of_dates(release: Release) -> bool:
    """Return True if the first key of each row is a day or a month."""
    if not release.groups.names or not len(release):
        return False
    keys = release.groups.columns[0].to_pylist()
    return all(isinstance(key, str) and _DATE.fullmatch(key) is not None for key in keys)


def key_headings(release: Release) -> tuple[str, ...]:
    """Return the headings of the keys: bins of how much users hold are shown as what they span."""
    return ("held", "how many") if release.statistic.of_bins else release.key_names


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


def known_more(release: Release) -> list[str]:
    """Return the names of the further columns with any known number."""
    return [name for name, column in release.more.items() if not np.isnan(column).all()]


def counts_capped(release: Release) -> bool:
    """Return whether counts beside estimates are of what clipping leaves."""
    return release.asked.capped and release.asked.over != "everyone"


def heading(release: Release, name: str) -> str:
    """Return the heading of a further column of numbers, which says where a count is capped."""
    return "capped count" if name == "count" and counts_capped(release) else name


def notes(release: Release) -> list[str]:
    """Return what readers of the numbers have to know, in short sentences."""
    asked = release.asked
    said = [_intervals(release)] if asked.processed or asked.cut or asked.statistic.ratio else []
    facts = (asked.cut_off, asked.outside, asked.left_out, asked.ranked)
    return said + [f"{fact[0].upper()}{fact[1:]}." for fact in facts if fact]


def _intervals(release: Release) -> str:
    """Say in a sentence what the intervals and the limits are of."""
    asked, known = release.asked, known_more(release)
    said = "95% intervals are of the capped sum"
    if asked.statistic.ratio:
        average = "record, not the average person" if asked.rows == "records" else "person"
        said = (
            f"95% intervals are of this {'capped ' if asked.cut else ''}number, which is about the "
            f"average {average}"
        )
        if asked.statistic.stepped:
            said = (
                f"95% intervals hold all {'capped ' if asked.capped else ''}shares of a group at once, "
                f"which are about the average {average}"
            )
    if asked.cut and asked.statistic.ratio and not asked.statistic.in_order:
        said += "; before capping it may lie far beyond where a few hold much"
    if asked.processed:
        said = f"Errors and intervals are approximate after post-processing ({asked.afterwards})"
    if "at_least" in known:
        said += (
            "; the total before capping is at_least or more (95%), and may be far more where a few "
            "people hold much, which no private release can show"
        )
    if "at_least" in known and asked.chosen:
        said += (
            ". To estimate the uncapped total, set clip= to a bound that few contributions exceed"
        )
    return f"{said}."


def summary(release: Release) -> str:
    """Return a release as ``print`` shows it: what it is of, a few rows, notes, and its promise."""
    name = f"{release.statistic.name[:1].upper()}{release.statistic.name[1:]}"
    asked, care = release.asked, release.asked.take_care
    if not release.groups.names:
        if asked.cut:
            name = f"Capped {release.statistic.name}"
        parts = [f"{name}: {_one_number(release)} ({asked.estimand})."]
    else:
        noun = "item" if release.statistic.of_items else "group"
        points = len(release.groups.columns[-1].unique()) if release.statistic.pointwise else 1
        groups = counted(len(release) // max(points, 1), noun)
        parts = [f"{name} of {groups}: {asked.estimand}."]
    if release.statistic.of_bins:
        parts = [f"{name}: {asked.estimand} by how many elements, and records, each holds."]
    if not len(release):
        parts[0] += " None passed the threshold: give domain= or more ε."
    elif release.groups.names:
        parts += _table(release)
    parts += [" ".join(notes(release))] if len(release) else []
    parts += [f"Take care: {care}."] if care else []
    return "\n".join([part for part in parts if part] + [release.guarantee.brief])


def _one_number(release: Release) -> str:
    """Return the one estimate of a release with all its limits."""
    if np.isnan(release.estimate[0]):
        return "not published, as no number stood out from the noise"
    line = lines_of(release, np.arange(1), letters=_LETTERS)[0]
    more = dict(zip(release.more, line.more, strict=True))
    from_count = "from a capped count of about" if counts_capped(release) else "from about"
    words = {"at_least": "before capping at least", "count": from_count}
    told = [f"{words[name]} {more[name]}" for name in words if more.get(name)]
    if more.get("count"):
        error = more.get("count_error")
        exact = f" (standard error {error})" if error else ""
        told[-1] += f" {release.asked.rows}{exact}"
        if release.asked.over == "everyone":
            told[-1] = f"of {more['count']} people"
    return ", ".join([f"{line.estimate}, 95% from {line.low} to {line.high}", *told])


def _table(release: Release) -> list[str]:
    """Return the first or the largest rows of a release as lines of equal width."""
    places, known = shown(release, _ROWS), known_more(release)
    rows = [
        [*line.keys, line.estimate, line.std_error, line.low, line.high]
        + [text for name, text in zip(release.more, line.more, strict=True) if name in known]
        for line in lines_of(release, places, letters=_LETTERS)
    ]
    heads = [shorten(printed(name), _LETTERS) for name in key_headings(release)]
    more = [heading(release, name) for name in known]
    rows = [[*heads, *release.headings, *more], *rows]
    lines = aligned(rows)
    if len(release) > len(places):
        order = "first" if in_order(release) else "largest"
        lines.append(f"({order} {len(places)} of {len(release):,}; all: to_pandas())")
    return lines
