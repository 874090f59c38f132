"""Forbidden steps of a training loop that were not accounted for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.refusals import refuses
from tests.torch.library import torch
from tests.torch.runs import WIDTH, made

# isort: split
from dpgrain.errors import ParameterError
from dpgrain.publishing.draws import Normals
from dpgrain.torch.clipping import overshoot
from dpgrain.torch.privacy_engine import PrivacyEngine
from dpgrain.torch.steps import in_floating_point
from dpgrain.units import User

VECTORS = np.ones((6, WIDTH))


def run(**options: Any) -> Any:
    return made(VECTORS, User(), **{"steps": 3, **options})[1:]


def test_step_needs_a_sampled_batch() -> None:
    module, optimizer, loader = run()
    with pytest.raises(ParameterError, match="that the loader did not draw"):
        optimizer.step()
    with refuses("module", "loader"):
        module(torch.ones(6, WIDTH, dtype=torch.float64))
    batches = iter(loader)
    (x,) = next(batches)
    module(x).mean().backward()
    optimizer.step()
    with pytest.raises(ParameterError, match="or twice on one"):
        optimizer.step()


def test_batch_of_another_size_is_not_the_sampled_one() -> None:
    module, _, loader = run()
    (x,) = next(iter(loader))
    with refuses("module", "cat()"):
        module(torch.cat([x, x]))


class Joined(torch.nn.Module):
    """A network of one or two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Linear(WIDTH, 1, dtype=torch.float64)

    def forward(self, x: Any, more: Any = None) -> Any:
        return self.one(x if more is None else torch.stack([x, more]).sum(0))


def combined() -> tuple[Any, Any]:
    network = Joined()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    module, _, loader = run(module=network, optimizer=optimizer)
    (x,) = next(iter(loader))
    return module, x


def test_errors_name_inputs_created_in_the_loop() -> None:
    other = torch.ones(6, WIDTH, dtype=torch.float64)
    module, x = combined()
    with refuses("module", "created in the loop", "collate_fn"):
        module(other, x)
    module, x = combined()
    loss = torch.nn.functional.mse_loss(module(other), x[:, :1])
    with refuses("loss", "created in the loop", "collate_fn"):
        loss.backward()


def test_a_step_must_not_be_skipped() -> None:
    _module, _optimizer, loader = run()
    batches = iter(loader)
    next(batches)
    with refuses("step", "1"):
        next(batches)
    # Nor by starting again.
    with refuses("step", "1"):
        next(iter(loader))


def test_batch_is_read_once_with_backward_before_the_step() -> None:
    module, optimizer, loader = run()
    (x,) = next(iter(loader))
    with pytest.raises(ParameterError, match=r"before loss.backward\(\)"):
        optimizer.step()
    out = module(x)
    with pytest.raises(ParameterError, match=r"before loss.backward\(\)"):
        optimizer.step()
    with refuses("module", "called"):
        module(x)
    out.mean().backward()
    assert optimizer.step()


def test_penalty_in_the_loss_is_rejected() -> None:
    module, optimizer, loader = run()
    (x,) = next(iter(loader))
    out = module(x)
    with refuses("loss", "weight_decay"):
        (out.mean() + module.weight.square().sum()).backward()
    out.mean().backward()
    module.weight.square().sum().backward()
    with pytest.raises(ParameterError, match="weight_decay"):
        optimizer.step()


def test_evaluation_in_between_is_free() -> None:
    module, optimizer, loader = run()
    for (x,) in loader:
        with torch.no_grad():
            module(torch.ones(9, WIDTH, dtype=torch.float64))
        module(x).mean().backward()
        optimizer.step()


def test_unpaid_steps_are_rejected() -> None:
    module, optimizer, loader = run(lr=0.1)
    for (x,) in loader:
        module(x).mean().backward()
        optimizer.step()
    with refuses("steps", "3"):
        next(iter(loader))
    with refuses("steps", "3"):
        optimizer.step()
    # The module is an ordinary one again.
    module(torch.ones(2, WIDTH, dtype=torch.float64)).sum().backward()
    assert module.weight.grad is not None


def test_steps_without_records_have_noise() -> None:
    module, _optimizer, loader = run(sampling_rate=1e-9, lr=1.0, noise_multiplier=1.0)
    before = module.weight.detach().clone()
    assert list(loader) == []
    moved = (module.weight - before).detach() * 1e-9 * 10
    # Three steps of noise with the stated deviation.
    assert 0.3 < float(moved.square().mean().sqrt()) / 3**0.5 < 3
    assert len(loader) == 0


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_noise_grows_by_the_possible_rounding(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def drawn(found: Any, of: Any, noise: Normals, *others: Any) -> Any:
        seen.append(noise.sd)
        return in_floating_point(found, of, noise, *others)

    monkeypatch.setattr("dpgrain.torch.steps.in_floating_point", drawn)
    vectors = VECTORS.astype(precision)
    _, module, optimizer, loader = made(vectors, User(), max_grad_norm=0.5, noise_multiplier=3.0)
    for (x,) in loader:
        module(x).mean().backward()
        optimizer.step()
    billed = 1.5 * (1 + overshoot(getattr(torch, precision)))
    assert seen == [billed]
    assert 1.5 < billed < 1.502


def test_virtual_batches_make_one_step() -> None:
    module, optimizer, loader = run(max_rows=2, lr=0.1)
    stepped = []
    for (x,) in loader:
        before = module.weight.detach().clone()
        optimizer.zero_grad()
        module(x).mean().backward()
        stepped.append(optimizer.step())
        assert torch.equal(before, module.weight) != stepped[-1]
    assert stepped == [False, False, True] * 3


def partly_frozen() -> Any:
    """A run with a frozen first layer, and the caller's optimizer of the second."""
    network = torch.nn.Sequential(torch.nn.Linear(WIDTH, 2), torch.nn.Linear(2, 1)).double()
    network[0].requires_grad_(False)
    own = torch.optim.SGD(network[1].parameters(), lr=1.0)
    _, optimizer, loader = PrivacyEngine(random_state=1).make_private(
        module=network,
        optimizer=own,
        dataset=torch.utils.data.TensorDataset(torch.from_numpy(VECTORS)),
        n_users=6,
        steps=2,
        sampling_rate=1.0,
        max_grad_norm=1.0,
        noise_multiplier=1.0,
    )
    return network, own, optimizer, loader


def unfrozen(network: Any, _own: Any) -> None:
    network[0].requires_grad_(True)


def added_to_the_optimizer(network: Any, own: Any) -> None:
    own.add_param_group({"params": [torch.nn.Parameter(torch.ones(2, dtype=torch.float64))]})


def replaced(network: Any, _own: Any) -> None:
    network[1].weight = torch.nn.Parameter(torch.ones(1, 2, dtype=torch.float64))


def frozen_later(network: Any, _own: Any) -> None:
    network[1].bias.requires_grad_(False)


@pytest.mark.parametrize("change", [unfrozen, added_to_the_optimizer, replaced, frozen_later])
@pytest.mark.parametrize("when", ["before a batch", "after a batch", "after backward"])
def test_trained_parameters_are_fixed_at_the_start(change: Any, when: str) -> None:
    network, own, optimizer, loader = partly_frozen()
    batches = iter(loader)
    if when == "before a batch":
        change(network, own)
        with pytest.raises(ParameterError, match="before make_private"):
            next(batches)
        return
    (x,) = next(batches)
    if when == "after backward":
        network(x).mean().backward()
        change(network, own)
    else:
        change(network, own)
        network(x).mean().backward()
    before = [parameter.detach().clone() for parameter in network.parameters()]
    # A layer frozen in a pass is trainable again after it, and clipped.
    if change is not frozen_later or when == "after backward":
        with pytest.raises(ParameterError, match="before make_private"):
            optimizer.step()
        assert all(torch.equal(*pair) for pair in zip(before, network.parameters(), strict=True))


@pytest.mark.parametrize("rate", [1.0, 1e-9])
def test_leftover_gradient_changes_nothing(rate: float) -> None:
    network = torch.nn.Sequential(torch.nn.Linear(WIDTH, 2), torch.nn.Linear(2, 1)).double()
    network(torch.from_numpy(VECTORS)).sum().backward()
    network[0].requires_grad_(False)
    before = network[0].weight.detach().clone()
    _, optimizer, loader = PrivacyEngine(random_state=1).make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
        dataset=torch.utils.data.TensorDataset(torch.from_numpy(VECTORS)),
        n_users=6,
        steps=1,
        sampling_rate=rate,
        max_grad_norm=1.0,
        noise_multiplier=1.0,
    )
    for (x,) in loader:
        network(x).mean().backward()
        optimizer.step()
    assert torch.equal(network[0].weight, before)


def test_gradient_of_a_frozen_parameter_is_rejected() -> None:
    network, _own, optimizer, loader = partly_frozen()
    (x,) = next(iter(loader))
    network(x).mean().backward()
    network[0].weight.grad = torch.ones_like(network[0].weight)
    with pytest.raises(ParameterError, match="did not pass through its layer"):
        optimizer.step()
