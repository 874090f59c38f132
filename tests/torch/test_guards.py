"""A learning rate follows public numbers, and no noiseless function of records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.refusals import refuses
from tests.torch.library import torch
from tests.torch.runs import WIDTH, made

# isort: split
from dpgrain.units import User

VECTORS = np.full((6, WIDTH), 0.1)
Plateau: Any = torch.optim.lr_scheduler.ReduceLROnPlateau


class Patient(Plateau):
    """A scheduler of the caller's own, which compares losses itself."""

    def step(self, metrics: Any, epoch: Any = None) -> None:
        if metrics < self.best:
            self.best: Any = metrics


READINGS: dict[str, Callable[[Any], Any]] = {
    "loss": lambda loss: loss,
    "detached": lambda loss: loss.detach(),
    "scaled": lambda loss: 2 * loss.detach() + 1,
    "root": lambda loss: loss.detach().square().sqrt(),
}


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("kind", [Plateau, Patient])
@pytest.mark.parametrize("own", [False, True], ids=["private", "own"])
def test_a_plateau_of_training_losses_is_rejected(kind: Any, reading: str, own: bool) -> None:
    _, module, optimizer, loader = made(VECTORS, User(), steps=2)
    scheduler = kind(optimizer._own if own else optimizer, patience=0)
    for (x,) in loader:
        loss = module(x).mean()
        loss.backward()
        optimizer.step()
        with refuses("scheduler", kind.__name__, "public"):
            scheduler.step(READINGS[reading](loss))


def test_losses_of_several_batches_are_not_public() -> None:
    _, module, optimizer, loader = made(VECTORS, User(), steps=2)
    scheduler, total = Plateau(optimizer), 0.0
    for (x,) in loader:
        loss = module(x).mean()
        loss.backward()
        optimizer.step()
        total = total + loss.detach()
    with refuses("scheduler"):
        scheduler.step(total / 2)


def test_a_plateau_of_public_losses_is_followed() -> None:
    _, module, optimizer, loader = made(VECTORS, User(), lr=1.0, steps=4)
    scheduler = Plateau(optimizer, patience=0, factor=0.5)
    public = torch.ones(3, WIDTH, dtype=torch.float64)
    for (x,) in loader:
        loss = module(x).mean()
        loss.backward()
        optimizer.step()
        assert np.isfinite(float(loss.detach()))
        assert loss.item() < np.inf
        with torch.no_grad():
            scheduler.step(0 * module(public).mean())
    assert optimizer.param_groups[0]["lr"] == 1 / 8


class Learner:
    """A loop as a class, with a method of the same name as a scheduler's."""

    def __init__(self, module: Any, optimizer: Any) -> None:
        self.module, self.optimizer, self.seen = module, optimizer, 0.0

    def step(self, x: Any) -> None:
        loss = self.module(x).mean()
        loss.backward()
        self.optimizer.step()
        self.seen += loss.item()


def test_loop_class_may_read_losses() -> None:
    _, module, optimizer, loader = made(VECTORS, User(), steps=2)
    learner = Learner(module, optimizer)
    for (x,) in loader:
        learner.step(x)
    assert np.isfinite(learner.seen)
