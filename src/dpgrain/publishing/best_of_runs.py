"""A random number of runs of a private mechanism, of which the best result is published."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from dpgrain.accounting import SelectBest
from dpgrain.noise import RandomSource
from dpgrain.noise.stopping import negative_binomial, poisson

Result = TypeVar("Result")


def best_run(
    run: Callable[[RandomSource], tuple[float, Result]], event: SelectBest, source: RandomSource
) -> tuple[float, Result] | None:
    """Return score and result of the best of a random number of runs; None without any run.

    The first of equal scores wins, and NaN is the smallest score.
    """
    best: tuple[float, Result] | None = None
    for _ in range(number_of_runs(event, source)):
        score, result = run(source)
        score = -math.inf if math.isnan(score) else float(score)
        if best is None or score > best[0]:
            best = score, result
    return best


def number_of_runs(event: SelectBest, source: RandomSource) -> int:
    """Draw the number of runs from the distribution of the event."""
    if event.stopping == "poisson":
        return poisson(event.mean, source=source)
    return negative_binomial(event.eta, event.gamma, source=source)
