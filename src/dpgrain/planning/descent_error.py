"""Expected error of gradients, and of losses minimised by private descent."""

from __future__ import annotations

import math
from typing import Literal

from dpgrain import _validate
from dpgrain._formatting import quantity
from dpgrain.accounting import Event, Participation
from dpgrain.errors import ParameterError
from dpgrain.means import ClippedMean
from dpgrain.papers.floors import (
    convex_order,
    mean_order,
    min_error_of_records,
    min_error_of_worlds,
    min_noise_of_clipped_sums,
)
from dpgrain.planning.plan_tables import (
    ErrorPlan,
    PlanRow,
    floor_row,
    planned_promise,
    promise_text,
    vectors_per_unit,
)
from dpgrain.units import Element, Relation, Unit, User, unit_level
from dpgrain.words.notes import Note

_CONVEX = "user-level learning paper, Thm. 6"
_STRONG = "user-level SCO paper, Thm. 4.11"
_DESCENT = "user-level SCO paper, Prop. 4.10, without its factor 2"


def plan_gradient(
    epsilon: float,
    delta: float,
    *,
    n: int,
    rounds: int,
    dimension: int,
    sampling: Literal["pairs", "users"] = "pairs",
    sampling_rate: float = 1.0,
    passes: int | None = None,
    unit: Unit | None = None,
    relation: Relation = "zero_out",
    records: int = 1,
) -> ErrorPlan:
    """Return the expected error of noisy gradient descent, with the minimum possible.

    Args:
        epsilon: privacy parameter ε, such as 1; smaller protects more. It covers the whole run.
        delta: privacy parameter δ, such as 1e-6.
        n: public number of clipped gradients: pairs or users. It is one for each (user, element)
            pair, or for each user if whole users are clipped.
        rounds: rounds of the run.
        dimension: dimension of a vector.
        sampling: whether a round samples pairs, or users with all their pairs.
        sampling_rate: sampling probability; by default all participate. It is public.
        passes: rounds in which one person participates, if batches are not sampled.
        unit: the protected unit, an element by default; for ``User()`` whole users are clipped, for
            ``User(max_elements=M)`` at most M pairs per user.
        relation: neighbouring data: a unit removed, or replaced by another.
        records: independent records per vector, for the lower bound. Each gradient is their mean.

    Raises:
        ParameterError: if a parameter is out of range, or incompatible with the sampling method.

    Gradients are clipped to norm G (without effect if losses are G-Lipschitz); their sum gets noise
    of sd σG and is divided by the public q·n, where q is the sampling rate. For convex losses, on a
    set within distance R of the first point, the mean of the iterates of projected descent with the
    best step has excess risk at most R·√(E‖g̃‖²/T) on the data, where E‖g̃‖² ≤ G²(1 + (1−q)/(q·n) +
    d·s²) and s·G is the sd of a coordinate. The noise adds at most R·G·√d·s/√T to it.

    Formal guarantee: that of :attr:`ErrorPlan.event`, calibrated to (ε, δ).

    Source: user-level SCO paper, Prop. 4.10, for the upper bound (there twice as large); user-level
    learning paper, Thm. 6, for the lower one, of order G·R·√d/(n·ε·√m), up to logarithms.

    >>> plan = plan_gradient(1.0, 1e-6, n=100_000, rounds=100, dimension=50)
    >>> round(plan["noise sd of a coordinate"], 6)
    0.000422
    """
    unit = Element() if unit is None else unit
    unit_level(unit, "element")
    promise = planned_promise(unit, epsilon, delta, relation)
    rounds = _validate.integer(minimum=1, rounds=rounds)
    dimension = _validate.integer(minimum=1, dimension=dimension)
    records = _validate.integer(minimum=1, records=records)
    mean = ClippedMean.calibrate(
        epsilon=epsilon,
        delta=delta,
        n_users=_validate.integer(minimum=1, n=n),
        rounds=rounds if passes is None else _passes(passes, rounds, sampling_rate),
        unit=unit,
        relation=relation,
        sampling_rate=sampling_rate,
        sampling=sampling,
    )
    event: Event = mean.event
    noise, rate = mean.noise_multiplier, mean.sampling_rate
    if passes is not None:
        rate, event = passes / rounds, Participation(noise, passes, level=mean.level)
    divisor = rate * n
    sd = noise / divisor
    reach = vectors_per_unit(unit)
    drawn = (1 - rate) / divisor
    private, others = math.sqrt(dimension) * sd, math.sqrt(1 + drawn)
    order = reach * mean_order(epsilon, n, dimension=dimension, records=records)
    rows = [
        PlanRow("noise multiplier σ", noise, "clipping bounds"),
        PlanRow("public divisor", divisor, "gradients"),
        PlanRow("noise sd of a coordinate", sd, "clipping bounds"),
        PlanRow("rms noise of the averaged gradient", private, "clipping bounds"),
        PlanRow("excess risk, the noise's part", private / math.sqrt(rounds), "G·R", _DESCENT),
        PlanRow("excess risk, the other part", others / math.sqrt(rounds), "G·R", _DESCENT),
        PlanRow("lower bound, as an order", order, "G·R", _CONVEX, kind="order"),
        PlanRow(
            "the noise's part, times the order",
            private / math.sqrt(rounds) / order,
            "",
            _CONVEX,
            kind="order",
        ),
    ]
    title = (
        f"Gradient run, {quantity(rounds, 'round')} over {n:,} gradients of dimension {dimension:,}, "
        f"{promise_text(promise)}"
    )
    notes: list[Note] = [("gradient-units",)]
    if rate == 1 and rounds > 1:
        notes.append(("any-rounds",))
    return ErrorPlan(title, epsilon, delta, event, tuple(rows), tuple(notes))


def plan_sco(
    epsilon: float,
    delta: float,
    *,
    n_users: int,
    dimension: int,
    records: int = 1,
    distance: float = 1.0,
    lipschitz: float = 1.0,
    strength: float | None = None,
    relation: Relation = "zero_out",
) -> ErrorPlan:
    """Return the expected excess risk of convex losses, with the minimum possible.

    Args:
        epsilon: privacy parameter ε, such as 1; smaller protects more.
        delta: privacy parameter δ, such as 1e-6.
        n_users: public number of users.
        dimension: dimension of a vector.
        records: independent records per user, for the errors. All have one distribution.
        distance: R: maximum distance of the first point from the best one.
        lipschitz: G: Lipschitz constant of the losses. Users' gradients are clipped to it.
        strength: strong convexity μ of the losses, if any.
        relation: neighbouring data: a unit removed, or replaced by another.

    Raises:
        ParameterError: if a parameter is out of range, or no such loss can be μ-strongly convex.

    The noise's part is that of projected descent over all users: R·G·√d·σ/n, and 2·d·(σG/n)²/μ for
    strongly convex losses, for any number of rounds. The remaining error of the rounds without
    noise is additional. The sampling's part is of order R·G/√(nm), or G²/(μ·n·m).

    Formal guarantee: that of :attr:`ErrorPlan.event`, calibrated to (ε, δ) for all rounds together.

    Source: user-level learning paper, Thm. 6; user-level SCO paper, Thm. 4.11, for strongly convex
    losses, and Prop. 4.10 for the upper bound; Lacoste-Julien, Schmidt & Bach 2012 for weighted
    means of the rounds.

    >>> plan = plan_sco(1.0, 1e-6, n_users=10_000, dimension=100, records=50)
    >>> round(plan["excess risk, the noise's part"], 5)
    0.00422
    """
    promise = planned_promise(User(), epsilon, delta, relation)
    n = _validate.integer(minimum=1, n_users=n_users)
    dimension = _validate.integer(minimum=1, dimension=dimension)
    records = _validate.integer(minimum=1, records=records)
    reach = _validate.scale(distance=distance) * _validate.scale(lipschitz=lipschitz)
    if strength is not None:
        strength = _strength(strength, distance, lipschitz)
    mean = ClippedMean.calibrate(
        epsilon=epsilon, delta=delta, n_users=n, rounds=1, unit=User(), relation=relation
    )

    def risk(error: float) -> float:
        """Return the largest effect on the risk of noise with this rms error, in G."""
        if strength is None:
            return reach * error
        return min(reach * error, 2 * (lipschitz * error) ** 2 / strength)

    noise = math.sqrt(dimension) * mean.noise_sd
    private = risk(noise)
    centred = min_noise_of_clipped_sums(mean.noise_multiplier, n, dimension)
    order = convex_order(epsilon, n, dimension=dimension, records=records, strength=strength)
    drawn = 1 / (n * records)
    if strength is None:
        sampled, order = reach * math.sqrt(drawn), reach * order
    else:
        sampled, order = lipschitz**2 * drawn / strength, lipschitz**2 * order
    least, always = (
        _min_risk(epsilon, delta, n, m, dimension, relation, distance, lipschitz, strength)
        for m in (records, None)
    )
    source = _CONVEX if strength is None else _STRONG
    rows = [
        PlanRow("noise multiplier σ", mean.noise_multiplier, "G"),
        PlanRow("rms noise of the averaged gradient", noise, "G"),
        PlanRow("excess risk, the noise's part", private, "loss", _DESCENT),
        floor_row(
            "the same, clipped around an estimated centre",
            risk(centred / math.sqrt(dimension * records)),
            "loss",
        ),
        PlanRow("excess risk, the sampling's part", sampled, "loss", kind="order"),
        PlanRow("excess risk", private + sampled, "loss", kind="order"),
        PlanRow("lower bound, as an order", order, "loss", source, kind="order"),
        PlanRow("times the lower bound", (private + sampled) / order, "", source, kind="order"),
        floor_row("least excess risk by any mechanism", least, "loss"),
        floor_row("the same, any number of records", always, "loss"),
    ]
    if least > 0:
        rows.append(PlanRow("the noise's part, times the least", private / least))
    title = (
        f"Convex losses of {n:,} users with {records:,} record{'s' if records > 1 else ''} each, "
        f"dimension {dimension:,}, {promise_text(promise)}"
    )
    notes = (("identical-records",), ("optimization",), ("estimated-centre",))
    return ErrorPlan(title, epsilon, delta, mean.event, tuple(rows), notes)


def _strength(strength: float, distance: float, lipschitz: float) -> float:
    strength = _validate.scale(strength=strength)
    most = 2 * lipschitz / distance
    if strength > most:
        raise ParameterError(
            f"strength must be at most 2·lipschitz/distance ({most:g}), not "
            f"{_validate.describe(strength)}, because no loss with that slope has a larger curvature.",
            name="strength",
        )
    return strength


def _min_risk(
    epsilon: float,
    delta: float,
    n: int,
    records: int | None,  # None for any number
    dimension: int,
    relation: Relation,
    distance: float,
    lipschitz: float,
    strength: float | None,
) -> float:
    """Return a floor under the excess risk, by linear or squared losses."""
    if strength is None:
        if records is None:
            left = 2 * min_error_of_worlds(epsilon, delta, n, relation=relation, penalty="absolute")
        else:
            left = min_error_of_records(
                epsilon,
                delta,
                n,
                records=records,
                dimension=dimension,
                relation=relation,
                penalty="absolute",
            )
        return distance * lipschitz * left
    if records is None:
        square = 4 * min_error_of_worlds(epsilon, delta, n, relation=relation)
    else:
        least = min_error_of_records(
            epsilon, delta, n, records=records, dimension=dimension, relation=relation
        )
        square = least * least
    # The loss μ/2·(θ − z)² for θ and z in [−B, B] has a slope of at most 2μB.
    return strength / 2 * min(lipschitz / (2 * strength), distance) ** 2 * square


def _passes(passes: int, rounds: int, sampling_rate: float) -> int:
    passes = _validate.integer(minimum=1, passes=passes)
    if sampling_rate != 1:
        raise ParameterError(
            "sampling_rate must be omitted with passes, because batches are then not sampled.",
            name="sampling_rate",
        )
    if passes > rounds:
        raise ParameterError(
            f"passes must be at most the number of rounds, {rounds}, not {passes}.", name="passes"
        )
    return passes
