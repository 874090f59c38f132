"""Sampling rate of blocks, and guarantee of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from dpgrain import _validate
from dpgrain.accounting import Event
from dpgrain.errors import ParameterError
from dpgrain.inputs.codes import label_name, object_token
from dpgrain.publishing.facts import Fact, unique_facts
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.origins import ArrayOrigin, current_origin
from dpgrain.publishing.promise import Promise

Sampling: TypeAlias = Literal["pairs", "users", "full"]

# Maximum number of users for rounds with all blocks, and minimum sampling rate above it.
_FULL_USERS, _LEAST_RATE = 50_000, 0.2


def block_sampling_rate(
    sampling: Sampling, sampling_rate: float | None, n_users: int | None
) -> float:
    """Return the public probability that a round includes a block, or a user."""
    if sampling == "full":
        if sampling_rate not in (None, 1, 1.0):
            raise ParameterError(
                "sampling_rate must be omitted with sampling='full', not "
                f"{_validate.describe(sampling_rate)}.",
                name="sampling_rate",
            )
        return 1.0
    if sampling_rate is None and n_users is None:
        # The rate must not depend on the noisy number of users, because the event would also depend
        # on it.
        return 1.0
    if sampling_rate is None and n_users is not None:
        return min(1.0, max(_LEAST_RATE, _FULL_USERS / n_users))
    rate = _validate.probability(sampling_rate=sampling_rate)
    if rate == 0:
        raise ParameterError(
            "sampling_rate must be above 0, not 0: nothing would be sampled.", name="sampling_rate"
        )
    return rate


def array_guarantee(
    promise: Promise,
    event: Event,
    public: Sequence[Fact | str],
    *,
    users: Any,
    elements: Any,
    rows: ArrayOrigin | None = None,
) -> Guarantee:
    """Build the guarantee of a fit, which composes for the same users and elements."""
    rows = current_origin() if rows is None else rows
    partition = whose = ""
    known = [*public, *rows.facts]
    if elements is not None:
        name = label_name(elements)
        partition = repr(name) if name else f"#{object_token(elements)}"
    if users is not None:
        whose = label_name(users) or f"#{object_token(users)}"
    elif promise.level != "record":
        # A caller who forgets to pass users must read what the guarantee then means.
        known.append(Fact("a-row-per-user"))
    return Guarantee(
        promise.level,
        partition,
        promise.relation,
        promise.delta,
        event,
        unique_facts(known),
        True,
        whose,
        rows.scope,
        None if elements is None else rows.partition,
        provenance=rows.provenance,
    )
