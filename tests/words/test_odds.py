"""Limits on attacks, and the guarantee in four sentences."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpgrain as dg
from dpgrain._formatting import rounded_up
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.units import RELATIONS, Relation
from dpgrain.words.odds import Odds, guarantee_sentences


def printed(percentage: str) -> float:
    return float(percentage.removesuffix("%")) / 100


@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.02, 0.3])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
def test_limits_of_epsilon_and_delta_are_attained(epsilon: float, delta: float) -> None:
    """The mechanism of Kairouz, Oh & Viswanath (2015) attains them, up to rounding."""
    rest = (1 - delta) / (1 + math.exp(epsilon))
    # Outcomes of one neighbour, those that speak for it first; the other has the reverse.
    one = np.array([delta, rest * math.exp(epsilon), rest, 0.0])
    other, odds = one[::-1], Odds(epsilon, delta)
    guess = float(np.maximum(one, other).sum()) / 2
    assert guess * (1 - 1e-9) <= printed(odds.guess) <= 1.01 * guess
    for alarms in (0.001, 0.05, 0.6):
        # The best test raises an alarm at the first outcomes, and at one of them with a probability.
        before = np.concatenate([[0.0], np.cumsum(other)[:-1]])
        raised = np.clip(alarms - before, 0.0, other)
        shares = np.divide(raised, other, out=np.ones(4), where=other > 0)
        power = float((one * shares).sum())
        assert power * (1 - 1e-9) <= printed(odds.detection(alarms)) <= 1.1 * power


@pytest.mark.parametrize("relation", RELATIONS)
def test_several_units_have_the_relation_of_the_guarantee(relation: Relation) -> None:
    event = Gaussian(4.0, Contribution(block="user"))
    guarantee = dg.Guarantee("user", "", relation, 1e-6, event)
    several = rounded_up(guarantee.epsilon(units=5))
    assert f"(ε = {several})" in guarantee_sentences(guarantee)[2]
