"""Binomial and Poisson noise on integer sums, against exact divergences by enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import reduce

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, norm, poisson
from tests.refusals import refuses

from dpgrain.accounting import Event, Loss
from dpgrain.accounting.events.shuffling import Binomial, Poisson, _shifts
from dpgrain.accounting.losses.gaussian import gaussian_mu
from dpgrain.units import Element, Record

Array = NDArray[np.float64]
EPSILONS = [0.0, 0.1, 0.3, 0.6, 1.0, 1.5, 2.5, 4.0]
ROUNDING = 1e-12


def joint(law: Array, shifts: Sequence[int]) -> tuple[Array, Array]:
    """The joint laws of independent coordinates, and of the same shifted."""
    p = [np.append(law, np.zeros(k)) for k in shifts]
    q = [np.append(np.zeros(k), law) for k in shifts]

    def product(laws: list[Array]) -> Array:
        return reduce(lambda x, y: np.multiply.outer(x, y).ravel(), laws)

    return product(p), product(q)


def exact_deltas(law: Array, shifts: Sequence[int]) -> list[float]:
    """δ at each of EPSILONS, the larger of both orders."""
    p, q = joint(law, shifts)
    found = []
    for epsilon in EPSILONS:
        one, two = (np.maximum(x - math.exp(epsilon) * y, 0).sum() for x, y in ((p, q), (q, p)))
        found.append(float(max(one, two)))
    return found


def binomial(trials: int, probability: float) -> Array:
    law: Array = binom.pmf(np.arange(trials + 1), trials, probability)
    return law


def by_definition(law: Array, reach: int, leak: float) -> float:
    """max μ(k)/k, word by word."""
    below = np.append(0.0, np.cumsum(law))
    above = np.append(np.cumsum(law[::-1])[::-1], 0.0)
    found = 0.0
    for k in range(1, reach + 1):
        for t in range(1, law.size + k):
            a = above[t] / (1 - leak) if t < law.size else 0.0
            b = below[t - k] / (1 - leak) if t >= k else 0.0
            if a < 1 and b < 1:
                found = max(found, float(norm.isf(a) - norm.ppf(b)) / k)
    return found


SMALL = {
    "half": (120, 0.5, 4, 1e-4),
    "third": (150, 0.3, 5, 1e-3),
    "rare": (200, 0.1, 3, 1e-4),
    "one": (60, 0.6, 1, 1e-6),
    "few": (12, 0.5, 2, 1e-1),
}


@pytest.mark.parametrize("name", SMALL)
def test_ratio_agrees_with_its_definition(name: str) -> None:
    trials, probability, reach, leak = SMALL[name]
    event = Binomial(trials, probability, reach, 1, leak)
    exact = by_definition(binomial(trials, probability), reach, leak)
    assert event.ratio(reach) == pytest.approx(exact, rel=1e-8)
    assert event.ratio(reach) >= exact - ROUNDING


def test_shift_outside_the_support_costs_everything() -> None:
    # P(Bin < 4) = 0.008: whether anything falls below 4 distinguishes the neighbours.
    event = Binomial(100, 0.1, 4, 1, 1e-6)
    assert event.ratio(4) == math.inf
    assert event.epsilon(1e-3) == math.inf
    assert Binomial(100, 0.9, 4, 1, 1e-6).ratio(4) == math.inf
    # Unless it happens with less than the leak.
    chance = float(binom.cdf(3, 100, 0.1))
    assert Binomial(100, 0.1, 4, 1, 1.001 * chance).ratio(4) < math.inf
    assert Binomial(100, 0.1, 4, 1, 0.999 * chance).ratio(4) == math.inf
    assert Binomial(100, 0.9, 4, 1, 1.001 * chance).ratio(4) < math.inf
    assert Binomial(5, 0.5, 9, 1, 0.1).ratio(9) == math.inf


def test_many_coins_are_as_good_as_a_gaussian() -> None:
    users, coordinates, grid = 1000, 100, 100
    sd_wanted = (grid + math.sqrt(coordinates)) / gaussian_mu(1.0, 0.98e-6)
    event = Binomial(
        users * math.ceil(4 * sd_wanted**2 / users), 0.5, grid, coordinates, 0.02e-6 / coordinates
    )
    assert event.ratio(grid) * event.deviation == pytest.approx(1.0, abs=1e-4)
    assert event.epsilon(1e-6, relation="replace") == pytest.approx(1.0, abs=2e-3)
    assert event.deviation * 2 / grid == pytest.approx(9.3, abs=0.05)


SHIFTS = {
    "one": (4,),
    "two": (4, 4),
    "unequal": (5, 1),
    "three": (3, 2, 1),
    "ones": (1, 1, 1),
}
LAWS: dict[str, tuple[Array, Binomial | Poisson]] = {
    "half": (binomial(150, 0.5), Binomial(150, 0.5, 5, 1, 1e-4)),
    "third": (binomial(170, 0.3), Binomial(170, 0.3, 5, 1, 1e-3)),
    "poisson": (poisson.pmf(np.arange(130), 50.0), Poisson(50.0, 5, 1, 1e-4)),
}


def claims(event: Binomial | Poisson, shifts: Sequence[int]) -> list[float]:
    mu = event.ratio(max(shifts)) * math.hypot(*shifts)
    loss = Loss(mu=mu, leak=len(shifts) * event.leak)
    return [loss.delta(epsilon) for epsilon in EPSILONS]


@pytest.mark.proof("search", "Binomial", "Poisson")
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", SHIFTS)
def test_no_shift_exceeds_the_claim(law: str, name: str) -> None:
    masses, event = LAWS[law]
    exact, claimed = exact_deltas(masses, SHIFTS[name]), claims(event, SHIFTS[name])
    assert all(x <= y + ROUNDING for x, y in zip(exact, claimed, strict=True))
    assert exact[2] >= 0.5 * claimed[2]


@pytest.mark.parametrize("relation", ["replace", "zero_out"])
def test_rounded_vectors_of_users_are_covered(relation: str) -> None:
    # Real vectors of the largest norm, each coordinate rounded by a number that neighbours share.
    event = Binomial(300, 0.5, 4, 2, 1e-4)
    length = 4.0 if relation == "replace" else 2.0
    law, seen = binomial(300, 0.5), set()
    for angle, u, v in itertools.product(
        np.linspace(0, math.pi / 2, 7), (0.0, 0.3, 0.97), (0.1, 0.8)
    ):
        moved = length * np.array([math.cos(angle), math.sin(angle)])
        start = np.array([u, v])
        seen.add(tuple(int(x) for x in np.floor(start + moved) - np.floor(start)))
    assert (5, 1) in seen or (3, 3) in seen or relation == "zero_out"
    claimed = [event.delta(epsilon, relation=relation) for epsilon in EPSILONS]  # type: ignore[arg-type]
    for shifts in seen:
        exact = exact_deltas(law, shifts)
        assert all(x <= y + ROUNDING for x, y in zip(exact, claimed, strict=True))


def test_rounds_and_coordinates_add_up() -> None:
    one = Binomial(10**5, 0.5, 50, 64, 1e-9)
    loss = Binomial(10**5, 0.5, 50, 64, 1e-9, rounds=9).loss()
    assert loss.mu == pytest.approx(3 * one.loss().mu)
    assert loss.leak == pytest.approx(9 * 64 * 1e-9)
    moved = 25 + math.sqrt(64)
    assert one.loss().mu == pytest.approx(one.ratio(25) * moved)
    assert one.loss(relation="replace").mu == pytest.approx(one.ratio(50) * (50 + 8))
    # In one coordinate rounding cannot take it beyond the grid.
    assert Binomial(10**5, 0.5, 50, 1, 1e-9).loss(relation="replace").mu == one.ratio(50) * 50


@pytest.mark.proof("search", "Poisson")
@pytest.mark.parametrize("users", [2, 4])
@pytest.mark.parametrize(("mean", "grid"), [(200.0, 20), (60.0, 6)])
def test_users_shifting_one_coordinate_together_are_covered(
    mean: float, grid: int, users: int
) -> None:
    event = Poisson(mean, grid, coordinates=1, leak=1e-4)
    law: Array = poisson.pmf(np.arange(2000), mean)
    (p, q), most = joint(law, [users * grid]), 3.0 * users * grid / math.sqrt(mean)
    for epsilon in np.linspace(0.0, most**2, 60):
        exact = max(
            float(np.maximum(x - math.exp(epsilon) * y, 0).sum()) for x, y in ((p, q), (q, p))
        )
        assert exact <= event.delta(epsilon, units=users, relation="replace") + ROUNDING


def test_users_are_rounded_one_by_one() -> None:
    event = Binomial(10**5, 0.5, 20, 16, 1e-9)
    assert event.loss(3, "replace").mu == pytest.approx(event.ratio(60) * 3 * (20 + 4))
    for unit in (Element(), Record()):
        assert event.loss(5, "zero_out", unit) == event.loss(1, "replace")


def test_probabilities_are_accurate_far_from_the_mean() -> None:
    mpmath.mp.dps = 40
    event = Binomial(10**6, 0.3, 10, 1, 1e-9)
    places = np.array([0.0, 1.0, 17.0, 250_000.0, 299_000.0, 300_001.0, 330_000.0, 1e6])
    p = mpmath.mpf(0.3)
    found = event._noise.log_mass(places)
    for x, log in zip(places, found, strict=True):
        exact = mpmath.loggamma(10**6 + 1) - mpmath.loggamma(x + 1)
        exact += (
            -mpmath.loggamma(10**6 - x + 1) + x * mpmath.log(p) + (10**6 - x) * mpmath.log1p(-p)
        )
        assert abs(float(log - exact)) <= 2.0**-49 * (1 + abs(x - 3e5)) + 1e-12
    mean = mpmath.mpf(1234.5)
    places = np.array([0.0, 3.0, 16.0, 1000.0, 1234.0, 2000.0])
    for x, log in zip(places, Poisson(1234.5, 1, 1, 1e-9)._noise.log_mass(places), strict=True):
        exact = x * mpmath.log(mean) - mean - mpmath.loggamma(x + 1)
        assert abs(float(log - exact)) <= 2.0**-49 * (1 + abs(x - 1234.5)) + 1e-12


def test_large_numbers() -> None:
    event = Binomial(10**7, 0.5, 1000, 100, 1e-9)
    assert event.ratio(1000) * event.deviation == pytest.approx(1.0, abs=1e-4)
    # Some of the very large shifts represent all.
    wide = event.ratio(40_000)
    assert event.ratio(1000) <= wide <= 1.01 * event.ratio(2000) + 0.4 / event.deviation
    assert len(_shifts(40_000)) < 9000


@pytest.mark.slow
def test_some_of_many_shifts_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = by_definition(binomial(600, 0.5), 90, 1e-3)
    monkeypatch.setattr("dpgrain.accounting.events.shuffling._EVERY_SHIFT", 20)
    found = Binomial(600, 0.5, 90, 1, 1.0000001e-3).ratio(90)
    assert exact - 1e-9 <= found <= 1.06 * exact
    monkeypatch.setattr("dpgrain.accounting.events.shuffling._shifts", lambda reach: [10, reach])
    one = by_definition(binomial(600, 0.5), 10, 1e-3)
    assert Binomial(600, 0.5, 90, 1, 1.0000002e-3).ratio(12) >= 9.9 * one


def test_counts_equal_in_floating_point_are_rejected() -> None:
    with refuses("trials", "must be at most 2"):
        Binomial(10**17, 1 - 2.0**-40, 8, 1, 1e-9)
    with refuses("mean", "must be at most 2"):
        Poisson(1e16, 8, 1, 1e-9)
    one, other = (Binomial(10**14, p, 8, 1, 1e-9).ratio(8) for p in (1e-9, 1 - 1e-9))
    assert one == pytest.approx(other, rel=1e-4)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Binomial(0, 0.5, 1, 1, 1e-6), "trials"),
        (lambda: Binomial(10, 1.0, 1, 1, 1e-6), "probability"),
        (lambda: Binomial(10, 0.5, 0, 1, 1e-6), "grid"),
        (lambda: Binomial(10, 0.5, 1, 1, 0.5), "leak"),
        (lambda: Binomial(10, 0.5, 1, 1, 0.0), "leak"),
        (lambda: Poisson(-1.0, 1, 1, 1e-6), "mean"),
    ],
    ids=["trials", "probability", "grid", "large-leak", "no-leak", "mean"],
)
def test_wrong_parameters_are_named(make: Callable[[], Event], named: str) -> None:
    with refuses(named):
        make()
