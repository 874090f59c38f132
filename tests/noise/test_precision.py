"""Samplers in many threads, while others set the precision of mpmath: the same bits, the same draws."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from dpgrain.noise import counts, discrete_laplace, stopping
from dpgrain.noise.choice import choose_scores
from dpgrain.noise.distributions import rounded_gaussian
from dpgrain.noise.exponential import permute_and_flip
from dpgrain.noise.gumbel import gumbel_order
from dpgrain.noise.precision import arithmetic

TOP = 2**64 - 1
Draw: TypeAlias = Callable[[Any], Any]


class Words:
    private = False

    def __init__(self, words: list[int]) -> None:
        self.script = list(words)

    def words(self, size: int) -> NDArray[np.uint64]:
        given = [self.script.pop(0) if self.script else 1 for _ in range(size)]
        return np.array(given, dtype=np.uint64)


# A draw from a source, the words before the relevant one, and two words with different draws.
SAMPLERS: dict[str, tuple[Draw, list[int], int, int]] = {
    "gaussian": (lambda s: int(rounded_gaussian(3.7, 1, source=s)[0]), [], 2**60, 2**63),
    "wide-gaussian": (lambda s: int(rounded_gaussian(2.0**40, 1, source=s)[0]), [], 2**60, 2**63),
    "laplace": (lambda s: int(discrete_laplace(1000.0, 1, source=s)[0]), [], 2**60, 2**63),
    "binomial": (lambda s: int(counts.binomial(1000, 0.3, 1, source=s)[0]), [], 2**61, 2**63),
    "poisson": (lambda s: int(counts.poisson(20.5, 1, source=s)[0]), [], 2**61, 2**63),
    "long-table": (lambda s: int(counts.poisson(8e5, 1, source=s)[0]), [], 2**61, 2**63),
    "order": (
        lambda s: gumbel_order(np.array([0, 3]), 2.0, 1, source=s).tolist(),
        [2**63 + 12345],
        2**40,
        TOP - 2**40,
    ),
    "flip": (
        lambda s: permute_and_flip(np.array([5, 0]), 3.0, source=s),
        [2**63],
        2**40,
        TOP - 2**40,
    ),
    "scores": (
        lambda s: choose_scores(np.array([[3, 10**6, 10**9]]), 7.0, source=s).tolist(),
        [],
        2**40,
        2**63,
    ),
    "runs": (lambda s: stopping.negative_binomial(0.5, 0.05, source=s), [], 2**61, 2**63),
    "poisson-runs": (lambda s: stopping.poisson(7.5, source=s), [], 2**61, 2**63),
}


def brinks(name: str) -> list[list[int]]:
    """Words that agree with a jump of the draw in 64, 128 and 192 bits, on both of its sides."""
    draw, before, low, high = SAMPLERS[name]

    def of(words: list[int]) -> Any:
        return draw(Words(words))

    prefix, found = list(before), []
    # The last bit of an inverted word is the sign.
    step = 2 if name in ("gaussian", "wide-gaussian", "laplace") else 1
    for _ in range(3):
        target = of([*prefix, high])
        assert of([*prefix, low]) != target
        while high - low > step:
            middle = low + (high - low) // 2 // step * step
            low, high = (low, middle) if of([*prefix, middle]) == target else (middle, high)
        found += [[*prefix, low], [*prefix, high]]
        prefix, low, high, step = [*prefix, low], 0, TOP, 1
        if of([*prefix, low]) == of([*prefix, high]):
            break
    return found


@contextmanager
def quick_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("name", list(SAMPLERS))
def test_draws_in_many_threads_equal_one(name: str) -> None:
    draw = SAMPLERS[name][0]
    scripts = brinks(name)
    # Near ties, which more than the first word of each decides.
    assert len(scripts) >= 4
    expected = [draw(Words(script)) for script in scripts]
    assert expected[0] != expected[1]
    stop, wrong = threading.Event(), list[Any]()

    def sample() -> None:
        for _ in range(3 if name == "long-table" else 8):
            for script, one in zip(scripts, expected, strict=True):
                found = draw(Words(script))
                if found != one:
                    wrong.append((script, one, found))

    def meddle() -> None:
        # Another library's work: it sets the precision of all who share mpmath's own context.
        while not stop.is_set():
            with mpmath.workprec(15):
                mpmath.mp.exp(1)
            mpmath.mp.prec = 12

    before = mpmath.mp.prec
    meddler = threading.Thread(target=meddle)
    samplers = [threading.Thread(target=sample) for _ in range(3)]
    try:
        with quick_switches():
            meddler.start()
            for thread in samplers:
                thread.start()
            for thread in samplers:
                thread.join()
    finally:
        stop.set()
        meddler.join()
        mpmath.mp.prec = before
    assert wrong == []


def test_each_thread_has_separate_arithmetic() -> None:
    seen: list[Any] = [arithmetic(200)]
    thread = threading.Thread(target=lambda: seen.append(arithmetic(200)))
    thread.start()
    thread.join()
    assert seen[0] is not seen[1]
    assert mpmath.mp not in seen
    assert [context.prec for context in seen] == [200, 200]
    with mpmath.workprec(12):
        assert arithmetic(200).exp(1) == seen[1].exp(1)
