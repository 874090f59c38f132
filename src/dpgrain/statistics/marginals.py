"""Marginals of several columns that agree (``dg.marginals``)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, Self, cast

import numpy as np
import pyarrow as pa

from dpgrain import _validate
from dpgrain._progress import Progress
from dpgrain._types import BoolArray, FloatArray, IntArray
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.accounting.calibration import gaussian_multipliers
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomState
from dpgrain.publishing import Charge, Plan, Promise, Query, publishes
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.release_plan import Expected, Times, compose
from dpgrain.statistics.bounds import AutoClip, choose_bounds
from dpgrain.statistics.group_estimates import Histogram
from dpgrain.statistics.intervals import ClippedUnits, at_least
from dpgrain.statistics.plan import clip_rule, guarantee_of
from dpgrain.statistics.release_metadata import Clip, ReleaseMetadata
from dpgrain.statistics.residuals import Columns, Residuals
from dpgrain.statistics.statistic import Statistic, register
from dpgrain.statistics.sums_query import By, key_columns
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.domain import GroupDomain, public_domain
from dpgrain.tables.engines.per_user import derivation_facts
from dpgrain.tables.groups import Groups
from dpgrain.tables.marginal_sums import IntPair, UnitRows, read_unit_rows
from dpgrain.tables.shared_table import reject_table
from dpgrain.tables.table import UserTable
from dpgrain.units import Relation, Unit
from dpgrain.words.notes import Note

# Most cells of all marginals, columns of a marginal, and measured residuals.
_MOST_CELLS, _MOST_COLUMNS, _MOST_RESIDUALS = 10_000_000, 8, 10_000
# Budget shares of the sum at equal size, of counts of norms if the caller sets none, and of the count
# of clipped units. Together they raise the noise by 5%.
_ALIGN_SHARE, _BOUND_SHARE, _CLIPPED_SHARE = 0.02, 0.06, 0.01
# Parts that are sums of records.
_SUMS = ("alignment", "sums")
_UNSEEN: Note = ("no-bound",)

MARGINALS = register(
    Statistic(
        "marginals",
        "Numbers of records by the values of several columns, which agree with each other",
        title="marginals of",
        estimate="records",
        stacked=True,
    )
)


@dataclass(frozen=True, repr=False, eq=False)
class Marginals(Histogram):
    """Marginals of several columns, which agree; published by ``dg.marginals``.

    The groups are the cells of all marginals of the workload, one after the other. A key is null
    in the marginals without its column.

    Args:
        workload: the columns of each marginal, in the order of the rows.
        residual_errors: the columns of each measured residual, with the standard error of its
            noise.
        clipped_share: 95% upper limit on the share of clipped units; None if nothing can be clipped.

    >>> from dpgrain import User, read
    >>> rows = pa.table({"who": [*range(900)], "city": ["A", "B", "B"] * 300, "late": [0, 1] * 450})
    >>> release = marginals(read(rows, user="who"), ["city", "late"], unit=User(), epsilon=1.0,
    ...     delta=1e-6, domain={"city": ["A", "B"], "late": [0, 1]}, random_state=1)
    >>> release.marginal("city").estimate.round(-2).tolist()
    [300.0, 600.0]
    """

    workload: Sequence[Sequence[str]] = ()
    residual_errors: Sequence[tuple[Sequence[str], float]] = ()
    clipped_share: float | None = None

    def _about(self) -> dict[str, Any]:
        return {
            **super()._about(),
            "workload": [list(one) for one in self.workload],
            "residual_errors": [[list(one), sd] for one, sd in self.residual_errors],
            "clipped_share": self.clipped_share,
        }

    def _taken(self, places: IntArray) -> Self:
        # Some rows have no marginals.
        own = {each.name: getattr(self, each.name) for each in fields(Histogram)}
        return cast("Self", Histogram(**own)._taken(places))

    @cached_property
    def domain(self) -> dict[str, pa.Array]:
        """Public values of each column."""
        return {
            name: column.drop_null().unique()
            for name, column in zip(self.groups.names, self.groups.columns, strict=True)
        }

    def marginal(self, *columns: str) -> Histogram:
        """Return the marginal of some columns; without columns, the total.

        Args:
            columns: columns of one marginal of the workload, in any order.

        Raises:
            ParameterError: if no marginal of the workload has all of them.

        >>> from dpgrain import User, read
        >>> rows = pa.table({"who": [1, 2], "city": ["A", "B"], "late": [0, 1]})
        >>> release = marginals(read(rows, user="who"), ["city", "late"], unit=User(), epsilon=1.0,
        ...     delta=1e-6, domain={"city": ["A", "B"], "late": [0, 1]})
        >>> release.marginal("late", "city").pivot("late", "city").shape
        (2, 2)
        """
        whole, start = self._containing("columns", columns, columns)
        sizes = [len(self.domain[name]) for name in whole]
        part = slice(start, start + math.prod(sizes))
        dropped = tuple(at for at, name in enumerate(whole) if name not in columns)
        kept = [name for name in whole if name in columns]
        table = self.estimate[part].reshape(sizes).sum(axis=dropped)
        estimate = table.transpose([kept.index(name) for name in columns]).ravel()
        error = np.full(estimate.size, math.sqrt(self._covariance(columns, columns, columns)))
        metadata = replace(
            self.metadata, by=columns, public_items=estimate.size if columns else None
        )
        return Histogram(
            Groups.product(columns, [self.domain[name] for name in columns])
            if columns
            else Groups.of((), ()),
            estimate,
            error,
            np.full(estimate.size, self.clip[0]),
            self.guarantee,
            metadata,
            self.noise,
            at_least=None if self.at_least is None else at_least(estimate, error, self.noise),
        )

    def covariance(self, one: Sequence[str], two: Sequence[str] | None = None) -> FloatArray:
        """Return the covariance of the noise of the cells of two marginals, (cells, cells).

        Args:
            one: the columns of a marginal, as for :meth:`marginal`.
            two: those of another marginal; by default the same.

        Raises:
            ParameterError: if no marginal of the workload has all of the columns.

        >>> from dpgrain import User, read
        >>> rows = pa.table({"who": [1, 2], "city": ["A", "B"], "late": [0, 1]})
        >>> release = marginals(read(rows, user="who"), ["city", "late"], unit=User(), epsilon=1.0,
        ...     delta=1e-6, domain={"city": ["A", "B"], "late": [0, 1]})
        >>> matrix = release.covariance(["city"])
        >>> bool(np.allclose(np.sqrt(np.diag(matrix)), release.marginal("city").std_error))
        True
        """
        first = tuple(map(str, _validate.sequence(one=one)))
        second = first if two is None else tuple(map(str, _validate.sequence(two=two)))
        self._containing("one", first, one)
        self._containing("two", second, two)
        shapes = [[len(self.domain[name]) for name in names] for names in (first, second)]
        places = [np.indices(one).reshape(len(one), math.prod(one)) for one in shapes]
        common = [name for name in first if name in second]
        matrix = np.zeros([math.prod(shape) for shape in shapes])
        same = [
            places[0][first.index(name)][:, None] == places[1][second.index(name)]
            for name in common
        ]
        for number in range(len(common) + 1):
            for equal in itertools.combinations(range(len(common)), number):
                here = np.ones(matrix.shape, dtype=np.bool_)
                for at, agrees in enumerate(same):
                    here &= agrees if at in equal else ~agrees
                names = [common[at] for at in equal]
                matrix[here] = self._covariance(first, second, names)
        return matrix

    def to_mbi(self) -> list[dict[str, Any]]:
        """Return each marginal as a dictionary, for the measurements of private-pgm (mbi).

        It has the keys ``clique`` (columns), ``domain`` (column → number of values), ``values``
        (noisy counts, (cells,)) and ``stddev`` (standard error of each count). The noise of
        different counts is correlated, which private-pgm ignores.
        """
        measurements, start = [], 0
        for columns in self.workload:
            sizes = {name: len(self.domain[name]) for name in columns}
            stop = start + math.prod(sizes.values())
            measurements.append(
                {
                    "clique": tuple(columns),
                    "domain": sizes,
                    "values": self.estimate[start:stop].copy(),
                    "stddev": float(self.std_error[start]),
                }
            )
            start = stop
        return measurements

    def _containing(
        self, name: str, columns: Sequence[str], stated: object
    ) -> tuple[Sequence[str], int]:
        """Return a marginal of the workload with these columns, and its first row."""
        known = all(isinstance(column, str) for column in columns)
        start, found = 0, None
        for whole in self.workload:
            if found is None and known and set(columns) <= set(whole):
                found = whole, start
            start += math.prod(len(self.domain[column]) for column in whole)
        if found is None or len(set(columns)) < len(columns):
            listed = "; ".join(", ".join(one) for one in self.workload[:6])
            raise ParameterError(
                f"{name} must be different columns of one marginal of the workload ({listed}"
                f"{'; …' if len(self.workload) > 6 else ''}), not {_validate.describe(stated)}.",
                name=name,
            )
        if self.nonnegative or self.metadata.processed:
            raise ParameterError(
                "marginal requires answers that agree; call it before other post-processing."
            )
        return found

    def _covariance(self, one: Sequence[str], two: Sequence[str], equal: Sequence[str]) -> float:
        """Return the covariance of cells of two marginals that agree in some columns."""
        sizes = {name: len(values) for name, values in self.domain.items()}
        total = 0.0
        for part, sd in self.residual_errors:
            if set(part) <= set(one) and set(part) <= set(two):
                near = math.prod((name in equal) - 1 / sizes[name] for name in part)
                others = [1 / sizes[name] for name in (*one, *two) if name not in part]
                total += sd**2 * near * math.prod(others)
        return total


@publishes
def marginals(
    table: UserTable,
    by: By,
    *,
    workload: Literal["pairs"] | Sequence[Any] = "pairs",
    domain: Any = None,
    unit: Unit,
    epsilon: float | None = None,
    delta: float = 0.0,
    share: float | None = None,
    relation: Relation = "zero_out",
    clip: float | Literal["auto"] | AutoClip = "auto",
    random_state: RandomState = None,
    progress: bool | None = None,
) -> Query[Marginals]:
    """Publish tables of counts by several columns, which agree.

    A marginal is a table of counts by one or more of the columns. Its sums over any column are
    equal to those of every other marginal.

    Args:
        table: table from :func:`dpgrain.read`.
        by: the columns. Rows with a value outside of the domain, in any of them, are dropped.
        workload: the marginals: ``pairs`` of all columns, or a list of marginals, each a list of
            columns, or a text such as ``region,age``.
        domain: public values of each column, as a mapping from columns to values. Columns of cells
            and expressions with known values need none.
        unit: privacy unit: ``Record()``, ``Element(by)`` or ``User()``.
        epsilon: privacy parameter ε, such as 1; smaller protects more. Omit it if you pass
            ``share``.
        delta: privacy parameter δ, in (0, 1), such as 1e-6.
        share: share of the open budget, such as 0.5, instead of ε and δ; see
            :func:`dpgrain.budget`.
        relation: neighbouring relation: a unit is removed, ``zero_out``, or replaced by another,
            ``replace``.
        clip: clipping bound of a unit's records, a number or ``auto``, which chooses it privately
            with a share of the budget. It bounds the norm in which noise is added: one record has
            norm 1, m equal records have norm m, and different records less.
        random_state: seed, for tests and research. The release is then *not private*.
        progress: show progress; by default on a terminal, after two seconds.

    Returns:
        A :class:`~dpgrain.Marginals`; ``release.marginal("region", "age")`` is one of its
        marginals.

    Raises:
        ParameterError, SchemaError: if a parameter or the schema is wrong, before anything is read.
        DataError: if the source cannot be read.

    Formal guarantee: (ε, δ)-DP for one unit, for every table: each unit's records are weighted so
    that its norm is at most the clipping bound, in integers. Source: Xiao, He, Zhang and Kifer,
    *An Optimal and Scalable Matrix Mechanism for Noisy Marginals under Convex Loss Functions*
    (2023), with clipping by unit; docs/theory, "Marginals".

    >>> from dpgrain import User, read
    >>> rows = pa.table({"who": [1, 2, 2], "city": ["A", "B", "B"], "late": [0, 0, 1]})
    >>> release = marginals(read(rows, user="who"), ["city", "late"], unit=User(), epsilon=1.0,
    ...     delta=1e-6, domain={"city": ["A", "B"], "late": [0, 1]})
    >>> total = release.marginal().value
    >>> bool(np.isclose(release.marginal("late").estimate.sum(), total))
    True
    """
    promise = Promise.of(unit, epsilon, delta, relation, share).under("gaussian")
    if not isinstance(table, UserTable):
        reject_table(table, "marginals")
    table = table.with_expressions(by, getattr(unit, "by", None))
    keys = key_columns(table, by)
    if not keys:
        raise ParameterError("by must be a list of columns, not empty.", name="by")
    blocks = UnitBlocks.for_unit(unit, table, ())
    known = _whole_domain(domain, blocks, table, keys)
    wanted = _parse_marginals(workload, keys, known.public)
    rule = clip_rule(clip)
    if blocks.has_one_row and isinstance(rule, AutoClip):
        # The norm of a record.
        rule = 1.0
    query = MarginalsQuery(
        promise, table, keys, known, wanted, blocks, rule, random_state, progress
    )
    query.check_bound()
    return query


def _whole_domain(
    domain: Any, blocks: UnitBlocks, table: UserTable, keys: tuple[str, ...]
) -> GroupDomain:
    """Return the public values of every column."""
    if isinstance(domain, Mapping) and set(domain) <= set(keys):
        domain = {**public_domain(None, blocks, table, keys).public, **domain}
    known = public_domain(domain, blocks, table, keys)
    if known.listed is not None:
        raise ParameterError(
            "domain must be a mapping from columns to values, not a list of groups.", name="domain"
        )
    if known.selected:
        raise ParameterError(
            f"domain must have the values of {known.selected[0]!r}, because marginals require public "
            f"domains; pass domain={{{known.selected[0]!r}: […]}}.",
            name="domain",
        )
    return known


def _parse_marginals(
    workload: Any, keys: tuple[str, ...], values: Mapping[str, pa.Array]
) -> tuple[tuple[str, ...], ...]:
    """Return the columns of each marginal of a workload, in the order of the columns."""
    words = workload if isinstance(workload, list | tuple) else [workload]
    if len(words) == 1 and isinstance(words[0], str) and words[0] == "pairs":
        wanted = list(itertools.combinations(keys, min(2, len(keys))))
    else:
        # Items of an array, which may be a column of rows, must not be quoted.
        listed = workload if isinstance(workload, list | tuple) else ()
        wanted = [_parse_marginal(one, keys) for one in listed]
    if not wanted or len(set(wanted)) < len(wanted):
        raise ParameterError(
            "workload must be 'pairs' or a list of different marginals, not "
            f"{_validate.describe(workload)}.",
            name="workload",
        )
    cells = sum(math.prod(len(values[key]) for key in marginal) for marginal in wanted)
    if cells > _MOST_CELLS:
        raise ParameterError(
            f"workload must have at most {_MOST_CELLS:,} cells, not {cells:,}; pass fewer marginals, "
            "or shorter domains.",
            name="workload",
        )
    if max(map(len, wanted)) > _MOST_COLUMNS:
        raise ParameterError(
            f"workload must have marginals of at most {_MOST_COLUMNS} columns, not "
            f"{max(map(len, wanted))}.",
            name="workload",
        )
    if len({part for one in wanted for part in _parts(one)}) > _MOST_RESIDUALS:
        raise ParameterError(
            f"workload must have at most {_MOST_RESIDUALS:,} different sets of columns within its "
            "marginals; pass fewer marginals.",
            name="workload",
        )
    return tuple(wanted)


def _parts(marginal: tuple[str, ...]) -> list[tuple[str, ...]]:
    sizes = range(len(marginal) + 1)
    return [part for size in sizes for part in itertools.combinations(marginal, size)]


def _parse_marginal(stated: Any, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns of one marginal: a list, a column, or names with commas."""
    names = stated
    if isinstance(stated, str):
        names = [stated] if stated in keys else [name.strip() for name in stated.split(",")]
    if not isinstance(names, list | tuple) or not names:
        raise ParameterError(
            "workload must be 'pairs' or a list of marginals, each a list of columns, not "
            f"{_validate.describe(stated)}.",
            name="workload",
        )
    unknown = [name for name in names if not isinstance(name, str) or name not in keys]
    if unknown or len(set(names)) < len(names):
        raise ParameterError(
            f"workload must have different columns of by ({', '.join(keys)}) in each marginal, not "
            f"{_validate.describe(unknown[0] if unknown else stated)}.",
            name="workload",
        )
    return tuple(key for key in keys if key in names)


@dataclass(frozen=True, eq=False, repr=False)
class MarginalsQuery(Query[Marginals]):
    """Query for marginals that agree."""

    promise: Promise
    table: UserTable
    keys: tuple[str, ...]
    domain: GroupDomain
    workload: tuple[tuple[str, ...], ...]  # columns of each marginal
    blocks: UnitBlocks
    rule: float | AutoClip
    random_state: RandomState = None
    progress: bool | None = None

    @cached_property
    def values(self) -> dict[str, pa.Array]:
        """Public values of each column, in the order of the columns."""
        return {key: self.domain.public[key] for key in self.keys}

    @cached_property
    def marginals(self) -> tuple[Columns, ...]:
        """Indices of the columns of each marginal."""
        return tuple(tuple(self.keys.index(key) for key in one) for one in self.workload)

    @cached_property
    def residuals(self) -> Residuals:
        """Residuals with their noise scales, for the fewest squared errors at this relation."""
        sizes = [len(self.values[key]) for key in self.keys]
        # Units with non-negative inner products are √2 apart, and others 2.
        return Residuals.create(
            sizes, self.marginals, nonnegative=self.promise.relation == "replace"
        )

    @property
    def is_clipped(self) -> bool:
        """True if a unit may exceed the bound."""
        return not (self.blocks.has_one_row and self.rule >= 1.0)  # type: ignore[operator]

    @cached_property
    def contribution(self) -> Contribution:
        """Contribution of one unit to the contrasts, which elements of one user share."""
        cells, scope = None, self.table.scope
        if self.blocks.partition is not None and not scope.everything:
            cells = self.blocks.partition.cells_in(scope)
        made = self.blocks.contribution("l2", cells=cells)
        return made if self.residuals.is_nonnegative else replace(made, coordinates="signed")

    @cached_property
    def events(self) -> dict[str, Gaussian]:
        """Calibrated noise of each part, from public numbers only."""
        promise, shares, left = self.promise, dict[str, float](), 1.0
        if isinstance(self.rule, AutoClip):
            shares["bounds"] = self.rule.share or _BOUND_SHARE
            left -= shares["bounds"]
            shares["alignment"] = left * _ALIGN_SHARE
        if self.is_clipped:
            shares["clipped share"] = left * _CLIPPED_SHARE
        shares["sums"] = 1 - math.fsum(shares.values())
        counted = replace(self.contribution, coordinates="nonnegative")
        parts = {name: self.contribution if name in _SUMS else counted for name in shares}
        multipliers = gaussian_multipliers(
            promise.epsilon,
            promise.delta,
            list(parts.values()),
            list(shares.values()),
            promise.relation,
            promise.plain_unit,
        )
        return {
            name: Gaussian(multiplier, part)
            for (name, part), multiplier in zip(parts.items(), multipliers, strict=True)
        }

    def check_bound(self) -> None:
        """Raise ParameterError if no noise can be drawn for a stated bound."""
        if isinstance(self.rule, AutoClip):
            return
        if self.blocks.block == "record" and self.rule < 1:
            raise ParameterError(
                "clip must be at least 1 for Record(), the norm of one record; omit clip.",
                name="clip",
            )
        if self.rule > (most := self.largest_bound):
            raise ParameterError(
                f"clip must be at most {most:,.6g} for these domains, not {self.rule:,.6g}.",
                name="clip",
            )

    @property
    def largest_bound(self) -> float:
        """Largest bound for which noise can be drawn."""
        noise = (
            self.events[part].noise_multiplier
            for part in ("alignment", "sums")
            if part in self.events
        )
        return self.residuals.largest_bound(max(noise))

    @property
    def plan(self) -> Plan:
        """All parts, calibrated from public numbers only."""
        events, blocks, table = self.events, self.blocks, self.table
        facts = [Fact("values", (len(values), key)) for key, values in self.values.items()]
        facts.append(Fact("stated", (f"the list of {len(self.workload):,} marginals",)))
        if blocks.named:
            facts.append(Fact("partition"))
        if blocks.max_elements is not None:
            facts.append(Fact("elements-used", (blocks.max_elements,)))
        if table.n_users is not None:
            facts.append(Fact("enrolled-users", (table.n_users,)))
        facts += [*derivation_facts(table), self._bound_fact]
        guarantee = guarantee_of(self.promise, blocks, table, compose(events), facts)
        times: tuple[Times, ...] = ("bounds",) if isinstance(self.rule, AutoClip) else ()
        bound = 1.0 if isinstance(self.rule, AutoClip) else self.rule
        cells = sum(math.prod(len(self.values[key]) for key in one) for one in self.workload)
        mean = self.residuals.noise_energy()[0] / cells
        error = math.sqrt(mean) * events["sums"].noise_multiplier * bound
        expected = Expected(error, times, unit="records")
        return Plan(
            guarantee,
            table.n_users,
            self.contribution.cells or 1,
            expected,
            parts=events,
            groups=cells,
        )

    @property
    def _bound_fact(self) -> Fact:
        if not isinstance(self.rule, AutoClip):
            kind = "clipping-bound" if self.is_clipped else "unclipped"
            return Fact(kind, (self.rule,) if self.is_clipped else (self.promise.level, self.rule))
        share = self.rule.share or _BOUND_SHARE
        return Fact("chosen-bounds", (self.rule.low, self.rule.high, share))

    def run(self, charge: Charge) -> Marginals:
        """Arrange rows by unit, choose the bound, clip, add noise and compute answers."""
        with charge.open(self.table) as engine, Progress(4, self.progress) as progress:
            progress.stage("Reading rows")
            rows = read_unit_rows(engine, self.promise.unit, self.blocks.cell_column, self.values)
            progress.stage("Computing norms")
            sizes = self.residuals.sizes
            squares = rows.squared_norms(self.residuals.coefficients, sizes)
            bound, care = self._bound(rows, squares, charge)
            progress.stage("Adding up")
            noisy, weights = self._noisy("sums", rows, squares, bound, charge)
            progress.stage("Adding noise")
            clipped = self._clipped_share(weights, charge) if self.is_clipped else None
        return self._release(noisy, bound, care, clipped, charge)

    def _noisy(
        self, part: str, rows: UnitRows, squares: IntPair, bound: float, charge: Charge
    ) -> tuple[FloatArray, BoolArray]:
        """Return the noisy contrasts of clipped units, (d,), and a mask of clipped units."""
        residuals, event = self.residuals, self.events[part]
        bits = residuals.weight_bits(bound, event.noise_multiplier)
        weights = rows.weights(squares, bound, bits, residuals.norm_bits)
        sums = residuals.measure(rows.tables(weights, self.marginals, residuals.sizes))
        # Modulo 2^64, like the sums: post-processing of unbounded addition.
        noisy = charge.noisy(event, sums, residuals.radius(bound, bits))
        return noisy * 2.0**-bits, weights < 1 << bits

    def _bound(
        self, rows: UnitRows, squares: IntPair, charge: Charge
    ) -> tuple[float, tuple[Note, ...]]:
        """Return the clipping bound, chosen from noisy counts of norms, with any warning."""
        rule, residuals, events = self.rule, self.residuals, self.events
        if not isinstance(rule, AutoClip):
            return rule, ()
        edges = rule.edges(cells=1)
        bins = np.searchsorted(edges[1:], squares.roots(residuals.norm_bits))
        counts = np.bincount(np.minimum(bins, edges.size - 2), minlength=edges.size - 1)
        noisy = charge.noisy(events["bounds"], counts.astype(np.int64)).astype(np.float64)
        most = min(rule.high, self.largest_bound)
        equal, _ = self._noisy("alignment", rows, squares, min(rule.low, most), charge)
        multiplier = events["sums"].noise_multiplier
        chosen = choose_bounds(
            noisy[None, :],
            edges,
            events["bounds"].noise_multiplier,
            np.array([residuals.noise_energy()[0] / len(self.workload)]),
            multiplier / self._alignment(equal, max(float(noisy.sum()), 1.0), rule.low),
        ).within(0.0, most)
        return float(chosen.bounds[0]), () if chosen.seen.all() else (_UNSEEN,)

    def _alignment(self, equal: FloatArray, units: float, bound: float) -> float:
        """Return the size of the sum of units of equal norm ÷ its size for identical units."""
        mean, spread = self.residuals.noise_energy()
        variance = (self.events["alignment"].noise_multiplier * bound) ** 2
        energy = self.residuals.energy(equal) - variance * mean
        size = math.sqrt(max(energy + variance * spread, 0.0) / len(self.workload))
        return min(max(size / (units * bound), 1 / math.sqrt(units)), 1.0)

    def _clipped_share(self, clipped: BoolArray, charge: Charge) -> float:
        """Return the 95% upper limit on the share of clipped units, from noisy numbers."""
        event = self.events["clipped share"]
        counts = np.array([clipped.sum(), (~clipped).sum()], dtype=np.int64)
        noisy = charge.noisy(event, counts).astype(np.float64)
        return float(ClippedUnits(noisy[1:], noisy[:1], event.noise_multiplier).high[0])

    def _release(
        self,
        noisy: FloatArray,
        bound: float,
        care: tuple[Note, ...],
        clipped: float | None,
        charge: Charge,
    ) -> Marginals:
        """Return the answers to all marginals: free post-processing."""
        residuals, scale = self.residuals, self.events["sums"].noise_multiplier * bound
        parts = residuals.split(noisy)
        answers = [residuals.answer(parts, one).ravel() for one in self.marginals]
        estimate = np.concatenate(answers)
        errors = [scale * math.sqrt(residuals.variance(one)) for one in self.marginals]
        std_error = np.repeat(errors, [one.size for one in answers])
        groups = stacked_groups(self.values, self.workload)
        auto = isinstance(self.rule, AutoClip)
        metadata = ReleaseMetadata.of(
            MARGINALS,
            self.table,
            self.promise,
            self.blocks,
            "gaussian",
            by=self.keys,
            public_items=len(groups),
            clip=Clip(None if auto else bound, "release", self.is_clipped),
            bound=bound if auto else None,
            clipped=clipped,
            care=care,
        )
        return Marginals(
            groups,
            estimate,
            std_error,
            np.full(estimate.size, bound),
            charge.guarantee,
            metadata,
            at_least=at_least(estimate, std_error, "gaussian") if self.is_clipped else None,
            workload=self.workload,
            residual_errors=tuple(
                (tuple(self.keys[i] for i in part), scale / math.sqrt(precision))
                for part, precision in residuals.precisions.items()
            ),
            clipped_share=clipped,
        )


def stacked_groups(values: Mapping[str, pa.Array], workload: Sequence[Sequence[str]]) -> Groups:
    """Return the cells of all marginals in turn, with null keys for other columns."""
    tables = [Groups.product(one, [values[key] for key in one]) for one in workload]
    columns = [
        pa.concat_arrays(
            [
                table.columns[table.names.index(key)]
                if key in table.names
                else pa.nulls(len(table), array.type)
                for table in tables
            ]
        )
        for key, array in values.items()
    ]
    return Groups.of(tuple(values), columns)
