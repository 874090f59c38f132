"""The five common steps of statistics, from a request to noisy sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from dpgrain._progress import Progress
from dpgrain._types import BoolArray, FloatArray, IntArray
from dpgrain.accounting import AdaptiveSelection, Selection
from dpgrain.accounting.events.additive import Additive
from dpgrain.noise import RandomState
from dpgrain.publishing import Charge, Planned, Promise, Query
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.query import Made
from dpgrain.statistics.asked import Asked
from dpgrain.statistics.bounds import (
    POOLED_EDGES,
    AutoClip,
    ChosenBounds,
    RoughBounds,
    bound_of_ratios,
    can_pool,
    choose_bounds,
    pooled_bounds,
    rough_bounds,
)
from dpgrain.statistics.plan import (
    ENOUGH,
    Best,
    Plan,
    grid_bits,
    noise_sd,
)
from dpgrain.statistics.ranges import AutoRange, AutoTree
from dpgrain.statistics.release import Release
from dpgrain.statistics.request import Request
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.engines.kernel import WEIGHT_BITS, Grid, Pools, Routes
from dpgrain.tables.engines.protocol import Engine
from dpgrain.tables.groups import Groups
from dpgrain.tables.split import Split
from dpgrain.tables.user_sums import UserContributions, candidate_groups

# Standard deviations below which counts may be of nothing.
_STANDS_OUT = 3.0
# Corners of a number, at most, but for the many nodes of a tree of bins.
_FEW_CORNERS = 3
# Ratio, roughly, of a clipping bound to the average block of several records.
_LONGER = 2.0

_NO_NUMBER = (
    "no number stood out from the noise: give bounds= or more ε, or ask the curator how numbers are "
    "written (--check)"
)


@dataclass(frozen=True, eq=False)
class Measured:
    """Noisy sums of one release; everything in it is public.

    Args:
        groups: (V,) the groups, in the order of the public domain; selected ones sorted.
        masses: (V, C) noisy sums of clipped contributions.
        sd: (V,) standard deviation of the noise of each coordinate.
        clip: (V,) the clipping bound of the group's cell.
        split: how numbers were split, if they were.
        guarantee: what is promised.
        asked: what was asked for.
        chosen: the bounds that were chosen, by group; None where the bound was stated.
        everyone: the public number of people, where those without records count 0; else None.
        seen: False where a range was to be found and no number stood out from the noise, so that sums
            over the widest range say nothing.
    """

    groups: Groups
    masses: FloatArray
    sd: FloatArray
    clip: FloatArray
    split: Split | None
    guarantee: Guarantee
    asked: Asked
    chosen: ChosenBounds | None = None
    everyone: int | None = None
    seen: bool = True

    def cautioned(self, coordinates: int) -> Asked:
        """The request, with a caution where next to no numbers were seen.

        Args:
            coordinates: the number of first coordinates whose sum is the count of each group.

        Noisy numbers alone decide, which are released: a column of something else than numbers, or with
        another decimal mark, shows in that its count does not stand out from the noise.
        """
        count = float(self.masses[:, :coordinates].sum())
        noise = math.sqrt(coordinates * float((self.sd**2).sum()))
        if not len(self.groups) or count > _STANDS_OUT * noise:
            return self.asked
        said = (
            f"next to no numbers were seen, {max(count, 0):,.0f} in all with a standard error of "
            f"{noise:,.0f}: ask the curator whether the column holds numbers and how decimals are "
            "written (--check)"
        )
        return replace(self.asked, care=(said, *self.asked.care))


@dataclass(frozen=True, repr=False)
class SumsQuery(Query[Made]):
    """A query for a statistic made of noisy sums.

    Args:
        request: what is asked for.
        made: makes the release of the noisy sums: post-processing.
        random_state: a seed, for tests and research.
        progress: show progress.
    """

    request: Request
    made: Callable[[Measured], Made]
    random_state: RandomState = None
    progress: bool | None = None

    @property
    def promise(self) -> Promise:
        """The promise of the request."""
        return self.request.promise

    def _with(self, promise: Promise) -> Self:
        return replace(self, request=replace(self.request, promise=promise))

    @property
    def plan(self) -> Planned:
        """All parts, calibrated from public numbers alone."""
        request = self.request
        return Planned(
            request.guarantee(request.plan.event, request.facts_of_plan),
            request.table.n_users,
            request.contribution.cells or 1,
            request.expected,
        )

    def run(self, charge: Charge) -> Made:
        """Add up, add noise, and make the release of it."""
        measured = noisy_sums(self.request, charge, self.progress)
        release = self.made(measured)
        if measured.seen or not isinstance(release, Release):
            return release
        return release.unknown()


def noisy_sums(request: Request, charge: Charge, progress: bool | None) -> Measured:
    """Run a request: select, find bounds, add up, add noise.

    Args:
        request: the request.
        charge: the right to read and to draw.
        progress: show progress.

    Raises:
        DataError: if the source cannot be read; nothing is released then.
    """
    plan = request.plan
    asked, care, result = request.asked(), list[str](), None
    table = request.selecting[0] if request.domain.selected else request.table
    if isinstance(request.bounds, AutoRange):
        table = request.blocks.for_keys((), table)[0]
    with charge.open(table) as engine, Progress(5, progress) as shown:
        wider = None
        if request.public is not None and request.best is None:
            groups, cells_of = request.public
        elif request.public is not None:
            shown.stage("Choosing items")
            groups = best_groups(engine, request, charge)
            cells_of = request.blocks.cells(groups, public=True)
        else:
            shown.stage("Selecting items")
            selected, wider = _selected(engine, request, charge)
            groups = request.domain.groups(selected)
            cells_of = request.blocks.cells(groups, public=False)
        bounds = request.bounds
        if isinstance(bounds, AutoRange):
            shown.stage("Finding the range")
            result = _range(engine, request, bounds, charge)
            bounds = result.bounds
            if not result.seen:
                care.append(_NO_NUMBER)
        split = None
        if request.measure is not None:
            split = request.measure.split(*(bounds or (0.0, 0.0)))
        data = UserContributions(
            engine, request.blocks, groups, cells_of, request.value, split, wider
        )
        clip, chosen = np.array([plan.clip], dtype=np.float64), None
        if isinstance(request.rule, AutoClip) and plan.bounds is not None:
            shown.stage("Choosing clipping bounds")
            chosen = _choose(data, plan, request, charge)
            clip = chosen.bounds
            if not chosen.seen.any():
                care.append(
                    "no size of a unit's data stood out from the noise, and the clipping bound is a "
                    "guess: give clip= or more ε"
                )
        shown.stage("Adding up")
        grid = Grid(clip, grid_bits(plan.sums.noise_multiplier), request.norm)
        sums = request.netted(data.sums(grid, indicator=request.indicator))
        shown.stage("Adding noise")
        known = data.dictionary
        row = known.cell_rows(clip.size)
        # Modulo 2^64, as the sums are: post-processing of adding without bound.
        sums = charge.noisy(plan.sums, sums, np.repeat(grid.radius[row], sums.shape[1]))
    learned = _left_out(chosen, request, known.cell_sizes)
    if result is not None and result.seen and not result.everything:
        learned.update(found=result.bounds, beyond=result.beyond)
    # In the order of the public domain, or of the keys that were selected.
    order = np.argsort(known.given)
    row, sums = row[order], sums[order]
    return Measured(
        known.groups.take(order),
        sums * grid.step[row][:, None],
        noise_sd(plan.sums) * clip[row],
        clip[row],
        split,
        charge.guarantee,
        replace(asked, care=tuple(care), **learned),
        None if chosen is None else chosen.take(row),
        request.everyone,
        result is None or result.seen,
    )


def _left_out(chosen: ChosenBounds | None, request: Request, sizes: IntArray) -> dict[str, Any]:
    """Return what is known of what clipping takes, as facts of what was asked.

    Args:
        chosen: the bounds that were chosen, if they were.
        request: the request.
        sizes: (K,) the number of coordinates in each cell.
    """
    if chosen is None:
        return {}
    # What is taken above 0 and below it may cancel, so that sums of both signs show no share.
    lost = None if request.net else chosen.lost
    # The norm of a block is about what it adds, if that is one number or its few corners.
    one = request.corners <= _FEW_CORNERS and bool((sizes == request.corners).all())
    return {"above": chosen.above, "lost": lost, "lost_of": "total" if one else "norms"}


def _selected(
    engine: Engine, request: Request, charge: Charge
) -> tuple[Groups, UserContributions | None]:
    """The selected groups, sorted by key; and what was read, where it serves for the sums too."""
    event = request.plan.select
    assert isinstance(event, Selection)  # noqa: S101 - a plan selects wherever keys are to be selected
    _, blocks = request.selecting
    held = held_groups(engine, blocks, request.domain.selected, request.value)
    cells = blocks.cells(held, public=False)
    data = UserContributions(engine, blocks, held, cells, request.value, request.presence)
    groups = select(data, event, charge, request.plan.again).sorted()
    same_rows = request.measure is None and not request.domain.public
    return groups, data if same_rows else None


def held_groups(
    engine: Engine, blocks: UnitBlocks, keys: Sequence[str], value: str | None = None
) -> Groups:
    """The groups with possible holders; private."""
    if blocks.elements is None or blocks.key is None:
        return candidate_groups(engine, keys, value)
    # A partition is asked about items that occur, and no others.
    return engine.distinct(keys, value)


def best_groups(engine: Engine, request: Request, charge: Charge) -> Groups:
    """The public groups with the most users, by one-shot Gumbel noise; the best first."""
    event = request.plan.select
    assert isinstance(event, Best)  # noqa: S101 - a plan chooses wherever a number is asked for
    groups, cells = request.public or (Groups.of((), ()), None)
    assert cells is not None  # noqa: S101 - asked for with a public domain only
    groups = groups.filter(cells.codes >= 0)
    # Counted by user, whatever the unit: one person's data move each count by at most 1.
    blocks = UnitBlocks("record" if request.table.user is None else "user")
    data = UserContributions(engine, blocks, groups, blocks.cells(groups, public=True))
    counts = data.holders()
    return data.dictionary.groups.take(charge.order(event, counts))


def select(
    data: UserContributions,
    event: Selection,
    charge: Charge,
    again: AdaptiveSelection | None = None,
) -> Groups:
    """The groups whose noisy weighted indicator count reaches the threshold, in one round or two."""
    return data.dictionary.groups.filter(named(data, event, charge, again)[1])


def named(
    data: UserContributions,
    event: Selection,
    charge: Charge,
    again: AdaptiveSelection | None = None,
) -> tuple[FloatArray, BoolArray]:
    """Name groups by weighted indicator counts.

    Args:
        data: the contributions of users to all groups that anybody holds.
        event: the only round, or the first one.
        charge: the right to draw.
        again: the second round, if there is one.

    Returns:
        (V,) noisy counts of the only round or of the first one, which are public where groups are
        named, and whether each is.
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
        # Items beyond the first of everybody were not counted, and do not go on. One step up, as
        # rounding the noise may carry a count half a step over.
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
    """A private range of numbers.

    Args:
        bounds: the range (low, high).
        beyond: the share of what is counted that may lie outside, at the most with 95% confidence; None
            where nothing was seen, and the range is the widest.
        everything: whether it is all magnitudes of interest by choice, so that nothing is cut off.
    """

    bounds: tuple[float, float]
    beyond: float | None
    everything: bool = False

    @property
    def seen(self) -> bool:
        """True where any number was seen."""
        return self.beyond is not None


def _range(engine: Engine, request: Request, rule: AutoRange, charge: Charge) -> _Range:
    """Find the range of the numbers from noisy counts of their magnitudes."""
    event = request.plan.ranges
    assert event is not None  # noqa: S101 - a plan finds the range wherever it is not given
    _, blocks = request.ranging
    everything = Groups.of((), ())
    data = UserContributions(
        engine,
        blocks,
        everything,
        blocks.cells(everything, public=True),
        request.value,
        rule.split(),
    )
    # A record's coordinates are cut off one by one, so that its bound is the norm of what it adds;
    # other blocks are scaled to norm 1.
    bound = rule.record_norm[request.norm] if blocks.block == "record" else 1.0
    grid = Grid(np.array([bound]), grid_bits(event.noise_multiplier), request.norm)
    sums = data.sums(grid)
    drawn = charge.noisy(event, sums, float(grid.radius[0]))
    noisy = np.asarray(drawn * float(grid.step[0]), np.float64).ravel()
    sd, far = bound * noise_sd(event), "cut" if request.measure is None else request.measure.far
    seen = rule.stands_out(noisy, sd, request.noise)
    one_row = request.blocks.one_row
    if far == "weighed" or (far == "weighed of people" and one_row):
        single = one_row or blocks.block == "record"
        noise = noise_sd(request.plan.sums) * (1.0 if single else _LONGER)
        bounds = rule.weighed(noisy, sd, noise, request.noise)
    else:
        bounds = rule.choose(noisy, sd, request.noise)
    whole = isinstance(rule, AutoTree) and rule.near(*bounds) is not None
    if request.everyone is not None:
        # The numbers of people without records lie within the range, too.
        bounds = min(bounds[0], 0.0), max(bounds[1], 0.0)
    return _Range(bounds, rule.beyond(noisy, sd, bounds) if seen else None, seen and whole)


def _choose(data: UserContributions, plan: Plan, request: Request, charge: Charge) -> ChosenBounds:
    """Choose the clipping bound of each cell from noisy counts of block norms.

    Where there are several cells, each gets a rough bound first, and cells with similar ones share a
    second, finer look at how far off these are.
    """
    event, rule = plan.bounds, request.rule
    assert isinstance(rule, AutoClip)  # noqa: S101 - called only then
    assert event is not None  # noqa: S101 - a plan has it then
    edges = rule.edges(cells=1 if plan.one_bound else data.dictionary.cell_sizes.size)
    counts = data.norm_counts(edges[1:], request.norm, indicator=request.indicator)
    noisy = charge.noisy(event, counts).astype(np.float64)
    if request.ratio and plan.one_bound and len(data.dictionary.groups):
        return _choose_for_ratios(noisy, edges, data, request, charge).at_most(rule.high)
    aligned = 1.0 if request.measure is None else request.measure.bias
    if plan.align is not None:
        aligned *= _alignment(data, plan.align, request, max(float(noisy.sum()), 1.0), charge)
    coordinates = request.noisy_coordinates(data.dictionary.cell_sizes)
    noise_multiplier, sd = noise_sd(plan.sums) / aligned, noise_sd(event)
    own = (noisy, edges, sd, coordinates, noise_multiplier, request.noise)
    # Where nothing was selected there is no cell.
    if plan.pool is not None and len(noisy):
        rough = rough_bounds(*own)
        rows = _pooled_rows(data, plan.pool, rough, request, charge)
        # So few cells may have been selected that they learn nothing from a common row.
        if can_pool(len(noisy)):
            chosen = pooled_bounds(
                rough, rows, noise_sd(plan.pool), coordinates, noise_multiplier, rule.low
            )
            return chosen.at_most(rule.high)
    # The last edge may lie beyond the largest norm of interest.
    return choose_bounds(*own).at_most(rule.high)


def _pooled_rows(
    data: UserContributions,
    event: Additive,
    rough: RoughBounds,
    request: Request,
    charge: Charge,
) -> FloatArray:
    """Return the noisy counts of blocks by pool and norm ÷ rough bound, (pools, bins), in blocks."""
    most = event.contribution.per_coordinate
    assert most is not None  # noqa: S101 - the contribution of a pooled look has it
    pools = Pools(POOLED_EDGES, rough.pool, rough.bounds, rough.weight, rough.pools, most)
    counts = data.pooled_counts(pools, request.norm, indicator=request.indicator)
    noisy = charge.noisy(event, counts, 2.0**WEIGHT_BITS)
    return np.asarray(noisy / 2**WEIGHT_BITS, dtype=np.float64)


def _choose_for_ratios(
    noisy: FloatArray, edges: FloatArray, data: UserContributions, request: Request, charge: Charge
) -> ChosenBounds:
    """Choose one bound for groups whose counts divide their sums."""
    plan, measure = request.plan, request.measure
    assert plan.bounds is not None  # noqa: S101 - a plan has it then
    assert measure is not None  # noqa: S101 - ratios have one
    counts = np.ones(len(data.dictionary.groups))
    if plan.align is not None:
        rows = _at_one_size(data, plan.align, request, charge)[:, : measure.counting]
        # A group that does not stand out has about the noise's own size, or less.
        counts = np.maximum(rows.sum(axis=1), math.sqrt(rows.shape[1]) * noise_sd(plan.align))
    return bound_of_ratios(
        noisy,
        edges,
        noise_sd(plan.bounds),
        counts / counts.sum(),
        noise_sd(plan.sums) * math.sqrt(measure.noisy),
        measure.bias,
        request.noise,
    )


def _alignment(
    data: UserContributions,
    event: Additive,
    request: Request,
    blocks: float,
    charge: Charge,
) -> float:
    """The length of the sum of blocks of one size, as a share of that of equal blocks.

    Args:
        data: the blocks.
        event: the noise of their sum.
        request: the request.
        blocks: the noisy number of blocks.
        charge: the right to draw.

    What clipping takes from all blocks has about this share of the length that it would have if it
    fell on one coordinate; it is estimated from above by one standard deviation.
    """
    noisy = _at_one_size(data, event, request, charge).ravel()
    variance = noise_sd(event) ** 2
    length = float(noisy @ noisy) - noisy.size * variance
    spread = math.sqrt(2 * noisy.size * variance**2 + 4 * variance * max(length, 0.0))
    return min(max(math.sqrt(max(length + spread, 0.0)) / blocks, 1 / math.sqrt(blocks)), 1.0)


def _at_one_size(
    data: UserContributions, event: Additive, request: Request, charge: Charge
) -> FloatArray:
    """Return the noisy sum of blocks that are shortened to the smallest size of interest, (V, C).

    It is in units of this size, so that blocks count about 1 each.
    """
    assert isinstance(request.rule, AutoClip)  # noqa: S101 - asked for only then
    grid = Grid(np.array([request.rule.low]), grid_bits(event.noise_multiplier), request.norm)
    sums = request.netted(data.sums(grid, indicator=request.indicator))
    noisy = charge.noisy(event, sums, float(grid.radius[0]))
    return np.asarray(noisy / float(grid.radius[0]), dtype=np.float64)
