"""Trained networks as their reports see them, without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import dpgrain as dg
from dpgrain.means import ClippedMean
from dpgrain.torch.training_result import Training, TrainingHistory


@dataclass
class Weights:
    """Weights of a layer.

    Args:
        requires_grad: True where they are trained.
    """

    count: int
    requires_grad: bool = True

    def numel(self) -> int:
        return self.count


class Network:
    def parameters(self) -> list[Weights]:
        return [Weights(30), Weights(1000, requires_grad=False)]


MEAN = ClippedMean(0.5, 2.0, n_users=1000, rounds=40, sampling_rate=0.1, level="user")
HISTORY = TrainingHistory(
    np.linspace(0.2, 0.1, 40),
    0.05,
    (0, 20, 40),
    {"accuracy": (0.1, 0.5, 0.75), "loss": (2.0, float("inf"), 1.0)},
)
GUARANTEE = dg.Guarantee(
    "user", "", "zero_out", 1e-6, MEAN.event, (dg.Fact("enrolled-users", (1000,)),)
)


def trained(**changed: Any) -> Training:
    made = Training(Network(), GUARANTEE, HISTORY, MEAN, (("Optimizer", "<b>Adam</b>"),), 3.0)
    return replace(made, **changed)
