"""Audited training of networks: one call, a custom loop, and Hugging Face's loop."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from audited_runs import (
    DELTA,
    DRAWN,
    DRAWN_ROUNDS,
    LARGE_DELTA,
    RATE,
    UNITS,
    Array,
    Case,
    drawn_mean,
    drawn_scores,
    of_units,
    whose,
)
from ways_of_audit import WholeRuns

import dpgrain as dg
from dpgrain.auditing import Canaries
from dpgrain.optimize import Last
from dpgrain.publishing.guarantee import Guarantee

STEPS = 4


def networks() -> Iterator[Case]:
    """Yield the trainings of networks, each audited by canaries in one run."""
    yield from of_units("torch.train", partial(trained, {}))
    adaptive = {"max_grad_norm": dg.torch.AdaptiveNorm()}
    yield from of_units("torch.train", partial(trained, adaptive), "adaptive norm", ("user",))
    yield from of_units("torch.PrivacyEngine", looped)
    way = WholeRuns(drawn_training, LARGE_DELTA, times=5)
    yield Case("torch.PrivacyEngine", "user", "a fifth drawn", way)
    if find_spec("transformers") is not None and find_spec("datasets") is not None:
        yield from of_units("torch.Trainer", fine_tuned)


def output(outputs: Any, _: Any) -> Any:
    """A loss that is the output: the gradient of a record is the record."""
    return outputs.sum()


def network(rows: Canaries) -> tuple[Any, Any, Any]:
    """Return a linear network, its starting point, and its optimizer."""
    made = torch.nn.Linear(rows.gradients.shape[1], 1, bias=False)
    start = made.weight.detach().clone()
    return made, start, torch.optim.SGD(made.parameters(), lr=1.0)


def moved(made: Any, start: Any) -> Array:
    """Return how far weights were moved against the gradients."""
    found: Array = (start - made.weight).detach().double().numpy().ravel()
    return found


def data(rows: Canaries) -> Any:
    """Return the records as a data set, with meaningless targets."""
    inputs = torch.tensor(rows.gradients, dtype=torch.float32)
    return torch.utils.data.TensorDataset(inputs, torch.zeros(len(inputs)))


def trained(
    options: dict[str, Any], unit: str, rows: Canaries, epsilon: float
) -> tuple[Array, Guarantee]:
    """Train in one call."""
    made, start, optimizer = network(rows)
    asked = {"max_grad_norm": 1.0, **options}
    run = dg.torch.train(
        made, output, data(rows), n_users=rows.n_users, unit=UNITS[unit], epsilon=epsilon,
        delta=DELTA, steps=STEPS, sampling_rate=1.0, optimizer=optimizer, progress=False,
        average=Last(), **whose(unit, rows), **asked,
    )  # fmt: skip
    return moved(made, start), run.guarantee


def looped(unit: str, rows: Canaries, epsilon: float) -> tuple[Array, Guarantee]:
    """Train in a custom loop."""
    made, start, optimizer = network(rows)
    engine = dg.torch.PrivacyEngine(unit=UNITS[unit])
    module, optimizer, loader = engine.make_private(
        module=made, optimizer=optimizer, dataset=data(rows), n_users=rows.n_users,
        target_epsilon=epsilon, target_delta=DELTA, steps=STEPS, sampling_rate=1.0,
        max_grad_norm=1.0, **whose(unit, rows),
    )  # fmt: skip
    for inputs, _ in loader:
        optimizer.zero_grad()
        module(inputs).mean().backward()
        optimizer.step()
    return moved(made, start), engine.guarantee


def drawn_training(epsilon: float, runs: int) -> tuple[Array, Array, Guarantee]:
    """Train with the gradients of sampled users, who each have one weight, in a custom loop."""
    promised = []

    def published(vectors: Array) -> Array:
        made = torch.nn.Linear(DRAWN, 1, bias=False)
        optimizer = torch.optim.SGD(made.parameters(), lr=1.0)
        records = torch.utils.data.TensorDataset(torch.tensor(vectors, dtype=torch.float32))
        engine = dg.torch.PrivacyEngine(unit=dg.User())
        module, optimizer, loader = engine.make_private(
            module=made, optimizer=optimizer, dataset=records, n_users=DRAWN,
            users=np.arange(DRAWN), target_epsilon=epsilon, target_delta=DELTA, steps=DRAWN_ROUNDS,
            sampling_rate=RATE, max_grad_norm=1.0,
        )  # fmt: skip
        weights = [made.weight.detach().double().numpy().ravel().copy()]
        for (inputs,) in loader:
            optimizer.zero_grad()
            module(inputs).mean().backward()
            optimizer.step()
            weights.append(made.weight.detach().double().numpy().ravel().copy())
        promised.append(engine.guarantee)
        return -np.diff(weights, axis=0)

    found = drawn_scores(published, drawn_mean(epsilon, 1), runs)
    return *found, promised[0]


class Scored(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """A linear network as Hugging Face's loop calls it."""

    def __init__(self, linear: Any) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, features: Any) -> Any:
        """Return the score of each record."""
        return self.linear(features)


def fine_tuned(unit: str, rows: Canaries, epsilon: float) -> tuple[Array, Guarantee]:
    """Train with Hugging Face's loop."""
    import datasets
    import transformers

    made, start, optimizer = network(rows)
    labels = whose(unit, rows)
    columns = {"users": "user", "elements": "element"}
    records = datasets.Dataset.from_dict(
        {
            "features": rows.gradients.astype(np.float32),
            "labels": np.zeros(len(rows.gradients)),
            **{columns[name]: of for name, of in labels.items()},
        }
    )
    named: dict[str, Any] = {f"{name}_column": columns[name] for name in labels}
    privacy = dg.torch.PrivacyArguments(
        n_users=rows.n_users, unit=UNITS[unit], target_epsilon=epsilon, target_delta=DELTA,
        clip=1.0, sampling_rate=1.0, loss=lambda outputs, _: outputs[:, 0], **named,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        args = transformers.TrainingArguments(
            folder, max_steps=STEPS, report_to=[], save_strategy="no", use_cpu=True,
            per_device_train_batch_size=len(records), lr_scheduler_type="constant",
            logging_strategy="no", label_names=["labels"],
        )  # fmt: skip
        trainer = dg.torch.Trainer(
            Scored(made), args, privacy=privacy, train_dataset=records,
            optimizers=(optimizer, None),
        )  # fmt: skip
        trainer.train()
    return moved(made, start), trainer.guarantee
