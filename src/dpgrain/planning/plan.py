"""The noise a promise takes and the error to expect, from public numbers alone.

Each plan stands beside what no mechanism can do better than: the papers' lower bounds, which are orders
(no constants are printed with them, and logarithms are left out), and floors with numbers, which are
proved in :mod:`dpgrain.planning.floors`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context
from typing import Any, Literal, TypeAlias

import numpy as np

from dpgrain import _validate
from dpgrain._wording import powers
from dpgrain.accounting.calibrate import (
    calibrate_bounded_range,
    calibrate_gaussian,
    calibrate_truncated_geometric,
)
from dpgrain.accounting.contribution import Contribution
from dpgrain.accounting.events.base import Event, Gaussian, Laplace, Selection
from dpgrain.errors import ParameterError
from dpgrain.planning.floors import (
    choice_order,
    convex_order,
    least_error,
    least_error_of_records,
    least_error_of_worlds,
    least_excess_of_choice,
    least_holders,
    least_noise_of_clipped_sums,
    mean_order,
)
from dpgrain.units import OWN_UNIT, RELATIONS, Element, Level, Relation, Unit, User, unit_level

Sampling: TypeAlias = Literal["full", "pairs", "users", "passes"]
Kind: TypeAlias = Literal["number", "floor", "order"]
SAMPLINGS: tuple[Sampling, ...] = ("full", "pairs", "users", "passes")

_MEANS = "user-level learning paper, Cor. 1 and App. C.4"
_CONVEX = "user-level learning paper, Thm. 6"
_STRONG = "user-level SCO paper, Thm. 4.11"
_FINITE = "user-level learning paper, Thm. 8"
_FLOOR = "dpgrain.planning.floors"
# The quantile of the normal law for 95%.
_MOSTLY = 1.6448536269514722


@dataclass(frozen=True)
class Row:
    """One number of a plan.

    Args:
        name: what it is.
        value: the number.
        unit: what it is measured in; empty for a plain number.
        source: the equation it comes from, where that is a paper's.
        kind: a ``"number"``, a ``"floor"`` under what any mechanism can do, or an ``"order"``, a floor
            of which constants and logarithms are not known.
    """

    name: str
    value: float
    unit: str = ""
    source: str = ""
    kind: Kind = "number"

    @property
    def text(self) -> str:
        """The number as people read it: an error rounded up, a floor down, of an order one digit."""
        if self.kind == "order":
            return f"order of {_digits(self.value, 1, ROUND_HALF_EVEN)}"
        return _digits(self.value, 4, ROUND_FLOOR if self.kind == "floor" else ROUND_CEILING)


@dataclass(frozen=True)
class ErrorPlan:
    """What a mechanism will cost and how accurate it can be, before anything is spent.

    Args:
        title: the mechanism and the promise, in words.
        epsilon: the promised ε.
        delta: the promised δ.
        event: what will happen, as the accountant sees it.
        lines: the numbers.
        notes: what they rest on, in sentences.
    """

    title: str
    epsilon: float
    delta: float
    event: Event
    lines: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def rows(self) -> list[Row]:
        """The numbers, one a row."""
        return list(self.lines)

    def __getitem__(self, name: str) -> float:
        """The number of a row by its name."""
        for row in self.lines:
            if row.name == name:
                return row.value
        known = ", ".join(repr(row.name) for row in self.lines)
        raise ParameterError(f"row {name!r} is not in this plan; it has {known}.")

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values."""
        return {
            "plan": self.title,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "event": self.event.to_dict(),
            "rows": [
                {
                    "name": row.name,
                    "value": row.value,
                    "unit": row.unit,
                    "kind": row.kind,
                    "source": row.source,
                }
                for row in self.lines
            ],
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """The plan as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def __str__(self) -> str:
        cells = [(row.name, f"{row.text} {row.unit}".rstrip(), row.source) for row in self.lines]
        widths = [max(len(cell[i]) for cell in cells) for i in range(2)]
        listed = [
            f"  {name:<{widths[0]}}  {number:<{widths[1]}}  {source}".rstrip()
            for name, number, source in cells
        ]
        return "\n".join([f"{self.title}:", *listed, *(f"  {note}" for note in self.notes)])


def plan_counts(
    sums: Gaussian | Laplace,
    select: Selection | None = None,
    *,
    epsilon: float,
    delta: float,
    relation: Relation = "zero_out",
    unit: Unit | None = None,
) -> ErrorPlan:
    """The error to expect of a histogram whose noise is known.

    Args:
        sums: the noisy sums; :func:`dpgrain.plan_histogram` calibrates them.
        select: how unknown items are selected; None where the list of items is public.
        epsilon: the ε promised for all parts of the release.
        delta: the δ promised for all parts of the release.
        relation: the neighbouring relation.
        unit: the protected unit; by default the one whose data is a block.

    Raises:
        ParameterError: if a parameter is out of range.

    Holders are counted as holding one item each; a holder of t items adds 1/√t to each of them. The
    fewest holders "by any rule" are for one item, with all of ε and δ.

    >>> plan = plan_counts(calibrate_gaussian(1.0, 1e-6), epsilon=1.0, delta=1e-6)
    >>> round(plan["noise sd of a count"], 3)
    4.225
    """
    epsilon, delta = _promise(epsilon, delta, relation, allow_zero=isinstance(sums, Laplace))
    unit = OWN_UNIT[sums.level] if unit is None else unit
    spread = math.sqrt(2.0) if isinstance(sums, Laplace) else 1.0
    noise = spread * sums.noise_multiplier
    # One unit moves one coordinate by its bound at least, whichever of its blocks that is.
    floor = least_error(epsilon, delta, _MANY, relation=relation, signed=False)
    rows = [
        Row("noise sd of a count", noise, "clipping bounds"),
        Row("95% of counts within ±", 1.959963984540054 * noise, "clipping bounds"),
        Row("least rms error by any mechanism", floor, "clipping bounds", _FLOOR, kind="floor"),
        Row("times the least", noise / floor),
    ]
    event: Event = sums
    if select is not None:
        rows += _naming(select, epsilon, delta, relation, unit)
        event = select + sums
    title = f"Histogram, {_words(epsilon, delta, relation, unit)}"
    note = "clipping adds a bias that depends on the data and is not known beforehand."
    return ErrorPlan(title, epsilon, delta, event, tuple(rows), (note,))


# More units than any floor needs to be at its largest.
_MANY = 1_000_000


def _naming(
    select: Selection, epsilon: float, delta: float, relation: Relation, unit: Unit
) -> list[Row]:
    """From how many holders an item of an unknown domain is named."""
    half, mostly = select.threshold, select.threshold + _MOSTLY * select.noise_multiplier
    rows = [
        Row("item is named half the time from", math.ceil(half), "holders of one item"),
        Row("item is named 95% of the time from", math.ceil(mostly), "holders of one item"),
    ]
    if select.max_items > 1:
        held = math.sqrt(select.max_items)
        rows.append(
            Row(
                "the same, half the time",
                math.ceil(half * held),
                f"holders of {select.max_items:,} items",
            )
        )
    optimal = calibrate_truncated_geometric(
        epsilon, delta, contribution=select.contribution, relation=relation, unit=unit
    )
    rows.append(
        Row(
            "by truncated noise on one item a block",
            optimal.cutoff + 1,
            "holders",
            "Desfontaines et al. 2022",
        )
    )
    least = least_holders(epsilon, delta)
    rows.append(
        Row("by any rule, half the time", least, "holders", "Desfontaines et al. 2022", "floor")
    )
    return rows


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
    """The error to expect of a private mean of n clipped vectors, beside the least there can be.

    Args:
        epsilon: the promised ε.
        delta: the promised δ, in (0, 1).
        n: the public number of vectors, by which the sum is divided: one of each unit, of each element
            where the unit is ``User(max_elements=M)``.
        dimension: how many coordinates a vector has.
        unit: the protected unit, a user by default; a ``User(max_elements=M)`` adds M vectors at most.
        relation: ``"zero_out"`` or ``"replace"``.
        records: how many independent records of one law each vector is the mean of; used only in the
            lower bound of the papers, 1 assumes nothing.
        error: a wanted rms error in clipping bounds, for which the number of vectors is told.

    Raises:
        ParameterError: if a parameter is out of range, or nothing bounds the contribution of a unit.

    All errors are rms l2 errors in units of the l2 clipping bound C. The mechanism adds Gaussian noise
    of standard deviation σC/n to each coordinate: √d·σ·C/n in all. The papers' lower bound for n users
    with m records each is of order √d·C/(n·ε·√m), up to logarithms.

    Formal guarantee: :attr:`ErrorPlan.event`, calibrated to (ε, δ).

    Source: user-level learning paper, Cor. 1 (its tightness, App. C.4, goes through Prop. 6 there). Its
    Lemma 3 needs a bound on the largest coordinate of the mean, not on its l2 norm alone; the prior of
    Prop. 6, uniform on a box, has one, so that the order stands.

    >>> plan = plan_mean(1.0, 1e-6, n=10_000, dimension=100)
    >>> round(plan["rms privacy error"], 5)
    0.00422
    """
    epsilon, delta = _promise(epsilon, delta, relation)
    n = _validate.integer(minimum=1, n=n)
    dimension = _validate.integer(minimum=1, dimension=dimension)
    records = _validate.integer(minimum=1, records=records)
    unit = User() if unit is None else unit
    unit_level(unit, "user")
    blocks = _blocks(unit, "signed")
    event = calibrate_gaussian(epsilon, delta, contribution=blocks, relation=relation, unit=unit)
    # What one unit adds at most, in clipping bounds; there are at least so many units.
    reach = _reach(unit)
    units = max(n // reach, 1)
    # One unit's independent records, in all its vectors, and the share of the n vectors they are.
    held, share = records * reach, units * reach / max(n, reach)

    def floor(units: int) -> float:
        return reach * least_error(epsilon, delta, units, dimension=dimension, relation=relation)

    total = math.sqrt(dimension) * event.noise_multiplier
    such = share * least_error_of_records(
        epsilon, delta, units, records=held, dimension=dimension, relation=relation
    )
    least = floor(units)
    order = reach * mean_order(epsilon, 1, dimension=dimension, records=records)
    rows = [
        Row("noise multiplier σ", event.noise_multiplier, "clipping bounds"),
        Row("noise sd of a coordinate", event.noise_multiplier / n, "clipping bounds"),
        Row("rms privacy error", total / n, "clipping bounds"),
        Row("sampling error at most", 1 / math.sqrt(units), "clipping bounds"),
        Row(
            "vectors from which sampling is worse",
            math.ceil(reach * event.noise_multiplier**2 * dimension / reach**2),
            "vectors",
        ),
        Row("lower bound, as an order", order / n, "clipping bounds", _MEANS, kind="order"),
        Row("times the lower bound", total / order, "", _MEANS, kind="order"),
        Row("least rms error by any mechanism", least / n, "clipping bounds", _FLOOR, kind="floor"),
        Row("times the least", total / least),
        Row(
            "least noise of clipped sums, such records",
            least_noise_of_clipped_sums(event.noise_multiplier, n, dimension)
            / math.sqrt(dimension * records),
            "clipping bounds",
            _FLOOR,
            kind="floor",
        ),
        Row("least by any mechanism, such records", such, "clipping bounds", _FLOOR, kind="floor"),
        Row("times that", total / n / such),
        Row(
            "the same, any number of records",
            share * 2 * math.sqrt(least_error_of_worlds(epsilon, delta, units, relation=relation)),
            "clipping bounds",
            _FLOOR,
            kind="floor",
        ),
    ]
    if error is not None:
        rows += _needed(_validate.positive(error=error), total, order, floor, reach)
    promise = _words(epsilon, delta, relation, unit)
    title = f"Mean of {n:,} vectors of dimension {dimension:,}, {promise}"
    return ErrorPlan(title, epsilon, delta, event, tuple(rows), _mean_notes(records, relation))


def _mean_notes(records: int, relation: Relation) -> tuple[str, ...]:
    notes = [
        "C is the clipping bound; what clipping takes off comes on top.",
        f"such records: each vector is the mean of {records:,} independent records of one law, of "
        "norm at most C; for clipped sums Gaussian, of covariance C²/d, clipped around any centre. "
        "This is about errors only: the promise assumes nothing.",
    ]
    if records > 1:
        notes.append(
            f"√{records} of the order is for {records} independent records of one law in each vector: "
            "clipping to a fixed bound does not reach it, clipping around a found centre may."
        )
    if relation == "zero_out":
        notes.append(
            "the orders are for replace; under zero_out up to a factor of 2 less may be possible."
        )
    return tuple(notes)


def _needed(
    error: float, total: float, order: float, floor: Callable[[int], float], reach: int
) -> list[Row]:
    """How many vectors a wanted error takes: with this mechanism, and at least."""
    # From a number of units on, floors of the sum no longer grow: there the mean's is 1/n of it.
    least = math.ceil(floor(_MANY) / error)
    stands = floor(max(least // reach, 1)) >= 0.999 * floor(_MANY)
    rows = [
        Row(f"for an error of {error:g}", math.ceil(total / error), "vectors"),
        Row("the same, as an order at least", order / error, "vectors", _MEANS, kind="order"),
    ]
    if stands:
        rows.append(
            Row("the same, at least by any mechanism", least, "vectors", _FLOOR, kind="floor")
        )
    return rows


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
    """The error to expect of noisy gradient descent, beside the least there can be.

    Args:
        epsilon: the promised ε for the whole run.
        delta: the promised δ, in (0, 1).
        n: the public number of clipped gradients, one of each (user, element) pair, of each user where
            whole users are clipped.
        rounds: how many rounds there are.
        dimension: how many coordinates a gradient has.
        sampling: ``"full"``: all take part in every round; ``"pairs"`` or ``"users"``: each takes part
            by a coin of its own; ``"passes"``: each person in a known number of rounds.
        sampling_rate: the public probability to take part in a round, for pairs and users.
        passes: in how many rounds one person takes part, for passes.
        unit: the protected unit, an element by default; for ``User()`` whole users are clipped, for
            ``User(max_elements=M)`` pairs of which a user has M at most.
        relation: ``"zero_out"`` or ``"replace"``.
        max_elements: the most elements of one user; needed by the tighter bounds where users are
            sampled.
        records: how many independent records each gradient is the mean of; used only in the lower bound
            of the papers.

    Raises:
        ParameterError: if a parameter is out of range, or does not go with the way of sampling.

    Gradients are clipped to norm G (nothing is taken off where losses are G-Lipschitz); their sum gets
    noise of sd σG and is divided by the public q·n, q the sampling rate. For convex losses, on a set
    whose points are at most R from the first one, the mean of the iterates of projected descent with
    the best step has excess risk R·√(E‖g̃‖²/T) or less on the data at hand, where
    E‖g̃‖² ≤ G²(1 + (1−q)/(q·n) + d·s²) and s·G is the sd of a coordinate. The noise's part of it is
    R·G·√d·s/√T or less.

    Formal guarantee: :attr:`ErrorPlan.event`, calibrated to (ε, δ).

    Source: user-level SCO paper, Prop. 4.10, for the upper bound (there twice as large); user-level
    learning paper, Thm. 6, for the lower one, of order G·R·√d/(n·ε·√m), up to logarithms.

    >>> plan = plan_gradient(1.0, 1e-6, n=100_000, rounds=100, dimension=50)
    >>> round(plan["noise sd of a coordinate"], 6)
    0.000422
    """
    epsilon, delta = _promise(epsilon, delta, relation)
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
    reach = _reach(unit)
    drawn = (1 - rate) / divisor
    private, others = math.sqrt(dimension) * sd, math.sqrt(1 + drawn)
    order = reach * mean_order(epsilon, n, dimension=dimension, records=records)
    rows = [
        Row("noise multiplier σ", noise, "clipping bounds"),
        Row("public divisor", divisor, "gradients"),
        Row("noise sd of a coordinate", sd, "clipping bounds"),
        Row("rms noise of the averaged gradient", private, "clipping bounds"),
        Row("excess risk, the noise's part", private / math.sqrt(rounds), "G·R", _DESCENT),
        Row("excess risk, the other part", others / math.sqrt(rounds), "G·R", _DESCENT),
        Row("lower bound, as an order", order, "G·R", _CONVEX, kind="order"),
        Row(
            "the noise's part, times the order",
            private / math.sqrt(rounds) / order,
            "",
            _CONVEX,
            kind="order",
        ),
    ]
    title = (
        f"Gradient run, {rounds:,} rounds over {n:,} gradients of dimension {dimension:,}, "
        f"{_words(epsilon, delta, relation, unit)}"
    )
    notes = ["G is the clipping bound, R the distance from the first point to the best one."]
    if sampling == "full" and rounds > 1:
        notes.append("the noise's part is the same for any number of rounds; the other falls.")
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
    """The excess risk to expect of convex losses of users' records, beside the least there can be.

    Args:
        epsilon: the promised ε for a user.
        delta: the promised δ, in (0, 1).
        n_users: the public number of users.
        dimension: how many coordinates the parameter has.
        records: how many independent records of one law each user has.
        distance: R, how far the first point is from the best one at most.
        lipschitz: G, the most that a loss grows per distance; users' gradients are clipped to it.
        strength: μ, where losses are so strongly convex.
        relation: ``"zero_out"`` or ``"replace"``.

    Raises:
        ParameterError: if a parameter is out of range, or no loss can be so strongly convex.

    The noise's part is that of projected descent over all users: R·G·√d·σ/n, and 2·d·(σG/n)²/μ where
    losses are strongly convex, for any number of rounds, beside what the rounds themselves leave. The
    sampling's part is of order R·G/√(nm), or G²/(μ·n·m).

    Formal guarantee: :attr:`ErrorPlan.event`, calibrated to (ε, δ), all rounds together.

    Source: user-level learning paper, Thm. 6; user-level SCO paper, Thm. 4.11, for strongly convex
    losses, and Prop. 4.10 for the upper bound; Lacoste-Julien, Schmidt & Bach 2012 for weighted means
    of the rounds.

    >>> plan = plan_sco(1.0, 1e-6, n_users=10_000, dimension=100, records=50)
    >>> round(plan["excess risk, the noise's part"], 5)
    0.00422
    """
    epsilon, delta = _promise(epsilon, delta, relation)
    n = _validate.integer(minimum=1, n_users=n_users)
    dimension = _validate.integer(minimum=1, dimension=dimension)
    records = _validate.integer(minimum=1, records=records)
    reach = _validate.positive(distance=distance) * _validate.positive(lipschitz=lipschitz)
    if strength is not None:
        strength = _strength(strength, distance, lipschitz)
    event = calibrate_gaussian(
        epsilon, delta, contribution=_blocks(User(), "signed"), relation=relation, unit=User()
    )

    def risk(error: float) -> float:
        """What noise of an rms error, in G, may add to the risk."""
        if strength is None:
            return reach * error
        return min(reach * error, 2 * (lipschitz * error) ** 2 / strength)

    noise = math.sqrt(dimension) * event.noise_multiplier / n
    private = risk(noise)
    centred = least_noise_of_clipped_sums(event.noise_multiplier, n, dimension)
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
        Row("noise multiplier σ", event.noise_multiplier, "G"),
        Row("rms noise of the averaged gradient", noise, "G"),
        Row("excess risk, the noise's part", private, "loss", _DESCENT),
        Row(
            "the same, clipped around a found centre",
            risk(centred / math.sqrt(dimension * records)),
            "loss",
            _FLOOR,
            kind="floor",
        ),
        Row("excess risk, the sampling's part", sampled, "loss", kind="order"),
        Row("excess risk", private + sampled, "loss", kind="order"),
        Row("lower bound, as an order", order, "loss", source, kind="order"),
        Row("times the lower bound", (private + sampled) / order, "", source, kind="order"),
        Row("least excess risk by any mechanism", least, "loss", _FLOOR, kind="floor"),
        Row("the same, any number of records", always, "loss", _FLOOR, kind="floor"),
    ]
    if least > 0:
        rows.append(Row("the noise's part, times the least", private / least))
    title = (
        f"Convex losses of {n:,} users with {records:,} record{'s' if records > 1 else ''} each, "
        f"dimension {dimension:,}, {_words(epsilon, delta, relation, User())}"
    )
    notes = [
        "users' records are independent and of one law: the errors rest on that, the promise does not.",
        "the rounds themselves leave R·G/√T or less after T rounds (2G²/(μT), strongly convex).",
        "clipped around a found centre: of Gaussian gradients of covariance G²/d each; finding the "
        "centre comes on top.",
    ]
    return ErrorPlan(title, epsilon, delta, event, tuple(rows), tuple(notes))


def _strength(strength: float, distance: float, lipschitz: float) -> float:
    strength = _validate.positive(strength=strength)
    most = 2 * lipschitz / distance
    if strength > most:
        raise ParameterError(
            f"strength must be at most 2·lipschitz/distance ({most:g}), not {strength!r}: no loss of "
            "that slope curves more.",
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
    """A floor under the excess risk: linear losses, or squares; None for any number of records."""
    if strength is None:
        if records is None:
            left = 2 * least_error_of_worlds(
                epsilon, delta, n, relation=relation, penalty="absolute"
            )
        else:
            left = least_error_of_records(
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
        square = 4 * least_error_of_worlds(epsilon, delta, n, relation=relation)
    else:
        least = least_error_of_records(
            epsilon, delta, n, records=records, dimension=dimension, relation=relation
        )
        square = least * least
    # μ/2·(θ − z)² for θ and z in [−B, B] is of slope 2μB at most.
    return strength / 2 * min(lipschitz / (2 * strength), distance) ** 2 * square


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
    """The excess risk to expect of a private choice among hypotheses, beside the least there can be.

    Args:
        epsilon: the promised ε for a user.
        delta: the promised δ; 0 for a pure promise.
        n_users: the public number of users.
        hypotheses: K, how many there are to choose from, 2 or more.
        records: how many independent records of one law each user has.
        bound: B: losses lie in [0, B].
        relation: ``"zero_out"`` or ``"replace"``.

    Raises:
        ParameterError: if a parameter is out of range.

    A user's score of a hypothesis is the mean loss over the records. The exponential mechanism chooses
    by Gumbel noise on the sums of scores; its expected excess is B·ln K/(rate·n) at most. For δ = 0
    permute-and-flip is private at the same rate and never worse. Every hypothesis is evaluated once.

    Formal guarantee: :attr:`ErrorPlan.event`, calibrated to (ε, δ).

    Source: user-level learning paper, section 6 and Thm. 8; McKenna & Sheldon 2020 for
    permute-and-flip.

    >>> plan = plan_select(1.0, n_users=1000, hypotheses=20)
    >>> round(plan["excess risk, the noise's part at most"], 6)
    0.002996
    """
    epsilon, delta = _promise(epsilon, delta, relation, allow_zero=True)
    n = _validate.integer(minimum=1, n_users=n_users)
    hypotheses = _validate.integer(minimum=2, hypotheses=hypotheses)
    records = _validate.integer(minimum=1, records=records)
    bound = _validate.positive(bound=bound)
    event = calibrate_bounded_range(epsilon, delta, relation=relation)
    scale = bound / (event.rate * n)
    # Nobody can choose worse than the whole range.
    private = min(scale * math.log(hypotheses), bound)
    tied, flipped = (min(scale * worst, bound) for worst in _ties(hypotheses))
    sampled = min(bound * math.sqrt(2 * math.log(2 * hypotheses) / (n * records)), bound)
    order = bound * choice_order(epsilon, n, hypotheses, records=records)
    least = bound * least_excess_of_choice(
        epsilon, delta, n, hypotheses, records=records, relation=relation
    )
    always = bound * least_error_of_worlds(epsilon, delta, n, relation=relation, penalty="absolute")
    rows = [
        Row("evaluations of a hypothesis", hypotheses, "passes over the records"),
        Row("excess risk, the noise's part at most", private, "loss"),
        Row("where all but one tie, exponential", tied, "loss"),
    ]
    if delta == 0:
        rows.append(Row("where all but one tie, permute-and-flip", flipped, "loss"))
    rows += [
        Row("excess risk, the sampling's part at most", sampled, "loss"),
        Row("excess risk at most", min(private + sampled, bound), "loss"),
        Row("lower bound, as an order", order, "loss", _FINITE, kind="order"),
        Row(
            "times the lower bound",
            min(private + sampled, bound) / order,
            "",
            _FINITE,
            kind="order",
        ),
        Row("least excess risk by any choice", least, "loss", _FLOOR, kind="floor"),
        Row("the same, any number of records", always, "loss", _FLOOR, kind="floor"),
        Row("the noise's part, times the least", private / least),
    ]
    title = (
        f"Choice among {hypotheses:,} hypotheses by {n:,} users with {records:,} "
        f"record{'s' if records > 1 else ''} each, {_words(epsilon, delta, relation, User())}"
    )
    notes = [
        "users' records are independent and of one law: the errors rest on that, the promise does not.",
    ]
    if records > 1:
        notes.append(
            f"√{records} of the noise's order is for users' mean losses that lie close together; the "
            "choice above does not use that."
        )
    if delta > 0:
        notes.append("the order is for δ = 0.")
    return ErrorPlan(title, epsilon, delta, event, tuple(rows), tuple(notes))


def _ties(hypotheses: int) -> tuple[float, float]:
    """The worst expected excess where all but the best one tie, in scales: both mechanisms."""
    gaps = np.linspace(0, math.log(hypotheses) + 8, 2001)[1:]
    others = (hypotheses - 1) * np.exp(-gaps)
    tied = gaps * others / (1 + others)
    # The best one wins if no other that comes before it, in a random order, is taken.
    taken = np.exp(-gaps)
    flipped = gaps * (1 + np.expm1(hypotheses * np.log1p(-taken)) / (hypotheses * taken))
    return float(tied.max()), float(flipped.max())


_DESCENT = "user-level SCO paper, Prop. 4.10, without its factor 2"


def _rate(sampling: Sampling, rate: float | None, passes: int | None, rounds: int) -> float:
    """The share of the gradients that a round is expected to have."""
    if sampling in ("pairs", "users"):
        if rate is None:
            raise ParameterError(
                f"sampling_rate must be given where {sampling} are sampled, such as 0.01.",
                name="sampling_rate",
            )
        if passes is not None:
            raise ParameterError(
                "passes goes with sampling='passes' only; leave it out.", name="passes"
            )
        rate = _validate.positive(sampling_rate=rate)
        if rate > 1:
            raise ParameterError(
                f"sampling_rate must lie in (0, 1], not {rate!r}.", name="sampling_rate"
            )
        return rate
    if rate is not None:
        raise ParameterError(
            f"sampling_rate must be left out with sampling={sampling!r}; it goes with 'pairs' and "
            "'users'.",
            name="sampling_rate",
        )
    if sampling == "full":
        if passes is not None:
            raise ParameterError(
                "passes goes with sampling='passes' only; leave it out.", name="passes"
            )
        return 1.0
    if passes is None:
        raise ParameterError(
            "passes must be given with sampling='passes', such as passes=1.", name="passes"
        )
    passes = _validate.integer(minimum=1, passes=passes)
    if passes > rounds:
        raise ParameterError(
            f"passes must be at most the rounds ({rounds}), not {passes}.", name="passes"
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
    """The event with the least noise that keeps the promise."""
    blocks = _blocks(unit, "signed")
    # Loaded here: they bring the numerical composition with them, which other plans do without.
    if sampling in ("pairs", "users"):
        from dpgrain.accounting.calibrate import calibrate
        from dpgrain.accounting.events.sampled import SampledGaussian

        drawn: Literal["pairs", "users"] = "pairs" if sampling == "pairs" else "users"
        return calibrate(
            lambda noise: SampledGaussian(noise, rate, rounds, sampling=drawn, level=blocks.block),
            epsilon,
            delta,
            relation=relation,
            unit=unit,
            max_elements=max_elements,
        ).event
    taken = rounds if passes is None else passes
    event = calibrate_gaussian(
        epsilon, delta, contribution=blocks, relation=relation, unit=unit, count=taken
    )
    if sampling == "full":
        return event
    from dpgrain.accounting.events.sampled import Participation

    return Participation(event.noise_multiplier, taken, level=blocks.block)


def _promise(
    epsilon: float, delta: float, relation: Relation, *, allow_zero: bool = False
) -> tuple[float, float]:
    _validate.one_of(RELATIONS, relation=relation)
    return _validate.positive(epsilon=epsilon), _validate.delta(allow_zero=allow_zero, delta=delta)


def _blocks(unit: Unit, coordinates: Literal["signed", "nonnegative"]) -> Contribution:
    """How clipped vectors of the unit enter a sum in which they share coordinates."""
    bounded = isinstance(unit, User) and unit.max_elements is not None
    block: Level = "element" if bounded else unit.level
    most = unit.max_elements if isinstance(unit, User) else None
    return Contribution(block=block, layout="shared", coordinates=coordinates, max_elements=most)


def _reach(unit: Unit) -> int:
    """How many clipped vectors one unit adds at most."""
    return (unit.max_elements or 1) if isinstance(unit, User) else 1


def _words(epsilon: float, delta: float, relation: Relation, unit: Unit) -> str:
    most = f" of at most {_reach(unit)} elements" if _reach(unit) > 1 else ""
    return f"{unit.level}-level{most}, {relation}, ε = {epsilon:g}, δ = {powers(delta)}"


def _digits(value: float, digits: int, rounding: str) -> str:
    exact = Context(prec=digits, rounding=rounding).create_decimal(repr(float(value)))
    if value == 0 or 1e-4 <= value < 1e7:
        return f"{exact.normalize():,f}"
    return f"{exact:.{digits - 1}e}"
