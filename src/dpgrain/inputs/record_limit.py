"""Largest number of a user's records that count: stated by the caller, or chosen with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.errors import ParameterError
from dpgrain.inputs.population import gaussian_share
from dpgrain.publishing import Charge
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.promise import Promise
from dpgrain.units import Unit, User

#: Weights of users in a mean or a fit: equal, or by their number of records.
Weights: TypeAlias = Literal["users", "records"]
#: Share of the budget (of μ²) for choosing the largest number of records.
LIMIT_SHARE = 0.1
#: Largest number of records that can be stated, so that a weight of one record stays precise.
MOST_RECORDS = 2**30
# Candidates, about two per octave; they are the upper edges of bins of users.
_LIMITS = np.array(sorted({1, *(m << k for k in range(20) for m in (2, 3))}))
# Contribution to the numbers of users per bin: each user is in one bin.
_BINNED = Contribution(block="user", layout="shared", coordinates="nonnegative")
# Standard deviations of noise that the next bins, three octaves, must contain for users beyond an
# edge to be significant: next to other users, and above a gap, where many edges are compared. And
# those above 0 from which the number of all users is significant.
_SEEN, _SEEN_ABOVE_GAP, _NEXT_BINS, _CERTAIN = 2.0, 4.0, 6, 3.0
# Approximate share of the clipped weight that moves a sum in one direction; the rest cancels.
_ALIGNED = 0.25


@dataclass(frozen=True)
class RecordLimit:
    """Largest number of records, if it is stated; ``event`` is its choice otherwise.

    Formal guarantee: :attr:`event`. A removed user changes the counts by 1, and a replaced one by
    at most √2. Source: docs/theory, "Users weighted by records".
    """

    stated: int | None
    event: Gaussian | None = None

    @staticmethod
    def create(weights: Weights, max_records: int | None, promise: Promise) -> RecordLimit | None:
        """Use a stated number, or plan its choice; None for equal weights."""
        check_weights(weights, max_records)
        if weights == "users":
            return None
        if max_records is not None:
            return RecordLimit(max_records)
        return RecordLimit(None, gaussian_share(promise, _BINNED, LIMIT_SHARE))

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The public facts about the weights."""
        if self.stated is not None:
            return (Fact("record-weights", (self.stated,)),)
        return (Fact("chosen-record-weights", (LIMIT_SHARE,)),)

    def choose(
        self, sizes: NDArray[Any], noise: float, dimension: int, charge: Charge
    ) -> RecordCounts:
        """Return the stated number, or one that few users' ``sizes``, (users,), exceed."""
        if self.stated is not None:
            return RecordCounts(self.stated)
        assert self.event is not None  # noqa: S101 - one of the two
        bins = np.searchsorted(_LIMITS, sizes)
        counts = np.bincount(bins, minlength=len(_LIMITS) + 1).astype(np.float64)
        noisy = charge.rounds(self.event).floating(self.event, counts)
        # Raising the number by 1 adds this noise to the sum of weighted vectors, and recovers one
        # vector for each user beyond it.
        tolerated = noise * math.sqrt(dimension) / _ALIGNED
        return RecordCounts(chosen(noisy, self.event.noise_multiplier, tolerated), noisy)


@dataclass(frozen=True, eq=False)
class RecordCounts:
    """Chosen largest number of records, with the noisy counts that set it, (bins,)."""

    most: int
    counts: FloatArray | None = None

    def mean_weight(self, n_users: int) -> float | None:
        """Return the estimated sum of weights over the number of users; None without counts."""
        if self.counts is None:
            return None
        # The middle of the integers in a bin; the last bin has only larger numbers.
        low = np.concatenate([[1], _LIMITS + 1])
        middles = (low + np.append(_LIMITS, low[-1])) / 2
        total = float(self.counts @ (np.minimum(middles, self.most) / self.most))
        return min(max(total, 1 / self.most), float(n_users)) / n_users


def check_weights(weights: str, max_records: int | None) -> None:
    """Validate the parameters ``weights`` and ``max_records``."""
    _validate.one_of(("users", "records"), weights=weights)
    if max_records is None:
        return
    most = _validate.integer(minimum=1, max_records=max_records)
    if weights == "users":
        raise ParameterError(
            f"max_records must be omitted with weights='users', not {most!r}, because every user has "
            "equal weight; pass weights='records'.",
            name="max_records",
        )
    if most > MOST_RECORDS:
        raise ParameterError(
            f"max_records must be at most {MOST_RECORDS:,}, not {_validate.describe(most)}.",
            name="max_records",
        )


def require_users(unit: Unit) -> None:
    """Reject weights by records for units other than whole users."""
    if unit != User():
        raise ParameterError(
            f"weights must be 'users' with unit={unit!r}, not 'records', because only whole users are "
            "weighted by their records; use unit=User() and pass users.",
            name="weights",
        )


def chosen(counts: FloatArray, sd: float, tolerated: float) -> int:
    """Choose the smallest number, from the median up, that few users exceed.

    ``counts`` are noisy numbers of users per bin. ``tolerated`` users beyond a number justify no
    higher one. The number is 1 if noise obscures all users.
    """
    total = float(np.cumsum(counts)[-1])
    if total <= _CERTAIN * sd * math.sqrt(len(counts)):
        return 1
    median = int(np.flatnonzero(np.cumsum(counts) >= total / 2)[0])
    beyond = [counts[edge + 1 : edge + 1 + _NEXT_BINS] for edge in range(len(_LIMITS))]
    users = np.array([some.sum() for some in beyond])
    noise = np.array([sd * math.sqrt(len(some)) for some in beyond])
    # Users with few and users with very many records can be far apart.
    far = np.flatnonzero(users > np.maximum(tolerated, _SEEN_ABOVE_GAP * noise))
    first = max(median, int(far[-1]) if len(far) else 0)
    few = np.flatnonzero(users[first:] <= np.maximum(tolerated, _SEEN * noise)[first:])
    return int(_LIMITS[first + few[0] if len(few) else -1])
