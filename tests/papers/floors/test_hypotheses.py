"""No choice among candidates is below the floor."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from tests.papers.floors.test_worlds import best_mechanism

from dpgrain.papers.floors import min_excess_of_choice
from dpgrain.units import RELATIONS, Relation


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("delta", [0.0, 0.02])
def test_no_choice_is_below_the_floor(relation: Relation, delta: float) -> None:
    n, epsilon, names = 2, 0.7, 3
    kinds: Sequence[tuple[int, ...]] = list(itertools.product((0, 1), repeat=names))
    users = range(len(kinds)) if relation == "replace" else range(-1, len(kinds))
    states = list(itertools.combinations_with_replacement(users, n))
    place = {state: number for number, state in enumerate(states)}
    pairs = set()
    for state in states:
        for moved in users:
            other = tuple(sorted((*state[1:], moved))), tuple(sorted((state[0], moved)))
            for to in other:
                fits = relation == "replace" or -1 in (
                    *(set(state) ^ set(to)),
                    *(() if state.count(-1) == to.count(-1) else (-1,)),
                )
                if to != state and fits and (place[to], place[state]) not in pairs:
                    pairs.add((place[state], place[to]))
    best = 0.0
    for base, gap in itertools.product((0.5, 1.0), (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)):
        if gap > base:
            continue
        cost = np.zeros((len(states), names))
        for world in range(names):
            rates = [base - gap * (k == world) for k in range(names)]
            law = [
                math.prod(r if bit else 1 - r for r, bit in zip(rates, kind, strict=True))
                for kind in kinds
            ]
            for drawn in itertools.product(range(len(kinds)), repeat=n):
                chance = math.prod(law[kind] for kind in drawn)
                wrong = np.arange(names) != world
                cost[place[tuple(sorted(drawn))]] += chance * gap * wrong / names
        best = max(best, best_mechanism(sorted(pairs), cost, epsilon, delta))
    floor = min_excess_of_choice(epsilon, delta, n, names, relation=relation)
    assert 0 < floor <= best * (1 + 1e-6)
    assert best < 3 * floor


def test_choices_among_many_cost_the_logarithm() -> None:
    few, many = (
        min_excess_of_choice(0.01, 0.0, 10**7, k, records=4, relation="replace")
        for k in (10**4, 10**8)
    )
    assert many / few == pytest.approx(2, rel=0.2)
    order = math.log(10**8) / (10**7 * 0.01 * math.sqrt(4))
    assert 0.3 < many / order < 1
