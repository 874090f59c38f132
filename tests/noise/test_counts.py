"""Binomial and Poisson counts have the stated distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, chisquare, poisson
from tests.refusals import refuses

from dpgrain.noise import SeededSource, SystemSource
from dpgrain.noise import binomial as draw_binomial
from dpgrain.noise import counts as module
from dpgrain.noise import poisson as draw_poisson
from dpgrain.noise.counts import (
    BinomialDistribution,
    CountDistribution,
    PoissonDistribution,
    draw_counts,
    rounded,
)

# Each statistical assertion fails by chance with about this probability.
CHANCE = 1e-7

LAWS: dict[str, CountDistribution] = {
    "few coins": BinomialDistribution(7, 0.3),
    "one coin": BinomialDistribution(1, 0.5),
    "a device": BinomialDistribution(4112, 0.5),
    "a batch": BinomialDistribution(18_589_000, 0.5),
    "rare": BinomialDistribution(10**6, 1e-5),
    "tiny": PoissonDistribution(0.3),
    "arrivals": PoissonDistribution(4654.0),
    "many arrivals": PoissonDistribution(4.6e6),
    "many rounds": BinomialDistribution(4 * 30_000**2, 0.5),
    "nearly all": BinomialDistribution(10**14, 1 - 1e-6),
}


class Words:
    private = False

    def __init__(self, *words: int, then: int = 0) -> None:
        self._words, self._then = list(words), then

    def words(self, size: int) -> NDArray[np.uint64]:
        found = [self._words.pop(0) if self._words else self._then for _ in range(size)]
        return np.array(found, dtype=np.uint64)


@pytest.mark.parametrize("name", LAWS)
def test_tables_are_far_more_accurate_than_is_assumed(name: str) -> None:
    law = LAWS[name]
    first, table = module._table(law)
    assumed = module._slack(law)
    sd = math.sqrt(law.variance)
    for away in (-6.0, -3.0, -1.0, 0.0, 0.5, 2.0, 5.0):
        k = int(law.mean + away * sd)
        if not first <= k < first + len(table):
            continue
        exact = module._below(law, k, 256)
        error = abs(Fraction(float(table[k - first])) - Fraction(exact, 1 << 256))
        assert float(error) * 10 < assumed
        if len(table) < 2000:
            assert float(error) < 1e-14


def test_exact_tails_agree_with_fractions() -> None:
    for trials, probability in ((5, 0.5), (7, 0.3), (40, 0.125)):
        law, p = BinomialDistribution(trials, probability), Fraction(probability)
        below = Fraction(0)
        for k in range(trials + 1):
            below += math.comb(trials, k) * p**k * (1 - p) ** (trials - k)
            assert abs(Fraction(module._below(law, k, 256), 1 << 256) - below) < Fraction(
                1, 1 << 240
            )


@pytest.mark.parametrize("name", ["a batch", "many arrivals"])
def test_exact_sums_at_blocks_agree_with_sums_of_tails(name: str) -> None:
    law = LAWS[name]
    first, table = module._table(law)
    assert len(table) > module._ANCHORED_ENTRIES
    for k in (first, first + module._BLOCK_ENTRIES, int(law.mean), first + len(table) - 1):
        apart = module._below(law, k, 256) - module._directly(law, k, 256)
        assert abs(apart) < 1 << 40


def test_a_draw_on_a_jump_is_decided_exactly() -> None:
    # F(3) of seven fair coins is 1/2: a smaller U gives 3, a larger or equal one 4.
    law = BinomialDistribution(7, 0.5)
    assert draw_counts(law, 1, Words(2**63)).tolist() == [4]
    assert draw_counts(law, 1, Words(2**63 - 1, then=2**64 - 1)).tolist() == [3]


def test_jump_between_words_needs_more_bits() -> None:
    # F(0) of one coin of probability 1/3, in floating point, is not a multiple of 2^-64 … but of
    # 2^-53.
    law = BinomialDistribution(3, 0.3)
    jump = (1 - Fraction(0.3)) ** 3
    word = math.floor(jump * 2**64)
    rest = math.floor((jump * 2**64 - word) * 2**64)
    assert draw_counts(law, 1, Words(word, rest - 1)).tolist() == [0]
    assert draw_counts(law, 1, Words(word, rest + 1)).tolist() == [1]


@pytest.mark.parametrize("word", [0, 1, 2**64 - 1], ids=["first", "second", "last"])
@pytest.mark.parametrize("name", ["few coins", "a device", "arrivals", "tiny"])
def test_the_ends_of_the_law_are_reached(name: str, word: int) -> None:
    law = LAWS[name]
    (found,) = draw_counts(law, 1, Words(word, then=7)).tolist()
    assert 0 <= found <= law.last
    # P(X ≤ found) > U, P(X < found) ≤ U, up to the bits that follow.
    low, high = word << 192, (word + 1) << 192
    assert module._below(law, found, 256) > low
    assert module._below(law, found - 1, 256) <= high


@pytest.mark.parametrize("name", LAWS)
def test_counts_have_their_law(name: str) -> None:
    law, times = LAWS[name], 40_000
    drawn = draw_counts(law, times, SeededSource(5))
    peer = (
        binom(law.trials, law.probability)
        if isinstance(law, BinomialDistribution)
        else poisson(law.mean)
    )
    edges = np.unique(peer.ppf(np.linspace(0.02, 0.98, 25)))
    cells = np.concatenate([[0.0], peer.cdf(edges), [1.0]])
    expected = np.diff(cells) * times
    found = np.bincount(np.searchsorted(edges, drawn), minlength=len(expected))
    keep = expected > 5
    scale = found[keep].sum() / expected[keep].sum()
    assert chisquare(found[keep], expected[keep] * scale).pvalue > CHANCE


def test_counts_in_chunks_or_at_once_use_equal_bits() -> None:
    assert draw_binomial(100, 0.5, 5, source=SeededSource(1)).tolist() == (
        draw_binomial(100, 0.5, 5, source=SeededSource(1)).tolist()
    )
    assert draw_poisson(3.0, 0).shape == (0,)
    assert len(set(draw_poisson(1e6, 50).tolist())) > 10


def test_rounding_is_unbiased_and_moves_minimally() -> None:
    values = np.full(200_000, 3.3)
    found = rounded(values, 10, SystemSource())
    assert set(found.tolist()) == {3, 4}
    error = 5.4 * math.sqrt(0.21 / len(values))
    assert abs(found.mean() - 3.3) < error
    rng = np.random.default_rng(0)
    for _ in range(300):
        y = rng.random(50) * 20
        s = rng.choice([1e-12, 0.3, 1.0, 2.5, 7.0]) * rng.random()
        seed = int(rng.integers(10**6))
        low, high = (rounded(z, 30, SeededSource(seed)).astype(np.int64) for z in (y, y + s))
        assert (high >= low).all()
        # Added in floating point, s has become a little more.
        assert (high - low <= math.ceil(s + 1e-14)).all()


def test_rounding_decides_fractions_beyond_the_first_bits() -> None:
    # The first byte of U equals the fraction's; the next word decides.
    value, tie = 2 + 77 / 256 + 2.0**-20, 77
    more = int(2.0**-20 * 256 * 2.0**64)
    assert rounded(np.array([value]), 9, Words(tie, more - 1)).tolist() == [3]
    assert rounded(np.array([value]), 9, Words(tie, more)).tolist() == [2]


def test_large_numbers_are_rounded_too() -> None:
    big = float(1 << 40)
    assert rounded(np.array([big, big]), 1 << 41, SeededSource(1)).tolist() == [1 << 40] * 2


@pytest.mark.parametrize(
    ("draw", "named"),
    [
        (lambda: draw_binomial(0, 0.5, 1), "trials"),
        (lambda: draw_binomial(5, 1.0, 1), "probability"),
        (lambda: draw_poisson(0.0, 1), "mean"),
        (lambda: draw_poisson(1.0, -1), "size"),
        (lambda: draw_poisson(1e13, 1), "noise"),
        (lambda: draw_binomial(10**17, 1 - 2.0**-40, 1), "counts"),
    ],
    ids=["trials", "probability", "mean", "size", "wide", "large"],
)
def test_wrong_parameters_are_named(draw: Callable[[], Any], named: str) -> None:
    with refuses(named):
        draw()


def test_a_mean_near_0_overflows_nowhere() -> None:
    """The quotient of a count and the mean is beyond floating point, and its logarithm is not."""
    law = PoissonDistribution(1e-320)
    mass = law.log_mass(np.array([0.0, 1.0, 2.0]))
    assert mass == pytest.approx([0.0, math.log(1e-320), 2 * math.log(1e-320) - math.log(2)])
    assert draw_poisson(1e-320, 50, source=SeededSource(1)).tolist() == [0] * 50
