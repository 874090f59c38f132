"""Two releases of the same statistic, group by group."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np

from dpgrain import _validate
from dpgrain._formatting import rounded_up
from dpgrain.errors import ParameterError
from dpgrain.report.axes import (
    ORANGE,
    axes_for,
    interval_bars,
    label_letters,
    label_rows,
    legend_above,
    write_message,
)
from dpgrain.report.plots.estimates import quantity
from dpgrain.statistics.group_estimates import Histogram
from dpgrain.statistics.release import Release
from dpgrain.words.headings import label
from dpgrain.words.release_text import format_keys, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Distance of the two estimates of a group from the middle of its row.
_ASIDE = 0.16


def plot_comparison(
    release: Release, other: Release, ax: Axes | None = None, *, top: int = 30
) -> Axes:
    """Draw the estimates of two releases, one group per row, with their 95% intervals.

    Args:
        release: the release with the groups.
        other: a release of the same statistic by the same keys; other groups are ignored.
        ax: axes to draw on; new ones by default.
        top: the number of groups, by largest estimate of the first release.

    Raises:
        ParameterError: if statistics or keys differ, or a group has more than one number.
    """
    _check_comparable(release, other)
    top = _validate.integer(minimum=1, top=top)
    places = shown(release, top)
    ax = axes_for(ax, 7.0, 1.7 + 0.36 * max(len(places), 2))
    if not len(release):
        return write_message(ax, "nothing was published")
    result = _indices_in(other, release, places)
    rows, matched = np.arange(len(places)), result >= 0
    names = _legend_names(release, other)
    ends = []
    for one, at, row, name, style in (
        (release, places, rows - _ASIDE, names[0], {}),
        (other, result[matched], rows[matched] + _ASIDE, names[1], {"color": ORANGE, "fmt": "s"}),
    ):
        estimate, low, high = one.estimate[at], one.low[at], one.high[at]
        interval_bars(ax, row, estimate, low, high, label=name, **style)
        ends.append((low, high))
    low, high = (np.concatenate(sides) for sides in zip(*ends, strict=True))
    keys = format_keys(release, places, letters=200)
    labels = [label(release.statistic.keys(key), label_letters(ax)) or "all" for key in keys]
    clipped = other if other.metadata.is_limited else release
    zero = isinstance(release, Histogram)
    label_rows(ax, labels, f"estimate ({quantity(clipped, ax)})", low, high, zero=zero)
    legend_above(ax)
    return ax


def _check_comparable(release: Release, other: Release) -> None:
    """Raise unless both are the same statistic by the same keys, with one number per group."""
    if not isinstance(other, Release):
        raise ParameterError(
            f"beside must be a release, such as one for another unit, not {type(other).__name__}."
        )
    mine, theirs = (
        (one.statistic.name, one.metadata.value, one.groups.names) for one in (release, other)
    )
    if mine != theirs:
        raise ParameterError(
            f"beside must be a release of the same statistic and keys, {_describe(mine)}, not "
            f"{_describe(theirs)}."
        )
    if release.statistic.pointwise or release.statistic.has_bins:
        raise ParameterError(
            f"beside must be omitted for {release.statistic.name}, which has several numbers per "
            "group; plot each release on separate axes."
        )


def _describe(question: tuple[str, str | None, tuple[str, ...]]) -> str:
    statistic, value, keys = question
    of = f" of {value!r}" if value else ""
    return f"{statistic}{of}" + (f" by {', '.join(map(repr, keys))}" if keys else "")


def _keys(release: Release) -> list[tuple[Hashable, ...]]:
    """Return the keys of each group."""
    columns = [column.to_pylist() for column in release.groups.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * len(release)


def _indices_in(
    other: Release, release: Release, places: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return the positions of these groups in the other release; −1 for missing ones."""
    known = {key: place for place, key in enumerate(_keys(other))}
    mine = _keys(release)
    return np.array([known.get(mine[place], -1) for place in places], dtype=np.int64)


def _legend_names(release: Release, other: Release) -> tuple[str, str]:
    """Return two names: the guarantees, or \"this\" and \"beside\" if they are equal."""
    names = [
        f"{one.guarantee.level}, ε = {rounded_up(one.guarantee.epsilon(), 3)}"
        for one in (release, other)
    ]
    if names[0] == names[1]:
        names = [f"{name} ({which})" for name, which in zip(names, ("this", "beside"), strict=True)]
    return names[0], names[1]
