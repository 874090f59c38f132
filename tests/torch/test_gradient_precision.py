"""Gradients of blocks are computed in full precision; half precision needs a loss that is a sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
from tests.refusals import refuses
from tests.torch.library import torch
from tests.torch.runs import WIDTH, made

# isort: split
import dpgrain as dg
from dpgrain.errors import ParameterError
from dpgrain.torch import gradient_precision
from dpgrain.torch.gradient_precision import (
    check_digits,
    check_precise,
    half_mean,
    is_half,
    precisely,
)
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.privacy_engine import PrivacyEngine
from dpgrain.torch.recorder import Recorder
from dpgrain.torch.tracked_outputs import Pass
from dpgrain.units import User

KINDS = (torch.bfloat16, torch.float16)
REFUSED = "loss_reduction must be 'sum' if gradients pass through half precision"


class Own(torch.nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.weights, self.kind = torch.nn.Linear(4, 1, bias=False), kind

    def forward(self, x: Any) -> Any:
        with torch.autocast("cpu", dtype=self.kind):
            return self.weights(x).float()


def summed(
    module: Any, records: int, gradient: float, reduction: Literal["mean", "sum"], kind: Any = None
) -> Any:
    """The noisy gradient of one step, with almost no noise, as a multiple of the clipping bound."""
    torch.nn.init.zeros_(next(module.parameters()))
    x = torch.full((records, 4), 0.5, dtype=next(module.parameters()).dtype)
    data = torch.utils.data.TensorDataset(x, torch.full((records, 1), gradient))
    module, optimizer, loader = PrivacyEngine(unit=User(), random_state=1).make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.0),
        dataset=data,
        users=range(records),
        n_users=1,
        steps=1,
        sampling_rate=1.0,
        max_grad_norm=1.0,
        noise_multiplier=2.0**-10,
        loss_reduction=reduction,
    )
    for x, y in loader:
        with torch.autocast("cpu", dtype=kind or torch.bfloat16, enabled=kind is not None):
            out = module(x)
        losses = out.float() * y
        (losses.sum() if reduction == "sum" else losses.mean()).backward()
        optimizer.step()
    return next(module.parameters()).grad.float().clone()


def plain() -> Any:
    return torch.nn.Linear(4, 1, bias=False)


@pytest.mark.parametrize("kind", KINDS)
def test_mean_is_rejected_in_half_precision(kind: Any) -> None:
    for module, under, words in (
        (plain().to(kind), None, f"'weight' is {kind}"),
        (plain(), kind, "the module is called under torch.autocast"),
        (Own(kind), None, f"layer 'weights' returns {kind}"),
    ):
        with pytest.raises(ParameterError, match=REFUSED) as refused:
            summed(module, 3, 0.5, "mean", under)
        assert words in str(refused.value)
        assert refused.value.name == "loss_reduction"


def test_frozen_numbers_in_half_precision_count() -> None:
    module = torch.nn.Sequential(plain(), plain().bfloat16().requires_grad_(False))
    with refuses("loss_reduction", "'1.weight'"):
        check_digits(module)
    module = plain()
    module.register_buffer("shift", torch.zeros(1).half())
    with refuses("loss_reduction", "'shift'"):
        check_digits(module)
    check_digits(plain().double())


@pytest.mark.parametrize("make", [lambda: Own(torch.bfloat16), plain])
def test_one_record_more_moves_a_sum_by_one_bound(make: Any) -> None:
    kind = torch.bfloat16 if type(make()) is torch.nn.Linear else None
    for gradient in (0.5, 0.71, 0.97):
        more, fewer = (summed(make(), n, gradient, "sum", kind) for n in (400, 399))
        assert float((more - fewer).norm()) <= 1.01 + 0.02


@pytest.mark.slow
def test_accepted_mean_stays_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpgrain.torch.training_run.check_digits", lambda _: None)
    monkeypatch.setattr(Pass, "check_gradient", lambda *_: None)
    found = [summed(Own(torch.bfloat16), n, 0.97, "mean") for n in range(995, 1005)]
    assert max(float((a - b).norm()) for a, b in pairwise(found)) <= 1.01 + 0.02


def test_half_precision_means_fewer_digits() -> None:
    assert all(is_half(kind) for kind in KINDS)
    assert not any(is_half(kind) for kind in (torch.float32, torch.float64, torch.int16))
    assert "1 is odd" in str(half_mean("1 is odd"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert gradient_precision.halves_inputs()
    assert not gradient_precision.halves_inputs()


@pytest.fixture
def newer() -> Iterator[None]:
    """The loop sets the precision of products in PyTorch's newer way."""
    inner_products = torch.backends.cuda.matmul
    if not hasattr(inner_products, "fp32_precision"):
        pytest.skip("this version of PyTorch has one way alone")
    inner_products.fp32_precision = "tf32"
    yield
    inner_products.fp32_precision = "none"


def test_settings_are_restored() -> None:
    inner_products = torch.backends.cuda.matmul
    before = inner_products.allow_tf32
    inner_products.allow_tf32 = True
    try:
        with precisely():
            assert not inner_products.allow_tf32
        assert inner_products.allow_tf32
        check_precise()
    finally:
        inner_products.allow_tf32 = before


@pytest.mark.usefixtures("newer")
def test_newer_method_is_rejected_before_any_charge() -> None:
    with dg.budget(epsilon=1.0, delta=1e-5) as budget:
        with pytest.raises(ParameterError, match=r"fp32_precision.*must be 'none'"):
            made(np.ones((6, WIDTH)), User(), target_epsilon=1.0, seed=None)
        assert budget.guarantee is None


class Rounding(torch.nn.Module):
    """A network that rounds to half precision and back between its layers."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.first, self.second, self.kind = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2), kind

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x).to(self.kind).float())


ROUNDED: dict[str, Callable[[Any, Any], Any]] = {
    "a mean of squares": torch.nn.functional.mse_loss,
    "a mean in the loop": lambda out, y: ((out - y) ** 2).mean(),
    "losses of records": lambda out, y: ((out - y) ** 2).sum(1),
    "two means": lambda out, y: (out**2).mean() + 1.0 + (out * y).mean(),
    "a mean of classes": lambda out, y: torch.nn.functional.cross_entropy(out, y.argmax(1)),
    "a mean of divergences": lambda out, y: torch.nn.functional.kl_div(
        out.log_softmax(1), y.softmax(1), reduction="batchmean"
    ),
}


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize("inside", [*KINDS, torch.float32])
@pytest.mark.parametrize("outside", [*KINDS, torch.float32])
def test_the_number_of_records_enters_no_gradient(inside: Any, outside: Any, name: str) -> None:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(7, 3, generator=generator), torch.randn(7, 2, generator=generator)
    torch.manual_seed(1)
    module, first = Rounding(inside), {}
    for records in (5, 6, 7):
        begin = partial(BlockLayout, (1,) * records)
        recorder = Recorder(module, (), begin, reduction="mean")
        loss = ROUNDED[name](module(x[:records]).to(outside), y[:records].to(outside))
        loss.backward()
        recorder.remove()
        first[records] = torch.cat(
            [u.block_gradient(0).flatten() for of in recorder.uses.values() for u in of]
        )
    for more in (6, 7):
        torch.testing.assert_close(first[more], first[5], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("level", ["highest", "high", "medium"])
def test_no_leave_to_shorten_products_reaches_sums_of_blocks(level: str) -> None:
    # Processors that know bfloat16 shorten factors to 7 bits where "medium" lets them, GPUs to 10.
    found: list[Any] = [getattr(torch.backends.mkldnn, of, None) for of in ("matmul", "conv")]
    kinds = [kind for kind in found if hasattr(kind, "fp32_precision")]
    began = [kind.fp32_precision for kind in kinds]
    torch.set_float32_matmul_precision(level)
    try:
        before = [kind.fp32_precision for kind in kinds]
        for _ in range(2):
            with precisely(), precisely():
                assert torch.get_float32_matmul_precision() == "highest"
                assert not torch.backends.cudnn.allow_tf32
                assert {kind.fp32_precision for kind in kinds} <= {"ieee"}
            assert torch.get_float32_matmul_precision() == level
            assert torch.backends.cudnn.allow_tf32
            assert [kind.fp32_precision for kind in kinds] == before
    finally:
        torch.set_float32_matmul_precision("highest")
        for kind, setting in zip(kinds, began, strict=True):
            kind.fp32_precision = setting
