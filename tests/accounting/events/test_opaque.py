"""Opaque mechanisms, known only by their guarantee: composition and groups."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from dpgrain.accounting import (
    RDP,
    ZCDP,
    ApproximateDP,
    Contribution,
    Event,
    Gaussian,
    PureDP,
    SampledGaussian,
    gaussian_delta,
)
from dpgrain.accounting.losses.curves import GroupCurve
from dpgrain.units import Element, Level, Record, Relation, Unit, User

Array = NDArray[np.float64]


def test_basic_composition_adds_epsilons_and_deltas() -> None:
    both = ApproximateDP(0.5, 1e-6) + ApproximateDP(0.25, 1e-7)
    assert both.epsilon(1.1e-6) == pytest.approx(0.75)
    assert both.epsilon(1.09e-6) == math.inf
    # The short paper's δᵢ/(1 + e^εᵢ) is less than is true: both leak outright.
    shares = sum(d / (1 + math.exp(e)) for e, d in ((0.5, 1e-6), (0.25, 1e-7)))
    assert both.delta(10.0) == pytest.approx(1.1e-6)
    assert shares < both.delta(10.0)


def test_group_privacy_of_an_approximate_mechanism() -> None:
    # δ_k = Σ_{i<k} e^{iε}δ, the k-fold hybrid argument written out.
    epsilon, delta = 0.3, 1e-6
    event = ApproximateDP(epsilon, delta)
    for k in range(1, 12):
        steps = sum(delta * math.exp(i * epsilon) for i in range(k))
        assert event.loss(k).leak == pytest.approx(steps, rel=1e-12)
        assert event.loss(k).pure == pytest.approx(k * epsilon)
    assert ApproximateDP(0.0, 1e-6).loss(5).leak == pytest.approx(5e-6)
    assert ApproximateDP(30.0, 1e-6).loss(100).leak == 1.0
    # A replacement is a removal and an addition.
    assert event.loss(relation="replace") == event.loss(2)
    assert ApproximateDP(epsilon, delta, relation="replace").loss(relation="replace") == (
        event.loss()
    )


def test_finer_unit_inside_a_block_is_charged_as_replacement() -> None:
    event = PureDP(0.5)
    assert event.epsilon(unit=Element()) == event.epsilon(unit=Record()) == 1.0
    # The person becomes another one, however many of the person's parts change.
    assert PureDP(0.5).epsilon(units=7, unit=Record()) == 1.0
    assert PureDP(0.5).epsilon(units=7, unit=Element(), relation="replace") == 1.0
    replaced = PureDP(0.5, relation="replace")
    assert replaced.epsilon(units=7, unit=Record(), relation="replace") == 0.5
    assert PureDP(0.5, level="element").epsilon(units=2, unit=Record()) == 2.0
    assert PureDP(0.5, level="element").epsilon(unit=User()) == math.inf
    assert PureDP(0.5, level="element").epsilon(unit=User(max_elements=3)) == 1.5
    assert PureDP(0.5, level="record").epsilon(unit=Element()) == math.inf
    block = Gaussian(3.0, Contribution(block="user"))
    assert block.loss(unit=Element()).mu == pytest.approx(math.sqrt(2) / 3)


# -- groups: chains of neighbours ---

# The protected unit and relation, the requested unit, and the number of protected steps between the
# two data sets.
CHAINS: list[tuple[Level, Relation, int, Unit, Relation, int]] = [
    ("user", "zero_out", 1, User(), "zero_out", 1),
    ("user", "zero_out", 3, User(), "zero_out", 3),
    ("user", "zero_out", 5, User(), "zero_out", 5),
    ("user", "zero_out", 2, User(), "replace", 4),
    ("user", "replace", 3, User(), "replace", 3),
    # Data inside a user become other data: once, however many parts change.
    ("user", "replace", 1, Element(), "zero_out", 1),
    ("user", "zero_out", 1, Record(), "replace", 2),
    # Elements of a user; one that moves is left and entered.
    ("element", "zero_out", 1, User(max_elements=3), "zero_out", 3),
    ("element", "replace", 1, User(max_elements=3), "replace", 6),
    ("element", "replace", 2, Record(), "replace", 4),
]
EPSILONS = (0.0, 0.2, 0.5, 0.9, 1.4, 2.0, 3.0)


def chains(steps: int, epsilon: float, delta: float) -> Iterator[tuple[float, float]]:
    """Probabilities of an outcome along chains of neighbours that are exactly (ε, δ)-DP."""
    even = 1 / (1 + math.exp(steps * epsilon))
    for last in (0.0, 1e-3, 0.05, even, 0.5, 0.8, 1 - delta):
        chance = last
        for _ in range(steps):
            rest = (1 - chance - delta) * math.exp(-epsilon)
            chance = min(math.exp(epsilon) * chance + delta, 1 - max(rest, 0.0))
        yield chance, last


@pytest.mark.proof("search", "ApproximateDP")
@pytest.mark.parametrize(("level", "relation", "units", "unit", "asked", "steps"), CHAINS)
def test_no_chain_of_neighbours_exceeds_the_group_cost(
    level: Level, relation: Relation, units: int, unit: Unit, asked: Relation, steps: int
) -> None:
    for epsilon, delta in itertools.product((0.1, 0.4), (0.0, 1e-3)):
        loss = ApproximateDP(epsilon, delta, level, relation).loss(units, asked, unit)
        tightest = 0.0
        for one, other in chains(steps, epsilon, delta):
            for at in (*EPSILONS, steps * epsilon):
                found = max(one - math.exp(at) * other, (1 - other) - math.exp(at) * (1 - one), 0.0)
                claimed = loss.delta(at)
                assert found <= claimed + 1e-12
                tightest = max(tightest, found / claimed if claimed else 0.0)
        # Without a δ no chain of two outcomes is as far apart as randomised response of kε.
        assert tightest > (0.99 if delta else 0.5)


@pytest.mark.proof("search", "ZCDP", "RDP")
@pytest.mark.parametrize(("level", "relation", "units", "unit", "asked", "steps"), CHAINS)
def test_no_chain_of_gaussians_exceeds_the_known_divergences(
    level: Level, relation: Relation, units: int, unit: Unit, asked: Relation, steps: int
) -> None:
    mu = 0.3
    orders = tuple(1 + 2.0 ** (i / 2) for i in range(-4, 16))
    known = tuple(order * mu**2 / 2 for order in orders)
    events: list[Event] = [ZCDP(mu**2 / 2, level, relation), RDP(orders, known, level, relation)]
    for event in events:
        loss = event.loss(units, asked, unit)
        # Each step changes the mean by the most that the known divergences allow.
        assert all(order * (steps * mu) ** 2 / 2 <= most * (1 + 1e-9) for order, most in loss.renyi)
        for at in EPSILONS:
            assert gaussian_delta(at, steps * mu) <= loss.delta(at) + 1e-12
    assert events[0].loss(units, asked, unit).concentrated == pytest.approx((steps * mu) ** 2 / 2)


def divergence(one: Array, other: Array, order: float) -> float:
    """The Rényi divergence of two laws on a few points."""
    logs = order * np.log(one) + (1 - order) * np.log(other)
    return float(np.logaddexp.reduce(logs) / (order - 1))


def on_points(*means: tuple[float, float]) -> Array:
    """A mixture ((weight, mean), …) of unit Gaussians, merged on 400 points."""
    ends = np.concatenate([[-np.inf], np.linspace(-8.0, 12.0, 399), [np.inf]])
    mass: Array = sum(weight * np.diff(ndtr(ends - mean)) for weight, mean in means)
    return mass


def odds(epsilon: float) -> tuple[Array, Array]:
    """The two laws of randomised response."""
    told = np.array([math.exp(epsilon), 1.0]) / (1 + math.exp(epsilon))
    return told, told[::-1]


# Mechanisms of one person, each with two laws of neighbours on few points.
BESIDE: dict[str, tuple[Event, tuple[Array, Array]]] = {
    "pure": (PureDP(0.7), odds(0.7)),
    "much pure": (PureDP(3.0), odds(3.0)),
    "gaussian": (
        Gaussian(2.0, Contribution("user")),
        (on_points((1.0, 0.5)), on_points((1.0, 0.0))),
    ),
    "sampled": (
        SampledGaussian(0.5, 0.1, level="user", sampling="users"),
        (on_points((0.1, 2.0), (0.9, 0.0)), on_points((1.0, 0.0))),
    ),
    "zcdp": (ZCDP(0.02), (on_points((1.0, 0.2)), on_points((1.0, 0.0)))),
    "leaking": (
        ApproximateDP(0.2, 1e-3),
        (
            np.array([1e-3, *(1 - 1e-3) * odds(0.2)[0], 0.0]),
            np.array([0.0, *(1 - 1e-3) * odds(0.2)[1], 1e-3]),
        ),
    ),
}


def in_bins(one: Array, other: Array) -> list[Array]:
    """Two distributions with outcomes of similar odds merged, which loses little."""
    loss = np.log(np.maximum(one, 1e-300)) - np.log(np.maximum(other, 1e-300))
    bins = np.digitize(loss, np.linspace(-20.0, 20.0, 2000))
    return [np.bincount(bins, law).astype(np.float64) for law in (one, other)]


def zcdp_of(one: Array, other: Array) -> float:
    """Smallest ρ of two distributions on a few points, over a thousand orders."""
    orders = 1 + np.geomspace(1e-3, 1e3, 1000)
    both = ((one, other), (other, one))
    return 1.001 * max(divergence(*pair, float(at)) / float(at) for at in orders for pair in both)


@pytest.mark.slow
@pytest.mark.proof("search", "ZCDP")
@pytest.mark.parametrize(
    "names", [names for n in range(4) for names in itertools.combinations(BESIDE, n)], ids=str
)
def test_no_distribution_costs_more_than_its_zcdp_when_composed(names: tuple[str, ...]) -> None:
    rng, tightest = np.random.default_rng(len(names)), 0.0
    for scale in (0.3, 2.0):
        mine = rng.dirichlet(np.full(3, 2.0), 2) + 0.02
        mine[1] = mine[0] * np.exp(scale * rng.normal(size=3))
        mine /= mine.sum(axis=1, keepdims=True)
        event: Event = ZCDP(zcdp_of(*mine), count=1)
        laws = [mine]
        for name in names:
            event = event + BESIDE[name][0]
            laws.append(np.stack(BESIDE[name][1]))
        for one, other in ((0, 1), (1, 0)):
            # The outcomes of all but the last two laws, each with its chance under both neighbours.
            chances = [np.ones(1), np.ones(1)]
            for law in laws:
                chances = [
                    np.multiply.outer(held, law[at]).ravel()
                    for held, at in zip(chances, (one, other), strict=True)
                ]
                if chances[0].size > 2_000:
                    chances = in_bins(*chances)
            for at in EPSILONS:
                found = float(np.maximum(chances[0] - math.exp(at) * chances[1], 0.0).sum())
                claimed = event.delta(at)
                assert found <= claimed * (1 + 1e-9) + 1e-12
                tightest = max(tightest, found / claimed)
    assert tightest > 0.05


@pytest.mark.proof("search", "RDP")
@pytest.mark.parametrize("steps", [2, 3, 4, 7])
def test_no_chain_of_distributions_exceeds_the_known_divergences(
    steps: int,
) -> None:
    rng, tightest = np.random.default_rng(steps), 0.0
    for _ in range(300):
        chain = rng.dirichlet(np.full(3, rng.choice([0.5, 2.0])), steps + 1) + 1e-12
        if rng.random() < 0.5:
            # The laws of one point's odds that grow by the same factor at each step.
            odds = np.exp(rng.normal() + rng.exponential(0.5) * np.arange(steps + 1))
            chain = np.stack([odds, np.ones(steps + 1)], axis=1)
        chain /= chain.sum(axis=1, keepdims=True)
        orders = tuple(sorted(1 + rng.exponential(2 * steps, rng.integers(1, 9))))
        pairs = [*itertools.pairwise(chain), *itertools.pairwise(chain[::-1])]
        known = tuple(max(divergence(*pair, order) for pair in pairs) for order in orders)
        for order, most in RDP(orders, known).loss(steps).renyi:
            found = divergence(chain[0], chain[-1], order)
            assert found <= most * (1 + 1e-9)
            tightest = max(tightest, found / most)
    assert tightest > 0.5


def test_steps_with_known_divergences_have_exact_cost() -> None:
    """For a Gaussian with all orders known, k steps equal one of k times the distance."""
    orders = tuple(float(order) for order in range(2, 200))
    event = RDP(orders, tuple(order * 0.01 for order in orders))
    for steps in (2, 3, 7, 50):
        for order, value in event.loss(steps).renyi:
            # Below the smallest known order its value stands for all.
            if order * steps >= steps + 2:
                assert value == pytest.approx(order * steps**2 * 0.01, rel=1e-9)
    # For many steps an integral bounds the sum, and is only slightly larger.
    many = RDP((1e5,), (0.3,))
    exact = sum(1e5 / (1e5 - j) for j in range(50_000)) * 0.3
    assert exact <= many.loss(50_000).renyi[0][1] <= exact * (1 + 1e-4)


@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_groups_cost_no_more_than_by_the_unit_curve(delta: float) -> None:
    event = RDP((2.0, 4.0, 8.0, 16.0, 32.0), (0.002, 0.002, 0.009, 0.04, 0.6))
    for steps in (2, 8, 16):
        claimed = event.epsilon(delta, units=steps)
        assert claimed <= GroupCurve(event.loss(), steps).epsilon(delta) < math.inf
