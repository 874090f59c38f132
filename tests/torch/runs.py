"""Private runs of a small linear model with records that have chosen gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.torch.library import torch

# isort: split
from dpgrain.torch.privacy_engine import PrivacyEngine
from dpgrain.units import Record, Relation, Unit

Array = NDArray[np.float64]
WIDTH = 4


def made(vectors: Any, unit: Unit, relation: Relation = "zero_out", **options: Any) -> Any:
    """An engine, and its module, optimizer and loader, for records with these gradients.

    Args:
        vectors: (records, WIDTH) the gradient of each record's loss.
        options: differences from one step with all blocks and almost no noise.
    """
    records = torch.as_tensor(np.asarray(vectors))
    engine = PrivacyEngine(unit=unit, relation=relation, random_state=options.pop("seed", 1))
    network = torch.nn.Linear(WIDTH, 1, bias=False).to(records.dtype)
    # Without labels each record is of another user.
    users = {} if isinstance(unit, Record) else {"users": range(len(records))}
    given = {
        "module": network,
        "optimizer": torch.optim.SGD(network.parameters(), lr=options.pop("lr", 0.0)),
        "dataset": torch.utils.data.TensorDataset(records),
        "n_users": 10,
        "steps": 1,
        "sampling_rate": 1.0,
        "max_grad_norm": 1.0,
        **users,
        **({} if "target_epsilon" in options else {"noise_multiplier": 2.0**-10}),
        **options,
    }
    return engine, *engine.make_private(**given)


def gradients(vectors: Any, unit: Unit, **options: Any) -> Array:
    """(steps, WIDTH): the gradients of an optimizer in a run, times the public divisor."""
    _engine, module, optimizer, loader = made(vectors, unit, **options)
    seen = []
    for (x,) in loader:
        optimizer.zero_grad()
        # The gradient of a record's loss is the record itself, even if it is NaN.
        module(x).mean().backward()
        if optimizer.step():
            seen.append(module.weight.grad[0].double().numpy().copy())
    options = {"sampling_rate": 1.0, "n_users": 10, "elements_per_user": 1.0, **options}
    divisor = options["sampling_rate"] * options["n_users"] * options["elements_per_user"]
    sums: Array = np.array(seen) * divisor
    return sums
