"""Runs of a single process, and runs of several together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tests.torch.library import torch

# isort: split
from dpgrain.errors import ParameterError
from dpgrain.means import Recentred
from dpgrain.torch.adaptive_clipping import AdaptiveNorm
from dpgrain.torch.privacy_engine import PrivacyEngine
from dpgrain.units import Element, Record, Unit, User

PEOPLE, INPUTS, STEPS = 15, 3, 6
_SIZES = np.random.default_rng(8).integers(1, 9, PEOPLE)
USERS = np.repeat(np.arange(PEOPLE), _SIZES)
ELEMENTS = np.random.default_rng(9).integers(0, 3, len(USERS))
_UNITS: dict[str, tuple[Unit, dict[str, Any]]] = {
    "record": (Record(), {"users": USERS}),
    "element": (Element(), {"users": USERS, "elements": ELEMENTS}),
    "user": (User(), {"users": USERS}),
    "kept": (User(max_elements=2), {"users": USERS, "elements": ELEMENTS}),
}
_VALUES = np.random.default_rng(3).normal(size=(len(USERS), INPUTS + 1))
DATA = torch.utils.data.TensorDataset(
    torch.from_numpy(_VALUES[:, :INPUTS]), torch.from_numpy(_VALUES[:, INPUTS:])
)

#: The unit and options of runs, by name.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in _UNITS},
    "users drawn": ("element", {"sampling": "users"}),
    "all": ("user", {"sampling_rate": 1.0}),
    "few rows": ("user", {"max_rows": 3}),
    # In most steps one of two processes has nothing to read, in some both.
    "rarely": ("user", {"sampling_rate": 0.05}),
    "exact": ("user", {"exact": True}),
    "exact elements": ("element", {"exact": True, "max_rows": 2}),
    "adaptive": ("user", {"max_grad_norm": AdaptiveNorm(start=0.3)}),
    "adaptive, exact": ("user", {"max_grad_norm": AdaptiveNorm(start=0.3), "exact": True}),
    "banded": ("user", {"noise": "banded", "bands": 2}),
    "channels last": ("user", {"kind": "image"}),
    "single": ("user", {"kind": "single"}),
    "factor": ("user", {"kind": "factor"}),
}


class Image(torch.nn.Module):
    """A small picture of each record, with its channels last in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(INPUTS, 4, 3, padding=1)
        self.last = torch.nn.Linear(16, 1)

    def forward(self, x: Any) -> Any:
        picture = x[:, :, None, None] * torch.linspace(-1, 1, 4, dtype=x.dtype).reshape(2, 2)
        picture = picture.contiguous(memory_format=torch.channels_last)
        return self.last(torch.tanh(self.first(picture)).flatten(1))


class Scaled(torch.nn.Module):
    """A linear map times a parameter without dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.map, self.factor = torch.nn.Linear(INPUTS, 1), torch.nn.Parameter(torch.tensor(0.7))

    def forward(self, x: Any) -> Any:
        return self.factor.exp() * self.map(x)


class OneByOne(torch.utils.data.Dataset):
    """Records read individually, with random changes."""

    def __init__(self, values: Any, turned: float = 0.1) -> None:
        self.values, self.turned = values, turned

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, place: int) -> Any:
        x = self.values[place]
        return x[:INPUTS] + self.turned * torch.rand(INPUTS), x[INPUTS:], {"place": "here"}


class Forgetful(OneByOne):
    """Records that are never the same twice, because they use a private generator."""

    def __getitem__(self, place: int) -> Any:
        return self.values[place] + np.random.default_rng().normal()


def held(rank: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Units and options of runs in which the second process has other records or labels."""
    values, turned = torch.from_numpy(_VALUES), torch.from_numpy(_VALUES[::-1].copy())
    last = np.arange(len(USERS)) == len(USERS) - 1
    table = torch.utils.data.TensorDataset
    return {
        "shards of equal length": ("record", {"dataset": table(values + rank)}),
        "rows in another order": ("user", {"dataset": table(turned if rank else values)}),
        "one number": (
            "user",
            {"dataset": table(values + 1e-9 * rank * torch.from_numpy(last)[:, None])},
        ),
        "shards, one by one": ("user", {"dataset": OneByOne(values + rank)}),
        "another order, one by one": ("user", {"dataset": OneByOne(turned if rank else values)}),
        "ids of a shard": ("user", {"users": USERS + 1000 * rank}),
        "ids in another order": ("user", {"users": np.where(3 * rank == USERS, -1, USERS)}),
        "users of records": ("record", {"users": USERS + rank}),
        "cells of a shard": ("element", {"elements": ELEMENTS + 3 * rank}),
        "the same, one by one": ("user", {"dataset": OneByOne(values)}),
        "the same, never alike": ("user", {"dataset": Forgetful(values)}),
        "the same as a list": ("user", {"users": USERS.tolist() if rank else USERS}),
    }


def network(kind: str = "") -> Any:
    torch.manual_seed(5)
    if kind == "image":
        return Image().double().to(memory_format=torch.channels_last)
    if kind == "factor":
        return Scaled().double()
    layers = torch.nn.Linear(INPUTS, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)
    return torch.nn.Sequential(*layers).to(torch.float32 if kind == "single" else torch.float64)


def data(kind: str) -> Any:
    if kind != "single":
        return DATA
    return torch.utils.data.TensorDataset(*(tensor.float() for tensor in DATA.tensors))


def made(kind: str, several: bool) -> dict[str, Any]:
    own = network(kind)
    optimizer = torch.optim.Adam(own.parameters(), lr=0.05)
    module = torch.nn.parallel.DistributedDataParallel(own) if several else own
    return {"module": module, "optimizer": optimizer, "dataset": data(kind)}


def begun(unit: str, several: bool, kind: str = "", **options: Any) -> Any:
    own, labels = _UNITS[unit]
    given = {"noise_multiplier": 1.0, **labels, **options}
    for other in ("share", "target_epsilon"):
        if given.get(other) is not None:
            del given["noise_multiplier"]
    engine = PrivacyEngine(unit=own, random_state=1)
    return engine, *engine.make_private(
        **{
            **made(kind, several),
            "n_users": PEOPLE,
            "steps": STEPS,
            "sampling_rate": 0.4,
            "max_grad_norm": 1.0,
            **given,
        }
    )


def train(run: Any, steps: int | None = None) -> dict[str, Any]:
    """The optimizer's gradients in each step, the read records, and the parameters."""
    _, module, optimizer, loader = run
    gradients: list[Any] = []
    inner = optimizer._own.register_step_post_hook(
        lambda own, *_: gradients.append(
            torch.cat([p.grad.flatten() for group in own.param_groups for p in group["params"]])
        )
    )
    read: list[Any] = []
    for x, y in loader:
        optimizer.zero_grad()
        read.append((len(gradients), x[:, 0].clone()))
        torch.nn.functional.mse_loss(module(x), y).backward()
        optimizer.step()
        if len(gradients) == steps and loader._run._batch is None:
            break
    inner.remove()
    weights = torch.cat([p.detach().flatten() for p in module.parameters()])
    return {"gradients": torch.stack(gradients), "read": read, "weights": weights.clone()}


def trained(unit: str, options: dict[str, Any], *, several: bool) -> dict[str, Any]:
    run = begun(unit, several, **options)
    return {**train(run), "epsilon": run[0].get_epsilon(1e-6)}


def killed_and_resumed(path: Path, *, several: bool) -> Any:
    """The parameters of a run that all processes leave and take up again."""
    run = begun("user", several, sampling_rate=1.0)
    train(run, 3)
    run[0].save(path)
    train(run, 2)
    if several:
        torch.distributed.barrier()
    again = PrivacyEngine.resume(path, **made("", several), users=USERS)
    return train(again)["weights"]


def refusal(unit: str, several: bool, **options: Any) -> str:
    """The message of a rejected run."""
    try:
        begun(unit, several, **options)
    except ParameterError as error:
        return str(error)
    return ""


def refusal_of_mean(*, several: bool) -> str:
    try:
        PrivacyEngine(unit=User()).make_private(
            **made("", several), users=USERS, mean=Recentred(1.0, 2.0, PEOPLE, 3)
        )
    except ParameterError as error:
        return str(error)
    return ""
