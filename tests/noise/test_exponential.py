"""Permute-and-flip has its distribution, and more bits decide coins that floating point cannot."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from tests.noise import scripted

from dpgrain.noise import SeededSource
from dpgrain.noise.exponential import permute_and_flip, permutes_and_flips


def flips(scores: Sequence[int], scale: float) -> dict[int, float]:
    """The law of permute-and-flip, over all orders."""
    chance = [math.exp((s - max(scores)) / scale) for s in scores]
    law = dict.fromkeys(range(len(scores)), 0.0)
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        left = 1.0
        for i in order:
            law[i] += left * chance[i] / len(orders)
            left *= 1 - chance[i]
    return law


SCORES = [[0, 0], [5, 3, 0], [7, 7, 6, 0], [1, 2, 3, 4, 5]]


@pytest.mark.slow
@pytest.mark.parametrize("scores", SCORES, ids=str)
def test_permute_and_flip_has_its_law(scores: list[int]) -> None:
    source, draws, scale = SeededSource(1), 20_000, 2.5
    given = np.array(scores)
    seen = Counter(permute_and_flip(given, scale, source=source) for _ in range(draws))
    assert scripted.p_value(seen, flips(scores, scale), draws) > 1e-3
    if len(set(scores)) > 1:
        assert scripted.p_value(seen, flips(scores, 1.15 * scale), draws) < 1e-3
        gumbel = {i: math.exp(s / scale) for i, s in enumerate(scores)}
        weighed = {i: w / sum(gumbel.values()) for i, w in gumbel.items()}
        assert scripted.p_value(seen, weighed, draws) < 1e-6


def test_it_is_the_largest_of_scores_with_exponential_noise() -> None:
    scores, scale, draws = np.array([4, 2, 1, 4]), 3.0, 400_000
    noisy = scores + np.random.default_rng(2).exponential(scale, (draws, 4))
    seen = Counter(noisy.argmax(axis=1).tolist())
    assert scripted.p_value(seen, flips(scores.tolist(), scale), draws) > 1e-3


def test_coin_beyond_floating_point_is_decided_by_more_bits() -> None:
    # exp(−1/2) in 128 bits: the first word is a tie, the second one decides.
    import mpmath

    with mpmath.workprec(300):
        exact = int(mpmath.floor(mpmath.exp(mpmath.mpf(-0.5)) * 2**128))
    first, second = exact >> 64, exact & (2**64 - 1)
    for next_word, chosen in ((second - 1, {0, 1}), (second + 1, {0})):
        found = set()
        for pick in (0, 1):
            words = scripted.Scripted([0, first, next_word, pick])
            found.add(permute_and_flip(np.array([1, 0]), 2.0, source=words))
        assert found == chosen


def test_the_coin_of_the_largest_always_falls() -> None:
    # A word that rounds to 1 in floating point.
    assert permute_and_flip(np.array([5]), 1.0, source=scripted.Scripted([2**64 - 1, 0])) == 0


def test_many_choices_at_once_have_the_law_of_each() -> None:
    scores, scale, times = np.array([3, 1, 0]), 2.0, 40_000
    chosen = permutes_and_flips(scores, scale, times, source=SeededSource(5))
    alone = [permute_and_flip(scores, scale, source=SeededSource(seed)) for seed in range(4000)]
    for index in range(3):
        one, other = float((chosen == index).mean()), alone.count(index) / 4000
        assert abs(one - other) < 5 * math.sqrt(other * (1 - other) * (1 / times + 1 / 4000))


def test_equal_largest_scores_are_chosen_equally() -> None:
    chosen = permutes_and_flips(np.zeros(4, dtype=np.int64), 1.0, 4000, source=SeededSource(1))
    # 1,000 of each, with a standard deviation of 27.
    assert np.bincount(chosen, minlength=4).min() > 850
