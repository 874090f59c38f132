"""The loader samples each step independently, and returns whole records."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.torch.library import torch
from tests.torch.runs import WIDTH, made

# isort: split
from dpgrain.torch.privacy_engine import PrivacyEngine
from dpgrain.units import User

USERS = np.repeat(np.arange(40), 3)


def drawn(loader: Any, module: Any, optimizer: Any) -> list[list[int]]:
    """The users of each batch, encoded in a record's second number."""
    found = []
    for (x,) in loader:
        found.append(x[:, 1].long().tolist())
        module(x).mean().backward()
        optimizer.step()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["pairs", "users"])
def test_users_are_sampled_at_the_rate_with_all_records(sampling: str) -> None:
    vectors = np.zeros((120, WIDTH))
    vectors[:, 1] = USERS
    _, module, optimizer, loader = made(
        vectors, User(), users=USERS, sampling_rate=0.3, steps=100, sampling=sampling
    )
    assert len(loader) == 100
    batches = drawn(loader, module, optimizer)
    for batch in batches:
        assert set(np.bincount(batch)) <= {0, 3}
    rate = sum(len(set(batch)) for batch in batches) / (100 * 40)
    assert abs(rate - 0.3) < 5 * math.sqrt(0.21 / 4000)
    sizes = [len(set(batch)) for batch in batches]
    assert 0.5 < np.var(sizes) / (40 * 0.21) < 2


def test_interrupted_loop_resumes_at_its_step() -> None:
    _, module, optimizer, loader = made(np.ones((6, WIDTH)), User(), steps=4, max_rows=4)
    count = 0
    for _ in range(8):
        for (x,) in loader:
            module(x).mean().backward()
            optimizer.step()
            count += 1
            break
    assert (count, len(loader)) == (8, 0)


class Words(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, place: int) -> tuple[str, int]:
        return "word" * place, place


@pytest.mark.parametrize("collate", [None, lambda records: torch.tensor([r[1] for r in records])])
def test_data_sets_of_any_kind(collate: Any) -> None:
    network = torch.nn.Linear(1, 1)
    _, _, loader = PrivacyEngine(random_state=1).make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
        dataset=Words(),
        n_users=6,
        steps=1,
        sampling_rate=1.0,
        max_grad_norm=1.0,
        noise_multiplier=1.0,
        collate_fn=collate,
    )
    batch = next(iter(loader))
    numbers = batch[1] if collate is None else batch
    assert sorted(numbers.tolist()) == list(range(6))
