"""Two releases of the same statistic, group by group."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np

from dpgrain import _validate
from dpgrain._wording import rounded_up
from dpgrain.errors import ParameterError
from dpgrain.report.axes import (
    ORANGE,
    axes_for,
    interval_bars,
    label_letters,
    label_rows,
    legend_above,
    plain,
    say,
)
from dpgrain.report.plots.estimates import quantity
from dpgrain.report.words import label
from dpgrain.statistics.printed import key_texts, shown
from dpgrain.statistics.release import Histogram, Release

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Distance of the two estimates of a group above and below the middle of its row.
_ASIDE = 0.16


def plot_beside(release: Release, other: Release, ax: Axes | None = None, *, top: int = 30) -> Axes:
    """Draw the estimates of two releases, one group on each row, with their 95% intervals.

    Args:
        release: the release whose groups are drawn.
        other: a release of the same statistic by the same keys; its other groups are left out.
        ax: axes to draw on; new ones by default.
        top: how many groups: those with the largest estimates of the first release.

    Raises:
        ParameterError: if the statistics or the keys differ, or have more than one number a group.
    """
    _check_alike(release, other)
    top = _validate.integer(minimum=1, top=top)
    places = shown(release, top)
    ax = axes_for(ax, 7.0, 1.7 + 0.36 * max(len(places), 2))
    plain(ax)
    if not len(release):
        return say(ax, "nothing was published")
    result = _places_in(other, release, places)
    rows, there = np.arange(len(places)), result >= 0
    names = _names(release, other)
    ends = []
    for one, at, row, name, style in (
        (release, places, rows - _ASIDE, names[0], {}),
        (other, result[there], rows[there] + _ASIDE, names[1], {"color": ORANGE, "fmt": "s"}),
    ):
        estimate, low, high = one.estimate[at], one.low[at], one.high[at]
        interval_bars(ax, row, estimate, low, high, label=name, **style)
        ends.append((low, high))
    low, high = (np.concatenate(sides) for sides in zip(*ends, strict=True))
    keys = key_texts(release, places, letters=200)
    labels = [label(release.statistic.keys(key), label_letters(ax)) or "all" for key in keys]
    capped = other if other.asked.cut else release
    zero = isinstance(release, Histogram)
    label_rows(ax, labels, f"estimate ({quantity(capped, ax)})", low, high, zero=zero)
    legend_above(ax, ax.get_legend_handles_labels()[0])
    return ax


def _check_alike(release: Release, other: Release) -> None:
    """Raise unless both are of one number a group, of the same statistic by the same keys."""
    if not isinstance(other, Release):
        raise ParameterError(
            f"beside must be a release, such as one for another unit, not {type(other).__name__}."
        )
    mine, theirs = (
        (one.statistic.name, one.asked.value, one.groups.names) for one in (release, other)
    )
    if mine != theirs:
        raise ParameterError(
            f"beside must be a release of the same statistic and keys, {_said(mine)}, not "
            f"{_said(theirs)}."
        )
    if release.statistic.pointwise or release.statistic.of_bins:
        raise ParameterError(
            f"beside must be omitted for {release.statistic.name}, which has several numbers per "
            "group; plot each release on separate axes."
        )


def _said(asked: tuple[str, str | None, tuple[str, ...]]) -> str:
    statistic, value, keys = asked
    of = f" of {value!r}" if value else ""
    return f"{statistic}{of}" + (f" by {', '.join(map(repr, keys))}" if keys else "")


def _keys(release: Release) -> list[tuple[Hashable, ...]]:
    """Return the keys of each group; one without keys has an empty one."""
    columns = [column.to_pylist() for column in release.groups.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * len(release)


def _places_in(
    other: Release, release: Release, places: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return where the other release has these groups; −1 where it has none."""
    known = {key: place for place, key in enumerate(_keys(other))}
    mine = _keys(release)
    return np.array([known.get(mine[place], -1) for place in places], dtype=np.int64)


def _names(release: Release, other: Release) -> tuple[str, str]:
    """Return words that distinguish two releases: their promises, or else which is which."""
    names = [
        f"{one.guarantee.level}, ε = {rounded_up(one.guarantee.epsilon(), 3)}"
        for one in (release, other)
    ]
    if names[0] == names[1]:
        names = [f"{name} ({which})" for name, which in zip(names, ("this", "beside"), strict=True)]
    return names[0], names[1]
