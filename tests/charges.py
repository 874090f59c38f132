"""Charges of events that no release was charged for, to draw from the parts by themselves."""

from __future__ import annotations

from dataclasses import replace

from dpgrain.accounting import Event, Gaussian
from dpgrain.noise import RandomSource
from dpgrain.publishing.charge import Charge
from dpgrain.publishing.draws import CountedSource, Normals
from dpgrain.publishing.guarantee import Guarantee


def halved(part: Gaussian, source: CountedSource) -> tuple[Gaussian, RandomSource]:
    """A draw of half of the noise, and the source that lets nobody count it, for audits of bugs."""
    return replace(part, noise_multiplier=part.noise_multiplier / 2), source._source


def weakened(noise: Normals, times: float) -> Normals:
    """The noise of a step, with a smaller deviation than was charged, for audits of bugs."""
    noise.sd /= times
    return noise


def charge_of(event: Event, source: RandomSource) -> Charge:
    """A charge whose tickets are the parts of an event, once each."""
    return Charge(Guarantee("user", "", "zero_out", 1e-6, event), source)
