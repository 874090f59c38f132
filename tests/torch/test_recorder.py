"""Forbidden effects of a recorded forward pass."""

from __future__ import annotations

from typing import Any

import pytest
from tests.refusals import refuses
from tests.torch.cases import frozen
from tests.torch.library import torch

# isort: split
from dpgrain.errors import ParameterError
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.preflight import FEW_RECORDS
from dpgrain.torch.recorder import Recorder

nn = torch.nn
ROWS = 4


def recorded(module: Any, rows: int = ROWS) -> Recorder:
    return Recorder(module, (), lambda: BlockLayout((rows,)))


def test_backward_leaves_weight_gradients_unchanged() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    recorder = recorded(module)
    out = module(torch.ones(ROWS, 3))
    assert out.requires_grad
    out.sum().backward()
    assert all(p.grad is None and p.requires_grad for p in module.parameters())
    assert set(recorder.uses) == set(module.parameters())
    plain = nn.Sequential(*module)
    recorder.remove()
    plain(torch.ones(ROWS, 3)).sum().backward()
    assert all(p.grad is not None for p in module.parameters())


def test_evaluation_is_not_recorded() -> None:
    module = nn.Sequential(nn.Linear(3, 2))
    recorder = recorded(module)
    with torch.no_grad():
        module(torch.ones(9, 3))
    module.eval()
    module(torch.ones(9, 3))
    assert recorder.uses == {}


@pytest.mark.parametrize("shape", [(3, 3), (ROWS * 2, 3), (3,)])
def test_rows_must_be_records(shape: tuple[int, ...]) -> None:
    module = nn.Linear(3, 2)
    recorded(module)
    with refuses("module", "4"):
        module(torch.ones(shape))
    assert all(p.requires_grad for p in module.parameters())


class Counting(torch.nn.Module):
    """A network that stores its number of calls, or its last input, as attributes."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.map, self.what, self.kept = nn.Linear(3, 2), what, {"calls": 0}
        self.last: Any = None

    def forward(self, x: Any) -> Any:
        if self.what == "calls":
            self.kept["calls"] += 1
        elif self.what == "last":
            self.last = x.detach().mean(0)
        elif self.what == "added up":
            self.last = torch.zeros(3) if self.last is None else self.last
            self.last += x.detach().mean(0)
        elif self.last is None:
            self.last = "is set up"
        return self.map(x)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    ("what", "words"),
    [("calls", "attribute 'kept'"), ("last", "attribute 'last'"), ("added up", "Counting")],
)
def test_module_attributes_storing_records_are_rejected(what: str, words: str, rows: int) -> None:
    module = Counting(what)
    recorded(module, rows)
    with refuses("module", words):
        module(torch.ones(rows, 3))


@pytest.mark.parametrize("rows", [1, 3])
def test_one_time_setup_is_not_state(rows: int) -> None:
    module = Counting("nothing")
    recorded(module, rows)
    module(torch.ones(rows, 3)).sum().backward()
    assert module.last == "is set up"


def test_layer_must_not_be_called_separately() -> None:
    module = nn.Sequential(nn.Linear(3, 2))
    recorded(module)
    with refuses("module", "'0'"):
        module[0](torch.ones(ROWS, 3))
    with torch.no_grad():
        module[0](torch.ones(ROWS, 3))


class Keeping(torch.nn.Module):
    """A network that stores the mean of its input, from the first pass with n records.

    Args:
        rows: the number of records.
    """

    mean: Any

    def __init__(self, kind: str, way: str, rows: int) -> None:
        super().__init__()
        self.kind, self.way, self.rows = kind, way, rows
        self.map = nn.Linear(3, 3)
        if kind == "buffer":
            self.register_buffer("mean", torch.full((3,), torch.nan))
        elif kind != "bias":
            self.mean = nn.Parameter(torch.zeros(3), requires_grad=False)

    def forward(self, x: Any) -> Any:
        kept = self.map.bias if self.kind == "bias" else self.mean
        if len(x) == self.rows:
            with torch.no_grad():
                if self.way == "in place":
                    kept.mul_(0.9).add_(x.mean(0))
                elif self.way == "as data":
                    kept.data.copy_(x.mean(0))
                else:
                    self.mean = type(kept)(kept + x.mean(0))
        return self.map(x)


@pytest.mark.parametrize("rows", [1, FEW_RECORDS, 7])
@pytest.mark.parametrize(
    ("kind", "way"),
    [
        (kind, way)
        for kind in ("buffer", "frozen", "bias")
        for way in ("in place", "as data", "anew")
        if (kind, way) != ("bias", "anew")
    ],
)
def test_network_storing_records_is_rejected(kind: str, way: str, rows: int) -> None:
    module = Keeping(kind, way, rows)
    recorded(module, rows)
    what = r"parameter 'map\.bias'" if kind == "bias" else f"{kind} 'mean'"
    with pytest.raises(ParameterError, match=what.replace("frozen", "parameter")):
        module(torch.ones(rows, 3))


def test_non_numeric_contents_are_unchanged() -> None:
    module = Keeping("buffer", "in place", 9)
    recorded(module)
    module(torch.ones(ROWS, 3)).sum().backward()


def test_failed_pass_leaves_parameters_unchanged() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.Linear(5, 2))
    recorded(module)
    with refuses("example", "records"):
        module(torch.ones(ROWS, 3))
    assert all(p.requires_grad for p in module.parameters())


def with_norm(rows: int = ROWS) -> tuple[Any, Any]:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), frozen(torch.nn.BatchNorm1d(4)))
    return module, torch.randn(rows, 3)


@pytest.mark.parametrize("again", ["train", "layer", "nothing"])
def test_frozen_statistics_are_unchanged(again: str) -> None:
    module, x = with_norm()
    recorder = recorded(module)
    before = [buffer.clone() for buffer in module.buffers()]
    (module if again == "train" else module[1]).train(again != "nothing")
    module(x).sum().backward()
    module.train()
    with torch.no_grad():
        module(x)
        module.train()
        module[1](x @ torch.ones(3, 4))
    assert all(torch.equal(one, b) for one, b in zip(before, module.buffers(), strict=True))
    recorder.remove()
    module.train()(x)
    assert not torch.equal(before[0], module[1].running_mean)


def test_norms_are_frozen_individually() -> None:
    module, _ = with_norm()
    with refuses("module", "BatchNorm1d", "train()"):
        recorded(module.eval())
