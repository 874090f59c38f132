"""Layers that mix records, or of which nothing is known, are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from tests.refusals import refuses
from tests.torch.cases import Scaled
from tests.torch.library import torch

# isort: split
from dpgrain.errors import ParameterError
from dpgrain.torch.layers import RULES, by_record, rule_of
from dpgrain.torch.layout import Layout

nn = torch.nn
MIXING = {
    "batch norm": (nn.BatchNorm1d(3), "BatchNorm1d, which mixes records.*GroupNorm"),
    "images": (nn.BatchNorm2d(3), "BatchNorm2d, which mixes"),
    "volumes": (nn.BatchNorm3d(3), "BatchNorm3d, which mixes"),
    "several processes": (nn.SyncBatchNorm(3), "SyncBatchNorm, which mixes"),
    "lazy": (nn.LazyLinear(3), "no shape yet"),
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
    "own": (Scaled(), r"layer Scaled with parameters.*records_apart=\(Scaled,\)"),
    "bilinear": (nn.Bilinear(2, 2, 2), "layer Bilinear"),
}


@pytest.mark.parametrize(("layer", "words"), MIXING.values(), ids=MIXING)
def test_layers_are_refused_by_name(layer: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        rule_of(layer, ())


def test_weights_by_another_name_are_unknown() -> None:
    layer = nn.Linear(3, 2)
    with_other_names = torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    layer.register_parameter("scale", nn.Parameter(torch.ones(1)))
    for odd in (layer, with_other_names):
        with refuses("module", "nothing"):
            _ = [rule_of(part, ()) for part in odd.modules()]


def test_a_subclass_may_do_anything() -> None:
    class Own(torch.nn.Linear):
        """A map of one's own."""

    with refuses("module", "layer"):
        rule_of(Own(2, 2), ())
    assert rule_of(Own(2, 2), (Own,)) is by_record


def test_layers_without_parameters_are_walked_into() -> None:
    assert rule_of(nn.Sequential(nn.Linear(2, 2)), ()) is None
    assert rule_of(nn.ReLU(), ()) is None
    assert rule_of(nn.Linear(2, 2).requires_grad_(False), ()) is None
    assert rule_of(nn.Linear(2, 2), ()) is RULES[nn.Linear]


def test_a_layer_of_ones_own_has_no_dropout_inside() -> None:
    class Forgetful(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map, self.dropout = nn.Linear(2, 2), nn.Dropout()

        def forward(self, x: Any) -> Any:
            return self.dropout(self.map(x))

    with refuses("module", "Forgetful"):
        by_record(Forgetful(), torch.ones(3, 2), torch.ones(3, 2), Layout((1, 2)))
