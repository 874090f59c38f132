"""Binomial and Poisson distributions, with exact samplers from random bits.

A count is sampled by inversion: it is the k with F(k − 1) ≤ U < F(k), for a uniform U of infinitely
many bits. The first 64 bits and a table of F in floating point decide all draws except the few
within the table's error of a jump. F in 256-bit integers decides those, with more bits of U if
needed. The distribution is exact: no tail is truncated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.noise.precision import arithmetic
from dpgrain.noise.sources import RandomSource, resolve_source
from dpgrain.numerics.special_functions import gammaln

#: Largest count at which floating point still distinguishes neighbouring counts.
LARGEST_COUNT = 1 << 52
# Counts from here use the series for the remainder of Stirling's formula.
_SERIES_FROM_COUNT = 16
# Probability outside the table on each side, in nats: less than e^-45. Draws from there are decided
# exactly.
_TAIL_NATS = 45.0
# Entries summed as one block, and max entries of a table: 2^22 take 32 MB, and eight tables are
# cached.
_BLOCK_ENTRIES, _MOST_ENTRIES = 1 << 11, 1 << 22
# Max error of the table per addition, and again per unit of the standard deviation, because the
# error of ln P grows with it.
_ABSOLUTE_ERROR = 2.0**-50
# Tables above this many entries have exact sums at the ends of blocks, with this many bits.
_ANCHORED_ENTRIES, _ANCHOR_BITS = 1 << 14, 320
# Bits of exact sums beyond the known bits of U.
_GUARD_BITS = 192


@dataclass(frozen=True)
class BinomialDistribution:
    """The distribution Bin(trials, probability), with log-concave probabilities."""

    trials: int
    probability: float

    @property
    def mean(self) -> float:
        """Expected count."""
        return self.trials * self.probability

    @property
    def variance(self) -> float:
        """Variance of the count."""
        return self.mean * (1 - self.probability)

    @property
    def last(self) -> float:
        """Largest possible count."""
        return self.trials

    def log_mass(self, x: FloatArray) -> FloatArray:
        """Return (n,) ln P(x), accurate to a few units in the last place of 1 + |x − mean|."""
        n, p = self.trials, self.probability
        rest = n - x
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = _remainder(np.array([float(n)])) - _remainder(x) - _remainder(rest)
            inside -= _deviance(x, n * p) + _deviance(rest, n * (1 - p))
            inside += 0.5 * np.log(n / (2 * math.pi * x * rest))
        ends = np.where(x == 0, n * math.log1p(-p), n * math.log(p))
        return np.where((x == 0) | (rest == 0), ends, inside)

    def exact_mass(self, k: int, mp: Any) -> Any:
        """Return P(k) in the mpmath context ``mp``."""
        p = mp.mpf(self.probability)
        ways = mp.binomial(self.trials, k)
        return ways * p**k * (1 - p) ** (self.trials - k)

    def odds(self, k: int) -> tuple[int, int]:
        """Return the numerator and the denominator of P(k + 1)/P(k)."""
        heads, of = self.probability.as_integer_ratio()
        return (self.trials - k) * heads, (k + 1) * (of - heads)


@dataclass(frozen=True)
class PoissonDistribution:
    """The Poisson distribution with a given mean, with log-concave probabilities."""

    mean: float

    @property
    def variance(self) -> float:
        """Variance of the count."""
        return self.mean

    @property
    def last(self) -> float:
        """Largest possible count, infinity."""
        return math.inf

    def log_mass(self, x: FloatArray) -> FloatArray:
        """Return (n,) ln P(x), accurate to a few units in the last place of 1 + |x − mean|."""
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = -_remainder(x) - _deviance(x, self.mean) - 0.5 * np.log(2 * math.pi * x)
        return np.where(x == 0, -self.mean, inside)

    def exact_mass(self, k: int, mp: Any) -> Any:
        """Return P(k) in the mpmath context ``mp``."""
        mean = mp.mpf(self.mean)
        return mp.exp(k * mp.log(mean) - mean - mp.loggamma(k + 1))

    def odds(self, k: int) -> tuple[int, int]:
        """Return the numerator and the denominator of P(k + 1)/P(k)."""
        mean, of = self.mean.as_integer_ratio()
        return mean, of * (k + 1)


CountDistribution: TypeAlias = BinomialDistribution | PoissonDistribution


def binomial(
    trials: int, probability: float, size: int, *, source: RandomSource | None = None
) -> IntArray:
    """Draw from Bin(trials, probability), exactly.

    Args:
        trials: the number of trials, at least 1.
        probability: the success probability of one trial, strictly between 0 and 1.
        size: the number of samples.
        source: random bits; by default the operating system's.

    Raises:
        ParameterError: if a parameter is out of range, or the distribution spans more than 4
            million counts.

    Formal guarantee: the distribution is exact (total-variation distance 0), provided that floating
    point stays within its error bound. The tests check this bound against 256-bit integers with a
    wide margin.

    >>> bool((abs(binomial(10**6, 0.5, 100) - 500_000) < 20_000).all())
    True
    """
    _validate.integer(minimum=1, trials=trials)
    _validate.fraction(probability=probability)
    return draw_counts(BinomialDistribution(trials, float(probability)), size, source)


def poisson(mean: float, size: int, *, source: RandomSource | None = None) -> IntArray:
    """Draw from Poisson(mean), exactly.

    Args:
        mean: the mean, above 0.
        size: the number of samples.
        source: random bits; by default the operating system's.

    Raises:
        ParameterError: if a parameter is out of range, or the distribution spans more than 4
            million counts.

    Formal guarantee: the distribution is exact, under the condition of :func:`binomial`.

    >>> bool((abs(poisson(10.0**6, 100) - 10**6) < 40_000).all())
    True
    """
    return draw_counts(PoissonDistribution(_validate.positive(mean=mean)), size, source)


def rounded(
    values: FloatArray, largest: int, source: RandomSource
) -> NDArray[np.int32] | NDArray[np.int64]:
    """Round each number up or down at random, without bias.

    Args:
        values: numbers from 0 to ``largest``, of any shape.
        largest: a public bound on the values, below 2^52.
        source: random bits.

    Raises:
        ParameterError: if values are not an array of numbers, or ``largest`` is not an integer.

    Every number y has its own uniform U of 72 bits and becomes ⌊y⌋ + [U < y − ⌊y⌋]. For fixed U the
    result increases with y, and changes by at most ⌈s⌉ when y changes by s.

    >>> from dpgrain.noise import SeededSource
    >>> rounded(np.array([2.0, 2.5, 2.5, 2.5, 2.5]), 3, SeededSource(1)).tolist()
    [2, 2, 3, 3, 2]
    """
    # Values are split into steps of 1/256, so that 8 bits of U decide all but one number in 256.
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiu":
        raise ParameterError("values must be an array of numbers.", name="values")
    largest, source = _validate.integer(minimum=0, largest=largest), resolve_source(source)
    fine = values * 256.0
    with np.errstate(invalid="ignore"):
        steps: Any = fine.astype(np.int32 if largest < 1 << 22 else np.int64)
    cut = steps.astype(np.uint8)
    bits = source.words(-(-values.size // 8)).view(np.uint8)[: values.size].reshape(values.shape)
    up = bits < cut
    near = np.flatnonzero(bits == cut)
    if near.size:
        rest = fine.ravel()[near] - steps.ravel()[near]
        up.ravel()[near] = source.words(near.size) < np.ldexp(rest, 64).astype(np.uint64)
    steps >>= 8
    steps += up
    result: NDArray[np.int32] | NDArray[np.int64] = steps
    return result


def draw_counts(law: CountDistribution, size: int, source: RandomSource | None = None) -> IntArray:
    """Draw ``size`` counts from a binomial or Poisson distribution, exactly."""
    source = resolve_source(source)
    first, table = _table(law)
    words = source.words(_validate.integer(minimum=0, size=size))
    uniform = words * 2.0**-64
    places = np.searchsorted(table, uniform, side="right")
    # F is treated as 0 below the table and as 1 beyond it; the slack covers the difference.
    below = np.where(places > 0, table[np.maximum(places - 1, 0)], 0.0)
    above = np.where(places < len(table), table[np.minimum(places, len(table) - 1)], 1.0)
    slack = _slack(law)
    near = (uniform - below <= slack) | (above - uniform <= slack)
    counts = first + places.astype(np.int64)
    for i in np.flatnonzero(near):
        counts[i] = _decide(law, int(words[i]), int(counts[i]), source)
    return counts


@lru_cache(maxsize=8)
def _table(law: CountDistribution) -> tuple[int, FloatArray]:
    """Return the first count of a distribution's table, and F from that count onwards."""
    # By Bernstein's inequality the mass further from the mean is less than e^-45.
    if not law.mean <= 2 * LARGEST_COUNT:
        raise ParameterError(f"counts must be at most 2^52, not about {law.mean:.3g}.")
    width = math.sqrt(2 * law.variance * _TAIL_NATS) + _TAIL_NATS
    first = max(math.floor(law.mean - width), 0)
    last = int(min(math.ceil(law.mean + width), law.last))
    if last > LARGEST_COUNT:
        raise ParameterError(f"counts must be at most 2^52, not about {law.mean:.3g}.")
    if last - first >= _MOST_ENTRIES:
        raise ParameterError(
            "the noise must have a standard deviation below 200,000 counts, not "
            f"{math.sqrt(law.variance):,.0f}; use a coarser grid."
        )
    mass = np.exp(law.log_mass(np.arange(first, last + 1, dtype=np.float64)))
    blocks = np.zeros((-(-mass.size // _BLOCK_ENTRIES), _BLOCK_ENTRIES))
    blocks.ravel()[: mass.size] = mass
    # Each entry is the sum of two short sums, because one long sum would round more often.
    within = np.cumsum(blocks, axis=1)
    before = np.concatenate([[0.0], np.cumsum(within[:, -1])[:-1]])
    table = (within + before[:, None]).ravel()[: mass.size]
    table.flags.writeable = False
    return first, table


def _slack(law: CountDistribution) -> float:
    """Bound the error of the table."""
    return _ABSOLUTE_ERROR * (2 * _BLOCK_ENTRIES + math.sqrt(law.variance))


def _decide(law: CountDistribution, bits: int, near: int, source: RandomSource) -> int:
    """Return the k selected by U, given its first 64 bits, by exact comparison with F."""
    known_bits = 64
    while True:
        scale = _GUARD_BITS + known_bits
        low, high = bits << _GUARD_BITS, (bits + 1) << _GUARD_BITS
        k = _smallest_above(law, low, scale, near)
        # U is in [low, high), so k is settled if no jump of F is there.
        if high <= _below(law, k, scale):
            return k
        near, known_bits = k, known_bits + 64
        bits = (bits << 64) | int(source.words(1)[0])


def _smallest_above(law: CountDistribution, level: int, scale: int, near: int) -> int:
    """Return the smallest k ≥ 0 with 2^scale·F(k) > level, searching from ``near``."""

    def holds(k: int) -> bool:
        return k >= law.last or (k >= 0 and _below(law, k, scale) > level)

    step = 1
    if holds(near):
        high = near
        while holds(high - step):
            high, step = high - step, 2 * step
        low = high - step
    else:
        low = near
        while not holds(low + step):
            low, step = low + step, 2 * step
        high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _below(law: CountDistribution, k: int, scale: int) -> int:
    """Return 2^scale·P(X ≤ k), accurate to a few units."""
    if k < 0:
        return 0
    if k >= law.last:
        return 1 << scale
    first, table = _table(law)
    if len(table) > _ANCHORED_ENTRIES and scale <= _ANCHOR_BITS and first <= k < first + len(table):
        return _from_anchor(law, k) >> (_ANCHOR_BITS - scale)
    return _directly(law, k, scale)


def _from_anchor(law: CountDistribution, k: int) -> int:
    """Return 2^_ANCHOR_BITS·P(X ≤ k) from the exact sum at the start of k's block."""
    first, sums, terms = _anchors(law)
    block = (k - first) // _BLOCK_ENTRIES
    total, term = sums[block], terms[block]
    for at in range(first + block * _BLOCK_ENTRIES, k):
        up, of = law.odds(at)
        term = term * up // of
        total += term
    return total


@lru_cache(maxsize=8)
def _anchors(law: CountDistribution) -> tuple[int, list[int], list[int]]:
    """Return a table's first count, and P(X ≤ k) and P(k) at the start of each block."""
    # The probabilities are integer multiples of 2^-_ANCHOR_BITS.
    first, table = _table(law)
    total = _directly(law, first, _ANCHOR_BITS)
    mp = arithmetic(_ANCHOR_BITS + 64)
    term = int(mp.floor(mp.ldexp(law.exact_mass(first, mp), _ANCHOR_BITS)))
    sums, terms = [total], [term]
    for at in range(first, first + len(table) - 1):
        up, of = law.odds(at)
        term = term * up // of
        total += term
        if (at + 1 - first) % _BLOCK_ENTRIES == 0:
            sums.append(total)
            terms.append(term)
    return first, sums, terms


def _directly(law: CountDistribution, k: int, scale: int) -> int:
    """Return 2^scale·P(X ≤ k), accurate to a few units, by summing the smaller tail."""
    down = k <= law.mean
    at = k if down else k + 1
    mp = arithmetic(scale + 64)
    term = total = int(mp.floor(mp.ldexp(law.exact_mass(at, mp), scale)))
    while term and (at > 0 if down else at < law.last):
        up, of = law.odds(at - 1 if down else at)
        term = term * of // up if down else term * up // of
        at += -1 if down else 1
        total += term
    return total if down else (1 << scale) - total


def _deviance(x: FloatArray, mean: float) -> FloatArray:
    """Return (n,) x·ln(x/mean) + mean − x (Loader 2000)."""
    with np.errstate(over="ignore", invalid="ignore"):
        u = (x - mean) / mean
        result: FloatArray = mean * ((1 + u) * np.log1p(u) - u)
    # The quotient overflows for a mean near 0, but its logarithm does not.
    far = np.isinf(u)
    result[far] = x[far] * (np.log(x[far]) - math.log(mean)) + mean - x[far]
    return result


def _remainder(x: FloatArray) -> FloatArray:
    """Return (n,) ln x! − ln(√(2πx)·(x/e)^x), the remainder of Stirling's formula."""
    inverse = 1 / np.maximum(x, _SERIES_FROM_COUNT)
    square = inverse * inverse
    terms = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)
    series = inverse * np.polynomial.polynomial.polyval(square, terms)
    direct = gammaln(x + 1) - (x + 0.5) * np.log(x) + x - 0.5 * math.log(2 * math.pi)
    return np.where(x < _SERIES_FROM_COUNT, direct, series)
