"""A uniform number becomes noise by the exact inverse of its distribution, for any words."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from tests.noise import cases

from dpgrain.noise import (
    SeededSource,
    inversion,
)


@cases.both
@pytest.mark.parametrize("scale", [0.3, 3.7, 1e4, 2.0**32, 2.0**40])
def test_fast_decisions_equal_exact_arithmetic(
    kind: cases.Kind, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 800
    fast = kind.draw(scale, n, source=SeededSource(6))
    decided: list[int] = []
    decide = inversion._decide

    def counted(law: inversion.IntegerDistribution, bits: int, *rest: Any) -> int:
        decided.append(bits)
        return decide(law, bits, *rest)

    monkeypatch.setattr(inversion, "_decide", counted)
    monkeypatch.setattr(inversion, "_RARE_STEPS", 1 << 63)
    exact = kind.draw(scale, n, source=SeededSource(6))
    assert len(decided) == n
    np.testing.assert_array_equal(fast, exact)


def _bits() -> list[int]:
    rng = np.random.default_rng(7)
    bits = [int(2.0**e) for e in rng.uniform(math.log2(inversion._RARE_STEPS), 63, 250)]
    bits += [int(b) for b in rng.integers(1, 2**63, 100, dtype=np.int64)]
    middle = [2**63 - 1, 2**63 - 2**20, 2**62, 2**62 - 1, 2**62 + 1, inversion._RARE_STEPS]
    return [b for b in bits if inversion._RARE_STEPS <= b < 2**63] + middle


@cases.both
@pytest.mark.parametrize("scale", [0.01, 0.3, 1.0, 50.0, 1e4, 2.0**32, 2.0**40])
def test_inverse_is_more_accurate_than_required(kind: cases.Kind, scale: float) -> None:
    bits = _bits()
    uniform = (np.array(bits, dtype=np.uint64).astype(np.float64) + 0.5) * 2.0**-64
    position = kind.law.jump_position(uniform, np.full(uniform.shape, scale))
    with mpmath.workprec(200):
        exact_scale = mpmath.mpf(scale)
        for b, y in zip(bits, position, strict=True):
            u = mpmath.ldexp(2 * mpmath.mpf(b) + 1, -65)
            if kind is cases.LAPLACE:
                true = -exact_scale * mpmath.log(u * (1 + mpmath.exp(-1 / exact_scale)))
                true = max(true, mpmath.mpf(0))
            else:
                # One Newton step from y: its own error is the square of the one measured.
                z = (mpmath.mpf(float(y)) - 0.5) / exact_scale
                off = mpmath.ncdf(-z) - u
                true = y + exact_scale * off / mpmath.npdf(z)
            allowed = inversion.RELATIVE_ERROR / 8 * (y + scale + 1)
            assert abs(true - mpmath.mpf(float(y))) < allowed


def brute_magnitude(kind: cases.Kind, scale: float, words: list[int]) -> int:
    """The largest k ≥ 0 with P(X ≥ k) ≥ U, for U written out bit by bit, by bisection."""
    with mpmath.workprec(800):
        u = mpmath.mpf(words[0] >> 1)
        for word in words[1:]:
            u = u * 2**64 + word
        u = mpmath.ldexp(u, -64 * len(words))
        low, high = 0, 1
        while kind.law.tail(high, scale, mpmath.mp) >= u:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (
                (middle, high) if kind.law.tail(middle, scale, mpmath.mp) >= u else (low, middle)
            )
        return low


TOP = 2**64 - 1


@cases.both
@pytest.mark.parametrize("scale", [0.3, 3.7, 1000.0])
@pytest.mark.parametrize(
    "words",
    [
        [0, 1],
        [1, 1],
        [0, TOP],
        [0, 0, 12345],
        [2, 0],
        [3, TOP],
        [TOP, TOP],
        [TOP - 1, 0],
        [(1 << 13) - 1, 0],
        [1 << 13, TOP],
        [1 << 14, 1 << 63],
    ],
    ids=str,
)
def test_adversarial_words_reach_the_far_tail(
    kind: cases.Kind, scale: float, words: list[int]
) -> None:
    source = cases.Scripted(words)
    (sample,) = kind.draw(scale, 1, source=source)
    used = [*words, *(int(w) for w in SeededSource(8).words(8))]
    size = brute_magnitude(kind, scale, used)
    assert abs(sample) == size
    assert sample == (-size if words[0] & 1 else size)


@cases.both
@pytest.mark.parametrize("scale", [0.3, 3.7, 1000.0, 2.0**32, 2.0**40])
def test_borderline_uniform_is_decided_by_more_bits(kind: cases.Kind, scale: float) -> None:
    for k in (1, 2, max(round(scale), 3), max(round(2.5 * scale), 4)):
        with mpmath.workprec(800):
            tail = int(mpmath.floor(mpmath.ldexp(kind.law.tail(k, scale, mpmath.mp), 256)))
        first, second, third, fourth = (tail >> (192 - 64 * i) & TOP for i in range(4))
        if first == 0:
            continue  # beyond the reach of one word
        word = first << 1 & TOP
        assert first < 2**63
        # U agrees with the tail at k in 64, then in 128, then in 192 bits, and falls on either side.
        for more, size in (
            ([second - 1], k),
            ([second + 1], k - 1),
            ([second, third - 1], k),
            ([second, third + 1], k - 1),
            ([second, third, fourth - 1], k),
            ([second, third, fourth + 2], k - 1),
        ):
            source = cases.Scripted([word, *more])
            (sample,) = kind.draw(scale, 1, source=source)
            assert sample == size == brute_magnitude(kind, scale, [word, *more, 0])
            assert source.asked == 1 + len(more)


@pytest.mark.slow(full=True)
@cases.both
@pytest.mark.parametrize("scale", cases.SCALES)
def test_fast_decisions_are_exact_in_many_samples(
    kind: cases.Kind, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = kind.draw(scale, 30_000, source=SeededSource(17))
    monkeypatch.setattr(inversion, "_RARE_STEPS", 1 << 63)
    exact = kind.draw(scale, 30_000, source=SeededSource(17))
    np.testing.assert_array_equal(fast, exact)
