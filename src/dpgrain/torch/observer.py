"""Observer of training steps: averaged weights, gradient norms and evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from typing import Any

import numpy as np

from dpgrain import _validate
from dpgrain._progress import Progress
from dpgrain.errors import ParameterError
from dpgrain.optimize import Average
from dpgrain.torch.library import torch
from dpgrain.torch.loader import PrivateLoader
from dpgrain.torch.preflight import evaluating
from dpgrain.torch.training_result import TrainingHistory


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


Evaluate = Callable[[Any], "float | Mapping[str, float]"]


class Observer:
    """Observer of a network after each step, based on published values only."""

    def __init__(self, module: Any, rule: Average, evaluate: Evaluate | None, every: int) -> None:
        self._module, self._evaluate, self._every = module, evaluate, every
        self._average = AveragedWeights(module, rule)
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._norms: list[float] = []
        self._evaluated: list[int] = []
        self._measures: dict[str, list[float]] = {}
        self._bar: Progress | None = None
        self._steps = 0
        self._measure()

    @property
    def done(self) -> int:
        """Number of observed steps."""
        return len(self._norms)

    def state(self) -> dict[str, Any]:
        """Return the checkpoint state; all of it is published."""
        return {
            "norms": list(self._norms),
            "evaluated": list(self._evaluated),
            "measures": {name: list(values) for name, values in self._measures.items()},
            "average": self._average.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of :meth:`state`."""
        self._norms, self._evaluated = list(state["norms"]), list(state["evaluated"])
        self._measures = {name: list(values) for name, values in state["measures"].items()}
        self._average.load_state(state["average"])

    def begin(self, loader: PrivateLoader, bar: Progress) -> None:
        """Start observing a run."""
        self._steps = len(self._norms) + len(loader)
        self._bar = bar
        bar.stage(self._line())

    def after_step(self, *_of_the_hook: object) -> None:
        """Observe the step that the optimizer has just made."""
        device = self._parameters[0].device
        squares = [p.grad.double().square().sum().to(device) for p in self._parameters]
        # A GPU waits once per step.
        self._norms.append(math.sqrt(sum(torch.stack(squares).tolist())))
        self._average.update()
        if len(self._norms) % self._every == 0:
            self._measure()
        if self._bar is not None:
            self._bar.stage(self._line())

    def end(self, noise_sd: float) -> TrainingHistory:
        """Replace the weights by their average, and return the history."""
        if self._evaluated[-1:] != [len(self._norms)]:
            self._measure()
        self._average.keep()
        self._module.eval()
        weights = sum(p.numel() for p in self._parameters)
        return TrainingHistory(
            np.array(self._norms),
            noise_sd * math.sqrt(weights),
            tuple(self._evaluated),
            {name: tuple(values) for name, values in self._measures.items()},
        )

    def _measure(self) -> None:
        """Evaluate the averaged weights."""
        if self._evaluate is None:
            return
        with self._average.swapped(), evaluating(self._module):
            measures = named_measures(self._evaluate(self._module), self._evaluate)
        if self._measures and self._measures.keys() != measures.keys():
            raise ParameterError(
                f"evaluate must return the same measures each time, not {', '.join(measures)} after "
                f"{', '.join(self._measures)}.",
                name="evaluate",
            )
        self._evaluated.append(len(self._norms))
        for name, value in measures.items():
            self._measures.setdefault(name, []).append(value)

    def _line(self) -> str:
        last = [f"{name} {values[-1]:.4g}" for name, values in self._measures.items()]
        done = min(len(self._norms) + 1, self._steps)
        return f"Step {done:,} of {self._steps:,}" + "".join(f", {measure}" for measure in last)


def named_measures(result: Any, evaluate: Evaluate) -> dict[str, float]:
    """Return an evaluation's results by name; a single number has the function's name."""
    if not isinstance(result, Mapping):
        name = getattr(evaluate, "__name__", "")
        result = {name if name.isidentifier() else "measure": result}
    return {str(name): _number(value) for name, value in result.items()}


def _number(value: Any) -> float:
    if isinstance(value, torch.Tensor | np.ndarray) and math.prod(value.shape) == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ParameterError(
            f"evaluate must return a number, or numbers by name, not {_validate.describe(value)}.",
            name="evaluate",
        )
    return float(value)
