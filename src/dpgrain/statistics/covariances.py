"""Covariance and correlation of two numeric columns, overall or by group."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomState
from dpgrain.publishing import Promise, Query, publishes
from dpgrain.statistics.bounds import AutoClip
from dpgrain.statistics.group_estimates import Estimates
from dpgrain.statistics.histogram import checked_bounds
from dpgrain.statistics.intervals import half_width, root_interval
from dpgrain.statistics.ranges import AutoRange
from dpgrain.statistics.run import NoisySums
from dpgrain.statistics.statistic import CORRELATION, COVARIANCE, Statistic
from dpgrain.statistics.sums_query import By, SumsQuery, key_columns
from dpgrain.statistics.values import PAIRED, PairMoments, SecondMoments
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.engines.derived_columns import CompiledExpression
from dpgrain.tables.expression import CallNode, ColumnNode, ConstantNode, Node
from dpgrain.tables.shared_table import reject_table
from dpgrain.tables.table import UserTable
from dpgrain.units import Law, Relation, Unit

# Standard errors of a count that is large enough to divide by its square.
_KNOWN = 6.0
# Standard errors of a variance that is large enough to divide by its root.
_STANDS_OUT = 4.0
# Largest covariance and variance of numbers in [0, 1].
_LARGEST = 0.25


@publishes
def covariance(
    table: UserTable,
    value: str,
    other: str,
    *,
    by: By = None,
    bounds: tuple[float, float],
    other_bounds: tuple[float, float],
    estimate_clipping: bool = False,
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
    """Publish the covariance of two columns.

    It divides by the count, overall or by group.

    Args:
        table: table from :func:`dpgrain.read`.
        value: column of numbers. Rows without a finite value are dropped.
        other: the other numeric column. Rows without a finite number in both are dropped.
        by: column or columns to group by; if omitted, one answer for all rows.
        bounds: the public range (low, high) of ``value``, to which numbers are clamped.
        other_bounds: the same for ``other``.
        estimate_clipping: estimate the share of pairs outside of the bounds, with 5% of the budget;
            by default, it is not estimated.
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
        An :class:`~dpgrain.Estimates`. Its intervals are first-order; for a count within the noise,
        they are the whole range that the bounds allow.

    Raises:
        ParameterError, SchemaError, DataError: as :func:`dpgrain.sum`.

    Formal guarantee: (ε, δ)-DP for one unit, for every table. Each record's 1 is split between nine
    corners (products of Bernstein polynomials of degree 2). The count and all first and second
    moments of both columns are linear functions of them. Numbers are read to 2^-26 of their range.
    Source: docs/theory, "Two numbers".

    >>> import pyarrow as pa
    >>> from dpgrain import User, read
    >>> table = read(pa.table({"who": [1, 1, 2], "x": [1, 2, 3], "y": [2, 2, 4]}), user="who")
    >>> release = covariance(table, "x", "y", bounds=(0, 4), other_bounds=(0, 4), unit=User(),
    ...                      epsilon=1, delta=1e-6)
    >>> -4 <= release.value <= 4
    True
    """
    return _query(
        COVARIANCE, CovarianceQuery, table, (value, other), (bounds, other_bounds),
        estimate_clipping, by=by, promise=Promise.of(unit, epsilon, delta, relation, share),
        clip=clip, noise=noise, domain=domain, max_items=max_items, random_state=random_state,
        progress=progress,
    )  # fmt: skip


@publishes
def correlation(
    table: UserTable,
    value: str,
    other: str,
    *,
    by: By = None,
    bounds: tuple[float, float],
    other_bounds: tuple[float, float],
    estimate_clipping: bool = False,
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
    """Publish the correlation of two columns.

    It is :func:`dpgrain.covariance` divided by both standard deviations, from one noisy vector,
    overall or by group.

    Args:
        table: table from :func:`dpgrain.read`.
        value: column of numbers. Rows without a finite value are dropped.
        other: the other numeric column. Rows without a finite number in both are dropped.
        by: column or columns to group by; if omitted, one answer for all rows.
        bounds: the public range (low, high) of ``value``, to which numbers are clamped.
        other_bounds: the same for ``other``.
        estimate_clipping: estimate the share of pairs outside of the bounds, with 5% of the budget;
            by default, it is not estimated.
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
        An :class:`~dpgrain.Estimates`. Its intervals contain all correlations that are compatible
        with the
        noisy covariance and deviations: from −1 to 1 if these are within the noise.

    Raises:
        ParameterError, SchemaError, DataError: as :func:`dpgrain.sum`.

    Formal guarantee: (ε, δ)-DP for one unit, for every table; it is post-processing of the sums of
    a covariance. Source: docs/theory, "Two numbers".

    >>> import pyarrow as pa
    >>> from dpgrain import User, read
    >>> table = read(pa.table({"who": [1, 1, 2], "x": [1, 2, 3], "y": [2, 2, 4]}), user="who")
    >>> release = correlation(table, "x", "y", bounds=(0, 4), other_bounds=(0, 4), unit=User(),
    ...                       epsilon=1, delta=1e-6)
    >>> -1 <= release.value <= 1
    True
    """
    return _query(
        CORRELATION, CorrelationQuery, table, (value, other), (bounds, other_bounds),
        estimate_clipping, by=by, promise=Promise.of(unit, epsilon, delta, relation, share),
        clip=clip, noise=noise, domain=domain, max_items=max_items, random_state=random_state,
        progress=progress,
    )  # fmt: skip


def _query(
    statistic: Statistic,
    kind: type[SumsQuery[Estimates]],
    table: UserTable,
    columns: tuple[str, str],
    stated: tuple[Any, Any],
    estimate_clipping: Any,
    **options: Any,
) -> Query[Estimates]:
    """Return the query for a statistic of the second moments of two columns."""
    if not isinstance(table, UserTable):
        reject_table(table, statistic.name)
    # Other errors are reported for the columns of the caller, before another one is added.
    by, own = options["by"], getattr(options["promise"].unit, "by", None)
    known = table.with_expressions(by, own)
    UnitBlocks.for_unit(options["promise"].unit, known, key_columns(known, by))
    ranges = [
        _range_of(name, each) for name, each in zip(("bounds", "other_bounds"), stated, strict=True)
    ]
    counted = _validate.boolean(estimate_clipping=estimate_clipping)
    rows, paired = paired_column(table, columns, ranges)
    unit = math.prod(high - low for low, high in ranges) if statistic is COVARIANCE else 1.0
    if not 0 < unit < math.inf:
        raise ParameterError(
            f"bounds must be narrower or wider, because the product of both widths is {unit:g}; "
            "rescale the columns.",
            name="bounds",
        )
    pair = (columns[0], *ranges[0], columns[1], *ranges[1])
    measure = SecondMoments(scale=unit, pair=pair)
    if counted:
        rows, distance = _with_distance(rows, columns, ranges)
        options |= {"estimate_clipping": True, "distance": distance}
    return kind.of(statistic, rows, value=paired, measure=measure, **options)


def _range_of(name: str, stated: Any) -> tuple[float, float]:
    """Return a stated range, or raise if it is not two numbers."""
    checked = None if stated is None else checked_bounds(stated)
    if checked is None or isinstance(checked, AutoRange):
        raise ParameterError(
            f"{name} must be two numbers (low, high), not {_validate.describe(stated)}, because no "
            "range is chosen privately for two columns at once.",
            name=name,
        )
    return checked


def paired_column(
    table: UserTable, columns: tuple[str, str], ranges: list[tuple[float, float]]
) -> tuple[UserTable, str]:
    """Return a table with a column of pairs of numbers, and the name of this column."""
    table = table.with_expressions(*columns)
    for name, role in zip(columns, ("value", "other"), strict=True):
        table.require_numbers([name], role)
    first, second = (_place(column, *ends) for column, ends in zip(columns, ranges, strict=True))
    node = CallNode("+", (CallNode("*", (first, ConstantNode(PAIRED + 1))), second))
    return _with_column(table, f"{columns[0]} and {columns[1]}", node)


def _with_distance(
    table: UserTable, columns: tuple[str, str], ranges: list[tuple[float, float]]
) -> tuple[UserTable, str]:
    """Return a table with a column that is 0 within both ranges, and above it outside."""
    first, second = (
        CallNode("abs", (CallNode("-", (ColumnNode(column), _clamped(column, *ends))),))
        for column, ends in zip(columns, ranges, strict=True)
    )
    farther = CallNode("least", (CallNode("greatest", (first, second)), ConstantNode(1.0)))
    return _with_column(table, f"distance of {columns[0]} and {columns[1]}", farther)


def _with_column(table: UserTable, name: str, node: Node) -> tuple[UserTable, str]:
    """Return a table with a column of an expression, and the new name of this column."""
    while table.has(name):
        name += " "
    return table._derived(name, CompiledExpression.compile(node, name, table.base_columns)), name


def _clamped(column: str, low: float, high: float) -> Node:
    """Return the expression of a clamped number."""
    above = CallNode("greatest", (ColumnNode(column), ConstantNode(low)))
    return CallNode("least", (above, ConstantNode(high)))


def _place(column: str, low: float, high: float) -> Node:
    """Return the expression of a number's position in its range, from 0 to 2^26 − 1."""
    # Clamp first, because a number divided by a narrow range may overflow.
    within = _clamped(column, low, high)
    share = CallNode("/", (CallNode("-", (within, ConstantNode(low))), ConstantNode(high - low)))
    return CallNode("floor", (CallNode("*", (share, ConstantNode(float(PAIRED)))),))


@dataclass(frozen=True, eq=False)
class _SecondMoments:
    """Second moments of two numbers in [0, 1], with the effect of each mass's noise."""

    count: FloatArray  # (V,) noisy
    known: FloatArray  # (V,) True for counts large enough to divide by
    covariance: FloatArray  # (V,)
    variances: FloatArray  # (2, V), at least 0
    by_mass: FloatArray  # (3, V, 9) derivatives of the covariance and both variances

    @staticmethod
    def create(measured: NoisySums) -> _SecondMoments:
        masses = measured.masses
        count = masses.sum(axis=1)
        known = count > _KNOWN * count_error(measured)
        divisor = np.where(known, count, np.inf)[:, None]
        x, y = PairMoments.places()
        functions = np.stack([x, y, *PairMoments.squares(), x * y])
        mean_x, mean_y, square_x, square_y, both = (
            (masses * function).sum(axis=1, keepdims=True) / divisor for function in functions
        )
        moves = [
            (x * y - both) - mean_x * (y - mean_y) - mean_y * (x - mean_x),
            (PairMoments.squares()[0] - square_x) - 2 * mean_x * (x - mean_x),
            (PairMoments.squares()[1] - square_y) - 2 * mean_y * (y - mean_y),
        ]
        variances = np.stack([square_x - mean_x**2, square_y - mean_y**2])[..., 0]
        return _SecondMoments(
            count,
            known,
            (both - mean_x * mean_y)[:, 0],
            np.clip(variances, 0.0, _LARGEST),
            np.stack(moves) / divisor,
        )


def count_error(measured: NoisySums) -> FloatArray:
    """Return the standard error of each count, (V,)."""
    return math.sqrt(measured.masses.shape[1]) * measured.sd


class CovarianceQuery(SumsQuery[Estimates]):
    """Query for covariances."""

    def release(self, measured: NoisySums) -> Estimates:
        """Return the covariances, with 95% intervals."""
        z, unit = half_width(self.noise), self.measure.unit_value(0.0, 1.0)
        moments = _SecondMoments.create(measured)
        # Project the matrix: a covariance is at most the geometric mean of the variances.
        most = np.sqrt(moments.variances.prod(axis=0))
        estimate = np.clip(moments.covariance, -most, most)
        error = np.linalg.norm(moments.by_mass[0], axis=1) * measured.sd
        half = np.where(moments.known, z * error, np.inf)
        return measured.as_estimates(
            unit * estimate,
            unit * np.where(moments.known, np.minimum(error, _LARGEST), _LARGEST),
            unit * np.maximum(np.minimum(moments.covariance - half, estimate), -_LARGEST),
            unit * np.minimum(np.maximum(moments.covariance + half, estimate), _LARGEST),
            moments.count,
            count_error(measured),
        )


class CorrelationQuery(SumsQuery[Estimates]):
    """Query for correlations."""

    def release(self, measured: NoisySums) -> Estimates:
        """Return the correlations, with 95% intervals."""
        moments = _SecondMoments.create(measured)
        (x, y), deviations = moments.variances, np.sqrt(moments.variances.prod(axis=0))
        errors = np.linalg.norm(moments.by_mass[1:], axis=2) * measured.sd
        # The root of a variance within its noise has no reliable derivative.
        reliable = moments.known & (moments.variances > _STANDS_OUT * errors).all(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            halves = np.stack([np.sqrt(y / x), np.sqrt(x / y)]) / 2
            moves = (halves[..., None] * moments.by_mass[1:]).sum(axis=0)
            ratio = np.clip(moments.covariance / deviations, -1.0, 1.0)
            error = np.linalg.norm(moments.by_mass[0] - ratio[:, None] * moves, axis=1) / deviations
        ratio = np.where(reliable, ratio, 0.0)
        moves = np.where(reliable[:, None], moves, 0.0)
        low, high = root_interval(
            moments.covariance,
            deviations,
            moments.by_mass[0],
            moves,
            half_width(self.noise) * measured.sd,
        )
        return measured.as_estimates(
            ratio,
            np.where(reliable, np.minimum(error * measured.sd, 1.0), 1.0),
            np.where(reliable, np.minimum(low, ratio), -1.0),
            np.where(reliable, np.maximum(high, ratio), 1.0),
            moments.count,
            count_error(measured),
        )
