"""Users by size of their contribution (``dg.elements_per_user``), to interpret ε(k)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from dpgrain import _validate
from dpgrain._progress import Progress
from dpgrain.accounting import Contribution
from dpgrain.accounting.calibration import calibrate_additive
from dpgrain.accounting.events.additive import ADDITIVE, Additive
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomState
from dpgrain.noise.additive_noise import noise_by_name
from dpgrain.publishing import Charge, Plan, Promise, Query, publishes
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.release_plan import Expected
from dpgrain.statistics.group_estimates import Histogram
from dpgrain.statistics.plan import guarantee_of, noise_sd
from dpgrain.statistics.release_metadata import ReleaseMetadata
from dpgrain.statistics.statistic import HOLDINGS
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.engines.per_user import derivation_facts, require_whole_users
from dpgrain.tables.groups import Groups
from dpgrain.tables.shared_table import reject_table
from dpgrain.tables.table import UserTable
from dpgrain.tables.user_sums import UserContributions, candidate_groups
from dpgrain.units import Element, Law, Record, Relation, Unit, User

_EDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


@dataclass(frozen=True, repr=False, eq=False)
class Holdings(Histogram):
    """Users by number of elements and of records; published by ``dg.elements_per_user``.

    The groups have two keys: ``held`` (``"elements"`` or ``"records"``) and ``at_most``, the
    largest number in the bin, which begins above the previous one; null means any larger number.

    >>> from dpgrain import Element, read
    >>> rows = pa.table({"who": [*range(900), *range(300)], "page": ["a"] * 900 + ["b"] * 300})
    >>> held = elements_per_user(
    ...     read(rows, user="who"), unit=Element("page"), epsilon=1.0, delta=1e-6, edges=[1, 2],
    ...     random_state=1)
    >>> round(held.share_at_most(1), 1), round(held.share_at_most(2), 1)
    (0.7, 1.0)
    """

    def share_at_most(self, most: int, held: Literal["elements", "records"] = "elements") -> float:
        """Return the noisy share of users with at most ``most`` elements or records.

        Args:
            most: an integer; the share includes the bins up to this number.
            held: ``"elements"`` or ``"records"``.

        Raises:
            ParameterError: if an argument is invalid.
        """
        most = _validate.integer(minimum=1, most=most)
        _validate.one_of(("elements", "records"), held=held)
        kinds, edges = (column.to_pylist() for column in self.groups.columns)
        mine = np.array([kind == held for kind in kinds])
        within = mine & np.array([edge is not None and edge <= most for edge in edges])
        total = float(self.estimate[mine].sum())
        share = float(self.estimate[within].sum()) / total if total > 0 else 0.0
        return min(max(share, 0.0), 1.0)


@publishes
def elements_per_user(
    table: UserTable,
    by: str | None = None,
    *,
    unit: Unit,
    epsilon: float | None = None,
    delta: float = 0.0,
    share: float | None = None,
    relation: Relation = "zero_out",
    edges: Sequence[int] = _EDGES,
    noise: Law = "gaussian",
    random_state: RandomState = None,
    progress: bool | None = None,
) -> Query[Holdings]:
    """Publish how many records and elements users have.

    A curve ε(k) states the guarantee for k elements of one person; this release shows how many
    people have more than k.

    Args:
        table: table from :func:`dpgrain.read`.
        by: the column of the elements; by default that of the unit's partition. A mapping or
            function becomes a column with :meth:`~dpgrain.UserTable.with_cells`. Rows without a
            value are dropped.
        unit: privacy unit: ``Record()``, ``Element(by)`` or ``User()``.
        epsilon: privacy parameter ε, such as 1; smaller protects more. Omit it if you pass
            ``share``.
        delta: privacy parameter δ, in (0, 1), such as 1e-6. Use 0 only with Laplace noise.
        share: share of the open budget, such as 0.5, instead of ε and δ; see
            :func:`dpgrain.budget`.
        relation: neighbouring relation: a unit is removed, ``zero_out``, or replaced by another,
            ``replace``.
        edges: the largest number in each bin, increasing; by default 1,2,5,10 and so on. They are
            public, and a last bin contains larger numbers.
        noise: the noise distribution; ``laplace`` needs no δ.
        random_state: seed, for tests and research. The release is then *not private*.
        progress: show progress; by default on a terminal, after two seconds.

    Raises:
        ParameterError, SchemaError: if a parameter or the schema is wrong, before anything is read.
        DataError: if the source cannot be read.

    Formal guarantee: (ε, δ)-DP for one unit. Each user is in one bin of elements and one of
    records, and any change of a user's data moves the user from two bins to at most two others: l2
    sensitivity √2 for a removal, 2 otherwise, for any number of changed elements. Source:
    docs/theory, "How much each user contributes".

    >>> import pyarrow as pa
    >>> from dpgrain import Element, read
    >>> table = read(pa.table({"who": [1, 1, 2], "page": ["a", "b", "a"]}), user="who")
    >>> held = elements_per_user(table, unit=Element("page"), epsilon=1, delta=1e-6, edges=[1, 2])
    >>> held.groups.columns[1].to_pylist()
    [1, 2, None, 1, 2, None]
    """
    promise = Promise.of(unit, epsilon, delta, relation, share).under(noise)
    if not isinstance(table, UserTable):
        reject_table(table, "elements_per_user")
    if table.user is None:
        raise ParameterError(
            "user is required, because elements are counted per user; pass the user id column.",
            name="user",
        )
    column = _element_column(by, unit)
    table = table.with_expressions(column, getattr(unit, "by", None))
    require_whole_users(table, unit)
    table.require_key(column, "by")
    whole = isinstance(unit, Record) or (isinstance(unit, User) and unit.max_elements is None)
    # The unit is named as in other statistics, so that their guarantees compose.
    blocks = UnitBlocks("user") if whole else UnitBlocks.for_unit(unit, table, (), column)
    limits = tuple(_checked_edges(edges))
    return HoldingsQuery(promise, table, column, blocks, limits, noise, random_state, progress)


@dataclass(frozen=True, eq=False, repr=False)
class HoldingsQuery(Query[Holdings]):
    """Query for the number of users by number of elements and of records."""

    promise: Promise
    table: UserTable
    column: str
    blocks: UnitBlocks  # the protected blocks
    edges: tuple[int, ...]
    noise: Law
    random_state: RandomState = None
    progress: bool | None = None

    @property
    def _size(self) -> float:
        """Norm of a user's block: 1 in a bin of elements and 1 in a bin of records."""
        return 2.0 if noise_by_name(self.noise).norm == "l1" else math.sqrt(2.0)

    @property
    def event(self) -> Additive:
        """Noise of the counts."""
        promise = self.promise
        return calibrate_additive(
            ADDITIVE[self.noise],
            promise.epsilon,
            promise.delta,
            contribution=Contribution(block="user", norm=noise_by_name(self.noise).norm),
            relation=promise.relation,
            unit=promise.plain_unit,
        )

    @property
    def plan(self) -> Plan:
        """Noise of the counts."""
        event, table = self.event, self.table
        facts = [Fact("bins"), *([Fact("partition")] if self.blocks.named else [])]
        if table.n_users is not None:
            facts.append(Fact("enrolled-users", (table.n_users,)))
        facts += derivation_facts(table)
        guarantee = guarantee_of(self.promise, self.blocks, table, event, facts)
        expected = Expected(noise_sd(event) * self._size)
        return Plan(guarantee, table.n_users, expected=expected, parts={"counts": event})

    def run(self, charge: Charge) -> Holdings:
        """Count users by number of elements and of records."""
        event, size = self.event, self._size
        bins = np.array([*self.edges, np.iinfo(np.int64).max], dtype=np.int64)
        with charge.open(self.table) as engine, Progress(2, self.progress) as progress:
            progress.stage("Counting")
            groups, blocks = candidate_groups(engine, (self.column,)), UnitBlocks("user")
            data = UserContributions(engine, blocks, groups, blocks.cells(groups, public=False))
            counts = data.holdings(bins).ravel()
        counts = charge.noisy(event, counts, size)
        kinds = pa.array(np.repeat(["elements", "records"], bins.size))
        at_most = pa.array([*self.edges, None] * 2, pa.int64())
        return Holdings(
            Groups.of(("held", "at_most"), (kinds, at_most)),
            counts.astype(np.float64),
            np.full(counts.size, noise_sd(event) * size),
            np.full(counts.size, size),
            charge.guarantee,
            ReleaseMetadata.of(
                HOLDINGS,
                self.table,
                self.promise,
                self.blocks,
                self.noise,
                by=(self.column,),
                each="user",
                cell="",
                max_elements=None,
            ),
            self.noise,
        )


def _element_column(by: str | None, unit: Any) -> str:
    if not isinstance(unit, Record | Element | User):
        raise ParameterError(
            f"unit must be Record(), Element(by) or User(), not {_validate.describe(unit)}."
        )
    column = by if by is not None or isinstance(unit, Record) else unit.by
    if column is None:
        raise ParameterError(
            "by is required; pass the column of the elements, such as by='page'.", name="by"
        )
    if not isinstance(column, str):
        raise ParameterError(
            "by must be the column of the elements, such as by='page', not "
            f"{_validate.describe(column)}; turn a mapping or a function into a column with "
            "table.with_cells(…).",
            name="by",
        )
    return column


def _checked_edges(edges: Any) -> list[int]:
    limits = _validate.integers(minimum=1, edges=edges)
    if not limits or any(b <= a for a, b in itertools.pairwise(limits)):
        raise ParameterError(f"edges must be increasing integers, not {_validate.describe(edges)}.")
    return limits
