"""One of several processes that train together, and a record of their inputs.

It is run as ``python -m torch.distributed.run --nproc-per-node 2 -m tests.torch.several FOLDER``;
each process writes its record to a separate file. With ``batch`` or ``backward`` as another
argument the second process ends at this point of its third step.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.torch import together

import dpgrain as dg
from dpgrain.errors import DpgrainError
from dpgrain.torch import devices

steps: Any = import_module("dpgrain.torch.steps")


def seen(folder: Path, rank: int) -> dict[str, Any]:
    """Everything that one process sees."""
    draws: list[int] = []
    real = steps.in_floating_point

    def counted(*given: Any) -> Any:
        draws.append(1)
        return real(*given)

    steps.in_floating_point = counted
    found: dict[str, Any] = {
        name: together.trained(*case, several=True) for name, case in together.CASES.items()
    }
    found["draws"] = len(draws)
    found["resumed"] = together.killed_and_resumed(folder / "run", several=True)
    with dg.Ledger(folder / "visits.ledger"), dg.budget(3.0, 1e-6) as budget:
        engine = together.begun("user", True, share=0.5)[0]
        found["left"], found["guarantee"] = budget.left, str(engine.guarantee)
        found["receipts"] = len(engine.guarantee.receipts)
        found["refused"] = together.refusal("user", True, share=None, target_epsilon=3.0)
    labels = {"users": together.USERS + rank * (together.USERS == 1)}
    found["labels"] = together.refusal("user", True, **labels)
    found["held"] = {
        name: together.refusal(unit, True, **given)
        for name, (unit, given) in together.held(rank).items()
    }
    found["noise"] = together.refusal("user", True, noise_multiplier=1.0 + rank)
    # A process with a larger GPU would add gradients in another way.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "buffer_bytes", lambda _: rank << 40)
        found["memory"] = together.refusal("user", True)
    found["mean"] = together.refusal_of_mean(several=True)
    return found


def die(rank: int, at: str) -> None:
    """Train until the second process ends; the first reports its numbers of steps."""
    _, module, optimizer, loader = together.begun("user", True, sampling_rate=1.0)
    made = 0
    try:
        for x, y in loader:
            if (rank, at, made) == (1, "batch", 2):
                os._exit(9)
            torch.nn.functional.mse_loss(module(x), y).backward()
            if (rank, at, made) == (1, "backward", 2):
                os._exit(9)
            made += bool(optimizer.step())
    except DpgrainError as error:
        sys.stdout.write(f"{made} {loader._run.steps_started} {error}")
        sys.stdout.flush()
        os._exit(3)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    place, number = Path(sys.argv[1]), int(os.environ["RANK"])
    for last in sys.argv[2:]:
        die(number, last)
    torch.save(seen(place, number), place / f"{number}.pt")
    torch.distributed.destroy_process_group()
