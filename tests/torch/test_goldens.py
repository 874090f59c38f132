"""Seeded networks equal the stored ones, on a processor and with one thread.

After an intended change of results, run ``DPGRAIN_GOLDENS=write pytest
tests/torch/test_goldens.py`` and read the difference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.claims.golden import check, observe
from tests.torch.library import torch

# isort: split
import dpgrain as dg
from dpgrain.torch import AdaptiveNorm, PrivacyEngine, train

GOLDENS = Path(__file__).with_name("goldens.json")
VERSION = "2.13"
# Kernels add in another order from one processor to the next.
TOLERANCE = 1e-4
PEOPLE, EACH, WIDTH = 60, 4, 5
USERS = np.repeat(np.arange(PEOPLE), EACH)
CELLS = np.tile([0, 0, 1, 1], PEOPLE)
PROMISE: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-6, "random_state": 1}

pytestmark = pytest.mark.skipif(
    not torch.__version__.startswith(VERSION), reason=f"the goldens are those of PyTorch {VERSION}"
)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def records() -> Any:
    x = np.random.default_rng(1).normal(size=(PEOPLE * EACH, WIDTH)).astype(np.float32)
    y = (x @ [2.0, -1.0, 0.5, 0, 0] > 0).astype(np.int64)
    return torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))


def network() -> Any:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


def result(module: Any, guarantee: Any) -> Any:
    weights = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    return SimpleNamespace(
        coef_=weights.double().numpy(), intercept_=None, history_=None, guarantee=guarantee
    )


def trained(**options: Any) -> Any:
    cross_entropy = torch.nn.functional.cross_entropy
    asked = {"users": USERS, "n_users": PEOPLE, "steps": 10, **PROMISE, **options}
    training = train(network(), cross_entropy, records(), **asked)
    return result(training.module, training.guarantee)


def looped() -> Any:
    module, engine = network(), PrivacyEngine(unit=dg.User(), random_state=1)
    module, optimizer, loader = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.5),
        dataset=records(),
        users=USERS,
        n_users=PEOPLE,
        steps=10,
        sampling_rate=0.5,
        target_epsilon=8.0,
        max_grad_norm=0.1,
    )
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
    return result(module, engine.guarantee)


CASES: dict[str, Callable[[], Any]] = {
    "users": trained,
    "records": partial(trained, users=None, n_users=PEOPLE * EACH),
    "elements": partial(trained, elements=CELLS, unit=dg.Element()),
    "users of few elements": partial(trained, elements=CELLS, unit=dg.User(max_elements=2)),
    "replaced users": partial(trained, relation="replace"),
    "an adaptive norm": partial(trained, max_grad_norm=AdaptiveNorm()),
    "a free loop": looped,
}


@pytest.mark.parametrize("name", CASES)
def test_a_seeded_network_equals_its_golden(name: str) -> None:
    check(name, observe(CASES[name]), GOLDENS, TOLERANCE)


def test_every_golden_has_a_case() -> None:
    assert set(json.loads(GOLDENS.read_text())) == set(CASES)
