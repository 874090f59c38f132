"""``dg.elements_per_user`` tells how much people hold, which readers of a curve ε(k) need to know."""

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
from dpgrain._wording import counted
from dpgrain.accounting import (
    Contribution,
    Gaussian,
    Laplace,
    calibrate_gaussian,
    calibrate_laplace,
)
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomState, source_of
from dpgrain.publishing import Promise, before_publishing
from dpgrain.publishing.expected import Expected
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.statistics.asked import Asked
from dpgrain.statistics.plan import noise_sd
from dpgrain.statistics.release import Histogram
from dpgrain.statistics.run import with_noise
from dpgrain.statistics.statistic import HOLDINGS
from dpgrain.tables.blocks import Blocks
from dpgrain.tables.engines.people import require_whole_users
from dpgrain.tables.groups import Groups
from dpgrain.tables.held import Contributions, candidates
from dpgrain.tables.table import UserTable
from dpgrain.units import Element, Record, Relation, Unit, User

_EDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


@dataclass(frozen=True, repr=False, eq=False)
class Holdings(Histogram):
    """Users counted by how many elements, and records, they hold; made by ``dg.elements_per_user``.

    The groups have two keys: ``held`` (``"elements"`` or ``"records"``) and ``at_most``, the largest
    number in the bin, which begins above the one before; null means any larger number.

    >>> from dpgrain import Element, read
    >>> rows = pa.table({"who": [*range(900), *range(300)], "page": ["a"] * 900 + ["b"] * 300})
    >>> held = elements_per_user(
    ...     read(rows, user="who"), unit=Element("page"), epsilon=1.0, delta=1e-6, edges=[1, 2],
    ...     random_state=1)
    >>> round(held.share_at_most(1), 1), round(held.share_at_most(2), 1)
    (0.7, 1.0)
    """

    def share_at_most(self, most: int, held: Literal["elements", "records"] = "elements") -> float:
        """Return the noisy share of users (among those that hold anything) who hold at most ``most``.

        Args:
            most: a whole number; the share is that of the bins which end there or before.
            held: ``"elements"`` or ``"records"``.

        Raises:
            ParameterError: if an argument is not one of these.
        """
        most = _validate.integer(minimum=1, most=most)
        _validate.one_of(("elements", "records"), held=held)
        kinds, edges = (column.to_pylist() for column in self.groups.columns)
        mine = np.array([kind == held for kind in kinds])
        within = mine & np.array([edge is not None and edge <= most for edge in edges])
        total = float(self.estimate[mine].sum())
        share = float(self.estimate[within].sum()) / total if total > 0 else 0.0
        return min(max(share, 0.0), 1.0)


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
    noise: Literal["gaussian", "laplace"] = "gaussian",
    random_state: RandomState = None,
    progress: bool | None = None,
) -> Holdings:
    """Publish how many elements, and how many records, the users hold.

    A curve ε(k) says what a release promises to k elements of one person; this says how many people
    hold more than k.

    Args:
        table: from :func:`dpgrain.read`.
        by: the column whose values are the elements; by default that of the unit's partition. A
            mapping or function becomes a column with :meth:`~dpgrain.UserTable.with_cells`. Rows
            without a value are left out.
        unit: what is protected.
        epsilon: the promised ε.
        delta: the promised δ.
        share: the share of the open budget, such as 0.5, in place of ε and δ; see
            :func:`dpgrain.budget`.
        relation: ``"zero_out"`` or ``"replace"``.
        edges: the largest number in each bin, increasing; public. A last bin takes what is larger.
        noise: ``"gaussian"`` or ``"laplace"``.
        random_state: a seed, for tests and research.
        progress: show progress.

    Raises:
        ParameterError, SchemaError: if a parameter or the schema is wrong, before anything is read.
        DataError: if the source cannot be read.

    Formal guarantee: (ε, δ)-DP for one unit. Each user stands in one bin of elements and one of
    records, and any change of a user's data moves him from two bins to two others at most: l2
    sensitivity √2 if he vanishes, 2 otherwise, however many elements change. Source: docs/theory,
    "How much people hold".

    >>> import pyarrow as pa
    >>> from dpgrain import Element, read
    >>> table = read(pa.table({"who": [1, 1, 2], "page": ["a", "b", "a"]}), user="who")
    >>> held = elements_per_user(table, unit=Element("page"), epsilon=1, delta=1e-6, edges=[1, 2])
    >>> held.groups.columns[1].to_pylist()
    [1, 2, None, 1, 2, None]
    """
    promise = Promise.of(unit, epsilon, delta, relation, share).under(noise)
    if not isinstance(table, UserTable):
        raise ParameterError(f"table must come from dg.read, not {type(table).__name__}.")
    if table.user is None:
        raise ParameterError(
            "elements_per_user needs to know whose a record is; give user= to dg.read."
        )
    column = _element_column(by, unit)
    require_whole_users(table, unit)
    table.require_key(column, "by")
    whole = isinstance(unit, Record) or (isinstance(unit, User) and unit.max_elements is None)
    # The unit gets the name that other statistics give it, so that their guarantees compose.
    own = Blocks("user") if whole else Blocks.of_unit(unit, table, (), column)
    named = own.named
    limits = _checked_edges(edges)
    laplace = noise == "laplace"
    # One in a bin of elements and one in a bin of records: the largest norm of a user's block.
    contribution = Contribution(block="user", norm="l1" if laplace else "l2")
    size = 2.0 if laplace else math.sqrt(2.0)

    def event_of(promise: Promise) -> Gaussian | Laplace:
        own = promise.plain_unit
        if laplace:
            return calibrate_laplace(
                promise.epsilon, contribution=contribution, relation=relation, unit=own
            )
        return calibrate_gaussian(
            promise.epsilon,
            promise.delta,
            contribution=contribution,
            relation=relation,
            unit=own,
        )

    promise = promise.settled(event_of)
    event = event_of(promise)
    source = source_of(random_state)
    facts = ["the bins", *(["the partition into elements"] if named else [])]
    if table.n_users is not None:
        facts.append(f"a roster of {counted(table.n_users, 'user')}")
    guarantee = Guarantee(
        promise.level,
        named,
        relation,
        promise.delta,
        event,
        tuple(facts),
        source.private,
        table.user,
        table.scope,
        own.partition,
        provenance=table.provenance,
    )
    sd = noise_sd(event) * size
    guarantee = before_publishing(
        guarantee, n_users=table.n_users, budget=promise.budget, expected=Expected(sd)
    )
    bins = np.array([*limits, np.iinfo(np.int64).max], dtype=np.int64)
    with table.open_engine() as engine, Progress(2, progress) as shown:
        shown.stage("Counting")
        held, blocks = candidates(engine, (column,)), Blocks("user")
        data = Contributions(engine, blocks, held, blocks.cells(held, public=False))
        counts = data.holdings(bins).ravel()
    scale = np.full(counts.size, event.noise_multiplier * size)
    counts = with_noise(event, counts, scale, source)
    kinds = np.repeat(["elements", "records"], bins.size)
    return Holdings(
        Groups.of(
            ("held", "at_most"), (pa.array(kinds), pa.array([*limits, None] * 2, pa.int64()))
        ),
        counts.astype(np.float64),
        np.full(counts.size, sd),
        np.full(counts.size, size),
        guarantee,
        Asked(
            HOLDINGS,
            title=table.source.title,
            by=(column,),
            each="user",
            unit=promise.level,
            elements=named,
            relation=relation,
            epsilon=promise.epsilon,
            delta=promise.delta,
            noise=noise,
            user=table.user,
            n_users=table.n_users,
        ),
        noise,
    )


def _element_column(by: str | None, unit: Any) -> str:
    if not isinstance(unit, Record | Element | User):
        raise ParameterError(f"unit must be Record(), Element(by) or User(), not {unit!r}.")
    column = by if by is not None or isinstance(unit, Record) else unit.by
    if not isinstance(column, str):
        raise ParameterError(
            "elements_per_user needs a partition: the column whose values are the elements, as "
            "unit=Element('page') or as its second argument; make one of a mapping or a function with "
            "table.with_cells(…)."
        )
    return column


def _checked_edges(edges: Any) -> list[int]:
    if isinstance(edges, str) or not hasattr(edges, "__iter__"):
        raise ParameterError(f"edges must be a list of whole numbers, not {edges!r}.")
    limits = [_validate.integer(minimum=1, edges=edge) for edge in edges]
    if not limits or any(b <= a for a, b in itertools.pairwise(limits)):
        raise ParameterError(f"edges must be increasing whole numbers, not {edges!r}.")
    return limits
