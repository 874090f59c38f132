"""Shares of numbers at or above thresholds (``dg.distribution``), and counts in bins."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomState
from dpgrain.noise.additive_noise import noise_by_name
from dpgrain.publishing import Promise, Query, publishes
from dpgrain.statistics.bounds import AutoClip
from dpgrain.statistics.consistency import consistent
from dpgrain.statistics.group_estimates import Estimates, Histogram
from dpgrain.statistics.intervals import at_least, ratio_interval
from dpgrain.statistics.ranges import AutoRange
from dpgrain.statistics.run import NoisySums
from dpgrain.statistics.statistic import BINNED, DISTRIBUTION
from dpgrain.statistics.sums_query import By, SumsQuery
from dpgrain.statistics.values import Bins, Measure
from dpgrain.tables.groups import Groups
from dpgrain.tables.table import UserTable
from dpgrain.units import Law, Relation, Unit

# Maximum number of chosen and of stated edges.
_MOST_CHOSEN, _MOST_STATED = 40, 1000
# Smallest edge ÷ largest magnitude, for real numbers and for integers (at least 1).
_SMALLEST, _SMALLEST_WHOLE = 1e-4, 1e-12
_SMALLEST_OF_TWO_SIGNS = 1e-6
_STEPS = (1.0, 2.0, 5.0)
# Number of draws that determine the width of a band, and their level: 95% plus their error.
_DRAWN, _LEVEL = 8_000_000, 0.955


@publishes
def distribution(
    table: UserTable,
    value: str,
    at: Sequence[float] | None = None,
    *,
    by: By = None,
    unit: Unit,
    epsilon: float | None = None,
    delta: float = 0.0,
    share: float | None = None,
    relation: Relation = "zero_out",
    clip: float | Literal["auto"] | AutoClip = "auto",
    domain: Any = None,
    noise: Law | Literal["auto"] = "auto",
    max_items: int = 1000,
    random_state: RandomState = None,
    progress: bool | None = None,
) -> Query[Estimates]:
    """Publish the share of numbers at or above each threshold.

    Args:
        table: from :func:`dpgrain.read`; or a per-user table from
            :meth:`~dpgrain.UserTable.per_user`.
        value: column of numbers. Rows without a finite value are dropped.
        at: the public thresholds, increasing; by default round numbers (1, 2, 5, 10 and so on) in a
            privately chosen range, which takes 15% of the budget.
        by: column or columns to group by; if omitted, one answer for all rows.
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
        noise: noise distribution; ``auto`` uses Laplace noise if known to be smaller.
        max_items: maximum number of groups or items of one unit used in selection.
        random_state: seed, for tests and research. The release is then *not private*.
        progress: show progress; by default on a terminal, after two seconds.

    Returns:
        An :class:`~dpgrain.Estimates` with a row for each group and threshold; the key ``from`` is
        the threshold. Shares decrease. The intervals of a group are a band: in 95% of releases, it
        contains all noise-free shares of the group at once.

    Raises:
        ParameterError, SchemaError, DataError: as :func:`dpgrain.sum`; also if thresholds do not
            increase.

    Formal guarantee: (ε, δ)-DP for one unit, for every table: each record counts 1 in its bin
    between two thresholds, and shares are post-processing of the noisy counts. Source: docs/theory,
    "Numbers as masses" and "The band of a distribution".

    >>> import pyarrow as pa
    >>> from dpgrain import User, read
    >>> visits = read(pa.table({"who": [1, 1, 1, 2]}), user="who", n_users=100)
    >>> people = visits.per_user(visits="count")
    >>> release = distribution(people, "visits", [1, 3], unit=User(), epsilon=1, delta=1e-6)
    >>> bool(release.estimate[0] >= release.estimate[1])
    True
    """
    edges = None if at is None else _checked_edges("at", at)
    promise = Promise.of(unit, epsilon, delta, relation, share)
    return DistributionQuery.of(
        DISTRIBUTION, table, by, promise=promise, clip=clip, noise=noise, domain=domain,
        value=value, measure=EdgeCounts.create(edges, table, value),
        bounds=AutoRange(integers=False) if edges is None else None, max_items=max_items,
        random_state=random_state, progress=progress,
    )  # fmt: skip


class DistributionQuery(SumsQuery[Estimates]):
    """Query for shares of numbers."""

    def release(self, measured: NoisySums) -> Estimates:
        """Return the shares at or above each threshold, with bands."""
        counts = BinCounts.create(measured)
        estimate, low, high = _shares(counts, self.noise)
        rows = np.repeat(np.arange(len(counts.masses)), counts.edges.size)
        known = measured.groups.take(rows)
        thresholds = pa.array(np.tile(_whole_if_all(counts.edges), len(counts.masses)))
        return measured.as_estimates(
            estimate.ravel(),
            _pointwise(estimate, counts).ravel(),
            low.ravel(),
            high.ravel(),
            counts.masses.sum(axis=1)[rows],
            counts.whole_error[rows],
            groups=Groups.of((*known.names, "from"), (*known.columns, thresholds)),
            coordinates=counts.bins,
        )


def bins_query(
    table: UserTable, value: str, edges: Sequence[float] | Literal["auto"], **options: Any
) -> SumsQuery[Histogram]:
    """Return the query for records in bins of a number, for ``dg.histogram(edges=…)``."""
    known = None if isinstance(edges, str) and edges == "auto" else _checked_edges("edges", edges)
    return BinsQuery.of(
        BINNED, table, None, value=value, measure=EdgeCounts.create(known, table, value),
        bounds=AutoRange(integers=False) if known is None else None, **options,
    )  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class BinsQuery(SumsQuery[Histogram]):
    """Query for counts of bins; ``nonnegative`` sets negative estimates to 0."""

    nonnegative: bool = False

    def release(self, measured: NoisySums) -> Histogram:
        """Return the counts of bins, with intervals."""
        counts = BinCounts.create(measured)
        rows = np.repeat(np.arange(len(counts.masses)), counts.bins)
        groups, ends = measured.groups.take(rows), _whole_if_all(counts.edges).tolist()
        lower, upper = (
            pa.array(part * len(counts.masses)) for part in ([None, *ends], [*ends, None])
        )
        estimate, error = counts.masses.ravel(), counts.errors.ravel()
        clipped = measured.metadata.is_clipped
        release = Histogram(
            Groups.of((*groups.names, "from", "below"), (*groups.columns, lower, upper)),
            estimate,
            error,
            measured.clip[rows],
            measured.guarantee,
            measured.metadata,
            self.noise,
            at_least=at_least(estimate, error, self.noise) if clipped else None,
        )
        return release.without_negatives() if self.nonnegative else release


@dataclass(frozen=True)
class EdgeCounts(Measure):
    """Number of records in each of several bins."""

    bias: float = 0.5
    ratio: bool = True
    edges: tuple[float, ...] | None = None  # public; None for round edges
    whole: bool = False  # integers only

    @staticmethod
    def create(edges: tuple[float, ...] | None, table: UserTable, value: str) -> EdgeCounts:
        """Return the measure for a column of a table."""
        corners = 1 + (_MOST_CHOSEN if edges is None else len(edges))
        whole = isinstance(table, UserTable) and table.is_whole(value)
        return EdgeCounts(corners, noisy=corners // 2, counting=corners, edges=edges, whole=whole)

    def split(self, low: float, high: float) -> Bins:
        """Return the bins between the edges."""
        edges = round_edges(low, high, self.whole) if self.edges is None else self.edges
        # Move edges down, so that bins contain their lower edge instead of the upper one.
        return Bins(tuple(np.nextafter(edges, -math.inf).tolist()), self.corners)


@dataclass(frozen=True, eq=False)
class BinCounts:
    """Noisy counts of bins; people missing from a stated number are in that of 0."""

    edges: FloatArray  # (E,)
    masses: FloatArray  # (V, E + 1)
    sd: FloatArray  # (V, 1), of one count
    nothing: int | None  # bin of 0 for a stated number of people

    @staticmethod
    def create(measured: NoisySums) -> BinCounts:
        """Return the counts of the bins between the edges."""
        split = measured.split
        assert isinstance(split, Bins)  # noqa: S101 - what values.binned makes
        edges = np.nextafter(split.edges, math.inf)
        masses, nothing = measured.masses[:, : edges.size + 1].copy(), None
        if measured.everyone is not None:
            nothing = int(np.searchsorted(edges, 0.0, side="right"))
            # Post-processing: the bin of 0 contains all people who are not in other bins.
            masses[:, nothing] += measured.everyone - masses.sum(axis=1)
        return BinCounts(edges, masses, measured.sd[:, None], nothing)

    @property
    def bins(self) -> int:
        """Number of bins."""
        return self.edges.size + 1

    @property
    def errors(self) -> FloatArray:
        """Standard error of each count, (V, E + 1)."""
        errors = np.repeat(self.sd, self.bins, axis=1)
        if self.nothing is not None:
            errors[:, self.nothing] *= math.sqrt(self.bins - 1)
        return errors

    @property
    def whole_error(self) -> FloatArray:
        """Standard error of the sum of all counts, (V,); 0 for a stated sum."""
        error = self.sd[:, 0] * math.sqrt(self.bins)
        return error if self.nothing is None else np.zeros_like(error)


def _shares(counts: BinCounts, law: Law) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the shares at or above each edge with their bands, (V, E) each."""
    above, whole = _above(counts.masses), counts.masses.sum(axis=1, keepdims=True)
    radius, edge = _band(counts.bins, counts.nothing, law) * counts.sd, np.arange(1.0, counts.bins)
    if counts.nothing is None:
        low, high = ratio_interval(above, whole - above, radius, counts.bins - edge, edge)
    else:
        radius = radius * np.sqrt(_terms(counts.bins, counts.nothing))
        low, high = (above - radius) / whole, (above + radius) / whole
    # Shares decrease, which narrows the band.
    low = np.maximum.accumulate(np.clip(low, 0.0, 1.0)[:, ::-1], axis=1)[:, ::-1]
    high = np.minimum.accumulate(np.clip(high, 0.0, 1.0), axis=1)
    near = _nearest(counts)
    total = near.sum(axis=1, keepdims=True)
    result = np.where(total > 0, _above(near) / np.where(total > 0, total, 1.0), 0.5)
    return result, np.minimum(low, result), np.maximum(high, result)


def _above(masses: FloatArray) -> FloatArray:
    """Return the counts at or above each edge, (V, E)."""
    return np.asarray(np.cumsum(masses[:, ::-1], axis=1)[:, ::-1][:, 1:])


def _nearest(counts: BinCounts) -> FloatArray:
    """Return the nearest non-negative counts with the same sum, (V, E + 1)."""
    if not counts.masses.size:
        return counts.masses
    rows = np.repeat(np.arange(len(counts.masses)), counts.bins)
    whole = np.maximum(counts.masses.sum(axis=1), 0.0)
    near = consistent(counts.masses.ravel(), counts.errors.ravel(), whole, rows)
    return near.reshape(counts.masses.shape)


def _terms(bins: int, nothing: int) -> FloatArray:
    """Return the number of noisy counts in the number of people above each edge, (E,)."""
    edge = np.arange(1.0, bins)
    return np.where(edge > nothing, bins - edge, edge)


@lru_cache
def _band(bins: int, nothing: int | None, law: Law) -> float:
    """Return the 95% quantile of the largest error of counts above edges, in sds.

    Proof: docs/theory/sums.md, "The band of a distribution".
    """
    rng, shape = np.random.default_rng(0), (min(_DRAWN // bins, 40_000), bins)
    kind = noise_by_name(law)
    noise = kind.draw(rng, shape) / kind.sd
    above = _above(noise)
    below = np.cumsum(noise, axis=1)[:, :-1]
    edge = np.arange(1.0, bins)
    if nothing is None:
        off = np.sqrt(above**2 / (bins - edge) + below**2 / edge)
    else:
        off = np.abs(np.where(edge > nothing, above, below)) / np.sqrt(_terms(bins, nothing))
    return float(np.quantile(off.max(axis=1), _LEVEL))


def _pointwise(share: FloatArray, counts: BinCounts) -> FloatArray:
    """Return the standard error of each share due to noise, (V, E)."""
    edge = np.arange(1.0, counts.bins)
    terms = (1 - share) ** 2 * (counts.bins - edge) + share**2 * edge
    if counts.nothing is not None:
        terms = np.broadcast_to(_terms(counts.bins, counts.nothing), share.shape)
    error, whole = np.sqrt(terms) * counts.sd, counts.masses.sum(axis=1, keepdims=True)
    return np.asarray(np.minimum(error / np.maximum(whole, error), 1.0))


def round_edges(low: float, high: float, whole: bool) -> tuple[float, ...]:
    """Return round numbers in a range, from near 0 to its ends: 1, 2, 5, 10, 20, …"""
    largest = max(abs(low), abs(high))
    least = largest * (_SMALLEST_WHOLE if whole else _SMALLEST)
    if low < 0 < high:
        least = max(least, largest * _SMALLEST_OF_TWO_SIGNS)
    sizes = _round_numbers(max(least, 1.0) if whole else least, largest)
    edges = [-size for size in reversed(sizes)] + [0.0] + sizes
    inside = tuple(edge for edge in edges if low < edge <= high)
    if len(inside) >= 4 or (low <= 0 <= high and inside):
        return inside
    # A narrow range away from 0 has 8 to 20 edges at equal steps.
    steps = _round_numbers((high - low) / 100, high - low)
    step = next(size for size in steps if 20 * size >= high - low)
    step = max(step, 1.0) if whole else step
    first, last = math.floor(low / step) + 1, math.floor(high / step)
    return tuple(place * step for place in range(first, last + 1)) or (high,)


def _round_numbers(least: float, most: float) -> list[float]:
    """Return the numbers 1, 2 and 5 times a power of ten between two positive numbers."""
    first, last = math.floor(math.log10(least)), math.ceil(math.log10(most))
    powers = (float(f"1e{power}") for power in range(first, last + 1))
    result = [step * power for power, step in itertools.product(powers, _STEPS)]
    return [size for size in result if least <= size <= most]


def _whole_if_all(edges: FloatArray) -> Any:
    """Return integer edges if all are integers, so that tables show 5 instead of 5.0."""
    whole = (edges == np.rint(edges)).all() and (np.abs(edges) < 2.0**53).all()
    return edges.astype(np.int64) if whole else edges


def _checked_edges(name: str, edges: Any) -> tuple[float, ...]:
    listed = _validate.numbers(**{name: edges})
    increasing = all(one < two for one, two in itertools.pairwise(listed))
    if not (0 < len(listed) <= _MOST_STATED and increasing and np.isfinite(listed).all()):
        raise ParameterError(
            f"{name} must be 1 to {_MOST_STATED:,} increasing finite numbers, such as [1, 2, 5, "
            f"10], not {_validate.describe(edges)}.",
            name=name,
        )
    return tuple(listed)
