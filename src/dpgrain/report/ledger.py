"""The report of a ledger: promises, remaining budget and releases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from dpgrain._formatting import percent, powers, quantity, rounded_up
from dpgrain.errors import ParameterError
from dpgrain.ledger.entries import LedgerEntry
from dpgrain.ledger.lasting_promise import LastingPromise
from dpgrain.ledger.ledger import Ledger
from dpgrain.ledger.window import TimeWindow
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.report.figures import figures
from dpgrain.report.page import render
from dpgrain.report.plots import plot_curve
from dpgrain.report.plots.windows import Timeline, WindowSpan, plot_timeline, plot_used
from dpgrain.scope.regions import Axis, Region, Side, Span
from dpgrain.words.guarantee_text import UNITS
from dpgrain.words.headings import text
from dpgrain.words.ledger_text import remaining_text
from dpgrain.words.odds import FALSE_ALARMS, Odds, covered_units

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes

# Maximum number of listed lines, the last ones, and of drawn windows.
_MOST_LINES, _MOST_WINDOWS = 500, 400
# Numbers of units of one person whose ε is listed.
_SEVERAL = (1, 2, 5, 10, 20)
# Maximum number of releases to compose.
_MOST_COMPOSED = 2000


@dataclass(frozen=True)
class _PromiseRow:
    """One promise and its remaining budget, as text."""

    number: int
    sentence: str
    unit: str
    odds: Odds
    so_far: Odds
    used: str
    window: bool
    planned: str
    left: str
    spent: str
    used_plots: Markup | None
    beyond: str
    renewed: str


@dataclass(frozen=True)
class _ReleaseRow:
    """One row of the table of releases, as text."""

    number: int
    hash: str
    at: str
    region: str
    unit: str
    epsilon: str
    delta: str
    used: str
    mark: str
    sentences: tuple[str, ...]
    private: bool


@dataclass(frozen=True)
class _Composition:
    """All releases so far about one unit, composed."""

    sentence: str
    releases: str
    units: str
    curve: str
    curve_plots: Markup


def ledger_page(ledger: Ledger) -> str:
    """Return the report of a ledger as HTML."""
    entries = ledger.entries
    released = [entry for entry in entries if entry.guarantees]
    promises = ledger.promises
    timeline = _timeline(released)
    listed = [_release_row(entry, promises) for entry in reversed(released[-_MOST_LINES:])]
    return render(
        "ledger.html",
        name=text(ledger.name),
        identity=ledger.id,
        last=entries[-1].receipt,
        began=entries[0].at,
        promises=[
            _promise_row(ledger, number, promise, entries) for number, promise in promises.items()
        ],
        count=len(released),
        lines=listed,
        omitted=len(released) - len(listed),
        column=timeline.column and text(timeline.column),
        timeline_plots=figures("timeline", partial(plot_timeline, timeline), 320),
        together=_compositions(
            released,
            {one.level: ledger.total(number).delta for number, one in promises.items()},
        ),
        whole=len(released) <= _MOST_COMPOSED,
    )


def plot_ledger(ledger: Ledger, ax: Axes | None = None) -> Axes:
    """Draw the times of a ledger's releases above their windows."""
    return plot_timeline(_timeline([one for one in ledger.entries if one.guarantees]), ax)


def _promise_row(
    ledger: Ledger, number: int, promise: LastingPromise, entries: Sequence[LedgerEntry]
) -> _PromiseRow:
    left = ledger.left(number)
    windows = _used_timeline(ledger, number, entries)
    total = ledger.total(number)
    risk, so_far = (
        total.risk(so_far=so_far, false_alarms=FALSE_ALARMS, prior=0.5) for so_far in (False, True)
    )
    return _PromiseRow(
        number,
        text(promise, 2000),
        text(risk.units_text, 500),
        Odds(total.epsilon, total.delta, risk),
        Odds(total.spent_epsilon, total.delta, so_far),
        percent(1 - left),
        promise.window is not None,
        _planned_text(number, promise, entries),
        percent(left, up=False),
        text(remaining_text(total), 500),
        figures(f"used{number}", partial(plot_used, windows), 240) if windows else None,
        text(_outside_text(ledger, number, windows), 500) if windows else "",
        total.renewal_text,
    )


def _planned_text(number: int, promise: LastingPromise, entries: Sequence[LedgerEntry]) -> str:
    """Describe how many planned releases were published; empty without a plan."""
    if not promise.plan:
        return ""
    published = {
        each.planned
        for entry in entries
        for each in entry.charged
        if each.promise == number and each.planned is not None
    }
    return (
        f"{len(published)} of {quantity(len(promise.plan), 'planned release')} published, at no "
        "further cost."
    )


def _release_row(entry: LedgerEntry, promises: dict[int, LastingPromise]) -> _ReleaseRow:
    regions = dict.fromkeys(str(one.scope) for one in entry.guarantees)
    shares = [
        each.price.share_of(promises[each.promise].caps)
        for each in entry.charged
        if each.promise in promises
    ]
    return _ReleaseRow(
        entry.number,
        entry.receipt.hash,
        entry.at,
        text("; ".join(regions), 200),
        ", ".join(dict.fromkeys(one.level for one in entry.guarantees)),
        ", ".join(rounded_up(one.epsilon()) for one in entry.guarantees),
        ", ".join(dict.fromkeys(powers(one.delta) for one in entry.guarantees)),
        percent(max(shares)) if shares else "–",
        text(entry.mark, 100) if entry.mark else "",
        tuple(text(one, 5000) for one in entry.guarantees),
        entry.private,
    )


def _timeline(released: Sequence[LedgerEntry]) -> Timeline:
    """Return the releases by window of the first column with windows."""
    axes = (_find_axis(one.scope) for entry in released for one in entry.guarantees)
    column, axis = next((result for result in axes if result is not None), ("", "whole"))
    read = [
        (datetime.fromisoformat(entry.at).astimezone(UTC).replace(tzinfo=None), window)
        for entry in released
        for window in dict.fromkeys(_window(one.scope, column, axis) for one in entry.guarantees)
    ]
    return Timeline(column, axis, tuple(read[-_MOST_LINES:]))


def _find_axis(region: Region) -> tuple[str, Axis] | None:
    """Return the first column with an interval in a region, and its unit."""
    for side in region.sides:
        if isinstance(side.values, Span):
            return side.column, side.values.axis
    return None


def _window(region: Region, column: str, axis: Axis) -> WindowSpan:
    """Return the interval of a column in a region; all values if it has none."""
    side = region.side(column)
    if side is None or not isinstance(side.values, Span) or side.values.axis != axis:
        return WindowSpan()
    return WindowSpan(side.values.low, side.values.high)


def _used_timeline(ledger: Ledger, number: int, entries: Sequence[LedgerEntry]) -> Timeline | None:
    """Return the used share of a promise per window; None if no release has a window."""
    regions = [each.region for one in entries for each in one.charged if each.promise == number]
    result = next((axis for axis in map(_find_axis, regions) if axis is not None), None)
    if result is None:
        return None
    column, axis = result
    windows = {_window(region, column, axis) for region in regions}
    ends = sorted({end for w in windows for end in (w.low, w.high) if end is not None})
    # Too many windows are merged with their neighbours.
    ends = ends[:: -(-len(ends) // _MOST_WINDOWS)] + ends[-1:]
    used = [
        (
            WindowSpan(low, high),
            1 - ledger.left(number, Region((Side(column, Span(axis, low, high)),))),
        )
        for low, high in pairwise(ends)
        if low < high
    ]
    return Timeline(column, axis, (), tuple(used)) if used else None


def _outside_text(ledger: Ledger, number: int, windows: Timeline) -> str:
    """Describe the used share before the first drawn window and after the last."""
    low, high = windows.ends
    named = outside = (Span(windows.axis, None, low), Span(windows.axis, high, None))
    window, whole = ledger.promises[number].window, ""
    if window is not None and low is not None and high is not None:
        # Windows of the promise that begin before the figure can reach into it.
        outside, whole = _apart(window, windows.axis, low, high), "by windows entirely "
    parts = []
    for span, name in zip(outside, named, strict=True):
        used = percent(1 - ledger.left(number, Region((Side(windows.column, span),))))
        parts.append(f"{used} for {Region((Side(windows.column, name),))}")
    return f"Used {whole}outside of the figure: at most {' and at most '.join(parts)}."


def _apart(window: TimeWindow, axis: Axis, low: int, high: int) -> tuple[Span, Span]:
    """Return records that only windows before ``low`` contain, and only windows from ``high`` on."""
    (first, _), (_, after) = (
        window.starts(span) for span in (Span(axis, low, None), Span(axis, None, high))
    )
    assert first is not None and after is not None  # noqa: S101, PT018 - both ends are known
    before = window.records(Span(axis, first, None)).low
    return Span(axis, None, before), Span(axis, window.records(Span(axis, after - 1, None)).high)


def _compositions(
    released: Sequence[LedgerEntry], deltas: Mapping[str, float]
) -> list[_Composition]:
    """Compose all releases so far, per unit, partition and relation, at the δ of each level."""
    if len(released) > _MOST_COMPOSED:
        return []
    alike: dict[tuple[str, ...], list[Guarantee]] = {}
    for entry in released:
        for one in entry.guarantees:
            alike.setdefault((one.level, one.elements, one.relation), []).append(one)
    compositions: list[_Composition] = []
    for guarantees in alike.values():
        together = _compose(guarantees)
        if together is not None:
            together = replace(together, delta=deltas.get(together.level, together.delta))
            plots = figures(f"curve{len(compositions)}", partial(plot_curve, together), 320)
            compositions.append(
                _Composition(
                    text(together, 20_000),
                    quantity(len(guarantees), "release"),
                    UNITS[together.level],
                    _curve_text(together),
                    plots,
                )
            )
    return compositions


def _curve_text(together: Guarantee) -> str:
    """Return ε for some numbers of units of one person."""
    most = covered_units(together, _SEVERAL[-1])
    return ", ".join(
        f"ε = {rounded_up(together.epsilon(units=units))} for {units}"
        for units in (*(k for k in _SEVERAL if k < most), most)
    )


def _compose(guarantees: Sequence[Guarantee]) -> Guarantee | None:
    """Compose guarantees, halves first; None if they are for different users."""
    if len(guarantees) == 1:
        return guarantees[0]
    middle = len(guarantees) // 2
    left, right = _compose(guarantees[:middle]), _compose(guarantees[middle:])
    if left is None or right is None:
        return None
    try:
        return left + right
    except ParameterError:
        return None
