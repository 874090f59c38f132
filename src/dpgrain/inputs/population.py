"""Number of users: stated by the caller, or released with noise.

The number of distinct user ids is not public: it decreases by one if the last record of a user is
removed. A release therefore either uses a stated number, or publishes it with noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import IndexArray
from dpgrain.accounting import Contribution, Event, Gaussian, calibrate
from dpgrain.errors import ParameterError
from dpgrain.inputs.codes import codes, column
from dpgrain.publishing import Charge
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.promise import Promise

#: Share of the budget (of μ²) for the number of users if it is not stated.
SHARE = 0.03
#: Contribution to that number: each user adds one, so changing any records of one user changes it
#: by at most one.
ENROLLED = Contribution(block="user", layout="shared", coordinates="one")
# Maximum number, so that it remains an exact integer in floating point.
_LARGEST_USERS = 2**53


@dataclass(frozen=True)
class Population:
    """Number of users, if it is stated; ``event`` is its release otherwise.

    Formal guarantee: :attr:`event`. One user changes the number of users with records by at most 1,
    for every unit and relation. Source: docs/theory, "The number of users".
    """

    stated: int | None
    event: Gaussian | None = None

    @staticmethod
    def create(n_users: int | None, promise: Promise) -> Population:
        """Use a stated number of users, or plan its release with a share of the budget."""
        if n_users is not None:
            return Population(_validate.integer(minimum=1, n_users=n_users))
        return Population(None, gaussian_share(promise, ENROLLED, SHARE))

    @property
    def noise_sd(self) -> float:
        """Standard deviation of the number of users; 0 if it is stated."""
        return 0.0 if self.event is None else self.event.noise_multiplier

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The public facts about the number of users."""
        if self.stated is not None:
            return (Fact("enrolled-users", (self.stated,)),)
        return (Fact("counted-users", (SHARE, self.noise_sd)),)

    def size(self, count: Callable[[], int], charge: Charge) -> int:
        """Return the stated number of users, or a noisy number, at least 1."""
        if self.stated is not None:
            return self.stated
        assert self.event is not None  # noqa: S101 - for the type checker
        total = np.array([float(count())])
        noisy = charge.rounds(self.event).floating(self.event, total)
        return int(min(max(round(float(noisy[0])), 1), _LARGEST_USERS))


def compose_events(*events: Event | None) -> Event | None:
    """Compose the events that are not None; None if there are none."""
    present = [event for event in events if event is not None]
    return sum(present[1:], start=present[0]) if present else None


def check_n_users(n_users: int | None, what: str) -> int:
    """Return the stated number of users, or raise an error that ``what`` requires it."""
    if n_users is None:
        raise ParameterError(
            f"n_users must be passed with {what}: the sampling of users and its published "
            "parameters depend on the number of enrolled users, which must not be counted.",
            name="n_users",
        )
    return _validate.integer(minimum=1, n_users=n_users)


def check_population_size(n_users: int, users: int) -> None:
    """Reject a stated number of users below the number of compared users."""
    if users > n_users:
        raise ParameterError(
            f"n_users = {n_users} must be at least the number of distinct ids in users; pass "
            "the number of enrolled users."
        )


def population_indices(users: Any, owners: IndexArray, what: str) -> NDArray[np.int64]:
    """Return the population index of each block's user, (blocks,); −1 if invalid.

    ``users`` are (rows,) integers from 0 to n−1, so that an index does not depend on which other
    users have records. ``what`` names the feature that requires indices.
    """
    if users is None or column(users) is None:
        raise ParameterError(
            f"users must be integers for {what}, the index of each user in the population from 0, "
            "not omitted: sampling must not depend on who has records."
        )
    keys = codes(users, places=True)[1]
    return np.array([_place(*keys[owner]) for owner in owners], dtype=np.int64)


def _place(kind: str, value: str) -> int:
    """Return the population index given by a label's key; −1 if it is invalid."""
    if kind != "number" or not value.endswith("/1"):
        return -1
    number = int(value[:-2], 16)
    return number if 0 <= number < 2**62 else -1


def gaussian_share(promise: Promise, contribution: Contribution, share: float) -> Gaussian:
    """Return Gaussian noise with a share of the budget in μ²."""
    whole = calibrate(
        lambda noise: Gaussian(noise, contribution),
        promise.epsilon,
        promise.delta,
        unit=promise.unit,
        relation=promise.relation,
    )
    return Gaussian(whole.parameter / share**0.5, contribution)
