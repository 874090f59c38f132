"""``dg.audit_training``: a lower bound on the ε of a training run, from canaries in that one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from dpgrain import _validate
from dpgrain._types import BoolArray, FloatArray, IntArray
from dpgrain.accounting.losses.gaussian import gaussian_mu
from dpgrain.auditing.bounds import moved_by_at_least, named_epsilon, one_run_epsilon
from dpgrain.auditing.verdict import Bound, Line, TrainingAudit
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomState, Source
from dpgrain.noise.sources import source_of
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.units import Level

# Shares of the canaries of which something is guessed; each takes its part of the error.
_SHARES = (1.0, 0.3, 0.1, 0.03)
# Factors by which noise may be too small, of which the smallest that shows is named; made-up runs of
# each, of which more than half must show it.
_FACTORS = (1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0)
_TRIES = 5
# Canaries, at most, as each has an axis of its own.
_MOST_CANARIES = 1_000_000
# Length of a canary's gradient, which a clipping bound is below.
_LENGTH = 1e3


@dataclass(frozen=True, eq=False)
class Canaries:
    """The rows of the canaries that are there.

    Args:
        gradients: (rows, d) the gradient of each row, long enough to be clipped by any bound.
        users: (rows,) whose each row is, from 0 to ``n_users`` − 1.
        elements: (rows,) the element of each row, from 0.
        n_users: the number of users, of whom some have no row.
    """

    gradients: FloatArray
    users: IntArray
    elements: IntArray
    n_users: int


def audit_training(
    train: Callable[[Canaries], tuple[ArrayLike, Guarantee]],
    *,
    canaries: int = 1000,
    records: int = 2,
    elements: int = 1,
    delta: float | None = None,
    confidence: float = 0.99,
    random_state: RandomState = None,
) -> TrainingAudit:
    """Bound the ε of one training run from below, by canaries in it.

    Args:
        train: a function that trains on the rows of :class:`Canaries` as it would on others, and
            returns (d,) published numbers, which grow with what the gradients of each coordinate
            added (where it began less where it ended, for a descent), and the run's guarantee.
        canaries: how many there are: users, or elements of users. Each is there with probability ½, and
            its gradients point along an axis of its own, d = ``canaries``.
        records: the records of each canary.
        elements: the elements of each user, each a canary; 1 where whole users are canaries.
        delta: the δ at which ε is bounded; by default that of the guarantee.
        confidence: the probability with which both bounds hold together.
        random_state: a seed of which canaries are there, for tests.

    Returns:
        The audit; printed, it has one line.

    Raises:
        ParameterError: if an argument is out of range, ``train`` returns something else, or the
            guarantee is not of the unit that canaries are.

    Nothing else is assumed of the run: batches may be drawn, and steps may depend on earlier ones. A
    canary that is guessed to be there has a large number, one that is not has a small one, and of those
    between nothing is said. Guarantee: with probability ``confidence`` the *free* bound is at most the
    ε of the run at δ; and so is the *named* one, if numbers have one normal law. Source: Steinke, Nasr
    & Jagielski 2023; docs/tutorials/audits.md.

    >>> from dpgrain.accounting import Contribution, Gaussian
    >>> from dpgrain import Guarantee
    >>> event = Gaussian(0.5, Contribution(block="user", layout="shared", coordinates="signed"))
    >>> def sums(rows):
    ...     total = np.zeros(rows.gradients.shape[1])
    ...     for user in np.unique(rows.users):
    ...         one = rows.gradients[rows.users == user].mean(axis=0)
    ...         total += one / np.linalg.norm(one)
    ...     noise = np.random.default_rng(1).normal(0, 0.5, total.size)
    ...     return total + noise, Guarantee("user", "", "zero_out", 1e-5, event)
    >>> found = audit_training(sums, canaries=500, random_state=1)
    >>> line, = found.lines
    >>> found.verdict, 1 < line.free.epsilon < line.named.epsilon < line.claim
    ('kept', True)
    """
    if not callable(train):
        raise ParameterError(
            f"train must be a function of the rows of canaries, not {_validate.said(train)}.",
            name="train",
        )
    canaries = _validate.integer(minimum=2, canaries=canaries)
    if canaries > _MOST_CANARIES:
        raise ParameterError(
            f"canaries must be at most a million, not {canaries:,}.", name="canaries"
        )
    records = _validate.integer(minimum=1, records=records)
    elements = _validate.integer(minimum=1, elements=elements)
    confidence = _validate.fraction(confidence=confidence)
    if delta is not None:
        delta = _validate.delta(allow_zero=True, delta=delta)
    source = source_of(random_state)
    level, delta, line = one_run(train, canaries, records, elements, delta, confidence, source)
    rng = np.random.default_rng(int(source.words(1)[0]))
    seen = _seen(line.claim, canaries, delta, (1 - confidence) / 2, rng)
    line = replace(
        line, free=replace(line.free, seen=seen[0]), named=replace(line.named, seen=seen[1])
    )
    return TrainingAudit(level, delta, confidence, (line,), draws=canaries, runs=1)


def one_run(
    train: Callable[[Canaries], tuple[ArrayLike, Guarantee]],
    canaries: int,
    records: int,
    elements: int,
    delta: float | None,
    confidence: float,
    source: Source,
) -> tuple[Level, float, Line]:
    """Return the level, the δ and both bounds of one run, without what they would have seen.

    Args:
        train: the function that trains, as for :func:`audit_training`, and so the others.
        canaries: how many there are.
        records: the records of each canary.
        elements: the elements of each user.
        delta: the δ at which ε is bounded; None for that of the guarantee.
        confidence: the probability with which both bounds hold together.
        source: where it comes from which canaries are there.
    """
    there = np.asarray(source.words(canaries) >> np.uint64(63) == 1)
    answer = train(_rows(there, records, elements))
    published, guarantee = _checked(answer, canaries)
    _check_unit(guarantee, records, elements)
    delta = guarantee.delta if delta is None else delta
    free, named = _bounds(published, there, delta, (1 - confidence) / 2)
    claim = guarantee.epsilon(delta, relation="zero_out")
    line = Line(1, "zero_out", claim, Bound(free), Bound(named), "canaries, there or not")
    return guarantee.level, delta, line


def _rows(there: BoolArray, records: int, elements: int) -> Canaries:
    """Return the rows of the canaries that are there, canary by canary."""
    present = np.repeat(np.flatnonzero(there), records)
    gradients = np.zeros((present.size, there.size))
    gradients[np.arange(present.size), present] = _LENGTH
    return Canaries(gradients, present // elements, present % elements, -(-there.size // elements))


def _checked(answer: object, canaries: int) -> tuple[FloatArray, Guarantee]:
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], Guarantee):
        raise ParameterError(
            "train must return (d,) published numbers and a Guarantee, such as "
            "(start - model.coef_, model.guarantee_).",
            name="train",
        )
    published = np.asarray(answer[0], dtype=np.float64).ravel()
    if published.shape != (canaries,):
        raise ParameterError(
            f"train must return one number for each of the {canaries} coordinates of gradients, not "
            f"{published.size}.",
            name="train",
        )
    return published, answer[1]


def _check_unit(guarantee: Guarantee, records: int, elements: int) -> None:
    if guarantee.level == "user" and elements > 1:
        raise ParameterError(
            f"elements must be 1 if users are protected, not {elements}, because a canary is a "
            "whole user.",
            name="elements",
        )
    if guarantee.level == "record" and records > 1:
        raise ParameterError(
            f"records must be 1 if records are protected, not {records}, because a canary is a "
            "record.",
            name="records",
        )


def _bounds(
    published: FloatArray, there: BoolArray, delta: float, alpha: float
) -> tuple[float, float]:
    """Return the free bound and the named one."""
    order = np.argsort(published, kind="stable")
    free = 0.0
    for share in _SHARES:
        # As many are guessed to be there as not to be, whatever the truth is.
        each = max(int(share * order.size / 2), 1)
        correct = int(there[order[-each:]].sum() + (~there[order[:each]]).sum())
        bound = one_run_epsilon(correct, 2 * each, order.size, delta, alpha / len(_SHARES))
        free = max(free, bound)
    moved = moved_by_at_least(published[there], published[~there], alpha)
    return free, named_epsilon(moved, 0.0, delta) if delta > 0 else 0.0


def _seen(
    claim: float, canaries: int, delta: float, alpha: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Return for both bounds the smallest factor of too little noise that shows, in made-up runs.

    Scores are normal, and as far apart as the claim allows, times the factor.
    """
    seen = [float("inf"), float("inf")]
    if not 0 < claim < float("inf") or delta <= 0:
        return seen[0], seen[1]
    apart = gaussian_mu(claim, delta)
    for factor in reversed(_FACTORS):
        shown = np.zeros(2)
        for _ in range(_TRIES):
            there = rng.random(canaries) < 0.5
            scores = rng.normal(size=canaries) + factor * apart * there
            shown += np.array(_bounds(scores, there, delta, alpha)) > claim
        for place in np.flatnonzero(shown > _TRIES / 2):
            seen[place] = factor
    return seen[0], seen[1]
