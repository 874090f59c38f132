"""Expected error of a choice among candidates."""

from __future__ import annotations

import math

import numpy as np

from dpgrain import _validate
from dpgrain.accounting.calibration import calibrate_bounded_range
from dpgrain.papers.floors import (
    choice_order,
    min_error_of_worlds,
    min_excess_of_choice,
)
from dpgrain.planning.plan_tables import (
    ErrorPlan,
    PlanRow,
    floor_row,
    planned_promise,
    promise_text,
)
from dpgrain.units import Relation, User
from dpgrain.words.notes import Note

_FINITE = "user-level learning paper, Thm. 8"


def plan_select(
    epsilon: float,
    delta: float = 0.0,
    *,
    n_users: int,
    hypotheses: int,
    records: int = 1,
    bound: float = 1.0,
    relation: Relation = "zero_out",
) -> ErrorPlan:
    """Return the expected excess risk of a private choice, with the minimum possible.

    Args:
        epsilon: privacy parameter ε, such as 1; smaller protects more.
        delta: privacy parameter δ, such as 1e-6.
        n_users: public number of users.
        hypotheses: number of hypotheses. It is at least 2.
        records: independent records per user, for the errors. All have one distribution.
        bound: B: losses are in [0, B].
        relation: neighbouring data: a unit removed, or replaced by another.

    Raises:
        ParameterError: if a parameter is out of range.

    A user's score of a hypothesis is the mean loss over the records. The exponential mechanism
    chooses by Gumbel noise on the sums of scores; its expected excess is at most B·ln K/(rate·n).
    For δ = 0 permute-and-flip is private at the same rate and never worse. Every hypothesis is
    evaluated once.

    Formal guarantee: that of :attr:`ErrorPlan.event`, calibrated to (ε, δ).

    Source: user-level learning paper, section 6 and Thm. 8; McKenna & Sheldon 2020 for
    permute-and-flip.

    >>> plan = plan_select(1.0, n_users=1000, hypotheses=20)
    >>> round(plan["excess risk, the noise's part at most"], 6)
    0.002996
    """
    promise = planned_promise(User(), epsilon, delta, relation, allow_zero=True)
    n = _validate.integer(minimum=1, n_users=n_users)
    hypotheses = _validate.integer(minimum=2, hypotheses=hypotheses)
    records = _validate.integer(minimum=1, records=records)
    bound = _validate.positive(bound=bound)
    event = calibrate_bounded_range(epsilon, delta, relation=relation)
    scale = bound / (event.rate * n)
    # No choice is worse than the whole range.
    private = min(scale * math.log(hypotheses), bound)
    tied, flipped = (min(scale * worst, bound) for worst in _ties(hypotheses))
    sampled = min(bound * math.sqrt(2 * math.log(2 * hypotheses) / (n * records)), bound)
    order = bound * choice_order(epsilon, n, hypotheses, records=records)
    least = bound * min_excess_of_choice(
        epsilon, delta, n, hypotheses, records=records, relation=relation
    )
    always = bound * min_error_of_worlds(epsilon, delta, n, relation=relation, penalty="absolute")
    rows = [
        PlanRow("evaluations of a hypothesis", hypotheses, "passes over the records"),
        PlanRow("excess risk, the noise's part at most", private, "loss"),
        PlanRow("where all but one tie, exponential", tied, "loss"),
    ]
    if delta == 0:
        rows.append(PlanRow("where all but one tie, permute-and-flip", flipped, "loss"))
    rows += [
        PlanRow("excess risk, the sampling's part at most", sampled, "loss"),
        PlanRow("excess risk at most", min(private + sampled, bound), "loss"),
        PlanRow("lower bound, as an order", order, "loss", _FINITE, kind="order"),
        PlanRow(
            "times the lower bound",
            min(private + sampled, bound) / order,
            "",
            _FINITE,
            kind="order",
        ),
        floor_row("least excess risk by any choice", least, "loss"),
        floor_row("the same, any number of records", always, "loss"),
        PlanRow("the noise's part, times the least", private / least),
    ]
    title = (
        f"Choice among {hypotheses:,} hypotheses by {n:,} users with {records:,} "
        f"record{'s' if records > 1 else ''} each, {promise_text(promise)}"
    )
    notes: list[Note] = [("identical-records",)]
    if records > 1:
        notes.append(("similar-users", records))
    if delta > 0:
        notes.append(("pure-order",))
    return ErrorPlan(title, epsilon, delta, event, tuple(rows), tuple(notes))


def _ties(hypotheses: int) -> tuple[float, float]:
    """Return both mechanisms' worst expected excess, in scales, for ties below the best."""
    gaps = np.linspace(0, math.log(hypotheses) + 8, 2001)[1:]
    others = (hypotheses - 1) * np.exp(-gaps)
    tied = gaps * others / (1 + others)
    # The best one wins unless an earlier one, in random order, is chosen.
    chances = np.exp(-gaps)
    flipped = gaps * (1 + np.expm1(hypotheses * np.log1p(-chances)) / (hypotheses * chances))
    return float(tied.max()), float(flipped.max())
