"""Runs of a private candidate: a random number of them, with the best result kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from dpgrain.accounting import SelectBest
from dpgrain.noise import Source
from dpgrain.noise.stopping import negative_binomial, poisson

Result = TypeVar("Result")


def best_run(
    run: Callable[[Source], tuple[float, Result]], event: SelectBest, source: Source
) -> tuple[float, Result] | None:
    """Make a random number of runs, and return score and result of the best; None without any.

    Args:
        run: makes one run, and returns its score and its result. Of equal scores the first counts, and
            what is not a number is the smallest.
        event: the event of all runs.
        source: the source of randomness for the number of runs and for the runs.
    """
    best: tuple[float, Result] | None = None
    for _ in range(number_of_runs(event, source)):
        score, result = run(source)
        score = -math.inf if math.isnan(score) else float(score)
        if best is None or score > best[0]:
            best = score, result
    return best


def number_of_runs(event: SelectBest, source: Source) -> int:
    """Draw the number of runs from its law.

    Args:
        event: the event of all runs, which names the law.
        source: the source of randomness.
    """
    if event.stopping == "poisson":
        return poisson(event.mean, source=source)
    return negative_binomial(event.eta, event.gamma, source=source)
