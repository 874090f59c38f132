"""Histograms, counts and sums (``dg.histogram``, ``dg.count``, ``dg.sum``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from dpgrain import _validate
from dpgrain.errors import ParameterError, raise_without_context
from dpgrain.noise import RandomState
from dpgrain.publishing import Promise, Query, publishes
from dpgrain.statistics.bounds import AutoClip
from dpgrain.statistics.distribution import bins_query
from dpgrain.statistics.group_estimates import Histogram
from dpgrain.statistics.plan import clip_rule
from dpgrain.statistics.ranges import AutoRange
from dpgrain.statistics.run import NoisySums
from dpgrain.statistics.shared_records import SharedQuery
from dpgrain.statistics.statistic import COUNT, HISTOGRAM, SUM
from dpgrain.statistics.sums_query import By, SumsQuery
from dpgrain.statistics.values import SignParts, Total, Weights
from dpgrain.tables.shared_table import SharedTable
from dpgrain.tables.table import UserTable
from dpgrain.units import Law, Relation, Unit


@publishes
def histogram(
    table: UserTable | SharedTable,
    item: str | Sequence[str],
    *,
    unit: Unit,
    epsilon: float | None = None,
    delta: float = 0.0,
    share: float | None = None,
    relation: Relation = "zero_out",
    clip: float | Literal["auto"] | AutoClip | Mapping[Any, float] = "auto",
    domain: Any = None,
    weight: str | None = None,
    edges: Sequence[float] | Literal["auto"] | None = None,
    noise: Law = "gaussian",
    nonnegative: bool = False,
    estimate_clipping: bool = False,
    max_items: int = 1000,
    random_state: RandomState = None,
    progress: bool | None = None,
) -> Query[Histogram]:
    """Publish how often people have each item, or how much.

    Args:
        table: table from :func:`dpgrain.read`.
        item: the column of items, or several, whose combinations are items.
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
        domain: the public list of items; all of them are published. The default is the keys of a
            public mapping passed as the unit's partition; without one, items are selected
            privately. For several columns, a mapping from column to its values (other columns are
            selected privately), or a list of tuples.
        weight: the column of record weights, with negative ones treated as 0; by default 1.
        edges: the public edges of bins, for a numeric item; ``auto`` chooses round ones with 15% of
            the budget. A bin contains its lower edge but not its upper one, and the outer bins are
            open.
        noise: the noise distribution; ``laplace`` needs no δ.
        nonnegative: set negative estimates to 0. This is free post-processing.
        estimate_clipping: estimate the share of values outside of ``bounds`` and, for counts and
            sums, of units clipped by an explicit ``clip``, with 5% of the budget each; by default,
            neither is estimated.
        max_items: maximum number of groups or items of one unit used in selection.
        random_state: seed, for tests and research. The release is then *not private*.
        progress: show progress; by default on a terminal, after two seconds.

    Returns:
        A :class:`~dpgrain.Histogram`: item, estimate, standard error and 95% interval for the sum
        of clipped contributions, a lower bound on the unclipped total, and the guarantee.

    Raises:
        ParameterError, SchemaError: if a parameter or the schema is wrong, before anything is read.
        DataError: if the source cannot be read; nothing is released then.

    Formal guarantee: (ε, δ)-DP for one unit under the relation, for every table; the curve of the
    guarantee covers more units and other units. Source: element-level paper, eq. (9), with the
    exact Gaussian curve instead of Lemma 3.2(ii), which is false; sums and noise are integers.

    >>> import pyarrow as pa
    >>> from dpgrain import Element, read
    >>> words = read(pa.table({"who": [1, 1, 2], "word": ["yo", "yo", "bro"]}), user="who")
    >>> release = histogram(words, "word", unit=Element("word"), epsilon=1, delta=1e-6, clip=2.0,
    ...                     domain=["bro", "hello", "yo"])
    >>> len(release), round(release.guarantee.epsilon(), 6)
    (3, 1.0)
    """
    promise = Promise.of(unit, epsilon, delta, relation, share)
    estimate_clipping = _checked_estimate(estimate_clipping, table)
    if isinstance(table, SharedTable) and edges is not None:
        table.refuse("histogram with edges")
    if isinstance(table, SharedTable):
        return SharedQuery.of(
            HISTOGRAM, table, item, promise=promise, clip=clip, noise=noise, domain=domain,
            value=weight, nonnegative=nonnegative, random_state=random_state, progress=progress,
        )  # fmt: skip
    rule = clip_rule(clip)
    if edges is not None:
        if estimate_clipping:
            raise ParameterError(
                "estimate_clipping must be False with edges, not True; omit one of them.",
                name="estimate_clipping",
            )
        if not isinstance(item, str) or weight is not None or domain is not None:
            raise ParameterError(
                "edges require one numeric column as item, without weight and domain.", name="edges"
            )
        return bins_query(
            table, item, edges, promise=promise, clip=clip, noise=noise,
            nonnegative=_validate.boolean(nonnegative=nonnegative),
            random_state=random_state, progress=progress,
        )  # fmt: skip
    if weight is not None and isinstance(table, UserTable):
        table.require_numbers([weight], "weight")
    return HistogramQuery.of(
        HISTOGRAM, table, item, promise=promise, clip=clip, noise=noise, domain=domain,
        value=weight, measure=None if weight is None else Weights(unit=_weight_unit(rule)),
        max_items=max_items, nonnegative=_validate.boolean(nonnegative=nonnegative),
        estimate_clipping=estimate_clipping, random_state=random_state, progress=progress,
    )  # fmt: skip


@publishes
def count(
    table: UserTable | SharedTable,
    value: str | None = None,
    *,
    by: By = None,
    unit: Unit,
    epsilon: float | None = None,
    delta: float = 0.0,
    share: float | None = None,
    relation: Relation = "zero_out",
    clip: float | Literal["auto"] | AutoClip | Mapping[Any, float] = "auto",
    domain: Any = None,
    noise: Law | Literal["auto"] = "auto",
    estimate_clipping: bool = False,
    max_items: int = 1000,
    random_state: RandomState = None,
    progress: bool | None = None,
) -> Query[Histogram]:
    """Publish the number of records, overall or by group.

    Args:
        table: table from :func:`dpgrain.read`.
        value: the column in which counted records have a finite number.
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
        estimate_clipping: estimate the share of values outside of ``bounds`` and, for counts and
            sums, of units clipped by an explicit ``clip``, with 5% of the budget each; by default,
            neither is estimated.
        max_items: maximum number of groups or items of one unit used in selection.
        random_state: seed, for tests and research. The release is then *not private*.
        progress: show progress; by default on a terminal, after two seconds.

    Raises:
        ParameterError, SchemaError, DataError: as :func:`dpgrain.histogram`.

    Formal guarantee and source: as :func:`dpgrain.histogram`.

    >>> import pyarrow as pa
    >>> from dpgrain import User, read
    >>> table = read(pa.table({"who": [1, 1, 2], "page": ["a", "b", "a"]}), user="who")
    >>> release = count(table, unit=User(), epsilon=1, delta=1e-6, clip=10.0)
    >>> len(release), round(release.guarantee.epsilon(), 6)
    (1, 1.0)
    """
    promise = Promise.of(unit, epsilon, delta, relation, share)
    estimate_clipping = _checked_estimate(estimate_clipping, table)
    if isinstance(table, SharedTable):
        return SharedQuery.of(
            COUNT, table, by, promise=promise, clip=clip, noise=noise, domain=domain, value=value,
            counted=True, random_state=random_state, progress=progress,
        )  # fmt: skip
    return HistogramQuery.of(
        COUNT, table, by, promise=promise, clip=clip, noise=noise, domain=domain, value=value,
        max_items=max_items, estimate_clipping=estimate_clipping, random_state=random_state,
        progress=progress,
    )  # fmt: skip


@publishes
def sum(  # noqa: A001 - the field's word; always called as dg.sum
    table: UserTable | SharedTable,
    value: str,
    *,
    by: By = None,
    bounds: tuple[float, float] | None = None,
    estimate_clipping: bool = False,
    unit: Unit,
    epsilon: float | None = None,
    delta: float = 0.0,
    share: float | None = None,
    relation: Relation = "zero_out",
    clip: float | Literal["auto"] | AutoClip | Mapping[Any, float] = "auto",
    domain: Any = None,
    noise: Law | Literal["auto"] = "auto",
    max_items: int = 1000,
    random_state: RandomState = None,
    progress: bool | None = None,
) -> Query[Histogram]:
    """Publish the sum of a column, overall or by group.

    Args:
        table: table from :func:`dpgrain.read`.
        value: column of numbers. Rows without a finite value are dropped.
        by: column or columns to group by; if omitted, one answer for all rows.
        bounds: public range (low, high) for clamping numbers; if omitted, chosen privately with 20%
            of the budget.
        estimate_clipping: estimate the share of values outside of ``bounds`` and, for counts and
            sums, of units clipped by an explicit ``clip``, with 5% of the budget each; by default,
            neither is estimated.
        unit: privacy unit: ``Record()``, ``Element(by)`` or ``User()``.
        epsilon: privacy parameter ε, such as 1; smaller protects more. Omit it if you pass
            ``share``.
        delta: privacy parameter δ, in (0, 1), such as 1e-6. Use 0 only with Laplace noise.
        share: share of the open budget, such as 0.5, instead of ε and δ; see
            :func:`dpgrain.budget`.
        relation: neighbouring relation: a unit is removed, ``zero_out``, or replaced by another,
            ``replace``.
        clip: the clipping bound of a unit's data, a number or ``auto``. It limits their l2 norm, or
            l1 with Laplace noise, in units of the largest magnitude within bounds; by default one
            bound per cell is chosen privately with a share of the budget.
        domain: public list of groups to publish. By default, groups are selected privately. For
            several columns, pass a mapping from columns to values (other columns are selected
            privately) or a list of tuples.
        noise: noise distribution; ``auto`` uses Laplace noise if known to be smaller.
        max_items: maximum number of groups or items of one unit used in selection.
        random_state: seed, for tests and research. The release is then *not private*.
        progress: show progress; by default on a terminal, after two seconds.

    Raises:
        ParameterError, SchemaError, DataError: as :func:`dpgrain.histogram`; also if the bounds are
            not two increasing numbers.

    Formal guarantee: (ε, δ)-DP for one unit, for every table; with bounds of both signs, a replaced
    unit changes the sum by twice the clipping bound. Source: element-level paper, eq. (9);
    docs/theory, "Numbers as masses".

    >>> import pyarrow as pa
    >>> from dpgrain import User, read
    >>> table = read(pa.table({"who": [1, 1, 2], "paid": [3.0, 4.5, 1.0]}), user="who")
    >>> release = sum(table, "paid", bounds=(0, 10), unit=User(), epsilon=1, delta=1e-6)
    >>> release.estimate.shape
    (1,)
    """
    promise = Promise.of(unit, epsilon, delta, relation, share)
    estimate_clipping = _checked_estimate(estimate_clipping, table)
    if isinstance(table, SharedTable):
        return SharedQuery.of(
            SUM, table, by, promise=promise, clip=clip, noise=noise, domain=domain, value=value,
            limits=_from_zero(bounds), random_state=random_state, progress=progress,
        )  # fmt: skip
    limits = checked_bounds(bounds)
    low, high = limits if isinstance(limits, tuple) else (None, None)
    return SumQuery.of(
        SUM, table, by, promise=promise, clip=clip, noise=noise, domain=domain, value=value,
        measure=Total.of(low, high), bounds=limits, max_items=max_items,
        estimate_clipping=estimate_clipping, random_state=random_state, progress=progress,
    )  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class HistogramQuery(SumsQuery[Histogram]):
    """Query for sums of one coordinate; ``nonnegative`` sets negative estimates to 0."""

    shows_clipping: ClassVar[bool] = True
    nonnegative: bool = False

    def release(self, measured: NoisySums) -> Histogram:
        """Return the sums."""
        release = measured.as_histogram()
        return release.without_negatives() if self.nonnegative else release


class SumQuery(SumsQuery[Histogram]):
    """Query for the sum of a column."""

    shows_clipping: ClassVar[bool] = True

    def release(self, measured: NoisySums) -> Histogram:
        """Return the sums in the unit of the column."""
        split = measured.split
        assert isinstance(split, SignParts)  # noqa: S101 - the split of a total
        # A range without positive numbers has one corner, for magnitudes.
        sign = -1.0 if split.corners == 1 and split.low < 0 else 1.0
        signed = split.corners > 1 and split.low < 0
        release = measured.as_histogram(scale=split.scale, sign=sign, signed=signed)
        if measured.chosen is None or measured.chosen.seen.all():
            return release
        # Their bounds start far below the numbers, so their estimates would be near 0.
        blank = ~measured.chosen.seen
        estimate, error = (
            np.where(blank, np.nan, column) for column in (release.estimate, release.std_error)
        )
        return replace(release, estimate=estimate, std_error=error)


def _checked_estimate(estimate_clipping: bool, table: Any) -> bool:
    """Return the option, which records with several owners do not have."""
    wanted = _validate.boolean(estimate_clipping=estimate_clipping)
    if wanted and isinstance(table, SharedTable):
        raise ParameterError(
            "estimate_clipping must be False for records with several owners, not True; their "
            "clipped records are not counted.",
            name="estimate_clipping",
        )
    return wanted


def estimates_clipping(wanted: Any, bounds: tuple[float, float] | AutoRange) -> bool:
    """Return True if values outside of stated bounds are to be counted."""
    counted: bool = _validate.boolean(estimate_clipping=wanted)
    if counted and not isinstance(bounds, tuple):
        raise ParameterError(
            "estimate_clipping requires bounds, because a privately chosen range states the share "
            "outside; pass bounds=, or omit estimate_clipping.",
            name="estimate_clipping",
        )
    return counted


def checked_bounds(bounds: Any) -> tuple[float, float] | AutoRange:
    """Return a stated range, or the rule that chooses one for None."""
    if bounds is None:
        return AutoRange()
    if isinstance(bounds, AutoRange):
        return bounds
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError, OverflowError):
        message = (
            f"bounds must be two numbers (low, high), or None, not {_validate.describe(bounds)}."
        )
        raise_without_context(ParameterError(message, name="bounds"))
    if not (
        math.isfinite(low) and math.isfinite(high) and low < high and math.isfinite(high - low)
    ):
        raise ParameterError(
            f"bounds must be finite and increasing, not {_validate.describe(bounds)}.",
            name="bounds",
        )
    return low, high


def _from_zero(bounds: Any) -> tuple[float, float]:
    """Return the non-negative range of numbers of records with several owners."""
    stated = checked_bounds(bounds)
    if not isinstance(stated, tuple) or stated[0] < 0:
        raise ParameterError(
            "bounds must be (low, high) with low at least 0 for sums of records with several "
            f"owners, not {_validate.describe(bounds)}, because negative numbers have no bound there "
            "and no range is chosen privately.",
            name="bounds",
        )
    return stated


def _weight_unit(rule: float | AutoClip) -> float:
    """Return the unit of truncated weights, a power of two; 2^53 units exceed any bound."""
    if isinstance(rule, AutoClip):
        return 2.0 ** (math.ceil(math.log2(rule.high)) - 52)
    return 2.0 ** (math.floor(math.log2(rule)) - 38)
