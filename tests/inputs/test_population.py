"""A noisy number of users: its noise is as stated, and its cost is in the guarantee."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from tests.charges import charge_of
from tests.claims import unstated

import dpgrain as dg
from dpgrain.accounting import Gaussian
from dpgrain.inputs.array_blocks import arrange
from dpgrain.inputs.population import ENROLLED, SHARE, Population
from dpgrain.learn import (
    LinearRegression,
)
from dpgrain.noise import SeededSource
from dpgrain.publishing import Promise
from dpgrain.units import RELATIONS, Element, Record, Relation, Unit, User


def released(roster: Population, users: int, seed: int) -> int:
    """The released number of users, from a seed."""
    assert roster.event is not None
    with charge_of(roster.event, SeededSource(seed)) as charge:
        return roster.size(lambda: users, charge)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("unit", unstated.UNITS)
def test_number_noise_is_as_stated(unit: Unit, relation: Relation) -> None:
    roster = Population.create(None, Promise(unit, 1.0, 1e-6, relation))
    # A few per cent of μ², for every unit.
    whole = dg.accounting.calibrate_gaussian(
        1.0, 1e-6, contribution=ENROLLED, unit=unit, relation=relation
    )
    assert (whole.noise_multiplier / roster.noise_sd) ** 2 == pytest.approx(SHARE, rel=1e-3)
    assert f"{roster.noise_sd:.3g}" in str(roster.facts[0])
    found = np.array([released(roster, 10_000, seed) for seed in range(600)])
    assert found.dtype == np.int64
    # 600 draws have a mean and a spread this near, but for CHANCE.
    assert abs(found.mean() - 10_000) < 5.4 * roster.noise_sd / math.sqrt(600)
    assert found.std() == pytest.approx(roster.noise_sd, rel=5.4 / math.sqrt(1200))
    few = [released(roster, 0, seed) for seed in range(50)]
    assert min(few) == 1


def tables(users: int, cells: int, records: int) -> list[tuple[tuple[int, int], ...]]:
    each = list(itertools.product([*range(users), -1], range(cells)))
    return [t for r in range(records + 1) for t in itertools.product(each, repeat=r)]


def distinct(table: tuple[tuple[int, int], ...]) -> int:
    """The number of users in the code; −1 is no user."""
    labels = [None if who < 0 else who for who, _ in table]
    return arrange(len(table), labels, None, User()).users


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("unit", [Record(), Element(), User()])
def test_no_neighbour_moves_the_number_farther(unit: Unit, relation: Relation) -> None:
    farthest = 0
    others = [(), ((0, 0),), ((0, 1),), ((0, 0), (0, 1))]
    for table in tables(2, 2, 3):
        for who, cell in itertools.product(range(2), range(2)):
            match unit:
                case Record():
                    gone = [i for i, record in enumerate(table) if record == (who, cell)][:1]
                case Element():
                    gone = [i for i, record in enumerate(table) if record == (who, cell)]
                case _:
                    gone = [i for i, record in enumerate(table) if record[0] == who]
            left = tuple(record for i, record in enumerate(table) if i not in gone)
            new = others if relation == "replace" and gone else [()]
            for back in new:
                added = tuple((who, at) for _, at in back)
                if isinstance(unit, Record):
                    added = added[:1]
                if isinstance(unit, Element):
                    added = tuple(record for record in added if record[1] == cell)
                farthest = max(farthest, abs(distinct(table) - distinct(left + added)))
    assert farthest == ENROLLED.sensitivity(1, relation, unit) == 1
    # Regardless of one person's elements or records; for users, this number of people.
    many = 3 if isinstance(unit, User) else 1
    assert ENROLLED.sensitivity(3, relation, unit) == many


def test_number_cost_is_in_the_guarantee() -> None:
    for unit in unstated.UNITS:
        table = unstated.Table(unstated.N)
        found = unstated.fit(
            table, kind=LinearRegression, unit=unit, relation="zero_out", epsilon=1.0
        )
        (number,) = (
            part
            for part in found.guarantee_.event.parts
            if isinstance(part, Gaussian) and part.contribution == ENROLLED
        )
        assert number.noise_multiplier == pytest.approx(
            Population.create(None, Promise(unit, 1.0, unstated.DELTA, "zero_out")).noise_sd
        )
        assert 0.99 < found.guarantee_.epsilon() <= 1.0
