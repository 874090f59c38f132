"""Result of a private training: the network, the promise, and how the steps went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpgrain import _fields, _validate
from dpgrain._shown import ShownTraining
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.means import ClippedMean
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee

#: What is public of an evaluation, as a fact of the promise.
EVALUATED = Fact("evaluated-records")


@dataclass(frozen=True)
class TrainingHistory:
    """The known numbers of each step, all made of what was published.

    Args:
        norms: (steps,) the norms of the noisy gradients.
        noise_norm: the rough norm of a gradient that is noise alone.
        evaluated: (evaluations,) the number of steps after which the network was evaluated.
        measures: the name of each measure, with its value at each evaluation.

    Raises:
        ParameterError: if they are no numbers.

    >>> history = TrainingHistory(
    ...     np.array([9.0, 6.0, 3.0]), noise_norm=2.0, evaluated=(1, 3), measures={"loss": (0.7, 0.4)})
    >>> history.last, history.ratio
    ({'loss': 0.4}, 1.5)
    """

    norms: FloatArray
    noise_norm: float
    evaluated: tuple[int, ...] = ()
    measures: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _validate.real(noise_norm=self.noise_norm)
        measures = _validate.mapping(measures=self.measures)
        checked = {
            "norms": _series(norms=self.norms),
            "evaluated": tuple(_series(evaluated=self.evaluated).astype(int).tolist()),
            "measures": {
                name: tuple(_series(measures=values).tolist()) for name, values in measures.items()
            },
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def last(self) -> dict[str, float]:
        """The measures of the last evaluation; none where there was none."""
        return {name: values[-1] for name, values in self.measures.items()}

    @property
    def ratio(self) -> float:
        """The length of gradients in the last tenth of the steps, in lengths of noise (median)."""
        if not len(self.norms):
            return float("nan")
        last = self.norms[-max(1, len(self.norms) // 10) :]
        return float(np.median(last)) / self.noise_norm


def _series(**parameter: Any) -> FloatArray:
    """Return numbers of steps or evaluations, which lie along one axis."""
    numbers = _fields.numbers(**parameter)
    if numbers.ndim != 1:
        ((name, _),) = parameter.items()
        raise ParameterError(
            f"{name} must have one number each, along one axis, not the shape {numbers.shape}.",
            name=name,
        )
    return numbers


@dataclass(frozen=True)
class Training(ShownTraining):
    """A privately trained network; :func:`dpgrain.torch.train` makes it.

    Args:
        module: the network, in evaluation mode, without hooks.
        guarantee: the promise of all steps together.
        history: the noisy gradients, and what ``evaluate`` has said.
        mean: the public numbers of a step: clipping bound, noise, rate, divisor.
        settings: what was asked, as names and values in words.
        seconds: how long the steps took. It is for the curator alone, and on no page: steps take
            longer where larger blocks are drawn, which nothing hides.

    Raises:
        ParameterError: if one is of another type.

    >>> import torch
    >>> from dpgrain.torch import train
    >>> data = torch.utils.data.TensorDataset(torch.ones(60, 3), torch.ones(60, 1))
    >>> training = train(
    ...     torch.nn.Linear(3, 1), torch.nn.functional.mse_loss, data,
    ...     n_users=60, epsilon=2.0, steps=10, random_state=1)
    >>> training.weights, len(training.history.norms), training.guarantee.epsilon() <= 2.0
    (4, 10, True)
    """

    module: Any
    guarantee: Guarantee
    history: TrainingHistory
    mean: ClippedMean
    settings: tuple[tuple[str, str], ...]
    seconds: float

    def __post_init__(self) -> None:
        if isinstance(self.module, type) or not hasattr(self.module, "parameters"):
            raise ParameterError(
                f"module must be a torch.nn.Module, not {_validate.said(self.module)}.",
                name="module",
            )
        _fields.check(self)

    @property
    def weights(self) -> int:
        """The number of trained weights."""
        return sum(p.numel() for p in self.module.parameters() if p.requires_grad)

    def __str__(self) -> str:
        told = "".join(f"; {name} {value:.4g}" for name, value in self.history.last.items())
        return (
            f"Network with {self.weights:,} trained weights, after {self.mean.rounds:,} steps of about "
            f"{self.mean.divisor:,.0f} blocks{told}.\n{self.guarantee}"
        )

    def __repr__(self) -> str:
        return f"Training(weights={self.weights}, steps={self.mean.rounds})"
