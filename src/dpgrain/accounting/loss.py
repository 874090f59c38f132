"""What an event costs: the part of the accountant that has numbers and no names."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpgrain.accounting.gaussian import bisect, gaussian_delta, gaussian_epsilon
from dpgrain.accounting.zcdp import zcdp_delta, zcdp_epsilon


@dataclass(frozen=True)
class Loss:
    """An upper bound on a privacy loss: μ-GDP, then ε₀-DP, then δ₀ given away.

    Args:
        mu: the Gaussian part (sensitivity ÷ noise sd); independent parts add their squares.
        pure: the ε of the pure part; parts add.
        leak: probability given away outright; parts add.
        rho: the zCDP of the pure part, where it is known to be less than pure²/2; parts add.

    The curve is the lower of two that hold: δ(ε) ≤ δ_G(ε − pure; mu) + leak, which is exact where
    only one part is present (for ``pure`` alone it is that of randomised response, the worst ε₀-DP
    mechanism), and that of (mu²/2 + rho)-zCDP, plus leak, which is less for many pure parts.
    Both hold under adaptive composition. Proof: docs/theory.md, "Composition".

    >>> (Loss(mu=3.0) + Loss(mu=4.0)).mu
    5.0
    >>> many = sum([Loss(pure=0.1)] * 100, Loss())
    >>> round(many.pure, 9), round(many.epsilon(1e-6), 3)
    (10.0, 5.222)
    """

    mu: float = 0.0
    pure: float = 0.0
    leak: float = 0.0
    rho: float = math.inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", min(self.rho, self.pure * self.pure / 2))

    def __add__(self, other: Loss) -> Loss:
        return Loss(
            math.hypot(self.mu, other.mu),
            self.pure + other.pure,
            min(self.leak + other.leak, 1.0),
            self.rho + other.rho,
        )

    def delta(self, epsilon: float) -> float:
        """The smallest δ that this bound gives at ε."""
        delta = self._direct_delta(epsilon)
        if self._concentrates:
            delta = min(delta, zcdp_delta(epsilon, self._zcdp))
        return min(delta + self.leak, 1.0)

    def epsilon(self, delta: float) -> float:
        """The smallest ε ≥ 0 that this bound gives at δ; infinite if there is none."""
        if delta >= 1:
            return 0.0
        rest = delta - self.leak
        if rest < 0 or self.mu == math.inf:
            return math.inf
        epsilon = self._direct_epsilon(rest)
        return min(epsilon, zcdp_epsilon(rest, self._zcdp)) if self._concentrates else epsilon

    @property
    def _zcdp(self) -> float:
        return self.mu * self.mu / 2 + self.rho

    @property
    def _concentrates(self) -> bool:
        """Whether the second curve may be the lower one; for a single part the first is exact."""
        return self.pure > 0 and (self.mu > 0 or self.rho < self.pure * self.pure / 2)

    def _direct_delta(self, epsilon: float) -> float:
        """The first curve, without the leak."""
        if self.mu == 0:
            return self._pure_delta(epsilon)
        return 1.0 if self.pure == math.inf else gaussian_delta(epsilon - self.pure, self.mu)

    def _direct_epsilon(self, rest: float) -> float:
        """The smallest ε ≥ 0 at which the first curve is at most ``rest``."""
        if self.pure == math.inf:
            return math.inf
        if self._direct_delta(0.0) <= rest:
            return 0.0
        if self.mu > 0:
            if rest == 0:
                return math.inf
            if self._direct_delta(self.pure) <= rest:
                return bisect(lambda epsilon: self._direct_delta(epsilon) <= rest, 0.0, self.pure)[
                    1
                ]
            return self.pure + gaussian_epsilon(rest, self.mu)
        # δ = (e^p − e^ε)/(1 + e^p) solved for ε, rounded up; δ(0) > rest makes the logarithm finite.
        if rest == 0:
            return self.pure
        epsilon = self.pure + math.log1p(-rest * (1 + math.exp(-self.pure)))
        return min(max(epsilon * (1 + 2.0**-50) + 2.0**-50, 0.0), self.pure)

    def _pure_delta(self, epsilon: float) -> float:
        if epsilon >= self.pure:
            return 0.0
        # (e^p − e^ε)/(1 + e^p), written so that a large p does not overflow.
        return -math.expm1(epsilon - self.pure) / (1 + math.exp(-self.pure))
