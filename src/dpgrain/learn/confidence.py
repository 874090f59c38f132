"""Confidence intervals from private second moments and the published rounds.

Proofs: docs/theory, "Intervals". Privacy depends only on the bounds of each part. The assumption
that users are independent and identically distributed affects only the coverage, not the guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from dpgrain import _validate
from dpgrain._lazy_import import lazy_import
from dpgrain._types import FloatArray
from dpgrain.accounting import Gaussian
from dpgrain.errors import ParameterError
from dpgrain.gradients.records import LONGEST, RecordBlocks
from dpgrain.learn.rounds import History
from dpgrain.means import clipped
from dpgrain.optimize import MarginLoss
from dpgrain.publishing.draws import CountedSource
from dpgrain.words.fit_text import COVERAGE, no_intervals
from dpgrain.words.notes import Note

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazy_import("pandas")

# Shares of μ² for the bounds, the curvature and the scores. Scores need little, because sampling
# noise exceeds theirs, but intervals are impossible unless the curvature is significant.
_BOUNDS, _CURVATURE, _SCORES = 0.1, 0.7, 0.2
# Largest noise of the curvature, in Frobenius norms of its inverse, for which the inverse is known.
_UNCERTAINTY = 0.5
# Thresholds on a user's vector, in clipping bounds; more than 1 apart, so a block crosses at most
# one.
_NORMS = 1.25 * 2.0 ** np.arange(10)
# Bin edges of a block's curvature, in units of the largest curvature of a standard row.
_CURVATURES = 2.0 ** np.arange(-6, 9, 0.5)
# Maximum number p of parameters with intervals, because p² numbers are published.
_MAX_PARAMETERS = 300
# Entries of outer products in memory.
_ENTRIES = 1 << 21


@dataclass(frozen=True)
class Evidence:
    """Noisy second moments at the fitted parameter.

    Args:
        curvature: (p, p) the mean Jacobian of the clipped gradient, per user and k̄.
        curvature_sd: the noise of each of its entries.
        scores: (p, p) the second moment of a user's clipped gradients, over k̄².
        scores_sd: the noise of each entry of its diagonal.
        n_users: the number of users in the population.

    >>> from dpgrain.learn import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(4000, 2)); y = X @ [1.0, -1.0] + rng.normal(size=4000)
    >>> model = LinearRegression(intervals=0.2, fit_intercept=False, random_state=0).fit(X, y)
    >>> abs(model.evidence_.curvature).round(1).tolist(), model.evidence_.n_users == model.n_users_
    ([[0.3, 0.0], [0.0, 0.3]], True)
    """

    curvature: FloatArray
    curvature_sd: float
    scores: FloatArray
    scores_sd: float
    n_users: int


@dataclass(frozen=True)
class Intervals:
    """Estimates with confidence intervals, one for each coefficient.

    Args:
        names: the name of each coefficient.
        estimate: the corrected averages, which are the centres of intervals; NaN in case of doubt.
        low: the lower ends; −∞ in case of doubt, because no other end would be valid.
        high: the upper ends; ∞ in case of doubt.
        std_error: the standard errors from noise and sampling; ∞ in case of doubt.
        level: the nominal coverage.
        doubt: why the errors are unknown: the ``"curvature"`` or the ``"clipping-effect"`` does not
            stand out from noise, or rounds have ``"not-converged"``; empty if they are known.
        estimand: the average that they describe, if users do not have equal weight.

    >>> from dpgrain.learn import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(4000, 2)); y = X @ [1.0, -1.0] + rng.normal(size=4000)
    >>> model = LinearRegression(intervals=0.2, random_state=0).fit(X, y)
    >>> found = model.confidence_intervals()
    >>> truth = np.array([1.0, -1.0, 0.0])
    >>> found.names, found.resolved, ((found.low < truth) & (truth < found.high)).tolist()
    (('x0', 'x1', 'intercept'), True, [True, True, True])
    """

    names: tuple[str, ...]
    estimate: FloatArray
    low: FloatArray
    high: FloatArray
    std_error: FloatArray
    level: float
    doubt: str = ""
    estimand: str = ""

    @property
    def resolved(self) -> bool:
        """True if the curvature is significant, and the rounds have converged."""
        return not self.doubt

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame with one row per coefficient."""
        columns = {name: getattr(self, name) for name in ("estimate", "low", "high", "std_error")}
        return pd.DataFrame(columns, index=pd.Index(self.names, name="coefficient"))

    def __str__(self) -> str:
        note = f"Warning: {no_intervals(self.doubt)}" if self.doubt else COVERAGE
        return "\n".join(filter(None, (str(self.to_pandas()), self.estimand, note)))

    def __repr__(self) -> str:
        return str(self)


def score_sensitivity(longest: float, moved: float) -> float:
    """Return the largest Frobenius change of vv' if v, of norm ≤ C, changes by r."""
    line = moved * (2 * longest - moved) if moved <= longest else longest**2
    turn = min(moved, math.sqrt(2) * longest)
    return max(line, turn * math.sqrt(2 * longest**2 - turn**2 / 2))


def release_evidence(
    records: RecordBlocks,
    owners: NDArray[Any],  # (blocks,) users
    loss: MarginLoss,
    theta: FloatArray,  # (p,)
    *,
    clip: float,
    n_users: int,
    blocks_per_user: float,
    whole: bool,  # a block is all of a user's data
    event: Gaussian,
    source: CountedSource,
) -> Evidence:
    """Publish second moments of gradients and the mean curvature at a parameter.

    Formal guarantee: the noise of a part is its sensitivity to one block times the multiplier of
    ``event`` over √(its share): a block changes all by at most 1. Source: docs/theory, "Intervals".
    """
    moments = _BlockMoments(records, loss, theta, clip)
    sums = moments.users(owners)
    multiplier = event.noise_multiplier
    width = len(theta)
    longest = clip
    sd = multiplier / math.sqrt(_BOUNDS if whole else _BOUNDS / 2)
    if not whole:
        lengths = np.linalg.norm(sums, axis=1)
        counts = (lengths[:, None] > _NORMS * clip).sum(axis=0).astype(np.float64)
        noisy = source.floating(replace(event, noise_multiplier=sd), counts)
        few = np.flatnonzero(noisy <= n_users / 100 + 2 * sd)
        longest = float(_NORMS[few[0] if len(few) else -1]) * clip
    bins = source.floating(replace(event, noise_multiplier=sd), moments.histogram())
    steepest = _curvature_bound(bins, sd)
    steepest *= moments.typical_curvature
    curvature = source.floating(
        replace(event, noise_multiplier=multiplier / math.sqrt(_CURVATURE)),
        moments.curvature(steepest).ravel(),
        steepest,
    ).reshape(width, width)
    clipped_sums = clipped(sums, longest)
    upper = np.triu_indices(width)
    # Weights, because off-diagonal entries count twice in the Frobenius norm.
    weight = np.where(upper[0] == upper[1], 1.0, math.sqrt(2))
    moved = longest**2 if whole else score_sensitivity(longest, clip)
    deep = multiplier / math.sqrt(_SCORES)
    products = (clipped_sums.T @ clipped_sums)[upper] * weight
    noisy = source.floating(replace(event, noise_multiplier=deep), products, moved) / weight
    scores = np.zeros((width, width))
    scores[upper] = noisy
    scores = scores + np.triu(scores, 1).T
    of = n_users * blocks_per_user
    return Evidence(
        curvature / of,
        multiplier / math.sqrt(_CURVATURE) * steepest / of,
        scores / (of * blocks_per_user),
        deep * moved / (of * blocks_per_user),
        n_users,
    )


def _curvature_bound(counts: FloatArray, sd: float) -> float:
    """Return the first edge of a noisy histogram with no significant count above it."""
    tails = np.cumsum(counts[::-1])[::-1]
    left = np.arange(len(counts), 0, -1)
    little = tails[1:] <= 0.02 * max(tails[0], 0) + 2 * sd * np.sqrt(left[1:])
    return float(_CURVATURES[np.argmax(little) if little.any() else -1])


@dataclass(frozen=True)
class _BlockMoments:
    """Gradients and Jacobians of blocks at a parameter."""

    records: RecordBlocks
    loss: MarginLoss
    theta: FloatArray
    clip: float

    @property
    def typical_curvature(self) -> float:
        """Public curvature of a row with features of about 1."""
        smooth = self.loss.smoothness if math.isfinite(self.loss.smoothness) else 1.0
        return smooth * len(self.theta)

    def users(self, owners: NDArray[Any]) -> FloatArray:
        """Add up the clipped blocks of each user, (users with blocks, p)."""
        gradients = self.records.gradients(self.loss, self.theta, longest=LONGEST * self.clip)
        vectors = clipped(gradients.vectors(), self.clip)
        present, place = np.unique(owners, return_inverse=True)
        sums = np.zeros((len(present), len(self.theta)))
        np.add.at(sums, place, vectors)
        return sums

    def histogram(self) -> FloatArray:
        """Count blocks by curvature; zero curvature is in no bin."""
        counts = np.zeros(len(_CURVATURES) + 1)
        for part in self._parts():
            norms = np.linalg.norm(part, axis=(1, 2))
            bins = np.searchsorted(_CURVATURES * self.typical_curvature, norms[norms > 0])
            counts += np.bincount(bins, minlength=len(counts))
        return counts

    def curvature(self, bound: float) -> FloatArray:
        """Return the sum of the Jacobians, each clipped in Frobenius norm."""
        width = len(self.theta)
        total = np.zeros((width, width))
        for part in self._parts():
            flat = clipped(part.reshape(len(part), -1), bound)
            total += flat.sum(axis=0).reshape(width, width)
        return total

    def _parts(self) -> Any:
        """Yield the Jacobians of clipped gradients in batches, (some blocks, p, p)."""
        width, starts = len(self.theta), self.records.starts
        sizes = np.diff(starts)
        most = max(1, _ENTRIES // width**2)
        tile = (np.cumsum(sizes) + np.arange(len(sizes))) // most
        for some in np.split(np.arange(len(sizes)), np.flatnonzero(np.diff(tile)) + 1):
            if len(some):
                yield self._jacobians(some, starts, most)

    def _jacobians(self, some: NDArray[np.intp], starts: Any, most: int) -> FloatArray:
        width = len(self.theta)
        out = np.zeros((len(some), width, width))
        gradients = np.zeros((len(some), width))
        of = np.repeat(np.arange(len(some)), np.diff(starts)[some])
        first, last = int(starts[some[0]]), int(starts[some[-1] + 1])
        with np.errstate(all="ignore"):
            # Overflow depends on a user's value, which a warning would reveal.
            for begin in range(first, last, most):
                rows = slice(begin, min(begin + most, last))
                own = of[rows.start - first : rows.stop - first]
                X, y = self.records.X[rows], self.records.y[rows]
                z = self.loss.margins(self.theta, X)
                bend = self.loss.curvature(z, y).reshape(len(y), self.loss.outputs, -1)
                products = np.einsum("mab,mi,mj->maibj", bend, X, X).reshape(len(y), width, width)
                np.add.at(out, own, products)
                np.add.at(gradients, own, self.loss.gradient(self.theta, X, y))
            size = self.records.divisors(np.diff(starts)[some])
            out /= size[:, None, None]
            gradients /= size[:, None]
            norms = np.linalg.norm(gradients, axis=1)
            along = gradients / np.where(norms > 0, norms, 1)[:, None]
            # A clipped gradient can only rotate: its Jacobian is scaled down and has no radial
            # component.
            turned = out - along[:, :, None] * np.einsum("ni,nij->nj", along, out)[:, None, :]
            long = norms > self.clip
            out[long] = turned[long] * (self.clip / norms[long])[:, None, None]
        out[~np.isfinite(out).all(axis=(1, 2))] = 0.0
        return out


def intervals(
    evidence: Evidence,
    history: History,
    published: FloatArray,
    ridge: FloatArray,  # (p,), public and removed
    contrasts: FloatArray,  # (c, p) functions
    names: tuple[str, ...],
    level: float,
    *,
    sampled: bool,  # adds the variance of sampled blocks
    bias: float = 0.0,  # estimated effect of clipping on the mean gradient
    hidden: bool = False,  # the effect of clipping is unknown
    estimand: str = "",
) -> Intervals:
    """Return intervals for linear functions of the parameter, by post-processing.

    Source: docs/theory, "Intervals", (5) and (8); element-level paper, Theorem 1 and Proposition 3.
    """
    level = _validate.fraction(level=level)
    width, n = len(published), evidence.n_users
    curvature, resolved = _with_floor(evidence)
    inverse = np.linalg.inv(curvature)
    begin = len(history.points) // 2
    points = history.points[begin:]
    # The ridge is public: without it, the gradient depends only on the data.
    gradients = history.gradients[begin:] - ridge * points
    # Average of one Newton step from each point: its error does not depend on the steps taken.
    centre = (points - gradients @ inverse.T).mean(axis=0)
    scores = evidence.scores - np.outer(ridge * published, ridge * published)
    scores = scores * n / max(n - width, 1)
    turned = contrasts @ inverse
    lengths = (turned**2).sum(axis=1)
    drawn = np.einsum("ij,jk,ik->i", turned, scores, turned)
    floor = evidence.scores_sd * lengths
    sampling = np.maximum(drawn, floor) / n
    noise, rounds = history.noise_sd**2 * lengths, len(points)
    covariance = history.noise_sd**2 * np.eye(width)
    if sampled and rounds > 1:
        left = gradients - (points - centre) @ curvature.T
        covariance = np.cov(left, rowvar=False).reshape(width, width)
        noise = np.maximum(np.einsum("ij,jk,ik->i", turned, covariance, turned), noise)
    noise = noise / rounds
    variance = sampling + noise
    # Satterthwaite's approximation needs the variance of the variance, from its three noisy parts.
    back = (turned @ (scores / n + covariance / rounds)) @ inverse.T
    uncertain = (floor / n) ** 2
    uncertain += 4 * evidence.curvature_sd**2 * lengths * (back**2).sum(axis=1)
    if sampled and rounds > 1:
        uncertain += 2 * noise**2 / (rounds - 1)
    freedom = np.maximum(2 * variance**2 / np.maximum(uncertain, 1e-300), 2.0)
    error = np.sqrt(variance)
    half = stdtrit(freedom, (1 + level) / 2) * error
    half = half + bias * np.sqrt(lengths)
    estimate = contrasts @ centre
    # The error of a Newton step longer than the interval can be equally large.
    drift = np.abs(contrasts @ (centre - points.mean(axis=0)))
    doubts = {
        "curvature": not resolved,
        "clipping-effect": hidden,
        "not-converged": (drift > half).any(),
    }
    # One reason suffices: the remedies overlap.
    doubt = next((why for why, true in doubts.items() if true), "")
    if doubt:
        # A direction without curvature allows any slope, and contributes to each coefficient.
        half, error = np.full((2, len(half)), np.inf)
        blank = np.full(len(half), np.nan)
        return Intervals(names, blank, -half, half, error, level, doubt, estimand)
    low, high = estimate - half, estimate + half
    return Intervals(names, estimate, low, high, error, level, doubt, estimand)


def _with_floor(evidence: Evidence) -> tuple[FloatArray, bool]:
    """Return the curvature with a floor at its noise, and True if it is significant."""
    matrix, sd = evidence.curvature, evidence.curvature_sd
    width = len(matrix)
    skew = matrix - matrix.T
    # Without clipping, Jacobians are symmetric: assume this unless noise cannot explain the
    # asymmetry.
    if (skew**2).sum() <= 4 * sd**2 * width * max(width - 1, 1):
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
        repaired: FloatArray = (vectors * np.maximum(values, sd)) @ vectors.T
    else:
        left, values, right = np.linalg.svd(matrix)
        repaired = (left * np.maximum(values, sd)) @ right
    return repaired, bool(sd * np.linalg.norm(1 / np.maximum(values, sd)) <= _UNCERTAINTY)


def interval_warnings(event: Gaussian | None, width: int, n_users: int) -> tuple[Note, ...]:
    """Warn in advance if intervals will probably be unbounded; raise if they must be.

    The norm of a record's curvature is assumed to be 2p times the smallest eigenvalue of the mean
    curvature. Source: docs/theory, "Intervals", (9).
    """
    if event is None:
        return ()
    noise = event.noise_multiplier / math.sqrt(_CURVATURE) / _UNCERTAINTY
    least, needed = noise * width, 2 * noise * width**1.5
    if n_users < least:
        raise ParameterError(
            f"intervals must be 0 for {width} coefficients of {n_users:,} users, because noise hides "
            f"their curvature for all data; use at least {math.ceil(least):,} users, a larger "
            "epsilon, a larger share (intervals=) or fewer coefficients.",
            name="intervals",
        )
    if n_users >= needed:
        return ()
    most = int((n_users / noise / 2) ** (2 / 3))
    return (("few-users", width, needed, n_users, max(most, 1)),)


def check_share(intervals: float) -> None:
    """Validate the share of the budget for intervals."""
    if not 0 <= _validate.non_negative(intervals=intervals) < 1:
        raise ParameterError(
            f"intervals must be a share of the budget in [0, 1), not {intervals!r}.",
            name="intervals",
        )


def check_curvature(loss: MarginLoss, width: int) -> None:
    """Reject intervals for a loss without curvature, or too many parameters."""
    margin = np.zeros(1) if loss.outputs == 1 else np.zeros((1, loss.outputs))
    if not loss.curvature(margin, np.zeros(1)).any():
        raise ParameterError(
            f"intervals must be 0 for {type(loss).__name__}, because this loss has no curvature."
        )
    if width > _MAX_PARAMETERS:
        raise ParameterError(
            f"intervals must be 0 for more than {_MAX_PARAMETERS} parameters, not for {width}, because "
            f"{width}² numbers would have to be published; use fewer features or omit intervals."
        )
