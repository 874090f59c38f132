"""Calibrated noise of a release of sums: its privacy cost and accuracy, before it is charged."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

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
from dpgrain.noise.additive_noise import noise_by_name
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.promise import Promise
from dpgrain.publishing.release_plan import compose, present
from dpgrain.statistics.bounds import POOL_MOST, POOL_MOST_OF_USER, POOL_SIZE, AutoClip
from dpgrain.statistics.intervals import half_width
from dpgrain.units import PLAIN_UNITS, Law, Level, Relation, Unit, User

if TYPE_CHECKING:
    from dpgrain.tables.blocks import UnitBlocks
    from dpgrain.tables.rows import TableRows

# Share of μ² for the selection of unknown items, larger if only names are published; and its share
# of δ: small, because k elements of one person cost k times it.
SELECTION_SHARE, TOP_SHARE = 0.3, 0.7
SELECTION_DELTA = 0.01
# Shares of the first of two selection rounds in μ² and δ of both.
FIRST_SHARE, FIRST_DELTA = 0.3, 0.5
# Standard deviations of the first round's noise above which items enter the second round.
FLOOR = 2.0
# Standard deviations above its threshold that the second round aims at.
ENOUGH = 1.0
# Max items of a user in two rounds, times the noise variance of the first round: then an item of
# 1,000 people with this number of items each exceeds the noise by 3 deviations. And its limits.
_STANDING_OUT, _LEAST_ITEMS, _MOST_ITEMS = 120_000.0, 200, 20_000
# Largest stated number of items of a user in two rounds, so that sums of weights are exact.
_MOST_STATED = 1 << 25
# Budget share of the sum at equal size, which estimates how much of the clipped parts is align_columns,
# or the sizes of groups. With fewer coordinates, full alignment is assumed.
ALIGN_SHARE = 0.05
MANY_COORDINATES = 32
# Budget shares of the counts of clipped units (sums get 2.6% more noise for it, 5.3% with Laplace
# noise), and of the counts of values inside and outside of stated bounds.
CLIPPED_SHARE = OUTSIDE_SHARE = 0.05
# Budget share of the directions of users' contributions, from which scales of groups are chosen, and
# the share for the bounds with and without these scales (measured: experiments/statistics.md).
SCALES_SHARE, SCALED_SHARE = 0.06, 0.18
# Smallest number of coordinates with scales.
SCALED_LEAST = 3
_PARTS = (
    "select", "ranges", "outside", "align", "scales", "bounds", "scaled", "pool", "clipped", "sums",
)  # fmt: skip
# Counts of blocks are integers and need no grid.
_COUNTS = {"bounds", "scaled", "pool"}
# Bits of the noise and of a bound on the grid: see `grid_bits`.
_NOISE_BITS, _MAX_BITS, _MIN_BITS = 32, 30, 8
#: Selection of the best items; the exponential mechanism for rows that a record may move.
ItemChoice: TypeAlias = BoundedRange | ExponentialMechanism
#: Part of a release of sums.
Part: TypeAlias = Selection | ItemChoice | AdaptiveSelection | Additive


@dataclass(frozen=True)
class SumsNoise:
    """Noise of all parts of a release of sums, calibrated to one guarantee, and the expected error.

    Args:
        level: the protected unit.
        relation: the neighbouring relation.
        epsilon: the guaranteed ε.
        delta: the guaranteed δ.
        sums: the noisy sums.
        select: the selection of items, if any: unknown items by a threshold, known items by Gumbel
            noise.
        again: the second round of the selection, if any.
        bounds: the noisy norms from which clipping bounds are chosen, if any.
        clip: the clipping bound; None if it is chosen privately.
        items: the public number of coordinates, if known.
        ranges: the noisy counts from which the range of the numbers is chosen, if any.
        align: the noisy sum of blocks scaled to equal size, from which the alignment of the clipped
            parts or the sizes of groups are estimated.
        pool: the noisy norms of blocks of many cells, which correct the bounds of single cells, if
            any.
        clipped: the noisy numbers of complete and of clipped units by group, if counted.
        outside: the noisy numbers of values inside and outside of stated bounds, if counted.
        scales: the noisy directions of users' contributions, from which scales of groups are
            chosen, if any.
        scaled: the noisy norms of contributions divided by these scales, if any.

    >>> from dpgrain import User
    >>> noise = plan_histogram(unit=User(), epsilon=1.0, delta=1e-6, items=100)
    >>> print(noise)
    Noise of a histogram, ε = 1, δ = 10⁻⁶ per user (zero_out):
      standard error of an estimate: 5.14402 × the clipping bound
      95% of estimates within: ±10.0821 × the clipping bound
      expected l2 error of all 100 items: 51.4402 × the clipping bound
      share of the budget that chooses clipping bounds: 23%
    Clipping adds a bias that depends on the data.
    >>> round(noise.share_of(noise.bounds), 2), noise.event.epsilon(1e-6) <= 1.0
    (0.09, True)
    """

    level: Level
    relation: Relation
    epsilon: float
    delta: float
    sums: Additive
    select: Selection | ItemChoice | None = None
    bounds: Additive | None = None
    clip: float | None = None
    items: int | None = None
    ranges: Additive | None = None
    align: Additive | None = None
    pool: Additive | None = None
    again: AdaptiveSelection | None = None
    clipped: Additive | None = None
    outside: Additive | None = None
    scales: Additive | None = None
    scaled: Additive | None = None

    @property
    def parts(self) -> dict[str, Part]:
        """Parts of the release by name, in the order of their draws."""
        parts = {
            "selection": self.select,
            "second selection": self.again,
            "range": self.ranges,
            "values outside": self.outside,
            "alignment": self.align,
            "group scales": self.scales,
            "bounds": self.bounds,
            "scaled bounds": self.scaled,
            "shared bounds": self.pool,
            "clipped units": self.clipped,
            "sums": self.sums,
        }
        return present(parts)

    @property
    def event(self) -> Event:
        """Composition of all parts, for the accountant."""
        return compose(self.parts)

    @property
    def one_bound(self) -> bool:
        """True if all items have a common clipping bound, False for one bound per cell."""
        return one_bound(self.sums.contribution)

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
        """Expected l2 error of all estimates due to noise, without the bias of clipping.

        The unit is the bound if the bound is chosen privately. If the number of items is not
        public, the error is for one item.
        """
        return self.std_error * math.sqrt(1 if self.items is None else self.items)

    def share_of(self, *parts: Additive | None) -> float:
        """Return the share of the budget of some parts: of μ², or of ε with Laplace noise."""
        power = 1 if self.sums.law.pure else 2

        def spent(part: Additive | Selection | AdaptiveSelection) -> float:
            moved = part.contribution.sensitivity(1, self.relation, PLAIN_UNITS[self.level])
            return (moved / part.noise_multiplier) ** power

        whole = sum(spent(part) for part in self.parts.values() if not isinstance(part, ItemChoice))
        return sum(spent(part) for part in parts if part is not None) / whole

    def __str__(self) -> str:
        of = "" if self.clip is not None else " × the clipping bound"
        lines = [
            f"Noise of a histogram, ε = {self.epsilon:g}, δ = {powers(self.delta)} per "
            f"{self.level} ({self.relation}):",
            f"  standard error of an estimate: {self.std_error:.6g}{of}",
            f"  95% of estimates within: ±{self.radius:.6g}{of}",
        ]
        if self.items is not None:
            lines.append(
                f"  expected l2 error of all {self.items:,} items: {self.expected_error:.6g}{of}"
            )
        if isinstance(self.select, Selection):
            lines.append(
                f"  items are selected from a noisy weighted count of {self.select.threshold:.4g}"
            )
        if self.bounds is not None:
            lines.append(
                f"  share of the budget that chooses clipping bounds: "
                f"{self.share_of(self.scales, self.bounds, self.scaled, self.pool):.0%}"
            )
        return "\n".join([*lines, "Clipping adds a bias that depends on the data."])


def noise_sd(event: Additive) -> float:
    """Return the standard deviation of an event's noise, in clipping bounds."""
    return event.law.sd * event.noise_multiplier


def one_bound(contribution: Contribution) -> bool:
    """Return True if blocks share one bound: one cell, or cells independent of items."""
    in_cells = contribution.block == "element" and contribution.layout == "disjoint"
    return not in_cells or contribution.cells == 1


@dataclass(frozen=True)
class SumsDesign:
    """Parts of a release of sums, before their noise is calibrated to a guarantee."""

    contribution: Contribution  # of a block to the sums
    noise: str
    clip: float | AutoClip  # a fixed bound, or the rule that chooses bounds
    select: Contribution | None = None  # to the selection counts; None for a public domain
    select_items: int | None = 1  # most groups of a block; None: all that round one can distinguish
    adaptive: bool = False  # selection in two rounds
    ranges: Contribution | None = None  # of a block to the counts for a privately chosen range
    range_share: float = 0.0
    outside: Contribution | None = None  # of a block to the counts of values within stated bounds
    items: int | None = None  # public number of coordinates, if known
    record_value: float | None = None  # largest norm of one record, if known
    select_share: float = SELECTION_SHARE
    align_from: int = MANY_COORDINATES  # coordinates from which blocks are also added at equal size
    count_clipped: bool = False  # count complete and clipped units

    @property
    def scales_groups(self) -> bool:
        """True for sums of users by several groups with one privately chosen bound."""
        several = self.items is None or self.items >= SCALED_LEAST
        whole = self.contribution.block == "user" and isinstance(self.clip, AutoClip)
        return whole and several and self.count_clipped and not noise_by_name(self.noise).pure


def calibrate_sums(design: SumsDesign, promise: Promise) -> SumsNoise:
    """Split one budget between the parts of a release, and calibrate the noise of each."""
    contribution, items = design.contribution, design.items
    law = noise_by_name(design.noise)
    # Any record may change the bin of a block, which is one of several coordinates.
    binned = replace(contribution, coordinates="nonnegative", record_size=math.inf)
    auto, bound = (design.clip, None) if isinstance(design.clip, AutoClip) else (None, design.clip)
    parts = dict.fromkeys(("scales", "bounds", "scaled", "clipped"), binned)
    parts |= dict.fromkeys(("align", "sums"), contribution)
    shares = dict.fromkeys(_PARTS, 0.0)
    shares["select"] = design.select_share if design.select else 0.0
    shares["ranges"] = design.range_share if design.ranges else 0.0
    shares["outside"] = OUTSIDE_SHARE if design.outside else 0.0
    left = 1 - shares["select"] - shares["ranges"] - shares["outside"]
    shares["clipped"] = left * CLIPPED_SHARE if design.count_clipped else 0.0
    left -= shares["clipped"]
    if auto is not None:
        shared = one_bound(contribution)
        many = contribution.block != "record" and (items is None or items >= design.align_from)
        shares["align"] = left * ALIGN_SHARE if shared and many else 0.0
        most = _max_pooled(contribution)
        own, pooled = auto.shares(
            one_bound=shared,
            cells=contribution.cells,
            most=None if law.norm == "l1" else most,
            of_sums=design.count_clipped,
        )
        if design.scales_groups:
            shares["scales"] = left * SCALES_SHARE
            own = (SCALED_SHARE if auto.share is None else auto.share) / 2
            shares["scaled"] = left * own
        shares["bounds"], shares["pool"] = left * own, left * pooled
        if pooled:
            parts["pool"] = replace(binned, layout="pooled", per_coordinate=most)
    chosen_by = ("align", "scales", "bounds", "scaled", "pool")
    shares["sums"] = left - sum(shares[name] for name in chosen_by)
    if design.select is not None:
        # Any record may change the selected groups of a block.
        parts["select"] = replace(design.select, record_size=math.inf)
    for name, counts in (("ranges", design.ranges), ("outside", design.outside)):
        if counts is not None:
            parts[name] = replace(counts, coordinates="nonnegative", record_size=math.inf)
    selects = design.select is not None and not law.pure
    leak = selection_delta(promise.level) * promise.delta if selects else 0.0
    events = _calibrated(design.noise, promise, leak, parts, shares)
    for name in events.keys() - _COUNTS:
        grid_bits(events[name].noise_multiplier)
    chosen, again = None, None
    if design.select is not None:
        noise_multiplier = events["select"].noise_multiplier
        chosen, again = plan_selection(
            noise_multiplier,
            leak,
            design.select_items,
            parts["select"],
            promise,
            adaptive=design.adaptive,
        )
    sums = _with_record_size(events["sums"], design.record_value, bound, items)
    drawn: dict[str, Any] = {**events, "sums": sums, "select": chosen, "again": again}
    public = (promise.level, promise.relation, promise.epsilon, promise.delta)
    return SumsNoise(*public, clip=bound, items=items, **drawn)


def _max_pooled(contribution: Contribution) -> int:
    """Return the maximum number of blocks of one person in a bin of the pooled query."""
    most = POOL_MOST if contribution.max_elements is None else POOL_MOST_OF_USER
    if contribution.norm == "l1":
        # Blocks in one bin cost no more than in several.
        most = POOL_SIZE
    return min(POOL_SIZE, most, contribution.cells or POOL_SIZE)


def selection_delta(level: Level) -> float:
    """Return the share of δ for selection: small if privacy of k elements matters."""
    return 0.5 if level == "user" else SELECTION_DELTA


def grid_bits(noise_multiplier: float) -> int:
    """Return a clipping bound's bits on the grid, for noise of about 2^32 steps.

    Truncating the blocks of 10^6 users then biases a total by less than 0.1% of the noise, if that
    is at least 4 clipping bounds; exact sampling stays fast.
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
    """Add one record's largest change, if known: its value plus truncation to the grid."""
    if value is None or clip is None or items is None:
        return event
    # Truncation and the correction of rounding change each coordinate of a block by less than two
    # grid steps, of at most 2^(1−bits) each.
    steps = float(items) if event.contribution.norm == "l1" else math.sqrt(items)
    size = value / clip + steps * 2.0 ** (2 - grid_bits(event.noise_multiplier))
    return replace(event, contribution=replace(event.contribution, record_size=size))


def _calibrated(
    noise: str,
    promise: Promise,
    leak: float,
    parts: dict[str, Contribution],
    shares: dict[str, float],
) -> dict[str, Additive]:
    """Return the noise of each part with a share of the budget, except ``leak`` of δ."""
    named = [name for name in _PARTS if shares[name] > 0]
    kind, relation, unit = ADDITIVE[noise], promise.relation, promise.plain_unit
    used = [parts[name] for name in named]
    if not noise_by_name(noise).pure:
        budget = (promise.epsilon, promise.delta - leak)
        multipliers = gaussian_multipliers(
            *budget, used, [shares[name] for name in named], relation, unit
        )
        return dict(zip(named, map(kind, multipliers, used), strict=True))
    # Rounding must not push the sum of the parts above ε.
    safe = promise.epsilon * (1 - 1e-12) if len(named) > 1 else promise.epsilon
    return {
        name: calibrate_additive(
            kind, safe * shares[name], 0.0, contribution=parts[name], relation=relation, unit=unit
        )
        for name in named
    }


def plan_selection(
    noise_multiplier: float,
    leak: float,
    max_items: int | None,
    contribution: Contribution,
    promise: Promise,
    *,
    adaptive: bool,
) -> tuple[Selection, AdaptiveSelection | None]:
    """Return the selection in one round, or in two."""
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
    """Return the selection with the smallest threshold for at most ``leak`` of δ."""

    def event(threshold: float) -> Selection:
        return Selection(noise_multiplier, threshold, max_items, contribution)

    return event(
        _min_threshold(
            lambda threshold: event(threshold).loss(1, relation, unit).leak <= leak,
            noise_multiplier,
        )
    )


def _min_threshold(is_enough: Callable[[float], bool], noise_multiplier: float) -> float:
    """Return the smallest threshold that meets a condition, which all larger ones meet."""
    # The noise exceeds 40 standard deviations with probability below 10^-300.
    low, high = 1.0, 1.0 + 40.0 * noise_multiplier
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def select_in_rounds(
    noise_multiplier: float,
    leak: float,
    max_items: int | None,
    contribution: Contribution,
    relation: Relation,
    unit: Unit,
) -> tuple[Selection, AdaptiveSelection]:
    """Return two selection rounds that together cost as much as one with this noise."""
    one = noise_multiplier / math.sqrt(FIRST_SHARE)
    # One minus the share is rounded: err towards more noise.
    two = noise_multiplier / math.sqrt(1 - FIRST_SHARE) * (1 + 2.0**-40)
    for noise in (one, two):
        grid_bits(noise)
    if max_items is None:
        distinguished = int(min(_STANDING_OUT / one**2, _MOST_ITEMS))
        max_items = max(distinguished, _LEAST_ITEMS)
    # Each user of an item adds at least one grid step, so only its noisy count decides on the
    # second round, not its other users.
    max_items = min(max_items, 1 << 2 * (grid_bits(one) - 1), _MOST_STATED)
    part = FIRST_DELTA * leak
    # If both neighbours may have separate items, the second round counts the first one's twice.
    both = 1 if AdaptiveSelection.one_sided(relation, unit) else 2
    first = select_by_threshold(one, part / both, max_items, contribution, relation, unit)
    left = leak - first.loss(1, relation, unit).leak

    def again(threshold: float) -> AdaptiveSelection:
        return AdaptiveSelection(
            two, threshold, one, first.threshold, FLOOR * one, first.max_items, contribution
        )

    threshold = _min_threshold(
        lambda threshold: again(threshold).loss(1, relation, unit).leak <= left, two
    )
    return first, again(threshold)


def plan_histogram(
    *,
    unit: Unit,
    epsilon: float,
    delta: float = 0.0,
    relation: Relation = "zero_out",
    clip: float | Literal["auto"] | AutoClip = "auto",
    noise: Law = "gaussian",
    items: int | None = None,
    cells: int | None = None,
    max_items: int = 1000,
    cell_of_item: bool = True,
    own_items: bool = False,
    weighted: bool = False,
) -> SumsNoise:
    """Plan the noise and the error of :func:`dpgrain.histogram` from public numbers only.

    Args:
        unit: protected unit. Its partition does not matter.
        epsilon: privacy parameter ε, such as 1; smaller protects more.
        delta: privacy parameter δ, such as 1e-6.
        relation: neighbouring data: a unit removed, or replaced by another.
        clip: a bound, or ``'auto'``, which spends some budget on choosing bounds. Errors are then
            in units of the bound.
        noise: noise distribution.
        items: public number of items; if omitted, items are selected privately.
        cells: the public number of cells, if the cell is a function of the item.
        max_items: maximum number of one unit's items used in selection.
        cell_of_item: True if the cell is a public function of the item.
        own_items: True if each item is a separate element, as in ``Element(item)``.
        weighted: True for records with weights.

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
    design = SumsDesign(
        contribution,
        noise,
        bound,
        select=None if items is not None else contribution,
        select_items=max_items,
        items=items,
        count_clipped=isinstance(bound, AutoClip),
    )
    return calibrate_sums(design, promise)


def guarantee_of(
    promise: Promise,
    blocks: UnitBlocks,
    table: TableRows,
    event: Event,
    facts: Sequence[Fact],
    *,
    user: str | None = None,
) -> Guarantee:
    """Return the guarantee of a release from a table; ``user`` describes its users."""
    return Guarantee(
        promise.level,
        blocks.named,
        promise.relation,
        promise.delta,
        event,
        tuple(facts),
        user=user or table.user or "",
        scope=table.scope,
        partition=blocks.partition,
        provenance=table.provenance,
    )


def clip_rule(clip: object) -> float | AutoClip:
    """Return a stated clipping bound, or the rule that chooses bounds."""
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
            f"clip must be between 1e-100 and 1e100, not {_validate.describe(clip)}.", name="clip"
        )
    return bound
