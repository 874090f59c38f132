"""From ρ to (ε, δ) against a search over the orders."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from tests.accounting.events.test_partition_selection import EPSILONS

from dpgrain.accounting import (
    gaussian_delta,
)
from dpgrain.accounting.losses.zcdp import zcdp_delta, zcdp_epsilon


@pytest.mark.parametrize("rho", [1e-8, 1e-3, 0.1, 1.0, 30.0, 1e4])
def test_the_conversion_is_the_best_over_alpha(rho: float) -> None:
    t = np.exp(np.linspace(-12, 25, 400_001))
    for delta in (0.3, 1e-3, 1e-9, 1e-100):
        best = float(np.min((1 + t) * rho - np.log1p(1 / t) - (math.log(delta) + np.log1p(t)) / t))
        epsilon = zcdp_epsilon(delta, rho)
        assert epsilon == pytest.approx(max(best, 0.0), rel=1e-6, abs=1e-7)
        assert zcdp_delta(epsilon, rho) <= delta
        if epsilon > 0:
            assert zcdp_delta(epsilon * 0.999, rho) > delta
    for epsilon in (0.0, 0.1, 3.0, 100.0):
        exponent = t * ((1 + t) * rho - epsilon - np.log1p(1 / t)) - np.log1p(t)
        best = min(math.exp(min(float(exponent.min()), 0.0)), 1.0)
        assert zcdp_delta(epsilon, rho) == pytest.approx(best, rel=1e-6, abs=1e-300)


def test_the_ends_of_the_conversion() -> None:
    assert zcdp_delta(1.0, 0.0) == zcdp_delta(math.inf, 1.0) == 0.0
    assert zcdp_delta(-1.0, 0.1) == zcdp_delta(1.0, math.inf) == 1.0
    assert zcdp_epsilon(1e-6, 0.0) == 0.0
    assert zcdp_epsilon(0.0, 1.0) == zcdp_epsilon(1e-6, math.inf) == math.inf
    # It is valid for the Gaussian, which attains μ²/2 at every α.
    for mu, epsilon in itertools.product((0.1, 0.5, 2.0), EPSILONS):
        assert gaussian_delta(epsilon, mu) <= zcdp_delta(epsilon, mu * mu / 2)
