"""Expected error of gradients, and of losses minimised by private descent."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dpgrain import _validate
from dpgrain._formatting import quantity
from dpgrain._lazy_import import lazy_import
from dpgrain.accounting.calibration import calibrate, calibrate_gaussian
from dpgrain.errors import ParameterError
from dpgrain.papers.floors import (
    convex_order,
    mean_order,
    min_error_of_records,
    min_error_of_worlds,
    min_noise_of_clipped_sums,
)
from dpgrain.planning.error_plan import (
    FLOOR,
    ErrorPlan,
    PlanRow,
    checked_promise,
    promise_text,
    unit_contribution,
    vectors_per_unit,
)
from dpgrain.units import Element, Relation, Unit, User, unit_level

if TYPE_CHECKING:
    from dpgrain.accounting.events import subsampling
else:
    # Loaded only for sampled runs, because it imports the numerical composition.
    subsampling = lazy_import("dpgrain.accounting.events.subsampling")

Sampling: TypeAlias = Literal["full", "pairs", "users", "passes"]
SAMPLINGS: tuple[Sampling, ...] = ("full", "pairs", "users", "passes")
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
    sampling: Sampling = "full",
    sampling_rate: float | None = None,
    passes: int | None = None,
    unit: Unit | None = None,
    relation: Relation = "zero_out",
    max_elements: int | None = None,
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
        sampling: participants of a round: all, a sample, or passes over all. In ``passes``, each
            person participates in a known number of rounds.
        sampling_rate: with pairs or users: sampling probability. It is public.
        passes: with passes: rounds in which one person participates.
        unit: the protected unit, an element by default; for ``User()`` whole users are clipped, for
            ``User(max_elements=M)`` at most M pairs per user.
        relation: neighbouring data: a unit removed, or replaced by another.
        max_elements: maximum number of elements per user. It is required for the tighter bounds of
            sampled users.
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
    epsilon, delta = checked_promise(epsilon, delta, relation)
    n = _validate.integer(minimum=1, n=n)
    rounds = _validate.integer(minimum=1, rounds=rounds)
    dimension = _validate.integer(minimum=1, dimension=dimension)
    records = _validate.integer(minimum=1, records=records)
    unit = Element() if unit is None else unit
    unit_level(unit, "element")
    _validate.one_of(SAMPLINGS, sampling=sampling)
    rate = _rate(sampling, sampling_rate, passes, rounds)
    if max_elements is not None:
        max_elements = _validate.integer(minimum=1, max_elements=max_elements)
    event = _calibrated(
        epsilon, delta, rounds, sampling, rate, passes, unit, relation, max_elements
    )
    noise = float(event.noise_multiplier)
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
        f"{promise_text(epsilon, delta, relation, unit)}"
    )
    notes = ["G is the clipping bound, R the distance from the first point to the optimum."]
    if sampling == "full" and rounds > 1:
        notes.append(
            "The noise's part is the same for any number of rounds; the other part decreases."
        )
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
    epsilon, delta = checked_promise(epsilon, delta, relation)
    n = _validate.integer(minimum=1, n_users=n_users)
    dimension = _validate.integer(minimum=1, dimension=dimension)
    records = _validate.integer(minimum=1, records=records)
    reach = _validate.scale(distance=distance) * _validate.scale(lipschitz=lipschitz)
    if strength is not None:
        strength = _strength(strength, distance, lipschitz)
    event = calibrate_gaussian(
        epsilon,
        delta,
        contribution=unit_contribution(User(), "signed"),
        relation=relation,
        unit=User(),
    )

    def risk(error: float) -> float:
        """Return the largest effect on the risk of noise with this rms error, in G."""
        if strength is None:
            return reach * error
        return min(reach * error, 2 * (lipschitz * error) ** 2 / strength)

    noise = math.sqrt(dimension) * event.noise_multiplier / n
    private = risk(noise)
    centred = min_noise_of_clipped_sums(event.noise_multiplier, n, dimension)
    order = convex_order(epsilon, n, dimension=dimension, records=records, strength=strength)
    drawn = 1 / (n * records)
    if strength is None:
        sampled, order = reach * math.sqrt(drawn), reach * order
    else:
        sampled, order = lipschitz**2 * drawn / strength, lipschitz**2 * order
    least, always = (
        _least_risk(epsilon, delta, n, m, dimension, relation, distance, lipschitz, strength)
        for m in (records, None)
    )
    source = _CONVEX if strength is None else _STRONG
    rows = [
        PlanRow("noise multiplier σ", event.noise_multiplier, "G"),
        PlanRow("rms noise of the averaged gradient", noise, "G"),
        PlanRow("excess risk, the noise's part", private, "loss", _DESCENT),
        PlanRow(
            "the same, clipped around an estimated centre",
            risk(centred / math.sqrt(dimension * records)),
            "loss",
            FLOOR,
            kind="floor",
        ),
        PlanRow("excess risk, the sampling's part", sampled, "loss", kind="order"),
        PlanRow("excess risk", private + sampled, "loss", kind="order"),
        PlanRow("lower bound, as an order", order, "loss", source, kind="order"),
        PlanRow("times the lower bound", (private + sampled) / order, "", source, kind="order"),
        PlanRow("least excess risk by any mechanism", least, "loss", FLOOR, kind="floor"),
        PlanRow("the same, any number of records", always, "loss", FLOOR, kind="floor"),
    ]
    if least > 0:
        rows.append(PlanRow("the noise's part, times the least", private / least))
    title = (
        f"Convex losses of {n:,} users with {records:,} record{'s' if records > 1 else ''} each, "
        f"dimension {dimension:,}, {promise_text(epsilon, delta, relation, User())}"
    )
    notes = [
        "The errors assume independent, identically distributed records; the guarantee does not.",
        "Optimization adds at most R·G/√T after T rounds (2G²/(μT), strongly convex).",
        "Clipping around an estimated centre: for Gaussian gradients of covariance G²/d; the estimate "
        "adds to this.",
    ]
    return ErrorPlan(title, epsilon, delta, event, tuple(rows), tuple(notes))


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


def _least_risk(
    epsilon: float,
    delta: float,
    n: int,
    records: int | None,
    dimension: int,
    relation: Relation,
    distance: float,
    lipschitz: float,
    strength: float | None,
) -> float:
    """Return a floor under the excess risk, by linear or squared losses.

    It is valid for any number of records if ``records`` is None.
    """
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


def _rate(sampling: Sampling, rate: float | None, passes: int | None, rounds: int) -> float:
    """Validate the sampling method, and return a round's expected share of gradients."""
    if sampling in ("pairs", "users"):
        if rate is None:
            raise ParameterError(
                f"sampling_rate is required if {sampling} are sampled, such as 0.01.",
                name="sampling_rate",
            )
        if passes is not None:
            raise ParameterError("passes requires sampling='passes'; omit it.", name="passes")
        rate = _validate.positive(sampling_rate=rate)
        if rate > 1:
            raise ParameterError(
                f"sampling_rate must be in (0, 1], not {_validate.describe(rate)}.",
                name="sampling_rate",
            )
        return rate
    if rate is not None:
        raise ParameterError(
            f"sampling_rate must be omitted with sampling={sampling!r}, because only 'pairs' and "
            "'users' use it.",
            name="sampling_rate",
        )
    if sampling == "full":
        if passes is not None:
            raise ParameterError("passes requires sampling='passes'; omit it.", name="passes")
        return 1.0
    if passes is None:
        raise ParameterError(
            "passes is required with sampling='passes', such as passes=1.", name="passes"
        )
    passes = _validate.integer(minimum=1, passes=passes)
    if passes > rounds:
        raise ParameterError(
            f"passes must be at most the number of rounds, {rounds}, not {passes}.", name="passes"
        )
    return passes / rounds


def _calibrated(
    epsilon: float,
    delta: float,
    rounds: int,
    sampling: Sampling,
    rate: float,
    passes: int | None,
    unit: Unit,
    relation: Relation,
    max_elements: int | None,
) -> Any:
    """Return the event with the least noise for the promise."""
    blocks = unit_contribution(unit, "signed")
    if sampling in ("pairs", "users"):
        drawn: Literal["pairs", "users"] = "pairs" if sampling == "pairs" else "users"
        return calibrate(
            lambda noise: subsampling.SampledGaussian(
                noise, rate, rounds, sampling=drawn, level=blocks.block
            ),
            epsilon,
            delta,
            relation=relation,
            unit=unit,
            max_elements=max_elements,
        ).event
    count = rounds if passes is None else passes
    event = calibrate_gaussian(
        epsilon, delta, contribution=blocks, relation=relation, unit=unit, count=count
    )
    if sampling == "full":
        return event
    return subsampling.Participation(event.noise_multiplier, count, level=blocks.block)
