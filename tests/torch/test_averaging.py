"""The average of weights: any rule's, in double precision, and out of the way of training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.torch.library import torch

# isort: split
from dpgrain.optimize import Average, Last, Tail, Uniform, Weighted
from dpgrain.torch.averaging import AveragedWeights


def visited(average: AveragedWeights, layer: Any, points: Any) -> None:
    for point in points:
        with torch.no_grad():
            layer.weight.copy_(torch.as_tensor(point).reshape(1, -1))
        average.update()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rule", [Uniform(), Weighted(8.0), Tail(3), Last()])
def test_the_average_is_that_of_the_rule(rule: Average, dtype: Any) -> None:
    points = np.random.default_rng(1).normal(size=(9, 4))
    layer = torch.nn.Linear(4, 1, bias=False).to(dtype)
    average = AveragedWeights(layer, rule)
    visited(average, layer, points)
    expected = np.zeros(4)
    for k, point in enumerate(points, 1):
        expected += rule.weight(k) * (point - expected)
    with average.swapped():
        assert layer.weight.detach().numpy()[0] == pytest.approx(expected, abs=1e-6)
    assert layer.weight.detach().numpy()[0] == pytest.approx(points[-1], abs=1e-6)
    average.keep()
    assert layer.weight.detach().numpy()[0] == pytest.approx(expected, abs=1e-6)


def test_the_average_does_not_share_memory_with_the_weights() -> None:
    layer = torch.nn.Linear(2, 1, bias=False).double()
    average = AveragedWeights(layer, Uniform())
    visited(average, layer, [[1.0, 1.0]])
    with torch.no_grad():
        layer.weight.fill_(100.0)
    with average.swapped():
        assert layer.weight.tolist() == [[1.0, 1.0]]


def test_weights_come_back_after_an_error() -> None:
    layer = torch.nn.Linear(1, 1, bias=False)
    average = AveragedWeights(layer, Uniform())
    visited(average, layer, [[1.0], [3.0]])
    with pytest.raises(KeyError), average.swapped():
        raise KeyError
    assert layer.weight.item() == 3.0


def test_frozen_weights_are_left_alone() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
    network[0].requires_grad_(False)
    average = AveragedWeights(network, Uniform())
    assert set(average.state()["average"]) == {"1.weight", "1.bias"}


def test_a_state_goes_on_where_it_was() -> None:
    points = np.random.default_rng(2).normal(size=(6, 3))
    layer = torch.nn.Linear(3, 1, bias=False)
    whole, first = AveragedWeights(layer, Weighted(8.0)), AveragedWeights(layer, Weighted(8.0))
    visited(whole, layer, points)
    visited(first, layer, points[:4])
    state = first.state()
    # A state is a copy: what comes after it does not change it.
    visited(first, layer, points[4:5])
    second = AveragedWeights(layer, Weighted(8.0))
    second.load_state(state)
    visited(second, layer, points[4:])
    for name, average in whole.state()["average"].items():
        assert torch.equal(average, second.state()["average"][name])
