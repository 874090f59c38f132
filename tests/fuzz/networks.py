"""Malformed values for the network package, and valid calls without a docstring example."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from tests.fuzz.watch import CANARY, OwnError
from tests.torch.library import torch
from tests.torch.trainers import texts, trainer

# isort: split
import dpgrain as dg
from dpgrain.optimize import Uniform
from dpgrain.torch import AdaptiveNorm, PrivacyEngine, Trainer, Training, losses, train

#: Parameters for amounts of work: any number is valid, and many take long. Billions of blocks also
#: take long, because calibration is slow for their rates.
AMOUNTS = frozenset({"steps", "bands", "elements_per_user"})
#: Callback parameters: the caller's own errors are propagated.
FUNCTIONS = frozenset({"loss", "evaluate", "collate_fn"})
_PEOPLE = 12


class Unreadable:
    def __len__(self) -> int:
        return _PEOPLE

    def __getitem__(self, place: int) -> Any:
        raise OwnError


def _network() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))


def _data() -> Any:
    return torch.utils.data.TensorDataset(torch.ones(_PEOPLE, 2), torch.ones(_PEOPLE, 1))


ODD: Mapping[str, Any] = {
    "a tensor": torch.ones(3),
    "a tensor of a number": torch.tensor(0.5),
    "a tensor of nothing": torch.zeros(0),
    "a tensor of no numbers": torch.full((2, 2), float("nan")),
    "a tensor of places": torch.tensor([[1, 0], [2, 3]]),
    "a tensor of truths": torch.tensor([True, False]),
    "a complex tensor": torch.ones(2, 2, dtype=torch.cfloat),
    "a sparse tensor": torch.eye(2).to_sparse(),
    "a tensor of no device": torch.empty(2, device="meta"),
    "half a tensor": torch.ones(2, 2, dtype=torch.bfloat16),
    "tensors by name": {"logits": torch.zeros(2, 3), "labels": torch.tensor([0, 2])},
    "a network": _network(),
    "a network of nothing": torch.nn.ReLU(),
    "a network that mixes": torch.nn.BatchNorm1d(2),
    "a network of words": torch.nn.Embedding(3, 2),
    "an optimizer": torch.optim.SGD(_network().parameters(), lr=0.1),
    "a data set": _data(),
    "a loader": torch.utils.data.DataLoader(_data()),
    "a sampler": torch.utils.data.RandomSampler(_data()),
    "texts": [{"text": CANARY}] * _PEOPLE,
    "records that cannot be read": Unreadable(),
    "a loss by record": losses.classification,
    "a unit": dg.User(max_elements=1),
    "a rule": AdaptiveNorm(),
    "an average": Uniform(),
    "types": (torch.nn.Linear, int),
}

_NUMBERS: dict[str, Any] = {"n_users": _PEOPLE, "random_state": 1}


def _made() -> dict[str, Any]:
    network = _network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    return {"module": network, "optimizer": optimizer, "dataset": _data()}


@cache
def _folder() -> Path:
    return Path(mkdtemp(prefix="dpgrain-networks-"))


def _engine(*, unit: Any = None, **asked: Any) -> PrivacyEngine:
    engine = PrivacyEngine(unit=unit)
    asked = {"n_users": _PEOPLE, "steps": 2, "sampling_rate": 0.9, "max_grad_norm": 1.0, **asked}
    network, optimizer, loader = engine.make_private(
        **_made(), noise_multiplier=1.0, loss_reduction="sum", **asked
    )
    for x, y in loader:
        optimizer.zero_grad()
        ((network(x) - y) ** 2).sum().backward()
        if not optimizer.step():
            continue
        engine.save(path := _folder() / "last.pt", extra={"seen": 1})
        named = {name: asked[name] for name in ("users", "elements") if name in asked}
        PrivacyEngine.resume(
            path, **_made(), **named, max_rows=4, records_apart=[torch.nn.GELU], collate_fn=None
        )
        break
    return engine


def _engines() -> None:
    number = np.arange(_PEOPLE)
    example = torch.zeros(3, 2)
    _engine(example=example, max_rows=4, collate_fn=torch.utils.data.default_collate)
    engine = _engine(
        unit=dg.Element(),
        users=number // 2,
        elements=number % 2,
        elements_per_user=2.0,
        noise="banded",
        bands=2,
        sampling_rate=0.45,
    )
    engine.get_epsilon(1e-6, units=2, unit=dg.User(), relation="replace")


def _optimizer() -> None:
    _, optimizer, _ = PrivacyEngine().make_private(
        **_made(),
        n_users=_PEOPLE,
        steps=2,
        sampling_rate=0.9,
        max_grad_norm=1.0,
        noise_multiplier=1.0,
    )
    optimizer.load_state_dict(optimizer.state_dict())
    with contextlib.suppress(dg.ParameterError):
        optimizer.step(closure=lambda: None)
    with contextlib.suppress(dg.ParameterError):
        optimizer.add_param_group({"params": []})


def _trained(**more: Any) -> Training:
    return train(
        loss=torch.nn.functional.mse_loss, **_made(), epsilon=8.0, steps=2, **_NUMBERS, **more
    )


def _trainings() -> None:
    _trained(
        users=np.arange(_PEOPLE) // 2,
        average=Uniform(),
        evaluate=lambda network: {"weight": network[0].weight.sum()},
        example=(torch.zeros(2), torch.zeros(1)),
        every=1,
        checkpoint=Path(mkdtemp(dir=_folder())) / "last.pt",
        max_grad_norm=AdaptiveNorm(),
        collate_fn=torch.utils.data.default_collate,
        records_apart=(torch.nn.GELU,),
    )


def _trainer(**more: Any) -> Trainer:
    public = {"eval_dataset": texts(3, longest=2), "privacy": {"eval_is_public": True}}
    return trainer(Path(mkdtemp(dir=_folder())), **public, **more)


def _trainers() -> None:
    others = texts(4, longest=2)
    made = _trainer()
    made.evaluate(others)
    made.predict(others)
    made.release_loss(others, largest=3.0, epsilon=1.0, n_users=_PEOPLE, random_state=1)
    made.save_model(str(_folder() / "model"))
    made.create_model_card()
    for refused in (made.push_to_hub, made.hyperparameter_search):
        with contextlib.suppress(dg.ParameterError):
            refused()


#: Class or function → what calls it, or its methods.
SHOWN: Mapping[str, Callable[[], object]] = {
    "dpgrain.torch.PrivacyEngine": _engines,
    "dpgrain.torch.PrivateOptimizer": _optimizer,
    "dpgrain.torch.Trainer": _trainers,
    "dpgrain.torch.train": _trainings,
}
