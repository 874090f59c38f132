"""A release as one HTML file that explains itself to whoever answers for the privacy of its people.

The file loads nothing from anywhere: styles and plots are inside, and a content security policy
forbids the rest. Names of items come from a table that anybody may have written to: they are text,
escaped by the template and by the plots, cut where they are long.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpgrain.errors import ParameterError
from dpgrain.files import whole_file
from dpgrain.guarantee import Guarantee
from dpgrain.report.plots.estimates import (
    contributions,
    decimals_of,
    drawn,
    number,
    number_in_words,
    plot_bounds,
    plot_curve,
    plot_estimates,
)
from dpgrain.report.words import (
    groups_of,
    is_one,
    key_texts,
    measured,
    printed,
    ranks,
    shorten,
    shown,
    value_of,
    words_of,
)
from dpgrain.statistics.holdings import Holdings
from dpgrain.statistics.release import Estimates, Histogram, Release
from dpgrain.units import RELATIONS, Element, Level, Record, Unit, User
from dpgrain.wording import powers, rounded_up

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dpgrain.learn import LinearModel

__all__ = ["write_fit_report", "write_report"]

_PLOTTED, _LISTED, _NAME_LETTERS, _TEXT_LETTERS = 30, 100, 120, 500
# A figure is drawn once for a page and once for a telephone; in points, which SVG shows as pixels.
_WIDTHS = {"wide": 816, "narrow": 344}
_ASKED = {
    "take care": "Take care",
    "statistic": "Statistic",
    "table": "Table",
    "item": "Column of items",
    "domain": "Items",
    "weight": "What each record counts",
    "bad values": "Bad values",
    "user": "Column of users",
    "n_users": "Users enrolled",
    "unit": "Privacy unit",
    "elements": "Partition into elements",
    "relation": "Neighbouring relation",
    "epsilon": "ε",
    "delta": "δ",
    "clip": "Clipping bound",
    "noise": "Noise",
    "range of the numbers": "Range of the numbers",
    "post-processing": "Afterwards",
}
_ASKED_OF_GROUPS = {"item": "Grouped by", "domain": "Groups", "weight": "What is measured"}
_ASKED_OF_HOLDINGS = {"item": "Column of elements", "weight": "What is counted"}
# How many elements of one person the table of granularities asks about.
_SOME = (5, 20, 100)
_BLOCKS: dict[Level, str] = {
    "record": "one record adds",
    "element": "one user adds in one cell",
    "user": "one user adds",
}


def write_report(release: Release, path: str | Path, holdings: Holdings | None = None) -> Path:
    """Write a release as one self-contained HTML file.

    Args:
        release: a published release of any kind.
        path: where to write; the folder must exist.
        holdings: how much users hold, a second release, to show beside the granularity curve.

    Returns:
        The path.

    Raises:
        ParameterError: if the holdings are none, or of another partition than the release.
        DataError: if the file cannot be written; none is left behind then.

    The file holds what was asked, the promise in plain words, the granularity curve, the estimates
    with their intervals, the clipping bounds and what happened. It stays below 1 MB whatever the number
    of groups. All of it is post-processing of what was released: it costs no budget.
    """
    if holdings is not None:
        _check_holdings(release, holdings)
    path = Path(path)
    with whole_file(path) as part:
        part.write_text(_page(release, holdings), encoding="utf-8")
    return path


def write_fit_report(model: LinearModel, path: str | Path) -> Path:
    """Write a fitted model as one self-contained HTML file.

    Args:
        model: a fitted estimator of :mod:`dpgrain.learn`.
        path: where to write; the folder must exist.

    Returns:
        The path.

    Raises:
        DataError: if the file cannot be written; none is left behind then.

    The file holds the promise in plain words, the granularity curve, the coefficients (with intervals,
    where the fit kept budget for them), the training curve, what was public and all settings. All of it
    is post-processing of what the fit published: it costs no budget.
    """
    from sklearn.utils.validation import check_is_fitted

    from dpgrain.report.fit import fit_page

    check_is_fitted(model)
    path = Path(path)
    with whole_file(path) as part:
        part.write_text(fit_page(model), encoding="utf-8")
    return path


def _check_holdings(release: Release, holdings: Any) -> None:
    if not isinstance(holdings, Holdings):
        raise ParameterError(
            f"holdings must come from dg.elements_per_user, not {type(holdings).__name__}."
        )
    mine, theirs = release.guarantee.elements, holdings.guarantee.elements
    if mine != theirs:
        raise ParameterError(
            f"holdings of the partition {theirs or 'none'} do not fit a release of the partition "
            f"{mine or 'none'}; release both with the same unit."
        )


@dataclass(frozen=True)
class _Odds:
    """What an ε (with δ) means to somebody who weighs the two neighbouring tables."""

    epsilon: float
    delta: float

    @property
    def endless(self) -> bool:
        return math.isinf(self.epsilon)

    @property
    def shown(self) -> str:
        return rounded_up(self.epsilon)

    @property
    def factor(self) -> str:
        """By how much the odds move at most: e^ε."""
        if self.endless:
            return "no limit"
        return rounded_up(math.exp(self.epsilon), 3) if self.epsilon < 13 else "over 400,000"

    def after(self, before: float) -> str:
        """The largest belief afterwards for a belief beforehand."""
        doubt = (1 - before) / before * math.exp(-self.epsilon)
        return _percent_up(1 / (1 + doubt))

    def caught(self, false_alarms: float) -> str:
        """How often the best test is right at most that is wrongly positive so often."""
        # The two half-planes of (ε, δ): power ≤ e^ε·α + δ, and 1 − α ≤ e^ε·(1 − power) + δ.
        # Source: Kairouz, Oh & Viswanath 2015, "The composition theorem for differential privacy".
        rest = 1 - false_alarms - self.delta
        bounds = [1.0, 1 - math.exp(-self.epsilon) * max(rest, 0.0)]
        if self.epsilon < 100:
            bounds.append(math.exp(self.epsilon) * false_alarms + self.delta)
        return _percent_up(min(bounds))


@dataclass(frozen=True)
class _Grain:
    """One line of the table of granularities."""

    name: str
    promises: tuple[_Odds, ...]
    promised: bool = False
    share: str = ""


@dataclass(frozen=True)
class _Estimate:
    """One line of the table of estimates, as it is printed."""

    keys: tuple[str, ...]
    estimate: str
    std_error: str
    low: str
    high: str
    count: str = ""


@dataclass(frozen=True)
class _Held:
    """What a release of holdings says beside the curve."""

    kind: str
    shares: tuple[tuple[int, str], ...]
    drowned: bool
    asked: str
    sentence: str
    together: str
    odds: _Odds | None
    private: bool
    guarantee_json: str

    @property
    def delta(self) -> str:
        """The δ of both releases together, as it is printed."""
        return "" if self.odds is None else powers(self.odds.delta)

    @property
    def second(self) -> bool:
        """Whether it is another release than the one that is reported."""
        return bool(self.sentence)


def _page(release: Release, holdings: Holdings | None = None) -> str:
    from dpgrain import __version__

    guarantee, level = release.guarantee, release.guarantee.level
    today = datetime.now(UTC)
    words = words_of(release)
    events = _events(guarantee)
    names = {event["event"] for event in events}
    law = release.asked.get("noise", getattr(release, "noise", "gaussian"))
    clip = _clip(release, names)
    known = holdings or (release if isinstance(release, Holdings) else None)
    held = _held(release, known)
    beside = None if held is None or held.drowned or level == "user" else known
    curve_height = 320 if beside is None else 350
    groups = groups_of(release)
    figure = len(release) > 0 and not is_one(release)
    rows = drawn(release, _PLOTTED) if figure else 0
    return _template().render(
        release=release,
        fitted=False,
        shuffled=False,
        statistic=release.statistic,
        guarantee=guarantee,
        # Names in it come from the caller; the promise itself is never cut.
        sentence=_text(guarantee, 20_000),
        asked=[(_asked_name(release, key), _text(v)) for key, v in release.asked.items()],
        words=words,
        name=_text(words.of, 60),
        by=words.by and _text(words.by, 60),
        heads=[_text(head, 60) for head in words.heads],
        value=_text(value_of(release), 60),
        measured=_text(measured(release), 80),
        kind="sums" if isinstance(release, Histogram) else "estimates",
        elements=_text(guarantee.elements or "a public partition"),
        weight=_text(release.asked.get("weight", "1 for each record")),
        chosen=release.asked.get("clip", "").startswith("auto"),
        processed=release.asked.get("post-processing", "")
        and _text(release.asked["post-processing"]),
        nonnegative=getattr(release, "nonnegative", False),
        odds=_Odds(guarantee.epsilon(), guarantee.delta),
        delta=powers(guarantee.delta),
        one_in=f"{math.floor(1 / Fraction(repr(float(guarantee.delta)))):,}"
        if guarantee.delta
        else "",
        relations=RELATIONS,
        grains=_grains(guarantee, held),
        held=held,
        wears=guarantee.epsilon(units=2) > guarantee.epsilon(),
        max_elements=_bound(guarantee, "max_elements"),
        selected=bool(names & {"Selection", "TruncatedGeometric"}),
        threshold=_threshold(events),
        event_names=names,
        block=_BLOCKS[next((c.block for c in contributions(guarantee.event)), level)],
        gaussian=law == "gaussian",
        law=law,
        groups=groups,
        one=number_in_words(release) if is_one(release) else None,
        one_error=number(float(release.std_error[0]), decimals_of(float(release.std_error[0])))
        if is_one(release)
        else "",
        one_count=f"{float(release.count[0]):,.0f}".replace("-", "−")
        if is_one(release) and isinstance(release, Estimates)
        else "",
        counted=isinstance(release, Estimates),
        ranks=[f"{rank:g}" for rank in ranks(release)],
        estimates=_estimates(release, _LISTED),
        plotted=min(_PLOTTED, groups),
        bounds=[f"{bound:.4g}" for bound in np.unique(clip[[*_ends(clip)]])],
        curve_plots=_plots("curve", partial(plot_curve, guarantee, holdings=beside), curve_height),
        beside=beside is not None,
        estimate_plots=_plots(
            "estimates",
            partial(plot_estimates, release, top=_PLOTTED),
            100 + 24 * max(rows, 2) if rows else 300,
        )
        if figure
        else "",
        bound_plots=_plots("bounds", partial(plot_bounds, release), 200)
        if isinstance(release, Histogram)
        else "",
        events=[_text(event, 2000) for event in _parts(guarantee)],
        public=[_text(fact) for fact in guarantee.public],
        guarantee_json=json.dumps(guarantee.to_dict(), ensure_ascii=False, indent=1),
        version=__version__,
        date=f"{today:%Y-%m-%d}",
        year=f"{today:%Y}",
    )


def _asked_name(release: Release, key: str) -> str:
    own: dict[str, str] = {}
    if release.statistic == "elements per user":
        own = _ASKED_OF_HOLDINGS
    elif release.statistic not in ("histogram", "top"):
        own = _ASKED_OF_GROUPS
    return own.get(key, _ASKED.get(key, key))


def _clip(release: Release, events: set[str]) -> np.ndarray[Any, Any]:
    """The clipping bounds, where a release has any."""
    weighted = release.asked.get("weight", "").startswith("1/√")
    if (
        not isinstance(release, Histogram)
        or isinstance(release, Holdings)
        or weighted
        or "TruncatedGeometric" in events
    ):
        return np.zeros(0)
    return np.asarray(release.clip, dtype=np.float64)


def _threshold(events: list[dict[str, Any]]) -> str:
    """From which noisy count on an item is named, in words; empty where none was selected."""
    for event in events:
        if event["event"] == "TruncatedGeometric":
            return f"a noisy count above {event['cutoff']:,}"
        if event["event"] == "Selection":
            weighted = "weighted " if event["max_items"] > 1 else ""
            return f"a noisy {weighted}count of at least {event['threshold']:,.4g}"
    return ""


def _held(release: Release, known: Holdings | None) -> _Held | None:
    """What is told of how much users hold: of a second release, or of the release itself."""
    if known is None or not len(known):
        return None
    mine, theirs = release.guarantee, known.guarantee
    sentence = together = ""
    odds = None
    if known is not release:
        sentence = _text(theirs, 20_000)
        if (mine.level, mine.relation) == (theirs.level, theirs.relation):
            both = mine + theirs
            together, odds = _text(both, 20_000), _Odds(both.epsilon(), both.delta)
    kind: Literal["elements", "records"] = "elements" if mine.elements else "records"
    kinds, edges = (column.to_pylist() for column in known.groups.columns)
    some = [edge for one, edge in zip(kinds, edges, strict=True) if one == kind]
    users = np.array([one == kind for one in kinds])
    total = float(known.estimate[users].sum())
    error = float(np.sqrt((known.std_error[users] ** 2).sum()))
    shares = tuple((k, _share(known, k, kind)) for k in _SOME if k in some)
    return _Held(
        kind,
        shares,
        total <= 4 * error,
        _text(known.asked.get("item", "elements"), 60),
        sentence,
        together,
        odds,
        theirs.private,
        json.dumps(theirs.to_dict(), ensure_ascii=False, indent=1),
    )


def _share(holdings: Holdings, most: int, kind: Literal["elements", "records"]) -> str:
    """The share of users with at most so many, with as many decimals as the noise allows."""
    share = holdings.share_at_most(most, kind)
    kinds, edges = (column.to_pylist() for column in holdings.groups.columns)
    users = np.array([one == kind for one in kinds])
    within = users & np.array([edge is not None and edge <= most for edge in edges])
    total = max(float(holdings.estimate[users].sum()), 1.0)
    # Of within ÷ total, whose noises overlap.
    weights = np.where(within, 1 - share, share)[users] * holdings.std_error[users]
    error = float(np.sqrt((weights**2).sum())) / total
    return f"{100 * share:.{1 if 100 * error < 1 else 0}f}%"


def _template(name: str = "release.html") -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("dpgrain.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def _text(value: object, letters: int = _TEXT_LETTERS) -> str:
    return shorten(printed(value), letters)


def _parts(guarantee: Guarantee) -> list[object]:
    event = guarantee.event
    return list(event.parts)


def _events(guarantee: Guarantee) -> list[dict[str, Any]]:
    event = guarantee.event.to_dict()
    return list(event.get("events", [event]))


def _bound(guarantee: Guarantee, name: str) -> int | None:
    """The smallest public bound of that name in how units entered the sums."""
    values = [getattr(contribution, name) for contribution in contributions(guarantee.event)]
    return min((value for value in values if value is not None), default=None)


def _grains(guarantee: Guarantee, held: _Held | None = None) -> list[_Grain]:
    """What the release promises to each granularity, at its own δ, and to how many users."""
    shares = dict(held.shares) if held is not None and not held.drowned else {}

    def grain(name: str, unit: Unit, units: int = 1) -> _Grain:
        promises = (
            _Odds(
                guarantee.epsilon(units=units, relation=relation, unit=unit),
                guarantee.delta,
            )
            for relation in RELATIONS
        )
        return _Grain(name, tuple(promises), unit.level == guarantee.level)

    grains = [grain("one record", Record())]
    if guarantee.elements:
        grains.append(grain("one element", Element()))
        known = (_bound(guarantee, name) for name in ("max_elements", "cells"))
        most = min((bound for bound in known if bound is not None), default=math.inf)
        for some in _SOME:
            if some < most:
                limited = grain(f"a user with at most {some} elements", User(max_elements=some))
                share = shares.get(some, "")
                grains.append(_Grain(limited.name, limited.promises, share=share))
    grains.append(grain("a whole user", User()))
    return grains


def _estimates(release: Release, count: int) -> list[_Estimate]:
    places = shown(release, count)
    columns = (release.estimate, release.std_error, release.low, release.high)
    values = np.stack([column[places] for column in columns], axis=1)
    counts = release.count[places] if isinstance(release, Estimates) else None
    # Noise on whole numbers leaves them whole.
    whole = bool((values[:, 0] == np.rint(values[:, 0])).all())
    usual = decimals_of(float(np.median(values[:, 1]))) if len(places) else None
    lines = []
    for row, keys in enumerate(key_texts(release, places, letters=_NAME_LETTERS)):
        decimals = decimals_of(float(values[row, 1]))
        if counts is not None and usual is not None:
            # Of one measure: alike, unless an error is far smaller or larger than the others.
            near = decimals is None or abs(decimals - usual) < 2
            decimals = usual if near else decimals
        estimate, error, low, high = (number(float(v), decimals) for v in values[row])
        if whole and counts is None:
            estimate = number(float(values[row, 0]), 0)
        of = "" if counts is None else number(float(counts[row]), 0)
        lines.append(_Estimate(keys, estimate, error, low, high, of))
    return lines


def _percent_up(share: float) -> str:
    """A share in per cent, not below the true one."""
    return f"{rounded_up(min(share, 1.0) * 100, 2 if share < 0.1 else 3)}%"


def _ends(values: np.ndarray[Any, Any]) -> tuple[int, ...]:
    return (int(values.argmin()), int(values.argmax())) if values.size else ()


def _plots(name: str, draw: Callable[[Axes], Axes], height: int) -> Markup:
    """One plot as two inline figures, of which the style sheet shows the one that fits."""
    from markupsafe import Markup

    figures = (
        Markup('<div class="plot {}">{}</div>').format(kind, _svg(draw, width, height, name + kind))
        for kind, width in _WIDTHS.items()
    )
    return Markup("\n").join(figures)


def _svg(draw: Callable[[Axes], Axes], width: int, height: int, salt: str) -> Markup:
    """Draw on axes of so many points and return the SVG element, its text as (escaped) text."""
    from markupsafe import Markup
    from matplotlib import style
    from matplotlib.figure import Figure

    # Not the reader's own settings: they could pass names on to LaTeX.
    settings = {"svg.fonttype": "none", "svg.hashsalt": salt, "font.size": 12.0}
    with style.context(["default", settings]), warnings.catch_warnings():
        # The reader's fonts have more letters than those that the width is estimated with.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
        draw(figure.subplots())
        return Markup(_inline(figure))


def _inline(figure: Figure) -> str:
    buffer = StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(buffer, format="svg", metadata=nothing, transparent=True)
    svg = buffer.getvalue()
    return svg[svg.index("<svg") :]
