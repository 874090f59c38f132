"""False statements in papers about errors, concentration and helpers: explicit examples.

Each claim's story is in docs/theory, "False claims and their corrections"; claims about privacy are
in test_false_claims.py. Probabilities are sums of closed forms, so that nothing here is random.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import binom
from tests.programs import experiment

from dpgrain.optimize import Constant, Sgd, Uniform, run
from dpgrain.papers import Known

Array = NDArray[np.float64]

printed_softcore = experiment("printed_softcore")

# Asi & Liu, Algorithm 1 as a mean of concentrated users.


def refused(gap: float, each: float, once: float) -> float:
    """P(ν + z < −gap) of two Laplace variables of different scales."""
    tails = each**2 * math.exp(-gap / each) - once**2 * math.exp(-gap / once)
    return tails / (2 * (each**2 - once**2))


def passes(n: int, score: float) -> float:
    """The probability that a round of Algorithm 1 passes at ε = 1."""
    printed = printed_softcore.PrintedSoftCore(1.0, n, 1, 1.0, 1e-6)
    once, each = printed.scales
    gap = score - printed.threshold
    return 1 - refused(gap, each, once) if gap >= 0 else refused(-gap, each, once)


def test_lemma_3_7_of_asi_liu_understates_close_pairs() -> None:
    # Within τ of the point 0, at two positions: half of all pairs are 2τ apart.
    users = np.repeat([[-1.0], [1.0]], 500, axis=0)
    printed = printed_softcore.PrintedSoftCore(1.0, 1000, 1, 1.0, 1e-6)
    assert np.abs(users).max() <= printed.radius
    assert printed.n_users >= 8 * math.log(1 / 0.01)
    assert printed.score(users) == 500 < printed.threshold == 800
    # Promised: all users in every mean, but for 2%.
    assert passes(1000, 500.0) < 1e-16
    # With pairs within 2τ, as when users are selected, the score is n.
    assert (np.abs(users - users.T) <= 2 * printed.radius).sum() / 1000 == 1000


def test_theorem_3_2_of_asi_liu_needs_more_users() -> None:
    # All at one point, T = 1, γ = 1%: 8·log(T/γ)/ε users, and all of them in the mean but for 2%.
    n = math.ceil(8 * math.log(1 / 0.01))
    assert n == 37
    assert 1 - passes(n, float(n)) == pytest.approx(0.2381, abs=5e-5)
    # n/5 must exceed twice the noise of AboveThreshold with ε/2: 80·log(2T/γ)/ε.
    for rounds in (1, 1000):
        enough = math.ceil(80 * math.log(2 * rounds / 0.01))
        assert rounds * (1 - passes(enough, float(enough))) < 0.01


def test_theorem_3_2_of_asi_liu_lacks_the_dimension() -> None:
    n, d, rounds, delta = 1000, 100, 1000, 1e-6
    printed = printed_softcore.PrintedSoftCore(1.0, n, rounds, 1.0, delta)
    promised = rounds * math.log(rounds / delta) * math.log(1 / delta) / n**2
    assert d * printed.noise_sd**2 / promised == pytest.approx(849, abs=0.5)


# Asi & Liu, results that their proofs cite.


def test_lemma_2_5_of_asi_and_liu_is_reversed() -> None:
    # The mean of |θ + y| over y uniform in [−r, r], G = r = 1, is (θ² + 1)/2 for |θ| ≤ 1.
    theta = np.linspace(-1, 1, 201)
    smoothed = (theta**2 + 1) / 2
    assert smoothed[100] == 0.5 > abs(theta[100]) == 0
    # The true statement: ℓ ≤ ℓ̂ ≤ ℓ + Gr.
    assert (np.abs(theta) <= smoothed).all()
    assert (smoothed <= np.abs(theta) + 1).all()


def published(epsilon: float, delta: float, holders: int) -> float:
    """Largest probability of an (ε, δ)-DP rule for an item with n users, if 0 without users."""
    found = 0.0
    for _ in range(holders):
        rise = math.exp(epsilon) * found + delta
        found = min(rise, 1 - math.exp(-epsilon) * (1 - found - delta), 1.0)
    return found


def test_lemma_4_5_of_asi_liu_fails_for_curators() -> None:
    # Each of U items is published by its number of users; 26 users have at most one item each.
    users, items = 26, 1e18
    # One exchange moves a user from an item to another: (ε, δ) = (1, 1e-5).
    epsilon, delta = 2 * 0.5, 2 * 5e-6
    held = published(0.5, 5e-6, users)
    assert held == pytest.approx(0.927, abs=5e-4)
    # An algorithm within δ publishes an item that all users have with at least held − δ. If it is
    # (2ε, 0)-DP, it does so with e^(−2ε·26) of that if no user has one: for U items this exceeds δ.
    nobody = items * math.exp(-2 * epsilon * users) * (held - delta)
    assert nobody == pytest.approx(2.42e-5, abs=5e-8)
    assert nobody > delta


def test_proposition_4_10_of_asi_liu_lacks_a_square() -> None:
    # E‖x₀ − x*‖ ≤ R², R = 10, for |x| from 100: steps of 1, gradients of second moment 1.
    R, rounds = 10.0, 100
    claimed = R**2 / rounds + 1

    points: list[float] = []

    def gradient(theta: Array) -> Array:
        points.append(abs(float(theta[0])))
        return np.sign(theta)

    run(Sgd(Constant(1.0), average=Uniform()), gradient, np.array([R**2]), rounds)
    mean = sum(points[1:]) / rounds
    assert claimed == 2 < mean == 49.5 < (R**2) ** 2 / rounds + 1


# Levy et al.


@pytest.mark.parametrize(("items", "reach", "farther"), [(1, 34.94, 0.420), (2, 35.92, 0.311)])
def test_lemma_1_of_levy_and_others_lacks_a_factor(
    items: int, reach: float, farther: float
) -> None:
    # Losses are fair coins 0 or B = 1 (counts of 400 records), K = 1, n = 1,000 users, α = 1%. The
    # second row has log(2K·n) + log(2/α), another reading of the formula.
    n, m, alpha = 1000, 400, 0.01
    radius = math.sqrt((math.log(items * n) + math.log(2 / alpha)) / m) / 2
    assert m * radius == pytest.approx(reach, abs=0.005)
    each = 2 * binom.cdf(m / 2 - math.floor(m * radius) - 1, m, 0.5)
    assert 1 - (1 - each) ** n == pytest.approx(farther, abs=5e-4)
    # Hoeffding's inequality for values in [0, B] has √2 more, and in [−B, B] twice that.
    enough = math.floor(m * math.sqrt(2) * radius)
    assert 1 - (1 - 2 * binom.cdf(m / 2 - enough - 1, m, 0.5)) ** n < alpha


def test_corollary_1_radius_of_levy_is_half_too_small() -> None:
    # Appendix C.4: means of m vectors in the ball of radius B are within B√(log(2n/γ)/(2m)) but for γ.
    # Here the vectors are fairly B or −B on a line, B = 1, and n = 1, γ = 1%.
    m, gamma = 10_000, 0.01
    radius = math.sqrt(math.log(2 / gamma) / (2 * m))

    def farther(reach: float) -> float:
        return float(2 * binom.cdf(m / 2 - math.floor(m * reach / 2) - 1, m, 0.5))

    assert farther(radius) == pytest.approx(0.1031, abs=5e-5)
    assert 2 * ndtr(-radius * math.sqrt(m)) == pytest.approx(0.1036, abs=5e-5)
    assert farther(2 * radius) < gamma


def test_recipe_radius_is_valid_unlike_the_printed_ones() -> None:
    for n, m in ((1, 10_000), (1000, 400)):
        reach = Known(records=m).radius_for(n, 1)
        each = 2 * binom.cdf(m / 2 - math.floor(m * reach / 2) - 1, m, 0.5)
        assert 1 - (1 - each) ** n < 0.01


def test_levy_theorem_1_bound_is_valid_for_its_data() -> None:
    # The worst concentrated data: half of n = 200 users in each of two neighbouring bins of B/τ =
    # 1,000. There c = n/2; elsewhere all users are on one side: c = n; weights e^(−εc/4) with ε/2
    # at ε = 1.
    n, bins = 200, 1000
    far, near = (bins - 2) * math.exp(-n / 4), 2 * math.exp(-n / 8)
    assert far / (far + near) == pytest.approx(6.93e-9, rel=1e-3)
    assert far / (far + near) < bins * math.exp(-n / 8) == pytest.approx(1.39e-8, rel=1e-2)


# The element-level paper.


def test_lower_bound_of_proposition_2_fails_for_certain_items() -> None:
    # p_j = 1, so each of n users has it m times, and ρ = m clips no one: all error is noise.
    m, sd = 10, 1.0
    for n, least in ((10**4, 1e3), (10**6, 1e5)):
        error = (sd * m / n) ** 2
        assert (m / n + error) / error > least
