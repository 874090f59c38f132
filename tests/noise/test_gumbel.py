"""The order of scores with Gumbel noise equals sequential choices, decided exactly."""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats
from tests.noise import cases
from tests.refusals import refuses

from dpgrain.noise import SeededSource, distributions, gumbel
from dpgrain.noise.gumbel import gumbel_order, gumbel_orders


# Gumbel noise with a published order.
def order_fit(scores: list[int], scale: float, count: int, draws: int, claimed: float) -> float:
    """The p-value of a chi-square test against choices one after the other."""
    source = SeededSource(13)
    given = np.array(scores)
    seen: dict[tuple[int, ...], int] = {}
    for _ in range(draws):
        order = tuple(gumbel_order(given, scale, count, source=source).tolist())
        seen[order] = seen.get(order, 0) + 1
    statistic, cells = 0.0, 0
    for order in itertools.permutations(range(len(scores)), count):
        left, mass = list(range(len(scores))), 1.0
        for j in order:
            mass /= sum(math.exp((scores[i] - scores[j]) / claimed) for i in left)
            left.remove(j)
        assert draws * mass >= 5
        statistic += (seen.get(order, 0) - draws * mass) ** 2 / (draws * mass)
        cells += 1
    return float(stats.chi2.sf(statistic, cells - 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scores", "scale", "count"), [([0, 1], 1.0, 1), ([3, 3, 5, 0], 2.0, 2), ([7, 1, 4], 6.0, 3)]
)
def test_order_has_the_distribution_of_sequential_choices(
    scores: list[int], scale: float, count: int
) -> None:
    assert order_fit(scores, scale, count, 20_000, scale) > 0.01
    assert order_fit(scores, 1.4 * scale, count, 20_000, scale) < 1e-5


@pytest.mark.slow
def test_order_is_exact_beyond_floating_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With an error bound that covers everything each order is decided in higher precision."""
    scores = np.random.default_rng(14).integers(0, 20, 60)
    plain = [gumbel_order(scores, 3.0, 25, source=SeededSource(seed)) for seed in range(5)]
    asked = []
    compare = gumbel._Keys.compare

    def counted(self: gumbel._Keys, i: int, j: int) -> int:
        asked.append((i, j))
        return compare(self, i, j)

    monkeypatch.setattr(gumbel._Keys, "compare", counted)
    gumbel_order(scores, 3.0, 25, source=SeededSource(0))
    assert not asked
    monkeypatch.setattr(gumbel, "RELATIVE_ERROR", 10.0)
    for seed, order in enumerate(plain):
        again = gumbel_order(scores, 3.0, 25, source=SeededSource(seed))
        assert again.tolist() == order.tolist()
    assert len(asked) > 5 * 50
    assert order_fit([3, 3, 5], 2.0, 2, 2_000, 2.0) > 0.01


def test_equal_words_are_decided_by_later_ones() -> None:
    word = 0x9E3779B97F4A7C15
    for later, first in (([1, 2], 1), ([2, 1], 0), ([5, 5, 7, 6], 0), ([5, 5, 6, 7], 1)):
        # A smaller V is a larger key; the words go to the second, then to the first.
        order = gumbel_order(np.array([4, 4]), 1.0, 1, source=cases.Scripted([word, word, *later]))
        assert order.tolist() == [first]
    firsts = [
        int(gumbel_order(np.array([4, 4]), 1.0, 1, source=cases.Scripted([word, word, *later]))[0])
        for later in np.random.default_rng(16).integers(2**63, size=(400, 2))
    ]
    assert 150 < sum(firsts) < 250


@pytest.mark.parametrize("word", [0, 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_extreme_words_are_ordered_too(word: int) -> None:
    middle = 2**62
    order = gumbel_order(np.zeros(3, int), 2.0, 3, source=cases.Scripted([middle, word, word]))
    assert (order[0] == 0) == (middle < word)
    assert sorted(order.tolist()) == [0, 1, 2]


def test_word_of_zeros_may_be_a_large_key() -> None:
    for later, first in (([1, 1], 0), ([2**63, 2**63], 1)):
        # V of 2^-128 with key 88.7, or of 2^-65 with key 45, against a key of 60.4.
        source = cases.Scripted([0, 2**63 - 1, *later])
        assert gumbel_order(np.array([0, 60]), 1.0, 1, source=source).tolist() == [first]


def test_unread_bits_decide_when_possible() -> None:
    """Two keys with the same 64 bits: later bits put either of them first."""
    with mpmath.workprec(200):
        # V′ = 1 − (1 − V)^e has the same key with a score that is one higher.
        own = int(mpmath.ldexp(mpmath.mpf("0.9"), 64)) + 2
        same = mpmath.ldexp(1 - (1 - mpmath.ldexp(own, -64)) ** mpmath.e, 64)
        other = int(mpmath.floor(same))
        # The unread bits of V move the threshold by a twentieth of a step.
        assert same - other < 0.9
    for later, first in ((0, 1), (2**64 - 1, 0)):
        source = cases.Scripted([own, other, later, later])
        assert gumbel_order(np.array([3, 4]), 1.0, 1, source=source).tolist() == [first]


@pytest.mark.slow
def test_floating_point_keys_are_within_a_tenth_of_bound() -> None:
    rng = np.random.default_rng(15)
    words = np.concatenate([
        rng.integers(0, 2**64, 2000, dtype=np.uint64),
        (2.0 ** rng.uniform(13, 63, 1000)).astype(np.uint64),
        ~(2.0 ** rng.uniform(13, 63, 1000)).astype(np.uint64),
        np.uint64(2**63) + rng.integers(-1000, 1000, 500).astype(np.uint64),
    ])  # fmt: skip
    below = -np.floor(2.0 ** rng.uniform(-1, 40, words.size))
    scale = 3.7
    keys, errors = gumbel._keys(words, below, scale)
    with mpmath.workprec(300):
        for word, score, key, error in zip(words, below, keys, errors, strict=True):
            low, high = (
                gumbel._key(
                    mpmath.ldexp(mpmath.mpf(int(word) + end), -64), float(score), scale, mpmath.mp
                )
                for end in (1, 0)
            )
            assert key - error <= low <= high <= key + error
            middle = mpmath.ldexp(mpmath.mpf(2 * int(word) + 1), -65)
            exact = gumbel._key(middle, float(score), scale, mpmath.mp)
            size = abs(score) + scale * (1 + abs((exact - score) / scale))
            assert abs(key - exact) <= 0.1 * distributions.RELATIVE_ERROR * size


def test_orders_of_nothing_and_of_everything() -> None:
    assert gumbel_order(np.array([], dtype=np.int64), 1.0, 0).tolist() == []
    assert gumbel_order(np.array([5]), 1.0, 0).tolist() == []
    assert sorted(gumbel_order(np.arange(300), 50.0, 300).tolist()) == list(range(300))
    # Distant scores keep their order.
    assert gumbel_order(np.array([-(2**52), 0, 2**52]), 1.0, 3).tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    ("scores", "scale", "count", "name"),
    [
        (np.array([1.5]), 1.0, 1, "scores"),
        (np.array([[1]]), 1.0, 1, "scores"),
        (np.array([2**53]), 1.0, 1, "scores"),
        (np.array([1]), 0.0, 1, "scale"),
        (np.array([1]), 1.0, 2, "count"),
        (np.array([1]), 1.0, -1, "count"),
    ],
)
def test_orders_reject_invalid_arguments(scores: Any, scale: float, count: int, name: str) -> None:
    with refuses(name):
        gumbel_order(scores, scale, count)


def test_many_orders_at_once_have_the_law_of_each() -> None:
    scores, scale, times = np.array([0, 1, 2]), 1.5, 40_000
    orders = gumbel_orders(scores, scale, 2, times, source=SeededSource(3))
    weights = np.exp(scores / scale)
    for i, j in itertools.permutations(range(3), 2):
        chance = weights[i] / weights.sum() * weights[j] / (weights.sum() - weights[i])
        seen = float(((orders[:, 0] == i) & (orders[:, 1] == j)).mean())
        assert abs(seen - chance) < 5 * math.sqrt(chance * (1 - chance) / times)
    assert gumbel_orders(scores, scale, 0, 3).shape == (3, 0)


def test_doubtful_orders_are_decided_like_single_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.arange(12) // 2
    plain = gumbel_orders(scores, 2.0, 5, 200, source=SeededSource(4))
    # As if no order were clear from floating point.
    monkeypatch.setattr(gumbel, "_RARE_STEPS", 1 << 62)
    exact = gumbel_orders(scores, 2.0, 5, 200, source=SeededSource(4))
    assert plain.tolist() == exact.tolist()
