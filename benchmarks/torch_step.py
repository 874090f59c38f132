"""Cost of clipping by block for a network, compared with PyTorch's methods.

Run ``python -m benchmarks.torch_step [--windows 5] [--only WORDS] [--blocks 1 5 20 ragged]``. It needs
PyTorch (``pip install dpgrain[torch]``). With ``--device cuda`` it runs on a GPU, with 40 times as many
pictures and 16 times as many texts per chunk, because chunks for two cores would leave it idle.

Each figure is the median over windows of the CPU time of a step, on one thread, divided by the
plain step's on the same rows in the same chunks, in the same window; on a GPU of the wall time,
until all of a step is done. All begin with records in memory, sorted by block, and end with
gradients of all parameters. Noise has a separate column; the optimizer is excluded, because it
costs the same.

- *plain*: forward, backward, gradients added up over chunks.
- *ours*: the sum over blocks of their clipped mean gradients.
- *loop*: the plain gradient of each block separately, clipped and added up.
- *vmap*: ``torch.func.vmap(grad)`` over blocks, in chunks, then clipped and added up.
- *noise*: drawing noise for all parameters, adding it to the sums and dividing them, once per step.
- *MB*: peak memory of the tensors of a step, counted by PyTorch: plain, and ours.
- *ms*: the time of the plain step.

Other libraries are timed by ``python -m benchmarks.peers``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

# The other benchmarks are found however this one is started.
sys.path.insert(0, str(Path(__file__).parent))
from counted_memory import peak_bytes
from published import publisher
from torch_problems import BOUND, Problem, loop, plain, problem, vmap

from dpgrain.torch.clipping import clipped_sums
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.recorder import Recorder


def ours(asked: Problem) -> Callable[[], Any]:
    """The sum over blocks of their clipped mean gradients."""
    layout = BlockLayout.of(asked.sizes)

    def step() -> list[Any]:
        total: dict[Any, Any] = {}
        for x, y in asked.chunks():
            asked.losses(x, y).sum().backward()
            sums = clipped_sums(recorder.uses, layout, BOUND)
            recorder.clear()
            for parameter, part in sums.items():
                total[parameter] = part if parameter not in total else total[parameter].add_(part)
        return [total[p] for p in asked.module.parameters()]

    recorder = Recorder(asked.module, (), lambda: layout)
    # A network is tried once, before its first step.
    recorder.check_example(((asked.x[:2],), {}), 2)
    return step


def noise(asked: Problem) -> Callable[[], Any]:
    """The noisy gradients of sums of zeros."""
    publish = publisher(list(asked.module.parameters()), BOUND)
    return lambda: publish({})


#: Factor of the rows of a chunk on a GPU.
TIMES = {"cnn": 40, "transformer": 16}
METHODS: dict[str, Callable[[Problem], Callable[[], Any]]] = {
    "plain": plain,
    "ours": ours,
    "loop": loop,
    "vmap": vmap,
    "noise": noise,
}


def clock(device: str) -> float:
    """Processor seconds; on a GPU wall time, when all work is done."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def megabytes(step: Callable[[], Any], device: str) -> float:
    """Additional peak memory of a step."""
    if device == "cpu":
        return peak_bytes(step) / 1024**2
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    return float(torch.cuda.max_memory_allocated() - before) / 1024**2


def row(name: str, block: str, asked: argparse.Namespace) -> str:
    """One line: medians of ratios, and memory."""
    columns = ("ours", *asked.beside, "noise")
    times = asked.times or (1 if asked.device == "cpu" else TIMES[name])
    # Each method has a separate network, because hooks of one would be run by others.
    steps = {
        method: METHODS[method](problem(name, block, asked.device, times, asked.chunks))
        for method in ("plain", *columns)
    }
    ratios: dict[str, list[float]] = {method: [] for method in METHODS}
    plain_seconds = []
    for step in steps.values():
        step()
    for _ in range(asked.windows):
        taken = {}
        for method, step in steps.items():
            began = clock(asked.device)
            step()
            taken[method] = clock(asked.device) - began
        plain_seconds.append(taken["plain"])
        for method, seconds in taken.items():
            ratios[method].append(seconds / taken["plain"])
    figures = [f"{statistics.median(ratios[method]):7.2f}" for method in columns]
    memory = [megabytes(steps[method], asked.device) for method in ("plain", "ours")]
    figures += [f"{most:9.0f}" for most in memory]
    return f"{name:12}{block:>7}" + "".join(figures) + f"{1000 * min(plain_seconds):9.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line for each network and size of blocks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--only", choices=("cnn", "transformer"))
    parser.add_argument("--blocks", nargs="+", default=["1", "5", "20", "ragged"])
    parser.add_argument("--beside", nargs="*", default=["loop", "vmap"], choices=("loop", "vmap"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--times", type=int, help="factor of the rows of a chunk")
    parser.add_argument("--chunks", type=int, help="number of chunks of a step")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    # PyTorch warns that vmap over attention is slow.
    warnings.simplefilter("ignore", UserWarning)
    heads = "".join(f"{method:>7}" for method in ("ours", *asked.beside, "noise"))
    print(f"{'network':12}{'block':>7}{heads}{'MB':>9}{'MB ours':>9}{'ms':>9}")
    for name in ("cnn", "transformer"):
        if asked.only in (None, name):
            for block in asked.blocks:
                print(row(name, block, asked), flush=True)


if __name__ == "__main__":
    main()
