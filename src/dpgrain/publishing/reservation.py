"""Reservations: releases charged together, before any of them reads anything."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from dpgrain.errors import ParameterError
from dpgrain.noise.sources import source_of
from dpgrain.publishing.array_origin import ArrayOrigin, array_origin
from dpgrain.publishing.charge import Charge
from dpgrain.publishing.guarantee import Guarantee, warn_large_delta
from dpgrain.publishing.process import check_creator
from dpgrain.publishing.query import Made, Query


class Reservation:
    """Releases charged together; each is then made at most once, and not charged again.

    Args:
        charged: the guarantee of all of them, with the lines of ledgers in which they were charged.
        guarantees: the guarantee of each release, one or several, fixed beforehand.
    """

    def __init__(self, charged: Guarantee, guarantees: Sequence[Guarantee]) -> None:
        self._made_by = os.getpid()
        self._left = Counter((each.event, each.scope) for each in guarantees)
        self._like = guarantees[0]
        self._charged = charged
        self._lock = threading.Lock()

    @property
    def charged(self) -> Guarantee:
        """The guarantee of all releases, with the lines of ledgers for their charges."""
        return self._charged

    def publish(self, query: Query[Made]) -> Made:
        """Make one of the releases.

        Args:
            query: what is asked for.

        Raises:
            ParameterError: if no such release is left, it protects another unit, or this is a copy in
                another process.
            DataError: if the source cannot be read.
        """
        with array_origin(ArrayOrigin()):
            plan, source = query.plan, source_of(query.random_state)
            guarantee = replace(plan.guarantee, private=source.private)
            warn_large_delta(guarantee.delta, guarantee.level, plan.n_users, plan.cells)
            with Charge(self.take(guarantee), source) as charge:
                return query.run(charge)

    def take(self, guarantee: Guarantee) -> Guarantee:
        """Take a release out of the reservation.

        Args:
            guarantee: what the release promises.

        Returns:
            The guarantee to publish, with the receipts of all of them.

        Raises:
            ParameterError: if no such release is left in it, it protects another unit, or this is a
                copy in another process.
        """
        check_creator(self._made_by)
        # The sum refuses a release that does not protect the same unit of the same users.
        _ = self._like + guarantee
        about = guarantee.event, guarantee.scope
        with self._lock:
            if self._left[about] < 1:
                raise ParameterError(
                    "this release is not part of the reservation, or was already published; "
                    "publish it after the reserved releases."
                )
            self._left[about] -= 1
        return replace(guarantee, receipts=(*guarantee.receipts, *self._charged.receipts))
