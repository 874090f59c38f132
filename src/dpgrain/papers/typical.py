"""A private typical number of records of a user, for the recipes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain.accounting import ExponentialMechanism
from dpgrain.errors import ParameterError
from dpgrain.inputs.array_blocks import LabelledRows
from dpgrain.inputs.guarantees import array_guarantee
from dpgrain.inputs.population import Population
from dpgrain.noise import RandomState
from dpgrain.publishing import Charge, Plan, Promise, Query, publishes
from dpgrain.publishing.call import KeepsQuery
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.units import Relation, User


@dataclass(frozen=True)
class TypicalRecords(KeepsQuery):
    """A typical number of records of a user, published with noise.

    Args:
        records: approximately the median number of records, over users with records.
        guarantee: the guarantee, which composes with the guarantee of a fit on the same users: ``a
            + b``.

    >>> from dpgrain.papers import Known
    >>> found = typical_records(np.repeat(np.arange(2000), 16), epsilon=0.5, random_state=1)
    >>> Known(records=found.records).records, (found.guarantee + found.guarantee).epsilon()
    (16, 1.0)
    """

    records: int
    guarantee: Guarantee


@publishes
def typical_records(
    users: Any,
    *,
    epsilon: float | None = None,
    share: float | None = None,
    n_users: int | None = None,
    relation: Relation = "zero_out",
    random_state: RandomState = None,
    largest: int = 2**20,
) -> Query[TypicalRecords]:
    """Publish an approximate median number of records, for ``Known(records=…)``.

    Each user's number is rounded to the nearest of the integers next to 1, 2^(1/4), 2^(1/2), …; the
    exponential mechanism chooses one of them. With probability 1 − p, at most the share 1/2 +
    ln(80/p)/(nε) of the n users with records is below it, and at most that share above it (under
    ``replace`` the excess over 1/2 is twice as large).

    Args:
        users: (m,) the user of each record; records without a user are ignored.
        epsilon: the promised ε; there is no δ.
        share: share of the open budget, such as 0.5, instead of ε and δ; see
            :func:`dpgrain.budget`.
        n_users: the public size of the known population, if known; the result does not depend on
            it.
        relation: neighbouring relation: a unit is removed, ``zero_out``, or replaced by another,
            ``replace``.
        random_state: seed, for tests and research. The release is then *not private*.
        largest: the largest number of records that may be published.

    Raises:
        ParameterError: if a parameter is out of range.

    Formal guarantee: ε-DP for users. The score of a candidate is minus the larger of two numbers,
    of users below and above it. Removing a user lowers the larger number by 0 or 1 for each
    candidate, and replacing one changes it by at most 1. Source: McSherry & Talwar 2007;
    docs/theory, "User-level recipes".

    >>> found = typical_records(np.repeat(np.arange(2000), 16), epsilon=0.5)
    >>> found.records, found.guarantee.epsilon()
    (16, 0.5)
    """
    promise = replace(Promise.of(User(), epsilon, 0.0, relation, share), delta=0.0)
    if not 2.0**-20 <= promise.epsilon <= 2.0**10:
        raise ParameterError(
            f"epsilon must be between 2^-20 and 2^10, not {_validate.describe(epsilon)}."
        )
    if (largest := _validate.integer(minimum=1, largest=largest)) > 2**40:
        raise ParameterError(f"largest must be at most 2^40, not {_validate.describe(largest)}.")
    whose = LabelledRows.of_all(users, User())
    n = None if n_users is None else _validate.integer(minimum=1, n_users=n_users)
    return TypicalQuery(promise, whose, largest, n, random_state)


@dataclass(frozen=True, eq=False, repr=False)
class TypicalQuery(Query[TypicalRecords]):
    """A query for a typical number of records."""

    promise: Promise
    whose: LabelledRows
    largest: int
    n_users: int | None = None
    random_state: RandomState = None

    @property
    def event(self) -> ExponentialMechanism:
        """The noise of the choice."""
        return _choice(self.promise)

    @property
    def plan(self) -> Plan:
        """The guarantee and the noise of the release."""
        event = self.event
        enrolled = () if self.n_users is None else Population(self.n_users).facts
        guarantee = array_guarantee(
            self.promise,
            event,
            (*enrolled, Fact("most-records", (self.largest,))),
            users=self.whose.users,
            elements=None,
        )
        return Plan(guarantee, parts={"choice": event})

    def run(self, charge: Charge) -> TypicalRecords:
        """Count the records of each user, and choose an approximate median."""
        rows, candidates = charge.read(self.whose.arranged), _grid(self.largest)
        counts = np.bincount(rows.blocks, minlength=len(rows.owners))
        best = int(charge.order(self.event, middle_scores(counts, candidates))[0])
        return TypicalRecords(int(candidates[best]), charge.guarantee)


def middle_scores(held: NDArray[Any], candidates: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return each candidate's score: minus the number of users on its larger side.

    Args:
        held: (users,) the number of records of each user; users with 0 records do not count.
        candidates: (c,) increasing numbers of records.

    Raises:
        ParameterError: if one of them is not an array of numbers.

    >>> middle_scores(np.array([1, 4, 5]), np.array([1, 2, 4])).tolist()
    [-2, -2, -1]
    """
    for name, part in (("held", held), ("candidates", candidates)):
        if not isinstance(part, np.ndarray) or part.ndim != 1 or part.dtype.kind not in "iuf":
            raise ParameterError(f"{name} must be an array of numbers.", name=name)
    edges = np.sqrt(candidates[:-1] * candidates[1:].astype(np.float64))
    counts = np.bincount(np.searchsorted(edges, held[held > 0]), minlength=len(candidates))
    below = np.cumsum(counts) - counts
    scores: NDArray[np.int64] = -np.maximum(below, counts.sum() - counts - below).astype(np.int64)
    return scores


def _grid(largest: int) -> NDArray[np.int64]:
    """Return integers from 1 to the largest, about a quarter of an octave apart."""
    steps = 2.0 ** (np.arange(4 * largest.bit_length() + 1) / 4)
    numbers = np.unique(np.round(steps).astype(np.int64))
    return numbers[numbers <= largest]


def _choice(promise: Promise) -> ExponentialMechanism:
    """Return the choice with the least noise for the promise."""
    # A removed user changes all scores in the same direction; a replaced one is removed and added.
    epsilon, relation = promise.epsilon, promise.relation
    event = ExponentialMechanism((1 if relation == "zero_out" else 2) / epsilon, one_way=True)
    while event.epsilon(0.0, relation=relation) > epsilon:
        event = replace(event, scale=math.nextafter(event.scale, math.inf))
    return event
