"""Failures of the first step occur before the charge, and a rehearsal leaves no trace."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from tests.refusals import refuses
from tests.torch.library import torch

# isort: split
import dpgrain as dg
from dpgrain.torch.preflight import rehearse_step
from dpgrain.torch.privacy_engine import PrivacyEngine
from dpgrain.torch.training import train

DATA = torch.utils.data.TensorDataset(torch.ones(30, 3), torch.ones(30, 1))
NUMBERS: dict[str, Any] = {"n_users": 30, "steps": 2, "sampling_rate": 0.5, "max_grad_norm": 1.0}


class Branching(torch.nn.Module):
    """A custom layer without per-record gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Any) -> Any:
        return x * self.scale if x.sum() > -math.inf else -x * self.scale


def network() -> Any:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 1), Branching())


def begun(module: Any, optimizer: Any, **options: Any) -> Any:
    return PrivacyEngine().make_private(
        module=module, optimizer=optimizer, dataset=DATA, target_epsilon=1.0, **NUMBERS, **options
    )


@pytest.mark.parametrize("kind", [torch.optim.LBFGS, torch.optim.SparseAdam])
def test_optimizers_without_steps_are_rejected_before_the_charge(kind: Any) -> None:
    module = torch.nn.Linear(3, 1)
    with dg.budget(2.0, 1e-5) as whole, refuses("optimizer", kind.__name__.removeprefix("Sparse")):
        begun(module, kind(module.parameters()))
    assert whole.left == 1.0


def test_unrecordable_networks_are_rejected_before_the_charge() -> None:
    module = network()
    with dg.budget(2.0, 1e-5) as whole, refuses("module", "Branching"):
        begun(
            module,
            torch.optim.SGD(module.parameters()),
            records_apart=[Branching],
            example=torch.randn(4, 3),
        )
    assert whole.left == 1.0
    assert not module._forward_pre_hooks


@pytest.mark.parametrize("given", [False, True], ids=["shapes", "example"])
def test_train_rehearses_with_the_shapes_of_its_records(given: bool) -> None:
    module = network()
    example = (torch.zeros(3), torch.zeros(1)) if given else None
    with dg.budget(2.0, 1e-5) as whole, refuses("module", "Branching"):
        train(
            module,
            torch.nn.functional.mse_loss,
            list(DATA) if given else DATA,
            n_users=30,
            epsilon=1.0,
            steps=2,
            records_apart=[Branching],
            example=example,
        )
    assert whole.left == 1.0


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "adam": (torch.optim.Adam, {"amsgrad": True}),
    **{
        name: (getattr(torch.optim, name), {})
        for name in ("AdamW", "Adamax", "NAdam", "RAdam", "Adadelta", "Adagrad", "Adafactor")
    },
    **{name: (getattr(torch.optim, name), {}) for name in ("RMSprop", "Rprop", "ASGD")},
}


@pytest.mark.parametrize("stepped", [False, True], ids=["new", "stepped"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_rehearsal_leaves_no_trace(kind: str, stepped: bool) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), Branching())
    made, options = KINDS[kind]
    optimizer = made(module.parameters(), lr=0.1, **options)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    steps: list[Any] = []
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    module(torch.ones(2, 3)).sum().backward()
    if stepped:
        optimizer.step()
        scheduler.step()
    before = copy.deepcopy((module.state_dict(), optimizer.state_dict(), scheduler.state_dict()))
    gradients, generator = [p.grad.clone() for p in module.parameters()], torch.get_rng_state()
    made_before = len(steps)
    rehearse_step(list(module.parameters()), optimizer)
    after = module.state_dict(), optimizer.state_dict(), scheduler.state_dict()
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert all(
        torch.equal(p.grad, gradient)
        for p, gradient in zip(module.parameters(), gradients, strict=True)
    )
    assert torch.equal(torch.get_rng_state(), generator)
    assert len(steps) == made_before


def test_tried_network_is_unchanged() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Dropout(0.5)).eval()
    module(torch.ones(2, 3)).sum().backward()
    before, example = copy.deepcopy(module.state_dict()), torch.randn(4, 3)
    gradients, generator = [p.grad.clone() for p in module.parameters()], torch.get_rng_state()
    query: Any = PrivacyEngine().query(
        module=module,
        optimizer=torch.optim.SGD(module.parameters()),
        dataset=DATA,
        target_epsilon=1.0,
        example=example,
        **NUMBERS,
    )
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)
    assert all(
        torch.equal(p.grad, gradient)
        for p, gradient in zip(module.parameters(), gradients, strict=True)
    )
    assert torch.equal(torch.get_rng_state(), generator)
    assert not any(part.training for part in module.modules())
    assert not query.network._recorder.uses
