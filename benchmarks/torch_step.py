"""What clipping block by block costs a network, beside the plain step and PyTorch's own ways.

Run ``python benchmarks/torch_step.py [--windows 5] [--only WORDS] [--blocks 1 5 20]``. It needs PyTorch
(``pip install dpgrain[torch]``).

Each figure is the median over windows of the CPU time of a step, on one thread, divided by that of the
plain step on the same rows in the same chunks, in the same window. All begin with records in memory,
sorted by block, and end with gradients of all parameters; noise and the optimizer are left out, as they
cost all alike.

- *plain*: forward, backward, gradients added up over chunks.
- *ours*: the sum over blocks of their clipped mean gradients.
- *loop*: the plain gradient of each block by itself, clipped and added up.
- *vmap*: ``torch.func.vmap(grad)`` over blocks, in chunks, then clipped and added up.
- *MB*: what a step adds to the peak memory of a process of its own, on Linux: plain, and ours.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dpgrain.torch.clipping import clipped_sums
from dpgrain.torch.layout import Layout
from dpgrain.torch.recorder import Recorder

nn, functional = torch.nn, torch.nn.functional
CLASSES, VOCABULARY, LENGTH, WIDTH, BOUND = 10, 1000, 128, 256, 1.0


class Layer(torch.nn.Module):
    """One layer of a transformer, with attention through linear maps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.maps, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        heads = (
            t.unflatten(2, (4, -1)).transpose(1, 2) for t in self.maps(self.first(x)).chunk(3, 2)
        )
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Transformer(torch.nn.Module):
    """Four layers, which tell the next token at each place."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.Sequential(*(Layer() for _ in range(4)))
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Any) -> Any:
        places = torch.arange(LENGTH).expand(len(tokens), -1)
        return self.out(self.norm(self.layers(self.table(tokens) + self.places(places))))


def tutorial_network() -> Any:
    """The network of PyTorch's tutorial on CIFAR-10."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, CLASSES),
    )  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """A network with records in blocks.

    Args:
        module: the network.
        x: (rows, …) what goes in.
        y: (rows,) classes, or (rows, LENGTH) tokens.
        size: the rows of each block.
        chunk: the rows of a chunk, of whole blocks.
    """

    module: Any
    x: Any
    y: Any
    size: int
    chunk: int

    def loss(self, x: Any, y: Any, of: Callable[[Any], Any] | None = None) -> Any:
        """The sum over records of their losses; those of tokens are averaged."""
        out = (self.module if of is None else of)(x)
        if out.dim() == 2:
            return functional.cross_entropy(out, y, reduction="sum")
        return functional.cross_entropy(out.flatten(0, 1), y.flatten()) * len(x)

    def chunks(self) -> list[tuple[Any, Any]]:
        return list(zip(self.x.split(self.chunk), self.y.split(self.chunk), strict=True))


def problem(name: str, size: int) -> Problem:
    """One row of the table."""
    torch.manual_seed(1)
    if name == "cnn":
        rows, chunk = 480, 240
        x, y = torch.randn(rows, 3, 32, 32), torch.randint(0, CLASSES, (rows,))
        return Problem(tutorial_network(), x, y, size, chunk)
    tokens = torch.randint(0, VOCABULARY, (20, LENGTH + 1))
    return Problem(Transformer(), tokens[:, :-1], tokens[:, 1:], size, 20)


def plain(asked: Problem) -> None:
    """The step without privacy."""
    for parameter in asked.module.parameters():
        parameter.grad = None
    for x, y in asked.chunks():
        asked.loss(x, y).backward()


def ours(asked: Problem) -> None:
    """The sum over blocks of their clipped mean gradients."""
    layout = Layout(())
    recorder = Recorder(asked.module, (), lambda: layout)
    total: dict[Any, Any] = {}
    for x, y in asked.chunks():
        layout = Layout.of([asked.size] * (len(x) // asked.size))
        asked.loss(x, y).backward()
        sums = clipped_sums(recorder.uses, layout, BOUND)
        recorder.clear()
        for parameter, part in sums.items():
            total[parameter] = part if parameter not in total else total[parameter].add_(part)
    recorder.remove()


def loop(asked: Problem) -> None:
    """Each block by itself."""
    parameters = list(asked.module.parameters())
    total = [torch.zeros_like(p) for p in parameters]
    for x, y in zip(asked.x.split(asked.size), asked.y.split(asked.size), strict=True):
        parts = torch.autograd.grad(asked.loss(x, y) / asked.size, parameters)
        norm = torch.stack([torch.linalg.vector_norm(part) for part in parts]).norm()
        weight = float(torch.clamp(BOUND / norm, max=1.0))
        for sum_, part in zip(total, parts, strict=True):
            sum_.add_(part, alpha=weight)


def vmap(asked: Problem) -> None:
    """A derivative for each block."""
    weights = {name: p.detach() for name, p in asked.module.named_parameters()}

    def loss(own: Any, x: Any, y: Any) -> Any:
        return asked.loss(x, y, lambda x: torch.func.functional_call(asked.module, own, (x,)))

    derivative = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    total = {name: torch.zeros_like(p) for name, p in weights.items()}
    for x, y in asked.chunks():
        blocks = (t.unflatten(0, (-1, asked.size)) for t in (x, y))
        parts = derivative(weights, *blocks)
        squares = [part.flatten(1).square().sum(1) for part in parts.values()]
        norms = torch.stack(squares).sum(0).sqrt() / asked.size
        weight = torch.clamp(BOUND / norms, max=1.0) / asked.size
        for name, part in parts.items():
            total[name] += torch.tensordot(weight, part, 1)


METHODS: dict[str, Callable[[Problem], None]] = {
    "plain": plain,
    "ours": ours,
    "loop": loop,
    "vmap": vmap,
}


def megabytes(method: str, name: str, size: int) -> float:
    """What a step adds to the peak memory of a process of its own."""
    command = [sys.executable, __file__, "--memory", method, name, str(size)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_memory(method: str, name: str, size: int) -> None:
    """Print the megabytes that a step adds to the peak."""
    asked = problem(name, size)
    # On Linux this sets the peak back to what is held now.
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    METHODS[method](asked)
    print((peak() - before) / 1024)


def peak() -> int:
    """The kilobytes that this process has held at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def row(name: str, size: int, windows: int) -> str:
    """One line: medians of ratios, and memory."""
    asked = problem(name, size)
    ratios: dict[str, list[float]] = {method: [] for method in METHODS}
    for step in METHODS.values():
        step(asked)
    for _ in range(windows):
        taken = {}
        for method, step in METHODS.items():
            began = time.process_time()
            step(asked)
            taken[method] = time.process_time() - began
        for method, seconds in taken.items():
            ratios[method].append(seconds / taken["plain"])
    figures = [
        f"{statistics.median(ratios[method]):7.2f}" for method in METHODS if method != "plain"
    ]
    memory = [f"{megabytes(method, name, size):7.0f}" for method in ("plain", "ours")]
    return f"{name:12}{size:7}" + "".join(figures + memory)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line for each network and size of blocks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--only", choices=("cnn", "transformer"))
    parser.add_argument("--blocks", type=int, nargs="+", default=[1, 5, 20], help="sizes of blocks")
    parser.add_argument("--memory", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    # PyTorch says of vmap over attention that it is slow.
    warnings.simplefilter("ignore", UserWarning)
    if asked.memory:
        print_memory(asked.memory[0], asked.memory[1], int(asked.memory[2]))
        return
    print(f"{'network':12}{'block':>7}{'ours':>7}{'loop':>7}{'vmap':>7}{'MB':>7}{'MB ours':>7}")
    for name in ("cnn", "transformer"):
        if asked.only in (None, name):
            for size in asked.blocks:
                print(row(name, size, asked.windows), flush=True)


if __name__ == "__main__":
    main()
