"""The optimizer is the caller's own, and sees only noisy gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.refusals import refuses
from tests.torch.library import torch
from tests.torch.runs import WIDTH, made

# isort: split
from dpgrain.units import User

VECTORS = np.full((6, WIDTH), 0.1)


def train(module: Any, optimizer: Any, loader: Any, scheduler: Any = None) -> None:
    for (x,) in loader:
        optimizer.zero_grad()
        module(x).mean().backward()
        if optimizer.step() and scheduler is not None:
            scheduler.step()


def test_it_steps_as_the_caller_s_optimizer() -> None:
    _, module, optimizer, loader = made(
        VECTORS, User(), lr=0.5, steps=2, n_users=6, noise_multiplier=2.0**-10
    )
    start = module.weight.detach().clone()
    train(module, optimizer, loader)
    assert (start - module.weight).detach().numpy() == pytest.approx(0.1, abs=0.01)


def test_schedulers_take_it() -> None:
    _, module, optimizer, loader = made(VECTORS, User(), lr=1.0, steps=4, max_rows=4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    train(module, optimizer, loader, scheduler)
    assert optimizer.param_groups[0]["lr"] == 1 / 16


def test_state_belongs_to_the_callers_optimizer() -> None:
    network = torch.nn.Linear(WIDTH, 1, bias=False).double()
    own = torch.optim.Adam(network.parameters(), lr=0.1)
    _, module, optimizer, loader = made(VECTORS, User(), module=network, optimizer=own, steps=2)
    train(module, optimizer, loader)
    assert optimizer.state is own.state
    assert optimizer.defaults is own.defaults
    saved = optimizer.state_dict()
    assert saved["state"][0]["step"] == 2
    optimizer.load_state_dict(saved)
    assert "Adam" in repr(optimizer)


def test_unaccounted_optimizers_are_rejected() -> None:
    _, _, optimizer, _ = made(VECTORS, User())
    with refuses("closure", "omitted"):
        optimizer.step(lambda: 0.0)
    with refuses("param_group", "added"):
        optimizer.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})
