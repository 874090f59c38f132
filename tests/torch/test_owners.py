"""Modules without a rule have a loop's clipped sums; impossible ones are rejected by name."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.refusals import refuses
from tests.torch.cases import CLASSES, Case, distance
from tests.torch.library import torch

# isort: split
from dpgrain.torch.clipping import clipped_sums
from dpgrain.torch.layers import find_rule
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.privacy_engine import PrivacyEngine
from dpgrain.torch.recorder import Recorder

nn, functional = torch.nn, torch.nn.functional
WIDTH, LENGTH, TOKENS = 6, 4, 11


class Several(torch.nn.Module):
    """A layer with several inputs, by name too, that returns several things."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Parameter(torch.randn(WIDTH)), nn.Parameter(torch.randn(3, WIDTH))

    def forward(self, x: Any, *, scale: Any = None, words: str = "") -> Any:
        hidden = torch.tanh(x * self.one) if scale is None else x * self.one * scale
        return {"out": hidden, "weights": hidden @ self.other.T, "words": words}


class CallsSeveral(torch.nn.Module):
    """A network around it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = Several(), nn.Linear(WIDTH + 3, CLASSES)

    def forward(self, x: Any) -> Any:
        found = self.inner(x, scale=x.mean(-1, keepdim=True), words="seen")
        assert found["words"] == "seen"
        return self.out(torch.cat([found["out"], found["weights"]], -1))


class Container(torch.nn.Module):
    """A network with parameters outside layers: a first token, positions, a scale, a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.places = nn.Parameter(torch.randn(1, LENGTH + 1, WIDTH))
        self.scale = nn.Parameter(torch.randn(WIDTH))
        self.bias = nn.Parameter(torch.randn(2, LENGTH + 1, LENGTH + 1))
        self.map, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Any) -> Any:
        x = torch.cat((self.first.expand(len(x), -1, -1), x), 1) + self.places
        x = self.map(x) * self.scale
        q = x.unflatten(2, (2, -1)).transpose(1, 2)
        seen = functional.scaled_dot_product_attention(q, q, q, attn_mask=self.bias.unsqueeze(0))
        return self.out(seen.transpose(1, 2).flatten(2))


class Scaled(torch.nn.Embedding):
    """A scaled table."""

    def forward(self, places: Any) -> Any:
        return super().forward(places) * 3.0


class Shifted(torch.nn.Embedding):
    """A table of positions; a record's tokens determine only their number."""

    def forward(self, tokens: Any) -> Any:
        return super().forward(torch.arange(tokens.shape[1])[None] + 1)


class Looked(torch.nn.Module):
    """A table of positions that reads its weight itself, for the number of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(9, WIDTH))

    def forward(self, tokens: Any) -> Any:
        return self.weight[: tokens.shape[1]]


class Reading(torch.nn.Module):
    """Tokens and positions by tables with custom forward functions, and a tied head."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.shifted, self.looked = Scaled(TOKENS, WIDTH), Shifted(9, WIDTH), Looked()
        self.relative = nn.Embedding(2 * LENGTH, LENGTH)
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: Any) -> Any:
        x = self.table(tokens) + self.shifted(tokens) + self.looked(tokens)
        place = torch.arange(tokens.shape[1])
        bias = self.relative(place[:, None] - place + LENGTH).permute(2, 0, 1).mean(0)
        return self.head(torch.softmax(x @ x.mT + bias, -1) @ x)


class Weighed(torch.nn.Module):
    """A convolution with a parametrised weight."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(LENGTH, 3, 3), dim=2)
        self.out = nn.Linear(WIDTH - 2, CLASSES)

    def forward(self, x: Any) -> Any:
        return self.out(torch.relu(self.conv(x)))


class Dropping(torch.nn.Module):
    """A layer with dropout inside."""

    def __init__(self, share: float = 0.0) -> None:
        super().__init__()
        self.scale, self.dropout = nn.Parameter(torch.randn(WIDTH)), nn.Dropout(share)
        self.out = nn.Bilinear(WIDTH, WIDTH, CLASSES)

    def forward(self, x: Any) -> Any:
        x = self.dropout(x * self.scale)
        return self.out(x, x)


def numbers(rows: int) -> Any:
    return torch.randn(rows, LENGTH, WIDTH)


def tokens(rows: int) -> Any:
    return torch.randint(0, TOKENS, (rows, LENGTH))


MODULES: dict[str, tuple[Any, Any]] = {
    "several": (CallsSeveral, numbers),
    "container": (Container, numbers),
    "reading": (Reading, tokens),
    "parametrised": (Weighed, numbers),
    "dropping": (Dropping, numbers),
}
SIZES = [(1,), (1, 1, 1), (1, 2, 3), (1,) * LENGTH, (2, 3), (1,) * WIDTH]


@pytest.mark.parametrize("precision", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_sums_agree_with_a_loop(name: str, sizes: tuple[int, ...], precision: Any) -> None:
    torch.manual_seed(1)
    make, draw = MODULES[name]
    module, layout = make().to(precision), BlockLayout.of(sizes)
    x = draw(layout.rows)
    x = x.to(precision) if x.is_floating_point() else x
    case = Case(module, x, torch.randint(0, CLASSES, (layout.rows,)), layout)
    for bound in (0.05, 1e6):
        sums, (wanted, norms) = case.clipped(bound), case.looped(bound)
        assert sums.keys() == wanted.keys()
        rounding = 1e-4 if precision is torch.float32 else 1e-11
        assert distance(sums, wanted) <= rounding * min(norms, bound * layout.blocks)


class Halved(torch.nn.Module):
    """A layer that divides by the number of records."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Any) -> Any:
        return x * self.scale / len(x)


class Centred(Halved):
    """A layer that subtracts the mean of records."""

    def forward(self, x: Any) -> Any:
        return (x - x.mean(0)) * self.scale


class Branching(Halved):
    """A layer that branches on its values."""

    def forward(self, x: Any) -> Any:
        return x * self.scale if x.sum() > 0 else -x * self.scale


class Running(Halved):
    """A layer that keeps a running value as a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Any
        self.register_buffer("seen", torch.zeros(WIDTH))

    def forward(self, x: Any) -> Any:
        self.seen = 0.9 * self.seen + x.detach().mean((0, 1))
        return x * self.scale


class Keeping(Running):
    """A layer that keeps it in place."""

    def forward(self, x: Any) -> Any:
        self.seen.mul_(0.9).add_(x.detach().mean((0, 1)))
        return x * self.scale


class Noting(Halved):
    """A layer that keeps it as an attribute."""

    def forward(self, x: Any) -> Any:
        self.last = x.detach()
        return x * self.scale


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (Halved(), ("mix records",)),
        (Centred(), ("mix records",)),
        (Branching(), ("Branching", "vmap")),
        (Running(), ("buffer",)),
        (Keeping(), ("buffer",)),
        (Noting(), ("attribute 'last'",)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
@pytest.mark.parametrize("rows", [2, LENGTH])
def test_modules_without_per_record_runs_are_rejected(layer: Any, words: Any, rows: int) -> None:
    module = nn.Sequential(layer, nn.Linear(WIDTH, 2))
    recorder = Recorder(module, (), lambda: BlockLayout((1,) * rows))
    with refuses("module", *words):
        module(numbers(rows))
    recorder.remove()
    assert "forward" not in vars(layer)


def test_dropout_is_drawn_for_each_record() -> None:
    module = nn.Sequential(Dropping(0.5))
    layout = BlockLayout((1, 1))
    recorder = Recorder(module, (), lambda: layout)
    x = torch.ones(2, LENGTH, WIDTH)
    out = module(x)
    assert not torch.equal(out[0].detach(), out[1].detach())
    out.mean((1, 2)).sum().backward()
    assert set(clipped_sums(recorder.uses, layout, 1.0)) == set(module.parameters())


def test_a_table_of_ones_own_needs_no_copies() -> None:
    table, halved = (
        Recorder(module, (), lambda: BlockLayout(()))
        for module in (Scaled(TOKENS, WIDTH), Halved())
    )
    assert (table.entries, halved.entries) == (0, WIDTH)
    assert find_rule(Container(), ()) is None


def test_copies_are_few_enough_for_the_memory() -> None:
    data = torch.utils.data.TensorDataset(numbers(20))
    wide = nn.Sequential(Halved(), nn.Linear(WIDTH, 1))
    wide[0].scale = nn.Parameter(torch.ones(1 << 26))
    for module, rows in ((wide, 4), (nn.Linear(WIDTH, 1), 20)):
        _, _, loader = PrivacyEngine(random_state=1).make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.0),
            dataset=data,
            n_users=20,
            noise_multiplier=1.0,
            steps=1,
            sampling_rate=1.0,
            max_grad_norm=1.0,
        )
        assert len(next(iter(loader))[0]) == rows


class Placed(torch.nn.Module):
    """A network called with token positions that all records share."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.map = nn.Embedding(LENGTH, WIDTH), nn.Linear(WIDTH, 2)

    def forward(self, x: Any, places: Any) -> Any:
        return self.map(torch.tanh(x + self.places(places)))


def test_input_of_batch_length_has_no_record_rows() -> None:
    module, places, layout = Placed(), torch.arange(LENGTH), BlockLayout((1, 1))
    alone = copy.deepcopy(module)
    recorder = Recorder(module, (), lambda: layout)
    for rows in (2, LENGTH, 3):
        layout = BlockLayout((1,) * rows)
        x = numbers(rows)
        module(recorder.mark_batch(x, rows), places).square().sum((1, 2)).sum().backward()
        uses = recorder.uses[module.places.weight]
        for row in range(rows):
            loss = alone(x[row : row + 1], places).square().sum()
            (wanted,) = torch.autograd.grad(loss, alone.places.weight)
            assert torch.allclose(
                sum(use.block_gradient(row) for use in uses).float(), wanted, atol=1e-5
            )
