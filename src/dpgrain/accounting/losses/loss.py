"""Privacy losses: the numerical part of the accountant."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from dpgrain._lazy_import import lazy_import
from dpgrain._types import FloatArray
from dpgrain.accounting.losses.curves import GroupCurve, InvertibleCurve, WorstCurve
from dpgrain.accounting.losses.gaussian import bisect, gaussian_delta, gaussian_epsilon
from dpgrain.accounting.losses.pairs import (
    LARGEST_SHIFT,
    CountedPairs,
    CurvePair,
    DominatingPair,
    MixturePair,
    ResponsePair,
)
from dpgrain.accounting.losses.rounding import fails_closed, hypot_up, or_worst, product_up, sum_up
from dpgrain.accounting.losses.zcdp import (
    ConcentratedCurve,
    renyi_delta,
    renyi_epsilon,
    zcdp_delta,
    zcdp_epsilon,
)

if TYPE_CHECKING:
    from dpgrain.accounting.losses import composition
    from dpgrain.accounting.losses import tradeoff_bounds as tradeoffs
else:
    # Closed forms need no numerical composition, so the transforms are imported only when needed.
    composition = lazy_import("dpgrain.accounting.losses.composition")
    tradeoffs = lazy_import("dpgrain.accounting.losses.tradeoff_bounds")

# ((order, divergence), …), in increasing order.
_Renyi: TypeAlias = tuple[tuple[float, float], ...]
# Max number of alternative bounds on one composition.
_MOST_ALTERNATIVES = 36
# Rényi orders for adding divergences of parts if none are given.
_ORDERS = tuple(float(1 + step) for step in np.geomspace(0.05, 1000.0, 40))
# A bound on the relative rounding of a closed form.
_RELATIVE_ROUNDING = 1e-9


def _pairs_sum(one: CountedPairs, two: CountedPairs) -> CountedPairs:
    counts: dict[DominatingPair, int] = {}
    for pair, count in one + two:
        counts[pair] = counts.get(pair, 0) + count
    # The pairs are sorted, so that the order of events is irrelevant.
    return tuple(sorted(counts.items(), key=repr))


def _renyi_sum(one: _Renyi, two: _Renyi) -> _Renyi:
    if not one or not two:
        return one or two
    orders = sorted({order for order, _ in one + two})
    sums = [(order, sum_up(_at(one, order), _at(two, order))) for order in orders]
    return tuple((order, value) for order, value in sums if value < math.inf) or ((2.0, math.inf),)


@dataclass(frozen=True)
class Loss:
    """An upper bound on a privacy loss, composed of several parts.

    Args:
        mu: the Gaussian part (sensitivity ÷ noise sd); independent parts add their squares.
        pure: the ε of the pure part; parts add.
        leak: the delta mass: the probability that everything is revealed; parts add.
        rho: the zCDP of the pure part, if known to be less than pure²/2, such as η²/8 for a choice
            with bounded range η = ``pure``; parts add.
        pairs: ((dominating pair, count), …), which are composed numerically.
        renyi: ((order, value), …) of a part with only Rényi divergences known; parts add.
        concentrated: the ρ of a part with only its zCDP known; parts add.
        others: other bounds on the same loss; at each ε or δ the smallest counts.

    Without pairs the curve is the lower of two valid ones. The first is δ(ε) ≤ δ_G(ε − pure; mu) +
    leak, which is exact if only one part is present (``pure`` only is randomised response, the
    worst ε₀-DP mechanism). The second is (mu²/2 + rho + concentrated)-zCDP, plus leak, which is
    less for many pure parts. With a part that has only its zCDP known, the first is the curve of
    (mu²/2 + concentrated)-zCDP at ε − pure. With pairs the curve is that of all parts convolved: an
    upper bound, within about 3e-4 of the exact ε. All are valid under adaptive composition. Proofs:
    docs/theory, "Composition" and "Losses on a grid".

    >>> (Loss(mu=3.0) + Loss(mu=4.0)).mu
    5.0
    >>> many = sum([Loss(pure=0.1)] * 100, Loss())
    >>> round(many.pure, 9), round(many.epsilon(1e-6), 3)
    (10.0, 5.222)
    >>> choices = sum([Loss(pure=0.1, rho=0.1**2 / 8)] * 200, Loss())
    >>> round(choices.epsilon(1e-6), 2), round(sum([Loss(pure=0.1)] * 200, Loss()).epsilon(1e-6), 2)
    (3.54, 7.77)
    """

    # A new part also belongs in `_plus` and `_times`.
    mu: float = 0.0
    pure: float = 0.0
    leak: float = 0.0
    rho: float = math.inf
    pairs: CountedPairs = ()
    renyi: _Renyi = ()
    concentrated: float = 0.0
    others: tuple[Loss, ...] = ()

    def __post_init__(self) -> None:
        # A NaN counts as infinite, or as delta mass 1.
        for name in ("mu", "pure", "rho", "concentrated"):
            object.__setattr__(self, name, or_worst(getattr(self, name)))
        object.__setattr__(self, "leak", or_worst(self.leak, 1.0))
        renyi = tuple((order, or_worst(value)) for order, value in self.renyi)
        object.__setattr__(self, "renyi", renyi)
        object.__setattr__(self, "rho", min(self.rho, self.pure * self.pure / 2))

    @staticmethod
    def from_curve(curve: InvertibleCurve) -> Loss:
        """Return the loss with a privacy curve, in both orders of the neighbours."""
        return Loss(pairs=((CurvePair(curve), 1),))

    def or_else(self, *others: Loss) -> Loss:
        """Return this loss with additional bounds; the smallest counts."""
        return replace(self, others=(*self.others, *others))

    def __add__(self, other: Loss) -> Loss:
        mine, theirs = self.alternatives, other.alternatives
        if len(mine) == len(theirs) == 1:
            return self._plus(other)
        sums = [one._plus(two) for one in mine for two in theirs]
        if len(sums) > _MOST_ALTERNATIVES:
            # Every sum is a bound, so a selection is valid: the sums of alternatives at the same
            # index, and those with the least delta mass.
            longest = max(len(mine), len(theirs))
            same = [mine[i % len(mine)]._plus(theirs[i % len(theirs)]) for i in range(longest)]
            room = max(_MOST_ALTERNATIVES - longest, 0)
            sums = same + sorted(sums, key=lambda loss: loss.leak)[:room]
        first, *rest = dict.fromkeys(sums)
        return replace(first, others=tuple(rest))

    def __mul__(self, count: int) -> Loss:
        """Return the sum of ``count`` such losses, exact except for rounding."""
        first, *rest = (loss._times(count) for loss in self.alternatives)
        return replace(first, others=tuple(rest))

    def _times(self, count: int) -> Loss:
        return Loss(
            math.sqrt(count) * self.mu,
            product_up(count, self.pure),
            min(product_up(count, self.leak), 1.0),
            product_up(count, self.rho),
            tuple((pair, count * times) for pair, times in self.pairs),
            tuple((order, product_up(count, value)) for order, value in self.renyi),
            product_up(count, self.concentrated),
        )

    def _plus(self, other: Loss) -> Loss:
        return Loss(
            hypot_up(self.mu, other.mu),
            sum_up(self.pure, other.pure),
            min(sum_up(self.leak, other.leak), 1.0),
            sum_up(self.rho, other.rho),
            _pairs_sum(self.pairs, other.pairs),
            _renyi_sum(self.renyi, other.renyi),
            sum_up(self.concentrated, other.concentrated),
        )

    @property
    def alternatives(self) -> tuple[Loss, ...]:
        """All known bounds on the loss, each without the others."""
        return (replace(self, others=()), *self.others)

    @property
    def is_pure(self) -> bool:
        """True if one of the bounds has only a pure part, and is therefore valid at δ = 0.

        >>> Loss(pure=0.5).is_pure, Loss(pure=0.5, concentrated=0.1).is_pure
        (True, False)
        """
        # All fields are compared, so that a loss with a new type of part is not pure.
        return any(loss == Loss(pure=loss.pure, rho=loss.rho) for loss in self.alternatives)

    def delta(self, epsilon: float) -> float:
        """Return the smallest δ at ε in this bound."""
        smallest = 1.0
        for loss in sorted(self.alternatives, key=lambda loss: loss.leak):
            # A bound is at least its delta mass, so a larger leak need not be composed.
            if loss.leak < smallest:
                smallest = min(smallest, loss._delta(epsilon))
        return smallest

    def epsilon(self, delta: float) -> float:
        """Return the smallest ε ≥ 0 of this bound at δ; infinite if there is none."""
        return self._best(delta)[0]

    def bounds(self, delta: float) -> tuple[float, float]:
        """Return a lower and an upper bound on the exact ε of this bound at δ."""
        if delta >= 1:
            return 0.0, 0.0
        upper, best = self._best(delta)
        rest = _subtract_down(delta, best.leak)
        if not best.pairs and math.isfinite(upper):
            return upper * (1 - _RELATIVE_ROUNDING), upper
        if math.isinf(upper) or not best._direct:
            return 0.0, upper
        if best._closed is not None:
            return min(best._closed.bounds(rest)[0], upper), upper
        return min(best._composed().epsilon(rest, upper=False), upper), upper

    def _best(self, delta: float) -> tuple[float, Loss]:
        """Return the smallest ε of all bounds at δ, and its bound."""
        if delta >= 1:
            return 0.0, self
        best, smallest = self, math.inf
        # Closed forms come first; numeric ones are skipped if a quick bound, rarely twice the answer,
        # is far above them.
        for loss in sorted(
            self.alternatives, key=lambda loss: bool(loss.pairs) and loss._closed is None
        ):
            rest = _subtract_down(delta, loss.leak)
            numeric = loss.pairs and loss._closed is None and loss._direct and rest > 0
            if smallest == 0 or (numeric and loss._composed().rough(rest) > 3 * smallest):
                continue
            epsilon = loss._epsilon(rest)
            if epsilon < smallest:
                best, smallest = loss, epsilon
        return smallest, best

    def best_at(self, delta: float) -> Loss:
        """Return the single bound that is best at a δ, for fast evaluation at many ε.

        Args:
            delta: the δ that selects the bound; the bound is valid everywhere.
        """
        epsilon, best = self._best(delta)
        if epsilon == 0:
            # Several bounds may give 0 at this δ; the best of them has it at the smallest one.
            best = min(self.alternatives, key=lambda loss: loss._delta(0.0))
        return replace(best, others=())

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """Return (n,) values of δ at n values of ε ≥ 0; what is composed is composed once."""
        bounds = [one._deltas(epsilons) for one in self.alternatives]
        deltas: FloatArray = np.minimum.reduce([np.ones(epsilons.size), *bounds])
        return deltas

    def _deltas(self, epsilons: FloatArray) -> FloatArray:
        if self._closed is None and self.pairs and self._direct:
            return self._composed().deltas(epsilons) + self.leak
        if isinstance(self._closed, Loss | WorstCurve | GroupCurve):
            return self._closed.deltas(epsilons) + self.leak
        return np.array([self._delta(float(epsilon)) for epsilon in epsilons])

    def tradeoff(self, alphas: FloatArray) -> FloatArray:
        """Return (n,) lower bounds on the error of the second kind, at n errors of the first kind."""
        return tradeoffs.tradeoff(self, alphas)

    def renyi_at(self, order: float) -> float:
        """Return this bound's Rényi divergence of an order above 1, or infinity."""
        return min(
            math.inf if loss.leak + loss._infinite > 0 else loss._finite_renyi(order)
            for loss in self.alternatives
        )

    @fails_closed(math.inf)
    def _finite_renyi(self, order: float) -> float:
        """Return the divergence without the delta mass."""
        divergence = _at(self.renyi, order) + order * self._zcdp_without_pure
        divergence += min(order * self.rho, self.pure) if self.pure > 0 else 0.0
        for pair, count in self.pairs:
            moment = max(pair.log_moment(order - 1), pair.swapped.log_moment(order - 1))
            divergence += count * moment / (order - 1)
        return divergence

    @property
    def _infinite(self) -> float:
        """Mass of pairs at infinite loss."""
        return sum(
            count * pair.coarse_distribution().infinite for pair, count in self.pairs if pair.leaks
        )

    # The methods below concern one alternative; most of them exclude its delta mass.

    @fails_closed(1.0)
    def _delta(self, epsilon: float) -> float:
        if self._closed is not None:
            return min(self._closed.delta(epsilon) + self.leak, 1.0)
        deltas = [1.0]
        if self._direct:
            composed = self._composed().delta if self.pairs else self._direct_delta
            deltas.append(composed(epsilon))
        if self._concentrates:
            deltas.append(zcdp_delta(epsilon, self._zcdp))
        elif self._by_renyi:
            deltas.append(renyi_delta(epsilon, self._orders) + self._infinite)
        return min(min(deltas) + self.leak, 1.0)

    @fails_closed(math.inf)
    def _epsilon(self, rest: float) -> float:
        if rest < 0 or self.mu == math.inf:
            return math.inf
        if self._closed is not None:
            return self._closed.epsilon(rest)
        epsilons = [math.inf]
        if self._direct:
            composed = self._composed().epsilon if self.pairs else self._direct_epsilon
            epsilons.append(composed(rest))
        if self._concentrates:
            epsilons.append(zcdp_epsilon(rest, self._zcdp))
        elif self._by_renyi:
            epsilons.append(renyi_epsilon(rest - self._infinite, self._orders))
        return min(epsilons)

    @property
    def _direct(self) -> bool:
        """True if a dominating pair is known for every part."""
        return not self.renyi and self.pure < math.inf

    @property
    def _by_renyi(self) -> bool:
        """True if Rényi divergences give bounds that the pairs do not."""
        less = self.rho < self.pure * self.pure / 2 or self.concentrated > 0
        return bool(self.renyi) or (bool(self.pairs) and less)

    @property
    def _orders(self) -> tuple[tuple[float, float], ...]:
        """Rényi divergences of all parts together."""
        orders = [order for order, _ in self.renyi] or _ORDERS
        return tuple((order, self._finite_renyi(order)) for order in orders)

    @property
    def _closed(self) -> InvertibleCurve | None:
        """Closed form of the curve, or None unless there is one pair and it has one."""
        beside = Loss(mu=self.mu, leak=self.leak, pairs=self.pairs, others=self.others)
        if len(self.pairs) == 1 and self == beside:
            (pair, count), *_ = self.pairs
            return pair.curve(count, self.mu)
        return None

    def _composed(self) -> _NumericalLoss:
        parts = list(self.pairs)
        if 0 < self.mu <= LARGEST_SHIFT:
            parts.append((MixturePair(((1.0, self.mu),), ((1.0, 0.0),)), 1))
        if 0 < self.pure <= LARGEST_SHIFT:
            parts.append((ResponsePair(self.pure), 1))
        if self.concentrated > 0:
            parts.append((CurvePair(ConcentratedCurve(self.concentrated)), 1))
        return _NumericalLoss(
            tuple(parts),
            self.mu if self.mu > LARGEST_SHIFT else 0.0,
            self.pure if self.pure > LARGEST_SHIFT else 0.0,
        )

    @property
    def _zcdp(self) -> float:
        return self.rho + self._zcdp_without_pure

    @property
    def _zcdp_without_pure(self) -> float:
        """The zCDP of all but the pure part."""
        return self.mu * self.mu / 2 + self.concentrated

    @property
    def _concentrates(self) -> bool:
        """True if the zCDP curve may be lower; a single part's direct curve is exact."""
        alone = not self.pairs and not self.renyi
        several = self.mu > 0 or self.concentrated > 0
        return alone and self.pure > 0 and (several or self.rho < self.pure * self.pure / 2)

    def _direct_delta(self, epsilon: float) -> float:
        """Return δ of the direct curve at ε − pure, without the delta mass."""
        if self.concentrated > 0:
            return zcdp_delta(_subtract_down(epsilon, self.pure), self._zcdp_without_pure)
        if self.mu == 0:
            if epsilon >= self.pure:
                return 0.0
            # (e^p − e^ε)/(1 + e^p), without overflow for large p.
            delta = -math.expm1(_subtract_down(epsilon, self.pure)) / (1 + math.exp(-self.pure))
            return min(delta * (1 + 2.0**-50) + 5e-324, 1.0)
        if self.pure == math.inf:
            return 1.0
        return gaussian_delta(_subtract_down(epsilon, self.pure), self.mu)

    def _direct_epsilon(self, rest: float) -> float:
        """Return the smallest ε ≥ 0 where the direct curve is at most ``rest``."""
        if self.pure == math.inf:
            return math.inf
        if self.concentrated > 0:
            return sum_up(self.pure, zcdp_epsilon(rest, self._zcdp_without_pure))
        if self._direct_delta(0.0) <= rest:
            return 0.0
        if self.mu > 0:
            if rest == 0:
                return math.inf
            if self._direct_delta(self.pure) <= rest:
                return bisect(lambda epsilon: self._direct_delta(epsilon) <= rest, 0.0, self.pure)[
                    1
                ]
            return sum_up(self.pure, gaussian_epsilon(rest, self.mu))
        # Solve δ = (e^p − e^ε)/(1 + e^p) for ε and round up; δ(0) > rest makes the logarithm
        # finite.
        if rest == 0:
            return self.pure
        epsilon = self.pure + math.log1p(-rest * (1 + math.exp(-self.pure)))
        return min(max(epsilon * (1 + 2.0**-50) + 2.0**-50, 0.0), self.pure)


@dataclass(frozen=True)
class _NumericalLoss:
    """Several pairs, and parts too large for a grid, added by basic composition."""

    pairs: CountedPairs
    mu: float = 0.0
    pure: float = 0.0

    def delta(self, epsilon: float) -> float:
        left = _subtract_down(epsilon, self.pure)
        if left < 0:
            return 1.0
        share = left / 2 if self.mu else left
        return sum_up(composition.composed_delta(self.pairs, share), gaussian_delta(share, self.mu))

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        if self.mu or self.pure:
            return np.array([self.delta(float(epsilon)) for epsilon in epsilons])
        return composition.composed_deltas(self.pairs, epsilons)

    def epsilon(self, delta: float, *, upper: bool = True) -> float:
        if delta <= 0:
            return math.inf
        if (self.mu or self.pure) and not upper:
            return 0.0
        share = delta / 2 if self.mu else delta
        return self._add_ungridded(
            composition.composed_epsilon(self.pairs, share, upper=upper), share
        )

    def rough(self, delta: float) -> float:
        """Bound ε quickly, by Rényi divergences."""
        share = delta / 2 if self.mu else delta
        return self._add_ungridded(composition.rough_epsilon(self.pairs, share), share)

    def _add_ungridded(self, epsilon: float, share: float) -> float:
        """Add the ε of the parts too large for the grid to an ε."""
        aside = sum_up(self.pure, gaussian_epsilon(share, self.mu)) if self.mu else self.pure
        return sum_up(epsilon, aside) if aside else epsilon


def _subtract_down(whole: float, part: float) -> float:
    """Return whole − part, rounded down."""
    return -sum_up(-whole, part)


def _at(renyi: _Renyi, order: float) -> float:
    """Bound the divergence at an order by the value at the next known order."""
    if not renyi:
        return 0.0
    return min((value for at, value in renyi if at >= order), default=math.inf)
