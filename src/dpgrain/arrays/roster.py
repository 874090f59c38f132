"""How many users there are: stated by the caller, or a number that is released with noise and paid for.

A count of the ids that were passed is not public: whoever removes the last record of a user removes
the user from it. So a release either knows a roster, or publishes about how many users there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpgrain import _validate
from dpgrain.accounting import Contribution, Event, Gaussian, calibrate
from dpgrain.errors import ParameterError
from dpgrain.noise import Source
from dpgrain.noise.sums import noised
from dpgrain.units import Relation, Unit

#: The share of the budget (of μ²) that publishes the number of users where it is not stated.
SHARE = 0.03
#: How people enter that number: whatever records of one person change, it moves by one at most.
ENROLLED = Contribution(block="user", layout="shared", coordinates="one")
# Where the number saturates, so that it stays a whole number.
_LARGEST = 2**53


@dataclass(frozen=True)
class Roster:
    """What a release knows of the number of users; public numbers only.

    Args:
        stated: the public size of the roster; None if it is not known.
        event: the release of the number of users, where it is not stated.

    Formal guarantee: :attr:`event`, a Gaussian mechanism. The number of users who have records moves by
    at most one when records of one person are removed or exchanged, for every unit and relation, and
    by g for g users. Source: docs/theory.md, "The number of users".

    >>> Roster.of(1000, epsilon=1.0, delta=1e-6, unit=None, relation="zero_out").facts
    ('a roster of 1,000 users',)
    >>> roster = Roster.of(None, epsilon=1.0, delta=1e-6, unit=None, relation="zero_out")
    >>> round(roster.noise_sd, 1)
    24.4
    """

    stated: int | None
    event: Gaussian | None = None

    @staticmethod
    def of(
        n_users: int | None,
        *,
        epsilon: float,
        delta: float,
        unit: Unit | None,
        relation: Relation,
    ) -> Roster:
        """The roster that is stated, or the release of its size with its share of a promise.

        Args:
            n_users: as stated by the caller; None if it is not known.
            epsilon: the promised ε of all of the release.
            delta: the promised δ of all of it.
            unit: what is protected.
            relation: the neighbouring relation.

        Raises:
            ParameterError: if a value is out of range.
        """
        if n_users is not None:
            return Roster(_validate.integer(minimum=1, n_users=n_users))
        whole = calibrate(
            lambda noise: Gaussian(noise, ENROLLED), epsilon, delta, unit=unit, relation=relation
        )
        return Roster(None, Gaussian(whole.parameter / SHARE**0.5, ENROLLED))

    @property
    def noise_sd(self) -> float:
        """The standard deviation of the number of users; 0 where it is stated."""
        return 0.0 if self.event is None else self.event.noise_multiplier

    @property
    def facts(self) -> tuple[str, ...]:
        """What is public of it, in words."""
        if self.stated is not None:
            return (f"a roster of {self.stated:,} users",)
        return (
            f"{SHARE:.0%} of the budget for the number of users, which is released with noise of "
            f"standard deviation {self.noise_sd:.3g}",
        )

    def users(self, found: int, source: Source) -> int:
        """The number of users that may be used: as stated, or with noise, and then at least 1.

        Args:
            found: how many users have records.
            source: where noise comes from.
        """
        if self.stated is not None:
            return self.stated
        assert self.event is not None  # noqa: S101 - for the type checker
        noisy = noised(np.array([float(found)]), 1.0, self.event.noise_multiplier, source)
        return int(min(max(round(float(noisy[0])), 1), _LARGEST))


def beside(*events: Event | None) -> Event | None:
    """All of several events that there are, as one; None where there is none."""
    there = [event for event in events if event is not None]
    return sum(there[1:], start=there[0]) if there else None


def check_stated(n_users: int | None, what: str) -> int:
    """The size of the roster, where a release cannot do without.

    Args:
        n_users: as stated by the caller.
        what: what needs it, such as ``"a recipe"``.

    Raises:
        ParameterError: if it is not stated.
    """
    if n_users is None:
        raise ParameterError(
            f"n_users must be stated with {what}: how often users are asked, and what is published of "
            "them, follows from the size of the roster, which must not be counted."
        )
    return _validate.integer(minimum=1, n_users=n_users)
