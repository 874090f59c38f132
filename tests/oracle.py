"""Hockey-stick divergences by plain integration, for tests: slow, simple, no code of the library.

H_γ(P‖Q) = ∫ (p − γq)₊ is summed on a grid of the plane or the line, so every number here is an
estimate with a stated accuracy, unless "at least" is in its name: these are probabilities of
explicit events, hence lower bounds for any correct accountant.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr
from scipy.stats import binom

Array = NDArray[np.float64]
Vector = Sequence[float]
#: Weights and centres of a mixture of Gaussians of one variance.
Mixture = Sequence[tuple[float, Sequence[float]]]


def hockey_stick(p: Mixture, q: Mixture, sd: float, gamma: float, *, points: int = 1200) -> float:
    """∫ (p − γq)₊ of two mixtures of Gaussians in one or two dimensions, to about 1e-6."""
    return hockey_sticks(p, q, sd, (gamma,), points=points)[0]


def hockey_sticks(
    p: Mixture, q: Mixture, sd: float, gammas: Sequence[float], *, points: int = 1200
) -> list[float]:
    """The same for many γ."""
    centres = np.array([centre for _, centre in (*p, *q)], dtype=float)
    low, high = centres.min(axis=0) - 9 * sd, centres.max(axis=0) + 9 * sd
    # The midpoint rule: for a smooth integrand of this width it converges faster than any power; at
    # the kink the error is of the order of the squared step.
    count = points if centres.shape[1] == 2 else 100 * points
    steps = (high - low) / count
    axes = [a + s * (np.arange(count) + 0.5) for a, s in zip(low, steps, strict=True)]

    def density(mixture: Mixture) -> Array:
        total = np.zeros([count] * len(axes))
        for weight, centre in mixture:
            parts = [
                np.exp(-((x - c) ** 2) / (2 * sd**2)) for x, c in zip(axes, centre, strict=True)
            ]
            total += weight * (parts[0] if len(parts) == 1 else np.outer(*parts))
        return total / (sd * math.sqrt(2 * math.pi)) ** len(axes)

    first, second, cell = density(p), density(q), steps.prod()
    return [float(np.maximum(first - gamma * second, 0.0).sum() * cell) for gamma in gammas]


def sampled(rate: float, centre: Vector) -> Mixture:
    """A user with this vector, taking part with this probability."""
    return [(1 - rate, [0.0] * len(centre)), (rate, centre)]


def subsets(rate: float, vectors: Sequence[Vector]) -> Mixture:
    """Each of these vectors taking part with this probability, independently."""
    mixture = []
    for kept in itertools.product((False, True), repeat=len(vectors)):
        chosen = [v for v, k in zip(vectors, kept, strict=True) if k]
        weight = rate ** len(chosen) * (1 - rate) ** (len(vectors) - len(chosen))
        mixture.append((weight, [sum((v[i] for v in chosen), 0.0) for i in range(len(vectors[0]))]))
    return mixture


def binomial(rate: float, trials: int, step: float) -> Mixture:
    """Shifts by 0, step, 2·step, … with binomial weights."""
    return [(float(binom.pmf(j, trials, rate)), [j * step]) for j in range(trials + 1)]


def rounds(p: Mixture, q: Mixture, sd: float, count: int, gamma: float, cells: int = 4000) -> float:
    """∫ (p^T − γq^T)₊ of ``count`` independent rounds of one-dimensional mixtures, to about 1e-3.

    The law of the log ratio under p, cell by cell, is convolved with itself without a transform.
    """
    centres = np.array([centre[0] for _, centre in (*p, *q)])
    z = np.linspace(centres.min() - 8 * sd, centres.max() + 8 * sd, 200_001)
    z = (z[1:] + z[:-1]) / 2

    def log_density(mixture: Mixture) -> Array:
        terms = [math.log(w) - ((z - c[0]) / sd) ** 2 / 2 for w, c in mixture if w > 0]
        return np.asarray(np.logaddexp.reduce(terms)) - math.log(sd * math.sqrt(2 * math.pi))

    mass = np.exp(log_density(p)) * (z[1] - z[0])
    ratio = log_density(p) - log_density(q)
    # Each value is split between its two neighbours on the grid, which keeps the mean.
    width = (ratio.max() - ratio.min()) / cells
    place = (ratio - ratio.min()) / width
    left = np.minimum(place.astype(np.int64), cells - 1)
    law = np.bincount(left, mass * (1 - place + left), cells + 2)
    law += np.bincount(left + 1, mass * (place - left), cells + 2)
    total = law
    for _ in range(count - 1):
        total = np.convolve(total, law)
    losses = count * ratio.min() + width * np.arange(len(total))
    return float((total * np.maximum(0.0, 1 - gamma * np.exp(-np.maximum(losses, -700.0)))).sum())


def gaussian(epsilon: float, mu: float) -> float:
    """∫ (p − e^ε q)₊ of N(μ, 1) and N(0, 1), in logarithms."""
    if mu == 0:
        return 0.0
    a = float(log_ndtr(mu / 2 - epsilon / mu))
    b = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return math.exp(a) * -math.expm1(min(b - a, 0.0))


def participation(epsilon: float, rate: float, count: int, mu: float) -> float:
    """δ at ε if the rounds of a participant are visible; μ for each such round."""
    times = np.arange(count + 1)
    weights = binom.pmf(times, count, rate)
    kept = np.flatnonzero(weights > 1e-18)
    return sum(float(weights[j]) * gaussian(epsilon, math.sqrt(j) * mu) for j in kept)


def solve(delta_at: Callable[[float], float], delta: float, high: float = 200.0) -> float:
    """The ε with δ(ε) = δ, of a decreasing function, to 1e-9."""
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
    return low


def renyi(p: Mixture, q: Mixture, sd: float, order: float) -> float:
    """The Rényi divergence of one-dimensional mixtures, by the trapezoidal rule in logarithms."""
    reach = max(abs(centre[0]) for _, centre in (*p, *q))
    z = np.linspace(-(order + 1) * reach - 12 * sd, (order + 1) * reach + 12 * sd, 40_001)

    def log_density(mixture: Mixture) -> Array:
        terms = [math.log(w) - ((z - c[0]) / sd) ** 2 / 2 for w, c in mixture if w > 0]
        return np.asarray(np.logaddexp.reduce(terms)) - math.log(sd * math.sqrt(2 * math.pi))

    values = order * log_density(p) + (1 - order) * log_density(q) + math.log(z[1] - z[0])
    return float(np.logaddexp.reduce(values)) / (order - 1)


def outcomes(mixture: Mixture, sd: float, edges: Sequence[Array]) -> Array:
    """The probabilities of the cells of a grid, exactly; the outer cells reach to infinity."""
    total: Array = np.zeros([len(e) - 1 for e in edges])
    for weight, centre in mixture:
        parts = [np.diff(ndtr((e - c) / sd)) for e, c in zip(edges, centre, strict=True)]
        total += weight * (parts[0] if len(parts) == 1 else np.outer(*parts))
    return total.ravel()


def at_least(
    p: Mixture, q: Mixture, sd: float, count: int, delta: float, *, points: int = 400
) -> float:
    """An ε that ``count`` rounds of P against Q do not keep at δ: a lower bound of the true one.

    If only the grid cell of a round's output is visible, only an integer for each cell (its log
    ratio, rounded) and only the sum of these numbers over the rounds, that is post-processing; the
    event {sum ≥ c} then is a test: P(sum ≥ c) − e^ε Q(sum ≥ c) ≤ δ(ε). The sum's two distributions
    are powers of a characteristic function. Q's is first weighted by e^score, so that its relevant
    far tail
    has most of the mass: the effect of rounding stays below 1e-9 of δ, which is subtracted.
    """
    unit = 0.0005
    centres = np.array([centre for _, centre in (*p, *q)], dtype=float)
    edges = [
        np.concatenate(([-np.inf], np.linspace(low - 8 * sd, high + 8 * sd, points), [np.inf]))
        for low, high in zip(centres.min(axis=0), centres.max(axis=0), strict=True)
    ]
    ps, qs = outcomes(p, sd, edges), outcomes(q, sd, edges)
    seen = (ps > 0) & (qs > 0)
    scores = np.zeros(ps.shape, dtype=np.int64)
    scores[seen] = np.clip(np.rint(np.log(ps[seen] / qs[seen]) / unit), -80_000, 80_000)
    scores -= (lowest := int(scores.min()))

    first = np.bincount(scores, ps).astype(np.float64)
    weight = np.exp(unit * (np.arange(len(first)) + lowest))
    second = np.bincount(scores, qs) * weight
    log_weight = count * math.log(second.sum())
    second = second / second.sum()
    # The sums under P are near their mean; a window of ±65 in the loss contains all relevant mass.
    size = 1 << 18
    start = round(float(first @ np.arange(len(first))) * count) - size // 2

    def summed(law: Array) -> Array:
        transform = np.fft.rfft(law, size) ** count
        turn = np.exp(2j * np.pi * np.arange(len(transform)) * (start % size) / size)
        return np.asarray(np.fft.irfft(transform * turn, size))

    under_p, under_q = summed(first), summed(second)
    losses = unit * (np.arange(size) + start + count * lowest) - log_weight

    def delta_at(epsilon: float) -> float:
        event = losses >= epsilon
        tail = under_p[event] - np.exp(epsilon - losses[event]) * under_q[event]
        return float(tail.sum()) - 1e-9

    return solve(delta_at, delta)
