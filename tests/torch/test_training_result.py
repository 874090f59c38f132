"""The published facts of a trained network, without PyTorch."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from tests.report import networks

from dpgrain.torch.training_result import TrainingHistory


def test_history_shows_its_last_numbers() -> None:
    assert networks.HISTORY.last == {"accuracy": 0.75, "loss": 1.0}
    assert TrainingHistory(np.ones(3), 1.0).last == {}


def test_gradients_are_compared_with_noise() -> None:
    norms = np.concatenate([np.full(90, 9.0), np.full(10, 3.0)])
    assert TrainingHistory(norms, 2.0).ratio == 1.5
    assert TrainingHistory(np.array([4.0]), 2.0).ratio == 2.0
    assert math.isnan(TrainingHistory(np.zeros(0), 1.0).ratio)


def test_a_training_is_printed_with_its_promise() -> None:
    training = networks.trained()
    assert training.weights == 30
    text = str(training)
    assert text.startswith(
        "Network with 30 trained weights, after 40 steps of about 100 blocks; accuracy 0.75; loss 1.\n"
    )
    assert text.endswith(str(networks.GUARANTEE))
    # Its duration is reported only on request.
    assert str(networks.trained(seconds=1234.5)) == text
    assert repr(training) == "Training(weights=30, steps=40)"


def test_a_training_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        networks.trained().seconds = 2.0  # type: ignore[misc]
