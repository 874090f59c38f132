"""The average of the weights after each step, which is no look at the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dpgrain.optimize import Average
from dpgrain.torch.library import torch


class AveragedWeights:
    """The average of the trained weights of a network after each step.

    Args:
        module: the network.
        rule: how each iterate is weighed against all before it.

    The promise of a private run is about its weights after every step, so that their average costs
    nothing (post-processing). It is kept in double precision.

    >>> from dpgrain.optimize import Uniform
    >>> layer = torch.nn.Linear(1, 1, bias=False)
    >>> average = AveragedWeights(layer, Uniform())
    >>> for weight in (1.0, 2.0, 6.0):
    ...     _ = layer.weight.data.fill_(weight)
    ...     average.update()
    >>> with average.swapped():
    ...     print(layer.weight.item())
    3.0
    >>> layer.weight.item()
    6.0
    """

    def __init__(self, module: Any, rule: Average) -> None:
        self._trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self._rule, self._steps = rule, 0
        self._average = {name: p.detach().double().clone() for name, p in self._trained.items()}

    def update(self) -> None:
        """Take in the weights as they are after a step."""
        self._steps += 1
        share = self._rule.weight(self._steps)
        for name, weight in self._trained.items():
            average = self._average[name]
            average += share * (weight.detach().double() - average)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Put the average into the network, and the weights themselves back at the end."""
        own = {name: weight.detach().clone() for name, weight in self._trained.items()}
        self.keep()
        try:
            yield
        finally:
            self._put(own)

    def keep(self) -> None:
        """Put the average into the network for good."""
        self._put(self._average)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: the number of steps, and the average of each weight."""
        copies = {name: average.clone() for name, average in self._average.items()}
        return {"steps": self._steps, "average": copies}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` has returned."""
        self._steps = int(state["steps"])
        for name, average in self._average.items():
            average.copy_(state["average"][name])

    def _put(self, values: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for name, weight in self._trained.items():
                weight.copy_(values[name])
