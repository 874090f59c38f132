"""Bounds that differ are drawn, and all of them are counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from tests.report import cases

from dpgrain.report.plots import plot_bounds


@pytest.mark.slow
def test_different_bounds_are_drawn(tmp_path: Path) -> None:
    release = cases.histogram(["a", "b", "c"])
    assert "The clipping bounds" not in cases.page(release, tmp_path)
    page = cases.page(replace(release, clip=np.array([0.001, 2.0, 8.0])), tmp_path)
    assert "The clipping bounds" in page
    assert "<strong>0.001</strong>" in page


def test_bounds_are_all_counted() -> None:
    release = replace(cases.histogram(["a", "b", "c"]), clip=np.array([0.001, 2.0, 2.0]))
    ax = plot_bounds(release, Figure().subplots())
    heights = [patch.get_height() for patch in ax.patches]  # type: ignore[attr-defined]
    assert sum(heights) == 3
