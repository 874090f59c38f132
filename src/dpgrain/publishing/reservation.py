"""Reservations: releases that were charged together, before any of them read anything."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from dpgrain.errors import ParameterError
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.process import check_maker
from dpgrain.publishing.receipt import Receipt


class Reservation:
    """Releases that were charged together; each is then made at most once, and not charged again.

    Args:
        guarantees: the guarantee of each release, one or several, fixed beforehand.
        receipts: the lines of ledgers in which they were charged.
    """

    def __init__(self, guarantees: Sequence[Guarantee], receipts: tuple[Receipt, ...] = ()) -> None:
        self._made_by = os.getpid()
        self._left = Counter((each.event, each.scope) for each in guarantees)
        self._like = guarantees[0]
        self._receipts = receipts

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
        check_maker(self._made_by)
        # The sum refuses a release that does not protect the same unit of the same users.
        _ = self._like + guarantee
        about = guarantee.event, guarantee.scope
        if self._left[about] < 1:
            raise ParameterError(
                "this release is not among those that were reserved together, or was made before; "
                "publish it after them."
            )
        self._left[about] -= 1
        return replace(guarantee, receipts=(*guarantee.receipts, *self._receipts))


# Each thread has a reservation of its own; what other threads publish is charged as ever.
_open = threading.local()


def reservation() -> Reservation | None:
    """Return the reservation that is open in this thread, None if none is."""
    return getattr(_open, "reservation", None)


@contextmanager
def open_reservation(
    guarantees: Sequence[Guarantee], receipts: tuple[Receipt, ...] = ()
) -> Iterator[None]:
    """Open a reservation in this thread, for releases that were charged.

    Args:
        guarantees: the guarantee of each release.
        receipts: the lines of ledgers in which they were charged.

    Raises:
        ParameterError: if one is open already.
    """
    if reservation() is not None:
        raise ParameterError("releases are reserved already; make these after them.")
    _open.reservation = Reservation(guarantees, receipts)
    try:
        yield
    finally:
        _open.reservation = None
