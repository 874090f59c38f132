"""Lengths of steps are their formulas."""

from __future__ import annotations

import pytest

from dpgrain.optimize import Constant, Power, StronglyConvex
from dpgrain.papers import DecreasingRestart


def test_schedules_are_their_formulas() -> None:
    assert [Power(2.0, 0.5)(k) for k in (1, 4, 16)] == pytest.approx([2, 1, 0.5])
    assert [Constant(0.3)(k) for k in (1, 9)] == [0.3, 0.3]
    assert [StronglyConvex(0.5)(k) for k in (1, 3)] == pytest.approx([2, 1])
    restart = DecreasingRestart(2.0, 1.0, 20)
    assert [restart(k) for k in (1, 10, 11, 13)] == pytest.approx([0.25, 0.25, 0.25, 0.2])
