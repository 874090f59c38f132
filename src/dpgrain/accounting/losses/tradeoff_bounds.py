"""Lower bounds on the trade-off curve of a loss, and the attacks that they limit.

A test for a unit has false alarms α and misses β. Every (ε, δ) of the loss gives two lines below the
curve f, the least β at each α: 1 − δ − e^ε·α and e^{−ε}·(1 − δ − α). Any set of lines is a bound, so
that the choice of ε decides accuracy only. Proof: docs/theory, "Risk".
"""

from __future__ import annotations

import math
from functools import singledispatch

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.accounting.losses.curves import (
    GroupCurve,
    ResponsesCurve,
    SampledRoundsCurve,
    WorstCurve,
)
from dpgrain.accounting.losses.gaussian import pure_mu
from dpgrain.accounting.losses.loss import Loss
from dpgrain.accounting.losses.mixture_curve import OneRoundCurve
from dpgrain.accounting.losses.pairs import (
    CurvePair,
    GramPair,
    MixedPair,
    MixturePair,
    NullPair,
    ResponsePair,
    RevealedPair,
)
from dpgrain.accounting.losses.rounding import fails_closed, hypot_up
from dpgrain.accounting.losses.user_sampling import TwoSidedPair
from dpgrain.numerics.special_functions import ndtr, ndtri

# Values of ε of the first lines, evenly and geometrically spaced, and the smallest of the latter.
_POINTS, _LEAST_EPSILON = 40, 1e-4
# The largest ε of a line: a steeper one decides nothing at any α that is a floating-point number.
_LARGEST_EPSILON = 700.0
# The ε of the first lines up to which a curve is worth knowing, whatever α is.
_USUAL_EPSILON = 30.0
# Times that the best line of each α is searched for between its neighbours, and points of a search.
_REFINEMENTS, _REFINED_POINTS = 4, 9
# Bounds on the rounding of a line of values up to 1, and of a closed form.
_ROUNDING, _RELATIVE_ROUNDING = 1e-13, 1e-9


class TradeoffLines:
    """Lines below the trade-off curve of a loss, one pair for each ε."""

    def __init__(self, loss: Loss, epsilons: FloatArray) -> None:
        self.loss = loss
        self.epsilons = np.unique(np.concatenate([epsilons, _corners(loss)]))
        self.deltas = loss.deltas(self.epsilons)

    def values(self, alphas: FloatArray) -> FloatArray:
        """Return (2n, m) heights of all lines at m values of α, the steep lines first."""
        room = 1 - self.deltas[:, None]
        steep = room - np.exp(self.epsilons)[:, None] * alphas
        flat = np.exp(-self.epsilons)[:, None] * (room - alphas) * (1 - _ROUNDING)
        return np.vstack([steep - _ROUNDING, flat])

    def errors(self, alphas: FloatArray) -> FloatArray:
        """Return (m,) lower bounds on f at m values of α."""
        errors: FloatArray = np.clip(self.values(alphas).max(axis=0), 0.0, 1.0)
        return errors

    def refined(self, alphas: FloatArray) -> TradeoffLines:
        """Return these lines and others near the best one at each α."""
        best = np.unique(self.values(alphas).argmax(axis=0) % self.epsilons.size)
        left = self.epsilons[np.maximum(best - 1, 0)]
        right = self.epsilons[np.minimum(best + 1, self.epsilons.size - 1)]
        near = np.linspace(left, right, _REFINED_POINTS + 2)[1:-1].ravel()
        finer = TradeoffLines.__new__(TradeoffLines)
        finer.loss = self.loss
        order = np.argsort(joined := np.concatenate([self.epsilons, near]), kind="stable")
        finer.epsilons = joined[order]
        finer.deltas = np.concatenate([self.deltas, self.loss.deltas(near)])[order]
        return finer

    def intercept(self, slope: float) -> float:
        """Bound the height at α = 0 of the tangent of f with slope −``slope`` from below."""
        # A line below f stays below it when mixed with another one, or when it falls faster.
        slopes = np.concatenate([[0.0], np.exp(-self.epsilons), np.exp(self.epsilons)])
        room = 1 - self.deltas
        heights = np.concatenate([[0.0], np.exp(-self.epsilons) * room, room])
        low, high = slopes <= slope, slopes >= slope
        best = float(heights[low].max())
        if high.any():
            width = slopes[high][None, :] - slopes[low][:, None]
            with np.errstate(divide="ignore", invalid="ignore"):
                share = np.where(width > 0, (slope - slopes[low][:, None]) / width, 0.0)
            mixed = (1 - share) * heights[low][:, None] + share * heights[high][None, :]
            best = max(best, float(mixed.max()))
        return max(best * (1 - _ROUNDING) - _ROUNDING, 0.0)


def tradeoff(loss: Loss, alphas: FloatArray) -> FloatArray:
    """Return lower bounds on the misses of any test at (n,) false alarms."""
    mu = gaussian_mu(loss)
    # G_μ(α) = Φ(Φ⁻¹(1−α) − μ), rounded down.
    gaussian: FloatArray = (
        np.zeros_like(alphas)
        if math.isinf(mu)
        else ndtr(-ndtri(alphas) - mu) * (1 - _RELATIVE_ROUNDING)
    )
    if math.isinf(loss.mu) or loss == Loss(mu=loss.mu):
        return gaussian
    smallest = float(alphas[alphas > 0].min(initial=1.0))
    lines = TradeoffLines(loss, _grid(max(-math.log(smallest), _USUAL_EPSILON)))
    for _ in range(_REFINEMENTS):
        lines = lines.refined(alphas)
    return np.maximum(lines.errors(alphas), gaussian)


def detection(loss: Loss, alpha: float) -> float:
    """Return an upper bound on the detections of any test with false alarms ``alpha``."""
    mu = gaussian_mu(loss)
    # 1 − G_μ(α), without the difference from 1, which loses small values.
    most = float(ndtr(ndtri(alpha) + mu)) * (1 + _RELATIVE_ROUNDING) if math.isfinite(mu) else 1.0
    if loss != Loss(mu=loss.mu):
        most = min(most, 1 - float(tradeoff(loss, np.array([alpha]))[0]))
    return min(most, 1.0)


def best_guess(loss: Loss, prior: float) -> float:
    """Return an upper bound on the probability of guessing the right neighbour."""
    odds = (1 - prior) / prior
    turn = min(abs(math.log(odds)), _LARGEST_EPSILON)
    lines = TradeoffLines(loss, np.array([turn, math.nextafter(turn, math.inf)]))
    least = lines.intercept(odds)
    if loss != Loss(mu=loss.mu) and math.isfinite(mu := gaussian_mu(loss)):
        least = max(least, TradeoffLines(Loss(mu=mu), lines.epsilons).intercept(odds))
    # The least of (1−π)α + πβ over f is where the slope of f is −odds; in the other order of the
    # neighbours the same line is valid.
    return min(1 - prior * least, 1.0)


def is_unbounded(loss: Loss) -> bool:
    """Return True if the loss limits no attack."""
    if math.isfinite(gaussian_mu(loss)):
        return False
    return bool(loss.deltas(np.array([_LARGEST_EPSILON]))[0] >= 1)


def _grid(last: float) -> FloatArray:
    last = min(last, _LARGEST_EPSILON)
    return np.concatenate(
        [np.linspace(0.0, last, _POINTS), np.geomspace(_LEAST_EPSILON, last, _POINTS)]
    )


def _corners(loss: Loss) -> FloatArray:
    """Return the corners of the curve of a pure part, as values of ε."""
    corners = [one.pure for one in loss.alternatives if 0 < one.pure <= _LARGEST_EPSILON]
    return np.array([0.0, *corners])


def gaussian_mu(loss: Loss) -> float:
    """Return the smallest proved μ with f ≥ G_μ; infinite if none is proved."""
    return min(_bound_mu(one) for one in loss.alternatives)


@fails_closed(math.inf)
def _bound_mu(loss: Loss) -> float:
    """Return the μ of one bound: the μ of independent parts add by their squares."""
    if loss.leak > 0 or loss.renyi or loss.concentrated > 0:
        return math.inf
    total = hypot_up(loss.mu, pure_mu(loss.pure))
    for pair, count in loss.pairs:
        total = hypot_up(total, math.sqrt(count) * _dominating_mu(pair) * (1 + _RELATIVE_ROUNDING))
    return total


@singledispatch
def _dominating_mu(known: object) -> float:  # noqa: ARG001 - nothing is proved about other kinds
    """Return a μ that dominates a pair or a curve."""
    return math.inf


@_dominating_mu.register
def _(known: Loss) -> float:
    return gaussian_mu(known)


@_dominating_mu.register
def _(known: CurvePair) -> float:
    return _dominating_mu(known.known)


@_dominating_mu.register
def _(known: WorstCurve) -> float:
    return max(map(_dominating_mu, known.curves))


@_dominating_mu.register
def _(known: GroupCurve) -> float:
    return known.steps * _dominating_mu(known.curve)


@_dominating_mu.register
def _(known: SampledRoundsCurve) -> float:
    return hypot_up(math.sqrt(known.rounds) * known.shift * (1 + _RELATIVE_ROUNDING), known.mu)


@_dominating_mu.register
def _(known: ResponsesCurve) -> float:
    return math.sqrt(known.count) * pure_mu(known.odds) * (1 + _RELATIVE_ROUNDING)


@_dominating_mu.register
def _(known: ResponsePair) -> float:
    return pure_mu(known.epsilon)


@_dominating_mu.register
def _(known: NullPair) -> float:  # noqa: ARG001 - equal laws
    return 0.0


@_dominating_mu.register
def _(known: MixedPair) -> float:
    return max(map(_dominating_mu, known.pairs))


@_dominating_mu.register
def _(known: RevealedPair) -> float:
    return known.shift


@_dominating_mu.register
def _(known: GramPair) -> float:
    return (known.up - known.down) * (1 + _RELATIVE_ROUNDING)


@_dominating_mu.register
def _(known: MixturePair) -> float:
    means = [mean for weight, mean in known.p if weight > 0]
    others = [mean for weight, mean in known.q if weight > 0]
    gap = max(max(means) - min(others), max(others) - min(means))
    return max(gap, 0.0) * (1 + _RELATIVE_ROUNDING)


@_dominating_mu.register
def _(known: TwoSidedPair) -> float:
    # With the rate the person takes part in both laws of a side.
    return max(up - down for up, down in (known.above, known.below)) * (1 + _RELATIVE_ROUNDING)


@_dominating_mu.register
def _(known: OneRoundCurve) -> float:
    return max(_dominating_mu(MixturePair(way.p, way.q)) for way in known.ways)
