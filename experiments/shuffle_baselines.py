"""Baselines of the shuffle model: local privacy, a tree of noisy sums, noise as printed.

Every user has one record and participates once. Noise here is drawn in floating point from seeded
generators: for comparison, not for release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from dpgrain import ParameterError
from dpgrain.accounting.losses.gaussian import gaussian_mu
from dpgrain.means import clipped
from dpgrain.optimize import Ball, Constant, LossFunction, Sgd, StronglyConvex, Uniform, Weighted
from dpgrain.papers import Known

FloatArray = NDArray[np.float64]

# Batches so small that what the gradients themselves vary by adds 1/8 to the squared noise.
_SHARE = 8


# Local privacy ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class LocalSphere:
    """Each device's vector as a random point of a sphere: pure local privacy, in the l2 ball.

    Args:
        l2_bound: Δ₂, the clipping bound of vectors.
        epsilon: ε of each user's message, whatever the others do.

    Raises:
        ParameterError: if a value is out of range.

    A vector x becomes the end s·x/‖x‖, s = 1 with probability ½ + ‖x‖/(2Δ₂) and −1 otherwise (0 has no
    direction: any fixed one, with either sign as likely). The message is uniform on the half of the
    sphere of radius B on the side of that end with probability e^ε/(e^ε + 1), on the other half
    otherwise.

    Formal guarantee: (ε, 0)-DP for each message, under ``replace``. Given an end, the density of the
    message on the sphere, against the uniform law, is 2e^ε/(e^ε + 1) on one half and 2/(e^ε + 1) on
    the other; so are all mixtures of such densities between these two numbers, and the law for any x is
    such a mixture. Two laws, of any x and x', hence differ by at most e^ε at any point. Nobody is
    trusted: users who participate once cost no more than ε together.

    The message has the mean x: the half sphere's is B·E|u₁| along the end, E|u₁| = Γ(d/2)/(√π·Γ((d
    + 1)/2)) for a coordinate of a point of the unit sphere; the sides' probabilities differ by (e^ε
    − 1)/(e^ε + 1), and E[s] = ‖x‖/Δ₂. So B = Δ₂·√π·Γ((d + 1)/2)/Γ(d/2)·(e^ε + 1)/(e^ε − 1), about
    Δ₂·√(πd/2)·2/ε for small ε.

    Source: Duchi, Jordan, Wainwright, *Minimax optimal procedures for locally private estimation*,
    2018, Section 4.2.3 (the l2 ball), with the optimal rate of the local model.

    >>> mechanism = LocalSphere(3, 1.0, 1.0)
    >>> round(mechanism.length, 3)
    4.328
    """

    dim: int
    l2_bound: float
    epsilon: float

    def __post_init__(self) -> None:
        if self.dim < 1 or not self.l2_bound > 0 or not self.epsilon > 0:
            raise ParameterError(
                "dim must be at least 1, l2_bound and epsilon above 0, not "
                f"{self.dim!r}, {self.l2_bound!r}, {self.epsilon!r}."
            )

    @property
    def length(self) -> float:
        """B, the length of every message."""
        half = self.dim / 2
        flat = math.sqrt(math.pi) * math.exp(float(gammaln(half + 0.5) - gammaln(half)))
        return self.l2_bound * flat / math.tanh(self.epsilon / 2)

    def release(self, vectors: FloatArray, generator: np.random.Generator) -> FloatArray:
        """(k, d) one message for each vector, (k, d)."""
        short = clipped(vectors, self.l2_bound)
        norms = np.linalg.norm(short, axis=1)
        first = np.zeros(self.dim)
        first[0] = 1.0
        along = np.where(norms[:, None] > 0, short, first)
        points = generator.standard_normal(short.shape)
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        kept = generator.random(len(short)) < 0.5 + norms / (2 * self.l2_bound)
        near = generator.random(len(short)) < 1 / (1 + math.exp(-self.epsilon))
        # On the side of the vector where both signs agree.
        wanted = kept == near
        side = np.einsum("ij,ij->i", points, along) >= 0
        found: FloatArray = self.length * np.where((side == wanted)[:, None], points, -points)
        return found


def local_sgd(
    loss: LossFunction,
    X: NDArray[np.floating],
    y: FloatArray,
    known: Known,
    epsilon: float,
    generator: np.random.Generator,
) -> FloatArray:
    """Stochastic gradient descent on locally private gradients, with one participation per user.

    Args:
        X: (n, p) one record of each user.
        y: (n,) their targets.
        known: R, G, and the strength if there is one; the start is 0.

    Returns:
        (p,) the average iterate.

    With convex losses steps are R/(G'√T) long, G'² = G² + B²/b, T = n/b; with strongly convex ones
    2/(μ(k + 1)), and weights grow with k. Any batch b ≪ (B/G)² is as good as single users.
    """
    n, p = X.shape
    mechanism = LocalSphere(p, known.lipschitz, epsilon)
    ratio = mechanism.length / known.lipschitz
    batch = int(min(max(ratio**2 / _SHARE, 1), n))
    rounds, domain = n // batch, Ball(known.distance)
    noise = known.lipschitz * math.sqrt(1 + ratio**2 / batch)
    solver = Sgd(Constant(known.distance / (noise * math.sqrt(rounds))), domain, Uniform())
    if known.strength:
        solver = Sgd(StronglyConvex(known.strength), domain, Weighted(1.0))
    state = solver.init(np.zeros(p))
    for t in range(rounds):
        rows = slice(t * batch, (t + 1) * batch)
        gradients = np.asarray(loss.gradient(solver.point(state), X[rows], y[rows]), np.float64)
        state = solver.step(state, mechanism.release(gradients, generator).mean(axis=0))
    return solver.finish(state)


# A tree of sums --------------------------------------------------------------------------------


@dataclass(frozen=True)
class TreeSums:
    """Sums of the first t vectors, t = 1..T, from a binary tree of noisy sums.

    Args:
        noise_sd: σ, the sd of the noise of each coordinate of each node.

    Raises:
        ParameterError: if a value is out of range.

    Every run of 2^h vectors that begins at a multiple of 2^h and ends by T is a node; its sum gets
    independent noise N(0, σ²I). The sum of the first t adds the nodes in t's binary digits; each
    node's estimate is the best mixture of its noisy sum and its halves' estimates, recursively,
    with variance σ²/(2 − 2^{−h}) (Honaker 2015).

    Formal guarantee: if one user's data is in one vector, and moves it by at most Δ (2Δ₂ for a sum
    of vectors of norm Δ₂, under ``replace``), then all nodes together are Δ√k/σ-GDP with k =
    ⌊log₂T⌋ + 1, even if vectors depend on sums of earlier ones. At most one node for each h
    contains round t, k in all. Given the earlier publications, a node's mean does not change if the
    node does not contain t, and moves by at most Δ if it does: earlier publications determine the
    other users' contributions. Gaussian shifts add up in squares, to kΔ². Sums are post-processing.

    Source: Dwork et al. 2010; Kairouz et al., *Practical and private (deep) learning without sampling
    or shuffling*, ICML 2021, Appendix B.

    >>> tree = TreeSums.calibrate(100, sensitivity=2.0, epsilon=1.0, delta=1e-6)
    >>> tree.nodes, round(tree.noise_sd / 2.0 / 7**0.5, 2)
    (7, 4.22)
    """

    rounds: int
    noise_sd: float

    def __post_init__(self) -> None:
        if self.rounds < 1 or not self.noise_sd >= 0:
            raise ParameterError(
                "rounds must be at least 1 and noise_sd at least 0, not "
                f"{self.rounds!r}, {self.noise_sd!r}."
            )

    @staticmethod
    def calibrate(rounds: int, *, sensitivity: float, epsilon: float, delta: float) -> TreeSums:
        """The least noise for (ε, δ)-DP, by the exact curve.

        Args:
            sensitivity: Δ, the largest change of the one vector by one user.
        """
        nodes = max(rounds, 1).bit_length()
        return TreeSums(rounds, sensitivity * math.sqrt(nodes) / gaussian_mu(epsilon, delta))

    @property
    def nodes(self) -> int:
        """k: the largest number of nodes that contain one vector."""
        return self.rounds.bit_length()

    def prefix_sd(self, t: int) -> float:
        """The sd of the noise of each coordinate of the sum of the first t.

        >>> [round(TreeSums(8, 1.0).prefix_sd(t) ** 2, 3) for t in (1, 2, 3, 4)]
        [1.0, 0.667, 1.667, 0.571]
        """
        digits = [h for h in range(t.bit_length()) if t >> h & 1]
        return self.noise_sd * math.sqrt(sum(1 / (2 - 2.0**-h) for h in digits))

    def start(self, generator: np.random.Generator) -> TreeRun:
        """Begin a run."""
        return TreeRun(self, generator)


@dataclass
class TreeRun:
    """The remaining nodes, largest first: height, sum, estimate."""

    tree: TreeSums
    generator: np.random.Generator
    open: list[tuple[int, FloatArray, FloatArray]] = field(default_factory=list)
    done: int = 0

    def add(self, vector: FloatArray) -> FloatArray:
        """The noisy sum of all vectors so far, this one included.

        Raises:
            ParameterError: if all rounds are over.
        """
        if self.done >= self.tree.rounds:
            raise ParameterError(f"rounds = {self.tree.rounds} are over: calibrate for more.")
        self.done += 1
        total = np.asarray(vector, dtype=np.float64)
        height, found = 0, self._noisy(total)
        while self.open and self.open[-1][0] == height:
            _, other, estimate = self.open.pop()
            total, halves = other + total, estimate + found
            # Variances: 1 of the node's own, 2w of its halves.
            twice = 2 / (2 - 2.0**-height)
            height += 1
            found = (twice * self._noisy(total) + halves) / (1 + twice)
        self.open.append((height, total, found))
        return np.asarray(np.sum([estimate for _, _, estimate in self.open], axis=0))

    def _noisy(self, total: FloatArray) -> FloatArray:
        return total + self.tree.noise_sd * self.generator.standard_normal(total.shape)


def tree_ftrl(
    loss: LossFunction,
    X: NDArray[np.floating],
    y: FloatArray,
    known: Known,
    epsilon: float,
    delta: float,
    generator: np.random.Generator,
) -> FloatArray:
    """Follow the regularised leader on a tree of noisy sums, with one participation per user.

    Args:
        X: (n, p) one record of each user.
        y: (n,) their targets.
        known: R and G; the start is 0.

    Returns:
        (p,) the average iterate.

    Round t queries the point of the ball nearest to −η·(sum of gradients so far), η = R/√(2T(G² +
    GN)), N the rms norm of the noise in a sum of batch means. Any batch b ≪ bN/G is as good as
    single users. Privacy follows from :class:`TreeSums` with Δ = 2G, for sums of clipped gradients.
    Source: Kairouz et al. 2021, Algorithm 1 and Theorem 5.1: the excess is O(d^{1/4}/√(εn)).
    """
    n, p = X.shape
    bound = known.lipschitz
    batch = 1
    # Fewer rounds have fewer nodes: once is enough for the length of a batch.
    for _ in range(2):
        tree = TreeSums.calibrate(n // batch, sensitivity=2 * bound, epsilon=epsilon, delta=delta)
        noise = _rms_prefix(tree) * math.sqrt(p)
        batch = int(min(max(noise / bound / _SHARE, 1), n))
    rounds = n // batch
    tree = TreeSums.calibrate(rounds, sensitivity=2 * bound, epsilon=epsilon, delta=delta)
    noise = _rms_prefix(tree) * math.sqrt(p) / batch
    size = known.distance / math.sqrt(2 * rounds * (bound**2 + bound * noise))
    run, domain = tree.start(generator), Ball(known.distance)
    theta: FloatArray = np.zeros(p)
    average: FloatArray = np.zeros(p)
    for t in range(rounds):
        rows = slice(t * batch, (t + 1) * batch)
        gradients = np.asarray(loss.gradient(theta, X[rows], y[rows]), np.float64)
        total = run.add(clipped(gradients, bound).sum(axis=0))
        theta = np.asarray(domain.project(-size * total / batch))
        average += (theta - average) / (t + 1)
    return average


def _rms_prefix(tree: TreeSums) -> float:
    """The rms sd of a coordinate of a sum of the first t, t ≤ T: about half the digits of t are 1."""
    times = np.unique(np.linspace(1, tree.rounds, min(tree.rounds, 1000)).astype(np.int64))
    return math.sqrt(float(np.mean([tree.prefix_sd(int(t)) ** 2 for t in times])))


# As printed ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PrintedSum:
    """The vector sum of the shuffle paper with the constants of its proof.

    Args:
        epsilon: ε, at most 15.
        honest_fraction: γ; the paper promises ε/γ, and so spends γε, with at most ε = 1.

    Raises:
        ParameterError: if a value is out of range.

    Source: Theorem A.6: g = max(2√n, √d, 4), δ̂ = δ/(d + 1), ε̂ = ε/(18√ln(1/δ̂)), and Lemma 3.1:
    b > 180g²ln(2/δ̂)/(ε̂²n), p = 90g²ln(2/δ̂)/(bε̂²n); Corollary A.9 for γ. The printed
    g = max(2Δ₂√n, …) is that after the inputs are scaled by Δ₂, which the paper recommends.

    >>> printed = PrintedSum(1000, 100, 1.0, 1.0, 1e-6)
    >>> printed.scale, round(printed.noise_sd), f"{printed.messages:.3g}"
    (64, 4534, '8.42e+09')
    """

    n_users: int
    dim: int
    l2_bound: float
    epsilon: float
    delta: float
    honest_fraction: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= 15 or not 0 < self.delta < 0.5:
            raise ParameterError(
                "epsilon must be in (0, 15] and delta in (0, 1/2), not "
                f"{self.epsilon!r}, {self.delta!r}."
            )
        if not 1 / 3 <= self.honest_fraction <= 1:
            raise ParameterError(
                f"honest_fraction must be in [1/3, 1], not {self.honest_fraction!r}."
            )

    @property
    def scale(self) -> int:
        """g, the whole steps in the range of a coordinate, 2Δ₂."""
        return math.ceil(max(2 * math.sqrt(self.n_users), math.sqrt(self.dim), 4.0))

    @property
    def bits(self) -> int:
        """b, the noisy bits of one user and coordinate."""
        return math.floor(2 * self._expected / self.n_users) + 1

    @property
    def chance(self) -> float:
        """p, of each of them being 1; barely below ½."""
        return self._expected / (self.bits * self.n_users)

    @property
    def messages(self) -> int:
        """d(g + b), the one-bit messages of one user."""
        return self.dim * (self.scale + self.bits)

    @property
    def influence(self) -> float:
        """The largest change of the sum by one corrupt device, l2, with any counts."""
        step = 2 * self.l2_bound / self.scale
        return (self.scale + self.bits) * step * math.sqrt(self.dim)

    @property
    def noise_sd(self) -> float:
        """The sd of a coordinate of the estimated sum, without the rounding of the users' data."""
        chance = self.chance
        step = 2 * self.l2_bound / self.scale
        return step * math.sqrt(self.n_users * self.bits * chance * (1 - chance))

    @property
    def _expected(self) -> float:
        """nbp = 90g²ln(2/δ̂)/ε̂²."""
        share = self.delta / (self.dim + 1)
        part = self.honest_fraction * self.epsilon / (18 * math.sqrt(math.log(1 / share)))
        return 90 * self.scale**2 * math.log(2 / share) / part**2
