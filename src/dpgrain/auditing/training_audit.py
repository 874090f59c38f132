"""``dg.audit_training``: lower bound on the ε of a training run, from its canaries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from dpgrain import _validate
from dpgrain._types import BoolArray, FloatArray, IntArray
from dpgrain.accounting.losses.gaussian import gaussian_mu
from dpgrain.auditing.epsilon_bounds import min_shift, named_epsilon, one_run_epsilon
from dpgrain.auditing.verdict import AuditLine, Bound, TrainingAudit
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomSource, RandomState
from dpgrain.noise.sources import random_source
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.units import Level

# Shares of guessed canaries; each uses a part of the error probability.
_SHARES = (1.0, 0.3, 0.1, 0.03)
# Tested factors between assumed and actual noise; the smallest detectable one is reported.
# Synthetic runs per factor; most must detect it.
_FACTORS = (1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0)
_TRIES = 5
# Maximum number of canaries, because each has a separate axis.
_MOST_CANARIES = 1_000_000
# Norm of a canary's gradient, above any reasonable clipping bound.
_LENGTH = 1e3


@dataclass(frozen=True, eq=False)
class Canaries:
    """Rows of the included canaries.

    Args:
        gradients: (rows, d) the gradient of each row, with a norm above any clipping bound.
        users: (rows,) the user of each row, from 0 to ``n_users`` − 1.
        elements: (rows,) the element of each row, from 0.
        n_users: the number of users, including users without rows.
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
    """Compute lower bounds on the ε of one training run from its canaries.

    Args:
        train: a function that trains on the rows of :class:`Canaries` like on other rows. It
            returns (d,) published numbers, each increasing with the contributions of its
            coordinate's gradients (for a descent, the start minus the end), and the guarantee of
            the run.
        canaries: the number of canaries, which are users or elements of users. Each is included
            with probability ½, and its gradients point along a separate axis, d = ``canaries``.
        records: the records of each canary.
        elements: the elements of each user, each a canary; 1 if whole users are canaries.
        delta: the δ of the bounds on ε; by default, the δ of the guarantee.
        confidence: the probability that both bounds are valid together.
        random_state: a seed for the choice of included canaries, for tests.

    Returns:
        the audit; when printed, it has one line.

    Raises:
        ParameterError: if an argument is out of range, ``train`` returns an invalid result, or the
            guarantee is for another unit than the canaries.

    Nothing else is assumed about the run: batches may be sampled, and steps may depend on earlier
    ones. Canaries with large numbers are guessed as included, canaries with small numbers as
    excluded, and there is no guess for the others. Guarantee: with probability ``confidence``, the
    *free* bound is at most the ε of the run at δ; and so is the *named* bound, if the numbers have
    a common normal distribution. Source: Steinke, Nasr & Jagielski 2023; docs/tutorials/audits.md.

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
            f"train must be a function of the rows of canaries, not {_validate.describe(train)}.",
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
    source = random_source(random_state)
    level, delta, line = one_run(train, canaries, records, elements, delta, confidence, source)
    rng = np.random.default_rng(int(source.words(1)[0]))
    seen = _detectable_factors(line.claim, canaries, delta, (1 - confidence) / 2, rng)
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
    source: RandomSource,
) -> tuple[Level, float, AuditLine]:
    """Return the level, δ and both bounds of one run, without its detectable errors."""
    included = np.asarray(source.words(canaries) >> np.uint64(63) == 1)
    answer = train(_rows(included, records, elements))
    published, guarantee = _check_answer(answer, canaries)
    _check_unit(guarantee, records, elements)
    delta = guarantee.delta if delta is None else delta
    free, named = _bounds(published, included, delta, (1 - confidence) / 2)
    claim = guarantee.epsilon(delta, relation="zero_out")
    line = AuditLine(1, "zero_out", claim, Bound(free), Bound(named), "canaries, there or not")
    return guarantee.level, delta, line


def _rows(included: BoolArray, records: int, elements: int) -> Canaries:
    """Return the rows of the included canaries, canary by canary."""
    present = np.repeat(np.flatnonzero(included), records)
    gradients = np.zeros((present.size, included.size))
    gradients[np.arange(present.size), present] = _LENGTH
    return Canaries(
        gradients, present // elements, present % elements, -(-included.size // elements)
    )


def _check_answer(answer: object, canaries: int) -> tuple[FloatArray, Guarantee]:
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
    published: FloatArray, included: BoolArray, delta: float, alpha: float
) -> tuple[float, float]:
    """Return the free and the named bound."""
    order = np.argsort(published, kind="stable")
    free = 0.0
    for share in _SHARES:
        # The numbers of guesses for inclusion and exclusion are equal, independent of the truth.
        each = max(int(share * order.size / 2), 1)
        correct = int(included[order[-each:]].sum() + (~included[order[:each]]).sum())
        bound = one_run_epsilon(correct, 2 * each, order.size, delta, alpha / len(_SHARES))
        free = max(free, bound)
    moved = min_shift(published[included], published[~included], alpha)
    return free, named_epsilon(moved, 0.0, delta) if delta > 0 else 0.0


def _detectable_factors(
    claim: float, canaries: int, delta: float, alpha: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the smallest detectable noise error of both bounds, from synthetic runs."""
    seen = [float("inf"), float("inf")]
    if not 0 < claim < float("inf") or delta <= 0:
        return seen[0], seen[1]
    apart = gaussian_mu(claim, delta)
    for factor in reversed(_FACTORS):
        detected = np.zeros(2)
        for _ in range(_TRIES):
            included = rng.random(canaries) < 0.5
            scores = rng.normal(size=canaries) + factor * apart * included
            detected += np.array(_bounds(scores, included, delta, alpha)) > claim
        for place in np.flatnonzero(detected > _TRIES / 2):
            seen[place] = factor
    return seen[0], seen[1]
