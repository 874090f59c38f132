"""Expected error of means of users' vectors."""

from __future__ import annotations

import math
from collections.abc import Callable

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.means import ClippedMean
from dpgrain.papers.floors import (
    mean_order,
    min_error,
    min_error_of_records,
    min_error_of_worlds,
    min_noise_of_clipped_sums,
)
from dpgrain.planning.plan_tables import (
    MANY_UNITS,
    ErrorPlan,
    PlanRow,
    floor_row,
    planned_promise,
    promise_text,
    vectors_per_unit,
)
from dpgrain.units import Relation, Unit, User, unit_level
from dpgrain.words.notes import Note

_MEANS = "user-level learning paper, Cor. 1 and App. C.4"


def plan_mean(
    epsilon: float,
    delta: float,
    *,
    n: int,
    dimension: int = 1,
    unit: Unit | None = None,
    relation: Relation = "zero_out",
    records: int = 1,
    error: float | None = None,
) -> ErrorPlan:
    """Return the expected error of a private mean, with limits of any mechanism.

    Args:
        epsilon: privacy parameter ε, such as 1; smaller protects more.
        delta: privacy parameter δ, such as 1e-6.
        n: public number of vectors, one per unit. It divides the sum. With at most M elements per
            user, it is the number of elements.
        dimension: dimension of a vector.
        unit: the protected unit, a user by default; a ``User(max_elements=M)`` adds at most M
            vectors.
        relation: neighbouring data: a unit removed, or replaced by another.
        records: independent records per vector, for the lower bound. Each vector is the mean of
            records of one distribution; 1 assumes nothing.
        error: target rms error in clipping bounds; plans the number of vectors.

    Raises:
        ParameterError: if a parameter is out of range, or the contribution of a unit is unbounded.

    All errors are rms l2 errors in units of the l2 clipping bound C. The mechanism adds Gaussian
    noise of standard deviation σC/n to each coordinate, in total √d·σ·C/n. The papers' lower bound
    for n users with m records each is of order √d·C/(n·ε·√m), up to logarithms.

    Formal guarantee: that of :attr:`ErrorPlan.event`, calibrated to (ε, δ).

    Source: user-level learning paper, Cor. 1 (its tightness, App. C.4, uses Prop. 6 there). Its
    Lemma 3 needs a bound on the largest coordinate of the mean, not only on its l2 norm. The prior
    of Prop. 6, uniform on a box, has one, so the order is valid.

    >>> plan = plan_mean(1.0, 1e-6, n=10_000, dimension=100)
    >>> round(plan["rms privacy error"], 5)
    0.00422
    """
    unit = User() if unit is None else unit
    unit_level(unit, "user")
    promise = planned_promise(unit, epsilon, delta, relation)
    n = _validate.integer(minimum=1, n=n)
    dimension = _validate.integer(minimum=1, dimension=dimension)
    records = _validate.integer(minimum=1, records=records)
    mean = ClippedMean.calibrate(
        epsilon=epsilon, delta=delta, n_users=n, rounds=1, unit=unit, relation=relation
    )
    # One unit adds at most `reach` clipping bounds, and there are at least `units` units.
    reach = vectors_per_unit(unit)
    units = max(n // reach, 1)
    # One unit has `own` independent records in all its vectors; the vectors of all units are
    # `share` of the n.
    own, share = records * reach, units * reach / max(n, reach)

    def floor(units: int) -> float:
        return reach * min_error(epsilon, delta, units, dimension=dimension, relation=relation)

    total = math.sqrt(dimension) * mean.noise_multiplier
    such = share * min_error_of_records(
        epsilon, delta, units, records=own, dimension=dimension, relation=relation
    )
    least = floor(units)
    order = reach * mean_order(epsilon, 1, dimension=dimension, records=records)
    rows = [
        PlanRow("noise multiplier σ", mean.noise_multiplier, "clipping bounds"),
        PlanRow("noise sd of a coordinate", mean.noise_sd, "clipping bounds"),
        PlanRow("rms privacy error", total / n, "clipping bounds"),
        PlanRow("sampling error at most", 1 / math.sqrt(units), "clipping bounds"),
        PlanRow(
            "vectors from which sampling is worse",
            math.ceil(mean.noise_multiplier**2 * dimension / reach),
            "vectors",
        ),
        PlanRow("lower bound, as an order", order / n, "clipping bounds", _MEANS, kind="order"),
        PlanRow("times the lower bound", total / order, "", _MEANS, kind="order"),
        floor_row("least rms error by any mechanism", least / n),
        PlanRow("times the least", total / least),
        floor_row(
            "least noise of clipped sums, such records",
            min_noise_of_clipped_sums(mean.noise_multiplier, n, dimension)
            / math.sqrt(dimension * records),
        ),
        floor_row("least by any mechanism, such records", such),
        PlanRow("times that", total / n / such),
        floor_row(
            "the same, any number of records",
            share * 2 * math.sqrt(min_error_of_worlds(epsilon, delta, units, relation=relation)),
        ),
    ]
    if error is not None:
        rows += _needed(_validate.positive(error=error), total, order, floor, reach)
    title = f"Mean of {n:,} vectors of dimension {dimension:,}, {promise_text(promise)}"
    notes: list[Note] = [("mean-units",), ("such-records", records)]
    if records > 1:
        notes.append(("records-of-a-vector", records))
    if relation == "zero_out":
        notes.append(("replace-order",))
    return ErrorPlan(title, epsilon, delta, mean.event, tuple(rows), tuple(notes))


def _needed(
    error: float, total: float, order: float, floor: Callable[[int], float], reach: int
) -> list[PlanRow]:
    """Return the number of vectors for an error, with this mechanism and at least."""
    if not math.isfinite(max(floor(MANY_UNITS), total, order) / error):
        raise ParameterError(
            f"error must be larger, because no number of vectors is enough for {error:g}."
        )
    # From some number of units, the floor of the sum no longer grows, and the floor of the mean is
    # 1/n of it.
    least = math.ceil(floor(MANY_UNITS) / error)
    stands = floor(max(least // reach, 1)) >= 0.999 * floor(MANY_UNITS)
    rows = [
        PlanRow(f"for an error of {error:g}", math.ceil(total / error), "vectors"),
        PlanRow("the same, as an order at least", order / error, "vectors", _MEANS, kind="order"),
    ]
    if stands:
        rows.append(floor_row("the same, at least by any mechanism", least, "vectors"))
    return rows
