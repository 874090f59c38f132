"""Execution of a query for sums: selection, choice of bounds, summation and noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgrain._formatting import rounded_down
from dpgrain._progress import Progress
from dpgrain._types import BoolArray, FloatArray
from dpgrain.accounting import AdaptiveSelection, Selection
from dpgrain.accounting.events.additive import Additive
from dpgrain.publishing import Charge
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.statistics.bounds import (
    POOLED_EDGES,
    AutoClip,
    ChosenBounds,
    RoughBounds,
    beyond_at_least,
    bound_of_ratios,
    can_pool,
    choose_bounds,
    clipped_at_least,
    group_scales,
    likely_lost,
    pooled_bounds,
    rough_bounds,
)
from dpgrain.statistics.group_estimates import Estimates, Histogram
from dpgrain.statistics.intervals import ClippedUnits, at_least, blank, quantile_of, ratio_interval
from dpgrain.statistics.plan import ENOUGH, ItemChoice, grid_bits, noise_sd
from dpgrain.statistics.ranges import AutoRange, AutoTree, Clamped
from dpgrain.statistics.release_metadata import Clip, ReleaseMetadata
from dpgrain.statistics.values import INTEGERS, Outside, SignParts
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.engines.kernel import WEIGHT_BITS, Grid, Pools, Routes
from dpgrain.tables.engines.protocol import Engine
from dpgrain.tables.groups import Groups
from dpgrain.tables.split import Split
from dpgrain.tables.user_sums import UserContributions, candidate_groups
from dpgrain.words.notes import Note

if TYPE_CHECKING:
    from dpgrain.statistics.sums_query import SumsQuery

# Standard deviations below which a count may be noise.
_STANDS_OUT = 3.0
# Minimum share of clipped contributions to flag a mean.
_MOSTLY_CLIPPED = 0.5
# Standard deviations of people's numbers by which the removed records of few people may move a mean
# without a warning.
_FEW_PEOPLE = 0.5
# Probability that the number of remaining records is at most its upper limit.
_COUNTED = 0.975
# Three times the likely clamped part ÷ result from which this is flagged: for a mean or a sum half
# of the result is likely outside, and for a variance a quarter, which a few invisible values decide.
_FAR = {1: 1.5, 2: 0.75}
# Lower limit of the flagged share outside of a chosen range, which excludes few values unless many
# are invisible.
_MANY_OUTSIDE = 0.1
# Approximate ratio of a clipping bound to the mean block of several records.
_BOUND_TO_MEAN = 2.0
# Largest expected noise with scales of groups ÷ noise without: most groups gain even if the largest
# ones do not.
_SCALED_MOST = 1.1


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Noisy sums of one release; all fields are public."""

    groups: Groups  # (V,), in the order of the public domain; selected ones sorted
    masses: FloatArray  # (V, C) sums of clipped contributions
    sd: FloatArray  # (V,) of the noise of each coordinate
    clip: FloatArray  # (V,) bound of the group's cell
    split: Split | None
    guarantee: Guarantee
    metadata: ReleaseMetadata
    chosen: ChosenBounds | None = None  # by group; None for a stated bound
    clipped: ClippedUnits | None = None
    everyone: int | None = None  # public number, if people without records count 0
    seen: bool = True  # False if no number exceeded the noise in a private range
    clamped: Clamped | None = None  # likely effect of clamping to a private range
    shifted: FloatArray | None = None  # (V,) likely effect of clipping, in ranges

    def as_histogram(
        self, *, scale: float = 1.0, sign: float = 1.0, signed: bool = False
    ) -> Histogram:
        """Return the release of sums of one coordinate, each times ``scale`` and ``sign``."""
        estimate, sd = sign * scale * self.masses[:, 0], scale * self.sd
        noise, least, below, above = self.metadata.noise, None, None, None
        if self.clamped is not None and self.clamped.side:
            # All groups are assumed to have the same share beyond the range.
            size = np.maximum(self.clamped.side * estimate, 0.0) / self.clamped.size
            below, above = self.clamped.below * size, self.clamped.above * size
        if self.metadata.is_clipped:
            # Clipping of numbers of both signs may change a sum in either direction.
            falls = not signed and sign > 0
            least = at_least(estimate, sd, noise) if falls else blank(sd.size)
        return Histogram(
            self.groups,
            estimate,
            sd,
            scale * self.clip,
            self.guarantee,
            self.metadata,
            noise,
            at_least=least,
            complete_units=None if self.clipped is None else self.clipped.complete,
            clipped_units=None if self.clipped is None else self.clipped.clipped,
            units_error=None if self.clipped is None else self.clipped.std_error,
            clamped_below=below,
            clamped_above=above,
        )

    def as_estimates(
        self,
        estimate: FloatArray,
        std_error: FloatArray,
        low: FloatArray,
        high: FloatArray,
        count: FloatArray,
        count_error: FloatArray,
        *,
        groups: Groups | None = None,
        coordinates: int | None = None,
    ) -> Estimates:
        """Return the release of estimates computed from the sums."""
        return Estimates(
            self.groups if groups is None else groups,
            estimate,
            std_error,
            low,
            high,
            count,
            self.guarantee,
            self._metadata_with_caution(coordinates or self.masses.shape[1]),
            count_error,
        )

    def _metadata_with_caution(self, coordinates: int) -> ReleaseMetadata:
        """Return the metadata, with a warning if almost no numbers were visible.

        The decision uses published noisy numbers only.
        """
        count = float(self.masses[:, :coordinates].sum())
        noise = math.sqrt(coordinates * float((self.sd**2).sum()))
        if not len(self.groups) or count > _STANDS_OUT * noise:
            return self.metadata
        warning = ("few-numbers", max(count, 0.0), noise)
        # Without visible numbers, no bound is visible either.
        others = (care for care in self.metadata.care if care[0] != "no-bound")
        return replace(self.metadata, care=(warning, *others))


def noisy_sums(query: SumsQuery[Any], charge: Charge) -> NoisySums:
    """Run a query: select groups, choose bounds, compute sums and add noise."""
    events, care, result = query.events, list[Note](), None
    table = query.selection_blocks[0] if query.domain.selected else query.table
    if isinstance(query.bounds, AutoRange) or query.counts_outside:
        table = query.blocks.for_keys((), table)[0]
    with charge.open(table) as engine, Progress(5, query.progress) as progress:
        wider = None
        if query.public is not None and query.best is None:
            groups, cells_of = query.public
        elif query.public is not None:
            progress.stage("Choosing items")
            groups = best_groups(engine, query, charge)
            cells_of = query.blocks.cells(groups, public=True)
        else:
            progress.stage("Selecting items")
            selected, wider = _selected(engine, query, charge)
            groups = query.domain.groups(selected)
            cells_of = query.blocks.cells(groups, public=False)
        bounds = query.bounds
        if isinstance(bounds, AutoRange):
            progress.stage("Choosing the range")
            result = _range(engine, query, bounds, groups, charge)
            bounds = result.bounds
            if not result.seen:
                care.append(("no-number",))
        outside = _outside(engine, query, bounds, groups, charge)
        split = None if query.value is None else query.measure.split(*(bounds or (0.0, 0.0)))
        data = UserContributions(engine, query.blocks, groups, cells_of, query.value, split, wider)
        clip, chosen = np.array([events.clip], dtype=np.float64), None
        scales = np.ones(len(data.dictionary.groups))
        if isinstance(query.rule, AutoClip):
            progress.stage("Choosing clipping bounds")
            if events.scales is None:
                chosen = _choose(data, query, None if result is None else result.spread, charge)
            else:
                chosen, scales = _choose_with_scales(data, query, charge)
                data = data.with_factors(1 / scales)
            clip = chosen.bounds
            if not chosen.seen.any():
                # Without a visible number or a group, no estimate has this bound.
                care += [("no-bound",)] if len(scales) and not care else []
            elif query.measure.ratio and chosen.clipped > _MOSTLY_CLIPPED:
                care.append(("mostly-clipped", math.floor(100 * chosen.clipped)))
        grid = Grid(clip, grid_bits(events.sums.noise_multiplier), query.norm)
        counts = _clipped_units(data, grid, query, charge)
        progress.stage("Adding up")
        sums = query.netted(data.sums(grid, indicator=query.statistic.holders))
        progress.stage("Adding noise")
        known = data.dictionary
        row = known.cell_rows(clip.size)
        # Modulo 2^64, like the sums: post-processing of unbounded addition.
        sums = charge.noisy(events.sums, sums, np.repeat(grid.radius[row], sums.shape[1]))
    learned: dict[str, Any] = {}
    if chosen is not None:
        scale = split.scale if isinstance(split, SignParts) else 1.0
        learned["bound"] = scale * float(clip[0]) if events.one_bound and clip.size else None
        if (scales != 1).any():
            learned.update(bound=None, clip=Clip(None, "group"))
    if result is not None and result.seen and not result.everything:
        learned.update(found=result.bounds, beyond=result.beyond)
        if result.clamped is not None:
            learned["widened"] = query.measure.ratio or result.clamped.side != 0
        if result.clamped is not None and result.clamped.share > _FAR[query.measure.power or 1]:
            care.append(("far-numbers",))
    if outside is not None and (result is None or result.seen):
        learned["beyond"] = outside[2]
        if result is None:
            learned["outside"] = outside[0]
        if outside[1] > (0.0 if result is None else _MANY_OUTSIDE):
            care.append(("clamped", float(rounded_down(100 * outside[1], 2))))
    shifted = None
    if chosen is not None and query.measure.power and query.measure.ratio:
        spread = None if result is None else result.spread
        shifted = query.measure.spread_bias(spread) * chosen.lost
        learned["widened"] = True
    masses = sums * (grid.step[row] * scales)[:, None]
    sd = noise_sd(events.sums) * clip[row] * scales
    mostly = any(each[0] == "mostly-clipped" for each in care)
    if chosen is not None and query.measure.ratio and not mostly:
        care += _removed_records(chosen, masses, sd, query)
    # In the order of the public domain, or of the selected keys.
    order = np.argsort(known.positions)
    row, scales = row[order], scales[order]
    return NoisySums(
        known.groups.take(order),
        masses[order],
        sd[order],
        clip[row] * scales,
        split,
        charge.guarantee,
        replace(query.metadata, care=tuple(care), **learned),
        None if chosen is None else chosen.take(row),
        None if counts is None else counts.take(order),
        query.everyone,
        result is None or result.seen,
        None if result is None else result.clamped,
        None if shifted is None else shifted[row],
    )


def _selected(
    engine: Engine, query: SumsQuery[Any], charge: Charge
) -> tuple[Groups, UserContributions | None]:
    """Return selected groups by key, and contributions if the sums need the same rows."""
    event = query.events.select
    assert isinstance(event, Selection)  # noqa: S101 - a plan with selected keys has it
    _, blocks = query.selection_blocks
    present = groups_in_data(engine, blocks, query.domain.selected, query.value)
    cells = blocks.cells(present, public=False)
    presence = None if query.value is None else query.measure.presence
    data = UserContributions(engine, blocks, present, cells, query.value, presence)
    groups = select(data, event, charge, query.events.again)
    same_rows = query.value is None and not query.domain.public
    return groups.take(groups.order()), data if same_rows else None


def groups_in_data(
    engine: Engine, blocks: UnitBlocks, keys: Sequence[str], value: str | None = None
) -> Groups:
    """Return the groups in the data; private."""
    if blocks.elements is None or blocks.key is None:
        return candidate_groups(engine, keys, value)
    # Only items that occur are passed to the partition.
    return engine.distinct(keys, value)


def best_groups(engine: Engine, query: SumsQuery[Any], charge: Charge) -> Groups:
    """Return the public groups with the most users by one-shot Gumbel noise, best first."""
    event = query.events.select
    assert isinstance(event, ItemChoice)  # noqa: S101 - a plan of the best items has it
    groups, cells = query.public or (Groups.of((), ()), None)
    assert cells is not None  # noqa: S101 - best items require a public domain
    groups = groups.filter(cells.codes >= 0)
    # Counted by user for any unit: one person changes each count by at most 1.
    blocks = UnitBlocks("record" if query.table.user is None else "user")
    data = UserContributions(engine, blocks, groups, blocks.cells(groups, public=True))
    counts = data.holders()
    return data.dictionary.groups.take(charge.order(event, counts))


def select(
    data: UserContributions,
    event: Selection,
    charge: Charge,
    again: AdaptiveSelection | None = None,
) -> Groups:
    """Return the groups selected by noisy weighted counts, in one round or two."""
    return data.dictionary.groups.filter(select_and_count(data, event, charge, again)[1])


def select_and_count(
    data: UserContributions,
    event: Selection,
    charge: Charge,
    again: AdaptiveSelection | None = None,
) -> tuple[FloatArray, BoolArray]:
    """Return groups' first-round noisy counts, and which groups are selected, (V,).

    The counts of other groups are private.
    """
    grid = Grid(np.ones(1), grid_bits(event.noise_multiplier))
    radius, step = float(grid.radius[0]), float(grid.step[0])
    if again is None:
        sums = data.sums(grid, indicator=True, max_items=event.max_items)
    else:
        sums = data.first_sums(grid, max_items=event.max_items)
    noisy, passed = charge.select(event, sums, radius, step)
    counts = np.asarray(noisy * step, dtype=np.float64)
    if again is not None:
        # Items outside the first items of all users were not counted and do not enter the second
        # round. One step is added because rounding the noise may raise a count by half a step.
        ahead = ~passed & (sums > 0) & (counts >= again.floor + step)
        enough = (again.threshold + ENOUGH * again.noise_multiplier) / step
        routes = Routes.after(noisy, ahead, enough)
        grid = Grid(np.ones(1), grid_bits(again.noise_multiplier))
        sums = data.routed(routes, grid, max_items=again.max_items)[ahead]
        _, late = charge.select(again, sums, float(grid.radius[0]), float(grid.step[0]))
        passed[np.flatnonzero(ahead)[late]] = True
    return counts, passed


@dataclass(frozen=True)
class _Range:
    """Private range of numbers."""

    bounds: tuple[float, float]
    seen: bool = False  # any number was visible
    everything: bool = False  # range of all magnitudes, so nothing is clamped
    spread: float | None = None  # sd of visible numbers ÷ width of the range
    beyond: float | None = None  # 95% upper bound on the share outside, if not counted separately
    clamped: Clamped | None = None  # likely effect of clamping


def _range(
    engine: Engine, query: SumsQuery[Any], rule: AutoRange, groups: Groups, charge: Charge
) -> _Range:
    """Choose the range of all groups' numbers from noisy counts of their magnitudes."""
    event = query.events.ranges
    assert event is not None  # noqa: S101 - a plan without bounds has it
    _, blocks = query.range_blocks
    # The bound of a record is the norm of its contribution, because its coordinates are truncated
    # separately. Other blocks are scaled to norm 1.
    bound = rule.record_norm[query.norm] if blocks.block == "record" else 1.0
    noisy = _value_counts(engine, query, query.value, rule.split(), groups, event, bound, charge)
    sd, power = bound * noise_sd(event), query.measure.power
    noisy, integers, narrow = rule.parts(noisy, sd, query.noise)
    seen = rule.is_detectable(noisy, sd, query.noise)
    # Each group has this noise, and all of them together lose what is clamped.
    noise = noise_sd(query.events.sums) * math.sqrt(max(len(groups), 1))
    noise *= 1.0 if query.blocks.one_row or blocks.block == "record" else _BOUND_TO_MEAN
    if integers is not None:
        low, high = integers.ends(noise, from_zero=not query.measure.ratio)
        bounds = max(low, float(rule.edges[0])), high
    elif power is not None:
        if blocks.block == "user" and not query.keys and not query.measure.ratio:
            # The noise of a total of users grows with their bound, not with the range of numbers.
            noise = 0.0
        bounds = rule.balanced_bounds(noisy, sd, noise, query.noise, power)
        narrow = None if narrow is None or noise == 0 else narrow.within(*bounds)
        narrower = narrow and narrow.narrower(noise, power, ratio=query.measure.ratio)
        bounds, narrow = narrower or bounds, narrow if narrower else None
    else:
        bounds = rule.choose(noisy, sd, query.noise)
    whole = isinstance(rule, AutoTree) and rule.near(*bounds) is not None
    if query.everyone is not None:
        # The range includes the number 0 of people without records.
        bounds = min(bounds[0], 0.0), max(bounds[1], 0.0)
    if not seen:
        return _Range(bounds)
    beyond, clamped = None, None
    spread = rule.spread(noisy, sd, bounds, query.noise)
    if isinstance(rule, AutoTree):
        beyond = rule.share_outside(noisy, sd, bounds)
    if integers is not None:
        spread = integers.spread() / (bounds[1] - bounds[0])
        if power is not None:
            near = Clamped.of(INTEGERS, integers.likely, bounds, power)
            clamped = near if near.share > 0 else None
    elif power is not None:
        clamped = rule.clamped(noisy, sd, bounds, query.noise, power, narrow)
    # If only one integer is visible, the spread of the others is unknown.
    return _Range(bounds, True, whole, spread or None, beyond, clamped)


def _value_counts(
    engine: Engine,
    query: SumsQuery[Any],
    value: str | None,
    split: Split,
    groups: Groups,
    event: Additive,
    bound: float,
    charge: Charge,
) -> FloatArray:
    """Return noisy numbers of groups' values by corner, for blocks of norm ``bound``."""
    _, blocks = query.range_blocks
    cells = blocks.cells(groups, public=True)
    data = UserContributions(engine, blocks, groups, cells, value, split, joined=True)
    grid = Grid(np.array([bound]), grid_bits(event.noise_multiplier), query.norm)
    drawn = charge.noisy(event, data.sums(grid), float(grid.radius[0]))
    return np.asarray(drawn * float(grid.step[0]), np.float64).ravel()


def _outside(
    engine: Engine,
    query: SumsQuery[Any],
    bounds: tuple[float, float] | None,
    groups: Groups,
    charge: Charge,
) -> tuple[float, float, float] | None:
    """Return the share of values outside of bounds, with 95% limits; None if unknown."""
    event = query.events.outside
    if event is None:
        return None
    value = query.value
    if query.distance is not None:
        value, bounds = query.distance, (0.0, 0.0)
    assert bounds is not None  # noqa: S101 - a plan with this part has stated or chosen bounds
    split = Outside(*bounds)
    inside, outside = _value_counts(engine, query, value, split, groups, event, 1.0, charge)
    radius = np.array(quantile_of("gaussian", 0.95) * noise_sd(event))
    low, high = ratio_interval(np.array(outside), np.array(inside), radius)
    share = max(outside, 0.0) / max(outside + inside, max(outside, noise_sd(event)))
    # Below one value there is nothing to state.
    return min(share, 1.0), float(low), max(float(high), 1 / max(inside + outside, 1.0))


def _choose(
    data: UserContributions, query: SumsQuery[Any], spread: float | None, charge: Charge
) -> ChosenBounds:
    """Choose the clipping bound of each cell from noisy counts of block norms."""
    events, rule = query.events, query.rule
    event = events.bounds
    assert isinstance(rule, AutoClip)  # noqa: S101 - called only then
    assert event is not None  # noqa: S101 - a plan has it then
    edges = _edges(rule, query, 1 if events.one_bound else data.dictionary.cell_sizes.size)
    counts = data.norm_counts(edges[1:], query.norm, indicator=query.statistic.holders)
    noisy = charge.noisy(event, counts).astype(np.float64)
    bias = query.measure.spread_bias(spread)
    if query.measure.ratio and events.one_bound and len(data.dictionary.groups):
        chosen = _choose_for_ratios(noisy, edges, bias, data, query, charge)
    else:
        blocks = max(float(noisy.sum()), 1.0)
        chosen = _choose_for_sums(noisy, edges, bias, blocks, data, query, charge)
    # The last edge may exceed the largest norm of interest, and the first be below the smallest.
    chosen = chosen.within(max(_record_norm(query), rule.low), _largest_norm(data, query, rule))
    counted = noisy, edges, noise_sd(event), chosen.bounds
    return replace(
        chosen,
        clipped=clipped_at_least(*counted),
        lost=likely_lost(*counted, query.noise),
        beyond=beyond_at_least(*counted, query.noise),
    )


def _choose_for_sums(
    noisy: FloatArray,
    edges: FloatArray,
    bias: float,
    blocks: float,
    data: UserContributions,
    query: SumsQuery[Any],
    charge: Charge,
) -> ChosenBounds:
    """Choose the bound of each cell of sums, or of ratios with their own cells."""
    events, rule = query.events, query.rule
    assert isinstance(rule, AutoClip)  # noqa: S101 - called only then
    assert events.bounds is not None  # noqa: S101 - a plan has it then
    aligned = bias
    if events.align is not None:
        aligned *= _alignment(data, events.align, query, blocks, charge)
    coordinates = query.noisy_coordinates(data.dictionary.cell_sizes)
    noise_multiplier, sd = noise_sd(events.sums) / aligned, noise_sd(events.bounds)
    own = (noisy, edges, sd, coordinates, noise_multiplier, query.noise)
    # Without selected items there is no cell.
    if events.pool is not None and len(noisy):
        rough = rough_bounds(*own)
        rows = _pooled_rows(data, events.pool, rough, query, charge)
        # Too few cells may have been selected for a common row.
        if can_pool(len(noisy)):
            return pooled_bounds(
                rough, rows, noise_sd(events.pool), coordinates, noise_multiplier, rule.low
            )
    return choose_bounds(*own)


def _choose_with_scales(
    data: UserContributions, query: SumsQuery[Any], charge: Charge
) -> tuple[ChosenBounds, FloatArray]:
    """Choose one bound of users' vectors, and the scale of each group, (groups,)."""
    events, rule = query.events, query.rule
    assert isinstance(rule, AutoClip)  # noqa: S101 - called only then
    assert events.bounds is not None  # noqa: S101 - a plan with scales has both
    assert events.scaled is not None  # noqa: S101 - a plan with scales has both
    edges = _edges(rule, query, 1)
    scales = _group_scales(data, edges, query, charge)
    scaled, groups = data.with_factors(1 / scales), max(scales.size, 1)
    counts = [
        charge.noisy(event, part.norm_counts(edges[1:], query.norm)).astype(np.float64)
        for event, part in ((events.bounds, data), (events.scaled, scaled))
    ]
    sd, alike = noise_sd(events.bounds), bool((scales == 1).all())
    if alike:
        counts, sd = [(counts[0] + counts[1]) / 2], sd / math.sqrt(2)
    aligned = 1.0
    if events.align is not None:
        blocks = max(float(counts[-1].sum()), 1.0)
        aligned = _alignment(scaled, events.align, query, blocks, charge)
    coordinates = query.noisy_coordinates(data.dictionary.cell_sizes)
    noise_multiplier = noise_sd(events.sums) / aligned
    plain, *others = (
        choose_bounds(each, edges, sd, coordinates, noise_multiplier, query.noise).within(
            rule.low, rule.high
        )
        for each in counts
    )
    for other in others:
        noise = float(other.bounds.sum()) * math.sqrt(float((scales**2).sum()) / groups)
        less = noise <= _SCALED_MOST * float(plain.bounds.sum()) or not plain.seen.any()
        if other.seen.any() and less:
            return other, scales
    return plain, np.ones(scales.size)


def _group_scales(
    data: UserContributions, edges: FloatArray, query: SumsQuery[Any], charge: Charge
) -> FloatArray:
    """Choose each group's scale from the noisy directions of users' vectors, (groups,)."""
    event = query.events.scales
    assert event is not None  # noqa: S101 - called only then
    units = Grid(np.ones(1), grid_bits(event.noise_multiplier), query.norm)
    sums = data.directions(edges[1:], units)
    noisy = charge.noisy(event, sums, float(units.radius[0])) * float(units.step[0])
    corners = data.dictionary.corners
    of_groups = noisy.reshape(-1, corners, edges.size - 1).sum(axis=1)
    return group_scales(of_groups, edges, noise_sd(event) * math.sqrt(corners))


def _edges(rule: AutoClip, query: SumsQuery[Any], cells: int) -> FloatArray:
    """Return the edges of the bins in which norms are counted."""
    edges = rule.edges(cells=cells)
    if query.value is None and not query.statistic.holders and query.events.pool is None:
        # A bin of the smallest norm of counts only, at which a bound clips no single record.
        edges = np.insert(edges, 0, edges[0] ** 2 / edges[1])
    return edges


def _clipped_units(
    data: UserContributions, clip: Grid, query: SumsQuery[Any], charge: Charge
) -> ClippedUnits | None:
    """Return noisy numbers of complete and clipped units by group, or None."""
    event = query.events.clipped
    if event is None:
        return None
    units = Grid(np.ones(1), grid_bits(event.noise_multiplier), query.norm)
    counts = data.clipped_units(clip, units, indicator=query.statistic.holders)
    noisy = charge.noisy(event, counts, float(units.radius[0])) * float(units.step[0])
    return ClippedUnits(noisy[:, 0], noisy[:, 1], noise_sd(event), query.noise)


def _removed_records(
    chosen: ChosenBounds, masses: FloatArray, sd: FloatArray, query: SumsQuery[Any]
) -> list[Note]:
    """Return a warning if clipping removed many records of few people: post-processing.

    Proof: docs/theory/sums.md, "The likely effect of clipping on means and variances".
    """
    (beyond, people), known, counting = chosen.beyond, query.record_norm, query.measure.counting
    if known is None or people <= 0:
        return []
    error = math.sqrt(counting * float((sd**2).sum()))
    kept = float(masses[:, :counting].sum()) + quantile_of(query.noise, _COUNTED) * error
    share = beyond / (beyond + known * max(kept, 0.0))
    far = share * math.sqrt(max(1 / people - 1, 0.0)) > _FEW_PEOPLE
    percent = math.floor(100 * share)
    return [("removed-records", percent)] if far and percent else []


def _largest_norm(data: UserContributions, query: SumsQuery[Any], rule: AutoClip) -> float:
    """Return the largest bound of interest; a user counts at most once in each public group."""
    if not (query.statistic.holders and query.events.one_bound):
        return rule.high
    groups = float(max(len(data.dictionary.groups), 1))
    return max(min(rule.high, groups if query.norm == "l1" else math.sqrt(groups)), rule.low)


def _record_norm(query: SumsQuery[Any]) -> float:
    """Return the smallest bound of ratios, one record; 0 for other statistics."""
    known = query.record_norm
    # Other rules start at one record or higher.
    below = isinstance(query.rule, AutoClip) and known is not None and query.rule.low < known
    return known if query.measure.ratio and below and known is not None else 0.0


def _pooled_rows(
    data: UserContributions,
    event: Additive,
    rough: RoughBounds,
    query: SumsQuery[Any],
    charge: Charge,
) -> FloatArray:
    """Return the noisy counts of blocks by pool and norm ÷ rough bound, (pools, bins)."""
    most = event.contribution.per_coordinate
    assert most is not None  # noqa: S101 - the contribution of a pooled look has it
    pools = Pools(POOLED_EDGES, rough.pool, rough.bounds, rough.weight, rough.pools, most)
    counts = data.pooled_counts(pools, query.norm, indicator=query.statistic.holders)
    noisy = charge.noisy(event, counts, 2.0**WEIGHT_BITS)
    return np.asarray(noisy / 2**WEIGHT_BITS, dtype=np.float64)


def _choose_for_ratios(
    noisy: FloatArray,
    edges: FloatArray,
    bias: float,
    data: UserContributions,
    query: SumsQuery[Any],
    charge: Charge,
) -> ChosenBounds:
    """Choose one bound for sums that are divided by the counts of groups."""
    events, measure = query.events, query.measure
    assert events.bounds is not None  # noqa: S101 - a plan has it then
    counts = np.ones(len(data.dictionary.groups))
    if events.align is not None:
        rows = _at_one_size(data, events.align, query, charge)[:, : measure.counting]
        # A group within the noise has about the size of the noise, or less.
        counts = np.maximum(rows.sum(axis=1), math.sqrt(rows.shape[1]) * noise_sd(events.align))
    return bound_of_ratios(
        noisy,
        edges,
        noise_sd(events.bounds),
        counts / counts.sum(),
        noise_sd(events.sums) * math.sqrt(measure.noisy),
        bias,
        query.noise,
        _record_norm(query),
    )


def _alignment(
    data: UserContributions, event: Additive, query: SumsQuery[Any], blocks: float, charge: Charge
) -> float:
    """Return the norm of the sum of equal-sized blocks ÷ that of identical blocks.

    Overestimated by one standard deviation. Use: docs/theory/sums.md, "The combined effect of
    bounds".
    """
    noisy = _at_one_size(data, event, query, charge).ravel()
    variance = noise_sd(event) ** 2
    length = float(noisy @ noisy) - noisy.size * variance
    spread = math.sqrt(2 * noisy.size * variance**2 + 4 * variance * max(length, 0.0))
    return min(max(math.sqrt(max(length + spread, 0.0)) / blocks, 1 / math.sqrt(blocks)), 1.0)


def _at_one_size(
    data: UserContributions, event: Additive, query: SumsQuery[Any], charge: Charge
) -> FloatArray:
    """Return the noisy sum of blocks clipped to the smallest size, in this unit, (V, C)."""
    assert isinstance(query.rule, AutoClip)  # noqa: S101 - called only then
    grid = Grid(np.array([query.rule.low]), grid_bits(event.noise_multiplier), query.norm)
    sums = query.netted(data.sums(grid, indicator=query.statistic.holders))
    noisy = charge.noisy(event, sums, float(grid.radius[0]))
    return np.asarray(noisy / float(grid.radius[0]), dtype=np.float64)
