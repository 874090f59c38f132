"""The ε of rounds of samples, by dpgrain."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from serving import serve

from dpgrain.accounting import SampledGaussian


def account(noise: float, rate: float, rounds: int, delta: float) -> Callable[[], float]:
    """Repeated queries may be cached, so each run uses slightly more noise."""
    more = count()
    return lambda: float(
        SampledGaussian(noise * (1 + 1e-12 * next(more)), rate, rounds).epsilon(delta)
    )


serve({"account": account})
