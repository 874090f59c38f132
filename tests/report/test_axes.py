"""Axes of plots: new ones, or those of a caller."""

from __future__ import annotations

from tests.refusals import refuses

from dpgrain.report.axes import axes_for


def test_other_objects_are_not_axes() -> None:
    with refuses("ax", "not 3"):
        axes_for(3, 7.0, 4.2)
