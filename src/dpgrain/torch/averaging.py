"""Average of the weights after each step, by post-processing of published weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dpgrain.optimize import Average
from dpgrain.torch.library import torch


class AveragedWeights:
    """Average of a network's trained weights after each step, in double precision.

    The guarantee of a private run covers the weights after every step, so their average is free
    post-processing.
    """

    def __init__(self, module: Any, rule: Average) -> None:
        self._trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self._rule, self._steps = rule, 0
        self._average = {name: p.detach().double().clone() for name, p in self._trained.items()}

    def update(self) -> None:
        """Add the current weights to the average."""
        self._steps += 1
        share = self._rule.weight(self._steps)
        for name, weight in self._trained.items():
            average = self._average[name]
            average += share * (weight.detach().double() - average)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Use the averaged weights temporarily, then restore the original weights."""
        own = {name: weight.detach().clone() for name, weight in self._trained.items()}
        self.keep()
        try:
            yield
        finally:
            self._put(own)

    def keep(self) -> None:
        """Replace the weights by their average permanently."""
        self._put(self._average)

    def state(self) -> dict[str, Any]:
        """Return the checkpoint state: the number of steps and the averages."""
        copies = {name: average.clone() for name, average in self._average.items()}
        return {"steps": self._steps, "average": copies}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of :meth:`state`."""
        self._steps = int(state["steps"])
        for name, average in self._average.items():
            average.copy_(state["average"][name])

    def _put(self, values: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for name, weight in self._trained.items():
                weight.copy_(values[name])
