"""Design of a protocol: the least noise for a guarantee, or a paper's numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from dpgrain._formatting import quantity
from dpgrain.accounting import Event, Gaussian, calibrate
from dpgrain.accounting.contribution import ONE_EACH
from dpgrain.errors import ParameterError
from dpgrain.shuffle.device_noise import BinomialNoise, DeviceNoise, PoissonNoise
from dpgrain.units import Relation

Kind: TypeAlias = Literal["binomial", "poisson"]

#: Share of δ that may be delta mass.
LEAK = 0.01
# Rounding lets one user change a sum by √d more steps. The grid is fine enough that the user's own
# vector changes it by 50 times that number, up to 2500 coordinates. Beyond, because accounting for
# a fine grid is slow, it stays at 2500 steps, or 10 times the rounding if that is more. …
_FINE_STEPS_PER_ROUNDING, _COARSE_STEPS_PER_ROUNDING = 50.0, 10.0
# … The grid is also fine enough that the noise has 50 times the variance of the rounding of all
# users, …
_NOISE_TO_ROUNDING_VARIANCE = 50.0
# … unless there is little noise: for μ above this limit the grid becomes no finer.
_LARGEST_MU = 100.0
# Factor between variances where the search for the least variance ends.
_VARIANCE_RATIO = 1 + 2.0**-9
# Max standard deviation of the noise in grid steps, which keeps its tables small.
_MOST_NOISE_STEPS = 1e5
_KINDS: dict[Kind, type[BinomialNoise] | type[PoissonNoise]] = {
    "binomial": BinomialNoise,
    "poisson": PoissonNoise,
}


@dataclass(frozen=True)
class Design:
    """The numbers of a protocol."""

    grid: int  # g, the steps of a device's count
    noise: DeviceNoise  # share of the noise that a device adds
    leak: float  # δ₀, delta mass for each coordinate and round


@lru_cache(maxsize=256)
def least_noise(
    kind: Kind,
    centred: bool,
    n_users: int,
    honest: int,
    dim: int,
    epsilon: float,
    delta: float,
    relation: Relation,
    rounds: int,
    beside: Event | None,
) -> Design:
    """Return the design with the least noise for a guarantee, on a fine grid."""
    leak = LEAK * delta / (dim * rounds)
    whole = gaussian_mu_for(epsilon, delta * (1 - LEAK), relation, beside)
    mu = whole / math.sqrt(rounds)
    # A user changes the sum by g/half grid steps.
    half = 2 if relation == "zero_out" and centred else 1
    root = math.sqrt(dim)
    rounding = min(mu, _LARGEST_MU) * math.sqrt(_NOISE_TO_ROUNDING_VARIANCE * n_users) / 2
    fine = max(
        min(_FINE_STEPS_PER_ROUNDING * root, _FINE_STEPS_PER_ROUNDING**2),
        _COARSE_STEPS_PER_ROUNDING * root,
        rounding,
    )
    if _MOST_NOISE_STEPS * mu < 2 * root:
        raise ParameterError(
            f"epsilon = {epsilon:g} is too small for {quantity(dim, 'coordinate')} in "
            f"{quantity(rounds, 'round')}, because the noise would exceed {_MOST_NOISE_STEPS:,.0f} "
            "steps of the grid; use a larger epsilon, fewer coordinates or fewer rounds."
        )
    grid = 2 * math.ceil(half * min(fine, _MOST_NOISE_STEPS * mu) / 2)

    def holds(variance: float) -> bool:
        own = (
            _KINDS[kind]
            .for_variance(variance)
            .event(honest, grid=grid, coordinates=dim, leak=leak, rounds=rounds, centred=centred)
        )
        return own.beside(beside).epsilon(delta, relation=relation) <= epsilon

    # The search starts just above the variance of Gaussian noise, which is nearly always
    # sufficient.
    low, more = ((grid / half + root) / mu) ** 2 / honest, 2.0**-11
    while not holds(high := low * (1 + more)):
        low, more = high, min(2 * more, 1.0)
    while high > low * _VARIANCE_RATIO:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return Design(grid, _KINDS[kind].for_variance(high), leak)


def gaussian_mu_for(
    epsilon: float, delta: float, relation: Relation, beside: Event | None
) -> float:
    """Return the μ of the Gaussian mechanism for a promise, next to another event."""

    def event(noise: float) -> Event:
        return Gaussian(noise, ONE_EACH).beside(beside)

    calibrated = calibrate(event, epsilon, delta, relation=relation)
    return (1 if relation == "zero_out" else 2) / calibrated.parameter


def printed(n_users: int, dim: int, epsilon: float, delta: float, rounds: int) -> Design:
    """Return the design of Theorem 3.2's proof, or of Algorithm 5 for several rounds."""
    if epsilon > 15 or delta >= 0.5:
        raise ParameterError(
            f"analysis='printed' requires epsilon ≤ 15 and delta < 1/2, not {epsilon:g} and "
            f"{delta:g}."
        )
    if rounds > 1:
        epsilon /= 2 * math.sqrt(2 * rounds * math.log(1 / delta))
        delta /= rounds + 1
    grid = 2 * math.ceil(max(2 * math.sqrt(n_users), math.sqrt(dim), 4) / 2)
    share = delta / (dim + 1)
    own = epsilon / (18 * math.sqrt(math.log(1 / share)))
    ones = 90 * grid**2 * math.log(2 / share) / (own**2 * n_users)
    count = math.floor(2 * ones) + 1
    return Design(grid, BinomialNoise(count, ones / count), LEAK * delta / dim)
