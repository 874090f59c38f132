"""Networks that show each layer, and clipped sums of them made block by block."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.torch.library import torch

# isort: split
from dpgrain.torch.clipping import clipped_sums
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.linear_maps import through_linear_maps
from dpgrain.torch.recorder import Recorder

nn, functional = torch.nn, torch.nn.functional
CLASSES, TOKENS, WIDTH, LENGTH = 5, 11, 6, 7


class Attention(torch.nn.Module):
    """Attention through its linear maps, which does not look at tokens 0."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(TOKENS, WIDTH, padding_idx=0)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)
        self.maps = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, tokens: Any) -> Any:
        places = torch.arange(LENGTH, device=tokens.device).expand(len(tokens), -1)
        x = self.table(tokens) + self.places(places)
        q, k, v = (part[:, None] for part in self.maps(self.norm(x)).chunk(3, dim=-1))
        itself = torch.eye(LENGTH, dtype=torch.bool, device=tokens.device)
        seen = (tokens > 0)[:, None, None, :] | itself
        x = x + functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)[:, 0]
        return self.out(x.mean(1))


class Tied(torch.nn.Module):
    """An embedding that is also the output layer, and a map called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(TOKENS, WIDTH)
        self.twice, self.norm = nn.Linear(WIDTH, WIDTH), nn.RMSNorm(WIDTH)
        self.out = nn.Linear(WIDTH, TOKENS, bias=False)
        self.out.weight = self.table.weight

    def forward(self, tokens: Any) -> Any:
        x = self.table(tokens)
        x = x + self.twice(self.norm(torch.tanh(self.twice(x))))
        return self.out(x.mean(1))


class Adapted(torch.nn.Module):
    """A frozen map with a low-rank adapter, and a map with only its bias trained."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.down, self.up = nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, CLASSES)
        self.out.weight.requires_grad_(False)

    def forward(self, x: Any) -> Any:
        return self.out(torch.tanh(self.base(x) + self.up(self.down(x))))


class Scaled(torch.nn.Module):
    """A custom layer that separates records."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.map = nn.Parameter(torch.randn(WIDTH)), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        return torch.sin(self.map(x) * self.scale)


class Contrast(torch.nn.Module):
    """Similarities to learned classes, with a scalar temperature parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.map, self.classes = nn.Linear(WIDTH, 4), nn.Parameter(torch.randn(CLASSES, 4))
        self.logit_scale = nn.Parameter(torch.tensor(0.7))

    def forward(self, x: Any) -> Any:
        x = functional.normalize(self.map(x), dim=-1)
        return self.logit_scale.exp() * x @ functional.normalize(self.classes, dim=-1).mT


class Factor(torch.nn.Module):
    """A factor and a shift, which are parameters without dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1.3))
        self.shift = nn.Parameter(torch.tensor(0.2))

    def forward(self, x: Any) -> Any:
        return torch.sin(x * self.weight + self.shift)


class Tempered(torch.nn.Module):
    """A factor used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.factor, self.map = Factor(), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Any) -> Any:
        return self.factor(self.map(self.factor(x)))


class Bags(torch.nn.Module):
    """Vectors of a record added up, and averaged where they are not padding."""

    def __init__(self) -> None:
        super().__init__()
        self.added = nn.EmbeddingBag(TOKENS, WIDTH, mode="sum")
        self.averaged = nn.EmbeddingBag(TOKENS, WIDTH, mode="mean", padding_idx=0)
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: Any) -> Any:
        return self.out(torch.tanh(self.added(tokens) + self.averaged(tokens)))


class Attending(torch.nn.Module):
    """PyTorch's own attention, to itself and to another sequence, with both kinds of masks."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.0, batch_first=True)
        self.table, self.layers = nn.Embedding(TOKENS, WIDTH), nn.TransformerEncoder(layer, 2)
        self.across = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.out = nn.Linear(WIDTH, CLASSES)
        through_linear_maps(self)

    def forward(self, tokens: Any) -> Any:
        padding = (tokens == 0) & (torch.arange(LENGTH, device=tokens.device) > 0)
        causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=tokens.device).triu(1)
        x = self.layers(self.table(tokens), mask=causal, src_key_padding_mask=padding)
        seen, weights = self.across(x[:, :2], x, x, key_padding_mask=padding)
        return self.out(seen.mean(1) * (1 + weights.square().sum((1, 2))[:, None]))


class Reading(torch.nn.Module):
    """One of PyTorch's recurrent layers, through its linear maps."""

    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.table = nn.Embedding(TOKENS, WIDTH)
        self.layer = kind(WIDTH, 4, batch_first=True, **options)
        self.out = nn.LazyLinear(CLASSES)
        through_linear_maps(self)

    def forward(self, tokens: Any) -> Any:
        x, _last = self.layer(self.table(tokens))
        return self.out(x.mean(1))


def frozen(norm: Any) -> Any:
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2.0)
    return norm.eval()


def image(*layers: Any) -> Any:
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(CLASSES))


def numbers(*shape: int) -> Callable[[int], Any]:
    return lambda rows: torch.randn(rows, *shape)


def tokens(rows: int) -> Any:
    return torch.randint(0, TOKENS, (rows, LENGTH))


NETWORKS: Mapping[str, tuple[Callable[[], Any], Callable[[int], Any]]] = {
    "linear": (lambda: nn.Linear(WIDTH, CLASSES), numbers(WIDTH)),
    "deep": (
        lambda: nn.Sequential(
            nn.Linear(WIDTH, 9), nn.ReLU(inplace=True), nn.LayerNorm(9), nn.Linear(9, CLASSES)
        ),
        numbers(WIDTH),
    ),
    "wide": (
        lambda: nn.Sequential(nn.Linear(200, 90, bias=False), nn.Tanh(), nn.Linear(90, CLASSES)),
        numbers(200),
    ),
    "positions": (
        lambda: nn.Sequential(nn.Linear(WIDTH, 5), nn.GELU(), nn.Flatten(), nn.Linear(35, CLASSES)),
        numbers(LENGTH, WIDTH),
    ),
    "conv1d": (
        lambda: image(
            nn.Conv1d(3, 6, 3, padding=1, padding_mode="circular", stride=2),
            nn.InstanceNorm1d(6, affine=True),
            nn.ReLU(),
        ),
        numbers(3, 10),
    ),
    "conv2d": (
        lambda: image(
            nn.Conv2d(4, 6, 3, padding="same", groups=2),
            nn.GroupNorm(2, 6),
            nn.ReLU(inplace=True),
            nn.Conv2d(6, 4, 2, stride=2, dilation=2, bias=False),
            nn.InstanceNorm2d(4, affine=True),
        ),
        numbers(4, 8, 8),
    ),
    "frozen norms": (
        lambda: image(
            nn.Conv2d(2, 4, 3),
            frozen(nn.BatchNorm2d(4)),
            nn.Tanh(),
            frozen(nn.BatchNorm2d(4)).requires_grad_(False),
        ),
        numbers(2, 5, 5),
    ),
    "conv3d": (
        lambda: image(nn.Conv3d(2, 3, 3, padding=1), nn.InstanceNorm3d(3, affine=True), nn.Tanh()),
        numbers(2, 4, 4, 4),
    ),
    "attention": (Attention, tokens),
    "tied": (Tied, tokens),
    "bags": (Bags, tokens),
    "encoder": (Attending, tokens),
    "lstm": (lambda: Reading(nn.LSTM, num_layers=2, bidirectional=True), tokens),
    "gru": (lambda: Reading(nn.GRU, bias=False), tokens),
    "rnn": (lambda: Reading(nn.RNN, nonlinearity="relu"), tokens),
    "transposed": (
        lambda: image(nn.ConvTranspose2d(2, 4, 3, stride=2, groups=2), nn.PReLU(4), nn.PReLU()),
        numbers(2, 4, 4),
    ),
    "adapted": (Adapted, numbers(WIDTH)),
    "own": (
        lambda: nn.Sequential(Scaled(), nn.Linear(WIDTH, CLASSES)),
        numbers(LENGTH, WIDTH),
    ),
    "contrast": (Contrast, numbers(WIDTH)),
    "tempered": (Tempered, numbers(LENGTH, WIDTH)),
}


@dataclass
class Case:
    """A network with a batch.

    Args:
        x: (rows, …) what goes in.
        y: (rows,) classes.
    """

    module: Any
    x: Any
    y: Any
    layout: BlockLayout

    @staticmethod
    def of(name: str, sizes: tuple[int, ...], precision: Any, seed: int = 1) -> Case:
        torch.manual_seed(seed)
        make, draw = NETWORKS[name]
        layout = BlockLayout.of(sizes)
        module, x = make(), draw(layout.rows)
        module(x[:2])
        x = x.to(precision) if x.is_floating_point() else x
        return Case(module.to(precision), x, torch.randint(0, CLASSES, (layout.rows,)), layout)

    def losses(self, module: Any, x: Any, y: Any) -> Any:
        out = module(x)
        out = out if out.dim() == 2 else out.mean(1)
        return functional.cross_entropy(out, y, reduction="none")

    def clipped(self, bound: float) -> dict[str, Any]:
        """The sums that the hooks make, by parameter, in double precision."""
        recorder = Recorder(self.module, (Scaled,), lambda: self.layout)
        try:
            self.losses(self.module, self.x, self.y).sum().backward()
            assert all(p.grad is None for p in self.module.parameters())
            sums = clipped_sums(recorder.uses, self.layout, bound)
        finally:
            recorder.remove()
        return {name: sums[p].double() for name, p in self.module.named_parameters() if p in sums}

    def looped(self, bound: float) -> tuple[dict[str, Any], float]:
        """The same, block by block in double precision, and the sum of the norms of blocks."""
        module = copy.deepcopy(self.module).double()
        x = self.x.double() if self.x.is_floating_point() else self.x
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        sums = {name: torch.zeros_like(p) for name, p in trained.items()}
        norms = 0.0
        for block in range(self.layout.blocks):
            rows = self.layout.block_slice(block)
            loss = self.losses(module, x[rows], self.y[rows]).mean()
            parts = torch.autograd.grad(loss, list(trained.values()))
            norm = distance(dict(zip(trained, parts, strict=True)))
            norms += norm
            for name, part in zip(trained, parts, strict=True):
                sums[name] += part * min(1.0, bound / norm)
        return sums, norms


def distance(one: Mapping[str, Any], other: Mapping[str, Any] | None = None) -> float:
    """The norm of a vector in parts, or of the difference of two."""
    parts = (part if other is None else part - other[name] for name, part in one.items())
    return math.sqrt(sum(float(part.square().sum()) for part in parts))
