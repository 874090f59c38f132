"""Results of experiments: rows, which are dataclasses, on the screen and in files."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_T = TypeVar("_T")


def track(values: Iterable[_T], title: str) -> Iterable[_T]:
    """Go through values with a progress bar on standard error."""
    from rich.console import Console
    from rich.progress import track as tracked

    return tracked(list(values), f"{title:<24}", console=Console(stderr=True))


def show(rows: Sequence[Any]) -> str:
    """A plain table of rows."""
    lines = [list(asdict(rows[0]))] + [[_cell(v) for v in asdict(row).values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True))
        for line in lines
    )


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.4g}"
    return str(value)


def write(out: Path, name: str, rows: Sequence[Any], figure: Figure | None = None) -> None:
    """Write rows as CSV and their figure, if there is one, as PNG."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(asdict(rows[0])))
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    if figure is not None:
        import matplotlib.pyplot as plt

        figure.savefig(out / f"{name}.png", dpi=160)
        plt.close(figure)
