"""No draw of a charge differs from a neighbour's by more than its event claims.

Each type of draw is repeated on two inputs that one unit connects, at a radius other than 1. The
shares of outcomes bound δ from below at several ε, for any noise distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import beta
from tests.charges import charge_of

from dpgrain.accounting import (
    RDP,
    ZCDP,
    AdaptiveSelection,
    ApproximateDP,
    BoundedRange,
    Event,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    Loss,
    Participation,
    Selection,
    TruncatedGeometric,
)
from dpgrain.noise import SystemSource
from dpgrain.publishing.charge import Charge

Array = NDArray[np.float64]

# A bound fails by chance with at most this probability.
CHANCE = 1e-8
# Draws of sums, which run together, and of choices, which run one call at a time.
MANY, CALLS = 400_000, 6_000
RADIUS = 2.0**20


class Audited(NamedTuple):
    """An event, the inputs of its draws on two neighbours, and the draw function.

    Args:
        tight: the share of the claimed δ reached at some ε.
    """

    event: Event
    one: Any
    two: Any
    draw: Callable[[Any, Any], Array]
    tight: float
    units: int = 1


def sums(part: Any, value: float) -> Array:
    given = np.full(MANY, round(value * RADIUS), dtype=np.int64)
    return np.floor(charge_of(part, SystemSource()).noisy(part, given, RADIUS) * (100 / RADIUS))


def of_callers(sd: float, rounds: int = 1) -> Callable[[Any, float], Array]:
    """Sums of the rounds of a custom mechanism, charged by its stated properties."""
    one = Gaussian(sd)
    return lambda _, value: np.sum([sums(one, value) for _ in range(rounds)], axis=0)


def names(part: Selection | AdaptiveSelection, count: float) -> Array:
    given = np.full(MANY, round(count * RADIUS), dtype=np.int64)
    named = charge_of(part, SystemSource()).select(part, given, RADIUS, 1 / RADIUS)[1]
    return named.astype(np.float64)


def counts(part: TruncatedGeometric, count: int) -> Array:
    given = np.full(MANY, count, dtype=np.int64)
    noisy, named = charge_of(part, SystemSource()).truncated(part, given)
    return np.where(named, noisy, -1).astype(np.float64)


def choices(choose: Callable[[Charge, Any, NDArray[np.int64]], int]) -> Callable[[Any, Any], Array]:
    def drawn(part: Any, scores: Sequence[int]) -> Array:
        given = np.array(scores, dtype=np.int64) * round(RADIUS)
        source = SystemSource()
        return np.array([choose(charge_of(part, source), part, given) for _ in range(CALLS)], float)

    return drawn


ordered = choices(lambda charge, part, scores: int(charge.order(part, scores, RADIUS)[0]))
flipped = choices(lambda charge, part, scores: charge.flip(part, scores, RADIUS))
AGAIN = AdaptiveSelection(0.7, 2.5, 2.0, 8.0, 4.0, 1)
LONE, CUT = Selection(0.7, 2.5, 1), TruncatedGeometric(0.7, 3)
ORDERS = tuple(1 + 2.0 ** (i / 2) for i in range(-4, 14))
AUDITED = {
    "gaussian": Audited(Gaussian(1.0), 1.0, 0.0, sums, 0.93),
    "laplace": Audited(Laplace(1.0), 1.0, 0.0, sums, 0.75),
    "an item of one holder": Audited(LONE, 1.0, 0.0, names, 0.45),
    "an item at the threshold": Audited(LONE, 3.0, 2.0, names, 0.92),
    "an item of a second round": Audited(AGAIN, 3.0, 2.0, names, 0.92),
    "a count of one holder": Audited(CUT, 1, 0, counts, 0.9),
    "a count of many": Audited(CUT, 9, 8, counts, 0.92),
    "exponential mechanism": Audited(
        ExponentialMechanism(1.0, one_way=True), [1, 1], [0, 1], ordered, 0.5
    ),
    "either way": Audited(ExponentialMechanism(2.0), [1, 0], [0, 1], ordered, 0.5),
    "best items": Audited(BoundedRange(1.0), [1, 1], [0, 1], ordered, 0.6),
    "permute and flip": Audited(ApproximateDP(1.0), [1, 1], [0, 1], flipped, 0.5),
    "zcdp": Audited(ZCDP(1 / 18), 3.0, 0.0, of_callers(3.0), 0.25, units=3),
    "rdp": Audited(
        RDP(ORDERS, tuple(order / 18 for order in ORDERS)), 3.0, 0.0, of_callers(3.0), 0.1, units=3
    ),
    "passes": Audited(Participation(2.0, 2, count=2), 1.0, 0.0, of_callers(2.0, 4), 0.93),
}


def outcomes(one: Array, two: Array) -> Iterator[tuple[int, int]]:
    """Frequencies of some outcomes on each input: at or above, below, and equal to a value."""
    both = np.unique(np.concatenate([one, two]))
    for value in np.unique(np.quantile(both, np.linspace(0, 1, 40), method="nearest")):
        for mine, theirs in ((one, two), (two, one)):
            yield int((mine >= value).sum()), int((theirs >= value).sum())
            yield int((mine < value).sum()), int((theirs < value).sum())
            yield int((mine == value).sum()), int((theirs == value).sum())


def found(one: Array, two: Array, loss: Loss) -> list[float]:
    """Lower bounds on δ over the claimed δ, at several ε with a claim."""
    size = len(one)
    hits, false = np.array(list(outcomes(one, two)), dtype=np.float64).T
    low = np.nan_to_num(beta.ppf(CHANCE, hits, size - hits + 1))
    high = np.nan_to_num(beta.ppf(1 - CHANCE, false + 1, size - false), nan=1.0)
    return [
        float((low - np.exp(epsilon) * high).max()) / max(loss.delta(epsilon), 1e-6)
        for epsilon in (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.01, 1.5, 2.0, 3.0, 4.0)
    ]


@pytest.mark.proof(
    "audit", "Gaussian", "Laplace", "Selection", "TruncatedGeometric", "ExponentialMechanism",
    "BoundedRange", "ApproximateDP", "ZCDP", "RDP", "Participation", "AdaptiveSelection",
)  # fmt: skip
@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("name", AUDITED)
def test_audit_of_draws(name: str) -> None:
    event, one, two, draw, tight, units = AUDITED[name]
    ratios = found(draw(event, one), draw(event, two), event.loss(units))
    assert tight <= max(ratios) <= 1.0, ratios
