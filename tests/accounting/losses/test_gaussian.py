"""The Gaussian curve against independent arithmetic: sixty digits, and Google's accountant."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr
from tests.accounting.losses.test_loss import EPSILONS
from tests.refusals import refuses

from dpgrain.accounting import Gaussian, calibrate_gaussian, gaussian_delta, gaussian_epsilon
from dpgrain.accounting.losses.gaussian import gaussian_mu, pure_mu

MUS = [1e-4, 1e-3, 0.02, 0.1, 0.3, 1.0, 2.5, 7.0, 15.0, 30.0]
# How far the floating-point curve may be from the exact one, relative and absolute.
CURVE_ERROR, CURVE_FLOOR = 1e-9, 1e-14


def exact_delta(epsilon: float, mu: float) -> Any:
    """The curve by 60 (and, where e^ε is large, many more) decimal digits of erfc."""
    with mpmath.workdps(60 + int(epsilon) + int(mu * mu)):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("mu", MUS)
def test_the_curve_agrees_with_sixty_digits(mu: float) -> None:
    for epsilon in EPSILONS:
        exact = exact_delta(epsilon, mu)
        if exact < 1e-300:
            assert gaussian_delta(epsilon, mu) <= 1e-290
            continue
        computed = gaussian_delta(epsilon, mu)
        assert abs(computed - exact) <= CURVE_ERROR * exact + (
            CURVE_FLOOR if epsilon <= mu * mu / 2 else 0
        )


def test_the_published_value() -> None:
    assert 1 / gaussian_mu(1.0, 1e-5) == pytest.approx(3.7306, abs=5e-5)
    assert calibrate_gaussian(1.0, 1e-5).noise_multiplier == pytest.approx(3.7306, abs=5e-5)


def test_the_ends_of_the_curve() -> None:
    assert gaussian_delta(1.0, 0.0) == 0.0
    assert gaussian_delta(1.0, math.inf) == 1.0
    assert gaussian_delta(math.inf, 3.0) == 0.0
    assert gaussian_delta(0.0, 1.0) == pytest.approx(float(2 * ndtr(0.5) - 1), rel=1e-14)
    assert gaussian_epsilon(0.0, 1.0) == math.inf
    assert gaussian_epsilon(1e-6, 0.0) == 0.0
    assert gaussian_epsilon(0.999, 0.1) == 0.0
    assert gaussian_epsilon(1e-6, math.inf) == math.inf
    assert gaussian_mu(1.0, 0.0) == 0.0
    assert gaussian_mu(1.0, 1.0) == math.inf


@pytest.mark.parametrize("delta", [0.3, 1e-2, 1e-5, 1e-10, 1e-30, 1e-200])
@pytest.mark.parametrize("mu", MUS)
def test_epsilon_of_delta_rounds_towards_privacy(delta: float, mu: float) -> None:
    epsilon = gaussian_epsilon(delta, mu)
    assert gaussian_delta(epsilon, mu) <= delta
    assert exact_delta(epsilon, mu) <= delta * (1 + 1e-9)
    if epsilon > 0:
        assert gaussian_delta(epsilon * (1 - 1e-12), mu) > delta * (1 - 1e-9)
        assert exact_delta(epsilon * (1 - 1e-7), mu) > delta


@pytest.mark.parametrize("delta", [0.3, 1e-2, 1e-5, 1e-10, 1e-30, 1e-200])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 60.0])
def test_mu_of_epsilon_and_delta_rounds_towards_privacy(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_delta(epsilon, mu) <= delta
    assert exact_delta(epsilon, mu) <= delta * (1 + 1e-9)
    assert exact_delta(epsilon, mu * (1 + 1e-7)) > delta
    # The computed curve is not monotone in its last digits, hence not exactly.
    assert gaussian_epsilon(delta, mu) == pytest.approx(epsilon, rel=1e-11)


@pytest.mark.slow
@given(st.floats(0, 100), st.floats(1e-4, 30), st.floats(1e-4, 30), st.floats(1e-12, 0.5))
def test_the_curve_is_monotone(epsilon: float, mu: float, other: float, delta: float) -> None:
    low, high = sorted((mu, other))
    assert gaussian_delta(epsilon, low) <= gaussian_delta(epsilon, high) * (1 + 1e-9) + 1e-15
    assert gaussian_epsilon(delta, low) <= gaussian_epsilon(delta, high) * (1 + 1e-9) + 1e-9
    assert gaussian_delta(epsilon + 0.1, mu) <= gaussian_delta(epsilon, mu)
    assert 0.0 <= gaussian_delta(epsilon, mu) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("sd", [0.5, 1.0, 3.7306, 10.0])
def test_the_curve_agrees_with_googles_accountant(sd: float) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    # Rounded up and down: the exact curve is between the two.
    above, below = (
        pld.from_gaussian_mechanism(sd, value_discretization_interval=1e-4, pessimistic_estimate=up)
        for up in (True, False)
    )
    for delta in (1e-3, 1e-5, 1e-8):
        epsilon = Gaussian(sd).epsilon(delta)
        assert epsilon == pytest.approx(above.get_epsilon_for_delta(delta), rel=1e-3, abs=1e-3)
        assert below.get_epsilon_for_delta(delta) - 1e-6 <= epsilon
        assert epsilon <= above.get_epsilon_for_delta(delta) + 1e-6
    many = Gaussian(4 * sd, count=16)
    composed = pld.from_gaussian_mechanism(4 * sd, value_discretization_interval=1e-4)
    theirs = composed.self_compose(16).get_epsilon_for_delta(1e-6)
    assert many.epsilon(1e-6) == pytest.approx(theirs, rel=2e-3)


def test_lemma_3_2_of_the_long_paper_is_false() -> None:
    epsilon, delta = 1.0, 1e-5
    variance = (epsilon > 1) / epsilon + 2 * math.log(1 / delta) / epsilon**2
    event = Gaussian(math.sqrt(variance))
    # A replaced element of non-negative counts moves by √2ρ, not by ρ.
    assert event.delta(epsilon, relation="replace") == pytest.approx(4.28e-5, abs=0.01e-5)
    assert event.epsilon(delta, relation="replace") == pytest.approx(1.110, abs=0.0005)
    assert exact_delta(epsilon, math.sqrt(2 / variance)) > 4 * delta


def test_equation_4_of_short_paper_fails_for_large_epsilon() -> None:
    # Noise es·N(0, 2 log(1/δ)/ε²) on a sum of sensitivity es is claimed (ε, δ)-DP.
    for delta, holds, fails in ((1e-5, 7.9, 8.1), (1e-6, 8.3, 8.5), (1e-8, 8.9, 9.1)):
        for epsilon, true in ((holds, True), (fails, False), (2 * fails, False)):
            sd = math.sqrt(2 * math.log(1 / delta)) / epsilon
            assert (exact_delta(epsilon, 1 / sd) <= delta) is true
            assert (Gaussian(sd).epsilon(delta) <= epsilon) is true
    sd = math.sqrt(2 * math.log(1e5)) / 20
    assert exact_delta(20.0, 1 / sd) == pytest.approx(1.89e-3, abs=0.005e-3)


def test_curve_in_k_is_not_a_multiple_of_epsilon() -> None:
    event = calibrate_gaussian(1.0, 1e-5)
    curve = [event.epsilon(1e-5, units=k) for k in (1, 4, 16)]
    assert curve[:2] == pytest.approx([1.0, 2.155], abs=5e-4)
    for k, epsilon in zip((1, 4, 16), curve, strict=True):
        assert exact_delta(epsilon, math.sqrt(k) / event.noise_multiplier) <= 1e-5 * (1 + 1e-9)
        assert epsilon <= math.sqrt(k) * 1.2


@pytest.mark.parametrize("mu", [-1.0, math.nan])
def test_curve_rejects_invalid_arguments(mu: float) -> None:
    with refuses("mu"):
        gaussian_delta(1.0, mu)


def test_inverses_reject_invalid_arguments() -> None:
    """A NaN as δ would be above all others, and allow anything."""
    with refuses("delta"):
        gaussian_epsilon(math.nan, 1.0)
    with refuses("delta"):
        gaussian_mu(1.0, math.nan)
    for epsilon in (-1.0, math.nan):
        with refuses("epsilon"):
            pure_mu(epsilon)
        with refuses("epsilon"):
            gaussian_mu(epsilon, 1e-6)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-5, 1e-4, 1e-3])
@pytest.mark.parametrize("delta", [1e-30, 1e-15, 1e-6, 0.1])
def test_small_epsilons_round_towards_privacy(epsilon: float, delta: float) -> None:
    assert calibrate_gaussian(epsilon, delta).epsilon(delta) <= epsilon
