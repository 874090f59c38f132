"""Plans of promises: releases fixed in advance, composed exactly, each published at most once.

A planned release is charged to the plan and costs nothing of the caps. Proof: docs/theory,
"Budgets" and "Ledgers".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any

from dpgrain.accounting import Loss
from dpgrain.errors import ParameterError
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.unit_price import neighbours_for_unit
from dpgrain.scope.partitions import Partition
from dpgrain.units import Level, Relation


@lru_cache(maxsize=64)
def plan_loss(
    plan: tuple[Guarantee, ...], level: Level, cells: Partition | None, relation: Relation
) -> Loss:
    """Return the privacy loss of all planned releases together for one promised unit.

    Every unit is assumed to be affected by all of them. ``cells`` is the partition into promised
    elements; None for records and users.

    Raises:
        ParameterError: if the contribution of one promised unit to a release is unbounded, or a
            replaced unit's loss differs between the two orders of neighbours.
    """
    return sum((_loss(each, level, cells, relation) for each in plan), Loss())


def _loss(guarantee: Guarantee, level: Level, cells: Partition | None, relation: Relation) -> Loss:
    """Return the loss of one planned release for one promised unit."""
    neighbours = neighbours_for_unit(guarantee, level, cells, relation)
    loss = guarantee.event.loss(neighbours.units, neighbours.relation, neighbours.unit)
    pairs = [pair for way in loss.alternatives for pair, _ in way.pairs]
    # A replacement can remove data from one release and add data to another, which mixes the orders
    # of neighbours. A symmetric pair of distributions is valid in both orders.
    if neighbours.relation == "replace" and any(pair.swapped != pair for pair in pairs):
        raise ParameterError(
            f"plan must not contain {type(guarantee.event).__name__} if data are replaced, "
            "because its loss differs between the two orders of neighbours; omit it, and it is "
            "charged when it is published."
        )
    return loss


def scope_key(guarantee: Guarantee) -> Any:
    """Return a key that is equal for releases that affect the same units of the same records."""
    return (
        guarantee.level,
        guarantee.elements,
        guarantee.relation,
        guarantee.user,
        guarantee.partition,
        guarantee.scope,
    )


def split_planned(
    plan: Sequence[Guarantee], guarantees: Iterable[Guarantee], taken: Collection[int]
) -> tuple[dict[int, Guarantee], list[Guarantee]]:
    """Split releases into planned ones, by index in the plan, and charged ones.

    ``taken`` are the indices of releases that were already published. A release is planned if its
    event, units, users, partition, relation and region are those of an unused release of the plan.
    """
    free = defaultdict[Any, list[int]](list)
    for place in reversed(range(len(plan))):
        if place not in taken:
            free[scope_key(plan[place]), plan[place].event].append(place)
    planned, others = dict[int, Guarantee](), []
    for one in guarantees:
        if places := free.get((scope_key(one), one.event)):
            planned[places.pop()] = one
        else:
            others.append(one)
    return planned, others
