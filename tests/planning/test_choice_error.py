"""Plans of choices against arithmetic by hand, and against the mechanisms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpgrain.papers.floors import min_excess_of_choice
from dpgrain.planning.choice_error import plan_select
from dpgrain.units import RELATIONS, Relation


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_choice_by_hand(delta: float, relation: Relation) -> None:
    plan = plan_select(0.5, delta, n_users=300, hypotheses=50, bound=2.0, relation=relation)
    assert plan.event.epsilon(delta, relation=relation) <= 0.5
    rate = 0.5 if relation == "zero_out" else 0.25
    most = 2 * math.log(50) / (rate * 300)
    assert plan["excess risk, the noise's part at most"] <= most * (1 + 1e-6)
    assert plan["evaluations of a hypothesis"] == 50
    assert plan["least excess risk by any choice"] == 2 * min_excess_of_choice(
        0.5, delta, 300, 50, relation=relation
    )
    tied = plan["where all but one tie, exponential"]
    assert tied < plan["excess risk, the noise's part at most"]
    names = [row.name for row in plan.rows]
    assert ("where all but one tie, permute-and-flip" in names) == (delta == 0)
    if delta == 0:
        assert 0.5 * tied < plan["where all but one tie, permute-and-flip"] < tied


@pytest.mark.slow
def test_ties_are_decided_as_planned() -> None:
    # 7 hypotheses, 6 of them worse by a gap: Gumbel noise, and flips in a random order.
    generator, n = np.random.default_rng(4), 200_000
    plan = plan_select(1.0, n_users=100, hypotheses=7)
    tied, flipped = 0.0, 0.0
    for gap in np.linspace(1.5, 4, 11):
        scores = generator.gumbel(size=(n, 7)) + np.array([gap, *[0] * 6])
        tied = max(tied, gap * float(np.mean(scores.argmax(axis=1) != 0)))
        before = generator.integers(0, 7, n)
        flipped = max(flipped, gap * float(np.mean(1 - (1 - np.exp(-gap)) ** before)))
    assert plan["where all but one tie, exponential"] == pytest.approx(tied / 100, rel=0.02)
    assert plan["where all but one tie, permute-and-flip"] == pytest.approx(flipped / 100, rel=0.02)
