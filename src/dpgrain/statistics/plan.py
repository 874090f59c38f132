"""Plan of a release: its cost and its accuracy, before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from dpgrain import _validate
from dpgrain._formatting import powers
from dpgrain.accounting import (
    AdaptiveSelection,
    BoundedRange,
    Contribution,
    Event,
    ExponentialMechanism,
    Selection,
)
from dpgrain.accounting.calibration import calibrate_additive, gaussian_multipliers
from dpgrain.accounting.events.additive import ADDITIVE, Additive
from dpgrain.errors import ParameterError
from dpgrain.noise.additive import noise_by_name
from dpgrain.publishing.promise import Promise
from dpgrain.statistics.bounds import POOL_MOST, POOL_MOST_OF_USER, POOL_SIZE, AutoClip
from dpgrain.statistics.intervals import half_width
from dpgrain.units import PLAIN_UNITS, Level, Relation, Unit, User

# Selecting unknown items gets this share of μ², more where names are what is wanted, and this share of
# δ for names below the threshold: small, since k elements of one person cost k times it.
SELECTION_SHARE, TOP_SHARE = 0.3, 0.7
SELECTION_DELTA = 0.01
# Of what selecting in two rounds gets, the first round's share of μ² and of δ.
FIRST_SHARE, FIRST_DELTA = 0.3, 0.5
# Standard deviations of the first round's noise above which items go on to the second.
FLOOR = 2.0
# Standard deviations above its threshold that the second round aims at.
ENOUGH = 1.0
# Items of a user that take part in two rounds, times the variance of the first round's noise: what
# 1,000 people hold who have so many items each stands out by 3 deviations. And their least and most.
_STANDING_OUT, _LEAST_ITEMS, _MOST_ITEMS = 120_000.0, 200, 20_000
# Items of a user that take part in two rounds at the most, so that sums of what they need are exact.
_MOST_STATED = 1 << 25
# Where one bound serves many coordinates, this share says how much of what clipping takes adds up in
# the same ones, or how large the groups are whose counts divide their sums. With few coordinates what
# clipping takes is taken to add up entirely.
ALIGN_SHARE = 0.05
MANY_COORDINATES = 32
# The grid: see `grid_bits`.
_PARTS = ("select", "ranges", "align", "bounds", "pool", "sums")
# Counts of blocks are whole numbers, which need no grid.
_COUNTS = {"bounds", "pool"}
_NOISE_BITS, _MAX_BITS, _MIN_BITS = 32, 30, 8
#: The choice of the best items; the second is of people's rows, which a record may carry elsewhere.
Best: TypeAlias = BoundedRange | ExponentialMechanism


@dataclass(frozen=True)
class Plan:
    """The events of a release, calibrated to one promise, and the error to expect.

    Args:
        level: the protected unit.
        relation: the neighbouring relation.
        epsilon: the promised ε.
        delta: the promised δ.
        select: how items are selected, if they are: unknown ones by a threshold, known ones by Gumbel
            noise.
        again: how items are selected in a second round, if they are.
        bounds: the noisy norms from which clipping bounds are chosen, if they are.
        sums: the noisy sums.
        clip: the clipping bound, or None where it is chosen privately.
        items: the public number of coordinates, if known.
        ranges: the noisy counts from which the range of the numbers is chosen, if it is.
        align: the noisy sum of blocks scaled to one size, from which is read how much of what clipping
            takes adds up in the same coordinates, or how large groups are.
        pool: the noisy norms of blocks of many cells, by which bounds of single cells are corrected, if
            they are.

    >>> from dpgrain import User
    >>> plan = plan_histogram(unit=User(), epsilon=1.0, delta=1e-6, items=100)
    >>> print(plan)
    Noise of a histogram, ε = 1, δ = 10⁻⁶ per user (zero_out):
      standard error of an estimate: 4.72333 × the clipping bound of its cell
      95% of estimates within: ±9.25757 × the clipping bound of its cell
      expected l2 error of all 100 items: 47.2333 × the clipping bound of its cell
      share of the budget that chooses clipping bounds: 15%
    Clipping adds a bias that depends on the data.
    >>> round(plan.share_of(plan.bounds), 2), plan.event.epsilon(1e-6) <= 1.0
    (0.15, True)
    """

    level: Level
    relation: Relation
    epsilon: float
    delta: float
    select: Selection | Best | None
    bounds: Additive | None
    sums: Additive
    clip: float | None = None
    items: int | None = None
    ranges: Additive | None = None
    align: Additive | None = None
    pool: Additive | None = None
    again: AdaptiveSelection | None = None

    @property
    def one_bound(self) -> bool:
        """Whether there is one clipping bound for all items, rather than one per cell."""
        return one_bound(self.sums.contribution)

    @property
    def unit(self) -> Unit:
        """The protected unit, where only its level matters."""
        return PLAIN_UNITS[self.level]

    @property
    def _parts(self) -> list[Selection | Best | AdaptiveSelection | Additive]:
        """The parts that there are, in the order of their draws."""
        own = (self.ranges, self.align, self.bounds, self.pool, self.sums)
        return [part for part in (self.select, self.again, *own) if part is not None]

    @property
    def event(self) -> Event:
        """All that will happen, as the accountant sees it."""
        event: Event
        event, *rest = self._parts
        for other in rest:
            event = event + other
        return event

    @property
    def std_error(self) -> float:
        """Standard error of the noise of one item, in clipping bounds; times ``clip`` if known."""
        return noise_sd(self.sums) * (1.0 if self.clip is None else self.clip)

    @property
    def radius(self) -> float:
        """Half-width of a 95% interval of the noise of one item, in the unit of ``std_error``."""
        return half_width(self.sums.law.name) * self.std_error

    @property
    def expected_error(self) -> float:
        """Expected l2 error of all estimates that is due to noise; the bias of clipping comes on top.

        In units of the bound where that is chosen privately; for one item where the number of
        items is not public.
        """
        return self.std_error * math.sqrt(1 if self.items is None else self.items)

    def share_of(self, *parts: Additive | None) -> float:
        """Return the share of the budget that parts get: of μ², or of ε under Laplace noise."""
        power = 1 if self.sums.law.pure else 2

        def spent(part: Additive | Selection | AdaptiveSelection) -> float:
            moved = part.contribution.sensitivity(1, self.relation, self.unit)
            return (moved / part.noise_multiplier) ** power

        whole = sum(spent(part) for part in self._parts if not isinstance(part, Best))
        return sum(spent(part) for part in parts if part is not None) / whole

    def __str__(self) -> str:
        of = "" if self.clip is not None else " × the clipping bound of its cell"
        promise = (
            f"ε = {self.epsilon:g}, δ = {powers(self.delta)} per {self.level} ({self.relation})"
        )
        lines = [
            f"Noise of a histogram, {promise}:",
            f"  standard error of an estimate: {self.std_error:.6g}{of}",
            f"  95% of estimates within: ±{self.radius:.6g}{of}",
        ]
        if self.items is not None:
            lines.append(
                f"  expected l2 error of all {self.items:,} items: {self.expected_error:.6g}{of}"
            )
        if isinstance(self.select, Selection):
            lines.append(
                f"  items are selected from a noisy weighted count of {self.select.threshold:.4g} on"
            )
        if self.bounds is not None:
            lines.append(
                f"  share of the budget that chooses clipping bounds: "
                f"{self.share_of(self.bounds, self.pool):.0%}"
            )
        return "\n".join([*lines, "Clipping adds a bias that depends on the data."])


def noise_sd(event: Additive) -> float:
    """Standard deviation of an event's noise in clipping bounds."""
    return event.law.sd * event.noise_multiplier


def one_bound(contribution: Contribution) -> bool:
    """Whether all blocks share one bound: there is one cell, or the cell is not given by the item."""
    in_cells = contribution.block == "element" and contribution.layout == "disjoint"
    return not in_cells or contribution.cells == 1


def make_plan(
    contribution: Contribution,
    *,
    promise: Promise,
    noise: str,
    clip: float | AutoClip,
    select: Contribution | None = None,
    select_items: int | None = 1,
    adaptive: bool = False,
    ranges: Contribution | None = None,
    range_share: float = 0.0,
    items: int | None = None,
    record_value: float | None = None,
    select_share: float = SELECTION_SHARE,
    align_from: int = MANY_COORDINATES,
) -> Plan:
    """Split one promise over the parts of a release and find each part's noise.

    Args:
        contribution: how blocks enter the sums.
        promise: what the release promises; its δ is 0 under Laplace noise.
        noise: ``"gaussian"`` or ``"laplace"``.
        clip: a fixed bound, or how to choose bounds.
        select: how blocks enter the counts by which unknown groups are selected; None where the
            domain is public.
        select_items: the number of groups of one block that take part in selecting, at most; None for
            as many as a first round can tell apart.
        adaptive: whether items are selected in two rounds.
        ranges: how blocks enter the counts from which the range of the numbers is chosen, if it is.
        range_share: the share of the budget that this gets.
        items: the public number of coordinates, if known.
        record_value: the largest norm of what one record adds, if that is known.
        select_share: the share of the budget that selecting gets.
        align_from: from so many coordinates on, blocks are also added up at one size.
    """
    unit, relation, law = promise.plain_unit, promise.relation, noise_by_name(noise)
    # Which bin a block falls into is one of several coordinates, and any record may change it.
    binned = replace(contribution, coordinates="nonnegative", record_size=math.inf)
    auto, bound = (clip, None) if isinstance(clip, AutoClip) else (None, clip)
    parts = {"align": contribution, "bounds": binned, "sums": contribution}
    shares = dict.fromkeys(_PARTS, 0.0)
    shares["select"] = select_share if select else 0.0
    shares["ranges"] = range_share if ranges else 0.0
    left = 1 - shares["select"] - shares["ranges"]
    if auto is not None:
        shared = one_bound(contribution)
        many = contribution.block != "record" and (items is None or items >= align_from)
        shares["align"] = left * ALIGN_SHARE if shared and many else 0.0
        most = _most_pooled(contribution)
        own, pooled = auto.shares(
            one_bound=shared, cells=contribution.cells, most=None if law.norm == "l1" else most
        )
        shares["bounds"], shares["pool"] = left * own, left * pooled
        if pooled:
            parts["pool"] = replace(binned, layout="pooled", per_coordinate=most)
    shares["sums"] = left - shares["align"] - shares["bounds"] - shares["pool"]
    if select is not None:
        # What a block keeps of its groups may change with any record of it.
        parts["select"] = replace(select, record_size=math.inf)
    if ranges is not None:
        parts["ranges"] = replace(ranges, coordinates="nonnegative", record_size=math.inf)
    named = [name for name in _PARTS if shares[name] > 0]
    events: dict[str, Additive]
    leak = 0.0
    if law.pure:
        events = _pure_events(noise, parts, named, shares, promise.epsilon, relation, unit)
    else:
        leak = selection_delta(promise.level) * promise.delta if select else 0.0
        multipliers = gaussian_multipliers(
            promise.epsilon,
            promise.delta - leak,
            [parts[name] for name in named],
            [shares[name] for name in named],
            relation,
            unit,
        )
        events = {
            name: ADDITIVE[noise](multiplier, parts[name])
            for name, multiplier in zip(named, multipliers, strict=True)
        }
    for name in events.keys() - _COUNTS:
        grid_bits(events[name].noise_multiplier)
    chosen, again = None, None
    if select is not None:
        noise_multiplier = events["select"].noise_multiplier
        chosen, again = selecting(
            noise_multiplier, leak, select_items, parts["select"], promise, adaptive=adaptive
        )
    sums = _with_record_size(events["sums"], record_value, bound, items)
    return Plan(
        promise.level,
        relation,
        promise.epsilon,
        promise.delta,
        chosen,
        events.get("bounds"),
        sums,
        bound,
        items,
        events.get("ranges"),
        events.get("align"),
        events.get("pool"),
        again,
    )


def _most_pooled(contribution: Contribution) -> int:
    """The number of one person's blocks that a bin of the pooled look counts, whatever is in a pool."""
    most = POOL_MOST if contribution.max_elements is None else POOL_MOST_OF_USER
    if contribution.norm == "l1":
        # Blocks in one bin cost no more than blocks in several.
        most = POOL_SIZE
    return min(POOL_SIZE, most, contribution.cells or POOL_SIZE)


def selection_delta(level: Level) -> float:
    """The share of δ for names below the threshold: small where the curve over k is wanted."""
    return 0.5 if level == "user" else SELECTION_DELTA


def grid_bits(noise_multiplier: float) -> int:
    """Bits of a clipping bound that the grid keeps, for noise of about 2^32 grid steps.

    Fine enough that truncating the blocks of 10^6 users biases a total by less than 0.1% of the
    noise where that is at least 4 clipping bounds (the bias grows with users ÷ noise); coarse
    enough that exact sampling stays fast.

    Raises:
        ParameterError: if the noise is too large for any grid.
    """
    if noise_multiplier < 2.0**-50:
        raise ParameterError(
            "epsilon must be smaller, because the noise would be below 2^-50 clipping bounds."
        )
    bits = min(_NOISE_BITS - math.ceil(math.log2(noise_multiplier)), _MAX_BITS)
    if bits < _MIN_BITS:
        raise ParameterError(
            f"epsilon and delta require noise of {noise_multiplier:.3g} clipping bounds, more "
            f"than 2^{_NOISE_BITS - _MIN_BITS}; choose a larger epsilon."
        )
    return bits


def _with_record_size(
    event: Additive, value: float | None, clip: float | None, items: int | None
) -> Additive:
    """Add what one record can move, where that is known: its value plus truncation to the grid."""
    if value is None or clip is None or items is None:
        return event
    # Truncation, and undoing what rounding took over the bound, move each coordinate of a block by
    # less than two grid steps, a step being at most 2^(1−bits).
    steps = float(items) if event.contribution.norm == "l1" else math.sqrt(items)
    size = value / clip + steps * 2.0 ** (2 - grid_bits(event.noise_multiplier))
    return replace(event, contribution=replace(event.contribution, record_size=size))


def _pure_events(
    noise: str,
    parts: dict[str, Contribution],
    named: list[str],
    shares: dict[str, float],
    epsilon: float,
    relation: Relation,
    unit: Unit,
) -> dict[str, Additive]:
    # Rounding must not push the sum of the parts above ε.
    safe = epsilon * (1 - 1e-12) if len(named) > 1 else epsilon
    return {
        name: calibrate_additive(
            ADDITIVE[noise],
            safe * shares[name],
            0.0,
            contribution=parts[name],
            relation=relation,
            unit=unit,
        )
        for name in named
    }


def selecting(
    noise_multiplier: float,
    leak: float,
    max_items: int | None,
    contribution: Contribution,
    promise: Promise,
    *,
    adaptive: bool,
) -> tuple[Selection, AdaptiveSelection | None]:
    """The one round of selecting, or the two.

    Args:
        noise_multiplier: the noise of one round.
        leak: the most that all rounds give away.
        max_items: the number of items of one block that take part, at most; None, in two rounds alone,
            for as many as the first can tell apart.
        contribution: how blocks enter the counts.
        promise: the relation and the unit.
        adaptive: whether there are two.
    """
    relation, unit = promise.relation, promise.plain_unit
    if adaptive:
        return select_in_rounds(noise_multiplier, leak, max_items, contribution, relation, unit)
    assert max_items is not None  # noqa: S101 - only two rounds find it by themselves
    one = select_by_threshold(noise_multiplier, leak, max_items, contribution, relation, unit)
    return one, None


def select_by_threshold(
    noise_multiplier: float,
    leak: float,
    max_items: int,
    contribution: Contribution,
    relation: Relation,
    unit: Unit,
) -> Selection:
    """The selection with the smallest threshold that gives away at most ``leak``."""

    def event(threshold: float) -> Selection:
        return Selection(noise_multiplier, threshold, max_items, contribution)

    return event(
        _least_threshold(
            lambda threshold: event(threshold).loss(1, relation, unit).leak <= leak,
            noise_multiplier,
        )
    )


def _least_threshold(kept: Callable[[float], bool], noise_multiplier: float) -> float:
    """Return the least threshold that keeps a promise, which all larger ones keep."""
    # The noise passes 40 standard deviations with probability below 10^-300.
    low, high = 1.0, 1.0 + 40.0 * noise_multiplier
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if kept(middle) else (middle, high)
    return high


def select_in_rounds(
    noise_multiplier: float,
    leak: float,
    max_items: int | None,
    contribution: Contribution,
    relation: Relation,
    unit: Unit,
) -> tuple[Selection, AdaptiveSelection]:
    """The two rounds of selecting that together cost what one of this noise would.

    Args:
        noise_multiplier: the noise of one round that would cost as much.
        leak: the most that both rounds give away.
        max_items: the number of items of one user that take part, at most; None for as many as the
            first round can tell apart.
        contribution: how users enter the counts.
        relation: the neighbouring relation.
        unit: the protected unit.
    """
    one = noise_multiplier / math.sqrt(FIRST_SHARE)
    # One minus the share is rounded: err towards more noise.
    two = noise_multiplier / math.sqrt(1 - FIRST_SHARE) * (1 + 2.0**-40)
    for noise in (one, two):
        grid_bits(noise)
    if max_items is None:
        told_apart = int(min(_STANDING_OUT / one**2, _MOST_ITEMS))
        max_items = max(told_apart, _LEAST_ITEMS)
    # Whoever holds an item gives it a grid step at least: whether it goes on must not depend on who
    # else holds it, but by its noisy count.
    max_items = min(max_items, 1 << 2 * (grid_bits(one) - 1), _MOST_STATED)
    part = FIRST_DELTA * leak
    # Where both sides may hold items of their own, the second round counts the first one's twice.
    both = 1 if AdaptiveSelection.one_sided(relation, unit) else 2
    first = select_by_threshold(one, part / both, max_items, contribution, relation, unit)
    left = leak - first.loss(1, relation, unit).leak

    def again(threshold: float) -> AdaptiveSelection:
        return AdaptiveSelection(
            two, threshold, one, first.threshold, FLOOR * one, first.max_items, contribution
        )

    threshold = _least_threshold(
        lambda threshold: again(threshold).loss(1, relation, unit).leak <= left, two
    )
    return first, again(threshold)


def plan_histogram(
    *,
    unit: Unit,
    epsilon: float,
    delta: float = 0.0,
    relation: Relation = "zero_out",
    clip: float | AutoClip | str = "auto",
    noise: str = "gaussian",
    items: int | None = None,
    cells: int | None = None,
    max_items: int = 1000,
    cell_of_item: bool = True,
    own_items: bool = False,
    weighted: bool = False,
) -> Plan:
    """The noise and the error to expect of :func:`dpgrain.histogram`, from public numbers alone.

    Args:
        unit: the privacy unit; what its partition is does not matter here.
        epsilon: the promised ε.
        delta: the promised δ; 0 only under Laplace noise.
        relation: ``"zero_out"`` or ``"replace"``.
        clip: a fixed bound or ``"auto"``; then errors are in units of the bound.
        noise: ``"gaussian"`` or ``"laplace"``.
        items: the public number of items; None if items have to be selected privately.
        cells: the public number of cells, if the cell is a function of the item.
        max_items: as for :func:`dpgrain.histogram`.
        cell_of_item: whether the cell is a public function of the item.
        own_items: whether each item is an element by itself, as in ``Element(item)``.
        weighted: whether records carry weights.

    Raises:
        ParameterError: if a parameter is out of range.

    >>> from dpgrain import Element
    >>> plan = plan_histogram(unit=Element(), epsilon=1, delta=1e-5, clip=2.0, items=100)
    >>> round(plan.std_error, 3), round(plan.expected_error, 2)
    (7.461, 74.61)
    """
    promise, law = Promise(unit, epsilon, delta, relation).under(noise), noise_by_name(noise)
    bound = clip_rule(clip)
    if unit.level == "record" and isinstance(bound, AutoClip) and not weighted:
        bound = 1.0
    for name, number in (("items", items), ("cells", cells)):
        if number is not None:
            _validate.integer(minimum=1, **{name: number})
    max_items = _validate.integer(minimum=1, max_items=max_items)
    cell_of_item = _validate.boolean(cell_of_item=cell_of_item)
    own_items, weighted = (
        _validate.boolean(own_items=own_items),
        _validate.boolean(weighted=weighted),
    )
    cells = cells if cell_of_item else None
    bounded = isinstance(unit, User) and unit.max_elements is not None
    by_item = cell_of_item and (unit.level == "element" or bounded)
    single = items is not None and (items == 1 or (by_item and items == cells))
    if own_items or unit.level == "record":
        max_items, single = 1, single or by_item
    contribution = Contribution(
        block="element" if bounded else unit.level,
        layout="disjoint" if cell_of_item else "shared",
        coordinates="one" if single else "nonnegative",
        norm=law.norm,
        max_elements=unit.max_elements if isinstance(unit, User) else None,
        cells=cells,
    )
    if items is None and law.pure:
        raise ParameterError(
            "items is required with Laplace noise, because items must be public; pass their "
            "number.",
            name="items",
        )
    return make_plan(
        contribution,
        promise=promise,
        noise=noise,
        clip=bound,
        select=None if items is not None else _indicator(contribution),
        select_items=max_items,
        items=items,
    )


def _indicator(contribution: Contribution) -> Contribution:
    """Effect of the blocks of a sum on the counts of who has which item.

    A block that keeps one item may still keep another after a change: "one" only where the sums'
    blocks are one coordinate each.
    """
    return replace(contribution, record_size=math.inf)


def clip_rule(clip: object) -> float | AutoClip:
    """Return the clipping bound that a caller states, or how to choose bounds.

    Args:
        clip: a bound, ``"auto"``, or an :class:`AutoClip`.

    Raises:
        ParameterError: if it is neither, or the bound is out of range.
    """
    if isinstance(clip, AutoClip):
        return clip
    if isinstance(clip, str):
        if clip == "auto":
            return AutoClip()
        raise ParameterError(
            f"clip must be 'auto', AutoClip(…) or a bound, not {_validate.describe(clip)}.",
            name="clip",
        )
    bound = _validate.positive(clip=clip)
    if not 1e-100 <= bound <= 1e100:
        raise ParameterError(
            f"clip must be between 1e-100 and 1e100, not {_validate.describe(clip)}.",
            name="clip",
        )
    return bound
