"""Scores follow the charge's named distribution and outcomes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dpgrain.accounting import (
    ApproximateDP,
    Contribution,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    Selection,
    TruncatedGeometric,
)
from dpgrain.auditing.epsilon_bounds import ScoreCounts
from dpgrain.auditing.runs import Draw, Ticket, loss_by_noise
from dpgrain.noise import SeededSource
from dpgrain.publishing.guarantee import Guarantee

STEP = 2.0**-20
ONE = 2**20
# Each ticket with the sums of two neighbours, and the cost of distinguishing them: (μ, ε).
DRAWS: dict[str, tuple[Any, str, Any, Any, tuple[Any, ...], tuple[float, float]]] = {
    "gaussian": (Gaussian(2.0), "noisy", [5 * ONE, 0], [4 * ONE, 0], (float(ONE),), (0.5, 0)),
    "laplace": (Laplace(2.0), "noisy", [5 * ONE, 7], [4 * ONE, 7], (float(ONE),), (0, 0.5)),
    "select": (Selection(2.0, 3.0, 1), "select", [5 * ONE], [4 * ONE], (float(ONE), STEP), (0.5, 0)),
    "truncated": (TruncatedGeometric(0.5, 9), "truncated", [20, 12], [19, 12], (), (0, 0.5)),
    "order": (ExponentialMechanism(2.0), "order", [3, 2], [2, 2], (1.0,), (0, 0.5)),
    "flip": (ApproximateDP(0.5), "flip", [3, 2], [2, 2], (1.0,), (0, 0.5)),
}  # fmt: skip


def draw_of(name: str, stretch: float = 1.0) -> Draw:
    part, way, one, other, rest, _ = DRAWS[name]
    first, second = (Ticket(way, part, np.array(sums), rest, None) for sums in (one, other))
    return Draw(first, second, stretch)


def scores(draw: Draw, count: int) -> list[Any]:
    told = Guarantee("user", "", "zero_out", 1e-6, draw.one.part)
    return [draw.scores(one, count, told, SeededSource(5)) for one in (True, False)]


@pytest.mark.parametrize("name", DRAWS)
def test_scores_distinguish_neighbours_by_the_cost_of_the_draw(name: str) -> None:
    draw, (mu, pure) = draw_of(name), DRAWS[name][-1]
    found = loss_by_noise([draw])
    assert found == pytest.approx((mu, pure))
    one, other = scores(draw, 4000)
    assert max(np.abs(one).max(), np.abs(other).max()) <= draw.reach * (1 + 1e-9)
    assert one.mean() > other.mean() + 0.02
    if name == "gaussian":
        assert one.std() == pytest.approx(mu, rel=0.1)
        assert one.mean() == pytest.approx(mu**2 / 2, abs=0.05)


@pytest.mark.parametrize("name", DRAWS)
def test_more_distant_sums_cost_more(name: str) -> None:
    assert sum(loss_by_noise([draw_of(name, 3.0)])) > 1.9 * sum(loss_by_noise([draw_of(name)]))


def test_one_sided_item_is_detected() -> None:
    """A threshold that is too low selects the one item of only one person."""
    part = Selection(1.0, 2.0, 1, Contribution())
    first, second = (
        Ticket("select", part, np.array(sums), (float(ONE), STEP), None)
        for sums in ([9 * ONE, ONE], [9 * ONE])
    )
    draw = Draw(first, second)
    assert draw.differs
    assert not draw.comparable
    one, other = scores(draw, 4000)
    assert (other <= 1).all()
    assert one.mean() > 1.1
    bound = ScoreCounts.empty().add_scores(one, other, draw.reach).bound(1e-6, 0.01)
    assert bound > math.log(30)
    assert loss_by_noise([draw]) == (0.0, 0.0)
