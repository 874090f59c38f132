"""What an event costs: the part of the accountant that has numbers and no names."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpgrain.accounting.gaussian import bisect, gaussian_delta, gaussian_epsilon


@dataclass(frozen=True)
class Loss:
    """An upper bound on a privacy loss: μ-GDP, then ε₀-DP, then δ₀ given away.

    Args:
        mu: the Gaussian part (sensitivity ÷ noise sd); independent parts add their squares.
        pure: the ε of the pure part; parts add.
        leak: probability given away outright; parts add.

    The curve is δ(ε) ≤ δ_G(ε − pure; mu) + leak, which is exact where only one part is present
    (for ``pure`` alone it is that of randomised response, the worst ε₀-DP mechanism). It holds under
    adaptive composition. Proof: docs/theory.md, "Composition".

    >>> (Loss(mu=3.0) + Loss(mu=4.0)).mu
    5.0
    """

    mu: float = 0.0
    pure: float = 0.0
    leak: float = 0.0

    def __add__(self, other: Loss) -> Loss:
        return Loss(
            math.hypot(self.mu, other.mu), self.pure + other.pure, min(self.leak + other.leak, 1.0)
        )

    def delta(self, epsilon: float) -> float:
        """The smallest δ that this bound gives at ε."""
        if self.mu == 0:
            return min(self._pure_delta(epsilon) + self.leak, 1.0)
        if self.pure == math.inf:
            return 1.0
        return min(gaussian_delta(epsilon - self.pure, self.mu) + self.leak, 1.0)

    def _pure_delta(self, epsilon: float) -> float:
        if epsilon >= self.pure:
            return 0.0
        # (e^p − e^ε)/(1 + e^p), written so that a large p does not overflow.
        return -math.expm1(epsilon - self.pure) / (1 + math.exp(-self.pure))

    def epsilon(self, delta: float) -> float:
        """The smallest ε ≥ 0 that this bound gives at δ; infinite if there is none."""
        rest = delta - self.leak
        if rest < 0 or self.pure == math.inf or self.mu == math.inf:
            return math.inf if delta < 1 else 0.0
        if self.delta(0.0) <= delta:
            return 0.0
        if self.mu > 0:
            if rest == 0:
                return math.inf
            if self.delta(self.pure) <= delta:
                return bisect(lambda epsilon: self.delta(epsilon) <= delta, 0.0, self.pure)[1]
            return self.pure + gaussian_epsilon(rest, self.mu)
        # δ = (e^p − e^ε)/(1 + e^p) solved for ε, rounded up; δ(0) > rest makes the logarithm finite.
        if rest == 0:
            return self.pure
        epsilon = self.pure + math.log1p(-rest * (1 + math.exp(-self.pure)))
        return min(max(epsilon * (1 + 2.0**-50) + 2.0**-50, 0.0), self.pure)
