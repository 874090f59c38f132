"""Estimates over dates, months or timestamps, with one line per value of the other keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from matplotlib.ticker import MaxNLocator

from dpgrain._types import FloatArray, IntArray
from dpgrain.report.axes import (
    COLOURS,
    NARROW,
    ORANGE,
    axes_width,
    date_ticks,
    errors,
    fitting,
    grid,
    legend_above,
    open_ends,
    value_axis,
    within_sight,
)
from dpgrain.statistics.group_estimates import Histogram
from dpgrain.statistics.release import Release
from dpgrain.words.release_text import has_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Form of a month, a date or a timestamp; the centuries avoid the ends of matplotlib's calendar.
_TIME = re.compile(r"[12][0-9]{3}-[0-9]{2}(-[0-9]{2}([T ][0-9]{2}.*)?)?")
_EPOCH = datetime(1970, 1, 1)
# A distance of more than this many usual steps is a gap.
_GAP = 1.5
# With more points than this the markers are small.
_MANY_POINTS = 40


@dataclass(frozen=True)
class TimeSeries:
    """Rows of a release as lines over time, or over integers without large gaps."""

    key: str  # name of the time key
    lines: tuple[IntArray, ...]  # rows of each drawn line by time, the largest line first
    total: int  # number of lines of the release
    times: FloatArray  # (V,) days since 1970 of each row
    places: FloatArray  # (V,) positions; months are equal if all times begin one
    step: float  # usual distance of positions; larger ones are gaps
    dates: bool = True  # False for integers, such as ages

    @property
    def gaps(self) -> bool:
        """True if a line has a gap."""
        return any(_gaps(self, line).size for line in self.lines)


def parse_time(key: object) -> datetime | None:
    """Return the time of a key, in UTC without a zone; None if it is no date or time."""
    text = key.isoformat() if isinstance(key, date) else key
    if not isinstance(text, str) or not _TIME.fullmatch(text):
        return None
    try:
        time = datetime.fromisoformat(f"{text}-01" if len(text) == len("2025-03") else text)
    except ValueError:
        return None
    return time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)


def lines_over_time(release: Release) -> TimeSeries | None:
    """Return the lines of a release with times or ordered integers; None for other releases."""
    return _time_series(release) if len(release) > 1 and not _in_rows(release) else None


def _in_rows(release: Release) -> bool:
    """Return whether rows are drawn in another way whatever their keys are."""
    ranked, names = release.statistic.ranked, release.groups.names
    several = len(release.groups.columns[-1].unique()) if names else 1
    return (
        release.statistic.has_bins
        or (release.statistic.stepped and several > 1)
        or (ranked and (len(names) > 2 or several > len(COLOURS)))
    )


def _time_series(release: Release) -> TimeSeries | None:
    dates = [i for i, keys in enumerate(release.groups.columns) if _has_times(keys)]
    columns = [column.to_pylist() for column in release.groups.columns]
    special = release.statistic.has_items or release.statistic.binned
    numbers = [i for i, keys in enumerate(columns) if not special and has_order(keys)]
    if not dates and not numbers:
        return None
    column = (dates or numbers)[0]
    times, places = (
        _positions(columns[column]) if dates else (np.array(columns[column], float),) * 2
    )
    others = columns[:column] + columns[column + 1 :]
    series: dict[tuple[Any, ...], list[int]] = {}
    for row in np.argsort(times, kind="stable"):
        series.setdefault(tuple(keys[row] for keys in others), []).append(int(row))
    if not dates and len(series) == len(release):
        # Every line would be a point.
        return None
    # Unpublished dates add nothing to a sum; a mean ignores them.
    size = np.sum if isinstance(release, Histogram) else np.mean
    sizes = {keys: size(np.nan_to_num(release.estimate[rows])) for keys, rows in series.items()}
    largest = sorted(series, key=lambda keys: -float(sizes[keys]))[: len(COLOURS)]
    steps = np.diff(np.unique(places))
    return TimeSeries(
        release.groups.names[column],
        tuple(np.array(series[keys], dtype=np.int64) for keys in largest),
        len(series),
        times,
        places,
        float(steps.min()) if steps.size else 1.0,
        bool(dates),
    )


def _positions(keys: Sequence[Any]) -> tuple[FloatArray, FloatArray]:
    """Return days since 1970, and positions on a calendar with equal months if all begin one."""
    known: dict[Any, datetime | None] = {key: parse_time(key) for key in set(keys)}
    rows = [known[key] for key in keys]
    times = np.array([(time - _EPOCH) / timedelta(days=1) for time in rows if time is not None])
    months = all(time == datetime(time.year, time.month, 1) for time in known.values() if time)
    return times, np.array([12.0 * t.year + t.month for t in rows if t]) if months else times


def _has_times(keys: pa.Array) -> bool:
    """Return whether these are at least two different times, and nothing else."""
    if parse_time(keys[0].as_py()) is None:
        return False
    different = keys.unique().to_pylist()
    return len(different) > 1 and all(parse_time(key) is not None for key in different)


def draw_over_time(
    release: Release, lines: TimeSeries, names: list[str], what: str, ax: Axes
) -> Axes:
    """Draw each line with its intervals; a line is interrupted at missing dates."""
    rows = np.concatenate(lines.lines)
    parts = (release.estimate, release.low, release.high)
    low, high = within_sight(*(part[rows] for part in parts))
    few, note = len(lines.lines[0]) <= _MANY_POINTS, ""
    one = len(lines.lines) == 1
    ends = [len(line) for line in lines.lines]
    for line, name, colour, end in zip(lines.lines, names, COLOURS, np.cumsum(ends), strict=False):
        estimate, part = release.estimate[line], slice(end - len(line), end)
        ax.errorbar(
            lines.times[line],
            estimate,
            yerr=errors(estimate, low[part], high[part]),
            fmt="o",
            color=colour,
            markersize=4 if few else 2.5,
            elinewidth=1.4 if few else 0.9,
            capsize=0,
        )
        drawn, published = (low[part], high[part]), (release.low[line], release.high[line])
        note = open_ends(ax, "y", lines.times[line], drawn, published, colour) or note
        times, values = _with_gaps(lines, line, estimate)
        ax.plot(times, values, color=colour, linewidth=1.3, label=name or "estimate")
    if (
        one
        and few
        and (least := release.more.get("at_least")) is not None
        and np.isfinite(least).any()
    ):
        name = "total at least (95%)"
        ax.plot(lines.times[rows], least[rows], "^", color=ORANGE, markersize=3.5, label=name)
    narrow = axes_width(ax) < NARROW
    if lines.dates:
        date_ticks(ax.xaxis, 4 if narrow else 8)
    else:
        ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    start = value_axis(ax, "y", low, high, zero=isinstance(release, Histogram))
    ax.set_xlabel(f"{fitting(lines.key, ax)}{start}{note}")
    ax.set_ylabel(f"{what}\nwith 95% interval")
    grid(ax)
    if not one or len(ax.get_legend_handles_labels()[0]) > 1:
        legend_above(ax, columns=2 if narrow else 3)
    return ax


def _gaps(lines: TimeSeries, line: IntArray) -> IntArray:
    """Return the positions in a line after each gap."""
    return np.flatnonzero(np.diff(lines.places[line]) > _GAP * lines.step) + 1


def _with_gaps(
    lines: TimeSeries, line: IntArray, values: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return times and values with a NaN in each gap."""
    gaps, times = _gaps(lines, line), lines.times[line]
    return np.insert(times, gaps, times[gaps - 1]), np.insert(values, gaps, np.nan)
