"""Observers of training: average weights, norms and evaluations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.refusals import refuses
from tests.torch.library import torch
from tests.torch.runs import WIDTH, made

# isort: split
from dpgrain._progress import Progress
from dpgrain.optimize import Average, Last, Tail, Uniform, Weighted
from dpgrain.torch.observer import AveragedWeights, Observer, named_measures
from dpgrain.torch.preflight import evaluating
from dpgrain.units import User


def visited(average: AveragedWeights, layer: Any, points: Any) -> None:
    for point in points:
        with torch.no_grad():
            layer.weight.copy_(torch.as_tensor(point).reshape(1, -1))
        average.update()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rule", [Uniform(), Weighted(8.0), Tail(3), Last()])
def test_average_agrees_with_the_rule(rule: Average, dtype: Any) -> None:
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


def test_frozen_weights_are_unchanged() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
    network[0].requires_grad_(False)
    average = AveragedWeights(network, Uniform())
    assert set(average.state()["average"]) == {"1.weight", "1.bias"}


def test_state_resumes_at_its_step() -> None:
    points = np.random.default_rng(2).normal(size=(6, 3))
    layer = torch.nn.Linear(3, 1, bias=False)
    whole, first = AveragedWeights(layer, Weighted(8.0)), AveragedWeights(layer, Weighted(8.0))
    visited(whole, layer, points)
    visited(first, layer, points[:4])
    state = first.state()
    # A state is a copy: later steps do not change it.
    visited(first, layer, points[4:5])
    second = AveragedWeights(layer, Weighted(8.0))
    second.load_state(state)
    visited(second, layer, points[4:])
    for name, average in whole.state()["average"].items():
        assert torch.equal(average, second.state()["average"][name])


def accuracy(_network: Any) -> float:
    return 0.5


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (0.5, {"accuracy": 0.5}),
        (1, {"accuracy": 1.0}),
        (torch.tensor(0.25), {"accuracy": 0.25}),
        (np.array([0.25]), {"accuracy": 0.25}),
        ({"loss": torch.tensor(2.0), 3: 1}, {"loss": 2.0, "3": 1.0}),
        ({}, {}),
    ],
)
def test_measures_are_numbers_by_name(found: Any, expected: dict[str, float]) -> None:
    assert named_measures(found, accuracy) == expected


def test_a_function_without_a_name_measures_a_measure() -> None:
    assert named_measures(2.0, lambda _: 2.0) == {"measure": 2.0}


@pytest.mark.parametrize("found", [None, "good", True, torch.ones(2), {"loss": [1]}])
def test_other_measures_are_rejected(found: Any) -> None:
    with refuses("evaluate", "numbers"):
        named_measures(found, accuracy)


def test_layers_are_put_back_into_their_modes() -> None:
    network = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Dropout())
    network[1].eval()
    with evaluating(network):
        assert not network[0].training
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
    with pytest.raises(KeyError), evaluating(network):
        raise KeyError
    assert (network.training, network[0].training, network[1].training) == (True, True, False)


def followed(observer_of: Any, **options: Any) -> tuple[Any, Any, list[float]]:
    """A run of several steps, its history, and the gradient norms of its optimizer."""
    vectors = np.random.default_rng(1).normal(size=(12, WIDTH))
    _, module, optimizer, loader = made(
        vectors, User(), users=np.repeat(np.arange(4), 3), noise_multiplier=0.1, lr=0.1, **options
    )
    observer, seen = observer_of(module), []
    plain = optimizer._own
    plain.register_step_post_hook(observer.after_step)
    plain.register_step_post_hook(lambda *_: seen.append(module.weight.grad.double().norm().item()))
    with Progress(loader._run.steps_left, show=False) as bar:
        observer.begin(loader, bar)
        for (x,) in loader:
            optimizer.zero_grad()
            module(x).mean().backward()
            optimizer.step()
    return module, observer.end(0.5), seen


def test_each_step_is_seen_also_of_draws_without_records() -> None:
    _, history, seen = followed(
        lambda module: Observer(module, Last(), None, 1), steps=30, sampling_rate=0.1
    )
    assert history.norms == pytest.approx(seen)
    assert len(seen) == 30
    assert history.noise_norm == pytest.approx(0.5 * 2)
    assert (history.evaluated, history.measures, history.last) == ((), {}, {})


@pytest.mark.parametrize(("every", "at"), [(3, (0, 3, 6, 7)), (7, (0, 7)), (100, (0, 7))])
def test_the_average_is_evaluated(every: int, at: tuple[int, ...]) -> None:
    weights: list[Any] = []
    first: list[Any] = []

    def evaluate(network: Any) -> dict[str, float]:
        assert not network.training
        assert not torch.is_grad_enabled()
        weights.append(network.weight.detach().clone())
        return {"steps": float(len(weights))}

    def observer_of(module: Any) -> Observer:
        first.append(module.weight.detach().clone())
        return Observer(module, Uniform(), evaluate, every)

    module, history, _ = followed(observer_of, steps=7)
    assert history.evaluated == at
    assert history.measures == {"steps": tuple(range(1, len(at) + 1))}
    assert history.last == {"steps": len(at)}
    assert torch.equal(weights[0], first[0])
    assert torch.equal(weights[-1], module.weight)
    assert not module.training


def test_measures_must_stay_the_same() -> None:
    calls: list[int] = []

    def evaluate(_network: Any) -> dict[str, float]:
        calls.append(1)
        return {f"measure {len(calls)}": 1.0}

    with refuses("evaluate", "2"):
        followed(lambda module: Observer(module, Last(), evaluate, 1))


def test_line_shows_the_step_and_the_measures() -> None:
    network = torch.nn.Linear(1, 1)
    observer = Observer(network, Last(), accuracy, 1)
    with Progress(3, show=False) as bar:
        observer.begin(range(3), bar)  # type: ignore[arg-type]
        assert bar.text == "Step 1 of 3, accuracy 0.5"
