"""Result of a private training: the network, the guarantee and the history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpgrain import _validate
from dpgrain._report_mixins import TrainingReportMixin
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.means import ClippedMean
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee

#: Assumed public: the records on which the network is evaluated.
EVALUATED = Fact("evaluated-records")


@dataclass(frozen=True)
class TrainingHistory:
    """Published numbers of each training step.

    Args:
        norms: (steps,) the norms of the noisy gradients.
        noise_norm: the approximate norm of a gradient of pure noise.
        evaluated: (evaluations,) the number of steps before each evaluation.
        measures: the values of each measure at each evaluation, by name.

    Raises:
        ParameterError: if they are not numbers.

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
        """Measures of the last evaluation; empty without evaluations."""
        return {name: values[-1] for name, values in self.measures.items()}

    @property
    def ratio(self) -> float:
        """Median gradient norm in the last tenth of the steps ÷ norm of pure noise."""
        if not len(self.norms):
            return float("nan")
        last = self.norms[-max(1, len(self.norms) // 10) :]
        return float(np.median(last)) / self.noise_norm


def _series(**parameter: Any) -> FloatArray:
    """Return numbers of steps or evaluations as a one-dimensional array."""
    numbers = _validate.float_array(**parameter)
    if numbers.ndim != 1:
        ((name, _),) = parameter.items()
        raise ParameterError(
            f"{name} must have one number each, along one axis, not the shape {numbers.shape}.",
            name=name,
        )
    return numbers


@dataclass(frozen=True)
class Training(TrainingReportMixin):
    """Privately trained network, returned by :func:`dpgrain.torch.train`.

    Args:
        module: the network, in evaluation mode, without hooks.
        guarantee: the guarantee of all steps together.
        history: the noisy gradients, and the results of ``evaluate``.
        mean: the public numbers of a step: clipping bound, noise, sampling rate, divisor.
        settings: the requested settings, as names and descriptions.
        seconds: the duration of the steps. For internal use only and never published, because
            larger sampled blocks take longer and nothing protects this.

    Raises:
        ParameterError: if an argument has an invalid type.

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
                f"module must be a torch.nn.Module, not {_validate.describe(self.module)}.",
                name="module",
            )
        _validate.check_fields(self)

    @property
    def weights(self) -> int:
        """Number of trained weights."""
        return sum(p.numel() for p in self.module.parameters() if p.requires_grad)

    def __str__(self) -> str:
        measures = "".join(f"; {name} {value:.4g}" for name, value in self.history.last.items())
        return (
            f"Network with {self.weights:,} trained weights, after {self.mean.rounds:,} steps of about "
            f"{self.mean.divisor:,.0f} blocks{measures}.\n{self.guarantee}"
        )

    def __repr__(self) -> str:
        return f"Training(weights={self.weights}, steps={self.mean.rounds})"
