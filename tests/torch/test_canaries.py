"""A training run of a network is audited by canaries whose gradients are axes of its weights."""

from __future__ import annotations

from typing import Any

import pytest
from tests.torch.library import torch

# isort: split
from tests.charges import weakened

import dpgrain as dg
from dpgrain.auditing import Canaries, audit_training
from dpgrain.publishing.draws import Normals
from dpgrain.torch import steps
from dpgrain.units import Unit


def trained(rows: Canaries, unit: Unit) -> tuple[Any, Any]:
    """Train a linear network whose loss is its output: the gradient of a record is the record."""
    inputs = torch.tensor(rows.gradients, dtype=torch.float32)
    dataset = torch.utils.data.TensorDataset(inputs, torch.zeros(len(inputs)))
    network = torch.nn.Linear(inputs.shape[1], 1, bias=False)
    start = network.weight.detach().clone()
    element = isinstance(unit, dg.Element)
    run = dg.torch.train(
        network, lambda outputs, _: outputs.sum(), dataset, n_users=rows.n_users, users=rows.users,
        elements=rows.elements if element else None, unit=unit, epsilon=4.0, steps=8,
        sampling_rate=0.5, elements_per_user=2.0 if element else 1.0, max_grad_norm=1.0,
        optimizer=torch.optim.SGD(network.parameters(), lr=1.0), progress=False,
    )  # fmt: skip
    return (start - network.weight).detach().double().numpy(), run.guarantee


@pytest.fixture(params=["processor", "device"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Draw the noise as a processor does, or as other devices do."""
    device = request.param == "device"
    monkeypatch.setattr("dpgrain.publishing.draws.draws_itself", lambda _: device)
    return str(request.param)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("unit", "elements"), [(dg.User(), 1), (dg.Element(), 2)])
def test_a_run_keeps_its_claim_and_comes_near(unit: Unit, elements: int) -> None:
    found = audit_training(
        lambda rows: trained(rows, unit), canaries=300, elements=elements, random_state=5
    )
    (line,) = found.lines
    assert found.verdict in ("kept", "weak")
    assert line.claim == pytest.approx(4.0, rel=1e-2)
    assert 0.5 < (line.named.epsilon or 0) <= line.claim


@pytest.mark.usefixtures("way")
def test_run_with_a_third_of_noise_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = steps.in_floating_point

    def weaker(found: Any, parameters: Any, sd: Normals, *others: Any) -> Any:
        return exact(found, parameters, weakened(sd, 3), *others)

    monkeypatch.setattr("dpgrain.torch.steps.in_floating_point", weaker)
    found = audit_training(lambda rows: trained(rows, dg.User()), canaries=300, random_state=5)
    assert found.verdict == "violated"
