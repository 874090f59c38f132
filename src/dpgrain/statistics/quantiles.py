"""``dg.quantile`` and ``dg.quantiles`` of a column of numbers, overall or by group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError, raise_without_context
from dpgrain.noise import RandomState
from dpgrain.publishing import Promise, Query, publishes
from dpgrain.statistics import values
from dpgrain.statistics.bounds import AutoClip
from dpgrain.statistics.histogram import checked_bounds
from dpgrain.statistics.intervals import half_width
from dpgrain.statistics.ranges import AutoRange, AutoTree
from dpgrain.statistics.release import Estimates
from dpgrain.statistics.request import By, Request
from dpgrain.statistics.run import Measured, SumsQuery
from dpgrain.statistics.statistic import QUANTILES
from dpgrain.statistics.trees import MOSTLY_EMPTY, MOSTLY_FULL, believed_leaves, consistent_leaves
from dpgrain.statistics.values import Tree
from dpgrain.tables.engines.per_user import per_user_source
from dpgrain.tables.groups import Groups
from dpgrain.tables.table import UserTable
from dpgrain.units import Law, Relation, Unit

# Groups that are turned into ranks at once.
_CHUNK = 256
# Ratio of bounds of one sign from which on they are far apart.
_WIDE = 1000.0
# Standard deviations of half of a 95% interval.
_HALF_WIDTH = 1.96
# A place so little behind an edge is in the leaf that begins there.
_INSIDE = 1e-9


@publishes
def quantiles(
    table: UserTable,
    value: str,
    q: Sequence[float] = (0.25, 0.5, 0.75),
    *,
    by: By = None,
    bounds: tuple[float, float] | None = None,
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

    Several cost what one costs.

    Args:
        q: the ranks, each in [0, 1], such as 0.25,0.5,0.75; 0.5 is the median. Without them these
            three.
        bins: the number of bins that the range is divided into; 4096, or 256 by group or without
            bounds, without it. Quantiles are no finer; 16 is possible, too.
        spacing: the width of the bins: ``even``, or ``geometric``, the wider the farther from 0. By
            default the column's type and the bounds decide: of a column of whole numbers each has a
            bin, or many have one far from 0, and quantiles are whole; else geometric where the range is
            found privately or its ends are a factor of 1000 apart.
        bounds: the public range (low, high), beyond which numbers are cut off; found privately
            without it. That takes 30% of the budget, and no number is cut off that is seen.
        noise: the law of the noise; ``laplace`` needs no δ.

    Returns:
        An :class:`~dpgrain.Estimates` with a row for each group and rank; the key ``quantile`` is the
        rank. Intervals are for the noise alone. Without bounds 30% of the budget finds where numbers
        lie; an interval that reaches beyond what is seen has no end there, and no standard error.

    Raises:
        ParameterError, SchemaError, DataError: as :func:`dpgrain.sum`; also if a rank is not in [0, 1].

    Formal guarantee: (ε, δ)-DP for one unit, for every table: each record counts 1 in a few nodes of a
    tree of bins with 16 children each; all ranks are post-processing. Source: docs/theory, "Numbers
    as masses".

    >>> import pyarrow as pa
    >>> from dpgrain import User, read
    >>> table = read(pa.table({"who": [1, 1, 2], "score": [70, 90, 50]}), user="who")
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
    found = isinstance(limits, AutoRange)
    how = spacing or _spacing(table, value, limits)
    height = {16: 1, 256: 2, 4096: 3}[bins or (256 if found or by is not None else 4096)]
    if isinstance(limits, AutoRange):
        limits = AutoTree.like(limits, how, height)
    request = Request.of(
        QUANTILES,
        table,
        by,
        promise=Promise.of(unit, epsilon, delta, relation, share),
        clip=clip,
        noise=noise,
        domain=domain,
        value=value,
        measure=values.ranks(height, how),
        bounds=limits,
        max_items=max_items,
    )
    if isinstance(request.bounds, AutoTree):
        # Both looks count the same leaves, whose smallest magnitude depends on the table.
        request = replace(request, measure=values.ranks(height, how, request.bounds.near))
    made = partial(_ranks, ranks=ranks, z=half_width(request.noise), ends=_ends(request))
    return SumsQuery(request, made, random_state, progress)


def _ends(request: Request) -> tuple[float, float] | None:
    """Return the ends of numbers beyond a range that was found; None where it was stated."""
    if not isinstance(request.bounds, AutoRange):
        return None
    people = per_user_source(request.table)
    counts = people is not None and request.value is not None and people.is_count(request.value)
    return 0.0 if counts else -math.inf, math.inf


def _ranks(
    measured: Measured, ranks: FloatArray, z: float, ends: tuple[float, float] | None
) -> Estimates:
    """Return quantiles of noisy counts of a tree's nodes, with intervals of z standard errors."""
    tree, everyone = measured.split, measured.everyone
    assert isinstance(tree, Tree)  # noqa: S101 - what values.ranks makes
    answers = [
        read_ranks(
            measured.masses[at : at + _CHUNK],
            z * measured.sd[at : at + _CHUNK],
            ranks,
            tree,
            everyone,
            ends,
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
    return Estimates(
        Groups.of((*known.names, "quantile"), (*known.columns, rank)),
        estimate.ravel(),
        # An interval without an end says of the noise only that the tail is not seen.
        np.where(np.isfinite(high - low), (high - low) / (2 * z), np.nan).ravel(),
        low.ravel(),
        high.ravel(),
        count[rows],
        measured.guarantee,
        measured.cautioned(tree.branching),
        count_error[rows],
    )


@publishes
def quantile(table: UserTable, value: str, q: float = 0.5, **options: Any) -> Query[Estimates]:
    """Publish one quantile of a column of numbers, by default the median.

    Args:
        value: the column of numbers.
        q: the rank, in [0, 1].
        options: as for :func:`dpgrain.quantiles`.

    Formal guarantee, source, and what is raised: as :func:`dpgrain.quantiles`.

    >>> import pyarrow as pa
    >>> from dpgrain import User, read
    >>> table = read(pa.table({"who": [1, 1, 2], "score": [70, 90, 50]}), user="who")
    >>> median = quantile(table, "score", bounds=(0, 100), unit=User(), epsilon=1, delta=1e-6)
    >>> 0 <= median.value <= 100
    True
    """
    return quantiles.query(table, value, [q], **options)


def _spacing(
    table: UserTable, value: str, bounds: tuple[float, float] | AutoRange
) -> values.Spacing:
    """Return the spacing of bins that suits what is public of a column: its type, and the bounds."""
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
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return quantiles and their 95% intervals from noisy counts of a tree's nodes: post-processing.

    Args:
        masses: (V, nodes) the noisy counts, level by level.
        radius: (V,) the half-width of the 95% interval of a count of each group.
        ranks: (R,) the ranks, in [0, 1].
        tree: the tree.
        everyone: the public number of people, where those who are not in the tree count 0.
        ends: the ends of numbers beyond a range that was found: an interval that reaches an end of the
            tree goes on to there, as numbers beyond count as that end.

    Returns:
        (V, R) estimates, lower and upper ends.
    """
    nothing = None if everyone is None else int(tree.leaf(np.zeros(1))[0])
    below = _cumulated(_with_nothing(consistent_leaves(masses, tree), nothing, everyone or 0))
    if everyone is not None:
        below = np.clip(below, 0.0, everyone)
    if ends is None:
        # Ranks are known to rise from 0 to the count.
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
    # Nothing is known within a bin, so intervals are widened to the ends of bins.
    low, high = tree.ends(np.minimum(first, middle), np.maximum(last, middle))
    if everyone is None:
        # Without a count above the noise, every number is possible.
        count, unknown = masses[:, : tree.branching].sum(axis=1), radius * math.sqrt(tree.branching)
        low[count <= unknown], high[count <= unknown] = tree.low, tree.high
    if ends is not None:
        # Numbers beyond a range that was found count as its ends.
        low = np.where(low <= tree.low, np.minimum(low, ends[0]), low)
        high = np.where(high >= tree.last, ends[1], high)
    estimate = tree.at(middle)
    low, high = np.minimum(low, estimate), np.maximum(high, estimate)
    if ends is not None:
        # Where no number of a group is seen, nothing says where its quantiles lie.
        estimate[steps[:, -1] <= 0] = np.nan
    return estimate, low, high


def _passed(
    below: FloatArray, ranks: FloatArray, spread: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return places among the edges before and after which quantiles lie with 2.5% at most, (V, R).

    Args:
        below: (V, bins + 1) the noisy numbers below each edge, which need not rise.
        ranks: (R,) the ranks.
        spread: (V, R) by how much a number less its share of the count is off, in 2.5% either way.

    Without noise that difference rises from edge to edge, and is 0 where the quantile lies. So one edge
    alone must be off for a quantile to lie beyond, whereas sums that are made to rise first are
    larger, the more empty bins follow.
    """
    first, last = np.empty_like(spread), np.empty_like(spread)
    edges = below.shape[1]
    for j, rank in enumerate(ranks):
        over, off = below - rank * below[:, -1:], spread[:, j : j + 1]
        first[:, j] = np.maximum((over >= -off).argmax(axis=1) - 1, 0)
        last[:, j] = np.minimum(edges - (over[:, ::-1] <= off).argmax(axis=1), edges - 1)
    return first, last


def _with_nothing(leaves: FloatArray, nothing: int | None, everyone: int) -> FloatArray:
    """Return counts of leaves with those who are missing from a stated number in one of them.

    Args:
        leaves: (V, bins) the counts.
        nothing: the leaf of the number of those who have no records; None where they do not count.
        everyone: the stated number.
    """
    if nothing is None:
        return leaves
    leaves = leaves.copy()
    leaves[:, nothing] += everyone - leaves.sum(axis=1)
    return leaves


def _inverse(steps: FloatArray, wanted: FloatArray) -> FloatArray:
    """Find at which place among the edges a rising, linear interpolant takes the wanted values.

    Of an inner plateau it is the middle.
    """
    left = np.searchsorted(steps, wanted, side="left")
    right = np.searchsorted(steps, wanted, side="right")
    last = steps.size - 1
    inside = np.clip(left, 1, last)
    gap = steps[inside] - steps[inside - 1]
    part = np.where(gap > 0, (wanted - steps[inside - 1]) / np.where(gap > 0, gap, 1.0), 0.5)
    result = inside - 1 + np.clip(part, 0.0, 1.0)
    # The least rank gets the end of its plateau where numbers begin, the largest that where they end.
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
    """Return the largest sd of a rank less its share of the count, (R,), for noise of sd 1."""
    tree = Tree(0.0, 1.0, height, branching)
    noise = np.random.default_rng(0).normal(size=(400, tree.corners))
    below = _cumulated(_with_nothing(consistent_leaves(noise, tree), nothing, 0))
    return np.array([(below - rank * below[:, -1:]).std(axis=0).max() for rank in ranks])


def _checked_ranks(q: Any) -> FloatArray:
    try:
        ranks = [float(one) for one in q]
    except (TypeError, ValueError, OverflowError):
        told = f"q must be a list of ranks such as [0.25, 0.5], not {_validate.describe(q)}."
        raise_without_context(ParameterError(told, name="q"))
    if not ranks or not all(0 <= one <= 1 for one in ranks):
        raise ParameterError(
            f"q must contain ranks in [0, 1], not {_validate.describe(q)}.", name="q"
        )
    if len(set(ranks)) < len(ranks):
        raise ParameterError(
            f"q must contain distinct ranks, not {_validate.describe(q)}.", name="q"
        )
    return np.array(ranks)
