"""Noise is tested both ways: the right law passes, one that is 2% wrong does not.

Everything runs on fixed seeds, so that a test that passes today passes tomorrow.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr

from dpgrain.errors import ParameterError
from dpgrain.noise import (
    MAX_SCALE,
    SeededSource,
    Source,
    SystemSource,
    discrete_laplace,
    gumbel,
    gumbel_order,
    inversion,
    laws,
    rounded_gaussian,
    source_of,
    truncated_geometric,
)

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Kind:
    """A sampler, its exact upper tail in floating point, and the law behind it."""

    name: str
    draw: Callable[..., IntArray]
    tail: Callable[[FloatArray, float], FloatArray]
    law: inversion.Law

    def __repr__(self) -> str:
        return self.name


def _gaussian_tail(k: FloatArray, scale: float) -> FloatArray:
    return np.asarray(ndtr((0.5 - k) / scale))


def _laplace_tail(k: FloatArray, scale: float) -> FloatArray:
    above = np.exp(-np.abs(k) / scale) / (1 + math.exp(-1 / scale))
    return np.where(k > 0, above, 1 - above * math.exp(-1 / scale))


GAUSSIAN = Kind("gaussian", rounded_gaussian, _gaussian_tail, laws._RoundedGaussian())
LAPLACE = Kind("laplace", discrete_laplace, _laplace_tail, laws._DiscreteLaplace())
KINDS = [GAUSSIAN, LAPLACE]
both = pytest.mark.parametrize("kind", KINDS, ids=repr)


def goodness_of_fit(kind: Kind, samples: IntArray, scale: float) -> float:
    """The p-value of a chi-square test of integer samples against the exact law."""
    width = max(round(scale / 8), 1)
    bins = math.ceil(5 * scale / width)
    # Bin i holds the integers k with edges[i−1] ≤ k < edges[i]; the outermost are the tails.
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


SCALES = [0.3, 1.0, 3.7, 50.0, 1e4, 2.0**32, 2.0**40]


@both
@pytest.mark.parametrize("scale", SCALES)
def test_the_law_is_the_one_stated_and_two_percent_more_is_noticed(
    kind: Kind, scale: float
) -> None:
    samples = kind.draw(scale, 400_000, source=SeededSource(1))
    assert samples.dtype == np.int64
    assert goodness_of_fit(kind, samples, scale) > 0.01
    assert goodness_of_fit(kind, samples, 1.02 * scale) < 1e-5
    assert goodness_of_fit(kind, samples, scale / 1.02) < 1e-5
    other = LAPLACE if kind is GAUSSIAN else GAUSSIAN
    assert goodness_of_fit(other, samples, scale) < 1e-9


@both
@pytest.mark.parametrize("scale", [0.3, 1.0, 3.7])
def test_the_test_itself_follows_an_independent_sampler(kind: Kind, scale: float) -> None:
    # Naive floating-point samplers of the same laws, for the statistic and not for privacy.
    rng = np.random.default_rng(2)
    if kind is GAUSSIAN:
        naive = np.rint(rng.normal(0, scale, 400_000)).astype(np.int64)
    else:
        p = -math.expm1(-1 / scale)
        naive = rng.geometric(p, 400_000) - rng.geometric(p, 400_000)
    assert goodness_of_fit(kind, naive, scale) > 0.01
    assert goodness_of_fit(kind, naive + 1, scale) < 1e-9
    assert goodness_of_fit(kind, np.abs(naive), scale) < 1e-9


@pytest.mark.search(keep=1)
@both
@pytest.mark.parametrize("scale", [1e4, 2.0**32])
def test_large_scales_are_the_continuous_law_to_the_eye(kind: Kind, scale: float) -> None:
    samples = kind.draw(scale, 400_000, source=SeededSource(3)) / scale
    law = stats.norm if kind is GAUSSIAN else stats.laplace
    assert stats.kstest(samples, law.cdf).pvalue > 0.01
    assert stats.kstest(samples * 1.03, law.cdf).pvalue < 1e-5


@both
@pytest.mark.parametrize("scale", [0.3, 3.7, 1e4])
def test_moments_tails_and_symmetry(kind: Kind, scale: float) -> None:
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
    # The sign says nothing about the size.
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


@both
@pytest.mark.parametrize("scale", [0.3, 3.7, 1e4, 2.0**32, 2.0**40])
def test_fast_decisions_are_those_of_exact_arithmetic(
    kind: Kind, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 800
    fast = kind.draw(scale, n, source=SeededSource(6))
    decided: list[int] = []
    decide = inversion._decide

    def counted(law: inversion.Law, bits: int, *rest: Any) -> int:
        decided.append(bits)
        return decide(law, bits, *rest)

    monkeypatch.setattr(inversion, "_decide", counted)
    monkeypatch.setattr(inversion, "_RARE_STEPS", 1 << 63)
    exact = kind.draw(scale, n, source=SeededSource(6))
    assert len(decided) == n
    np.testing.assert_array_equal(fast, exact)


@both
@pytest.mark.parametrize("wrong", [1e-3, -1e-3])
def test_a_wrong_inverse_is_seen_by_exact_arithmetic(
    kind: Kind, wrong: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = type(kind.law).jump_position
    monkeypatch.setattr(
        type(kind.law),
        "jump_position",
        lambda self, tail, scale: position(self, tail, scale) * (1 + wrong),
    )
    fast = kind.draw(1e4, 400, source=SeededSource(6))
    monkeypatch.setattr(inversion, "_RARE_STEPS", 1 << 63)
    exact = kind.draw(1e4, 400, source=SeededSource(6))
    assert (fast != exact).any()


def _bits() -> list[int]:
    """First 63 bits that reach every part of the inverse, the far tail most of all."""
    rng = np.random.default_rng(7)
    bits = [int(2.0**e) for e in rng.uniform(math.log2(inversion._RARE_STEPS), 63, 250)]
    bits += [int(b) for b in rng.integers(1, 2**63, 100, dtype=np.int64)]
    middle = [2**63 - 1, 2**63 - 2**20, 2**62, 2**62 - 1, 2**62 + 1, inversion._RARE_STEPS]
    return [b for b in bits if inversion._RARE_STEPS <= b < 2**63] + middle


@pytest.mark.search(keep=4)
@both
@pytest.mark.parametrize("scale", [0.01, 0.3, 1.0, 50.0, 1e4, 2.0**32, 2.0**40])
def test_the_inverse_is_far_more_accurate_than_is_relied_on(kind: Kind, scale: float) -> None:
    bits = _bits()
    uniform = (np.array(bits, dtype=np.uint64).astype(np.float64) + 0.5) * 2.0**-64
    position = kind.law.jump_position(uniform, np.full(uniform.shape, scale))
    with mpmath.workprec(200):
        exact_scale = mpmath.mpf(scale)
        for b, y in zip(bits, position, strict=True):
            u = mpmath.ldexp(2 * mpmath.mpf(b) + 1, -65)
            if kind is LAPLACE:
                true = -exact_scale * mpmath.log(u * (1 + mpmath.exp(-1 / exact_scale)))
                true = max(true, mpmath.mpf(0))
            else:
                # One Newton step from y: its own error is the square of the one measured.
                z = (mpmath.mpf(float(y)) - 0.5) / exact_scale
                off = mpmath.ncdf(-z) - u
                true = y + exact_scale * off / mpmath.npdf(z)
            allowed = inversion.RELATIVE_ERROR / 8 * (y + scale + 1)
            assert abs(true - mpmath.mpf(float(y))) < allowed


class Scripted:
    """A source that gives the words it is told to, and then those of a seed."""

    private = False

    def __init__(self, words: Iterable[int]) -> None:
        self.script = list(words)
        self.asked = 0
        self._rest = SeededSource(8)

    def words(self, size: int) -> NDArray[np.uint64]:
        self.asked += size
        given, self.script = self.script[:size], self.script[size:]
        rest = self._rest.words(size - len(given))
        return np.concatenate([np.array(given, dtype=np.uint64), rest])


def brute_magnitude(kind: Kind, scale: float, words: list[int]) -> int:
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


@pytest.mark.search
@both
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
def test_adversarial_words_reach_the_far_tail(kind: Kind, scale: float, words: list[int]) -> None:
    source = Scripted(words)
    (sample,) = kind.draw(scale, 1, source=source)
    used = [*words, *(int(w) for w in SeededSource(8).words(8))]
    size = brute_magnitude(kind, scale, used)
    assert abs(sample) == size
    assert sample == (-size if words[0] & 1 else size)


@both
@pytest.mark.parametrize("scale", [0.3, 3.7, 1000.0, 2.0**32, 2.0**40])
def test_a_uniform_on_the_brink_of_a_jump_is_decided_by_more_bits(kind: Kind, scale: float) -> None:
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
            source = Scripted([word, *more])
            (sample,) = kind.draw(scale, 1, source=source)
            assert sample == size == brute_magnitude(kind, scale, [word, *more, 0])
            assert source.asked == 1 + len(more)


@both
def test_scales_may_differ_from_sample_to_sample(kind: Kind) -> None:
    scales = np.repeat([0.3, 50.0, 2.0**32], 100_000)
    rng = np.random.default_rng(9)
    order = rng.permutation(scales.size)
    samples = np.empty(scales.size, dtype=np.int64)
    samples[order] = kind.draw(scales[order], source=SeededSource(10))
    for part, scale in zip(np.split(samples, 3), [0.3, 50.0, 2.0**32], strict=True):
        assert goodness_of_fit(kind, part, scale) > 0.01
    alone = kind.draw(3.7, 10, source=SeededSource(11))
    np.testing.assert_array_equal(kind.draw([3.7] * 10, source=SeededSource(11)), alone)


@both
def test_sizes(kind: Kind) -> None:
    assert kind.draw(1.0).shape == (1,)
    assert kind.draw([1.0, 2.0, 3.0]).shape == (3,)
    assert kind.draw(1.0, 0).shape == (0,)
    # Longer than one chunk, and a little more.
    assert kind.draw(1.0, (1 << 15) + 3, source=SeededSource(0)).shape == ((1 << 15) + 3,)
    assert (kind.draw(1e-3, 1000, source=SeededSource(0)) == 0).all()


@both
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, MAX_SCALE * 1.0001])
def test_bad_scales_are_refused_by_value(kind: Kind, bad: float) -> None:
    message = rf"scale must lie in \[2\^-30, 2\^40\] grid steps, not {bad!r}"
    with pytest.raises(ParameterError, match=message.replace("+", r"\+")):
        kind.draw(bad, 3)
    with pytest.raises(ParameterError, match=message.replace("+", r"\+")):
        kind.draw([1.0, bad, 2.0])
    assert kind.draw(MAX_SCALE, 2).shape == (2,)


def test_a_seeded_source_is_reproducible_and_says_that_it_is_not_private() -> None:
    one, two = SeededSource(12), SeededSource(12)
    np.testing.assert_array_equal(one.words(5), two.words(5))
    np.testing.assert_array_equal(one.words(5), two.words(5))
    assert not np.array_equal(SeededSource(13).words(5), SeededSource(12).words(5))
    assert one.private is False
    first = rounded_gaussian(1e4, 50, source=SeededSource(12))
    np.testing.assert_array_equal(first, rounded_gaussian(1e4, 50, source=SeededSource(12)))


def test_the_systems_source_is_private_and_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SystemSource()
    assert source.private is True
    words = source.words(1000)
    assert words.dtype == np.uint64
    assert np.unique(words).size == 1000
    share = float(np.unpackbits(source.words(50_000).view(np.uint8)).mean())
    assert share == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(64 * 50_000))
    asked: list[int] = []

    def urandom(size: int) -> bytes:
        asked.append(size)
        return bytes(range(1, size + 1))

    monkeypatch.setattr("os.urandom", urandom)
    for kind in KINDS:
        kind.draw(1e4, 3)
        assert inspect.signature(kind.draw).parameters["source"].default is None
    assert asked == [24, 24]


def test_both_sources_give_all_64_bits() -> None:
    sources: list[Source] = [SystemSource(), SeededSource(14)]
    for source in sources:
        words = source.words(4000)
        seen = [((words >> np.uint64(i)) & np.uint64(1)).mean() for i in range(64)]
        assert min(seen) > 0.45
        assert max(seen) < 0.55


def test_source_of() -> None:
    assert isinstance(source_of(None), SystemSource)
    np.testing.assert_array_equal(source_of(15).words(3), SeededSource(15).words(3))
    seed: Any = np.int64(15)
    np.testing.assert_array_equal(source_of(seed).words(3), SeededSource(15).words(3))
    generator = np.random.default_rng(15)
    source = source_of(generator)
    assert source.private is False
    np.testing.assert_array_equal(source.words(3), SeededSource(15).words(3))
    assert not np.array_equal(source.words(3), SeededSource(15).words(3))


@pytest.mark.parametrize("bad", [True, 1.5, "7", -1, np.random.RandomState(0)])
def test_source_of_refuses_what_is_no_seed(bad: Any) -> None:
    with pytest.raises(ParameterError, match="random_state must be"):
        source_of(bad)


@pytest.mark.slow
@both
@pytest.mark.parametrize("scale", [0.3, 3.7, 1e4, 2.0**32])
def test_the_law_in_ten_million_samples(kind: Kind, scale: float) -> None:
    samples = kind.draw(scale, 10_000_000, source=SeededSource(16))
    assert goodness_of_fit(kind, samples, scale) > 0.01
    assert goodness_of_fit(kind, samples, 1.004 * scale) < 1e-5


@pytest.mark.slow
@both
@pytest.mark.parametrize("scale", SCALES)
def test_fast_decisions_are_exact_in_many_samples(
    kind: Kind, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = kind.draw(scale, 30_000, source=SeededSource(17))
    monkeypatch.setattr(inversion, "_RARE_STEPS", 1 << 63)
    exact = kind.draw(scale, 30_000, source=SeededSource(17))
    np.testing.assert_array_equal(fast, exact)


# The truncated law.


def truncated_fit(samples: IntArray, epsilon: float, cutoff: int) -> float:
    """The p-value of a chi-square test against the law of e^{−ε|x|} up to the cutoff."""
    mass = np.exp(-epsilon * np.abs(np.arange(-cutoff, cutoff + 1)))
    seen = np.bincount(samples + cutoff, minlength=mass.size)
    assert seen.size == mass.size
    expected = samples.size * mass / mass.sum()
    # Rare values are counted together.
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
    # What is beyond the cutoff is drawn again, not moved to it.
    plain = discrete_laplace(1 / epsilon, 1_000_000, source=SeededSource(11))
    assert truncated_fit(np.clip(plain, -cutoff, cutoff), epsilon, cutoff) < 1e-5


def test_the_truncated_law_where_most_draws_are_thrown_away() -> None:
    samples = truncated_geometric(0.01, 1, 30_000, source=SeededSource(12))
    assert truncated_fit(samples, 0.01, 1) > 0.01
    assert truncated_geometric(1.0, 3, 0).shape == (0,)
    with pytest.raises(ParameterError, match="cutoff must be at least"):
        truncated_geometric(1e-6, 10, 1)
    wrong: Any
    for wrong in ({"epsilon": 0.0}, {"cutoff": 0}, {"size": -1}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            truncated_geometric(**{"epsilon": 1.0, "cutoff": 3, "size": 1, **wrong})


# Gumbel noise, of which the order is published.


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


@pytest.mark.search(keep=0)
@pytest.mark.parametrize(
    ("scores", "scale", "count"), [([0, 1], 1.0, 1), ([3, 3, 5, 0], 2.0, 2), ([7, 1, 4], 6.0, 3)]
)
def test_the_order_has_the_law_of_choices_one_after_the_other(
    scores: list[int], scale: float, count: int
) -> None:
    assert order_fit(scores, scale, count, 20_000, scale) > 0.01
    assert order_fit(scores, 1.4 * scale, count, 20_000, scale) < 1e-5


def test_the_order_is_exact_where_floating_point_cannot_tell(
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


def test_equal_words_are_told_apart_by_later_ones() -> None:
    word = 0x9E3779B97F4A7C15
    for later, first in (([1, 2], 1), ([2, 1], 0), ([5, 5, 7, 6], 0), ([5, 5, 6, 7], 1)):
        # A smaller V is a larger key; the words go to the second, then to the first.
        order = gumbel_order(np.array([4, 4]), 1.0, 1, source=Scripted([word, word, *later]))
        assert order.tolist() == [first]
    firsts = [
        int(gumbel_order(np.array([4, 4]), 1.0, 1, source=Scripted([word, word, *later]))[0])
        for later in np.random.default_rng(16).integers(2**63, size=(400, 2))
    ]
    assert 150 < sum(firsts) < 250


@pytest.mark.parametrize("word", [0, 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_extreme_words_are_ordered_too(word: int) -> None:
    middle = 2**62
    order = gumbel_order(np.zeros(3, int), 2.0, 3, source=Scripted([middle, word, word]))
    assert (order[0] == 0) == (middle < word)
    assert sorted(order.tolist()) == [0, 1, 2]


def test_a_word_of_zeros_may_be_a_very_large_key() -> None:
    for later, first in (([1, 1], 0), ([2**63, 2**63], 1)):
        # V of 2^-128, whose key is 88.7, or of 2^-65, whose key is 45, against a key of 60.4.
        source = Scripted([0, 2**63 - 1, *later])
        assert gumbel_order(np.array([0, 60]), 1.0, 1, source=source).tolist() == [first]


def test_the_unread_bits_decide_where_they_can() -> None:
    """Two keys that agree in all that 64 bits tell: later bits put either of them first."""
    with mpmath.workprec(200):
        # V′ = 1 − (1 − V)^e has the same key with a score that is one higher.
        own = int(mpmath.ldexp(mpmath.mpf("0.9"), 64)) + 2
        same = mpmath.ldexp(1 - (1 - mpmath.ldexp(own, -64)) ** mpmath.e, 64)
        other = int(mpmath.floor(same))
        # What is unread of V moves the threshold by a twentieth of a step.
        assert same - other < 0.9
    for later, first in ((0, 1), (2**64 - 1, 0)):
        source = Scripted([own, other, later, later])
        assert gumbel_order(np.array([3, 4]), 1.0, 1, source=source).tolist() == [first]


def test_floating_point_keys_are_within_a_tenth_of_their_bound() -> None:
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
            assert abs(key - exact) <= 0.1 * inversion.RELATIVE_ERROR * size


def test_orders_of_nothing_and_of_everything() -> None:
    assert gumbel_order(np.array([], dtype=np.int64), 1.0, 0).tolist() == []
    assert gumbel_order(np.array([5]), 1.0, 0).tolist() == []
    assert sorted(gumbel_order(np.arange(300), 50.0, 300).tolist()) == list(range(300))
    # Scores far apart keep their order.
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
def test_orders_refuse_nonsense(scores: Any, scale: float, count: int, name: str) -> None:
    with pytest.raises(ParameterError, match=name):
        gumbel_order(scores, scale, count)
