"""Reservations: releases charged together, before any of them reads data."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from dpgrain.errors import ParameterError
from dpgrain.noise.sources import random_source
from dpgrain.publishing.call import keep_query
from dpgrain.publishing.charge import Charge
from dpgrain.publishing.guarantee import Guarantee, warn_large_delta
from dpgrain.publishing.origins import ArrayOrigin, array_origin
from dpgrain.publishing.process import check_creator
from dpgrain.publishing.query import Query, Released


class Reservation:
    """Releases charged together; each can be published once, without another charge.

    Args:
        charged: the guarantee of all releases, with the receipts of ledgers.
        guarantees: the guarantee of each release, fixed in advance.
    """

    def __init__(self, charged: Guarantee, guarantees: Sequence[Guarantee]) -> None:
        self._creator = os.getpid()
        self._left = Counter((each.event, each.scope) for each in guarantees)
        self._like = guarantees[0]
        self._charged = charged
        self._lock = threading.Lock()

    @property
    def charged(self) -> Guarantee:
        """The guarantee of all releases, with the receipts of ledgers."""
        return self._charged

    def publish(self, query: Query[Released]) -> Released:
        """Publish one of the releases.

        Raises:
            ParameterError: if no such release remains, it protects another unit, or this is a copy in
                another process.
            DataError: if the source cannot be read.
        """
        with array_origin(ArrayOrigin()):
            plan, source = query.plan, random_source(query.random_state)
            guarantee = replace(plan.guarantee, private=source.private)
            warn_large_delta(guarantee.delta, guarantee.level, plan.n_users, plan.cells)
            with Charge(self.take(guarantee), source) as charge:
                return keep_query(query.run(charge), query.call, plan.shares)

    def take(self, guarantee: Guarantee) -> Guarantee:
        """Use up the reserved charge of a release, and return its guarantee with the receipts.

        Raises:
            ParameterError: if no such release remains, it protects another unit, or this is a copy in
                another process.
        """
        check_creator(self._creator)
        # The sum raises unless both protect the same unit of the same users.
        _ = self._like + guarantee
        key = guarantee.event, guarantee.scope
        with self._lock:
            if self._left[key] < 1:
                raise ParameterError(
                    "this release is not part of the reservation, or was already published; "
                    "publish it after the reserved releases."
                )
            self._left[key] -= 1
        return replace(guarantee, receipts=(*guarantee.receipts, *self._charged.receipts))
