"""The number of users: the caller states it, or it is released with noise and paid for.

The number of ids that were passed is not public: it falls by one when the last record of a user is
removed. So a release either is given the size of the roster, or publishes it with noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import IndexArray
from dpgrain.accounting import Contribution, Event, Gaussian, calibrate
from dpgrain.errors import ParameterError
from dpgrain.inputs.codes import codes, column
from dpgrain.noise import Source
from dpgrain.noise.sums import noised
from dpgrain.publishing.promise import Promise

#: The share of the budget (of μ²) that publishes the number of users where it is not stated.
SHARE = 0.03
#: Contribution to that number: each user adds one, and whichever records of one person change, it
#: moves by one at most.
ENROLLED = Contribution(block="user", layout="shared", coordinates="one")
# The number saturates here, so that it stays a whole number in floating point.
_LARGEST_USERS = 2**53


@dataclass(frozen=True)
class Roster:
    """The public numbers about the number of users.

    Args:
        stated: the public size of the roster; None if it is not known.
        event: the release of the number of users, where it is not stated.

    Formal guarantee: that of :attr:`event`, a Gaussian mechanism. The number of users who have records
    moves by at most one when records of one person are removed or exchanged, for every unit and
    relation, and by g for g users. Source: docs/theory, "The number of users".

    >>> from dpgrain import User
    >>> promise = Promise(User(), 1.0, 1e-6, "zero_out")
    >>> Roster.of(1000, promise).facts
    ('a roster of 1,000 users',)
    >>> roster = Roster.of(None, promise)
    >>> round(roster.noise_sd, 1)
    24.4
    """

    stated: int | None
    event: Gaussian | None = None

    @staticmethod
    def of(n_users: int | None, promise: Promise) -> Roster:
        """Make a roster of the stated size, or plan the release of its size with a share of a promise.

        Args:
            n_users: the public size that the caller states; None if it is not known.
            promise: what the whole release promises.

        Raises:
            ParameterError: if the size is out of range.
        """
        if n_users is not None:
            return Roster(_validate.integer(minimum=1, n_users=n_users))
        whole = calibrate(
            lambda noise: Gaussian(noise, ENROLLED),
            promise.epsilon,
            promise.delta,
            unit=promise.unit,
            relation=promise.relation,
        )
        return Roster(None, Gaussian(whole.parameter / SHARE**0.5, ENROLLED))

    @property
    def noise_sd(self) -> float:
        """The standard deviation of the number of users; 0 where it is stated."""
        return 0.0 if self.event is None else self.event.noise_multiplier

    @property
    def facts(self) -> tuple[str, ...]:
        """The public facts of the roster, in words."""
        if self.stated is not None:
            return (f"a roster of {self.stated:,} users",)
        return (
            f"{SHARE:.0%} of the budget for the number of users, which is released with noise of "
            f"standard deviation {self.noise_sd:.3g}",
        )

    def users(self, found: int, source: Source) -> int:
        """Return the stated number of users, or the noisy number, at least 1.

        Args:
            found: the number of users who have records.
            source: random bits for the noise.
        """
        if self.stated is not None:
            return self.stated
        assert self.event is not None  # noqa: S101 - for the type checker
        noisy = noised(np.array([float(found)]), 1.0, self.event.noise_multiplier, source)
        return int(min(max(round(float(noisy[0])), 1), _LARGEST_USERS))


def beside(*events: Event | None) -> Event | None:
    """Compose the events that are not None into one; None where there is none."""
    there = [event for event in events if event is not None]
    return sum(there[1:], start=there[0]) if there else None


def check_stated(n_users: int | None, what: str) -> int:
    """Return the stated size of the roster, or refuse a release that needs it and lacks it.

    Args:
        n_users: the public size that the caller states; None if it is not stated.
        what: the part of the release that needs it, such as ``"a recipe"``.

    Raises:
        ParameterError: if the size is not stated.
    """
    if n_users is None:
        raise ParameterError(
            f"n_users must be passed with {what}: the sampling of users and its published "
            "parameters depend on the number of enrolled users, which must not be counted.",
            name="n_users",
        )
    return _validate.integer(minimum=1, n_users=n_users)


def check_holds_all(n_users: int, users: int) -> None:
    """Refuse a roster that is smaller than the number of users who are compared with each other.

    Args:
        n_users: the stated size of the roster.
        users: the number of ids that were passed.

    Raises:
        ParameterError: if it is.
    """
    if users > n_users:
        raise ParameterError(
            f"n_users = {n_users} must be at least the number of distinct ids in users; pass "
            "the number of enrolled users."
        )


def places_of(users: Any, owners: IndexArray, what: str) -> NDArray[np.int64]:
    """Return (blocks,) the place in the roster of each block's user; −1 for a label that is none.

    Args:
        users: (rows,) as passed: whole numbers from 0 to n−1, so that nobody's place depends on who
            else has records. Each label is read by itself.
        owners: (blocks,) the user of each block, from :func:`dpgrain.arrays.blocks.arrange` with
            ``places=True``.
        what: what needs places, such as ``"fresh users"``.

    Raises:
        ParameterError: if users are left out.
    """
    if users is None or column(users) is None:
        raise ParameterError(
            f"users must be integers for {what}, the index of each user in the roster from 0, "
            "not omitted: sampling must not depend on who has records."
        )
    keys = codes(users, places=True)[1]
    return np.array([_place(*keys[owner]) for owner in owners], dtype=np.int64)


def _place(kind: str, value: str) -> int:
    """Return the place in a roster that the key of a label is; −1 if it is none."""
    if kind != "number" or not value.endswith("/1"):
        return -1
    number = int(value[:-2], 16)
    return number if 0 <= number < 2**62 else -1
