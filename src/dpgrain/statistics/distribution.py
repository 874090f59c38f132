"""``dg.distribution``: the shares of numbers that are at least so large, and their counts in bins."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomState
from dpgrain.noise.additive import noise_by_name
from dpgrain.publishing import Promise, Query, publishes
from dpgrain.statistics import values
from dpgrain.statistics.bounds import AutoClip
from dpgrain.statistics.consistent import consistent
from dpgrain.statistics.intervals import at_least, ratio_interval
from dpgrain.statistics.ranges import AutoRange
from dpgrain.statistics.release import Estimates, Histogram
from dpgrain.statistics.request import By, Request
from dpgrain.statistics.run import Measured, SumsQuery
from dpgrain.statistics.statistic import BINNED, DISTRIBUTION, Statistic
from dpgrain.statistics.values import Bins
from dpgrain.tables.groups import Groups
from dpgrain.tables.table import UserTable
from dpgrain.units import Law, Relation, Unit

# Edges that are chosen, and those that are stated, at most.
_MOST_CHOSEN, _MOST_STATED = 40, 1000
# Numbers with a fraction have edges down to this share of the largest; whole ones to 1, or to this.
_SMALLEST, _SMALLEST_WHOLE = 1e-4, 1e-12
_SMALLEST_OF_TWO_SIGNS = 1e-6
_STEPS = (1.0, 2.0, 5.0)
# Draws from which the width of a band is found, and their level: above 95% by more than their error.
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
        table: from :func:`dpgrain.read`; or of people, from :meth:`~dpgrain.UserTable.per_user`.
        at: the public thresholds, increasing; round ones in a range found privately without it. Finding
            the range takes 15% of the budget; round numbers are 1, 2, 5, 10 and so on.

    Returns:
        An :class:`~dpgrain.Estimates` with a row for each group and threshold; the key ``at_least`` is
        the threshold. Shares fall from threshold to threshold. The intervals of a group are a band: in
        95% of releases they hold all of its shares at once, as these would be without noise.

    Raises:
        ParameterError, SchemaError, DataError: as :func:`dpgrain.sum`; also if thresholds do not
            increase.

    Formal guarantee: (ε, δ)-DP for one unit, for every table: each record counts 1 in its bin between
    two thresholds, and shares are post-processing of the noisy counts. Source: docs/theory, "Numbers
    as masses" and "The band of a distribution".

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
    request = _request(
        DISTRIBUTION, table, value, edges, by=by, promise=promise, clip=clip, noise=noise,
        domain=domain, max_items=max_items,
    )  # fmt: skip
    made = partial(_distributions, law=request.noise)
    return SumsQuery(request, made, random_state, progress)


def _distributions(measured: Measured, law: Law) -> Estimates:
    """Return the shares at or above each threshold, with bands for noise of a law."""
    counts = Counts.of(measured)
    estimate, low, high = _shares(counts, law)
    rows = np.repeat(np.arange(len(counts.masses)), counts.edges.size)
    known = measured.groups.take(rows)
    thresholds = pa.array(np.tile(_whole_if_all(counts.edges), len(counts.masses)))
    return Estimates(
        Groups.of((*known.names, "from"), (*known.columns, thresholds)),
        estimate.ravel(),
        _pointwise(estimate, counts).ravel(),
        low.ravel(),
        high.ravel(),
        counts.masses.sum(axis=1)[rows],
        measured.guarantee,
        measured.cautioned(counts.bins),
        counts.whole_error[rows],
    )


def binned(
    table: UserTable,
    value: str,
    edges: Sequence[float] | Literal["auto"],
    *,
    promise: Promise,
    random_state: RandomState,
    progress: bool | None,
    **options: Any,
) -> SumsQuery[Histogram]:
    """Return the query for records in bins of a number, as ``dg.histogram(edges=…)`` has them.

    Args:
        table: the table.
        value: the column of numbers; rows without a finite one are left out.
        edges: increasing: a bin holds its lower edge and not its upper one, and the first and the last
            have no end. ``"auto"`` finds round ones in a range that is found privately.
        promise: what is promised.
        random_state: a seed, for tests and research.
        progress: show progress.
        **options: the options of :func:`_request`.
    """
    known = None if isinstance(edges, str) and edges == "auto" else _checked_edges("edges", edges)
    request = _request(BINNED, table, value, known, promise=promise, **options)
    made = partial(_bins, law=request.noise)
    return SumsQuery(request, made, random_state, progress)


def _bins(measured: Measured, law: Law) -> Histogram:
    """Return the counts of bins, with intervals for noise of a law."""
    counts = Counts.of(measured)
    rows = np.repeat(np.arange(len(counts.masses)), counts.bins)
    groups, ends = measured.groups.take(rows), _whole_if_all(counts.edges).tolist()
    lower, upper = (pa.array(part * len(counts.masses)) for part in ([None, *ends], [*ends, None]))
    estimate, error, capped = counts.masses.ravel(), counts.errors.ravel(), measured.asked.capped
    return Histogram(
        Groups.of((*groups.names, "from", "below"), (*groups.columns, lower, upper)),
        estimate,
        error,
        measured.clip[rows],
        measured.guarantee,
        measured.asked,
        law,
        at_least=at_least(estimate, error, law) if capped else None,
    )


def _request(
    statistic: Statistic,
    table: UserTable,
    value: str,
    edges: tuple[float, ...] | None,
    *,
    promise: Promise,
    by: By = None,
    **options: Any,
) -> Request:
    """Return the request for counts between stated edges, or between round ones in a found range."""
    whole = isinstance(table, UserTable) and table.is_whole(value)

    def made(low: float, high: float) -> tuple[float, ...]:
        result = round_edges(low, high, whole) if edges is None else edges
        # A bin is to hold its lower edge, where it holds its upper one by itself.
        return tuple(np.nextafter(result, -math.inf).tolist())

    corners = 1 + (_MOST_CHOSEN if edges is None else len(edges))
    return Request.of(
        statistic,
        table,
        by,
        promise=promise,
        value=value,
        measure=values.binned(corners, made),
        bounds=AutoRange() if edges is None else None,
        **options,
    )


@dataclass(frozen=True, eq=False)
class Counts:
    """Noisy counts of bins; of a stated number of people, who is in no other bin is in that of 0.

    Args:
        edges: (E,) the edges between the bins.
        masses: (V, E + 1) the counts.
        sd: (V, 1) the standard deviation of the noise of one count.
        nothing: the bin of 0, where the number of people is stated; else None.
    """

    edges: FloatArray
    masses: FloatArray
    sd: FloatArray
    nothing: int | None

    @staticmethod
    def of(measured: Measured) -> Counts:
        """Return the counts of the bins that the edges make."""
        split = measured.split
        assert isinstance(split, Bins)  # noqa: S101 - what values.binned makes
        edges = np.nextafter(split.edges, math.inf)
        masses, nothing = measured.masses[:, : edges.size + 1].copy(), None
        if measured.everyone is not None:
            nothing = int(np.searchsorted(edges, 0.0, side="right"))
            # Post-processing: the bin of 0 holds all who are not counted in others.
            masses[:, nothing] += measured.everyone - masses.sum(axis=1)
        return Counts(edges, masses, measured.sd[:, None], nothing)

    @property
    def bins(self) -> int:
        """The number of bins."""
        return self.edges.size + 1

    @property
    def errors(self) -> FloatArray:
        """The standard error of each count, (V, E + 1)."""
        errors = np.repeat(self.sd, self.bins, axis=1)
        if self.nothing is not None:
            errors[:, self.nothing] *= math.sqrt(self.bins - 1)
        return errors

    @property
    def whole_error(self) -> FloatArray:
        """The standard error of the sum of all counts, (V,); 0 where it is stated."""
        error = self.sd[:, 0] * math.sqrt(self.bins)
        return error if self.nothing is None else np.zeros_like(error)


def _shares(counts: Counts, law: Law) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the shares at or above each edge with their bands, (V, E) each: post-processing."""
    above, whole = _above(counts.masses), counts.masses.sum(axis=1, keepdims=True)
    radius, edge = _band(counts.bins, counts.nothing, law) * counts.sd, np.arange(1.0, counts.bins)
    if counts.nothing is None:
        low, high = ratio_interval(above, whole - above, radius, counts.bins - edge, edge)
    else:
        radius = radius * np.sqrt(_terms(counts.bins, counts.nothing))
        low, high = (above - radius) / whole, (above + radius) / whole
    # Shares are known to fall, which narrows what noise leaves open.
    low = np.maximum.accumulate(np.clip(low, 0.0, 1.0)[:, ::-1], axis=1)[:, ::-1]
    high = np.minimum.accumulate(np.clip(high, 0.0, 1.0), axis=1)
    near = _nearest(counts)
    total = near.sum(axis=1, keepdims=True)
    result = np.where(total > 0, _above(near) / np.where(total > 0, total, 1.0), 0.5)
    return result, np.minimum(low, result), np.maximum(high, result)


def _above(masses: FloatArray) -> FloatArray:
    """Return the counts at or above each edge, (V, E)."""
    return np.asarray(np.cumsum(masses[:, ::-1], axis=1)[:, ::-1][:, 1:])


def _nearest(counts: Counts) -> FloatArray:
    """Return the nearest counts that are not negative and have the same sum, (V, E + 1)."""
    if not counts.masses.size:
        return counts.masses
    rows = np.repeat(np.arange(len(counts.masses)), counts.bins)
    whole = np.maximum(counts.masses.sum(axis=1), 0.0)
    near = consistent(counts.masses.ravel(), counts.errors.ravel(), whole, rows)
    return near.reshape(counts.masses.shape)


def _terms(bins: int, nothing: int) -> FloatArray:
    """Return the number of noisy counts that the number of people above each edge is made of, (E,).

    Above 0 these are the counts above the edge; below 0 those below it are taken off the whole.
    """
    edge = np.arange(1.0, bins)
    return np.where(edge > nothing, bins - edge, edge)


@lru_cache
def _band(bins: int, nothing: int | None, law: Law) -> float:
    """Return by how many standard deviations all counts above edges may be off at once, in 95%.

    Args:
        bins: the number of bins.
        nothing: the bin of 0, where the number of people is stated: one count above or below an edge
            then tells its share. Else both do, by Cauchy's inequality, whatever the share is.
        law: the law of the noise.
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


def _pointwise(share: FloatArray, counts: Counts) -> FloatArray:
    """Return the standard error of each share that the noise causes, (V, E)."""
    edge = np.arange(1.0, counts.bins)
    terms = (1 - share) ** 2 * (counts.bins - edge) + share**2 * edge
    if counts.nothing is not None:
        terms = np.broadcast_to(_terms(counts.bins, counts.nothing), share.shape)
    error, whole = np.sqrt(terms) * counts.sd, counts.masses.sum(axis=1, keepdims=True)
    return np.asarray(np.minimum(error / np.maximum(whole, error), 1.0))


def round_edges(low: float, high: float, whole: bool) -> tuple[float, ...]:
    """Return round numbers within a range, from near 0 to its ends: 1, 2, 5, 10, 20, 50 and so on.

    Args:
        low: the lower end.
        high: the upper end.
        whole: True for whole numbers, which have no edges between 0 and 1.

    >>> round_edges(0.0, 64.0, whole=True)
    (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
    >>> round_edges(1024.0, 1536.0, whole=False)[:4]
    (1050.0, 1100.0, 1150.0, 1200.0)
    """
    largest = max(abs(low), abs(high))
    least = largest * (_SMALLEST_WHOLE if whole else _SMALLEST)
    if low < 0 < high:
        least = max(least, largest * _SMALLEST_OF_TWO_SIGNS)
    sizes = _round_numbers(max(least, 1.0) if whole else least, largest)
    edges = [-size for size in reversed(sizes)] + [0.0] + sizes
    inside = tuple(edge for edge in edges if low < edge <= high)
    if len(inside) >= 4 or (low <= 0 <= high and inside):
        return inside
    # A narrow range far from 0 has edges at equal steps, between 8 and 20 of them.
    steps = _round_numbers((high - low) / 100, high - low)
    step = next(size for size in steps if 20 * size >= high - low)
    step = max(step, 1.0) if whole else step
    first, last = math.floor(low / step) + 1, math.floor(high / step)
    return tuple(place * step for place in range(first, last + 1)) or (high,)


def _round_numbers(least: float, most: float) -> list[float]:
    """Return the numbers 1, 2 and 5 times a power of ten between two positive ones."""
    first, last = math.floor(math.log10(least)), math.ceil(math.log10(most))
    powers = (float(f"1e{power}") for power in range(first, last + 1))
    result = [step * power for power, step in itertools.product(powers, _STEPS)]
    return [size for size in result if least <= size <= most]


def _whole_if_all(edges: FloatArray) -> Any:
    """Return edges as whole numbers where all are, so that tables show 5 in place of 5.0."""
    whole = (edges == np.rint(edges)).all() and (np.abs(edges) < 2.0**53).all()
    return edges.astype(np.int64) if whole else edges


def _checked_edges(name: str, edges: Any) -> tuple[float, ...]:
    if isinstance(edges, np.ndarray):
        # Values of an array are not told one by one, as they may be rows.
        edges = _validate.float_array(**{name: edges})
    listed = [_validate.real(**{name: edge}) for edge in _validate.sequence(**{name: edges})]
    increasing = all(one < two for one, two in itertools.pairwise(listed))
    if not (0 < len(listed) <= _MOST_STATED and increasing and np.isfinite(listed).all()):
        raise ParameterError(
            f"{name} must be 1 to {_MOST_STATED:,} increasing finite numbers, such as [1, 2, 5, "
            f"10], not {_validate.describe(edges)}.",
            name=name,
        )
    return tuple(listed)
