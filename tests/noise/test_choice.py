"""Choices among groups of outcomes have their exact laws, decided by more bits where they must be."""

from __future__ import annotations

import itertools
from typing import Any

import mpmath
import numpy as np
import pytest
from tests.papers.winsorized import cases
from tests.refusals import refuses

from dpgrain.noise import SeededSource, choice
from dpgrain.noise.choice import choose_scores, uniform_below
from dpgrain.testing.mean_contract import Array


def law_of(sizes: list[int], rate: float) -> Array:
    weights = np.array(sizes) * np.exp(-rate * np.arange(len(sizes)))
    return np.asarray(weights / weights.sum())


SIZES = [[3, 0, 5, 40], [0, 0, 2, 1], [1, 1, 1, 1], [0, 10**6, 10**9, 10**12]]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("rate", [0.05, 1.0, 6.0])
def test_scores_are_drawn_in_the_stated_law(sizes: list[int], rate: float) -> None:
    rows = np.array([sizes] * 100_000)
    counts = np.bincount(choose_scores(rows, rate, source=SeededSource(3)), minlength=4)
    assert cases.is_law(counts, law_of(sizes, rate))


def test_other_rate_and_ignored_sizes_are_distinguished() -> None:
    counts = np.bincount(choose_scores(np.array([[3, 0, 5, 40]] * 100_000), 1.0), minlength=4)
    assert cases.is_law(counts, law_of([3, 0, 5, 40], 1.0))
    assert not cases.is_law(counts, law_of([1, 0, 1, 1], 1.0))
    assert not cases.is_law(counts, law_of([3, 0, 5, 40], 1.1))


class Scripted:
    private = False

    def __init__(self, words: list[int]) -> None:
        self.script = list(words)

    def words(self, size: int) -> Any:
        given, self.script = self.script[:size], self.script[size:]
        assert len(given) == size
        return np.array(given, dtype=np.uint64)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("rate", [0.05, 1.0, 300.0])
def test_borderline_uniform_numbers_are_decided_by_more_bits(sizes: list[int], rate: float) -> None:
    with mpmath.workprec(1000):
        weights = [n * mpmath.exp(-mpmath.mpf(rate) * i) for i, n in enumerate(sizes)]
        sums = list(itertools.accumulate(weights))
        brinks = [int(mpmath.floor(mpmath.ldexp(s / sums[-1], 256))) for s in sums[:-1]]
    top = 2**64 - 1
    for brink in brinks:
        words = [brink >> (192 - 64 * i) & top for i in range(4)]
        if brink == 0 or brink >> 256 or not 0 < words[1] < top or words[2] in (0, top):
            continue  # no score is below, or none above
        for tail in (
            [words[1] - 1],
            [words[1] + 1],
            [words[1], words[2] - 1, 0],
            [words[1], words[2] + 1, 0],
        ):
            u = words[0] << 192 | tail[0] << 128 | (tail[1] << 64 if len(tail) > 1 else 0)
            with mpmath.workprec(1000):
                exact = next(i for i, s in enumerate(sums) if s > mpmath.ldexp(u, -256) * sums[-1])
            found = choose_scores(np.array([sizes]), rate, source=Scripted([words[0], *tail]))
            assert found[0] == exact


def test_floating_point_and_long_integers_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    sizes = rng.integers(0, 10 ** rng.integers(1, 12, (300, 1)), (300, 30)) + 1
    sizes[::3, :12] = 0
    fast = choose_scores(sizes, 0.4, source=SeededSource(6))
    # Beyond every error: all are decided exactly. More than 64 bits are not needed.
    monkeypatch.setattr(choice, "RELATIVE_ERROR", 2.0)
    assert np.array_equal(fast, choose_scores(sizes, 0.4, source=SeededSource(6)))
    assert fast.std() > 1


def test_weight_sums_are_more_accurate_than_required() -> None:
    rng = np.random.default_rng(8)
    for rate in (1e-4, 0.03, 1.0, 50.0):
        sizes = rng.integers(0, 2**40, (1, 2000))
        sizes[0, :300] = 0
        sums, error = choice._sums(sizes, rate)
        with mpmath.workprec(300):
            start = int(np.flatnonzero(sizes[0])[0])
            powers = [mpmath.exp(-mpmath.mpf(rate) * (i - start)) for i in range(2000)]
            exact = list(
                itertools.accumulate(int(n) * p for n, p in zip(sizes[0], powers, strict=True))
            )
            worst = max(abs(mpmath.mpf(float(s)) - e) for s, e in zip(sums[0], exact, strict=True))
        assert worst < error[0] / 8


def test_whole_numbers_are_uniform() -> None:
    drawn = uniform_below(np.full(70_000, 7), source=SeededSource(1))
    assert cases.is_law(np.bincount(drawn, minlength=7), np.full(7, 1 / 7))
    # Three quarters of 2^64: a plain remainder would make the lower third twice as likely.
    large = uniform_below(np.full(40_000, 3 << 60), source=SeededSource(2))
    assert cases.is_law(np.bincount(large // (1 << 60), minlength=3), np.full(3, 1 / 3))
    incomplete = uniform_below(np.array([3]), source=Scripted([2**64 - 1, 5]))
    assert incomplete.tolist() == [2]


@pytest.mark.parametrize(
    ("call", "name", "word"),
    [
        (lambda: choose_scores(np.ones(2, dtype=int), 1.0), "sizes", "shape"),
        (lambda: choose_scores(np.array([[0, 0]]), 1.0), "sizes", "at least 0"),
        (lambda: choose_scores(np.array([[2**53]]), 1.0), "sizes", "at least 0"),
        (lambda: choose_scores(np.array([[1]]), 0.0), "rate", "0.0"),
        (lambda: uniform_below(np.array([0])), "bounds", "between"),
        (lambda: uniform_below(np.array([0.5])), "bounds", "a list"),
    ],
    ids=["flat", "empty", "large", "rate", "zero", "fraction"],
)
def test_invalid_choices_are_rejected(call: Any, name: str, word: str) -> None:
    with refuses(name, word):
        call()
