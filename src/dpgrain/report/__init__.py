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
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgrain.files import whole_file
from dpgrain.guarantee import Guarantee
from dpgrain.report.plots import (
    contributions,
    plot_bounds,
    plot_curve,
    plot_estimates,
    printed,
    shorten,
)
from dpgrain.statistics.release import Histogram
from dpgrain.units import RELATIONS, Element, Level, Record, Unit, User
from dpgrain.wording import powers, rounded_up

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["write_report"]

_PLOTTED, _LISTED, _NAME_LETTERS, _TEXT_LETTERS = 30, 100, 120, 500
# A figure is drawn once for a page and once for a telephone; in points, which SVG shows as pixels.
_WIDTHS = {"wide": 816, "narrow": 344}
_ASKED = {
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
}
_BLOCKS: dict[Level, str] = {
    "record": "one record adds",
    "element": "one user adds in one cell",
    "user": "one user adds",
}


def write_report(release: Histogram, path: str | Path) -> Path:
    """Write a release as one self-contained HTML file.

    Args:
        release: a published histogram.
        path: where to write; the folder must exist.

    Returns:
        The path.

    Raises:
        DataError: if the file cannot be written; none is left behind then.

    The file holds what was asked, the promise in plain words, the granularity curve, the largest
    estimates with their intervals, the clipping bounds and what happened. It stays below 1 MB
    whatever the number of items. All of it is post-processing of the release: it costs no budget.
    """
    path = Path(path)
    with whole_file(path) as part:
        part.write_text(_page(release), encoding="utf-8")
    return path


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


@dataclass(frozen=True)
class _Estimate:
    """One line of the table of estimates, as it is printed."""

    item: str
    estimate: str
    std_error: str
    low: str
    high: str


def _page(release: Histogram) -> str:
    from dpgrain import __version__

    guarantee, level = release.guarantee, release.guarantee.level
    today = datetime.now(UTC)
    clip = np.asarray(release.clip, dtype=np.float64)
    return _template().render(
        release=release,
        guarantee=guarantee,
        # Names in it come from the caller; the promise itself is never cut.
        sentence=_text(guarantee, 20_000),
        asked=[(_ASKED.get(key, key), _text(value)) for key, value in release.asked.items()],
        asked_item=_text(release.asked.get("item", "items"), 60),
        elements=_text(guarantee.elements or "a public partition"),
        weight=_text(release.asked.get("weight", "1 for each record")),
        chosen=release.asked.get("clip", "").startswith("auto"),
        odds=_Odds(guarantee.epsilon(), guarantee.delta),
        delta=powers(guarantee.delta),
        one_in=f"{math.floor(1 / guarantee.delta):,}" if guarantee.delta else "",
        relations=RELATIONS,
        grains=_grains(guarantee),
        max_elements=_bound(guarantee, "max_elements"),
        selected=any(event["event"] == "Selection" for event in _events(guarantee)),
        block=_BLOCKS[next((c.block for c in contributions(guarantee.event)), level)],
        gaussian=release.noise == "gaussian",
        estimates=_estimates(release, _LISTED),
        plotted=min(_PLOTTED, len(release)),
        bounds=[f"{bound:.4g}" for bound in np.unique(clip[[*_ends(clip)]])],
        curve_plots=_plots("curve", partial(plot_curve, guarantee), 320),
        estimate_plots=_plots(
            "estimates",
            partial(plot_estimates, release, top=_PLOTTED),
            80 + 24 * min(_PLOTTED, max(len(release), 2)),
        ),
        bound_plots=_plots("bounds", partial(plot_bounds, release), 200),
        events=[_text(event, 2000) for event in _parts(guarantee)],
        public=[_text(fact) for fact in guarantee.public],
        guarantee_json=json.dumps(guarantee.to_dict(), ensure_ascii=False, indent=1),
        version=__version__,
        date=f"{today:%Y-%m-%d}",
        year=f"{today:%Y}",
    )


def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("dpgrain.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("template.html")


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


def _grains(guarantee: Guarantee) -> list[_Grain]:
    """What the release promises to each granularity, at its own δ."""

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
        for some in (5, 20, 100):
            if some < most:
                limited = grain(f"a user with at most {some} elements", User(max_elements=some))
                grains.append(_Grain(limited.name, limited.promises))
    grains.append(grain("a whole user", User()))
    return grains


def _estimates(release: Histogram, count: int) -> list[_Estimate]:
    table = release.largest(count)
    lines = []
    for line in table.to_pylist():
        decimals = _decimals(line["std_error"])
        numbers = (
            _number(line[name], decimals) for name in ("estimate", "std_error", "low", "high")
        )
        lines.append(_Estimate(_text(line["item"], _NAME_LETTERS), *numbers))
    return lines


def _decimals(std_error: float) -> int:
    """As many decimals as show two digits of the standard error."""
    if not std_error > 0:
        return 0
    return min(max(1 - math.floor(math.log10(std_error)), 0), 12)


def _number(value: float, decimals: int) -> str:
    # Adding 0 turns −0 into 0.
    return f"{round(value, decimals) + 0.0:,.{decimals}f}".replace("-", "−")


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
