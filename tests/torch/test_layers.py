"""Layers that mix records, or are unknown, are rejected by name."""

from __future__ import annotations

from typing import Any

import pytest
from tests.refusals import refuses
from tests.torch.cases import Scaled
from tests.torch.library import torch

# isort: split
from dpgrain.errors import ParameterError
from dpgrain.torch.layers import RULES, by_record, find_rule, within_table
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.privacy_engine import PrivacyEngine
from dpgrain.torch.recorder import Recorder

nn = torch.nn
MIXING = {
    "batch norm": (nn.BatchNorm1d(3), "BatchNorm1d, which mixes records.*GroupNorm"),
    "images": (nn.BatchNorm2d(3), "BatchNorm2d, which mixes"),
    "volumes": (nn.BatchNorm3d(3), "BatchNorm3d, which mixes"),
    "several processes": (nn.SyncBatchNorm(3), "SyncBatchNorm, which mixes"),
    "lazy": (nn.LazyLinear(3), "parameters with shapes"),
    "running": (nn.InstanceNorm1d(3, track_running_stats=True), "track_running_stats=False"),
    "plain running": (nn.BatchNorm1d(3, affine=False), "BatchNorm1d"),
    "shortened": (nn.Embedding(3, 2, max_norm=1.0), "max_norm=None"),
    "frequent": (nn.Embedding(3, 2, scale_grad_by_freq=True), "scale_grad_by_freq=False"),
    "shortened bag": (nn.EmbeddingBag(3, 2, max_norm=1.0), "max_norm=None"),
    "largest": (nn.EmbeddingBag(3, 2, mode="max"), "mode='sum' or 'mean'"),
    "attention": (
        nn.MultiheadAttention(4, 2),
        r"MultiheadAttention.*through_linear_maps\(module\)",
    ),
    "recurrent": (nn.LSTM(3, 2), r"LSTM.*through_linear_maps\(module\)"),
}


@pytest.mark.parametrize(("layer", "words"), MIXING.values(), ids=MIXING)
def test_layers_are_refused_by_name(layer: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        find_rule(layer, ())


class Own2d(torch.nn.BatchNorm2d):
    """A batch norm of the caller's own."""


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(3, track_running_stats=False).eval(),
        Own2d(3).eval(),
        nn.BatchNorm2d(3).requires_grad_(False),
    ],
    ids=["no statistics", "of one's own", "training"],
)
def test_norms_without_fixed_statistics_are_refused(layer: Any) -> None:
    with refuses("module", type(layer).__name__, "eval()"):
        find_rule(layer, ())


def compiled(how: str) -> Any:
    """A network that is compiled as a whole or in part."""
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    match how:
        case "whole":
            return torch.compile(net, backend="eager")
        case "layer":
            net[0] = torch.compile(net[0], backend="eager")
        case "call":
            net.compile(backend="eager")
        case "call of a layer":
            net[1].compile(backend="eager")
        case _:
            net.forward = torch.compile(net.forward, backend="eager")
    return net


@pytest.mark.parametrize("how", ["whole", "layer", "call", "call of a layer", "forward"])
def test_compiled_modules_are_refused_with_the_reason(how: str) -> None:
    module = compiled(how)
    with refuses("module", "compiled", "torch.compile"):
        PrivacyEngine().query(
            module=module,
            optimizer=torch.optim.SGD(module.parameters()),
            dataset=[0.0],
            n_users=1,
            steps=1,
            sampling_rate=1.0,
            max_grad_norm=1.0,
            target_epsilon=1.0,
        )


def test_layers_of_other_kinds_have_no_rule() -> None:
    layer = nn.Linear(3, 2)
    layer.register_parameter("scale", nn.Parameter(torch.ones(1)))
    weighed = torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    for other in (layer, weighed, Scaled(), nn.Bilinear(2, 2, 2)):
        assert find_rule(other, ()) is None
    assert find_rule(Scaled(), (Scaled,)) is by_record


class Own(torch.nn.Linear):
    """A custom map; a subclass may compute something else."""


class Twice(torch.nn.Linear):
    """A map that is twice its weights."""

    def forward(self, x: Any) -> Any:
        return 2 * super().forward(x)


class Columns(torch.nn.Module):
    """A linear map with inputs first, as GPT-2 has it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Any) -> Any:
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class Root(torch.nn.Module):
    """A normalisation by the root mean square, as Llama and Gemma have it."""

    def __init__(self, width: int, more: float = 0.0, kept: bool = False) -> None:
        super().__init__()
        self.weight, self.more = nn.Parameter(torch.ones(width)), more
        self.variance_epsilon = 1e-3
        if kept:
            self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        normal = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return (self.more + self.weight) * normal


@pytest.mark.parametrize("layer", [Own(3, 2), Own(3, 3), Columns(3, 2), Columns(3, 3), Root(4)])
def test_subclasses_of_known_layers_use_the_rule(layer: Any) -> None:
    before = torch.random.get_rng_state()
    rule, x = find_rule(layer, ()), torch.randn(5, 2, layer.weight.shape[layer.weight.dim() == 2])
    torch.random.set_rng_state(before)
    x = x if type(layer) is not Columns else torch.randn(5, 2, layer.weight.shape[0])
    out = layer(x)
    b, layout = torch.randn(out.shape), BlockLayout((1, 1, 3))
    assert rule is not None
    for name, use in rule(layer, x, b, layout).items():
        if hasattr(layer, name):
            same = by_record(layer, x, b, layout)[name]
            for block in range(3):
                assert torch.allclose(
                    use.stored().block_gradient(block), same.block_gradient(block), atol=1e-5
                )


@pytest.mark.parametrize("layer", [Twice(3, 2), Root(4, more=0.5), Root(4, kept=True)])
def test_layers_with_other_computations_have_no_rule(layer: Any) -> None:
    assert find_rule(layer, ()) is None


def test_a_formula_is_tried_without_a_trace() -> None:
    class Counting(torch.nn.Module):
        """A layer that counts its calls, and draws."""

        def __init__(self) -> None:
            super().__init__()
            self.weight, self.calls = nn.Parameter(torch.ones(3)), 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return x * self.weight * torch.rand(())

    layer, before = Counting(), torch.random.get_rng_state()
    assert find_rule(layer, ()) is None
    assert layer.calls == 0
    assert torch.equal(before, torch.random.get_rng_state())


def test_layers_without_parameters_are_walked_into() -> None:
    assert find_rule(nn.Sequential(nn.Linear(2, 2)), ()) is None
    assert find_rule(nn.ReLU(), ()) is None
    assert find_rule(nn.Linear(2, 2).requires_grad_(False), ()) is None
    assert find_rule(nn.Linear(2, 2), ()) is RULES[nn.Linear]


def test_a_layer_of_ones_own_has_no_dropout_inside() -> None:
    class Forgetful(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map, self.dropout = nn.Linear(2, 2), nn.Dropout()

        def forward(self, x: Any) -> Any:
            return self.dropout(self.map(x))

    with refuses("module", "Forgetful"):
        by_record(Forgetful(), torch.ones(3, 2), torch.ones(3, 2), BlockLayout((1, 2)))


def test_sharded_layers_are_rejected() -> None:
    from torch import distributed as group
    from torch.distributed import device_mesh, fsdp

    group.init_process_group("gloo", store=group.HashStore(), rank=0, world_size=1)
    try:
        mesh = device_mesh.init_device_mesh("cpu", (1,))
        frozen = fsdp.fully_shard(nn.Linear(3, 2).requires_grad_(False), mesh=mesh)
        with refuses("module", "must not be sharded"):
            Recorder(nn.Sequential(frozen, nn.Linear(2, 2)), (), lambda: BlockLayout((1,)))
    finally:
        group.destroy_process_group()


def test_unknown_tokens_are_replaced_by_the_padding_or_0() -> None:
    tokens = torch.tensor([[0, 2], [3, -1]])
    assert within_table(nn.Embedding(3, 2), tokens).tolist() == [[0, 2], [0, 0]]
    padded = nn.Embedding(3, 2, padding_idx=1)
    assert within_table(padded, tokens).tolist() == [[0, 2], [1, 1]]
