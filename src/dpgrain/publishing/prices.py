"""The price of a release in a budget, in three currencies.

A release has price (e, m, ℓ) if for all neighbours, in both orders, H_γ ≤ H_γ(N(m, 1) ⊗ RR_e) + ℓ at
every γ ≥ 0, where N(m, 1) is a Gaussian mechanism, RR_e randomised response, and H_γ the hockey-stick
divergence. Prices of adaptively chosen releases add up: e, m² and ℓ separately. Proofs: docs/theory,
"Budgets".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpgrain._formatting import SUM_TOLERANCE
from dpgrain._types import FloatArray
from dpgrain.accounting import Event, Loss, gaussian_delta
from dpgrain.accounting.events.base import Neighbours
from dpgrain.accounting.losses.gaussian import pure_mu
from dpgrain.errors import ParameterError
from dpgrain.numerics.special_functions import ndtr, ndtri
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.scope.partitions import Partition
from dpgrain.units import PLAIN_UNITS, Element, Level, Relation, Unit, User

# Points of a privacy curve, which is below the chords between them.
_CURVE_POINTS = 64
# The points of a curve end at the ε whose δ is one of these shares of the budget's delta mass, the
# first for which ε is not too large.
_LEAST_LEAK_SHARES = (1e-3, 1e-2, *(part / 20 for part in range(2, 21)))
# Largest ε of a point of a curve.
_LARGEST_CURVE_EPSILON = 300.0
# Relative rounding of prices upwards, which covers the errors of the special functions.
_RELATIVE_ROUNDING = 1e-9
# Largest number of parts with two prices to try in all combinations.
_COMBINED_PARTS = 6


@dataclass(frozen=True)
class Price:
    """The price of a release in a budget.

    Args:
        pure: e, the ε of randomised response.
        mu: m, the μ of a Gaussian mechanism.
        leak: ℓ, the delta mass: the probability of publishing something outright.

    >>> Price(mu=3.0) + Price(mu=4.0, leak=1e-7)
    Price(pure=0.0, mu=5.0, leak=1e-07)
    """

    pure: float = 0.0
    mu: float = 0.0
    leak: float = 0.0

    def __add__(self, other: Price) -> Price:
        return Price(self.pure + other.pure, math.hypot(self.mu, other.mu), self.leak + other.leak)

    def times(self, count: int) -> Price:
        """Return the price of ``count`` releases with this price each."""
        return Price(self.pure * count, self.mu * math.sqrt(count), self.leak * count)

    def remainder(self, whole: Price) -> Price:
        """Return the rest of ``whole`` after this price is subtracted."""
        square = whole.mu * whole.mu - self.mu * self.mu
        pure, leak = whole.pure - self.pure, whole.leak - self.leak
        return Price(max(pure, 0.0), math.sqrt(max(square, 0.0)), max(leak, 0.0))

    def part(self, share: float) -> Price:
        """Return a share of this price; μ is divided in its square."""
        return Price(self.pure * share, self.mu * math.sqrt(share), self.leak * share)

    def share_of(self, whole: Price) -> float:
        """Return the largest share of a currency of ``whole`` that this price uses; of μ, its square.

        >>> Price(mu=0.1, leak=1e-8).share_of(Price(mu=0.2, leak=1e-7))
        0.25
        """
        parts = (
            (self.pure, whole.pure),
            (self.mu * self.mu, whole.mu * whole.mu),
            (self.leak, whole.leak),
        )
        # An infinite or unknown price never fits: NaN must not win a comparison.
        if not all(math.isfinite(part) for part, _ in parts):
            return math.inf
        return max(0.0 if part == 0 else part / of if of > 0 else math.inf for part, of in parts)


NO_PRICE = Price(math.inf, math.inf, math.inf)


def price(
    event: Event,
    relation: Relation,
    unit: Unit,
    caps: Price,
    room: Price | None = None,
    *,
    units: int = 1,
) -> Price:
    """Return the price of an event with the smallest share of a budget.

    Pure ε that the budget reserves is used first, because only such releases can use it.

    Args:
        event: the event of the release.
        relation: the budget's neighbouring relation.
        unit: the budget's privacy unit.
        caps: the caps of the budget.
        room: the remaining prices for this release; by default all of the caps.
        units: the number of units of one person that change together.

    Returns:
        A valid price; infinite if the event has none.

    Formal guarantee: the price (e, m, ℓ) satisfies H_γ ≤ H_γ(N(m, 1) ⊗ RR_e) + ℓ for every γ ≥ 0 and
    both orders of neighbours. Source: docs/theory, "Budgets".

    >>> from dpgrain import User
    >>> from dpgrain.accounting import Contribution, Gaussian, PureDP
    >>> whole = Price(mu=0.2355, leak=1e-7)
    >>> price(Gaussian(10.0, Contribution(block="user")), "zero_out", User(), whole)
    Price(pure=0.0, mu=0.1, leak=0.0)
    >>> round(price(PureDP(0.1), "zero_out", User(), whole).mu, 4)
    0.1253
    """
    parts = [_Part.create(part, relation, unit, units) for part in event.parts]
    candidates = list(_together(parts, caps, curves=False))
    if any(part.has_curve for part in parts):
        candidates += _together(parts, caps, curves=True)
    within = [
        one
        for one in candidates
        if one.share_of(caps if room is None else room) <= 1 + SUM_TOLERANCE
    ]
    if within:
        return min(within, key=lambda one: replace(one, pure=0.0).share_of(caps))
    return min(candidates, key=lambda one: one.share_of(caps), default=NO_PRICE)


@dataclass(frozen=True)
class _Part:
    """One event of a release."""

    prices: tuple[Price, ...]  # in closed form; empty if only a curve is known
    loss: Loss

    @staticmethod
    def create(event: Event, relation: Relation, unit: Unit, units: int) -> _Part:
        loss = event.loss(units, relation, unit)
        one, count = _single(event)
        closed = _closed_prices(one.loss(units, relation, unit))
        return _Part(tuple(price.times(count) for price in closed), loss)

    @property
    def has_curve(self) -> bool:
        """True if the loss has bounds without a closed form."""
        return any(_by_curve(bound) for bound in self.loss.alternatives)


def _single(event: Event) -> tuple[Event, int]:
    """Return one of several equal mechanisms and their number; each has the same price."""
    count = getattr(event, "count", 1)
    return (event, 1) if count == 1 else (replace(event, count=1), count)  # type: ignore[type-var]


def _by_curve(bound: Loss) -> bool:
    """Return whether a bound has parts beyond the three currencies."""
    return bound != Loss(bound.mu, bound.pure, bound.leak, bound.rho)


def _closed_prices(loss: Loss) -> Iterable[Price]:
    """Yield the closed-form prices of each known bound on a loss."""
    for bound in loss.alternatives:
        if _by_curve(bound) or not math.isfinite(bound.pure):
            continue
        yield Price(mu=math.hypot(bound.mu, pure_mu(bound.pure)), leak=bound.leak)
        if bound.pure > 0:
            yield Price(bound.pure, bound.mu, bound.leak)


def _together(parts: Sequence[_Part], caps: Price, *, curves: bool) -> Iterable[Price]:
    """Yield prices of all parts together; ``curves`` prefers the curve of a part with closed forms."""
    by_curve = [part for part in parts if part.has_curve and (curves or not part.prices)]
    others = [part.prices for part in parts if part not in by_curve]
    curve = None
    if by_curve:
        curve = _Curve.create(sum((part.loss for part in by_curve), Loss()), caps.leak)
    for chosen in _choices(others):
        yield from _with_curve(sum(chosen, Price()), curve, caps)


def _choices(prices: Sequence[Sequence[Price]]) -> Iterable[tuple[Price, ...]]:
    """Yield choices of a price for each part: all of them, or two extreme ones for many parts."""
    if sum(len(one) > 1 for one in prices) <= _COMBINED_PARTS:
        yield from itertools.product(*prices)
        return
    yield tuple(min(one, key=lambda each: each.pure) for one in prices)
    yield tuple(max(one, key=lambda each: each.pure) for one in prices)


def _with_curve(others: Price, curve: _Curve | None, caps: Price) -> Iterable[Price]:
    """Return prices of a curve together with parts of known price."""
    if curve is None:
        return [others]
    return [_as_gaussian(others, curve, caps), _as_pure(others, curve, caps)]


def _as_gaussian(others: Price, curve: _Curve, caps: Price) -> Price:
    """Price a curve as a Gaussian mechanism plus delta mass, which together dominate it."""

    def room(share: float) -> tuple[float, float]:
        square = share * caps.mu * caps.mu - others.mu * others.mu
        return math.sqrt(max(square, 0.0)), share * caps.leak - others.leak

    low = others.share_of(caps)
    # Also try prices above the whole budget, for the error message of a refused release.
    high = next((top for top in (1.0, 8.0, 64.0) if low < top and curve.below(*room(top))), None)
    if high is None:
        return NO_PRICE
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if curve.below(*room(middle)) else (middle, high)
    mu, leak = room(high)
    return others + Price(mu=curve.min_mu(leak, mu), leak=leak)


def _as_pure(others: Price, curve: _Curve, caps: Price) -> Price:
    """Price a curve as an (ε₀, δ(ε₀))-DP mechanism, at the cheapest point."""
    prices = [
        others + Price(pure=x, leak=y) for x, y in zip(curve.epsilons, curve.deltas, strict=True)
    ]
    return min(prices, key=lambda one: one.share_of(caps), default=NO_PRICE)


@dataclass(frozen=True, eq=False)
class _Curve:
    """Points of a privacy curve, which is convex in e^ε and so below their chords."""

    epsilons: FloatArray  # (n,) increasing from 0
    deltas: FloatArray  # (n,) nonincreasing

    @staticmethod
    def create(loss: Loss, leak: float) -> _Curve:
        """Evaluate the curve of a loss up to an ε with δ at most ``leak``; empty if there is none."""
        if leak > 0:
            loss = loss.best_at(leak)
        ends = (loss.epsilon(share * leak) for share in _LEAST_LEAK_SHARES if leak > 0)
        last = next((end for end in ends if end <= _LARGEST_CURVE_EPSILON), None)
        if last is None:
            return _Curve(np.empty(0), np.empty(0))
        epsilons = np.linspace(0.0, last, _CURVE_POINTS)
        deltas = np.array([loss.delta(float(epsilon)) for epsilon in epsilons])
        # A valid δ at some ε is valid at every larger ε. NaN means an unknown δ.
        bounds = np.where(np.isnan(deltas), 1.0, deltas)
        return _Curve(epsilons, np.minimum.accumulate(bounds))

    @cached_property
    def _slopes(self) -> FloatArray:
        """(n−1,) the slopes of the chords over γ = e^ε, at most 0."""
        slopes: FloatArray = np.diff(self.deltas) / np.diff(np.exp(self.epsilons))
        return slopes

    def below(self, mu: float, leak: float) -> bool:
        """Return True if δ(ε) ≤ δ_G(ε; mu) + leak at every ε ≥ 0."""
        if not self.deltas.size or leak < 0 or not self.deltas[-1] <= leak:
            return False
        if mu <= 0:
            return bool(self.deltas[0] <= leak)
        # In γ the Gaussian curve is convex with slope −Φ(−μ/2 − ε/μ), so it is closest to a chord
        # where it is parallel to it, or else at the nearer end of the chord.
        with np.errstate(divide="ignore", invalid="ignore"):
            steep = np.minimum(-self._slopes, ndtr(0.0))
            nearest = -mu * (mu / 2 + ndtri(steep))
        at = np.clip(np.nan_to_num(nearest, nan=0.0), self.epsilons[:-1], self.epsilons[1:])
        chords = self.deltas[:-1] + self._slopes * (np.exp(at) - np.exp(self.epsilons[:-1]))
        smaller = mu * (1 - _RELATIVE_ROUNDING)
        curve = np.array([gaussian_delta(float(epsilon), smaller) for epsilon in at])
        return bool(np.all(chords <= curve * (1 - _RELATIVE_ROUNDING) + leak))

    def min_mu(self, leak: float, mu: float) -> float:
        """Return the smallest μ ≤ ``mu`` of a Gaussian curve above this one, rounded up."""
        low, high = 0.0, mu
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (low, middle) if self.below(middle, leak) else (middle, high)
        return high


# A replaced record can leave one account and enter another, so both are charged.
_ACCOUNTS_PER_REPLACED_RECORD = 2


def price_for_unit(
    guarantee: Guarantee,
    level: Level,
    cells: Partition | None,  # promised elements, or a user's records in any window
    relation: Relation,
    caps: Price,
    room: Price | None = None,  # available for this release; by default, all of ``caps``
) -> Price:
    """Return the price that a release charges to each promised unit it affects.

    Formal guarantee: for data that differ in one promised unit, H_γ ≤ H_γ(N(m, 1) ⊗ RR_e) + ℓ for
    every γ ≥ 0, in both orders. Source: docs/theory, "Scopes".
    """
    neighbours = neighbours_for_unit(guarantee, level, cells, relation)
    accounts = _accounts(guarantee, level, relation)
    price_per_account = price(
        guarantee.event,
        neighbours.relation,
        neighbours.unit,
        caps,
        None if room is None else room.part(1 / accounts),
        units=neighbours.units,
    )
    return price_per_account.times(accounts)


def neighbours_for_unit(
    guarantee: Guarantee, level: Level, cells: Partition | None, relation: Relation
) -> Neighbours:
    """Translate one promised unit into the change of the release's own units."""
    neighbours = Neighbours(1, relation, PLAIN_UNITS[level], None)
    if level == "element" and cells is not None:
        if cells.cells_in(guarantee.scope) == 1:
            # The scope is within one promised cell, so the element is all of a user's records.
            neighbours = replace(neighbours, unit=User())
        elif guarantee.level == "element" or guarantee.partition is not None:
            neighbours = _overlapping_elements(guarantee, cells, relation)
    if (
        isinstance(neighbours.unit, User)
        and guarantee.level == "element"
        and not _bounded(guarantee, neighbours)
    ):
        neighbours = _whole_user_elements(guarantee, neighbours.relation) or neighbours
    if not _bounded(guarantee, neighbours):
        raise ParameterError(
            f"the contribution of {_promised(level, cells)} to this release, which protects "
            f"{_protected(guarantee)}, is unbounded; use the promised unit, User(max_elements=…) "
            "(--unit user --max-elements N), or a region by where(…) with few elements per person."
        )
    return neighbours


def _overlapping_elements(guarantee: Guarantee, cells: Partition, relation: Relation) -> Neighbours:
    """Translate one promised element into the elements of the release that it overlaps."""
    if guarantee.partition is None:
        # Releases from arrays only have a description of the partition, so compare descriptions.
        if guarantee.elements == str(cells):
            return Neighbours(1, relation, Element(), None)
        raise ParameterError(
            f"the release protects elements of {guarantee.elements or 'no known partition'}, but "
            f"the promise is about {cells}, and the relation between their cells is unknown; use "
            "the same column name in both."
        )
    overlap = guarantee.partition.compared(cells, guarantee.scope)
    # Changing part of a block can move it anywhere, so treat it as a replacement of the block.
    if overlap is None:
        return Neighbours(1, "replace", User(), None)
    return Neighbours(overlap.cells, relation if overlap.whole else "replace", Element(), None)


def _whole_user_elements(guarantee: Guarantee, relation: Relation) -> Neighbours | None:
    """Translate a whole user into the largest number of elements a user can have in the scope."""
    max_cells = guarantee.partition and guarantee.partition.cells_in(guarantee.scope)
    return Neighbours(max_cells, relation, Element(), None) if max_cells else None


def _accounts(guarantee: Guarantee, level: Level, relation: Relation) -> int:
    """Return how many accounts one changed promised unit can affect."""
    can_leave_scope = level == "record" and relation == "replace" and not guarantee.scope.everything
    return _ACCOUNTS_PER_REPLACED_RECORD if can_leave_scope else 1


def _bounded(guarantee: Guarantee, neighbours: Neighbours) -> bool:
    """Return whether ε is finite for these neighbours, at least for a large δ."""
    loss = guarantee.event.loss(neighbours.units, neighbours.relation, neighbours.unit)
    return math.isfinite(min(loss.epsilon(delta) for delta in (0.5, 0.999)))


def _promised(level: Level, cells: Partition | None) -> str:
    if level == "element":
        return f"one user's records in one cell of the partition by {cells}"
    return f"one {level}"


def _protected(guarantee: Guarantee) -> str:
    elements = f" of {guarantee.partition or guarantee.elements}"
    return f"{guarantee.level}s{elements if guarantee.level == 'element' else ''}"
