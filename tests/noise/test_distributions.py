"""Laws of noise are tested both ways: the right one passes, one that is 2% wrong does not.

Everything runs on fixed seeds, so that a test that passes today passes tomorrow.
"""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from tests.noise import cases
from tests.refusals import refuses

from dpgrain.noise import (
    SeededSource,
    discrete_laplace,
    distributions,
    truncated_geometric,
)
from dpgrain.noise.distributions import MAX_SCALE, rounded_gaussian

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


def goodness_of_fit(kind: cases.Kind, samples: IntArray, scale: float) -> float:
    """The p-value of a chi-square test of integer samples against the exact law."""
    width = max(round(scale / 8), 1)
    bins = math.ceil(5 * scale / width)
    # Bin i contains the integers k with edges[i−1] ≤ k < edges[i]; the outermost are the tails.
    edges = np.arange(-bins, bins + 1) * width
    mass = -np.diff(kind.tail(edges.astype(np.float64), scale), prepend=1.0, append=0.0)
    keep = samples.size * np.minimum(mass[1:], mass[:-1]) >= 8
    edges = edges[keep | (edges == 0) | (edges == 1)]
    mass = -np.diff(kind.tail(edges.astype(np.float64), scale), prepend=1.0, append=0.0)
    seen = np.bincount(np.searchsorted(edges, samples, "right"), minlength=mass.size)
    expected = samples.size * mass
    assert expected.min() >= 5
    statistic = float(((seen - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(statistic, mass.size - 1))


@cases.both
@pytest.mark.parametrize("scale", cases.SCALES)
def test_distribution_is_as_stated_and_deviations_are_detected(
    kind: cases.Kind, scale: float
) -> None:
    samples = kind.draw(scale, 400_000, source=SeededSource(1))
    assert samples.dtype == np.int64
    assert goodness_of_fit(kind, samples, scale) > 0.01
    assert goodness_of_fit(kind, samples, 1.02 * scale) < 1e-5
    assert goodness_of_fit(kind, samples, scale / 1.02) < 1e-5
    other = cases.LAPLACE if kind is cases.GAUSSIAN else cases.GAUSSIAN
    assert goodness_of_fit(other, samples, scale) < 1e-9


@cases.both
@pytest.mark.parametrize("scale", [0.3, 1.0, 3.7])
def test_the_test_itself_follows_an_independent_sampler(kind: cases.Kind, scale: float) -> None:
    # Naive floating-point samplers of the same laws, for the statistic and not for privacy.
    rng = np.random.default_rng(2)
    if kind is cases.GAUSSIAN:
        naive = np.rint(rng.normal(0, scale, 400_000)).astype(np.int64)
    else:
        p = -math.expm1(-1 / scale)
        naive = rng.geometric(p, 400_000) - rng.geometric(p, 400_000)
    assert goodness_of_fit(kind, naive, scale) > 0.01
    assert goodness_of_fit(kind, naive + 1, scale) < 1e-9
    assert goodness_of_fit(kind, np.abs(naive), scale) < 1e-9


@pytest.mark.slow
@cases.both
@pytest.mark.parametrize("scale", [1e4, 2.0**32])
def test_large_scales_are_the_continuous_law_to_the_eye(kind: cases.Kind, scale: float) -> None:
    samples = kind.draw(scale, 400_000, source=SeededSource(3)) / scale
    law = stats.norm if kind is cases.GAUSSIAN else stats.laplace
    assert stats.kstest(samples, law.cdf).pvalue > 0.01
    assert stats.kstest(samples * 1.03, law.cdf).pvalue < 1e-5


@cases.both
@pytest.mark.parametrize("scale", [0.3, 3.7, 1e4])
def test_moments_tails_and_symmetry(kind: cases.Kind, scale: float) -> None:
    n = 1_000_000
    samples = kind.draw(scale, n, source=SeededSource(4))
    k = np.arange(-math.ceil(40 * scale), math.ceil(40 * scale) + 2, dtype=np.float64)
    mass = -np.diff(kind.tail(k, scale))
    assert mass.sum() == pytest.approx(1.0, abs=1e-12)
    moments = [float((mass * k[:-1] ** p).sum()) for p in (2, 4, 8)]
    x = samples.astype(np.float64)
    assert abs(x.mean()) < 4 * math.sqrt(moments[0] / n)
    for p, expected, spread in ((2, moments[0], moments[1]), (4, moments[1], moments[2])):
        assert abs((x**p).mean() - expected) < 4 * math.sqrt((spread - expected**2) / n)
    sd = math.sqrt(moments[0])
    for far in (3, 4):
        cut = math.floor(far * sd) + 1
        chance = 2 * float(kind.tail(np.array([cut]), scale)[0])
        count = int((np.abs(samples) >= cut).sum())
        assert abs(count - n * chance) < 4.5 * math.sqrt(n * chance) + 0.5
    positive, negative = int((samples > 0).sum()), int((samples < 0).sum())
    assert abs(positive - negative) < 4 * math.sqrt(positive + negative)
    # The sign reveals nothing about the size.
    size = np.abs(samples[samples != 0])
    median = np.median(size)
    up = samples[samples != 0] > 0
    table = [
        [int((up & far).sum()), int((~up & far).sum())] for far in (size > median, size <= median)
    ]
    if min(map(min, table)) > 0:
        assert stats.chi2_contingency(table).pvalue > 0.001


def test_samples_do_not_depend_on_each_other() -> None:
    x = rounded_gaussian(50.0, 200_000, source=SeededSource(5)).astype(np.float64)
    for lag in (1, 2, 1 << 15):
        assert abs(np.corrcoef(x[:-lag], x[lag:])[0, 1]) < 4 / math.sqrt(x.size - lag)


@cases.both
def test_scales_may_differ_from_sample_to_sample(kind: cases.Kind) -> None:
    scales = np.repeat([0.3, 50.0, 2.0**32], 100_000)
    rng = np.random.default_rng(9)
    order = rng.permutation(scales.size)
    samples = np.empty(scales.size, dtype=np.int64)
    samples[order] = kind.draw(scales[order], source=SeededSource(10))
    for part, scale in zip(np.split(samples, 3), [0.3, 50.0, 2.0**32], strict=True):
        assert goodness_of_fit(kind, part, scale) > 0.01
    alone = kind.draw(3.7, 10, source=SeededSource(11))
    np.testing.assert_array_equal(kind.draw([3.7] * 10, source=SeededSource(11)), alone)


@cases.both
def test_sizes(kind: cases.Kind) -> None:
    assert kind.draw(1.0).shape == (1,)
    assert kind.draw([1.0, 2.0, 3.0]).shape == (3,)
    assert kind.draw(1.0, 0).shape == (0,)
    # Longer than one chunk, and a little more.
    assert kind.draw(1.0, (1 << 15) + 3, source=SeededSource(0)).shape == ((1 << 15) + 3,)
    assert (kind.draw(1e-3, 1000, source=SeededSource(0)) == 0).all()


@cases.both
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, MAX_SCALE * 1.0001])
def test_invalid_scales_are_rejected_by_value(kind: cases.Kind, bad: float) -> None:
    with refuses("scale", f"not {bad!r}"):
        kind.draw(bad, 3)
    with refuses("scale", f"not {bad!r}"):
        kind.draw([1.0, bad, 2.0])
    assert kind.draw(MAX_SCALE, 2).shape == (2,)


@pytest.mark.slow(full=True)
@cases.both
@pytest.mark.parametrize("scale", [0.3, 3.7, 1e4, 2.0**32])
def test_the_law_in_ten_million_samples(kind: cases.Kind, scale: float) -> None:
    samples = kind.draw(scale, 10_000_000, source=SeededSource(16))
    assert goodness_of_fit(kind, samples, scale) > 0.01
    assert goodness_of_fit(kind, samples, 1.004 * scale) < 1e-5


# The truncated law.
def truncated_fit(samples: IntArray, epsilon: float, cutoff: int) -> float:
    """The p-value of a chi-square test against the law of e^{−ε|x|} up to the cutoff."""
    mass = np.exp(-epsilon * np.abs(np.arange(-cutoff, cutoff + 1)))
    seen = np.bincount(samples + cutoff, minlength=mass.size)
    assert seen.size == mass.size
    expected = samples.size * mass / mass.sum()
    common = expected >= 5
    seen = np.append(seen[common], seen[~common].sum())
    expected = np.append(expected[common], expected[~common].sum())
    if expected[-1] == 0:
        seen, expected = seen[:-1], expected[:-1]
    statistic = float(((seen - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(statistic, expected.size - 1))


@pytest.mark.parametrize(("epsilon", "cutoff"), [(1.0, 11), (0.1, 60), (2.0, 1), (0.05, 60)])
def test_the_truncated_law_is_the_one_stated(epsilon: float, cutoff: int) -> None:
    samples = truncated_geometric(epsilon, cutoff, 1_000_000, source=SeededSource(11))
    assert samples.dtype == np.int64
    assert np.abs(samples).max() <= cutoff
    assert truncated_fit(samples, epsilon, cutoff) > 0.01
    assert truncated_fit(samples, 1.02 * epsilon, cutoff) < 1e-5
    assert truncated_fit(samples, epsilon / 1.02, cutoff) < 1e-5
    if epsilon * cutoff > 8:
        return
    # Values beyond the cutoff are drawn again, not moved to it.
    plain = discrete_laplace(1 / epsilon, 1_000_000, source=SeededSource(11))
    assert truncated_fit(np.clip(plain, -cutoff, cutoff), epsilon, cutoff) < 1e-5


def test_truncated_distribution_with_mostly_rejected_draws() -> None:
    samples = truncated_geometric(0.01, 1, 30_000, source=SeededSource(12))
    assert truncated_fit(samples, 0.01, 1) > 0.01
    assert truncated_geometric(1.0, 3, 0).shape == (0,)
    with refuses("cutoff", "must be at least"):
        truncated_geometric(1e-6, 10, 1)
    wrong: Any
    for wrong in ({"epsilon": 0.0}, {"cutoff": 0}, {"size": -1}):
        with refuses(next(iter(wrong))):
            truncated_geometric(**{"epsilon": 1.0, "cutoff": 3, "size": 1, **wrong})


@cases.both
@pytest.mark.parametrize("scale", [0.3, 3.7, 1e4, 2.0**32, 2.0**40])
def test_fast_decisions_equal_exact_arithmetic(
    kind: cases.Kind, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 800
    fast = kind.draw(scale, n, source=SeededSource(6))
    decided: list[int] = []
    decide = distributions._decide

    def counted(law: distributions.IntegerDistribution, bits: int, *rest: Any) -> int:
        decided.append(bits)
        return decide(law, bits, *rest)

    monkeypatch.setattr(distributions, "_decide", counted)
    monkeypatch.setattr(distributions, "_RARE_STEPS", 1 << 63)
    exact = kind.draw(scale, n, source=SeededSource(6))
    assert len(decided) == n
    np.testing.assert_array_equal(fast, exact)


def _bits() -> list[int]:
    rng = np.random.default_rng(7)
    bits = [int(2.0**e) for e in rng.uniform(math.log2(distributions._RARE_STEPS), 63, 250)]
    bits += [int(b) for b in rng.integers(1, 2**63, 100, dtype=np.int64)]
    middle = [2**63 - 1, 2**63 - 2**20, 2**62, 2**62 - 1, 2**62 + 1, distributions._RARE_STEPS]
    return [b for b in bits if distributions._RARE_STEPS <= b < 2**63] + middle


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
            allowed = distributions.RELATIVE_ERROR / 8 * (y + scale + 1)
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
    monkeypatch.setattr(distributions, "_RARE_STEPS", 1 << 63)
    exact = kind.draw(scale, 30_000, source=SeededSource(17))
    np.testing.assert_array_equal(fast, exact)
