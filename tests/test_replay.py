"""Draws are recorded and replayed, and differences between two runs raise an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.replay import Draw, recorded, replayed

import dpgrain.publishing.draws
from dpgrain.noise import SeededSource
from dpgrain.noise.gumbel import gumbel_order
from dpgrain.noise.noisy_sums import add_gaussian_noise

run: Any = dpgrain.publishing.draws


def sums(x: float, sd: float = 2.0) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return add_gaussian_noise(np.full(3, x), 1.0, sd, SeededSource(1))


def test_answers_are_given_again() -> None:
    with recorded() as draws:
        first = sums(0.0)
    with replayed(draws) as again:
        second = sums(5.0)
    assert first.tolist() == second.tolist() != sums(5.0).tolist()
    normal, pure = draws[0].lost(again[0])
    assert normal == pytest.approx(3 * 25 / 4, rel=1e-6)
    assert pure == 0


@pytest.mark.parametrize("times", [0, 2])
def test_another_number_of_draws_is_rejected(times: int) -> None:
    with recorded() as draws:
        sums(0.0)

    def again() -> None:
        with replayed(draws):
            for _ in range(times):
                sums(0.0)

    with pytest.raises(AssertionError, match="draw"):
        again()


def test_another_scale_is_rejected() -> None:
    with recorded() as draws:
        sums(0.0)
    with pytest.raises(AssertionError, match="another run drew"), replayed(draws):
        sums(0.0, sd=2.1)


def test_choices_are_given_again() -> None:
    with recorded() as draws:
        first = run.gumbel_order(np.array([0, 0, 90]), 1.0, 1, source=SeededSource(1))
    with replayed(draws) as again:
        second = run.gumbel_order(np.array([90, 0, 0]), 1.0, 1, source=SeededSource(1))
    assert first.tolist() == second.tolist() == [2]
    assert draws[0].lost(again[0]) == (0, 180)


def test_laws_are_put_back() -> None:
    with recorded():
        assert run.gumbel_order is not gumbel_order
    assert run.gumbel_order is gumbel_order


def test_a_truncated_law_is_priced_by_its_rate() -> None:
    one, two = (Draw("with_truncated_geometric", (0.5, 9), np.array([x, 0]), None) for x in (0, 3))
    assert one.lost(two) == (0, 1.5)
