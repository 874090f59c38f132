"""Plots as figures inside a page."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from io import StringIO
from typing import TYPE_CHECKING

from markupsafe import Markup
from matplotlib import style
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Widths of a figure on a page and on a phone, in points, which SVG shows as pixels.
_WIDTHS = {"wide": 816, "narrow": 344}

# Groups with such an id get a title, which browsers show on hover.
_HOVER = re.compile(r'<g id="told (\d+)">')


def figures(
    name: str, draw: Callable[[Axes], Axes], height: int, hover_texts: Sequence[str] = ()
) -> Markup:
    """Draw a wide and a narrow figure with hover texts per row; the style sheet shows one."""

    def drawn(ax: Axes) -> Axes:
        draw(ax)
        for row in range(len(hover_texts)):
            # Invisible, but receives the pointer.
            ax.axhspan(row - 0.5, row + 0.5, alpha=0.0, zorder=9, gid=f"told {row}")
        return ax

    both = (
        Markup('<div class="plot {}">{}</div>').format(
            kind, _inline(drawn, width, height, name + kind, hover_texts)
        )
        for kind, width in _WIDTHS.items()
    )
    return Markup("\n").join(both)


def _inline(
    draw: Callable[[Axes], Axes], width: int, height: int, salt: str, hover_texts: Sequence[str]
) -> Markup:
    """Return a drawing as an element of a page, with titles for its rows."""

    def titled(row: re.Match[str]) -> str:
        return Markup('<g class="told"><title>{}</title>').format(hover_texts[int(row[1])])

    drawing = svg(draw, width, height, salt)
    return Markup(_HOVER.sub(titled, drawing[drawing.index("<svg") :]))


def svg(
    draw: Callable[[Axes], Axes], width: int, height: int, salt: str, *, paper: str = ""
) -> str:
    """Return a drawing as SVG with escaped text, of a size in points; transparent without paper."""
    # Not the reader's own settings, which could pass names to LaTeX.
    settings = {"svg.fonttype": "none", "svg.hashsalt": salt, "font.size": 12.0}
    with style.context(["default", settings]), warnings.catch_warnings():
        # The reader's fonts may have glyphs that matplotlib's fonts lack.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
        draw(figure.subplots())
        buffer = StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(
            buffer, format="svg", metadata=nothing, transparent=not paper, facecolor=paper or "none"
        )
        return buffer.getvalue()
