"""Plots as figures inside a page."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from io import StringIO
from typing import TYPE_CHECKING

from markupsafe import Markup
from matplotlib import style
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A figure is drawn once for a page and once for a telephone, with these widths in points, which SVG
# shows as pixels.
_WIDTHS = {"wide": 816, "narrow": 344}


def figures(name: str, draw: Callable[[Axes], Axes], height: int) -> Markup:
    """Draw one plot as two inline figures, of which the style sheet shows the one that fits."""
    both = (
        Markup('<div class="plot {}">{}</div>').format(kind, _svg(draw, width, height, name + kind))
        for kind, width in _WIDTHS.items()
    )
    return Markup("\n").join(both)


def _svg(draw: Callable[[Axes], Axes], width: int, height: int, salt: str) -> Markup:
    """Draw on axes, whose size is in points, and return the SVG element with its text escaped."""
    # The default settings are used, as the reader's own could pass names on to LaTeX.
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
