"""The picture of a plan: each unit's error over ε, and a person's remaining budget."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from tests.report import cases

from dpgrain._formatting import rounded_up
from dpgrain.planning import plan_units
from dpgrain.report.plots import save_units

PLAN = plan_units(0.5, 1e-6, n_users=5000, records=60, elements=4, cells=20, relation="replace")


def test_each_unit_has_its_curve() -> None:
    ax = PLAN.plot(Figure().subplots())
    curves, marks = ax.lines[0:6:2], ax.lines[1:6:2]
    for unit, curve, mark in zip(PLAN.units, curves, marks, strict=True):
        x, y = cases.x(curve), cases.y(curve)
        assert x[0] == pytest.approx(0.05)
        assert x[-1] == pytest.approx(5.0)
        assert (np.diff(y) < 0).all()
        # One point is recomputed, with all arguments of the plan.
        again = plan_units(
            x[3], 1e-6, n_users=5000, records=60, elements=4, cells=20, relation="replace"
        )
        assert y[3] == again[unit.unit].share
        assert (cases.x(mark), cases.y(mark)) == ([0.5], [unit.share])
        person = rounded_up(unit.epsilon_of_person, 3)
        assert str(curve.get_label()) == (f"{unit.unit} (an average person: ε = {person})")


def test_plan_at_another_epsilon_is_unchanged() -> None:
    skewed = plan_units(0.5, 1e-6, n_users=5000, records=60, elements=4, cells=20, skew=3.0)
    again = plan_units(2.0, 1e-6, n_users=5000, records=60, elements=4, cells=20, skew=3.0)
    assert skewed.at(2.0) == again
    assert skewed.at(2.0).units != PLAN.at(2.0).units


def test_it_is_drawn_into_a_file(tmp_path: Path) -> None:
    save_units(PLAN, tmp_path / "plan.png")
    shades = imread(tmp_path / "plan.png")
    assert shades[..., :3].min() < 0.4 < 0.99 < shades[..., :3].max()
