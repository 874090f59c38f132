"""The noise of a step of a network: drawn, added and divided, as a run of the library does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dpgrain.means import ClippedMean
from dpgrain.noise import SystemSource
from dpgrain.publishing.draws import counted
from dpgrain.torch.steps import ClippedSteps

_MOST_STEPS = 10**6


def publisher(parameters: Sequence[Any], bound: float) -> Callable[[dict[Any, Any]], None]:
    """Return a function that sets noisy gradients from clipped sums by parameter.

    Args:
        bound: the clipping bound.
    """
    mean = ClippedMean(1.0, bound, 1000, _MOST_STEPS)
    steps = ClippedSteps(mean, parameters, counted(SystemSource(), mean.event))

    def publish(sums: dict[Any, Any]) -> None:
        total: Any = steps.empty_sum()
        total.sums.update(sums)
        steps.publish(total)

    return publish
