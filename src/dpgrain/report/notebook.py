"""A release and a guarantee for notebooks: a figure, a few rows and a sentence."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from markupsafe import Markup

from dpgrain._formatting import POINTER
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.report.figures import svg
from dpgrain.report.plots import plot_curve, plot_estimates
from dpgrain.report.plots.estimates import drawn
from dpgrain.statistics.release import Release
from dpgrain.words.guarantee_text import summary
from dpgrain.words.headings import is_one, release_wording, text
from dpgrain.words.release_text import (
    format_rows,
    key_headings,
    notes,
    number_headings,
    shown,
    table_footers,
    title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Width of a figure in points, number of rows, and length of a key.
_WIDTH, _ROWS, _LETTERS = 560, 10, 60
_SENTENCE_LETTERS = 5000


def release_html(release: Release) -> str:
    """Return a release as HTML: a figure, the first or largest rows, and the guarantee."""
    words = release_wording(release)
    of = f"{words.name} {words.of}" + (f" by {words.by}" if words.by else "")
    row_count = drawn(release, _ROWS)
    parts = [Markup("<p><strong>{}</strong></p>").format(text(title(release)))]
    if len(release) and not is_one(release):
        draw = partial(plot_estimates, release, top=_ROWS)
        height = 90 + 22 * max(row_count, 2) if row_count else 280
        parts.append(_picture(draw, height, f"the estimates, with intervals: {of}"))
    lines = [*notes(release), summary(release.guarantee, release.query), POINTER]
    parts += [_table(release)] if len(release) else []
    parts += [Markup("<p>{}</p>").format(text(line, _SENTENCE_LETTERS)) for line in lines]
    return str(Markup("<div>{}</div>").format(Markup("\n").join(parts)))


def guarantee_html(guarantee: Guarantee) -> str:
    """Return a guarantee as HTML: its sentence and its curve."""
    picture = _picture(partial(plot_curve, guarantee), 280, "the granularity curve")
    return str(Markup("<div>{}\n{}</div>").format(_promise(guarantee), picture))


def _promise(guarantee: Guarantee) -> Markup:
    return Markup("<p>{}</p>").format(text(guarantee, _SENTENCE_LETTERS))


def _picture(draw: Callable[[Axes], Axes], height: int, what: str) -> Markup:
    """Return a drawing as an image on white, independent of notebook themes."""
    drawing = svg(draw, _WIDTH, height, "notebook", paper="white")
    data = base64.b64encode(drawing.encode()).decode()
    return Markup('<img alt="{}" width="{}" src="data:image/svg+xml;base64,{}">').format(
        text(what, 200), _WIDTH, data
    )


def _table(release: Release) -> Markup:
    """Return the first or largest rows as a table."""
    heads = [text(name, _LETTERS) for name in key_headings(release)]
    heads += number_headings(release)
    rows = [
        [*line.keys, *line.numbers(release)]
        for line in format_rows(release, shown(release, _ROWS), letters=_LETTERS)
    ]
    head = Markup("").join(Markup("<th>{}</th>").format(name) for name in heads)
    body = Markup("\n").join(
        Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(c) for c in row))
        for row in rows
    )
    footers = table_footers(release, len(rows))
    rest = Markup("").join(Markup("<p>{}</p>").format(footer) for footer in footers)
    table = Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>{}")
    return table.format(head, body, rest)
