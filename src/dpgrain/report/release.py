"""The report of a release: estimates, guarantee, clipping bounds and request."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from dpgrain.publishing.guarantee import Guarantee
from dpgrain.report.contributions import check_holdings, contribution_text
from dpgrain.report.figures import figures
from dpgrain.report.page import Check, PageFacts, Part
from dpgrain.report.plots import plot_bounds, plot_comparison, plot_estimates
from dpgrain.report.plots.estimates import drawn
from dpgrain.report.plots.times import lines_over_time
from dpgrain.statistics.contribution_counts import Holdings
from dpgrain.statistics.group_estimates import Histogram
from dpgrain.statistics.release import Release
from dpgrain.statistics.statistic import Noun
from dpgrain.words import quantities
from dpgrain.words.event_sentences import BLOCKS
from dpgrain.words.headings import (
    Wording,
    count_groups,
    is_one,
    lines_caption,
    ranks,
    release_wording,
    text,
    value_of,
)
from dpgrain.words.odds import contributions
from dpgrain.words.plan_text import budget_text
from dpgrain.words.release_text import (
    PrintedRow,
    all_warnings,
    counts_are_clipped,
    extra_columns,
    format_rows,
    interval_effects,
    ranking_name,
    shown,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PLOTTED_ROWS, _LISTED_ROWS, _NAME_LETTERS = 20, 1000, 120
_SETTINGS = {
    "warning": "Warning",
    "statistic": "Statistic",
    "table": "Table",
    "item": "Item column",
    "domain": "Items",
    "weight": "Each record counts",
    "bad values": "Invalid values",
    "user": "User column",
    "n_users": "Enrolled users",
    "unit": "Privacy unit",
    "elements": "Partition into elements",
    "relation": "Neighbouring relation",
    "epsilon": "ε",
    "delta": "δ",
    "clip": "Clipping bound",
    "noise": "Noise",
    "range of the numbers": "Range of values",
    "outside of the range": "Outside of the range",
    "left out": "Removed by clipping",
    "post-processing": "Post-processing",
}
# Headings of additional columns.
_MORE = {
    "at_least": "At least (95%)",
    "count": "Records (noisy)",
    "count_error": "Std. error of count",
    "clipped_share": "Clipped share (95%)",
    "clip": "Clipping bound",
}
# Other names of lines if groups are not items.
_SETTINGS_OF: dict[Noun, dict[str, str]] = {
    "item": {},
    "group": {"item": "Grouped by", "domain": "Groups", "weight": "Measured"},
    "bin": {"item": "Element column", "weight": "Counted"},
}
# The word for one row, used for "record" in sentences.
_ROW_NOUNS = {"records": "record", "people": "person"}


@dataclass(frozen=True)
class _ReleaseFacts:
    """Facts of a release and its events that decide about words."""

    release: Release

    @cached_property
    def words(self) -> Wording:
        return release_wording(self.release)

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        return _events(self.release.guarantee)

    @cached_property
    def event_names(self) -> set[str]:
        return {event["event"] for event in self.events}

    @property
    def law(self) -> str:
        return self.release.metadata.noise or getattr(self.release, "noise", "gaussian")

    @property
    def selected(self) -> bool:
        return bool(self.event_names & {"Selection", "TruncatedGeometric"})

    @property
    def sums(self) -> bool:
        """True if the estimates are sums of contributions."""
        return isinstance(self.release, Histogram)

    @property
    def distorted(self) -> str:
        """The sources of error of the estimates, as text."""
        statistic = self.release.statistic
        if statistic.has_bins:
            return "noise"
        if statistic.holders:
            return "noise and the selection of items" if self.selected else "noise and clipping"
        why = "noise and clipping" if self.sums else "noise, clipping and bounds"
        return f"{why}, and the selection of {self.words.noun}s" if self.selected else why


def plot_release(
    release: Release, ax: Axes | None = None, *, top: int = 30, beside: Release | None = None
) -> Axes:
    """Draw the estimates of a release, next to those of another one if there is one."""
    if beside is not None:
        return plot_comparison(release, beside, ax, top=top)
    return plot_estimates(release, ax, top=top)


def release_page(release: Release, holdings: Holdings | None = None) -> str:
    """Return the report of a release as HTML, with a contribution distribution next to the curve."""
    if holdings is not None:
        check_holdings(release, holdings)
    facts = _ReleaseFacts(release)
    page = _page(facts, holdings)
    return page.html(
        "release.html",
        release=release,
        private=release.guarantee.private
        and (page.contributions is None or page.contributions.private),
        **_heading(facts),
        **_estimated(facts),
        **_clipped(facts),
    )


def release_part(release: Release, salt: str) -> Part:
    """Return the estimates of a release as one part of a page; no other part has this salt."""
    facts = _ReleaseFacts(release)
    page = PageFacts(
        of="release",
        guarantee=release.guarantee,
        distorted=facts.distorted,
        noun=facts.words.noun,
        selected=facts.selected,
    )
    words = facts.words
    title = f"{words.name} {words.of}" + (f" by {words.by}" if words.by else "")
    body = page.html(
        "_estimated.html",
        inside=True,
        release=release,
        **_heading(facts),
        **_estimated(facts, salt),
        **_clipped(facts, salt),
    )
    return Part(text(title, 120), page, Markup(body))


def release_check(name: str, release: Release) -> Check:
    """Return the hash of a release of a table."""
    return (name, release.hash, "dpgrain.Release.load(path).hash")


def _page(facts: _ReleaseFacts, holdings: Holdings | None) -> PageFacts:
    release, guarantee = facts.release, facts.release.guarantee
    known = holdings or (release if isinstance(release, Holdings) else None)
    contributions_text = contribution_text(release, known)
    hidden = contributions_text is None or contributions_text.is_hidden or guarantee.level == "user"
    return PageFacts(
        of="release",
        guarantee=guarantee,
        distorted=facts.distorted,
        noun=facts.words.noun,
        selected=facts.selected,
        contributions=contributions_text,
        holdings=None if hidden else known,
        hashes=(release_check("Release", release),),
        budget=budget_text(release.shares),
    )


def _heading(facts: _ReleaseFacts) -> dict[str, object]:
    """Return the name of a release, and its request."""
    release, words = facts.release, facts.words
    names = {**_SETTINGS, **_SETTINGS_OF[release.statistic.noun]}
    return {
        "statistic": release.statistic,
        "words": words,
        "name": text(words.of, 60),
        "by": words.by and text(words.by, 60),
        "asked": [
            (names.get(key, key), text(v))
            for key, v in quantities.description(release.metadata).items()
        ],
        "weight": text(quantities.record_contribution(release.metadata)),
        "shares": release.metadata.is_weighted,
        "range_was_found": release.metadata.range_was_private,
        "cut_off": quantities.bounds_effect(release.metadata),
        "clamped": quantities.bounds_effect(release.metadata).partition(";")[0],
        "processed": bool(release.metadata.processed),
        "groups": count_groups(release),
        "nonnegative": getattr(release, "nonnegative", False),
        "threshold": _threshold(facts.events),
        "event_names": facts.event_names,
        "gaussian": facts.law == "gaussian",
        "kind": "sums" if facts.sums else "estimates",
    }


def _estimated(facts: _ReleaseFacts, salt: str = "") -> dict[str, object]:
    """Return the estimates as a number, a table and a figure."""
    release = facts.release
    one = is_one(release)
    known = extra_columns(release)
    lines = format_rows(release, shown(release, _LISTED_ROWS), letters=_NAME_LETTERS)
    return {
        "one": lines[0] if one else None,
        "one_more": {
            **dict.fromkeys(_MORE, ""),
            **(_more_numbers(release, lines[0]) if one else {}),
        },
        "told": known,
        "more_heads": {name: _more_heading(release, name) for name in known},
        "ranks": [f"{rank:g}" for rank in ranks(release)],
        "heads": [text(head, 60) for head in facts.words.heads],
        "value": text(value_of(release), 60),
        "effects": interval_effects(release.metadata),
        "condition": quantities.lower_bound_limit(release.metadata),
        "measured": text(quantities.quantity_name(release.metadata), 80),
        "made": release.statistic.describe_method(one).replace(
            "record", _ROW_NOUNS[release.metadata.rows]
        ),
        "rows": release.metadata.rows,
        "everyone": release.metadata.over == "everyone",
        "estimand": text(release.estimand),
        "capped": release.metadata.is_clipped,
        "cut": release.metadata.is_limited,
        "counts_are_clipped": counts_are_clipped(release),
        "estimates": [(line, _more_numbers(release, line)) for line in lines],
        "ranking": ranking_name(release),
        "plotted": min(_PLOTTED_ROWS, count_groups(release)),
        "over_time": _over_time(release),
        "notes": _notes(facts) if lines else [],
        "care": text(warned, 2000) if (warned := all_warnings(release)) else "",
        "estimate_plots": "" if one or not len(release) else _estimate_plots(release, salt),
    }


def _over_time(release: Release) -> str:
    """Return the caption of lines over time; empty for other figures."""
    lines = lines_over_time(release)
    if lines is None:
        return ""
    clipped = isinstance(release, Histogram) and release.metadata.is_clipped
    return lines_caption(lines.key, len(lines.lines), lines.total, clipped=clipped, gaps=lines.gaps)


def _notes(facts: _ReleaseFacts) -> list[str]:
    """Return the limits of the estimates of this release, as sentences."""
    metadata, threshold = facts.release.metadata, _threshold(facts.events)
    notes = (
        quantities.clipping_effect(metadata),
        f"Clipped share: {quantities.share_meaning(metadata)}" if metadata.counts_clipped else "",
        quantities.clamping_effect(metadata),
        f"Only {facts.words.noun}s with {threshold} were published"
        if threshold and facts.selected
        else "",
        f"Post-processed ({quantities.post_processing(metadata)}), at no privacy cost"
        if metadata.processed
        else "",
    )
    return [text(f"{note[0].upper()}{note[1:].rstrip('.')}.", 2000) for note in notes if note]


def _more_heading(release: Release, name: str) -> str:
    """Return the heading of an additional column."""
    if name == "count" and release.metadata.rows == "people":
        return "People" if release.metadata.over == "everyone" else "People (noisy)"
    if name == "count" and counts_are_clipped(release):
        return "Records, clipped (noisy)"
    return _MORE.get(name, name)


def _more_numbers(release: Release, line: PrintedRow) -> dict[str, str]:
    """Return the additional numbers of a line by name."""
    return dict(zip(release.more, line.more, strict=True))


def _estimate_plots(release: Release, salt: str) -> object:
    rows = drawn(release, _PLOTTED_ROWS)
    height = 90 + 22 * max(rows, 2) if rows else 320
    draw = partial(plot_estimates, release, top=_PLOTTED_ROWS)
    return figures(f"{salt}estimates", draw, height, _hover_texts(release))


def _hover_texts(release: Release) -> list[str]:
    """Return the hover text of each row of the figure, if it has one estimate per row."""
    statistic = release.statistic
    rows = drawn(release, _PLOTTED_ROWS)
    if not rows or statistic.has_bins or len(ranks(release)) > 1:
        return []
    places = shown(release, rows)
    return [
        f"{', '.join(statistic.keys(line.keys))}: {line.estimate}, 95% from {line.low} to {line.high}"
        for line in format_rows(release, places, letters=_NAME_LETTERS)
    ]


def _clipped(facts: _ReleaseFacts, salt: str = "") -> dict[str, object]:
    """Return the clipping bounds."""
    release, guarantee = facts.release, facts.release.guarantee
    clip = _clip(release, facts.event_names)
    bounds = [f"{bound:.4g}" for bound in np.unique(clip[[*_ends(clip)]])]
    block = next((c.block for c in contributions(guarantee.event)), guarantee.level)
    return {
        "bounds": bounds,
        "block": BLOCKS[block],
        "chosen": release.metadata.chosen,
        "bound_plots": figures(f"{salt}bounds", partial(plot_bounds, release), 200)
        if isinstance(release, Histogram) and len(bounds) > 1
        else "",
    }


def _clip(release: Release, events: set[str]) -> np.ndarray[Any, Any]:
    """Return the clipping bounds of a release; none for most statistics."""
    if (
        not isinstance(release, Histogram)
        or isinstance(release, Holdings)
        or release.metadata.is_weighted
        or "TruncatedGeometric" in events
    ):
        return np.zeros(0)
    return np.asarray(release.clip, dtype=np.float64)


def _threshold(events: list[dict[str, Any]]) -> str:
    """Return the selection threshold as text; empty without selection."""
    for event in events:
        if event["event"] == "TruncatedGeometric":
            return f"a noisy count above {event['cutoff']:,}"
        if event["event"] == "Selection":
            weighted = "weighted " if event["max_items"] > 1 else ""
            again = next((one for one in events if one["event"] == "AdaptiveSelection"), None)
            later = "" if again is None else f", or {again['threshold']:,.4g} in a second round"
            return f"a noisy {weighted}count of at least {event['threshold']:,.4g}{later}"
    return ""


def _events(guarantee: Guarantee) -> list[dict[str, Any]]:
    event = guarantee.event.to_dict()
    return list(event.get("events", [event]))


def _ends(values: np.ndarray[Any, Any]) -> tuple[int, ...]:
    return (int(values.argmin()), int(values.argmax())) if values.size else ()
