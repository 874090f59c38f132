"""The plan of a promise: releases fixed when it is made, composed exactly, each made once.

A planned release that is made is taken out of the plan and takes nothing of the caps. Proof:
docs/theory, "Budgets" and "Ledgers".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any

from dpgrain.accounting import Loss
from dpgrain.errors import ParameterError
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.unit_price import query_for_unit
from dpgrain.scope.partitions import Partition
from dpgrain.units import Level, Relation


@lru_cache(maxsize=64)
def loss_of(
    plan: tuple[Guarantee, ...], level: Level, cells: Partition | None, relation: Relation
) -> Loss:
    """Return the privacy loss of all planned releases together for one promised unit.

    Args:
        plan: the guarantees of the planned releases. Every unit is taken to meet all of them.
        level: the promised unit.
        cells: the partition into promised elements; None for records and users.
        relation: the neighbouring relation of the promise.

    Raises:
        ParameterError: if nothing bounds what one promised unit adds to a release, or the release
            has no one pair for both orders of exchanged data.
    """
    return sum((_loss(each, level, cells, relation) for each in plan), Loss())


def _loss(guarantee: Guarantee, level: Level, cells: Partition | None, relation: Relation) -> Loss:
    """Return the loss of one planned release for one promised unit."""
    asked = query_for_unit(guarantee, level, cells, relation)
    loss = guarantee.event.loss(asked.units, asked.relation, asked.unit)
    pairs = [pair for way in loss.alternatives for pair, _ in way.pairs]
    # An exchange may remove something from one release and add it to another, so that the orders of
    # the neighbours mix; a pair that is its own mirror image holds for both.
    if asked.relation == "replace" and any(pair.swapped != pair for pair in pairs):
        raise ParameterError(
            f"plan must not contain {type(guarantee.event).__name__} if data are replaced, "
            "because its loss differs between the two orders of neighbours; omit it, and it is "
            "charged when it is published."
        )
    return loss


def about(guarantee: Guarantee) -> Any:
    """Return what must be the same of releases that are about the same units of the same records."""
    return (
        guarantee.level,
        guarantee.elements,
        guarantee.relation,
        guarantee.user,
        guarantee.partition,
        guarantee.scope,
    )


def taken_out(
    plan: Sequence[Guarantee], guarantees: Iterable[Guarantee], taken: Collection[int]
) -> tuple[dict[int, Guarantee], list[Guarantee]]:
    """Divide releases into those that a plan still holds, and those that are charged.

    Args:
        plan: the guarantees of the planned releases.
        guarantees: the guarantees of the releases that are about to be made.
        taken: the places in the plan of those that were made before.

    Returns:
        The planned releases by their places in the plan, and the others. A release is a planned one if
        its event, units, users, partition, relation and region are the same.
    """
    free = defaultdict[Any, list[int]](list)
    for place in reversed(range(len(plan))):
        if place not in taken:
            free[about(plan[place]), plan[place].event].append(place)
    planned, others = dict[int, Guarantee](), []
    for one in guarantees:
        if places := free.get((about(one), one.event)):
            planned[places.pop()] = one
        else:
            others.append(one)
    return planned, others
