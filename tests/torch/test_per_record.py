"""In a pass each record is a batch of one, and tensors remember their inputs."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from tests.refusals import refuses
from tests.torch.cases import distance
from tests.torch.library import torch
from tests.torch.runs import made

# isort: split
from dpgrain.errors import ParameterError
from dpgrain.torch.clipping import clipped_sums
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.recorder import Recorder
from dpgrain.units import Record

nn, functional = torch.nn, torch.nn.functional
ROWS, WIDTH = 5, 3


class Between(torch.nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.one, self.two, self.function = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2), function

    def forward(self, x: Any) -> Any:
        return self.two(self.function(self.one(x)))


def summed(module: Any, x: Any, prepare: Any = None) -> Any:
    """The clipped sum of a batch from a loader."""
    layout = BlockLayout((1,) * len(x))
    recorder = Recorder(module, (), lambda: layout)
    try:
        batch = recorder.mark_batch(x, len(x))
        out = module(batch if prepare is None else prepare(batch))
        out.square().flatten(1).sum(1).sum().backward()
        return clipped_sums(recorder.uses, layout, 1.0)
    finally:
        recorder.remove()


def moved(module: Any, prepare: Any = None) -> float:
    """How far one record moves the clipped sum, in bounds."""
    torch.manual_seed(4)
    x = torch.randn(ROWS, WIDTH)
    sums = [summed(module, rows, prepare) for rows in (x, x[1:])]
    return distance(*sums)


# -- what a network may not do --


class Levelled(torch.autograd.Function):
    """The identity for a record, and a mean over records in its own rule for batches."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing."""

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        return gradients[0]

    @staticmethod
    def vmap(_info: Any, _dims: Any, x: Any) -> Any:
        return x + x.mean(0), 0


class Doubled(torch.autograd.Function):
    """Twice a number, by a rule that PyTorch makes for batches."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return 2 * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing."""

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        return 2 * gradients[0]


class Multiplied(torch.nn.Module):
    """A linear map with a weight that a function reads."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(ROWS, ROWS))

    def forward(self, x: Any) -> Any:
        return functional.linear(x, self.weight)


class Squeezed(torch.nn.Module):
    """A layer that reads a record without its first dimension, and a batch as columns."""

    def __init__(self, layer: Any, squeeze: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layer, self.two, self.squeeze = layer, nn.Linear(WIDTH, 2), squeeze

    def forward(self, x: Any) -> Any:
        own = self.layer(self.squeeze(x)).detach()
        return self.two(x) + (own.mean(1, keepdim=True) if own.dim() > 1 else own.mean())


@pytest.mark.parametrize(
    ("layer", "squeeze"),
    [
        (nn.Linear(ROWS, ROWS), lambda x: x[:, 0].squeeze()),
        (Multiplied(), lambda x: x[:, 0].squeeze()),
        (nn.LayerNorm((ROWS, 1)), lambda x: x[:, :1].squeeze(0)),
        (nn.Conv1d(ROWS, ROWS, 1), lambda x: x.squeeze(0)),
    ],
    ids=["linear", "function", "norm", "convolution"],
)
def test_a_layer_does_not_take_records_for_columns(layer: Any, squeeze: Any) -> None:
    with refuses("module"):
        summed(Squeezed(layer, squeeze), torch.randn(ROWS, WIDTH))


def test_a_layer_does_not_take_records_for_columns_after_the_trial() -> None:
    """The first run is tried with synthetic records, and later runs are not."""
    late: list[bool] = []

    def squeeze(x: Any) -> Any:
        return x[:, 0].squeeze() if late else x[:, :1].expand(-1, ROWS)

    module, x = Squeezed(nn.Linear(ROWS, ROWS), squeeze), torch.randn(ROWS, WIDTH)
    recorder = Recorder(module, (), lambda: BlockLayout((1,) * ROWS))
    try:
        module(recorder.mark_batch(x, ROWS))
        late.append(True)
        with refuses("module", "squeeze"):
            module(recorder.mark_batch(x, ROWS))
    finally:
        recorder.remove()


def saved_in_one_scale(function: Callable[[], Any]) -> Any:
    def packed(x: Any) -> Any:
        return x / x.abs().max()

    with torch.autograd.graph.saved_tensors_hooks(packed, lambda x: x):
        return function()


def test_hooks_on_saved_tensors_are_rejected() -> None:
    x = torch.randn(ROWS, WIDTH)
    inside = Between(lambda h: saved_in_one_scale(lambda: h * h))
    with refuses("module", "saved_tensors_hooks"):
        summed(inside, x)
    with refuses("module", "saved_tensors_hooks"):
        saved_in_one_scale(lambda: summed(Between(torch.tanh), x))


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (
            lambda h: h + torch.randn(h.shape, generator=torch.Generator().manual_seed(0)),
            "generator",
        ),
        (lambda h: h if repr(h) else -h, "text"),
        (lambda h: h if f"{h}" else -h, "text"),
    ],
)
def test_custom_generator_draws_and_text_are_rejected(function: Any, word: str) -> None:
    with refuses("module", word):
        summed(Between(function), torch.randn(ROWS, WIDTH))


def test_seed_in_a_network_is_rejected() -> None:
    def drawn(h: Any) -> Any:
        torch.manual_seed(17)
        return h + torch.randn(h.shape)

    torch.manual_seed(4)
    with refuses("module", "seed"):
        summed(Between(drawn), torch.randn(ROWS, WIDTH))


class Own(list[Any]):
    """A list of another type."""


def test_tensors_in_other_lists_are_looked_at() -> None:
    held: list[Any] = []

    def keep(batch: Any) -> Any:
        held[:] = [batch]
        return batch

    with refuses("module", "stored"):
        module = Between(lambda h: h + torch.stack(Own([held[0], held[0]])).mean())
        summed(module, torch.randn(ROWS, WIDTH), keep)


def test_length_of_a_stored_batch_is_rejected() -> None:
    held: list[Any] = []
    module = Between(lambda h: h * len(held[0]))

    def prepare(batch: Any) -> Any:
        held[:] = [batch]
        return batch

    with refuses("module", "stored"):
        summed(module, torch.randn(ROWS, WIDTH), prepare)


def centred(gradient: Any) -> Any:
    return gradient - gradient.mean(0)


def hooked(x: Any) -> Any:
    x.requires_grad_().register_hook(centred)
    return x


def hooked_at_its_node(x: Any) -> Any:
    if x.grad_fn is not None:
        x.grad_fn.register_prehook(lambda gradients: tuple(map(centred, gradients)))
    return x


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (Levelled.apply, "Levelled"),
        (hooked, "register_hook"),
        (hooked_at_its_node, "grad_fn"),
        (lambda x: x + x.numpy().mean(), "vmap"),
        (lambda x: x * float(x.sum()), "vmap"),
        (lambda x: x if x.sum() > 0 else -x, "vmap"),
    ],
)
def test_possibly_mixing_functions_are_rejected(function: Any, word: str) -> None:
    with refuses("module", word):
        summed(Between(function), torch.randn(ROWS, WIDTH))


def test_function_with_generated_rule_is_right() -> None:
    torch.manual_seed(1)
    module = Between(Doubled.apply)
    sums = summed(module, torch.randn(ROWS, WIDTH))
    module.function = lambda x: x * 2
    torch.manual_seed(1)
    other = Between(lambda x: x * 2)
    torch.manual_seed(1)
    again = Between(Doubled.apply)
    x = torch.randn(ROWS, WIDTH)
    one, two = (
        {n: found[p] for n, p in net.named_parameters()}
        for net, found in ((other, summed(other, x)), (again, summed(again, x)))
    )
    assert distance(one, two) <= 1e-6
    assert sums.keys() == set(module.parameters())


def test_gradients_are_not_changed_by_hooks_of_layers() -> None:
    module = Between(torch.tanh)
    module.one.register_full_backward_hook(lambda _m, given, _out: tuple(map(centred, given)))
    with refuses("module", "backward hooks"):
        summed(module, torch.randn(ROWS, WIDTH))


def test_a_hook_before_a_layer_sees_one_record() -> None:
    module = Between(torch.tanh)
    module.two.register_forward_pre_hook(lambda _m, given: (given[0] - given[0].mean(0),))
    with refuses("module", "mix records"):
        summed(module, torch.randn(ROWS, WIDTH))


def test_batch_stored_in_the_module_is_rejected() -> None:
    held: list[Any] = []

    def keep(batch: Any) -> Any:
        held[:] = [batch]
        return batch

    with refuses("module", "stored"):
        summed(Between(lambda x: x + held[0].mean(0)), torch.randn(ROWS, WIDTH), keep)


def test_remains_of_an_earlier_batch_are_rejected() -> None:
    kept: list[Any] = []

    def function(x: Any) -> Any:
        out = x + kept[-1] if len(kept) > 2 else x
        kept.append(x.detach())
        return out

    module, layout = Between(function), BlockLayout((1,) * ROWS)
    recorder = Recorder(module, (), lambda: layout)
    with refuses("module", "earlier call"):
        module(torch.randn(ROWS, WIDTH))
    recorder.remove()


def test_scalar_draws_are_shared_and_others_per_record() -> None:
    scales: list[Any] = []

    def function(x: Any) -> Any:
        scale = torch.rand(())
        if scale < 0:  # A number of all records may decide.
            return x
        noise = torch.rand(1, WIDTH)
        scales.append(scale)
        return x * scale + noise

    layout = BlockLayout((1,) * ROWS)
    module = Between(function)
    recorder = Recorder(module, (), lambda: layout)
    out = module(torch.ones(ROWS, WIDTH)).detach()
    recorder.remove()
    assert not torch.equal(out[0], out[1])
    assert scales[-1].shape == ()


# -- what a loop may not do with a batch --


LOOPS: dict[str, Callable[[Any], Any]] = {
    "mixup": lambda x: 0.7 * x + 0.3 * x[torch.randperm(len(x))],
    "turned round": lambda x: x.flip(0),
    "rolled": lambda x: x.roll(1, 0),
    "sorted": lambda x: x[x[:, 0].argsort()],
    "standardized": lambda x: (x - x.mean(0)) / (1 + x.std(0)),
    "one scale for all": lambda x: x / x.abs().max(),
    "by place": lambda x: x * torch.arange(1.0, len(x) + 1)[:, None],
    "in place": lambda x: x.sub_(x.mean(0)),
    "written into": lambda x: x.__setitem__(0, x[1]) or x,
    "stacked again": lambda x: torch.stack(list(x)[::-1]),
    "two of a kind": lambda x: torch.cat([x[1:], x[:1]]),
}


@pytest.mark.parametrize("name", LOOPS)
def test_batch_mixed_before_the_network_is_rejected(name: str) -> None:
    with refuses("module", "batch from the loader"):
        summed(nn.Linear(WIDTH, 2), torch.randn(ROWS, WIDTH), LOOPS[name])


@pytest.mark.parametrize(
    "prepare",
    [
        lambda x: (x - 0.5) / torch.tensor([1.0, 2.0, 3.0]),
        lambda x: x.to(torch.float64).float().clamp(-1, 1),
        lambda x: functional.normalize(x, dim=1),
        lambda x: torch.where(x > 0, x, -x)[:, :WIDTH],
        lambda x: x.view(len(x), -1),
    ],
)
def test_a_batch_may_be_changed_record_by_record(prepare: Any) -> None:
    assert 0 < moved(nn.Linear(WIDTH, 2), prepare) <= 1 + 1e-5


def test_loss_targets_belong_to_the_batch() -> None:
    data = torch.arange(12.0).view(12, 1)
    module = nn.Linear(1, 1)
    _engine, module, _optimizer, loader = made(
        data, Record(), module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1)
    )
    (x,) = next(iter(loader))
    places = torch.arange(1.0, len(x) + 1)[:, None]
    with pytest.raises(ParameterError, match="one row per record"):
        (module(x) * places).mean().backward()


def test_batch_of_another_step_is_rejected() -> None:
    module, layout = nn.Linear(WIDTH, 2), BlockLayout((1,) * ROWS)
    recorder = Recorder(module, (), lambda: layout)
    first = recorder.mark_batch(torch.randn(ROWS, WIDTH), ROWS)
    _second = recorder.mark_batch(torch.randn(ROWS, WIDTH), ROWS)
    with refuses("module", "another batch"):
        module(first)
    recorder.remove()


def test_batches_are_saved_plainly_and_copied_with_records() -> None:
    module, layout = nn.Linear(WIDTH, 2), BlockLayout((1,) * ROWS)
    recorder = Recorder(module, (), lambda: layout)
    x = torch.randn(ROWS, WIDTH)
    batch = recorder.mark_batch(x, ROWS)
    saved = pickle.loads(pickle.dumps(batch))
    assert type(saved) is torch.Tensor
    assert torch.equal(saved, x)
    assert module(copy.deepcopy(batch)).shape == (ROWS, 2)
    recorder.remove()


@pytest.mark.parametrize(
    "loss",
    [
        lambda out, w: functional.mse_loss(out, out.detach() * 0, weight=w, reduction="sum"),
        lambda out, w: functional.binary_cross_entropy_with_logits(
            out, out.detach().sigmoid(), weight=w, reduction="sum"
        ),
        lambda out, w: functional.binary_cross_entropy_with_logits(
            out, out.detach().sigmoid(), pos_weight=w, reduction="sum"
        ),
        lambda out, w: out[:, : out.detach().argmax(1)[0]].sum(),
    ],
    ids=["squares", "weight", "pos_weight", "a slice of the batch's making"],
)
def test_loss_by_position_is_rejected(loss: Callable[[Any, Any], Any]) -> None:
    module, layout = Between(torch.tanh), BlockLayout((1,) * ROWS)
    recorder = Recorder(module, (), lambda: layout)
    out = module(recorder.mark_batch(torch.randn(ROWS, WIDTH), ROWS))
    with pytest.raises(ParameterError):
        loss(out, torch.arange(1.0, ROWS + 1)[:, None].expand(ROWS, 2)).backward()
    recorder.remove()


def test_records_index_a_table_by_their_own_positions() -> None:
    table, module = torch.randn(ROWS, WIDTH), Between(torch.tanh)
    layout = BlockLayout((1,) * ROWS)
    recorder = Recorder(module, (), lambda: layout)
    module(table[recorder.mark_batch(torch.arange(ROWS), ROWS)]).square().sum(1).sum().backward()
    by_place = clipped_sums(recorder.uses, layout, 1.0)
    recorder.remove()
    assert distance(by_place, summed(module, table)) < 1e-6


def test_a_mask_of_the_batch_picks_no_rows() -> None:
    table, module = torch.randn(ROWS, WIDTH), Between(torch.tanh)
    with refuses("module", "mask"):
        summed(module, torch.arange(ROWS), lambda batch: table[batch >= 0])


@pytest.mark.parametrize(
    "statistics", [(None, None, True), (torch.zeros(WIDTH), torch.ones(WIDTH), True)]
)
def test_a_batch_norm_in_training_moves_no_other_record(statistics: Any) -> None:
    mean, var, training = statistics
    module = Between(lambda h: functional.batch_norm(h, mean, var, None, None, training))
    try:
        assert moved(module) < 1 + 1e-6
    except ParameterError:
        assert training


def test_fixed_statistics_separate_records() -> None:
    mean, var = torch.randn(WIDTH), torch.rand(WIDTH) + 1
    module = Between(lambda h: functional.batch_norm(h, mean, var))
    assert moved(module) < 1 + 1e-6
