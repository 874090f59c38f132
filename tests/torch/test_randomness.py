"""Draws of networks and data sets in a private run follow from no known seed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.torch.library import torch

# isort: split
from dpgrain.torch.privacy_engine import PrivacyEngine
from dpgrain.torch.randomness import (
    device_rng_states,
    reseed_from_os,
    restore_device_rng,
    seeded_randomness,
)

ROWS = 64


def begin(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002


def drawn() -> tuple[float, float, float]:
    return float(torch.rand(())), random.random(), float(np.random.random())  # noqa: NPY002


def masked(seed: int | None, *, within: bool, collate: Any = None) -> Any:
    """The dropout output of each record, in a run with a loop that seeds all generators.

    Args:
        seed: the seed of the run; None for a private one.
        within: True if the loop seeds between a batch and the network.
    """
    network = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(1, 1, bias=False))
    torch.nn.init.ones_(network[1].weight)
    begin(3)
    _, optimizer, loader = PrivacyEngine(random_state=seed).make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.0),
        dataset=torch.utils.data.TensorDataset(torch.ones(ROWS, 1)),
        n_users=ROWS,
        steps=2,
        sampling_rate=1.0,
        max_grad_norm=1.0,
        noise_multiplier=1.0,
        collate_fn=collate,
    )
    seen = []
    for (x,) in loader:
        if within:
            begin(3)
        out = network(x)
        out.mean().backward()
        optimizer.step()
        seen += [x.flatten(), out.detach().flatten()]
    return torch.stack(seen)


@pytest.mark.slow
@pytest.mark.parametrize("within", [False, True])
def test_masks_of_a_private_run_follow_from_no_seed(within: bool) -> None:
    one, other = (masked(None, within=within) for _ in range(2))
    assert set(one.flatten().tolist()) <= {0.0, 1.0, 2.0}
    for pair in ((one[1], other[1]), (one[3], other[3]), (one[1], one[3])):
        assert not torch.equal(*pair)


@pytest.mark.slow
@pytest.mark.parametrize(
    "draw",
    [
        lambda rows: torch.rand(rows, 1),
        lambda rows: torch.tensor([[random.random()] for _ in range(rows)]),
        lambda rows: torch.from_numpy(np.random.random((rows, 1))).float(),  # noqa: NPY002
    ],
    ids=["torch", "random", "numpy"],
)
def test_draws_during_reading_follow_no_seed(draw: Any) -> None:
    def collate(records: list[Any]) -> Any:
        return (draw(len(records)),)

    one, other = (masked(None, within=False, collate=collate) for _ in range(2))
    assert not torch.equal(one[0], other[0])
    assert not torch.equal(one[2], other[2])


@pytest.mark.slow
def test_seeded_run_is_unchanged() -> None:
    assert torch.equal(masked(1, within=False), masked(1, within=False))


def test_seed_is_restored() -> None:
    begin(1)
    expected = drawn()
    begin(1)
    for _ in range(2):
        with seeded_randomness(5):
            inside = drawn()
    assert drawn() == expected
    begin(5)
    assert drawn() == inside


def test_next_draws_are_unpredictable() -> None:
    seen = []
    for _ in range(2):
        begin(1)
        reseed_from_os()
        seen.append(drawn())
    assert all(one != other for one, other in zip(*seen, strict=True))


def test_all_devices_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # PyTorch warns about several unnamed GPUs.
    asked: list[Any] = []

    @contextlib.contextmanager
    def forked(devices: Any) -> Iterator[None]:
        asked.extend(devices)
        yield

    monkeypatch.setattr(torch.random, "fork_rng", forked)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    with seeded_randomness(1):
        pass
    assert asked == [0, 1, 2]


def test_device_generators_resume_on_existing_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert device_rng_states() == []
    put: dict[int, str] = {}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, of: put.update({of: state}))
    restore_device_rng(["one", "two", "three"])
    assert put == {0: "one", 1: "two"}
