"""Risk of a unit in a release: limits on every attack that compares two neighbouring tables."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpgrain import _validate
from dpgrain.accounting import Event, Gaussian
from dpgrain.accounting.losses.loss import Loss
from dpgrain.accounting.losses.tradeoff_bounds import (
    best_guess,
    detection,
    gaussian_mu,
    is_unbounded,
)
from dpgrain.units import Relation, Unit, User, unit_level
from dpgrain.words import odds as words


@dataclass(frozen=True)
class Risk:
    """Limits on attacks by anyone who knows all other records and guesses about some units.

    The attack compares two neighbouring tables. All limits apply in both directions and to any
    computation of the attacker, and are rounded up.

    Args:
        guess: the probability that the best guess between the two tables is right.
        detection: the probability that a test with ``false_alarms`` raises a true alarm.
        posterior: the probability of the units after an alarm of that test, which starts at
            ``prior``. Another test may have a larger one.
        mu: μ of the Gaussian mechanism with at least this much risk in every test; infinite if none is
            proved.
        exact: True if the limits are attained; otherwise they are upper limits.
        prior: the probability of the units before the release.
        false_alarms: the false alarms of the test.
        units: the number of changed units.
        unit: the kind of the changed units.
        relation: the neighbouring relation.
        private: False if the random seed is known, so the limits are invalid.
        window: the protected time window of each unit, as text; empty for all times.

    Raises:
        ParameterError: if a value is out of range.

    Limits are exact for Gaussian noise on l2 sums, zero_out, and the unit of the blocks, or users of
    elements, if one table attains the largest change of all sums at once; otherwise the release
    protects more. Source: docs/theory, "Risk".

    >>> from dpgrain import Guarantee
    >>> from dpgrain.accounting import Contribution
    >>> event = Gaussian(2.0, Contribution(block="user"))
    >>> print(Guarantee("user", "", "zero_out", 1e-6, event).risk())
    Risk of 1 user (zero_out), exact:
    best guess      59.9% right at most, from a prior of 50%
    detection       12.7% at most, with 5% false alarms
    after an alarm  71.7% at most, from a prior of 50%
    Gaussian DP     μ = 0.5
    """

    guess: float
    detection: float
    posterior: float
    mu: float
    exact: bool
    prior: float
    false_alarms: float
    units: int
    unit: Unit
    relation: Relation
    private: bool = True
    window: str = ""

    def __post_init__(self) -> None:
        _validate.check_fields(self)
        for name in ("guess", "detection", "posterior"):
            _validate.probability(**{name: getattr(self, name)})
        for name in ("prior", "false_alarms"):
            _validate.fraction(**{name: getattr(self, name)})
        _validate.integer(minimum=1, units=self.units)
        if self.mu < 0:
            raise _validate.error_about("mu", f"must be at least 0, not {self.mu!r}.")

    @property
    def unbounded(self) -> bool:
        """True if no limit below 1 is known."""
        return self.guess >= 1 and self.detection >= 1 and math.isinf(self.mu)

    @property
    def values(self) -> str:
        """The kind of the limits, ``"exact"`` or ``"upper limits"``."""
        return "exact" if self.exact else "upper limits"

    @property
    def units_text(self) -> str:
        """The changed units as text, such as ``"2 elements"``."""
        most = self.unit.max_elements if isinstance(self.unit, User) else None
        limit = "" if most is None else f" with at most {most:,} element{'s' if most > 1 else ''}"
        when = f", in {self.window}" if self.window else ""
        return f"{self.units:,} {self.unit.level}{'' if self.units == 1 else 's'}{limit}{when}"

    def __str__(self) -> str:
        return words.risk_text(self)


def compute_risk(
    event: Event,
    *,
    unit: Unit,
    units: int,
    relation: Relation,
    false_alarms: float,
    prior: float,
    private: bool = True,
) -> Risk:
    """Return the risk of some units under an event; see :class:`Risk` for the arguments."""
    loss = event.loss(units, relation, unit)
    exact = _is_attained(event, loss, unit, relation)
    return loss_risk(
        loss,
        unit=unit,
        units=units,
        relation=relation,
        false_alarms=false_alarms,
        prior=prior,
        private=private,
        exact=exact,
    )


def loss_risk(
    loss: Loss,
    *,
    unit: Unit,
    units: int,
    relation: Relation,
    false_alarms: float,
    prior: float,
    private: bool,
    exact: bool,
) -> Risk:
    """Return the risk of some units under a privacy loss; see :class:`Risk` for the arguments."""
    alpha = _validate.fraction(false_alarms=false_alarms)
    share = _validate.fraction(prior=prior)
    if is_unbounded(loss):
        return Risk(1.0, 1.0, 1.0, math.inf, False, share, alpha, units, unit, relation, private)
    detected = detection(loss, alpha)
    guess = max(best_guess(loss, share), share, 1 - share)
    true, false = share * detected, (1 - share) * alpha
    # The factor covers the rounding of the quotient.
    posterior = min(true / (true + false) * (1 + 2.0**-50), 1.0)
    mu = gaussian_mu(loss)
    return Risk(guess, detected, posterior, mu, exact, share, alpha, units, unit, relation, private)


def _is_attained(event: Event, loss: Loss, unit: Unit, relation: Relation) -> bool:
    """Return True if two neighbouring tables attain the sensitivity of all sums at once."""
    if loss != Loss(mu=loss.mu) or relation != "zero_out":
        return False
    contributions = [part.contribution for part in event.parts if isinstance(part, Gaussian)]
    level = unit_level(unit, "user")
    return len(contributions) == len(event.parts) and all(
        (each.block == level or (each.block, level) == ("element", "user"))
        and each.max_elements is None
        and each.norm == "l2"
        and each.coordinates != "stated"
        for each in contributions
    )
