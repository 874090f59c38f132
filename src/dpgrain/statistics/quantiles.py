"""Quantiles of a numeric column (``dg.quantile``, ``dg.quantiles``), overall or by group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError, raise_without_context
from dpgrain.noise import RandomState
from dpgrain.publishing import Promise, Query, publishes
from dpgrain.statistics.bounds import AutoClip
from dpgrain.statistics.group_estimates import Estimates
from dpgrain.statistics.histogram import checked_bounds, estimates_clipping
from dpgrain.statistics.intervals import half_width
from dpgrain.statistics.ranges import AutoRange, AutoTree
from dpgrain.statistics.run import NoisySums
from dpgrain.statistics.statistic import QUANTILES
from dpgrain.statistics.sums_query import By, SumsQuery
from dpgrain.statistics.trees import MOSTLY_EMPTY, MOSTLY_FULL, believed_leaves, consistent_leaves
from dpgrain.statistics.values import Ranks, Spacing, Tree
from dpgrain.tables.engines.per_user import per_user_source
from dpgrain.tables.groups import Groups
from dpgrain.tables.table import UserTable
from dpgrain.units import Law, Relation, Unit

# Groups per chunk.
_CHUNK = 256
# Ratio of bounds of one sign from which bins are geometric.
_WIDE = 1000.0
# Half-width of a 95% interval, in standard deviations.
_HALF_WIDTH = 1.96
# Distance after an edge that is inside of the next leaf.
_INSIDE = 1e-9


@publishes
def quantiles(
    table: UserTable,
    value: str,
    q: Sequence[float] = (0.25, 0.5, 0.75),
    *,
    by: By = None,
    bounds: tuple[float, float] | None = None,
    estimate_clipping: bool = False,
    bins: Literal[16, 256, 4096] | None = None,
    spacing: Literal["even", "geometric"] | None = None,
    unit: Unit,
    epsilon: float | None = None,
    delta: float = 0.0,
    share: float | None = None,
    relation: Relation = "zero_out",
    clip: float | Literal["auto"] | AutoClip = "auto",
    domain: Any = None,
    noise: Law = "gaussian",
    max_items: int = 1000,
    random_state: RandomState = None,
    progress: bool | None = None,
) -> Query[Estimates]:
    """Publish quantiles of a column, overall or by group.

    Several quantiles cost as much as one.

    Args:
        table: table from :func:`dpgrain.read`.
        value: column of numbers. Rows without a finite value are dropped.
        q: the ranks, each in [0, 1], such as 0.25,0.5,0.75; 0.5 is the median. By default, these
            three.
        by: column or columns to group by; if omitted, one answer for all rows.
        bounds: the public range (low, high), to which numbers are clamped; by default chosen
            privately. This costs 30% of the budget, and clamps no visible numbers.
        estimate_clipping: estimate the share of values outside of ``bounds`` and, for counts and
            sums, of units clipped by an explicit ``clip``, with 5% of the budget each; by default,
            neither is estimated.
        bins: number of bins of the range; by default 4096, or 256 by group or without bounds. It
            limits the resolution.
        spacing: the width of the bins: ``even``, or ``geometric``, with wider bins away from 0. The
            default depends on the type of the column and the bounds: integer columns have one bin
            per integer, or wider bins away from 0, and integer quantiles; otherwise ``geometric``
            for a privately chosen range or ends with a ratio of 1000.
        unit: privacy unit: ``Record()``, ``Element(by)`` or ``User()``.
        epsilon: privacy parameter ε, such as 1; smaller protects more. Omit it if you pass
            ``share``.
        delta: privacy parameter δ, in (0, 1), such as 1e-6. Use 0 only with Laplace noise.
        share: share of the open budget, such as 0.5, instead of ε and δ; see
            :func:`dpgrain.budget`.
        relation: neighbouring relation: a unit is removed, ``zero_out``, or replaced by another,
            ``replace``.
        clip: clipping bound of a unit's data, a number or ``auto``. It bounds the l2 norm, or the
            l1 norm under Laplace noise; by default, one for each cell is chosen privately with a
            share of the budget.
        domain: public list of groups to publish. By default, groups are selected privately. For
            several columns, pass a mapping from columns to values (other columns are selected
            privately) or a list of tuples.
        noise: the noise distribution; ``laplace`` needs no δ.
        max_items: maximum number of groups or items of one unit used in selection.
        random_state: seed, for tests and research. The release is then *not private*.
        progress: show progress; by default on a terminal, after two seconds.

    Returns:
        An :class:`~dpgrain.Estimates` with a row for each group and rank; the key ``quantile`` is
        the rank. Intervals cover the noise only. If an interval is the whole range, there is no
        estimate. Without bounds, 30% of the budget locates the numbers; an interval that extends
        beyond the visible ones is open there (an empty cell in files) and has no standard error.

    Raises:
        ParameterError, SchemaError, DataError: as :func:`dpgrain.sum`; also if a rank is not in [0,
            1].

    Formal guarantee: (ε, δ)-DP for one unit, for every table: each record counts 1 in a few nodes
    of a tree of bins with 16 children each; all ranks are post-processing. Source: docs/theory,
    "Numbers as masses".

    >>> import pyarrow as pa
    >>> from dpgrain import User, read
    >>> table = read(pa.table({"who": range(900), "score": [70, 90, 50] * 300}), user="who")
    >>> release = quantiles(table, "score", [0.1, 0.9], bounds=(0, 100), unit=User(), epsilon=1,
    ...                     delta=1e-6)
    >>> bool(release.estimate[0] <= release.estimate[1])
    True
    """
    ranks = _checked_ranks(q)
    if bins is not None and _validate.bounded_integer(bins=bins) not in (16, 256, 4096):
        raise ParameterError(
            f"bins must be 16, 256 or 4096, not {_validate.describe(bins)}.", name="bins"
        )
    if spacing is not None:
        _validate.one_of(("even", "geometric"), spacing=spacing)
    limits = checked_bounds(bounds)
    automatic = isinstance(limits, AutoRange)
    how = spacing or _spacing(table, value, limits)
    height = {16: 1, 256: 2, 4096: 3}[bins or (256 if automatic or by is not None else 4096)]
    if isinstance(limits, AutoRange):
        limits = AutoTree.like(limits, how, height)
    query = QuantilesQuery.of(
        QUANTILES, table, by, promise=Promise.of(unit, epsilon, delta, relation, share),
        clip=clip, noise=noise, domain=domain, value=value, measure=Ranks.of(height, how),
        bounds=limits, max_items=max_items, ranks=ranks, random_state=random_state,
        progress=progress,
        estimate_clipping=estimates_clipping(estimate_clipping, limits),
    )  # fmt: skip
    if isinstance(query.bounds, AutoTree):
        # Both queries count the same leaves, with a smallest magnitude that depends on the table.
        return replace(query, measure=Ranks.of(height, how, query.bounds))
    return query


@dataclass(frozen=True, eq=False, repr=False)
class QuantilesQuery(SumsQuery[Estimates]):
    """Query for quantiles of some ranks."""

    ranks: tuple[float, ...] = ()

    def release(self, measured: NoisySums) -> Estimates:
        """Return the quantiles, with 95% intervals."""
        tree, everyone, z = measured.split, measured.everyone, half_width(self.noise)
        assert isinstance(tree, Tree)  # noqa: S101 - the split of ranks
        ranks, ends = np.array(self.ranks), self._ends
        seen = None if ends is None else _visible_ends(measured.masses, measured.sd, tree)
        answers = [
            read_ranks(
                measured.masses[at : at + _CHUNK],
                z * measured.sd[at : at + _CHUNK],
                ranks,
                tree,
                everyone,
                ends,
                seen,
            )
            for at in range(0, len(measured.groups), _CHUNK)
        ]
        estimate, low, high = (
            (np.concatenate(part) for part in zip(*answers, strict=True))
            if answers
            else (np.zeros((0, ranks.size)),) * 3
        )
        rows = np.repeat(np.arange(len(measured.groups)), ranks.size)
        count = measured.masses[:, : tree.branching].sum(axis=1)
        count_error = math.sqrt(tree.branching) * measured.sd
        if everyone is not None:
            count, count_error = np.full(count.size, float(everyone)), np.zeros(count.size)
        known = measured.groups.take(rows)
        rank = pa.array(np.tile(ranks, len(measured.groups)))
        return measured.as_estimates(
            estimate.ravel(),
            # An open interval has no standard error.
            np.where(np.isfinite(high - low + estimate), (high - low) / (2 * z), np.nan).ravel(),
            low.ravel(),
            high.ravel(),
            count[rows],
            count_error[rows],
            groups=Groups.of((*known.names, "quantile"), (*known.columns, rank)),
            coordinates=tree.branching,
        )

    @property
    def _ends(self) -> tuple[float, float] | None:
        """Limits of numbers outside of a privately chosen range; None for a stated range."""
        if not isinstance(self.bounds, AutoRange):
            return None
        people = per_user_source(self.table)
        counts = people is not None and self.value is not None and people.is_count(self.value)
        return 0.0 if counts else -math.inf, math.inf


@publishes
def quantile(table: UserTable, value: str, q: float = 0.5, **options: Any) -> Query[Estimates]:
    """Publish one quantile of a numeric column, by default the median.

    Args:
        table: table from :func:`dpgrain.read`.
        value: the numeric column.
        q: the rank, in [0, 1].
        options: as for :func:`dpgrain.quantiles`.

    Formal guarantee, source and exceptions: as :func:`dpgrain.quantiles`.

    >>> import pyarrow as pa
    >>> from dpgrain import User, read
    >>> table = read(pa.table({"who": range(900), "score": [70, 90, 50] * 300}), user="who")
    >>> median = quantile(table, "score", bounds=(0, 100), unit=User(), epsilon=1, delta=1e-6)
    >>> 0 <= median.value <= 100
    True
    """
    return quantiles.query(table, value, [q], **options)


def _spacing(table: UserTable, value: str, bounds: tuple[float, float] | AutoRange) -> Spacing:
    """Return the spacing of bins for public facts of a column: its type, and the bounds."""
    if isinstance(table, UserTable) and table.is_whole(value):
        return "whole"
    if isinstance(bounds, AutoRange):
        return "geometric"
    low, high = sorted(map(abs, bounds))
    one_sign = bounds[0] > 0 or bounds[1] < 0
    return "geometric" if one_sign and high >= _WIDE * low else "even"


def read_ranks(
    masses: FloatArray,
    radius: FloatArray,
    ranks: FloatArray,
    tree: Tree,
    everyone: int | None = None,
    ends: tuple[float, float] | None = None,
    seen: tuple[float, float] | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return quantiles, (V, R), and ends of their 95% intervals from noisy tree nodes.

    ``masses``, (V, nodes), is level by level. Without an estimate, the interval is the whole range.
    """
    nothing = None if everyone is None else int(tree.leaf(np.zeros(1))[0])
    below = _cumulated(_with_nothing(consistent_leaves(masses, tree), nothing, everyone or 0))
    if everyone is not None:
        below = np.clip(below, 0.0, everyone)
    if ends is None:
        # Ranks increase from 0 to the count.
        rising = np.maximum.accumulate(below, axis=1)
        falling = np.minimum.accumulate(below[:, ::-1], axis=1)[:, ::-1]
        steps = (rising + falling) / 2
        steps -= steps[:, :1]
    else:
        least = MOSTLY_FULL if tree.near is None else MOSTLY_EMPTY
        leaves = believed_leaves(masses, tree, radius / _HALF_WIDTH, least)
        steps = _cumulated(_with_nothing(leaves, nothing, everyone or 0))
    total = np.maximum(steps[:, -1:], np.finfo(np.float64).tiny)
    spread = _rank_spread(tree.height, tree.branching, tuple(ranks), nothing) * radius[:, None]
    middle = np.empty((len(masses), ranks.size))
    for row in range(len(masses)):
        middle[row] = _inverse(steps[row], ranks * total[row])
    first, last = _passed(below, ranks, spread)
    # Positions within a bin are unknown, so intervals extend to the ends of bins.
    low, high = tree.ends(np.minimum(first, middle), np.maximum(last, middle))
    if everyone is None:
        # With a count within the noise, every number is possible.
        count, unknown = masses[:, : tree.branching].sum(axis=1), radius * math.sqrt(tree.branching)
        low[count <= unknown], high[count <= unknown] = tree.low, tree.high
    if ends is not None:
        # Numbers outside of a private range were clamped to its ends.
        low = np.where(low <= tree.low, np.minimum(low, ends[0]), low)
        high = np.where(high >= tree.last, ends[1], high)
        if seen is not None:
            low, high = (
                np.where(low < seen[0], ends[0], low),
                np.where(high > seen[1], ends[1], high),
            )
    estimate = tree.at(middle)
    low, high = np.minimum(low, estimate), np.maximum(high, estimate)
    whole = ends or (tree.low, tree.last)
    estimate[(low <= whole[0]) & (high >= whole[1])] = np.nan
    if ends is not None:
        # Quantiles of groups without visible numbers are unknown.
        estimate[steps[:, -1] <= 0] = np.nan
    return estimate, low, high


def _visible_ends(masses: FloatArray, sd: FloatArray, tree: Tree) -> tuple[float, float] | None:
    """Return the ends of visible numbers in a tree of all magnitudes, or None."""
    if tree.near is None:
        return None
    error = np.array([math.sqrt(float((sd**2).sum()))])
    places = np.flatnonzero(believed_leaves(masses.sum(axis=0, keepdims=True), tree, error)[0])
    if not places.size:
        return math.inf, -math.inf
    low, high = tree.ends(np.array([float(places[0])]), np.array([places[-1] + 1.0]))
    return float(low[0]), float(high[0])


def _passed(
    below: FloatArray, ranks: FloatArray, spread: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return edge indices that quantiles pass with at most 2.5% probability, (V, R).

    A quantile outside requires an error at one edge, because counts minus the rank's share are
    monotone without noise. Monotone sums would have larger errors with more empty bins.
    """
    first, last = np.empty_like(spread), np.empty_like(spread)
    edges = below.shape[1]
    for j, rank in enumerate(ranks):
        over, off = below - rank * below[:, -1:], spread[:, j : j + 1]
        first[:, j] = np.maximum((over >= -off).argmax(axis=1) - 1, 0)
        last[:, j] = np.minimum(edges - (over[:, ::-1] <= off).argmax(axis=1), edges - 1)
    return first, last


def _with_nothing(leaves: FloatArray, nothing: int | None, everyone: int) -> FloatArray:
    """Return counts of leaves, with missing people added to the leaf of 0."""
    if nothing is None:
        return leaves
    leaves = leaves.copy()
    leaves[:, nothing] += everyone - leaves.sum(axis=1)
    return leaves


def _inverse(steps: FloatArray, wanted: FloatArray) -> FloatArray:
    """Return positions of values in an increasing interpolant; the middle of a plateau."""
    left = np.searchsorted(steps, wanted, side="left")
    right = np.searchsorted(steps, wanted, side="right")
    last = steps.size - 1
    inside = np.clip(left, 1, last)
    gap = steps[inside] - steps[inside - 1]
    part = np.where(gap > 0, (wanted - steps[inside - 1]) / np.where(gap > 0, gap, 1.0), 0.5)
    result = inside - 1 + np.clip(part, 0.0, 1.0)
    # The smallest rank is the end of its plateau, the largest the start of its plateau.
    first = np.where(wanted <= steps[0], right - 1 + _INSIDE, left)
    final = np.where(wanted >= steps[-1], left, right - 1 + _INSIDE * (wanted <= steps[0]))
    plateau = (np.clip(first, 0, last) + np.clip(final, 0, last)) / 2
    return np.asarray(np.where(right > left, plateau, result))


def _cumulated(leaves: FloatArray) -> FloatArray:
    """Return the sums of the first leaves, (V, bins + 1)."""
    return np.concatenate([np.zeros((len(leaves), 1)), np.cumsum(leaves, axis=1)], axis=1)


@lru_cache
def _rank_spread(
    height: int, branching: int, ranks: tuple[float, ...], nothing: int | None
) -> FloatArray:
    """Return the largest sd of a count minus its rank's share, (R,), for noise of sd 1."""
    tree = Tree(0.0, 1.0, height, branching)
    noise = np.random.default_rng(0).normal(size=(400, tree.corners))
    below = _cumulated(_with_nothing(consistent_leaves(noise, tree), nothing, 0))
    return np.array([(below - rank * below[:, -1:]).std(axis=0).max() for rank in ranks])


def _checked_ranks(q: Any) -> tuple[float, ...]:
    try:
        ranks = [float(one) for one in q]
    except (TypeError, ValueError, OverflowError):
        message = f"q must be a list of ranks such as [0.25, 0.5], not {_validate.describe(q)}."
        raise_without_context(ParameterError(message, name="q"))
    if not ranks or not all(0 <= one <= 1 for one in ranks):
        raise ParameterError(
            f"q must contain ranks in [0, 1], not {_validate.describe(q)}.", name="q"
        )
    if len(set(ranks)) < len(ranks):
        raise ParameterError(
            f"q must contain distinct ranks, not {_validate.describe(q)}.", name="q"
        )
    return tuple(ranks)
