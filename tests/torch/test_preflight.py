"""Networks that mix records are detected on synthetic ones; others are not suspected."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.refusals import refuses
from tests.torch.cases import NETWORKS, Scaled
from tests.torch.library import torch
from tests.torch.runs import made

# isort: split
from dpgrain.errors import ParameterError
from dpgrain.torch.clipping import clipped_sums
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.preflight import synthetic_inputs
from dpgrain.torch.randomness import seeded_randomness
from dpgrain.torch.recorder import Recorder
from dpgrain.units import Record

nn, functional = torch.nn, torch.nn.functional
ROWS, WIDTH = 6, 3


class Between(torch.nn.Module):
    """Two maps with a function between them."""

    def __init__(self, function: Callable[[Any], Any], first: bool = True) -> None:
        super().__init__()
        self.one = nn.Linear(WIDTH, WIDTH) if first else nn.Identity()
        self.two, self.function = nn.Linear(WIDTH, WIDTH), function

    def forward(self, x: Any) -> Any:
        return self.two(self.function(self.one(x)))


class Levelled(torch.autograd.Function):
    """The identity with its gradient divided by the norm of all records' gradients."""

    @staticmethod
    def forward(_ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        return gradients[0] / gradients[0].norm()


class Remembering:
    """A layer that adds the mean of earlier records."""

    def __init__(self) -> None:
        self.last = 0.0

    def __call__(self, x: Any) -> Any:
        before, self.last = self.last, x.detach().mean()
        return x + before


class Branching(torch.nn.Module):
    """A network that calls either map, depending on all of its records together."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(WIDTH, 2), nn.Linear(WIDTH, 2)

    def forward(self, x: Any) -> Any:
        return self.one(x) if x[0, 0] > 0 else self.two(x)


class Positions(torch.nn.Module):
    """A network with a table of positions that all records share."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.places, self.map, self.rows = nn.Embedding(rows, WIDTH), nn.Linear(WIDTH, 2), rows

    def forward(self, x: Any) -> Any:
        return self.map(x + self.places(torch.arange(self.rows)))


class Uncommon(torch.nn.Module):
    """A network that inspects the tokens common to its records."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, WIDTH)

    def forward(self, tokens: Any) -> Any:
        return self.table(tokens).mean(1) * len(torch.unique(tokens.sum(1)))


MIXING: dict[str, Callable[[Any], Any]] = {
    "softmax over records": lambda x: torch.softmax(x, 0),
    "centred": lambda x: x - x.mean(0),
    "centred by what has no gradient": lambda x: x - x.detach().mean(0),
    "normalised": lambda x: functional.batch_norm(x, None, None, training=True),
    "rolled": lambda x: torch.roll(x, 1, 0),
    "turned round": lambda x: x.flip(0),
    "sorted": lambda x: torch.sort(x, 0).values,
    "added up": lambda x: torch.cumsum(x, 0),
    "one norm for all": lambda x: x / torch.linalg.norm(x),
    "largest of all": lambda x: x / x.detach().abs().max(),
    "attention between records": lambda x: functional.scaled_dot_product_attention(x, x, x),
    "products": lambda x: (x @ x.T) @ x,
    "neighbours beside": lambda x: torch.cat([x[:, :2], x.roll(1, 0)[:, 2:]], 1),
    "as many as there are": lambda x: x / len(x),
    "by place": lambda x: x * torch.arange(len(x))[:, None],
    "gradients together": Levelled.apply,
    "a thousandth of the mean": lambda x: x + 1e-3 * x.mean(0),
    "scaled by what is not finite": lambda x: x * torch.isfinite(x).all() * (1 + x[0].sum()),
}


def tried(module: Any, x: Any, apart: tuple[type, ...] = ()) -> None:
    recorder = Recorder(module, apart, lambda: BlockLayout((1,) * len(x)))
    try:
        module(x)
    finally:
        recorder.remove()


@pytest.mark.parametrize("first", [True, False], ids=["between maps", "before the map"])
@pytest.mark.parametrize("name", MIXING)
def test_mixing_functions_are_detected(name: str, first: bool) -> None:
    if name == "gradients together" and not first:
        return  # Nothing before it is trained.
    torch.manual_seed(3)
    with refuses("module", "records"):
        tried(Between(MIXING[name], first), torch.zeros(ROWS, WIDTH))


@pytest.mark.slow
def test_dropout_does_not_mask_mixing() -> None:
    for name in ("centred", "by place", "as many as there are"):
        with pytest.raises(ParameterError, match="module must not mix records"):
            tried(nn.Sequential(nn.Dropout(0.3), Between(MIXING[name])), torch.zeros(ROWS, WIDTH))


@pytest.mark.parametrize(
    ("module", "x", "words"),
    [
        (Between(Remembering()), torch.zeros(ROWS, WIDTH), "from an earlier call"),
        (Branching(), torch.zeros(ROWS, WIDTH), "Branching"),
        (Uncommon(), torch.zeros(ROWS, 8, dtype=torch.int64), "Uncommon"),
    ],
)
def test_mixing_networks_are_detected(module: Any, x: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        tried(module, x)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("name", NETWORKS)
def test_separating_networks_are_not_suspected(name: str, precision: Any) -> None:
    torch.manual_seed(1)
    make, draw = NETWORKS[name]
    module, x = make(), draw(ROWS)
    module(x[:2])
    tried(module.to(precision), x.to(precision) if x.is_floating_point() else x, (Scaled,))
    if precision == torch.float32:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            tried(module, x, (Scaled,))


@pytest.mark.parametrize("length", [1, 3, 4, ROWS, 2 * ROWS])
def test_a_table_of_positions_is_not_suspected(length: int) -> None:
    tried(Positions(length), torch.zeros(ROWS, length, WIDTH))


@pytest.mark.slow
def test_dropout_is_not_suspected() -> None:
    module = nn.Sequential(nn.Linear(WIDTH, 50), nn.Dropout(), nn.Linear(50, 2), nn.Dropout(0.2))
    before = torch.random.get_rng_state()
    recorder = Recorder(module, (), lambda: BlockLayout((1,) * ROWS))
    recorder.check_example(((torch.eye(ROWS, WIDTH),), {}), ROWS)
    # A seeded run draws what it would have drawn without the trial.
    assert torch.equal(torch.random.get_rng_state(), before)
    assert module.training
    assert all(part.training for part in module)
    assert all(p.grad is None and p.requires_grad for p in module.parameters())


def test_module_needing_other_records_is_given_an_example() -> None:
    class Picky(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = nn.Linear(4, 1, bias=False)

        def forward(self, x: Any) -> Any:
            return self.map((x - 10).sqrt())

    module = Picky()
    options = {"module": module, "optimizer": torch.optim.SGD(module.parameters(), lr=0.1)}
    records = torch.full((8, 4), 20.0)
    _engine, module, _optimizer, loader = made(records, Record(), n_users=8, **options)
    with refuses("example", "NaN"):
        module(next(iter(loader))[0])
    options["module"] = Picky()
    options["optimizer"] = torch.optim.SGD(options["module"].parameters(), lr=0.1)
    example = 11 + torch.rand(3, 4)
    _engine, module, _optimizer, loader = made(
        records, Record(), n_users=8, example={"x": example}, **options
    )
    module(next(iter(loader))[0]).mean().backward()


@pytest.mark.parametrize("example", [torch.zeros(1, 4), (), 3.0])
def test_example_contains_two_records(example: Any) -> None:
    with refuses("example", "contain"):
        made(torch.ones(8, 4), Record(), example=example)


def test_mixing_network_is_rejected_before_any_charge() -> None:
    module = Between(MIXING["centred"])
    with refuses("module", "records"):
        made(
            torch.ones(8, WIDTH),
            Record(),
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            example=torch.randn(5, WIDTH),
        )
    assert not module._forward_pre_hooks


def test_synthetic_records_have_only_shapes_and_types() -> None:
    batch = (
        torch.full((9, 2), 7.0, dtype=torch.float64),
        torch.full((9,), 7),
        {"mask": torch.ones(9, 3, dtype=torch.bool), "all": torch.ones(5), "word": "mean"},
    )
    numbers, whole, named = synthetic_inputs(batch)
    assert numbers.shape == (9, 2)
    assert numbers.dtype == torch.float64
    assert set(whole.tolist()) == {0, 1}
    assert named["mask"].dtype == torch.bool
    assert named["all"].shape == (5,)
    assert not torch.equal(named["all"], batch[2]["all"])
    assert named["word"] == "mean"
    other = synthetic_inputs((batch[0] * 2, batch[1] - 1, batch[2]))
    assert torch.equal(other[0], numbers)
    assert torch.equal(other[1], whole)


def test_randomness_is_as_before() -> None:
    with seeded_randomness(3):
        first = torch.rand(2)
    with seeded_randomness(3):
        assert torch.equal(torch.rand(2), first)


# -- mixing that is there in some runs only, or comes later --


def clipped_sums_of(module: Any, x: Any) -> Any:
    recorder = Recorder(module, (), lambda: BlockLayout((1,) * len(x)))
    try:
        module(x).square().flatten(1).sum(1).sum().backward()
        return clipped_sums(recorder.uses, BlockLayout((1,) * len(x)), 1.0)
    finally:
        recorder.remove()


class Sometimes(torch.nn.Module):
    """A network that mixes records in some runs, or in batches of more than seven."""

    def __init__(self, draw: Callable[[], float] | None) -> None:
        super().__init__()
        self.map, self.draw = nn.Linear(WIDTH, 2), draw

    def forward(self, x: Any) -> Any:
        mixes = len(x) > 7 if self.draw is None else self.training and self.draw() < 0.5
        return self.map(0.7 * x + 0.3 * x.roll(1, 0) if mixes else x)


@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_mixing_in_some_runs_moves_no_other_record(draw: Callable[[], float]) -> None:
    """Each record is a batch of one, which has nothing to be mixed with."""
    torch.manual_seed(2)
    module, x = Sometimes(draw), torch.randn(ROWS, WIDTH)
    other = torch.cat([10 * x[:1], x[1:]])
    for seed in range(8):
        sums = []
        for batch in (x, other):
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002 - what modules may use
            sums.append(clipped_sums_of(module, batch))
        moved = sum(float((sums[0][p] - sums[1][p]).square().sum()) for p in sums[0]) ** 0.5
        assert moved <= 2 + 1e-5


def test_mixing_in_large_batches_is_detected_when_read() -> None:
    module = Sometimes(None)
    for rows in (2, 5, 7):
        tried(module, torch.zeros(rows, WIDTH))
    layout = BlockLayout(())
    recorder = Recorder(module, (), lambda: layout)
    for rows in (2, 7):
        layout = BlockLayout((1,) * rows)
        module(torch.randn(rows, WIDTH))
    layout = BlockLayout((1,) * 8)
    with refuses("module", "mix records"):
        module(torch.randn(8, WIDTH))
    recorder.remove()


class Centring(torch.nn.Module):
    """A layer that subtracts the mean of all records if requested."""

    def __init__(self, how: Any = False) -> None:
        super().__init__()
        self.how, self.options = how, {"centred": [False]}

    def forward(self, x: Any) -> Any:
        asked = self.how is True or self.options["centred"] == [True]
        return x - x.mean(0) if asked else self.how(x) if callable(self.how) else x


def centred(*given: Any) -> Any:
    return given[-1] - given[-1].mean(0)


def replaced(net: Any) -> None:
    net[1] = Centring(True)


def asked_in_a_list(net: Any) -> None:
    net[1].options["centred"][0] = True


def asked_by_another(net: Any) -> None:
    net[1].how = centred


def hooked(net: Any) -> None:
    net[1].register_forward_hook(centred)


def hooked_before(net: Any) -> None:
    net[2].register_forward_pre_hook(lambda _m, given: (given[0] - given[0].mean(0),))


def hooked_backwards(net: Any) -> None:
    net[1].register_full_backward_hook(lambda _m, given, _out: (given[0] - given[0].mean(0),))


def another_forward(net: Any) -> None:
    net[1].forward = centred


def other_mode(net: Any) -> None:
    net[3].eval()


CHANGES = {
    "asked for": lambda net: setattr(net[1], "how", True),
    "in a list": asked_in_a_list,
    "by a function": asked_by_another,
    "another layer": replaced,
    "one layer more": lambda net: net.append(Centring(True)),
    "a hook": hooked,
    "a hook before": hooked_before,
    "a hook backwards": hooked_backwards,
    "another forward": another_forward,
    "another mode": other_mode,
}


class InEvaluation(torch.nn.Module):
    """A layer that centres only in evaluation mode, as a frozen part may be."""

    def forward(self, x: Any) -> Any:
        return x if self.training else x - x.mean(0)


@pytest.mark.parametrize("example", [False, True], ids=["shapes", "example"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("name", CHANGES)
def test_changed_network_is_tried_again(name: str, dropout: float, example: bool) -> None:
    # A random network is tested in evaluation mode for effects of the number of records.
    moded = InEvaluation() if dropout == 0 else nn.Identity()
    if name == "another mode" and dropout:
        return  # detected before the change
    net = nn.Sequential(
        nn.Linear(WIDTH, WIDTH), Centring(), nn.Dropout(dropout), moded, nn.Linear(WIDTH, 2)
    )
    recorder = Recorder(net, (), lambda: BlockLayout((1,) * ROWS))
    if example:
        recorder.check_example(((torch.randn(5, WIDTH),), {}), 5)
    x = torch.randn(ROWS, WIDTH)
    for _ in range(2):
        net(x)
    CHANGES[name](net)
    with refuses("module", "records"):
        net(x)


def test_hooks_around_all_modules_count() -> None:
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
    Recorder(net, (), lambda: BlockLayout((1,) * ROWS))
    net(torch.randn(ROWS, WIDTH))
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda part, _x, out: out - out.mean(0) if isinstance(part, nn.Tanh) else None
    )
    try:
        with refuses("module", "records"):
            net(torch.randn(ROWS, WIDTH))
    finally:
        hook.remove()


def test_differently_called_network_is_tried_again() -> None:
    class Asked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = nn.Linear(WIDTH, 2)

        def forward(self, x: Any, mix: bool = False, more: Any = None) -> Any:
            x = x if more is None else x + more.mean(0)
            return self.map(x - x.mean(0) if mix else x)

    x = torch.randn(ROWS, WIDTH)
    for given in ({"mix": True}, {"more": x}):
        net = Asked()
        recorder = Recorder(net, (), lambda: BlockLayout((1,) * ROWS))
        recorder.check_example(((), {"x": torch.randn(5, WIDTH)}), 5)
        net(x)
        with refuses("module", "records"):
            net(x, **given)


def test_network_is_tried_once_per_number_of_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[int] = []

    def check(*_given: Any) -> set[int]:
        runs.append(1)
        return set()

    monkeypatch.setattr("dpgrain.torch.recorder.check_separation", check)
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), Centring(), nn.Linear(WIDTH, 2))
    layout = BlockLayout(())
    Recorder(net, (), lambda: layout)
    for rows in (ROWS, 3, ROWS, 3, ROWS):
        layout = BlockLayout((1,) * rows)
        net(torch.randn(rows, WIDTH)).sum().backward()
        net.eval()
        net(torch.randn(9, WIDTH))
        net.train()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(1)
    assert len(runs) == 2


def test_a_trial_shortens_no_products() -> None:
    # Kernels for three records and for four may shorten other products, by more than is allowed.
    seen: list[bool] = []

    def looked(x: Any) -> Any:
        seen.append(torch.backends.cudnn.allow_tf32)
        return torch.tanh(x)

    assert torch.backends.cudnn.allow_tf32
    layout = BlockLayout((1,) * ROWS)
    recorder = Recorder(Between(looked), (), lambda: layout)
    recorder.check_example(((torch.randn(ROWS, WIDTH),), {}), ROWS)
    recorder.remove()
    assert seen
    assert not any(seen)


def test_network_is_tried_on_its_device() -> None:
    network, x = Between(torch.tanh), torch.randn(ROWS, WIDTH)
    layout = BlockLayout((1,) * ROWS)
    recorder = Recorder(network, (), lambda: layout)
    # As after torch.set_default_device("cuda"), with synthetic records on the processor.
    with torch.device("meta"):
        assert synthetic_inputs(x, ROWS).device.type == "cpu"
        network(x).sum().backward()
    recorder.remove()
    assert recorder.uses


class Looked(torch.nn.Module):
    """A network with a table of one row, as families with one type of token have."""

    def __init__(self, mixes: bool) -> None:
        super().__init__()
        self.types, self.tokens = torch.nn.Embedding(1, 3), torch.nn.Embedding(9, 3)
        self.mixes = mixes

    def forward(self, ids: Any) -> Any:
        x = self.tokens(ids) + self.types(torch.zeros_like(ids))
        return x + x.mean(0) if self.mixes else x


class Widened(torch.nn.Module):
    """A network that changes an internal word when the first records are short."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.kind = torch.nn.Linear(3, 3), "sparse"

    def forward(self, x: Any) -> Any:
        if x.shape[1] < 9:
            self.kind = "full"
        return self.layer(x)


def test_one_row_table_does_not_make_records_equal() -> None:
    ids = torch.zeros(ROWS, 5, dtype=torch.int64)
    tried(Looked(mixes=False), ids)
    with refuses("module", "mix records"):
        tried(Looked(mixes=True), ids)


def test_nan_results_prove_nothing() -> None:
    with refuses("example", "NaN"):
        tried(Between(lambda x: torch.log(-x.abs() - 1)), torch.zeros(ROWS, WIDTH))


def test_word_changing_in_the_first_call_is_rejected() -> None:
    tried(Widened(), torch.zeros(ROWS, 9, 3))
    with refuses("module", "'kind'"):
        tried(Widened(), torch.zeros(ROWS, 5, 3))
