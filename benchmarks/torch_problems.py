"""Networks and blocks of records for the benchmarks of private steps; they need only PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

nn, functional = torch.nn, torch.nn.functional
CLASSES, VOCABULARY, LENGTH, WIDTH, HEADS, BOUND = 10, 1000, 128, 256, 4, 1.0
#: The rows of a chunk, and the number of chunks of a step.
CHUNKS = {"cnn": (240, 2), "transformer": (20, 1)}
#: The sizes of blocks of a chunk that are not of one size, repeated to fill it.
RAGGED = {"cnn": (1, 2, 3, 4, 5, 7, 8), "transformer": (1, 2, 3, 4)}


class Layer(torch.nn.Module):
    """One layer of a transformer, with attention through linear maps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.maps, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        heads = (
            t.unflatten(2, (HEADS, -1)).transpose(1, 2)
            for t in self.maps(self.first(x)).chunk(3, 2)
        )
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Transformer(torch.nn.Module):
    """Four layers that predict the next token at each position."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.Sequential(*(Layer() for _ in range(4)))
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Any) -> Any:
        places = torch.arange(LENGTH, device=tokens.device).expand(len(tokens), -1)
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
        x: (rows, …) what goes in.
        y: (rows,) classes, or (rows, LENGTH) tokens.
        sizes: the rows of the blocks of each chunk, ascending.
    """

    module: Any
    x: Any
    y: Any
    sizes: tuple[int, ...]

    def losses(self, x: Any, y: Any, of: Callable[[Any], Any] | None = None) -> Any:
        """The loss of each record; tokens' losses are averaged."""
        out = (self.module if of is None else of)(x)
        if out.dim() == 2:
            return functional.cross_entropy(out, y, reduction="none")
        each = functional.cross_entropy(out.flatten(0, 1), y.flatten(), reduction="none")
        return each.unflatten(0, y.shape).mean(1)

    def chunks(self) -> list[tuple[Any, Any]]:
        """Rows and targets of each chunk."""
        rows = sum(self.sizes)
        return list(zip(self.x.split(rows), self.y.split(rows), strict=True))

    def classes(self, *tensors: Any) -> list[tuple[Any, ...]]:
        """Views of a chunk's tensors, (blocks, rows of each, …), for each size of blocks."""
        views, first = [], 0
        for size in sorted(set(self.sizes)):
            count = self.sizes.count(size)
            rows = slice(first, first + count * size)
            views.append(tuple(t[rows].unflatten(0, (count, size)) for t in tensors))
            first += count * size
        return views


def problem(
    name: str, block: str, device: str = "cpu", times: int = 1, chunks: int | None = None
) -> Problem:
    """A network with blocks of n rows, or of several sizes.

    Args:
        name: ``cnn`` or ``transformer``.
        block: the rows of each block, or ``ragged``.
        device: the device of the network and its records.
        times: how many times as many rows a chunk has; a GPU is idle with few.
        chunks: the number of chunks of a step, by default the network's.
    """
    torch.manual_seed(1)
    rows, chunks = CHUNKS[name][0] * times, chunks or CHUNKS[name][1]
    if block == "ragged":
        each = RAGGED[name]
        sizes = tuple(sorted(each * (rows // sum(each))))
    else:
        sizes = (int(block),) * (rows // int(block))
    if name == "cnn":
        x, y = torch.randn(rows * chunks, 3, 32, 32), torch.randint(0, CLASSES, (rows * chunks,))
        return Problem(tutorial_network().to(device), x.to(device), y.to(device), sizes)
    tokens = torch.randint(0, VOCABULARY, (rows * chunks, LENGTH + 1))
    x, y = (t.contiguous().to(device) for t in (tokens[:, :-1], tokens[:, 1:]))
    return Problem(Transformer().to(device), x, y, sizes)


def plain(asked: Problem) -> Callable[[], Any]:
    """The step without privacy."""

    def step() -> list[Any]:
        for parameter in asked.module.parameters():
            parameter.grad = None
        for x, y in asked.chunks():
            asked.losses(x, y).sum().backward()
        return [p.grad for p in asked.module.parameters()]

    return step


def loop(asked: Problem) -> Callable[[], Any]:
    """The plain gradient of each block separately."""

    def step() -> list[Any]:
        parameters = list(asked.module.parameters())
        total = [torch.zeros_like(p) for p in parameters]
        for chunk in asked.chunks():
            blocks = (t.split(asked.sizes) for t in chunk)
            for x, y in zip(*blocks, strict=True):
                parts = torch.autograd.grad(asked.losses(x, y).mean(), parameters)
                norm = torch.stack([torch.linalg.vector_norm(part) for part in parts]).norm()
                weight = float(torch.clamp(BOUND / norm, max=1.0))
                for sum_, part in zip(total, parts, strict=True):
                    sum_.add_(part, alpha=weight)
        return total

    return step


def vmap(asked: Problem) -> Callable[[], Any]:
    """A derivative for each block, one call for each size."""
    weights = {name: p.detach() for name, p in asked.module.named_parameters()}

    def loss(own: Any, x: Any, y: Any) -> Any:
        return asked.losses(
            x, y, lambda x: torch.func.functional_call(asked.module, own, (x,))
        ).mean()

    derivative = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))

    def step() -> list[Any]:
        total = {name: torch.zeros_like(p) for name, p in weights.items()}
        for chunk in asked.chunks():
            for x, y in asked.classes(*chunk):
                parts = derivative(weights, x, y)
                norms = torch.stack([p.flatten(1).square().sum(1) for p in parts.values()])
                weight = torch.clamp(BOUND / norms.sum(0).sqrt(), max=1.0)
                for name, part in parts.items():
                    total[name] += torch.tensordot(weight, part, 1)
        return list(total.values())

    return step
