"""Charges of events without a release, for drawing from separate parts."""

from __future__ import annotations

from dataclasses import replace

from dpgrain.accounting import Event, Gaussian
from dpgrain.noise import RandomSource
from dpgrain.publishing.charge import Charge
from dpgrain.publishing.draws import CountedSource, Normals
from dpgrain.publishing.guarantee import Guarantee


def halved(part: Gaussian, source: CountedSource) -> tuple[Gaussian, RandomSource]:
    """A draw with half of the noise, and an uncounted source, for audits of bugs."""
    return replace(part, noise_multiplier=part.noise_multiplier / 2), source._source


def weakened(noise: Normals, times: float) -> Normals:
    """The noise of a step, with a smaller deviation than was charged, for audits of bugs."""
    noise.sd /= times
    return noise


def charge_of(event: Event, source: RandomSource) -> Charge:
    """A charge with the parts of an event as tickets, once each."""
    return Charge(Guarantee("user", "", "zero_out", 1e-6, event), source)
