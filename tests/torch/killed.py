"""A training run killed at random points and resumed, in separate processes.

It is run as a program, ``python -m tests.torch.killed FOLDER SEED KILLS`` (the seed ``none`` starts
a private run), which prints its counts as JSON: draws of noise, dots of the journal, charges, and
whether the parameters equal those of an uninterrupted run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

import dpgrain as dg
from dpgrain.torch.privacy_engine import PrivacyEngine

STEPS, EVERY = 24, 4
steps: Any = import_module("dpgrain.torch.steps")
LEDGER = "visits.ledger"


def given() -> dict[str, Any]:
    torch.manual_seed(2)
    network = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1)
    )
    x = torch.randn(60, 4)
    return {
        "module": network,
        "optimizer": torch.optim.Adam(network.parameters(), lr=0.1),
        "dataset": torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)),
        "users": range(len(x)),
    }


class Log:
    """Record each draw of noise before it happens ("d"), and each new run ("m")."""

    def __init__(self) -> None:
        self.file = -1
        self.real = steps.in_floating_point

    def __call__(self, *found: Any) -> Any:
        os.write(self.file, b"d")
        return self.real(*found)


NOTED = Log()


def work(folder: Path, seed: int | None) -> None:
    """Execute the run, or the rest of it, like a program that is repeatedly restarted."""
    NOTED.file = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    path = folder / "last.pt"
    with dg.Ledger(folder / LEDGER):
        if path.exists():
            engine, module, optimizer, loader = PrivacyEngine.resume(path, **given())
        else:
            os.write(NOTED.file, b"m")
            engine = PrivacyEngine(random_state=seed)
            module, optimizer, loader = engine.make_private(
                **given(),
                n_users=60,
                steps=STEPS,
                sampling_rate=0.2,
                max_grad_norm=1.0,
                noise_multiplier=4.0,
            )
            engine.save(path)
        for x, y in loader if len(loader) else ():
            torch.nn.functional.mse_loss(module(x), y).backward()
            if optimizer.step() and len(loader) % EVERY == 0:
                engine.save(path)
    torch.save(module.state_dict(), folder / "weights.pt")


def attempt(folder: Path, seed: int | None, seconds: float | None = None) -> bool:
    """Work in a separate process, killed after a time; True if it was."""
    child = os.fork()
    if child == 0:
        try:
            work(folder, seed)
        except BaseException as error:
            (folder / "error").write_text(repr(error))
            os._exit(1)
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError((folder / "error").read_text())
    return os.WIFSIGNALED(status)


def place_of(run: Path) -> Path:
    """Make the folder of a run, with a ledger."""
    run.mkdir()
    promise = dg.LastingPromise.of(dg.User(), 50.0, 1e-4)
    dg.Ledger.create(run / LEDGER, name="visits", promises=[promise]).close()
    return run


def counted(folder: Path) -> dict[str, Any]:
    """The results of a finished run."""
    dots = [file.read_text().split("\n")[-1].count(".") for file in folder.glob("*.steps")]
    log = (folder / "log").read_text()
    return {
        "begun": log.count("m"),
        "draws": log.count("d"),
        "dots": dots,
        "charges": sum(entry.kind == "release" for entry in dg.Ledger(folder / LEDGER).entries),
    }


def main(folder: Path, seed: int | None, kills: int) -> dict[str, Any]:
    """Kill runs at random points, and let them continue, up to a number of kills."""
    steps.in_floating_point = NOTED
    chance, whole = random.Random(7), place_of(folder / "whole")
    runs: list[dict[str, Any]] = []
    # All imports of a run are loaded before the others are forked.
    work(place_of(folder / "first"), seed)
    began = time.monotonic()
    attempt(whole, seed)
    longest = time.monotonic() - began
    there = torch.load(whole / "weights.pt")
    while sum(found["kills"] for found in runs) < kills:
        place, times = place_of(folder / str(len(runs))), 0
        while attempt(place, seed, chance.uniform(0, longest)):
            times += 1
        weights = torch.load(place / "weights.pt")
        same = all(torch.equal(weights[name], there[name]) for name in there)
        runs.append({"kills": times, "same": same, **counted(place)})
    return {"whole": counted(whole), "runs": runs, "seconds": time.monotonic() - began}


if __name__ == "__main__":
    torch.set_num_threads(1)
    asked = None if sys.argv[2] == "none" else int(sys.argv[2])
    print(json.dumps(main(Path(sys.argv[1]), asked, int(sys.argv[3]))))
