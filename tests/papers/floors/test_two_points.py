"""The fewest users for whom any private rule selects an item."""

from __future__ import annotations

import pytest
from tests.refusals import refuses

from dpgrain.papers.floors import min_users_with_item
from dpgrain.papers.floors.sum_floors import two_points_floor


def test_fewest_holders_of_an_unknown_item() -> None:
    # 11 holders pass with .35, 12 with .76.
    found = [min_users_with_item(1.0, 1e-5, chance) for chance in (0.34, 0.36, 0.75, 0.77)]
    assert found == [11, 12, 12, 13]


def test_holders_are_counted_in_time() -> None:
    # Without an ε to speak of, each holder adds δ.
    assert min_users_with_item(1e-300, 1e-5) == pytest.approx(50_000, abs=1)
    assert 600_000 < min_users_with_item(1e-3, 1e-307) < 800_000
    for epsilon, delta in ((1e-320, 1e-320), (1e-9, 1e-12)):
        with refuses("epsilon", "more than ten million users"):
            min_users_with_item(epsilon, delta)


@pytest.mark.parametrize("n", [1, 2, 5, 40])
@pytest.mark.parametrize("epsilon", [1e-3, 0.05, 1.0])
def test_no_floor_is_above_the_error_of_a_constant(n: int, epsilon: float) -> None:
    # A constant answer in the middle of all sums errs by half of the range.
    for apart in (1.0, 2.0):
        assert two_points_floor(epsilon, 0.0, n, apart) <= n * apart / 2
