"""One of several processes of a trainer, and a record of their inputs.

It is run as ``python -m torch.distributed.run --nproc-per-node 2 -m tests.torch.trainers_together
FOLDER``; each process writes its record to a separate file.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.torch.families import transformers
from tests.torch.library import torch
from tests.torch.trainers import texts, trainer, weights

from dpgrain.errors import ParameterError

steps: Any = import_module("dpgrain.torch.steps")
#: Runs by name: whether only adapters are trained, and the arguments.
CASES: dict[str, tuple[bool, dict[str, Any]]] = {
    "fully": (False, {}),
    "lora": (True, {}),
    "all users": (False, {"sampling_rate": 1.0}),
    # In most steps one of two processes has nothing to read, in some both.
    "rarely": (False, {"sampling_rate": 0.1}),
}


@contextmanager
def draws() -> Iterator[list[int]]:
    """Count the draws of noise in this process."""
    counted: list[int] = []
    real = steps.in_floating_point

    def one(*given: Any) -> Any:
        counted.append(1)
        return real(*given)

    steps.in_floating_point = one
    try:
        yield counted
    finally:
        steps.in_floating_point = real


def trained(folder: Path, name: str, processes: int, **more: Any) -> dict[str, Any]:
    """The weights after a run, its promise, and how many draws of noise it took here."""
    lora, privacy = CASES[name]
    made = trainer(
        folder,
        lora=lora,
        # The number of blocks per step equals a single process's.
        args={"gradient_accumulation_steps": 2 // processes},
        privacy=privacy,
        **more,
    )
    read: list[int] = []
    collator = made._collator.collator

    def counting(records: Any) -> Any:
        read.append(len(records))
        return collator(records)

    made._collator = replace(made._collator, collator=counting)
    with draws() as counted:
        result = made.train()
    return {
        "weights": weights(made.model),
        "epsilon": made.guarantee.epsilon(),
        "rate": made.privacy.rate(made._blocks),
        "steps": result.global_step,
        "draws": len(counted),
        "read": sum(read),
    }


class Killed(transformers.TrainerCallback):
    """A callback that ends the training after three steps."""

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        if state.global_step == 3:
            raise KeyboardInterrupt


def resumed(folder: Path) -> dict[str, Any]:
    first = trainer(folder, callbacks=[Killed()], args={"gradient_accumulation_steps": 1})
    with suppress(KeyboardInterrupt):
        first.train()
    torch.distributed.barrier()
    again = trainer(folder, args={"gradient_accumulation_steps": 1})
    again.train(resume_from_checkpoint=True)
    return weights(again.model)


def evaluated(folder: Path) -> list[float]:
    """Measurements on public records during training."""
    made = trainer(
        folder,
        eval_dataset=texts(5, longest=2),
        privacy={"eval_is_public": True},
        args={"gradient_accumulation_steps": 1, "eval_strategy": "steps", "eval_steps": 2},
    )
    made.train()
    with pytest.raises(ParameterError, match="must be called in a single process"):
        made.release_loss(texts(5), largest=4.0, epsilon=1.0)
    return [logs["eval_loss"] for logs in made.state.log_history if "eval_loss" in logs]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    place, number = Path(sys.argv[1]), int(os.environ["RANK"])
    found: dict[str, Any] = {name: trained(place / name, name, 2) for name in CASES}
    found["resumed"] = resumed(place / "resumed")
    found["evaluated"] = evaluated(place / "evaluated")
    torch.save(found, place / f"{number}.pt")
    torch.distributed.destroy_process_group()
