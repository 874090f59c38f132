"""Charges of events that no release was charged for, to draw from the parts by themselves."""

from __future__ import annotations

from dpgrain.accounting import Event
from dpgrain.noise import RandomSource
from dpgrain.publishing.charge import Charge
from dpgrain.publishing.guarantee import Guarantee


def charge_of(event: Event, source: RandomSource) -> Charge:
    """A charge whose tickets are the parts of an event, once each."""
    return Charge(Guarantee("user", "", "zero_out", 1e-6, event), source)
