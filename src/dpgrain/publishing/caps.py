"""The privacy filter: caps of a budget, and the promise that they imply."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dpgrain import _validate
from dpgrain._formatting import SUM_TOLERANCE, powers, rounded_up
from dpgrain.accounting import Loss, gaussian_delta
from dpgrain.accounting.losses.gaussian import bisect, gaussian_mu, pure_mu
from dpgrain.accounting.losses.rounding import hypot_up
from dpgrain.errors import ParameterError
from dpgrain.publishing.prices import Price

# Default share of δ for the delta mass of events.
_LEAK_SHARE = 0.1
# Relative accuracy of M with a plan of pairs, whose composition is slow and less accurate.
_CLOSE = 1e-7


@dataclass(frozen=True)
class Caps:
    """The caps on prices of a budget, fixed when it opens, and the promise that they imply.

    Args:
        price: (E, M, D), the largest total price; releases beyond it are refused.
        planned: the privacy loss of the releases fixed in advance.

    Formal guarantee: all releases together are (ε, δ)-DP, however each was chosen from the earlier
    outcomes, with δ = [e^E·δ_G(ε−E; M) + δ_G(ε+E; M)]/(1+e^E) + D; with a plan, δ
    is that of N(M, 1) ⊗ RR_E composed with the plan, plus D. Source: docs/theory, "Budgets".

    >>> Caps(Price(0.1, 0.2, 1e-7)).delta(1.0) < 2.15e-7
    True
    """

    price: Price
    planned: Loss = field(default_factory=Loss)

    @staticmethod
    def create(epsilon: float, delta: float, pure: float, leak: float, planned: Loss) -> Caps:
        """Return the caps with the largest M for (ε, δ), given E, D and the loss of planned releases.

        >>> round(Caps.create(1.0, 1e-6, 0.0, 1e-7, Loss()).price.mu, 4)
        0.2355
        """

        def holds(mu: float) -> bool:
            return _rounded_down(pure, mu, leak, planned).delta(epsilon) <= delta

        if not holds(0.0):
            what = "plan" if planned != Loss() else "caps"
            raise ParameterError(
                f"the {what} of the budget must satisfy ε = {rounded_up(epsilon)} at δ = "
                f"{powers(delta)}; plan less, or choose smaller pure= and leak=."
            )
        high = gaussian_mu(epsilon, delta) if delta > 0 else 0.0
        if not holds(high):
            close = _CLOSE if planned.pairs else 0.0
            high = bisect(lambda mu: not holds(mu), 0.0, high, close)[0] if delta > 0 else 0.0
        return _rounded_down(pure, high, leak, planned)

    @staticmethod
    def with_defaults(
        epsilon: float, delta: float, pure: float | None, leak: float | None, planned: Loss
    ) -> Caps:
        """Return the caps with the defaults for E, 0 or all of ε if δ = 0, and D, a tenth of δ."""
        if pure is None:
            pure = max(epsilon - planned.pure, 0.0) if delta == 0 else 0.0
        elif not 0 <= _validate.non_negative(pure=pure) <= epsilon:
            raise _validate.error_about(
                "pure", f"must be at most epsilon = {epsilon:g}, not {_validate.describe(pure)}."
            )
        if leak is None:
            leak = _LEAK_SHARE * delta
        elif not 0 <= _validate.non_negative(leak=leak) <= delta:
            raise _validate.error_about(
                "leak", f"must be at most delta = {delta:g}, not {_validate.describe(leak)}."
            )
        return Caps.create(epsilon, delta, float(pure), float(leak), planned)

    def delta(self, epsilon: float) -> float:
        """Return the promised δ at an ε ≥ 0, rounded up."""
        more = 1 + SUM_TOLERANCE
        pure, mu, leak = self.price.pure * more, self.price.mu * more, self.price.leak * more
        if self.planned != Loss():
            return (self.planned + Loss(mu, pure, leak)).delta(epsilon)
        # Randomised response gives the true answer with probability e^E/(1 + e^E).
        truth = 1 / (1 + math.exp(-pure))
        if mu == 0:
            without_leak = max(truth - math.exp(min(epsilon, 700.0)) * (1 - truth), 0.0)
            without_leak = without_leak if epsilon < pure else 0.0
        else:
            below, above = gaussian_delta(epsilon - pure, mu), gaussian_delta(epsilon + pure, mu)
            without_leak = truth * below + (1 - truth) * above
        return min(without_leak * (1 + 2.0**-50) + leak, 1.0)

    @property
    def loss(self) -> Loss:
        """A privacy loss that bounds all releases together."""
        more = 1 + SUM_TOLERANCE
        pure, mu, leak = self.price.pure * more, self.price.mu * more, self.price.leak * more
        gaussian = Loss(mu=hypot_up(mu, pure_mu(pure)), leak=leak)
        return self.planned + Loss(mu, pure, leak).or_else(*[gaussian] * (pure > 0))

    def epsilon(self, delta: float) -> float:
        """Return the smallest promised ε ≥ 0 at a δ, rounded up; infinite if there is none.

        >>> caps = Caps.create(1.0, 1e-6, 0.0, 1e-7, Loss())
        >>> round(caps.epsilon(1e-6), 6)
        1.0
        """
        if self.delta(0.0) <= delta:
            return 0.0
        high = 1.0
        while self.delta(high) > delta:
            high *= 2
            if high > 1e6:
                return math.inf
        return bisect(lambda epsilon: self.delta(epsilon) <= delta, 0.0, high)[1]

    def allow(self, total: Price) -> bool:
        """Return True if a total price is within the caps."""
        return total.share_of(self.price) <= 1 + SUM_TOLERANCE


def _rounded_down(pure: float, mu: float, leak: float, planned: Loss) -> Caps:
    """Return caps slightly below the given ones, so that floating-point sums stay within these."""
    less = 1 - 2 * SUM_TOLERANCE
    return Caps(Price(pure * less, mu * less, leak * less), planned)
