"""The pages and the plots keep their structure: headings, tables, figures; axes, lines and labels.

Each outline is a file in `outlines/`. After an intended change, `python -m
tests.report.test_outlines` writes them again, and the difference must be read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tests.report import networks

import dpgrain as dg
from dpgrain import learn
from dpgrain.accounting import Contribution, Gaussian, Selection
from dpgrain.planning.shuffle_plans import Honest
from dpgrain.report.plots import (
    plot_bounds,
    plot_curve,
    plot_epsilons,
    plot_honest,
    plot_measure,
    plot_training,
)
from dpgrain.shuffle import ScalarSum, VectorSum
from dpgrain.statistics.release_metadata import Clip, ReleaseMetadata
from dpgrain.statistics.statistic import DISTRIBUTION, MEAN, QUANTILES
from dpgrain.tables.groups import Groups
from dpgrain.torch.training_result import Training, TrainingHistory
from dpgrain.units import Relation

OUTLINES = Path(__file__).parent / "outlines"
NAMES = ["<b>a</b>", "{{ b }}", "c" * 60]
PROMISE = dg.Guarantee(
    "element",
    "'word'",
    "zero_out",
    1e-5,
    Gaussian(3.7306, Contribution(coordinates="one")),
    (dg.Fact("stated", ("the list of items",)),),
)
ASKED = ReleaseMetadata(title="words.parquet", by=("word",), clip=Clip(2.0))


def _histogram(names: list[str], **changed: Any) -> dg.Histogram:
    size = len(names)
    made = dg.Histogram(
        Groups.of(["word"], [pa.array(names, pa.string())]),
        np.linspace(300.0, -20.0, size),
        np.full(size, 7.25),
        np.full(size, 2.0),
        PROMISE,
        ASKED,
    )
    return replace(made, **changed)


def _estimates(keys: dict[str, list[Any]], **asked: Any) -> dg.Estimates:
    size = len(next(iter(keys.values()))) if keys else 1
    value = np.linspace(40.0, 60.0, size)
    return dg.Estimates(
        Groups.of(list(keys), [pa.array(column) for column in keys.values()]),
        value,
        np.full(size, 0.5),
        value - 1,
        value + 1,
        np.full(size, 900.0),
        PROMISE,
        replace(ASKED, **asked),
    )


def _holdings() -> dg.Holdings:
    rows = {"who": np.arange(4000) % 800, "word": [f"w{n % 7}" for n in range(4000)]}
    return dg.elements_per_user(
        dg.read(pa.table(rows), user="who"),
        unit=dg.Element("word"),
        epsilon=9.0,
        delta=1e-6,
        random_state=3,
    )


def _beside() -> tuple[dg.Release, dg.Holdings]:
    holdings = _holdings()
    known = holdings.guarantee
    mine = replace(PROMISE, elements=known.elements, user=known.user)
    return _histogram(NAMES, guarantee=mine), holdings


SCORES: dict[str, Any] = {"value": "score", "bounds": (0.0, 100.0)}
MEANS = {"statistic": MEAN, **SCORES}
RANKS = {"statistic": QUANTILES, **SCORES}
TWO_RANKS: dict[str, list[Any]] = {"shop": ["x", "x", "y", "y"], "quantile": [0.5, 0.9, 0.5, 0.9]}

RELEASES: dict[str, Callable[[], dg.Release]] = {
    "histogram": lambda: _histogram(NAMES),
    "bounds": lambda: _histogram(NAMES, clip=np.array([0.001, 2.0, 8.0])),
    "nothing": lambda: _histogram(
        [], guarantee=replace(PROMISE, event=Selection(4.0, 60.0, 1) + Gaussian(4.0))
    ),
    "seeded": lambda: _histogram(NAMES, guarantee=replace(PROMISE, private=False)),
    "no promise": lambda: _histogram(
        NAMES,
        guarantee=replace(PROMISE, event=Gaussian(1.0, Contribution(block="record"))),
    ),
    "means": lambda: _estimates({"shop": ["x", "y"], "year": [1, 2]}, **MEANS),
    "one mean": lambda: _estimates({}, **MEANS),
    "quantiles": lambda: _estimates(TWO_RANKS, **RANKS),
    "quantile curve": lambda: _estimates({"quantile": [0.1, 0.5, 0.9]}, **RANKS),
    "distribution": lambda: _estimates(
        {"from": [1, 5, 200]}, statistic=DISTRIBUTION, value="visits", over="people"
    ),
    "holdings": _holdings,
}


def _fitted(**options: Any) -> learn.LinearRegression:
    rows = np.random.default_rng(7).normal(size=(120, 3))
    asked: dict[str, Any] = {"rounds": 4, "relation": "replace", "random_state": 1, **options}
    model = learn.LinearRegression(**asked)
    return model.fit(rows, rows[:, 0], users=np.repeat(np.arange(40), 3))


FITS: dict[str, dict[str, Any]] = {
    "fit": {},
    "fit with intervals": {"intervals": 0.2, "epsilon": 300.0},
    "fit without ends": {"intervals": 0.2},
    "fit of records": {"unit": dg.Record()},
    "fit by devices": {"trust": "shuffle", "n_users": 40},
    "fit of a stream": {"trust": "pan", "n_users": 40},
}
NETWORKS: dict[str, Callable[[], Training]] = {
    "network": networks.trained,
    "network without measures": lambda: networks.trained(
        history=TrainingHistory(np.linspace(0.2, 0.1, 40), 0.05)
    ),
}
SUMS = {
    "vectors": VectorSum(n_users=1000, dim=3, epsilon=1.0, delta=1e-6, honest_fraction=0.9),
    "numbers": ScalarSum(n_users=50, bound=3.0, epsilon=1.0, delta=1e-6),
}


def _page_of(name: str, folder: Path) -> str:
    path = folder / "page.html"
    if name == "beside":
        release, holdings = _beside()
        release.report(path, holdings)
    elif name in RELEASES:
        RELEASES[name]().report(path)
    elif name in NETWORKS:
        NETWORKS[name]().report(path)
    elif name in FITS:
        _fitted(**FITS[name]).report(path)
    else:
        SUMS[name].report(path)
    return path.read_text(encoding="utf-8")


PAGES = [*RELEASES, "beside", *FITS, *NETWORKS, *SUMS]

_TOLD = ("title", "h1", "h2", "h3", "dt", "th", "figcaption", "summary")
_SHAPE = ("section", "table", "figure", "pre", "tr", "ul", "li", "footer")


class _Outline(HTMLParser):
    """The tags that make a page's structure, with the words of headings, numbers left out."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.inside: list[str] = []
        self.hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        named = given.get("class") or given.get("aria-label")
        alarm = tag == "div" and named == "alarm"
        if not self.hidden and (tag in (*_TOLD, *_SHAPE, "svg") or alarm):
            self.lines.append(f"<{tag}{' ' + named if named else ''}>")
            self.inside.append(tag)
        if tag in ("svg", "style"):
            self.hidden += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in ("svg", "style"):
            self.hidden -= 1
        elif self.inside and tag == self.inside[-1]:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        words = " ".join(data.split())
        if not self.hidden and words and self.inside and self.inside[-1] in _TOLD:
            self.lines[-1] += " " + re.sub(r"[\d.,·⁻⁰¹²³⁴⁵⁶⁷⁸⁹]*\d[\d.,·⁻⁰¹²³⁴⁵⁶⁷⁸⁹]*", "#", words)


def _outline(page: str) -> str:
    found = _Outline()
    found.feed(page)
    return "\n".join(found.lines) + "\n"


def _shortly(value: float) -> str:
    return f"{value:.6g}"


def _drawing(ax: Axes) -> str:
    lines = [
        f"x: {ax.get_xscale()}, {ax.get_xlabel()!r}",
        f"y: {ax.get_yscale()}, {ax.get_ylabel()!r}",
        f"ticks: {[tick.get_text() for tick in ax.get_xticklabels()]}",
        f"ticks: {[tick.get_text() for tick in ax.get_yticklabels()]}",
    ]
    for line in ax.lines:
        points = zip(np.asarray(line.get_xdata()), np.asarray(line.get_ydata()), strict=True)
        told = [f"({_shortly(float(x))}, {_shortly(float(y))})" for x, y in points]
        named = line.get_label()
        look = (line.get_color(), line.get_linestyle(), line.get_marker())
        lines.append(f"line {named!r} {look}: {' '.join(told)}")
    lines += [f"collection {type(drawn).__name__}" for drawn in ax.collections]
    lines += [f"bars: {len(ax.patches)}"] if ax.patches else []
    lines += [f"text {text.get_text()!r}" for text in ax.texts]
    if (legend := ax.get_legend()) is not None:
        lines.append(f"legend: {[text.get_text() for text in legend.get_texts()]}")
    return "\n".join(lines) + "\n"


_KNOWN: dict[Relation, list[float]] = {"zero_out": [1.0, 2.0, 4.0], "replace": [1.5, 3.0, 7.0]}


def _honest(*epsilons: float) -> list[Honest]:
    shares = (1.0, 0.9, 0.5, 0.2)
    return [
        Honest(share, int(1000 * share), epsilon, share == 0.9)
        for share, epsilon in zip(shares, epsilons, strict=False)
    ]


def _plot_of(make: Callable[[], dg.Release], ax: Axes) -> Axes:
    return make().plot(ax)


PLOTS: dict[str, Callable[[Axes], Axes]] = {
    **{f"estimates of {name}": partial(_plot_of, make) for name, make in RELEASES.items()},
    "bounds": lambda ax: plot_bounds(_histogram(NAMES, clip=np.array([0.001, 2.0, 8.0])), ax),
    "curve": lambda ax: plot_curve(replace(PROMISE, relation="replace"), ax, max_units=20),
    "curve beside holdings": lambda ax: plot_curve(
        _beside()[0].guarantee, ax, max_units=20, holdings=_beside()[1]
    ),
    "curve of a user": lambda ax: plot_epsilons(
        [1, 2, 5], _KNOWN, "element", 1e-6, ax, user=(7, {"zero_out": 9.0, "replace": math.inf})
    ),
    "training": lambda ax: plot_training(_fitted().history_, ax),
    "measure": lambda ax: plot_measure(networks.HISTORY, "accuracy", ax),
    "honest": lambda ax: plot_honest(_honest(1.0, 1.1, 3.0, math.inf), 1e-6, ax),
    "no honest": lambda ax: plot_honest(_honest(math.inf), 1e-6, ax),
}


def _file(kind: str, name: str) -> Path:
    return OUTLINES / f"{kind} {name}.txt".replace(" ", "_")


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_keeps_its_outline(name: str, tmp_path: Path) -> None:
    kept = _file("page", name).read_text(encoding="utf-8")
    assert _outline(_page_of(name, tmp_path)) == kept


@pytest.mark.parametrize("name", PLOTS)
def test_plot_outline_is_unchanged(name: str) -> None:
    kept = _file("plot", name).read_text(encoding="utf-8")
    assert _drawing(PLOTS[name](Figure(figsize=(7, 4)).subplots())) == kept


def test_every_outline_is_of_a_page_or_a_plot() -> None:
    known = {_file("page", name) for name in PAGES} | {_file("plot", name) for name in PLOTS}
    assert set(OUTLINES.iterdir()) == known


def _write_all() -> None:
    OUTLINES.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        for name in PAGES:
            outline = _outline(_page_of(name, Path(folder)))
            _file("page", name).write_text(outline, encoding="utf-8")
    for name, draw in PLOTS.items():
        drawing = _drawing(draw(Figure(figsize=(7, 4)).subplots()))
        _file("plot", name).write_text(drawing, encoding="utf-8")


if __name__ == "__main__":
    _write_all()
