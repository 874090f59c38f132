"""Totals of scores change by no more than claimed, whatever one unit's losses are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.choices import cases

from dpgrain.choices.scores import STEPS, BlockLosses, sum_losses
from dpgrain.inputs.array_blocks import arrange
from dpgrain.units import Record, Relation, Unit, User

HOLDINGS: list[list[float]] = [
    [],
    [0.0],
    [1.0],
    [math.nan],
    [math.inf, -math.inf],
    [0.3] * 7,
    [1e300, -1e300, 0.5],
    [0.0] * 50 + [1.0] * 50,
]


def widest(unit: Unit, relation: Relation) -> tuple[float, float]:
    """The widest move of a score, and the widest range of moves of all scores, in bounds."""
    rest: list[list[float]] = [[0.2, 0.9], [0.5], []]
    moved, spread = 0.0, 0.0
    for one in HOLDINGS:
        if relation == "replace":
            others = HOLDINGS if isinstance(unit, User) else [[*one[1:], x] for x in (0.0, 1.0)]
        else:
            others = [[]] if isinstance(unit, User) else [one[1:]]
        for other in others:
            change = (cases.totals([*rest, one], unit) - cases.totals([*rest, other], unit)) / STEPS
            moved = max(moved, float(np.abs(change).max()))
            spread = max(spread, float(max(change.max(), 0) - min(change.min(), 0)))
    return moved, spread


@pytest.mark.parametrize("unit", [User(), Record()], ids=["user", "record"])
@pytest.mark.parametrize("relation", cases.RELATIONS)
def test_a_unit_moves_totals_no_farther_than_is_promised(unit: Unit, relation: Relation) -> None:
    moved, spread = widest(unit, relation)
    assert moved == 1.0
    # All one way under zero_out; either way, under replace.
    assert spread == (1.0 if relation == "zero_out" else 2.0)


def test_nan_counts_most_and_missing_users_nothing() -> None:
    assert cases.totals([[math.nan]], User())[0] == STEPS
    assert cases.totals([[-math.inf]], User())[0] == 0
    assert cases.totals([[], [0.5]], User())[0] == STEPS // 2
    assert cases.totals([[1.0] + [0.0] * 3], User())[0] == STEPS // 4


def test_one_complex_loss_does_not_affect_others() -> None:
    # As computed by arithmetic with records, one of them complex.
    losses = np.linspace(0, 1, 50).astype(np.complex128)
    losses[7] += 1j
    blocks = BlockLosses(arrange(50, None, None, User()), 0.0, 1.0)
    missing = np.where(losses.imag == 0, losses.real, np.nan)
    assert np.array_equal(blocks.of(losses), blocks.of(missing))


def test_totals_do_not_depend_on_the_order() -> None:
    rng = np.random.default_rng(8)
    values, owners = rng.random(5000), rng.integers(0, 40, 5000)
    found = set()
    for _ in range(5):
        order = rng.permutation(5000)
        blocks = BlockLosses(arrange(5000, owners[order], None, User()), 0.0, 1.0)
        found.add(sum_losses(blocks.of(values[order])))
    assert len(found) == 1


def test_totals_saturate() -> None:
    assert sum_losses(np.full(3, 2**51)) == 2**52
