"""The pairs of docs/theory, "Sampling", against a search for worse neighbours."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracle import (
    Mixture,
    at_least,
    binomial,
    gaussian,
    hockey_stick,
    hockey_sticks,
    participation,
    rounds,
    sampled,
    solve,
    subsets,
)

from dpgrain.accounting import SampledGaussian
from dpgrain.accounting.losses.curves import GroupCurve
from dpgrain.accounting.losses.loss import Loss
from dpgrain.accounting.losses.pairs import GramPair, ResponsePair, binomial_weights

Array = NDArray[np.float64]

GAMMAS = (0.0, 0.4, 1.0, 1.5, math.e, 8.0)
# Error of the oracle's sums.
ERROR = 2e-5


def somewhere(rng: np.random.Generator, radius: float) -> Array:
    """A vector of the plane of at most this length, half of the time of exactly this length."""
    turn = rng.uniform(0, 2 * math.pi)
    length = radius * (1.0 if rng.random() < 0.5 else rng.random())
    return length * np.array([math.cos(turn), math.sin(turn)])


def of(rate: float, vector: Array) -> Mixture:
    return sampled(rate, vector.tolist())


def curve(p: Mixture, q: Mixture, sd: float, *, points: int = 1200) -> Array:
    """The hockey-sticks at all of ``GAMMAS``."""
    return np.array(hockey_sticks(p, q, sd, GAMMAS, points=points))


def test_the_oracle_knows_the_gaussian() -> None:
    p, q = [(1.0, [1.0])], [(1.0, [0.0])]
    for epsilon in (0.0, 0.5, 2.0, 5.0):
        assert hockey_stick(p, q, 2.0, math.exp(epsilon)) == pytest.approx(
            gaussian(epsilon, 0.5), abs=1e-7
        )
        assert rounds(p, q, 2.0, 4, math.exp(epsilon)) == pytest.approx(
            gaussian(epsilon, 1.0), abs=1e-4
        )
    true = solve(lambda e: gaussian(e, 1.0), 1e-5)
    assert true - 1e-3 < at_least(p, q, 10.0, 100, 1e-5, points=4000) <= true
    # Participation in every round, or in none.
    assert participation(1.0, 1.0, 4, 0.5) == pytest.approx(gaussian(1.0, 1.0))
    assert participation(1.0, 1e-12, 4, 0.5) < 1e-11


def test_a_known_gaussian_in_the_plane() -> None:
    p, q = [(1.0, [0.6, 0.8])], [(1.0, [0.0, 0.0])]
    for gamma in (1.0, math.e):
        assert hockey_stick(p, q, 1.0, gamma) == pytest.approx(
            gaussian(math.log(gamma), 1.0), abs=ERROR
        )


@pytest.mark.parametrize("rate", [0.01, 0.2, 0.7])
@pytest.mark.parametrize("sd", [0.6, 1.5, 4.0])
def test_one_sampled_vector_for_another(rate: float, sd: float) -> None:
    # ‖a‖ ≤ r, ‖a'‖ ≤ s: the worst are opposite, of full length, for every γ ≥ 0.
    rng = np.random.default_rng(1)
    for r, s in ((1.0, 1.0), (1.0, 0.0), (2.0, 1.0)):
        worst = curve(sampled(rate, [r]), sampled(rate, [-s]), sd)
        for _ in range(4):
            p, q = of(rate, somewhere(rng, r)), of(rate, somewhere(rng, s))
            assert (curve(p, q, sd, points=400) <= worst + ERROR).all()


def test_the_closed_form_of_a_replaced_element() -> None:
    from scipy.special import ndtr

    for rate, sd in ((0.01, 0.8), (0.3, 1.0), (0.9, 3.0)):
        for gamma in (0.2, 0.9, 1.0, 1.1, 3.0, 20.0):
            c = (1 - rate) * (gamma - 1) * math.exp(1 / (2 * sd**2)) / rate
            root = math.sqrt(c * c + 4 * gamma)
            x = sd**2 * math.log((c + root) / 2 if c >= 0 else 2 * gamma / (root - c))
            delta = rate * (ndtr((1 - x) / sd) - gamma * ndtr(-(x + 1) / sd)) + (1 - rate) * (
                1 - gamma
            ) * ndtr(-x / sd)
            p, q = sampled(rate, [1.0]), sampled(rate, [-1.0])
            assert delta == pytest.approx(hockey_stick(p, q, sd, gamma), abs=1e-7)


@pytest.mark.parametrize("units", [2, 3])
def test_several_elements_sampled_one_by_one(units: int) -> None:
    rng = np.random.default_rng(units)
    for rate, sd in ((0.1, 1.0), (0.5, 2.0)):
        for emptied in (False, True):
            there = [somewhere(rng, 1.0) for _ in range(units)]
            back = [0 * v if emptied else somewhere(rng, 1.0) for v in there]
            p, q = (subsets(rate, [v.tolist() for v in vs]) for vs in (there, back))
            worst = binomial(rate, units, 1.0), binomial(rate, units, 0.0 if emptied else -1.0)
            assert (curve(p, q, sd, points=400) <= curve(*worst, sd) + ERROR).all()
            mirrored = [(w, [-x[0]]) for w, x in worst[1]], [(w, [-x[0]]) for w, x in worst[0]]
            assert (curve(q, p, sd, points=400) <= curve(*mirrored, sd) + ERROR).all()


@pytest.mark.parametrize("relation", ["replace", "zero_out"])
@pytest.mark.parametrize(("held", "units"), [(1, 1), (2, 1), (4, 1), (3, 2)])
def test_users_sampled_with_all_their_elements(held: int, units: int, relation: str) -> None:
    rng = np.random.default_rng(held * 10 + units)
    kept = held - units
    other = held if relation == "replace" else kept
    for rate, sd in ((0.05, 0.5 * held), (0.5, 1.0 * held)):
        lines = [
            curve(sampled(rate, [float(a)]), sampled(rate, [-float(b)]), sd)
            for a, b in ((held, other), (other, held))
        ]
        for _ in range(3):
            common, there = somewhere(rng, kept), somewhere(rng, units)
            back = somewhere(rng, units) if relation == "replace" else 0 * there
            p, q = of(rate, common + there), of(rate, common + back)
            t = float(rng.choice([0.1, 0.5, 1.0, 2.0]))
            r, w = kept * math.sqrt(1 + 1 / t), units * math.sqrt(1 + t)
            lower = -w if relation == "replace" else 0.0
            plane = sampled(rate, [r, w]), sampled(rate, [r, lower])
            for pair, line, both in (((p, q), lines[0], plane), ((q, p), lines[1], plane[::-1])):
                found = curve(*pair, sd, points=400)
                assert (found <= line + ERROR).all()
                assert (found <= curve(*both, sd, points=400) + ERROR).all()


@pytest.mark.parametrize("emptied", [False, True])
def test_users_sampled_with_elements_on_disjoint_coordinates(emptied: bool) -> None:
    # k of at most M: the rest is orthogonal, and one pair is attained.
    rng = np.random.default_rng(5)
    for rate, sd, held, units in ((0.1, 1.0, 2, 1), (0.4, 2.0, 5, 2)):
        rest, own = math.sqrt(held - units), math.sqrt(units)
        worst = sampled(rate, [rest, own]), sampled(rate, [rest, 0.0 if emptied else -own])
        bounds = [curve(*pair, sd, points=400) for pair in (worst, worst[::-1])]
        for _ in range(4):
            common = rest * (1.0 if rng.random() < 0.5 else rng.random())
            there = own * rng.uniform(-1, 1)
            back = 0.0 if emptied else own * rng.uniform(-1, 1)
            p, q = sampled(rate, [common, there]), sampled(rate, [common, back])
            for pair, bound in zip(((p, q), (q, p)), bounds, strict=True):
                assert (curve(*pair, sd, points=400) <= bound + ERROR).all()


@pytest.mark.slow
def test_one_of_ten_elements_with_sampled_users() -> None:
    # Docs/theory, "Users are drawn": the element-level paper's run with one replaced element.
    rate, sd, count, delta, held = 0.0125, 7.94, 40_000, 5e-5, 10
    event = SampledGaussian(sd, rate, count, sampling="users")
    reported = event.epsilon(delta, relation="replace", max_elements=held)
    assert reported == pytest.approx(10.45, abs=0.005)
    # The pairs 3 and 2, at their best t.
    stretched, size = math.sqrt(1 + 1 / math.sqrt(2)) / sd, math.sqrt(1 + math.sqrt(2)) / sd
    for staying, found, off in ((held - 1, 11.93, 0.005), (held, 14.51, 0.01)):
        pair = GramPair(rate, staying * stretched, size, -size)
        assert Loss(pairs=((pair, count),)).epsilon(delta) == pytest.approx(found, abs=off)
    # All ten vectors are equal, and one is exchanged for its opposite.
    p, q = sampled(rate, [10.0]), sampled(rate, [8.0])
    assert 7.43 < at_least(p, q, sd, count, delta, points=8000) < reported


def test_zeroed_element_is_not_covered_by_the_zeroed_user() -> None:
    # Two elements, one of them emptied. The other one is not in every round either: no ratio of
    # N(0) to (1-q)N(0) + qN(2) exceeds 1/(1-q), but the neighbours' ratio does.
    rate, sd, gamma = 0.1, 0.5, math.exp(3.0)
    there, back = sampled(rate, [1.0, 1.0]), sampled(rate, [1.0, 0.0])
    assert hockey_stick(sampled(rate, [0.0]), sampled(rate, [2.0]), sd, gamma) == 0.0
    found = hockey_stick(back, there, sd, gamma)
    assert found > 3e-4
    assert found <= hockey_stick(sampled(rate, [1.0]), sampled(rate, [-2.0]), sd, gamma) + ERROR


def test_grid_finer_than_a_response_gives_no_lower_bound() -> None:
    fine = ResponsePair(5.0).losses(1e-12, 1e-9, 1e-9, upper=False)
    assert (fine.low, fine.mass.tolist()) == (0, [1.0])
    assert ResponsePair(5.0).losses(0.1, 1e-9, 1e-9, upper=False).mass.size == 101


@pytest.mark.parametrize("trials", [1, 2, 5, 100, 700])
@pytest.mark.parametrize("rate", [0.0044, 0.3, 1e-8, 0.999, 1e-300])
def test_binomial_weights_are_exact(trials: int, rate: float) -> None:
    """One round is exact for all elements together, to less than the rounding of logarithms."""
    weights = binomial_weights(trials, rate)
    drawn, whole = rate.as_integer_ratio()
    for j in {0, 1, trials // 3, trials - 1, trials}:
        chance = math.comb(trials, j) * drawn**j * (whole - drawn) ** (trials - j)
        if chance << 1000 < whole**trials:
            assert weights[j] <= 2.0**-999
            continue
        up, down = weights[j].as_integer_ratio()
        assert abs(up * whole**trials - chance * down) << 52 <= chance * down
    assert binomial_weights(trials, 1.0)[-1] == math.fsum(binomial_weights(trials, 1.0)) == 1.0


def test_omitted_weights_have_their_exact_cost() -> None:
    """At most two of eight elements are sampled with a probability above 10⁻⁶⁰."""
    event = SampledGaussian(8.0, 1e-31)
    claimed = event.epsilon(1e-59, units=8)
    assert claimed <= GroupCurve(event.loss(), 8).epsilon(1e-59) < math.inf
