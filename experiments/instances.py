"""Test problems at user level: means, the lower bounds' problems, convex problems of known risk.

Users have m records each. All users draw from one distribution P₀, or user u from the mixture (1 −
Δ)·P₀ + Δ·Q_u with Q_u a single point of probability 0 under P₀: the total variation between a
user's distribution and P₀ is exactly Δ.

Sources: Levy et al., *Learning with User-Level Privacy*: (18) for truncated Gaussians, the basis of
the lower bounds of Corollary 1 and Theorem 6; Theorem 8 for the packing; Theorem 9 for two points.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.linalg import eigh_tridiagonal
from scipy.special import expit
from scipy.stats import norm

from dpgrain import ParameterError
from dpgrain.optimize import Absolute, Ball, Logistic, LossFunction, Regularised, Squared

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = tuple[NDArray[np.float32], FloatArray, IntArray]

# Largest number of record entries in memory.
_ENTRIES = 1 << 22
# Records are drawn one by one unless clipping acts on any of them with at most this probability.
_NEGLIGIBLE = 1e-9
# Nodes of the integrals over the two coordinates of a record that matter.
_NODES = 80


def sphere(generator: np.random.Generator, count: int, d: int) -> FloatArray:
    """(count, d) points of the unit sphere."""
    points = generator.standard_normal((count, d))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points


def direction(d: int) -> FloatArray:
    """(d,) the unit vector of the truth: fixed, and not an axis."""
    found: FloatArray = sphere(np.random.default_rng(d), 1, d)[0]
    return found


# Means -----------------------------------------------------------------------------------------


def gaussian_users(
    n: int,
    m: int,
    d: int,
    generator: np.random.Generator,
    mean_norm: float | None = None,
    bound: float | None = None,
    *,
    heterogeneity: float = 0.0,
    common: bool = False,
) -> FloatArray:
    """(n, d) means of each user's m records of N(μ, I), clipped to the ball of a radius.

    Args:
        mean_norm: ‖μ‖, by default √d; μ is along :func:`direction`.
        bound: the radius, by default 10√d.
        heterogeneity: Δ. Q_u is the point ‖μ‖·w_u, with w_u uniform on the sphere.
        common: whether w_u is the same for all users.

    Where :func:`clipping_chance` is below 1e-9, means are drawn as such, without records.
    """
    mean_norm = math.sqrt(d) if mean_norm is None else mean_norm
    bound = 10 * math.sqrt(d) if bound is None else bound
    mean = mean_norm * direction(d)
    others = mean_norm * _points(generator, n, d, common) if heterogeneity else np.zeros((n, d))
    if clipping_chance(n, m, d, mean_norm, bound) < _NEGLIGIBLE:
        return _means(mean, m, others, heterogeneity, generator)
    return _means_of_records(mean, m, bound, others, heterogeneity, generator)


def clipping_chance(n: int, m: int, d: int, mean_norm: float, bound: float) -> float:
    """An upper bound of the probability that clipping acts on any of the n·m records.

    ‖Z‖ ≤ ‖μ‖ + ‖Z − μ‖, and ‖Z − μ‖ is 1-Lipschitz in standard normals with mean at most √d, so that it
    passes √d + t with probability at most e^{−t²/2}.

    >>> clipping_chance(10**4, 100, 10, 10**0.5, 10 * 10**0.5) < 1e-100
    True
    """
    far = bound - mean_norm - math.sqrt(d)
    return 1.0 if far <= 0 else min(n * m * math.exp(-far * far / 2), 1.0)


def _points(generator: np.random.Generator, n: int, d: int, common: bool) -> FloatArray:
    """(n, d) a point of the sphere for each user, or one for all."""
    return np.repeat(sphere(generator, 1, d), n, axis=0) if common else sphere(generator, n, d)


def _means(
    mean: FloatArray,
    m: int,
    others: FloatArray,
    heterogeneity: float,
    generator: np.random.Generator,
) -> FloatArray:
    """Means of m records; Bin(m, Δ) of them are the user's point."""
    elsewhere = generator.binomial(m, heterogeneity, len(others))[:, None] / m
    out = generator.standard_normal(others.shape)
    out *= np.sqrt((1 - elsewhere) / m)
    out += (1 - elsewhere) * mean
    out += elsewhere * others
    return out


def _means_of_records(
    mean: FloatArray,
    m: int,
    bound: float,
    others: FloatArray,
    heterogeneity: float,
    generator: np.random.Generator,
) -> FloatArray:
    """The same from records, clipped one by one, a bounded number at a time."""
    d, out = len(mean), np.zeros(others.shape)
    records = max(1, min(m, _ENTRIES // d))
    users = max(1, _ENTRIES // (records * d))
    for first in range(0, len(out), users):
        chosen = slice(first, first + users)
        for begun in range(0, m, records):
            shape = (len(out[chosen]), min(records, m - begun))
            z = mean + generator.standard_normal((*shape, d))
            u, which = np.nonzero(generator.random(shape) < heterogeneity)
            z[u, which] = others[chosen][u]
            z *= np.minimum(1, bound / np.linalg.norm(z, axis=2, keepdims=True))
            out[chosen] += z.sum(axis=1) / m
    return out


def truncated(records: FloatArray, bound: float) -> FloatArray:
    """Each coordinate z becomes z / max(1, |z|/bound): values outside are projected to ±bound.

    Source: Levy et al., (18). "Truncated" is not conditioned: the mass outside sits at the faces.

    >>> truncated(np.array([-3.0, 0.5, 2.0]), 1.0).tolist()
    [-1.0, 0.5, 1.0]
    """
    return np.clip(records, -bound, bound)


def truncated_gaussian(
    mean: FloatArray, sd: float, bound: float, count: int, generator: np.random.Generator
) -> FloatArray:
    """(count, d) records of N(mean, sd²·I), each coordinate truncated to [−bound, bound]."""
    return truncated(mean + sd * generator.standard_normal((count, len(mean))), bound)


def truncated_mean(mean: FloatArray, sd: float, bound: float) -> FloatArray:
    """(d,) the mean of a truncated Gaussian, exactly.

    Lemma 3 claims a distance of O(sd·e^{−10d}) to ``mean`` if ‖mean‖₂ + 10√d·sd ≤ √d·bound. This is
    false: a mean along one axis satisfies it and is clamped to ``bound``; and if every |mean_j| +
    10·sd ≤ bound the distance is about sd·e^{−50}, for any d. Nothing here uses the lemma.
    """
    low, high = (-bound - mean) / sd, (bound - mean) / sd
    # The parts below −bound, above bound, and in between.
    ends = bound * (norm.sf(high) - norm.cdf(low))
    inside = mean * (norm.cdf(high) - norm.cdf(low)) + sd * (norm.pdf(low) - norm.pdf(high))
    return np.asarray(ends + inside)


# Lower bounds ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Packing:
    """The finite hypothesis class of Theorem 8.

    With d = ⌊log₂K⌋, hypotheses are the sign vectors θ of {±1}^d, records are ±e_j, and the loss is
    B·1{θ_j = z_j} of the record's coordinate j. P_v shows each coordinate with equal probability,
    as v_j with probability (1 + gap)/2, and −v is its best hypothesis. The paper's sample space,
    {±1}^d or ⌈log₂K⌉ points, cannot contain these records: there are 2d.

    Args:
        hypotheses: K, at least 2.
        gap: Δ of (24), in [0, 1].

    Raises:
        ParameterError: if K or the gap is out of range.

    >>> Packing(10, 0.1).coordinates
    3
    """

    hypotheses: int
    gap: float
    bound: float = 1.0

    def __post_init__(self) -> None:
        if self.hypotheses < 2 or not 0 <= self.gap <= 1:
            raise ParameterError(
                "hypotheses must be at least 2 and gap in [0, 1], not "
                f"{self.hypotheses!r}, {self.gap!r}."
            )

    @property
    def coordinates(self) -> int:
        """d = ⌊log₂K⌋."""
        return self.hypotheses.bit_length() - 1

    def signs(self) -> NDArray[np.int8]:
        """(2^d, d) all hypotheses."""
        bits = np.arange(2**self.coordinates)[:, None] >> np.arange(self.coordinates) & 1
        return (2 * bits - 1).astype(np.int8)

    def members(self, generator: np.random.Generator) -> NDArray[np.int8]:
        """(at least e^{d/8}, d) sign vectors that pairwise differ in at least d/4 coordinates."""
        d = self.coordinates
        found = np.empty((0, d), dtype=np.int8)
        while len(found) < math.exp(d / 8):
            one = generator.choice(np.array([-1, 1], dtype=np.int8), d)
            if np.all((found != one).sum(axis=1) >= d / 4):
                found = np.vstack([found, one])
        return found

    def draw(
        self, n: int, m: int, v: NDArray[np.int8], generator: np.random.Generator
    ) -> FloatArray:
        """(n, d) the means of each user's m records ±e_j of P_v."""
        d = self.coordinates
        chances = np.concatenate([1 + self.gap * v, 1 - self.gap * v]) / (2 * d)
        counts = generator.multinomial(m, chances, size=n)
        return (counts[:, :d] - counts[:, d:]) / m

    def losses(self, means: FloatArray, theta: NDArray[np.int8]) -> FloatArray:
        """(n, k) each user's mean loss of hypotheses (k, d)."""
        return self.bound * (1 + means @ theta.T.astype(np.float64)) / 2

    def excess(self, theta: NDArray[np.int8], v: NDArray[np.int8]) -> float:
        """How much more a hypothesis loses under P_v than the best: B·Δ/d for each θ_j = v_j."""
        return float(self.bound * self.gap * np.mean(theta == v))

    def separation(self, v: NDArray[np.int8], w: NDArray[np.int8]) -> float:
        """The lower bound (25): half the least sum of both excesses, B·Δ·hamming(v, w)/(2d)."""
        return float(self.bound * self.gap * np.mean(v != w) / 2)


@dataclass(frozen=True)
class TwoPoint:
    """The testing problem of Theorem 9: all records are +B, or all are −B."""

    bound: float = 1.0

    def draw(self, n: int, m: int, negative: bool) -> FloatArray:
        """(n, m) the records."""
        return np.full((n, m), -self.bound if negative else self.bound)

    @staticmethod
    def floor(n: int, epsilon: float, delta: float) -> float:
        """A lower bound of the larger mean squared error of any test with values in [0, 1].

        The paper prints Ω(e^{−cnε}). In full: let the output be above ½ with probability p if it
        should be 0, and q if it should be 1. All n users change, under ``replace``, so that q ≤
        e^{nε}p + δ(e^{nε} − 1)/(e^ε − 1); the errors are at least p/4 and (1 − q)/4.

        >>> TwoPoint.floor(0, 1.0, 0.0), round(TwoPoint.floor(10, 0.1, 1e-6), 4)
        (0.125, 0.0672)
        """
        if n * epsilon > 700:
            return 0.0
        group = delta * math.expm1(n * epsilon) / math.expm1(epsilon)
        return max(1 - group, 0.0) / (1 + math.exp(n * epsilon)) / 4


# Convex problems -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem(ABC):
    """A stochastic convex problem with exactly known population risk.

    Args:
        dimension: p, at least 3.
        distance: R: the search goes over the ball of this radius around 0, which is the start.
        heterogeneity: Δ. Excess is always measured under P₀, even if users differ.
        common: whether Q_u is the same for all users.

    Raises:
        ParameterError: if one is out of range.
    """

    dimension: int = 10
    distance: float = 1.0
    heterogeneity: float = 0.0
    common: bool = False

    def __post_init__(self) -> None:
        if self.dimension < 3 or not self.distance > 0 or not 0 <= self.heterogeneity <= 1:
            raise ParameterError(
                "dimension must be at least 3, distance above 0, heterogeneity in [0, 1], not "
                f"{self.dimension!r}, {self.distance!r}, {self.heterogeneity!r}."
            )

    @property
    @abstractmethod
    def loss(self) -> LossFunction:
        """The loss of a record."""

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """G: no record's gradient is longer, anywhere in the ball, but for the rounding of float32."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """β of each record's loss; infinite if it has kinks."""

    @property
    @abstractmethod
    def minimiser(self) -> FloatArray:
        """(p,) where the population risk is least."""

    @abstractmethod
    def excess(self, theta: FloatArray) -> float:
        """The population risk at a point of the ball, less the least."""

    @abstractmethod
    def _records(self, count: int, generator: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Records of P₀."""

    @abstractmethod
    def _others(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The records of the Q_u, one for each point of the sphere."""

    @property
    def strength(self) -> float:
        """μ of each record's loss."""
        return 0.0

    @property
    def start(self) -> FloatArray:
        """(p,) 0."""
        return np.zeros(self.dimension)

    @property
    def domain(self) -> Ball:
        """The ball of radius R."""
        return Ball(self.distance)

    def draw(self, n: int, m: int, generator: np.random.Generator) -> Records:
        """Records and ids of all users.

        Returns:
            X (n·m, p), y (n·m,), users (n·m,) from 0, in order.
        """
        X = np.empty((n * m, self.dimension), dtype=np.float32)
        y, users = np.empty(n * m), np.repeat(np.arange(n), m)
        own: tuple[FloatArray, FloatArray] | None = None
        if self.heterogeneity:
            own = self._others(_points(generator, n, self.dimension, self.common))
        at_a_time = max(1, _ENTRIES // self.dimension)
        for first in range(0, n * m, at_a_time):
            rows = slice(first, first + at_a_time)
            X[rows], y[rows] = self._records(len(y[rows]), generator)
            if own is not None:
                chosen = first + np.flatnonzero(generator.random(len(y[rows])) < self.heterogeneity)
                X[chosen], y[chosen] = own[0][users[chosen]], own[1][users[chosen]]
        return X, y, users

    @property
    def _truth(self) -> FloatArray:
        """(p,) halfway to the end of the ball."""
        return self.distance / 2 * direction(self.dimension)


@dataclass(frozen=True)
class LogisticProblem(Problem):
    """Convex and smooth: logistic regression on records of the unit sphere; y follows the model.

    Q_u is one record with the less likely label.
    """

    loss = Logistic()
    lipschitz = 1.0
    smoothness = 0.25

    @property
    def minimiser(self) -> FloatArray:
        """Halfway to the end of the ball."""
        return self._truth

    def excess(self, theta: FloatArray) -> float:
        """An integral over the two coordinates of a record that matter, to rounding.

        Given z* = ⟨x, θ*⟩ the excess of z is the gap of ln(1 + e^z) above its tangent at z*. The
        two coordinates are at radius r, r² ~ Beta(1, (p − 2)/2), with a uniform angle.
        """
        best = float(np.linalg.norm(self._truth))
        along = float(theta @ self._truth) / best
        across = float(np.linalg.norm(theta - along * self._truth / best))
        squares, weights = self._radii
        angles = np.linspace(0, 2 * np.pi, 2 * _NODES, endpoint=False)
        radii = np.sqrt(squares)[:, None]
        z0 = radii * best * np.cos(angles)
        z = radii * (along * np.cos(angles) + across * np.sin(angles))
        over = np.logaddexp(0, z) - np.logaddexp(0, z0) - expit(z0) * (z - z0)
        return float(weights @ over.mean(axis=1))

    @cached_property
    def _radii(self) -> tuple[FloatArray, FloatArray]:
        return beta_nodes(1.0, (self.dimension - 2) / 2)

    def _records(self, count: int, generator: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        x = sphere(generator, count, self.dimension)
        return x, (generator.random(count) < expit(x @ self._truth)).astype(np.float64)

    def _others(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        return points, (points @ self._truth < 0).astype(np.float64)


@dataclass(frozen=True)
class AbsoluteProblem(Problem):
    """Convex with kinks: median regression on records of the unit sphere, with Laplace noise.

    Args:
        noise: b, the mean absolute deviation of y; the smaller, the sharper the risk at its least.

    Q_u is one record with y = −R.
    """

    noise: float = 0.1
    loss = Absolute()
    lipschitz = 1.0
    smoothness = math.inf

    @property
    def minimiser(self) -> FloatArray:
        """Halfway to the end of the ball."""
        return self._truth

    def excess(self, theta: FloatArray) -> float:
        """An integral over one coordinate s of the sphere, to about 1e-10 of its value.

        E|ξ − t| − E|ξ| = |t| + b·(e^{−|t|/b} − 1) at t = s·‖θ − θ*‖; s has density in proportion to
        (1 − s²)^{(p−3)/2}.
        """
        far, p = float(np.linalg.norm(theta - self._truth)), self.dimension
        # In units of its standard deviation, about; beyond 12 of them nothing is left.
        unit = 1 / math.sqrt(p)
        end = min(1 / unit, 12.0)

        def density(w: float) -> float:
            return float((1 - min(w * unit, 1.0) ** 2) ** ((p - 3) / 2))

        def over(w: float) -> float:
            t = w * unit * far / self.noise
            # Without cancellation where t is small.
            rise = t + math.expm1(-t) if t > 1e-4 else t * t / 2 - t**3 / 6
            return self.noise * rise * density(w)

        options: dict[str, Any] = {"epsabs": 0, "epsrel": 1e-10, "limit": 200}
        return float(quad(over, 0, end, **options)[0] / quad(density, 0, end, **options)[0])

    def _records(self, count: int, generator: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        x = sphere(generator, count, self.dimension)
        return x, x @ self._truth + generator.laplace(scale=self.noise, size=count)

    def _others(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        return points, np.full(len(points), -self.distance)


@dataclass(frozen=True)
class RidgeProblem(Problem):
    """Strongly convex: squared loss and a ridge, on records of the unit sphere, with uniform noise.

    Args:
        ridge: λ, above 0.

    Q_u is one record with the smallest y, or the largest, the less likely of them.
    """

    ridge: float = 0.1
    noise: float = 0.5

    @property
    def loss(self) -> Regularised:
        """½(⟨x, θ⟩ − y)² + λ/2·‖θ‖²."""
        return Regularised(Squared(), self.ridge)

    @property
    def smoothness(self) -> float:
        """1 + λ."""
        return 1 + self.ridge

    @property
    def lipschitz(self) -> float:
        """The longest residual, plus λR."""
        return self.distance * (1 + self.ridge) + self._largest

    @property
    def strength(self) -> float:
        """λ."""
        return self.ridge

    @property
    def minimiser(self) -> FloatArray:
        """The truth, shortened by the ridge: records have covariance I/p."""
        return self._truth / (1 + self.ridge * self.dimension)

    def excess(self, theta: FloatArray) -> float:
        """½(1/p + λ)‖θ − minimiser‖²."""
        far = theta - self.minimiser
        return float((1 / self.dimension + self.ridge) / 2 * (far @ far))

    @property
    def _largest(self) -> float:
        return self.distance / 2 + self.noise

    def _records(self, count: int, generator: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        x = sphere(generator, count, self.dimension)
        return x, x @ self._truth + generator.uniform(-self.noise, self.noise, count)

    def _others(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        return points, np.where(points @ self._truth < 0, self._largest, -self._largest)


@dataclass(frozen=True)
class SquaredDistance:
    """½‖θ − x‖², a loss with the mean as its minimum.

    >>> SquaredDistance().gradient(np.ones(1), np.array([[3.0]]), np.zeros(1)).tolist()
    [[-2.0]]
    """

    def value(self, theta: Any, X: Any, y: Any) -> FloatArray:
        """The loss of each record, (m,)."""
        far = self.gradient(theta, X, y)
        return np.asarray(np.einsum("ij,ij->i", far, far) / 2)

    def gradient(self, theta: Any, X: Any, y: Any) -> FloatArray:  # noqa: ARG002
        """θ − x, (m, p)."""
        return np.asarray(theta - X, dtype=np.float64)


@dataclass(frozen=True)
class MeanProblem(Problem):
    """Strongly convex: the squared distance to records on a sphere around the truth.

    Q_u is one point of it.
    """

    spread: float = 1.0
    loss = SquaredDistance()
    smoothness = 1.0
    strength = 1.0

    @property
    def lipschitz(self) -> float:
        """The largest distance from a point of the ball to a record."""
        return 1.5 * self.distance + self.spread

    @property
    def minimiser(self) -> FloatArray:
        """The truth."""
        return self._truth

    def excess(self, theta: FloatArray) -> float:
        """½‖θ − minimiser‖²."""
        far = theta - self._truth
        return float(far @ far) / 2

    def _records(self, count: int, generator: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        z = self._truth + self.spread * sphere(generator, count, self.dimension)
        return z, np.zeros(count)

    def _others(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self._truth + self.spread * points, np.zeros(len(points))


@dataclass(frozen=True)
class InnerProduct:
    """−⟨θ, x⟩.

    >>> InnerProduct().value(np.ones(2), np.array([[3.0, 1.0]]), np.zeros(1)).tolist()
    [-4.0]
    """

    def value(self, theta: Any, X: Any, y: Any) -> FloatArray:  # noqa: ARG002
        """The loss of each record, (m,)."""
        return np.asarray(-(X @ theta), dtype=np.float64)

    def gradient(self, theta: Any, X: Any, y: Any) -> FloatArray:  # noqa: ARG002
        """−x, (m, p)."""
        return -np.asarray(X, dtype=np.float64)


@dataclass(frozen=True)
class LinearProblem(Problem):
    """The hard problem of Theorem 6: a linear loss on truncated Gaussians, over the ball.

    Args:
        mean_norm: ‖μ‖ of the Gaussian, by default G/2 as in Corollary 1; the smaller, the harder its
            direction. Its coordinates are equal but for their signs.

    The standard deviation of a coordinate is G/(20√p), as in the paper. Q_u is one record of norm
    G.
    """

    bound: float = 1.0
    mean_norm: float = 0.5
    loss = InnerProduct()
    smoothness = 0.0

    @property
    def lipschitz(self) -> float:
        """G."""
        return self.bound

    @property
    def minimiser(self) -> FloatArray:
        """The end of the ball in the direction of the records' mean."""
        mean = self._mean
        return np.asarray(self.distance * mean / np.linalg.norm(mean))

    def excess(self, theta: FloatArray) -> float:
        """⟨minimiser − θ, mean⟩."""
        return float((self.minimiser - theta) @ self._mean)

    @property
    def _sd(self) -> float:
        return self.bound / (20 * math.sqrt(self.dimension))

    @property
    def _gaussian_mean(self) -> FloatArray:
        signs = np.sign(direction(self.dimension))
        return np.asarray(self.mean_norm / math.sqrt(self.dimension) * signs)

    @property
    def _mean(self) -> FloatArray:
        edge = self.bound / math.sqrt(self.dimension)
        return truncated_mean(self._gaussian_mean, self._sd, edge)

    def _records(self, count: int, generator: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        edge = self.bound / math.sqrt(self.dimension)
        z = truncated_gaussian(self._gaussian_mean, self._sd, edge, count, generator)
        return z, np.zeros(count)

    def _others(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self.bound * points, np.zeros(len(points))


def beta_nodes(a: float, b: float, count: int = _NODES) -> tuple[FloatArray, FloatArray]:
    """Gauss's nodes in [0, 1] and weights, adding up to 1, for means under Beta(a, b).

    From the recursion of Jacobi's polynomials, with constants that do not overflow for large b.

    >>> nodes, weights = beta_nodes(1.0, 499.0)
    >>> bool(abs(weights @ nodes - 1 / 500) < 1e-15)
    True
    """
    above, below = b - 1, a - 1
    k = np.arange(count, dtype=np.float64)
    twice = 2 * k + above + below
    with np.errstate(invalid="ignore"):
        middle = (below**2 - above**2) / (twice * (twice + 2))
    middle[0] = (below - above) / (above + below + 2)
    k, twice = k[1:], twice[1:]
    beside = 4 * k * (k + above) * (k + below) * (k + above + below)
    beside /= twice**2 * (twice + 1) * (twice - 1)
    nodes, vectors = eigh_tridiagonal(middle, np.sqrt(beside))
    return (1 + nodes) / 2, vectors[0] ** 2
